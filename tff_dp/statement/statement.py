# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy statement: what a run guarantees, to whom, on which assumptions.

Twelve points, after Ponomareva et al., arXiv:2303.00654, section 5. A point
that is missing or empty is an error: write 'none', or say that it was not
accounted for.

The JSON form is the statement. The Markdown form is rendered from it alone.
"""

from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.statement import statement_markdown

SCHEMA = 'tff_dp.privacy_statement'
# Of everything that says `kind`: `Plan.headline` and events.json as well.
SCHEMA_VERSION = 2

# What `Plan.headline` gives; the points say more about it.
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
# What each of the twelve points must say. More is welcome.
_ALWAYS = {
    'setting': 'model trusted adversary',
    'unit': 'unit contribution_bound participation max_participations',
    'adjacency': 'relation definition',
    'release': 'covered not_covered',
    'mechanism': 'name parameters rounds_planned rounds_done population',
    'accounting': 'method theorem exactness versions',
    'guarantee': (
        'epsilon epsilon_planned delta delta_reason epsilon_replace_one curve'
    ),
    'amplification': 'claimed assumptions epsilon_without',
    'tuning': 'hyperparameters architecture early_stopping',
    'public_data': 'pretraining public_data preprocessing',
    'implementation': (
        'arithmetic generator key dropouts realised_participation bad_updates'
    ),
    'not_claimed': 'audit heuristics limits',
}
# And what else, by the kind of the plan.
_BY_KIND = {
    'dp_ftrl': {
        'unit': 'min_index_gap min_rounds_between',
        'mechanism': 'noise_multiplier l2_norm_clip clients_per_round',
        'accounting': 'squared_sensitivity',
        'guarantee': 'epsilon_rdp zcdp_rho sigma_eff',
    },
    'check_ins': {
        'mechanism': 'randomizer local_guarantee check_in_rate',
        'accounting': 'bound candidates discretisation',
        'implementation': 'coins',
    },
    'silos': {
        'mechanism': 'noise_multiplier l2_norm_clip',
        'accounting': 'discretisation',
        'guarantee': 'worst_silo silos per_person',
        'implementation': 'coins',
    },
    'draw_and_discard': {
        'mechanism': 'client_step noise_scale num_params server',
        'guarantee': 'epsilon_of_one_report epsilon_pure',
        'implementation': 'coins',
    },
    'secure_sums': {
        'mechanism': 'noise_multiplier l2_norm_clip min_silos',
        'guarantee': 'epsilon_of_own_noise',
        'implementation': 'coins',
    },
}
_BY_KIND['non_private'] = _BY_KIND['dp_ftrl']
REQUIRED_BY_KIND = {
    kind: {
        section: tuple(f'{names} {more.get(section, "")}'.split())
        for section, names in _ALWAYS.items()
    }
    for kind, more in _BY_KIND.items()
}


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """A complete statement, immutable.

  Copies are kept.

  Attributes:
    headline: What `Plan.headline` gives, of the rounds so far; of the plan
      before round 1.
    points: Point -> name -> value, plain types; infinity is 'inf'.
  """

  headline: Mapping[str, Any]
  points: Mapping[str, Mapping[str, Any]]

  def __post_init__(self):
    for name in ('headline', 'points'):
      object.__setattr__(self, name, _copied(getattr(self, name)))
    _check_complete(self.headline, self.points)

  @property
  def kind(self) -> str:
    """Which system it is of, as `Plan.kind`."""
    return self.headline['kind']

  @property
  def warnings(self) -> tuple[str, ...]:
    """Sentences that come before everything else."""
    return tuple(self.headline['warnings'])

  @property
  def epsilon(self) -> float:
    """Epsilon of the rounds so far, of the plan before round 1."""
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
    """Returns the statement that `to_json` described."""
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
    return statement_markdown.render(self.to_json())

  # How a notebook shows it.
  _repr_markdown_ = to_markdown

  def __repr__(self) -> str:
    return f'<PrivacyStatement: {statement_markdown.headline(self.to_json())}>'


def _copied(content: Mapping[str, Any]) -> dict[str, Any]:
  """Returns what a reader of the JSON has: lists for tuples."""
  return json.loads(json.dumps(content))


def _check_complete(
    headline: Mapping[str, Any], points: Mapping[str, Any]
) -> None:
  """Raises unless every point is there and says something."""
  _checks.one_of(tuple(REQUIRED_BY_KIND), kind=headline.get('kind'))
  required = REQUIRED_BY_KIND[headline['kind']]
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
        'the privacy statement is incomplete: nothing is said, or nothing is'
        f' known, about {", ".join(dict.fromkeys(missing))}',
        why='a guarantee cannot be judged without each of its twelve points',
        way_out="fill it in; text may say 'none', but not be empty",
    )


def _empty(path: str, value: Any) -> list[str]:
  """Returns the paths at which nothing is said."""
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
