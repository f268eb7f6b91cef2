# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Step and smoothing against their formulas."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.mechanisms import sgd_parameters


class SgdParametersTest(parameterized.TestCase):

  def test_step_of_strongly_convex_sgd(self):
    arguments = dict(smoothness=2.0, strong_convexity=0.5, diameter=3.0)
    rate = sgd_parameters.strongly_convex_learning_rate
    self.assertEqual(rate(1, variance=1.0, **arguments), 0.25)
    self.assertAlmostEqual(
        rate(100, variance=4.0, **arguments),
        math.log(0.25 * 9 * 100**2 / 4) / 50,
    )
    self.assertAlmostEqual(
        rate(100, variance=1e9, **arguments), math.log(2) / 50
    )

  def test_smoothing(self):
    arguments = dict(num_params=10, lipschitz=3.0, delta=1e-5, num_available=4)
    choose = sgd_parameters.choose_smoothing
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

  @parameterized.parameters(
      (dict(num_rounds=0), 'num_rounds=0'),
      (dict(smoothness=math.nan), 'smoothness=nan'),
      (dict(strong_convexity=0.0), 'strong_convexity=0.0'),
      (dict(diameter=-1.0), 'diameter=-1.0'),
      (dict(variance=0.0), 'variance=0.0'),
  )
  def test_bad_arguments_of_the_step_are_named(self, changes, message):
    arguments = dict(
        num_rounds=10,
        smoothness=1.0,
        strong_convexity=0.5,
        diameter=1.0,
        variance=1.0,
    )
    arguments |= changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      sgd_parameters.strongly_convex_learning_rate(
          arguments.pop('num_rounds'), **arguments
      )


if __name__ == '__main__':
  absltest.main()
