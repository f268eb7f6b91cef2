# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What silos hand to a secure sum, and what the server makes of it."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _failures
from tff_dp.accounting.integers import integer_plans
from tff_dp.learning import finalizers
from tff_dp.learning.silos import client_work
from tff_dp.learning.silos import gradients as gradients_lib
from tff_dp.learning.silos import terms as terms_lib


class MeanOfRowsFactory(tff.aggregators.UnweightedAggregationFactory):
  """The decoded mean of the silos' rows, in the shape of the weights."""

  def __init__(self, inner, trainable_type: tff.Type):
    self._inner = inner
    self._trainable_type = trainable_type

  def create(self, value_type) -> tff.templates.AggregationProcess:
    inner = self._inner.create(value_type)
    like_type = self._trainable_type
    mean_type = inner.next.type_signature.result.result.member

    @tff.tensorflow.computation(mean_type)
    @tf.function(autograph=False)
    def unflatten(mean):
      like = tff.types.type_to_py_container(
          tff.structure.map_structure(
              lambda tensor: tf.zeros(tensor.shape, tensor.dtype), like_type
          ),
          like_type,
      )
      return finalizers.unflatten(mean, like=like)

    @tff.federated_computation(
        inner.initialize.type_signature.result,
        tff.FederatedType(value_type, tff.CLIENTS),
    )
    def next_fn(state, value):
      output = inner.next(state, value)
      return tff.templates.MeasuredProcessOutput(
          output.state,
          tff.federated_map(unflatten, output.result),
          tff.federated_value((), tff.SERVER),
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


def build_rows_work(
    model,
    weights_type,
    plan,
    *,
    num_rounds: int,
    l2_norm_clip: float,
    label_range: gradients_lib.LabelRange,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns work whose update is the gradients of K records, one a row.

  They stay in the silo: the aggregator encodes, adds up and noises them there.

  Args:
    model: A `FunctionalModel` of float32 weights.
    weights_type: Of its `ModelWeights`.
    plan: K, and the noise of a silo's own share.
    num_rounds: R.
    l2_norm_clip: C.
    label_range: See `gradients.build_per_example`.
  """
  per_example = gradients_lib.build_per_example(
      model, label_range=label_range
  )
  size = gradients_lib.num_params(model)
  count = plan.records_per_silo
  own_stddev = share_stddev(plan, l2_norm_clip)
  data_type = terms_lib.data_type(
      model.input_spec, 1, 0, has_debug_key=False
  )

  @tff.tensorflow.computation(
      weights_type.trainable, data_type, tff.TensorType(np.int64)
  )
  @tf.function
  def work(trainable, data, round_index):
    terms = terms_lib.read(data[terms_lib.TERMS], l2_norm_clip=l2_norm_clip)
    is_noised = tf.debugging.assert_less_equal(
        terms['noise_stddev'],
        tf.constant([own_stddev], tf.float64),
        message=_failures.assertion(
            'the process adds less noise than this silo has agreed to'
        ),
    )
    num_seen = tf.constant(0, tf.int64)
    for batch in iter(data[terms_lib.EXAMPLES]):
      num_seen += tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
    is_complete = tf.debugging.assert_equal(
        num_seen,
        terms['num_records'],
        message=_failures.assertion(
            'a silo has another number of records than its terms say'
        ),
    )
    with tf.control_dependencies([is_noised, is_complete]):
      first = round_index * count
    # Positions r K .. (r + 1) K - 1 of an order that never changes.
    records = data[terms_lib.EXAMPLES].unbatch().skip(first).take(count)
    rows, _, _ = per_example(
        trainable, records.batch(count).get_single_element()
    )
    result = tff.learning.templates.ClientResult(
        update=tf.ensure_shape(
            gradients_lib.clip_rows(rows, l2_norm_clip), [count, size]
        ),
        update_weight=tf.constant(1.0),
    )
    nothing = collections.OrderedDict(
        loss=tf.constant(0.0), num_examples=tf.constant(0, tf.int64)
    )
    return result, tf.zeros([0]), nothing

  return client_work.wrap_work(
      work, weights_type, data_type, num_rounds=num_rounds
  )


def share_stddev(plan: integer_plans.SumPlan, l2_norm_clip: float) -> float:
  """Returns the std of a silo's own noise on its own mean gradient."""
  return plan.noise_variance(l2_norm_clip, num_silos=1) ** 0.5
