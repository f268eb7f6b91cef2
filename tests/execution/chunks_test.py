# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Clients in chunks and one by one: the same results, errors and promises."""

import collections
import contextlib
import dataclasses
import functools
import logging

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp.execution import errors
from tff_dp.execution.compiling import chunks
from tff_dp.execution.compiling import columns

_BATCH = collections.OrderedDict(
    x=tff.TensorType(np.float32, [None, 2]), y=tff.TensorType(np.int64, [None])
)
_SPEC = collections.OrderedDict(
    x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None], tf.int64)
)
_NUMBERS = tff.SequenceType(np.int64)
_CONTEXTS = {}


def setUpModule():
  for name, arguments in {
      'one_by_one': dict(max_concurrent_clients=1, max_clients_per_call=1),
      'in_chunks': dict(max_concurrent_clients=1),
      'in_threes': dict(max_concurrent_clients=2, max_clients_per_call=3),
      'at_once': dict(max_concurrent_clients=2),
  }.items():
    _CONTEXTS[name] = execution.create_sync_in_process_context(**arguments)


def tearDownModule():
  for context in _CONTEXTS.values():
    context.close()


def _examples(num_examples: int, seed: int):
  random = np.random.default_rng(seed)
  return collections.OrderedDict(
      x=random.normal(size=[num_examples, 2]).astype(np.float32),
      y=random.integers(3, size=num_examples),
  )


def _dataset(num_examples: int, seed: int, batch_size: int = 3):
  examples = _examples(num_examples, seed)
  return tf.data.Dataset.from_tensor_slices(examples).batch(batch_size)


def _cohort() -> list:
  """Returns clients of every kind that can be in a chunk: 12 of them."""
  ragged = [_dataset(size, size) for size in (7, 0, 3, 1, 6)]
  return ragged + [
      _dataset(5, 21, batch_size=2),
      _dataset(5, 22).prefetch(1),
      tf.data.Dataset.from_tensor_slices(_examples(7, 23)).batch(
          3, drop_remainder=True
      ),
      [],
      [_examples(2, 24), _examples(2, 25), _examples(1, 26)],
      [_examples(4, 27)],
      _dataset(0, 28),
  ]


def _pipelines() -> list:
  """Returns clients whose data is not in memory, or not as rows."""
  return [
      _dataset(7, 31).map(lambda batch: batch),
      _dataset(7, 32).repeat(2),
      tf.data.Dataset.from_tensors(_examples(4, 33)),
      _dataset(5, 34).cache(),
      tf.data.Dataset.from_tensor_slices(_examples(6, 35))
      .shuffle(3, seed=1)
      .batch(2),
      [_examples(1, 36), _examples(3, 37)],
  ]


def _run(name: str, function, *arguments):
  """Returns a result, and how many clients took which path."""
  context = _CONTEXTS[name]
  before = context.num_clients_by_path
  with contextlib.ExitStack() as stack:
    stack.enter_context(tff.framework.get_context_stack().install(context))
    if name == 'at_once':
      stack.enter_context(conformance.at_once())
    result = function(*arguments)
  after = context.num_clients_by_path
  return result, {path: after[path] - before[path] for path in after}


def _model_fn():
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential([
          tf.keras.layers.InputLayer((2,)),
          tf.keras.layers.Dense(3, kernel_initializer='ones'),
      ]),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=_SPEC,
  )


def _functional_model():
  return tff.learning.models.functional_model_from_keras(
      tf.keras.Sequential([
          tf.keras.layers.InputLayer((2,)),
          tf.keras.layers.Dense(3, kernel_initializer='ones'),
      ]),
      loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=_SPEC,
  )


def _averaging(model, loop: str) -> tff.learning.templates.LearningProcess:
  return tff.learning.algorithms.build_weighted_fed_avg(
      model,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      loop_implementation=tff.learning.LoopImplementation[loop],
  )


def _convolutional_model():
  return tff.learning.models.functional_model_from_keras(
      tf.keras.Sequential([
          tf.keras.layers.InputLayer((2,)),
          tf.keras.layers.Dense(32, kernel_initializer='ones'),
          tf.keras.layers.Reshape((4, 4, 2)),
          tf.keras.layers.Conv2D(
              4, 3, padding='same', activation='relu',
              kernel_initializer=tf.keras.initializers.GlorotUniform(1),
          ),
          tf.keras.layers.MaxPool2D(2),
          tf.keras.layers.Conv2D(
              3, 2, kernel_initializer=tf.keras.initializers.GlorotUniform(2)
          ),
          tf.keras.layers.Flatten(),
      ]),
      loss_fn=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=_SPEC,
  )


def _rounds(process, *cohorts):
  state = process.initialize()
  for cohort in cohorts:
    state = process.next(state, cohort).state
  return process.get_model_weights(state).trainable


def _assert_close(one, two):
  for left, right in zip(one, two, strict=True):
    np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)


_WIDTH = 2000


def _summed_rows(factory):
  """Returns (start, run): what a factory makes of the sums of clients' rows."""
  rows_type = tff.SequenceType(tff.TensorType(np.float32, [_WIDTH]))
  process = factory.create(tff.TensorType(np.float32, [_WIDTH]))

  @tff.tensorflow.computation(rows_type)
  def total(rows):
    return rows.reduce(tf.zeros([_WIDTH]), tf.add)

  @tff.federated_computation(
      process.initialize.type_signature.result, at_clients(rows_type)
  )
  def run(state, rows):
    return process.next(state, tff.federated_map(total, rows)).result

  return process.initialize, run


@functools.cache
def _noisy_mean_of_sums():
  plan = plans.DpFtrlPlan(
      mechanism=mechanisms.Independent(1),
      participation=participation.MinSeparation(1, min_index_gap=1),
      l2_norm_clip=0.5,
      clients_per_round=4,
      noise_multiplier=2.0,
  )
  return _summed_rows(plan.aggregator())


