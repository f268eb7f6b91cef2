# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of datasets with steps such as `shuffle`, `batch` and `map`.

A `tf.data` pipeline takes longer to start than a small client takes to train.
So the steps are read from the Python objects of a dataset, and its rows are
computed in one call. The order comes from TensorFlow, as only TensorFlow knows
how it shuffles: the same steps run over the numbers of the rows. The functions
of `map` become a graph, which all datasets with equal functions share.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import secrets
import threading
import weakref

import numpy as np
import tensorflow as tf

from tff_dp import _compat_tensorflow
from tff_dp.execution.data import calls
from tff_dp.execution.data import datasets

# Largest size of the rows, before and after the maps. To start a pipeline is a
# small part of the work of a client with more.
_MAX_BYTES = 2**23
_MAX_ROWS = 2**14
# Graphs and orders that are kept. An order takes 8 bytes a row.
_MAX_GRAPHS = 64
_MAX_ORDERS = 256
# Bytes of a captured tensor. It is a part of the digest of its function.
_MAX_CAPTURED = 1024
# Steps that choose rows or their order.
_ORDERING = frozenset(['repeat', 'shuffle', 'skip', 'take'])

_digests = weakref.WeakKeyDictionary()
_graphs = collections.OrderedDict()
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True, eq=False)
class Pipeline:
  """A dataset made of slices of tensors, as the steps that follow.

  Attributes:
    columns: Eager tensors that the dataset cuts its rows from.
    ordering: Steps that choose rows or their order, each a name and integers.
    num_rows: Number of rows after these steps.
    row_maps: Functions of the components of a row, in order.
    batch_size: Rows of an element. None if an element is one row.
    maps: Functions of the components of a batch, in order.
  """

  columns: tuple[tf.Tensor, ...]
  ordering: tuple[tuple, ...]
  num_rows: int
  row_maps: tuple
  batch_size: int | None
  maps: tuple

  @property
  def only_slices(self) -> bool:
    """Whether the dataset only cuts tensors."""
    return not (self.ordering or self.row_maps or self.maps)

  @property
  def is_shuffled(self) -> bool:
    """Whether a second reading may find the rows in another order."""
    return any(step[0] == 'shuffle' for step in self.ordering)

  @property
  def kind(self) -> datasets.Kind:
    """Form of the elements."""
    return datasets.kind_of(self.batch_size, self.is_shuffled)

  def table(self) -> datasets.Table | None:
    """Reads all elements once and returns them, or None if they make no table.

    They make one if all batches have equally many rows after the maps, where the
    last one may have fewer, and if they are not large.

    Raises:
      tf.errors.OpError: A map failed.
    """
    if self.only_slices:
      columns = self.columns
      if self.num_rows < len(columns[0]):
        columns = tuple(column[: self.num_rows] for column in columns)
      return datasets.Table(columns, self.batch_size)
    batch_size = self.batch_size
    with tf.device(datasets.DATASET_DEVICE):
      order = self._order()
      if self.row_maps or self.maps:
        size, *columns = self._graph()([self._size, order, *self.columns])
        if batch_size is not None:
          batch_size = int(size)
      else:
        columns = [tf.gather(column, order) for column in self.columns]
    found = datasets.Table(
        tuple(columns), batch_size, self.is_shuffled, is_made=True
    )
    is_table = batch_size != 0 and found.num_bytes <= _MAX_BYTES
    return found if is_table else None

  @functools.cached_property
  def _size(self) -> tf.Tensor:
    return tf.constant(self.batch_size or 1)

  def _order(self) -> tf.Tensor:
    """Returns the numbers of the rows of one reading, in order."""
    num_source_rows = len(self.columns[0])
    if self.is_shuffled and not self._has_seeds:
      order = _drawn_order(num_source_rows, self.ordering)
      return tf.constant(order[: self.num_rows])
    return _order_of(num_source_rows, self.ordering, self.num_rows)

  @functools.cached_property
  def _has_seeds(self) -> bool:
    return any(any(seeds) for seeds in _seeds(self.ordering))

  def _graph(self) -> calls.Function:
    key = (
        tuple((c.dtype, str(c.shape[1:])) for c in self.columns),
        tuple(map(_digest, self.row_maps)),
        tuple(map(_digest, self.maps)),
    )
    with _lock:
      found = _graphs.pop(key, None)
      if found is None:
        found = _traced(self.columns, self.row_maps, self.maps)
      _graphs[key] = found
      if len(_graphs) > _MAX_GRAPHS:
        _graphs.popitem(last=False)
    return found


