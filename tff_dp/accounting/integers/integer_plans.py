# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans of private integer sums: the noise of every silo, and what it costs.

A round of all three plans is the same but for the law of the noise:

    a silo rounds each of its K clipped records to a grid of h steps from -C to
    C (`integer_sums`), adds them up, and adds its own share of noise once;
    nothing but the sum over all silos is opened.

Adjacency: one record is replaced. What protects a record is the noise of all
silos in the sum, so every bound is for the least number of honest silos that is
promised. What a silo's own share gives it alone, against a server that works
together with all others, is `silo_epsilon`: much less.
"""

import abc
from collections.abc import Mapping
import dataclasses
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting.curves import search
from tff_dp.accounting.events import record_events
from tff_dp.accounting.integers import integer_noise
from tff_dp.accounting.integers import integer_sums


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumPlan(abc.ABC):
  """One sum of integer vectors: public facts only.

  Attributes:
    grid: h, steps of the grid from -C to C.
    records_per_silo: K, records of every silo in a sum.
    min_silos: Silos whose noise is promised to be in every sum.
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
    """As in `NOISES`."""

  @property
  @abc.abstractmethod
  def share_variance(self) -> float:
    """Variance of a silo's own noise, per coordinate, in steps of the grid."""

  @abc.abstractmethod
  def share_table(self) -> integer_noise.Table:
    """Returns what a silo draws its own noise from."""

  def epsilon(
      self, delta: float, *, dimension: int, num_rounds: int = 1
  ) -> float:
    """Returns epsilon of the sums that a record is a part of. Upper bound.

    Args:
      delta: In (0, 1).
      dimension: d, length of the vectors.
      num_rounds: Sums of which one record is a part; 1 for one pass.
    """
    event = self.dp_event(dimension=dimension)
    return integer_sums.epsilon(event, delta, num_rounds=num_rounds)

  @abc.abstractmethod
  def dp_event(self, *, dimension: int) -> record_events.SumDpEvent:
    """Returns what one opened sum is to a record in it.

    For the noise that is promised; `dataclasses.replace(plan, min_silos=1)` has
    that of a silo alone.

    Args:
      dimension: d, length of the vectors.
    """

  def silo_epsilon(
      self, delta: float, *, dimension: int, num_rounds: int = 1
  ) -> float:
    """Returns epsilon by the silo's own share alone, as `epsilon` does."""
    alone = dataclasses.replace(self, min_silos=1)
    return alone.epsilon(delta, dimension=dimension, num_rounds=num_rounds)

  @property
  def largest_message(self) -> int:
    """The largest integer that a silo sends; the least is 0."""
    table = self.share_table()
    return self.records_per_silo * self.grid + table.upper - table.lower

  def bits(self, num_silos: int) -> int:
    """Returns the bits of a coordinate of a sum over so many silos."""
    _checks.integer_at_least(1, num_silos=num_silos)
    return (num_silos * self.largest_message).bit_length()

  def noise_variance(self, l2_norm_clip: float, *, num_silos: int) -> float:
    """Returns the variance of the noise on a coordinate of the decoded mean.

    Exact, without that of rounding, which is at most (C / h)^2 / (M K).

    Args:
      l2_norm_clip: C.
      num_silos: M, in the sum.
    """
    _checks.clip_norm(l2_norm_clip=l2_norm_clip)
    _checks.integer_at_least(1, num_silos=num_silos)
    step = 2.0 * l2_norm_clip / self.grid
    count = num_silos * self.records_per_silo
    return step**2 * num_silos * self.share_variance / count**2

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types, for `from_json`."""
    return {'noise': self.name} | dataclasses.asdict(self)

  def release_facts(
      self, *, l2_norm_clip: float, dimension: int
  ) -> dict[str, Any]:
    """Returns all that the guarantee of a sum rests on, plain JSON types."""
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
    trials: b.
    probability: p, at most 1/2.
  """

  trials: int
  probability: float = 0.5

  name = 'binomial'

  @property
  def share_variance(self) -> float:
    prob = self.probability
    return self.records_per_silo * self.trials * prob * (1.0 - prob)

  def share_table(self) -> integer_noise.Table:
    trials = self.records_per_silo * self.trials
    law = integer_noise.binomial(trials, self.probability)
    return integer_noise.table(law, mean=trials * self.probability)

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
  """Skellam noise of every silo; sums of it are Skellam (arXiv:2110.04995).

  Attributes:
    variance: Of a silo's own share, in squared steps.
  """

  variance: float

  name = 'skellam'

  def __post_init__(self):
    _checks.positive(variance=self.variance)
    super().__post_init__()

  @property
  def share_variance(self) -> float:
    return float(self.variance)

  def share_table(self) -> integer_noise.Table:
    law = integer_noise.skellam(float(self.variance))
    return integer_noise.table(law, mean=0.0)

  def dp_event(self, *, dimension):
    # Rounded down: less noise than there is costs more.
    total = self.min_silos * self.variance * (1 - 1e-15)
    return record_events.SkellamSumDpEvent(self.grid, total, dimension)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianPlan(SumPlan):
  """Discrete Gaussian noise of every silo (arXiv:2102.06387).

  Attributes:
    stddev: The parameter of a silo's own share, in steps, at least 1/2.
  """

  stddev: float

  name = 'discrete-gaussian'

  @property
  def share_variance(self) -> float:
    return integer_noise.discrete_gaussian(float(self.stddev)).variance

  def share_table(self) -> integer_noise.Table:
    law = integer_noise.discrete_gaussian(float(self.stddev))
    return integer_noise.table(law, mean=0.0)

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
# The relative width at which the search for noise ends, and its upper end.
_TOLERANCE = 5e-5
_MOST_NOISE = 1 << 40


def from_json(described: Mapping[str, Any]) -> SumPlan:
  """Returns the plan that `to_json` described."""
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
  """Returns the plan with the least noise of its kind within the budget.

  Upper bound, as the `epsilon` of each plan; rounded upward.

  Args:
    noise: One of `NOISES`.
    epsilon: The budget, above 0.
    delta: In (0, 1).
    dimension: d, length of the vectors.
    grid: h.
    records_per_silo: K.
    min_silos: Honest silos that are promised to be in every sum.
    num_rounds: Sums of which one record is a part; 1 for one pass.
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
    # More flips are post-processing of fewer, so bisection finds the fewest.
    amount = search.least(is_private, 1, most=_MOST_NOISE)
  else:
    amount = search.least(is_private, most=_MOST_NOISE, tolerance=_TOLERANCE)
  if amount == math.inf:
    raise _checks.ArgumentError('epsilon', epsilon, 'a budget that can be met')
  if noise == 'binomial':
    return BinomialPlan(trials=amount, **shape)
  if is_discrete_gaussian:
    return DiscreteGaussianPlan(stddev=amount, **shape)
  # Upward, so that the shares add up to what was calibrated.
  return SkellamPlan(variance=amount / min_silos * (1 + 1e-14), **shape)
