# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The server's side of check-in SGD: when reports become a step of the model.

The finalizer gets the sum of the reports of one step of the protocol, and their
number. Every report was randomized at its client. There are two rules:

*   `Winners`: every slot has exactly one report, from its winner or a dummy.
  The sum of `slots_per_update` reports, divided by that number, is one update.
*   `Arrivals`: all reports of a step, divided by their number or by a constant,
  are one update. Without reports there is no update: the model, the optimizer
  and the average of the models stay as they are.

Every step counts as a step of the protocol, whether or not it updates the
model.
"""

import collections
import dataclasses
from typing import Literal, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.aggregators import local_randomizers
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers


@dataclasses.dataclass(frozen=True)
class Winners:
  """One report per step, and one update per `slots_per_update` steps.

  In a step after the warm-up, any other number of reports is an error. Without
  a report, the adversary would see which slot was empty. With two reports, the
  guarantee would cover only one of them.

  Attributes:
    num_updates: Number of updates of the model in the whole run.
    slots_per_update: Number b of slots per update.
    num_warm_up: Number of steps at the beginning whose reports are not used.
  """

  num_updates: int
  slots_per_update: int = 1
  num_warm_up: int = 0

  @property
  def divisor(self) -> float:
    """Number by which the sum of the reports of an update is divided."""
    return float(self.slots_per_update)

  def decide(self, state, num_reports):
    """Returns (number of reports that count, whether the model is updated)."""
    is_warm_up = state['num_steps'] < self.num_warm_up
    has_winner = tf.debugging.Assert(
        tf.logical_or(is_warm_up, tf.equal(num_reports, 1)),
        [
            'a step needs exactly one client, the winner of the slot or, if'
            ' nobody checked in, a dummy: a client with an empty dataset, whose'
            ' noise hides the gap; found',
            num_reports,
        ],
    )
    with tf.control_dependencies([has_winner]):
      counted = tf.where(is_warm_up, 0, num_reports)
    return counted, tf.equal(
        state['num_collected'] + counted, self.slots_per_update
    )


@dataclasses.dataclass(frozen=True)
class Arrivals:
  """All reports of a step make one update. Without reports there is none.

  Attributes:
    num_updates: Upper bound on the number of updates in the whole run.
    divisor: 'arrived' divides the sum by the number of reports. A number
      divides it by that public constant.
  """

  num_updates: int
  divisor: Union[Literal['arrived'], float] = local_randomizers.ARRIVED

  def __post_init__(self):
    if self.divisor != local_randomizers.ARRIVED:
      _checks.positive(divisor=self.divisor)

  def decide(self, state, num_reports):
    """Returns (number of reports that count, whether the model is updated)."""
    del state
    return tf.identity(num_reports), num_reports > 0


def build_check_in_finalizer(
    rule: Union[Winners, Arrivals],
    optimizer: tff.learning.optimizers.Optimizer,
    model_weights_type: tff.StructWithPythonType,
    *,
    constraint: Optional[constraints.Constraint] = None,
    average: Optional[averaging_lib.Average] = None,
) -> tff.learning.templates.FinalizerProcess:
  """Returns a finalizer that applies the reports of a step.

  Its input is `OrderedDict(total, num_reports)`, the sum of the reports of a
  step and their number.

  `state`: `OrderedDict(optimizer, collected, num_collected, num_steps,
  num_updates)`, and `averaging` if there is an average. `collected` is the sum
  of the reports since the last update, and `num_collected` their number.

  `measurements`: `num_updates`, the number of updates so far.

  Args:
    rule: Rule by which reports become an update.
    optimizer: Optimizer that applies an update to the trainable weights.
    model_weights_type: Type of a `tff.learning.models.ModelWeights` whose
      trainable weights are float32.
    constraint: Set in which the model has to stay. After every update the model
      is projected into it.
    average: Average of the models. Each update adds one model, the model before
      the update, however many steps passed since the previous update.
  """
  trainable_type = model_weights_type.trainable
  update_type = tff.to_type(
      collections.OrderedDict(total=trainable_type, num_reports=np.int32)
  )
  shares = None
  if average is not None:
    shares = averaging_lib.shares_of(average, rule.num_updates)

  def zeros():
    return tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype),
        tff.types.type_to_tf_tensor_specs(trainable_type),
    )

  @tff.tensorflow.computation
  def initialize():
    specs = tff.types.type_to_tf_tensor_specs(trainable_type)
    state = collections.OrderedDict(
        optimizer=optimizer.initialize(tuple(tf.nest.flatten(specs))),
        collected=zeros(),
        num_collected=tf.constant(0),
        num_steps=tf.constant(0, tf.int64),
        num_updates=tf.constant(0, tf.int64),
    )
    if shares is not None:
      state['averaging'] = averaging_lib.no_models(trainable_type)
    return state

  def step(state, trainable, gradient):
    """Returns (state, weights) after one update of the model."""
    optimizer_state, new_weights = optimizer.next(
        state['optimizer'],
        tuple(tf.nest.flatten(trainable)),
        tuple(tf.nest.flatten(gradient)),
    )
    new_weights = tf.nest.pack_sequence_as(trainable, new_weights)
    if constraint is not None:
      new_weights = finalizers.unflatten(
          constraint.project(finalizers.flatten(new_weights)), like=trainable
      )
    new_state = collections.OrderedDict(
        state,
        optimizer=optimizer_state,
        collected=zeros(),
        num_collected=tf.constant(0),
        num_updates=state['num_updates'] + 1,
    )
    if shares is not None:
      new_state['averaging'] = averaging_lib.with_model(
          state['averaging'], trainable, shares
      )
    return new_state, new_weights

  @tff.tensorflow.computation(
      initialize.type_signature.result, trainable_type, update_type
  )
  @tf.function(autograph=False)
  def apply(state, trainable, update):
    counted, is_update = rule.decide(state, update['num_reports'])
    collected = tf.nest.map_structure(
        lambda so_far, total: tf.where(counted > 0, so_far + total, so_far),
        state['collected'],
        update['total'],
    )
    waiting = collections.OrderedDict(
        state,
        collected=collected,
        num_collected=state['num_collected'] + counted,
        num_steps=state['num_steps'] + 1,
    )
    divisor = tf.cast(waiting['num_collected'], tf.float32)
    if rule.divisor != local_randomizers.ARRIVED:
      divisor = tf.constant(rule.divisor, tf.float32)
    new_state, new_weights = tf.cond(
        is_update,
        lambda: step(
            waiting,
            trainable,
            tf.nest.map_structure(lambda total: total / divisor, collected),
        ),
        lambda: (waiting, tf.nest.map_structure(tf.identity, trainable)),
    )
    measurements = collections.OrderedDict(
        num_updates=new_state['num_updates']
    )
    return new_state, new_weights, measurements

  return finalizers.from_computations(
      initialize,
      apply,
      model_weights_type=model_weights_type,
      update_type=update_type,
      **finalizers.hparams_of(
          optimizer, initialize.type_signature.result, 'optimizer'
      ),
  )
