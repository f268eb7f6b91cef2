# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy profiles, delta as a function of epsilon, and their compositions.

A profile is a function from an array of epsilons >= 0 to an array of deltas. It
is a non-increasing upper bound on

    H_E(P || Q) = sum_o max(P(o) - E Q(o), 0),   E = exp(epsilon),

for every pair (P, Q) of output distributions of neighbours. Only E >= 1 is
needed, because the other half of the curve follows from the reversed pair:

    H_{1/E}(P || Q) = 1 - 1/E + H_E(Q || P) / E.

A profile that bounds both directions gives a symmetric privacy-loss
distribution. H_E is a convex function of E. So if a bound on it is not convex,
such as the minimum of several bounds, its lower convex hull is a bound as well.
A grid of values of E is enough, because between neighbours in the grid the
straight line is a bound (connect the dots, arXiv:2207.04380). Such a curve,
linear between points E_i = exp(l_i), is H_E of a pair (P, Q) whose only losses
are the l_i. If the slope rises by q_i at E_i, the loss l_i has the mass q_i
under Q and E_i q_i under P.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

from dp_accounting.pld import common
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
from scipy import fft

from tff_dp import _checks
from tff_dp import _compat_losses
from tff_dp.accounting.curves import loss_sums
from tff_dp.accounting.curves import loss_tails

Profile = Callable[[np.ndarray], np.ndarray]

# exp(epsilon), and products of a few of its square roots, must not overflow.
LARGEST_EPSILON = 600.0

_ROUNDING = float(np.finfo(np.float64).eps)
# Sums of a few rounded products: their relative error, generously.
_RELATIVE_ERROR = 1e-12
# Relative error of scipy's binomial probabilities. Measured against 40 digits:
# 6e-13 for up to 10^6 trials, 5e-10 at worst (10^7 trials of probability 10^-8,
# scipy 1.9).
BINOMIAL_ERROR = 4e-9
# This mass, plus a share of the total variation, is cut off the loss
# distribution of one release and counted as infinite loss. A longer tail would
# stretch the grid far beyond the losses that occur.
_CUT = 1e-22
_CUT_SHARE = 1e-15
# The grid of losses, as a share of their standard deviation. Rounding to it
# adds less than share^2 / 4 to the variance of the loss.
_GRID_SHARE = 0.05
_MOST_POINTS = 1 << 20
_LEAST_INTERVAL = 1e-10
# Mass that dp_accounting by default cuts off in a self-convolution and counts
# as infinite loss.
_TAIL = 1e-15
# If rounding takes more than this share of a delta, the distributions are
# tilted instead (`loss_sums`).
ROUNDING_SHARE = 1e-3
# Mass that `laws` counts as infinite loss, less than any delta.
_FAR_CUT = 1e-250
_SEARCH_POINTS = 33
# More releases have no finite epsilon here: the grid of their losses would take
# too much memory.
_MOST_RELEASES = 10**10
# The hull uses every grid point up to this one, then fewer and fewer.
_DENSE_NODES = 50
_NODE_GROWTH = 1.02


class NotApplicableError(ValueError):
  """The conditions of a bound do not hold, so the bound says nothing.

  Attributes:
    reason: The condition that fails, with the values that break it.
  """

  def __init__(self, reason: str):
    super().__init__(reason)
    self.reason = reason


def nothing(epsilons: np.ndarray) -> np.ndarray:
  """The profile of a release that does not depend on the client: 0."""
  return np.zeros(np.shape(epsilons))


def everything(epsilons: np.ndarray) -> np.ndarray:
  """The profile of a release that hides nothing: 1."""
  return np.ones(np.shape(epsilons))


@functools.lru_cache(maxsize=256)
def minimum(*profiles: Profile) -> Profile:
  """Returns the pointwise minimum of profiles of the same releases.

  Results are cached: see `composed_epsilon`.
  """
  if not profiles:
    raise ValueError('profiles is empty: expected at least one profile.')

  def profile(epsilons):
    return np.minimum.reduce([bound(epsilons) for bound in profiles])

  return profile


