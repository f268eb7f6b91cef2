# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The command `python -m tasks reproduce`: lists the rows, runs one."""

import argparse
import dataclasses
import datetime
import pathlib
import time

from tasks.common import digits_data
from tasks.reproduce import page
from tasks.reproduce import rows
from tasks.reproduce import table
from tasks.reproduce import trials
from tff_dp import _checks

_RESULT, _FIGURE = 'result.json', 'figure.png'


@dataclasses.dataclass(frozen=True)
class Settings:
  """The settings of the command. The fields are the flags.

  Attributes:
    name: Name of the row to run, `None` to list all rows.
    scale: Share of the paper's rounds, in (0, 1].
    seeds: Number of seeds, `None` for the paper's number of trials.
    output_dir: Folder of the run, `None` for runs/reproduce/NAME.
    data: Path of the user's data, `None` for the task's own places.
    keep: Whether to go on from the trials in the repository, to store each new
      one there as soon as it ends, and to replace result and figure.
    write_page: Whether to write docs/reproductions.md, and nothing else.
  """

  name: str | None = None
  scale: float = 1.0
  seeds: int | None = None
  output_dir: str | None = None
  data: str | None = None
  keep: bool = False
  write_page: bool = False

  def __post_init__(self):
    if not 0 < self.scale <= 1:
      raise _checks.ArgumentError(
          'scale', self.scale, 'a number above 0 and at most 1'
      )
    _checks.optional_integer_at_least(1, seeds=self.seeds)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds the flags."""
  parser.description = __doc__
  parser.add_argument(
      'name',
      nargs='?',
      choices=list(table.BY_NAME),
      metavar='NAME',
      help='the row to run (default: list them all)',
  )
  parser.add_argument(
      '--scale',
      type=float,
      default=1.0,
      help='share of the rounds or updates, in (0, 1] (default: 1)',
  )
  parser.add_argument(
      '--seeds',
      type=int,
      help="seeds of each part (default: the paper's number)",
  )
  parser.add_argument(
      '--output-dir',
      help='folder of the run; the same command resumes in it (default:'
      ' runs/reproduce/NAME)',
  )
  parser.add_argument(
      '--data', metavar='PATH', help="your copy of the data, as for the row's task"
  )
  parser.add_argument(
      '--keep',
      action='store_true',
      help='go on from the trials in the repository instead of repeating them,'
      ' store each new one there as soon as it ends, replace result and figure,'
      ' and write the page',
  )
  parser.add_argument(
      '--write-page',
      action='store_true',
      help='write docs/reproductions.md and its figures from the results in the'
      ' repository',
  )


def main(settings: Settings, *, progress: str) -> int:
  """Does what the flags say and returns the exit code."""
  if settings.write_page:
    page.write_figures()
    page.write()
    print(page.PATH)
  elif settings.name is None:
    print(listed())
  else:
    row = table.BY_NAME[settings.name]
    if row.run is None:
      print(f'{row.paper}, {row.item}: {page.verdict(row)}. {row.why_not}')
      return 0
    _run(row, settings, progress)
  return 0


def listed() -> str:
  """Returns a line for each row."""
  lines = []
  for row in table.ROWS:
    lines.append(
        f'{row.name:<30} {row.kind:<10} {_has_data(row):<9}'
        f' {page.verdict(row):<24} {row.paper}, {row.item}'
    )
  head = f'{"name":<30} {"kind":<10} {"data":<9} {"verdict":<24} of what'
  return '\n'.join([head, *lines])


def run_row(row: rows.Row, run: rows.Run) -> rows.Result:
  """Returns the result of a row, with numbers of six digits.

  Args:
    row: Row that has a `run`.
    run: Scale, seeds, folder and data of the run.
  """
  content = trials.rounded(row.run(run).to_json())
  return rows.Result.from_json(content)


def _run(row: rows.Row, settings: Settings, progress: str) -> None:
  folder = pathlib.Path(settings.output_dir or f'runs/reproduce/{row.name}')
  folder.mkdir(parents=True, exist_ok=True)
  seeds = settings.seeds or row.seeds
  kept = trials.Trials(
      rows.trials_of(folder),
      # Without --keep, a reader repeats the experiment.
      stored=page.trials_of(row.name) if settings.keep else None,
      is_quiet=progress == 'quiet',
  )
  start = time.monotonic()
  result = run_row(
      row,
      rows.Run(
          scale=settings.scale,
          seeds=seeds,
          output_dir=folder,
          data=settings.data,
          progress=progress,
          trials=kept,
      ),
  )
  # The hours of trials include attempts that were stopped, and other machines.
  hours = kept.hours
  if hours is None:
    hours = (time.monotonic() - start) / 3600
  command = f'python -m tasks reproduce {row.name}'
  if settings.scale != 1:
    command += f' --scale {settings.scale:g}'
  if settings.seeds is not None:
    command += f' --seeds {settings.seeds}'
  if settings.data is not None:
    command += f' --data {pathlib.Path(settings.data).name}'
  content = {
      'name': row.name,
      'command': command,
      'seeds': seeds,
      'scale': settings.scale,
      'date': datetime.date.today().isoformat(),
      'hours': float(f'{hours:.2g}'),
      **result.to_json(),
  }
  text = page.json_text(content)
  (folder / _RESULT).write_text(text)
  if settings.keep:
    page.path_of(row.name).write_text(text)
    if result.curves:
      figure = page.figure_of(row.name)
      figure.parent.mkdir(exist_ok=True)
      page.draw(row, content, figure)
    page.write()
  print(page.section(row, content))
  if result.curves:
    page.draw(row, content, folder / _FIGURE)
    print(folder / _FIGURE)
  print(folder / _RESULT)


def _has_data(row: rows.Row) -> str:
  """Returns whether the data of a row is on this machine."""
  if not row.data:
    return 'none'
  if row.source is None:
    return 'yours'
  try:
    row.source()
  except digits_data.DataFileError:
    return 'not here'
  return 'here'
