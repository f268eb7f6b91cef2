# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Values inside the in-process context, and conversions from and to Python.

A value is a tensor, a dataset, or a `tff.structure.Struct` of values. Between
two graphs it travels as a flat list of tensors, with one variant tensor for a
dataset. Its skeleton says how to rebuild it.
"""

from collections.abc import Mapping
import dataclasses
import functools
import itertools
import weakref

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_dp import _compat
from tff_dp.execution.data import datasets

_array = _compat.private_tff('array')
_type_conversions = _compat.private_tff('type_conversions')

Struct = tff.structure.Struct
# Tensors whose memory is shared by arrays that we returned, by the arrays' ids.
_tensor_of_array = {}


@dataclasses.dataclass(frozen=True)
class Tensor:
  """Skeleton of a tensor: what is needed to rebuild it from a flat list."""

  spec: tf.TensorSpec


@dataclasses.dataclass(frozen=True)
class Sequence:
  """Skeleton of a dataset: what is needed to rebuild it from a flat list.

  Attributes:
    element_spec: Structure of the specs of an element.
  """

  element_spec: object


def flatten(value) -> list:
  """Returns the tensors that `value` consists of, depth first.

  A dataset gives one variant tensor. In an argument, and in a stored value, a
  `datasets.Recipe` may stand in its place, see `fresh`.
  """
  if isinstance(value, Struct):
    return [tensor for element in value for tensor in flatten(element)]
  if isinstance(value, tf.data.Dataset):
    with tf.device(datasets.DATASET_DEVICE):
      return [tf.data.experimental.to_variant(value)]
  return [value]


def fresh(flat: list) -> list[tf.Tensor]:
  """Returns a flat value with a new dataset for every recipe."""
  return [
      item.variant() if isinstance(item, datasets.Recipe) else item
      for item in flat
  ]


def stored(flat: list[tf.Tensor]) -> list:
  """Returns a flat value with a recipe for every dataset that has a state."""
  return [
      datasets.without_state(item) if item.dtype == tf.variant else item
      for item in flat
  ]


def pack(skeleton, tensors: list[tf.Tensor]):
  """Returns the value with this skeleton, built from all these tensors.

  Args:
    skeleton: Structure of the value, see `skeleton_of`.
    tensors: Flat list of its tensors, see `flatten`.
  """
  remaining = iter(tensors)

  def build(leaf):
    tensor = next(remaining)
    if isinstance(leaf, Sequence):
      with tf.device(datasets.DATASET_DEVICE):
        return tf.data.experimental.from_variant(tensor, leaf.element_spec)
    return tensor

  return map_leaves(build, skeleton)


def map_leaves(fn, value):
  """Returns a value, or the like, with `fn` applied to all but structs.

  It is `tff.structure.map_structure` for leaves of any kind, and quicker.
  """
  if not isinstance(value, Struct):
    return fn(value)
  return Struct([
      (name, map_leaves(fn, part))
      for name, part in tff.structure.iter_elements(value)
  ])


def skeleton_of(value):
  """Returns the skeleton of a value, which may be symbolic.

  The skeleton has the structure of the value, with a `Tensor` for each tensor
  and a `Sequence` for each dataset.
  """
  if isinstance(value, Struct):
    return map_leaves(skeleton_of, value)
  if isinstance(value, tf.data.Dataset):
    return Sequence(value.element_spec)
  return Tensor(tf.TensorSpec(value.shape, value.dtype))


def skeleton_of_type(type_spec: tff.Type):
  """Returns the skeleton of all values of a type without placement."""
  if isinstance(type_spec, tff.StructType):
    return Struct([
        (name, skeleton_of_type(element))
        for name, element in tff.structure.iter_elements(type_spec)
    ])
  if isinstance(type_spec, tff.SequenceType):
    return Sequence(
        _type_conversions.type_to_tf_structure(type_spec.element)
    )
  return Tensor(tf.TensorSpec(type_spec.shape, type_spec.dtype))


def flat_specs(skeleton) -> list[tf.TensorSpec]:
  """Returns the specs of the tensors of values with this skeleton."""
  if isinstance(skeleton, Struct):
    return [spec for part in skeleton for spec in flat_specs(part)]
  if isinstance(skeleton, Sequence):
    return [tf.TensorSpec([], tf.variant)]
  return [skeleton.spec]


def to_element(value, type_spec: tff.Type):
  """Returns a value as an element of a dataset, in the form of `tf.data`."""
  return _type_conversions.type_to_py_container(value, type_spec)


def from_element(element, type_spec: tff.Type):
  """Returns an element of a dataset as a value."""
  if not isinstance(type_spec, tff.StructType):
    return element
  return Struct([
      (name, from_element(part, inner))
      for (name, inner), part in zip(
          tff.structure.iter_elements(type_spec),
          parts(element, type_spec, where='an element'),
      )
  ])


def untuned() -> tf.data.Options:
  """Returns options of datasets in memory that turn tuning off.

  By default every iterator's graph is rewritten and a thread is started for it,
  which takes longer than a small client's work.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  options.experimental_optimization.apply_default_optimizations = False
  return options


