# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Privacy profiles of one local report, for two inputs of one client.

The local randomizer R runs at the client; whoever sees the report sees R(x).
A profile here bounds H_E(R(x) || R(x')) over all inputs x, x' of one client:
adjacency is replace-one, and both directions are bounded at once. What the
client's input depends on, such as the model that was broadcast, is common
knowledge, so these also hold given everything released before.
"""

import math

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles

_ROUNDING = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)
# Above it exp overflows; a mechanism with a local epsilon this large is public.
_LARGEST_LOCAL_EPSILON = 500.0


def pure(local_epsilon: float) -> privacy_profiles.Profile:
  """Returns the profile of any pure e0-LDP randomizer.

  Upper bound, exact for binary randomized response:
  max(exp(e0) - E, 0) / (1 + exp(e0)) (Kairouz, Oh and Viswanath,
  arXiv:1311.0776: randomized response dominates).

  Args:
    local_epsilon: e0.
  """
  return approximate(local_epsilon, 0.0)


def approximate(
    local_epsilon: float, local_delta: float
) -> privacy_profiles.Profile:
  """Returns the profile of any (e0, d0)-LDP randomizer.

  Upper bound, attained: d0 + (1 - d0) max(exp(e0) - E, 0) / (1 + exp(e0)), of
  the pair that reveals its input with probability d0 and else is binary
  randomized response (arXiv:1311.0776; docs/proofs_shuffling.md, section 1).

  Args:
    local_epsilon: e0.
    local_delta: d0.
  """
  _check_local_epsilon(local_epsilon)
  _checks.in_closed(0.0, 1.0, local_delta=local_delta)
  e0, d0 = float(local_epsilon), float(local_delta)

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    # (exp(e0) - E) / (1 + exp(e0)), no power above 1.
    gap = 0.0 - np.expm1(np.minimum(epsilons - e0, 0.0)) / (1 + math.exp(-e0))
    deltas = d0 + (1 - d0) * gap * (1 + 8 * _ROUNDING)
    return np.minimum(deltas, 1.0)

  return profile


def randomized_response(
    local_epsilon: float, num_categories: int
) -> privacy_profiles.Profile:
  """Returns the profile of k-ary randomized response.

  Exact: max(exp(e0) - E, 0) / (exp(e0) + k - 1). The two reports that differ in
  probability are x and x'; the others are equally likely under both.

  Args:
    local_epsilon: e0. The report is x with probability
      exp(e0) / (exp(e0) + k - 1), else uniform among the others.
    num_categories: k, at least 2.
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

  Upper bound, exact in one dimension: 1 - exp((epsilon - e0) / 2) up to e0. In
  several, an x - x' of L1 norm D is at its worst along one axis
  (docs/proofs_shuffling.md, section 1).

  Args:
    local_epsilon: e0 = D / scale, where D bounds the L1 distance of two inputs:
      twice the clip norm.
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

  Exact, rounded up: Phi(D/(2 tau) - eps tau/D) - E Phi(-D/(2 tau) - eps tau/D)
  (Balle and Wang, arXiv:1805.06530, theorem 8) with D = 2 C, because replacing
  one clipped vector moves the report by up to 2 C.

  Args:
    noise_multiplier: tau / C, the noise's standard deviation over the bound C
      on the norm of one vector.
  """
  _checks.positive(noise_multiplier=noise_multiplier)
  sigma = float(noise_multiplier) / 2
  half = 0.5 / sigma

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    low, high = epsilons * sigma - half, epsilons * sigma + half
    density = np.exp(-0.5 * low * low)
    # As in `gaussian.exact_delta`: both terms share the density.
    second = 0.5 * density * special.erfcx(high * math.sqrt(0.5))
    tail = 0.5 * density * special.erfcx(np.maximum(low, 0) * math.sqrt(0.5))
    first = np.where(low > 0, tail, special.ndtr(-low))
    shift = 2 * _ROUNDING * high
    slack = _ROUNDING * (first + second) * (16 + low * low)
    slack += shift * (2 * density + np.abs(low) * second)
    deltas = np.maximum(first - second, 0.0) + slack + _TINY
    return np.minimum(deltas, 1.0)

  return profile


def _check_local_epsilon(local_epsilon) -> None:
  _checks.in_closed(0.0, _LARGEST_LOCAL_EPSILON, local_epsilon=local_epsilon)