def raised(epsilons: np.ndarray, probability) -> np.ndarray:
  """Returns ln(1 + (E - 1) / probability), where E = exp(epsilon). Broadcasts.

  Amplification by subsampling evaluates the profile of the release without
  subsampling at this epsilon (arXiv:1807.01647, theorem 2). The result is
  rounded down, but never below epsilon. A profile does not increase in epsilon,
  so its value at the result is an upper bound.

  Args:
    epsilons: Epsilons, at least 0.
    probability: Probability of taking part, a number or an array.
  """
  epsilons = np.asarray(epsilons, np.float64)
  with np.errstate(over='ignore', divide='ignore'):
    small = np.log1p(np.expm1(np.minimum(epsilons, 30.0)) / probability)
    # ln(1 + (E - 1) / p) >= epsilon - ln(p) + ln(1 - 1/E); for large E.
    large = epsilons - np.log(probability) + np.log1p(-np.exp(-epsilons))
  found = np.where(epsilons <= 30.0, small, large)
  return np.maximum(epsilons, found * (1 - 8 * _ROUNDING))


@functools.lru_cache(maxsize=256)
def subsampled(profile: Profile, probability: float) -> Profile:
  """Returns the profile of the mixture (1 - p) Q + p P against Q.

  With probability p, the output has the distribution P instead of Q. The result
  is p delta(ln(1 + (E - 1) / p)), where delta is `profile` and E =
  exp(epsilon). Exact if `profile` is exact: the module's H_E of the mixture is
  sum_o max(p (P(o) - Q(o)) - (E - 1) Q(o), 0), which equals p H_{1 + (E - 1) /
  p}(P || Q). Results are cached: see `composed_epsilon`.

  Args:
    profile: Profile of P against Q.
    probability: Probability p, in [0, 1].
  """
  if probability == 1:
    return profile
  if probability == 0:
    return nothing
  return lambda epsilons: (
      probability * profile(raised(epsilons, probability))
  )


def epsilon_of(
    profile: Profile, delta: float, *, largest_epsilon: float = 500.0
) -> float:
  """Returns the epsilon of one release with a given profile, at delta.

  Upper bound: the smallest epsilon at which the profile is at most delta,
  rounded up by less than one part in 10^9. Infinity if there is none up to
  `largest_epsilon`.

  Args:
    profile: Profile of the release.
    delta: Target delta, in (0, 1).
    largest_epsilon: Largest epsilon to try, at most `LARGEST_EPSILON`.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.in_closed(0.0, LARGEST_EPSILON, largest_epsilon=largest_epsilon)
  is_private = lambda epsilons: profile(epsilons) <= delta
  if is_private(np.zeros(1))[0]:
    return 0.0
  if not is_private(np.array([largest_epsilon]))[0]:
    return math.inf
  low, high = 0.0, float(largest_epsilon)
  while high - low > 1e-9 * high and high > 1e-300:
    # Use a geometric grid if the range covers several powers of ten.
    if low * 4 < high:
      start = max(low, high * 1e-6)
      grid = np.geomspace(start, high, _SEARCH_POINTS)
      grid = np.concatenate([[low], grid]) if low < start else grid
    else:
      grid = np.linspace(low, high, _SEARCH_POINTS)
    private = is_private(grid)
    private[-1] = True
    first = int(np.argmax(private))
    if first == 0:
      return low
    low, high = float(grid[first - 1]), float(grid[first])
  return high


def extent(
    profile: Profile, *, reverse: Profile | None = None
) -> tuple[float, float]:
  """Returns (scale of the loss, `largest_epsilon` for `to_pld`).

  Heuristic, for choosing a grid: the scale is roughly the standard deviation of
  one release's privacy loss, sqrt(2 KL). The Kullback-Leibler divergence KL is
  the integral of profile(eps) + exp(-eps) reverse(eps) over eps >= 0. Infinite
  loss is left out of it.

  Args:
    profile: Profile of the release, as in `to_pld`.
    reverse: Profile of the other direction. Default: `profile`.
  """
  sketch = _sketch(profile, reverse)
  return _scale(*sketch), float(sketch[0][-1])


def suitable_interval(
    profile: Profile, *, reverse: Profile | None = None
) -> float:
  """Returns the interval of the grid that `to_pld` uses by default."""
  sketch = _sketch(profile, reverse)
  return _interval(float(sketch[0][-1]), sketch)


def to_pld(
    profile: Profile,
    *,
    reverse: Profile | None = None,
    largest_epsilon: float | None = None,
    interval: float | None = None,
) -> privacy_loss_distribution.PrivacyLossDistribution:
  """Returns a privacy-loss distribution that dominates the profile.

  Upper bound: the lower convex hull, in exp(epsilon), of the profile at points
  of the grid (arXiv:2207.04380, algorithm 1). Some grid points may be left out.
  One hull covers both halves of the curve, exp(epsilon) below and above 1.

  Args:
    profile: Bound on delta as a function of epsilon, for a pair of output
      distributions of neighbours. Without `reverse` it bounds both directions.
    reverse: Bound for the reversed pair, if it has another one.
    largest_epsilon: Largest finite loss. Delta that remains there becomes
      infinite loss. Default: where almost no delta remains.
    interval: Interval of the grid of losses. Default: `suitable_interval`.
      Distributions compose only if they share the interval.
  """
  masses = _Masses.of(
      profile, reverse, largest_epsilon=largest_epsilon, interval=interval
  )
  forward = masses.pmf()
  if reverse is None:
    return privacy_loss_distribution.PrivacyLossDistribution(forward)
  return privacy_loss_distribution.PrivacyLossDistribution(
      forward, masses.reversed().pmf()
  )


def composed_epsilon(
    profile: Profile,
    delta: float,
    *,
    count: int,
    reverse: Profile | None = None,
    interval: float | None = None,
) -> float:
  """Returns epsilon of `count` adaptive releases that share one profile.

  Upper bound: dp_accounting composes the distribution of `to_pld`, and its
  rounding errors are added to delta. If those errors are a large share of
  delta, `loss_sums` composes instead. The result is infinity if delta cannot be
  reached, or if `count` is above 10^10. It is also infinity if `count` is above
  1 and the profile of one release is 1 at epsilon 0.

  The composition of the same function `profile`, and of the same `reverse`, is
  cached, because it does not depend on delta.

  Args:
    profile: Profile of one release, as in `to_pld`.
    delta: Target delta of all releases together, in (0, 1).
    count: Number of releases, at least 1.
    reverse: Profile of the other direction, as in `to_pld`.
    interval: Interval of the grid of losses. Default: `suitable_interval`.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, count=count)
  if count > _MOST_RELEASES:
    return math.inf
  return _composition(profile, int(count), reverse, interval).epsilon(delta)


