# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Noise of a silo for a budget, and the budget that given noise spends.

`sigma` is the standard deviation that a silo adds to every coordinate of its
K-mean of gradients clipped to C (`silo_sampling`). Adjacency: one record is
replaced. Published formulas are offered for comparison. Each comes with the
true epsilon of its sigma, computed as for every other sigma.
"""

import dataclasses
import enum
import functools
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import search
from tff_dp.accounting.silos import silo_sampling

# Relative width at which the search for a noise multiplier ends.
_TOLERANCE = 1e-6
_NUDGE = 1e-9
# Excesses over the analytic answer that are tried in turn.
_EXCESSES = (0.0, *(10.0**power for power in range(-13, 7)))


class NoiseCalibration(enum.Enum):
  """Source of sigma. The papers' formulas are as printed, not proven.

  LR23 is arXiv:2106.09779. C is the clip norm, which replaces their L.

  Values:
    NUMERIC: The smallest sigma whose computed epsilon is within the budget.
    EXPLICIT: A given sigma. Epsilon is computed.
    PAPER_ONE_PASS: LR23, algorithm 1: sigma^2 = 32 C^2 ln(2/delta) / (eps K)^2,
      for eps <= 2 ln(2/delta).
    ZCDP_ONE_PASS: 16 C^2 ln(1/delta) / (eps K)^2: zero-concentrated DP with
      eps^2 / (8 ln(1/delta)), at sensitivity 2C/K.
    PAPER_ADVANCED_COMPOSITION: LR23, algorithm 2: sigma^2 = 256 C^2 R ln(2.5
      R/delta) ln(2/delta) / (n eps)^2, for eps <= 2 ln(2/delta) and K >= eps n
      / (4 sqrt(2 R ln(2/delta))).
    PAPER_MOMENTS: LR23's experiments: sigma^2 = 8 C^2 R ln(1/delta) / (n
      eps)^2, with K of `paper_moments_batch`. Too little noise for large eps.
  """

  NUMERIC = 'numeric'
  EXPLICIT = 'explicit'
  PAPER_ONE_PASS = 'paper-one-pass'
  ZCDP_ONE_PASS = 'zcdp-one-pass'
  PAPER_ADVANCED_COMPOSITION = 'paper-advanced-composition'
  PAPER_MOMENTS = 'paper-moments'


_ONE_PASS = (NoiseCalibration.PAPER_ONE_PASS, NoiseCalibration.ZCDP_ONE_PASS)
_MULTI_PASS = (
    NoiseCalibration.PAPER_ADVANCED_COMPOSITION,
    NoiseCalibration.PAPER_MOMENTS,
)


@dataclasses.dataclass(frozen=True)
class CalibratedNoise:
  """A sigma, its source, and its true privacy loss.

  Attributes:
    sigma: Standard deviation of the noise on the K-mean.
    noise_multiplier: Multiplier sigma K / C: noise std on the sum, over the
      clip norm.
    epsilon: Computed epsilon of this sigma, an upper bound.
    delta: Delta at which epsilon holds.
    requested_epsilon: Requested epsilon, None if sigma was given.
    calibration: Source of sigma.
    unmet: Conditions of the formula that do not hold, as sentences.
  """

  sigma: float
  noise_multiplier: float
  epsilon: float
  delta: float
  requested_epsilon: float | None
  calibration: NoiseCalibration
  unmet: tuple[str, ...] = ()

  @property
  def ratio(self) -> float | None:
    """Requested over computed epsilon. Below 1 the request is not met."""
    if self.requested_epsilon is None:
      return None
    return self.requested_epsilon / self.epsilon if self.epsilon else math.inf

  @property
  def is_met(self) -> bool:
    """Whether the computed epsilon is within the request."""
    return (
        self.requested_epsilon is None or self.epsilon <= self.requested_epsilon
    )

  @property
  def verdict(self) -> str:
    """Comparison of requested and computed epsilon, in words."""
    computed = rounding.rounded_up(self.epsilon)
    if self.requested_epsilon is None:
      return f'epsilon {computed}, computed for the sigma that was given'
    requested = f'{self.requested_epsilon:g}'
    text = f'requested epsilon {requested}, computed {computed}: '
    if not self.is_met:
      return text + f'NOT met, {1 / self.ratio:.3g} times as much'
    if self.ratio < 1.01:
      return text + 'met'
    return text + f'met, looser by {self.ratio:.3g}'

  def to_json(self) -> dict[str, Any]:
    """Returns the fields and verdicts as JSON types."""
    ratio = self.ratio
    return {
        'sigma': self.sigma,
        'noise_multiplier': self.noise_multiplier,
        'epsilon': rounding.to_json_number(self.epsilon),
        'delta': self.delta,
        'requested_epsilon': self.requested_epsilon,
        'ratio': None if ratio is None else rounding.to_json_number(ratio),
        'is_met': self.is_met,
        'calibration': self.calibration.value,
        'unmet': list(self.unmet),
    }


def calibrate_noise(sampling: silo_sampling.Sampling, **settings) -> float:
  """Returns the sigma for a budget, as `calibrated(...).sigma`.

  By default the smallest sigma, rounded upward by less than a part in 10^5.

  Args:
    sampling: Rule that chooses the batch of each round.
    **settings: num_records, num_rounds, l2_norm_clip, epsilon and delta, and
      optionally calibration and published_proofs, as for `calibrated`.
  """
  return calibrated(sampling, **settings).sigma


def calibrated(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    l2_norm_clip: float,
    delta: float,
    epsilon: float | None = None,
    sigma: float | None = None,
    calibration: NoiseCalibration = NoiseCalibration.NUMERIC,
    published_proofs: bool = False,
) -> CalibratedNoise:
  """Returns sigma together with its computed epsilon.

  Args:
    sampling: Rule that chooses the batch of each round, of size K.
    num_records: Number of records n of the silo.
    num_rounds: Number of rounds R.
    l2_norm_clip: Clip norm C.
    delta: Target delta, in (0, 1).
    epsilon: Privacy budget. With EXPLICIT it is optional and only compared.
    sigma: Given noise std, with EXPLICIT only.
    calibration: Source of sigma.
    published_proofs: Whether to compute epsilon with published bounds only, as
      in `silo_sampling`.
  """
  _checks.one_of(tuple(NoiseCalibration), calibration=calibration)
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.delta(delta=delta)
  sampling.check(num_records=num_records, num_rounds=num_rounds)
  is_explicit = calibration is NoiseCalibration.EXPLICIT
  if (sigma is not None) != is_explicit:
    raise _checks.ArgumentError(
        'sigma', sigma, 'a number with EXPLICIT, and None with all others'
    )
  if epsilon is not None or not is_explicit:
    _checks.positive(epsilon=epsilon)
  settings = dict(
      num_records=num_records,
      num_rounds=num_rounds,
      delta=delta,
      published_proofs=published_proofs,
  )
  per_sum = float(sampling.batch_size) / l2_norm_clip
  unmet = ()
  if is_explicit:
    _checks.non_negative(sigma=sigma)
  elif calibration is NoiseCalibration.NUMERIC:
    multiplier = least_noise_multiplier(sampling, epsilon=epsilon, **settings)
    sigma = multiplier / per_sum
    # Multiplying sigma by K / C again must not give less than the multiplier.
    while sigma * per_sum < multiplier:
      sigma = math.nextafter(sigma, math.inf)
  else:
    factor, unmet = _published(
        calibration, sampling, num_records, num_rounds, epsilon, delta
    )
    sigma = factor * l2_norm_clip
  spend = lambda: silo_sampling.account_noise(
      sampling, l2_norm_clip=l2_norm_clip, sigma=sigma, **settings
  )
  spent = spend()
  if calibration is NoiseCalibration.NUMERIC:
    # One ulp more noise may round to more epsilon on a grid of losses.
    while spent > epsilon:
      sigma *= 1 + _NUDGE
      spent = spend()
  return CalibratedNoise(
      sigma=float(sigma),
      noise_multiplier=float(sigma * per_sum),
      epsilon=spent,
      delta=delta,
      requested_epsilon=epsilon,
      calibration=calibration,
      unmet=unmet,
  )


def least_noise_multiplier(
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    epsilon: float,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns the smallest sigma K / C whose epsilon is within the budget.

  Upper bound by less than a part in 10^5, from bisection on the private side.
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
        'delta', delta, 'a delta above what rounding errors take'
    )
  if sampling.rate(num_records) == 1:
    return high
  return search.least(is_private, high, tolerance=_TOLERANCE)


def paper_moments_batch(
    *, num_records: int, num_rounds: int, largest_epsilon: float
) -> int:
  """Returns K = max(1, floor(n sqrt(eps_max / (4 R)))) of LR23's experiments.

  K is at most n. `largest_epsilon` is the largest of all compared epsilons, so
  that they share one K.
  """
  _checks.integer_at_least(1, num_records=num_records)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.positive(largest_epsilon=largest_epsilon)
  share = math.sqrt(largest_epsilon / (4 * num_rounds))
  return min(int(num_records), max(1, math.floor(num_records * share)))


def _published(calibration, sampling, n, num_rounds, epsilon, delta):
  """Returns (sigma / C by a paper's formula, conditions that do not hold)."""
  batch = float(sampling.batch_size)
  is_one_pass = isinstance(sampling, silo_sampling.DisjointBlocks)
  fitting = _ONE_PASS if is_one_pass else _MULTI_PASS
  if calibration not in fitting:
    names = ', '.join(option.value for option in fitting)
    raise _checks.ArgumentError(
        'calibration',
        calibration.value,
        f'with {sampling.name} sampling one of numeric, explicit, {names}',
    )
  log = math.log
  unmet = []
  largest = 2 * log(2 / delta)
  is_paper = calibration in (
      NoiseCalibration.PAPER_ONE_PASS,
      NoiseCalibration.PAPER_ADVANCED_COMPOSITION,
  )
  if is_paper and epsilon > largest:
    unmet.append(f'epsilon={epsilon:g} is above 2 ln(2/delta) = {largest:.4g}')
  if calibration is NoiseCalibration.PAPER_ONE_PASS:
    squared = 32 * log(2 / delta) / (epsilon * batch) ** 2
  elif calibration is NoiseCalibration.ZCDP_ONE_PASS:
    squared = 16 * log(1 / delta) / (epsilon * batch) ** 2
  elif calibration is NoiseCalibration.PAPER_ADVANCED_COMPOSITION:
    squared = 256 * num_rounds * log(2.5 * num_rounds / delta)
    squared *= log(2 / delta) / (n * epsilon) ** 2
    least = epsilon * n / (4 * math.sqrt(2 * num_rounds * log(2 / delta)))
    if batch < least:
      unmet.append(
          f'K={batch:g} is below eps n / (4 sqrt(2 R ln(2/delta))) ='
          f' {least:.4g}'
      )
  else:
    squared = 8 * num_rounds * log(1 / delta) / (n * epsilon) ** 2
    wished = paper_moments_batch(
        num_records=n, num_rounds=num_rounds, largest_epsilon=epsilon
    )
    if batch < wished:
      unmet.append(
          f'K={batch:g} is below max(1, floor(n sqrt(eps / (4 R)))) = {wished}'
      )
    unmet.append('the formula has no proof with explicit constants')
  return math.sqrt(squared), tuple(unmet)
