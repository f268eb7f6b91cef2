# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for later_snapshots, against numerical convolution."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import signal
from scipy import stats

from tasks.reproduce.published import later_snapshots

_STEP = 1e-3


def _density(num_draws):
  """Returns (grid, density) of a sum of Laplace draws, by convolution.

  Cell masses of one draw are exact, so only the cell's width is lost.
  """
  reach = 60.0
  edges = np.arange(-reach - _STEP / 2, reach + _STEP, _STEP)
  one = np.diff(stats.laplace.cdf(edges))
  masses = one
  for _ in range(num_draws - 1):
    masses = signal.fftconvolve(masses, one, mode='same')
  return edges[:-1] + _STEP / 2, np.maximum(masses, 0) / _STEP


class TailTest(parameterized.TestCase):

  def test_one_draw(self):
    at = np.array([-3.0, -0.5, 0.0, 0.5, 3.0, 40.0])
    np.testing.assert_allclose(
        later_snapshots.laplace_sum_tail(1, at), stats.laplace.sf(at),
        rtol=1e-12,
    )

  @parameterized.parameters(2, 5)
  def test_convolution(self, num_draws):
    grid, density = _density(num_draws)
    at = np.array([-4.0, 0.0, 1.0, 6.0])
    expected = [_STEP * density[grid > a + 1e-9].sum() for a in at]
    np.testing.assert_allclose(
        later_snapshots.laplace_sum_tail(num_draws, at), expected,
        atol=2 * _STEP,
    )

  def test_many_draws_are_nearly_normal(self):
    found = later_snapshots.laplace_sum_tail(20_000, np.array([0.0, 200.0]))
    np.testing.assert_allclose(found, stats.norm.sf([0.0, 1.0]), rtol=1e-4)


class DeltaTest(parameterized.TestCase):

  @parameterized.product(distance=(0.1, 3.47), epsilon=(0.0, 0.05, 2.0))
  def test_one_draw_is_the_laplace_mechanism(self, distance, epsilon):
    exact = max(0.0, -math.expm1((epsilon - distance) / 2))
    found = later_snapshots.laplace_sum_delta(
        epsilon, distance=distance, num_draws=1
    )
    self.assertGreaterEqual(found, exact)
    self.assertLess(found, exact + 1e-8)

  @parameterized.product(num_draws=(2, 6), epsilon=(0.0, 0.3, 1.5))
  def test_hockey_stick_by_integration(self, num_draws, epsilon):
    grid, density = _density(num_draws)
    shift = 2000  # A distance of 2 scales.
    moved = np.concatenate([np.zeros(shift), density[:-shift]])
    gap = np.maximum(moved - math.exp(epsilon) * density, 0)
    exact = _STEP * np.sum(gap)
    found = later_snapshots.laplace_sum_delta(
        epsilon, distance=2.0, num_draws=num_draws
    )
    self.assertAlmostEqual(found, exact, delta=2e-6)

  def test_no_threshold_does_better(self):
    found = later_snapshots.laplace_sum_delta(0.4, distance=2.0, num_draws=5)
    at = np.linspace(-30, 30, 20_001)
    others = later_snapshots.laplace_sum_tail(
        5, at - 2.0
    ) - math.exp(0.4) * later_snapshots.laplace_sum_tail(5, at)
    self.assertGreaterEqual(found, others.max())
    self.assertLess(found, others.max() + 1e-6)

  def test_pure_epsilon_stays(self):
    # However many draws: at any epsilon below, something is left.
    for num_draws in (1, 10, 200):
      delta = lambda epsilon, n=num_draws: later_snapshots.laplace_sum_delta(
          epsilon, distance=1.0, num_draws=n
      )
      self.assertEqual(delta(1.0), 0)
      self.assertGreater(delta(0.5), 0)


class EpsilonTest(parameterized.TestCase):

  @parameterized.parameters('laplace', 'gaussian')
  def test_is_the_guarantee_at_once_and_falls_later(self, mechanism):
    found = [
        later_snapshots.later_epsilon(
            mechanism=mechanism, distance=1.5, num_updates=n, delta=1e-6
        )
        for n in (0, 1, 4, 30)
    ]
    self.assertEqual(found, sorted(found, reverse=True))
    if mechanism == 'laplace':
      self.assertAlmostEqual(found[0], 1.5, delta=1e-5)

  def test_reaches_delta(self):
    epsilon = later_snapshots.later_epsilon(
        mechanism='laplace', distance=3.0, num_updates=9, delta=1e-5
    )
    delta = lambda e: later_snapshots.laplace_sum_delta(
        e, distance=3.0, num_draws=10
    )
    self.assertLessEqual(delta(epsilon), 1e-5)
    self.assertGreater(delta(epsilon * (1 - 1e-6)), 1e-5)

  def test_exceeds_what_is_published(self):
    # Spec: the printed formula is no bound.
    exact = later_snapshots.later_epsilon(
        mechanism='laplace', distance=3.47, num_updates=100, delta=1e-6
    )
    published = later_snapshots.published_later_epsilon(
        local_epsilon=3.47, num_updates=100, delta=1e-6
    )
    self.assertGreater(exact, published)
    self.assertLess(exact, 3.47)

  def test_published_formulas(self):
    log_term = math.log(1 / (2 * 1e-6))
    self.assertAlmostEqual(
        later_snapshots.published_later_epsilon(
            local_epsilon=2.0, num_updates=50, delta=1e-6
        ),
        2.0 * math.sqrt(log_term / 100),
    )
    # The root of e^2 - 2 x e - 2 x L, for x = w^2/(T 2 b^2), w = 2 b here.
    corrected = later_snapshots.published_later_epsilon(
        local_epsilon=2.0, num_updates=50, delta=1e-6, corrected=True
    )
    x = 2.0**2 / (2 * 50)
    self.assertAlmostEqual(
        corrected**2 - 2 * x * corrected - 2 * x * log_term, 0
    )
    self.assertAlmostEqual(
        later_snapshots.published_expected_loss(
            local_epsilon=2.0, num_instances=20
        ),
        0.95,
    )

  def test_arguments(self):
    with self.assertRaisesRegex(ValueError, 'distance=0'):
      later_snapshots.later_epsilon(
          mechanism='laplace', distance=0, num_updates=1, delta=1e-6
      )
    with self.assertRaisesRegex(ValueError, 'num_updates=-1'):
      later_snapshots.later_epsilon(
          mechanism='laplace', distance=1, num_updates=-1, delta=1e-6
      )
    with self.assertRaisesRegex(ValueError, 'delta=0.5'):
      later_snapshots.published_later_epsilon(
          local_epsilon=1.0, num_updates=1, delta=0.5
      )


if __name__ == '__main__':
  absltest.main()
