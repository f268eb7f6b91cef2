# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sequences inside of pure code: rows in memory, and operations on them.

A sequence, its iterator and an element are Python objects around tensors. This
module has the operations on datasets that are functions of the rows alone. A
`shuffle` is not one of them, even with a seed, because only TensorFlow knows
its order. Where the client's dataset had a `shuffle`, the rows have the order
of one reading, and a second reading is refused (`Reading`).
"""

from collections.abc import Callable, Sequence
import dataclasses

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.data import datasets

_MANY = 2**16  # Limit on repetitions, whose product with rows fits 64 bits.


# Function of the components of a row or an element, and of whether many rows go
# at once, that returns the new components.
Map = Callable[[list, bool], list]


class Reading:
  """Sees to it that a graph reads a sequence at most once."""

  def __init__(self):
    """Remembers the graph in which it is made."""
    self._graph = tf.compat.v1.get_default_graph()
    self._has_begun = False

  def begin(self) -> None:
    """Notes that the sequence is read from its first element on.

    Raises:
      NotPlainError: If this may be so more than once, as in a loop.
    """
    if self._has_begun:
      raise errors.NotPlainError('a shuffled sequence is read twice')
    if tf.compat.v1.get_default_graph() is not self._graph:
      raise errors.NotPlainError('a loop or branch reads a shuffled sequence')
    self._has_begun = True


@dataclasses.dataclass(eq=False)
class Columns:
  """A sequence inside a graph, whose rows are in memory.

  Attributes:
    columns: Components of the rows in memory, shape [rows, ...].
    num_rows: Number of rows of the sequence, an int64 scalar. A row that
      repeats because of `period` counts each time.
    batch_size: Rows of a batch, an int64 scalar. The last batch may be shorter.
    is_batched: Whether its elements are batches of rows. If not, they are rows.
    period: Number of rows after which the rows repeat, None if they do not.
    repeats: Number of times that the whole sequence of elements is read.
    row_maps: Functions of the components of a row before batching, in order.
    maps: Functions of the components of an element, in order.
    reading: Where the rows have the order of one reading, the only one.
    num_elements: Number of elements, an int64 scalar.
    end: `num_elements` in the dtype of the index of an element.
  """

  columns: Sequence[tf.Tensor]
  num_rows: tf.Tensor
  batch_size: tf.Tensor
  is_batched: bool
  period: tf.Tensor | None = None
  repeats: int = 1
  row_maps: tuple[Map, ...] = ()
  maps: tuple[Map, ...] = ()
  reading: Reading | None = None

  num_elements: tf.Tensor = dataclasses.field(init=False)
  end: tf.Tensor = dataclasses.field(init=False)
  _size: tf.Tensor = dataclasses.field(init=False)
  _index_size: tf.Tensor = dataclasses.field(init=False)
  _index_rows: tf.Tensor = dataclasses.field(init=False)
  _index_distinct: tf.Tensor = dataclasses.field(init=False)

  def __post_init__(self):
    # A GPU works on int64 in its own memory, and a loop would wait there for
    # each index. On int32 it works in the CPU's memory. Rows in memory are
    # fewer than 2^30 (`leaves`), and so are elements unless they repeat.
    can_repeat = self.period is not None or self.repeats != 1
    dtype = tf.int64 if can_repeat else tf.int32
    # Not where an element is read, which is inside of a loop.
    with tf.device(datasets.DATASET_DEVICE):
      # Batches of 2^63 - 1 rows, which mean all of them, would overflow.
      size = tf.minimum(self.batch_size, tf.maximum(self.num_rows, 1))
      num_distinct = (self.num_rows + size - 1) // size
      self.num_elements = num_distinct * self.repeats
      self.end = tf.cast(self.num_elements, dtype)
      self._size = size
      self._index_size = tf.cast(size, dtype)
      self._index_rows = tf.cast(self.num_rows, dtype)
      self._index_distinct = tf.cast(num_distinct, dtype)

  def begin(self) -> tf.Tensor:
    """Returns the first index, for a loop that reads all elements.

    Raises:
      NotPlainError: If the sequence may be read only once, and is read again.
    """
    if self.reading is not None:
      self.reading.begin()
    return tf.constant(0, self.end.dtype)

  def element(self, index: tf.Tensor) -> list[tf.Tensor]:
    """Returns the components of the element `index`, counted from 0."""
    if self.repeats != 1:
      index %= tf.maximum(self._index_distinct, 1)
    start = index * self._index_size
    end = tf.minimum(start + self._index_size, self._index_rows)
    if self.period is not None:
      # Do not copy the repeated rows, which would take that much more memory.
      rows = tf.range(start, end) if self.is_batched else start
      rows %= tf.maximum(self.period, 1)
      found = [tf.gather(column, rows) for column in self.columns]
    elif self.is_batched:
      found = [column[start:end] for column in self.columns]
    else:
      found = [column[start] for column in self.columns]
    if self.row_maps:
      found = tf.vectorized_map(
          lambda row: _applied(self.row_maps, row, in_rows=True),
          found,
          fallback_to_while_loop=False,
          warn=False,
      )
    return _applied(self.maps, found, in_rows=False)

  def mapped(self, function: Map) -> 'Columns':
    return dataclasses.replace(self, maps=(*self.maps, function))

  def repeated(self, count: int) -> 'Columns':
    """Returns the sequence, repeated `count` times.

    Raises:
      NotPlainError: If the sequence may be read only once.
    """
    if self.reading is not None:
      raise errors.NotPlainError('a shuffled sequence is repeated')
    if self.is_batched or self.period is not None:
      return dataclasses.replace(self, repeats=self.repeats * count)
    return dataclasses.replace(
        self, num_rows=self.num_rows * count, period=self.num_rows
    )

  def taken(self, count: tf.Tensor) -> 'Columns':
    """Returns the first `count` elements, or all if `count` is negative.

    Raises:
      NotPlainError: If `repeats` is not 1.
    """
    self._check_repeats_no_elements()
    is_all = (count < 0) | (count >= self.num_elements)
    # The product with a large count would overflow.
    some = tf.where(is_all, tf.zeros_like(count), count) * self._size
    return dataclasses.replace(
        self, num_rows=tf.where(is_all, self.num_rows, some)
    )

  def batched(self, size: tf.Tensor, drops_remainder: tf.Tensor) -> 'Columns':
    """Returns the sequence of its rows in batches.

    Args:
      size: Number of rows in a batch, an int64 scalar.
      drops_remainder: Whether to leave out a shorter last batch, a boolean
        scalar.

    Raises:
      NotPlainError: If the elements are batches already, or `repeats` is not 1.
    """
    self._check_repeats_no_elements()
    if self.is_batched:
      raise errors.NotPlainError('a batched dataset is batched again')
    full = self.num_rows // size * size
    return dataclasses.replace(
        self,
        num_rows=tf.where(drops_remainder, full, self.num_rows),
        batch_size=size,
        is_batched=True,
        row_maps=self.maps,
        maps=(),
    )

  def _check_repeats_no_elements(self) -> None:
    if self.repeats != 1:
      raise errors.NotPlainError('a repeated dataset is batched or cut')


def _applied(functions, parts: list, *, in_rows: bool) -> list:
  for function in functions:
    parts = function(parts, in_rows)
  return parts


@dataclasses.dataclass(eq=False)
class Iterator:
  """An iterator over a sequence inside a graph.

  Attributes:
    sequence: The sequence, None before the iterator has one.
    value: Index of the next element, a scalar, None before the iterator has a
      sequence. The name is that of `variables.Variable`, as loops pass both on.
  """

  sequence: Columns | None = None
  value: tf.Tensor | None = None

  @property
  def tensor(self) -> tf.Tensor:
    return self.value

  @property
  def shape(self) -> tf.TensorShape:
    return self.value.shape

  def with_value(self, tensor: tf.Tensor) -> 'Iterator':
    return Iterator(self.sequence, tensor)


@dataclasses.dataclass(frozen=True, eq=False)
class Optional:
  """An element of a sequence, if the sequence is long enough to have it.

  Attributes:
    sequence: The sequence.
    index: Index of the element, a scalar.
    is_there: Whether the element exists, a boolean scalar.
    is_sure: Whether the graph here runs only if the element exists.
  """

  sequence: Columns
  index: tf.Tensor
  is_there: tf.Tensor
  is_sure: bool = False

  def if_true(self, condition: tf.Tensor) -> 'Optional':
    """Returns the element inside of a branch that needs `condition`.

    The element there is sure if the condition is its own `is_there`.
    """
    if condition is not self.is_there:
      return self
    return dataclasses.replace(self, is_sure=True)


@dataclasses.dataclass(frozen=True, eq=False)
class Scan:
  """A sequence that a scan makes of another one, step by step when reduced.

  Attributes:
    sequence: The other sequence.
    node: The `ScanDataset`.
    inputs: State of the scan, and other inputs of its step.
  """

  sequence: 'Columns | Scan'
  node: tf.compat.v1.NodeDef
  inputs: Sequence


@dataclasses.dataclass(frozen=True)
class NoState:
  """Placeholder for dataset state that nothing reads."""


def _new_iterator(node) -> list:
  del node
  return [Iterator()]


def _set_up(node, sequence, iterator) -> list:
  check_is_columns(node, sequence)
  _check_is_iterator(node, iterator)
  iterator.sequence, iterator.value = sequence, sequence.begin()
  return []


def _get_next(node, iterator) -> list:
  _check_is_iterator(node, iterator)
  if iterator.sequence is None:
    raise errors.NotPlainError(
        f'{node.name} reads an iterator before it has a dataset'
    )
  index = iterator.value
  found = Optional(iterator.sequence, index, index < iterator.sequence.end)
  iterator.value += 1
  return [found]


def _check_is_iterator(node, iterator) -> None:
  if not isinstance(iterator, Iterator):
    raise errors.NotPlainError(f'{node.name} reads an unknown iterator')


def _has_value(node, optional) -> list:
  _check_is_optional(node, optional)
  return [optional.is_there]


def _get_value(node, optional) -> list:
  _check_is_optional(node, optional)
  if not optional.is_sure:
    # Beyond the end, TensorFlow fails. Here there may be other rows.
    raise errors.NotPlainError(
        f'{node.name} reads an element without a look at whether it exists'
    )
  return optional.sequence.element(optional.index)


def _check_is_optional(node, optional) -> None:
  if not isinstance(optional, Optional):
    raise errors.NotPlainError(f'{node.name} reads an unknown optional')


def check_is_columns(node, sequence) -> None:
  if not isinstance(sequence, Columns):
    raise errors.NotPlainError(
        f'{node.name} ({node.op}) reads a dataset whose rows are not in memory'
    )


def _constant(node, tensor):
  found = tf.get_static_value(tensor)
  if found is None:
    raise errors.NotPlainError(
        f'{node.name} ({node.op}) needs a constant, but has a computed value'
    )
  return found.item() if hasattr(found, 'item') else found


def _repeat(node, sequence, count) -> list:
  check_is_columns(node, sequence)
  count = _constant(node, count)
  if not 0 <= count < _MANY:
    raise errors.NotPlainError(f'{node.name} repeats for ever, or nearly')
  return [sequence.repeated(count)]


def _take(node, sequence, count) -> list:
  check_is_columns(node, sequence)
  return [sequence.taken(count)]


def _batch(node, sequence, size, *rest) -> list:
  """Returns the result of a `BatchDatasetV2` or `ParallelBatchDataset`."""
  check_is_columns(node, sequence)
  if not _constant(node, size) > 0:
    raise errors.NotPlainError(f'{node.name} makes batches of 0 rows')
  return [sequence.batched(size, rest[-1])]


def _same_elements(node, sequence) -> list:
  check_is_columns(node, sequence)
  return [sequence]


def _prefetch(node, sequence, size) -> list:
  del size
  return _same_elements(node, sequence)


def _cache(node, sequence, path, state=None) -> list:
  del state
  if _constant(node, path) != b'':
    raise errors.NotPlainError(f'{node.name} writes files')
  return _same_elements(node, sequence)


def _no_state(node) -> list:
  del node
  return [NoState()]


def _cardinality(node, sequence) -> list:
  check_is_columns(node, sequence)
  return [sequence.num_elements]


# Operation -> function of the node and its inputs. All other operations on a
# sequence are refused, except maps and reductions, see `pure`.
OPERATIONS = {
    'AnonymousIteratorV3': _new_iterator,
    'MakeIterator': _set_up,
    'IteratorGetNextAsOptional': _get_next,
    'OptionalHasValue': _has_value,
    'OptionalGetValue': _get_value,
    'RepeatDataset': _repeat,
    'TakeDataset': _take,
    'BatchDatasetV2': _batch,
    'ParallelBatchDataset': _batch,
    'CacheDataset': _cache,
    'CacheDatasetV2': _cache,
    'DummyMemoryCache': _no_state,
    'PrefetchDataset': _prefetch,
    'OptionsDataset': _same_elements,
    'DatasetCardinality': _cardinality,
}
