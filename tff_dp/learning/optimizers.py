# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Server optimizers that `tff.learning.optimizers` lacks."""

import collections
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.mechanisms import workloads

_LEARNING_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_MOMENTUM = 'momentum'
_VELOCITY = 'velocity'
_ROUND = 'round'


def build_momentum(
    *,
    learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    cooldown: Optional[workloads.Cooldown] = None,
    num_rounds: Optional[int] = None,
) -> tff.learning.optimizers.Optimizer:
  """Returns an SGD optimizer whose steps follow a `workloads.Workload`.

  Round t, with the factor f_t of the cooldown, does

  ```
  v = momentum * v + g
  w = w - learning_rate * f_t * v                     # without Nesterov
  w = w - learning_rate * f_t * (momentum * v + g)    # with Nesterov
  ```

  so after round t the weights have moved by `-learning_rate * (A g)_t`. Here A
  is the matrix of the workload, and g has the gradients of all rounds.

  Args:
    learning_rate: Learning rate, above 0.
    momentum: Momentum in [0, 1), above 0 with `nesterov`.
    nesterov: Whether the momentum looks ahead.
    cooldown: Fall of the learning rate in the last rounds, `None` for a
      constant learning rate.
    num_rounds: Number of rounds of the run, needed only by the cooldown. Later
      rounds keep the last factor.

  Raises:
    ArgumentError: If a value is outside its range.
  """
  _checks.positive(learning_rate=learning_rate)
  _checks.in_half_open(0.0, 1.0, momentum=momentum)
  if nesterov:
    _checks.in_open(0.0, 1.0, momentum=momentum)
  if cooldown is not None:
    _checks.integer_at_least(1, num_rounds=num_rounds)
  return _Momentum(learning_rate, momentum, nesterov, cooldown, num_rounds)


def cooldown_factor(
    cooldown: workloads.Cooldown, num_rounds: int, rounds_done, dtype
):
  """Returns the factor of the round after `rounds_done`, a scalar tensor.

  Args:
    cooldown: Rule that gives a factor for each round.
    num_rounds: Number of rounds of the run. Later rounds keep the last factor.
    rounds_done: Number of rounds done, a scalar integer.
    dtype: Dtype of the result.
  """
  factors = tf.constant(cooldown.factors(num_rounds), dtype)
  # Beyond the horizon the aggregator refuses, with the reason.
  return factors[tf.minimum(rounds_done, num_rounds - 1)]


class _Momentum(tff.learning.optimizers.Optimizer):
  """The optimizer of `build_momentum`."""

  def __init__(self, learning_rate, momentum, nesterov, cooldown, num_rounds):
    self._hparams = collections.OrderedDict([(_LEARNING_RATE, learning_rate)])
    if momentum > 0:
      self._hparams[_MOMENTUM] = momentum
    self._nesterov = nesterov
    self._cooldown = cooldown
    self._num_rounds = num_rounds

  def initialize(self, specs):
    state = collections.OrderedDict(self._hparams)
    if _MOMENTUM in state:
      state[_VELOCITY] = tf.nest.map_structure(
          lambda spec: tf.zeros(spec.shape, spec.dtype), specs
      )
    if self._cooldown is not None:
      state[_ROUND] = tf.constant(0, tf.int64)
    return state

  def next(self, state, weights, gradients):
    new_state = collections.OrderedDict(state)
    rate, steps = state[_LEARNING_RATE], gradients
    if self._cooldown is not None:
      rate *= cooldown_factor(
          self._cooldown, self._num_rounds, state[_ROUND], tf.float32
      )
      new_state[_ROUND] = state[_ROUND] + 1
    if _MOMENTUM in state:
      momentum = state[_MOMENTUM]

      def accumulate(velocity, gradient):
        return momentum * velocity + gradient

      steps = velocity = tf.nest.map_structure(
          accumulate, state[_VELOCITY], gradients
      )
      new_state[_VELOCITY] = velocity
      if self._nesterov:
        steps = tf.nest.map_structure(accumulate, velocity, gradients)
    new_weights = tf.nest.map_structure(
        lambda weight, step: weight - rate * step, weights, steps
    )
    return new_state, new_weights

  def get_hparams(self, state):
    return collections.OrderedDict((key, state[key]) for key in self._hparams)

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(state, **hparams)
