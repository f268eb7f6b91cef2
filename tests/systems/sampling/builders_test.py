# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the builders of DP-FedAvg and DP-SGD."""

import functools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import kills
from tff_dp import _checks
from tff_dp import execution
from tff_dp import program
from tff_dp.systems import sampling

_RNG = np.random.default_rng(5)
_X = _RNG.standard_normal([12, 2]).astype(np.float32)
_Y = _RNG.standard_normal([12]).astype(np.float32)
_CLIP, _RATE, _BATCH = 0.5, 0.3, 4
_FALSE_ALARM = 1e-6


def setUpModule():
  execution.set_default_context()


def _plan(**changes):
  return tff_dp.SamplingPlan(
      **dict(
          population=12, clients_per_round=_BATCH, num_rounds=3,
          noise_multiplier=1e-6, l2_norm_clip=_CLIP, unit='example',
      ) | changes
  )


def _process(plan=None, **options):
  return sampling.build_dp_sgd(
      small_model.build(),
      plan or _plan(),
      **dict(learning_rate=_RATE, insecure_seed=1) | options,
  )


@functools.cache
def _noised():
  plan = _plan(noise_multiplier=2.0, num_rounds=100)
  return _process(plan, insecure_seed=None)


def _two_sided(share: float) -> float:
  """Returns the p-value of a value whose distribution function is `share`."""
  return 2 * min(share, 1 - share)


def _step(weights: np.ndarray, members) -> np.ndarray:
  """Returns the weights after a step of DP-SGD without noise, [5]."""
  kernel, bias = weights[:4].reshape(2, 2), weights[4]
  total = np.zeros(5)
  for x, y in zip(_X[members], _Y[members]):
    # The model is the sum over outputs of x @ kernel, plus bias.
    error = 2 * ((x @ kernel).sum() + bias - y)
    gradient = error * np.array([x[0], x[0], x[1], x[1], 1.0])
    total += gradient * min(1.0, _CLIP / np.linalg.norm(gradient))
  return weights - _RATE / _BATCH * total


class DpSgdTest(kills.RunsTestCase):

  @parameterized.parameters([[]], [[3]], [[0, 2, 5, 7, 8, 11]])
  @pytest.mark.slow(but=['2'])
  def test_each_gradient_is_clipped_and_the_divisor_is_constant(self, members):
    process, data = _process(), sampling.Examples((_X, _Y))
    state = process.initialize()
    before = small_model.flat(process.get_model_weights(state))
    output = process.next(
        state,
        [
            data.create_tf_dataset_for_client(data.client_ids[each])
            for each in members
        ],
    )
    after = small_model.flat(process.get_model_weights(output.state))
    np.testing.assert_allclose(
        after, _step(before, list(members)), atol=1e-5
    )

  def test_released_noise_is_that_of_the_plan_and_new_in_every_round(self):
    process = _noised()
    state, weights = process.initialize(), []
    for _ in range(process.plan.num_rounds):
      weights.append(small_model.flat(process.get_model_weights(state)))
      # Nobody is drawn: the model moves by noise alone.
      state = process.next(state, []).state
    noise = np.diff(weights, axis=0) / (_RATE / _BATCH * _CLIP * 2.0)
    # Sum or mean, and divisor: a factor of 1.25 would be seen.
    self.assertGreater(
        _two_sided(stats.chi2(noise.size).cdf((noise**2).sum())), _FALSE_ALARM
    )
    # A stream that is repeated, and one for two weights.
    for products in (noise[1:] * noise[:-1], noise[:, 1:] * noise[:, :-1]):
      self.assertGreater(
          _two_sided(
              stats.norm.cdf(products.sum() / math.sqrt(products.size))
          ),
          _FALSE_ALARM,
      )

  @pytest.mark.slow
  def test_gradients_of_a_large_batch_are_computed_together(self):

    def model_fn():
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential(
              [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(3)]
          ),
          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          input_spec=(
              tf.TensorSpec([None, 2], tf.float32),
              tf.TensorSpec([None], tf.int32),
          ),
      )

    num = 64
    process = sampling.build_dp_sgd(
        model_fn,
        _plan(population=num, clients_per_round=num),
        learning_rate=_RATE,
    )
    data = sampling.Examples(
        (np.ones([num, 2], np.float32), np.zeros([num], np.int32))
    )
    batch = [data.create_tf_dataset_for_client(each) for each in data.client_ids]
    with execution.create_sync_in_process_context(
        max_concurrent_clients=1
    ) as context:
      process.next(process.initialize(), batch)
    paths = context.num_clients_by_path
    self.assertEqual(paths, {'at_once': num, 'in_chunks': 0, 'one_by_one': 0})

  def test_training(self):
    found = program.train(
        _noised(),
        sampling.Examples((_X, _Y)),
        delta=1e-2,
        total_rounds=3,
        progress='quiet',
        output_dir=self.create_tempdir().full_path,
    )
    self.assertEqual(found.rounds_done, 3)
    plan = _noised().plan
    self.assertAlmostEqual(
        found.epsilon, plan.epsilon_after(3, delta=1e-2)
    )
    self.assertEqual(found.statement.to_json()['unit'], 'example')

  def test_clients_of_several_examples_are_no_examples(self):
    # One example moves the clipped update of its client by up to two clip
    # norms.
    class Clients:
      client_ids = [str(i) for i in range(12)]

      def create_tf_dataset_for_client(self, _):
        return tf.data.Dataset.from_tensor_slices((_X, _Y)).batch(4)

    for run in (program.train, program.Loop):
      folder = self.create_tempdir().full_path
      with self.assertRaisesRegex(_checks.ArgumentError, 'is one example'):
        run(_noised(), Clients(), delta=1e-2, output_dir=folder)

  def test_bad_arguments(self):
    with self.assertRaisesRegex(_checks.ArgumentError, "unit='client'"):
      _process(_plan(unit='client'))
    with self.assertRaisesRegex(_checks.ArgumentError, 'arrays'):
      sampling.Examples((_X, _Y[:3]))
    with self.assertRaisesRegex(_checks.ArgumentError, 'SamplingPlan'):
      sampling.build_dp_fedavg(
          small_model.build(),
          tff_dp.NonPrivatePlan,
          client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
          server_learning_rate=1.0,
      )


if __name__ == '__main__':
  absltest.main()
