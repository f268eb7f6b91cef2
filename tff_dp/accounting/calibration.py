# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Calibration: the noise multiplier that meets a privacy target."""

import functools
import math

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    squared_sensitivity: float,
    method: str = 'exact',
    neighboring_relation: run_events.NeighboringRelation = (
        run_events.NeighboringRelation.ZERO_OUT
    ),
) -> float:
  """Returns the smallest noise multiplier that meets (epsilon, delta).

  The result is rounded upward: accounting for it with the same arguments never
  gives more than `epsilon`. There is one exception. For 'rdp',
  `accountants.epsilon` tries other Renyi orders, and may give slightly more.
  Rounding the result down for printing loses the guarantee.

  Args:
    epsilon: Target epsilon of the whole run, above 0.
    delta: Target delta, in the open interval (0, 1).
    squared_sensitivity: Squared sensitivity S2 in squared clip norms, for
      zero-out.
    method: 'exact', or 'rdp' to compare with papers.
    neighboring_relation: Relation under which epsilon must hold.

  Returns:
    Standard deviation of one draw of the mechanism, divided by the clip norm.
      The noise is on the sum of the updates, not on their mean.
  """
  _checks.positive(squared_sensitivity=squared_sensitivity)
  sigma = gaussian.sigma_for(epsilon=epsilon, delta=delta, method=method)
  sigma_of = functools.partial(
      run_events.effective_sigma,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=neighboring_relation,
  )
  multiplier = sigma / sigma_of(noise_multiplier=1.0)
  # The division rounds, too. Move up until the target holds.
  while sigma_of(noise_multiplier=multiplier) < sigma:
    multiplier = math.nextafter(multiplier, math.inf)
  return multiplier
