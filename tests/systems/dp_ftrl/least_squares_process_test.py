# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of federated least squares on TFF."""

import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import diabetes
import tff_dp
from tff_dp import _checks
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.systems.dp_ftrl import least_squares

_BOUND = 1.5
_NORM = least_squares.moments_norm_bound(_BOUND)
_ETA = 0.5


def setUpModule():
  execution.set_default_context()


def _plan(num_rounds=4, *, mechanism=None, **changes):
  arguments = dict(
      mechanism=mechanism or mechanisms.HonakerTree(num_rounds),
      participation=tff_dp.participation.MinSeparation(
          num_rounds, min_index_gap=2
      ),
      l2_norm_clip=_NORM,
      clients_per_round=2,
      noise_multiplier=0.0,
  )
  return tff_dp.DpFtrlPlan(**(arguments | changes))


def _build(plan, num_features=3, **changes):
  arguments = dict(
      num_features=num_features,
      feature_norm_bound=_BOUND,
      server_learning_rate=_ETA,
  )
  return dp_ftrl.build_least_squares(plan, **(arguments | changes))


@functools.cache
def _usual():
  return _build(_plan())


def _theta(process, state):
  (theta,) = process.get_model_weights(state).trainable
  return theta


class NoiseFreeTest(parameterized.TestCase):

  # Restarts do not show: moments do not depend on the model.
  @parameterized.parameters(None, 3)
  @pytest.mark.slow(cases=['0'])
  def test_equals_ridge_regression_on_diabetes(self, restart_every):
    x, y = diabetes.load()
    per_round, num_rounds = 30, 5
    plan = _plan(
        mechanism=mechanisms.HonakerTree(
            num_rounds, restart_every=restart_every
        ),
        participation=tff_dp.participation.UniformSampling(num_rounds),
        clients_per_round=per_round,
    )
    process = _build(plan, num_features=11, feature_norm_bound=_BOUND)
    norms = np.linalg.norm(x, axis=1)
    x *= np.minimum(1.0, _BOUND / norms)[:, np.newaxis]
    state = process.initialize()
    for t in range(num_rounds):
      chosen = slice(t * per_round, (t + 1) * per_round)
      # One sample a client, so that no client's sums are clipped.
      clients = [
          diabetes.dataset([a], [b]) for a, b in zip(x[chosen], y[chosen])
      ]
      state = process.next(state, clients).state
      so_far = slice((t + 1) * per_round)
      expected = np.linalg.solve(
          2 * x[so_far].T @ x[so_far] / per_round + np.eye(11) / _ETA,
          2 * x[so_far].T @ y[so_far] / per_round,
      )
      np.testing.assert_allclose(
          _theta(process, state), expected, rtol=1e-3, atol=1e-4
      )

  def test_sums_of_a_client_are_clipped_as_a_whole(self):
    process = _usual()
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal([50, 3]), rng.uniform(-1, 1, 50)
    output = process.next(
        process.initialize(), [diabetes.dataset(x, y, batch=7)]
    )
    x *= np.minimum(1, _BOUND / np.linalg.norm(x, axis=1))[:, np.newaxis]
    second, cross = x.T @ x, x.T @ y
    norm = np.hypot(np.linalg.norm(second), np.linalg.norm(cross))
    self.assertGreater(norm, 2 * _NORM)
    scale = _NORM / norm / 2  # Two clients a round are planned.
    np.testing.assert_allclose(
        _theta(process, output.state),
        np.linalg.solve(
            2 * scale * second + np.eye(3) / _ETA, 2 * scale * cross
        ),
        rtol=1e-4,
    )
    train = output.metrics['client_work']['train']
    self.assertEqual(train['num_examples'], 50)
    self.assertAlmostEqual(train['loss'], np.mean(y**2), places=5)

  def test_ball_and_average(self):
    process = _build(
        _plan(),
        constraint=learning.L2Ball(0.05),
        averaging=learning.UniformAverage(),
    )
    state, sent = process.initialize(), []
    for t in range(4):
      sent.append(_theta(process, state))
      x = np.random.default_rng(t).standard_normal([3, 3])
      state = process.next(state, [diabetes.dataset(x, x[:, 0])]).state
      self.assertAlmostEqual(
          np.linalg.norm(_theta(process, state)), 0.05, places=6
      )
    np.testing.assert_allclose(
        process.get_averaged_model_weights(state).trainable[0],
        np.mean(sent, axis=0),
        rtol=1e-5,
        atol=1e-7,
    )


