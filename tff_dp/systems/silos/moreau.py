# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moreau envelopes: smooth approximations of losses with kinks.

    f_b(w, x) = min_v f(v, x) + (b/2) |w - v|^2

is convex and b-smooth. If f is convex and L-Lipschitz in w, then f_b <= f <=
f_b + L^2 / (2 b). The gradient of f_b is b (w - v) with the minimising v, and
has norm at most L.

For a loss l(z) of the margin z = <w, x> of a linear model the minimum is over
one number,

    f_b(w, x) = min_t l(t) + (t - z)^2 / (2 s),   s = |x|^2 / b

so the envelope is a function of z and s, and automatic differentiation gives
exactly the gradient above. Every record is smoothed separately. Smoothing the
mean of a batch would change the influence of one record.

Source: arXiv:2106.09779, which smooths in this way. The closed forms below are
this project's own.
"""

from collections.abc import Callable
from typing import Any, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks

ABSOLUTE = 'absolute'
HINGE = 'hinge'
Loss = Union[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]]
# Steps of the ternary search for the minimiser. float64 has 52 bits.
_STEPS = 60


def moreau_envelope(
    loss: Loss, *, smoothing: float, lipschitz: float = 1.0
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
  """Returns the envelope f_b of a loss, see the module docstring.

  It is a function of (margin z, squared norm of the features, label y) that
  works elementwise on vectors. It is exact for

  * 'absolute', |z - y|, whose envelope is Huber's loss, and
  * 'hinge', max(0, 1 - y z), with y of -1 or 1.

  For your own loss, a ternary search finds the minimiser up to about 1e-8 of
  its interval.

  Args:
    loss: 'absolute', 'hinge', or a convex function of (margin, label), with
      TensorFlow operations on vectors.
    smoothing: Smoothing b.
    lipschitz: Lipschitz constant of `loss` in the margin. Used only to bound
      the search for your own function.
  """
  _checks.positive(smoothing=smoothing)
  _checks.positive(lipschitz=lipschitz)
  if callable(loss):
    of_spread = _numeric(loss, lipschitz)
  else:
    _checks.one_of((ABSOLUTE, HINGE), loss=loss)
    of_spread = _absolute if loss == ABSOLUTE else _hinge

  def envelope(margin, squared_norm, label):
    return of_spread(margin, squared_norm / smoothing, label)

  return envelope


@_calls.helpful
def build_linear_model(
    loss: Loss,
    *,
    num_features: int,
    smoothing: float,
    lipschitz: float = 1.0,
) -> tff.learning.models.FunctionalModel:
  """Returns a linear model whose loss is the envelope of each record's loss.

  Records are (x, y), float32 of shapes [batch, num_features] and [batch]. The
  weights are one vector, which begins at zero. Append a column of ones for an
  intercept.

  Args:
    loss: Loss, see `moreau_envelope`.
    num_features: Length of x.
    smoothing: Smoothing b. `minibatch_schedules.choose_smoothing` gives one.
    lipschitz: Lipschitz constant of `loss` in the margin.
  """
  _checks.integer_at_least(1, num_features=num_features)
  envelope = moreau_envelope(loss, smoothing=smoothing, lipschitz=lipschitz)

  @tf.function
  def predict(weights, x, training=True):
    del training
    ((theta,), _) = weights
    # The first output is the prediction. The second is for the loss.
    return tf.linalg.matvec(x, theta), tf.reduce_sum(x**2, axis=1)

  def mean_loss(output, label, sample_weight=None):
    del sample_weight
    return tf.reduce_mean(envelope(*output, label))

  return tff.learning.models.FunctionalModel(
      initial_weights=((np.zeros([num_features], np.float32),), ()),
      predict_on_batch_fn=predict,
      loss_fn=mean_loss,
      input_spec=(
          tf.TensorSpec([None, num_features], tf.float32),
          tf.TensorSpec([None], tf.float32),
      ),
  )


def _absolute(margin, spread, label) -> tf.Tensor:
  """Returns |u| - s/2 for |u| >= s, else u^2 / (2 s).

  Here u = margin - label and s = spread.
  """
  distance = tf.abs(margin - label)
  # A spread of 0 is a record of zeros, which never chooses the quadratic.
  within = distance**2 / (2.0 * tf.where(spread > 0, spread, 1.0))
  return tf.where(distance < spread, within, distance - spread / 2.0)


def _hinge(margin, spread, label) -> tf.Tensor:
  """Returns 0 for m <= 0, m^2 / (2 s) for 0 < m < s, else m - s/2.

  Here m = 1 - label * margin and s = spread.
  """
  missing = 1.0 - label * margin
  within = missing**2 / (2.0 * tf.where(spread > 0, spread, 1.0))
  return tf.where(
      missing <= 0.0,
      0.0,
      tf.where(missing < spread, within, missing - spread / 2.0),
  )


def _numeric(loss, lipschitz: float) -> Callable[[Any, Any, Any], tf.Tensor]:
  """Returns the envelope of your own loss, with derivative (z - t) / s.

  Here z is the margin, s the spread, and t the minimiser, found by search.
  """

  def of_spread(margin, spread, label):
    label = tf.cast(label, tf.float64)

    @tf.custom_gradient
    def envelope(margin):
      wide, point = tf.cast(spread, tf.float64), tf.cast(margin, tf.float64)
      safe = tf.where(wide > 0, wide, tf.ones_like(wide))

      def objective(t):
        return loss(t, label) + (t - point) ** 2 / (2.0 * safe)

      # The minimiser is no further from z than s times the slope.
      low, high = point - lipschitz * wide, point + lipschitz * wide
      for _ in range(_STEPS):
        third = (high - low) / 3.0
        is_left = objective(low + third) < objective(high - third)
        low, high = (
            tf.where(is_left, low, low + third),
            tf.where(is_left, high - third, high),
        )
      nearest = (low + high) / 2.0
      value = tf.where(wide > 0, objective(nearest), loss(point, label))
      slope = (point - nearest) / safe

      def gradient(upstream):
        return upstream * tf.cast(slope, margin.dtype)

      return tf.cast(value, margin.dtype), gradient

    return envelope(margin)

  return of_spread
