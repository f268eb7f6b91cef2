# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Renyi divergence of shuffled check-in with a discrete local randomizer.

A second, independent road to the epsilon of arXiv:2206.03151, whose theorem 1
and lemma 4 are sound once the target's chance to be among k messages is k / n.
It is looser than `shuffled_check_in`, and tests compare the two. Replace-one
adjacency. Orders are lambda > 1. Divergences are in nats, and for one round
unless a function says otherwise.
"""

import math

import numpy as np
from scipy import special
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import renyi
from tff_dp.systems.check_ins import shuffling

# Blocks of the cohort size: this many standard deviations, in steps of a half.
_REACH = 38
_LEAST_MASS = 1e-300
_LARGEST_ORDER = 1 << 13
_ROUNDING = 1e-11


def pure(local_epsilon: float, order: float) -> float:
  """Returns the Renyi divergence of the worst e0-LDP randomizer.

  Exact for binary randomized response, an upper bound for all others:
  ln(alpha^l (1 - alpha)^(1 - l) + (1 - alpha)^l alpha^(1 - l)) / (l - 1)
  (Mironov, arXiv:1702.07476, proposition 5).

  Args:
    local_epsilon: Local epsilon e0.
    order: Order l, above 1.
  """
  _checks.in_closed(0.0, 500.0, local_epsilon=local_epsilon)
  _checks.in_open(1.0, math.inf, order=order)
  e0 = float(local_epsilon)
  # alpha / (1 - alpha) = exp(e0).
  log_alpha = -math.log1p(math.exp(-e0))
  first = log_alpha + (order - 1) * e0
  second = log_alpha - order * e0
  found = float(np.logaddexp(first, second)) / (order - 1)
  return max(0.0, found)


def round_divergence(
    *, local_epsilon: float, num_clients: int, check_in_rate: float, order: int
) -> float:
  """Returns the Renyi divergence of one round of shuffled check-in.

  Upper bound (arXiv:2206.03151, theorem 1 with rate k / n, and lemma 4, from
  Girgis, Data, Diggavi, Suresh and Kairouz, NeurIPS 2021):

    exp((l - 1) D) = sum_k Bin(n, g)(k) m_k
    m_k <= 1 + 4 binom(l, 2) q^2 a^2 / (b exp(e0))
             + sum_{j=3..l} binom(l, j) q^j j Gamma(j / 2)
                 (2 (exp(2 e0) - 1)^2 / (b exp(2 e0)))^(j / 2)
             + ((1 + x)^l - 1 - l x) exp(-(k - 1) / (8 exp(e0)))

  with q = k / n, a = exp(e0) - 1, b = floor((k - 1) / (2 exp(e0))) + 1 and
  x = q (exp(2 e0) - 1) / exp(e0). For a block of several k, q is for the
  largest k, and the crowd is for the smallest k. m_k is never above its value
  for one report.

  Args:
    local_epsilon: Local epsilon e0 of a randomizer with finitely many reports.
    num_clients: Number of clients n.
    check_in_rate: Check-in rate g, in (0, 1].
    order: Order l, an integer of at least 2.
  """
  _checks.in_closed(0.0, 100.0, local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_clients=num_clients)
  _checks.in_closed(0.0, 1.0, check_in_rate=check_in_rate)
  _checks.integer_at_least(2, order=order)
  smallest, largest, masses = _cohorts(num_clients, float(check_in_rate))
  logs = _log_excess(
      local_epsilon, smallest, largest / num_clients, int(order)
  )
  # One report's moment less 1, which is the most: ln(exp(c) - 1).
  cap = (order - 1) * pure(local_epsilon, order)
  cap = cap + math.log(-math.expm1(-cap)) if cap > 0 else -math.inf
  # Where k = 0 nothing is seen, and the moment is 1. In logarithms: moments of
  # high orders are no floats.
  total = special.logsumexp(np.log(masses) + np.minimum(logs, cap))
  return float(np.logaddexp(0.0, total + _ROUNDING)) / (order - 1)


def randomized_response_floor(
    *, local_epsilon: float, num_clients: int, check_in_rate: float, order: int
) -> float:
  """Returns a lower bound on the divergence of binary randomized response.

  For tests, never a guarantee:
  ln(1 + binom(l, 2) (g / n) (exp(e0) - 1)^2 / exp(e0)) / (l - 1). It comes from
  the second moment if all other clients hold the target's value of the second
  law. Higher moments are not negative (docs/proofs_shuffling.md, section 8;
  after arXiv:2206.03151, theorem 3).
  """
  _checks.integer_at_least(2, order=order)
  second = check_in_rate / num_clients * 4 * math.sinh(local_epsilon / 2) ** 2
  return math.log1p(order * (order - 1) / 2 * second) / (order - 1)


def shuffled_check_in_epsilon(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    num_rounds: int,
    delta: float,
) -> float:
  """Returns epsilon of all rounds of shuffled check-in, by Renyi divergence.

  Upper bound: the least `renyi.epsilon` of num_rounds times `round_divergence`
  over integer orders. It is at most the epsilon without amplification.

  Raises:
    NotApplicableError: If the best order is the largest that is tried.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.in_open(0.0, 1.0, delta=delta)
  found, order, tried = math.inf, 2, []
  while order <= _LARGEST_ORDER:
    divergence = num_rounds * round_divergence(
        local_epsilon=local_epsilon,
        num_clients=num_clients,
        check_in_rate=check_in_rate,
        order=order,
    )
    tried.append(renyi.epsilon([divergence], delta=delta, orders=[order]))
    found = min(found, tried[-1])
    # Divergence grows with the order: past here no epsilon can be smaller.
    if divergence > found + 1:
      break
    order = max(order + 1, math.ceil(order * 1.1))
  else:
    # Near pure differential privacy, which is the order infinity, none is best.
    if found == tried[-1] and found < 0.9 * num_rounds * local_epsilon:
      raise privacy_profiles.NotApplicableError(
          f'the best order of Renyi divergence is above {_LARGEST_ORDER}, for'
          f' local_epsilon={local_epsilon:g}, num_clients={num_clients},'
          f' check_in_rate={check_in_rate:g}, num_rounds={num_rounds} and'
          f' delta={delta:g}'
      )
  return min(found, num_rounds * float(local_epsilon))


