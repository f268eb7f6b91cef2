# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The work of a silo in a round of minibatch SGD, and its only release.

    batch   = records that the sampling chooses
    g       = (1/K) * sum over the batch of clip_C(gradient of one record)
    message = scale * (g + sigma z),   z standard normal

K is the silo's constant and never the realised size of the batch. A silo with
an empty batch sends noise alone. C, K, sigma and scale come with the silo's
data. Coins follow from a secret key of the silo, the model and the round. The
noise also depends on g and on the metrics. So a repeated round repeats its
message, and any other message has other noise. A silo without a key takes fresh
entropy of its machine each time, and then no message is ever repeated.

Source: arXiv:2106.09779, algorithms 1 and 2, with replace-one adjacency of
records: g moves by at most 2 C / K.
"""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _failures
from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import correlated_noise
from tff_dp.aggregators import release_marks
from tff_dp.learning import finalizers
from tff_dp.systems.silos import gradients as gradients_lib
from tff_dp.systems.silos import metrics as metrics_lib
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms
from tff_dp.systems.silos import terms as terms_lib

ROUND = 'round'
RELEASE_ID = 'release_id'
PRIVATE = 'private'
NOT_COVERED = 'not_covered'
# Purposes of the keys that follow from the secret key of a round.
_SAMPLE, _NOISE, _METRICS = 'silo sample', 'silo noise', 'silo metrics'


def round_key(terms, round_index, trainable) -> tf.Tensor:
  """Returns the secret key of one silo's round, int64 of shape [2].

  The key depends on the model. So a silo that is asked for the same round with
  another model draws other coins. If the terms hold no key, each call returns
  another one.

  Args:
    terms: Terms of the silo.
    round_index: Index of the round of the run.
    trainable: Weights that are sent to the silo.
  """
  key = tf.cond(
      tf.reduce_any(tf.not_equal(terms[terms_lib.KEY], 0)),
      lambda: terms[terms_lib.KEY],
      streams.random_root_key,
  )
  return streams.fold_in(
      streams.fold_in(key, round_index),
      streams.digest(finalizers.flatten(trainable)),
  )


def normals(key: tf.Tensor, domain: str, size: int) -> tf.Tensor:
  """Returns standard normals for one purpose, float64 of shape [size].

  They are float64, so that the sum of data and noise is rounded only once.

  Args:
    key: Secret key of the silo's round, int64 of shape [2].
    domain: Name of the purpose, such as 'silo noise'. Each purpose has its own
      stream.
    size: Number of normals.
  """
  return streams.normals([size], streams.domain_key(key, domain), tf.float64)


def is_complete(terms, num_seen: tf.Tensor) -> tf.Operation:
  """Returns an assertion that a silo has as many records as its terms say."""
  return tf.debugging.assert_equal(
      num_seen,
      terms['num_records'],
      message=_failures.assertion(
          'a silo has another number of records than its terms say; its noise'
          ' was calibrated for the number in the terms'
      ),
  )


def nothing_unprotected() -> collections.OrderedDict:
  """Returns zeros as the un-noised metrics of work that has no metrics."""
  return collections.OrderedDict(
      loss=tf.constant(0.0), num_examples=tf.constant(0, tf.int64)
  )


def build_minibatch_work(
    model: tff.learning.models.FunctionalModel,
    weights_type: tff.StructWithPythonType,
    phases: Sequence[silo_terms.Phase],
    *,
    l2_norm_clip: float,
    private_metrics: Sequence[metrics_lib.PrivateMetric] = (),
    allow_unprotected_metrics: bool = False,
    label_range: gradients_lib.LabelRange = None,
    release: release_marks.Release,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work of all minibatch algorithms.

  `state`: `OrderedDict(round, release_id)`. `round` is the number of finished
  rounds. With disjoint blocks it is also the number of the next block.
  `release_id` identifies the noise. A round in which no silo reports does not
  count.

  Args:
    model: Stateless model with float32 weights.
    weights_type: Type of its `ModelWeights`.
    phases: Phases of any silo. All silos have the same rounds and kinds of
      sampling.
    l2_norm_clip: Clip norm C.
    private_metrics: Metrics that are released with noise, under `private`.
    allow_unprotected_metrics: Whether to release the loss and the number of
      records of a round without noise, under `not_covered`.
    label_range: Range of labels, see `gradients.build_per_example`.
    release: Mark of the plan's noise, see `wrap_work`.
  """
  per_example = gradients_lib.build_per_example(
      model,
      [metric.function for metric in private_metrics if metric.function],
      label_range,
  )
  size = gradients_lib.num_params(model)
  phase_of, round_in_phase = silo_terms.phase_table(tuple(phases))
  (sampling_type,) = {type(phase.sampling) for phase in phases}
  num_metrics = len(private_metrics)
  data_type = terms_lib.data_type(
      model.input_spec, len(phases), num_metrics
  )

  @tff.tensorflow.computation(
      weights_type.trainable, data_type, tff.TensorType(np.int64)
  )
  @tf.function
  def work(trainable, data, round_index):
    all_terms = terms_lib.read(
        data[terms_lib.TERMS], l2_norm_clip=l2_norm_clip
    )
    key = round_key(all_terms, round_index, trainable)
    terms = terms_lib.of_phase(all_terms, tf.constant(phase_of)[round_index])
    is_used = _sampled(
        sampling_type,
        terms,
        tf.constant(round_in_phase)[round_index],
        streams.domain_key(key, _SAMPLE),
    )
    total = tf.zeros([size], tf.float64)
    metric_total = tf.zeros([num_metrics], tf.float64)
    loss = tf.constant(0.0)
    num_used = tf.constant(0, tf.int64)
    num_seen = tf.constant(0, tf.int64)
    for batch in iter(data[terms_lib.EXAMPLES]):
      length = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
      used = gradients_lib.take(batch, is_used[num_seen : num_seen + length])
      rows, losses, values = per_example(trainable, used)
      # In float64, rounding moves the sum by far less than a clip norm.
      total += tf.reduce_sum(
          tf.cast(
              clipping.clip_rows(rows, l2_norm_clip), tf.float64
          ),
          axis=0,
      )
      metric_total += tf.reduce_sum(
          metrics_lib.centred(
              _in_order(private_metrics, losses, values), private_metrics
          ),
          axis=0,
      )
      loss += tf.reduce_sum(losses)
      num_used += tf.shape(losses, tf.int64)[0]
      num_seen += length
    with tf.control_dependencies([is_complete(terms, num_seen)]):
      mean = total / terms['batch']
    values = metric_total / terms['batch']
    # Other data need other noise: equal noise would cancel in a difference.
    key = streams.fold_in(key, streams.digest(tf.concat([mean, values], 0)))
    message = terms['scale'] * (
        mean + terms['noise_stddev'] * normals(key, _NOISE, size)
    )
    values += terms['metric_stddevs'] * normals(key, _METRICS, num_metrics)
    result = tff.learning.templates.ClientResult(
        update=finalizers.unflatten(
            tf.cast(message, tf.float32), like=trainable
        ),
        update_weight=tf.constant(1.0),
    )
    unprotected = collections.OrderedDict(loss=loss, num_examples=num_used)
    return result, tf.cast(values, tf.float32), unprotected

  return wrap_work(
      work,
      weights_type,
      data_type,
      num_rounds=len(phase_of),
      release=release,
      private_metrics=private_metrics,
      allow_unprotected_metrics=allow_unprotected_metrics,
  )