class NoisedTest(parameterized.TestCase):

  def test_model_solves_what_was_released(self):
    # With restarts and enough noise to make the moments indefinite.
    plan = _plan(
        mechanism=mechanisms.HonakerTree(6, restart_every=4),
        participation=tff_dp.participation.UniformSampling(6),
        noise_multiplier=2.0,
        # Below the bound on the moments, which is fine.
        l2_norm_clip=0.5 * _NORM,
    )
    process = _build(plan, insecure_seed=3)
    aggregator = plan.aggregator(insecure_seed=3).create(
        tff.TensorType(np.float32, [least_squares.num_moments(3)])
    )
    state, noise_state = process.initialize(), aggregator.initialize()
    moments, num_raised = np.zeros(least_squares.num_moments(3), np.float32), []
    for _ in range(6):
      output = process.next(state, [])
      released = aggregator.next(noise_state, [])
      state, noise_state = output.state, released.state
      # The sums go on through the restart after round 4.
      moments = moments + released.result
      second, cross = least_squares.decode(
          tf.constant(moments), num_features=3
      )
      expected = least_squares.solve(second, cross, learning_rate=_ETA)
      np.testing.assert_allclose(
          _theta(process, state), expected.theta, rtol=1e-5, atol=1e-6
      )
      self.assertLessEqual(
          np.linalg.norm(_theta(process, state)),
          2 * _ETA * np.linalg.norm(cross) * (1 + 1e-6),
      )
      num_raised.append(
          int(output.metrics['finalizer']['num_raised_eigenvalues'])
      )
    self.assertGreater(max(num_raised), 0)

  @parameterized.named_parameters(
      ('largest_sample', [[_BOUND, 0, 0]], [1]),
      ('beyond_the_bounds', [[50, -20, 3]], [-80]),
      ('huge', [[1e18, 1e18, -1e18]], [1e30]),
      ('beyond_float32', [[3e38, 3e38, 3e38]], [3e38]),
      ('nan', [[np.nan, 1, 1]], [1]),
      ('nan_label', [[1, 1, 1]], [np.nan]),
      ('infinite', [[np.inf, -np.inf, 1]], [np.inf]),
      ('many_samples', [[9, 9, 9]] * 500, [9] * 500),
      ('many_small', [[1e-3, 0, 1e-3]] * 500, [1] * 500),
      ('mixed', [[9, 9, 9], [np.nan] * 3, [3e38] * 3] * 50, [9] * 150),
  )
  def test_no_client_moves_the_sums_by_more_than_the_clip_norm(self, x, y):
    process = _usual()
    plan = process.plan
    rng = np.random.default_rng(0)
    other = diabetes.dataset(rng.standard_normal([4, 3]), rng.uniform(-1, 1, 4))
    sums = []
    for clients in ([other], [other, diabetes.dataset(x, y, batch=64)]):
      state = process.next(process.initialize(), clients).state
      sums.append(np.asarray(state.finalizer['moments'], np.float64))
    self.assertTrue(np.all(np.isfinite(sums)))
    moved = plan.clients_per_round * np.linalg.norm(sums[1] - sums[0])
    # The two sums are float32 numbers of size 1.
    self.assertLessEqual(moved, plan.l2_norm_clip * (1 + 1e-6))


class BadArgumentsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('features', dict(num_features=0), 'num_features=0'),
      ('bound', dict(feature_norm_bound=-1.0), 'feature_norm_bound=-1.0'),
      ('rate', dict(server_learning_rate=0.0), 'server_learning_rate=0.0'),
      ('box', dict(constraint=learning.Box(-1, 1)), 'constraint=Box'),
      ('averaging', dict(averaging=0.5), 'averaging=0.5'),
      (
          'clip_norm',
          dict(feature_norm_bound=1.0),
          r'plan.l2_norm_clip=.*at most R sqrt\(R\^2 \+ 1\) = 1.414',
      ),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _build(_plan(), **changes)

  def test_clip_norm_that_follows_the_data_is_refused(self):
    plan = _plan(
        mechanism=mechanisms.HonakerTree(4, restart_every=2),
        adaptive_clipping=adaptive_clipping.AdaptiveClipping(),
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'plan.adaptive_clipping=.*declared bounds'
    ):
      _build(plan)


if __name__ == '__main__':
  absltest.main()
