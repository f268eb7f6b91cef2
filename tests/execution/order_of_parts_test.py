# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Elements of datasets: parts keep their names, and none is read past the end.

TensorFlow sorts the parts of a mapping by name, but not those of a named tuple.
"""

import collections

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import execution
from tff_dp.execution import errors

_Sorted = collections.namedtuple('_Sorted', 'image label')
_Unsorted = collections.namedtuple('_Unsorted', 'label image')
_PARTS = {'label': np.array([1, 2]), 'image': np.array([10, 20])}
_EXPECTED = 3 + 100 * 30
_TYPE = tff.SequenceType(
    collections.OrderedDict(label=np.int64, image=np.int64)
)
# All paths: one by one, in chunks and at once.
_PATHS = (
    ('one_by_one', 3, {'max_clients_per_call': 1}),
    ('in_chunks', 3, {}),
    ('at_once', 70, {}),
)


def _summed(work, element_type):
  """Returns the sum, over clients, of what they compute."""
  computation = tff.tensorflow.computation(work, element_type)

  @tff.federated_computation(tff.FederatedType(element_type, tff.CLIENTS))
  def total(clients):
    return tff.federated_sum(tff.federated_map(computation, clients))

  return total


def _in_context(total, clients, options):
  with execution.create_sync_in_process_context(
      max_concurrent_clients=1, **options
  ) as context:
    return total(clients), context.num_clients_by_path


def _slices(parts) -> tf.data.Dataset:
  return tf.data.Dataset.from_tensor_slices(parts)


class NamesTest(parameterized.TestCase):

  @parameterized.named_parameters(*_PATHS)
  def test_parts_go_by_name(self, num_clients, options):
    total = _summed(
        lambda data: data.reduce(
            np.int64(0), lambda s, e: s + e['label'] + 100 * e['image']
        ),
        _TYPE,
    )
    as_list = [
        collections.OrderedDict(label=np.int64(1), image=np.int64(10)),
        collections.OrderedDict(label=np.int64(2), image=np.int64(20)),
    ]
    for data in (
        _slices(_Unsorted(**_PARTS)),
        _slices(collections.OrderedDict(_PARTS)),
        _slices(_PARTS),
        as_list,
        [_Unsorted(*element.values()) for element in as_list],
    ):
      found, _ = _in_context(total, num_clients * [data], options)
      self.assertEqual(found, num_clients * _EXPECTED)

  @parameterized.named_parameters(*_PATHS)
  def test_each_client_is_checked(self, num_clients, options):
    total = _summed(
        lambda data: data.reduce(
            np.int64(0), lambda s, e: s + e['label'] + 100 * e['image']
        ),
        _TYPE,
    )
    # TensorFlow's specs of both are equal tuples.
    right, wrong = _slices(_Unsorted(**_PARTS)), _slices(_Sorted(**_PARTS))
    clients = [right] * (num_clients - 1) + [wrong]
    with self.assertRaises(TypeError):
      _in_context(total, clients, options)
    pairs = tff.SequenceType(tff.StructType([np.int64, np.int64]))
    total = _summed(
        lambda data: data.reduce(np.int64(0), lambda s, e: s + e[0]), pairs
    )
    clients = [_slices(tuple(_PARTS.values()))] * (num_clients - 1) + [right]
    with self.assertRaises(TypeError):
      _in_context(total, clients, options)

  def test_types_whose_order_gets_lost_are_refused(self):
    data = _slices(_Unsorted(**_PARTS))
    element = tff.types.tensorflow_to_type(data.element_spec)
    total = _summed(
        lambda data: data.reduce(np.int64(0), lambda s, e: s + e.label),
        tff.SequenceType(element),
    )
    with self.assertRaisesRegex(
        errors.UnsupportedComputationError, 'alphabetical order.*OrderedDict'
    ):
      _in_context(total, [data], {})

  def test_sorted_named_tuples_are_allowed(self):
    data = _slices(_Sorted(**_PARTS))
    element = tff.types.tensorflow_to_type(data.element_spec)
    total = _summed(
        lambda data: data.reduce(
            np.int64(0), lambda s, e: s + e.label + 100 * e.image
        ),
        tff.SequenceType(element),
    )
    found, paths = _in_context(total, 3 * [data], {})
    self.assertEqual(found, 3 * _EXPECTED)
    self.assertEqual(paths['in_chunks'], 3)


class EndTest(parameterized.TestCase):

  @parameterized.named_parameters(*_PATHS)
  def test_no_element_after_the_last(self, num_clients, options):
    @tf.function(autograph=False)
    def second(data):
      iterator = iter(data.take(1))
      iterator.get_next_as_optional()
      return iterator.get_next_as_optional().get_value()

    total = _summed(second, tff.SequenceType(np.int64))
    with self.assertRaises(errors.ClientComputationError):
      _in_context(total, num_clients * [tf.data.Dataset.range(3)], options)

  @parameterized.named_parameters(*_PATHS[1:])
  def test_a_loop_over_an_iterator_stays_fast(self, num_clients, options):
    @tf.function
    def added(data):
      total = tf.constant(0, tf.int64)
      for element in iter(data):
        total = 2 * total + element
      return total

    total = _summed(added, tff.SequenceType(np.int64))
    data = _slices(np.array([0, 1, 2]))
    found, paths = _in_context(total, num_clients * [data], options)
    self.assertEqual(found, num_clients * 4)
    path = 'at_once' if num_clients > 3 else 'in_chunks'
    self.assertEqual(paths[path], num_clients)


if __name__ == '__main__':
  absltest.main()
