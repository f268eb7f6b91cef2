# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of pools in NumPy, against the compiled simulator."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.draw_and_discard import simulator as simulation
from tasks.draw_and_discard import softmax_pools
from tff_dp import streams
from tff_dp.mechanisms import client_steps

_NUM_FEATURES, _NUM_CLASSES = 5, 4
_SILENT = client_steps.ClientStep(
    learning_rate=0.5, clip_norm=0.05, mechanism=None
)
_NOISY = client_steps.ClientStep(
    learning_rate=0.5, clip_norm=0.05, epsilon=2.0, privacy_unit='coordinate'
)


class PlayerTest(parameterized.TestCase):

  @parameterized.parameters(
      ('draw_and_discard', _SILENT, 1),
      ('draw_and_discard', _NOISY, 1),
      ('same', _NOISY, 1),
      ('accept_1_over_k', _NOISY, 1),
      ('average_random', _NOISY, 1),
      ('average_same', _SILENT, 1),
      # More than two chunks.
      ('server_batch', _SILENT, 120),
  )
  def test_plays_what_the_simulator_plays(self, strategy, step, concurrency):
    simulator = simulation.Simulator(
        'softmax', step, num_features=_NUM_FEATURES, num_classes=_NUM_CLASSES,
        num_instances=3, strategy=strategy, concurrency=concurrency,
    )
    rng = np.random.default_rng(5)
    size = (25, concurrency, 2)
    key = streams.insecure_root_key(1)
    first = simulator.initial_instances(key)
    wanted, pool = first, np.array(first)
    player = softmax_pools.Player(simulator)
    for block in range(2):
      x = rng.random((*size, _NUM_FEATURES)).astype(np.float32)
      y = rng.integers(_NUM_CLASSES, size=size)
      of_block = streams.fold_in(key, block)
      wanted = simulator.advance(wanted, of_block, x, y)
      player.advance(pool, of_block, x, y)
    # The clip of 0.05 is at work, and a step is 0.025 at most.
    np.testing.assert_allclose(pool, wanted, atol=2e-6)
    self.assertGreater(np.abs(pool - first).max(), 0.02)


if __name__ == '__main__':
  absltest.main()
