# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for private sums of integers, against exact sums on small cases."""

import dataclasses
import fractions
import itertools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import special
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import integer_sums
from tff_dp.systems.silos import record_events
from tff_dp.systems.silos import silo_terms

_Binomial = record_events.BinomialSumDpEvent
_ODDS = (1.0, 1.1, 2.0, 5.0, 50.0)


def _binomial(trials, probability):
  """Returns exact probabilities of Binomial(trials, probability)."""
  p = fractions.Fraction(probability)
  return [
      math.comb(trials, k) * p**k * (1 - p) ** (trials - k)
      for k in range(trials + 1)
  ]


def _convolved(laws):
  total = [fractions.Fraction(1)]
  for law in laws:
    longer = [fractions.Fraction(0)] * (len(total) + len(law) - 1)
    for i, one in enumerate(total):
      for j, other in enumerate(law):
        longer[i + j] += one * other
    total = longer
  return total


def _hockey_stick(p, q, odds):
  length = max(len(p), len(q))
  p = list(p) + [0] * (length - len(p))
  q = list(q) + [0] * (length - len(q))
  return float(sum(max(a - fractions.Fraction(odds) * b, 0)
                   for a, b in zip(p, q)))


def _worse(law, shift, odds):
  moved = [0] * shift + list(law)
  return max(_hockey_stick(law, moved, odds), _hockey_stick(moved, law, odds))


def _rounded(record, grid):
  """Returns the law of a number in [-1, 1], rounded to the grid."""
  position = fractions.Fraction(record + 1) * grid / 2
  floor = math.floor(position)
  law = [fractions.Fraction(0)] * (grid + 2)
  law[floor], law[floor + 1] = 1 - (position - floor), position - floor
  return law[: grid + 1]


def _delta(law, *, shift, epsilon):
  profile = integer_noise.profile(law, shift=shift)
  return float(profile(np.array([epsilon]))[0])


class NoiseLawsTest(parameterized.TestCase):

  @parameterized.product(
      trials=(1, 6, 25), probability=(0.5, 0.25, 0.03125), shift=(0, 1, 3, 9)
  )
  def test_binomial_hockey_stick_is_exact(self, trials, probability, shift):
    exact = _binomial(trials, probability)
    law = integer_noise.binomial(trials, probability)
    for odds in _ODDS:
      found = _delta(law, shift=shift, epsilon=math.log(odds))
      expected = _worse(exact, shift, math.exp(math.log(odds)))
      self.assertBetween(found, expected, expected + 1e-8)

  @parameterized.parameters(0.3, 2.0, 40.0, 3000.0)
  def test_skellam_is_a_difference_of_poissons(self, variance):
    law = integer_noise.skellam(variance)
    mean = variance / 2
    counts = np.arange(0, int(mean + 20 * math.sqrt(mean) + 60))
    one = stats.poisson.pmf(counts, mean)
    expected = np.convolve(one, one[::-1])
    values = np.arange(len(expected)) - (len(one) - 1)
    inside = np.abs(values) <= -law.lower
    np.testing.assert_allclose(
        law.probs[values[inside] - law.lower], expected[inside], rtol=1e-8,
        atol=1e-18,
    )
    self.assertAlmostEqual(float(law.probs.sum()), 1.0)
    self.assertLess(law.outside, 1e-15)

  def test_cached_arrays_cannot_be_changed(self):
    law = integer_noise.binomial(9, 0.5)
    event = record_events.SkellamSumDpEvent(
        dimension=3, grid=4, variance=50.0
    )
    for array in (
        law.probs,
        integer_noise.table(law, mean=4.5).cumulative,
        *integer_sums.renyi_divergences(event)[:2],
        *silo_terms.phase_table((mock.Mock(num_rounds=2),)),
    ):
      with self.assertRaisesRegex(ValueError, 'read-only'):
        array[0] = 1

  def test_largest_skellam(self):
    law = integer_noise.skellam(1e9)
    normal = stats.norm.pdf(np.arange(-3, 4) * 1e4, scale=math.sqrt(1e9))
    np.testing.assert_allclose(
        law.probs[-law.lower - 30_000 : -law.lower + 30_001 : 10_000], normal,
        rtol=1e-7,
    )
    # SciPy's Bessel function ends at 2^30.
    with self.assertRaisesRegex(ValueError, 'variance=1000000001.*at most 1e'):
      integer_noise.skellam(1_000_000_001)

  @parameterized.parameters(0.5, 8.0)
  def test_skellam_hockey_stick(self, variance):
    law = integer_noise.skellam(variance)
    probs = law.probs
    for shift, odds in itertools.product((1, 4), _ODDS):
      moved = np.concatenate([np.zeros(shift), probs])
      expected = np.maximum(np.append(probs, np.zeros(shift)) - odds * moved, 0)
      found = _delta(law, shift=shift, epsilon=math.log(odds))
      total = expected.sum()
      self.assertBetween(found, total * (1 - 1e-9), total + 1e-7)

  def test_grows_with_the_shift(self):
    for law in (integer_noise.binomial(60, 0.25), integer_noise.skellam(9.0)):
      for odds in _ODDS:
        found = [
            _delta(law, shift=s, epsilon=math.log(odds)) for s in range(12)
        ]
        self.assertTrue(np.all(np.diff(found) >= -1e-7))

  def test_a_shift_beyond_the_table_hides_nothing(self):
    law = integer_noise.binomial(10, 0.5)
    self.assertEqual(_delta(law, shift=11, epsilon=20.0), 1.0)

  @parameterized.product(
      shift=(1, 3), order=(1.5, 4.0, 20.0), probability=(0.5, 0.1, 0.9)
  )
  def test_renyi_divergence(self, shift, order, probability):
    law = integer_noise.binomial(400, probability)
    # Inside of the table; far out, divergences of high order explode.
    values = law.lower + np.arange(len(law.probs))
    log = stats.binom.logpmf(values, 400, probability)
    inside = [
        special.logsumexp(order * one + (1 - order) * other)
        / (order - 1) / s**2
        for s in range(1, shift + 1)
        for one, other in ((log[s:], log[:-s]), (log[:-s], log[s:]))
    ]
    found, left_out = integer_noise.renyi_per_square(
        law, largest_shift=shift, orders=[order]
    )
    self.assertAlmostEqual(found[0], max(inside), places=6)
    self.assertLess(left_out, 1e-12)
    gaussian_limit = order / 2 / (400 * probability * (1 - probability))
    self.assertGreater(found[0], 0.99 * gaussian_limit)

  def test_gaussian_limit(self):
    law = integer_noise.skellam(1e6)
    found = _delta(law, shift=1000, epsilon=1.0)
    expected = gaussian.exact_delta(sigma=1.0, epsilon=1.0)
    self.assertAlmostEqual(found, expected, delta=1e-3)


