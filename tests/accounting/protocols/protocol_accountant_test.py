# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the accountant, under dp_accounting 0.4.3 and 0.6.0 alike."""

import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import attr
import dp_accounting
from dp_accounting import pld
from dp_accounting.pld import privacy_loss_distribution
import pytest

from tff_dp import _checks
from tff_dp import _compat_losses
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import protocol_accountant
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.check_ins import check_in_events

pytestmark = pytest.mark.once

_Relation = dp_accounting.NeighboringRelation
_Accountant = protocol_accountant.ProtocolAccountant
_Times = dp_accounting.SelfComposedDpEvent
_Composed = dp_accounting.ComposedDpEvent
_Gaussian = dp_accounting.GaussianDpEvent
_Laplace = dp_accounting.LaplaceDpEvent
_Local = run_events.LocalDpEvent
_Sphere = run_events.SphereLocalDpEvent

_CHECK_IN = check_in_events.ShuffledCheckInDpEvent(_Local(1.0), 3000, 0.2)
_SHUFFLE = check_in_events.ShuffledDpEvent(_Sphere(1.0), 3000)
_FIXED = check_in_events.FixedWindowCheckInDpEvent(_Local(0.5), 200, 0.5)
_ALLOCATION = allocation_events.RandomAllocationDpEvent(_Gaussian(2.0), 50)
_POISSON = dp_accounting.PoissonSampledDpEvent(0.1, _Gaussian(2.0))
_REPLACED = (
    _Local(0.3),
    run_events.RandomizedResponseLocalDpEvent(0.3, 4),
    _Sphere(0.3),
    run_events.LaplaceLocalDpEvent(0.3),
    run_events.GaussianLocalDpEvent(3.0),
    _FIXED,
    check_in_events.SlidingWindowCheckInDpEvent(_Local(0.5), 200),
    check_in_events.AveragedCheckInDpEvent(_Local(0.2), 200, 9000),
    _SHUFFLE,
    _CHECK_IN,
    _Gaussian(5.0),
    _Laplace(5.0),
)
_named = [(type(event).__name__, event) for event in _REPLACED]


def _epsilon(*composed, delta=1e-5, **options):
  accountant = _Accountant(**options)
  for item in composed:
    accountant.compose(*(item if isinstance(item, tuple) else (item,)))
  return accountant.get_epsilon(delta)


@attr.s(frozen=True, auto_attribs=True)
class _Foreign(dp_accounting.DpEvent):
  """An event that nobody here knows."""

  epsilon: float


