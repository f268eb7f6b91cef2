# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several clients in one call of a graph, which loops over them.

A call costs Python and TensorFlow a fixed time, which is more than a small
client's training. So what the clients of a chunk have is put together: tensors
are stacked, and the rows of sequences (`datasets.Table`) stand one below the
other. They are cut apart in the graph, and clients come in the same order. A
chunk is bounded, so memory does not grow with the cohort.
"""

from collections.abc import Iterable, Iterator
import itertools

import numpy as np
import tensorflow as tf

from tff_dp.execution import datasets
from tff_dp.execution import loops
from tff_dp.execution import values

# A client with more data has a call of its own, which is then a small part of
# its work; to put that data together would not be.
_MAX_BYTES_OF_CLIENT = 2**20
# Of the data of one chunk.
MAX_BYTES = 2**25


def form(leaves: list) -> tuple | None:
  """Returns what clients of a chunk have in common; None for none of them.

  Args:
    leaves: The tensors and tables that a client has.
  """
  if num_bytes(leaves) > _MAX_BYTES_OF_CLIENT:
    return None
  tables = [leaf for leaf in leaves if isinstance(leaf, datasets.Table)]
  batched = {table.batch_size is not None for table in tables}
  if len(batched) > 1:
    return None
  return (
      *batched,
      *(
          tuple((c.dtype, *c.shape[1:]) for c in leaf.columns)
          if isinstance(leaf, datasets.Table)
          else (leaf.dtype, *leaf.shape)
          for leaf in leaves
      ),
  )


def num_bytes(leaves: list) -> int:
  """Returns how much memory a client's data takes, strings not counted."""
  tensors = itertools.chain.from_iterable(
      leaf.columns if isinstance(leaf, datasets.Table) else [leaf]
      for leaf in leaves
  )
  return sum(t.dtype.size * t.shape.num_elements() for t in tensors)


def join(clients: list[list]) -> list[tf.Tensor]:
  """Returns the tensors of a chunk, as `specs` describes them.

  Args:
    clients: The leaves of each, all of one form.
  """
  tensors = [tf.constant(len(clients))]
  with tf.device(datasets.DATASET_DEVICE):
    for leaves in zip(*clients):
      if not isinstance(leaves[0], datasets.Table):
        tensors.append(tf.stack(leaves))
        continue
      for column in zip(*(table.columns for table in leaves)):
        tensors.append(tf.concat(column, 0))
      ends = np.cumsum([0, *(table.num_rows for table in leaves)])
      sizes = [table.batch_size or 1 for table in leaves]
      tensors += [tf.constant(ends, tf.int64), tf.constant(sizes, tf.int64)]
  return tensors


def specs(
    skeletons: Iterable, *, is_batched: bool | None
) -> list[tf.TensorSpec]:
  """Returns the specs of the tensors of a chunk.

  These are the number of clients and, for everything that a client has, a stack
  of tensors; or the columns, where each client's rows end (with a 0 before),
  and each client's batch size.

  Args:
    skeletons: Of what a client has.
    is_batched: Whether sequences consist of batches of rows, or of rows.

  Raises:
    NotPlainError: There are elements that are no tensors.
  """
  found = [tf.TensorSpec([], tf.int32)]
  for leaf in _leaves(skeletons):
    if isinstance(leaf, values.Tensor):
      found.append(_many(leaf.spec, leaf.spec.shape))
      continue
    for spec in tf.nest.flatten(leaf.element_spec):
      if not isinstance(spec, tf.TensorSpec):
        raise loops.NotPlainError(f'elements are {spec}')
      found.append(_many(spec, spec.shape[1:] if is_batched else spec.shape))
    found += 2 * [tf.TensorSpec([None], tf.int64)]
  return found


def _many(spec: tf.TensorSpec, shape: tf.TensorShape) -> tf.TensorSpec:
  return tf.TensorSpec(tf.TensorShape([None]).concatenate(shape), spec.dtype)


def _leaves(skeletons: Iterable) -> Iterator:
  for skeleton in skeletons:
    if isinstance(skeleton, values.Struct):
      yield from _leaves(skeleton)
    else:
      yield skeleton


def client(skeletons, tensors, index, *, is_batched: bool | None) -> list:
  """Returns the symbolic values that one client has.

  Args:
    skeletons: Of these values.
    tensors: Of the chunk, without the number of clients.
    index: Which client of the chunk it is, a symbolic int32.
    is_batched: See `specs`.
  """
  remaining = iter(tensors)

  def build(skeleton):
    if isinstance(skeleton, values.Struct):
      return values.map_struct(build, skeleton)
    if isinstance(skeleton, values.Tensor):
      return next(remaining)[index]
    width = len(tf.nest.flatten(skeleton.element_spec))
    columns = list(itertools.islice(remaining, width))
    ends, sizes = next(remaining), next(remaining)
    with tf.device(datasets.DATASET_DEVICE):
      rows = [column[ends[index] : ends[index + 1]] for column in columns]
      return values.Rows(loops.pack(rows, sizes[index]), bool(is_batched))

  return [build(skeleton) for skeleton in skeletons]
