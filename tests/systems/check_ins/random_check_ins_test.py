# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for random_check_ins: theorems in closed form, and thinning."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.accounting import check_in_laws
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import random_check_ins

pytestmark = pytest.mark.once

_DELTA = 1e-6
_L = math.log(1 / _DELTA)
_NotApplicable = privacy_profiles.NotApplicableError


def _spent(e0, d0, delta, count, epsilon_of_share):
  """Returns the best epsilon over splits, with delta1 found by a fine scan."""
  decay = -math.log1p(-math.exp(-5 * e0))
  delta1 = np.exp(np.linspace(math.log(d0), 0, 400001))
  largest = (1 - math.exp(-e0)) * delta1 / (
      4 * math.exp(e0) * (2 + np.log(2 / delta1) / decay)
  )
  delta1 = delta1[np.argmax(largest >= d0)]
  best = math.inf
  for share in np.linspace(1e-4, 1, 20000) * delta:
    found = epsilon_of_share(share)
    if share + count * (math.exp(min(found, 500)) + 1) * delta1 <= delta:
      best = min(best, found)
  return best


class ClosedFormTest(parameterized.TestCase):

  @parameterized.product(e0=(0.05, 0.3), m=(500, 2000), p0=(0.01, 1.0))
  def test_theorem_3_2(self, e0, m, p0):
    a = math.expm1(e0)
    expected = p0 * a * math.sqrt(2 * math.exp(e0) * _L / m)
    expected += p0**2 * math.exp(e0) * a**2 / (2 * m)
    found = random_check_ins.theorem_3_2(
        local_epsilon=e0, num_slots=m, check_in_probability=p0, delta=_DELTA
    )
    self.assertAlmostEqual(found, min(expected, e0), delta=1e-12)

  @parameterized.product(
      e0=(0.1, 0.5, 0.9), m=(10, 1000), delta=(1e-3, 1e-9)
  )
  def test_seven_bound_of_theorem_3_2(self, e0, m, delta):
    found = random_check_ins.theorem_3_2(
        local_epsilon=e0, num_slots=m, check_in_probability=1.0, delta=delta
    )
    self.assertLessEqual(found, 7 * e0 * math.sqrt(math.log(1 / delta) / m))

  def test_theorem_4_1_is_its_formula_at_the_best_split(self):
    e0, m, n = 0.02, 3000, 100_000
    a = math.expm1(e0)
    best = math.inf
    for share in np.linspace(1e-3, 1 - 1e-3, 2000):
      eps1 = math.sqrt(1 / n + 1 / m)
      eps1 += math.sqrt(math.log(1 / ((1 - share) * _DELTA)) / n)
      log = math.log(1 / (share * _DELTA))
      found = math.exp(4 * e0) * a**2 * eps1**2 / 2
      found += math.exp(2 * e0) * a * eps1 * math.sqrt(2 * log)
      best = min(best, found)
    found = random_check_ins.theorem_4_1(
        local_epsilon=e0, num_slots=m, min_num_clients=n, delta=_DELTA
    )
    self.assertAlmostEqual(found, best, delta=1e-4 * best)

  def test_theorem_5_1(self):
    e0, n = 0.4, 5000
    a = math.expm1(e0)
    expected = math.exp(3 * e0) * a**2 / (2 * n)
    expected += math.exp(1.5 * e0) * a * math.sqrt(2 * _L / n)
    found = random_check_ins.theorem_5_1(
        local_epsilon=e0, num_reports=n, delta=_DELTA
    )
    self.assertAlmostEqual(found, expected, delta=1e-12)

  def test_theorem_5_1_stops_helping(self):
    found = lambda e0: random_check_ins.theorem_5_1(
        local_epsilon=e0, num_reports=1000, delta=1e-6
    )
    self.assertLess(found(0.8735), 0.8735)
    self.assertEqual(found(0.8745), 0.8745)

  @parameterized.parameters(1.0, 10.0, 100.0, 400.0, 5000.0)
  def test_large_local_epsilons_end_at_themselves(self, e0):
    for found in (
        random_check_ins.theorem_3_2(
            local_epsilon=e0, num_slots=3, check_in_probability=1.0, delta=0.1
        ),
        random_check_ins.theorem_4_1(
            local_epsilon=e0, num_slots=3, min_num_clients=5, delta=0.1
        ),
        random_check_ins.theorem_5_1(
            local_epsilon=e0, num_reports=3, delta=0.1
        ),
    ):
      self.assertEqual(found, e0)

  def test_monotone(self):
    def rises(function, name, values, **settings):
      found = [function(**{name: v}, **settings) for v in values]
      self.assertEqual(found, sorted(found), name)

    def falls(function, name, values, **settings):
      rises(function, name, values[::-1], **settings)

    slots = dict(num_slots=900, delta=_DELTA)
    rises(
        random_check_ins.theorem_3_2,
        'local_epsilon', (0, 0.1, 0.5, 1, 2), check_in_probability=0.5, **slots,
    )
    rises(
        random_check_ins.theorem_3_2,
        'check_in_probability', (0, 0.01, 0.5, 1), local_epsilon=0.5, **slots,
    )
    falls(
        random_check_ins.theorem_3_2, 'num_slots', (10, 100, 1000),
        local_epsilon=0.5, check_in_probability=1.0, delta=_DELTA,
    )
    falls(
        random_check_ins.theorem_4_1, 'min_num_clients', (10**4, 10**5, 10**6),
        local_epsilon=0.1, **slots,
    )
    falls(
        random_check_ins.theorem_5_1, 'num_reports', (100, 1000, 10**4),
        local_epsilon=0.2, delta=_DELTA,
    )
    falls(
        random_check_ins.theorem_5_1, 'delta', (1e-9, 1e-6, 1e-3),
        local_epsilon=0.2, num_reports=1000,
    )


