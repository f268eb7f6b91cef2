# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The setting, the offer of a system for it, and helpers to make offers."""

import dataclasses
import functools
import math
from typing import Any, Optional

from tff_dp import _checks
from tff_dp import participation
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.plans import base

# Levels of trust. A higher level includes the lower ones.
TRUST = ('nobody', 'shuffler', 'server')
TRUSTED = {
    'nobody': 'nobody is trusted',
    'shuffler': 'a shuffler is trusted and the server is not',
    'server': 'the server is trusted',
}
RELATIONS = tuple(relation.value for relation in run_events.NeighboringRelation)
# With this many clients the default delta is well below 0.1.
_FEW_CLIENTS = 100
_BYTES_PER_WEIGHT = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
  """The facts that are known before a system is chosen. All are public.

  Attributes:
    population: Number of clients. If a guarantee rests on a crowd, count only
      clients that are sure to flip their coins and to deliver their reports.
    reports_per_round: Mean number of reports that the server wants in a round.
    rounds: Number of rounds of the whole run.
    parameters: Number of weights of the model.
    epsilon: Epsilon of the whole run, above 0.
    delta: Target delta, above 0 and at most 0.1. Default: population^-1.1 with
      two digits, or records^-2 if the unit is a record. There is no default for
      fewer than 100 clients, or for fewer than 4 records.
    trust: Level of trust, one of `TRUST`.
    neighboring_relation: Relation under which clients' epsilons must hold.
      Default: zero-out. The epsilon of local reports is always for
      replace-one, and also holds for zero-out. Must be `None` if the unit is
      a record.
    max_participations: Largest number of rounds of one client if the server
      chooses. `None` for as many as the gap allows.
    min_index_gap: Smallest difference of the indices of two rounds of one
      client, if the server chooses. `None` for the largest that the population
      allows.
    records: Number of records of each client, if the unit is a record. `None`
      if the unit is a client.
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
  records: Optional[int] = None

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
    _checks.optional_integer_at_least(1, records=self.records)
    if self.unit == 'record':
      if self.neighboring_relation is not None:
        raise _checks.ArgumentError(
            'neighboring_relation',
            self.neighboring_relation,
            "None with unit='record', for which it is always replace-one",
        )
      delta = base.delta_of_records(self.records, self.delta)
      object.__setattr__(self, 'delta', delta)
    else:
      relation = self.neighboring_relation or RELATIONS[0]
      _checks.one_of(RELATIONS, neighboring_relation=relation)
      object.__setattr__(self, 'neighboring_relation', str(relation))
      if self.delta is None:
        if self.population < _FEW_CLIENTS:
          raise _checks.ArgumentError(
              'delta',
              None,
              f'a number: for fewer than {_FEW_CLIENTS} clients there is no'
              ' default',
          )
        default = shortened(self.population**-1.1, 2)
        object.__setattr__(self, 'delta', default)
    _checks.delta(delta=self.delta)
    self.schedule.validate_population(self.population, self.reports_per_round)

  @property
  def unit(self) -> str:
    """Unit of privacy, 'client' or 'record'."""
    return 'client' if self.records is None else 'record'

  @property
  def rounds_per_pass(self) -> int:
    """Number of full rounds in which no client has to report twice."""
    return self.population // self.reports_per_round

  @property
  def num_passes(self) -> int:
    """Number of reports of one client if all report equally often, rounded up.
    """
    return -(-self.rounds // self.rounds_per_pass)

  @functools.cached_property
  def schedule(self) -> participation.MinSeparation:
    """Schedule of the clients, if the server chooses them."""
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
  """A system that fits, with nearly the least noise that epsilon allows.

  Attributes:
    system: Name of the system, a key of `systems.offers()`, such as 'dp-ftrl'.
    variant: Variant of the system, in a few words, such as 'blt, 3 buffers'.
    trust: Phrase that says who is trusted, and with which data, such as 'the
      server, with the updates and the noise'.
    unit: Unit of privacy.
    neighboring_relation: Relation under which epsilon holds.
    noise: Parameters of the noise, by name.
    error: Error as defined in `tff_dp.advice`. Exact for Gaussian noise,
      otherwise an upper bound, unless `notes` call it a heuristic.
    error_l2: `error` times the square root of the number of weights.
    epsilon: Epsilon of the whole run, at most the requested one. Upper bound.
    delta: Delta at which epsilon holds.
    epsilon_no_amplification: Epsilon if neither coins nor crowds amplify. For a
      secure sum: epsilon if the other data holders add no noise. Upper bound.
    bytes_up: Size of one report in bytes.
    bytes_down: Number of bytes that are sent to one participating client.
    model_copies: Number of model-sized vectors that the server keeps.
    participation: Sentence that says who takes part, such as 'Each client takes
      part at most once in 400 rounds.'
    notes: Further remarks, such as on how the error was computed.
    assumptions: Assumptions of epsilon, one sentence each.
    process: Name of the function that builds the process, such as
      'tff_dp.dp_ftrl.build_dp_ftrl'.
    command: Words of a `tff-dp` command that states the epsilon, or empty.
    python: Lines of Python that print the epsilon.
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
    """Returns the norm of the mean update over the norm of its noise.

    Args:
      update_norm: Norm of the mean update of a round, in clip norms, in (0, 1].
    """
    _checks.positive(update_norm=update_norm)
    _checks.in_closed(0.0, 1.0, update_norm=update_norm)
    return update_norm / self.error_l2

  def to_json(self) -> dict[str, Any]:
    """Returns the fields as JSON types, with infinity as 'inf'."""
    described = dataclasses.asdict(self)
    for name in ('epsilon', 'epsilon_no_amplification'):
      described[name] = rounding.to_json_number(described[name])
    for name in ('notes', 'assumptions', 'command'):
      described[name] = list(described[name])
    return described


