# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Squared sensitivity of Toeplitz mechanisms under a participation pattern.

A mechanism with lower-triangular Toeplitz C, first column c, adds C^-1 z to a
stream. So it releases a function of C x + z, where z is standard normal and x
is the stream. A client that takes part in a set S of rounds with vectors u_i,
|u_i| <= 1, moves C x by sum_i C e_i u_i'. The squared norm of that is

  sum over i, j in S of G_ij <u_i, u_j>,   G = C' C,

and S2 is the largest such value over allowed sets and vectors. After a restart
a new copy of C begins. The C of the run is then block diagonal, and columns of
different trees are orthogonal. So the value of S is the sum of the values of
its parts in the trees.

Four facts make the maximum cheap. They are about one tree of n rounds, and
rounds are 0-based.

1. One participation in a tree: |C e_i|^2 = sum_{l < n-i} c_l^2 is largest for i
   = 0, for any signs of c.
2. Disjoint columns: if c has at most as many bands as the index gap b, then
   G_ij = 0 for i != j in S. Signs and directions then do not matter, and c may
   be replaced by |c|. By fact 1, an earlier participation is worse.
3. c non-negative and non-increasing: all G_ij >= 0, so the worst u_i are equal.
   With d = j - i >= 0, G_ij = sum_{l < n-j} c_{l+d} c_l grows when j or d
   becomes smaller. The set s, s + b, s + 2b, ... has the smallest possible j
   and d for every pair, among sets with gap b and first round at least s. So it
   is the worst set of its size. It also ends first and so blocks the fewest
   rounds of the next tree. (For one tree: arXiv:2405.13763, theorem 2.)
4. Fixed order with B rounds per epoch, c non-negative: C x for the rounds i,
   i + B, ... is C x for the rounds 0, B, ..., moved down by i rows and cut off
   at n. So i = 0 is worst. The coefficients need not be non-increasing.

If none of these facts applies, c is replaced by |c| (fixed order) or by its
non-increasing envelope max_{i >= j} |c_i| (minimum separation). Both make every
|G_ij| at least as large as before, and |<u_i, u_j>| <= 1, so the result is an
*upper bound*. `is_exact` tells whether a fact applies.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns

# Coefficients from a solver or a series are non-increasing only up to rounding.
# The envelope is used in either case. This tolerance decides whether the result
# is called exact.
_ROUNDING = 1e-12


def squared_sensitivity(
    coefficients: Sequence[float] | np.ndarray,
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
) -> float:
  """Returns the squared sensitivity S2 of a whole run, in squared clip norms.

  For zero-out adjacency. *Exact* if `is_exact` is true, otherwise an *upper
  bound*. The rounds between two restarts are called a tree.

  Args:
    coefficients: First column of C, with an entry for each round of a tree. If
      there are fewer entries, zeros follow. Further entries are not used.
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree. `None` means one tree over the
      whole run.
  """
  column, kind = _prepared(coefficients, pattern, restart_every)
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  if not isinstance(pattern, patterns.MinSeparationPattern):
    return float(
        sum(_squares(column[:n], kind.gap, kind.most)[-1] for n in lengths)
    )
  if len(lengths) == 1:
    return float(_squares(column, kind.gap, kind.most)[-1])
  chain = _Chain(column, kind.gap, kind.most)
  for length in lengths:
    chain.append(length)
  return chain.value()


def squared_sensitivity_by_round(
    coefficients: Sequence[float] | np.ndarray,
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
) -> np.ndarray:
  """Returns S2 of a run that stops after round t, for t = 1..num_rounds.

  Entry t - 1 is `squared_sensitivity` of `pattern.truncated(t)` with the same
  restarts, and is exact or an upper bound in the same cases. The entries never
  decrease.

  Args:
    coefficients: First column of C.
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree. `None` means one tree over the
      whole run.

  Returns:
    A float64 array of shape [num_rounds], in squared clip norms.
  """
  column, kind = _prepared(coefficients, pattern, restart_every)
  by_round = np.concatenate(
      list(_by_round(column, kind, pattern, restart_every))
  )
  if not kind.is_exact:
    # A shorter first tree has a lower envelope, or none at all.
    for stop in range(1, len(column) + 1):
      by_round[stop - 1] = squared_sensitivity(
          coefficients, pattern.truncated(stop), restart_every=restart_every
      )
  return by_round


