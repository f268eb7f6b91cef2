# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for privacy_profiles, against exact compositions."""

import fractions
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import pld_pmf
import numpy as np

from tests.accounting import protocol_laws as laws
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles

_EPSILONS = np.array([0.0, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0])
# A pair that is not symmetric, has mass where the other has none, and losses
# that no grid holds.
_FIRST = np.array([0.5, 0.23, 0.2, 0.07, 0.0])
_SECOND = np.array([0.3, 0.41, 0.16, 0.0, 0.13])
_SIGMAS = {sigma: gaussian.profile(sigma) for sigma in (6.0, 7.0)}


def _profile_of(first, second):
  return lambda epsilons: np.array(
      [laws.hockey_stick(first, second, e) for e in np.asarray(epsilons)]
  )


class ProfileTest(parameterized.TestCase):

  def test_minimum_is_pointwise(self):
    found = privacy_profiles.minimum(
        local_profiles.pure(1.0), local_profiles.gaussian(2.0)
    )(_EPSILONS)
    expected = np.minimum(
        local_profiles.pure(1.0)(_EPSILONS),
        local_profiles.gaussian(2.0)(_EPSILONS),
    )
    np.testing.assert_array_equal(found, expected)
    with self.assertRaisesRegex(ValueError, 'profiles is empty'):
      privacy_profiles.minimum()

  @parameterized.parameters(1.0, 0.3, 1e-4, 1e-9)
  def test_raised_is_rounded_down(self, probability):
    for epsilon in (0.0, 1e-12, 1e-3, 1.0, 29.9, 30.1, 300.0):
      found = privacy_profiles.raised(np.array([epsilon]), probability).item()
      with np.errstate(over='ignore'):
        exact = (
            math.log1p(math.expm1(epsilon) / probability)
            if epsilon < 700
            else math.inf
        )
      self.assertLessEqual(found, exact * (1 + 1e-15))
      self.assertAlmostEqual(found, exact, delta=1e-12 * (1 + exact))
      self.assertGreaterEqual(found, epsilon)

  @parameterized.product(sigma=(0.2, 1.0, 30.0), delta=(1e-10, 1e-5, 0.2))
  def test_epsilon_of_one_release(self, sigma, delta):
    found = privacy_profiles.epsilon_of(
        local_profiles.gaussian(2 * sigma), delta
    )
    exact = gaussian.exact_epsilon(sigma=sigma, delta=delta)
    self.assertGreaterEqual(found, exact * (1 - 1e-13))
    self.assertLessEqual(found, exact * (1 + 1e-8))

  def test_epsilon_of_the_ends(self):
    constant = lambda epsilons: np.full(np.shape(epsilons), 1e-3)
    self.assertEqual(privacy_profiles.epsilon_of(constant, 2e-3), 0.0)
    self.assertEqual(privacy_profiles.epsilon_of(constant, 1e-4), math.inf)
    with self.assertRaisesRegex(ValueError, 'delta=0'):
      privacy_profiles.epsilon_of(constant, 0.0)

  @parameterized.parameters(1.0, 30.0, 1e4)
  def test_scale_of_a_gaussian(self, sigma):
    scale, _ = privacy_profiles.extent(local_profiles.gaussian(2 * sigma))
    self.assertBetween(scale * sigma, 0.9, 1.2)

  def test_not_applicable_has_a_reason(self):
    error = privacy_profiles.NotApplicableError('too few clients')
    self.assertIsInstance(error, ValueError)
    self.assertEqual(error.reason, 'too few clients')


