# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Networks for EMNIST: the published one, and two that are smaller.

The norm of the noise grows with the root of the number of weights, and the
signal of a few writers does not. So with 200 writers, a smaller network is
better.
"""

CNN, SMALL, LINEAR = 'cnn', 'small', 'linear'
NAMES = (CNN, SMALL, LINEAR)


def build(name: str, num_classes: int, *, seed: int):
  """Returns a Keras model whose outputs are logits.

  Args:
    name: 'cnn' is the network of arXiv:1602.05629, with 1,663,370 weights for
      10 classes and 1,690,046 for 62. 'small' has one convolution, with 4,810
      and 25,662 weights. 'linear' is a softmax regression on a 5x5 thumbnail of
      the middle, with 250 and 1,550 weights.
    num_classes: 10 or 62.
    seed: Seed of the initial weights, which are public.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  layers = tf.keras.layers
  model = tf.keras.Sequential([layers.InputLayer(input_shape=(28, 28, 1))])

  def initializer():
    # A seed of its own for each layer: equal ones would give equal kernels.
    return tf.keras.initializers.GlorotUniform(
        seed=1000 * seed + len(model.layers)
    )

  def convolve(filters, kernel, pool, activation, padding):
    model.add(
        layers.Conv2D(
            filters,
            kernel,
            activation=activation,
            padding=padding,
            kernel_initializer=initializer(),
        )
    )
    model.add(layers.MaxPool2D(pool, padding=padding))

  if name == CNN:
    convolve(32, 5, 2, 'relu', 'same')
    convolve(64, 5, 2, 'relu', 'same')
  elif name == SMALL:
    model.add(layers.Rescaling(-1.0, 1.0))
    convolve(16, 7, 4, 'tanh', 'valid')
  else:
    # About 0 in the mean: an offset of all would only multiply the noise.
    model.add(layers.Rescaling(-1.0, 0.8))
    model.add(layers.Cropping2D(4))
    model.add(layers.AveragePooling2D(4))
  model.add(layers.Flatten())
  if name == CNN:
    model.add(
        layers.Dense(512, activation='relu', kernel_initializer=initializer())
    )
  model.add(
      layers.Dense(
          num_classes,
          use_bias=name != LINEAR,
          kernel_initializer=initializer() if name != LINEAR else 'zeros',
      )
  )
  return model
