# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toeplitz sensitivities against brute force over all allowed sets."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.accounting.sensitivity import tree_sensitivity

_RESTARTS = (None, 1, 3, 4, 5, 8)
_MONOTONE = {
    'square_root': np.cumprod(
        [1.0] + [(2 * j - 1) / (2 * j) for j in range(1, 14)]
    ),
    'geometric': 0.9 ** np.arange(14),
    'ones': np.ones(14),
    'blt': np.array([1.0] + [0.4 * 0.99**j + 0.2 * 0.5**j for j in range(13)]),
    'plateau': np.array([1.0, 0.5, 0.5, 0.5, 0.2] + [0.1] * 9),
    'band_of_3': np.array([1.0, 0.6, 0.3]),
    'identity': np.array([1.0]),
}
_POSITIVE = {
    'bump': np.array([1.0, 0.2, 0.9, 0.1, 0.8, 0.0, 0.7, 0.3]),
    'growing': np.linspace(1, 2, 14),
}
_SIGNED = {
    'alternating': (-0.8) ** np.arange(14),
    'late_negative': np.array([1.0, 0.5, 0.2, -0.3, -0.1]),
    'random': np.random.default_rng(1).standard_normal(14),
    'band_of_2': np.array([1.0, -0.9]),
}


def _patterns(num_rounds):
  for gap in (1, 2, 3, 4, 5, 7, num_rounds):
    for most in (1, 2, 3, None):
      yield patterns.MinSeparationPattern(
          num_rounds, min_index_gap=gap, max_participations=most
      )
  for epoch in (1, 2, 3, 4, 5, 7, num_rounds):
    yield patterns.FixedOrderPattern(num_rounds, rounds_per_epoch=epoch)
  yield patterns.OncePerTreePattern(num_rounds)


class ExactTest(parameterized.TestCase):

  @parameterized.product(
      name=list(_MONOTONE), num_rounds=(1, 2, 5, 8, 11), every=_RESTARTS
  )
  def test_monotone_equals_worst_allowed_set(self, name, num_rounds, every):
    column = _MONOTONE[name]
    matrix = brute_force.block_diagonal(column, num_rounds, every)
    for pattern in _patterns(num_rounds):
      self.assertAlmostEqual(
          toeplitz_sensitivity.squared_sensitivity(
              column, pattern, restart_every=every
          ),
          brute_force.worst_aligned(matrix, pattern, every),
          msg=f'{pattern}',
      )
      self.assertTrue(
          toeplitz_sensitivity.is_exact(column, pattern, restart_every=every)
      )

  @parameterized.product(name=list(_POSITIVE), every=_RESTARTS)
  def test_fixed_order_and_once_need_no_monotone_column(self, name, every):
    column = _POSITIVE[name]
    matrix = brute_force.block_diagonal(column, 10, every)
    for pattern in _patterns(10):
      if isinstance(pattern, patterns.MinSeparationPattern):
        continue
      self.assertAlmostEqual(
          toeplitz_sensitivity.squared_sensitivity(
              column, pattern, restart_every=every
          ),
          brute_force.worst_aligned(matrix, pattern, every),
      )
      self.assertTrue(
          toeplitz_sensitivity.is_exact(column, pattern, restart_every=every)
      )

  @parameterized.product(
      name=list(_POSITIVE | _SIGNED), every=(None, 1, 3, 4, 7)
  )
  def test_whatever_is_called_exact_is_attained(self, name, every):
    column = (_POSITIVE | _SIGNED)[name]
    matrix = brute_force.block_diagonal(column, 9, every)
    num_exact = 0
    for pattern in _patterns(9):
      worst = brute_force.worst_signed(matrix, pattern, every)
      value = toeplitz_sensitivity.squared_sensitivity(
          column, pattern, restart_every=every
      )
      self.assertGreaterEqual(value, worst * (1 - 1e-12), pattern)
      if toeplitz_sensitivity.is_exact(column, pattern, restart_every=every):
        num_exact += 1
        self.assertAlmostEqual(value, worst, msg=f'{pattern}')
    self.assertGreater(num_exact, 0)

  def test_disjoint_bands_do_not_need_signs_or_order(self):
    for column in ([1.0, -3.0, 2.0], [1.0, 0.0, 5.0], [0.1, -0.2, 0.3]):
      matrix = brute_force.block_diagonal(column, 11, None)
      for pattern in (
          patterns.MinSeparationPattern(11, min_index_gap=3),
          patterns.MinSeparationPattern(
              11, min_index_gap=4, max_participations=2
          ),
          patterns.FixedOrderPattern(11, rounds_per_epoch=3),
      ):
        self.assertTrue(toeplitz_sensitivity.is_exact(column, pattern))
        self.assertAlmostEqual(
            toeplitz_sensitivity.squared_sensitivity(column, pattern),
            brute_force.worst_signed(matrix, pattern),
        )

  def test_ones_is_the_worst_of_a_single_sum(self):
    # All coefficients 1: C is the prefix sum itself, k rounds move row t by
    # min(t, k).
    pattern = patterns.MinSeparationPattern(5, max_participations=2)
    self.assertAlmostEqual(
        toeplitz_sensitivity.squared_sensitivity(np.ones(5), pattern),
        1 + 4 * 2**2,
    )


