# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the guarantee of draw and discard."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import tff_dp

from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.systems.draw_and_discard import accounting
from tff_dp.systems.draw_and_discard import client_steps


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


def _guarantee(step, *, participations=1, delta=None, **fields):
  return accounting.guarantee(
      _plan(step, participations=participations, **fields),
      participations=participations,
      delta=delta,
  )


_PER_WEIGHT = _step(privacy_unit='coordinate')
_GAUSSIAN = _step(clip='l2', mechanism='gaussian', epsilon=2.0, delta=1e-6)


class TotalTest(parameterized.TestCase):

  def test_per_weight_is_not_per_client(self):
    found = _guarantee(_PER_WEIGHT)
    self.assertAlmostEqual(found.model_epsilon, 33 * 3.47)
    self.assertEqual(found.delta, 0)
    self.assertEqual(found.total_epsilon, found.model_epsilon)
    self.assertEqual(found.total_delta, 0)

  @parameterized.parameters(0, 1, 5)
  def test_pure_epsilon_adds_up(self, participations):
    for step in (_PER_WEIGHT, _step(), _step(clip='l1')):
      found = _guarantee(step, participations=participations)
      self.assertEqual(
          found.total_epsilon, participations * found.model_epsilon
      )
      self.assertEqual(found.total_delta, 0)

  def test_epsilon_of_a_weight_is_not_that_of_a_gaussian_report(self):
    step = _step(
        clip='l2', mechanism='gaussian', epsilon=2.0, delta=1e-6,
        privacy_unit='coordinate',
    )
    found = _guarantee(step, delta=1e-6)
    for epsilon in (found.model_epsilon, found.total_epsilon):
      self.assertGreater(epsilon, 2.0)
      self.assertAlmostEqual(
          epsilon,
          accounting.epsilon_of(
              accounting.event(step, num_params=33, participations=1), 1e-6
          ),
      )

  def test_numeric_composition_of_all_weights(self):
    # 33 x 4 Laplace mechanisms, by dp_accounting itself.
    step = _step(epsilon=0.1, privacy_unit='coordinate')
    found = _guarantee(step, participations=4, delta=1e-6)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.LaplaceDpEvent(2 / 0.1), 33 * 4
    )
    expected = accountants.epsilon(
        event, delta=1e-6, method='pld',
        neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE,
    )
    self.assertAlmostEqual(found.total_epsilon / expected, 1, delta=0.01)
    self.assertEqual(found.total_delta, 1e-6)
    self.assertAlmostEqual(found.pure_total_epsilon, 33 * 4 * 0.1)
    # What a test of all weights together can tell is never above it.
    rng = np.random.default_rng(0)
    noise = rng.laplace(size=(100_000, 132))
    losses = np.sum(np.abs(noise + 0.1) - np.abs(noise), axis=1)
    share = np.mean(np.maximum(0, -np.expm1(found.total_epsilon - losses)))
    self.assertLessEqual(share, 1e-6)

  def test_gaussian(self):
    one = _guarantee(_GAUSSIAN)
    self.assertEqual((one.total_epsilon, one.total_delta), (2.0, 1e-6))
    self.assertEqual(one.pure_total_epsilon, math.inf)
    five = _guarantee(_GAUSSIAN, participations=5)
    expected = accountants.epsilon(
        dp_accounting.SelfComposedDpEvent(_GAUSSIAN.event(33), 5),
        delta=1e-6, method='pld',
        neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE,
    )
    self.assertAlmostEqual(five.total_epsilon, expected, delta=0.01)
    self.assertLess(five.total_epsilon, 10.0)

  def test_gaussian_at_another_delta_than_the_step_was_made_for(self):
    # The step has just enough noise for epsilon 2 at delta 1e-6.
    sigma = gaussian.sigma_for(epsilon=2.0, delta=1e-6)
    for delta in (1e-9, 1e-4):
      for participations in (1, 5):
        exact = gaussian.exact_epsilon(
            sigma=sigma / math.sqrt(participations), delta=delta
        )
        found = _guarantee(
            _GAUSSIAN, participations=participations, delta=delta
        )
        self.assertAlmostEqual(found.total_epsilon / exact, 1.0, places=9)
        self.assertEqual(found.total_delta, delta)
        self.assertAlmostEqual(
            found.model_epsilon,
            gaussian.exact_epsilon(sigma=sigma, delta=delta),
        )
        self.assertEqual(
            accounting.epsilon(
                _GAUSSIAN,
                num_params=33,
                participations=participations,
                delta=delta,
            ),
            found.total_epsilon,
        )

  @parameterized.parameters(
      (_step(), None, 7 * 3.47), (_GAUSSIAN, 1e-6, None)
  )
  def test_by_default_every_participation_counts(self, step, delta, expected):
    plan = _plan(step, max_participations=7)
    found = accounting.guarantee(plan, delta=delta)
    if expected is None:
      sigma = gaussian.sigma_for(epsilon=2.0, delta=1e-6) / math.sqrt(7)
      expected = gaussian.exact_epsilon(sigma=sigma, delta=1e-6)
    self.assertAlmostEqual(found.total_epsilon, expected)

  def test_the_server_changes_nothing(self):
    totals = {
        _guarantee(
            _step(), num_instances=k, strategy=strategy, clients_per_round=m
        )
        for k, strategy, m in (
            (1, 'draw_and_discard', 1),
            (100, 'draw_and_discard', 7),
            (20, 'accept_1_over_k', 1),
            (20, 'average_random', 3),
        )
    }
    self.assertLen(totals, 1)

  def test_event_composes_with_others(self):
    both = dp_accounting.ComposedDpEvent([
        accounting.event(_step(), num_params=33, participations=2),
        accounting.event(_GAUSSIAN, num_params=33, participations=1),
    ])
    found = accounting.epsilon_of(both, 1e-5)
    alone = _guarantee(_step(), participations=2, delta=1e-5).total_epsilon
    self.assertGreater(found, 1.01 * alone)
    self.assertLess(found, alone + 2.1)
    nothing = accounting.event(_step(), num_params=33, participations=0)
    self.assertIsInstance(nothing, dp_accounting.NoOpDpEvent)


class VoidTest(parameterized.TestCase):

  def test_no_privacy(self):
    step = _step(mechanism=None, epsilon=None)
    infinite = math.inf, 1.0
    self.assertEqual(_guarantee(step), (*infinite, *infinite, math.inf))
    for participations, expected in ((0, 0.0), (1, math.inf), (2, math.inf)):
      self.assertEqual(
          accounting.epsilon(
              step, num_params=33, participations=participations, delta=1e-6
          ),
          expected,
      )


class ArgumentsTest(parameterized.TestCase):

  @parameterized.parameters(
      ({'num_params': 0}, 'num_params=0'),
      ({'num_instances': 0}, 'num_instances=0'),
      ({'participations': -1}, 'participations=-1'),
      ({'delta': 0.0}, 'delta=0.0'),
      ({'participations': 3, 'max_participations': 2}, 'from 0 to 2'),
  )
  def test_arguments(self, arguments, message):
    with self.assertRaisesRegex(ValueError, message):
      _guarantee(_step(), **arguments)


if __name__ == '__main__':
  absltest.main()
