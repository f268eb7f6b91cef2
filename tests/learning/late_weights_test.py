# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of initial models whose frozen weights are not in the graph."""

import asyncio
from unittest import mock

from absl.testing import absltest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
import tff_dp
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp.learning import late_weights
from tff_dp.program.files import process_files

_FROZEN = (
    np.arange(1, 6001, dtype=np.float32).reshape([60, 100]),
    np.array([3, -4], np.int8),
    np.array(2.5, np.float32),
)


def _build(most_bytes, frozen=_FROZEN):
  with mock.patch.object(late_weights, '_MOST_CONSTANT_BYTES', most_bytes):
    return tff_dp.dp_ftrl.build_dp_ftrl(
        small_model.build(frozen),
        small_model.build_plan(mechanisms.Independent(2)),
        client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
        server_learning_rate=0.5,
        constraint=learning.Box(-0.5, 0.5),
        insecure_seed=3,
    )


def _num_bytes(computation) -> int:
  return sum(
      graph.ByteSize() for graph in process_files.graphs_of(computation)
  )


class LateWeightsTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    execution.set_default_context()
    cls.late, cls.ordinary = map(_build, (0, 10**6))
    cls.state = cls.ordinary.initialize()

  def _assert_is_initial(self, state):
    self.assertEqual(type(state), type(self.state))
    tf.nest.assert_same_structure(state, self.state)
    for one, other in zip(tf.nest.flatten(state), tf.nest.flatten(self.state)):
      self.assertEqual(np.asarray(one).dtype, np.asarray(other).dtype)
      np.testing.assert_array_equal(one, other)

  def test_a_call_has_the_same_state_without_a_graph_of_the_weights(self):
    initialize = self.late.initialize
    self.assertIsInstance(initialize, late_weights.LateWeights)
    self.assertNotIsInstance(
        self.ordinary.initialize, late_weights.LateWeights
    )
    vars(initialize).pop('_computation_proto', None)
    self._assert_is_initial(initialize())
    self.assertNotIn('_computation_proto', vars(initialize))
    self.assertGreater(_num_bytes(self.ordinary.initialize), 24_000)
    self.assertBetween(
        _num_bytes(self.ordinary.initialize) - _num_bytes(initialize.small),
        23_000,
        25_000,
    )
    self.assertEqual(
        str(initialize.type_signature),
        str(self.ordinary.initialize.type_signature),
    )

  def test_a_round_has_the_same_bits(self):
    clients = [small_model.client(seed) for seed in range(2)]
    found, expected = (
        process.next(process.initialize(), clients).state.global_model_weights
        for process in (self.late, self.ordinary)
    )
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected)):
      np.testing.assert_array_equal(one, other)

  def test_files_and_other_computations_have_the_weights(self):
    serialized = tff.framework.serialize_computation(self.late.initialize)
    read = tff.framework.deserialize_computation(serialized)
    found = read()['global_model_weights']['non_trainable']
    self.assertLen(found, len(_FROZEN))
    for one, other in zip(found, _FROZEN):
      np.testing.assert_array_equal(one, other)

    @tff.federated_computation
    def caller():
      return self.late.initialize()

    self._assert_is_initial(caller())

  def test_an_asynchronous_context_has_the_weights(self):
    with execution.create_async_in_process_context():
      self._assert_is_initial(asyncio.run(self.late.initialize()))

  def test_the_weights_cannot_be_changed_through_a_state(self):
    kernel = self.late.initialize().global_model_weights.non_trainable[0]
    with self.assertRaisesRegex(ValueError, 'read-only'):
      kernel[0, 0] = 7.0
    self.assertTrue(_FROZEN[0].flags.writeable)

  def test_only_large_arrays_are_late(self):
    large = np.zeros([1000, 1001], np.float32)
    for frozen, is_large in (
        ((large,), True),
        ((large[1:],), False),
        ((tf.zeros([1000, 1001]),), False),
        ((), False),
    ):
      self.assertEqual(late_weights.is_large(frozen), is_large)


if __name__ == '__main__':
  absltest.main()
