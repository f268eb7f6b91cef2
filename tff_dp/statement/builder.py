# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the privacy statement of any plan.

This module writes everything that follows from the methods that all plans have,
so that the points cannot contradict each other. A plan adds values of its own
to the twelve points of `statement.PrivacyStatement`.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
import platform
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp import _compat
from tff_dp import _version
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import guesses
from tff_dp.accounting.events import run_events
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import plain_words
from tff_dp.statement import statement

_PACKAGES = (
    'dp-accounting',
    'numpy',
    'scipy',
    'tensorflow',
    'tensorflow-federated',
)
# A BLT has up to 8 buffers; matrices have thousands of entries.
_MOST_NUMBERS = 8
_FIRST_NUMBERS = 4
_SENTENCES = """
mechanism.population: not stated; nothing here depends on it
amplification.claimed: none
amplification.assumptions: none
implementation.arithmetic: floating-point noise, not a secure discrete sampler
implementation.generator: Philox counter streams, which are not cryptographic
implementation.key: 128 bits of operating-system entropy, in the checkpoints
implementation.realised_participation: no round yet
implementation.bad_updates: a non-finite update counts as zero; how many is not
    released
not_claimed.heuristics: none
"""
# Points whose values come from the fields of `Declarations`.
_DECLARED = (
    'setting.model_name',
    'setting.data_name',
    'setting.responsible',
    'release.not_covered',
    'tuning.hyperparameters',
    'tuning.architecture',
    'tuning.early_stopping',
    'public_data.pretraining',
    'public_data.public_data',
    'public_data.preprocessing',
    'not_claimed.audit',
)
# Reading metadata takes longer than the rest of a statement.
_installed = functools.cache(_compat.installed_version)
_INFINITE = rounding.to_json_number(math.inf)
# Shares of others that an attack may take for members.
_FALSE_POSITIVES = (1e-3, 1e-2, 1e-1)
# How a process was checked against its plan.
NOT_VERIFIED = 'not verified: no process was checked against the plan'
UNCHECKED = (
    f'{plain_words.NOT_VERIFIED}: no process was checked against this plan. The'
    ' guarantee is that of a process that adds the noise of the plan to all that'
    ' the adversary sees, for cohorts that the plan allows.'
)
# Of plans whose clients add the noise.
METRICS_OF_CLIENTS = (
    'a process whose clients report metrics without noise does not follow this'
    ' plan'
)
CERTIFIED = (
    'checked before round 1: whatever depends on data leaves a round with the'
    ' noise of this plan'
)


@dataclasses.dataclass(frozen=True)
class RoundsDone:
  """The facts about a run's rounds, if nothing is said about who took part.

  Attributes:
    num_rounds: Rounds that have begun.
  """

  num_rounds: int

  warning = None

  @property
  def sentence(self) -> str:
    """Sentence for the privacy statement, if the plan does not say more."""
    return f'{self.num_rounds} rounds; who took part is not said here'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Occasion:
  """Everything that a statement depends on, beside the plan.

  Attributes:
    delta: Target delta, above 0 and at most 0.1.
    observed: Facts about the rounds so far, `None` before round 1. It has
      `num_rounds` (the rounds that have begun), a `sentence` about them, and a
      `warning` or `None`.
    insecure_seed: Whether noise and coins follow from a known seed, which voids
      the guarantee.
    declarations: Facts that the plan cannot know.
    process: Sentence that says how the process was checked against the plan.
      Default: a sentence that it was not checked.
  """

  delta: float
  observed: Any = None
  insecure_seed: bool = False
  declarations: declarations_lib.Declarations = declarations_lib.Declarations()
  process: str = NOT_VERIFIED

  def __post_init__(self):
    _checks.delta(delta=self.delta)
    _checks.one_of((False, True), insecure_seed=self.insecure_seed)

  @property
  def rounds_done(self) -> int:
    """Number of rounds that have begun. They count as spent."""
    return 0 if self.observed is None else self.observed.num_rounds

  @property
  def num_rounds(self) -> Optional[int]:
    """Argument `num_rounds` of the plan's methods. `None` means all planned.

    A statement before round 1 is about all planned rounds.
    """
    return self.rounds_done or None

  def number(self, epsilon: float) -> float | str:
    """Returns epsilon for JSON: 'inf' if it is infinite or the seed is known.
    """
    return _INFINITE if self.insecure_seed else rounding.to_json_number(epsilon)


