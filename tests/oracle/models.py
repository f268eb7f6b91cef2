# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Data and models that oracle cases share.

A model is a function that makes a Keras model, or a class; `variable_model` and
`functional_model` turn it into what TFF takes. Initial weights are the same in
every context, graph and client. `train` gives all results of a training.
"""

import collections
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import oracle

# Examples of each client in the first and in the second round.
SIZES = ((7, 4, 0, 9, 5), (3, 8, 1, 6))
BATCH_SIZE = 4
SIDE = 6  # Of an image of a digit, in pixels.
NUM_PIXELS = SIDE * SIDE
NUM_LABELS = 10
_layers = tf.keras.layers


# Data. A kind is a shape of examples; `x` are inputs and `y` labels.


def spec(kind: str, num_rows: int | None = None):
  x = {
      'table': tf.TensorSpec([num_rows, 4], tf.float32),
      'binary': tf.TensorSpec([num_rows, 4], tf.float32),
      'numbers': tf.TensorSpec([num_rows, 4], tf.float32),
      'image': tf.TensorSpec([num_rows, 6, 6, 1], tf.float32),
      'signal': tf.TensorSpec([num_rows, 5, 3], tf.float32),
      'words': tf.TensorSpec([num_rows, 5], tf.int32),
      'text': tf.TensorSpec([num_rows, 5], tf.int32),
  }[kind]
  y = {
      'binary': tf.TensorSpec([num_rows, 1], tf.float32),
      'numbers': tf.TensorSpec([num_rows, 2], tf.float32),
      'text': tf.TensorSpec([num_rows, 5], tf.int32),
  }.get(kind, tf.TensorSpec([num_rows], tf.int32))
  return collections.OrderedDict(x=x, y=y)


def examples(kind: str, size: int, *seed: int):
  """Returns examples; labels depend on inputs, so that there is a gradient."""
  rng = np.random.default_rng(seed)
  if kind in ('words', 'text'):
    x = rng.integers(0, 8, [size, 5], np.int32)
    y = x.sum(1) % 3 if kind == 'words' else (x + 1) % 8
    return collections.OrderedDict(x=x, y=y.astype(np.int32))
  x = rng.standard_normal([size, *spec(kind)['x'].shape[1:]], np.float32)
  features = x.reshape([size, np.prod(x.shape[1:], dtype=int)])[:, :4]
  score = features @ np.float32([1.0, -0.5, 0.8, 0.3])
  if kind == 'numbers':
    y = np.stack([score, 1.0 - score], 1)
  elif kind == 'binary':
    y = (score[:, np.newaxis] > 0).astype(np.float32)
  else:
    y = np.digitize(score, [-0.7, 0.7]).astype(np.int32)
  return collections.OrderedDict(x=x, y=y)


def slices(rows) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensor_slices(rows)


def batched(kind: str, round_num: int) -> list:
  """Returns the clients of a round: datasets, the last batches short."""
  return [
      slices(examples(kind, size, round_num, number)).batch(BATCH_SIZE)
      for number, size in enumerate(SIZES[round_num])
  ]


def lists(kind: str, round_num: int) -> list:
  """Returns the same clients as lists of batches."""
  clients = batched(kind, round_num)
  return [list(client.as_numpy_iterator()) for client in clients]


def of_equal_sizes(kind: str, round_num: int, size: int = 8) -> list:
  """Returns clients whose batches are all full."""
  return [
      slices(examples(kind, size, round_num, number)).batch(
          BATCH_SIZE, drop_remainder=True
      )
      for number in range(5)
  ]


def pipelines(kind: str, round_num: int) -> list:
  """Returns clients whose data is prepared as TFF's tutorials do it."""

  def prepare(number: int, size: int) -> tf.data.Dataset:
    def half(batch):
      return collections.OrderedDict(x=0.5 * batch['x'], y=batch['y'])

    rows = slices(examples(kind, size, round_num, number))
    rows = rows.repeat(2).shuffle(9, seed=number).batch(3)
    return rows.map(half, tf.data.AUTOTUNE).prefetch(2)

  return [prepare(n, size) for n, size in enumerate(SIZES[round_num])]


