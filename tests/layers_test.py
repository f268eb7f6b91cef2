# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Imports point one way, and the accounting never loads TensorFlow."""

import ast
from collections.abc import Sequence
import functools
import importlib
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _compat
from tff_dp import _lazy
from tff_dp import systems

_ROOT = pathlib.Path(__file__).parents[1]
# From the bottom up; what is in one line may import what is in earlier lines.
_LAYERS = (
    (
        '_axes',
        '_checks',
        '_columns',
        '_failures',
        '_lazy',
        '_quiet',
        '_shim',
        '_start',
        '_version',
        '_waiting',
    ),
    ('_calls', '_compat_losses', '_compat_tensorflow', '_native_output'),
    ('_compat',),
    # The registry. It refers to systems by name.
    ('systems',),
    ('draws', 'files'),
    ('accounting',),
    ('ledger', 'mechanisms'),
    ('participation',),
    ('statement',),
    ('plans', 'streams'),
    ('advice', 'integrations'),
    ('aggregators',),
    ('learning',),
    ('execution',),
    ('program',),
    ('export',),
    ('cli',),
    # The folders of systems. None imports another.
    (
        'systems/allocation',
        'systems/check_ins',
        'systems/dp_ftrl',
        'systems/draw_and_discard',
        'systems/sampling',
        'systems/silos',
    ),
    ('__main__',),
)
_RANK = {name: rank for rank, names in enumerate(_LAYERS) for name in names}
_WITHOUT_TENSORFLOW = (
    '_axes',
    '_calls',
    '_checks',
    '_columns',
    'accounting',
    'advice',
    'draws',
    'files',
    'integrations',
    'mechanisms',
    'ledger',
    'participation',
    'plans',
    'statement',
    'systems',
)
# The whole of what the accounting may lean on, besides the standard library.
# attr is what dp_accounting writes its events with.
_ACCOUNTING_NEEDS = {'attr', 'dp_accounting', 'numpy', 'scipy', 'tff_dp'}


def _modules(folder: str) -> list[pathlib.Path]:
  return sorted((_ROOT / folder).rglob('*.py'))


def _layer(path: pathlib.Path) -> str:
  return _layer_of(path.relative_to(_ROOT).with_suffix('').parts)


def _layer_of(parts: Sequence[str]) -> str:
  """Returns the layer of a module, given the parts of its full name."""
  layer = '/'.join(parts[1:3])
  return layer if layer in _RANK else parts[1]


def _dotted(path: pathlib.Path) -> str:
  return '.'.join(path.relative_to(_ROOT).with_suffix('').parts).removesuffix(
      '.__init__'
  )


