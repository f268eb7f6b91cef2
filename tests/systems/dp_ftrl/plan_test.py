# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that the plan couples mechanism, participation and accounting."""

import dataclasses
import json
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.systems.dp_ftrl import plan as plan_lib


def _plan(mechanism=None, schedule=None, **changes):
  arguments = dict(l2_norm_clip=1.0, clients_per_round=10, noise_multiplier=2.0)
  arguments.update(changes)
  return plan_lib.DpFtrlPlan(
      mechanism or mechanisms.HonakerTree(100),
      schedule or participation.MinSeparation(100, min_index_gap=20),
      **arguments,
  )


class PlanTest(parameterized.TestCase):

  def test_published_stackoverflow_setting(self):
    # Kairouz et al., table of StackOverflow runs; the exact conversion is ours.
    plan = _plan(
        mechanisms.HonakerTree(1600),
        participation.UniformSampling(1600, max_participations=1),
        noise_multiplier=1.13,
    )
    self.assertEqual(plan.squared_sensitivity, 11)
    self.assertAlmostEqual(plan.epsilon(delta=1e-6), 17.67, delta=0.005)

  @parameterized.parameters(
      mechanisms.Independent, mechanisms.Tree, mechanisms.HonakerTree
  )
  def test_calibration_ends_on_the_private_side(self, mechanism):
    plan = _plan(mechanism(100), noise_multiplier=None)
    plan = plan.calibrated(epsilon=3.0, delta=1e-5)
    self.assertBetween(plan.epsilon(delta=1e-5), 2.9999, 3.0)

  def test_independent_noise_counts_participations(self):
    plan = _plan(mechanisms.Independent(100))
    self.assertEqual(plan.squared_sensitivity, 5)
    self.assertEqual(
        plan.event(), dp_accounting.GaussianDpEvent(2.0 / 5**0.5)
    )

  def test_stopping_early_never_costs_more(self):
    plan = _plan()
    epsilons = [
        plan.epsilon(delta=1e-5, num_rounds=rounds)
        for rounds in (1, 2, 10, 50, 100)
    ]
    self.assertEqual(epsilons, sorted(epsilons))
    self.assertEqual(epsilons[-1], plan.epsilon(delta=1e-5))

  def test_numbers_by_round_are_read_only(self):
    with self.assertRaisesRegex(ValueError, 'read-only'):
      _plan().squared_sensitivity_by_round[:] = 1.0

  def test_replacing_a_client_costs_two_clip_norms(self):
    self.assertAlmostEqual(
        _plan().sigma(neighboring_relation='replace_one'), _plan().sigma() / 2
    )

  def test_fingerprint_tells_plans_apart(self):
    plan = _plan()
    self.assertEqual(plan.fingerprint, _plan().fingerprint)
    for other in (
        dataclasses.replace(plan, noise_multiplier=2.1),
        dataclasses.replace(plan, clients_per_round=11),
        dataclasses.replace(plan, l2_norm_clip=1.1),
        _plan(mechanisms.Tree(100)),
        _plan(schedule=participation.MinSeparation(100, min_index_gap=19)),
    ):
      self.assertNotEqual(plan.fingerprint, other.fingerprint)

  def test_class_of_another_author_is_told_apart(self):
    class Quiet(mechanisms.Independent):

      def next_noise(self, buffers, round_in_tree, operations):
        noise, buffers = super().next_noise(buffers, round_in_tree, operations)
        return 0.1 * noise, buffers

    ours, theirs = _plan(mechanisms.Independent(100)), _plan(Quiet(100))
    self.assertNotEqual(ours.fingerprint, theirs.fingerprint)
    with self.assertRaisesRegex(ValueError, 'class'):
      type(ours).from_description(theirs.describe())

  def test_events_of_a_stopped_run_cost_what_was_spent(self):
    plan = _plan()
    (event,) = plan.events_json(delta=1e-5, num_rounds=3)['events']
    sigma = event['noise_multiplier'] / event['squared_sensitivity'] ** 0.5
    self.assertEqual(sigma, plan.sigma(num_rounds=3))
    self.assertGreater(sigma, plan.sigma())

  def test_statement_is_about_the_plan_until_rounds_are_done(self):
    plan = _plan(
        mechanisms.HonakerTree(100, restart_every=30, complete_trees=True)
    )
    text = plan.statement(delta=1e-5).to_markdown()
    self.assertIn(f'{plan.epsilon(delta=1e-5):.2f}'[:3], text)
    self.assertNotIn('NO PRIVACY', text)
    for void in (
        plan.statement(delta=1e-5, insecure_seed=True),
        _plan(noise_multiplier=0.0).statement(delta=1e-5),
    ):
      self.assertIn('NO PRIVACY', void.to_markdown())

  def test_no_noise_is_no_privacy(self):
    plan = _plan(noise_multiplier=0.0)
    self.assertEqual(plan.epsilon(delta=1e-5), float('inf'))
    self.assertEqual(plan.event(), dp_accounting.NonPrivateDpEvent())

  def test_uncalibrated_plan_has_no_epsilon(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'calibrated'):
      _plan(noise_multiplier=None).epsilon(delta=1e-5)

  @parameterized.named_parameters(
      ('clip', dict(l2_norm_clip=-1.0), 'l2_norm_clip=-1.0'),
      ('noise', dict(noise_multiplier=-0.1), 'noise_multiplier=-0.1'),
      ('cohort', dict(clients_per_round=0), 'clients_per_round=0'),
      (
          'rounds',
          dict(mechanism=mechanisms.Tree(99)),
          'participation.num_rounds=100 .* mechanism.num_rounds, 99',
      ),
      ('name', dict(mechanism='blt'), "mechanism='blt' .*Blt.optimized"),
      ('class', dict(mechanism=mechanisms.Tree), 'mechanism=.*a mechanism'),
      (
          'adaptive',
          dict(adaptive_clipping=0.5),
          'adaptive_clipping=0.5.*mechanisms.AdaptiveClipping()',
      ),
      ('gap', dict(schedule=20), 'participation=20 .*MinSeparation'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _plan(**changes)

  def test_numbers_of_numpy_are_those_of_python(self):
    plan = _plan(
        mechanisms.HonakerTree(np.int64(100), restart_every=np.int32(20)),
        participation.MinSeparation(np.int64(100), min_index_gap=np.int64(20)),
        l2_norm_clip=np.float32(1.0),
        clients_per_round=np.int64(10),
        noise_multiplier=np.float64(2.0),
    )
    expected = _plan(mechanisms.HonakerTree(100, restart_every=20))
    self.assertEqual(plan.fingerprint, expected.fingerprint)
    self.assertEqual(plan, expected)
    self.assertEqual(
        json.dumps(plan.statement(delta=1e-5).to_json()),
        json.dumps(expected.statement(delta=1e-5).to_json()),
    )

  @parameterized.named_parameters(
      ('no_restart', None, 2, False),
      ('restart_inside_an_epoch', 15, None, False),
      ('restart_less_often', 40, 2, False),
      ('restart_with_the_shuffle', 20, 2, True),
      ('restart_more_often', 10, 2, True),
      ('restart_without_shuffle', 20, None, True),
      ('one_order', None, None, True),
  )
  def test_order_may_change_only_at_a_restart(self, restart, shuffle, is_sound):
    schedule = participation.ShuffledEpochs(
        100, rounds_per_epoch=10, epochs_per_shuffle=shuffle
    )
    mechanism = mechanisms.HonakerTree(100, restart_every=restart)
    if is_sound:
      _plan(mechanism, schedule)
    else:
      with self.assertRaisesRegex(_checks.ArgumentError, 'restart_every='):
        _plan(mechanism, schedule)

  def test_independent_noise_may_not_reshuffle_either(self):
    # It costs the same, but the statement would promise a gap of one epoch
    # that the first round after a shuffle does not keep.
    schedule = participation.ShuffledEpochs(
        40, rounds_per_epoch=10, epochs_per_shuffle=1
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'UniformSampling'):
      _plan(mechanisms.Independent(40), schedule)
    _plan(
        mechanisms.Independent(40),
        dataclasses.replace(schedule, epochs_per_shuffle=None),
    )


class AdaptiveClippingTest(parameterized.TestCase):

  def _adaptive(self, **changes):
    arguments = dict(
        mechanism=mechanisms.HonakerTree(100, restart_every=20),
        adaptive_clipping=adaptive_clipping.AdaptiveClipping(
            target_quantile=0.4, learning_rate=0.3, budget_share=0.1
        ),
    )
    return _plan(**(arguments | changes))

  def _fixed(self):
    return self._adaptive(adaptive_clipping=None)

  @parameterized.product(
      relation=tuple(run_events.NeighboringRelation), num_rounds=(None, 30)
  )
  def test_both_streams_cost_what_one_did(self, relation, num_rounds):
    plan, where = self._adaptive(), dict(neighboring_relation=relation)
    event = plan.event(**where)
    self.assertLen(event.events, 2)
    total = sum(part.noise_multiplier**-2 for part in event.events)
    self.assertAlmostEqual(total**-0.5, plan.sigma(**where))
    self.assertEqual(plan.sigma(**where), self._fixed().sigma(**where))
    epsilon = self._fixed().epsilon(
        delta=1e-5, num_rounds=num_rounds, **where
    )
    for method, margin in (('exact', 1e-9), ('pld', 1e-4), ('rdp', 0.2)):
      self.assertBetween(
          plan.epsilon(
              delta=1e-5, num_rounds=num_rounds, method=method, **where
          ),
          epsilon,
          epsilon * (1 + margin),
      )
    # The composition itself, not only sigma of the plan.
    self.assertAlmostEqual(
        accountants.epsilon(
            plan.event(), delta=1e-5, neighboring_relation=relation
        ),
        self._fixed().epsilon(delta=1e-5, **where),
    )

  def test_shares_of_the_streams(self):
    multipliers = self._adaptive().noise_multiplier_by_domain
    self.assertCountEqual(multipliers, ['value', 'quantile'])
    self.assertAlmostEqual(multipliers['value'], 2.0 / 0.9**0.5)
    self.assertAlmostEqual(multipliers['quantile'], 2.0 / 0.1**0.5)
    self.assertEqual(
        self._fixed().noise_multiplier_by_domain, {'value': 2.0}
    )

  def test_calibration_and_budget_are_those_of_the_run(self):
    plan = self._adaptive(noise_multiplier=None).calibrated(
        epsilon=3.0, delta=1e-5
    )
    self.assertIsNotNone(plan.adaptive_clipping)
    self.assertBetween(plan.epsilon(delta=1e-5), 2.9999, 3.0)
    budget = plan.ledger(epsilon=3.0, delta=1e-5)
    self.assertEqual(budget.rounds_left(0), 100)
    self.assertEqual(
        budget.epsilon_after(100), plan.epsilon(delta=1e-5)
    )

  def test_descriptions_carry_it(self):
    plan = self._adaptive()
    described = {
        'target_quantile': 0.4, 'learning_rate': 0.3, 'budget_share': 0.1
    }
    self.assertEqual(plan.describe()['adaptive_clipping'], described)
    self.assertIsNone(self._fixed().describe()['adaptive_clipping'])
    other = dataclasses.replace(
        plan,
        adaptive_clipping=dataclasses.replace(
            plan.adaptive_clipping, target_quantile=0.5
        ),
    )
    self.assertLen(
        {p.fingerprint for p in (plan, other, self._fixed())}, 3
    )
    content = json.loads(json.dumps(plan.events_json(delta=1e-5)))
    (event,) = content['events']
    self.assertEqual(content['plan']['adaptive_clipping'], described)
    self.assertEqual(event['noise_multiplier'], 2.0)
    self.assertAlmostEqual(
        sum(value**-2 for value in event['streams'].values()), 2.0**-2
    )
    (event,) = self._fixed().events_json(delta=1e-5)['events']
    self.assertNotIn('streams', event)

  def test_statement_names_share_multipliers_and_domains(self):
    plan = self._adaptive()
    statement = plan.statement(delta=1e-5)
    self.assertEqual(statement.epsilon, plan.epsilon(delta=1e-5))
    section = statement.points['mechanism']['adaptive_clipping']
    self.assertEqual(section['budget_share'], 0.1)
    self.assertEqual(section['rounds_per_clip_norm'], 20)
    self.assertEqual(section['key_domains'], 'value, quantile')
    for name, expected in (
        ('value_noise_multiplier', 2.0 / 0.9**0.5),
        ('quantile_noise_multiplier', 2.0 / 0.1**0.5),
        # A bit is a half.
        ('quantile_noise_on_sum', 2.0 / (2 * 0.1**0.5)),
        ('target_quantile', 0.4),
        ('learning_rate', 0.3),
    ):
      self.assertAlmostEqual(section[name], expected, msg=name)
    text = statement.to_markdown()
    self.assertIn(
        f'value noise multiplier: {section["value_noise_multiplier"]:.6g}',
        text.replace('_', ' '),
    )
    self.assertIn('clip norm of the tree', text)
    self.assertIn('arXiv:1905.03871', text)
    fixed = self._fixed().statement(delta=1e-5).to_markdown()
    self.assertNotIn('1905.03871', fixed)

  @parameterized.parameters(
      (mechanisms.HonakerTree(100), 'restart_every'),
      (
          mechanisms.Tree(100, restart_every=20, complete_trees=True),
          'complete_trees',
      ),
  )
  def test_needs_a_tree_to_begin(self, mechanism, message):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
      self._adaptive(mechanism=mechanism)
    self._adaptive(mechanism=mechanisms.Independent(100))


class StatementOfMechanismTest(absltest.TestCase):

  def test_a_bound_is_called_a_bound(self):
    plan = _plan()
    exactness = plan.statement(delta=1e-5).points['accounting']['exactness']
    self.assertStartsWith(exactness, 'exact')
    with mock.patch.object(
        mechanisms.HonakerTree, 'sensitivity_is_exact', return_value=False
    ):
      bound = plan.statement(delta=1e-5).points['accounting']['exactness']
    self.assertStartsWith(bound, 'an upper bound')


  def test_limits_are_those_of_a_run_with_restarts(self):
    # A new order in each tree: the last round of one and the first of the next
    # may be the same client's. Three epochs in each of two trees.
    schedule = participation.ShuffledEpochs(
        60, rounds_per_epoch=10, epochs_per_shuffle=3
    )
    plan = _plan(mechanisms.HonakerTree(60, restart_every=30), schedule)
    expected = {
        'max_participations': 6,
        'min_index_gap': 1,
        'min_rounds_between': 0,
    }
    unit = plan.statement(delta=1e-5).points['unit']
    self.assertEqual({name: unit[name] for name in expected}, expected)
    found = plan.details(delta=1e-5)
    self.assertEqual({name: found[name] for name in expected}, expected)
    stopped = plan.details(delta=1e-5, num_rounds=40)
    self.assertEqual(stopped['max_participations'], 4)
    self.assertEqual(stopped['min_index_gap'], 1)
    # One tree keeps its order.
    one = plan.details(delta=1e-5, num_rounds=30)
    self.assertEqual((one['max_participations'], one['min_index_gap']), (3, 10))


class DetailsTest(absltest.TestCase):

  def test_each_relation_has_its_own_numbers(self):
    plan = _plan()
    for relation, factor in (('zero_out', 1.0), ('replace_one', 0.5)):
      relation = run_events.NeighboringRelation(relation)
      found = plan.details(delta=1e-6, neighboring_relation=relation)
      sigma = factor * plan.noise_multiplier / plan.squared_sensitivity**0.5
      self.assertAlmostEqual(found['sigma_eff'], sigma)
      self.assertAlmostEqual(found['zcdp_rho'], 0.5 / sigma**2)
      self.assertAlmostEqual(
          found['epsilon_rdp'], gaussian.rdp_epsilon(sigma=sigma, delta=1e-6)
      )


if __name__ == '__main__':
  absltest.main()
