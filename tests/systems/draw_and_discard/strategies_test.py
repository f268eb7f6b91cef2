# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for strategies and instance_lineages, by plain simulation."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp.systems.draw_and_discard import instance_lineages
from tff_dp.systems.draw_and_discard import strategies


def _rounds(rng, pools, num_rounds, concurrency):
  """Plays rounds of draw and discard, noise only: pools [runs, k, p], in place."""
  runs, k, p = pools.shape
  rows = np.arange(runs)
  for _ in range(num_rounds):
    before = pools.copy()
    for _ in range(concurrency):
      drawn = rng.integers(k, size=runs)
      written = rng.integers(k, size=runs)
      pools[rows, written] = before[rows, drawn] + rng.laplace(size=(runs, p))


def _spread(pools):
  """Returns (mean, standard error) of the spread over runs."""
  of_run = np.mean(np.var(pools, axis=1, ddof=1), axis=1)
  return np.mean(of_run), np.std(of_run) / math.sqrt(len(of_run))


def next_variance(variance, k, *, noise_variance, concurrency=1):
  """Returns the expected spread after one more round, as in the module."""
  kept = (1 - 1 / k) ** concurrency
  apart = (1 - 2 / k) ** concurrency
  return variance * (1 - (1 - apart) / k) + noise_variance * (1 - kept)


class RecursionTest(parameterized.TestCase):

  @parameterized.product(
      shape=((2, 1), (5, 1), (4, 3), (3, 20)), from_zero=(False, True)
  )
  def test_spread(self, shape, from_zero):
    k, m = shape
    rng = np.random.default_rng([7, k, m])
    runs, p, variance = 4000, 4, 2.0
    stays = strategies.stationary_variance(
        k, noise_variance=variance, concurrency=m
    )
    expected = 0.0 if from_zero else stays
    pools = math.sqrt(expected) * rng.standard_normal((runs, k, p))
    for _ in range(4):
      _rounds(rng, pools, 2, m)
      for _ in range(2):
        expected = next_variance(
            expected, k, noise_variance=variance, concurrency=m
        )
      mean, error = _spread(pools)
      # 5 standard errors: a false alarm in 10^6.
      self.assertAlmostEqual(mean, expected, delta=5 * error)
    if not from_zero:
      self.assertAlmostEqual(expected, stays, places=10)

  @parameterized.parameters((2, 1), (20, 1), (20, 7), (7, 500))
  def test_fixed_point_attracts(self, k, m):
    stays = strategies.stationary_variance(
        k, noise_variance=3.0, concurrency=m
    )
    start = found = 5 * stays
    steps = 50
    for _ in range(steps):
      found = next_variance(
          found, k, noise_variance=3.0, concurrency=m
      )
    decay = (1 - (1 - (1 - 2 / k) ** m) / k) ** steps
    self.assertAlmostEqual((found - stays) / (start - stays), decay, places=9)

  def test_published_values(self):
    # Theorem 1: k/2 sigma^2; far above k clients at once: k sigma^2.
    for k in (2, 10, 100):
      self.assertAlmostEqual(
          strategies.stationary_variance(k, noise_variance=1.0), k / 2
      )
      self.assertAlmostEqual(
          strategies.stationary_variance(
              k, noise_variance=1.0, concurrency=100 * k
          ),
          k,
      )

  def test_one_instance_has_no_spread(self):
    self.assertEqual(
        strategies.stationary_variance(1, noise_variance=1.0), 0
    )

  def test_the_mean_drifts(self):
    k, steps, runs = 5, 12, 20_000
    rng = np.random.default_rng(3)
    pools = np.zeros((runs, k, 1))
    _rounds(rng, pools, steps, 1)
    means = np.mean(pools, axis=1)[:, 0]
    # Variance sigma^2 / k per update, plus what the spread, which is still
    # below its fixed point, takes part in: the sum over updates of
    # sigma^2/k^2 + 2 S_t (1 - 1/k)/k^2.
    spread, variance = 0.0, 0.0
    for _ in range(steps):
      variance += 2.0 / k**2 + 2 * spread * (k - 1) / k / k**2
      spread = next_variance(spread, k, noise_variance=2.0)
    found = np.var(means)
    error = np.std((means - np.mean(means)) ** 2) / math.sqrt(runs)
    self.assertAlmostEqual(found, variance, delta=5 * error)
    # In the stationary state that is sigma^2 / k per update.
    stays = strategies.stationary_variance(k, noise_variance=2.0)
    self.assertAlmostEqual(
        2.0 / k**2 + 2 * stays * (k - 1) / k / k**2, 2.0 / k
    )

  def test_arguments(self):
    with self.assertRaisesRegex(ValueError, 'num_instances=0'):
      strategies.stationary_variance(0, noise_variance=1.0)
    with self.assertRaisesRegex(ValueError, 'concurrency=0'):
      strategies.stationary_variance(3, noise_variance=1.0, concurrency=0)
    with self.assertRaisesRegex(ValueError, 'noise_variance=-1'):
      strategies.stationary_variance(3, noise_variance=-1.0)