def of_many_kinds(kind: str, round_num: int) -> list:
  """Returns one client of each form, of other lengths, two without data."""
  rows = lambda size, seed: examples(kind, size, round_num, seed)
  return [
      [],
      [rows(4, 1), rows(4, 2), rows(1, 3)],
      slices(rows(9, 4)).shuffle(9, seed=5).batch(4),
      slices(rows(6, 6)).batch(2).take(2),
      slices(rows(6, 7)).batch(2).filter(lambda b: b['y'][0] != 1),
      tf.data.Dataset.from_tensors(rows(5, 8)).repeat(3),
      slices(rows(5, 9)).cache().batch(3).prefetch(1),
      slices(rows(4, 10)).concatenate(slices(rows(3, 11))).batch(5),
      slices(rows(0, 12)).batch(4),
  ]


# Models.


@tf.keras.utils.register_keras_serializable('tff_dp_oracle')
class Fixed(tf.keras.initializers.Initializer):
  """The same numbers in every context, graph and client."""

  def __init__(self, seed: int):
    self._seed = seed

  def __call__(self, shape, dtype=None, **unused):
    rng = np.random.default_rng(self._seed)
    return tf.constant(rng.uniform(-0.6, 0.6, shape), dtype or tf.float32)

  def get_config(self):
    return {'seed': self._seed}


