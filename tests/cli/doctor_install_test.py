# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the lines that install tff_dp, and that the docs have the same."""

import contextlib
import json
import pathlib
import re
import shlex
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _columns
from tff_dp import _compat
from tff_dp.cli import doctor_install
from tff_dp.cli import main
from tests.cli import command

_ROOT = pathlib.Path(__file__).parents[2]
_OURS = 'install --no-deps --no-build-isolation .'
_OWN = {
    '3.11': (
        'install --no-deps --require-hashes -r requirements.lock',
        _OURS,
    ),
    '3.12': (
        'install --no-deps --ignore-requires-python --require-hashes'
        ' -r requirements.current.lock',
        _OURS,
    ),
}
_OWN['3.13'] = _OWN['3.12']
_COLAB = (
    '%pip install -q --no-deps --ignore-requires-python --require-hashes'
    ' -r requirements.notebooks.lock',
    '%pip install -q --no-deps --no-build-isolation .',
)


def _printed(*words: str, folder: pathlib.Path = _ROOT) -> list[str]:
  """Returns the lines that `doctor --install` prints in a folder."""
  with contextlib.chdir(folder):
    status, out, err = command.run(main.main, 'doctor', '--install', *words)
  assert (status, err) == (0, ''), err
  return out.splitlines()


def _commands(lines: list[str]) -> list[str]:
  return [line for line in lines if not line.startswith('#')]


@contextlib.contextmanager
def _running(*python: int, colab: bool = False):
  """Runs the block as if by another Python, on Linux and x86_64."""
  is_reference = python in _columns.REFERENCE.pythons
  column = _columns.REFERENCE if is_reference else _columns.CURRENT
  with (
      mock.patch.object(sys, 'version_info', (*python, 0)),
      mock.patch.object(_compat, 'COLUMN', column),
      mock.patch.object(
          _compat,
          'installed_version',
          lambda name: '1.0' if colab and name == 'google-colab' else None,
      ),
      mock.patch.object(sys, 'executable', '/my pythons/python'),
  ):
    yield


class InstallTest(parameterized.TestCase):

  @parameterized.parameters(*_OWN)
  def test_lines_of_another_python(self, version):
    with _running(3, 14):
      self.assertEqual(
          _commands(_printed(version)),
          [f'python{version} -m pip {words}' for words in _OWN[version]],
      )

  @parameterized.parameters((3, 11), (3, 12), (3, 13))
  def test_lines_of_the_python_that_runs_it(self, *python):
    version = '.'.join(map(str, python))
    wanted = [
        f"'/my pythons/python' -m pip {words}" for words in _OWN[version]
    ]
    with _running(*python):
      self.assertEqual(_commands(_printed()), wanted)
      self.assertEqual(_commands(_printed(version)), wanted)

  def test_colab(self):
    for words in ((), ('colab',)):
      with _running(3, 13, colab=True):
        self.assertEqual(_commands(_printed(*words)), list(_COLAB))
    with _running(3, 11):
      self.assertEqual(_commands(_printed('colab')), list(_COLAB))

  def test_another_folder_goes_to_the_checkout_first(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    with _running(3, 12):
      there = _commands(_printed(folder=folder))
      # This folder is not on Colab's machine.
      self.assertEqual(_commands(_printed('colab', folder=folder)), [*_COLAB])
    self.assertEqual(there[0], f'cd {shlex.quote(str(_ROOT))}')
    self.assertLen(there, 3)
    with _running(3, 13, colab=True):
      self.assertStartsWith(_commands(_printed(folder=folder))[0], '%cd ')

  def test_without_a_checkout_it_says_where_the_locks_are(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    with (
        _running(3, 13),
        mock.patch.object(doctor_install, '_FOLDER', folder),
    ):
      lines = _printed()
    self.assertEqual(
        lines[0],
        '# requirements.current.lock is in the top folder of a checkout of'
        ' tff_dp. pip does not install it.',
    )
    self.assertLen(_commands(lines), 2)

  @parameterized.parameters(*_OWN, 'colab')
  def test_it_counts_the_packages_of_a_lock_that_is_there(self, target):
    lines = _printed(target)
    (lock,) = re.findall(r'-r (\S+)', '\n'.join(lines))
    self.assertIn(str(_ROOT / lock), lines[0])
    pins = re.findall('(?m)^[a-z0-9-]+==', (_ROOT / lock).read_text())
    self.assertStartsWith(lines[0], f'# {len(pins)} packages ')

  @parameterized.parameters(((3, 14),), ((3, 10),))
  def test_a_python_without_a_tested_set_is_refused(self, python):
    with _running(*python):
      status, out, err = command.run(main.main, 'doctor', '--install')
    self.assertEqual((status, out), (3, ''))
    self.assertIn('why: TensorFlow Federated 0.87.0 is tested on Python', err)
    self.assertIn('try: --install 3.11 or 3.12 or 3.13 or colab', err)

  def test_another_machine_is_refused(self):
    with mock.patch.object(_compat.platform, 'machine', lambda: 'aarch64'):
      status, out, err = command.run(main.main, 'doctor', '--install')
    self.assertEqual((status, out), (3, ''))
    self.assertIn('linux/amd64 container', err)

  @parameterized.parameters(
      ('--skip-worker',), ('--format', 'json'), ('--context', 'dask')
  )
  def test_no_flag_is_dropped_in_silence(self, *flags):
    status, out, err = command.run(main.main, 'doctor', '--install', *flags)
    self.assertEqual((status, out), (2, ''))
    self.assertIn('no other flag beside --install', err)

  def test_needs_nothing_that_is_installed(self):
    # Without site-packages.
    child = subprocess.run(
        [sys.executable, '-S', '-m', 'tff_dp', 'doctor', '--install', '3.12'],
        capture_output=True,
        text=True,
        cwd=_ROOT,
        check=False,
    )
    self.assertEqual((child.returncode, child.stderr), (0, ''))
    self.assertIn(_OWN['3.12'][0], child.stdout)


class DocsTest(absltest.TestCase):

  def test_readme_has_the_same_lines(self):
    readme = (_ROOT / 'README.md').read_text()
    said = re.findall(r'(?m)^pip (install .*)$', readme)
    own = (*_columns.REFERENCE.pip_words, *_columns.CURRENT.pip_words)
    self.assertEqual(said, list(dict.fromkeys(own)))

  def test_notebooks_have_the_same_line(self):
    paths = sorted((_ROOT / 'colab').glob('*.ipynb'))
    self.assertNotEmpty(paths)
    guide = (_ROOT / 'docs' / 'tutorial.md').read_text()
    self.assertIn(f'\n{_COLAB[0]}\n', guide)
    for path in paths:
      cells = json.loads(path.read_text())['cells']
      said = re.findall(
          r'(?m)^ *(%pip .*)$',
          '\n'.join(''.join(cell['source']) for cell in cells),
      )
      self.assertEqual(said, [f'%pip {_columns.COLAB.pip_words[0]}'], path)


if __name__ == '__main__':
  absltest.main()