def build(
    plan,
    about: Occasion,
    own: Mapping[str, Any],
) -> statement.PrivacyStatement:
  """Returns the statement of a plan, or of a run of the plan up to now.

  Args:
    plan: A `plans.base.Plan`.
    about: Facts about the run.
    own: The plan's own values, 'point.name' -> value in plain types. They
      replace or extend the values that all plans have.

  Raises:
    PrivacyRefusedError: If the statement would have missing or empty values, or
      unknown points.
  """
  headline = plan.headline(
      delta=about.delta,
      num_rounds=about.num_rounds,
      population=about.declarations.population,
  )
  headline['warnings'] = _warnings(plan, about, headline)
  if about.insecure_seed:
    headline |= {'epsilon': _INFINITE, 'epsilon_no_amplification': _INFINITE}
  said = {**_common(plan, about, headline), **own}
  expected = [
      f'{point}.{name}'
      for point, names in statement.required_names(plan.kind).items()
      for name in names
  ]
  points: dict[str, dict[str, Any]] = {}
  for path in dict.fromkeys((*expected, *said)):
    if path in said:
      point, _, name = path.partition('.')
      points.setdefault(point, {})[name] = said[path]
  return statement.PrivacyStatement(headline, points)


def sentences(text: str, **facts) -> dict[str, str]:
  """Returns 'point.name' -> sentence, with facts filled in.

  Args:
    text: Lines 'point.name: sentence'. A continuation line is indented. If a
      name occurs twice, the last sentence counts.
    **facts: Values for the braces, as in `str.format`.
  """
  said: dict[str, str] = {}
  name = ''
  for line in text.strip().splitlines():
    if line.startswith(' '):
      said[name] += f' {line.strip()}'
    elif line:
      name, _, said[name] = line.partition(': ')
  return {name: each.format(**facts) for name, each in said.items()}


