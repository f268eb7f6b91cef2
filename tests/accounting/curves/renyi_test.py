# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what Renyi divergences say about epsilon and delta."""

import math

from absl.testing import absltest
import mpmath
import numpy as np

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import renyi


class RenyiTest(absltest.TestCase):

  def test_epsilon_of_one_order(self):
    for divergence, order, delta in ((0.1, 2, 1e-5), (3.0, 9.5, 0.3)):
      expected = divergence + (
          math.log(1 / delta)
          + (order - 1) * math.log(1 - 1 / order)
          - math.log(order)
      ) / (order - 1)
      found = renyi.epsilon([divergence], orders=[order], delta=delta)
      self.assertAlmostEqual(found, max(expected, 0), delta=1e-9)
      self.assertGreaterEqual(found, expected)

  def test_order_near_one_has_all_digits(self):
    # ln(a / (1 + a)) - (ln(delta) + ln(1 + a)) / a, without 1 + a in floats.
    a, delta = 1e-20, 0.5
    expected = math.log(a) - math.log(delta) / a - 1
    (found,) = renyi.epsilons([0.0], delta=delta, above_one=np.array([a]))
    self.assertAlmostEqual(found / expected, 1.0, delta=1e-13)

  def test_nothing_is_known_without_delta(self):
    self.assertEqual(renyi.epsilon([0.1], delta=0.0, orders=[2]), math.inf)

  def test_profile_and_epsilon_agree_and_hold(self):
    orders = 1 + np.geomspace(1e-3, 1e3, 400)
    divergences = orders / 2
    profile = renyi.profile(divergences, orders=orders)
    for delta in (1e-12, 1e-5, 0.1):
      epsilon = renyi.epsilon(divergences, delta=delta, orders=orders)
      self.assertAlmostEqual(float(profile(epsilon)) / delta, 1.0, delta=1e-9)
      exact = gaussian.exact_epsilon(sigma=1.0, delta=delta)
      self.assertBetween(epsilon, exact, 1.5 * exact)

  def test_profile_of_one_order_is_rounded_up(self):
    for divergence, order in ((0.3, 2.0), (1.7, 9.25), (40.0, 1.003)):
      profile = renyi.profile([divergence], orders=[order])
      for epsilon in (0.1, 1.3, 7.7, 30.0):
        with mpmath.workdps(60):
          alpha = mpmath.mpf(order)
          start = divergence + mpmath.log(1 - 1 / alpha) - epsilon
          least = min(mpmath.exp((alpha - 1) * start) / alpha, mpmath.mpf(1))
          found = mpmath.mpf(float(profile(np.array(epsilon))))
          self.assertBetween(found, least, least * (1 + 1e-10))

  def test_outcomes_that_are_left_out_are_added_to_delta(self):
    orders, epsilons = np.array([2.0, 9.0]), np.array([0.0, 1.0, 5.0, 50.0])
    inside = renyi.profile([0.1, 0.4], orders=orders)(epsilons)
    found = renyi.profile([0.1, 0.4], orders=orders, outside=1e-3)(epsilons)
    np.testing.assert_allclose(found, np.minimum(inside + 1e-3, 1), rtol=1e-12)


if __name__ == '__main__':
  absltest.main()
