# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules against their formulas, and bounds against quadratic problems."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import minibatch_schedules

_PROBLEM = dict(
    num_params=20,
    lipschitz=1.0,
    diameter=2.0,
    smoothness=0.5,
    epsilon=1.0,
    delta=1e-6,
    num_silos=25,
    num_available=12,
    example_variance=1.0,
    silo_variance=0.5,
)


class CoefficientsTest(parameterized.TestCase):

  def test_convex_case_is_the_short_form(self):
    coefficients = minibatch_schedules.accelerated_coefficients(6, gamma=3.0)
    rounds = np.arange(1, 7)
    share = 2 / (rounds + 1)
    np.testing.assert_allclose(coefficients.md_of_ag, 1 - share)
    np.testing.assert_allclose(coefficients.md_of_w, share)
    np.testing.assert_array_equal(coefficients.w_of_md, 0)
    np.testing.assert_array_equal(coefficients.w_of_w, 1)
    np.testing.assert_allclose(coefficients.w_of_gradient, rounds / 6)
    np.testing.assert_allclose(coefficients.ag_of_w, share)

  @parameterized.parameters(0.0, 0.3, 5.0)
  def test_points_are_combinations_of_points(self, mu):
    coefficients = minibatch_schedules.accelerated_coefficients(
        9, gamma=2.0, strong_convexity=mu
    )
    for one, other in (
        (coefficients.md_of_ag, coefficients.md_of_w),
        (coefficients.w_of_md, coefficients.w_of_w),
    ):
      np.testing.assert_allclose(one + other, 1.0)
      self.assertTrue(np.all(one >= 0) and np.all(other >= 0))
    self.assertEqual(coefficients.md_of_ag[0], 0.0)
    self.assertEqual(coefficients.ag_of_w[0], 1.0)

  @parameterized.product(mu=(0.0, 0.05), noise=(0.0, 0.1, 1.0))
  def test_expected_gap_is_within_the_bound(self, mu, noise):
    # E of a quadratic's gap is exact: mean and covariance move linearly.
    rng = np.random.default_rng(0)
    curvature = np.geomspace(0.05, 1.0, 6)
    start, rounds, runs = np.full(6, 1.5), 25, 4000
    variance = 6 * noise**2
    diameter = np.linalg.norm(start)
    gamma = minibatch_schedules.best_gamma(
        rounds, smoothness=1.0, diameter=diameter, variance=variance
    )
    c = minibatch_schedules.accelerated_coefficients(
        rounds, gamma=gamma, strong_convexity=mu
    )
    w = w_ag = np.tile(start, [runs, 1])
    for r in range(rounds):
      w_md = c.md_of_ag[r] * w_ag + c.md_of_w[r] * w
      gradient = curvature * w_md + noise * rng.standard_normal(w.shape)
      w = c.w_of_md[r] * w_md + c.w_of_w[r] * w - c.w_of_gradient[r] * gradient
      w_ag = c.ag_of_w[r] * w + (1 - c.ag_of_w[r]) * w_ag
    gaps = 0.5 * np.sum(curvature * w_ag**2, axis=1)
    bound = minibatch_schedules.accelerated_bound(
        rounds, gamma=gamma, diameter=diameter, variance=variance
    )
    self.assertLess(
        np.mean(gaps) + 5 * np.std(gaps) / math.sqrt(runs), bound
    )

  def test_best_gamma_minimises_the_bound(self):
    for variance in (0.0, 0.3, 20.0):
      arguments = dict(diameter=1.5, variance=variance)
      gamma = minibatch_schedules.best_gamma(10, smoothness=0.4, **arguments)
      best = minibatch_schedules.accelerated_bound(10, gamma=gamma, **arguments)
      for other in np.geomspace(0.8, 1e3, 400):
        self.assertLessEqual(
            best,
            minibatch_schedules.accelerated_bound(
                10, gamma=other, **arguments
            ) * (1 + 1e-12),
        )


