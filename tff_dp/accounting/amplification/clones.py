# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Crowds of clones: the pair of laws that a shuffler leaves to the adversary.

Clones are reports whose law is a fair coin between the two laws that the target
client's report is made of (arXiv:2012.12803). What is left of a shuffled round
is `s`, how many reports are of these two types, and `y`, how many of type 0:

    target out:  s = J,      y ~ Bin(s, 1/2)
    target in:   s = J + 1,  y ~ Bin(s - 1, 1/2) + Bernoulli(alpha or 1 - alpha)

with J the number of clones, alpha = exp(e0) / (1 + exp(e0)) and 'in' or 'out'
the target's own secret coin. Swapping the types swaps the two laws, so one
profile bounds both directions. docs/proofs_shuffling.md derives all of it.

Only E = exp(epsilon) >= 1 is meant: the threshold and the signs used here are
those of E >= 1.
"""

import math

import numpy as np
from scipy import stats

# Windows reach this many standard deviations, and a few points more. What is
# outside is charged at its worst value, about 1e-20 per round.
_REACH = 9.25
_MARGIN = 20
# Relative error of scipy's binomial laws. Against 40 digits: 6e-13 with up to
# 10^6 trials, 5e-10 at worst (10^7 trials of probability 10^-8, scipy 1.9).
RELATIVE_ERROR = 4e-9
# Cells of one array: bounds memory to a few times 8 MB.
_MOST_CELLS = 1 << 20


def window(trials: int, probability: float):
  """Returns (low, high, below, above) of a binomial variable.

  `below` and `above` bound the probabilities of less than low and of more than
  high. Not by `isf`: that returns `trials` for probabilities below 1e-16.
  """
  mean = trials * probability
  reach = _REACH * math.sqrt(mean * (1 - probability)) + _MARGIN
  low = max(0, math.floor(mean - reach))
  high = min(trials, math.ceil(mean + reach))
  with np.errstate(divide='ignore'):  # scipy 1.9, for a tail of 0.
    below = stats.binom.cdf(low - 1, trials, probability)
    above = stats.binom.sf(high, trials, probability)
  up = 1 + RELATIVE_ERROR
  return low, high, float(below) * up, float(above) * up


def blocks(low: int, high: int, most: int) -> np.ndarray:
  """Returns edges of at most `most` blocks [edge, next edge) of low..high.

  Narrower in the middle, where most of the probability is.
  """
  if high + 1 - low <= most:
    return np.arange(low, high + 2)
  places = np.linspace(-1.0, 1.0, most + 1)
  places = 0.5 + 0.5 * (0.25 * places + 0.75 * places**3)
  return np.unique(np.rint(low + places * (high + 1 - low)).astype(np.int64))


def block_masses(
    edges: np.ndarray, trials: int, probability: float
) -> np.ndarray:
  """Returns the probability of each block, rounded up."""
  values = np.arange(edges[0], edges[-1])
  masses = stats.binom.pmf(values, trials, probability)
  return np.add.reduceat(masses, edges[:-1] - edges[0]) * (1 + RELATIVE_ERROR)


def shuffled(
    epsilons: np.ndarray, *, local_epsilon: float, num_clones: np.ndarray
) -> np.ndarray:
  """Returns H_E of the pair for a target that is in, [epsilons, num_clones].

  Upper bound, exact up to rounding, for each number of clones.
  """
  num_clones = np.asarray(num_clones)
  return _rows(
      epsilons,
      local_epsilon,
      num_clones + 1,
      np.zeros(len(num_clones)),
      np.ones(len(num_clones)),
  )


def checked_in(
    epsilons: np.ndarray,
    *,
    local_epsilon: float,
    num_others: int,
    clone_probability: float,
    out_probability: float,
    in_probability: float,
) -> np.ndarray:
  """Returns H_E of the pair for J ~ Bin(num_others, clone_probability).

  Upper bound: exact in the window of J up to rounding, plus what is outside. If
  the probabilities of in and out do not sum to 1, the rest is an outcome that
  is seen and that does not tell the two inputs apart.
  """
  low, high, below, above = window(num_others, clone_probability)
  clones = np.arange(low, high + 1)
  masses = stats.binom.pmf(clones, num_others, clone_probability)
  # s runs over J (target out) and J + 1 (target in); at s = 0 the laws agree.
  sizes = np.arange(low, high + 2)
  absent = out_probability * np.append(masses, 0.0)
  present = in_probability * np.append(0.0, masses)
  if sizes[0] == 0:
    sizes, absent, present = sizes[1:], absent[1:], present[1:]
  rows = _rows(epsilons, local_epsilon, sizes, absent, present)
  worst = in_probability * worst_case(epsilons, local_epsilon)
  return np.minimum(rows.sum(axis=1) + worst * (below + above), worst)


def worst_case(epsilons: np.ndarray, local_epsilon: float) -> np.ndarray:
  """Returns H_E of one report, max(exp(e0) - E, 0) / (1 + exp(e0)), rounded up.

  The first law has type 0 with probability alpha, the second with 1 - alpha.
  """
  epsilons = np.asarray(epsilons, np.float64)
  gap = 0.0 - np.expm1(np.minimum(epsilons - local_epsilon, 0.0))
  return gap / (1 + math.exp(-local_epsilon)) * (1 + 1e-14)


def _rows(epsilons, local_epsilon, sizes, absent, present) -> np.ndarray:
  """Returns `_excess` for many epsilons, shape [epsilons, sizes]."""
  epsilons = np.asarray(epsilons, np.float64)
  found = np.zeros((len(epsilons), len(sizes)))
  # From e0 on, no report tells them apart.
  rows = np.flatnonzero(epsilons < local_epsilon)
  step = max(1, _MOST_CELLS // len(sizes))
  for start in range(0, len(rows), step):
    chunk = rows[start : start + step]
    found[chunk] = _excess(
        epsilons[chunk, np.newaxis], local_epsilon, sizes, absent, present
    )
  return found


def _excess(epsilon, local_epsilon, sizes, absent, present) -> np.ndarray:
  """Returns sum_y max(P(s, y) - E Q(s, y), 0), rounded up.

  With f the mass function and F the upper tail of Bin(s - 1, 1/2),

    P - E Q over y' >= y sums to
    (w A - u (E - 1) / 2) f(y - 1) - (E - 1) (u + w) F(y),

  where A = alpha - E (1 - alpha), and u, w are the probabilities of s clones
  with the target out, and of s - 1 with it in. P - E Q is a
  positive function times one that rises linearly in y, so the sum is largest at
  its first positive y. A wrong y gives too little: rounding can move it by one,
  so its neighbours are tried too.

  Args:
    epsilon: Shape [epsilons, 1], below local_epsilon.
    local_epsilon: e0.
    sizes: s >= 1, shape [sizes].
    absent: u, shape [sizes].
    present: w, shape [sizes].
  """
  odds_minus_1 = np.expm1(epsilon)
  odds = 1 + odds_minus_1
  alpha = 1 / (1 + math.exp(-local_epsilon))
  beta = 1 / (1 + math.exp(local_epsilon))
  to_first = worst_case(epsilon, local_epsilon)  # A
  to_second = beta - odds * alpha
  with np.errstate(divide='ignore', invalid='ignore', over='ignore'):
    share = np.where(present > 0, absent / present, np.inf)
    dilution = np.where(odds_minus_1 > 0, 0.5 * odds_minus_1 * share, 0.0)
    threshold = sizes * ((dilution - to_second) / (to_first - to_second))
  # Beyond s there is nothing; 1 and s have both ends as neighbours.
  y = np.clip(1 + np.floor(np.minimum(threshold, sizes)), 1, sizes)
  before = stats.binom.pmf(y - 1, sizes - 1, 0.5)
  with np.errstate(divide='ignore'):  # scipy 1.9, for a tail of 0.
    tail = stats.binom.sf(y - 1, sizes - 1, 0.5)
  at = before * ((sizes - y) / y)
  two_before = before * ((y - 1) / (sizes - y + 1))
  gain = present * to_first - 0.5 * absent * odds_minus_1
  loss = odds_minus_1 * (absent + present)
  up_to = present * to_first + 0.5 * absent * odds_minus_1  # At least |gain|.

  def rounded_up(mass, beyond, at_most):
    error = RELATIVE_ERROR * (up_to * mass + loss * at_most)
    return gain * mass - loss * beyond + error

  best = rounded_up(before, tail, tail)
  np.maximum(best, rounded_up(at, tail - at, tail + at), out=best)
  np.maximum(
      best, rounded_up(two_before, tail + before, tail + before), out=best
  )
  # Past s, nothing is in the sum.
  return np.maximum(best, 0.0)
