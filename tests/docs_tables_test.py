# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured tables are those of docs/figures, and their code has not changed."""

import importlib.util
import pathlib
import re

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_SPEC = importlib.util.spec_from_file_location(
    'docs_figures', _ROOT / 'tools' / 'docs_figures.py'
)
docs_figures = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(docs_figures)
_FIGURES = docs_figures.load()
_PAGES = {p.name: p.read_text('utf-8') for p in _ROOT.glob('docs/*.md')}


class DocsTablesTest(parameterized.TestCase):

  @parameterized.parameters(*sorted(_PAGES))
  def test_page_has_the_tables_of_the_json_files(self, name):
    self.assertEqual(docs_figures.written(_PAGES[name], _FIGURES), _PAGES[name])

  def test_every_json_file_is_on_one_page(self):
    shown = [b[2] for p in _PAGES.values() for b in docs_figures.BLOCK.finditer(p)]
    self.assertCountEqual(shown, _FIGURES)

  def test_no_measured_spread_stands_outside_of_a_table(self):
    for name, page in _PAGES.items():
      text = docs_figures.BLOCK.sub('', page)
      self.assertEmpty(re.findall(r'.*\d ± \d.*', text), name)

  @parameterized.parameters(*sorted(_FIGURES))
  def test_code_has_not_changed_since(self, name):
    figure = _FIGURES[name]
    if figure['sha256'] is not None:
      self.assertEqual(
          docs_figures.code_sha256(figure),
          figure['sha256'],
          f'code of docs/figures/{name}.json changed: run its command again and'
          f' `tools/docs_figures.py --measured {name}`, or `--as-of {name}`',
      )

  def test_another_line_of_code_is_another_hash(self):
    root = pathlib.Path(self.create_tempdir().full_path)
    (root / 'task').mkdir()
    hashes = set()
    for text in ('a = 1', 'a = 2'):
      (root / 'task' / 'task.py').write_text(text)
      hashes.add(docs_figures.code_sha256({'code': ['task']}, root))
    self.assertLen(hashes, 2)


if __name__ == '__main__':
  absltest.main()
