# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the learning process on TFF."""

import collections
import functools

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import _checks
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.systems.dp_ftrl import plan as plan_lib


_FUNCTIONAL = small_model.build()


def setUpModule():
  execution.set_default_context()


def _keras_model(dtype=None):
  return tf.keras.Sequential([
      tf.keras.layers.Dense(
          2,
          kernel_initializer='ones',
          input_shape=(3,),
          use_bias=True,
          dtype=dtype,
      )
  ])


def _model_fn(dtype=None):
  return tff.learning.models.from_keras_model(
      _keras_model(dtype),
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
  return plan_lib.DpFtrlPlan(
      mechanism=mechanisms.HonakerTree(num_rounds, restart_every=restart_every),
      participation=participation.UniformSampling(num_rounds),
      l2_norm_clip=0.1,
      clients_per_round=2,
      noise_multiplier=noise_multiplier,
  )


def _build(plan, model_fn=_model_fn, **changes):
  arguments = dict(
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.7,
  )
  arguments.update(changes)
  return dp_ftrl.build_dp_ftrl(model_fn, plan, **arguments)


@functools.cache
def _noised():
  return _build(_plan(noise_multiplier=1.0))


@functools.cache
def _with_adam(model_fn):
  return _build(
      _plan(),
      model_fn,
      server_optimizer=tff.learning.optimizers.build_adam(0.1),
      server_learning_rate=1.0,
  )


class BuildDpFtrlTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('variables', _model_fn), ('functional', _FUNCTIONAL)
  )
  @pytest.mark.slow(cases=['variables'])
  def test_type_is_that_of_federated_averaging(self, model_fn):
    tff.test.assert_types_identical(
        _with_adam(model_fn).next.type_signature,
        tff.learning.algorithms.build_unweighted_fed_avg(
            model_fn,
            client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
            server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
            model_aggregator=_plan().aggregator(),
        ).next.type_signature,
    )

  @parameterized.parameters(
      tff.learning.ClientWeighting.NUM_EXAMPLES, lambda outputs: 1.0
  )
  def test_weights_of_clients_are_refused_with_the_reason(self, weighting):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'client_weighting=.*UNIFORM: .*can move the mean'
    ):
      _build(_plan(), client_weighting=weighting)

  def test_empty_round_and_bad_clients_are_legal(self):
    process = _noised()
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
    process, plan = _noised(), _plan(noise_multiplier=1.0)
    self.assertEqual(process.plan, plan)
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
    process = _with_adam(_FUNCTIONAL)
    before = process.initialize()
    after = process.next(before, [small_model.client(3)]).state
    # The first step of Adam moves every weight by its learning rate.
    moves = small_model.flat(process.get_model_weights(after)) - (
        small_model.flat(process.get_model_weights(before))
    )
    np.testing.assert_allclose(np.abs(moves), 0.1, rtol=1e-3)

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
      (
          'keras_at_clients',
          dict(client_optimizer=tf.keras.optimizers.SGD(0.1)),
          'client_optimizer=.*build_sgdm',
      ),
      (
          'keras_at_the_server',
          dict(
              server_optimizer=tf.keras.optimizers.SGD(0.1),
              server_learning_rate=1.0,
          ),
          'server_optimizer=.*build_sgdm',
      ),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _build(_plan(), **changes)

  @parameterized.named_parameters(
      ('keras', lambda: _keras_model(), "model_fn='Sequential'.* lambda: tff"),
      ('no_function', lambda: _model_fn(), "model_fn='_KerasModel'.* lambda: tff"),
      (
          'float64',
          lambda: lambda: _model_fn('float64'),
          "model=.'float64', 'float64'.* float32 weights",
      ),
  )
  def test_other_models_are_named(self, get_model, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      dp_ftrl.build_dp_ftrl(
          get_model(),
          _plan(),
          client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
          server_learning_rate=0.7,
      )

  def test_something_else_than_a_plan(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'plan=None .*DpFtrlPlan'):
      _build(None)


if __name__ == '__main__':
  absltest.main()
