# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What silos hand to a secure sum, and what the server makes of it."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _failures
from tff_dp.aggregators import clipping
from tff_dp.aggregators import integer_sum
from tff_dp.learning import finalizers
from tff_dp.learning.silos import client_work
from tff_dp.learning.silos import gradients as gradients_lib
from tff_dp.learning.silos import terms as terms_lib
from tff_dp.plans import secure_sums


class MeanOfRowsFactory(tff.aggregators.UnweightedAggregationFactory):
  """The decoded mean of the silos' rows, in the shape of the weights."""

  def __init__(self, inner, trainable_type: tff.Type):
    self._inner = inner
    self._trainable_type = trainable_type

  def create(self, value_type) -> tff.templates.AggregationProcess:
    inner = self._inner.create(value_type)
    like = tff.types.type_to_tf_tensor_specs(self._trainable_type)
    mean_type = inner.next.type_signature.result.result.member

    @tff.tensorflow.computation(mean_type)
    @tf.function(autograph=False)
    def unflatten(mean):
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
    plan: secure_sums.SecureSumPlan,
    *,
    label_range: gradients_lib.LabelRange,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns work whose update is the gradients of K records, one a row.

  They stay in the silo, with the key of the round: the aggregator encodes, adds
  up and noises them there.

  Args:
    model: A `FunctionalModel` of float32 weights.
    weights_type: Of its `ModelWeights`.
    plan: K, R, C, and the noise of a silo's own share.
    label_range: See `gradients.build_per_example`.
  """
  per_example = gradients_lib.build_per_example(
      model, label_range=label_range
  )
  size, count = plan.dimension, plan.sums.records_per_silo
  l2_norm_clip = plan.l2_norm_clip
  # The same in all silos.
  (phase,) = next(iter(plan.terms.values())).phases
  data_type = terms_lib.data_type(model.input_spec, 1, 0)

  @tff.tensorflow.computation(
      weights_type.trainable, data_type, tff.TensorType(np.int64)
  )
  @tf.function
  def work(trainable, data, round_index):
    terms = terms_lib.read(data[terms_lib.TERMS], l2_norm_clip=l2_norm_clip)
    is_noised = tf.debugging.assert_less_equal(
        terms['noise_stddev'],
        tf.constant([phase.noise_stddev], tf.float64),
        message=_failures.assertion(
            'the process adds less noise than this silo has agreed to'
        ),
    )
    num_seen = tf.constant(0, tf.int64)
    for batch in iter(data[terms_lib.EXAMPLES]):
      num_seen += tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
    is_complete = client_work.is_complete(terms, num_seen)
    with tf.control_dependencies([is_noised, is_complete]):
      first = round_index * count
    # Positions r K .. (r + 1) K - 1 of an order that never changes.
    records = data[terms_lib.EXAMPLES].unbatch().skip(first).take(count)
    rows, _, _ = per_example(
        trainable, records.batch(count).get_single_element()
    )
    result = tff.learning.templates.ClientResult(
        update=collections.OrderedDict({
            integer_sum.ROWS: tf.ensure_shape(
                clipping.clip_rows(rows, l2_norm_clip), [count, size]
            ),
            integer_sum.KEY: tf.ensure_shape(
                client_work.round_key(terms, round_index, trainable), [2]
            ),
        }),
        update_weight=tf.constant(1.0),
    )
    return result, tf.zeros([0]), client_work.nothing_unprotected()

  return client_work.wrap_work(
      work,
      weights_type,
      data_type,
      num_rounds=plan.num_rounds,
      release=integer_sum.release_of(plan.release_facts),
  )
