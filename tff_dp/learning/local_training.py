# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Local training of a model at the clients, before any noise."""

from collections.abc import Callable, Mapping
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _compat
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.learning import late_weights

ModelFn = Union[
    Callable[[], tff.learning.models.VariableModel],
    tff.learning.models.FunctionalModel,
]

# TFF's default loop is the largest single cost of a round.
_LOOP = tff.learning.LoopImplementation.DATASET_ITERATOR


def build_initial_weights(
    model_fn: ModelFn, constraint: Optional[constraints.Constraint] = None
) -> tff.Computation:
  """Returns the computation of the initial model.

  Args:
    model_fn: Model, or function that returns it.
    constraint: Set to which the trainable weights are projected, `None` for no
      projection.

  Raises:
    ArgumentError: If the model is not one of TFF, or if weights that are
      trained are not float32.
  """

  check_model(model_fn)
  if not isinstance(model_fn, tff.learning.models.FunctionalModel):
    return _initial_weights(
        lambda: tff.learning.models.ModelWeights.from_model(model_fn()),
        constraint,
    )

  def build(get_frozen):
    trained, _ = model_fn.initial_weights
    return _initial_weights(
        # Same as in `build_weighted_fed_avg`.
        lambda: tff.learning.models.ModelWeights(
            *(
                tuple(map(tf.convert_to_tensor, weights))
                for weights in (trained, get_frozen())
            )
        ),
        constraint,
    )

  _, frozen = model_fn.initial_weights
  if late_weights.is_large(frozen):
    return late_weights.of_model(model_fn, build)
  return build(lambda: frozen)


def _initial_weights(get_weights, constraint) -> tff.Computation:
  """Returns the computation of the weights, projected to the constraint."""

  @tff.tensorflow.computation
  def initial_weights():
    weights = get_weights()
    if constraint is None:
      return weights
    return tff.learning.models.ModelWeights(
        finalizers.unflatten(
            constraint.project(finalizers.flatten(weights.trainable)),
            like=weights.trainable,
        ),
        weights.non_trainable,
    )

  trainable = initial_weights.type_signature.result.trainable
  dtypes = [np.dtype(part.dtype) for part in tff.structure.flatten(trainable)]
  if any(dtype != np.float32 for dtype in dtypes):
    raise _checks.ArgumentError(
        'model',
        [dtype.name for dtype in dtypes],
        "float32 weights: leave out dtype='float64' of the model's layers, and"
        ' cast the data',
    )
  return initial_weights


def build_client_work(
    model_fn: ModelFn,
    client_optimizer: tff.learning.optimizers.Optimizer,
    *,
    metrics_aggregator: Callable[..., Any] = (
        tff.learning.metrics.sum_then_finalize
    ),
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work of local training, for both kinds of TFF models.

  Args:
    model_fn: Model, or function that returns it.
    client_optimizer: Local optimizer of the clients.
    metrics_aggregator: Metrics aggregator as in `tff.learning.templates`, or
      `without_metrics` for none.

  Raises:
    ArgumentError: If the model or the optimizer is not one of TFF, or if the
      model cannot read batches of its `input_spec`.
  """
  check_model(model_fn)
  check_optimizer(client_optimizer=client_optimizer)
  arguments = dict(
      optimizer=client_optimizer,
      client_weighting=tff.learning.ClientWeighting.UNIFORM,
      metrics_aggregator=metrics_aggregator,
      loop_implementation=_LOOP,
  )
  if isinstance(model_fn, tff.learning.models.FunctionalModel):
    _check_is_batched(model_fn.input_spec)
    return tff.learning.templates.build_functional_model_delta_client_work(
        model=model_fn, **arguments
    )
  specs = []

  def checked_model():
    model = model_fn()
    specs.append(model.input_spec)
    _check_is_batched(model.input_spec)
    return model

  try:
    return tff.learning.templates.build_model_delta_client_work(
        checked_model, **arguments
    )
  except ValueError as error:
    # What Keras says of a layer is the last line of what TensorFlow quotes.
    problem = str(error).strip().rpartition('\n')[-1].strip()
    if 'is incompatible with the layer' not in problem:
      raise
    raise _checks.ArgumentError(
        'input_spec',
        str(tff.types.tensorflow_to_type(specs[-1])),
        'the spec of batches that the model can read',
        why=problem.removeprefix('ValueError: '),
        way_out='input_spec = client_data.element_type_structure, and a first'
        ' layer for examples of this shape',
    ) from None


def _check_is_batched(input_spec: Any) -> None:
  """Raises if no part of an example can have a batch dimension.

  One part with a first dimension of None is enough. Without it, all parts must
  have the same fixed first dimension, which may be the size of the batches.
  """
  sizes = {
      'none' if spec.shape.rank == 0 else spec.shape[0]
      for spec in tf.nest.flatten(input_spec)
      if isinstance(spec, tf.TensorSpec)
  }
  if None not in sizes and ('none' in sizes or len(sizes) > 1):
    raise _checks.ArgumentError(
        'input_spec',
        str(tff.types.tensorflow_to_type(input_spec)),
        'the spec of a batch of examples, whose first dimension is None',
        why='it describes a single example: the datasets have no batches',
        way_out='client_data = client_data.preprocess(lambda dataset:'
        ' dataset.batch(20)), then input_spec ='
        ' client_data.element_type_structure',
    )


def features_and_label(batch: Any) -> tuple[Any, Any]:
  """Returns x and y of a batch, by their names or in this order, as TFF does.

  Args:
    batch: Pair, or mapping with the names 'x' and 'y', of values or specs.

  Raises:
    ArgumentError: If a mapping has other names.
  """
  if not isinstance(batch, Mapping):
    x, y = batch
    return x, y
  if set(batch) != {'x', 'y'}:
    raise _checks.ArgumentError(
        'input_spec', list(batch), "a pair, or a mapping with 'x' and 'y'"
    )
  return batch['x'], batch['y']


def check_model(model_fn: Any) -> None:
  """Raises unless this is a functional model or a function.

  A Keras model is neither.
  """
  if _compat.is_keras3_model(model_fn):
    raise _checks.ArgumentError(
        'model_fn',
        model_fn.name,
        'a model of TFF; tff_dp.learning.functional_model_from_keras3 makes one'
        ' from a Keras 3 model',
    )
  is_keras = isinstance(model_fn, tf.keras.Model)
  is_functional = isinstance(model_fn, tff.learning.models.FunctionalModel)
  if is_keras or not (is_functional or callable(model_fn)):
    raise _checks.ArgumentError(
        'model_fn',
        type(model_fn).__name__,
        'a FunctionalModel, or a function that returns a new model of TFF, such'
        ' as lambda: tff.learning.models.from_keras_model(build_keras_model(),'
        ' loss=..., input_spec=...)',
    )


def check_optimizer(**argument) -> None:
  """Raises unless the argument is an optimizer of TFF."""
  _checks.instance_of(
      tff.learning.optimizers.Optimizer,
      'a tff.learning.optimizers.Optimizer, such as'
      ' tff.learning.optimizers.build_sgdm(0.1); an optimizer of Keras keeps'
      ' variables of its own, but a round must be a function of its state',
      **argument,
  )


def without_metrics(metric_finalizers, unfinalized_type=None):
  """Returns an aggregation of local metrics in which none leaves a client.

  TFF calls this as a metrics aggregator. Both arguments are ignored.
  """
  del metric_finalizers, unfinalized_type

  @tff.federated_computation
  def nothing(unfinalized):
    del unfinalized
    return tff.federated_value((), tff.SERVER)

  return nothing
