# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the server does to the released sums, against `Workload.matrix`."""

import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.learning import small_model
from tff_dp import _checks
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp.learning import process as process_lib
from tff_dp.mechanisms import workloads

_NUM_ROUNDS = 12
_COOLDOWN = workloads.Cooldown(share=0.4, final=0.1)
_NESTEROV = dict(momentum=0.9, nesterov=True, cooldown=_COOLDOWN)
_UNREACHED = learning.Box(-1e6, 1e6)  # Forces the sums of the cumulative form.

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


def _plan(restart_every=None):
  # Some mechanism: the server must not know which.
  mechanism = mechanisms.Blt(
      _NUM_ROUNDS, (0.3, 0.2), (0.9, 0.5), restart_every=restart_every
  )
  return small_model.build_plan(mechanism)


@functools.cache
def _process(restart_every, constraint, **server):
  return small_model.build_process(
      _plan(restart_every), constraint=constraint, **server
  )


@functools.cache
def _residuals(restart_every):
  return small_model.released_residuals(_plan(restart_every))


def _path(process):
  """Returns the models before round 1 and after each round, [T + 1, p]."""
  state = process.initialize()
  models = [small_model.flat(process.get_model_weights(state))]
  for _ in range(_NUM_ROUNDS):
    # Without clients every release is noise alone.
    state = process.next(state, []).state
    models.append(small_model.flat(process.get_model_weights(state)))
  return np.stack(models)


class ServerMatrixTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('plain', dict(), None, None),
      ('cooldown', dict(cooldown=_COOLDOWN), None, 5),
      ('momentum', dict(momentum=0.9), None, None),
      ('momentum_cooldown', dict(momentum=0.9, cooldown=_COOLDOWN), None, 5),
      ('nesterov_cooldown', _NESTEROV, None, 5),
      ('sums_cooldown', dict(cooldown=_COOLDOWN), _UNREACHED, 5),
      (
          'sums_momentum_cooldown',
          dict(momentum=0.9, cooldown=_COOLDOWN),
          _UNREACHED,
          None,
      ),
      ('sums_nesterov_cooldown', _NESTEROV, _UNREACHED, 5),
  )
  @pytest.mark.slow(
      but=['residuals_nesterov_cooldown', 'sums_nesterov_cooldown']
  )
  def test_path_is_the_matrix_times_the_residuals(
      self, server, constraint, restart_every
  ):
    process = _process(restart_every, constraint, **server)
    models = _path(process)
    workload = workloads.Workload(**server)
    self.assertEqual(process.workload, workload)
    moved = workload.matrix(_NUM_ROUNDS) @ _residuals(restart_every)
    np.testing.assert_allclose(models[1:] - models[0], -0.5 * moved, atol=2e-5)

  def test_another_matrix_is_told_apart(self):
    # The noise is large enough for the tolerance above.
    own, other = (
        workloads.Workload(cooldown=workloads.Cooldown(0.4, final))
        for final in (0.1, 0.2)
    )
    off = own.matrix(_NUM_ROUNDS) - other.matrix(_NUM_ROUNDS)
    self.assertGreater(np.abs(0.5 * off @ _residuals(5)).max(), 1e-3)

  def test_optimizer_of_ones_own_has_no_known_workload(self):
    with mock.patch.object(process_lib, 'compose') as compose:
      small_model.build_process(
          _plan(),
          server_optimizer=tff.learning.optimizers.build_adam(0.1),
          server_learning_rate=1.0,
      )
    self.assertIsNone(compose.call_args.kwargs['workload'])

  def test_cooldown_beside_an_optimizer_of_ones_own_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'server_optimizer='):
      small_model.build_process(
          _plan(),
          server_optimizer=tff.learning.optimizers.build_sgdm(1.0),
          server_learning_rate=1.0,
          cooldown=_COOLDOWN,
      )


class OptimizerTest(parameterized.TestCase):

  @parameterized.product(
      server=(
          dict(), dict(momentum=0.9), dict(momentum=0.9, nesterov=True)
      ),
      cooldown=(None, _COOLDOWN),
  )
  def test_path_is_the_matrix_times_the_gradients(self, server, cooldown):
    server = dict(server, cooldown=cooldown)
    optimizer = learning.build_momentum(
        learning_rate=0.5, num_rounds=_NUM_ROUNDS, **server
    )
    state = optimizer.initialize(tf.TensorSpec([3]))
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal([_NUM_ROUNDS, 3]).astype(np.float32)
    weights, path = tf.zeros([3]), []
    for gradient in gradients:
      state, weights = optimizer.next(state, weights, gradient)
      path.append(weights)
    moved = workloads.Workload(**server).matrix(_NUM_ROUNDS) @ gradients
    np.testing.assert_allclose(np.stack(path), -0.5 * moved, atol=2e-5)

  def test_hyperparameters_can_be_read_and_set(self):
    process = _process(5, None, **_NESTEROV)
    state = process.initialize()
    hparams = process.get_hparams(state)
    self.assertAlmostEqual(
        hparams['finalizer']['learning_rate'], 0.5, places=6
    )
    self.assertAlmostEqual(hparams['finalizer']['momentum'], 0.9, places=6)
    hparams['finalizer']['learning_rate'] = 0.25
    state = process.set_hparams(state, hparams)
    self.assertEqual(
        process.get_hparams(state)['finalizer']['learning_rate'], 0.25
    )

  def test_cooldown_needs_the_horizon(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_rounds=None'):
      learning.build_momentum(learning_rate=1.0, cooldown=_COOLDOWN)


if __name__ == '__main__':
  absltest.main()
