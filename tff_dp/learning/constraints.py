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
"""Constraint sets: where the model has to stay, as Euclidean projections.

`allows_l1` says whether soft-thresholding and then projecting is the exact
minimiser of a linear term plus L1 plus a squared distance over the set. It is
for sets that treat every coordinate alike and contain zero, and for the centred
ball, where the optimality conditions scale the thresholded point.
"""

import abc
import dataclasses

import tensorflow as tf

from tff_dp import _checks


class Constraint(abc.ABC):
  """A closed convex set of parameter vectors.

  Subclass it for a set of your own: the projection is post-processing of
  released values, so no choice can weaken the guarantee.
  """

  allows_l1: bool = False

  @abc.abstractmethod
  def project(self, point):
    """Returns the nearest point of the set, shape [num_params]."""


@dataclasses.dataclass(frozen=True)
class Unconstrained(Constraint):
  """All of R^p."""

  allows_l1 = True

  def project(self, point):
    return point


@dataclasses.dataclass(frozen=True)
class L2Ball(Constraint):
  """The ball around zero.

  Attributes:
    radius: Its radius, above 0.
  """

  radius: float
  allows_l1 = True

  def __post_init__(self):
    _checks.positive(radius=self.radius)

  def project(self, point):
    return tf.clip_by_norm(point, self.radius)


@dataclasses.dataclass(frozen=True)
class Box(Constraint):
  """Every coordinate within [low, high], which contains 0.

  Attributes:
    low: Lower bound, at most 0.
    high: Upper bound, at least 0.
  """

  low: float
  high: float
  allows_l1 = True

  def __post_init__(self):
    _checks.non_negative(high=self.high)
    if not self.low <= 0:
      raise _checks.ArgumentError('low', self.low, 'a number of at most 0')

  def project(self, point):
    return tf.clip_by_value(point, self.low, self.high)


@dataclasses.dataclass(frozen=True)
class NonNegative(Constraint):
  """The non-negative orthant."""

  allows_l1 = True

  def project(self, point):
    return tf.nn.relu(point)
