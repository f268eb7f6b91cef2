# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One-pass accelerated minibatch SGD whose silos hide in a secure sum (SDP).

    silo:    rounds the clipped gradients of its next K records to a grid, and
             sends their sum plus the silo's share of integer noise
    opened:  the sum over all silos, and nothing else
    server:  decodes the sum to a mean, and takes it as the gradient of AC-SA,
             as in `accelerated`

The noise of all silos together protects a record. So there is far less noise
than if every silo protected its own records alone. The price is trust in the
secure summation and in the other silos. Every record is in at most one sum.

Sources: arXiv:2106.09779, algorithms 4 to 6, with exact calibration instead of
the printed constants, see `systems.silos.integer_plans`.
"""

import collections
from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import _failures
from tff_dp.aggregators import clipping
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.learning import local_training
from tff_dp.learning import process as learning_process
from tff_dp.systems.silos import accelerated
from tff_dp.systems.silos import client_work
from tff_dp.systems.silos import gradients as gradients_lib
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import process as process_lib
from tff_dp.systems.silos import secure_sum_plan
from tff_dp.systems.silos import server
from tff_dp.systems.silos import sum_factory
from tff_dp.systems.silos import terms as terms_lib


@_calls.helpful
def build_secure_sum_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    num_records: Mapping[str, int],
    num_rounds: int,
    l2_norm_clip: float,
    epsilon: float,
    delta: float,
    min_silos: int,
    noise: str = 'skellam',
    grid: int = 128,
    label_range: gradients_lib.LabelRange = None,
    gamma: Optional[float] = None,
    stages: Optional[Sequence[minibatch_schedules.Stage]] = None,
    strong_convexity: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    regularization: float = 0.0,
) -> process_lib.SiloProcess:
  """Returns a process of one-pass accelerated minibatch SGD on secure sums.

  Every silo uses K = floor(min_i n_i / R) fresh records in each round, so the
  decoded sum is the mean over all records of the round. The noise is calibrated
  for `min_silos`. Rounds with fewer silos are refused. Rounds with more silos
  have more noise than necessary.

  Args:
    model: A `FunctionalModel`, see `planning`.
    num_records: Number of records of each silo, by its public name.
    num_rounds: Number of rounds R, at most the records of the smallest silo.
    l2_norm_clip: Clip norm C of the gradient of every record.
    epsilon: Budget of every record, for the noise of all silos together.
    delta: Target delta, above 0 and at most 0.1.
    min_silos: Number of honest silos promised to be in every sum.
    noise: 'skellam', 'binomial' or 'discrete-gaussian'.
    grid: Number h of steps of the grid from -C to C, at most 256 with binomial
      noise on more than one weight. Because of rounding, a replaced record may
      move the sum by up to h + sqrt(d) steps in L2 norm instead of h, with d
      weights.
    label_range: Range of labels, see `planning`.
    gamma: Step parameter, see `accelerated.build_accelerated_mb_sgd_erm`.
    stages: Stages, see `accelerated.build_accelerated_mb_sgd_erm`.
    strong_convexity: Strong convexity mu of the loss, without the regulariser.
    constraint: Set in which the model has to stay, see `planning`.
    regularization: Regularisation lambda, see `planning`.

  Raises:
    ArgumentError: If a value is out of range, if a silo has fewer records than
      rounds, or if no noise that can be drawn is enough for the budget.
  """
  dimension = gradients_lib.num_params(model)
  _check_records(num_records, num_rounds)
  _checks.integer_between(1, len(num_records), min_silos=min_silos)
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.positive(epsilon=epsilon)
  _checks.non_negative(strong_convexity=strong_convexity)
  _checks.non_negative(regularization=regularization)
  gradients_lib.check_label_range(label_range)
  leg = server.Leg(
      accelerated.stages_of(num_rounds, gamma, stages),
      strong_convexity=strong_convexity,
      regularization=regularization,
  )
  plan = secure_sum_plan.SecureSumPlan(
      num_records,
      integer_plans.calibrate(
          noise,
          epsilon=epsilon,
          delta=delta,
          dimension=dimension,
          grid=grid,
          records_per_silo=min(num_records.values()) // num_rounds,
          min_silos=min_silos,
      ),
      num_rounds=num_rounds,
      l2_norm_clip=float(l2_norm_clip),
      dimension=dimension,
  )
  constraint = constraint or constraints.Unconstrained()
  initial_weights = local_training.build_initial_weights(model, constraint)
  weights_type = initial_weights.type_signature.result
  sums = sum_factory.IntegerVectorSumFactory(
      plan.sums, l2_norm_clip=plan.l2_norm_clip, max_silos=len(num_records)
  )
  process = learning_process.of_parts(
      server.ReportedMeanFactory(
          _MeanOfRowsFactory(sums, weights_type.trainable)
      ),
      initial_weights,
      _build_rows_work(
          model, weights_type, plan, label_range=label_range
      ),
      server.build_accelerated_finalizer(
          weights_type, (leg,), constraint=constraint
      ),
  )
  return process_lib.SiloProcess(
      process, plan=plan, result=server.accelerated_result
  )


def _check_records(num_records: Mapping[str, int], num_rounds: int) -> None:
  if not num_records:
    raise _checks.ArgumentError(
        'num_records', num_records, 'the records of at least one silo'
    )
  _checks.integer_at_least(1, num_rounds=num_rounds)
  for name, count in num_records.items():
    _checks.integer_at_least(1, num_records=count)
    if count < num_rounds:
      raise _checks.ArgumentError(
          'num_rounds',
          num_rounds,
          f'at most {count}, the records of silo {name!r}: in one pass every'
          ' round uses other records',
      )


class _MeanOfRowsFactory(tff.aggregators.UnweightedAggregationFactory):
  """Factory of the decoded mean of the silos' rows, shaped like the weights."""

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


def _build_rows_work(
    model,
    weights_type,
    plan: secure_sum_plan.SecureSumPlan,
    *,
    label_range: gradients_lib.LabelRange,
) -> tff.learning.templates.ClientWorkProcess:
  """Returns client work whose update has K clipped gradients as its rows.

  The rows and the key of the round stay in the silo. There, the aggregator
  encodes the rows, sums them and adds noise.

  Args:
    model: A `FunctionalModel` of float32 weights.
    weights_type: Type of its `ModelWeights`.
    plan: Plan with K, R, C, and the noise of a silo's own share.
    label_range: Range of labels, see `gradients.build_per_example`.
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
            sum_factory.ROWS: tf.ensure_shape(
                clipping.clip_rows(rows, l2_norm_clip), [count, size]
            ),
            sum_factory.KEY: tf.ensure_shape(
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
      release=sum_factory.release_of(plan.release_facts),
  )
