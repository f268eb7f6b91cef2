# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of encoding and solving, against NumPy and SciPy."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import scipy.optimize
import tensorflow as tf

from tff_dp import _checks
from tff_dp.systems.dp_ftrl import least_squares


def _moments(seed, num_samples=30, num_features=4, *, noise=0.0):
  """Returns symmetric A and h of random samples, noised as a release is."""
  rng = np.random.default_rng(seed)
  x = rng.standard_normal([num_samples, num_features])
  y = np.clip(x[:, 0] - 0.5 * x[:, 1] + rng.standard_normal(num_samples), -1, 1)
  error = rng.standard_normal([num_features, num_features])
  second = x.T @ x + noise * (error + error.T)
  return second, x.T @ y + noise * rng.standard_normal(num_features)


def _objective(theta, second, cross, eta):
  return theta @ second @ theta - 2 * cross @ theta + theta @ theta / (2 * eta)


def _solve(second, cross, **arguments):
  solution = least_squares.solve(
      tf.constant(second), tf.constant(cross), **arguments
  )
  return solution.theta.numpy(), int(solution.num_raised)


class EncodingTest(parameterized.TestCase):

  @parameterized.parameters(1, 2, 5)
  def test_decode_is_the_inverse(self, num_features):
    second, cross = _moments(0, num_features=max(2, num_features))
    second = second[:num_features, :num_features].astype(np.float32)
    cross = cross[:num_features].astype(np.float32)
    moments = least_squares.encode(tf.constant(second), tf.constant(cross))
    self.assertEqual(moments.shape, [least_squares.num_moments(num_features)])
    again = least_squares.decode(moments, num_features=num_features)
    np.testing.assert_allclose(again[0], second, rtol=1e-6)
    np.testing.assert_array_equal(again[1], cross)

  def test_norm_is_that_of_the_pair(self):
    second, cross = _moments(1)
    moments = least_squares.encode(tf.constant(second), tf.constant(cross))
    self.assertAlmostEqual(
        float(tf.norm(moments)),
        np.hypot(np.linalg.norm(second), np.linalg.norm(cross)),
    )

  @parameterized.parameters(0.1, 1.0, 7.5)
  def test_bound_is_attained_by_the_largest_sample(self, bound):
    x = np.array([[0.6, -0.8]]) * bound
    moments = least_squares.encode(
        tf.constant(x.T @ x), tf.constant(-1.0 * x[0])
    )
    self.assertAlmostEqual(
        float(tf.norm(moments)), least_squares.moments_norm_bound(bound)
    )

  def test_bad_bound_is_named(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'feature_norm_bound=0'):
      least_squares.moments_norm_bound(0)


class BoundedSamplesTest(absltest.TestCase):

  def test_samples_within_the_bounds_are_left_alone(self):
    x = np.array([[0.3, -0.4], [0.0, 0.0], [2.0, 0.0]], np.float32)
    y = np.array([1.0, -0.5, 0.0], np.float32)
    bounded = least_squares.bounded_samples(x, y, feature_norm_bound=2.0)
    np.testing.assert_array_equal(bounded[0], x)
    np.testing.assert_array_equal(bounded[1], y)

  def test_samples_beyond_are_scaled_and_clipped(self):
    x, y = least_squares.bounded_samples(
        np.array([[3.0, -4.0], [3e18, 4e18]], np.float32),
        np.array([-7.0, 1e30], np.float32),
        feature_norm_bound=2.0,
    )
    np.testing.assert_allclose(x, [[1.2, -1.6], [1.2, 1.6]], rtol=1e-6)
    np.testing.assert_array_equal(y, [-1.0, 1.0])

  def test_bad_samples_are_zero_and_spare_the_others(self):
    bad = [np.nan, np.inf, -np.inf, 3e38]
    x = np.array([[0.5, value] for value in bad] + [[0.5, 0.5]] * 3, np.float32)
    y = np.array([1.0] * 4 + [np.nan, np.inf, 0.25], np.float32)
    x, y = least_squares.bounded_samples(x, y, feature_norm_bound=1.0)
    np.testing.assert_array_equal(x[:6], np.zeros([6, 2]))
    np.testing.assert_array_equal(y[:6], np.zeros([6]))
    np.testing.assert_array_equal(x[6], [0.5, 0.5])
    self.assertEqual(y[6], 0.25)


