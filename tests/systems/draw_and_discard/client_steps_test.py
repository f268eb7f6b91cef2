# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for client_steps."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.draw_and_discard import accounting
from tff_dp.systems.draw_and_discard import client_steps


def _step(**fields):
  return client_steps.ClientStep(
      **{'learning_rate': 0.1, 'epsilon': 2.0, **fields}
  )


def _extremes(clip, norm, p):
  """Returns extreme clipped gradients, among them a pair farthest apart."""
  signs = [np.array(s, float) for s in itertools.product((-1, 1), repeat=p)]
  if clip == 'box':
    return [norm * s for s in signs]
  axes = [norm * sign * row for row in np.eye(p) for sign in (-1, 1)]
  if clip == 'l1':
    return axes
  return axes + [norm * s / math.sqrt(p) for s in signs]


class SensitivityTest(parameterized.TestCase):

  @parameterized.product(clip=client_steps.CLIPS, norm=(0.5, 2.0), p=(1, 3))
  def test_bounds_are_attained_and_never_exceeded(self, clip, norm, p):
    step = _step(clip=clip, clip_norm=norm)
    moves = [
        0.1 * (a - b)
        for a, b in itertools.product(_extremes(clip, norm, p), repeat=2)
    ]
    for found, bound in (
        (max(np.abs(m).max() for m in moves), step.coordinate_sensitivity()),
        (max(np.abs(m).sum() for m in moves), step.l1_sensitivity(p)),
        (max(np.linalg.norm(m) for m in moves), step.l2_sensitivity(p)),
    ):
      self.assertAlmostEqual(found, bound, places=12)


class NoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      ('box', 'model', 33.0),
      ('box', 'coordinate', 1.0),
      ('l1', 'model', 1.0),
      ('l2', 'model', math.sqrt(33)),
      ('l2', 'coordinate', 1.0),
  )
  def test_laplace_scale(self, clip, unit, factor):
    step = _step(clip=clip, clip_norm=0.5, privacy_unit=unit)
    scale = 2 * 0.1 * 0.5 * factor / 2.0
    self.assertAlmostEqual(step.noise_scale(33), scale, places=14)
    self.assertAlmostEqual(step.noise_variance(33), 2 * scale**2, places=14)

  def test_the_paper(self):
    # b = 2 gamma / epsilon, variance 8 gamma^2 / epsilon^2, per weight only.
    step = _step(learning_rate=0.001, epsilon=3.47, privacy_unit='coordinate')
    self.assertAlmostEqual(step.noise_scale(33), 0.002 / 3.47, places=15)
    self.assertAlmostEqual(
        step.noise_variance(33), 8e-6 / 3.47**2, places=15
    )
    self.assertAlmostEqual(step.model_epsilon(33), 33 * 3.47)
    self.assertEqual(step.coordinate_epsilon(33), 3.47)

  @parameterized.product(clip=client_steps.CLIPS, p=(1, 33))
  def test_gaussian_scale_meets_its_budget(self, clip, p):
    step = _step(clip=clip, mechanism='gaussian', delta=1e-6)
    sigma = step.noise_scale(p) / step.l2_sensitivity(p)
    # Rounding of the two products, not more.
    self.assertLessEqual(
        gaussian.exact_epsilon(sigma=sigma, delta=1e-6), 2.0 + 1e-12
    )
    self.assertGreater(
        gaussian.exact_epsilon(sigma=0.999 * sigma, delta=1e-6), 2.0
    )
    self.assertAlmostEqual(step.noise_variance(p), step.noise_scale(p) ** 2)

  def test_no_noise(self):
    step = _step(mechanism=None, epsilon=None, clip_norm=0.5)
    self.assertFalse(step.is_private)
    self.assertEqual(step.noise_scale(33), 0)
    self.assertEqual(step.model_epsilon(33), math.inf)
    self.assertEqual(step.coordinate_epsilon(33), math.inf)
    # The instances start apart as for epsilon 1 per weight.
    self.assertAlmostEqual(step.spread_variance(33), 8 * 0.05**2)


class EventTest(parameterized.TestCase):

  @parameterized.parameters('box', 'l1', 'l2')
  def test_pure_epsilon_bounds_the_event(self, clip):
    step = _step(clip=clip, epsilon=0.7)
    spent = accounting.epsilon_of(step.event(5), 1e-9)
    self.assertLess(spent, 0.7001)
    self.assertGreater(spent, 0.69)

  def test_box_composes_weights(self):
    # 100 weights at epsilon 0.1 each are far from epsilon 10.
    step = _step(epsilon=0.1, privacy_unit='coordinate')
    spent = accounting.epsilon_of(step.event(100), 1e-6)
    # Each loss is in [-0.1, 0.1] and has a mean of at most 0.1^2/2.
    self.assertLess(spent, 100 * 0.005 + 0.1 * math.sqrt(2 * 100 * 13.9))
    self.assertGreater(spent, 2.0)

  @parameterized.parameters('box', 'l2')
  def test_gaussian(self, clip):
    step = _step(clip=clip, mechanism='gaussian', delta=1e-6)
    spent = accounting.epsilon_of(step.event(7), 1e-6)
    self.assertAlmostEqual(spent, 2.0, places=9)

  def test_halved_noise_is_seen(self):
    honest = _step(epsilon=1.0).event(3)
    weak = _step(epsilon=2.0).event(3)
    spend = lambda event: accounting.epsilon_of(event, 1e-9)
    self.assertGreater(spend(weak), 1.9 * spend(honest))


class ArgumentTest(parameterized.TestCase):

  @parameterized.parameters(
      ({'learning_rate': 0}, 'learning_rate'),
      ({'learning_rate': math.nan}, 'learning_rate'),
      ({'clip': 'linf'}, 'clip'),
      ({'clip_norm': math.inf}, 'clip_norm'),
      ({'mechanism': 'normal'}, 'mechanism'),
      ({'privacy_unit': 'record'}, 'privacy_unit'),
      ({'epsilon': None}, 'epsilon'),
      ({'epsilon': 0.0}, 'epsilon'),
      ({'mechanism': None}, 'epsilon'),
      ({'mechanism': 'gaussian'}, 'delta'),
      ({'mechanism': 'gaussian', 'delta': 1.0}, 'delta'),
      ({'delta': 1e-6}, 'delta'),
  )
  def test_refused(self, fields, name):
    with self.assertRaises(_checks.ArgumentError) as caught:
      _step(**fields)
    self.assertEqual(caught.exception.argument, name)

  def test_number_of_weights(self):
    with self.assertRaisesRegex(ValueError, 'num_params=0'):
      _step().noise_scale(0)

  def test_json_round_trip(self):
    step = _step(clip='l2', mechanism='gaussian', delta=1e-6)
    self.assertEqual(client_steps.ClientStep(**step.describe()), step)


if __name__ == '__main__':
  absltest.main()
