# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the plans of silos share: presence, who pays for a round, statements."""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import functools
import math
import types
from typing import Any, Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import guesses
from tff_dp.accounting.events import run_events
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_guarantee
from tff_dp.systems.silos import silo_terms

_SAMPLED = ('poisson', 'fixed')
_SENTENCES = """
setting.model: inter-silo record-level differential privacy (ISRL-DP): every
    silo clips and noises inside of it what it sends
setting.adversary: the server and all other silos together: everybody who sees
    all that a silo sends in all rounds
unit.contribution_bound: the gradient of a record has L2 norm at most
    {plan.l2_norm_clip:g}, over all weights together
release.covered: every message of every silo, and so the models, their
    evaluation on data outside of the silos, private metrics, and who was there
    in a round
mechanism.name: Gaussian noise of every silo on its mean gradient
mechanism.noise_multiplier: {plan.noise_multiplier:.7g}, the least of all silos:
    standard deviation of its noise on the SUM over a batch, over the L2 clip
    norm
accounting.method: each silo alone: what its messages cost the record that pays
    most; rounds compose adaptively, disjoint blocks and phases cost their
    maximum
accounting.theorem: arXiv:2106.09779; the pair of Poisson sampling and the
    convexity bound of fixed size: propositions 1 and 2 of
    docs/proofs_silos.md
accounting.exactness: exact for one pass; else an upper bound, whose grids and
    tails err upward
accounting.discretisation: privacy loss distributions connect the dots, losses
    are rounded up, and what is cut off is added to delta
guarantee.delta_reason: {reason}; it should be well below one over the records
    of a silo
guarantee.per_person: with a record in every silo, epsilon {person[0]} at delta
    {person[1]}: silos add up; with k records in one silo, k epsilon at
    k exp((k-1) epsilon) delta
implementation.arithmetic: floating-point noise in float64, not a secure
    discrete sampler; the sum of data and noise is rounded to float32
implementation.coins: simulated: samples and noise of all silos follow from one
    root key; in the field each silo has its own, and keeps it
implementation.dropouts: a silo that is absent sends nothing and pays nothing;
    whether it is does not depend on its data
implementation.bad_updates: a gradient that is not finite counts as zero, in the
    silo; how many is not released
not_claimed.limits: nothing is claimed for side channels such as the time of a
    round, or against a silo for its own records; nor with disjoint blocks or
    phases if a silo's records change their order between rounds, which
    tff_dp.program refuses and other loops do not; other runs on the same
    records are releases of their own and add up
"""


