# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The part of a privacy statement that only local check-ins have."""

import math
from typing import Any

from tff_dp.accounting import rounding
from tff_dp.mechanisms import randomizers
from tff_dp.statement import builder

_SENTENCES = """
setting.model: local noise; what the protocol adds to it is under amplification
unit.contribution_bound: a report of a client is {report}
"""
_GAUSSIAN = """
mechanism.local_guarantee: of one report for replace-one: that of Gaussian noise
    of {plan.noise_multiplier:g} clip norms on a difference of two clip norms;
    the accounting uses its whole privacy profile, or the best pair (epsilon0,
    delta0) of it
"""
_PURE = """
mechanism.local_guarantee: epsilon0 = {epsilon}, delta0 = {delta}, of one report
    for replace-one
"""


def points(plan) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `CheckInPlan`.
  """
  epsilon, delta = plan.randomizer.local_epsilon, plan.randomizer.local_delta
  is_pure = epsilon < math.inf
  said = builder.sentences(
      _SENTENCES + (_PURE if is_pure else _GAUSSIAN),
      plan=plan,
      report=_report(plan),
      epsilon=rounding.rounded_up(epsilon),
      delta=rounding.rounded_up(delta),
  )
  return said | {'mechanism.randomizer': plan.randomizer.describe()}


def _report(plan) -> str:
  """Returns the bound on one report, as the end of a sentence."""
  clip, norm = plan.l2_norm_clip, 'L2'
  if clip is None:
    clip, norm = getattr(plan.randomizer, 'l1_norm_clip', None), 'L1'
  if clip is None and isinstance(plan.randomizer, randomizers.Declared):
    return 'whatever the declared randomizer makes of all its data'
  if clip is None:
    return 'one of the categories'
  return (
      f'one vector of {norm} norm at most {clip:g}, whatever its number of'
      ' examples'
  )
