# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Keras 3 models as TFF's functional models, with frozen weights.

The model is called once for training and once for inference, each time into a
graph of its own. The process runs these graphs, so later changes of the Keras
model do not reach it. The trained weights get noise. The frozen ones go to the
clients as they are.

Dropout needs new masks in every step, but TFF drops the state of Keras' seed
generators. Here the seeds of each call follow from its features and the trained
weights. So two clients have the same masks only if they have the same features
and the same weights, and a resumed run has the masks of the run before.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import contextlib
import functools
import hashlib
import re
import traceback
from typing import Any
import warnings

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import keras3_draws

BROADCAST, CONSTANTS = FROZEN_AS = ('broadcast', 'constants')
# A graph of larger constants takes minutes to build.
_MOST_CONSTANT_BYTES = 32 * 10**6
# The initial weights are constants of one graph, and a protocol buffer ends at
# 2**31 bytes.
_MOST_BYTES = 19 * 10**8
_MASK = '_keras_mask'
# Operations that call Python.
_PYTHON = ('PyFunc', 'PyFuncStateless', 'EagerPyFunc')
# Longest part of an inner error's message.
_LONGEST = 300


class Keras3Model(tff.learning.models.FunctionalModel):
  """A functional model of a Keras 3 model.

  Attributes:
    num_trained: Number of trained scalars.
    num_frozen: Number of frozen scalars.
    frozen_as: 'broadcast' or 'constants'.
  """

  def __init__(
      self,
      predict: Callable[..., Any],
      *,
      num_trained: int,
      num_frozen: int,
      frozen_as: str,
      **parts,
  ):
    super().__init__(
        predict_on_batch_fn=tf.function(predict, autograph=False), **parts
    )
    self._predict = predict
    self.num_trained = num_trained
    self.num_frozen = num_frozen
    self.frozen_as = frozen_as

  def __repr__(self) -> str:
    return (
        f'<Keras3Model: trains {self.num_trained:,} numbers;'
        f' {self.num_frozen:,} are frozen ({self.frozen_as})>'
    )

  # TFF's own methods are `tf.function`s, which lose the masks that Keras
  # attaches to outputs and reads in losses and metrics.
  def predict_on_batch(self, model_weights, x, training=True):
    return self._predict(model_weights, x, training)

  def update_metrics_state(
      self, state, labels, batch_output, sample_weight=None
  ):
    return self._update_metrics_state(
        state, labels, batch_output, sample_weight
    )


