# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How runs of DP-FTRL, and runs without privacy, get their cohorts."""

from tff_dp.program import cohorts
from tff_dp.systems import system


class _DpFtrl(system.Training):
  """The plan's schedule chooses the clients, and the ledger enforces it."""

  is_in_odp = True

  def cohorts(self, plan, clients, *, schedule_seed):
    cohorts.check_client_data(clients)
    return cohorts.ScheduledCohorts(plan, clients, seed=schedule_seed)


class _NonPrivate(system.Training):
  """Nothing is claimed, so any clients may come."""

  is_private = False

  def cohorts(self, plan, clients, *, schedule_seed):
    if not isinstance(clients, cohorts.Source):
      return cohorts.ScheduledCohorts(plan, clients, seed=schedule_seed)
    system.no_seed(schedule_seed)
    return clients.cohorts()


DP_FTRL = _DpFtrl()
NON_PRIVATE = _NonPrivate()