class PlanOfSilos(base.Plan):
  """A plan that protects every record of silos. Silos may be absent.

  Attributes:
    silos: Mapping whose keys are the public names of the silos.
    absences: Mapping from name to the rounds, counted from 1, in which the silo
      is absent.
    terms: Mapping from name to `SiloTerms`, the constants that a silo provides
      with its data.
    l2_norm_clip: Clip norm C of the gradient of every record.
    noise_multiplier: Smallest standard deviation of the noise on a sum, over C.
    releases_per_round: Number of noised releases of a silo in a round.
  """

  silos: Mapping[str, Any]
  absences: Mapping[str, tuple[int, ...]]
  terms: Mapping[str, silo_terms.SiloTerms]
  l2_norm_clip: float
  noise_multiplier: float
  releases_per_round: int = 1

  unit = 'record'
  basis = 'of the silo that pays most, as the statement says'
  neighboring_relation = run_events.NeighboringRelation.REPLACE_ONE

  @property
  def release_facts(self) -> dict[str, Any]:
    """The facts of the plan that a compiled process holds, plain JSON types."""
    raise NotImplementedError

  # A loop reads it in every round.
  fingerprint = functools.cached_property(base.Plan.fingerprint.fget)

  def exceeded(self, num_rounds: int) -> Optional[str]:
    """Returns a sentence about a silo whose budget is exceeded, or `None`.

    Here it returns `None`. A plan whose silos have budgets overrides it.

    Args:
      num_rounds: Number of rounds after which the run stops.
    """
    del num_rounds
    return None

  def _check_absences(self) -> None:
    for name, rounds in self.absences.items():
      _checks.one_of(tuple(self.silos), silo=name)
      for each in rounds:
        _checks.integer_between(1, self.num_rounds, absences=each)

  def _freeze(self, *fields: str) -> None:
    """Replaces the mappings in some fields by copies that cannot change."""
    for field in fields:
      content = {str(name): each for name, each in getattr(self, field).items()}
      object.__setattr__(self, field, types.MappingProxyType(content))

  def with_availability(self, availability: Callable[[int, str], bool]):
    """Returns the plan with other absences, for `program.train`.

    An absent silo does not pay and does not delay the others. Who is present is
    public, so it must not depend on the data of a silo.

    Args:
      availability: Function of a round, counted from 1, and the name of a silo.
        It returns whether the silo is present, and is called here for all
        rounds.
    """
    rounds = range(1, self.num_rounds + 1)
    absences = {
        name: tuple(r for r in rounds if not availability(r, name))
        for name in self.silos
    }
    return dataclasses.replace(
        self, absences={name: each for name, each in absences.items() if each}
    )

  def with_present(self, round_index: int, members: Iterable[str]):
    """Returns the plan in which exactly `members` are present in a round.

    Args:
      round_index: Index of the round, counted from 1.
      members: Names of the silos.
    """
    members = set(members)
    for name in members:
      _checks.one_of(tuple(self.silos), silo=name)
    if set(self.present(round_index)) == members:
      return self
    return self.with_availability(
        lambda r, name: name in (
            members if r == round_index else self.present(r)
        )
    )

  def present(self, round_index: int) -> tuple[str, ...]:
    """Returns the names of the silos present in a round, counted from 1."""
    _checks.integer_between(1, self.num_rounds, round_index=round_index)
    return self._present[round_index - 1]

  def rounds_trained(self, num_rounds: int) -> int:
    """Returns in how many of the first `num_rounds` rounds any silo is present.

    The process does not count the rounds without silos, and uses no records in
    them.
    """
    return sum(map(bool, self._present[:num_rounds]))

  @functools.cached_property
  def _present(self) -> tuple[tuple[str, ...], ...]:
    absent = {name: set(self.absences.get(name, ())) for name in self.silos}
    return tuple(
        tuple(name for name in self.silos if r not in absent[name])
        for r in range(1, self.num_rounds + 1)
    )

  def rounds_of(self, member: str, *, num_rounds: int) -> int:
    """Returns how many of the first `num_rounds` rounds `member` is in."""
    return sum(member in names for names in self._present[:num_rounds])

  def messages(
      self, member: str, *, num_rounds: Optional[int] = None
  ) -> np.ndarray:
    """Returns the indices of the messages of a silo, for `SiloTerms`.

    An index counts the rounds of the process from 0, or its steps if a round
    has several releases. Rounds without silos are not counted.

    Args:
      member: Name of the silo.
      num_rounds: Number of rounds after which the run stops, `None` for all.
    """
    _checks.one_of(tuple(self.silos), member=member)
    rounds, trained = self._sent[member]
    if num_rounds is not None:
      trained = trained[rounds <= num_rounds]
    steps = np.arange(self.releases_per_round)
    return (trained[:, np.newaxis] * self.releases_per_round + steps).ravel()

  @functools.cached_property
  def _sent(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Mapping from the name of a silo to two arrays about rounds with messages.

    The first has the rounds in which the silo sends, counted from 1. The second
    has the indices that the process gives these rounds, from 0.
    """
    is_there = np.array(
        [[name in names for name in self.silos] for names in self._present]
    )
    counted = np.cumsum(is_there.any(axis=1)) - 1
    return {
        name: (1 + np.flatnonzero(column), counted[column])
        for name, column in zip(self.silos, is_there.T)
    }

  def profiles(
      self, *, num_rounds: Optional[int] = None, is_amplified: bool = True
  ) -> tuple[guesses.Profile, ...]:
    """Returns a profile for each silo, see base class.

    Without amplification there is only one, for the silo that pays most.
    """
    if not is_amplified:
      return super().profiles(num_rounds=num_rounds, is_amplified=False)
    return tuple(
        guesses.searched(
            lambda delta, name=name: self.epsilon(
                delta=delta, num_rounds=num_rounds, member=name
            )
        )
        for name in self.silos
    )

  def ledger(
      self, *, delta: float, epsilon: Optional[float] = None
  ) -> silo_budget.SiloLedger:
    """Returns an empty ledger that refuses the round beyond a budget.

    Args:
      delta: Target delta, above 0 and at most 0.1.
      epsilon: Budget of every silo at `delta`, in addition to the silos' own
        budgets. `None` for their own budgets alone.
    """
    return silo_budget.SiloLedger(self, delta=delta, epsilon=epsilon)

  def _identity(self) -> dict[str, Any]:
    # A process does not know of absences.
    return self.describe() | {'absences': {}}

  def spent(self, num_rounds: int) -> dict[str, Any]:
    return {
        'messages': {
            name: int(self.messages(name, num_rounds=num_rounds).size)
            for name in self.silos
        }
    }

  def details(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> dict[str, Any]:
    """See base class."""
    del delta, options
    return {
        'rounds': self.num_rounds if num_rounds is None else num_rounds,
        'rounds_planned': self.num_rounds,
    }

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    del epsilon, delta
    return 'More noise, fewer rounds or larger batches cost less.'

  def _cautions(self, *, delta: float, **options) -> list[str]:
    """Returns a warning if delta is too large for some silos."""
    del options
    weak = [
        name
        for name, terms in self.terms.items()
        if delta * terms.num_records >= 1
    ]
    if not weak:
      return []
    return [
        f'{base.WEAK}: delta {delta:g} is not below one over the records of'
        f' {", ".join(weak)}; revealing one random record completely would be'
        ' allowed.'
    ]

  def _described_absences(self) -> dict[str, list[int]]:
    return {name: list(each) for name, each in self.absences.items()}


def absences_of(described: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
  """Returns the absences in a description."""
  return {name: tuple(each) for name, each in described['absences'].items()}


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `SiloPlan`.
    about: Occasion of the statement.
  """
  options = {'num_rounds': about.num_rounds}
  at_delta = {
      name: plan.epsilon(delta=about.delta, member=name, **options)
      for name in plan.silos
  }
  said = builder.sentences(
      _SENTENCES,
      plan=plan,
      reason=about.declarations.delta_reason,
      person=_per_person(plan, about),
  )
  if any(phase.sampling.name in _SAMPLED for phase in plan.phases):
    said |= {
        'amplification.claimed': (
            'sampling of records, in secret, inside of each silo'
        ),
        'amplification.assumptions': [silo_guarantee.ASSUMPTIONS[3]],
    }
  return said | common(plan, about) | {
      'unit.participation': '; '.join(
          dict.fromkeys(p.sampling.describe() for p in plan.phases)
      ),
      'unit.max_participations': max(
          phase.sampling.num_releases(phase.num_rounds)
          for phase in plan.phases
      ),
      'mechanism.parameters': {
          'releases_per_round': plan.releases_per_round,
          'private_metrics': len(plan.metric_bounds),
      },
      'guarantee.worst_silo': max(at_delta, key=at_delta.get),
      'guarantee.groups': [
          {
              'name': name,
              **row,
              'epsilon': about.number(row['epsilon']),
              'budget': 'none' if row['budget'] is None else row['budget'],
          }
          for name, row in plan.by_silo(**options).items()
      ],
  }


def common(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns the points of the statement that all plans of silos share."""
  said = {
      'adjacency.definition': silo_guarantee.ASSUMPTIONS[0],
      'mechanism.l2_norm_clip': plan.l2_norm_clip,
      'mechanism.population': ', '.join(
          f'{name}: {terms.num_records} records'
          for name, terms in plan.terms.items()
      ),
  }
  if about.rounds_done:
    listed = ', '.join(
        f'{name} in {plan.rounds_of(name, num_rounds=about.rounds_done)}'
        for name in plan.silos
    )
    said['implementation.realised_participation'] = (
        f'of {about.rounds_done} rounds: {listed}'
    )
  return said


def _per_person(plan, about: builder.Occasion) -> tuple[str, str]:
  """Returns (epsilon, delta) of a person with one record in every silo."""
  epsilon, delta = math.inf, 1.0
  if not about.insecure_seed:
    epsilon, delta = plan.per_person(
        dict.fromkeys(plan.silos, 1), num_rounds=about.num_rounds
    )
  return rounding.rounded_up(epsilon), rounding.rounded_up(delta)
