# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for gaussian, against 400-digit arithmetic and published numbers."""

import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
from dp_accounting import pld
from dp_accounting import rdp
import mpmath
import numpy as np

from tff_dp.accounting.curves import gaussian

_SIGMAS = (0.05, 0.3, 1.0, 3.7, 30.0, 1e4)
_DELTAS = (1e-12, 1e-6, 1e-3, 0.5)
# StackOverflow in arXiv:2103.00039: noise 1.13, S2 = 11.
_STACKOVERFLOW = 1.13 / math.sqrt(11)


def _true_delta(sigma, epsilon):
  """Balle and Wang's theorem 8, term by term, to 400 digits."""
  with mpmath.workdps(400):
    sigma, epsilon = mpmath.mpf(sigma), mpmath.mpf(epsilon)
    first = mpmath.ncdf(1 / (2 * sigma) - epsilon * sigma)
    second = mpmath.ncdf(-1 / (2 * sigma) - epsilon * sigma)
    return first - mpmath.exp(epsilon) * second


class ExactTest(parameterized.TestCase):

  @parameterized.product(sigma=_SIGMAS, delta=_DELTAS)
  def test_epsilon_is_the_smallest_sound_one(self, sigma, delta):
    epsilon = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    self.assertLessEqual(_true_delta(sigma, epsilon), delta)
    if epsilon > 0:
      self.assertGreater(_true_delta(sigma, epsilon * (1 - 1e-9)), delta)

  @parameterized.product(
      sigma=_SIGMAS + (1e-3, 1e9), epsilon=(0, 1e-9, 1e-3, 0.1, 1, 10, 250)
  )
  def test_delta_is_rounded_upward_by_little(self, sigma, epsilon):
    true = _true_delta(sigma, epsilon)
    result = gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
    self.assertGreaterEqual(result, true)
    # The two terms nearly cancel where sigma is large.
    slack = max(1e-7, 1e-13 * sigma)
    self.assertLessEqual(result, (1 + slack) * true + 1e-300)
    if sigma <= 1:
      self.assertLessEqual(result, (1 + 1e-10) * true + 1e-300)

  @parameterized.parameters(*_SIGMAS)
  def test_profile_is_delta_at_each_epsilon(self, sigma):
    epsilons = [0.0, 1e-3, 1.0, 250.0, 1e300, math.inf]
    found = gaussian.profile(sigma)(np.array(epsilons))
    one_by_one = [
        gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
        for epsilon in epsilons
    ]
    np.testing.assert_allclose(found, one_by_one, rtol=1e-14, atol=1e-300)
    for epsilon, delta in zip(epsilons[:4], found):
      self.assertGreaterEqual(delta, _true_delta(sigma, epsilon))

  @parameterized.parameters(1e-200, 1e-310)
  def test_no_noise_to_speak_of_is_delta_1(self, sigma):
    epsilons = [0.0, 250.0, 1e300]
    np.testing.assert_array_equal(gaussian.profile(sigma)(epsilons), 1.0)
    for epsilon in epsilons:
      self.assertEqual(gaussian.exact_delta(sigma=sigma, epsilon=epsilon), 1.0)
    self.assertEqual(gaussian.exact_delta(sigma=sigma, epsilon=math.inf), 0.0)

  def test_published_stackoverflow_setting(self):
    self.assertAlmostEqual(
        gaussian.exact_epsilon(sigma=_STACKOVERFLOW, delta=1e-6),
        17.67,
        delta=0.005,
    )

  @parameterized.product(sigma=(0.3, 1.0, 10.0), delta=(1e-9, 1e-5))
  def test_agrees_with_privacy_loss_distributions(self, sigma, delta):
    interval = 3e-4 / sigma
    accountant = pld.PLDAccountant(value_discretization_interval=interval)
    accountant.compose(dp_accounting.GaussianDpEvent(sigma))
    theirs = accountant.get_epsilon(delta)
    ours = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    # Theirs is on a grid, rounded up.
    self.assertBetween(theirs, ours - 1e-9, ours + 2 * interval)

  def test_infinite_epsilon_and_no_noise(self):
    self.assertEqual(gaussian.exact_epsilon(sigma=0, delta=1e-6), math.inf)
    self.assertEqual(gaussian.exact_delta(sigma=0, epsilon=5), 1)
    self.assertLess(gaussian.exact_delta(sigma=1, epsilon=math.inf), 1e-300)

  def test_zero_epsilon_where_delta_allows_it(self):
    # delta at epsilon 0 is erf(1 / (2 sqrt(2) sigma)).
    total_variation = math.erf(1 / math.sqrt(8))
    self.assertEqual(
        gaussian.exact_epsilon(sigma=1, delta=total_variation + 1e-12), 0
    )
    self.assertGreater(
        gaussian.exact_epsilon(sigma=1, delta=total_variation - 1e-12), 0
    )

  @parameterized.parameters(1e-200, 1e-9, 1e9, 1e200)
  def test_extreme_sigma_errs_upward(self, sigma):
    epsilon = gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    if epsilon < math.inf:
      self.assertLessEqual(_true_delta(sigma, epsilon), 1e-6)


