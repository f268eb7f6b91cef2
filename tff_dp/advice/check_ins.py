# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Check-ins: clients that decide themselves when to report."""

from collections.abc import Callable
import dataclasses
import math
from typing import Any, NamedTuple, Optional

from tff_dp import _checks
from tff_dp import participation
from tff_dp.accounting import calibration
from tff_dp.accounting.amplification import random_check_ins
from tff_dp.accounting.curves import search
from tff_dp.accounting.events import run_events
from tff_dp.advice import offers
from tff_dp.mechanisms import randomizers
from tff_dp.plans import check_ins as check_in_plan

# Number of check-ins per slot with one winner: 5 % of the slots stay empty.
_CHECK_INS_PER_SLOT = 3
# Longest window of an offer. Longer ones take minutes to account for.
_LONGEST_WINDOW = 10**6
_SPHERE = 'sphere'
_RANDOMIZERS = {
    _SPHERE: lambda epsilon: randomizers.Sphere(epsilon, 1.0),
    'local-gaussian': lambda noise: randomizers.Gaussian(noise, 1.0),
}
# Starting points of the search if amplification helps.
_AMPLIFIED_LOCAL_EPSILON = 6.0
_AMPLIFIED_NOISE = 0.6
# Largest local epsilon. Above it the sphere's report has hardly less noise.
_MOST_LOCAL_EPSILON = 10.0
# Relative distance of the noise from the least noise, because a trial takes
# seconds.
_CLOSE = 0.01
_MOST_NOISE = 1e9


