# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cohorts on Flower and NVFlare, by the schedule of a DP-FTRL plan."""

from collections.abc import Sequence
import copy
from typing import Any

from tff_dp import _checks
from tff_dp.integrations import server_cohorts
from tff_dp.statement import builder
from tff_dp.systems.dp_ftrl import plan as plan_lib


class ScheduledCohorts(server_cohorts.ServerCohorts):
  """Cohorts that a public schedule selects, within the ledger's limits."""

  def __init__(
      self,
      plan: plan_lib.DpFtrlPlan,
      *,
      schedule_seed: int,
      insecure_seed: int | None,
  ):
    """Makes the cohorts of a run that has not begun.

    Args:
      plan: Plan with the schedule.
      schedule_seed: Public seed of the schedule.
      insecure_seed: Not used: the schedule has no secret.
    """
    del insecure_seed
    _checks.integer_at_least(0, schedule_seed=schedule_seed)
    self.clients_needed = plan.clients_per_round
    self._plan = plan
    self._schedule_seed = schedule_seed
    self._ledger = None

  def begin(self, run_id: str) -> None:
    self._ledger = self._plan.participation_ledger(run_id)

  def select(self, round_index: int, client_ids: Sequence[str]) -> list[str]:
    return self._plan.participation.select(
        round_index=round_index,
        client_ids=client_ids,
        clients_per_round=self._plan.clients_per_round,
        ledger=self._ledger,
        seed=self._schedule_seed,
    )

  def commit(self, cohort: Sequence[str], round_index: int) -> None:
    self._ledger.commit(cohort, round_index)

  def observed(self, rounds_begun: int) -> Any:
    if rounds_begun > self._ledger.num_rounds:
      # A killed process had begun another round.
      return builder.RoundsDone(rounds_begun)
    return self._ledger.observed()

  def to_bytes(self) -> bytes:
    return self._ledger.to_bytes()

  def restored(self, data: bytes) -> 'ScheduledCohorts':
    found = copy.copy(self)
    found._ledger = self._ledger.restored(data)
    return found
