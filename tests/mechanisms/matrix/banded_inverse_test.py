# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Banded-inverse noise: the contract, both kinds of memory, errors."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import toeplitz

_square_root = banded_inverse.BandedInverse.square_root


class ContractTest(contract.MechanismContract, parameterized.TestCase):
  SPECS = (
      _square_root(11, 3),
      _square_root(11, 3, stores_draws=True),
      _square_root(10, 1),
      _square_root(10, 1, stores_draws=True),
      _square_root(12, 4, restart_every=5),
      _square_root(12, 4, stores_draws=True, restart_every=5),
      _square_root(9, 20),
      _square_root(12, 20, stores_draws=True, restart_every=4),
      # C with negative entries: (1 + x / 2)^-1.
      banded_inverse.BandedInverse(9, (1.0, 0.5)),
      # C positive, but not monotone.
      banded_inverse.BandedInverse(10, (1.0, -0.1, -0.5), restart_every=7),
  )


class BandedInverseTest(parameterized.TestCase):

  def test_storing_changes_the_memory_and_not_one_bit_of_the_noise(self):
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((30, 5)).astype(np.float32)
    noises = []
    for stores_draws in (False, True):
      spec = _square_root(30, 4, stores_draws=stores_draws, restart_every=11)
      noises.append(
          contract.run(
              spec,
              lambda tree, level, index: draws[11 * tree + index],
              num_params=5,
          )
      )
    np.testing.assert_array_equal(*noises)

  def test_a_tree_begins_without_the_draws_of_the_last_one(self):
    spec = _square_root(8, 3, restart_every=4)
    residuals, _ = contract.noise_matrix(spec)
    np.testing.assert_array_equal(residuals[4, :4], 0)
    np.testing.assert_array_equal(residuals[4:, 4:], residuals[:4, :4])

  def test_draws_of_rounds_that_were_not_are_never_asked_for(self):
    asked = []
    spec = _square_root(9, 5)
    operations = mechanism_lib.numpy_operations(
        lambda level, index: asked.append((level, index)) or np.zeros(1)
    )
    for t in range(1, 10):
      asked.clear()
      spec.next_noise((), t, operations)
      self.assertEqual(
          asked, [(0, index) for index in range(t - 1, max(t - 6, -1), -1)]
      )

  def test_memory_and_draws(self):
    self.assertEqual(_square_root(100, 8).state_copies, 0)
    self.assertEqual(
        _square_root(100, 8, stores_draws=True).state_copies, 7
    )
    self.assertAlmostEqual(_square_root(100, 8).draws_per_round, 8 - 0.28)
    self.assertEqual(
        _square_root(100, 8, stores_draws=True).draws_per_round, 1
    )

  def test_all_bands_are_the_square_root(self):
    whole = _square_root(20, 20)
    root = toeplitz.Toeplitz.square_root(20)
    np.testing.assert_allclose(
        whole.inverse_column(20), root.inverse_column(20), atol=1e-6
    )
    self.assertTrue(
        whole.sensitivity_is_exact(patterns.MinSeparationPattern(20))
    )

  @parameterized.parameters(2, 4, 16, 64, 342)
  def test_sensitivity_of_the_square_root_is_exact(self, num_bands):
    spec = _square_root(2048, num_bands)
    pattern = patterns.MinSeparationPattern(
        2048, min_index_gap=342, max_participations=6
    )
    self.assertTrue(spec.sensitivity_is_exact(pattern))

  def test_says_where_sensitivity_is_a_bound(self):
    pattern = patterns.MinSeparationPattern(9, min_index_gap=2)
    spec = banded_inverse.BandedInverse(9, (1.0, 0.5))
    self.assertFalse(spec.sensitivity_is_exact(pattern))

  def test_optimized_has_no_more_error(self):
    pattern = patterns.MinSeparationPattern(64, min_index_gap=16)
    spec = banded_inverse.BandedInverse.optimized(
        pattern, 4, stores_draws=True
    )

    def loss(spec):
      return spec.squared_sensitivity(pattern) * spec.prefix_variances().max()

    self.assertTrue(spec.stores_draws)
    self.assertEqual(spec.num_bands, 4)
    self.assertLess(loss(spec), loss(_square_root(64, 4)))

  @parameterized.named_parameters(
      (
          'first',
          dict(inverse_coefficients=(0.9, 0.1)),
          r'inverse_coefficients\[0\]=',
      ),
      ('nan', dict(inverse_coefficients=(1, np.nan)), 'inverse_coefficients='),
      ('empty', dict(inverse_coefficients=()), 'inverse_coefficients='),
      (
          'unstable',
          dict(inverse_coefficients=(1.0, -2.0)),
          'inverse_coefficients=',
      ),
      (
          'stores_draws',
          dict(inverse_coefficients=(1.0,), stores_draws='yes'),
          "stores_draws='yes'",
      ),
  )
  def test_bad_arguments_are_named(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, '^' + message):
      banded_inverse.BandedInverse(1000, **arguments)

  @parameterized.parameters(0, 1.5)
  def test_bad_band_counts_are_named(self, num_bands):
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_bands='):
      _square_root(9, num_bands)


if __name__ == '__main__':
  absltest.main()
