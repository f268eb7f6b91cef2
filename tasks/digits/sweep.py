# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Many runs of the digits task: every noise at every epsilon, several seeds.

For each row and epsilon, the server's step size is first chosen among a few, by
one run each with a seed of its own. Then the row is trained once with every
other seed. The table has the mean and the standard deviation of the held-out
accuracy over these seeds. The choice uses the held-out digits and is not
accounted for, as the privacy statements say. So the table compares mechanisms,
and does not estimate what tuning on other data would find.

A finished run is not repeated: the same command goes on where it was stopped,
and more seeds or epsilons only add the missing runs.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent import futures
import dataclasses
import functools
import json
import math
import multiprocessing
import os
import pathlib
import statistics
import threading
from typing import Any, NamedTuple, Optional

from tasks.common import engine
from tasks.common import flags
from tasks.common import plots
from tasks.common import sweep_progress
from tasks.digits import comparison
from tasks.digits import digits
from tff_dp import _checks
from tff_dp import _start

EXAMPLES = """examples:
  python -m tasks sweep digits
  python -m tasks sweep digits --epsilons 4 --rows honaker blt --seeds 3
  python -m tasks sweep digits --rows allocation banded cyclic --epsilons 1 2 4 \\
      --output-dir runs/digits_check_ins
  python -m tasks sweep digits --server-learning-rates 0.03 --jobs 1 \\
      --output-dir runs/one_rate
"""
# Its datasets stay in the process that made them.
RUNS_ON_CLUSTERS = False
# Far from the seeds 0, 1, ... that are reported.
TUNING_SEED = 1000
# What TensorFlow keeps of finished runs adds up.
_RUNS_PER_PROCESS = 10
_ROWS = ('non_private', 'independent', 'tree', 'honaker', 'banded', 'blt')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
  """The settings of a sweep. The fields are the flags of `add_arguments`."""

  output_dir: str = 'runs/digits_sweep'
  epsilons: tuple[float, ...] = (2.0, 4.0, 8.0, 16.0)
  rows: tuple[str, ...] = _ROWS
  seeds: int = 5
  server_learning_rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)
  total_rounds: int = 250
  clients_per_round: int = 16
  min_index_gap: int = 125
  jobs: int = max(1, os.cpu_count() or 1)

  def __post_init__(self):
    for name in ('seeds', 'jobs', 'total_rounds'):
      _checks.integer_at_least(1, **{name: getattr(self, name)})
    for epsilon in self.epsilons:
      _checks.positive(epsilons=epsilon)
    for rate in self.server_learning_rates:
      _checks.positive(server_learning_rates=rate)

  def cells(self) -> list[tuple[str, float]]:
    """Returns pairs (row, epsilon), only one of them without privacy."""
    return [
        (row, epsilon)
        for row in self.rows
        for epsilon in (
            (math.inf,) if row == digits.NON_PRIVATE else self.epsilons
        )
    ]

  def run_settings(
      self, row: str, epsilon: float, *, seed: int, rate: float
  ) -> Any:
    """Returns the settings of one run, with a folder of its own."""
    folder = [f'epsilon_{epsilon:g}', f'rate_{rate:g}', f'seed_{seed}']
    fields = {'epsilon': epsilon} if math.isfinite(epsilon) else {}
    return self._of_run(
        **fields,
        output_dir=str(pathlib.Path(self.output_dir, *folder)),
        rows=(row,),
        seed=seed,
        server_learning_rate=rate,
        total_rounds=self.total_rounds,
        clients_per_round=self.clients_per_round,
        min_index_gap=self.min_index_gap,
    )

  def _of_run(self, **fields) -> Any:
    """Returns the settings of a run: these fields and what a task adds."""
    return digits.Settings(**fields, rounds_per_eval=self.total_rounds)


@dataclasses.dataclass(frozen=True)
class Cell:
  """One row at one epsilon.

  Attributes:
    row: Name of the row, as for the task.
    epsilon: Epsilon of the plan, infinity without privacy.
    server_learning_rate: Chosen step size of the server.
    accuracies: Held-out accuracy of the last model, one for each seed.
  """

  row: str
  epsilon: float
  server_learning_rate: float
  accuracies: tuple[float, ...]

  @property
  def mean(self) -> float:
    return statistics.fmean(self.accuracies)

  @property
  def deviation(self) -> float:
    """The standard deviation over seeds, NaN for a single one."""
    if len(self.accuracies) < 2:
      return math.nan
    return statistics.stdev(self.accuracies)

  @property
  def point(self) -> 'Point':
    """What a plot shows of the cell."""
    return Point(self.row, self.epsilon, self.mean, self.deviation)


