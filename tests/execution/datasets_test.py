# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Datasets as arguments: which are copied, and which are refused.

That a copy gives what TFF's own runtime gives is tested in
`conformance_datasets`.
"""

import gc
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import execution
from tff_dp.execution import errors
from tff_dp.execution.data import datasets

_NUMBERS = tff.SequenceType(np.int64)


@tff.tensorflow.computation(_NUMBERS)
def _digits(numbers):
  return numbers.reduce(np.int64(0), lambda total, x: 10 * total + x)


@tff.federated_computation(tff.FederatedType(_NUMBERS, tff.CLIENTS))
def _digits_of_clients(numbers):
  return tff.federated_map(_digits, numbers)


def _range(size: int = 6) -> tf.data.Dataset:
  return tf.data.Dataset.range(size)


def _drawn(_) -> tf.Tensor:
  return tf.random.uniform([], 0, 10, tf.int64)


def _looked_up() -> tf.data.Dataset:
  keys = tf.range(3, dtype=tf.int64)
  table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(keys, keys), -1
  )
  return _range().map(table.lookup)


def _scaled() -> tf.data.Dataset:
  variable = tf.Variable(2, dtype=tf.int64)
  return _range().map(lambda x: x * variable)


def _from_generator() -> tf.data.Dataset:
  return tf.data.Dataset.from_generator(
      lambda: iter([1, 2]), output_signature=tf.TensorSpec([], tf.int64)
  )


def _with_python(function) -> tf.data.Dataset:
  def apply(x):
    result = function(lambda y: y, [x], tf.int64)
    result.set_shape([])
    return result

  return _range().map(apply)


class ArgumentTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('slices', lambda: tf.data.Dataset.from_tensor_slices([1, 2]).batch(2)),
      ('map', lambda: _range().map(lambda x: x + 1).prefetch(1)),
      ('filter', lambda: _range().filter(lambda x: x > 2).repeat(2).take(3)),
      ('files', lambda: tf.data.TextLineDataset(['a', 'b'])),
      ('inner', lambda: _range().flat_map(lambda x: _range().take(x))),
      ('interleave', lambda: _range().interleave(lambda x: _range().take(x))),
      ('window', lambda: _range().window(2).flat_map(lambda x: x)),
      ('draws', lambda: _range().map(lambda _: tf.random.uniform([]))),
      ('table', _looked_up),
      ('variable_that_is_read', _scaled),
      ('zip', lambda: tf.data.Dataset.zip((_range(), _range().skip(1)))),
      ('tuned', lambda: _range().map(tf.abs, tf.data.AUTOTUNE).batch(3)),
  )
  def test_most_are_used_as_they_are(self, make):
    dataset = make()
    self.assertIs(datasets.as_argument(dataset, where='it'), dataset)

  @parameterized.named_parameters(
      ('slices', lambda: tf.data.Dataset.from_tensor_slices([1, 2]).batch(2)),
      ('map', lambda: _range().map(lambda x: x + 1).prefetch(1)),
      ('table', _looked_up),
      ('variable_that_is_read', _scaled),
      ('shared', lambda: _doubled(_range(), 40)),
  )
  def test_common_ones_are_not_serialized(self, make):
    dataset = make()
    with mock.patch.object(tf.raw_ops, 'DatasetToGraphV2', side_effect=KeyError):
      self.assertIs(datasets.as_argument(dataset, where='it'), dataset)

  @parameterized.named_parameters(
      ('shuffle', lambda: _range().shuffle(2, seed=1)),
      ('below', lambda: _range().cache().map(tf.abs).batch(2).repeat(3)),
      ('options', lambda: _range().cache().with_options(tf.data.Options())),
      (
          'hidden',
          lambda: tf.data.experimental.from_variant(
              tf.data.experimental.to_variant(_range().shuffle(2)),
              tf.TensorSpec([], tf.int64),
          ),
      ),
  )
  def test_those_with_state_are_copied(self, make):
    recipe = datasets.as_argument(make(), where='it')
    self.assertIsInstance(recipe, datasets.Recipe)

  def test_copy_outlives_the_original(self):
    dataset = _range().shuffle(6, seed=1).cache()
    expected = list(dataset.as_numpy_iterator())
    recipe = datasets.as_argument(dataset, where='it')
    del dataset
    gc.collect()
    for _ in range(2):
      copy = tf.data.experimental.from_variant(
          recipe.variant(), tf.TensorSpec([], tf.int64)
      )
      self.assertEqual(list(copy.as_numpy_iterator()), expected)

  @parameterized.named_parameters(
      ('from_generator', _from_generator),
      ('numpy_function', lambda: _with_python(tf.numpy_function)),
      ('py_function', lambda: _with_python(tf.py_function)),
      ('below', lambda: _with_python(tf.numpy_function).batch(1).unbatch()),
      ('inner', lambda: _range().flat_map(lambda _: _from_generator())),
  )
  def test_python_is_refused(self, make):
    good = _range()
    with execution.create_sync_in_process_context():
      with self.assertRaisesRegex(
          errors.UnsupportedComputationError,
          '(?s)Python function in client 1 of the argument, a dataset.*'
          'list of the elements',
      ):
        _digits_of_clients([good, make()])
      self.assertEqual(_digits_of_clients([good, [7, 8]]), [12345, 78])

  def test_what_cannot_be_copied_is_refused(self):
    error = tf.errors.FailedPreconditionError(None, None, 'no graph for it')
    with mock.patch.object(tf.raw_ops, 'DatasetToGraphV2', side_effect=error):
      with self.assertRaisesRegex(
          errors.UnsupportedComputationError,
          'run client 3, a dataset that TensorFlow cannot copy .no graph for',
      ):
        datasets.as_argument(_range().shuffle(2), where='client 3')


def _doubled(dataset: tf.data.Dataset, times: int) -> tf.data.Dataset:
  """Returns a dataset with 2 ** times paths through its parts."""
  for _ in range(times):
    dataset = tf.data.Dataset.zip((dataset, dataset)).map(lambda x, _: x)
  return dataset


class FunctionOfArgumentsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enterContext(execution.create_sync_in_process_context())

  def test_variable_of_the_caller_is_left_alone(self):
    variable = tf.Variable(0, dtype=tf.int64)
    dataset = _range(3).map(lambda _: variable.assign_add(1))
    self.assertEqual(_digits_of_clients([dataset, dataset]), [123, 123])
    self.assertEqual(variable.numpy(), 0)
    # Its value at the call counts.
    variable.assign(4)
    self.assertEqual(_digits(dataset), 567)

  @parameterized.named_parameters(
      ('random', lambda: tf.data.Dataset.random().take(20)),
      (
          'zipped',
          lambda: tf.data.Dataset.zip((_range(20), tf.data.Dataset.random()))
          .map(lambda x, number: x + number % 10),
      ),
      (
          'sampled',
          lambda: tf.data.Dataset.sample_from_datasets(
              [_range(40), _range(80).skip(40)]
          ),
      ),
      (
          'resampled',
          lambda: _range(80).rejection_resample(
              lambda x: tf.cast(x % 2, tf.int32), [0.1, 0.9]
          ).map(lambda _, x: x),
      ),
      ('drawn', lambda: _range(20).map(_drawn)),
      ('shuffled', lambda: _range(20).shuffle(20)),
  )
  def test_each_client_and_call_has_its_own_draws_without_a_seed(self, make):
    dataset, found = make(), []
    for _ in range(2):
      found += _digits_of_clients([dataset] * 3)
    self.assertLen(set(found), 6)

  def test_partly_read_cache_is_not_found(self):
    source = _range().shuffle(6, seed=1)
    cached = source.cache()
    first = next(iter(cached)).numpy()
    self.assertEqual(str(_digits(cached.take(1))), str(first))
    self.assertEqual(_digits(cached), _digits(source))

  def test_result_is_not_the_object_that_came_in(self):
    @tff.federated_computation(_NUMBERS)
    def same(numbers):
      return numbers, _digits(numbers)

    dataset = _range().shuffle(6, seed=1)
    for _ in range(2):
      returned, digits = same(dataset)
      found = int(''.join(map(str, returned.as_numpy_iterator())))
      self.assertEqual(found, digits)

  def test_every_client_finds_what_an_aggregation_captured(self):
    # TFF's own runtime fails here.
    add = tff.tensorflow.computation(
        lambda total, x: 10 * total + x, (np.int64, np.int64)
    )
    shuffled = tff.tensorflow.computation(
        lambda x: x.shuffle(6, seed=1), _NUMBERS
    )

    @tff.federated_computation(
        _NUMBERS, tff.FederatedType(np.int64, tff.CLIENTS)
    )
    def last(numbers, values):
      made = shuffled(numbers)

      @tff.federated_computation(np.int64, np.int64)
      def accumulate(_, value):
        return tff.sequence_reduce(made, value, add)

      identity = tff.tensorflow.computation(lambda x: x, np.int64)
      return tff.federated_aggregate(
          values, np.int64(0), accumulate, add, identity
      )

    with execution.create_sync_in_process_context(max_concurrent_clients=1):
      self.assertEqual(last(_range(), [1, 2, 3]), last(_range(), [3]))

  def test_cache_in_a_file_stays(self):
    # Nobody's memory, but a file: it is state that TFF's runtime keeps, too.
    path = self.create_tempfile().full_path + '.cache'
    kept = _digits(_range().cache(path))
    self.assertEqual(_digits(_range(3).cache(path)), kept)


if __name__ == '__main__':
  absltest.main()
