# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF's C++ runtime as a process that we own.

TFF stops its worker only in a `__del__`. So the worker outlives its parent
after a normal exit, an exception and a SIGKILL. It also keeps the parent's
stdout open, so that a shell pipe behind the parent never ends. The worker here
ends with its parent in all three cases, and holds none of its parent's files.
"""

import atexit
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

from tff_dp import _checks
from tff_dp import _compat

# Runs in a bare interpreter between us and the worker. It asks the kernel to
# kill it when the thread that created it ends, and then becomes the worker. A
# `preexec_fn` would do the same, but is unsafe in a parent with threads. The
# check of the parent closes the race with a parent that died before prctl.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
  sys.exit('the parent process is gone')
os.execv(sys.argv[2], sys.argv[2:])
"""
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 2000
_LISTEN = '0A'  # The state of a listening socket in /proc/net/tcp.


class NativeWorkerError(RuntimeError):
  """The worker could not be started, died, was closed, or does not answer.

  Attributes:
    details: End of the worker's output. SECRET: it may show clients' data.
  """

  def __init__(self, message: str, details: str = ''):
    super().__init__(message)
    self.details = details


class NativeWorker:
  """A running `worker_binary` that ends with this process.

  It listens on a port that the kernel chose, so two workers that start at the
  same time cannot collide. Like every worker of TFF 0.87 it listens on all
  interfaces without authentication: anybody who can reach the port can run
  computations as this user. Shared machines need a firewall.

  Attributes:
    pid: Process id of the worker.
  """

  def __init__(
      self,
      *,
      max_concurrent_clients: int | None = None,
      log_path: str | os.PathLike | None = None,
  ):
    """Starts the process and returns at once. `wait_until_ready` waits.

    Args:
      max_concurrent_clients: Number of clients that may train at the same time.
        None means one per core that this process may use. (Without a limit
        every client gets its own threads: on one core, 20 clients took 13 times
        as long as one after the other.)
      log_path: File to which the worker's output is appended. A new file is
        readable for its owner only. SECRET: TensorFlow quotes data of clients
        whose work fails. None keeps the output in an unnamed temporary file.
        Errors have the end of the output in their `details`.

    Raises:
      ArgumentError: If a value is not allowed.
      BrokenEnvironmentError: If there is no usable worker binary.
      NativeWorkerError: If the process cannot be started.
      OSError: If `log_path` cannot be written.
    """
    _checks.optional_integer_at_least(
        1, max_concurrent_clients=max_concurrent_clients
    )
    binary = _compat.worker_binary()
    if binary is None or not os.access(binary, os.X_OK):
      raise _compat.BrokenEnvironmentError(
          "TFF's worker_binary cannot be run. "
          + _compat.explain(_compat.check_environment())
      )
    if log_path is None:
      self._log = tempfile.TemporaryFile(prefix='tff_dp_worker_')
    else:
      self._log = open(log_path, 'a+b', opener=_private)
    self._log_path = None if log_path is None else pathlib.Path(log_path)
    limit = max_concurrent_clients or len(os.sched_getaffinity(0))
    command = [
        sys.executable,
        '-I',  # Neither PYTHON* variables nor the working directory.
        '-S',
        '-c',
        _LAUNCHER,
        str(os.getpid()),
        str(binary),
        '--port=0',
        f'--max_concurrent_computation_calls={limit}',
    ]
    self._owner_pid = os.getpid()
    self._closed = False
    self._lock = threading.Lock()
    self._process = None
    self._start_error = None
    self._started = threading.Event()
    # The kernel's "parent" is a thread. So the worker is created by a thread
    # that lives as long as the worker, because callers may start one from a
    # thread that ends soon.
    self._keeper = threading.Thread(
        target=self._start_and_wait,
        args=(command,),
        name='tff_dp_native_worker',
        daemon=True,
    )
    self._keeper.start()
    self._started.wait()
    if self._start_error is not None:
      self._log.close()
      raise NativeWorkerError(
          f'cannot start the TFF worker: {self._start_error}'
      ) from self._start_error
    self.pid = self._process.pid
    atexit.register(self.close)

  def _start_and_wait(self, command: list[str]) -> None:
    environment = dict(os.environ)
    if not _compat.is_debug():
      # TensorFlow is silenced for the screen. A log file may say more.
      environment['TF_CPP_MIN_LOG_LEVEL'] = '1'
    try:
      self._process = subprocess.Popen(
          command,
          stdin=subprocess.DEVNULL,
          stdout=self._log,
          stderr=self._log,
          env=environment,
          # Ctrl-C must reach the training program only, which finishes its
          # round and saves.
          start_new_session=True,
      )
    except OSError as error:
      self._start_error = error
      self._started.set()
      return
    self._started.set()
    self._process.wait()

  @property
  def is_running(self) -> bool:
    """Whether the process is alive and has not been closed."""
    return not self._closed and self._process.poll() is None

  def log_tail(self) -> str:
    """Returns the last 2,000 bytes of the worker's output, '' after `close`.

    SECRET: they may show clients' data.
    """
    if self._log.closed:
      return ''
    size = os.fstat(self._log.fileno()).st_size
    start = max(0, size - _LOG_TAIL_BYTES)
    tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start)
    return tail.decode(errors='replace').strip()

  def death(self) -> NativeWorkerError:
    """Returns an error that says why the worker does not answer."""
    if self._closed:
      return NativeWorkerError('the TFF worker was closed')
    code = self._process.poll()
    if code is None:
      return NativeWorkerError(
          f'the TFF worker (pid {self.pid}) does not answer'
      )
    if code < 0:
      cause = f'was killed by {signal.Signals(-code).name}'
      if -code == signal.SIGKILL:
        cause += ', as the kernel does when memory runs out'
    else:
      cause = f'ended with status {code}'
    where = '' if self._log_path is None else f' (log: {self._log_path})'
    return NativeWorkerError(
        f'the TFF worker (pid {self.pid}) {cause}{where}', self.log_tail()
    )

  def wait_until_ready(self, *, timeout_seconds: float = 60.0) -> int:
    """Returns the port, as soon as the worker listens on it.

    Args:
      timeout_seconds: Longest time to wait.

    Raises:
      NativeWorkerError: If the worker ended, or does not listen in time.
    """
    _checks.positive(timeout_seconds=timeout_seconds)
    deadline = time.monotonic() + timeout_seconds
    while True:
      if not self.is_running:
        raise self.death()
      port = _listening_port(self.pid)
      if port is not None:
        return port
      if time.monotonic() > deadline:
        raise NativeWorkerError(
            f'the TFF worker (pid {self.pid}) opened no port within'
            f' {timeout_seconds:g} s'
        )
      time.sleep(_POLL_SECONDS)

  def close(self) -> None:
    """Ends the worker and waits for it. It may be called again.

    In a forked copy of the process that started the worker it does nothing.
    """
    if os.getpid() != self._owner_pid:
      return
    with self._lock:
      if self._closed:
        return
      self._closed = True
      atexit.unregister(self.close)
      # The worker has no state worth saving, and reacts to SIGTERM only slowly.
      self._process.kill()
      self._process.wait()
      self._log.close()


def _private(path, flags: int) -> int:
  return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _listening_port(pid: int) -> int | None:
  """Returns the TCP port on which process `pid` listens.

  The result is None if the process listens on none, or has ended.
  """
  try:
    links = [os.readlink(entry) for entry in os.scandir(f'/proc/{pid}/fd')]
    inodes = {
        link[len('socket:[') : -1]
        for link in links
        if link.startswith('socket:[')
    }
    for table in ('tcp6', 'tcp'):
      path = pathlib.Path(f'/proc/{pid}/net/{table}')
      if not path.exists():  # A kernel without IPv6.
        continue
      for line in path.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _LISTEN and fields[9] in inodes:
          return int(fields[1].rpartition(':')[2], base=16)
  except FileNotFoundError:  # It ended, or closed a file, meanwhile.
    pass
  return None
