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
"""The budget ledger: what was spent, and the round that would be too much.

Before the clients of round t are selected, `check(t)` compares the epsilon of a
run that stops after round t with the budget. There is no tolerance. The answer
depends on public facts only, so stopping by it reveals nothing about the data.

`record(t)` marks the round as spent. The caller stores the returned record
durably *before* the round's result is released: a crash in between then counts
as spent, which errs on the private side. Doing a recorded round again is free
as long as it uses the same clients and the same noise keys, because the same
value is released; anything else would be a new round.
"""

from collections.abc import Mapping, Sequence
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting import calibration
from tff_dp.accounting import events
from tff_dp.accounting import gaussian
from tff_dp.accounting import printing

_FORMAT = 'tff_dp.budget'
_VERSION = 1
_ZERO_OUT = events.NeighboringRelation.ZERO_OUT


class BudgetLedger:
  """Counts recorded rounds, and refuses the one beyond the budget.

  Every epsilon is an upper bound for one client's whole participation, under
  `neighboring_relation`, by the exact Gaussian conversion, without
  amplification. With correlated noise the run counts as stopped after t.
  """

  def __init__(
      self,
      *,
      squared_sensitivity_by_round: Sequence[float] | np.ndarray,
      noise_multiplier: float,
      delta: float,
      epsilon: float | None = None,
      neighboring_relation: events.NeighboringRelation = _ZERO_OUT,
  ):
    """Makes the empty ledger of a run.

    Args:
      squared_sensitivity_by_round: S2 of a run that stops after 1..T rounds, in
        squared clip norms for zero-out, shape [T], never decreasing.
      noise_multiplier: Std of one node's noise on the SUM, over the clip norm.
      delta: In the open interval (0, 1).
      epsilon: The budget, `None` for no limit.
      neighboring_relation: The relation under which the budget holds.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    _checks.in_open(0.0, 1.0, delta=delta)
    if epsilon is not None:
      _checks.positive(epsilon=epsilon)
    by_round = np.asarray(squared_sensitivity_by_round, np.float64)
    is_valid = by_round.ndim == 1 and by_round.size > 0
    # Written so that NaN fails.
    if (
        not is_valid
        or not np.all((by_round > 0) & (by_round < math.inf))
        or not np.all(np.diff(by_round) >= 0)
    ):
      raise _checks.ArgumentError(
          'squared_sensitivity_by_round',
          squared_sensitivity_by_round,
          'at least one positive number, none below its predecessor',
      )
    self._by_round = tuple(by_round.tolist())
    self._noise_multiplier = float(noise_multiplier)
    self._delta = float(delta)
    self._epsilon = None if epsilon is None else float(epsilon)
    self._relation = events.NeighboringRelation(neighboring_relation)
    self._rounds_recorded = 0
    # Few values differ: with one participation, one per level of the tree.
    self._epsilon_of: dict[float, float] = {}

  @property
  def num_rounds(self) -> int:
    """Planned rounds T."""
    return len(self._by_round)

  @property
  def epsilon(self) -> float | None:
    """The budget, `None` for no limit."""
    return self._epsilon

  @property
  def delta(self) -> float:
    """The delta of every epsilon here."""
    return self._delta

  @property
  def noise_multiplier(self) -> float:
    """Std of one node's noise on the SUM, over the clip norm."""
    return self._noise_multiplier

  @property
  def neighboring_relation(self) -> events.NeighboringRelation:
    """The relation of every epsilon here."""
    return self._relation

  @property
  def rounds_recorded(self) -> int:
    """How many rounds count as spent."""
    return self._rounds_recorded

  def squared_sensitivity_after(self, round_index: int) -> float:
    """Returns S2 for zero-out if the run stops after a round, 0 for round 0."""
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    return self._by_round[round_index - 1] if round_index else 0.0

  def epsilon_after(self, round_index: int) -> float:
    """Returns what a run that stops after a round has spent.

    Upper bound; 0 for round 0, infinity without noise.

    Args:
      round_index: 1-based, or 0 for a run that never began.
    """
    squared_sensitivity = self.squared_sensitivity_after(round_index)
    if squared_sensitivity == 0:
      return 0.0
    if squared_sensitivity not in self._epsilon_of:
      self._epsilon_of[squared_sensitivity] = gaussian.exact_epsilon(
          sigma=events.effective_sigma(
              noise_multiplier=self._noise_multiplier,
              squared_sensitivity=squared_sensitivity,
              neighboring_relation=self._relation,
          ),
          delta=self._delta,
      )
    return self._epsilon_of[squared_sensitivity]

  def rounds_left(self, round_index: int) -> int:
    """Returns how many rounds after `round_index` plan and budget allow."""
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    # Invariant: `last` is allowed (or is round_index), `beyond` is not.
    last, beyond = round_index, self.num_rounds + 1
    while beyond - last > 1:
      middle = (last + beyond) // 2
      if self._is_allowed(middle):
        last = middle
      else:
        beyond = middle
    return last - round_index

  def check(self, round_index: int) -> None:
    """Raises `PrivacyRefusedError` if the round would break plan or budget."""
    _checks.integer_at_least(1, round_index=round_index)
    if round_index > self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} is beyond the plan of {self.num_rounds} rounds',
          why='the noise was chosen for the planned number of rounds',
          way_out='plan the run with more rounds from the start',
      )
    if self._is_allowed(round_index):
      return
    spent = self.epsilon_after(round_index)
    raise _checks.PrivacyRefusedError(
        f'round {round_index} would spend epsilon'
        f' {printing.rounded_up(spent)} > {self._epsilon} (delta'
        f' {self._delta:g}); {round_index - 1} of {self.num_rounds} rounds'
        f' done. {self._way_out()}',
        why='the epsilon of all released models together must stay within the'
        f' budget ({self._relation.value} adjacency, no amplification)',
        way_out=self._way_out(),
    )

  def record(self, round_index: int) -> dict[str, object]:
    """Counts a round as spent and returns what to store before its release.

    Args:
      round_index: The round after the last recorded one; or that one again,
        with the same clients and noise keys, after a crash.

    Returns:
      The round and what the run has spent if it stops there, as plain types.

    Raises:
      PrivacyRefusedError: If the round breaks the budget or the order.
    """
    self.check(round_index)
    if round_index not in (self._rounds_recorded, self._rounds_recorded + 1):
      raise _checks.PrivacyRefusedError(
          f'round {round_index} cannot follow the {self._rounds_recorded}'
          ' recorded rounds',
          why='rounds are spent in order, and going back behind a release'
          ' would spend again',
          way_out=f'go on with round {self._rounds_recorded + 1}',
      )
    self._rounds_recorded = int(round_index)
    return {
        'round': self._rounds_recorded,
        'epsilon': printing.to_json_number(self.epsilon_after(round_index)),
        'delta': self._delta,
        'neighboring_relation': self._relation.value,
        'unit': 'client',
        'noise_multiplier': self._noise_multiplier,
        'squared_sensitivity': self.squared_sensitivity_after(round_index),
    }

  def to_json(self) -> dict[str, object]:
    """Returns the ledger as a dict of plain types."""
    return {'format': _FORMAT, 'version': _VERSION, **self._facts()} | {
        'rounds_recorded': self._rounds_recorded
    }

  @classmethod
  def from_json(cls, content: Mapping[str, object]) -> 'BudgetLedger':
    """Returns the ledger that `to_json` described."""
    fields = dict(content)
    is_known = (
        fields.pop('format', None) == _FORMAT
        and fields.pop('version', None) == _VERSION
    )
    if not is_known:
      raise _checks.PrivacyRefusedError(
          'the budget ledger is of an unknown format or version',
          why='what was spent so far cannot be read',
          way_out='resume with the version of tff_dp that wrote it',
      )
    rounds_recorded = fields.pop('rounds_recorded')
    ledger = cls(**fields)
    _checks.integer_between(
        0, ledger.num_rounds, rounds_recorded=rounds_recorded
    )
    ledger._rounds_recorded = rounds_recorded
    return ledger

  def restored(self, content: Mapping[str, object]) -> 'BudgetLedger':
    """Returns the saved ledger, which must be of a run with the same facts."""
    saved = self.from_json(content)
    for name, value in self._facts().items():
      if saved._facts()[name] != value:
        raise _checks.PrivacyRefusedError(
            f'the budget ledger was saved with another {name}',
            why='noise, rounds and budget of a run are fixed before it begins',
            way_out='resume with the plan of the checkpoint, or start a new'
            ' run',
        )
    return saved

  def _facts(self) -> dict[str, object]:
    return {
        'squared_sensitivity_by_round': list(self._by_round),
        'noise_multiplier': self._noise_multiplier,
        'delta': self._delta,
        'epsilon': self._epsilon,
        'neighboring_relation': self._relation.value,
    }

  def _is_allowed(self, round_index: int) -> bool:
    if self._epsilon is None:
      return True
    return self.epsilon_after(round_index) <= self._epsilon

  def _way_out(self) -> str:
    needed = calibration.noise_multiplier(
        epsilon=self._epsilon,
        delta=self._delta,
        squared_sensitivity=self._by_round[-1],
        neighboring_relation=self._relation,
    )
    return (
        f'All {self.num_rounds} fit with'
        f' --noise-multiplier={printing.rounded_up(needed)}.'
    )
