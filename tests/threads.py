# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A second thread that comes to a lock, for tests that depend on no clock."""

import threading
from typing import Any
from unittest import mock

_SECONDS = 60.0


class Call:
  """A call in a thread of its own."""

  def __init__(self, owner, call):
    """Starts the call. Returns when it has ended, or waits for a lock.

    Args:
      owner: Object whose `_lock` the call may wait for.
      call: The call, without arguments.
    """
    self._call = call
    self._result: Any = None
    self._error: BaseException | None = None
    self._rests = threading.Event()
    self._thread = threading.Thread(target=self._run, daemon=True)
    # pylint: disable-next=protected-access
    door = _Door(owner._lock, self._rests)
    with mock.patch.object(owner, '_lock', door):
      self._thread.start()
      if not self._rests.wait(_SECONDS):
        raise TimeoutError('the call neither ended nor came to the lock')

  def result(self) -> Any:
    """Returns what the call returned, or raises what it raised."""
    self._thread.join(_SECONDS)
    if self._thread.is_alive():
      raise TimeoutError('the call has not ended')
    if self._error is not None:
      raise self._error
    return self._result

  def _run(self) -> None:
    try:
      self._result = self._call()
    except BaseException as error:  # pylint: disable=broad-exception-caught
      self._error = error
    finally:
      self._rests.set()


class _Door:
  """A lock that says when a thread begins to wait for it."""

  def __init__(self, lock, rests: threading.Event):
    self._lock, self._rests = lock, rests

  def acquire(self, blocking: bool = True) -> bool:
    if self._lock.acquire(blocking=False):
      return True
    if not blocking:
      return False
    self._rests.set()
    return self._lock.acquire()

  def release(self) -> None:
    self._lock.release()

  def __enter__(self) -> bool:
    return self.acquire()

  def __exit__(self, *exception_info) -> None:
    self.release()