def read(dataset: tf.data.Dataset) -> Pipeline | None:
  """Returns the steps of a dataset, or None if they are not only known ones.

  The result is also None if the rows are none or many, or if a map is not a
  function of its arguments.
  """
  found = _compat_tensorflow.steps_of_dataset(dataset)
  if found is None or any(c.dtype == tf.variant for c in found[0]):
    return None
  columns, steps = found
  num_rows = len(columns[0])
  row_bytes = sum(map(datasets.num_bytes_of, columns)) // max(1, num_rows)
  ordering, row_maps, batch_size, maps = [], [], None, []
  last = None
  for name, *values in steps:
    if name == 'map':
      (row_maps if batch_size is None else maps).extend(values)
    elif name == 'batch':
      if batch_size is not None:
        return None
      batch_size, drops_remainder = values
      if drops_remainder:
        num_rows -= num_rows % batch_size
    elif name in _ORDERING:
      if batch_size is not None:
        return None
      # TensorFlow makes one step of a shuffle and the `repeat` after it, but
      # not if something is between them. It reads earlier shuffles again.
      num_shuffles = sum(step[0] == 'shuffle' for step in ordering)
      is_next = num_shuffles == 1 and last == 'shuffle'
      if name == 'repeat' and num_shuffles and not is_next:
        return None
      # A `repeat` for ever, a buffer for all rows, or however many they are.
      if name in ('repeat', 'shuffle') and values[0] < 0:
        return None
      # Also where a `take` follows: an order is made of all rows before it.
      if num_rows > _MAX_ROWS:
        return None
      num_rows = _num_rows_after(num_rows, name, *values)
      ordering.append((name, *values))
    elif name == 'cache' and any(step[0] == 'shuffle' for step in ordering):
      return None
    last = name
  found = Pipeline(
      tuple(columns), tuple(ordering), num_rows, tuple(row_maps), batch_size,
      tuple(maps),
  )  # pyformat: disable
  if found.only_slices:
    return found
  is_small = 0 < num_rows <= min(_MAX_ROWS, _MAX_BYTES // max(1, row_bytes))
  if not is_small or not all(map(_is_function, (*row_maps, *maps))):
    return None
  if len(set(map(any, _seeds(ordering)))) > 1:
    return None  # Neither drawn here nor always the same.
  # The results of the last map are joined, batch after batch.
  if maps and any(not output.shape.rank for output in maps[-1].outputs):
    return None
  return found


def _num_rows_after(num_rows: int, name: str, count: int, *_) -> int:
  if name == 'repeat':
    return num_rows * count
  if name == 'take':
    return min(num_rows, count) if count >= 0 else num_rows
  if name == 'skip':
    return max(0, num_rows - count) if count >= 0 else 0
  return num_rows


def _is_function(function) -> bool:
  """Returns whether a map depends on its arguments only."""
  return (
      datasets.only_reads(function)
      and all(
          t.dtype not in (tf.variant, tf.resource) and t.shape.rank is not None
          for t in (*function.inputs, *function.outputs)
      )
      and all(
          datasets.num_bytes_of(tensor) <= _MAX_CAPTURED
          and tensor.dtype != tf.string
          for tensor in function.captured_inputs
      )
      and not any(
          operation.op_def.is_stateful
          for operation in function.graph.get_operations()
      )
  )


def _digest(function) -> str:
  """Returns a hash, equal only for functions with equal graphs."""
  found = _digests.get(function)
  if found is None:
    graph = function.graph
    digest = hashlib.sha256(
        graph.as_graph_def().SerializeToString(deterministic=True)
    )
    digest.update(repr([t.name for t in graph.inputs + graph.outputs]).encode())
    for tensor in function.captured_inputs:
      digest.update(repr((tensor.dtype, tensor.shape)).encode())
      digest.update(tensor.numpy().tobytes())
    found = _digests[function] = digest.hexdigest()
  return found


def _applied(functions: Sequence, parts: list[tf.Tensor]) -> list[tf.Tensor]:
  for function in functions:
    parts = tf.nest.flatten(function(*parts))
  return parts


def _traced(columns, row_maps, maps) -> calls.Function:
  """Returns a function that computes the rows of a table.

  Its arguments are the batch size, the numbers of the rows, and the columns
  that have them. It returns the batch size after the maps (0 if the batches
  make no table), and the new columns.
  """

  def compute(batch_size, order, *columns):
    parts = [tf.gather(column, order) for column in columns]
    if row_maps:
      parts = tf.map_fn(
          lambda row: _applied(row_maps, row),
          parts,
          fn_output_signature=[
              tf.TensorSpec(output.shape, output.dtype)
              for output in row_maps[-1].outputs
          ],
          parallel_iterations=1,
      )
    return _in_batches(maps, batch_size, parts) if maps else [
        batch_size, *parts
    ]

  specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([None], tf.int64)] + [
      tf.TensorSpec([None, *column.shape[1:]], column.dtype)
      for column in columns
  ]
  with tf.device(datasets.DATASET_DEVICE):
    return calls.Function(compute, specs)


