# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Integer noise on integer sums: hockey-stick and Renyi divergences of shifts.

Every distribution f here is log-concave (binomial, Skellam, discrete Gaussian).
Then f(x) / f(x - s) falls in x, so the worst set against a shift s is a
half-line, and the hockey-stick divergence H_E (`privacy_profiles`) grows with
|s|. One coordinate that moves by at most h therefore costs at most as much as a
move of exactly h.

A silo draws from a `table`. The value `lower + i` has the weight w_i =
round(2^62 P(X = lower + i)). The most likely value also gets the remainder of
the rounding. So all weights add up to 2^62, and 62 uniform bits pick a value.
The table ends 14 standard deviations and 40 values from the mean, if the
distribution does not end before. Values outside of it, and values of weight 0,
are never drawn. `distance` bounds the total variation between a draw and its
distribution. The epsilon of a `SumPlan` includes the cost of this distance.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import special
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles

# Number of standard deviations that a table covers. The rest is charged.
_REACH = 14.0
_MARGIN = 40
# Generous relative error of `ive` for the orders and arguments in use.
_BESSEL_ERROR = 1e-8
_MOST_VALUES = 1 << 22
# SciPy 1.9 and 1.18 give NaN for `ive` from 2^30 on.
_MOST_VARIANCE = 1e9
_ROUNDING = float(np.finfo(np.float64).eps)
# Orders of Renyi divergences: dense near 1, then sparser.
ORDERS = tuple(1 + np.geomspace(0.05, 2000.0, 36))
# Number of random bits of a draw from a table.
BITS = 62
# Largest table to draw from: 16 MiB in the computation that a silo runs.
_MOST_DRAWN = 1 << 21


@dataclasses.dataclass(frozen=True, eq=False)
class IntegerLaw:
  """A log-concave distribution of integers, tabulated around its mean.

  Attributes:
    lower: First integer of the table.
    probs: Probabilities of the integers from `lower` on, shape [num_values].
    outside: Bound on the probability of all other integers.
    error: Bound on the relative error of `probs`.
    variance: Variance of the distribution.
  """

  lower: int
  probs: np.ndarray
  outside: float
  error: float
  variance: float

  def __post_init__(self):
    # Distributions are cached, and epsilon comes from them.
    self.probs.setflags(write=False)


@functools.lru_cache(maxsize=64)
def binomial(trials: int, probability: float) -> IntegerLaw:
  """Returns the distribution Binomial(trials, probability)."""
  _checks.integer_at_least(1, trials=trials)
  _checks.in_open(0.0, 1.0, probability=probability)
  variance = trials * probability * (1 - probability)
  reach = _REACH * math.sqrt(variance) + _MARGIN
  low = max(0, math.floor(trials * probability - reach))
  high = min(trials, math.ceil(trials * probability + reach))
  _check_size(high - low, 'trials', trials)
  values = np.arange(low, high + 1)
  with np.errstate(divide='ignore', under='ignore'):
    outside = stats.binom.cdf(low - 1, trials, probability)
    outside = outside + stats.binom.sf(high, trials, probability)
    probs = stats.binom.pmf(values, trials, probability)
  error = privacy_profiles.BINOMIAL_ERROR
  outside = float(outside) * (1 + error)
  return IntegerLaw(low, probs, outside, error, variance)


@functools.lru_cache(maxsize=64)
def skellam(variance: float) -> IntegerLaw:
  """Returns the distribution of a difference of two Poisson variables.

  Each of the two has mean v / 2, where v is the variance. Exact up to rounding:
  the probability of k is exp(-v) I_|k|(v), with I the modified Bessel function.
  Sums of independent Skellam variables are Skellam.

  Args:
    variance: Variance v, at most 10^9: beyond, SciPy has no Bessel function.

  Raises:
    ArgumentError: If v is larger.
  """
  _checks.positive(variance=variance)
  if variance > _MOST_VARIANCE:
    raise _checks.ArgumentError(
        'variance',
        variance,
        f'at most {_MOST_VARIANCE:g} squared steps: choose a coarser grid',
    )
  reach = math.ceil(_REACH * math.sqrt(variance) + _MARGIN)
  _check_size(2 * reach, 'variance', variance)
  values = np.arange(-reach, reach + 1)
  with np.errstate(under='ignore'):
    probs = special.ive(np.abs(values), float(variance))
  # Chernoff: P(X > r) <= exp(v (cosh t - 1) - t r), best at sinh t = r / v.
  best = math.asinh(reach / variance)
  exponent = variance * (math.cosh(best) - 1) - best * reach
  outside = 2 * math.exp(min(0.0, exponent))
  return IntegerLaw(-reach, probs, outside, _BESSEL_ERROR, float(variance))


