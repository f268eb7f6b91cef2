# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for local_profiles, against integrals and every outcome."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
from scipy import integrate

from tests.accounting import protocol_laws as laws
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.events import run_events

_EPSILONS = np.array([0.0, 1e-9, 0.01, 0.3, 1.0, 1.99, 2.0, 4.0, 80.0, 600.0])


class LocalProfilesTest(parameterized.TestCase):

  @parameterized.product(e0=(0.1, 2.0, 6.0), num_categories=(2, 3, 10))
  def test_randomized_response_is_exact(self, e0, num_categories):
    matrix = laws.randomized_response(e0, num_categories)
    found = local_profiles.randomized_response(e0, num_categories)(_EPSILONS)
    for value, epsilon in zip(found, _EPSILONS):
      exact = laws.delta(matrix[0], matrix[1], epsilon)
      self.assertGreaterEqual(value, exact - 1e-16)
      self.assertAlmostEqual(value, exact, delta=1e-14)

  @parameterized.parameters(0.1, 2.0)
  def test_pure_is_binary_randomized_response(self, e0):
    np.testing.assert_allclose(
        local_profiles.pure(e0)(_EPSILONS),
        local_profiles.randomized_response(e0, 2)(_EPSILONS),
        rtol=1e-14,
    )

  def test_pure_bounds_every_pure_randomizer(self):
    rng = np.random.default_rng(1)
    for _ in range(200):
      first, second = rng.dirichlet(np.ones(5), size=2)
      e0 = float(np.abs(np.log(first / second)).max())
      for epsilon in np.linspace(0, min(e0, 50.0), 7):
        bound = local_profiles.pure(min(e0, 500.0))(np.array([epsilon]))[0]
        exact = laws.delta(first, second, epsilon)
        self.assertGreaterEqual(bound, exact - 1e-15)

  @parameterized.parameters(0.0, 1e-6, 0.3, 1.0)
  def test_approximate_is_the_leaky_one(self, d0):
    matrix = laws.leaky_randomized_response(1.7, d0)
    found = local_profiles.approximate(1.7, d0)(_EPSILONS)
    for value, epsilon in zip(found, _EPSILONS):
      exact = laws.delta(matrix[0], matrix[1], epsilon)
      self.assertGreaterEqual(value, exact - 1e-16)
      self.assertAlmostEqual(value, exact, delta=1e-14)

  @parameterized.product(e0=(0.2, 2.0), epsilon=(0.0, 0.15, 1.0, 1.9))
  def test_laplace_is_exact_in_one_dimension(self, e0, epsilon):
    density = lambda x: 0.5 * math.exp(-abs(x))
    gap = lambda x: max(
        density(x) - math.exp(epsilon) * density(x - e0), 0.0
    )
    ends = [0.0, (e0 - epsilon) / 2, e0]
    exact, _ = integrate.quad(gap, -40, 40, points=ends, limit=400)
    found = float(local_profiles.laplace(e0)(np.array([epsilon]))[0])
    self.assertAlmostEqual(found, exact, delta=1e-9)

  def test_bounded_losses_are_rounded_up(self):
    for e0 in (0.3, 1.0, 2.7, 11.0):
      epsilons = e0 * np.array([0.0, 0.1, 0.37, 0.5, 0.93])
      with mpmath.workdps(60):
        e, odds = [mpmath.mpf(x) for x in epsilons], mpmath.exp(e0)
        gaps = [odds - mpmath.exp(x) for x in e]
        # The leaky one has the delta0 of a quarter.
        exact = {
            'laplace': [1 - mpmath.exp((x - mpmath.mpf(e0)) / 2) for x in e],
            'three': [gap / (odds + 2) for gap in gaps],
            'leaky': [0.25 + 0.75 * gap / (odds + 1) for gap in gaps],
        }
      for profile, name in (
          (local_profiles.laplace(e0), 'laplace'),
          (local_profiles.randomized_response(e0, 3), 'three'),
          (local_profiles.approximate(e0, 0.25), 'leaky'),
      ):
        for found, least in zip(profile(epsilons), exact[name]):
          self.assertBetween(mpmath.mpf(found), least, least * (1 + 1e-14))
      # Delta0 itself is kept, so that (e0, delta0) is what holds.
      self.assertEqual(local_profiles.approximate(e0, 0.25)(np.array(e0)), 0.25)

  @parameterized.product(split=(0.5, 0.9), epsilon=(0.0, 0.4, 1.5))
  def test_laplace_in_two_dimensions_is_no_worse(self, split, epsilon):
    e0 = 2.0
    bound = float(local_profiles.laplace(e0)(np.array([epsilon]))[0])
    # The loss along one axis, as (loss, mass): atoms at the ends, and between
    # them the density exp(-(a - l) / 2) / 4.
    def law(a, num=4001):
      losses = np.linspace(-a, a, num)
      step = losses[1] - losses[0]
      mass = 0.25 * np.exp(-(a - losses) / 2) * step
      mass[[0, -1]] /= 2
      mass[-1] += 0.5
      mass[0] += 0.5 * math.exp(-a)
      return losses, mass

    first, second = law(split * e0, 1001), law((1 - split) * e0, 1001)
    losses = np.add.outer(first[0], second[0])
    masses = np.multiply.outer(first[1], second[1])
    exact = (masses * np.maximum(1 - np.exp(epsilon - losses), 0)).sum()
    self.assertLess(exact, bound)

  @parameterized.product(multiplier=(0.1, 1.0, 5.0, 300.0))
  def test_gaussian_has_twice_the_clip_norm(self, multiplier):
    found = local_profiles.gaussian(multiplier)(_EPSILONS)
    for value, epsilon in zip(found, _EPSILONS):
      with mpmath.workdps(60):
        distance, e = mpmath.mpf(2) / multiplier, mpmath.mpf(epsilon)
        exact = mpmath.ncdf(distance / 2 - e / distance) - mpmath.exp(
            e
        ) * mpmath.ncdf(-distance / 2 - e / distance)
      self.assertGreaterEqual(value, exact)
      self.assertLessEqual(value, exact * (1 + 1e-9) + 1e-13)

  def test_profiles_do_not_increase(self):
    grid = np.linspace(0, 8, 500)
    for profile in (
        local_profiles.pure(3.0),
        local_profiles.approximate(3.0, 0.1),
        local_profiles.randomized_response(3.0, 7),
        local_profiles.laplace(3.0),
        local_profiles.gaussian(0.7),
    ):
      values = profile(grid)
      self.assertTrue(np.all(np.diff(values) <= 0))
      self.assertTrue(np.all((values >= 0) & (values <= 1)))
      self.assertFalse(np.signbit(values).any())

  def test_facts_of_reports(self):
    # Four reports with twice the clip norm between two inputs.
    found = local_profiles.report(run_events.GaussianLocalDpEvent(3.0))
    exact = gaussian.exact_epsilon(sigma=3.0 / 2 / 2, delta=1e-6)
    self.assertBetween(
        composition.epsilon([found.part(4)], 1e-6), exact, exact * (1 + 1e-9)
    )
    self.assertFalse(found.is_pure)
    for delta0 in (0.0, 1e-12):
      found = local_profiles.report(run_events.LocalDpEvent(1.0, delta0))
      self.assertEqual(found.is_pure, delta0 == 0)
      self.assertEqual(found.split, (1.0, delta0))
      self.assertEqual(found.part(4).count, 4)
    self.assertEmpty(
        local_profiles.report(run_events.LaplaceLocalDpEvent(1.0)).strong_clones
    )

  def test_bad_input(self):
    with self.assertRaisesRegex(ValueError, 'local_epsilon=-1'):
      local_profiles.pure(-1)
    with self.assertRaisesRegex(ValueError, 'local_epsilon=nan'):
      local_profiles.laplace(math.nan)
    with self.assertRaisesRegex(ValueError, 'local_delta=1.5'):
      local_profiles.approximate(1.0, 1.5)
    with self.assertRaisesRegex(ValueError, 'num_categories=1 '):
      local_profiles.randomized_response(1.0, 1)
    with self.assertRaisesRegex(ValueError, 'noise_multiplier=0'):
      local_profiles.gaussian(0.0)


if __name__ == '__main__':
  absltest.main()
