# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Pools of softmax regressions, played in NumPy: thousands of weights.

`simulator` compiles its loop, which pays for
small models. With the 7,850 weights of MNIST a step is two small products of
matrices, and a plain loop over them takes a fraction of the time. Coins, noise
and first instances are still those of the simulator: given these an update is
deterministic, and equal up to rounding.
"""

import numpy as np

# Clients of a batch whose gradients are held at once.
_CHUNK = 50


class Player:
  """Plays what one simulator describes."""

  def __init__(self, simulator):
    """Takes what to play; nothing is compiled yet.

    Args:
      simulator: A `simulator.Simulator` of softmax regression
        with a box clip: with one client at a time, or of 'server_batch' without
        noise.
    """
    # What uses this has loaded it.
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    self._simulator = simulator
    self._is_private = simulator.step.is_private
    # Noise that nobody asks for is not computed.
    self._draw = tf.function(
        lambda key, size: self._used(simulator.draw(key, size)),
        autograph=False,
    )

  def advance(self, pool: np.ndarray, key, x, y) -> None:
    """Plays a block of rounds, in place: `simulator.advance`, up to rounding.

    Args:
      pool: float32 [models, p].
      key: int64 [2], a different one for every block.
      x: float32 [rounds, m, examples of a client, features].
      y: int [rounds, m, examples of a client].
    """
    step, strategy = self._simulator.step, self._simulator.strategy
    if strategy == 'server_batch':
      for of_round in zip(x, y):
        _move_by_batch(step, pool, *of_round)
      return
    draws = [part.numpy()[:, 0] for part in self._draw(key, len(x))]
    averages = strategy.startswith('average')
    for index, (given, row) in enumerate(zip(*draws[:2])):
      if row < 0:
        # Whatever the client returned is discarded.
        continue
      new = _moved(step, pool[given], x[index, 0], y[index, 0])
      if self._is_private:
        new += draws[2][index]
      pool[row] = 0.5 * (new + pool[row]) if averages else new

  def _used(self, draws):
    used = (draws.drawn, draws.replaced)
    return used + (draws.noise,) if self._is_private else used


def _moved(step, given: np.ndarray, x, y) -> np.ndarray:
  """Returns one model of shape [p], moved by one client, without noise."""
  gradient = x.T @ _residuals(given, x, y)
  gradient /= np.float32(len(x))
  np.clip(gradient, -step.clip_norm, step.clip_norm, out=gradient)
  gradient *= np.float32(-step.learning_rate)
  gradient = gradient.ravel()
  gradient += given
  return gradient


def _move_by_batch(step, pool: np.ndarray, x, y) -> None:
  """Moves the one model of a pool by the mean of its clients, in place."""
  given = pool[0]
  total = np.zeros_like(given)
  for start in range(0, len(x), _CHUNK):
    here = x[start : start + _CHUNK]
    size = here.shape
    flat = here.reshape(-1, size[-1])
    residuals = _residuals(given, flat, y[start : start + _CHUNK].ravel())
    gradients = np.matmul(
        here.transpose(0, 2, 1), residuals.reshape(*size[:2], -1)
    )
    gradients /= np.float32(size[1])
    np.clip(gradients, -step.clip_norm, step.clip_norm, out=gradients)
    total += gradients.sum(axis=0).ravel()
  pool[0] = given - np.float32(step.learning_rate / len(x)) * total


def _residuals(given: np.ndarray, x, y) -> np.ndarray:
  """Returns probabilities less the truth, [examples, classes]."""
  logits = x @ given.reshape(x.shape[-1], -1)
  logits -= logits.max(axis=1, keepdims=True)
  shares = np.exp(logits, out=logits)
  shares /= shares.sum(axis=1, keepdims=True)
  shares[np.arange(len(y)), y] -= 1
  return shares