def functional_model_from_keras3(
    model: Any,
    loss: Callable[[Any, Any], Any],
    input_spec: Any,
    *,
    metrics_constructor: Any = None,
    frozen_as: str = BROADCAST,
) -> Keras3Model:
  """Returns a Keras 3 model as a functional model of its present weights.

  This reads `weight.trainable` of each weight now. The other weights are
  frozen. They get no noise, and the privacy statement counts them as public:
  they must not come from the data that is protected. This includes the
  statistics of an adapted `Normalization` and of a frozen `BatchNormalization`.
  The initial values of the trained weights, and numbers in the code of model
  and loss, such as class weights, bins and `Normalization(mean=...)`, count as
  public, too.

  Args:
    model: A built `keras.Model` on the TensorFlow backend.
    loss: Loss of a batch, a function of labels and outputs that returns a
      scalar, such as a `keras.losses.Loss`.
    input_spec: Specs of a batch (x, y), with `None` as the batch size.
    metrics_constructor: Class or function that makes a `keras.metrics.Metric`,
      or a dictionary of such, by name. Default: no metrics.
    frozen_as: 'broadcast' sends the frozen weights to the clients in each
      round. 'constants' writes them into the graph and keeps only their digest
      among the weights. They may then have at most 32 MB.

  Raises:
    ArgumentError: If the model cannot be trained like this, or another argument
      does not fit it. The message says what would be allowed.
  """
  keras = _keras_of(model)
  _checks.one_of(FROZEN_AS, frozen_as=frozen_as)
  if not callable(loss) or isinstance(loss, type):
    raise _checks.ArgumentError(
        'loss',
        loss,
        'an instance, such as'
        ' keras.losses.SparseCategoricalCrossentropy(from_logits=True)',
    )
  x_spec, y_spec = _pair(input_spec)
  for spec in tf.nest.flatten((x_spec, y_spec)):
    if not isinstance(spec, tf.TensorSpec):
      raise _checks.ArgumentError(
          'input_spec',
          spec,
          'tf.TensorSpec alone; make ragged or sparse data dense in the'
          " clients' datasets, for example with padded_batch",
      )
  call = _Call(keras, model)
  _check_weights(model, call, frozen_as)
  graphs = {
      training: _Graph(
          'model',
          lambda *arguments, training=training: call(*arguments, training),
          *map(_specs, (call.trained, call.frozen, call.seeds)),
          x_spec,
          model=model,
      )
      for training in (True, False)
  }
  for graph in graphs.values():
    draw = keras3_draws.unseeded(
        graph.graph,
        num_fixed=len(call.trained) + len(call.frozen),
        num_seeds=len(call.seeds),
    )
    if draw is not None:
      raise _checks.ArgumentError(
          'model',
          _layer_of(model, draw),
          'random numbers from a keras.random.SeedGenerator that the layer'
          ' makes when it is built; other random numbers would be the same in'
          ' every step, or differ when a run is resumed',
      )
  trained, frozen = map(_values, (call.trained, call.frozen))
  fixed = frozen if frozen and frozen_as == CONSTANTS else None

  def predict(weights, x, training):
    trained, frozen = map(tf.nest.flatten, weights)
    if fixed is not None:
      frozen = [tf.constant(value) for value in fixed]
    seeds = keras3_draws.seeds(call.seeds, trained, x)
    outputs, masks = graphs[bool(training)](trained, frozen, seeds, x)
    return _with_masks(outputs, masks)

  output_specs = _specs_of_outputs(graphs[True])
  try:
    loss_graph = _Graph(
        'loss',
        lambda y, outputs, masks: tf.cast(
            loss(y, _with_masks(outputs, masks)), tf.float32
        ),
        y_spec,
        *output_specs,
    )
  except _checks.ArgumentError:
    raise
  except Exception as error:  # Whatever a loss raises.
    raise _checks.ArgumentError(
        'loss',
        loss,
        f'a function of labels and outputs, here {y_spec} and'
        f' {output_specs[0]}; it fails on these ({_said(error)})',
    ) from error
  if loss_graph.outputs.shape.rank != 0:
    raise _checks.ArgumentError(
        'loss',
        loss,
        f'a scalar for each batch, not shape {loss_graph.outputs.shape}',
    )

  def loss_of(output, label, sample_weight=None):
    del sample_weight
    return loss_graph(label, output, _masks(output))

  return Keras3Model(
      predict,
      num_trained=sum(value.size for value in trained),
      num_frozen=sum(value.size for value in frozen),
      frozen_as=frozen_as,
      initial_weights=(
          tuple(trained),
          tuple(frozen) if fixed is None else (_digest(fixed),),
      ),
      loss_fn=loss_of,
      metrics_fns=_metrics_fns(
          keras, metrics_constructor, y_spec, output_specs
      ),
      input_spec=input_spec,
  )


def assign_to_keras3(model: Any, weights: Any) -> None:
  """Assigns the weights of a run to the Keras 3 model that it came from.

  Weights are matched by their order. Their shapes and types must be equal. A
  warning tells if frozen values of the model were replaced by others.

  Args:
    model: The model, or another one that has the same layers and in which the
      same weights are frozen.
    weights: `tff.learning.models.ModelWeights`, such as `result.model_weights`
      or `program.read_model(output_dir)`.

  Raises:
    ArgumentError: If `model` is not a built model of Keras 3, or if the weights
      do not fit it. Also if the run kept only a digest of its frozen weights,
      and the model has other frozen weights.
  """
  keras = _keras_of(model)
  call = _Call(keras, model)
  trained, frozen = (
      [np.asarray(value) for value in tf.nest.flatten(each)]
      for each in (weights.trainable, weights.non_trainable)
  )
  own = _values(call.frozen)
  digest = _digest(own)
  is_digest = bool(own) and _forms(frozen) == _forms([digest]) != _forms(own)
  if _forms(trained) != _forms(call.trained) or not (
      is_digest or _forms(frozen) == _forms(own)
  ):
    raise _checks.ArgumentError(
        'weights',
        f'{len(trained)} trained and {len(frozen)} frozen weights',
        f'weights of the shapes of the model, {len(call.trained)} trained and'
        f' {len(call.frozen)} frozen ones; freeze the layers that were frozen'
        ' in the run',
    )
  is_equal = np.array_equal(frozen[0] if is_digest else _digest(frozen), digest)
  if is_digest and not is_equal:
    raise _checks.ArgumentError(
        'model', model.name, 'a model with the frozen weights of the run'
    )
  if not is_equal:
    warnings.warn(
        f'frozen weights of {model.name} are replaced by other values, from the'
        ' run: was the same layer frozen?'
    )
  values = trained + ([] if is_digest else frozen)
  for variable, value in zip(call.trained + call.frozen, values):
    variable.assign(value)
  for layer in _layers(model):
    # Normalization computes with copies of its weights.
    if callable(getattr(layer, 'finalize_state', None)):
      layer.finalize_state()


