# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Power series of Toeplitz matrices against the matrices themselves."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.mechanisms.matrix import toeplitz_algebra

_BLT = (
    ((0.3, 0.2, 0.1), (0.999, 0.9, 0.3)),
    ((0.5,), (1.0,)),
    ((0.4, 0.6), (0.0, 0.0)),
    ((0.0, 0.2), (0.5, 0.5)),
    ((1.0,), (0.0,)),
)


class SeriesTest(parameterized.TestCase):

  def test_first_cuts_off_and_continues_with_zeros(self):
    np.testing.assert_array_equal(toeplitz_algebra.first((1, 2, 3), 2), [1, 2])
    np.testing.assert_array_equal(
        toeplitz_algebra.first((1, 2), 4), [1, 2, 0, 0]
    )

  @parameterized.parameters(1, 2, 3, 50)
  def test_matrix_has_the_series_below_its_diagonal(self, n):
    matrix = toeplitz_algebra.matrix(np.arange(1, 6), n)
    for i in range(n):
      for j in range(n):
        expected = i - j + 1 if 0 <= i - j < 5 else 0
        self.assertEqual(matrix[i, j], expected)

  @parameterized.parameters(1, 2, 3, 200)
  def test_square_root_is_one(self, n):
    root = toeplitz_algebra.matrix(
        toeplitz_algebra.square_root_coefficients(n), n
    )
    np.testing.assert_allclose(
        root @ root, np.tril(np.ones((n, n))), atol=1e-12
    )

  @parameterized.parameters(1, 2, 3, 2048)
  def test_inverse_square_root_is_its_inverse(self, n):
    coefficients = toeplitz_algebra.square_root_coefficients(n)
    self.assertLen(coefficients, n)
    np.testing.assert_allclose(
        toeplitz_algebra.inverse(coefficients, n),
        toeplitz_algebra.inverse_square_root_coefficients(n),
        atol=1e-15,
    )

  def test_known_coefficients(self):
    np.testing.assert_allclose(
        toeplitz_algebra.square_root_coefficients(4), [1, 1 / 2, 3 / 8, 5 / 16]
    )
    np.testing.assert_allclose(
        toeplitz_algebra.inverse_square_root_coefficients(4),
        [1, -1 / 2, -1 / 8, -1 / 16],
    )

  @parameterized.parameters(((2.0,),), ((1.0, 0.5),), ((2.0, -1.0, 0.5, 3.0),))
  def test_inverse_times_matrix_is_the_identity(self, coefficients):
    n = 12
    inverse = toeplitz_algebra.inverse(coefficients, n)
    np.testing.assert_allclose(
        toeplitz_algebra.matrix(inverse, n)
        @ toeplitz_algebra.matrix(coefficients, n),
        np.eye(n),
        atol=1e-9,
    )
    self.assertLen(toeplitz_algebra.inverse(coefficients, 1), 1)


class BltTest(parameterized.TestCase):

  @parameterized.parameters(*_BLT)
  def test_coefficients_are_sums_of_powers(self, weights, decays):
    column = toeplitz_algebra.blt_coefficients(weights, decays, 8)
    self.assertEqual(column[0], 1)
    for j in range(1, 8):
      self.assertAlmostEqual(
          column[j],
          sum(w * th ** (j - 1) for w, th in zip(weights, decays)),
      )

  @parameterized.product(parameters=_BLT, n=(1, 2, 3, 2048))
  def test_inverse_is_that_of_the_series(self, parameters, n):
    column = toeplitz_algebra.blt_coefficients(*parameters, n)
    inverse = toeplitz_algebra.blt_inverse_coefficients(*parameters, n)
    self.assertLen(inverse, n)
    np.testing.assert_allclose(
        inverse, toeplitz_algebra.inverse(column, n), atol=1e-13
    )

  def test_inverse_stays_accurate_next_to_the_border_of_the_domain(self):
    # Exact rational arithmetic: (1 - x) / (1 - x + w x) for a single buffer.
    weight, n = 2.0**-20, 20_000
    inverse = toeplitz_algebra.blt_inverse_coefficients((weight,), (1.0,), n)
    expected = -weight * (1 - weight) ** np.arange(n - 1)
    np.testing.assert_allclose(inverse[1:], expected, rtol=1e-10)


class VariancesTest(parameterized.TestCase):

  @parameterized.parameters(1, 5, 30)
  def test_are_row_norms(self, n):
    inverse = toeplitz_algebra.inverse_square_root_coefficients(n)
    matrix = toeplitz_algebra.matrix(inverse, n)
    np.testing.assert_allclose(
        toeplitz_algebra.round_variances(inverse, n),
        np.sum(matrix**2, axis=1),
    )
    np.testing.assert_allclose(
        toeplitz_algebra.prefix_variances(inverse, n),
        np.sum(np.cumsum(matrix, axis=0) ** 2, axis=1),
    )

  def test_without_correlation_they_grow_with_the_rounds(self):
    np.testing.assert_array_equal(
        toeplitz_algebra.prefix_variances([1.0], 4), [1, 2, 3, 4]
    )
    np.testing.assert_array_equal(
        toeplitz_algebra.round_variances([1.0], 4), [1, 1, 1, 1]
    )


if __name__ == '__main__':
  absltest.main()
