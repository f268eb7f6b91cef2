# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the law of random_allocation: every error bound on its own."""

import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
import pytest
from scipy import special

from tff_dp.systems.allocation import lognormal_sums
from tff_dp.systems.allocation import random_allocation

pytestmark = pytest.mark.once

_Sum = lognormal_sums.LognormalSum


def _laws(law):
  """Returns the whole laws of S on the grid (Q, P), from the least index."""
  return law._q._array, law._p._array  # pylint: disable=protected-access


class OneTest(parameterized.TestCase):

  @parameterized.product(sigma=(0.4, 1.0, 8.0), step=(0.003, 0.2))
  def test_mass_and_mean_are_kept(self, sigma, step):
    top = 30.0
    one, errors = lognormal_sums.term_law(sigma, step, top)
    error = 2 * errors.sum()
    values = step * np.arange(len(one))
    # Mass and first moment of X below `top`.
    z = sigma * math.log(top) + 0.5 / sigma
    self.assertAlmostEqual(one.sum(), special.ndtr(z), delta=1e-13)
    self.assertAlmostEqual(
        values @ one, special.ndtr(z - 1 / sigma), delta=1e-13 + error
    )
    self.assertGreaterEqual(one.min(), 0)
    self.assertLess(error, 1e-9)

  @parameterized.product(sigma=(0.5, 2.0), step=(0.05, 0.7))
  def test_larger_in_convex_order(self, sigma, step):
    top = 2000.0
    one, _ = lognormal_sums.term_law(sigma, step, top)
    values = step * np.arange(len(one))
    for strike in (0.0, 0.1, 0.33, 1.0, 1.7, 10.0, 123.4):
      z = -sigma * math.log(strike) if strike else math.inf
      exact = special.ndtr(z + 0.5 / sigma) - strike * special.ndtr(
          z - 0.5 / sigma
      )
      left_out = special.ndtr(-sigma * math.log(top) + 0.5 / sigma)
      found = one @ np.maximum(values - strike, 0)
      self.assertGreaterEqual(found, exact - left_out - 1e-12)
      # On a point of the grid it is exact.
      point = round(strike / step) * step
      if point > 0:
        z = -sigma * math.log(point)
        exact = special.ndtr(z + 0.5 / sigma) - point * special.ndtr(
            z - 0.5 / sigma
        )
        at_top = left_out - point * special.ndtr(
            -sigma * math.log(top) - 0.5 / sigma
        )
        self.assertAlmostEqual(
            one @ np.maximum(values - point, 0), exact - at_top, delta=1e-11
        )

  @parameterized.parameters(0.3, 1.0, 10.0)
  def test_error_of_differences(self, sigma):
    edges = np.array([0.01, 0.5, 0.97, 1.03, 2.0, 7.0, 300.0])
    z = sigma * np.log(edges) + 0.5 / sigma
    found, errors = lognormal_sums._differences(z, 1 / sigma)
    with mpmath.workdps(60):
      exact = [
          mpmath.ncdf(
              mpmath.mpf(sigma) * mpmath.log(mpmath.mpf(edge))
              + 1 / (2 * mpmath.mpf(sigma))
          )
          for edge in edges
      ]
      for i in range(len(found)):
        wrong = abs(mpmath.mpf(found[i]) - (exact[i + 1] - exact[i]))
        # And one rounding of the difference itself.
        allowed = errors[i] + errors[i + 1] + 3e-16 * found[i] + 2e-16
        self.assertLessEqual(wrong, allowed)


