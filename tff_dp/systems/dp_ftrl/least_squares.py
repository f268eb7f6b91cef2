# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Least squares from noised sums of moments: encoding and solving (A_FTRL-LS).

For the loss (y - <x, theta>)^2 two sums over all samples suffice,

    A = sum of x x^T,    h = sum of y x,

and neither sum depends on the model. So the server needs no gradients. A client
sends one vector, the sum over its samples of

    q = (svec(x x^T), y x),   svec(M) = (M_ii, sqrt(2) M_ij for i < j).

The norm |svec(M)| is the Frobenius norm of M. One sample with |x| <= R and
|y| <= 1 has |q|^2 = |x|^4 + y^2 |x|^2 <= R^2 (R^2 + 1).

Round t has the noised sums A_t and h_t of all rounds so far. With the learning
rate eta = 1 / lambda it finds the model

    argmin of  theta^T A_t theta - 2 <h_t, theta> + |theta|^2 / (2 eta)

over all theta, or over those in a ball. Without a ball the model solves
(2 A_t + lambda I) theta = 2 h_t. Noise can make this matrix indefinite, so its
eigenvalues are raised to at least lambda. This is post-processing, changes
nothing if A_t is positive semi-definite, and bounds the model by
|theta| <= 2 eta |h_t|.

Sources: the algorithm is from Kairouz et al., arXiv:2103.00039, section 4.2.
Encoding, clipping and solver are our own derivations. Exact up to rounding: the
solver works in float64.
"""

import math
from typing import NamedTuple, Optional

import numpy as np
import tensorflow as tf

from tff_dp import _checks

# Number of halvings of an interval of float64 numbers, down to neighbours.
_HALVINGS = 100


def moments_norm_bound(feature_norm_bound: float) -> float:
  """Returns R sqrt(R^2 + 1), the largest norm of one sample's moments.

  Exact: attained by |x| = R and |y| = 1.

  Args:
    feature_norm_bound: Bound R on |x|. The bound on |y| is 1.
  """
  _checks.positive(feature_norm_bound=feature_norm_bound)
  return float(feature_norm_bound) * math.hypot(feature_norm_bound, 1.0)


def num_moments(num_features: int) -> int:
  """Returns p (p + 1) / 2 + p, the number of moments of p features."""
  return num_features * (num_features + 1) // 2 + num_features


def bounded_samples(x, y, *, feature_norm_bound: float):
  """Returns the samples, scaled and clipped to their declared bounds.

  A sample becomes zero if it has a NaN or an infinity, or if its squared norm
  is beyond float32.

  Args:
    x: Features, float32 of shape [batch, num_features].
    y: Labels, float32 of shape [batch], which are clipped to [-1, 1].
    feature_norm_bound: Bound on the L2 norm of each row of `x`.
  """
  norms = tf.norm(x, axis=1)
  is_finite = tf.logical_and(tf.math.is_finite(norms), tf.math.is_finite(y))
  scales = tf.minimum(1.0, tf.math.divide_no_nan(feature_norm_bound, norms))
  # A zero row has scale zero and stays zero. Do not multiply by 0 or 1 below:
  # zero times NaN is NaN.
  return (
      tf.where(is_finite[:, tf.newaxis], x * scales[:, tf.newaxis], 0.0),
      tf.where(is_finite, tf.clip_by_value(y, -1.0, 1.0), 0.0),
  )


def encode(second, cross):
  """Returns svec(second) and cross as one vector, shape [num_moments].

  Args:
    second: Sum of x x^T, shape [num_features, num_features].
    cross: Sum of y x, shape [num_features].
  """
  rows, columns = np.triu_indices(second.shape[0])
  weights = np.where(rows == columns, 1.0, math.sqrt(2.0))
  above = tf.gather(
      tf.reshape(second, [-1]), rows * second.shape[0] + columns
  )
  return tf.concat([tf.cast(weights, second.dtype) * above, cross], axis=0)


def decode(moments, *, num_features: int):
  """Returns (A, h), the inverse of `encode`. A is symmetric."""
  rows, columns = np.triu_indices(num_features)
  position = np.zeros([num_features, num_features], np.int32)
  position[rows, columns] = position[columns, rows] = np.arange(len(rows))
  weights = np.full(position.shape, math.sqrt(0.5))
  np.fill_diagonal(weights, 1.0)
  second = tf.cast(weights, moments.dtype) * tf.gather(moments, position)
  return second, moments[len(rows) :]


class Solution(NamedTuple):
  """The result of `solve`.

  Attributes:
    theta: Minimiser, float64, shape [num_features].
    num_raised: Number of eigenvalues of 2 A + lambda I that were below lambda,
      scalar int32.
  """

  theta: tf.Tensor
  num_raised: tf.Tensor


def solve(
    second, cross, *, learning_rate: float, radius: Optional[float] = None
) -> Solution:
  """Returns the minimiser of the objective in the module docstring.

  Negative eigenvalues of 2 A are raised to 0. Then the minimiser in a ball is
  (2 A + (lambda + nu) I)^-1 2 h for some nu >= 0. If the vector for nu = 0 lies
  in the ball, nu is 0. Otherwise bisection finds the nu that puts the minimiser
  on the sphere. The norm falls in nu and is below the radius at
  nu = |2 h| / radius, so bisection between 0 and that number cannot fail.

  Args:
    second: Matrix A, symmetric, shape [num_features, num_features].
    cross: Vector h, shape [num_features].
    learning_rate: Learning rate eta = 1 / lambda.
    radius: Radius of the ball around zero, `None` for all of R^p.
  """
  second, cross = tf.cast(second, tf.float64), tf.cast(cross, tf.float64)
  ridge = tf.constant(1.0 / learning_rate, tf.float64)
  # Use the eigenvalues of 2 A, not of 2 A + lambda I. Where A is near zero,
  # comparing the latter with lambda would compare rounding errors.
  eigenvalues, vectors = tf.linalg.eigh(2.0 * second)
  curvature = ridge + tf.nn.relu(eigenvalues)
  target = tf.linalg.matvec(vectors, 2.0 * cross, transpose_a=True)
  nu = tf.constant(0.0, tf.float64)
  if radius is not None:
    nu = _multiplier(curvature, target, radius)
  return Solution(
      theta=tf.linalg.matvec(vectors, target / (curvature + nu)),
      num_raised=tf.math.count_nonzero(eigenvalues < 0.0, dtype=tf.int32),
  )


def _multiplier(curvature, target, radius: float):
  """Returns the least nu >= 0 with |target / (curvature + nu)| <= radius.

  Exact up to rounding of nu.
  """

  def is_outside(nu):
    return tf.norm(target / (curvature + nu)) > radius

  zero = tf.constant(0.0, tf.float64)
  low = zero
  high = tf.where(is_outside(zero), tf.norm(target) / radius, zero)

  def halve(index, low, high):
    middle = 0.5 * (low + high)
    outside = is_outside(middle)
    return (
        index + 1,
        tf.where(outside, middle, low),
        tf.where(outside, high, middle),
    )

  _, _, high = tf.while_loop(
      lambda index, *_: index < _HALVINGS,
      halve,
      (tf.constant(0), low, high),
  )
  return high