class RdpTest(parameterized.TestCase):

  @parameterized.product(
      sigma=_SIGMAS + (1e-3, 1e9), delta=_DELTAS + (1e-100, 0.999)
  )
  def test_at_least_exact(self, sigma, delta):
    self.assertLessEqual(
        gaussian.exact_epsilon(sigma=sigma, delta=delta),
        gaussian.rdp_epsilon(sigma=sigma, delta=delta),
    )

  @parameterized.product(sigma=_SIGMAS, delta=_DELTAS)
  def test_no_real_order_is_better(self, sigma, delta):
    rho = 0.5 / sigma**2
    result = gaussian.rdp_epsilon(sigma=sigma, delta=delta)
    best = math.inf
    for step in range(-3000, 3001):
      above_one = math.exp(step / 150)
      order = 1 + above_one
      best = min(
          best,
          order * rho
          + math.log(above_one / order)
          - (math.log(delta) + math.log(order)) / above_one,
      )
    self.assertLessEqual(result, max(0, best) + 1e-12)
    # A grid this fine is off by far less.
    self.assertAlmostEqual(result, max(0, best), delta=1e-4 * (1 + best))

  @parameterized.parameters(
      # arXiv:2103.00039, StackOverflow, "~19".
      (_STACKOVERFLOW, 1e-6, 18.71),
      # arXiv:2305.18465, es-ES: S2 = 79, noise 7.
      (7 / math.sqrt(79), 1e-10, 8.90),
  )
  def test_published_settings(self, sigma, delta, expected):
    self.assertAlmostEqual(
        gaussian.rdp_epsilon(sigma=sigma, delta=delta), expected, delta=0.005
    )

  @parameterized.product(sigma=(0.5, 2.0, 20.0), delta=(1e-9, 1e-5))
  def test_agrees_with_dp_accounting_on_its_orders(self, sigma, delta):
    accountant = rdp.RdpAccountant(1 + np.geomspace(1e-2, 1e4, 2000))
    accountant.compose(dp_accounting.GaussianDpEvent(sigma))
    theirs = accountant.get_epsilon(delta)
    ours = gaussian.rdp_epsilon(sigma=sigma, delta=delta)
    self.assertBetween(theirs, ours - 1e-9, ours * (1 + 1e-5))

  @parameterized.product(sigma=(1e-3, 0.3, 1.0, 3.0), delta=(1e-100, 0.9))
  def test_a_grid_beside_the_optimum_moves_there(self, sigma, delta):
    expected = gaussian.rdp_epsilon(sigma=sigma, delta=delta)
    with mock.patch.object(gaussian, '_GRID_STEP', 1e-3):
      moved = gaussian.rdp_epsilon(sigma=sigma, delta=delta)
    self.assertAlmostEqual(moved, expected, delta=1e-9 * (1 + expected))

  @parameterized.parameters(1e-200, 2e-154, 1e-153, 1e153, 1e200)
  def test_extreme_sigma_comes_to_an_end(self, sigma):
    epsilon = gaussian.rdp_epsilon(sigma=sigma, delta=1e-6)
    self.assertEqual(epsilon > 1, sigma < 1)

  def test_no_noise(self):
    self.assertEqual(gaussian.rdp_epsilon(sigma=0, delta=1e-6), math.inf)
    self.assertEqual(gaussian.zcdp_rho(sigma=0), math.inf)

  def test_zcdp(self):
    self.assertEqual(gaussian.zcdp_rho(sigma=2), 0.125)
    rho = gaussian.zcdp_rho(sigma=7 / math.sqrt(79))
    self.assertAlmostEqual(rho, 0.81, delta=0.005)


