# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The floor of `benchmarks.round_time`: a round as one graph, written by hand.

The cohort is one stacked tensor, made before. So this shows the work of the
clients alone, without datasets, clipping or noise. Three forms also clip and
add up exactly, to show what that costs.
"""

import functools
import importlib.util
import math

import numpy as np
import tensorflow as tf

from benchmarks import round_tasks
from benchmarks import round_tff
from tff_dp.aggregators import clipping
from tff_dp.aggregators import shuffle

# Clients of `tf.vectorized_map` at a time. More leave the caches of a processor.
_CLIENTS_AT_ONCE = 100
# Sums are in these units, so that they are exact.
_STEP = shuffle.grid_step(round_tff.FIXED_CLIP)


def why_absent(task: round_tasks.Task, form: str) -> str | None:
  """Returns why a form of a round cannot run, or None if it can."""
  if not hasattr(task.model, 'logits'):
    return 'written for small networks only'
  if form.startswith('graph_jax'):
    if not isinstance(task.model, round_tasks.Dense):
      return 'written for dense networks only'
    if importlib.util.find_spec('jax') is None:
      return 'no JAX here'
  return None


def _loss(task, weights, inputs, labels):
  return tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels, task.model.logits(weights, inputs)
      )
  )


def _update(task, start, inputs, labels) -> list[tf.Tensor]:
  """Returns how a client's batches, shape [batches, rows, ...], move weights.
  """
  weights = list(start)
  for index in range(inputs.shape[0]):
    gradients = tf.gradients(
        _loss(task, weights, inputs[index], labels[index]), weights
    )
    weights = [
        weight - task.learning_rate * gradient
        for weight, gradient in zip(weights, gradients)
    ]
  return [end - before for end, before in zip(weights, start)]


def _sum_in_loop(task, start, inputs, labels) -> list[tf.Tensor]:
  def body(index, *sums):
    update = _update(task, start, inputs[index], labels[index])
    return index + 1, *(a + b for a, b in zip(sums, update))

  _, *sums = tf.while_loop(
      lambda index, *_: index < task.num_clients,
      body,
      [tf.constant(0), *map(tf.zeros_like, start)],
      parallel_iterations=1,
  )
  return sums


def _flat_update(task, start, inputs, labels) -> tf.Tensor:
  update = _update(task, start, inputs, labels)
  return tf.concat([tf.reshape(part, [-1]) for part in update], 0)


def _clipped_sum(task, start, inputs, labels, *, size: int) -> list[tf.Tensor]:
  """Returns the sums of clipped updates, added up as integers.

  Args:
    task: The round.
    start: Weights.
    inputs: Of all clients.
    labels: Of all clients.
    size: Clients at a time.
  """
  sizes = [weight.shape.num_elements() for weight in start]

  def body(first, total):
    own = [
        tf.ensure_shape(part[first : first + size], [size, *part.shape[1:]])
        for part in (inputs, labels)
    ]
    if size == 1:
      rows = _flat_update(task, start, *(part[0] for part in own))[tf.newaxis]
    else:
      rows = tf.vectorized_map(
          lambda client: _flat_update(task, start, *client),
          own,
          fallback_to_while_loop=False,
      )
    rows = clipping.clip_rows(rows, round_tff.FIXED_CLIP)
    integers = tf.cast(rows * (1.0 / _STEP), tf.int64)
    return first + size, total + tf.reduce_sum(integers, axis=0)

  _, total = tf.while_loop(
      lambda first, _: first < task.num_clients,
      body,
      [tf.constant(0), tf.zeros([sum(sizes)], tf.int64)],
      parallel_iterations=1,
  )
  parts = tf.split(tf.cast(total, tf.float32) * _STEP, sizes)
  return [tf.reshape(*pair) for pair in zip(parts, (w.shape for w in start))]


def _at_once(task) -> int:
  return math.gcd(task.num_clients, _CLIENTS_AT_ONCE)


def _sum_at_once(task, start, inputs, labels) -> list[tf.Tensor]:
  size = _at_once(task)

  def body(first, *sums):
    own = inputs[first : first + size], labels[first : first + size]
    updates = tf.vectorized_map(
        lambda client: _update(task, start, *client),
        [tf.ensure_shape(part, [size, *part.shape[1:]]) for part in own],
        fallback_to_while_loop=False,
    )
    added = [tf.reduce_sum(update, axis=0) for update in updates]
    return first + size, *(a + b for a, b in zip(sums, added))

  _, *sums = tf.while_loop(
      lambda first, *_: first < task.num_clients,
      body,
      [tf.constant(0), *map(tf.zeros_like, start)],
      parallel_iterations=1,
  )
  return sums


def _cohort(task) -> list[np.ndarray]:
  """Returns inputs and labels, shape [clients, batches, rows of a batch, ...].
  """
  return [
      np.stack(column).reshape(
          task.num_clients, -1, task.batch_size, *column[0].shape[1:]
      )
      for column in zip(*task.clients())
  ]


class OneGraph:
  """Federated averaging in one call of TensorFlow.

  `graph_loop` has a `tf.while_loop` over the clients, `graph_xla` the same
  compiled by XLA, `graph_vectorized` a `tf.vectorized_map`. With `_clipped` at
  the end they have the clipping and the exact sum of `build_dp_ftrl`.
  """

  def __init__(self, task: round_tasks.Task, form: str):
    self._server = [tf.Variable(weight) for weight in task.initial_weights()]
    summed = {
        'graph_vectorized': _sum_at_once,
        'graph_loop_clipped': lambda *of: _clipped_sum(*of, size=1),
        'graph_vectorized_clipped': lambda task, *of: _clipped_sum(
            task, *of, size=_at_once(task)
        ),
    }.get(form, _sum_in_loop)

    @tf.function(autograph=False, jit_compile=form == 'graph_xla' or None)
    def train(*cohort):
      start = [weight.read_value() for weight in self._server]
      sums = summed(task, start, *cohort)
      for weight, total in zip(self._server, sums):
        weight.assign_add(total / task.num_clients)

    cohort = [tf.constant(column) for column in _cohort(task)]
    self.run_round = lambda: train(*cohort)

  def weights(self) -> list[np.ndarray]:
    return [weight.numpy() for weight in self._server]

  def close(self) -> None:
    """Nothing is open."""


class JaxScan:
  """Federated averaging by JAX: a compiled `lax.scan` over the clients.

  It may also clip and add up 64-bit integers, as `build_dp_ftrl` does with
  finite updates.
  """

  def __init__(self, task: round_tasks.Task, *, clips: bool = False):
    import jax  # pylint: disable=g-import-not-at-top

    def summand(update):
      if not clips:
        return update
      norm = jax.numpy.sqrt(sum((part**2).sum() for part in update))
      bound = round_tff.FIXED_CLIP * (1 - clipping.NORM_MARGIN)
      scale = jax.numpy.minimum(1.0, bound / norm) / _STEP
      return [(part * scale).astype('int64') for part in update]

    def loss(weights, inputs, labels):
      logits = task.model.logits(weights, inputs, relu=jax.nn.relu)
      chosen = jax.numpy.take_along_axis(
          jax.nn.log_softmax(logits), labels[:, None], axis=1
      )
      return -chosen.mean()

    @jax.jit
    def train(start, cohort):
      def client(sums, batches):
        def step(weights, batch):
          gradients = jax.grad(loss)(weights, *batch)
          return [
              weight - task.learning_rate * gradient
              for weight, gradient in zip(weights, gradients)
          ], None

        ends, _ = jax.lax.scan(step, start, batches)
        update = [end - before for end, before in zip(ends, start)]
        return [a + b for a, b in zip(sums, summand(update))], None

      zeros = [
          jax.numpy.zeros(w.shape, 'int64' if clips else w.dtype) for w in start
      ]
      sums, _ = jax.lax.scan(client, zeros, cohort)
      unit = (_STEP if clips else 1.0) / task.num_clients
      return [w + unit * total.astype(w.dtype) for w, total in zip(start, sums)]

    self._server = list(map(jax.numpy.asarray, task.initial_weights()))
    self._cohort = tuple(map(jax.numpy.asarray, _cohort(task)))
    self._train = train
    self._has_64_bits = lambda: jax.experimental.enable_x64(clips)

  def run_round(self) -> None:
    with self._has_64_bits():
      self._server = self._train(self._server, self._cohort)
    for weight in self._server:
      weight.block_until_ready()

  def weights(self) -> list[np.ndarray]:
    return [np.asarray(weight) for weight in self._server]

  def close(self) -> None:
    """Nothing is open."""


FORMS = {
    'graph_loop': lambda task: OneGraph(task, 'graph_loop'),
    'graph_xla': lambda task: OneGraph(task, 'graph_xla'),
    'graph_vectorized': lambda task: OneGraph(task, 'graph_vectorized'),
    'graph_jax': JaxScan,
    **{
        form: functools.partial(OneGraph, form=form)
        for form in ('graph_loop_clipped', 'graph_vectorized_clipped')
    },
    'graph_jax_clipped': functools.partial(JaxScan, clips=True),
}
