# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Aggregation factories whose noise is added at the clients.

With the clipped update x_j of client j and its randomizer R_j,

    report_j = R_j(x_j)                                       (at the client)
    result   = sum over reports of estimate(report_j) / divisor

where the divisor is the number of reports, or a public constant. The server
gets the reports without their order and their senders, see `shuffle`. It adds
no randomness.
"""

import collections
import math
from typing import Literal, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import client_randomizers
from tff_dp.aggregators import shuffle
from tff_dp.mechanisms import randomizers

ARRIVED = 'arrived'
# The server expands at most so many reports in one step, to at most so many
# numbers together, unless a single report has more.
_MOST_AT_ONCE, _MOST_NUMBERS = 8, 2**20


class LocalRandomizerFactory(tff.aggregators.UnweightedAggregationFactory):
  """`UnweightedAggregationFactory` for means of locally randomized updates.

  Wrap it with `tff.aggregators.as_weighted_aggregator` if a builder asks for a
  weighted factory: weights are data, so they are ignored. A client's update is
  one vector, however many tensors it has. An update with a NaN, an infinity or
  a norm beyond float32 counts as zero, and is randomized like any other. For
  the L2 norm, the squared norm must be within float32, too.

  As a plain aggregator it takes the key of each report from the operating
  system, inside the client's graph. So a round that is run twice costs twice.
  `create_keyed` makes a process for clients that bring their keys.

  `state`: empty.

  `measurements`: `num_reports`, which is public if neighbouring data differ in
  one client's data (replace-one), and `noise_stddev`, which follows from it.
  `noise_stddev` is the standard deviation per coordinate of the result. For the
  sphere it is an upper bound. No measurement is computed from updates.
  """

  def __init__(
      self,
      randomizer: randomizers.LocalRandomizer,
      *,
      mean_over: Union[Literal['arrived'], float] = ARRIVED,
  ):
    """Initializes the factory.

    Args:
      randomizer: Gaussian, Sphere or Laplace.
      mean_over: 'arrived' to divide by the number of reports, or a public
        constant to divide by. An adversary who sees the reports sees their
        number, too. The mean of no reports is zero.

    Raises:
      ArgumentError: If a value is outside its range.
    """
    client_randomizers.check_vector_randomizer(randomizer)
    if mean_over != ARRIVED:
      if isinstance(mean_over, str):
        raise _checks.ArgumentError(
            'mean_over', mean_over, "'arrived' or a finite number above 0"
        )
      _checks.positive(mean_over=mean_over)
    self._randomizer = randomizer
    self._mean_over = mean_over

  @_calls.unweighted
  def create(self, value_type) -> tff.templates.AggregationProcess:
    """Creates the process. `value_type` holds float32 tensors only.

    Raises:
      TypeError: If `value_type` holds anything else, or a tensor of unknown
        shape.
    """
    value_type = tff.to_type(value_type)
    randomizer = self._build_randomizer(value_type)

    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def randomize(update):
      return randomizer.randomize(_flatten(update), streams.random_root_key())

    return _build_process(
        randomize, self._build_release(randomizer, value_type), randomizer
    )

  def create_keyed(self, value_type) -> tff.templates.AggregationProcess:
    """Creates the process for clients that bring the keys of their noise.

    Its `next` takes `OrderedDict(update, key, round)` at clients: the update,
    the client's secret key (int64 of shape [2]) and the round (int64). The key
    is used at the client, and nothing of it leaves except through the noise.

    Its result is `OrderedDict(total, num_reports)` at the server: the sum of
    the estimates, and the number of reports, int32. This serves callers that
    add up several rounds. `mean_over` scales only the measurement
    `noise_stddev`.

    Args:
      value_type: Type of the update, with float32 tensors only.

    Raises:
      TypeError: As for `create`.
    """
    value_type = tff.to_type(value_type)
    randomizer = self._build_randomizer(value_type)

    @tff.tensorflow.computation(
        collections.OrderedDict(
            update=value_type,
            key=tff.TensorType(np.int64, [2]),
            round=tff.TensorType(np.int64),
        )
    )
    @tf.function(autograph=False)
    def randomize(value):
      return randomizer.randomize(
          _flatten(value['update']), value['key'], value['round']
      )

    return _build_process(
        randomize,
        self._build_release(randomizer, value_type, total=True),
        randomizer,
    )

  def _build_randomizer(
      self, value_type: tff.Type
  ) -> client_randomizers.ClientRandomizer:
    tensors = tff.structure.flatten(value_type)
    if isinstance(value_type, tff.TensorType):
      tensors = [value_type]
    for tensor in tensors:
      if (
          not isinstance(tensor, tff.TensorType)
          or np.dtype(tensor.dtype) != np.float32
          or tensor.shape is None
          or None in tensor.shape
      ):
        raise TypeError(
            'Expected `value_type` to hold float32 tensors of known shape,'
            f' found {value_type}. The weights of the model decide dtype and'
            ' shape.'
        )
    return client_randomizers.build(
        self._randomizer, sum(math.prod(tensor.shape) for tensor in tensors)
    )

  def _build_release(self, randomizer, value_type, *, total=False):
    """Returns the server's computation on the output of the shuffle step."""
    specs = tff.types.type_to_tf_tensor_specs(value_type)

    @tff.tensorflow.computation(_shuffled_type(randomizer))
    @tf.function(autograph=False)
    def release(shuffled):
      summed, num_reports = _sum_estimates(randomizer, shuffled)
      divisor = tf.cast(num_reports, tf.float32)
      if self._mean_over != ARRIVED:
        divisor = tf.constant(self._mean_over, tf.float32)
      variance = self._randomizer.variance(randomizer.num_params)
      measurements = collections.OrderedDict(
          num_reports=num_reports,
          noise_stddev=tf.math.divide_no_nan(
              math.sqrt(variance / randomizer.num_params)
              * tf.sqrt(tf.cast(num_reports, tf.float32)),
              divisor,
          ),
      )
      if total:
        return (
            collections.OrderedDict(
                total=_unflatten(summed, specs), num_reports=num_reports
            ),
            measurements,
        )
      mean = tf.math.divide_no_nan(summed, divisor)
      return _unflatten(mean, specs), measurements

    return release


