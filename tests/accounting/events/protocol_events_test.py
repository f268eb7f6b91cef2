# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the events of check-ins, shuffling and local randomizers."""

import math
import pickle

from absl.testing import absltest
from absl.testing import parameterized
import attr
import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.events import protocol_events

_LOCAL = protocol_events.LocalDpEvent(0.1, 1e-9)
_GAUSSIAN = dp_accounting.GaussianDpEvent(0.7)
_EVENTS = (
    _LOCAL,
    protocol_events.LocalDpEvent(2.0),
    protocol_events.RandomizedResponseLocalDpEvent(0.3, 17),
    protocol_events.SphereLocalDpEvent(2.1),
    protocol_events.LaplaceLocalDpEvent(0.7),
    protocol_events.GaussianLocalDpEvent(1.3),
    protocol_events.FixedWindowCheckInDpEvent(_LOCAL, 2000, 0.1),
    protocol_events.SlidingWindowCheckInDpEvent(_LOCAL, 7),
    protocol_events.AveragedCheckInDpEvent(_LOCAL, 7, 3_000_000_000),
    protocol_events.ShuffledDpEvent(_LOCAL, 12345),
    protocol_events.ShuffledCheckInDpEvent(_LOCAL, 60_000, 0.1),
    protocol_events.RandomAllocationDpEvent(_GAUSSIAN, 2000, 3, 0.3),
)
_named = [(type(event).__name__ + str(i), event)
          for i, event in enumerate(_EVENTS)]


class RoundTripTest(parameterized.TestCase):

  @parameterized.named_parameters(_named)
  def test_named_tuple(self, event):
    for outer in (
        event,
        dp_accounting.SelfComposedDpEvent(event, 6800),
        dp_accounting.ComposedDpEvent([_GAUSSIAN, event]),
    ):
      again = dp_accounting.DpEvent.from_named_tuple(outer.to_named_tuple())
      self.assertEqual(again, outer)
    again = dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple())
    self.assertIs(type(again), type(event))
    self.assertEqual(hash(again), hash(event))
    self.assertEqual(repr(again), repr(event))
    self.assertEqual(pickle.loads(pickle.dumps(event)), event)

  @parameterized.named_parameters(_named)
  def test_named_tuple_with_bytes_for_names(self, event):
    # What comes out of TensorFlow.
    as_tuple = event.to_named_tuple()
    as_bytes = as_tuple._replace(
        module_name=as_tuple.module_name.encode(),
        class_name=as_tuple.class_name.encode(),
    )
    self.assertEqual(dp_accounting.DpEvent.from_named_tuple(as_bytes), event)

  @parameterized.named_parameters(_named)
  def test_fields_are_numbers_or_events(self, event):
    for field in attr.fields(type(event)):
      value = getattr(event, field.name)
      self.assertIsInstance(value, (int, float, dp_accounting.DpEvent))
      self.assertNotIsInstance(value, np.generic)

  def test_state_of_a_tff_process(self):
    # pylint: disable-next=g-import-not-at-top
    from tff_dp import execution
    # pylint: disable-next=g-import-not-at-top
    import tensorflow_federated as tff

    execution.set_sync_in_process_context()
    together = dp_accounting.ComposedDpEvent(list(_EVENTS[:-1]))
    for event in (*_EVENTS, dp_accounting.SelfComposedDpEvent(together, 3)):
      state = tff.tensorflow.computation(event.to_named_tuple)()
      again = dp_accounting.DpEvent.from_named_tuple(state)
      if isinstance(event, dp_accounting.SelfComposedDpEvent):
        self.assertLen(again.event.events, len(_EVENTS) - 1)
        self.assertEqual(list(again.event.events), list(_EVENTS[:-1]))
        continue
      if isinstance(event, protocol_events.RandomAllocationDpEvent):
        # The event of dp_accounting inside comes back as float32.
        again = attr.evolve(again, event=_GAUSSIAN)
      self.assertEqual(again, event)


class FieldsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('SphereLocalDpEvent', 'epsilon', (0.0, -1.0, math.inf, math.nan, True,
                                         '2')),
      ('LocalDpEvent', 'delta', (-1e-9, 1.0, math.nan)),
      ('RandomizedResponseLocalDpEvent', 'num_categories', (1, 2.0, True)),
      ('GaussianLocalDpEvent', 'noise_multiplier', (0.0, -1.0, math.nan)),
      ('FixedWindowCheckInDpEvent', 'num_slots', (0, 1.5)),
      ('FixedWindowCheckInDpEvent', 'check_in_probability', (-0.1, 1.1,
                                                             math.nan)),
      ('SlidingWindowCheckInDpEvent', 'window', (0, -3)),
      ('AveragedCheckInDpEvent', 'min_num_clients', (0, 1e6)),
      ('ShuffledDpEvent', 'num_messages', (0,)),
      ('ShuffledCheckInDpEvent', 'check_in_probability', (-1e-9, 2.0)),
      ('ShuffledCheckInDpEvent', 'min_num_clients', (0,)),
      ('RandomAllocationDpEvent', 'num_steps', (0,)),
      ('RandomAllocationDpEvent', 'num_selected', (0, 2001)),
      ('RandomAllocationDpEvent', 'participation_probability', (1.01,)),
  )
  def test_bad_values_name_the_field(self, kind, field, values):
    (good, *_) = [
        event for event in _EVENTS if type(event).__name__ == kind
    ]
    for value in values:
      with self.assertRaisesRegex(_checks.ArgumentError, f'^{field}='):
        attr.evolve(good, **{field: value})

  def test_numbers_of_numpy_are_numbers(self):
    event = protocol_events.ShuffledCheckInDpEvent(
        _LOCAL,
        min_num_clients=np.int64(5),
        check_in_probability=np.array(0.25),
    )
    self.assertEqual(
        event, protocol_events.ShuffledCheckInDpEvent(_LOCAL, 5, 0.25)
    )
    self.assertEqual(
        repr(event), repr(protocol_events.ShuffledCheckInDpEvent(
            _LOCAL, 5, 0.25))
    )

  @parameterized.parameters(
      lambda inner: protocol_events.FixedWindowCheckInDpEvent(inner, 5),
      lambda inner: protocol_events.SlidingWindowCheckInDpEvent(inner, 5),
      lambda inner: protocol_events.AveragedCheckInDpEvent(inner, 5, 5),
      lambda inner: protocol_events.ShuffledDpEvent(inner, 5),
      lambda inner: protocol_events.ShuffledCheckInDpEvent(inner, 5, 0.5),
  )
  def test_noise_at_the_server_is_refused(self, make):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'RandomAllocationDpEvent'
    ):
      make(_GAUSSIAN)
    with self.assertRaisesRegex(TypeError, 'SphereLocalDpEvent'):
      make(2.0)

  def test_random_allocation_needs_noise_at_the_server(self):
    for event in (_LOCAL, protocol_events.GaussianLocalDpEvent(1.0), 1.0):
      with self.assertRaisesRegex(TypeError, 'GaussianDpEvent'):
        protocol_events.RandomAllocationDpEvent(event, 5)
    with self.assertRaisesRegex(_checks.ArgumentError, '^noise_multiplier='):
      protocol_events.RandomAllocationDpEvent(
          dp_accounting.GaussianDpEvent(-1.0), 5
      )

  @parameterized.named_parameters(_named)
  def test_other_accountants_refuse(self, event):
    for accountant in (
        dp_accounting.pld.PLDAccountant(), dp_accounting.rdp.RdpAccountant()
    ):
      self.assertFalse(accountant.supports(event))


if __name__ == '__main__':
  absltest.main()
