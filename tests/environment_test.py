# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the set-up: the locks, and the script that makes folders from them.

The script runs on a copy with a stand-in for uv, so nothing is installed.
"""

import os
import pathlib
import re
import shutil
import stat
import subprocess

from absl.testing import absltest
from absl.testing import parameterized

_ROOT = pathlib.Path(__file__).parents[1]
_INPUTS = (
    'requirements.lock',
    'requirements.uv.lock',
    'setup.py',
    'pyproject.toml',
    'tools/make_environment.sh',
)
_LOCKS = tuple(
    f'requirements{stack}'
    for stack in (
        '', '.current', '.colab', '.flower', '.nvflare', '.cluster', '.docs'
    )
)
# What comes on top of a stack, and which.
_ON_TOP = (
    ('requirements.cuda', 'requirements'),
    ('requirements.cuda-current', 'requirements.current'),
    ('requirements.jupyter', 'requirements'),
)
_OTHERS = (
    'requirements.benchmark', 'requirements.notebooks', 'requirements.uv'
)
# Two have none, the last those of what it includes.
_NO_FILES = (
    'requirements.flower.overrides',
    'requirements.nvflare.overrides',
    'requirements.cluster.overrides',
)
# All that the script may use besides uv or Python.
_TOOLS = tuple(
    'bash cat chmod cut dirname env flock grep mkdir rm sha256sum uname'.split()
)
# `uv venv ... DIR` makes DIR/bin/python, which imports nothing, and fails if it
# is to.
_UV = """#!/usr/bin/env bash
set -e
echo "uv $*" >> calls
if [[ "$1" == venv ]]; then
  mkdir -p "${@: -1}/bin"
  printf '#!/usr/bin/env bash\\necho "python $*" >> calls\\n[[ ! -e bad ]]\\n' \\
    > "${@: -1}/bin/python"
  chmod +x "${@: -1}/bin/python"
elif [[ -e broken ]]; then
  exit 1
