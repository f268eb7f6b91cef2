# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGHUP that let a round finish and be saved."""

from collections.abc import Callable
import signal
import threading

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Terminated(SystemExit):
  """Raised after SIGTERM or SIGHUP. The exit status is 128 + signal number.

  Attributes:
    message: Sentence that says what was stopped.
  """

  def __init__(self, signal_number: int, message: str):
    super().__init__(128 + signal_number)
    self.message = message

  def __str__(self) -> str:
    return self.message


class InterruptGuard:
  """Turns the first signal into a request to stop, and stops at the second.

  This is a context manager for the main thread. In other threads it changes
  nothing. An ignored signal (SIGHUP under `nohup`) stays ignored.

  Attributes:
    is_requested: Whether a signal has come.
  """

  def __init__(self, on_request: Callable[[], None]):
    """Initializes the guard.

    Args:
      on_request: Function that the signal handler calls once.
    """
    self.is_requested = False
    self._on_request = on_request
    self._first = signal.SIGINT
    self._previous = {}

  def stopped(self, message: str) -> BaseException:
    """Returns the exception that the caller raises when it has stopped.

    Args:
      message: Sentence that says what was stopped.
    """
    return _stopped(self._first, message)

  def __enter__(self) -> 'InterruptGuard':
    if threading.current_thread() is not threading.main_thread():
      return self
    for number in _SIGNALS:
      previous = signal.getsignal(number)
      # None: not set from Python, so it could not be put back.
      if previous is not None and previous != signal.SIG_IGN:
        self._previous[number] = previous
        signal.signal(number, self._handle)
    return self

  def __exit__(self, *exception_info) -> None:
    for number, previous in self._previous.items():
      signal.signal(number, previous)

  def _handle(self, signal_number, frame) -> None:
    del frame
    if self.is_requested:
      raise _stopped(signal_number, 'stopped at once, without saving')
    self.is_requested = True
    self._first = signal_number
    self._on_request()


def _stopped(signal_number: int, message: str) -> BaseException:
  if signal_number == signal.SIGINT:
    return KeyboardInterrupt(message)
  return Terminated(signal_number, message)