class SumTest(parameterized.TestCase):

  @parameterized.product(sigma=(0.5, 1.0, 3.0), t=(2, 3, 7))
  def test_transforms_against_direct_convolution(self, sigma, t):
    top = 20.0
    law = _Sum.of_sum(sigma, t, top, 0.0)
    step = law._step  # pylint: disable=protected-access
    one, _ = lognormal_sums.term_law(sigma, step, top)
    if len(one) > 4000:
      one_sum = _convolve_exactly(one, t)
    else:
      one_sum = one
      for _ in range(t - 1):
        one_sum = np.convolve(one_sum, one)
    self.assertEqual(law._first, 0)  # pylint: disable=protected-access
    q_law, _ = _laws(law)
    # What lies beyond the grid has next to no mass.
    one_sum = np.resize(np.append(one_sum, np.zeros(len(q_law))), len(q_law))
    wrong = np.abs(q_law - one_sum).sum()
    self.assertLessEqual(wrong, law.q_rounding + 1e-14)
    self.assertLess(law.q_rounding, 1e-8)

  @parameterized.parameters((0.7, 40), (1.0, 500), (4.0, 2000))
  def test_p_is_q_weighted_by_the_mean(self, sigma, t):
    # Exact for the law on the grid, but for rounding; it is not computed so,
    # because the weight multiplies the rounding of the transforms.
    law = _Sum.of_sum(sigma, t, 60.0, 0.0)
    q_law, p_law = _laws(law)
    values = law._step * (law._first + np.arange(len(q_law)))
    near = values < 3 * t
    wrong = np.abs(q_law * values / t - p_law)[near].sum()
    self.assertLessEqual(wrong, law.p_rounding + 3 * law.q_rounding)
    one, _ = lognormal_sums.term_law(sigma, law._step, 60.0)
    self.assertAlmostEqual(
        q_law.sum(), one.sum() ** t, delta=law.q_rounding + 1e-12 * t
    )

  @parameterized.product(sigma=(0.6, 2.0), t=(20, 3000))
  def test_chernoff_bounds_the_outside(self, sigma, t):
    step, top = 0.05, 10.0
    one, _ = lognormal_sums.term_law(sigma, step, top)
    values = step * np.arange(len(one))
    std = math.sqrt(values**2 @ one)
    width = 3 * math.sqrt(t) * std
    start = max(0.0, t - width)
    found_q, found_p = lognormal_sums.wrapped_mass(
        one, values, t, start, 2 * width
    )
    # On a grid that holds all, by a transform with far more points.
    num_points = 1 << math.ceil(math.log2(t * len(one)))
    hat = np.fft.rfft(one, num_points)
    law = np.fft.irfft(hat**t, num_points)
    sums = step * np.arange(num_points)
    outside = (sums < start) | (sums >= start + 2 * width)
    self.assertGreaterEqual(found_q, law[outside].sum() - 1e-10)
    self.assertGreaterEqual(found_p, (law * sums / t)[outside].sum() - 1e-10)

  def test_chernoff_bounds_what_lies_below_alone(self):
    one, _ = lognormal_sums.term_law(1.0, 0.05, 10.0)
    values = 0.05 * np.arange(len(one))
    # Half of the mass, roughly, lies below the mean, nothing above the grid.
    found = lognormal_sums.wrapped_mass(one, values, 50, 50.0, 1e4)
    self.assertGreater(min(found), 0.4)

  def test_chernoff_under_p_has_one_weighted_term(self):
    values = np.array([0.0, 1.0, 2.0, 3.0])
    one = np.array([0.4, 0.3, 0.2, 0.1])
    rate, t, threshold = 1.7, 3, 8.0
    found = lognormal_sums._chernoff(one, values, t, threshold, [rate])
    moment = one @ np.exp(rate * values)
    weighted = (values * one) @ np.exp(rate * values)
    decay = math.exp(-rate * threshold)
    np.testing.assert_allclose(
        found, [decay * moment**3, decay * weighted * moment**2], rtol=1e-9
    )

  @parameterized.parameters((0.5, 2000), (2.0, 10))
  def test_rounding_of_the_transforms(self, sigma, t):
    law = _Sum.of_sum(sigma, t, 50.0, 0.0)
    q_law, _ = _laws(law)
    step = law._step  # pylint: disable=protected-access
    one, _ = lognormal_sums.term_law(sigma, step, 50.0)
    size = np.abs(np.fft.fft(one, len(q_law)))
    norm = math.sqrt(np.sum((t * size ** (t - 1)) ** 2))
    per_transform = 5 * math.log2(len(q_law)) * 2.0**-53
    least = per_transform * (norm + np.sum(size**t))
    self.assertBetween(law.q_rounding, least, 1.5 * least)
    self.assertBetween(law.p_rounding, 0.5 * least, 2 * least)

  def test_next_to_nothing_is_wrapped(self):
    for sigma, t in ((0.5, 2000), (3.0, 10_000)):
      law = _Sum.of_sum(sigma, t, 4.0 * t, 0.0)
      self.assertLess(max(law.q_wrapped, law.p_wrapped), 1e-30)
    # Far fewer points than S / h: the grid holds the bulk of S only.
    self.assertGreater(law._first, 0)  # pylint: disable=protected-access

  def test_blockwise_sums(self):
    array = np.random.default_rng(0).random(3 * 4096)
    sums = lognormal_sums._Sums(array)
    ends = np.array([0, 1, 4095, 4096, 4097, 9000, 3 * 4096])
    np.testing.assert_allclose(
        sums.until(ends), [array[:end].sum() for end in ends], rtol=1e-13
    )
    np.testing.assert_allclose(
        sums.from_(ends), [array[end:].sum() for end in ends], rtol=1e-13
    )


