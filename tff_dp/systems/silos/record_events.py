# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events for one record of a silo: the silo's messages and opened sums.

All events are stated for replace-one of a record: another record takes its
place, and the public number of records stays the same. An example:

    SelfComposedDpEvent(
        PoissonRecordDpEvent(noise_multiplier=4.0, sampling_probability=0.1),
        35)

There are two families:

* A *message* is a noised mean over a batch of one silo, as in `SiloEvent`. The
  silo adds the noise itself, and nobody else is trusted: this is ISRL-DP
  (arXiv:2106.09779). `noise_multiplier` is sigma K / C, the standard deviation
  on the sum divided by the clip norm. The event accounts for two vectors of
  norm C that differ by up to 2 C. Batches are drawn anew for every message,
  with coins that stay secret. Several noised means over one batch are one
  message, see `silo_events.joint_noise_multiplier`.
* An *opened sum* is a sum of integers over silos that includes the noise of all
  of them. Nothing else is ever opened. This needs trust in the secure summation
  and in the promised silos.

Record events compose with each other. They also compose with events for
replace-one of a client, if both are about the same person: one record in one
silo, and that person's data as a client. A person with several records pays
more, see `silo_guarantee.person_epsilon`.

All fields are numbers or events, as in `run_events`.
"""

from collections.abc import Sequence

import attr
import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.systems.system import At

# Required by arXiv:2102.06387, proposition 14.
LEAST_STDDEV = 0.5


def _share_of(most: float, **argument) -> None:
  """Raises unless a number is above 0 and at most `most`."""
  _checks.in_closed(0.0, most, **argument)
  _checks.positive(**argument)


def _wide(**argument) -> None:
  """Raises `ArgumentError` unless a standard deviation is at least 1/2."""
  _checks.positive(**argument)
  ((name, value),) = argument.items()
  if value < LEAST_STDDEV:
    raise _checks.ArgumentError(name, value, 'at least 1/2')


@attr.s(frozen=True)
class RecordDpEvent(run_events.ProtocolDpEvent):
  """Base class of the events for one record of a silo."""

  rules = At('tff_dp.systems.silos.record_bounds', 'RULES')


@attr.s(frozen=True)
class MessageDpEvent(RecordDpEvent):
  """Base class of the events for one message of a silo."""


@attr.s(frozen=True)
class GaussianRecordDpEvent(MessageDpEvent):
  """One message over a batch that is sure to contain the record.

  The batch is a block of one pass, or all records of the silo. The event is one
  Gaussian mechanism with sigma = noise_multiplier / 2.
  """

  noise_multiplier: float = run_events.real_field(_checks.positive)


@attr.s(frozen=True)
class PoissonRecordDpEvent(MessageDpEvent):
  """One message over a batch that every record enters by its own coin.

  The divisor K is the expected batch size, whatever size occurs. An empty batch
  sends pure noise.
  """

  noise_multiplier: float = run_events.real_field(_checks.positive)
  sampling_probability: float = run_events.real_field(_share_of, 1.0)


@attr.s(frozen=True)
class FixedSizeRecordDpEvent(MessageDpEvent):
  """One message over `batch_size` distinct records of `num_records`.

  Every such batch is equally likely. A step of local SGD on one record has
  batch size 1.
  """

  noise_multiplier: float = run_events.real_field(_checks.positive)
  num_records: int = run_events.count_field(1)
  batch_size: int = run_events.count_field(1)

  def __attrs_post_init__(self):
    _checks.integer_between(1, self.num_records, batch_size=self.batch_size)


def _events_of_messages(events) -> tuple[dp_accounting.DpEvent, ...]:
  if isinstance(events, Sequence) and not isinstance(events, (str, bytes)):
    return tuple(events)
  return events


@attr.s(frozen=True, hash=False)
class DisjointRecordsDpEvent(RecordDpEvent):
  """Messages over disjoint parts of the records of one silo.

  Parallel composition: a record is in at most one part, and the messages of the
  other parts do not depend on it. It is public which part a record is in. So
  the most expensive part sets the cost. Which part this is may depend on delta.

  Attributes:
    events: All messages of each part together: message events, or compositions
      of message events.
  """

  events: tuple[dp_accounting.DpEvent, ...] = attr.ib(
      converter=_events_of_messages
  )

  @events.validator
  def _check_events(self, unused_attribute, value):
    allowed = 'one or more compositions of message events'
    if not isinstance(value, tuple) or not value:
      raise _checks.ArgumentError('events', value, allowed)
    for event in value:
      for leaf, _ in run_events.leaves(event):
        if not isinstance(leaf, MessageDpEvent):
          raise _checks.ArgumentError('events', value, allowed)

  def __hash__(self):
    # Equal events have equal parts. Compositions are not hashable.
    return hash((type(self), *(self.parts())))

  def parts(self) -> tuple[tuple[tuple[MessageDpEvent, int], ...], ...]:
    """Returns the messages of each part, with their number of occurrences."""
    return tuple(
        tuple(run_events.merged(run_events.leaves(event)))
        for event in self.events
    )


@attr.s(frozen=True)
class SumDpEvent(RecordDpEvent):
  """Base class of the events for opened sums of integer vectors.

  Every coordinate of a record of norm at most C is rounded at random to a grid
  of `grid` steps from -C to C. The sum over all records has independent noise
  on each of its `dimension` coordinates (`integer_sums`). A record is in the
  sum once. The adversary sees the sum.
  """


@attr.s(frozen=True)
class BinomialSumDpEvent(SumDpEvent):
  """A sum that includes every record's Binomial(trials, probability) noise.

  After arXiv:2106.09805. `num_records` records are promised to be in the sum.
  """

  grid: int = run_events.count_field(1)
  trials: int = run_events.count_field(1)
  num_records: int = run_events.count_field(1)
  dimension: int = run_events.count_field(1)
  probability: float = run_events.real_field(_share_of, 0.5, default=0.5)


@attr.s(frozen=True)
class SkellamSumDpEvent(SumDpEvent):
  """A sum with Skellam noise of `variance`, in squared steps of the grid.

  arXiv:2110.04995. `variance` is the variance per coordinate of all noise that
  is promised to be in the sum.
  """

  grid: int = run_events.count_field(1)
  variance: float = run_events.real_field(_checks.positive)
  dimension: int = run_events.count_field(1)


@attr.s(frozen=True)
class DiscreteGaussianSumDpEvent(SumDpEvent):
  """A sum with `num_shares` shares of discrete Gaussian noise.

  arXiv:2102.06387. `stddev` is the parameter of one share, in steps of the
  grid. `num_shares` shares are promised to be in the sum.
  """

  grid: int = run_events.count_field(1)
  stddev: float = run_events.real_field(_wide)
  num_shares: int = run_events.count_field(1)
  dimension: int = run_events.count_field(1)
