# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Lower-triangular Toeplitz matrices as power series of their first column.

The matrix with first column c_0, c_1, ... has the entry c_{i-j} in row i and
column j <= i. It stands for the series c(x) = sum_j c_j x^j: the product of two
such matrices belongs to the product of the series, and the first n coefficients
never depend on later ones. So every function here takes and returns a first
column, cut off or continued with zeros at `n` coefficients.

All arithmetic is float64.
"""

from collections.abc import Sequence

import numpy as np
from scipy import linalg
from scipy import signal


def first(coefficients: Sequence[float], n: int) -> np.ndarray:
  """Returns the first n coefficients, zeros where there are fewer."""
  coefficients = np.asarray(coefficients, np.float64)[:n]
  return np.pad(coefficients, (0, n - len(coefficients)))


def matrix(coefficients: Sequence[float], n: int) -> np.ndarray:
  """Returns the lower-triangular matrix itself, shape [n, n]."""
  return linalg.toeplitz(first(coefficients, n), np.zeros(n))


def square_root_coefficients(n: int) -> np.ndarray:
  """Returns the coefficients of 1 / sqrt(1 - x): the root of the prefix sum.

  c_0 = 1 and c_j = c_{j-1} (2j - 1) / (2j); positive and decreasing. The
  workload of prefix sums is 1 / (1 - x), and C = B is its root
  (arXiv:2202.11205).
  """
  j = np.arange(1, n)
  return np.concatenate(([1.0], np.cumprod((2 * j - 1) / (2 * j))))[:n]


def inverse_square_root_coefficients(n: int) -> np.ndarray:
  """Returns the coefficients of sqrt(1 - x).

  d_0 = 1 and d_j = d_{j-1} (2j - 3) / (2j); negative from j = 1 on.
  """
  j = np.arange(1, n)
  return np.concatenate(([1.0], np.cumprod((2 * j - 3) / (2 * j))))[:n]


def inverse(coefficients: Sequence[float], n: int) -> np.ndarray:
  """Returns the first n coefficients of 1 / c(x); c_0 must not be 0.

  This is the response of the recursive filter with denominator c to a unit
  impulse: d_t = ([t = 0] - sum_{j >= 1} c_j d_{t-j}) / c_0.
  """
  impulse = np.zeros(n)
  impulse[:1] = 1.0
  denominator = np.asarray(coefficients, np.float64)[:n]
  return signal.lfilter([1.0], denominator, impulse)


def blt_coefficients(
    weights: Sequence[float], decays: Sequence[float], n: int
) -> np.ndarray:
  """Returns c_0 = 1, c_j = sum_i w_i th_i^(j-1) (arXiv:2404.16706).

  Args:
    weights: Output weights w_i, shape [num_buffers].
    decays: Buffer decays th_i, shape [num_buffers].
    n: How many coefficients.
  """
  powers = _powers(np.asarray(decays, np.float64), n - 1)
  tail = powers @ np.asarray(weights, np.float64)
  return np.concatenate(([1.0], tail))[:n]


def blt_inverse_coefficients(
    weights: Sequence[float], decays: Sequence[float], n: int
) -> np.ndarray:
  """Returns the first n coefficients of 1 / c(x), c that of a BLT.

  The recursion of the buffers (x = z - w'B, B <- diag(th) B + x) gives
  d_j = -w' (diag(th) - 1 w')^(j-1) 1. Scaling the buffers by sqrt(w_i) makes
  the matrix symmetric, so with eigenpairs (l_m, v_m) of diag(th) - r r' for
  r = sqrt(w),

      d_0 = 1,   d_j = -sum_m (v_m . r)^2 l_m^(j-1).

  No term cancels another one's sign except by the sign of l_m, and every
  |l_m| <= 1 in the stable domain (0 <= th_i <= 1, w_i >= 0, sum w_i <= 1): the
  eigenvalues lie between min th_i - sum w_i and max th_i. Unlike a recursion
  over rounds, nothing is accumulated.
  """
  roots = np.sqrt(np.asarray(weights, np.float64))
  symmetric = np.diag(np.asarray(decays, np.float64)) - np.outer(roots, roots)
  eigenvalues, vectors = np.linalg.eigh(symmetric)
  tail = -_powers(eigenvalues, n - 1) @ (roots @ vectors) ** 2
  return np.concatenate(([1.0], tail))[:n]


def prefix_variances(
    inverse_coefficients: Sequence[float], n: int
) -> np.ndarray:
  """Returns Var(b_t) for t = 1..n, where C^-1 has the given first column.

  The noise of the prefix sum is A C^-1 z with A the workload of prefix sums,
  hence the running sum of squares of e = cumsum(d). Exact, at unit draws.
  """
  return np.cumsum(np.cumsum(first(inverse_coefficients, n)) ** 2)


def round_variances(
    inverse_coefficients: Sequence[float], n: int
) -> np.ndarray:
  """Returns Var([C^-1 z]_t) for t = 1..n: the running sum of d^2. Exact."""
  return np.cumsum(first(inverse_coefficients, n) ** 2)


def _powers(bases: np.ndarray, n: int) -> np.ndarray:
  """Returns bases^0 .. bases^(n-1), shape [n, len(bases)]; 0^0 is 1."""
  return bases[np.newaxis, :] ** np.arange(max(n, 0))[:, np.newaxis]