class SolveTest(parameterized.TestCase):

  @parameterized.product(seed=(0, 1), eta=(1e-3, 0.5, 1e3))
  def test_free_solution_is_ridge_regression(self, seed, eta):
    second, cross = _moments(seed)
    theta, num_raised = _solve(second, cross, learning_rate=eta)
    np.testing.assert_allclose(
        theta, np.linalg.solve(2 * second + np.eye(4) / eta, 2 * cross)
    )
    gradient = 2 * second @ theta - 2 * cross + theta / eta
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)
    self.assertEqual(num_raised, 0)

  @parameterized.product(seed=(0, 1), radius=(1e-6, 0.05, 0.4))
  def test_ball_fulfils_the_optimality_conditions(self, seed, radius):
    second, cross = _moments(seed)
    free, _ = _solve(second, cross, learning_rate=0.5)
    self.assertGreater(np.linalg.norm(free), radius)
    theta, _ = _solve(second, cross, learning_rate=0.5, radius=radius)
    self.assertAlmostEqual(np.linalg.norm(theta) / radius, 1.0, places=12)
    # The gradient points to the centre: -gradient = nu theta, nu >= 0.
    descent = 2 * cross - 2 * second @ theta - theta / 0.5
    nu = descent @ theta / radius**2
    self.assertGreater(nu, 0.0)
    np.testing.assert_allclose(
        descent, nu * theta, atol=1e-9 * np.linalg.norm(descent)
    )

  def test_ball_around_the_free_solution_changes_nothing(self):
    second, cross = _moments(0)
    free, _ = _solve(second, cross, learning_rate=0.5)
    norm = np.linalg.norm(free)
    for radius in (norm * (1 + 1e-9), 10 * norm):
      theta, _ = _solve(second, cross, learning_rate=0.5, radius=radius)
      np.testing.assert_array_equal(theta, free)

  def test_nothing_is_better_than_the_solution(self):
    second, cross = _moments(3)
    for radius in (None, 0.2):
      theta, _ = _solve(second, cross, learning_rate=0.5, radius=radius)
      limits = []
      if radius is not None:
        limits = [{'type': 'ineq', 'fun': lambda t: 0.2**2 - t @ t}]
      found = scipy.optimize.minimize(
          _objective,
          np.zeros(4),
          (second, cross, 0.5),
          method='SLSQP',
          constraints=limits,
          options=dict(ftol=1e-14, maxiter=500),
      )
      np.testing.assert_allclose(theta, found.x, atol=1e-6)
      self.assertLessEqual(
          _objective(theta, second, cross, 0.5), found.fun + 1e-9
      )

  @parameterized.parameters(*range(5))
  def test_indefinite_moments_give_a_bounded_model(self, seed):
    eta = 0.5
    second, cross = _moments(seed, num_samples=2, noise=30.0)
    eigenvalues = np.linalg.eigvalsh(2 * second)
    self.assertLess(eigenvalues.min(), -1 / eta)  # Or nothing would be raised.
    theta, num_raised = _solve(second, cross, learning_rate=eta)
    self.assertEqual(num_raised, np.sum(eigenvalues < 0))
    self.assertLessEqual(
        np.linalg.norm(theta), 2 * eta * np.linalg.norm(cross) * (1 + 1e-12)
    )
    # The free solution of the raised matrix, built the other way.
    values, vectors = np.linalg.eigh(2 * second + np.eye(4) / eta)
    raised = vectors @ np.diag(np.maximum(values, 1 / eta)) @ vectors.T
    np.testing.assert_allclose(theta, np.linalg.solve(raised, 2 * cross))
    theta, _ = _solve(second, cross, learning_rate=eta, radius=0.1)
    self.assertAlmostEqual(np.linalg.norm(theta), 0.1)

  def test_no_data_gives_zero(self):
    for radius in (None, 1.0):
      theta, _ = _solve(
          np.zeros([3, 3]), np.zeros(3), learning_rate=1.0, radius=radius
      )
      np.testing.assert_array_equal(theta, np.zeros(3))


if __name__ == '__main__':
  absltest.main()
