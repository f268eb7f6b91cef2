# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The least noise inside a silo for a budget.

A silo adds noise of standard deviation `sigma` to every coordinate of its mean
gradient: a sum of gradients clipped to C, over the batch size K
(`silo_sampling`). Adjacency: one record is replaced.
"""

import functools
import math

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import search
from tff_dp.systems.silos import silo_sampling

# Relative width at which the search for a noise multiplier ends.
_TOLERANCE = 1e-6
_NUDGE = 1e-9
# Excesses over the analytic answer that are tried in turn.
_EXCESSES = (0.0, *(10.0**power for power in range(-13, 7)))


def calibrate_noise(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    l2_norm_clip: float,
    epsilon: float,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns the least sigma whose computed epsilon is within the budget.

  Sigma is the standard deviation of the noise on a coordinate of the mean of a
  batch. The result is rounded up, by less than a part in 10^5.

  Args:
    sampling: Rule that chooses the batch of each round, of size K.
    num_records: Number of records n of the silo.
    num_rounds: Number of rounds R.
    l2_norm_clip: Clip norm C.
    epsilon: Privacy budget of all rounds.
    delta: Target delta, above 0 and at most 0.1.
    published_proofs: Whether to compute epsilon with published bounds only, as
      in `silo_sampling`.

  Raises:
    ArgumentError: If a value is out of range, or if rounding errors alone use
      up delta.
  """
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  settings = dict(
      num_records=num_records,
      num_rounds=num_rounds,
      delta=delta,
      published_proofs=published_proofs,
  )
  multiplier = least_noise_multiplier(sampling, epsilon=epsilon, **settings)
  per_sum = float(sampling.batch_size) / l2_norm_clip
  sigma = multiplier / per_sum
  # Nothing may be lost by dividing here and multiplying again when asked.
  while sigma * per_sum < multiplier:
    sigma = math.nextafter(sigma, math.inf)
  spent = lambda: silo_sampling.account_noise(
      sampling, l2_norm_clip=l2_norm_clip, sigma=sigma, **settings
  )
  # An ulp more of noise may be rounded to more epsilon, on a grid of losses.
  while spent() > epsilon:
    sigma *= 1 + _NUDGE
  return float(sigma)


def least_noise_multiplier(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    epsilon: float,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns the smallest noise multiplier whose epsilon is within the budget.

  The noise multiplier is sigma K / C, with noise of standard deviation sigma,
  batch size K and clip norm C. The result is rounded up, by less than a part in
  10^5. See `calibrate_noise` for the arguments and errors.
  """
  sampling.check(num_records=num_records, num_rounds=num_rounds)
  _checks.positive(epsilon=epsilon)
  _checks.delta(delta=delta)
  count = sampling.num_releases(num_rounds)
  # Noise that is enough without amplification, up to rounding on the grid of
  # losses.
  exact = gaussian.sigma_for(epsilon=epsilon, delta=delta)
  enough = 2 * exact * math.sqrt(count)

  @functools.cache
  def is_private(multiplier):
    return (
        silo_sampling.epsilon(
            sampling,
            num_records=num_records,
            num_rounds=num_rounds,
            noise_multiplier=multiplier,
            delta=delta,
            published_proofs=published_proofs,
        )
        <= epsilon
    )

  for excess in _EXCESSES:
    high = enough * (1 + excess)
    if is_private(high):
      break
  else:
    raise _checks.ArgumentError(
        'delta', delta, 'a larger delta: rounding errors alone use up this one'
    )
  if sampling.rate(num_records) == 1:
    return high
  return search.least(is_private, high, tolerance=_TOLERANCE)
