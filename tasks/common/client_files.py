# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""SQLite files of client data, in the format that TFF's loaders open.

A stand-in has a mark inside of the file, in a table that TFF does not read. So
it is not taken for the real data, even after it was moved or renamed.
"""

from collections.abc import Iterable, Mapping
import contextlib
import dataclasses
import os
import pathlib
import sqlite3

from tasks.common import digits_data

_MAGIC = b'SQLite format 3\0'
_TABLES = (
    'CREATE TABLE examples (split_name TEXT NOT NULL, client_id TEXT NOT NULL,'
    ' serialized_example_proto BLOB NOT NULL)',
    'CREATE TABLE client_metadata (client_id TEXT NOT NULL, split_name TEXT NOT'
    ' NULL, num_examples INTEGER NOT NULL)',
    'CREATE TABLE stand_in (description TEXT NOT NULL)',
)
_MOST_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Known:
  """The requirements for a data file.

  Attributes:
    name: Name of the data.
    num_clients: Split -> number of clients, `None` for any number above 0.
    how_to_get: Advice on how to get the file, without a full stop.
  """

  name: str
  num_clients: Mapping[str, int | None]
  how_to_get: str


@dataclasses.dataclass(frozen=True)
class Contents:
  """The contents of a data file.

  Attributes:
    description: Description of the data, for reports.
    num_examples: Split -> client -> number of its examples.
  """

  description: str
  num_examples: Mapping[str, Mapping[str, int]]


def look(path: pathlib.Path, known: Known, *, is_stand_in: bool) -> Contents:
  """Returns the contents of a data file, after a check.

  Args:
    path: Path of the file.
    known: Requirements for the file.
    is_stand_in: Whether the file must be a stand-in. If not, it must not be
      one.

  Raises:
    DataFileError: If the file is missing or cut off, or does not meet the
      requirements.
  """
  path = pathlib.Path(path)

  def refuse(problem: str, found: str):
    return digits_data.DataFileError(
        f'{path} {problem}', why=found, way_out=known.how_to_get
    )

  if not path.is_file():
    names = []
    if path.parent.is_dir():
      names = sorted(each.name for each in path.parent.iterdir())[:_MOST_SHOWN]
    raise refuse(
        'is missing', f'found in its folder: {", ".join(names) or "nothing"}'
    )
  _check_length(path, refuse)
  try:
    with contextlib.closing(
        sqlite3.connect(f'{path.absolute().as_uri()}?mode=ro', uri=True)
    ) as file:
      return _read(file, known, refuse, is_stand_in)
  except sqlite3.Error as error:
    raise refuse(
        f'is not a file of {known.name}', f'SQLite: {error}'
    ) from error


def write(
    path: pathlib.Path,
    examples: Iterable[tuple[str, str, bytes]],
    *,
    description: str,
) -> None:
  """Writes a stand-in. The file appears only when it is complete.

  Args:
    path: Path of the file. Its folder is created.
    examples: Triples (split, client, serialized `tf.train.Example`). Examples
      of one client keep their order.
    description: Description of the data.
  """
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  part = path.with_name(path.name + '.part')
  part.unlink(missing_ok=True)
  with contextlib.closing(sqlite3.connect(part)) as file:
    for table in _TABLES:
      file.execute(table)
    file.execute('INSERT INTO stand_in VALUES (?)', (description,))
    file.executemany('INSERT INTO examples VALUES (?, ?, ?)', examples)
    file.execute(
        'INSERT INTO client_metadata SELECT client_id, split_name, COUNT(*)'
        ' FROM examples GROUP BY client_id, split_name'
    )
    file.execute('CREATE INDEX by_client ON examples (client_id)')
    file.commit()
  os.replace(part, path)


def _check_length(path: pathlib.Path, refuse) -> None:
  """Raises unless the file has all pages that its header counts.

  SQLite itself notices a missing page only when it reads it, perhaps in a late
  round.
  """
  with open(path, 'rb') as file:
    header = file.read(100)
  if not header.startswith(_MAGIC):
    raise refuse('is not an SQLite file', f'it begins with {header[:16]!r}')
  # Big-endian; 1 stands for 2^16.
  page = int.from_bytes(header[16:18], 'big')
  page = 2**16 if page == 1 else page
  expected = page * int.from_bytes(header[28:32], 'big')
  found = path.stat().st_size
  if found < expected:
    raise refuse(
        'is cut off',
        f'it has {found:,} of its {expected:,} bytes',
    )


def _read(file, known: Known, refuse, is_stand_in: bool) -> Contents:
  tables = {
      name for name, in file.execute('SELECT name FROM sqlite_master')
  }
  missing = {'examples', 'client_metadata'} - tables
  if missing:
    raise refuse(
        f'has no table {min(missing)}',
        f'found tables: {", ".join(sorted(tables)) or "none"}',
    )
  if is_stand_in != ('stand_in' in tables):
    raise refuse(
        'is no stand-in' if is_stand_in else 'is a stand-in',
        'leave out --stand-in to train with it, or name another folder'
        if is_stand_in
        else 'the results say so only with --stand-in',
    )
  found = {}
  for split, client, count in file.execute(
      'SELECT split_name, client_id, num_examples FROM client_metadata'
  ):
    found.setdefault(split, {})[client] = count
  for split, expected in known.num_clients.items():
    number = len(found.get(split, ()))
    if not number or expected not in (None, number):
      raise refuse(
          f'does not have all of {known.name}',
          f'found {number:,} clients in the split {split}'
          + (f', of {expected:,}' if expected else ''),
      )
  description = f'{known.name}, {len(next(iter(found.values()))):,} clients'
  if is_stand_in:
    description, = file.execute('SELECT description FROM stand_in').fetchone()
  return Contents(description, found)
