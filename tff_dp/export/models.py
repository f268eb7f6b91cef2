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
from tff_dp.files import arrays

_OBJECT_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'
_TYPES = re.compile(rf'\w+_spec{re.escape(_VALUE)}')
_KINDS = _TRAINABLE, _NON_TRAINABLE = 'trainable', 'non_trainable'


def read_weights(path: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the weights in an `.npz` file, by names such as `trainable/0`."""
  return arrays.read(path)


def write_saved_model(
    folder: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    model: tff.learning.models.FunctionalModel | None,
) -> None:
  """Writes a SavedModel with one or two signatures.

  The signature `weights` returns all weights. `serving_default` maps the
  features of a batch to the prediction. This second signature is left out
  without a model, or if the prediction is not one tensor.

  Args:
    folder: Folder to make.
    weights: Weights of the run.
    model: Model of the weights, `None` if only the weights are known.
  """
  module = tf.Module()
  module.variables_by_name = {
      flat_name(name): tf.Variable(value, trainable=False)
      for name, value in weights.items()
  }
  names = [flat_name(name) for name in weights]

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


def run_saved_model(folder: pathlib.Path) -> dict[str, np.ndarray]:
  """Returns the weights that a SavedModel returns, by their `flat_name`.

  This runs graphs.

  Args:
    folder: Folder that `write_saved_model` wrote.
  """
  loaded = tf.saved_model.load(str(folder))
  found = loaded.signatures['weights']()
  return {name: value.numpy() for name, value in found.items()}


def write_functional_model(
    folder: pathlib.Path,
    weights: Mapping[str, np.ndarray],
    model: tff.learning.models.FunctionalModel,
) -> None:
  """Writes the model, with the weights of the run as its initial weights.

  The written model has no metrics. Assign them after loading it.

  Args:
    folder: Folder to make.
    weights: Weights of the run.
    model: Model of the weights.
  """
  structured = _arranged(weights, model)
  trained = tff.learning.models.FunctionalModel(
      initial_weights=structured,
      predict_on_batch_fn=tf.function(model.predict_on_batch),
      loss_fn=model.loss,
      input_spec=model.input_spec,
  )
  tff.learning.models.save_functional_model(trained, str(folder))


def run_functional_model(folder: pathlib.Path) -> list[np.ndarray]:
  """Returns the weights of a functional model, trainable ones first.

  This runs graphs.

  Args:
    folder: Folder that `write_functional_model` wrote.
  """
  loaded = tff.learning.models.load_functional_model(str(folder))
  return [np.asarray(value) for value in tf.nest.flatten(loaded.initial_weights)]


def variable_in_saved_model(name: str) -> str:
  """Returns the variable that holds a weight in a SavedModel's checkpoint."""
  return f'variables_by_name/{flat_name(name)}{_VALUE}'


def variable_in_functional_model(name: str) -> str:
  """Returns the variable of a weight in a functional model's checkpoint."""
  kind, _, rest = name.partition('/')
  return f'_weights/{_KINDS.index(kind)}/{rest}{_VALUE}'


def flat_name(name: str) -> str:
  """Returns a SavedModel's name for a weight of a run."""
  return name.replace('/', '_')


def stored(
    folder: pathlib.Path, specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]]
) -> dict[str, np.ndarray]:
  """Returns the variables in the checkpoint of a SavedModel. No graph runs.

  Args:
    folder: Folder of the SavedModel, or of the functional model.
    specs: Type and shape of each expected variable, by name. Variables
      `..._spec`, which TFF writes beside the weights, are ignored.

  Raises:
    ValueError: If a variable is missing, unknown, or of another type or shape.
  """
  reader = tf.train.load_checkpoint(str(folder / 'variables' / 'variables'))
  types = reader.get_variable_to_dtype_map()
  found = {
      name: (types[name].as_numpy_dtype, tuple(shape))
      for name, shape in reader.get_variable_to_shape_map().items()
      if name != _OBJECT_GRAPH and not _TYPES.fullmatch(name)
  }
  # Checked before one is read, because the file states the sizes.
  for name in {**specs, **found}:
    if found.get(name) != specs.get(name):
      raise ValueError(f'the variable {name} does not match model.npz')
  return {name: reader.get_tensor(name) for name in found}


def in_order(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns the weights of a model, trainable ones first."""
  return {
      name: value
      for kind in _KINDS
      for name, value in weights.items()
      if name.startswith(f'{kind}/')
  }


def check(model: Any, weights: Mapping[str, np.ndarray]) -> None:
  """Raises unless the weights fit the model.

  Args:
    model: A `tff.learning.models.FunctionalModel`.
    weights: Weights by name, see `read_weights`.

  Raises:
    ArgumentError: If `model` is anything else, or has weights of other shapes.
  """
  _checks.instance_of(
      tff.learning.models.FunctionalModel,
      'a tff.learning.models.FunctionalModel;'
      ' tff.learning.models.functional_model_from_keras makes one from a Keras'
      ' model that was built anew for this',
      model=model,
  )
  _arranged(weights, model)


def _arranged(weights: Mapping[str, Any], model) -> tuple[Any, Any]:
  """Returns the weights in the structure of the model's initial weights."""
  arranged = []
  for kind, like in zip(_KINDS, model.initial_weights):
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
