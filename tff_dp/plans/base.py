# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The interface that the plans of all systems share.

A plan is one frozen object. It holds the participants, the noise and the
accounting of both, so that they cannot drift apart. Everything that states a
number asks the plan: the ledger of a run, its events, its privacy statement and
the command line.
"""

import abc
import hashlib
import json
from typing import Any, ClassVar, Optional, TYPE_CHECKING

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import draws
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import guesses
from tff_dp.accounting.events import run_events
from tff_dp.ledger import budget
from tff_dp.ledger import participation_ledger
from tff_dp.statement import builder
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import plain_words
from tff_dp.statement import statement as statement_lib

NO_PRIVACY = plain_words.NO_PRIVACY
# First word of a warning about a delta that is too large.
WEAK = 'WEAK'
EVENTS_SCHEMA = 'tff_dp.events'
SCHEMA_VERSION = statement_lib.SCHEMA_VERSION
# Most rounds at which epsilon of a run is computed, where computing takes long.
_MOST_STOPS = 64


class Plan(abc.ABC):
  """The plan of one run. Subclasses are frozen dataclasses of public facts.

  Attributes:
    kind: Name of the plan's system, as in files and on the command line.
    unit: The unit that every epsilon protects: 'client', 'example' (one holder
      has all examples), or 'record' (each of a few parties has some records).
    num_rounds: Number of rounds of the run, the horizon T.
    neighboring_relation: The relation of every epsilon. Some methods accept
      another one.
    trust: The trusted parties, as a phrase. Nothing protects from them.
    basis: The assumption behind every epsilon of a run, as the end of a
      sentence.
    curve_deltas: Other deltas at which a statement gives epsilon.
    curve_has_rounds_done: Whether the statement also gives these epsilons for
      the rounds so far, and not only for all planned rounds. False where that
      takes long.
    draws_end: Whether the draws of the noise are bounded, which costs a part of
      delta, see `draws`.
    built_by: Instruction for building a process of the plan. `None` if an
      aggregator in one of TFF's builders is enough.
  """

  kind: ClassVar[str]
  built_by: Optional[str] = None
  unit: ClassVar[str] = 'client'
  num_rounds: int
  neighboring_relation: run_events.NeighboringRelation
  trust: str
  basis: ClassVar[str]
  curve_deltas: ClassVar[tuple[float, ...]] = (1e-5, 1e-6, 1e-8)
  curve_has_rounds_done: ClassVar[bool] = True
  draws_end: bool = True

  if not TYPE_CHECKING:

    def __getattr__(self, name):
      """Raises `AttributeError`, and says which attribute is meant."""
      try:
        # A property may have raised the error.
        return object.__getattribute__(self, name)
      except AttributeError as error:
        right = _calls.meant(name, dir(self))
        if right:
          error.args = (f'{error}\ntry: {right}{_calls.note(right)}',)
        raise

  def rounds_trained(self, num_rounds: int) -> int:
    """Returns how many of the first `num_rounds` rounds the process counts.

    By default, it counts all. A plan may leave out rounds in which nobody takes
    part.
    """
    return num_rounds

  @property
  def voids(self) -> tuple[str, ...]:
    """Reasons why nothing is guaranteed, as sentences. Usually empty."""
    return ()

  @abc.abstractmethod
  def calibrated(self, *, epsilon: float, delta: float) -> 'Plan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`.

    Args:
      epsilon: Epsilon of the whole run, above 0.
      delta: Target delta, above 0 and at most 0.1.
    """

  @abc.abstractmethod
  def epsilon(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns epsilon of everything that the run releases. Upper bound.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
    """

  def _of_draws(self, epsilon: float, delta: float) -> float:
    """Returns an epsilon that also counts the missing tails of real draws.

    Args:
      epsilon: Epsilon of draws from the assumed distributions.
      delta: Delta at which it holds.
    """
    return draws.counted(epsilon, delta) if self.draws_end else epsilon

  @property
  def tails(self) -> str:
    """Sentence about the tails of the draws, for the statement."""
    return draws.ENDS if self.draws_end else draws.NO_ENDS

  def missing_delta(self, epsilon: float) -> float:
    """Returns the part of delta that the missing tails of the draws cost.

    Args:
      epsilon: Epsilon of the statement.
    """
    return draws.missing_delta(epsilon) if self.draws_end else 0.0

  def epsilon_after(
      self, num_rounds: Optional[int], *, delta: float, **options
  ) -> float:
    """Returns epsilon as ledger and statement give it for a stopped run.

    It equals `epsilon`, unless computing that for every single round would take
    too long. Then it may be larger.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
      delta: Target delta, in (0, 1).
      **options: Further arguments of `epsilon`.
    """
    return self.epsilon(delta=delta, num_rounds=num_rounds, **options)

  def epsilon_no_amplification(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> float:
    """Returns epsilon for an adversary who knows who takes part in which round.

    It equals `epsilon` for a plan that claims no amplification. For the
    arguments see `epsilon`.
    """
    return self.epsilon(delta=delta, num_rounds=num_rounds, **options)

  def profiles(
      self, *, num_rounds: Optional[int] = None, is_amplified: bool = True
  ) -> tuple[guesses.Profile, ...]:
    """Returns lists of pairs (epsilon, delta) at which the guarantee holds.

    There is one list, or one for each group that has epsilons of its own. See
    `guesses`.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all. A plan
        without `curve_has_rounds_done` always counts all rounds.
      is_amplified: Whether to use amplification.
    """
    rounds = num_rounds if self.curve_has_rounds_done else None
    if not is_amplified:
      return (guesses.searched(lambda delta: self.epsilon_no_amplification(
          delta=delta, num_rounds=rounds
      )),)
    return (
        guesses.searched(
            lambda delta: self.epsilon_after(rounds, delta=delta)
        ),
    )

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> tuple[str, ...]:
    """Returns the assumptions of epsilon, as sentences. Args: see `epsilon`."""
    del delta, num_rounds, options
    return ()

  @abc.abstractmethod
  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the DP event of the run, for accountants and for composition.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
    """

  @abc.abstractmethod
  def spent(self, num_rounds: int) -> dict[str, Any]:
    """Returns the cost of `num_rounds` rounds as JSON types, for a run's files.
    """

  @abc.abstractmethod
  def way_out(self, *, epsilon: float, delta: float) -> str:
    """Returns a sentence that says how all rounds would fit the budget."""

  def ledger(
      self, *, delta: float, epsilon: Optional[float] = None
  ) -> budget.BudgetLedger:
    """Returns an empty ledger that refuses rounds beyond plan and budget.

    Args:
      delta: Target delta, above 0 and at most 0.1.
      epsilon: The budget, `None` for no limit.
    """
    return budget.BudgetLedger(self, delta=delta, epsilon=epsilon)

  @abc.abstractmethod
  def _facts(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""

  @classmethod
  @abc.abstractmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'Plan':
    """Returns the plan that `_facts` described. May change `facts`."""

  def describe(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""
    return {'kind': self.kind, **self._facts()}

  @classmethod
  def from_description(cls, description: dict[str, Any]) -> 'Plan':
    """Returns the plan whose `describe()` returned `description`."""
    facts = dict(description)
    _checks.one_of((cls.kind,), kind=facts.pop('kind'))
    return cls._from_facts(facts)

  @property
  def fingerprint(self) -> str:
    """16 hexadecimal digits, equal for equal plans in any Python process."""
    text = json.dumps(self._identity(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

  def _identity(self) -> dict[str, Any]:
    """Returns the part of the description that a process depends on."""
    return self.describe()

  def headline(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
      population: Optional[int] = None,
  ) -> dict[str, Any]:
    """Returns epsilon and its meaning, with the same fields for every plan.

    Args:
      delta: Target delta, above 0 and at most 0.1.
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon, `None` for the relation of the
        plan. Another relation is possible only if `epsilon` takes it.
      population: Number of clients, if known. The headline warns if delta is
        not below 1 / population, unless the unit is a record.
    """
    _checks.delta(delta=delta)
    relation = run_events.NeighboringRelation(
        neighboring_relation or self.neighboring_relation
    )
    options: dict[str, Any] = {'delta': delta, 'num_rounds': num_rounds}
    if relation != self.neighboring_relation:
      options['neighboring_relation'] = relation
    return {
        'kind': self.kind,
        'schema_version': SCHEMA_VERSION,
        'epsilon': rounding.to_json_number(self.epsilon_after(**options)),
        'delta': delta,
        'epsilon_no_amplification': rounding.to_json_number(
            self.epsilon_no_amplification(**options)
        ),
        'unit': self.unit,
        'neighboring_relation': relation.value,
        'trust': self.trust,
        'assumptions': list(self.assumptions(**options)),
        'warnings': [
            *self._warnings(),
            *weak_delta(
                delta,
                None if self.unit == 'record' else population,
                self.unit,
            ),
            *self._cautions(**options),
        ],
        'plan': self.describe(),
    }

  def details(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
      population: Optional[int] = None,
  ) -> dict[str, Any]:
    """Returns facts beside the headline, as JSON types.

    Which facts they are depends on the kind of plan. `tff-dp account` prints
    them below the headline.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon, as for `headline`.
      population: Number of clients, if known.
    """
    del delta, num_rounds, neighboring_relation, population
    return {}

  def details_in_words(
      self, details: dict[str, Any]
  ) -> Optional[list[tuple[str, str]]]:
    """Returns the details as lines (label, text) for people.

    `None` if each detail shall have one line, made from its name and value. A
    line with an empty label continues the line before it.

    Args:
      details: Result of `details`.
    """
    del details
    return None

  def statement(
      self,
      *,
      delta: float,
      observed: Any = None,
      insecure_seed: bool = False,
      declarations: Optional[declarations_lib.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns the statement of a process that implements the plan.

    The statement says that no process was checked against the plan.
    `program.train` and `program.Loop` check their process, and write statements
    about the rounds that they ran.

    Args:
      delta: Delta of the headline, above 0 and at most 0.1.
      observed: Facts about the rounds so far, such as `observed()` of the
        plan's participation ledger. `None` before round 1.
      insecure_seed: Whether noise or coins follow from a known seed.
      declarations: Facts that the plan cannot know, such as how it was tuned.

    Raises:
      ArgumentError: If the observed rounds break the plan.
    """
    return self.statement_about(
        builder.Occasion(
            delta=delta,
            observed=observed,
            insecure_seed=insecure_seed,
            declarations=declarations or declarations_lib.Declarations(),
        )
    )

  def statement_about(
      self, about: builder.Occasion
  ) -> statement_lib.PrivacyStatement:
    """Returns the statement of a run whose process the caller has checked.

    Args:
      about: Facts about the run. One of them is the sentence that says how the
        process was checked.

    Raises:
      ArgumentError: If the observed rounds break the plan.
    """
    self._check_observed(about.observed)
    return builder.build(self, about, self._points(about))

  def _check_observed(self, observed: Any) -> None:
    """Raises `ArgumentError` if the observed rounds break the plan."""
    if observed is None:
      return
    rules = [(
        'num_rounds',
        observed.num_rounds <= self.num_rounds,
        f'at most the {self.num_rounds} rounds of the plan',
    )]
    if isinstance(observed, participation_ledger.Observed):
      if not hasattr(self, 'participation_ledger'):
        raise _checks.ArgumentError(
            'observed',
            observed,
            f'the facts of a run of {self.kind}, which has no participation'
            ' ledger',
            way_out=f'tff_dp.statement.builder.RoundsDone({observed.num_rounds})',
        )
      limits = self.participation_ledger('').limits
      gap, most = limits.min_index_gap, limits.max_participations
      rules += [
          (
              'max_participations',
              observed.max_participations <= most,
              f'at most {most}, the bound of the plan',
          ),
          (
              'min_index_gap',
              observed.min_index_gap is None or observed.min_index_gap >= gap,
              f'at least {gap}, the gap of the plan',
          ),
      ]
    for name, is_met, allowed in rules:
      if not is_met:
        raise _checks.ArgumentError(
            f'observed.{name}',
            getattr(observed, name),
            allowed,
            why='the guarantee of the plan does not cover such a run',
            way_out='state the plan that the rounds followed; the ledger of'
            ' this plan, plan.participation_ledger(run_id), would have refused'
            ' them',
        )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    """Returns the values that only this plan can give, see `builder.build`."""
    del about
    return {}

  def _cautions(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> list[str]:
    """Returns warnings about epsilon. For the arguments see `epsilon`."""
    del delta, num_rounds, options
    return []

  def events_json(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> dict[str, Any]:
    """Returns the content of `events.json`, in JSON types.

    `tff-dp account --events` recomputes epsilon from it.

    Args:
      delta: Delta at which the run states its epsilon, above 0 and at most 0.1.
      num_rounds: Rounds after which the run stopped, `None` for all.
    """
    _checks.delta(delta=delta)
    rounds = self.num_rounds if num_rounds is None else num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=rounds)
    return {
        'schema': EVENTS_SCHEMA,
        'schema_version': SCHEMA_VERSION,
        'kind': self.kind,
        'unit': self.unit,
        'neighboring_relation': self.neighboring_relation.value,
        'delta': delta,
        'warnings': self._warnings(),
        'plan': self.describe(),
        'events': [{'rounds': rounds, **self.spent(rounds)}],
    }

  def _warnings(self) -> list[str]:
    return [f'{NO_PRIVACY}: {reason}.' for reason in self.voids]


def rounds_accounted(num_rounds: int, *, planned: int) -> int:
  """Returns the first round, `num_rounds` or later, that has an epsilon.

  In a long run, epsilon is not computed for every round. It is computed for at
  most 64 rounds, the last one included.

  Args:
    num_rounds: Round to start from, at least 1 and at most `planned`.
    planned: Rounds of the whole run.
  """
  stride = -(-planned // _MOST_STOPS)
  return min(planned, -(-num_rounds // stride) * stride)


def weak_delta(
    delta: float, population: Optional[int], unit: str = 'client'
) -> list[str]:
  """Returns a list with one warning if delta is 1 / population or more.

  Otherwise the list is empty.

  Args:
    delta: Delta of the guarantee.
    population: Number of clients or examples. `None` if it is unknown: then
      there is no warning.
    unit: Word for one of them, such as 'client'.
  """
  if not population or delta * population < 1:
    return []
  return [
      f'{WEAK}: delta {delta:g} is not below 1 / population = {1 / population:g};'
      f' revealing one random {unit} completely would be allowed.'
  ]


def delta_of_records(num_records: int, delta: Optional[float]) -> float:
  """Returns the delta of records, below 1 / `num_records`.

  Args:
    num_records: Number n of records that one party holds.
    delta: Delta of each record, `None` for 1 / n^2. The default is refused if n
      is below 4.

  Raises:
    ArgumentError: If delta is not above 0 and at most 0.1, if it is `None` for
      a single record, or if it is at least 1 / n for several. Publishing one
      random record would meet such a delta.
  """
  if delta is None:
    if num_records == 1:
      raise _checks.ArgumentError(
          'delta', None, 'a number: for a single record there is no default'
      )
    delta = 1 / float(num_records) ** 2
  _checks.delta(delta=delta)
  if num_records > 1 and not delta * num_records < 1:
    raise _checks.ArgumentError(
        'delta',
        delta,
        f'a number below 1 / num_records = {1 / num_records:g}, because a'
        ' larger delta allows publishing one random record',
    )
  return delta
