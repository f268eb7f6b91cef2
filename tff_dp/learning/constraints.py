# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Constraint sets that the model must stay in, as Euclidean projections.

With an L1 term, the server minimises a linear term plus L1 plus a squared
distance over the set. It thresholds softly and then projects. `allows_l1` says
whether this gives the exact minimiser. For a product of intervals it does,
because each coordinate is a separate convex problem. For the centred ball it
does, too, because the optimality conditions scale the thresholded point.
"""

import abc
from collections.abc import Callable
import dataclasses
from typing import Any

import tensorflow as tf

from tff_dp import _checks


class Constraint(abc.ABC):
  """A closed convex set of vectors of all trainable parameters.

  Projection is post-processing of released values, so no choice of set can
  weaken the guarantee. `Projection` makes a set from your own function.

  Attributes:
    allows_l1: Whether the set may be used with an L1 term. Projecting the
      soft-thresholded point must then give the exact minimiser, see the module
      docstring.
  """

  allows_l1: bool = False

  @abc.abstractmethod
  def project(self, point):
    """Returns the nearest point of the set, shape [num_params]."""


@dataclasses.dataclass(frozen=True)
class Unconstrained(Constraint):
  """The set of all vectors."""

  allows_l1 = True

  def project(self, point):
    return point


@dataclasses.dataclass(frozen=True)
class L2Ball(Constraint):
  """The ball around zero.

  Attributes:
    radius: Radius of the ball, above 0.
  """

  radius: float
  allows_l1 = True

  def __post_init__(self):
    _checks.positive(radius=self.radius)

  def project(self, point):
    return tf.clip_by_norm(point, self.radius)


@dataclasses.dataclass(frozen=True)
class Box(Constraint):
  """Every coordinate within [low, high].

  Attributes:
    low: Lower bound.
    high: Upper bound, at least `low`.
  """

  low: float
  high: float
  allows_l1 = True

  def __post_init__(self):
    if not self.low <= self.high:
      raise _checks.ArgumentError(
          'low', self.low, f'a number of at most high, {self.high}'
      )

  def project(self, point):
    return tf.clip_by_value(point, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class NonNegative(Constraint):
  """The non-negative orthant."""

  allows_l1 = True

  def project(self, point):
    return tf.nn.relu(point)


@dataclasses.dataclass(frozen=True)
class Projection(Constraint):
  """A custom set, given by its Euclidean projection.

  Attributes:
    function: Function that maps a vector of shape [num_params] to the nearest
      point of the set, with TensorFlow operations. It must not depend on
      clients' data.
    allows_l1: Whether you declare that projecting the soft-thresholded point
      gives the exact minimiser, see the module docstring.
  """

  function: Callable[[Any], Any]
  allows_l1: bool = False

  def project(self, point):
    return tf.ensure_shape(self.function(point), point.shape)
