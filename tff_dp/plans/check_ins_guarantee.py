# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a protocol plan guarantees, computed once for every question."""

import functools
from typing import NamedTuple, Optional

from tff_dp.accounting.amplification import noised_counts
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound


class Guarantee(NamedTuple):
  """Epsilon of all that a run releases, and what it is made of.

  Attributes:
    epsilon: Of models and noised counts.
    certificate: Of the models.
    shares: What the noised counts have of it, `None` without any, or where
      nothing is amplified: then the coins might be public.
  """

  epsilon: float
  certificate: best_bound.Certificate
  shares: Optional[noised_counts.CountedGuarantee]


# A statement is written with every checkpoint, a row of metrics every round.
@functools.lru_cache(maxsize=1024)
def of(
    plan,
    delta: float,
    num_rounds: int,
    relation: run_events.NeighboringRelation,
) -> Guarantee:
  """Returns the guarantee of a run that stops after some rounds.

  Args:
    plan: A `CheckInPlan`.
    delta: In (0, 1).
    num_rounds: At least 1.
    relation: How two neighbouring data sets differ.
  """
  if plan.occupancy_noise_stddev is None:
    certificate = _certificate_of(plan, delta, num_rounds, relation, plan.bound)
    return Guarantee(certificate.epsilon, certificate, None)
  passes_begun = -(-num_rounds // plan.protocol.num_rounds)
  shares = noised_counts.guarantee(
      lambda part: _certificate_of(
          plan, part, num_rounds, relation, plan.bound
      ).epsilon,
      count_stddev=plan.occupancy_noise_stddev,
      max_reports=passes_begun * plan.protocol.max_reports,
      delta=delta,
  )
  # Holds whatever is known of the coins, hence of the counts.
  plain = _certificate_of(plan, delta, num_rounds, relation, 'none')
  if shares.epsilon >= plain.epsilon:
    return Guarantee(plain.epsilon, plain, None)
  certificate = _certificate_of(
      plan, shares.protocol_delta, num_rounds, relation, plan.bound
  )
  return Guarantee(shares.epsilon, certificate, shares)


@functools.lru_cache(maxsize=1024)
def _certificate_of(
    plan,
    delta: float,
    num_rounds: int,
    relation: run_events.NeighboringRelation,
    bound: str,
) -> best_bound.Certificate:
  """Returns the certificate of the models of a run that stops."""
  if bound == 'best' and num_rounds < plan.num_rounds:
    # Of a run that stops, only the bound that is best for the whole one.
    best = _certificate_of(plan, delta, plan.num_rounds, relation, bound).bound
    if best in best_bound.BOUNDS:
      bound = best
  return best_bound.amplify(
      plan.protocol_event(num_rounds=num_rounds),
      delta=delta,
      bound=bound,
      neighboring_relation=relation,
      published_proofs=plan.published_proofs,
  )
