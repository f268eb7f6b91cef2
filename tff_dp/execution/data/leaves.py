# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The data of clients, as tensors and tables that chunks are made of.

A cohort has thousands of clients, and for a small client most of the time is
spent in Python. So the type is inspected once, arrays stay arrays until a chunk
makes tensors of all of them, and the table of a dataset is cached with it.
"""

from collections.abc import Callable, Mapping
import functools
import itertools
import logging
import threading
import weakref

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution.data import datasets
from tff_dp.execution.data import pipelines
from tff_dp.execution.data import values

_log = logging.getLogger(__name__)
_last_assignable = threading.local()
# Twice as many would not fit the int32 that counts the rows of a client.
_MANY_ROWS = 2**30
# Dataset -> (type of its elements, leaves or pipeline or None). They refer to
# tensors that the dataset holds anyway.
_known = weakref.WeakKeyDictionary()


class Leaves:
  """The data of a client, and the facts that decide about its chunk.

  Attributes:
    items: Tensors, arrays and sequences of the client, depth first. A sequence
      is a `datasets.Table`, or the result of `values.flatten` for a dataset.
    num_bytes: Memory of the items in bytes, strings and datasets not counted.
    kind: Form of the client's sequences.
    form: Dtypes and shapes without the number of rows. All clients of a chunk
      must have the same form. None if the client must run alone, because its
      sequences are of different kinds, or one has 2^30 rows or more.
    lengths: Number of rows and batch size of each table.
    is_mixed: Whether the sequences are of different kinds.
    is_made: Whether rows were computed from the steps of a dataset.
  """

  __slots__ = (
      'items', 'num_bytes', 'kind', 'form', 'lengths', 'is_mixed', 'is_made'
  )

  def __init__(self, items: list):
    kinds, form, lengths, self.num_bytes = set(), [], [], 0
    for item in items:
      if isinstance(item, datasets.Table):
        kinds.add(item.kind)
        form.append(item.form)
        lengths.append((item.num_rows, item.batch_size))
        self.num_bytes += item.num_bytes
      elif isinstance(item, datasets.Recipe) or item.dtype == tf.variant:
        kinds.add(datasets.Kind.DATASETS)
      else:
        form.append(datasets.form_of(item))
        self.num_bytes += datasets.num_bytes_of(item)
    self.items = items
    # What is read once is so beside others, too.
    for kind in [kind for kind in kinds if kind.is_read_once]:
      kinds.discard(datasets.kind_of(kind.is_batched or None, False))
    self.kind = kinds.pop() if kinds else datasets.Kind.ABSENT
    self.is_mixed = bool(kinds)
    self.is_made = any(
        isinstance(item, datasets.Table) and item.is_made for item in items
    )
    is_long = any(num_rows >= _MANY_ROWS for num_rows, _ in lengths)
    self.form = None if kinds or is_long else (self.kind, *form)
    self.lengths = tuple(lengths)


# Whether the clients' work reads a sequence of such a kind only once. None
# stands for work that wants datasets as they are.
ReadsOnce = Callable[[datasets.Kind], bool] | None


class Reader:
  """Reads the values of clients, which all have one type."""

  def __init__(self, type_spec: tff.Type):
    """Inspects the type, which has no placement."""
    self._reader = _reader(type_spec)

  def __call__(self, value, reads_once: ReadsOnce) -> Leaves | None:
    """Returns the leaves of a client.

    The result is None if the value is not of the type, or cannot be read.
    `values.from_python` then gives the error message.

    Args:
      value: Value, as for `values.from_python`.
      reads_once: Whether the client's work reads sequences of a kind once. If
        not, a shuffled dataset stays a dataset.
    """
    try:
      if isinstance(self._reader, _SequenceReader):
        return self._reader.leaves(value, reads_once)
      found = Leaves(self._reader.read(value, reads_once))
      if found.is_mixed and found.is_made:
        return Leaves(self._reader.read(value, None))
      return found
    except (TypeError, ValueError, errors.UnsupportedComputationError):
      return None


def _reader(type_spec: tff.Type):
  if isinstance(type_spec, tff.StructType):
    return _StructReader(type_spec)
  if isinstance(type_spec, tff.SequenceType):
    return _SequenceReader(type_spec.element)
  return _TensorReader(type_spec)


def of_flat(flat: list, type_spec: tff.Type) -> Leaves:
  """Returns the leaves of a value in the form of `values.flatten`.

  A dataset becomes a table if it is small, and if it certainly has the same
  elements in each reading. Else each client of a chunk reads a dataset.

  Args:
    flat: The value.
    type_spec: Type of the value.
  """
  types = tff.structure.flatten(type_spec)
  return Leaves([
      _SequenceReader(inner.element).read_flat(item)
      if isinstance(inner, tff.SequenceType)
      else item
      for item, inner in zip(flat, types, strict=True)
  ])


class _StructReader:
  """Reads Python containers."""

  def __init__(self, type_spec: tff.StructType):
    self._type = type_spec
    self._readers = [_reader(inner) for inner in type_spec]

  def read(self, value, reads_once: ReadsOnce) -> list:
    parts = values.parts(value, self._type, where='')
    found = [r.read(part, reads_once) for r, part in zip(self._readers, parts)]
    return list(itertools.chain.from_iterable(found))


class _TensorReader:
  """Reads arrays, tensors and numbers."""

  def __init__(self, type_spec: tff.TensorType):
    self._type = type_spec
    self._dtype = np.dtype(type_spec.dtype)
    shape = tf.TensorShape(type_spec.shape)
    self._dims = None if shape.rank is None else shape.as_list()

  def is_exact(self, value) -> bool:
    """Returns whether the value is an array of exactly this type."""
    # By its class, as a masked array is something else.
    if type(value) is not np.ndarray or value.dtype != self._dtype:  # pylint: disable=unidiomatic-typecheck
      return False
    dims = value.shape if self._dims is None else self._dims
    return (
        self._dtype.kind in 'biufc'
        and len(dims) == value.ndim
        and all(d in (None, size) for d, size in zip(dims, value.shape))
    )

  def read(self, value, reads_once: ReadsOnce) -> list:
    del reads_once
    if self.is_exact(value):
      return [value]
    with tf.device(datasets.DATASET_DEVICE):
      return [values.tensor_from_python(value, self._type, '')]


class _SequenceReader:
  """Reads datasets and lists of elements."""

  def __init__(self, type_spec: tff.Type):
    self._type = type_spec
    spec = values.element_spec_of(type_spec)
    specs = tf.nest.flatten(spec)
    self._specs, self._leaf_names = specs, values.leaf_names(spec)
    self._has_rows = bool(specs) and all(
        isinstance(spec, tf.TensorSpec) for spec in specs
    )
    self._is_batched = self._has_rows and all(
        spec.shape.rank and spec.shape[0] is None for spec in specs
    )
    # For elements whose structure need not be inspected.
    self._parts, self._names, self._order = None, None, [0]
    if isinstance(type_spec, tff.TensorType):
      self._parts = [_TensorReader(type_spec)]
    elif isinstance(type_spec, tff.StructType) and all(
        isinstance(inner, tff.TensorType) for inner in type_spec
    ):
      self._parts = [_TensorReader(inner) for inner in type_spec]
      self._names = [name for name, _ in tff.structure.iter_elements(type_spec)]
      # Columns are in the order of `tf.nest.flatten`.
      self._order = range(len(self._names))
      if None not in self._names:
        self._order = [self._names.index(name) for (name,) in self._leaf_names]

  def read(self, value, reads_once: ReadsOnce) -> list:
    return self.leaves(value, reads_once).items

  def leaves(self, value, reads_once: ReadsOnce) -> Leaves:
    """Returns the leaves of a client that has only this sequence."""
    if not isinstance(value, tf.data.Dataset):
      return Leaves([self._table_of_elements(value) or self._dataset(value)])
    known_type, found = _known.get(value, (None, None))
    if known_type is not self._type:
      _check_is_assignable(value.element_spec, self._type)
      # Rows are found by their place among the leaves of an element.
      has_rows = self._has_rows and (
          values.leaf_names(value.element_spec) == self._leaf_names
      )
      found = pipelines.read(value) if has_rows else None
      if found is not None and found.only_slices:
        found = Leaves([found.table()])
      # Cached, because clients come again, and inspecting takes longer than
      # some clients compute.
      _known[value] = self._type, found
    if isinstance(found, pipelines.Pipeline):
      if reads_once and (not found.is_shuffled or reads_once(found.kind)):
        table = _table_of(found)
        if table is not None:
          return Leaves([table])
        # It would fail in every call.
        _known[value] = self._type, None
    elif found is not None:
      return found
    item = self._dataset(value)
    # Recipes are not cached, because they are copies of the data.
    if found is None and not isinstance(item, datasets.Recipe):
      _known[value] = self._type, Leaves([item])
    return Leaves([item])

  def read_flat(self, item: tf.Tensor | datasets.Recipe):
    """Returns the table of a small, repeatable dataset, or else the item."""
    if not self._has_rows or isinstance(item, datasets.Recipe):
      return item
    spec = values.element_spec_of(self._type)
    try:
      elements = datasets.elements_of(item, spec)
      table = elements is not None and self._table_of_elements(elements)
    # The last two are for elements of different shapes.
    except (tf.errors.OpError, TypeError, ValueError) as error:
      _log.debug('A dataset stays one: %s', type(error))
      return item
    return table or item

  def _dataset(self, value):
    found = values.from_python(value, tff.SequenceType(self._type), where='')
    (item,) = values.flatten(found)
    return item

  def _table_of_elements(self, value) -> datasets.Table | None:
    """Returns the table of a list of elements, or None if it makes no table.

    A table needs a list or tuple of elements that consist of tensors. If the
    elements are batches, they must have equal sizes, see `_batch_size`.
    """
    if not self._has_rows or not isinstance(value, (list, tuple)):
      return None
    if not value:
      return self._empty
    rows = [self._exact_parts(element) for element in value]
    if None not in rows:
      stack, concatenate = np.stack, np.concatenate
    else:
      with tf.device(datasets.DATASET_DEVICE):
        rows = [self._any_parts(element) for element in value]
      stack, concatenate = tf.stack, tf.concat
    batch_size = None
    if self._is_batched:
      batch_size = _batch_size(rows)
      if batch_size is None:
        return None
      if len(rows) == 1:
        return datasets.Table(tuple(rows[0]), batch_size)
    with tf.device(datasets.DATASET_DEVICE):
      join = concatenate if self._is_batched else stack
      columns = tuple(join(column, 0) for column in zip(*rows))
    return datasets.Table(columns, batch_size)

  @functools.cached_property
  def _empty(self) -> datasets.Table:
    shapes = [s.shape[1:] if self._is_batched else s.shape for s in self._specs]
    with tf.device(datasets.DATASET_DEVICE):
      columns = tuple(
          tf.zeros([0, *shape], spec.dtype)
          for shape, spec in zip(shapes, self._specs)
      )
    return datasets.Table(columns, 1 if self._is_batched else None)

  def _exact_parts(self, element) -> list[np.ndarray] | None:
    """Returns the arrays of an element, or None if it holds anything else."""
    if self._parts is None:
      return None
    if self._names is None:
      found = [element]
    elif isinstance(element, Mapping):
      if None in self._names or len(element) != len(self._names):
        return None
      found = [element.get(name) for name in self._names]
    elif type(element) in (list, tuple) and len(element) == len(self._names):
      found = element
    else:
      return None
    if not all(p.is_exact(value) for p, value in zip(self._parts, found)):
      return None
    return [found[index] for index in self._order]

  def _any_parts(self, element) -> list[tf.Tensor]:
    found = values.element_from_python(element, self._type, '')
    return tf.nest.flatten(values.to_element(found, self._type))


def _table_of(pipeline: pipelines.Pipeline) -> datasets.Table | None:
  """Returns the rows of a pipeline, or None if it fails."""
  try:
    return pipeline.table()
  # TensorFlow raises the last two where it cannot trace. The dataset gives the
  # error message if it fails as well.
  except (tf.errors.OpError, TypeError, ValueError) as error:
    _log.debug('A dataset keeps its pipeline: %s', error)
    return None


def _check_is_assignable(element_spec, type_spec: tff.Type) -> None:
  """Raises `TypeError` if elements do not fit the type.

  A call with the arguments of the last one is quick.
  """
  last = getattr(_last_assignable, 'pair', (None, None))
  form = _form_of(element_spec)
  # Comparing types takes time, because they are compared by content.
  if last[1] is not type_spec or last[0] != form:
    found = tff.types.tensorflow_to_type(element_spec)
    if not type_spec.is_assignable_from(found):
      raise TypeError(f'elements are {found}, not {type_spec}')
    _last_assignable.pair = form, type_spec


def _form_of(structure):
  """Returns what tells structures apart, of which `==` sees only values."""
  if isinstance(structure, Mapping):
    parts = [(name, _form_of(part)) for name, part in structure.items()]
    return type(structure), parts
  if isinstance(structure, (list, tuple)):
    return type(structure), [_form_of(part) for part in structure]
  return structure


def _batch_size(rows: list[list]) -> int | None:
  """Returns the batch size, or None if the batches differ in their sizes.

  The last batch may be smaller, but not empty.

  Raises:
    ValueError: If the parts of a batch have different numbers of rows.
  """
  # All parts of a batch have equally many rows.
  sizes = [{part.shape[0] for part in row} for row in rows]
  (size, *others) = [n for (n,) in sizes]
  *full, last = [size, *others]
  if any(n != size for n in full) or not 0 < last <= size:
    return None
  return size
