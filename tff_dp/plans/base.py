# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What every plan can do, whatever the system.

A plan holds who takes part, what noise is added and how both are accounted, in
one frozen object, so that they cannot drift apart. Everything that states a
number asks the plan: the ledger of a run, its events, its privacy statement and
the command line.
"""

import abc
import hashlib
import json
from typing import Any, ClassVar, Optional

import dp_accounting

from tff_dp import _checks
from tff_dp import draws
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.ledger import budget
from tff_dp.statement import builder
from tff_dp.statement import declarations as declarations_lib
from tff_dp.statement import plain_words
from tff_dp.statement import statement as statement_lib

NO_PRIVACY = plain_words.NO_PRIVACY
EVENTS_SCHEMA = 'tff_dp.events'
SCHEMA_VERSION = statement_lib.SCHEMA_VERSION
# Rounds after which epsilon of a longer run is computed, where it takes long.
_MOST_STOPS = 64


class Plan(abc.ABC):
  """The plan of one run; subclasses are frozen dataclasses of public facts.

  Attributes:
    kind: Which system the plan is of, as files and the command line say it.
    unit: Whom every epsilon protects: a 'client' or a 'record'.
    num_rounds: The horizon T.
    neighboring_relation: Of every epsilon, unless another one is asked for.
    trust: Who is trusted, so that nothing protects from them, as a phrase.
    basis: What every epsilon of a run rests on, as the end of a sentence.
    curve_deltas: Other deltas at which a statement gives epsilon.
    curve_has_rounds_done: Whether it does so for the rounds so far, beside all
      planned ones; not where that takes long.
    draws_end: Whether a guarantee rests on draws whose tails end, see `draws`.
    built_by: What builds a process of the plan, where an aggregator in a
      builder of TFF's is not enough; `None` where it is.
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

  def rounds_trained(self, num_rounds: int) -> int:
    """Returns how many of the first rounds the process counts: all."""
    return num_rounds

  @property
  def voids(self) -> tuple[str, ...]:
    """Why there is no guarantee, as sentences; empty if there is one."""
    return ()

  @abc.abstractmethod
  def calibrated(self, *, epsilon: float, delta: float) -> 'Plan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`.
    """

  @abc.abstractmethod
  def epsilon(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns epsilon of everything that the run releases. Upper bound.

    Args:
      delta: In (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
    """

  def _of_draws(self, epsilon: float, delta: float) -> float:
    """Returns an epsilon that holds of the draws, from that of their laws."""
    return draws.counted(epsilon, delta) if self.draws_end else epsilon

  def epsilon_after(
      self, num_rounds: Optional[int], *, delta: float, **options
  ) -> float:
    """Returns epsilon as a run states it that stops: ledger and statement.

    That of `epsilon`, unless every single round would take too long.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
      delta: In (0, 1).
      **options: Of `epsilon`.
    """
    return self.epsilon(delta=delta, num_rounds=num_rounds, **options)

  def epsilon_no_amplification(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns epsilon if who takes part when were known. Args: see `epsilon`.

    That of `epsilon` for a plan that claims no amplification.
    """
    return self.epsilon(delta=delta, num_rounds=num_rounds)

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> tuple[str, ...]:
    """Returns what epsilon rests on, as sentences. Args: see `epsilon`."""
    del delta, num_rounds
    return ()

  @abc.abstractmethod
  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the event of the run, for accountants and for composing.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
    """

  @abc.abstractmethod
  def spent(self, num_rounds: int) -> dict[str, Any]:
    """Returns what records say that so many rounds spend, plain JSON types."""

  @abc.abstractmethod
  def way_out(self, *, epsilon: float, delta: float) -> str:
    """Returns how all rounds would fit a budget, as a sentence."""

  def ledger(
      self, *, delta: float, epsilon: Optional[float] = None
  ) -> budget.BudgetLedger:
    """Returns an empty ledger that refuses the round beyond the budget.

    Args:
      delta: In (0, 1).
      epsilon: The budget, `None` for no limit.
    """
    return budget.BudgetLedger(self, delta=delta, epsilon=epsilon)

  @abc.abstractmethod
  def _facts(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""

  @classmethod
  @abc.abstractmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'Plan':
    """Returns the plan that `_facts` described; may change `facts`."""

  def describe(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""
    return {'kind': self.kind, **self._facts()}

  @classmethod
  def from_description(cls, description: dict[str, Any]) -> 'Plan':
    """Returns the plan whose `describe()` this is."""
    facts = dict(description)
    _checks.one_of((cls.kind,), kind=facts.pop('kind'))
    return cls._from_facts(facts)

  @property
  def fingerprint(self) -> str:
    """16 hexadecimal digits, equal for equal plans, whatever the process."""
    text = json.dumps(self._identity(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

  def _identity(self) -> dict[str, Any]:
    """Returns what of the description a process of the plan has in it."""
    return self.describe()

  def headline(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> dict[str, Any]:
    """Returns the number and what it means, the same fields for every plan.

    Args:
      delta: In (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    _checks.delta(delta=delta)
    options = {'delta': delta, 'num_rounds': num_rounds}
    return {
        'kind': self.kind,
        'schema_version': SCHEMA_VERSION,
        'epsilon': rounding.to_json_number(
            self.epsilon_after(num_rounds, delta=delta)
        ),
        'delta': delta,
        'epsilon_no_amplification': rounding.to_json_number(
            self.epsilon_no_amplification(**options)
        ),
        'unit': self.unit,
        'neighboring_relation': self.neighboring_relation.value,
        'trust': self.trust,
        'assumptions': list(self.assumptions(**options)),
        'warnings': self._warnings(),
        'plan': self.describe(),
    }

  def statement(
      self,
      *,
      delta: float,
      observed: Any = None,
      insecure_seed: bool = False,
      declarations: Optional[declarations_lib.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns the statement of a process that implements the plan.

    It says that it is not verified against a process. `program.train` and
    `program.Loop` check the process, and state what they ran.

    Args:
      delta: In (0, 1), of the headline.
      observed: What is known of the rounds, such as `observed()` of the plan's
        participation ledger; `None` before round 1.
      insecure_seed: Whether noise or coins follow from a known seed.
      declarations: What the plan cannot know, such as how it was tuned.
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
    """Returns the statement of a run by those who have checked its process.

    Args:
      about: The run, with the sentence that says how its process was checked.
    """
    return builder.build(
        self, about, self._points(about), self._cautions(about)
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    """Returns what only this plan can say: see `builder.build`."""
    del about
    return {}

  def _cautions(self, about: builder.Occasion) -> list[str]:
    """Returns warnings of this plan's own."""
    del about
    return []

  def events_json(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> dict[str, Any]:
    """Returns what `tff-dp account --events` recomputes epsilon from.

    Args:
      delta: The delta that the run states its epsilon at.
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
  """Returns the least round at which epsilon is computed, not before a round.

  Args:
    num_rounds: At least 1, at most `planned`.
    planned: Rounds of the whole run.
  """
  stride = -(-planned // _MOST_STOPS)
  return min(planned, -(-num_rounds // stride) * stride)
