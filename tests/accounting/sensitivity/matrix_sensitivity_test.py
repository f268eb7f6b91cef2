# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sensitivities of dense matrices against brute force."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tff_dp import _checks
from tff_dp.accounting.sensitivity import matrix_sensitivity
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity


def _matrix(kind, n, seed=0):
  """Returns a lower-triangular matrix of the kind."""
  rng = np.random.default_rng(seed)
  if kind == 'positive':
    return np.tril(rng.uniform(0.05, 1.0, (n, n)))
  if kind == 'signed':
    return np.tril(rng.standard_normal((n, n)))
  if kind == 'inverse':
    # Of the kind that an optimiser finds: positive Gram matrix, uneven rows.
    smooth = np.tril(0.7 ** np.abs(np.subtract.outer(range(n), range(n))))
    return smooth * rng.uniform(0.5, 1.5, n)[:, np.newaxis]
  if kind == 'three_bands':
    return np.triu(np.tril(rng.standard_normal((n, n))), -2)
  if kind == 'diagonal':
    return np.diag(rng.uniform(0.5, 2, n))
  column = np.cumprod([1.0] + [(2 * j - 1) / (2 * j) for j in range(1, n)])
  return brute_force.block_diagonal(column, n)


_KINDS = (
    'positive', 'signed', 'inverse', 'three_bands', 'diagonal', 'square_root'
)


def _min_separations(n):
  for gap in (1, 2, 3, 5, n):
    for most in (1, 2, 3, None):
      yield patterns.MinSeparationPattern(
          n, min_index_gap=gap, max_participations=most
      )


class ExactTest(parameterized.TestCase):

  @parameterized.product(kind=_KINDS, n=(1, 2, 6, 9))
  def test_one_participation(self, kind, n):
    matrix = _matrix(kind, n)
    for pattern in (
        patterns.MinSeparationPattern(n, max_participations=1),
        patterns.MinSeparationPattern(n, min_index_gap=n),
        patterns.OncePerTreePattern(n),
        patterns.FixedOrderPattern(n, rounds_per_epoch=n),
    ):
      self.assertTrue(matrix_sensitivity.is_exact(matrix, pattern))
      self.assertAlmostEqual(
          matrix_sensitivity.squared_sensitivity(matrix, pattern),
          np.sum(matrix**2, axis=0).max(),
      )

  @parameterized.product(
      kind=('positive', 'inverse', 'square_root'), n=(1, 5, 12), epoch=(1, 2, 5)
  )
  def test_fixed_order(self, kind, n, epoch):
    matrix = _matrix(kind, n)
    pattern = patterns.FixedOrderPattern(n, rounds_per_epoch=epoch)
    self.assertTrue(matrix_sensitivity.is_exact(matrix, pattern))
    self.assertAlmostEqual(
        matrix_sensitivity.squared_sensitivity(matrix, pattern),
        brute_force.worst_aligned(matrix, pattern),
    )

  @parameterized.product(
      kind=('three_bands', 'diagonal'), n=(4, 9, 10), gap=(3, 4, 6),
      most=(1, 2, 3, None), seed=(0, 1),
  )
  def test_disjoint_columns(self, kind, n, gap, most, seed):
    matrix = _matrix(kind, n, seed)
    pattern = patterns.MinSeparationPattern(
        n, min_index_gap=gap, max_participations=most
    )
    self.assertTrue(matrix_sensitivity.is_exact(matrix, pattern))
    self.assertAlmostEqual(
        matrix_sensitivity.squared_sensitivity(matrix, pattern),
        brute_force.worst_signed(matrix, pattern),
    )

  @parameterized.parameters(5, 12, 40)
  def test_monotone_toeplitz(self, n):
    matrix = _matrix('square_root', n)
    for pattern in _min_separations(n):
      self.assertTrue(matrix_sensitivity.is_exact(matrix, pattern))
      self.assertAlmostEqual(
          matrix_sensitivity.squared_sensitivity(matrix, pattern),
          toeplitz_sensitivity.squared_sensitivity(matrix[:, 0], pattern),
      )

  @parameterized.parameters('positive', 'inverse', 'square_root')
  def test_every_round_of_a_positive_matrix(self, kind):
    matrix = _matrix(kind, 12)
    pattern = patterns.MinSeparationPattern(12)
    self.assertTrue(matrix_sensitivity.is_exact(matrix, pattern))
    self.assertAlmostEqual(
        matrix_sensitivity.squared_sensitivity(matrix, pattern),
        np.sum(np.sum(matrix, axis=1) ** 2),
    )


