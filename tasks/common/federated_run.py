# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Trains a task with `federated_settings`, and reports the results."""

from collections.abc import Callable, Mapping
import json
import pathlib
import sys
from typing import Any

from tasks.common import engine
from tasks.common import federated_settings
from tff_dp.accounting import rounding
from tff_dp.plans import base
from tff_dp.statement import declarations as declarations_lib

_COLUMNS = {
    'run': 'run',
    'noise_multiplier': 'noise multiplier',
    'epsilon': 'epsilon',
    'delta': 'delta',
    'unit': 'protects',
    'neighboring_relation': 'relation',
    'num_rounds': 'rounds',
    'test_accuracy': 'held-out accuracy',
    'most_frequent': 'most frequent answer alone',
}


def main(
    run: Callable[..., tuple[dict[str, Any], str]],
    settings: federated_settings.Settings,
    *,
    where: engine.EngineSettings,
    progress: str,
) -> int:
  """Trains, prints the results on stdout and returns the exit code.

  Args:
    run: Function that returns (row of the report, description of the data).
    settings: Settings from the flags.
    where: Where to compute.
    progress: Kind of progress, as for `tff_dp.program.train`.
  """
  row, data = run(settings, where=where, progress=progress)
  report(row, pathlib.Path(settings.output_dir), data=data)
  return 0


def declared(
    *, population: int | None, chosen: str, preprocessing: str
) -> declarations_lib.Declarations:
  """Returns the declarations that only a task can make.

  Args:
    population: Number of clients, `None` before the data are looked at.
    chosen: How the settings were chosen.
    preprocessing: How the data were preprocessed.
  """
  return declarations_lib.Declarations(
      population=population,
      population_origin='public: it is known who is in the data',
      hyperparameters=f'not accounted for: chosen {chosen}',
      architecture='not accounted for: chosen like the hyperparameters',
      preprocessing=preprocessing,
  )


def state(
    plan: base.Plan,
    settings: federated_settings.Settings,
    declarations: declarations_lib.Declarations,
) -> None:
  """Prints the cost and the statement of a plan. This needs no data."""
  announce(plan, delta=settings.delta, file=sys.stdout)
  statement = plan.statement(delta=settings.delta, declarations=declarations)
  print(f'\n{statement.to_markdown()}')


def announce(plan: base.Plan, *, delta: float, file=None) -> None:
  """Prints the privacy cost of a whole run, before its first round.

  Args:
    plan: Plan of the run.
    delta: Target delta, in (0, 1).
    file: Stream to print to, `None` for stderr.
  """
  epsilon = plan.epsilon_after(None, delta=delta)
  also = ''
  if plan.kind == 'dp_ftrl':
    by_renyi = rounding.rounded_up(plan.epsilon(delta=delta, method='rdp'))
    also = f' ({by_renyi} by Renyi DP)'
  print(
      f'planned: epsilon {rounding.rounded_up(epsilon)}{also} at delta'
      f' {delta:g} of a {plan.unit}, {plan.neighboring_relation.value}, after'
      f' {plan.num_rounds} rounds',
      file=file or sys.stderr,
  )


def train(
    process,
    clients,
    *,
    run: str,
    settings: federated_settings.Settings,
    most_frequent: float,
    plan: base.Plan | None = None,
    progress: str,
    **options,
) -> dict[str, Any]:
  """Runs or resumes a training in a folder of its own and returns its row.

  Args:
    process: Process for `tff_dp.program.train`, which also gets `clients` and
      `options`.
    run: Name of the run's folder.
    settings: Result of `federated_settings.filled`.
    most_frequent: Held-out accuracy of always giving the most frequent answer.
    plan: Plan of the run, `None` for the plan of the process.
    progress: Kind of progress, as for `tff_dp.program.train`.
  """
  from tff_dp import program  # pylint: disable=g-import-not-at-top

  planned = plan or process.plan
  if progress != 'quiet':
    announce(planned, delta=settings.delta)
  result = program.train(
      process,
      clients,
      output_dir=pathlib.Path(settings.output_dir) / run,
      delta=settings.delta,
      plan=plan,
      epsilon_budget=settings.epsilon,
      rounds_per_eval=settings.rounds_per_eval,
      checkpoint_kind=settings.checkpoint_kind,
      progress=progress,
      **options,
  )
  headline = result.statement.headline
  return {
      'run': run,
      'noise_multiplier': planned.noise_multiplier,
      'epsilon': headline['epsilon'],
      'delta': headline['delta'],
      'unit': headline['unit'],
      'neighboring_relation': headline['neighboring_relation'],
      'num_rounds': result.rounds_done,
      'test_accuracy': next(
          row['test_accuracy']
          for row in reversed(result.metrics)
          if row.get('test_accuracy') is not None
      ),
      'most_frequent': most_frequent,
  }


def report(row: Mapping[str, Any], output_dir: pathlib.Path, *, data: str):
  """Adds a run to a folder's results, writes them, and prints them.

  Args:
    row: Result of `train`.
    output_dir: Folder that has the folder of the run.
    data: Description of the training data.
  """
  path = output_dir / 'results.json'
  rows = json.loads(path.read_text())['rows'] if path.exists() else {}
  rows[row['run']] = {**row, 'data': data}
  path.write_text(json.dumps({'rows': rows}, indent=2) + '\n')
  lines = [
      '| ' + ' | '.join((*_COLUMNS.values(), 'data')) + ' |',
      '|---' * (len(_COLUMNS) + 1) + '|',
  ]
  for each in rows.values():
    cells = [_shown(name, each[name]) for name in _COLUMNS]
    lines.append('| ' + ' | '.join((*cells, each['data'])) + ' |')
  text = '\n'.join(lines)
  (output_dir / 'results.md').write_text(text + '\n')
  print(text)
  release = output_dir / row['run'] / 'release'
  for name in ('privacy_statement.md', 'curves.png'):
    print(release / name)


def _shown(name: str, value: Any) -> str:
  if name == 'epsilon':
    value = rounding.from_json_number(value)
    return 'NO PRIVACY' if value == float('inf') else rounding.rounded_up(value)
  if value is None:
    return '-'
  if name in ('test_accuracy', 'most_frequent'):
    return f'{value:.3f}'
  return f'{value:.4g}' if isinstance(value, float) else str(value)
