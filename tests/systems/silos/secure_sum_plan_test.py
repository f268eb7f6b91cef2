# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan of secure sums over silos."""

import json

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

import tff_dp
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.statement import builder
from tff_dp.statement import statement
from tff_dp.systems.silos import integer_plans

_DELTA = 1e-6
_RECORDS = {'a': 20, 'b': 21, 'c': 25}
_LAWS = {
    'skellam': integer_plans.SkellamPlan,
    'discrete-gaussian': integer_plans.DiscreteGaussianPlan,
    'binomial': integer_plans.BinomialPlan,
}


def _plan(noise='skellam', **changes):
  strength = {
      'skellam': dict(variance=900.0),
      'discrete-gaussian': dict(stddev=30.0),
      'binomial': dict(trials=900),
  }[noise]
  sums = _LAWS[noise](grid=16, records_per_silo=4, min_silos=2, **strength)
  return tff_dp.SecureSumPlan(
      **dict(
          silos=_RECORDS,
          sums=sums,
          num_rounds=5,
          l2_norm_clip=2.0,
          dimension=6,
      )
      | changes
  )


def _all_but(name, *rounds):
  return lambda r, silo: silo != name or r not in rounds


class PlanTest(parameterized.TestCase):

  @parameterized.parameters(*_LAWS)
  def test_description_makes_the_plan_again(self, noise):
    plan = _plan(noise).with_availability(_all_but('a', 2, 5))
    made = tff_dp.plans.from_description(
        json.loads(json.dumps(plan.describe()))
    )
    self.assertEqual(made, plan)
    self.assertEqual(made.fingerprint, plan.fingerprint)
    # A process does not know of absences.
    self.assertEqual(_plan(noise).fingerprint, plan.fingerprint)

  def test_fingerprint_is_of_all_else(self):
    plan = _plan()
    others = (
        _plan('discrete-gaussian'),
        _plan(num_rounds=4),
        _plan(l2_norm_clip=1.0),
        _plan(dimension=7),
        _plan(silos={'a': 20, 'b': 21}),
    )
    self.assertLen({plan.fingerprint, *(o.fingerprint for o in others)}, 6)

  @parameterized.parameters(*_LAWS)
  def test_a_pass_costs_one_sum_with_the_promised_noise(self, noise):
    plan = _plan(noise).with_availability(_all_but('a', 1))
    epsilon = plan.sums.epsilon(_DELTA, dimension=6)
    for rounds in (1, 3, None):
      self.assertEqual(plan.epsilon(delta=_DELTA, num_rounds=rounds), epsilon)
    event = plan.event()
    self.assertAlmostEqual(
        accountants.epsilon(
            event,
            delta=_DELTA,
            neighboring_relation=plan.neighboring_relation,
            method='pld',
        ),
        epsilon,
        delta=1e-6 * epsilon,
    )
    # Who is in no sum pays nothing.
    self.assertEqual(
        plan.epsilon(delta=_DELTA, num_rounds=1, member='a'), 0.0
    )
    self.assertIsInstance(
        plan.event(num_rounds=1, member='a'), dp_accounting.NoOpDpEvent
    )
    self.assertEqual(plan.event(member='a'), event)
    # Half of the noise is not that of the promise.
    self.assertGreater(plan.silo_epsilon(delta=_DELTA), 1.3 * epsilon)

  @parameterized.parameters('skellam', 'discrete-gaussian')
  def test_calibrated_is_private_and_tight(self, noise):
    plan = _plan(noise).calibrated(epsilon=1.5, delta=_DELTA)
    self.assertBetween(plan.epsilon(delta=_DELTA), 1.49, 1.5)
    self.assertIsInstance(plan.sums, _LAWS[noise])
    self.assertEqual(plan.sums.min_silos, 2)

  def test_noise_of_a_share_and_of_the_sum(self):
    plan = _plan()
    (phase,) = plan.terms['c'].phases
    self.assertAlmostEqual(
        phase.noise_stddev**2, plan.sums.noise_variance(2.0, num_silos=1)
    )
    # 30 steps of 2 C / 16 in each of two silos.
    self.assertAlmostEqual(plan.noise_multiplier, 30 * 2**0.5 * 2 / 16)

  @parameterized.named_parameters(
      ('no_silo', dict(silos={}), 'silos='),
      ('fewer_records', dict(silos={'a': 19, 'b': 20}), 'at least 20 for silo'),
      ('fewer_silos', dict(silos={'a': 20}), 'min_silos=2'),
      ('no_round', dict(num_rounds=0), 'num_rounds=0'),
      ('no_clip', dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      ('no_weight', dict(dimension=0), 'dimension=0'),
      ('absence_of_nobody', dict(absences={'d': (1,)}), "silo='d'"),
      ('absence_too_late', dict(absences={'a': (6,)}), 'absences=6'),
  )
  def test_bad_argument_is_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _plan(**changes)


class LedgerTest(absltest.TestCase):

  def test_sum_of_fewer_silos_than_promised_is_refused(self):
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'a sum of 1 silos, below the promised 2'
    ):
      _plan(absences={'a': (3,), 'b': (3,)})
    ledger = _plan().ledger(delta=_DELTA)
    ledger.record(1, members=['a', 'c'])
    for members in ([], ['a'], ['a', 'a']):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'below the promised 2'
      ):
        ledger.record(2, members=members)
    self.assertEqual(ledger.rounds_recorded, 1)
    self.assertEqual(ledger.plan.absences, {'b': (1,)})

  def test_every_block_once(self):
    plan = _plan()
    ledger = plan.ledger(delta=_DELTA)
    for r in range(1, 6):
      entry = ledger.record(r)
    self.assertEqual(entry['epsilon'], plan.epsilon(delta=_DELTA))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      ledger.record(6)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'cannot follow'):
      ledger.record(3)

  def test_budget_of_the_run(self):
    plan = _plan()
    epsilon = plan.epsilon(delta=_DELTA)
    plan.ledger(delta=_DELTA, epsilon=epsilon).check(5)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      plan.ledger(delta=_DELTA, epsilon=0.99 * epsilon).check(1)


class StatementTest(absltest.TestCase):

  def test_says_with_and_without_trust(self):
    plan = _plan().with_availability(_all_but('a', 1))
    made = plan.statement(
        delta=_DELTA, observed=builder.RoundsDone(2)
    )
    self.assertEqual(made.epsilon, plan.epsilon(delta=_DELTA))
    guarantee = made.points['guarantee']
    self.assertEqual(
        guarantee['epsilon_of_own_noise'], plan.silo_epsilon(delta=_DELTA)
    )
    self.assertEqual(made.points['mechanism']['min_silos'], 2)
    # No record is in two sums, in however many rounds.
    self.assertEqual(made.points['unit']['max_participations'], 1)
    self.assertEqual(
        made.points['mechanism']['parameters'], plan.sums.to_json()
    )
    self.assertEqual(
        made.points['implementation']['realised_participation'],
        'of 2 rounds: a in 1, b in 2, c in 2',
    )
    self.assertEqual(made.warnings, (builder.UNCHECKED,))
    content = json.loads(json.dumps(made.to_json()))
    self.assertEqual(statement.PrivacyStatement.from_json(content), made)
    self.assertIn('each record, replace_one', made.to_markdown())

  def test_warnings(self):
    weak, _ = _plan().statement(delta=0.04).warnings
    self.assertRegex(weak, '^WEAK: .* of c')
    void = _plan().statement(delta=_DELTA, insecure_seed=True)
    self.assertEqual(void.epsilon, float('inf'))
    self.assertIn('known seed', void.warnings[0])


if __name__ == '__main__':
  absltest.main()
