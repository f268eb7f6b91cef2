# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy loss of a record in private sums of integer vectors.

A record x of norm at most C becomes t = (x + C) h / (2 C) on a grid of h steps.
Each coordinate is rounded at random to one of its two neighbours, and integer
noise is added. Only the sum over all records and silos is opened. Adjacency:
one record x is replaced by x'. Round both with the same coins. Then the sum
moves by an integer vector s with max |s_j| <= h and ||s||_2 <= h + sqrt(d),
where d is the length of the vectors. The reason: ||t - t'|| is at most h, and
rounding changes each coordinate of t - t' by less than 1.

There are three kinds of noise:

*   Binomial. Every record brings its own noise, after arXiv:2106.09805. There,
  users send h + b bits per coordinate and record through a shuffler, and the
  bits reveal only their sum.
*   Skellam. Every silo adds a share, and the sum of the shares is Skellam too.
*   Discrete Gaussian shares, one from every silo.

For one number, d = 1, binomial and Skellam noise cost their exact hockey-stick
divergence. Everything else is bounded by Renyi divergences.
"""

import functools
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import renyi
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import record_events

# Source of the bound on each event.
SOURCES = {
    record_events.BinomialSumDpEvent: (
        'systems.silos.integer_sums; after arXiv:2106.09805'
    ),
    record_events.SkellamSumDpEvent: 'arXiv:2110.04995',
    record_events.DiscreteGaussianSumDpEvent: 'arXiv:2102.06387',
}
# Orders of Renyi divergences where a theorem needs integers.
_INTEGER_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 384, 512, 1024, 4096)
# Largest grid h of vectors, because every shift of one coordinate up to h is
# tried.
_LARGEST_GRID_OF_VECTORS = 256


def epsilon(
    event: record_events.SumDpEvent, delta: float, *, num_rounds: int = 1
) -> float:
  """Returns epsilon of sums that contain a record. Upper bound.

  Args:
    event: Event of one sum, with all noise that is promised to be in it.
    delta: Target delta, in (0, 1).
    num_rounds: Number of sums that contain the same record, 1 for one pass.

  Raises:
    ArgumentError: If a value is out of range, if the noise has too many
      probable values for a table, or if vectors with binomial noise have a grid
      of more than 256 steps.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  law = _law_of_number(event)
  if law is not None:
    return composition.epsilon([part(event, num_rounds)], delta)
  divergences, orders, left_out = renyi_divergences(event)
  return renyi.epsilon(
      num_rounds * divergences,
      delta=delta - num_rounds * left_out,
      orders=orders,
  )


def part(
    event: record_events.SumDpEvent, num_rounds: int
) -> composition.Part:
  """Returns one `Part` of a composition for all sums that contain a record.

  Upper bound, like `epsilon`. The divergences of the sums add up even if other
  results are released between the sums.

  Args:
    event: Event of one of the sums.
    num_rounds: Number of sums.
  """
  law = _law_of_number(event)
  if law is not None:
    # The divergence of the distribution from its shift by s grows with |s|.
    profile = integer_noise.profile(law, shift=event.grid)
    return composition.Part(profile, num_rounds)
  divergences, orders, left_out = renyi_divergences(event)
  return composition.Part(
      renyi.profile(
          num_rounds * divergences,
          orders=orders,
          outside=num_rounds * left_out,
      )
  )


@functools.lru_cache(maxsize=64)
def renyi_divergences(
    event: record_events.SumDpEvent,
) -> tuple[np.ndarray, np.ndarray, float]:
  """Returns (Renyi divergences of one sum, orders, left-out probability).

  Upper bounds. The last number is the probability of leaving the window in
  which the divergences are taken.

  Args:
    event: Event of the sum.

  Raises:
    ArgumentError: If binomial noise has too many probable values for a table,
      or a grid of more than 256 steps.
  """
  divergences, orders, left_out = _renyi_divergences(event)
  # Results are cached, and epsilon comes from them.
  divergences.setflags(write=False)
  orders.setflags(write=False)
  return divergences, orders, left_out


