# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private sums of integers with Skellam or discrete Gaussian noise.

The practical alternatives to binomial noise (`vector_sum`, which says how
records become integers and what neighbours do to their sum): every silo adds
its share, and a secure sum opens nothing but the total. Adjacency: one record
is replaced.
"""

from collections.abc import Callable
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.integers import integer_noise

# Of Renyi divergences, where a theorem asks for integers.
_INTEGER_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 384, 512, 1024, 4096)
_LARGEST_NOISE = float(1 << 40)


def skellam_epsilon(
    *, variance: float, delta: float, grid: int, dimension: int,
    num_rounds: int = 1,
) -> float:
  """Returns epsilon of a sum whose noise is Skellam of that variance.

  Upper bound: the least of `skellam_divergence`, at distances that include
  rounding, and, for d = 1, of the exact hockey-stick divergence. Sums of
  Skellam noise are Skellam: the variance is that of all promised shares.

  Args:
    variance: Of the noise of one coordinate of the sum.
    delta: In (0, 1).
    grid: h.
    dimension: d.
    num_rounds: Sums of which one record is a part.
  """
  _checks.positive(variance=variance)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, grid=grid)
  _checks.integer_at_least(1, dimension=dimension)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  if dimension == 1:
    profile = integer_noise.profile(
        integer_noise.skellam(float(variance)), shift=grid
    )
    return privacy_profiles.composed_epsilon(profile, delta, count=num_rounds)
  divergences, orders = skellam_divergences(
      variance=variance, grid=grid, dimension=dimension
  )
  return integer_noise.epsilon_of_renyi(
      num_rounds * divergences, delta=delta, orders=orders
  )


def skellam_divergences(
    *, variance: float, grid: int, dimension: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (Renyi divergences of one sum, their orders). Upper bound.

  Args:
    variance: Of the noise of one coordinate of the sum.
    grid: h.
    dimension: d.
  """
  l2 = integer_noise.rounded_l2_distance(grid, dimension=dimension)
  l1 = integer_noise.rounded_l1_distance(l2, dimension=dimension)
  divergences = [
      skellam_divergence(
          order=order, l1_distance=l1, l2_distance=l2, variance=variance
      )
      for order in _INTEGER_ORDERS
  ]
  return np.array(divergences), np.array(_INTEGER_ORDERS, np.float64)


def skellam_divergence(
    *, order: int, l1_distance: float, l2_distance: float, variance: float
) -> float:
  """Returns the Renyi divergence of a shift under Skellam noise.

  Upper bound, for integers alpha > 1 (arXiv:2110.04995, section 3):
  alpha D2^2 / (2 v) + min(((2 alpha - 1) D2^2 + 6 D1) / (4 v^2), 3 D1 / (2 v)).

  Args:
    order: alpha.
    l1_distance: D1 of the two integer vectors.
    l2_distance: D2.
    variance: v, of each coordinate's noise.
  """
  _checks.integer_at_least(2, order=order)
  squared = l2_distance**2
  rest = min(
      ((2 * order - 1) * squared + 6 * l1_distance) / (4 * variance**2),
      3 * l1_distance / (2 * variance),
  )
  return (order * squared / (2 * variance) + rest) * (1 + 1e-12)


def calibrate_skellam_sum(
    *, grid: int, epsilon: float, delta: float, dimension: int,
    num_rounds: int = 1,
) -> float:
  """Returns the least variance of Skellam noise within the budget.

  Upper bound, by less than a part in 10^4.
  """
  _checks.positive(epsilon=epsilon)

  def is_private(variance):
    spent = skellam_epsilon(
        variance=variance,
        delta=delta,
        grid=grid,
        dimension=dimension,
        num_rounds=num_rounds,
    )
    return spent <= epsilon

  return _least_real(is_private)


