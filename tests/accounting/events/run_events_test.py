# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for events: fields, round trips, and the epsilon of dp_accounting."""

import math
import pickle

from absl.testing import absltest
from absl.testing import parameterized
import attr
import dp_accounting
from dp_accounting import rdp
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.execution import contexts
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.check_ins import check_in_events

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT
_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE


class NeighboringRelationTest(parameterized.TestCase):

  @parameterized.parameters(*run_events.NeighboringRelation)
  def test_is_its_own_name(self, relation):
    self.assertEqual(run_events.NeighboringRelation(str(relation)), relation)
    self.assertEqual(f'{relation}', relation.value)
    self.assertIn('one client', relation.description)

  def test_another_name(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError,
        "neighboring_relation='add_or_remove_one'.*zero_out, replace_one",
    ):
      run_events.NeighboringRelation('add_or_remove_one')
    theirs = dp_accounting.NeighboringRelation
    for value, way_out in (
        ('add-or-remove-one', 'zero_out.* is the same number'),
        (theirs.ADD_OR_REMOVE_ONE, 'zero_out.* is the same number'),
        (theirs.REPLACE_SPECIAL, "'zero_out'"),
        (theirs.REPLACE_ONE, "'replace_one'"),
    ):
      with self.assertRaisesRegex(ValueError, f'\ntry: {way_out}'):
        run_events.NeighboringRelation(value)

  def test_names_in_dp_accounting(self):
    self.assertEqual(
        _ZERO_OUT.dp_accounting,
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    )
    self.assertEqual(
        _REPLACE_ONE.dp_accounting,
        dp_accounting.NeighboringRelation.REPLACE_ONE,
    )

  def test_factor_equals_the_largest_move_of_a_clipped_contribution(self):
    angles = np.linspace(0, 2 * np.pi, 181)
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    moves = np.sum((unit[:, None] - unit[None, :]) ** 2, axis=-1)
    self.assertAlmostEqual(
        moves.max(), _REPLACE_ONE.squared_sensitivity_factor
    )
    self.assertAlmostEqual(
        np.sum(unit**2, axis=1).max(), _ZERO_OUT.squared_sensitivity_factor
    )


class RunEventTest(parameterized.TestCase):

  @parameterized.product(
      relation=tuple(run_events.NeighboringRelation),
      noise_multiplier=(1.13, 7.0),
      squared_sensitivity=(11, 79),
  )
  def test_dp_accounting_gives_the_same_epsilon(
      self, relation, noise_multiplier, squared_sensitivity
  ):
    event = run_events.run_event(
        noise_multiplier=noise_multiplier,
        squared_sensitivity=squared_sensitivity,
        neighboring_relation=relation,
    )
    self.assertIsInstance(event, dp_accounting.GaussianDpEvent)
    orders = 1 + np.geomspace(1e-2, 1e3, 2000)
    accountant = rdp.RdpAccountant(orders, relation.dp_accounting)
    accountant.compose(event)
    sigma = noise_multiplier / math.sqrt(
        squared_sensitivity * {_ZERO_OUT: 1, _REPLACE_ONE: 4}[relation]
    )
    ours = gaussian.rdp_epsilon(sigma=sigma, delta=1e-6)
    # Theirs is the minimum over a grid of orders, ours over all of them.
    self.assertBetween(
        accountant.get_epsilon(1e-6), ours - 1e-9, ours * (1 + 1e-5)
    )

  def test_composed_rounds_equal_the_run(self):
    # One participation, seven nodes of multiplier 3: seven Gaussians.
    composed = rdp.RdpAccountant(
        neighboring_relation=_ZERO_OUT.dp_accounting
    )
    composed.compose(
        dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(3.0), 7)
    )
    run = rdp.RdpAccountant(neighboring_relation=_ZERO_OUT.dp_accounting)
    run.compose(
        run_events.run_event(noise_multiplier=3.0, squared_sensitivity=7)
    )
    self.assertAlmostEqual(composed.get_epsilon(1e-6), run.get_epsilon(1e-6))

  def test_accepts_the_relation_by_name(self):
    self.assertEqual(
        run_events.run_event(
            noise_multiplier=1.0,
            squared_sensitivity=4,
            neighboring_relation='replace_one',
        ),
        dp_accounting.GaussianDpEvent(0.25),
    )

  def test_no_noise_is_not_private(self):
    event = run_events.run_event(noise_multiplier=0, squared_sensitivity=4)
    self.assertEqual(event, dp_accounting.NonPrivateDpEvent())

  @parameterized.parameters(
      ({'noise_multiplier': -1.0}, '^noise_multiplier=-1.0'),
      ({'noise_multiplier': math.nan}, '^noise_multiplier=nan'),
      ({'squared_sensitivity': 0}, '^squared_sensitivity=0'),
      ({'neighboring_relation': 'add'}, 'add'),
  )
  def test_names_the_argument(self, changed, message):
    arguments = {'noise_multiplier': 1.0, 'squared_sensitivity': 1, **changed}
    with self.assertRaisesRegex(ValueError, message):
      run_events.run_event(**arguments)
    with self.assertRaisesRegex(ValueError, message):
      run_events.effective_sigma(**arguments)


