# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for spam_filters."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats

from tff_dp import _checks
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import strategies

_STEP = client_steps.ClientStep(
    learning_rate=0.01, epsilon=2.0, privacy_unit='coordinate'
)


def _played(rng, k, p, num_rounds, spam, step):
  """Plays a filtered pool, one honest client at a time; returns rejections.

  Their gradients are 0.
  """
  scale = step.noise_scale(p)
  spread = strategies.stationary_variance(
      k, noise_variance=step.noise_variance(p)
  )
  pool = math.sqrt(spread) * rng.standard_normal((k, p))
  rejected = 0
  for _ in range(num_rounds):
    noise = scale * rng.laplace(size=p)
    new = pool[rng.integers(k)] + noise
    rejected += not spam.accepts(pool, new)
    # Stationarity of the pool is that of one that nothing is kept out of.
    pool[rng.integers(k)] = new
  return rejected


class CalibrationTest(parameterized.TestCase):

  @parameterized.product(rule=spam_filters.RULES, p=(1, 33, 1000))
  @pytest.mark.slow(cases=['2', '5'])
  def test_honest_rejections_match_the_target(self, rule, p):
    spam = spam_filters.calibrate_spam_filter(
        _STEP, p, num_instances=6, rule=rule, target_rate=0.1,
        num_samples=1500, allows_full_step=False,
    )
    error = math.sqrt(0.1 * 0.9 / 1500)
    self.assertLess(spam.false_rejection_rate, 0.1 + 7 * error)
    if rule != 'fraction':
      # Shares of one weight or of 33 come in steps.
      self.assertGreater(spam.false_rejection_rate, 0.1 - 7 * error)
    # Against a pool that is played forward; 18 updates are a time constant.
    rng = np.random.default_rng([2, p])
    rounds = 4000
    rejected = _played(rng, 6, p, rounds, spam, _STEP)
    self.assertAlmostEqual(
        rejected / rounds, spam.false_rejection_rate, delta=0.06
    )

  @pytest.mark.slow
  def test_as_many_weights_as_an_image_model_has(self):
    spam = spam_filters.calibrate_spam_filter(
        _STEP, 7850, num_instances=6, target_rate=0.1, num_samples=250,
        allows_full_step=False,
    )
    rejected = _played(np.random.default_rng(6), 6, 7850, 400, spam, _STEP)
    self.assertAlmostEqual(rejected / 400, 0.1, delta=0.09)

  @parameterized.parameters(
      # Of the tables of Clopper and Pearson's interval, one-sided 95 %.
      (0, 20, 0.1391), (2, 20, 0.2826), (20, 20, 1.0),
  )
  def test_upper_bound_on_the_rate(self, count, size, wanted):
    bound = spam_filters._rate_at_most(count, size, 0.95)
    self.assertAlmostEqual(bound, wanted, places=4)
    # What it means: at that rate so few are seen in one case of 20.
    if count < size:
      self.assertAlmostEqual(stats.binom.cdf(count, size, bound), 0.05)

  def test_upper_bound_is_above_what_was_measured(self):
    spam = spam_filters.calibrate_spam_filter(
        _STEP, 3, num_instances=5, target_rate=0.1, num_samples=400
    )
    self.assertBetween(
        spam.facts['rate_at_most'] - spam.false_rejection_rate, 0.01, 0.08
    )
    self.assertEqual(spam.facts['confidence'], 0.99)

  def test_the_rate_is_measured_on_pools_of_its_own(self):
    # On those of the calibration it would be the same for every seed.
    rates = {
        spam_filters.calibrate_spam_filter(
            _STEP, 1, num_instances=4, target_rate=0.1, num_samples=200,
            seed=seed,
        ).false_rejection_rate
        for seed in range(6)
    }
    self.assertGreater(len(rates), 2)

  def test_threshold_of_the_fraction_does_not_depend_on_the_number(self):
    few, many = (
        spam_filters.calibrate_spam_filter(
            _STEP, p, num_instances=6, rule='fraction', target_rate=0.1,
            num_samples=3000, allows_full_step=False,
        ).threshold
        for p in (1, 200)
    )
    self.assertAlmostEqual(few / many, 1, delta=0.15)

  def test_concurrency(self):
    one, many = (
        spam_filters.calibrate_spam_filter(
            _STEP, 5, num_instances=5, concurrency=m, rule='norm',
            target_rate=0.1, num_samples=800,
        )
        for m in (1, 20)
    )
    self.assertEqual(many.facts['concurrency'], 20)
    # The floor is a share of the root of the stationary spread.
    ratio = strategies.stationary_variance(
        5, noise_variance=1.0, concurrency=20
    ) / strategies.stationary_variance(5, noise_variance=1.0)
    self.assertAlmostEqual(
        (many.min_spread / one.min_spread) ** 2, ratio, places=6
    )

  def test_full_steps_are_allowed_for(self):
    thresholds = [
        spam_filters.calibrate_spam_filter(
            _STEP, 5, num_instances=5, target_rate=0.1, num_samples=400,
            allows_full_step=allowed,
        ).threshold
        for allowed in (False, True)
    ]
    spread = math.sqrt(
        strategies.stationary_variance(
            5, noise_variance=_STEP.noise_variance(5)
        )
    )
    # Of the same pools: about one step over the spread more.
    self.assertGreater(
        thresholds[1] - thresholds[0], 0.5 * 0.01 / spread
    )

  def test_a_threshold_for_33_weights_is_useless_for_thousands(self):
    spam = spam_filters.calibrate_spam_filter(
        _STEP, 33, num_instances=6, target_rate=0.05, num_samples=1000,
        allows_full_step=False,
    )
    rng = np.random.default_rng(4)
    rejected = _played(rng, 6, 3000, 150, spam, _STEP)
    self.assertGreater(rejected, 50)


