# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The law of the process against that of a simulation, for every strategy.

Both play the same short run many times: three rounds of two clients whose data
differ, with noise, from instances that are far apart. Of the process these are
its own functions, client and pool, in one compiled loop; that the federated
computation joins them as the loop does is in process_test.

Power: of 4,000 runs each, a law that is off by 0.061 anywhere in a distribution
function fails at 1e-6 (Smirnov); what another strategy would give does, for
every pair of strategies.
"""

import functools
import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf

from tff_dp import streams
from tff_dp.learning import linear_models
from tff_dp.systems.draw_and_discard import client as client_lib
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import models
from tff_dp.systems.draw_and_discard import pool as pool_lib
from tff_dp.systems.draw_and_discard import strategies

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6
_NUM_RUNS, _NUM_ROUNDS, _NUM_CLIENTS, _K = 4000, 3, 2, 3
_STEP = client_steps.ClientStep(
    learning_rate=1.0, clip_norm=0.3, epsilon=3.0, privacy_unit='coordinate'
)
# Client, example, feature; the last feature is the bias.
_X = np.float32([[[1, 0.5, 1], [0.5, 0, 1]], [[0, 1, 1], [0, 1, 1]]])
_Y = np.float32([[1, 0], [0, 0]])
_START = 4 * np.eye(_K, dtype=np.float32)


@functools.cache
def _of_process(name):
  """Returns the models at the end of each run of the process's functions.

  [runs, models, weights]. Draws of clients are NumPy's: that they are uniform,
  and made by each client for itself, is in client_test and process_test.
  """
  has_batches = name == strategies.SERVER_BATCH
  strategy = strategies.Strategy(
      name, 1 if has_batches else _K, _NUM_CLIENTS if has_batches else None
  )
  rules = pool_lib.Rules(strategy, initial_variance=0.0)
  model = models.FlatModel(
      linear_models.build_generalized_linear_model(
          'logistic', num_features=_K - 1
      )
  )
  gradient = model.build_gradient()
  start = tf.constant(_START[: strategy.num_models])
  key = streams.insecure_root_key(31)
  num_rounds = _NUM_RUNS * _NUM_ROUNDS
  size = (num_rounds, _NUM_CLIENTS)
  all_drawn = tf.constant(
      np.random.default_rng(33).integers(strategy.num_models, size=size),
      tf.int32,
  )
  all_noise = tf.reshape(
      client_lib.draw_noise(
          _STEP, num_rounds * _NUM_CLIENTS * model.num_params, key
      ),
      [*size, model.num_params],
  )

  def report(instances, drawn, noise, client):
    given = instances[drawn]
    # Features without the bias, which the model adds.
    mean, *_ = gradient(given, (_X[client, :, :-1], _Y[client]))
    moved = tf.cast(given, tf.float64) - _STEP.learning_rate * (
        client_lib.clip(tf.cast(mean, tf.float64), _STEP)
    )
    return tf.cast(moved + noise, tf.float32)

  def a_round(index, pool, found):
    instances = tf.where(index % _NUM_ROUNDS < 1, start, pool.instances)
    drawn = all_drawn[index]
    reports = tf.stack([
        report(instances, drawn[client], all_noise[index, client], client)
        for client in range(_NUM_CLIENTS)
    ])
    pool, _ = pool_lib.apply_reports(
        rules,
        pool._replace(instances=instances),
        reports,
        drawn if strategy.needs_drawn else drawn[:0],
    )
    return index + 1, pool, found.write(index // _NUM_ROUNDS, pool.instances)

  @tf.function(autograph=False, jit_compile=True)
  def play():
    return tf.while_loop(
        lambda index, *_: index < num_rounds,
        a_round,
        (
            0,
            pool_lib.initialize(rules, start[0], key),
            tf.TensorArray(tf.float32, _NUM_RUNS, element_shape=start.shape),
        ),
    )[2].stack()

  return play().numpy()


@functools.cache
def _of_simulation(name):
  """Returns the same of a loop over rounds and reports, by the textbook."""
  rng = np.random.default_rng(32)
  has_one = name in (strategies.SERVER_BATCH, strategies.ACCEPT)
  runs, num_models = np.arange(_NUM_RUNS), 1 if has_one else _K
  pool = np.repeat(_START[np.newaxis, :num_models].astype(float), len(runs), 0)
  for _ in range(_NUM_ROUNDS):
    snapshot = pool.copy()
    drawn = rng.integers(num_models, size=(_NUM_CLIENTS, len(runs)))
    returned = []
    for client, given in enumerate(drawn):
      models_given = snapshot[runs, given]
      share = 1 / (1 + np.exp(-models_given @ _X[client].T))
      gradient = (share - _Y[client]) @ _X[client] / len(_Y[client])
      step = _STEP.learning_rate * np.clip(
          gradient, -_STEP.clip_norm, _STEP.clip_norm
      )
      noise = rng.laplace(
          scale=_STEP.noise_scale(_K), size=models_given.shape
      )
      returned.append(models_given - step + noise)
    if name == strategies.SERVER_BATCH:
      pool[:, 0] = np.mean(returned, axis=0)
      continue
    order = rng.permuted(
        np.tile(np.arange(_NUM_CLIENTS), (len(runs), 1)), axis=1
    )
    for client in order.T:
      new = np.array(returned)[client, runs]
      row = rng.integers(_K, size=len(runs))
      if name in (strategies.SAME, strategies.AVERAGE_SAME):
        row = drawn[client, runs]
      elif name == strategies.ACCEPT:
        kept = row == 0
        pool[kept, 0] = new[kept]
        continue
      if name in (strategies.AVERAGE_RANDOM, strategies.AVERAGE_SAME):
        new = (new + pool[runs, row]) / 2
      pool[runs, row] = new
  return pool.astype(np.float32)


def _least_pvalue(ours, theirs):
  """Returns the least of many two-sample tests, of arrays [runs, rows, p]."""

  def statistics(found):
    yield from found.reshape(len(found), -1).T
    yield from found.mean(axis=1).T
    yield from found.std(axis=1).T
    # Which instances have an ancestor in common.
    yield found[:, 0, 0] * found[:, -1, 0]
    yield np.abs(found[:, 0] - found[:, -1]).max(axis=1)

  return min(
      stats.ks_2samp(a, b, method='asymp').pvalue
      for a, b in zip(statistics(ours), statistics(theirs), strict=True)
  )


class LawTest(parameterized.TestCase):

  # The two averages have the places of the first two, and a batch has no coin;
  # pool_test has the arithmetic of each.
  @parameterized.parameters(*strategies.NAMES)
  @pytest.mark.slow(cases=['2', '3', '5'])
  def test_law_of_the_process_is_that_of_a_simulation(self, name):
    ours, theirs = _of_process(name), _of_simulation(name)
    self.assertEqual(ours.shape, theirs.shape)
    self.assertGreater(_least_pvalue(ours, theirs), _FALSE_ALARM)

  # The power of these tests.
  @pytest.mark.slow
  def test_no_strategy_could_be_taken_for_another(self):
    # What each gives is there already if the tests above have run.
    for one, other in itertools.combinations(strategies.NAMES, 2):
      ours, theirs = _of_process(one), _of_simulation(other)
      if ours.shape == theirs.shape:
        self.assertLess(
            _least_pvalue(ours, theirs), _FALSE_ALARM, (one, other)
        )


if __name__ == '__main__':
  absltest.main()
