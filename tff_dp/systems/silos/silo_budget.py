# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budgets of silos, and the ledger of a run with silos."""

from collections.abc import Iterable
import dataclasses

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.ledger import budget
from tff_dp.plans import base


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class SiloBudget:
  """The data size and the limits of a silo. All of them are public.

  Attributes:
    num_records: Number n of the silo's training records.
    epsilon: Largest epsilon of all the silo's messages together, for one
      record. `None` means no limit, if you choose the noise yourself.
    delta: Delta of `epsilon`, below 1/n and at most 0.1. Default: 1/n^2, which
      is allowed for n of at least 4.
    weight: Weight p_i of the silo in the objective. `None` if all silos are
      equal.
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
    delta = base.delta_of_records(self.num_records, self.delta)
    object.__setattr__(self, 'delta', delta)
    if self.weight is not None:
      _checks.positive(weight=self.weight)


class SiloLedger(budget.BudgetLedger):
  """Refuses the round beyond the budget of any silo, or of the whole run.

  Each silo pays for the rounds in which it sends. The plan lists these rounds.
  If the plan does not list the silos that send, pass their names to `record`.
  An absent silo does not pay.

  The ledger only grows. Do not rewind it with a model: an earlier model can be
  restored, but a release cannot be taken back. To rebuild a ledger, record the
  entries that `record` returned. The budget of the ledger applies to every silo
  at the ledger's delta, in addition to the silos' own budgets.
  """

  def check(self, round_index: int) -> None:
    """See base class."""
    if 1 <= round_index <= self.num_rounds:
      what = self.plan.exceeded(round_index)
      if what is not None:
        raise _checks.PrivacyRefusedError(
            f'{what}; {round_index - 1} of {self.num_rounds} rounds done',
            why='the records of a silo pay for everything that the silo sends',
            way_out='leave this silo out of the later rounds with'
            ' plan.with_availability(...), or plan with more noise',
        )
    super().check(round_index)

  def record(
      self, round_index: int, members: Iterable[str] | None = None
  ) -> dict[str, object]:
    """Counts a round as spent by all silos that send in it.

    Call this method before they send. If it raises an error, no silo has paid.

    Args:
      round_index: Index of the round, see base class. The last recorded round
        may be recorded again only with the same silos.
      members: Names of the silos that send. `None` means those in the plan.

    Returns:
      The record, see base class. If `members` are given, they are in it under
      'silos'.

    Raises:
      ArgumentError: If a member is no silo of the plan.
      PrivacyRefusedError: If the round breaks plan, budget or order, or if it
        was recorded with other silos.
    """
    if members is None or round_index > self.num_rounds:
      return super().record(round_index)
    members = list(members)
    planned = self.plan
    came = planned.with_present(round_index, members)
    if round_index <= self.rounds_recorded and came is not planned:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} was recorded with the silos'
          f' {planned.present(round_index)}, not {sorted(members)}',
          why='a silo that has sent has paid, and pays again if it sends again',
          way_out='repeat the round with the same silos, or go on with round'
          f' {self.rounds_recorded + 1}',
      )
    self._take(came)
    try:
      return super().record(round_index) | {'silos': members}
    except _checks.PrivacyRefusedError:
      self._take(planned)
      raise

  def _take(self, plan) -> None:
    """Switches to another plan and drops the cached epsilons of the old one."""
    if plan is not self.plan:
      self.plan = plan
      self._known.clear()
      self.__dict__.pop('_rounds_allowed', None)

  def _is_allowed(self, round_index: int) -> bool:
    return self.plan.exceeded(round_index) is None and super()._is_allowed(
        round_index
    )
