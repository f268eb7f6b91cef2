# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The chance of a right guess in a statement, against other curves."""

import dataclasses
import functools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld_lib
import numpy as np

import tff_dp
from tests.statement import occasions
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import guesses
from tff_dp.mechanisms import randomizers

_DELTAS = np.concatenate([np.geomspace(1e-5, 1e-2, 4), np.linspace(0.02, 0.98, 33)])


def _chance(plan, *, delta=occasions.DELTA, **options) -> float:
  return plan.statement(delta=delta, **options).points['guarantee'][
      'right_guesses'
  ]


def _others(distribution) -> float:
  """Returns (1 + delta(0)) / 2 of a curve of dp_accounting."""
  return (1 + distribution.get_delta_for_epsilon(0.0)) / 2


@functools.cache
def _plan(name):
  return occasions.PLANS[name]()


class CompositionsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('shuffled', 4, {'randomizer': randomizers.Sphere(1.25, 0.1)}),
      ('cyclic', 8, {'noise_multiplier': 3.5}),
      ('sampled', 2, {'noise_multiplier': 0.875}),
      ('long_silos', 4, {'absences': {'north': range(1, 9)}}),
  )
  def test_no_distribution_is_composed_for_each_delta(self, name, most, change):
    # No other test may have left its compositions in a cache: those of silos
    # depend on the number of rounds in which a silo is there.
    plan = dataclasses.replace(_plan(name), **change)
    compose = pld_pmf.DensePLDPmf.self_compose
    with mock.patch.object(
        pld_pmf.DensePLDPmf, 'self_compose', autospec=True, side_effect=compose
    ) as composed:
      self.assertBetween(_chance(plan), 0.5, 1.0)
    self.assertBetween(composed.call_count, 1, most)


class OthersCurveTest(parameterized.TestCase):
  """Against dp_accounting, whose curves are a little above the exact one."""

  @parameterized.parameters('honaker', 'adaptive', 'completed')
  def test_dp_ftrl(self, name):
    plan = _plan(name)
    sigma = plan.noise_multiplier / math.sqrt(plan.squared_sensitivity)
    curve = pld_lib.from_gaussian_mechanism(
        sigma, value_discretization_interval=1e-3
    )
    self.assertAlmostEqual(_chance(plan), _others(curve), delta=1e-4)
    delta = curve.get_delta_for_epsilon(1.0)
    self.assertAlmostEqual(
        guesses.least_right([p for p in plan.profiles()[0] if p[0] == 0.0]),
        _others(curve),
        delta=1e-4,
    )
    self.assertLess(_others(curve), guesses.right(1.0, delta))

  @parameterized.parameters(
      ('gaussian_steps', pld_lib.from_gaussian_mechanism),
      ('laplace_steps', pld_lib.from_laplace_mechanism),
  )
  def test_draw_and_discard(self, name, build):
    plan = _plan(name)
    scale = plan.step.noise_scale(plan.num_params)
    most = 2 * plan.step.learning_rate * plan.step.clip_norm
    once = build(scale / most, value_discretization_interval=1e-3)
    curve = once.self_compose(plan.max_participations)
    self.assertGreaterEqual(_chance(plan), _others(curve) - 2e-3)
    if name == 'gaussian_steps':
      self.assertAlmostEqual(_chance(plan), _others(curve), delta=2e-3)

  @parameterized.parameters((8.0, 1e-4, 0.822), (4.0, 1e-5, 0.678))
  def test_of_examples(self, epsilon, delta, expected):
    schedule = participation.MinSeparation(60, min_index_gap=6)
    plan = tff_dp.DpFtrlPlan(
        mechanisms.Tree(60), schedule, l2_norm_clip=1.0, clients_per_round=10
    ).calibrated(epsilon=epsilon, delta=delta)
    self.assertAlmostEqual(_chance(plan, delta=delta), expected, delta=5e-3)
    self.assertLess(_chance(plan, delta=delta), guesses.right(epsilon, delta))


class OwnCurveTest(parameterized.TestCase):

  @parameterized.parameters(
      'windows', 'gaussian_steps', 'laplace_steps', 'silos', 'secure_sums'
  )
  def test_least_of_all_points(self, name):
    plan = _plan(name)
    dense = min(
        guesses.right(plan.epsilon(delta=float(delta)), float(delta))
        for delta in _DELTAS
    )
    chance = _chance(plan)
    self.assertLess(chance, dense + 1e-3)
    # Points of the grid are 0.03 apart, and a guess changes by half of delta.
    self.assertGreater(chance, dense - 0.016)

  @parameterized.parameters(*occasions.PLANS)
  def test_every_point_holds(self, name):
    plan = _plan(name)
    for profile in plan.profiles():
      for epsilon, delta in profile:
        if 1e-12 < delta < 1 and not name.endswith('silos'):
          self.assertLessEqual(plan.epsilon(delta=delta), epsilon + 1e-9)

  def test_silos_have_a_row_each_at_their_own_delta(self):
    plan = _plan('silos')
    page = plan.statement(delta=occasions.DELTA).to_markdown()
    for name, silo in plan.silos.items():
      epsilon = rounding.rounded_up(plan.epsilon(member=name))
      row = f'- {name}: epsilon {epsilon}, delta {silo.delta:g}\n'
      self.assertIn(row, page)

  def test_silos_count_the_one_at_most_risk(self):
    plan = _plan('silos')
    each = [guesses.least_right(profile) for profile in plan.profiles()]
    self.assertLen(set(each), 2)
    self.assertEqual(_chance(plan), max(each))

  def test_known_seed_is_certainty(self):
    self.assertEqual(_chance(_plan('honaker'), insecure_seed=True), 1.0)

  def test_printed_delta_still_has_a_limit(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'at most 0.1'):
      _plan('windows').statement(delta=0.5)


if __name__ == '__main__':
  absltest.main()
