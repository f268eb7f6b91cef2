# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""BUILD, which is Python as well as Starlark, has a target for every module."""

import ast
import collections
import pathlib
import re

from absl.testing import absltest

from tff_dp import _version

_ROOT = pathlib.Path(__file__).parents[1]


def _glob(include, exclude=()):
  found = {
      path.relative_to(_ROOT).as_posix()
      for pattern in include
      for path in _ROOT.glob(pattern)
  }
  return sorted(found - set(_glob(exclude) if exclude else ()))


class BuildTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._targets = {}

    def rule(kind):
      def declare(name, **attributes):
        self.assertNotIn(name, self._targets)
        self._targets[name] = dict(attributes, kind=kind)

      return declare

    kinds = ('py_binary', 'py_library', 'py_test')
    exec(  # pylint: disable=exec-used
        (_ROOT / 'BUILD').read_text(),
        {
            'glob': _glob,
            'licenses': lambda kinds: None,
            'load': lambda *names: None,
            'package': lambda **attributes: None,
            **{kind: rule(kind) for kind in kinds},
        },
    )

  def test_every_module_is_in_one_library_or_test(self):
    owners = collections.Counter(
        path
        for target in self._targets.values()
        if target['kind'] != 'py_binary'
        for path in target.get('srcs', ())
    )
    modules = _glob(
        f'{folder}/**/*.py'
        for folder in ('benchmarks', 'tasks', 'tests', 'tff_dp')
    )
    self.assertEqual(owners, dict.fromkeys(modules, 1))

  def test_every_system_is_a_target(self):
    for path in (_ROOT / 'tff_dp' / 'systems').iterdir():
      if (path / '__init__.py').is_file():
        target = self._targets[path.name]
        self.assertEqual(target['deps'], [':core'])
        self.assertIn(f':{path.name}', self._targets['tff_dp']['deps'])

  def test_wheel_and_library_have_all_data(self):
    # BUILD calls the same folders core, and a wheel has only what is listed.
    setup = (_ROOT / 'setup.py').read_text()
    listed = ast.literal_eval(
        re.search(r'package_data=(\{.*?\})', setup, re.DOTALL).group(1)
    )
    packed = _glob(
        f'{package.replace(".", "/")}/{pattern}'
        for package, patterns in listed.items()
        for pattern in patterns
    )
    found = [
        path
        for path in _glob(['tff_dp/**/*.*'])
        if not path.endswith(('.py', '.pyc'))
    ]
    self.assertNotEmpty(found)
    self.assertEqual(packed, found)
    self.assertEqual(self._targets['core']['data'], found)

  def test_version(self):
    module = (_ROOT / 'MODULE.bazel').read_text()
    self.assertIn(f'version = "{_version.__version__}"', module)

  def test_environments_are_left_out(self):
    ignored = (_ROOT / '.bazelignore').read_text().split()
    for line in (_ROOT / '.gitignore').read_text().splitlines():
      if line.startswith('/.venv') and not line.endswith('.lock'):
        self.assertIn(line[1:], ignored)

  def test_dependencies_exist(self):
    for name, target in self._targets.items():
      for label in target.get('deps', ()):
        self.assertIn(label.removeprefix(':'), self._targets, name)

  def test_every_test_is_a_target(self):
    tests = [
        name
        for name, target in self._targets.items()
        if target['kind'] == 'py_test'
    ]
    self.assertIn('tests/build_test', tests)
    self.assertLen(tests, len(_glob(['tests/**/*_test.py'])))


if __name__ == '__main__':
  absltest.main()