def _in_batches(maps, batch_size, parts) -> list[tf.Tensor]:
  """Returns the batch size after the maps, and all batches, joined.

  The size is 0 if the batches, or the components of a batch, differ in their
  numbers of rows. Only the last batch may have fewer.
  """
  num_batches = (tf.shape(parts[0])[0] + batch_size - 1) // batch_size
  arrays = [
      tf.TensorArray(output.dtype, num_batches, infer_shape=False)
      for output in maps[-1].outputs
  ]
  sizes = tf.TensorArray(tf.int32, num_batches)

  def body(index, sizes, *arrays):
    start = index * batch_size
    found = _applied(maps, [p[start : start + batch_size] for p in parts])
    sizes = sizes.write(index, tf.stack([tf.shape(p)[0] for p in found]))
    return index + 1, sizes, *(a.write(index, p) for a, p in zip(arrays, found))

  _, sizes, *arrays = tf.while_loop(
      lambda index, *_: index < num_batches,
      body,
      [tf.constant(0), sizes, *arrays],
      parallel_iterations=1,
  )
  sizes = sizes.stack()
  size, last = sizes[0, 0], sizes[-1, 0]
  is_common = (
      tf.reduce_all(sizes == sizes[:, :1])
      & tf.reduce_all(sizes[:-1] == size)
      & (last > 0)
      & (last <= size)
  )
  return [tf.where(is_common, size, 0), *(array.concat() for array in arrays)]


def _seeds(ordering: tuple) -> list[tuple[int, int]]:
  """Returns the pair of seeds of each shuffle. Zeros mean another every time.
  """
  return [step[2:4] for step in ordering if step[0] == 'shuffle']


def _drawn_order(num_rows: int, ordering: tuple) -> np.ndarray:
  """Returns an order as TensorFlow draws it for shuffles without seeds."""
  # As in TensorFlow, no seed of the user's is behind it.
  random = np.random.default_rng(secrets.randbits(128))
  order = np.arange(num_rows, dtype=np.int64)
  shuffled = None
  for name, *numbers in ordering:
    if name == 'shuffle':
      size, _, _, reshuffles = numbers
      source, order = order, _shuffled(order, size, random)
      # For the `repeat` after it, which reads the source again.
      shuffled = (source, size) if reshuffles else None
    elif name == 'repeat':
      others = [
          order if shuffled is None else _shuffled(*shuffled, random)
          for _ in range(numbers[0] - 1)
      ]
      order = np.concatenate([order[: len(order) * numbers[0]], *others])
    elif name == 'skip':
      order = order[numbers[0] :]
    elif numbers[0] >= 0:
      order = order[: numbers[0]]
  return order


def _shuffled(rows: np.ndarray, size: int, random) -> np.ndarray:
  """Returns rows in the order of a shuffle with a buffer of `size` rows."""
  if size >= len(rows):
    return random.permutation(rows)
  # Each row is one of the buffer's, and the next row takes its place.
  order, buffer = np.empty_like(rows), rows[:size].copy()
  places = random.integers(size, size=len(rows) - size)
  for index, place in enumerate(places):
    order[index] = buffer[place]
    buffer[place] = rows[size + index]
  order[len(rows) - size :] = random.permutation(buffer)
  return order


@functools.lru_cache(maxsize=_MAX_ORDERS)
def _order_of(num_source_rows: int, ordering: tuple, num_rows: int):
  """Returns the numbers of the rows, in TensorFlow's order: int64 [rows].

  Each shuffle among the steps must have a seed.
  """
  numbers = [value for _, *own in ordering for value in own[:3]]
  # A shuffle ends with a flag, which is an attribute of its operation.
  kinds = tuple((name, *own[3:]) for name, *own in ordering)
  return _ordering_function(kinds)(
      tf.constant([num_source_rows, *numbers], tf.int64)
  )[:num_rows]


@functools.lru_cache(maxsize=_MAX_GRAPHS)
def _ordering_function(kinds: tuple[tuple, ...]) -> Callable:
  """Returns a function of the numbers of the steps."""

  def order(numbers):
    remaining = _scalars(numbers)
    rows = tf.data.Dataset.range(next(remaining))
    for name, *flags in kinds:
      if name == 'shuffle':
        numbers_of_it = itertools.islice(remaining, 3)
        rows = _compat_tensorflow.shuffled_dataset(rows, *numbers_of_it, *flags)
      else:
        rows = getattr(rows, name)(next(remaining))
    # More than all of them, in one batch.
    return rows.batch(_MAX_ROWS).get_single_element()

  with tf.device(datasets.DATASET_DEVICE):
    return tf.function(
        order, input_signature=[tf.TensorSpec([None], tf.int64)],
        autograph=False,
    )  # pyformat: disable


def _scalars(numbers: tf.Tensor) -> Iterator[tf.Tensor]:
  index = 0
  while True:
    yield numbers[index]
    index += 1
