# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Several clients in one call of a graph, which loops over them.

A call costs Python and TensorFlow a fixed time, which is more than a small
client's training. So the data of the clients of a chunk are joined: tensors are
stacked, and the rows of sequences (`datasets.Table`) are concatenated. The
graph cuts them apart again, with clients in the same order. A chunk is bounded,
so memory does not grow with the cohort.

Clients with equally many rows in equal batches do not need the loop: their data
are stacked, and each operation runs for all of them at once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import itertools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _compat_tensorflow
from tff_dp import _quiet
from tff_dp.execution import errors
from tff_dp.execution.compiling import columns as columns_lib
from tff_dp.execution.data import datasets
from tff_dp.execution.data import leaves as leaves_lib
from tff_dp.execution.data import values

# A client with more data has a separate call. The call is then a small part of
# its work, but joining that data would not be. Rows that were made from the
# steps of a dataset are joined anyway: the call would start its pipeline.
_MAX_BYTES_OF_CLIENT = 2**20
# Largest size of the data of one chunk.
MAX_BYTES = 2**25
# Largest number of clients in a loop. A call costs as much as a very small
# client.
_MAX_CLIENTS_OF_LOOP = 64


@dataclasses.dataclass(frozen=True)
class Limits:
  """Conditions for clients to work at once on a device, not in a loop.

  Attributes:
    max_bytes: Most bytes of all clients that work at once. Each client counts
      as the size of the model plus the size of its results. The intermediate
      values, which take a few times as much, are not counted.
    min_fitting: If fewer clients than this fit into `max_bytes`, a loop is
      used.
    min_of_worker: Fewest clients that a worker must have. For fewer, it does
      not pay to trace the graph, which takes a second or so.
    min_with_convolutions: The same where the work has convolutions, whose graph
      takes several seconds.
    min_at_once: Fewest clients in a stack, see `gather`.
  """

  max_bytes: int
  min_fitting: int
  min_of_worker: int
  min_with_convolutions: int
  min_at_once: int


# More than 8 MB leaves the caches of a processor, and then a loop is as fast.
# So it is with few clients.
ON_CPU = Limits(
    2**23,
    min_fitting=16,
    min_of_worker=64,
    min_with_convolutions=256,
    min_at_once=8,
)
# A loop leaves a card idle between its small kernels. So two clients at once
# already pay. A card that has less memory gets smaller stacks, see `call`.
ON_GPU = Limits(
    2**29,
    min_fitting=2,
    min_of_worker=2,
    min_with_convolutions=256,
    min_at_once=2,
)


def limits(device: str) -> Limits:
  """Returns the conditions for the clients of a worker to work at once.

  Args:
    device: Full name of the worker's device.
  """
  kind = tf.DeviceSpec.from_string(device).device_type
  return ON_GPU if kind == 'GPU' else ON_CPU


@dataclasses.dataclass(eq=False)
class Chunk:
  """Clients to run in one call of a graph, in their order.

  Attributes:
    clients: Index of each client in the list of all clients.
    leaves: Tensors and tables of each client, see `leaves.Leaves`. None if the
      chunk is one client that runs alone.
    kind: Form of the clients' sequences, such as rows or batches.
    is_at_once: Whether all clients run at once, see `stack`.
    num_bytes: Size of the data of all clients in bytes.
  """

  clients: list[int] = dataclasses.field(default_factory=list)
  leaves: list[leaves_lib.Leaves] | None = dataclasses.field(
      default_factory=list
  )
  kind: datasets.Kind | None = None
  is_at_once: bool = False
  num_bytes: int = 0

  def add(self, client: int, leaves: leaves_lib.Leaves) -> None:
    self.clients.append(client)
    self.leaves.append(leaves)
    self.kind = leaves.kind
    self.num_bytes += leaves.num_bytes

  def halves(self) -> list['Chunk']:
    """Returns two chunks that have all clients of this one, in their order."""
    found = [Chunk(is_at_once=self.is_at_once) for _ in range(2)]
    middle = len(self.clients) // 2
    for position, pair in enumerate(zip(self.clients, self.leaves)):
      found[position >= middle].add(*pair)
    return found


