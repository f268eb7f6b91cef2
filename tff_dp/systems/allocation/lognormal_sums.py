# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The distribution of a sum of t lognormals on a grid, with error bounds.

S = X_1 + ... + X_t. X = exp(g / sigma - 1/(2 sigma^2)) has mean 1, where g is
standard normal. Under Q the t terms are independent copies of X. Under P one of
the terms is drawn with weight X. Each X is replaced by a distribution on the
grid {0, h, 2h, ...}: mass between two grid points is split between these points
so that mass and mean stay the same. This makes the distribution of X, and the
distribution of the sum, larger in convex order.

The distribution of the sum under Q is a power of a Fourier transform, and under
P a product of two transforms. The distribution under P is also the distribution
under Q times S / t, but computing it in this way would multiply the rounding
noise of the transform. docs/proofs_check_ins.md, section 4, bounds the mass
that wraps around and the rounding errors.

The rounding noise is a share of the whole mass. A tail beyond a threshold c,

    Ex[(S - c)_+]   or   Ex[(c - S)_+],

may be far smaller than that noise. Two classes bound it nevertheless:

* `TiltedSum` weighs X by exp(r X), and the sum by exp(-r S) afterwards. A
  rounding error is then multiplied by Chernoff's bound on the mass of S beyond
  c. This is enough for lower tails. For upper tails the largest X must be
  smaller than the distance from the mean of S to c. Otherwise single large X
  make Chernoff's bound useless.
* `LargeTerm` takes one X above a limit, whose mass is known to all digits, and
  the sum of the other terms. A rounding error is then multiplied by that mass.

