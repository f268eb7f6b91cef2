# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""No name is undefined or imported for nothing, and types fit.

`tool.mypy` in pyproject.toml lists the packages whose types are checked.
"""

import importlib.util
import pathlib
import subprocess
import sys

from absl.testing import absltest
import pytest

_ROOT = pathlib.Path(__file__).parents[1]
_HAS_RUFF = importlib.util.find_spec('ruff') is not None
_HAS_MYPY = importlib.util.find_spec('mypy') is not None


@pytest.mark.skipif(not _HAS_RUFF, reason='ruff is in the reference stack only')
class LintTest(absltest.TestCase):

  def _ruff(self, *words, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-m', 'ruff', 'check', '--no-cache', *words],
        cwd=_ROOT, capture_output=True, text=True, check=False, **options,
    )

  def test_ruff_finds_nothing(self):
    found = self._ruff('--output-format=concise')
    self.assertEqual(found.returncode, 0, found.stdout + found.stderr)

  def test_ruff_would_find_a_hidden_import(self):
    code = 'import os\nfor os in (1, 2):\n  print(os, undefined)\n'
    found = self._ruff('--stdin-filename=tff_dp/x.py', '-', input=code)
    self.assertIn('F402', found.stdout)
    self.assertIn('F821', found.stdout)


@pytest.mark.skipif(not _HAS_MYPY, reason='mypy is in the reference stack only')
class TypesTest(absltest.TestCase):

  def _mypy(self, *words) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-m', 'mypy', '--cache-dir=/dev/null', *words],
        cwd=_ROOT, capture_output=True, text=True, check=False,
    )

  def test_types_fit(self):
    found = self._mypy()
    self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
    self.assertIn('Success: no issues found in', found.stdout)

  def test_mypy_would_find_another_type(self):
    code = self.create_tempfile('x.py', 'def f(x: int) -> str:\n  return x\n')
    found = self._mypy(code.full_path)
    self.assertIn('[return-value]', found.stdout)


if __name__ == '__main__':
  absltest.main()
