# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy profiles of the parts of a composition, and their joint loss.

A part consists of one or more events that share one profile. One pair of
distributions dominates each event, however its profile was derived. So the
composition of the privacy-loss distributions of these pairs bounds the loss of
all parts together, even if the events are chosen adaptively (arXiv:2106.08567,
theorem 10).
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import math

from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from tff_dp import _compat_losses
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import loss_sums
from tff_dp.accounting.curves import loss_tails
from tff_dp.accounting.curves import privacy_profiles

# Sums of probabilities and one convolution leave errors of this size in delta,
# absolute and relative, for each part. The error of a many-fold convolution is
# bounded by `privacy_profiles.self_convolution_error`.
PLD_ERROR = 1e-14
_RELATIVE_ERROR = 1e-12
# If less probability than this has finite loss, delta counts as 1.
LEAST_HIDDEN = 1e-6
# Covers the rounding of a square root and a division.
_ROUNDED_DOWN = 1 - 1e-15
# A grid whose interval is this share of the standard deviation of the total
# loss adds less than (share^2 / 4) of its variance.
_GRID_SHARE = 0.05
_FINEST = 1e-10
_MOST_POINTS = 1 << 20

# The loss distribution of each direction. One entry if both are the same.
Laws = tuple[loss_sums.Law, ...]


@dataclasses.dataclass(frozen=True)
class Part:
  """A part of a composition: one or more events that share one profile.

  Attributes:
    profile: Profile of one event: an upper bound on delta as a function of
      epsilon.
    count: Number of events.
    reverse: Profile of the other direction. None if `profile` bounds both.
    sigma: Noise std divided by the distance of neighbours, if the part is one
      Gaussian mechanism. The epsilon of the part alone then follows from sigma,
      not from the profile.
  """

  profile: privacy_profiles.Profile
  count: int = 1
  reverse: privacy_profiles.Profile | None = None
  sigma: float | None = None

  @property
  def directions(self) -> tuple[privacy_profiles.Profile, ...]:
    """The profile of each direction, or the one profile that bounds both."""
    return (self.profile, self.reverse) if self.reverse else (self.profile,)

  @property
  def is_vacuous(self) -> bool:
    """Whether the part gives too little privacy to be composed with others.

    Its profile is then 1 at epsilon 0, or `least_delta` is almost 1.
    """
    at_zero = max(float(side(np.zeros(1))[0]) for side in self.directions)
    return at_zero >= 1 or self.least_delta > 1 - LEAST_HIDDEN

  @property
  def least_delta(self) -> float:
    """Delta that remains for all events together, however large epsilon is.

    It is computed from the profile of one event at
    `privacy_profiles.LARGEST_EPSILON`. At every total epsilon up to that value,
    delta is at least as large.
    """
    largest = np.array([privacy_profiles.LARGEST_EPSILON])
    rest = max(float(side(largest)[0]) for side in self.directions)
    if rest >= 1:
      return 1.0
    return -math.expm1(self.count * math.log1p(-rest))

  def terms(self, interval: float) -> list[tuple[Laws, int]]:
    """Returns a list of one pair (loss distributions of one event, count).

    The list is empty if nothing is released.

    Args:
      interval: Interval of the grid of losses.
    """
    if not self.count or self.sigma == math.inf:
      return []
    return [(_laws(self, interval), self.count)]


