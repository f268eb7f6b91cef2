# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of tails of sums of lognormals against sums that round nothing off."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import special

from tff_dp.systems.allocation import lognormal_sums
from tff_dp.systems.allocation import random_allocation

pytestmark = pytest.mark.once


def _convolved(factors):
  """Returns a convolution by sums of positive terms: all digits, any size."""
  result = np.ones(1)
  for law in factors:
    result = np.convolve(result, law)
  return result


def _excess(law, step, threshold, *, above):
  distance = step * np.arange(len(law)) - threshold
  return float(law @ np.maximum(distance if above else -distance, 0.0))


class TailsTest(parameterized.TestCase):

  @parameterized.product(
      sigma=(0.8, 1.0, 3.0), t=(2, 6), share=(1.3, 2.0, 0.8, 0.3)
  )
  def test_tilted_sums_have_all_digits(self, sigma, t, share):
    top = 4.0
    rate = lognormal_sums.best_rate(
        sigma, t, top, share * t, above=share > 1
    )
    law = lognormal_sums.TiltedSum(sigma, t, top, 0.0, rate)
    step = law._step  # pylint: disable=protected-access
    one, _ = lognormal_sums.term_law(sigma, step, top)
    whole = _convolved([one] * t)
    for further in (1.0, 1.2 if share > 1 else 0.9):
      threshold = share * t * further
      exact = _excess(whole, step, threshold, above=share > 1)
      found, error = law.excess(np.array([threshold]))
      self.assertGreaterEqual(found[0], exact)
      self.assertAlmostEqual(found[0] / exact, 1.0, places=5)
      self.assertLess(error[0], 1e-5 * found[0])

  @parameterized.product(sigma=(0.8, 1.0), t=(2, 5))
  def test_large_terms_have_all_digits(self, sigma, t):
    cut, top = 12.0, 40.0
    law = lognormal_sums.LargeTerm(sigma, t, cut, top, 0.0)
    step = law._step  # pylint: disable=protected-access
    one, _ = lognormal_sums.term_law(sigma, step, top)
    large, _ = lognormal_sums.term_law(sigma, step, top, cut)
    self.assertAlmostEqual(
        large.sum()
        / (
            lognormal_sums.above(sigma, cut)[0]
            - lognormal_sums.above(sigma, top)[0]
        ),
        1.0,
    )
    whole = _convolved([large] + [one] * (t - 1))
    for threshold in (1.0, 15.0, 30.0, 45.0):
      exact = _excess(whole, step, threshold, above=True)
      found, error = law.excess(np.array([threshold]))
      self.assertGreaterEqual(found[0], exact)
      self.assertAlmostEqual(found[0] / exact, 1.0, places=5)
      self.assertLess(error[0], 1e-5 * found[0])

  def test_the_law_of_a_part_and_of_the_rest_is_the_whole(self):
    sigma, step, top, cut = 1.0, 0.03, 20.0, 7.123
    whole, _ = lognormal_sums.term_law(sigma, step, top)
    rest, _ = lognormal_sums.term_law(sigma, step, cut)
    part, errors = lognormal_sums.term_law(sigma, step, top, cut)
    part[: len(rest)] += rest
    np.testing.assert_allclose(part, whole, rtol=1e-9)
    self.assertEqual(errors[: int(cut / step)].max(), 0.0)


class SmallDeltasTest(parameterized.TestCase):

  @parameterized.parameters(0.5, 1.0, 4.0)
  def test_one_of_two_steps_by_an_integral(self, sigma):
    curves = random_allocation.curves(sigma, 2, 1e-19)
    for target in (1e-7, 1e-12, 1e-17):
      for curve, exact_of in zip(curves, (_remove_of_two, _add_of_two)):
        (reached,) = np.nonzero(curve.deltas <= target)
        if not len(reached):
          continue
        factor = float(curve.factors[reached[0]])
        found = float(curve.deltas[reached[0]])
        self.assertGreaterEqual(found, exact_of(sigma, factor) * (1 - 1e-10))
        # So epsilon is right to 1 %.
        self.assertLess(found, exact_of(sigma, factor**0.99))

  @parameterized.parameters(0.5, 1.0)
  def test_add_at_epsilon_0(self, sigma):
    # The threshold is the mean of S, so its side tells neither direction.
    # pylint: disable=protected-access
    bounds, _ = random_allocation._tail_add(sigma, 2, 1e12, np.ones(1))
    exact = _add_of_two(sigma, 1.0)
    self.assertGreaterEqual(bounds[0], exact)
    self.assertAlmostEqual(bounds[0] / exact, 1.0, delta=1e-3)

  @parameterized.parameters((1.0, 50), (0.6, 300), (3.0, 1000))
  def test_plain_and_tilted_laws_agree(self, sigma, t):
    # Where both resolve delta.
    factors = np.array([1.3, 1.5, 2.0])
    if sigma > 1:
      factors = np.array([1.03, 1.04])
    # pylint: disable=protected-access
    plain, is_tight = random_allocation._remove_rung(sigma, t, factors, 1e12)
    tails, errors = random_allocation._tail_remove(sigma, t, 1e12, factors)
    self.assertTrue(is_tight.all())
    np.testing.assert_allclose(tails, plain, rtol=5e-3)
    self.assertLess(errors[0], 1e-4 * tails[0])


def _remove_of_two(sigma, factor):
  """Returns Ex[((X_1 + X_2) / 2 - E)_+], by one integral."""

  def call(strikes):
    z = sigma * np.log(np.maximum(strikes, 1e-300))
    priced = special.ndtr(0.5 / sigma - z) - strikes * special.ndtr(
        -0.5 / sigma - z
    )
    return np.where(strikes > 0, priced, 1 - strikes)

  return _mean_over_first(sigma, call, 2 * factor)


def _add_of_two(sigma, factor):
  """Returns Ex[(1 - E (X_1 + X_2) / 2)_+], by one integral."""

  def put(strikes):
    z = sigma * np.log(np.maximum(strikes, 1e-300))
    priced = strikes * special.ndtr(0.5 / sigma + z) - special.ndtr(
        z - 0.5 / sigma
    )
    return np.where(strikes > 0, priced, 0.0)

  return factor * _mean_over_first(sigma, put, 2 / factor)


def _mean_over_first(sigma, value_of, total):
  """Returns half of Ex[value_of(total - X_1)]: sums of positive terms."""
  nodes, weights = np.polynomial.legendre.leggauss(60)
  kink = sigma * math.log(total) + 0.5 / sigma
  ends = np.union1d(np.linspace(-30, 38, 400), [kink])
  half = np.diff(ends)[:, np.newaxis] / 2
  z = ends[:-1, np.newaxis] + half * (nodes + 1)
  values = value_of(total - np.exp(z / sigma - 0.5 / sigma**2))
  density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
  return 0.5 * float(np.sum(half * weights * density * values))


if __name__ == '__main__':
  absltest.main()
