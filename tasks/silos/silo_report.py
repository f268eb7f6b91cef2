# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of the silos' tasks."""

from collections.abc import Sequence
import json
import math
import pathlib
import statistics

from tasks.common import flags
from tasks.common import plots
from tasks.silos import silo_algorithms
from tasks.silos import silo_cells
from tasks.silos import silo_settings
from tff_dp.accounting import rounding

# More silos than these are told together.
_SILOS_IN_TABLE = 10
# The column of rows without noise.
_NO_PRIVACY = 'no privacy'
_NOTES = (
    'Epsilon is of one replaced record of a silo, against everybody, over'
    ' everything that the silo sends in a run (ISRL-DP); delta is 1 / n^2 for'
    ' the n training records of the silo.',
    'Steps were chosen by training error in runs with a seed of their own.'
    ' That is not private and not charged.',
    'Rows without noise clip nothing and have no guarantee.',
)
_WEIGHTINGS = {
    silo_algorithms.EQUAL: (
        'Silos count equally in training, whatever their size.'
    ),
    silo_algorithms.BY_RECORDS: (
        'Silos count by their number of records, which is public.'
    ),
}


def group(
    cells: Sequence[silo_cells.Cell],
) -> dict[tuple[str, float], list[silo_cells.Cell]]:
  """Returns (algorithm, epsilon) -> its cells, one for each seed."""
  groups = {}
  for cell in cells:
    groups.setdefault((cell.algorithm, cell.epsilon), []).append(cell)
  return groups


def mean_and_deviation(
    cells: Sequence[silo_cells.Cell],
) -> tuple[float, float]:
  """Returns (mean, deviation) of the test error. NaN deviation for one seed."""
  errors = [cell.test_error for cell in cells]
  if not all(map(math.isfinite, errors)):
    return math.inf, math.nan
  deviation = statistics.stdev(errors) if len(errors) > 1 else math.nan
  return statistics.fmean(errors), deviation


def table(cells: Sequence[silo_cells.Cell]) -> str:
  """Returns Markdown: a line for each algorithm, a column for each epsilon."""
  groups = group(cells)
  epsilons = sorted({e for _, e in groups if math.isfinite(e)})
  columns = [f'epsilon {epsilon:g}' for epsilon in epsilons]
  if any(e == math.inf for _, e in groups):
    columns.append(_NO_PRIVACY)
    epsilons.append(math.inf)
  lines = [
      '| algorithm | ' + ' | '.join(columns) + ' |',
      '|---' * (len(columns) + 1) + '|',
  ]
  for name in dict.fromkeys(cell.algorithm for cell in cells):
    shown = [
        _error(groups[name, epsilon]) if (name, epsilon) in groups else ''
        for epsilon in epsilons
    ]
    title = silo_algorithms.BY_NAME[name].title
    lines.append(f'| {title} | ' + ' | '.join(shown) + ' |')
  return '\n'.join(lines)


def spending(cells: Sequence[silo_cells.Cell]) -> str:
  """Returns a Markdown table of the epsilon that every silo spent.

  A line for each silo and algorithm, a column for each epsilon. A silo that is
  not reachable in every round spends less than its budget. The table has the
  maximum over seeds. More than ten silos share a line with their maximum.
  """
  groups = {key: of for key, of in group(cells).items() if of[0].silos}
  if not groups:
    return ''
  epsilons = sorted({epsilon for _, epsilon in groups})
  lines = [
      '| silo | records | delta | algorithm | '
      + ' | '.join(f'budget {epsilon:g}' for epsilon in epsilons)
      + ' |',
      '|---' * (len(epsilons) + 4) + '|',
  ]
  some = next(iter(groups.values()))[0].silos
  names = list(some)
  algorithms = list(dict.fromkeys(name for name, _ in groups))
  for silo in names if len(names) <= _SILOS_IN_TABLE else [None]:
    for algorithm in algorithms:
      members = names if silo is None else [silo]
      shown = []
      for epsilon in epsilons:
        spent = [
            facts['epsilon']
            for cell in groups.get((algorithm, epsilon), ())
            for name, facts in cell.silos.items()
            if name in members
        ]
        shown.append(rounding.rounded_up(max(spent)) if spent else '')
      facts = some[members[0]]
      lines.append(
          f'| {silo or f"each of {len(names)}"} | {facts["num_records"]} |'
          f' {rounding.rounded_up(facts["delta"])} |'
          f' {silo_algorithms.BY_NAME[algorithm].title} | '
          + ' | '.join(shown)
          + ' |'
      )
  return '\n'.join(lines)


def exceptions(cells: Sequence[silo_cells.Cell]) -> list[float]:
  """Returns the epsilons at which noisy MB-SGD is not better than local SGD."""
  groups = group(cells)
  return [
      epsilon
      for name, epsilon in groups
      if name == silo_algorithms.NOISY_MB_SGD
      and (silo_algorithms.ISRL_LOCAL_SGD, epsilon) in groups
      and not mean_and_deviation(groups[name, epsilon])[0]
      < mean_and_deviation(
          groups[silo_algorithms.ISRL_LOCAL_SGD, epsilon]
      )[0]
  ]