class TrainingTest(parameterized.TestCase):

  @parameterized.parameters(
      (_model_fn, 'DATASET_REDUCE'),
      (_functional_model, 'DATASET_ITERATOR'),
      (_convolutional_model, 'DATASET_ITERATOR'),
  )
  # `conformance_test` trains with this loop; the model has no variables.
  @pytest.mark.slow(cases=['1'])
  def test_all_paths_train_alike(self, model, loop):
    process = _averaging(
        model if model is _model_fn else model(), loop
    )
    cohorts = _cohort(), _cohort() + _pipelines(), []
    expected, paths = _run('one_by_one', _rounds, process, *cohorts)
    self.assertEqual(paths['one_by_one'], 30)
    self.assertGreater(np.abs(expected[0] - 1).max(), 0.01)
    for name in ('in_threes', 'at_once'):
      actual, paths = _run(name, _rounds, process, *cohorts)
      # A model with variables is a function of their values, too.
      self.assertEqual(paths['at_once'], 27 if name == 'at_once' else 0)
      self.assertEqual(paths['one_by_one'], 0)
      _assert_close(actual, expected)

  def test_noise_and_clipping_are_those_of_the_other_path(self):
    plan = plans.DpFtrlPlan(
        mechanism=mechanisms.HonakerTree(8),
        participation=participation.MinSeparation(8, min_index_gap=4),
        l2_norm_clip=0.1,
        clients_per_round=12,
        noise_multiplier=1e-3,
    )
    start, run = _summed_rows(plan.aggregator(insecure_seed=1))
    # Whose sum is zero: the key of the noise depends on its bits, too.
    noise, _ = _run('one_by_one', lambda: run(start(), 12 * [[]]))
    self.assertBetween(np.linalg.norm(noise), 1e-4, 2e-3)
    rows = np.random.default_rng(4).normal(size=[4, _WIDTH]).astype(np.float32)
    for name, path in ('in_threes', 'in_chunks'), ('at_once', 'at_once'):
      same_noise, _ = _run(name, lambda: run(start(), 12 * [[]]))
      self.assertEqual(noise.tobytes(), same_noise.tobytes())
      alike, paths = _run(name, lambda: run(start(), 12 * [list(rows)]))
      self.assertEqual(paths[path], 12)
      # Each is clipped to 0.1, so their mean is as long, but for the noise.
      self.assertAlmostEqual(np.linalg.norm(alike), 0.1, delta=2e-4)

  @parameterized.parameters('one_by_one', 'in_threes', 'at_once')
  def test_released_noise_on_updates_of_all_lengths(self, path):
    random = np.random.default_rng(3)
    scales = 10.0 ** np.arange(-3, 4)
    data = [
        (scale * random.normal(size=[3, _WIDTH])).astype(np.float32)
        for scale in scales
    ]
    start, run = _noisy_mean_of_sums()
    released, paths = _run(
        path, lambda: run(start(), [list(rows) for rows in data])
    )
    taken = 'in_chunks' if path == 'in_threes' else path
    self.assertEqual(paths[taken], 7)
    updates = np.array([rows.sum(axis=0, dtype=np.float64) for rows in data])
    norms = np.linalg.norm(updates, axis=1, keepdims=True)
    expected = np.sum(updates * np.minimum(1.0, 0.5 / norms), axis=0) / 4
    noise = (released - expected) / (2.0 * 0.5 / 4)
    # Neither the update of a client is left in it, nor less than all noise.
    low, high = stats.chi2.interval(1 - 1e-6, _WIDTH)
    self.assertBetween(np.sum(noise**2), low, high)
    along = updates / norms @ noise
    self.assertLess(np.abs(along).max(), stats.norm.isf(1e-7))

  def test_exact_norms_are_within_the_clip_norm_at_once(self):
    # Large coordinates, one a lane, in whose sums of squares small ones get
    # lost: the squared norm lacks most, whether of a vector or of rows.
    rows = np.full([16, _WIDTH], np.sqrt(0.99 * 2**-24), np.float32)
    rows[:, :16] = 1.0
    rows[8:] = np.random.default_rng(5).normal(size=[8, _WIDTH])
    plan = plans.DpFtrlPlan(
        mechanism=mechanisms.Independent(1),
        participation=participation.MinSeparation(1, min_index_gap=1),
        l2_norm_clip=0.5,
        clients_per_round=1,
        noise_multiplier=0.0,
    )
    start, run = _summed_rows(plan.aggregator())
    # All but one client have nothing, so the sum is what this one sends.
    for row in rows[[0, 8]]:
      data = [[row]] + 3 * [[np.zeros(_WIDTH, np.float32)]]
      sent, paths = _run('at_once', lambda: run(start(), data))  # pylint: disable=cell-var-from-loop
      self.assertEqual(paths['at_once'], 4)
      norm = np.sqrt(np.sum(np.square(sent, dtype=np.float64)))
      self.assertBetween(norm, 0.5 * (1 - 2e-5), 0.5)


@tff.tensorflow.computation(_NUMBERS, np.int64)
def _digest(numbers, start):
  # Tells orders apart.
  return numbers.reduce(start, lambda y, z: 31 * y + z)


@tff.federated_computation(
    at_clients(_NUMBERS), at_clients(np.int64), at_server(np.int64)
)
def _digests(numbers, offsets, start):
  shared = tff.federated_broadcast(start)
  own = tff.federated_map(_digest, (numbers, shared))
  return tff.federated_sum(own), tff.federated_max(offsets)


@tf.function
def _sum_of(numbers):
  return numbers.reduce(np.int64(0), tf.add)


@tff.tensorflow.computation(_NUMBERS, _NUMBERS)
def _digest_of_both(first, second):
  return _digest(first, _digest(second, np.int64(0)))


def _until_four(numbers):
  total = tf.constant(0, tf.int64)
  for number in numbers:
    if number == 4:
      break
    total = 7 * total + number
  return total


def _plus_length(numbers):
  length = numbers.cardinality()
  return numbers.map(lambda number: number + length)


def _ordered_digest(numbers):
  """Returns a number that depends on the order, within batches too."""

  def step(digest, element):
    element = tf.reshape(element, [-1])
    places = tf.range(1, tf.size(element, tf.int64) + 1)
    return 31 * digest + tf.reduce_sum(element * places)

  return numbers.reduce(np.int64(7), step)