class NumLarge(tf.keras.metrics.Metric):
  """A metric of one's own: two counts, of other types, and their ratio."""

  def __init__(self, name='share_large', **properties):
    super().__init__(name=name, **properties)
    self._large = self.add_weight('large', dtype=tf.int64, initializer='zeros')
    self._all = self.add_weight('all', initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    is_large = tf.reduce_max(y_pred, axis=-1) > 0.2
    self._large.assign_add(tf.reduce_sum(tf.cast(is_large, tf.int64)))
    self._all.assign_add(tf.cast(tf.size(y_true), tf.float32))

  def result(self):
    return tf.math.divide_no_nan(tf.cast(self._large, tf.float32), self._all)


def cross_entropy():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class MeanLoss(tf.keras.metrics.SparseCategoricalCrossentropy):

  def __init__(self, name='loss', **unused):
    super().__init__(name, from_logits=True)


def class_metrics() -> list:
  return plain_metrics() + [
      lambda: tf.keras.metrics.SparseTopKCategoricalAccuracy(2, name='top_2'),
      tff.learning.metrics.NumBatchesCounter,
  ]


def plain_metrics() -> list:
  """Returns metrics that TensorFlow can vectorize."""
  return [tf.keras.metrics.SparseCategoricalAccuracy, NumLarge]


def dense(units: int, seed: int, activation=None, **properties):
  return _layers.Dense(
      units, activation, kernel_initializer=Fixed(seed), **properties
  )


def softmax():
  return tf.keras.Sequential([_layers.InputLayer([4]), dense(3, 1)])


def mlp():
  return tf.keras.Sequential([
      _layers.InputLayer([4]),
      dense(5, 1, 'tanh', kernel_regularizer=tf.keras.regularizers.L2(0.01)),
      dense(3, 2),
  ])


def normalized():
  return tf.keras.Sequential([
      _layers.InputLayer([4]),
      # A bias here has a gradient of 0, of which only rounding is seen.
      dense(5, 1, use_bias=False),
      _layers.BatchNormalization(momentum=0.7),
      _layers.ReLU(),
      dense(3, 2),
  ])


def convolution():
  return tf.keras.Sequential([
      _layers.InputLayer([6, 6, 1]),
      _layers.Conv2D(2, 3, activation='relu', kernel_initializer=Fixed(1)),
      _layers.MaxPool2D(2),
      _layers.Dropout(0.0),
      _layers.Flatten(),
      dense(3, 2),
  ])


def embedding():
  return tf.keras.Sequential([
      _layers.InputLayer([5], dtype=tf.int32),
      _layers.Embedding(8, 3, embeddings_initializer=Fixed(1)),
      _layers.GlobalAveragePooling1D(),
      dense(3, 2),
  ])


def recurrent(layer, **properties):
  return layer(
      4,
      kernel_initializer=Fixed(2),
      recurrent_initializer=Fixed(3),
      **properties,
  )


def lstm():
  return tf.keras.Sequential([
      _layers.InputLayer([5], dtype=tf.int32),
      _layers.Embedding(8, 3, embeddings_initializer=Fixed(1)),
      recurrent(_layers.LSTM),
      dense(3, 4),
  ])


def text(is_stateful: bool = False):
  """The model of TFF's tutorial on text: a GRU that may keep its state."""
  return tf.keras.Sequential([
      _layers.InputLayer(
          [5], BATCH_SIZE if is_stateful else None, dtype=tf.int32
      ),
      _layers.Embedding(8, 3, embeddings_initializer=Fixed(1)),
      recurrent(_layers.GRU, return_sequences=True, stateful=is_stateful),
      dense(8, 4),
  ])


def binary():
  return tf.keras.Sequential(
      [_layers.InputLayer([4]), dense(1, 1, 'sigmoid')]
  )


def variable_model(make, kind: str, metrics=None, *, loss=None):
  """Returns a `model_fn` for TFF."""

  def model_fn():
    return tff.learning.models.from_keras_model(
        make(),
        loss=(loss or cross_entropy)(),
        input_spec=spec(kind),
        metrics=metrics and list(metrics),
    )

  return model_fn


def functional_model(make, kind: str, metrics=None, *, loss=None):
  constructors = metrics and collections.OrderedDict(
      (metric().name, metric) for metric in metrics
  )
  return tff.learning.models.functional_model_from_keras(
      make, (loss or cross_entropy)(), spec(kind), constructors
  )


def regression() -> tff.learning.models.FunctionalModel:
  """A functional model by hand, with metrics, and a weight that is not one."""

  @tf.function
  def predict(weights, x, training):
    (kernel, bias), (scale,) = weights
    factor = scale if training else 1.0
    return factor * (tf.matmul(x, kernel) + bias)

  def loss(output, label, sample_weight=None):
    del sample_weight  # Unused.
    return tf.reduce_mean(tf.math.squared_difference(output, label))

  @tf.function
  def start():
    return collections.OrderedDict(
        error=(tf.constant(0.0), tf.constant(0, tf.int64)),
        by_output=tf.zeros([2]),
    )

  @tf.function
  def update(state, labels, batch_output, sample_weight=None):
    del sample_weight  # Unused.
    errors = tf.abs(batch_output.predictions - labels)
    total, count = state['error']
    return collections.OrderedDict(
        error=(
            total + tf.reduce_sum(errors),
            count + tf.size(errors, tf.int64),
        ),
        by_output=state['by_output'] + tf.reduce_sum(errors, 0),
    )

  @tf.function
  def finalize(state):
    total, count = state['error']
    return collections.OrderedDict(
        error=tf.math.divide_no_nan(total, tf.cast(count, tf.float32)),
        by_output=state['by_output'],
    )

  rng = np.random.default_rng(3)
  kernel = rng.uniform(-0.5, 0.5, [4, 2]).astype(np.float32)
  return tff.learning.models.FunctionalModel(
      initial_weights=((kernel, np.zeros(2, np.float32)), (np.float32(0.9),)),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      metrics_fns=(start, update, finalize),
      input_spec=tuple(spec('numbers').values()),
  )


def pairs(round_num: int) -> list:
  """Returns clients for `regression`, whose batches are pairs."""
  return [
      client.map(lambda batch: (batch['x'], batch['y']))
      for client in batched('numbers', round_num)
  ]


class OwnVariables(tff.learning.models.VariableModel):
  """A model as TFF's tutorial on own learning algorithms writes it."""

  def __init__(self):
    self._kernel = tf.Variable(Fixed(1)([4, 3]), name='kernel')
    self._bias = tf.Variable(tf.zeros([3]), name='bias')
    self._num_calls = tf.Variable(0, trainable=False, name='num_calls')
    self._num_examples = tf.Variable(0.0, trainable=False)
    self._loss_sum = tf.Variable(0.0, trainable=False)

  trainable_variables = property(lambda self: [self._kernel, self._bias])
  non_trainable_variables = property(lambda self: [self._num_calls])
  local_variables = property(lambda self: [self._num_examples, self._loss_sum])
  input_spec = property(lambda self: spec('table'))

  @tf.function
  def predict_on_batch(self, x, training=True):
    del training  # Unused.
    return tf.matmul(x, self._kernel) + self._bias

  @tf.function
  def forward_pass(self, batch_input, training=True):
    logits = self.predict_on_batch(batch_input['x'], training)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(batch_input['y'], logits)
    )
    num_examples = tf.shape(logits)[0]
    self._num_calls.assign_add(1)
    # Earlier batches change this one's gradient through a variable.
    loss *= 1.0 + 0.1 * tf.cast(self._num_calls, tf.float32)
    self._num_examples.assign_add(tf.cast(num_examples, tf.float32))
    self._loss_sum.assign_add(loss * tf.cast(num_examples, tf.float32))
    return tff.learning.models.BatchOutput(
        loss=loss, predictions=logits, num_examples=num_examples
    )

  @tf.function
  def report_local_unfinalized_metrics(self):
    return collections.OrderedDict(
        loss=[self._loss_sum, self._num_examples],
        num_calls=self._num_calls.read_value(),
    )

  def metric_finalizers(self):
    return collections.OrderedDict(
        loss=tf.function(lambda parts: parts[0] / parts[1]),
        num_calls=tf.function(lambda count: count),
    )

  @tf.function
  def reset_metrics(self):
    for variable in self.local_variables:
      variable.assign(tf.zeros_like(variable))


