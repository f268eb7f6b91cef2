# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the cumulative form, and that generic builders cannot take it."""

import collections
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import aggregators
from tff_dp import execution
from tff_dp import mechanisms
from tff_dp import streams

_VECTOR = tff.TensorType(np.float32, [3])
_STRUCTURE = tff.to_type(
    collections.OrderedDict(
        a=(np.float32, [2, 2]), b=collections.OrderedDict(c=(np.float32, [3]))
    )
)


def setUpModule():
  execution.set_default_context()


def _residual(noise_multiplier=1.0, num_rounds=8, **changes):
  return aggregators.CorrelatedNoiseFactory(
      mechanisms.HonakerTree(num_rounds, restart_every=3),
      noise_multiplier=noise_multiplier,
      l2_norm_clip=1.0,
      clients_per_round=2,
      insecure_seed=7,
      **changes,
  )


def _model_fn():
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
          [tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(1)]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None, 1], tf.float32),
      ),
  )


class PrefixSumTest(parameterized.TestCase):

  def test_type_signature(self):
    residual = _residual()
    process = aggregators.PrefixSumFactory(residual).create_prefix_sum(_VECTOR)
    inner = residual.create(_VECTOR)
    state_type = tff.FederatedType(
        collections.OrderedDict(
            residual=inner.initialize.type_signature.result.member,
            prefix_sum=_VECTOR,
        ),
        tff.SERVER,
    )
    tff.test.assert_types_equivalent(
        process.next.type_signature,
        tff.FunctionType(
            collections.OrderedDict(
                state=state_type, value=tff.FederatedType(_VECTOR, tff.CLIENTS)
            ),
            tff.templates.MeasuredProcessOutput(
                state_type,
                tff.FederatedType(_VECTOR, tff.SERVER),
                inner.next.type_signature.result.measurements,
            ),
        ),
    )

  @parameterized.named_parameters(('noise', 1.0), ('no_noise', 0.0))
  def test_releases_the_sum_of_the_residuals_across_restarts(self, noise):
    residual = _residual(noise).create(_STRUCTURE)
    process = aggregators.PrefixSumFactory(
        _residual(noise)
    ).create_prefix_sum(_STRUCTURE)
    rng = np.random.default_rng(0)
    residual_state, state = residual.initialize(), process.initialize()
    expected = None
    for _ in range(8):
      value = collections.OrderedDict(
          a=rng.normal(size=[2, 2]).astype(np.float32),
          b=collections.OrderedDict(c=np.ones(3, np.float32)),
      )
      residual_output = residual.next(residual_state, [value, value])
      output = process.next(state, [value, value])
      expected = (
          residual_output.result
          if expected is None
          else tf.nest.map_structure(np.add, expected, residual_output.result)
      )
      tf.nest.map_structure(
          np.testing.assert_array_equal, output.result, expected
      )
      tf.nest.map_structure(
          np.testing.assert_array_equal,
          output.measurements,
          residual_output.measurements,
      )
      residual_state, state = residual_output.state, output.state

  def test_the_state_follows_from_what_was_released(self):
    # But for digests, its leaves are those of empty rounds, and the release
    # itself: no sum without its noise.
    with mock.patch.object(
        streams, 'digest', lambda _: tf.constant(0, tf.int64)
    ):
      process = aggregators.PrefixSumFactory(_residual()).create_prefix_sum(
          _VECTOR
      )
    empty = full = process.initialize()
    for _ in range(5):
      empty = process.next(empty, []).state
      output = process.next(full, [np.full(3, 0.25, np.float32)])
      full = output.state
      np.testing.assert_array_equal(full['prefix_sum'], output.result)
    tf.nest.map_structure(
        np.testing.assert_array_equal, full['residual'], empty['residual']
    )

  def test_round_beyond_the_horizon_raises(self):
    process = aggregators.PrefixSumFactory(
        _residual(num_rounds=1)
    ).create_prefix_sum(_VECTOR)
    state = process.next(process.initialize(), []).state
    with self.assertRaisesRegex(Exception, 'num_rounds=1 rounds are done'):
      process.next(state, [])


class RefusalTest(absltest.TestCase):

  def test_create_names_the_reason_and_the_way_out(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'twice.*create_prefix_sum'
    ):
      aggregators.PrefixSumFactory(_residual()).create(_VECTOR)

  def test_weighted_wrapper_refuses(self):
    factory = tff.aggregators.as_weighted_aggregator(
        aggregators.PrefixSumFactory(_residual())
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'twice'):
      factory.create(_VECTOR, tff.TensorType(np.float32))

  def test_builders_of_learning_processes_refuse(self):
    factory = aggregators.PrefixSumFactory(_residual())
    optimizer = tff.learning.optimizers.build_sgdm(0.1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'twice'):
      tff.learning.algorithms.build_unweighted_fed_avg(
          _model_fn,
          client_optimizer_fn=optimizer,
          server_optimizer_fn=optimizer,
          model_aggregator=factory,
      )
    with self.assertRaisesRegex(_checks.ArgumentError, 'twice'):
      tff.learning.algorithms.build_weighted_fed_avg(
          _model_fn,
          client_optimizer_fn=optimizer,
          server_optimizer_fn=optimizer,
          model_aggregator=tff.aggregators.as_weighted_aggregator(factory),
      )

  def test_sums_without_noise_are_refused(self):
    for factory in (tff.aggregators.SumFactory(), None):
      with self.assertRaisesRegex(_checks.ArgumentError, 'residual='):
        aggregators.PrefixSumFactory(factory)


if __name__ == '__main__':
  absltest.main()
