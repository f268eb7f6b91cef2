# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps of TFF's tutorials as cases, on small data made here.

Each function follows one tutorial: the same layers, metrics, aggregators and
ways to make a client's dataset, on fewer and smaller examples. Where a tutorial
leaves a shuffle or an initializer to chance, the case seeds it.
"""

import collections
import functools
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import oracle

CASES: list[oracle.Case] = []

_KIND = 'tutorial'
_SIDE = 6  # Of an image, in pixels.
_NUM_PIXELS = _SIDE * _SIDE
_NUM_LABELS = 10


def _case(**properties):
  """Returns a decorator that adds a function to `CASES` under its name."""

  def add(run):
    CASES.append(oracle.Case(run.__name__, _KIND, run, **properties))
    return run

  return add


def _at_clients(member) -> tff.FederatedType:
  return tff.FederatedType(member, tff.CLIENTS)


def _at_server(member) -> tff.FederatedType:
  return tff.FederatedType(member, tff.SERVER)


def _random_weights(weights, seed: int) -> tff.learning.models.ModelWeights:
  """Returns weights of the same shapes from a seed, as if pre-trained."""
  rng = np.random.default_rng(seed)

  def like(array):
    return rng.normal(0.0, 0.3, np.shape(array)).astype(np.float32)

  return tff.learning.models.ModelWeights(
      trainable=[like(array) for array in weights.trainable],
      non_trainable=[like(array) for array in weights.non_trainable],
  )


def _train(process, state, datasets_of_rounds) -> tuple[object, dict]:
  """Returns the last state, and all that the rounds give."""
  values = {'initial': state}
  for number, datasets in enumerate(datasets_of_rounds, start=1):
    output = process.next(state, datasets)
    values[f'round_{number}'] = output
    state = output.state
  return state, values


def _evaluate(process, weights, datasets):
  """Returns all that one round of an evaluation process gives."""
  state = process.set_model_weights(process.initialize(), weights)
  return process.next(state, datasets)


@functools.cache
def _digits(seed: int) -> tff.simulation.datasets.ClientData:
  """Returns 12 clients with images of digits, in the form of EMNIST.

  Eight of them have 20 images; the others have 1, 7, 33 and 40.
  """
  rng = np.random.default_rng(seed)
  shapes = rng.uniform(size=[_NUM_LABELS, _SIDE, _SIDE])
  clients = {}
  for client, num_images in enumerate([20] * 8 + [1, 7, 33, 40]):
    labels = rng.integers(_NUM_LABELS, size=num_images)
    noise = rng.normal(0.0, 0.2, [num_images, _SIDE, _SIDE])
    clients[f'client_{client:02}'] = collections.OrderedDict(
        label=labels.astype(np.int32),
        pixels=np.clip(shapes[labels] + noise, 0.0, 1.0).astype(np.float32),
    )
  return tff.simulation.datasets.TestClientData(clients)


def _datasets_of(client_data, preprocess) -> list[tf.data.Dataset]:
  return [
      preprocess(client_data.create_tf_dataset_for_client(client))
      for client in client_data.client_ids
  ]


# Image classification.


def _flat_images(element):
  return collections.OrderedDict(
      x=tf.reshape(element['pixels'], [-1, _NUM_PIXELS]),
      y=tf.reshape(element['label'], [-1, 1]),
  )


def _image_datasets(seed: int) -> list[tf.data.Dataset]:
  """Returns datasets as the tutorial makes them, `repeat` to `prefetch`."""

  def preprocess(dataset):
    return (
        dataset.repeat(3)
        .shuffle(100, seed=1)
        .batch(20)
        .map(_flat_images)
        .prefetch(10)
    )

  return _datasets_of(_digits(seed), preprocess)


def _softmax_model_fn():
  return tff.learning.models.from_keras_model(
      tf.keras.models.Sequential([
          tf.keras.layers.InputLayer(input_shape=(_NUM_PIXELS,)),
          tf.keras.layers.Dense(_NUM_LABELS, kernel_initializer='zeros'),
          tf.keras.layers.Softmax(),
      ]),
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, _NUM_PIXELS], tf.float32),
          y=tf.TensorSpec([None, 1], tf.int32),
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _images(
    model_fn, *, server_optimizer=None, make_datasets=_image_datasets
):
  """Trains for three rounds, then evaluates on training and on test data."""
  datasets = make_datasets(1)
  process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.02),
      server_optimizer_fn=server_optimizer
      or tff.learning.optimizers.build_sgdm(1.0),
  )
  state, values = _train(process, process.initialize(), [datasets] * 3)
  evaluation = tff.learning.algorithms.build_fed_eval(model_fn)
  weights = process.get_model_weights(state)
  values['train'] = _evaluate(evaluation, weights, datasets)
  values['test'] = _evaluate(evaluation, weights, make_datasets(2))
  return oracle.flat(values)


@_case()
def image_classification_keras():
  return _images(_softmax_model_fn)


@_case()
def image_classification_plain_tables():
  # Datasets that are tables already, without shuffles and maps.
  def make_datasets(seed):
    return [
        tf.data.Dataset.from_tensor_slices(
            _flat_images(next(iter(dataset.batch(1000))))
        ).batch(20)
        for dataset in _datasets_of(_digits(seed), lambda dataset: dataset)
    ]

  return _images(_softmax_model_fn, make_datasets=make_datasets)


@_case()
def image_classification_preprocessed_by_clients():
  element_spec = _digits(1).element_type_structure

  @tff.tensorflow.computation(
      tff.SequenceType(tff.types.tensorflow_to_type(element_spec))
  )
  def preprocess(dataset):
    return dataset.repeat(3).batch(20).map(_flat_images)

  process = tff.simulation.compose_dataset_computation_with_learning_process(
      preprocess,
      tff.learning.algorithms.build_weighted_fed_avg(
          _softmax_model_fn,
          client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.02),
      ),
  )
  datasets = _datasets_of(_digits(1), lambda dataset: dataset)
  _, values = _train(process, process.initialize(), [datasets] * 3)
  return oracle.flat(values)


class _SoftmaxModel(tff.learning.models.VariableModel):
  """Softmax regression on variables, with metrics of its own."""

  def __init__(self):
    self._weights = tf.Variable(
        lambda: tf.zeros([_NUM_PIXELS, _NUM_LABELS]),
        name='weights',
        trainable=True,
    )
    self._bias = tf.Variable(
        lambda: tf.zeros([_NUM_LABELS]), name='bias', trainable=True
    )
    self._num_examples, self._loss_sum, self._num_right = (
        tf.Variable(0.0, name=name, trainable=False)
        for name in ('num_examples', 'loss_sum', 'num_right')
    )

  @property
  def trainable_variables(self):
    return [self._weights, self._bias]

  @property
  def non_trainable_variables(self):
    return []

  @property
  def local_variables(self):
    return [self._num_examples, self._loss_sum, self._num_right]

  @property
  def input_spec(self):
    return collections.OrderedDict(
        x=tf.TensorSpec([None, _NUM_PIXELS], tf.float32),
        y=tf.TensorSpec([None, 1], tf.int32),
    )

  @tf.function
  def predict_on_batch(self, x, training=True):
    del training
    return tf.nn.softmax(tf.matmul(x, self._weights) + self._bias)

  @tf.function
  def forward_pass(self, batch_input, training=True):
    probabilities = self.predict_on_batch(batch_input['x'], training)
    predictions = tf.cast(tf.argmax(probabilities, 1), tf.int32)
    labels = tf.reshape(batch_input['y'], [-1])
    likelihoods = tf.reduce_sum(
        tf.one_hot(labels, _NUM_LABELS) * tf.math.log(probabilities), axis=1
    )
    loss = -tf.reduce_mean(likelihoods)
    right = tf.cast(tf.equal(predictions, labels), tf.float32)
    size = tf.cast(tf.size(labels), tf.float32)
    self._num_examples.assign_add(size)
    self._loss_sum.assign_add(loss * size)
    self._num_right.assign_add(tf.reduce_mean(right) * size)
    return tff.learning.models.BatchOutput(
        loss=loss,
        predictions=predictions,
        num_examples=tf.shape(batch_input['x'])[0],
    )

  @tf.function
  def report_local_unfinalized_metrics(self):
    return collections.OrderedDict(
        num_examples=[self._num_examples],
        loss=[self._loss_sum, self._num_examples],
        accuracy=[self._num_right, self._num_examples],
    )

  def metric_finalizers(self):
    return collections.OrderedDict(
        num_examples=tf.function(func=lambda parts: parts[0]),
        loss=tf.function(func=lambda parts: parts[0] / parts[1]),
        accuracy=tf.function(func=lambda parts: parts[0] / parts[1]),
    )

  @tf.function
  def reset_metrics(self):
    for variable in self.local_variables:
      variable.assign(tf.zeros_like(variable))


@_case()
def image_classification_variable_model():
  return _images(
      _SoftmaxModel,
      server_optimizer=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
  )


# Text generation.

_LETTERS = list('\n !,.?adehilnorstuwy')
_SEQUENCE = 10
_TEXT_BATCH = 4


class _FlatAccuracy(tf.keras.metrics.SparseCategoricalAccuracy):
  """Accuracy over all letters of all sequences."""

  def __init__(self, name='accuracy', dtype=tf.float32):
    super().__init__(name, dtype=dtype)

  def update_state(self, y_true, y_pred, sample_weight=None):
    return super().update_state(
        tf.reshape(y_true, [-1, 1]),
        tf.reshape(y_pred, [-1, len(_LETTERS), 1]),
        sample_weight,
    )


def _text_datasets(num_snippets: list[int]) -> list[tf.data.Dataset]:
  """Returns batches of letters and of those that follow them, from strings."""
  table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(
          keys=_LETTERS, values=tf.range(len(_LETTERS), dtype=tf.int64)
      ),
      default_value=0,
  )

  def to_ids(element):
    text = tf.reshape(element['snippets'], [1])
    return table.lookup(tf.strings.bytes_split(text).values)

  def split(chunk):
    return (
        tf.map_fn(lambda row: row[:-1], chunk),
        tf.map_fn(lambda row: row[1:], chunk),
    )

  rng = np.random.default_rng(3)
  # 'é' is not among the letters.
  source = np.array([*_LETTERS, 'é'])
  datasets = []
  for number in num_snippets:
    snippets = [
        ''.join(rng.choice(source, size=rng.integers(60, 90)))
        for _ in range(number)
    ]
    raw = tf.data.Dataset.from_tensor_slices(
        collections.OrderedDict(snippets=snippets)
    )
    datasets.append(
        raw.map(to_ids)
        .unbatch()
        .batch(_SEQUENCE + 1, drop_remainder=True)
        .shuffle(100, seed=5)
        .batch(_TEXT_BATCH, drop_remainder=True)
        .map(split)
        .take(4)
    )
  return datasets


def _text_model(is_stateful: bool) -> tf.keras.Model:
  # Seeds, because a GRU that is cloned in a graph goes on to work with these
  # weights: in TensorFlow 2.14, the clone reads its variables from a copy that
  # it makes when they are initialised. The tutorial does not train its GRU.
  initializers = tf.keras.initializers
  return tf.keras.models.Sequential([
      tf.keras.layers.Embedding(
          len(_LETTERS), 6, batch_input_shape=[_TEXT_BATCH, None]
      ),
      tf.keras.layers.GRU(
          8,
          return_sequences=True,
          stateful=is_stateful,
          kernel_initializer=initializers.GlorotUniform(seed=20),
          recurrent_initializer=initializers.Orthogonal(seed=21),
      ),
      tf.keras.layers.Dense(len(_LETTERS)),
  ])


def _text(*, is_stateful: bool, is_cloned: bool):
  """Trains a model from given weights, then lets Keras evaluate it."""
  datasets = _text_datasets([3, 3, 3, 5, 2])
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  keras_model = _text_model(is_stateful)

  def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.models.clone_model(keras_model)
        if is_cloned
        else _text_model(is_stateful),
        input_spec=datasets[0].element_spec,
        loss=loss,
        metrics=[_FlatAccuracy()],
    )

  process = tff.learning.algorithms.build_weighted_fed_avg(
      model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5)
  )
  state = process.initialize()
  weights = _random_weights(process.get_model_weights(state), seed=4)
  state = process.set_model_weights(state, weights)
  state, values = _train(process, state, [datasets[:1], datasets, datasets])
  # A new one, since Keras has no use for a model that was cloned in a graph.
  trained_model = _text_model(is_stateful)
  process.get_model_weights(state).assign_weights_to(trained_model)
  trained_model.compile(loss=loss, metrics=[_FlatAccuracy()])
  values['keras'] = trained_model.evaluate(datasets[3], steps=2, verbose=0)
  return oracle.flat(values)


@_case()
def text_generation():
  return _text(is_stateful=True, is_cloned=True)


@_case()
def text_generation_stateful():
  return _text(is_stateful=True, is_cloned=False)


@_case()
def text_generation_stateless():
  return _text(is_stateful=False, is_cloned=False)


# Custom algorithms, part 1: federated computations.


@_case()
def custom_algorithms_1():
  float_at_clients = _at_clients(np.float32)

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

  @tff.federated_computation(_at_clients(tff.SequenceType(np.float32)))
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

  @tff.federated_computation(_at_server(model_type), _at_clients(data_type))
  def federated_eval(model, data):
    return tff.federated_mean(
        tff.federated_map(local_eval, [tff.federated_broadcast(model), data])
    )

  @tff.federated_computation(
      _at_server(model_type), _at_server(np.float32), _at_clients(data_type)
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
  train_data = _datasets_of(_digits(10), preprocess)
  test_data = preprocess(_digits(11).create_tf_dataset_from_all_clients(seed=1))

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

  @tff.federated_computation(_at_server(weights_type), _at_clients(data_type))
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
          lambda element: tuple(_flat_images(element).values())
      )
  )


@_case()
def own_algorithm_plain_tables():
  # Neither a map nor a variable: clients of one size work at once.
  def preprocess(dataset):
    everything = _flat_images(next(iter(dataset.batch(1000))))
    return tf.data.Dataset.from_tensor_slices(
        tuple(everything.values())
    ).batch(8)

  return _own_algorithm(preprocess)


# Tuning the recommended aggregators.


def _client_values(seed: int) -> list[list[np.ndarray]]:
  """Returns updates of 12 clients; one is an outlier and one is broken."""
  rng = np.random.default_rng(seed)
  scales = np.array([1.0] * 10 + [30.0, 1e6])
  return [
      [
          (scale * rng.normal(size=shape)).astype(np.float32)
          for shape in ([3, 4], [5])
      ]
      for scale in scales
  ]


def _aggregate(factory, *, num_rounds: int = 4):
  """Returns all that an aggregator gives in some rounds."""
  values_type = tff.to_type([(np.float32, [3, 4]), (np.float32, [5])])
  is_weighted = isinstance(factory, tff.aggregators.WeightedAggregationFactory)
  weights = []
  if is_weighted:
    process = factory.create(values_type, tff.TensorType(np.float32))
    weights = [[1.0, 2.0, 3.0, 4.0] * 3]
  else:
    process = factory.create(values_type)
  state = process.initialize()
  values = {'initial': state}
  for number in range(num_rounds):
    output = process.next(state, _client_values(number), *weights)
    values[f'round_{number}'] = output
    state = output.state
  return oracle.flat(values)


@_case()
def tuning_zeroing():
  norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=10.0,
      target_quantile=0.98,
      learning_rate=math.log(10),
      multiplier=2.0,
      increment=1.0,
  )
  return _aggregate(
      tff.aggregators.zeroing_factory(norm, tff.aggregators.MeanFactory())
  )


@_case()
def tuning_clipping():
  norm = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=1.0, target_quantile=0.8, learning_rate=0.2
  )
  return _aggregate(
      tff.aggregators.clipping_factory(norm, tff.aggregators.MeanFactory())
  )


@_case()
def tuning_compression_below_threshold():
  return _aggregate(
      tff.aggregators.MeanFactory(
          tff.aggregators.EncodedSumFactory.quantize_above_threshold(
              quantization_bits=8, threshold=20000
          )
      )
  )


@_case(is_random=True)
def tuning_compression_above_threshold():
  # Every client sends the same; its coordinates are rounded up or down by
  # chance. With 397 steps, a prime, no two errors are the same by chance.
  size = 398
  process = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
      quantization_bits=4, threshold=100
  ).create(tff.TensorType(np.float32, [size]))
  value = np.linspace(-1.0, 1.0, size, dtype=np.float32)
  output = process.next(process.initialize(), [value] * 9)
  return {'errors': output.result - 9 * value}


@_case()
def tuning_secure():
  bound = tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=50.0,
      target_quantile=0.95,
      learning_rate=1.0,
      multiplier=2.0,
  )
  return _aggregate(
      tff.aggregators.MeanFactory(tff.aggregators.SecureSumFactory(bound))
  )


def _tuned_training(aggregator):
  """Trains the model of the images for three rounds with an aggregator."""
  process = tff.learning.algorithms.build_weighted_fed_avg(
      _softmax_model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      model_aggregator=aggregator,
  )
  _, values = _train(process, process.initialize(), [_image_datasets(12)] * 3)
  return oracle.flat(values)


@_case()
def tuning_robust_training():
  return _tuned_training(tff.learning.robust_aggregator())


@_case()
def tuning_compressed_training():
  return _tuned_training(tff.learning.compression_aggregator())


@_case()
def tuning_secure_training():
  return _tuned_training(tff.learning.secure_aggregator())


# Federated reconstruction.

_NUM_ITEMS = 30
_NUM_FACTORS = 5


class _UserEmbedding(tf.keras.layers.Layer):
  """The embedding of the one user of a client."""

  def __init__(self, num_factors, **arguments):
    super().__init__(**arguments)
    self.num_factors = num_factors

  def build(self, input_shape):
    self.embedding = self.add_weight(
        shape=(1, self.num_factors),
        initializer=tf.keras.initializers.RandomUniform(seed=13),
        dtype=tf.float32,
        name='user_kernel',
    )
    super().build(input_shape)

  def call(self, inputs):
    return self.embedding

  def compute_output_shape(self, input_shape):
    return (1, self.num_factors)


class _RatingAccuracy(tf.keras.metrics.Mean):
  """Share of ratings that are right when rounded."""

  def __init__(self, name='rating_accuracy', **arguments):
    super().__init__(name=name, **arguments)

  def update_state(self, y_true, y_pred, sample_weight=None):
    is_near = tf.less_equal(tf.abs(y_true - y_pred), 0.5)
    super().update_state(is_near, sample_weight=sample_weight)


def _factorization_model_fn():
  item = tf.keras.layers.Input(shape=[1], name='item')
  item_embedding = tf.keras.layers.Embedding(
      _NUM_ITEMS,
      _NUM_FACTORS,
      embeddings_initializer=tf.keras.initializers.RandomUniform(seed=14),
      name='item_embedding',
  )
  user_embedding = _UserEmbedding(_NUM_FACTORS, name='user_embedding')
  ratings = tf.keras.layers.Dot(1, normalize=False, name='dot')([
      user_embedding(item),
      tf.keras.layers.Flatten(name='flat_items')(item_embedding(item)),
  ])
  return tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
      keras_model=tf.keras.Model(inputs=item, outputs=ratings),
      global_layers=[item_embedding],
      local_layers=[user_embedding],
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, 1], tf.int64),
          y=tf.TensorSpec([None, 1], tf.float32),
      ),
  )


def _rating_datasets(num_ratings: list[int]) -> list[tf.data.Dataset]:
  """Returns what users rated, from tables with a column for the user."""
  rng = np.random.default_rng(15)
  items = rng.normal(0.0, 1.0, [_NUM_ITEMS, 2])

  def to_example(rows):
    return collections.OrderedDict(
        x=tf.cast(rows[:, 1:2], tf.int64), y=tf.cast(rows[:, 2:3], tf.float32)
    )

  datasets = []
  for user, number in enumerate(num_ratings):
    rated = rng.permutation(_NUM_ITEMS)[:number]
    ratings = np.clip(np.rint(3 + items[rated] @ rng.normal(size=2)), 1, 5)
    table = np.stack([np.full(number, user), rated, ratings], axis=1)
    datasets.append(
        tf.data.Dataset.from_tensor_slices(table.astype(np.int64))
        .take(16)
        .shuffle(16, seed=42)
        .batch(5)
        .map(to_example, num_parallel_calls=tf.data.AUTOTUNE)
    )
  return datasets


@_case()
def reconstruction():
  train_data = _rating_datasets([15] * 8 + [1, 6, 12, 30])
  test_data = _rating_datasets([20, 10, 3, 25])
  parts = dict(
      loss_fn=tf.keras.losses.MeanSquaredError,
      metrics_fn=lambda: [_RatingAccuracy()],
      reconstruction_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
  )
  process = tff.learning.algorithms.build_fed_recon(
      _factorization_model_fn,
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
      **parts,
  )
  evaluation = tff.learning.algorithms.build_fed_recon_eval(
      _factorization_model_fn, **parts
  )
  state = process.initialize()
  before = process.get_model_weights(state)
  state, values = _train(
      process, state, [train_data[:6], train_data[3:], train_data, train_data]
  )
  after = process.get_model_weights(state)
  values['before'] = _evaluate(evaluation, before, test_data)
  values['after'] = _evaluate(evaluation, after, test_data)
  return oracle.flat(values)


# Federated select.


@_case()
def select_strings():
  keys_per_client = 2
  strings_type = tff.TensorType(np.str_, [None])
  get_size = tff.tensorflow.computation(lambda strings: tf.size(strings))
  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(np.str_)
  def keys_for_client(text):
    parts = tf.strings.split([text], sep=',')[0]
    return tf.strings.to_number([parts[0], parts[1]], tf.int32)

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def concatenate(values):
    def add(total, item):
      return tf.cond(
          tf.math.equal(total, ''),
          lambda: item,
          lambda: tf.strings.join([total, item], ','),
      )

    return values.reduce('', add)

  @tff.federated_computation(_at_server(strings_type), _at_clients(np.str_))
  def broadcast_by_keys(strings, texts):
    keys = tff.federated_map(keys_for_client, texts)
    assert keys.type_signature.member.shape == (keys_per_client,)
    max_key = tff.federated_map(get_size, strings)
    selected = tff.federated_select(keys, max_key, strings, select_fn)
    return tff.federated_map(concatenate, selected)

  return oracle.flat({
      'three': broadcast_by_keys(['a', 'b', 'c'], ['0,1', '1,2', '2,0']),
      'one': broadcast_by_keys(['a', 'b', 'c'], ['2,2']),
      'many': broadcast_by_keys(
          [f'word {number}' for number in range(9)],
          [f'{number % 9},{number % 4}' for number in range(30)],
      ),
  })


@_case(is_random=True)
def select_by_chance():
  num_strings = 50
  numbers_type = tff.TensorType(np.str_, [None])
  get_size = tff.tensorflow.computation(lambda strings: tf.size(strings))
  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(np.int32)
  def random_key(max_key):
    return tf.random.uniform([1], minval=0, maxval=max_key, dtype=tf.int32)

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def last(values):
    return values.reduce('', lambda _, value: value)

  @tff.federated_computation(_at_server(numbers_type), _at_clients(np.int32))
  def broadcast_one(strings, clients):
    del clients  # Says how many there are.
    max_key = tff.federated_map(get_size, strings)
    max_key_at_clients = tff.federated_broadcast(max_key)
    keys = tff.federated_map(random_key, max_key_at_clients)
    selected = tff.federated_select(keys, max_key, strings, select_fn)
    return tff.federated_map(last, selected)

  strings = [str(number) for number in range(num_strings)]
  drawn = [broadcast_one(strings, [0] * 150) for _ in range(2)]
  return {'drawn': np.array([[int(x) for x in row] for row in drawn])}


_WORDS = 'apple orange pear kiwi carrot peas leek trout tuna cod'.split()
_TAGS = ['FRUIT', 'VEGETABLE', 'FISH']
_NUM_WORDS = len(_WORDS) + 1  # One for all others.
_NUM_TAGS = len(_TAGS) + 1
_MAX_WORDS = 6

# In the order of the alphabet, or TFF could not send them in a dataset.
_Posts = collections.namedtuple('_Posts', ['bags', 'tags'])


def _posts_dataset(posts, batch_size: int) -> tf.data.Dataset:
  """Returns batches of bags of words, with tags."""

  def to_table(words):
    return tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(
            words, tf.range(len(words), dtype=tf.int64)
        ),
        num_oov_buckets=1,
    )

  word_table, tag_table = to_table(_WORDS), to_table(_TAGS)

  def to_ids(post):
    text = tf.strings.join([post['tokens'], post['title']], separator=' ')
    tags, _ = tf.unique(
        tag_table.lookup(tf.strings.split(post['tags'], sep='|'))
    )
    tokens, _ = tf.unique(word_table.lookup(tf.strings.split(text)))
    bag = tf.SparseTensor(
        tf.reshape(tokens, [tf.size(tokens), 1]),
        tf.ones(tf.size(tokens), tf.float32),
        dense_shape=(_NUM_WORDS,),
    )
    return _Posts(
        tf.sparse.reorder(bag),
        tf.reduce_max(tf.one_hot(tags, _NUM_TAGS), axis=0),
    )

  dataset = tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
          tokens=tf.constant([text for text, _ in posts]),
          tags=tf.constant([tags for _, tags in posts]),
          title=['' for _ in posts],
      )
  )
  # Dense, since TFF 0.87 has no type for sparse elements any more.
  return (
      dataset.map(to_ids, num_parallel_calls=tf.data.AUTOTUNE)
      .batch(batch_size)
      .map(lambda batch: _Posts(tf.sparse.to_dense(batch.bags), batch.tags))
  )


def _with_sparse_tokens(dataset) -> tf.data.Dataset:
  return dataset.map(
      lambda batch: _Posts(tf.sparse.from_dense(batch.bags), batch.tags)
  )


def _logistic_model(num_words: int, num_tags: int) -> tf.keras.Model:
  return tf.keras.models.Sequential([
      tf.keras.layers.InputLayer(input_shape=(num_words,), sparse=True),
      tf.keras.layers.Dense(
          num_tags,
          activation='sigmoid',
          kernel_initializer=tf.keras.initializers.zeros,
          use_bias=False,
      ),
  ])


@tf.function
def _count_tokens(counts, batch):
  tokens = tf.sparse.reduce_sum(batch.bags, axis=0, output_is_sparse=True)
  return tf.sparse.add(counts, tf.cast(tokens, tf.int32))


@tf.function
def _frequent_tokens(dataset):
  """Returns a client's most frequent tokens, padded, and their number."""
  counts = dataset.reduce(
      tf.SparseTensor(
          indices=tf.zeros((0, 1), tf.int64),
          values=tf.zeros((0,), tf.int32),
          dense_shape=(_NUM_WORDS,),
      ),
      _count_tokens,
  )
  order = tf.argsort(counts.values, direction='DESCENDING', stable=True)
  tokens = tf.gather(tf.reshape(counts.indices, [-1]), order)
  number = tf.minimum(_MAX_WORDS, tf.size(tokens))
  padded = tf.pad(tokens[:number], [[0, _MAX_WORDS - number]])
  return tf.cast(tf.reshape(padded, [_MAX_WORDS]), tf.int32), number