class UpperBoundTest(parameterized.TestCase):

  @parameterized.product(kind=_KINDS, n=(1, 3, 8, 9), seed=(0, 1, 2))
  def test_never_below_any_signs(self, kind, n, seed):
    matrix = _matrix(kind, n, seed)
    for pattern in (
        *_min_separations(n),
        patterns.FixedOrderPattern(n, rounds_per_epoch=2),
        patterns.FixedOrderPattern(n, rounds_per_epoch=3),
    ):
      worst = brute_force.worst_signed(matrix, pattern)
      value = matrix_sensitivity.squared_sensitivity(matrix, pattern)
      self.assertGreaterEqual(value, worst * (1 - 1e-12), pattern)
      if matrix_sensitivity.is_exact(matrix, pattern):
        self.assertAlmostEqual(value, worst, msg=f'{pattern}')

  @parameterized.parameters(0, 1, 2, 3)
  def test_never_below_any_vectors(self, seed):
    matrix = _matrix('signed', 6, seed)
    for pattern in (
        patterns.MinSeparationPattern(6),
        patterns.MinSeparationPattern(6, min_index_gap=2),
        patterns.MinSeparationPattern(6, max_participations=3),
        patterns.FixedOrderPattern(6, rounds_per_epoch=2),
    ):
      self.assertGreaterEqual(
          matrix_sensitivity.squared_sensitivity(matrix, pattern),
          brute_force.worst_vectors(matrix, pattern) * (1 - 1e-12),
      )

  def test_vectors_can_be_worse_than_signs(self):
    # Three columns that pull away from each other: S2 is not a matter of signs,
    # and a bound by signs would be too small.
    gram = 2.0 * np.eye(3) - 0.5
    # Reversed Cholesky: X = C' C with C lower triangular.
    matrix = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    np.testing.assert_allclose(matrix.T @ matrix, gram, atol=1e-12)
    pattern = patterns.MinSeparationPattern(3)
    signed = brute_force.worst_signed(matrix, pattern)
    vectors = brute_force.worst_vectors(matrix, pattern, dimension=2)
    self.assertAlmostEqual(signed, 5.5)
    self.assertAlmostEqual(vectors, 6.0, places=4)
    self.assertGreaterEqual(
        matrix_sensitivity.squared_sensitivity(matrix, pattern), vectors
    )
    self.assertFalse(matrix_sensitivity.is_exact(matrix, pattern))

  @parameterized.parameters('positive', 'inverse')
  def test_is_close_for_positive_matrices(self, kind):
    for seed in range(5):
      matrix = _matrix(kind, 12, seed)
      for gap, most in ((2, 3), (3, None), (4, 2), (5, None)):
        pattern = patterns.MinSeparationPattern(
            12, min_index_gap=gap, max_participations=most
        )
        self.assertLess(
            matrix_sensitivity.squared_sensitivity(matrix, pattern),
            1.25 * brute_force.worst_aligned(matrix, pattern),
        )


