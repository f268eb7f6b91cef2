# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Epsilon, delta and sigma of one Gaussian mechanism.

`sigma` is always sigma_eff: the standard deviation of the noise over the L2
sensitivity of everything that is released (`run_events.effective_sigma`). The
neighbouring relation is already part of sigma, so these functions do not take
one. Every epsilon, delta and calibrated sigma is an upper bound in floating
point too: rounding errors are bounded and added, and searches end on the
private side.
"""

from collections.abc import Callable
import functools
import math

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.curves import renyi
from tff_dp.accounting.curves import search

METHODS = ('exact', 'rdp')

_ROUNDING = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
_ROOT_HALF = math.sqrt(0.5)
# The standard normal density at this many stds is below the smallest float.
_MOST_STDS = 40.0
# A step in log(alpha - 1) of the first grid, and the points of every grid.
_GRID_STEP = 0.5
_GRID = np.arange(-32, 33, dtype=np.float64)
_REFINEMENTS = 6
# A grid moves by 16 in log(alpha - 1). The range of floats is far smaller than
# this many moves.
_MOST_GRIDS = 1000


def exact_delta(*, sigma: float, epsilon: float) -> float:
  """Returns the smallest delta for which epsilon holds, rounded upward.

  Exact (Balle and Wang, arXiv:1805.06530, theorem 8):

      Phi(1/(2 sigma) - epsilon sigma)
      - exp(epsilon) Phi(-1/(2 sigma) - epsilon sigma).

  Both terms share the factor exp(-x^2 / 2) with x = epsilon sigma - 1/(2
  sigma), so no power of e overflows.

  Args:
    sigma: Noise std over sensitivity. 0 gives delta 1.
    epsilon: Target epsilon, at least 0, may be infinite.
  """
  _check_sigma(sigma)
  if epsilon != math.inf:
    _checks.non_negative(epsilon=epsilon)
  if sigma == 0:
    return 1.0
  return _delta_upper(float(sigma), float(epsilon))


def profile(sigma: float) -> Callable[[np.ndarray], np.ndarray]:
  """Returns the privacy profile: a function from epsilons to `exact_delta`.

  Args:
    sigma: Noise std over sensitivity, above 0.
  """
  _checks.positive(sigma=sigma)
  sigma = float(sigma)

  def deltas(epsilons):
    epsilons = np.minimum(np.asarray(epsilons, np.float64), _enough(sigma))
    with np.errstate(over='ignore', invalid='ignore'):
      difference, slack = _delta_and_slack(sigma, epsilons)
      # NaN occurs only for a sigma near the smallest float, and becomes 1.
      return np.fmin(np.maximum(difference, 0.0) + slack, 1.0)

  return deltas


def exact_epsilon(*, sigma: float, delta: float) -> float:
  """Returns the smallest epsilon that holds at delta, rounded upward.

  Exact: the solution of `exact_delta(epsilon) = delta`. The result is 0 if
  delta is large enough, and infinity if sigma is 0.

  Args:
    sigma: Noise std over sensitivity.
    delta: Target delta, in the open interval (0, 1).
  """
  _check_sigma(sigma)
  _checks.in_open(0.0, 1.0, delta=delta)
  return _exact_epsilon(float(sigma), float(delta))


# A statement computes the same values again at every checkpoint of a run.
@functools.lru_cache(maxsize=1024)
def _exact_epsilon(sigma: float, delta: float) -> float:
  if sigma == 0:
    return math.inf
  is_private = lambda epsilon: _delta_upper(sigma, epsilon) <= delta
  return 0.0 if is_private(0.0) else search.least(is_private)


def rdp_epsilon(*, sigma: float, delta: float) -> float:
  """Returns the epsilon that Renyi DP gives at delta.

  Upper bound: the minimum of `renyi.epsilons` over real orders alpha > 1, with
  divergences alpha / (2 sigma^2). Any order gives a valid bound. A grid of
  orders is moved until the best order is inside the grid. Then the grid is
  refined around that order.

  Args:
    sigma: Noise std over sensitivity. 0 gives infinity.
    delta: Target delta, in the open interval (0, 1).
  """
  _check_sigma(sigma)
  _checks.in_open(0.0, 1.0, delta=delta)
  rho = zcdp_rho(sigma=sigma)
  if rho == math.inf:
    return math.inf
  # For small delta the optimum is near alpha - 1 = sqrt(log(1/delta) / rho).
  centre = 0.5 * (math.log(-math.log(delta)) - math.log(max(rho, _TINY)))
  step = _GRID_STEP
  refinements = 0
  best = math.inf
  for _ in range(_MOST_GRIDS):
    grid = centre + step * _GRID
    above_one = np.exp(grid)
    values = renyi.epsilons(
        (1 + above_one) * rho, delta=delta, above_one=above_one
    )
    index = int(np.argmin(values))
    centre = float(grid[index])
    best = min(best, float(values[index]))
    if 0 < index < len(grid) - 1:
      step *= 4 / len(grid)
      refinements += 1
    if refinements == _REFINEMENTS:
      break
  return max(0.0, best)


def zcdp_rho(*, sigma: float) -> float:
  """Returns rho = 1 / (2 sigma^2) of zero-concentrated DP. Exact."""
  _check_sigma(sigma)
  squared = float(sigma) * float(sigma)
  return 0.5 / squared if squared >= _TINY else math.inf


def sigma_for(*, epsilon: float, delta: float, method: str = 'exact') -> float:
  """Returns the smallest sigma whose epsilon at delta meets the target.

  Rounded upward: `exact_epsilon(sigma=result)` or `rdp_epsilon(sigma=result)`
  is at most `epsilon`.

  Args:
    epsilon: Target epsilon, above 0.
    delta: Target delta, in the open interval (0, 1).
    method: 'exact', or 'rdp' to compare with papers.
  """
  _checks.positive(epsilon=epsilon)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.one_of(METHODS, method=method)
  spend = {'exact': exact_epsilon, 'rdp': rdp_epsilon}[method]
  return search.least(lambda sigma: spend(sigma=sigma, delta=delta) <= epsilon)


def _check_sigma(sigma) -> None:
  _checks.non_negative(sigma=sigma)


def _delta_upper(sigma: float, epsilon: float) -> float:
  if not epsilon * sigma + 0.5 / sigma < math.inf:
    return 0.0 if epsilon == math.inf else 1.0
  difference, slack = _delta_and_slack(sigma, min(epsilon, _enough(sigma)))
  return float(min(1.0, max(0.0, difference) + slack))


def _enough(sigma: float) -> float:
  """Returns an epsilon at which delta is almost 0 in floats."""
  return (_MOST_STDS + 0.5 / sigma) / sigma


def _delta_and_slack(sigma: float, epsilons):
  """Returns (delta before clipping, bound on its rounding error).

  Args:
    sigma: Noise std over sensitivity.
    epsilons: A float or an array, at most `_enough(sigma)`.
  """
  half = 0.5 / sigma
  low, high = epsilons * sigma - half, epsilons * sigma + half
  density = np.exp(-0.5 * low * low)
  # exp(epsilon) Phi(-high) = density * mills / sqrt(2 pi), as
  # (high^2 - low^2) / 2 = epsilon.
  second = 0.5 * density * special.erfcx(high * _ROOT_HALF)
  # In the far tail, too, both terms share the rounding of the density.
  tail = 0.5 * density * special.erfcx(np.maximum(low, 0.0) * _ROOT_HALF)
  first = np.where(low > 0, tail, special.ndtr(-low))
  # The special functions are accurate to a few units in the last place, and the
  # exponentials to low^2 such units. `low` and `high` inherit the rounding of a
  # difference. The last line bounds how fast the terms change with either.
  shift = 2 * _ROUNDING * high
  slack = _ROUNDING * (first + second) * (16 + low * low)
  slack += shift * (2 * density + abs(low) * second)
  return first - second, slack + _TINY
