# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy statement: the guarantee of a run, to whom, on which assumptions.

It has twelve points, after Ponomareva et al., arXiv:2303.00654, section 5. A
point that is missing or empty is an error: write 'none', or say that it was not
accounted for.

The JSON form is the statement. The Markdown form is rendered from it alone.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import json
from typing import Any

from tff_dp import _checks
from tff_dp import systems
from tff_dp.accounting import rounding
from tff_dp.statement import plain_words

SCHEMA = 'tff_dp.privacy_statement'
# Version of all files with the key `kind`: `Plan.headline` and events.json too.
SCHEMA_VERSION = 2

# Keys of `Plan.headline`. The points say more about them.
_HEADLINE = (
    'kind',
    'schema_version',
    'epsilon',
    'delta',
    'epsilon_no_amplification',
    'unit',
    'neighboring_relation',
    'trust',
    'assumptions',
    'warnings',
    'plan',
)
# Required names in each of the twelve points. Systems require more.
_ALWAYS = {
    'setting': 'model trusted adversary',
    'unit': 'unit contribution_bound participation max_participations',
    'adjacency': 'relation definition',
    'release': 'covered not_covered',
    'mechanism': 'name parameters rounds_planned rounds_done population',
    'accounting': 'method theorem exactness versions',
    'guarantee': (
        'epsilon epsilon_planned delta delta_reason delta_of_tails'
        ' epsilon_replace_one right_guesses level attacks curve'
    ),
    'amplification': 'claimed assumptions epsilon_without right_guesses_without',
    'tuning': 'hyperparameters architecture early_stopping',
    'public_data': 'pretraining public_data preprocessing',
    'implementation': (
        'arithmetic tails generator key dropouts realised_participation'
        ' bad_updates process'
    ),
    'not_claimed': 'audit heuristics limits',
}
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
    'false_positives': 'false positive rate',
    'groups': 'by group',
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


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """A complete, immutable statement.

  It copies its arguments.

  Attributes:
    headline: Result of `Plan.headline` for the rounds so far. Before round 1,
      for the whole plan.
    points: Point -> name -> value, in plain types. Infinity is 'inf'.
  """

  headline: Mapping[str, Any]
  points: Mapping[str, Mapping[str, Any]]

  def __post_init__(self):
    for name in ('headline', 'points'):
      object.__setattr__(self, name, _copied(getattr(self, name)))
    _check_complete(self.headline, self.points)

  @property
  def kind(self) -> str:
    """Name of the system, as in `Plan.kind`."""
    return self.headline['kind']

  @property
  def warnings(self) -> tuple[str, ...]:
    """Sentences that come before everything else."""
    return tuple(self.headline['warnings'])

  @property
  def epsilon(self) -> float:
    """Epsilon of the rounds so far. Before round 1, of the whole plan."""
    return rounding.from_json_number(self.headline['epsilon'])

  @property
  def delta(self) -> float:
    """The delta of `epsilon`."""
    return self.headline['delta']

  def to_json(self) -> dict[str, Any]:
    """Returns the statement as plain types."""
    content = {'schema': SCHEMA, **self.headline, 'points': self.points}
    return _copied(content)

  @classmethod
  def from_json(cls, content: Mapping[str, Any]) -> 'PrivacyStatement':
    """Returns the statement whose `to_json` returned `content`."""
    is_known = (
        content.get('schema') == SCHEMA
        and content.get('schema_version') == SCHEMA_VERSION
    )
    if not is_known:
      raise _checks.PrivacyRefusedError(
          'the privacy statement is of an unknown schema or version',
          why='its points cannot be read',
          way_out='read it with the version of tff_dp that wrote it; this one'
          f' knows {SCHEMA} version {SCHEMA_VERSION}',
      )
    headline = {name: content[name] for name in _HEADLINE if name in content}
    return cls(headline, content.get('points', {}))

  def to_markdown(self) -> str:
    """Returns the statement as a Markdown page."""
    return render(self.to_json())

  # Notebooks call this to show a statement.
  _repr_markdown_ = to_markdown

  def __repr__(self) -> str:
    return f'<PrivacyStatement: {headline(self.to_json())}>'


def _copied(content: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the content as read back from JSON, with lists for tuples."""
  return json.loads(json.dumps(content))


def required_names(kind: str) -> dict[str, tuple[str, ...]]:
  """Returns the names that each of the twelve points of a statement must have.

  Args:
    kind: The plan's kind.
  """
  more = systems.of(kind).points
  return {
      section: tuple(f'{names} {more.get(section, "")}'.split())
      for section, names in _ALWAYS.items()
  }


def _check_complete(
    headline: Mapping[str, Any], points: Mapping[str, Any]
) -> None:
  """Raises unless every point is present and not empty."""
  kind: Any = headline.get('kind')
  required = required_names(kind)
  missing = [name for name in _HEADLINE if name not in headline]
  for section, names in required.items():
    values = points.get(section)
    if not isinstance(values, Mapping):
      missing.append(section)
      continue
    missing += [f'{section}.{name}' for name in names if name not in values]
    missing += _empty(section, values)
  missing += [name for name in points if name not in required]
  missing += ['warnings'] if not all(headline.get('warnings', ())) else []
  if missing:
    raise _checks.PrivacyRefusedError(
        'the privacy statement is incomplete: nothing is said about'
        f' {", ".join(dict.fromkeys(missing))}',
        why='a guarantee cannot be judged without each of its twelve points',
        way_out="fill it in; text may say 'none', but not be empty",
    )


def _empty(path: str, value: Any) -> list[str]:
  """Returns the paths of the empty values."""
  if value is None or value != value:  # NaN is unequal to itself.
    return [path]
  if isinstance(value, str):
    return [] if value.strip() else [path]
  if isinstance(value, Mapping):
    children = [(f'{path}.{name}', child) for name, child in value.items()]
  elif isinstance(value, (list, tuple)):
    children = [(f'{path}[{i}]', child) for i, child in enumerate(value)]
  else:
    return []
  if not children:
    return [path]
  return [place for name, child in children for place in _empty(name, child)]


def render(content: Mapping[str, Any]) -> str:
  """Returns the Markdown page of a statement, ending with a newline.

  Args:
    content: Result of `PrivacyStatement.to_json`.
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
  """Returns a line with epsilon, delta, unit and relation.

  Groups that have an epsilon and a delta of their own follow in a list.
  """
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
  condition = ''
  if not plain_words.is_verified(content):
    condition = ', if a process follows this plan'
  groups = points['guarantee'].get('groups', ())
  promise = f'({epsilon}, {content["delta"]:g})-differential privacy'
  if groups:
    promise = '(epsilon, delta)-differential privacy'
  line = (
      f'**{promise}** for each {content["unit"]},'
      f' {content["neighboring_relation"]} adjacency, {amplified}{condition}.'
      f' {when}'
  )
  rows = [
      f'- {row["name"]}: epsilon {_text("epsilon", row["epsilon"])}, delta'
      f' {row["delta"]:g}'
      for row in groups
  ]
  return '\n'.join([line, '', *rows] if rows else [line])


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