def from_python(value, type_spec: tff.Type, *, where: str):
  """Converts a user's argument to a value of this module.

  A dataset with state, such as a seed or a cache that iterating would change,
  becomes a `datasets.Recipe`.

  Args:
    value: Arrays, numbers, strings, tensors, datasets or lists of elements, in
      Python containers.
    type_spec: TFF type of the value, without placement.
    where: Name of the value in an error.

  Raises:
    TypeError: If `value` is not of that type.
    UnsupportedComputationError: If a dataset calls a Python function, or may
      have state and cannot be copied.
  """
  if isinstance(type_spec, tff.StructType):
    return _struct_from_python(value, type_spec, where)
  if isinstance(type_spec, tff.SequenceType):
    return _dataset_from_python(value, type_spec, where)
  if isinstance(type_spec, tff.TensorType):
    return tensor_from_python(value, type_spec, where)
  raise TypeError(
      f'{where}: a value of type {type_spec} cannot be an argument.'
  )


def _mismatch(where: str, type_spec, found: str) -> TypeError:
  return TypeError(f'{where}: expected a value of type {type_spec}, {found}.')


def parts(value, type_spec: tff.StructType, *, where: str) -> list:
  """Returns the elements of a Python container, in the type's order.

  Args:
    value: The container.
    type_spec: Type of the container.
    where: Name of the container in an error.

  Raises:
    TypeError: If the container does not have the elements of the type.
  """
  if isinstance(value, tf.RaggedTensor):
    return [value.flat_values, value.nested_row_splits]
  if isinstance(value, tf.SparseTensor):
    return [value.indices, value.values, value.dense_shape]
  names = [name for name, _ in tff.structure.iter_elements(type_spec)]
  # If the type has no names, take a value's elements in their order.
  if isinstance(value, Mapping) and any(name is not None for name in names):
    if set(value) == set(names):
      return [value[name] for name in names]
    if None not in names:
      raise _mismatch(where, type_spec, f'found the keys {sorted(value)}')
  try:
    struct = tff.structure.from_container(value)
  except TypeError:
    raise _mismatch(
        where, type_spec, f'found an object of type {type(value).__name__}'
    ) from None
  if len(struct) != len(names):
    raise _mismatch(where, type_spec, f'found {len(struct)} elements')
  for found, expected in zip(
      tff.structure.name_list_with_nones(struct), names
  ):
    if None not in (found, expected) and found != expected:
      raise _mismatch(where, type_spec, f'found an element named {found!r}')
  return list(struct)


def _struct_from_python(value, type_spec, where) -> Struct:
  elements = tff.structure.to_elements(type_spec)
  found = parts(value, type_spec, where=where)
  return Struct([
      (name, from_python(part, element, where=f'{where}[{name or index}]'))
      for index, ((name, element), part) in enumerate(zip(elements, found))
  ])


def element_from_python(value, type_spec, where):
  """Converts one element of a list, which stands for a sequence, to a value.

  TFF casts elements to the type of the sequence. This function casts them, too,
  but refuses a cast that changes a number by more than rounding.

  Args:
    value: The element.
    type_spec: Type of the elements of the sequence.
    where: Name of the element in an error.

  Raises:
    TypeError: If the element is not of the type, and no such cast makes it so.
  """
  if isinstance(type_spec, tff.StructType):
    elements = tff.structure.to_elements(type_spec)
    if isinstance(value, Mapping) and not any(name for name, _ in elements):
      raise _mismatch(where, type_spec, f'found the keys {sorted(value)}')
    found = parts(value, type_spec, where=where)
    return Struct([
        (name, element_from_python(part, inner, f'{where}[{name or index}]'))
        for index, ((name, inner), part) in enumerate(zip(elements, found))
    ])
  dtype = tf.as_dtype(type_spec.dtype)
  if isinstance(value, (tf.Tensor, tf.Variable)) and value.dtype != dtype:
    value = value.numpy()
  if (
      isinstance(value, (np.ndarray, np.generic))
      and value.dtype.kind in 'biuf'
      and value.dtype != dtype.as_numpy_dtype
  ):
    value = _cast(value, dtype.as_numpy_dtype, type_spec, where)
  elif isinstance(value, (int, float, list, tuple)) and dtype != tf.string:
    value = _numbers_from_python(value, dtype, type_spec, where)
  return tensor_from_python(value, type_spec, where)