class SigmaForTest(parameterized.TestCase):

  @parameterized.product(
      method=gaussian.METHODS,
      epsilon=(1e-6, 0.1, 1, 8, 1000),
      delta=(1e-12, 1e-6, 0.5),
  )
  def test_round_trip_ends_on_the_private_side(self, method, epsilon, delta):
    spend = {
        'exact': gaussian.exact_epsilon,
        'rdp': gaussian.rdp_epsilon,
    }[method]
    sigma = gaussian.sigma_for(epsilon=epsilon, delta=delta, method=method)
    self.assertLessEqual(spend(sigma=sigma, delta=delta), epsilon)
    self.assertGreater(spend(sigma=sigma * (1 - 1e-8), delta=delta), epsilon)

  @parameterized.product(epsilon=(0.1, 8), delta=(1e-12, 1e-6))
  def test_rdp_needs_more_noise(self, epsilon, delta):
    self.assertGreater(
        gaussian.sigma_for(epsilon=epsilon, delta=delta, method='rdp'),
        gaussian.sigma_for(epsilon=epsilon, delta=delta),
    )

  @parameterized.product(delta=_DELTAS)
  def test_monotone(self, delta):
    sigmas = [0.02 * 1.1**step for step in range(150)]
    for spend in (gaussian.exact_epsilon, gaussian.rdp_epsilon):
      spent = [spend(sigma=sigma, delta=delta) for sigma in sigmas]
      self.assertEqual(spent, sorted(spent, reverse=True))


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(-1.0, math.nan, math.inf, True, 'one')
  def test_sigma(self, sigma):
    with self.assertRaisesRegex(ValueError, '^sigma='):
      gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    with self.assertRaisesRegex(ValueError, '^sigma='):
      gaussian.rdp_epsilon(sigma=sigma, delta=1e-6)
    with self.assertRaisesRegex(ValueError, '^sigma='):
      gaussian.zcdp_rho(sigma=sigma)
    with self.assertRaisesRegex(ValueError, '^sigma='):
      gaussian.exact_delta(sigma=sigma, epsilon=1)

  @parameterized.parameters(0.0, 1.0, 2, -1e-6, math.nan)
  def test_delta(self, delta):
    for spend in (gaussian.exact_epsilon, gaussian.rdp_epsilon):
      with self.assertRaisesRegex(ValueError, '^delta='):
        spend(sigma=1, delta=delta)
    with self.assertRaisesRegex(ValueError, '^delta='):
      gaussian.sigma_for(epsilon=1, delta=delta)

  def test_epsilon_and_method(self):
    with self.assertRaisesRegex(ValueError, '^epsilon=-1'):
      gaussian.exact_delta(sigma=1, epsilon=-1)
    with self.assertRaisesRegex(ValueError, '^epsilon=0'):
      gaussian.sigma_for(epsilon=0, delta=1e-6)
    with self.assertRaisesRegex(ValueError, "^method='prv' .* 'exact', 'rdp'"):
      gaussian.sigma_for(epsilon=1, delta=1e-6, method='prv')


if __name__ == '__main__':
  absltest.main()
