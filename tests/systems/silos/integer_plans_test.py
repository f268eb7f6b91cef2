# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of integer noise, and the plans that use them, by brute force."""

import fractions
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import integer_sums

_SHAPE = dict(grid=8, records_per_silo=5, min_silos=4)
_BUDGET = dict(epsilon=2.0, delta=1e-5)


def _weights(table):
  return np.diff(table.cumulative, prepend=0)


class TableTest(parameterized.TestCase):

  @parameterized.parameters((1, 0.5), (9, 0.25), (40, 0.03125), (200, 0.5))
  def test_binomial_weights_are_exact_to_the_stated_distance(self, n, prob):
    law = integer_noise.binomial(n, prob)
    self.assertFalse(law.probs.flags.writeable)
    table = integer_noise.table(law, mean=n * prob)
    stated = integer_noise.distance(law)
    p = fractions.Fraction(prob)
    weights = dict(enumerate(_weights(table).tolist(), table.lower))
    distance = sum(
        abs(
            fractions.Fraction(weights.get(k, 0), 1 << 62)
            - math.comb(n, k) * p**k * (1 - p) ** (n - k)
        )
        for k in range(n + 1)
    ) / 2
    # Probabilities in double precision, and the table itself.
    self.assertLessEqual(float(distance), stated + 1e-13)
    self.assertLess(stated, 1e-15)
    self.assertEqual(int(table.cumulative[-1]), 1 << 62)
    self.assertGreaterEqual(table.lower, 0)
    self.assertLessEqual(table.upper, n)

  @parameterized.parameters(0.5, 1.3, 7.0)
  def test_discrete_gaussian_weights_are_exact(self, stddev):
    law = integer_noise.discrete_gaussian(stddev)
    table = integer_noise.table(law, mean=0.0)
    values = np.arange(table.lower, table.upper + 1)
    exact = np.exp(-np.float64(values) ** 2 / (2 * stddev**2))
    exact /= math.fsum(exact)
    distance = np.abs(np.ldexp(_weights(table).astype(float), -62) - exact)
    self.assertLess(distance.sum() / 2, integer_noise.distance(law) + 1e-14)
    self.assertAlmostEqual(law.variance, float(exact @ values**2.0))
    self.assertLessEqual(law.variance, stddev**2 * (1 + 1e-12))
    # What is left out of the law's own table, against its first terms.
    beyond = np.arange(-law.lower + 1, -law.lower + 400)
    left = 2 * np.exp(-np.float64(beyond) ** 2 / (2 * stddev**2)).sum()
    self.assertLessEqual(left, law.outside * (1 + 1e-9) + 1e-300)

  @parameterized.parameters(*integer_plans.NOISES)
  def test_epsilon_counts_the_distance(self, noise):
    shape = dict(grid=16, records_per_silo=20, min_silos=10)
    plan = integer_plans.calibrate(
        noise, epsilon=1.0, delta=1e-6, dimension=100, **shape
    )
    rounds = 10**5
    law = lambda delta: 1.0 - math.log10(delta / 1e-6)
    distance = plan.distance(dimension=100, num_rounds=rounds)
    table = integer_noise.distance(plan.share_law)
    self.assertAlmostEqual(distance / (10 * 100 * rounds * table), 1.0)
    distance = 1e-8
    found = integer_plans.counted(law, 1e-6, distance)
    self.assertGreater(found, 1.0)
    # The delta that is left for the distributions at this epsilon is enough.
    left = 1e-6 - (1 + math.exp(found)) * distance
    self.assertLessEqual(law(left), found * (1 + 1e-5))
    # What does not fit into delta has no epsilon.
    self.assertEqual(integer_plans.counted(law, 1e-6, 1e-6), math.inf)
    # Nothing to count, nothing changes.
    self.assertEqual(integer_plans.counted(law, 1e-6, 0.0), 1.0)

  @parameterized.product(noise=integer_plans.NOISES, num_rounds=(1, 7))
  def test_epsilon_of_a_plan_is_that_of_its_draws(self, noise, num_rounds):
    run = dict(dimension=100, num_rounds=num_rounds)
    plan = integer_plans.calibrate(
        noise, epsilon=1.0, delta=1e-6, dimension=100, grid=16,
        records_per_silo=20, min_silos=10,
    )
    event = plan.dp_event(dimension=100)
    exact = functools.partial(
        integer_sums.epsilon, event, num_rounds=num_rounds
    )
    found = plan.epsilon(1e-6, **run)
    self.assertGreater(found, exact(1e-6))
    # One draw for each coordinate of each share in each sum.
    tiny = 10 * 100 * num_rounds * integer_noise.distance(plan.share_law)
    missed = (1 + math.exp(found)) * tiny
    self.assertAlmostEqual(found, exact(1e-6 - missed), places=9)
    # Where the tables miss as much as delta, nothing is claimed.
    self.assertEqual(plan.epsilon(tiny * (1 - 1e-9), **run), math.inf)

  def test_all_weights_are_positive_at_the_ends(self):
    for law in (integer_noise.skellam(12.5), integer_noise.binomial(900, 0.5)):
      weights = _weights(integer_noise.table(law, mean=0.0))
      self.assertGreater(weights[0], 0)
      self.assertGreater(weights[-1], 0)
      self.assertTrue(np.all(weights >= 0))

  def test_a_law_too_wide_is_refused(self):
    law = integer_noise.discrete_gaussian(1e5)
    with self.assertRaisesRegex(_checks.ArgumentError, 'coarser grid'):
      integer_noise.table(law, mean=0.0)


