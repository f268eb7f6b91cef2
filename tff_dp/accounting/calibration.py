# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a privacy target to the noise that meets it."""

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
  relation = run_events.NeighboringRelation(neighboring_relation)
  sigma = gaussian.sigma_for(epsilon=epsilon, delta=delta, method=method)
  multiplier = sigma * math.sqrt(
      squared_sensitivity * relation.squared_sensitivity_factor
  )
  # The product and the quotient round on their own: end on the private side.
  while (
      run_events.effective_sigma(
          noise_multiplier=multiplier,
          squared_sensitivity=squared_sensitivity,
          neighboring_relation=relation,
      )
      < sigma
  ):
    multiplier = math.nextafter(multiplier, math.inf)
  return multiplier
