# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the public descriptions of check-in protocols."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp.accounting.events import run_events
from tff_dp.participation import protocol as protocol_lib
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.check_ins import check_in_events

_LOCAL = run_events.LocalDpEvent(1.0)
_ALL = (
    check_ins.FixedWindowCheckIn(6, 0.5, 3),
    check_ins.SlidingWindowCheckIn(6, 2),
    check_ins.AveragedCheckIn(6, 100),
    allocation.RandomAllocation(6, 2, 0.5),
    check_ins.ShuffledCheckIn(6, 0.1, 100, 0.25, True),
    check_ins.ShuffledReports(6, 100),
)


class ProtocolTest(parameterized.TestCase):

  @parameterized.parameters(
      (check_ins.FixedWindowCheckIn, (0,), 'num_slots=0'),
      (check_ins.FixedWindowCheckIn, (2.0,), 'num_slots=2.0'),
      (check_ins.FixedWindowCheckIn, (5, -0.1), 'check_in_probability'),
      (check_ins.FixedWindowCheckIn, (5, 1.1), 'check_in_probability=1.1'),
      (check_ins.FixedWindowCheckIn, (5, float('nan')), 'probability=nan'),
      (check_ins.FixedWindowCheckIn, (5, True), 'check_in_probability'),
      (check_ins.FixedWindowCheckIn, (5, 1.0, 0), 'slots_per_update=0'),
      (check_ins.FixedWindowCheckIn, (5, 1.0, 2), 'a divisor of num_slots'),
      (check_ins.SlidingWindowCheckIn, (0, 1), 'num_rounds=0'),
      (check_ins.SlidingWindowCheckIn, (5, 0), 'window=0'),
      (check_ins.SlidingWindowCheckIn, (5, 6), 'window=6 .* to 5'),
      (check_ins.AveragedCheckIn, (0, 5), 'num_slots=0'),
      (check_ins.AveragedCheckIn, (5, 0), 'min_num_clients=0'),
      (allocation.RandomAllocation, (5, 6), 'num_selected=6 .* to 5'),
      (allocation.RandomAllocation, (5, 1, 2), 'check_in_probability=2'),
      (check_ins.ShuffledReports, (0, 5), 'num_rounds=0'),
      (check_ins.ShuffledReports, (5, 0), 'min_num_clients=0'),
      (check_ins.ShuffledCheckIn, (0, 0.1, 5), 'num_rounds=0'),
      (check_ins.ShuffledCheckIn, (5, 1.5, 5), 'check_in_rate=1.5'),
      (check_ins.ShuffledCheckIn, (5, 0.1, 0), 'min_num_clients=0'),
      (check_ins.ShuffledCheckIn, (5, 0.1, 5, 1.0), 'dropout_rate=1.0'),
      (check_ins.ShuffledCheckIn, (5, 0.1, 5, 0.1, 'yes'), 'assume_'),
  )
  def test_bad_argument_is_named(self, protocol, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      protocol(*arguments)

  @parameterized.parameters(*_ALL)
  def test_description_makes_the_protocol_again(self, protocol):
    fields = json.loads(json.dumps(protocol.describe()))
    made = protocol_lib.from_description(fields, map(type, _ALL))
    self.assertEqual(made, protocol)
    self.assertEqual(made.protocol_id, protocol.protocol_id)
    self.assertEqual(hash(made), hash(protocol))
    for text in (protocol.trust, protocol.adversary, protocol.participation):
      self.assertNotEmpty(text)

  def test_protocol_ids_differ(self):
    self.assertLen({protocol.protocol_id for protocol in _ALL}, len(_ALL))

  def test_table_of_the_protocols(self):
    found = {
        protocol.name: (
            protocol.num_rounds,
            protocol.num_updates,
            protocol.max_reports,
            protocol.has_one_winner,
            protocol.occupancy_is_secret,
            protocol.needs_population,
        )
        for protocol in _ALL
    }
    self.assertEqual(
        found,
        {
            'FixedWindowCheckIn': (6, 2, 1, True, True, False),
            'SlidingWindowCheckIn': (6, 5, 1, True, True, False),
            'AveragedCheckIn': (6, 6, 1, False, False, True),
            'RandomAllocation': (6, 6, 2, False, True, False),
            'ShuffledCheckIn': (6, 6, 6, False, False, True),
            'ShuffledReports': (6, 6, 6, False, False, True),
        },
    )

  def test_events_of_a_pass(self):
    fixed, sliding, averaged, allocated, shuffled, everybody = _ALL
    self.assertEqual(
        fixed.dp_event(_LOCAL),
        check_in_events.FixedWindowCheckInDpEvent(_LOCAL, 6, 0.5),
    )
    self.assertEqual(
        sliding.dp_event(_LOCAL),
        check_in_events.SlidingWindowCheckInDpEvent(_LOCAL, 2),
    )
    self.assertEqual(
        averaged.dp_event(_LOCAL),
        check_in_events.AveragedCheckInDpEvent(_LOCAL, 6, 100),
    )
    gaussian = dp_accounting.GaussianDpEvent(2.0)
    self.assertEqual(
        allocated.dp_event(gaussian),
        allocation_events.RandomAllocationDpEvent(gaussian, 6, 2, 0.5),
    )
    event = shuffled.dp_event(_LOCAL)
    self.assertEqual(event.count, 6)
    self.assertEqual(event.event.min_num_clients, 100)
    self.assertAlmostEqual(event.event.check_in_probability, 0.075)
    self.assertGreaterEqual(event.event.check_in_probability, 0.075)
    event = everybody.dp_event(_LOCAL)
    self.assertEqual(event.count, 6)
    self.assertEqual(
        event.event, check_in_events.ShuffledDpEvent(_LOCAL, 100)
    )

  def test_minibatches_change_no_event(self):
    self.assertEqual(
        check_ins.FixedWindowCheckIn(6, 0.5, 3).dp_event(_LOCAL),
        check_ins.FixedWindowCheckIn(6, 0.5).dp_event(_LOCAL),
    )

  def test_events_of_a_prefix(self):
    fixed, sliding, averaged, allocated, shuffled, everybody = _ALL
    event = fixed.dp_event(_LOCAL, num_rounds=4)
    self.assertEqual(event.num_slots, 4)
    # Rounded up: 0.5 * 4 / 6 of the clients are in the first four slots.
    self.assertGreaterEqual(event.check_in_probability, 1 / 3)
    self.assertAlmostEqual(event.check_in_probability, 1 / 3, places=14)
    single = allocation.RandomAllocation(6, 1, 0.5)
    event = single.dp_event(dp_accounting.GaussianDpEvent(2.0), num_rounds=3)
    self.assertEqual((event.num_steps, event.num_selected), (3, 1))
    self.assertAlmostEqual(event.participation_probability, 0.25, places=14)
    for protocol, inner in (
        (sliding, _LOCAL),
        (averaged, _LOCAL),
        (allocated, dp_accounting.GaussianDpEvent(2.0)),
    ):
      self.assertEqual(
          protocol.dp_event(inner, num_rounds=1), protocol.dp_event(inner)
      )
    for protocol in (shuffled, everybody):
      self.assertEqual(protocol.dp_event(_LOCAL, num_rounds=2).count, 2)
    for protocol in _ALL:
      with self.assertRaisesRegex(ValueError, 'num_rounds=7'):
        protocol.dp_event(_LOCAL, num_rounds=7)

  @parameterized.parameters((0.1, 3, 7), (1.0, 1, 3), (0.0, 2, 5), (0.7, 9, 10))
  def test_share_is_rounded_up(self, probability, part, whole):
    share = protocol_lib.share_of(probability, part=part, whole=whole)
    # In integers: share >= probability * part / whole.
    numerator, denominator = probability.as_integer_ratio()
    found, below = share.as_integer_ratio()
    self.assertGreaterEqual(
        found * denominator * whole, numerator * part * below
    )
    self.assertLessEqual(share, probability)

  def test_dropout_lowers_the_rate_only_where_it_is_assumed(self):
    protocol = check_ins.ShuffledCheckIn(10, 0.2, 50, dropout_rate=0.5)
    self.assertEqual(protocol.certified_rate, 0.2)
    self.assertEqual(protocol.expected_rate, 0.1)
    self.assertEmpty(protocol.assumptions)
    protocol = check_ins.ShuffledCheckIn(
        10, 0.2, 50, dropout_rate=0.5, assume_independent_dropout=True
    )
    self.assertAlmostEqual(protocol.certified_rate, 0.1)
    self.assertIn('independently of who', protocol.assumptions[0])


if __name__ == '__main__':
  absltest.main()
