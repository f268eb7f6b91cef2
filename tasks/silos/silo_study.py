# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Test error against epsilon, for silos that protect every record themselves.

Every cell, an algorithm at an epsilon with a seed, is a run of the TFF process,
whose rounds a ledger charges: in each round some silos are reachable, and the
plan says at the end what each silo spent. A seed chooses the held-out records
and the silos of every round. Noise and sampling come from entropy of the
operating system and never repeat.

The step size of a row at an epsilon is chosen first: the one of a grid with the
least mean error on the training records, over runs with seeds of their own.
That choice is not private and is not charged. So the tables compare algorithms,
and do not estimate what tuning within a budget would find.

A finished cell is not repeated: the same command goes on where it was stopped,
and more seeds or epsilons only add the missing cells.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import functools
import math
import pathlib
import statistics
from typing import Any, Optional

from tasks.common import engine
from tasks.common import sweep_progress
from tasks.silos import silo_algorithms
from tasks.silos import silo_cells
from tasks.silos import silo_report
from tasks.silos import silo_settings

# And on: far from the seeds 0, 1, ... that are reported.
TUNING_SEED = 1000


def run(
    problem: silo_algorithms.Problem,
    settings: silo_settings.Settings,
    *,
    is_quiet: bool,
    trial: Optional[Callable[..., dict[str, Any]]] = None,
) -> list[silo_cells.Cell]:
  """Returns the cells of one problem, except for the tuning seeds.

  Needs a TFF context.

  Args:
    problem: Problem to learn.
    settings: Settings of the sweep.
    is_quiet: Whether to show no progress.
    trial: See `silo_cells.Runner`.
  """
  rows = [
      (name, epsilon)
      for name in dict.fromkeys(settings.algorithms)
      for epsilon in (
          dict.fromkeys(settings.epsilons)
          if silo_algorithms.BY_NAME[name].is_private
          else (math.inf,)
      )
  ]
  scales = settings.step_scales
  num_tuning = settings.tuning_seeds * len(scales) if len(scales) > 1 else 0
  reporter = sweep_progress.Reporter(
      len(rows) * (num_tuning + settings.seeds), is_quiet=is_quiet
  )
  cells = []
  for name in dict.fromkeys(settings.algorithms):
    # Processes of a row that is done are not needed any more.
    runner = silo_cells.Runner(
        problem,
        silo_algorithms.BY_NAME[name],
        settings.sizes,
        folder=pathlib.Path(settings.output_dir, 'cells', name),
        silos_per_round=settings.silos_per_round or problem.silos_per_round,
        report=functools.partial(_show, reporter, problem.name),
        trial=trial,
    )
    epsilons = [epsilon for row, epsilon in rows if row == name]
    chosen = dict.fromkeys(epsilons, scales[0])
    if num_tuning:
      chosen = {
          epsilon: min(
              scales,
              key=functools.partial(_tuning_error, runner, settings, epsilon),
          )
          for epsilon in epsilons
      }
    cells += [
        runner.cell(epsilon, chosen[epsilon], seed)
        for epsilon in epsilons
        for seed in range(settings.seeds)
    ]
  return cells


def _tuning_error(
    runner: silo_cells.Runner,
    settings: silo_settings.Settings,
    epsilon: float,
    scale: float,
) -> float:
  """Returns the mean training error of a step size over the tuning seeds."""
  return statistics.fmean(
      runner.cell(epsilon, scale, TUNING_SEED + index).train_error
      for index in range(settings.tuning_seeds)
  )


def run_all(
    problems: Sequence[silo_algorithms.Problem],
    settings: silo_settings.Settings,
    *,
    where: engine.EngineSettings,
    progress: str,
    trial: Optional[Callable[..., dict[str, Any]]] = None,
) -> Iterator[tuple[silo_algorithms.Problem, Any, list[silo_cells.Cell]]]:
  """Yields (problem, its settings, its cells), as soon as its cells are done.

  Args: see `main`, and `silo_cells.Runner` for `trial`.
  """
  engine.start(where, progress=progress)
  for problem in problems:
    own = settings
    if len(problems) > 1:
      folder = pathlib.Path(settings.output_dir, problem.name)
      own = dataclasses.replace(settings, output_dir=str(folder))
    yield problem, own, run(
        problem, own, is_quiet=progress == 'quiet', trial=trial
    )


def main(
    problems: Sequence[silo_algorithms.Problem],
    settings: silo_settings.Settings,
    *,
    where: engine.EngineSettings,
    progress: str,
) -> int:
  """Runs a task's problems, prints their tables and returns the exit code.

  Args:
    problems: Problems in order. If there are several, each has a folder of its
      own.
    settings: Settings of the sweep.
    where: Where to compute.
    progress: Kind of progress, as for `tff_dp.program.train`.
  """
  for problem, own, cells in run_all(
      problems, settings, where=where, progress=progress
  ):
    text = silo_report.write(problem, own, cells)
    print(text)
    for name in ('results.md', 'results.json', 'errors.png'):
      print(pathlib.Path(own.output_dir) / name)
    print()
  return 0


def _show(
    reporter: sweep_progress.Reporter,
    problem: str,
    cell: silo_cells.Cell,
    *,
    was_done: bool,
) -> None:
  private = '' if cell.epsilon == math.inf else f' epsilon {cell.epsilon:g}'
  reporter.show(
      f'{cell.algorithm}{private} seed {cell.seed} step {cell.scale:g}: error'
      f' {cell.test_error:.3f}',
      was_done=was_done,
      name=problem,
  )