@tf.function
def _with_local_ids(dataset, keys):
  """Returns the dataset with the places of its tokens among the keys."""
  places = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(
          keys=tf.cast(keys, tf.int64),
          values=tf.range(tf.shape(keys)[0], dtype=tf.int64),
      ),
      default_value=-1,
  )

  def to_local(bags):
    indices = tf.transpose(bags.indices)
    tokens = tf.map_fn(places.lookup, indices[1])
    is_there = tokens >= 0
    tokens, rows = tokens[is_there], indices[0][is_there]
    return tf.sparse.reorder(
        tf.SparseTensor(
            tf.transpose(tf.concat([[rows], [tokens]], axis=0)),
            tf.ones(tf.size(tokens), tf.float32),
            dense_shape=[bags.dense_shape[0], _MAX_WORDS],
        )
    )

  return dataset.map(lambda batch: _Posts(to_local(batch.bags), batch.tags))


@tf.function
def _slices_as_tensor(slices):
  """Returns the elements of a dataset as the rows of a tensor."""
  rest = iter(slices.batch(_MAX_WORDS, drop_remainder=False))
  tensor = next(rest)
  more = rest.get_next_as_optional()
  tf.Assert(tf.logical_not(more.has_value()), [''])
  return tensor


@tf.function
def _train_on_slices(model, optimizer, slices, dataset, keys, number):
  """Returns a client's keys without padding, and the changes of their rows."""
  initial = _slices_as_tensor(slices)
  model.trainable_variables[0].assign(initial)
  keys = keys[:number]
  loss_fn = tf.keras.losses.BinaryCrossentropy()
  for features, labels in _with_local_ids(dataset, keys):
    with tf.GradientTape() as tape:
      loss = loss_fn(labels, model(features))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
  delta = model.trainable_weights[0] - initial
  return keys, tf.slice(delta, begin=[0, 0], size=[number, -1])