class PlanTest(parameterized.TestCase):

  @parameterized.product(noise=integer_plans.NOISES, dimension=(1, 6))
  def test_calibrated_within_the_budget_and_no_wider_than_needed(
      self, noise, dimension
  ):
    plan = integer_plans.calibrate(
        noise, dimension=dimension, **_SHAPE, **_BUDGET
    )
    spent = plan.epsilon(1e-5, dimension=dimension)
    self.assertLessEqual(spent, 2.0)
    self.assertGreater(spent, 1.9)
    # Close to Gaussian noise for the same distance, and not below it.
    distance = integer_noise.rounded_l2_distance(8, dimension=dimension)
    exact = distance * gaussian.sigma_for(**_BUDGET)
    stddev = math.sqrt(4 * plan.share_variance)
    self.assertBetween(stddev, 0.99 * exact, 1.2 * exact)

  def test_a_large_budget_is_met_with_more_noise(self):
    # Here e^epsilon times what the tables of the draws miss exceeds delta.
    plan = integer_plans.calibrate(
        'skellam', epsilon=16.0, delta=1e-8, dimension=12, grid=128,
        records_per_silo=1, min_silos=5,
    )
    self.assertLessEqual(plan.epsilon(1e-8, dimension=12), 16.0)
    smaller = integer_plans.calibrate(
        'skellam', epsilon=8.0, delta=1e-8, dimension=12, grid=128,
        records_per_silo=1, min_silos=5,
    )
    self.assertLess(plan.variance, smaller.variance)

  @parameterized.parameters(*integer_plans.NOISES)
  def test_sum_of_shares_hides_a_record_by_brute_force(self, noise):
    # The law that is drawn from, silo by silo, in one dimension.
    delta = 1e-3
    plan = integer_plans.calibrate(
        noise, epsilon=1.0, delta=delta, dimension=1, grid=3,
        records_per_silo=2, min_silos=3,
    )
    share = np.ldexp(_weights(plan.share_table()).astype(float), -62)

    def attained(num_silos, epsilon):
      total = np.ones(1)
      for _ in range(num_silos):
        total = np.convolve(total, share)
      here, there = np.pad(total, 3), np.roll(np.pad(total, 3), 3)
      return max(
          np.maximum(p - math.exp(epsilon) * q, 0).sum()
          for p, q in ((here, there), (there, here))
      )

    self.assertLessEqual(attained(3, 1.0), delta * (1 + 1e-9))
    self.assertGreater(attained(3, 1.0), delta / 5)
    # One silo fewer than promised does not hide it.
    self.assertGreater(attained(2, 1.0), delta)
    alone = plan.silo_epsilon(delta, dimension=1)
    self.assertGreater(alone, 1.5)
    self.assertLessEqual(attained(1, alone), delta * (1 + 1e-9))
    # The same record in two sums.
    here, there = np.pad(share, 3), np.roll(np.pad(share, 3), 3)
    twice = plan.silo_epsilon(delta, dimension=1, num_rounds=2)
    shown = np.outer(here, here) - math.exp(twice) * np.outer(there, there)
    self.assertLessEqual(np.maximum(shown, 0).sum(), delta * (1 + 1e-9))

  @parameterized.parameters((3, 0.1), (7, 1.1), (49, 1e5 / 3), (5, 0.7))
  def test_no_more_variance_is_claimed_than_silos_add(self, silos, variance):
    plan = integer_plans.SkellamPlan(
        grid=8, records_per_silo=1, min_silos=silos, variance=variance
    )
    claimed = fractions.Fraction(plan.dp_event(dimension=1).variance)
    added = silos * fractions.Fraction(variance)
    self.assertLessEqual(claimed, added)
    self.assertGreater(claimed, added * (1 - fractions.Fraction(1, 10**14)))

  @parameterized.parameters(*integer_plans.NOISES)
  def test_messages_and_sums_fit_their_range(self, noise):
    plan = integer_plans.calibrate(noise, dimension=1, **_SHAPE, **_BUDGET)
    table = plan.share_table()
    self.assertEqual(
        plan.largest_message, 5 * 8 + table.upper - table.lower
    )
    for count in (1, 4, 9):
      largest = count * plan.largest_message
      self.assertBetween(largest, 2 ** (plan.bits(count) - 1),
                         2 ** plan.bits(count) - 1)

  @parameterized.parameters(*integer_plans.NOISES)
  def test_variance_is_that_of_the_table(self, noise):
    plan = integer_plans.calibrate(noise, dimension=1, **_SHAPE, **_BUDGET)
    table = plan.share_table()
    values = np.arange(table.lower, table.upper + 1)
    share = np.ldexp(_weights(table).astype(float), -62)
    self.assertAlmostEqual(float(share @ values), table.mean, places=6)
    variance = float(share @ (values - table.mean) ** 2)
    np.testing.assert_allclose(variance, plan.share_variance, rtol=1e-9)
    # Three silos of five records: the mean of 15, in steps of 2 C / 8.
    np.testing.assert_allclose(
        plan.noise_variance(2.0, num_silos=3), 0.5**2 * 3 * variance / 15**2
    )

  def test_binomial_plan_is_the_sum_record_by_record(self):
    plan = integer_plans.BinomialPlan(trials=7, probability=0.25, **_SHAPE)
    table = plan.share_table()
    share = np.ldexp(_weights(table).astype(float), -62)
    np.testing.assert_allclose(
        share, stats.binom.pmf(np.arange(len(share)), 35, 0.25), atol=1e-12
    )

  @parameterized.parameters(
      (integer_plans.SkellamPlan, dict(variance=0.0), 'variance=0.0'),
      (integer_plans.SkellamPlan, dict(variance=1.0, grid=0), 'grid=0'),
      (integer_plans.DiscreteGaussianPlan, dict(stddev=-1.0), 'stddev=-1.0'),
      (integer_plans.BinomialPlan, dict(trials=0), 'trials=0'),
      (
          integer_plans.BinomialPlan,
          dict(trials=3, probability=0.75),
          'probability=0.75',
      ),
      (
          integer_plans.SkellamPlan,
          dict(variance=1.0, min_silos=0),
          'min_silos=0',
      ),
      (
          integer_plans.SkellamPlan,
          dict(variance=1.0, records_per_silo=0),
          'records_per_silo=0',
      ),
  )
  def test_construction_errors(self, kind, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      kind(**(_SHAPE | changes))

  def test_unknown_noise_and_a_budget_of_zero(self):
    arguments = dict(dimension=1, **_SHAPE, **_BUDGET)
    with self.assertRaisesRegex(_checks.ArgumentError, "noise='laplace'"):
      integer_plans.calibrate('laplace', **arguments)
    for noise in integer_plans.NOISES:
      with self.assertRaisesRegex(_checks.ArgumentError, 'epsilon=0'):
        integer_plans.calibrate(noise, **(arguments | dict(epsilon=0)))


if __name__ == '__main__':
  absltest.main()
