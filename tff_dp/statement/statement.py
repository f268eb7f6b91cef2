# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy statement: what a run guarantees, to whom, on which assumptions.

Twelve points, after Ponomareva et al., arXiv:2303.00654, section 5. A point
that is missing or empty is an error: write 'none', or say that it was not
accounted for.

The JSON form is the statement. The Markdown form is rendered from it alone.
"""

from collections.abc import Mapping
import copy
import dataclasses
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.statement import statement_facts
from tff_dp.statement import statement_markdown
from tff_dp.statement import statement_sections

SCHEMA = 'tff_dp.privacy_statement'
SCHEMA_VERSION = 1

StatementFacts = statement_facts.StatementFacts

# What each of the twelve points must say. More is welcome.
_ALWAYS = {
    'setting': ('model', 'trusted', 'adversary'),
    'unit': (
        'unit',
        'contribution_bound',
        'participation',
        'max_participations',
    ),
    'adjacency': ('relation', 'definition'),
    'release': ('covered', 'not_covered'),
    'mechanism': (
        'name',
        'parameters',
        'rounds_planned',
        'rounds_done',
        'population',
    ),
    'accounting': ('method', 'theorem', 'exactness', 'versions'),
    'guarantee': (
        'epsilon',
        'epsilon_planned',
        'delta',
        'delta_reason',
        'epsilon_replace_one',
        'curve',
    ),
    'amplification': ('claimed', 'assumptions', 'epsilon_without'),
    'tuning': ('hyperparameters', 'architecture', 'early_stopping'),
    'public_data': ('pretraining', 'public_data', 'preprocessing'),
    'implementation': (
        'arithmetic',
        'generator',
        'key',
        'dropouts',
        'realised_participation',
        'bad_updates',
    ),
    'not_claimed': ('audit', 'heuristics', 'limits'),
}
# And what else, by who decides who takes part.
SCHEDULE, PROTOCOL, SILOS = 'schedule', 'protocol', 'silos'
DRAW_AND_DISCARD = 'draw_and_discard'
_BY_KIND = {
    SCHEDULE: {
        'unit': ('min_index_gap', 'min_rounds_between'),
        'mechanism': ('noise_multiplier', 'l2_norm_clip', 'clients_per_round'),
        'accounting': ('squared_sensitivity',),
        'guarantee': ('epsilon_rdp', 'zcdp_rho', 'sigma_eff'),
    },
    PROTOCOL: {
        'mechanism': ('randomizer', 'local_guarantee', 'check_in_rate'),
        'accounting': ('bound', 'candidates', 'discretisation'),
        'implementation': ('coins',),
    },
    SILOS: {
        'mechanism': ('noise_multiplier', 'l2_norm_clip'),
        'accounting': ('discretisation',),
        'guarantee': ('worst_silo', 'silos', 'per_person'),
        'implementation': ('coins',),
    },
    DRAW_AND_DISCARD: {
        'mechanism': ('client_step', 'noise_scale', 'num_params', 'server'),
        'guarantee': ('epsilon_of_one_report', 'epsilon_pure'),
        'implementation': ('coins',),
    },
}
REQUIRED_BY_KIND = {
    kind: {
        section: names + more.get(section, ())
        for section, names in _ALWAYS.items()
    }
    for kind, more in _BY_KIND.items()
}
REQUIRED = REQUIRED_BY_KIND[SCHEDULE]


@dataclasses.dataclass(frozen=True)
class PrivacyStatement:
  """A complete statement, immutable.

  Attributes:
    points: Point -> name -> value, plain types; infinity is 'inf'. A copy is
      kept.
    warnings: Sentences that come before everything else.
    kind: Who decides who takes part: the server by a 'schedule', clients by a
      'protocol', or 'silos'; or 'draw_and_discard'.
  """

  points: Mapping[str, Mapping[str, Any]]
  warnings: tuple[str, ...] = ()
  kind: str = SCHEDULE

  def __post_init__(self):
    object.__setattr__(self, 'points', copy.deepcopy(dict(self.points)))
    object.__setattr__(self, 'warnings', tuple(self.warnings))
    _checks.one_of(tuple(REQUIRED_BY_KIND), kind=self.kind)
    _check_complete(self.points, self.warnings, REQUIRED_BY_KIND[self.kind])

  @property
  def epsilon(self) -> float:
    """Epsilon of the rounds so far, of the plan before round 1."""
    return rounding.from_json_number(self.points['guarantee']['epsilon'])

  @property
  def delta(self) -> float:
    """The delta of `epsilon`."""
    return self.points['guarantee']['delta']

  def to_json(self) -> dict[str, Any]:
    """Returns the statement as plain types."""
    return {
        'schema': SCHEMA,
        'schema_version': SCHEMA_VERSION,
        # Without it a reader of version 1 finds what it has always found.
        **({} if self.kind == SCHEDULE else {'kind': self.kind}),
        'warnings': list(self.warnings),
        'points': copy.deepcopy(self.points),
    }

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
    return cls(
        content['points'],
        tuple(content['warnings']),
        content.get('kind', SCHEDULE),
    )

  def to_markdown(self) -> str:
    """Returns the statement as a Markdown page."""
    return statement_markdown.render(self.to_json())

  # How a notebook shows it.
  _repr_markdown_ = to_markdown

  def __repr__(self) -> str:
    return f'<PrivacyStatement: {statement_markdown.headline(self.to_json())}>'


def build_statement(facts: StatementFacts) -> PrivacyStatement:
  """Returns the statement of a run.

  Raises:
    PrivacyRefusedError: If a point is missing or empty.
  """
  return PrivacyStatement(
      statement_sections.points(facts), statement_sections.warnings(facts)
  )


def _check_complete(
    points: Mapping[str, Any],
    warnings: tuple[str, ...],
    required: Mapping[str, tuple[str, ...]],
) -> None:
  """Raises unless every point is there and says something."""
  missing = []
  for section, names in required.items():
    values = points.get(section)
    if not isinstance(values, Mapping):
      missing.append(section)
      continue
    missing += [f'{section}.{name}' for name in names if name not in values]
    missing += _empty(section, values)
  missing += [name for name in points if name not in required]
  missing += ['warnings'] if not all(warnings) else []
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
