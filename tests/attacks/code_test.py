# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the code may not do: run what it reads, or take a seed from the clock."""

import ast
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).parents[2]
_FOLDERS = ('tasks', 'tff_dp')
# Modules that run what they read, and functions that do.
_RUNNERS = frozenset(
    ('cloudpickle', 'dill', 'joblib', 'marshal', 'pickle', 'shelve', 'yaml')
)
_CALLS = frozenset(('eval', 'exec', 'compile', '__import__'))
# Both ends of it are trusted, and SECURITY.md says so.
_WIRE = 'tff_dp/execution/cluster/wire.py'
# The standard library's generator, whose state 624 outputs give away.
_WEAK = frozenset(('random',))
_SEEDED = frozenset(('default_rng', 'SeedSequence', 'Generator', 'Philox',
                     'PCG64'))
_CLOCKS = frozenset(('time', 'time_ns', 'monotonic', 'now', 'getpid'))


def _name(node: ast.AST) -> str:
  """Returns 'np.random.seed' of an attribute, a name; '' of anything else."""
  if isinstance(node, ast.Name):
    return node.id
  if isinstance(node, ast.Attribute):
    return f'{_name(node.value)}.{node.attr}'
  return ''


def problems(source: str) -> list[str]:
  """Returns what a module does that it may not."""
  found = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
      names = [node.module]
    else:
      names = []
    for name in names:
      if name.partition('.')[0] in _RUNNERS | _WEAK:
        found.append(f'imports {name}')
    if not isinstance(node, ast.Call):
      continue
    called = _name(node.func)
    if called in _CALLS:
      found.append(f'calls {called}')
    for keyword in node.keywords:
      is_constant = isinstance(keyword.value, ast.Constant)
      if keyword.arg == 'allow_pickle' and not (
          is_constant and keyword.value.value is False
      ):
        found.append('reads pickles')
    if called.endswith('np.load') and 'allow_pickle' not in [
        keyword.arg for keyword in node.keywords
    ]:
      found.append('np.load without a word on pickles')
    family, _, function = called.rpartition('.')
    if family == 'np.random' and (
        function not in _SEEDED or not node.args + node.keywords
    ):
      found.append(f'calls {called}, whose seed nobody sees')
    if 'seed' in function.lower() or function in _SEEDED:
      for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
          if _name(inner.func).rpartition('.')[2] in _CLOCKS:
            found.append(f'{called} gets the clock')
  return found


class CodeTest(parameterized.TestCase):

  def test_nothing_runs_what_it_reads(self):
    paths = [
        path for folder in _FOLDERS for path in (_ROOT / folder).rglob('*.py')
    ]
    self.assertGreater(len(paths), 150)
    found = {}
    for path in paths:
      name = path.relative_to(_ROOT).as_posix()
      if listed := problems(path.read_text()):
        found[name] = listed
    self.assertEqual(found, {_WIRE: ['imports pickle']})

  @parameterized.parameters(
      'import pickle',
      'from yaml import load',
      'import random',
      'eval(text)',
      'np.load(path)',
      'np.load(path, allow_pickle=True)',
      'np.load(path, allow_pickle=flag)',
      'np.random.seed(1)',
      'np.random.default_rng()',
      'np.random.default_rng(time.time_ns())',
      'tf.random.set_seed(int(time.time()))',
  )
  def test_it_would_be_seen(self, source):
    self.assertLen(problems(source), 1)


if __name__ == '__main__':
  absltest.main()
