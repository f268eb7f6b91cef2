# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose silos protect every record themselves (ISRL-DP).

The builders of `tff_dp.learning.silos` make it, and their processes carry it:

    process = silos.build_noisy_mb_sgd(model, silos=budgets, ...)
    process.plan.epsilon(silo='cleveland')
    result = tff_dp.program.train(process, process.plan, clients, ...)

Reading it needs no TensorFlow.
"""

from collections.abc import Callable, Mapping
import dataclasses
import functools
import math
import types
from typing import Any, Optional

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.accounting.silos import silo_terms
from tff_dp.ledger import silo_accountant
from tff_dp.ledger import silo_budget
from tff_dp.plans import check_ins_guarantee
from tff_dp.plans import dp_ftrl as plan_lib
from tff_dp.plans import dp_ftrl_statement
from tff_dp.plans import silos_statement
from tff_dp.statement import statement as statement_lib

# Of standard deviations that come from the same numbers in another order.
_TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True)
class ObservedSilos:
  """What is known of a run so far: who was there follows from the plan.

  Attributes:
    num_rounds: Rounds that have begun.
  """

  num_rounds: int


@dataclasses.dataclass(frozen=True)
class SiloPlan:
  """What every silo brings, adds and allows, and who is absent when. Public.

  The unit of privacy is one record of one silo, the adjacency replace-one of a
  record: everything that its silo sends, in all rounds.

  Attributes:
    silos: Name -> `SiloBudget`.
    terms: Name -> `SiloTerms`: its clip norm, phases, sampling and noise.
    releases_per_round: Noised releases of a silo in a round; the local steps of
      local SGD.
    conservative: As in `silo_sampling`.
    metric_bounds: Upper bounds of the private metrics, in order.
    voids: Why there is no guarantee, as sentences; empty if there is one.
    absences: Name -> rounds, counted from 1, in which the silo is not there.
  """

  silos: Mapping[str, silo_accountant.SiloBudget]
  terms: Mapping[str, silo_terms.SiloTerms]
  releases_per_round: int = 1
  conservative: bool = False
  metric_bounds: tuple[float, ...] = ()
  voids: tuple[str, ...] = ()
  absences: Mapping[str, tuple[int, ...]] = dataclasses.field(
      default_factory=dict
  )

  unit = silo_budget.SiloRoundBudget.unit
  neighboring_relation = run_events.NeighboringRelation.REPLACE_ONE
  # How a process of the plan is made, for whoever has none.
  built_by = (
      'process = tff_dp.learning.silos.build_...(model, silos=..., ...), whose'
      ' plan is process.plan; hand train both'
  )

  def __post_init__(self):
    _checks.distinct_clients(silos=self.silos)
    _checks.integer_at_least(1, releases_per_round=self.releases_per_round)
    if not self.silos or set(self.silos) != set(self.terms):
      raise _checks.ArgumentError(
          'terms', sorted(self.terms), f'those of silos, {sorted(self.silos)}'
      )
    shapes = {_shape(terms) for terms in self.terms.values()}
    if len(shapes) > 1:
      raise _checks.ArgumentError(
          'terms',
          sorted(shapes),
          'one kind of sampling, one clip norm and the same rounds in every'
          ' phase of all silos',
      )
    for name, terms in self.terms.items():
      if terms.num_records != self.silos[name].num_records:
        raise _checks.ArgumentError(
            'num_records', terms.num_records, f'that of the budget of {name!r}'
        )
      self._check_accounted(name, terms)
    for name, rounds in self.absences.items():
      _checks.one_of(tuple(self.silos), silo=name)
      for each in rounds:
        _checks.integer_between(1, self.num_rounds, absences=each)
    # Frozen all the way down.
    for field in ('silos', 'terms', 'absences'):
      content = {str(name): each for name, each in getattr(self, field).items()}
      object.__setattr__(self, field, types.MappingProxyType(content))

  def _check_accounted(self, name: str, terms: silo_terms.SiloTerms) -> None:
    """Raises if more noise is accounted for than gradient and metrics have."""
    bounds = self.metric_bounds
    for index, phase in enumerate(terms.phases):
      stddevs = terms.metric_stddevs[index] if terms.metric_stddevs else ()
      if len(stddevs) != len(bounds):
        raise _checks.ArgumentError(
            'metric_stddevs', stddevs, 'one for each of metric_bounds'
        )
      # Over the clip norm and its like, half of the range of a metric.
      added = silo_events.joint_noise_multiplier([
          phase.noise_stddev / terms.l2_norm_clip,
          *(2 * each / bound for each, bound in zip(stddevs, bounds)),
      ])
      if phase.sigma / terms.l2_norm_clip > added * (1 + _TOLERANCE):
        raise _checks.ArgumentError(
            'accounted_stddev',
            phase.sigma,
            f'at most {added * terms.l2_norm_clip:g}, which silo {name!r} adds',
        )

  @property
  def l2_norm_clip(self) -> float:
    """C, to which every silo clips the gradient of every record."""
    return next(iter(self.terms.values())).l2_norm_clip

  @property
  def phases(self) -> tuple[silo_terms.Phase, ...]:
    """Those of some silo; kinds of sampling and rounds are those of all."""
    return next(iter(self.terms.values())).phases

  @property
  def num_rounds(self) -> int:
    """Rounds of the run."""
    return sum(p.num_rounds for p in self.phases) // self.releases_per_round

  @property
  def noise_multiplier(self) -> float:
    """The least sigma K / C of any silo and phase: on the sum, over C."""
    return min(
        phase.sigma * float(phase.batch_size) / terms.l2_norm_clip
        for terms in self.terms.values()
        for phase in terms.phases
    )

  @property
  def release_facts(self) -> dict[str, Any]:
    """What a compiled process has of the plan, plain JSON types.

    The rest (sigma, K, n, scale) comes to it with the data of each silo.
    """
    name, clip_norm, rounds = _shape(next(iter(self.terms.values())))
    return {
        'mechanism': 'isrl',
        'sampling': name,
        'l2_norm_clip': clip_norm,
        'rounds_per_phase': list(rounds),
        'releases_per_round': self.releases_per_round,
        'metric_bounds': list(self.metric_bounds),
    }

  def with_availability(
      self, availability: Callable[[int, str], bool]
  ) -> 'SiloPlan':
    """Returns the plan with other absences, for `program.train`.

    An absent silo neither pays nor delays the others. Whether a silo is there
    is public, so it must not depend on its data.

    Args:
      availability: Maps (round, counted from 1, and name) to whether the silo
        is there. Called here, for all rounds.
    """
    rounds = range(1, self.num_rounds + 1)
    absences = {
        name: tuple(r for r in rounds if not availability(r, name))
        for name in self.silos
    }
    return dataclasses.replace(
        self, absences={name: each for name, each in absences.items() if each}
    )

  def present(self, round_index: int) -> tuple[str, ...]:
    """Returns who is there in a round, counted from 1."""
    _checks.integer_between(1, self.num_rounds, round_index=round_index)
    return self._present[round_index - 1]

  def rounds_trained(self, num_rounds: int) -> int:
    """Returns in how many of the first rounds any silo is there.

    The process does not count the others, and uses no records in them.
    """
    return sum(map(bool, self._present[:num_rounds]))

  @functools.cached_property
  def _present(self) -> tuple[tuple[str, ...], ...]:
    absent = {name: set(self.absences.get(name, ())) for name in self.silos}
    return tuple(
        tuple(name for name in self.silos if r not in absent[name])
        for r in range(1, self.num_rounds + 1)
    )

  def messages(
      self, silo: str, *, num_rounds: Optional[int] = None
  ) -> np.ndarray:
    """Returns which of its messages a silo sends, 0-based, for `SiloTerms`.

    Args:
      silo: Its name.
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    _checks.one_of(tuple(self.silos), silo=silo)
    rounds, trained = self._sent[silo]
    if num_rounds is not None:
      trained = trained[rounds <= num_rounds]
    steps = np.arange(self.releases_per_round)
    return (trained[:, np.newaxis] * self.releases_per_round + steps).ravel()

  @functools.cached_property
  def _sent(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> rounds in which it sends, and what the process counts them as."""
    is_there = np.array(
        [[name in names for name in self.silos] for names in self._present]
    )
    counted = np.cumsum(is_there.any(axis=1)) - 1
    return {
        name: (1 + np.flatnonzero(column), counted[column])
        for name, column in zip(self.silos, is_there.T)
    }

  def event(
      self, *, silo: str, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns what a silo sends, to the record of it that pays most.

    Stated for replace-one of a record (`accounting.events.record_events`);
    `NonPrivateDpEvent` for a plan that has `voids`.

    Args:
      silo: Its name.
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    messages = self.messages(silo, num_rounds=num_rounds)
    if self.voids:
      return dp_accounting.NonPrivateDpEvent()
    return silo_events.dp_event_of(self.terms[silo].events(messages))

  def epsilon(
      self,
      *,
      silo: Optional[str] = None,
      delta: Optional[float] = None,
      num_rounds: Optional[int] = None,
  ) -> float:
    """Returns what the messages of a silo cost its worst record.

    Upper bound. In a long run some rounds more may be counted than it has.

    Args:
      silo: Its name, `None` for the largest epsilon of all silos.
      delta: In (0, 1); `None` for that of the silo's own budget.
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    if silo is None:
      return max(
          self.epsilon(silo=name, delta=delta, num_rounds=num_rounds)
          for name in self.silos
      )
    messages = self.messages(silo, num_rounds=num_rounds)
    if not messages.size:
      return 0.0
    if self.voids:
      return math.inf
    delta = self.silos[silo].delta if delta is None else delta
    _checks.in_open(0.0, 1.0, delta=delta)
    terms, options = self.terms[silo], {'conservative': self.conservative}
    # Epsilon of every single round of thousands would take longer than the
    # rounds; what a shorter run sends is part of what a longer one does.
    counts = tuple(
        count and check_ins_guarantee.rounds_accounted(
            count, planned=phase.num_rounds
        )
        for count, phase in zip(
            terms.num_messages(messages), terms.phases, strict=True
        )
    )
    return min(
        terms.epsilon(float(delta), **options),
        terms.epsilon(float(delta), num_messages=counts, **options),
    )

  def epsilon_no_amplification(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns epsilon of the worst silo if it were known who is sampled.

    Args:
      delta: In (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    if self.voids:
      return self.epsilon(delta=delta, num_rounds=num_rounds)
    return max(
        (
            silo_events.unsampled_epsilon_of(uses, delta, 1)
            for name, terms in self.terms.items()
            for uses in silo_events.uses_of(
                terms.events(self.messages(name, num_rounds=num_rounds))
            )
        ),
        default=0.0,
    )

  def open_ledger(self) -> silo_accountant.IsrlAccountant:
    """Returns an empty ledger of the silos."""
    return silo_accountant.IsrlAccountant(
        self.silos, conservative=self.conservative
    )

  def charge(
      self,
      ledger: silo_accountant.IsrlAccountant,
      names,
      *,
      trained: int,
      run: str = 'run',
  ) -> None:
    """Charges a round to the silos that send in it, before they do.

    Args:
      ledger: See `IsrlAccountant.charge`.
      names: Who sends.
      trained: Rounds before this one in which any silo was there.
      run: A name; going on from an earlier state is another run.

    Raises:
      PrivacyRefusedError: For a round or a block that was done before, and for
        one beyond a silo's budget. Nobody is charged then.
    """
    if trained >= self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'all num_rounds={self.num_rounds} rounds are done',
          why='the noise of the silos is calibrated for no further round',
          way_out='plan a run with more rounds',
      )
    message = trained * self.releases_per_round
    ledger.charge(
        {name: self.terms[name].event(message) for name in names},
        round_index=trained,
        run=run,
        num_messages=self.releases_per_round,
        expected=self._expected,
    )

  @functools.cached_property
  def _expected(self):
    return {name: terms.events() for name, terms in self.terms.items()}

  def guarantee(
      self, *, num_rounds: Optional[int] = None
  ) -> silo_guarantee.IsrlGuarantee:
    """Returns (epsilon_i, delta_i) of every silo, the worst, what it rests on.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.

    Raises:
      PrivacyRefusedError: If there is no guarantee.
    """
    self.refuse_if_void()
    facts = {}
    for name, silo in self.silos.items():
      terms = self.terms[name]
      sampling = dict.fromkeys(p.sampling.describe() for p in terms.phases)
      facts[name] = silo_guarantee.SiloFacts(
          epsilon=self.epsilon(silo=name, num_rounds=num_rounds),
          delta=silo.delta,
          num_records=silo.num_records,
          num_rounds=self.messages(name, num_rounds=num_rounds).size,
          sampling='; '.join(sampling),
          requested_epsilon=silo.epsilon,
      )
    return silo_guarantee.IsrlGuarantee(facts)

  def refuse_if_void(self) -> None:
    """Raises `PrivacyRefusedError` if there is no guarantee."""
    if self.voids:
      raise _checks.PrivacyRefusedError(
          f'no ISRL-DP guarantee: {"; ".join(self.voids)}',
          why='one number that leaves a silo without secret noise voids it',
          way_out='build the process without that; private_metrics are noised',
      )

  def describe(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""
    return {
        'silos': {
            name: dataclasses.asdict(budget)
            for name, budget in self.silos.items()
        },
        'terms': {
            name: terms.describe() for name, terms in self.terms.items()
        },
        'releases_per_round': self.releases_per_round,
        'conservative': self.conservative,
        'metric_bounds': list(self.metric_bounds),
        'voids': list(self.voids),
        'absences': {name: list(each) for name, each in self.absences.items()},
    }

  @classmethod
  def from_description(cls, description: Mapping[str, Any]) -> 'SiloPlan':
    """Returns the plan whose `describe()` this is."""
    return cls(**dict(description) | {
        'silos': {
            name: silo_accountant.SiloBudget(**each)
            for name, each in description['silos'].items()
        },
        'terms': {
            name: silo_terms.SiloTerms.from_description(each)
            for name, each in description['terms'].items()
        },
        'metric_bounds': tuple(description['metric_bounds']),
        'voids': tuple(description['voids']),
        'absences': {
            name: tuple(each)
            for name, each in description['absences'].items()
        },
    })

  @property
  def fingerprint(self) -> str:
    """A hash of `describe()` but for the absences, which no process knows."""
    return plan_lib.fingerprint(self.describe() | {'absences': {}})

  def budget_ledger(
      self, *, epsilon: Optional[float], delta: float
  ) -> silo_budget.SiloRoundBudget:
    """Returns an empty ledger that refuses the round beyond a budget.

    Args:
      epsilon: Of every silo at `delta`, beside the silos' own budgets.
      delta: In (0, 1).
    """
    return silo_budget.SiloRoundBudget(
        lambda rounds: self.epsilon(delta=delta, num_rounds=rounds),
        exceeded=self._exceeded,
        num_rounds=self.num_rounds,
        delta=delta,
        epsilon=epsilon,
        noise={'noise_multiplier': self.noise_multiplier},
    )

  def _exceeded(self, num_rounds: int) -> Optional[str]:
    """Returns what is said of a silo whose budget some rounds exceed."""
    for name, silo in self.silos.items():
      # If all rounds are within the budget, so is every part of them. Written
      # so that NaN exceeds it.
      if silo.epsilon is None or self.epsilon(silo=name) <= silo.epsilon:
        continue
      spent = self.epsilon(silo=name, num_rounds=num_rounds)
      if not spent <= silo.epsilon:
        return (
            f'round {num_rounds} would take silo {name} to epsilon'
            f' {spent:.6g}, above its budget of {silo.epsilon:g} at delta'
            f' {silo.delta:g}'
        )
    return None

  def statement(
      self,
      *,
      delta: float,
      observed: Optional[ObservedSilos] = None,
      insecure_seed: bool = False,
      declarations: Optional[dp_ftrl_statement.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns the privacy statement of the plan, or of a run so far.

    Args:
      delta: In (0, 1): that of the epsilon in the headline, of the silo that
        pays most. Each silo's line is at its own delta.
      observed: The rounds so far, `None` before round 1.
      insecure_seed: Whether keys follow from a known seed.
      declarations: What the plan cannot know, such as how it was tuned.
    """
    _checks.delta(delta=delta)
    return silos_statement.build(
        self,
        delta=delta,
        rounds_done=0 if observed is None else observed.num_rounds,
        insecure_seed=insecure_seed,
        declarations=declarations or dp_ftrl_statement.Declarations(),
    )

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
    return silos_statement.events_json(
        self, delta=delta, num_rounds=rounds
    )


def _shape(terms: silo_terms.SiloTerms) -> tuple[str, float, tuple[int, ...]]:
  """Returns what has to be the same for all silos."""
  names = {phase.sampling.name for phase in terms.phases}
  return (
      '+'.join(sorted(names)),
      terms.l2_norm_clip,
      tuple(phase.num_rounds for phase in terms.phases),
  )