def _renyi_divergences(
    event: record_events.SumDpEvent,
) -> tuple[np.ndarray, np.ndarray, float]:
  dimension = event.dimension
  l2 = integer_noise.rounded_l2_distance(event.grid, dimension=dimension)
  l1 = integer_noise.rounded_l1_distance(l2, dimension=dimension)
  if type(event) is record_events.BinomialSumDpEvent:
    _checks.integer_between(1, _LARGEST_GRID_OF_VECTORS, grid=event.grid)
    per_square, left_out = integer_noise.renyi_per_square(
        _binomial(event), largest_shift=event.grid
    )
    # At most d coordinates can leave the window.
    moved = min(dimension, math.floor(l2**2 * (1 + 1e-12)))
    orders = np.array(integer_noise.ORDERS)
    return l2**2 * per_square, orders, moved * left_out
  if type(event) is record_events.SkellamSumDpEvent:
    divergences = [
        skellam_divergence(
            order=order,
            l1_distance=l1,
            l2_distance=l2,
            variance=event.variance,
        )
        for order in _INTEGER_ORDERS
    ]
    return np.array(divergences), np.array(_INTEGER_ORDERS, np.float64), 0.0
  rho = discrete_gaussian_concentration(
      local_stddev=event.stddev,
      num_shares=event.num_shares,
      l1_distance=l1,
      l2_distance=l2,
      dimension=dimension,
  )
  orders = np.concatenate([integer_noise.ORDERS, np.arange(2.0, 64.0, 0.5)])
  return rho * orders, orders, 0.0


def skellam_divergence(
    *, order: int, l1_distance: float, l2_distance: float, variance: float
) -> float:
  """Returns the Renyi divergence of a shift under Skellam noise.

  Upper bound, for integers alpha > 1 (arXiv:2110.04995, section 3):

      alpha D2^2 / (2 v)
          + min(((2 alpha - 1) D2^2 + 6 D1) / (4 v^2), 3 D1 / (2 v))

  Args:
    order: Order alpha.
    l1_distance: L1 distance D1 of the two integer vectors.
    l2_distance: L2 distance D2 of the two integer vectors.
    variance: Variance v of each coordinate's noise.
  """
  _checks.integer_at_least(2, order=order)
  squared = l2_distance**2
  rest = min(
      ((2 * order - 1) * squared + 6 * l1_distance) / (4 * variance**2),
      3 * l1_distance / (2 * variance),
  )
  return (order * squared / (2 * variance) + rest) * (1 + 1e-12)


def discrete_gaussian_concentration(
    *,
    local_stddev: float,
    num_shares: int,
    l1_distance: float,
    l2_distance: float,
    dimension: int,
) -> float:
  """Returns rho of zero-concentrated DP for a sum of n discrete Gaussians.

  Shares of discrete Gaussian noise do not add up to a discrete Gaussian. So the
  bound has the extra term tau, which is negligible if s is 2 steps or more.

  Upper bound (arXiv:2102.06387, proposition 14): rho = eps^2 / 2, where eps^2
  is the smallest of

      D2^2 / (n s^2) + tau d / 2
      D2^2 / (n s^2) + 2 D1 tau / (sqrt(n) s) + tau^2 d
      (D2 / (sqrt(n) s) + tau sqrt(d))^2

  with tau = 10 sum_{k=1}^{n-1} exp(-2 pi^2 s^2 k / (k + 1)).

  Args:
    local_stddev: Parameter s of a share, at least 1/2.
    num_shares: Number of shares n.
    l1_distance: L1 distance D1 of the two integer vectors.
    l2_distance: L2 distance D2 of the two integer vectors.
    dimension: Length d of the vectors.
  """
  # Each further share adds at most exp(-2 pi^2 s^2 k / (k + 1)), which falls in
  # k.
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


def _law_of_number(event) -> integer_noise.IntegerLaw | None:
  """Returns the distribution of all noise in a sum of numbers, or `None`.

  It is `None` for vectors and for discrete Gaussian shares.
  """
  if event.dimension > 1:
    return None
  if type(event) is record_events.BinomialSumDpEvent:
    return _binomial(event)
  if type(event) is record_events.SkellamSumDpEvent:
    return integer_noise.skellam(event.variance)
  return None


def _binomial(event) -> integer_noise.IntegerLaw:
  return integer_noise.binomial(
      event.num_records * event.trials, event.probability
  )
