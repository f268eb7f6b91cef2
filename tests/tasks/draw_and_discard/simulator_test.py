# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the simulator of draw and discard, against a plain NumPy loop."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tasks.draw_and_discard import simulator as simulation
from tff_dp import streams
from tff_dp.mechanisms import client_steps
from tff_dp.mechanisms.instances import strategies

# pylint: disable=g-bad-import-order
import tensorflow as tf

_NUM_FEATURES = 3
_NOISE_FREE = client_steps.ClientStep(
    learning_rate=0.5, mechanism=None, clip_norm=0.3
)
_NOISY = client_steps.ClientStep(learning_rate=0.5, epsilon=2.0, clip='l1')


def _gradient(model, weights, features, labels):
  """The mean gradient of a client, by the textbook."""
  predictor = features @ weights.reshape(features.shape[1], -1)
  if model == 'softmax':
    shares = np.exp(predictor - predictor.max(axis=1, keepdims=True))
    response = shares / shares.sum(axis=1, keepdims=True)
    targets = np.eye(response.shape[1])[labels.astype(int)]
  else:
    targets = labels[:, np.newaxis]
    response = {
        'linear': lambda z: z,
        'logistic': lambda z: 1 / (1 + np.exp(-z)),
        'poisson': np.exp,
    }[model](predictor)
  return (features.T @ (response - targets) / len(features)).ravel()


def _clipped(step, gradient):
  if not np.all(np.isfinite(gradient)):
    return np.zeros_like(gradient)
  if step.clip == 'box':
    return np.clip(gradient, -step.clip_norm, step.clip_norm)
  norm = np.linalg.norm(gradient, 1 if step.clip == 'l1' else 2)
  return gradient * min(1.0, step.clip_norm / max(norm, 1e-30))


def _plain(strategy, model, step, pool, draws, features, labels):
  """Plays the rounds of `draws` one update after the other."""
  pool = np.array(pool, np.float64)
  for r in range(len(draws.order)):
    snapshot, returned = pool.copy(), []
    for position, client in enumerate(draws.order[r]):
      given = snapshot[draws.drawn[r, position]]
      gradient = _gradient(model, given, features[r, client], labels[r, client])
      new = given - step.learning_rate * _clipped(step, gradient)
      new = new + draws.noise[r, position]
      returned.append(new)
      row = draws.replaced[r, position]
      if strategy.startswith('average'):
        pool[row] = (pool[row] + new) / 2
      elif strategy != 'server_batch' and row >= 0:
        pool[row] = new
    if strategy == 'server_batch':
      pool[0] = np.mean(returned, axis=0)
  return pool


def _data(rng, rounds, concurrency, examples, classes=1):
  shape = (rounds, concurrency, examples)
  features = rng.random((*shape, _NUM_FEATURES))
  labels = rng.integers(max(2, classes), size=shape)
  return features, labels


class StepTest(parameterized.TestCase):
  """Given the draws, everything is deterministic: equality, not statistics."""

  @parameterized.product(
      strategy=simulation.STRATEGIES, concurrency=(1, 4)
  )
  def test_strategies(self, strategy, concurrency):
    self._check('logistic', _NOISY, strategy=strategy, concurrency=concurrency)

  @parameterized.product(model=simulation.MODELS, clip=client_steps.CLIPS)
  def test_models_and_clips(self, model, clip):
    step = client_steps.ClientStep(
        learning_rate=0.5, clip=clip, clip_norm=0.3, mechanism='gaussian',
        epsilon=3.0, delta=1e-3,
    )
    self._check(model, step, concurrency=2)

  def test_large_pool(self):
    # Written row by row, not as a whole.
    self._check('linear', _NOISY, num_instances=4000)

  def _check(
      self, model, step, *, num_instances=5, concurrency=1,
      strategy='draw_and_discard',
  ):
    classes = 4 if model == 'softmax' else 1
    simulator = simulation.Simulator(
        model, step, num_features=_NUM_FEATURES, num_classes=classes,
        num_instances=num_instances, concurrency=concurrency,
        strategy=strategy,
    )
    rng = np.random.default_rng(0)
    features, labels = _data(rng, 12, concurrency, 3, classes)
    key = streams.insecure_root_key(1)
    pool = simulator.initial_instances(key)
    draws = simulator.draw(streams.fold_in(key, 1), 12)
    found = simulator.apply(pool, draws, features, labels).numpy()
    expected = _plain(
        strategy, model, step, pool.numpy(),
        simulation.Draws(*(d.numpy() for d in draws)), features, labels,
    )
    self.assertEqual(found.shape, (simulator.num_rows, simulator.num_params))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    again = simulator.advance(pool, streams.fold_in(key, 1), features, labels)
    np.testing.assert_array_equal(found, again.numpy())

  def test_non_finite_gradient_is_no_step(self):
    simulator = simulation.Simulator(
        'linear', _NOISE_FREE, num_features=2, num_instances=1
    )
    found = simulator.advance(
        tf.ones([1, 2]),
        streams.insecure_root_key(1),
        np.full([1, 1, 1, 2], np.inf),
        np.zeros([1, 1, 1]),
    )
    np.testing.assert_array_equal(found, np.ones([1, 2]))

  def test_empty_block_changes_nothing(self):
    simulator = simulation.Simulator(
        'linear', _NOISY, num_features=2, num_instances=3
    )
    pool = simulator.initial_instances(streams.insecure_root_key(1))
    found = simulator.advance(
        pool, streams.insecure_root_key(2),
        np.zeros([0, 1, 1, 2]), np.zeros([0, 1, 1]),
    )
    np.testing.assert_array_equal(found, pool)