def _common(
    plan, about: Occasion, headline: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the values that every plan has, 'point.name' -> value."""
  declared, population = about.declarations, about.declarations.population
  planned = plan.epsilon(delta=about.delta)
  profiles = _profiles(plan, headline, about.num_rounds, True)
  chance = max(map(guesses.least_right, profiles))
  said = sentences(_SENTENCES) | {
      'setting.trusted': plan.trust,
      'unit.unit': plan.unit,
      'adjacency.relation': plan.neighboring_relation.value,
      'adjacency.definition': plan.neighboring_relation.description,
      'mechanism.rounds_planned': plan.num_rounds,
      'mechanism.rounds_done': about.rounds_done,
      'implementation.process': about.process,
      'implementation.tails': plan.tails,
      'accounting.versions': {
          'python': platform.python_version(),
          'tff-dp': _version.__version__,
          # Read from metadata, without importing the packages.
          **{
              name: _installed(name) or 'not installed'
              for name in _PACKAGES
          },
      },
      'guarantee.epsilon': headline['epsilon'],
      'guarantee.epsilon_planned': about.number(planned),
      'guarantee.delta': about.delta,
      'guarantee.delta_reason': _delta_reason(plan, about),
      'guarantee.delta_of_tails': plan.missing_delta(
          float(headline['epsilon'])
      ),
      'guarantee.epsilon_replace_one': _replace_one(plan, about, headline),
      'guarantee.right_guesses': chance,
      'guarantee.level': plain_words.level(chance),
      'guarantee.attacks': [
          {
              'false_positives': rate,
              'true_positives': max(
                  guesses.true_positives(profile, rate) for profile in profiles
              ),
          }
          for rate in _FALSE_POSITIVES
      ],
      'guarantee.curve': [
          _curve_row(plan, about, delta)
          for delta in sorted({*plan.curve_deltas, about.delta}, reverse=True)
      ],
      'amplification.epsilon_without': headline['epsilon_no_amplification'],
      'amplification.right_guesses_without': max(
          map(
              guesses.least_right,
              _profiles(plan, headline, about.num_rounds, False),
          )
      ),
  }
  for path in _DECLARED:
    said[path] = getattr(declared, path.partition('.')[2])
  if population is not None:
    said['mechanism.population'] = (
        f'{population} clients, {declared.population_origin}'
    )
  if about.insecure_seed:
    said['implementation.key'] = 'made from a known seed: void'
    said['guarantee.epsilon_if_key_were_secret'] = rounding.to_json_number(
        planned
    )
  if about.rounds_done:
    said['implementation.realised_participation'] = about.observed.sentence
  return said


def _profiles(
    plan,
    headline: Mapping[str, Any],
    num_rounds: Optional[int],
    is_amplified: bool,
) -> list[guesses.Profile]:
  """Returns the profiles of the plan, with the headline's point in each.

  If the headline's epsilon is infinite, there is one profile without points.
  """
  name = 'epsilon' if is_amplified else 'epsilon_no_amplification'
  epsilon = rounding.from_json_number(headline[name])
  if epsilon == math.inf:
    return [()]
  found = plan.profiles(num_rounds=num_rounds, is_amplified=is_amplified)
  return [(*profile, (epsilon, headline['delta'])) for profile in found]


def _replace_one(
    plan, about: Occasion, headline: Mapping[str, Any]
) -> float | str:
  """Returns epsilon under replace-one adjacency, of the rounds so far.

  Before round 1, it is for all planned rounds.
  """
  relation = run_events.NeighboringRelation.REPLACE_ONE
  if plan.neighboring_relation == relation or headline['epsilon'] == _INFINITE:
    return headline['epsilon']
  return about.number(
      plan.epsilon_after(
          about.num_rounds, delta=about.delta, neighboring_relation=relation
      )
  )


def _curve_row(plan, about: Occasion, delta: float) -> dict[str, Any]:
  row: dict[str, Any] = {'delta': delta}
  if plan.curve_has_rounds_done:
    epsilon = plan.epsilon_after(about.num_rounds, delta=delta)
    row['epsilon'] = about.number(epsilon)
  return row | {'epsilon_planned': about.number(plan.epsilon(delta=delta))}


def _delta_reason(plan, about: Occasion) -> str:
  """Returns the reason for delta, and compares delta with the population."""
  reason, population = about.declarations.delta_reason, None
  if plan.unit == 'client':
    population = about.declarations.population
  if population is None:
    return f'{reason}; it should be well below 1 / population'
  comparison = 'below' if about.delta * population < 1 else 'NOT below'
  return f'{reason}; {comparison} 1 / population = {1 / population:g}'


def _warnings(
    plan, about: Occasion, headline: Mapping[str, Any]
) -> list[str]:
  """Returns the warnings of the headline and of the occasion.

  Those that void the guarantee come first.

  Args:
    plan: See `build`.
    about: See `build`.
    headline: Headline of the plan, as if the key were secret.
  """
  found = []
  if about.insecure_seed:
    found.append(
        f'{plain_words.NO_PRIVACY}: noise and coins follow from a known seed,'
        ' so that they can be recomputed and the noise be subtracted.'
    )
  if headline['epsilon'] == _INFINITE and not plan.voids:
    found.append(
        f'{plain_words.NO_PRIVACY}: no finite epsilon holds at delta'
        f' {rounding.short(about.delta)}.'
    )
  is_void = bool(found or plan.voids)
  found += headline['warnings']
  if about.observed is not None and about.observed.warning:
    found.append(about.observed.warning)
  if about.process == NOT_VERIFIED and not is_void:
    found.append(UNCHECKED)
  return found


def readable(described: Mapping[str, Any]) -> dict[str, Any]:
  """Returns parameters for readers.

  `None` becomes 'none'. A list becomes a text, shortened if it has more than 8
  numbers.
  """
  return {name: _readable(value) for name, value in described.items()}


def _readable(value: Any) -> Any:
  if value is None:
    return 'none'
  if not isinstance(value, (tuple, list)):
    return value
  numbers = np.ravel(value)
  if len(numbers) <= _MOST_NUMBERS:
    return ', '.join(f'{number:.9g}' for number in numbers)
  first = ', '.join(f'{number:.6g}' for number in numbers[:_FIRST_NUMBERS])
  return f'{len(numbers)} numbers: {first}, ...'
