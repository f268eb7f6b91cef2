# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The silo's side of ISRL-DP local SGD, the baseline of minibatch SGD.

    v = w;  num_local_steps times, on one uniform record of the silo:
        v <- v - eta (clip_C(gradient at v) + u),  u normal with std sigma

and w + scale (v - w) leaves the silo; scale is 1 but for weighted silos, whose
mean is then w + sum_i p_i (v_i - w). A batch of one has sensitivity 2C, so each
of the num_local_steps R steps needs as much noise as a whole round of minibatch
SGD with K = 1: all of them are accounted at sampling rate 1/n.

Source: arXiv:2106.09779, appendix I, whose noise for it is too small for its
claim and is not offered.
"""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import release_marks
from tff_dp.learning import finalizers
from tff_dp.learning.silos import client_work
from tff_dp.learning.silos import gradients as gradients_lib
from tff_dp.learning.silos import terms as terms_lib

_RECORD, _STEP_NOISE = 'silo record', 'silo step noise'


def build_local_work(
    model: tff.learning.models.FunctionalModel,
    weights_type: tff.StructWithPythonType,
    *,
    num_rounds: int,
    num_local_steps: int,
    learning_rate: float,
    l2_norm_clip: float,
    label_range: gradients_lib.LabelRange = None,
    release: release_marks.Release,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work of local SGD; see `client_work.wrap_work`.

  Args:
    model: Stateless, with float32 weights.
    weights_type: Of its `ModelWeights`.
    num_rounds: R.
    num_local_steps: Steps between two messages.
    learning_rate: eta of the silos.
    l2_norm_clip: C.
    label_range: See `gradients.build_per_example`.
    release: Of the plan, see `client_work.wrap_work`.
  """
  per_example = gradients_lib.build_per_example(
      model, label_range=label_range
  )
  size = gradients_lib.num_params(model)
  data_type = terms_lib.data_type(model.input_spec, 1, 0)

  @tff.tensorflow.computation(
      weights_type.trainable, data_type, tff.TensorType(np.int64)
  )
  @tf.function
  def work(trainable, data, round_index):
    all_terms = terms_lib.read(
        data[terms_lib.TERMS], l2_norm_clip=l2_norm_clip
    )
    key = client_work.round_key(all_terms, round_index, trainable)
    terms = terms_lib.of_phase(all_terms, tf.constant(0))
    num_records = terms['num_records']
    # All records at once, since each step takes any of them.
    records = data[terms_lib.EXAMPLES].unbatch().batch(num_records)
    records = records.get_single_element()
    num_seen = tf.shape(tf.nest.flatten(records)[0], tf.int64)[0]
    with tf.control_dependencies([client_work.is_complete(terms, num_seen)]):
      start = tf.cast(finalizers.flatten(trainable), tf.float64)
    point = start
    for step in tf.range(num_local_steps):
      step_key = streams.fold_in(key, step)
      index = streams.integers(
          [1], streams.domain_key(step_key, _RECORD), below=num_records
      )
      record = gradients_lib.gather(records, index)
      weights = finalizers.unflatten(
          tf.cast(point, tf.float32), like=trainable
      )
      rows, _, _ = per_example(weights, record)
      clipped = clipping.clip_rows(rows, l2_norm_clip)[0]
      clipped = tf.cast(clipped, tf.float64)
      noise = client_work.normals(
          streams.fold_in(step_key, streams.digest(clipped)), _STEP_NOISE, size
      )
      point -= learning_rate * (clipped + terms['noise_stddev'] * noise)
    message = start + terms['scale'] * (point - start)
    result = tff.learning.templates.ClientResult(
        update=finalizers.unflatten(
            tf.cast(message, tf.float32), like=trainable
        ),
        update_weight=tf.constant(1.0),
    )
    return result, tf.zeros([0]), client_work.nothing_unprotected()

  return client_work.wrap_work(
      work, weights_type, data_type, num_rounds=num_rounds, release=release
  )
