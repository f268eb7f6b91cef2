# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for check_in_utility."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.accounting.amplification import check_in_utility
from tff_dp.accounting.curves import privacy_profiles

_SETTINGS = dict(
    num_slots=5, radius=2.0, lipschitz=0.5, num_params=10, noise_std=0.3
)


class DummiesTest(parameterized.TestCase):

  @parameterized.product(n=(0, 1, 4), m=(1, 3), p0=(0.0, 0.3, 1.0))
  def test_fixed_window_by_enumeration(self, n, m, p0):
    expected = 0.0
    for places in itertools.product([None] + list(range(m)), repeat=n):
      weight = math.prod(1 - p0 if s is None else p0 / m for s in places)
      expected += weight * len(set(range(m)) - set(places))
    found = check_in_utility.expected_dummies_fixed_window(
        n, num_slots=m, check_in_probability=p0
    )
    self.assertAlmostEqual(found, expected, delta=1e-12)

  @parameterized.product(n=(3, 5), m=(1, 2, 3))
  def test_sliding_window_by_enumeration(self, n, m):
    expected = 0.0
    windows = [range(j, j + m) for j in range(1, n + 1)]
    for places in itertools.product(*windows):
      expected += len(set(range(m, n + 1)) - set(places)) / m**n
    found = check_in_utility.expected_dummies_sliding_window(n, window=m)
    self.assertAlmostEqual(found, expected, delta=1e-12)
    self.assertLessEqual(found, (n - m + 1) / math.e + 1e-12)

  def test_large_populations(self):
    found = check_in_utility.expected_dummies_fixed_window(
        10**7, num_slots=10**6, check_in_probability=0.2
    )
    self.assertAlmostEqual(found / 10**6, math.exp(-2), delta=1e-6)


class LearningRatesTest(parameterized.TestCase):

  def test_theorem_3_5(self):
    rates = check_in_utility.learning_rates_theorem_3_5(
        num_clients=20, check_in_probability=0.5, **_SETTINGS
    )
    expected = [
        2.0 * (1 - 2 * math.exp(-20 * 0.5 / 5))
        / math.sqrt((10 * 0.3**2 + 0.5**2) * i)
        for i in range(1, 6)
    ]
    np.testing.assert_allclose(rates, expected)

  def test_theorem_3_5_needs_clients(self):
    with self.assertRaisesRegex(
        privacy_profiles.NotApplicableError, 'is 0.6, .*ln 2'
    ):
      check_in_utility.learning_rates_theorem_3_5(
          num_clients=3, check_in_probability=1.0, **_SETTINGS
      )

  def test_theorem_4_2(self):
    rates = check_in_utility.learning_rates_theorem_4_2(
        num_clients=20, **_SETTINGS
    )
    expected = [
        2.0 * math.sqrt(20) / math.sqrt((5 * 10 * 0.09 + 20 * 0.25) * i)
        for i in range(1, 6)
    ]
    np.testing.assert_allclose(rates, expected)
    smooth = check_in_utility.learning_rates_theorem_4_2(
        num_clients=20, smoothness=3.0, **_SETTINGS
    )
    root = 2.0 * math.sqrt(20)
    np.testing.assert_allclose(
        smooth, root / (3.0 * root + 5 * math.sqrt(0.25 + 0.9)) * np.ones(5)
    )

  @parameterized.parameters('radius', 'lipschitz', 'num_slots', 'noise_std')
  def test_errors(self, name):
    with self.assertRaisesRegex(ValueError, f'^{name}=-1'):
      check_in_utility.learning_rates_theorem_4_2(
          num_clients=20, **{**_SETTINGS, name: -1}
      )


if __name__ == '__main__':
  absltest.main()
