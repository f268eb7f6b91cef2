# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sums of bounded vectors under integer noise, through secure summation.

Every coordinate of every record becomes an integer inside of its silo, and a
silo adds one share of integer noise to the sum over its K records,

    t = (x + C) h / (2 C),   y = floor(t) + Bernoulli(t - floor(t))
    message = sum over records of y  +  Z - (least value of Z)

Only the sum of the messages over all silos is opened:

    mean = (2 C / h) (total - silos (E Z - least)) / (silos K) - C

Z is the silo's share of noise, by a `SumPlan` (`integer_plans`): binomial,
Skellam or discrete Gaussian. It is drawn from a table of 62-bit probabilities
(`integer_noise`). Coins and noise follow from the records and from a key of the
round that a silo brings with them. So the same records give the same message
again, and other records get other noise. Without a key, coins and noise come
from the kernel of the silo's machine, afresh each time. Messages are bounded,
so no sum ever wraps.

TFF's own `tff.learning.ddp_secure_aggregator` is not used: in the
tensorflow-privacy release that TFF 0.87 needs, its Skellam noise is seeded with
the clock (`tf.timestamp() * 10**6`). The server can guess this seed up to a few
million values, and two silos can have the same seed.
"""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import release_marks
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_plans

# The bits that `tff.federated_secure_sum_bitwidth` allows and int64 holds.
MOST_BITS = 62
# Parts of a value that has a key.
ROWS, KEY = 'rows', 'key'
_ROUNDING, _NOISE = 'integer rounding', 'integer noise'


def release_of(facts: Mapping[str, Any]) -> release_marks.Release:
  """Returns the mark of messages to a sum, given `SumPlan.release_facts`."""
  return release_marks.Release.of(facts, in_sum=True)


class IntegerVectorSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """The mean of the records of all silos, with integer noise in the sum.

      next: mean over silos and records of clip(x), plus noise of variance
            `plan.noise_variance`, plus rounding of variance <= (C / h)^2 / (M
            K), for M silos of K records and h steps of the grid

  A value is a silo's records, float32 of shape [records, num_params]. It may
  also be an `OrderedDict(rows, key)` of the records and a secret key of the
  silo and round. The key is int64 of shape [2], is used for nothing else and
  stays at the silo. Each record is clipped to the norm C, which bounds its
  coordinates. A record that is not finite counts as zero. Encoding and noise
  happen in the silo, and the server gets the secure sum of integers. A record
  is protected by the noise of *all* silos in the sum, so the sum of fewer than
  `min_silos` must not be opened. In the field the secure summation must refuse
  such a sum. Here the server refuses to decode it.

  Attributes:
    plan: The `SumPlan`.
    min_silos: Promised number of silos, from the plan.
    state: Empty state.
    measurements: `OrderedDict(num_silos)`.
  """

  def __init__(
      self,
      plan: integer_plans.SumPlan,
      *,
      l2_norm_clip: float,
      max_silos: int,
  ):
    """Initializes the factory.

    Args:
      plan: Grid, records of a silo, noise, and promised number of silos.
        `integer_plans.calibrate` finds one.
      l2_norm_clip: Clip norm C.
      max_silos: Largest number of silos in a round. It determines how many bits
        a coordinate of the sum needs.
    """
    if not isinstance(plan, integer_plans.SumPlan):
      raise _checks.ArgumentError('plan', plan, 'an integer_plans.SumPlan')
    _checks.clip_norm(l2_norm_clip=l2_norm_clip)
    _checks.integer_at_least(plan.min_silos, max_silos=max_silos)
    self.plan = plan
    self.min_silos = plan.min_silos
    self._l2_norm = float(l2_norm_clip)
    self._max_silos = int(max_silos)
    if plan.bits(max_silos) > MOST_BITS:
      raise _checks.ArgumentError(
          'max_silos',
          max_silos,
          f'fewer silos: with so many, a coordinate of the sum needs'
          f' {plan.bits(max_silos)} bits, and it may have at most {MOST_BITS}',
      )

  @property
  def _step(self) -> float:
    return 2.0 * self._l2_norm / self.plan.grid

  @_calls.unweighted
  def create(self, value_type) -> tff.templates.AggregationProcess:
    records = self.plan.records_per_silo
    has_key = isinstance(value_type, tff.StructWithPythonType) and (
        tff.structure.name_list(value_type) == [ROWS, KEY]
    )
    rows_type = value_type[ROWS] if has_key else value_type
    if (
        not isinstance(rows_type, tff.TensorType)
        or rows_type.dtype != np.float32
        or len(rows_type.shape) != 2
        or rows_type.shape[0] != records
        or (has_key and value_type[KEY] != tff.TensorType(np.int64, [2]))
    ):
      raise _checks.ArgumentError(
          'value_type',
          str(value_type),
          f'float32[{records},num_params], the records of a silo, or'
          f' <{ROWS}=that,{KEY}=int64[2]>',
      )
    table = self.plan.share_table()
    sum_type = tff.TensorType(np.int64, [rows_type.shape[1]])
    release = release_of(
        self.plan.release_facts(
            l2_norm_clip=self._l2_norm, dimension=rows_type.shape[1]
        )
    )

    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def encode(value):
      if has_key:
        rows = value[ROWS]
        # Other records need other noise: equal noise would cancel in a
        # difference.
        digest = streams.digest(tf.reshape(rows, [-1]))
        key = streams.fold_in(value[KEY], digest)
      else:
        rows, key = value, streams.random_root_key()
      rounded = encoded_sum(
          rows,
          streams.domain_key(key, _ROUNDING),
          l2_norm_clip=self._l2_norm,
          grid=self.plan.grid,
      )
      noise = draw(
          table, streams.domain_key(key, _NOISE), size=sum_type.shape[0]
      )
      return rounded + noise - table.lower

    # This is a separate computation, because graphs that read a file are not
    # inspected.
    @tff.tensorflow.computation(sum_type)
    @tf.function(autograph=False)
    def marked(message):
      return release.mark(message)

    @tff.tensorflow.computation(sum_type, tff.TensorType(np.int32))
    @tf.function(autograph=False)
    def decode(total, num_silos):
      enough = tf.debugging.assert_greater_equal(
          num_silos,
          self.min_silos,
          message=f'fewer than {self.min_silos} silos: their sum has less noise'
          ' than the plan counts on',
      )
      with tf.control_dependencies([enough]):
        count = tf.cast(num_silos, tf.float64)
      centred = tf.cast(total, tf.float64) - count * (table.mean - table.lower)
      mean = self._step * centred / (count * records) - self._l2_norm
      return tf.cast(mean, tf.float32)

    bits = self.plan.largest_message.bit_length()

    @tff.federated_computation
    def init_fn():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      total = tff.federated_secure_sum_bitwidth(
          tff.federated_map(marked, tff.federated_map(encode, value)), bits
      )
      num_silos = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      return tff.templates.MeasuredProcessOutput(
          state,
          tff.federated_map(decode, (total, num_silos)),
          tff.federated_zip(collections.OrderedDict(num_silos=num_silos)),
      )

    return tff.templates.AggregationProcess(init_fn, next_fn)


def encoded_sum(
    rows: tf.Tensor, key: tf.Tensor, *, l2_norm_clip: float, grid: int
) -> tf.Tensor:
  """Returns the sum of the rounded records, int64 of shape [num_params].

  Args:
    rows: Records, float32 of shape [records, num_params]. They are clipped
      here.
    key: Key of the coins for rounding, which protect nothing.
    l2_norm_clip: Clip norm C.
    grid: Number h of steps of the grid.
  """
  clipped = clipping.clip_rows(rows, l2_norm_clip)
  step = 2.0 * l2_norm_clip / grid
  position = (tf.cast(clipped, tf.float64) + l2_norm_clip) / step
  # A coordinate of C itself may be rounded beyond the grid.
  position = tf.clip_by_value(position, 0.0, float(grid))
  floor = tf.floor(position)
  uniform = streams.uniforms(tf.shape(rows), key, tf.float64)
  rounded = tf.cast(floor, tf.int64) + tf.cast(
      uniform < position - floor, tf.int64
  )
  return tf.reduce_sum(rounded, axis=0)


def draw(
    table: integer_noise.Table, key: tf.Tensor, *, size: int
) -> tf.Tensor:
  """Returns independent draws from a table, int64 of shape [size].

  Args:
    table: Table of the distribution.
    key: Secret key, int64 of shape [2]. It must not be used for anything else.
    size: Number of draws.
  """
  uniform = tf.bitwise.bitwise_and(
      streams.bits([size], key),
      tf.constant((1 << integer_noise.BITS) - 1, tf.int64),
  )
  # The number of cumulative weights that are at most u.
  index = tf.searchsorted(
      tf.constant(table.cumulative, tf.int64),
      uniform,
      side='right',
      out_type=tf.int64,
  )
  return index + table.lower