_PIPELINES_OF_ROWS = dict(
    maps_with_others=_plus_length,
    take_all=lambda x: x.take(-1).take(2**62),
    repeat_map_repeat=lambda x: x.repeat(2).map(tf.square).repeat(2),
    repeat_batch_all=lambda x: x.repeat(2).batch(2**63 - 1).take(3),
    full_batches=lambda x: x.batch(2, drop_remainder=True),
    map_repeat_batch=lambda x: x.map(lambda y: -y).repeat(3).batch(4),
    take_batch_take=lambda x: x.take(2).batch(1).take(1),
    parallel=lambda x: x.map(tf.square, num_parallel_calls=2).batch(
        2, num_parallel_calls=2
    ),
    cache_prefetch=lambda x: x.cache().prefetch(tf.data.AUTOTUNE),
)
_MORE_PIPELINES_OF_ROWS = dict(
    map=lambda x: x.map(lambda y: y + 1),
    take=lambda x: x.take(1),
    take_of_map=lambda x: x.map(lambda y: 2 * y).take(2),
    repeat=lambda x: x.repeat(3),
    repeat_never=lambda x: x.repeat(0),
    batch=lambda x: x.batch(2),
    batch_many=lambda x: x.batch(2**40),
    batch_all=lambda x: x.batch(2**63 - 1),
    map_batch=lambda x: x.map(lambda y: y + 1).batch(2),
    repeat_take_repeat=lambda x: x.repeat(3).take(4).repeat(2),
    repeat_batch_map=lambda x: x.repeat(2).batch(2).map(lambda y: -y),
    batch_map_repeat=lambda x: x.batch(2).map(lambda y: -y).repeat(2),
)

# Clients with equally many numbers, and others.
_COUNTS = [[3, 1, 2], [2], [], [4, 4, 7], [5, 1], [9], []]


def _two_sums(x, y):
  return 2 * x + y, x + y


def _sum_over_clients(work):
  @tff.federated_computation(at_clients(work.type_signature.parameter))
  def computation(values):
    return tff.federated_sum(tff.federated_map(work, values))

  return computation


_VECTOR = tff.TensorType(np.float32, [None])


@tff.tensorflow.computation(_VECTOR)
def _total_of_client(vector):
  return tf.reduce_sum(vector)


@tff.federated_computation(at_clients(_VECTOR))
def _total(vectors):
  return tff.federated_sum(tff.federated_map(_total_of_client, vectors))


