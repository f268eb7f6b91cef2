# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the printing of guarantees."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.accounting import rounding


class PrintingTest(parameterized.TestCase):

  @parameterized.parameters(
      (17.666750761206746, '17.67'),
      (17.6601, '17.67'),
      (2.0, '2.000'),
      (0.12341, '0.1235'),
      (9.9991, '10.000'),
      (0.1, '0.1000'),
      (123456.7, '123500'),
      (1234567.0, '1.235e+6'),
      (1e-9, '1.000e-9'),
      (0.0, '0'),
      (math.inf, 'inf'),
  )
  def test_rounded_up(self, value, text):
    self.assertEqual(rounding.rounded_up(value), text)

  def test_rounded_up_never_understates(self):
    generator = np.random.default_rng(1)
    for value in 10 ** generator.uniform(-12, 12, 2000):
      for digits in (1, 4, 7):
        text = rounding.rounded_up(value, digits=digits)
        self.assertGreaterEqual(float(text), value)
        self.assertLess(float(text), value * (1 + 1.01 * 10 ** (1 - digits)))

  @parameterized.parameters(
      (1e-5, '1e-05'),
      (0.5, '0.5'),
      (2.0, '2'),
      # Format code 'g' gives 3.16228e-06 and 0.123456: too small.
      (3.162284e-06, '3.16229e-06'),
      (0.1234564, '0.123457'),
      (0.0, '0'),
      (math.inf, 'inf'),
  )
  def test_short(self, value, text):
    self.assertEqual(rounding.short(value), text)

  def test_short_never_understates(self):
    for value in 10 ** np.random.default_rng(2).uniform(-300, 6, 2000):
      self.assertGreaterEqual(float(rounding.short(value)), value)
      self.assertLess(float(rounding.short(value)), value * (1 + 1.01e-5))

  def test_json_numbers(self):
    self.assertEqual(rounding.to_json_number(math.inf), 'inf')
    for value in (0.0, 1.5, math.inf):
      self.assertEqual(
          rounding.from_json_number(rounding.to_json_number(value)), value
      )


if __name__ == '__main__':
  absltest.main()
