# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Finalizers: how the server applies the released update to the model."""

import collections
import math
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.learning import ftrl


def build_ftrl_finalizer(
    spec: ftrl.Ftrl, model_weights_type: tff.StructWithPythonType
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer that runs FTRL on one flat vector of all weights.

  `measurements`: `num_zero_weights`, the number of trainable weights that are
  exactly zero in the new model.

  Args:
    spec: Parameters of the FTRL update.
    model_weights_type: Type of a `tff.learning.models.ModelWeights` whose
      trainable weights are float32. Non-trainable weights stay as they are.
  """
  trainable_type = model_weights_type.trainable
  size = num_params(trainable_type)

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def initialize():
    return ftrl.initialize(spec, tf.zeros([size], tf.float32))

  state_type = initialize.type_signature.result

  @tff.tensorflow.computation(state_type, trainable_type, trainable_type)
  @tf.function(autograph=False)
  def apply(state, trainable, update):
    weights, new_state = ftrl.next_weights(
        spec, ftrl.State(*state), flatten(trainable), flatten(update)
    )
    measurements = collections.OrderedDict(
        num_zero_weights=tf.math.count_nonzero(
            tf.equal(weights, 0.0), dtype=tf.int32
        )
    )
    return new_state, unflatten(weights, like=trainable), measurements

  return from_computations(
      initialize,
      apply,
      model_weights_type=model_weights_type,
      update_type=trainable_type,
  )


def from_computations(
    initialize: tff.Computation,
    apply: tff.Computation,
    *,
    model_weights_type: tff.StructWithPythonType,
    update_type: tff.Type,
    **hparams,
) -> tff.learning.templates.FinalizerProcess:
  """Returns the finalizer of two computations without placements.

  Args:
    initialize: Computation that returns the state.
    apply: Computation that maps (state, trainable weights, update) to (state,
      trainable weights, measurements). Non-trainable weights stay as they are.
    model_weights_type: Type of a `tff.learning.models.ModelWeights`.
    update_type: Type of the aggregator's result.
    **hparams: `get_hparams_fn` and `set_hparams_fn`, if there are any.
  """

  @tff.federated_computation
  def init_fn():
    return tff.federated_eval(initialize, tff.SERVER)

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(model_weights_type, tff.SERVER),
      tff.FederatedType(update_type, tff.SERVER),
  )
  def next_fn(state, weights, update):
    new_state, new_trainable, measurements = tff.federated_map(
        apply, (state, weights.trainable, update)
    )
    new_weights = tff.federated_zip(
        tff.learning.models.ModelWeights(new_trainable, weights.non_trainable)
    )
    return tff.templates.MeasuredProcessOutput(
        new_state, new_weights, measurements
    )

  return tff.learning.templates.FinalizerProcess(init_fn, next_fn, **hparams)


def hparams_of(inner, state_type: tff.Type, name: str) -> dict[str, Any]:
  """Returns `get_hparams_fn` and `set_hparams_fn` of an outer process, by name.

  They get and set the hyperparameters in the state of an inner process.

  Args:
    inner: Process with `get_hparams` and `set_hparams`.
    state_type: Type of the outer state, an `OrderedDict`.
    name: Name of the inner state in the outer one.
  """

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return inner.get_hparams(state[name])

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(state, hparams):
    return collections.OrderedDict(
        state, **{name: inner.set_hparams(state[name], hparams)}
    )

  return dict(get_hparams_fn=get_hparams, set_hparams_fn=set_hparams)


def num_params(trainable_type: tff.Type) -> int:
  """Returns the length of the vector of all weights of a type."""
  tensors = tff.structure.flatten(trainable_type)
  return sum(math.prod(tensor.shape) for tensor in tensors)


def flatten(weights):
  """Returns all tensors of a structure as one vector."""
  return tf.concat(
      [tf.reshape(tensor, [-1]) for tensor in tf.nest.flatten(weights)], axis=0
  )


def unflatten(vector, *, like):
  """Returns a vector of `flatten` as tensors in the structure of `like`."""
  tensors = tf.nest.flatten(like)
  parts = tf.split(vector, [tensor.shape.num_elements() for tensor in tensors])
  return tf.nest.pack_sequence_as(
      like,
      [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, tensors)],
  )
