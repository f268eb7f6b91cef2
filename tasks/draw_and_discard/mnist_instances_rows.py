# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of the sweeps of Draw and Discard on MNIST, and one run of each."""

import dataclasses
import math
from typing import Any, Optional

import numpy as np
import tff_dp

from tasks.draw_and_discard import softmax_pools
from tasks.mnist import mnist_data
from tff_dp import _checks
from tff_dp.accounting import draw_and_discard
from tff_dp.mechanisms import client_steps

EXPERIMENTS = (
    'instances',
    'batches',
    'epsilon',
    'strategies',
    'common_start',
    'low_rate',
)
# Where the instances of a row begin.
STARTS = ('spread', 'common')
_STRATEGIES = (
    'draw_and_discard',
    'same',
    'accept_1_over_k',
    'average_random',
    'average_same',
)
_NUM_CLASSES = 10
# Clients whose images, and noise if there is any, are held at once.
_BLOCK, _NOISY_BLOCK = 1000, 200
_POINTS = 20
_LOSS_EXAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Row:
  """One run: what the server and the clients do.

  Attributes:
    experiment: The one it belongs to.
    strategy: Of the server.
    num_instances: k.
    batch: Client updates in a step of 'server_batch', else 1.
    epsilon: Of one participation and one weight, `None` without noise.
    start: 'spread', as the process starts, or 'common': all instances at 0. The
      latter shows what the start does; a pool with a spam screen could not.
    learning_rate: Of a client, `None` for that of the sweep.
  """

  experiment: str
  strategy: str
  num_instances: int
  batch: int = 1
  epsilon: Optional[float] = None
  start: str = 'spread'
  learning_rate: Optional[float] = None

  @property
  def name(self) -> str:
    """Names the row, also as a file."""
    parts = [self.strategy, f'k{self.num_instances}']
    if self.strategy == 'server_batch':
      parts[1] = f'n{self.batch}'
    if self.epsilon is not None:
      parts.append(f'eps{self.epsilon:.3g}')
    if self.start != 'spread':
      parts.append(self.start)
    if self.learning_rate is not None:
      parts.append(f'rate{self.learning_rate:g}')
    return '_'.join(parts)

  def step(self, learning_rate: float) -> client_steps.ClientStep:
    """Returns what its clients do, for the learning rate of the sweep."""
    return client_steps.ClientStep(
        learning_rate=self.learning_rate or learning_rate,
        mechanism=None if self.epsilon is None else 'laplace',
        epsilon=self.epsilon,
        privacy_unit='model' if self.epsilon is None else 'coordinate',
    )


def rows_of(settings) -> list[Row]:
  """Returns all rows of a sweep with `mnist_instances.Settings`."""
  rows = []
  for experiment in dict.fromkeys(settings.experiments):
    if experiment == 'instances':
      rows += [
          Row(experiment, 'draw_and_discard', k) for k in settings.instances
      ]
    elif experiment == 'batches':
      rows += [
          Row(experiment, 'server_batch', 1, batch)
          for batch in settings.batches
      ]
      rows += [Row(experiment, 'draw_and_discard', k) for k in (10, 20)]
    elif experiment == 'epsilon':
      rows += [
          Row(experiment, 'draw_and_discard', 10, epsilon=epsilon)
          for epsilon in (None, *settings.epsilons)
      ]
    elif experiment == 'low_rate':
      rows += [
          Row(
              experiment,
              strategy,
              k,
              learning_rate=settings.low_learning_rate,
          )
          for k in settings.low_rate_instances
          for strategy in _STRATEGIES
      ]
    else:
      start = 'common' if experiment == 'common_start' else 'spread'
      rows += [
          Row(experiment, strategy, settings.strategy_instances, start=start)
          for strategy in _STRATEGIES
          # One model starts at 0 anyway.
          if start == 'spread' or strategy != 'accept_1_over_k'
      ]
  return rows