class LineagesTest(parameterized.TestCase):

  @parameterized.parameters((2, 1), (6, 1), (3, 4), (8, 3))
  def test_law_of_a_pool_and_its_next_update(self, k, m):
    # Against a pool that was played forward, far beyond its time constant.
    rng = np.random.default_rng([5, k, m])
    runs, p = 3000, 2
    lineages = instance_lineages.sample(k, runs, rng, concurrency=m)
    sampled = instance_lineages.weights(
        lineages, p, rng, mechanism='laplace'
    )
    pools = np.zeros((runs, k, p))
    _rounds(rng, pools, 4 * k * k // m + 40, m)
    rows = np.arange(runs)
    before = pools.copy()
    position = rng.integers(m, size=runs)
    for client in range(m):
      drawn, written = rng.integers(k, size=(2, runs))
      value = before[rows, drawn] + rng.laplace(size=(runs, p))
      early = client < position
      pools[rows[early], written[early]] = value[early]
    returned = before[rows, rng.integers(k, size=runs)] + rng.laplace(
        size=(runs, p)
    )
    played = np.concatenate([pools, returned[:, np.newaxis]], axis=1)

    def statistics(models):
      instances = models[:, :-1]
      spread = np.std(instances, axis=1, ddof=1)
      distance = models[:, -1] - np.mean(instances, axis=1)
      last = models[:, 0] - models[:, -1]
      # Of both weights of a run, which share its coins.
      return (
          spread[:, 0],
          distance[:, 0],
          spread[:, 0] * spread[:, 1],
          np.abs(distance).max(axis=1),
          last[:, 0],
      )

    for ours, theirs in zip(
        statistics(sampled), statistics(played), strict=True
    ):
      self.assertGreater(stats.ks_2samp(ours, theirs).pvalue, 1e-6)

  @parameterized.parameters((6, 1), (4, 3))
  def test_chunks_have_all_trees_and_no_edge_too_many(self, k, m):
    lineages = instance_lineages.sample(
        k, 300, np.random.default_rng(3), concurrency=m
    )
    chunks = list(instance_lineages.in_chunks(lineages, 200))
    self.assertGreater(len(chunks), 5)

    def trees(of):
      """Returns every tree as the set of its edges with updates on them."""
      return sorted(
          sorted((*models, int(count)) for models, count in zip(*tree) if count)
          for tree in zip(of.below.tolist(), of.counts)
      )

    parts = [tree for chunk in chunks for tree in trees(chunk)]
    self.assertEqual(sorted(parts), trees(lineages))
    drawn = sum(chunk.counts.size for chunk in chunks)
    self.assertLess(drawn, 1.1 * np.sum(lineages.counts > 0))
    self.assertLess(drawn, 0.9 * lineages.counts.size)

  @parameterized.parameters((10, 1), (2, 3))
  def test_spread_that_a_returned_model_meets(self, k, m):
    # Some of its round have written already: `position` of them, uniformly.
    rng = np.random.default_rng(9)
    lineages = instance_lineages.sample(k, 8000, rng, concurrency=m)
    models = instance_lineages.weights(
        lineages, 10, rng, mechanism='gaussian'
    )
    stays = strategies.stationary_variance(
        k, noise_variance=1.0, concurrency=m
    )
    expected = np.mean([
        next_variance(
            stays, k, noise_variance=1.0, concurrency=position
        )
        for position in range(m)
    ])
    mean, error = _spread(models[:, :-1])
    self.assertAlmostEqual(mean, expected, delta=5 * error)
    if m > 1:
      self.assertGreater(abs(stays - expected), 7 * error)


class StepsPerRoundTest(parameterized.TestCase):

  @parameterized.product(
      name=strategies.NAMES[:-1], shape=((1, 2), (2, 1), (2, 3), (3, 2), (3, 3))
  )
  def test_equals_all_coins(self, name, shape):
    k, m = shape
    strategy = strategies.Strategy(name, k)
    steps = []
    # Of each client what it is given, and where it goes; in any order.
    for coins in itertools.product(range(k), repeat=2 * m):
      # How many steps each model has behind it.
      before = np.arange(strategy.num_models) * 10.0
      after = before.copy()
      for given, place in zip(coins[:m], coins[m:]):
        if strategy.num_models == 1:
          given = 0
          if place:
            continue
        if strategy.needs_drawn:
          place = given
        new = before[given] + 1
        after[place] = (new + after[place]) / 2 if strategy.averages else new
      steps.append(after.mean() - before.mean())
    self.assertAlmostEqual(np.mean(steps), strategy.steps_per_round(m))

  def test_batches_and_limits(self):
    batch = strategies.Strategy(strategies.SERVER_BATCH, 1, 10)
    self.assertEqual(batch.steps_per_round(25), 2.5)
    pool = strategies.Strategy(strategies.DRAW_AND_DISCARD, 20)
    self.assertAlmostEqual(pool.steps_per_round(), 1 / 20)
    # A fifth of what 100 updates one by one would be.
    self.assertAlmostEqual(pool.steps_per_round(100), 0.994, places=3)
    with self.assertRaisesRegex(ValueError, 'concurrency=0'):
      pool.steps_per_round(0)


if __name__ == '__main__':
  absltest.main()