class BinomialSumTest(parameterized.TestCase):

  @parameterized.product(
      grid=(1, 2, 3), trials=(2, 5), probability=(0.5, 0.25), m=(2, 3)
  )
  def test_the_whole_mechanism_on_a_few_records(
      self, grid, trials, probability, m
  ):
    event = _Binomial(grid, trials, m, 1, probability)
    noise = _binomial(m * trials, probability)
    worst = dict.fromkeys(_ODDS, 0.0)
    choices = (-1, -0.3, 0.5, 1)
    for old, new in itertools.permutations(choices, 2):
      for others in itertools.combinations_with_replacement((-1, 0.2), m - 1):
        rest = [_rounded(other, grid) for other in others]
        p = _convolved([noise, *rest, _rounded(old, grid)])
        q = _convolved([noise, *rest, _rounded(new, grid)])
        for odds in _ODDS:
          worst[odds] = max(worst[odds], _hockey_stick(p, q, odds))
    profile = integer_sums.part(event, 1).profile
    for odds in _ODDS:
      bound = float(profile(np.array([math.log(odds)]))[0])
      self.assertLessEqual(worst[odds], bound + 1e-12)
      # Others at -1 leave nothing but the noise: the bound is attained.
      self.assertGreater(worst[odds], bound - 1e-7)

  @parameterized.parameters((1, 1), (1, 5), (20, 1))
  def test_calibrated_flips_fit_and_one_fewer_does_not(
      self, dimension, num_rounds
  ):
    run = dict(dimension=dimension, num_rounds=num_rounds)
    found = integer_plans.calibrate(
        'binomial', grid=16, records_per_silo=10, min_silos=5, epsilon=2.0,
        delta=1e-6, **run
    )
    self.assertLessEqual(found.epsilon(1e-6, **run), 2.0)
    fewer = dataclasses.replace(found, trials=found.trials - 1)
    self.assertGreater(fewer.epsilon(1e-6, **run), 2.0)

  def test_numbers_cost_about_what_gaussian_noise_costs(self):
    found = integer_plans.calibrate(
        'binomial', grid=64, records_per_silo=100, min_silos=10, epsilon=1.0,
        delta=1e-6, dimension=1,
    )
    stddev = math.sqrt(found.trials * 1000 / 4)
    exact = 64 * gaussian.sigma_for(epsilon=1.0, delta=1e-6)
    self.assertBetween(stddev, 0.99 * exact, 1.01 * exact)

  def test_half_the_shift_would_be_caught(self):
    # What forgetting that a record moves from -C to C would promise.
    exact = _binomial(200, 0.5)
    epsilon = integer_sums.epsilon(_Binomial(8, 10, 20, 1), 1e-4)
    self.assertLessEqual(_worse(exact, 8, math.exp(epsilon)), 1e-4)
    half = integer_sums.epsilon(_Binomial(4, 10, 20, 1), 1e-4)
    self.assertGreater(_worse(exact, 8, math.exp(half)), 2e-4)

  def test_two_dimensions_by_brute_force(self):
    grid, trials, m, delta = 4, 40, 10, 1e-3
    epsilon = integer_sums.epsilon(_Binomial(grid, trials, m, 2), delta)
    f = stats.binom.pmf(np.arange(m * trials + 1), m * trials, 0.5)
    largest = 0.0
    for s in itertools.product(range(-grid, grid + 1), repeat=2):
      if math.hypot(*s) > grid + math.sqrt(2):
        continue
      here, there = [], []
      for move in s:
        pad = grid
        here.append(np.pad(f, pad))
        there.append(np.roll(np.pad(f, pad), move))
      p, q = np.outer(*here), np.outer(*there)
      largest = max(largest, np.maximum(p - math.exp(epsilon) * q, 0).sum())
    self.assertLessEqual(largest, delta)
    self.assertGreater(largest, delta / 50)

  def test_fewer_silos_and_more_dimensions_cost_more(self):
    plan = integer_plans.BinomialPlan(
        grid=16, trials=20, records_per_silo=100, min_silos=10
    )
    costs = [plan.epsilon(1e-6, dimension=d) for d in (1, 2, 10, 100)]
    self.assertEqual(costs, sorted(costs))
    whole = costs[0]
    self.assertGreater(plan.silo_epsilon(1e-6, dimension=1), 2 * whole)
    self.assertGreater(
        plan.epsilon(1e-6, dimension=1, num_rounds=4), 1.5 * whole
    )

  def test_a_grid_too_fine_for_vectors(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'grid=257'):
      integer_sums.epsilon(_Binomial(257, 100, 100, 2), 1e-6)


