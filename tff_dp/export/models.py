# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The model of a run as a SavedModel, and as TFF's functional model."""

from collections.abc import Mapping
import pathlib
import re
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks

_OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_TYPES = re.compile(r'\w+_spec/\.ATTRIBUTES/VARIABLE_VALUE')
_TRAINABLE, _NON_TRAINABLE = 'trainable', 'non_trainable'


def read_weights(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the weights in an `.npz` file of a run, by their path there."""
  with np.load(path, allow_pickle=False) as arrays:
    return {name: arrays[name] for name in arrays.files}


def write_saved_model(
    folder: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    model: tff.learning.models.FunctionalModel | None,
) -> None:
  """Writes a SavedModel with two signatures, of which one needs a model.

  `weights` returns all weights; `serving_default` maps the features of a batch
  to the prediction.

  Args:
    folder: To be made.
    weights: Of the run.
    model: Which the weights belong to, or `None`.
  """
  module = tf.Module()
  module.variables_by_name = {
      name.replace('/', '_'): tf.Variable(value, trainable=False)
      for name, value in weights.items()
  }
  names = [name.replace('/', '_') for name in weights]

  @tf.function(input_signature=[])
  def weights_of():
    return {name: module.variables_by_name[name] + 0 for name in names}

  signatures = {'weights': weights_of.get_concrete_function()}
  if model is not None:
    structured = _arranged(
        dict(zip(weights, (module.variables_by_name[name] for name in names))),
        model,
    )

    @tf.function(input_signature=[model.input_spec[0]])
    def predict(x):
      return model.predict_on_batch(structured, x, training=False)

    module.predict = predict
    concrete = predict.get_concrete_function()
    if isinstance(concrete.structured_outputs, (tf.TensorSpec, tf.Tensor)):
      signatures['serving_default'] = concrete
  tf.saved_model.save(module, str(folder), signatures=signatures)


def read_saved_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the weights in a SavedModel, named as `read_weights` does but `_`."""
  loaded = tf.saved_model.load(str(folder))
  found = loaded.signatures['weights']()
  return {name: value.numpy() for name, value in found.items()}


def write_functional_model(
    folder: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    model: tff.learning.models.FunctionalModel,
) -> None:
  """Writes the model, with the weights of the run as its initial ones.

  Without metrics, which whoever loads it assigns.

  Args:
    folder: To be made.
    weights: Of the run.
    model: Which the weights belong to.
  """
  structured = _arranged(weights, model)
  trained = tff.learning.models.FunctionalModel(
      initial_weights=structured,
      predict_on_batch_fn=tf.function(model.predict_on_batch),
      loss_fn=model.loss,
      input_spec=model.input_spec,
  )
  tff.learning.models.save_functional_model(trained, str(folder))


def read_functional_model(folder: pathlib.Path) -> list[np.ndarray]:
  """Returns the weights in a functional model, trainable ones first."""
  loaded = tff.learning.models.load_functional_model(str(folder))
  return [np.asarray(value) for value in tf.nest.flatten(loaded.initial_weights)]


def stored_shapes(folder: pathlib.Path) -> list[list[int]]:
  """Returns the shapes of all variables in a SavedModel, sorted.

  But for the object graph, and the types that TFF writes beside the weights.

  Args:
    folder: Of the SavedModel, or the functional model.
  """
  stored = tf.train.list_variables(str(folder / 'variables' / 'variables'))
  return sorted(
      list(shape)
      for name, shape in stored
      if name != _OBJECT_GRAPH and not _TYPES.fullmatch(name)
  )


def in_order(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns the weights of a model, trainable ones first."""
  return {
      name: value
      for kind in (_TRAINABLE, _NON_TRAINABLE)
      for name, value in weights.items()
      if name.startswith(f'{kind}/')
  }


def check(model: Any, weights: Mapping[str, np.ndarray]) -> None:
  """Raises unless the weights are those of the model."""
  _checks.instance_of(
      tff.learning.models.FunctionalModel,
      'a tff.learning.models.FunctionalModel; of a Keras model, built anew for'
      ' this, tff.learning.models.functional_model_from_keras makes one',
      model=model,
  )
  _arranged(weights, model)


def _arranged(weights: Mapping[str, Any], model) -> tuple[Any, Any]:
  """Returns the weights in the structure of the model's initial ones."""
  arranged = []
  for kind, like in zip((_TRAINABLE, _NON_TRAINABLE), model.initial_weights):
    flat = [
        value for name, value in weights.items() if name.startswith(f'{kind}/')
    ]
    shapes = [np.shape(value) for value in tf.nest.flatten(like)]
    if [tuple(value.shape) for value in flat] != shapes:
      raise _checks.ArgumentError(
          'model',
          [list(shape) for shape in shapes],
          f'{kind} weights of the shapes of the run,'
          f' {[list(value.shape) for value in flat]}',
      )
    arranged.append(tf.nest.pack_sequence_as(like, flat))
  return tuple(arranged)
