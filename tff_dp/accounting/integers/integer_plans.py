# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans of private integer sums: the noise of every silo, and what it costs.

A round of all three plans is the same but for the law of the noise:

    a silo rounds each of its K clipped records to a grid of h steps from -C to
    C (`vector_sum`), adds them up, and adds its own share of noise once;
    nothing but the sum over all silos is opened.

Adjacency: one record is replaced. What protects a record is the noise of all
silos in the sum, so every bound is for the least number of honest silos that is
promised. What a silo's own share gives it alone, against a server that works
together with all others, is `silo_epsilon`: much less.
"""

import abc
import dataclasses
import functools
from typing import Any

from tff_dp import _checks
from tff_dp.accounting.events import record_events
from tff_dp.accounting.integers import integer_noise
from tff_dp.accounting.integers import integer_sums
from tff_dp.accounting.integers import integer_tables
from tff_dp.accounting.integers import vector_sum


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
    _checks.integer_at_least(1, grid=self.grid)
    _checks.integer_at_least(1, records_per_silo=self.records_per_silo)
    _checks.integer_at_least(1, min_silos=self.min_silos)

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """As in `NOISES`."""

  @property
  @abc.abstractmethod
  def share_variance(self) -> float:
    """Variance of a silo's own noise, per coordinate, in steps of the grid."""

  @abc.abstractmethod
  def share_table(self) -> integer_tables.Table:
    """Returns what a silo draws its own noise from."""

  @abc.abstractmethod
  def epsilon(
      self, delta: float, *, dimension: int, num_rounds: int = 1
  ) -> float:
    """Returns epsilon of the sums that a record is a part of. Upper bound.

    Args:
      delta: In (0, 1).
      dimension: d, length of the vectors.
      num_rounds: Sums of which one record is a part; 1 for one pass.
    """

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
    """Returns JSON types."""
    return {'noise': self.name} | dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BinomialPlan(SumPlan):
  """Binomial(b, p) noise for every record (`vector_sum.BinomialSum`).

  Attributes:
    trials: b.
    probability: p, at most 1/2.
  """

  trials: int
  probability: float = 0.5

  def __post_init__(self):
    super().__post_init__()
    self._sum()  # Checks the rest.

  @property
  def name(self) -> str:
    return 'binomial'

  @property
  def share_variance(self) -> float:
    prob = self.probability
    return self.records_per_silo * self.trials * prob * (1.0 - prob)

  def share_table(self) -> integer_tables.Table:
    return _binomial_table(
        self.records_per_silo * self.trials, self.probability
    )

  def epsilon(self, delta, *, dimension, num_rounds=1):
    return self._sum().epsilon(
        delta, dimension=dimension, num_rounds=num_rounds
    )

  def dp_event(self, *, dimension):
    return record_events.BinomialSumDpEvent(
        self.grid,
        self.trials,
        self.min_silos * self.records_per_silo,
        dimension,
        self.probability,
    )

  def _sum(self) -> vector_sum.BinomialSum:
    return vector_sum.BinomialSum(
        self.grid,
        self.trials,
        self.min_silos * self.records_per_silo,
        self.probability,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkellamPlan(SumPlan):
  """Skellam noise of every silo; sums of it are Skellam (arXiv:2110.04995).

  Attributes:
    variance: Of a silo's own share, in squared steps.
  """

  variance: float

  def __post_init__(self):
    super().__post_init__()
    _checks.positive(variance=self.variance)

  @property
  def name(self) -> str:
    return 'skellam'

  @property
  def share_variance(self) -> float:
    return float(self.variance)

  def share_table(self) -> integer_tables.Table:
    return _skellam_table(float(self.variance))

  def epsilon(self, delta, *, dimension, num_rounds=1):
    return integer_sums.skellam_epsilon(
        variance=self._total,
        delta=delta,
        grid=self.grid,
        dimension=dimension,
        num_rounds=num_rounds,
    )

  def dp_event(self, *, dimension):
    return record_events.SkellamSumDpEvent(self.grid, self._total, dimension)

  @property
  def _total(self) -> float:
    """Variance of all promised shares."""
    # Rounded down: less noise than there is costs more.
    return self.min_silos * self.variance * (1 - 1e-15)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DiscreteGaussianPlan(SumPlan):
  """Discrete Gaussian noise of every silo (arXiv:2102.06387).

  Attributes:
    stddev: The parameter of a silo's own share, in steps, at least 1/2.
  """

  stddev: float

  def __post_init__(self):
    super().__post_init__()
    _checks.positive(stddev=self.stddev)

  @property
  def name(self) -> str:
    return 'discrete-gaussian'

  @property
  def share_variance(self) -> float:
    return integer_noise.discrete_gaussian(float(self.stddev)).variance

  def share_table(self) -> integer_tables.Table:
    return _discrete_gaussian_table(float(self.stddev))

  def epsilon(self, delta, *, dimension, num_rounds=1):
    return integer_sums.discrete_gaussian_epsilon(
        local_stddev=self.stddev,
        num_shares=self.min_silos,
        delta=delta,
        grid=self.grid,
        dimension=dimension,
        num_rounds=num_rounds,
    )

  def dp_event(self, *, dimension):
    return record_events.DiscreteGaussianSumDpEvent(
        self.grid, self.stddev, self.min_silos, dimension
    )


NOISES = ('binomial', 'skellam', 'discrete-gaussian')


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
  budget = dict(
      grid=grid,
      epsilon=epsilon,
      delta=delta,
      dimension=dimension,
      num_rounds=num_rounds,
  )
  if noise == 'binomial':
    found = vector_sum.calibrate_binomial_sum(
        num_records=min_silos * records_per_silo, **budget
    )
    return BinomialPlan(trials=found.trials, **shape)
  if noise == 'skellam':
    total = integer_sums.calibrate_skellam_sum(**budget)
    # Upward, so that the shares add up to what was calibrated.
    return SkellamPlan(variance=total / min_silos * (1 + 1e-14), **shape)
  stddev = integer_sums.calibrate_discrete_gaussian_sum(
      num_shares=min_silos, **budget
  )
  return DiscreteGaussianPlan(stddev=stddev, **shape)


@functools.lru_cache(maxsize=8)
def _binomial_table(trials: int, probability: float) -> integer_tables.Table:
  law = integer_noise.binomial(trials, probability)
  return integer_tables.build(law, mean=trials * probability)


@functools.lru_cache(maxsize=8)
def _skellam_table(variance: float) -> integer_tables.Table:
  return integer_tables.build(integer_noise.skellam(variance), mean=0.0)


@functools.lru_cache(maxsize=8)
def _discrete_gaussian_table(stddev: float) -> integer_tables.Table:
  law = integer_noise.discrete_gaussian(stddev)
  return integer_tables.build(law, mean=0.0)