class ComputationTest(parameterized.TestCase):

  def assert_paths_agree(
      self,
      computation,
      *arguments,
      in_chunks: int,
      at_once: int = 0,
      names=('in_threes', 'at_once'),
      expected=None,
  ):
    if expected is None:
      expected, _ = _run('one_by_one', computation, *arguments)
    for name in names:
      actual, paths = _run(name, computation, *arguments)
      self.assertEqual(actual, expected)
      if name == 'at_once' and at_once:
        self.assertEqual(paths['at_once'], at_once)
      else:
        self.assertEqual(paths['in_chunks'], in_chunks)

  def test_order_and_other_arguments(self):
    numbers = [[3, 1, 2], [], [5], [2**40, 7]] + [
        tf.data.Dataset.from_tensor_slices(np.arange(4)),
        tf.data.Dataset.range(3),
    ]
    # A range is a dataset, not rows.
    self.assert_paths_agree(
        _digests, numbers, [4, 9, 2, 1, 5, 3], 7, in_chunks=6, at_once=5
    )

  def test_iterators_of_clients_at_the_same_time_are_apart(self):
    # What makes an iterator runs in all threads at once.
    @tff.tensorflow.computation(_NUMBERS)
    @tf.function
    def squared_mix(numbers):
      iterator = iter(numbers)
      mix = tf.constant(0, tf.int64)
      number = iterator.get_next_as_optional()
      while number.has_value():
        mix = 3 * mix + number.get_value()
        number = iterator.get_next_as_optional()
      return mix * mix

    @tff.federated_computation(at_clients(_NUMBERS))
    def mixed(numbers):
      return tff.federated_sum(tff.federated_map(squared_mix, numbers))

    clients = [
        tf.data.Dataset.from_tensor_slices(first + np.array([0, 5]))
        for first in np.arange(200)
    ]
    expected = sum((4 * first + 5) ** 2 for first in range(200))
    context = execution.create_sync_in_process_context(
        max_concurrent_clients=8, max_clients_per_call=20
    )
    with tff.framework.get_context_stack().install(context):
      found = {int(mixed(clients)) for _ in range(10)}
    self.assertEqual(found, {expected})
    self.assertEqual(context.num_clients_by_path['one_by_one'], 0)
    context.close()

  @parameterized.parameters(True, False)
  def test_dataset_of_the_server(self, is_made):
    @tff.tensorflow.computation(_NUMBERS)
    def make(numbers):
      return numbers.map(tf.identity)

    @tff.federated_computation(at_server(_NUMBERS), at_clients(_NUMBERS))
    def computation(shared, numbers):
      shared = tff.federated_map(make, shared) if is_made else shared
      pairs = tff.federated_broadcast(shared), numbers
      return tff.federated_sum(tff.federated_map(_digest_of_both, pairs))

    few = tf.data.Dataset.range(1, 6)
    rows, ranges = [[3, 1, 2], [4], []], [few.take(2), few, few.skip(1)]
    # A client's data must be rows in memory as well, or datasets as well.
    for shared, clients, at_once, in_chunks in (
        (few, rows, 3, 3),
        (few, ranges, 0, 3),
        (few.shuffle(5, seed=1), ranges, 0, 3),
        (few.filter(lambda x: x != 2), ranges, 0, 3),
        (few.filter(lambda x: x != 2), rows, 0, 0),
        (few.repeat(300), rows, 0, 0),
    ):
      self.assert_paths_agree(
          computation, shared, clients, in_chunks=in_chunks, at_once=at_once
      )

  def test_no_clients(self):
    self.assert_paths_agree(_digests, [], [], 7, in_chunks=0)

  def test_arrays_of_all_kinds(self):
    # Of the type itself, which stay arrays; of others, which are converted; and
    # such as look like an array of the type.
    rows = np.arange(12, dtype=np.int64)
    masked = np.ma.masked_array(rows[:2], mask=[True, False])
    numbers = [
        list(rows[:3]),
        [np.array(7), np.array(2)],
        [tf.constant(5, tf.int64), np.array(4), 3],
        [np.array(3, np.int32), np.array(2, '>i8'), np.array(1.0)],
        list(masked.data),
        tf.data.Dataset.from_tensor_slices(rows[::2]),
    ]
    self.assert_paths_agree(
        _digests, numbers, [4, 9, 2, 1, 5, 3], 7, in_chunks=6, at_once=6
    )

    batches = tff.SequenceType(tff.TensorType(np.int64, [None, 2]))
    pairs = rows.reshape(6, 2)

    @tff.tensorflow.computation(batches)
    def digest(found):
      step = lambda y, z: 31 * y + tf.reduce_sum(z * [[1, 2]])
      return found.reduce(np.int64(0), step)

    @tff.federated_computation(at_clients(batches))
    def digests(found):
      return tff.federated_sum(tff.federated_map(digest, found))

    clients = [
        [pairs[:4], pairs[4:]],
        [pairs.T.reshape(2, 6).T[:4], pairs[4:]],
        [pairs[:4].astype('>i8'), pairs[4:].astype(np.int16)],
        [np.ma.masked_array(pairs[:4], mask=pairs[:4] == 3), pairs[4:]],
        [tf.constant(pairs[:4]), pairs[4:].tolist()],
        [pairs[::2]],
        [pairs[:0]],
    ]
    expected, _ = _run('one_by_one', digests, clients)
    for name in ('in_threes', 'at_once'):
      actual, paths = _run(name, digests, clients)
      self.assertEqual((actual, paths['one_by_one']), (expected, 0))

  def test_all_rows_in_one_batch(self):
    @tff.tensorflow.computation(
        tff.SequenceType(tff.TensorType(np.int64, [None]))
    )
    def work(batches):
      return batches.reduce(
          np.int64(0), lambda y, z: 31 * y + tf.reduce_sum(z)
      )

    rows = tf.data.Dataset.from_tensor_slices
    clients = [rows(np.arange(n)).batch(2**63 - 1) for n in (1, 3, 4, 2, 7)]
    self.assert_paths_agree(
        _sum_over_clients(work), clients, in_chunks=5, at_once=5
    )

  def test_gradient_of_a_mean_of_means(self):
    # Of batches of any size, as in Keras' mean squared error. Halves and
    # quarters of small integers have no rounding.
    @tff.tensorflow.computation(
        tff.SequenceType(tff.TensorType(np.float32, [None, 2]))
    )
    def work(batches):
      weights = tf.Variable([1.0, 3.0])

      @tf.function
      def train():
        for batch in batches:
          with tf.GradientTape() as tape:
            errors = tf.reduce_mean(tf.square(batch - weights), axis=-1)
            loss = tf.reduce_mean(errors)
          weights.assign_sub(4 * tape.gradient(loss, weights))
        return tf.cast(weights[0] + 64 * weights[1], tf.int64)

      return train()

    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    clients = [[rows[:2], rows[2:]], [rows[2:]], [rows[1:3] + 2]]
    self.assert_paths_agree(
        _sum_over_clients(work), clients, in_chunks=3, at_once=3
    )

  def test_clients_of_different_shapes(self):
    vectors = [np.ones(n, np.float32) for n in (2, 2, 3, 0, 0, 2)]
    self.assert_paths_agree(_total, vectors, in_chunks=6)

  @parameterized.named_parameters(
      ('some', _PIPELINES_OF_ROWS), ('more', _MORE_PIPELINES_OF_ROWS)
  )
  @pytest.mark.slow(cases=['more'])
  def test_what_is_made_of_rows_is_rows(self, pipelines):
    @tf.autograph.experimental.do_not_convert
    def digests(numbers):
      found = collections.OrderedDict()
      for name, pipeline in pipelines.items():
        made = pipeline(numbers)
        found[name] = _ordered_digest(made) + 1000003 * made.cardinality()
      return found

    work = tff.tensorflow.computation(digests, _NUMBERS)
    rows = tf.data.Dataset.from_tensor_slices
    found = [digests(rows(np.array(each, np.int64))) for each in _COUNTS]
    expected = {
        name: np.sum([each[name].numpy() for each in found])
        for name in pipelines
    }
    self.assert_paths_agree(
        _sum_over_clients(work),
        _COUNTS,
        in_chunks=7,
        at_once=7,
        expected=expected,
    )

  # The oracle has the same of a tutorial's process.
  @parameterized.parameters(
      lambda b, a: collections.OrderedDict(b=b, a=a),
      lambda b, a: {'a': a, 'b': b},
      lambda b, a: [b, a],
  )
  def test_lists_of_elements_whose_names_are_not_sorted(self, element):
    rows = collections.OrderedDict(
        b=tff.TensorType(np.float32), a=tff.TensorType(np.float32)
    )
    work = tff.tensorflow.computation(
        lambda x: x.reduce(
            np.float32(0), lambda y, row: y + 10 * row['b'] + row['a']
        ),
        tff.SequenceType(rows),
    )

    @tff.federated_computation(at_clients(tff.SequenceType(rows)))
    def computation(data):
      return tff.federated_sum(tff.federated_map(work, data))

    one, two = np.array(1, np.float32), np.array(2, np.float32)
    client = [element(one, two)]
    for name, path in ('in_chunks', 'in_chunks'), ('at_once', 'at_once'):
      result, paths = _run(name, computation, [client] * 4)
      self.assertEqual(result, 4 * 12)
      self.assertEqual(paths[path], 4)

  @pytest.mark.slow
  def test_preprocessing_of_a_process(self):
    rows = collections.OrderedDict(
        x=tff.TensorType(np.float32, [2]), y=np.int64
    )

    @tff.tensorflow.computation(tff.SequenceType(rows))
    def preprocess(dataset):
      dataset = dataset.map(lambda e: dict(e, x=e['x'] / 2)).repeat(2)
      return dataset.batch(3).map(lambda e: dict(e, x=e['x'] + 1)).prefetch(1)

    process = tff.simulation.compose_dataset_computation_with_learning_process(
        preprocess, _averaging(_functional_model(), 'DATASET_ITERATOR')
    )
    slices = tf.data.Dataset.from_tensor_slices
    cohort = [slices(_examples(size, size)) for size in (5, 1, 0, 5)]
    expected, _ = _run('one_by_one', _rounds, process, cohort, cohort)
    for name, path in ('in_chunks', 'in_chunks'), ('at_once', 'at_once'):
      actual, paths = _run(name, _rounds, process, cohort, cohort)
      _assert_close(actual, expected)
      self.assertEqual(paths[path], 8)

  @parameterized.named_parameters(
      ('shuffle', lambda x: x.shuffle(3, seed=4)),
      ('concatenate', lambda x: x.concatenate(x)),
      ('batches_of_batches', lambda x: x.batch(1).batch(2).map(tf.squeeze)),
      ('filter', lambda x: x.filter(lambda y: y > 1)),
      ('repeat_nearly_for_ever', lambda x: x.repeat(2**17).take(5)),
      (
          'seed',
          lambda x: x.map(
              lambda y: y + tf.random.uniform([], 0, 2**40, tf.int64, seed=1)
          ),
      ),
  )
  def test_what_no_rows_stand_for_is_a_dataset_in_a_chunk(self, pipeline):
    work = tff.tensorflow.computation(
        lambda numbers: _ordered_digest(pipeline(numbers)), _NUMBERS
    )
    with self.assertLogs('tff_dp.execution', logging.DEBUG) as logs:
      self.assert_paths_agree(
          _sum_over_clients(work), _COUNTS, in_chunks=7, names=['at_once']
      )
    self.assertIn('sessions of their own', str(logs.output))

  @parameterized.named_parameters(
      (
          'also_of_another',
          lambda x: _sum_of(x) + _sum_of(tf.data.Dataset.range(3)),
      ),
      ('break', tf.function(_until_four)),
      (
          'seeded_step',
          lambda x: x.reduce(
              np.int64(0),
              lambda y, z: y
              + tf.random.uniform([], 0, 2**40, tf.int64, seed=1)
              + z,
          ),
      ),
  )
  def test_loops_that_are_not_plain(self, function):
    work = tff.tensorflow.computation(function, _NUMBERS)
    self.assert_paths_agree(
        _sum_over_clients(work), _COUNTS, in_chunks=7, names=['at_once']
    )

  def test_for_loops_and_a_loop_around(self):
    @tff.tensorflow.computation(_NUMBERS)
    def work(numbers):

      @tf.function
      def epochs():
        total = tf.constant(1, tf.int64)
        for _ in tf.range(3):
          for number in iter(numbers):
            total = 31 * total + number
        for number in numbers:
          if number > 1:
            total = 7 * total + number
        return total + numbers.reduce(total, lambda y, z: 3 * y + z)

      return epochs()

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      return tff.federated_sum(tff.federated_map(work, numbers))

    def by_hand(numbers):
      total = 1
      for number in 3 * numbers:
        total = 31 * total + number
      for number in numbers:
        total = 7 * total + number if number > 1 else total
      reduced = total
      for number in numbers:
        reduced = 3 * reduced + number
      return total + reduced

    numbers = [[3, 1], [2], [], [4, 4, 4], [5]]
    self.assert_paths_agree(
        computation,
        numbers,
        in_chunks=5,
        at_once=5,
        expected=sum(map(by_hand, numbers)),
    )

  def test_scan_with_side_effects(self):
    @tff.tensorflow.computation(_NUMBERS)
    def work(numbers):
      variable = tf.Variable(2, dtype=tf.int64)

      @tf.function
      def loop():
        products = numbers.scan(
            np.int64(1),
            lambda x, y: (x + y, x * variable.assign_add(y)),
        )
        # Waits until the scan is made, and the reduction for it.
        start = variable.read_value()
        return products.reduce(start, lambda x, y: 31 * x + y)

      return loop()

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      return tff.federated_sum(tff.federated_map(work, numbers))

    numbers = [[3, 1], [], [4, 7]]
    self.assert_paths_agree(computation, numbers, in_chunks=3, at_once=3)
    # 2; 2, 5 * 1, 6 * 4; 2, 6 * 1, 13 * 5.
    expected = 2 + 31 * (31 * 2 + 5) + 24 + 31 * (31 * 2 + 6) + 65
    self.assertEqual(_run('in_chunks', computation, numbers)[0], expected)

  @parameterized.named_parameters(
      ('twice', lambda x, y, z: x.reduce(y, z) - 5 * x.reduce(y + 1, z), 4),
      (
          'in_a_branch',
          lambda x, y, z: tf.cond(y > 0, lambda: x.reduce(y, z), lambda: y),
          0,
      ),
      ('after_a_scan', lambda x, y, z: x.scan(y, _two_sums).reduce(y, z), 4),
  )
  def test_reductions_of_a_scan(self, reduced, at_once):
    @tff.tensorflow.computation(_NUMBERS)
    def work(numbers):
      variable = tf.Variable(3, dtype=tf.int64)

      @tf.function
      def loop():
        scanned = numbers.scan(
            np.int64(1), lambda x, y: (x + y, x * variable.assign_add(y))
        )
        return reduced(
            scanned, variable.assign_add(1), lambda x, y: 31 * x + y
        )

      return loop()

    self.assert_paths_agree(
        _sum_over_clients(work),
        [[3, 1], [], [4, 7], [2]],
        in_chunks=4,
        at_once=at_once,
    )

  def test_accumulators_that_depend_on_each_other(self):
    # With one worker, as the order counts here.
    @tff.tensorflow.computation(_NUMBERS)
    def total(numbers):
      return numbers.reduce(np.int64(0), tf.add)

    zero = tff.tensorflow.computation(lambda: (np.int64(0), np.int64(0)))
    pair = zero.type_signature.result
    accumulate = tff.tensorflow.computation(
        lambda state, x: (state[0] + 1, state[1] + x * state[0]),
        (pair, np.int64),
    )
    merge = tff.tensorflow.computation(lambda x, y: x, (pair, pair))
    report = tff.tensorflow.computation(lambda x: x, pair)

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      return tff.federated_aggregate(
          tff.federated_map(total, numbers), zero(), accumulate, merge, report
      )

    with execution.create_sync_in_process_context(
        max_concurrent_clients=1
    ) as context:
      with conformance.at_once():
        found = computation([[3], [1], [4, 1], [5]])
    # The first three have one number and come together, the third client last.
    self.assertEqual(found, (4, 1 * 1 + 5 * 2 + 5 * 3))
    self.assertEqual(context.num_clients_by_path['at_once'], 4)

  @parameterized.parameters(1, 6)
  def test_slices_that_clients_select_are_rows(self, num_keys):
    # By an iterator, whose place must be known to one client alone; several
    # rounds, for two workers have to meet to disturb each other.
    @tff.tensorflow.computation(tff.TensorType(np.float32, [4, 2]), np.int32)
    def row(table, key):
      return collections.OrderedDict(row=table[key], key=key)

    @tff.tensorflow.computation(tff.SequenceType(row.type_signature.result))
    @tf.function
    def in_order(slices):
      number = tf.constant(0, tf.int64)
      total = tf.zeros([2])
      for element in iter(slices):
        number = 10 * number + tf.cast(element['key'] + 1, tf.int64)
        total += element['row']
      return number, total

    @tff.federated_computation(
        at_server(tff.TensorType(np.float32, [4, 2])),
        at_clients(tff.TensorType(np.int32, [num_keys])),
    )
    def computation(table, keys):
      slices = tff.federated_select(
          keys, tff.federated_value(3, tff.SERVER), table, row
      )
      return tff.federated_sum(tff.federated_map(in_order, slices))

    table = np.arange(8, dtype=np.float32).reshape(4, 2)
    keys = np.random.default_rng(5).integers(4, size=[60, num_keys])
    powers = 10 ** np.arange(keys.shape[1])[::-1]
    for name in 5 * ['in_threes']:
      (number, total), paths = _run(
          name, computation, table, list(keys.astype(np.int32))
      )
      self.assertEqual(paths['in_chunks'], len(keys))
      self.assertEqual(number, ((keys + 1) @ powers).sum())
      np.testing.assert_array_equal(total, table[keys].sum(axis=(0, 1)))

  def test_a_key_that_is_not_there_names_its_client(self):
    @tff.tensorflow.computation(tff.TensorType(np.float32, [4]), np.int32)
    def take(table, key):
      return table[key]

    @tff.tensorflow.computation(tff.SequenceType(np.float32))
    def total_of(slices):
      return slices.reduce(np.float32(0), tf.add)

    @tff.federated_computation(at_clients(tff.TensorType(np.int32, [1])))
    def computation(keys):
      slices = tff.federated_select(
          keys,
          tff.federated_value(3, tff.SERVER),
          tff.federated_value(np.ones(4, np.float32), tff.SERVER),
          take,
      )
      return tff.federated_sum(tff.federated_map(total_of, slices))

    keys = [np.array([key], np.int32) for key in (0, 3, 4, 2)]
    with self.assertRaises(errors.ClientComputationError) as caught:
      _run('in_chunks', computation, keys)
    self.assertEqual(caught.exception.client_index, 2)

  @parameterized.parameters(True, False)
  def test_orders_without_a_seed_are_each_clients_own(self, is_clients_work):
    order = lambda numbers: numbers.shuffle(20)
    work = tff.tensorflow.computation(
        lambda x: _ordered_digest(order(x) if is_clients_work else x), _NUMBERS
    )
    digests = []

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      found = tff.federated_map(work, numbers)
      return tff.federated_min(found), tff.federated_max(found)

    numbers = tf.data.Dataset.range(20)
    for _ in range(5):
      clients = [numbers if is_clients_work else order(numbers)] * 2
      found, paths = _run('in_chunks', computation, clients)
      self.assertEqual(paths['in_chunks'], 2)
      digests += list(found)
    self.assertLen(set(digests), 10)

  def test_clients_share_no_state_and_no_draws(self):
    @tff.tensorflow.computation(np.int64)
    def work(value):
      seen = tf.Variable(0, dtype=tf.int64)
      table = tf.lookup.StaticHashTable(
          tf.lookup.KeyValueTensorInitializer(
              tf.constant([1], tf.int64), tf.constant([5], tf.int64)
          ),
          0,
      )
      draw = tf.random.uniform([], 0, 2**40, tf.int64)
      with tf.control_dependencies([seen.assign_add(value)]):
        return seen.read_value() + table.lookup(value), draw

    many = tff.TensorType(np.int64, [None])

    @tff.tensorflow.computation
    def zero():
      empty = tf.zeros([0], tf.int64)
      return tf.compat.v1.placeholder_with_default(empty, [None])

    @tff.tensorflow.computation(many, (np.int64, np.int64))
    def append(found, pair):
      return tf.concat([found, tf.stack(list(pair))], 0)

    join = tff.tensorflow.computation(
        lambda x, y: tf.concat([x, y], 0), (many, many)
    )
    report = tff.tensorflow.computation(lambda x: x, many)

    @tff.federated_computation(at_clients(np.int64))
    def computation(values):
      return tff.federated_aggregate(
          tff.federated_map(work, values),
          zero(),
          append,
          join,
          report,
      )

    found, paths = _run('in_chunks', computation, [1, 2, 1, 3])
    self.assertEqual(paths['in_chunks'], 4)
    self.assertSequenceEqual(list(found[::2]), [6, 2, 6, 3])
    self.assertLen(set(found[1::2]), 4)