class RandomizedResponseHistogramFactory(
    tff.aggregators.UnweightedAggregationFactory
):
  """`UnweightedAggregationFactory` for histograms of categories.

  Values are scalar integers in [0, num_categories). A value outside is replaced
  by a uniformly drawn one. Let n be the number of reports, c_i the number of
  reports of category i, p the probability to keep a category and q the
  probability of each other category. Then

      result_i = (c_i - n q) / (p - q),

  float32 of shape [num_categories]. It estimates the number of clients with
  category i without bias. It may be negative. The sum over all i is n.

  `state`: empty. `measurements`: `num_reports`, which is public if neighbouring
  data differ in one client's data (replace-one).
  """

  def __init__(self, randomizer: randomizers.RandomizedResponse):
    """Initializes the factory.

    Args:
      randomizer: Number of categories and local epsilon.
    """
    if not isinstance(randomizer, randomizers.RandomizedResponse):
      raise _checks.ArgumentError(
          'randomizer', randomizer, 'a RandomizedResponse'
      )
    self._randomizer = randomizer

  @_calls.unweighted
  def create(self, value_type) -> tff.templates.AggregationProcess:
    """Creates the process. `value_type` is a scalar integer."""
    value_type = tff.to_type(value_type)
    if (
        not isinstance(value_type, tff.TensorType)
        or value_type.shape != ()
        or not np.issubdtype(value_type.dtype, np.integer)
    ):
      raise TypeError(
          f'Expected `value_type` to be a scalar integer, found {value_type}.'
      )
    randomizer = self._randomizer
    num_categories = randomizer.num_categories

    @tff.tensorflow.computation(value_type)
    @tf.function(autograph=False)
    def randomize(category):
      return client_randomizers.randomize_category(
          randomizer, category, streams.random_root_key()
      )

    @tff.tensorflow.computation(tff.TensorType(np.int64, [num_categories]))
    @tf.function(autograph=False)
    def release(counts):
      num_reports = tf.reduce_sum(counts)
      expected = tf.cast(num_reports, tf.float64) * randomizer.other_probability
      estimates = (
          tf.cast(counts, tf.float64) - expected
      ) / randomizer.kept_minus_other
      measurements = collections.OrderedDict(
          num_reports=tf.cast(num_reports, tf.int32)
      )
      return tf.cast(estimates, tf.float32), measurements

    return _compose(randomize, shuffle.build_counts(num_categories), release)


