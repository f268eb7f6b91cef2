# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ledger of secure sums, and what a pass through them guarantees."""

import json

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.accounting.integers import integer_plans
from tff_dp.ledger import silo_sums


def _ledger(min_silos=2):
  return silo_sums.SumLedger(
      {'a': 20, 'b': 12, 'c': 20}, min_silos=min_silos
  )


class LedgerTest(parameterized.TestCase):

  def test_every_block_once(self):
    ledger = _ledger()
    ledger.charge(['a', 'b'], first_record=0, num_records=4)
    ledger.charge(['a', 'c'], first_record=4, num_records=4)
    self.assertEqual([ledger.num_rounds(name) for name in 'abc'], [2, 1, 1])
    before = ledger.to_json()
    for first, size in ((0, 4), (4, 4), (3, 2), (7, 1), (0, 20)):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'of silo a were in the block'
      ):
        ledger.charge(['a', 'c'], first_record=first, num_records=size)
    # Nobody was charged.
    self.assertEqual(ledger.to_json(), before)
    # What silo a has used does not hold up the others.
    ledger.charge(['b', 'c'], first_record=8, num_records=4)

  def test_too_few_silos_and_too_few_records(self):
    ledger = _ledger()
    for names in ([], ['a'], ['a', 'a']):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'below the promised 2'
      ):
        ledger.charge(names, first_record=0, num_records=4)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'silo b has 12 records'
    ):
      ledger.charge(['a', 'b'], first_record=12, num_records=4)
    with self.assertRaisesRegex(_checks.ArgumentError, "silo='d'"):
      ledger.charge(['a', 'd'], first_record=0, num_records=4)
    self.assertEqual([ledger.num_rounds(name) for name in 'abc'], [0, 0, 0])

  def test_json_round_trip_still_refuses(self):
    ledger = _ledger()
    ledger.charge(['a', 'b'], first_record=0, num_records=4)
    copy = silo_sums.SumLedger.from_json(
        json.loads(json.dumps(ledger.to_json()))
    )
    self.assertEqual(copy.to_json(), ledger.to_json())
    with self.assertRaises(_checks.PrivacyRefusedError):
      copy.charge(['a', 'c'], first_record=0, num_records=4)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'version 9 cannot be read'
    ):
      silo_sums.SumLedger.from_json(ledger.to_json() | {'version': 9})


class GuaranteeTest(parameterized.TestCase):

  def _guarantee(self, **rounds):
    plan = integer_plans.calibrate(
        'skellam', epsilon=2.0, delta=1e-6, dimension=20, grid=64,
        records_per_silo=4, min_silos=10,
    )
    return silo_sums.SumGuarantee(
        plan=plan, dimension=20, delta=1e-6, requested_epsilon=2.0,
        rounds=rounds,
    )

  def test_with_trust_and_by_a_silos_own_noise(self):
    found = self._guarantee(a=5, b=3)
    self.assertBetween(found.epsilon, 1.9, 2.0)
    # A tenth of the variance.
    self.assertBetween(found.silo_epsilon, 6.0, 9.0)
    described = found.to_json()
    self.assertEqual(described['rounds'], {'a': 5, 'b': 3})
    self.assertEqual(described['plan']['noise'], 'skellam')
    json.dumps(described, allow_nan=False)
    text = found.to_text()
    self.assertIn('epsilon 2.000 at delta 1.000e-6', text)
    self.assertIn('if all other silos help the server', text)
    self.assertIn('at least 10 silos', text)

  def test_nothing_opened_costs_nothing(self):
    found = self._guarantee(a=0, b=0)
    self.assertEqual((found.epsilon, found.silo_epsilon), (0.0, 0.0))


if __name__ == '__main__':
  absltest.main()
