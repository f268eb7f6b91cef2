# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for what the server makes of the sums."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

_COOLDOWN = workloads.Cooldown(share=0.4, final=0.1)


def _simulated(sums, factors, *, momentum, nesterov):
  """Returns (theta_1 - theta_{t+1}) / eta of SGD written as a loop."""
  buffer = moved = 0.0
  result = []
  for value, factor in zip(sums, factors, strict=True):
    buffer = momentum * buffer + value
    moved += factor * (momentum * buffer + value if nesterov else buffer)
    result.append(moved)
  return np.array(result)


class CooldownTest(parameterized.TestCase):

  @parameterized.parameters(
      (0.5, 0.2, 4, [1.0, 1.0, 0.6, 0.2]),
      (0.3, 0.0, 4, [1.0, 1.0, 0.5, 0.0]),
      (1.0, 0.5, 2, [0.75, 0.5]),
      (0.0, 0.1, 3, [1.0, 1.0, 1.0]),
      (0.1, 0.4, 30, [1.0] * 27 + [0.8, 0.6, 0.4]),
      (0.25, 0.05, 1, [0.05]),
  )
  def test_factors(self, share, final, num_rounds, expected):
    cooldown = workloads.Cooldown(share=share, final=final)
    factors = cooldown.factors(num_rounds)
    np.testing.assert_allclose(factors, expected, atol=1e-15)
    self.assertEqual(factors.dtype, np.float64)

  @parameterized.parameters(
      dict(share=-0.1), dict(share=1.5), dict(final=-1), dict(final=2),
      dict(share=float('nan')), dict(final=True),
  )
  def test_refuses(self, **fields):
    (name,) = fields
    with self.assertRaisesRegex(ValueError, f'{name}='):
      workloads.Cooldown(**fields)


class WorkloadTest(parameterized.TestCase):

  @parameterized.product(
      momentum=(0.0, 0.5, 0.9),
      nesterov=(False, True),
      cooldown=(None, _COOLDOWN, workloads.Cooldown()),
      num_rounds=(1, 2, 13),
  )
  def test_matrix_is_sgd_with_a_schedule(
      self, momentum, nesterov, cooldown, num_rounds
  ):
    workload = workloads.Workload(momentum, nesterov, cooldown)
    sums = np.random.default_rng(1).normal(size=num_rounds)
    expected = _simulated(
        sums,
        workload.factors(num_rounds),
        momentum=momentum,
        nesterov=nesterov,
    )
    matrix = workload.matrix(num_rounds)
    np.testing.assert_allclose(matrix @ sums, expected, rtol=1e-12)
    np.testing.assert_array_equal(matrix, np.tril(matrix))
    column = workload.coefficients(num_rounds)
    if cooldown is None:
      np.testing.assert_allclose(
          toeplitz_algebra.matrix(column, num_rounds), matrix, rtol=1e-12
      )
    else:
      self.assertIsNone(column)

  def test_default_is_the_prefix_sum(self):
    np.testing.assert_array_equal(
        workloads.Workload().matrix(4), np.tril(np.ones((4, 4)))
    )

  @parameterized.parameters(
      dict(momentum=1.0), dict(momentum=-0.1), dict(nesterov='yes'),
      dict(cooldown=0.5),
  )
  def test_refuses(self, **fields):
    (name,) = fields
    with self.assertRaisesRegex(ValueError, f'{name}='):
      workloads.Workload(**fields)


if __name__ == '__main__':
  absltest.main()
