# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of a run's metrics, in a file that only grows.

A checkpoint says how much of the file belongs to it, so neither a checkpoint
nor a round costs more after many rounds than after a few. What a process that
was killed had written beyond its last checkpoint is cut off.
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
# What a checkpoint of no rounds says.
EMPTY = {_ROWS: 0, _BYTES: 0, _CHECKSUM: 0}


def check(saved: Any) -> None:
  """Raises `ValueError` unless it may be what `History.save` has returned."""
  if set(saved) != set(EMPTY) or not all(
      isinstance(each, int) and each >= 0 for each in saved.values()
  ):
    raise ValueError(f'history {_checks.shown(saved)}')


class History(Sequence):
  """Rows of plain JSON types: in memory since the last `save`, else on disk.

  Of a row on the disk its end is in memory, 8 bytes. The file may lose its
  name: whoever holds the history can still read it.
  """

  def __init__(self, path: os.PathLike):
    """Opens the file, or makes it; `restore` says what of it counts."""
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
    """Returns once all rows are on the disk, with what `restore` takes."""
    start, lines = self._size, []
    end = start
    for row in self._unsaved:
      lines.append(json.dumps(row).encode() + b'\n')
      end += len(lines[-1])
      self._ends.append(end)
    content = b''.join(lines)
    with run_directory.naming(self._path):
      written = 0
      while written < len(content):
        written += os.pwrite(self._file, content[written:], start + written)
      os.fsync(self._file)
    self._checksum = zlib.crc32(content, self._checksum)
    self._unsaved = []
    return {
        _ROWS: len(self._ends), _BYTES: end, _CHECKSUM: self._checksum
    }

  def restore(self, saved: Mapping[str, int]) -> None:
    """Goes on after the rows of a checkpoint; further ones are cut off.

    Args:
      saved: What `save` returned, or `EMPTY`.

    Raises:
      PrivacyRefusedError: If they are not in the file as they were.
    """
    self._ends, self._checksum = array.array('q'), 0
    # A descriptor of its own: a buffered file would close the one that is kept.
    with open(self._path, 'rb') as file:
      while self._size < saved[_BYTES]:
        line = file.readline(saved[_BYTES] - self._size)
        if not line.endswith(b'\n'):
          break
        self._checksum = zlib.crc32(line, self._checksum)
        self._ends.append(self._size + len(line))
    found = (len(self._ends), self._size, self._checksum)
    if found != (saved[_ROWS], saved[_BYTES], saved[_CHECKSUM]):
      raise self._refused()
    os.ftruncate(self._file, self._size)

  def _refused(self) -> _checks.PrivacyRefusedError:
    return _checks.PrivacyRefusedError(
        f'the metrics {self._path} are not those of the checkpoint',
        why='a run that goes on writes anew what it has released, and what'
        ' has once been released has to stay',
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
    line = os.pread(self._file, self._ends[place] - start, start)
    try:
      return regular.parse_json(line)
    except ValueError as error:
      raise self._refused() from error


class Released(Sequence):
  """What a run has released, one dict a round, as a list would have it."""

  def __init__(self, history: History, *, key: str):
    """Takes the rows so far.

    Args:
      history: Of rows with `key` and 'released'.
      key: Of the round.
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