def laws(
    profile: Profile, *, reverse: Profile | None = None, interval: float
) -> tuple[loss_sums.Law, ...]:
  """Returns the loss distributions that dominate a profile, for `loss_sums`.

  Upper bound, like `to_pld`, but less of the tail counts as infinite loss: only
  the delta d that remains at `LARGEST_EPSILON`, and about d / 500 + 2e-250
  more. The result is one distribution, or with `reverse` one for each
  direction.

  Args:
    profile: Profile as in `to_pld`.
    reverse: Profile of the other direction, as in `to_pld`.
    interval: Interval of the grid of losses.
  """
  epsilons, *_ = _sketch(profile, reverse, cut=_FAR_CUT, share=0.0)
  masses = _Masses.of(
      profile,
      reverse,
      largest_epsilon=float(epsilons[-1]),
      interval=interval,
      most=None,
  )
  directions = [masses] if reverse is None else [masses, masses.reversed()]
  return tuple(side.law() for side in directions)


def self_convolution_error(probs: np.ndarray, count: int) -> float:
  """Returns a bound on the error of delta by rounding in a self-convolution.

  dp_accounting's `self_compose` raises a Fourier transform f of N points to a
  power t and transforms it back. Let u = 2^-53. Each transform moves each point
  by at most 4 u log2(N) times the sum of absolute inputs. The power moves a
  value by at most 8 t u of itself. By Parseval's theorem, the sum of absolute
  errors is at most

      4 u log2(N) (norm2(t |f|^(t-1)) + sum |f|^t) + 8 t u norm2(|f|^t),

  where norm2 is the Euclidean norm over the N points.

  Args:
    probs: Probabilities of the losses of one release, on a grid.
    count: Number of releases t.
  """
  _checks.integer_at_least(1, count=count)
  if count == 1:
    return 0.0
  # For the search below, and for the one in the composition that follows.
  _compat_losses.bound_convolutions_at_once()
  probs = np.asarray(probs, np.float64)
  low, high = common.compute_self_convolve_bounds(probs, count, _TAIL)
  num_points = fft.next_fast_len(max(high - low + 1, len(probs)), real=True)
  moduli = np.abs(fft.rfft(probs, num_points))
  with np.errstate(under='ignore'):
    powers = moduli ** (count - 1)
    shifts = count * powers
    powers *= moduli
  unit = _ROUNDING / 2
  depth = 4 * unit * math.log2(max(2, num_points))
  # rfft returns half of the points.
  norm = lambda values: math.sqrt(2 * float(values @ values))
  return (
      depth * (norm(shifts) + 2 * float(powers.sum()))
      + 8 * unit * count * norm(powers)
  )


