# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run without privacy, which has to be asked for by name.

`program.train` refuses a process that does not add the noise of its plan. For a
baseline there is this plan, which speaks of no noise: any process may run, who
takes part is recorded as usual, and whatever the run writes says NO PRIVACY.
"""

from collections.abc import Mapping
import dataclasses
import functools
from typing import Any, Optional

import numpy as np

from tff_dp.ledger import budget
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.mechanisms import independent
from tff_dp.participation import sampling
from tff_dp.plans import dp_ftrl as plan_lib
from tff_dp.plans import dp_ftrl_statement
from tff_dp.statement import statement as statement_lib


@dataclasses.dataclass(frozen=True)
class NonPrivatePlan:
  """Participation and cohort of a run whose epsilon is infinite.

  Attributes:
    participation: Who takes part.
    clients_per_round: Number of clients of a round.
  """

  participation: sampling.Schedule
  clients_per_round: int

  # What a `PrivacyPlan` says of its noise: here there is none.
  noise_multiplier = 0.0
  l2_norm_clip = None
  adaptive_clipping = None

  def __post_init__(self):
    self._scheduled  # pylint: disable=pointless-statement

  @functools.cached_property
  def _scheduled(self) -> plan_lib.PrivacyPlan:
    """The plan with the same ledgers; its clip norm is never used."""
    rounds = getattr(self.participation, 'num_rounds', 1)
    return plan_lib.PrivacyPlan(
        independent.Independent(rounds),
        self.participation,
        l2_norm_clip=1.0,
        clients_per_round=self.clients_per_round,
        noise_multiplier=self.noise_multiplier,
    )

  @property
  def num_rounds(self) -> int:
    """The horizon T."""
    return self._scheduled.num_rounds

  @property
  def mechanism(self) -> independent.Independent:
    """What the noise would be."""
    return self._scheduled.mechanism

  @property
  def squared_sensitivity(self) -> float:
    """Number of participations of one client."""
    return self._scheduled.squared_sensitivity

  @property
  def squared_sensitivity_by_round(self) -> np.ndarray:
    """The same for runs that stop after 1..T rounds, shape [num_rounds]."""
    return self._scheduled.squared_sensitivity_by_round

  def describe(self) -> dict[str, Any]:
    """Returns all facts of the plan as plain JSON types."""
    return {
        **self._scheduled.describe(),
        'l2_norm_clip': None,
        'is_private': False,
    }

  @property
  def fingerprint(self) -> str:
    """A hash of `describe()`: equal for equal plans, whatever the process."""
    return plan_lib.fingerprint(self.describe())

  def participation_ledger(self, run_id: str) -> ledger_lib.ParticipationLedger:
    """Returns an empty ledger that enforces the plan's participation."""
    return self._scheduled.participation_ledger(run_id)

  def budget_ledger(
      self, *, epsilon: Optional[float], delta: float
  ) -> budget.BudgetLedger:
    """Returns an empty ledger, whose epsilon is infinite."""
    return self._scheduled.budget_ledger(epsilon=epsilon, delta=delta)

  def statement(
      self,
      *,
      delta: float,
      observed: Optional[ledger_lib.Observed] = None,
      insecure_seed: bool = False,
      declarations: Optional[dp_ftrl_statement.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns a statement that says NO PRIVACY; see `PrivacyPlan`."""
    return dp_ftrl_statement.build(
        self,
        delta=delta,
        observed=observed,
        insecure_seed=insecure_seed,
        declarations=declarations or dp_ftrl_statement.Declarations(),
    )

  def events_json(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> Mapping[str, Any]:
    """Returns what `tff-dp account --events` says NO PRIVACY of."""
    return dp_ftrl_statement.events_json(
        self, delta=delta, num_rounds=num_rounds or self.num_rounds
    )