def random_allocation(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of clients that draw slots, with noise at the server."""
  passes, slots = setting.num_passes, _slots(setting)
  protocol = participation.RandomAllocation(
      slots, check_in_probability=offers.rate(setting, slots)
  )
  return _check_ins(
      setting,
      'random-allocation',
      protocol,
      {'': lambda noise: participation.CentralGaussian(noise, 1.0)},
      passes=passes,
      reports=passes,
      share=1 / setting.reports_per_round,
      command=(
          'random-allocation', '--population', setting.population,
          '--slots', slots, '--rounds', passes * slots,
          '--check-in-probability', protocol.check_in_probability,
      ),
      process='tff_dp.learning.build_allocation_sgd',
  )


def fixed_window(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of check-ins with one winner per slot.

  There are as many slots as reports.
  """
  passes = setting.num_passes
  slots = _slots(setting) * setting.reports_per_round
  protocol = participation.FixedWindowCheckIn(
      slots,
      check_in_probability=min(
          1.0,
          offers.shortened(_CHECK_INS_PER_SLOT * slots / setting.population),
      ),
      slots_per_update=setting.reports_per_round,
  )
  empty = random_check_ins.expected_dummies_fixed_window(
      setting.population,
      num_slots=slots,
      check_in_probability=protocol.check_in_probability,
  )
  return _winners(
      setting,
      'fixed-window',
      protocol,
      empty / slots,
      passes=passes,
      command=(
          'random-check-in', '--protocol', 'fixed-window',
          '--population', setting.population,
          '--slots', slots, '--rounds', passes * slots,
          '--check-in-probability', protocol.check_in_probability,
      ),
  )


def sliding_window(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of check-ins of clients that wake one after the other."""
  updates = setting.rounds * setting.reports_per_round
  window = setting.population - updates + 1
  if window < 1:
    raise offers.DoesNotFitError(
        f'needs a client of its own for each of {updates} reports, of'
        f' {setting.population}'
    )
  window = min(window, _LONGEST_WINDOW)
  steps = updates + window - 1
  protocol = participation.SlidingWindowCheckIn(steps, window)
  # As if no more clients than steps came. Further clients lower it.
  empty = random_check_ins.expected_dummies_sliding_window(steps, window=window)
  return _winners(
      setting,
      'sliding-window',
      protocol,
      empty / updates,
      passes=1,
      command=(
          'random-check-in', '--protocol', 'sliding-window',
          '--population', setting.population, '--slots', window,
      ),
  )


def _winners(setting, system, protocol, empty: float, **fields) -> offers.Offer:
  """Returns the offer of check-ins with one winner per slot.

  A share of the winners are dummies.
  """
  return _check_ins(
      setting,
      system,
      protocol,
      _RANDOMIZERS,
      reports=fields['passes'],
      # The updates of the clients that came, scaled up for the empty slots.
      share=1 / (math.sqrt(setting.reports_per_round) * (1 - empty)),
      notes=(
          f'{100 * empty:.3g} % of the reports are expected to be dummies; the'
          ' error is that of the updates scaled up for them.',
      ),
      process='tff_dp.learning.build_check_in_sgd',
      **fields,
  )


def shuffled_check_in(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of a coin per client and round, behind a shuffler."""
  protocol = participation.ShuffledCheckIn(
      setting.rounds, offers.rate(setting, 1), setting.population
  )
  return _check_ins(
      setting,
      'shuffled-check-in',
      protocol,
      _RANDOMIZERS,
      # The other bounds take seconds and are hardly ever smaller.
      bounds={_SPHERE: 'strong_clones', 'local-gaussian': 'subsampling'},
      passes=1,
      reports=setting.rounds,
      share=1 / math.sqrt(setting.reports_per_round),
      command=(
          'shuffled-check-in', '--population', setting.population,
          '--check-in-rate', protocol.check_in_rate, '--rounds', setting.rounds,
      ),
      process='tff_dp.learning.build_shuffled_check_in_sgd',
  )


def local_reports(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of averaged check-ins without amplification."""
  passes, slots = setting.num_passes, setting.rounds_per_pass
  protocol = participation.AveragedCheckIn(slots, setting.population)
  return _check_ins(
      setting,
      'local-reports',
      protocol,
      _RANDOMIZERS,
      bounds=dict.fromkeys(_RANDOMIZERS, 'none'),
      passes=passes,
      reports=passes,
      share=1 / math.sqrt(setting.reports_per_round),
      trust='nobody: every report is private by itself',
      command=(
          'random-check-in', '--protocol', 'averaged',
          '--population', setting.population, '--slots', slots,
          '--rounds', passes * slots,
      ),
      process='tff_dp.learning.build_check_in_sgd',
  )


def _check_ins(
    setting: offers.Setting,
    system: str,
    protocol: participation.CheckInProtocol,
    kinds: dict[str, Callable[[float], Any]],
    *,
    passes: int,
    reports: int,
    share: float,
    command: tuple[Any, ...],
    bounds: Optional[dict[str, str]] = None,
    **fields,
) -> offers.Offer:
  """Returns the offer of a check-in protocol with its best kind of noise.

  Args:
    setting: Known facts.
    system: Name of the system.
    protocol: Protocol of the clients.
    kinds: Mapping from the name of a noise to the function that makes it from
      its parameter.
    passes: Number of passes of the protocol.
    reports: Largest number of reports of one client, for the loss without
      amplification.
    share: Factor from the standard deviation of the noise of one report, or of
      the server, to the standard deviation on the mean of a round.
    command: Words of the command that states the epsilon, without the noise.
    bounds: Bound for each kind of noise. Default: 'best'.
    **fields: Further fields of the offer.
  """
  found = []
  for kind, make in kinds.items():
    plan = check_in_plan.CheckInPlan(
        protocol,
        make(1.0),
        num_passes=passes,
        bound=(bounds or {}).get(kind, 'best'),
    )
    known = min((each.stddev for each in found), default=math.inf)
    found.append(_with_least_noise(setting, plan, kind, make, reports, known))
  best = min(found, key=lambda each: each.stddev)
  plan, kind, value = best.plan, best.kind, best.value
  relation = _relation(setting, plan)
  certificate = plan.certificate(
      delta=setting.delta, neighboring_relation=relation
  )
  words = ('--noise-multiplier', value)
  if kind == _SPHERE:
    words = ('--local-epsilon', value, '--randomizer', 'sphere')
  if plan.bound != 'best':
    words += ('--bound', plan.bound)
  if not plan.is_local:
    words += ('--neighboring-relation', relation)
  if plan.is_local:
    fields['bytes_up'] = plan.randomizer.wire_bytes(setting.parameters)
    library = 'mechanisms.randomizers'
    extra = f'delta={setting.delta!r}'
  else:
    library, extra = 'participation', offers.arguments(setting)
  options = f', num_passes={passes}' if passes > 1 else ''
  if plan.bound != 'best':
    options += f', bound={plan.bound!r}'
  planned = '' if plan.num_rounds == setting.rounds else (
      f'; {passes} pass{"es" * (passes > 1)} of {protocol.num_rounds} steps'
  )
  return offers.offer(
      setting,
      share * best.stddev,
      system=system,
      variant=kind or 'noise at the server',
      neighboring_relation=relation.value,
      noise={words[0].strip('-').replace('-', '_'): value},
      epsilon=certificate.epsilon,
      epsilon_no_amplification=certificate.epsilon_no_amplification,
      participation=f'{protocol.participation}{planned}',
      assumptions=(*certificate.assumptions, *protocol.assumptions),
      command=offers.account(*command, *words, '--delta', setting.delta),
      python=f"""\
import tff_dp
protocol = tff_dp.participation.{protocol!r}
noise = tff_dp.{library}.{plan.randomizer!r}
plan = tff_dp.CheckInPlan(protocol, noise{options})
print(plan.epsilon({extra}))""",
      **{'trust': protocol.trust} | fields,
  )


class _Noised(NamedTuple):
  """A plan with the least noise of a kind.

  Attributes:
    stddev: Standard deviation per weight, of a report or of the server.
    kind: Kind of noise, as in `_RANDOMIZERS`.
    value: Parameter of the noise.
    plan: Plan with the noise.
  """

  stddev: float
  kind: str
  value: float
  plan: check_in_plan.CheckInPlan


def _relation(setting, plan) -> run_events.NeighboringRelation:
  """Returns the relation of a plan. Local reports have only one."""
  if plan.is_local:
    return plan.neighboring_relation
  return run_events.NeighboringRelation(setting.neighboring_relation)


def _with_least_noise(
    setting, base, kind: str, make, reports: int, known: float
) -> _Noised:
  """Returns a plan with the least noise of a kind.

  Infinite noise means more noise than another kind.

  Args:
    setting: Known facts.
    base: Plan with any noise of the kind.
    kind: Kind of noise.
    make: Function that makes the noise from its parameter.
    reports: Largest number of reports of one client.
    known: Least noise of other kinds.
  """
  relation = _relation(setting, base)

  def plan_of(value):
    return dataclasses.replace(base, randomizer=make(value))

  def epsilon_at(value):
    if kind == _SPHERE and value > _MOST_LOCAL_EPSILON:
      return math.inf
    return plan_of(value).epsilon(
        delta=setting.delta, neighboring_relation=relation
    )

  if kind == _SPHERE:
    # Epsilons of reports add up. With amplification they may be larger.
    start = setting.epsilon / reports
    if base.bound != 'none':
      start = max(start, _AMPLIFIED_LOCAL_EPSILON)
    value = _least_noise(
        epsilon_at,
        lambda noise: offers.shortened(1 / noise, 4),
        start=1 / min(start, _MOST_LOCAL_EPSILON),
        target=setting.epsilon,
    )
    plan = plan_of(value)
    variance = plan.randomizer.variance(setting.parameters)
    return _Noised(math.sqrt(variance / setting.parameters), kind, value, plan)
  if known < math.inf and epsilon_at(known) > setting.epsilon:
    return _Noised(math.inf, kind, math.inf, base)
  start = calibration.noise_multiplier(
      epsilon=setting.epsilon,
      delta=setting.delta,
      squared_sensitivity=reports,
      neighboring_relation=relation,
  )
  if base.bound != 'none':
    start = min(start, _AMPLIFIED_NOISE)
  value = _least_noise(
      epsilon_at,
      lambda noise: offers.shortened(noise, 4),
      start=start,
      target=setting.epsilon,
  )
  return _Noised(value, kind, value, plan_of(value))


def _least_noise(
    epsilon_at: Callable[[float], float],
    parameter_of: Callable[[float], float],
    *,
    start: float,
    target: float,
) -> float:
  """Returns a parameter whose epsilon is within the target.

  The epsilon of the returned parameter was computed and is within the target.

  Args:
    epsilon_at: Function that returns the epsilon of a parameter.
    parameter_of: Function that returns the parameter of some noise, with few
      enough digits that people can copy it.
    start: Noise to begin with.
    target: Privacy budget.
  """
  noise = search.least_within(
      target,
      lambda noise: epsilon_at(parameter_of(noise)),
      start,
      most=_MOST_NOISE,
      tolerance=_CLOSE,
  )
  if noise == math.inf:
    raise _checks.ArgumentError('epsilon', target, 'a budget that can be met')
  return parameter_of(noise)


def _slots(setting: offers.Setting) -> int:
  """Returns the rounds of a pass, so that whole passes add few extra rounds."""
  return -(-setting.rounds // setting.num_passes)
