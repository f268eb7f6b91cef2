# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Datasets that come as arguments: every use finds them as they were made.

A `tf.data.Dataset` can hold more than what it was made of: how far the random
numbers of a `shuffle` have got, what a `cache` has read, a variable. Whoever
iterates over it goes on where somebody else has stopped. TFF's own runtime gets
a serialized copy, which holds none of this, so that a computation is a function
of its arguments. Here, too, such a dataset is copied for every use; all others
are used as they are.
"""

import dataclasses
import enum
import functools
import math

import numpy as np
import tensorflow as tf

from tff_dp import _compat
from tff_dp.execution import errors
from tff_dp.execution.data import graph_defs

# A dataset has no kernels, and no tensor representation, on a GPU.
DATASET_DEVICE = '/device:CPU:0'
# Classes of TensorFlow's datasets without a state of their own. One that is
# missing here, or has another name in another release, costs a look at its
# graph and nothing else.
_PLAIN = frozenset([
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
# Operations that only read what they are given the handle of.
_READS = frozenset([
    'LookupTableFindV2',
    'LookupTableSizeV2',
    'ReadVariableOp',
    'ResourceGather',
])
_IGNORE_STATE = 1  # Of `external_state_policy`; the others warn or fail.
# No resource has this name, so a dataset that asks for it makes one of its own,
# which ends with it.
_ABSENT = 'tff_dp/absent'


class Kind(enum.Enum):
  """As what the clients of a chunk have their sequences."""

  ABSENT = enum.auto()
  ROWS = enum.auto()
  BATCHES = enum.auto()
  DATASETS = enum.auto()


@dataclasses.dataclass(frozen=True)
class Recipe:
  """A dataset with state, serialized without that state.

  Attributes:
    graph: The scalar string tensor of its graph.
  """

  graph: tf.Tensor

  def variant(self) -> tf.Tensor:
    """Returns the variant tensor of a new copy."""
    with tf.device(DATASET_DEVICE):
      return tf.raw_ops.DatasetFromGraph(graph_def=self.graph)


def form_of(tensor: tf.Tensor | np.ndarray) -> tuple[str, tuple[int, ...]]:
  """Returns the dtype's name and the shape; quick to hash and to compare."""
  return tensor.dtype.name, tuple(tensor.shape)


def num_bytes_of(tensor: tf.Tensor | np.ndarray) -> int:
  """Returns how much memory a tensor takes, strings not counted."""
  itemsize = getattr(tensor.dtype, 'itemsize', None) or tensor.dtype.size
  return itemsize * math.prod(tensor.shape)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
  """A sequence in memory, as the rows that its elements are cut from.

  What is asked of it again and again is worked out once, as its client may come
  in every round.

  Attributes:
    columns: The components of an element, eager tensors or arrays of shape
      [rows, ...].
    batch_size: How many rows an element has, the last one perhaps fewer; None
      if every element is one row, without the dimension.
  """

  columns: tuple[tf.Tensor | np.ndarray, ...]
  batch_size: int | None

  @property
  def kind(self) -> Kind:
    return Kind.ROWS if self.batch_size is None else Kind.BATCHES

  @functools.cached_property
  def num_rows(self) -> int:
    return int(self.columns[0].shape[0])

  @functools.cached_property
  def num_bytes(self) -> int:
    return sum(map(num_bytes_of, self.columns))

  @functools.cached_property
  def form(self) -> tuple:
    """What tables have in common that can make one: dtypes, shapes of rows."""
    forms = map(form_of, self.columns)
    return tuple((name, *shape[1:]) for name, shape in forms)


def table_of(dataset: tf.data.Dataset) -> Table | None:
  """Returns the table of a dataset that plainly is one, else None."""
  found = _compat.slices_of_dataset(dataset)
  if found is None or any(c.dtype == tf.variant for c in found[0]):
    return None
  return Table(tuple(found[0]), found[1])


def as_argument(
    dataset: tf.data.Dataset, *, where: str
) -> tf.data.Dataset | Recipe:
  """Returns the dataset, or how to make it if its use would change it.

  Args:
    dataset: What a user handed in.
    where: What to call it in an error.

  Raises:
    UnsupportedComputationError: It calls a Python function, or it may have a
      state and cannot be copied.
  """
  if _is_plain(dataset):
    return dataset
  with tf.device(DATASET_DEVICE):
    try:
      serialized = tf.raw_ops.DatasetToGraphV2(
          input_dataset=tf.data.experimental.to_variant(dataset),
          external_state_policy=_IGNORE_STATE,
      )
    except tf.errors.OpError as error:
      raise errors.UnsupportedComputationError(
          f'{where}, a dataset that TensorFlow cannot copy ({error.message})',
          instead='a list of its elements',
      ) from error
    graph_def = tf.compat.v1.GraphDef.FromString(serialized.numpy())
    has_state = any(map(_holds_state, graph_def.node))
    graph_defs.confine(graph_def, f'{where}, a dataset')
    if not has_state:
      return dataset
    return _recipe(graph_def)


def recipe_of(variant: tf.Tensor) -> Recipe:
  """Returns how to make a dataset in another process, from its variant."""
  with tf.device(DATASET_DEVICE):
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant, external_state_policy=_IGNORE_STATE
    )
    return _recipe(tf.compat.v1.GraphDef.FromString(serialized.numpy()))


def _recipe(graph_def: tf.compat.v1.GraphDef) -> Recipe:
  # Of seeds and caches. Variables and tables are there by their values.
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
  """Returns whether a node of a dataset's graph is something that changes."""
  return (
      node.op == 'VarHandleOp'
      or node.op in graph_defs.TABLES
      or bool(_handles(node))
  )


def _is_plain(dataset: tf.data.Dataset) -> bool:
  """Returns whether it is certain that no use of a dataset changes it.

  Looks at Python objects only, which takes microseconds; to serialize a dataset
  means to copy its data.
  """
  found, waiting = set(), [dataset]
  while waiting:
    part = waiting.pop()
    if id(part) in found:
      continue
    found.add(id(part))
    if type(part).__name__ not in _PLAIN:
      return False
    inputs, functions = _compat.parts_of_dataset(part)
    if not all(map(_is_plain_function, functions)):
      return False
    waiting.extend(inputs)
  return True


def _is_plain_function(function) -> bool:
  """Returns whether a function of a dataset leaves all that it knows alone."""
  return not any(
      tensor.dtype == tf.variant for tensor in function.captured_inputs
  ) and all(
      _is_plain_operation(operation.type)
      for operation in function.graph.get_operations()
  )


@functools.cache
def _is_plain_operation(kind: str) -> bool:
  if kind in graph_defs.PYTHON_OPERATIONS:
    return False
  definition = _compat.private_tensorflow('op_def_registry').get(kind)
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