class RoundsTest(parameterized.TestCase):

  @parameterized.parameters(
      (_Binomial(2, 15, 4, 2), stats.binom(60, 0.5).pmf(np.arange(61))),
      (
          record_events.SkellamSumDpEvent(2, 14.0, 2),
          stats.skellam(7.0, 7.0).pmf(np.arange(-40, 41)),
      ),
      (
          # Shares this wide add up like normal numbers.
          record_events.DiscreteGaussianSumDpEvent(2, 1.6, 5, 2),
          np.exp(-np.arange(-40, 41) ** 2 / (2 * 5 * 1.6**2)) / (
              1.6 * math.sqrt(10 * math.pi)
          ),
      ),
  )
  def test_vectors_in_several_sums_cost_what_they_show(self, event, law):
    # Both coordinates move by 2 in each of three sums. Losses are rounded down.
    delta, step, moves = 1e-3, 1e-3, 6
    here, there = law[2:], law[:-2]
    losses = np.floor(np.log(here / there) / step).astype(int)
    base = np.bincount(losses - losses.min(), here)
    total = np.ones(1)
    for _ in range(moves):
      total = np.convolve(total, base)
    values = (moves * losses.min() + np.arange(len(total))) * step
    never = 1 - (1 - law[:2].sum()) ** moves
    attained = lambda epsilon: never + float(
        total @ -np.expm1(np.minimum(epsilon - values, 0.0))
    )
    found = integer_sums.epsilon(event, delta, num_rounds=3)
    self.assertLessEqual(attained(found), delta)
    # They move by up to 2 + sqrt(2), not by 2 sqrt(2).
    self.assertGreater(attained(0.55 * found), delta)
    part = integer_sums.part(event, 3)
    self.assertEqual(part.count, 1)
    for epsilon in (0.5, 1.0, found):
      self.assertGreaterEqual(
          float(part.profile(np.array([epsilon]))[0]), attained(epsilon)
      )

  def test_what_leaves_the_window_is_charged_in_every_sum(self):
    event = _Binomial(2, 15, 4, 2)
    orders = np.array([2.0, 5.0])
    known = np.array([0.1, 0.3]), orders, 1e-4
    with mock.patch.object(
        integer_sums, 'renyi_divergences', return_value=known
    ):
      for spent in (1e-4, 2.9e-4):
        self.assertEqual(
            integer_sums.epsilon(event, spent, num_rounds=3), math.inf
        )
      self.assertLess(
          integer_sums.epsilon(event, 3.1e-4, num_rounds=3), math.inf
      )
      rest = integer_sums.part(event, 3).profile(np.array([500.0]))
    self.assertBetween(float(rest[0]), 3e-4, 3.0001e-4)


