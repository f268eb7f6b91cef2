# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Sums of bounded vectors under binomial noise, through secure summation.

Every coordinate of every record is turned into an integer inside of its silo,

    t = (x + L) h / (2 L),   y = floor(t) + Bernoulli(t - floor(t))
                                 + Binomial(b, p)

and only the sums of y over all records of all silos are opened:

    mean = (2 L / h) (total - m b p) / m - L,   m = records in the sum

Source: the vector sum of Cheu, Joseph, Mao and Peng, arXiv:2106.09805, as used
by arXiv:2106.09779, algorithms 4 to 6. There, y is sent as y ones and h + b - y
zeros through a shuffler; since only the number of ones says anything, the sum
of y is the same mechanism. `accounting.vector_sum` calibrates h, b and p.
"""

import collections
import dataclasses

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import streams
from tff_dp.accounting import vector_sum
from tff_dp.aggregators import clipping

# What `tff.federated_secure_sum_bitwidth` allows, and int64 holds.
_MOST_BITS = 62
_ROUNDING, _NOISE = 'binomial rounding', 'binomial noise'


class BinomialVectorSumFactory(tff.aggregators.UnweightedAggregationFactory):
  """The mean of the records of all silos, with binomial noise in the sum.

      next: mean over silos and records of clip(x), plus noise of variance
            (2 L / h)^2 (b p (1-p) / m + rounding),  rounding <= 1 / (4 m)

  A value is a silo's records, float32 of shape [records, num_params]. Each is
  clipped to the norm L (a record that is not finite counts as zero), which
  bounds its coordinates. Encoding and noise happen in the silo, the server gets
  the secure sum of integers. What protects a record is the noise of *all* silos
  in the sum: it must not be opened below `min_silos`, which is a setting of the
  secure summation in the field; here the result of fewer is refused.

  Attributes:
    state: Empty.
    measurements: `OrderedDict(num_silos)`.
  """

  def __init__(
      self,
      spec: vector_sum.BinomialSum,
      *,
      l2_norm_clip: float,
      records_per_silo: int,
      max_silos: int,
  ):
    """Builds the factory.

    Args:
      spec: h, b and p, calibrated for the `spec.num_records` records whose
        noise is promised to be in every sum; fewer are refused.
      l2_norm_clip: L.
      records_per_silo: K, records of every silo in a round.
      max_silos: Most silos that take part in a round, for the range.
    """
    if not isinstance(spec, vector_sum.BinomialSum):
      raise _checks.ArgumentError('spec', spec, 'a vector_sum.BinomialSum')
    _checks.positive(l2_norm_clip=l2_norm_clip)
    _checks.integer_at_least(1, records_per_silo=records_per_silo)
    self.min_silos = -(-spec.num_records // records_per_silo)
    _checks.integer_at_least(self.min_silos, max_silos=max_silos)
    self._spec = spec
    self._l2_norm = float(l2_norm_clip)
    self._records = int(records_per_silo)
    self._max_silos = int(max_silos)
    if self.num_values > 2**_MOST_BITS:
      raise _checks.ArgumentError(
          'spec',
          spec,
          'a range of max_silos * records_per_silo * (grid + trials) + 1 values'
          f' within {_MOST_BITS} bits; here it is {self.num_values}',
      )

  @property
  def num_values(self) -> int:
    """Size of the range that a modular sum needs."""
    count = self._max_silos * self._records
    return dataclasses.replace(self._spec, num_records=count).required_range

  def variance(self, num_silos: int) -> float:
    """Returns the variance of the noise on a coordinate of the mean. Exact.

    Without that of the rounding, at most (L / h)^2 / m.

    Args:
      num_silos: In the sum.
    """
    count = num_silos * self._records
    prob = self._spec.probability
    return self._step**2 * self._spec.trials * prob * (1.0 - prob) / count

  @property
  def _step(self) -> float:
    return 2.0 * self._l2_norm / self._spec.grid

  def create(self, value_type) -> tff.templates.AggregationProcess:
    if (
        not isinstance(value_type, tff.TensorType)
        or value_type.dtype != np.float32
        or len(value_type.shape) != 2
        or value_type.shape[0] != self._records
    ):
      raise _checks.ArgumentError(
          'value_type',
          str(value_type),
          f'float32[{self._records},num_params], the records of a silo',
      )
    num_params = value_type.shape[1]
    sum_type = tff.TensorType(np.int64, [num_params])

    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def encode(rows):
      return self._encode(rows)

    @tff.tensorflow.computation(sum_type, tff.TensorType(np.int32))
    @tf.function(autograph=False)
    def decode(total, num_silos):
      enough = tf.debugging.assert_greater_equal(
          num_silos,
          self.min_silos,
          message=f'fewer than {self.min_silos} silos: the noise in their sum is less'
          ' than it is calibrated for',
      )
      with tf.control_dependencies([enough]):
        count = tf.cast(num_silos * self._records, tf.float64)
      return self._decode(total, count)

    largest = self._records * (self._spec.grid + self._spec.trials)

    @tff.federated_computation
    def init_fn():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
        init_fn.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      total = tff.federated_secure_sum_bitwidth(
          tff.federated_map(encode, value), largest.bit_length()
      )
      num_silos = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
      return tff.templates.MeasuredProcessOutput(
          state,
          tff.federated_map(decode, (total, num_silos)),
          tff.federated_zip(collections.OrderedDict(num_silos=num_silos)),
      )

    return tff.templates.AggregationProcess(init_fn, next_fn)

  def _encode(self, rows) -> tf.Tensor:
    """Returns a silo's integers, int64 of shape [num_params]."""
    key = streams.random_root_key()
    clipped = tf.map_fn(
        lambda row: clipping.clip(row, self._l2_norm)[0], rows
    )
    position = (tf.cast(clipped, tf.float64) + self._l2_norm) / self._step
    floor = tf.floor(position)
    uniform = tf.random.stateless_uniform(
        tf.shape(rows),
        streams.domain_key(key, _ROUNDING),
        dtype=tf.float64,
        alg=streams.ALGORITHM,
    )
    rounded = tf.cast(floor, tf.int64) + tf.cast(
        uniform < position - floor, tf.int64
    )
    # One draw for all records of the silo: their sum is binomial again.
    noise = tf.random.stateless_binomial(
        tf.shape(rows)[1:],
        streams.domain_key(key, _NOISE),
        counts=tf.constant(self._records * self._spec.trials, tf.float64),
        probs=tf.constant(self._spec.probability, tf.float64),
        output_dtype=tf.int64,
    )
    return tf.reduce_sum(rounded, axis=0) + noise

  def _decode(self, total, count) -> tf.Tensor:
    mean_noise = self._spec.trials * self._spec.probability
    centred = tf.cast(total, tf.float64) - count * mean_noise
    return tf.cast(self._step * centred / count - self._l2_norm, tf.float32)