def gather(
    clients: Iterable[tuple[int, leaves_lib.Leaves | None]],
    *,
    limit: int,
    num_at_once: Callable[[datasets.Kind], int],
    min_at_once: int,
) -> Iterator[Chunk]:
  """Yields the clients in chunks.

  There are three kinds of chunks:

  * A client that must run alone, or that has more than 1 MiB of data that were
    in memory before, gets a chunk of its own.
  * A stack has clients whose sequences have equal shapes and lengths. Each
    operation runs once for all of them. There are stacks only if `limit` and
    `num_at_once` allow at least `min_at_once` clients.
  * A loop runs the other clients one after the other. Their leaves have one
    form (`Leaves.form`), and at most 32 MiB of data. They are consecutive, if
    clients in stacks are not counted.

  A stack is yielded when it is full. If the unfinished stacks have more than
  32 MiB of data together, the largest of them is yielded early. So the clients
  of a stack may come after clients with higher numbers. Stacks that still have
  fewer than `min_at_once` clients at the end become loops.

  Args:
    clients: Pairs (number, leaves), with None for a client that must run alone.
    limit: Largest number of clients of a chunk. A loop takes at most 64,
      whatever the limit.
    num_at_once: Function from the form of the sequences, a `datasets.Kind`, to
      the number of such clients that can be stacked in one chunk, 0 for none.
    min_at_once: Fewest clients in a stack.
  """
  num_at_once = functools.cache(num_at_once)
  last, last_form, groups, num_waiting = Chunk(), None, {}, 0
  for client, own in clients:
    if (
        own is None
        or own.form is None
        or (own.num_bytes > _MAX_BYTES_OF_CLIENT and not own.is_made)
    ):
      if last.clients:
        yield last
      last, last_form = Chunk(), None
      yield Chunk([client], None)
      continue
    most = min(limit, num_at_once(own.kind))
    if most >= min_at_once:
      group = own.form, own.lengths
      chunk = groups.get(group)
      if chunk is None:
        chunk = groups[group] = Chunk(is_at_once=True)
      chunk.add(client, own)
      num_waiting += own.num_bytes
      if len(chunk.clients) < most:
        if num_waiting <= MAX_BYTES:
          continue
        group = max(groups, key=lambda group: groups[group].num_bytes)
      yield groups[group]
      num_waiting -= groups.pop(group).num_bytes
      continue
    if last.clients and (
        own.form != last_form
        or len(last.clients) == min(limit, _MAX_CLIENTS_OF_LOOP)
        or last.num_bytes + own.num_bytes > MAX_BYTES
    ):
      yield last
      last = Chunk()
    last.add(client, own)
    last_form = own.form
  if last.clients:
    yield last
  few = []
  for chunk in groups.values():
    if len(chunk.clients) >= min_at_once:
      yield chunk
    else:
      few += zip(chunk.clients, chunk.leaves)
  if few:
    few.sort(key=lambda pair: pair[0])
    yield from gather(
        few, limit=limit, num_at_once=lambda kind: 0, min_at_once=min_at_once
    )


def _stacked(tensors: Sequence) -> tf.Tensor:
  tensors = values.fresh(tensors)
  if all(isinstance(tensor, np.ndarray) for tensor in tensors):
    return tf.constant(np.stack(tensors))
  # `tf.stack` would look at each of them in Python.
  return tf.raw_ops.Pack(values=list(tensors), axis=0)


def _joined(tensors: Sequence) -> tf.Tensor:
  if all(isinstance(tensor, np.ndarray) for tensor in tensors):
    return tf.constant(np.concatenate(tensors))
  return tf.concat(tensors, 0)


def join(clients: list[list]) -> list[tf.Tensor]:
  """Returns the tensors of a chunk, as `specs` describes them.

  Args:
    clients: Leaves of each client, all of one form.
  """
  tensors = [tf.constant(len(clients))]
  with tf.device(datasets.DATASET_DEVICE):
    for leaves in zip(*clients):
      if not isinstance(leaves[0], datasets.Table):
        tensors.append(_stacked(leaves))
        continue
      for column in zip(*(table.columns for table in leaves)):
        tensors.append(_joined(column))
      ends = np.cumsum([0, *(table.num_rows for table in leaves)])
      sizes = [table.batch_size or 1 for table in leaves]
      tensors += [tf.constant(ends, tf.int64), tf.constant(sizes, tf.int64)]
  return tensors


