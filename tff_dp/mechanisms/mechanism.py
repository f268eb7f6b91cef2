# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The contract of every noise mechanism: public facts and pure functions.

A mechanism describes the noise that is added to a stream of sums, one vector
per round. It is a frozen dataclass of public facts; whatever depends on a key,
on data or on the model's size is an argument. The same `next_noise` serves
NumPy arrays in a test and tensors in a TensorFlow graph, because the two things
that differ are handed in: how a node's draw is made, and how a branch is taken.
"""

import abc
from collections.abc import Callable
from typing import Any, Optional, Protocol

import numpy as np

from tff_dp import _checks
from tff_dp.accounting import patterns

# A vector of shape [num_params]: a NumPy array or a tensor.
Vector = Any
# What a mechanism remembers from round to round: one vector per slot.
Buffers = tuple[Vector, ...]


class Draw(Protocol):
  """Returns the standard normal vector that belongs to one node.

  Must be a function of its arguments: the same (level, index) gives the same
  vector for the lifetime of a tree, another pair an independent one.
  """

  def __call__(self, level: int, index) -> Vector:
    ...


class Cond(Protocol):
  """Returns `then()` or `otherwise()`: `tf.cond`, or a Python `if`."""

  def __call__(
      self, predicate, then: Callable[[], Any], otherwise: Callable[[], Any]
  ) -> Any:
    ...


def python_cond(predicate, then, otherwise):
  """The `Cond` for NumPy: takes the branch with an ordinary `if`."""
  return then() if predicate else otherwise()


class Mechanism(abc.ABC):
  """Noise for a stream of `num_rounds` sums, in residual form.

  Residual form means that round t gets the *increment* of the noise on the
  prefix sum, so the consumer adds up what it receives, as any server optimizer
  does. Every draw has unit standard deviation per coordinate; the aggregator
  scales by `noise_multiplier * l2_norm_clip`.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    restart_every: Rounds per tree, or `None` for one tree over all rounds.
    complete_trees: Whether a tree that is followed by another is extended with
      virtual rounds of zeros up to the next power of two.
  """

  num_rounds: int
  restart_every: Optional[int]
  complete_trees: bool

  @property
  @abc.abstractmethod
  def name(self) -> str:
    """The name that command lines and statements use."""

  @property
  def rounds_per_tree(self) -> int:
    """Rounds of the longest tree."""
    return min(self.restart_every or self.num_rounds, self.num_rounds)

  @property
  def virtual_rounds(self) -> int:
    """Rounds of zeros that complete a tree before the next one starts."""
    if not self.complete_trees or self.rounds_per_tree == self.num_rounds:
      return 0
    return (1 << (self.rounds_per_tree - 1).bit_length()) - self.rounds_per_tree

  @abc.abstractmethod
  def squared_sensitivity(self, pattern: patterns.ParticipationPattern) -> float:
    """Returns S2, in squared clip norms, for zero-out adjacency. Exact."""

  @abc.abstractmethod
  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    """Returns S2 of a run stopped after 1..T rounds, shape [num_rounds]."""

  @abc.abstractmethod
  def initialize(self, zeros: Vector) -> Buffers:
    """Returns the buffers before round 1; `zeros` has shape [num_params]."""

  @abc.abstractmethod
  def next_noise(
      self, buffers: Buffers, round_in_tree, *, draw: Draw, cond: Cond
  ) -> tuple[Vector, Buffers]:
    """Returns (noise, buffers) of one round.

    Args:
      buffers: What the previous round of the same tree returned.
      round_in_tree: Counts from 1, Python integer or integer tensor.
      draw: The node draws of this tree.
      cond: How to branch on `round_in_tree`.

    Returns:
      The residual noise `b_t - b_{t-1}`, shape [num_params], and the buffers.
    """

  @abc.abstractmethod
  def round_variances(self) -> np.ndarray:
    """Returns Var(b_t - b_{t-1}) per coordinate of one tree's rounds. Exact."""

  @abc.abstractmethod
  def prefix_variances(self) -> np.ndarray:
    """Returns Var(b_t) per coordinate of one tree's rounds. Exact."""

  def _check(self) -> None:
    """Validates the common attributes; subclasses call it at construction."""
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.optional_integer_at_least(1, restart_every=self.restart_every)
    if self.complete_trees and self.restart_every is None:
      raise _checks.ArgumentError(
          'complete_trees',
          True,
          'restart_every to be given, because the last tree is never completed',
      )