class UpperBoundTest(parameterized.TestCase):

  @parameterized.product(
      name=list(_POSITIVE | _SIGNED), every=(None, 1, 3, 5), gap=(1, 2, 4)
  )
  def test_never_below_any_contributions(self, name, every, gap):
    column = (_POSITIVE | _SIGNED)[name]
    matrix = brute_force.block_diagonal(column, 7, every)
    for pattern in (
        patterns.MinSeparationPattern(7, min_index_gap=gap),
        patterns.MinSeparationPattern(
            7, min_index_gap=gap, max_participations=2
        ),
        patterns.FixedOrderPattern(7, rounds_per_epoch=gap),
    ):
      value = toeplitz_sensitivity.squared_sensitivity(
          column, pattern, restart_every=every
      )
      for worst in (
          brute_force.worst_signed(matrix, pattern, every),
          brute_force.worst_vectors(matrix, pattern, every),
      ):
        self.assertGreaterEqual(value, worst * (1 - 1e-12), pattern)

  def test_says_where_it_is_no_more_than_a_bound(self):
    pattern = patterns.MinSeparationPattern(6, min_index_gap=2)
    for name in ('bump', 'growing'):
      self.assertFalse(
          toeplitz_sensitivity.is_exact(_POSITIVE[name], pattern)
      )
    fixed = patterns.FixedOrderPattern(6, rounds_per_epoch=2)
    self.assertTrue(toeplitz_sensitivity.is_exact(_POSITIVE['bump'], fixed))
    self.assertFalse(
        toeplitz_sensitivity.is_exact(_SIGNED['late_negative'], fixed)
    )

  def test_rounding_of_a_series_does_not_make_it_a_bound(self):
    column = np.full(50, 0.25)
    column[0] = 1.0
    column += np.random.default_rng(0).uniform(-1e-16, 1e-16, 50)
    pattern = patterns.MinSeparationPattern(50, min_index_gap=3)
    self.assertTrue(toeplitz_sensitivity.is_exact(column, pattern))
    column[30] += 1e-9
    self.assertFalse(toeplitz_sensitivity.is_exact(column, pattern))


class ByRoundTest(parameterized.TestCase):

  @parameterized.product(
      name=(
          'square_root', 'plateau', 'band_of_3', 'identity', 'bump', 'random',
          'band_of_2',
      ),
      every=(None, 4, 9),
  )
  def test_equals_a_run_that_stops(self, name, every):
    column = (_MONOTONE | _POSITIVE | _SIGNED)[name]
    for pattern in _patterns(13):
      by_round = toeplitz_sensitivity.squared_sensitivity_by_round(
          column, pattern, restart_every=every
      )
      self.assertEqual(by_round.shape, (13,))
      np.testing.assert_allclose(
          by_round,
          [
              toeplitz_sensitivity.squared_sensitivity(
                  column, pattern.truncated(stop), restart_every=every
              )
              for stop in range(1, 14)
          ],
          rtol=1e-12,
          err_msg=f'{pattern}',
      )
      self.assertGreaterEqual(np.diff(by_round).min(), -1e-12)


class OrderTest(parameterized.TestCase):

  @parameterized.product(
      name=list(_MONOTONE | _POSITIVE | _SIGNED), every=(None, 7, 16)
  )
  def test_monotone_in_participations_and_gap(self, name, every):
    column = (_MONOTONE | _POSITIVE | _SIGNED)[name]

    def value(gap, most):
      return toeplitz_sensitivity.squared_sensitivity(
          column,
          patterns.MinSeparationPattern(
              40, min_index_gap=gap, max_participations=most
          ),
          restart_every=every,
      )

    for gap in (1, 2, 3, 5, 11):
      for most in (1, 2, 3, 6):
        slack = 1e-12 * value(gap, most)
        self.assertLessEqual(value(gap, most), value(gap, most + 1) + slack)
        self.assertLessEqual(value(gap + 1, most), value(gap, most) + slack)

  @parameterized.parameters(None, 30)
  def test_fixed_order_at_most_min_separation(self, every):
    column = _MONOTONE['square_root']
    fixed = toeplitz_sensitivity.squared_sensitivity(
        column,
        patterns.FixedOrderPattern(100, rounds_per_epoch=6),
        restart_every=every,
    )
    separated = toeplitz_sensitivity.squared_sensitivity(
        column,
        patterns.MinSeparationPattern(
            100, min_index_gap=1 if every else 6
        ),
        restart_every=every,
    )
    self.assertLessEqual(fixed, separated + 1e-9)

  def test_chain_is_at_most_the_sum_over_trees(self):
    column = _MONOTONE['blt']
    for gap in (1, 3, 10):
      for every in (7, 16, 20):
        chained = toeplitz_sensitivity.squared_sensitivity(
            column,
            patterns.MinSeparationPattern(50, min_index_gap=gap),
            restart_every=every,
        )
        separate = sum(
            toeplitz_sensitivity.squared_sensitivity(
                column, patterns.MinSeparationPattern(length, min_index_gap=gap)
            )
            for length in patterns.tree_lengths(50, restart_every=every)
        )
        self.assertLessEqual(chained, separate + 1e-9)

  def test_identity_counts_participations(self):
    pattern = patterns.MinSeparationPattern(
        2048, min_index_gap=342, max_participations=6
    )
    self.assertEqual(
        toeplitz_sensitivity.squared_sensitivity([1.0], pattern), 6.0
    )
    self.assertLess(
        6.0, tree_sensitivity.squared_sensitivity(pattern)
    )


class ErrorsTest(parameterized.TestCase):

  def test_names_the_argument(self):
    pattern = patterns.MinSeparationPattern(5)
    for call in (
        toeplitz_sensitivity.squared_sensitivity,
        toeplitz_sensitivity.squared_sensitivity_by_round,
        toeplitz_sensitivity.is_exact,
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, 'restart_every=0'):
        call([1.0], pattern, restart_every=0)
      with self.assertRaisesRegex(_checks.ArgumentError, 'coefficients='):
        call([1.0, np.nan], pattern)
      with self.assertRaisesRegex(TypeError, 'pattern=5 is not allowed'):
        call([1.0], 5)


if __name__ == '__main__':
  absltest.main()