@dataclasses.dataclass(frozen=True)
class Loss:
  """The privacy loss of some parts together, with its rounding errors.

  Attributes:
    pld: Pessimistic privacy-loss distribution. None if the parts together hide
      almost nothing: epsilon is then infinite.
    error: Rounding error that is added to every delta.
    sums: Function that returns a `LossSum` for each direction. It is used for
      deltas so small that `error` would be too large a share of them. If it is
      None, `error` is added to these deltas, too.
  """

  pld: privacy_loss_distribution.PrivacyLossDistribution | None
  error: float
  sums: Callable[[], tuple[loss_sums.LossSum, ...]] | None = None

  def epsilon(self, delta: float) -> float:
    """Returns epsilon at delta. Upper bound."""
    if self.pld is None:
      return math.inf
    if self.sums is not None and not self._is_resolved(delta):
      return max(direction.epsilon(delta) for direction in self.sums())
    return max(self._epsilon_of(side, delta) for side in self._tails)

  @functools.cached_property
  def _tails(self) -> tuple[loss_tails.LossTails, ...]:
    """The tails of each direction, one if both are the same."""
    return tuple(
        map(loss_tails.LossTails, _compat_losses.loss_directions(self.pld))
    )

  def directions(self) -> tuple[Callable[[float], float], ...]:
    """Returns functions from delta to epsilon, one for each direction.

    The first is for removal and the second for addition. If both directions are
    equal, there is only one. The functions never use `sums`: they return
    infinity for a delta of at most `error`.
    """
    if self.pld is None:
      return (lambda delta: math.inf,)
    return tuple(
        functools.partial(self._epsilon_of, side) for side in self._tails
    )

  def _epsilon_of(self, tails: loss_tails.LossTails, delta: float) -> float:
    remaining = delta * (1 - _RELATIVE_ERROR) - self.error
    if not remaining > 0:
      return math.inf
    return tails.epsilon(remaining) * (1 + _RELATIVE_ERROR)

  def delta(self, epsilon: float) -> float:
    """Returns delta at epsilon. Upper bound."""
    if self.pld is None:
      return 1.0
    found = max(0.0, float(self.pld.get_delta_for_epsilon(float(epsilon))))
    found = min(1.0, found * (1 + _RELATIVE_ERROR) + self.error)
    if self.sums is None or self._is_resolved(found):
      return found
    epsilons = np.array([epsilon], np.float64)
    return max(float(side.deltas(epsilons)[0]) for side in self.sums())

  def profiles(self) -> tuple[privacy_profiles.Profile, ...]:
    """Returns the profile of each direction, or one for both if equal."""
    if self.pld is None:
      return (privacy_profiles.everything,)
    return tuple(
        functools.partial(self._deltas, index)
        for index in range(len(self._tails))
    )

  def profile(self) -> privacy_profiles.Profile:
    """Returns the pointwise maximum of both directions' profiles."""
    profiles = self.profiles()
    return lambda epsilons: np.maximum.reduce(
        [profile(epsilons) for profile in profiles]
    )

  def _deltas(self, index: int, epsilons) -> np.ndarray:
    found = np.minimum(_deltas(self._tails[index], epsilons) + self.error, 1.0)
    is_lost = ~self._is_resolved(found)
    if self.sums is not None and is_lost.any():
      # If both directions are the same, there is only one sum.
      sums = self.sums()
      epsilons = np.asarray(epsilons, np.float64)
      side = sums[min(index, len(sums) - 1)]
      found[is_lost] = np.minimum(
          found[is_lost], side.deltas(epsilons[is_lost])
      )
    return found

  def _is_resolved(self, delta):
    return self.error <= privacy_profiles.ROUNDING_SHARE * delta


def loss_sums_of(
    terms: Sequence[tuple[Laws, int]], interval: float
) -> tuple[loss_sums.LossSum, ...]:
  """Returns the total loss of all releases, one `LossSum` per direction.

  Args:
    terms: Pairs (loss distributions, number of occurrences). There is one
      distribution for each direction, or a single one that bounds both.
    interval: Interval of the grid of losses.
  """
  num_directions = max((len(laws) for laws, _ in terms), default=1)
  return tuple(
      loss_sums.LossSum(
          interval,
          [(laws[min(index, len(laws) - 1)], count) for laws, count in terms],
      )
      for index in range(num_directions)
  )