def is_exact(
    coefficients: Sequence[float] | np.ndarray,
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
) -> bool:
  """Returns whether `squared_sensitivity` is known to be attained.

  Rounding errors are ignored: coefficients count as non-increasing, or as
  non-negative, if changes of at most 1e-12 times the largest coefficient would
  make them so. For the arguments see `squared_sensitivity`.
  """
  return _prepared(coefficients, pattern, restart_every)[1].is_exact


class _Kind(NamedTuple):
  """The facts that decide how the worst case is found.

  Attributes:
    gap: Smallest difference of indices within a tree.
    most: Largest number of participations. For a minimum separation it is the
      number in the whole run, otherwise in one tree.
    is_exact: Whether the prepared column gives S2 itself and not a bound.
  """

  gap: int
  most: int
  is_exact: bool


def _prepared(
    coefficients, pattern, restart_every
) -> tuple[np.ndarray, _Kind]:
  """Returns the column to compute with, one number per round, and its `_Kind`.
  """
  _checks.optional_integer_at_least(1, restart_every=restart_every)
  patterns.check(pattern)
  length = min(restart_every or pattern.num_rounds, pattern.num_rounds)
  column = _first(coefficients, length)
  if not np.all(np.isfinite(column)):
    raise _checks.ArgumentError(
        'coefficients', coefficients, 'finite numbers only'
    )
  magnitudes = np.abs(column)
  if isinstance(pattern, patterns.OncePerTreePattern):
    return magnitudes, _Kind(1, 1, True)
  if isinstance(pattern, patterns.FixedOrderPattern):
    gap, most = min(pattern.rounds_per_epoch, length), length
  elif isinstance(pattern, patterns.MinSeparationPattern):
    gap = min(pattern.min_index_gap, pattern.num_rounds)
    most = pattern.max_participations
    if most == 1:
      return magnitudes, _Kind(1, 1, True)
  else:
    raise TypeError(
        f'{type(pattern).__name__} has no rule for its squared sensitivity.'
    )
  nonzero = np.flatnonzero(column)
  num_bands = nonzero[-1] + 1 if len(nonzero) else 0
  if num_bands <= gap:
    return magnitudes, _Kind(gap, most, True)
  tolerance = _ROUNDING * magnitudes.max()
  if isinstance(pattern, patterns.FixedOrderPattern):
    return magnitudes, _Kind(gap, most, bool(column.min() >= -tolerance))
  envelope = np.maximum.accumulate(magnitudes[::-1])[::-1]
  is_monotone = bool((envelope - column).max() <= tolerance)
  return envelope, _Kind(gap, most, is_monotone)


def _by_round(column, kind, pattern, restart_every):
  """Yields an array for each tree: S2 of a run that stops in it.

  The entries are for stops after 1, 2, ... rounds of the tree.
  """
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  if isinstance(pattern, patterns.MinSeparationPattern):
    chain = _Chain(column, kind.gap, kind.most)
    for length in lengths:
      yield chain.by_round(length)
      chain.append(length)
    return
  finished = 0.0
  for length in lengths:
    in_tree = _squares(column[:length], kind.gap, kind.most)[1:]
    yield finished + in_tree
    finished += in_tree[-1]


def _first(coefficients, length: int) -> np.ndarray:
  column = np.asarray(coefficients, np.float64)[:length]
  return np.pad(column, (0, length - len(column)))


