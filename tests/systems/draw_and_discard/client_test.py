# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what leaves a client: its clip, and its noise as released."""

import collections
import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import DrawAndDiscardPlan
from tff_dp import execution
from tff_dp import learning
from tff_dp.systems.draw_and_discard import client as client_lib
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import models

_FALSE_ALARM = 1e-6
# Weights, each with a draw of the noise.
_MANY = 20_000


def setUpModule():
  execution.set_default_context()


def _build_linear(num_params):
  """Returns a model whose mean gradient is the mean of the records."""

  @tf.function
  def predict(weights, x, training=True):
    del training
    ((vector,), _) = weights
    return tf.linalg.matvec(x, vector)

  def loss(output, label, sample_weight=None):
    del label, sample_weight
    return tf.reduce_mean(output)

  return tff.learning.models.FunctionalModel(
      initial_weights=((np.zeros([num_params], np.float32),), ()),
      predict_on_batch_fn=predict,
      loss_fn=loss,
      input_spec=(
          tf.TensorSpec([None, num_params], tf.float32),
          tf.TensorSpec([None], tf.float32),
      ),
  )


@functools.cache
def _client(num_params, step, **changes):
  plan = DrawAndDiscardPlan(
      step=step,
      num_params=num_params,
      num_instances=2,
      max_participations=1,
      num_rounds=1,
  )
  return client_lib.build(
      models.FlatModel(_build_linear(num_params)), plan, **changes
  )


def _key(client, data):
  """Returns what a client's coin and noise follow from."""
  has_data = client.key.type_signature.parameter is not None
  return client.key(data) if has_data else client.key()


def _report(client, instances, data, round_index):
  """Returns (report, sums) of a client, as a round computes them."""
  moved, sums = client.move(client.instance(instances), data)
  return client.report(moved, _key(client, data), round_index), sums


def _batches(*rows_of_batches):
  return [
      (np.asarray(rows, np.float32), np.zeros(len(rows), np.float32))
      for rows in rows_of_batches
  ]


def _step(**changes):
  return client_steps.ClientStep(
      **dict(learning_rate=0.5, epsilon=1.0, privacy_unit='coordinate')
      | changes
  )


def _with_keys():
  return _client(200, _step(), client_keys=True)


def _norm(vector, clip):
  order = {'box': np.inf, 'l1': 1, 'l2': 2}[clip]
  return np.linalg.norm(vector, order)


class ClipTest(parameterized.TestCase):

  @parameterized.parameters('box', 'l1', 'l2')
  def test_any_two_data_sets_are_within_the_sensitivity(self, clip):
    step = _step(clip=clip, clip_norm=0.7, mechanism=None, epsilon=None)
    size = 6
    client = _client(size, step)
    rng = np.random.default_rng(2)
    instance = rng.normal(size=size).astype(np.float32)
    extreme = np.full([1, size], 3e38)
    # The corner of each ball, where the bound is attained.
    corner = np.full([1, size], 9.0) if clip == 'box' else 9 * np.eye(size)[:1]
    data = [
        _batches(rng.normal(size=[3, size]), 5 * rng.normal(size=[2, size])),
        _batches(0.01 * rng.normal(size=[1, size])),
        _batches(extreme), _batches(-extreme), _batches(extreme, -extreme),
        _batches([[np.nan] * size]), _batches([[np.inf] + [0.0] * (size - 1)]),
        _batches(corner), _batches(-corner), [],
        _batches(np.zeros([0, size])),
    ]
    reports = [_report(client, [instance], d, 0)[0] for d in data]
    wanted = 2 * 0.5 * 0.7
    distances = [_norm(a - b, clip) for a in reports for b in reports]
    self.assertLess(max(distances), wanted + 1e-6)
    self.assertGreater(max(distances), wanted - 1e-5)
    for index in (5, 6, 9, 10):
      np.testing.assert_array_equal(reports[index], instance)

  def test_batches_may_have_names(self):
    model = models.FlatModel(_build_linear(2))
    x, y = np.float32([[1, 2], [3, 5]]), np.float32([0, 0])
    gradient = model.build_gradient()
    wanted, *_ = gradient(tf.zeros([2]), (x, y))
    np.testing.assert_allclose(wanted, [2, 3.5])
    named, *_ = gradient(tf.zeros([2]), collections.OrderedDict(y=y, x=x))
    np.testing.assert_array_equal(named, wanted)

  def test_the_mean_over_all_examples_is_clipped(self):
    step = _step(clip='l2', clip_norm=0.7, mechanism=None, epsilon=None)
    client = _client(6, step)
    rows = np.zeros([3, 6], np.float32)
    rows[:, :2] = [[3, 0], [0, 4], [-3, 0.5]]
    instance = np.arange(6, dtype=np.float32)
    report, sums = _report(
        client, [instance], _batches(rows[:1], rows[1:]), 0
    )
    mean = rows.mean(axis=0)
    np.testing.assert_allclose(
        report, instance - 0.5 * 0.7 * mean / np.linalg.norm(mean), rtol=1e-6
    )
    self.assertEqual(int(sums.num_examples), 3)

  def test_a_client_needs_one_instance(self):
    for instances in ([], [np.zeros(200, np.float32)] * 2):
      with self.assertRaisesRegex(Exception, 'exactly one instance'):
        _with_keys().instance(instances)


class NoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      ('laplace', 'box', 'coordinate'),
      ('laplace', 'l1', 'model'),
      ('gaussian', 'l2', 'model'),
  )
  def test_released_noise_has_the_stated_law_and_scale(
      self, mechanism, clip, unit
  ):
    size = _MANY
    step = _step(
        mechanism=mechanism, clip=clip, privacy_unit=unit, epsilon=2.0,
        delta=1e-5 if mechanism == 'gaussian' else None,
    )
    client = _client(size, step)
    report, _ = _report(client, [np.zeros(size, np.float32)], [], 0)
    law = stats.laplace if mechanism == 'laplace' else stats.norm
    scale = step.noise_scale(size)
    self.assertGreater(
        stats.kstest(report, law(scale=scale).cdf).pvalue, _FALSE_ALARM
    )
    # 5.6 standard errors for Laplace noise, so a scale that is wrong by a tenth
    # is seen.
    mean_size = law(scale=scale).expect(np.abs)
    self.assertLess(abs(np.abs(report).mean() / mean_size - 1), 0.04)
    # Neighbouring weights share nothing.
    signs = np.sign(report[1:] * report[:-1])
    self.assertLess(abs(signs.sum()), 6 * math.sqrt(size))

  @parameterized.parameters('laplace', 'gaussian')
  def test_every_weight_has_noise_of_its_own_and_all_of_it(self, mechanism):
    # A sum of many weights would hide that one of them has none, or twice it.
    size, num_reports = 3, 120
    step = _step(
        mechanism=mechanism, clip='box' if mechanism == 'laplace' else 'l2',
        epsilon=2.0, delta=1e-5 if mechanism == 'gaussian' else None,
    )
    client = _client(size, step)
    moved, _ = client.move(np.zeros(size, np.float32), [])
    noise = np.array([
        client.report(moved, client.key(), 0) for _ in range(num_reports)
    ]) / step.noise_scale(size)
    for of_weight in noise.T:
      # Exact laws of these sums, for the stated scale.
      if mechanism == 'laplace':
        tail = stats.gamma(num_reports).cdf(np.abs(of_weight).sum())
      else:
        tail = stats.chi2(num_reports).cdf(np.sum(of_weight**2))
      self.assertBetween(tail, _FALSE_ALARM, 1 - _FALSE_ALARM)
    for i, j in ((0, 1), (0, 2), (1, 2)):
      signs = np.sign(noise[:, i] * noise[:, j])
      self.assertLess(abs(signs.sum()), 6 * math.sqrt(num_reports))

  def test_fresh_noise_has_no_memory(self):
    client = _client(_MANY, _step(epsilon=2.0))
    data = _batches(np.zeros([1, _MANY]))
    reports = [
        _report(client, [np.zeros(_MANY, np.float32)], data, r)[0]
        for r in (0, 0, 1)
    ]
    for i, j in ((0, 1), (0, 2), (1, 2)):
      signs = np.sign(reports[i] * reports[j])
      self.assertLess(abs(signs.sum()), 6 * math.sqrt(_MANY))

  def test_a_key_repeats_a_round_and_nothing_else(self):
    client = _with_keys()
    instance = np.zeros(200, np.float32)

    def report(key, value, round_index, at=instance):
      data = learning.client_data(
          _batches(np.full([1, 200], value)), np.int64([key, 5])
      )
      noiseless = at - 0.5 * np.clip(value, -1, 1)
      return _report(client, [at], data, round_index)[0] - noiseless

    first = report(1, 0.25, 0)
    np.testing.assert_array_equal(first, report(1, 0.25, 0))
    others = (
        report(2, 0.25, 0), report(1, 0.25, 1), report(1, 0.5, 0),
        report(1, 0.25, 0, instance + 1.0),
    )
    for other in others:
      self.assertLess(abs(np.sign(first * other).sum()), 6 * math.sqrt(200))

  def test_draws_with_a_key_repeat_and_vary_with_the_round(self):
    client = _with_keys()
    data = learning.client_data([], np.int64([8, 5]))

    def draw(round_index):
      (drawn,), told = client.draw(_key(client, data), round_index)
      self.assertEmpty(told)
      return int(drawn)

    draws = [draw(r) for r in range(30)]
    self.assertEqual(set(draws), {0, 1})
    self.assertEqual(draws[:3], [draw(r) for r in range(3)])


if __name__ == '__main__':
  absltest.main()