class ApproximateRandomizerTest(parameterized.TestCase):

  @parameterized.product(e0=(0.05, 0.5, 2.0), d0=(1e-30, 1e-12))
  def test_smallest_delta1_satisfies_the_condition_barely(self, e0, d0):
    delta1 = random_check_ins.smallest_delta1(
        local_epsilon=e0, local_delta=d0
    )

    def largest(delta1):
      decay = math.log(1 / (1 - math.exp(-5 * e0)))
      return (1 - math.exp(-e0)) * delta1 / (
          4 * math.exp(e0) * (2 + math.log(2 / delta1) / decay)
      )

    self.assertGreaterEqual(largest(delta1) * (1 + 1e-9), d0)
    self.assertLess(largest(delta1 * 0.999), d0)

  def test_the_whole_of_theorem_3_2(self):
    e0, d0, m = 0.05, 1e-16, 200_000
    a = math.expm1(8 * e0)

    def pure(delta):
      found = a * math.sqrt(2 * math.exp(8 * e0) * math.log(1 / delta) / m)
      return found + math.exp(8 * e0) * a**2 / (2 * m)

    expected = _spent(e0, d0, _DELTA, m, pure)
    found = random_check_ins.theorem_3_2(
        local_epsilon=e0,
        num_slots=m,
        check_in_probability=1.0,
        delta=_DELTA,
        local_delta=d0,
    )
    self.assertLess(expected, e0)
    self.assertAlmostEqual(found, expected, delta=1e-3 * expected)

  def test_theorem_4_1_counts_all_clients(self):
    # delta1 fits m = 100 times, but not n = 1e7 times.
    settings = dict(local_epsilon=0.01, num_slots=100, delta=1e-6)
    d0 = 1e-15
    delta1 = random_check_ins.smallest_delta1(
        local_epsilon=0.01, local_delta=d0
    )
    self.assertLess(100 * delta1 * 3, 1e-6)
    self.assertGreater(10**7 * delta1 * 2, 1e-6)
    random_check_ins.theorem_4_1(
        **settings, min_num_clients=100, local_delta=d0
    )
    with self.assertRaises(_NotApplicable):
      random_check_ins.theorem_4_1(
          **settings, min_num_clients=10**7, local_delta=d0
      )

  def test_delta1_is_what_is_paid(self):
    # With d0 in its place everything would fit by far.
    e0, m = 0.05, 200_000
    d0 = 1e-13
    self.assertLess(m * (math.exp(e0) + 1) * d0, 0.1 * _DELTA)
    with self.assertRaisesRegex(_NotApplicable, 'needs a delta') as caught:
      random_check_ins.theorem_3_2(
          local_epsilon=e0,
          num_slots=m,
          check_in_probability=1.0,
          delta=_DELTA,
          local_delta=d0,
      )
    self.assertIn('local_delta=1e-13', caught.exception.reason)

  def test_local_guarantee_is_the_least_of_all_where_d0_is_at_most_delta(self):
    self.assertEqual(
        random_check_ins.theorem_5_1(
            local_epsilon=1.0, num_reports=10, delta=1e-3, local_delta=1e-20
        ),
        1.0,
    )

  @parameterized.parameters(0.0, 200.0, 2000.0)
  def test_no_delta1_at_all(self, e0):
    self.assertEqual(
        random_check_ins.smallest_delta1(local_epsilon=e0, local_delta=1e-9),
        math.inf,
    )
    with self.assertRaises(_NotApplicable):
      random_check_ins.theorem_5_1(
          local_epsilon=e0, num_reports=10, delta=1e-6, local_delta=1e-9
      )

  def test_gaussian_noise_of_sigma_1_is_vacuous(self):
    # Any point of the curve of local noise 1 with clip norm 1.
    profile = local_profiles.gaussian(1.0)
    for e0 in np.linspace(0.5, 30, 30):
      d0 = float(profile(np.array([e0]))[0])
      try:
        found = random_check_ins.theorem_3_2(
            local_epsilon=float(e0),
            num_slots=2000,
            check_in_probability=1.0,
            delta=_DELTA,
            local_delta=d0,
        )
      except _NotApplicable:
        continue
      # The local guarantee itself.
      self.assertEqual(found, e0)
      self.assertLessEqual(d0, _DELTA)


