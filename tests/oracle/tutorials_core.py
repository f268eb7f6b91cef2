# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF's tutorials on federated computations and noise, see `tutorials`."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tests.oracle import models
from tests.oracle import oracle

CASES: list[oracle.Case] = []
_case = oracle.adds(CASES, 'tutorial')
_NUM_PIXELS = models.NUM_PIXELS
_NUM_LABELS = models.NUM_LABELS


# Custom algorithms, part 1: federated computations.


@_case()
def custom_algorithms_1():
  float_at_clients = at_clients(np.float32)

  @tff.federated_computation
  def greet():
    return 'Hello, World!'

  @tff.federated_computation(float_at_clients)
  def average(readings):
    return tff.federated_mean(readings)

  @tff.tensorflow.computation(np.float32)
  def add_half(x):
    return tf.add(x, 0.5)

  @tff.federated_computation(float_at_clients)
  def add_half_on_clients(x):
    return tff.federated_map(add_half, x)

  def ten():
    return tf.constant(10.0)

  @tff.tensorflow.computation(np.float32)
  def add_ten(x):
    return x + ten()

  @tff.tensorflow.computation(tff.SequenceType(np.float32))
  def local_average(temperatures):
    total, count = temperatures.reduce(
        (0.0, 0), lambda state, x: (state[0] + x, state[1] + 1)
    )
    return total / tf.cast(count, tf.float32)

  @tff.tensorflow.computation(tff.SequenceType(np.int32))
  def total(numbers):
    return numbers.reduce(np.int32(0), lambda state, x: state + x)

  @tff.tensorflow.computation(
      tff.SequenceType(collections.OrderedDict(A=np.int32, B=np.int32))
  )
  def dot(pairs):
    return pairs.reduce(
        np.int32(0), lambda state, pair: state + pair['A'] * pair['B']
    )

  @tff.federated_computation(at_clients(tff.SequenceType(np.float32)))
  def global_average(readings):
    return tff.federated_mean(tff.federated_map(local_average, readings))

  # Also as datasets of a client each, and for many clients of one size.
  many = np.random.default_rng(6).normal(70.0, 2.0, [20, 5])
  as_datasets = [
      tf.data.Dataset.from_tensor_slices(row.astype(np.float32))
      .shuffle(3, seed=2)
      .repeat(2)
      for row in many
  ]
  return oracle.flat({
      'greet': greet(),
      'average': average([68.5, 70.3, 69.8]),
      'add_half': add_half_on_clients([1.0, 3.0, 2.0]),
      'add_ten': add_ten(5.0),
      'total': total([1, 2, 3]),
      'local_average': local_average([68.5, 70.3, 69.8]),
      'dot': dot([{'A': 2, 'B': 3}, {'A': 4, 'B': 5}]),
      'global': global_average([[68.0, 70.0], [71.0], [68.0, 72.0, 70.0]]),
      'global_of_many': global_average(many.astype(np.float32).tolist()),
      'global_of_datasets': global_average(as_datasets),
      'global_with_nobody_home': global_average([[68.0], []]),
  })


# Custom algorithms, part 2: federated averaging from scratch.


def _digits_by_client(seed: int) -> list[list[dict[str, np.ndarray]]]:
  """Returns a client for each label with batches, the last one smaller."""
  rng = np.random.default_rng(seed)
  shapes = np.random.default_rng(7).uniform(size=[_NUM_LABELS, _NUM_PIXELS])
  clients = []
  for label in range(_NUM_LABELS):
    sizes = [8, 8, 3] if label % 4 else [8]
    clients.append([
        {
            'x': np.clip(
                shapes[label] + rng.normal(0.0, 0.3, [size, _NUM_PIXELS]), 0, 1
            ).astype(np.float32),
            'y': np.full([size], label, np.int32),
        }
        for size in sizes
    ])
  return clients


