# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Toeplitz noise: the contract, the square root, published errors, errors."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.mechanisms import contract
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.mechanisms.matrix import toeplitz_algebra

_SIGNED = (1.0, -0.3, 0.6, -0.2, 0.1, 0.4, 0.2, 0.0, 0.1, 0.0, 0.3, -0.1)


class ContractTest(contract.MechanismContract, parameterized.TestCase):
  SPECS = (
      toeplitz.Toeplitz.square_root(11),
      toeplitz.Toeplitz.square_root(12, restart_every=5),
      toeplitz.Toeplitz.square_root(9, restart_every=3),
      toeplitz.Toeplitz.square_root(9, restart_every=1),
      toeplitz.Toeplitz.square_root(9, restart_every=20),
      # Longer than the run, and not monotone.
      toeplitz.Toeplitz(9, _SIGNED),
      toeplitz.Toeplitz(10, _SIGNED, restart_every=4),
  )


class ToeplitzTest(parameterized.TestCase):

  def test_square_root_is_rounded_to_float32(self):
    coefficients = toeplitz.Toeplitz.square_root(50).coefficients
    exact = toeplitz_algebra.square_root_coefficients(50)
    self.assertEqual(coefficients, tuple(np.float32(exact).tolist()))
    self.assertNotEqual(coefficients, tuple(exact.tolist()))

  def test_keeps_all_rounds_of_a_tree(self):
    self.assertEqual(toeplitz.Toeplitz.square_root(9).state_copies, 8)
    self.assertEqual(
        toeplitz.Toeplitz.square_root(9, restart_every=4).state_copies, 3
    )

  def test_published_errors_at_equal_privacy(self):
    # sqrt(S2 * mean variance) of the prefix sums, 2048 rounds, 6 participations
    # 342 rounds apart: the table of the specification, section 2.5.
    pattern = patterns.MinSeparationPattern(
        2048, min_index_gap=342, max_participations=6
    )
    for spec, expected, places in (
        (mechanism_lib.Independent(2048), 78, 0),
        (tree.Tree(2048), 25, 0),
        (tree.HonakerTree(2048), 19, 0),
        (toeplitz.Toeplitz.square_root(2048), 10.9, 1),
        (toeplitz.Banded.square_root(2048, 342), 9.0, 1),
    ):
      error = np.sqrt(
          spec.squared_sensitivity(pattern) * np.mean(spec.prefix_variances())
      )
      self.assertAlmostEqual(error, expected, delta=0.5 * 10**-places)

  @parameterized.named_parameters(
      ('short', dict(coefficients=(1.0, 0.5)), 'coefficients=.2 numbers'),
      ('first', dict(coefficients=(0.5,) * 4), r'coefficients\[0\]=0.5'),
      ('nan', dict(coefficients=(1.0, np.nan, 0, 0)), 'coefficients='),
      ('infinite', dict(coefficients=(1.0, 1e39, 0, 0)), 'coefficients='),
      ('empty', dict(coefficients=()), 'coefficients='),
      ('no_list', dict(coefficients=1.0), 'coefficients=1.0'),
      ('text', dict(coefficients=('a',) * 4), 'coefficients='),
      ('nested', dict(coefficients=((1.0,),) * 4), 'coefficients='),
      ('grows', dict(coefficients=(1.0, 1e15, 1e30, 0)), 'coefficients='),
  )
  def test_bad_arguments_are_named(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      toeplitz.Toeplitz(4, **arguments)

  @parameterized.parameters(0, True, 1.5, None)
  def test_bad_horizons_are_named(self, num_rounds):
    with self.assertRaisesRegex(_checks.ArgumentError, '^num_rounds='):
      toeplitz.Toeplitz.square_root(num_rounds)
    with self.assertRaisesRegex(_checks.ArgumentError, '^restart_every=0'):
      toeplitz.Toeplitz.square_root(4, restart_every=0)

  @parameterized.parameters('max', 'mean')
  def test_optimized_has_less_error(self, error):
    pattern = patterns.MinSeparationPattern(64, min_index_gap=16)
    spec = toeplitz.Toeplitz.optimized(pattern, error=error)
    root = toeplitz.Toeplitz.square_root(64)

    def loss(spec):
      variances = spec.prefix_variances()
      reduced = variances.max() if error == 'max' else variances.mean()
      return spec.squared_sensitivity(pattern) * reduced

    self.assertLess(loss(spec), loss(root))
    self.assertTrue(spec.sensitivity_is_exact(pattern))

  def test_only_a_participation_can_be_optimized_for(self):
    with self.assertRaisesRegex(TypeError, 'participation=64'):
      toeplitz.Toeplitz.optimized(64)


if __name__ == '__main__':
  absltest.main()
