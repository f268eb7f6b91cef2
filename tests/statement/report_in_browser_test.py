# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report in a headless Chromium: nothing overflows, nothing is refused."""

import html
import pathlib
import re
import shutil
import subprocess
import tempfile

from absl.testing import absltest
import pytest

from tests.statement import report_test

pytestmark = pytest.mark.once
_CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
_WIDTHS = (400, 1400)
# Between the margins of A4, in CSS pixels.
_PAPER = 658
# Elements that reach beyond the page, unless their box scrolls. Nothing scrolls on
# paper, and nothing is folded.
_LOOK = """
<script>
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map((frame) => {
    const page = frame.contentDocument;
    const isPaper = frame.name.startsWith('paper');
    const wide = [...page.querySelectorAll('article *')].filter((each) =>
        (isPaper || !each.closest('.wide')) && !each.closest('svg') &&
        each.getBoundingClientRect().right > frame.clientWidth + 1);
    wide.push(...[...page.querySelectorAll('details > dl')].filter((each) =>
        isPaper && !each.checkVisibility()));
    return frame.name + ':' + page.documentElement.scrollWidth + ':' +
        wide.map((each) => each.tagName + '.' + each.className).join(',');
  });
  document.title = 'found ' + found.join(' ') + ' end';
});
</script>
"""


def _dom(folder: str, page: str) -> tuple[str, list[str]]:
  """Returns the page after it was loaded, and the messages of the console."""
  path = pathlib.Path(folder) / 'page.html'
  path.write_text(page)
  done = subprocess.run(
      [
          _CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu',
          '--hide-scrollbars',
          f'--user-data-dir={folder}/profile', '--enable-logging=stderr',
          '--host-resolver-rules=MAP * ~NOTFOUND', '--window-size=1500,1000',
          '--dump-dom', path.as_uri(),
      ],
      capture_output=True,
      text=True,
      timeout=300,
  )
  messages = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
  return done.stdout, messages


@absltest.skipIf(_CHROMIUM is None, 'there is no Chromium')
class BrowserTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = self.enterContext(
        # The browser may still write to its profile.
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    )

  def test_fits_phone_and_desk_without_a_message(self):
    frames = [
        f'<iframe name="{name}-{width}" style="width:{width}px;height:900px;'
        f'border:0" srcdoc="{html.escape(report_test._page(name))}"></iframe>'
        for name in ('honaker', 'silos', 'non_private')
        for width in _WIDTHS
    ]
    dom, messages = _dom(
        self.folder, '<!doctype html>' + _LOOK + '\n'.join(frames)
    )
    self.assertEmpty(messages)
    found = re.search('<title>found (.*) end</title>', dom).group(1).split()
    self.assertLen(found, len(frames))
    for each in found:
      name, width, wide = each.split(':')
      self.assertEqual((width, wide), (name.rpartition('-')[2], ''), each)

  def _printed(self, page: str) -> str:
    """Returns what does not fit on paper, by tag, or lies folded."""
    page = page.replace('@media print', '@media all')
    dom, messages = _dom(
        self.folder,
        f'<!doctype html>{_LOOK}<iframe name="paper" style="width:{_PAPER}px;'
        f'border:0" srcdoc="{html.escape(page)}"></iframe>',
    )
    self.assertEmpty(messages)
    return re.search('<title>found paper:[0-9]+:(.*) end<', dom).group(1)

  def test_nothing_is_cut_or_folded_on_paper(self):
    page = report_test._page('silos')
    self.assertIn('<td>south</td>', page)
    # Silos have the widest table.
    page = page.replace('<td>south</td>', f'<td>{"south" * 20}</td>')
    self.assertEqual(self._printed(page), '')

  def test_would_see_what_is_cut_or_folded_on_paper(self):
    page = report_test._page('silos')
    folded = page.replace('::details-content', '::no-such-part')
    self.assertIn('DL.', self._printed(folded))
    cut = page.replace('overflow-wrap: anywhere; min-width', 'min-width')
    cut = cut.replace('<td>south</td>', f'<td>{"south" * 20}</td>')
    self.assertIn('TD.', self._printed(cut))

  def test_would_see_an_overflow_and_a_message(self):
    page = report_test._page('honaker').replace(
        '<h2>', '<img src="http://example.org/x.png"><p style="width:3000px">', 1
    )
    dom, messages = _dom(
        self.folder,
        f'<!doctype html>{_LOOK}<iframe name="x-400" style="width:400px"'
        f' srcdoc="{html.escape(page)}"></iframe>',
    )
    self.assertIn(':P.', re.search('<title>(.*)</title>', dom).group(1))
    self.assertNotEmpty(messages)


if __name__ == '__main__':
  absltest.main()