@dataclasses.dataclass(frozen=True)
class _Masses:
  """A loss distribution on a grid: `masses[i]` at `points[i] * interval`."""

  interval: float
  points: np.ndarray
  masses: np.ndarray
  infinite: float
  # Mass of the pair's second distribution outside the support of the first.
  infinite_reverse: float

  @classmethod
  def of(
      cls,
      profile,
      reverse,
      *,
      largest_epsilon=None,
      interval=None,
      most=2 * _MOST_POINTS,
  ):
    """Returns the masses of the convex hull of a profile (see `to_pld`)."""
    if interval is None or largest_epsilon is None:
      sketch = _sketch(profile, reverse)
      if largest_epsilon is None:
        largest_epsilon = float(sketch[0][-1])
      if interval is None:
        interval = _interval(largest_epsilon, sketch)
    _checks.positive(interval=interval)
    _checks.positive(largest_epsilon=largest_epsilon)
    largest_epsilon = min(largest_epsilon, LARGEST_EPSILON)
    last = max(1, math.ceil(largest_epsilon / interval))
    last = last if most is None else min(last, most)
    while last > 1 and last * interval > LARGEST_EPSILON:
      last -= 1
    nodes = _hull_nodes(last)
    forward = _evaluated(profile, nodes * interval)
    backward = forward
    if reverse is not None:
      backward = _evaluated(reverse, nodes * interval)
      # Both values bound the total variation, and no delta is larger than it.
      distance = min(forward[0], backward[0])
      forward = np.minimum(forward, distance)
      backward = np.minimum(backward, distance)
    vertices, masses = _lower_hull(
        nodes, interval, forward, backward
    )
    return cls(interval, vertices, masses, forward[-1], backward[-1])

  def reversed(self) -> '_Masses':
    """Returns the loss distribution of the reversed pair."""
    masses = self.masses * np.exp(-self.points * self.interval)
    return _Masses(
        self.interval,
        -self.points[::-1],
        masses[::-1].copy(),
        self.infinite_reverse,
        self.infinite,
    )

  @functools.cached_property
  def probs(self) -> np.ndarray:
    """The masses at every grid point from the first to the last."""
    probs = np.zeros(self.points[-1] - self.points[0] + 1)
    probs[self.points - self.points[0]] = self.masses
    return probs

  def pmf(self) -> pld_pmf.DensePLDPmf:
    return pld_pmf.DensePLDPmf(
        self.interval, int(self.points[0]), self.probs, self.infinite, True
    )

  def law(self) -> loss_sums.Law:
    kept = self.masses > 0
    return loss_sums.Law(
        self.points[kept], self.masses[kept], float(self.infinite)
    )


