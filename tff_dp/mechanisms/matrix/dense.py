# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense noise: any lower-triangular C, for short runs.

From C x = z follows, row by row,

    x_t = (z_t - sum_{j < t} C[t, j] x_j) / C[t, t].

That keeps the noise of all rounds so far and looks up a row of coefficients in
every round, so the horizon is limited. In return, rounds need not be treated
alike, and the matrix can be optimal for a fixed order of participation
(arXiv:2202.08312, arXiv:2211.06530).

The search minimises sqrt(S2 V) for prefix sums, V the largest or the mean
squared row norm of A C^-1. The columns of C are kept at norm 1, so S2 is the
number k of participations as long as two columns of one client never overlap:
all entries are free where a client takes part once, those of the first b
diagonals where it takes part b rounds apart (arXiv:2306.08153). It is L-BFGS
with gradients by hand, from the optimal banded Toeplitz matrix; the maximum is
approached by norms of rising order.

With one participation and the mean this problem is convex in C'C, and the local
minimum is the global one (cf. arXiv:2202.08312); otherwise *heuristic*.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import Any, Optional

import numpy as np
from scipy import linalg

from tff_dp import _checks
from tff_dp.accounting.sensitivity import matrix_sensitivity
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import toeplitz_algebra
from tff_dp.mechanisms.matrix import toeplitz_optimization

# Entries grow with the square, and the work of a step with the cube.
MAX_ROUNDS = 256
# Orders of the norm over rounds, 1 for the mean itself, with most iterations.
_ORDERS = {'mean': ((1, 500),), 'max': ((16, 150), (256, 150), (2048, 150))}

Rows = tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Dense(mechanism.Mechanism):
  """Public description of dense lower-triangular noise.

  Attributes:
    num_rounds: Horizon T, at most 256. The aggregator refuses round T + 1.
    matrix: C as rows, rounded to float32: square, zeros above the diagonal,
      positive on it. A shorter run uses its first rows and columns.
  """

  num_rounds: int
  matrix: tuple[tuple[float, ...], ...]
  # A restart would need no dense matrix: use one Dense per tree's rounds.
  restart_every: Optional[int] = dataclasses.field(default=None, init=False)
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'dense'

  def __post_init__(self):
    self._check()
    _checks.integer_between(1, MAX_ROUNDS, num_rounds=self.num_rounds)
    try:
      rows = [mechanism.rounded(matrix=row) for row in self.matrix]
    except TypeError as error:
      raise _checks.ArgumentError(
          'matrix', self.matrix, 'a list of rows of numbers'
      ) from error
    size = len(rows)
    if size < self.num_rounds or any(len(row) != size for row in rows):
      raise _checks.ArgumentError(
          'matrix',
          f'{size} rows of {sorted({len(row) for row in rows})} numbers',
          f'a square matrix of at least {self.num_rounds} rounds',
      )
    for t, row in enumerate(rows):
      if not row[t] > 0 or any(row[t + 1 :]):
        raise _checks.ArgumentError(
            f'matrix[{t}]',
            row,
            'a positive number on the diagonal and zeros behind it',
        )
    object.__setattr__(self, 'matrix', tuple(rows))
    with np.errstate(over='ignore', invalid='ignore'):
      largest = np.abs(self._inverse()).max()
    if not largest <= np.finfo(np.float32).max:
      raise _checks.ArgumentError(
          'matrix', self.matrix, 'a matrix whose inverse is finite in float32'
      )

  @classmethod
  def optimized(cls, participation: Any, *, error: str = 'max') -> 'Dense':
    """Returns a matrix with small error for a participation.

    *Heuristic*: S2 of what comes back is computed like any other's.

    Args:
      participation: A schedule or a participation pattern.
      error: Minimises sqrt(S2 * max_t Var) for 'max', of the mean for 'mean'.
    """
    pattern = mechanism.pattern_of(participation)
    _checks.integer_between(1, MAX_ROUNDS, num_rounds=pattern.num_rounds)
    matrix = optimize(pattern, error=error)
    return cls(pattern.num_rounds, matrix)

  def squared_sensitivity(
      self, pattern: patterns.ParticipationPattern
  ) -> float:
    return matrix_sensitivity.squared_sensitivity(
        self._array(), pattern.truncated(self.num_rounds)
    )

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    return matrix_sensitivity.squared_sensitivity_by_round(
        self._array(), pattern.truncated(self.num_rounds)
    )

  def sensitivity_is_exact(
      self, pattern: patterns.ParticipationPattern
  ) -> bool:
    return matrix_sensitivity.is_exact(
        self._array(), pattern.truncated(self.num_rounds)
    )

  @property
  def response_is_exact(self) -> bool:
    matrix = self._array()
    return bool(np.all(matrix.T @ matrix >= 0))

  def squared_response(self, rounds: Sequence[int]) -> float:
    """Returns S2 of a client that takes part in exactly these rounds.

    *Exact* if inner products of the columns are non-negative, else an *upper
    bound*.

    Args:
      rounds: Distinct rounds in 1..num_rounds.
    """
    return matrix_sensitivity.squared_response(
        self._array(),
        mechanism.checked_rounds(rounds, num_rounds=self.num_rounds),
    )

  @property
  def draws_per_round(self) -> float:
    return 1.0

  def initialize(self, zeros):
    return (zeros,) * (self.num_rounds - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    diagonal, *coefficients = operations.take(
        self._table(), round_in_tree - 1
    )
    drawn = operations.draw(0, round_in_tree - 1)
    total = operations.combine((1.0, *coefficients), (drawn, *buffers))
    noise = total / diagonal
    # A shift by one is a matter of names; no vector is moved.
    return noise, (noise, *buffers)[: len(buffers)]

  def round_variances(self) -> np.ndarray:
    return np.sum(self._inverse() ** 2, axis=1)

  def prefix_variances(self) -> np.ndarray:
    return np.sum(np.cumsum(self._inverse(), axis=0) ** 2, axis=1)

  def _array(self) -> np.ndarray:
    return np.array(self.matrix)[: self.num_rounds, : self.num_rounds]

  def _inverse(self) -> np.ndarray:
    return linalg.solve_triangular(
        self._array(), np.eye(self.num_rounds), lower=True
    )

  def _table(self) -> np.ndarray:
    """Returns a row per round: C[t, t], -C[t, t-1], ..., -C[t, 1], 0, ...

    In the order of the buffers, which are newest first.
    """
    matrix = self._array()
    table = np.zeros_like(matrix)
    for t, row in enumerate(matrix):
      table[t, 0] = row[t]
      table[t, 1 : t + 1] = -row[:t][::-1]
    return table


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
  _checks.one_of(toeplitz_algebra.ERRORS, error=error)
  _checks.integer_between(1, MAX_ROUNDS, num_rounds=pattern.num_rounds)
  n, gap, most = toeplitz_algebra.tree_setting(pattern)
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
    found = toeplitz_algebra.local_minimum(
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