docs/proofs_check_ins.md, section 4.8, has the proofs.
"""

import math

import numpy as np
from scipy import fft
from scipy import signal
from scipy import special

from tff_dp.accounting.curves import search
from tff_dp.accounting.curves import transforms

ROUNDING = transforms.ROUNDING

# Step of the grid, as a share of min(std of X, t). If only far tails are
# needed, it may be this share of the smallest threshold instead. The number of
# points is a power of two.
_STEP_SHARE = 0.01
_STEP_SHARE_OF_THRESHOLD = 2e-3
_FEWEST_LOG2_POINTS = 14
_MOST_LOG2_POINTS = 22
# Distance from the smallest S on the grid to the mean, in units of sqrt(t
# Ex[X^2]).
_DEVIATIONS = 13.0
# Largest mass that may wrap around, under Q and under P.
MOST_WRAPPED = 1e-30
_WRAP_RATES = (1.0, 3.0, 6.0, 12.0, 18.0, 25.0, 32.0, 40.0)
_BLOCK = 4096
# Range in which tilt rates are searched, in units of 1 / (largest X).
_RATES = (0.1, 1e12)
_MOST_RATE = 600.0
_NUM_NODES = 4000
# Weights below this are negligible.
_LEAST_WEIGHT = 1e-40


class LognormalSum:
  """The distributions of the sum S on a grid, under Q and P, with error bounds.

  S is a sum of t lognormal terms. Under Q all terms are independent copies of
  X. Under P one of them is drawn with weight X.

  Attributes:
    q_above: Bound on the probability of X > top, for a term with the
      distribution of X. Such X are not on the grid.
    p_above: Bound on the probability of X > top, for the one term that P draws
      with weight X.
    q_wrapped, p_wrapped: Bounds on the mass of S outside the grid, under Q and
      under P.
    q_rounding, p_rounding: Bounds on the L1 error that the transforms leave in
      the distributions of S under Q and under P.
    input_rounding: Bound on the change of Ex_Q[f(S)] by rounding in the
      distribution of X. It holds for every f that changes by at most 1 / t per
      unit of S.
  """

  q_above: float
  p_above: float
  q_wrapped: float
  p_wrapped: float
  q_rounding: float
  p_rounding: float
  input_rounding: float

  def __init__(self, step, first, q_sum, p_sum):
    self._step = step
    self._first = first
    self._q = _Sums(q_sum)
    self._p = _Sums(p_sum)

  @classmethod
  def of_sum(
      cls, sigma: float, t: int, top: float, least_threshold: float
  ) -> 'LognormalSum':
    """Returns the distributions of the sum of t terms, without X above `top`.

    Args:
      sigma: Noise std.
      t: Number of steps.
      top: Largest X on the grid.
      least_threshold: Smallest threshold whose upper tail will be needed. 0 if
        lower tails will be needed.
    """
    width, wrapped = 0.0, (1.0, 1.0)
    while max(wrapped) > MOST_WRAPPED:
      width, log2_points = grid(sigma, t, top, least_threshold, 1.3 * width)
      num_points = 1 << log2_points
      step = width / num_points
      one, errors = term_law(sigma, step, top)
      values = step * np.arange(len(one))
      first = window_start(one, values, t, num_points)
      wrapped = wrapped_mass(one, values, t, first * step, width)

    q_hat = fft.rfft(one, num_points)
    p_hat = fft.rfft(values * one, num_points)
    rounding = transforms.rounding_of(log2_points)
    size = np.abs(q_hat)
    size += rounding
    np.minimum(size, 1 + rounding, out=size)
    power = transforms.power(q_hat, t - 1)
    p_sum = np.roll(fft.irfft(p_hat * power, num_points), -first % num_points)
    q_sum = np.roll(fft.irfft(q_hat * power, num_points), -first % num_points)
    law = cls(step, first, q_sum, p_sum)

    # The transform of real input lists only half of the points. The others
    # count twice.
    np.log(size, out=size)
    weighted = lambda power: 2 * float(np.sum(np.exp(power * size)))
    slope = math.sqrt(weighted(2 * (t - 1)))
    law.q_rounding = rounding * (t * slope + weighted(t))
    slope_p = slope + (t - 1) * math.sqrt(weighted(2 * (t - 2)))
    law.p_rounding = rounding * (slope_p + weighted(t - 1))
    law.input_rounding = float(2 * np.sum(errors)) + 16 * t * ROUNDING
    law.q_above, law.p_above = above(sigma, top)
    law.q_wrapped, law.p_wrapped = wrapped
    return law

  def tails(self, thresholds, *, above: bool):
    """Returns (mass under Q, mass under P) of S beyond each threshold.

    The error bounds are not included.

    Args:
      thresholds: Array of thresholds c.
      above: Whether to count S > c. Otherwise S < c is counted.
    """
    index = np.floor(thresholds / self._step)
    if above:
      index = np.clip(index + 1 - self._first, 0, self._q.size)
      starts = index.astype(np.int64)
      return self._q.from_(starts), self._p.from_(starts)
    index = np.where(index * self._step < thresholds, index + 1, index)
    ends = np.clip(index - self._first, 0, self._q.size).astype(np.int64)
    return self._q.until(ends), self._p.until(ends)


def above(sigma: float, top: float) -> tuple[float, float]:
  """Returns upper bounds on (Q(X > top), P(X > top)) of one term X.

  Under P the distribution of X is weighted by X.
  """
  # ndtr is accurate to a few units in the last place.
  log_top = sigma * math.log(top)
  q_above = min(1.0, (1 + 1e-12) * special.ndtr(-log_top - 0.5 / sigma))
  p_above = min(1.0, (1 + 1e-12) * special.ndtr(-log_top + 0.5 / sigma))
  return float(q_above), float(p_above)


class _Sums:
  """Sums of a long array from or up to an index, computed in blocks.

  A running sum over 2^24 entries could be off by 2^24 units in the last place.
  In blocks it is off by a few thousand of these units.
  """

  def __init__(self, array: np.ndarray):
    self.size = len(array)
    self._array = array

  def from_(self, starts: np.ndarray) -> np.ndarray:
    """Returns the sums of array[start:]."""
    edges, sums = self._between(starts)
    sums = np.append(np.cumsum(sums[::-1])[::-1], 0.0)
    return sums[np.searchsorted(edges, starts)]

  def until(self, ends: np.ndarray) -> np.ndarray:
    """Returns the sums of array[:end]."""
    edges, sums = self._between(ends)
    sums = np.append(0.0, np.cumsum(sums))
    return sums[np.searchsorted(edges, ends)]

  def _between(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (edges, sums from each edge to the next).

    The edges are the indices and the ends of the blocks, ascending.
    """
    edges = np.union1d(indices, np.arange(0, self.size + 1, _BLOCK))
    return edges, np.add.reduceat(self._array, edges[:-1])


