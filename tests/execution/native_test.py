# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the worker process that we own."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp import _compat
from tff_dp.execution import native

_ROOT = pathlib.Path(__file__).parents[2]
# Reads the module as a file, as its package would load TFF, which takes seconds.
# Starts the worker in a thread that ends at once, which must not end the worker.
_CHILD = """
import runpy, sys, threading, time
path, how = sys.argv[1:]
NativeWorker = runpy.run_path(path)['NativeWorker']
workers = []
thread = threading.Thread(target=lambda: workers.append(NativeWorker()))
thread.start()
thread.join()
workers[0].wait_until_ready()
print(workers[0].pid, flush=True)
if how == 'exception':
  raise RuntimeError('on purpose')
if how == 'kill':
  time.sleep(600)
"""


def _is_alive(pid: int) -> bool:
  try:
    status = pathlib.Path(f'/proc/{pid}/stat').read_text()
  except FileNotFoundError:
    return False
  return status.rpartition(')')[2].split()[0] != 'Z'


def _ends(pid: int, seconds: float = 10.0) -> bool:
  deadline = time.monotonic() + seconds
  while time.monotonic() < deadline:
    if not _is_alive(pid):
      return True
    time.sleep(0.02)
  return False


class NativeWorkerTest(parameterized.TestCase):

  def test_refuses_bad_arguments(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'max_concurrent_clients=0'
    ):
      native.NativeWorker(max_concurrent_clients=0)
    with self.assertRaisesRegex(OSError, 'no/such/dir'):
      native.NativeWorker(log_path='/no/such/dir/worker.log')

  def test_missing_binary_says_what_to_do(self):
    with absltest.mock.patch.object(
        _compat, 'worker_binary', lambda: pathlib.Path('/no/worker_binary')
    ):
      with self.assertRaisesRegex(
          _compat.BrokenEnvironmentError, 'make environment'
      ):
        native.NativeWorker()

  def test_listens_and_ends_on_close(self):
    worker = native.NativeWorker()
    port = worker.wait_until_ready()
    self.assertGreater(port, 0)
    self.assertTrue(worker.is_running)
    self.assertIn('listening', worker.log_tail() or 'listening')
    worker.close()
    worker.close()
    self.assertFalse(worker.is_running)
    self.assertFalse(_is_alive(worker.pid))
    with self.assertRaisesRegex(native.NativeWorkerError, 'was closed'):
      worker.wait_until_ready()

  def test_two_workers_have_ports_of_their_own(self):
    first, second = native.NativeWorker(), native.NativeWorker()
    self.addCleanup(first.close)
    self.addCleanup(second.close)
    self.assertNotEqual(first.wait_until_ready(), second.wait_until_ready())

  def test_holds_none_of_our_files_and_its_own_session(self):
    log = self.create_tempfile().full_path
    worker = native.NativeWorker(log_path=log)
    self.addCleanup(worker.close)
    worker.wait_until_ready()
    files = {
        number: os.readlink(f'/proc/{worker.pid}/fd/{number}')
        for number in (0, 1, 2)
    }
    self.assertEqual(files, {0: os.devnull, 1: log, 2: log})
    self.assertNotEqual(os.getsid(worker.pid), os.getsid(0))

  def test_forked_copy_does_not_end_it(self):
    worker = native.NativeWorker()
    self.addCleanup(worker.close)
    # Without a fork, which would take a runtime with threads for this test.
    with absltest.mock.patch.object(os, 'getpid', lambda: worker.pid):
      worker.close()
    self.assertTrue(worker.is_running)

  def test_names_the_signal_that_ended_it(self):
    worker = native.NativeWorker()
    self.addCleanup(worker.close)
    worker.wait_until_ready()
    os.kill(worker.pid, signal.SIGKILL)
    self.assertTrue(_ends(worker.pid))
    with self.assertRaisesRegex(native.NativeWorkerError, 'SIGKILL'):
      worker.wait_until_ready()

  def test_launcher_refuses_a_parent_that_is_gone(self):
    result = subprocess.run(
        [sys.executable, '-c', native._LAUNCHER, '1', '/bin/echo', 'started'],
        capture_output=True,
        text=True,
        check=False,
    )
    self.assertEqual(result.returncode, 1)
    self.assertEqual(result.stdout, '')
    self.assertIn('parent process is gone', result.stderr)

  @parameterized.parameters(
      ('exit', 0), ('exception', 1), ('kill', -signal.SIGKILL)
  )
  def test_ends_with_its_parent(self, how, code):
    # The worker would keep these pipes open, if it had inherited them.
    child = subprocess.Popen(
        [sys.executable, '-c', _CHILD, native.__file__, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )
    self.addCleanup(child.kill)
    worker = int(child.stdout.readline())
    if how == 'kill':
      self.assertTrue(_is_alive(worker))
      child.kill()
    # Returns when every holder of the pipes has closed them.
    _, errors = child.communicate(timeout=60)
    self.assertTrue(_ends(worker))
    self.assertEqual(child.returncode, code)
    self.assertEqual('RuntimeError: on purpose' in errors, how == 'exception')

  def test_starts_from_a_thread(self):
    workers = []
    thread = threading.Thread(
        target=lambda: workers.append(native.NativeWorker())
    )
    thread.start()
    thread.join()
    self.addCleanup(workers[0].close)
    workers[0].wait_until_ready()
    time.sleep(0.2)
    self.assertTrue(workers[0].is_running)


if __name__ == '__main__':
  absltest.main()
