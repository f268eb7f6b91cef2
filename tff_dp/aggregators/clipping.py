# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clipping of one client's update, so that its exact norm is within the bound.
"""

import collections

import tensorflow as tf

# float32 norms of n numbers err by less than this share. So clipping to a norm
# that is smaller by this share keeps the client's message exactly within the
# clip norm. On CPUs TensorFlow adds up runs of at most 256 squares and then
# pairs of sums (a test has the worst case). The sum may lack (256 + log2(n)) *
# 2^-24 of itself, the norm half of that, and scaling adds 2^-22: together 9e-6
# for any n. The later steps, rounding to a grid towards zero and an exact sum,
# add no error.
NORM_MARGIN = 1e-5


def clip(update: tf.Tensor, l2_norm_clip):
  """Returns (bounded update, counts) of one client.

  An update with a NaN, an infinity or a squared norm beyond float32, so a norm
  above 1.8e19, becomes zero.

  Args:
    update: Update, float32 of shape [num_params].
    l2_norm_clip: Bound on the exact norm, a number or a scalar tensor.

  Returns:
    The update, and an `OrderedDict` of int32 scalars, each 0 or 1:
    `num_clients` (always 1), `num_zeroed` (the norm was not finite),
    `num_empty` (the norm was 0) and `num_clipped` (the norm was finite, and
    above the bound less a margin for the rounding of float32).
  """
  bound = l2_norm_clip * (1.0 - NORM_MARGIN)
  # Like `tf.norm`, in one pass over the vector.
  norm = tf.sqrt(2.0 * tf.nn.l2_loss(update))
  # NaN and infinite coordinates, and squares beyond float32, all show in
  # the norm.
  is_finite = tf.math.is_finite(norm)
  is_clipped = norm > bound
  # Use branches instead of a product with 0, 1 or the scale: infinity times
  # zero is NaN, and an unchanged vector needs no pass over it.
  bounded = tf.cond(
      tf.logical_and(is_finite, tf.logical_not(is_clipped)),
      lambda: update,
      lambda: tf.cond(
          is_finite,
          lambda: update * (bound / norm),
          lambda: tf.zeros_like(update),
      ),
  )

  def count(condition):
    return tf.cast(condition, tf.int32)

  counts = collections.OrderedDict(
      num_clients=tf.constant(1),
      num_zeroed=count(tf.logical_not(is_finite)),
      num_empty=count(tf.equal(norm, 0.0)),
      num_clipped=count(tf.logical_and(is_finite, is_clipped)),
  )
  return bounded, counts


def clip_rows(rows: tf.Tensor, l2_norm_clip: float) -> tf.Tensor:
  """Returns the rows, each scaled to a norm of at most `l2_norm_clip`.

  Each row is clipped as `clip` clips one vector: with a margin for the rounding
  of float32. A row with a NaN, an infinity or a squared norm beyond float32
  becomes zero.

  Args:
    rows: Vectors, float32 of shape [batch size, num_params].
    l2_norm_clip: Bound on the exact norm of every row.
  """
  bound = l2_norm_clip * (1.0 - NORM_MARGIN)
  norms = tf.sqrt(tf.reduce_sum(tf.square(rows), axis=1, keepdims=True))
  scales = tf.where(norms > bound, bound / norms, tf.ones_like(norms))
  # Select instead of multiply: infinity times zero is NaN.
  return tf.where(tf.math.is_finite(norms), rows * scales, tf.zeros_like(rows))
