# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Generalised linear models on features and responses of declared bounds.

    eta  = kernel^T x + bias,   x and y scaled to [0, 1] by *public* constants
    yhat = eta, sigmoid(eta), softmax(eta) or exp(eta)

The gradient of one record's loss is (yhat - y) x, for every family. In yhat,
exp(eta) stays at exp(30) for any eta above 30. For 'logistic' and 'softmax'
each coordinate of the gradient is within [-1, 1], so a box clip of 1 changes
nothing there.

The bounds are declared and never estimated, because a minimum, a mean or a
variance of the clients' data is a release, too. A feature outside of its bounds
is moved to the bound, and a NaN to the lower bound. A record with a label that
is not allowed has no gradient but still counts as a record. No error is raised,
because an error that depends on a client's data would tell the server about the
data.

Source: arXiv:1807.04369, section 3.
"""

from collections.abc import Sequence
from typing import Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks

LINEAR, LOGISTIC, SOFTMAX, POISSON = FAMILIES = (
    'linear',
    'logistic',
    'softmax',
    'poisson',
)
Bound = Union[float, Sequence[float]]
# Above this log rate the rate grows linearly. exp would soon be infinite in
# float32. A gradient that is not finite counts as zero, so the weight would be
# stuck.
_LARGEST_LOG_RATE = 30.0


class GeneralizedLinearModel(tff.learning.models.FunctionalModel):
  """A `FunctionalModel` of one family.

  Outputs are the linear predictor eta, of shape [batch], or [batch,
  num_classes] for 'softmax'.

  Attributes:
    family: Name of the family, one of `FAMILIES`.
    feature_bounds: Bounds (lower, upper), each float32 of shape [num_features].
    response_bounds: Bounds (lower, upper) of the labels.
  """

  def __init__(
      self,
      family: str,
      *,
      feature_bounds: tuple[np.ndarray, np.ndarray],
      response_bounds: tuple[float, float],
      num_classes: Optional[int],
  ):
    self.family = family
    self.feature_bounds = feature_bounds
    self.response_bounds = response_bounds
    num_features = len(feature_bounds[0])
    columns = [num_classes] if family == SOFTMAX else []
    label_dtype = tf.int32 if family == SOFTMAX else tf.float32

    @tf.function
    def predict(weights, x, training=True):
      del training
      (kernel, bias), _ = weights
      return tf.tensordot(self.scale(x), kernel, axes=1) + bias

    super().__init__(
        initial_weights=(
            (
                np.zeros([num_features, *columns], np.float32),
                np.zeros(columns, np.float32),
            ),
            (),
        ),
        predict_on_batch_fn=predict,
        loss_fn=self._mean_loss,
        input_spec=(
            tf.TensorSpec([None, num_features], tf.float32),
            tf.TensorSpec([None], label_dtype),
        ),
    )

  def scale(self, x) -> tf.Tensor:
    """Returns features scaled to [0, 1], by the declared bounds alone."""
    lower, upper = self.feature_bounds
    finite = tf.where(tf.math.is_nan(x), tf.zeros_like(x) + lower, x)
    return (tf.clip_by_value(finite, lower, upper) - lower) / (upper - lower)

  def is_label_allowed(self, y) -> tf.Tensor:
    """Returns for each label whether it is allowed. NaN is not allowed."""
    low, high = self.response_bounds
    is_within = tf.logical_and(y >= low, y <= high)
    if self.family in (LOGISTIC, POISSON):
      # Counts and classes are whole numbers.
      is_within = tf.logical_and(is_within, tf.equal(y, tf.round(y)))
    return is_within

  def num_refused(self, y) -> tf.Tensor:
    """Returns the number of labels that are not allowed, int64.

    It is for the owner of the data. It is a function of the data without any
    noise: sent to a server it would void the client's guarantee.
    """
    return tf.math.count_nonzero(tf.logical_not(self.is_label_allowed(y)))

  def response(self, output) -> tf.Tensor:
    """Returns the predicted mean response, in units of the labels.

    For 'softmax' these are probabilities, of shape [batch, num_classes].

    Args:
      output: Output eta of the model.
    """
    low, high = self.response_bounds
    if self.family == LINEAR:
      return low + (high - low) * output
    if self.family == LOGISTIC:
      return tf.sigmoid(output)
    if self.family == SOFTMAX:
      return tf.nn.softmax(output)
    return high * tf.exp(tf.minimum(output, _LARGEST_LOG_RATE))

  def _mean_loss(self, output, label, sample_weight=None):
    del sample_weight
    is_allowed = self.is_label_allowed(label)
    label = tf.where(is_allowed, label, tf.zeros_like(label))
    # The scale of a refused label does not matter, because its loss is dropped.
    losses = self._losses(output, label)
    return tf.reduce_mean(tf.where(is_allowed, losses, tf.zeros_like(losses)))

  def _losses(self, output, label):
    low, high = self.response_bounds
    if self.family == LINEAR:
      return 0.5 * (output - (label - low) / (high - low)) ** 2
    if self.family == LOGISTIC:
      return tf.nn.sigmoid_cross_entropy_with_logits(label, output)
    if self.family == SOFTMAX:
      return tf.nn.sparse_softmax_cross_entropy_with_logits(label, output)
    excess = tf.nn.relu(output - _LARGEST_LOG_RATE)
    rate = tf.exp(output - excess) * (1.0 + excess)
    return rate - label / high * output


def build_generalized_linear_model(
    family: str,
    *,
    num_features: int,
    feature_bounds: tuple[Bound, Bound] = (0.0, 1.0),
    response_bounds: Optional[tuple[float, float]] = None,
    num_classes: Optional[int] = None,
) -> GeneralizedLinearModel:
  """Returns a model on batches (x, y), of shapes [batch, n] and [batch].

  Labels are float32, or int32 for 'softmax'. The weights are the kernel, of
  shape [n] or [n, num_classes], and the bias. Kernel and bias begin at zero.

  Args:
    family: 'linear' (squared loss), 'logistic' (labels 0 and 1), 'softmax'
      (labels 0..num_classes - 1) or 'poisson' (counts). The model
      divides counts by the declared maximum. This scales the loss and does not
      change the fit.
    num_features: Number of features n.
    feature_bounds: Declared (lower, upper), each a number or one number per
      feature. The lower bound must be below the upper one.
    response_bounds: Declared (lower, upper) of the labels. Default for
      'linear': (0, 1). Required for 'poisson': (0, maximum). `None` for other
      families, whose labels are classes.
    num_classes: Number of classes for 'softmax', at least 2. `None` for other
      families.

  Raises:
    ArgumentError: If a value is not as described.
  """
  _checks.one_of(FAMILIES, family=family)
  _checks.integer_at_least(1, num_features=num_features)
  bounds = tuple(
      np.broadcast_to(
          np.asarray(bound, np.float32), [num_features]
      )
      for bound in feature_bounds
  )
  lower, upper = bounds
  if not np.all(np.isfinite(upper - lower) & (upper > lower)):
    raise _checks.ArgumentError(
        'feature_bounds',
        feature_bounds,
        'finite (lower, upper) with every lower bound below its upper one',
    )
  if family == SOFTMAX:
    _checks.integer_at_least(2, num_classes=num_classes)
  elif num_classes is not None:
    raise _checks.ArgumentError(
        'num_classes', num_classes, f"None: family='{family}' has no classes"
    )
  return GeneralizedLinearModel(
      family,
      feature_bounds=bounds,
      response_bounds=_response_bounds(family, response_bounds, num_classes),
      num_classes=num_classes,
  )


def _response_bounds(family, given, num_classes) -> tuple[float, float]:
  """Returns the bounds of labels, checked."""
  if family in (LOGISTIC, SOFTMAX):
    if given is not None:
      raise _checks.ArgumentError(
          'response_bounds', given, f"None: family='{family}' has labels 0, 1.."
      )
    return (0, 1) if family == LOGISTIC else (0, num_classes - 1)
  if given is None and family == LINEAR:
    return (0.0, 1.0)
  wanted = '(lower, upper), upper above lower'
  if family == POISSON:
    wanted = '(0, maximum), maximum above 0'
  if (
      given is None
      or len(given) != 2
      or not np.all(np.isfinite(given))
      or not given[0] < given[1]
      or (family == POISSON and given[0] != 0)
  ):
    raise _checks.ArgumentError('response_bounds', given, f'finite {wanted}')
  return float(given[0]), float(given[1])
