# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The federated computations of Draw and Discard.

1. Every client draws the number of an instance from its own key.
2. `tff.federated_select` gives the client that instance and no other.
3. The client moves the instance, adds its noise and returns it (`client`).
4. The reports are collected in one array. Their order means nothing.
5. The server shuffles and writes the reports (`pool`).

Plain `federated_select` may show the server which instance a client asked for.
The guarantee does not rest on hiding it. A runtime with a secure select would
hide it.
"""

import collections
from collections.abc import Mapping
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import streams
from tff_dp.learning import finalizers
from tff_dp.systems.draw_and_discard import client as client_lib
from tff_dp.systems.draw_and_discard import models
from tff_dp.systems.draw_and_discard import plan as plan_lib
from tff_dp.systems.draw_and_discard import pool as pool_lib

MEAN_WEIGHTS, MEAN_PREDICTIONS = PREDICTIONS = (
    'mean_weights',
    'mean_predictions',
)

# Number of latest reports that are collected before they are appended to the
# others.
_LATEST = 64


def build_process(
    model: models.FlatModel,
    plan: plan_lib.DrawAndDiscardPlan,
    rules: pool_lib.Rules,
    *,
    client_keys: bool,
    server_seed: Optional[int],
    allow_unprotected_metrics: bool,
) -> tff.learning.templates.LearningProcess:
  """Returns the process as a plain TFF process, without an attribute `plan`.

  Args:
    model: Model.
    plan: Plan with the step of the clients.
    rules: Rules of the server.
    client_keys: Whether a client's coin and noise follow from its key, as for
      `build_draw_and_discard`, which also explains the other arguments.
    server_seed: Seed of the server's coins, `None` for fresh coins.
    allow_unprotected_metrics: Whether to report sums without noise.
  """
  size = model.num_params
  num_models = rules.strategy.num_models
  needs_drawn = rules.strategy.needs_drawn
  client = client_lib.build(model, plan, client_keys=client_keys)
  weights_type = model.initial_weights.type_signature.result

  @tff.tensorflow.computation(weights_type)
  @tf.function(autograph=False)
  def initial_pool(weights):
    key = (
        streams.random_root_key()
        if server_seed is None
        else streams.insecure_root_key(server_seed)
    )
    return pool_lib.initialize(
        rules, finalizers.flatten(weights.trainable), key
    )

  @tff.tensorflow.computation
  def initial_state():
    return initial_pool(model.initial_weights())

  state_type = initial_state.type_signature.result
  instances_type = state_type.instances

  @tff.tensorflow.computation(instances_type, tff.TensorType(np.int32))
  @tf.function(autograph=False)
  def take(instances, index):
    return instances[index]

  @tff.tensorflow.computation
  def last_key():
    return tf.constant(num_models - 1)

  reports_type = tff.TensorType(np.float32, [None, size])
  # Most reports, the latest reports, and the instances that the server is told.
  # With two arrays, a report is copied about twice, instead of once per later
  # client.
  collected_type = tff.to_type(
      (reports_type, reports_type, tff.TensorType(np.int32, [None]))
  )

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def nothing():
    return tf.zeros([0, size]), tf.zeros([0, size]), tf.zeros([0], tf.int32)

  @tff.tensorflow.computation(
      collected_type,
      tff.to_type((
          tff.TensorType(np.float32, [size]),
          tff.TensorType(np.int32, [int(needs_drawn)]),
      )),
  )
  @tf.function(autograph=False)
  def collect(collected, one):
    reports, latest, drawn = collected
    latest = tf.concat([latest, one[0][tf.newaxis]], axis=0)
    reports, latest = tf.cond(
        tf.shape(latest)[0] < _LATEST,
        lambda: (reports, latest),
        lambda: (tf.concat([reports, latest], axis=0), latest[:0]),
    )
    return reports, latest, tf.concat([drawn, one[1]], axis=0)

  @tff.tensorflow.computation(collected_type, collected_type)
  @tf.function(autograph=False)
  def merge(left, right):
    reports = tf.concat([*left[:2], right[0]], axis=0)
    return reports, right[1], tf.concat([left[2], right[2]], axis=0)

  @tff.tensorflow.computation(collected_type)
  @tf.function(autograph=False)
  def collected_all(collected):
    reports, latest, drawn = collected
    return tf.concat([reports, latest], axis=0), tf.identity(drawn)

  @tff.tensorflow.computation(
      state_type, collected_all.type_signature.result
  )
  @tf.function(autograph=False)
  def apply(state, collected):
    reports, drawn = collected
    new_state, counts = pool_lib.apply_reports(rules, state, reports, drawn)
    counts.update(pool_lib.measure(new_state))
    return new_state, counts

  @tff.tensorflow.computation(
      client.move.type_signature.result[1]
  )
  @tf.function(autograph=False)
  def unprotected(sums):
    return collections.OrderedDict(
        train=collections.OrderedDict(
            loss=tf.math.divide_no_nan(
                sums.loss, tf.cast(sums.num_examples, tf.float32)
            ),
            num_examples=sums.num_examples,
            num_refused=sums.num_refused,
        )
    )

  @tff.federated_computation
  def init_fn():
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
      init_fn.type_signature.result,
      tff.FederatedType(client.data_type, tff.CLIENTS),
  )
  def next_fn(state, data):
    round_index = tff.federated_broadcast(state.round)
    if client_keys:
      keys = tff.federated_map(client.key, data)
    else:
      keys = tff.federated_eval(client.key, tff.CLIENTS)
    drawn, told = tff.federated_map(client.draw, (keys, round_index))
    slices = tff.federated_select(
        drawn,
        tff.federated_eval(last_key, tff.SERVER),
        state.instances,
        take,
    )
    instance = tff.federated_map(client.instance, slices)
    moved, sums = tff.federated_map(client.move, (instance, data))
    reports = tff.federated_map(client.report, (moved, keys, round_index))
    collected = tff.federated_aggregate(
        tff.federated_zip((reports, told)),
        nothing(),
        collect,
        merge,
        collected_all,
    )
    new_state, counts = tff.federated_map(apply, (state, collected))
    client_work = collections.OrderedDict()
    if allow_unprotected_metrics:
      client_work['not_covered'] = tff.federated_map(
          unprotected, tff.federated_sum(sums)
      )
    return tff.learning.templates.LearningProcessOutput(
        new_state,
        tff.federated_zip(
            collections.OrderedDict(
                client_work=tff.federated_zip(client_work)
                if client_work
                else tff.federated_value(client_work, tff.SERVER),
                aggregator=counts,
            )
        ),
    )

  @tff.tensorflow.computation(state_type)
  @tf.function(autograph=False)
  def get_model_weights(state):
    return model.weights(tf.reduce_mean(state.instances, axis=0))

  @tff.tensorflow.computation(state_type, weights_type)
  @tf.function(autograph=False)
  def set_model_weights(state, weights):
    return pool_lib.set_weights(
        rules, pool_lib.Pool(*state), finalizers.flatten(weights.trainable)
    )

  return tff.learning.templates.LearningProcess(
      init_fn, next_fn, get_model_weights, set_model_weights
  )


def build_predict(
    process: tff.learning.templates.LearningProcess,
    model: models.FlatModel,
    how: str,
) -> tff.Computation:
  """Returns the computation (state, features of a batch) -> predictions.

  Args:
    process: Process of the state.
    model: Model.
    how: Way to predict, one of `PREDICTIONS`.
  """
  state_type = process.initialize.type_signature.result.member
  x_type = tff.types.tensorflow_to_type(_features(model.input_spec))

  @tff.tensorflow.computation(state_type, x_type)
  def predict(state, x):
    of_vector = model.build_predict()

    @tf.function(autograph=False)
    def run(state, x):
      if how == MEAN_WEIGHTS:
        return of_vector(tf.reduce_mean(state.instances, axis=0), x)
      outputs = [of_vector(one, x) for one in tf.unstack(state.instances)]
      return tf.add_n(outputs) / len(outputs)

    return run(state, x)

  return predict


def _features(input_spec):
  return input_spec['x'] if isinstance(input_spec, Mapping) else input_spec[0]
