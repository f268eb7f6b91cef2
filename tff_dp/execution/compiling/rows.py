# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences in rows, inside of graphs that were made for datasets.

Such a sequence travels where its dataset did, as a variant tensor: an optional
whose components are the columns, how many rows make a batch, and the first row
that is not read. Batches are cut off the rows one by one, the last one is
shorter; without batches, every row is an element. Here is what stands in the
place of a reduction and of an iterator; `loops` puts it there.
"""

from collections.abc import Sequence

import tensorflow as tf

from tff_dp.execution.data import datasets


def on_cpu():
  """Returns the place of whatever handles sequences."""
  return tf.device(datasets.DATASET_DEVICE)


def pack(columns: Sequence[tf.Tensor], batch_size: tf.Tensor) -> tf.Tensor:
  """Returns the variant of a sequence in rows.

  Args:
    columns: The components of its elements, shape [rows, ...].
    batch_size: Number of rows of a batch, int64; without batches, 1.
  """
  start = tf.constant(0, tf.int64)
  with on_cpu():
    return tf.raw_ops.OptionalFromValue(
        components=[*columns, batch_size, start]
    )


def _unpack(variant, dtypes):
  """Returns the columns of `pack`, the batch size and the first unread row."""
  *columns, batch_size, start = tf.raw_ops.OptionalGetValue(
      optional=variant,
      output_types=[*dtypes, tf.int64, tf.int64],
      output_shapes=[None] * (len(dtypes) + 2),
  )
  batch_size = tf.ensure_shape(batch_size, [])
  return columns, batch_size, tf.ensure_shape(start, [])


def _cut(columns, batch_size, start, is_batched: bool) -> list[tf.Tensor]:
  if is_batched:
    return [column[start : start + batch_size] for column in columns]
  return [column[start] for column in columns]


def _num_rows(columns) -> tf.Tensor:
  return tf.shape(columns[0], tf.int64)[0]


def reduction(variant, state, step, dtypes, is_batched: bool):
  """Returns (condition, body, start) of the loop in a reduction's place.

  Args:
    variant: See `pack`.
    state: Of the reduction.
    step: Maps a state and an element's components to the next state.
    dtypes: Of these components.
    is_batched: Whether batches of rows are elements, or the rows are.
  """
  with on_cpu():
    columns, batch_size, start = _unpack(variant, dtypes)
    num_rows = _num_rows(columns)

  def is_left(start, *_):
    return start < num_rows

  def body(start, *state):
    with on_cpu():
      parts = _cut(columns, batch_size, start, is_batched)
      after = start + batch_size
    return after, *step(state, parts)

  return is_left, body, [start, *state]


def new_iterator():
  """Returns what stands for an iterator that is not set up yet."""
  # A table of one entry, as everybody who makes one gets another, and it ends
  # with the last who refers to it. A stack would stay, and to a variable
  # `graphs` gives a name, so that all workers would share one.
  with on_cpu():
    return tf.raw_ops.AnonymousMutableHashTable(
        key_dtype=tf.int64, value_dtype=tf.variant
    )


def _write(variant, iterator):
  key = tf.constant(0, tf.int64)
  tf.raw_ops.LookupTableInsertV2(
      table_handle=iterator, keys=key, values=variant
  )


def make_iterator(variant, iterator):
  """Sets the iterator to the first row of a sequence; see `pack`."""
  with on_cpu():
    _write(variant, iterator)


def next_element(iterator, *, dtypes, is_batched):
  """Returns the next element as an optional, without value at the end."""
  with on_cpu():
    variant = tf.raw_ops.LookupTableFindV2(
        table_handle=iterator,
        keys=tf.constant(0, tf.int64),
        default_value=tf.raw_ops.OptionalNone(),
    )
    columns, batch_size, start = _unpack(variant, dtypes)
    after = tf.raw_ops.OptionalFromValue(
        components=[*columns, batch_size, start + batch_size]
    )
    with tf.control_dependencies([variant]):
      _write(after, iterator)
    return tf.cond(
        start < _num_rows(columns),
        lambda: tf.raw_ops.OptionalFromValue(
            components=_cut(columns, batch_size, start, is_batched)
        ),
        tf.raw_ops.OptionalNone,
    )
