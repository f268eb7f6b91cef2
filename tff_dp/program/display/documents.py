# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The report and the picture of a run, made from its folder `release/` alone.

So the two files cannot show anything that is not released.
"""

from collections.abc import Iterable, Sequence
import csv
import math
import os
import pathlib

from tff_dp.files import regular
from tff_dp.files import run_directory
from tff_dp.program.display import plots
from tff_dp.statement import charts
from tff_dp.statement import report
from tff_dp.statement import statement as statement_lib

CURVES = 'curves.png'
_SIGNAL = '/snr'
# A chart of more points looks the same.
_MOST_POINTS = 500


def write(release: os.PathLike, *, evaluated: Iterable[str]) -> report.Course:
  """Writes `report.html` and `curves.png`. Returns the course that they show.

  A course is the released metrics and epsilons of a run.

  Args:
    release: Folder `release/` of a run, for the two files. It has statement,
      metrics, configuration and environment. `curves.png` is left out if there
      is nothing to draw.
    evaluated: Names of the columns of `metrics.csv` that hold evaluations.
  """
  release = pathlib.Path(release)
  statement = statement_lib.PrivacyStatement.from_json(
      regular.read_json(release / 'privacy_statement.json')
  )
  course = read_course(release, evaluated=evaluated)
  plots.write_curves(release / CURVES, statement, course)
  run_directory.write_atomically(
      release / run_directory.REPORT, report.page(statement, course)
  )
  return course


def read_course(
    release: pathlib.Path, *, evaluated: Iterable[str]
) -> report.Course:
  """Returns the course of a run. For the arguments, see `write`."""
  series = _read_series(release / 'metrics.csv')
  shown = [*evaluated, *(name for name in series if name.startswith(charts.PRIVATE))]
  signal = [name for name in series if name.endswith(_SIGNAL)]
  program = regular.read_json(release / 'config.json')['program']
  environment = regular.read_json(release / 'environment.json')
  return report.Course(
      metrics={name: series[name] for name in shown if series[name].rounds},
      epsilons=series.get('epsilon', charts.Series((), ())),
      signal_to_noise=series[signal[0]] if signal else None,
      epsilon_budget=program['epsilon_budget'],
      last_started=environment['written_on'],
  )


def _read_series(path: os.PathLike) -> dict[str, charts.Series]:
  """Returns the finite numbers of each column by round, thinned for charts."""
  found = {}
  with open(regular.open_file(path), newline='', encoding='utf-8') as file:
    for row in csv.DictReader(file):
      for column, text in row.items():
        rounds, values = found.setdefault(column, ([], []))
        value = _number(text)
        if math.isfinite(value):
          rounds.append(int(row['round']))
          values.append(value)
  return {
      column: charts.Series(_thinned(rounds), _thinned(values))
      for column, (rounds, values) in found.items()
  }


def _number(text: str) -> float:
  try:
    return float(text)
  except ValueError:  # Empty, or a word.
    return math.nan


def _thinned(values: Sequence) -> list:
  """Returns about 500 of the values at most, evenly spread, and the last one.
  """
  stride = -(-len(values) // _MOST_POINTS) or 1
  kept = list(values[::stride])
  if len(values) and (len(values) - 1) % stride:
    kept.append(values[-1])
  return kept