class ThinningTest(parameterized.TestCase):

  def test_everybody_is_no_thinning(self):
    local = local_profiles.gaussian(2.0)
    epsilons = np.linspace(0, 3, 10)
    np.testing.assert_array_equal(
        privacy_profiles.subsampled(local, 1.0)(epsilons),
        local(epsilons),
    )
    self.assertEqual(
        privacy_profiles.subsampled(local, 0.0)(epsilons).max(), 0
    )

  @parameterized.product(p0=(0.01, 0.5), epsilon=(0.0, 0.1, 1.0, 3.0))
  def test_formula_and_never_above_the_local_profile(self, p0, epsilon):
    local = local_profiles.gaussian(2.0)
    found = privacy_profiles.subsampled(local, p0)(np.array([epsilon]))
    inner = math.log(1 + math.expm1(epsilon) / p0)
    np.testing.assert_allclose(
        found, p0 * local(np.array([inner])), rtol=1e-9
    )
    self.assertLessEqual(found, local(np.array([epsilon])))

  def test_without_dummies_it_would_be_wrong(self):
    # If an empty slot (-1) can be seen, staying away hides nothing.
    e0, p0, epsilon = 0.2, 0.5, 0.1
    keep = check_in_laws.keep_probability(e0)
    laws = [
        {-1: 1 - p0, bit: p0 * keep, 1 - bit: p0 * (1 - keep)}
        for bit in (0, 1)
    ]
    exact = check_in_laws.divergences(*laws, [epsilon])[0]
    bound = privacy_profiles.subsampled(local_profiles.pure(e0), p0)(
        np.array([epsilon])
    )[0]
    self.assertGreater(exact, bound)


