# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan of draw and discard: facts, epsilon, statement."""

import dataclasses
import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tff_dp

from tff_dp import _checks
from tff_dp import draws
from tff_dp.accounting import accountants
from tff_dp.accounting import rounding
from tff_dp.statement import builder
from tff_dp.statement import statement as statement_lib
from tff_dp.systems.draw_and_discard import accounting
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import plan as plan_lib
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import strategies as instance_strategies

_DELTA = 1e-6
_GAUSSIAN = dict(clip='l2', mechanism='gaussian', epsilon=2.0, delta=_DELTA)
_STEPS = {
    'gaussian': _GAUSSIAN,
    'gaussian of one weight': _GAUSSIAN
    | dict(clip='box', privacy_unit='coordinate'),
    'laplace': dict(clip='l1', epsilon=0.5),
    'laplace of one weight': dict(epsilon=0.05, privacy_unit='coordinate'),
}


def _step(**fields):
  return client_steps.ClientStep(**dict(learning_rate=0.1) | fields)


def _plan(step=None, **changes):
  return tff_dp.DrawAndDiscardPlan(
      **dict(
          step=step or _step(**_GAUSSIAN),
          num_params=7,
          num_instances=20,
          max_participations=3,
          num_rounds=50,
      )
      | changes
  )


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(step='laplace'), 'step='),
      (dict(num_params=0), 'num_params=0'),
      (dict(num_instances=0), 'num_instances=0'),
      (dict(max_participations=0), 'max_participations=0'),
      (dict(num_rounds=0), 'num_rounds=0'),
      (dict(clients_per_round=0), 'clients_per_round=0'),
      (dict(strategy='other'), "strategy='other'"),
      (dict(strategy='server_batch', server_batch=3), 'num_instances=20'),
      (dict(server_batch=3), 'server_batch=3'),
  )
  def test_bad_values_name_themselves(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      _plan(**changes)

  @parameterized.parameters(
      (dict(strategy='same'), {}, 'not stationary'),
      (dict(num_instances=2), {}, 'below 3'),
      (dict(step=_step(mechanism=None)), {}, 'goes to zero'),
      ({}, {'num_params': 33}, "this one has {'num_params': 33}"),
      (dict(clients_per_round=5), {'concurrency': 1}, "'concurrency': 1"),
  )
  def test_spam_filter_needs_a_spread_that_means_something(
      self, changes, facts, message
  ):
    given = spam_filters.SpamFilter(
        threshold=4.0, min_spread=0.1, facts=facts
    )
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _plan(spam_filter=given, **changes)


class EpsilonTest(parameterized.TestCase):

  @parameterized.parameters(*_STEPS)
  def test_all_reports_of_a_client_compose(self, name):
    plan = _plan(_step(**_STEPS[name]))
    for rounds, participations in ((1, 1), (2, 2), (3, 3), (50, 3)):
      expected = accounting.guarantee(
          plan, participations=participations, delta=_DELTA
      )
      self.assertEqual(
          plan.epsilon(delta=_DELTA, num_rounds=rounds),
          expected.total_epsilon,
      )
    self.assertEqual(
        plan.epsilon(delta=_DELTA), plan.epsilon(delta=_DELTA, num_rounds=3)
    )
    # By dp_accounting, on what the plan says happens.
    self.assertAlmostEqual(
        plan.epsilon(delta=_DELTA),
        accountants.epsilon(
            plan.event(),
            delta=_DELTA,
            method='pld',
            neighboring_relation=plan.neighboring_relation,
        ),
        delta=0.02 * plan.epsilon(delta=_DELTA),
    )

  def test_no_strategy_of_the_server_changes_it(self):
    epsilons = {
        _plan(
            strategy=name,
            num_instances=1 if name == 'server_batch' else k,
            server_batch=5 if name == 'server_batch' else None,
            clients_per_round=m,
        ).epsilon(delta=_DELTA)
        for name in instance_strategies.NAMES
        for k, m in ((1, 1), (100, 7))
    }
    self.assertLen(epsilons, 1)

  def test_without_noise_it_is_infinite(self):
    plan = _plan(_step(mechanism=None))
    self.assertEqual(plan.epsilon(delta=_DELTA), math.inf)
    self.assertEqual(plan.noise_multiplier, 0)
    budget = plan.ledger(epsilon=100.0, delta=_DELTA)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      budget.check(1)

  def test_noise_multiplier_is_over_the_radius(self):
    plan = _plan()
    self.assertAlmostEqual(
        plan.noise_multiplier * 0.1 * 1.0, plan.step.noise_scale(7)
    )
    self.assertIsNone(_plan(_step(epsilon=1.0)).noise_multiplier)

  @parameterized.parameters(
      dict(num_rounds=51), dict(num_rounds=-1), dict(participations=4),
      dict(num_rounds=1, participations=2),
  )
  def test_more_than_planned_has_no_epsilon(self, **what):
    with self.assertRaises(_checks.ArgumentError):
      _plan().epsilon(delta=_DELTA, **what)


class CalibrationTest(parameterized.TestCase):

  @parameterized.product(name=list(_STEPS), epsilon=(0.5, 6.0))
  def test_least_noise_on_the_private_side(self, name, epsilon):
    start = _plan(_step(**_STEPS[name]))
    plan = start.calibrated(epsilon=epsilon, delta=1e-5)
    self.assertLessEqual(plan.epsilon(delta=1e-5), epsilon)
    less = dataclasses.replace(
        plan.step, epsilon=plan.step.epsilon * (1 + 3e-6)
    )
    self.assertGreater(
        dataclasses.replace(plan, step=less).epsilon(delta=1e-5), epsilon
    )
    # Nothing else has changed.
    self.assertEqual(dataclasses.replace(plan, step=start.step), start)
    self.assertEqual(plan.step.privacy_unit, start.step.privacy_unit)

  def test_one_report_has_all_of_it(self):
    plan = _plan(max_participations=1).calibrated(epsilon=3.0, delta=1e-5)
    self.assertEqual((plan.step.epsilon, plan.step.delta), (3.0, 1e-5))

  def test_without_noise_there_is_nothing_to_calibrate(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'no noise'):
      _plan(_step(mechanism=None)).calibrated(epsilon=1.0, delta=_DELTA)

  def test_filter_of_another_noise_is_not_kept(self):
    given = spam_filters.SpamFilter(threshold=4.0, min_spread=0.1)
    with self.assertRaisesRegex(ValueError, 'before the noise is known'):
      _plan(spam_filter=given).calibrated(epsilon=1.0, delta=_DELTA)


class DescriptionTest(parameterized.TestCase):

  def test_json_round_trip(self):
    given = spam_filters.SpamFilter(
        threshold=4.0, min_spread=0.1, facts={'num_params': 7}
    )
    for plan in (
        _plan(),
        _plan(spam_filter=given, clients_per_round=2),
        _plan(strategy='server_batch', num_instances=1, server_batch=5),
        _plan(
            _step(epsilon=np.float32(0.5), learning_rate=np.float64(0.1)),
            num_params=np.int64(7),
            num_rounds=np.int32(50),
        ),
    ):
      text = json.dumps(plan.describe())
      again = plan_lib.DrawAndDiscardPlan.from_description(json.loads(text))
      self.assertEqual(again, plan)
      self.assertEqual(again.fingerprint, plan.fingerprint)

  def test_every_fact_is_in_the_fingerprint(self):
    prints = [
        _plan(**changes).fingerprint
        for changes in (
            {},
            dict(step=_step(**_GAUSSIAN | dict(epsilon=2.1))),
            dict(step=_step(**_GAUSSIAN | dict(clip_norm=1.1))),
            dict(num_params=8),
            dict(num_instances=21),
            dict(max_participations=4),
            dict(num_rounds=51),
            dict(clients_per_round=2),
            dict(strategy='same'),
        )
    ]
    self.assertLen(set(prints), len(prints))

  def test_of_another_system(self):
    with self.assertRaisesRegex(ValueError, 'kind='):
      plan_lib.DrawAndDiscardPlan.from_description({'kind': 'silos'})


class BudgetTest(absltest.TestCase):

  def test_refuses_the_participation_that_does_not_fit(self):
    plan = _plan()
    two = plan.epsilon(delta=_DELTA, participations=2)
    budget = plan.ledger(epsilon=two, delta=_DELTA)
    self.assertEqual(budget.rounds_left(0), 2)
    self.assertEqual(budget.record(1)['neighboring_relation'], 'replace_one')
    budget.record(2)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'smaller max_participations'
    ):
      budget.check(3)
    # Who may not come again has nothing more to pay.
    enough = plan.ledger(
        epsilon=plan.epsilon(delta=_DELTA), delta=_DELTA
    )
    self.assertEqual(enough.rounds_left(0), 50)


