# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the noise of a silo: round trips, an attack."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_sampling

_POISSON = silo_sampling.PoissonSampling(100)
_FIXED = silo_sampling.FixedSize(100)
_BLOCKS = silo_sampling.DisjointBlocks(35)
_SILO = dict(num_records=1238, num_rounds=35, l2_norm_clip=2.5, delta=6.5e-7)


def _calibrated(sampling, **changes) -> float:
  return silo_calibration.calibrate_noise(sampling, **(_SILO | changes))


class RoundTripTest(parameterized.TestCase):

  @parameterized.product(
      sampling=(_POISSON, _FIXED, _BLOCKS, silo_sampling.PoissonSampling(1238)),
      epsilon=(0.1, 1.0, 8.0),
      published_proofs=(False, True),
  )
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

  def test_scales_with_the_clip_and_the_batch(self):
    # Not with 1/n as an average over all records would.
    small = _calibrated(_BLOCKS, epsilon=1.0, l2_norm_clip=1.0)
    large = _calibrated(_BLOCKS, epsilon=1.0, l2_norm_clip=10.0)
    self.assertAlmostEqual(large, 10 * small)
    wide = _calibrated(
        silo_sampling.DisjointBlocks(70), epsilon=1.0, num_rounds=17,
        l2_norm_clip=1.0,
    )
    self.assertAlmostEqual(wide, small / 2)
    self.assertAlmostEqual(
        35 * small,
        2 * gaussian.sigma_for(epsilon=1.0, delta=_SILO['delta']),
    )

  def test_more_noise_for_more_rounds_and_less_for_more_records(self):
    def noise(**changes):
      return _calibrated(_POISSON, epsilon=1.0, **changes)

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


if __name__ == '__main__':
  absltest.main()
