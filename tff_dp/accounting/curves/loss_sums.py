# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums of privacy losses, accurate relative to delta even if it is tiny.

A Fourier transform has an error of about 1e-15 of the *whole* mass, so it loses
a delta of 1e-12 over a thousand releases. This module first tilts the
distributions p_i of the losses, for a rate r > 0,

    p_i(l) -> p_i(l) exp(r l) / M_i,   M_i = sum_l p_i(l) exp(r l),

so that most of the mass of their sum is near the losses that matter. With L the
tilted distribution of the sum and M the product of the M_i,

    delta(eps) = sum_{l > eps} M exp(-r l) L(l) (1 - exp(eps - l)),

so an error in L is multiplied by at most M exp(-r eps). That factor is
Chernoff's bound on the wanted delta. Multiplied by the largest value of
exp(-r x) (1 - exp(-x)), the factor becomes the bound from the Renyi divergence
of order r + 1 (arXiv:2004.00010, proposition 12). This module uses the Renyi
bound where no transform is possible.

If losses are rare and large, as with small sampling rates, the largest loss
dominates M and Chernoff's bound is far off. So the largest losses are first
counted as infinite, as long as this adds almost nothing to delta. Then the grid
of losses is made as coarse as epsilon allows.
"""

from collections.abc import Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import signal

from tff_dp.accounting.curves import search
from tff_dp.accounting.curves import transforms

_ROUNDING = transforms.ROUNDING
_LOWEST = float(np.finfo(np.float64).min)
_RELATIVE_ERROR = 1e-12
# The window of a tilted sum leaves out exp(-this) of the mass on either side.
_LOG_OUTSIDE = 60.0
_WINDOW_RATES = np.exp2(np.arange(-12.0, 5.0))
_FEWEST_LOG2_POINTS = 4
_MOST_LOG2_POINTS = 22
# Rates to try, in units of 1 / (largest loss of all releases together).
_RATES = np.geomspace(0.1, 1e12, 66)
_REFINEMENTS = 3
_REFINED = 9
# Largest number of tilts in `deltas`, each good for many powers of ten, and the
# accepted error as a share of a delta.
_MOST_TILTS = 16
_ERROR_SHARE = 1e-3
# Largest rise of epsilon by the grid, as a share of epsilon. An epsilon has
# settled if it is above the second share of the one before.
_GRID_SHARE = 1e-4
_SETTLED = 0.9
# Share of a delta that may come from large losses made infinite. The share is
# smaller where one tilt serves many deltas.
_TAIL_SHARE = 3e-4
_PROFILE_TAIL_SHARE = 1e-8
# Grids with fewer losses than this are not made coarser.
_FEWEST_POINTS = 64
# Most cells of an array with one row per rate.
_MOST_CELLS = 1 << 16


class Law(NamedTuple):
  """Loss distribution of one release on a grid of losses.

  The loss `points[i] * interval` has the probability `probs[i]`, where
  `interval` is the interval of the grid.

  Attributes:
    points: Increasing integers, shape [n].
    probs: Probabilities above 0, shape [n].
    infinite: Probability of an infinite loss.
  """

  points: np.ndarray
  probs: np.ndarray
  infinite: float


class LossSum:
  """The total loss of independent releases. All results are upper bounds.

  Their relative error is negligible, except where no transform is possible and
  the result is a Renyi bound. No returned delta is below the probability of
  infinite loss.
  """

  def __init__(self, interval: float, laws: Sequence[tuple[Law, int]]):
    """Initializes the sum.

    Args:
      interval: Interval of the grid of all losses.
      laws: Pairs (loss distribution, number of occurrences).
    """
    self._interval = float(interval)
    self._laws = [(law, int(count)) for law, count in laws if count > 0]
    hidden = sum(
        count * math.log1p(-min(law.infinite, 1.0))
        if law.infinite < 1
        else -math.inf
        for law, count in self._laws
    )
    self.infinite = -math.expm1(hidden) * (1 + _RELATIVE_ERROR)
    # No finite loss of the sum is larger.
    self.largest = self._interval * sum(
        count * int(law.points[-1]) if len(law.points) else 0
        for law, count in self._laws
    )

  def epsilon(self, delta: float) -> float:
    """Returns epsilon at delta, infinity if infinite loss uses up delta."""
    rest = delta * (1 - _RELATIVE_ERROR) - self.infinite
    if not rest > 0:
      return math.inf if delta < 1 else 0.0
    cut = self._without_tails(_TAIL_SHARE * rest)
    return cut._epsilon(delta * (1 - _RELATIVE_ERROR) - cut.infinite)

  def _epsilon(self, rest: float) -> float:
    """Returns the epsilon at which the finite losses have delta `rest`."""
    if self.largest <= 0:
      return 0.0
    rate, high = self._least(
        lambda rates: (self._log_renyi(rates) - math.log(rest)) / rates
    )
    high = max(0.0, min(high, self.largest))
    for is_again in (False,) + (True,) * _MOST_TILTS:
      tilted = self._tilted(rate, _GRID_SHARE * rate * high)
      if tilted is None:
        break
      before, high = high, tilted.epsilon(rest, high)
      if high == 0:
        break
      _, (error,) = tilted.deltas(np.array([high]))
      is_known = is_again or error <= _ERROR_SHARE * rest
      if is_known and high > _SETTLED * before:
        break
      # The Renyi bound was far off, and so was the rate that is best for it.
      rate, _ = self._least(
          lambda rates: self._log_renyi(rates) - rates * high
      )
    return high * (1 + _RELATIVE_ERROR)

  def _without_tails(self, most: float) -> 'LossSum':
    """Returns the sum with its large losses made infinite. Upper bound.

    Tilting gives much weight to the largest losses, however unlikely they are.

    Args:
      most: Largest probability that may become infinite, over all releases.
    """
    share = most / max(1, sum(count for _, count in self._laws))
    laws = []
    for law, count in self._laws:
      above = np.cumsum(law.probs[::-1])[::-1] * (1 + _RELATIVE_ERROR)
      kept = int(np.argmax(above <= share)) if above[-1] <= share else None
      infinite = law.infinite if kept is None else law.infinite + above[kept]
      laws.append(
          (Law(law.points[:kept], law.probs[:kept], infinite), count)
      )
    return LossSum(self._interval, laws)

  def deltas(self, epsilons: np.ndarray) -> np.ndarray:
    """Returns deltas at epsilons >= 0, the profile of all releases together."""
    epsilons = np.asarray(epsilons, np.float64)
    is_open = epsilons < self.largest
    found = np.where(is_open, 1.0, self.infinite)
    for _ in range(_MOST_TILTS):
      if not is_open.any():
        break
      lowest = float(epsilons[is_open].min())
      cut = self._without_tails(
          _PROFILE_TAIL_SHARE * self._least_delta(lowest)
      )
      rate, _ = cut._least(
          lambda rates: cut._log_renyi(rates) - rates * lowest
      )
      tilted = cut._tilted(rate, _GRID_SHARE * (1 + rate * lowest))
      if tilted is None:
        (log_renyi,) = cut._log_renyi(np.array([rate]))
        deltas = np.exp(np.minimum(log_renyi - rate * epsilons, 0.0))
        errors = np.where(epsilons == lowest, 0.0, math.inf)
      else:
        deltas, errors = tilted.deltas(epsilons)
        errors += cut.infinite - self.infinite
      deltas = deltas * (1 + _RELATIVE_ERROR) + cut.infinite
      found = np.minimum(found, deltas)
      is_open &= (errors > _ERROR_SHARE * deltas) & (epsilons > lowest)
    return np.minimum(1.0, found)

  def _least_delta(self, epsilon: float) -> float:
    """Returns a lower bound on delta, from the finite losses of one release."""
    least = 0.0
    for law, _ in self._laws:
      losses = self._interval * law.points - epsilon
      shares = -np.expm1(-np.maximum(losses, 0.0))
      least = max(least, float(law.probs @ shares))
    return least

  def _tilted(self, rate: float, slack: float) -> '_Tilted | None':
    """Returns the tilted sum, on the coarsest grid that is good enough.

    `None` if the sum does not fit one transform.

    Args:
      rate: Rate of the tilt.
      slack: Largest rise of the logarithm of the Renyi bound that the grid may
        cause.
    """
    rates = np.array([rate])
    most = self._log_renyi(rates) + slack
    coarse = self
    while max(len(law.points) for law, _ in coarse._laws) > _FEWEST_POINTS:
      coarser = coarse._coarser()
      if coarser._log_renyi(rates) > most:
        break
      coarse = coarser
    return _Tilted.of(coarse._laws, coarse._interval, rate)

  def _coarser(self) -> 'LossSum':
    """Returns the sum on a grid of twice the interval. Upper bound.

    The mass of an odd point is split between its neighbours so that neither
    distribution of the pair loses mass: connect the dots, arXiv:2207.04380.
    """
    up = 1 / (1 + math.exp(-self._interval))
    laws = []
    for law, count in self._laws:
      is_odd = law.points % 2 == 1
      at = np.concatenate([
          law.points[~is_odd], law.points[is_odd] - 1, law.points[is_odd] + 1
      ])
      odd = law.probs[is_odd]
      masses = np.concatenate([law.probs[~is_odd], (1 - up) * odd, up * odd])
      points, where = np.unique(at // 2, return_inverse=True)
      probs = np.bincount(where, masses) * (1 + _RELATIVE_ERROR)
      laws.append((Law(points, probs, law.infinite), count))
    return LossSum(2 * self._interval, laws)

  def _least(self, values_at) -> tuple[float, float]:
    """Returns (rate, value) near the minimum of a function of rates."""
    rates = _RATES / self.largest
    for refined in range(_REFINEMENTS + 1):
      values = values_at(rates)
      best = int(np.argmin(values))
      if refined == _REFINEMENTS:
        break
      around = rates[max(best - 1, 0)], rates[min(best + 1, len(rates) - 1)]
      rates = np.append(np.geomspace(*around, _REFINED), rates[best])
      rates.sort()
    return float(rates[best]), float(values[best])

  def _log_renyi(self, rates: np.ndarray) -> np.ndarray:
    """Returns logarithms of the Renyi bound on delta at epsilon 0.

    Upper bounds.

    Args:
      rates: Rates r of the tilt. The order of the divergence is r + 1.
    """
    totals = _log_peak(rates)
    for law, count in self._laws:
      log_moments, errors = _log_moments(law, self._interval, rates)
      totals += count * (log_moments + errors)
    return totals


class _Tilted:
  """The distribution of a sum, tilted at one rate, in a window of the grid."""

  def __init__(self, rate, interval, start, log_moment, law, error):
    self._rate = rate
    self._interval = interval
    self._start = start
    self._log_moment = log_moment
    self._error = error
    self._size = len(law)
    # sum_{j >= k} L_j exp(-s (j - k) interval), for s = r and r + 1.
    self._sums = [
        np.append(_discounted(law, slope * interval), 0.0)
        for slope in (rate, rate + 1)
    ]
    # Terms count until their discount makes them negligible.
    terms = min(self._size, 1 + 40 / (rate * interval))
    self._relative = 4 * _ROUNDING * (terms + 40)

  @classmethod
  def of(cls, laws, interval: float, rate: float) -> '_Tilted | None':
    """Returns the tilted sum, or None if it does not fit one transform."""
    log_moment, slack, tilted = 0.0, 0.0, []
    for law, count in laws:
      (one,), (error,) = _log_moments(law, interval, np.array([rate]))
      log_moment += count * one
      slack += count * error
      probs = np.exp(np.log(law.probs) + rate * interval * law.points - one)
      tilted.append((law.points.astype(np.float64), probs, count))
    start, end = _window(tilted)
    log2_points = max(
        _FEWEST_LOG2_POINTS, math.ceil(math.log2(end - start + 1))
    )
    if log2_points > _MOST_LOG2_POINTS:
      return None
    num_points = 1 << log2_points
    factors = []
    for (points, probs, count), (law, _) in zip(tilted, laws, strict=True):
      # The sum is computed modulo the window, even if an input is wider.
      dense = np.bincount(
          (law.points % num_points).astype(np.int64), probs, num_points
      )
      factors.append((dense, count))
    wrapped, error = transforms.convolved(factors)
    probs = np.maximum(np.roll(wrapped, -(start % num_points)), 0.0)
    # Probability outside of the window, on both sides.
    error += 2 * math.exp(-_LOG_OUTSIDE)
    return cls(rate, interval, start, log_moment + slack, probs, error)

  def epsilon(self, delta: float, high: float) -> float:
    """Returns the smallest epsilon, at most `high`, that meets delta.

    Args:
      delta: Target delta.
      high: An epsilon that meets delta.
    """
    is_private = lambda epsilon: (
        self.deltas(np.array([epsilon]))[0][0] <= delta
    )
    if is_private(0.0):
      return 0.0
    return search.nearest(is_private, 0.0, high, tolerance=_RELATIVE_ERROR)

  def deltas(self, epsilons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (upper bounds on delta, the slack in each for transform errors).

    Infinite losses are not counted.
    """
    steps = epsilons / self._interval
    first = np.floor(steps) + 1 - self._start
    # A loss close to epsilon contributes almost nothing.
    index = np.clip(first, 0, self._size).astype(np.int64)
    gap = self._interval * np.maximum(self._start + index - steps, 0.0)
    some, others = (
        np.exp(-slope * gap) * sums[index]
        for slope, sums in zip((self._rate, self._rate + 1), self._sums)
    )
    relative = self._relative + 4 * _ROUNDING * (self._rate + 1) * epsilons
    shares = np.maximum(some - others, 0.0) + relative * (some + others)
    peak = np.exp(_log_peak(self._rate))
    # The Renyi bound is the whole of the peak.
    shares = np.minimum(shares + peak * self._error, peak)
    logs = self._log_moment - self._rate * epsilons
    slack = 4 * _ROUNDING * (np.abs(logs) + self._rate * epsilons + 4)
    scale = np.exp(np.minimum(logs + slack, 700.0))
    return scale * shares, scale * peak * self._error


