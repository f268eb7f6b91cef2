# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variables in pure code: a variable is its current value.

An assignment replaces the value and a read returns it. Both happen while the
graph is made, in the order of the program. So no kernel can do them in another
order, and no client can leave a value for the next one.
"""

from collections.abc import Callable
import dataclasses

import tensorflow as tf

from tff_dp.execution import errors


@dataclasses.dataclass(eq=False)
class Variable:
  """A variable and its value so far.

  Attributes:
    dtype: Dtype of the variable.
    shape: Shape of the variable, which may be partly unknown.
    value: Current value, a function that makes it at the first read, or None
      before the first assignment.
  """

  dtype: tf.DType
  shape: tf.TensorShape
  value: tf.Tensor | Callable[[], tf.Tensor] | None = None

  @property
  def tensor(self) -> tf.Tensor:
    """Current value.

    Raises:
      NotPlainError: There is none yet.
    """
    if self.value is None:
      raise errors.NotPlainError('a variable is read before it has a value')
    if not isinstance(self.value, tf.Tensor):
      self.assign(self.value())
    return self.value

  def with_value(self, tensor: tf.Tensor) -> 'Variable':
    """Returns another variable of this kind with the value `tensor`."""
    return dataclasses.replace(self, value=tensor)

  def assign(self, tensor: tf.Tensor) -> None:
    """Sets the value.

    Raises:
      NotPlainError: TensorFlow might refuse the assignment, because the dtype
        or shape may differ.
    """
    if tensor.dtype != self.dtype or not _has_shape(tensor, self.shape):
      raise errors.NotPlainError('a variable gets another dtype or shape')
    self.value = tensor


def _has_shape(tensor: tf.Tensor, shape: tf.TensorShape) -> bool:
  """Returns whether a tensor certainly fits a shape, where sizes may be None.
  """
  if shape.rank is None:
    return True
  if tensor.shape.rank != shape.rank:
    return False
  return all(want in (None, got) for want, got in zip(shape, tensor.shape))


def _read(variable) -> list:
  return [variable.tensor]


def _assign(variable, tensor) -> list:
  variable.assign(tensor)
  return []


def _update(function: Callable) -> Callable:
  """Returns the operation that changes a variable by a tensor of its shape."""

  def update(variable, change) -> list:
    shape = variable.tensor.shape
    # TensorFlow does not broadcast here.
    if not shape.is_fully_defined() or change.shape != shape:
      raise errors.NotPlainError('a variable and its change differ in shape')
    variable.assign(function(variable.tensor, change))
    return []

  return update


def _descend(variable, rate, gradient) -> list:
  return _update(tf.subtract)(variable, rate * gradient)


def _is_initialized(variable) -> list:
  return [tf.constant(variable.value is not None)]


def _on_value(node, operation: str, **dtypes: tf.DType):
  """Returns the node of an operation that reads a tensor, not a variable."""
  found = type(node)(name=node.name, op=operation)
  for name, dtype in dtypes.items():
    found.attr[name].type = dtype.as_datatype_enum
  for name in {'batch_dims', 'out_type'} & set(node.attr):
    found.attr[name].CopyFrom(node.attr[name])
  return found


def _gather(node, variable, indices) -> tuple:
  tensors = [variable.tensor, indices, tf.constant(0)]
  names = ('Tparams', 'Tindices', 'Taxis')
  dtypes = {name: tensor.dtype for name, tensor in zip(names, tensors)}
  return _on_value(node, 'GatherV2', **dtypes), tensors


def _shape(node, variable) -> tuple:
  return _on_value(node, 'Shape', T=variable.dtype), [variable.tensor]


# Operation -> function of the node, the variable and the other inputs. It returns
# a node that does the same with a value, and the inputs of that node. Embeddings
# read their rows with these operations.
READS = {'ResourceGather': _gather, 'VariableShape': _shape}
# Operation -> function of the variable and the other inputs. Any other
# operation on a variable is refused.
OPERATIONS = {
    'AssignAddVariableOp': _update(tf.add),
    'AssignSubVariableOp': _update(tf.subtract),
    'AssignVariableOp': _assign,
    'ReadVariableOp': _read,
    'ResourceApplyGradientDescent': _descend,
    'VarIsInitializedOp': _is_initialized,
}
