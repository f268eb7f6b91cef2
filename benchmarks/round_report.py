# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The tables of `benchmarks.round_time`, and its targets."""

from typing import Optional

_AT_MOST, _AT_LEAST = 'at most', 'at least'


def _line(cells, widths) -> str:
  first, *rest = [
      cell.ljust(width) if index == 0 else cell.rjust(width)
      for index, (cell, width) in enumerate(zip(cells, widths))
  ]
  return '| ' + ' | '.join([first, *rest]) + ' |'


def _markdown(header, rows) -> str:
  widths = [max(map(len, column)) for column in zip(header, *rows)]
  rule = '|' + '|'.join('-' * (width + 2) for width in widths) + '|'
  return '\n'.join(
      [_line(header, widths), rule, *(_line(row, widths) for row in rows)]
  )


def _number(value: Optional[float], places: int = 2) -> str:
  return '' if value is None else f'{value:.{places}f}'


def targets(rows: list[dict[str, object]]) -> list[dict[str, object]]:
  """Returns what the in-process context has to reach, and whether it does.

  Args:
    rows: `round_time.summary`. Targets whose rows are absent are left out.
  """
  by_name = {row['row']: row for row in rows}
  found = []
  for name, figure, what, sense, bound in (
      ('in_process/dp_ftrl', 'cpu_over_floor', 'build_dp_ftrl / floor, CPU',
       _AT_MOST, 1.5),
      ('in_process_default/mean', 'cpu_over_floor',
       'default loop / floor, CPU', _AT_MOST, 3.0),
      ('native_default/mean', 'over_in_process',
       'native default loop / in-process', _AT_LEAST, 1.5),
      ('pfl/mean', 'over_in_process', 'pfl-research / in-process',
       _AT_LEAST, 1.0),
  ):  # pyformat: disable
    if name in by_name and by_name[name][figure] is not None:
      found.append((what, by_name[name][figure], sense, bound))
  for aggregation in ('tree', 'dp_aggregator'):
    row = by_name.get(f'in_process/{aggregation}')
    if row is not None and row['over_own_mean'] is not None:
      what = f'in-process {aggregation} / mean'
      found.append((what, row['over_own_mean'], _AT_MOST, 1.05))
  return [
      {
          'target': f'{what} {sense} {bound}',
          'measured': ratio,
          'met': ratio <= bound if sense == _AT_MOST else ratio >= bound,
      }
      for what, ratio, sense, bound in found
  ]


def table(name: str, result: dict[str, object]) -> str:
  """Returns the report on one model."""
  title = (
      f'{name}: {result["parameters"]:,} parameters,'
      f' {result["clients"]} clients x {result["examples_per_client"]} examples'
      f' in batches of {result["batch_size"]},'
      f' medians of {result["repetitions"]} repetitions'
  )
  cells = [
      (
          row['row'] + (' (floor)' if row['is_floor'] else ''),
          _number(row['first_seconds']),
          _number(row['median_seconds'], 3),
          _number(row['over_one_by_one']),
          _number(row['over_own_mean']),
          _number(1e3 * row['median_cpu_seconds'] / result['clients'], 3),
          _number(row['cpu_over_floor']),
          f'{row["difference"]:.0e}',
      )
      for row in result['rows']
  ]
  header = (
      'row', 'first s', 'round s', '/ one_by_one', '/ own mean',
      'CPU ms a client', '/ floor', 'difference',
  )  # pyformat: disable
  lines = ['', title, '', _markdown(header, cells), '']
  for row, reason in result['absent'].items():
    lines.append(f'absent: {row}, {reason}')
  for target in result['targets']:
    verdict = 'met' if target['met'] else 'MISSED'
    lines.append(f'{target["target"]}: {target["measured"]:.3f}, {verdict}')
  return '\n'.join(lines)


def environment(facts: dict[str, object]) -> str:
  return '\n' + ', '.join(f'{key} {value}' for key, value in facts.items())
