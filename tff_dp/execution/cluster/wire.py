# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of values to arrays and bytes, for the way to a worker and back.

Everything that travels is pickled. So a worker must trust the driver, and the
driver must trust its workers (see docs/execution.md). A checksum finds
damage before anything is unpickled. It does not protect from an attacker.
"""

import dataclasses
import hashlib
import io
import pickle

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.execution.cluster import engine
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

_DATASET_ADVICE = (
    '{}: a tf.data.Dataset belongs to the process that made it. Hand in the'
    " client's id as a string, and in create_cluster_context(load_clients="
    "'module:function') the function with which a worker loads the client's"
    ' data; or, if the data is small, hand in a list of its batches'
)


_CHECKSUM_BYTES = 16


class _Pickler(pickle.Pickler):
  """Pickles values of users. For a dataset, its error says what to do."""

  def __init__(self, file, where: str):
    super().__init__(file, protocol=5)
    self._where = where

  def reducer_override(self, obj):
    """Returns the constructor and arguments for an object of TensorFlow.

    `pickle` calls this method.
    """
    if isinstance(obj, tf.data.Dataset):
      raise TypeError(_DATASET_ADVICE.format(self._where))
    if isinstance(obj, values.Struct):
      # A half unpickled struct cannot be asked for anything.
      return values.Struct, (tff.structure.to_elements(obj),)
    if isinstance(obj, tf.Variable):
      obj = obj.read_value()
    if isinstance(obj, tf.Tensor):
      return tf.constant, (obj.numpy(), obj.dtype.name)
    if isinstance(obj, tf.RaggedTensor):
      return (
          tf.RaggedTensor.from_nested_row_splits,
          (obj.flat_values, obj.nested_row_splits),
      )
    if isinstance(obj, tf.SparseTensor):
      return tf.SparseTensor, (obj.indices, obj.values, obj.dense_shape)
    return NotImplemented


def dumps(value, *, where: str = 'a task') -> bytes:
  """Returns a value as bytes.

  Args:
    value: Python containers of numbers, arrays and tensors.
    where: Name of the value in an error.

  Raises:
    TypeError: The value contains a dataset, or something else that cannot
      travel.
  """
  file = io.BytesIO()
  try:
    _Pickler(file, where).dump(value)
  except (pickle.PicklingError, AttributeError) as error:
    raise TypeError(f'{where} cannot travel to a worker: {error}') from error
  return b''.join([_checksum(file.getbuffer()), file.getbuffer()])


def _checksum(content) -> bytes:
  return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).digest()


def loads(data: bytes) -> object:
  """Returns the value that `dumps` was given.

  Unpickling runs any code in the bytes, so they must come from a trusted
  process.

  Raises:
    ClusterError: The bytes are damaged, or cannot be unpickled.
  """
  try:
    content = memoryview(data)[_CHECKSUM_BYTES:]
    if bytes(data[:_CHECKSUM_BYTES]) != _checksum(content):
      raise ValueError('its checksum is another')
    return pickle.loads(content)
  except Exception as error:
    raise engine.ClusterError(
        'the received bytes are no message of this version of tff_dp'
        f' ({type(error).__name__}: {_checks.printable(str(error))})'
    ) from error


@dataclasses.dataclass(frozen=True)
class _Recipe:
  """A dataset, given by the graph that makes it."""

  graph: bytes


@dataclasses.dataclass(frozen=True)
class _Zeros:
  """A tensor whose bytes are all zero, and so need not travel."""

  shape: tuple[int, ...]


def from_flat(flat: list) -> list:
  """Returns a flat value as arrays, for the way to a worker.

  A dataset becomes a recipe: the graph that makes it.
  """
  return [_from_item(item) for item in flat]


def _from_item(item):
  if isinstance(item, datasets.Recipe):
    return _Recipe(item.graph.numpy())
  if item.dtype == tf.variant:
    return _Recipe(datasets.recipe_of(item).graph.numpy())
  return item.numpy()


def without_zeros(sent: list) -> list:
  """Returns the arrays of `from_flat`, with `_Zeros` for arrays of zero bytes.
  """
  return [_Zeros(item.shape) if _is_zero(item) else item for item in sent]


def _is_zero(item) -> bool:
  if not isinstance(item, np.ndarray) or item.dtype.hasobject:
    return False
  # All bytes are tested, because a sum may not begin with -0. in place of 0.
  return not item.reshape(-1).view(np.uint8).max(initial=0)


def to_flat(sent: list, skeleton) -> list:
  """Returns the sent value as a flat list, for `values.fresh`.

  Args:
    sent: Result of `from_flat` or `without_zeros`.
    skeleton: Skeleton of the value, which says how to rebuild it (see
      `values`).

  Raises:
    ClusterError: The message does not fit the skeleton.
  """
  specs = values.flat_specs(skeleton)
  if not isinstance(sent, list) or len(sent) != len(specs):
    raise engine.ClusterError(
        f'a message between driver and worker should have {len(specs)} tensors,'
        f' found {_checks.shown(sent)}'
    )
  return [_to_item(*pair) for pair in zip(sent, specs)]


def _fits(item, spec: tf.TensorSpec) -> bool:
  """Returns whether an item of a message has the kind and shape of `spec`."""
  if isinstance(item, _Recipe) or spec.dtype == tf.variant:
    return isinstance(item, _Recipe) and spec.dtype == tf.variant
  if not isinstance(item, (_Zeros, np.ndarray, np.generic, bytes, str)):
    return False
  shape = item.shape if isinstance(item, _Zeros) else np.shape(item)
  try:
    shape = tf.TensorShape(shape)
    # An array of another shape would be added up all the same, by repetition.
    return shape.is_fully_defined() and spec.shape.is_compatible_with(shape)
  except (TypeError, ValueError):
    return False  # It is no shape.


def _to_item(item, spec: tf.TensorSpec):
  if not _fits(item, spec):
    raise engine.ClusterError(
        f'an entry of a message is {_checks.shown(item)}, expected {spec}'
    )
  if isinstance(item, _Recipe):
    return datasets.Recipe(tf.constant(item.graph))
  if isinstance(item, _Zeros):
    return tf.zeros(item.shape, spec.dtype)
  try:
    return tf.constant(item, spec.dtype)
  except (TypeError, ValueError) as error:
    raise engine.ClusterError(
        f'a value in a message is not a {spec.dtype.name}, but {spec} belongs'
        ' there'
    ) from error


def to_fresh(sent: list, skeleton) -> list[tf.Tensor]:
  """Returns the tensors of a value, with datasets made from their recipes."""
  return values.fresh(to_flat(sent, skeleton))