class _Call:
  """A call of a Keras model whose variables are arguments."""

  def __init__(self, keras, model):
    if not model.built:
      raise _checks.ArgumentError(
          'model',
          model.name,
          'a model with weights; build it: model(batch), or keras.Input(...) as'
          ' its first layer',
      )
    self._keras, self._model = keras, model
    weights = {id(variable) for variable in model.weights}
    metrics = {id(variable) for variable in model.metrics_variables}
    self.trained = list(model.trainable_variables)
    others = [
        variable
        for variable in model.non_trainable_variables
        if id(variable) not in metrics
    ]
    self.frozen = [each for each in others if id(each) in weights]
    self.seeds = [each for each in others if id(each) not in weights]

  def __call__(self, trained, frozen, seeds, x, training):
    """Returns the outputs, and the masks that Keras attached to them."""
    mapping = [
        *zip(self.trained, trained),
        *zip(self.frozen, frozen),
        *zip(self.seeds, seeds),
    ]
    with (
        self._keras.StatelessScope(mapping, collect_losses=True) as scope,
        _whole_tracebacks(self._keras),
    ):
      try:
        outputs = self._model(_as_inputs(self._model, x), training=training)
      except Exception as error:  # Whatever a layer raises.
        _refuse_python('model', self._model, tf.compat.v1.get_default_graph())
        raise _failed_call(self._model, x, error) from error
    # The trained ones first: SpectralNormalization assigns both.
    for variable, value in mapping[: len(self.trained) + len(self.frozen)]:
      if scope.get_current_value(variable) is not value:
        raise _checks.ArgumentError(
            'model',
            variable.path,
            'no layer that assigns its weights, because the assigned values'
            ' would be lost; leave it out (SpectralNormalization, for instance)'
            if variable.trainable
            else 'no layer that changes its state in training, because the'
            ' state would leave clients without noise; set layer.trainable ='
            ' False, or replace the layer (BatchNormalization, for instance, by'
            ' GroupNormalization)',
        )
    if scope.losses:
      raise _checks.ArgumentError(
          'model',
          _layer_of(self._model, scope.losses[0].name),
          'no losses of layers, no add_loss and no activity_regularizer; make'
          ' each penalized value an output of the model, and penalize it in the'
          ' loss',
      )
    outputs = tf.nest.map_structure(tf.convert_to_tensor, outputs)
    return outputs, _masks(outputs)


class _Graph:
  """A function as a graph of its own, to be called in other graphs.

  Attributes:
    graph: The graph.
    outputs: Structure of its outputs.
  """

  def __init__(
      self,
      argument: str,
      function: Callable[..., Any],
      *specs: Any,
      model: Any = None,
  ):

    @tf.function(autograph=False)
    def flat(*tensors):
      return function(*tf.nest.pack_sequence_as(specs, tensors))

    self._concrete = flat.get_concrete_function(*tf.nest.flatten(specs))
    self.graph = self._concrete.graph
    self.outputs = self._concrete.structured_outputs
    _refuse_python(argument, model, self.graph)
    for op in self.graph.get_operations():
      # TensorFlow finds this only when it runs.
      if op.type == 'Cast' and op.inputs[0].dtype == tf.string:
        raise _checks.ArgumentError(
            'input_spec',
            'tf.string',
            f'numbers where {_layer_of(model, op.name)} computes; look words up'
            " in the clients' datasets",
        )
    for captured, placeholder in list(self.graph.captures):
      if captured.dtype in (tf.resource, tf.variant):
        users = [each.name for each in placeholder.consumers()]
        raise _checks.ArgumentError(
            argument,
            _layer_of(model, (users or [placeholder.name])[0]),
            'no layer with variables or tables of its own (lookups, or a random'
            ' draw without a keras.random.SeedGenerator in the layer); do this'
            ' in the clients\' datasets, or make the variables with add_weight'
            if model is not None
            else 'a function of labels and outputs alone; it cannot read'
            ' weights',
        )
      value = captured.numpy()
      # A constant of the graph in which it is called, whichever that is.
      self._concrete.replace_capture_with_deferred_capture(
          captured,
          lambda value=value: tf.constant(value),
          tf.TensorSpec(captured.shape, captured.dtype),
          placeholder,
      )

  def __call__(self, *arguments: Any) -> Any:
    return self._concrete(*tf.nest.flatten(arguments))


