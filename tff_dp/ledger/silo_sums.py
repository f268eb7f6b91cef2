# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ledger and guarantee of runs whose silos hide in a secure sum (SDP).

In one pass every record is in at most one block, and so in one sum. Sums that
are chosen by looking at earlier ones change nothing: given the others, what a
record's sum tells is all that is told about it. So a pass costs one sum, and
the ledger only has to see that no block is used twice.

The trust is another one than in `silo_accountant`: the noise of the other
silos counts. Adjacency: one record of one silo is replaced.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import json
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.integers import integer_plans
from tff_dp.accounting.silos import silo_guarantee

_VERSION = 1
ASSUMPTIONS = (
    silo_guarantee.ASSUMPTIONS[0],
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


class SumLedger:
  """Which blocks have been summed: refuses to use one again."""

  def __init__(self, num_records: Mapping[str, int], *, min_silos: int):
    """Makes an empty ledger.

    Args:
      num_records: Of each silo, by its public name.
      min_silos: Promised to be in every sum.
    """
    if not num_records:
      raise _checks.ArgumentError(
          'num_records', dict(num_records), 'at least one silo'
      )
    self._num_records = dict(num_records)
    self._min_silos = int(min_silos)
    # Of each silo: first and last record of every block so far.
    self._blocks: dict[str, list[tuple[int, int]]] = {
        name: [] for name in self._num_records
    }

  def num_rounds(self, silo: str) -> int:
    """Returns in how many sums the silo has been."""
    _checks.one_of(tuple(self._blocks), silo=silo)
    return len(self._blocks[silo])

  def charge(
      self, silos: Iterable[str], *, first_record: int, num_records: int
  ) -> None:
    """Charges one sum to the silos in it, before it is opened: all or none.

    Args:
      silos: Names of those that take part.
      first_record: Position of the first record of their blocks.
      num_records: Length of the blocks, K.

    Raises:
      PrivacyRefusedError: If there are fewer silos than promised, or one of
        them has used records of this block before.
    """
    silos = list(silos)
    _checks.integer_at_least(0, first_record=first_record)
    _checks.integer_at_least(1, num_records=num_records)
    block = (int(first_record), int(first_record + num_records - 1))
    for silo in silos:
      _checks.one_of(tuple(self._blocks), silo=silo)
    if len(set(silos)) < self._min_silos:
      raise _checks.PrivacyRefusedError(
          f'a sum of {len(set(silos))} silos, below the promised'
          f' {self._min_silos}',
          why='the noise of a silo that is missing is missing in the sum',
          way_out='wait for more silos, or plan with a smaller min_silos',
      )
    for silo in silos:
      if block[1] >= self._num_records[silo]:
        raise _checks.PrivacyRefusedError(
            f'silo {silo} has {self._num_records[silo]} records, none at'
            f' position {block[1]}',
            why='a block that starts anew at the front would use records again',
            way_out='stop after the last whole block',
        )
      for first, last in self._blocks[silo]:
        if block[0] <= last and first <= block[1]:
          raise _checks.PrivacyRefusedError(
              f'records {block[0]} to {block[1]} of silo {silo} were in the'
              f' block {first} to {last} already',
              why='a pass costs one sum because no record is in two',
              way_out='go on with the next block; rewinding needs new records',
          )
    for silo in silos:
      self._blocks[silo].append(block)

  def to_json(self) -> dict[str, Any]:
    """Returns the whole ledger as JSON types."""
    return {
        'version': _VERSION,
        'min_silos': self._min_silos,
        'num_records': dict(self._num_records),
        'blocks': {
            name: [list(block) for block in blocks]
            for name, blocks in self._blocks.items()
        },
    }

  @classmethod
  def from_json(cls, described: Mapping[str, Any]) -> 'SumLedger':
    """Returns the ledger that `to_json` described."""
    if described.get('version') != _VERSION:
      raise _checks.PrivacyRefusedError(
          f'a ledger of version {described.get("version")!r} cannot be read',
          why='what it has charged so far would be forgotten',
          way_out='use the release of tff_dp that wrote it',
      )
    ledger = cls(described['num_records'], min_silos=described['min_silos'])
    for name, blocks in described['blocks'].items():
      ledger._blocks[name] = [tuple(block) for block in blocks]
    return ledger


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumGuarantee:
  """What one pass through secure sums guarantees, with and without trust.

  Attributes:
    plan: Noise and promise.
    dimension: Length of the vectors.
    delta: At which both epsilons are.
    requested_epsilon: The budget.
    rounds: Sums in which each silo has been, by its public name.
    assumptions: Sentences on which the guarantee rests.
  """

  plan: integer_plans.SumPlan
  dimension: int
  delta: float
  requested_epsilon: float
  rounds: Mapping[str, int]
  assumptions: tuple[str, ...] = ASSUMPTIONS

  @property
  def epsilon(self) -> float:
    """Of all sums together, for every record of every silo. Upper bound."""
    if not any(self.rounds.values()):
      return 0.0
    return self.plan.epsilon(self.delta, dimension=self.dimension)

  @property
  def silo_epsilon(self) -> float:
    """By a silo's own noise alone, if all others help the server.

    Upper bound.
    """
    if not any(self.rounds.values()):
      return 0.0
    return self.plan.silo_epsilon(self.delta, dimension=self.dimension)

  def to_json(self) -> dict[str, Any]:
    """Returns JSON types."""
    return {
        'adjacency': silo_guarantee.ADJACENCY,
        'covers': 'opened sums',
        'unit': 'record in a silo',
        'epsilon': rounding.to_json_number(self.epsilon),
        'delta': self.delta,
        'silo_epsilon': rounding.to_json_number(self.silo_epsilon),
        'requested_epsilon': self.requested_epsilon,
        'dimension': self.dimension,
        'plan': self.plan.to_json(),
        'rounds': dict(self.rounds),
        'assumptions': list(self.assumptions),
    }

  def to_text(self) -> str:
    """Returns a page for people: with trust, without it, the assumptions."""
    up = rounding.rounded_up
    plan = self.plan
    lines = [
        'SDP: a record hides in the sum over silos, which is all that is'
        ' opened',
        f'epsilon {up(self.epsilon)} at delta {up(self.delta)}; one record of'
        ' one silo replaced',
        f'of which a silo\'s own noise gives: epsilon {up(self.silo_epsilon)},'
        ' if all other silos help the server',
        f'{plan.name} noise, {plan.records_per_silo} records a silo and round,'
        f' at least {plan.min_silos} silos in every sum',
        '',
    ]
    lines += [
        f'{name}: in {count} sums' for name, count in self.rounds.items()
    ]
    lines.append('')
    lines += [f'- {sentence}' for sentence in self.assumptions]
    return '\n'.join(lines)

  def __str__(self) -> str:
    return json.dumps(self.to_json(), allow_nan=False)