class AveragedTest(parameterized.TestCase):

  @parameterized.product(
      e0=(0.1, 1.0), others=((), (0, 0, 0), (0, 1, 1)), m=(1, 3)
  )
  def test_never_below_the_exact_law(self, e0, others, m):
    laws = [
        check_in_laws.averaged((bit,) + others, num_slots=m, local_epsilon=e0)
        for bit in (0, 1)
    ]
    delta = 1e-2
    bound = random_check_ins.theorem_4_1(
        local_epsilon=e0,
        num_slots=m,
        min_num_clients=1 + len(others),
        delta=delta,
    )
    for first, second in (laws, laws[::-1]):
      self.assertAlmostEqual(sum(first.values()), 1, delta=1e-12)
      exact = check_in_laws.divergences(first, second, [bound])[0]
      self.assertLessEqual(exact, delta + 1e-12)

  @parameterized.product(e0=(0.02, 0.1), other=(0, 0.5, 1), delta=(1e-3, 1e-7))
  def test_never_below_what_the_sum_of_all_shows(self, e0, other, delta):
    n, m = 4000, 4000
    laws = [
        check_in_laws.sum_of_all(
            bit, num_clients=n, other=other, local_epsilon=e0
        )
        for bit in (0, 1)
    ]
    bound = random_check_ins.theorem_4_1(
        local_epsilon=e0, num_slots=m, min_num_clients=n, delta=delta
    )
    self.assertLess(bound, e0)
    for first, second in (laws, laws[::-1]):
      exact = check_in_laws.divergences(first, second, [bound])[0]
      self.assertLessEqual(exact, delta + 1e-12)


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('local_epsilon', -1.0),
      ('local_epsilon', math.nan),
      ('delta', 0.0),
      ('delta', 1.0),
      ('local_delta', 1.0),
      ('local_delta', -1e-9),
      ('num_slots', 0),
      ('check_in_probability', -0.1),
  )
  def test_names_argument(self, name, value):
    settings = dict(
        local_epsilon=1.0, num_slots=5, check_in_probability=0.5, delta=1e-6
    )
    settings[name] = value
    with self.assertRaisesRegex(ValueError, f'^{name}='):
      random_check_ins.theorem_3_2(**settings)

  def test_other_names(self):
    with self.assertRaisesRegex(ValueError, '^min_num_clients=0'):
      random_check_ins.theorem_4_1(
          local_epsilon=1.0, num_slots=5, min_num_clients=0, delta=1e-6
      )
    with self.assertRaisesRegex(ValueError, '^num_reports=0'):
      random_check_ins.theorem_5_1(
          local_epsilon=1.0, num_reports=0, delta=1e-6
      )


class DummiesTest(parameterized.TestCase):

  @parameterized.product(n=(0, 1, 4), m=(1, 3), p0=(0.0, 0.3, 1.0))
  def test_fixed_window_by_enumeration(self, n, m, p0):
    expected = 0.0
    for places in itertools.product([None] + list(range(m)), repeat=n):
      weight = math.prod(1 - p0 if s is None else p0 / m for s in places)
      expected += weight * len(set(range(m)) - set(places))
    found = random_check_ins.expected_dummies_fixed_window(
        n, num_slots=m, check_in_probability=p0
    )
    self.assertAlmostEqual(found, expected, delta=1e-12)

  @parameterized.product(n=(3, 5), m=(1, 2, 3))
  def test_sliding_window_by_enumeration(self, n, m):
    expected = 0.0
    windows = [range(j, j + m) for j in range(1, n + 1)]
    for places in itertools.product(*windows):
      expected += len(set(range(m, n + 1)) - set(places)) / m**n
    found = random_check_ins.expected_dummies_sliding_window(
        n, num_steps=n, window=m
    )
    self.assertAlmostEqual(found, expected, delta=1e-12)
    self.assertLessEqual(found, (n - m + 1) / math.e + 1e-12)

  def test_large_populations(self):
    found = random_check_ins.expected_dummies_fixed_window(
        10**7, num_slots=10**6, check_in_probability=0.2
    )
    self.assertAlmostEqual(found / 10**6, math.exp(-2), delta=1e-6)


if __name__ == '__main__':
  absltest.main()
