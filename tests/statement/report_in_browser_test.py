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
# Elements that reach beyond the page, unless their box scrolls.
_LOOK = """
<script>
addEventListener('load', () => {
  const found = [...document.querySelectorAll('iframe')].map((frame) => {
    const page = frame.contentDocument;
    const wide = [...page.querySelectorAll('article *')].filter((each) =>
        !each.closest('.wide') && !each.closest('svg') &&
        each.getBoundingClientRect().right > frame.clientWidth + 1);
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
