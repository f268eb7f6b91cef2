# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The ledger of a run with silos: who pays, who is refused, what is recorded."""

import dataclasses

from absl.testing import absltest

from tests.statement import occasions
from tff_dp import _checks
from tff_dp.systems.silos import silo_budget

_DELTA = 1e-4


def _plan(**budgets):
  """Returns a plan of two silos; north is away in rounds 2 and 3."""
  plan = occasions.PLANS['silos']()
  return dataclasses.replace(
      plan,
      silos={
          name: dataclasses.replace(silo, epsilon=budgets.get(name))
          for name, silo in plan.silos.items()
      },
  )


class SiloLedgerTest(absltest.TestCase):

  def test_budget_of_one_silo_stops_the_run(self):
    free = _plan()
    for name in ('north', 'south'):
      spent = [
          free.epsilon(num_rounds=each, member=name)
          for each in range(1, free.num_rounds + 1)
      ]
      for allowed in (1, 4, 7):
        # Equality passes, and so do rounds that cost the silo nothing.
        budget = spent[allowed - 1]
        last = max(t for t, e in enumerate(spent, 1) if e <= budget)
        plan = _plan(**{name: budget})
        ledger = plan.ledger(delta=_DELTA)
        self.assertEqual(ledger.rounds_left(0), last)
        ledger.check(last)
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError,
            f'round {last + 1} would take silo {name} to epsilon',
        ):
          ledger.check(last + 1)
        for each in range(1, last + 1):
          ledger.record(each)
        with self.assertRaises(_checks.PrivacyRefusedError):
          ledger.record(last + 1)
        self.assertEqual(ledger.rounds_recorded, last)

  def test_budget_of_the_run_is_that_of_the_silo_that_pays_most(self):
    plan = _plan()
    budget = plan.epsilon(delta=_DELTA, num_rounds=3)
    ledger = plan.ledger(delta=_DELTA, epsilon=budget)
    for each in (1, 2, 3):
      entry = ledger.record(each)
      self.assertEqual(
          entry,
          {
              'round': each,
              'epsilon': plan.epsilon(delta=_DELTA, num_rounds=each),
              'delta': _DELTA,
              'neighboring_relation': 'replace_one',
              'unit': 'record',
              'messages': {'north': 1, 'south': each},
          },
      )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 4 would'):
      ledger.record(4)

  def test_silos_that_came_pay(self):
    plan = _plan()
    ledger = plan.ledger(delta=_DELTA)
    planned = ledger.epsilon_after(1)
    entry = ledger.record(1, ['south'])
    self.assertEqual(entry['silos'], ['south'])
    self.assertEqual(entry['messages'], {'north': 0, 'south': 1})
    came = plan.with_present(1, ['south'])
    self.assertEqual(entry['epsilon'], came.epsilon(delta=_DELTA, num_rounds=1))
    # Also in what was asked before.
    self.assertLess(entry['epsilon'], planned)
    self.assertEqual(ledger.epsilon_after(1), entry['epsilon'])
    self.assertEqual(
        ledger.epsilon_after(8), came.epsilon(delta=_DELTA, num_rounds=8)
    )
    # North comes to a round in which the plan had it away.
    entry = ledger.record(2, ['north', 'south'])
    self.assertEqual(entry['messages'], {'north': 1, 'south': 2})
    self.assertEqual(ledger.plan.absences, {'north': (1, 3)})

  def test_a_repeated_round_takes_no_payment_back(self):
    ledger = _plan().ledger(delta=_DELTA)
    first = ledger.record(1, ['north', 'south'])
    for others in (['south'], ['north'], []):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'recorded with the silos'
      ):
        ledger.record(1, others)
    self.assertEqual(ledger.record(1, ['south', 'north']), first | {
        'silos': ['south', 'north']
    })
    ledger.record(2, ['south'])
    with self.assertRaises(_checks.PrivacyRefusedError):
      ledger.record(1, ['south'])
    self.assertEqual(ledger.plan.present(1), ('north', 'south'))

  def test_silo_beyond_its_budget_is_refused_and_nobody_pays(self):
    free = _plan()
    plan = _plan(north=free.epsilon(num_rounds=1, member='north'))
    ledger = plan.ledger(delta=_DELTA)
    self.assertEqual(ledger.rounds_left(0), 3)
    ledger.record(1)
    before = ledger.plan
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'silo north'):
      ledger.record(2, ['north', 'south'])
    self.assertIs(ledger.plan, before)
    self.assertEqual(ledger.rounds_recorded, 1)
    # Without it the run goes on, and more rounds are left than the plan had.
    for each in (2, 3, 4):
      ledger.record(each, ['south'])
    self.assertEqual(ledger.rounds_recorded, 4)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'silo north'):
      ledger.check(5)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      ledger.record(9, ['south'])

  def test_rounds_left_follow_who_comes(self):
    free = _plan()
    plan = _plan(north=free.epsilon(num_rounds=1, member='north'))
    ledger = plan.ledger(delta=_DELTA)
    self.assertEqual(ledger.rounds_left(0), 3)
    ledger.record(1, ['south'])
    self.assertEqual(ledger.rounds_left(1), 3)

  def test_default_delta(self):
    for records in (4, 40, 1000):
      budget = silo_budget.SiloBudget(records, 1.0)
      self.assertEqual(budget.delta, 1 / records**2)
    with self.assertRaisesRegex(_checks.ArgumentError, 'delta='):
      silo_budget.SiloBudget(100, 1.0, 0.01)
    silo_budget.SiloBudget(100, 1.0, 0.00999)


if __name__ == '__main__':
  absltest.main()
