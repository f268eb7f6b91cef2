# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""`tff-dp` in a directory that strangers filled: nothing of theirs runs."""

import os
import pathlib
import socket
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp import _compat
from tff_dp import execution
from tff_dp.cli import doctor
from tff_dp.cli import doctor_probe
from tff_dp.cli import main
from tff_dp.program import training

_ROOT = pathlib.Path(__file__).parents[2]
# As the installed command starts: without the working directory in its path.
_COMMAND = 'import sys; from tff_dp.cli import main; sys.exit(main.main())'
_SHADOWED = (
    'asyncio',
    'dp_accounting',
    'json',
    'matplotlib',
    'multiprocessing',
    'numpy',
    'sitecustomize',
    'tensorflow',
    'tensorflow_federated',
    'tff_dp',
    'usercustomize',
)


class WorkingDirectoryTest(parameterized.TestCase):

  def _plant(self) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns a hostile directory, and the file that its modules write."""
    folder = pathlib.Path(self.create_tempdir().full_path)
    marker = folder / 'marker'
    for name in _SHADOWED:
      (folder / f'{name}.py').write_text(
          f'open({str(marker)!r}, "a").write({name + " "!r})\n'
          'raise ImportError("planted")\n'
      )
    return folder, marker

  def _run(self, folder, command, *words) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, '-P', '-c', command, *words],
        cwd=folder,
        env={**os.environ, 'PYTHONPATH': os.fspath(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

  def test_no_module_of_it_runs(self):
    folder, marker = self._plant()
    done = self._run(
        folder, _COMMAND, 'account', 'dp-ftrl', '--rounds', '10',
        '--max-participations', '1', '--noise-multiplier', '1', '--delta',
        '1e-6',
    )
    self.assertFalse(marker.exists() and marker.read_text())
    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

  def test_no_module_of_it_runs_in_the_child_of_doctor(self):
    folder, marker = self._plant()
    # Looked for where TensorFlow is, which takes seconds to load.
    loaded = 'asyncio, dp_accounting, json, matplotlib, multiprocessing, numpy'
    probe = f'import sys; sys.path.append(sys.argv[1]); import tff_dp, {loaded}'
    done = self._run(
        folder,
        f'from tff_dp.cli import doctor; doctor._PROBE = {probe!r}; {_COMMAND}',
        'doctor',
    )
    self.assertFalse(marker.exists() and marker.read_text())
    # It loaded all, and then had no answer.
    self.assertIn('status 0', done.stdout, done.stderr)

  def test_the_attack_works_on_a_python_that_looks_there(self):
    folder, marker = self._plant()
    done = subprocess.run(
        [sys.executable, '-c', 'import tff_dp'],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    self.assertNotEqual(done.returncode, 0)
    self.assertIn('tff_dp', marker.read_text())

  def test_doctor_finds_this_package_where_it_is_not_installed(self):
    # As `python -m tff_dp doctor` in a checkout: the child gets no path of it.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != 'PYTHONPATH'
    }
    with absltest.mock.patch.dict(os.environ, environment, clear=True):
      with absltest.mock.patch.object(
          doctor, '_PROBE_FLAGS', ('-P', '-S')  # Without site-packages.
      ):
        answers = doctor._ask_child()  # pylint: disable=protected-access
    # It came as far as looking for TFF, which is not there.
    error = answers[doctor_probe.LOADING]['error']
    self.assertIn('tensorflow_federated', error)


class WorkerTest(parameterized.TestCase):
  """TFF's worker listens on all interfaces, also while doctor tries it."""

  def setUp(self):
    super().setUp()
    if not _compat.COLUMN.has_worker:
      self.skipTest('no worker here')

  def test_the_statement_of_a_run_on_it_says_so(self):
    with execution.create_native_context() as context:
      port = context.worker.wait_until_ready()
      # The attack: any address of the machine leads to it.
      with socket.create_connection(('127.9.9.9', port), timeout=60):
        pass
      cohorts = absltest.mock.Mock(num_clients=None)
      # pylint: disable-next=protected-access
      said = training._completed(None, cohorts).not_covered
    self.assertIn('listens on all interfaces', said)

  def test_it_can_be_left_out(self):
    asked, answers = {}, {doctor_probe.LOADING: {'error': 'no'}}
    with absltest.mock.patch.object(
        doctor, '_ask_child', lambda **given: asked.update(given) or answers
    ):
      command.run(main.main, 'doctor', '--skip-worker')
    self.assertTrue(asked['skip_worker'])
    self.assertNotIn(doctor_probe.WORKER, doctor_probe.attempts(**asked))

  def test_doctor_says_what_it_opened(self):
    for words in ((), ('--format', 'json')):
      with absltest.mock.patch.object(
          doctor,
          '_ask_child',
          lambda **_: {doctor_probe.WORKER: {'result': 'starts'}},
      ):
        _, out, _ = command.run(main.main, 'doctor', *words)
      self.assertIn('listens on all interfaces', out)
      self.assertIn('--skip-worker', out)
    _, help_text, _ = command.run(main.main, 'doctor', '--help')
    self.assertIn('all interfaces', ' '.join(help_text.split()))


if __name__ == '__main__':
  absltest.main()
