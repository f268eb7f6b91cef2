# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of `account` and `calibrate` for plans of every kind.

A result is the headline of the plan, with the same fields for every kind, and
`details`, whose fields depend on the kind.
"""

from collections.abc import Callable, Sequence
import json
from typing import Any, Optional

from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.plans import events

_LABEL_WIDTH = 15
_LONG_CELL = 24
_BY_RELATION = 'epsilon_by_neighboring_relation'
_LABELS = {
    'epsilon_rdp': 'by Renyi DP, for comparison with papers',
    'epsilon_published_proofs': 'by published proofs alone',
    'epsilon_per_person': 'for people with that many records in it',
    'epsilon_of_one_report': 'one participation',
    'epsilon_of_added_reports': 'where epsilons are added, without a delta',
    'epsilon_of_one_weight': (
        "one weight (feature-level; not a guarantee for the client's data)"
    ),
}
Facts = list[tuple[str, str]]
# Content of a unit, and the difference of neighbours if the relation's own
# description does not fit.
_UNITS = {
    'client': ('all its contributions to the run', ''),
    'example': ('its gradients in all steps of the run', ''),
    'record': (
        'in every message that uses it',
        'one record is replaced; the number of records is public',
    ),
}
# The run that a command states numbers of.
PlanRun = events.PlanRun
_InWords = Callable[[dict[str, Any]], Optional[Facts]]
# Details of a calibration that are printed elsewhere.
_SOLVED = ('answer', 'solved_for')


def of(run: PlanRun) -> dict[str, Any]:
  """Returns the headline that the plan of a run gives, with its `details`."""
  options = {
      'delta': run.delta, 'num_rounds': run.num_rounds, **run.options
  }
  return run.plan.headline(**options) | {
      'details': run.plan.details(**options, **run.detail_options)
  }


def show(
    result: dict[str, Any], output_format: str, in_words: _InWords
) -> None:
  """Prints a result on stdout.

  Args:
    result: A headline with `details`, in JSON types.
    output_format: 'text' or 'json'.
    in_words: The plan's `details_in_words`.
  """
  if output_format == 'json':
    print(json.dumps(result, indent=2, allow_nan=False))
  else:
    print('\n'.join(_lines(result, in_words)))


def up(value: float | str) -> str:
  """Returns a JSON number as text for people, rounded up."""
  return rounding.rounded_up(rounding.from_json_number(value))


def rounded_down(value: float) -> str:
  """Returns `value` > 0 as text, rounded down.

  Use it for an epsilon that sets the noise: a smaller one means more noise.
  """
  return rounding.rounded_up(value * (1 - 1e-6), digits=7)


def aligned(
    rows: Sequence[Sequence[str]], num_left: Optional[int] = None
) -> list[str]:
  """Returns the lines of a table.

  Args:
    rows: Cells of each row. The number of cells is the same in all rows.
    num_left: Number of first columns that are flush left. The others are flush
      right. Default: all are flush left.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
      '  '.join(
          cell.ljust(width)
          if num_left is None or position < num_left
          else cell.rjust(width)
          for position, (cell, width) in enumerate(zip(row, widths))
      ).rstrip()
      for row in rows
  ]


def _lines(result: dict[str, Any], in_words: _InWords) -> list[str]:
  details = dict(result['details'])
  solution = details.pop('calibration', {})
  said = in_words(details)
  lines = [solution['answer']] if solution else []
  if result['epsilon'] == 'inf':
    lines.append('NO PRIVACY: epsilon is infinite')
    # The number by Renyi DP does not count that draws end.
    if details.pop('epsilon_rdp', 'inf') != 'inf':
      lines.append(
          '  the noise is so small that it matters where its draws end, see'
          ' SECURITY.md'
      )
  else:
    epsilon, delta = up(result['epsilon']), result['delta']
    lines.append(f'epsilon {epsilon} at delta {rounding.short(delta)}')
  if said is None:
    without = up(result['epsilon_no_amplification'])
    lines.append(f'  without amplification: {without}')
  for name, value in details.items():
    if name == _BY_RELATION:
      lines += [
          f'  under {relation} adjacency: {up(epsilon)}'
          for relation, epsilon in value.items()
          if relation != result['neighboring_relation']
      ]
    elif name.startswith('epsilon') and value != 'inf':
      lines.append(f'  {_LABELS.get(name, _words(name))}: {up(value)}')
  lines += [f'WARNING: {warning}' for warning in result['warnings']]
  relation = run_events.NeighboringRelation(result['neighboring_relation'])
  unit, neighbours = _UNITS[result['unit']]
  rows = [
      ('unit', f'{result["unit"]}: {unit}'),
      (
          'neighbours',
          neighbours or relation.description.replace('client', result['unit']),
      ),
      *(
          [('trusted', result['trust']), *_facts(details)]
          if said is None
          else said
      ),
  ]
  # Facts about the noise that was solved for, which are no guarantee.
  rows += _facts({
      name: value for name, value in solution.items() if name not in _SOLVED
  })
  width = max(_LABEL_WIDTH, *(len(label) + 2 for label, _ in rows))
  lines += [f'{label:<{width}}{text}' for label, text in rows]
  for name, value in {**details, **solution}.items():
    if isinstance(value, dict):
      value = [
          {_words(name).removesuffix('s'): key, **row}
          for key, row in value.items()
          if isinstance(row, dict)
      ]
    if isinstance(value, list) and value and isinstance(value[0], dict):
      title = _LABELS.get(name, _words(name))
      lines += ['', f'{title}:', *_table(value, details.get('bound'))]
  if result['assumptions']:
    lines += ['', 'This holds if:']
    lines += [f'  - {sentence}' for sentence in result['assumptions']]
  return lines


def _facts(details: dict[str, Any]) -> Facts:
  """Returns a line for each detail that is neither an epsilon nor a table."""
  found = []
  for name, value in details.items():
    if value is None or name.startswith('epsilon'):
      continue
    if isinstance(value, dict) and not any(
        isinstance(each, dict) for each in value.values()
    ):
      value = ', '.join(
          f'{_words(key)} {_cell(key, each)}'
          for key, each in value.items()
          if each is not None
      )
    if isinstance(value, list) and not any(
        isinstance(each, dict) for each in value
    ):
      value = '; '.join(map(str, value)) or 'none'
    if not isinstance(value, (list, dict)):
      found.append((_LABELS.get(name, _words(name)), _cell(name, value)))
  return found


def _table(rows: list[dict[str, Any]], chosen: Optional[str]) -> list[str]:
  """Returns a table. * marks the row whose epsilon is claimed."""
  columns = [name for name in rows[0] if not isinstance(rows[0][name], dict)]
  cells = {
      name: [_cell(name, row[name]) for row in rows] for name in columns
  }
  # Columns with long cells come last.
  columns.sort(key=lambda name: len(max(cells[name], key=len)) > _LONG_CELL)
  marks = [
      '*' if chosen is not None and row.get('bound') == chosen else ' '
      for row in rows
  ]
  table = [[_words(name), *cells[name]] for name in columns]
  return aligned(list(zip([' ', *marks], *table)))


def _cell(name: str, value: Any) -> str:
  if value is None:
    return 'none'
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if name.startswith(('epsilon', 'delta')):
    return '-' if value == 'inf' else up(value)
  if name == 'noise_multiplier':
    return rounding.rounded_up(value, digits=7)
  return f'{value:.6g}' if isinstance(value, float) else str(value)


def _words(name: str) -> str:
  return name.replace('_', ' ')
