# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests whether many draws of noise fit a plan.

First, rounds are decorrelated: if the mechanism gives a coordinate the
covariance K = L L' over rounds, then L^-1 turns its noise into independent
standard normals, one for each round. Then three tests share one false-alarm
rate. Two compare a variance with the chi-square distribution of normals: the
variance of each coordinate in each round, and the variance of all together. The
third tests the correlation of pairs of coordinates and rounds.

A malicious process may still tell real data from the data of the measurement.
"""

import dataclasses
import math

import numpy as np
from scipy import stats

from tff_dp.mechanisms import mechanism as mechanism_lib

# Probability that one of the three tests fails although the noise is right.
FALSE_ALARM = 1e-6
_SHARE = FALSE_ALARM / 3
_POWER = 0.999
# Number of columns whose pairs are tested.
_MOST_PAIRED = 128


@dataclasses.dataclass(frozen=True)
class Spread:
  """The measured spread of noise.

  Attributes:
    wrong: Deviation from the plan, '' if there is none.
    stddev: Standard deviation over all coordinates and decorrelated rounds,
      divided by the planned standard deviation.
    least_stddev: The least such ratio of a single coordinate in a single
      decorrelated round.
    largest_stddev: The largest such ratio.
    seen: Smallest deviation that the tests detect with probability 0.999, in
      words.
  """

  wrong: str
  stddev: float
  least_stddev: float
  largest_stddev: float
  seen: str


def covariance(
    mechanism: mechanism_lib.Mechanism, num_rounds: int
) -> np.ndarray:
  """Returns the covariance of a coordinate's noise in the first rounds.

  The result is exact, for draws of variance 1, of shape [num_rounds,
  num_rounds]. The mechanism is run on unit vectors, one for each draw.

  Args:
    mechanism: Mechanism that defines the noise of each round.
    num_rounds: Number of rounds, at most the rounds of one tree.
  """
  places = {}

  def run(size: int) -> list[np.ndarray]:
    def draw(level, index):
      place = places.setdefault((level, int(index)), len(places))
      unit = np.zeros(size)
      if place < size:
        unit[place] = 1.0
      return unit

    operations = mechanism_lib.numpy_operations(draw)
    buffers, rows = mechanism.initialize(np.zeros(size)), []
    for at_round in range(1, num_rounds + 1):
      noise, buffers = mechanism.next_noise(buffers, at_round, operations)
      rows.append(noise)
    return rows

  run(1)  # To count the draws.
  rows = np.stack(run(len(places)))
  return rows @ rows.T


def compare(
    drawn: np.ndarray, covariance_of_rounds: np.ndarray
) -> Spread:
  """Compares normal draws with the covariance that a plan states.

  Args:
    drawn: Noise plus a constant that is equal in all repetitions, shape
      [num_repetitions, num_rounds, num_params].
    covariance_of_rounds: Planned covariance of a coordinate over rounds, shape
      [num_rounds, num_rounds].
  """
  num, num_rounds, num_params = drawn.shape
  factor = np.linalg.cholesky(covariance_of_rounds)
  centred = drawn.astype(np.float64) - drawn.mean(axis=0, dtype=np.float64)
  white = np.linalg.solve(
      factor, centred.transpose(1, 0, 2).reshape(num_rounds, -1)
  )
  columns = white.reshape(num_rounds, num, num_params).transpose(1, 0, 2)
  columns = columns.reshape(num, -1)
  squares = (columns**2).sum(axis=0)
  degrees = num - 1
  least, most = _chi_square_bounds(degrees, _SHARE / len(squares))
  all_least, all_most = _chi_square_bounds(degrees * len(squares), _SHARE)
  wrong = []
  variances = squares / degrees
  if not np.isfinite(columns).all():
    wrong.append('it is not finite')
  elif not all_least <= squares.sum() <= all_most:
    wrong.append(
        'its standard deviation over all coordinates is'
        f' {math.sqrt(variances.mean()):.4g} of the planned one'
    )
  elif not (least <= squares).all() or not (squares <= most).all():
    wrong.append(
        'the standard deviation of a coordinate is'
        f' {math.sqrt(variances.min()):.4g} to {math.sqrt(variances.max()):.4g}'
        ' of the planned one'
    )
  else:
    correlation, bound = _largest_correlation(columns)
    if correlation > bound:
      wrong.append(
          'coordinates or rounds are correlated otherwise than planned, two of'
          f' them by {correlation:.2g}'
      )
  return Spread(
      '; '.join(wrong),
      *(
          float(np.sqrt(value))
          for value in (variances.mean(), variances.min(), variances.max())
      ),
      f'a coordinate with less than {_seen(degrees, least):.2g} and all with'
      f' less than {_seen(degrees * len(squares), all_least):.4g} of the'
      ' planned standard deviation',
  )


def _chi_square_bounds(degrees: int, share: float) -> tuple[float, float]:
  law = stats.chi2(degrees)
  return law.ppf(share / 2), law.isf(share / 2)


def _seen(degrees: int, least: float) -> float:
  """Returns the largest stddev that is found too small with probability 0.999.

  It is a share of the planned standard deviation. `least` is the bound below
  which a sum of squares, with this many degrees of freedom, is too small.
  """
  return math.sqrt(least / stats.chi2(degrees).ppf(_POWER))


def _largest_correlation(columns: np.ndarray) -> tuple[float, float]:
  """Returns (largest absolute correlation of two columns, its bound).

  Independent columns exceed the bound with probability at most `_SHARE`.
  """
  num, num_columns = columns.shape
  if num_columns < 2:
    return 0.0, 1.0
  places = np.unique(
      np.linspace(0, num_columns - 1, min(num_columns, _MOST_PAIRED), dtype=int)
  )
  found = np.corrcoef(columns[:, places].T)
  pairs = found[np.triu_indices(len(places), 1)]
  # For independent normals, r sqrt((n - 2) / (1 - r^2)) has Student's t
  # distribution.
  limit = stats.t(num - 2).isf(_SHARE / len(pairs) / 2)
  return float(np.abs(pairs).max()), limit / math.sqrt(num - 2 + limit**2)


def compare_laplace(drawn: np.ndarray, scale: float) -> Spread:
  """Compares Laplace draws with the scale that a plan states.

  It tests the variance over all coordinates. The sum of the squared draws is
  close to normally distributed.

  Args:
    drawn: Noise plus a constant that is equal in all repetitions, shape
      [num_repetitions, num_params], at least 1,000 numbers.
    scale: Scale in the plan.
  """
  num = len(drawn)
  centred = drawn.astype(np.float64) - drawn.mean(axis=0, dtype=np.float64)
  variances = (centred**2).sum(axis=0) / (num - 1) / (2 * scale**2)
  # The fourth moment of a Laplace draw is 6 squared variances.
  spread = math.sqrt(5.0 / centred.size)
  bound = stats.norm.isf(FALSE_ALARM / 2) * spread
  mean = float(variances.mean())
  wrong = ''
  if not abs(mean - 1.0) <= bound:
    wrong = (
        'its standard deviation over all coordinates is'
        f' {math.sqrt(mean):.4g} of the planned one'
    )
  seen = math.sqrt((1.0 - bound) / (1.0 + stats.norm.isf(1 - _POWER) * spread))
  return Spread(
      wrong,
      *(float(np.sqrt(v)) for v in (mean, variances.min(), variances.max())),
      f'all coordinates with less than {seen:.4g} of the planned standard'
      ' deviation',
  )


def bits_seen(num: int) -> int:
  """Returns the bits b that a key must have if `num` draws all differ.

  Let n be the number of draws from 2^b values. All differ with probability at
  most exp(-n (n - 1) / 2^(b + 1)). The result is the b at which this bound is
  FALSE_ALARM, rounded down.

  Args:
    num: Number n of draws.
  """
  pairs = num * (num - 1) / 2
  return max(0, math.floor(math.log2(pairs / -math.log(FALSE_ALARM))))


def constant_bits(words: np.ndarray) -> int:
  """Returns how many of the 64 bit positions are 0 or 1 too often.

  Args:
    words: Supposedly independent, uniform int64 words, shape [n].
  """
  bits = (words.astype(np.uint64)[:, None] >> np.arange(64, dtype=np.uint64)) & 1
  ones = bits.sum(axis=0)
  law = stats.binom(len(words), 0.5)
  low, high = law.ppf(FALSE_ALARM / 128), law.isf(FALSE_ALARM / 128)
  return int(((ones < low) | (ones > high)).sum())
