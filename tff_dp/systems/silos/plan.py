# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose silos protect every record themselves (ISRL-DP).

The builders of `tff_dp.silos` make the plan, and their processes carry it:

    process = silos.build_noisy_mb_sgd(model, silos=budgets, ...)
    process.plan.epsilon(member='cleveland')
    result = tff_dp.program.train(process, clients, ...)

Reading a plan needs no TensorFlow.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.silos import plan_base
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_guarantee
from tff_dp.systems.silos import silo_terms

# Tolerance of standard deviations computed from the same numbers in another
# order.
_TOLERANCE = 1e-9


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class SiloPlan(plan_base.PlanOfSilos):
  """Public facts: sizes, noise, limits and absences of every silo.

  The unit of privacy is one record of one silo, and the adjacency is
  replace-one of a record. The guarantee covers everything that the silo sends,
  in all rounds.

  Attributes:
    silos: Mapping from name to `SiloBudget`.
    terms: Mapping from name to `SiloTerms`: the silo's clip norm, phases,
      sampling and noise.
    releases_per_round: Number of noised releases of a silo in a round. For
      local SGD, the number of local steps.
    published_proofs: Whether to use only published bounds, as in
      `silo_sampling`.
    metric_bounds: Upper bounds of the private metrics, in order.
    voids: Reasons why there is no guarantee, as sentences. Empty if there is a
      guarantee.
    absences: Mapping from name to the rounds, counted from 1, in which the silo
      is absent.
  """

  silos: Mapping[str, silo_budget.SiloBudget]
  terms: Mapping[str, silo_terms.SiloTerms]
  releases_per_round: int = 1
  published_proofs: bool = False
  metric_bounds: tuple[float, ...] = ()
  voids: tuple[str, ...] = ()
  absences: Mapping[str, tuple[int, ...]] = dataclasses.field(
      default_factory=dict
  )

  kind = 'silos'
  trust = 'for the records of a silo, that silo alone'
  # Call that builds a process of the plan, for a user who has none.
  built_by = (
      'process = tff_dp.silos.build_...(model, silos=..., ...), which'
      ' has the plan'
  )

  def __post_init__(self):
    _checks.distinct_clients(silos=self.silos)
    _checks.integer_at_least(1, releases_per_round=self.releases_per_round)
    if not self.silos or set(self.silos) != set(self.terms):
      raise _checks.ArgumentError(
          'terms',
          sorted(self.terms),
          f'terms for each of the silos, {sorted(self.silos)}, and at least one'
          ' silo',
      )
    shapes = {_shape(terms) for terms in self.terms.values()}
    if len(shapes) > 1:
      raise _checks.ArgumentError(
          'terms',
          sorted(shapes),
          'the same (kind of sampling, clip norm, rounds of each phase) in all'
          ' silos',
      )
    for name, terms in self.terms.items():
      if terms.num_records != self.silos[name].num_records:
        raise _checks.ArgumentError(
            'num_records',
            terms.num_records,
            f'{self.silos[name].num_records}, as in the budget of {name!r}',
        )
      self._check_accounted(name, terms)
    self._check_absences()
    self._freeze('silos', 'terms', 'absences')

  def _check_accounted(self, name: str, terms: silo_terms.SiloTerms) -> None:
    """Raises `ArgumentError` if a silo adds less noise than accounted for.

    Also raises if `metric_stddevs` and `metric_bounds` differ in length.
    """
    bounds = self.metric_bounds
    for index, phase in enumerate(terms.phases):
      stddevs = terms.metric_stddevs[index] if terms.metric_stddevs else ()
      if len(stddevs) != len(bounds):
        raise _checks.ArgumentError(
            'metric_stddevs',
            stddevs,
            f'{len(bounds)} numbers, one for each of metric_bounds',
        )
      if not bounds and phase.accounted_stddev is None:
        continue  # Only the gradient is noised, with the accounted noise.
      # Relative to the clip norm, and for a metric to half of its range.
      added = silo_events.joint_noise_multiplier([
          phase.noise_stddev / terms.l2_norm_clip,
          *(2 * each / bound for each, bound in zip(stddevs, bounds)),
      ])
      if phase.sigma / terms.l2_norm_clip > added * (1 + _TOLERANCE):
        raise _checks.ArgumentError(
            'accounted_stddev',
            phase.sigma,
            f'at most {added * terms.l2_norm_clip:g}: a gradient with noise of'
            ' this size costs as much as gradient and metrics of silo'
            f' {name!r} together',
        )

  @property
  def l2_norm_clip(self) -> float:
    """Clip norm C of the gradient of every record, the same in all silos."""
    return next(iter(self.terms.values())).l2_norm_clip

  @property
  def phases(self) -> tuple[silo_terms.Phase, ...]:
    """Phases of the first silo.

    All silos have the same kinds of sampling and the same rounds per phase.
    """
    return next(iter(self.terms.values())).phases

  @property
  def num_rounds(self) -> int:
    """Number of rounds of the run."""
    return sum(p.num_rounds for p in self.phases) // self.releases_per_round

  @property
  def noise_multiplier(self) -> float:
    """Least noise std on the sum over a batch, over the clip norm C.

    It is the minimum of sigma K / C over silos and phases, with batch size K
    and the noise std sigma that is accounted for (`Phase.sigma`).
    """
    return min(
        phase.sigma * float(phase.batch_size) / terms.l2_norm_clip
        for terms in self.terms.values()
        for phase in terms.phases
    )

  @property
  def release_facts(self) -> dict[str, Any]:
    """The facts of the plan that a compiled process holds, plain JSON types.

    The other constants (sigma, K, n and scale) come with each silo's data.
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

  def event(
      self, *, num_rounds: Optional[int] = None, member: Optional[str] = None
  ) -> dp_accounting.DpEvent:
    """Returns the event of a silo's messages, for the record that costs most.

    Stated for replace-one of a record (`systems.silos.record_events`). A
    plan with `voids` gives a `NonPrivateDpEvent`.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
      member: Name of the silo, optional for a plan of one silo.
    """
    member = self._one(member)
    messages = self.messages(member, num_rounds=num_rounds)
    if self.voids:
      return dp_accounting.NonPrivateDpEvent()
    return silo_events.dp_event_of(self.terms[member].events(messages))

  def _one(self, member: Optional[str]) -> str:
    """Returns the name of a silo, by default of the only one."""
    if member not in self.silos and (member is not None or len(self.silos) > 1):
      raise _checks.ArgumentError(
          'member', member, f'one of the silos, {sorted(self.silos)}'
      )
    return next(iter(self.silos)) if member is None else member

  def epsilon(
      self,
      *,
      delta: Optional[float] = None,
      num_rounds: Optional[int] = None,
      member: Optional[str] = None,
  ) -> float:
    """Returns the epsilon of a silo's messages, for its worst record.

    Upper bound. In a long run, slightly more rounds may be counted than
    happened. The result is 0 if the silo sends nothing. Otherwise it is
    infinite for a plan with `voids`.

    Args:
      delta: Target delta, in (0, 1). `None` for the delta of the silo's own
        budget.
      num_rounds: Number of rounds after which the run stops, `None` for all.
      member: Name of the silo, `None` for the largest epsilon of all silos.
    """
    if member is None:
      return max(
          self.epsilon(delta=delta, num_rounds=num_rounds, member=name)
          for name in self.silos
      )
    counts = self._accounted(self._one(member), num_rounds)
    if not any(counts):
      return 0.0
    if self.voids:
      return math.inf
    delta = self.silos[member].delta if delta is None else delta
    _checks.in_open(0.0, 1.0, delta=delta)
    terms = self.terms[member]
    options = {'published_proofs': self.published_proofs}
    found = min(
        terms.epsilon(float(delta), **options),
        terms.epsilon(float(delta), num_messages=counts, **options),
    )
    return self._of_draws(found, delta)

  def _accounted(
      self, member: str, num_rounds: Optional[int] = None
  ) -> tuple[int, ...]:
    """Returns for each phase the number of messages that epsilon counts.

    In long phases this may be more than were sent.
    """
    terms = self.terms[member]
    # Computing epsilon for every one of thousands of rounds would take longer
    # than the rounds. The messages of a shorter run are part of the messages of
    # a longer one.
    return tuple(
        count and base.rounds_accounted(count, planned=phase.num_rounds)
        for count, phase in zip(
            terms.num_messages(self.messages(member, num_rounds=num_rounds)),
            terms.phases,
            strict=True,
        )
    )

  def per_person(
      self,
      num_records: Mapping[str, int],
      *,
      delta: Optional[float] = None,
      num_rounds: Optional[int] = None,
  ) -> tuple[float, float]:
    """Returns (epsilon, delta) of a person with records in some silos.

    Upper bound: if one record of a silo costs (eps, delta), then k records cost
    (k eps, k e^((k-1) eps) delta), and silos add up. For one silo,
    `person_epsilon` returns epsilon at a delta that you choose.

    Args:
      num_records: Number of records of the person, by silo.
      delta: Target delta, as for `epsilon`.
      num_rounds: Number of rounds after which the run stops, as for `epsilon`.
    """
    epsilon = total = 0.0
    for name, count in num_records.items():
      _checks.one_of(tuple(self.silos), member=name)
      silo = self.silos[name]
      _checks.integer_between(0, silo.num_records, num_records=count)
      spent, leaked = silo_guarantee.group(
          self.epsilon(delta=delta, num_rounds=num_rounds, member=name),
          silo.delta if delta is None else delta,
          count,
      )
      epsilon, total = epsilon + spent, total + leaked
    return epsilon, min(1.0, total)

  def by_silo(
      self, *, num_rounds: Optional[int] = None
  ) -> dict[str, dict[str, Any]]:
    """Returns a dict of numbers for every silo, by its name.

    The keys of a dict are 'epsilon', 'delta', 'budget', 'records' and
    'messages'. Delta and budget are as in the silo's `SiloBudget`. Epsilon
    is the cost of its messages at this delta. Records and messages are counts.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
    """
    return {
        name: {
            'epsilon': self.epsilon(num_rounds=num_rounds, member=name),
            'delta': silo.delta,
            'budget': silo.epsilon,
            'records': silo.num_records,
            'messages': int(self.messages(name, num_rounds=num_rounds).size),
        }
        for name, silo in self.silos.items()
    }

  def person_epsilon(
      self,
      num_records: int,
      *,
      delta: Optional[float] = None,
      num_rounds: Optional[int] = None,
      member: Optional[str] = None,
  ) -> float:
    """Returns epsilon of a person with several records in one silo.

    Upper bound, see `silo_guarantee.person_epsilon`. The result holds at
    `delta`. The epsilon of `per_person` holds at a delta that grows with the
    number of records.

    Args:
      num_records: Number of records of the person in the silo, at least 1.
      delta: Target delta, in (0, 1), as for `epsilon`.
      num_rounds: Number of rounds after which the run stops, as for `epsilon`.
      member: Name of the silo, optional for a plan of one silo.
    """
    member = self._one(member)
    _checks.integer_between(
        1, self.silos[member].num_records, records_per_person=num_records
    )
    if self.voids:
      return math.inf
    delta = self.silos[member].delta if delta is None else delta
    messages = self.messages(member, num_rounds=num_rounds)
    found = silo_guarantee.person_epsilon(
        self.terms[member].events(messages),
        num_records=num_records,
        delta=float(delta),
        published_proofs=self.published_proofs,
    )
    return self._of_draws(found, delta)

  def details(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      records_per_person: int = 1,
      **options,
  ) -> dict[str, Any]:
    """Returns the noise and the numbers of every silo, see base class.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
      records_per_person: Number of records of one person. Above 1 only for a
        plan of one silo.
      **options: Further options, see base class.

    Raises:
      PrivacyRefusedError: If the plan has no guarantee.
    """
    self.refuse_if_void()
    careful = dataclasses.replace(self, published_proofs=True)
    found = super().details(delta=delta, num_rounds=num_rounds, **options) | {
        'noise_multiplier': self.noise_multiplier,
        'published_proofs': self.published_proofs,
        'epsilon_published_proofs': rounding.to_json_number(
            careful.epsilon(delta=delta, num_rounds=num_rounds)
        ),
        'silos': {
            name: row | {'epsilon': rounding.to_json_number(row['epsilon'])}
            for name, row in self.by_silo(num_rounds=num_rounds).items()
        },
    }
    if len(self.silos) == 1 and len(self.phases) == 1:
      (phase,) = self.phases
      found |= {
          'sampling': phase.sampling.name,
          'records': phase.num_records,
          'batch_size': phase.sampling.batch_size,
          'sampling_rate': phase.sampling.rate(phase.num_records),
          'sigma_over_clip': phase.sigma / self.l2_norm_clip,
      }
    if records_per_person != 1:
      found |= {
          'records_per_person': records_per_person,
          'epsilon_per_person': rounding.to_json_number(
              self.person_epsilon(
                  records_per_person, delta=delta, num_rounds=num_rounds
              )
          ),
      }
    return found

  def calibrated(self, *, epsilon: float, delta: float) -> 'SiloPlan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Each silo is calibrated for its own records, absences and phases, as in the
    builders. A silo with a budget of its own gets at least the noise for it.
    The process need not be compiled again: `process.with_plan(plan)`.

    Args:
      epsilon: Epsilon of every silo at `delta`. Rounded to the private side.
      delta: Target delta, above 0 and at most 0.1.

    Raises:
      PrivacyRefusedError: If the plan has no guarantee, or if a silo adds no
        noise in some phase.
      ArgumentError: If a value is out of range, or if rounding errors alone use
        up delta.
    """
    _checks.positive(epsilon=epsilon)
    _checks.delta(delta=delta)
    self.refuse_if_void()
    return dataclasses.replace(
        self,
        terms={
            name: self._calibrated_terms(name, float(epsilon), float(delta))
            for name in self.silos
        },
    )

  def _calibrated_terms(
      self, member: str, epsilon: float, delta: float
  ) -> silo_terms.SiloTerms:
    own, terms = self.silos[member], self.terms[member]
    budgets = [(epsilon, delta)]
    if own.epsilon is not None:
      budgets.append((own.epsilon, own.delta))
    phases, stddevs = [], []
    counts = self._accounted(member)
    for index, (phase, count) in enumerate(zip(terms.phases, counts)):
      sigma = phase.sigma
      if not sigma:
        raise _checks.PrivacyRefusedError(
            f'silo {member!r} adds no noise',
            why='calibration scales the noise that is there, and divides it'
            ' between gradient and metrics as before',
            way_out='build the process with noise',
        )
      if count:
        sigma = max(
            silo_calibration.calibrate_noise(
                phase.sampling,
                num_records=phase.num_records,
                num_rounds=count,
                l2_norm_clip=terms.l2_norm_clip,
                epsilon=each,
                delta=at,
                published_proofs=self.published_proofs,
            )
            for each, at in budgets
        )
      # Gradient and metrics keep their shares.
      factor = sigma / phase.sigma
      noise_stddev = sigma
      if phase.noise_stddev != phase.sigma:
        noise_stddev = phase.noise_stddev * factor
      phases.append(
          dataclasses.replace(
              phase,
              noise_stddev=noise_stddev,
              accounted_stddev=phase.accounted_stddev and sigma,
          )
      )
      metrics = terms.metric_stddevs[index] if terms.metric_stddevs else ()
      stddevs.append(tuple(each * factor for each in metrics))
    return dataclasses.replace(
        terms,
        phases=tuple(phases),
        metric_stddevs=tuple(stddevs) if terms.metric_stddevs else (),
    )

  def epsilon_no_amplification(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> float:
    """Returns epsilon of the worst silo if everybody knew the sampled records.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
    """
    if self.voids:
      return self.epsilon(delta=delta, num_rounds=num_rounds)
    found = max(
        (
            silo_events.unsampled_epsilon_of(uses, delta, 1)
            for name, terms in self.terms.items()
            for uses in silo_events.uses_of(
                terms.events(self.messages(name, num_rounds=num_rounds))
            )
        ),
        default=0.0,
    )
    return self._of_draws(found, delta)

  def refuse_if_void(self) -> None:
    """Raises `PrivacyRefusedError` if there is no guarantee."""
    if self.voids:
      raise _checks.PrivacyRefusedError(
          f'no ISRL-DP guarantee: {"; ".join(self.voids)}',
          why='the guarantee needs secret noise on every number that a silo'
          ' sends',
          way_out='build the process without these arguments; for metrics with'
          ' noise, there are private_metrics',
      )

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> tuple[str, ...]:
    """See base class."""
    del delta, num_rounds
    return () if self.voids else silo_guarantee.ASSUMPTIONS

  def _facts(self) -> dict[str, Any]:
    return {
        'silos': {
            name: dataclasses.asdict(budget)
            for name, budget in self.silos.items()
        },
        'terms': {
            name: terms.describe() for name, terms in self.terms.items()
        },
        'releases_per_round': self.releases_per_round,
        'published_proofs': self.published_proofs,
        'metric_bounds': list(self.metric_bounds),
        'voids': list(self.voids),
        'absences': self._described_absences(),
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'SiloPlan':
    return cls(**facts | {
        'silos': {
            name: silo_budget.SiloBudget(**each)
            for name, each in facts['silos'].items()
        },
        'terms': {
            name: silo_terms.SiloTerms.from_description(each)
            for name, each in facts['terms'].items()
        },
        'metric_bounds': tuple(facts['metric_bounds']),
        'voids': tuple(facts['voids']),
        'absences': plan_base.absences_of(facts),
    })

  def exceeded(self, num_rounds: int) -> Optional[str]:
    """See base class."""
    for name in self._short_of_budget:
      silo = self.silos[name]
      spent = self.epsilon(num_rounds=num_rounds, member=name)
      if not spent <= silo.epsilon:
        return (
            f'round {num_rounds} would take silo {name} to epsilon'
            f' {spent:.6g}, above its budget of {silo.epsilon:g} at delta'
            f' {silo.delta:g}'
        )
    return None

  @functools.cached_property
  def _short_of_budget(self) -> tuple[str, ...]:
    """Silos whose budget the whole run would exceed."""
    # Written so that NaN exceeds it.
    return tuple(
        name
        for name, silo in self.silos.items()
        if silo.epsilon is not None
        and not self.epsilon(member=name) <= silo.epsilon
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return plan_base.points(self, about)


def _shape(terms: silo_terms.SiloTerms) -> tuple[str, float, tuple[int, ...]]:
  """Returns the settings that must be the same for all silos."""
  names = {phase.sampling.name for phase in terms.phases}
  return (
      '+'.join(sorted(names)),
      terms.l2_norm_clip,
      tuple(phase.num_rounds for phase in terms.phases),
  )
