# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans of private integer sums: each silo's noise and the privacy loss.

All three plans run the same round and differ only in the noise distribution:

    a silo rounds each of its K clipped records to a grid of h steps from -C to
    C (`integer_sums`), adds them up, and adds its own share of noise once.
    Only the sum over all silos is opened.

Adjacency: one record is replaced. A record is protected by the noise of all
silos in the sum, so every bound is for the smallest promised number of honest
silos. If the server works together with all other silos, only the silo's own
share of noise protects its records. Their epsilon is then `silo_epsilon`, which
is much larger.
"""

import abc
from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting.curves import search
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_sums
from tff_dp.systems.silos import record_events


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumPlan(abc.ABC):
  """The public facts about one sum of integer vectors.

  Attributes:
    grid: Number h of steps of the grid from -C to C, with clip norm C.
    records_per_silo: Number K of records of every silo in a sum.
    min_silos: Number of silos whose noise is promised to be in every sum.
  """

  grid: int
  records_per_silo: int
  min_silos: int

  def __post_init__(self):
    _checks.integer_at_least(1, records_per_silo=self.records_per_silo)
    _checks.integer_at_least(1, min_silos=self.min_silos)
    self.dp_event(dimension=1)  # Checks the rest.

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """Name of the noise, one of `NOISES`."""

  @property
  @abc.abstractmethod
  def share_variance(self) -> float:
    """Variance of a silo's own noise, per coordinate, in squared grid steps."""

  @property
  @abc.abstractmethod
  def share_law(self) -> integer_noise.IntegerLaw:
    """Distribution of a silo's own noise, on one coordinate."""

  def share_table(self) -> integer_noise.Table:
    """Returns the table from which a silo draws its own noise."""
    return integer_noise.table(self.share_law, mean=self._share_mean)

  @property
  def _share_mean(self) -> float:
    return 0.0

  def epsilon(
      self, delta: float, *, dimension: int, num_rounds: int = 1
  ) -> float:
    """Returns epsilon of all sums that contain a record. Upper bound.

    Draws follow the distribution of the noise only up to `distance`. Epsilon
    includes the cost of that.

    Args:
      delta: Target delta, in (0, 1).
      dimension: Length d of the vectors.
      num_rounds: Number of sums that contain the same record, 1 for one pass.
    """
    event = self.dp_event(dimension=dimension)
    distance = self.distance(dimension=dimension, num_rounds=num_rounds)
    return counted(
        lambda left: integer_sums.epsilon(event, left, num_rounds=num_rounds),
        delta,
        distance,
    )

  def distance(self, *, dimension: int, num_rounds: int = 1) -> float:
    """Returns the total variation between all draws and their distributions.

    Upper bound, apart from rounding in the probabilities of `share_law`. The
    draws are the promised shares in all sums that contain a record. All other
    draws do not depend on the record.

    Args:
      dimension: Length d of the vectors.
      num_rounds: Number of sums that contain the same record.
    """
    draws = self.min_silos * dimension * num_rounds
    return draws * integer_noise.distance(self.share_law)

  @abc.abstractmethod
  def dp_event(self, *, dimension: int) -> record_events.SumDpEvent:
    """Returns the event of one opened sum, for a record in it.

    The event counts the noise of `min_silos` silos.

    Args:
      dimension: Length d of the vectors.
    """

  def silo_epsilon(
      self, delta: float, *, dimension: int, num_rounds: int = 1
  ) -> float:
    """Returns epsilon if a silo's own share is all the noise. Upper bound.

    For the arguments see `epsilon`.
    """
    alone = dataclasses.replace(self, min_silos=1)
    return alone.epsilon(delta, dimension=dimension, num_rounds=num_rounds)

  @property
  def largest_message(self) -> int:
    """The largest integer that a silo sends. The smallest is 0."""
    table = self.share_table()
    return self.records_per_silo * self.grid + table.upper - table.lower

  def bits(self, num_silos: int) -> int:
    """Returns the bits of one coordinate of a sum over `num_silos` silos."""
    _checks.integer_at_least(1, num_silos=num_silos)
    return (num_silos * self.largest_message).bit_length()

  def noise_variance(self, l2_norm_clip: float, *, num_silos: int) -> float:
    """Returns the variance of the noise on a coordinate of the decoded mean.

    Exact, without the variance of the rounding, which is at most (C / h)^2 / (M
    K).

    Args:
      l2_norm_clip: Clip norm C.
      num_silos: Number of silos M in the sum.
    """
    _checks.clip_norm(l2_norm_clip=l2_norm_clip)
    _checks.integer_at_least(1, num_silos=num_silos)
    step = 2.0 * l2_norm_clip / self.grid
    count = num_silos * self.records_per_silo
    return step**2 * num_silos * self.share_variance / count**2

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON types, for `from_json`."""
    return {'noise': self.name} | dataclasses.asdict(self)

  def release_facts(
      self, *, l2_norm_clip: float, dimension: int
  ) -> dict[str, Any]:
    """Returns the facts that the guarantee of a sum rests on, as JSON types."""
    return {
        'mechanism': 'secure_sum',
        'sums': self.to_json(),
        'l2_norm_clip': float(l2_norm_clip),
        'dimension': int(dimension),
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinomialPlan(SumPlan):
  """Binomial(b, p) noise of every record (after arXiv:2106.09805).

  Attributes:
    trials: Number of trials b.
    probability: Success probability p, at most 1/2.
  """

  trials: int
  probability: float = 0.5

  name = 'binomial'

  @property
  def share_variance(self) -> float:
    prob = self.probability
    return self.records_per_silo * self.trials * prob * (1.0 - prob)

  @property
  def share_law(self) -> integer_noise.IntegerLaw:
    trials = self.records_per_silo * self.trials
    return integer_noise.binomial(trials, self.probability)

  @property
  def _share_mean(self) -> float:
    return self.records_per_silo * self.trials * self.probability

  def dp_event(self, *, dimension):
    return record_events.BinomialSumDpEvent(
        self.grid,
        self.trials,
        self.min_silos * self.records_per_silo,
        dimension,
        self.probability,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkellamPlan(SumPlan):
  """Skellam noise of every silo, whose sum is Skellam too (arXiv:2110.04995).

  Attributes:
    variance: Variance of a silo's own share, in squared grid steps.
  """

  variance: float

  name = 'skellam'

  def __post_init__(self):
    _checks.positive(variance=self.variance)
    super().__post_init__()

  @property
  def share_variance(self) -> float:
    return float(self.variance)

  @property
  def share_law(self) -> integer_noise.IntegerLaw:
    return integer_noise.skellam(float(self.variance))

  def dp_event(self, *, dimension):
    # Rounded down. Claiming less noise than there is costs tightness only.
    total = self.min_silos * self.variance * (1 - 1e-15)
    return record_events.SkellamSumDpEvent(self.grid, total, dimension)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianPlan(SumPlan):
  """Discrete Gaussian noise of every silo (arXiv:2102.06387).

  Attributes:
    stddev: Parameter of a silo's own share, in grid steps, at least 1/2.
  """

  stddev: float

  name = 'discrete-gaussian'

  @property
  def share_variance(self) -> float:
    return self.share_law.variance

  @property
  def share_law(self) -> integer_noise.IntegerLaw:
    return integer_noise.discrete_gaussian(float(self.stddev))

  def dp_event(self, *, dimension):
    return record_events.DiscreteGaussianSumDpEvent(
        self.grid, self.stddev, self.min_silos, dimension
    )


_BY_NOISE = {
    'binomial': BinomialPlan,
    'skellam': SkellamPlan,
    'discrete-gaussian': DiscreteGaussianPlan,
}
NOISES = tuple(_BY_NOISE)
# Relative width at which the search for noise ends, and its upper end.
_TOLERANCE = 5e-5
_MOST_NOISE = 1 << 40
# In `counted`: the margin of a guess, the number of guesses, and an epsilon
# whose exponential still is a number.
_CLOSE = 1e-6
_MOST_GUESSES = 50
_MOST_EPSILON = 700.0


def counted(
    epsilon_at: Callable[[float], float], delta: float, distance: float
) -> float:
  """Returns epsilon of draws whose distributions are slightly wrong.

  Upper bound. Let tau be the total variation between the draws and the
  distributions that are accounted for. If the distributions give (epsilon, d),
  the draws give (epsilon, d + (1 + e^epsilon) tau), as in
  `draws.missing_delta`.

  Args:
    epsilon_at: Function from a delta to the epsilon of the distributions.
    delta: Target delta, in (0, 1).
    distance: Total variation tau.

  Returns:
    The epsilon. It is infinite if tau costs all of delta, if the epsilon would
    be above 700, or if the search for an epsilon does not end.
  """
  guess = epsilon_at(delta)
  for _ in range(_MOST_GUESSES):
    # A little above the guess, so that the first answer is most often within.
    above = guess * (1 + _CLOSE) + _CLOSE
    if above > _MOST_EPSILON:
      return math.inf
    left = delta - (1 + math.exp(above)) * distance
    if left <= 0:
      return math.inf
    found = epsilon_at(left)
    if found <= above:
      return found
    guess = found
  return math.inf


def from_json(described: Mapping[str, Any]) -> SumPlan:
  """Returns the plan from the output of `to_json`."""
  fields = dict(described)
  noise = fields.pop('noise')
  _checks.one_of(NOISES, noise=noise)
  return _BY_NOISE[noise](**fields)


def calibrate(
    noise: str,
    *,
    epsilon: float,
    delta: float,
    dimension: int,
    grid: int,
    records_per_silo: int,
    min_silos: int,
    num_rounds: int = 1,
) -> SumPlan:
  """Returns the plan with nearly the least noise of its kind in the budget.

  The epsilon of the plan, an upper bound, is at most `epsilon`. There are two
  steps:

  * A search finds the noise that is enough if draws follow their distributions
    exactly. This is the least number of trials for binomial noise, else the
    least noise up to 5 parts in 10^5.
  * Draws differ a little from their distributions (`SumPlan.distance`). Where
    this matters, more noise is tried until it is enough. This happens only for
    a large epsilon and a small delta.

  Args:
    noise: Kind of noise, one of `NOISES`.
    epsilon: Privacy budget, above 0.
    delta: Target delta, above 0 and at most 0.1.
    dimension: Length d of the vectors.
    grid: Number h of steps of the grid.
    records_per_silo: Number K of records of every silo in a sum.
    min_silos: Number of honest silos promised to be in every sum.
    num_rounds: Number of sums that contain the same record, 1 for one pass.

  Raises:
    ArgumentError: If a value is outside its range, or if no noise that can be
      drawn is enough for the budget.
  """
  _checks.one_of(NOISES, noise=noise)
  _checks.integer_at_least(1, records_per_silo=records_per_silo)
  _checks.integer_at_least(1, min_silos=min_silos)
  _checks.delta(delta=delta)
  shape = dict(
      grid=grid, records_per_silo=records_per_silo, min_silos=min_silos
  )
  _checks.positive(epsilon=epsilon)

  event_of = {
      'binomial': lambda trials: record_events.BinomialSumDpEvent(
          grid, trials, min_silos * records_per_silo, dimension
      ),
      'skellam': lambda variance: record_events.SkellamSumDpEvent(
          grid, variance, dimension
      ),
      'discrete-gaussian': lambda stddev: (
          record_events.DiscreteGaussianSumDpEvent(
              grid, stddev, min_silos, dimension
          )
      ),
  }[noise]
  is_discrete_gaussian = noise == 'discrete-gaussian'

  def is_private(amount):
    if is_discrete_gaussian and amount < record_events.LEAST_STDDEV:
      return False
    event = event_of(amount)
    return integer_sums.epsilon(event, delta, num_rounds=num_rounds) <= epsilon

  if noise == 'binomial':
    # More flips are post-processing of fewer, so bisection finds the smallest
    # number.
    amount = search.least(is_private, 1, most=_MOST_NOISE)
  else:
    amount = search.least(is_private, most=_MOST_NOISE, tolerance=_TOLERANCE)
  refused = _checks.ArgumentError(
      'epsilon',
      epsilon,
      'a larger budget: no noise that can be drawn stays within this one',
  )
  if amount == math.inf:
    raise refused

  def plan_of(amount):
    if noise == 'binomial':
      return BinomialPlan(trials=amount, **shape)
    if is_discrete_gaussian:
      return DiscreteGaussianPlan(stddev=amount, **shape)
    # Rounded up, so that the shares add up to the calibrated variance.
    return SkellamPlan(variance=amount / min_silos * (1 + 1e-14), **shape)

  def is_within(amount):
    spent = plan_of(amount).epsilon(
        delta, dimension=dimension, num_rounds=num_rounds
    )
    return spent <= epsilon

  # The search ignores what the tables of the draws miss, which is little.
  for _ in range(_MOST_GUESSES):
    if is_within(amount):
      return plan_of(amount)
    amount *= 1 + _TOLERANCE
    if noise == 'binomial':
      amount = math.ceil(amount)
  # But e^epsilon times that is too much for a large epsilon and a small delta.
  # More noise has a smaller epsilon.
  amount = search.least(
      is_within, amount, most=_MOST_NOISE, tolerance=_TOLERANCE
  )
  if amount == math.inf:
    raise refused
  return plan_of(amount)
