# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""BLT noise: near-optimal error from a handful of buffers.

C is Toeplitz with c_0 = 1 and c_j = sum_i w_i th_i^(j-1), a sum of d
exponentials ("buffered linear Toeplitz", arXiv:2404.16706; for several
participations arXiv:2408.08868). Multiplying by C^-1 takes d buffers:

    x_t = z_t - sum_i w_i B_i,     then B_i <- th_i B_i + x_t,

which are zero where a tree begins.
"""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra

_MAX_BUFFERS = 8


@dataclasses.dataclass(frozen=True)
class Blt(toeplitz.ToeplitzMechanism):
  """Public description of BLT noise.

  In the stable domain w_i >= 0, 0 <= th_i <= 1, sum_i w_i <= 1, the
  coefficients of C are non-negative and never increase, so that the sensitivity
  is exact; and the eigenvalues of the recursion lie in [-1, 1], so that noise
  cannot grow exponentially. Nothing outside of it is accepted.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    weights: w_i of 1 to 8 buffers, rounded to float32 towards 0 (to the nearest
      number, they could add up to more than 1).
    decays: th_i, as many, rounded to float32.
    restart_every: Rounds per tree, or `None` for one tree over all rounds.
  """

  num_rounds: int
  weights: tuple[float, ...]
  decays: tuple[float, ...]
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'blt'

  def __post_init__(self):
    self._check()
    weights = mechanism.rounded_down(weights=self.weights)
    decays = mechanism.rounded(decays=self.decays)
    for name, values in (('weights', weights), ('decays', decays)):
      if len(values) > _MAX_BUFFERS:
        raise _checks.ArgumentError(
            name, values, f'at most {_MAX_BUFFERS} numbers, one per buffer'
        )
    if len(decays) != len(weights):
      raise _checks.ArgumentError(
          'decays', decays, f'as many numbers as weights, {len(weights)}'
      )
    if min(weights) < 0 or sum(weights) > 1:
      raise _checks.ArgumentError(
          'weights',
          weights,
          'numbers of at least 0 whose sum is at most 1: outside of that the'
          ' noise is not stable, or its sensitivity not known',
      )
    if min(decays) < 0 or max(decays) > 1:
      raise _checks.ArgumentError(
          'decays',
          decays,
          'numbers from 0 to 1: outside of that the noise is not stable, or'
          ' its sensitivity not known',
      )
    object.__setattr__(self, 'weights', weights)
    object.__setattr__(self, 'decays', decays)

  @classmethod
  def optimized(
      cls,
      participation: Any,
      *,
      num_buffers: int = 3,
      error: str = 'max',
      workload=None,
      restart_every: Optional[int] = None,
  ) -> 'Blt':
    """Returns buffers with small error for a participation.

    *Heuristic*: S2 of what comes back is computed like any other's.

    Args:
      participation: A schedule or a participation pattern.
      num_buffers: 1 to 8; 3 are nearly as good as any number.
      error: Minimises sqrt(S2 * max_t Var) for 'max', of the mean for 'mean'.
      workload: What the server makes of the sums; the prefix sum by default.
      restart_every: Rounds per tree, or `None` for one tree.
    """
    # Slow to load, and rarely needed. pylint: disable=g-import-not-at-top
    from tff_dp.mechanisms.matrix import blt_optimization

    _checks.integer_between(1, _MAX_BUFFERS, num_buffers=num_buffers)
    pattern = mechanism.pattern_of(participation)
    weights, decays = blt_optimization.optimize(
        pattern,
        num_buffers=num_buffers,
        error=error,
        workload=workload,
        restart_every=restart_every,
    )
    return cls(
        pattern.num_rounds, weights, decays, restart_every=restart_every
    )

  @property
  def num_buffers(self) -> int:
    """Vectors of the size of the model that the noise remembers."""
    return len(self.weights)

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.blt_coefficients(self.weights, self.decays, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.blt_inverse_coefficients(
        self.weights, self.decays, n
    )

  def initialize(self, zeros):
    return (zeros,) * self.num_buffers

  def next_noise(self, buffers, round_in_tree, operations):
    noise = operations.combine(
        (1.0, *(-weight for weight in self.weights)),
        (operations.draw(0, round_in_tree - 1), *buffers),
    )
    return noise, tuple(
        operations.combine((decay, 1.0), (buffer, noise))
        for decay, buffer in zip(self.decays, buffers, strict=True)
    )
