# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tails of sums of t lognormals, accurate relative to how small they are.

As in `lognormal_sums`, X = exp(g / sigma - 1/(2 sigma^2)), and S is the sum of
t independent copies under Q. What lies beyond a threshold c,

    Ex[(S - c)_+]   or   Ex[(c - S)_+],

is far less than what a transform rounds. Two laws bound it nevertheless:

* `TiltedSum`: weigh X by exp(r X), and the sum by exp(-r S) afterwards. What is
  rounded counts Chernoff's bound on S beyond c times, not 1. For lower tails
  that is all; for upper tails X must end below what takes S from its mean to c,
  or the weights of single large X make that bound useless.
* `LargeTerm`: one X beyond such a cut, of a mass that is known to all digits,
  and the sum of the others. What is rounded counts that mass times.

docs/proofs_check_ins.md, section 4.8, has the proofs.
"""

import math

import numpy as np
from scipy import signal

from tff_dp.accounting.amplification import lognormal_sums
from tff_dp.accounting.curves import transforms

_ROUNDING = transforms.ROUNDING
# Where rates of tilts are looked for, times the largest X.
_RATES = (0.1, 1e12)
_MOST_RATE = 600.0
_RATE_STEPS = 60
_NUM_NODES = 4000
# Weights below it count next to nothing.
_LEAST_WEIGHT = 1e-40


class TiltedSum:
  """The law of S, weighted by exp(r S): X in (0, top] only.

  With M = Ex[exp(r X)] and L the weighted law, of mass 1,

      Ex[(S - c)_+] = M^t exp(-r c) sum_{s > c} (s - c) exp(-r (s - c)) L(s)

  for r > 0, and so for (c - S)_+ and r < 0. There
  |s - c| exp(-|r| |s - c|) <= 1 / (e |r|).
  """

  def __init__(
      self, sigma: float, t: int, top: float, threshold: float, rate: float
  ):
    """Makes the law.

    Args:
      sigma: Noise std.
      t: Number of steps.
      top: The largest X.
      threshold: For r > 0 the least c that will be asked for, else 0.
      rate: r, see `best_rate`.
    """
    width, wrapped = 0.0, 1.0
    while wrapped > lognormal_sums.MOST_WRAPPED:
      width, log2_points = lognormal_sums.grid(
          sigma, t, top, threshold, 1.3 * width
      )
      num_points = 1 << log2_points
      step = width / num_points
      one, errors = lognormal_sums.term_law(sigma, step, top)
      values = step * np.arange(len(one))
      weights = np.exp(rate * values)
      moment = float(weights @ one)
      weights /= moment
      one *= weights
      first = lognormal_sums.window_start(one, values, t, num_points)
      wrapped, _ = lognormal_sums.wrapped_mass(
          one, values, t, first * step, width
      )
    probs, rounding = transforms.convolved([(_padded(one, num_points), t)])
    # Errors of the law of X move mass to the next points: so much in all.
    moved = 4 / step * math.exp(abs(rate) * step) * float(errors @ weights)
    self._error = rounding + wrapped + math.expm1(min(t * moved, 700.0))
    # Weights are off by roundings of their exponents, at each of t terms.
    most = float(np.max(np.abs(rate * values[one > _LEAST_WEIGHT])))
    self._slack = 8 * _ROUNDING * t * (most + abs(math.log(moment)) + 40)
    self._log_moment = t * math.log(moment)
    self._rate, self._step, self._first = rate, step, first
    # sum over j from k on, or down to k, of d^|j - k| L_j, and with |j - k|.
    order = slice(None, None, -1) if rate > 0 else slice(None)
    probs = np.maximum(np.roll(probs, -first % num_points), 0.0)
    discount = math.exp(-abs(rate) * step)
    plain = signal.lfilter([1.0], [1.0, -discount], probs[order])
    spread = signal.lfilter([0.0, discount], [1.0, -discount], plain)
    self._sums = plain[order], spread[order]

  def excess(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (Ex[(S - c)_+], or of (c - S)_+ for r < 0; errors in it).

    Upper bound. Thresholds c are above 0.
    """
    steps = thresholds / self._step
    size = len(self._sums[0])
    if self._rate > 0:
      index = np.floor(steps) + 1 - self._first
      is_there = index < size
    else:
      index = np.ceil(steps) - 1 - self._first
      is_there = index >= 0
    index = np.clip(index, 0, size - 1).astype(np.int64)
    gap = self._step * np.abs(self._first + index - steps)
    plain, spread = (sums[index] for sums in self._sums)
    rate = abs(self._rate)
    found = np.exp(-rate * gap) * (gap * plain + self._step * spread)
    error = self._error / (math.e * rate)
    logs = self._log_moment - self._rate * thresholds
    # Terms of the sums count until they are discounted to nothing.
    terms = min(size, 40 / (rate * self._step))
    slack = np.abs(logs) + rate * thresholds + terms + 40
    slack = self._slack + 8 * _ROUNDING * slack
    scale = np.exp(np.minimum(logs + slack, 700.0))
    return scale * (np.where(is_there, found, 0.0) + error), scale * error