def specs(
    skeletons: Iterable, *, kind: datasets.Kind
) -> list[tf.TensorSpec]:
  """Returns the specs of the tensors of a chunk.

  The first tensor is the number of clients. The others follow the order of a
  client's values. A tensor or a `tf.data.Dataset` gives one tensor, a stack
  over the clients. A sequence whose rows are in memory gives these tensors:

  * One for each column. It has the rows of all clients, one client after the
    other.
  * The ends of the clients in these rows. The first entry is 0.
  * The batch size of each client, 1 without batches.

  Args:
    skeletons: Skeletons of a client's values, see `values.skeleton_of`.
    kind: Form of the clients' sequences: rows, batches or datasets.

  Raises:
    NotPlainError: If a sequence has elements that are not tensors.
  """
  found = [tf.TensorSpec([], tf.int32)]
  for leaf in _leaves(skeletons):
    if isinstance(leaf, values.Tensor) or kind is datasets.Kind.DATASETS:
      found += [_many(spec, spec.shape) for spec in values.flat_specs(leaf)]
      continue
    is_batched = kind.is_batched
    for spec in tf.nest.flatten(leaf.element_spec):
      if not isinstance(spec, tf.TensorSpec):
        raise errors.NotPlainError(f'elements are {spec}')
      found.append(_many(spec, spec.shape[1:] if is_batched else spec.shape))
    found += 2 * [tf.TensorSpec([None], tf.int64)]
  return found


def _many(spec: tf.TensorSpec, shape: tf.TensorShape) -> tf.TensorSpec:
  return tf.TensorSpec(tf.TensorShape([None]).concatenate(shape), spec.dtype)


def _leaves(skeletons: Iterable) -> list:
  return tff.structure.flatten(values.Struct.unnamed(*skeletons))


def client(
    skeletons,
    tensors,
    index,
    *,
    kind: datasets.Kind,
    as_datasets: bool = False,
) -> list:
  """Returns the symbolic values of one client.

  Args:
    skeletons: Skeletons of these values.
    tensors: Tensors of the chunk, without the number of clients.
    index: Position of the client in the chunk, a symbolic int32.
    kind: Form of the clients' sequences, see `specs`.
    as_datasets: Whether to return sequences as datasets, for callers that do
      not support rows.
  """
  remaining = iter(tensors)

  def build(skeleton):
    if isinstance(skeleton, values.Tensor):
      return next(remaining)[index]
    if kind is datasets.Kind.DATASETS:
      with tf.device(datasets.DATASET_DEVICE):
        return values.pack(skeleton, [next(remaining)[index]])
    is_batched = kind.is_batched
    width = len(tf.nest.flatten(skeleton.element_spec))
    columns = list(itertools.islice(remaining, width))
    ends, sizes = next(remaining), next(remaining)
    with tf.device(datasets.DATASET_DEVICE):
      rows = [column[ends[index] : ends[index + 1]] for column in columns]
      if not as_datasets:
        num_rows = ends[index + 1] - ends[index]
        return columns_lib.Columns(
            rows, num_rows, sizes[index], is_batched, reading=_reading(kind)
        )
      dataset = tf.data.Dataset.from_tensor_slices(tuple(rows))
      if is_batched:
        dataset = dataset.batch(sizes[index])
      # Restore the structure of its elements, which some operations need.
      return values.pack(
          skeleton, values.flatten(dataset.with_options(values.untuned()))
      )

  return [values.map_leaves(build, skeleton) for skeleton in skeletons]


def _reading(kind: datasets.Kind) -> columns_lib.Reading | None:
  return columns_lib.Reading() if kind.is_read_once else None


def stack(clients: list[list]) -> list[tf.Tensor]:
  """Returns the tensors of a chunk of alike clients. See `stack_specs`.

  Args:
    clients: Leaves of each client, all of one form and of the same lengths.
  """
  tensors = []
  with tf.device(datasets.DATASET_DEVICE):
    for leaves in zip(*clients):
      if not isinstance(leaves[0], datasets.Table):
        tensors.append(_stacked(leaves))
        continue
      for column in zip(*(table.columns for table in leaves)):
        tensors.append(_stacked(column))
      tensors.append(tf.constant(leaves[0].batch_size or 1, tf.int64))
  return tensors


