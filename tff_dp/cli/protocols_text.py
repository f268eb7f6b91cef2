# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a check-in or shuffle protocol certifies, as text."""

from typing import Any

from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.cli import errors


def lines(result: dict[str, Any]) -> list[str]:
  """Returns what `tff-dp account` prints of a certificate in JSON types."""
  if result['is_vacuous']:
    found = ['NO PRIVACY: epsilon is infinite']
  else:
    found = [f'epsilon {_up(result["epsilon"])} at delta {result["delta"]:g}']
  relation = run_events.NeighboringRelation(result['neighboring_relation'])
  parameters = ', '.join(
      f'{errors.flag(name)[2:]} {value}'
      for name, value in result['parameters'].items()
  )
  found += [
      f'  without amplification: {_up(result["epsilon_no_amplification"])}',
      *(f'WARNING: {warning}' for warning in result['warnings']),
      f'unit        {result["unit"]}: all its contributions to the run',
      f'neighbours  {relation.description}',
      f'protocol    {result["protocol"]}: {parameters}',
  ]
  if 'expected_clients_per_slot' in result:
    found.append(
        f'            {result["expected_clients_per_slot"]:.4g} clients per'
        ' slot expected'
    )
  if 'expected_dummy_updates' in result:
    found.append(
        f'            {result["expected_dummy_updates"]:.4g} updates without a'
        ' client expected'
    )
  found += ['', *_table(result)]
  if 'published_uncertified' in result:
    found += ['', *_published(result['published_uncertified'])]
  found += ['', 'This holds if:']
  found += [f'  - {sentence}' for sentence in result['assumptions']]
  return found


def _up(value) -> str:
  return rounding.rounded_up(rounding.from_json_number(value))


def _table(result) -> list[str]:
  """Returns the candidates; * marks the one that is claimed."""
  rows = [('', 'argument', 'epsilon', 'source')]
  for candidate in result['candidates']:
    is_chosen = candidate['bound'] == result['bound']
    said = candidate['reason'] or candidate['source']
    epsilon = candidate['epsilon']
    rows.append((
        '*' if is_chosen else '',
        candidate['bound'],
        '-' if epsilon == 'inf' else _up(epsilon),
        said,
    ))
  return _aligned(rows)


def _published(rows) -> list[str]:
  if not rows:
    return ['No published formula of this kind is known to fail.']
  return [
      'Published formulas that do not hold, UNCERTIFIED:',
      *_aligned([
          (
              '',
              row['formula'],
              row['value'] if row['value'] == 'inf' else f'{row["value"]:.4g}',
              f'UNCERTIFIED: {row["flaw"]}',
          )
          for row in rows
      ]),
  ]


def _aligned(rows) -> list[str]:
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
      '  '.join((
          cells[0].ljust(max(1, widths[0])),
          cells[1].ljust(widths[1]),
          cells[2].rjust(widths[2]),
          cells[3],
      )).rstrip()
      for cells in rows
  ]
