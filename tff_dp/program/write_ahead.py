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
"""The write-ahead record: which rounds have begun, on the disk before they do.

A round counts as spent from the moment its line is stored, whatever happens to
the process afterwards. Repeating a begun round after a crash is free, since the
checkpoint gives it the same noise key; but only for the same cohort: the same
noise on other data would reveal their difference. So each line holds a hash of
the cohort, and another cohort is refused.
"""

from collections.abc import Mapping, Sequence
import hashlib
import json
import os
import pathlib

from tff_dp import _checks


class WriteAheadRecord:
  """An append-only file with one JSON line per round that has begun.

  Attributes:
    rounds_begun: Number of rounds whose line is stored.
  """

  def __init__(self, path: os.PathLike, *, run_id: str):
    """Opens the record of a run, or makes it.

    Args:
      path: The file.
      run_id: Mixed into the hashes.

    Raises:
      PrivacyRefusedError: If the file is damaged.
    """
    self._path = pathlib.Path(path)
    self._run_id = run_id
    self._cohorts = []
    content = self._path.read_bytes() if self._path.exists() else b''
    # A line that has no end was being written when the process was killed: its
    # round had not begun.
    complete = content[: content.rfind(b'\n') + 1]
    for number, line in enumerate(complete.splitlines(), start=1):
      try:
        entry = json.loads(line)
        is_sound = entry['round'] == number
      except (ValueError, KeyError, TypeError):
        is_sound = False
      if not is_sound:
        raise _checks.PrivacyRefusedError(
            f'line {number} of the write-ahead record {self._path} is damaged',
            why='it counts the rounds that have spent privacy',
            way_out='restore the file from a copy, or start a new run',
        )
      self._cohorts.append(entry['cohort'])
    self._file = open(self._path, 'ab')
    if len(complete) < len(content):
      self._file.truncate(len(complete))

  @property
  def rounds_begun(self) -> int:
    return len(self._cohorts)

  def begin(
      self,
      round_index: int,
      cohort: Sequence[str | bytes],
      *,
      spent: Mapping[str, object],
  ) -> None:
    """Returns once the round is on the disk, or was there already.

    Args:
      round_index: 1-based; at most one more than `rounds_begun`.
      cohort: Ids of the selected clients, in the order in which they train.
      spent: What `BudgetLedger.record` returned for the round.

    Raises:
      PrivacyRefusedError: If the round had begun with another cohort.
    """
    _checks.integer_between(
        1, self.rounds_begun + 1, round_index=round_index
    )
    digest = self._digest(round_index, cohort)
    if round_index <= self.rounds_begun:
      if digest != self._cohorts[round_index - 1]:
        raise _checks.PrivacyRefusedError(
            f'round {round_index} had begun with another cohort',
            why='its noise is fixed, and the same noise on the data of other'
            ' clients reveals the difference between them',
            way_out='resume with the clients and the schedule the run began'
            ' with, or start a new run',
        )
      return
    line = json.dumps({**spent, 'round': int(round_index), 'cohort': digest})
    self._file.write(line.encode() + b'\n')
    self._file.flush()
    os.fsync(self._file.fileno())
    self._cohorts.append(digest)

  def close(self) -> None:
    self._file.close()

  def _digest(self, round_index: int, cohort: Sequence[str | bytes]) -> str:
    ids = [i.decode('latin-1') if isinstance(i, bytes) else i for i in cohort]
    content = json.dumps([self._run_id, int(round_index), ids])
    return hashlib.sha256(content.encode()).hexdigest()