def discrete_gaussian_epsilon(
    *,
    local_stddev: float,
    num_shares: int,
    delta: float,
    grid: int,
    dimension: int,
    num_rounds: int = 1,
) -> float:
  """Returns epsilon of a sum whose noise is n discrete Gaussian shares.

  Upper bound: `discrete_gaussian_concentration` at distances that include
  rounding. Shares of discrete Gaussian noise do not add up to one: its tau is
  the price, negligible where the shares are wider than a step.

  Args:
    local_stddev: sigma, the parameter of one share, in steps of the grid.
    num_shares: n, promised: all that are in the sum.
    delta: In (0, 1).
    grid: h.
    dimension: d.
    num_rounds: Sums of which one record is a part.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.integer_at_least(1, grid=grid)
  divergences, orders = discrete_gaussian_divergences(
      local_stddev=local_stddev,
      num_shares=num_shares,
      grid=grid,
      dimension=dimension,
  )
  return integer_noise.epsilon_of_renyi(
      num_rounds * divergences, delta=delta, orders=orders
  )


def discrete_gaussian_divergences(
    *, local_stddev: float, num_shares: int, grid: int, dimension: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (Renyi divergences of one sum, their orders). Upper bound.

  Args:
    local_stddev: sigma, the parameter of one share, in steps of the grid.
    num_shares: n.
    grid: h.
    dimension: d.
  """
  l2 = integer_noise.rounded_l2_distance(grid, dimension=dimension)
  rho = discrete_gaussian_concentration(
      local_stddev=local_stddev,
      num_shares=num_shares,
      l1_distance=integer_noise.rounded_l1_distance(l2, dimension=dimension),
      l2_distance=l2,
      dimension=dimension,
  )
  orders = np.concatenate([integer_noise.ORDERS, np.arange(2.0, 64.0, 0.5)])
  return rho * orders, orders


def discrete_gaussian_concentration(
    *,
    local_stddev: float,
    num_shares: int,
    l1_distance: float,
    l2_distance: float,
    dimension: int,
) -> float:
  """Returns rho of zero-concentrated DP, with noise of n discrete Gaussians.

  Upper bound (arXiv:2102.06387, proposition 14): rho = eps^2 / 2 with
  eps^2 the least of D2^2 / (n s^2) + tau d / 2,
  D2^2 / (n s^2) + 2 D1 tau / (sqrt(n) s) + tau^2 d and
  (D2 / (sqrt(n) s) + tau sqrt(d))^2, and
  tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k + 1)).

  Args:
    local_stddev: s, at least 1/2.
    num_shares: n.
    l1_distance: D1 of the two integer vectors.
    l2_distance: D2.
    dimension: d.
  """
  _checks.positive(local_stddev=local_stddev)
  if local_stddev < 0.5:
    raise _checks.ArgumentError(
        'local_stddev', local_stddev, 'at least 1/2, as the theorem asks'
    )
  _checks.integer_at_least(1, num_shares=num_shares)
  _checks.integer_at_least(1, dimension=dimension)
  # Each further share adds at most exp(-2 pi^2 s^2 k / (k + 1)), which falls.
  exact = np.arange(1, min(num_shares, 10_000), dtype=np.float64)
  squared = 2 * (math.pi * local_stddev) ** 2
  tau = float(np.exp(-squared * exact / (exact + 1)).sum())
  if num_shares > 10_000:
    tau += (num_shares - 10_000) * math.exp(-squared * 10_000 / 10_001)
  tau = 10 * tau * (1 + 1e-9)
  stddev = math.sqrt(num_shares) * local_stddev
  base = l2_distance / stddev
  found = min(
      base**2 + 0.5 * tau * dimension,
      base**2 + 2 * l1_distance / stddev * tau + tau**2 * dimension,
      (base + tau * math.sqrt(dimension)) ** 2,
  )
  return 0.5 * found * (1 + 1e-12)


def calibrate_discrete_gaussian_sum(
    *,
    grid: int,
    num_shares: int,
    epsilon: float,
    delta: float,
    dimension: int,
    num_rounds: int = 1,
) -> float:
  """Returns the least stddev of one share within the budget, at least 1/2.

  Upper bound, by less than a part in 10^4.
  """
  _checks.positive(epsilon=epsilon)

  def is_private(stddev):
    if stddev < 0.5:
      return False
    spent = discrete_gaussian_epsilon(
        local_stddev=stddev,
        num_shares=num_shares,
        delta=delta,
        grid=grid,
        dimension=dimension,
        num_rounds=num_rounds,
    )
    return spent <= epsilon

  return _least_real(is_private)


def _least_real(is_private: Callable[[float], bool]) -> float:
  low, high = 0.0, 1.0
  while not is_private(high):
    low, high = high, 2 * high
    if high > _LARGEST_NOISE:
      raise _checks.ArgumentError('variance', high, 'a budget that can be met')
  while high - low > 5e-5 * high:
    middle = 0.5 * (low + high)
    if is_private(middle):
      high = middle
    else:
      low = middle
  return high
