# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What holds where a caller says nothing: defaults of functions, fields, flags.

A default decides how much privacy a user gets who gives no value. `defaults.json`
holds them. After a change that you mean, write it again, and look at the
difference:

  python -m tests.defaults_test --write
"""

import ast
from collections.abc import Iterator
import json
import pathlib
import re
import sys

from absl.testing import absltest
import pytest

pytestmark = pytest.mark.once
_FILE = pathlib.Path(__file__).with_name('defaults.json')
_ROOT = pathlib.Path(__file__).parents[1]
_SAID = re.compile(r'\(default: ([^ ,;)]+)\)')


def _of_function(node: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
  arguments = node.args
  places = [*arguments.posonlyargs, *arguments.args]
  last = places[len(places) - len(arguments.defaults) :]
  pairs = [
      *zip(last, arguments.defaults),
      *zip(arguments.kwonlyargs, arguments.kw_defaults),
  ]
  return ((argument.arg, value) for argument, value in pairs if value)


def _of_class(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
  for each in node.body:
    if isinstance(each, ast.AnnAssign) and each.value:
      yield ast.unparse(each.target), each.value


def _of_call(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
  """Yields the default of a flag."""
  first = node.args[0] if node.args else None
  if isinstance(first, ast.Constant) and str(first.value).startswith('--'):
    for keyword in node.keywords:
      if keyword.arg == 'default':
        yield first.value, keyword.value


_KINDS = {
    ast.FunctionDef: _of_function,
    ast.ClassDef: _of_class,
    ast.Call: _of_call,
}


def _found() -> dict[str, str]:
  """Returns 'file: name of function or class, argument' -> default."""
  found = {}
  for path in sorted((_ROOT / 'tff_dp').rglob('*.py')):
    place = path.relative_to(_ROOT / 'tff_dp').as_posix()
    found |= _defaults(ast.parse(path.read_text()), f'{place}:')
  return found


def _defaults(node: ast.AST, name: str) -> dict[str, str]:
  found = {}
  for child in ast.iter_child_nodes(node):
    inner = f'{name} {getattr(child, "name", "")}'.rstrip()
    kind = _KINDS.get(type(child), lambda node: ())
    for argument, value in kind(child):
      found[f'{inner}, {argument}'] = ast.unparse(value)
    found |= _defaults(child, inner)
  return found


def _said_and_set() -> Iterator[tuple[str, str, str]]:
  """Yields (flag, default that its help states, its default)."""
  for path in sorted((_ROOT / 'tff_dp').rglob('*.py')):
    for node in ast.walk(ast.parse(path.read_text())):
      if not isinstance(node, ast.Call):
        continue
      options = {each.arg: each.value for each in node.keywords}
      for flag, value in _of_call(node):
        said = _SAID.search(ast.unparse(options.get('help', value)))
        if said and isinstance(value, ast.Constant):
          yield f'{path.name} {flag}', said[1], str(value.value)


class DefaultsTest(absltest.TestCase):

  def test_are_those_of_before(self):
    before, now = json.loads(_FILE.read_text()), _found()
    # New ones may wait until the file is written again.
    self.assertEqual({key: now.get(key) for key in before}, before)

  def test_help_states_the_default_of_its_flag(self):
    found = list(_said_and_set())
    self.assertNotEmpty(found)
    for flag, said, default in found:
      if default.replace('.', '').isdigit():
        said, default = float(said), float(default)
      self.assertEqual(said, default, flag)

  def test_every_kind_is_read(self):
    code = (
        'def f(a, b=1, *, c=(2,), d=None):\n  def g(e=3): pass\n'
        "class C:\n  h: int = 4\n  def i(self, j=5): add('--k', default=6)\n"
    )
    self.assertEqual(
        _defaults(ast.parse(code), 'm:'),
        {
            'm: f, b': '1',
            'm: f, c': '(2,)',
            'm: f, d': 'None',
            'm: f g, e': '3',
            'm: C, h': '4',
            'm: C i, j': '5',
            'm: C i, --k': '6',
        },
    )


def _write() -> None:
  _FILE.write_text(json.dumps(_found(), indent=1) + '\n')


if __name__ == '__main__':
  if sys.argv[1:] == ['--write']:
    _write()
  else:
    absltest.main()
