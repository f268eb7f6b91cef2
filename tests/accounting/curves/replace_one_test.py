# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for replace-one by way of zero."""

import fractions
import math

from absl.testing import absltest
from absl.testing import parameterized
from dp_accounting.pld import privacy_loss_distribution
import numpy as np
import pytest

from tests.accounting import made_parts
from tff_dp import _compat_losses
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.systems.allocation import random_allocation

pytestmark = pytest.mark.once

_EPSILONS = np.concatenate([[0.0], np.geomspace(1e-3, 20.0, 40)])


class TwoHopsTest(parameterized.TestCase):

  @parameterized.product(sigma=(0.7, 2.0), count=(1, 4))
  def test_a_gaussian_moves_twice_as_far(self, sigma, count):
    part = replace_one.replace_one(made_parts.gaussian(sigma, count=count))
    self.assertEqual(part.count, 1)
    exact = [
        gaussian.exact_delta(sigma=sigma / math.sqrt(count) / 2, epsilon=e)
        for e in _EPSILONS
    ]
    found = part.profile(_EPSILONS)
    self.assertTrue((found >= np.array(exact) * (1 - 1e-9)).all())
    self.assertTrue((np.diff(found) <= 0).all())

  @parameterized.parameters(
      (1.0, 4.0), (4.0, 1.0), (0.8, 0.8), (math.inf, 1.0), (1.0, math.inf)
  )
  def test_no_split_gives_less(self, sigma_away, sigma_back):
    away, back = (
        np.zeros_like
        if sigma == math.inf
        else local_profiles.gaussian(2 * sigma)
        for sigma in (sigma_away, sigma_back)
    )
    found = replace_one.Hops(away, back).profile()(_EPSILONS)
    shares = np.linspace(0.0, 1.0, 1001)[:, np.newaxis]
    both = away(shares * _EPSILONS) + np.exp(shares * _EPSILONS) * back(
        (1 - shares) * _EPSILONS
    )
    least = np.minimum.accumulate(both.min(axis=0))
    self.assertTrue((found >= np.minimum(least, 1) * (1 - 1e-4)).all())
    at_one = found[np.searchsorted(_EPSILONS, 1.0)]
    self.assertLess(at_one, 1.0)

  def test_no_more_than_half_way_twice(self):
    zeroed = local_profiles.gaussian(4.0)
    found = replace_one.replace_one(composition.Part(zeroed)).profile(_EPSILONS)
    half = _EPSILONS / 2
    by_hand = zeroed(half) * (1 + np.exp(half))
    self.assertTrue((found <= np.minimum(by_hand, 1) * 1.2 + 1e-8).all())

  def test_alone_as_in_company(self):
    part = replace_one.replace_one(made_parts.gaussian(2.0))
    for epsilon in (0.0, 0.5, 600.0):
      self.assertAlmostEqual(
          float(part.profile(np.array([epsilon]))[0]),
          float(part.profile(np.array([0.0, epsilon, 700.0]))[1]),
      )
    self.assertLess(part.least_delta, 1e-6)

  def test_both_directions_count(self):
    part = made_parts.subsampled(0.1, 1.0)
    there = replace_one.replace_one(part).profile(_EPSILONS)
    for one_way in (part.profile, part.reverse):
      self.assertTrue((there >= one_way(_EPSILONS) * (1 - 1e-9)).all())

  def test_the_way_back_counts(self):
    one_way = local_profiles.gaussian(2.0)
    for part in (
        composition.Part(privacy_profiles.nothing, 1, one_way),
        composition.Part(one_way, 1, privacy_profiles.nothing),
    ):
      found = replace_one.replace_one(part).profile(_EPSILONS)
      self.assertTrue((found >= one_way(_EPSILONS)).all())

  @parameterized.parameters(
      # Each hop holds from some share of delta on, at some epsilon.
      (0.6, 0.0, 0.6, 0.0),
      (0.5, 2.0, 0.2, 0.0),
      (0.02, 4.0, 0.02, 0.0),
      (0.99, 0.0, 0.02, 0.0),
  )
  def test_no_delta_is_spent_twice(self, first, cost, second, rest):
    delta = 1e-5
    # Spent: first + exp(cost) second, as shares of delta.
    self.assertGreater(first + math.exp(cost) * second, 1.0)
    found = replace_one.epsilon_of(
        lambda d: cost if d >= first * delta else math.inf,
        lambda d: rest if d >= second * delta else math.inf,
        delta,
    )
    self.assertEqual(found, math.inf)

  def test_rounded_parts_of_delta_do_not_exceed_it(self):
    # Both hops are free from a float on, and the two floats exceed delta.
    num_tried = 0
    for delta in np.geomspace(1e-12, 0.1, 50):
      for share in (0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98):
        first, second = share * delta, (1 - share) * delta
        total = fractions.Fraction(first) + fractions.Fraction(second)
        if total <= fractions.Fraction(delta):
          continue
        num_tried += 1
        found = replace_one.epsilon_of(
            lambda d, least=first: 0.0 if d >= least else math.inf,
            lambda d, least=second: 0.0 if d >= least else math.inf,
            delta,
        )
        self.assertEqual(found, math.inf)
    self.assertGreater(num_tried, 20)

  def test_nothing_hidden(self):
    part = replace_one.replace_one(composition.Part(np.ones_like))
    self.assertTrue(part.is_vacuous)

  @parameterized.product(sigma=(2.0, 5.0), count=(1, 4))
  @pytest.mark.slow(cases=['1', '3'])
  def test_epsilon_and_profile_are_of_the_same_hops(self, sigma, count):
    hops = replace_one.Hops.of(made_parts.gaussian(sigma, count=count))
    exact = gaussian.exact_epsilon(
        sigma=sigma / math.sqrt(count) / 2, delta=1e-6
    )
    by_profile = privacy_profiles.epsilon_of(hops.profile(), 1e-6)
    self.assertBetween(hops.epsilon(1e-6), exact, 1.25 * exact)
    self.assertBetween(by_profile, hops.epsilon(1e-6) * 0.999, 1.3 * exact)

  def test_each_hop_composes_alone(self):
    hops = replace_one.Hops.of(
        composition.Part(
            made_parts.subsampled(0.1, 1.0).profile,
            3,
            made_parts.subsampled(0.1, 1.0).reverse,
        )
    )
    composed = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.1, value_discretization_interval=1e-3
    ).self_compose(3)
    there, back = _compat_losses.loss_directions(composed)
    epsilons = np.array([0.05, 0.2, 0.5, 1.0])
    for found, direction in ((hops.away, there), (hops.back, back)):
      exact = np.array(direction.get_delta_for_epsilon(list(epsilons)))
      self.assertTrue((found(epsilons) >= exact * 0.999).all())
      self.assertTrue((found(epsilons) <= exact * 1.05 + 1e-6).all())
    # They differ, so that exchanging them would show.
    self.assertGreater(hops.away(epsilons)[-1], 2 * hops.back(epsilons)[-1])

  @parameterized.product(sigma=(0.8, 1.5), epsilon=(0.5, 1.5))
  def test_two_passes_never_below_opposite_contributions(self, sigma, epsilon):
    # 1 of 2 steps with +1 against 1 of 2 with -1, twice, with new draws.
    v = np.linspace(-8 * sigma - 1, 8 * sigma + 1, 801)
    h = v[1] - v[0]
    density = lambda shift: np.exp(-0.5 * ((v - shift) / sigma) ** 2) / (
        sigma * math.sqrt(2 * math.pi)
    )
    up, zero, down = density(1), density(0), density(-1)
    plus = 0.5 * (np.outer(up, zero) + np.outer(zero, up))
    minus = 0.5 * (np.outer(down, zero) + np.outer(zero, down))
    # Losses rounded down: a lower bound on delta.
    step = 2e-3
    losses = np.floor(np.log(plus / minus) / step).astype(int).ravel()
    masses = np.bincount(losses - losses.min(), (plus * h * h).ravel())
    twice = np.convolve(masses, masses)
    values = (2 * losses.min() + np.arange(len(twice))) * step
    above = values > epsilon
    exact = float(twice[above] @ -np.expm1(epsilon - values[above]))
    found = random_allocation.epsilon(
        noise_multiplier=sigma,
        num_steps=2,
        num_epochs=2,
        delta=exact * (1 - 1e-3),
        neighboring_relation='replace_one',
    )
    self.assertGreater(found, epsilon * (1 - 1e-2))

  def test_passes_cost_no_more_than_what_composes_with_others(self):
    settings = dict(
        noise_multiplier=1.0,
        num_steps=50,
        num_epochs=3,
        delta=1e-6,
        neighboring_relation='replace_one',
    )
    found = random_allocation.epsilon(**settings)
    remove, add = random_allocation.profiles(noise_multiplier=1.0, num_steps=50)
    part = replace_one.replace_one(composition.Part(remove, 3, add))
    self.assertLess(found, composition.epsilon([part], 1e-6))
    # 4.02 with the worse of both directions in every pass.
    self.assertLess(found, 3.3)


if __name__ == '__main__':
  absltest.main()
