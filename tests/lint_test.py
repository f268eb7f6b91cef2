# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""No name is undefined or imported for nothing, and types fit.

`tool.mypy` in pyproject.toml lists the packages whose types are checked.
"""

import importlib.util
import pathlib
import subprocess
import sys
import tomllib

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

  def test_types_fit(self):
    # And a wrong type would be found: one more file has one.
    wrong = self.create_tempfile('x.py', 'def f(x: int) -> str:\n  return x\n')
    config = tomllib.loads((_ROOT / 'pyproject.toml').read_text('utf-8'))
    checked = config['tool']['mypy']['files']
    found = subprocess.run(
        [sys.executable, '-m', 'mypy', '--cache-dir=/dev/null', *checked,
         wrong.full_path],
        cwd=_ROOT, capture_output=True, text=True, check=False,
    )
    lines = found.stdout.splitlines()
    self.assertLen(lines, 2, found.stdout + found.stderr)
    first, last = lines
    self.assertIn('x.py:2: error: ', first)
    self.assertIn('[return-value]', first)
    self.assertStartsWith(last, 'Found 1 error in 1 file (checked ')


if __name__ == '__main__':
  absltest.main()
