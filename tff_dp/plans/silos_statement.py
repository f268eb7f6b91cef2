# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the privacy statements of silos say beside what all say."""

import math
from typing import Any

from tff_dp.accounting import rounding
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.statement import builder

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
    docs/isrl_accounting.md
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
    round, or against a silo for its own records; other runs on the same records
    are releases of their own and add up
"""
_OF_SUMS = """
setting.model: differential privacy of records by secure sums (SDP): every silo
    clips and adds a share of the noise, and only the sum over all silos of a
    round is opened
setting.adversary: the server, and all who see the sums that are opened and the
    models made of them; silos that tell their noise to the server do not count
    among the promised ones
unit.contribution_bound: the gradient of a record has L2 norm at most
    {plan.l2_norm_clip:g}, over all weights together
unit.participation: disjoint blocks: a record is in at most one sum
release.covered: every sum that is opened, and so the models, their evaluation
    on data outside of the silos, and who was there in a round
mechanism.name: {plan.sums.name} noise, a share in every silo, on the sum of
    gradients on an integer grid
mechanism.noise_multiplier: {plan.noise_multiplier:.7g}: standard deviation of
    the noise of the promised silos on the SUM over all records of a round, over
    the L2 clip norm
accounting.method: one opened sum, with the noise of the promised silos: no
    record is in two
accounting.theorem: arXiv:2106.09779, algorithms 4 to 6; Skellam noise
    arXiv:2110.04995, discrete Gaussian arXiv:2102.06387, binomial
    docs/isrl_accounting.md
accounting.exactness: an upper bound; exact for binomial and Skellam noise on a
    single weight
guarantee.delta_reason: {reason}; it should be well below one over the records
    of a silo
implementation.arithmetic: integers from tables of 62-bit probabilities that
    were computed in double precision; sums never wrap
implementation.coins: simulated: the noise of all silos follows from one root
    key, and the sum is no cryptographic protocol; in the field each silo has a
    key of its own, and keeps it
implementation.dropouts: a silo that is absent is not in the sum, and its
    records of that round stay unused; a sum of fewer silos than promised is
    refused
implementation.bad_updates: a gradient that is not finite counts as zero, in the
    silo; how many is not released
not_claimed.limits: nothing is claimed for side channels such as the time of a
    round, against the other silos, or where the sum of fewer silos is opened;
    other runs on the same records add up
"""


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `SiloPlan`.
    about: What else the statement is about.
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
      'guarantee.silos': [
          {
              'silo': name,
              **row,
              'epsilon': about.number(row['epsilon']),
              'budget': 'none' if row['budget'] is None else row['budget'],
          }
          for name, row in plan.by_silo(**options).items()
      ],
  }


def points_of_sums(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `SecureSumPlan`.
    about: What else the statement is about.
  """
  said = builder.sentences(
      _OF_SUMS, plan=plan, reason=about.declarations.delta_reason
  )
  return said | common(plan, about) | {
      'unit.max_participations': 1,
      'mechanism.parameters': plan.sums.to_json(),
      'mechanism.min_silos': plan.sums.min_silos,
      'guarantee.epsilon_of_own_noise': about.number(
          plan.silo_epsilon(delta=about.delta)
      ),
  }


def common(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns what plans of silos have in common, see `points`."""
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
  """Returns (epsilon, delta) of somebody with one record in every silo."""
  epsilon, delta = math.inf, 1.0
  if not about.insecure_seed:
    epsilon, delta = plan.per_person(
        dict.fromkeys(plan.silos, 1), num_rounds=about.num_rounds
    )
  return rounding.rounded_up(epsilon), rounding.rounded_up(delta)


def cautions(plan, delta: float) -> list[str]:
  """Returns a warning if delta is too large for some silos."""
  weak = [
      name
      for name, terms in plan.terms.items()
      if delta * terms.num_records >= 1
  ]
  if not weak:
    return []
  return [
      f'WEAK: delta {delta:g} is not below one over the records of'
      f' {", ".join(weak)}; revealing one random record completely would be'
      ' allowed.'
  ]
