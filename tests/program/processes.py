# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Processes of TFF's builders, right ones and spoilt ones, for tests."""

import collections
import functools

import numpy as np
import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import mechanisms
from tff_dp.learning import process as process_lib

NUM_ROUNDS = 4
SGD = tff.learning.optimizers.build_sgdm(0.1)
_algorithms = tff.learning.algorithms
_templates = tff.learning.templates


def build_plan(**changes) -> tff_dp.DpFtrlPlan:
  return small_model.build_plan(
      mechanisms.HonakerTree(NUM_ROUNDS), **changes
  )


def build_adaptive_plan() -> tff_dp.DpFtrlPlan:
  return small_model.build_plan(
      mechanisms.Tree(NUM_ROUNDS, restart_every=2),
      adaptive_clipping=mechanisms.AdaptiveClipping(target_quantile=0.5),
  )


def fed_avg(aggregator=None):
  return _algorithms.build_unweighted_fed_avg(
      small_model.build(), SGD, model_aggregator=aggregator
  )


def model_with_loss() -> tff.learning.models.FunctionalModel:
  """Returns the small model, with its loss as a metric of the clients."""
  model = small_model.build()

  def with_batch(state, labels, batch_output, sample_weight=None):
    del labels, sample_weight
    return collections.OrderedDict(loss=state['loss'] + batch_output.loss)

  return tff.learning.models.FunctionalModel(
      initial_weights=model.initial_weights,
      predict_on_batch_fn=model.predict_on_batch,
      loss_fn=model.loss,
      metrics_fns=(
          lambda: collections.OrderedDict(loss=tf.constant(0.0)),
          with_batch,
          lambda state: state,
      ),
      input_spec=model.input_spec,
  )


# What the builder of TFF traces anew for every process.
@functools.cache
def _parts():
  model = model_with_loss()

  @tff.tensorflow.computation
  def initial_weights():
    return tff.learning.models.ModelWeights(*model.initial_weights)

  return dict(
      initial_weights=initial_weights,
      client_work=_templates.build_functional_model_delta_client_work(
          model=model,
          optimizer=SGD,
          client_weighting=tff.learning.ClientWeighting.UNIFORM,
          metrics_aggregator=tff.learning.metrics.sum_then_finalize,
      ),
      finalizer=_templates.build_apply_optimizer_finalizer(
          tff.learning.optimizers.build_sgdm(1.0),
          initial_weights.type_signature.result,
      ),
  )


def of_aggregator(aggregator):
  """Returns a process of federated averaging, in a third of the time."""
  return process_lib.of_parts(aggregator, **_parts())


@functools.cache
def without_noise():
  return of_aggregator(tff.aggregators.UnweightedMeanFactory())


def of_plan(plan):
  """Returns the process of a plan's aggregator, built and compiled once.

  Its key is drawn anew by every `initialize`.
  """
  aggregator = plan.aggregator()  # Also keeps the plan among the latest ones.
  if plan.fingerprint not in _of_plans:
    _of_plans[plan.fingerprint] = of_aggregator(aggregator)
  return _of_plans[plan.fingerprint]


_of_plans = {}


def variable_model() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
          [tf.keras.layers.Dense(1, input_shape=(2,), name='only')]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None, 1], tf.float32),
      ),
  )


class Clients:
  client_ids = [f'{i}' for i in range(8)]

  def create_tf_dataset_for_client(self, client_id: str):
    return small_model.client(int(client_id))


def estimated_norm():
  return tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=1.0, target_quantile=0.5, learning_rate=0.2
  )


def around(change, aggregator):
  """Returns the process of `aggregator`, changed by a federated function."""

  class Factory(tff.aggregators.UnweightedAggregationFactory):

    def create(self, value_type):
      inner = aggregator.create(value_type)

      @tff.federated_computation(*inner.next.type_signature.parameter)
      def next_fn(state, value):
        return change(inner, state, value)

      return tff.templates.AggregationProcess(inner.initialize, next_fn)

  return of_aggregator(Factory())


def scaled_by_the_mean(inner, state, value):
  """Lets every client's update depend on those of all others."""

  @tff.tensorflow.computation(value.type_signature.member)
  def norm(update):
    return tf.linalg.global_norm(tf.nest.flatten(update))

  @tff.tensorflow.computation(value.type_signature.member, np.float32)
  def scale(update, by):
    return tf.nest.map_structure(lambda tensor: tensor * by, update)

  mean = tff.federated_mean(tff.federated_map(norm, value))
  return inner.next(
      state, tff.federated_map(scale, (value, tff.federated_broadcast(mean)))
  )


def with_the_count(inner, state, value):
  """Adds an exact count to what is released."""

  @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, np.int32
  )
  def add(mean, count):
    return tf.nest.map_structure(
        lambda tensor: tensor + tf.cast(count, tf.float32), mean
    )

  output = inner.next(state, value)
  count = output.measurements['not_covered']['num_clients']
  return tff.templates.MeasuredProcessOutput(
      output.state,
      tff.federated_map(add, (output.result, count)),
      output.measurements,
  )


def measured_as_snr(inner, state, value):
  """Gives an exact count the name of a metric that is covered."""
  output = inner.next(state, value)
  count = output.measurements['not_covered']['num_clients']
  return tff.templates.MeasuredProcessOutput(
      output.state,
      output.result,
      tff.federated_zip(collections.OrderedDict(snr=count)),
  )


def state_stands_still(inner, state, value):
  """Draws the noise of round 1 in every round."""
  output = inner.next(state, value)
  return tff.templates.MeasuredProcessOutput(
      state, output.result, output.measurements
  )


def released_twice(inner, state, value):
  """Releases two noised sums in a round."""
  first, second = inner.next(state, value), inner.next(state, value)
  return tff.templates.MeasuredProcessOutput(
      first.state, second.result, first.measurements
  )