def wrap_work(
    work: tff.Computation,
    weights_type: tff.Type,
    data_type: tff.Type,
    *,
    num_rounds: int,
    release: release_marks.Release,
    private_metrics: Sequence[metrics_lib.PrivateMetric] = (),
    allow_unprotected_metrics: bool = False,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns the client work process whose computation at a silo is `work`.

  Args:
    work: Computation that maps (trainable weights, silo's data, round) to
      (`ClientResult`, noised metrics, un-noised metrics).
    weights_type: Type of the model's weights.
    data_type: Type of the silo's data.
    num_rounds: Number of rounds of the run. A further round is an error.
    release: Mark of the plan's noise, whose number is in the state. The update
      and the noised metrics of `work` get this mark, unless `release.in_sum`.
    private_metrics: The metric of each noised value, in the order of the
      values.
    allow_unprotected_metrics: Whether un-noised metrics leave the silo, see
      `build_minibatch_work`.
  """
  result_type, values_type, unprotected_type = work.type_signature.result

  @tff.tensorflow.computation
  def zero():
    return collections.OrderedDict({
        ROUND: tf.constant(0, tf.int64),
        RELEASE_ID: tf.constant(release.number, tf.int64),
    })

  state_type = zero.type_signature.result

  @tff.tensorflow.computation(state_type)
  @tf.function(autograph=False)
  def begin(state):
    return correlated_noise.within_horizon(state, num_rounds)[ROUND]

  @tff.tensorflow.computation(state_type, tff.TensorType(np.int32))
  @tf.function(autograph=False)
  def end(state, num_silos):
    done = tf.cast(num_silos > 0, tf.int64)
    return collections.OrderedDict(state, round=state[ROUND] + done)

  # A separate computation, because graphs that read records are not inspected.
  @tff.tensorflow.computation(result_type.update, values_type)
  @tf.function(autograph=False)
  def marked(update, values):
    return tf.nest.map_structure(release.mark, (update, values))

  @tff.tensorflow.computation(values_type, tff.TensorType(np.int32))
  @tf.function(autograph=False)
  def mean_metrics(total, num_silos):
    mean = tf.math.divide_no_nan(total, tf.cast(num_silos, tf.float32))
    mean += tf.cast(metrics_lib.middles(private_metrics), tf.float32)
    return collections.OrderedDict(
        (metric.name, value)
        for metric, value in zip(
            private_metrics, tf.unstack(mean, num=len(private_metrics))
        )
    )

  @tff.tensorflow.computation(unprotected_type)
  @tf.function(autograph=False)
  def mean_unprotected(summed):
    count = tf.cast(summed['num_examples'], tf.float32)
    return collections.OrderedDict(
        train=collections.OrderedDict(
            loss=tf.math.divide_no_nan(summed['loss'], count),
            num_examples=summed['num_examples'],
        )
    )

  @tff.federated_computation
  def init_fn():
    return tff.federated_eval(zero, tff.SERVER)

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(weights_type, tff.CLIENTS),
      tff.FederatedType(data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    round_index = tff.federated_broadcast(tff.federated_map(begin, state))
    result, values, unprotected = tff.federated_map(
        work, (weights.trainable, data, round_index)
    )
    if not release.in_sum:
      update, values = tff.federated_map(marked, (result.update, values))
      result = tff.federated_zip(
          tff.learning.templates.ClientResult(update, result.update_weight)
      )
    num_silos = tff.federated_sum(tff.federated_value(1, tff.CLIENTS))
    measurements = collections.OrderedDict()
    if private_metrics:
      measurements[PRIVATE] = tff.federated_map(
          mean_metrics, (tff.federated_sum(values), num_silos)
      )
    if allow_unprotected_metrics:
      measurements[NOT_COVERED] = tff.federated_map(
          mean_unprotected, tff.federated_sum(unprotected)
      )
    return tff.templates.MeasuredProcessOutput(
        tff.federated_map(end, (state, num_silos)),
        result,
        tff.federated_zip(measurements)
        if measurements
        else tff.federated_value(measurements, tff.SERVER),
    )

  return tff.learning.templates.ClientWorkProcess(init_fn, next_fn)


def _in_order(
    private_metrics: Sequence[metrics_lib.PrivateMetric],
    losses: tf.Tensor,
    values: tf.Tensor,
) -> tf.Tensor:
  """Returns one column for each metric.

  The column of a metric without a function holds the losses.
  """
  columns, taken = [], 0
  for metric in private_metrics:
    column = losses
    if metric.function is not None:
      column = values[:, taken]
      taken += 1
    columns.append(column)
  if not columns:
    return values
  return tf.stack(columns, axis=1)


def _sampled(sampling_type: type, terms, round_in_phase, key) -> tf.Tensor:
  """Returns which of the silo's records take part, bool of shape [num_records].

  The silo chooses with coins from its secret key of the round: amplification by
  sampling holds only if nobody else knows the coins. Disjoint blocks need no
  coins, because their privacy only needs that no record is used twice.

  Args:
    sampling_type: `PoissonSampling`, `FixedSize` or `DisjointBlocks`.
    terms: Terms of the phase, see `terms.of_phase`.
    round_in_phase: Index of the round in the phase, 0-based.
    key: Secret key, int64 of shape [2]. It must not be used for anything else.
  """
  num_records = terms['phase_records']
  in_phase = {
      silo_sampling.PoissonSampling: _poisson,
      silo_sampling.FixedSize: _fixed_size,
      silo_sampling.DisjointBlocks: _block,
  }[sampling_type](num_records, terms['batch'], round_in_phase, key)
  rest = terms['num_records'] - terms['first_record'] - num_records
  return tf.pad(in_phase, [[terms['first_record'], rest]])


def _poisson(num_records, batch, round_in_phase, key):
  """Returns which records take part: each with probability K / n.

  The probability is exact to within 2^-52.
  """
  del round_in_phase
  uniform = streams.uniforms([num_records], key, tf.float64)
  return uniform < batch / tf.cast(num_records, tf.float64)


def _fixed_size(num_records, batch, round_in_phase, key):
  """Returns which records take part: K of them, every set equally likely."""
  del round_in_phase
  ranks = streams.bits([num_records], key)
  chosen = tf.argsort(ranks)[: tf.cast(batch, tf.int32)]
  return tf.scatter_nd(
      chosen[:, tf.newaxis],
      tf.ones_like(chosen, tf.bool),
      tf.stack([tf.cast(num_records, tf.int32)]),
  )


def _block(num_records, batch, round_in_phase, key):
  """Returns which records take part in round r: r K .. (r + 1) K - 1."""
  del key
  positions = tf.range(num_records)
  return tf.equal(positions // tf.cast(batch, tf.int64), round_in_phase)
