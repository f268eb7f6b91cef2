# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Coefficients of Toeplitz, banded and banded-inverse noise for a setting.

All three minimise sqrt(S2 V) of `toeplitz_algebra` by L-BFGS with hand-written
gradients, starting at the square root of the prefix sum. They differ in the
free parameters:

* banded: the coefficients c_1..c_{p-1} of C, each in [0, 1].
* Toeplitz: all of c, if non-negative coefficients suffice for an exact S2 (one
  participation, fixed order). Otherwise the decrements of c, which are
  positive, so that c stays non-negative and non-increasing.
* banded inverse: first the second differences of log e, where e = cumsum(d) and
  d are the p coefficients of C^-1, then d itself. If log e is convex and e does
  not grow, then the series 1 / e has a positive first coefficient and no other
  positive one (Kaluza, 1928), and so has d. So c = 1 / d is non-negative. Also
  c - shift(c) = 1 / e, so c does not increase. In the search over d, c may
  increase.

Every result is the best of a few candidates, including the square root, by the
error that the accountant computes after rounding to float32. *Heuristic*: the
optimum is not proven. Starting points are fixed, so results are reproducible.
"""

from collections.abc import Iterable
import functools
from typing import Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

# With fewer bands, the square root is closer to the optimum than the best
# bands.
_FEW_BANDS = 16
# A positive number that starts at s may range from s e^-20 to s e^20.
_LOG_RANGE = 20.0

Coefficients = tuple[float, ...]


@functools.lru_cache(maxsize=32)
def optimize_banded(
    pattern: patterns.ParticipationPattern,
    *,
    num_bands: int,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
) -> Coefficients:
  """Returns coefficients c_0 = 1, .., c_{p-1} of a banded C with small error.

  *Heuristic*, never worse than the square root cut off at p bands. The result
  has min(p, rounds per tree) numbers, rounded to float32.

  Args:
    pattern: Rounds in which one client may take part.
    num_bands: Number of bands p. It is at most the `min_index_gap` if a client
      may be in a tree several times.
    error: Error to minimise: 'max' or 'mean', see `toeplitz_algebra`.
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, `None` for one tree.

  Raises:
    ArgumentError: If a client may be in a tree several times, and `num_bands`
      is above the `min_index_gap`.
  """
  _checks.integer_at_least(1, num_bands=num_bands)
  search = _Search(pattern, error, workload, restart_every)
  n, gap, most = search.setting
  if most > 1 and num_bands > gap:
    raise _checks.ArgumentError(
        'num_bands',
        num_bands,
        f'at most min_index_gap, {gap}: with more bands two participations of'
        ' one client would overlap',
    )
  bands = min(num_bands, n)
  root = toeplitz_algebra.square_root_coefficients(bands)
  best = search.best((root, search.bands_from(root)))
  return tuple(best[:bands].tolist())


@functools.lru_cache(maxsize=32)
def optimize_toeplitz(
    pattern: patterns.ParticipationPattern,
    *,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
) -> Coefficients:
  """Returns coefficients c_0 = 1, .., c_{n-1} of a C with small error.

  *Heuristic*. The error is at most the error of the square root, and of the
  local minimum with as many bands as `min_index_gap` allows. The squared
  sensitivity of the result is known exactly. The result has one float32 number
  per round of a tree.

  Args:
    pattern: Rounds in which one client may take part.
    error: Error to minimise: 'max' or 'mean', see `toeplitz_algebra`.
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, `None` for one tree.
  """
  search = _Search(pattern, error, workload, restart_every)
  n, gap, most = search.setting
  root = toeplitz_algebra.square_root_coefficients(n)
  candidates = [root]
  if most == 1 or isinstance(pattern, patterns.FixedOrderPattern):
    candidates.append(search.bands_from(root))
  if most > 1:
    banded = np.pad(search.bands_from(root[:gap]), (0, n - min(gap, n)))
    start = root if gap < _FEW_BANDS else np.minimum.accumulate(banded)
    candidates += [banded, search.non_increasing_from(start)]
  return tuple(search.best(candidates).tolist())


@functools.lru_cache(maxsize=32)
def optimize_banded_inverse(
    pattern: patterns.ParticipationPattern,
    *,
    num_bands: int,
    error: str = 'max',
    workload: Optional[workloads.Workload] = None,
    restart_every: Optional[int] = None,
) -> Coefficients:
  """Returns coefficients d_0 = 1, .., d_{p-1} of a C^-1 with small error.

  *Heuristic*, never worse than the inverse square root cut off at p
  coefficients. The result has min(p, rounds per tree) numbers, rounded to
  float32.

  Args:
    pattern: Rounds in which one client may take part.
    num_bands: Number of bands p: how many draws a round combines.
    error: Error to minimise: 'max' or 'mean', see `toeplitz_algebra`.
    workload: Map from the noised sums of the rounds to the model, see
      `workloads`. Default: the prefix sum.
    restart_every: Number of rounds per tree, `None` for one tree.
  """
  _checks.integer_at_least(1, num_bands=num_bands)
  search = _Search(pattern, error, workload, restart_every)
  bands = min(num_bands, search.setting.num_rounds)
  root = toeplitz_algebra.inverse_square_root_coefficients(bands)
  convex = search.log_convex_from_root(bands)
  candidates = (root, convex, search.inverse_from(convex))
  return tuple(search.best(candidates, of_inverses=True)[:bands].tolist())


class _Search:
  """Minimises the error in one setting over parameters of a mechanism.

  Attributes:
    setting: Tree and the limits on participation.
  """

  def __init__(self, pattern, error, workload, restart_every):
    self.setting = toeplitz_algebra.tree_setting(
        pattern, restart_every=restart_every
    )
    self._objective = toeplitz_algebra.Objective(
        self.setting, error=error, workload=workload
    )
    self._run = dict(pattern=pattern, restart_every=restart_every)

  def bands_from(self, start: np.ndarray) -> np.ndarray:
    """Returns a local minimum over c_1, .. in [0, 1], shaped like `start`."""

    def function(free):
      value, gradient = self._by_column(np.concatenate((np.ones(1), free)))
      return value, gradient[1 : len(start)]

    bounds = [(0.0, 1.0)] * (len(start) - 1)
    found = toeplitz_algebra.local_minimum(function, start[1:], bounds=bounds)
    return np.concatenate((np.ones(1), found))

  def non_increasing_from(self, start: np.ndarray) -> np.ndarray:
    """Returns a local minimum over all c with positive decrements."""
    root = toeplitz_algebra.square_root_coefficients(len(start))
    # Where the start is constant, a decrement of 0 could never grow.
    scales = np.maximum(
        _decrements(start), 1e-2 * _decrements(root)
    )

    def column(logarithms):
      return np.cumsum((scales * np.exp(logarithms))[::-1])[::-1]

    def function(logarithms):
      value, gradient = self._by_column(column(logarithms))
      return value, np.cumsum(gradient) * scales * np.exp(logarithms)

    bounds = [(-_LOG_RANGE, _LOG_RANGE)] * len(start)
    found = column(
        toeplitz_algebra.local_minimum(
            function, np.zeros(len(start)), bounds=bounds
        )
    )
    return found / found[0]

  def log_convex_from_root(self, num_bands: int) -> np.ndarray:
    """Returns a local minimum over d whose cumulative sum e is log-convex.

    The free parameters are s_1, .., s_{p-1} > 0, with log(e_{j-1} / e_j) = s_j
    + s_{j+1} + .. + s_{p-1}. The search starts at the inverse square root.
    """
    j = np.arange(1, num_bands)
    scales = _decrements(np.log(2 * j / (2 * j - 1)))

    def inverse(logarithms):
      ratios = np.cumsum((scales * np.exp(logarithms))[::-1])[::-1]
      sums = np.exp(-np.concatenate(([0.0], np.cumsum(ratios))))
      return np.diff(sums, prepend=0.0), sums

    def function(logarithms):
      values, sums = inverse(logarithms)
      value, gradient = self._by_inverse(values)
      by_log_sums = _decrements(gradient[:num_bands]) * sums
      by_ratios = -np.cumsum(by_log_sums[::-1])[::-1][1:]
      return value, np.cumsum(by_ratios) * scales * np.exp(logarithms)

    bounds = [(-_LOG_RANGE, _LOG_RANGE)] * (num_bands - 1)
    found = toeplitz_algebra.local_minimum(
        function, np.zeros(num_bands - 1), bounds=bounds
    )
    return inverse(found)[0]

  def inverse_from(self, start: np.ndarray) -> np.ndarray:
    """Returns a local minimum over d_1..d_{p-1}.

    The values are non-positive, which makes c non-negative. If a client takes
    part only once, signs do not matter and the values may have any sign.
    """

    def function(free):
      value, gradient = self._by_inverse(np.concatenate((np.ones(1), free)))
      return value, gradient[1 : len(start)]

    largest = 1.0 if self.setting.max_participations == 1 else 0.0
    bounds = [(-1.0, largest)] * (len(start) - 1)
    found = toeplitz_algebra.local_minimum(function, start[1:], bounds=bounds)
    return np.concatenate((np.ones(1), found))

  def best(
      self, candidates: Iterable[np.ndarray], *, of_inverses: bool = False
  ) -> np.ndarray:
    """Returns the c (or d) of least error, rounded to float32, shape [n].

    Args:
      candidates: Series c, or d.
      of_inverses: Whether the candidates are series d of C^-1.
    """

    def error(values):
      pair = values, self._objective.series_inverse(values)
      return toeplitz_algebra.accounted_error(
          self._objective, *(pair[::-1] if of_inverses else pair), **self._run
      )

    return min(self._rounded(candidates), key=error)

  def _rounded(self, candidates) -> list[np.ndarray]:
    return [
        self._full(np.asarray(candidate, np.float32).astype(np.float64))
        for candidate in candidates
    ]

  def _full(self, values: np.ndarray) -> np.ndarray:
    return toeplitz_algebra.first(values, self.setting.num_rounds)

  def _by_column(self, column: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the logarithm of the error and its gradient by c."""
    column = self._full(column)
    inverse = self._objective.series_inverse(column)
    value, by_c, by_d = self._objective.log_error(column, inverse)
    return value, by_c + self._objective.through_inverse(inverse, by_d)

  def _by_inverse(self, inverse: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the logarithm of the error and its gradient by d."""
    inverse = self._full(inverse)
    column = self._objective.series_inverse(inverse)
    value, by_c, by_d = self._objective.log_error(column, inverse)
    return value, by_d + self._objective.through_inverse(column, by_c)


def _decrements(values: np.ndarray) -> np.ndarray:
  """Returns v_j - v_{j+1} for every j, with 0 after the last value."""
  return -np.diff(values, append=0.0)
