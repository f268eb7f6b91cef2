# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the chance of a right guess."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import guesses


def _worst(epsilon, delta):
  """Returns the worst pair: reveals all with probability delta, else a coin."""
  truth = (1 - delta) / (1 + math.exp(-epsilon))
  p = np.array([delta, 0.0, truth, 1 - delta - truth])
  return p, p[[1, 0, 3, 2]]


class OnePointTest(parameterized.TestCase):

  @parameterized.product(epsilon=(0.0, 0.3, 2.0, 9.0), delta=(0.0, 1e-3, 0.2))
  def test_worst_mechanism_attains_it(self, epsilon, delta):
    p, q = _worst(epsilon, delta)
    self.assertAlmostEqual(
        guesses.right(epsilon, delta),
        0.5 * float(np.maximum(p, q).sum()),
        places=12,
    )

  @parameterized.product(epsilon=(0.3, 2.0, 9.0), delta=(0.0, 1e-3, 0.2))
  def test_worst_mechanism_attains_the_true_positive_rate(self, epsilon, delta):
    p, q = _worst(epsilon, delta)
    # All outputs but one, and the likely answer alone.
    for outputs in ([0, 2], [0, 2, 3]):
      self.assertAlmostEqual(
          guesses.true_positives([(epsilon, delta)], q[outputs].sum()),
          p[outputs].sum(),
          places=12,
      )

  def test_no_privacy_is_certainty(self):
    self.assertEqual(guesses.right(math.inf, 0.0), 1.0)
    self.assertEqual(guesses.right(1e6, 1e-5), 1.0)
    self.assertEqual(guesses.least_right([]), 1.0)
    self.assertEqual(guesses.true_positives([(math.inf, 0.0)], 1e-3), 1.0)


class SearchTest(parameterized.TestCase):

  @parameterized.parameters(0.17, 0.5, 1.0, 4.0, 30.0)
  def test_gaussian_noise(self, sigma):
    profile = guesses.searched(
        lambda delta: gaussian.exact_epsilon(sigma=sigma, delta=delta)
    )
    exact = stats.norm.cdf(0.5 / sigma)
    self.assertBetween(guesses.least_right(profile), exact, exact + 1e-3)
    for rate in (1e-3, 0.1):
      self.assertGreaterEqual(
          guesses.true_positives(profile, rate),
          stats.norm.cdf(stats.norm.ppf(rate) + 1 / sigma),
      )

  @parameterized.parameters(0.1, 1.0, 8.0)
  def test_pure_epsilon(self, epsilon):
    found = guesses.least_right(guesses.searched(lambda delta: epsilon))
    exact = 1 / (1 + math.exp(-epsilon))
    self.assertBetween(found, exact, exact + 1e-5)

  def test_nothing_holds(self):
    profile = guesses.searched(lambda delta: math.inf)
    self.assertEqual(guesses.least_right(profile), 1.0)


if __name__ == '__main__':
  absltest.main()