def stack_specs(
    skeletons: Iterable, *, kind: datasets.Kind
) -> list[tf.TensorSpec]:
  """Returns the specs of the tensors of a chunk of alike clients.

  A tensor of a client gives one tensor, a stack over the clients. A sequence
  gives its columns, each of shape [clients, rows, ...], and then the batch size
  that all clients share.

  Args:
    skeletons: Skeletons of a client's values.
    kind: Form of the clients' sequences, rows or batches.

  Raises:
    NotPlainError: If a sequence has elements that are not tensors.
  """
  found = []
  for leaf in _leaves(skeletons):
    # Leave out the number of clients and the ends of rows.
    _, *own = specs([leaf], kind=kind)
    if isinstance(leaf, values.Tensor):
      found += own
      continue
    found += [_many(spec, spec.shape) for spec in own[:-2]]
    found.append(tf.TensorSpec([], tf.int64))
  return found


def at_once(
    work: Callable, skeletons, tensors, *, kind: datasets.Kind
) -> list:
  """Returns the results of `work` for all clients, each stacked over clients.

  Args:
    work: Function from the symbolic values of a client, and a 0 of the
      client's own, to tensors.
    skeletons: Skeletons of these values.
    tensors: Tensors of the chunk, see `stack_specs`.
    kind: Form of the clients' sequences, see `stack_specs`.

  Raises:
    ValueError: If TensorFlow cannot vectorise an operation.
    NotPlainError: If the elements of a sequence hold nothing, or if `work`
      raises it.
  """
  stacked, sizes = _stacked_and_sizes(skeletons, tensors)
  stacked.append(tf.zeros(tf.shape(stacked[0])[:1], tf.int32))

  def of_client(own):
    *own, own_zero = own
    return work(_client_of(skeletons, own, sizes, kind), own_zero)

  _compat_tensorflow.broadcast_by_known_ranks()
  # Where this fails, clients come one after the other.
  with _quiet.without_log_of_tensorflow():
    return tf.vectorized_map(
        of_client, stacked, fallback_to_while_loop=False, warn=False
    )


def one_of_stack(skeletons, tensors, index, *, kind: datasets.Kind) -> list:
  """Returns the symbolic values of one client of a chunk of alike clients.

  Args:
    skeletons: Skeletons of these values.
    tensors: Tensors of the chunk, see `stack_specs`.
    index: Position of the client in the chunk, a symbolic int32.
    kind: Form of the clients' sequences, see `stack_specs`.
  """
  stacked, sizes = _stacked_and_sizes(skeletons, tensors)
  own = [tensor[index] for tensor in stacked]
  return _client_of(skeletons, own, sizes, kind)


def _stacked_and_sizes(skeletons, tensors) -> tuple[list, list]:
  """Returns (stacks over the clients, sizes of each sequence).

  The sizes of a sequence are its number of rows and its batch size.
  """
  sizes, stacked, remaining = [], [], iter(tensors)
  for leaf in _leaves(skeletons):
    if isinstance(leaf, values.Tensor):
      stacked.append(next(remaining))
      continue
    width = len(tf.nest.flatten(leaf.element_spec))
    columns = list(itertools.islice(remaining, width))
    if not columns:
      raise errors.NotPlainError('elements hold nothing')
    stacked += columns
    # Take the common size, not a client's own: equal sizes keep loops in step.
    with tf.device(datasets.DATASET_DEVICE):
      sizes.append((tf.shape(columns[0], tf.int64)[1], next(remaining)))
  return stacked, sizes


def _client_of(skeletons, own, sizes, kind: datasets.Kind) -> list:
  """Returns the symbolic values of a client from its parts of the stacks."""
  own, own_sizes = iter(own), iter(sizes)

  def build(skeleton):
    if isinstance(skeleton, values.Tensor):
      return next(own)
    width = len(tf.nest.flatten(skeleton.element_spec))
    columns = list(itertools.islice(own, width))
    return columns_lib.Columns(
        columns, *next(own_sizes), kind.is_batched, reading=_reading(kind)
    )

  return [values.map_leaves(build, skeleton) for skeleton in skeletons]
