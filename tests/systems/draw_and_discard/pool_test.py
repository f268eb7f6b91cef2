# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what the server does with reports, without any federation."""

import collections
import functools
import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tests import used_keys
from tests.systems.draw_and_discard import strategies_test
from tff_dp import streams
from tff_dp.systems.draw_and_discard import pool as pool_lib
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import strategies

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6


def _rules(name='draw_and_discard', num_instances=4, **changes):
  batch = changes.pop('batch', None)
  return pool_lib.Rules(
      **dict(
          strategy=strategies.Strategy(name, num_instances, batch),
          initial_variance=1.0,
      )
      | changes
  )


def _pool(rules, rows, seed=3, round_index=0):
  """Returns a pool that holds the rows."""
  rows = np.asarray(rows, np.float32)
  pool = pool_lib.initialize(
      rules, tf.zeros([rows.shape[1]]), streams.insecure_root_key(seed)
  )
  return pool._replace(
      instances=tf.constant(rows), round=tf.constant(round_index, tf.int64)
  )


def _apply(rules, pool, reports, drawn=()):
  return pool_lib.apply_reports(
      rules,
      pool,
      tf.constant(np.asarray(reports, np.float32)),
      tf.constant(np.asarray(drawn, np.int32)),
  )


def _after(rules, rows, reports, drawn=(), **where):
  """Returns the instances after the reports, as an array."""
  pool, _ = _apply(rules, _pool(rules, rows, **where), reports, drawn)
  return np.asarray(pool.instances)


def _first_weights(rules, rows, reports, num_rounds) -> np.ndarray:
  """Returns weight 0 of all models after each of many rounds from one pool."""
  before = _pool(rules, rows)
  reports = tf.constant(reports, tf.float32)

  @tf.function(autograph=False, jit_compile=True)
  def run():
    def body(t, found):
      pool, _ = pool_lib.apply_reports(
          rules,
          before._replace(round=tf.cast(t, tf.int64)),
          reports,
          tf.zeros([0], tf.int32),
      )
      return t + 1, found.write(t, pool.instances[:, 0])

    found = tf.TensorArray(tf.float32, num_rounds)
    return tf.while_loop(lambda t, _: t < num_rounds, body, (0, found))[
        1
    ].stack()

  return np.asarray(run())


