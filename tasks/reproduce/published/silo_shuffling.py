# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Silos behind a shuffler: who sent which message is lost.

The noise of a silo's message hides each record of the silo (`silo_sampling`).
Mixing the message with other silos' messages may hide the record better. A
clone of a message is another silo's message with the same law. So the distance
between the messages of two *whole* data sets counts, 2C and not 2C/K. With
noise for single records there are hardly any clones. Then shuffling helps
little, unless there are many silos or much noise.

The bound holds [derived], but no plan has a shuffler of silos. Let one message
have (e_r, d_r) for one replaced record and (e_s, d_s) for *all* records of a silo
replaced, e_s >= e_r. Up to total variation d_r the target's two laws R, R' are
exactly e_r apart and equal to randomized response on two laws Q0 and Q1
(arXiv:1311.0776). The law of any other silo's message is, up to total variation
exp(-e_s) (d_s + d_r), at least exp(-e_s) (R + R') / 2 = exp(-e_s) (Q0 + Q1) / 2.
So each of the other messages is a clone with probability exp(-e_s). The profile
at epsilon is the profile of shuffled randomized response of e_r with that clone
probability (arXiv:2012.12803), plus (1 + E) tau with E = exp(epsilon) and
tau = d_r + (M-1) exp(-e_s) (d_s + d_r).
The noise that the paper publishes for this algorithm has a constant that is not
specified.

Adjacency: one record of one silo is replaced. The adversary sees the multiset
of all messages of a round; all silos that are counted must send, honestly.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import search
from tff_dp.systems.check_ins import shuffling
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_sampling

# Shares of delta that are tried for what is not pure, all rounds together.
_SHARES = (0.3, 0.03)
_POINTS = 65
# The relative width at which the search for noise ends.
_TOLERANCE = 1e-3


class ShuffledNoise(NamedTuple):
  """Noise of a silo behind a shuffler, and the epsilon that it costs.

  Attributes:
    noise_multiplier: Noise multiplier sigma K / C of every silo.
    noise_multiplier_alone: Noise multiplier that a silo would need for the same
      budget without a shuffler.
    epsilon: Epsilon of `noise_multiplier` against an observer who sees only the
      shuffled messages.
    epsilon_alone: Epsilon of `noise_multiplier` if the shuffler is not trusted.
  """

  noise_multiplier: float
  noise_multiplier_alone: float
  epsilon: float
  epsilon_alone: float


def shuffled_epsilon(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    num_silos: int,
    noise_multiplier: float,
    delta: float,
) -> float:
  """Returns epsilon of noisy minibatch SGD behind a shuffler. Upper bound.

  It holds against an observer who sees only the shuffled messages, and is at
  most the epsilon without a shuffler.

  Args:
    sampling: Rule by which each silo chooses batches of K records.
    num_records: Number of records n of every silo.
    num_rounds: Number of rounds R.
    num_silos: Number of messages M that are sure to be shuffled together.
    noise_multiplier: Noise multiplier sigma K / C of every silo.
    delta: Target delta, in (0, 1).
  """
  _checks.integer_at_least(1, num_silos=num_silos)
  _checks.positive(noise_multiplier=noise_multiplier)
  best = silo_sampling.epsilon(
      sampling,
      num_records=num_records,
      num_rounds=num_rounds,
      noise_multiplier=noise_multiplier,
      delta=delta,
  )
  count = sampling.num_releases(num_rounds)
  for share in _SHARES:
    # Both deltas are charged once for every clone.
    single = share * delta / (4 * count * num_silos)
    found = round_profile(
        sampling,
        num_records=num_records,
        num_silos=num_silos,
        noise_multiplier=noise_multiplier,
        record_delta=single,
        silo_delta=single,
    )
    if found is not None:
      best = min(
          best, composition.epsilon([composition.Part(found, count)], delta)
      )
  return best


def calibrate_shuffled_noise(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    num_silos: int,
    epsilon: float,
    delta: float,
) -> ShuffledNoise:
  """Returns noise within the budget, against an observer of shuffled messages.

  Upper bound: the epsilon of the result was computed and is within the budget.
  If `shuffled_epsilon` falls as the noise grows, the result is the least noise
  up to a part in 10^3. The published formula for this noise (arXiv:2106.09779,
  theorem 5.1) is not offered, because it has a constant that is not specified.

  Args:
    sampling: Rule by which each silo chooses batches of K records.
    num_records: Number of records n of every silo.
    num_rounds: Number of rounds R.
    num_silos: Number of messages M that are sure to be shuffled together.
    epsilon: Budget, above 0.
    delta: Target delta, in (0, 1).
  """
  settings = dict(num_records=num_records, num_rounds=num_rounds, delta=delta)
  alone = silo_calibration.least_noise_multiplier(
      sampling, epsilon=epsilon, **settings
  )

  @functools.cache
  def spent(noise_multiplier):
    return shuffled_epsilon(
        sampling,
        num_silos=num_silos,
        noise_multiplier=noise_multiplier,
        **settings,
    )

  is_private = lambda multiplier: spent(multiplier) <= epsilon
  found = alone * (1 - _TOLERANCE)
  # Where a little less is not private, clones are too few to help.
  if is_private(found):
    found = search.least(is_private, found, tolerance=_TOLERANCE)
  else:
    found = alone
  return ShuffledNoise(
      noise_multiplier=found,
      noise_multiplier_alone=alone,
      epsilon=spent(found),
      epsilon_alone=silo_sampling.epsilon(
          sampling, noise_multiplier=found, **settings
      ),
  )


def round_profile(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_silos: int,
    noise_multiplier: float,
    record_delta: float,
    silo_delta: float,
) -> privacy_profiles.Profile | None:
  """Returns the profile of one shuffled round, `None` if it has no clones.

  Upper bound: clones have probability exp(-e_s), and the target's pair has
  epsilon e_r. The profile at epsilon also has (1 + exp(epsilon)) tau for the
  deltas d_r and d_s, with tau = d_r + (M - 1) exp(-e_s) (d_s + d_r).

  Args:
    sampling: Rule by which a silo chooses its batch.
    num_records: Number of records n of a silo.
    num_silos: Number of silos M.
    noise_multiplier: Noise multiplier sigma K / C of every silo.
    record_delta: Delta d_r, at which a message has epsilon e_r for one record.
    silo_delta: Delta d_s, at which a message has epsilon e_s for the whole
      silo.
  """
  own = sampling.profile(
      num_records=num_records, noise_multiplier=noise_multiplier
  )
  record_epsilon = privacy_profiles.epsilon_of(own, record_delta)
  silo_epsilon = _silo_epsilon(
      sampling, num_records, noise_multiplier, silo_delta
  )
  # That of `shuffling` is for epsilons whose powers are floats, and
  # nothing is left to gain long before that.
  if silo_epsilon > math.log(num_silos) + 1 or num_silos == 1:
    return None
  clone_probability = math.exp(-max(silo_epsilon, record_epsilon))
  pure = shuffling.round_profile(
      local_epsilon=record_epsilon,
      num_reports=num_silos,
      clone_probability=clone_probability,
  )
  tau = record_delta + (num_silos - 1) * clone_probability * (
      silo_delta + record_delta
  )
  tau *= 1 + 1e-12

  def total(epsilons):
    return pure(epsilons) + (1 + np.exp(epsilons)) * tau

  @functools.cache
  def least() -> float:
    grid = np.linspace(0.0, record_epsilon, _POINTS)
    return float(grid[np.argmin(total(grid))])

  def profile(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    # What holds at a smaller epsilon holds at a larger one.
    return np.minimum(total(np.minimum(epsilons, least())), own(epsilons))

  return profile


def _silo_epsilon(sampling, num_records, noise_multiplier, delta) -> float:
  """Returns epsilon of one message when all records of a silo may change.

  Upper bound: the sums of two batches of at most B records differ by 2 B C.
  With Poisson sampling B is a quantile. The probability of larger batches is
  taken from delta.
  """
  batch = float(sampling.batch_size)
  remaining = delta
  largest = batch
  if isinstance(sampling, silo_sampling.PoissonSampling):
    rate = sampling.rate(num_records)
    # Not `isf`: it gives up at small probabilities. Both batches may exceed it.
    largest = _quantile(num_records, rate, delta / 8)
    with np.errstate(divide='ignore', under='ignore'):
      tail = float(stats.binom.sf(largest, num_records, rate))
    remaining -= 2 * tail * (1 + shuffling.RELATIVE_ERROR)
  profile = local_profiles.gaussian(noise_multiplier / largest)
  return privacy_profiles.epsilon_of(profile, remaining)


def _quantile(trials: int, rate: float, tail: float) -> int:
  """Returns a number of successes that is exceeded with less than `tail`."""

  def is_enough(successes):
    with np.errstate(divide='ignore', under='ignore'):
      exceeded = float(stats.binom.sf(successes, trials, rate))
    return exceeded * (1 + shuffling.RELATIVE_ERROR) < tail

  return search.nearest(is_enough, 0, trials)
