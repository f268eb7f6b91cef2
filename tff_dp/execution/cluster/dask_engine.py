# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dask distributed as an engine.

If a worker dies, Dask's scheduler itself gives the task to another one, as
often as its setting `distributed.scheduler.allowed-failures` says. The retries
of `Shards` come on top.
"""

import concurrent.futures
import contextlib
import logging
import os
import signal

from tff_dp import _checks
from tff_dp.execution.cluster import engine as engine_lib

_CLOSE_SECONDS = 1.0
# Environment of local workers. By default Dask makes a worker return all free
# memory at once. The next shard then takes as much again, and each page costs a
# fault.
_KEEP_MEMORY = {
    'distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_': 2**25,
    'distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_': 2**28,
}
_NUM_LOCAL_WORKERS = 2


def _distributed():
  try:
    import distributed  # pylint: disable=g-import-not-at-top
  except ImportError as error:
    raise ImportError(
        f"engine 'dask' needs Dask: {engine_lib.INSTALL}"
    ) from error
  return distributed


def _check_used(security, address: str | None, distributed) -> None:
  """Raises an error unless a connection would use `security`."""
  if not isinstance(security, distributed.Security):
    raise _checks.ArgumentError(
        'security', security, 'a distributed.Security, or None'
    )
  if address is not None and not address.startswith('tls://'):
    raise _checks.ArgumentError(
        'address', address, "'tls://host:port', because security is given"
    )


class DaskEngine(engine_lib.Engine):
  """An engine on a Dask scheduler, or on local workers that it starts."""

  def __init__(
      self,
      address: str | None = None,
      *,
      security=None,
      num_workers: int = _NUM_LOCAL_WORKERS,
  ):
    """Connects to the scheduler.

    Args:
      address: Address of the scheduler, such as 'tls://host:8786'. `None`
        starts a scheduler in this process, and local workers.
      security: A `distributed.Security` with the certificates of the cluster.
        With `None`, a connection to `address` uses the certificates of Dask's
        configuration, if any. A scheduler that is started here gets a new
        certificate, in memory, so nobody else on the machine can connect.
      num_workers: Number of local workers.

    Raises:
      ArgumentError: `security` is not a `distributed.Security`, or the
        connection would ignore it because `address` does not begin with tls://.
      ImportError: Dask is not installed.
    """
    self._distributed = _distributed()
    if security is not None:
      _check_used(security, address, self._distributed)
    # By default it logs every connection.
    logging.getLogger('distributed').setLevel(logging.WARNING)
    self._cluster = None
    if address is None:
      import dask  # pylint: disable=g-import-not-at-top

      with dask.config.set(_KEEP_MEMORY):
        self._cluster = self._distributed.LocalCluster(
            n_workers=num_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit=None,
            security=security or self._distributed.Security.temporary(),
        )
    self._client = self._distributed.Client(
        address or self._cluster,
        security=security or getattr(self._cluster, 'security', None),
        set_as_default=False,
    )
    # Future of `submit` -> future of Dask, while a task runs.
    self._running = {}

  def put(self, data):
    # Sent to all workers, or tasks would queue where the data are.
    return self._client.scatter(data, hash=False, broadcast=True)

  def release(self, reference) -> None:
    reference.release()

  def submit(self, function, reference, data):
    task = self._client.submit(function, reference, data, pure=False)
    future = concurrent.futures.Future()
    self._running[future] = task

    def done(task):
      self._running.pop(future, None)
      engine_lib.settle(future, task, self._lost)

    task.add_done_callback(done)
    return future

  @property
  def _lost(self):
    # Dask also cancels a task if data that `put` sent to a worker died with it,
    # since no other worker can compute them again.
    return (
        self._distributed.KilledWorker,
        concurrent.futures.CancelledError,
        self._distributed.client.FutureCancelledError,
    )

  def cancel(self, future) -> None:
    task = self._running.pop(future, None)
    if task is not None:
      with contextlib.suppress(Exception):
        self._client.cancel([task], asynchronous=True, force=True)

  def on_every_worker(self, function):
    return dict(self._client.run(function))

  @property
  def num_workers(self) -> int:
    return sum(self._client.nthreads().values())

  def close(self) -> None:
    if self._cluster is not None:
      # Killed, since a worker would otherwise finish its task first.
      for nanny in self._cluster.workers.values():
        with contextlib.suppress(Exception):
          nanny.auto_restart = False
          os.kill(nanny.pid, signal.SIGKILL)
    with contextlib.suppress(Exception):
      self._client.close(timeout=_CLOSE_SECONDS)
    if self._cluster is not None:
      with contextlib.suppress(Exception):
        self._cluster.close(timeout=_CLOSE_SECONDS)
