# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan's factory inside TFF's own builders."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import execution
from tff_dp import mechanisms

_ITERATOR = tff.learning.LoopImplementation.DATASET_ITERATOR


def setUpModule():
  execution.set_default_context()


def _model_fn():
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
          [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(1)]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=small_model.build().input_spec,
  )


class PlugInTest(parameterized.TestCase):
  """The plan's factory inside pipelines that users already have."""

  def _wrapped(self, noise_multiplier):
    """TFF's zeroing and clipping around the factory."""
    plan = small_model.build_plan(
        mechanisms.HonakerTree(8), noise_multiplier=noise_multiplier
    )
    return tff.aggregators.zeroing_factory(
        zeroing_norm=1e6,
        inner_agg_factory=tff.aggregators.clipping_factory(
            clipping_norm=0.05, inner_agg_factory=plan.aggregator()
        ),
    )

  # Of the noise, one size for each builder.
  @parameterized.parameters(0.0, 1.0)
  @pytest.mark.slow(cases=['1'])
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
  @pytest.mark.slow(cases=['0'])
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

  def test_weighted_builder_refuses_the_unweighted_factory(self):
    with self.assertRaisesRegex(
        TypeError, 'WeightedAggregationFactory.*CorrelatedNoiseFactory'
    ):
      tff.learning.algorithms.build_weighted_fed_avg(
          small_model.build(),
          client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
          server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
          model_aggregator=small_model.build_plan(
              mechanisms.HonakerTree(8)
          ).aggregator(),
      )
    with self.assertRaisesRegex(
        TypeError, 'has no weights(.*\n)+try: tff.*as_weighted_aggregator'
    ):
      tff.learning.algorithms.build_fed_sgd(
          small_model.build(),
          model_aggregator=small_model.build_plan(
              mechanisms.HonakerTree(8)
          ).aggregator(),
      )

  def test_weights_do_not_reach_the_release(self):
    plan = small_model.build_plan(
        mechanisms.HonakerTree(8), noise_multiplier=0.0, clients_per_round=1
    )
    aggregator = tff.aggregators.as_weighted_aggregator(
        plan.aggregator()
    ).create(
        tff.TensorType(np.float32, [2]), tff.TensorType(np.float32)
    )
    value = np.array([0.25, 0.0], np.float32)
    for weight in (1.0, 40.0):
      output = aggregator.next(aggregator.initialize(), [value], [weight])
      np.testing.assert_array_equal(output.result, value)

  def _check(self, process, noise_multiplier):
    state = process.initialize()
    start = small_model.flat(process.get_model_weights(state))
    output = process.next(state, [small_model.client(1), small_model.client(2)])
    model = small_model.flat(process.get_model_weights(output.state))
    moved = np.linalg.norm(model - start)
    # Two clients within TFF's clip norm 0.05, divided by the cohort of 2.
    if noise_multiplier == 0:
      self.assertBetween(moved, 0.01, 0.05)
    else:
      self.assertGreater(moved, 0.05)
    self.assertIn('clipping', output.metrics['aggregator']['zeroing'])


if __name__ == '__main__':
  absltest.main()