@_case()
def select_sparse_rows():
  clients = [
      _posts_dataset(
          [
              ('apple orange apple orange', 'FRUIT'),
              ('carrot trout', 'VEGETABLE|FISH'),
              ('orange apple', 'FRUIT'),
              ('orange', 'ORANGE|CITRUS'),
          ],
          2,
      ),
      _posts_dataset(
          [
              ('pear cod', 'FRUIT|FISH'),
              ('leek peas', 'VEGETABLE'),
              ('kiwi pear', 'FRUIT'),
              ('sturgeon', 'FISH'),
              ('sturgeon bass', 'FISH'),
          ],
          3,
      ),
      # More words than a client may select.
      _posts_dataset(
          [
              (' '.join([*_WORDS, 'other']), '|'.join(_TAGS)),
              ('cod other', 'FISH|OTHER'),
          ],
          2,
      ),
  ]
  model_type = tff.TensorType(np.float32, [_NUM_WORDS, _NUM_TAGS])
  data_type = tff.SequenceType(
      tff.types.tensorflow_to_type(clients[0].element_spec)
  )

  select_fn = tff.tensorflow.computation(lambda rows, key: tf.gather(rows, key))

  @tff.tensorflow.computation(data_type)
  def keys_for_client(dataset):
    return _frequent_tokens(_with_sparse_tokens(dataset))

  @tff.tensorflow.computation
  def client_train(slices, dataset, keys, number):
    return _train_on_slices(
        _logistic_model(_MAX_WORDS, _NUM_TAGS),
        tf.keras.optimizers.SGD(learning_rate=0.1),
        slices,
        _with_sparse_tokens(dataset),
        keys,
        number,
    )

  @tff.tensorflow.computation
  def server_update(model, total, num_clients):
    return model + total / num_clients

  def sum_of_slices(indices, slices):
    shape = (_NUM_WORDS, _NUM_TAGS)
    zero = tff.tensorflow.computation(lambda: tf.zeros(shape, tf.float32))()

    @tf.function
    def accumulate(total, client):
      rows, values = client
      return total + tf.convert_to_tensor(
          tf.IndexedSlices(values, rows, shape)
      )

    return tff.federated_aggregate(
        (indices, slices),
        zero=zero,
        accumulate=tff.tensorflow.computation(accumulate),
        merge=tff.tensorflow.computation(lambda one, other: one + other),
        report=tff.tensorflow.computation(lambda total: total),
    )

  @tff.federated_computation(_at_server(model_type), _at_clients(data_type))
  def update(model, data):
    max_key = tff.federated_value(_NUM_WORDS, tff.SERVER)
    keys, numbers = tff.federated_map(keys_for_client, data)
    slices = tff.federated_select(keys, max_key, model, select_fn)
    rows, deltas = tff.federated_map(
        client_train, (slices, data, keys, numbers)
    )
    num_clients = tff.federated_sum(tff.federated_value(1.0, tff.CLIENTS))
    return tff.federated_map(
        server_update, (model, sum_of_slices(rows, deltas), num_clients)
    )

  values = {'keys': [keys_for_client(dataset) for dataset in clients]}
  model = np.zeros([_NUM_WORDS, _NUM_TAGS], np.float32)
  for number, chosen in enumerate([[0, 1, 2], [1], [2, 0], [2, 1, 0]]):
    model = update(model, [clients[client] for client in chosen])
    values[f'round_{number}'] = model
  return oracle.flat(values)