def grid(
    sigma: float,
    t: int,
    top: float,
    least_threshold: float,
    least_width: float,
) -> tuple[float, int]:
  """Returns the width of the grid and log2 of its number of points.

  Args:
    sigma: Noise std.
    t: Number of steps.
    top: Largest X on the grid.
    least_threshold: Smallest threshold whose upper tail will be needed. 0 if
      lower tails will be needed.
    least_width: Lower bound on the width. The width is never above (t + 1) top,
      which is enough for every sum.
  """
  # Moments of X below `top`, under Q: Ex[X^2] = exp(1 / sigma^2) in all.
  z = sigma * math.log(top) + 0.5 / sigma
  log_square = sigma**-2 + float(special.log_ndtr(z - 2 / sigma))
  root = math.exp(0.5 * min(log_square, 1400.0))
  std = min(root, math.sqrt(math.expm1(min(sigma**-2, 700.0))))
  # Sums of non-negative terms have Gaussian tails below the mean, with the root
  # of the second moment as scale. Above the mean the largest term dominates.
  width = _DEVIATIONS * math.sqrt(t) * root + 30 * math.sqrt(t) * std + 3 * top
  # S is at most t times the largest X.
  width = min(max(width, least_width), (t + 1) * top)
  step = _STEP_SHARE * min(std, float(t))
  if least_threshold > 2 * t:
    step = max(step, _STEP_SHARE_OF_THRESHOLD * least_threshold)
  log2_points = math.ceil(math.log2(width / step))
  return width, min(max(log2_points, _FEWEST_LOG2_POINTS), _MOST_LOG2_POINTS)


def window_start(one, values, t: int, num_points: int) -> int:
  """Returns the grid index at which the window of S begins.

  The index is 0 if all S fit into the window. Otherwise S is outside of it with
  a small probability, see `wrapped_mass`.

  Args:
    one: Probabilities of one X on the grid from 0 on.
    values: Grid points that belong to `one`.
    t: Number of steps.
    num_points: Number of points of the window.
  """
  if t * (len(one) - 1) < num_points:
    return 0
  least = t * float(values @ one)
  least -= _DEVIATIONS * math.sqrt(t * float(values**2 @ one))
  return max(0, math.floor(least / values[1]))


