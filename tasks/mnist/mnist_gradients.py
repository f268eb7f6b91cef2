# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The gradients of many one-image clients at once, kept apart.

In one layer a client's gradient is `sum_p a_p e_p^T`: over the positions p, what
went into the layer there times the error that came back. TensorFlow computes both
for a whole batch as it would for one mean gradient. A convolution's sum is then
formed for each client; a dense layer has one position, so its gradient stays the
pair (a, e), of which norms, inner products and weighted sums are had without ever
multiplying it out. A bias has the gradient `sum_p e_p`.
"""

from collections.abc import Sequence
import dataclasses

import numpy as np
import tensorflow as tf

from tasks.mnist import mnist_model


@dataclasses.dataclass(frozen=True)
class _Formed:
  """Gradients of one variable that are formed.

  Attributes:
    values: float32, shape [num_clients, num_params].
  """

  values: np.ndarray

  @property
  def num_params(self) -> int:
    return self.values.shape[1]

  def formed(self) -> np.ndarray:
    return self.values

  def squared_norms(self) -> np.ndarray:
    return np.einsum('id,id->i', self.values, self.values)

  def grams(self, group_size: int) -> np.ndarray:
    return _grams(self.values, group_size)

  def projections(self, vectors: np.ndarray) -> np.ndarray:
    groups = self.values.reshape(len(vectors), -1, self.num_params)
    return (groups @ vectors[:, :, np.newaxis]).reshape(-1)

  def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
    return weights @ self.values

  def rows(self, indices) -> '_Formed':
    return _Formed(self.values[indices])

  def clear(self, indices) -> None:
    self.values[indices] = 0


@dataclasses.dataclass(frozen=True)
class _Outer:
  """Gradients of a dense layer's kernel as pairs of factors.

  Attributes:
    inputs: float32, shape [num_clients, num_inputs].
    errors: float32, shape [num_clients, num_outputs].
  """

  inputs: np.ndarray
  errors: np.ndarray

  @property
  def num_params(self) -> int:
    return self.inputs.shape[1] * self.errors.shape[1]

  def formed(self) -> np.ndarray:
    formed = self.inputs[:, :, np.newaxis] * self.errors[:, np.newaxis]
    return formed.reshape(len(formed), -1)

  def squared_norms(self) -> np.ndarray:
    squares = [np.einsum('id,id->i', f, f) for f in (self.inputs, self.errors)]
    return squares[0] * squares[1]

  def grams(self, group_size: int) -> np.ndarray:
    return _grams(self.inputs, group_size) * _grams(self.errors, group_size)

  def projections(self, vectors: np.ndarray) -> np.ndarray:
    num_groups = len(vectors)
    inputs = self.inputs.reshape(num_groups, -1, self.inputs.shape[1])
    errors = self.errors.reshape(num_groups, -1, self.errors.shape[1])
    matrices = vectors.reshape(num_groups, inputs.shape[2], errors.shape[2])
    return np.einsum('gio,gio->gi', inputs @ matrices, errors).reshape(-1)

  def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
    return (self.inputs.T @ (self.errors * weights[:, np.newaxis])).reshape(-1)

  def rows(self, indices) -> '_Outer':
    return _Outer(self.inputs[indices], self.errors[indices])

  def clear(self, indices) -> None:
    # Zero times infinity is not zero: both factors have to go.
    self.inputs[indices] = 0
    self.errors[indices] = 0


class Gradients:
  """One gradient per client, as a vector of all weights.

  The order within the vector is Keras': each layer's kernel, then its bias.
  """

  def __init__(self, variables: Sequence[_Formed | _Outer]):
    self._variables = list(variables)
    self._norms = None

  @classmethod
  def of_vectors(cls, vectors: np.ndarray) -> 'Gradients':
    """Returns vectors that exist already, shape [num_clients, num_params]."""
    return cls([_Formed(np.array(vectors, np.float32))])

  @property
  def num_params(self) -> int:
    """Length of each vector."""
    return sum(variable.num_params for variable in self._variables)

  def formed(self) -> np.ndarray:
    """Returns the vectors themselves, shape [num_clients, num_params]."""
    return np.concatenate([variable.formed() for variable in self._variables], axis=1)

  def norms(self) -> np.ndarray:
    """Returns their L2 norms, float64, shape [num_clients]."""
    if self._norms is None:
      squares = [variable.squared_norms() for variable in self._variables]
      self._norms = np.sqrt(np.sum(squares, axis=0, dtype=np.float64))
    return self._norms

  def grams(self, group_size: int) -> np.ndarray:
    """Returns the inner products within groups.

    Args:
      group_size: How many clients, one after the other, are a group; divides
        their number.

    Returns:
      float64, shape [num_groups, group_size, group_size].
    """
    grams = [variable.grams(group_size) for variable in self._variables]
    return np.sum(grams, axis=0, dtype=np.float64)

  def projections(self, vectors: np.ndarray) -> np.ndarray:
    """Returns each client's inner product with its group's vector.

    Args:
      vectors: float32, shape [num_groups, num_params].

    Returns:
      float64, shape [num_clients].
    """
    parts = []
    for variable, start in self._with_starts():
      part = vectors[:, start : start + variable.num_params]
      parts.append(variable.projections(np.ascontiguousarray(part)))
    return np.sum(parts, axis=0, dtype=np.float64)

  def weighted_sum(self, weights: np.ndarray) -> np.ndarray:
    """Returns `sum_i weights[i] gradient_i`, float32, shape [num_params]."""
    weights = np.asarray(weights, np.float32)
    return np.concatenate([v.weighted_sum(weights) for v in self._variables])

  def rows(self, indices) -> 'Gradients':
    """Returns the gradients of some clients, in the order of `indices`."""
    return Gradients([variable.rows(indices) for variable in self._variables])

  def clear(self, indices) -> None:
    """Replaces the gradients of some clients by zeros."""
    for variable in self._variables:
      variable.clear(indices)
    self._norms = None

  def _with_starts(self):
    start = 0
    for variable in self._variables:
      yield variable, start
      start += variable.num_params


class PerExampleGradients:
  """Computes `Gradients` of the cross-entropy of single images."""

  def __init__(self, architecture: mnist_model.Architecture):
    self._architecture = architecture
    self._num_convolutions = len(architecture.convolutions)
    specs = [tf.TensorSpec(shape) for shape in architecture.shapes]
    size = architecture.image_size
    images = tf.TensorSpec([None, size, size, 1])
    labels = tf.TensorSpec([None], tf.int32)
    self._backward = tf.function(
        self._inputs_and_errors, input_signature=[specs, images, labels]
    )
    self._forward = tf.function(
        self._logits, input_signature=[specs, images]
    )

  def __call__(self, weights, images, labels) -> Gradients:
    """Returns one gradient per image.

    Args:
      weights: In Keras' order, shapes as `Architecture.shapes`.
      images: float32, shape [num_clients, size, size, 1].
      labels: int32, shape [num_clients].

    A gradient that is not finite is replaced by zeros, as a client would do
    whose update is not finite.
    """
    inputs, errors = self._backward(weights, images, labels)
    variables = []
    # What is not finite is cleared below.
    with np.errstate(invalid='ignore', over='ignore'):
      for number, (a, e) in enumerate(zip(inputs, errors)):
        a, e = _view(a), _view(e)
        if number < self._num_convolutions:
          e = e.reshape(len(e), -1, e.shape[-1])
          layer = self._architecture.convolutions[number]
          variables.append(_Formed(_kernel_gradients(a, e, layer)))
          variables.append(_Formed(_sum_of_positions(e)))
        else:
          variables += [_Outer(a, e), _Formed(e)]
      gradients = Gradients(variables)
      broken = np.flatnonzero(~np.isfinite(gradients.norms()))
    if len(broken):
      # A copy: a dense layer's factors are TensorFlow's memory, not ours.
      gradients = gradients.rows(np.arange(len(images)))
      gradients.clear(broken)
    return gradients

  def logits(self, weights, images) -> np.ndarray:
    """Returns float32 logits, shape [num_images, 10]."""
    return self._forward(weights, images).numpy()

  def _inputs_and_errors(self, weights, images, labels):
    """Returns for each layer what goes in, and the loss' derivative behind it."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      logits, inputs, outputs = self._run(weights, images, tape.watch)
      # The sum: no client's loss depends on another's output.
      loss = tf.reduce_sum(
          tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      )
    return inputs, tape.gradient(loss, outputs)

  def _logits(self, weights, images):
    return self._run(weights, images, lambda output: None)[0]

  def _run(self, weights, images, watch):
    """Returns (logits, inputs of layers, outputs of layers before ReLU)."""
    kernels, biases = weights[::2], weights[1::2]
    inputs, outputs = [], []
    x = images
    for number, (kernel, bias) in enumerate(zip(kernels, biases)):
      if number == self._num_convolutions:
        x = tf.reshape(x, [-1, kernel.shape[0]])
      inputs.append(x)
      if number < self._num_convolutions:
        layer = self._architecture.convolutions[number]
        y = tf.nn.conv2d(x, kernel, layer.stride, layer.padding.upper()) + bias
      else:
        y = x @ kernel + bias
      watch(y)
      outputs.append(y)
      x = y if number == len(kernels) - 1 else tf.nn.relu(y)
      if number < self._num_convolutions:
        x = tf.nn.max_pool2d(x, layer.pool, layer.pool_stride, 'VALID')
    return x, inputs, outputs