def _convolve_exactly(one, t):
  """Returns the t-fold convolution by transforms in extended precision."""
  from scipy import fft  # pylint: disable=g-import-not-at-top

  size = t * len(one)
  hat = fft.rfft(one.astype(np.longdouble), size)
  power = hat
  for _ in range(t - 1):
    power = power * hat
  return np.asarray(fft.irfft(power, size), np.float64)


class CurveTest(parameterized.TestCase):

  @parameterized.parameters((0.5, 200), (0.8, 50), (1.0, 2000))
  def test_rungs_do_not_matter(self, sigma, t):
    # What is left out of a grid is counted exactly: other grids, same result.
    epsilons = np.array([0.0, 0.05, 0.5, 1.0, 1.5, 2.0])
    remove, _ = random_allocation.curves(sigma, t, 1e-10)
    with mock.patch.object(random_allocation, '_FIRST_RUNG', 2.2):
      random_allocation.curves.cache_clear()
      other, _ = random_allocation.curves(sigma, t, 1e-10)
    random_allocation.curves.cache_clear()
    np.testing.assert_allclose(
        remove(epsilons), other(epsilons), rtol=5e-3, atol=2e-8
    )

  @parameterized.parameters((0.6, 100), (1.0, 200), (3.0, 10))
  def test_finer_grids_change_little_and_downward(self, sigma, t):
    epsilons = np.array([0.0, 0.01, 0.1, 0.5, 1.0])
    rough = random_allocation.curves(sigma, t, 1e-10)
    with mock.patch.object(lognormal_sums, '_STEP_SHARE', 0.0025):
      random_allocation.curves.cache_clear()
      fine = random_allocation.curves(sigma, t, 1e-10)
    random_allocation.curves.cache_clear()
    for first, second in zip(rough, fine):
      np.testing.assert_allclose(
          first(epsilons), second(epsilons), rtol=2e-3, atol=2e-8
      )

  def test_non_increasing_and_constant_at_the_end(self):
    for curve in random_allocation.curves(0.7, 100, 1e-10):
      self.assertTrue(np.all(np.diff(curve.deltas) <= 0))
      self.assertTrue(np.all(np.diff(curve.factors) > 0))
      self.assertEqual(curve(np.array([500.0]))[0], curve.deltas[-1])

  def test_near_the_rounding_tails_take_over(self):
    loose = random_allocation.curves(1.0, 900, 1e-10)
    with mock.patch.object(random_allocation, '_LEAST_OVER_ROUNDING', 1000.0):
      random_allocation.curves.cache_clear()
      strict = random_allocation.curves(1.0, 900, 1e-10)
    random_allocation.curves.cache_clear()
    for before, curve in zip(loose, strict):
      first, last = curve.deltas[0], curve.deltas[-1]
      deltas = np.geomspace(0.9 * first, max(2e-9, 2 * last), 50)
      ends = [
          np.interp(-np.log(deltas), -np.log(one.deltas), np.log(one.factors))
          for one in (before, curve)
      ]
      np.testing.assert_allclose(*ends, rtol=0.02)


if __name__ == '__main__':
  absltest.main()