def _at_once_then_rest(rest, result_type):
  """Returns a computation: sums of clients' rows, then `rest` of each client.

  `rest` has an operation that cannot be done for many clients at once.
  """
  own = tff.StructType([
      ('rows', tff.SequenceType(tff.TensorType(np.float32, [3]))),
      ('numbers', _NUMBERS),
  ])
  many = tff.TensorType(result_type.dtype, [None, *result_type.shape])
  total = tff.tensorflow.computation(
      lambda own: own['rows'].reduce(tf.zeros([3]), tf.add), own
  )
  own_rest = tff.tensorflow.computation(
      lambda total, own: rest(total, own['numbers']),
      (tff.TensorType(np.float32, [3]), own),
  )
  zero = tff.tensorflow.computation(
      lambda: tf.zeros([0, *result_type.shape], result_type.dtype)
  )
  append = tff.tensorflow.computation(
      lambda found, one: tf.concat([found, one[tf.newaxis]], 0),
      (many, result_type),
  )
  join = tff.tensorflow.computation(
      lambda x, y: tf.concat([x, y], 0), (many, many)
  )
  report = tff.tensorflow.computation(lambda x: x, many)

  @tff.federated_computation(at_clients(own))
  def computation(values):
    totals = tff.federated_map(total, values)
    found = tff.federated_map(own_rest, (totals, values))
    return tff.federated_aggregate(found, zero(), append, join, report)

  return computation


