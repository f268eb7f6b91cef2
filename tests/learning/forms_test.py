# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the server's two forms, with clients and a functional model."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf

from tests.learning import small_model
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp.learning import ftrl

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


def _train(process, *, clients):
  """Returns the model after each of six rounds, and the last metrics."""
  state, models = process.initialize(), []
  for _ in range(6):
    output = process.next(state, clients)
    state = output.state
    models.append(small_model.flat(process.get_model_weights(state)))
  return np.stack(models), output.metrics


class FormsTest(parameterized.TestCase):

  # `server_matrix_test` has every form of the server, without clients. Noise
  # follows from the last bits of the updates, and the forms differ in those: so
  # either clients or noise.
  @parameterized.product(
      server=((0.0, False), (0.9, False), (0.9, True)),
      noise_multiplier=(0.0, 1.0),
  )
  @pytest.mark.slow(but=['4'])
  def test_residual_and_cumulative_form_agree_through_restarts(
      self, server, noise_multiplier
  ):
    plan = small_model.build_plan(
        mechanisms.HonakerTree(8, restart_every=4),
        noise_multiplier=noise_multiplier,
    )
    server = dict(zip(('momentum', 'nesterov'), server))
    clients = [] if noise_multiplier else [small_model.client(1)]
    residual, _ = _train(
        small_model.build_process(plan, **server), clients=clients
    )
    # A box that is never reached forces the cumulative form.
    cumulative, _ = _train(
        small_model.build_process(
            plan, constraint=learning.Box(-1e6, 1e6), **server
        ),
        clients=clients,
    )
    np.testing.assert_allclose(residual, cumulative, rtol=1e-4, atol=1e-5)

  def test_l1_and_constraint_with_the_restarts_of_the_plan(self):
    # Where the threshold binds, anchoring anew makes a difference.
    plan = small_model.build_plan(mechanisms.HonakerTree(6, restart_every=3))
    server = dict(l1=0.1, momentum=0.5, constraint=learning.L2Ball(0.6))
    process = small_model.build_process(plan, **server)
    # The initial model, of norm 1.15, is projected.
    start = small_model.flat(process.get_model_weights(process.initialize()))
    self.assertAlmostEqual(np.linalg.norm(start), 0.6, places=6)
    models, metrics = _train(process, clients=[])
    expected = {}
    for restart_every in (None, 3):
      spec = ftrl.Ftrl(0.5, restart_every=restart_every, **server)
      weights = tf.constant(start)
      state, expected[restart_every] = ftrl.initialize(spec, 0.0 * weights), []
      for residual in small_model.released_residuals(plan):
        weights, state = ftrl.next_weights(spec, state, weights, residual)
        expected[restart_every].append(weights.numpy())
    np.testing.assert_allclose(models, expected[3], atol=1e-5)
    self.assertGreater(np.abs(models - expected[None]).max(), 0.01)
    norms = np.linalg.norm(models, axis=1)
    self.assertLessEqual(norms.max(), 0.6 * (1 + 1e-6))
    num_zeros = np.sum(models[-1] == 0.0)
    self.assertGreater(num_zeros, 0)
    self.assertEqual(metrics['finalizer']['num_zero_weights'], num_zeros)


if __name__ == '__main__':
  absltest.main()