class ByRoundTest(parameterized.TestCase):

  @parameterized.product(kind=_KINDS, seed=(0, 1))
  def test_equals_a_run_that_stops(self, kind, seed):
    matrix = _matrix(kind, 10, seed)
    for pattern in (
        *_min_separations(10),
        patterns.FixedOrderPattern(10, rounds_per_epoch=3),
        patterns.OncePerTreePattern(10),
    ):
      by_round = matrix_sensitivity.squared_sensitivity_by_round(
          matrix, pattern
      )
      stopped = [
          matrix_sensitivity.squared_sensitivity(
              matrix, pattern.truncated(stop)
          )
          for stop in range(1, 11)
      ]
      np.testing.assert_allclose(
          by_round, np.minimum.accumulate(stopped[::-1])[::-1]
      )
      if kind != 'signed' and kind != 'three_bands':
        np.testing.assert_allclose(by_round, stopped)
      for stop in range(1, 10):
        self.assertGreaterEqual(
            by_round[stop - 1] * (1 + 1e-12),
            brute_force.worst_signed(
                matrix[:stop, :stop], pattern.truncated(stop)
            ),
        )


  def test_never_decreases_even_if_the_bound_of_a_longer_run_does(self):
    # Columns that pull away from each other, until the last row turns them.
    gram = 2.0 * np.eye(3) - 0.5
    matrix = np.zeros((4, 4))
    matrix[:3, :3] = np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T
    matrix[3] = [0.5**0.5] * 3 + [0.01]
    pattern = patterns.MinSeparationPattern(4, max_participations=3)
    by_round = matrix_sensitivity.squared_sensitivity_by_round(matrix, pattern)
    self.assertLess(
        by_round[2],
        matrix_sensitivity.squared_sensitivity(matrix, pattern.truncated(3)),
    )
    self.assertGreaterEqual(np.diff(by_round).min(), 0)
    for stop in (1, 2, 3, 4):
      self.assertGreaterEqual(
          by_round[stop - 1] * (1 + 1e-12),
          brute_force.worst_vectors(
              matrix[:stop, :stop], pattern.truncated(stop)
          ),
      )


class OrderTest(parameterized.TestCase):

  @parameterized.parameters(*_KINDS)
  def test_monotone_in_participations_and_gap(self, kind):
    matrix = _matrix(kind, 30)

    def value(gap, most):
      return matrix_sensitivity.squared_sensitivity(
          matrix,
          patterns.MinSeparationPattern(
              30, min_index_gap=gap, max_participations=most
          ),
      )

    for gap in (1, 2, 3, 7, 11):
      for most in (1, 2, 3, 5, 15):
        slack = 1e-12 * value(gap, most)
        self.assertLessEqual(value(gap, most), value(gap, most + 1) + slack)
        self.assertLessEqual(value(gap + 1, most), value(gap, most) + slack)


class ResponseTest(parameterized.TestCase):

  @parameterized.parameters(*_KINDS)
  def test_equals_the_definition(self, kind):
    matrix = _matrix(kind, 7)
    gram = np.abs(matrix.T @ matrix)
    for bits in brute_force.allowed(patterns.MinSeparationPattern(7)):
      rounds = np.flatnonzero(bits) + 1
      value = matrix_sensitivity.squared_response(matrix, rounds)
      self.assertAlmostEqual(value, bits @ gram @ bits)
      if kind in ('positive', 'inverse', 'square_root'):
        self.assertAlmostEqual(value, np.sum((matrix @ bits) ** 2))


class ErrorsTest(absltest.TestCase):

  def test_names_the_argument(self):
    pattern = patterns.MinSeparationPattern(3)
    for matrix in (
        np.eye(2), np.ones((3, 3)), np.ones(9), np.full((3, 3), np.nan)
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, '^matrix='):
        matrix_sensitivity.squared_sensitivity(matrix, pattern)
    with self.assertRaisesRegex(TypeError, 'pattern=3 is not allowed'):
      matrix_sensitivity.squared_sensitivity(np.eye(3), 3)

  def test_a_longer_matrix_is_cut_off(self):
    matrix = _matrix('positive', 9)
    pattern = patterns.MinSeparationPattern(5, min_index_gap=2)
    self.assertEqual(
        matrix_sensitivity.squared_sensitivity(matrix, pattern),
        matrix_sensitivity.squared_sensitivity(matrix[:5, :5], pattern),
    )


if __name__ == '__main__':
  absltest.main()