class Point(NamedTuple):
  """What a plot shows of one row at one epsilon.

  Attributes:
    row: Name of the row, as for the task.
    epsilon: Epsilon of the plan, infinity without privacy.
    mean: Mean of the held-out accuracy over seeds.
    deviation: Standard deviation over seeds, NaN for a single one.
  """

  row: str
  epsilon: float
  mean: float
  deviation: float


def add_arguments(
    parser: argparse.ArgumentParser,
    default: Settings = Settings(),
    *,
    rows: str = 'which noise',
    choices: Sequence[str] = digits.NOISES,
    **more: str,
) -> None:
  """Adds the sweep's flags.

  Args:
    parser: Parser that gets the flags.
    default: Settings with all defaults.
    rows: Help of the rows.
    choices: Names of the rows.
    **more: Help of further fields, which the `Settings` of this module lacks.
  """
  add = flags.adder(parser, default)
  add('output_dir', 'folder of all runs; the same command resumes in it')
  add('epsilons', 'privacy budgets of one client over a whole run')
  add('rows', rows, choices=choices)
  add('seeds', 'runs of each row at each epsilon')
  add(
      'server_learning_rates',
      'step sizes to choose from, for each row and epsilon on its own',
  )
  for name, what in more.items():
    add(name, what)
  add('total_rounds', 'rounds of each run')
  add('clients_per_round', 'clients of one round')
  add(
      'min_index_gap',
      'the number of rounds from one participation of a client to its next, at'
      ' least',
  )
  add('jobs', 'runs at the same time, each in a process of its own')


def main(settings: Settings, *, where: engine.EngineSettings, progress: str):
  """Makes all runs, prints the table and returns the exit code."""
  for row, epsilon in settings.cells():
    # Plans first: a wrong flag is reported before anything is trained.
    digits.build_plans(settings.run_settings(row, epsilon, seed=0, rate=1.0))
  cells = run(
      settings,
      make=functools.partial(_run_one, where=where),
      is_quiet=progress == 'quiet',
  )
  report(
      pathlib.Path(settings.output_dir, 'sweep.png'),
      cells,
      text=table(cells),
      content={'cells': [_to_json(cell) for cell in cells]},
      draw=plot,
      note='Held-out accuracy, mean and standard deviation of'
      f' {flags.counted(settings.seeds, "seed")}. Epsilon is for all\ndigits of'
      ' one client replaced by zeros (zero-out), delta'
      f' {digits.Settings().delta:g},'
      f' {comparison.amplification(settings.rows)}.',
  )
  return 0


def run(
    settings: Settings,
    *,
    make: Callable[[Any], float],
    is_quiet: bool,
) -> list[Cell]:
  """Returns the results of `settings.cells()`, in this order.

  Args:
    settings: Settings of the sweep. If there are several step sizes, each one
      is tried with `TUNING_SEED`.
    make: Function that makes a run, calls `write_result`, and returns its
      accuracy. It can be pickled.
    is_quiet: Whether to show no progress.
  """
  cells = settings.cells()
  rates = settings.server_learning_rates
  tuning = [
      settings.run_settings(*cell, seed=TUNING_SEED, rate=rate)
      for cell in cells
      for rate in rates
      if len(rates) > 1
  ]
  num_runs = len(tuning) + len(cells) * settings.seeds
  reporter = sweep_progress.Reporter(num_runs, is_quiet=is_quiet)
  tuned = _run_all(tuning, settings.jobs, make, reporter)
  chosen = {}
  for index, cell in enumerate(cells):
    accuracies = tuned[index * len(rates) : (index + 1) * len(rates)]
    best = accuracies.index(max(accuracies)) if accuracies else 0
    chosen[cell] = rates[best]
  final = _run_all(
      [
          settings.run_settings(*cell, seed=seed, rate=chosen[cell])
          for cell in cells
          for seed in range(settings.seeds)
      ],
      settings.jobs,
      make,
      reporter,
  )
  return [
      Cell(
          row=row,
          epsilon=epsilon,
          server_learning_rate=chosen[row, epsilon],
          accuracies=tuple(
              final[index * settings.seeds : (index + 1) * settings.seeds]
          ),
      )
      for index, (row, epsilon) in enumerate(cells)
  ]