class ToPldTest(parameterized.TestCase):

  @parameterized.parameters(None, 0.3, 0.01)
  def test_dominates_both_directions(self, interval):
    forward = _profile_of(_FIRST, _SECOND)
    backward = _profile_of(_SECOND, _FIRST)
    pld = privacy_profiles.to_pld(
        forward, reverse=backward, interval=interval
    )
    for epsilon in _EPSILONS:
      exact = laws.delta(_FIRST, _SECOND, epsilon)
      found = pld.get_delta_for_epsilon(float(epsilon))
      self.assertGreaterEqual(found, exact - 1e-15)
      if interval != 0.3:
        self.assertLess(found, exact + 0.02)

  @parameterized.product(count=(2, 3, 5), interval=(None, 0.13))
  def test_compositions_dominate_both_directions(self, count, interval):
    forward = _profile_of(_FIRST, _SECOND)
    backward = _profile_of(_SECOND, _FIRST)
    composed = privacy_profiles.to_pld(
        forward, reverse=backward, interval=interval
    ).self_compose(count)
    one, other = laws.composed(_FIRST, _SECOND, count)
    for epsilon in (0.0, 0.2, 0.7, 1.3):
      exact = laws.delta(one, other, epsilon)
      found = composed.get_delta_for_epsilon(epsilon)
      self.assertGreaterEqual(found, exact - 1e-12)
      self.assertLess(found, exact * 1.05 + 0.03 * (interval is not None))

  def test_both_directions_bound_the_total_variation(self):
    loose = lambda e: np.minimum(1.3 * _profile_of(_SECOND, _FIRST)(e), 1.0)
    pld = privacy_profiles.to_pld(
        _profile_of(_FIRST, _SECOND), reverse=loose, interval=0.01
    )
    exact = laws.delta(_FIRST, _SECOND, 0.0)
    self.assertBetween(pld.get_delta_for_epsilon(0.0), exact, exact + 1e-9)

  def test_one_direction_is_not_enough(self):
    forward = _profile_of(_SECOND, _FIRST)
    one, other = laws.composed(_FIRST, _SECOND, 3)
    wrong = privacy_profiles.to_pld(forward).self_compose(3)
    exact = laws.delta(one, other, 0.5)
    right = privacy_profiles.to_pld(
        _profile_of(_FIRST, _SECOND), reverse=forward
    ).self_compose(3)
    self.assertGreaterEqual(right.get_delta_for_epsilon(0.5), exact)
    self.assertNotAlmostEqual(
        wrong.get_delta_for_epsilon(0.5),
        right.get_delta_for_epsilon(0.5),
        places=3,
    )

  @parameterized.parameters((1.0, 1), (20.0, 100), (100.0, 5000))
  def test_gaussians_compose_exactly(self, sigma, count):
    found = privacy_profiles.composed_epsilon(
        local_profiles.gaussian(2 * sigma), 1e-6, count=count
    )
    exact = gaussian.exact_epsilon(sigma=sigma / math.sqrt(count), delta=1e-6)
    self.assertBetween(found / exact, 1.0, 1.001)

  def test_one_composition_serves_many_deltas(self):
    compose = pld_pmf.DensePLDPmf.self_compose
    with mock.patch.object(
        pld_pmf.DensePLDPmf, 'self_compose', autospec=True, side_effect=compose
    ) as composed:
      for sigma, num_composed in ((6.0, 1), (7.0, 2), (6.0, 2)):
        profile = privacy_profiles.minimum(
            _SIGMAS[sigma], privacy_profiles.everything
        )
        for delta in (1e-3, 1e-6, 0.1):
          found = privacy_profiles.composed_epsilon(profile, delta, count=10)
          exact = gaussian.exact_epsilon(
              sigma=sigma / math.sqrt(10), delta=delta
          )
          self.assertBetween(found / exact, 1.0, 1.001)
        self.assertEqual(composed.call_count, num_composed)

  @parameterized.product(e0=(0.01, 1.0, 4.0), count=(1, 2, 6))
  def test_randomized_response_composes_exactly(self, e0, count):
    matrix = laws.randomized_response(e0)
    one, other = laws.composed(*matrix, count)
    for delta in (1e-2, 1e-5):
      found = privacy_profiles.composed_epsilon(
          local_profiles.pure(e0), delta, count=count
      )
      self.assertLessEqual(laws.delta(one, other, found), delta)
      if found > 0:
        shy = laws.delta(one, other, found * (1 - 1e-6))
        self.assertGreater(shy, delta * (1 - 1e-6))

  @parameterized.product(
      is_swapped=(False, True), delta=(0.05, 1e-3, 1e-13, 1e-15)
  )
  def test_the_worse_direction_of_compositions_counts(self, is_swapped, delta):
    # Three answers, each 1 with chance 1/2 for one client and 1/20 for another.
    pair = np.array([[0.5, 0.5], [0.05, 0.95]])
    if is_swapped:
      pair = pair[::-1]
    found = privacy_profiles.composed_epsilon(
        _profile_of(*pair), delta, count=3, reverse=_profile_of(*pair[::-1])
    )
    one, other = laws.composed(*pair, 3)
    spent = lambda epsilon: max(
        laws.hockey_stick(one, other, epsilon),
        laws.hockey_stick(other, one, epsilon),
    )
    self.assertLessEqual(spent(found), delta)
    self.assertGreater(spent(found - 0.2), delta)

  def test_hull_repairs_a_profile_that_is_not_convex(self):
    # A step at 0.5 cannot be a hockey-stick curve; below it, total variation is
    # at most (E - 1 + 2 delta) / (E + 1).
    step = lambda e: np.where(np.asarray(e) < 0.5, 1.0, 1e-3)
    pld = privacy_profiles.to_pld(step, interval=0.01)
    odds = math.exp(0.5)
    expected = (odds - 1 + 2e-3) / (odds + 1)
    self.assertAlmostEqual(
        pld.get_delta_for_epsilon(0.0), expected, delta=1e-9
    )

  def test_masses_sum_to_one(self):
    for profile in (
        local_profiles.gaussian(3.0),
        local_profiles.laplace(2.0),
        local_profiles.approximate(1.0, 1e-3),
    ):
      # pylint: disable=protected-access
      masses = privacy_profiles._Masses.of(profile, None)
      self.assertAlmostEqual(masses.probs.sum() + masses.infinite, 1.0)
      back = masses.reversed()
      self.assertAlmostEqual(back.probs.sum() + back.infinite, 1.0)
      self.assertGreaterEqual(masses.probs.min(), 0.0)

  def test_what_is_left_becomes_infinite_loss(self):
    profile = local_profiles.approximate(1.0, 1e-3)
    self.assertEqual(
        privacy_profiles.composed_epsilon(profile, 9e-4, count=1), math.inf
    )
    found = privacy_profiles.composed_epsilon(profile, 1e-2, count=5)
    self.assertLess(found, 5.0)
    cut = privacy_profiles.to_pld(
        local_profiles.gaussian(2.0), largest_epsilon=1.0
    )
    left = float(local_profiles.gaussian(2.0)(np.ones(1))[0])
    self.assertGreaterEqual(cut.get_delta_for_epsilon(9.0), left)

  def test_vacuous_and_void_profiles(self):
    vacuous = lambda e: np.ones(np.shape(e))
    self.assertEqual(
        privacy_profiles.composed_epsilon(vacuous, 0.1, count=10**6), math.inf
    )
    nothing = lambda e: np.zeros(np.shape(e))
    self.assertEqual(
        privacy_profiles.composed_epsilon(nothing, 1e-6, count=10), 0.0
    )
    # Of one release, the worse direction counts here, too.
    below = lambda end: lambda e: np.where(np.asarray(e) < end, 1.0, 0.0)
    for first, second in ((1.0, 2.0), (2.0, 1.0)):
      found = privacy_profiles.composed_epsilon(
          below(first), 1e-6, count=1, reverse=below(second)
      )
      self.assertBetween(found, 2.0, 2.001)
    with self.assertRaisesRegex(ValueError, 'one number for each epsilon'):
      privacy_profiles.to_pld(lambda e: np.full(np.shape(e), math.nan))

  def test_deltas_are_not_lost_in_rounding(self):
    profile = local_profiles.gaussian(200.0)
    found = privacy_profiles.composed_epsilon(profile, 1e-13, count=5000)
    exact = gaussian.exact_epsilon(sigma=100 / math.sqrt(5000), delta=1e-13)
    self.assertBetween(found, exact, 1.01 * exact)


class RoundingTest(parameterized.TestCase):

  @parameterized.parameters(2, 7, 40)
  def test_self_convolution_error_covers_rounding(self, count):
    weights = [1, 5, 9, 3, 0, 2]
    total = sum(weights)
    exact = [fractions.Fraction(1)]
    for _ in range(count):
      following = [fractions.Fraction(0)] * (len(exact) + len(weights) - 1)
      for i, value in enumerate(exact):
        for j, weight in enumerate(weights):
          following[i + j] += value * fractions.Fraction(weight, total)
      exact = following
    probs = np.array(weights) / total
    size = len(exact)
    found = np.fft.ifft(np.fft.fft(probs, size) ** count).real
    error = float(np.abs(found - np.array(exact, float)).sum())
    bound = privacy_profiles.self_convolution_error(probs, count)
    self.assertLess(error, bound)
    self.assertLess(bound, 1e-11)
    self.assertEqual(privacy_profiles.self_convolution_error(probs, 1), 0.0)


if __name__ == '__main__':
  absltest.main()