def verdict(cells: Sequence[silo_cells.Cell]) -> str:
  """Returns a sentence on noisy MB-SGD against local SGD, '' without both."""
  names = {cell.algorithm for cell in cells}
  needed = {silo_algorithms.NOISY_MB_SGD, silo_algorithms.ISRL_LOCAL_SGD}
  if not needed <= names:
    return ''
  found = exceptions(cells)
  if not found:
    return 'Noisy MB-SGD has a lower error than ISRL local SGD throughout.'
  return (
      'Noisy MB-SGD has NOT a lower error than ISRL local SGD at epsilon'
      f' {", ".join(f"{epsilon:g}" for epsilon in found)}.'
  )


def plot(
    problem: silo_algorithms.Problem,
    cells: Sequence[silo_cells.Cell],
    path: pathlib.Path,
) -> None:
  """Draws error against epsilon, with bars of one standard deviation."""
  without_privacy, lines = {}, {}
  for (name, epsilon), of_cell in group(cells).items():
    algorithm = silo_algorithms.BY_NAME[name]
    found = mean_and_deviation(of_cell)
    if algorithm.is_private:
      lines.setdefault(algorithm.title, {})[epsilon] = found
    else:
      without_privacy[algorithm.title] = found[0]
  _draw(
      lines,
      without_privacy,
      path,
      title=problem.title,
      error_name=problem.error_name,
  )


def plot_table(
    rows: Sequence[Sequence[str]],
    path: pathlib.Path,
    *,
    title: str,
    error_name: str,
) -> None:
  """Draws the picture of `plot` from the cells of `table`, header first."""
  (_, *heads), *rest = rows
  without_privacy, lines = {}, {}
  for name, *shown in rest:
    for head, text in zip(heads, shown, strict=True):
      if not text:
        continue
      mean, deviation = map(float, text.split(' ± '))
      if head == _NO_PRIVACY:
        without_privacy[name] = mean
      else:
        epsilon = float(head.removeprefix('epsilon '))
        lines.setdefault(name, {})[epsilon] = mean, deviation
  _draw(lines, without_privacy, path, title=title, error_name=error_name)


def _draw(lines, without_privacy, path, *, title, error_name) -> None:
  figure, _ = plots.by_epsilon(
      lines,
      without_privacy=without_privacy,
      title=f'{title}: {error_name} by epsilon',
      epsilon_label='epsilon of every silo, delta 1/n² for n records',
      value_label=error_name,
  )
  figure.legend(loc='outside lower center', ncols=2, fontsize='small')
  plots.save(figure, path)


def write(
    problem: silo_algorithms.Problem,
    settings: silo_settings.Settings,
    cells: Sequence[silo_cells.Cell],
) -> str:
  """Writes results.json, results.md and errors.png. Returns the Markdown.

  Args:
    problem: Problem that was learned.
    settings: Settings of the runs, with the folder.
    cells: Cells, without the cells of the tuning seeds.
  """
  folder = pathlib.Path(settings.output_dir)
  folder.mkdir(parents=True, exist_ok=True)
  text = report(problem, settings, cells)
  (folder / 'results.md').write_text(text + '\n')
  (folder / 'results.json').write_text(
      json.dumps(
          {
              'problem': problem.name,
              'error': problem.error_name,
              'notes': _notes(problem, settings),
              'verdict': verdict(cells),
              'cells': [cell.to_json() for cell in cells],
          },
          indent=2,
      )
      + '\n'
  )
  plot(problem, cells, folder / 'errors.png')
  return text


def report(
    problem: silo_algorithms.Problem,
    settings: silo_settings.Settings,
    cells: Sequence[silo_cells.Cell],
) -> str:
  """Returns tables, verdict and notes in Markdown."""
  sizes = settings.sizes
  parts = [
      f'# {problem.title}',
      f'{problem.error_name.capitalize()}, mean and standard deviation of'
      f' {flags.counted(settings.seeds, "seed")}. {sizes.rounds} rounds,'
      f' {sizes.one_pass_rounds} of one pass, {sizes.local_steps} local steps,'
      f' clip norm {sizes.l2_norm_clip:g}.',
      table(cells),
      verdict(cells),
      'What every silo spent, (epsilon_i, delta_i), the most over all seeds:',
      spending(cells),
      '\n'.join(f'- {note}' for note in _notes(problem, settings)),
  ]
  if not parts[5]:
    del parts[4:6]
  return '\n\n'.join(part for part in parts if part)


def _notes(
    problem: silo_algorithms.Problem, settings: silo_settings.Settings
) -> list[str]:
  """Returns the notes below the tables."""
  notes = [*problem.notes, _WEIGHTINGS[settings.weighting], *_NOTES]
  if settings.epsilon_factors is not None:
    factors = ', '.join(f'{factor:g}' for factor in settings.epsilon_factors)
    notes.append(
        'Budgets are personal: in the order of the silos, the epsilon of the'
        f' table times {factors}.'
    )
  return notes


def _error(cells: Sequence[silo_cells.Cell]) -> str:
  mean, deviation = mean_and_deviation(cells)
  if math.isnan(deviation):
    return f'{mean:.3f}'
  return f'{mean:.3f} ± {deviation:.3f}'


