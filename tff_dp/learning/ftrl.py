# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""FTRL: dual averaging on the noised prefix sum, with L1 and constraint sets.

With an L1 term or a constraint set the server cannot simply add up updates. It
needs the prefix sum itself. Let C be the constraint set, theta_0 the anchor,
u_t the sum of the server's steps since the anchor, eta the learning rate and l1
the weight of the L1 term. Round t solves

    argmin over C of  <u_t, theta> + tau_t l1 |theta|_1
                      + |theta - theta_0|^2 / (2 eta)

The residual x_t that the aggregator releases goes through the same steps as in
`optimizers`, which gives u_t. The same steps applied to the constant 1, the
weight of the L1 term in one round, give tau_t:

    m_t = momentum m_{t-1} + x_t          mu_t = momentum mu_{t-1} + 1
    u_t = u_{t-1} + f_t d_t               tau_t = tau_{t-1} + f_t delta_t

with d_t = m_t, or momentum m_t + x_t for Nesterov (delta_t likewise), and f_t
the cooldown. So f_t weighs the whole loss of round t, including its L1 term.
Shrinking eta instead would pull the model back to the anchor. Without cooldown
u_t is v_t = momentum v_{t-1} + s_t, with s_t the prefix sum, because m_t = v_t
- v_{t-1}.

A restart takes the current model as the anchor and resets u and tau. m and mu
are kept. In the new tree, v_0 = 0, s_t begins anew, and
`v_t = momentum v_{t-1} + c + s_t`. Here `c = momentum (v_R - v_{R-1})`, where R
is the last round of the previous tree. So without L1 and constraints the
restarts change nothing: the result always equals momentum SGD on the residuals
(`tests/learning/ftrl_test.py`). With L1 or constraints, a new anchor is not the
same as continued dual averaging.

u_t is added up from the residuals that the aggregator releases, so no un-noised
sum exists anywhere, and everything here is post-processing of released values.