# Random noise.


@_case()
def noise_from_seeds():
  seed_type = tff.TensorType(np.int64, [2])

  @tff.tensorflow.computation
  def noise(seed):
    return tf.random.stateless_normal((), seed=seed)

  @tff.federated_computation(_at_server(seed_type), _at_clients(np.int32))
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

  @tff.federated_computation(_at_clients(np.int32))
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

  @tff.federated_computation(_at_clients(np.int32))
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

  @tff.federated_computation(_at_clients(np.int32))
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

  @tff.federated_computation(_at_clients(np.int32))
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


# Differential privacy.


def _dp_datasets(seed: int, *, shuffle: bool) -> list[tf.data.Dataset]:
  """Returns what `ClientData.preprocess` makes of the digits."""

  def to_example(element):
    return collections.OrderedDict(
        x=tf.expand_dims(element['pixels'], -1), y=element['label']
    )

  def preprocess(dataset):
    dataset = dataset.map(to_example)
    if not shuffle:
      return dataset.batch(128, drop_remainder=False)
    return (
        dataset.shuffle(buffer_size=50, seed=16)
        .repeat(1)
        .batch(8, drop_remainder=False)
    )

  data = _digits(seed).preprocess(preprocess)
  return [data.create_tf_dataset_for_client(x) for x in data.client_ids]


