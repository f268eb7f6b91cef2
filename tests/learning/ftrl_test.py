# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the cumulative update against SGD and against numeric minimisers."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import scipy.optimize
import tensorflow as tf

from tff_dp import _checks
from tff_dp.learning import constraints
from tff_dp.learning import ftrl
from tff_dp.learning import optimizers
from tff_dp.mechanisms import workloads

_INITIAL = np.array([0.3, -0.2, 0.0, 1.0])


def _residuals(num_rounds=11):
  return np.random.default_rng(0).standard_normal((num_rounds, 4))


def _iterates(spec, residuals):
  """Returns the models after each round, shape [T, 4], float64."""
  weights = tf.constant(_INITIAL)
  state, models = ftrl.initialize(spec, tf.zeros_like(weights)), []
  for residual in residuals:
    weights, state = ftrl.next_weights(
        spec, state, weights, tf.constant(residual)
    )
    models.append(weights.numpy())
  return np.stack(models)


class UnconstrainedTest(parameterized.TestCase):

  @parameterized.product(
      restart_every=(None, 10, 4, 1),
      momentum=((0.0, False), (0.875, False), (0.875, True)),
  )
  def test_equals_keras_sgd_on_the_residuals(self, restart_every, momentum):
    momentum, nesterov = momentum
    models = _iterates(
        ftrl.Ftrl(0.25, momentum, nesterov, restart_every=restart_every),
        _residuals(),
    )
    variable = tf.Variable(_INITIAL)
    # Keras keeps its learning rate in float32, which has 0.25 exactly.
    sgd = tf.keras.optimizers.SGD(0.25, momentum=momentum, nesterov=nesterov)
    for model, residual in zip(models, _residuals()):
      sgd.apply_gradients([(tf.constant(residual), variable)])
      np.testing.assert_allclose(model, variable.numpy(), atol=1e-9)

  def test_nesterov_optimizer_equals_keras(self):
    optimizer = optimizers.build_momentum(
        learning_rate=0.3, momentum=0.9, nesterov=True
    )
    weights = (tf.constant(_INITIAL, tf.float32),)
    state = optimizer.initialize((tf.TensorSpec([4], tf.float32),))
    variable = tf.Variable(_INITIAL, dtype=tf.float32)
    sgd = tf.keras.optimizers.SGD(0.3, momentum=0.9, nesterov=True)
    for residual in _residuals().astype(np.float32):
      state, weights = optimizer.next(state, weights, (tf.constant(residual),))
      sgd.apply_gradients([(tf.constant(residual), variable)])
      np.testing.assert_allclose(weights[0], variable.numpy(), rtol=1e-4)


# Every set with the same set for SciPy: bounds per coordinate, or a radius.
_SETS = dict(
    free=(constraints.Unconstrained(), dict()),
    box=(constraints.Box(-0.5, 0.4), dict(bounds=(-0.5, 0.4))),
    box_without_zero=(constraints.Box(0.25, 0.75), dict(bounds=(0.25, 0.75))),
    ball=(constraints.L2Ball(0.7), dict(radius=0.7)),
    non_negative=(constraints.NonNegative(), dict(bounds=(0.0, None))),
    ones_own=(
        constraints.Projection(
            lambda point: tf.clip_by_value(point, -0.3, 0.2), allows_l1=True
        ),
        dict(bounds=(-0.3, 0.2)),
    ),
)


def _minimum(dual, l1, eta, *, bounds=(None, None), radius=None):
  """Returns the minimiser of the module's objective, by SciPy.

  theta = p - q with p, q >= 0 makes it smooth: at the minimum p q = 0, because
  l1 (p + q) and the penalty below fall with min(p, q).
  """
  size = len(dual)
  low, high = bounds

  def objective(split):
    theta = split[:size] - split[size:]
    gradient = dual + (theta - _INITIAL) / eta
    value = dual @ theta + np.sum((theta - _INITIAL) ** 2) / (2 * eta)
    weight = l1 + 1e-9
    return (
        value + weight * split.sum(),
        np.concatenate([gradient + weight, weight - gradient]),
    )

  limits = []
  if low is not None:
    limits.append({'type': 'ineq', 'fun': lambda s: s[:size] - s[size:] - low})
  if high is not None:
    limits.append({'type': 'ineq', 'fun': lambda s: high - s[:size] + s[size:]})
  if radius is not None:
    limits.append({
        'type': 'ineq',
        'fun': lambda s: radius**2 - np.sum((s[:size] - s[size:]) ** 2),
    })
  found = scipy.optimize.minimize(
      objective,
      np.full(2 * size, 0.1),
      jac=True,
      method='SLSQP',
      bounds=[(0.0, None)] * (2 * size),
      constraints=limits,
      options=dict(maxiter=500, ftol=1e-14),
  )
  return found.x[:size] - found.x[size:]


