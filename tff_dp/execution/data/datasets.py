# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Datasets that come as arguments: every use finds them unchanged.

A `tf.data.Dataset` can have state: the position of the random numbers of a
`shuffle`, the elements that a `cache` has read, a variable. A second iteration
continues where the first one stopped. TFF's own runtime gets a serialized copy
without this state, so a computation is a function of its arguments. Here a
dataset with state is also copied for every use. All other datasets are used as
they are.
"""

import dataclasses
import enum
import functools
import math

import numpy as np
import tensorflow as tf

from tff_dp import _compat_tensorflow
from tff_dp.execution import errors
from tff_dp.execution.data import graph_defs

# A dataset has no kernels, and no tensor representation, on a GPU.
DATASET_DEVICE = '/device:CPU:0'
# Classes of TensorFlow's datasets without a state of their own. A class that is
# missing here, or has another name in another release, only costs a look at its
# graph.
_WITHOUT_STATE = frozenset([
    '_BatchDataset',
    '_ConcatenateDataset',
    '_DenseToRaggedDataset',
    '_FilterDataset',
    '_FlatMapDataset',
    '_InterleaveDataset',
    '_MapDataset',
    '_OptionsDataset',
    '_PaddedBatchDataset',
    '_ParallelBatchDataset',
    '_ParallelInterleaveDataset',
    '_ParallelMapDataset',
    '_PrefetchDataset',
    '_RangeDataset',
    '_RebatchDataset',
    '_RepeatDataset',
    '_RestructuredDataset',
    '_ScanDataset',
    '_ShardDataset',
    '_SkipDataset',
    '_TakeDataset',
    '_TensorDataset',
    '_TensorSliceDataset',
    '_UnbatchDataset',
    '_WindowDataset',
    '_ZipDataset',
])
# The most that `elements_of` reads: as much as a client of a chunk may have.
_MAX_ELEMENTS = 2**10
_MAX_BYTES = 2**20
# Operations that only read the resource behind their handle.
_READS = frozenset([
    'LookupTableFindV2',
    'LookupTableSizeV2',
    'ReadVariableOp',
    'ResourceGather',
])
_IGNORE_STATE = 1  # A value of `external_state_policy`. Others warn or fail.
# No resource has this name. A dataset that asks for it makes a new one, which
# ends with the dataset.
_ABSENT = 'tff_dp/absent'
# In the names of datasets with random numbers.
_RANDOM = ('Random', 'Sampling', 'Shuffle')
_WITH_STATE = (*_RANDOM, 'Cache', 'Snapshot')
# TensorFlow calls them stateful, but they only compute, or call a function of
# the graph.
_STATEFUL_IN_NAME_ONLY = frozenset([
    'Assert',
    'If',
    'RangeDataset',
    'ReduceDataset',
    'StatefulPartitionedCall',
    'TensorDataset',
    'TensorSliceDataset',
    'While',
    '_Retval',
])


class Kind(enum.Enum):
  """The form in which the clients of a chunk have their sequences.

  Attributes:
    ABSENT: The clients have no sequence.
    ROWS: Rows in memory, each of which is an element.
    BATCHES: Rows in memory, with batches of them as elements.
    ROWS_ONCE: Rows in the order of one reading. A second one may find another
      order.
    BATCHES_ONCE: Batches, likewise.
    DATASETS: Datasets of TensorFlow.
  """

  ABSENT = enum.auto()
  ROWS = enum.auto()
  BATCHES = enum.auto()
  ROWS_ONCE = enum.auto()
  BATCHES_ONCE = enum.auto()
  DATASETS = enum.auto()

  @property
  def is_batched(self) -> bool:
    return self in (Kind.BATCHES, Kind.BATCHES_ONCE)

  @property
  def is_read_once(self) -> bool:
    return self in (Kind.ROWS_ONCE, Kind.BATCHES_ONCE)

  @property
  def has_rows(self) -> bool:
    return self.is_batched or self in (Kind.ROWS, Kind.ROWS_ONCE)


def kind_of(batch_size: int | None, is_read_once: bool) -> Kind:
  """Returns the kind of a `Table` with these attributes."""
  if is_read_once:
    return Kind.ROWS_ONCE if batch_size is None else Kind.BATCHES_ONCE
  return Kind.ROWS if batch_size is None else Kind.BATCHES


@dataclasses.dataclass(frozen=True)
class Recipe:
  """A dataset with state, serialized without that state.

  Attributes:
    graph: Scalar string tensor of its graph.
  """

  graph: tf.Tensor

  def variant(self) -> tf.Tensor:
    """Returns the variant tensor of a new copy."""
    with tf.device(DATASET_DEVICE):
      return tf.raw_ops.DatasetFromGraph(graph_def=self.graph)


def form_of(tensor: tf.Tensor | np.ndarray) -> tuple[str, tuple[int, ...]]:
  """Returns the dtype's name and the shape, quick to hash and to compare."""
  return tensor.dtype.name, tuple(tensor.shape)


