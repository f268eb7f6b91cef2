# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy profiles of one local report, for two inputs of one client.

The local randomizer R runs at the client, and an observer sees the report R(x).
A profile here bounds H_E(R(x) || R(x')), E = exp(epsilon), over all inputs x,
x' of one client: adjacency is replace-one, and both directions are bounded at
once. The client's input may depend on earlier releases, such as the broadcast
model. The profiles hold given everything that was released before.

A bound on amplification starts from a profile, from pairs (epsilon0, delta0)
that hold for a report, or from a proven probability that another client's
report is a clone (`systems.check_ins.shuffling`). `report` finds all of these
by the type of the event. It refuses a foreign subclass of a local event,
because the subclass may mean something else.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian as gaussian_curve
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events

_ROUNDING = float(np.finfo(np.float64).eps)
# Above this value exp overflows. A mechanism with such a local epsilon hides
# nothing anyway.
_LARGEST_LOCAL_EPSILON = 500.0
# Local epsilons at which the profile of a Gaussian randomizer is evaluated.
_SPLITS = np.geomspace(0.02, 20.0, 48)


@dataclasses.dataclass(frozen=True)
class LocalReport:
  """The known facts about one local report, for replace-one.

  Attributes:
    profile: Privacy profile of the report.
    splits: Function from the delta of the whole release to pairs (epsilon0,
      delta0) that hold for the report. Gaussian noise has many pairs, or none
      if delta is too small.
    is_pure: Whether there is exactly one pair and its delta0 is 0.
    strong_clones: Pairs (name, value): arguments that make the bound by clones
      in `systems.check_ins.shuffling` tighter. Empty if only the bound for all
      randomizers is proven for this one.
    together: Function from a number of reports to one part that holds them all.
      `None` if the part follows from the profile.
  """

  profile: privacy_profiles.Profile
  splits: Callable[[float], tuple[tuple[float, float], ...]]
  is_pure: bool
  strong_clones: tuple[tuple[str, float], ...] = ()
  together: Callable[[int], composition.Part] | None = None

  def part(self, count: int) -> composition.Part:
    """Returns the part of `count` reports, if an observer sees each of them."""
    if self.together is not None:
      return self.together(count)
    return composition.Part(self.profile, count)

  @property
  def split(self) -> tuple[float, float]:
    """The pair (epsilon0, delta0) of a randomizer that has only one."""
    (pair,) = self.splits(0.5)
    return pair


@functools.lru_cache(maxsize=64)
def report(event: run_events.LocalRandomizerDpEvent) -> LocalReport:
  """Returns the known facts about the report that an event describes.

  Results are cached: see `privacy_profiles.composed_epsilon`.

  Raises:
    TypeError: If the event is of none of the local classes of `run_events`. A
      subclass of these classes is refused, too.
    ArgumentError: If the epsilon of the event is above 500.
  """
  kind = type(event)
  if kind is run_events.GaussianLocalDpEvent:
    return _gaussian_report(event.noise_multiplier)
  if kind is run_events.LocalDpEvent:
    return LocalReport(
        approximate(event.epsilon, event.delta),
        lambda _: ((event.epsilon, event.delta),),
        is_pure=event.delta == 0,
    )
  strong_clones: tuple[tuple[str, float], ...] = ()
  if kind is run_events.SphereLocalDpEvent:
    profile = pure(event.epsilon)
    strong_clones = (
        (
            'clone_probability',
            strong_clone_probability(event.epsilon),
        ),
    )
  elif kind is run_events.LaplaceLocalDpEvent:
    profile = laplace(event.epsilon)
  elif kind is run_events.RandomizedResponseLocalDpEvent:
    profile = randomized_response(
        event.epsilon, event.num_categories
    )
    strong_clones = (('num_categories', event.num_categories),)
  else:
    raise TypeError(
        f'event={event!r} is not allowed: expected one of the local events of'
        ' tff_dp.accounting.events.run_events.'
    )
  return LocalReport(
      profile, lambda _: ((event.epsilon, 0.0),), True, strong_clones
  )


def pure(local_epsilon: float) -> privacy_profiles.Profile:
  """Returns the profile of any pure e0-LDP randomizer.

  Upper bound, exact for binary randomized response: max(exp(e0) - E, 0) / (1 +
  exp(e0)) with E = exp(epsilon). Binary randomized response dominates every
  such randomizer (Kairouz, Oh and Viswanath, arXiv:1311.0776).

  Args:
    local_epsilon: Local epsilon e0.
  """
  return approximate(local_epsilon, 0.0)


def approximate(
    local_epsilon: float, local_delta: float
) -> privacy_profiles.Profile:
  """Returns the profile of any (e0, d0)-LDP randomizer.

  Upper bound: d0 + (1 - d0) max(exp(e0) - E, 0) / (1 + exp(e0)) with E =
  exp(epsilon). It is attained by the randomizer that reveals its input with
  probability d0 and otherwise is binary randomized response (arXiv:1311.0776,
  and docs/proofs_shuffling.md, section 1).

  Args:
    local_epsilon: Local epsilon e0.
    local_delta: Local delta d0.
  """
  _check_local_epsilon(local_epsilon)
  _checks.in_closed(0.0, 1.0, local_delta=local_delta)
  e0, d0 = float(local_epsilon), float(local_delta)

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    # (exp(e0) - E) / (1 + exp(e0)), written without a power above 1.
    gap = 0.0 - np.expm1(np.minimum(epsilons - e0, 0.0)) / (1 + math.exp(-e0))
    excess = (1 - d0) * gap * (1 + 8 * _ROUNDING)
    # The sum is rounded to its own last place, which may be more than that.
    excess = excess + np.where(gap > 0, d0 * _ROUNDING, 0.0)
    return np.minimum(d0 + excess, 1.0)

  return profile


def randomized_response(
    local_epsilon: float, num_categories: int
) -> privacy_profiles.Profile:
  """Returns the profile of k-ary randomized response.

  Exact: max(exp(e0) - E, 0) / (exp(e0) + k - 1) with E = exp(epsilon). For two
  inputs x and x', only the reports x and x' differ in probability. All other
  reports are equally likely under both inputs.

  Args:
    local_epsilon: Local epsilon e0. The report is x with probability exp(e0) /
      (exp(e0) + k - 1), and otherwise uniform among the others.
    num_categories: Number of categories k, at least 2.
  """
  _check_local_epsilon(local_epsilon)
  _checks.integer_at_least(2, num_categories=num_categories)
  e0 = float(local_epsilon)
  others = (num_categories - 1) * math.exp(-e0)

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    gap = 0.0 - np.expm1(np.minimum(epsilons - e0, 0.0)) / (1 + others)
    return gap * (1 + 8 * _ROUNDING)

  return profile


def laplace(local_epsilon: float) -> privacy_profiles.Profile:
  """Returns the profile of Laplace noise of scale (L1 distance) / e0.

  Upper bound, exact in one dimension: 1 - exp((epsilon - e0) / 2) for epsilon
  up to e0, then 0. In several dimensions, a difference x - x' of L1 norm D is
  worst along one axis (docs/proofs_shuffling.md, section 1).

  Args:
    local_epsilon: Local epsilon e0 = D / scale, where D bounds the L1 distance
      of two inputs: twice the clip norm.
  """
  _check_local_epsilon(local_epsilon)
  e0 = float(local_epsilon)

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    gap = 0.0 - np.expm1(np.minimum(0.5 * (epsilons - e0), 0.0))
    return gap * (1 + 8 * _ROUNDING)

  return profile


def gaussian(noise_multiplier: float) -> privacy_profiles.Profile:
  """Returns the profile of Gaussian noise on a vector clipped to norm C.

  Exact, rounded up: `curves.gaussian.profile` with the distance 2 C, because
  replacing one clipped vector moves the report by up to 2 C.

  Args:
    noise_multiplier: Multiplier tau / C, where tau is the standard deviation of
      the noise and C bounds the norm of one vector.
  """
  _checks.positive(noise_multiplier=noise_multiplier)
  return gaussian_curve.profile(float(noise_multiplier) / 2)


def strong_clone_probability(local_epsilon: float) -> float:
  """Returns 2 / (exp(e0) + 1), the clone probability with a symmetric blanket.

  Another client's report is a clone with this probability (`clone_probability`
  in `systems.check_ins.shuffling`). Binary randomized response and the one-bit
  sphere have a symmetric blanket: a distribution U with k <= dR(x)/dU <=
  exp(e0) k for all x, where k = 2 / (exp(e0) + 1) (docs/proofs_shuffling.md,
  section 6). The value does not hold for arbitrary randomizers (erratum of
  arXiv:2208.04591), in particular not for Laplace noise.

  Args:
    local_epsilon: Local epsilon e0 of the randomizer R.
  """
  _checks.non_negative(local_epsilon=local_epsilon)
  return 2 / (1 + math.exp(local_epsilon))


def _gaussian_report(noise_multiplier: float) -> LocalReport:
  """Returns the facts about a report with Gaussian noise.

  Many pairs (epsilon0, delta0) hold for it.
  """
  profile = gaussian(noise_multiplier)

  def splits(delta):
    local_deltas = profile(_SPLITS)
    return tuple(
        (float(local_epsilon), float(local_delta))
        for local_epsilon, local_delta in zip(
            _SPLITS, local_deltas, strict=True
        )
        if local_delta < delta
    )

  together = lambda count: composition.one_gaussian(noise_multiplier / 2, count)
  return LocalReport(profile, splits, False, together=together)


def _check_local_epsilon(local_epsilon) -> None:
  _checks.in_closed(0.0, _LARGEST_LOCAL_EPSILON, local_epsilon=local_epsilon)