def _view(tensor: tf.Tensor) -> np.ndarray:
  """Returns a read-only view, where `tensor.numpy()` would copy."""
  return np.asarray(memoryview(tensor))


def _sum_of_positions(errors: np.ndarray) -> np.ndarray:
  # Several times as fast as `sum` over an axis that is not the last.
  return np.ones(errors.shape[1], np.float32) @ errors


def _grams(values: np.ndarray, group_size: int) -> np.ndarray:
  groups = values.reshape(-1, group_size, values.shape[1])
  return groups @ groups.transpose(0, 2, 1)


def _kernel_gradients(
    inputs: np.ndarray,
    errors: np.ndarray,
    layer: mnist_model.Convolution,
) -> np.ndarray:
  """Returns the gradients of a convolution's kernel, one for each image.

  Windows are cut out along the rows of the image only. Once rows are sorted by
  their number modulo the stride, what one row of the kernel meets is a block of
  memory, and the blocks of different rows overlap: windows in both directions
  would be `kernel / stride` times as much to write.

  Args:
    inputs: float32, shape [num_images, size, size, channels].
    errors: float32, shape [num_images, positions, filters].
    layer: Whose kernel, stride and padding to use.

  Returns:
    float32, shape [num_images, kernel^2 channels filters].
  """
  num_images, size, _, channels = inputs.shape
  kernel, stride = layer.kernel, layer.stride
  width = layer.convolved_size(size)
  # Rows that the kernel needs, rounded up to whole strides.
  num_rows = (width - 1 + -(-kernel // stride)) * stride
  before = 0
  if layer.padding == 'same':
    # As TensorFlow does, which puts the odd one behind.
    before = max((width - 1) * stride + kernel - size, 0) // 2
  padded = np.zeros((num_images, num_rows, num_rows, channels), np.float32)
  used = min(size, num_rows - before)
  padded[:, before : before + used, before : before + used] = (
      inputs[:, :used, :used]
  )
  image_step, row_step, column_step, channel_step = padded.strides
  windows = np.lib.stride_tricks.as_strided(
      padded,
      (num_images, stride, num_rows // stride, width, kernel, channels),
      (
          image_step,
          row_step,
          stride * row_step,
          stride * column_step,
          column_step,
          channel_step,
      ),
      writeable=False,
  )
  windows = np.ascontiguousarray(windows)
  image_step, phase_step, row_step, column_step, _, channel_step = (
      windows.strides
  )
  blocks = np.lib.stride_tricks.as_strided(
      windows,
      (
          num_images,
          num_rows // stride - width + 1,
          stride,
          width * width,
          kernel * channels,
      ),
      (image_step, row_step, phase_step, column_step, channel_step),
      writeable=False,
  )
  # Kernel rows by their quotient and their remainder modulo the stride. Given its
  # place, as NumPy would otherwise choose an order that has to be copied.
  gradients = np.empty(
      (*blocks.shape[:3], kernel * channels, errors.shape[2]), np.float32
  )
  np.matmul(
      blocks.swapaxes(3, 4), errors[:, np.newaxis, np.newaxis], out=gradients
  )
  gradients = gradients.reshape(
      num_images, -1, kernel * channels * errors.shape[2]
  )
  return gradients[:, :kernel].reshape(num_images, -1)
