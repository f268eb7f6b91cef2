# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Banded Toeplitz noise: a recursion over the last few rounds.

C has p bands, c_0 = 1, ..., c_{p-1}, and zeros below them, so

    x_t = z_t - c_1 x_{t-1} - ... - c_{p-1} x_{t-p+1}

(arXiv:2306.08153). If two participations of a client are at least p rounds
apart, the columns of C that they touch have no row in common: whatever the
signs of the coefficients, the squared sensitivity is exactly the sum of the
squared column norms. Cut off at p bands, the square root of the prefix sum is
close to optimal there (arXiv:2405.13763).
"""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra


@dataclasses.dataclass(frozen=True)
class Banded(toeplitz.ToeplitzMechanism):
  """Public description of banded Toeplitz noise.

  Keeps the noise of the last p - 1 rounds. Refuses a participation pattern in
  which a client may come back within a tree after fewer than p rounds.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    coefficients: c_0 = 1, ..., c_{p-1}, rounded to float32.
    restart_every: Rounds per tree, or `None` for one tree over all rounds.
  """

  num_rounds: int
  coefficients: tuple[float, ...]
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'banded'

  def __post_init__(self):
    self._check()
    coefficients = mechanism.rounded(coefficients=self.coefficients)
    mechanism.check_leading_one(coefficients=coefficients)
    object.__setattr__(self, 'coefficients', coefficients)
    self._check_growth(coefficients=coefficients)

  @classmethod
  def square_root(
      cls,
      num_rounds: int,
      num_bands: int,
      *,
      restart_every: Optional[int] = None,
  ) -> 'Banded':
    """Returns the first bands of the square root of the prefix sum."""
    _checks.integer_at_least(1, num_bands=num_bands)
    coefficients = toeplitz_algebra.square_root_coefficients(num_bands)
    return cls(
        num_rounds, tuple(coefficients.tolist()), restart_every=restart_every
    )

  @classmethod
  def optimized(
      cls,
      participation: Any,
      num_bands: int,
      *,
      error: str = 'max',
      workload=None,
      restart_every: Optional[int] = None,
  ) -> 'Banded':
    """Returns bands with small error for a participation.

    *Heuristic*: S2 of what comes back is computed like any other's.

    Args:
      participation: A schedule or a participation pattern.
      num_bands: How many bands; no more than the index gap, unless a client is
        in a tree only once.
      error: Minimises sqrt(S2 * max_t Var) for 'max', of the mean for 'mean'.
      workload: What the server makes of the sums; the prefix sum by default.
      restart_every: Rounds per tree, or `None` for one tree.
    """
    # Slow to load, and rarely needed. pylint: disable=g-import-not-at-top
    from tff_dp.mechanisms.matrix import toeplitz_optimization

    pattern = mechanism.pattern_of(participation)
    coefficients = toeplitz_optimization.optimize_banded(
        pattern,
        num_bands=num_bands,
        error=error,
        workload=workload,
        restart_every=restart_every,
    )
    return cls(pattern.num_rounds, coefficients, restart_every=restart_every)

  @property
  def num_bands(self) -> int:
    """Bands p, or the rounds of a tree if these are fewer."""
    return min(len(self.coefficients), self.rounds_per_tree)

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.first(self.coefficients, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.inverse(self.coefficients, n)

  def initialize(self, zeros):
    return (zeros,) * (self.num_bands - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    return toeplitz.next_noise(
        self.coefficients, buffers, round_in_tree, operations
    )

  def _check_pattern(self, pattern: patterns.ParticipationPattern) -> None:
    gap = _gap_in_tree(pattern)
    if gap is not None and self.num_bands > gap:
      raise _checks.ArgumentError(
          'num_bands',
          self.num_bands,
          f'at most {gap}, the min_index_gap of the participation, because'
          ' with more bands two participations of one client overlap and its'
          ' squared sensitivity is no sum over them any more',
      )


def _gap_in_tree(pattern: patterns.ParticipationPattern) -> Optional[int]:
  """Returns the index gap within a tree; `None` if a client is there once."""
  if isinstance(pattern, patterns.OncePerTreePattern):
    return None
  if isinstance(pattern, patterns.FixedOrderPattern):
    # Not `min_index_gap`: over a restart it is 1, but columns of different
    # trees have no row in common anyway.
    return pattern.rounds_per_epoch
  return None if pattern.max_participations == 1 else pattern.min_index_gap
