# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of check-ins: clients decide by their own coins when they come."""

from tff_dp import _checks
from tff_dp.aggregators import client_randomizers
from tff_dp.mechanisms import randomizers
from tff_dp.program import check_in_source
from tff_dp.program import cohorts
from tff_dp.systems import system


class _CheckIns(system.Training):
  """Clients add the noise, or a trusted server does."""

  knows_divisor = False

  def state_counts_rounds(self, plan):
    # Randomizers at the clients keep no state.
    return not plan.is_local

  def cohorts(self, plan, clients, *, schedule_seed):
    system.no_seed(schedule_seed)
    if not isinstance(clients, check_in_source.CheckInDataSource):
      clients = check_in_source.CheckInDataSource.for_plan(plan, clients)
    needed = (
        ('protocol', plan.protocol),
        ('num_passes', plan.num_passes),
        ('with_keys', plan.is_local),
    )
    for name, value in needed:
      if getattr(clients, name) != value:
        raise _checks.ArgumentError(
            f'clients.{name}',
            getattr(clients, name),
            f'that of the plan, {value}',
        )
    return cohorts.CheckInCohorts(clients)

  def release(self, plan):
    if plan.is_local:
      return client_randomizers.release_of(plan.randomizer)
    # Any divisor will do.
    return plan.aggregator(clients_per_round=1).release

  def noise(self, plan):
    randomizer = plan.randomizer
    if not plan.is_local:
      return system.Noise(server_clip_norm=randomizer.l2_norm_clip)
    if isinstance(randomizer, randomizers.Gaussian):
      return system.Noise(stddev=randomizer.stddev)
    if isinstance(randomizer, randomizers.Laplace):
      return system.Noise(laplace=randomizer.scale)
    return system.Noise(
        not_measured=(
            f'the reports of {type(randomizer).__name__} are not data plus'
            ' noise'
        ),
        keys_give_integers=isinstance(randomizer, randomizers.Sphere),
    )

  def made_data(self, plan, member, make):
    if plan.is_local and plan.protocol.has_one_winner:
      return [make(member)]
    return super().made_data(plan, member, make)


CHECK_INS = _CheckIns()