def alike(part: Part, interval: float) -> Loss:
  """Returns the loss of one part. The grid ends where little delta remains.

  Upper bound.

  Args:
    part: A part that is not one Gaussian mechanism.
    interval: Interval of the grid of losses.
  """
  single = privacy_profiles.to_pld(
      part.profile, reverse=part.reverse, interval=interval
  )
  sums = functools.cache(lambda: loss_sums_of(part.terms(interval), interval))
  pld, error = self_composed(single, part.count)
  return Loss(pld, error, sums)


def together(parts: Sequence[Part], *, interval: float | None = None) -> Loss:
  """Returns the joint privacy loss of all parts. Upper bound.

  Args:
    parts: Parts in any order.
    interval: Interval of the grid of losses. Default: `suitable_interval`.
  """
  if interval is None:
    interval = suitable_interval(parts)
  return _together(tuple(parts), interval)


@functools.lru_cache(maxsize=8)
def _together(parts: tuple[Part, ...], interval: float) -> Loss:
  result = privacy_loss_distribution.identity(interval)
  error = 0.0
  for part in parts:
    if part.count == 0:
      continue
    composed, more = _composed(part, interval)
    result = compose(result, composed)
    if result is None:
      return Loss(None, 0.0)
    error += more
  sums = functools.cache(
      lambda: loss_sums_of(
          [term for part in parts for term in part.terms(interval)], interval
      )
  )
  return Loss(result, error, sums)


@functools.lru_cache(maxsize=32)
def _laws(part: Part, interval: float) -> Laws:
  return privacy_profiles.laws(
      part.profile, reverse=part.reverse, interval=interval
  )


def compose(first, second):
  """Returns the composition of two privacy-loss distributions.

  A distribution may be `None`, as an argument or as the result. `None` means
  that almost all loss is infinite.
  """
  if first is None or second is None:
    return None
  hidden = 1.0
  for part in (first, second):
    hidden *= 1 - float(part.get_delta_for_epsilon(math.inf))
  # dp_accounting cannot compose distributions with almost no finite loss.
  return first.compose(second) if hidden > LEAST_HIDDEN else None


@functools.lru_cache(maxsize=8)
def _composed(part: Part, interval: float):
  """Returns (distribution, bound on its error in delta) of a part.

  The distribution is `None` if the part is vacuous.
  """
  if part.is_vacuous:
    return None, 0.0
  if part.sigma is not None:
    if part.sigma == math.inf:
      return privacy_loss_distribution.identity(interval), 0.0
    single = privacy_loss_distribution.from_gaussian_mechanism(
        part.sigma, value_discretization_interval=interval
    )
    return single, PLD_ERROR
  single = privacy_profiles.to_pld(
      part.profile,
      reverse=part.reverse,
      interval=interval,
      largest_epsilon=_extent(part)[1],
  )
  return self_composed(single, part.count)


def self_composed(single, count: int):
  """Returns (distribution, bound on its error in delta) of `count` releases.

  Args:
    single: Distribution of one release.
    count: Number of releases.
  """
  error = PLD_ERROR
  if count > 1:
    error += max(
        privacy_profiles.self_convolution_error(probs, count)
        for _, probs, _ in _compat_losses.loss_masses(single)
    )
    single = single.self_compose(count)
  return single, error


@functools.lru_cache(maxsize=256)
def one_gaussian(sigma: float, count: int) -> Part:
  """Returns the part of `count` Gaussian mechanisms, merged into one.

  The mechanisms may be chosen adaptively. Exact: arXiv:1905.02383, corollary
  3.3. Results are cached: see `privacy_profiles.composed_epsilon`.

  Args:
    sigma: Noise std of one mechanism, divided by the distance of neighbours.
    count: Number of mechanisms.
  """
  sigma = sigma / math.sqrt(count) * _ROUNDED_DOWN
  return Part(gaussian.profile(sigma), sigma=sigma)


