# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training under allocation: clients draw slots, and the server adds noise."""

from tff_dp.program import protocol_source
from tff_dp.systems import system


class _Allocation(system.Training):
  """A trusted server adds noise to the sum of every slot."""

  knows_divisor = False

  def cohorts(self, plan, clients, *, schedule_seed):
    system.no_seed(schedule_seed)
    return protocol_source.cohorts_of(plan, clients)

  def release(self, plan):
    # Any divisor will do.
    return plan.aggregator(clients_per_round=1).release


ALLOCATION = _Allocation()