def _cast(value, dtype, type_spec, where) -> np.ndarray:
  """Returns an array of another dtype whose values agree up to rounding."""
  with np.errstate(all='ignore'):
    cast = np.asarray(value).astype(dtype)
  if np.issubdtype(dtype, np.floating):
    same = np.isfinite(cast) == np.isfinite(value)
  else:
    same = cast == value
  if not np.all(same):
    raise _mismatch(
        where,
        type_spec,
        f'found {value.dtype} with values outside the range of that type',
    )
  return cast


def _numbers_from_python(value, dtype, type_spec, where):
  """Returns TensorFlow's conversion of Python's numbers, or lists of them."""
  try:
    return tf.convert_to_tensor(value, dtype)
  except (TypeError, ValueError, tf.errors.OpError) as error:
    raise _mismatch(
        where, type_spec, f'which cannot be made of {value!r:.80}'
    ) from error


def leaf_names(structure) -> list[tuple]:
  """Returns the names that lead to each leaf, in `tf.nest.flatten`'s order.

  `tf.nest.flatten` sorts the parts of a mapping by name, but not those of a
  named tuple.

  Args:
    structure: Structure of specs, for example of a dataset's elements.
  """
  return [path for path, _ in tree.flatten_with_path(structure)]


def element_spec_of(element_type: tff.Type):
  """Returns the structure in which graphs have elements of a type."""
  return _type_conversions.type_to_tf_structure(element_type)


def _in_order_of(
    dataset: tf.data.Dataset, element_type: tff.Type
) -> tf.data.Dataset:
  """Returns the dataset, with the parts of elements in the order of graphs.

  Args:
    dataset: Dataset with elements that can be assigned to the type.
    element_type: Type of the elements.
  """
  own, spec = dataset.element_spec, element_spec_of(element_type)
  names, wanted = leaf_names(own), leaf_names(spec)
  if names == wanted:
    return dataset
  places = [names.index(name) for name in wanted]

  def map_fn(*parts):
    # `Dataset.map` takes apart plain tuples only.
    element = parts if type(own) is tuple else parts[0]  # pylint: disable=unidiomatic-typecheck
    leaves = tf.nest.flatten(element)
    return tf.nest.pack_sequence_as(spec, [leaves[place] for place in places])

  with tf.device(datasets.DATASET_DEVICE):
    return dataset.map(tf.autograph.experimental.do_not_convert(map_fn))


def _dataset_from_python(
    value, type_spec, where
) -> tf.data.Dataset | datasets.Recipe:
  if isinstance(value, tf.data.Dataset):
    found = tff.types.tensorflow_to_type(value.element_spec)
    if not type_spec.element.is_assignable_from(found):
      raise _mismatch(
          where, type_spec, f'found a dataset with elements of type {found}'
      )
    return datasets.as_argument(
        _in_order_of(value, type_spec.element), where=where
    )
  if not isinstance(value, (list, tuple)):
    raise _mismatch(
        where,
        type_spec,
        'found neither a dataset nor a list of its elements but an object of'
        f' type {type(value).__name__}',
    )
  elements = [
      element_from_python(element, type_spec.element, f'{where}[{index}]')
      for index, element in enumerate(value)
  ]
  return _dataset_of(elements, type_spec.element)


@functools.lru_cache(maxsize=64)
def _slicing_function(type_spec: tff.Type):
  """Returns a function from columns to a dataset of their rows, as a variant.

  The function is a graph, in which the number of rows is open. Outside of a
  graph, TensorFlow would keep a kernel for every shape that
  `from_tensor_slices` has seen.
  """
  element_spec = _type_conversions.type_to_tf_structure(type_spec)
  columns = [
      tf.TensorSpec(tf.TensorShape([None]).concatenate(spec.shape), spec.dtype)
      for spec in tf.nest.flatten(element_spec)
  ]

  def slice_columns(*tensors):
    rows = tf.nest.pack_sequence_as(element_spec, tensors)
    return tf.data.experimental.to_variant(
        tf.data.Dataset.from_tensor_slices(rows).with_options(untuned())
    )

  return tf.function(
      slice_columns, input_signature=columns, autograph=False
  ).get_concrete_function()


