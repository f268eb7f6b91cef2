# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The shuffle step: from reports at clients to the input of the server.

The server's input shows neither who sent a report nor the order of the reports.
This follows from types and arithmetic, not from trust in an order of
evaluation:

*   Reports that are vectors are added up in *integers*, as multiples of a power
  of two. Integer sums do not depend on the order, down to the last bit. The
  server gets one vector and the number of reports. The rounding of one report
  does not depend on any other report, which is why central noise uses these
  sums, too.
*   Reports of a few integers each are collected and *sorted*. A sorted list is
  a function of the multiset: it shows how often each report came, and nothing
  else.

In the field a shuffler, or secure aggregation, takes this step between the
clients and the server. Here, as in every simulation with TFF, the runtime
computes the step in the clear. The types show the output of a real shuffler.
"""

import collections
from collections.abc import Callable
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks

# Bits from the scale of a report to the step of the grid that it is rounded to.
# The grid is finer than float32 at that scale, and 2^26 reports of up to 2^5
# times the scale fit into 64 bits.
_GRID_BITS = 32
# Scales for which the grid's step and its inverse are float32 numbers.
_REPORT_SCALES = (1e-25, 1e25)


def grid_step(report_scale: float) -> float:
  """Returns the step of the grid that reports are rounded to, a power of two.

  Args:
    report_scale: Clip norm of a report, plus the scale of the noise that the
      client adds to it, if any.
  """
  _checks.in_closed(*_REPORT_SCALES, report_scale=report_scale)
  return 2.0 ** (math.floor(math.log2(report_scale)) - _GRID_BITS)


def build_sum(
    num_params: int, *, step: float
) -> Callable[[tff.Value], tff.Value]:
  """Returns a function, for federated computations, that adds up reports.

  It maps float32 vectors of length `num_params` at clients to
  `OrderedDict(total, num_reports)` at the server: the sum in units of `step`,
  int64 of shape [num_params], and the number of reports, int32. Each report is
  rounded separately, towards zero to a multiple of `step`, before anything is
  added. So a client's part of the sum depends on nobody else, and its norm is
  at most the norm of its report.

  Args:
    num_params: Length of the vectors.
    step: A power of two, see `grid_step`.
  """

  @tff.tensorflow.computation(tff.TensorType(np.float32, [num_params]))
  @tf.function(autograph=False)
  def in_units(report):
    # The product is exact, because the factor is a power of two. The cast drops
    # the digits after the point.
    return collections.OrderedDict(
        total=tf.cast(report * np.float32(1.0 / step), tf.int64),
        num_reports=tf.constant(1),
    )

  return _sum_of(in_units)


def build_collection(width: int) -> Callable[[tff.Value], tff.Value]:
  """Returns a function, for federated computations, that collects reports.

  It maps int64 vectors of length `width` at clients to an int64 matrix at the
  server, one row per report, in lexicographic order.

  Args:
    width: Number of integers in a report.
  """
  rows_type = tff.TensorType(np.int64, [None, width])

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def zero():
    return tf.zeros([0, width], tf.int64)

  @tff.tensorflow.computation(rows_type, tff.TensorType(np.int64, [width]))
  @tf.function(autograph=False)
  def accumulate(rows, report):
    return tf.concat([rows, report[tf.newaxis]], axis=0)

  @tff.tensorflow.computation(rows_type, rows_type)
  @tf.function(autograph=False)
  def merge(left, right):
    return tf.concat([left, right], axis=0)

  @tff.tensorflow.computation(rows_type)
  @tf.function(autograph=False)
  def in_order(rows):
    # Sort by the last column first: a stable sort keeps the order of equal
    # numbers.
    for column in reversed(range(width)):
      order = tf.argsort(rows[:, column], stable=True)
      rows = tf.gather(rows, order)
    return rows

  def aggregate(value):
    return tff.federated_aggregate(value, zero(), accumulate, merge, in_order)

  return aggregate


def build_counts(num_categories: int) -> Callable[[tff.Value], tff.Value]:
  """Returns a function, for federated computations, that counts categories.

  It maps scalar int64 categories at clients to their counts at the server,
  int64 of shape [num_categories].

  Args:
    num_categories: Number of categories, which are 0..num_categories - 1.
  """

  @tff.tensorflow.computation(tff.TensorType(np.int64))
  @tf.function(autograph=False)
  def one_hot(category):
    # `tf.one_hot` would silently drop a category out of range.
    return tf.tensor_scatter_nd_add(
        tf.zeros([num_categories], tf.int64),
        [[category]],
        tf.ones([1], tf.int64),
    )

  return _sum_of(one_hot)


def _sum_of(contribution: tff.Computation) -> Callable[[tff.Value], tff.Value]:
  """Returns a function that sums up the contributions of all clients.

  It uses `federated_sum`. Unlike a `federated_aggregate` with custom functions,
  this exists in both of TFF's forms for production stacks, `MapReduceForm` and
  `DistributeAggregateForm`.
  """

  def aggregate(value):
    return tff.federated_sum(tff.federated_map(contribution, value))

  return aggregate