class CompositionTest(parameterized.TestCase):

  @parameterized.named_parameters(_named)
  def test_count_is_honoured(self, event):
    # In all the ways to say it; they differ by discretisation.
    six = _epsilon((event, 6))
    for other in (
        ((event, 2), (event, 4)),
        (_Times(event, 6),),
        ((_Times(event, 2), 3),),
        ((_Composed([event, _Times(event, 2)]), 2),),
    ):
      self.assertAlmostEqual(_epsilon(*other), six, delta=0.01 * six + 1e-4)
    self.assertGreater(six, 1.3 * _epsilon(event))
    self.assertGreater(_epsilon((event, 20)), 1.5 * six)

  def test_order_changes_nothing(self):
    composed = (_CHECK_IN, _SHUFFLE, _Gaussian(9.0), _FIXED, _Laplace(9.0))
    self.assertAlmostEqual(
        _epsilon(*composed), _epsilon(*reversed(composed)), places=6
    )

  def test_ledger(self):
    accountant = _Accountant()
    accountant.compose(_CHECK_IN, 2).compose(_CHECK_IN, 3)
    accountant.compose(_Times(_Gaussian(9.0), 2))
    self.assertEqual(
        accountant.ledger,
        _Composed([_Times(_CHECK_IN, 5), _Times(_Gaussian(9.0), 2)]),
    )
    again = dp_accounting.DpEvent.from_named_tuple(
        accountant.ledger.to_named_tuple()
    )
    self.assertAlmostEqual(
        _epsilon(again), accountant.get_epsilon(1e-5), places=3
    )

  @parameterized.named_parameters(_named)
  def test_delta_inverts_epsilon(self, event):
    accountant = _Accountant().compose(event, 3)
    epsilon = accountant.get_epsilon(1e-4)
    self.assertAlmostEqual(accountant.get_delta(epsilon) / 1e-4, 1, places=4)

  def test_nothing_composed(self):
    accountant = _Accountant().compose(dp_accounting.NoOpDpEvent())
    self.assertEqual(accountant.get_epsilon(1e-5), 0.0)
    self.assertLess(accountant.get_delta(0.0), 1e-12)

  def test_grid_halved_moves_less_than_a_percent(self):
    event = _Times(_CHECK_IN, 50)
    for interval in (1e-3, 1e-4):
      self.assertAlmostEqual(
          _epsilon(event, value_discretization_interval=interval)
          / _epsilon(event, value_discretization_interval=interval / 2),
          1,
          delta=0.01,
      )

  def test_agrees_with_amplify(self):
    for event in (
        _Times(_CHECK_IN, 50), _SHUFFLE, _FIXED,
        _Composed([_CHECK_IN, _SHUFFLE, _Gaussian(9.0)]),
    ):
      expected = best_bound.amplify(event, delta=1e-5).epsilon
      self.assertAlmostEqual(
          _epsilon(event) / expected, 1.0, delta=0.02, msg=event
      )
      self.assertAlmostEqual(
          accountants.epsilon(
              event, delta=1e-5, method='pld',
              neighboring_relation='replace_one',
          ) / expected,
          1.0,
          delta=0.02,
      )

  def test_published_proofs(self):
    for event in (_CHECK_IN, _FIXED, _SHUFFLE):
      plain = _epsilon(event, published_proofs=True)
      self.assertGreater(plain, _epsilon(event))
      self.assertLess(plain, 1.001)

  def test_vacuous_is_infinite_and_quick(self):
    event = check_in_events.ShuffledCheckInDpEvent(
        _Local(2.0, 0.9), 60_000, 0.1
    )
    accountant = _Accountant().compose(event, 10**6)
    self.assertEqual(accountant.get_epsilon(1e-5), math.inf)
    for nothing in (_Gaussian(0.0), _Laplace(0.0)):
      accountant = _Accountant().compose(nothing, 10**9).compose(_CHECK_IN)
      self.assertEqual(accountant.get_epsilon(1e-5), math.inf)
      self.assertEqual(accountant.get_delta(1.0), 1.0)
    accountant = _Accountant().compose(dp_accounting.NonPrivateDpEvent())
    self.assertEqual(accountant.get_epsilon(1e-5), math.inf)


class VersionsTest(parameterized.TestCase):

  def test_gaussian_under_replace_one(self):
    # dp_accounting alone: 4.377 in version 0.4.3, 9.997 in version 0.6.0.
    for relation, expected in (
        (_Relation.REPLACE_ONE, 9.997),
        (_Relation.REPLACE_SPECIAL, 4.377),
        (_Relation.ADD_OR_REMOVE_ONE, 4.377),
    ):
      found = _epsilon(_Gaussian(1.0), neighboring_relation=relation)
      self.assertAlmostEqual(found, expected, places=2)
    self.assertAlmostEqual(
        _epsilon((_Gaussian(10.0), 25)),
        gaussian.exact_epsilon(sigma=1.0, delta=1e-5),
        places=2,
    )

  def test_laplace_under_replace_one(self):
    # e0 = 2 / b: delta = 1 - exp((epsilon - e0) / 2).
    self.assertAlmostEqual(
        _epsilon(_Laplace(2.0), delta=0.1), 1 + 2 * math.log(0.9), places=4
    )
    self.assertAlmostEqual(
        _epsilon(
            _Laplace(2.0), delta=0.1,
            neighboring_relation=_Relation.ADD_OR_REMOVE_ONE,
        ),
        0.5 + 2 * math.log(0.9),
        places=4,
    )

  def test_their_randomized_response_is_refused(self):
    if not hasattr(dp_accounting.dp_event, 'RandomizedResponseDpEvent'):
      self.skipTest('this dp_accounting has none')
    event = dp_accounting.dp_event.RandomizedResponseDpEvent(0.5, 2)
    for relation in _Relation:
      accountant = _Accountant(relation)
      self.assertFalse(accountant.supports(event))
      with self.assertRaisesRegex(
          dp_accounting.UnsupportedEventError, 'LocalDpEvent'
      ):
        accountant.compose(event, 10)

  def test_fields_of_the_base_class_are_there(self):
    base = pld.PLDAccountant()
    for name in (
        '_pld', '_value_discretization_interval', '_contains_non_dp_event',
        '_ledger', '_maybe_compose',
    ):
      self.assertTrue(hasattr(base, name), name)
    for symmetric in (True, False):
      distribution = privacy_loss_distribution.from_gaussian_mechanism(
          1.0, sampling_prob=1.0 if symmetric else 0.5
      )
      self.assertLen(
          _compat_losses.loss_masses(distribution), 1 if symmetric else 2
      )


