# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Theorem 3.2 of random check-ins, step by step instead of in closed form.

In A_fix (arXiv:2007.06605) the report of step i, given all before it, is
eps_i-DP for replace-one:

    eps_i = ln(1 + p0 a q_i),   q_i = 1 / (m - (i - 1) p0 (1 - exp(-e0))),

a = exp(e0) - 1, i = 1..m. These bounds do not depend on what was seen, so the
whole run is dominated by m independent binary randomized responses RR(eps_i),
composed here as privacy-loss distributions. Never larger than the closed form,
which is advanced composition of the same steps. For a sliding window: p0 = 1
and m the window. Pure e0 only. docs/proofs_check_ins.md, section 2, has the
proofs.

The loss of RR(eps) is eps with probability exp(eps) / (1 + exp(eps)), else
-eps. Each eps_i is rounded up to a multiple of one unit, so the total is on a
grid; steps with equal multiples are one binomial law. The transforms of these
laws are multiplied.
"""

import functools
import math

import numpy as np
from scipy import fft

from tff_dp import _checks
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import transforms

_ROUNDING = transforms.ROUNDING
# The largest eps_i is at most this many units; fewer where m is large.
_MOST_UNITS = 256
_FEWEST_UNITS = 32
_MANY_POINTS = 1 << 17
# sqrt(m) times the units is the size of the grid.
_MOST_SLOTS = 10**7
# Losses further from 0 than this many roots of sum eps_i^2 are cut off the
# grid; Hoeffding's bound on them is added.
_DEVIATIONS = 12.0


def step_epsilons(
    *, local_epsilon: float, num_slots: int, check_in_probability: float = 1.0
) -> np.ndarray:
  """Returns eps_i of steps 1..m, increasing, shape [m].

  Upper bound on the epsilon of the report of step i given those before it.

  Args:
    local_epsilon: e0.
    num_slots: m.
    check_in_probability: p0.
  """
  _check(local_epsilon, num_slots, check_in_probability)
  p0 = float(check_in_probability)
  before = np.arange(num_slots, dtype=np.float64)
  # In place of a / (m - before p0 (1 - exp(-e0))): no exp that overflows.
  stay = -math.expm1(-local_epsilon)
  log_ratio = local_epsilon + math.log(stay) if stay > 0 else -math.inf
  log_odds = math.log(p0) if p0 > 0 else -math.inf
  log_odds = log_odds + log_ratio - np.log(num_slots - before * p0 * stay)
  return np.minimum(np.logaddexp(0.0, log_odds) * (1 + 1e-14), local_epsilon)


def profile(
    *, local_epsilon: float, num_slots: int, check_in_probability: float = 1.0
) -> privacy_profiles.Profile:
  """Returns the profile of one run of A_fix, for replace-one.

  Upper bound, in both directions; never worse than one report alone.

  Args:
    local_epsilon: e0, of a pure randomizer.
    num_slots: m; for a sliding window, the window.
    check_in_probability: p0; 1 for a sliding window.

  Raises:
    NotApplicableError: If there are too many slots for the grid.
  """
  _check(local_epsilon, num_slots, check_in_probability)
  return privacy_profiles.minimum(
      local_profiles.pure(local_epsilon),
      _profile(
          float(local_epsilon), int(num_slots), float(check_in_probability)
      ),
  )


def _check(local_epsilon, num_slots, check_in_probability) -> None:
  _checks.non_negative(local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)


@functools.lru_cache(maxsize=64)
def _profile(e0: float, num_slots: int, p0: float) -> privacy_profiles.Profile:
  if e0 == 0 or p0 == 0:
    return privacy_profiles.nothing
  if num_slots > _MOST_SLOTS:
    raise privacy_profiles.NotApplicableError(
        f'num_slots={num_slots} are too many to compose step by step: at most'
        f' {_MOST_SLOTS}'
    )
  losses, probs, error = _composed(
      step_epsilons(
          local_epsilon=e0, num_slots=num_slots, check_in_probability=p0
      )
  )
  # delta(eps) = sum over losses l > eps of probs (1 - exp(eps - l)).
  mass = np.append(np.cumsum(probs[::-1])[::-1], 0.0)
  weighted = probs * np.exp(-losses)
  other = np.append(np.cumsum(weighted[::-1])[::-1], 0.0)

  def found(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    start = np.searchsorted(losses, epsilons, side='right')
    with np.errstate(over='ignore'):
      factors = np.exp(np.minimum(epsilons, privacy_profiles.LARGEST_EPSILON))
    deltas = mass[start] - factors * other[start]
    # Sums of positive terms, one by one: their number of roundings.
    slack = 2 * _ROUNDING * len(probs) * (mass[start] + factors * other[start])
    return np.clip(deltas + slack + error, 0.0, 1.0)

  return found


def _composed(epsilons: np.ndarray):
  """Returns (losses above 0, their probabilities, error) of all RR(eps_i).

  The error bounds what is cut off, wrapped around and rounded, as a share of
  delta.
  """
  total = math.sqrt(float(epsilons @ epsilons))
  units = _num_units(epsilons, total)
  unit = float(epsilons[-1]) / units * (1 + 1e-14)
  multiples = np.maximum(1, np.ceil(epsilons / unit)).astype(np.int64)
  multiples = np.minimum(multiples, units)
  root = math.sqrt(float(np.sum((multiples * unit) ** 2)))
  # The mean is sum eps tanh(eps / 2) <= root^2 / 2. All losses, if these fit.
  reach = math.ceil((0.5 * root**2 + _DEVIATIONS * root) / unit) + 1
  reach = min(reach, int(multiples.sum()))
  log2_points = math.ceil(math.log2(2 * reach + 2))
  num_points = 1 << log2_points
  values, counts = np.unique(multiples, return_counts=True)
  per_transform = transforms.rounding_of(log2_points)
  transform = np.ones(num_points // 2 + 1, np.complex128)
  # What rounding may have moved each point of the product by.
  moved = np.zeros(num_points // 2 + 1)
  for multiple, count in zip(values, counts):
    law = _binomial(int(multiple), int(count), unit, num_points)
    factor = fft.rfft(law)
    rounding = per_transform + _ROUNDING * 16 * (1 + math.sqrt(count))
    moved *= np.minimum(np.abs(factor) + rounding, 1.0)
    moved += rounding * np.abs(transform)
    transform *= factor
  probs = fft.irfft(transform, num_points)
  # The transform of real input is listed by half: the others count twice.
  error = math.sqrt(2 * float(moved @ moved))
  error += per_transform * 2 * float(np.sum(np.abs(transform)))
  # Mass outside the window, wherever it is wrapped around to.
  if reach < int(multiples.sum()):
    error += 2 * math.exp(-0.5 * _DEVIATIONS**2)
  losses = unit * np.arange(1, reach + 1)
  return losses, np.maximum(probs[1 : reach + 1], 0.0), error


def _num_units(epsilons: np.ndarray, total: float) -> int:
  """Returns how many units make the largest eps_i."""
  per_unit = 4 * _DEVIATIONS * total / float(epsilons[-1])
  units = max(_FEWEST_UNITS, _MANY_POINTS / per_unit)
  return int(min(units, _MOST_UNITS))


def _binomial(multiple: int, count: int, unit: float, num_points: int):
  """Returns the law of `count` losses of RR(multiple * unit), cyclic."""
  eps = multiple * unit
  heads = np.arange(count + 1, dtype=np.int64)
  # Ratios of neighbours, next to 1 where it matters: the error of a probability
  # is a few roundings per step from the mode.
  mode = min(count, int((count + 1) / (1 + math.exp(-eps))))
  ratios = np.log((count - heads[:-1]) / (heads[:-1] + 1.0)) + eps
  log_probs = np.zeros(count + 1)
  log_probs[mode + 1 :] = np.cumsum(ratios[mode:])
  log_probs[:mode] = -np.cumsum(ratios[:mode][::-1])[::-1]
  probs = np.exp(log_probs)
  probs /= probs.sum()
  result = np.zeros(num_points)
  index = (multiple * (2 * heads - count)) % num_points
  np.add.at(result, index, probs)
  return result