def term_law(
    sigma: float, step: float, top: float, bottom: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
  """Returns the grid distribution of X under Q, and bounds on its rounding.

  The distribution is an upper bound in convex order: mass between two grid
  points goes to these points, with mass and mean kept.

  The second array has one bound per grid point x. An error u of the
  distribution function at x and an error v of the first moment up to x change
  the distribution by at most 2 (u x + v), as mass times distance moved. The
  bound at x is u x + v.

  Args:
    sigma: Noise std.
    step: Distance of two grid points.
    top: Largest X that counts.
    bottom: Only X above it count.
  """
  num_cells = math.ceil(top / step)
  edges = step * np.arange(num_cells + 1)
  edges[-1] = top
  np.maximum(edges, bottom, out=edges)
  with np.errstate(divide='ignore'):
    z = sigma * np.log(edges)
  z += 0.5 / sigma
  mass, mass_error = _differences(z, 1 / sigma)
  first, first_error = _differences(z - 1 / sigma, 1 / sigma)
  low = step * np.arange(num_cells)
  up = np.clip((first - low * mass) / step, 0.0, mass)
  one = np.append(mass - up, 0.0)
  one[1:] += up
  # A cell without mass has no error.
  has_mass = np.append(edges[1:] > bottom, True)
  return one, np.where(has_mass, first_error + edges * mass_error, 0.0)


def _differences(z: np.ndarray, scale: float):
  """Returns Phi(z[1:]) - Phi(z[:-1]), and bounds on the error of each Phi(z).

  The differences are computed from the smaller of Phi(z) and Phi(-z). The
  errors are a share of this smaller number, whose logarithm changes by at most
  |z| + 1 per unit of z.
  """
  tail = special.ndtr(-np.abs(z))
  up = np.where(z > 0, 0.0, tail)
  upper = np.where(z > 0, tail, 0.0)
  crossing = (z[1:] > 0) & (z[:-1] <= 0)
  # In the cell that contains z = 0, one side is the complement of the other.
  difference = np.where(crossing, 1.0 - upper[1:] - up[:-1], 0.0)
  difference += np.where(z[1:] <= 0, up[1:] - up[:-1], 0.0)
  difference += np.where(z[:-1] > 0, upper[:-1] - upper[1:], 0.0)
  distance = np.where(np.isinf(z), 0.0, np.abs(z))
  # z is accurate to 3 u (|z| + scale), and moves by u / scale with its x.
  slack = distance + scale + 1 / scale
  relative = 4 + 3 * (distance + 1) * slack
  return np.maximum(difference, 0.0), ROUNDING * relative * tail


def wrapped_mass(
    one, values, t: int, start: float, width: float
) -> tuple[float, float]:
  """Returns bounds, under Q and P, on the mass of S outside a window.

  The window is [start, start + width). Mass outside of it wraps around in the
  transform. The bounds are Chernoff's for the distribution on the grid: Q(S >=
  w) <= exp(-r w) Ex[exp(r X)]^t for a rate r > 0. Under P, Ex[X exp(r X)]
  replaces one of the t factors. A negative rate bounds the mass below w.

  Args:
    one: Probabilities of one X on the grid from 0 on.
    values: Grid points that belong to `one`.
    t: Number of steps.
    start: Lower end of the window.
    width: Width of the window.
  """
  top = float(values[-1])
  if t * top < start + width:
    above = np.zeros(2)
  else:
    above = _chernoff(
        one, values, t, start + width, [rate / top for rate in _WRAP_RATES]
    )
  if start == 0:
    below = np.zeros(2)
  else:
    root = math.sqrt(t * float(values**2 @ one))
    below = _chernoff(one, values, t, start, [-_DEVIATIONS / root])
  return tuple(above + below)


def _chernoff(one, values, t: int, threshold: float, rates) -> np.ndarray:
  """Returns Chernoff's bounds on the mass of S beyond a threshold, (Q, P).

  The best rate r is taken. Rates r > 0 bound S >= threshold, rates r < 0 bound
  S <= threshold.
  """
  best = np.full(2, math.inf)
  for rate in rates:
    tilted = one * np.exp(rate * values)
    log_one = math.log(float(tilted.sum()))
    log_weighted = math.log(float((values * tilted).sum()))
    rest = (t - 1) * log_one - rate * threshold
    best = np.minimum(best, [rest + log_one, rest + log_weighted])
  # The logarithms are accurate to 1e-12: pairwise sums of 2^24 positive terms.
  return np.exp(np.minimum(best + 1e-12 * t, 0.0))


class TiltError(ArithmeticError):
  """Floats do not hold the weights of a tilt, as with very much noise."""


class TiltedSum:
  """The distribution of the sum S of t lognormals X, weighted by exp(r S).

  Only sums whose terms X are all in (0, top] count, here and in Ex below.

  With M = Ex[exp(r X)] and L the weighted distribution, of mass 1,

      Ex[(S - c)_+] = M^t exp(-r c) sum_{s > c} (s - c) exp(-r (s - c)) L(s)

  for r > 0. The same holds for (c - S)_+ and r < 0. The factor of L(s) in the
  sum is at most 1 / (e |r|), which bounds the effect of an error in L.
  """

  def __init__(
      self, sigma: float, t: int, top: float, threshold: float, rate: float
  ):
    """Computes the distribution.

    Args:
      sigma: Noise std.
      t: Number of steps.
      top: Largest X.
      threshold: Smallest c that will be needed if r > 0, else 0.
      rate: Rate r, see `best_rate`.

    Raises:
      TiltError: If all weights are 0 in floats, or one is infinite.
    """
    width, wrapped = 0.0, 1.0
    while wrapped > MOST_WRAPPED:
      width, log2_points = grid(
          sigma, t, top, threshold, 1.3 * width
      )
      num_points = 1 << log2_points
      step = width / num_points
      one, errors = term_law(sigma, step, top)
      values = step * np.arange(len(one))
      weights = np.exp(rate * values)
      moment = float(weights @ one)
      if not 0 < moment < math.inf:
        raise TiltError(f'rate {rate}: the weights have the mean {moment}')
      weights /= moment
      one *= weights
      first = window_start(one, values, t, num_points)
      wrapped, _ = wrapped_mass(
          one, values, t, first * step, width
      )
    probs, rounding = transforms.convolved([(_padded(one, num_points), t)])
    # Errors in the distribution of X move mass to neighbouring points, this
    # much in total.
    moved = 4 / step * math.exp(abs(rate) * step) * float(errors @ weights)
    self._error = rounding + wrapped + math.expm1(min(t * moved, 700.0))
    # Weights are off by the rounding of their exponents, for each of t terms.
    most = float(np.max(np.abs(rate * values[one > _LEAST_WEIGHT])))
    self._slack = 8 * ROUNDING * t * (most + abs(math.log(moment)) + 40)
    self._log_moment = t * math.log(moment)
    self._rate, self._step, self._first = rate, step, first
    # Sum over j >= k (or j <= k) of d^|j - k| L_j, and the same times |j - k|.
    order = slice(None, None, -1) if rate > 0 else slice(None)
    probs = np.maximum(np.roll(probs, -first % num_points), 0.0)
    discount = math.exp(-abs(rate) * step)
    plain = signal.lfilter([1.0], [1.0, -discount], probs[order])
    spread = signal.lfilter([0.0, discount], [1.0, -discount], plain)
    self._sums = plain[order], spread[order]

  def excess(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (bounds, errors that the bounds include) at thresholds c > 0.

    Upper bounds on Ex[(S - c)_+] if r > 0, else on Ex[(c - S)_+].
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
    # Terms of the sums count until their discount makes them negligible.
    terms = min(size, 40 / (rate * self._step))
    slack = np.abs(logs) + rate * thresholds + terms + 40
    slack = self._slack + 8 * ROUNDING * slack
    scale = np.exp(np.minimum(logs + slack, 700.0))
    return scale * (np.where(is_there, found, 0.0) + error), scale * error


class LargeTerm:
  """The distribution of a sum S of t lognormals X_i with a large term X_1.

  X_1 is in (cut, top], and the other X are in (0, top].
  """

  def __init__(
      self, sigma: float, t: int, cut: float, top: float, threshold: float
  ):
    """Computes the distribution.

    Args:
      sigma: Noise std.
      t: Number of steps, at least 2.
      cut: Lower end of the range of the large X.
      top: Upper end of the range of all X.
      threshold: Smallest c that will be needed.
    """
    width, wrapped = 0.0, (1.0, 1.0)
    while max(wrapped) > MOST_WRAPPED:
      width, log2_points = grid(
          sigma, t, top, threshold, 1.3 * width
      )
      num_points = 1 << log2_points
      step = width / num_points
      one, errors = term_law(sigma, step, top)
      values = step * np.arange(len(one))
      first = window_start(one, values, t, num_points)
      # Wrapped mass of the other terms, given that the large X is at most the
      # last point of its grid.
      largest = float(values[-1])
      wrapped = wrapped_mass(
          one, values, t - 1, 0.0, first * step + width - largest
      )
    large, large_errors = term_law(sigma, step, top, cut)
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
    # Rounding of the transforms and of their inputs.
    self._rounding = rounding + 16 * t * ROUNDING
    self._error = (
        mass * 2 * t * float(errors.sum())
        + 2 * float(large_errors.sum())
        # S above the window is cut off. Its expectation is t times its mass
        # under P.
        + mass * (t * wrapped[1] + largest * wrapped[0])
    )

  def excess(self, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (bounds, errors that the bounds include) at thresholds c.

    Upper bounds on Ex[(S - c)_+], counted only where X_1 is in (cut, top] and
    the other X are in (0, top].
    """
    steps = thresholds / self._step
    size = len(self._sums[0])
    index = np.clip(np.floor(steps) + 1 - self._first, 0, size)
    gap = self._step * (self._first + index - steps)
    room = self._step * size
    is_there = index < size
    index = np.minimum(index, size - 1).astype(np.int64)
    masses, spread = (sums[index] for sums in self._sums)
    found = np.where(is_there, gap * masses + self._step * spread, 0.0)
    # Two cumulative sums of `size` positive terms.
    slack = 4 * ROUNDING * size * found
    error = self._error + self._mass * self._rounding * (gap + room)
    return self._mass * (found + slack) + error, error + self._mass * slack


def best_rate(
    sigma: float, t: int, top: float, threshold: float, *, above: bool
) -> float:
  """Returns the rate r for which the tilted mean of S is about c.

  S is the sum of t terms X, see the module docstring. The tilted distribution
  weighs S by exp(r S). Heuristic: every r of the right sign gives a valid
  bound.

  Args:
    sigma: Noise std.
    t: Number of terms.
    top: Largest X on the grid.
    threshold: Threshold c.
    above: True for the tail above c. Then r > 0, and c is at least t. False for
      the tail below c. Then r < 0, and c is at most t.
  """
  z = np.linspace(-12.0, sigma * math.log(top) + 0.5 / sigma, _NUM_NODES)
  x = np.exp(z / sigma - 0.5 / sigma**2)
  sign = 1.0 if above else -1.0

  def is_below(rate):
    logs = -0.5 * z**2 + sign * rate * x
    weights = np.exp(logs - logs.max())
    mean = float(weights @ x) / float(weights.sum())
    return sign * (mean - threshold / t) <= 0

  low, high = _RATES
  # Weights of the largest X must not overflow.
  high = min(high, _MOST_RATE) if sign > 0 else high
  return sign * search.nearest(
      is_below, high / top, low / top, geometric=True
  )


def _padded(law: np.ndarray, num_points: int) -> np.ndarray:
  return np.pad(law, (0, num_points - len(law)))
