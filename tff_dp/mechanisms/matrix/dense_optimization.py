# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A lower-triangular C for a short horizon, every entry of it free.

Minimises sqrt(S2 V) for prefix sums, V the largest or the mean squared row norm
of A C^-1. The columns of C are kept at norm 1, so S2 is the number k of
participations as long as two columns of one client never overlap: all entries
are free where a client takes part once, those of the first b diagonals where it
takes part b rounds apart (arXiv:2306.08153). The search is L-BFGS with
gradients by hand, from the optimal banded Toeplitz matrix; the maximum is
approached by norms of rising order.

With one participation and the mean this problem is convex in C'C, and the local
minimum is the global one (cf. arXiv:2202.08312); otherwise *heuristic*.
"""

import functools

import numpy as np
from scipy import linalg

from tff_dp import _checks
from tff_dp.accounting.sensitivity import matrix_sensitivity
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import toeplitz_algebra
from tff_dp.mechanisms.matrix import toeplitz_objective
from tff_dp.mechanisms.matrix import toeplitz_optimization

# Entries grow with the square, and the work of a step with the cube.
MAX_ROUNDS = 256
# Orders of the norm over rounds, 1 for the mean itself, with most iterations.
_ORDERS = {'mean': ((1, 500),), 'max': ((16, 150), (256, 150), (2048, 150))}

Rows = tuple[tuple[float, ...], ...]


@functools.lru_cache(maxsize=8)
def optimize(
    pattern: patterns.ParticipationPattern, *, error: str = 'max'
) -> Rows:
  """Returns the rows of a lower-triangular C with small error.

  Never worse than the optimal Toeplitz and banded matrices, which are among the
  candidates; compared with the S2 of the accountant, an upper bound where two
  participations overlap. Float32 numbers, shape [n, n].

  Args:
    pattern: Which rounds one client may take part in; at most 256 rounds.
    error: 'max' or 'mean': whether V is the largest or the mean variance.
  """
  _checks.one_of(toeplitz_objective.ERRORS, error=error)
  _checks.integer_between(1, MAX_ROUNDS, num_rounds=pattern.num_rounds)
  n, gap, most = toeplitz_objective.tree_setting(pattern)
  bands = n if most == 1 else min(gap, n)
  toeplitz = toeplitz_optimization.optimize_toeplitz(pattern, error=error)
  start = toeplitz_optimization.optimize_banded(
      pattern, num_bands=bands, error=error
  )
  banded = toeplitz_algebra.matrix(start, n)
  candidates = [
      toeplitz_algebra.matrix(toeplitz, n), banded, _minimized(banded, error)
  ]
  candidates = [
      np.float32(candidate).astype(np.float64) for candidate in candidates
  ]
  best = min(
      candidates, key=lambda matrix: error_of(matrix, pattern, error=error)
  )
  return tuple(map(tuple, best.tolist()))


def error_of(
    matrix: np.ndarray, pattern: patterns.ParticipationPattern, *, error: str
) -> float:
  """Returns sqrt(S2 V) of a lower-triangular C, S2 that of the accountant."""
  decoder = np.cumsum(_inverse(np.asarray(matrix, np.float64)), axis=0)
  variances = np.sum(decoder**2, axis=1)
  variance = np.max(variances) if error == 'max' else np.mean(variances)
  squared_sensitivity = matrix_sensitivity.squared_sensitivity(matrix, pattern)
  return float(np.sqrt(squared_sensitivity * variance))


def _minimized(start: np.ndarray, error: str) -> np.ndarray:
  """Returns a local minimum over the entries that are not 0 in `start`."""
  free = np.nonzero(np.tril(start))
  matrix = start
  for order, iterations in _ORDERS[error]:
    found = toeplitz_objective.local_minimum(
        _log_error,
        _normalized(matrix)[free],
        args=(free, len(start), order),
        max_iterations=iterations,
    )
    matrix = np.zeros_like(start)
    matrix[free] = found
  return _normalized(matrix)


def _log_error(entries, free, num_rounds, order):
  """Returns log(V) / 2 of the matrix with columns of norm 1, and gradient."""
  raw = np.zeros((num_rounds, num_rounds))
  raw[free] = entries
  # A line search may try a diagonal of 0, where there is no inverse.
  if np.any(np.diag(raw) <= 0):
    return np.inf, np.zeros_like(entries)
  norms = linalg.norm(raw, axis=0)
  matrix = raw / norms
  inverse = _inverse(matrix)
  decoder = np.cumsum(inverse, axis=0)
  variances = np.sum(decoder**2, axis=1)
  largest = np.max(variances)
  powers = (variances / largest) ** order
  value = 0.5 * (np.log(largest) + np.log(np.mean(powers)) / order)
  shares = powers / np.sum(powers) / variances
  # B = A C^-1 changes by -B (change of C) C^-1.
  by_decoder = shares[:, np.newaxis] * decoder
  by_matrix = -(decoder.T @ by_decoder) @ inverse.T
  by_matrix -= matrix * np.sum(matrix * by_matrix, axis=0)
  return value, (by_matrix / norms)[free]


def _inverse(matrix: np.ndarray) -> np.ndarray:
  """Returns C^-1 of a lower-triangular C with a positive diagonal."""
  return linalg.lapack.dtrtri(matrix, lower=1)[0]


def _normalized(matrix: np.ndarray) -> np.ndarray:
  """Returns the matrix with columns divided by their norms."""
  return matrix / linalg.norm(matrix, axis=0)
