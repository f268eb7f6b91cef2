# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what parts cost together, against closed forms."""

import math

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from tests.accounting import made_parts
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles


def _of_a_bit(p: float, q: float):
  """Returns the profile of a bit that is 1 with chance p against chance q."""
  return lambda epsilons: np.maximum(
      p - np.exp(epsilons) * q, 0.0
  ) + np.maximum((1 - p) - np.exp(epsilons) * (1 - q), 0.0)


class TogetherTest(parameterized.TestCase):

  @parameterized.product(sigma=(0.5, 2.0, 9.0), count=(1, 2, 40))
  def test_gaussians_are_one_gaussian(self, sigma, count):
    exact = gaussian.exact_epsilon(sigma=sigma / math.sqrt(count), delta=1e-5)
    for items in (
        [made_parts.gaussian(sigma, count=count)],
        [made_parts.gaussian(sigma)] * count,
        [
            made_parts.gaussian(sigma, count=count),
            composition.Part(np.zeros_like),
        ],
    ):
      self.assertBetween(composition.epsilon(items, 1e-5), exact, 1.02 * exact)
    self.assertEqual(
        composition.epsilon(
            [composition.Part(np.ones_like, sigma=sigma)], 1e-5
        ),
        gaussian.exact_epsilon(sigma=sigma, delta=1e-5),
    )

  def test_randomized_response_by_the_binomial_law(self):
    e0, count = 1.0, 10
    keep = 1 / (1 + math.exp(-e0))
    for delta in (0.1, 1e-3, 1e-6):
      found = composition.epsilon(
          [composition.Part(local_profiles.pure(e0), count=count)], delta
      )
      exact = sum(
          math.comb(count, k) * keep**k * (1 - keep) ** (count - k)
          * max(0.0, 1 - math.exp(found - (2 * k - count) * e0))
          for k in range(count + 1)
      )
      self.assertBetween(exact, 0.98 * delta, delta)

  def test_delta0_adds_up(self):
    for split in ((6,), (1, 2, 3)):
      items = [
          composition.Part(local_profiles.approximate(0.1, 1e-3), count=count)
          for count in split
      ]
      rest = 1 - (1 - 1e-3) ** 6
      self.assertAlmostEqual(
          1 - math.prod(1 - item.least_delta for item in items), rest
      )
      self.assertEqual(composition.epsilon(items, 0.99 * rest), math.inf)
      self.assertLess(composition.epsilon(items, 1.1 * rest), 0.61)

  def test_directions_stay_apart(self):
    part = made_parts.subsampled(0.1, 1.0)
    reverse = composition.Part(part.reverse, reverse=part.profile)
    one, other = composition.together([part, part]), composition.together(
        [part, composition.Part(part.profile, reverse=part.reverse)]
    )
    self.assertAlmostEqual(one.epsilon(1e-4), other.epsilon(1e-4))
    both = composition.together([part, reverse])
    worst = composition.Part(
        lambda e: np.maximum(part.profile(e), part.reverse(e)), count=2
    )
    self.assertLess(both.epsilon(1e-4), one.epsilon(1e-4))
    self.assertLessEqual(
        one.epsilon(1e-4), composition.together([worst]).epsilon(1e-4)
    )

  @parameterized.product(is_swapped=(False, True), is_alone=(False, True))
  def test_the_worse_direction_counts_at_tiny_deltas(
      self, is_swapped, is_alone
  ):
    # Three answers, each 1 with chance 1/2 for one client and 1/20 for another.
    chances, count = (0.5, 0.05), 3
    sides = [_of_a_bit(*chances), _of_a_bit(*chances[::-1])]
    if is_swapped:
      sides.reverse()
    part = composition.Part(sides[0], count, sides[1])
    parts = [part] if is_alone else [
        composition.Part(sides[0], count - 1, sides[1]),
        composition.Part(sides[0], reverse=sides[1]),
    ]
    exact = [
        lambda epsilon, p=p, q=q: sum(
            math.comb(count, k)
            * max(
                0.0,
                p**k * (1 - p) ** (count - k)
                - math.exp(epsilon) * q**k * (1 - q) ** (count - k),
            )
            for k in range(count + 1)
        )
        for p, q in (chances, chances[::-1])
    ]
    # All answers are 1. The other direction ends at 3 ln(0.95 / 0.5) = 1.93.
    largest = 3 * math.log(10)
    for loss in (composition.together(parts), composition.alike(part, 1e-4)):
      for delta in (1e-5, 1e-13, 1e-15):
        found = loss.epsilon(delta)
        self.assertLessEqual(max(side(found) for side in exact), delta)
        self.assertBetween(found, largest - 0.01, largest + 0.2)
      for epsilon in (5.0, largest - 1e-11, largest - 1e-13):
        true = max(side(epsilon) for side in exact)
        for found in (
            loss.delta(epsilon),
            float(loss.profile()(np.array([epsilon]))[0]),
        ):
          self.assertBetween(found, true, 1.0)
      self.assertLess(loss.delta(5.0), 1.2 * max(side(5.0) for side in exact))

  def test_errors_are_charged(self):
    loss = composition.together([made_parts.gaussian(1.0, count=30)])
    self.assertGreater(loss.error, 0.0)
    lost = composition.Loss(loss.pld, loss.error)
    self.assertEqual(lost.epsilon(0.9 * loss.error), math.inf)
    self.assertGreaterEqual(lost.delta(1000.0), loss.error)
    twice = composition.Loss(loss.pld, 2e-5)
    once = composition.Loss(loss.pld, 0.0)
    self.assertAlmostEqual(twice.epsilon(3e-5), once.epsilon(1e-5))

  def test_vacuous(self):
    everything = composition.Part(np.ones_like, count=10**9)
    nearly = composition.Part(local_profiles.approximate(1.0, 0.9), count=1000)
    for items in ([everything], [nearly], [made_parts.gaussian(1.0), nearly]):
      loss = composition.together(items, interval=1e-3)
      self.assertIsNone(loss.pld)
      self.assertEqual(loss.epsilon(0.5), math.inf)
      self.assertEqual(loss.delta(1.0), 1.0)

  @parameterized.parameters(
      (2.0, 0.0, 1000, 1e-12),
      (2.0, 0.0, 1000, 1e-30),
      (40.0, 0.0, 10, 1e-12),
      (2.0, 1e-16, 1000, 1.1e-13),
      (0.001, 1e-20, 100_000, 1e-14),
  )
  def test_finite_where_basic_composition_is(
      self, epsilon, delta0, count, delta
  ):
    profile = local_profiles.approximate(epsilon, delta0)
    for items in (
        [composition.Part(profile, count)],
        [composition.Part(profile, count - 1), composition.Part(profile)],
        [composition.Part(profile, count), made_parts.gaussian(1e9)],
    ):
      found = composition.epsilon(items, delta)
      self.assertLessEqual(found, epsilon * count * (1 + 1e-6))

  def test_nothing(self):
    self.assertEqual(composition.epsilon([], 1e-5), 0.0)
    nothing = composition.Part(
        lambda epsilons: np.zeros(np.shape(epsilons)), 100
    )
    self.assertEqual(composition.epsilon([nothing], 1e-5), 0.0)
    self.assertEqual(composition.epsilon([nothing, nothing], 1e-5), 0.0)


class ProfileOfTest(absltest.TestCase):

  def test_any_order_and_shape(self):
    pld = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, value_discretization_interval=1e-3
    )
    profile = composition.profile_of(pld)
    found = profile(np.array([[2.0, 0.0], [1.0, 3.0]]))
    for epsilon, delta in zip((2.0, 0.0, 1.0, 3.0), found.ravel()):
      exact = gaussian.exact_delta(sigma=1.0, epsilon=epsilon)
      self.assertBetween(delta, exact, exact + 1e-4)


if __name__ == '__main__':
  absltest.main()
