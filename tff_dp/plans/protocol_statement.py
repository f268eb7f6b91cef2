# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The part of a privacy statement that all plans with a protocol share."""

import dataclasses
from typing import Any, Optional

from tff_dp.accounting import rounding
from tff_dp.accounting.protocols import best_bound
from tff_dp.statement import builder

_SENTENCES = """
setting.adversary: {protocol.adversary}
unit.participation: {protocol.participation}
release.covered: the model after every step, its evaluation on data of others
    than the clients in training, and metrics computed from randomized values{counts}
release.not_covered: metrics that clients compute without noise, if any: they
    are never in release/. {not_covered}
mechanism.name: {protocol.name}
accounting.method: the least of several upper bounds, each sound by itself;
    rounds compose adaptively
accounting.exactness: an upper bound; every tail, grid and search errs upward
accounting.discretisation: privacy loss distributions are pessimistic (connect
    the dots), and what a grid leaves out counts as infinite loss
accounting.rounds_accounted: {rounds}: a run that stops earlier counts as one
    that stops there
implementation.coins: simulated: those of all clients follow from one root key
    (BLAKE2b; counts and permutations of the fast sampler from PCG64, which is
    not cryptographic); devices would flip them independently
implementation.dropouts: a report that is lost or late is discarded, never moved
    to another step; what replaces a lost winner does not depend on data
not_claimed.limits: nothing is claimed for several clients of one person, for
    side channels such as the time of a round, or against those who are trusted
    above
"""
_DERIVED = """
accounting.derived_bounds: allowed: proofs in docs/proofs_shuffling.md and
    docs/proofs_check_ins.md
"""
_PUBLISHED = """
accounting.derived_bounds: not used
"""


def points(plan, about: builder.Occasion) -> dict[str, Any]:
  """Returns 'point.name' -> value, see `builder.build`.

  Args:
    plan: A `ProtocolPlan`.
    about: Occasion of the statement.
  """
  protocol = plan.protocol
  rounds = plan.rounds_accounted(about.num_rounds)
  certificate = plan.certificate(delta=about.delta, num_rounds=rounds)
  text = _SENTENCES + (_PUBLISHED if plan.published_proofs else _DERIVED)
  counts = '; nothing about who or how many checked in when'
  if not protocol.occupancy_is_secret:
    counts = ', and the number of reports of every step'
  said = builder.sentences(
      text,
      plan=plan,
      protocol=protocol,
      counts=counts,
      rounds=rounds,
      not_covered=about.declarations.not_covered,
  )
  if about.declarations.population is None and protocol.needs_population:
    said['mechanism.population'] = 'a lower bound is needed: min_num_clients'
  if certificate.bound != 'none':
    said['amplification.claimed'] = (
        f'{protocol.name}, bound {certificate.bound}'
    )
  described = protocol.describe()
  del described['name']
  winner = [c for c in certificate.candidates if c.bound == certificate.bound]
  return said | {
      'unit.max_participations': protocol.max_reports * plan.num_passes,
      'mechanism.parameters': described,
      'mechanism.check_in_rate': protocol.coin,
      'mechanism.passes': plan.num_passes,
      'accounting.bound': certificate.bound,
      'accounting.theorem': winner[0].source if winner else certificate.bound,
      'accounting.candidates': [
          each | {'reason': each['reason'] or 'applies'}
          for each in _candidates(certificate)
      ],
      'amplification.assumptions': (
          [*certificate.assumptions, *protocol.assumptions] or 'none'
      ),
  }


def details(
    plan,
    certificate: best_bound.Certificate,
    *,
    num_rounds: Optional[int],
    population: Optional[int],
) -> dict[str, Any]:
  """Returns the details of a `ProtocolPlan`, see `Plan.details`.

  Args:
    plan: A `ProtocolPlan`.
    certificate: Certificate of the rounds that are accounted.
    num_rounds: Rounds after which the run stops, `None` for all.
    population: Number of clients, if known.
  """
  protocol = plan.protocol
  parameters = protocol.describe()
  found = {
      'protocol': parameters.pop('name'),
      'parameters': parameters | {
          'passes': plan.num_passes,
          'rounds': plan.num_rounds if num_rounds is None else num_rounds,
          'rounds_accounted': plan.rounds_accounted(num_rounds),
      },
      'bound': certificate.bound,
      'is_vacuous': certificate.is_vacuous,
      'candidates': _candidates(certificate),
  }
  if population is not None:
    expected = {
        'expected_dummy_updates': plan.expected_dummy_updates(population),
        'expected_clients_per_slot': protocol.expected_clients_per_step(
            population
        ),
    }
    known = {name: each for name, each in expected.items() if each is not None}
    if known:
      found |= {'population': population, **known}
  return found


def _candidates(certificate: best_bound.Certificate) -> list[dict[str, Any]]:
  """Returns the bounds that were tried as JSON types, 'none' first."""
  return [
      dataclasses.asdict(each)
      | {'epsilon': rounding.to_json_number(each.epsilon)}
      for each in certificate.candidates
  ]
