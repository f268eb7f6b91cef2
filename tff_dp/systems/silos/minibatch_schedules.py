# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Rounds, steps, stages and smoothing of noisy minibatch SGD over silos.

All numbers here follow from public constants, never from data. AC-SA is the
accelerated method of Ghadimi and Lan, "Optimal stochastic approximation
algorithms for strongly convex stochastic composite optimization", parts I
(2012) and II (2013).

Rounds r are 1-based, arrays 0-based. F is the objective, F_i the part of silo i
in it, beta the smoothness and mu the strong convexity of F. F* is the minimum
of F, and w* the minimiser. D bounds the distance of the start from w*. V^2
bounds the variance of the mean message of a round.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian


class Coefficients(NamedTuple):
  """The linear maps of AC-SA, float64 arrays of shape [num_rounds].

  In a round with the mean message g, they give

      w_md = md_of_ag w_ag + md_of_w w              the point that is sent out
      w    = Proj(w_of_md w_md + w_of_w w - w_of_gradient g)
      w_ag = ag_of_w w + (1 - ag_of_w) w_ag         the result
  """

  md_of_ag: np.ndarray
  md_of_w: np.ndarray
  w_of_md: np.ndarray
  w_of_w: np.ndarray
  w_of_gradient: np.ndarray
  ag_of_w: np.ndarray


