# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Oracle cases: layers for signals, rotated updates, and a large cohort.

See `builders`.
"""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import models
from tests.oracle import oracle

CASES: list[oracle.Case] = []
_case = oracle.adds(CASES, 'builder')

_algorithms = tff.learning.algorithms
_layers = tf.keras.layers
_optimizers = tff.learning.optimizers
# More than the clients of a loop.
_MANY = 70


# Layers. Each model has several, because a case costs about the same for any.


def _recurrent():
  one_way = models.recurrent(
      _layers.GRU, return_sequences=True, reset_after=False
  )
  return [
      _layers.Bidirectional(one_way),
      models.recurrent(_layers.SimpleRNN, unroll=True),
  ]


def _convolution():
  return [
      _layers.Conv1D(
          4, 3, padding='causal', kernel_initializer=models.Fixed(1)
      ),
      _layers.LayerNormalization(),
      _layers.SeparableConv1D(
          3,
          2,
          depthwise_initializer=models.Fixed(2),
          pointwise_initializer=models.Fixed(3),
      ),
      _layers.TimeDistributed(models.dense(3, 4, 'gelu')),
      _layers.GlobalMaxPool1D(),
  ]


for _make in (_recurrent, _convolution):

  @_case(f'fed_avg_of{_make.__name__}_layers')
  def _average(make=_make):
    def model():
      return tf.keras.Sequential(
          [_layers.InputLayer([5, 3]), *make(), models.dense(3, 5)]
      )

    process = _algorithms.build_weighted_fed_avg(
        models.variable_model(model, 'signal', models.class_metrics()),
        client_optimizer_fn=_optimizers.build_sgdm(0.1, momentum=0.9),
    )
    return models.train_on('signal', process, models.pipelines)


@_case()
def fed_avg_with_rotated_updates():
  """The signs of rotations come from a seed, which usually is the time."""
  rotations = tff.aggregators.HadamardTransformFactory(
      tff.aggregators.DiscreteFourierTransformFactory()
  )
  process = _algorithms.build_weighted_fed_avg(
      models.variable_model(models.mlp, 'table'),
      client_optimizer_fn=_optimizers.build_sgdm(0.1),
      model_aggregator=tff.aggregators.MeanFactory(rotations),
  )
  start = process.initialize()
  seeds = ((), np.int64([5, 0])), np.int64([3, 0])
  aggregator = collections.OrderedDict(start.aggregator)
  aggregator['value_sum_process'] = seeds
  return models.train(
      process,
      lambda round_num: models.pipelines('table', round_num),
      start._replace(aggregator=aggregator),
  )


# A large cohort.


@_case()
def fed_prox_of_many_filtered_clients():
  """Few clients come in the second round."""

  def client(*seed):
    rows = models.slices(models.examples('table', 8 - seed[-1] % 3, *seed))
    return rows.filter(lambda row: row['y'] != 1).batch(models.BATCH_SIZE)

  def clients(round_num):
    num_clients = 5 if round_num else _MANY
    return [client(round_num, number) for number in range(num_clients)]

  process = _algorithms.build_weighted_fed_prox(
      models.variable_model(models.mlp, 'table'),
      proximal_strength=0.3,
      client_optimizer_fn=_optimizers.build_adam(0.05),
      server_optimizer_fn=_optimizers.build_yogi(0.1),
  )
  return models.train(process, clients)