def _with_numbers(*numbers) -> list:
  """Returns clients that each have four rows and a list of numbers."""
  rows = np.random.default_rng(6).integers(-9, 9, [len(numbers), 4, 3])
  return [
      collections.OrderedDict(rows=list(own.astype(np.float32)), numbers=items)
      for own, items in zip(rows, numbers)
  ]


def _keyed_draws(total, numbers):
  """Draws that belong to a client's key and to the bits of its sum."""
  key = numbers.reduce(np.int64(0), tf.add)
  digest = tf.bitcast(tf.fingerprint(total[tf.newaxis]), tf.int64)[0]
  draws = tf.random.stateless_normal([3], tf.stack([key, digest]))
  return total + draws


class RestTest(parameterized.TestCase):
  """Work of which a part is done at once, and the rest one after the other."""

  def test_sums_keep_the_order_and_the_draws_their_keys(self):
    computation = _at_once_then_rest(
        _keyed_draws, tff.TensorType(np.float32, [3])
    )
    clients = _with_numbers([1], [2, 3], [3], [5, 5], [6, 1])
    found, paths = _run('at_once', computation, clients)
    self.assertEqual(paths['at_once'], 5)
    # Of each kind, those of the first worker come first.
    expected, _ = _run('one_by_one', computation, clients)
    np.testing.assert_array_equal(
        sorted(found.tolist()), sorted(expected.tolist())
    )
    alone, _ = _run('at_once', computation, clients[:1])
    np.testing.assert_array_equal(alone[0], expected[0])

  def test_draws_without_a_key_are_each_clients_own(self):
    computation = _at_once_then_rest(
        lambda total, _: tf.random.normal([2]),
        tff.TensorType(np.float32, [2]),
    )
    found, paths = _run(
        'at_once', lambda: computation(_with_numbers(*[[1]] * 6))
    )
    self.assertEqual(paths['at_once'], 6)
    self.assertLen(set(found.ravel()), 12)

  def test_the_client_whose_rest_failed_is_named(self):
    def rest(total, numbers):
      number = numbers.reduce(np.int64(0), tf.add)
      with tf.control_dependencies([tf.debugging.assert_positive(number)]):
        return tf.identity(total)

    computation = _at_once_then_rest(rest, tff.TensorType(np.float32, [3]))
    clients = _with_numbers([1], [2], [-3], [4])
    with self.assertRaises(errors.ClientComputationError) as caught:
      _run('at_once', computation, clients)
    self.assertEqual(caught.exception.client_index, 2)

  @parameterized.parameters(False, True)
  def test_work_of_which_nothing_can_be_done_at_once_is_a_loop(self, is_mapped):
    # Preprocessing alone is not worth a graph.
    twice = tff.tensorflow.computation(
        lambda numbers: numbers.map(lambda number: 2 * number), _NUMBERS
    )
    work = tff.tensorflow.computation(
        lambda numbers: numbers.reduce(
            np.int64(0),
            lambda x, y: x + y * tf.random.uniform([], 1, 2, tf.int64),
        ),
        _NUMBERS,
    )

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      if is_mapped:
        numbers = tff.federated_map(twice, numbers)
      return tff.federated_sum(tff.federated_map(work, numbers))

    total, paths = _run('at_once', computation, [[1, 2], [3, 4]])
    self.assertEqual(total, 20 if is_mapped else 10)
    self.assertEqual(paths['in_chunks'], 2)

  def test_rest_after_preprocessing(self):
    twice = tff.tensorflow.computation(
        lambda numbers: numbers.map(lambda number: 2 * number), _NUMBERS
    )
    total = tff.tensorflow.computation(
        lambda numbers: numbers.reduce(np.int64(0), tf.add), _NUMBERS
    )
    rest = tff.tensorflow.computation(
        lambda total, numbers: total
        + numbers.reduce(np.int64(0), tf.maximum)
        * tf.random.uniform([], 1, 2, tf.int64),
        (np.int64, _NUMBERS),
    )

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      numbers = tff.federated_map(twice, numbers)
      totals = tff.federated_map(total, numbers)
      return tff.federated_sum(tff.federated_map(rest, (totals, numbers)))

    found, paths = _run('at_once', computation, [[1, 2], [3, 4], [1]])
    self.assertEqual(found, (6 + 4) + (14 + 8) + (2 + 2))
    self.assertEqual(paths['at_once'], 3)