class LedgerTest(absltest.TestCase):

  def test_refuses_beyond_the_cap(self):
    ledger = _plan(max_participations=2).participation_ledger('run')
    for round_index in (1, 2):
      ledger.commit(['a', 'b'], round_index)
    self.assertEqual(ledger.eligible(['a', b'b', 'c'], 3), ['c'])
    with self.assertRaises(_checks.PrivacyRefusedError):
      ledger.commit(['a'], 3)


class StatementTest(parameterized.TestCase):

  @parameterized.parameters(*_STEPS)
  def test_numbers_are_those_of_the_plan(self, name):
    plan = _plan(_step(**_STEPS[name]))
    statement = plan.statement(delta=_DELTA)
    guarantee = statement.points['guarantee']
    self.assertEqual(statement.epsilon, plan.epsilon(delta=_DELTA))
    self.assertEqual(
        guarantee['epsilon_of_one_report'],
        plan.epsilon(delta=_DELTA, participations=1),
    )
    # At the delta that is stated, not at that of the step.
    later = plan.statement(delta=1e-7).points['guarantee']
    self.assertEqual(
        later['epsilon_of_one_report'],
        plan.epsilon(delta=1e-7, participations=1),
    )
    self.assertEqual(statement.points['adjacency']['relation'], 'replace_one')
    self.assertEqual(statement.points['unit']['max_participations'], 3)
    self.assertStartsWith(statement.points['setting']['trusted'], 'nobody')
    self.assertEqual(statement.points['amplification']['claimed'], 'none')
    self.assertEqual(statement.warnings, (builder.UNCHECKED,))
    again = statement_lib.PrivacyStatement.from_json(
        json.loads(json.dumps(statement.to_json(), allow_nan=False))
    )
    self.assertEqual(again.to_markdown(), statement.to_markdown())

  @parameterized.parameters(
      # All seven weights move at once: 7 times the epsilon of one.
      ('laplace', 0.5),
      ('laplace of one weight', 0.35),
  )
  def test_reports_that_are_added_are_all_of_a_client(self, name, one):
    plan = _plan(_step(**_STEPS[name]))
    for rounds, reports in ((None, 3), (1, 1), (2, 2), (50, 3)):
      observed = None if rounds is None else builder.RoundsDone(rounds)
      added = plan.statement(
          delta=_DELTA, observed=observed
      ).points['guarantee']['added_reports']
      self.assertAlmostEqual(added['epsilon'], one * reports)
      self.assertEqual(added['delta'], draws.missing_delta(added['epsilon']))

  def test_gaussian_reports_have_no_epsilon_to_add(self):
    for step in (_step(**_STEPS['gaussian']), _step(mechanism=None)):
      added = _plan(step).statement(
          delta=_DELTA
      ).points['guarantee']['added_reports']
      if step.mechanism is None:
        self.assertEqual(added, {'epsilon': 'inf', 'delta': 1.0})
      else:
        self.assertStartsWith(added, 'none: ')

  def test_numbers_of_a_known_seed_are_infinite(self):
    plan = _plan(_step(**_STEPS['laplace']))
    guarantee = plan.statement(
        delta=_DELTA, insecure_seed=True
    ).points['guarantee']
    self.assertEqual(guarantee['added_reports']['epsilon'], 'inf')
    self.assertEqual(guarantee['epsilon_of_one_report'], 'inf')

  def test_epsilon_of_one_weight_is_no_guarantee(self):
    (row,) = _plan().statement(delta=_DELTA).points['not_claimed']['heuristics']
    self.assertIn('one weight', row['about'])
    self.assertNotEmpty(row['no guarantee, because'])
    self.assertLess(row['epsilon'], _plan().epsilon(delta=_DELTA))
    # Epsilon of Gaussian noise holds at the delta of the step.
    self.assertEqual(row['delta'], _DELTA)
    laplace = _plan(_step(**_STEPS['laplace']))
    (row,) = laplace.statement(delta=_DELTA).points['not_claimed']['heuristics']
    self.assertEqual(row['delta'], 0.0)

  def test_run_so_far(self):
    plan = _plan()
    ledger = plan.participation_ledger('run')
    for round_index, cohort in enumerate((['a'], ['b'], ['a'], ['c']), 1):
      ledger.commit(cohort, round_index)
    statement = plan.statement(delta=_DELTA, observed=ledger.observed())
    # The cap counts, not what the others happened to do.
    self.assertEqual(statement.epsilon, plan.epsilon(delta=_DELTA))
    realised = statement.points['implementation']['realised_participation']
    self.assertIn('3 clients took part, none more than 2', realised)
    twice = plan.epsilon(delta=_DELTA, participations=2)
    self.assertIn(f'epsilon {rounding.rounded_up(twice)}:', realised)
    known = plan.statement(
        delta=_DELTA, observed=ledger.observed(), insecure_seed=True
    ).points
    self.assertNotIn(
        'epsilon', known['implementation']['realised_participation']
    )
    self.assertEqual(known['not_claimed']['heuristics'], 'none')
    self.assertEqual(statement.points['mechanism']['rounds_done'], 4)
    first = plan.participation_ledger('run')
    first.commit(['a'], 1)
    self.assertEqual(
        plan.statement(delta=_DELTA, observed=first.observed()).epsilon, 2.0
    )

  def test_rounds_that_break_the_plan_are_not_stated(self):
    loose = dataclasses.replace(_plan(), max_participations=50)
    ledger = loose.participation_ledger('run')
    for round_index in range(1, 7):
      ledger.commit(['a'], round_index)
    with self.assertRaisesRegex(
        _checks.ArgumentError, r'observed.max_participations=6 .*at most 3'
    ):
      _plan().statement(delta=_DELTA, observed=ledger.observed())

  @parameterized.parameters(
      (_step(mechanism=None), False, 'the clients add no noise'),
      (_step(**_GAUSSIAN), True, 'known seed'),
  )
  def test_no_privacy(self, step, insecure_seed, why):
    statement = _plan(step).statement(
        delta=_DELTA, insecure_seed=insecure_seed
    )
    self.assertEqual(statement.epsilon, math.inf)
    self.assertStartsWith(statement.warnings[0], 'NO PRIVACY: ')
    self.assertIn(why, statement.warnings[0])
    self.assertIn('protects no client', statement.to_markdown())

  def test_events_name_what_they_cost(self):
    content = _plan().events_json(delta=_DELTA, num_rounds=2)
    self.assertEqual(content['kind'], 'draw_and_discard')
    self.assertEqual(content['events'], [{'rounds': 2, 'participations': 2}])
    self.assertEmpty(content['warnings'])
    void = _plan(_step(mechanism=None)).events_json(delta=_DELTA)
    self.assertStartsWith(void['warnings'][0], 'NO PRIVACY')


class DetailsTest(absltest.TestCase):

  def test_delta_that_the_reports_spend(self):
    # Pure reports whose composition needs a delta, and reports that add up.
    step = client_steps.ClientStep(
        learning_rate=0.1, clip='l1', clip_norm=1.0, mechanism='laplace',
        epsilon=0.1,
    )
    plan = tff_dp.DrawAndDiscardPlan(
        step=step, num_params=3, num_instances=5, max_participations=30,
        num_rounds=200, clients_per_round=1,
    )
    found = plan.details(delta=1e-12)
    self.assertLess(
        plan.epsilon(delta=1e-12), found['epsilon_of_added_reports']
    )
    self.assertEqual(found['delta_of_one_report'], 0.0)
    self.assertEqual(found['delta_spent'], 1e-12)
    self.assertEqual(plan.details(delta=None)['delta_spent'], 0.0)


if __name__ == '__main__':
  absltest.main()
