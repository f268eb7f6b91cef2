# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of Renyi divergences to epsilon and delta.

Canonne, Kamath and Steinke, arXiv:2004.00010, proposition 12, for any order
alpha > 1. Rounding errors are bounded and added.
"""

from collections.abc import Sequence
import math

import numpy as np

from tff_dp.accounting.curves import privacy_profiles

_ROUNDING = float(np.finfo(np.float64).eps)


def epsilon(
    divergences: Sequence[float] | np.ndarray, *, delta: float, orders: Sequence[float] | np.ndarray
) -> float:
  """Returns epsilon at delta from Renyi divergences of some orders.

  Upper bound: the smallest of `epsilons`, or 0 if that is negative. Infinity if
  delta is not above 0.

  Args:
    divergences: Divergence D of each order.
    delta: Target delta, below 1.
    orders: Orders alpha > 1.
  """
  if not delta > 0:
    return math.inf
  above_one = np.asarray(orders, np.float64) - 1
  found = epsilons(divergences, delta=delta, above_one=above_one)
  return max(0.0, float(np.min(found)))


def epsilons(
    divergences: Sequence[float] | np.ndarray, *, delta: float, above_one: np.ndarray
) -> np.ndarray:
  """Returns the epsilon that each order alpha gives at delta, rounded up:

      D + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1).

  Args:
    divergences: Divergences D, one for each order.
    delta: Target delta, in (0, 1).
    above_one: alpha - 1, which may be so small that alpha rounds to 1.
  """
  log_order = np.log1p(above_one)
  terms = (
      np.asarray(divergences, np.float64),
      np.log(above_one),
      -log_order,
      -math.log(delta) / above_one,
      -log_order / above_one,
  )
  return sum(terms) + 16 * _ROUNDING * sum(np.abs(term) for term in terms)


def profile(
    divergences: Sequence[float] | np.ndarray,
    *,
    orders: Sequence[float] | np.ndarray,
    outside: float = 0.0,
) -> privacy_profiles.Profile:
  """Returns the privacy profile that Renyi divergences of some orders give.

  Upper bound, the inverse of the function `epsilon`. At a value e, delta is the
  minimum over alpha of exp((alpha - 1) (D + ln(1 - 1/alpha) - e)) / alpha.

  Args:
    divergences: Divergence D of each order, the larger one of both directions
      or a bound on it, shape [num_orders].
    orders: Orders alpha > 1.
    outside: Probability of the outcomes that the divergences leave out. It is
      added to delta.
  """
  alphas = np.asarray(orders, np.float64)
  starts = np.asarray(divergences, np.float64) + np.log1p(-1 / alphas)

  def deltas(epsilons):
    epsilons = np.asarray(epsilons, np.float64)[..., np.newaxis]
    exponents = (alphas - 1) * (starts - epsilons) - np.log(alphas)
    size = (alphas - 1) * (np.abs(starts) + epsilons) + np.log(alphas)
    exponents = exponents + 16 * _ROUNDING * (1 + size)
    with np.errstate(under='ignore'):
      least = np.exp(np.minimum(exponents.min(axis=-1), 0.0))
    return np.minimum(least + outside, 1.0)

  return deltas
