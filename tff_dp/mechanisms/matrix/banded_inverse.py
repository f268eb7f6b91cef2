# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Banded-inverse noise: a moving sum of the last few draws.

C^-1 has p bands, d_0 = 1, ..., d_{p-1}, so the noise is a finite filter,

    x_t = z_t + d_1 z_{t-1} + ... + d_{p-1} z_{t-p+1},

and needs no state at all, because past draws can be drawn again from their
keys. C itself is dense. With the first coefficients of the series sqrt(1 - x)
as d_j, this is BISR (arXiv:2505.12128).
"""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra
from tff_dp.mechanisms.matrix import toeplitz_optimization


@dataclasses.dataclass(frozen=True)
class BandedInverse(toeplitz.ToeplitzMechanism):
  """Public description of banded-inverse noise.

  The noise of a tree is C^-1 z, where z holds its draws. C^-1 has p bands, with
  the coefficients d_0, ..., d_{p-1}. The sensitivity comes from the
  coefficients of C, which are the coefficients of the series 1 / d(x) with d(x)
  = sum_j d_j x^j. It is exact if the coefficients of C are non-negative and
  never increase, as for `square_root`.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    inverse_coefficients: Coefficients d_0 = 1, ..., d_{p-1}, rounded to
      float32.
    stores_draws: Whether the last p - 1 draws are kept. A round then draws
      once. Otherwise a round draws up to p times and keeps nothing. The noise
      is the same.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
  """

  num_rounds: int
  inverse_coefficients: tuple[float, ...]
  stores_draws: bool = False
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'banded-inverse'

  def __post_init__(self):
    self._check()
    _checks.one_of((False, True), stores_draws=self.stores_draws)
    coefficients = mechanism.rounded(
        inverse_coefficients=self.inverse_coefficients
    )
    mechanism.check_leading_one(inverse_coefficients=coefficients)
    object.__setattr__(self, 'inverse_coefficients', coefficients)
    self._check_growth(inverse_coefficients=coefficients)

  @classmethod
  def square_root(
      cls,
      num_rounds: int,
      num_bands: int,
      *,
      stores_draws: bool = False,
      restart_every: Optional[int] = None,
  ) -> 'BandedInverse':
    """Returns BISR, the banded inverse square root.

    C^-1 has the first bands of the inverse of the prefix sum's square root.

    Args:
      num_rounds: Horizon T.
      num_bands: Number of bands of C^-1: how many draws a round combines.
      stores_draws: Whether the last draws are kept.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
    _checks.integer_at_least(1, num_bands=num_bands)
    coefficients = toeplitz_algebra.inverse_square_root_coefficients(num_bands)
    return cls(
        num_rounds,
        tuple(coefficients.tolist()),
        stores_draws=stores_draws,
        restart_every=restart_every,
    )

  @classmethod
  def optimized(
      cls,
      participation: Any,
      num_bands: int,
      *,
      error: str = 'max',
      workload=None,
      stores_draws: bool = False,
      restart_every: Optional[int] = None,
  ) -> 'BandedInverse':
    """Returns a mechanism with small error for a participation.

    *Heuristic*. The squared sensitivity S2 of the result is computed as for any
    other mechanism.

    Args:
      participation: A schedule or a participation pattern.
      num_bands: Number of draws that a round combines.
      error: Error to minimise: sqrt(S2 V), where V is the largest ('max') or
        the mean ('mean') variance of the model's noise over the rounds.
      workload: Map from the noised sums of the rounds to the model, see
        `workloads`. Default: the prefix sum.
      stores_draws: Whether the last draws are kept.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
    pattern = mechanism.pattern_of(participation)
    coefficients = toeplitz_optimization.optimize_banded_inverse(
        pattern,
        num_bands=num_bands,
        error=error,
        workload=workload,
        restart_every=restart_every,
    )
    return cls(
        pattern.num_rounds,
        coefficients,
        stores_draws=stores_draws,
        restart_every=restart_every,
    )

  @property
  def num_bands(self) -> int:
    """Number of bands p of C^-1, at most the rounds of a tree."""
    return min(len(self.inverse_coefficients), self.rounds_per_tree)

  @property
  def rounds_remembered(self) -> int:
    """p - 1: the noise of a round combines its draw and the last p - 1 draws.
    """
    return self.num_bands - 1

  @property
  def redraws(self) -> bool:
    return not self.stores_draws and self.num_bands > 1

  @property
  def draws_per_round(self) -> float:
    """1 if past draws are kept, else the mean of min(t, p) over rounds t."""
    if self.stores_draws:
      return 1.0
    rounds = np.arange(1, self.rounds_per_tree + 1)
    return float(np.mean(np.minimum(rounds, self.num_bands)))

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.inverse(self.inverse_coefficients, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.first(self.inverse_coefficients, n)

  def initialize(self, zeros):
    return (zeros,) * (self.num_bands - 1) if self.stores_draws else ()

  def next_noise(self, buffers, round_in_tree, operations):
    coefficients = self.inverse_coefficients[: self.num_bands]
    drawn = operations.draw(0, round_in_tree - 1)
    if self.stores_draws:
      noise = operations.combine(coefficients, (drawn, *buffers))
      # Shifting by one only renames the vectors. None is moved.
      return noise, (drawn, *buffers)[: len(buffers)]
    noise = drawn
    for lag, coefficient in enumerate(coefficients[1:], 1):
      noise = _with_earlier_draw(
          noise, coefficient, lag, round_in_tree, operations
      )
    return noise, buffers


def _with_earlier_draw(noise, coefficient, lag, round_in_tree, operations):
  """Returns the noise plus the draw of `lag` rounds ago, if there is one."""

  def add():
    earlier = operations.draw(0, round_in_tree - 1 - lag)
    return operations.combine((1.0, coefficient), (noise, earlier))

  return operations.cond(round_in_tree > lag, add, lambda: noise)
