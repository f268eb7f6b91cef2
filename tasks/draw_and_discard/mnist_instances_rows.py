# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rows of the sweeps of Draw and Discard on MNIST, and one run of each."""

import dataclasses
import math
from typing import Any, Optional

import numpy as np

from tasks.common import digits_data
from tasks.mnist import mnist_data
import tff_dp
from tff_dp import _checks
from tff_dp.systems import draw_and_discard
from tff_dp.systems.draw_and_discard import accounting
from tff_dp.systems.draw_and_discard import client_steps

EXPERIMENTS = (
    'instances',
    'batches',
    'epsilon',
    'strategies',
    'low_rate',
)
_STRATEGIES = (
    'draw_and_discard',
    'same',
    'accept_1_over_k',
    'average_random',
    'average_same',
)
_NUM_CLASSES, _NUM_PIXELS = 10, 784
# Of a batch, whose clients all have the same model, so many train in a round.
_MOST_OF_BATCH = 100
_POINTS = 20
_LOSS_EXAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Row:
  """One run of the sweep.

  Attributes:
    experiment: Experiment of the run.
    strategy: Strategy of the server.
    num_instances: Number of instances k.
    batch: Number of client updates in a step of 'server_batch', else 1.
    epsilon: Epsilon of one participation and one weight, `None` without noise.
    learning_rate: Learning rate of a client, `None` for the rate of the sweep.
  """

  experiment: str
  strategy: str
  num_instances: int
  batch: int = 1
  epsilon: Optional[float] = None
  learning_rate: Optional[float] = None

  @property
  def name(self) -> str:
    """Name of the row and of its file."""
    parts = [self.strategy, f'k{self.num_instances}']
    if self.strategy == 'server_batch':
      parts[1] = f'n{self.batch}'
    if self.epsilon is not None:
      parts.append(f'eps{self.epsilon:.3g}')
    if self.learning_rate is not None:
      parts.append(f'rate{self.learning_rate:g}')
    return '_'.join(parts)

  def plan(self, settings, num_clients: int) -> tff_dp.DrawAndDiscardPlan:
    """Returns the plan of the run.

    Args:
      settings: `mnist_instances.Settings`.
      num_clients: Number of clients. Each comes once in a pass.
    """
    is_batch = self.strategy == 'server_batch'
    most = math.gcd(self.batch, _MOST_OF_BATCH)
    clients_per_round = most if is_batch and most <= num_clients else 1
    num_updates = settings.passes * num_clients
    if self.batch > num_updates:
      raise _checks.ArgumentError(
          'batches', self.batch, f'at most the {num_updates} updates of the run'
      )
    return tff_dp.DrawAndDiscardPlan(
        step=client_steps.ClientStep(
            learning_rate=self.learning_rate or settings.learning_rate,
            mechanism=None if self.epsilon is None else 'laplace',
            epsilon=self.epsilon,
            privacy_unit='model' if self.epsilon is None else 'coordinate',
        ),
        num_params=(_NUM_PIXELS + 1) * _NUM_CLASSES,
        num_instances=self.num_instances,
        max_participations=settings.passes,
        num_rounds=num_updates // clients_per_round,
        clients_per_round=clients_per_round,
        strategy=self.strategy,
        server_batch=self.batch if is_batch else None,
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
      rows += [
          Row(experiment, strategy, settings.strategy_instances)
          for strategy in _STRATEGIES
      ]
  return rows


class Clients:
  """Clients with some images each, in one batch."""

  def __init__(self, digits: digits_data.Digits, images_per_client: int):
    """Deals out the images.

    Args:
      digits: All images.
      images_per_client: Number of images of every client. The rest is not used.
    """
    num_clients = len(digits) // images_per_client
    if not num_clients:
      raise _checks.ArgumentError(
          'images_per_client', images_per_client, f'at most {len(digits)}'
      )
    # Neighbours in the files are often of one class.
    order = np.random.default_rng(20).permutation(len(digits))
    self._x, self._y = (part[order] for part in _arrays(digits))
    self._size = images_per_client
    self.client_ids = [str(client) for client in range(num_clients)]

  def create_tf_dataset_for_client(self, client_id: str) -> list:
    # A list of batches, which is sooner made than a dataset.
    start = int(client_id) * self._size
    own = slice(start, start + self._size)
    return [(self._x[own], self._y[own])]

  def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns (pixels, labels) of the first `count` images."""
    return self._x[:count], self._y[:count]


def run_row(
    settings, row: Row, data: mnist_data.Mnist, *, output_dir, progress: str
) -> dict[str, Any]:
  """Runs a row and returns its accuracy, losses and epsilons, JSON types.

  Args:
    settings: `mnist_instances.Settings`.
    row: Row to run.
    data: Images and labels.
    output_dir: Folder of the run, which goes on where it was stopped.
    progress: Kind of progress, as for `program.train`.
  """
  clients = Clients(data.train, settings.images_per_client)
  plan = row.plan(settings, len(clients.client_ids))
  # A wrong flag is reported before TensorFlow is loaded.
  from tff_dp import learning  # pylint: disable=g-import-not-at-top

  model = learning.build_generalized_linear_model(
      'softmax', num_features=_NUM_PIXELS, num_classes=_NUM_CLASSES
  )
  seen, held_out = clients.first(_LOSS_EXAMPLES), _arrays(data.test)

  def evaluate(weights):
    loss, _ = _evaluate(weights, *seen)
    _, accuracy = _evaluate(weights, *held_out)
    # Of clients' images: MNIST is public, but elsewhere this is no release.
    return {'loss': loss, 'accuracy': accuracy}

  result = tff_dp.program.train(
      draw_and_discard.build_draw_and_discard(
          model, plan, client_keys=True, server_seed=settings.seed
      ),
      clients,
      output_dir=output_dir,
      delta=settings.delta,
      evaluate_fn=evaluate,
      rounds_per_eval=max(1, plan.num_rounds // _POINTS),
      schedule_seed=settings.seed,
      config={'data': data.name, 'images': settings.images_per_client},
      progress=progress,
  )
  per_round = plan.clients_per_round * settings.images_per_client
  points = [
      [line['round'] * per_round, line['loss'], line['accuracy']]
      for line in result.metrics
      if 'loss' in line
  ]
  guarantee = accounting.guarantee(plan)
  return {
      'accuracy': points[-1][2],
      'loss': points[-1][1],
      'points': points,
      'epsilon_per_weight': row.epsilon,
      'model_epsilon': _finite(guarantee.model_epsilon),
      'total_epsilon': _finite(result.epsilon),
  }


def _finite(value: float) -> Optional[float]:
  return value if math.isfinite(value) else None


def _arrays(digits) -> tuple[np.ndarray, np.ndarray]:
  """Returns (pixels within [0, 1], labels)."""
  arrays = digits.arrays()
  pixels = np.asarray(arrays['x'], np.float32).reshape(len(digits), -1)
  return pixels, np.asarray(arrays['y'], np.int32)


def _evaluate(weights, x, y) -> tuple[float, float]:
  """Returns (mean loss, accuracy) of the mean of the instances."""
  kernel, bias = weights.trainable
  logits = x @ kernel + bias
  largest = logits.max(axis=1)
  log_sum = largest + np.log(
      np.exp(logits - largest[:, np.newaxis]).sum(axis=1)
  )
  losses = log_sum - logits[np.arange(len(y)), y]
  return float(losses.mean()), float(np.mean(logits.argmax(axis=1) == y))
