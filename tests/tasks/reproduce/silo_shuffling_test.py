# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for silos behind a shuffler."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tasks.reproduce.published import silo_shuffling
from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.check_ins import shuffling
from tff_dp.systems.silos import silo_sampling


_RUN = dict(num_records=1238, num_rounds=10, delta=1e-6)


def _shuffled(sampling, noise_multiplier, *, num_silos=10_000):
  return silo_shuffling.shuffled_epsilon(
      sampling, noise_multiplier=noise_multiplier, num_silos=num_silos, **_RUN
  )


class ShuffledEpsilonTest(parameterized.TestCase):

  @parameterized.parameters(1, 25, 500)
  def test_few_silos_with_noise_for_records_are_not_amplified(self, num_silos):
    sampling = silo_sampling.PoissonSampling(100)
    self.assertEqual(
        _shuffled(sampling, 8.6, num_silos=num_silos),
        silo_sampling.epsilon(sampling, noise_multiplier=8.6, **_RUN),
    )

  def test_many_silos_with_noise_for_all_their_records_are(self):
    blocks = silo_sampling.DisjointBlocks(2)
    found = _shuffled(blocks, 6.0)
    alone = silo_sampling.epsilon(blocks, noise_multiplier=6.0, **_RUN)
    self.assertLess(found, 0.5 * alone)
    self.assertGreater(found, _shuffled(blocks, 6.0, num_silos=100_000))

  @parameterized.parameters('num_silos', 'noise_multiplier')
  def test_errors(self, name):
    settings = _RUN | dict(num_silos=10, noise_multiplier=1.0) | {name: 0}
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}=0'):
      silo_shuffling.shuffled_epsilon(silo_sampling.FixedSize(5), **settings)


class CalibrateTest(parameterized.TestCase):

  def _calibrated(self, num_silos, **changes):
    settings = dict(
        num_records=20, num_rounds=1, epsilon=0.5, delta=1e-6
    ) | changes
    return silo_shuffling.calibrate_shuffled_noise(
        silo_sampling.DisjointBlocks(1), num_silos=num_silos, **settings
    )

  def test_less_noise_with_more_silos_within_the_budget(self):
    found = [self._calibrated(num_silos) for num_silos in (300, 30_000)]
    for noise in found:
      self.assertLess(noise.noise_multiplier, noise.noise_multiplier_alone)
      self.assertLessEqual(noise.epsilon, 0.5)
      self.assertGreater(noise.epsilon, 0.499)
      self.assertGreater(noise.epsilon_alone, 0.6)
    self.assertLess(found[1].noise_multiplier, 0.5 * found[0].noise_multiplier)
    self.assertEqual(
        found[0].noise_multiplier_alone, found[1].noise_multiplier_alone
    )

  def test_noise_of_a_silo_alone_where_shuffling_does_not_help(self):
    noise = self._calibrated(10)
    self.assertEqual(noise.noise_multiplier, noise.noise_multiplier_alone)
    self.assertLessEqual(noise.epsilon, 0.5)
    self.assertAlmostEqual(
        noise.noise_multiplier / 2,
        gaussian.sigma_for(epsilon=0.5, delta=1e-6),
    )

  def test_errors(self):
    for name, value in (('epsilon', 0.0), ('num_silos', 0), ('delta', 1.0)):
      with self.assertRaisesRegex(_checks.ArgumentError, f'{name}={value}'):
        self._calibrated(**(dict(num_silos=5) | {name: value}))


class RoundProfileTest(parameterized.TestCase):

  @parameterized.product(batch=(1, 2), other=(-1.0, 0.0, 1.0))
  def test_two_silos_by_integration(self, batch, other):
    # Messages of a silo whose mean moves between -1/K and 1/K (others at 0),
    # and of one that may be anywhere; only the pair without order is seen.
    sigma = 8.0
    axis = np.linspace(-1 - 8 * sigma, 1 + 8 * sigma, 1601)
    cell = (axis[1] - axis[0]) ** 2
    theirs = stats.norm.pdf(axis, other, sigma)

    def pairs(mean):
      mine = stats.norm.pdf(axis, mean, sigma)
      ordered = np.outer(mine, theirs)
      return 0.5 * (ordered + ordered.T)

    p, q = pairs(1 / batch), pairs(-1 / batch)
    sampling = silo_sampling.DisjointBlocks(batch)
    profile = silo_shuffling.round_profile(
        sampling, num_records=10, num_silos=2, noise_multiplier=8.0 * batch,
        record_delta=1e-4, silo_delta=1e-4,
    )
    for epsilon in (0.0, 0.05, 0.1, 0.3):
      attained = np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell
      bound = float(profile(np.array([epsilon]))[0])
      self.assertLessEqual(attained, bound + 1e-6)

  def test_is_shuffled_randomized_response_and_what_is_not_pure(self):
    num_silos, record_delta, silo_delta = 10_000, 1e-8, 1e-10
    profile = silo_shuffling.round_profile(
        silo_sampling.DisjointBlocks(2), num_records=10, num_silos=num_silos,
        noise_multiplier=6.0, record_delta=record_delta, silo_delta=silo_delta,
    )
    record, silo = (
        gaussian.exact_epsilon(sigma=sigma, delta=delta)
        for sigma, delta in ((3.0, record_delta), (1.5, silo_delta))
    )
    clone = math.exp(-silo)
    pure = shuffling.round_profile(
        local_epsilon=record, num_reports=num_silos, clone_probability=clone
    )
    tau = record_delta + (num_silos - 1) * clone * (silo_delta + record_delta)
    for epsilon in (0.0, 0.2):
      expected = pure(np.array([epsilon])) + (1 + math.exp(epsilon)) * tau
      found = profile(np.array([epsilon]))
      np.testing.assert_allclose(found, expected, rtol=1e-6)

  def test_a_silo_is_further_away_than_a_record(self):
    # Clones of a whole silo: from -C to C, whatever the batch.
    sampling = silo_sampling.FixedSize(50)
    found = silo_shuffling._silo_epsilon(sampling, 100, 40.0, 1e-6)
    one = silo_shuffling._silo_epsilon(
        silo_sampling.FixedSize(1), 100, 40.0 / 50, 1e-6
    )
    self.assertAlmostEqual(found, one, places=6)
    poisson = silo_shuffling._silo_epsilon(
        silo_sampling.PoissonSampling(50), 100, 40.0, 1e-6
    )
    self.assertGreater(poisson, 1.2 * found)

  def test_quantile_of_the_batch(self):
    found = silo_shuffling._quantile(1000, 0.1, 1e-9)
    self.assertLess(stats.binom.sf(found, 1000, 0.1), 1e-9)
    self.assertGreaterEqual(stats.binom.sf(found - 1, 1000, 0.1), 0.99e-9)


if __name__ == '__main__':
  absltest.main()
