# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Squared sensitivity of a general lower-triangular C, one tree.

A client that takes part in a set S of rounds with vectors u_i, |u_i| <= 1,
moves C x by sum_i C e_i u_i', whose squared norm is sum over i, j in S of
X_ij <u_i, u_j> with X = C' C. S2 is the largest such value over allowed sets
and vectors. Equal vectors attain the sum of X_ij over S, so this is a lower
bound for every allowed S; and |<u_i, u_j>| <= 1 makes the sum of |X_ij| over S
an upper bound for that set. Over all sets with gap b and at most k rounds:

*By rows.* For i in S let w_i be the largest sum of |X_ij| over j in S' among
allowed sets S' that contain i. S is one of these, so

  sum over i, j in S of |X_ij| <= sum over i in S of w_i <= max over S of that.

Both maxima are over sets of linear weights, which a dynamic programme over
rounds finds. This is the bound of arXiv:2306.08153, but that one does not ask
S' to contain i. If columns at least b apart are orthogonal, as with at most b
bands, then w_i = X_ii and the bound is S2.

*By envelope.* Let p_1 < p_2 < ... be the rounds of S, 0-based. Then
p_m >= (m - 1) b and p_l - p_m >= (l - m) b, so |X(p_m, p_l)| is at most the
largest |X_ij| with i >= (m - 1) b and j - i >= (l - m) b. Summing that over all
m, l <= k that fit bounds every S at once. If X is non-negative and never grows
when i or j - i does, as for a non-increasing Toeplitz C, the bound is S2.

