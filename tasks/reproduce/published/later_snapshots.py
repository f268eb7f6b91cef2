# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one weight of a later model still shows: numbers that are no guarantee.

A client's noised model is drawn, changed and noised by `num_updates` more
clients, then somebody looks at one weight of the result. Suppose that those
clients change the weight in a way that does not depend on the model that they
were given. Then their noise simply adds up, and this module computes exactly
how much the weight still shows. In truth a gradient depends on the model, and
nobody knows how many updates follow. So the results are *diagnostics*: they go
beside a guarantee, and never replace it.

The published formula (arXiv:1807.04369, section 4.3) is here for comparison. It
uses the central limit theorem as if it were an equality.
"""

import functools
import math

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import search

MECHANISMS = ('laplace', 'gaussian')
# Sums over the terms of a tail probability; all of them are positive.
_RELATIVE_ERROR = 1e-10
# A bracket of the best threshold is widened by this share, for the rounding of
# likelihood ratios. It costs about as much of delta.
_WIDENED = 1e-9
_NEGLIGIBLE = 1e-40
_MOST_UPDATES = 1_000_000
_TOLERANCE = 1e-12


def laplace_sum_tail(num_draws: int, threshold) -> np.ndarray:
  """Returns P(X > threshold) for the sum X of Laplace draws of scale 1.

  Exact up to rounding: the sum is a difference of two Gamma(n) variables, and
  for x >= 0

      P(X > x) = sum_{j=0}^{n-1} C(n-1+j, j) 2^-(n+j) Q(n-j, x)

  with the upper incomplete gamma ratio Q: all terms are positive.

  Args:
    num_draws: Number of draws n, at least 1.
    threshold: Threshold x, in scales, of any shape.
  """
  _checks.integer_at_least(1, num_draws=num_draws)
  threshold = np.asarray(threshold, np.float64)
  shapes, weights = _mixture(num_draws)
  upper = special.gammaincc(shapes, np.abs(threshold)[..., np.newaxis])
  tail = np.minimum(upper @ weights, 0.5)
  return np.where(threshold >= 0, tail, 1.0 - tail)


def laplace_sum_delta(
    epsilon: float, *, distance: float, num_draws: int
) -> float:
  """Returns delta of a shift by `distance` under so many Laplace draws.

  Exact, rounded upward: the density of the sum is log-concave, so the best
  test is a threshold t, and delta = max_t P(X > t - distance)
  - exp(epsilon) P(X > t). The threshold is bracketed by bisection on the
  likelihood ratio, and both terms are evaluated on the worse end.

  Delta is 0 from epsilon = distance on, for any number of draws: the ratio
  tends to exp(distance) far out. More noise of this kind never lowers pure
  epsilon.

  Args:
    epsilon: Target epsilon, at least 0.
    distance: Distance of the two inputs, in scales of the noise.
    num_draws: Number of draws n.
  """
  _checks.non_negative(epsilon=epsilon)
  _checks.positive(distance=distance)
  _checks.integer_between(1, _MOST_UPDATES + 1, num_draws=num_draws)
  if epsilon >= distance:
    return 0.0
  low, high = distance / 2, distance
  step = math.sqrt(2.0 * num_draws)
  while _log_ratio(high, distance, num_draws) < epsilon:
    low, high = high, high + step
    step *= 2
    if step > 1e6 * math.sqrt(num_draws):
      break
  threshold = search.nearest(
      lambda t: _log_ratio(t, distance, num_draws) >= epsilon, low, high
  )
  margin = _WIDENED * min(1.0, distance)
  tails = laplace_sum_tail(
      num_draws, np.array([threshold - margin - distance, threshold + margin])
  )
  kept, shifted = float(tails[0]), _scaled(float(tails[1]), epsilon)
  slack = _RELATIVE_ERROR * (kept + shifted) + num_draws * _NEGLIGIBLE
  return min(1.0, max(0.0, kept - shifted) + slack)


# A privacy statement asks for it anew at every checkpoint.
@functools.lru_cache(maxsize=256)
def later_epsilon(
    *, mechanism: str, distance: float, num_updates: int, delta: float
) -> float:
  """Returns epsilon at delta of one weight, so many noised updates later.

  For a weight to which only noise is added, the result is exact, rounded
  upward. For learning it is a *heuristic*, see the module. The first draw is
  the client's own: `num_updates=0` gives the guarantee for one weight.

  Args:
    mechanism: 'laplace' or 'gaussian'.
    distance: Largest distance by which the client can move the weight, over
      Laplace's scale or the Gaussian's standard deviation.
    num_updates: Number of updates T between the client's model and the model
      that somebody sees.
    delta: Target delta, in (0, 1).
  """
  _checks.one_of(MECHANISMS, mechanism=mechanism)
  _checks.positive(distance=distance)
  _checks.integer_between(0, _MOST_UPDATES, num_updates=num_updates)
  _checks.in_open(0.0, 1.0, delta=delta)
  if mechanism == 'gaussian':
    sigma = math.sqrt(num_updates + 1) / distance
    return gaussian.exact_epsilon(sigma=sigma, delta=delta)
  distance, num_draws = float(distance), num_updates + 1

  def is_private(epsilon):
    spent = laplace_sum_delta(epsilon, distance=distance, num_draws=num_draws)
    return spent <= delta

  if is_private(0.0):
    return 0.0
  # Pure epsilon always holds.
  return search.nearest(is_private, 0.0, distance, tolerance=_TOLERANCE)


def published_later_epsilon(
    *,
    local_epsilon: float,
    num_updates: int,
    delta: float,
    corrected: bool = False,
) -> float:
  """Returns the published epsilon of one weight, T noised updates later.

  *Heuristic*, and no bound of any kind. As printed, with L = ln(1/(2 delta)),

      local_epsilon sqrt(L / (2 T))

  This formula assumes that a gradient moves a weight by w = sqrt(2) g, although
  2 g C is possible, and it drops a term. `corrected` uses w = 2 g C and keeps
  the term: with
  x = w^2 / (variance of the noise of T updates) = local_epsilon^2 / (2 T),

      x (1 + sqrt(1 + 2 L / x))

  Source: arXiv:1807.04369, section 4.3.

  Args:
    local_epsilon: Epsilon of one weight and one participation, 2 g C / b, with
      learning rate g, clip norm C and Laplace's scale b.
    num_updates: Number of later updates T, at least 1.
    delta: Target delta, in (0, 1/2).
    corrected: Whether to use the corrected formula.
  """
  _checks.positive(local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_updates=num_updates)
  _checks.in_open(0.0, 0.5, delta=delta)
  log_term = -math.log(2 * delta)
  if not corrected:
    return local_epsilon * math.sqrt(log_term / (2 * num_updates))
  x = local_epsilon**2 / (2 * num_updates)
  return x * (1 + math.sqrt(1 + 2 * log_term / x))


def published_expected_loss(
    *, local_epsilon: float, num_instances: int
) -> float:
  """Returns (k - 1)/k epsilon/2, the "expected loss" of the paper.

  *Not a bound*: it averages epsilon over coins of the server, although
  differential privacy is about every outcome. It also takes epsilon/2 for a
  random pre-image. An observer of all instances before and after an update sees
  which one was overwritten, and from how far. For that observer the loss is
  epsilon, for every k.

  Source: arXiv:1807.04369, section 4.2.

  Args:
    local_epsilon: Epsilon of one weight and one participation.
    num_instances: Number of instances k.
  """
  _checks.positive(local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_instances=num_instances)
  return (num_instances - 1) / num_instances * local_epsilon / 2


@functools.lru_cache(maxsize=64)
def _mixture(num_draws: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns (shapes, weights) of the Gamma variables of the positive half.

  Variables that are less likely than `_NEGLIGIBLE` are left out. The callers
  add a bound on their effect.
  """
  j = np.arange(num_draws, dtype=np.float64)
  # C(n-1+j, j) 2^-(n+j) are probabilities of a negative binomial law, and add
  # up to 1/2: dividing by their sum takes back the rounding of logarithms.
  logs = (
      special.gammaln(num_draws + j)
      - special.gammaln(j + 1)
      - special.gammaln(num_draws)
      - (num_draws + j) * math.log(2)
  )
  weights = np.exp(logs)
  weights *= 0.5 / np.sum(weights)
  kept = weights > _NEGLIGIBLE
  return num_draws - j[kept], weights[kept]


def _log_ratio(threshold: float, distance: float, num_draws: int) -> float:
  """Returns ln p(threshold - distance) - ln p(threshold), increasing."""
  shapes, weights = _mixture(num_draws)
  with np.errstate(divide='ignore'):
    logs = np.log(weights) - special.gammaln(shapes)

  def log_density(x):
    x = max(abs(x), 1e-300)
    terms = logs + (shapes - 1) * math.log(x)
    largest = float(np.max(terms))
    return largest + math.log(float(np.sum(np.exp(terms - largest)))) - x

  return log_density(threshold - distance) - log_density(threshold)


def _scaled(tail: float, epsilon: float) -> float:
  """Returns exp(epsilon) tail, which is at most 1 where it matters."""
  if tail == 0:
    return 0.0
  return math.exp(min(0.0, epsilon + math.log(tail)))
