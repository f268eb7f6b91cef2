# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the published noise of silos: by hand, and what it costs."""

import math

from absl.testing import absltest
from absl.testing import parameterized

from tasks.reproduce.published import silo_noise
from tff_dp import _checks
from tff_dp.systems.silos import silo_sampling

_Formula = silo_noise.Formula
_POISSON = silo_sampling.PoissonSampling(100)
_FIXED = silo_sampling.FixedSize(100)
_BLOCKS = silo_sampling.DisjointBlocks(35)
_SILO = dict(num_records=1238, num_rounds=35, l2_norm_clip=2.5, delta=6.5e-7)


def _noise(formula, sampling, **changes) -> silo_noise.PublishedNoise:
  return silo_noise.noise(formula, sampling, **(_SILO | changes))


class FiguresTest(parameterized.TestCase):
  """One-pass noise, sigma K / C at epsilon 1 and delta 1/1238^2."""

  @parameterized.parameters(
      (_Formula.ZCDP_ONE_PASS, 15.1),
      (_Formula.PAPER_ONE_PASS, 21.9),
  )
  def test_one_pass_noise(self, formula, figure):
    found = _noise(formula, _BLOCKS, epsilon=1.0)
    self.assertEqual(round(found.noise_multiplier, 1), figure)
    self.assertAlmostEqual(found.sigma, found.noise_multiplier * 2.5 / 35)
    self.assertTrue(found.is_met)

  def test_advanced_composition_by_hand(self):
    found = _noise(_Formula.PAPER_ADVANCED_COMPOSITION, _POISSON, epsilon=2.0)
    squared = 256 * 2.5**2 * 35 * math.log(2.5 * 35 / 6.5e-7)
    squared *= math.log(2 / 6.5e-7) / (1238 * 2.0) ** 2
    self.assertAlmostEqual(found.sigma, math.sqrt(squared))
    self.assertEqual(found.unmet, ())
    self.assertTrue(found.is_met)

  def test_moments_by_hand(self):
    found = _noise(_Formula.PAPER_MOMENTS, _POISSON, epsilon=2.0)
    squared = 8 * 2.5**2 * 35 * math.log(1 / 6.5e-7) / (1238 * 2.0) ** 2
    self.assertAlmostEqual(found.sigma, math.sqrt(squared))
    self.assertEqual(
        silo_noise.paper_moments_batch(
            num_records=1238, num_rounds=35, largest_epsilon=18.0
        ),
        443,
    )

  @parameterized.parameters(8.0, 16.0)
  def test_a_formula_with_too_little_noise_is_told_on(self, epsilon):
    found = _noise(_Formula.PAPER_MOMENTS, _POISSON, epsilon=epsilon)
    self.assertFalse(found.is_met)
    self.assertGreater(found.epsilon, epsilon)

  def test_conditions_of_formulas(self):
    large = 2 * math.log(2 / 6.5e-7) + 1
    found = _noise(_Formula.PAPER_ONE_PASS, _BLOCKS, epsilon=large)
    self.assertLen(found.unmet, 1)
    found = _noise(_Formula.PAPER_ADVANCED_COMPOSITION, silo_sampling.PoissonSampling(2), epsilon=8.0)
    self.assertRegex(found.unmet[0], 'K=2 is below eps n')

  @parameterized.parameters(
      (_POISSON, _Formula.PAPER_ONE_PASS),
      (_FIXED, _Formula.ZCDP_ONE_PASS),
      (_BLOCKS, _Formula.PAPER_MOMENTS),
      (_BLOCKS, _Formula.PAPER_ADVANCED_COMPOSITION),
  )
  def test_formula_of_another_sampling(self, sampling, formula):
    with self.assertRaisesRegex(_checks.ArgumentError, 'formula='):
      _noise(formula, sampling, epsilon=1.0)


if __name__ == '__main__':
  absltest.main()