@functools.lru_cache(maxsize=64)
def discrete_gaussian(stddev: float) -> IntegerLaw:
  """Returns the distribution proportional to exp(-x^2 / (2 s^2)).

  Exact up to rounding. Its variance is at most s^2 (arXiv:2004.00010, corollary
  9). Sums of discrete Gaussians are not discrete Gaussian.

  Args:
    stddev: Parameter s.
  """
  _checks.positive(stddev=stddev)
  reach = math.ceil(_REACH * stddev + _MARGIN)
  _check_size(2 * reach, 'stddev', stddev)
  values = np.arange(-reach, reach + 1, dtype=np.float64)
  with np.errstate(under='ignore'):
    weights = np.exp(-0.5 * (values / stddev) ** 2)
  probs = weights / weights.sum()
  # Beyond the reach r the weights fall at least as fast as a geometric
  # sequence.
  ratio = math.exp(-reach / stddev**2)
  with np.errstate(under='ignore'):
    outside = 2 * float(np.exp(-0.5 * (reach / stddev) ** 2))
  outside *= ratio / (-math.expm1(-reach / stddev**2))
  variance = float(probs @ values**2)
  # Rounding of squares of up to a few hundred and of their exponentials.
  error = 1e3 * _ROUNDING * (1 + _REACH**2)
  return IntegerLaw(-reach, probs, outside, error, variance)


