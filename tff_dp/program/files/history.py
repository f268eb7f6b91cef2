# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of a run's metrics, in a file that only grows.

A checkpoint stores the length of the file. So checkpoints and rounds cost no
more after many rounds than after a few. A resumed run cuts off the rows that a
killed process wrote after its last checkpoint.

A row may be replaced once its checkpoint is saved, because an evaluation comes
after the checkpoint. The new row is one more line, in brackets. A resumed run
keeps it, though the checkpoint does not know it.
"""

import array
from collections.abc import Iterator, Mapping, Sequence
import json
import os
import pathlib
from typing import Any
import weakref
import zlib

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.files import run_directory

_ROWS, _BYTES, _CHECKSUM = 'rows', 'bytes', 'crc32'
# Result of `History.save` before any row.
EMPTY = {_ROWS: 0, _BYTES: 0, _CHECKSUM: 0}
# Start of a line that replaces the row before it.
_REPLACES = b'['


def check(saved: Any) -> None:
  """Raises `ValueError` unless `saved` may be a result of `History.save`."""
  if set(saved) != set(EMPTY) or not all(
      isinstance(each, int) and each >= 0 for each in saved.values()
  ):
    raise ValueError(f'its entry history is {_checks.shown(saved)}')


class History(Sequence):
  """Rows of plain JSON types. Rows since the last `save` are in memory.

  All other rows are on disk, with 8 bytes each in memory: the end of the row's
  last line. If the file is deleted, an open history can still read it.
  """

  def __init__(self, path: os.PathLike):
    """Opens or makes the file. `restore` decides which of its rows count."""
    self._path = pathlib.Path(path)
    is_new = not self._path.exists()
    with run_directory.naming(self._path):
      self._file = regular.open_file(
          self._path, os.O_RDWR | os.O_CREAT, follow_links=False
      )
    weakref.finalize(self, os.close, self._file)
    if is_new:
      run_directory.flush(self._path.parent)
    self._ends = array.array('q')
    self._checksum = 0
    self._unsaved = []

  @property
  def unsaved(self) -> list[dict]:
    """The rows since the last `save`."""
    return list(self._unsaved)

  def __len__(self) -> int:
    return len(self._ends) + len(self._unsaved)

  def __getitem__(self, index):
    places = range(len(self))[index]
    if isinstance(places, range):
      return [self._row(place) for place in places]
    return self._row(places)

  def append(self, row: Mapping[str, Any]) -> None:
    """Adds a row."""
    self._unsaved.append(row)

  def save(self) -> dict[str, int]:
    """Writes the unsaved rows to disk, and returns the argument of `restore`.
    """
    start, lines = self._size, []
    end = start
    for row in self._unsaved:
      lines.append(json.dumps(row).encode() + b'\n')
      end += len(lines[-1])
      self._ends.append(end)
    self._write(b''.join(lines), start)
    self._unsaved = []
    return {
        _ROWS: len(self._ends), _BYTES: end, _CHECKSUM: self._checksum
    }

  def replace_last(self, row: Mapping[str, Any]) -> None:
    """Replaces the last row, on the disk, too.

    Args:
      row: The new row. The old one must be saved, with its checkpoint.
    """
    if self._unsaved or not self._ends:
      raise ValueError('The last row is not saved.')
    line = json.dumps([row]).encode() + b'\n'
    self._write(line, self._size)
    self._ends[-1] += len(line)

  def _write(self, content: bytes, start: int) -> None:
    """Writes bytes to the disk, at the end `start` of the file."""
    with run_directory.naming(self._path):
      written = 0
      while written < len(content):
        written += os.pwrite(self._file, content[written:], start + written)
      os.fsync(self._file)
    self._checksum = zlib.crc32(content, self._checksum)

  def restore(self, saved: Mapping[str, int]) -> None:
    """Keeps the rows of a checkpoint, and drops later ones, in the file too.

    The last row may have been replaced since the checkpoint.

    Args:
      saved: Result of `save`, or `EMPTY`.

    Raises:
      PrivacyRefusedError: If the rows in the file have changed.
    """
    self._ends, self._checksum, self._unsaved = array.array('q'), 0, []
    # Opened a second time: a buffered file would close the kept descriptor.
    with open(self._path, 'rb') as file:
      while self._size < saved[_BYTES]:
        line = file.readline(saved[_BYTES] - self._size)
        if not line.endswith(b'\n'):
          break
        self._take(line)
      found = (len(self._ends), self._size, self._checksum)
      if found != (saved[_ROWS], saved[_BYTES], saved[_CHECKSUM]):
        raise self._refused()
      line = file.readline()
      if self._ends and _is_replacement(line):
        self._take(line)
    os.ftruncate(self._file, self._size)

  def _take(self, line: bytes) -> None:
    """Counts a line of the file."""
    end = self._size + len(line)
    self._checksum = zlib.crc32(line, self._checksum)
    if self._ends and line.startswith(_REPLACES):
      self._ends[-1] = end
    else:
      self._ends.append(end)

  def _refused(self) -> _checks.PrivacyRefusedError:
    return _checks.PrivacyRefusedError(
        f'the metrics {self._path} are not those of the checkpoint',
        why='a run that goes on writes its released metrics anew, and they must'
        ' stay as they were released',
        way_out='restore the file from a copy, or start a new run in another'
        ' directory',
    )

  @property
  def _size(self) -> int:
    return self._ends[-1] if self._ends else 0

  def _row(self, place: int) -> dict:
    if place >= len(self._ends):
      return self._unsaved[place - len(self._ends)]
    start = self._ends[place - 1] if place else 0
    lines = os.pread(self._file, self._ends[place] - start, start)
    try:
      found = regular.parse_json(lines.splitlines()[-1])
      return found[0] if isinstance(found, list) else found
    except (ValueError, IndexError) as error:
      raise self._refused() from error


def _is_replacement(line: bytes) -> bool:
  """Returns whether a line is whole, and replaces the row before it."""
  if not (line.startswith(_REPLACES) and line.endswith(b'\n')):
    return False
  try:
    found = regular.parse_json(line)
  except ValueError:
    return False
  return len(found) == 1 and isinstance(found[0], dict)


class Released(Sequence):
  """The released metrics of a run, like a list of one dict a round."""

  def __init__(self, history: History, *, key: str):
    """Makes a view of the rows so far.

    Args:
      history: History whose rows are dicts with the keys `key` and 'released'.
      key: Key of the round in a row.
    """
    self._history = history
    self._length = len(history)
    self._key = key

  def __len__(self) -> int:
    return self._length

  def __getitem__(self, index):
    places = range(self._length)[index]
    if isinstance(places, range):
      return [self[place] for place in places]
    row = self._history[places]
    return {self._key: row[self._key], **row['released']}

  def __iter__(self) -> Iterator[dict]:
    return map(self.__getitem__, range(self._length))

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Sequence):
      return NotImplemented
    return len(self) == len(other) and all(
        mine == theirs for mine, theirs in zip(self, other)
    )

  __hash__ = None

  def __repr__(self) -> str:
    return repr(list(self))
