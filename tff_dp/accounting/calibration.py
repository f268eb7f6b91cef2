# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a privacy target to the noise that meets it."""

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

  Rounded upward: accounting for the result with the same arguments never gives
  more than `epsilon`. Rounding it down for print loses that.

  Args:
    epsilon: The target for the whole run, above 0.
    delta: In the open interval (0, 1).
    squared_sensitivity: S2 in squared clip norms, for zero-out.
    method: 'exact', or 'rdp' for comparison with papers.
    neighboring_relation: The relation under which epsilon shall hold.

  Returns:
    The std of one node's noise on the SUM, over the clip norm.
  """
  _checks.positive(squared_sensitivity=squared_sensitivity)
  sigma = gaussian.sigma_for(epsilon=epsilon, delta=delta, method=method)
  sigma_of = functools.partial(
      run_events.effective_sigma,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=neighboring_relation,
  )
  multiplier = sigma / sigma_of(noise_multiplier=1.0)
  # Quotients round on their own: end on the private side.
  while sigma_of(noise_multiplier=multiplier) < sigma:
    multiplier = math.nextafter(multiplier, math.inf)
  return multiplier
