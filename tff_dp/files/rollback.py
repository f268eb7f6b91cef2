# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Detects that `secret/` of a run is older than its `release/`.

A run counts its rounds by files in `secret/`. If somebody puts back an older
copy of that folder alone, its files agree with each other, and released rounds
would be made again. But the documents under `release/` state how many rounds
had begun when they were written, and each is written after the write-ahead
record.
"""

from collections.abc import Iterator
import contextlib
import pathlib
import re

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.files import run_directory
from tff_dp.files import write_ahead

# Longest part of a line of `metrics.csv` that is read. Its first column is the
# round.
_LONGEST_LINE = 1 << 20
_ROUND = re.compile(rb'\d{1,9}')


def check(
    directory: run_directory.RunDirectory, record: write_ahead.WriteAheadRecord
) -> None:
  """Raises if documents of the run state more rounds than its record has.

  Rounds that began after the last document was written cannot be detected, but
  nothing of them was released.

  Args:
    directory: Directory of the run.
    record: Write-ahead record of the run.

  Raises:
    PrivacyRefusedError: If a document states more rounds or is damaged, or if a
      run that has begun has no such document.
    OSError: If a document is not a regular file, or cannot be read.
  """
  stated, begun = _rounds_stated(directory.release), record.rounds_begun
  if stated is None and begun:
    raise _checks.PrivacyRefusedError(
        f'{directory.release} has no privacy statement, but {begun} rounds of'
        ' the run have begun',
        why='the statement tells whether secret/ is an older copy',
        way_out='put back release/ as the run has written it, or start a new run'
        ' in another directory, whose epsilon adds to the epsilon of this run',
    )
  stated = max(stated or 0, rounds_released(directory.release))
  if stated > begun:
    raise _checks.PrivacyRefusedError(
        f'{directory.release} states {stated} rounds, but the write-ahead'
        f' record in secret/ has {begun}',
        why='secret/ is an older copy, and a released round that is made again'
        ' is a second release, which no ledger counts',
        way_out='restore secret/ as it was when release/ was written, or start'
        ' a new run in another directory, whose privacy cost adds to the cost'
        ' of this run',
    )


def rounds_released(release: pathlib.Path) -> int:
  """Returns the last round in the released metrics, 0 if there is none."""
  path = release / 'metrics.csv'
  if not path.exists():
    return 0
  latest = 0
  with open(regular.open_file(path), 'rb') as file:
    for line in iter(lambda: file.readline(_LONGEST_LINE), b''):
      field = line.partition(b',')[0].strip()
      # A line without an end is from a process that was killed.
      if line.endswith(b'\n') and _ROUND.fullmatch(field):
        latest = max(latest, int(field))
  return latest


def _rounds_stated(release: pathlib.Path) -> int | None:
  """Returns the largest number of begun rounds that a document states.

  It is `None` if no document states such a number.

  Raises:
    PrivacyRefusedError: If a document is damaged.
  """
  stated, planned = [], None
  path = release / 'privacy_statement.json'
  if path.exists():
    with _naming(path):
      mechanism = regular.read_json(path)['points']['mechanism']
      stated.append(_count(mechanism['rounds_done']))
      planned = mechanism['rounds_planned']
  path = release / 'events.json'
  if path.exists():
    with _naming(path):
      (event,) = regular.read_json(path)['events']
      # Before round 1, the events cover all planned rounds.
      if event['rounds'] != planned:
        stated.append(_count(event['rounds']))
  return max(stated, default=None)


@contextlib.contextmanager
def _naming(path: pathlib.Path) -> Iterator[None]:
  try:
    yield
  except (AttributeError, LookupError, TypeError, ValueError) as error:
    raise _checks.PrivacyRefusedError(
        f'{path} is damaged ({type(error).__name__}: {error})',
        why='this file shows whether secret/ is an older copy',
        way_out='put it back as the run has written it, or start a new run in'
        ' another directory, whose privacy cost adds to the cost of this run',
    ) from error


def _count(value: object) -> int:
  if not isinstance(value, int) or isinstance(value, bool):
    raise TypeError(f'{_checks.shown(value)} is no number of rounds')
  return value
