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
"""Server optimizers that `tff.learning.optimizers` lacks."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks

_LEARNING_RATE = tff.learning.optimizers.LEARNING_RATE_KEY
_MOMENTUM = 'momentum'
_VELOCITY = 'velocity'


def build_nesterov(
    *, learning_rate: float, momentum: float
) -> tff.learning.optimizers.Optimizer:
  """Returns SGD with Nesterov momentum, as `tf.keras.optimizers.SGD` defines it.

  ```
  v = momentum * v + g
  w = w - learning_rate * (momentum * v + g)
  ```

  TFF has momentum SGD (`build_sgdm`), but not this variant.

  Args:
    learning_rate: Above 0.
    momentum: Strictly between 0 and 1.
  """
  _checks.positive(learning_rate=learning_rate)
  _checks.in_open(0.0, 1.0, momentum=momentum)
  return _Nesterov(learning_rate, momentum)


class _Nesterov(tff.learning.optimizers.Optimizer):
  """See `build_nesterov`."""

  def __init__(self, learning_rate: float, momentum: float):
    self._hparams = collections.OrderedDict(
        [(_LEARNING_RATE, learning_rate), (_MOMENTUM, momentum)]
    )

  def initialize(self, specs):
    return collections.OrderedDict(
        self._hparams,
        **{
            _VELOCITY: tf.nest.map_structure(
                lambda spec: tf.zeros(spec.shape, spec.dtype), specs
            )
        },
    )

  def next(self, state, weights, gradients):
    learning_rate, momentum = state[_LEARNING_RATE], state[_MOMENTUM]
    velocity = tf.nest.map_structure(
        lambda v, g: momentum * v + g, state[_VELOCITY], gradients
    )
    new_weights = tf.nest.map_structure(
        lambda w, v, g: w - learning_rate * (momentum * v + g),
        weights,
        velocity,
        gradients,
    )
    new_state = collections.OrderedDict(state)
    new_state[_VELOCITY] = velocity
    return new_state, new_weights

  def get_hparams(self, state):
    return collections.OrderedDict((key, state[key]) for key in self._hparams)

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(state, **hparams)