class FailureTest(absltest.TestCase):

  def test_the_client_that_failed_is_named_and_the_next_call_works(self):
    @tff.tensorflow.computation(_NUMBERS)
    def work(numbers):
      def add(total, number):
        with tf.control_dependencies([tf.debugging.assert_positive(number)]):
          return total + number

      return numbers.reduce(np.int64(0), add)

    @tff.federated_computation(at_clients(_NUMBERS))
    def computation(numbers):
      return tff.federated_sum(tff.federated_map(work, numbers))

    numbers = [[1], [2, 3], [4], [5, -6], [7], [-8]]
    for name in _CONTEXTS:
      with self.assertRaises(errors.ClientComputationError) as caught:
        _run(name, computation, numbers)
      self.assertEqual(caught.exception.client_index, 3)
      total, _ = _run(name, computation, numbers[:3])
      self.assertEqual(total, 10)

  def test_data_of_a_wrong_type_names_its_client(self):
    with self.assertRaisesRegex(TypeError, 'client 1 of'):
      _run('in_chunks', _digests, [[1], [1.5]], [1, 2], 7)

  def test_a_number_of_clients_that_is_none(self):
    with self.assertRaisesRegex(ValueError, 'max_clients_per_call'):
      execution.create_sync_in_process_context(max_clients_per_call=0)