class DrawTest(parameterized.TestCase):

  def _draws(self, strategy='draw_and_discard', num_rounds=20_000, **arguments):
    simulator = simulation.Simulator(
        'linear', arguments.pop('step', _NOISE_FREE), num_features=2,
        num_instances=4, strategy=strategy, **arguments,
    )
    draws = simulator.draw(streams.insecure_root_key(5), num_rounds)
    return simulation.Draws(*(d.numpy() for d in draws))

  def test_draw_and_replacement_are_uniform_and_independent(self):
    draws = self._draws()
    table = np.zeros([4, 4])
    np.add.at(table, (draws.drawn[:, 0], draws.replaced[:, 0]), 1)
    self.assertGreater(stats.chisquare(table.ravel()).pvalue, 1e-6)

  def test_coins_of_a_round_differ(self):
    draws = self._draws(concurrency=2)
    for coins in (draws.drawn, draws.replaced):
      table = np.zeros([4, 4])
      np.add.at(table, (coins[:, 0], coins[:, 1]), 1)
      self.assertGreater(stats.chisquare(table.ravel()).pvalue, 1e-6)

  def test_orders_are_uniform(self):
    order = self._draws(concurrency=3).order
    codes = order @ np.array([9, 3, 1])
    _, counts = np.unique(codes, return_counts=True)
    self.assertLen(counts, 6)
    self.assertGreater(stats.chisquare(counts).pvalue, 1e-6)

  @parameterized.parameters('same', 'average_same')
  def test_same(self, strategy):
    draws = self._draws(strategy)
    np.testing.assert_array_equal(draws.drawn, draws.replaced)

  def test_one_in_k_is_accepted(self):
    draws = self._draws('accept_1_over_k')
    self.assertEqual(set(draws.drawn.ravel()), {0})
    self.assertEqual(set(draws.replaced.ravel()), {-1, 0})
    accepted = int(np.sum(draws.replaced == 0))
    self.assertGreater(stats.binomtest(accepted, 20_000, 0.25).pvalue, 1e-6)

  @parameterized.parameters('laplace', 'gaussian')
  def test_noise(self, mechanism):
    step = client_steps.ClientStep(
        learning_rate=0.1, clip='l2', mechanism=mechanism, epsilon=2.0,
        delta=1e-5 if mechanism == 'gaussian' else None,
    )
    noise = self._draws(step=step, concurrency=2).noise
    scale = step.noise_scale(2)
    law = {'laplace': stats.laplace, 'gaussian': stats.norm}[mechanism]
    for client in (0, 1):
      for weight in (0, 1):
        found = stats.kstest(noise[:, client, weight] / scale, law.cdf)
        self.assertGreater(found.pvalue, 1e-6)
    self.assertAlmostEqual(
        np.var(noise) / step.noise_variance(2), 1, delta=0.05
    )
    # Independent across clients, weights and rounds.
    flat = noise.reshape(len(noise), -1)
    lagged = np.concatenate([flat[1:], flat[:-1]], axis=1)
    correlations = np.corrcoef(lagged.T) - np.eye(8)
    self.assertLess(np.abs(correlations).max(), 5.2 / math.sqrt(len(noise)))