def _dataset_of(elements: list, type_spec: tff.Type) -> tf.data.Dataset:
  """Returns a dataset of eager values, which may differ in their shapes."""
  element_spec = _type_conversions.type_to_tf_structure(type_spec)
  slice_columns = _slicing_function(type_spec)

  def slices(rows: list[list[tf.Tensor]]) -> tf.data.Dataset:
    variant = slice_columns(*(tf.stack(column) for column in zip(*rows)))
    return tf.data.experimental.from_variant(variant, element_spec)

  def joined(datasets: list[tf.data.Dataset]) -> tf.data.Dataset:
    # Join by halves, because an element passes every level of concatenation.
    if len(datasets) == 1:
      return datasets[0]
    half = len(datasets) // 2
    return joined(datasets[:half]).concatenate(joined(datasets[half:]))

  with tf.device(datasets.DATASET_DEVICE):
    if not elements:
      return slices([[
          tf.zeros([size or 0 for size in spec.shape], spec.dtype)
          for spec in tf.nest.flatten(element_spec)
      ]]).take(0)
    rows = [tf.nest.flatten(to_element(e, type_spec)) for e in elements]
    alike = itertools.groupby(
        rows, key=lambda row: [tensor.shape.as_list() for tensor in row]
    )
    return joined([slices(list(group)) for _, group in alike])


def tensor_from_python(value, type_spec, where) -> tf.Tensor:
  dtype, shape = tf.as_dtype(type_spec.dtype), tf.TensorShape(type_spec.shape)
  if isinstance(value, tf.Variable):
    value = value.read_value()
  if isinstance(value, np.ndarray):
    tensor = _tensor_of_array.get(id(value))
    if tensor is not None and _is_unchanged(value, tensor):
      value = tensor
  if not isinstance(value, tf.Tensor):
    value = tf.constant(_array_from_python(value, type_spec, where), dtype)
  if value.dtype != dtype:
    if not _widens(value.dtype, dtype):
      raise _mismatch(where, type_spec, f'found the dtype {value.dtype.name}')
    value = tf.cast(value, dtype)
  if not shape.is_compatible_with(value.shape):
    raise _mismatch(where, type_spec, f'found the shape {value.shape}')
  return value


def _is_unchanged(array: np.ndarray, tensor: tf.Tensor) -> bool:
  """Returns whether an array from `_to_array` has its tensor's elements.

  Its memory is read-only, but its shape, dtype and strides can be set.
  """
  return (
      tensor.shape == array.shape
      and tensor.dtype == array.dtype
      and array.dtype.isnative
      and array.flags.c_contiguous
  )


def _widens(found: tf.DType, wanted: tf.DType) -> bool:
  """Returns whether TFF accepts one dtype for another, as it does for arrays.
  """
  if tf.variant in (found, wanted) or tf.resource in (found, wanted):
    return False
  return _array.is_compatible_dtype(
      np.zeros([], found.as_numpy_dtype), wanted.as_numpy_dtype
  )


def _array_from_python(value, type_spec, where):
  """Returns the value in a form that TensorFlow converts without loss."""
  leaves = [value]
  if isinstance(value, (list, tuple)):
    value = tf.nest.map_structure(
        lambda leaf: leaf.numpy() if isinstance(leaf, tf.Tensor) else leaf,
        value,
    )
    leaves = tf.nest.flatten(value)
  for leaf in leaves:
    if not isinstance(
        leaf, (bool, int, float, complex, str, bytes, np.generic, np.ndarray)
    ):
      raise _mismatch(
          where, type_spec, f'found an object of type {type(leaf).__name__}'
      )
    if not _array.is_compatible_dtype(leaf, type_spec.dtype.type):
      kind = getattr(leaf, 'dtype', type(leaf).__name__)
      raise _mismatch(where, type_spec, f'found the dtype {kind}')
  return value


def to_arrays(value, type_spec: tff.Type):
  """Returns an eager value with arrays for tensors.

  A dataset stays a dataset, whose elements have the type's Python containers.
  """
  if isinstance(value, Struct):
    return Struct([
        (name, to_arrays(part, element))
        for (name, element), part in zip(
            tff.structure.iter_elements(type_spec), value
        )
    ])
  if isinstance(value, tf.data.Dataset):
    return pack(skeleton_of_type(type_spec), flatten(value))
  return _to_array(value)


def _to_array(tensor: tf.Tensor):
  """Returns an array, a scalar or bytes.

  An array shares the tensor's memory and is read-only. A server's state may be
  large, and most of it comes back with the next call.
  """
  if not tensor.shape.rank or tensor.dtype == tf.string:
    return tensor.numpy()
  try:
    array = np.asarray(memoryview(tensor))
  except ValueError:  # bfloat16, which Python's buffers do not support.
    return tensor.numpy()
  _tensor_of_array[id(array)] = tensor
  weakref.finalize(array, _tensor_of_array.pop, id(array)).atexit = False
  return array
