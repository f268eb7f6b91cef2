# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the notebooks in colab/: as files, and executed from end to end.

Executing them takes minutes, and nbclient: `make test-colab` does it, on the
versions that stock Colab brings. Elsewhere only the files are looked at.
"""

import ast
import contextlib
import importlib.util
import json
import os
import pathlib
import re
import unittest
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).parents[1]
_PATHS = sorted((_ROOT / 'colab').glob('*.ipynb'))
_NUM_NOTEBOOKS = 7
_LONGEST_CELL = 26
_SECONDS = 300
_PIP = (
    '%pip install -q --no-deps --ignore-requires-python --require-hashes'
    ' -r requirements.notebooks.lock'
)
# What stays as Colab brings it.
_COLABS_OWN = ('tensorflow', 'numpy', 'attrs', 'protobuf', 'jax')
# What a cell says on stderr is the progress of a training.
_NOISE = re.compile(r'\.cc:\d+\]|Assets written|WARNING|Warning|Traceback')
_LEARNED = re.compile(
    r'held-out accuracy (\d\.\d+).*?(?:alone|same word) (\d\.\d+)', re.S
)

each_notebook = parameterized.named_parameters(
    (path.stem, path) for path in _PATHS
)


def _source(cell) -> str:
  return ''.join(cell['source'])


def _cells(path: pathlib.Path, kind: str) -> list[dict]:
  cells = json.loads(path.read_text())['cells']
  return [cell for cell in cells if cell['cell_type'] == kind]


def _without_magics(source: str) -> str:
  """Returns a cell as plain Python."""
  return re.sub(r'^( *)[%!].*$', r'\1pass', source, flags=re.MULTILINE)


class FilesTest(parameterized.TestCase):

  def test_all_are_there(self):
    self.assertLen(_PATHS, _NUM_NOTEBOOKS)

  @each_notebook
  def test_has_nothing_that_a_run_leaves(self, path):
    notebook = json.loads(path.read_text())
    self.assertEqual(notebook['nbformat'], 4)
    self.assertGreaterEqual(notebook['nbformat_minor'], 5)
    ids = [cell['id'] for cell in notebook['cells']]
    self.assertLen(set(ids), len(ids))
    for cell in notebook['cells']:
      self.assertEqual(cell['metadata'], {})
      if cell['cell_type'] == 'code':
        self.assertEqual((cell['outputs'], cell['execution_count']), ([], None))
        self.assertLessEqual(len(cell['source']), _LONGEST_CELL)
        ast.parse(_without_magics(_source(cell)))

  @each_notebook
  def test_teaches_and_has_a_size_at_the_top(self, path):
    self.assertStartsWith(_source(json.loads(path.read_text())['cells'][0]), '#')
    self.assertStartsWith(_source(_cells(path, 'code')[1]), "SIZE = 'small'")

  @each_notebook
  def test_links_exist(self, path):
    for cell in _cells(path, 'markdown'):
      for link in re.findall(r'\]\(([^)]+)\)', _source(cell)):
        self.assertTrue((path.parent / link).exists(), link)

  def test_all_are_linked(self):
    text = (_ROOT / 'docs' / 'tutorial.md').read_text()
    for path in _PATHS:
      self.assertIn(f'(../colab/{path.name})', text)

  def test_first_cells_are_the_same(self):
    self.assertLen({_source(_cells(path, 'code')[0]) for path in _PATHS}, 1)

  def test_first_cell_installs_what_was_tested_and_nothing_of_colabs_own(self):
    (line,) = re.findall(
        r'^ *(%pip .*)$', _source(_cells(_PATHS[0], 'code')[0]), re.MULTILINE
    )
    self.assertEqual(line, _PIP)
    guide = (_ROOT / 'docs' / 'tutorial.md').read_text()
    self.assertIn(f'\n{line}\n', guide)
    # In the versions of Colab's lock: see environment_test.
    lock = (_ROOT / 'requirements.notebooks.lock').read_text()
    for package in _COLABS_OWN:
      self.assertNotIn(f'\n{package}==', f'\n{lock}')

  def test_first_cell_does_nothing_but_move_where_colab_is_not(self):
    code = _without_magics(_source(_cells(_PATHS[0], 'code')[0]))
    for folder in (_ROOT, _ROOT / 'colab'):
      with contextlib.chdir(folder), mock.patch('sys.path', []) as path:
        exec(code, {})  # pylint: disable=exec-used
      self.assertEqual(path, [str(_ROOT)])


@unittest.skipUnless(
    importlib.util.find_spec('nbclient'), 'needs nbclient: make test-colab'
)
class RunsTest(parameterized.TestCase):

  def _outputs(self, path: pathlib.Path) -> list:
    """Returns what all cells of a notebook put out, at its small size."""
    # pylint: disable=g-import-not-at-top
    import nbclient
    import nbformat

    # pylint: enable=g-import-not-at-top
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    home = self.create_tempdir().full_path
    # Where somebody's own data might be.
    with mock.patch.dict(os.environ, HOME=home, TMPDIR=home):
      nbclient.NotebookClient(
          notebook,
          timeout=_SECONDS,
          kernel_name='python3',
          resources={'metadata': {'path': str(path.parent)}},
      ).execute()
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == 'code'
        for output in cell.outputs
    ]

  @each_notebook
  def test_runs(self, path):
    outputs = self._outputs(path)
    said = ''.join(
        output.text for output in outputs if output.output_type == 'stream'
    )
    shown = [
        output.data for output in outputs if output.output_type != 'stream'
    ]
    self.assertNotRegex(said, _NOISE)
    self.assertTrue(any('image/png' in data for data in shown))
    self.assertTrue(any('text/markdown' in data for data in shown))
    for data in shown:
      # Of results and statements, not of arrays.
      self.assertLess(len(data['text/plain']), 1000)
    for accuracy, guessing in _LEARNED.findall(said)[-1:]:
      self.assertGreater(float(accuracy), float(guessing))


if __name__ == '__main__':
  absltest.main()
