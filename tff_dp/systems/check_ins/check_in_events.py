# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events of check-ins and shuffling, with noise that the clients add.

    ShuffledCheckInDpEvent(
        SphereLocalDpEvent(epsilon=2.0),
        min_num_clients=60_000, check_in_probability=0.1)

The events are stated for replacing one client in everything that the event
covers. All fields are numbers or events, as in `run_events`.
"""

import attr
import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.systems.system import At


def _local(**options):
  """Returns an attrs field for the local randomizer of a protocol."""

  def validate(protocol, unused_attribute, value):
    if isinstance(value, run_events.LocalRandomizerDpEvent):
      return
    name = type(protocol).__name__
    if not isinstance(value, dp_accounting.DpEvent):
      raise TypeError(
          f'event={value!r} is not allowed: expected a local event, such as'
          ' SphereLocalDpEvent(epsilon=2.0).'
      )
    raise _checks.PrivacyRefusedError(
        f'{name} is not defined for {type(value).__name__}',
        why='its clients add the noise themselves. With noise at the server'
        ' only, replacing one client would also change whose report is used, or'
        ' reports would be seen without noise',
        way_out='a local event, such as GaussianLocalDpEvent, or, where the'
        ' server is trusted to add noise to every sum, RandomAllocationDpEvent',
    )

  return attr.ib(validator=validate, **options)


@attr.s(frozen=True)
class CheckInDpEvent(run_events.ProtocolDpEvent):
  """Base class of the events of check-ins and shuffling."""

  rules = At('tff_dp.systems.check_ins.event_bounds', 'RULES')


@attr.s(frozen=True)
class FixedWindowCheckInDpEvent(CheckInDpEvent):
  """The whole run of random check-ins with a fixed window, one report per slot.

  A_fix of arXiv:2007.06605 (algorithm 1). Each client takes part with
  probability `check_in_probability` and then draws one of `num_slots` slots
  uniformly, with its own coins. The server asks one client of each slot, chosen
  uniformly, for a report. For an empty slot the server makes the report of a
  zero update itself. The adversary sees all models, and so all used reports in
  order. It does not see who checked in, whom the server asked and which slots
  were empty. The number of clients does not matter.
  """

  event: run_events.LocalRandomizerDpEvent = _local()
  num_slots: int = run_events.count_field(1)
  check_in_probability: float = run_events.real_field(
      _checks.in_closed, 0.0, 1.0, default=1.0
  )


@attr.s(frozen=True)
class SlidingWindowCheckInDpEvent(CheckInDpEvent):
  """The whole run of random check-ins with a sliding window.

  A_sldw of arXiv:2007.06605 (section 4.2). Client j draws one of the `window`
  slots j, ..., j + window - 1 uniformly. Slots before slot `window` are not
  used. Everything else is as in `FixedWindowCheckInDpEvent`.
  """

  event: run_events.LocalRandomizerDpEvent = _local()
  window: int = run_events.count_field(1)


@attr.s(frozen=True)
class AveragedCheckInDpEvent(CheckInDpEvent):
  """The whole run of random check-ins that average all reports of a slot.

  A_avg of arXiv:2007.06605 (algorithm 2). Each of at least `min_num_clients`
  clients takes part and draws one of `num_slots` slots uniformly. The server
  averages the reports of a slot. An empty slot leaves the model as it is. The
  adversary sees all models and the number of reports in every slot, and does
  not collude with participants.
  """

  event: run_events.LocalRandomizerDpEvent = _local()
  num_slots: int = run_events.count_field(1)
  min_num_clients: int = run_events.count_field(1)


@attr.s(frozen=True)
class ShuffledDpEvent(CheckInDpEvent):
  """One report of each of at least `num_messages` clients, in random order.

  Everybody takes part. The adversary sees all reports but does not know whose
  they are. Randomizers may depend on earlier reports if the order of the
  clients was drawn before the first report (arXiv:2012.12803, section 3).
  """

  event: run_events.LocalRandomizerDpEvent = _local()
  num_messages: int = run_events.count_field(1)


@attr.s(frozen=True)
class ShuffledCheckInDpEvent(CheckInDpEvent):
  """ONE round of shuffled check-in. T rounds are a `SelfComposedDpEvent`.

  arXiv:2206.03151. Each of at least `min_num_clients` clients, including the
  one whose data may change, flips its own coin and takes part with probability
  `check_in_probability`. The adversary sees the multiset of all reports, and so
  their number, but nobody's coins. Every round flips new coins and may depend
  on everything that was seen before.
  """

  event: run_events.LocalRandomizerDpEvent = _local()
  min_num_clients: int = run_events.count_field(1)
  check_in_probability: float = run_events.real_field(_checks.in_closed, 0.0, 1.0)