The smaller of the two is returned. It is exact if equal vectors attain it in
one of the sets that the bounds single out; `is_exact` says so.
"""

from collections.abc import Sequence

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns

# Attained up to rounding of sums in float64.
_ROUNDING = 1e-12


def squared_sensitivity(
    matrix: Sequence[Sequence[float]], pattern: patterns.ParticipationPattern
) -> float:
  """Returns S2 of a whole run without restarts, in squared clip norms.

  For zero-out adjacency. *Exact* where `is_exact` says so, in particular for
  one participation, for a fixed order if the inner products of columns are
  non-negative, and where columns a gap apart are orthogonal. Otherwise an
  *upper bound*.

  Args:
    matrix: C, lower triangular, of at least `pattern.num_rounds` rounds; only
      the first `num_rounds` rows and columns matter.
    pattern: Which rounds one client may take part in.
  """
  matrix = _leading_block(matrix, pattern)
  return _bounds(matrix.T @ matrix, pattern)[0]


def squared_sensitivity_by_round(
    matrix: Sequence[Sequence[float]], pattern: patterns.ParticipationPattern
) -> np.ndarray:
  """Returns S2 of a run that stops after round t, for t = 1..num_rounds.

  Entry t - 1 is `squared_sensitivity` of `pattern.truncated(t)`, or a smaller
  upper bound if that of a longer run is smaller, as only happens where some
  X_ij are negative. Shape [num_rounds]; the entries never decrease.

  Args:
    matrix: C, as above.
    pattern: Which rounds one client may take part in.
  """
  matrix = _leading_block(matrix, pattern)
  by_round = []
  gram = np.zeros_like(matrix)
  for stop in range(1, pattern.num_rounds + 1):
    row = matrix[stop - 1]
    gram += np.outer(row, row)
    by_round.append(_bounds(gram[:stop, :stop], pattern.truncated(stop))[0])
  # A longer run contains the shorter, so its bound holds for that as well.
  return np.minimum.accumulate(by_round[::-1])[::-1]


def is_exact(
    matrix: Sequence[Sequence[float]], pattern: patterns.ParticipationPattern
) -> bool:
  """Returns whether a client is known that attains `squared_sensitivity`.

  Args:
    matrix: C, as above.
    pattern: Which rounds one client may take part in.
  """
  matrix = _leading_block(matrix, pattern)
  upper, lower = _bounds(matrix.T @ matrix, pattern)
  return upper <= lower * (1.0 + _ROUNDING)


def squared_response(
    matrix: Sequence[Sequence[float]], rounds: Sequence[int]
) -> float:
  """Returns S2 of a client that takes part in exactly the given rounds.

  *Exact* if the columns of these rounds have non-negative inner products,
  otherwise the *upper bound* sum of |X_ij|.

  Args:
    matrix: C, lower triangular; its size is the number of rounds of the run.
    rounds: Distinct rounds, counted from 1.
  """
  columns = np.asarray(matrix, np.float64)[:, np.asarray(rounds, int) - 1]
  return float(np.abs(columns.T @ columns).sum())


def _leading_block(matrix, pattern) -> np.ndarray:
  patterns.check(pattern)
  matrix = np.asarray(matrix, np.float64)
  n = pattern.num_rounds
  if matrix.ndim != 2 or min(matrix.shape) < n:
    raise _checks.ArgumentError(
        'matrix',
        f'an array of shape {matrix.shape}',
        f'a square one of at least {n} rounds',
    )
  matrix = matrix[:n, :n]
  if not np.all(np.isfinite(matrix)) or np.any(np.triu(matrix, 1)):
    raise _checks.ArgumentError(
        'matrix', matrix, 'finite numbers, zeros above the diagonal'
    )
  return matrix


def _bounds(gram: np.ndarray, pattern) -> tuple[float, float]:
  """Returns an upper bound on S2 and a value that some client attains."""
  if isinstance(pattern, patterns.FixedOrderPattern):
    return _fixed_order(gram, pattern.rounds_per_epoch)
  if isinstance(pattern, patterns.OncePerTreePattern):
    worst = float(np.diag(gram).max())
    return worst, worst
  if not isinstance(pattern, patterns.MinSeparationPattern):
    raise TypeError(
        f'{type(pattern).__name__} has no rule for its squared sensitivity.'
    )
  gap, most = pattern.min_index_gap, pattern.max_participations
  by_rows, worst_set = _row_bound(np.abs(gram), gap, most)
  tight = np.arange(most) * gap
  lower = max(gram[np.ix_(s, s)].sum() for s in (worst_set, tight))
  if most == 1:
    return by_rows, float(lower)
  by_envelope = _envelope_bound(np.abs(gram), tight)
  return min(by_rows, by_envelope), float(lower)


def _fixed_order(gram: np.ndarray, rounds_per_epoch: int):
  upper, lower = 0.0, 0.0
  for batch in range(min(rounds_per_epoch, len(gram))):
    among = gram[batch::rounds_per_epoch, batch::rounds_per_epoch]
    upper = max(upper, float(np.abs(among).sum()))
    lower = max(lower, float(among.sum()))
  return upper, lower


def _row_bound(magnitudes: np.ndarray, gap: int, most: int):
  """Returns the bound by rows, and the set of rounds it is the sum over."""
  diagonal = np.diag(magnitudes)
  rounds = np.arange(len(magnitudes))
  distance = np.abs(rounds[:, np.newaxis] - rounds)
  # Row i chooses at most k - 1 rounds besides i, none of them too close to i.
  others = np.where(distance < gap, 0.0, magnitudes)
  weights = diagonal + _largest_sums(others, gap, most - 1)
  return _largest_set(weights, gap, most)


def _largest_sums(weights: np.ndarray, gap: int, most: int) -> np.ndarray:
  """Returns the largest sum over allowed sets of every row of weights >= 0."""
  if gap == 1:
    ordered = np.sort(weights, axis=1)
    return ordered[:, max(ordered.shape[1] - most, 0) :].sum(axis=1)
  # best[i][:, q] is the largest sum over rounds i, i + 1, ... with q of them.
  n = weights.shape[1]
  best = {n + i: np.zeros((len(weights), most + 1)) for i in range(gap)}
  for i in reversed(range(n)):
    best[i] = best[i + 1].copy()
    taken = weights[:, i, np.newaxis] + best.pop(i + gap)[:, :-1]
    np.maximum(best[i][:, 1:], taken, out=best[i][:, 1:])
  return best[0][:, -1]


def _largest_set(weights: np.ndarray, gap: int, most: int):
  """Returns the largest sum over allowed sets, and the set that has it."""
  n = len(weights)
  best = np.zeros((n + gap, most + 1))
  for i in reversed(range(n)):
    best[i] = best[i + 1]
    taken = weights[i] + best[i + gap, :-1]
    best[i, 1:] = np.maximum(best[i, 1:], taken)
  chosen, i, left = [], 0, most
  while i < n and left:
    if best[i, left] > best[i + 1, left]:
      chosen.append(i)
      i, left = i + gap, left - 1
    else:
      i += 1
  return float(best[0, most]), np.array(chosen, int)


def _envelope_bound(magnitudes: np.ndarray, tight: np.ndarray) -> float:
  """Returns the bound by envelope; `tight` is the set 0, b, 2 b, ..."""
  n = len(magnitudes)
  rounds = np.arange(n)
  # Entry [i, d] is |X(i, i + d)|, then the largest with no smaller i or d.
  later = rounds[:, np.newaxis] + rounds
  by_distance = np.where(
      later < n, magnitudes[rounds[:, np.newaxis], np.minimum(later, n - 1)], 0
  )
  envelope = np.maximum.accumulate(by_distance[::-1, ::-1], axis=0)
  envelope = np.maximum.accumulate(envelope, axis=1)[::-1, ::-1]
  total = 0.0
  for m, first in enumerate(tight):
    distances = tight[m:] - first
    row = envelope[first, distances]
    # Every pair counts twice, the round with itself once.
    total += float(2.0 * row.sum() - row[0])
  return total
