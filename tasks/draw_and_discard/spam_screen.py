# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The models that a spam screen refuses, honest or planted, of several sizes.

Pools of Draw and Discard in their stationary state, each with one honest update
and four planted ones. s is the spread of the instances in the long run, and B
is the instance that the client got:

* honest: B + noise, no gradient;
* scaled: B + 10 * noise;
* shifted: B + 5 s, in every weight;
* one weight: B + noise, and one weight 30 s off;
* random: a model of its own, every weight normal with deviation 10 s.

There is a screen for each rule, calibrated for the number of weights. One more
screen, a fixed threshold, is the rule `any` as calibrated for the first number
of weights.
"""

import argparse
import dataclasses
import json
import math
import pathlib
from typing import Any, Optional

import numpy as np

from tasks.common import flags
from tasks.common import sweep_progress
from tff_dp import _checks
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import instance_lineages
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import strategies

EXAMPLES = """examples:
  python -m tasks sweep spam_screen
  python -m tasks sweep spam_screen --num-params 1 33 1000 --samples 2000
"""
# Nothing federated happens.
USES_CONTEXT = False
KINDS = ('honest', 'scaled', 'shifted', 'one weight', 'random')
_SCALED, _SHIFTED, _ONE_WEIGHT, _RANDOM = 10.0, 5.0, 30.0, 10.0


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a sweep. The fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/spam_screen'
  num_params: tuple[int, ...] = (33, 7850)
  instances: int = 20
  epsilon_per_coordinate: float = math.log(32)
  target_rate: float = 0.01
  samples: int = 500
  seed: int = 0

  def __post_init__(self):
    for count in self.num_params:
      _checks.integer_at_least(1, num_params=count)
    _checks.integer_at_least(
        spam_filters.LEAST_INSTANCES, instances=self.instances
    )
    _checks.positive(epsilon_per_coordinate=self.epsilon_per_coordinate)
    _checks.in_open(0.0, 1.0, target_rate=self.target_rate)
    _checks.integer_at_least(
        math.ceil(2 / self.target_rate), samples=self.samples
    )
    _checks.integer_at_least(0, seed=self.seed)

  @property
  def step(self) -> client_steps.ClientStep:
    """The step of a client."""
    return client_steps.ClientStep(
        learning_rate=0.001,
        epsilon=self.epsilon_per_coordinate,
        privacy_unit='coordinate',
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the sweep's flags, with the defaults of `Settings`."""
  add = flags.adder(parser, Settings())
  add('output_dir', 'folder of the results')
  add('num_params', 'numbers of weights')
  add('instances', 'instances k of the server')
  add('epsilon_per_coordinate', 'epsilon of the noise on one weight')
  add('target_rate', 'share of honest updates that may be refused')
  add('samples', 'pools of each calibration, and of the trial')
  add('seed', 'seed of the simulation')


def run(settings: Settings, *, progress: str) -> list[dict[str, Any]]:
  """Returns one row for every number of weights and screen."""
  rows, fixed = [], None
  # A calibration for every rule, and the trial.
  steps = len(spam_filters.RULES) + 1
  reporter = sweep_progress.Reporter(
      steps * len(settings.num_params),
      is_quiet=progress == 'quiet',
      work=steps * sum(map(_work, settings.num_params)),
  )
  for num_params in settings.num_params:
    screens = {}
    for rule in spam_filters.RULES:
      screens[rule] = spam_filters.calibrate_spam_filter(
          settings.step,
          num_params,
          num_instances=settings.instances,
          rule=rule,
          target_rate=settings.target_rate,
          num_samples=settings.samples,
          # Honest updates have no gradient here.
          allows_full_step=False,
          seed=settings.seed,
      )
      reporter.show(
          f'{num_params} weights, calibration of {rule}',
          was_done=False,
          work=_work(num_params),
      )
    fixed = fixed or dataclasses.replace(
        screens['any'], false_rejection_rate=None
    )
    screens['any, fixed'] = fixed
    refused = _refused(settings, num_params, screens)
    reporter.show(
        f'{num_params} weights, trial', was_done=False, work=_work(num_params)
    )
    for name, screen in screens.items():
      rows.append({
          'num_params': num_params,
          'screen': name,
          'threshold': screen.threshold,
          'bound': screen.bound,
          'rate_at_most': None
          if screen is fixed
          else screen.facts['rate_at_most'],
          'refused': refused[name],
      })
  return rows


