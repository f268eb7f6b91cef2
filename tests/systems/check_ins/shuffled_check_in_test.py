# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for shuffled_check_in, against laws of every outcome."""

import itertools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.accounting import protocol_laws as laws
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import shuffled_check_in
from tff_dp.systems.check_ins import shuffling

pytestmark = pytest.mark.once

_EPSILONS = np.array([0.0, 1e-3, 0.01, 0.03, 0.1, 0.3, 0.6, 1.0, 1.7, 2.5])
_ROUNDING = 1e-12
_FORMS = {
    'fast': shuffled_check_in.round_profile,
    'by_cohort': shuffled_check_in.round_profile_by_cohort,
}


def _exact(matrix, pair, rate, epsilons=_EPSILONS, num_rounds=1):
  one, other = laws.aligned(
      *(laws.shuffled(matrix, inputs, rate) for inputs in pair)
  )
  one, other = laws.composed(one, other, num_rounds)
  return np.array([laws.delta(one, other, e) for e in epsilons])


def _worst(matrix, num_clients, rate):
  found = [
      _exact(matrix, pair, rate)
      for pair in laws.neighbours(num_clients, len(matrix))
  ]
  return np.max(found, axis=0)


class RoundTest(parameterized.TestCase):

  @parameterized.product(
      num_clients=(1, 2, 3, 5, 8, 12), rate=(0.05, 0.4, 0.9, 1.0)
  )
  def test_never_below_randomized_response(self, num_clients, rate):
    for e0 in (0.5, 2.0, 4.0):
      exact = _worst(laws.randomized_response(e0), num_clients, rate)
      strong = local_profiles.strong_clone_probability(e0)
      rules = ({}, {'clone_probability': strong}, {'num_categories': 2})
      for form, rule in itertools.product(_FORMS.values(), rules):
        bound = form(
            local_epsilon=e0,
            num_clients=num_clients,
            check_in_rate=rate,
            **rule,
        )(_EPSILONS)
        np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.parameters(3, 4)
  def test_never_below_many_categories(self, num_categories):
    for e0, n, rate in ((0.7, 4, 0.5), (2.5, 4, 0.2), (2.5, 5, 0.95)):
      exact = _worst(laws.randomized_response(e0, num_categories), n, rate)
      for form in _FORMS.values():
        bound = form(
            local_epsilon=e0,
            num_clients=n,
            check_in_rate=rate,
            num_categories=num_categories,
        )(_EPSILONS)
        np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.parameters(0.3, 1.2, math.pi)
  def test_never_below_the_sphere(self, angle):
    for e0, n, rate in ((0.7, 4, 0.5), (2.0, 4, 0.8)):
      bound = shuffled_check_in.round_profile(
          local_epsilon=e0,
          num_clients=n,
          check_in_rate=rate,
          clone_probability=local_profiles.strong_clone_probability(e0),
      )(_EPSILONS)
      exact = _worst(laws.sphere_cells(e0, angle, 2.0), n, rate)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.product(local_delta=(1e-4, 0.02, 0.3), rate=(0.1, 0.7))
  def test_never_below_leaky_reports(self, local_delta, rate):
    for e0 in (0.5, 2.0, 4.0):
      exact = _worst(laws.leaky_randomized_response(e0, local_delta), 5, rate)
      for form in _FORMS.values():
        bound = form(
            local_epsilon=e0,
            num_clients=5,
            check_in_rate=rate,
            local_delta=local_delta,
        )(_EPSILONS)
        np.testing.assert_array_less(exact - _ROUNDING, bound)
        values = bound[_EPSILONS < 0.5]
        self.assertTrue(np.all(np.diff(values) <= 1e-15))

  @parameterized.product(ones=(0, 60, 150, 299), rate=(0.1, 0.5))
  def test_converges_from_above_at_300_clients(self, ones, rate):
    e0, n = 1.0, 300
    zeros = n - 1 - ones
    one, other = (
        laws.binary_check_in(e0, *crowd, rate)
        for crowd in ((zeros + 1, ones), (zeros, ones + 1))
    )
    epsilons = np.array([0.0, 0.01, 0.03, 0.1, 0.2, 0.3])
    exact = np.array([laws.delta(one, other, e) for e in epsilons])
    bounds = {}
    for name, rule in (
        ('strong', {'num_categories': 2}),
        ('any', {}),
    ):
      bounds[name] = shuffled_check_in.round_profile(
          local_epsilon=e0, num_clients=n, check_in_rate=rate, **rule
      )(epsilons)
      np.testing.assert_array_less(exact - _ROUNDING, bounds[name])
    # Randomized response has more clones than exp(-e0) of an arbitrary one: the
    # bound for it is close where the others are of one kind.
    if ones in (0, 299):
      self.assertLess(bounds['strong'][0], 1.3 * exact[0])
    self.assertLess(bounds['any'][0], 1.8 * exact[0])

  @parameterized.parameters(10, 30, 100, 300)
  def test_the_ratio_to_the_exact_value_stays_bounded(self, n):
    # From above at every size, and both fall like 1 / sqrt(n).
    one, other = (
        laws.binary_check_in(1.0, *crowd, 0.3) for crowd in ((n, 0), (n - 1, 1))
    )
    bound = shuffled_check_in.round_profile(
        local_epsilon=1.0, num_clients=n, check_in_rate=0.3, num_categories=2
    )
    ratio = float(bound(np.zeros(1))[0]) / laws.delta(one, other, 0.0)
    self.assertBetween(ratio, 1.0, 1.35)

  @parameterized.product(
      form=('fast', 'by_cohort'),
      rule=({}, {'num_categories': 2}, {'num_categories': 3}),
      reach=(0.0, 0.7),
  )
  def test_narrow_windows_stay_above(self, form, rule, reach):
    # What a window leaves out is charged, wherever it ends.
    build = lambda: _FORMS[form](
        local_epsilon=2.0, num_clients=8, check_in_rate=0.4, **rule
    )(_EPSILONS)
    wide = build()
    with mock.patch.multiple(shuffling, _REACH=reach, _MARGIN=0):
      narrow = build()
    np.testing.assert_array_less(wide - _ROUNDING, narrow)
    self.assertGreater(narrow[0], wide[0] + 1e-4)

  @parameterized.product(blocks=(1, 2, 3), rule=({}, {'num_categories': 3}))
  def test_coarse_blocks_stay_above(self, blocks, rule):
    def build(form):
      return _FORMS[form](
          local_epsilon=2.0, num_clients=60, check_in_rate=0.4, **rule
      )(_EPSILONS)

    fine = {form: build(form) for form in _FORMS}
    with mock.patch.multiple(shuffling, _MOST_BLOCKS=blocks, _MOST_CELLS=1):
      with mock.patch.object(shuffled_check_in, '_MOST_COHORT_BLOCKS', blocks):
        for form in _FORMS:
          coarse = build(form)
          np.testing.assert_array_less(fine[form] - _ROUNDING, coarse)
          self.assertGreater(coarse[0], fine[form][0] + 1e-4)

  def test_blocks_take_the_smallest_crowd(self):
    # The rate at a block's largest k hides a crowd that is too large, so the
    # sizes are looked at.
    low = shuffling.window(5000, 0.4)[0]
    plain = shuffling.round_profile
    with mock.patch.object(
        shuffling, 'round_profile', side_effect=plain
    ) as crowds, mock.patch.object(shuffled_check_in, '_MOST_COHORT_BLOCKS', 1):
      shuffled_check_in.round_profile_by_cohort(
          local_epsilon=1.0, num_clients=5000, check_in_rate=0.4
      )(_EPSILONS)
    sizes = {call.kwargs['num_reports'] for call in crowds.call_args_list}
    self.assertGreater(low, 1)
    self.assertEqual(sizes, {1, low})

  def test_many_categories_hide_more(self):
    # No more than a report that is of either type can tell them apart.
    e0, rate, k = 2.0, 0.3, 50
    found = shuffled_check_in.round_profile(
        local_epsilon=e0, num_clients=5, check_in_rate=rate, num_categories=k
    )(np.zeros(1))[0]
    local = local_profiles.randomized_response(e0, k)(np.zeros(1))[0]
    self.assertLessEqual(found, rate * local * (1 + 1e-7))

  def test_laws_agree(self):
    dense = laws.binary_check_in(1.3, 3, 2, 0.4)
    listed = laws.shuffled(
        laws.randomized_response(1.3), (0, 0, 0, 1, 1), 0.4
    )
    for counts, mass in listed.items():
      self.assertAlmostEqual(dense[counts], mass, places=14)

  def test_both_directions_differ_and_are_covered(self):
    matrix = laws.randomized_response(2.0)
    one, other = laws.aligned(
        laws.shuffled(matrix, (0, 0, 0, 0), 0.6),
        laws.shuffled(matrix, (1, 0, 0, 0), 0.6),
    )
    forth = laws.hockey_stick(one, other, 0.3)
    back = laws.hockey_stick(other, one, 0.3)
    self.assertGreater(abs(forth - back), 1e-3)