@_case()
def custom_algorithms_2():
  train_data, test_data = _digits_by_client(8), _digits_by_client(9)
  batch_type = tff.types.tensorflow_to_type(
      collections.OrderedDict(
          x=tf.TensorSpec([None, _NUM_PIXELS], tf.float32),
          y=tf.TensorSpec([None], tf.int32),
      )
  )
  model_type = tff.types.tensorflow_to_type(
      collections.OrderedDict(
          weights=tf.TensorSpec([_NUM_PIXELS, _NUM_LABELS], tf.float32),
          bias=tf.TensorSpec([_NUM_LABELS], tf.float32),
      )
  )
  data_type = tff.SequenceType(batch_type)

  @tf.function
  def forward_pass(model, batch):
    probabilities = tf.nn.softmax(
        tf.matmul(batch['x'], model['weights']) + model['bias']
    )
    likelihoods = tf.reduce_sum(
        tf.one_hot(batch['y'], _NUM_LABELS) * tf.math.log(probabilities),
        axis=[1],
    )
    return -tf.reduce_mean(likelihoods)

  @tff.tensorflow.computation(model_type, batch_type)
  def batch_loss(model, batch):
    return forward_pass(model, batch)

  @tff.tensorflow.computation(model_type, batch_type, np.float32)
  def batch_train(initial_model, batch, learning_rate):
    variables = collections.OrderedDict([
        (name, tf.Variable(name=name, initial_value=value))
        for name, value in initial_model.items()
    ])
    optimizer = tf.keras.optimizers.SGD(learning_rate)

    @tf.function
    def train_on_batch(variables, batch):
      with tf.GradientTape() as tape:
        loss = forward_pass(variables, batch)
      gradients = tape.gradient(loss, variables)
      optimizer.apply_gradients(
          zip(tf.nest.flatten(gradients), tf.nest.flatten(variables))
      )
      return variables

    return train_on_batch(variables, batch)

  @tff.federated_computation(model_type, np.float32, data_type)
  def local_train(initial_model, learning_rate, batches):
    @tff.federated_computation((model_type, np.float32), batch_type)
    def step(model_and_rate, batch):
      model, rate = model_and_rate
      return batch_train(model, batch, rate), rate

    model, _ = tff.sequence_reduce(
        batches, (initial_model, learning_rate), step
    )
    return model

  @tff.federated_computation(model_type, data_type)
  def local_eval(model, batches):
    @tff.tensorflow.computation((model_type, np.float32), batch_type)
    def accumulate(model_and_loss, batch):
      model, loss = model_and_loss
      return model, loss + batch_loss(model, batch)

    _, loss = tff.sequence_reduce(batches, (model, 0.0), accumulate)
    return loss

  @tff.federated_computation(at_server(model_type), at_clients(data_type))
  def federated_eval(model, data):
    return tff.federated_mean(
        tff.federated_map(local_eval, [tff.federated_broadcast(model), data])
    )

  @tff.federated_computation(
      at_server(model_type), at_server(np.float32), at_clients(data_type)
  )
  def federated_train(model, learning_rate, data):
    return tff.federated_mean(
        tff.federated_map(
            local_train,
            [
                tff.federated_broadcast(model),
                tff.federated_broadcast(learning_rate),
                data,
            ],
        )
    )

  initial = collections.OrderedDict(
      weights=np.zeros([_NUM_PIXELS, _NUM_LABELS], np.float32),
      bias=np.zeros([_NUM_LABELS], np.float32),
  )
  values = {'loss_of_batch': batch_loss(initial, train_data[5][-1])}
  model, losses = initial, []
  for _ in range(3):
    model = batch_train(model, train_data[5][-1], 0.1)
    losses.append(batch_loss(model, train_data[5][-1]))
  values['batches'] = [model, losses]
  local = local_train(initial, 0.1, train_data[5])
  values['local'] = [
      local,
      local_eval(initial, train_data[5]),
      local_eval(local, train_data[5]),
      local_eval(local, train_data[0]),
  ]
  values['before'] = federated_eval(initial, train_data)
  model, rate = initial, 0.1
  for number in range(3):
    model = federated_train(model, rate, train_data)
    rate *= 0.9
    values[f'round_{number}'] = [model, federated_eval(model, train_data)]
  values['test'] = [
      federated_eval(initial, test_data),
      federated_eval(model, test_data),
  ]
  return oracle.flat(values)


# An algorithm of one's own on a functional model.


