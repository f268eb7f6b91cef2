# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Banded noise: the contract, the refusal of overlaps, memory, errors."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import toeplitz


class ContractTest(contract.MechanismContract, parameterized.TestCase):
  SPECS = (
      toeplitz.Banded.square_root(11, 3),
      toeplitz.Banded.square_root(10, 1),
      toeplitz.Banded.square_root(12, 3, restart_every=5),
      toeplitz.Banded.square_root(12, 20, restart_every=4),
      toeplitz.Banded.square_root(9, 9),
      # No order and both signs: columns that do not meet need neither.
      toeplitz.Banded(11, (1.0, -0.7, 0.9)),
      toeplitz.Banded(11, (1.0, 0.0, -1.5), restart_every=6),
  )


class BandedTest(parameterized.TestCase):

  def test_bands_above_the_separation_are_refused(self):
    spec = toeplitz.Banded.square_root(100, 10)
    spec.squared_sensitivity(
        patterns.MinSeparationPattern(100, min_index_gap=10)
    )
    for call in (
        spec.squared_sensitivity,
        spec.squared_sensitivity_by_round,
        spec.sensitivity_is_exact,
    ):
      with self.assertRaisesRegex(
          _checks.ArgumentError,
          'num_bands=10 is not allowed: expected at most 9, the min_index_gap'
          ' .* because with more bands two participations of one client',
      ):
        call(patterns.MinSeparationPattern(100, min_index_gap=9))
      with self.assertRaisesRegex(_checks.ArgumentError, 'num_bands=10'):
        call(patterns.FixedOrderPattern(100, rounds_per_epoch=9))

  def test_bands_are_free_where_a_client_is_in_a_tree_once(self):
    for spec in (
        toeplitz.Banded.square_root(12, 12),
        toeplitz.Banded.square_root(12, 12, restart_every=6),
    ):
      for pattern in (
          patterns.MinSeparationPattern(12, max_participations=1),
          patterns.MinSeparationPattern(12, min_index_gap=12),
          patterns.OncePerTreePattern(12),
          patterns.FixedOrderPattern(12, rounds_per_epoch=12),
      ):
        self.assertGreater(spec.squared_sensitivity(pattern), 1)
    # With restarts, no more bands count than a tree has rounds.
    spec = toeplitz.Banded.square_root(12, 12, restart_every=6)
    self.assertEqual(spec.num_bands, 6)
    spec.squared_sensitivity(patterns.MinSeparationPattern(12, min_index_gap=6))
    spec.squared_sensitivity(
        patterns.FixedOrderPattern(12, rounds_per_epoch=6)
    )

  @parameterized.parameters((3, 2), (1, 0), (20, 8))
  def test_keeps_one_vector_less_than_bands(self, num_bands, expected):
    self.assertEqual(
        toeplitz.Banded.square_root(9, num_bands).state_copies, expected
    )

  def test_one_band_is_independent_noise(self):
    residuals, _ = contract.noise_matrix(toeplitz.Banded.square_root(5, 1))
    np.testing.assert_array_equal(residuals, np.eye(5))

  def test_signs_cannot_make_it_worse(self):
    spec = toeplitz.Banded(10, (1.0, -0.7, 0.9))
    pattern = patterns.MinSeparationPattern(10, min_index_gap=3)
    self.assertTrue(spec.sensitivity_is_exact(pattern))
    matrix = brute_force.block_diagonal(spec.coefficients, 10)
    self.assertAlmostEqual(
        spec.squared_sensitivity(pattern),
        brute_force.worst_signed(matrix, pattern),
    )

  def test_optimized_has_less_error_and_serves_its_participation(self):
    pattern = patterns.MinSeparationPattern(64, min_index_gap=16)
    spec = toeplitz.Banded.optimized(pattern, 16, error='mean')
    root = toeplitz.Banded.square_root(64, 16)

    def loss(spec):
      return spec.squared_sensitivity(pattern) * spec.prefix_variances().mean()

    self.assertLess(loss(spec), loss(root))
    self.assertEqual(spec.num_bands, 16)
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_bands=17'):
      toeplitz.Banded.optimized(pattern, 17)

  @parameterized.named_parameters(
      ('first', (2.0, 1.0), r'coefficients\[0\]=2.0'),
      ('nan', (1.0, float('nan')), 'coefficients='),
      ('empty', (), 'coefficients='),
      ('unstable', (1.0, 3.0), 'coefficients='),
  )
  def test_bad_coefficients_are_named(self, coefficients, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      toeplitz.Banded(1000, coefficients)

  @parameterized.parameters(0, 1.5, True)
  def test_bad_band_counts_are_named(self, num_bands):
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_bands='):
      toeplitz.Banded.square_root(9, num_bands)


if __name__ == '__main__':
  absltest.main()