fi
"""


class MakeEnvironmentTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)
    for name in (*_INPUTS, *(f'{lock}.lock' for lock in _LOCKS[1:])):
      (self._folder / name).parent.mkdir(exist_ok=True)
      shutil.copy(_ROOT / name, self._folder / name)
    self._bin = self._folder / 'path'
    self._bin.mkdir()
    for tool in _TOOLS:
      (self._bin / tool).symlink_to(shutil.which(tool))
    self._venv = self._folder / '.venv'

  def _stand_in(self, name: str, text: str) -> None:
    path = self._bin / name
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

  def _run(self, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [self._folder / 'tools' / 'make_environment.sh', *arguments],
        capture_output=True,
        text=True,
        env={'PATH': str(self._bin)},
        check=False,
    )

  def _calls(self) -> list[str]:
    """Returns what the stand-ins were called with since the last time."""
    path = self._folder / 'calls'
    if not path.exists():
      return []
    calls = path.read_text().splitlines()
    path.unlink()
    return calls

  def test_installs_the_lock_then_us_then_imports(self):
    self._stand_in('uv', _UV)
    result = self._run()
    self.assertEqual(result.returncode, 0, result.stderr)
    venv, locked, editable, imported = self._calls()
    self.assertIn('--python 3.11 .venv', venv)
    self.assertIn(
        '--no-deps --require-hashes --requirement requirements.lock', locked
    )
    self.assertIn('--no-deps --no-build-isolation --editable .', editable)
    self.assertRegex(imported, r'^python -c import tff_dp.*, tff_dp.program')

  @parameterized.parameters('current', 'colab')
  def test_other_stacks_have_their_own_folder_and_lock(self, name):
    self._stand_in('uv', _UV)
    result = self._run(name)
    self.assertEqual(result.returncode, 0, result.stderr)
    venv, locked, _, _ = self._calls()
    self.assertIn(f'--python 3.13 .venv-{name}', venv)
    self.assertIn(f'--requirement requirements.{name}.lock', locked)
    self.assertFalse(self._venv.exists())

  @parameterized.parameters(
      (('3.12',), '3.12'),
      (('3.12', '3.13'), '3.13'),
      (('3.11',), ''),
  )
  def test_current_stack_takes_the_newest_python(self, there, chosen):
    for version in there:
      self._stand_in_python(f'python{version}', version)
    result = self._run('current', '--find')
    self.assertEqual((result.returncode, result.stderr), (0, ''))
    self.assertEqual(
        result.stdout.strip(), f'python{chosen}' if chosen else ''
    )
    self.assertFalse((self._folder / '.venv-current').exists())

  def test_python_of_pyenv_is_found(self):
    path = self._folder / 'pyenv' / 'versions' / '3.13.7' / 'bin' / 'python'
    path.parent.mkdir(parents=True)
    self._stand_in_python('python', '3.13')
    (self._bin / 'python').rename(path)
    result = subprocess.run(
        [self._folder / 'tools' / 'make_environment.sh', 'current', '--find'],
        capture_output=True,
        text=True,
        env={'PATH': str(self._bin), 'PYENV_ROOT': f'{self._folder}/pyenv'},
        check=True,
    )
    self.assertEqual(result.stdout.strip(), str(path))

  def _stand_in_python(self, name: str, version: str) -> None:
    """A Python that says whether it is `version`, and can do nothing else."""
    self._stand_in(
        name, f'#!/usr/bin/env bash\n[[ "$2" == *"\'{version}\'"* ]]\n'
    )

  def _stand_in_pip(self, script: str) -> None:
    """A Python of which `-m venv` makes a folder with this very Python."""
    self._stand_in(
        'python3.13',
        f"""#!/usr/bin/env bash
        [[ "$1" == -c ]] && exit
        echo "python $*" >> calls
        if [[ "$2" == venv ]]; then
          mkdir -p "$3/bin"
          cp "$0" "$3/bin/python"
        elif [[ "$*" == *uv.lock* ]]; then
          {script}
        fi
        """,
    )
    for tool in ('cp', 'touch'):
      (self._bin / tool).symlink_to(shutil.which(tool))

  @parameterized.named_parameters(
      ('that_finds_no_uv', 'exit 1'),
      ('whose_uv_fails', 'mkdir .venv-current/borrowed'),
  )
  def test_pip_ignores_the_end_of_tffs_pythons(self, script):
    self._stand_in_pip(script)
    result = self._run('current')
    self.assertEqual(result.returncode, 0, result.stderr)
    _, fetch, locked, editable = self._calls()
    self.assertIn('--require-hashes --requirement requirements.uv.lock', fetch)
    self.assertIn('--ignore-requires-python', locked)
    self.assertIn('--require-hashes', locked)
    self.assertIn('--editable .', editable)
    self.assertFalse((self._folder / '.venv-current' / 'borrowed').exists())

  def test_pip_borrows_uv(self):
    self._stand_in('lent', _UV)
    self._stand_in_pip(
        'mkdir -p .venv-current/borrowed/bin;'
        f' cp {self._bin}/lent .venv-current/borrowed/bin/uv'
    )
    result = self._run('current')
    self.assertEqual(result.returncode, 0, result.stderr)
    _, fetch, locked, editable = self._calls()
    self.assertIn('--target .venv-current/borrowed', fetch)
    self.assertRegex(
        locked,
        '^uv pip install .*--no-deps --require-hashes --requirement'
        ' requirements.current.lock',
    )
    self.assertRegex(editable, '^uv pip install .*--editable .')
    self.assertFalse((self._folder / '.venv-current' / 'borrowed').exists())

  def test_unknown_stack(self):
    result = self._run('newest')
    self.assertEqual(result.returncode, 2)
    self.assertIn('reference, current, colab', result.stderr)

  def test_second_run_does_nothing(self):
    self._stand_in('uv', _UV)
    self._run()
    self._calls()
    result = self._run()
    self.assertEqual((result.returncode, result.stderr), (0, ''))
    self.assertEmpty(self._calls())

  @parameterized.parameters(*_INPUTS)
  def test_change_of_an_input_makes_it_anew(self, name):
    self._stand_in('uv', _UV)
    self._run()
    self._calls()
    (self._venv / 'left_over').touch()
    with open(self._folder / name, 'a') as file:
      file.write('\n')
    self.assertEqual(self._run().returncode, 0)
    self.assertLen(self._calls(), 4)
    self.assertFalse((self._venv / 'left_over').exists())

  def test_half_an_installation_is_redone(self):
    self._stand_in('uv', _UV)
    (self._folder / 'broken').touch()
    self.assertNotEqual(self._run().returncode, 0)
    (self._folder / 'broken').unlink()
    self._calls()
    self.assertEqual(self._run().returncode, 0)
    self.assertLen(self._calls(), 4)

  def test_environment_that_cannot_import_is_not_finished(self):
    self._stand_in('uv', _UV)
    (self._folder / 'bad').touch()
    result = self._run()
    self.assertEqual(result.returncode, 3)
    self.assertIn('.venv was made, but an import fails', result.stderr)
    (self._folder / 'bad').unlink()
    self._calls()
    self.assertEqual(self._run().returncode, 0)
    self.assertLen(self._calls(), 4)

  def test_somebody_elses_environment_is_left_alone(self):
    self._stand_in('uv', _UV)
    self._venv.mkdir()
    (self._venv / 'precious').touch()
    result = self._run()
    self.assertEqual(result.returncode, 3)
    self.assertIn('.venv exists, but was not made', result.stderr)
    self.assertTrue((self._venv / 'precious').exists())

  def test_neither_uv_nor_python(self):
    self._stand_in('python3', '#!/usr/bin/env bash\nexit 1\n')  # 3.12, say.
    result = self._run()
    self.assertEqual(result.returncode, 3)
    self.assertStartsWith(
        result.stderr, 'error: neither uv nor Python 3.11 was found\nwhy: '
    )
    self.assertFalse(self._venv.exists())

  def test_neither_uv_nor_a_current_python(self):
    result = self._run('current')
    self.assertEqual(result.returncode, 3)
    self.assertIn('neither uv nor Python 3.13 or 3.12 was', result.stderr)

  def test_python_without_venv(self):
    self._stand_in(
        'python3.11', '#!/usr/bin/env bash\n[[ "$1" == -c ]]\n'
    )
    result = self._run()
    self.assertEqual(result.returncode, 3)
    self.assertIn('apt-get install python3.11-venv', result.stderr)

  def test_other_platform(self):
    self._stand_in('uv', _UV)
    self._stand_in('uname', '#!/usr/bin/env bash\necho Darwin\n')
    result = self._run()
    self.assertEqual(result.returncode, 3)
    self.assertIn('error: Darwin on Darwin is not supported', result.stderr)


class LockTest(parameterized.TestCase):

  def _pinned(self, name: str) -> dict[str, str]:
    return dict(
        re.findall(
            r'^([a-z0-9-]+)==(\S+) ',
            (_ROOT / f'{name}.lock').read_text(),
            flags=re.MULTILINE,
        )
    )

  @parameterized.parameters(*_LOCKS, *_OTHERS, *(name for name, _ in _ON_TOP))
  def test_is_pins_with_hashes_and_nothing_else(self, name):
    lock = (_ROOT / f'{name}.lock').read_text()
    for line in lock.splitlines():
      self.assertRegex(
          line, r'^([a-z0-9-]+==\S+|    --hash=sha256:[0-9a-f]{64})( \\)?$'
      )
    self.assertNotRegex(lock, r'\d \\\n[a-z]')  # A pin without hashes.

  @parameterized.parameters(*_LOCKS)
  def test_holds_what_is_asked_for(self, name):
    pinned = self._pinned(name)
    for file in (f'{name}.in', f'{name}.overrides'):
      if file in _NO_FILES:
        continue
      for line in (_ROOT / file).read_text().splitlines():
        if line.startswith(('#', '-r ')):
          continue
        package, _, version = line.partition('==')
        package = re.match('[a-z0-9-]+', package).group()
        if "python_version < '3'" in line:
          self.assertNotIn(package, pinned)
          continue
        self.assertIn(package, pinned)
        if version:
          self.assertEqual(pinned[package], version)

  @parameterized.parameters(*_LOCKS)
  def test_our_own_requirements_are_a_subset_without_tff(self, name):
    listed = re.search(
        r'install_requires=\[(.*?)\]', (_ROOT / 'setup.py').read_text(), re.S
    ).group(1)
    names = re.findall(r"'([a-z0-9-]+)", listed)
    self.assertNotEmpty(names)
    self.assertContainsSubset(names, self._pinned(name))
    self.assertNotIn('tensorflow-federated', names)

  def test_every_list_has_a_lock(self):
    for path in _ROOT.glob('requirements*.in'):
      self.assertTrue(path.with_suffix('.lock').exists(), path)

  @parameterized.parameters(*_ON_TOP)
  def test_what_comes_on_top_changes_nothing_below(self, name, stack):
    lifted = _ROOT / f'{name}.overrides'
    lifted = lifted.read_text() if lifted.exists() else ''
    pinned = self._pinned(name)
    self.assertNotEmpty(pinned)
    for package in pinned.keys() & self._pinned(stack).keys():
      self.assertIn(f'\n{package}>=', lifted)

  def test_cuda_is_for_the_tensorflow_of_the_locks(self):
    version = self._pinned('requirements.current')['tensorflow']
    self.assertIn(
        f'\ntensorflow[and-cuda]=={version}\n',
        (_ROOT / 'requirements.cuda-current.in').read_text(),
    )
    version = self._pinned('requirements')['tensorflow']
    asked = (_ROOT / 'requirements.cuda.in').read_text()
    self.assertIn(f' TensorFlow {version} ', asked)
    for package, version in self._pinned('requirements.cuda').items():
      self.assertIn(f'\n{package}=={version}\n', asked)

  def test_notebooks_get_the_versions_of_colabs_lock(self):
    pinned = self._pinned('requirements.notebooks')
    self.assertLen(pinned, 5)
    self.assertContainsSubset(
        pinned.items(), self._pinned('requirements.colab').items()
    )


class ContinuousIntegrationTest(parameterized.TestCase):

  @parameterized.parameters(
      # Current Python, target that fails -> targets run, does it pass.
      ('python3.13', '', ['environment', 'test', 'test-current'], True),
      ('python3.13', 'environment', ['environment'], False),
      ('python3.13', 'test', ['environment', 'test'], False),
      (
          'python3.13',
          'test-current',
          ['environment', 'test', 'test-current'],
          False,
      ),
      ('', '', ['environment', 'test'], True),
  )
  def test_runs_what_can_be_run(self, python, failing, targets, passes):
    folder = pathlib.Path(self.create_tempdir().full_path)
    for name, text in (
        ('tools/make_environment.sh', f'echo {python}'),
        ('make', f'echo "make $1"; [[ "$1" != "{failing}" ]]'),
        ('.ci/run', (_ROOT / '.ci' / 'run').read_text()),
    ):
      (folder / name).parent.mkdir(exist_ok=True)
      (folder / name).write_text(f'#!/usr/bin/env bash\n{text}\n')
      (folder / name).chmod(0o755)
    result = subprocess.run(
        [folder / '.ci' / 'run'],
        capture_output=True,
        text=True,
        env={'PATH': f'{folder}:{os.environ["PATH"]}'},
        check=False,
    )
    lines = result.stdout.splitlines()
    self.assertEqual(lines[: len(targets)], [f'make {t}' for t in targets])
    self.assertEqual(result.returncode == 0, passes)
    self.assertLen(lines, len(targets) + (not python))
    if not python:
      self.assertIn('test-current was left out', lines[-1])


class MakefileTest(absltest.TestCase):

  def test_help_lists_the_targets(self):
    result = subprocess.run(
        ['make', '--no-print-directory', '-C', _ROOT],
        capture_output=True,
        text=True,
        env={'PATH': os.environ['PATH']},
        check=True,
    )
    targets = [line.split()[1] for line in result.stdout.splitlines()]
    self.assertContainsSubset(
        [
            'environment',
            'environment-current',
            'environment-colab',
            'train',
            'test',
            'test-current',
            'test-colab',
            'benchmark',
            'lock',
        ],
        targets,
    )


if __name__ == '__main__':
  absltest.main()
