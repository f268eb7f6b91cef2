# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A bound on the privacy loss of an event, and its assumptions."""

from collections.abc import Callable, Sequence
import dataclasses

import dp_accounting

from tff_dp.accounting.curves import composition
from tff_dp.accounting.events import record_events
from tff_dp.accounting.events import run_events

_COINS = (
    "Each client's coins are its own, honest, fresh, independent of all data"
    ' and known to nobody else.'
)
_HONEST_NOISE = (
    'Each client clips and adds its noise itself, as the randomizer says.'
)
_CLIENT = 'client'
_RECORD = 'record in a silo'
_CLIPS = 'Every record is clipped by itself, inside of its silo.'
_SECRET_SLOTS = (
    'The server and the channels to it are trusted: nobody learns who checked'
    ' in, who won and which slots were empty.'
)


@dataclasses.dataclass(frozen=True)
class Bound:
  """An upper bound on the privacy loss of `count` equal events.

  At least one of `part` and `epsilon` is present. Both may raise
  `NotApplicableError`.

  Attributes:
    name: Name of the bound, one of `protocol_bounds.NAMES`.
    source: Paper and theorem, or page of proofs.
    is_derived: Whether the bound rests on an argument of this project.
    part: Function that returns a part, which composes with other events.
    epsilon: Function that returns epsilon at delta if nothing else is released.
      It is never above the epsilon of `part`, if both are present.
  """

  name: str
  source: str
  is_derived: bool = False
  part: Callable[[], composition.Part] | None = None
  epsilon: Callable[[float], float] | None = None


def assumptions_of(
    leaves: Sequence[dp_accounting.DpEvent],
    *,
    bound: str,
    derived_sources: Sequence[str],
    relation: run_events.NeighboringRelation,
) -> tuple[str, ...]:
  """Returns the assumptions of a certificate, one sentence each.

  Args:
    leaves: Events that are released.
    bound: Name of the bound that gives epsilon.
    derived_sources: Pages with this project's arguments that the bound rests
      on, empty if there are none.
    relation: Relation under which epsilon holds.
  """
  found = [f'The unit is {unit_of(leaves)[1]}.']
  if unit_of(leaves)[0] != _RECORD:
    found = [f'{found[0][:-1]}; neighbours: {relation.description}.']
  for leaf in leaves:
    found += _of_leaf(leaf, bound)
  if derived_sources:
    found.append(
        f'Bound {bound!r} rests on arguments of this project that were not peer'
        f' reviewed: {", ".join(derived_sources)}.'
    )
  return tuple(dict.fromkeys(found))


def unit_of(leaves: Sequence[dp_accounting.DpEvent]) -> tuple[str, str]:
  """Returns (unit of privacy, the same in a sentence)."""
  is_record = [
      isinstance(leaf, run_events.RecordDpEvent) for leaf in leaves
  ]
  if not any(is_record):
    return _CLIENT, 'a client'
  if all(is_record):
    return _RECORD, (
        'a record of a silo; neighbours: replace-one, another record is in its'
        ' place, and the number of records stays'
    )
  return f'{_CLIENT} with one {_RECORD}', (
      'a client with one record in one silo; the record and what the client'
      ' does change together'
  )


def _of_leaf(leaf, bound: str) -> list[str]:
  if isinstance(leaf, run_events.RecordDpEvent):
    return _of_record(leaf, bound)
  if isinstance(leaf, run_events.NOISED_SUM_TYPES):
    return ['The server adds the noise, and is trusted to.']
  if isinstance(leaf, run_events.RandomAllocationDpEvent):
    found = [
        'The server is trusted: it adds Gaussian noise to the sum of every'
        ' step, empty steps too, and never divides by the number of reports.'
    ]
    if bound != 'none':
      found += [
          _COINS,
          'Nobody else learns in which step a client took part.',
      ]
      if leaf.num_selected > 1:
        found.append(
            'What a client sends in a step does not depend on which of its'
            ' other steps were selected.'
        )
    return found
  if isinstance(leaf, run_events.LocalRandomizerDpEvent):
    return [_HONEST_NOISE]
  if bound == 'none':
    reports = (
        'one report per client and round'
        if isinstance(leaf, run_events.ShuffledCheckInDpEvent)
        else 'one report per client'
    )
    return [_HONEST_NOISE, f'At most {reports}; nobody else is trusted.']
  return [_HONEST_NOISE, *_of_protocol(leaf, bound)]


def _of_record(leaf, bound: str) -> list[str]:
  """Returns the assumptions of messages of a silo, or of an opened sum."""
  if isinstance(leaf, record_events.SumDpEvent):
    return [
        _CLIPS,
        'Nothing but the sum over all silos is ever opened, and never without'
        ' the noise that is promised to be in it.',
        'Silos add their noise, keep it secret and draw it from randomness that'
        ' nobody outside can seed, replay or learn.',
    ]
  found = [
      _CLIPS,
      'The silo adds the noise itself, from randomness that nobody outside can'
      ' seed, replay or learn; nobody else is trusted.',
      'A person with several records in the silo pays more.',
  ]
  if bound != 'none':
    found.append('Which records were in a batch stays secret.')
  return found


def _of_protocol(leaf, bound: str) -> list[str]:
  """Returns the assumptions that the protocol of a leaf adds."""
  if isinstance(leaf, run_events.FixedWindowCheckInDpEvent):
    return [
        _COINS,
        _SECRET_SLOTS,
        f'Check-in probability {leaf.check_in_probability:g}, in one of'
        f' {leaf.num_slots} slots. The number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, run_events.SlidingWindowCheckInDpEvent):
    return [
        _COINS,
        _SECRET_SLOTS,
        f'Each client is in one of the {leaf.window} slots of its window. The'
        ' number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, run_events.AveragedCheckInDpEvent):
    return [
        _COINS,
        'The server and the channels to it are trusted; the number of reports'
        ' in a slot may leak.',
        'Participants do not collude with whoever sees the models.',
        f'At least {leaf.min_num_clients} clients check in, each in one of'
        f' {leaf.num_slots} slots.',
    ]
  shuffler = (
      'The shuffler and the channels to it are trusted: it strips identities'
      ' and permutes. The aggregator is not trusted.'
  )
  others = 'run the randomizer honestly and do not reveal their reports.'
  if isinstance(leaf, run_events.ShuffledDpEvent):
    return [
        shuffler,
        f'At least {leaf.num_messages} clients send one report each, {others}',
    ]
  if bound == 'subsampling':
    others = 'flip honest coins; nobody learns who took part.'
  return [
      shuffler,
      _COINS,
      f'At least {leaf.min_num_clients} clients are sure to flip their coins,'
      ' and to deliver unless they drop out independently of data and'
      f' identity; they {others}',
      f'Check-in probability {leaf.check_in_probability:g}; no independent'
      ' dropout is credited beyond it.',
  ]
