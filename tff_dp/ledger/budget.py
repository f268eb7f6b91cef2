# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budget ledger: what was spent, and the round that would be too much.

`round_budget` says how it is used; here epsilon follows from a squared
sensitivity for every round after which a run may stop.
"""

from collections.abc import Mapping, Sequence
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting import calibration
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.ledger import round_budget

_FORMAT = 'tff_dp.budget'
_VERSION = 1
_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT


class BudgetLedger(round_budget.RoundBudget):
  """The budget of a run whose clients are chosen by the server.

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
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
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
    super().__init__(
        delta=delta,
        epsilon=epsilon,
        neighboring_relation=neighboring_relation,
    )
    _checks.non_negative(noise_multiplier=noise_multiplier)
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
    # Few values differ: with one participation, one per level of the tree.
    self._epsilon_of: dict[float, float] = {}

  @property
  def num_rounds(self) -> int:
    """Planned rounds T."""
    return len(self._by_round)

  @property
  def basis(self) -> str:
    """See base class."""
    return 'no amplification'

  @property
  def noise_multiplier(self) -> float:
    """Std of one node's noise on the SUM, over the clip norm."""
    return self._noise_multiplier

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
          sigma=run_events.effective_sigma(
              noise_multiplier=self._noise_multiplier,
              squared_sensitivity=squared_sensitivity,
              neighboring_relation=self._relation,
          ),
          delta=self._delta,
      )
    return self._epsilon_of[squared_sensitivity]

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

  def _noise(self, round_index: int) -> dict[str, object]:
    return {
        'noise_multiplier': self._noise_multiplier,
        'squared_sensitivity': self.squared_sensitivity_after(round_index),
    }

  def _way_out(self) -> str:
    needed = calibration.noise_multiplier(
        epsilon=self._epsilon,
        delta=self._delta,
        squared_sensitivity=self._by_round[-1],
        neighboring_relation=self._relation,
    )
    return (
        f'All {self.num_rounds} fit with'
        f' --noise-multiplier={rounding.rounded_up(needed)}.'
    )
