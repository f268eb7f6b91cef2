# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Any TFF model as a function of one vector: all of its trainable weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import finalizers
from tff_dp.learning import linear_models
from tff_dp.learning import local_training

# (vector, batch) -> (gradient of the mean loss, mean loss, number of records,
# number of refused labels)
Gradient = Callable[
    [tf.Tensor, Any], tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]
]


class FlatModel:
  """A model whose weights are one float32 vector of length `num_params`.

  Attributes:
    model_fn: Model, or function that returns it, as given.
    num_params: Length of the vector.
    input_spec: Spec of a batch.
    initial_weights: Computation of the initial `ModelWeights`.
  """

  def __init__(self, model_fn: local_training.ModelFn):
    """Checks and stores the model.

    Args:
      model_fn: A `FunctionalModel`, or a function without arguments that
        returns a new `VariableModel`, such as with
        `tff.learning.models.from_keras_model`.

    Raises:
      ArgumentError: If `model_fn` is neither a `FunctionalModel` nor a
        function, or if the model has weights that are not float32 or not
        trainable.
    """
    self.model_fn = model_fn
    self._is_functional = isinstance(
        model_fn, tff.learning.models.FunctionalModel
    )
    if self._is_functional:
      trainable, others = model_fn.initial_weights
      specs = [_spec(np.asarray(w)) for w in tf.nest.flatten(trainable)]
      num_others = len(tf.nest.flatten(others))
      self.input_spec = model_fn.input_spec
      local_training.features_and_label(self.input_spec)
    else:
      if not callable(model_fn):
        raise _checks.ArgumentError(
            'model',
            model_fn,
            'a FunctionalModel, or a function that returns a VariableModel',
        )
      with tf.Graph().as_default():
        model = model_fn()
        specs = [_spec(v) for v in model.trainable_variables]
        num_others = len(list(model.non_trainable_variables))
        self.input_spec = model.input_spec
    if num_others:
      raise _checks.ArgumentError(
          'model',
          f'{num_others} non-trainable weights',
          'a model without non-trainable weights: batch statistics, as in batch'
          ' normalisation, would be sent without noise, and frozen weights are'
          ' not supported',
      )
    if any(spec.dtype != tf.float32 for spec in specs):
      raise _checks.ArgumentError(
          'model', [spec.dtype.name for spec in specs], 'float32 weights'
      )
    self.initial_weights = local_training.build_initial_weights(model_fn)
    self._like = tff.types.type_to_tf_tensor_specs(
        self.initial_weights.type_signature.result.trainable
    )
    self.num_params = sum(spec.shape.num_elements() for spec in specs)

  def weights(self, vector) -> tff.learning.models.ModelWeights:
    """Returns the weights that a vector holds."""
    non_trainable = self.initial_weights.type_signature.result.non_trainable
    return tff.learning.models.ModelWeights(
        finalizers.unflatten(vector, like=self._like),
        non_trainable.python_container(),
    )

  def build_gradient(self) -> Gradient:
    """Returns the function that computes the gradient of a batch's mean loss.

    Call this method where a computation is traced, but outside of a
    `tf.function`: it makes the variables of a `VariableModel`.
    """
    if self._is_functional:
      model = self.model_fn

      def loss_of(vector, batch):
        x, y = local_training.features_and_label(batch)
        with tf.GradientTape() as tape:
          tape.watch(vector)
          output = model.predict_on_batch(
              (self.weights(vector).trainable, ()), x, training=True
          )
          loss = tf.reduce_mean(model.loss(output, y))
        return loss, _gradient(tape, loss, vector)

    else:
      model = self.model_fn()

      def loss_of(vector, batch):
        variables = list(model.trainable_variables)
        self._assign(variables, vector)
        with tf.GradientTape() as tape:
          loss = model.forward_pass(batch, training=True).loss
        return loss, finalizers.flatten(_gradient(tape, loss, variables))

    def gradient(vector, batch):
      loss, rows = loss_of(vector, batch)
      size = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
      refused = tf.constant(0, tf.int64)
      if isinstance(model, linear_models.GeneralizedLinearModel):
        refused = model.num_refused(batch[1])
      return rows, loss, size, refused

    return gradient

  def build_predict(self) -> Callable[[tf.Tensor, Any], Any]:
    """Returns the function (vector, x) -> predictions.

    Call this method where a computation is traced, see `build_gradient`. A
    generalised linear model gives mean responses. Other models give the result
    of their `predict_on_batch`.
    """
    model = self.model_fn if self._is_functional else self.model_fn()

    def predict(vector, x):
      if not self._is_functional:
        self._assign(list(model.trainable_variables), vector)
        return model.predict_on_batch(x, training=False)
      output = model.predict_on_batch(
          (self.weights(vector).trainable, ()), x, training=False
      )
      if isinstance(model, linear_models.GeneralizedLinearModel):
        return model.response(output)
      return output

    return predict

  def _assign(self, variables, vector) -> None:
    values = tf.nest.flatten(finalizers.unflatten(vector, like=self._like))
    for variable, value in zip(variables, values, strict=True):
      variable.assign(value)


def _spec(weight) -> tf.TensorSpec:
  return tf.TensorSpec(weight.shape, weight.dtype)


def _gradient(tape, loss, of):
  return tape.gradient(
      loss, of, unconnected_gradients=tf.UnconnectedGradients.ZERO
  )
