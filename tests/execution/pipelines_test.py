# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of a dataset with steps: those that TensorFlow's pipeline gives."""

import collections
import logging

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution.conformance import at_clients
from tff_dp import execution
from tff_dp.execution import errors
from tff_dp.execution.data import datasets
from tff_dp.execution.data import pipelines


def _rows(num_rows: int = 7) -> tf.data.Dataset:
  random = np.random.default_rng(num_rows)
  return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
          pixels=random.integers(256, size=[num_rows, 2, 3]).astype(np.uint8),
          label=np.arange(num_rows),
          text=[f'row {index}' for index in range(num_rows)],
      )
  )


def _formatted(batch):
  return collections.OrderedDict(
      x=tf.reshape(tf.cast(batch['pixels'], tf.float32) / 255.0, [-1, 6]),
      y=tf.reshape(batch['label'], [-1, 1]),
  )


def _scaled(row):
  return dict(row, pixels=tf.cast(row['pixels'], tf.float32) / 3.0)


# Not a constant of the function, as it would be with 128 numbers.
_OFFSETS = tf.range(130)
_PIPELINES = {
    'slices': lambda x: x,
    'batch': lambda x: x.batch(3),
    'drop_remainder': lambda x: x.batch(3, drop_remainder=True).prefetch(2),
    'tutorial': lambda x: (
        x.repeat(3).shuffle(5, seed=1).batch(4).map(_formatted).prefetch(10)
    ),
    'map_of_rows': lambda x: x.map(_scaled).shuffle(9, seed=2).batch(2),
    'two_maps': lambda x: x.map(_scaled).batch(2).map(_formatted),
    'map_without_batches': lambda x: x.shuffle(2, seed=3).map(_scaled),
    'take_and_skip': lambda x: x.take(6).skip(1).take(-1).repeat(2).batch(4),
    'shuffle_then_repeat': lambda x: x.shuffle(4, seed=5).repeat(3).batch(2),
    'same_order_repeated': lambda x: x.shuffle(
        4, seed=5, reshuffle_each_iteration=False
    ).repeat(3),
    'two_shuffles': lambda x: x.shuffle(4, seed=5).take(5).shuffle(3, seed=6),
    'cache_before_shuffle': lambda x: x.map(_scaled).cache().shuffle(4, seed=1),
    'shuffled_and_cut': lambda x: x.repeat(2).shuffle(4, seed=7).batch(
        4, drop_remainder=True
    ),
    'parallel': lambda x: x.map(_scaled, num_parallel_calls=2).batch(
        2, num_parallel_calls=2
    ),
    'rows_of_rows': lambda x: x.batch(2).map(
        lambda b: tf.repeat(b['label'], 3, axis=0)
    ),
    'captured': lambda x: x.map(lambda r: tf.cast(r['label'], tf.int32) * _OFFSETS).batch(3),
}


def _read_by_tensorflow(dataset: tf.data.Dataset) -> list:
  """Returns the elements of a copy without the state of earlier readings."""
  copy = datasets.as_argument(dataset, where='test')
  if isinstance(copy, datasets.Recipe):
    copy = tf.data.experimental.from_variant(
        copy.variant(), dataset.element_spec
    )
  return [
      [np.asarray(part) for part in tf.nest.flatten(element)]
      for element in copy
  ]


def _read_here(dataset: tf.data.Dataset) -> list | None:
  pipeline = pipelines.read(dataset)
  table = None if pipeline is None else pipeline.table()
  if table is None:
    return None
  columns = [np.asarray(column) for column in table.columns]
  size = table.batch_size
  starts = range(0, table.num_rows, size or 1)
  return [
      [column[start : start + size] if size else column[start, ...]
       for column in columns]
      for start in starts
  ]


def _label(dataset) -> tf.data.Dataset:
  return dataset.map(lambda row: row['label'])


