# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The steps of TFF's tutorials as cases, on small data made here.

Each function follows one tutorial: the same layers, metrics, aggregators and
ways to make a client's dataset, on fewer and smaller examples. Where a tutorial
leaves a shuffle or an initializer to chance, the case seeds it. This module has
the tutorials that train with `tff.learning`; `tutorials_core` and
`tutorials_select` have the others.
"""

import collections
import math

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import models
from tests.oracle import oracle
from tests.oracle import tutorials_core
from tests.oracle import tutorials_select

CASES: list[oracle.Case] = []
_case = oracle.adds(CASES, 'tutorial')
_SIDE = models.SIDE
_NUM_PIXELS = models.NUM_PIXELS
_NUM_LABELS = models.NUM_LABELS


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


# Image classification.


def _image_datasets(seed: int) -> list[tf.data.Dataset]:
  """Returns datasets as the tutorial makes them, `repeat` to `prefetch`."""

  def preprocess(dataset):
    return (
        dataset.repeat(3)
        .shuffle(100, seed=1)
        .batch(20)
        .map(models.flat_images)
        .prefetch(10)
    )

  return models.datasets_of(models.digits(seed), preprocess)


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
            models.flat_images(next(iter(dataset.batch(1000))))
        ).batch(20)
        for dataset in models.datasets_of(
            models.digits(seed), lambda dataset: dataset
        )
    ]

  return _images(_softmax_model_fn, make_datasets=make_datasets)


@_case()
def image_classification_preprocessed_by_clients():
  element_spec = models.digits(1).element_type_structure

  @tff.tensorflow.computation(
      tff.SequenceType(tff.types.tensorflow_to_type(element_spec))
  )
  def preprocess(dataset):
    return dataset.repeat(3).batch(20).map(models.flat_images)

  process = tff.simulation.compose_dataset_computation_with_learning_process(
      preprocess,
      tff.learning.algorithms.build_weighted_fed_avg(
          _softmax_model_fn,
          client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.02),
      ),
  )
  datasets = models.datasets_of(models.digits(1), lambda dataset: dataset)
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

  data = models.digits(seed).preprocess(preprocess)
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


CASES += tutorials_core.CASES + tutorials_select.CASES