def _refuse_python(argument: str, model: Any, graph: tf.Graph) -> None:
  """Raises if an operation of a graph calls Python."""
  for op in graph.get_operations():
    if op.type in _PYTHON:
      raise _checks.ArgumentError(
          argument,
          _layer_of(model, op.name),
          'operations of TensorFlow alone; Python code (numpy_function,'
          ' py_function) is not in the graph, and so not in what clients run',
      )


def _failed_call(model: Any, x: Any, error: Exception) -> Exception:
  """Returns what to say of an error in a call of the model."""
  frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
  owners = [frame.f_locals.get('self') for frame in frames]
  layers = {id(layer): layer.name for layer in _layers(model)}
  failed = [layers[id(each)] for each in owners if id(each) in layers]
  name = failed[-1] if failed else model.name
  said = _said(error)
  is_of_inputs = isinstance(
      error, (KeyError, TypeError, ValueError, tf.errors.OpError)
  ) and not isinstance(error, tf.errors.OperatorNotAllowedInGraphError)
  if not is_of_inputs:
    return _checks.ArgumentError(
        'model',
        name,
        'a layer that TensorFlow can trace: no numpy(), and no if or while of'
        ' Python that depends on a tensor; keras.ops.where and'
        f' keras.ops.while_loop do the same ({said})',
    )
  specs = tf.nest.map_structure(
      lambda each: tf.TensorSpec(each.shape, each.dtype), x
  )
  return _checks.ArgumentError(
      'input_spec',
      specs,
      'features of the structure and shapes that the model takes;'
      f' {"" if name == model.name else "its layer "}{name} fails on these'
      f' ({said})',
  )


@contextlib.contextmanager
def _whole_tracebacks(keras):
  """Keeps Keras from shortening tracebacks and from wrapping errors."""
  was_short = keras.config.is_traceback_filtering_enabled()
  keras.config.disable_traceback_filtering()
  try:
    yield
  finally:
    if was_short:
      keras.config.enable_traceback_filtering()


def _keras_of(model: Any):
  """Returns the Keras of the model, if that is Keras 3 on TensorFlow."""
  import keras  # pylint: disable=g-import-not-at-top

  if not hasattr(keras, 'StatelessScope') or not isinstance(model, keras.Model):
    raise _checks.ArgumentError(
        'model',
        model,
        'a keras.Model of Keras 3; for one of Keras 2 there is'
        ' tff.learning.models.functional_model_from_keras',
    )
  if keras.backend.backend() != 'tensorflow':
    raise _checks.ArgumentError(
        'model',
        f'{model.name} on {keras.backend.backend()}',
        "the backend 'tensorflow'; set KERAS_BACKEND=tensorflow before keras is"
        ' imported',
    )
  return keras


def _layers(model: Any) -> list[Any]:
  """Returns a model, its layers, their layers, and so on."""
  return model._flatten_layers()  # pylint: disable=protected-access


def _layer_of(model: Any, operation: str) -> str:
  """Returns the name of the innermost layer that an operation belongs to."""
  names = {layer.name for layer in _layers(model)} if model else ()
  for part in reversed(operation.split('/')):
    # Keras numbers the scopes of later calls.
    for name in (part, re.sub(r'_\d+$', '', part)):
      if name in names:
        return name
  return operation


