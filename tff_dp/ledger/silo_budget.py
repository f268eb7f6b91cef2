# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budget of a run whose silos each have one of their own."""

from collections.abc import Callable

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.ledger import protocol_budget


class SiloRoundBudget(protocol_budget.ProtocolBudget):
  """Refuses the round beyond the budget of any silo, or of the whole run."""

  unit = 'record'

  def __init__(
      self,
      epsilon_after: Callable[[int], float],
      *,
      exceeded: Callable[[int], str | None],
      num_rounds: int,
      delta: float,
      epsilon: float | None,
      noise: dict[str, object],
  ):
    """Makes the empty budget of a run.

    Args:
      epsilon_after: Of the worst silo, at `delta`; see the base class.
      exceeded: Maps rounds in 1..T to a sentence about a silo whose own budget
        a run that stops there exceeds, `None` if there is none.
      num_rounds: T.
      delta: In (0, 1).
      epsilon: Budget of every silo at `delta`, beside their own; may be `None`.
      noise: What a record says of the noise, plain types.
    """
    super().__init__(
        epsilon_after,
        num_rounds=num_rounds,
        delta=delta,
        epsilon=epsilon,
        neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE,
        noise=noise,
    )
    self._exceeded = exceeded

  @property
  def basis(self) -> str:
    """See base class."""
    return 'of the silo that pays most, as the statement says'

  def check(self, round_index: int) -> None:
    """See base class."""
    if 1 <= round_index <= self.num_rounds:
      what = self._exceeded(round_index)
      if what is not None:
        raise _checks.PrivacyRefusedError(
            f'{what}; {round_index - 1} of {self.num_rounds} rounds done',
            why='everything that a silo sends is paid for by its own records',
            way_out='leave this silo out of the later rounds with'
            ' plan.with_availability(...), or plan with more noise',
        )
    super().check(round_index)

  def _between(self, last: int, beyond: int, steps: int) -> int:
    del steps
    # Which of several budgets ends first follows no power of the rounds.
    return (last + beyond) // 2

  def _is_allowed(self, round_index: int) -> bool:
    return self._exceeded(round_index) is None and super()._is_allowed(
        round_index
    )

  def _way_out(self) -> str:
    return 'More noise, fewer rounds or larger batches cost less.'