def epsilon(parts: Sequence[Part], delta: float) -> float:
  """Returns epsilon of all parts at delta. Upper bound."""
  if not parts:
    return 0.0
  if len(parts) == 1:
    (part,) = parts
    if part.sigma is not None:
      return gaussian.exact_epsilon(sigma=part.sigma, delta=delta)
    if part.count == 1 and part.reverse is None:
      return privacy_profiles.epsilon_of(part.profile, delta)
    found = privacy_profiles.composed_epsilon(
        part.profile, delta, count=part.count, reverse=part.reverse
    )
  else:
    found = together(parts).epsilon(delta)
  return found if found < math.inf else _basic_epsilon(parts, delta)


def _basic_epsilon(parts: Sequence[Part], delta: float) -> float:
  """Returns the sum of the events' epsilons at equal shares of delta.

  Upper bound by basic composition: epsilons and deltas of adaptively chosen
  releases add up.
  """
  share = delta * (1 - 1e-15) / max(1, sum(part.count for part in parts))
  total = sum(part.count * _single_epsilon(part, share) for part in parts)
  return total * (1 + _RELATIVE_ERROR)


def _single_epsilon(part: Part, delta: float) -> float:
  if part.sigma is not None:
    return gaussian.exact_epsilon(sigma=part.sigma, delta=delta)
  return max(
      privacy_profiles.epsilon_of(
          side, delta, largest_epsilon=privacy_profiles.LARGEST_EPSILON
      )
      for side in part.directions
  )


def least(found: Sequence[Part]) -> Part:
  """Returns the pointwise minimum of parts that describe the same events."""
  counts = {part.count for part in found}
  if len(counts) > 1:
    # Some of the parts describe all events at once, so compose the others.
    whole = [part for part in found if part.count == 1]
    for part in found:
      if part.count > 1 and not part.is_vacuous:
        whole.append(Part(together([part]).profile()))
    return least(whole)
  if len(found) == 1:
    return found[0]
  forward = privacy_profiles.minimum(*(part.profile for part in found))
  reverse = None
  if any(part.reverse is not None for part in found):
    reverse = privacy_profiles.minimum(
        *(part.reverse or part.profile for part in found)
    )
  return Part(forward, counts.pop(), reverse)


def suitable_interval(parts: Sequence[Part]) -> float:
  """Returns the interval of a grid on which all parts compose tightly.

  Any interval gives an upper bound. Rounding to the grid adds variance to the
  loss: for each part, at most `count` times a quarter of the squared interval.
  The returned interval keeps the added variance a small share of the variance
  of the loss, unless the grid would have too many points.
  """
  extents = [_extent(part) for part in parts]
  total = math.sqrt(
      sum(
          part.count * scale**2
          for part, (scale, _) in zip(parts, extents, strict=True)
      )
  )
  most = max((part.count for part in parts), default=1)
  wished = _GRID_SHARE * total / math.sqrt(max(1, most * len(parts)))
  # The losses of one event, and of everything together, must fit one array.
  widest = max((largest for _, largest in extents), default=1.0)
  return max(wished, _FINEST, 2 * max(widest, 40 * total) / _MOST_POINTS)


@functools.lru_cache(maxsize=256)
def _extent(part: Part) -> tuple[float, float]:
  """Returns rough values: (standard deviation, maximum) of one event's loss.

  Delta that remains at this maximum becomes infinite loss.
  """
  return privacy_profiles.extent(part.profile, reverse=part.reverse)


def profile_of(pld) -> privacy_profiles.Profile:
  """Returns the profile of a privacy-loss distribution, or of one direction.

  Upper bound. The profile of a whole distribution is the larger one of both
  directions.
  """
  pmfs = (pld,)
  if isinstance(pld, privacy_loss_distribution.PrivacyLossDistribution):
    pmfs = _compat_losses.loss_directions(pld)
  sides = [loss_tails.LossTails(pmf) for pmf in pmfs]
  return lambda epsilons: np.maximum.reduce(
      [_deltas(side, epsilons) for side in sides]
  )


def _deltas(tails: loss_tails.LossTails, epsilons) -> np.ndarray:
  found = tails.deltas(epsilons)
  return np.clip(found * (1 + _RELATIVE_ERROR) + PLD_ERROR, 0.0, 1.0)