def _log_moments(
    law: Law, interval: float, rates: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns log-moments of a loss, and bounds on their rounding errors.

  The log-moment at rate r is ln sum_i p_i exp(r l_i); one for each of `rates`.
  Here l_i are the losses of `law`, and p_i their probabilities. The exponent of
  each term that matters is off by a few roundings of its size. The bound holds
  for the exponent of each of these terms, too.
  """
  found, sizes = np.full(len(rates), -math.inf), np.zeros(len(rates))
  num_points = len(law.points)
  step = max(1, _MOST_CELLS // max(1, num_points))
  for start in range(0, len(rates) if num_points else 0, step):
    some = slice(start, start + step)
    shifts = rates[some, np.newaxis] * interval * law.points
    exponents = np.log(law.probs) + shifts
    found[some] = _log_sum_exp(exponents)
    # Terms that do not count become 0.
    shifts *= exponents > found[some, np.newaxis] - 2 * _LOG_OUTSIDE
    sizes[some] = np.abs(shifts).max(axis=1)
  # Also the size of ln p and of the logarithm of pairwise sums.
  sizes += np.abs(found) + 2 * _LOG_OUTSIDE + math.log2(num_points + 1)
  return found, np.where(found > -math.inf, 8 * _ROUNDING * sizes, 0.0)


def _log_sum_exp(exponents: np.ndarray) -> np.ndarray:
  """Returns ln sum_j exp(x_ij) for each row i.

  `scipy.special.logsumexp` takes twice the time for short rows.
  """
  largest = np.maximum(exponents.max(axis=1), _LOWEST)
  shares = np.exp(exponents - largest[:, np.newaxis])
  with np.errstate(divide='ignore'):
    return largest + np.log(shares.sum(axis=1))


def _log_peak(rates):
  """Returns ln max_x exp(-r x) (1 - exp(-x)), x >= 0, for one or more rates."""
  return -rates * np.log1p(1 / rates) - np.log1p(rates)


def _discounted(values: np.ndarray, slope: float) -> np.ndarray:
  """Returns sum_{j >= k} values[j] exp(-slope (j - k)) for every k."""
  return signal.lfilter([1.0], [1.0, -math.exp(-slope)], values[::-1])[::-1]


def _window(tilted) -> tuple[int, int]:
  """Returns the first and last point of a window with almost all the mass.

  This uses Chernoff's bound: for h > 0, the probability of a sum above b is at
  most exp(-h b) prod Ex[exp(h l)], where the product is over all releases and l
  is the loss of one. With h < 0 this bounds the probability of a sum below b.
  """
  low = sum(count * float(points[0]) for points, _, count in tilted)
  high = sum(count * float(points[-1]) for points, _, count in tilted)
  variance, in_logs = 0.0, []
  for points, probs, count in tilted:
    mean = probs @ points
    variance += count * float(probs @ (points - mean) ** 2)
    is_there = probs > 0
    in_logs.append((points[is_there], np.log(probs[is_there]), count))
  base = math.sqrt(2 * _LOG_OUTSIDE / max(variance, 1.0))
  for rate in base * _WINDOW_RATES:
    rates = np.array([[rate], [-rate]])
    exponents = sum(
        count * _log_sum_exp(rates * points + log_probs)
        for points, log_probs, count in in_logs
    )
    above, below = (exponents + _LOG_OUTSIDE) / rate
    high = min(high, math.ceil(above) + 1)
    low = max(low, math.floor(-below) - 1)
  return int(low), int(high)
