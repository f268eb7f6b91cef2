# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How often a guess about one member of a data set can be right.

One of two neighbouring data sets is used. Somebody sees a release and guesses
which data set it was made from. If both are equally likely beforehand, and
(epsilon, delta) holds in both directions, the guess is right with probability
at most

    (exp(epsilon) + delta) / (1 + exp(epsilon)).

Let P and Q be the chances of the guess "the first" under the first and the
second data set. Then P <= e^eps Q + delta and 1 - Q <= e^eps (1 - P) + delta.
The guess is right with probability (P + (1 - Q)) / 2, which is largest where
both inequalities are equalities (Kairouz et al., arXiv:1311.0776, theorem 2.1).

A mechanism has such a bound for every point of its curve delta(epsilon), and
the least bound counts. For an exact curve, the point at epsilon 0 gives the
least: (1 + delta(0)) / 2. Here a profile is a list of pairs (epsilon, delta)
that all hold. Any choice of points gives upper bounds.
"""

from collections.abc import Callable, Sequence
import math

from scipy import optimize

Profile = Sequence[tuple[float, float]]

# Deltas of a search are 1 / (1 + exp(-x)) for x in this range.
_LOGITS = (-12.0, 5.0)
_TOLERANCE = 2e-3
_MOST_STEPS = 24
# No larger power of e is computed.
_LARGEST = 700.0


def right(epsilon: float, delta: float) -> float:
  """Returns the largest chance of a right guess that (epsilon, delta) allows.

  The guess is which of two neighbouring data sets was used. Both are equally
  likely beforehand.

  Args:
    epsilon: Epsilon of the guarantee, at least 0. It may be infinite.
    delta: Delta of the guarantee, in [0, 1].
  """
  # exp(epsilon) would overflow.
  share = math.exp(-epsilon)
  return min(1.0, (1.0 + delta * share) / (1.0 + share))


def least_right(profile: Profile) -> float:
  """Returns the smallest `right` over a profile's points, 1 without any."""
  return min((right(*point) for point in profile), default=1.0)


def true_positives(profile: Profile, false_positives: float) -> float:
  """Returns the largest share of members that an attack can find.

  Each pair (eps, delta) of the profile bounds the true positive rate P at the
  false positive rate Q: P <= e^eps Q + delta, and 1 - Q <= e^eps (1 - P) +
  delta.

  Args:
    profile: Pairs (epsilon, delta).
    false_positives: Share of non-members that the attack takes for members, in
      (0, 1).
  """
  found = 1.0
  for epsilon, delta in profile:
    ratio = math.exp(min(epsilon, _LARGEST))
    missed = (1.0 - false_positives - delta) / ratio
    found = min(found, false_positives * ratio + delta, 1.0 - max(0.0, missed))
  return found


def searched(epsilon_at: Callable[[float], float]) -> Profile:
  """Returns points (epsilon, delta) of a curve, mostly near the best bound.

  The best bound is at the point where `right` is smallest. The points are in
  the order of their epsilons.

  Args:
    epsilon_at: Function from a delta in (0, 1) to an epsilon that holds there.
      The epsilon may be infinite.
  """
  points = []

  def chance(logit: float) -> float:
    delta = 1.0 / (1.0 + math.exp(-logit))
    points.append((float(epsilon_at(delta)), delta))
    return right(*points[-1])

  optimize.minimize_scalar(
      chance,
      bounds=_LOGITS,
      method='bounded',
      options={'xatol': _TOLERANCE, 'maxiter': _MOST_STEPS},
  )
  return sorted(points)
