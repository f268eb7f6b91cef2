# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conformance cases: aggregation processes, learning processes, evaluation."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tff_dp import aggregators
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.systems.dp_ftrl import builders
from tff_dp.systems.dp_ftrl import plan as plan_lib

CASES = {}

# Kernels differ between TFF's build of TensorFlow and the installed one.
_TRAINING_TOLERANCE = 1e-6
_ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR
_UPDATE = tff.to_type(
    collections.OrderedDict(
        kernel=tff.TensorType(np.float32, [3, 2]), bias=[np.float32]
    )
)


def _case(**properties):
  return conformance.case(CASES, **properties)


# Aggregators, on fixed client values: bit for bit.


def _updates(round_num: int, num_clients: int):
  rng = np.random.default_rng(round_num)
  return [
      collections.OrderedDict(
          kernel=rng.normal(scale=scale, size=[3, 2]).astype(np.float32),
          bias=[np.float32(rng.normal())],
      )
      # The last client's update is too large for every clip and zeroing.
      for scale in (*[0.1] * (num_clients - 1), 1e4)
  ]


def _three_rounds(process, *, is_weighted: bool = False):
  """Returns a function that runs three rounds with 4, 2 and 5 clients."""

  def run():
    state, released = process.initialize(), []
    for round_num, num_clients in enumerate((4, 2, 5)):
      weights = [[1.0, 0.5, 3.0, 0.1, 2.0][:num_clients]] if is_weighted else []
      output = process.next(state, _updates(round_num, num_clients), *weights)
      state = output.state
      released.append((output.result, output.measurements))
    return released, state

  return run


@_case()
def sum_factory():
  return (_three_rounds(tff.aggregators.SumFactory().create(_UPDATE)),)


@_case()
def weighted_mean_factory():
  process = tff.aggregators.MeanFactory().create(
      _UPDATE, tff.TensorType(np.float32)
  )
  return (_three_rounds(process, is_weighted=True),)


@_case()
def mean_with_clipping_and_zeroing():
  # Both bounds adapt, so the second round depends on the first one's counts.
  factory = tff.learning.robust_aggregator(
      zeroing=True,
      clipping=True,
      weighted=True,
      debug_measurements_fn=tff.learning.add_debug_measurements,
  )
  process = factory.create(_UPDATE, tff.TensorType(np.float32))
  return (_three_rounds(process, is_weighted=True),)


@_case()
def gaussian_without_noise():
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
      noise_multiplier=0.0, clients_per_round=4, clip=0.5
  )
  return (_three_rounds(factory.create(_UPDATE)),)


@_case()
def gaussian_without_noise_and_with_adaptive_clip():
  factory = tff.aggregators.DifferentiallyPrivateFactory.gaussian_adaptive(
      noise_multiplier=0.0, clients_per_round=4, clipped_count_stddev=0.0
  )
  return (_three_rounds(factory.create(_UPDATE)),)


@_case()
def concatenated_sum():
  factory = tff.aggregators.concat_factory(tff.aggregators.SumFactory())
  return (_three_rounds(factory.create(_UPDATE)),)


@_case(native=False)
def secure_sum_factory():
  factory = tff.aggregators.SecureSumFactory(2.0, -2.0)
  return (_three_rounds(factory.create(_UPDATE)),)


@_case(native=False)
def secure_aggregator():
  factory = tff.learning.secure_aggregator(zeroing=False, weighted=False)
  process = factory.create(tff.TensorType(np.float32, [6]))

  def run():
    values = [value['kernel'].reshape(-1) for value in _updates(0, 4)]
    output = process.next(process.initialize(), values)
    return output, process.next(output.state, values[1:])

  return (run,)


@_case(native=False)
def secure_modular_sum_factory():
  factory = tff.aggregators.SecureModularSumFactory(17, symmetric_range=True)
  process = factory.create(tff.TensorType(np.int32, [3]))

  def run():
    values = [np.array([n, -n, 5 * n], np.int32) for n in range(4)]
    return process.next(process.initialize(), values)

  return (run,)


@_case()
def reservoir_sample_of_everybody():
  # The accumulator grows: its tensors have no static shape.
  factory = tff.aggregators.UnweightedReservoirSamplingFactory(sample_size=10)
  process = factory.create(tff.TensorType(np.int32))

  def run():
    output = process.next(process.initialize(), [5, 3, 8, 1])
    return np.sort(output.result)

  return (run,)


@_case()
def correlated_noise():
  factory = aggregators.CorrelatedNoiseFactory(
      mechanisms.HonakerTree(8, restart_every=2),
      noise_multiplier=1.3,
      l2_norm_clip=0.5,
      clients_per_round=4,
      insecure_seed=7,
  )
  return (_three_rounds(factory.create(_UPDATE)),)


# Learning processes: within the tolerance.


def _model_fn():
  start = tf.keras.initializers.GlorotUniform(1)
  model = tf.keras.Sequential([
      tf.keras.layers.Dense(2, kernel_initializer=start, input_shape=(3,))
  ])
  return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, 3], tf.float32),
          y=tf.TensorSpec([None], tf.int32),
      ),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _clients(*sizes: int):
  rng = np.random.default_rng(sum(sizes))
  datasets = []
  for size in sizes:
    x = rng.standard_normal((size, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    examples = tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(x=x, y=y)
    )
    datasets.append(examples.batch(2))
  return datasets


def _two_rounds_of_training(process):
  def run():
    state, metrics = process.initialize(), []
    # Another number of clients, odd batches, and a client without examples.
    for clients in (_clients(5, 3), _clients(4, 0, 7)):
      output = process.next(state, clients)
      state = output.state
      metrics.append(output.metrics)
    return state, metrics

  return run


@_case(tolerance=_TRAINING_TOLERANCE, at_once=5)
def weighted_fed_avg():
  process = tff.learning.algorithms.build_weighted_fed_avg(
      _model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      server_optimizer_fn=tff.learning.optimizers.build_adam(0.05),
  )
  return (_two_rounds_of_training(process),)


@_case(tolerance=_TRAINING_TOLERANCE, at_once=5)
def dp_ftrl():
  plan = plan_lib.DpFtrlPlan(
      mechanism=mechanisms.HonakerTree(8),
      participation=participation.UniformSampling(8),
      l2_norm_clip=0.1,
      clients_per_round=2,
      # Noise follows from the data to the last bit, which kernels do not agree
      # on; `correlated_noise` has noise, on values that they do not touch.
      noise_multiplier=1e-6,
  )
  process = builders.build_dp_ftrl(
      _model_fn,
      plan,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.7,
      momentum=0.9,
      insecure_seed=3,
  )
  train = _two_rounds_of_training(process)

  def run():
    state, metrics = train()
    # Of the aggregator's, the signal over so little noise has few digits.
    trained = [each['client_work'] for each in metrics]
    return process.get_model_weights(state), trained

  return (run,)


@_case(tolerance=_TRAINING_TOLERANCE, at_once=3)
def fed_eval():
  process = tff.learning.algorithms.build_fed_eval(
      _model_fn, loop_implementation=_ITERATOR
  )

  def run():
    state = process.initialize()
    return process.next(state, _clients(5, 0, 3)).metrics

  return (run,)
