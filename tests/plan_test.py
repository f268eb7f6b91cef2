# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests that the plan couples mechanism, participation and accounting."""

import dataclasses

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plan as plan_lib


def _plan(mechanism=None, schedule=None, **changes):
  arguments = dict(l2_norm_clip=1.0, clients_per_round=10, noise_multiplier=2.0)
  arguments.update(changes)
  return plan_lib.PrivacyPlan(
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
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _plan(**changes)

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



if __name__ == '__main__':
  absltest.main()