class RowsTest(parameterized.TestCase):

  @parameterized.named_parameters(*_PIPELINES.items())
  def test_rows_are_those_of_the_dataset(self, steps):
    for num_rows in (7, 1, 4):
      dataset = steps(_rows(num_rows))
      expected = _read_by_tensorflow(dataset)
      # Twice: an order may be kept, but not the state of a shuffle.
      for _ in range(2):
        actual = _read_here(dataset)
        if not expected:
          self.assertIn(actual, ([], None))
          continue
        self.assertLen(actual, len(expected))
        for own, other in zip(actual, expected):
          for left, right in zip(own, other, strict=True):
            self.assertEqual(np.asarray(left).dtype, right.dtype)
            np.testing.assert_array_equal(left, right)

  def test_global_seed_is_a_seed(self):
    tf.random.set_seed(3)
    self.addCleanup(tf.random.set_seed, None)
    dataset = _label(_rows(50).shuffle(50))
    expected = _read_by_tensorflow(dataset)
    self.assertEqual(_read_here(dataset), expected)
    self.assertEqual(_read_here(dataset), expected)

  @parameterized.parameters(2, 3, 4)
  def test_orders_without_a_seed_have_tensorflows_law(self, size):
    drawn = collections.Counter()
    dataset = _label(_rows(4).shuffle(size).take(3))
    for _ in range(1500):
      drawn[tuple(int(row[0]) for row in _read_here(dataset))] += 1
    many = tf.data.Dataset.range(4).shuffle(size).batch(4).repeat(4500)
    other = collections.Counter(
        tuple(order.tolist()[:3]) for order in many.as_numpy_iterator()
    )
    self.assertEqual(set(drawn), set(other))
    table = [[counts[key] for key in other] for counts in (drawn, other)]
    self.assertGreater(stats.chi2_contingency(table)[1], 1e-6)

  def test_every_epoch_without_a_seed_has_its_own_order(self):
    def orders(dataset):
      found = np.ravel(_read_here(dataset)).reshape([3, 20])
      np.testing.assert_array_equal(np.sort(found), np.tile(np.arange(20), [3, 1]))
      return {tuple(order) for order in found}

    rows = _label(_rows(20))
    dataset = rows.shuffle(20).repeat(3)
    self.assertLen(orders(dataset) | orders(dataset), 6)
    once = rows.shuffle(20, reshuffle_each_iteration=False).repeat(3)
    self.assertLen(orders(once), 1)
    self.assertLen(orders(once) | orders(once), 2)

  @parameterized.named_parameters(
      ('filter', lambda x: x.filter(lambda row: row['label'] > 1)),
      ('random', lambda x: x.map(lambda row: tf.random.uniform([]))),
      ('python', lambda x: x.map(
          lambda row: tf.py_function(lambda: 1, [], tf.int64))),
      ('branch', lambda x: x.map(
          lambda row: tf.cond(row['label'] > 1, lambda: 1, lambda: 2))),
      ('many', lambda x: x.repeat(10**5)),
      ('large', lambda x: x.batch(2).map(lambda b: tf.zeros([2, 10**6]))),
      ('for_ever', lambda x: x.repeat().take(5)),
      ('nothing', lambda x: x.map(_scaled).take(0)),
      ('batches_repeated', lambda x: x.batch(2).repeat(2)),
      ('batches_shuffled', lambda x: x.batch(2).shuffle(2, seed=1)),
      ('batches_of_batches', lambda x: x.batch(2).batch(2)),
      ('unlike_batches', lambda x: x.batch(2).map(
          lambda b: tf.range(10 - b['label'][0]))),
      ('unlike_components', lambda x: x.batch(4).map(
          lambda b: (b['label'], tf.range(4)))),
      ('scalars', lambda x: x.batch(2).map(
          lambda b: tf.reduce_sum(b['label']))),
      ('cache_after_shuffle', lambda x: x.shuffle(3, seed=1).cache()),
      ('file', lambda x: x.map(_scaled).cache('/nowhere/at/all')),
      ('seed_and_no_seed', lambda x: x.shuffle(3, seed=1).shuffle(3)),
      # TensorFlow fuses the two only if nothing is between them.
      ('shuffles_repeated', lambda x: x.shuffle(9).take(3).shuffle(3).repeat(2)),
      ('many_before_take', lambda x: x.repeat(10**5).take(5)),
      ('map_between', lambda x: x.shuffle(3, seed=1).map(_scaled).repeat(2)),
      ('captured_text', lambda x: x.map(lambda row, t=tf.constant('a'): t)),
      ('captured_model', lambda x: x.map(
          lambda row, m=tf.zeros([1000]): row['label'] + tf.size(m, tf.int64))),
      ('captured_variable', lambda x: x.map(
          lambda row, v=tf.Variable(1, dtype=tf.int64): row['label'] + v)),
  )  # pyformat: disable
  def test_other_datasets_stay_datasets(self, steps):
    self.assertIsNone(_read_here(steps(_rows())))

  def test_equal_maps_share_a_graph_and_others_do_not(self):
    graph = lambda factor: pipelines.read(  # pylint: disable=g-long-lambda
        _label(_rows()).map(lambda x: tf.cast(x, tf.int32) * factor)
    )._graph()  # pylint: disable=protected-access
    self.assertIs(graph(2), graph(2))
    self.assertIsNot(graph(2), graph(3))
    # TensorFlow makes a constant of a smaller tensor.
    captured = lambda value: graph(tf.fill([130], np.int32(value)))
    self.assertIs(captured(2), captured(2))
    self.assertIsNot(captured(2), captured(3))


