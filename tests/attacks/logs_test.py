# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow quotes clients' data: in `secret/run.log`, not on screens."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import traceback

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.attacks import logs_run
from tff_dp import _compat
from tff_dp import _failures
from tff_dp import _native_output
from tff_dp import _quiet
from tff_dp import execution
from tff_dp.cli import errors
from tff_dp.execution import cluster
from tff_dp.execution import native
from tff_dp.execution.cluster import engine
from tff_dp.execution.cluster import worker as worker_lib

_ROOT = pathlib.Path(__file__).parents[2]
_SECRET = str(logs_run.LABEL)


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _add_up(values):
  return tff.federated_sum(values)


class RunTest(absltest.TestCase):
  """Real runs, with everything that makes TensorFlow talk."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.folder = pathlib.Path(
        cls.enterClassContext(tempfile.TemporaryDirectory())
    )
    cls.done = subprocess.run(
        [sys.executable, '-m', 'tests.attacks.logs_run', cls.folder, '--debug'],
        cwd=_ROOT,
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '0', 'TFF_DP_DEBUG': '1'},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

  def _log(self, kind: str) -> pathlib.Path:
    return self.folder / kind / 'secret' / 'run.log'

  def test_an_error_of_tffs_worker_is_in_the_log_alone(self):
    if not _compat.COLUMN.has_worker:
      self.skipTest('no worker here')
    self.assertEqual(self.done.returncode, 3, self.done.stderr)
    self.assertNotIn(_SECRET, self.done.stdout + self.done.stderr)
    self.assertIn(_SECRET, self._log(logs_run.NATIVE).read_text())
    self.assertIn("computation in TFF's worker failed", self.done.stderr)

  def test_label_of_a_client_is_in_the_log_alone(self):
    self.assertEqual(self.done.returncode, 3, self.done.stderr)
    self.assertNotIn(_SECRET, self.done.stdout + self.done.stderr)
    path = self._log(logs_run.IN_PROCESS)
    log = path.read_text()
    # From us and, which shows that the attack is one, from its C++.
    self.assertIn('TensorFlow said:', log)
    self.assertIn('OP_REQUIRES failed', log)
    self.assertGreater(log.count(_SECRET), 1)
    # All else is on the screen, as ever.
    self.assertIn('round=1/4', self.done.stderr)
    self.assertIn(f'client {logs_run.BAD!r} failed', self.done.stderr)
    self.assertIn('Traceback', self.done.stderr)
    self.assertEqual(path.stat().st_mode & 0o777, 0o600)


class ErrorsTest(absltest.TestCase):

  def test_what_a_dead_worker_said_is_in_its_details(self):
    if not _compat.COLUMN.has_worker:
      self.skipTest('no worker here')
    path = pathlib.Path(self.create_tempdir().full_path) / 'worker.log'
    worker = native.NativeWorker(log_path=path)
    self.addCleanup(worker.close)
    worker.wait_until_ready()
    self.assertEqual(path.stat().st_mode & 0o777, 0o600)
    with open(path, 'a') as file:
      file.write(f'Label values: {_SECRET}\n')
    os.kill(worker.pid, 9)
    worker._process.wait()  # pylint: disable=protected-access
    error = worker.death()
    self.assertNotIn(_SECRET, str(error))
    self.assertIn(_SECRET, error.details)

  def test_tensorflows_own_errors_are_not_quoted(self):
    log = pathlib.Path(self.create_tempdir().full_path) / 'log'

    def command(words):
      del words
      try:
        try:
          tf.debugging.assert_less(tf.constant(logs_run.LABEL), 10)
        except tf.errors.InvalidArgumentError as cause:
          if wraps:
            raise ValueError('no labels') from cause
          raise
      except Exception as error:
        _failures.log(log, error)
        raise

    for wraps in (False, True):
      with contextlib.redirect_stderr(io.StringIO()) as screen:
        code = errors.run(command, ['--debug'], stopped='')
      self.assertEqual(code, 1)
      self.assertNotIn(_SECRET, screen.getvalue())
      self.assertIn(f'{__name__.rpartition(".")[2]}.py', screen.getvalue())
    self.assertGreaterEqual(log.read_text().count(_SECRET), 2)

  def test_details_stay_out_of_python_s_traces(self):
    error = execution.ComputationError(
        'it', operation='', kind='INTERNAL', details=_SECRET
    )
    self.assertNotIn(_SECRET, ''.join(traceback.format_exception(error)))
    self.assertNotIn(_SECRET, repr(error))


class DiversionTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)
    # Stands for the screen; a copy of descriptor 2 puts back what was there.
    self.screen = self.folder / 'screen'
    before = os.dup(2)
    self.addCleanup(os.close, before)
    self.addCleanup(os.dup2, before, 2)
    file = os.open(self.screen, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 2)
    os.close(file)
    stream = open(2, 'w', closefd=False)
    self.enterContext(absltest.mock.patch.object(sys, 'stderr', stream))

  def _open(self, name: str = 'log') -> _native_output.Diversion:
    diversion = _native_output.Diversion(self.folder / name)
    self.addCleanup(diversion.close)
    return diversion

  def _read(self, name: str) -> str:
    return (self.folder / name).read_text()

  def test_what_goes_where(self):
    diversion = self._open()
    before = sys.stderr
    print('a', file=sys.stderr)
    with diversion.active():
      os.write(2, b'b')
      tf.print('c', end='')
      print('d', file=sys.stderr)
      print('e', file=diversion.screen)
    self.assertIs(sys.stderr, before)
    os.write(2, b'f')
    self.assertEqual(self._read('log'), 'bc')
    self.assertEqual(self._read('screen'), 'a\nd\ne\nf')

  def test_a_worker_of_a_cluster_has_no_screen(self):
    def work(self, *arguments):
      os.write(2, _SECRET.encode())
      return work_before(self, *arguments)

    work_before = worker_lib._ShardCall.work  # pylint: disable=protected-access
    local = engine.LocalEngine()
    with absltest.mock.patch.object(worker_lib._ShardCall, 'work', work):
      with cluster.create_cluster_context(local, num_shards=2):
        self.assertEqual(_add_up([1.0, 2.0]), 3.0)
    self.assertEqual(self._read('screen'), '')

  def test_an_error_puts_everything_back(self):
    before = sys.stderr
    with self.assertRaises(KeyError):
      with self._open().active():
        raise KeyError()
    os.write(2, b'a')
    self.assertIs(sys.stderr, before)
    self.assertEqual((self._read('log'), self._read('screen')), ('', 'a'))

  def test_two_runs_at_once(self):
    first, second = self._open('first'), self._open('second')
    in_second, may_end = threading.Event(), threading.Event()

    def run():
      with second.active():
        in_second.set()
        may_end.wait(60)
        os.write(2, b'b')

    thread = threading.Thread(target=run)
    with first.active():
      thread.start()
      in_second.wait(60)
    # The first one has ended, and must not uncover the second.
    os.write(2, b'a')
    first.close()
    print('c', file=second.screen)
    may_end.set()
    thread.join()
    os.write(2, b'd')
    self.assertEqual(self._read('second'), 'ab')
    self.assertEqual(self._read('screen'), 'c\nd')

  def test_a_link_is_not_followed(self):
    (self.folder / 'log').symlink_to(self.folder / 'elsewhere')
    with self.assertRaises(OSError):
      self._open()

  def test_stderr_that_is_closed(self):
    diversion = self._open()
    os.close(2)
    with diversion.active():
      os.write(2, b'a')
    with self.assertRaises(OSError):
      os.write(2, b'b')
    self.assertEqual(self._read('log'), 'a')


class LoopOfOnesOwnTest(parameterized.TestCase):
  """Without `train` nothing is diverted, so it is said."""

  @parameterized.parameters(
      # TensorFlow came first, level, is there a warning.
      (False, '3', False),
      (False, '1', True),
      (False, 'loud', True),
      (True, '3', True),
  )
  def test_warns_once(self, came_first, level, warns):
    patch = absltest.mock.patch
    self.enterContext(patch.object(_quiet, 'was_loaded_loud', came_first))
    self.enterContext(patch.object(_native_output, '_has_warned', False))
    self.enterContext(
        patch.dict(os.environ, {'TF_CPP_MIN_LOG_LEVEL': level})
    )
    with absltest.mock.patch.object(
        _native_output.warnings, 'warn'
    ) as warned:
      with execution.create_sync_in_process_context():
        _add_up([])
        warned.assert_not_called()
        _add_up([1.0])
        _add_up([1.0])
    self.assertEqual(warned.call_count, int(warns))

  def test_not_inside_of_a_run(self):
    patch = absltest.mock.patch
    self.enterContext(patch.object(_quiet, 'was_loaded_loud', True))
    self.enterContext(patch.object(_native_output, '_has_warned', False))
    path = pathlib.Path(self.create_tempdir().full_path) / 'log'
    diversion = _native_output.Diversion(path)
    self.addCleanup(diversion.close)
    with patch.object(_native_output.warnings, 'warn') as warned:
      with diversion.active():
        _native_output.warn_if_clients_show()
    warned.assert_not_called()


if __name__ == '__main__':
  absltest.main()
