# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The convolutional network of arXiv:2206.03151, table 2.

Two convolutions with max-pooling, a dense layer of 32 and one of 10 units. The
table leaves padding and the stride of the pooling open; the defaults here are
'same', then 'valid', and a stride of 1, which gives 26,010 weights.
"""

import dataclasses
import math
from typing import Optional

import numpy as np

from tff_dp import _checks

NUM_CLASSES = 10
_PADDINGS = ('same', 'valid')


@dataclasses.dataclass(frozen=True)
class Convolution:
  """A convolution with ReLU, and the max-pooling after it.

  Attributes:
    filters: Number of output channels.
    kernel: Height and width of the kernel.
    stride: Stride of the convolution.
    padding: Padding of the convolution, 'same' or 'valid'. The pooling has
      none.
    pool: Height and width of the pooling window.
    pool_stride: Stride of the pooling.
  """

  filters: int
  kernel: int
  stride: int = 2
  padding: str = 'same'
  pool: int = 2
  pool_stride: int = 1

  def __post_init__(self):
    for name in ('filters', 'kernel', 'stride', 'pool', 'pool_stride'):
      _checks.integer_at_least(1, **{name: getattr(self, name)})
    _checks.one_of(_PADDINGS, padding=self.padding)

  def output_size(self, input_size: int) -> int:
    """Returns height = width after the pooling, below 1 if nothing is left."""
    size = self.convolved_size(input_size)
    return (size - self.pool) // self.pool_stride + 1

  def convolved_size(self, input_size: int) -> int:
    """Returns height = width between convolution and pooling."""
    if self.padding == 'valid':
      input_size -= self.kernel - 1
    return -(-input_size // self.stride)


@dataclasses.dataclass(frozen=True)
class Architecture:
  """Convolutions, dense layers with ReLU, and ten logits.

  Attributes:
    convolutions: Convolutions in order.
    hidden: Units of each dense layer before the last one.
    image_size: Height and width of an image of one channel.
  """

  convolutions: tuple[Convolution, ...] = (
      Convolution(16, 8, padding='same'),
      Convolution(32, 4, padding='valid'),
  )
  hidden: tuple[int, ...] = (32,)
  image_size: int = 28

  def __post_init__(self):
    for units in self.hidden:
      _checks.integer_at_least(1, hidden=units)
    size = self.image_size
    for layer in self.convolutions:
      if layer.convolved_size(size) < 1 or layer.output_size(size) < 1:
        raise _checks.ArgumentError(
            'convolutions',
            layer,
            f'a layer that fits into {size} x {size} pixels',
        )
      size = layer.output_size(size)

  @classmethod
  def of_table_2(
      cls, *, paddings=('same', 'valid'), pool_stride: int = 1
  ) -> 'Architecture':
    """Returns the published network.

    Args:
      paddings: Paddings of the two convolutions.
      pool_stride: Stride of both poolings.
    """
    first, second = paddings
    return cls((
        Convolution(16, 8, padding=first, pool_stride=pool_stride),
        Convolution(32, 4, padding=second, pool_stride=pool_stride),
    ))

  @property
  def shapes(self) -> tuple[tuple[int, ...], ...]:
    """Shapes of the weights in Keras' order: kernel, bias, kernel, bias, ..."""
    shapes, size, channels = [], self.image_size, 1
    for layer in self.convolutions:
      shapes.append((layer.kernel, layer.kernel, channels, layer.filters))
      shapes.append((layer.filters,))
      size, channels = layer.output_size(size), layer.filters
    units = size * size * channels
    for width in (*self.hidden, NUM_CLASSES):
      shapes += [(units, width), (width,)]
      units = width
    return tuple(shapes)

  @property
  def num_params(self) -> int:
    """Number of weights, biases included."""
    return sum(map(math.prod, self.shapes))


def build_keras_model(
    architecture: Architecture,
    *,
    seed: int,
    activation: str = 'relu',
    weights: Optional[np.ndarray] = None,
):
  """Returns the network as a `tf.keras.Sequential` with logits as outputs.

  Args:
    architecture: Architecture of the network.
    seed: Seed of the initial weights, which are public. Kernels are
      Glorot-uniform, biases 0.
    activation: Keras' name of the activation between the layers.
    weights: Initial weights, one after another, float32 [num_params]. `None`
      for those of `seed`.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  _checks.integer_at_least(0, seed=seed)
  layers = tf.keras.layers
  if weights is not None:
    shapes = architecture.shapes
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    given = map(np.reshape, np.split(weights, ends[:-1]), shapes)
  size = architecture.image_size
  model = tf.keras.Sequential([layers.InputLayer(input_shape=(size, size, 1))])

  def initializers():
    if weights is None:
      # A seed of its own for each layer: equal ones would give equal kernels.
      own = 1000 * seed + len(model.layers) + 1
      return {'kernel_initializer': tf.keras.initializers.GlorotUniform(own)}
    # TFF builds models in graphs of its own, where `set_weights` is lost.
    return {
        name: tf.keras.initializers.Constant(next(given))
        for name in ('kernel_initializer', 'bias_initializer')
    }

  for layer in architecture.convolutions:
    model.add(
        layers.Conv2D(
            layer.filters,
            layer.kernel,
            strides=layer.stride,
            padding=layer.padding,
            activation=activation,
            **initializers(),
        )
    )
    model.add(layers.MaxPool2D(layer.pool, strides=layer.pool_stride))
  model.add(layers.Flatten())
  for units in architecture.hidden:
    model.add(layers.Dense(units, activation=activation, **initializers()))
  model.add(layers.Dense(NUM_CLASSES, **initializers()))
  return model


def initial_weights(architecture: Architecture, *, seed: int):
  """Returns the initial weights of `build_keras_model` as NumPy arrays."""
  model = build_keras_model(architecture, seed=seed)
  return [weight.numpy() for weight in model.trainable_variables]
