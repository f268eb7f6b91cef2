# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of check-ins at a trusted server, and of local metrics."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tests.systems.check_ins import runs
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp.systems.allocation import allocation_events

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6
_RATES = (0.4, 0.2, 0.1)


def setUpModule():
  execution.set_default_context()


class AllocationTest(parameterized.TestCase):

  @pytest.mark.slow
  def test_every_slot_gets_the_full_noise_over_the_constant(self):
    plan = runs.allocation(100)
    process = runs.build(plan, server_learning_rate=1.0)
    models, _ = runs.run(process, [[]] * 100)
    noise = np.diff(models.astype(np.float64), axis=0)
    statistic = np.sum((noise / (2.0 * runs.CLIP / 4)) ** 2)
    self.assertBetween(
        statistic,
        stats.chi2.isf(1 - _FALSE_ALARM / 2, noise.size),
        stats.chi2.isf(_FALSE_ALARM / 2, noise.size),
    )

  def test_noise_of_cyclic_allocation_is_that_of_its_matrix(self):
    rounds, bands = 120, 6
    plan = runs.cyclic(rounds, stride=8, bands=bands)
    process = runs.build(plan, server_learning_rate=1.0)
    # Empty slots, and some with clients whose share is taken off below.
    clients = [[small_model.client(1)] * (t % 3 == 0) for t in range(rounds)]
    models, _ = runs.run(process, clients)
    sums = -4 * np.diff(models.astype(np.float64), axis=0)
    for t in range(0, rounds, 3):
      sums[t] -= runs.gradient(models[t], 1)
    column = plan.mechanism.column(rounds)
    white = np.stack([
        np.convolve(column, weight)[:rounds] for weight in sums.T
    ]) / (2.0 * runs.CLIP)
    statistic = np.sum(white**2)
    self.assertBetween(
        statistic,
        stats.chi2.isf(1 - _FALSE_ALARM / 2, white.size),
        stats.chi2.isf(_FALSE_ALARM / 2, white.size),
    )
    # Without C it is not white: neighbours have opposite signs.
    for noise, is_white in ((white, True), (sums.T, False)):
      lagged = np.mean(noise[:, 1:] * noise[:, :-1]) / np.mean(noise**2)
      bound = 5 / np.sqrt(noise.size)
      self.assertEqual(abs(lagged) < bound, is_white)

  def _process(self):
    return runs.build(
        runs.allocation(3, 1e-5),
        server_learning_rate=_RATES,
        averaging=learning.UniformAverage(),
    )

  @parameterized.parameters(0, 1, 3)
  def test_sum_is_divided_by_the_constant_not_by_the_clients(self, num_clients):
    # Noise follows from the data, so that of the two rounds is not the same.
    process = self._process()
    clients = [small_model.client(seed) for seed in range(1, num_clients + 1)]
    models, _ = runs.run(process, [clients])
    empty, _ = runs.run(process, [[]])
    expected = sum(
        (runs.gradient(models[0], seed) for seed in range(1, num_clients + 1)),
        np.zeros(5),
    )
    np.testing.assert_allclose(
        models[1] - empty[1], -_RATES[0] / 4 * expected, atol=1e-4
    )

  def test_event_schedule_and_average_and_no_occupancy_in_the_metrics(self):
    process = self._process()
    self.assertEqual(process.event, process.plan.event())
    self.assertIsInstance(
        process.event, allocation_events.RandomAllocationDpEvent
    )
    models, output = runs.run(process, [[small_model.client(1)]] * 3)
    for step, rate in enumerate(_RATES):
      np.testing.assert_allclose(
          models[step + 1],
          models[step] - rate / 4 * runs.gradient(models[step], 1),
          atol=1e-4,
      )
    np.testing.assert_allclose(
        small_model.flat(process.get_averaged_model_weights(output.state)),
        models[:3].mean(axis=0),
        atol=1e-6,
    )
    # How many came is not in the metrics.
    self.assertEqual(
        list(output.metrics['aggregator']),
        ['clip_norm', 'noise_stddev', 'round', 'tree_id', 'snr'],
    )
    self.assertEmpty(tf.nest.flatten(output.metrics['client_work']))

  @parameterized.parameters(0, 1.5, -2)
  def test_bad_constants_of_the_server_are_named(self, clients_per_slot):
    with self.assertRaisesRegex(
        _checks.ArgumentError, f'clients_per_slot={clients_per_slot}'
    ):
      runs.build(runs.allocation(), clients_per_slot=clients_per_slot)


def _keras_model():
  model = tf.keras.Sequential(
      [tf.keras.layers.Dense(1, kernel_initializer='ones', input_shape=(2,))]
  )
  return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None], tf.float32),
      ),
      metrics=[tf.keras.metrics.MeanSquaredError()],
  )


class MetricsTest(parameterized.TestCase):

  @parameterized.parameters(
      runs.fixed,
      runs.averaged,
      runs.sliding,
      runs.shuffled,
      runs.allocation,
      runs.cyclic,
  )
  @pytest.mark.slow(but=['0', '4'])
  def test_local_metrics_need_an_opt_in_and_carry_its_label(self, plan):
    silent, loud = (
        runs.build(plan(), model_fn=_keras_model, **options)
        for options in ({}, dict(allow_unprotected_metrics=True))
    )
    metrics = silent.next.type_signature.result.metrics.member
    self.assertEmpty(tff.structure.flatten(metrics.client_work))
    metrics = loud.next.type_signature.result.metrics.member
    self.assertEqual(
        tff.structure.name_list(metrics.client_work), ['not_covered']
    )
    self.assertIn(
        'num_examples',
        tff.structure.name_list(metrics.client_work.not_covered.train),
    )


if __name__ == '__main__':
  absltest.main()