def _as_inputs(model: Any, x: Any) -> Any:
  """Returns features in the order of the model's inputs.

  Keras takes features in an OrderedDict by their place, not by their name.
  """
  if not isinstance(x, Mapping):
    return x
  like = getattr(model, 'input', None)
  return type(like)((name, x[name]) for name in like) if isinstance(
      like, Mapping
  ) else dict(x)


def _said(error: Exception) -> str:
  """Returns kind and message of an error, in one short line."""
  message = ' '.join(str(error).split())
  return f'{type(error).__name__}: {message}'[:_LONGEST]


def _pair(input_spec: Any) -> tuple[Any, Any]:
  if isinstance(input_spec, Mapping) and set(input_spec) == {'x', 'y'}:
    return input_spec['x'], input_spec['y']
  if isinstance(input_spec, Sequence) and len(input_spec) == 2:
    return input_spec[0], input_spec[1]
  raise _checks.ArgumentError(
      'input_spec', input_spec, 'a pair (x, y) of tf.TensorSpec structures'
  )


def _check_weights(model: Any, call: _Call, frozen_as: str) -> None:
  """Raises if the trained or the frozen weights do not allow this training.

  Warns if the factor A of a LoRA pair is trained, or if a layer computes in
  float16.
  """
  if not call.trained:
    raise _checks.ArgumentError(
        'model',
        model.name,
        'a model with a weight to train; set layer.trainable = True where you'
        ' want it',
    )
  for layer in _layers(model):
    if getattr(layer, 'stateful', False):
      raise _checks.ArgumentError(
          'model',
          layer.name,
          'no layer that keeps its state from batch to batch; leave out'
          ' stateful=True',
      )
  for variable in call.trained:
    # Its "gradient" is its next value.
    if getattr(variable, 'overwrite_with_gradient', False):
      raise _checks.ArgumentError(
          'model',
          f'{variable.path}: float8',
          'no float8, because its scales cannot be trained; use another dtype'
          ' policy or quantization, or freeze the layer',
      )
    if variable.dtype != 'float32':
      raise _checks.ArgumentError(
          'model',
          f'{variable.path}: {variable.dtype}',
          'float32 for each trained weight; freeze this layer, or use the dtype'
          " policy 'mixed_float16'",
      )
    for name in ('regularizer', 'constraint'):
      if getattr(variable, name, None) is not None:
        raise _checks.ArgumentError(
            'model',
            f'{variable.path}: {name}',
            f'no {name}, which training here would ignore; leave it out',
        )
  for variable, value in zip(call.frozen, _values(call.frozen)):
    # Files of a run hold NumPy's own types.
    if frozen_as == BROADCAST and value.dtype.isbuiltin != 1:
      raise _checks.ArgumentError(
          'model',
          f'{variable.path}: {variable.dtype}',
          'frozen weights of a type that NumPy has; pass'
          " frozen_as='constants', or use the dtype policy 'mixed_bfloat16'",
      )
  size = _num_bytes(call.frozen)
  if frozen_as == CONSTANTS and size > _MOST_CONSTANT_BYTES:
    raise _checks.ArgumentError(
        'frozen_as',
        frozen_as,
        f"'broadcast', because the frozen weights have {size:,} bytes, and"
        f' constants may have at most {_MOST_CONSTANT_BYTES:,}',
    )
  size += _num_bytes(call.trained)
  if size > _MOST_BYTES:
    raise _checks.ArgumentError(
        'model',
        f'{model.name}: {size:,} bytes',
        f'at most {_MOST_BYTES:,} bytes of weights, because a graph of'
        ' TensorFlow must stay below 2^31 bytes; compute the features of a'
        " larger body once, in the clients' datasets, and train the head",
    )
  lora = [each.path for each in call.trained if 'lora_kernel_a' in each.path]
  if lora:
    warnings.warn(
        f'{lora[0]} (A) is trained together with lora_kernel_b (B): the product'
        ' of their means over clients is not the mean of the products. Freeze'
        ' A: layer.lora_kernel_a.trainable = False'
    )
  if any(layer.compute_dtype == 'float16' for layer in _layers(model)):
    warnings.warn(
        f'{model.name} computes in float16, without loss scaling: small'
        " gradients become zero. 'mixed_bfloat16' has the range of float32"
    )


