# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Slices that `federated_select` gives a client, as symbolic values of a graph.

Slices in a dataset work for every use, but then each client needs an input
pipeline of its own. In a loop over clients, the slices are rows in memory
instead (see `columns`).
"""

from collections.abc import Callable

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.compiling import columns as columns_lib
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

# AutoGraph would rewrite our code, whose conditions contain no tensors.
_as_it_is = tf.autograph.experimental.do_not_convert
# Up to this number, slices are computed one after the other without a loop.
_MOST_WITHOUT_LOOP = 4


def as_dataset(
    keys: tf.Tensor, max_key: tf.Tensor, slice_of: Callable
) -> tf.data.Dataset:
  """Returns the slices for the keys of a client as a dataset, in their order.

  Args:
    keys: Keys of the client, shape [n].
    max_key: Largest allowed key. The smallest is 0.
    slice_of: Function from a key to a slice in Python containers.
  """

  @_as_it_is
  def checked_slice_of(key):
    return slice_of(_checked(key, max_key))

  with tf.device(datasets.DATASET_DEVICE):
    return (
        tf.data.Dataset.from_tensor_slices(keys)
        .map(checked_slice_of)
        .with_options(values.untuned())
    )


def as_columns(
    keys: tf.Tensor, max_key: tf.Tensor, slice_of: Callable
) -> columns_lib.Columns:
  """Returns the slices for the keys of a client as rows in memory.

  Args:
    keys: Keys, as for `as_dataset`.
    max_key: Largest allowed key, as for `as_dataset`.
    slice_of: Function from a key to a slice, as for `as_dataset`.

  Raises:
    NotPlainError: A slice holds something else than tensors.
  """

  @_as_it_is
  def parts_of(key):
    parts = tf.nest.flatten(slice_of(_checked(key, max_key)))
    if not parts or not all(tf.is_tensor(part) for part in parts):
      raise errors.NotPlainError('a slice is not made of tensors')
    return parts

  num_keys = keys.shape[0]
  if num_keys and num_keys <= _MOST_WITHOUT_LOOP:
    slices = zip(*(parts_of(keys[index]) for index in range(num_keys)))
    columns = [tf.stack(parts) for parts in slices]
  else:
    of_one = tf.function(parts_of).get_concrete_function(
        tf.TensorSpec([], keys.dtype)
    )
    columns = tf.map_fn(
        parts_of,
        keys,
        fn_output_signature=[part.dtype for part in of_one.outputs],
        parallel_iterations=1,
    )
  num_rows = tf.shape(keys, tf.int64)[0]
  no_batches = tf.constant(1, tf.int64)
  return columns_lib.Columns(columns, num_rows, no_batches, is_batched=False)


def _checked(key: tf.Tensor, max_key: tf.Tensor) -> tf.Tensor:
  in_range = tf.debugging.Assert(
      tf.logical_and(0 <= key, key <= max_key),
      ['federated_select: the key', key, 'is not within 0 and', max_key],
  )
  with tf.control_dependencies([in_range]):
    return tf.identity(key)
