# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The common part of offers whose clients decide themselves when to report."""

from collections.abc import Callable
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import calibration
from tff_dp.accounting.curves import search
from tff_dp.accounting.events import run_events
from tff_dp.advice import offers
from tff_dp.plans import protocol_plan

# Starting point of the search if amplification helps.
_AMPLIFIED_NOISE = 0.6
# Relative distance of the noise from the least noise, because a trial takes
# seconds.
_CLOSE = 0.01
_MOST_NOISE = 1e9


def relation_of(
    setting: offers.Setting, plan: protocol_plan.ProtocolPlan
) -> run_events.NeighboringRelation:
  """Returns the relation of an offer. Local reports have only one relation."""
  if plan.is_local:
    return plan.neighboring_relation
  return run_events.NeighboringRelation(setting.neighboring_relation)


def slots(setting: offers.Setting) -> int:
  """Returns the number of rounds of one pass.

  It is the number of rounds of the run divided by the number of passes, rounded
  up. So the passes together may have a few rounds more than the run.
  """
  return -(-setting.rounds // setting.num_passes)


def least_noise_multiplier(
    setting: offers.Setting,
    plan_of: Callable[[float], protocol_plan.ProtocolPlan],
    *,
    reports: int,
    known: float = math.inf,
) -> float:
  """Returns nearly the least noise multiplier of a plan within the budget.

  The epsilon of the returned multiplier was computed and is within the budget.
  The multiplier has at most four digits.

  Args:
    setting: Known facts.
    plan_of: Function that returns the plan with some noise multiplier.
    reports: Largest number of reports of one client.
    known: Least noise multiplier of the plans that were tried before. If this
      plan needs more, the result is infinity.

  Raises:
    ArgumentError: If even the largest noise that is tried costs more.
  """
  base = plan_of(1.0)
  relation = relation_of(setting, base)

  def epsilon_at(noise):
    return plan_of(noise).epsilon(
        delta=setting.delta, neighboring_relation=relation
    )

  if known < math.inf and epsilon_at(known) > setting.epsilon:
    return math.inf
  start = calibration.noise_multiplier(
      epsilon=setting.epsilon,
      delta=setting.delta,
      squared_sensitivity=reports,
      neighboring_relation=relation,
  )
  if base.bound != 'none':
    start = min(start, _AMPLIFIED_NOISE)
  return least(
      epsilon_at,
      lambda noise: offers.shortened(noise, 4),
      start=start,
      target=setting.epsilon,
  )


def least(
    epsilon_at: Callable[[float], float],
    parameter_of: Callable[[float], float],
    *,
    start: float,
    target: float,
) -> float:
  """Returns a parameter for nearly the least noise that meets the target.

  The epsilon of the returned parameter was computed and is within the target.

  Args:
    epsilon_at: Function from a parameter to its epsilon.
    parameter_of: Function from an amount of noise to the parameter that sets
      it. It rounds to few digits, so that people can copy the parameter.
    start: First amount of noise to try.
    target: Largest allowed epsilon.

  Raises:
    ArgumentError: If even the largest noise that is tried costs more.
  """
  noise = search.least_within(
      target,
      lambda noise: epsilon_at(parameter_of(noise)),
      start,
      most=_MOST_NOISE,
      tolerance=_CLOSE,
  )
  if noise == math.inf:
    raise _checks.ArgumentError(
        'epsilon',
        target,
        'a larger epsilon: the largest noise that is tried costs more',
    )
  return parameter_of(noise)


def offer(
    setting: offers.Setting,
    plan: protocol_plan.ProtocolPlan,
    stddev: float,
    *,
    noise: tuple[Any, ...],
    command: tuple[Any, ...],
    python: str,
    **fields: Any,
) -> offers.Offer:
  """Returns the `offers.Offer` of a plan.

  Args:
    setting: Known facts.
    plan: Plan with the noise of the offer.
    stddev: Standard deviation of the noise on the mean of a round.
    noise: Words of the command that set the noise. The first two are a flag and
      its value.
    command: Words of the command that states the epsilon, without the noise.
    python: Code that makes `plan`.
    **fields: Further fields of the offer.
  """
  protocol, passes = plan.protocol, plan.num_passes
  relation = relation_of(setting, plan)
  certificate = plan.certificate(
      delta=setting.delta, neighboring_relation=relation
  )
  if plan.bound != 'best':
    noise += ('--bound', plan.bound)
  arguments = f'delta={setting.delta!r}'
  if not plan.is_local:
    noise += ('--neighboring-relation', relation)
    arguments = offers.arguments(setting)
  planned = '' if plan.num_rounds == setting.rounds else (
      f'; {passes} pass{"es" * (passes > 1)} of {protocol.num_rounds} steps'
  )
  return offers.offer(
      setting,
      stddev,
      neighboring_relation=relation.value,
      noise={noise[0].strip('-').replace('-', '_'): noise[1]},
      epsilon=certificate.epsilon,
      epsilon_no_amplification=certificate.epsilon_no_amplification,
      participation=f'{protocol.participation}{planned}',
      assumptions=(*certificate.assumptions, *protocol.assumptions),
      command=offers.account(*command, *noise, '--delta', setting.delta),
      python=f'import tff_dp\n{python}\nprint(plan.epsilon({arguments}))',
      **{'trust': protocol.trust} | fields,
  )


def options_of(plan: protocol_plan.ProtocolPlan) -> str:
  """Returns Python code: the arguments for a plan's passes and bound."""
  text = f', num_passes={plan.num_passes}' if plan.num_passes > 1 else ''
  if plan.bound != 'best':
    text += f', bound={plan.bound!r}'
  return text
