# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The noise of silos as arXiv:2106.09779 (LR23) prints it, and its true cost.

* PAPER_MOMENTS, of the paper's experiments, has no proof with explicit
  constants, and too little noise for a large epsilon: at 35 rounds, 443 of 1238
  records (its own batch) and delta 6.5e-7 it keeps an epsilon of 6, and exceeds
  the 12 and 18 that it is asked for.
* PAPER_ONE_PASS and PAPER_ADVANCED_COMPOSITION have conditions that runs break;
  `unmet` names them. One pass in 35 rounds at epsilon 1 gets 2.5 times the noise
  that is needed.
* ZCDP_ONE_PASS holds. At one pass in 35 rounds and epsilon 1 it gives 1.8 times
  the noise that is needed.

`tff_dp.silos.calibrate_noise` finds the least noise.
"""

import dataclasses
import enum
import math

from tff_dp import _checks
from tff_dp.systems.silos import silo_sampling


class Formula(enum.Enum):
  """A formula for sigma. C is the clip norm, which replaces the paper's L.

  Values:
    PAPER_ONE_PASS: LR23, algorithm 1: sigma^2 = 32 C^2 ln(2/delta) /
      (eps K)^2, for eps <= 2 ln(2/delta).
    ZCDP_ONE_PASS: 16 C^2 ln(1/delta) / (eps K)^2: zero-concentrated DP with
      eps^2 / (8 ln(1/delta)), at sensitivity 2C/K.
    PAPER_ADVANCED_COMPOSITION: LR23, algorithm 2: sigma^2 = 256 C^2 R
      ln(2.5 R/delta) ln(2/delta) / (n eps)^2, for eps <= 2 ln(2/delta) and
      K >= eps n / (4 sqrt(2 R ln(2/delta))).
    PAPER_MOMENTS: LR23's experiments: sigma^2 = 8 C^2 R ln(1/delta) /
      (n eps)^2, with K of `paper_moments_batch`. Too little noise for large
      eps.
  """

  PAPER_ONE_PASS = 'paper-one-pass'
  ZCDP_ONE_PASS = 'zcdp-one-pass'
  PAPER_ADVANCED_COMPOSITION = 'paper-advanced-composition'
  PAPER_MOMENTS = 'paper-moments'


_ONE_PASS = (Formula.PAPER_ONE_PASS, Formula.ZCDP_ONE_PASS)
_MULTI_PASS = (
    Formula.PAPER_ADVANCED_COMPOSITION,
    Formula.PAPER_MOMENTS,
)


@dataclasses.dataclass(frozen=True)
class PublishedNoise:
  """The sigma of a formula, and the epsilon that it really costs.

  Attributes:
    formula: Formula that gives sigma.
    sigma: Standard deviation of the noise on the mean of K records.
    noise_multiplier: sigma K / C, the standard deviation on their sum over the
      clip norm.
    requested_epsilon: Epsilon that was put into the formula.
    epsilon: Epsilon that this sigma costs, a computed upper bound.
    unmet: Conditions of the formula that do not hold, as sentences.
  """

  formula: Formula
  sigma: float
  noise_multiplier: float
  requested_epsilon: float
  epsilon: float
  unmet: tuple[str, ...]

  @property
  def is_met(self) -> bool:
    """Whether the computed epsilon is within the request."""
    return self.epsilon <= self.requested_epsilon


def noise(
    formula: Formula,
    sampling: silo_sampling.Sampling,
    *,
    num_records: int,
    num_rounds: int,
    l2_norm_clip: float,
    epsilon: float,
    delta: float,
) -> PublishedNoise:
  """Returns the sigma of a formula, with the epsilon that it really costs.

  Args:
    formula: Formula to use. Some are for one pass only, the others for more.
    sampling: Rule by which each round chooses its batch of K records.
    num_records: Number of records n.
    num_rounds: Number of rounds R.
    l2_norm_clip: Clip norm C.
    epsilon: Epsilon to put into the formula.
    delta: Target delta, in (0, 1).
  """
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.delta(delta=delta)
  _checks.positive(epsilon=epsilon)
  sampling.check(num_records=num_records, num_rounds=num_rounds)
  factor, unmet = _evaluated(
      formula, sampling, num_records, num_rounds, epsilon, delta
  )
  sigma = factor * l2_norm_clip
  spent = silo_sampling.account_noise(
      sampling,
      num_records=num_records,
      num_rounds=num_rounds,
      l2_norm_clip=l2_norm_clip,
      sigma=sigma,
      delta=delta,
  )
  return PublishedNoise(
      formula,
      sigma,
      sigma * float(sampling.batch_size) / l2_norm_clip,
      epsilon,
      spent,
      unmet,
  )


def paper_moments_batch(
    *, num_records: int, num_rounds: int, largest_epsilon: float
) -> int:
  """Returns K = max(1, floor(n sqrt(eps_max / (4 R)))) of LR23's experiments.

  At most n. `largest_epsilon` is the largest of all the epsilons that are
  compared, so that they share one K.
  """
  _checks.integer_at_least(1, num_records=num_records)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.positive(largest_epsilon=largest_epsilon)
  share = math.sqrt(largest_epsilon / (4 * num_rounds))
  return min(int(num_records), max(1, math.floor(num_records * share)))


def _evaluated(formula, sampling, n, num_rounds, epsilon, delta):
  """Returns (sigma / C by a paper's formula, conditions that do not hold)."""
  batch = float(sampling.batch_size)
  is_one_pass = isinstance(sampling, silo_sampling.DisjointBlocks)
  fitting = _ONE_PASS if is_one_pass else _MULTI_PASS
  if formula not in fitting:
    names = ', '.join(option.value for option in fitting)
    raise _checks.ArgumentError(
        'formula',
        formula.value,
        f'with {sampling.name} sampling one of {names}',
    )
  log = math.log
  unmet = []
  largest = 2 * log(2 / delta)
  is_paper = formula in (
      Formula.PAPER_ONE_PASS,
      Formula.PAPER_ADVANCED_COMPOSITION,
  )
  if is_paper and epsilon > largest:
    unmet.append(f'epsilon={epsilon:g} is above 2 ln(2/delta) = {largest:.4g}')
  if formula is Formula.PAPER_ONE_PASS:
    squared = 32 * log(2 / delta) / (epsilon * batch) ** 2
  elif formula is Formula.ZCDP_ONE_PASS:
    squared = 16 * log(1 / delta) / (epsilon * batch) ** 2
  elif formula is Formula.PAPER_ADVANCED_COMPOSITION:
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