class ChooseRoundsTest(parameterized.TestCase):

  def _bound(self, n, rounds, **problem):
    batch = n // rounds
    sigma = gaussian.sigma_for(
        epsilon=problem['epsilon'], delta=problem['delta']
    ) * 2 * problem['lipschitz'] / batch
    m = problem['num_available']
    variance = problem['example_variance'] / (m * batch)
    variance += (
        (1 - (m - 1) / (problem['num_silos'] - 1))
        * problem['silo_variance'] / m
    )
    variance += problem['num_params'] * sigma**2 / m
    d = problem['diameter']
    gammas = np.geomspace(2 * problem['smoothness'], 1e6, 4000)
    return np.min(
        2 * gammas * d**2 / (rounds * (rounds + 1))
        + variance * (2 * rounds + 1) / (6 * gammas)
    )

  @parameterized.parameters(1, 30, 100)
  def test_no_other_number_of_rounds_has_a_smaller_bound(self, n):
    chosen = minibatch_schedules.choose_rounds(n, **_PROBLEM)
    self.assertEqual(chosen.batch, n // chosen.num_rounds)
    others = [self._bound(n, rounds, **_PROBLEM) for rounds in range(1, n + 1)]
    self.assertLessEqual(chosen.bound, min(others) * (1 + 1e-9))
    self.assertAlmostEqual(chosen.bound, min(others), delta=0.01 * min(others))

  def test_more_privacy_asks_for_fewer_rounds(self):
    rounds = [
        minibatch_schedules.choose_rounds(
            2000, **(_PROBLEM | dict(epsilon=epsilon, silo_variance=0.0))
        ).num_rounds
        for epsilon in (0.1, 1.0, 10.0, 1000.0)
    ]
    self.assertSequenceEqual(rounds, sorted(rounds))
    self.assertLess(rounds[0], rounds[-1])

  def test_lone_silo_has_no_variance_of_silos(self):
    self.assertEqual(
        minibatch_schedules.round_variance(
            2,
            noise_stddev=0.5,
            num_params=4,
            num_silos=1,
            num_available=1,
            example_variance=3.0,
            silo_variance=100.0,
        ),
        1.5 + 1.0,
    )


class StagesTest(parameterized.TestCase):

  @parameterized.product(
      variance=(0.0, 0.1, 5.0),
      total=(1, 10, 200, 1000),
  )
  def test_rounds_add_up_and_whole_stages_halve_the_gap(self, variance, total):
    gap, smoothness, mu = 3.0, 1.0, 0.1
    stages = minibatch_schedules.multi_stage_schedule(
        total,
        initial_gap=gap,
        variance=variance,
        smoothness=smoothness,
        strong_convexity=mu,
    )
    self.assertEqual(sum(stage.num_rounds for stage in stages), total)
    for stage in stages[:-1]:
      bound = minibatch_schedules.accelerated_bound(
          stage.num_rounds,
          gamma=stage.gamma,
          diameter=math.sqrt(2 * gap / mu),
          variance=variance,
      )
      self.assertLessEqual(bound, gap / 2 * (1 + 1e-12))
      gap /= 2
    for stage in stages:
      self.assertGreaterEqual(stage.gamma, 2 * smoothness)

  def test_first_stages_by_hand(self):
    first, second = minibatch_schedules.multi_stage_schedule(
        500,
        initial_gap=2.0,
        variance=3.0,
        smoothness=1.0,
        strong_convexity=0.25,
    )[:2]
    # max{4 sqrt(8), 64 * 3 / (3 * 0.25 * 2)} = 128, then 256.
    self.assertEqual((first.num_rounds, second.num_rounds), (128, 256))
    self.assertAlmostEqual(
        first.gamma, math.sqrt(0.25 * 3 * 128 * 129 * 257 / (24 * 2))
    )


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(num_records=0), 'num_records=0'),
      (dict(diameter=0.0), 'diameter=0.0'),
      (dict(epsilon=0.0), 'epsilon=0.0'),
      (dict(num_available=26), 'num_available=26'),
      (dict(silo_variance=-1.0), 'silo_variance=-1.0'),
      (dict(smoothness=math.nan), 'smoothness=nan'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    arguments = dict(num_records=100) | _PROBLEM | changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      minibatch_schedules.choose_rounds(
          arguments.pop('num_records'), **arguments
      )


class SmoothingTest(absltest.TestCase):

  def test_smoothing(self):
    arguments = dict(num_params=10, lipschitz=3.0, delta=1e-5, num_available=4)
    choose = minibatch_schedules.choose_smoothing
    self.assertAlmostEqual(
        choose(100, epsilon=1e6, diameter=2.0, **arguments), 2 * 10 * 1.5
    )
    self.assertAlmostEqual(
        choose(100, epsilon=0.5, diameter=2.0, **arguments),
        2 * 1.5 * 50 / math.sqrt(10 * math.log(1e5)),
    )
    self.assertAlmostEqual(
        choose(100, epsilon=0.5, strong_convexity=0.2, **arguments),
        0.2 * 4 * min(100, 2500 / (10 * math.log(1e5))),
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'diameter=None'):
      choose(100, epsilon=0.5, **arguments)


if __name__ == '__main__':
  absltest.main()
