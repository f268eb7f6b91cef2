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
"""FTRL: dual averaging on the noised prefix sum, with L1 and constraint sets.

Where the server cannot simply add up updates (an L1 term, a constraint set) it
needs the prefix sum itself. With theta_0 the anchor, s_t the noised prefix sum
and eta the learning rate, round t solves

    argmin over C of  <u_t, theta> + t l1 |theta|_1 + |theta - theta_0|^2 / (2 eta)

with u_t = s_t, or its momentum form. s_t is added up from the residuals that the
aggregator releases, so no un-noised sum exists anywhere, and everything here is
post-processing of released values.

Without L1 and constraints this equals momentum SGD on the residuals, also across
restarts (`tests/learning/ftrl_test.py`). Sources: Kairouz et al.,
arXiv:2103.00039, section 3.2 (momentum: appendix); L1 with a zero anchor:
McMahan, AISTATS 2011. The general anchor and momentum with L1 are our own
derivations: the objective above is separable, so its minimiser is a soft
threshold of theta_0 - eta u_t.
"""

import dataclasses
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from tff_dp import _checks
from tff_dp.learning import constraints


@dataclasses.dataclass(frozen=True)
class Ftrl:
  """Public description of the update.

  Attributes:
    learning_rate: eta, the only name for 1 / lambda in this library.
    momentum: gamma in [0, 1).
    nesterov: Whether to look ahead by one momentum step.
    l1: Weight of |theta|_1 per round. Exact zeros survive.
    constraint: The set C; with L1, one whose projection after the threshold is
      the exact minimiser (`constraints` says which).
    restart_every: Rounds after which the current model becomes the anchor and
      the prefix sum starts anew, together with the tree of the aggregator.
  """

  learning_rate: float
  momentum: float = 0.0
  nesterov: bool = False
  l1: float = 0.0
  constraint: constraints.Constraint = constraints.Unconstrained()
  restart_every: Optional[int] = None

  def __post_init__(self):
    _checks.positive(learning_rate=self.learning_rate)
    _checks.in_half_open(0.0, 1.0, momentum=self.momentum)
    _checks.non_negative(l1=self.l1)
    _checks.optional_integer_at_least(1, restart_every=self.restart_every)
    if self.nesterov and not self.momentum > 0:
      raise _checks.ArgumentError(
          'momentum', self.momentum, 'a number above 0 with nesterov=True'
      )
    if self.l1 > 0 and not self.constraint.allows_l1:
      raise _checks.ArgumentError(
          'constraint',
          self.constraint,
          'a set around zero in which thresholding and projecting is exact'
          ' (box, centred ball, non-negative orthant) with l1 above 0',
      )


class State(NamedTuple):
  """What the update remembers; vectors have shape [num_params].

  Attributes:
    anchor: theta_0 of the current tree.
    prefix_sum: s_t, noised.
    velocity: v_t = momentum * v_{t-1} + carried + s_t.
    carried: momentum * (v_R - v_{R-1}) of the previous tree, which keeps the
      momentum across a restart.
    round_in_tree: t, scalar int64.
    l1_velocity: tau_t, the number of L1 terms that u_t carries, scalar.
    l1_carried: Like `carried`, for `l1_velocity`.
    last_velocity: v_{t-1}.
    last_l1_velocity: tau_{t-1}.
  """

  anchor: Any
  prefix_sum: Any
  velocity: Any
  carried: Any
  round_in_tree: Any
  l1_velocity: Any
  l1_carried: Any
  last_velocity: Any
  last_l1_velocity: Any


def initialize(weights) -> State:
  """Returns the state before round 1; `weights` are the initial model's."""
  # The model after t = 0 is the anchor; it is set when round 1 begins.
  zeros, zero = tf.zeros_like(weights), tf.constant(0.0, weights.dtype)
  return State(
      anchor=zeros,
      prefix_sum=zeros,
      velocity=zeros,
      carried=zeros,
      round_in_tree=tf.constant(0, tf.int64),
      l1_velocity=zero,
      l1_carried=zero,
      last_velocity=zeros,
      last_l1_velocity=zero,
  )


def next_weights(spec: Ftrl, state: State, weights, residual):
  """Returns (new weights, new state) of one round.

  Args:
    spec: The update.
    state: What the previous round returned.
    weights: The model before the round, shape [num_params].
    residual: What the aggregator released in this round, as a gradient.
  """
  state = _begin_tree(spec, state, weights)
  gamma = spec.momentum
  prefix_sum = state.prefix_sum + residual
  round_in_tree = state.round_in_tree + 1
  num_terms = tf.cast(round_in_tree, weights.dtype)
  velocity = gamma * state.velocity + state.carried + prefix_sum
  l1_velocity = gamma * state.l1_velocity + state.l1_carried + num_terms
  if spec.nesterov:
    dual, num_terms = gamma * velocity + prefix_sum, gamma * l1_velocity + num_terms
  else:
    dual, num_terms = velocity, l1_velocity
  point = state.anchor - spec.learning_rate * dual
  if spec.l1 > 0:
    threshold = spec.learning_rate * num_terms * spec.l1
    point = tf.sign(point) * tf.nn.relu(tf.abs(point) - threshold)
  return spec.constraint.project(point), State(
      anchor=state.anchor,
      prefix_sum=prefix_sum,
      velocity=velocity,
      carried=state.carried,
      round_in_tree=round_in_tree,
      l1_velocity=l1_velocity,
      l1_carried=state.l1_carried,
      last_velocity=state.velocity,
      last_l1_velocity=state.l1_velocity,
  )


def _begin_tree(spec: Ftrl, state: State, weights) -> State:
  """Returns the state with which the round begins: re-anchored if due."""

  def first():
    return state._replace(anchor=weights)

  def restarted():
    return State(
        anchor=weights,
        prefix_sum=tf.zeros_like(state.prefix_sum),
        velocity=tf.zeros_like(state.velocity),
        carried=spec.momentum * (state.velocity - state.last_velocity),
        round_in_tree=tf.zeros_like(state.round_in_tree),
        l1_velocity=tf.zeros_like(state.l1_velocity),
        l1_carried=spec.momentum * (state.l1_velocity - state.last_l1_velocity),
        last_velocity=tf.zeros_like(state.last_velocity),
        last_l1_velocity=tf.zeros_like(state.last_l1_velocity),
    )

  state = tf.cond(tf.equal(state.round_in_tree, 0), first, lambda: state)
  if spec.restart_every is None:
    return state
  return tf.cond(
      tf.equal(
          state.round_in_tree, tf.constant(spec.restart_every, tf.int64)
      ),
      restarted,
      lambda: state,
  )