class SmallDeltaTest(absltest.TestCase):

  def test_what_is_composed_in_steps_keeps_its_digits(self):
    both = _Composed([_Times(_CHECK_IN, 300), _Gaussian(40.0)])
    for delta in (1e-11, 1e-14):
      found = _epsilon(
          (_CHECK_IN, 100), _Gaussian(40.0), (_CHECK_IN, 200), delta=delta
      )
      whole = best_bound.amplify(both, delta=delta)
      self.assertAlmostEqual(found / whole.epsilon, 1.0, delta=0.03)
      self.assertLess(found, 0.1 * whole.epsilon_no_amplification)

  def test_what_is_composed_again_counts_again(self):
    # The same part, so that only its number of times tells them apart.
    whole = _epsilon((_CHECK_IN, 300), delta=1e-14)
    again = _epsilon(*[(_CHECK_IN, 100)] * 3, delta=1e-14)
    self.assertAlmostEqual(again / whole, 1.0, delta=0.01)

  def test_what_dp_accounting_composes_is_lost_in_rounding(self):
    relation = _Relation.ADD_OR_REMOVE_ONE
    accountant = _Accountant(relation).compose(_POISSON, 10)
    self.assertEqual(accountant.get_epsilon(1e-14), math.inf)
    accountant = _Accountant(relation).compose(_ALLOCATION, 10)
    self.assertLess(accountant.get_epsilon(1e-14), 10.0)


class RelationTest(parameterized.TestCase):

  @parameterized.named_parameters(
      [pair for pair in _named if pair[0] not in (
          'GaussianDpEvent', 'LaplaceDpEvent')]
  )
  def test_shuffles_under_replace_one_only(self, event):
    for relation in (_Relation.ADD_OR_REMOVE_ONE, _Relation.REPLACE_SPECIAL):
      accountant = _Accountant(relation)
      self.assertFalse(accountant.supports(event))
      with self.assertRaisesRegex(
          dp_accounting.UnsupportedEventError, 'REPLACE_ONE'
      ):
        accountant.compose(_Times(event, 2))
      self.assertEqual(accountant.get_epsilon(1e-5), 0.0)
    self.assertTrue(_Accountant().supports(event))

  def test_random_allocation_under_all_relations(self):
    expected = best_bound.amplify(_ALLOCATION, delta=1e-5)
    for relation in (_Relation.ADD_OR_REMOVE_ONE, _Relation.REPLACE_SPECIAL):
      self.assertAlmostEqual(
          _epsilon(_ALLOCATION, neighboring_relation=relation),
          expected.epsilon,
          delta=0.01,
      )
    self.assertBetween(
        _epsilon(_ALLOCATION), 1.5 * expected.epsilon, 2.5 * expected.epsilon
    )

  def test_poisson_composes_with_random_allocation_only(self):
    relation = _Relation.ADD_OR_REMOVE_ONE
    both = _epsilon(_ALLOCATION, _POISSON, neighboring_relation=relation)
    self.assertGreater(
        both, _epsilon(_ALLOCATION, neighboring_relation=relation)
    )
    for relation in _Relation:
      for composed in (
          [_Composed([_CHECK_IN, _POISSON])],
          [_Composed([_POISSON, _Times(_SHUFFLE, 2)])],
      ):
        with self.assertRaisesRegex(
            dp_accounting.UnsupportedEventError,
            'Shuffled.*PoissonSampledDpEvent',
        ):
          _epsilon(*composed, neighboring_relation=relation)
    # One after the other, too.
    accountant = _Accountant().compose(_CHECK_IN)
    with self.assertRaisesRegex(
        dp_accounting.UnsupportedEventError, 'CheckIn.*PoissonSampled'
    ):
      accountant.compose(_POISSON)
    self.assertFalse(_Accountant().supports(_POISSON))

  def test_methods_of_accountants(self):
    for method in ('exact', 'rdp'):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'pld'):
        accountants.epsilon(
            _CHECK_IN, delta=1e-5, method=method,
            neighboring_relation='replace_one',
        )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'replace_one'):
      accountants.epsilon(_CHECK_IN, delta=1e-5, method='pld')
    relation = run_events.NeighboringRelation.REPLACE_ONE
    found = accountants.delta(
        _CHECK_IN, epsilon=0.05, method='pld', neighboring_relation=relation
    )
    self.assertAlmostEqual(
        accountants.epsilon(
            _CHECK_IN, delta=found, method='pld',
            neighboring_relation=relation,
        ),
        0.05,
        places=3,
    )