# Clients with images of digits, in the form of EMNIST.


@functools.cache
def digits(seed: int) -> tff.simulation.datasets.ClientData:
  """Returns 12 clients with images of digits, in the form of EMNIST.

  Eight of them have 20 images; the others have 1, 7, 33 and 40.
  """
  rng = np.random.default_rng(seed)
  shapes = rng.uniform(size=[NUM_LABELS, SIDE, SIDE])
  clients = {}
  for client, num_images in enumerate([20] * 8 + [1, 7, 33, 40]):
    labels = rng.integers(NUM_LABELS, size=num_images)
    noise = rng.normal(0.0, 0.2, [num_images, SIDE, SIDE])
    clients[f'client_{client:02}'] = collections.OrderedDict(
        label=labels.astype(np.int32),
        pixels=np.clip(shapes[labels] + noise, 0.0, 1.0).astype(np.float32),
    )
  return tff.simulation.datasets.TestClientData(clients)


def datasets_of(client_data, preprocess) -> list[tf.data.Dataset]:
  return [
      preprocess(client_data.create_tf_dataset_for_client(client))
      for client in client_data.client_ids
  ]


def flat_images(element):
  return collections.OrderedDict(
      x=tf.reshape(element['pixels'], [-1, NUM_PIXELS]),
      y=tf.reshape(element['label'], [-1, 1]),
  )


# Training.


def train(process, clients, start=None) -> dict[str, np.ndarray]:
  """Returns all that two rounds give.

  Args:
    process: A learning process.
    clients: Maps a round's number to its clients.
    start: The first state. None stands for that of `initialize`.
  """
  found, state = {}, process.initialize() if start is None else start
  found.update(oracle.flat(state, 'start'))
  for round_num in range(len(SIZES)):
    output = process.next(state, clients(round_num))
    state = output.state
    found.update(oracle.flat(output.metrics, f'metrics_{round_num}'))
  found.update(oracle.flat(state, 'state'))
  found.update(oracle.flat(process.get_model_weights(state), 'weights'))
  return found


def train_on(kind: str, process, form=batched) -> dict[str, np.ndarray]:
  return train(process, lambda round_num: form(kind, round_num))
