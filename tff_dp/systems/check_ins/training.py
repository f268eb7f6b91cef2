# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of check-ins: clients decide when they come, and add the noise."""

from tff_dp.aggregators import client_randomizers
from tff_dp.mechanisms import randomizers
from tff_dp.program import protocol_source
from tff_dp.systems import system


class _CheckIns(system.Training):
  """Clients add the noise, so the process state counts nothing."""

  knows_divisor = False

  def state_counts_rounds(self, plan):
    # Randomizers at the clients keep no state.
    return False

  def cohorts(self, plan, clients, *, schedule_seed):
    system.no_seed(schedule_seed)
    return protocol_source.cohorts_of(plan, clients)

  def release(self, plan):
    return client_randomizers.release_of(plan.randomizer)

  def noise(self, plan):
    randomizer = plan.randomizer
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
    if plan.protocol.has_one_winner:
      return [make(member)]
    return super().made_data(plan, member, make)


CHECK_INS = _CheckIns()