class CompositeTest(parameterized.TestCase):

  @parameterized.product(
      name=sorted(_SETS),
      l1=(0.0, 0.2),
      server=(
          dict(),
          dict(momentum=0.5),
          dict(momentum=0.5, nesterov=True),
          dict(cooldown=workloads.Cooldown(0.5, 0.2)),
          dict(momentum=0.5, cooldown=workloads.Cooldown(0.5, 0.2)),
      ),
  )
  def test_equals_a_numeric_minimiser(self, name, l1, server):
    constraint, reference = _SETS[name]
    eta, residuals = 0.3, _residuals(6)
    models = _iterates(
        ftrl.Ftrl(
            eta, l1=l1, constraint=constraint, num_rounds=6, **server
        ),
        residuals,
    )
    # The L1 terms go through the same matrix as the residuals.
    matrix = workloads.Workload(**server).matrix(6)
    duals, taus = matrix @ residuals, matrix.sum(axis=1)
    for model, dual, tau in zip(models, duals, taus):
      np.testing.assert_allclose(
          model, _minimum(dual, tau * l1, eta, **reference), atol=2e-5
      )

  def test_l1_gives_exact_zeros(self):
    models = _iterates(ftrl.Ftrl(0.1, l1=1.0), 0.01 * _residuals())
    self.assertEqual(np.count_nonzero(models[-1]), 0)

  def test_momentum_carries_the_l1_terms(self):
    # u_t contains tau_t copies of the subgradient: 1, 2 + g, 3 + 2g + g^2 ...
    gamma, l1 = 0.5, 0.2
    models = _iterates(ftrl.Ftrl(0.3, gamma, l1=l1), np.zeros((4, 4)))
    tau = 0.0
    for t, model in enumerate(models, 1):
      tau = gamma * tau + t
      np.testing.assert_allclose(
          model,
          np.sign(_INITIAL) * np.maximum(np.abs(_INITIAL) - 0.3 * tau * l1, 0),
          atol=1e-12,
      )

  def test_momentum_of_the_l1_terms_survives_a_restart(self):
    # While no coordinate reaches zero, L1 is a constant gradient, so restarts
    # must not show. 2^-8 keeps all coordinates but the zero one away from it.
    arguments = dict(learning_rate=2.0**-8, momentum=0.5, l1=0.25)
    for nesterov in (False, True):
      whole, restarted = (
          _iterates(
              ftrl.Ftrl(
                  nesterov=nesterov, restart_every=every, **arguments
              ),
              np.zeros((8, 4)),
          )
          for every in (None, 3)
      )
      self.assertGreater(np.abs(whole[-1][[0, 1, 3]]).min(), 0.1)
      np.testing.assert_allclose(whole, restarted, atol=1e-12)

  def test_restart_anchors_at_the_current_model(self):
    box = constraints.Box(-0.5, 0.4)
    whole = _iterates(
        ftrl.Ftrl(0.3, constraint=box, restart_every=3), _residuals(6)
    )
    # The second tree alone, begun at the model that the first one left.
    weights = tf.constant(whole[2])
    spec = ftrl.Ftrl(0.3, constraint=box)
    state = ftrl.initialize(spec, tf.zeros_like(weights))
    for t in range(3, 6):
      weights, state = ftrl.next_weights(
          spec,
          state,
          weights,
          tf.constant(_residuals(6)[t]),
      )
      np.testing.assert_allclose(whole[t], weights)

  @parameterized.named_parameters(
      ('rate', dict(learning_rate=0.0), 'learning_rate=0.0'),
      ('momentum', dict(learning_rate=1.0, momentum=1.0), 'momentum=1.0'),
      (
          'nesterov',
          dict(learning_rate=1.0, nesterov=True),
          'momentum=0.0 .* nesterov=True',
      ),
      ('l1', dict(learning_rate=1.0, l1=-1.0), 'l1=-1.0'),
      (
          'cooldown',
          dict(learning_rate=1.0, cooldown=workloads.Cooldown()),
          'num_rounds=None .* which a cooldown needs',
      ),
      ('constraint', dict(learning_rate=1.0, constraint=3), 'constraint=3'),
  )
  def test_bad_arguments_are_named(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      ftrl.Ftrl(**arguments)

  def test_l1_with_a_set_of_ones_own_has_to_be_declared(self):
    line = constraints.Projection(
        lambda point: tf.ones_like(point) * tf.reduce_mean(point)
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'constraint='):
      ftrl.Ftrl(1.0, l1=0.1, constraint=line)
    models = _iterates(ftrl.Ftrl(1.0, constraint=line), _residuals(3))
    np.testing.assert_allclose(np.ptp(models, axis=1), 0.0, atol=1e-12)

  def test_projection_of_another_shape_is_refused(self):
    first = constraints.Projection(lambda point: point[:1])
    with self.assertRaisesRegex(Exception, 'shape'):
      _iterates(ftrl.Ftrl(1.0, constraint=first), _residuals(1))

  def test_box_with_its_ends_swapped_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'low=1.0 .* high, 0.5'):
      constraints.Box(1.0, 0.5)

  def test_state_is_two_vectors_and_one_for_momentum(self):
    zeros = tf.zeros([4])
    for momentum, vectors in ((0.0, 2), (0.5, 3)):
      state = ftrl.initialize(ftrl.Ftrl(1.0, momentum), zeros)
      self.assertEqual(
          sum(leaf.shape == [4] for leaf in tf.nest.flatten(state)), vectors
      )


if __name__ == '__main__':
  absltest.main()
