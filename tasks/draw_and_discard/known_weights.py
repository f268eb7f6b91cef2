# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and discard estimates 33 weights whose true values are known.

Each client has one example, the server has k instances, and several clients are
in flight at once. `tff_dp.program.train` trains the process of
`tff_dp.draw_and_discard`. The report has the measured error beside the expected
one, which has three parts: what is left of the start, which shrinks with
learning rate times steps, the fluctuation of single examples, which grows with
the learning rate, and the error of the clients as a sample.

However many clients m are in flight, a round moves an instance by at most one
step, and by 1 - (1 - 1/k)^m steps in the mean. So 10^7 updates in rounds of 30
are fewer steps than 10^7 updates one by one. A run that was stopped goes on
with the same command.
"""

import argparse
import dataclasses
import functools
import pathlib
from typing import Optional

import numpy as np

from tasks.common import engine
from tasks.common import flags
from tasks.draw_and_discard import known_weights_model as model
from tasks.draw_and_discard import known_weights_report
import tff_dp
from tff_dp import _checks
from tff_dp.systems import draw_and_discard
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import strategies

EXAMPLES = """examples:
  python -m tasks train known_weights
  python -m tasks train known_weights --updates 10000000 --clients 100000 \\
      --learning-rate 0.05 --output-dir runs/known_weights_long
  python -m tasks train known_weights --epsilon-per-coordinate 3.47
"""
_POINTS = 100


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a run. The fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/known_weights'
  updates: int = 100_000
  clients: int = 10_000
  clients_per_round: int = 30
  instances: int = 30
  learning_rate: float = 0.1
  clip_norm: float = 1.0
  epsilon_per_coordinate: Optional[float] = None
  delta: float = 1e-6
  seed: int = 0

  def __post_init__(self):
    _checks.integer_at_least(1, clients=self.clients)
    _checks.integer_at_least(1, instances=self.instances)
    _checks.integer_between(
        1, self.clients, clients_per_round=self.clients_per_round
    )
    _checks.integer_at_least(self.clients_per_round, updates=self.updates)
    _checks.delta(delta=self.delta)
    _checks.integer_at_least(0, seed=self.seed)
    if self.epsilon_per_coordinate is not None:
      _checks.positive(epsilon_per_coordinate=self.epsilon_per_coordinate)

  @functools.cached_property
  def plan(self) -> tff_dp.DrawAndDiscardPlan:
    """The plan of the run."""
    epsilon = self.epsilon_per_coordinate
    num_rounds = -(-self.updates // self.clients_per_round)
    return tff_dp.DrawAndDiscardPlan(
        step=client_steps.ClientStep(
            learning_rate=self.learning_rate,
            clip_norm=self.clip_norm,
            mechanism=None if epsilon is None else 'laplace',
            epsilon=epsilon,
            privacy_unit='coordinate',
        ),
        num_params=model.NUM_WEIGHTS,
        num_instances=self.instances,
        max_participations=-(
            -num_rounds * self.clients_per_round // self.clients
        ),
        num_rounds=num_rounds,
        clients_per_round=self.clients_per_round,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  add = flags.adder(parser, Settings())
  add('output_dir', 'folder of the run; the same command resumes in it')
  add('updates', 'updates, each by one client with one example')
  add('clients', 'clients with one example each, which come again')
  add('clients_per_round', 'clients in flight at once')
  add('instances', 'instances k of the server')
  add(
      'learning_rate',
      'learning rate of a client; 0.005 in the paper, for 10^9 updates',
  )
  add('clip_norm', 'bound on every weight of the gradient')
  add(
      'epsilon_per_coordinate',
      'epsilon of one participation and one weight; without this flag clients'
      ' add no noise, and there is no privacy',
      type=float,
  )
  add('delta', 'delta of all participations')
  add('seed', 'seed of the examples')


class Clients:
  """Clients with one example each, which is as public as the seed."""

  def __init__(self, num_clients: int, seed: int):
    features, labels = model.draw(np.random.default_rng(seed), num_clients)
    # The bias is the model's own.
    self._features = features[:, 1:].astype(np.float32)
    self._labels = labels.astype(np.float32)
    self.client_ids = [str(client) for client in range(num_clients)]

  def create_tf_dataset_for_client(self, client_id: str) -> list:
    # A list of batches: to make a dataset of it takes longer than the update.
    own = slice(int(client_id), int(client_id) + 1)
    return [(self._features[own], self._labels[own])]


def run(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> known_weights_report.Result:
  """Makes all updates that are missing and returns the results."""
  # A wrong flag is reported before TensorFlow is loaded.
  plan = settings.plan
  engine.start(where, progress=progress)
  from tff_dp import learning  # pylint: disable=g-import-not-at-top

  process = draw_and_discard.build_draw_and_discard(
      learning.build_generalized_linear_model(
          'logistic', num_features=model.NUM_WEIGHTS - 1
      ),
      plan,
      client_keys=True,
  )
  result = tff_dp.program.train(
      process,
      Clients(settings.clients, settings.seed),
      output_dir=settings.output_dir,
      delta=settings.delta,
      evaluate_fn=lambda weights: {'error': model.error(_vector(weights))},
      rounds_per_eval=max(1, plan.num_rounds // _POINTS),
      config={'seed': settings.seed},
      progress=progress,
  )
  weights = _vector(result.model_weights)
  return known_weights_report.Result(
      estimated=model.from_scaled(weights),
      errors=[(0, model.error(np.zeros(model.NUM_WEIGHTS)))]
      + [
          (row['round'] * settings.clients_per_round, row['error'])
          for row in result.metrics
          if 'error' in row
      ],
      expected=model.expected_error(
          learning_rate=settings.learning_rate,
          num_steps=plan.steps_per_round * plan.num_rounds,
          num_clients=settings.clients,
          noise_variance=plan.step.noise_variance(model.NUM_WEIGHTS),
          initial_variance=strategies.stationary_variance(
              plan.num_instances,
              noise_variance=plan.step.spread_variance(model.NUM_WEIGHTS),
              concurrency=plan.clients_per_round,
          ),
      ),
      quality=model.quality(weights),
      epsilon=result.epsilon,
  )


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Runs, writes the results, prints them and returns the exit code."""
  result = run(settings, where=where, progress=progress)
  output_dir = pathlib.Path(settings.output_dir)
  from tff_dp.files import run_directory  # pylint: disable=g-import-not-at-top

  text = known_weights_report.report(settings, result)
  run_directory.write_json(
      output_dir / 'results.json',
      known_weights_report.to_json(settings, result),
  )
  run_directory.write_atomically(output_dir / 'results.md', text + '\n')
  known_weights_report.plot(settings, result, output_dir / 'known_weights.png')
  print(text)
  for name in ('results.json', 'known_weights.png'):
    print(output_dir / name)
  return 0


def _vector(weights) -> np.ndarray:
  """Returns the model's weights on scaled features, in the order of `TERMS`."""
  kernel, bias = weights.trainable
  return np.concatenate([np.ravel(bias), np.ravel(kernel)])