def run_row(settings, row: Row, data: mnist_data.Mnist) -> dict[str, Any]:
  """Returns accuracy, losses, and what one participation costs.

  Args:
    settings: `mnist_instances.Settings`.
    row: What to run.
    data: Images and labels.
  """
  # A wrong flag is reported before TensorFlow is loaded.
  # pylint: disable=g-import-not-at-top
  from tasks.draw_and_discard import simulator as simulation
  from tff_dp import streams
  x, y = _clients(data.train, settings.images_per_client)
  test_x, test_y = (part[:, 0] for part in _clients(data.test, 1))
  simulator = simulation.Simulator(
      'softmax',
      row.step(settings.learning_rate),
      num_features=x.shape[-1],
      num_classes=_NUM_CLASSES,
      num_instances=row.num_instances,
      concurrency=row.batch,
      strategy=row.strategy,
  )
  player = softmax_pools.Player(simulator)
  key = streams.insecure_root_key(settings.seed)
  pool = np.array(
      simulator.initial_instances(streams.domain_key(key, 'start'))
  )
  if row.start == 'common':
    pool[:] = 0
  order = np.concatenate([
      np.random.default_rng([settings.seed, one]).permutation(len(x))
      for one in range(settings.passes)
  ])
  num_rounds = len(order) // row.batch
  if not num_rounds:
    raise _checks.ArgumentError(
        'batches', row.batch, f'at most the {len(order)} updates of the run'
    )
  block = _BLOCK if row.epsilon is None else _NOISY_BLOCK
  every = max(1, num_rounds // _POINTS)
  # A block ends where something is measured.
  per_block = min(every, max(1, block // row.batch))
  points = []
  for start in range(0, num_rounds, per_block):
    stop = min(num_rounds, start + per_block)
    chosen = order[start * row.batch : stop * row.batch]
    size = [stop - start, row.batch]
    player.advance(
        pool,
        streams.fold_in(streams.domain_key(key, 'blocks'), start),
        x[chosen].reshape(size + list(x.shape[1:])),
        y[chosen].reshape(size + [y.shape[1]]),
    )
    if stop // every > start // every or stop == num_rounds:
      loss, _ = _evaluate(
          pool,
          x.reshape(-1, x.shape[-1])[:_LOSS_EXAMPLES],
          y.ravel()[:_LOSS_EXAMPLES],
      )
      _, accuracy = _evaluate(pool, test_x, test_y)
      points.append([stop * row.batch * y.shape[1], loss, accuracy])
  guarantee = draw_and_discard.guarantee(
      tff_dp.DrawAndDiscardPlan(
          step=simulator.step,
          num_params=simulator.num_params,
          num_instances=row.num_instances,
          max_participations=settings.passes,
          num_rounds=settings.passes,
          strategy=row.strategy,
          server_batch=row.batch if row.strategy == 'server_batch' else None,
      )
  )
  return {
      'accuracy': points[-1][2],
      'loss': points[-1][1],
      'points': points,
      'epsilon_per_weight': row.epsilon,
      'model_epsilon': _finite(guarantee.model_epsilon),
      'total_epsilon': _finite(guarantee.total_epsilon),
  }


def _finite(value: float) -> Optional[float]:
  return value if math.isfinite(value) else None


def _clients(digits, images_per_client: int):
  """Returns (pixels and a one, labels), both with a row for each client."""
  arrays = digits.arrays()
  num_clients = len(digits) // images_per_client
  if not num_clients:
    raise _checks.ArgumentError(
        'images_per_client', images_per_client, f'at most {len(digits)}'
    )
  # Neighbours in the files are often of one class.
  order = np.random.default_rng(20).permutation(len(digits))
  order = order[: num_clients * images_per_client]
  pixels = np.asarray(arrays['x']).reshape(len(digits), -1)[order]
  with_one = np.concatenate(
      [pixels, np.ones([len(pixels), 1], np.float32)], axis=1
  )
  shape = [num_clients, images_per_client]
  return (
      with_one.reshape(shape + [-1]),
      np.asarray(arrays['y'])[order].reshape(shape),
  )


def _evaluate(pool: np.ndarray, x, y) -> tuple[float, float]:
  """Returns (mean loss, accuracy) of the mean of the instances."""
  weights = np.mean(pool, axis=0).reshape(x.shape[-1], -1)
  logits = x @ weights
  largest = logits.max(axis=1)
  log_sum = largest + np.log(
      np.exp(logits - largest[:, np.newaxis]).sum(axis=1)
  )
  losses = log_sum - logits[np.arange(len(y)), y]
  return float(losses.mean()), float(np.mean(logits.argmax(axis=1) == y))