def _squares(column: np.ndarray, gap: int, most: int) -> np.ndarray:
  """Returns squared norms, shape [n + 1]: entry t is of rows 0..t-1 of C x.

  Args:
    column: First column of C for n rounds.
    gap: Index gap: x is 1 in rounds 0, gap, 2 gap, ..., else 0.
    most: Largest number of ones in x.
  """
  if most == 1:
    return np.concatenate(([0.0], np.cumsum(column**2)))
  rows = -(-len(column) // gap)
  # Entry [r, i] is row r * gap + i. A later participation moves it down by one
  # r, so a running sum over r adds up all participations at once.
  padded = np.pad(column, (0, rows * gap - len(column))).reshape(rows, gap)
  response = np.cumsum(padded, axis=0)
  if most < rows:
    response[most:] -= response[:-most].copy()
  squares = response.ravel()[: len(column)] ** 2
  return np.concatenate(([0.0], np.cumsum(squares)))


class _Chain:
  """Trees in a row, under a gap and a cap that hold across them.

  The next tree depends on the past through two numbers: how many of its first
  rounds are still blocked, and how many participations are used up. `best[u,
  s]` is the largest S2 so far with at most u participations, if s rounds of the
  next tree are blocked. In a tree with q participations and s blocked rounds,
  the worst set is s, s + gap, ..., and it also ends first (fact 3 or 2 of the
  module docstring). So trying every q is enough. Exact for a column to which
  one of these facts applies.
  """

  def __init__(self, column: np.ndarray, gap: int, most: int):
    self._column = column
    self._gap = gap
    self._best = np.full((most + 1, gap), -np.inf)
    self._best[:, 0] = 0.0
    self._gains = functools.lru_cache(maxsize=2)(self._new_gains)

  def value(self) -> float:
    """Returns S2 of the trees so far."""
    return float(self._best[-1].max())

  def append(self, length: int) -> None:
    """Adds a tree."""
    gap, most = self._gap, len(self._best) - 1
    updated = np.full_like(self._best, -np.inf)
    for q, gains in enumerate(self._gains(length)):
      candidate = self._best[: most + 1 - q, : len(gains)] + gains
      # Blocked rounds s become s + q b - n, at least 0.
      spent = length - q * gap
      done = min(max(spent + 1, 0), len(gains))
      if done:
        updated[q:, 0] = np.maximum(
            updated[q:, 0], candidate[:, :done].max(axis=1)
        )
      if done < len(gains):
        rest = updated[q:, done - spent : len(gains) - spent]
        np.maximum(rest, candidate[:, done:], out=rest)
    self._best = updated

  def by_round(self, length: int) -> np.ndarray:
    """Returns S2 if the run stops after 1..length rounds of the next tree."""
    most = len(self._best) - 1
    result = np.full(length + 1, -np.inf)
    # A state that is also reachable with more participations left is skipped.
    looked_at = np.full(self._gap, -np.inf)
    for q in reversed(range(min(most, -(-length // self._gap)) + 1)):
      before = self._best[most - q]
      useful = np.flatnonzero(before > looked_at)
      if not len(useful):
        continue
      squares = np.zeros(length + 1)
      if q > 0:
        squares = _squares(self._column[:length], self._gap, q)
      for blocked in useful:
        start = min(blocked, length)
        candidate = before[blocked] + squares[: length + 1 - start]
        np.maximum(result[start:], candidate, out=result[start:])
        result[:start] = np.maximum(result[:start], before[blocked])
      looked_at = np.maximum(looked_at, before)
    return result[1:]

  def _new_gains(self, length: int) -> list[np.ndarray]:
    """Returns the values of S2 in one tree: `gains[q][s]`.

    Here q is the number of participations in the tree, and s the number of
    blocked rounds at its start. `gains[q]` ends before the first s for which
    the q-th participation would be beyond the tree.
    """
    column, gap = self._column[:length], self._gap
    gains = [np.zeros(gap)]
    fit = min(-(-length // gap), len(self._best) - 1)
    for q in range(1, fit + 1):
      fits = min(gap, length - (q - 1) * gap)
      squares = _squares(column, gap, q)
      gains.append(squares[length - np.arange(fits)])
    return gains
