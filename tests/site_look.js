// Looks at the pages of the site in frames, and sends what is wrong to the server
// that they came from. tests/site_test.py puts in `PAGES`, `WIDTHS` and `SEARCHES`.

const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

async function open(page, width) {
  const frame = document.createElement('iframe');
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  const loaded = new Promise((done) => frame.onload = done);
  frame.src = page;
  document.body.append(frame);
  await loaded;
  await frame.contentWindow.MathJax?.startup?.promise;
  return frame;
}

const visible = (element) => element.checkVisibility(
    {opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true});

// Elements beyond the right edge, unless a box around them scrolls or hides them.
function overflowing(view, width) {
  const cut = (element) => {
    for (let each = element; each.tagName !== 'BODY'; each = each.parentElement) {
      if (view.getComputedStyle(each).overflowX !== 'visible' && each !== element) {
        return true;
      }
    }
    return false;
  };
  const found = [...view.document.querySelectorAll('article *')].filter(
      (each) => visible(each) && !each.closest('svg') &&
          each.getBoundingClientRect().right > width + 1 && !cut(each));
  const page = view.document.documentElement.scrollWidth;
  return page > width + 1 ? [`page is ${page} wide`] :
      found.map((each) => `${each.tagName} ${each.className}`);
}

function rgb(text) {
  const parts = text.match(/[\d.]+/g).map(Number);
  // `color(srgb ...)` has shares of 1.
  const scale = text.startsWith('color(') ? 255 : 1;
  return [...parts.slice(0, 3).map((part) => part * scale), parts[3] ?? 1];
}

// WCAG 2: relative luminance, and the ratio of two.
function luminance(colour) {
  const [r, g, b] = colour.map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(view, element) {
  const layers = [];
  for (let each = element; each; each = each.parentElement) {
    layers.push(rgb(view.getComputedStyle(each).backgroundColor));
    if (layers.at(-1)[3] === 1) break;
  }
  let under = [255, 255, 255];
  for (const layer of layers.reverse()) {
    under = under.map((part, i) => layer[3] * layer[i] + (1 - layer[3]) * part);
  }
  const ink = rgb(view.getComputedStyle(element).color);
  const above = under.map((part, i) => ink[3] * ink[i] + (1 - ink[3]) * part);
  const [dark, light] = [luminance(above), luminance(under)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function unreadable(view) {
  const found = new Set();
  for (const each of view.document.querySelectorAll('body *')) {
    const says = [...each.childNodes].some(
        (node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!says || each.closest('svg, mjx-container, .headerlink') ||
        ['SCRIPT', 'STYLE'].includes(each.tagName) || !visible(each)) continue;
    const ratio = contrast(view, each);
    if (ratio < LEAST_CONTRAST) {
      found.add(`${each.tagName} ${each.className} "${each.textContent.trim().slice(0, 20)}" ${
          ratio.toFixed(1)}`);
    }
  }
  return [...found];
}

async function look(page, width) {
  const frame = await open(page, width);
  const view = frame.contentWindow;
  const found = overflowing(view, width).map((what) => `overflow: ${what}`);
  for (const image of view.document.images) {
    image.loading = 'eager';
    await image.decode().catch(() => found.push(`no picture: ${image.src}`));
  }
  for (const theme of ['light', 'dark']) {
    view.document.body.dataset.theme = theme;
    found.push(...unreadable(view).map((what) => `${theme}: ${what}`));
  }
  frame.remove();
  return found.map((what) => `${page} at ${width}: ${what}`);
}

async function search(words) {
  const frame = await open(`docs/../search.html?q=${encodeURIComponent(words)}`, 1400);
  const hits = () => [...frame.contentDocument.querySelectorAll('#search-results li a')];
  for (let i = 0; i < 100 && !hits().length; i++) await wait(0.1);
  await wait(0.5);
  const found = hits().slice(0, 3).map((hit) => hit.getAttribute('href'));
  frame.remove();
  return found;
}

addEventListener('load', async () => {
  const found = {problems: [], hits: {}, looked: 0};
  try {
    for (const page of PAGES) {
      for (const width of WIDTHS) {
        found.problems.push(...await look(page, width));
        found.looked++;
      }
    }
    for (const words of SEARCHES) found.hits[words] = await search(words);
  } catch (error) {
    found.problems.push(`${error.stack}`);
  }
  await fetch('/found', {method: 'POST', body: JSON.stringify(found)});
});
