# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Assumptions of silo runs, and the loss of people with many records."""

from collections.abc import Callable, Mapping
import functools
import math

from tff_dp import _checks
from tff_dp.accounting.curves import search
from tff_dp.systems.silos import silo_events

_RELATIVE_ERROR = 1e-12

ADJACENCY = 'replace_one_record'
ASSUMPTIONS = (
    'Neighbours: one record of one silo is replaced; the number of records of'
    ' every silo is public.',
    'Covered: all messages of a silo in all rounds, given those of the others;'
    ' whoever reads them, the server included.',
    'Clipping is per record, and the noise is added inside the silo, from'
    ' randomness that nobody outside can seed, replay or learn.',
    'Which records were sampled, and how many, stays secret in the silo.',
    'Whether a silo can be reached does not depend on its data; no'
    ' amplification is claimed from silos that were not asked.',
    'Preprocessing, tuning and other runs on the same records are releases of'
    ' their own: they add up unless they were charged here too.',
    'Floating-point Gaussian noise is not exactly Gaussian (Mironov, 2012).',
)
# Assumptions of secure sums, where the noise of other silos counts.
SUM_ASSUMPTIONS = (
    ASSUMPTIONS[0],
    'Covered: all sums that are opened in all rounds, and every model made of'
    ' them.',
    'Nothing but the sum over all silos of a round is ever opened, and never'
    ' the sum of fewer silos than promised.',
    'At least the promised number of silos in every sum add their noise and'
    ' keep it secret; silos that tell theirs to the server do not count.',
    'Clipping is per record, and a share of the noise is added inside every'
    ' silo, from randomness that nobody outside can seed, replay or learn.',
    'Whether a silo can be reached does not depend on its data.',
    'Preprocessing, tuning and other runs on the same records are releases of'
    ' their own and add up.',
    'Noise is drawn from tables of 62-bit probabilities that were computed in'
    ' double precision.',
)


def group(
    epsilon: float, delta: float, num_records: int
) -> tuple[float, float]:
  """Returns (k eps, k e^((k-1) eps) delta), the loss of k replaced records.

  Upper bound, by k steps that replace one record each. Delta is at most 1.

  Args:
    epsilon: Epsilon of one replaced record at `delta`.
    delta: Delta of one replaced record.
    num_records: Number of replaced records k. 0 gives (0, 0).
  """
  if num_records == 0:
    return 0.0, 0.0
  if epsilon == math.inf:
    return math.inf, 1.0
  exponent = (num_records - 1) * epsilon + math.log(num_records * delta)
  # Rounded up: an exponent of some hundreds is off by less than that.
  spent = math.exp(min(0.0, exponent)) * (1 + _RELATIVE_ERROR)
  return num_records * epsilon, min(1.0, spent)


def group_epsilon(
    spend: Callable[[float], float], delta: float, num_records: int
) -> float:
  """Returns the epsilon of k replaced records at delta.

  Upper bound: k eps(d) for about the largest d with k e^((k-1) eps(d)) d <=
  delta. Any d that meets this condition gives a valid bound. The result is
  infinite if no d of at least 1e-290 meets it.

  Args:
    spend: Function eps(d): epsilon of one replaced record at delta d.
    delta: Target delta, in (0, 1).
    num_records: Number of records k.
  """
  spend = functools.cache(spend)

  def is_enough(single):
    epsilon = spend(single)
    # A delta this small may be lost in rounding errors. Then epsilon is inf.
    is_lost = epsilon == math.inf
    return is_lost or group(epsilon, single, num_records)[1] <= delta

  found = search.nearest(
      is_enough, delta / num_records, 1e-290, tolerance=1e-4, geometric=True
  )
  return num_records * spend(found) if is_enough(found) else math.inf


def person_epsilon(
    counts: Mapping[silo_events.SiloEvent, int],
    *,
    num_records: int,
    delta: float,
    published_proofs: bool = False,
) -> float:
  """Returns the epsilon of a person with k records in the silo.

  Upper bound, the smaller of two. The first is `group_epsilon`. The second
  treats all messages as Gaussian releases that move by k times as much, as if
  nothing had been sampled.

  Args:
    counts: Number of times that each message was sent.
    num_records: Number of records k of the person.
    delta: Target delta, in (0, 1).
    published_proofs: Whether to use only published bounds, as in
      `silo_sampling`.
  """
  _checks.integer_at_least(1, num_records=num_records)
  _checks.in_open(0.0, 1.0, delta=delta)

  def single(at):
    return silo_events.worst_epsilon(counts, at, published_proofs)

  if num_records == 1:
    return single(delta)
  unsampled = max(
      (
          silo_events.unsampled_epsilon_of(uses, delta, num_records)
          for uses in silo_events.uses_of(counts)
      ),
      default=0.0,
  )
  return min(unsampled, group_epsilon(single, delta, num_records))