class ComposedTest(parameterized.TestCase):

  @parameterized.product(form=('fast', 'by_cohort'), num_clients=(2, 5, 8))
  @pytest.mark.slow(cases=['5'])
  def test_rounds_never_exceed_the_bound(self, form, num_clients):
    for e0, rate, num_rounds in ((1.0, 0.5, 3), (3.0, 0.2, 2), (0.5, 1.0, 3)):
      profile = _FORMS[form](
          local_epsilon=e0,
          num_clients=num_clients,
          check_in_rate=rate,
          num_categories=2,
      )
      matrix = laws.randomized_response(e0)
      for delta in (0.1, 1e-2, 1e-4):
        epsilon = privacy_profiles.composed_epsilon(
            profile, delta, count=num_rounds
        )
        for ones in {0, num_clients // 2, num_clients - 1}:
          rest = (0,) * (num_clients - 1 - ones) + (1,) * ones
          exact = _exact(
              matrix, ((0, *rest), (1, *rest)), rate, [epsilon], num_rounds
          )
          self.assertLessEqual(exact[0], delta)

  def test_rounds_are_tight_where_the_bound_is(self):
    # One client: the bound is exact, so the composition must nearly be.
    profile = shuffled_check_in.round_profile(
        local_epsilon=2.0, num_clients=1, check_in_rate=0.5
    )
    epsilon = privacy_profiles.composed_epsilon(profile, 0.05, count=4)
    exact = _exact(
        laws.randomized_response(2.0), ((0,), (1,)), 0.5, [epsilon], 4
    )
    self.assertBetween(exact[0], 0.0498, 0.05)

  def test_the_setting_of_figure_3a(self):
    n = 60_000
    profile = shuffled_check_in.round_profile(
        local_epsilon=2.0, num_clients=n, check_in_rate=0.1
    )
    found = privacy_profiles.composed_epsilon(profile, 1 / n, count=6800)
    # arXiv:2206.03151, figure 3a, states about 1, by steps that fail.
    self.assertBetween(found, 1.6, 1.69)

  @parameterized.parameters((10**9, 1e-4), (10**7, 1e-3), (10**6, 0.5))
  def test_the_grid_is_fine_in_large_crowds(self, num_clients, rate):
    # Tails that are charged at all epsilons must not stretch the grid.
    profile = shuffled_check_in.round_profile(
        local_epsilon=1.0, num_clients=num_clients, check_in_rate=rate
    )
    scale, largest = privacy_profiles.extent(profile)
    self.assertLess(largest, 40 * scale)

  def test_the_grid_matters_little(self):
    profile = shuffled_check_in.round_profile(
        local_epsilon=2.0, num_clients=2000, check_in_rate=0.2
    )
    scale, _ = privacy_profiles.extent(profile)
    coarse, fine = (
        privacy_profiles.composed_epsilon(
            profile, 1e-5, count=300, interval=share * scale
        )
        for share in (0.1, 0.05)
    )
    self.assertLess(abs(coarse / fine - 1), 0.01)


class IdentitiesTest(parameterized.TestCase):

  def test_by_cohort_is_shuffling_if_all_check_in(self):
    for n, e0 in ((1, 2.0), (50, 1.0), (3000, 2.0)):
      by_cohort = shuffled_check_in.round_profile_by_cohort(
          local_epsilon=e0, num_clients=n, check_in_rate=1.0
      )
      plain = shuffling.round_profile(local_epsilon=e0, num_reports=n)
      np.testing.assert_allclose(
          by_cohort(_EPSILONS), plain(_EPSILONS), rtol=1e-6, atol=1e-15
      )

  def test_fast_form_is_near_shuffling_if_all_check_in(self):
    plain, fast = (
        privacy_profiles.epsilon_of(profile, 1e-6)
        for profile in (
            shuffling.round_profile(local_epsilon=2.0, num_reports=60_000),
            shuffled_check_in.round_profile(
                local_epsilon=2.0, num_clients=60_000, check_in_rate=1.0
            ),
        )
    )
    self.assertBetween(fast / plain, 0.999, 1.1)

  def test_fast_form_is_the_tighter(self):
    for rule in ({}, {'num_categories': 2}):
      arguments = {
          'local_epsilon': 2.0,
          'num_clients': 1000,
          'check_in_rate': 0.1,
          **rule,
      }
      fast, by_cohort = (
          form(**arguments)(np.array([0.0, 0.01, 0.03, 0.06]))
          for form in _FORMS.values()
      )
      self.assertTrue(np.all(fast < by_cohort))

  @parameterized.parameters('fast', 'by_cohort')
  def test_monotone(self, form):
    base = {'local_epsilon': 1.5, 'num_clients': 700, 'check_in_rate': 0.1}
    build = lambda **changes: _FORMS[form](**(base | changes))(_EPSILONS)
    values = build()
    slack = 1e-17  # Tails that are cut off are charged, and differ.
    self.assertTrue(np.all(np.diff(values) <= slack))
    self.assertTrue(np.all(build(num_clients=800) <= values * 1.001 + slack))
    self.assertTrue(np.all(build(num_clients=1400) <= values + slack))
    self.assertTrue(np.all(build(check_in_rate=0.2) >= values - slack))
    self.assertTrue(np.all(build(local_epsilon=1.7) >= values - slack))
    self.assertTrue(np.all(build(local_delta=1e-6) >= values - slack))
    pure = local_profiles.pure(1.5)(_EPSILONS)
    self.assertTrue(np.all(values <= pure * (1 + 1e-9) + slack))

  def test_blocks_of_the_revealed_cost_little(self):
    # 8,000 others: M takes some hundred values, in fewer blocks.
    arguments = {
        'local_epsilon': 1.0,
        'num_clients': 8000,
        'check_in_rate': 0.2,
    }
    coarse = shuffled_check_in.round_profile(**arguments)(_EPSILONS[:3])
    with mock.patch.object(shuffling, '_MOST_CELLS', 10**6):
      fine = shuffled_check_in.round_profile(**arguments)(_EPSILONS[:3])
    self.assertTrue(np.all(coarse >= fine * (1 - 1e-9)))
    self.assertTrue(np.all(coarse <= fine * 1.01))


class SubsampledTest(parameterized.TestCase):

  @parameterized.product(num_clients=(1, 2, 4, 7), rate=(0.1, 0.6, 1.0))
  def test_never_below_randomized_response(self, num_clients, rate):
    for e0 in (0.5, 2.0):
      exact = _worst(laws.randomized_response(e0), num_clients, rate)
      bound = shuffled_check_in.subsampled_profile(
          local_profiles.pure(e0), num_clients=num_clients, check_in_rate=rate
      )(_EPSILONS)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.parameters(0.1, 0.6)
  def test_exact_for_one_client(self, rate):
    # Who is alone is seen to check in: rate g instead of k / n would be less.
    bound = shuffled_check_in.subsampled_profile(
        local_profiles.pure(2.0), num_clients=1, check_in_rate=rate
    )(_EPSILONS)
    exact = _worst(laws.randomized_response(2.0), 1, rate)
    np.testing.assert_allclose(bound, exact, atol=1e-7)
    wrong = rate * local_profiles.pure(2.0)(
        np.log1p(np.expm1(_EPSILONS) / rate)
    )
    self.assertLess(wrong[6], exact[6] - 1e-3)

  def test_full_rate_is_no_amplification(self):
    local = local_profiles.gaussian(1.3)
    bound = shuffled_check_in.subsampled_profile(
        local, num_clients=100, check_in_rate=1.0
    )
    np.testing.assert_allclose(
        bound(_EPSILONS), local(_EPSILONS), rtol=1e-7
    )

  def test_blocks_cost_little(self):
    local = local_profiles.gaussian(1.0)
    epsilons = np.array([0.0, 1e-4, 1e-2, 0.5])
    bound = shuffled_check_in.subsampled_profile(
        local, num_clients=10**6, check_in_rate=0.01
    )(epsilons)
    at_mean = 0.01 * local(np.log1p(np.expm1(epsilons) / 0.01))
    self.assertTrue(np.all(bound >= at_mean))
    self.assertTrue(np.all(bound <= 1.01 * at_mean))


class GaussianTest(parameterized.TestCase):

  def test_takes_the_better_of_both_roads(self):
    arguments = {'num_clients': 20_000, 'check_in_rate': 0.1}
    local = local_profiles.gaussian(4.0)
    subsampled = shuffled_check_in.subsampled_profile(local, **arguments)
    profile, (e0, d0) = shuffled_check_in.gaussian_round_profile(
        noise_multiplier=4.0, num_rounds=500, delta=1e-5, **arguments
    )
    self.assertAlmostEqual(d0, float(local(np.array([e0]))[0]))
    best, plain = (
        privacy_profiles.composed_epsilon(bound, 1e-5, count=500)
        for bound in (profile, subsampled)
    )
    self.assertLess(best, 0.5 * plain)

  def test_the_published_split_is_vacuous(self):
    # arXiv:2206.03151 has delta0 = n^-1.5 at e0 = 2: over its rounds the
    # surcharge alone exceeds delta, while the best split does not.
    n, rounds, noise = 60_000, 5540, 4.9682
    local = local_profiles.gaussian(noise)
    d0 = float(local(np.array([2.0]))[0])
    self.assertAlmostEqual(d0 * n**1.5, 1.0, delta=0.01)
    arguments = {'num_clients': n, 'check_in_rate': 0.1}
    published = shuffled_check_in.round_profile(
        local_epsilon=2.0, local_delta=d0, **arguments
    )
    self.assertEqual(
        privacy_profiles.composed_epsilon(published, 1 / n, count=rounds),
        math.inf,
    )
    profile, (e0, _) = shuffled_check_in.gaussian_round_profile(
        noise_multiplier=noise, num_rounds=rounds, delta=1 / n, **arguments
    )
    self.assertGreater(e0, 2.0)
    found = privacy_profiles.composed_epsilon(profile, 1 / n, count=rounds)
    self.assertLess(found, 3.0)

  def test_little_noise_leaves_only_subsampling(self):
    profile, (e0, _) = shuffled_check_in.gaussian_round_profile(
        noise_multiplier=0.05,
        num_clients=50,
        check_in_rate=0.1,
        num_rounds=10,
        delta=1e-5,
    )
    self.assertEqual(e0, 0.0)
    self.assertLessEqual(float(profile(np.zeros(1))[0]), 0.2)


class BadInputTest(parameterized.TestCase):

  @parameterized.parameters(
      ({'check_in_rate': 0.0}, 'check_in_rate=0.0'),
      ({'check_in_rate': 1.5}, 'check_in_rate=1.5'),
      ({'check_in_rate': math.nan}, 'check_in_rate=nan'),
      ({'num_clients': 0}, 'num_clients=0'),
      ({'local_epsilon': -1.0}, 'local_epsilon=-1.0'),
      ({'local_delta': 2.0}, 'local_delta=2.0'),
      ({'clone_probability': 0.9}, 'clone_probability=0.9'),
      ({'num_categories': 1}, 'num_categories=1'),
  )
  def test_names_the_argument(self, changes, message):
    base = {'local_epsilon': 1.0, 'num_clients': 10, 'check_in_rate': 0.1}
    for form in _FORMS.values():
      with self.assertRaisesRegex(ValueError, message):
        form(**(base | changes))

  def test_strong_clones_with_delta(self):
    for form in _FORMS.values():
      with self.assertRaises(privacy_profiles.NotApplicableError):
        form(
            local_epsilon=1.0,
            num_clients=10,
            check_in_rate=0.1,
            local_delta=1e-9,
            clone_probability=local_profiles.strong_clone_probability(1.0),
        )


if __name__ == '__main__':
  absltest.main()
