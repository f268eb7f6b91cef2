# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of transforms and their bounds, against rational arithmetic."""

import fractions

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.accounting.curves import transforms


class TransformsTest(parameterized.TestCase):

  @parameterized.parameters(0, 1, 2, 3, 10, 1999)
  def test_power(self, exponent):
    base = np.exp(1j * np.linspace(0, 3, 7)) * np.linspace(0.5, 1, 7)
    np.testing.assert_allclose(
        transforms.power(base, exponent), base**exponent, rtol=1e-11
    )

  @parameterized.parameters((1, 0), (2, 3), (40, 7), (600, 5))
  def test_error_covers_rounding(self, first_count, second_count):
    weights = [(5, 1, 2), (1, 0, 6)]
    counts = (first_count, second_count)
    num_points = 16
    exact = [fractions.Fraction(0)] * num_points
    exact[0] = fractions.Fraction(1)
    for some, count in zip(weights, counts):
      for _ in range(count):
        following = [fractions.Fraction(0)] * num_points
        for i, value in enumerate(exact):
          for j, weight in enumerate(some):
            following[(i + j) % num_points] += value * fractions.Fraction(
                weight, 8
            )
        exact = following
    factors = [
        (np.pad(np.array(some) / 8, (0, num_points - 3)), count)
        for some, count in zip(weights, counts)
    ]
    found, error = transforms.convolved(factors)
    wrong = sum(abs(fractions.Fraction(v) - e) for v, e in zip(found, exact))
    self.assertLessEqual(float(wrong), error)
    self.assertLess(error, 1e-11)

  @parameterized.parameters((9, 9), (3, 20), (25, 1))
  def test_error_covers_transforms_that_are_all_as_wrong_as_they_may_be(
      self, first_count, second_count
  ):
    # Every point of each transform is off by the bound, in a direction of its
    # own. What that does to the product is linear in the bound.
    rng = np.random.default_rng(0)
    num_points = 256
    factors = []
    for count in (first_count, second_count):
      probs = 0.03 * rng.dirichlet(np.ones(num_points))
      probs[0] += 0.97
      factors.append((probs, count))
    _, error = transforms.convolved(factors)
    size = transforms.rounding_of(8)
    ones = [np.fft.fft(probs) for probs, _ in factors]
    moved = np.zeros(num_points, complex)
    for (_, count), one, other, (_, others) in zip(
        factors, ones, ones[::-1], factors[::-1]
    ):
      wrong = np.fft.fft(rng.choice((-1.0, 1.0), num_points))
      wrong *= size / np.abs(wrong)
      moved += count * one ** (count - 1) * wrong * other**others
    attained = np.abs(np.fft.ifft(moved).real).sum()
    self.assertLessEqual(attained, error)
    self.assertGreater(attained, 0.2 * error)


if __name__ == '__main__':
  absltest.main()
