# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What is measured of noise: right noise passes, other noise does not."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import mechanisms
from tff_dp.export import noise

_NUM, _PARAMS = 400, 20


def _drawn(covariance, *, seed=0, num=_NUM, num_params=_PARAMS):
  """Returns noise of a covariance of rounds, [num, num_rounds, num_params]."""
  rng = np.random.default_rng(seed)
  factor = np.linalg.cholesky(covariance)
  white = rng.standard_normal([num, len(factor), num_params])
  return np.einsum('rs,nsp->nrp', factor, white)


class NoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      mechanisms.Independent(4),
      mechanisms.HonakerTree(4),
      mechanisms.Tree(4),
      mechanisms.Blt(4, (0.25,), (0.5,)),
      mechanisms.Banded.square_root(4, 2),
  )
  def test_covariance_has_the_variances_of_the_mechanism(self, mechanism):
    found = noise.covariance(mechanism, 3)
    np.testing.assert_allclose(
        np.diag(found), mechanism.round_variances()[:3], rtol=1e-6
    )
    # Prefix sums, too, so the parts beside the diagonal.
    sums = np.tril(np.ones([3, 3]))
    np.testing.assert_allclose(
        np.diag(sums @ found @ sums.T),
        mechanism.prefix_variances()[:3],
        rtol=1e-6,
    )

  def test_right_noise_passes(self):
    covariance = noise.covariance(mechanisms.HonakerTree(4), 3)
    for seed in range(20):
      drawn = 7.0 + _drawn(covariance, seed=seed)
      spread = noise.compare(drawn, covariance)
      self.assertEmpty(spread.wrong)
      self.assertAlmostEqual(spread.stddev, 1.0, delta=0.05)

  def test_other_noise_does_not(self):
    covariance = noise.covariance(mechanisms.HonakerTree(4), 3)
    drawn = _drawn(covariance)
    one_coordinate = drawn.copy()
    one_coordinate[:, :, 3] *= 0.5
    one_round = drawn.copy()
    one_round[:, 1] *= 0.5
    shared = drawn.copy()
    shared[:, :, 1] = shared[:, :, 0]
    nothing = drawn.copy()
    nothing[:, :, 5] = 0.0
    for name, other, message in (
        ('all of it', 0.9 * drawn, 'over all coordinates'),
        ('more', 1.1 * drawn, 'over all coordinates'),
        ('a coordinate', one_coordinate, 'standard deviation'),
        ('no noise in one', nothing, 'standard deviation'),
        ('a round', one_round, 'standard deviation'),
        ('shared', shared, 'correlated'),
        ('independent rounds', _drawn(np.eye(3)), ''),
        ('NaN', drawn * np.nan, 'not finite'),
    ):
      with self.subTest(name):
        spread = noise.compare(other, covariance)
        self.assertNotEmpty(spread.wrong)
        self.assertIn(message, spread.wrong)

  def test_false_alarms_and_power_are_as_stated(self):
    degrees, share = _NUM - 1, 1e-6 / 3 / 60
    # pylint: disable=protected-access
    least, most = noise._chi_square_bounds(degrees, share)
    law = stats.chi2(degrees)
    self.assertAlmostEqual((law.cdf(least) + law.sf(most)) / share, 1, places=6)
    seen = noise._seen(degrees, least)
    self.assertAlmostEqual(law.cdf(least / seen**2), 0.999, places=6)

  def test_laplace(self):
    rng = np.random.default_rng(1)
    drawn = 3.0 + rng.laplace(scale=0.25, size=[_NUM, _PARAMS])
    self.assertEmpty(noise.compare_laplace(drawn, 0.25).wrong)
    for scale in (0.2, 0.3):
      wrong = noise.compare_laplace(drawn, scale).wrong
      self.assertIn('standard deviation', wrong)

  def test_bits_of_keys(self):
    for num in (32, 400, 10_000):
      bits = noise.bits_seen(num)
      pairs = num * (num - 1) / 2
      self.assertLessEqual(math.exp(-pairs / 2**bits), 1e-6)
      self.assertGreater(math.exp(-pairs / 2 ** (bits + 1)), 1e-6)

  def test_bits_of_digests(self):
    rng = np.random.default_rng(2)
    words = rng.integers(-(2**63), 2**63 - 1, _NUM, np.int64)
    self.assertEqual(noise.constant_bits(words), 0)
    # 20 bits of data below random ones.
    self.assertEqual(noise.constant_bits(words & ~np.int64(0xFFFFF)), 20)


if __name__ == '__main__':
  absltest.main()
