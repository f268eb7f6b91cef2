# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Gradients of single records, each computed separately."""

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.learning import finalizers
from tff_dp.learning import local_training

LabelRange = Optional[tuple[float, float]]


def num_params(model: tff.learning.models.FunctionalModel) -> int:
  """Returns the length of the vector of all trainable weights.

  Raises:
    ArgumentError: If the model is not a stateless function of float32 weights.
  """
  if not isinstance(model, tff.learning.models.FunctionalModel):
    raise _checks.ArgumentError(
        'model',
        type(model).__name__,
        'a tff.learning.models.FunctionalModel: gradients of single records'
        ' come from a function of the weights;'
        ' tff.learning.models.functional_model_from_keras makes one',
    )
  local_training.features_and_label(model.input_spec)
  trainable, non_trainable = model.initial_weights
  if tf.nest.flatten(non_trainable):
    raise _checks.ArgumentError(
        'model',
        f'{len(tf.nest.flatten(non_trainable))} non-trainable weights',
        'a model without non-trainable weights: layers that learn from a whole'
        ' batch, such as batch normalisation, mix records, and silos take no'
        ' frozen weights yet',
    )
  arrays = [np.asarray(tensor) for tensor in tf.nest.flatten(trainable)]
  if any(array.dtype != np.float32 for array in arrays):
    raise _checks.ArgumentError(
        'model', [array.dtype.name for array in arrays], 'float32 weights'
    )
  return sum(array.size for array in arrays)


def build_per_example(
    model: tff.learning.models.FunctionalModel,
    metric_fns: Sequence[Callable[[Any, Any], tf.Tensor]] = (),
    label_range: LabelRange = None,
) -> Callable[[Any, Any], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
  """Returns `f(trainable, batch) -> (rows, losses, values)`.

  Row i is the gradient of the loss of record i alone, with respect to the
  vector of all trainable weights. The rows are not clipped, float32 of shape
  [batch size, num_params]. Each record is run through the model as a batch of
  one, so its row cannot depend on other records. `losses` are float32 of shape
  [batch size]. `values` are the metrics, of shape [batch size, number of
  metrics].

  Args:
    model: Model.
    metric_fns: Functions of (output, label) of a batch of one.
    label_range: Smallest and largest label. If the label of a record is outside
      or NaN, its gradient, loss and metrics are zero. An error instead would be
      visible to all and could depend on one record.
  """
  size = num_params(model)

  def of_one(trainable, record):
    x, y = local_training.features_and_label(
        tf.nest.map_structure(lambda part: part[tf.newaxis], record)
    )
    is_valid = None
    if label_range is not None:
      y, is_valid = _checked(y, label_range)
    with tf.GradientTape() as tape:
      tape.watch(trainable)
      output = model.predict_on_batch((trainable, ()), x, training=True)
      loss = tf.reduce_mean(model.loss(output, y))
    gradients = tape.gradient(
        loss, trainable, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    values = [
        tf.reduce_mean(tf.cast(metric_fn(output, y), tf.float32))
        for metric_fn in metric_fns
    ]
    # A stack of nothing has no shape.
    stacked = tf.stack(values) if values else tf.zeros([0])
    found = finalizers.flatten(gradients), loss, stacked
    if is_valid is None:
      return found
    return tuple(
        tf.where(is_valid, part, tf.zeros_like(part)) for part in found
    )

  def of_batch(trainable, batch):
    # An empty batch has nothing to be vectorised over.
    return tf.cond(
        tf.shape(tf.nest.flatten(batch)[0])[0] > 0,
        lambda: tf.vectorized_map(
            lambda record: of_one(trainable, record), batch
        ),
        lambda: (
            tf.zeros([0, size]), tf.zeros([0]), tf.zeros([0, len(metric_fns)])
        ),
    )

  return of_batch


def check_label_range(label_range: LabelRange) -> None:
  """Raises `ArgumentError` unless the range is `None` or (least, largest)."""
  if label_range is None:
    return
  is_pair = isinstance(label_range, Sequence) and len(label_range) == 2
  if not is_pair or not label_range[0] <= label_range[1]:
    raise _checks.ArgumentError(
        'label_range', label_range, 'the least and the largest label, or None'
    )


def _checked(label: tf.Tensor, label_range) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (label, whether it is valid).

  If it is invalid, the returned label is the smallest one of the range.
  """
  low, high = (tf.cast(bound, label.dtype) for bound in label_range)
  # False for a NaN.
  is_valid = tf.logical_and(label >= low, label <= high)
  return tf.where(is_valid, label, low), tf.reduce_all(is_valid)


def take(batch: Any, is_chosen: tf.Tensor) -> Any:
  """Returns the chosen records of a batch.

  Args:
    batch: Structure of tensors whose first axis is the records.
    is_chosen: bool, one for each record.
  """
  return gather(batch, tf.where(is_chosen)[:, 0])


def gather(batch: Any, indices: tf.Tensor) -> Any:
  """Returns the records of a batch at some positions."""
  return tf.nest.map_structure(lambda part: tf.gather(part, indices), batch)