def report(
    path: pathlib.Path,
    cells: Sequence[Cell],
    *,
    text: str,
    content: dict[str, Any],
    draw: Callable[[list[Point], pathlib.Path], None],
    note: str,
) -> None:
  """Writes the plot, the table and the JSON of a sweep. Prints the table.

  Args:
    path: Path of the plot. Table and JSON have the same name, with `.md` and
      `.json`.
    cells: Results, for the plot.
    text: The table.
    content: Content of the JSON.
    draw: Function that draws the plot.
    note: What to print below the table.
  """
  path.with_suffix('.md').write_text(text + '\n')
  path.with_suffix('.json').write_text(json.dumps(content, indent=2) + '\n')
  draw([cell.point for cell in cells], path)
  print(f'{text}\n\n{note}\n{path}')


_NO_PRIVACY = 'none (no privacy)'
# Labels of the plot.
_IN_WORDS = {
    'independent': 'independent noise',
    'tree': 'noise of a tree',
    'honaker': "a tree, Honaker's estimate",
    'banded': 'banded noise',
    'blt': 'BLT noise',
    'allocation': 'random allocation',
    'cyclic': 'cyclic allocation',
}


def table(cells: Sequence[Cell]) -> str:
  """Returns a Markdown table: a line for each row, a column per epsilon."""
  epsilons = sorted({c.epsilon for c in cells if math.isfinite(c.epsilon)})
  lines = [
      '| noise | ' + ' | '.join(f'epsilon {e:g}' for e in epsilons) + ' |',
      '|---' * (len(epsilons) + 1) + '|',
  ]
  for row in dict.fromkeys(cell.row for cell in cells):
    of_row = {cell.epsilon: cell for cell in cells if cell.row == row}
    if math.inf in of_row:
      lines.append(
          f'| {_NO_PRIVACY} | {accuracy_text(of_row[math.inf])}'
          + ' |' * len(epsilons)
      )
      continue
    shown = [accuracy_text(of_row[epsilon]) for epsilon in epsilons]
    lines.append(f'| {row} | ' + ' | '.join(shown) + ' |')
  return '\n'.join(lines)


def points_of(rows: Sequence[Sequence[str]]) -> list[Point]:
  """Returns the points of a table of several seeds.

  Args:
    rows: Header and rows of the table, one string per column.
  """
  (_, *heads), *lines = rows
  epsilons = [float(head.removeprefix('epsilon ')) for head in heads]
  points = []
  for row, *shown in lines:
    of_row = epsilons
    if row == _NO_PRIVACY:
      row, of_row, shown = digits.NON_PRIVATE, [math.inf], shown[:1]
    for epsilon, text in zip(of_row, shown, strict=True):
      mean, deviation = map(float, text.split(' ± '))
      points.append(Point(row, epsilon, mean, deviation))
  return points


def plot(
    points: Sequence[Point],
    path: pathlib.Path,
    *,
    title: str = 'Handwritten digits: accuracy by epsilon and kind of noise',
    legend: str = 'lower right',
) -> None:
  """Draws accuracy against epsilon, with bars of one standard deviation."""
  private = [point for point in points if math.isfinite(point.epsilon)]
  rows = list(dict.fromkeys(point.row for point in private))
  # The best first, as in the picture.
  rows.sort(key=lambda row: -max(p.mean for p in private if p.row == row))
  figure, axes = plots.by_epsilon(
      {
          _IN_WORDS.get(row, row): {
              point.epsilon: (point.mean, point.deviation)
              for point in private
              if point.row == row
          }
          for row in rows
      },
      without_privacy={
          'no privacy': point.mean for point in points if point not in private
      },
      title=title,
      epsilon_label=f'epsilon of one client, delta {digits.Settings().delta:g}',
      value_label='held-out accuracy',
  )
  axes.legend(loc=legend)
  plots.save(figure, path)


