# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `federated_select` gives a client, as symbolic values of a graph.

A dataset of slices serves whatever its client does with it, and costs a
pipeline for each client. In a loop over clients the slices are rows in memory
instead, see `columns`.
"""

from collections.abc import Callable

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.compiling import columns as columns_lib
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

# AutoGraph would rewrite our own code, which has no tensors in its conditions.
_as_it_is = tf.autograph.experimental.do_not_convert
# So many slices are written one after the other into the graph, without a loop.
_MOST_WITHOUT_LOOP = 4


def as_dataset(
    keys: tf.Tensor, max_key: tf.Tensor, slice_of: Callable
) -> tf.data.Dataset:
  """Returns the slices for a client's keys, in their order.

  Args:
    keys: Shape [n].
    max_key: The largest key that is allowed; from 0 on.
    slice_of: Maps a key to a slice, in Python containers.
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
  """Returns the same slices in memory; see `as_dataset`.

  Raises:
    NotPlainError: A slice holds something else than tensors.
  """

  @_as_it_is
  def parts_of(key):
    parts = tf.nest.flatten(slice_of(_checked(key, max_key)))
    if not parts or not all(tf.is_tensor(part) for part in parts):
      raise errors.NotPlainError('slices are no tensors')
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
