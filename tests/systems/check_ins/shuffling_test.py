# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for clones and shuffling, against laws of every outcome."""

import itertools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import mpmath
import numpy as np
import pytest
from scipy import stats

from tests.accounting import protocol_laws as laws
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import shuffling

pytestmark = pytest.mark.once

_EPSILONS = np.array([0.0, 1e-3, 0.03, 0.1, 0.3, 0.6, 1.0, 1.7, 2.5, 3.9])
# What rounding may take off an exact law.
_ROUNDING = 1e-12


def _worst(matrix, num_clients, rate=1.0):
  """Returns the largest exact delta at each epsilon, over all neighbours."""
  worst = np.zeros(len(_EPSILONS))
  for one, other in laws.neighbours(num_clients, len(matrix)):
    pair = laws.aligned(
        laws.shuffled(matrix, one, rate), laws.shuffled(matrix, other, rate)
    )
    found = [laws.delta(*pair, epsilon) for epsilon in _EPSILONS]
    worst = np.maximum(worst, found)
  return worst


def _literal(local_epsilon, num_clones, epsilon):
  """Returns H_E of the clone pair, outcome by outcome."""
  alpha = 1 / (1 + math.exp(-local_epsilon))
  coins = stats.binom.pmf(np.arange(num_clones + 1), num_clones, 0.5)
  first = np.convolve(coins, [1 - alpha, alpha])
  second = np.convolve(coins, [alpha, 1 - alpha])
  return laws.hockey_stick(first, second, epsilon)


