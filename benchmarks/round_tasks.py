# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and client data of `benchmarks.round_time`.

The data are random numbers with a fixed seed: they time a round as well as real
ones would, and every engine gets the same. Models have no dropout, so that the
weights after a round can be compared between engines.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from tff_dp import _checks

_SEED = 20260101


@dataclasses.dataclass(frozen=True)
class Cnn:
  """The EMNIST network of McMahan et al. (arXiv:1602.05629), 3x3 kernels.

  With the default sizes it has 1,206,590 parameters.
  """

  side: int = 28
  filters: tuple[int, int] = (32, 64)
  dense: int = 128
  classes: int = 62

  def keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.InputLayer((self.side, self.side, 1)),
        layers.Conv2D(self.filters[0], 3, activation='relu'),
        layers.Conv2D(self.filters[1], 3, activation='relu'),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(self.dense, activation='relu'),
        layers.Dense(self.classes),
    ])

  def examples(self, random, num_examples: int):
    x = random.random((num_examples, self.side, self.side, 1), np.float32)
    return x, random.integers(self.classes, size=num_examples, dtype=np.int32)

  def element_spec(self):
    return (
        tf.TensorSpec([None, self.side, self.side, 1], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )


@dataclasses.dataclass(frozen=True)
class Lstm:
  """google-research/federated's StackOverflow network for next words.

  With the default sizes it has 4,050,748 parameters. All sentences are of full
  length, so nothing is masked.
  """

  vocabulary: int = 10_004
  embedding: int = 96
  units: int = 670
  length: int = 20

  def keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.InputLayer((self.length,), dtype=tf.int32),
        layers.Embedding(self.vocabulary, self.embedding),
        layers.LSTM(self.units, return_sequences=True),
        layers.Dense(self.embedding),
        layers.Dense(self.vocabulary),
    ])

  def examples(self, random, num_examples: int):
    words = random.integers(
        self.vocabulary, size=(num_examples, self.length + 1), dtype=np.int32
    )
    return words[:, :-1].copy(), words[:, 1:].copy()

  def element_spec(self):
    spec = tf.TensorSpec([None, self.length], tf.int32)
    return spec, spec


@dataclasses.dataclass(frozen=True)
class Dense:
  """Fully connected layers; without hidden ones, multinomial regression.

  With the default sizes it has the 7,850 parameters of softmax on MNIST.
  """

  features: int = 784
  hidden: tuple[int, ...] = ()
  classes: int = 10

  def keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.InputLayer((self.features,)),
        *(layers.Dense(size, activation='relu') for size in self.hidden),
        layers.Dense(self.classes),
    ])

  def logits(self, weights, inputs, *, relu=tf.nn.relu):
    """Returns what the Keras model computes, for tensors or JAX's arrays."""
    hidden = inputs
    for place in range(0, len(weights), 2):
      kernel, bias = weights[place : place + 2]
      hidden = (hidden if place == 0 else relu(hidden)) @ kernel + bias
    return hidden

  def examples(self, random, num_examples: int):
    x = random.random((num_examples, self.features), np.float32)
    return x, random.integers(self.classes, size=num_examples, dtype=np.int32)

  def element_spec(self):
    return (
        tf.TensorSpec([None, self.features], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )


@dataclasses.dataclass(frozen=True)
class SmallCnn:
  """The network of arXiv:2206.03151, table 2, as in `tasks.mnist`.

  It has 26,010 parameters.
  """

  def keras_model(self) -> tf.keras.Model:
    layers = tf.keras.layers
    return tf.keras.Sequential([
        layers.InputLayer((28, 28, 1)),
        layers.Conv2D(16, 8, strides=2, padding='same', activation='relu'),
        layers.MaxPool2D(2, 1),
        layers.Conv2D(32, 4, strides=2, padding='valid', activation='relu'),
        layers.MaxPool2D(2, 1),
        layers.Flatten(),
        layers.Dense(32, activation='relu'),
        layers.Dense(10),
    ])

  def logits(self, weights, inputs):
    """Returns what the Keras model computes, written by hand."""
    hidden = inputs
    for place, padding in enumerate(('SAME', 'VALID')):
      kernel, bias = weights[2 * place : 2 * place + 2]
      hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, 2, padding) + bias)
      hidden = tf.nn.max_pool2d(hidden, 2, 1, 'VALID')
    hidden = tf.reshape(hidden, [tf.shape(hidden)[0], weights[4].shape[0]])
    return Dense().logits(weights[4:], hidden)

  def examples(self, random, num_examples: int):
    x = random.random((num_examples, 28, 28, 1), np.float32)
    return x, random.integers(10, size=num_examples, dtype=np.int32)

  def element_spec(self):
    return (
        tf.TensorSpec([None, 28, 28, 1], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )


@dataclasses.dataclass(frozen=True)
class Task:
  """A model, and what one round trains it on.

  Attributes:
    model: The network.
    num_clients: Clients in a round, the same in every round.
    num_examples: Examples of each client.
    batch_size: A divisor of `num_examples`; one local epoch.
    learning_rate: Of the clients; the server adds the mean update as it is.
  """

  model: Cnn | Lstm | Dense | SmallCnn
  num_clients: int
  num_examples: int
  batch_size: int
  learning_rate: float

  def __post_init__(self):
    if self.num_examples % self.batch_size:
      raise _checks.ArgumentError(
          'num_examples', self.num_examples, 'a multiple of batch_size'
      )

  def initial_weights(self) -> list[np.ndarray]:
    """Returns Keras' own initial weights, the same at every call."""
    tf.keras.utils.set_random_seed(_SEED)
    weights = self.model.keras_model().get_weights()
    # It would change every seeded shuffle of this process, too.
    tf.random.set_seed(None)
    return weights

  def clients(self) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns inputs and labels of every client, the same at every call."""
    random = np.random.default_rng(_SEED)
    return [
        self.model.examples(random, self.num_examples)
        for _ in range(self.num_clients)
    ]


_SMALL = {
    'softmax': Dense(),
    'mlp': Dense(hidden=(64,)),
    'logistic': Dense(features=100, classes=2),
}
TASKS = {
    # Small clients: model_clients x batches of 10 examples.
    **{
        f'{name}_{num_clients}x{num_batches}': Task(
            model, num_clients, 10 * num_batches, 10, 0.01
        )
        for name, model in _SMALL.items()
        for num_clients in (100, 1000, 5000)
        for num_batches in (1, 2, 4)
    },
    # One image a client, as in the LDP-SGD of `tasks.mnist`.
    'small_cnn_1000x1': Task(SmallCnn(), 1000, 1, 1, 0.01),
    'small_cnn_5000x1': Task(SmallCnn(), 5000, 1, 1, 0.01),
    'cnn_10': Task(Cnn(), 10, 100, 20, 0.05),
    'cnn_50': Task(Cnn(), 50, 100, 20, 0.05),
    'lstm_10': Task(Lstm(), 10, 64, 16, 1.0),
    # For tests of the benchmark itself; their times say nothing.
    'tiny_cnn': Task(Cnn(12, (2, 3), 8, 5), 2, 8, 4, 0.1),
    'tiny_lstm': Task(Lstm(20, 4, 6, 5), 2, 8, 4, 0.5),
    'tiny_small_cnn': Task(SmallCnn(), 3, 2, 1, 0.01),
    'tiny_mlp': Task(Dense(12, (6,), 5), 3, 8, 4, 0.1),
}
DEFAULT_TASKS = ('softmax_100x2', 'cnn_10', 'cnn_50', 'lstm_10')


def loss_fn():
  """Returns the mean cross-entropy over a batch and, for words, positions."""
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