def _metrics_fns(keras, constructor, y_spec, output_specs) -> tuple[Any, ...]:
  """Returns functions that begin, update and finalize the metrics' state."""
  made = {} if constructor is None else constructor
  if callable(made) and not isinstance(made, keras.Metric):
    made = made()
  if isinstance(made, Sequence):
    raise _checks.ArgumentError(
        'metrics_constructor',
        made,
        'a metric class, or a dictionary of metric classes by name',
    )
  if not isinstance(made, Mapping):
    made = {getattr(made, 'name', 'metric'): made}
  metrics = {
      str(name): each() if callable(each) and not isinstance(each, keras.Metric)
      else each
      for name, each in made.items()
  }
  for name, metric in metrics.items():
    if not isinstance(metric, keras.Metric):
      raise _checks.ArgumentError(
          'metrics_constructor',
          f'{name}: {metric!r}',
          'a metric of Keras 3, from keras.metrics; tf.keras is Keras 2 here',
      )
    metric.reset_state()
  initial = {name: _values(each.variables) for name, each in metrics.items()}
  specs = {name: _specs(each.variables) for name, each in metrics.items()}

  def graphs_of(method, *arguments):
    graphs = {}
    for name, metric in metrics.items():
      late = _checks.ArgumentError(
          'metrics_constructor',
          name,
          'a metric whose variables exist once it is constructed, and that'
          ' takes labels and outputs; if the metric makes its variables at its'
          ' first batch, pass a function that makes the metric, calls it on a'
          ' batch and returns it',
      )
      try:
        graphs[name] = _Graph(
            'metrics_constructor',
            functools.partial(method, metric),
            specs[name],
            *arguments,
        )
      except Exception as error:  # Whatever a metric raises.
        raise late from error
      if len(metric.variables) != len(specs[name]):
        raise late
    return graphs

  def update(metric, state, labels, outputs, masks):
    return metric.stateless_update_state(
        state, labels, _with_masks(outputs, masks)
    )

  updates = graphs_of(update, y_spec, *output_specs)
  results = graphs_of(lambda metric, state: metric.stateless_result(state))

  # Tuples, because a list is one tensor in tf.data.
  @tf.function(autograph=False)
  def initialize():
    return collections.OrderedDict(
        (name, tuple(map(tf.constant, values)))
        for name, values in initial.items()
    )

  def add(state, labels, batch_output, sample_weight=None):
    del sample_weight
    outputs = batch_output.predictions
    return collections.OrderedDict(
        (name, tuple(graph(state[name], labels, outputs, _masks(outputs))))
        for name, graph in updates.items()
    )

  @tf.function(autograph=False)
  def finalize(state):
    return collections.OrderedDict(
        (name, graph(state[name])) for name, graph in results.items()
    )

  return initialize, add, finalize


def _masks(outputs: Any) -> dict[str, tf.Tensor]:
  """Returns the masks that Keras attached, by the number of their output."""
  found = {
      f'{index:04}': getattr(each, _MASK, None)
      for index, each in enumerate(tf.nest.flatten(outputs))
  }
  return {name: mask for name, mask in found.items() if mask is not None}


def _with_masks(outputs: Any, masks: Mapping[str, tf.Tensor]) -> Any:
  flat = tf.nest.flatten(outputs)
  for name, mask in masks.items():
    setattr(flat[int(name)], _MASK, mask)
  return outputs


def _specs_of_outputs(graph: _Graph) -> tuple[Any, Any]:
  return tf.nest.map_structure(
      lambda each: tf.TensorSpec(each.shape, each.dtype), graph.outputs
  )


def _specs(variables) -> list[tf.TensorSpec]:
  return [tf.TensorSpec(each.shape, each.dtype) for each in variables]


def _num_bytes(variables) -> int:
  return sum(
      spec.shape.num_elements() * spec.dtype.size for spec in _specs(variables)
  )


def _values(variables) -> list[np.ndarray]:
  return [np.asarray(each) for each in variables]


def _forms(values) -> list[tuple[tuple[int, ...], str]]:
  return [(tuple(value.shape), str(value.dtype)) for value in values]


def _digest(values: list[np.ndarray]) -> np.ndarray:
  """Returns the SHA-256 of arrays, their types and shapes, uint8 [32]."""
  digest = hashlib.sha256()
  for value in values:
    digest.update(f'{value.dtype}{value.shape}'.encode())
    digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
  return np.frombuffer(digest.digest(), np.uint8).copy()
