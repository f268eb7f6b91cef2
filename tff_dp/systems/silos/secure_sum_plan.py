# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose silos hide in secure sums (SDP).

In one pass every record is in at most one block, and so in one sum. Later sums
may depend on earlier ones. Given the other sums, only the record's own sum
reveals anything about it. So a pass costs as much as one sum.

The trust differs from a `SiloPlan`: here the noise of the other silos counts.
`silos.build_secure_sum_sgd` makes the plan, and its process carries it. Reading
a plan needs no TensorFlow.
"""

from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.statement import builder
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import plan_base
from tff_dp.systems.silos import silo_guarantee
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

_SENTENCES = """
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
    docs/proofs_silos.md
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
    nor if a silo's records change their order between rounds; other runs on the
    same records are releases of their own and add up
"""


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class SecureSumPlan(plan_base.PlanOfSilos):
  """Public facts about secure sums: the silos, and the noise of all of them.

  The unit of privacy is one record of one silo, and the adjacency is
  replace-one of a record. In round r every silo that is present adds up its
  records of block r, with a share of integer noise. Only the sum over all these
  silos is opened.

  Attributes:
    silos: Mapping from name to the number of training records.
    sums: Plan of one sum: grid, records of a silo in it, noise, and the number
      of silos promised to be in every sum.
    num_rounds: Number of rounds R. Every record is in at most one round.
    l2_norm_clip: Clip norm C of the gradient of every record.
    dimension: Number of weights of the model.
    absences: Mapping from name to the rounds, counted from 1, in which the silo
      is absent.

  Raises:
    ArgumentError: If a value is out of range, or if a silo has too few records.
    PrivacyRefusedError: If fewer silos than promised are present in a round.
  """

  silos: Mapping[str, int]
  sums: integer_plans.SumPlan
  num_rounds: int
  l2_norm_clip: float
  dimension: int
  absences: Mapping[str, tuple[int, ...]] = dataclasses.field(
      default_factory=dict
  )

  # `sums.epsilon` counts what the tables of the draws miss.
  draws_end = False
  tails = (
      'integers of noise end where their table does, at most 14 standard'
      ' deviations and a little from the mean; delta counts the total variation'
      ' between tables and distributions, apart from rounding in double'
      ' precision. See tff_dp.draws'
  )
  kind = 'secure_sums'
  built_by = (
      'process = tff_dp.silos.build_secure_sum_sgd(model, ...), whose'
      ' plan is process.plan'
  )

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_at_least(1, dimension=self.dimension)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    if not self.silos:
      raise _checks.ArgumentError('silos', self.silos, 'at least one silo')
    _checks.distinct_clients(silos=self.silos)
    _checks.integer_between(1, len(self.silos), min_silos=self.sums.min_silos)
    needed = self.num_rounds * self.sums.records_per_silo
    for name, count in self.silos.items():
      _checks.integer_at_least(1, num_records=count)
      if count < needed:
        raise _checks.ArgumentError(
            'num_records',
            count,
            f'at least {needed} for silo {name!r}: no record is in two sums',
        )
    self._check_absences()
    counts = {name: int(count) for name, count in self.silos.items()}
    object.__setattr__(self, 'silos', counts)
    self._freeze('silos', 'absences')
    fewest = min(map(len, self._present))
    if fewest < self.sums.min_silos:
      raise _checks.PrivacyRefusedError(
          f'a sum of {fewest} silos, below the promised {self.sums.min_silos}',
          why='if a silo is missing, its noise is missing in the sum',
          way_out='wait for more silos, or plan with a smaller min_silos',
      )

  @property
  def trust(self) -> str:
    """See base class."""
    return (
        'the secure sum, which opens nothing but the whole, and'
        f' {self.sums.min_silos} silos in every sum, which keep their noise'
        ' secret'
    )

  @property
  def noise_multiplier(self) -> float:
    """Std of the noise of all promised silos on the sum, over C."""
    step = 2.0 / self.sums.grid
    return step * math.sqrt(self.sums.min_silos * self.sums.share_variance)

  @functools.cached_property
  def terms(self) -> dict[str, silo_terms.SiloTerms]:
    """Mapping from name to terms, whose noise is the silo's own share."""
    share = self.sums.noise_variance(self.l2_norm_clip, num_silos=1)
    sampling = silo_sampling.DisjointBlocks(self.sums.records_per_silo)
    return {
        name: silo_terms.SiloTerms(
            count,
            self.l2_norm_clip,
            (
                silo_terms.Phase(
                    sampling, 0, count, self.num_rounds, math.sqrt(share)
                ),
            ),
        )
        for name, count in self.silos.items()
    }

  @property
  def release_facts(self) -> dict[str, Any]:
    """See base class. Unlike for a `SiloPlan`, the noise is among them."""
    return self.sums.release_facts(
        l2_norm_clip=self.l2_norm_clip, dimension=self.dimension
    )

  def calibrated(self, *, epsilon: float, delta: float) -> 'SecureSumPlan':
    """See base class. The returned plan needs a new process."""
    sums = integer_plans.calibrate(
        self.sums.name,
        epsilon=epsilon,
        delta=delta,
        dimension=self.dimension,
        grid=self.sums.grid,
        records_per_silo=self.sums.records_per_silo,
        min_silos=self.sums.min_silos,
    )
    return dataclasses.replace(self, sums=sums)

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      member: Optional[str] = None,
  ) -> float:
    """Returns epsilon of all sums together, for every record. Upper bound.

    0 if no sum before the stop has records of the silo.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
      member: Silo of the record, `None` for any.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    if not self._is_in_a_sum(num_rounds, member):
      return 0.0
    return _epsilon(self.sums, float(delta), self.dimension)

  def missing_delta(self, epsilon: float) -> float:
    """See base class."""
    distance = self.sums.distance(dimension=self.dimension)
    return min(1.0, (1 + math.exp(min(epsilon, 700.0))) * distance)

  def silo_epsilon(self, *, delta: float) -> float:
    """Returns epsilon if only a silo's own noise protects its records.

    This is so if all other silos help the server. Upper bound.

    Args:
      delta: Target delta, in (0, 1).
    """
    alone = dataclasses.replace(self.sums, min_silos=1)
    return _epsilon(alone, float(delta), self.dimension)

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> tuple[str, ...]:
    """See base class."""
    del delta, num_rounds
    return silo_guarantee.SUM_ASSUMPTIONS

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    said = builder.sentences(
        _SENTENCES, plan=self, reason=about.declarations.delta_reason
    )
    return said | plan_base.common(self, about) | {
        'unit.max_participations': 1,
        'mechanism.parameters': self.sums.to_json(),
        'mechanism.min_silos': self.sums.min_silos,
        'guarantee.epsilon_of_own_noise': about.number(
            self.silo_epsilon(delta=about.delta)
        ),
    }

  def event(
      self, *, num_rounds: Optional[int] = None, member: Optional[str] = None
  ) -> dp_accounting.DpEvent:
    """Returns the DP event of the one opened sum that contains a given record.

    No record is in two sums. The event counts only the noise of the
    `sums.min_silos` honest silos, and is stated for replace-one of a record
    (`systems.silos.record_events`). If no sum before the stop has records of
    the silo, the event is a `NoOpDpEvent`.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
      member: Silo of the record, `None` for any.
    """
    if not self._is_in_a_sum(num_rounds, member):
      return dp_accounting.NoOpDpEvent()
    return self.sums.dp_event(dimension=self.dimension)

  def _is_in_a_sum(
      self, num_rounds: Optional[int], member: Optional[str]
  ) -> bool:
    names = self.silos if member is None else (member,)
    return any(
        self.messages(name, num_rounds=num_rounds).size for name in names
    )

  def _facts(self) -> dict[str, Any]:
    return {
        'silos': dict(self.silos),
        'sums': self.sums.to_json(),
        'num_rounds': self.num_rounds,
        'l2_norm_clip': self.l2_norm_clip,
        'dimension': self.dimension,
        'absences': self._described_absences(),
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'SecureSumPlan':
    return cls(**facts | {
        'sums': integer_plans.from_json(facts['sums']),
        'absences': plan_base.absences_of(facts),
    })


@functools.lru_cache(maxsize=256)
def _epsilon(
    sums: integer_plans.SumPlan, delta: float, dimension: int
) -> float:
  return sums.epsilon(delta, dimension=dimension)
