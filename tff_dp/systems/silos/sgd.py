# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builders of plain noisy minibatch SGD, and of local SGD, over silos.

Source: Lowy and Razaviyayn, arXiv:2106.09779.

`planning` explains the arguments that all builders share: `silos`, `sampling`,
`l2_norm_clip` and `**options`.
"""

from collections.abc import Sequence
from typing import Literal, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import streams
from tff_dp.aggregators import clipping
from tff_dp.aggregators import release_marks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.systems.silos import client_work
from tff_dp.systems.silos import gradients as gradients_lib
from tff_dp.systems.silos import planning
from tff_dp.systems.silos import process as process_lib
from tff_dp.systems.silos import server
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import terms as terms_lib

Averaging = Union[
    Literal['uniform', 'exponential', 'last', 'last_8'], averaging_lib.Average
]
_LAST_MODELS = 8
# Purposes of the keys of a local step.
_RECORD, _STEP_NOISE = 'silo record', 'silo step noise'


@_calls.helpful
def build_noisy_mb_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    silos: planning.Silos,
    num_rounds: int,
    sampling: planning.Samplings,
    l2_norm_clip: float,
    learning_rate: Union[float, Sequence[float]],
    averaging: Averaging = 'uniform',
    strong_convexity: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    regularization: float = 0.0,
    **options,
) -> process_lib.SiloProcess:
  """Returns a process of noisy minibatch SGD.

      w_{r+1} = Proj(w_r - eta_r (mean of the messages at w_r
                                  + lambda (w_r - w_0)))

  With `DisjointBlocks` this is plain one-pass SGD. Source: arXiv:2106.09779,
  algorithm 2.

  Args:
    model: A `FunctionalModel`, see `planning`.
    silos: Budgets by name, see `planning`.
    num_rounds: Number of rounds R.
    sampling: One scheme for all silos, or name -> scheme, see `planning`.
    l2_norm_clip: Clip norm, see `planning`.
    learning_rate: Learning rate eta, or eta_0..eta_{R-1}.
    averaging: Result of `get_model_weights`, an `Average` or one of these
      names. 'uniform' is the mean of w_0..w_{R-1}. 'exponential', for strongly
      convex objectives, is their mean with the weights
      (1 - (mu + lambda) eta)^-(r+1). 'last_8' is the mean of the last 8 of
      them, or of all if R is below 8. 'last' is w_R.
    strong_convexity: Strong convexity mu of the loss, without the regulariser.
    constraint: Set in which the model has to stay, see `planning`.
    regularization: Regularisation lambda, see `planning`.
    **options: `noise_stddev`, `published_proofs`, `label_range`,
      `private_metrics`, `allow_unprotected_metrics`, `model_aggregator` and
      `insecure_seed`, see `planning`.

  Raises:
    ArgumentError: If a value is outside its range.
  """
  options = planning.Options(**options)
  rates = _learning_rates(learning_rate, num_rounds)
  _checks.non_negative(strong_convexity=strong_convexity)
  _checks.non_negative(regularization=regularization)
  average = _average(
      averaging,
      rates,
      num_rounds,
      strong_convexity=strong_convexity + regularization,
  )
  constraint = constraint or constraints.Unconstrained()
  terms = planning.one_phase_terms(
      silos, sampling, num_rounds, l2_norm_clip, options
  )
  finalizer = lambda weights_type: server.build_sgd_finalizer(
      weights_type,
      learning_rates=rates,
      constraint=constraint,
      regularization=regularization,
      average=average,
  )
  return planning.compose(
      model,
      silos,
      terms,
      options,
      constraint=constraint,
      build_finalizer=finalizer,
      result=None if average is None else server.averaged_result,
  )


@_calls.helpful
def build_isrl_local_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    silos: planning.Silos,
    num_rounds: int,
    num_local_steps: int,
    l2_norm_clip: float,
    learning_rate: float,
    averaging: Averaging = 'last',
    constraint: Optional[constraints.Constraint] = None,
    **options,
) -> process_lib.SiloProcess:
  """Returns a process of ISRL-DP local SGD, a baseline.

  Every step of a silo is on one record, drawn uniformly from its n records, and
  has noise for the sensitivity 2C, with clip norm C. The accounting counts
  num_local_steps times R steps, each at sampling rate 1/n. Source:
  arXiv:2106.09779, appendix I.

  Args:
    model: A `FunctionalModel`, see `planning`.
    silos: Budgets by name, see `planning`. Weights p_i apply to the silos'
      moves: if silo i moves the model w to v_i and all silos can be reached,
      the model moves by sum_i p_i (v_i - w).
    num_rounds: Number of rounds R.
    num_local_steps: Number of steps of a silo between two messages.
    l2_norm_clip: Clip norm, see `planning`.
    learning_rate: Learning rate eta of the silos.
    averaging: Result of `get_model_weights`, an `Average` or one of these
      names. 'last' is w_R. 'uniform' is the mean of w_1..w_R. 'last_8' is the
      mean of the last 8 of them, or of all if R is below 8.
    constraint: Set in which the model has to stay, see `planning`.
    **options: Options of `build_noisy_mb_sgd` without metrics.
  """
  options = planning.Options(**options)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.integer_at_least(1, num_local_steps=num_local_steps)
  _checks.positive(learning_rate=learning_rate)
  for name in ('private_metrics', 'allow_unprotected_metrics'):
    if value := getattr(options, name):
      raise _checks.ArgumentError(
          name, value, 'no value, because local SGD releases only models'
      )
  terms = planning.one_phase_terms(
      silos,
      silo_sampling.FixedSize(1),
      num_rounds * num_local_steps,
      l2_norm_clip,
      options,
  )
  average = _average(averaging, learning_rate, num_rounds)
  constraint = constraint or constraints.Unconstrained()
  work = lambda weights_type, release: _local_work(
      model,
      weights_type,
      num_rounds=num_rounds,
      num_local_steps=num_local_steps,
      learning_rate=float(learning_rate),
      l2_norm_clip=float(l2_norm_clip),
      label_range=options.label_range,
      release=release,
  )
  finalizer = lambda weights_type: server.build_replacing_finalizer(
      weights_type,
      num_rounds=num_rounds,
      constraint=constraint,
      average=average,
  )
  return planning.compose(
      model,
      silos,
      terms,
      options,
      constraint=constraint,
      build_work=work,
      build_finalizer=finalizer,
      result=None if average is None else server.averaged_result,
      releases_per_round=num_local_steps,
  )


def _learning_rates(learning_rate, num_rounds: int) -> np.ndarray:
  rates = np.asarray(learning_rate, np.float64)
  if rates.ndim == 0:
    _checks.positive(learning_rate=learning_rate)
    return np.full(num_rounds, float(learning_rate))
  if rates.shape != (num_rounds,) or not np.all(
      (rates > 0) & np.isfinite(rates)
  ):
    raise _checks.ArgumentError(
        'learning_rate',
        f'array of shape {rates.shape}',
        f'a number, or {num_rounds} finite numbers above 0, one for each round',
    )
  return rates


def _average(
    averaging: Averaging,
    rates: Union[float, np.ndarray],
    num_rounds: int,
    *,
    strong_convexity: float = 0.0,
) -> Optional[averaging_lib.Average]:
  if isinstance(averaging, averaging_lib.Average):
    return averaging
  _checks.one_of(
      ('uniform', 'exponential', 'last', 'last_8'), averaging=averaging
  )
  if averaging == 'last':
    return None
  if averaging == 'last_8' and num_rounds > _LAST_MODELS:
    return averaging_lib.SuffixAverage(_LAST_MODELS / num_rounds)
  if averaging == 'exponential':
    rate = np.max(rates)
    if np.any(rates != rate) or not 0 < strong_convexity * rate < 1:
      raise _checks.ArgumentError(
          'averaging',
          averaging,
          'another average: this one needs the same learning rate eta in all'
          ' rounds and 0 < (strong_convexity + regularization) eta < 1',
      )
    return averaging_lib.ExponentialAverage(1.0 - strong_convexity * rate)
  return averaging_lib.UniformAverage()


def _local_work(
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
  """Returns the client work of local SGD. See `client_work.wrap_work`.

      v = w, then num_local_steps times, on one uniform record of the silo:
          v <- v - eta (clip_C(gradient at v) + u),  u normal with std sigma

  The silo then sends w + scale (v - w). The scale is 1 if silos have no
  weights. With weights p_i the mean over silos is w + sum_i p_i (v_i - w). A
  batch of one has sensitivity 2C, so each of the num_local_steps times R steps
  needs as much noise as a whole round of minibatch SGD with K = 1. All steps
  are accounted for at sampling rate 1/n.

  Source: arXiv:2106.09779, appendix I. The noise in that paper is too small for
  the paper's claim, and is not offered here.

  Args:
    model: Stateless model with float32 weights.
    weights_type: Type of its `ModelWeights`.
    num_rounds: Number of rounds R.
    num_local_steps: Number of steps between two messages.
    learning_rate: Learning rate eta of the silos.
    l2_norm_clip: Clip norm C.
    label_range: Range of labels, see `gradients.build_per_example`.
    release: Release of the plan, see `client_work.wrap_work`.
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
    # All records at once, because each step may take any of them.
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