def _run_all(runs, jobs, make, reporter) -> list[float]:
  """Returns the accuracy of each run, in order."""
  chunks = [
      runs[start : start + _RUNS_PER_PROCESS]
      for start in range(0, len(runs), _RUNS_PER_PROCESS)
  ]
  # Children would wait for a parent that ends at once.
  _start.raise_on_interrupt()
  with futures.ThreadPoolExecutor(jobs) as threads:
    pending = [
        threads.submit(_run_chunk, chunk, make, reporter) for chunk in chunks
    ]
    try:
      return [accuracy for one in pending for accuracy in one.result()]
    except BaseException:
      threads.shutdown(wait=False, cancel_futures=True)
      raise


def _run_chunk(runs, make, reporter) -> list[float]:
  """Makes some runs, one after the other, in one new process."""
  accuracies = []
  # TensorFlow does not survive a fork.
  spawn = multiprocessing.get_context('spawn')
  # Starts with the first run that is missing, if there is one.
  with futures.ProcessPoolExecutor(
      1, mp_context=spawn, initializer=end_with_parent
  ) as process:
    for one in runs:
      accuracy = _accuracy_before(one)
      was_done = accuracy is not None
      if not was_done:
        accuracy = process.submit(make, one).result()
      reporter.show(_result_line(one, accuracy), was_done=was_done)
      accuracies.append(accuracy)
  return accuracies


def end_with_parent() -> None:
  """Ends this process as soon as its parent has ended, for any reason.

  Otherwise a worker whose parent got a SIGTERM would finish its run first.
  """

  def wait() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)  # pylint: disable=protected-access

  threading.Thread(target=wait, daemon=True).start()


def result_before(run_settings: Any) -> dict[str, Any] | None:
  """Returns what `write_result` wrote for a run, or `None`."""
  path = _result_path(run_settings)
  if path.exists():
    content = json.loads(path.read_text())
    if content['settings'] == _facts(run_settings):
      return content
  return None


def write_result(run_settings: Any, accuracy: float, **facts: Any) -> None:
  """Writes the result of a run, so that it is not made again.

  Args:
    run_settings: A dataclass, with the fields `output_dir` and `rows`.
    accuracy: Held-out accuracy.
    **facts: More about the run, in JSON types.
  """
  content = {
      'test_accuracy': accuracy, 'settings': _facts(run_settings), **facts
  }
  _result_path(run_settings).write_text(json.dumps(content))


def _accuracy_before(run_settings: Any) -> Optional[float]:
  content = result_before(run_settings)
  return None if content is None else content['test_accuracy']


def _run_one(
    run_settings: digits.Settings, where: engine.EngineSettings
) -> float:
  """Makes a run and returns its held-out accuracy."""
  (row,) = digits.run(run_settings, where=where, progress='quiet')
  write_result(run_settings, row.test_accuracy)
  return row.test_accuracy


def _result_path(run_settings: Any) -> pathlib.Path:
  folder = pathlib.Path(run_settings.output_dir) / run_settings.rows[0]
  return folder / 'accuracy.json'


def _facts(run_settings: Any) -> dict[str, object]:
  return json.loads(json.dumps(dataclasses.asdict(run_settings)))


def accuracy_text(cell: Cell) -> str:
  """Returns mean and deviation, as tables show them."""
  if math.isnan(cell.deviation):
    return f'{cell.mean:.3f}'
  return f'{cell.mean:.3f} ± {cell.deviation:.3f}'


def _to_json(cell: Cell) -> dict[str, object]:
  content = dataclasses.asdict(cell)
  content['epsilon'] = cell.epsilon if math.isfinite(cell.epsilon) else 'inf'
  return {
      **content,
      'mean': cell.mean,
      'standard_deviation': (
          None if math.isnan(cell.deviation) else cell.deviation
      ),
  }


def _result_line(run_settings: Any, accuracy: float) -> str:
  (row,) = run_settings.rows
  private = ''
  if row != digits.NON_PRIVATE:
    private = f' epsilon {run_settings.epsilon:g}'
  return (
      f'{row}{private} seed {run_settings.seed} step size'
      f' {run_settings.server_learning_rate:g}: accuracy {accuracy:.3f}'
  )
