# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toeplitz noise without structure: the least error, and the most memory.

C is lower-triangular Toeplitz with one coefficient per round of a tree. From
C x = z follows the recursion

    x_t = z_t - c_1 x_{t-1} - c_2 x_{t-2} - ...,

which needs the noise of all rounds of the tree so far. Use it for short runs,
and as what banded and BLT noise are compared with.
"""

import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.mechanisms.matrix import parameters
from tff_dp.mechanisms.matrix import toeplitz_algebra
from tff_dp.mechanisms.matrix import toeplitz_mechanism


def next_noise(coefficients, buffers, round_in_tree, operations):
  """Returns (noise, buffers) of the recursion above.

  Args:
    coefficients: c_0 = 1, c_1, ..., one more than there are buffers.
    buffers: Noise of the last rounds, newest first, zeros before round 1.
    round_in_tree: Counts from 1.
    operations: Draws of this tree, and what to compute with.
  """
  noise = operations.combine(
      (1.0, *(-c for c in coefficients[1 : len(buffers) + 1])),
      (operations.draw(0, round_in_tree - 1), *buffers),
  )
  # A shift by one is a matter of names; no vector is moved.
  return noise, (noise, *buffers)[: len(buffers)]


@dataclasses.dataclass(frozen=True)
class Toeplitz(toeplitz_mechanism.ToeplitzMechanism):
  """Public description of Toeplitz noise.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    coefficients: First column of C, c_0 = 1, rounded to float32; at least as
      many as a tree has rounds, of which more are not used.
    restart_every: Rounds per tree, or `None` for one tree over all rounds.
  """

  num_rounds: int
  coefficients: tuple[float, ...]
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  def __post_init__(self):
    self._check()
    coefficients = parameters.rounded(coefficients=self.coefficients)
    parameters.check_leading_one(coefficients=coefficients)
    if len(coefficients) < self.rounds_per_tree:
      raise _checks.ArgumentError(
          'coefficients',
          f'{len(coefficients)} numbers',
          f'one for each of the {self.rounds_per_tree} rounds of a tree; for'
          ' fewer use Banded',
      )
    object.__setattr__(self, 'coefficients', coefficients)
    self._check_growth(coefficients=coefficients)

  @classmethod
  def square_root(
      cls, num_rounds: int, *, restart_every: Optional[int] = None
  ) -> 'Toeplitz':
    """Returns C = B = the square root of the prefix sum (arXiv:2202.11205)."""
    _checks.integer_at_least(1, num_rounds=num_rounds)
    _checks.optional_integer_at_least(1, restart_every=restart_every)
    n = min(restart_every or num_rounds, num_rounds)
    return cls(
        num_rounds,
        tuple(toeplitz_algebra.square_root_coefficients(n).tolist()),
        restart_every=restart_every,
    )

  @classmethod
  def optimized(
      cls,
      participation: Any,
      *,
      error: str = 'max',
      workload=None,
      restart_every: Optional[int] = None,
  ) -> 'Toeplitz':
    """Returns coefficients with small error for a participation.

    *Heuristic*: S2 of what comes back is computed like any other's.

    Args:
      participation: A schedule or a participation pattern.
      error: Minimises sqrt(S2 * max_t Var) for 'max', of the mean for 'mean'.
      workload: What the server makes of the sums; the prefix sum by default.
      restart_every: Rounds per tree, or `None` for one tree.
    """
    # Slow to load, and rarely needed. pylint: disable=g-import-not-at-top
    from tff_dp.mechanisms.matrix import toeplitz_optimization

    pattern = parameters.pattern_of(participation)
    coefficients = toeplitz_optimization.optimize_toeplitz(
        pattern, error=error, workload=workload, restart_every=restart_every
    )
    return cls(pattern.num_rounds, coefficients, restart_every=restart_every)

  @property
  def name(self) -> str:
    return 'toeplitz'

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.first(self.coefficients, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.inverse(self.column(n), n)

  def initialize(self, zeros):
    return (zeros,) * (self.rounds_per_tree - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    return next_noise(self.coefficients, buffers, round_in_tree, operations)
