# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A setting, what a system offers for it, and what both are made of."""

import dataclasses
import functools
import math
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import participation
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.ledger import silo_budget

# Who is trusted with more is trusted with less.
TRUST = ('nobody', 'shuffler', 'server')
TRUSTED = {
    'nobody': 'nobody is trusted',
    'shuffler': 'a shuffler is trusted and the server is not',
    'server': 'the server is trusted',
}
RELATIONS = tuple(relation.value for relation in run_events.NeighboringRelation)
# So many have a default delta well below 0.1.
_FEW_CLIENTS = 100
_BYTES_PER_WEIGHT = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """What is known before a system is chosen. All of it public.

  Attributes:
    population: Clients, or silos, that there are. Where a guarantee rests on a
      crowd, those that are sure to flip their coins and to deliver.
    reports_per_round: That the server wants in a round, on average.
    rounds: Of the whole run.
    parameters: Weights of the model.
    epsilon: Of the whole run, above 0.
    delta: In (0, 1). `None` for population^-1.1, for silos records^-2.
    trust: Of `TRUST`.
    neighboring_relation: Under which clients' epsilons shall hold at least;
      local reports are always accounted under replace-one, which implies
      zero-out. `None` for zero-out. Not for silos.
    max_participations: Most rounds of one client, where a server chooses, and
      of one silo; `None` for as many as the gap allows.
    min_index_gap: Least difference of the indices of two rounds of one client,
      where a server chooses; `None` for the most that the population allows.
    silo_records: Records of each silo, where the unit is a record of a silo;
      `None` where it is a client.
  """

  population: int
  reports_per_round: int
  rounds: int
  parameters: int
  epsilon: float
  delta: Optional[float] = None
  trust: str
  neighboring_relation: Optional[str] = None
  max_participations: Optional[int] = None
  min_index_gap: Optional[int] = None
  silo_records: Optional[int] = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, population=self.population)
    _checks.integer_between(
        1, self.population, reports_per_round=self.reports_per_round
    )
    _checks.integer_at_least(1, rounds=self.rounds)
    _checks.integer_at_least(1, parameters=self.parameters)
    _checks.positive(epsilon=self.epsilon)
    _checks.one_of(TRUST, trust=self.trust)
    _checks.optional_integer_at_least(1, silo_records=self.silo_records)
    if self.is_of_silos:
      if self.neighboring_relation is not None:
        raise _checks.ArgumentError(
            'neighboring_relation',
            self.neighboring_relation,
            'nothing with silo_records: one record is replaced',
        )
      # Refuses a delta that would give a record away.
      budget = silo_budget.SiloBudget(self.silo_records, None, self.delta)
      object.__setattr__(self, 'delta', budget.delta)
    else:
      relation = self.neighboring_relation or RELATIONS[0]
      _checks.one_of(RELATIONS, neighboring_relation=relation)
      object.__setattr__(self, 'neighboring_relation', str(relation))
      if self.delta is None:
        if self.population < _FEW_CLIENTS:
          raise _checks.ArgumentError(
              'delta', None, f'a number for fewer than {_FEW_CLIENTS} clients'
          )
        default = shortened(self.population**-1.1, 2)
        object.__setattr__(self, 'delta', default)
    _checks.delta(delta=self.delta)
    self.schedule.validate_population(self.population, self.reports_per_round)

  @property
  def is_of_silos(self) -> bool:
    """Whether the unit is a record of a silo."""
    return self.silo_records is not None

  @property
  def rounds_per_pass(self) -> int:
    """Rounds in which the whole population can report once."""
    return self.population // self.reports_per_round

  @property
  def num_passes(self) -> int:
    """Reports of one client, if all of them report equally often."""
    return -(-self.rounds // self.rounds_per_pass)

  @functools.cached_property
  def schedule(self) -> participation.MinSeparation:
    """Who comes when, where a server chooses."""
    gap = self.min_index_gap
    pattern = participation.MinSeparation(
        self.rounds,
        min_index_gap=self.rounds_per_pass if gap is None else gap,
        max_participations=self.max_participations,
    ).pattern
    return participation.MinSeparation(
        self.rounds,
        min_index_gap=min(pattern.min_index_gap, self.rounds),
        max_participations=pattern.max_participations,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Offer:
  """A system that fits, with the least noise that its accountant allows.

  Attributes:
    system: Its name, of `SYSTEMS`.
    variant: Which of its kinds, in a few words.
    trust: Who is trusted, with what.
    unit: Whose data is protected.
    neighboring_relation: Under which epsilon holds.
    noise: Parameters of the noise, by name.
    error: See `tff_dp.advice`. Exact for Gaussian noise, else an upper bound,
      unless `notes` call it a heuristic.
    error_l2: `error` times the root of the number of weights.
    epsilon: Of the whole run, at most what was asked for. Upper bound.
    delta: At which it holds.
    epsilon_no_amplification: What holds if neither coins nor crowds are
      credited; of a secure sum, nor the noise of other silos. Upper bound.
    bytes_up: Of one report.
    bytes_down: Of what is sent to one client that takes part.
    model_copies: Vectors of the model's size that the server keeps.
    participation: Who takes part, as a sentence.
    notes: What the error or the cost rests on, one sentence each.
    assumptions: On which epsilon rests, one sentence each.
    process: What builds the process.
    command: Words of a `tff-dp` command that states the epsilon, or nothing.
    python: Lines that print the epsilon.
  """

  system: str
  variant: str
  trust: str
  unit: str
  neighboring_relation: str
  noise: dict[str, float]
  error: float
  error_l2: float
  epsilon: float
  delta: float
  epsilon_no_amplification: float
  bytes_up: int
  bytes_down: int
  model_copies: int
  participation: str
  notes: tuple[str, ...] = ()
  assumptions: tuple[str, ...]
  process: str
  command: tuple[str, ...]
  python: str

  def signal_to_noise(self, update_norm: float) -> float:
    """Returns the norm of the mean update over that of its noise.

    Args:
      update_norm: Of the mean update of a round, in clip norms, in (0, 1].
    """
    _checks.positive(update_norm=update_norm)
    _checks.in_closed(0.0, 1.0, update_norm=update_norm)
    return update_norm / self.error_l2

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types; infinity is 'inf'."""
    described = dataclasses.asdict(self)
    for name in ('epsilon', 'epsilon_no_amplification'):
      described[name] = rounding.to_json_number(described[name])
    for name in ('notes', 'assumptions', 'command'):
      described[name] = list(described[name])
    return described


@dataclasses.dataclass(frozen=True)
class Refusal:
  """A system that does not fit, and why."""

  system: str
  reason: str


@dataclasses.dataclass(frozen=True)
class Advice:
  """What there is for a setting.

  Attributes:
    setting: The setting.
    offers: What fits, the least error first.
    refusals: What does not.
  """

  setting: Setting
  offers: tuple[Offer, ...]
  refusals: tuple[Refusal, ...]

  @property
  def warnings(self) -> tuple[str, ...]:
    """What a reader must be told, one sentence each."""
    setting = self.setting
    if setting.delta * setting.population <= 1 + 1e-3:
      return ()
    return (
        f'delta {setting.delta:g} is above 1/population: revealing one client'
        ' entirely would be within it.',
    )


class DoesNotFitError(Exception):
  """Says why a system does not fit, as the end of a sentence."""


def offer(setting: Setting, error: float, **fields) -> Offer:
  """Returns an offer of fields, most of which are as in other offers.

  Args:
    setting: What is known.
    error: Of the offer.
    **fields: What is special.
  """
  weights = _BYTES_PER_WEIGHT * setting.parameters
  return Offer(
      **dict(
          unit='client', bytes_up=weights, bytes_down=weights, model_copies=1
      )
      | fields,
      delta=setting.delta,
      error=float(error),
      error_l2=float(error) * math.sqrt(setting.parameters),
  )


def shortened(value: float, digits: int = 6) -> float:
  """Returns the value with so few digits that people can copy it."""
  return float(f'{value:.{digits}g}')


def rate(setting: Setting, slots: float) -> float:
  """Returns the probability of taking part for so many reports in a round.

  Args:
    setting: What is known.
    slots: Rounds from one draw of a client to its next one.
  """
  share = slots * setting.reports_per_round / setting.population
  return min(1.0, shortened(share))


def account(*words) -> tuple[str, ...]:
  """Returns a `tff-dp account` command."""
  return ('tff-dp', 'account', *map(str, words))


def arguments(setting: Setting) -> str:
  """Returns the arguments of a plan's epsilon, noise being at the server."""
  relation = setting.neighboring_relation
  return f'delta={setting.delta!r}, neighboring_relation={relation!r}'
