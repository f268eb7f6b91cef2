# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offers of check-ins, where clients decide themselves when to report."""

from collections.abc import Callable, Mapping
import math
from typing import Any, NamedTuple, Optional

from tff_dp.advice import offers
from tff_dp.advice import protocol_offers
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.check_ins import plan as plan_lib
from tff_dp.systems.check_ins import random_check_ins
from tff_dp.systems.check_ins import shuffled
from tff_dp.systems.check_ins import windows

# Number of check-ins per slot with one winner: 5 % of the slots stay empty.
_CHECK_INS_PER_SLOT = 3
# Longest window of an offer. Longer ones take minutes to account for.
_LONGEST_WINDOW = 10**6
_SPHERE = 'sphere'
_RANDOMIZERS = {
    _SPHERE: lambda epsilon: randomizers.Sphere(epsilon, 1.0),
    'local-gaussian': lambda noise: randomizers.Gaussian(noise, 1.0),
}
# Starting point of the search if amplification helps.
_AMPLIFIED_LOCAL_EPSILON = 6.0
# Largest local epsilon. Above it the sphere's report has hardly less noise.
_MOST_LOCAL_EPSILON = 10.0


def fixed_window(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of `windows.FixedWindowCheckIn`.

  Each slot gives one report, so there are as many slots as reports.
  """
  passes = setting.num_passes
  slots = protocol_offers.slots(setting) * setting.reports_per_round
  protocol = windows.FixedWindowCheckIn(
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
  """Returns the `offers.Offer` of a sliding window: clients wake in turn.

  Raises:
    DoesNotFitError: If there are fewer clients than reports in the run.
  """
  updates = setting.rounds * setting.reports_per_round
  window = setting.population - updates + 1
  if window < 1:
    raise offers.DoesNotFitError(
        f'needs a different client for each of the {updates} reports, but there'
        f' are only {setting.population} clients'
    )
  window = min(window, _LONGEST_WINDOW)
  steps = updates + window - 1
  protocol = windows.SlidingWindowCheckIn(steps, window)
  # As if no more clients than steps came. Further clients lower it.
  empty = random_check_ins.expected_dummies_sliding_window(
      steps, num_steps=steps, window=window
  )
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

  Args:
    setting: Known facts.
    system: Name of the system.
    protocol: Protocol of the clients.
    empty: Expected share of slots whose winner is a dummy.
    **fields: Further arguments of `_check_ins`.
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
      process='tff_dp.check_ins.build_check_in_sgd',
      **fields,
  )


def shuffled_check_in(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of one coin per client and round."""
  protocol = shuffled.ShuffledCheckIn(
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
      process='tff_dp.check_ins.build_shuffled_check_in_sgd',
  )


def local_reports(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of averaged check-ins without amplification."""
  passes, slots = setting.num_passes, setting.rounds_per_pass
  protocol = windows.AveragedCheckIn(slots, setting.population)
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
      process='tff_dp.check_ins.build_check_in_sgd',
  )


def _check_ins(
    setting: offers.Setting,
    system: str,
    protocol: protocol_lib.Protocol,
    kinds: Mapping[str, Callable[[float], Any]],
    *,
    passes: int,
    reports: int,
    share: float,
    command: tuple[Any, ...],
    bounds: Optional[Mapping[str, str]] = None,
    **fields,
) -> offers.Offer:
  """Returns the offer of a protocol with its best kind of noise.

  Args:
    setting: Known facts.
    system: Name of the system.
    protocol: Protocol of the clients.
    kinds: Kinds of noise. Name of a kind -> function from the parameter of the
      noise to the randomizer.
    passes: Number of passes of the protocol.
    reports: Largest number of reports of one client, for the loss without
      amplification.
    share: Standard deviation of the noise on the mean of a round, over the
      standard deviation of the noise of one report.
    command: Words of the command that states the epsilon, without the noise.
    bounds: Bound for each kind of noise. Default: 'best'.
    **fields: Further fields of the offer.
  """
  found = []
  for kind, make in kinds.items():
    bound = (bounds or {}).get(kind, 'best')

    def plan_of(value, make=make, bound=bound):
      return plan_lib.CheckInPlan(
          protocol, make(value), num_passes=passes, bound=bound
      )

    known = min((each.stddev for each in found), default=math.inf)
    found.append(_with_least_noise(setting, plan_of, kind, reports, known))
  best = min(found, key=lambda each: each.stddev)
  plan = best.plan
  noise = ('--noise-multiplier', best.value)
  if best.kind == _SPHERE:
    noise = ('--local-epsilon', best.value, '--randomizer', 'sphere')
  return protocol_offers.offer(
      setting,
      plan,
      share * best.stddev,
      noise=noise,
      command=command,
      python=f"""\
protocol = tff_dp.check_ins.{protocol!r}
noise = tff_dp.mechanisms.randomizers.{plan.randomizer!r}
plan = tff_dp.CheckInPlan(protocol, noise{protocol_offers.options_of(plan)})""",
      system=system,
      variant=best.kind,
      bytes_up=plan.randomizer.wire_bytes(setting.parameters),
      **fields,
  )


class _Noised(NamedTuple):
  """A plan with nearly the least noise of a kind.

  Attributes:
    stddev: Standard deviation of a report, per weight. Infinity if a kind that
      was tried before needs less.
    kind: Kind of noise, as in `_RANDOMIZERS`.
    value: Parameter of the noise: the local epsilon for the kind 'sphere', else
      the noise multiplier.
    plan: Plan with the noise. If `stddev` is infinite, with noise multiplier 1.
  """

  stddev: float
  kind: str
  value: float
  plan: plan_lib.CheckInPlan


def _with_least_noise(
    setting: offers.Setting,
    plan_of: Callable[[float], plan_lib.CheckInPlan],
    kind: str,
    reports: int,
    known: float,
) -> _Noised:
  """Returns a plan with nearly the least noise of a kind.

  Args:
    setting: Known facts.
    plan_of: Function that returns the plan with some parameter of the noise.
    kind: Kind of noise.
    reports: Largest number of reports of one client.
    known: Least `stddev` of the kinds tried before, infinity for the first. The
      kind 'sphere' does not use it.
  """
  base = plan_of(1.0)
  if kind != _SPHERE:
    value = protocol_offers.least_noise_multiplier(
        setting, plan_of, reports=reports, known=known
    )
    plan = base if value == math.inf else plan_of(value)
    return _Noised(value, kind, value, plan)

  def epsilon_at(value):
    if value > _MOST_LOCAL_EPSILON:
      return math.inf
    return plan_of(value).epsilon(delta=setting.delta)

  # Epsilons of reports add up. With amplification they may be larger.
  start = setting.epsilon / reports
  if base.bound != 'none':
    start = max(start, _AMPLIFIED_LOCAL_EPSILON)
  value = protocol_offers.least(
      epsilon_at,
      lambda noise: offers.shortened(1 / noise, 4),
      start=1 / min(start, _MOST_LOCAL_EPSILON),
      target=setting.epsilon,
  )
  plan = plan_of(value)
  variance = plan.randomizer.variance(setting.parameters)
  return _Noised(math.sqrt(variance / setting.parameters), kind, value, plan)