class AtomicityTest(parameterized.TestCase):

  def test_a_failed_compose_changes_nothing(self):
    accountant = _Accountant().compose(_CHECK_IN, 3)
    before = (accountant.get_epsilon(1e-5), accountant.ledger)

    class Strange(run_events.SphereLocalDpEvent):
      pass

    for bad, error in (
        (_Composed([_CHECK_IN, _POISSON]), dp_accounting.UnsupportedEventError),
        (_Composed([_SHUFFLE, _Foreign(1.0)]),
         dp_accounting.UnsupportedEventError),
        (_Composed([_SHUFFLE, dp_accounting.UnsupportedDpEvent()]),
         dp_accounting.UnsupportedEventError),
        (_Composed([_SHUFFLE, check_in_events.ShuffledDpEvent(
            Strange(1.0), 9)]), dp_accounting.UnsupportedEventError),
        (3.0, TypeError),
    ):
      with self.assertRaises(error):
        accountant.compose(bad)
      self.assertEqual(
          (accountant.get_epsilon(1e-5), accountant.ledger), before
      )
    for count in (0, -1, 1.0, True):
      with self.assertRaisesRegex(_checks.ArgumentError, '^count='):
        accountant.compose(_CHECK_IN, count)
    self.assertEqual(
        (accountant.get_epsilon(1e-5), accountant.ledger), before
    )

  def test_an_error_half_way_changes_nothing(self):
    accountant = _Accountant().compose(_CHECK_IN)
    before = accountant.get_epsilon(1e-5)
    fails = mock.patch.object(
        protocol_accountant, 'best_part', side_effect=[mock.DEFAULT, MemoryError()]
    )
    with fails as best_part, self.assertRaises(MemoryError):
      best_part.return_value = composition.Part(local_profiles.pure(0.1))
      accountant.compose(_Composed([_SHUFFLE, _CHECK_IN]))
    self.assertEqual(best_part.call_count, 2)
    self.assertEqual(accountant.get_epsilon(1e-5), before)
    self.assertEqual(accountant.ledger, _CHECK_IN)


class ArgumentsTest(absltest.TestCase):

  def test_bad_arguments(self):
    for options in (
        dict(value_discretization_interval=0.0),
        dict(target_delta=0.0),
    ):
      with self.assertRaises(_checks.ArgumentError):
        _Accountant(**options)
    with self.assertRaisesRegex(_checks.ArgumentError, 'target_delta'):
      _Accountant().get_epsilon(0.0)
    with self.assertRaisesRegex(_checks.ArgumentError, 'target_epsilon'):
      _Accountant().get_delta(-1.0)


if __name__ == '__main__':
  absltest.main()