class PathTest(absltest.TestCase):
  """Which work is a loop in a graph, and which has a call for each client."""

  def _num_alone(self, function, clients: list) -> int:
    result, paths = _run('in_chunks', function, clients)
    alone, _ = _run('one_by_one', function, clients)
    self.assertEqual(result, alone)
    self.assertEqual(sum(paths.values()), len(clients))
    return paths['one_by_one']

  def test_one_client_is_a_loop_of_one(self):
    self.assertEqual(self._num_alone(_total, [np.ones(4, np.float32)]), 0)

  def test_what_is_kept_of_each_client(self):

    @tff.tensorflow.computation(np.float32)
    def doubled(x):
      return 2 * x

    @tff.federated_computation(at_clients(np.float32))
    def each(values):
      return tff.federated_map(doubled, values)

    self.assertEqual(self._num_alone(each, [1.0, 2.0, 3.0]), 3)

  def test_operators_on_sequences(self):

    @tff.federated_computation(_NUMBERS)
    def added(numbers):
      return tff.sequence_sum(numbers)

    @tff.federated_computation(at_clients(_NUMBERS))
    def total(lists):
      return tff.federated_sum(tff.federated_map(added, lists))

    self.assertEqual(self._num_alone(total, [[1, 2], [3]]), 2)


class SizeTest(absltest.TestCase):

  def test_chunks_are_bounded_and_large_clients_go_alone(self):
    context = _CONTEXTS['in_chunks']
    sizes = []
    join = chunks.join

    def joined(clients):
      sizes.append(len(clients))
      return join(clients)

    vectors = [np.ones(4, np.float32)] * 150
    vectors.insert(5, np.ones(2**19, np.float32))
    before = context.num_clients_by_path['one_by_one']
    with absltest.mock.patch.object(chunks, 'join', joined):
      total, _ = _run('in_chunks', _total, vectors)
    self.assertEqual(total, 600 + 2**19)
    self.assertEqual(sizes, [5, 64, 64, 17])
    self.assertEqual(context.num_clients_by_path['one_by_one'] - before, 1)

  def test_more_rows_than_an_index_counts_go_alone(self):
    rows_type = tff.SequenceType(tff.TensorType(np.float32, [0]))
    count = tff.tensorflow.computation(lambda x: x.cardinality(), rows_type)

    @tff.federated_computation(at_clients(rows_type))
    def computation(rows):
      return tff.federated_sum(tff.federated_map(count, rows))

    clients = [
        tf.data.Dataset.from_tensor_slices(np.zeros([rows, 0], np.float32))
        for rows in (2**30, 3)
    ]
    total, paths = _run('in_chunks', computation, clients)
    self.assertEqual(total, 2**30 + 3)
    self.assertEqual((paths['one_by_one'], paths['in_chunks']), (1, 1))

  def test_an_index_is_long_only_where_rows_repeat(self):
    # Because a loop on a GPU waits for int64.
    four, two = tf.constant(4, tf.int64), tf.constant(2, tf.int64)
    found = columns.Columns([tf.zeros([4])], four, two, is_batched=False)
    self.assertEqual(found.begin().dtype, tf.int32)
    self.assertEqual(found.end.dtype, tf.int32)
    self.assertEqual(found.num_elements.dtype, tf.int64)
    for many in (2**16 - 1, 2):
      self.assertEqual(found.repeated(many).end.dtype, tf.int64)


class LimitsTest(parameterized.TestCase):
  """Few clients of a large model work at once on a card, not on a CPU."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.computation = staticmethod(
        _sum_over_clients(
            tff.tensorflow.computation(_ordered_digest, _NUMBERS)
        )
    )
    cls.cohort = [[seed, 2, 5] for seed in range(10)]
    cls.expected = sum(
        31 * (31 * (31 * 7 + seed) + 2) + 5 for seed in range(10)
    )

  @parameterized.parameters(
      ('CPU:0', chunks.ON_CPU), ('GPU:0', chunks.ON_GPU),
      ('GPU:3', chunks.ON_GPU),
  )
  def test_the_device_decides(self, name, limits):
    device = f'/job:localhost/replica:0/task:0/device:{name}'
    self.assertIs(chunks.limits(device), limits)

  @parameterized.parameters(
      (dict(), 'in_chunks'),
      (dict(min_of_worker=10, min_at_once=10, max_bytes=100), 'in_chunks'),
      (dict(min_of_worker=10, min_at_once=10), 'at_once'),
      (chunks.ON_GPU, 'at_once'),
  )
  def test_work_within_limits(self, limits, path):
    if isinstance(limits, dict):
      limits = dataclasses.replace(chunks.ON_CPU, **limits)
    with absltest.mock.patch.object(chunks, 'limits', lambda device: limits):
      actual, paths = _run('in_chunks', self.computation, self.cohort)
    self.assertEqual(paths[path], 10)
    self.assertEqual(actual, self.expected)

  def test_more_than_the_default_work_at_once_if_asked_to(self):
    sizes = []
    stack = chunks.stack

    def stacked(clients):
      sizes.append(len(clients))
      return stack(clients)

    with execution.create_sync_in_process_context(
        max_concurrent_clients=1, max_clients_per_call=600
    ):
      with absltest.mock.patch.object(chunks, 'stack', stacked):
        self.computation([[1, 2, 5]] * 700)
    self.assertEqual(sizes, [600, 100])

  def test_a_lone_client_of_its_kind_goes_to_the_loop(self):
    with absltest.mock.patch.object(chunks, 'ON_CPU', chunks.ON_GPU):
      _, paths = _run('in_chunks', self.computation, [*self.cohort, [1, 2]])
    self.assertEqual((paths['at_once'], paths['in_chunks']), (10, 1))

  def test_stacks_that_the_memory_does_not_hold_are_halved(self):
    sizes = []
    stack = chunks.stack

    def stacked(clients):
      sizes.append(len(clients))
      if len(clients) > 3:
        raise tf.errors.ResourceExhaustedError(None, None, 'no memory')
      return stack(clients)

    with execution.create_sync_in_process_context(
        max_concurrent_clients=1
    ) as context:
      with absltest.mock.patch.multiple(
          chunks, ON_CPU=chunks.ON_GPU, stack=stacked
      ):
        with self.assertLogs('tff_dp.execution', logging.WARNING) as logs:
          actual = self.computation(self.cohort)
        self.assertEqual(sizes, [10, 5, 2, 3, 5, 2, 3])
        sizes.clear()
        self.computation(self.cohort)
    self.assertEqual(sizes, 5 * [2])
    self.assertIn('does not hold 10 clients at once', logs.output[0])
    self.assertEqual(context.num_clients_by_path['at_once'], 20)
    self.assertEqual(actual, self.expected)


if __name__ == '__main__':
  absltest.main()