def num_bytes_of(tensor: tf.Tensor | np.ndarray) -> int:
  """Returns the memory of a tensor in bytes, strings not counted."""
  itemsize = getattr(tensor.dtype, 'itemsize', None) or tensor.dtype.size
  return itemsize * math.prod(tensor.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """A sequence in memory, stored as rows.

  Its elements are single rows or batches of them. Derived facts are computed
  once, because a client may come in every round.

  Attributes:
    columns: Components of all rows, eager tensors or arrays of shape [rows,
      ...].
    batch_size: Number of rows of an element, where the last element may have
      fewer. None if every element is one row, without a batch dimension.
    is_read_once: Whether a second reading may find the rows in another order.
    is_made: Whether the rows were computed for this call.
  """

  columns: tuple[tf.Tensor | np.ndarray, ...]
  batch_size: int | None
  is_read_once: bool = False
  is_made: bool = False

  @property
  def kind(self) -> Kind:
    return kind_of(self.batch_size, self.is_read_once)

  @functools.cached_property
  def num_rows(self) -> int:
    return int(self.columns[0].shape[0])

  @functools.cached_property
  def num_bytes(self) -> int:
    return sum(map(num_bytes_of, self.columns))

  @functools.cached_property
  def form(self) -> tuple:
    """The dtypes and shapes of rows. Tables with equal forms can be joined."""
    forms = map(form_of, self.columns)
    return tuple((name, *shape[1:]) for name, shape in forms)


def as_argument(
    dataset: tf.data.Dataset, *, where: str
) -> tf.data.Dataset | Recipe:
  """Returns the dataset, or a `Recipe` if iterating may change the dataset.

  Each use of a recipe makes a new copy of the dataset, without its state.

  Args:
    dataset: Dataset from the user.
    where: Name of the dataset in an error.

  Raises:
    UnsupportedComputationError: If the dataset calls a Python function, or if
      it may have state and cannot be copied.
  """
  if _is_without_state(dataset):
    return dataset
  with tf.device(DATASET_DEVICE):
    try:
      graph_def = _graph_of(tf.data.experimental.to_variant(dataset))
    except tf.errors.OpError as error:
      raise errors.UnsupportedComputationError(
          f'{where}, a dataset that TensorFlow cannot copy ({error.message})',
          instead='a list of its elements',
      ) from error
    has_state = any(map(_holds_state, graph_def.node))
    graph_defs.confine(graph_def, f'{where}, a dataset')
    if not has_state:
      return dataset
    return _recipe(graph_def)


def without_state(variant: tf.Tensor) -> tf.Tensor | Recipe:
  """Returns the variant tensor of a dataset, or its recipe if it has a state.

  Args:
    variant: Variant tensor of a dataset that a computation made.
  """
  graph_def = _graph_of(variant)
  if any(map(_holds_state, graph_def.node)):
    return _recipe(graph_def)
  return variant


def recipe_of(variant: tf.Tensor) -> Recipe:
  """Returns the recipe from which another process can make a dataset.

  Args:
    variant: Variant tensor of the dataset.
  """
  return _recipe(_graph_of(variant))


def _graph_of(variant: tf.Tensor) -> tf.compat.v1.GraphDef:
  with tf.device(DATASET_DEVICE):
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant, external_state_policy=_IGNORE_STATE
    )
  return tf.compat.v1.GraphDef.FromString(serialized.numpy())


