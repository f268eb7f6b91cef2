# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Linear models for the silos' tasks, and how their errors are measured.

The loss of a record (x, y), with z = <w, x>, or with scores W^T x:

*   logistic: log(1 + exp(-y z)), y of -1 or 1;
*   squared: (z - y)^2 / 2;
*   softmax: cross-entropy of the scores, y of 0..c-1.

Records have norms of about 1, so gradients of the logistic loss do not exceed
that norm.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tasks.silos import silo_preprocessing
from tff_dp import _checks

LOGISTIC, SQUARED, SOFTMAX = 'logistic', 'squared', 'softmax'
_LOSSES = (LOGISTIC, SQUARED, SOFTMAX)


def build(loss: str, num_features: int, num_classes: int = 1):
  """Returns a `FunctionalModel` whose weights are one tensor of zeros.

  Args:
    loss: 'logistic', 'squared' or 'softmax'.
    num_features: Length of x, the constant included.
    num_classes: Columns of W, for softmax.
  """
  # Only here: flags are checked without TensorFlow.
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  _checks.one_of(_LOSSES, loss=loss)
  shape = [num_features, num_classes if loss == SOFTMAX else 1]

  @tf.function
  def predict(weights, x, training=True):
    del training
    (matrix,), _ = weights
    return tf.matmul(x, matrix)

  def mean_loss(scores, y, sample_weight=None):
    del sample_weight
    if loss == SOFTMAX:
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, scores)
    elif loss == LOGISTIC:
      losses = tf.math.softplus(-y * scores[:, 0])
    else:
      losses = 0.5 * tf.square(scores[:, 0] - y)
    return tf.reduce_mean(losses)

  return tff.learning.models.FunctionalModel(
      initial_weights=((np.zeros(shape, np.float32),), ()),
      predict_on_batch_fn=predict,
      loss_fn=mean_loss,
      input_spec=(
          tf.TensorSpec([None, num_features], tf.float32),
          tf.TensorSpec([None], tf.int32 if loss == SOFTMAX else tf.float32),
      ),
  )


def batches(records: silo_preprocessing.Records) -> list[Any]:
  """Returns a silo's records as the model takes them, in one batch."""
  return [(records.features, records.labels)]


def error(
    loss: str,
    weights: np.ndarray,
    records: silo_preprocessing.Records,
    train: Mapping[str, silo_preprocessing.Records],
) -> float:
  """Returns the share of wrong classes, or for 'squared' the relative RMSE.

  The relative RMSE is sqrt(mean (z - y)^2 / mean (m - y)^2), where m is the
  mean label of the training records. Predicting m gives 1. m is a statistic of
  the data, used in the evaluation alone. A diverged model has the error 1, or
  infinity for 'squared'.

  Args:
    loss: Loss of the model.
    weights: Weights of the model, shape [num_features, num_scores].
    records: Records of the evaluation.
    train: Training records by silo.
  """
  if not np.all(np.isfinite(weights)):
    return np.inf if loss == SQUARED else 1.0
  scores = records.features.astype(np.float64) @ weights.astype(np.float64)
  if loss == SOFTMAX:
    return float(np.mean(np.argmax(scores, axis=1) != records.labels))
  if loss == LOGISTIC:
    # A score of 0 is wrong either way, so that an untrained model is no use.
    return float(np.mean(scores[:, 0] * records.labels <= 0))
  mean = np.mean(np.concatenate([part.labels for part in train.values()]))
  return float(
      np.sqrt(
          np.mean(np.square(scores[:, 0] - records.labels))
          / np.mean(np.square(mean - records.labels))
      )
  )


def pooled(
    train: Mapping[str, silo_preprocessing.Records],
) -> silo_preprocessing.Records:
  """Returns the records of all silos."""
  parts = list(train.values())
  return silo_preprocessing.Records(
      np.concatenate([part.features for part in parts]),
      np.concatenate([part.labels for part in parts]),
  )