class FormulaTest(parameterized.TestCase):

  def test_bounds_what_is_simulated(self):
    # f of one weight from a calibration for one weight, the rest by formula.
    k, p = 6, 20
    one = spam_filters.calibrate_spam_filter(
        _STEP, 1, num_instances=k, target_rate=0.01, num_samples=20_000,
        allows_full_step=False,
    )
    rng = np.random.default_rng(8)
    rounds = 6000
    rejected = _played(rng, k, p, rounds, one, _STEP)
    bound = 1 - 0.99**p
    self.assertLess(rejected / rounds, 1.25 * bound)
    # Independent weights would be there; those of one pool share its coins.
    self.assertGreater(rejected / rounds, 0.3 * bound)


class FilterTest(parameterized.TestCase):

  def _pool(self):
    return np.random.default_rng(0).normal(size=(10, 4))

  @parameterized.parameters(
      ({'rule': 'any'}, [0, 0, 0, 5.0], False),
      ({'rule': 'any'}, [0, 0, 0, 1.0], True),
      ({'rule': 'fraction', 'bound': 0.25}, [0, 0, 0, 5.0], True),
      ({'rule': 'fraction', 'bound': 0.25}, [0, 0, 5.0, 5.0], False),
      ({'rule': 'norm'}, [3.4, 3.4, 3.4, 3.4], False),
      ({'rule': 'norm'}, [1.0, 1.0, 1.0, 3.0], True),
  )
  def test_rules(self, fields, z, accepted):
    pool = self._pool()
    spam = spam_filters.SpamFilter(
        **{'threshold': 3.1, 'min_spread': 1e-6, **fields}
    )
    new = pool.mean(axis=0) + np.array(z) * pool.std(axis=0, ddof=1)
    self.assertEqual(spam.accepts(pool, new), accepted)

  def test_equal_instances_do_not_divide_by_zero(self):
    spam = spam_filters.SpamFilter(threshold=2.0, min_spread=0.5)
    pool = np.ones((5, 2))
    self.assertTrue(spam.accepts(pool, np.array([1.9, 1.0])))
    self.assertFalse(spam.accepts(pool, np.array([2.1, 1.0])))

  @parameterized.parameters(math.nan, math.inf)
  def test_not_finite(self, value):
    spam = spam_filters.SpamFilter(
        threshold=2.0, min_spread=0.5, rule='fraction', bound=0.9
    )
    self.assertFalse(spam.accepts(np.ones((5, 2)), np.array([value, 1.0])))

  def test_json_round_trip(self):
    spam = spam_filters.calibrate_spam_filter(
        _STEP, 3, num_instances=4, target_rate=0.2, num_samples=100
    )
    self.assertEqual(spam_filters.SpamFilter(**spam.describe()), spam)

  @parameterized.parameters(
      ({'threshold': 0.0}, 'threshold'),
      ({'rule': 'all'}, 'rule'),
      ({'min_spread': 0.0}, 'min_spread'),
      ({'rule': 'fraction'}, 'bound'),
      ({'bound': 0.1}, 'bound'),
  )
  def test_arguments(self, fields, name):
    with self.assertRaises(_checks.ArgumentError) as caught:
      spam_filters.SpamFilter(**{'threshold': 3.0, 'min_spread': 1.0, **fields})
    self.assertEqual(caught.exception.argument, name)

  @parameterized.parameters(
      ({'num_instances': 2}, 'num_instances=2'),
      ({'target_rate': 0.0}, 'target_rate=0.0'),
      ({'num_samples': 3}, 'num_samples=3'),
      ({'num_params': 0}, 'num_params=0'),
      ({'confidence': 1.0}, 'confidence=1.0'),
  )
  def test_calibration_arguments(self, changed, message):
    arguments = {
        'step': _STEP, 'num_params': 3, 'num_instances': 5, **changed
    }
    with self.assertRaisesRegex(ValueError, message):
      spam_filters.calibrate_spam_filter(**arguments)

  def test_refused_without_noise_or_with_too_few_instances(self):
    silent = client_steps.ClientStep(learning_rate=0.1, mechanism=None)
    with self.assertRaisesRegex(ValueError, 'instances have no spread'):
      spam_filters.calibrate_spam_filter(silent, 3, num_instances=5)
    spam = spam_filters.SpamFilter(threshold=2.0, min_spread=0.5)
    with self.assertRaisesRegex(ValueError, 'instances=2'):
      spam.accepts(np.ones((2, 2)), np.ones(2))


if __name__ == '__main__':
  absltest.main()
