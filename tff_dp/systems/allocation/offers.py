# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offers of random and of cyclic allocation.

In cyclic allocation clients report as often as in random allocation, in windows
instead of passes.
"""

import dataclasses
import math

from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.advice import offers
from tff_dp.advice import protocol_offers
from tff_dp.systems.allocation import plan as plan_lib
from tff_dp.systems.allocation import protocols
from tff_dp.systems.allocation import strides as strides_lib

# If errors differ by less than this factor, fewer model copies decide.
_EQUAL = 1.02
# With less extra error than this, relying on coins is not worth it.
_HARDLY_MORE = 1.1


def random_allocation(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of drawn slots, with noise of the server."""
  passes, slots = setting.num_passes, protocol_offers.slots(setting)
  protocol = protocols.RandomAllocation(
      slots, check_in_probability=offers.rate(setting, slots)
  )

  def plan_of(noise):
    return plan_lib.AllocationPlan(
        protocol, noise_multiplier=noise, l2_norm_clip=1.0, num_passes=passes
    )

  noise = protocol_offers.least_noise_multiplier(
      setting, plan_of, reports=passes
  )
  plan = plan_of(noise)
  options = protocol_offers.options_of(plan)
  return protocol_offers.offer(
      setting,
      plan,
      noise / setting.reports_per_round,
      noise=('--noise-multiplier', noise),
      command=(
          'random-allocation', '--population', setting.population,
          '--slots', slots, '--rounds', passes * slots,
          '--check-in-probability', protocol.check_in_probability,
      ),
      python=f"""\
protocol = tff_dp.allocation.{protocol!r}
plan = tff_dp.AllocationPlan(protocol, noise_multiplier={noise!r},
    l2_norm_clip=1.0{options})""",
      system='random-allocation',
      variant='noise at the server',
      process='tff_dp.allocation.build_allocation_sgd',
  )


def cyclic_allocation(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of drawn slots, with banded noise.

  The slots of a client are multiples of a stride apart.
  """
  rounds, windows = setting.rounds, setting.num_passes
  relation = run_events.NeighboringRelation(setting.neighboring_relation)
  found, longest = _candidates(setting, relation)
  stride, protocol = found.stride, found.plan.protocol
  noise = float(rounding.rounded_up(found.plan.noise_multiplier, digits=6))
  plan = dataclasses.replace(found.plan, noise_multiplier=noise)
  certificate = plan.certificate(
      delta=setting.delta, neighboring_relation=relation
  )
  rmse, _ = plan.prefix_errors()
  gain = longest.rmse / found.rmse
  hardly = ' Coins buy little here, and DP-FTRL needs none.'
  notes = (
      f'The longest stride, {longest.stride}, in whose windows there is one'
      f' slot to draw, would leave {gain:.3g} times the error.'
      f'{hardly * (gain < _HARDLY_MORE)}',
      'tff-dp calibrate cyclic-allocation --stride says what fewer bands, and'
      ' so fewer model copies, cost.',
  )
  return offers.offer(
      setting,
      rmse / setting.reports_per_round / math.sqrt((rounds + 1) / 2),
      system='cyclic-allocation',
      variant=f'banded, {stride} bands',
      trust=protocol.trust,
      neighboring_relation=relation.value,
      noise={'noise_multiplier': noise},
      epsilon=certificate.epsilon,
      epsilon_no_amplification=certificate.epsilon_no_amplification,
      model_copies=stride,
      participation=protocol.participation,
      notes=notes,
      assumptions=(*certificate.assumptions, *protocol.assumptions),
      process='tff_dp.allocation.build_allocation_sgd',
      command=offers.account(
          'cyclic-allocation', '--population', setting.population,
          '--rounds', rounds, '--windows', windows, '--stride', stride,
          '--check-in-probability', protocol.check_in_probability,
          '--noise-multiplier', noise,
          '--neighboring-relation', relation, '--delta', setting.delta,
      ),
      python=f"""\
import tff_dp
protocol = tff_dp.allocation.CyclicAllocation({rounds}, {windows},
    stride={stride}, check_in_probability={protocol.check_in_probability!r})
bands = tff_dp.mechanisms.Banded.optimized(tff_dp.participation.MinSeparation(
    {rounds}, min_index_gap={stride}, max_participations={windows}),
    {stride}, error='mean')
plan = tff_dp.AllocationPlan(protocol, noise_multiplier={noise!r},
    l2_norm_clip=1.0, mechanism=bands)
print(plan.epsilon({offers.arguments(setting)}))""",
  )


def _candidates(
    setting: offers.Setting, relation: run_events.NeighboringRelation
) -> tuple[strides_lib.Candidate, strides_lib.Candidate]:
  """Returns (chosen candidate, candidate with the longest stride).

  For replace-one the choice of the stride is a heuristic: it is made for
  zero-out at half of the budget, because an epsilon for replace-one takes far
  longer to compute.
  """
  where = setting.rounds, setting.num_passes
  options = dict(
      delta=setting.delta,
      check_in_probability=offers.rate(setting, where[0] / where[1]),
  )
  share = relation.squared_sensitivity_factor**-0.5
  tried = strides_lib.best(*where, epsilon=share * setting.epsilon, **options)
  by_stride = lambda each: each.stride
  equal = [each for each in tried if each.rmse <= _EQUAL * tried[0].rmse]
  picked = min(equal, key=by_stride), max(tried, key=by_stride)
  if relation is picked[0].plan.neighboring_relation:
    return picked
  options |= dict(epsilon=setting.epsilon, neighboring_relation=relation)
  return tuple(
      strides_lib.candidate(*where, each.stride, **options) for each in picked
  )
