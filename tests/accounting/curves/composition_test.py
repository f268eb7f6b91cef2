# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what parts cost together, against closed forms."""

import dataclasses
import fractions
import math

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import privacy_loss_distribution
import numpy as np

from tests.accounting import made_parts
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles


def _of_a_bit(p: float, q: float):
  """Returns the profile of a bit that is 1 with chance p against chance q."""
  return lambda epsilons: np.maximum(
      p - np.exp(epsilons) * q, 0.0
  ) + np.maximum((1 - p) - np.exp(epsilons) * (1 - q), 0.0)


def _of_bits(p: float, q: float, count: int, epsilon: float) -> float:
  """Returns delta of `count` bits that are 1 with chance p against chance q."""
  return sum(
      math.comb(count, k)
      * max(
          0.0,
          p**k * (1 - p) ** (count - k)
          - math.exp(epsilon) * q**k * (1 - q) ** (count - k),
      )
      for k in range(count + 1)
  )


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
        lambda epsilon, p=p, q=q: _of_bits(p, q, count, epsilon)
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

  @parameterized.product(
      chances=((0.5, 0.05), (0.05, 0.5)),
      count=(1, 3),
      delta=(0.1, 1e-3, 1e-13),
  )
  def test_epsilon_of_one_part_is_that_of_the_worse_direction(
      self, chances, count, delta
  ):
    part = composition.Part(
        _of_a_bit(*chances), count, _of_a_bit(*chances[::-1])
    )
    found = composition.epsilon([part], delta)
    worst = lambda epsilon: max(
        _of_bits(*pair, count, epsilon) for pair in (chances, chances[::-1])
    )
    self.assertLessEqual(worst(found), delta)
    self.assertGreater(worst(found - 0.06), delta)

  def test_basic_composition_counts_every_event_and_the_worse_direction(self):
    # H_E of a bit is max(p - E q, 0) + ..., here solved for E.
    losing = composition.Part(
        _of_a_bit(0.05, 0.5), 2, reverse=_of_a_bit(0.5, 0.05)
    )
    pure = composition.Part(local_profiles.pure(1.0), 3)
    delta = 1e-3
    single = math.log((0.5 - delta / 5) / 0.05)
    other = math.log(math.e - delta / 5 * (1 + math.e))
    total = 2 * single + 3 * other
    # pylint: disable-next=protected-access
    found = composition._basic_epsilon([losing, pure], delta)
    self.assertBetween(found, total, total * (1 + 1e-8))

  def test_least_delta_is_of_all_events_and_the_worse_direction(self):
    nothing = privacy_profiles.nothing
    leaky = local_profiles.approximate(1.0, 1e-3)
    for sides in ((nothing, leaky), (leaky, nothing)):
      part = composition.Part(sides[0], 5, sides[1])
      self.assertAlmostEqual(part.least_delta, 1 - 0.999**5, places=12)

  @parameterized.parameters((1.0, 1), (0.7, 3), (1e-3, 10**6), (3.3, 7))
  def test_gaussians_in_one_have_no_more_noise_than_exactly(self, sigma, count):
    found = composition.one_gaussian(sigma, count)
    squared = fractions.Fraction(found.sigma) ** 2 * count
    exact = fractions.Fraction(sigma) ** 2
    self.assertLess(squared, exact)
    self.assertGreater(squared, exact * (1 - fractions.Fraction(1, 10**14)))
    self.assertGreaterEqual(
        float(found.profile(np.ones(1))[0]),
        gaussian.exact_delta(sigma=sigma / math.sqrt(count), epsilon=1.0),
    )

  def test_errors_of_all_parts_add_up(self):
    many = made_parts.gaussian(1.0, count=30)
    few = composition.Part(local_profiles.pure(0.1))
    alone = [composition.together([one]).error for one in (many, few)]
    for parts in ((many, few), (few, many)):
      self.assertAlmostEqual(
          composition.together(parts).error / sum(alone), 1.0, delta=0.5
      )
      self.assertGreater(composition.together(parts).error, max(alone))
    charged = composition.Loss(
        composition.together([few], interval=1e-3).pld, 0.01
    )
    free = dataclasses.replace(charged, error=0.0)
    epsilons = np.array([0.0, 0.05, 9.0])
    np.testing.assert_allclose(
        charged.profile()(epsilons), free.profile()(epsilons) + 0.01
    )

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
      (0.001, 1e-20, 10_000, 1e-14),
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


class LeastTest(absltest.TestCase):

  def test_each_direction_by_itself(self):
    epsilons = np.array([0.0, 0.3, 1.0, 2.0])
    small, large = local_profiles.pure(0.5), local_profiles.pure(2.0)
    both = composition.Part(small, 3)
    apart = composition.Part(large, 3, large)
    # The first part bounds both directions, the second bounds each.
    for found in (
        composition.least([both, apart]), composition.least([apart, both])
    ):
      self.assertEqual(found.count, 3)
      np.testing.assert_array_equal(found.profile(epsilons), small(epsilons))
      np.testing.assert_array_equal(found.reverse(epsilons), small(epsilons))
    lopsided = composition.Part(small, 3, large)
    found = composition.least([lopsided, composition.Part(large, 3)])
    np.testing.assert_array_equal(found.profile(epsilons), small(epsilons))
    np.testing.assert_array_equal(found.reverse(epsilons), large(epsilons))

  def test_one_event_is_not_taken_for_all(self):
    epsilons = np.array([0.0, 0.2, 0.8, 1.5, 2.5])
    keep = 1 / (1 + math.exp(-1.0))
    events = composition.Part(local_profiles.pure(1.0), 3)
    lopsided = composition.Part(
        _of_a_bit(0.05, 0.5), 3, _of_a_bit(0.5, 0.05)
    )
    for part, chances in (
        (events, (keep, 1 - keep)), (lopsided, (0.5, 0.05))
    ):
      for whole in (privacy_profiles.everything, local_profiles.pure(9.0)):
        found = composition.least([part, composition.Part(whole)])
        self.assertEqual(found.count, 1)
        for epsilon, delta in zip(epsilons, found.profile(epsilons)):
          exact = _of_bits(*chances, 3, epsilon)
          self.assertBetween(delta, exact, 1.1 * exact + 0.01)


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
