# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion from zero-out to replace-one, in two hops.

A client is first zeroed, and then another client takes its place. Let all
releases together have the profile `away` for a client's data against zeros, and
`back` for zeros against another client's data. Write E1 = exp(e1), E2 =
exp(e2), E = E1 E2. Then

    H_E(client || other) <= away(e1) + E1 back(e2),    e = e1 + e2,

because P(S) <= E1 Z(S) + away(e1) and Z(S) <= E2 Q(S) + back(e2) for every set
S of outcomes. Here P, Z and Q are the output distributions for the client,
zeros and the other client, and H_E is the hockey-stick divergence (see
`privacy_profiles`). For the reverse, the other client against the client, the
same two profiles hold.

Each hop composes separately. In the first hop, the client's data give the first
distribution of the pair in *every* release, whatever the earlier releases were.
So the pair of distributions for removing a client dominates each release. The
product of these pairs dominates all releases together (arXiv:2106.08567,
theorem 10). In the second hop, zeros give the first distribution in every
release. So each hop needs the profile of one direction only.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import numpy as np

from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import privacy_profiles

_RELATIVE_ERROR = 1e-12
# Shares of epsilon and of delta that are tried for the first hop.
_EPSILON_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.85)
_DELTA_SHARES = (0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98)
# Epsilons at which the profile is computed to keep it non-increasing.
_SMALLER = np.concatenate([[0.0], np.geomspace(1e-4, 50.0, 300)])


@dataclasses.dataclass(frozen=True)
class Hops:
  """The privacy profiles of the two hops from one client's data to another's.

  Attributes:
    away: Profile of the hop from a client's data to zeros.
    back: Profile of the hop from zeros to the other client's data.
  """

  away: privacy_profiles.Profile
  back: privacy_profiles.Profile

  @classmethod
  def of(cls, part: composition.Part) -> 'Hops':
    """Returns the hops of all events of a part together.

    Args:
      part: Part whose `profile` is for zeroing a client and whose `reverse` is
        for the way back.
    """
    if part.is_vacuous:
      return cls(privacy_profiles.everything, privacy_profiles.everything)
    if part.count == 1 and part.sigma is None:
      return cls(part.profile, part.reverse or part.profile)
    profiles = composition.together([part]).profiles()
    return cls(profiles[0], profiles[-1])

  def epsilon(self, delta: float) -> float:
    """Returns epsilon for replace-one at delta, see `epsilon_of`."""
    return epsilon_of(
        functools.partial(privacy_profiles.epsilon_of, self.away),
        functools.partial(privacy_profiles.epsilon_of, self.back),
        delta,
    )

  def profile(self) -> privacy_profiles.Profile:
    """Returns the privacy profile for replace-one, from the two hops.

    It may be composed with other profiles.

    Upper bound: the minimum of away(e1) + exp(e1) back(e2) over some splits of
    epsilon into e1 + e2.
    """
    # A delta that holds at a smaller epsilon also holds at a larger one.
    # Without this, exp(e1) times the delta that remains at every epsilon would
    # grow without bound.
    smaller = np.minimum.accumulate(self._delta(_SMALLER))

    def profile(epsilons):
      epsilons = np.asarray(epsilons, np.float64)
      before = np.searchsorted(_SMALLER, epsilons, side='right') - 1
      return np.minimum(self._delta(epsilons), smaller[before])

    return profile

  def _delta(self, epsilons: np.ndarray) -> np.ndarray:
    best = np.ones(epsilons.shape)
    for share in _EPSILON_SHARES:
      with np.errstate(over='ignore'):
        factor = np.exp(share * epsilons)
        both = self.away(share * epsilons)
        both = both + factor * self.back((1 - share) * epsilons)
      best = np.fmin(best, both * (1 + _RELATIVE_ERROR))
    return best


@functools.lru_cache(maxsize=16)
def replace_one(part: composition.Part) -> composition.Part:
  """Returns one part for replace-one that stands for all events of `part`.

  Results are cached: see `privacy_profiles.composed_epsilon`.

  Args:
    part: Part whose `profile` is for zeroing a client and whose `reverse` is
      for the way back.
  """
  return composition.Part(Hops.of(part).profile())


def epsilon_of_loss(loss: composition.Loss, delta: float) -> float:
  """Returns epsilon under replace-one, at delta. Upper bound.

  Args:
    loss: Loss of all events together, for removing a client and for adding one.
    delta: Target delta, in (0, 1).
  """
  directions = loss.directions()
  return epsilon_of(directions[0], directions[-1], delta)


def epsilon_of(
    away: Callable[[float], float],
    back: Callable[[float], float],
    delta: float,
) -> float:
  """Returns epsilon under replace-one, at delta. Upper bound.

  The minimum of e1 + e2 over some d1 below delta, where e1 = away(d1) and e2 =
  back((delta - d1) exp(-e1)).

  Args:
    away: Function from delta to epsilon, for the hop from a client to zeros.
    back: Function from delta to epsilon, for the hop from zeros to a client.
    delta: Target delta, in (0, 1).
  """
  # So that the parts never add up to more, as rounded as they are.
  delta *= 1 - _RELATIVE_ERROR
  best = math.inf
  for share in _DELTA_SHARES:
    first = away(share * delta)
    if first < best:
      rest = (1 - share) * delta * math.exp(-first)
      if rest > 0:
        best = min(best, first + back(rest))
  return best * (1 + _RELATIVE_ERROR)