Sources: Kairouz et al., arXiv:2103.00039, section 3.2 (momentum: appendix). L1
with a zero anchor: McMahan, AISTATS 2011. The general anchor, and momentum and
cooldown with L1, are our own derivations: the objective above is separable, so
without a constraint its minimiser is a soft threshold of theta_0 - eta u_t.
This is exact up to rounding.
"""

import dataclasses
from typing import Any, NamedTuple, Optional

import tensorflow as tf

from tff_dp import _checks
from tff_dp.learning import constraints
from tff_dp.learning import optimizers
from tff_dp.mechanisms import workloads


@dataclasses.dataclass(frozen=True)
class Ftrl:
  """Public description of the server's FTRL update.

  Attributes:
    learning_rate: Learning rate eta. Some papers write 1 / lambda.
    momentum: Momentum in [0, 1), above 0 with `nesterov`.
    nesterov: Whether to look ahead by one momentum step.
    l1: Weight of the L1 norm of the model, per round. Above 0, it can make
      weights exactly zero.
    constraint: Set that the model must stay in. With L1, projection after the
      threshold must be the exact minimiser for the set (see `constraints`).
    restart_every: Number of rounds after which the current model becomes the
      anchor and the prefix sum restarts, together with the tree of the
      aggregator. `None`: there is no restart.
    cooldown: Rule that lowers the weights of the last rounds, `None` for equal
      weights.
    num_rounds: Horizon of the run, needed only by the cooldown.
  """

  learning_rate: float
  momentum: float = 0.0
  nesterov: bool = False
  l1: float = 0.0
  constraint: constraints.Constraint = constraints.Unconstrained()
  restart_every: Optional[int] = None
  cooldown: Optional[workloads.Cooldown] = None
  num_rounds: Optional[int] = None

  def __post_init__(self):
    _checks.positive(learning_rate=self.learning_rate)
    _checks.in_half_open(0.0, 1.0, momentum=self.momentum)
    _checks.non_negative(l1=self.l1)
    _checks.optional_integer_at_least(1, restart_every=self.restart_every)
    _checks.optional_integer_at_least(1, num_rounds=self.num_rounds)
    if self.nesterov and not self.momentum > 0:
      raise _checks.ArgumentError(
          'momentum', self.momentum, 'a number above 0 with nesterov=True'
      )
    if self.cooldown is not None and self.num_rounds is None:
      raise _checks.ArgumentError(
          'num_rounds',
          None,
          'the number of rounds of the whole run, which a cooldown needs',
      )
    if not isinstance(self.constraint, constraints.Constraint):
      raise _checks.ArgumentError(
          'constraint',
          self.constraint,
          'a Constraint (Projection(function) makes one)',
      )
    if self.l1 > 0 and not self.constraint.allows_l1:
      raise _checks.ArgumentError(
          'constraint',
          self.constraint,
          'with l1 above 0, a set for which thresholding and then projecting is'
          ' exact: a box, a centred ball, the non-negative orthant, or one of'
          ' your own that declares allows_l1',
      )


class State(NamedTuple):
  """The state of the FTRL update. Vectors have shape [num_params].

  Attributes:
    anchor: Anchor theta_0 of the current tree.
    dual: Noised sum u_t of the server's steps since the anchor.
    velocity: Velocity m_t of the momentum. An empty tuple without momentum,
      because m_t is then the residual.
    l1_dual: Factor tau_t of the L1 term, which is added up like u_t, scalar.
    l1_velocity: Velocity mu_t of tau_t, scalar.
    round: Number of rounds done in the whole run, scalar int64.
  """

  anchor: Any
  dual: Any
  velocity: Any
  l1_dual: Any
  l1_velocity: Any
  round: Any


def initialize(spec: Ftrl, zeros) -> State:
  """Returns the state before round 1. `zeros` has shape [num_params]."""
  zero = tf.constant(0.0, zeros.dtype)
  return State(
      anchor=zeros,  # Replaced by the model when round 1 begins.
      dual=zeros,
      velocity=zeros if spec.momentum > 0 else (),
      l1_dual=zero,
      l1_velocity=zero,
      round=tf.constant(0, tf.int64),
  )


def next_weights(spec: Ftrl, state: State, weights, residual):
  """Returns (new weights, new state) of one round.

  Args:
    spec: Parameters of the update.
    state: State from the previous round.
    weights: Model before the round, shape [num_params].
    residual: Result of the aggregator in this round, with the sign of a
      gradient, shape [num_params].
  """
  state = _begin_tree(spec, state, weights)
  step, velocity = _step(spec, state.velocity, residual)
  l1_step, l1_velocity = _step(
      spec, state.l1_velocity, tf.ones_like(state.l1_velocity)
  )
  if spec.cooldown is not None:
    factor = optimizers.cooldown_factor(
        spec.cooldown, spec.num_rounds, state.round, weights.dtype
    )
    step, l1_step = factor * step, factor * l1_step
  dual, l1_dual = state.dual + step, state.l1_dual + l1_step
  point = state.anchor - spec.learning_rate * dual
  if spec.l1 > 0:
    threshold = spec.learning_rate * l1_dual * spec.l1
    point = tf.sign(point) * tf.nn.relu(tf.abs(point) - threshold)
  return spec.constraint.project(point), State(
      anchor=state.anchor,
      dual=dual,
      velocity=velocity if spec.momentum > 0 else (),
      l1_dual=l1_dual,
      l1_velocity=l1_velocity,
      round=state.round + 1,
  )


def _step(spec: Ftrl, velocity, residual):
  """Returns (the round's step, the new velocity).

  The step is not yet multiplied by learning rate and cooldown.
  """
  if not spec.momentum > 0:
    return residual, residual
  velocity = spec.momentum * velocity + residual
  if spec.nesterov:
    return spec.momentum * velocity + residual, velocity
  return velocity, velocity


def _begin_tree(spec: Ftrl, state: State, weights) -> State:
  """Returns the state before a round. If a tree begins, the anchor is new."""
  starts_tree = tf.equal(state.round, 0)
  if spec.restart_every is not None:
    starts_tree = tf.equal(state.round % spec.restart_every, 0)
  return tf.cond(
      starts_tree,
      lambda: state._replace(
          anchor=weights,
          dual=tf.zeros_like(state.dual),
          l1_dual=tf.zeros_like(state.l1_dual),
      ),
      lambda: state,
  )
