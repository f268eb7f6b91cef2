# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keeps the reports of a round the same, where clients add the noise.

The clients of a round that was interrupted may have sent their reports. If the
round is repeated, they must send the same ones, because the ledger counts one
report. So the computation must be the same, and nothing in it or in the data
may draw anew.
"""

from collections.abc import Sequence
import pathlib
from typing import Any

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.files import run_directory
from tff_dp.program import computation_digests
from tff_dp.program import random_operations

# Entries of the file.
_DIGEST, _DRAWN = 'digest', 'drawn'


class SentReports:
  """Refuses rounds in which clients would send other reports than before.

  Attributes:
    drawn: Names of operations, in the computation or in clients' data, that may
      differ in a repeated round. With any, every round must be saved.
  """

  def __init__(
      self,
      path: pathlib.Path,
      computation: tff.Computation,
      *,
      rounds_done: int,
      rounds_begun: int,
  ):
    """Reads the file of a run, or makes it.

    Args:
      path: The file, in `secret/`.
      computation: Computation of a round.
      rounds_done: Number of rounds in the latest checkpoint.
      rounds_begun: Number of rounds that have begun.

    Raises:
      PrivacyRefusedError: If a round has begun that is not saved, perhaps with
        another computation.
    """
    self._path = path
    self._digest = computation_digests.digest(computation)
    self._last_sent = rounds_begun
    self.drawn = random_operations.names(computation)
    digest, drawn = _read(path)
    if rounds_begun > rounds_done:
      if digest != self._digest:
        raise self._other_computation(digest)
      self._note(drawn)
    if (digest, drawn) != (self._digest, self.drawn):
      self._write()

  def check_round(self, round_index: int) -> None:
    """Raises `PrivacyRefusedError` if clients would now send other reports."""
    if not self.drawn or round_index > self._last_sent:
      return
    raise _checks.PrivacyRefusedError(
        f'round {round_index} has begun and is not saved, and its clients draw'
        f' without a key: {", ".join(self.drawn)}',
        why='they may have sent their reports, and would now send other ones'
        ' for the same round, but the ledger counts one',
        way_out='take the model of the rounds that are saved, with'
        f' total_rounds={round_index - 1}; or a new run in another directory,'
        ' whose epsilon adds to that of this one, without random operations'
        ' such as dropout and with data that were shuffled once, before they'
        ' were stored',
    )

  def send(self, round_index: int, data: Sequence[Any]) -> None:
    """Notes that clients may send their reports from now on.

    Args:
      round_index: The round.
      data: Data of its clients.

    Raises:
      PrivacyRefusedError: If they may have sent other reports before.
      OSError: If the file cannot be written.
    """
    # The datasets of a population are made alike, so most rounds look at one.
    looked_at = data if round_index <= self._last_sent else data[:1]
    if self._note(random_operations.names_in_data(looked_at)):
      self._write()
    self.check_round(round_index)
    self._last_sent = round_index

  def _note(self, drawn) -> bool:
    """Adds names to `drawn`. Returns whether there are new ones."""
    before, self.drawn = self.drawn, sorted({*self.drawn, *drawn})
    return before != self.drawn

  def _write(self) -> None:
    run_directory.write_json(
        self._path, {_DIGEST: self._digest, _DRAWN: self.drawn}
    )

  def _other_computation(self, digest: str | None) -> Exception:
    known = f'another computation (digest {digest})'
    if digest is None:
      known = (
          f'a computation that is not known, because {self._path} is missing or'
          ' damaged'
      )
    return _checks.PrivacyRefusedError(
        f'round {self._last_sent} has begun and is not saved, with {known};'
        f' process.next now has the digest {self._digest}',
        why='its clients may have sent their reports, and would now send other'
        ' ones for the same round, but the ledger counts one',
        way_out='build the process as it was, by the same code with the same'
        f' versions, run round {self._last_sent} to its end, and change the'
        ' process then; or start a new run in another directory, whose epsilon'
        ' adds to that of this one',
    )


def _read(path: pathlib.Path) -> tuple[str | None, list[str]]:
  """Returns digest and names, `None` and no names if the file is damaged."""
  if not path.exists():
    return None, []
  try:
    content = regular.read_json(path)
    return str(content[_DIGEST]), [str(name) for name in content[_DRAWN]]
  except (ValueError, KeyError, TypeError):
    return None, []
