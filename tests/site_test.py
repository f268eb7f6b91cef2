# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The built site in a headless Chromium, at the widths of a desk and a phone.

`make test-site` builds it and runs this. Nothing of it is part of `make test`.
"""

import functools
import http.server
import json
import os
import pathlib
import queue
import re
import shutil
import subprocess
import tempfile
import threading
from urllib import parse

from absl.testing import absltest

_SITE = os.environ.get('SITE', '')
_CHROMIUM = shutil.which('chromium') or shutil.which('google-chrome')
_LOOK = pathlib.Path(__file__).with_name('site_look.js')
_SECONDS = 1800
_WIDTHS = (1400, 400)
# That of WCAG 2, level AA, for large text.
_LEAST_CONTRAST = 3
# What a reader types -> the first hit, one of these pages.
_SEARCHES = {
    'migrating': ('docs/migrating.html',),
    'Opacus': ('docs/migrating.html',),
    'min separation': ('docs/reference/participation.html',),
    'StackOverflow': ('colab/3_next_words.html', 'docs/tasks.html'),
    'DpFtrlPlan': ('docs/reference/dp_ftrl.html',),
}


class _Handler(http.server.SimpleHTTPRequestHandler):
  """Serves the site and one more page, and takes what that page has found."""

  def __init__(self, *args, page: str, found: queue.Queue, **kwargs):
    self._page, self._found = page, found
    super().__init__(*args, **kwargs)

  def do_GET(self):
    if self.path != '/look.html':
      return super().do_GET()
    self.send_response(200)
    self.send_header('Content-Type', 'text/html; charset=utf-8')
    self.end_headers()
    self.wfile.write(self._page.encode())

  def do_POST(self):
    size = int(self.headers['Content-Length'])
    self._found.put(json.loads(self.rfile.read(size)))
    self.send_response(204)
    self.end_headers()

  def log_message(self, *args):
    pass


def _look(site: pathlib.Path, pages, searches=()) -> tuple[dict, list[str]]:
  """Returns what was found on pages, and the messages of the console."""
  settings = {
      'PAGES': pages,
      'WIDTHS': _WIDTHS,
      'SEARCHES': searches,
      'LEAST_CONTRAST': _LEAST_CONTRAST,
  }
  head = '\n'.join(
      f'const {name} = {json.dumps(list(value) if isinstance(value, tuple) else value)};'
      for name, value in settings.items()
  )
  page = f'<!doctype html><body><script>{head}{_LOOK.read_text()}</script>'
  found = queue.Queue()
  handler = functools.partial(
      _Handler, directory=str(site), page=page, found=found
  )
  with (
      # The browser may still write to its profile.
      tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
      http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server,
      open(f'{folder}/log', 'w+') as log,
  ):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    browser = subprocess.Popen(
        [
            _CHROMIUM, '--headless=new', '--no-sandbox', '--disable-gpu',
            '--hide-scrollbars', f'--user-data-dir={folder}/profile',
            '--enable-logging=stderr', '--window-size=1500,1000',
            '--remote-debugging-port=0',  # So it stays.
            # Nothing but the site is to be had.
            '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
            f'http://127.0.0.1:{server.server_port}/look.html',
        ],
        stdout=subprocess.DEVNULL,
        stderr=log,
    )
    try:
      looked = found.get(timeout=_SECONDS)
    finally:
      browser.terminate()
      browser.wait()
      server.shutdown()
    log.seek(0)
    return looked, [line for line in log if 'CONSOLE' in line]


def _broken_links(site: pathlib.Path) -> list[str]:
  pages = {path: path.read_text() for path in site.rglob('*.html')}
  anchors = {
      path: set(re.findall(r'\bid="([^"]+)"', text))
      for path, text in pages.items()
  }
  found = []
  for path, text in pages.items():
    for target in set(re.findall(r'\b(?:href|src)="([^"]+)"', text)):
      url = parse.urlsplit(target)
      if url.scheme or target == '#':
        continue
      other = (path.parent / parse.unquote(url.path)) if url.path else path
      other = other.resolve()
      if not other.is_file():
        found.append(f'{path.relative_to(site)}: {target}')
      elif other in anchors and url.fragment:
        if parse.unquote(url.fragment) not in anchors[other]:
          found.append(f'{path.relative_to(site)}: {target}, no such anchor')
  return found


@absltest.skipIf(not _SITE, 'make test-site runs it')
class SiteTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    if _CHROMIUM is None:
      self.fail('there is no Chromium: on Debian, apt-get install chromium')
    self._site = pathlib.Path(_SITE).resolve()

  def test_links(self):
    self.assertEmpty(_broken_links(self._site))

  def test_nothing_is_fetched_from_elsewhere(self):
    for path in self._site.rglob('*.html'):
      self.assertNotRegex(
          path.read_text(),
          r'<(script|img|link|iframe)\b[^>]*\b(src|href)="(https?:)?//',
          path,
      )

  def test_pages_and_search(self):
    pages = sorted(
        str(path.relative_to(self._site)) for path in self._site.rglob('*.html')
    )
    found, messages = _look(self._site, pages, tuple(_SEARCHES))
    self.assertEqual(found['looked'], len(pages) * len(_WIDTHS))
    self.assertEmpty(found['problems'])
    self.assertEmpty(messages)
    for words, good in _SEARCHES.items():
      with self.subTest(words):
        first = found['hits'][words][0]
        self.assertIn(first.partition('#')[0].partition('?')[0], good)

  def test_would_see_what_is_wrong(self):
    site = pathlib.Path(self.create_tempdir().full_path)
    (site / 'page.html').write_text(
        '<!doctype html><body><article><p style="width: 3000px">wide</p>'
        '<p style="color: #eee">faint</p><img src="none.png">'
        '<a href="gone.html"></a></article><script>none()</script>'
    )
    found, messages = _look(site, ['page.html'])
    text = '\n'.join(found['problems'])
    self.assertIn('page.html at 400: overflow: page is', text)
    self.assertIn('light: P  "faint" 1.2', text)
    self.assertIn('no picture: ', text)
    self.assertIn('none is not defined', ''.join(messages))
    self.assertLen(_broken_links(site), 2)


if __name__ == '__main__':
  absltest.main()