def table(rows: list[dict[str, Any]]) -> str:
  """Returns a Markdown table, a line for each row."""
  lines = [
      '| weights | screen | threshold | share allowed | honest, at most |'
      f' {" | ".join(KINDS)} |',
      '|---' * (5 + len(KINDS)) + '|',
  ]
  for row in rows:
    shares = ' | '.join(f'{row["refused"][kind]:.1%}' for kind in KINDS)
    lines.append(
        f'| {row["num_params"]} | {row["screen"]} | {row["threshold"]:.2f} |'
        f' {_or_dash(row["bound"], ".4f")} |'
        f' {_or_dash(row["rate_at_most"], ".1%")} | {shares} |'
    )
  return '\n'.join(lines)


def main(settings: Settings, *, where, progress: str) -> int:
  """Makes the sweep, prints the table and returns the exit code."""
  del where  # See USES_CONTEXT.
  settings = dataclasses.replace(
      settings, num_params=tuple(settings.num_params)
  )
  rows = run(settings, progress=progress)
  text = table(rows)
  output_dir = pathlib.Path(settings.output_dir)
  output_dir.mkdir(parents=True, exist_ok=True)
  (output_dir / 'results.md').write_text(text + '\n')
  (output_dir / 'results.json').write_text(
      json.dumps(
          {'settings': dataclasses.asdict(settings), 'rows': rows}, indent=2
      )
      + '\n'
  )
  print(text)
  print(
      f'\nShare of {settings.samples} models of each kind that was refused;'
      f' k = {settings.instances}. "honest, at most" is the upper\nbound of the'
      ' calibration for its own number of weights, at confidence 99 %.'
  )
  for name in ('results.md', 'results.json'):
    print(output_dir / name)
  return 0


def _work(num_params: int) -> int:
  # Beside that for each weight there is some for each pool.
  return num_params + 300


def _refused(
    settings: Settings, num_params: int, screens
) -> dict[str, dict[str, float]]:
  """Returns the share of each kind of model that each screen refuses."""
  # Not those of a calibration.
  rng = np.random.default_rng([settings.seed, num_params, 7])
  counts = {name: dict.fromkeys(KINDS, 0) for name in screens}
  lineages = instance_lineages.sample(
      settings.instances, settings.samples, rng
  )
  scale = settings.step.noise_scale(num_params)
  spread = math.sqrt(
      strategies.stationary_variance(
          settings.instances,
          noise_variance=settings.step.noise_variance(num_params),
      )
  )
  for index in range(settings.samples):
    tree = instance_lineages.Lineages(
        *(part[index : index + 1] for part in lineages)
    )
    models = scale * instance_lineages.weights(
        tree, num_params, rng, mechanism='laplace'
    )[0]
    instances = models[:-1]
    planted = _planted(instances[0], scale, spread, rng)
    for kind, returned in {'honest': models[-1], **planted}.items():
      for name, screen in screens.items():
        counts[name][kind] += not screen.accepts(instances, returned)
  return {
      name: {kind: count / settings.samples for kind, count in found.items()}
      for name, found in counts.items()
  }


def _planted(given: np.ndarray, scale: float, spread: float, rng):
  """Returns the models of an attacker who got an instance, by kind."""
  noise = scale * rng.laplace(size=given.shape)
  one_off = given + noise
  one_off[0] += _ONE_WEIGHT * spread
  return {
      'scaled': given + _SCALED * noise,
      'shifted': given + _SHIFTED * spread,
      'one weight': one_off,
      'random': _RANDOM * spread * rng.standard_normal(given.shape),
  }


def _or_dash(value: Optional[float], form: str) -> str:
  return '-' if value is None else format(value, form)
