# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the noise of a silo: published figures, round trips, an attack."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.silos import silo_calibration
from tff_dp.accounting.silos import silo_sampling

_Calibration = silo_calibration.NoiseCalibration
_POISSON = silo_sampling.PoissonSampling(100)
_FIXED = silo_sampling.FixedSize(100)
_BLOCKS = silo_sampling.DisjointBlocks(35)
_SILO = dict(num_records=1238, num_rounds=35, l2_norm_clip=2.5, delta=6.5e-7)


def _calibrated(sampling, **changes):
  return silo_calibration.calibrated(sampling, **(_SILO | changes))


class FiguresTest(parameterized.TestCase):
  """One-pass noise, sigma K / C at epsilon 1 and delta 1/1238^2."""

  @parameterized.parameters(
      (_Calibration.NUMERIC, 8.6),
      (_Calibration.ZCDP_ONE_PASS, 15.1),
      (_Calibration.PAPER_ONE_PASS, 21.9),
  )
  def test_one_pass_noise(self, calibration, figure):
    found = _calibrated(_BLOCKS, epsilon=1.0, calibration=calibration)
    self.assertEqual(round(found.noise_multiplier, 1), figure)
    self.assertAlmostEqual(found.sigma, found.noise_multiplier * 2.5 / 35)
    self.assertTrue(found.is_met)

  def test_advanced_composition_by_hand(self):
    found = _calibrated(
        _POISSON,
        epsilon=2.0,
        calibration=_Calibration.PAPER_ADVANCED_COMPOSITION,
    )
    squared = 256 * 2.5**2 * 35 * math.log(2.5 * 35 / 6.5e-7)
    squared *= math.log(2 / 6.5e-7) / (1238 * 2.0) ** 2
    self.assertAlmostEqual(found.sigma, math.sqrt(squared))
    self.assertEqual(found.unmet, ())
    self.assertIn('looser by', found.verdict)

  def test_moments_by_hand(self):
    found = _calibrated(
        _POISSON, epsilon=2.0, calibration=_Calibration.PAPER_MOMENTS
    )
    squared = 8 * 2.5**2 * 35 * math.log(1 / 6.5e-7) / (1238 * 2.0) ** 2
    self.assertAlmostEqual(found.sigma, math.sqrt(squared))
    self.assertEqual(
        silo_calibration.paper_moments_batch(
            num_records=1238, num_rounds=35, largest_epsilon=18.0
        ),
        443,
    )

  @parameterized.parameters(8.0, 16.0)
  def test_a_formula_with_too_little_noise_is_told_on(self, epsilon):
    found = _calibrated(
        _POISSON, epsilon=epsilon, calibration=_Calibration.PAPER_MOMENTS
    )
    self.assertFalse(found.is_met)
    self.assertGreater(found.epsilon, epsilon)
    self.assertLess(found.ratio, 1.0)
    self.assertIn('NOT met', found.verdict)
    self.assertFalse(found.to_json()['is_met'])

  def test_conditions_of_formulas(self):
    large = 2 * math.log(2 / 6.5e-7) + 1
    found = _calibrated(
        _BLOCKS, epsilon=large, calibration=_Calibration.PAPER_ONE_PASS
    )
    self.assertLen(found.unmet, 1)
    found = _calibrated(
        silo_sampling.PoissonSampling(2),
        epsilon=8.0,
        calibration=_Calibration.PAPER_ADVANCED_COMPOSITION,
    )
    self.assertRegex(found.unmet[0], 'K=2 is below eps n')


class RoundTripTest(parameterized.TestCase):

  @parameterized.product(
      sampling=(_POISSON, _FIXED, _BLOCKS, silo_sampling.PoissonSampling(1238)),
      epsilon=(0.1, 1.0, 8.0),
      published_proofs=(False, True),
  )
  @pytest.mark.long_grid
  def test_spends_the_budget_and_hardly_less(
      self, sampling, epsilon, published_proofs
  ):
    sigma = silo_calibration.calibrate_noise(
        sampling, epsilon=epsilon, published_proofs=published_proofs, **_SILO
    )
    spent = silo_sampling.account_noise(
        sampling, sigma=sigma, published_proofs=published_proofs, **_SILO
    )
    self.assertBetween(spent, 0.99 * epsilon, epsilon)
    found = _calibrated(
        sampling, epsilon=epsilon, published_proofs=published_proofs
    )
    self.assertEqual((found.sigma, found.epsilon), (sigma, spent))
    self.assertEndsWith(found.verdict, 'met')

  def test_scales_with_the_clip_and_the_batch(self):
    # Not with 1/n as an average over all records would.
    small = _calibrated(_BLOCKS, epsilon=1.0, l2_norm_clip=1.0)
    large = _calibrated(_BLOCKS, epsilon=1.0, l2_norm_clip=10.0)
    self.assertAlmostEqual(large.sigma, 10 * small.sigma)
    wide = _calibrated(
        silo_sampling.DisjointBlocks(70), epsilon=1.0, num_rounds=17,
        l2_norm_clip=1.0,
    )
    self.assertAlmostEqual(wide.sigma, small.sigma / 2)
    self.assertAlmostEqual(
        small.noise_multiplier,
        2 * gaussian.sigma_for(epsilon=1.0, delta=_SILO['delta']),
    )

  def test_more_noise_for_more_rounds_and_less_for_more_records(self):
    def noise(**changes):
      return _calibrated(_POISSON, epsilon=1.0, **changes).sigma

    self.assertGreater(noise(num_rounds=70), noise())
    self.assertLess(noise(num_records=2476), noise())
    self.assertGreater(noise(delta=1e-9), noise())
    self.assertGreater(noise(published_proofs=True), noise())