def _cohorts(num_clients: int, rate: float):
  """Returns (smallest, largest, masses) of blocks of k >= 1."""
  mean = num_clients * rate
  std = math.sqrt(mean * (1 - rate))
  cuts = mean + std * np.arange(-_REACH, _REACH + 0.25, 0.5)
  cuts = np.clip(np.floor(cuts), 1, num_clients)
  starts = np.unique(np.concatenate([[1], cuts])).astype(np.int64)
  ends = np.append(starts[1:] - 1, num_clients)
  lower = stats.binom.cdf(ends, num_clients, rate)
  with np.errstate(divide='ignore'):
    upper = stats.binom.sf(starts - 1, num_clients, rate)
    inside = np.where(
        ends < mean,
        lower - stats.binom.cdf(starts - 1, num_clients, rate),
        upper - stats.binom.sf(ends, num_clients, rate),
    )
  # Differences of tails keep the error of the tail.
  inside = np.maximum(inside, 0.0) + shuffling.RELATIVE_ERROR * np.minimum(
      lower, upper
  )
  return starts, ends, np.maximum(inside, _LEAST_MASS)


def _log_excess(e0, smallest, share, order: int) -> np.ndarray:
  """Returns ln(m_k - 1) by lemma 4, shape [blocks]."""
  with np.errstate(divide='ignore'):
    crowd = np.floor((smallest - 1) / (2 * math.exp(e0))) + 1
    log_crowd, log_share = np.log(crowd), np.log(share)
    log_a = math.log(math.expm1(e0)) if e0 > 0 else -math.inf
    # (exp(2 e0) - 1) / exp(e0) = 2 sinh(e0).
    log_x = math.log(2 * math.sinh(e0)) if e0 > 0 else -math.inf
  log_pairs = math.log(order) + math.log(order - 1) - math.log(2)
  parts = [
      math.log(4) + log_pairs + 2 * log_share + 2 * log_a - log_crowd - e0
  ]
  if order > 2:
    j = np.arange(3, order + 1, dtype=np.float64)[:, np.newaxis]
    log_binomial = (
        special.gammaln(order + 1)
        - special.gammaln(j + 1)
        - special.gammaln(order - j + 1)
    )
    spread = 0.5 * (math.log(2) + 2 * log_x - log_crowd)
    terms = log_binomial + np.log(j) + special.gammaln(j / 2)
    terms = terms + j * (log_share + spread)
    parts.append(special.logsumexp(terms, axis=0))
  parts.append(
      _log_beyond_linear(log_share + log_x, order)
      - (smallest - 1) / (8 * math.exp(e0))
  )
  return special.logsumexp(np.stack(parts), axis=0) + _ROUNDING * order


def _log_beyond_linear(log_x, order: int) -> np.ndarray:
  """Returns ln((1 + x)^l - 1 - l x), by its series where that cancels.

  The series is binom(l, 2) x^2 (1 + r / 3 + r^2 / 12 + ...) with r <= l x; its
  bracket is at most 1 / (1 - r / 3), as j! / 2 is at least 3^(j - 2).
  """
  x = np.exp(np.minimum(log_x, 600.0))
  log_pairs = math.log(order) + math.log(order - 1) - math.log(2)
  small = order * x < 0.03
  series = log_pairs + 2 * log_x - np.log1p(-np.where(small, order * x, 0) / 3)
  power = order * np.log1p(x)
  with np.errstate(divide='ignore', invalid='ignore'):
    ratio = (1 + order * x) * np.exp(-power)
    # Loses as many digits as ratio has nines: four at most, here.
    direct = power + np.log1p(-np.minimum(ratio, 1.0)) + 10 * _ROUNDING
  return np.where(small, series, direct)
