# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A round without any framework, with one call of TensorFlow for each client."""

import concurrent.futures

import numpy as np
import tensorflow as tf

from benchmarks import round_tasks


class _Trainer:
  """Trains clients one after the other and adds up how the weights change.

  A network, its accumulators and its graph belong to one thread. Everything is
  updated in place, and the batches are arrays that were made before.
  """

  def __init__(self, task: round_tasks.Task, server: list[tf.Variable]):
    model = task.model.keras_model()
    weights = model.trainable_variables
    loss_fn = round_tasks.loss_fn()
    rate = task.learning_rate
    self._sums = [tf.Variable(tf.zeros_like(weight)) for weight in weights]

    @tf.function
    def train(inputs, labels):
      for weight, start in zip(weights, server):
        weight.assign(start)
      for index in tf.range(tf.shape(labels)[0]):
        with tf.GradientTape() as tape:
          loss = loss_fn(labels[index], model(inputs[index], training=True))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
          if isinstance(gradient, tf.IndexedSlices):
            weight.scatter_sub(
                tf.IndexedSlices(rate * gradient.values, gradient.indices)
            )
          else:
            weight.assign_sub(rate * gradient)
      for total, weight, start in zip(self._sums, weights, server):
        total.assign_add(weight - start)

    self._train = train

  def sum_of_updates(self, clients):
    for total in self._sums:
      total.assign(tf.zeros_like(total))
    for inputs, labels in clients:
      self._train(inputs, labels)
    return self._sums


class OneByOne:
  """Federated averaging by hand, in one process.

  Attributes:
    num_threads: How many clients train at the same time.
  """

  def __init__(self, task: round_tasks.Task, num_threads: int):
    def batches(array):
      return tf.constant(
          array.reshape(-1, task.batch_size, *array.shape[1:])
      )

    self.num_threads = num_threads
    self._initial = task.initial_weights()
    self._clients = [(batches(x), batches(y)) for x, y in task.clients()]
    self._server = [tf.Variable(weight) for weight in self._initial]
    self._trainers = [
        _Trainer(task, self._server) for _ in range(num_threads)
    ]
    self._pool = concurrent.futures.ThreadPoolExecutor(num_threads)

  def run_round(self) -> None:
    shares = [
        self._clients[index :: self.num_threads]
        for index in range(self.num_threads)
    ]
    if self.num_threads == 1:
      sums = [self._trainers[0].sum_of_updates(shares[0])]
    else:
      sums = list(
          self._pool.map(
              lambda trainer, share: trainer.sum_of_updates(share),
              self._trainers,
              shares,
          )
      )
    for weight, *parts in zip(self._server, *sums):
      weight.assign_add(tf.add_n(parts) / len(self._clients))

  def reset(self) -> None:
    """Goes back to the initial weights."""
    for weight, start in zip(self._server, self._initial):
      weight.assign(start)

  def weights(self) -> list[np.ndarray]:
    return [weight.numpy() for weight in self._server]

  def updates(self) -> list[list[np.ndarray]]:
    """Returns every client's update from the present weights."""
    return [
        [total.numpy() for total in self._trainers[0].sum_of_updates([client])]
        for client in self._clients
    ]

  def close(self) -> None:
    self._pool.shutdown()
