# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Interface of a distributed engine, and the shards of a pass on an engine.

An engine carries bytes to a worker, calls `worker.run_shard` there and carries
bytes back. All else is here: which shard is tried again when a worker is lost,
and which result counts.
"""

import abc
from collections.abc import Callable
import concurrent.futures
import contextlib
import logging
import time

from tff_dp import _checks

INSTALL = (
    'in a checkout of tff_dp, make environment-cluster, or install'
    ' requirements.cluster.lock as docs/execution.md says'
)
_log = logging.getLogger(__name__)
# Seconds between two looks whether a pass was cancelled.
_LOOK_SECONDS = 0.5
_REPORT_SECONDS = 10.0
_NUM_NAMED = 5


class WorkerLostError(RuntimeError):
  """A worker, or data that it held, is lost. The task itself did not fail."""


class ClusterError(RuntimeError):
  """The cluster cannot finish a pass over the clients."""


class Engine(abc.ABC):
  """Runs functions of bytes on the workers of a cluster."""

  @abc.abstractmethod
  def put(self, data: bytes):
    """Returns a reference to `data` for tasks, valid until `release`."""

  @abc.abstractmethod
  def release(self, reference) -> None:
    """Frees the data of a reference from `put`. Never fails."""

  @abc.abstractmethod
  def submit(
      self, function: Callable[[bytes, bytes], bytes], reference, data: bytes
  ) -> concurrent.futures.Future:
    """Starts `function(shared, data)` on any worker.

    `shared` are the data of the reference. An engine may repeat a task whose
    worker was lost. It must not repeat a task that raised an error.

    Returns:
      The future of the result. It holds the error of the task, or
      `WorkerLostError` if the worker or the data of the reference is lost.
    """

  @abc.abstractmethod
  def cancel(self, future: concurrent.futures.Future) -> None:
    """Ends a task of `submit` as far as the engine can. Never fails."""

  @abc.abstractmethod
  def on_every_worker(self, function: Callable[[], object]) -> dict[str, object]:
    """Returns a dict from worker to the result of a function there."""

  @property
  @abc.abstractmethod
  def num_workers(self) -> int:
    """Number of tasks that can run at the same time now."""

  @abc.abstractmethod
  def close(self) -> None:
    """Closes the connection and ends all that was started for it."""


def settle(future: concurrent.futures.Future, task, lost: tuple) -> None:
  """Gives a future of `Engine.submit` the result of a task, or its error.

  Args:
    future: Future, which may be settled already.
    task: Future of the engine's own kind, which is done.
    lost: Errors that mean that the worker, or data that it held, is lost.
  """
  with contextlib.suppress(concurrent.futures.InvalidStateError):
    try:
      result = task.result()
    except lost as error:
      # Ray's messages go on for many lines.
      line = str(error).partition('\n')[0]
      future.set_exception(WorkerLostError(f'{type(error).__name__}: {line}'))
    except Exception as error:  # pylint: disable=broad-except
      future.set_exception(error)
    else:
      future.set_result(result)


class LocalEngine(Engine):
  """Threads of this process, as a reference for other engines and for tests."""

  def __init__(self, num_workers: int = 2):
    _checks.integer_at_least(1, num_workers=num_workers)
    self._num_workers = num_workers
    self._threads = concurrent.futures.ThreadPoolExecutor(
        num_workers, thread_name_prefix='tff_dp_local_engine'
    )

  def put(self, data: bytes) -> bytes:
    return data

  def release(self, reference) -> None:
    del reference

  def submit(self, function, reference, data):
    return self._threads.submit(function, reference, data)

  def cancel(self, future) -> None:
    future.cancel()

  def on_every_worker(self, function):
    return {'local': function()}

  @property
  def num_workers(self) -> int:
    return self._num_workers

  def close(self) -> None:
    self._threads.shutdown(wait=True, cancel_futures=True)


class Shards:
  """Runs the shards of a pass over the clients, and takes one result of each.

  Attributes:
    num_lost: Number of times that a shard lost its worker and was tried again.
    num_bytes_sent: Bytes of the shards and of the data that they share. Shared
      data count once for each `Engine.put`, however many workers they reach.
    num_bytes_received: Bytes of the results that were taken.
    say: Function that receives reports on waiting and lost shards. Default: a
      log warning.
  """

  def __init__(self, engine: Engine, *, max_retries: int):
    _checks.integer_at_least(0, max_retries=max_retries)
    self._engine = engine
    self._max_retries = max_retries
    self.num_lost = 0
    self.num_bytes_sent = 0
    self.num_bytes_received = 0
    self.say = _log.warning

  def run(
      self,
      function: Callable[..., bytes],
      shared: bytes,
      shards: list[bytes],
      *,
      is_cancelled: Callable[[], bool],
  ) -> list[bytes]:
    """Returns one result for each shard, in the order of the shards.

    A shard that is tried again gets a new task. The future of the old task is
    dropped at that moment, so a late result of it is never taken.

    Args:
      function: Function of `shared` and one item of `shards`.
      shared: Data that all shards need.
      shards: Data of each shard.
      is_cancelled: Function that returns whether to give up.

    Raises:
      ClusterError: A shard lost its worker more than `max_retries` times, or a
        result is not bytes.
      concurrent.futures.CancelledError: `is_cancelled` returned True.
      Exception: A task failed. This is the error that it raised.
    """
    tries = [0] * len(shards)
    results = [None] * len(shards)
    # The last one is valid.
    references = []
    pending = {}

    def start(shard):
      tries[shard] += 1
      self.num_bytes_sent += len(shards[shard])
      pending[
          self._engine.submit(function, references[-1], shards[shard])
      ] = shard

    try:
      references.append(self._put(shared))
      for shard in range(len(shards)):
        start(shard)
      reported = time.monotonic()
      while pending:
        done, _ = concurrent.futures.wait(
            pending,
            timeout=_LOOK_SECONDS,
            return_when=concurrent.futures.FIRST_COMPLETED,
        )
        if is_cancelled():
          raise concurrent.futures.CancelledError()
        lost = []
        for future in done:
          shard = pending.pop(future)
          try:
            results[shard] = future.result()
            if not isinstance(results[shard], bytes):
              raise ClusterError(
                  f'the result of shard {shard} is no message of tff_dp:'
                  f' {_checks.shown(results[shard])}'
              )
            self.num_bytes_received += len(results[shard])
          except WorkerLostError as error:
            self._check_tries(shard, tries[shard], error)
            lost.append(shard)
        if lost:
          self.num_lost += len(lost)
          self.say(f'{_named(lost, tries)}: the worker was lost; trying again')
          # Data that a lost worker held for others may be lost as well.
          references.append(self._put(shared))
          for shard in lost:
            start(shard)
        if time.monotonic() - reported > _REPORT_SECONDS and pending:
          reported = time.monotonic()
          self.say(
              f'waiting for {_named(sorted(pending.values()), tries)} of'
              f' {len(shards)} on {self._engine.num_workers} workers'
          )
      return results
    finally:
      for future in pending:
        self._engine.cancel(future)
      for reference in references:
        self._engine.release(reference)

  def _put(self, shared: bytes):
    self.num_bytes_sent += len(shared)
    return self._engine.put(shared)

  def _check_tries(self, shard: int, tries: int, error: Exception) -> None:
    if tries > self._max_retries:
      raise ClusterError(
          f'shard {shard} was tried {tries} times, and its worker was lost each'
          f' time ({error}). A worker is also lost when it runs out of memory.'
          ' If that is the cause, give each worker more memory: smaller shards'
          ' need as much'
      ) from error


def _named(shards: list[int], tries: list[int]) -> str:
  names = [
      f'{shard} (try {tries[shard]})' if tries[shard] > 1 else str(shard)
      for shard in shards[:_NUM_NAMED]
  ]
  more = ', ...' if len(shards) > _NUM_NAMED else ''
  return f'shard {", ".join(names)}{more}'
