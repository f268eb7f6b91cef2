# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budget of a run, round by round: spent epsilon and the next refusal.

Before the clients of round t are selected, `check(t)` compares the epsilon of a
run that stops after round t with the budget. There is no tolerance. The answer
depends on public facts only, so stopping by it reveals nothing about the data.

`record(t)` marks the round as spent. The caller stores the returned record
durably *before* the round's result is released. A crash in between then counts
as spent, which errs on the private side. Repeating a recorded round is free if
it uses the same clients and the same noise keys, because the same value is
released. Anything else would be a new round.
"""

import bisect
import functools
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding

# Number of cached epsilons. A run needs only the latest rounds.
_MOST_KNOWN = 1000


class BudgetLedger:
  """Counts recorded rounds, and refuses rounds beyond the plan or the budget.

  Every epsilon comes from the plan. It is an upper bound on the loss of one
  protected unit, such as a client, over all rounds in which it takes part.

  Attributes:
    plan: Plan whose rounds are charged.
    rounds_recorded: Number of rounds that count as spent.
  """

  def __init__(self, plan: Any, *, delta: float, epsilon: float | None = None):
    """Creates the empty ledger of a run.

    Args:
      plan: A `plans.base.Plan`.
      delta: Target delta, above 0 and at most 0.1.
      epsilon: Largest epsilon that the run may spend at `delta`, `None` for no
        limit.
    """
    _checks.delta(delta=delta)
    if epsilon is not None:
      _checks.positive(epsilon=epsilon)
    self.plan = plan
    self.rounds_recorded = 0
    self._delta = float(delta)
    self._epsilon = None if epsilon is None else float(epsilon)
    self._known: dict[int, float] = {}

  @property
  def num_rounds(self) -> int:
    """Number of planned rounds T."""
    return self.plan.num_rounds

  def epsilon_after(self, round_index: int) -> float:
    """Returns the epsilon spent by a run that stops after a round.

    Upper bound. It is 0 for round 0. It is infinite if the plan has no noise,
    or too little noise for any epsilon at this delta.

    Args:
      round_index: Index of the round, 1-based, or 0 for a run that never began.
    """
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    if round_index == 0:
      return 0.0
    if round_index not in self._known:
      if len(self._known) >= _MOST_KNOWN:
        self._known.clear()
      epsilon = float(self.plan.epsilon_after(round_index, delta=self._delta))
      # Written so that NaN fails.
      self._known[round_index] = epsilon if epsilon >= 0 else math.inf
    return self._known[round_index]

  def rounds_left(self, round_index: int) -> int:
    """Returns the number of rounds after `round_index` within plan and budget.
    """
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    return max(0, self._rounds_allowed - round_index)

  @functools.cached_property
  def _rounds_allowed(self) -> int:
    """Number of rounds that plan and budget allow from the start."""
    # Usually all rounds of the plan fit.
    if self._is_allowed(self.num_rounds):
      return self.num_rounds
    return bisect.bisect_left(
        range(1, self.num_rounds),
        True,
        key=lambda round_index: not self._is_allowed(round_index),
    )

  def check(self, round_index: int) -> None:
    """Raises `PrivacyRefusedError` if the round would break plan or budget."""
    _checks.integer_at_least(1, round_index=round_index)
    if round_index > self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} is beyond the plan of {self.num_rounds} rounds',
          why='the noise was chosen for the planned number of rounds',
          way_out='plan the run with more rounds from the start; or begin a'
          ' new run in another output_dir, whose epsilon adds to the epsilon of'
          ' this run',
      )
    if self._is_allowed(round_index):
      return
    spent = self.epsilon_after(round_index)
    way_out = self.plan.way_out(epsilon=self._epsilon, delta=self._delta)
    raise _checks.PrivacyRefusedError(
        f'round {round_index} would spend epsilon'
        f' {rounding.rounded_up(spent)} > {self._epsilon} (delta'
        f' {rounding.short(self._delta)}); {round_index - 1} of'
        f' {self.num_rounds} rounds done',
        why='the epsilon of all released models together must stay within the'
        f' budget ({self.plan.neighboring_relation.value} adjacency,'
        f' {self.plan.basis})',
        way_out=way_out,
    )

  def record(self, round_index: int) -> dict[str, object]:
    """Counts a round as spent and returns the record to store before release.

    Args:
      round_index: 1-based index of the round after the last recorded one. After
        a crash it may also be the last recorded one, with the same clients and
        noise keys.

    Returns:
      A dict of plain JSON types: the round, the epsilon of a run that stops
      there, its delta, neighbouring relation and unit, and the facts that
      `plan.spent` returns.

    Raises:
      PrivacyRefusedError: If the round breaks plan, budget or order.
    """
    self.check(round_index)
    if round_index not in (self.rounds_recorded, self.rounds_recorded + 1):
      raise _checks.PrivacyRefusedError(
          f'round {round_index} cannot follow the {self.rounds_recorded}'
          ' recorded rounds',
          why='rounds are spent in order, and a second release of an earlier'
          ' round would spend again',
          way_out=f'go on with round {self.rounds_recorded + 1}',
      )
    self.rounds_recorded = int(round_index)
    return {
        'round': self.rounds_recorded,
        'epsilon': rounding.to_json_number(self.epsilon_after(round_index)),
        'delta': self._delta,
        'neighboring_relation': self.plan.neighboring_relation.value,
        'unit': self.plan.unit,
        **self.plan.spent(self.rounds_recorded),
    }

  def resume(self, rounds_recorded: int) -> None:
    """Counts as spent all rounds that an earlier process has recorded.

    Args:
      rounds_recorded: Number of recorded rounds, 0 if there are none.

    Raises:
      ArgumentError: If this ledger has recorded more rounds already.
      PrivacyRefusedError: If the recorded rounds break plan or budget.
    """
    _checks.integer_at_least(
        self.rounds_recorded, rounds_recorded=rounds_recorded
    )
    if rounds_recorded:
      self.check(rounds_recorded)
    self.rounds_recorded = int(rounds_recorded)

  def _is_allowed(self, round_index: int) -> bool:
    if self._epsilon is None:
      return True
    return self.epsilon_after(round_index) <= self._epsilon
