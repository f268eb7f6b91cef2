# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The floors of `benchmarks.round_time`: a round without any framework."""

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


class Floor:
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


class Batched:
  """Federated averaging of `round_tasks.Dense`, all clients at the same time.

  The clients are the first dimension of every tensor, weights included, so a
  layer is one `einsum` for the whole cohort.
  """

  def __init__(self, task: round_tasks.Task, *, stacks_in_round: bool = False):
    """Makes the graph.

    Args:
      task: What to train.
      stacks_in_round: Whether a round begins with the tensors of each client,
        as it does where others come in the next one, or with the cohort's.
    """
    shape = (task.num_clients, -1, task.batch_size)
    clients = task.clients()
    self._server = [tf.Variable(weight) for weight in task.initial_weights()]

    def loss(weights, inputs, labels, index):
      hidden = inputs[:, index]
      for kernel, bias in zip(weights[::2], weights[1::2]):
        if kernel is not weights[0]:
          hidden = tf.nn.relu(hidden)
        hidden = tf.einsum('cbi,cio->cbo', hidden, kernel) + bias[:, None]
      # Clients do not touch each other, so this is a mean for each of them.
      return tf.reduce_sum(
          tf.nn.sparse_softmax_cross_entropy_with_logits(
              labels[:, index], hidden
          )
      ) / task.batch_size

    @tf.function(autograph=False)
    def train(inputs, labels):
      inputs = tf.reshape(inputs, [*shape, inputs.shape[-1]])
      labels = tf.reshape(labels, shape)
      weights = [
          tf.repeat(weight[None], task.num_clients, axis=0)
          for weight in self._server
      ]
      for index in range(labels.shape[1]):
        gradients = tf.gradients(
            loss(weights, inputs, labels, index), weights
        )
        weights = [
            weight - task.learning_rate * gradient
            for weight, gradient in zip(weights, gradients)
        ]
      for start, weight in zip(self._server, weights):
        start.assign_add(tf.reduce_mean(weight - start, axis=0))

    if stacks_in_round:
      own = [[tf.constant(part) for part in client] for client in clients]

      def run_round():
        columns = map(list, zip(*own))
        train(*(tf.raw_ops.Pack(values=column, axis=0) for column in columns))

      self.run_round = run_round
    else:
      cohort = [tf.constant(np.stack(column)) for column in zip(*clients)]
      self.run_round = lambda: train(*cohort)

  def weights(self) -> list[np.ndarray]:
    return [weight.numpy() for weight in self._server]

  def close(self) -> None:
    """Nothing is open."""
