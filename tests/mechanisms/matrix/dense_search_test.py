# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the dense optimiser, against bounds that nothing can beat."""

import time

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import linalg
from scipy import optimize as scipy_optimize

from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import dense
from tff_dp.mechanisms.matrix import toeplitz


def _once(num_rounds):
  return patterns.MinSeparationPattern(num_rounds, max_participations=1)


def _error(mechanism, pattern, error='mean'):
  variances = mechanism.prefix_variances()
  variance = np.max(variances) if error == 'max' else np.mean(variances)
  return np.sqrt(mechanism.squared_sensitivity(pattern) * variance)


def _lower_bound(num_rounds):
  """Returns a bound on sqrt(S2 mean Var) for one participation, by duality.

  With X = C'C, diag(X) <= 1 and G = A'A, any v > 0 gives
  tr(G X^-1) >= tr(G X^-1) + tr(diag(v) X) - sum(v)
             >= 2 tr((v^1/2 G v^1/2)^1/2) - sum(v).
  """
  workload = np.tril(np.ones((num_rounds, num_rounds)))
  gram = workload.T @ workload
  v = np.ones(num_rounds)
  for _ in range(300):  # The fixed point makes the bound tight.
    root = np.sqrt(v)
    v = np.diag(linalg.sqrtm(np.outer(root, root) * gram)).real
  root = np.sqrt(v)
  trace = np.trace(linalg.sqrtm(np.outer(root, root) * gram)).real
  return np.sqrt((2 * trace - v.sum()) / num_rounds)


class DenseOptimizationTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 3, 8, 32, 64)
  def test_reaches_the_bound_for_one_participation(self, num_rounds):
    found = dense.Dense.optimized(_once(num_rounds), error='mean')
    error = _error(found, _once(num_rounds))
    bound = _lower_bound(num_rounds)
    self.assertBetween(error, bound * (1 - 1e-6), bound * (1 + 1e-6))

  def test_no_mechanism_beats_the_bound(self):
    bound = _lower_bound(32)
    for mechanism in (
        toeplitz.Toeplitz.optimized(_once(32), error='mean'),
        toeplitz.Banded.optimized(_once(32), 8, error='mean'),
    ):
      self.assertGreater(_error(mechanism, _once(32)), 1.01 * bound)

  def test_two_rounds_by_hand(self):
    # All that there is, with columns of norm 1.
    def largest(x):
      matrix = np.array([[np.sqrt(1 - x**2), 0.0], [x, 1.0]])
      decoder = np.tril(np.ones((2, 2))) @ np.linalg.inv(matrix)
      return np.max(np.sum(decoder**2, axis=1))

    least = scipy_optimize.minimize_scalar(
        largest, bounds=(0, 0.99), method='bounded', options=dict(xatol=1e-10)
    ).fun
    found = dense.Dense.optimized(_once(2), error='max')
    np.testing.assert_allclose(
        _error(found, _once(2), 'max'), np.sqrt(least), rtol=1e-3
    )

  @parameterized.product(
      error=('max', 'mean'),
      pattern=(
          _once(24),
          patterns.MinSeparationPattern(
              24, min_index_gap=6, max_participations=3
          ),
          patterns.MinSeparationPattern(24, min_index_gap=6),
          patterns.MinSeparationPattern(24, max_participations=2),
          patterns.FixedOrderPattern(24, rounds_per_epoch=8),
          patterns.OncePerTreePattern(24),
      ),
  )
  def test_never_worse_than_toeplitz_and_banded(self, error, pattern):
    found = dense.Dense.optimized(pattern, error=error)
    others = [
        toeplitz.Toeplitz.optimized(pattern, error=error),
        toeplitz.Banded.optimized(
            pattern,
            24 if pattern.max_participations == 1 else pattern.min_index_gap,
            error=error,
        ),
    ]
    for other in others:
      self.assertLessEqual(
          _error(found, pattern, error),
          _error(other, pattern, error) * (1 + 1e-6),
      )

  @parameterized.parameters('max', 'mean')
  def test_gains_over_toeplitz(self, error):
    pattern = patterns.MinSeparationPattern(
        48, min_index_gap=12, max_participations=4
    )
    found = dense.Dense.optimized(pattern, error=error)
    other = toeplitz.Toeplitz.optimized(pattern, error=error)
    self.assertLess(
        _error(found, pattern, error), 0.99 * _error(other, pattern, error)
    )
    self.assertTrue(found.sensitivity_is_exact(pattern))

  @parameterized.product(error=('max', 'mean'), bands=(2, 6))
  def test_gradient(self, error, bands):
    rng = np.random.default_rng(0)
    free = np.nonzero(np.tril(np.triu(np.ones((6, 6)), 1 - bands)))
    order, _ = dense._ORDERS[error][0]
    entries = rng.uniform(0.2, 1.0, size=len(free[0]))
    difference = scipy_optimize.check_grad(
        lambda x: dense._log_error(x, free, 6, order)[0],
        lambda x: dense._log_error(x, free, 6, order)[1],
        entries,
    )
    self.assertLess(difference, 1e-6)

  def test_quick(self):
    start = time.process_time()
    dense.Dense.optimized(_once(64))
    self.assertLess(time.process_time() - start, 10.0)

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, 'num_rounds=257 .* 256'):
      dense.optimize(_once(257))
    with self.assertRaisesRegex(ValueError, "error='median'"):
      dense.optimize(_once(5), error='median')


if __name__ == '__main__':
  absltest.main()