class _Composition:
  """A number of adaptive releases, each with the same privacy profile.

  It composes them once, and `epsilon` reads the result at any delta. See
  `composed_epsilon` for the arguments.
  """

  def __init__(self, profile, count, reverse, interval):
    self._profile = profile
    self._count = count
    self._reverse = reverse
    self._interval = interval
    self._distance = float(profile(np.zeros(1))[0])

  def epsilon(self, delta: float) -> float:
    if self._distance >= 1.0:
      if self._count > 1:
        return math.inf
      sides = self._profile, self._reverse
      return max(epsilon_of(side, delta) for side in sides if side)
    lost = self._count * (_CUT + _CUT_SHARE * self._distance)
    if self._count > 1:
      lost += _TAIL
    most = ROUNDING_SHARE * delta
    if lost <= most and lost + max(self._errors) <= most:
      return max(
          self._read(index, delta) for index in range(len(self._masses))
      )
    return max(side.epsilon(delta) for side in self._sums)

  def _read(self, index: int, delta: float) -> float:
    """Returns epsilon of one direction, by the composition of dp_accounting."""
    remaining = delta * (1 - _RELATIVE_ERROR) - self._errors[index]
    if not remaining > 0 or self._masses[index].infinite >= 1:
      return math.inf
    found = self._tails[index].epsilon(remaining)
    return found * (1 + _RELATIVE_ERROR)

  @functools.cached_property
  def _masses(self) -> list[_Masses]:
    masses = _Masses.of(
        self._profile, self._reverse, interval=self._interval
    )
    return [masses] if self._reverse is None else [masses, masses.reversed()]

  @functools.cached_property
  def _errors(self) -> list[float]:
    return [
        self_convolution_error(side.probs, self._count)
        for side in self._masses
    ]

  @functools.cached_property
  def _tails(self) -> list[loss_tails.LossTails]:
    found = []
    for side in self._masses:
      pmf = side.pmf()
      if self._count > 1:
        pmf = pmf.self_compose(self._count)
      found.append(loss_tails.LossTails(pmf))
    return found

  @functools.cached_property
  def _sums(self) -> list[loss_sums.LossSum]:
    interval = self._masses[0].interval
    return [
        loss_sums.LossSum(interval, [(law, self._count)])
        for law in laws(
            self._profile, reverse=self._reverse, interval=interval
        )
    ]


# A statement alternates between the bounds on a few events.
_composition = functools.lru_cache(maxsize=16)(_Composition)


def _interval(largest_epsilon: float, sketch) -> float:
  """Returns a grid interval that suits one release, and many repetitions."""
  interval = max(
      _GRID_SHARE * _scale(*sketch),
      2 * largest_epsilon / _MOST_POINTS,
      _LEAST_INTERVAL,
  )
  # Profiles of bounded losses have a kink at the largest loss. Put it on the
  # grid.
  steps = max(1, math.ceil(largest_epsilon / interval))
  return max(largest_epsilon / steps, _LEAST_INTERVAL)


def _evaluated(profile: Profile, epsilons: np.ndarray) -> np.ndarray:
  """Returns deltas in [0, 1], non-increasing, rounded up."""
  deltas = np.asarray(profile(epsilons), np.float64) * (1 + _RELATIVE_ERROR)
  if deltas.shape != epsilons.shape or np.isnan(deltas).any():
    raise ValueError(
        f'profile={profile!r} is not allowed: expected a function that returns'
        ' one number for each epsilon.'
    )
  return np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))