def _own_algorithm(preprocess):
  """Trains for four rounds; Keras evaluates before and after."""
  train_data = models.datasets_of(models.digits(10), preprocess)
  all_clients = models.digits(11).create_tf_dataset_from_all_clients(seed=1)
  test_data = preprocess(all_clients)

  def create_keras_model():
    return tf.keras.models.Sequential([
        tf.keras.layers.Input(shape=(_NUM_PIXELS,)),
        tf.keras.layers.Dense(
            _NUM_LABELS,
            kernel_initializer=tf.keras.initializers.GlorotNormal(seed=0),
        ),
        tf.keras.layers.Softmax(),
    ])

  model = tff.learning.models.functional_model_from_keras(
      create_keras_model(),
      loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(),
      input_spec=train_data[0].element_spec,
      metrics_constructor=collections.OrderedDict(
          accuracy=tf.keras.metrics.SparseCategoricalAccuracy
      ),
  )

  @tf.function
  def client_update(dataset, initial_weights, optimizer):
    weights = initial_weights.trainable
    state = optimizer.initialize(
        tf.nest.map_structure(tf.TensorSpec.from_tensor, weights)
    )
    for x, y in dataset:
      with tf.GradientTape() as tape:
        tape.watch(weights)
        outputs = model.predict_on_batch(
            model_weights=(weights, ()), x=x, training=True
        )
        loss = model.loss(output=outputs, label=y)
      state, weights = optimizer.next(
          state, weights=weights, gradients=tape.gradient(loss, weights)
      )
    return tff.learning.models.ModelWeights(weights, non_trainable=())

  @tff.tensorflow.computation
  def server_init():
    return tff.learning.models.ModelWeights(*model.initial_weights)

  weights_type = server_init.type_signature.result
  data_type = tff.SequenceType(tff.types.tensorflow_to_type(model.input_spec))

  @tff.tensorflow.computation(data_type, weights_type)
  def client_update_fn(dataset, weights):
    optimizer = tff.learning.optimizers.build_sgdm(learning_rate=0.01)
    return client_update(dataset, weights, optimizer)

  @tff.tensorflow.computation(weights_type)
  def server_update_fn(mean_weights):
    return mean_weights

  @tff.federated_computation
  def initialize_fn():
    return tff.federated_eval(server_init, tff.SERVER)

  @tff.federated_computation(at_server(weights_type), at_clients(data_type))
  def next_fn(weights, data):
    client_weights = tff.federated_map(
        client_update_fn, (data, tff.federated_broadcast(weights))
    )
    return tff.federated_map(
        server_update_fn, tff.federated_mean(client_weights)
    )

  process = tff.templates.IterativeProcess(initialize_fn, next_fn)

  def evaluate(weights):
    keras_model = create_keras_model()
    keras_model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(),
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )
    weights.assign_weights_to(keras_model)
    return keras_model.evaluate(test_data, verbose=0)

  state = process.initialize()
  values = {'initial': state, 'before': evaluate(state)}
  for number in range(4):
    state = process.next(state, train_data)
    values[f'round_{number}'] = state
  values['after'] = evaluate(state)
  return oracle.flat(values)


@_case()
def own_algorithm():
  return _own_algorithm(
      lambda dataset: dataset.batch(8).map(
          lambda element: tuple(models.flat_images(element).values())
      )
  )


@_case()
def own_algorithm_plain_tables():
  # Neither a map nor a variable: clients of one size work at once.
  def preprocess(dataset):
    everything = models.flat_images(next(iter(dataset.batch(1000))))
    return tf.data.Dataset.from_tensor_slices(
        tuple(everything.values())
    ).batch(8)

  return _own_algorithm(preprocess)


# Random noise.


@_case()
def noise_from_seeds():
  seed_type = tff.TensorType(np.int64, [2])

  @tff.tensorflow.computation
  def noise(seed):
    return tf.random.stateless_normal((), seed=seed)

  @tff.federated_computation(at_server(seed_type), at_clients(np.int32))
  def extremes(seed, clients):
    del clients  # Says how many there are.
    on_clients = tff.federated_map(noise, tff.federated_broadcast(seed))
    return tff.federated_min(on_clients), tff.federated_max(on_clients)

  weights = [tf.TensorSpec([2, 2]), tf.TensorSpec([1])]

  @tff.tensorflow.computation(seed_type)
  def noise_of_structure(seed):
    @tf.function
    def draw():
      seeds = [
          seed + tf.constant([0, index], tf.int64)
          for index in range(len(weights))
      ]
      noise = [
          tf.random.stateless_normal(spec.shape, seed=one)
          for spec, one in zip(weights, seeds)
      ]
      return noise, seeds[-1] + tf.constant([0, 1], tf.int64)

    return draw()

  @tff.federated_computation(seed_type)
  def two_noises(seed):
    first, seed = noise_of_structure(seed)
    second, seed = noise_of_structure(seed)
    return first, second, seed

  @tff.tensorflow.computation
  def noise_of_generator(index):
    generator = tf.random.Generator.from_seed(index)

    @tf.function
    def draw():
      return [generator.normal(spec.shape) for spec in weights]

    return draw()

  @tff.federated_computation
  def noises_of_generators():
    return noise_of_generator(1), noise_of_generator(2)

  @tff.federated_computation(at_clients(np.int32))
  def noises_on_clients(seeds):
    return tff.federated_map(noise_of_generator, seeds)

  return oracle.flat({
      'first': extremes(np.array([1, 1]), [0] * 10),
      'second': extremes(np.array([2, 2]), [0] * 10),
      'two': two_noises(np.array([123456789, 0])),
      'generators': noises_of_generators(),
      'on_clients': noises_on_clients([3, 1, 4, 1, 5]),
  })


