# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The sequential updates of `known_weights`, in TensorFlow."""

import functools

import numpy as np

from tasks.draw_and_discard import known_weights_model as model
from tasks.draw_and_discard import simulator as simulator_lib
from tff_dp import streams
from tff_dp.mechanisms import client_steps

# pylint: disable=g-bad-import-order
import tensorflow as tf


class Simulation:
  """Clients with one fresh example each, one after the other."""

  def __init__(
      self, step: client_steps.ClientStep, *, num_instances: int, seed: int
  ):
    """Returns a simulation whose updates depend on the seed only.

    Args:
      step: What a client does.
      num_instances: k.
      seed: Of everything.
    """
    self._simulator, self._block = _compiled(step, num_instances)
    # In a simulation, nothing is private.
    self._key = streams.insecure_root_key(seed)

  def initial_instances(self) -> np.ndarray:
    """Returns the pool around zero, float32 [k, 33]."""
    return self._simulator.initial_instances(self._key).numpy()

  def advance(self, instances, *, first: int, num_updates: int) -> tf.Tensor:
    """Returns the pool after `num_updates` more.

    Args:
      instances: float32 [k, 33].
      first: Updates before this block: blocks of a run must not overlap.
      num_updates: Of this block.
    """
    return self._block(
        tf.constant(instances),
        self._key,
        tf.constant(first, tf.int64),
        num_updates,
    )


@functools.lru_cache(maxsize=8)
def _compiled(step: client_steps.ClientStep, num_instances: int):
  """Returns (simulator, block), compiled once for all seeds."""
  simulator = simulator_lib.Simulator(
      'logistic',
      step,
      num_features=model.NUM_WEIGHTS,
      num_instances=num_instances,
  )

  @functools.partial(tf.function, autograph=False)
  def block(instances, key, first, num_updates):
    key = streams.fold_in(streams.domain_key(key, 'block'), first)
    features, labels = draw(streams.domain_key(key, 'examples'), num_updates)
    shape = [num_updates, 1, 1]
    return simulator.advance(
        instances,
        streams.domain_key(key, 'updates'),
        tf.reshape(features, [*shape, model.NUM_WEIGHTS]),
        tf.reshape(labels, shape),
    )

  return simulator, block


def draw(key: tf.Tensor, num_examples: int) -> tuple[tf.Tensor, tf.Tensor]:
  """Returns (scaled features [n, 33], labels [n]), float32.

  The law of `known_weights_model.draw`.
  """

  def integers(purpose, limit):
    return tf.random.stateless_uniform(
        [num_examples],
        streams.domain_key(key, purpose),
        minval=0,
        maxval=limit,
        dtype=tf.int32,
        alg=streams.ALGORITHM,
    )

  normal = tf.random.stateless_normal(
      [num_examples], streams.domain_key(key, 'D'), alg=streams.ALGORITHM
  )
  largest = model.LARGEST_D
  normal = tf.clip_by_value(normal, -largest, largest)
  e1 = tf.one_hot(integers('E1', 3), 3)
  e2 = tf.one_hot(integers('E2', 4), 4)
  base = {
      'B': tf.cast(integers('B', 2), tf.float32),
      'E11': e1[:, 0],
      'E12': e1[:, 1],
      'E21': e2[:, 0],
      'E22': e2[:, 1],
      'E23': e2[:, 2],
      'D': (normal + largest) / (2 * largest),
      'I': tf.cast(integers('I', 2), tf.float32),
  }
  features = model.design(base, lambda columns: tf.stack(columns, axis=-1))
  scaled = tf.constant(model.to_scaled(model.TRUE_WEIGHTS), tf.float32)
  logits = tf.linalg.matvec(features, scaled)
  uniform = tf.random.stateless_uniform(
      [num_examples], streams.domain_key(key, 'label'), alg=streams.ALGORITHM
  )
  labels = tf.cast(uniform < tf.sigmoid(logits), tf.float32)
  return features, labels
