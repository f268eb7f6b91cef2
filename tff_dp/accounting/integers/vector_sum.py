# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Private sums of vectors of integers, with binomial noise.

A record x of norm at most C becomes t = (x + C) h / (2 C) on a grid of h steps,
each coordinate is rounded at random to one of its two neighbours, and integer
noise is added. Only the sum over all records and silos is opened. Adjacency:
one record is replaced. With the same coins for rounding both, the sum moves by
an integer vector s with max |s_j| <= h and ||s||_2 <= h + sqrt(d): ||t - t'||
is at most h, and rounding changes no coordinate of it by 1.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.integers import integer_noise

# For more than one dimension every shift up to h is tried.
_LARGEST_GRID_OF_VECTORS = 256
_MOST_TRIALS = 1 << 40


@dataclasses.dataclass(frozen=True)
class BinomialSum:
  """The vector sum with Binomial(b, p) added by every record.

  After arXiv:2106.09805, whose users send h + b bits per coordinate and record
  through a shuffler; their sum is all that those bits tell.

  Attributes:
    grid: h, steps of the grid from -C to C.
    trials: b, coin flips added for each record and coordinate.
    probability: p of each, at most 1/2.
    num_records: m, the records whose noise is promised to be in the sum.
  """

  grid: int
  trials: int
  num_records: int
  probability: float = 0.5

  def __post_init__(self):
    _checks.integer_at_least(1, grid=self.grid)
    _checks.integer_at_least(1, trials=self.trials)
    _checks.integer_at_least(1, num_records=self.num_records)
    _checks.in_closed(0.0, 0.5, probability=self.probability)
    _checks.positive(probability=self.probability)

  @property
  def required_range(self) -> int:
    """How many values a sum over m records can take: m (h + b) + 1."""
    return self.num_records * (self.grid + self.trials) + 1

  def variance(self, l2_norm_clip: float) -> float:
    """Returns the variance of a decoded coordinate of the sum.

    Upper bound, nearly attained: (2 C / h)^2 m (b p (1 - p) + 1/4), of the
    noise and of rounding. Divide by m^2 for the mean.
    """
    _checks.clip_norm(l2_norm_clip=l2_norm_clip)
    noise = self.trials * self.probability * (1 - self.probability)
    step = 2 * float(l2_norm_clip) / self.grid
    return step**2 * self.num_records * (noise + 0.25)

  def profile(self) -> privacy_profiles.Profile:
    """Returns the profile of one sum of numbers, d = 1. Exact up to rounding.

    The rounded record moves by at most h, and the hockey-stick divergence of
    Binomial(m b, p) against itself moved by s grows with |s|.
    """
    return integer_noise.profile(self._law(), shift=self.grid)

  def rounds_part(self, num_rounds: int, *, dimension: int) -> composition.Part:
    """Returns the sums in which a record is, to compose with other releases.

    Upper bound, as `epsilon`.

    Args:
      num_rounds: How many.
      dimension: d.
    """
    if dimension == 1:
      return composition.Part(self.profile(), num_rounds)
    divergences, outside = divergences_of_vectors(
        self._law(), grid=self.grid, dimension=dimension
    )
    profile = integer_noise.profile_of_renyi(
        num_rounds * divergences,
        orders=integer_noise.ORDERS,
        outside=num_rounds * outside,
    )
    return composition.Part(profile)

  def _law(self) -> integer_noise.IntegerLaw:
    return integer_noise.binomial(
        self.num_records * self.trials, self.probability
    )

  def epsilon(
      self, delta: float, *, dimension: int = 1, num_rounds: int = 1
  ) -> float:
    """Returns epsilon of sums of vectors of d numbers, in which a record is.

    Upper bound; for d = 1 and one round exact up to rounding. For more
    dimensions by the Renyi divergence of each coordinate, with what is outside
    of its window added to delta.

    Args:
      delta: In (0, 1).
      dimension: d.
      num_rounds: Sums of which one record is a part; 1 for one pass.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    _checks.integer_at_least(1, dimension=dimension)
    _checks.integer_at_least(1, num_rounds=num_rounds)
    if dimension == 1 and num_rounds == 1:
      return privacy_profiles.epsilon_of(self.profile(), delta)
    if dimension == 1:
      return privacy_profiles.composed_epsilon(
          self.profile(), delta, count=num_rounds
      )
    return epsilon_of_vectors(
        self._law(),
        delta=delta,
        grid=self.grid,
        dimension=dimension,
        num_rounds=num_rounds,
    )

  def silo_epsilon(
      self, delta: float, *, num_records: int, dimension: int = 1,
      num_rounds: int = 1
  ) -> float:
    """Returns the epsilon that a silo's own noise gives it alone.

    That is against a server that sees this silo's sum, or against all other
    silos together. Upper bound.

    Args:
      delta: In (0, 1).
      num_records: K, the silo's records in each sum.
      dimension: d.
      num_rounds: As in `epsilon`.
    """
    alone = dataclasses.replace(self, num_records=num_records)
    return alone.epsilon(delta, dimension=dimension, num_rounds=num_rounds)

  def describe(self) -> dict[str, Any]:
    """Returns the fields and what follows from them, as JSON types."""
    return dataclasses.asdict(self) | {'required_range': self.required_range}


def calibrate_binomial_sum(
    *,
    grid: int,
    num_records: int,
    epsilon: float,
    delta: float,
    probability: float = 0.5,
    dimension: int = 1,
    num_rounds: int = 1,
) -> BinomialSum:
  """Returns the sum with the fewest coin flips within the budget.

  Exact for d = 1, up to rounding; more dimensions by an upper bound on what
  they cost. More flips are post-processing of fewer, so bisection finds them.

  Args:
    grid: h.
    num_records: m, promised: of the fewest silos whose sum is ever opened.
    epsilon: The budget, above 0.
    delta: In (0, 1).
    probability: p.
    dimension: d.
    num_rounds: Sums of which one record is a part.
  """
  _checks.positive(epsilon=epsilon)

  def is_private(trials):
    candidate = BinomialSum(grid, trials, num_records, probability)
    spent = candidate.epsilon(
        delta, dimension=dimension, num_rounds=num_rounds
    )
    return spent <= epsilon

  return BinomialSum(grid, _least(is_private), num_records, probability)


def epsilon_of_vectors(
    law: integer_noise.IntegerLaw,
    *,
    delta: float,
    grid: int,
    dimension: int,
    num_rounds: int = 1,
) -> float:
  """Returns epsilon of integer vectors with independent noise of one law.

  Upper bound: `integer_noise.renyi_per_square` times (h + sqrt(d))^2, and d or
  fewer coordinates can leave the window, in each round.
  """
  divergences, outside = divergences_of_vectors(
      law, grid=grid, dimension=dimension
  )
  return integer_noise.epsilon_of_renyi(
      num_rounds * divergences,
      delta=delta - num_rounds * outside,
      orders=integer_noise.ORDERS,
  )


def divergences_of_vectors(
    law: integer_noise.IntegerLaw, *, grid: int, dimension: int
) -> tuple[np.ndarray, float]:
  """Returns Renyi divergences of one sum, and what they leave out.

  Upper bound: the orders are `integer_noise.ORDERS`, and the second number is
  the probability of leaving the window in which they are taken.
  """
  _checks.integer_between(1, _LARGEST_GRID_OF_VECTORS, grid=grid)
  per_square, left_out = integer_noise.renyi_per_square(
      law, largest_shift=grid, orders=integer_noise.ORDERS
  )
  squared = integer_noise.rounded_l2_distance(grid, dimension=dimension) ** 2
  moved = min(dimension, math.floor(squared * (1 + 1e-12)))
  return squared * per_square, moved * left_out


def _least(is_private: Callable[[int], bool]) -> int:
  """Returns the least integer from 1 on for which a predicate holds."""
  high = 1
  while not is_private(high):
    high *= 2
    if high > _MOST_TRIALS:
      raise _checks.ArgumentError('trials', high, 'a budget that can be met')
  low = high // 2
  while high - low > 1:
    middle = (low + high) // 2
    if is_private(middle):
      high = middle
    else:
      low = middle
  return high