class StrategiesTest(parameterized.TestCase):

  def test_bad_values_name_themselves(self):
    for arguments, message in (
        (('other', 2), 'strategy='),
        (('draw_and_discard', 0), 'num_instances=0'),
        (('server_batch', 2, 3), 'num_instances=2'),
        (('server_batch', 1), 'server_batch=None'),
        (('same', 2, 3), 'server_batch=3'),
    ):
      with self.assertRaisesRegex(ValueError, message):
        strategies.Strategy(*arguments)

  def test_the_kept_report_is_stored_as_it_is(self):
    rows = [[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]
    new = [[7.0, -1.0]]
    for round_index in range(8):
      after = _after(_rules(num_instances=3), rows, new,
                     round_index=round_index)
      changed = np.flatnonzero(np.any(after != np.float32(rows), axis=1))
      self.assertLen(changed, 1)
      np.testing.assert_array_equal(after[changed[0]], new[0])

  @parameterized.parameters('same', 'average_same')
  def test_same_writes_what_was_drawn(self, name):
    rows = np.float32([[1.0], [2.0], [3.0], [4.0]])
    for drawn in range(4):
      wanted = rows.copy()
      wanted[drawn] = 9.0 if name == 'same' else (9.0 + rows[drawn]) / 2
      np.testing.assert_array_equal(
          _after(_rules(name), rows, [[9.0]], [drawn], round_index=drawn),
          wanted,
      )

  def test_average_same_is_half_of_the_step(self):
    rows = np.float32([[1.0, 5.0], [2.0, 6.0]])
    step = np.float32([0.5, -0.25])
    np.testing.assert_array_equal(
        _after(_rules('average_same', 2), rows, [rows[1] - step], [1]),
        _after(_rules('same', 2), rows, [rows[1] - step / 2], [1]),
    )

  def test_average_random_averages_models_and_not_steps(self):
    rows = np.float32([[0.0], [100.0], [200.0]])
    seen = set()
    for round_index in range(30):
      # The client had instance 0, and moved it to 1.
      after = _after(_rules('average_random', 3), rows, [[1.0]],
                     round_index=round_index)
      (j,) = np.flatnonzero(np.any(after != rows, axis=1))
      self.assertEqual(after[j, 0], (1.0 + rows[j, 0]) / 2)
      seen.add(j)
    self.assertEqual(seen, {0, 1, 2})

  def test_one_in_k_is_accepted(self):
    rules = _rules('accept_1_over_k', 5)
    found = _first_weights(rules, [[0.0]], [[7.0]], num_rounds=2000)
    self.assertEqual(set(found.ravel()), {0.0, 7.0})
    self.assertGreater(
        stats.binomtest(int(np.sum(found == 7.0)), 2000, 0.2).pvalue,
        _FALSE_ALARM,
    )

  def test_a_batch_moves_the_model_by_the_mean_of_its_updates(self):
    rules = _rules('server_batch', 1, batch=3)
    pool = _pool(rules, [[1.0, 2.0]])
    pool, counts = _apply(rules, pool, [[2.0, 2.0], [1.0, 5.0]])
    np.testing.assert_array_equal(pool.instances, [[1.0, 2.0]])
    self.assertEqual(int(pool.num_pending), 2)
    self.assertEqual(int(counts['num_stored']), 2)
    pool, _ = _apply(rules, pool, [[3.0, 2.0]])
    np.testing.assert_array_equal(pool.instances, [[2.0, 3.0]])
    self.assertEqual(int(pool.num_pending), 0)
    np.testing.assert_array_equal(pool.pending, [0.0, 0.0])

  def test_several_batches_in_a_round_have_updates_of_its_first_model(self):
    rules = _rules('server_batch', 1, batch=2)
    # All four clients had the model at 1 and moved it by 2.
    after = _after(rules, [[1.0]], [[3.0]] * 4)
    np.testing.assert_array_equal(after, [[5.0]])

  def test_finite_reports_that_add_up_to_infinity_are_dropped(self):
    rules = _rules('server_batch', 1, batch=2)
    pool, _ = _apply(rules, _pool(rules, [[1.0]]), [[3e38], [3e38]])
    np.testing.assert_array_equal(pool.instances, [[1.0]])
    np.testing.assert_array_equal(pool.pending, [0.0])
    self.assertEqual(int(pool.num_pending), 0)
    after = _after(_rules('average_random', 1), [[3e38]], [[3e38]])
    np.testing.assert_allclose(after, [[3e38]])


class RoundTest(parameterized.TestCase):

  def test_empty_round_changes_nothing_but_the_count(self):
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for name, k, batch in (
        ('draw_and_discard', 2, None),
        ('same', 2, None),
        ('server_batch', 1, 2),
    ):
      rules = _rules(name, k, batch=batch)
      before = _pool(rules, rows[:k])
      pool, counts = _apply(rules, before, np.zeros([0, 2]))
      np.testing.assert_array_equal(pool.instances, before.instances)
      self.assertEqual(int(pool.round), 1)
      self.assertEqual([int(c) for c in counts.values()], [0, 0, 0, 0])

  def test_a_round_repeats_and_another_has_other_coins(self):
    rules = _rules(num_instances=50)
    rows = np.arange(50.0)[:, np.newaxis]
    reports = 100 + np.arange(20.0)[:, np.newaxis]
    first = _after(rules, rows, reports)
    np.testing.assert_array_equal(first, _after(rules, rows, reports))
    self.assertTrue(
        np.any(first != _after(rules, rows, reports, round_index=1))
    )
    self.assertTrue(np.any(first != _after(rules, rows, reports, seed=4)))

  def test_no_key_is_for_two_draws(self):
    rules, made = _rules(num_instances=5), []
    # Two rounds and a new spread, which begin after the key of their purpose.
    with used_keys.used() as keys:
      pool = _pool(rules, np.zeros([5, 2]))
      for step in (
          lambda pool: _apply(rules, pool, np.ones([3, 2]))[0],
          lambda pool: _apply(rules, pool, np.ones([3, 2]))[0],
          lambda pool: pool_lib.set_weights(rules, pool, tf.ones([2])),
      ):
        pool = step(pool)
        made.append(tuple(keys))
    for one, two in itertools.pairwise([(), *made]):
      new = two[len(one) :]
      self.assertNotEmpty(new)
      self.assertLen(set(new), len(new))

  def test_places_are_uniform_and_order_is_random(self):
    # k = 3, two reports: all 3 * 3 pairs of places, in either order.
    num_rounds = 1800
    found = _first_weights(
        _rules(num_instances=3), np.zeros([3, 1]), [[1.0], [2.0]],
        num_rounds=num_rounds,
    )
    outcomes = collections.Counter(map(tuple, found))
    # Different places: 6 outcomes of 1/9; same place: the later report stays,
    # 6 outcomes of 1/18.
    both = [count for found, count in outcomes.items() if len(set(found)) == 3]
    one = [count for found, count in outcomes.items() if len(set(found)) == 2]
    self.assertLen(both, 6)
    self.assertLen(one, 6)
    statistic = sum((n - num_rounds / 9) ** 2 / (num_rounds / 9) for n in both)
    statistic += sum(
        (n - num_rounds / 18) ** 2 / (num_rounds / 18) for n in one
    )
    self.assertGreater(stats.chi2.sf(statistic, 11), _FALSE_ALARM)

  @parameterized.parameters(np.nan, np.inf, -np.inf)
  def test_what_is_not_finite_is_counted_and_never_stored(self, bad):
    for name, k, batch in (
        ('draw_and_discard', 2, None),
        ('average_random', 2, None),
        ('accept_1_over_k', 1, None),
        ('server_batch', 1, 1),
    ):
      rules = _rules(name, k, batch=batch)
      rows = np.float32([[1.0, 2.0], [3.0, 4.0]])[:k]
      pool, counts = _apply(
          rules, _pool(rules, rows), [[5.0, bad], [5.0, bad]]
      )
      np.testing.assert_array_equal(pool.instances, rows)
      self.assertEqual(int(counts['num_not_finite']), 2)
      self.assertEqual(int(counts['num_stored']), 0)
      self.assertFalse(np.any(np.isnan(pool.pending)))

  def test_measurements(self):
    rules = _rules(num_instances=3)
    rows = np.float32([[0.0, 1.0], [3.0, 1.0], [0.0, 4.0]])
    measured = pool_lib.measure(_pool(rules, rows))
    self.assertAlmostEqual(
        float(measured['spread']), np.var(rows, axis=0, ddof=1).mean(), places=5
    )
    self.assertAlmostEqual(
        float(measured['max_distance']),
        np.linalg.norm(rows - rows.mean(0), axis=1).max(),
        places=5,
    )
    alone = pool_lib.measure(_pool(_rules(num_instances=1), rows[:1]))
    self.assertEqual(float(alone['spread']), 0.0)


class SpreadTest(parameterized.TestCase):

  def test_fresh_pool_has_the_variance_and_not_the_stddev(self):
    variance, num_params = 0.09, 4000
    rules = _rules(num_instances=6, initial_variance=variance)
    middle = np.linspace(-1, 1, num_params).astype(np.float32)
    pool = pool_lib.initialize(
        rules, tf.constant(middle), streams.insecure_root_key(5)
    )
    total = np.sum((np.asarray(pool.instances) - middle) ** 2) / variance
    tail = stats.chi2.cdf(total, 6 * num_params)
    self.assertBetween(tail, _FALSE_ALARM, 1 - _FALSE_ALARM)

  def test_setter_spreads_anew_each_time(self):
    rules = _rules(num_instances=3, initial_variance=4.0)
    pool = pool_lib.initialize(
        rules, tf.zeros([500]), streams.insecure_root_key(5)
    )
    first = pool_lib.set_weights(rules, pool, tf.ones([500]))
    second = pool_lib.set_weights(rules, first, tf.ones([500]))
    draws = [np.array(p.instances) for p in (pool, first, second)]
    draws[0] += 1.0
    for draw in draws:
      total = np.sum((draw - 1.0) ** 2) / 4.0
      self.assertBetween(
          stats.chi2.cdf(total, 1500), _FALSE_ALARM, 1 - _FALSE_ALARM
      )
    for i, j in ((0, 1), (0, 2), (1, 2)):
      correlation = np.corrcoef(draws[i].ravel(), draws[j].ravel())[0, 1]
      self.assertLess(abs(correlation), 0.13)
    self.assertEqual(int(second.num_sets), 2)

  def test_one_model_begins_where_it_is_told_to(self):
    for rules in (
        _rules(num_instances=1),
        _rules('accept_1_over_k', 7),
        _rules('server_batch', 1, batch=2),
    ):
      pool = pool_lib.initialize(
          rules, tf.constant([1.0, 2.0]), streams.insecure_root_key(5)
      )
      np.testing.assert_array_equal(pool.instances, [[1.0, 2.0]])

  def test_setter_forgets_a_pending_batch(self):
    rules = _rules('server_batch', 1, batch=3)
    pool, _ = _apply(rules, _pool(rules, [[1.0]]), [[5.0]])
    pool = pool_lib.set_weights(rules, pool, tf.constant([2.0]))
    self.assertEqual(int(pool.num_pending), 0)
    np.testing.assert_array_equal(pool.pending, [0.0])


@functools.cache
def _build_chains(name, num_instances, concurrency, num_rounds, num_chains):
  """Returns what maps the variance at the start to chains without gradients.

  Their spread and mean over instances, before and after all rounds, of shape
  [chains, 4, weights]. Clients draw an instance and add standard normals; all
  keys are fixed.
  """
  num_params = 30
  rules = _rules(name, num_instances)

  def advance(pool, chain):
    key = streams.fold_in(
        streams.fold_in(streams.insecure_root_key(11), chain), pool.round
    )
    drawn = tf.random.stateless_uniform(
        [concurrency], streams.fold_in(key, 0), maxval=num_instances,
        dtype=tf.int32,
    )
    reports = tf.gather(pool.instances, drawn) + tf.random.stateless_normal(
        [concurrency, num_params], streams.fold_in(key, 1)
    )
    pool, _ = pool_lib.apply_reports(rules, pool, reports, drawn)
    return pool

  def observe(pool):
    return (
        pool_lib.spread(pool.instances), tf.reduce_mean(pool.instances, axis=0)
    )

  # One compiled loop over chains and rounds: nothing else is fast enough.
  @tf.function(autograph=False, jit_compile=True)
  def run(start):
    def a_chain(chain, results):
      first = pool_lib.initialize(
          rules,
          tf.zeros([num_params]),
          streams.fold_in(streams.insecure_root_key(12), chain),
      )
      # The rules have 1.
      first = first._replace(instances=tf.sqrt(start) * first.instances)
      _, last = tf.while_loop(
          lambda t, _: t < num_rounds,
          lambda t, pool: (t + 1, advance(pool, chain)),
          (0, first),
      )
      found = observe(first) + observe(last)
      return chain + 1, results.write(chain, tf.stack(found))

    results = tf.TensorArray(tf.float32, num_chains)
    return tf.while_loop(
        lambda chain, _: chain < num_chains, a_chain, (0, results)
    )[1].stack()

  return run


def _chains(*arguments, start):
  return np.asarray(_build_chains(*arguments)(tf.constant(start, tf.float32)))


class VarianceTest(parameterized.TestCase):

  def _assert_mean(self, samples, wanted, sigmas=5.0):
    """Chains are independent; weights of one chain share its coins."""
    of_chain = samples.mean(axis=1)
    error = of_chain.std(ddof=1) / math.sqrt(len(of_chain))
    # Power: a formula that is wrong by a tenth is seen.
    self.assertLess(sigmas * error, 0.35 * wanted)
    self.assertLess(abs(of_chain.mean() - wanted), sigmas * error)

  # The formula is compared with a simulation in strategies_test, and the pool
  # with one in law_test.
  @parameterized.parameters((4, 1), (3, 3), (4, 6))
  @pytest.mark.slow
  def test_right_spread_stays_and_a_wrong_one_is_forgotten(self, k, m):
    fixed = strategies.stationary_variance(
        k, noise_variance=1.0, concurrency=m
    )
    num_rounds = max(3, k * k // m)
    for start in (fixed, 0.0):
      chains = _chains('draw_and_discard', k, m, num_rounds, 400, start=start)
      wanted = start
      for _ in range(num_rounds):
        wanted = strategies_test.next_variance(
            wanted, k, noise_variance=1.0, concurrency=m
        )
      self._assert_mean(chains[:, 2], wanted)

  @pytest.mark.slow
  def test_mean_of_the_instances_drifts(self):
    k, num_rounds = 4, 16
    chains = _chains('draw_and_discard', k, 1, num_rounds, 400, start=k / 2)
    moved = (chains[:, 3] - chains[:, 1]) ** 2
    self._assert_mean(moved, num_rounds / k)

  @pytest.mark.slow
  def test_spread_of_separate_lineages_grows(self):
    k, num_rounds = 3, 12
    chains = _chains('same', k, 1, num_rounds, 400, start=1.0)
    self._assert_mean(chains[:, 2], 1.0 + num_rounds / k)

  def test_an_update_survives_with_probability_one_in_k(self):
    # Ancestry: a report carries the mark of the instance it came from, and the
    # first report of all has a mark of its own.
    k, num_updates, num_chains = 3, 40, 600
    rules = _rules(num_instances=k)
    blank = _pool(rules, np.zeros([k, 1]))

    @tf.function(autograph=False, jit_compile=True)
    def run():
      def a_chain(chain, shares):
        key = streams.fold_in(streams.insecure_root_key(21), chain)

        def body(t, pool):
          drawn = tf.random.stateless_uniform(
              [], streams.fold_in(key, t), maxval=k, dtype=tf.int32
          )
          mark = tf.where(t < 1, 1.0, pool.instances[drawn, 0])
          pool, _ = pool_lib.apply_reports(
              rules, pool, tf.reshape(mark, [1, 1]), tf.zeros([0], tf.int32)
          )
          return t + 1, pool

        _, pool = tf.while_loop(
            lambda t, _: t < num_updates, body, (0, blank._replace(key=key))
        )
        return chain + 1, shares.write(chain, tf.reduce_sum(pool.instances) / k)

      return tf.while_loop(
          lambda chain, _: chain < num_chains,
          a_chain,
          (0, tf.TensorArray(tf.float32, num_chains)),
      )[1].stack()

    shares = np.asarray(run())
    alive = sum(share == 1.0 for share in shares)
    dead = sum(share == 0.0 for share in shares)
    self.assertEqual(alive + dead, num_chains)
    self.assertGreater(
        stats.binomtest(int(alive), num_chains, 1 / k).pvalue, _FALSE_ALARM
    )


class SpamTest(parameterized.TestCase):

  def _filtered(self, rule, threshold, **changes):
    return _rules(
        num_instances=4,
        spam_filter=spam_filters.SpamFilter(
            threshold=threshold, rule=rule, min_spread=1e-3, **changes
        ),
    )

  @parameterized.parameters(('any', None), ('fraction', 0.3), ('norm', None))
  def test_far_reports_leave_no_trace_and_near_ones_stay(self, rule, bound):
    rules = self._filtered(rule, 4.0, bound=bound)
    rows = np.float32(np.random.default_rng(1).normal(size=[4, 3]))
    before = _pool(rules, rows)
    far = rows.mean(axis=0) + 100.0
    pool, counts = _apply(rules, before, [far, far])
    np.testing.assert_array_equal(pool.instances, rows)
    self.assertEqual(int(counts['num_spam']), 2)
    self.assertEqual(int(counts['num_stored']), 0)
    pool, counts = _apply(rules, before, [rows.mean(axis=0) + 0.01])
    self.assertEqual(int(counts['num_spam']), 0)
    self.assertEqual(int(counts['num_stored']), 1)

  def test_rules_differ_where_one_weight_is_far(self):
    rows = np.float32(np.random.default_rng(1).normal(size=[4, 10]))
    report = rows.mean(axis=0)
    report[3] += 5.0 * rows[:, 3].std(ddof=1)
    for rule, threshold, bound, is_spam in (
        ('any', 4.9, None, True),
        ('any', 5.1, None, False),
        ('fraction', 4.0, 0.05, True),
        ('fraction', 4.0, 0.15, False),
        # The mean square is 25/10.
        ('norm', 2.4, None, True),
        ('norm', 2.6, None, False),
    ):
      rules = self._filtered(rule, threshold, bound=bound)
      _, counts = _apply(rules, _pool(rules, rows), [report])
      self.assertEqual(bool(counts['num_spam']), is_spam, (rule, threshold))

  def test_instances_that_agree_do_not_divide_by_zero(self):
    rules = self._filtered('any', 3.0)
    rows = np.ones([4, 2], np.float32)
    _, counts = _apply(rules, _pool(rules, rows), [[1.0, 1.0], [1.1, 1.0]])
    # The spread counts as `min_spread` at least.
    self.assertEqual(int(counts['num_spam']), 1)
    self.assertEqual(int(counts['num_not_finite']), 0)

  def test_what_is_not_finite_is_not_called_spam(self):
    rules = self._filtered('norm', 3.0)
    _, counts = _apply(
        rules, _pool(rules, np.eye(4)), [[np.nan, 0.0, 0.0, 0.0]]
    )
    self.assertEqual(int(counts['num_not_finite']), 1)
    self.assertEqual(int(counts['num_spam']), 0)

  def test_each_report_is_compared_with_the_pool_as_it_stands(self):
    # The first report widens the pool, so that the second one is let in; in the
    # order that refuses the wide one first nothing else is refused.
    rules = self._filtered('any', 3.0)
    rows = np.float32([[0.0], [0.1], [-0.1], [0.05]])
    stored = set()
    for round_index in range(20):
      _, counts = _apply(
          rules,
          _pool(rules, rows, round_index=round_index),
          [[0.25], [0.45]],
      )
      stored.add(int(counts['num_stored']))
    self.assertEqual(stored, {1, 2})


if __name__ == '__main__':
  absltest.main()
