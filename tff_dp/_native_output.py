# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps TensorFlow's C++ output off the screen while clients work.

TensorFlow logs a warning for each operation that fails. The warning quotes the
client's data, such as a label. The log level was set when TensorFlow was
loaded, perhaps before this package, and cannot be changed later. So `Diversion`
points file descriptor 2 at a secret file while clients work. Python's own
`sys.stderr` still leads to the screen. Log handlers that hold an older
`sys.stderr` write to the file, and so does `tf.print`.
"""

from collections.abc import Iterator
import contextlib
import io
import os
import sys
import threading
import warnings

from tff_dp import _quiet

_STDERR = 2
_SILENT = 3  # TF_CPP_MIN_LOG_LEVEL for fatal errors only.

# Descriptor 2 belongs to the process, so runs in several threads share these
# variables. The output goes to the file of the last block that began. The
# screen returns when the last block ends.
_lock = threading.Lock()
_diverted: list[int] = []
_screen: int | None = None
_num_open = 0
# `_stand_in` leads to the screen while a `Diversion` is open, if `sys.stderr`
# wrote to descriptor 2. `_replaced` is that `sys.stderr`, inside of a block.
_stand_in = None
_replaced = None
_has_warned = False


class ClientDataOnScreenWarning(UserWarning):
  """TensorFlow may print clients' data to stderr."""


class Diversion:
  """Sends file descriptor 2 to a file while a block of `active()` runs.

  It serves any number of blocks.

  Attributes:
    screen: Stream that leads to the screen until `close`, also inside of a
      block. Write to it instead of `sys.stderr`. `None` if `sys.stderr` does
      not write to descriptor 2.
  """

  def __init__(self, path: os.PathLike):
    """Opens the file.

    Args:
      path: Path of the file. A new file is readable for its owner only. An old
        file is appended to.

    Raises:
      OSError: If the file cannot be opened.
    """
    global _num_open, _stand_in
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    self._file = os.open(path, flags, 0o600)
    with _lock:
      if not _num_open and _is_descriptor(sys.stderr):
        _stand_in = _copy(sys.stderr)
      _num_open += 1
      self.screen = _stand_in

  @contextlib.contextmanager
  def active(self) -> Iterator[None]:
    """Returns a block in which the output goes to the file.

    If blocks overlap, it goes to the file of the block that began last.

    Raises:
      OSError: If the system refuses to redirect the output.
    """
    _enter(self._file)
    try:
      yield
    finally:
      _leave(self._file)

  def close(self) -> None:
    """Closes the file. Further calls do nothing."""
    global _num_open, _stand_in
    if self._file is None:
      return
    os.close(self._file)
    self._file = None
    with _lock:
      _num_open -= 1
      if not _num_open and _stand_in is not None:
        _stand_in.close()
        _stand_in = None


@contextlib.contextmanager
def silence() -> Iterator[None]:
  """Returns a block in which the output is dropped.

  Inside a block of `Diversion.active` the output still goes to the diversion's
  file. The function is for workers of a cluster, whose errors travel to the
  driver, and whose screens other people may read.
  """
  if _diverted:
    yield
    return
  with contextlib.closing(Diversion(os.devnull)) as nowhere, nowhere.active():
    yield


def _is_descriptor(stream) -> bool:
  """Returns whether a stream of Python writes to descriptor 2."""
  try:
    return stream.fileno() == _STDERR
  except (AttributeError, OSError, ValueError):  # None, a notebook's, closed.
    return False


def _copy(stream) -> io.TextIOWrapper:
  return open(
      os.dup(_STDERR),
      'w',
      buffering=1,
      encoding=stream.encoding,
      errors='backslashreplace',
  )


def _enter(file: int) -> None:
  global _screen, _replaced
  with _lock:
    _flush()
    if not _diverted:
      try:
        _screen = os.dup(_STDERR)
      except OSError:  # It is closed. Any file may get its number.
        _screen = None
      if _stand_in is not None and _is_descriptor(sys.stderr):
        _replaced, sys.stderr = sys.stderr, _stand_in
    os.dup2(file, _STDERR)
    _diverted.append(file)


def _leave(file: int) -> None:
  global _screen, _replaced
  with _lock:
    _flush()
    _diverted.remove(file)
    if _diverted:
      os.dup2(_diverted[-1], _STDERR)
      return
    if _screen is None:
      os.close(_STDERR)
    else:
      os.dup2(_screen, _STDERR)
      os.close(_screen)
      _screen = None
    if _replaced is not None and sys.stderr is _stand_in:
      sys.stderr = _replaced
    _replaced = None


def _flush() -> None:
  for stream in (sys.stderr, _replaced):
    if stream is not None:
      with contextlib.suppress(OSError, ValueError):
        stream.flush()


def warn_if_clients_show() -> None:
  """Warns once if TensorFlow may print data of clients.

  The context calls it before clients work. In a block of `Diversion.active` it
  is silent, because the output goes to a file.
  """
  global _has_warned
  if _has_warned or _diverted or not _is_loud():
    return
  _has_warned = True
  warnings.warn(
      'TensorFlow logs here, and may print data of clients to stderr when their'
      ' work fails. Import tff_dp before TensorFlow and leave'
      ' TF_CPP_MIN_LOG_LEVEL and TFF_DP_DEBUG unset, or train with'
      ' tff_dp.program.train, which sends this output to secret/run.log',
      ClientDataOnScreenWarning,
      stacklevel=2,
  )


def _is_loud() -> bool:
  """Returns whether TensorFlow may write more than fatal errors."""
  if _quiet.was_loaded_loud:
    return True
  level = os.environ.get('TF_CPP_MIN_LOG_LEVEL', '0')
  return not level.isdecimal() or int(level) < _SILENT
