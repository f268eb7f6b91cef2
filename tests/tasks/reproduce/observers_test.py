# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for numbers about weaker observers of draw and discard."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tff_dp

from tasks.reproduce.published import observers
from tff_dp.accounting.curves import local_profiles
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import spam_filters


def _step(**fields):
  return client_steps.ClientStep(
      **{'learning_rate': 0.001, 'epsilon': 3.47, **fields}
  )


def _plan(step, *, participations=1, **fields):
  cap = fields.pop('max_participations', max(1, participations))
  return tff_dp.DrawAndDiscardPlan(
      step=step,
      max_participations=cap,
      num_rounds=cap,
      **dict(num_params=33, num_instances=20) | fields,
  )


def _diagnostics(step, *, delta=1e-6, later_updates=(1,), **fields):
  return observers.diagnostics(
      _plan(step, **fields), delta=delta, later_updates=later_updates
  )


_PER_WEIGHT = _step(privacy_unit='coordinate')
_FILTER = spam_filters.SpamFilter(threshold=4.0, min_spread=0.1)


class DiagnosticsTest(parameterized.TestCase):

  def test_one_later_draw_by_joint_convexity(self):
    # By brute force on three outcomes: the observer sees something unrelated
    # with probability 1 - 1/k, else a report with the Laplace profile.
    k, delta = 4, 0.05
    found = _diagnostics(
        _step(epsilon=1.0, clip='l1'), num_instances=k, delta=delta
    )
    (drawn,) = [
        d for d in found if d.name.startswith('who draws')
    ]
    profile = local_profiles.laplace(1.0)
    self.assertAlmostEqual(
        float(profile(np.array([drawn.epsilon]))[0]) / k, delta, places=6
    )
    self.assertLess(drawn.epsilon, 1.0)

  def test_the_chance_does_not_multiply_epsilon(self):
    found = _diagnostics(_step(clip='l1'), num_instances=100, delta=1e-9)
    (drawn,) = [
        d for d in found if d.name.startswith('who draws')
    ]
    self.assertGreater(drawn.epsilon, 0.99 * 3.47)

  @parameterized.parameters(
      {'spam_filter': _FILTER}, {'strategy': 'average_random'}
  )
  def test_coins_must_not_depend_on_data(self, **arguments):
    found = _diagnostics(_step(), **arguments)
    names = [d.name for d in found]
    self.assertFalse(any(name.startswith('who draws') for name in names))

  def test_every_one_says_why_not(self):
    found = _diagnostics(_PER_WEIGHT, later_updates=(1, 50))
    self.assertLen(found, 4)
    for diagnostic in found:
      self.assertNotEmpty(diagnostic.why_not)
    later = found[-1]
    self.assertEqual(later.facts['num_updates'], 50)
    self.assertLess(later.facts['published'], later.facts['corrected'])

  def test_without_noise_there_is_nothing_to_say(self):
    self.assertEmpty(_diagnostics(_step(mechanism=None, epsilon=None)))

  def test_later_updates_are_positive(self):
    with self.assertRaisesRegex(ValueError, 'later_updates=0'):
      _diagnostics(_step(), later_updates=(0,))


if __name__ == '__main__':
  absltest.main()