class AlternativesTest(parameterized.TestCase):

  @parameterized.product(
      variance=(4.0, 50.0), shift=(1, 3), order=(2, 5, 20)
  )
  def test_skellam_bound_is_above_the_divergence(self, variance, shift, order):
    law = integer_noise.skellam(variance)
    f = law.probs[law.probs > 1e-250]
    exact = math.log(math.fsum(
        f[shift:] * (f[shift:] / f[:-shift]) ** (order - 1)
    )) / (order - 1)
    bound = integer_sums.skellam_divergence(
        order=order, l1_distance=shift, l2_distance=shift, variance=variance
    )
    self.assertGreaterEqual(bound, exact * (1 - 1e-9))
    if variance == 50.0 and order < 20:
      self.assertLess(bound, exact * 1.1)

  def test_discrete_gaussian_shares_by_brute_force(self):
    stddev, shares, grid, delta = 0.8, 4, 3, 1e-4
    values = np.arange(-30, 31)
    one = np.exp(-values**2 / (2 * stddev**2))
    one /= one.sum()
    total = one
    for _ in range(shares - 1):
      total = np.convolve(total, one)
    event = record_events.DiscreteGaussianSumDpEvent(grid, stddev, shares, 1)
    epsilon = integer_sums.epsilon(event, delta)
    here, there = np.pad(total, grid), np.roll(np.pad(total, grid), grid)
    attained = np.maximum(here - math.exp(epsilon) * there, 0).sum()
    self.assertLessEqual(attained, delta)
    self.assertGreater(attained, delta / 100)

  @parameterized.parameters(1, 10, 1000)
  @pytest.mark.slow(cases=['2'])
  def test_all_noises_are_alike_on_a_fine_grid(self, dimension):
    binomial, skellam, shares = (
        integer_plans.calibrate(
            noise, epsilon=1.0, delta=1e-6, grid=32, dimension=dimension,
            records_per_silo=50, min_silos=10,
        )
        for noise in integer_plans.NOISES
    )
    distance = 32.0
    if dimension > 1:
      distance = integer_noise.rounded_l2_distance(32, dimension=dimension)
    exact = distance * gaussian.sigma_for(epsilon=1.0, delta=1e-6)
    for found in (
        math.sqrt(binomial.trials * 500 / 4),
        math.sqrt(skellam.variance * 10),
        shares.stddev * math.sqrt(10),
    ):
      self.assertBetween(found, 0.999 * exact, 1.12 * exact)
    spent = skellam.epsilon(1e-6, dimension=dimension)
    self.assertBetween(spent, 0.999, 1.0)

  def test_narrow_shares_pay_for_not_adding_up(self):
    def rho(stddev, shares):
      return integer_sums.discrete_gaussian_concentration(
          local_stddev=stddev, num_shares=shares, l1_distance=10,
          l2_distance=10, dimension=50,
      )

    self.assertAlmostEqual(rho(4.0, 100), 0.5 * 100 / (100 * 16), places=9)
    self.assertGreater(rho(0.5, 100), 1.05 * 0.5 * 100 / (100 * 0.25))

  def test_distances_of_rounded_vectors(self):
    self.assertEqual(integer_noise.rounded_l2_distance(5, dimension=1), 5)
    self.assertEqual(integer_noise.rounded_l2_distance(5, dimension=16), 9)
    self.assertEqual(integer_noise.rounded_l1_distance(9, dimension=16), 36)
    self.assertEqual(integer_noise.rounded_l1_distance(2, dimension=16), 4)
    # No two vectors are further apart after rounding with the same coins.
    generator = np.random.default_rng(0)
    for _ in range(200):
      x, y = generator.normal(size=(2, 6)) * 2
      y = x + (y - x) / np.linalg.norm(y - x) * 3
      coins = generator.random(6)
      gap = np.ceil(x - coins) - np.ceil(y - coins)
      bound = integer_noise.rounded_l2_distance(3, dimension=6)
      self.assertLessEqual(np.linalg.norm(gap), bound + 1e-9)


if __name__ == '__main__':
  absltest.main()