@functools.lru_cache(maxsize=64, typed=True)
def profile(law: IntegerLaw, *, shift: int) -> privacy_profiles.Profile:
  """Returns the profile of one coordinate that moves by at most `shift`.

  With E = exp(epsilon), delta is the sum over all x of max(f(x) - E f(x - s),
  0), or the same sum with f(x + s), whichever is larger. Upper bound: bounds on
  rounding and on the probability outside of the table are added. A move by more
  than the width of the table has delta 1. Results are cached: see
  `privacy_profiles.composed_epsilon`.

  Args:
    law: Distribution f of the noise.
    shift: Shift s, at least 0.
  """
  _checks.integer_at_least(0, shift=shift)
  sides = [_Side.of(law, shift), _Side.of(_mirrored(law), shift)]

  def both(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    return np.maximum(*(side(epsilons) for side in sides))

  return both


@dataclasses.dataclass(frozen=True, eq=False)
class _Side:
  """The function sum_x max(f(x) - E f(x - s), 0) of epsilon = ln E.

  Its terms are positive up to the x where f(x) / f(x - s) falls to E.
  """

  log_ratios: np.ndarray  # ln f(x) - ln f(x - s), falling.
  heads: np.ndarray  # sum of f up to x, from the left.
  moved: np.ndarray  # sum of f(. - s) up to x.
  outside: float
  error: float

  @classmethod
  def of(cls, law, shift):
    # f(x - s) at the same x. It is unknown, so 0, where the table ends.
    probs = law.probs
    moved = np.zeros_like(probs)
    if shift < len(probs):
      moved[shift:] = probs[: len(probs) - shift]
    with np.errstate(divide='ignore', invalid='ignore'):
      log_ratios = np.log(probs) - np.log(moved)
    # Both underflow: left of the mean f(. - s) has no mass left.
    log_ratios = np.where(np.isnan(log_ratios), math.inf, log_ratios)
    # Rounding must not break the order that the search needs.
    log_ratios = np.minimum.accumulate(log_ratios)
    return cls(
        log_ratios,
        np.concatenate([[0.0], np.cumsum(probs)]),
        np.concatenate([[0.0], np.cumsum(moved)]),
        law.outside,
        law.error,
    )

  def __call__(self, epsilons):
    # The number of ratios above epsilon.
    cut = np.searchsorted(-self.log_ratios, -epsilons, side='left')
    heads = self.heads[cut]
    log_moved = np.log(np.maximum(self.moved[cut], 1e-320))
    product = np.where(
        self.moved[cut] > 0, np.exp(np.minimum(epsilons + log_moved, 0.0)), 0.0
    )
    found = np.maximum(heads - product, 0.0)
    rounding = (self.error + len(self.heads) * _ROUNDING) * (heads + product)
    return np.minimum(found + rounding + self.outside, 1.0)


def renyi_per_square(
    law: IntegerLaw, *, largest_shift: int, orders: Sequence[float] = ORDERS
) -> tuple[np.ndarray, float]:
  """Returns (max over s of D_alpha(f || f moved by s) / s^2, mass left out).

  Both results are upper bounds, for 1 <= s <= largest_shift and both
  directions.

  The first result has one number for each order alpha. D_alpha is the Renyi
  divergence inside a window in which both f and the moved f have mass. So a
  shift by a vector s costs at most the first result times ||s||^2.

  The second result bounds the probability that one coordinate is outside of the
  window. There is no window if `law` has at most 2 largest_shift + 2 tabulated
  values. The results are then infinity and 1.

  Args:
    law: Distribution f of each coordinate.
    largest_shift: Bound on every |s_j|.
    orders: Orders alpha > 1, shape [num_orders].
  """
  _checks.integer_at_least(1, largest_shift=largest_shift)
  alphas = np.asarray(orders, np.float64)
  if len(law.probs) <= 2 * largest_shift + 2:
    return np.full(len(alphas), math.inf), 1.0
  is_symmetric = np.array_equal(law.probs, law.probs[::-1])
  sides = [law] if is_symmetric else [law, _mirrored(law)]
  worst = np.zeros(len(alphas))
  left_out = 0.0
  for side in sides:
    with np.errstate(divide='ignore'):
      logs = np.log(side.probs)
    for shift in range(1, largest_shift + 1):
      # Start at the first x with both f(x) and f(x - s) in the table.
      here, there = logs[shift:], logs[:-shift]
      usable = (here > -650) & (there > -650)
      here, there = here[usable], there[usable]
      left_out = max(
          left_out,
          law.outside
          + float(side.probs[:shift].sum())
          + float(side.probs[shift:][~usable].sum()),
      )
      exponents = here + (alphas[:, None] - 1) * (here - there)
      moments = special.logsumexp(exponents, axis=1)
      moments = moments + (2 * alphas - 1) * law.error + 1e-13
      worst = np.maximum(worst, moments / (alphas - 1) / shift**2)
  return worst, left_out * (1 + law.error) + 1e-300


def rounded_l2_distance(distance: float, *, dimension: int) -> float:
  """Returns the L2 distance of two vectors after rounding. Upper bound.

  The result is the smaller of distance + sqrt(d) and sqrt(d) ceil(distance).
  Both vectors are rounded with the same coins (joint convexity), so no
  coordinate of their difference changes by 1 or more.

  Args:
    distance: L2 distance before rounding, in grid steps.
    dimension: Length d of the vectors.
  """
  root = math.sqrt(dimension)
  return min(float(distance) + root, root * math.ceil(distance))


def rounded_l1_distance(l2_distance: float, *, dimension: int) -> float:
  """Returns min(sqrt(d), D) D, a bound on the L1 distance of integer vectors.

  Args:
    l2_distance: Largest L2 distance D of the two vectors.
    dimension: Length d of the vectors.
  """
  return float(l2_distance) * min(math.sqrt(dimension), float(l2_distance))


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """How to draw from a distribution of integers with 62 uniform bits.

  A number u from 0 to 2^62 - 1 stands for the value
  `lower + #{i: cumulative[i] <= u}`.

  Attributes:
    lower: Smallest value.
    cumulative: Cumulative sums of the weights, int64 of shape [num_values]. The
      last one is 2^62.
    mean: Mean of the distribution.
  """

  lower: int
  cumulative: np.ndarray
  mean: float

  def __post_init__(self):
    # Tables are cached, and noise is drawn from them.
    self.cumulative.setflags(write=False)

  @property
  def upper(self) -> int:
    """The largest value."""
    return self.lower + len(self.cumulative) - 1


# Distributions are cached and compare by identity.
@functools.lru_cache(maxsize=64)
def distance(law: IntegerLaw) -> float:
  """Returns the total variation between a draw from the table and `law`.

  Upper bound, apart from rounding errors in the probabilities of `law`. Each
  value of the table contributes 2^-62 / 2. The remainder of the rounding and
  the probability outside of the table are added to that.

  Args:
    law: Distribution.
  """
  weights, excess = _weights(law)
  return (len(weights) / 2 + abs(excess)) * 2.0**-BITS + law.outside


@functools.lru_cache(maxsize=24)
def table(law: IntegerLaw, *, mean: float) -> Table:
  """Returns the table of a distribution.

  Args:
    law: Distribution with at most 2^21 tabulated values.
    mean: Mean of the distribution.

  Raises:
    ArgumentError: If `law` has more tabulated values.
  """
  if len(law.probs) > _MOST_DRAWN:
    raise _checks.ArgumentError(
        'law',
        f'noise with {len(law.probs)} tabulated values',
        f'at most {_MOST_DRAWN} of them: choose a coarser grid (fewer steps)',
    )
  weights, _ = _weights(law)
  likely = np.flatnonzero(weights)
  first, last = int(likely[0]), int(likely[-1])
  return Table(
      lower=law.lower + first,
      cumulative=np.cumsum(weights[first : last + 1]),
      mean=float(mean),
  )


def _weights(law: IntegerLaw) -> tuple[np.ndarray, int]:
  """Returns (weights that add up to 2^62, remainder of rounding in them)."""
  # A product with a power of two is exact.
  weights = np.rint(np.ldexp(law.probs, BITS)).astype(np.int64)
  # The remainder of the rounding goes to the most likely value.
  excess = (1 << BITS) - int(weights.sum())
  weights[np.argmax(weights)] += excess
  return weights, excess


def _mirrored(law: IntegerLaw) -> IntegerLaw:
  """Returns the distribution of -X."""
  return dataclasses.replace(
      law,
      lower=-(law.lower + len(law.probs) - 1),
      probs=law.probs[::-1].copy(),
  )


def _check_size(num_values: float, name: str, value) -> None:
  if num_values > _MOST_VALUES:
    raise _checks.ArgumentError(
        name,
        value,
        f'noise whose table has at most {_MOST_VALUES} values: choose a coarser'
        ' grid',
    )
