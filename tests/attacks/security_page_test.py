# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md promises nothing that no test holds."""

import pathlib
import re

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE = _ROOT / 'SECURITY.md'
_TEST = re.compile(r'`(tests/[\w/]+_test\.py)`')
_LINK = re.compile(r'\]\(([^)#]+)[^)]*\)')
_MOST_LINES = 120  # Two pages.


def _section(title: str) -> str:
  return _PAGE.read_text().partition(f'\n## {title}\n')[2].partition('\n## ')[0]


class SecurityPageTest(absltest.TestCase):

  def test_every_promise_names_a_test_that_is_there(self):
    rows = [
        line
        for line in _section('What holds').splitlines()
        if line.startswith('| ') and not line.startswith('| promise')
    ]
    self.assertGreater(len(rows), 10)
    for row in rows:
      tests = _TEST.findall(row)
      self.assertNotEmpty(tests, row)
      for test in tests:
        self.assertIn('def test_', (_ROOT / test).read_text(), row)

  def test_every_attack_is_in_it(self):
    text = _section('What holds')
    for path in (_ROOT / 'tests' / 'attacks').glob('*_test.py'):
      if path.name != pathlib.Path(__file__).name:
        self.assertIn(f'`tests/attacks/{path.name}`', text)

  def test_every_other_test_that_it_names_is_there(self):
    for test in _TEST.findall(_PAGE.read_text()):
      self.assertTrue((_ROOT / test).is_file(), test)

  def test_links_lead_somewhere(self):
    for link in _LINK.findall(_PAGE.read_text()):
      self.assertTrue((_ROOT / link).exists(), link)

  def test_it_is_short_and_can_be_found(self):
    self.assertLess(len(_PAGE.read_text().splitlines()), _MOST_LINES)
    self.assertIn('(SECURITY.md)', (_ROOT / 'README.md').read_text())


if __name__ == '__main__':
  absltest.main()
