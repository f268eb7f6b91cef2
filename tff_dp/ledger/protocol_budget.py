# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budget of a run whose epsilon a plan computes, round by round."""

from collections.abc import Callable
import math

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.ledger import round_budget


class ProtocolBudget(round_budget.RoundBudget):
  """Refuses the round beyond the budget of a plan with local noise.

  Args of the constructor beside those of `RoundBudget`:
    epsilon_after: Maps rounds in 1..T to an upper bound on epsilon of a run
      that stops there, at `delta`. Called when needed, and remembered.
    num_rounds: T.
    noise: What a record says of the noise, plain types.
    basis: What every epsilon rests on, as the end of a sentence.
    way_out: How all rounds would fit the budget, as a sentence.
  """

  def __init__(
      self,
      epsilon_after: Callable[[int], float],
      *,
      num_rounds: int,
      delta: float,
      epsilon: float | None = None,
      neighboring_relation: run_events.NeighboringRelation,
      noise: dict[str, object],
      basis: str = 'amplified by the protocol, as the statement says',
      way_out: str = (
          'More noise, fewer rounds, or more clients to hide among'
          ' (more slots, a lower check-in rate) cost less.'
      ),
  ):
    super().__init__(
        delta=delta,
        epsilon=epsilon,
        neighboring_relation=neighboring_relation,
    )
    _checks.integer_at_least(1, num_rounds=num_rounds)
    self._of_round = epsilon_after
    self._num_rounds = num_rounds
    self._noise_facts = dict(noise)
    self._basis = basis
    self._sentence = way_out
    self._known: dict[int, float] = {}

  @property
  def num_rounds(self) -> int:
    """Planned rounds T."""
    return self._num_rounds

  @property
  def basis(self) -> str:
    """See base class."""
    return self._basis

  def epsilon_after(self, round_index: int) -> float:
    """See base class."""
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    if round_index == 0:
      return 0.0
    if round_index not in self._known:
      epsilon = float(self._of_round(round_index))
      # Written so that NaN fails.
      self._known[round_index] = epsilon if epsilon >= 0 else math.inf
    return self._known[round_index]

  def _noise(self, round_index: int) -> dict[str, object]:
    return dict(self._noise_facts)

  def _way_out(self) -> str:
    return self._sentence