@dataclasses.dataclass(frozen=True)
class Refusal:
  """A system that does not fit, with the reason."""

  system: str
  reason: str


@dataclasses.dataclass(frozen=True)
class Advice:
  """The offers and refusals for a setting.

  Attributes:
    setting: The setting.
    offers: Offers of the systems that fit, the least error first.
    refusals: Systems that do not fit.
  """

  setting: Setting
  offers: tuple[Offer, ...]
  refusals: tuple[Refusal, ...]

  @property
  def warnings(self) -> tuple[str, ...]:
    """Facts that a reader must be told, one sentence each."""
    setting = self.setting
    if setting.unit == 'record':
      return ()  # A delta of 1 / records or more is refused.
    return tuple(base.weak_delta(setting.delta, setting.population))


class DoesNotFitError(Exception):
  """A system does not fit. The message is a sentence without its subject."""


def offer(setting: Setting, error: float, **fields) -> Offer:
  """Returns an offer for a setting, with `delta` and `error_l2` filled in.

  Args:
    setting: Known facts.
    error: Error of the offer.
    **fields: Other fields of `Offer`. `unit` is 'client' by default, and
      `model_copies` is 1. `bytes_up` and `bytes_down` are 4 bytes for each
      weight by default.
  """
  weights = _BYTES_PER_WEIGHT * setting.parameters
  defaults: dict[str, Any] = dict(
      unit='client', bytes_up=weights, bytes_down=weights, model_copies=1
  )
  return Offer(
      **defaults | fields,
      delta=setting.delta,
      error=float(error),
      error_l2=float(error) * math.sqrt(setting.parameters),
  )


def shortened(value: float, digits: int = 6) -> float:
  """Returns the value with few enough digits that people can copy it."""
  return float(f'{value:.{digits}g}')


def rate(setting: Setting, slots: float) -> float:
  """Returns the participation probability for the wanted number of reports.

  The result is at most 1, and has few enough digits that people can copy it.

  Args:
    setting: Known facts, among them the mean number of reports in a round.
    slots: Number of rounds of a pass. A client that takes part in a pass
      reports in one of these rounds.
  """
  share = slots * setting.reports_per_round / setting.population
  return min(1.0, shortened(share))


def account(*words) -> tuple[str, ...]:
  """Returns a `tff-dp account` command."""
  return ('tff-dp', 'account', *map(str, words))


def arguments(setting: Setting) -> str:
  """Returns the arguments of `epsilon` for a plan with noise at the server."""
  relation = setting.neighboring_relation
  return f'delta={setting.delta!r}, neighboring_relation={relation!r}'
