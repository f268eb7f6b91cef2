# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all mechanisms with a Toeplitz C have in common.

The noise of one tree is C^-1 z with z the tree's draws, one a round, and C
lower-triangular Toeplitz with ones on its diagonal. After a restart a new copy
begins, so the C of the whole run is block diagonal. Everything that accounting
needs follows from the first column of C, everything about errors from that of
C^-1; a subclass gives both, and the recursion that makes the noise.
"""

import abc
from collections.abc import Sequence

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms.matrix import parameters
from tff_dp.mechanisms.matrix import toeplitz_algebra


class ToeplitzMechanism(mechanism.Mechanism):
  """Geometry, sensitivity and variances of a Toeplitz mechanism."""

  @abc.abstractmethod
  def column(self, n: int) -> np.ndarray:
    """Returns the first n coefficients c_0 = 1, c_1, ... of C, float64."""

  @abc.abstractmethod
  def inverse_column(self, n: int) -> np.ndarray:
    """Returns the first n coefficients d_0 = 1, d_1, ... of C^-1, float64."""

  def squared_sensitivity(
      self, pattern: patterns.ParticipationPattern
  ) -> float:
    pattern = pattern.truncated(self.num_rounds)
    self._check_pattern(pattern)
    return toeplitz_sensitivity.squared_sensitivity(
        self.column(self.rounds_per_tree),
        pattern,
        restart_every=self.restart_every,
    )

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    pattern = pattern.truncated(self.num_rounds)
    self._check_pattern(pattern)
    return toeplitz_sensitivity.squared_sensitivity_by_round(
        self.column(self.rounds_per_tree),
        pattern,
        restart_every=self.restart_every,
    )

  def sensitivity_is_exact(
      self, pattern: patterns.ParticipationPattern
  ) -> bool:
    pattern = pattern.truncated(self.num_rounds)
    self._check_pattern(pattern)
    return toeplitz_sensitivity.is_exact(
        self.column(self.rounds_per_tree),
        pattern,
        restart_every=self.restart_every,
    )

  @property
  def response_is_exact(self) -> bool:
    return bool(np.all(self.column(self.rounds_per_tree) >= 0))

  def squared_response(self, rounds: Sequence[int]) -> float:
    """Returns S2 of a client that takes part in exactly these rounds.

    *Exact* for non-negative coefficients, else an *upper bound*.

    Args:
      rounds: Distinct rounds in 1..num_rounds, counted over the whole run.
    """
    return toeplitz_sensitivity.squared_response(
        self.column(self.rounds_per_tree),
        parameters.checked_rounds(rounds, num_rounds=self.num_rounds),
        num_rounds=self.num_rounds,
        restart_every=self.restart_every,
    )

  @property
  def draws_per_round(self) -> float:
    return 1.0

  def round_variances(self) -> np.ndarray:
    n = self.rounds_per_tree
    return toeplitz_algebra.round_variances(self.inverse_column(n), n)

  def prefix_variances(self) -> np.ndarray:
    n = self.rounds_per_tree
    return toeplitz_algebra.prefix_variances(self.inverse_column(n), n)

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
          f'coefficients whose matrix and inverse are finite over {n} rounds',
      )

  def _check_pattern(self, pattern: patterns.ParticipationPattern) -> None:
    """Raises if the mechanism does not serve the pattern."""
