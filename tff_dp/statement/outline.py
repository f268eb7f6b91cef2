# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The outline of a statement: texts and tables, before they get a format.

The Markdown page and the report are both made from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tff_dp.accounting import rounding
from tff_dp.statement import plain_words

TITLES = {
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
    'data_name': 'name of the data',
    'epsilon_planned': 'epsilon of all planned rounds',
    'epsilon_rdp': 'epsilon by Renyi DP, for comparison',
    'epsilon_replace_one': 'epsilon under replace-one adjacency',
    'epsilon_without': 'epsilon without amplification',
    'false_positives': 'false positive rate',
    'groups': 'by group',
    'model_name': 'name of the model',
    'responsible': 'responsible person',
    'right_guesses': (
        'right guesses about one of them, at even odds beforehand, at most'
    ),
    'right_guesses_without': 'right guesses without amplification, at most',
    'sigma_eff': 'sigma_eff = noise multiplier / sqrt(S2)',
    'squared_sensitivity': 'squared sensitivity S2, in squared clip norms',
    'true_positives': 'true positive rate at most',
    'zcdp_rho': 'zCDP rho',
}
# Printed with few digits, these numbers must not become smaller.
_ROUNDED_UP = ('epsilon', 'right_guesses', 'true_positives', 'zcdp_rho')
_INFINITE = f'infinite: {plain_words.NO_PRIVACY}'


class Table(NamedTuple):
  """A table of texts.

  Attributes:
    heads: Head of each column.
    rows: Cells of each row.
  """

  heads: tuple[str, ...]
  rows: tuple[tuple[str, ...], ...]


class Item(NamedTuple):
  """A value of a point with its label.

  Attributes:
    label: Name of the value, in words.
    value: A text, several texts, or a table.
  """

  label: str
  value: str | tuple[str, ...] | Table


class Point(NamedTuple):
  """One of the twelve points of a statement.

  Attributes:
    number: Number of the point, from 1.
    title: Heading of the point.
    items: Values of the point with their labels.
  """

  number: int
  title: str
  items: tuple[Item, ...]


class Promise(NamedTuple):
  """The guarantee in a sentence.

  Attributes:
    claim: '(epsilon, delta)-differential privacy' with the numbers, or 'NO
      PRIVACY'. If groups have epsilons of their own, the numbers are in
      `groups`.
    meaning: The rest of the sentence that begins with `claim`: unit, relation,
      amplification and condition. After 'NO PRIVACY' it is ' is guaranteed.'.
    rounds: A sentence with the rounds that are done and planned.
    groups: A line with epsilon and delta for each group that has its own.
  """

  claim: str
  meaning: str
  rounds: str
  groups: tuple[str, ...] = ()


def points(content: Mapping[str, Any]) -> list[Point]:
  """Returns the twelve points of a statement.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  said = content['points']
  return [
      Point(number, title, items(said[name]))
      for number, (name, title) in enumerate(TITLES.items(), 1)
  ]


def items(values: Mapping[str, Any]) -> tuple[Item, ...]:
  """Returns an item for each name and value of a point."""
  return tuple(Item(label(name), _value(name, values[name])) for name in values)


def promise(content: Mapping[str, Any]) -> Promise:
  """Returns the guarantee of a statement, in a sentence.

  Args:
    content: Result of `PrivacyStatement.to_json`.
  """
  said = content['points']
  done = said['mechanism']['rounds_done']
  planned = said['mechanism']['rounds_planned']
  if done:
    rounds = f'{done} of {planned} planned rounds are done.'
  else:
    rounds = f'This is a plan: none of its {planned} rounds is done.'
  if plain_words.is_void(content):
    return Promise(plain_words.NO_PRIVACY, ' is guaranteed.', rounds)
  claimed = said['amplification']['claimed']
  amplified = (
      'without amplification' if claimed == 'none' else f'amplified: {claimed}'
  )
  condition = ''
  if not plain_words.is_verified(content):
    condition = ', if a process follows this plan'
  groups = said['guarantee'].get('groups', ())
  epsilon = text('epsilon', content['epsilon'])
  claim = f'({epsilon}, {rounding.short(content["delta"])})'
  if groups:
    claim = '(epsilon, delta)'
  return Promise(
      f'{claim}-differential privacy',
      f' for each {content["unit"]}, {content["neighboring_relation"]} adjacency,'
      f' {amplified}{condition}.',
      rounds,
      tuple(
          f'{row["name"]}: epsilon {text("epsilon", row["epsilon"])}, delta'
          f' {rounding.short(row["delta"])}'
          for row in groups
      ),
  )


def label(name: str) -> str:
  """Returns the name of a value in words."""
  return _LABELS.get(name, name.replace('_', ' '))


def text(name: str, value: Any) -> str:
  """Returns one value as text. Costs of privacy are rounded up.

  Args:
    name: Name of the value in its point or row.
    value: Value in plain types, not a list or mapping.
  """
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


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
  """Returns the table of rows that have the same names."""
  return Table(
      tuple(map(label, rows[0])),
      tuple(tuple(text(name, row[name]) for name in rows[0]) for row in rows),
  )


def _value(name: str, value: Any) -> str | tuple[str, ...] | Table:
  if isinstance(value, Mapping):
    return tuple(f'{key}: {text(key, value[key])}' for key in value)
  if not isinstance(value, Sequence) or isinstance(value, str):
    return text(name, value)
  if all(isinstance(row, Mapping) for row in value):
    return table(value)
  return tuple(text(name, row) for row in value)