@functools.cache
def _imports(path: pathlib.Path, *, deferred: bool) -> list[str]:
  """Returns the dotted names that a file imports.

  Args:
    path: The file.
    deferred: Whether to include imports inside of functions.
  """
  names = []

  def visit(node):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
      if not deferred:
        return
    if isinstance(node, ast.If) and 'TYPE_CHECKING' in ast.dump(node.test):
      return
    if isinstance(node, ast.Import):
      names.extend(alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      if node.level:
        raise AssertionError(f'{path}: relative import')
      names.extend(f'{node.module}.{alias.name}' for alias in node.names)
    for child in ast.iter_child_nodes(node):
      if not isinstance(child, ast.expr):
        visit(child)

  visit(ast.parse(path.read_text()))
  return names


class LayersTest(parameterized.TestCase):

  def test_every_module_has_a_layer(self):
    found = {_layer(path) for path in _modules('tff_dp')} - {'__init__'}
    self.assertContainsSubset(found, _RANK)

  def test_imports_point_down(self):
    wrong = []
    for path in _modules('tff_dp'):
      layer = _layer(path)
      if layer == '__init__':
        continue
      for name in _imports(path, deferred=False):
        parts = name.split('.')
        if parts[0] in ('tasks', 'tests', 'benchmarks'):
          wrong.append(f'{path}: {name}')
        if parts[0] != 'tff_dp' or len(parts) < 2:
          continue
        other = _layer_of(parts)
        if other in _RANK and other != layer:
          if _RANK[other] >= _RANK[layer]:
            wrong.append(f'{path}: {name}')
    self.assertEmpty(wrong)

  def test_modules_have_no_cycle(self):
    names = {_dotted(path): path for path in _modules('tff_dp')}
    done = set()

    def visit(name, path):
      self.assertNotIn(name, path, ' -> '.join([*path, name]))
      if name in done:
        return
      for imported in _imports(names[name], deferred=True):
        # `from a.b import c` is the module a.b.c, or a name in the module a.b.
        for other in (imported, imported.rpartition('.')[0]):
          if other in names and other != name:
            visit(other, [*path, name])
            break
      done.add(name)

    for name in sorted(names):
      visit(name, [])

  def test_lower_layers_do_not_mention_tensorflow(self):
    wrong = [
        f'{path}: {name}'
        for path in _modules('tff_dp')
        if _layer(path) in _WITHOUT_TENSORFLOW
        for name in _imports(path, deferred=True)
        if name.split('.')[0].startswith('tensorflow')
    ]
    self.assertEmpty(wrong)

  def test_plans_flags_and_offers_of_systems_load_no_tensorflow(self):
    code = (
        'import sys\nfrom tff_dp import systems\n'
        'for each in systems.all_systems():\n'
        '  each.plan()\n'
        '  for command in each.commands.values():\n'
        '    command.flags()\n'
        '  for offered in each.offers.values():\n'
        '    offered.build()\n'
        'print([m for m in sys.modules if m.startswith(("tensorflow", "jax"))])'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True, text=True, cwd=_ROOT, check=False,
    )
    self.assertEqual(result.stdout, '[]\n', result.stderr)

  def test_accounting_needs_little(self):
    allowed = _ACCOUNTING_NEEDS | set(sys.stdlib_module_names)
    wrong = [
        f'{path}: {name}'
        for path in _modules('tff_dp/accounting')
        for name in _imports(path, deferred=True)
        if name.split('.')[0] not in allowed
    ]
    self.assertEmpty(wrong)

  def test_private_tff_and_privacy_symbols_only_in_compat(self):
    private = ('tensorflow_federated.python', 'tensorflow_privacy')
    wrong = [
        f'{path}: {name}'
        for path in _modules('tff_dp') + _modules('tasks')
        if path.name != '_compat.py'
        for name in _imports(path, deferred=True)
        if name.startswith(private)
    ]
    self.assertEmpty(wrong)

  @parameterized.parameters(*_compat.NEEDS_TFF)
  def test_packages_on_tff_ask_for_it_first(self, package):
    # So that a broken installation gives a sentence, not a traceback.
    body = ast.parse(
        (_ROOT / 'tff_dp' / package / '__init__.py').read_text()
    ).body
    code = [ast.unparse(node) for node in body]
    self.assertEqual(
        code[1:3], ['from tff_dp import _compat', '_compat.require_tff()']
    )

  def test_accounting_loads_without_tensorflow(self):
    code = (
        'import sys, time; start = time.perf_counter();'
        'import tff_dp.accounting;'
        'print(time.perf_counter() - start);'
        'print([m for m in sys.modules if m.startswith(("tensorflow", "jax",'
        ' "matplotlib"))])'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        env=os.environ,
        check=False,
    )
    self.assertEqual(result.returncode, 0, result.stderr)
    seconds, loaded = result.stdout.splitlines()
    print(f'import tff_dp.accounting: {float(seconds):.2f} s')
    self.assertEqual(loaded, '[]')


class LazyPackageTest(absltest.TestCase):

  def test_import_loads_nothing_heavy_and_lists_everything(self):
    code = (
        'import sys, tff_dp; print(sorted(m for m in sys.modules if'
        ' m.startswith(("tff_dp", "numpy", "tensorflow"))));'
        'print(*dir(tff_dp)); tff_dp.no_such_part'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    loaded, names = result.stdout.splitlines()
    folders = [
        f'tff_dp.{prefix}{name}'
        for prefix in ('', 'systems.')
        for name in systems.FOLDERS
    ]
    always = '_checks _columns _compat _compat_tensorflow _lazy _quiet _shim'
    always += ' _version plans systems systems.system'
    always = [f'tff_dp.{name}' for name in always.split()]
    self.assertEqual(loaded, str(sorted(['tff_dp', *always, *folders])))
    self.assertContainsSubset(
        {'DpFtrlPlan', 'accounting', 'learning', '__version__'}, names.split()
    )
    self.assertIn("no attribute 'no_such_part'", result.stderr)


class NamesTest(parameterized.TestCase):

  @parameterized.parameters(*systems.FOLDERS)
  def test_a_system_has_one_copy_under_two_names(self, folder):
    for module in ('training', 'flags'):
      path = _ROOT / 'tff_dp' / 'systems' / folder / f'{module}.py'
      self.assertTrue(path.exists())
    short = importlib.import_module(f'tff_dp.{folder}.flags')
    whole = importlib.import_module(f'tff_dp.systems.{folder}.flags')
    self.assertIs(short, whole)
    self.assertEqual(short.__spec__.name, f'tff_dp.systems.{folder}.flags')

  @parameterized.parameters(
      *(
          (package, name)
          for package, names in _lazy.moved_names().items()
          for name in names
      )
  )
  def test_an_old_name_leads_to_the_new_one(self, package, name):
    place = _lazy.moved_names()[package][name].partition(',')[0].split('.')
    with self.assertRaisesRegex(ImportError, f'that is tff_dp.{place[0]}'):
      where = package if package == 'tff_dp' else f'tff_dp.{package}'
      getattr(importlib.import_module(where), name)
    # The longest prefix that is a module, then attributes.
    found = importlib.import_module('tff_dp')
    for index, part in enumerate(place):
      try:
        found = importlib.import_module(
            '.'.join(['tff_dp', *place[: index + 1]])
        )
      except ModuleNotFoundError:
        found = getattr(found, part)
      except ImportError as error:  # An adapter, whose stack is not here.
        self.assertIn('requirements.', str(error))
    self.assertIsNotNone(found)


if __name__ == '__main__':
  absltest.main()