def _dp_model_fn():
  return tff.learning.models.from_keras_model(
      tf.keras.models.Sequential([
          tf.keras.layers.Reshape(
              input_shape=(_SIDE, _SIDE, 1), target_shape=(_NUM_PIXELS,)
          ),
          tf.keras.layers.Dense(12, activation=tf.nn.relu),
          tf.keras.layers.Dense(12, activation=tf.nn.relu),
          tf.keras.layers.Dense(_NUM_LABELS),
      ]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, _SIDE, _SIDE, 1], tf.float32),
          y=tf.TensorSpec([None], tf.int32),
      ),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _dp_process(aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
      _dp_model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.01),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0, momentum=0.9),
      model_aggregator=aggregator,
  )


def _dp_start(process):
  """Returns a state with weights from a seed."""
  state = process.initialize()
  weights = _random_weights(process.get_model_weights(state), seed=17)
  return process.set_model_weights(state, weights)


@_case()
def dp_training_without_noise():
  datasets = _dp_datasets(18, shuffle=True)
  process = _dp_process(tff.learning.dp_aggregator(0.0, 5.0))
  state = _dp_start(process)
  evaluation = tff.learning.algorithms.build_fed_eval(_dp_model_fn)
  test_data = _dp_datasets(19, shuffle=False)[-1:]
  before = _evaluate(evaluation, process.get_model_weights(state), test_data)
  # Clients come to a round by chance, so once nobody comes.
  state, values = _train(
      process, state, [datasets[:7], datasets[9:], [], datasets[4:]]
  )
  after = _evaluate(evaluation, process.get_model_weights(state), test_data)
  return oracle.flat({**values, 'before': before, 'after': after})


@_case(is_random=True)
def dp_noise():
  # Two trainings on the same data, one of them without noise: their difference
  # is noise, and its scale that of clip norm and multiplier.
  datasets = _dp_datasets(18, shuffle=True)[:5]
  trained = []
  for noise_multiplier in (0.5, 0.0):
    process = _dp_process(tff.learning.dp_aggregator(noise_multiplier, 20.0))
    state = process.next(_dp_start(process), datasets).state
    trained.append(process.get_model_weights(state).trainable)
  noise = [np.ravel(noisy - exact) for noisy, exact in zip(*trained)]
  return {'noise': np.concatenate(noise)}
