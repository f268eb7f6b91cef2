# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What an ISRL-DP run guarantees: per silo, the worst, per person, in words."""

from collections.abc import Callable
import dataclasses
import json
import math
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding

ADJACENCY = 'replace_one_record'
_SEARCH_STEPS = 60
COVERS = 'full transcript'
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


@dataclasses.dataclass(frozen=True)
class SiloFacts:
  """One silo's line of a guarantee.

  Attributes:
    epsilon: Of all its messages so far. Upper bound.
    delta: Its own.
    num_records: n.
    num_rounds: Rounds in which it sent; of local SGD, steps.
    sampling: In words.
    requested_epsilon: Its budget, None if there is none.
  """

  epsilon: float
  delta: float
  num_records: int
  num_rounds: int
  sampling: str
  requested_epsilon: float | None = None

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    described = dataclasses.asdict(self)
    described['epsilon'] = rounding.to_json_number(self.epsilon)
    return described


@dataclasses.dataclass(frozen=True)
class IsrlGuarantee:
  """Inter-silo record-level differential privacy of a run, silo by silo.

  Attributes:
    silos: Facts by the silo's public name.
    assumptions: Sentences on which the guarantee rests.
  """

  silos: dict[str, SiloFacts]
  assumptions: tuple[str, ...] = ASSUMPTIONS

  def __post_init__(self):
    if not self.silos:
      raise _checks.ArgumentError('silos', self.silos, 'at least one silo')
    object.__setattr__(self, 'silos', dict(self.silos))
    object.__setattr__(self, 'assumptions', tuple(self.assumptions))

  @property
  def adjacency(self) -> str:
    """How two neighbouring data sets differ."""
    return ADJACENCY

  @property
  def covers(self) -> str:
    """What of a silo is covered."""
    return COVERS

  @property
  def per_silo(self) -> dict[str, tuple[float, float]]:
    """(epsilon, delta) by silo."""
    return {
        name: (facts.epsilon, facts.delta) for name, facts in self.silos.items()
    }

  @property
  def worst_silo(self) -> str:
    """The silo with the largest epsilon, of several the first."""
    return max(self.silos, key=lambda name: self.silos[name].epsilon)

  @property
  def worst(self) -> tuple[float, float]:
    """(largest epsilon, largest delta) of all silos.

    Each of them is attained, but not always by the same silo.
    """
    return (
        max(facts.epsilon for facts in self.silos.values()),
        max(facts.delta for facts in self.silos.values()),
    )

  @property
  def rounds(self) -> dict[str, int]:
    """Rounds in which each silo sent; of local SGD, steps."""
    return {name: facts.num_rounds for name, facts in self.silos.items()}

  @property
  def sampling(self) -> dict[str, str]:
    """How each silo chose its batches."""
    return {name: facts.sampling for name, facts in self.silos.items()}

  @property
  def requested_vs_numeric(self) -> dict[str, tuple[float | None, float]]:
    """(budget, computed epsilon) by silo."""
    return {
        name: (facts.requested_epsilon, facts.epsilon)
        for name, facts in self.silos.items()
    }

  def per_person(
      self, num_records: dict[str, int]
  ) -> tuple[float, float]:
    """Returns (epsilon, delta) of a person with records in some silos.

    Upper bound: k records in a silo cost (k eps, k e^((k-1) eps) delta), and
    silos add up. See `IsrlAccountant.user_level_epsilon` for another delta.

    Args:
      num_records: How many records the person has, by silo.
    """
    epsilon = delta = 0.0
    for name, count in num_records.items():
      _checks.one_of(tuple(self.silos), silo=name)
      facts = self.silos[name]
      _checks.integer_between(0, facts.num_records, num_records=count)
      spent, leaked = group(facts.epsilon, facts.delta, count)
      epsilon, delta = epsilon + spent, delta + leaked
    return epsilon, min(1.0, delta)

  def user_level(
      self, num_records: int
  ) -> dict[str, tuple[float, float]]:
    """Returns (epsilon, delta) by silo for people with k records in it."""
    return {
        name: self.per_person({name: min(num_records, facts.num_records)})
        for name, facts in self.silos.items()
    }

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    epsilon, delta = self.worst
    return {
        'adjacency': self.adjacency,
        'covers': self.covers,
        'unit': 'record in a silo',
        'epsilon': rounding.to_json_number(epsilon),
        'delta': delta,
        'worst_silo': self.worst_silo,
        'silos': {name: facts.to_json() for name, facts in self.silos.items()},
        'assumptions': list(self.assumptions),
    }

  def to_text(self) -> str:
    """Returns a page for people: every silo, the worst, the assumptions."""
    up = rounding.rounded_up
    width = max(len(name) for name in [*self.silos, 'silo'])
    lines = [
        'ISRL-DP: every silo protects every record of its own, in everything it'
        ' sends',
        f'worst: epsilon {up(self.worst[0])} ({self.worst_silo}), delta'
        f' {up(self.worst[1])}; one record replaced',
        '',
        f'{"silo":<{width}}  epsilon     delta       budget      records '
        ' rounds  sampling',
    ]
    for name, facts in self.silos.items():
      budget = facts.requested_epsilon
      budget = 'none' if budget is None else f'{budget:g}'
      lines.append(
          f'{name:<{width}}  {up(facts.epsilon):<10}  {up(facts.delta):<10} '
          f' {budget:<10}  {facts.num_records:<7}  {facts.num_rounds:<6} '
          f' {facts.sampling}'
      )
    lines.append('')
    lines += [f'- {sentence}' for sentence in self.assumptions]
    return '\n'.join(lines)

  def __str__(self) -> str:
    return json.dumps(self.to_json(), allow_nan=False)


def group(
    epsilon: float, delta: float, num_records: int
) -> tuple[float, float]:
  """Returns (k eps, k e^((k-1) eps) delta), what k replaced records cost.

  Upper bound: k steps of one replaced record each; delta is at most 1.
  """
  if num_records == 0:
    return 0.0, 0.0
  if epsilon == math.inf:
    return math.inf, 1.0
  exponent = (num_records - 1) * epsilon + math.log(num_records * delta)
  return num_records * epsilon, min(1.0, math.exp(min(0.0, exponent)))


def group_epsilon(
    spend: Callable[[float], float], delta: float, num_records: int
) -> float:
  """Returns what k replaced records cost at delta.

  Upper bound: k eps(d) for the largest d with k e^((k-1) eps(d)) d <= delta,
  as far as the search finds it; any such d gives one.

  Args:
    spend: eps(d), what one replaced record costs.
    delta: In (0, 1).
    num_records: k.
  """
  best = math.inf
  low, high = math.log(1e-290), math.log(delta / num_records)
  for _ in range(_SEARCH_STEPS):
    middle = 0.5 * (low + high)
    single = math.exp(middle)
    epsilon = spend(single)
    # So small a delta may be lost in rounding errors: then epsilon is inf.
    is_lost = epsilon == math.inf
    if not is_lost and group(epsilon, single, num_records)[1] > delta:
      high = middle
    else:
      low = middle
      best = min(best, num_records * epsilon)
    if high - low < 1e-4:
      break
  return best
