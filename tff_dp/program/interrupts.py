# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Ctrl-C that lets a round finish, so that its work can be saved."""

from collections.abc import Callable
import signal
import threading


class InterruptGuard:
  """Turns the first SIGINT into a request; the second one interrupts at once.

  A context manager for the main thread. In other threads, and where SIGINT is
  ignored, it changes nothing.

  Attributes:
    is_requested: Whether SIGINT has come.
  """

  def __init__(self, on_request: Callable[[], None]):
    """Initializes the guard.

    Args:
      on_request: Called once, from the signal handler.
    """
    self.is_requested = False
    self._on_request = on_request
    self._previous = None

  def __enter__(self) -> 'InterruptGuard':
    if threading.current_thread() is not threading.main_thread():
      return self
    previous = signal.getsignal(signal.SIGINT)
    # None: not set from Python, so it could not be put back.
    if previous is not None and previous != signal.SIG_IGN:
      self._previous = previous
      signal.signal(signal.SIGINT, self._handle)
    return self

  def __exit__(self, *exception_info) -> None:
    if self._previous is not None:
      signal.signal(signal.SIGINT, self._previous)

  def _handle(self, signal_number, frame) -> None:
    del signal_number, frame
    if self.is_requested:
      raise KeyboardInterrupt
    self.is_requested = True
    self._on_request()