_BATCHES = collections.OrderedDict(
    x=tff.TensorType(np.float32, [None, 6]),
    y=tff.TensorType(np.int64, [None, 1]),
)


def _shuffled(num_rows: int = 7) -> tf.data.Dataset:
  return (
      _rows(num_rows).repeat(2).shuffle(9, seed=1).batch(4).map(_formatted)
  )


def _digest(start, batches):
  # Tells orders apart.
  return batches.reduce(
      start, lambda total, b: 31 * total + tf.reduce_sum(b['y'] * [[3]]) + b['y'][0, 0]
  )


def _sum_over_clients(work):
  @tff.federated_computation(at_clients(tff.SequenceType(_BATCHES)))
  def computation(batches):
    return tff.federated_sum(tff.federated_map(work, batches))

  return computation


_START = np.int64(1)


def _twice(batches):
  return _digest(_digest(_START, batches), batches)


@tf.function
def _in_a_loop(batches):
  total = tf.constant(_START)
  for _ in tf.range(3):
    for batch in batches:
      total = 31 * total + tf.reduce_sum(batch['y'])
  return total


@tf.function
def _by_an_iterator(batches):
  total = tf.constant(_START)
  for batch in iter(batches):
    total = 31 * total + batch['y'][0, 0]
  return total


class ReadingsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._cohort = [_shuffled(size) for size in (7, 7, 3, 7)]

  def _run(self, computation, is_reference: bool = False, cohort=None):
    limit = {'max_clients_per_call': 1} if is_reference else {}
    context = execution.create_sync_in_process_context(
        max_concurrent_clients=1, **limit
    )
    with context, conformance.at_once():
      result = computation(self._cohort if cohort is None else cohort)
      return result, context.num_clients_by_path

  @parameterized.parameters(
      lambda x: _digest(_START, x),
      _by_an_iterator,
      lambda x: _digest(_START, x.map(lambda b: dict(b, y=b['y'] + 1))),
      lambda x: _digest(_START, x.take(2)),
  )
  def test_one_reading(self, work):
    computation = _sum_over_clients(
        tff.tensorflow.computation(work, tff.SequenceType(_BATCHES))
    )
    expected, paths = self._run(computation, is_reference=True)
    self.assertEqual(paths['one_by_one'], 4)
    found, paths = self._run(computation)
    self.assertEqual(found, expected)
    self.assertEqual(paths['at_once'], 4)

  # A second reading has another order, also with a seed.
  @parameterized.parameters(
      _twice,
      _in_a_loop,
      lambda x: _digest(_START, x.repeat(2)),
      lambda x: _digest(_START, x.concatenate(x)),
  )
  def test_more_readings(self, work):
    computation = _sum_over_clients(
        tff.tensorflow.computation(work, tff.SequenceType(_BATCHES))
    )
    expected, _ = self._run(computation, is_reference=True)
    found, paths = self._run(computation)
    self.assertEqual(found, expected)
    self.assertEqual(paths['at_once'], 0)
    self.assertEqual(paths['in_chunks'], 4)

  def test_two_computations_read(self):
    @tff.tensorflow.computation(tff.SequenceType(_BATCHES))
    def first(batches):
      return _digest(_START, batches)

    @tff.tensorflow.computation(tff.SequenceType(_BATCHES), np.int64)
    def second(batches, start):
      return _digest(start, batches)

    @tff.federated_computation(at_clients(tff.SequenceType(_BATCHES)))
    def computation(batches):
      found = tff.federated_map(first, batches)
      return tff.federated_sum(tff.federated_map(second, (batches, found)))

    expected, _ = self._run(computation, is_reference=True)
    found, _ = self._run(computation)
    self.assertEqual(found, expected)

  def test_each_use_without_a_seed_has_its_own_order(self):
    @tff.tensorflow.computation(tff.SequenceType(_BATCHES))
    def first(batches):
      return _digest(_START, batches)

    @tff.tensorflow.computation(tff.SequenceType(_BATCHES), np.int64)
    def is_same(batches, other):
      return tf.cast(tf.equal(_digest(_START, batches), other), tf.int32)

    @tff.federated_computation(at_clients(tff.SequenceType(_BATCHES)))
    def computation(batches):
      found = tff.federated_map(first, batches)
      return tff.federated_sum(tff.federated_map(is_same, (batches, found)))

    cohort = [_rows(20).shuffle(20).batch(1).map(_formatted) for _ in range(4)]
    self.assertEqual(self._run(computation, cohort=cohort)[0], 0)

  @parameterized.parameters(
      # With sequences that are rows, and with one that stays a dataset.
      (lambda x: x, 'at_once'),
      (lambda x: x.filter(lambda b: tf.size(b['y']) > 0), 'in_chunks'),
  )
  def test_shuffled_data_beside_other_data(self, steps, path):
    @tff.tensorflow.computation(
        tff.SequenceType(_BATCHES), tff.SequenceType(_BATCHES)
    )
    def work(train, test):
      return _digest(_digest(_START, train), test)

    @tff.federated_computation(
        at_clients((tff.SequenceType(_BATCHES), tff.SequenceType(_BATCHES)))
    )
    def computation(pair):
      return tff.federated_sum(tff.federated_map(work, (pair[0], pair[1])))

    cohort = [
        (_shuffled(size), steps(_rows(5).batch(2).map(_formatted)))
        for size in (7, 7, 3, 7)
    ]
    expected, _ = self._run(computation, is_reference=True, cohort=cohort)
    found, paths = self._run(computation, cohort=cohort)
    self.assertEqual(found, expected)
    self.assertEqual(paths[path], 4)

  def test_failure_names_the_client(self):
    def of(index):
      rows = tf.data.Dataset.from_tensor_slices(tf.constant([0, index]))
      return rows.map(lambda x: tf.gather([1, 2], x))

    @tff.tensorflow.computation(tff.SequenceType(np.int32))
    def work(numbers):
      return numbers.reduce(0, tf.add)

    @tff.federated_computation(at_clients(tff.SequenceType(np.int32)))
    def computation(numbers):
      return tff.federated_sum(tff.federated_map(work, numbers))

    self.assertEqual(self._run(computation, cohort=[of(1), of(0)])[0], 5)
    with self.assertRaises(errors.ClientComputationError) as caught:
      self._run(computation, cohort=[of(1), of(0), of(7), of(1)])
    self.assertEqual(caught.exception.client_index, 2)

  def test_pipelines_of_a_tutorial_train_at_once(self):
    def model_fn():
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential([
              tf.keras.layers.InputLayer((6,)),
              tf.keras.layers.Dense(9, kernel_initializer='zeros'),
          ]),
          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          input_spec=self._cohort[0].element_spec,
      )

    process = tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.5),
    )

    def trained(cohort):
      state = process.initialize()
      for _ in range(2):
        state = process.next(state, cohort).state
      return process.get_model_weights(state).trainable

    expected, _ = self._run(trained, is_reference=True)
    self.assertGreater(np.abs(expected[0]).max(), 0.01)
    found, paths = self._run(trained)
    self.assertEqual(paths['at_once'], 8)
    for left, right in zip(found, expected, strict=True):
      np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-6)


if __name__ == '__main__':
  logging.getLogger('tff_dp').setLevel(logging.DEBUG)
  absltest.main()