class LargeTerm:
  """The law of S where one given X is in (cut, top], the others in (0, top]."""

  def __init__(
      self, sigma: float, t: int, cut: float, top: float, threshold: float
  ):
    """Makes the law.

    Args:
      sigma: Noise std.
      t: Number of steps, at least 2.
      cut: Where that X begins.
      top: Where all end.
      threshold: The least c that will be asked for.
    """
    width, wrapped = 0.0, (1.0, 1.0)
    while max(wrapped) > lognormal_sums.MOST_WRAPPED:
      width, log2_points = lognormal_sums.grid(
          sigma, t, top, threshold, 1.3 * width
      )
      num_points = 1 << log2_points
      step = width / num_points
      one, errors = lognormal_sums.term_law(sigma, step, top)
      values = step * np.arange(len(one))
      first = lognormal_sums.window_start(one, values, t, num_points)
      # Of the others, when the given X is up to `top`.
      wrapped = lognormal_sums.wrapped_mass(
          one, values, t - 1, 0.0, first * step + width - top - step
      )
    large, large_errors = lognormal_sums.term_law(sigma, step, top, cut)
    mass = float(large.sum())
    probs, rounding = transforms.convolved([
        (_padded(large / mass, num_points), 1),
        (_padded(one, num_points), t - 1),
    ])
    probs = np.maximum(np.roll(probs, -first % num_points), 0.0)
    self._mass, self._step, self._first = mass, step, first
    masses = np.cumsum(probs[::-1])[::-1]
    # sum over j >= k of (j - k) L_j.
    self._sums = masses, np.append(np.cumsum(masses[:0:-1])[::-1], 0.0)
    # Of the transforms, and of the masses that go in.
    self._rounding = rounding + 16 * t * _ROUNDING
    self._error = (
        mass * 2 * t * float(errors.sum())
        + 2 * float(large_errors.sum())
        # S above the window is cut off; t times P's mass is its expectation.
        + mass * (t * wrapped[1] + top * wrapped[0])
    )

  def excess(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (Ex[(S - c)_+] there, errors in it). Upper bound."""
    steps = thresholds / self._step
    size = len(self._sums[0])
    index = np.clip(np.floor(steps) + 1 - self._first, 0, size)
    gap = self._step * (self._first + index - steps)
    room = self._step * size
    is_there = index < size
    index = np.minimum(index, size - 1).astype(np.int64)
    masses, spread = (sums[index] for sums in self._sums)
    found = np.where(is_there, gap * masses + self._step * spread, 0.0)
    # Sums of so many positive terms, twice.
    slack = 4 * _ROUNDING * size * found
    error = self._error + self._mass * self._rounding * (gap + room)
    return self._mass * (found + slack) + error, error + self._mass * slack


def best_rate(sigma: float, t: int, top: float, threshold: float) -> float:
  """Returns the r for which S is about `threshold` in the weighted law.

  Heuristic: any r of its sign will do.

  Args:
    sigma: Noise std.
    t: Number of steps.
    top: The largest X.
    threshold: Above t for r > 0, below it for r < 0.
  """
  z = np.linspace(-12.0, sigma * math.log(top) + 0.5 / sigma, _NUM_NODES)
  x = np.exp(z / sigma - 0.5 / sigma**2)
  sign = math.copysign(1.0, threshold - t)
  low, high = (math.log(rate / top) for rate in _RATES)
  # Weights of the largest X must not overflow.
  high = min(high, math.log(_MOST_RATE / top)) if sign > 0 else high
  for _ in range(_RATE_STEPS):
    middle = 0.5 * (low + high)
    logs = -0.5 * z**2 + sign * math.exp(middle) * x
    weights = np.exp(logs - logs.max())
    mean = float(weights @ x) / float(weights.sum())
    if sign * (mean - threshold / t) > 0:
      high = middle
    else:
      low = middle
  return sign * math.exp(low)


def _padded(law: np.ndarray, num_points: int) -> np.ndarray:
  return np.pad(law, (0, num_points - len(law)))
