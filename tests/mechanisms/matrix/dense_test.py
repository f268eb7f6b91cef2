# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Dense noise: the contract, equality with Toeplitz noise, errors."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import dense
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra


def _positive(n, seed=0):
  rng = np.random.default_rng(seed)
  return np.tril(rng.uniform(0.05, 1.0, (n, n))) + np.eye(n)


def _square_root(n):
  return toeplitz_algebra.matrix(
      toeplitz_algebra.square_root_coefficients(n), n
  )


class ContractTest(contract.MechanismContract, parameterized.TestCase):
  SPECS = (
      dense.Dense(9, _positive(9)),
      # Longer than the run.
      dense.Dense(10, _positive(12, seed=1).tolist()),
      dense.Dense(10, _square_root(10)),
      dense.Dense(9, np.diag(np.linspace(0.5, 2, 9))),
  )


class DenseTest(parameterized.TestCase):

  def test_noise_is_the_solution_of_the_triangular_system(self):
    matrix = _positive(7)
    spec = dense.Dense(7, matrix)
    residuals, _ = contract.noise_matrix(spec)
    np.testing.assert_allclose(
        residuals @ np.float32(matrix), np.eye(7), atol=1e-12
    )

  def test_equals_toeplitz_noise(self):
    spec = dense.Dense(12, _square_root(12))
    same = toeplitz.Toeplitz.square_root(12)
    np.testing.assert_allclose(
        contract.noise_matrix(spec)[0], contract.noise_matrix(same)[0]
    )
    for pattern in contract.inner_patterns(12):
      self.assertTrue(spec.sensitivity_is_exact(pattern))
      np.testing.assert_allclose(
          spec.squared_sensitivity(pattern), same.squared_sensitivity(pattern)
      )

  def test_signed_matrices_are_bounded(self):
    rng = np.random.default_rng(0)
    matrix = np.tril(rng.standard_normal((8, 8)), -1) + np.eye(8)
    spec = dense.Dense(8, matrix)
    pattern = patterns.MinSeparationPattern(8, min_index_gap=2)
    self.assertFalse(spec.sensitivity_is_exact(pattern))
    by_round = spec.squared_sensitivity_by_round(pattern)
    self.assertGreaterEqual(np.diff(by_round).min(), 0)
    self.assertEqual(by_round[-1], spec.squared_sensitivity(pattern))

  def test_memory_is_a_vector_per_earlier_round(self):
    self.assertEqual(dense.Dense(9, np.eye(9)).state_copies, 8)
    self.assertEqual(dense.Dense(4, np.eye(9)).state_copies, 3)
    self.assertEqual(dense.Dense(1, [[2.0]]).state_copies, 0)

  def test_optimized_has_no_more_error_than_the_square_root(self):
    pattern = patterns.FixedOrderPattern(24, rounds_per_epoch=8)
    spec = dense.Dense.optimized(pattern, error='mean')
    root = toeplitz.Toeplitz.square_root(24)

    def loss(spec):
      return spec.squared_sensitivity(pattern) * spec.prefix_variances().mean()

    self.assertLess(loss(spec), loss(root))

  def test_a_horizon_beyond_the_limit_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_rounds=257'):
      dense.Dense(257, np.eye(257))
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_rounds=257'):
      dense.Dense.optimized(patterns.MinSeparationPattern(257))

  @parameterized.named_parameters(
      ('small', np.eye(2), 'matrix=.2 rows'),
      ('ragged', [[1.0], [1.0, 1.0], [1.0, 1.0, 1.0]], 'matrix=.3 rows of'),
      ('wide', np.eye(3, 4), 'matrix=.3 rows of'),
      ('upper', np.ones((3, 3)), r'matrix\[0\]='),
      ('zero', np.diag([1.0, 0.0, 1.0]), r'matrix\[1\]='),
      ('negative', np.diag([1.0, 1.0, -1.0]), r'matrix\[2\]='),
      ('underflow', np.diag([1.0, 1.0, 1e-50]), r'matrix\[2\]='),
      ('nan', np.diag([1.0, np.nan, 1.0]), 'matrix='),
      ('flat', np.ones(9), 'matrix='),
      ('number', 3.0, 'matrix=3.0'),
      (
          'overflow',
          [[1e-30, 0, 0], [1e30, 1e-30, 0], [0, 0, 1]],
          'matrix=.* inverse is finite',
      ),
  )
  def test_bad_matrices_are_named(self, matrix, message):
    with self.assertRaisesRegex(_checks.ArgumentError, '^' + message):
      dense.Dense(3, matrix)

  def test_has_no_restarts(self):
    with self.assertRaises(TypeError):
      dense.Dense(3, np.eye(3), restart_every=2)


if __name__ == '__main__':
  absltest.main()
