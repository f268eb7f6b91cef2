# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of Toeplitz mechanisms, and those that compute noise from C.

`Toeplitz` has one coefficient of C per round of a tree. It has the least error
and needs the most memory. Its noise x solves C x = z for the draws z, by the
recursion

    x_t = z_t - c_1 x_{t-1} - c_2 x_{t-2} - ...,

which needs the noise of all earlier rounds of the tree. Use it for short runs,
and as the reference for banded and BLT noise.

`Banded` has p coefficients followed by zeros, so the recursion needs the noise
of the last p - 1 rounds (arXiv:2306.08153). If two participations of a client
are at least p rounds apart, the columns of C for these rounds have no nonzero
row in common. Then for any signs of the coefficients, the squared sensitivity
is exactly the largest sum of squared column norms that a client can attain. In
this case, the square root of the prefix sum, cut off at p bands, is close to
optimal (arXiv:2405.13763).
"""

import abc
from collections.abc import Sequence
import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import toeplitz_algebra
from tff_dp.mechanisms.matrix import toeplitz_optimization

class ToeplitzMechanism(mechanism.Mechanism):
  """Geometry, sensitivity and variances of a Toeplitz mechanism.

  The noise of one tree is C^-1 z. Here z holds the tree's draws, one per round,
  and C is lower-triangular Toeplitz with ones on its diagonal. After a restart
  a new copy begins, so the C of the whole run is block diagonal. Accounting
  needs only the first column of C, and errors only the first column of C^-1. A
  subclass provides both, and the recursion of the noise.
  """

  @abc.abstractmethod
  def column(self, n: int) -> np.ndarray:
    """Returns the first n coefficients c_0 = 1, c_1, ... of C, float64."""

  @abc.abstractmethod
  def inverse_column(self, n: int) -> np.ndarray:
    """Returns the first n coefficients d_0 = 1, d_1, ... of C^-1, float64."""

  def squared_sensitivity(
      self, pattern: patterns.ParticipationPattern
  ) -> float:
    return toeplitz_sensitivity.squared_sensitivity(**self._run(pattern))

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    return toeplitz_sensitivity.squared_sensitivity_by_round(
        **self._run(pattern)
    )

  def sensitivity_is_exact(
      self, pattern: patterns.ParticipationPattern
  ) -> bool:
    return toeplitz_sensitivity.is_exact(**self._run(pattern))

  @property
  def draws_per_round(self) -> float:
    return 1.0

  def round_variances(self) -> np.ndarray:
    n = self.rounds_per_tree
    return toeplitz_algebra.round_variances(self.inverse_column(n), n)

  def prefix_variances(self) -> np.ndarray:
    n = self.rounds_per_tree
    return toeplitz_algebra.prefix_variances(self.inverse_column(n), n)

  def _run(self, pattern: patterns.ParticipationPattern) -> dict[str, Any]:
    """Returns the arguments that the sensitivity of a run needs."""
    pattern = pattern.truncated(self.num_rounds)
    self._check_pattern(pattern)
    return dict(
        coefficients=self.column(self.rounds_per_tree),
        pattern=pattern,
        restart_every=self.restart_every,
    )

  def _check_growth(self, **argument: Sequence[float]) -> None:
    """Raises if C or its inverse overflows float32 within a tree."""
    ((name, values),) = argument.items()
    n = self.rounds_per_tree
    with np.errstate(over='ignore', invalid='ignore'):
      largest = np.abs([self.column(n), self.inverse_column(n)]).max()
    if not largest <= np.finfo(np.float32).max:
      raise _checks.ArgumentError(
          name,
          values,
          'coefficients whose matrix and its inverse are finite in float32'
          f' over {n} rounds',
      )

  def _check_pattern(self, pattern: patterns.ParticipationPattern) -> None:
    """Raises unless the mechanism supports the pattern."""


def next_noise(coefficients, buffers, round_in_tree, operations):
  """Returns (noise, new buffers) of a round.

  The noise of round t is x_t = z_t - c_1 x_{t-1} - c_2 x_{t-2} - ..., where z_t
  is the round's draw.

  Args:
    coefficients: Coefficients c_0 = 1, c_1, .... There are more coefficients
      than buffers.
    buffers: Noise of the last rounds, newest first. Zeros stand for the rounds
      before the tree.
    round_in_tree: Index of the round in its tree, from 1.
    operations: Object with `draw`, which gives this tree's draws, and
      `combine`, which computes linear combinations.
  """
  noise = operations.combine(
      (1.0, *(-c for c in coefficients[1 : len(buffers) + 1])),
      (operations.draw(0, round_in_tree - 1), *buffers),
  )
  # Shifting by one only renames the vectors. None is moved.
  return noise, (noise, *buffers)[: len(buffers)]


@dataclasses.dataclass(frozen=True)
class Toeplitz(ToeplitzMechanism):
  """Public description of Toeplitz noise.

  The noise of a tree is C^-1 z, where z holds its draws and C is a
  lower-triangular Toeplitz matrix.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    coefficients: First column of C, c_0 = 1, rounded to float32. There are at
      least as many as a tree has rounds. Further ones are not used.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
  """

  num_rounds: int
  coefficients: tuple[float, ...]
  restart_every: Optional[int] = None
  # Completion is about the nodes of tree noise.
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'toeplitz'

  def __post_init__(self):
    self._check()
    coefficients = mechanism.rounded(coefficients=self.coefficients)
    mechanism.check_leading_one(coefficients=coefficients)
    if len(coefficients) < self.rounds_per_tree:
      raise _checks.ArgumentError(
          'coefficients',
          f'{len(coefficients)} numbers',
          f'one number for each of the {self.rounds_per_tree} rounds of a tree'
          ' (Banded takes fewer)',
      )
    object.__setattr__(self, 'coefficients', coefficients)
    self._check_growth(coefficients=coefficients)

  @classmethod
  def square_root(
      cls, num_rounds: int, *, restart_every: Optional[int] = None
  ) -> 'Toeplitz':
    """Returns the mechanism whose C is the square root of the prefix sum.

    The prefix sum is the lower-triangular matrix of ones (arXiv:2202.11205).
    """
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
    """Returns a mechanism with small error for a participation.

    *Heuristic*. The squared sensitivity S2 of the result is computed as for any
    other mechanism.

    Args:
      participation: A schedule or a participation pattern.
      error: Error to minimise: sqrt(S2 V), where V is the largest ('max') or
        the mean ('mean') variance of the model's noise over the rounds.
      workload: Map from the noised sums of the rounds to the model, see
        `workloads`. Default: the prefix sum.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
    pattern = mechanism.pattern_of(participation)
    coefficients = toeplitz_optimization.optimize_toeplitz(
        pattern, error=error, workload=workload, restart_every=restart_every
    )
    return cls(pattern.num_rounds, coefficients, restart_every=restart_every)

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.first(self.coefficients, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.inverse(self.column(n), n)

  def initialize(self, zeros):
    return (zeros,) * (self.rounds_per_tree - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    return next_noise(self.coefficients, buffers, round_in_tree, operations)


@dataclasses.dataclass(frozen=True)
class Banded(ToeplitzMechanism):
  """Public description of banded Toeplitz noise.

  The noise of a tree is C^-1 z, where z holds its draws and C is a
  lower-triangular Toeplitz matrix with p bands. The state is the noise of the
  last p - 1 rounds. The mechanism refuses a participation pattern in which the
  rounds of a client within a tree may differ by less than p.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    coefficients: First p entries c_0 = 1, ..., c_{p-1} of the first column of
      C, rounded to float32.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
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
    """Returns the mechanism of the first bands of `Toeplitz.square_root`.

    Args:
      num_rounds: Horizon T.
      num_bands: Number of bands p that are kept.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
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
    """Returns a mechanism with small error for a participation.

    *Heuristic*. The squared sensitivity S2 of the result is computed as for any
    other mechanism.

    Args:
      participation: A schedule or a participation pattern.
      num_bands: Number of bands, at most the `min_index_gap` of the
        participation, unless a client is in a tree only once.
      error: Error to minimise: sqrt(S2 V), where V is the largest ('max') or
        the mean ('mean') variance of the model's noise over the rounds.
      workload: Map from the noised sums of the rounds to the model, see
        `workloads`. Default: the prefix sum.
      restart_every: Number of rounds per tree, or `None` for one tree.
    """
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
    """Number of bands p, at most the rounds of a tree."""
    return min(len(self.coefficients), self.rounds_per_tree)

  def column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.first(self.coefficients, n)

  def inverse_column(self, n: int) -> np.ndarray:
    return toeplitz_algebra.inverse(self.coefficients, n)

  def initialize(self, zeros):
    return (zeros,) * (self.num_bands - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    return next_noise(
        self.coefficients, buffers, round_in_tree, operations
    )

  def _check_pattern(self, pattern: patterns.ParticipationPattern) -> None:
    gap = _gap_in_tree(pattern)
    if gap is not None and self.num_bands > gap:
      raise _checks.ArgumentError(
          'num_bands',
          self.num_bands,
          f'at most {gap}, the min_index_gap of the participation, because'
          ' with more bands two participations of one client overlap, and the'
          ' squared sensitivity is no longer a sum over participations',
      )


def _gap_in_tree(pattern: patterns.ParticipationPattern) -> Optional[int]:
  """Returns the smallest index gap of two rounds of a client within a tree.

  `None` if a client takes part at most once in a tree.
  """
  if isinstance(pattern, patterns.OncePerTreePattern):
    return None
  if isinstance(pattern, patterns.FixedOrderPattern):
    # Do not use `min_index_gap`: over a restart it is 1, but columns of
    # different trees have no row in common anyway.
    return pattern.rounds_per_epoch
  return None if pattern.max_participations == 1 else pattern.min_index_gap
