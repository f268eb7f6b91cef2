# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ends a command at SIGINT, outside of training, with one line and status 130.

KeyboardInterrupt would print a trace while a command is being imported. It also
gets lost in callbacks of the garbage collector, such as jax's: about every
second time, while TFF builds a process. Files that a run writes survive an
immediate exit.
"""

import contextlib
import os
import signal
import sys

# A copy of stderr, because stderr is held back while TensorFlow is being
# loaded.
_screen = None
_line = b''


def exit_on_interrupt(message: str) -> None:
  """Ends the process at the next SIGINT. For the entry point of a command.

  A process that ignores SIGINT, such as a job in the background, goes on doing
  so.

  Args:
    message: Line to print.
  """
  global _screen, _line
  if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    return  # As of a job in the background.
  _line = message.encode() + b'\n'
  _screen = os.dup(sys.stderr.fileno())
  signal.signal(signal.SIGINT, _exit)


def raise_on_interrupt() -> None:
  """Restores KeyboardInterrupt, for code that has to end its children."""
  if signal.getsignal(signal.SIGINT) is _exit:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(signal_number, frame) -> None:
  del frame
  with contextlib.suppress(Exception):
    sys.stdout.flush()
  with contextlib.suppress(OSError):
    os.write(_screen, _line)
  os._exit(128 + signal_number)  # pylint: disable=protected-access
