# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""BLT noise: the contract, the materialised matrix, the stable domain."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz

_PARAMETERS = (
    ((0.3, 0.2, 0.1), (0.999, 0.9, 0.3)),
    ((0.5,), (1.0,)),
    ((0.4, 0.6), (0.0, 0.0)),
    ((0.0, 0.2), (0.5, 0.5)),
    ((0.125,) * 8, tuple(np.linspace(0.1, 1.0, 8).tolist())),
)


class ContractTest(contract.MechanismContract, parameterized.TestCase):
  SPECS = (
      *(blt.Blt(10, *parameters) for parameters in _PARAMETERS),
      blt.Blt(12, *_PARAMETERS[0], restart_every=5),
      blt.Blt(9, *_PARAMETERS[0], restart_every=1),
  )


class BltTest(parameterized.TestCase):

  @parameterized.parameters(*_PARAMETERS)
  def test_equals_its_materialised_matrix(self, weights, decays):
    spec = blt.Blt(12, weights, decays)
    # Straight from the definition, with the numbers as they were rounded.
    column = [1.0] + [
        sum(w * th**j for w, th in zip(spec.weights, spec.decays))
        for j in range(11)
    ]
    matrix = brute_force.block_diagonal(column, 12)
    residuals, _ = contract.noise_matrix(spec)
    np.testing.assert_allclose(residuals @ matrix, np.eye(12), atol=1e-12)
    np.testing.assert_allclose(spec.column(12), column)
    pattern = patterns.MinSeparationPattern(
        12, min_index_gap=3, max_participations=3
    )
    self.assertTrue(spec.sensitivity_is_exact(pattern))
    self.assertAlmostEqual(
        spec.squared_sensitivity(pattern),
        brute_force.worst_signed(matrix[:12, :12], pattern),
    )

  @parameterized.parameters(*_PARAMETERS)
  def test_long_runs_are_exact_and_stable(self, weights, decays):
    spec = blt.Blt(2048, weights, decays)
    pattern = patterns.MinSeparationPattern(2048, min_index_gap=342)
    self.assertTrue(spec.sensitivity_is_exact(pattern))
    same = toeplitz.Toeplitz(2048, spec.column(2048))
    np.testing.assert_allclose(
        spec.squared_sensitivity(pattern),
        same.squared_sensitivity(pattern),
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        spec.prefix_variances(), same.prefix_variances(), rtol=1e-4
    )

  def test_memory_is_the_buffers(self):
    self.assertEqual(blt.Blt(9, *_PARAMETERS[0]).state_copies, 3)
    self.assertEqual(blt.Blt(9, *_PARAMETERS[0]).num_buffers, 3)

  def test_weights_whose_sum_rounds_above_one_are_rounded_down(self):
    weights = (0.5, 0.3, 0.2)
    self.assertGreater(sum(np.float32(weights).tolist()), 1)
    spec = blt.Blt(9, weights, (0.5, 0.5, 0.5))
    self.assertLessEqual(sum(spec.weights), 1)
    np.testing.assert_allclose(spec.weights, weights, rtol=1e-7)
    self.assertEqual(spec.weights, tuple(np.float32(spec.weights).tolist()))
    # What was rounded once stays what it is.
    self.assertEqual(blt.Blt(9, spec.weights, spec.decays), spec)

  def test_decays_are_rounded_to_float32(self):
    # Between 1 - 2^-24 and 1: float32 knows only these two.
    spec = blt.Blt(9, (0.1,), (1 - 1e-9,))
    self.assertEqual(spec.decays, (1.0,))
    self.assertEqual(spec.column(9)[-1], spec.weights[0])

  @parameterized.named_parameters(
      ('weight', dict(weights=(-0.1, 0.2)), 'weights='),
      ('sum', dict(weights=(0.6, 0.5)), 'weights=.* sum is at most 1'),
      ('decay_below', dict(decays=(-0.1, 0.2)), 'decays='),
      ('decay_above', dict(decays=(0.5, 1.001)), 'decays=.* from 0 to 1'),
      ('nan', dict(weights=(float('nan'), 0.1)), 'weights='),
      ('infinite', dict(decays=(float('inf'), 0.1)), 'decays='),
      ('lengths', dict(decays=(0.5,)), 'decays=.* as many numbers as weights'),
      ('none', dict(weights=(), decays=()), 'weights='),
      ('no_list', dict(weights=0.5), 'weights=0.5'),
      (
          'nine',
          dict(weights=(0.1,) * 9, decays=(0.1,) * 9),
          'weights=.* at most 8',
      ),
  )
  def test_bad_parameters_are_named(self, changed, message):
    arguments = dict(weights=(0.1, 0.2), decays=(0.9, 0.5)) | changed
    with self.assertRaisesRegex(_checks.ArgumentError, '^' + message):
      blt.Blt(9, **arguments)

  def test_optimized_is_in_the_domain_and_good(self):
    pattern = patterns.MinSeparationPattern(64, min_index_gap=16)
    spec = blt.Blt.optimized(pattern, num_buffers=2)
    root = toeplitz.Toeplitz.square_root(64)

    def loss(spec):
      return spec.squared_sensitivity(pattern) * spec.prefix_variances().max()

    self.assertEqual(spec.num_buffers, 2)
    self.assertLess(loss(spec), loss(root))

  @parameterized.parameters(0, 9, 1.5)
  def test_bad_buffer_counts_are_named(self, num_buffers):
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_buffers='):
      blt.Blt.optimized(
          patterns.MinSeparationPattern(9), num_buffers=num_buffers
      )


if __name__ == '__main__':
  absltest.main()
