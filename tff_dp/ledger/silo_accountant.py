# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ledger of every silo's messages, and what they cost its records.

Each silo pays for the rounds in which it sends, out of its own budget. A
message costs the records that could have been in its batch; a record pays for
all of them, and the silo pays what its worst record pays. So blocks and phases
of disjoint records cost their maximum, and whatever uses the same records again
adds up.

The ledger only grows, and belongs outside of what is rewound: an earlier model
can be restored, an earlier release cannot be taken back.
"""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.silos import silo_events
from tff_dp.accounting.silos import silo_guarantee

_VERSION = 1


@dataclasses.dataclass(frozen=True)
class SiloBudget:
  """What a silo brings and what it allows. All of it public.

  Attributes:
    num_records: n, its training records.
    epsilon: What all its messages may cost one record; None for no limit, which
      is for reporting what an explicit sigma costs.
    delta: Below 1/n; by default 1/n^2.
    weight: Its share p_i of the objective, if not all are equal.
  """

  num_records: int
  epsilon: float | None
  delta: float | None = None
  weight: float | None = None

  def __post_init__(self):
    _checks.integer_at_least(1, num_records=self.num_records)
    if self.epsilon is not None:
      _checks.positive(epsilon=self.epsilon)
    if self.delta is None:
      if self.num_records == 1:
        raise _checks.ArgumentError(
            'delta', None, 'a number for a silo of one record'
        )
      object.__setattr__(self, 'delta', 1 / float(self.num_records) ** 2)
    _checks.delta(delta=self.delta)
    if self.num_records > 1 and not self.delta * self.num_records < 1:
      raise _checks.ArgumentError(
          'delta',
          self.delta,
          f'a number below 1 / num_records = {1 / self.num_records:g}: to'
          ' publish one random record would be allowed',
      )
    if self.weight is not None:
      _checks.positive(weight=self.weight)


class IsrlAccountant:
  """Per-silo ledger: refuses what would break a promise, adds up the rest."""

  def __init__(
      self, silos: Mapping[str, SiloBudget], *, conservative: bool = False
  ):
    """Makes an empty ledger.

    Args:
      silos: Budgets by the silo's public name.
      conservative: As in `silo_sampling`.
    """
    if not silos:
      raise _checks.ArgumentError('silos', dict(silos), 'at least one silo')
    _checks.distinct_clients(silos=silos)
    for budget in silos.values():
      if not isinstance(budget, SiloBudget):
        raise TypeError(
            f'silos has {budget!r}: expected a SiloBudget for each silo.'
        )
    self._silos = {str(name): budget for name, budget in silos.items()}
    self._conservative = bool(conservative)
    # Of each silo: how often each event occurred.
    self._counts: dict[str, dict[silo_events.SiloEvent, int]] = {
        name: {} for name in self._silos
    }
    # Of each silo: messages within its budget, those so far among them.
    self._within: dict[str, _Within] = {}
    # Of each silo and run: the last round in which it sent.
    self._last_round: dict[str, dict[str, int]] = {
        name: {} for name in self._silos
    }

  @property
  def silos(self) -> dict[str, SiloBudget]:
    """Budgets by silo."""
    return dict(self._silos)

  def num_rounds(self, silo: str) -> int:
    """Returns how many messages the silo has paid for."""
    return sum(self._counts[self._known(silo)].values())

  def charge(
      self,
      events: Mapping[str, silo_events.SiloEvent],
      *,
      round_index: int,
      run: str = 'run',
      num_messages: int = 1,
      expected: Mapping[str, Mapping[silo_events.SiloEvent, int]] | None = None,
      charge_reused_records: bool = False,
  ) -> None:
    """Charges one round to the silos that send in it, before they send.

    All or nothing: if one silo's message is refused, nothing is charged. A silo
    that cannot be reached is left out, and pays nothing.

    Args:
      events: What each silo sends.
      round_index: From 0 on; in each run and silo it must grow.
      run: Name of the run. A restart on the same records is another run.
      num_messages: Noised means that each silo makes in the round, like the
        steps of local SGD; only for batches that are sampled. They are charged
        together or not at all.
      expected: Of a silo, how often it will send each message in all. Saves
        time and nothing else: if all of it is within the budget, so is every
        part, and none is composed again.
      charge_reused_records: Let a block use records that were used before, and
        charge them again.

    Raises:
      PrivacyRefusedError: If a round or a block was seen before, or a budget
        would be exceeded.
    """
    _checks.integer_at_least(0, round_index=round_index)
    _checks.integer_at_least(1, num_messages=num_messages)
    within = {}
    for silo, event in events.items():
      self._check_position(silo, event, round_index, run)
      if not charge_reused_records:
        self._check_reuse(silo, event, num_messages)
      within[silo] = self._check_budget(
          silo, event, round_index, num_messages, (expected or {}).get(silo, {})
      )
    for silo, event in events.items():
      self._within[silo] = within[silo]
      counts = self._counts[silo]
      counts[event] = counts.get(event, 0) + int(num_messages)
      self._last_round[silo][run] = int(round_index)

  def epsilon(
      self, silo: str, *, delta: float | None = None, after=()
  ) -> float:
    """Returns what the silo's messages cost its worst record. Upper bound.

    Args:
      silo: Its name.
      delta: By default the silo's own.
      after: Further events to count as well, without charging them.
    """
    own_delta = self._silos[self._known(silo)].delta
    delta = own_delta if delta is None else delta
    _checks.in_open(0.0, 1.0, delta=delta)
    counts = dict(self._counts[silo])
    for event in after:
      counts[event] = counts.get(event, 0) + 1
    found = self._epsilon_of(counts, delta)
    within = self._within.get(silo)
    if within is not None and not after and delta == own_delta:
      # A part of what was accepted costs no more, however both are rounded.
      found = min(found, within.epsilon)
    return found

  def dp_event(self, silo: str) -> dp_accounting.DpEvent:
    """Returns what the silo has sent so far, to the record that pays most.

    For replace-one of a record; `accountants.epsilon` comes to what `epsilon`
    here does, except for a ledger that is conservative.
    """
    return silo_events.dp_event_of(self._counts[self._known(silo)])

  def user_level_epsilon(
      self, silo: str, *, num_records: int, delta: float | None = None
  ) -> float:
    """Returns epsilon at delta of a person with k records in the silo.

    Upper bound, the lesser of two: k eps(d) for the largest d with
    k e^((k-1) eps(d)) d <= delta; and all messages as Gaussian releases that
    move by k times as much, as if nothing had been sampled.
    """
    budget = self._silos[self._known(silo)]
    _checks.integer_between(1, budget.num_records, num_records=num_records)
    delta = budget.delta if delta is None else delta
    _checks.in_open(0.0, 1.0, delta=delta)
    if num_records == 1:
      return self.epsilon(silo, delta=delta)
    unsampled = max(
        (
            silo_events.unsampled_epsilon_of(uses, delta, num_records)
            for uses in silo_events.uses_of(self._counts[silo])
        ),
        default=0.0,
    )
    grouped = silo_guarantee.group_epsilon(
        lambda single: self.epsilon(silo, delta=single), delta, num_records
    )
    return min(unsampled, grouped)

  def guarantee(
      self,
      *,
      not_covered: Sequence[str] = (),
      assumptions: Sequence[str] = (),
  ) -> silo_guarantee.IsrlGuarantee:
    """Returns what has been guaranteed so far, for every silo and the worst.

    Args:
      not_covered: Un-noised things that leave a silo, such as its loss.
      assumptions: Further sentences.

    Raises:
      PrivacyRefusedError: If something is not covered, or a message had no
        noise: then there is no ISRL-DP guarantee.
    """
    if not_covered:
      raise _checks.PrivacyRefusedError(
          f'no ISRL-DP guarantee: {", ".join(not_covered)} leaves a silo'
          ' without noise',
          why='everything that a silo sends is part of its transcript',
          way_out='drop it, or send it as a private metric',
      )
    facts = {}
    for name, budget in self._silos.items():
      counts = self._counts[name]
      if any(event.sigma == 0 for event in counts):
        raise _checks.PrivacyRefusedError(
            f'no ISRL-DP guarantee: silo {name} sent a message with sigma=0',
            why='a message without noise reveals its batch',
            way_out='run with the noise of silo_calibration.calibrate_noise',
        )
      words = list(dict.fromkeys(e.sampling.describe() for e in counts))
      facts[name] = silo_guarantee.SiloFacts(
          epsilon=self.epsilon(name),
          delta=budget.delta,
          num_records=budget.num_records,
          num_rounds=self.num_rounds(name),
          sampling='; '.join(words) or 'sent nothing',
          requested_epsilon=budget.epsilon,
      )
    if self._conservative:
      extra = 'Poisson rounds at their conservative bound.'
      assumptions = (*assumptions, extra)
    return silo_guarantee.IsrlGuarantee(
        facts, (*silo_guarantee.ASSUMPTIONS, *assumptions)
    )

  def to_json(self) -> dict[str, Any]:
    """Returns the whole ledger as JSON types."""
    return {
        'version': _VERSION,
        'conservative': self._conservative,
        'silos': {
            name: dataclasses.asdict(budget)
            for name, budget in self._silos.items()
        },
        'events': {
            name: [
                event.to_json() | {'count': count}
                for event, count in counts.items()
            ]
            for name, counts in self._counts.items()
        },
        'last_round': {
            name: dict(rounds) for name, rounds in self._last_round.items()
        },
    }

  @classmethod
  def from_json(cls, described: Mapping[str, Any]) -> 'IsrlAccountant':
    """Returns the ledger that `to_json` described."""
    if described.get('version') != _VERSION:
      raise _checks.PrivacyRefusedError(
          f'a ledger of version {described.get("version")!r} cannot be read',
          why='what it has charged so far would be forgotten',
          way_out='use the release of tff_dp that wrote it',
      )
    silos = {
        name: SiloBudget(**budget)
        for name, budget in described['silos'].items()
    }
    accountant = cls(silos, conservative=described['conservative'])
    for name in silos:
      for entry in described['events'][name]:
        event = silo_events.SiloEvent.from_json(entry)
        _checks.integer_at_least(1, count=entry['count'])
        accountant._counts[name][event] = entry['count']
      accountant._last_round[name] = dict(described['last_round'][name])
    return accountant

  def _known(self, silo: str) -> str:
    _checks.one_of(tuple(self._silos), silo=silo)
    return silo

  def _check_position(self, silo, event, round_index, run) -> None:
    budget = self._silos[self._known(silo)]
    if not isinstance(event, silo_events.SiloEvent):
      raise TypeError(f'events has {event!r}: expected a SiloEvent.')
    if event.end_record > budget.num_records:
      raise _checks.PrivacyRefusedError(
          f'silo {silo} has {budget.num_records} records, but round'
          f' {round_index} asks for those up to position {event.end_record}',
          why='a block that starts anew at the front would use records again',
          way_out='stop after the last whole block',
      )
    last = self._last_round[silo].get(run, -1)
    if round_index <= last:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} of {run} comes after round {last} of silo'
          f' {silo}',
          why='rewinding and running on is a new release, which the ledger'
          ' would miss',
          way_out='go on with the next round, or charge it as another run',
      )

  def _check_budget(
      self, silo, event, round_index, num_messages, expected
  ) -> '_Within | None':
    """Returns what the silo's messages are then known to be a part of."""
    budget = self._silos[silo]
    if budget.epsilon is None:
      return None
    within = self._within.get(silo)
    counts = self._counts[silo]
    count = counts.get(event, 0) + int(num_messages)
    if within is not None and count <= within.counts.get(event, 0):
      return within
    counts = counts | {event: count}
    if all(expected.get(one, 0) >= n for one, n in counts.items()):
      spent = self._epsilon_of(expected, budget.delta)
      if spent <= budget.epsilon:
        return _Within(dict(expected), spent)
    spent = self._epsilon_of(counts, budget.delta)
    if not spent <= budget.epsilon:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} would take silo {silo} to epsilon {spent:.6g},'
          f' above its budget of {budget.epsilon:g} at delta'
          f' {budget.delta:g}',
          why='everything that a silo sends is paid for by its own records',
          way_out='leave this silo out from now on, or plan with more noise',
      )
    return _Within(counts, spent)

  def _epsilon_of(self, counts, delta) -> float:
    return silo_events.worst_epsilon(counts, delta, self._conservative)

  def _check_reuse(self, silo, event, num_messages) -> None:
    if event.is_block and num_messages > 1:
      raise _checks.ArgumentError(
          'num_messages', num_messages, '1 with disjoint blocks'
      )
    for other in self._counts[silo]:
      overlap = (
          event.first_record < other.end_record
          and other.first_record < event.end_record
      )
      if overlap and event.is_block and other.is_block:
        raise _checks.PrivacyRefusedError(
            f'records {event.first_record} to {event.end_record - 1} of silo'
            f' {silo} were in the block {other.first_record} to'
            f' {other.end_record - 1} already',
            why='a one-pass run pays once because no record is used twice',
            way_out='go on with the next block, or say that reuse is charged',
        )


@dataclasses.dataclass(frozen=True)
class _Within:
  """Messages that are within a budget all together.

  Attributes:
    counts: How often each occurs.
    epsilon: What they cost, at the delta of the silo.
  """

  counts: dict[silo_events.SiloEvent, int]
  epsilon: float
