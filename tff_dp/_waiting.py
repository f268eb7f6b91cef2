# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shows on a terminal what the program is busy with, and for how many seconds.

Imports, tracing and searches take many seconds each and cannot report progress,
so a thread counts the seconds. Nothing is written to a stream that is not a
terminal.
"""

from collections.abc import Iterator
import contextlib
import os
import sys
import threading
import time

_SECONDS_BEFORE_IT_SHOWS = 1.0
_SECONDS_BETWEEN_LINES = 1.0
_CLEAR = '\r\x1b[K'


@contextlib.contextmanager
def saying(what: str, *, mode: str = 'auto', stream=None) -> Iterator[None]:
  """Shows `what ... 7 s` while its block runs, and removes it afterwards.

  Args:
    what: Activity of the block, such as 'importing TensorFlow Federated'.
    mode: Display as for `tff_dp.program.train`. 'plain' and 'quiet' show
      nothing.
    stream: Stream to write to. Default: stderr. If it is no terminal, nothing
      is shown.
  """
  stream = sys.stderr if stream is None else stream
  if mode in ('plain', 'quiet') or not _is_terminal(stream):
    yield
    return
  # A copy, because stderr is held back while TensorFlow is loaded.
  with open(os.dup(stream.fileno()), 'w', encoding='utf-8') as screen:
    ended = threading.Event()
    thread = threading.Thread(
        target=_count, args=(what, screen, ended), daemon=True
    )
    thread.start()
    try:
      yield
    finally:
      ended.set()
      thread.join()


def note(line: str) -> None:
  """Writes a line to stderr, in place of the count that a terminal may show."""
  clear = _CLEAR if _is_terminal(sys.stderr) else ''
  sys.stderr.write(f'{clear}{line}\n')


def _count(what: str, screen, ended: threading.Event) -> None:
  """Writes the line each second until the event, then clears it."""
  start = time.monotonic()
  if ended.wait(_SECONDS_BEFORE_IT_SHOWS):
    return
  with contextlib.suppress(OSError):  # The terminal may be gone.
    while True:
      seconds = time.monotonic() - start
      screen.write(f'{_CLEAR}{what} ... {seconds:.0f} s')
      screen.flush()
      if ended.wait(_SECONDS_BETWEEN_LINES):
        break
    screen.write(_CLEAR)
    screen.flush()


def _is_terminal(stream) -> bool:
  try:
    return stream.isatty() and os.isatty(stream.fileno())
  except (AttributeError, OSError, ValueError):  # None, a notebook's, closed.
    return False
