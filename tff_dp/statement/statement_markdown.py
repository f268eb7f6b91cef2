# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The Markdown form of a privacy statement, from its JSON form alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from tff_dp.accounting import rounding
from tff_dp.statement import plain_words

_TITLES = {
    'setting': 'Setting and trust',
    'unit': 'Unit of privacy',
    'adjacency': 'Neighbouring data sets',
    'release': 'What is released',
    'mechanism': 'Mechanism',
    'accounting': 'Accounting',
    'guarantee': 'Guarantee',
    'amplification': 'Amplification',
    'tuning': 'Tuning, architecture search, early stopping',
    'public_data': 'Pretraining and public data',
    'implementation': 'Implementation',
    'not_claimed': 'Not claimed',
}
_LABELS = {
    'epsilon_planned': 'epsilon of all planned rounds',
    'epsilon_rdp': 'epsilon by Renyi DP, for comparison',
    'epsilon_replace_one': 'epsilon under replace-one adjacency',
    'epsilon_without': 'epsilon without amplification',
    'sigma_eff': 'sigma_eff = noise multiplier / sqrt(S2)',
    'squared_sensitivity': 'squared sensitivity S2, in squared clip norms',
    'zcdp_rho': 'zCDP rho',
}
# These may not be understated by printing fewer digits.
_ROUNDED_UP = ('epsilon', 'zcdp_rho')
_INFINITE = f'infinite: {plain_words.NO_PRIVACY}'


def render(content: Mapping[str, Any]) -> str:
  """Returns the page, ending with a newline.

  Args:
    content: What `PrivacyStatement.to_json` returned.
  """
  points = content['points']
  lines = ['# Privacy statement', '']
  for warning in content['warnings']:
    lines += [f'**{warning}**', '']
  lines += [plain_words.paragraph(content), '', headline(content)]
  for number, (point, title) in enumerate(_TITLES.items(), 1):
    lines += ['', f'## {number}. {title}', '']
    for name, value in points[point].items():
      lines += _item(name, value)
  return '\n'.join(lines) + '\n'


def headline(content: Mapping[str, Any]) -> str:
  """Returns epsilon, delta, unit and relation in a line."""
  points = content['points']
  done = points['mechanism']['rounds_done']
  planned = points['mechanism']['rounds_planned']
  if done:
    when = f'{done} of {planned} planned rounds are done.'
  else:
    when = f'This is a plan: none of its {planned} rounds is done.'
  if plain_words.is_void(content):
    return f'{plain_words.NO_PRIVACY} is guaranteed. {when}'
  epsilon = _text('epsilon', content['epsilon'])
  claimed = points['amplification']['claimed']
  amplified = (
      'without amplification' if claimed == 'none' else f'amplified: {claimed}'
  )
  return (
      f'**({epsilon}, {content["delta"]:g})-differential privacy** for each'
      f' {content["unit"]}, {content["neighboring_relation"]} adjacency,'
      f' {amplified}. {when}'
  )


def _item(name: str, value: Any) -> list[str]:
  """Returns the lines of one item: a line, a nested list or a table."""
  label = _LABELS.get(name, name.replace('_', ' '))
  if isinstance(value, Mapping):
    return [f'- {label}:'] + [
        f'  - {key}: {_text(key, inner)}' for key, inner in value.items()
    ]
  if isinstance(value, Sequence) and not isinstance(value, str):
    if all(isinstance(row, Mapping) for row in value):
      return _table(label, value)
    return [f'- {label}:'] + [f'  - {_text(name, row)}' for row in value]
  return [f'- {label}: {_text(name, value)}']


def _table(label: str, rows: Sequence[Mapping[str, Any]]) -> list[str]:
  columns = list(rows[0])
  heads = [_LABELS.get(column, column) for column in columns]
  lines = [f'- {label}:', '', '  | ' + ' | '.join(heads) + ' |']
  lines.append('  |' + '---|' * len(columns))
  for row in rows:
    cells = [_text(column, row[column]) for column in columns]
    lines.append('  | ' + ' | '.join(cells) + ' |')
  return lines


def _text(name: str, value: Any) -> str:
  if isinstance(value, bool):
    return 'yes' if value else 'no'
  if name.startswith(_ROUNDED_UP):
    if value == 'inf':
      return _INFINITE
    if isinstance(value, (int, float)):
      return rounding.rounded_up(value)
  if isinstance(value, float):
    return f'{value:.6g}'
  return str(value)