def _draws_on_clients(draw, num_calls: int) -> dict[str, np.ndarray]:
  """Returns what clients draw with the minima and maxima of some calls."""

  @tff.federated_computation(at_clients(np.int32))
  def draw_on_clients(clients):
    del clients  # Says how many there are.
    drawn = tff.federated_eval(draw, tff.CLIENTS)
    return drawn, tff.federated_min(drawn), tff.federated_max(drawn)

  calls = [draw_on_clients([0] * 100) for _ in range(num_calls)]
  for drawn, smallest, largest in calls:
    # What is kept and what is aggregated must be the same draws.
    assert smallest == min(drawn) and largest == max(drawn)
  return {'drawn': np.array([drawn for drawn, _, _ in calls])}


@_case(is_random=True)
def noise_of_generators_by_chance():
  @tff.tensorflow.computation
  def draw():
    return tf.random.Generator.from_non_deterministic_state().normal(())

  return _draws_on_clients(draw, 5)


def _build_initial_weight():
  """Returns a computation that builds a Keras layer and gives its weight."""

  @tff.tensorflow.computation
  def draw():
    inputs = tf.keras.Input(shape=(1,))
    outputs = tf.keras.layers.Dense(1)(inputs)
    model = tf.keras.Model(inputs=inputs, outputs=outputs)
    weights = tff.learning.models.ModelWeights.from_model(model)
    return tf.reshape(weights.trainable[0], [-1])[0]

  @tff.federated_computation(at_clients(np.int32))
  def draw_on_clients(clients):
    del clients  # Says how many there are.
    drawn = tff.federated_eval(draw, tff.CLIENTS)
    return tff.federated_min(drawn), tff.federated_max(drawn)

  return draw_on_clients


@_case(is_random=True)
def noise_of_keras_initializers():
  drawn = [_build_initial_weight()([0])[0] for _ in range(60)]
  return {'drawn': np.array(drawn)}


@_case()
def noise_of_one_keras_initializer():
  # Keras chooses a seed when it builds a layer, so all clients draw the same.
  draw = _build_initial_weight()
  extremes = np.array([draw([0] * 10) for _ in range(3)])
  return {'spread': extremes.max() - extremes.min()}


@_case(is_random=True)
def noise_of_operations():
  # In a computation, a seed of the whole program changes nothing.
  tf.random.set_seed(1)

  @tff.tensorflow.computation(np.int32)
  def draw(_):
    return tf.random.normal([])

  @tff.tensorflow.computation
  def draw_on_client():
    return tf.random.normal([]), tf.random.uniform([])

  @tff.federated_computation(at_clients(np.int32))
  def draw_on_clients(clients):
    del clients  # Says how many there are.
    return tff.federated_eval(draw_on_client, tff.CLIENTS)

  drawn = np.array([draw_on_clients([0] * 300) for _ in range(3)])
  return {
      'by_server': np.array([draw(number) for number in range(60)]),
      'normal_by_clients': drawn[:, :, 0],
      'uniform_by_clients': drawn[:, :, 1],
  }


@_case(is_random=True)
def noise_from_the_clock():
  @tff.tensorflow.computation
  def initial_seed():
    return tf.stack([tf.cast(tf.timestamp() * 1e6, tf.int64), 0])

  @tff.tensorflow.computation(initial_seed.type_signature.result)
  def draw(seed):
    noise = tf.random.stateless_normal([50], seed=seed)
    return noise, seed + tf.constant([0, 1], tf.int64)

  @tff.federated_computation
  def draw_twice():
    seed = initial_seed()
    first, seed = draw(seed)
    second, seed = draw(seed)
    return first, second

  return {'drawn': np.array([draw_twice() for _ in range(2)])}