def _recipe(graph_def: tf.compat.v1.GraphDef) -> Recipe:
  # Replace the handles of seeds and caches. Variables and tables are included
  # by value.
  for node in graph_def.node:
    for handle in _handles(node):
      handle.name = _ABSENT
  return Recipe(tf.constant(graph_def.SerializeToString()))


def _handles(node) -> list:
  """Returns the resources that a constant of a graph stands for."""
  if node.op != 'Const':
    return []
  return node.attr['value'].tensor.resource_handle_val


def _holds_state(node) -> bool:
  """Returns whether a node of a dataset's graph holds changing state."""
  return (
      node.op == 'VarHandleOp'
      or node.op in graph_defs.TABLES
      or bool(_handles(node))
      # Without a handle: their kernel draws seeds when the dataset is made, or
      # goes on with its numbers in the next iterator.
      or ('Dataset' in node.op and any(word in node.op for word in _RANDOM))
  )


def is_repeatable(graph_def: tf.compat.v1.GraphDef) -> bool:
  """Returns whether a graph certainly makes the same datasets every time.

  No dataset that it makes has a state of its own, and nothing in it is random.
  """
  functions = {f.signature.name for f in graph_def.library.function}
  return all(
      node.op in functions or _is_repeatable_operation(node.op)
      for node in graph_defs.all_nodes(graph_def)
  )


def elements_of(variant: tf.Tensor, element_spec) -> list | None:
  """Returns the elements of a small dataset, numbers as arrays.

  The result is None if there are many, or if it is not certain that each
  reading finds the same ones.

  Args:
    variant: Variant tensor of the dataset.
    element_spec: Structure of the specs of an element.

  Raises:
    tf.errors.OpError: The dataset cannot be read.
  """
  with tf.device(DATASET_DEVICE):
    dataset = tf.data.experimental.from_variant(variant, element_spec)
    if not 0 <= dataset.cardinality() <= _MAX_ELEMENTS:
      return None
    if not is_repeatable(_graph_of(variant)):
      return None
    found, num_bytes = [], 0
    for element in dataset:
      num_bytes += sum(map(num_bytes_of, tf.nest.flatten(element)))
      if num_bytes > _MAX_BYTES:
        return None
      # As an array, a string would lose NULs at its end.
      found.append(
          tf.nest.map_structure(
              lambda x: x if x.dtype == tf.string else np.asarray(x), element
          )
      )
  return found


@functools.cache
def _is_repeatable_operation(kind: str) -> bool:
  if 'Dataset' in kind and any(word in kind for word in _WITH_STATE):
    return False
  return kind in _STATEFUL_IN_NAME_ONLY or not graph_defs.is_stateful(kind)


def _is_without_state(dataset: tf.data.Dataset) -> bool:
  """Returns whether it is certain that no use of a dataset changes it.

  It inspects only Python objects, which takes microseconds. Serializing a
  dataset would copy its data.
  """
  found, waiting = set(), [dataset]
  while waiting:
    part = waiting.pop()
    if id(part) in found:
      continue
    found.add(id(part))
    if type(part).__name__ not in _WITHOUT_STATE:
      return False
    inputs, functions = _compat_tensorflow.parts_of_dataset(part)
    if not all(map(only_reads, functions)):
      return False
    waiting.extend(inputs)
  return True


def only_reads(function) -> bool:
  """Returns whether a function of a dataset certainly changes nothing.

  It must not capture a dataset, or call another function or Python. It may use
  a resource, such as a variable, only to read it.
  """
  return not any(
      tensor.dtype == tf.variant for tensor in function.captured_inputs
  ) and all(
      _only_reads(operation.type)
      for operation in function.graph.get_operations()
  )


@functools.cache
def _only_reads(kind: str) -> bool:
  if kind in graph_defs.PYTHON_OPERATIONS:
    return False
  definition = graph_defs.op_def(kind)
  if definition is None:  # A function.
    return False
  if any(attribute.type.endswith(('func', 'func)'))
         for attribute in definition.attr):
    return False
  takes_handle = any(
      argument.type == tf.resource.as_datatype_enum
      for argument in definition.input_arg
  )
  return not takes_handle or kind in _READS