def _sketch(
    profile, reverse, *, cut: float = _CUT, share: float = _CUT_SHARE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns (epsilons, deltas, reverse deltas) at a few points of a profile.

  The epsilons go from 0 to where little delta remains.

  Args:
    profile: Profile as in `to_pld`.
    reverse: Profile of the other direction, as in `to_pld`.
    cut: Delta that counts as little.
    share: Share of the delta at epsilon 0 that counts as little, too.
  """
  positive = np.geomspace(1e-9, LARGEST_EPSILON, 60)
  epsilons = np.concatenate([[0.0], positive])
  deltas = _evaluated(profile, epsilons)
  others = deltas if reverse is None else _evaluated(reverse, epsilons)
  cut = cut + share * min(deltas[0], others[0])
  is_rest = lambda d: d <= d[-1] * (1 + 1e-3) + cut
  last = int(np.argmax(is_rest(deltas) & is_rest(others)))
  last = max(last, 1)
  fine = np.linspace(epsilons[last - 1], epsilons[last], 17)
  grid = np.concatenate([epsilons[:last], fine[1:]])
  deltas = _evaluated(profile, grid)
  others = deltas if reverse is None else _evaluated(reverse, grid)
  # Compare with the delta at the end of the fine grid, not of the whole range.
  enough = np.flatnonzero(is_rest(deltas) & is_rest(others))
  end = max(int(enough[0]) if len(enough) else len(grid) - 1, 1)
  if deltas[end] == others[end] == 0 and deltas[end - 1] > 1e-9 * deltas[0]:
    # The largest loss is finite and likely: find it.
    grid[end] = max(
        _last_positive(bound, grid[end - 1], grid[end])
        for bound in (profile, reverse or profile)
    )
  return grid[: end + 1], deltas[: end + 1], others[: end + 1]


def _last_positive(profile, low: float, high: float) -> float:
  """Returns the epsilon at which a profile reaches 0, rounded up."""
  for _ in range(9):
    grid = np.linspace(low, high, _SEARCH_POINTS)
    is_zero = np.asarray(profile(grid)) <= 0
    is_zero[-1] = True
    first = max(1, int(np.argmax(is_zero)))
    low, high = float(grid[first - 1]), float(grid[first])
  return high


def _scale(epsilons, deltas, others) -> float:
  values = (deltas - deltas[-1]) + np.exp(-epsilons) * (others - others[-1])
  divergence = float(np.sum((values[1:] + values[:-1]) / 2 * np.diff(epsilons)))
  return math.sqrt(2 * max(divergence, 0.0))


def _hull_nodes(last: int) -> np.ndarray:
  """Returns grid points from 0 to `last`: all small ones, then fewer."""
  found = np.arange(min(last, _DENSE_NODES) + 1)
  if last > _DENSE_NODES:
    num = 2 + math.ceil(
        math.log(last / _DENSE_NODES) / math.log(_NODE_GROWTH)
    )
    spread = np.geomspace(_DENSE_NODES, last, num)
    found = np.unique(np.concatenate([found, np.ceil(spread).astype(int)]))
    found = np.minimum(found, last)
    found = np.unique(found)
  return found


def _lower_hull(
    grid: np.ndarray,
    interval: float,
    forward: np.ndarray,
    backward: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
  """Returns (grid points, masses) of the lower convex hull of a curve.

  The curve is f(E) = H_E, for E on both sides of 1. For small E, f is close to
  1 - E, and the difference g = f - (1 - E) is tiny. So left of E = 1, slopes
  are computed from g, and the tails lose no digits. The slope of f is the
  slope of g, minus 1.

  Args:
    grid: Grid points from 0 on, shape [n].
    interval: Interval of the grid.
    forward: Values f at exp(grid * interval).
    backward: Values of the reversed pair at the same points.
  """
  left = -grid[:0:-1]
  points = np.concatenate([left, grid])
  odds = np.exp(points * interval)
  reflected = np.exp(left * interval) * backward[:0:-1]
  values = np.concatenate([reflected, forward])
  # f = values + lift, with lift = 1 - E left of 1.
  lift = -np.expm1(left * interval)
  lifts = np.concatenate([lift, np.zeros(len(grid))])
  num_left = len(left)

  def slope(i, j):
    """Returns the slope of g on the left, of f on the right and across E = 1.
    """
    gap = -odds[i] * math.expm1((points[j] - points[i]) * interval)
    if i >= num_left or j < num_left:
      return (values[i] - values[j]) / gap
    return (values[i] - values[j] + lifts[i]) / gap

  def comparable(i, j):
    """Returns the slope of f between i and j."""
    return slope(i, j) - (1.0 if j < num_left else 0.0)

  corners: list[int] = []
  for new in range(len(points)):
    while len(corners) > 1:
      before, middle = corners[-2], corners[-1]
      if new < num_left:
        is_below = slope(before, middle) < slope(middle, new)
      else:
        is_below = comparable(before, middle) < comparable(middle, new)
      if is_below:
        break
      corners.pop()
    corners.append(new)
  kept = np.array(corners)
  slopes = np.array([slope(i, j) for i, j in zip(kept[:-1], kept[1:])])
  is_left = kept[1:] < num_left
  # Before the first point f rises to 1 at E = 0. After the last it is constant.
  first = values[kept[0]] / odds[kept[0]]
  slopes = np.concatenate([[first], slopes, [0.0]])
  is_left = np.concatenate([[True], is_left, [False]])
  rises = np.diff(slopes) + (is_left[:-1] & ~is_left[1:])
  # Only rounding makes a rise negative. Setting it to 0 adds mass, so the
  # result still dominates.
  masses = np.maximum(rises, 0.0) * odds[kept]
  return points[kept], masses