class LawTest(parameterized.TestCase):

  @parameterized.parameters(1, 6)
  def test_initial_spread_and_its_stability(self, concurrency):
    # Many weights without a gradient: features are zero.
    p, k = 500, 6
    simulator = simulation.Simulator(
        'linear', _NOISY, num_features=p, num_instances=k,
        concurrency=concurrency,
    )
    key = streams.insecure_root_key(3)
    stays = strategies.stationary_variance(
        k, noise_variance=_NOISY.noise_variance(p), concurrency=concurrency
    )
    pool = simulator.initial_instances(key)
    spread = lambda of: np.mean(np.var(of.numpy(), axis=0, ddof=1)) / stays
    self.assertAlmostEqual(spread(pool), 1, delta=0.15)
    found = []
    # Blocks of five time constants. The weights of a pool share its coins, so
    # a spread varies by about half of itself, and the mean by 0.05.
    rounds = 90 // concurrency
    data = (
        np.zeros([rounds, concurrency, 1, p], np.float32),
        np.zeros([rounds, concurrency, 1]),
    )
    advance = tf.function(simulator.advance)
    for block in range(120):
      pool = advance(pool, streams.fold_in(key, block), *data)
      found.append(spread(pool))
    self.assertAlmostEqual(np.mean(found), 1, delta=0.27)

  def test_initial_rules(self):
    key = streams.insecure_root_key(3)
    mean = np.arange(4000.0)

    def variance(step, rule='stationary', k=5, m=1):
      simulator = simulation.Simulator(
          'linear', step, num_features=4000, num_instances=k, concurrency=m
      )
      pool = simulator.initial_instances(key, mean, initial_variance=rule)
      return np.var(pool.numpy() - mean)

    # Without noise: epsilon 1 per weight, 8 gamma^2 c^2 k/2; a variance.
    self.assertAlmostEqual(
        variance(_NOISE_FREE) / (8 * 0.15**2 * 2.5), 1, delta=0.06
    )
    self.assertEqual(variance(_NOISY, k=1), 0)
    self.assertAlmostEqual(
        variance(_NOISY, m=100) / variance(_NOISY, rule='paper', m=100),
        2, delta=0.15,
    )

  def test_ordering_of_strategies(self):
    # Equal clients, equal data: averaging is slower, draw and discard as one
    # lineage of every k-th update; one model with every update is fastest.
    rng = np.random.default_rng(4)
    rounds, truth = 3000, np.array([2.0, -1.0, 0.5])
    features, _ = _data(rng, rounds, 1, 1)
    labels = features @ truth
    step = client_steps.ClientStep(
        learning_rate=0.05, mechanism=None, clip_norm=1.0
    )
    errors = {}
    for strategy, k in (
        ('draw_and_discard', 1), ('draw_and_discard', 10), ('same', 10),
        ('accept_1_over_k', 10), ('average_random', 10), ('average_same', 10),
    ):
      simulator = simulation.Simulator(
          'linear', step, num_features=3, num_instances=k, strategy=strategy
      )
      pool = simulator.initial_instances(streams.insecure_root_key(1))
      pool = simulator.advance(
          pool * 0, streams.insecure_root_key(2), features, labels
      )
      mean = np.mean(pool.numpy(), axis=0)
      errors[strategy, k] = np.linalg.norm(mean - truth)
    alone = errors['draw_and_discard', 1]
    kept = [
        errors[s, 10] for s in ('draw_and_discard', 'same', 'accept_1_over_k')
    ]
    averaged = [errors[s, 10] for s in ('average_random', 'average_same')]
    self.assertLess(alone, 0.5 * min(kept))
    self.assertLess(max(kept), min(averaged))
    self.assertLess(max(kept) - min(kept), 0.5 * min(kept))


class ArgumentTest(parameterized.TestCase):

  @parameterized.parameters(
      ({'model': 'cubic'}, "model='cubic'"),
      ({'num_features': 0}, 'num_features=0'),
      ({'num_instances': 0}, 'num_instances=0'),
      ({'concurrency': 0}, 'concurrency=0'),
      ({'strategy': 'best'}, "strategy='best'"),
      ({'model': 'softmax'}, 'num_classes=1'),
      ({'num_classes': 3}, 'num_classes=3'),
  )
  def test_refused(self, changed, message):
    arguments = {
        'model': 'linear', 'step': _NOISY, 'num_features': 2,
        'num_instances': 3, **changed,
    }
    with self.assertRaisesRegex(ValueError, message):
      simulation.Simulator(**arguments)


if __name__ == '__main__':
  absltest.main()