class ClonesTest(parameterized.TestCase):

  @parameterized.product(local_epsilon=(0.01, 0.7, 2.0, 6.0))
  def test_shuffled_equals_every_outcome(self, local_epsilon):
    num_clones = np.array([0, 1, 2, 3, 7, 20, 33])
    found = shuffling.shuffled(
        _EPSILONS, local_epsilon=local_epsilon, num_clones=num_clones
    )
    for i, epsilon in enumerate(_EPSILONS):
      for j, count in enumerate(num_clones):
        true = _literal(local_epsilon, count, epsilon)
        self.assertGreaterEqual(found[i, j], true - 1e-15)
        self.assertLessEqual(found[i, j], true * (1 + 1e-6) + 1e-7)

  @parameterized.product(
      others=(0, 1, 9, 40), clone=(0.01, 0.3, 1.0), inside=(0.05, 0.6, 1.0)
  )
  def test_checked_in_equals_every_outcome(self, others, clone, inside):
    e0, out = 1.5, 1 - inside
    alpha = 1 / (1 + math.exp(-e0))
    found = shuffling.checked_in(
        _EPSILONS,
        local_epsilon=e0,
        cells=shuffling.cells_of(
            np.array([others]),
            np.ones(1),
            clone_probability=clone,
            out_probability=out,
            in_probability=inside,
        ),
    )
    masses = stats.binom.pmf(np.arange(others + 1), others, clone)
    pair = np.zeros((2, others + 2, others + 2))
    for count, mass in enumerate(masses):
      coins = stats.binom.pmf(np.arange(count + 1), count, 0.5)
      pair[:, count, : count + 1] += out * mass * coins
      for law, share in zip(pair, (alpha, 1 - alpha)):
        law[count + 1, : count + 2] += (
            inside * mass * np.convolve(coins, [1 - share, share])
        )
    for value, epsilon in zip(found, _EPSILONS):
      for first, second in ((pair[0], pair[1]), (pair[1], pair[0])):
        true = laws.hockey_stick(first, second, epsilon)
        self.assertGreaterEqual(value, true - _ROUNDING)
        self.assertLessEqual(value, true + 1e-6)

  def test_thresholds_survive_ties(self):
    # At these odds the first positive outcome is a whole number exactly, so
    # rounding can put the threshold on either side.
    e0 = 1.0
    alpha = 1 / (1 + math.exp(-e0))
    for count in (5, 11, 40):
      for y in range(count // 2 + 1, count + 1):
        share = y / (count + 1)
        odds = (alpha * share + (1 - alpha) * (1 - share)) / (
            alpha * (1 - share) + (1 - alpha) * share
        )
        for shift in (-1e-16, 0.0, 1e-16):
          epsilon = max(0.0, math.log(odds) + shift)
          found = shuffling.shuffled(
              np.array([epsilon]),
              local_epsilon=e0,
              num_clones=np.array([count]),
          )[0, 0]
          self.assertGreaterEqual(found, _literal(e0, count, epsilon))

  @parameterized.parameters((1, 60), (1, 1), (2, 3), (790, 830), (1999, 2050))
  def test_tables_of_coins_are_exact(self, first, last):
    # By integers: m! / (k! (m - k)!) outcomes of 2^m.
    table = shuffling._CoinTable(first, last)
    width = shuffling._CoinTable._reach_of(last)
    for size in sorted({first, (first + last) // 2, last}):
      m = size - 1
      # From the middle to beyond the table.
      y = np.arange(m // 2, min(m, m // 2 + width + 9) + 1) + 1
      outcomes = [math.comb(m, k) for k in range(m + 2)] + [0]
      at_least = list(itertools.accumulate(outcomes[::-1]))[::-1]
      exact = [
          [outcomes[k - 1] if k else 0 for k in (y0, y0 + 1, y0 - 1)]
          + [at_least[y0]]
          for y0 in y.tolist()
      ]
      exact = [[n / 2**m for n in numbers] for numbers in exact]
      found = table(y, np.full(len(y), size))
      np.testing.assert_allclose(np.stack(found, axis=1), exact, rtol=2e-12)

  def test_large_tables_agree_with_40_digits(self):
    first, last = 180_000, 180_120
    table = shuffling._CoinTable(first, last)
    for size, share in ((first, 0.0), (last, 0.3), (last - 1, 0.95)):
      m = size - 1
      k = m // 2 + int(share * shuffling._CoinTable._reach_of(last))
      found = table(np.array([k + 1]), np.array([size]))
      with mpmath.workdps(40):
        mass = mpmath.binomial(m, k) / mpmath.mpf(2) ** m
        tail, term, heads = mpmath.mpf(0), mass, k
        while heads < m and term > 1e-40 * mass:
          term *= mpmath.mpf(m - heads) / (heads + 1)
          tail, heads = tail + term, heads + 1
        for value, exact in ((found[0], mass), (found[3], tail)):
          self.assertLess(abs(value[0] / exact - 1), 1e-11)

  @parameterized.product(
      setting=((40, 0.3), (5000, 0.1)), num_cells=(3, 2000, 1 << 18)
  )
  def test_tables_change_nothing(self, setting, num_cells):
    others, clone = setting
    cells = shuffling.cells_of(
        np.array([others, 2 * others]),
        np.array([0.3, 0.7]),
        clone_probability=clone,
        out_probability=0.9,
        in_probability=0.1,
    )
    build = lambda: shuffling.checked_in(
        np.concatenate([_EPSILONS, np.geomspace(1e-9, 2, 90)]),
        local_epsilon=3.0,
        cells=cells,
    )
    with mock.patch.object(shuffling, '_CELLS_PER_LAW', 0):
      direct = build()
    with mock.patch.multiple(
        shuffling, _CELLS_PER_LAW=1e9, _MOST_TABLE_CELLS=num_cells
    ):
      np.testing.assert_allclose(build(), direct, rtol=1e-9, atol=0)

  def test_windows_charge_what_they_leave_out(self):
    for trials, probability in ((12, 0.3), (10**4, 0.1), (10**7, 1e-8)):
      low, high, below, above = shuffling.window(trials, probability)
      inside = stats.binom.pmf(
          np.arange(low, high + 1), trials, probability
      ).sum()
      self.assertAlmostEqual(inside + below + above, 1.0, delta=1e-8)
      self.assertLess(below + above, 1e-15)

  @parameterized.parameters(1, 3, 7, 1000)
  def test_blocks_cover_the_window_once(self, most):
    edges = shuffling.blocks(4, 60, most)
    self.assertEqual((edges[0], edges[-1]), (4, 61))
    self.assertTrue(np.all(np.diff(edges) > 0))
    self.assertLessEqual(len(edges) - 1, most)
    masses = shuffling.block_masses(edges, 60, 0.5)
    exact = stats.binom.sf(3, 60, 0.5)
    self.assertAlmostEqual(masses.sum() / exact, 1.0, delta=1e-8)


class ShufflingTest(parameterized.TestCase):

  @parameterized.product(
      local_epsilon=(0.5, 2.0, 4.0), num_reports=(1, 2, 3, 5, 8, 12)
  )
  def test_never_below_randomized_response(self, local_epsilon, num_reports):
    exact = _worst(laws.randomized_response(local_epsilon), num_reports)
    strong = local_profiles.strong_clone_probability(local_epsilon)
    for rule in (
        {},
        {'clone_probability': strong},
        {'num_categories': 2},
    ):
      bound = shuffling.round_profile(
          local_epsilon=local_epsilon, num_reports=num_reports, **rule
      )(_EPSILONS)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.parameters((0.5, 12), (2.0, 8), (2.0, 12))
  def test_strong_clones_are_the_law_where_one_type_is_missing(self, e0, n):
    # All others hold what the target may hold: the bound is near the truth.
    exact = _worst(laws.randomized_response(e0), n)
    bound = shuffling.round_profile(
        local_epsilon=e0, num_reports=n, num_categories=2
    )(_EPSILONS)
    weak = shuffling.round_profile(local_epsilon=e0, num_reports=n)(_EPSILONS)
    self.assertLess(bound[0], 1.5 * exact[0])
    self.assertTrue(np.all(bound <= weak * (1 + 1e-8)))

  @parameterized.product(num_categories=(3, 4), num_reports=(2, 4, 6))
  def test_never_below_many_categories(self, num_categories, num_reports):
    for e0 in (0.7, 2.5):
      exact = _worst(laws.randomized_response(e0, num_categories), num_reports)
      bound = shuffling.round_profile(
          local_epsilon=e0,
          num_reports=num_reports,
          num_categories=num_categories,
      )(_EPSILONS)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.parameters(0.3, 1.2, math.pi)
  def test_never_below_the_sphere(self, angle):
    for e0 in (0.7, 2.0):
      matrix = laws.sphere_cells(e0, angle, 2.0)
      np.testing.assert_allclose(matrix.sum(axis=1), 1)
      exact = _worst(matrix, 4)
      strong = local_profiles.strong_clone_probability(e0)
      bound = shuffling.round_profile(
          local_epsilon=e0, num_reports=4, clone_probability=strong
      )(_EPSILONS)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  @parameterized.product(local_delta=(1e-3, 0.05, 0.3), num_reports=(1, 3, 7))
  def test_never_below_leaky_reports(self, local_delta, num_reports):
    for e0 in (0.5, 2.0):
      exact = _worst(
          laws.leaky_randomized_response(e0, local_delta), num_reports
      )
      bound = shuffling.round_profile(
          local_epsilon=e0, num_reports=num_reports, local_delta=local_delta
      )(_EPSILONS)
      np.testing.assert_array_less(exact - _ROUNDING, bound)

  def test_surcharge_is_below_the_published(self):
    e0, d0, n = 2.0, 1e-9, 1000
    with_delta, without = (
        shuffling.round_profile(
            local_epsilon=e0, num_reports=n, local_delta=delta
        )
        for delta in (d0, 0.0)
    )
    extra = (with_delta(_EPSILONS) - without(_EPSILONS))[_EPSILONS < 0.5]
    odds = np.exp(_EPSILONS[_EPSILONS < 0.5])
    published = (odds + 1) * (1 + math.exp(-e0) / 2) * n * d0
    self.assertTrue(np.all((extra > 0) & (extra <= published)))

  @parameterized.parameters(({},), ({'num_categories': 5},))
  def test_monotone(self, rule):
    base = {'local_epsilon': 1.5, 'num_reports': 400, **rule}
    profile = shuffling.round_profile(**base)
    values = profile(_EPSILONS)
    self.assertTrue(np.all(np.diff(values) <= 0))
    larger = shuffling.round_profile(**base | {'num_reports': 500})
    # Tails that are cut off are charged, and differ.
    self.assertTrue(np.all(larger(_EPSILONS) <= values + 1e-18))
    louder = shuffling.round_profile(**base | {'local_epsilon': 1.7})
    self.assertTrue(np.all(louder(_EPSILONS) >= values))

  def test_one_report_is_not_amplified(self):
    profile = shuffling.round_profile(local_epsilon=2.0, num_reports=1)
    expected = np.maximum(math.exp(2.0) - np.exp(_EPSILONS), 0)
    expected /= 1 + math.exp(2.0)
    np.testing.assert_allclose(profile(_EPSILONS), expected, rtol=1e-7)
    self.assertEqual(
        shuffling.round_profile(local_epsilon=0.0, num_reports=5)(
            np.zeros(1)
        )[0],
        0.0,
    )

  def test_tails_are_added(self):
    # At epsilon = 0 nothing may be lost: every number of clones counts.
    e0, n = 2.0, 12
    pc = math.exp(-e0)
    expected = sum(
        stats.binom.pmf(c, n - 1, pc) * _literal(e0, c, 0.0) for c in range(n)
    )
    found = shuffling.round_profile(local_epsilon=e0, num_reports=n)
    self.assertGreaterEqual(found(np.zeros(1))[0], expected)
    self.assertAlmostEqual(found(np.zeros(1))[0] / expected, 1, delta=1e-7)

  @parameterized.product(
      rule=({}, {'num_categories': 2}, {'num_categories': 3}),
      reach=(0.0, 0.7),
  )
  def test_narrow_windows_stay_above(self, rule, reach):
    # What a window leaves out is charged, wherever it ends.
    e0, n = 2.0, 8
    exact = _worst(
        laws.randomized_response(e0, rule.get('num_categories', 2)), n
    )
    wide = shuffling.round_profile(
        local_epsilon=e0, num_reports=n, **rule
    )(_EPSILONS)
    with mock.patch.multiple(shuffling, _REACH=reach, _MARGIN=0):
      narrow = shuffling.round_profile(
          local_epsilon=e0, num_reports=n, **rule
      )(_EPSILONS)
    np.testing.assert_array_less(exact - _ROUNDING, narrow)
    np.testing.assert_array_less(wide - _ROUNDING, narrow)
    self.assertGreater(narrow[0], wide[0] + 1e-4)

  @parameterized.parameters(({},), ({'num_categories': 3},))
  def test_narrow_windows_inside_stay_above(self, rule):
    # A window of few numbers of clones, with much on both sides.
    build = lambda: shuffling.round_profile(
        local_epsilon=1.0, num_reports=40, **rule
    )(_EPSILONS)
    wide = build()
    with mock.patch.multiple(shuffling, _REACH=0.0, _MARGIN=0):
      narrow = build()
    np.testing.assert_array_less(wide - _ROUNDING, narrow)

  def test_blocks_cost_little(self):
    # 3,000 numbers of clones in 128 blocks.
    profile = shuffling.round_profile(local_epsilon=1.0, num_reports=200_000)
    c = np.arange(71_500, 75_700)
    masses = stats.binom.pmf(c, 199_999, math.exp(-1.0))
    parts = shuffling.shuffled(
        np.array([0.01]), local_epsilon=1.0, num_clones=c
    )
    exact = float((parts @ masses)[0])
    found = float(profile(np.array([0.01]))[0])
    self.assertBetween(found / exact, 1.0, 1.01)

  def test_rules_that_do_not_fit(self):
    strong = local_profiles.strong_clone_probability(1.0)
    with self.assertRaisesRegex(
        privacy_profiles.NotApplicableError, 'local_delta=0 only'
    ):
      shuffling.round_profile(
          local_epsilon=1.0,
          num_reports=10,
          local_delta=1e-9,
          clone_probability=strong,
      )
    with self.assertRaisesRegex(ValueError, 'clone_probability=0.6'):
      shuffling.round_profile(
          local_epsilon=1.0, num_reports=10, clone_probability=0.6
      )
    with self.assertRaisesRegex(
        privacy_profiles.NotApplicableError, 'num_categories'
    ):
      shuffling.round_profile(
          local_epsilon=1.0,
          num_reports=10,
          clone_probability=strong,
          num_categories=3,
      )
    with self.assertRaisesRegex(ValueError, 'num_reports=0 '):
      shuffling.round_profile(local_epsilon=1.0, num_reports=0)
    with self.assertRaisesRegex(ValueError, 'local_epsilon=nan'):
      shuffling.round_profile(local_epsilon=math.nan, num_reports=2)


if __name__ == '__main__':
  absltest.main()
