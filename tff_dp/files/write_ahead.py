# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The write-ahead record: it stores rounds and releases before they happen.

A round counts as spent from the moment its line is stored, whatever happens to
the process afterwards. Repeating a begun round after a crash is free, because
the checkpoint gives it the same noise key, and so the same data give the same
values. With other data the noise differs, so the repeated round would be a
second release. So each line holds a hash of the cohort, and another cohort is
refused. Only the hashes of rounds that have not been released are in memory.
The last round may begin with another cohort if its caller asks for that, unless
the work of a client failed: this can depend on the client's data, and then so
would the choice of the next cohort. A round cannot be replaced either if its
clients add the noise: nobody else is trusted there, so a report counts once it
is sent. The line of such a round has the ids of its clients.

If the order of a client's records determines their privacy loss, a line stores
a secret hash of the records before the first round computes with them.

A released round cannot be made again, not even from the same cohort, because
its data may have changed. So before each release a line stores the last round
of that release. A run with an older checkpoint than that cannot resume.
"""

from collections.abc import Mapping, Sequence
import errno
import hashlib
import json
import os
import pathlib
from typing import Any

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.files import run_directory

# Enough for the spent budgets of thousands of clients.
_LONGEST_LINE = regular.MOST_JSON_BYTES
_RELEASED = 'released'
_REPLACES = 'replaces'
_FAILED = 'failed'
_CLIENTS = 'clients'
_DATA = 'data'


def released_through(path: str | os.PathLike) -> int:
  """Returns the last round that a run may have released, 0 if there is none.

  It only reads, so the run may go on meanwhile.

  Args:
    path: File of a `WriteAheadRecord`.

  Raises:
    OSError: If the file is a link or not regular, or cannot be read.
    PrivacyRefusedError: If the file is damaged.
  """
  found = 0
  with open(regular.open_file(path, follow_links=False), 'rb') as file:
    lines = iter(lambda: file.readline(_LONGEST_LINE), b'')
    for number, line in enumerate(lines, start=1):
      if not line.endswith(b'\n') and len(line) < _LONGEST_LINE:
        break  # Nothing is released before its line is complete.
      try:
        found = int(regular.parse_json(line).get(_RELEASED, found))
      except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(path, number) from error
  return found


def _damaged(path, number: int) -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      f'line {number} of the write-ahead record {path} is damaged',
      why='it counts the rounds that have spent privacy',
      way_out='restore the file from a copy, or start a new run',
  )


class WriteAheadRecord:
  """An append-only file: a JSON line per round that begins, and per release.

  Attributes:
    rounds_begun: Number of rounds whose line is stored.
    released_through: The last round whose results may have been released, 0 if
      there is none.
    data_digests: Stored hashes of clients' records, by the client's id. SECRET.
  """

  def __init__(self, path: os.PathLike, *, run_id: str):
    """Opens the record of a run, or makes it.

    Args:
      path: The file.
      run_id: Name of the run, which is mixed into the hashes.

    Raises:
      PrivacyRefusedError: If the file is damaged.
      OSError: If the file is a link or not regular, or cannot be opened.
    """
    self._path = pathlib.Path(path)
    self._process_id = os.getpid()
    self._run_id = run_id
    # Hashes of the cohorts of rounds that may still be repeated.
    self._cohorts: dict[int, str] = {}
    self.rounds_begun = self.released_through = 0
    self._failed: int | None = None
    self._sent: int | None = None
    # Ids of the clients of the round that failed or may have sent reports.
    self._kept_cohort: list[str] = []
    self.data_digests: dict[str, str] = {}
    is_new = not self._path.exists()
    self._file = open(
        regular.open_file(
            self._path,
            os.O_WRONLY | os.O_APPEND | os.O_CREAT,
            follow_links=False,
        ),
        'ab',
        buffering=0,
    )
    if is_new:
      run_directory.flush(self._path.parent)
    complete = 0
    with open(regular.open_file(self._path), 'rb') as file:
      lines = iter(lambda: file.readline(_LONGEST_LINE), b'')
      for number, line in enumerate(lines, start=1):
        # The process was killed while it wrote a line without an end, so the
        # round of that line had not begun.
        if not line.endswith(b'\n') and len(line) < _LONGEST_LINE:
          self._file.truncate(complete)
          break
        if not self._is_taken(line):
          self._file.close()
          raise _damaged(self._path, number)
        complete += len(line)

  def begin(
      self,
      round_index: int,
      cohort: Sequence[str | bytes],
      *,
      spent: Mapping[str, object],
      replaces: bool = False,
      sends: bool = False,
  ) -> None:
    """Stores a round on the disk, unless it is stored already.

    Args:
      round_index: 1-based index of the round, at most `rounds_begun` + 1.
      cohort: Ids of the selected clients, in the order in which they train.
      spent: Result of `BudgetLedger.record` for the round. Ignored if the round
        is stored already.
      replaces: Whether the last begun round may begin again with another
        cohort. Use it only if you show nothing of a round before `release`:
        then the earlier cohort has left no trace. A round that failed cannot
        be replaced.
      sends: Whether the reports of these clients count once they are sent. The
        ids are then stored for `required_cohort`, and the round cannot be
        replaced.

    Raises:
      PrivacyRefusedError: If the round may have been released. Also if it had
        begun with another cohort, unless `replaces` allows that. Also if this
        process did not open the record.
      ArgumentError: If `round_index` is outside of its range.
      OSError: If the line cannot be stored, as on a full disk.
    """
    self.check_owner()
    _checks.integer_between(
        1, self.rounds_begun + 1, round_index=round_index
    )
    if round_index <= self.released_through:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} may have been released',
          why='on other data the round would be a second release, and the'
          ' ledger counts one',
          way_out=f'go on with round {self.released_through + 1}',
      )
    digest = self._digest(round_index, cohort)
    if round_index <= self.rounds_begun:
      if digest == self._cohorts[round_index]:
        return
      if round_index == self._failed:
        raise _checks.PrivacyRefusedError(
            f"a client's work failed in round {round_index}, and the cohort is"
            ' now another one',
            why='the work may have failed because of the data, and then the'
            ' choice of the cohort tells something about them',
            way_out='correct the data or their preprocessing, and run the round'
            ' with the same clients, loop.next(loop.required_cohort); or start'
            ' a new run',
        )
      if round_index == self._sent:
        raise _checks.PrivacyRefusedError(
            f'the clients of round {round_index} may have sent their reports,'
            ' and the cohort is now another one',
            why='they add the noise, and nobody else is trusted, so a report'
            ' counts once it is sent',
            way_out='run the round again with the same clients, who send the'
            ' same reports, loop.next(loop.required_cohort); or start a new'
            ' run',
        )
      if not (replaces and round_index == self.rounds_begun):
        raise _checks.PrivacyRefusedError(
            f'round {round_index} had begun with another cohort',
            why='on the data of other clients the round would be a second'
            ' release, and the ledger counts one',
            way_out='resume with the clients and the schedule the run began'
            ' with, or start a new run',
        )
      spent = {_REPLACES: True}
    entry = {**spent, 'round': int(round_index), 'cohort': digest}
    if sends:
      entry[_CLIENTS] = _texts(cohort)
    self._append(entry)
    self._take(entry)

  @property
  def required_cohort(self) -> list[str] | None:
    """Ids of the last begun round if no other cohort may repeat it, else `None`.

    That is so if a client's work failed in it, or if `begin` was told that its
    reports count once they are sent. It may have been repeated since.
    """
    if self.rounds_begun not in (self._failed, self._sent):
      return None
    return list(self._kept_cohort)

  def fail(self, round_index: int, cohort: Sequence[str | bytes]) -> None:
    """Stores on the disk that a client's work failed in a round.

    Args:
      round_index: The round. Only the last begun round could be replaced, so
        others change nothing.
      cohort: Ids of its clients, in order.
    """
    is_last = self.released_through < round_index == self.rounds_begun
    if is_last and round_index != self._failed:
      entry = {_FAILED: int(round_index), _CLIENTS: _texts(cohort)}
      self._append(entry)
      self._take_failure(entry)

  def keep_data(self, digests: Mapping[str, str]) -> None:
    """Stores on the disk which records clients have, before they are used.

    Args:
      digests: Hashes of the records, by the client's id. Those that are stored
        already change nothing.

    Raises:
      PrivacyRefusedError: If another hash is stored for one of the clients.
      OSError: If the line cannot be stored, as on a full disk.
    """
    stored = self.data_digests
    for name, digest in digests.items():
      if stored.get(name, digest) != digest:
        raise _checks.PrivacyRefusedError(
            f'the data of {name!r} are other than before',
            why='a record at another position could be used twice, and the'
            ' accounting counts one use',
            way_out='bring the same records in the same order, or start a new'
            ' run',
        )
    added = {name: digests[name] for name in digests if name not in stored}
    if added:
      self._append({_DATA: added})
      stored.update(added)

  def release(self, round_index: int) -> None:
    """Stores on the disk that rounds are about to be released.

    Args:
      round_index: The last round to be released. Its checkpoint is on the disk.
        0, or a round that is already stored, changes nothing.
    """
    _checks.integer_between(0, self.rounds_begun, round_index=round_index)
    if round_index > self.released_through:
      self._append({_RELEASED: int(round_index)})
      self._take_release(round_index)

  def check_owner(self) -> None:
    """Raises `PrivacyRefusedError` if the run may be in other hands.

    That is so after `close`, and in a process that was forked since: it has
    inherited the lock of the directory.
    """
    if self._file.closed:
      raise _checks.PrivacyRefusedError(
          f'{self._path} was closed',
          why='another process may run further rounds of the run',
          way_out='open the run again with the same arguments: it resumes; its'
          ' last statement is in release/',
      )
    if os.getpid() != self._process_id:
      raise _checks.PrivacyRefusedError(
          f'process {os.getpid()} did not open {self._path}: it was forked from'
          f' process {self._process_id}, which did',
          why='two processes would each run the same round, and the ledger'
          ' counts one',
          way_out='run all rounds in the process that opened the run, or open'
          ' the run after the fork, in one process',
      )

  def close(self) -> None:
    self._file.close()

  def _is_taken(self, line: bytes) -> bool:
    """Applies a stored line. Returns whether it may follow the lines before."""
    try:
      entry = regular.parse_json(line)
    except ValueError:
      return False
    if not isinstance(entry, dict):
      return False
    if _RELEASED in entry:
      released = entry[_RELEASED]
      # The type is compared because a bool is an int.
      is_next = (
          type(released) is int  # pylint: disable=unidiomatic-typecheck
          and self.released_through < released <= self.rounds_begun
      )
      if is_next:
        self._take_release(released)
      return is_next
    if _FAILED in entry:
      failed = entry[_FAILED]
      is_last = (
          type(failed) is int  # pylint: disable=unidiomatic-typecheck
          and self.released_through < failed == self.rounds_begun
          and isinstance(entry.get(_CLIENTS), list)
      )
      if is_last:
        self._take_failure(entry)
      return is_last
    if _DATA in entry:
      added = entry[_DATA]
      is_new = isinstance(added, dict) and all(
          isinstance(digest, str) and name not in self.data_digests
          for name, digest in added.items()
      )
      if is_new:
        self.data_digests.update(added)
      return is_new
    round_index: Any = entry.get('round')
    digest: Any = entry.get('cohort')
    expected = self.rounds_begun + 1
    if (
        _REPLACES in entry
        and self.released_through < self.rounds_begun != self._failed
        and self.rounds_begun != self._sent
    ):
      expected = self.rounds_begun
    is_next = (
        type(round_index) is int  # pylint: disable=unidiomatic-typecheck
        and round_index == expected
        and (expected > self.rounds_begun) == (_REPLACES not in entry)
        and isinstance(digest, str)
        and isinstance(entry.get(_CLIENTS, []), list)
    )
    if is_next:
      self._take(entry)
    return is_next

  def _take(self, entry: Mapping[str, Any]) -> None:
    self.rounds_begun = entry['round']
    self._cohorts[self.rounds_begun] = entry['cohort']
    if _CLIENTS in entry:
      self._sent, self._kept_cohort = self.rounds_begun, entry[_CLIENTS]

  def _take_failure(self, entry: Mapping[str, Any]) -> None:
    self._failed, self._kept_cohort = entry[_FAILED], entry[_CLIENTS]

  def _take_release(self, round_index: int) -> None:
    for released in range(self.released_through + 1, round_index + 1):
      del self._cohorts[released]
    self.released_through = int(round_index)

  def _append(self, entry: Mapping[str, object]) -> None:
    self.check_owner()
    line = json.dumps(entry).encode() + b'\n'
    with run_directory.naming(self._path):
      # A partly written line, as on a full disk, does not count.
      if self._file.write(line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
      os.fsync(self._file.fileno())

  def _digest(self, round_index: int, cohort: Sequence[str | bytes]) -> str:
    content = json.dumps([self._run_id, int(round_index), _texts(cohort)])
    return hashlib.sha256(content.encode()).hexdigest()


def _texts(cohort: Sequence[str | bytes]) -> list[str]:
  return [i.decode('latin-1') if isinstance(i, bytes) else i for i in cohort]