class AttackTest(parameterized.TestCase):
  """A likelihood-ratio attack on the messages themselves."""

  @parameterized.product(kind=('one-pass', 'poisson', 'fixed'))
  def test_true_noise_passes_and_half_the_noise_is_caught(self, kind):
    n, batch, rounds, epsilon, delta = 40, 20, 2, 1.0, 1e-2
    sampling = silo_sampling.build(kind, batch)
    sigma = silo_calibration.calibrate_noise(
        sampling,
        num_records=n,
        num_rounds=rounds,
        l2_norm_clip=1.0,
        epsilon=epsilon,
        delta=delta,
    )

    def attained(sigma):
      """Returns the delta that an attacker of both rounds gets at epsilon."""
      axis = np.linspace(-1, 1, 1501) * (0.2 + 9 * sigma)
      cell = (axis[1] - axis[0]) ** 2
      here, rest, there = 1 / batch, 0.0, -1 / batch
      if kind == 'fixed':
        rest = there  # All other records are like the new one.
      q = batch / n if kind != 'one-pass' else 1.0
      base = (1 - q) * stats.norm.pdf(axis, rest, sigma)
      p = base + q * stats.norm.pdf(axis, here, sigma)
      r = base + q * stats.norm.pdf(axis, there, sigma)
      # In a pass the record is in one round only; nothing is learnt elsewhere.
      other = (r, r) if kind == 'one-pass' else (p, r)
      p, r = np.outer(p, other[0]), np.outer(r, other[1])
      e = math.exp(epsilon)
      return max(np.maximum(p - e * r, 0).sum(), np.maximum(r - e * p, 0).sum()
                ) * cell

    self.assertLessEqual(attained(sigma), delta)
    self.assertGreater(attained(sigma), 0.7 * delta)
    # What forgetting the factor 2 of replacement would add.
    self.assertGreater(attained(sigma / 2), 5 * delta)


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('epsilon', 0), ('epsilon', math.nan), ('delta', 0), ('delta', 1),
      ('l2_norm_clip', 0), ('num_rounds', 0), ('num_records', 99),
  )
  def test_names_the_argument(self, name, value):
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}={value}'):
      _calibrated(_POISSON, **({'epsilon': 1.0} | {name: value}))

  @parameterized.parameters(
      (_POISSON, _Calibration.PAPER_ONE_PASS),
      (_FIXED, _Calibration.ZCDP_ONE_PASS),
      (_BLOCKS, _Calibration.PAPER_MOMENTS),
      (_BLOCKS, _Calibration.PAPER_ADVANCED_COMPOSITION),
  )
  def test_formula_of_another_sampling(self, sampling, calibration):
    with self.assertRaisesRegex(_checks.ArgumentError, 'calibration='):
      _calibrated(sampling, epsilon=1.0, calibration=calibration)

  def test_explicit_needs_sigma_and_others_refuse_it(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'sigma=None'):
      _calibrated(_POISSON, calibration=_Calibration.EXPLICIT)
    with self.assertRaisesRegex(_checks.ArgumentError, 'sigma=1.0'):
      _calibrated(_POISSON, epsilon=1.0, sigma=1.0)

  def test_explicit_reports_what_it_costs(self):
    found = _calibrated(
        _POISSON, sigma=0.2, calibration=_Calibration.EXPLICIT
    )
    self.assertIsNone(found.ratio)
    self.assertTrue(found.is_met)
    self.assertAlmostEqual(found.noise_multiplier, 8.0)
    self.assertIn('sigma that was given', found.verdict)
    none = _calibrated(_POISSON, sigma=0.0, calibration=_Calibration.EXPLICIT)
    self.assertEqual(none.epsilon, math.inf)
    self.assertEqual(none.to_json()['epsilon'], 'inf')
    compared = _calibrated(
        _POISSON, sigma=0.01, epsilon=1.0, calibration=_Calibration.EXPLICIT
    )
    self.assertFalse(compared.is_met)


if __name__ == '__main__':
  absltest.main()
