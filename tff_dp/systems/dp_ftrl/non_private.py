# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run without privacy, for baselines.

`program.train` refuses a process that does not add the noise of its plan. A
`NonPrivatePlan`, which the user must ask for by name, promises no noise. Any
process may run under it, unless the process's own system forbids that
(`Training.why_never_without_privacy`). Participation is recorded as usual.
Every output of the run says NO PRIVACY.
"""

import dataclasses
import functools
from typing import Any, NoReturn, Optional

import dp_accounting
import numpy as np

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.dp_ftrl import plan as plan_lib
from tff_dp.systems.dp_ftrl import statement


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class NonPrivatePlan(base.Plan):
  """Participation and cohort of a run whose epsilon is infinite.

  Attributes:
    participation: Schedule that says who takes part.
    clients_per_round: Number of clients of a round.
  """

  participation: sampling.Schedule
  clients_per_round: int

  kind = 'non_private'
  neighboring_relation = plan_lib.DpFtrlPlan.neighboring_relation
  curve_deltas = plan_lib.DpFtrlPlan.curve_deltas
  basis = plan_lib.DpFtrlPlan.basis
  trust = 'everybody who sees anything of the run'
  # The noise fields of a `DpFtrlPlan`. Here there is no noise.
  noise_multiplier = 0.0
  l2_norm_clip = None
  adaptive_clipping = None

  def __post_init__(self):
    self._scheduled  # pylint: disable=pointless-statement

  @functools.cached_property
  def _scheduled(self) -> plan_lib.DpFtrlPlan:
    """A `DpFtrlPlan` without noise that has the same ledgers and descriptions.

    Its clip norm is never used.
    """
    rounds = getattr(self.participation, 'num_rounds', 1)
    return plan_lib.DpFtrlPlan(
        mechanism_lib.Independent(rounds),
        self.participation,
        l2_norm_clip=1.0,
        clients_per_round=self.clients_per_round,
        noise_multiplier=self.noise_multiplier,
    )

  @property
  def num_rounds(self) -> int:
    """Horizon T: the number of rounds."""
    return self._scheduled.num_rounds

  @property
  def mechanism(self) -> mechanism_lib.Independent:
    """Placeholder: at noise multiplier 0 this mechanism adds no noise."""
    return self._scheduled.mechanism

  @property
  def squared_sensitivity(self) -> float:
    """Largest number of participations of one client."""
    return self._scheduled.squared_sensitivity

  @property
  def squared_sensitivity_by_round(self) -> np.ndarray:
    """Most participations in runs that stop after 1..T rounds, shape [T]."""
    return self._scheduled.squared_sensitivity_by_round

  @property
  def voids(self) -> tuple[str, ...]:
    """See base class."""
    return self._scheduled.voids

  def calibrated(self, *, epsilon: float, delta: float) -> NoReturn:
    """Raises `PrivacyRefusedError`, because there is no noise to choose."""
    raise _checks.PrivacyRefusedError(
        f'a NonPrivatePlan cannot meet epsilon={epsilon} at delta={delta}',
        why='the plan adds no noise',
        way_out='tff_dp.DpFtrlPlan(...).calibrated(epsilon=..., delta=...)',
    )

  def epsilon(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns infinity."""
    return self._scheduled.epsilon(delta=delta, num_rounds=num_rounds)

  def details(self, **options) -> dict[str, Any]:
    """See base class."""
    return self._scheduled.details(**options)

  def details_in_words(self, details: dict[str, Any]) -> list[tuple[str, str]]:
    """See base class."""
    return self._scheduled.details_in_words(details)

  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the event of a run without privacy."""
    del num_rounds
    return dp_accounting.NonPrivateDpEvent()

  def _facts(self) -> dict[str, Any]:
    facts = self._scheduled.describe()
    return {
        name: facts[name] for name in ('participation', 'clients_per_round')
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'NonPrivatePlan':
    schedule = sampling.from_description(facts['participation'])
    return cls(**facts | {'participation': schedule})

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    del num_rounds
    return {'noise_multiplier': self.noise_multiplier}

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    return self._scheduled.way_out(epsilon=epsilon, delta=delta)

  def participation_ledger(self, run_id: str) -> ledger_lib.ParticipationLedger:
    """Returns an empty ledger that enforces the plan's participation."""
    return self._scheduled.participation_ledger(run_id)

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return statement.points(self._scheduled, about) | {
        'unit.contribution_bound': 'none: updates are not clipped',
        'release.covered': 'nothing',
        'mechanism.name': 'none',
        'mechanism.parameters': 'none',
        'mechanism.l2_norm_clip': 'none',
    }