def _build_process(randomize, release, randomizer):
  if randomizer.report_scale is None:
    step = shuffle.build_collection(randomizer.report_spec.shape[0])
  else:
    step = shuffle.build_sum(
        randomizer.num_params, step=shuffle.grid_step(randomizer.report_scale)
    )
  return _compose(randomize, step, release)


def _compose(randomize, shuffle_step, release):
  """Returns the process that joins the client's, shuffle and server's steps."""

  @tff.federated_computation
  def init_fn():
    return tff.federated_value((), tff.SERVER)

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(randomize.type_signature.parameter, tff.CLIENTS),
  )
  def next_fn(state, value):
    reports = tff.federated_map(randomize, value)
    result, measurements = tff.federated_map(release, shuffle_step(reports))
    return tff.templates.MeasuredProcessOutput(state, result, measurements)

  return tff.templates.AggregationProcess(init_fn, next_fn)


def _shuffled_type(randomizer: client_randomizers.ClientRandomizer) -> tff.Type:
  """Returns the type of everything that the server learns about the clients."""
  if randomizer.report_scale is None:
    width = randomizer.report_spec.shape[0]
    return tff.TensorType(np.int64, [None, width])
  return tff.to_type(
      collections.OrderedDict(
          total=tff.TensorType(np.int64, [randomizer.num_params]),
          num_reports=np.int32,
      )
  )


def _sum_estimates(randomizer, shuffled):
  """Returns (sum of the estimates, float32 [d], number of reports, int32)."""
  if randomizer.report_scale is not None:
    step = shuffle.grid_step(randomizer.report_scale)
    total = tf.cast(shuffled['total'], tf.float64) * step
    return tf.cast(total, tf.float32), shuffled['num_reports']
  num_reports = tf.shape(shuffled)[0]
  # Each report expands to a vector of the model's size. Cores draw a few of
  # these side by side, and they are added one after the other, in the order of
  # the reports. A report of zeros, which fills up the last step, adds zeros.
  at_once = max(1, min(_MOST_AT_ONCE, _MOST_NUMBERS // randomizer.num_params))
  filled = tf.pad(shuffled, [[0, (-num_reports) % at_once], [0, 0]])

  def add(index, total):
    drawn = tf.TensorArray(
        tf.float32, at_once, element_shape=[randomizer.num_params]
    )
    for i in range(at_once):
      drawn = drawn.write(i, randomizer.estimate(filled[index + i]))
    # In a loop, as TensorFlow would add up a sum of many terms in another
    # order.
    _, total = tf.while_loop(
        lambda i, _: i < at_once,
        lambda i, total: (i + 1, total + drawn.read(i)),
        (tf.constant(0), total),
        parallel_iterations=1,
    )
    return index + at_once, total

  _, total = tf.while_loop(
      lambda index, _: index < num_reports,
      add,
      (tf.constant(0), tf.zeros([randomizer.num_params])),
      parallel_iterations=1,
  )
  return total, num_reports


def _flatten(update) -> tf.Tensor:
  return tf.concat(
      [tf.reshape(tensor, [-1]) for tensor in tf.nest.flatten(update)], axis=0
  )


def _unflatten(vector: tf.Tensor, specs):
  flat = tf.nest.flatten(specs)
  parts = tf.split(vector, [spec.shape.num_elements() for spec in flat])
  return tf.nest.pack_sequence_as(
      specs, [tf.reshape(part, spec.shape) for part, spec in zip(parts, flat)]
  )
