# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests of the learning process on TFF, and of the factory in TFF's builders."""

import collections

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plan as plan_lib

_ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR


def setUpModule():
  execution.set_default_context()


def _model_fn():
  model = tf.keras.Sequential([
      tf.keras.layers.Dense(
          2, kernel_initializer='ones', input_shape=(3,), use_bias=True
      )
  ])
  return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=collections.OrderedDict(
          x=tf.TensorSpec([None, 3], tf.float32),
          y=tf.TensorSpec([None], tf.int32),
      ),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _client(num_examples, fill=None):
  rng = np.random.default_rng(num_examples)
  x = rng.standard_normal((num_examples, 3)).astype(np.float32)
  if fill is not None:
    x[:] = fill
  y = (x[:, 0] > 0).astype(np.int32)
  return tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(x=x, y=y)
  ).batch(2)


def _plan(noise_multiplier=0.0, num_rounds=8, restart_every=None):
  return plan_lib.PrivacyPlan(
      mechanism=mechanisms.HonakerTree(num_rounds, restart_every=restart_every),
      participation=participation.UniformSampling(num_rounds),
      l2_norm_clip=0.1,
      clients_per_round=2,
      noise_multiplier=noise_multiplier,
  )


def _build(plan, **changes):
  arguments = dict(
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.7,
  )
  arguments.update(changes)
  return learning.build_dp_ftrl(_model_fn, plan, **arguments)


def _train(process, num_rounds=6, clients=None):
  """Returns the flat model after each round, and the last metrics."""
  state, models = process.initialize(), []
  clients = clients or [_client(3), _client(4)]
  for _ in range(num_rounds):
    output = process.next(state, clients)
    state = output.state
    weights = process.get_model_weights(state).trainable
    models.append(np.concatenate([np.ravel(w) for w in weights]))
  return np.stack(models), output.metrics


class BuildDpFtrlTest(parameterized.TestCase):

  @parameterized.parameters((0.0, False), (0.9, False), (0.9, True))
  def test_residual_and_cumulative_form_agree_through_restarts(
      self, momentum, nesterov
  ):
    plan = _plan(noise_multiplier=1.0, restart_every=4)
    arguments = dict(momentum=momentum, nesterov=nesterov, insecure_seed=1)
    residual, _ = _train(_build(plan, **arguments))
    # A box that is never reached forces the cumulative form.
    cumulative, _ = _train(
        _build(plan, constraint=learning.Box(-1e6, 1e6), **arguments)
    )
    np.testing.assert_allclose(residual, cumulative, rtol=1e-4, atol=1e-5)

  def test_l1_and_constraint_hold_in_the_model(self):
    models, metrics = _train(
        _build(
            _plan(noise_multiplier=0.1),
            l1=0.2,
            constraint=learning.NonNegative(),
        )
    )
    self.assertGreaterEqual(models.min(), 0.0)
    self.assertGreater(np.sum(models[-1] == 0.0), 0)
    self.assertEqual(
        metrics['finalizer']['num_zero_weights'], np.sum(models[-1] == 0.0)
    )

  def test_empty_round_and_bad_clients_are_legal(self):
    process = _build(_plan(noise_multiplier=1.0))
    state = process.initialize()
    state = process.next(state, []).state
    output = process.next(
        state, [_client(0), _client(3, fill=np.nan), _client(3)]
    )
    counts = output.metrics['aggregator']['not_covered']
    self.assertEqual(counts['num_clients'], 3)
    # TFF's client work already replaces a non-finite update by zeros, so both
    # clients arrive empty; `correlated_noise_test` has updates that do not.
    self.assertEqual(counts['num_empty'] + counts['num_zeroed'], 2)
    for weights in process.get_model_weights(output.state).trainable:
      self.assertTrue(np.all(np.isfinite(weights)))

  def test_process_knows_its_plan_and_event(self):
    plan = _plan(noise_multiplier=2.0)
    process = _build(plan)
    self.assertIs(process.plan, plan)
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    accountant.compose(process.event)
    self.assertBetween(
        accountant.get_epsilon(1e-5),
        plan.epsilon(delta=1e-5),
        1.2 * plan.epsilon(delta=1e-5),
    )

  def test_server_optimizer_of_ones_own(self):
    models, _ = _train(
        _build(
            _plan(),
            server_optimizer=tff.learning.optimizers.build_adam(0.1),
            server_learning_rate=1.0,
        ),
        num_rounds=2,
    )
    self.assertTrue(np.all(np.isfinite(models)))

  @parameterized.named_parameters(
      ('rate', dict(server_learning_rate=-1.0), 'server_learning_rate=-1.0'),
      ('momentum', dict(momentum=1.5), 'momentum=1.5'),
      ('l1', dict(l1=-0.5), 'l1=-0.5'),
      (
          'two_servers',
          dict(
              server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
              server_learning_rate=1.0,
              momentum=0.9,
          ),
          'server_optimizer=',
      ),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _build(_plan(), **changes)


class PlugInTest(parameterized.TestCase):
  """The plan's factory inside pipelines that users already have."""

  def _wrapped(self, noise_multiplier):
    """TFF's zeroing and clipping around the factory."""
    plan = _plan(noise_multiplier=noise_multiplier)
    return tff.aggregators.zeroing_factory(
        zeroing_norm=1e6,
        inner_agg_factory=tff.aggregators.clipping_factory(
            clipping_norm=0.05, inner_agg_factory=plan.aggregator()
        ),
    )

  @parameterized.parameters(0.0, 1.0)
  def test_unweighted_fed_avg(self, noise_multiplier):
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        _model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=self._wrapped(noise_multiplier),
        loop_implementation=_ITERATOR,
    )
    self._check(process, noise_multiplier)

  @parameterized.parameters(0.0, 1.0)
  def test_fed_sgd(self, noise_multiplier):
    # `build_fed_sgd` asks for a weighted factory; weights are ignored.
    process = tff.learning.algorithms.build_fed_sgd(
        _model_fn,
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=tff.aggregators.as_weighted_aggregator(
            self._wrapped(noise_multiplier)
        ),
        loop_implementation=_ITERATOR,
    )
    self._check(process, noise_multiplier)

  def _check(self, process, noise_multiplier):
    start = process.get_model_weights(process.initialize()).trainable
    start = np.concatenate([np.ravel(w) for w in start])
    models, metrics = _train(process, num_rounds=1)
    moved = np.linalg.norm(models[0] - start)
    # Two clients within TFF's clip norm 0.05, divided by the cohort of 2.
    if noise_multiplier == 0:
      self.assertBetween(moved, 0.01, 0.05)
    else:
      self.assertGreater(moved, 0.05)
    self.assertIn('clipping', metrics['aggregator']['zeroing'])


if __name__ == '__main__':
  absltest.main()
