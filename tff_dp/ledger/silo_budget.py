# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What silos allow, and the one ledger of a run of theirs."""

from collections.abc import Iterable
import dataclasses

from tff_dp import _checks
from tff_dp.ledger import budget


@dataclasses.dataclass(frozen=True)
class SiloBudget:
  """What a silo brings and what it allows. All of it public.

  Attributes:
    num_records: n, its training records.
    epsilon: What all its messages may cost one record; None for no limit, which
      is for reporting what an explicit sigma costs.
    delta: Below 1/n; by default 1/n^2.
    weight: Its share p_i of the objective, if not all are equal.
  """

  num_records: int
  epsilon: float | None
  delta: float | None = None
  weight: float | None = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_records=self.num_records)
    if self.epsilon is not None:
      _checks.positive(epsilon=self.epsilon)
    if self.delta is None:
      if self.num_records == 1:
        raise _checks.ArgumentError(
            'delta', None, 'a number for a silo of one record'
        )
      object.__setattr__(self, 'delta', 1 / float(self.num_records) ** 2)
    _checks.delta(delta=self.delta)
    if self.num_records > 1 and not self.delta * self.num_records < 1:
      raise _checks.ArgumentError(
          'delta',
          self.delta,
          f'a number below 1 / num_records = {1 / self.num_records:g}: to'
          ' publish one random record would be allowed',
      )
    if self.weight is not None:
      _checks.positive(weight=self.weight)


class SiloLedger(budget.BudgetLedger):
  """Refuses the round beyond the budget of any silo, or of the whole run.

  Each silo pays for the rounds in which it sends. The plan says which those
  are; where others than planned sent, `record` is told so, and a silo that was
  not there has not paid.

  The ledger only grows, and belongs outside of what is rewound: an earlier
  model can be restored, an earlier release cannot be taken back. It is made
  again by recording the entries that `record` returned. Its budget is one of
  every silo at its delta, beside their own.
  """

  def check(self, round_index: int) -> None:
    """See base class."""
    if 1 <= round_index <= self.num_rounds:
      what = self.plan.exceeded(round_index)
      if what is not None:
        raise _checks.PrivacyRefusedError(
            f'{what}; {round_index - 1} of {self.num_rounds} rounds done',
            why='everything that a silo sends is paid for by its own records',
            way_out='leave this silo out of the later rounds with'
            ' plan.with_availability(...), or plan with more noise',
        )
    super().check(round_index)

  def record(
      self, round_index: int, members: Iterable[str] | None = None
  ) -> dict[str, object]:
    """Counts a round as spent, before its silos send: all of them or none.

    Args:
      round_index: See base class.
      members: Who sends, by name; `None` for those of the plan.
    """
    if members is None or round_index > self.num_rounds:
      return super().record(round_index)
    members = list(members)
    planned = self.plan
    self._take(planned.with_present(round_index, members))
    try:
      return super().record(round_index) | {'silos': members}
    except _checks.PrivacyRefusedError:
      self._take(planned)
      raise

  def _take(self, plan) -> None:
    """Takes another plan; what is known of rounds is only of the last one."""
    if plan is not self.plan:
      self.plan = plan
      self._known.clear()
      self.__dict__.pop('_rounds_allowed', None)

  def _is_allowed(self, round_index: int) -> bool:
    return self.plan.exceeded(round_index) is None and super()._is_allowed(
        round_index
    )