_LOCAL = run_events.LocalDpEvent(0.1, 1e-9)
_GAUSSIAN = dp_accounting.GaussianDpEvent(0.7)
_EVENTS = (
    _LOCAL,
    run_events.LocalDpEvent(2.0),
    run_events.RandomizedResponseLocalDpEvent(0.3, 17),
    run_events.SphereLocalDpEvent(2.1),
    run_events.LaplaceLocalDpEvent(0.7),
    run_events.GaussianLocalDpEvent(1.3),
    check_in_events.FixedWindowCheckInDpEvent(_LOCAL, 2000, 0.1),
    check_in_events.SlidingWindowCheckInDpEvent(_LOCAL, 7),
    check_in_events.AveragedCheckInDpEvent(_LOCAL, 7, 3_000_000_000),
    check_in_events.ShuffledDpEvent(_LOCAL, 12345),
    check_in_events.ShuffledCheckInDpEvent(_LOCAL, 60_000, 0.1),
    allocation_events.RandomAllocationDpEvent(_GAUSSIAN, 2000, 3, 0.3),
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
    # pylint: disable-next=g-import-not-at-top
    import tensorflow_federated as tff

    contexts.set_sync_in_process_context()
    together = dp_accounting.ComposedDpEvent(list(_EVENTS[:-1]))
    for event in (*_EVENTS, dp_accounting.SelfComposedDpEvent(together, 3)):
      state = tff.tensorflow.computation(event.to_named_tuple)()
      again = dp_accounting.DpEvent.from_named_tuple(state)
      if isinstance(event, dp_accounting.SelfComposedDpEvent):
        self.assertLen(again.event.events, len(_EVENTS) - 1)
        self.assertEqual(list(again.event.events), list(_EVENTS[:-1]))
        continue
      if isinstance(event, allocation_events.RandomAllocationDpEvent):
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
    event = check_in_events.ShuffledCheckInDpEvent(
        _LOCAL,
        min_num_clients=np.int64(5),
        check_in_probability=np.array(0.25),
    )
    self.assertEqual(
        event, check_in_events.ShuffledCheckInDpEvent(_LOCAL, 5, 0.25)
    )
    self.assertEqual(
        repr(event), repr(check_in_events.ShuffledCheckInDpEvent(
            _LOCAL, 5, 0.25))
    )

  @parameterized.parameters(
      lambda inner: check_in_events.FixedWindowCheckInDpEvent(inner, 5),
      lambda inner: check_in_events.SlidingWindowCheckInDpEvent(inner, 5),
      lambda inner: check_in_events.AveragedCheckInDpEvent(inner, 5, 5),
      lambda inner: check_in_events.ShuffledDpEvent(inner, 5),
      lambda inner: check_in_events.ShuffledCheckInDpEvent(inner, 5, 0.5),
  )
  def test_noise_at_the_server_is_refused(self, make):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'RandomAllocationDpEvent'
    ):
      make(_GAUSSIAN)
    with self.assertRaisesRegex(TypeError, 'SphereLocalDpEvent'):
      make(2.0)

  def test_random_allocation_needs_noise_at_the_server(self):
    for event in (_LOCAL, run_events.GaussianLocalDpEvent(1.0), 1.0):
      with self.assertRaisesRegex(TypeError, 'GaussianDpEvent'):
        allocation_events.RandomAllocationDpEvent(event, 5)
    with self.assertRaisesRegex(_checks.ArgumentError, '^noise_multiplier='):
      allocation_events.RandomAllocationDpEvent(
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
