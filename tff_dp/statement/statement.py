# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy statement: a run's guarantee, whom it protects, assumptions.

It has twelve points, after Ponomareva et al., arXiv:2303.00654, section 5. A
point that is missing or empty is an error: write 'none', or say that it was not
accounted for.

The JSON form is the statement. The Markdown form is rendered from it alone.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from tff_dp import _checks
from tff_dp import systems
from tff_dp.accounting import rounding
from tff_dp.statement import outline
from tff_dp.statement import plain_words
from tff_dp.statement import report

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


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """A privacy statement with all twelve points.

  It copies its arguments, and its attributes cannot be set. Do not change the
  dictionaries in them.

  Attributes:
    headline: Result of `Plan.headline` for the rounds so far. Before round 1,
      for the whole plan.
    points: The twelve points. Each maps the names of its values to values in
      plain types. Infinity is 'inf'.
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
    """Warnings, as sentences. The statement begins with them."""
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
    """Returns the statement whose `to_json` returned `content`.

    Raises:
      PrivacyRefusedError: If the schema or its version is unknown, or if the
        statement is incomplete.
      ArgumentError: If no system has the statement's kind.
    """
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

  def to_html(self) -> str:
    """Returns the statement as an HTML page, see `report`."""
    return report.page(self)

  # Notebooks show the HTML, or the Markdown where they show no HTML.
  _repr_markdown_ = to_markdown

  def _repr_html_(self) -> str:
    return report.fragment(self)

  def __repr__(self) -> str:
    return f'<PrivacyStatement: {headline(self.to_json())}>'


def _copied(content: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the content as read back from JSON, with lists for tuples."""
  return json.loads(json.dumps(content))


def required_names(kind: str) -> dict[str, tuple[str, ...]]:
  """Returns the names of the values that a statement must have, by point.

  Args:
    kind: The plan's kind.

  Raises:
    ArgumentError: If no system has this kind.
  """
  more = systems.of(kind).points
  return {
      section: tuple(f'{names} {more.get(section, "")}'.split())
      for section, names in _ALWAYS.items()
  }


def _check_complete(
    headline: Mapping[str, Any], points: Mapping[str, Any]
) -> None:
  """Raises `PrivacyRefusedError` if a statement is not complete.

  It is not complete if

  * a required value is missing,
  * a value of a point or a warning is empty, or
  * a point is not one of the twelve.
  """
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
        'the privacy statement has missing, empty or unknown values:'
        f' {", ".join(dict.fromkeys(missing))}',
        why='a guarantee cannot be judged without each of its twelve points',
        way_out='fill in the missing and empty values, and leave out the'
        " unknown ones; a text may be 'none', but not empty",
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
  lines = ['# Privacy statement', '']
  for warning in content['warnings']:
    lines += [f'**{warning}**', '']
  lines += [plain_words.paragraph(content), '', headline(content)]
  for point in outline.points(content):
    lines += ['', f'## {point.number}. {point.title}', '']
    for item in point.items:
      lines += _item(item)
  return '\n'.join(lines) + '\n'


def headline(content: Mapping[str, Any]) -> str:
  """Returns a line with epsilon, delta, unit and relation, in Markdown.

  Groups that have an epsilon and a delta of their own follow in a list.
  """
  said = outline.promise(content)
  claim = said.claim
  if not plain_words.is_void(content):
    claim = f'**{claim}**'
  line = f'{claim}{said.meaning} {said.rounds}'
  return '\n'.join([line, '', *(f'- {row}' for row in said.groups)]).rstrip()


def _item(item: outline.Item) -> list[str]:
  """Returns the lines of one item: a line, a nested list or a table."""
  label, value = item
  if isinstance(value, str):
    return [f'- {label}: {value}']
  if not isinstance(value, outline.Table):
    return [f'- {label}:', *(f'  - {line}' for line in value)]
  rows = [value.heads, *value.rows]
  lines = ['  | ' + ' | '.join(row) + ' |' for row in rows]
  lines.insert(1, '  |' + '---|' * len(value.heads))
  return [f'- {label}:', '', *lines]