def accelerated_coefficients(
    num_rounds: int, *, gamma: float, strong_convexity: float = 0.0
) -> Coefficients:
  """Returns the coefficients of AC-SA in each round of one stage.

  In round r = 1, 2, ... and with a = 2 / (r + 1), e = 4 gamma / (r (r + 1)) and
  den = e + (1 - a^2) mu,

      w_md = ((1-a) (mu+e) / den) w_ag + (a ((1-a) mu + e) / den) w
      w    = Proj((a mu w_md + ((1-a) mu + e) w - a g) / (mu + e))
      w_ag = a w + (1-a) w_ag

  where g is the mean message. In round 1, a is 1, so the old w_ag is forgotten.
  Source: arXiv:2106.09779, algorithm 1.

  Args:
    num_rounds: Number of rounds of the stage.
    gamma: Step parameter. The effective step of round r is about r / (2 gamma).
    strong_convexity: Strong convexity mu.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.positive(gamma=gamma)
  _checks.non_negative(strong_convexity=strong_convexity)
  rounds = np.arange(1, num_rounds + 1, dtype=np.float64)
  mu = float(strong_convexity)
  share = 2.0 / (rounds + 1.0)
  inertia = 4.0 * gamma / (rounds * (rounds + 1.0))
  kept = (1.0 - share) * mu + inertia
  denominator = inertia + (1.0 - share**2) * mu
  return Coefficients(
      md_of_ag=(1.0 - share) * (mu + inertia) / denominator,
      md_of_w=share * kept / denominator,
      w_of_md=share * mu / (mu + inertia),
      w_of_w=kept / (mu + inertia),
      w_of_gradient=share / (mu + inertia),
      ag_of_w=share,
  )


def accelerated_bound(num_rounds, *, gamma, diameter: float, variance):
  """Returns a bound on E F(w_ag) - F* after one stage of AC-SA.

  F is the objective, F* its minimum, and w_ag the result of the stage. The
  bound is 2 gamma D^2 / (R (R+1)) + V^2 (2R+1) / (6 gamma), for a convex F and
  gamma >= 2 beta. Source: Ghadimi and Lan (2012), theorem 1, for F without a
  nonsmooth part. `num_rounds`, `gamma` and `variance` may be arrays.

  Args:
    num_rounds: Number of rounds R.
    gamma: Step parameter, at least twice the smoothness beta of F.
    diameter: Bound D on the distance of the start from the minimiser.
    variance: Bound V^2 on the variance of the mean message of a round.
  """
  bias = 2.0 * gamma * diameter**2 / (num_rounds * (num_rounds + 1.0))
  return bias + variance * (2.0 * num_rounds + 1.0) / (6.0 * gamma)


def best_gamma(num_rounds, *, smoothness: float, diameter: float, variance):
  """Returns the gamma >= 2 beta with the smallest `accelerated_bound`. Exact.

  The result is max{2 beta, sqrt(V^2 R (R+1) (2R+1) / (12 D^2))}. `num_rounds`
  and `variance` may be arrays.

  Args:
    num_rounds: Number of rounds R.
    smoothness: Smoothness beta.
    diameter: Bound D on the distance of the start from the minimiser, above 0.
    variance: Bound V^2 on the variance of the mean message of a round.
  """
  product = num_rounds * (num_rounds + 1.0) * (2.0 * num_rounds + 1.0)
  return np.maximum(
      2.0 * smoothness, np.sqrt(variance * product / 12.0) / diameter
  )


def round_variance(
    batch,
    *,
    noise_stddev,
    num_params: int,
    num_silos: int,
    num_available: int,
    example_variance: float,
    silo_variance: float,
):
  """Returns a bound on V^2 = E |g - grad F|^2 for the mean g of the messages.

  F is the objective, the mean of the F_i of the silos. Upper bound, for fresh
  records and `num_available` silos drawn without replacement
  (arXiv:2106.09779, lemma E.5):

      phi^2 / (M K) + (1 - (M-1)/(N-1)) upsilon^2 / M + d sigma^2 / M

  Args:
    batch: Number of records K of a silo in a round, a number or an array.
    noise_stddev: Noise std sigma per coordinate of a silo's mean, a number or
      an array.
    num_params: Number of parameters d.
    num_silos: Number of silos N.
    num_available: Number of silos M that report in a round.
    example_variance: Variance phi^2 of one record's gradient within a silo.
    silo_variance: Largest value upsilon^2 of the mean of |grad F_i - grad F|^2
      over the silos.
  """
  _checks.integer_at_least(1, num_params=num_params)
  _checks.integer_at_least(1, num_silos=num_silos)
  _checks.integer_between(1, num_silos, num_available=num_available)
  _checks.non_negative(example_variance=example_variance)
  _checks.non_negative(silo_variance=silo_variance)
  variance = example_variance / (num_available * batch)
  variance = variance + num_params * np.square(noise_stddev) / num_available
  if num_silos > 1:
    missing = 1.0 - (num_available - 1) / (num_silos - 1)
    variance = variance + missing * silo_variance / num_available
  return variance


class Rounds(NamedTuple):
  """The recommendation of `choose_rounds`.

  Attributes:
    num_rounds: Number of rounds R.
    gamma: Step parameter gamma.
    batch: Number of records K of a silo in a round.
    noise_stddev: Noise std sigma per coordinate of a silo's mean.
    bound: Bound on the expected excess risk.
  """

  num_rounds: int
  gamma: float
  batch: int
  noise_stddev: float
  bound: float


def choose_rounds(
    num_records: int,
    *,
    num_params: int,
    lipschitz: float,
    diameter: float,
    smoothness: float,
    epsilon: float,
    delta: float,
    num_silos: int,
    num_available: int,
    example_variance: float,
    silo_variance: float,
) -> Rounds:
  """Returns R and gamma with the smallest bound for one accelerated pass.

  The bound is `accelerated_bound`, on the expected excess risk. Every R from 1
  to n is tried, with K = floor(n / R) and sigma = 2 z L / K. Here z is the std
  of the noise that one Gaussian release of sensitivity 1 needs for epsilon and
  delta. More rounds have a smaller bias and more noise, so the best R may be
  far below n.

  Args:
    num_records: Number of records n of the smallest silo.
    num_params: Number of parameters d.
    lipschitz: Lipschitz constant L, or the clip norm.
    diameter: Bound D on the distance of the start from the minimiser.
    smoothness: Smoothness beta.
    epsilon: Epsilon of the whole transcript of a silo.
    delta: Delta of the whole transcript of a silo.
    num_silos: Number of silos N.
    num_available: Number of silos M that report in a round.
    example_variance: Variance phi^2, see `round_variance`.
    silo_variance: Variance upsilon^2, see `round_variance`.
  """
  _checks.integer_at_least(1, num_records=num_records)
  _checks.positive(lipschitz=lipschitz)
  _checks.positive(diameter=diameter)
  _checks.positive(smoothness=smoothness)
  rounds = np.arange(1, num_records + 1)
  batch = num_records // rounds
  noise = gaussian.sigma_for(epsilon=epsilon, delta=delta) * 2 * lipschitz
  variance = round_variance(
      batch,
      noise_stddev=noise / batch,
      num_params=num_params,
      num_silos=num_silos,
      num_available=num_available,
      example_variance=example_variance,
      silo_variance=silo_variance,
  )
  run = dict(diameter=diameter, variance=variance)
  gamma = best_gamma(rounds.astype(float), smoothness=smoothness, **run)
  bound = accelerated_bound(rounds.astype(float), gamma=gamma, **run)
  best = int(np.argmin(bound))
  return Rounds(
      num_rounds=int(rounds[best]),
      gamma=float(gamma[best]),
      batch=int(batch[best]),
      noise_stddev=float(noise / batch[best]),
      bound=float(bound[best]),
  )


def choose_smoothing(
    num_records: int,
    *,
    num_params: int,
    lipschitz: float,
    epsilon: float,
    delta: float,
    num_available: int,
    diameter: float | None = None,
    strong_convexity: float = 0.0,
) -> float:
  """Returns a smoothing b of the Moreau envelope of a loss. Heuristic.

  For a loss that is not smooth, b is

      convex           sqrt(M) (L/D) min{sqrt(n), eps n / sqrt(d ln(1/delta))}
      strongly convex  mu M min{n, eps^2 n^2 / (d ln(1/delta))}

  The bias of the envelope is at most L^2 / (2 b). With this b, the bound on the
  bias is as large as the optimal risk (arXiv:2106.09779), up to constants and
  logarithms.

  Args:
    num_records: Number of records n.
    num_params: Number of parameters d.
    lipschitz: Lipschitz constant L.
    epsilon: Epsilon of the whole transcript of a silo.
    delta: Delta of the whole transcript of a silo.
    num_available: Number of silos M that report in a round.
    diameter: Bound D on the distance of the start from the minimiser, required
      unless `strong_convexity` is above 0.
    strong_convexity: Strong convexity mu.
  """
  _checks.integer_at_least(1, num_records=num_records)
  _checks.integer_at_least(1, num_params=num_params)
  _checks.integer_at_least(1, num_available=num_available)
  _checks.positive(lipschitz=lipschitz)
  _checks.positive(epsilon=epsilon)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.non_negative(strong_convexity=strong_convexity)
  private = (epsilon * num_records) ** 2 / (num_params * math.log(1.0 / delta))
  effective = min(float(num_records), private)
  if strong_convexity > 0:
    return strong_convexity * num_available * effective
  _checks.positive(diameter=diameter)
  return math.sqrt(num_available * effective) * lipschitz / diameter


@dataclasses.dataclass(frozen=True)
class Stage:
  """One run of AC-SA between two restarts.

  Attributes:
    num_rounds: Number of rounds R_k.
    gamma: Step parameter gamma_k.
  """

  num_rounds: int
  gamma: float

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.positive(gamma=self.gamma)


def multi_stage_schedule(
    total_rounds: int,
    *,
    initial_gap: float,
    variance: float,
    smoothness: float,
    strong_convexity: float,
) -> tuple[Stage, ...]:
  """Returns the stages of multi-stage AC-SA, which halve the gap F(w) - F*.

  F is the objective, and F* its minimum. With Delta_k = Delta_0 2^-k, stage k
  has

      R_k     = ceil max{4 sqrt(2 beta/mu), 64 V^2 / (3 mu Delta_{k-1})}
      gamma_k = max{2 beta, sqrt(mu V^2 R_k (R_k+1) (2 R_k+1)
                                 / (24 Delta_{k-1}))}

  With |w - w*|^2 <= 2 Delta_{k-1} / mu, both terms of `accelerated_bound` are
  at most Delta_{k-1} / 4, so each complete stage halves the bound on the gap.
  The remaining rounds form the last stage, which may be too short for that.

  A stage restarts the method but not the data: the next stage uses the next
  blocks of records.

  Args:
    total_rounds: Number of rounds of the run. Choose it first, because V
      depends on it.
    initial_gap: Bound Delta_0 >= F(w_0) - F*.
    variance: Bound V^2 on the variance of the mean message of a round.
    smoothness: Smoothness beta.
    strong_convexity: Strong convexity mu, above 0 and at most beta.
  """
  _checks.integer_at_least(1, total_rounds=total_rounds)
  _checks.positive(initial_gap=initial_gap)
  _checks.non_negative(variance=variance)
  _checks.positive(smoothness=smoothness)
  _checks.positive(strong_convexity=strong_convexity)
  if strong_convexity > smoothness:
    raise _checks.ArgumentError(
        'strong_convexity',
        strong_convexity,
        f'at most the smoothness, {smoothness}',
    )
  stages, left, gap = [], total_rounds, float(initial_gap)
  least = 4.0 * math.sqrt(2.0 * smoothness / strong_convexity)
  while left > 0:
    wanted = max(least, 64.0 / 3.0 * variance / (strong_convexity * gap))
    # If `wanted` exceeds the remaining rounds, its exact value does not matter.
    num_rounds = left if wanted >= left else min(left, math.ceil(wanted))
    product = float(num_rounds * (num_rounds + 1))
    product *= (2 * num_rounds + 1) / 24.0
    gamma = math.sqrt(strong_convexity * variance * product / gap)
    stages.append(Stage(num_rounds, max(2.0 * smoothness, gamma)))
    left -= num_rounds
    gap /= 2.0
  return tuple(stages)
