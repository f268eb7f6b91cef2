# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Step and smoothing of noisy SGD over silos, without acceleration.

Both follow from public constants, never from data; LR23 is Lowy and Razaviyayn,
arXiv:2106.09779. `minibatch_schedules` has what the accelerated method needs.
"""

import math

from tff_dp import _checks


def strongly_convex_learning_rate(
    num_rounds: int,
    *,
    smoothness: float,
    strong_convexity: float,
    diameter: float,
    variance: float,
) -> float:
  """Returns the step of plain noisy SGD for a strongly convex objective.

      min{1 / (2 beta), ln(max{2, mu^2 D^2 R^2 / c}) / (mu R)}

  for the exponential average of the models; LR23 after Stich,
  arXiv:1907.04232, lemma 2.

  Args:
    num_rounds: R.
    smoothness: beta.
    strong_convexity: mu, above 0.
    diameter: D.
    variance: c, about L^2 + d sigma^2 / M.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.positive(smoothness=smoothness)
  _checks.positive(strong_convexity=strong_convexity)
  _checks.positive(diameter=diameter)
  _checks.positive(variance=variance)
  ratio = (strong_convexity * diameter * num_rounds) ** 2 / variance
  return min(
      0.5 / smoothness,
      math.log(max(2.0, ratio)) / (strong_convexity * num_rounds),
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
  """Returns b of the Moreau envelope for a loss that is not smooth. Heuristic.

      convex           sqrt(M) (L/D) min{sqrt(n), eps n / sqrt(d ln(1/delta))}
      strongly convex  mu M min{n, eps^2 n^2 / (d ln(1/delta))}

  the values at which the bias of the envelope, at most L^2 / (2 b), is of the
  order of the optimal risk (LR23), up to constants and logarithms.

  Args:
    num_records: n.
    num_params: d.
    lipschitz: L.
    epsilon: Of the whole transcript of a silo.
    delta: Of the same.
    num_available: M.
    diameter: D; needed unless `strong_convexity` is above 0.
    strong_convexity: mu.
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
