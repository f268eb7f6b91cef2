# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Variables inside of pure code: a variable is the value that it has.

An assignment replaces the value and a read returns it, both when the graph is
made, in the order of the program. So nothing is left that kernels could do in
another order, or that one client could leave for the next.
"""

from collections.abc import Callable
import dataclasses

import tensorflow as tf

from tff_dp.execution import errors


@dataclasses.dataclass(eq=False)
class Variable:
  """A variable and its value so far.

  Attributes:
    dtype: Its dtype.
    shape: Its shape, which may be open.
    value: The value, a function that makes it when it is needed, or None
      before the first assignment.
  """

  dtype: tf.DType
  shape: tf.TensorShape
  value: tf.Tensor | Callable[[], tf.Tensor] | None = None

  @property
  def tensor(self) -> tf.Tensor:
    """The value.

    Raises:
      NotPlainError: There is none yet.
    """
    if self.value is None:
      raise errors.NotPlainError('a variable is read before it has a value')
    if not isinstance(self.value, tf.Tensor):
      self.assign(self.value())
    return self.value

  def with_value(self, tensor: tf.Tensor) -> 'Variable':
    """Returns another variable of this kind."""
    return dataclasses.replace(self, value=tensor)

  def assign(self, tensor: tf.Tensor) -> None:
    """Sets the value.

    Raises:
      NotPlainError: It is not certain that TensorFlow would.
    """
    if tensor.dtype != self.dtype or not _has_shape(tensor, self.shape):
      raise errors.NotPlainError('a variable gets a value of another form')
    self.value = tensor


def _has_shape(tensor: tf.Tensor, shape: tf.TensorShape) -> bool:
  """Returns whether it is certain that a tensor has a shape."""
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
      raise errors.NotPlainError('a variable changes by another shape')
    variable.assign(function(variable.tensor, change))
    return []

  return update


def _descend(variable, rate, gradient) -> list:
  return _update(tf.subtract)(variable, rate * gradient)


def _is_initialized(variable) -> list:
  return [tf.constant(variable.value is not None)]


# Operation -> function of the variable and the other inputs. All others that
# take a variable are refused.
OPERATIONS = {
    'AssignAddVariableOp': _update(tf.add),
    'AssignSubVariableOp': _update(tf.subtract),
    'AssignVariableOp': _assign,
    'ReadVariableOp': _read,
    'ResourceApplyGradientDescent': _descend,
    'VarIsInitializedOp': _is_initialized,
}
