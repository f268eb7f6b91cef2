# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Accelerated SGD over silos, against the written formulas in NumPy."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.systems.silos import quadratic
from tests.systems.silos import toy
from tff_dp import execution
from tff_dp import learning
from tff_dp import silos
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


class _AcSa:
  """AC-SA written once more, from the formulas of the paper as they stand."""

  def __init__(self, start, *, mu, pull=0.0, project=lambda w, centre: w):
    self.w = self.w_ag = self.centre = np.asarray(start, np.float64)
    self.mu = mu
    self.pull = pull
    self.project = project

  def sent_out(self, r, gamma):
    a, e = 2 / (r + 1), 4 * gamma / (r * (r + 1))
    mu = self.mu + self.pull
    den = e + (1 - a**2) * mu
    self.w_md = (1 - a) * (mu + e) / den * self.w_ag
    self.w_md = self.w_md + a * ((1 - a) * mu + e) / den * self.w
    return self.w_md

  def update(self, r, gamma, gradient):
    a, e = 2 / (r + 1), 4 * gamma / (r * (r + 1))
    mu = self.mu + self.pull
    gradient = gradient + self.pull * (self.w_md - self.centre)
    w = (a * mu * self.w_md + ((1 - a) * mu + e) * self.w - a * gradient) / (
        mu + e
    )
    self.w = self.project(w, self.centre)
    self.w_ag = a * self.w + (1 - a) * self.w_ag


def _ball(radius):
  def project(w, centre):
    offset = w - centre
    return centre + offset * min(1.0, radius / np.linalg.norm(offset))

  return project


_STAGES = [(2, 2.0), (1, 9.0), (4, 3.0)]
_IN_STAGES = dict(
    stages=[minibatch_schedules.Stage(*stage) for stage in _STAGES],
    strong_convexity=0.15,
)


@functools.cache
def _in_stages():
  return silos.build_one_pass_accelerated_mb_sgd(
      quadratic.model(), **quadratic.arguments(**_IN_STAGES)
  )


class AcceleratedTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('convex', dict(gamma=2.0), dict(mu=0.0), [(7, 2.0)]),
      (
          'strongly_convex',
          dict(gamma=2.0, strong_convexity=0.15),
          dict(mu=0.15),
          [(7, 2.0)],
      ),
      ('stages', _IN_STAGES, dict(mu=0.15), _STAGES),
      (
          'regularized',
          dict(gamma=2.5, regularization=0.4, strong_convexity=0.1),
          dict(mu=0.1, pull=0.4),
          [(7, 2.5)],
      ),
      (
          'projected',
          dict(gamma=2.0, constraint=learning.L2Ball(0.25)),
          dict(
              mu=0.0,
              project=lambda w, centre: w * min(1, 0.25 / np.linalg.norm(w)),
          ),
          [(7, 2.0)],
      ),
  )
  @pytest.mark.slow(but=['stages'])
  def test_sequences_are_those_of_the_written_formulas(
      self, changes, reference, stages
  ):
    if changes is _IN_STAGES:
      process = _in_stages()
    else:
      process = silos.build_one_pass_accelerated_mb_sgd(
          quadratic.model(), **quadratic.arguments(**changes)
      )
    start = quadratic.START
    if 'constraint' in changes:
      start = quadratic.START * min(1, 0.25 / np.linalg.norm(quadratic.START))
    expected, runner = _AcSa(start, **reference), toy.Runner(process)
    np.testing.assert_allclose(runner.result, start, rtol=1e-6)
    done, has_projected = 0, False
    for rounds, gamma in stages:
      expected.w = expected.w_ag  # A stage begins where the last one ended.
      for r in range(1, rounds + 1):
        # What is sent out is w_md, and what is returned w_ag.
        np.testing.assert_allclose(
            runner.sent_out, expected.sent_out(r, gamma), rtol=1e-4, atol=1e-5
        )
        gradient = quadratic.gradient(quadratic.records(), done, expected.w_md)
        expected.update(r, gamma, gradient)
        runner.round(quadratic.data())
        np.testing.assert_allclose(
            runner.result, expected.w_ag, rtol=1e-4, atol=1e-5
        )
        has_projected |= np.linalg.norm(expected.w) > 0.25 * (1 - 1e-9)
        done += 1
    self.assertEqual(done, quadratic.ROUNDS)
    self.assertTrue(has_projected)
    self.assertGreater(np.abs(runner.result - expected.w).max(), 0.01)
    np.testing.assert_allclose(runner.sent_out, runner.result)

  def test_legs_of_localization_recentre_and_stay_in_their_balls(self):
    rounds, lipschitz, pull = (2, 3), 0.1, 0.4
    records = {name: rows[:12] for name, rows in quadratic.records().items()}
    process = silos.build_localized_mb_sgd(
        quadratic.model(),
        silos={name: toy.free(12) for name in quadratic.SILOS},
        lipschitz=lipschitz,
        l2_norm_clip=1e3,
        regularization=pull,
        exponent=1.5,
        rounds_per_phase=rounds,
        smoothness=1.0,
        noise_stddev=0.0,
        model_aggregator=toy.Tap(),
    )
    runner = toy.Runner(process)
    centre, first, is_active = quadratic.START, 0, False
    for phase, length in enumerate((6, 3)):
      strength = pull * 2 ** (phase * 1.5)
      radius = 2 * lipschitz / strength
      expected = _AcSa(centre, mu=0.0, pull=strength, project=_ball(radius))
      mean = np.mean(
          [rows[first : first + length].mean(axis=0)
           for rows in records.values()],
          axis=0,
      )
      for r in range(1, rounds[phase] + 1):
        gamma = 2 * (1.0 + strength)
        np.testing.assert_allclose(
            runner.sent_out, expected.sent_out(r, gamma), rtol=1e-4, atol=1e-5
        )
        expected.update(r, gamma, quadratic.CURVATURE * (expected.w_md - mean))
        is_active |= np.isclose(np.linalg.norm(expected.w - centre), radius)
        runner.round({name: toy.examples(r) for name, r in records.items()})
        np.testing.assert_allclose(
            runner.result, expected.w_ag, rtol=1e-4, atol=1e-5
        )
      centre, first = expected.w_ag, first + length
    self.assertTrue(is_active)

  def test_a_model_that_is_set_begins_anew_and_keeps_the_cursor(self):
    process = _in_stages()
    runner = toy.Runner(process)
    for _ in range(3):
      runner.round(quadratic.data())
    new = [
        np.full([quadratic.SIZE - 1, 1], 2.0, np.float32),
        np.float32([-1.0]),
    ]
    weights = process.get_model_weights(runner.state)
    runner.state = process.set_model_weights(
        runner.state, type(weights)(tuple(new), ())
    )
    start = np.array([2.0, 2.0, 2.0, 2.0, -1.0])
    np.testing.assert_array_equal(runner.sent_out, start)
    np.testing.assert_array_equal(runner.result, start)
    expected = _AcSa(start, mu=0.15)
    # The first stage again, and the one round of the second.
    for done, (r, gamma) in enumerate([(1, 2.0), (2, 2.0), (1, 9.0)], 3):
      if r == 1:
        expected.w = expected.w_ag
      expected.sent_out(r, gamma)
      gradient = quadratic.gradient(
          quadratic.records(), done, expected.w_md
      )
      expected.update(r, gamma, gradient)
      runner.round(quadratic.data())
      np.testing.assert_allclose(
          runner.result, expected.w_ag, rtol=1e-4, atol=1e-5
      )
    self.assertEqual(runner.state.client_work['round'], 6)


class BoundTest(parameterized.TestCase):

  @pytest.mark.slow
  def test_gap_stays_within_the_bound_of_ac_sa(self):
    # Noiseless, gamma = 2 beta, on a quadratic with its minimiser at zero.
    process = silos.build_accelerated_mb_sgd_erm(
        quadratic.model(),
        **quadratic.arguments(
            gamma=2.0,
            sampling=silo_sampling.FixedSize(
                quadratic.BLOCK * quadratic.ROUNDS
            ),
        ),
    )
    data = {
        name: toy.examples(np.zeros([21, quadratic.SIZE]))
        for name in quadratic.SILOS
    }
    runner = toy.Runner(process)
    for r in range(1, quadratic.ROUNDS + 1):
      runner.round(data)
      gap = 0.5 * np.sum(quadratic.CURVATURE * runner.result**2)
      self.assertLess(gap, 2 * 2.0 * np.sum(quadratic.START**2) / (r * (r + 1)))


if __name__ == '__main__':
  absltest.main()
