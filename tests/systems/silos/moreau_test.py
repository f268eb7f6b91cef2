# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Moreau envelopes against brute force over the whole vector of weights."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import optimize
import tensorflow as tf

from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.systems.silos import moreau
from tff_dp.systems.silos import silo_sampling

_LOSSES = {
    'absolute': lambda z, y: np.abs(z - y),
    'hinge': lambda z, y: np.maximum(0.0, 1.0 - y * z),
}
_IN_TENSORFLOW = {
    'absolute': lambda z, y: tf.abs(z - y),
    'hinge': lambda z, y: tf.nn.relu(1.0 - y * z),
}


def setUpModule():
  execution.set_default_context()


def _brute_force(loss, weights, x, y, smoothing):
  """Returns min_v l(<v, x>) + b/2 |w - v|^2 over all v, by Nelder and Mead."""

  def objective(v):
    return loss(v @ x, y) + smoothing / 2 * np.sum((weights - v) ** 2)

  best = min(
      (
          optimize.minimize(
              objective,
              weights + shift * x,
              method='Nelder-Mead',
              options=dict(xatol=1e-9, fatol=1e-12, maxiter=4000),
          )
          for shift in (-0.2, 0.0, 0.2)
      ),
      key=lambda found: found.fun,
  )
  return best.fun, best.x


def _cases():
  rng = np.random.default_rng(0)
  for _ in range(12):
    weights, x = rng.standard_normal(2), rng.standard_normal(2)
    yield weights, x, float(rng.choice([-1.0, 1.0])), float(rng.uniform(0.3, 6))


class EnvelopeTest(parameterized.TestCase):

  @parameterized.product(name=tuple(_LOSSES), is_numeric=(False, True))
  @pytest.mark.slow(cases=['1'])
  def test_value_and_gradient_are_those_of_the_minimum(self, name, is_numeric):
    kinds = set()
    for weights, x, y, smoothing in _cases():
      envelope = moreau.moreau_envelope(
          _IN_TENSORFLOW[name] if is_numeric else name, smoothing=smoothing
      )
      point = tf.Variable(weights)
      with tf.GradientTape() as tape:
        margin = tf.reduce_sum(point * x)[tf.newaxis]
        value = envelope(
            margin, tf.constant([x @ x]), tf.constant([y], tf.float64)
        )
        total = tf.reduce_sum(value)
      gradient = tape.gradient(total, point).numpy()
      expected, nearest = _brute_force(_LOSSES[name], weights, x, y, smoothing)
      self.assertAlmostEqual(total.numpy(), expected, places=6)
      np.testing.assert_allclose(
          gradient, smoothing * (weights - nearest), atol=2e-4
      )
      # Below the loss by at most L^2 / (2 b), and no steeper, L = |x|.
      gap = _LOSSES[name](weights @ x, y) - total.numpy()
      self.assertBetween(gap, -1e-9, x @ x / (2 * smoothing) + 1e-9)
      self.assertLessEqual(
          np.linalg.norm(gradient), np.linalg.norm(x) * (1 + 1e-6)
      )
      kinds.add(round(np.linalg.norm(gradient) / np.linalg.norm(x), 3))
    self.assertGreater(len(kinds), 3)  # Within the kink's reach, too.

  @parameterized.parameters('absolute', 'hinge', _IN_TENSORFLOW['hinge'])
  def test_record_of_zeros_has_the_loss_itself_and_no_nan(self, loss):
    envelope = moreau.moreau_envelope(loss, smoothing=2.0)
    margin = tf.Variable([0.0])
    with tf.GradientTape() as tape:
      value = envelope(margin, tf.constant([0.0]), tf.constant([1.0]))
    np.testing.assert_allclose(value, [1.0])
    self.assertTrue(np.isfinite(tape.gradient(value, margin)[0]))

  @parameterized.parameters(
      (dict(loss='huber'), "loss='huber'"),
      (dict(smoothing=0.0), 'smoothing=0.0'),
      (dict(lipschitz=-1.0), 'lipschitz=-1.0'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    arguments = dict(loss='hinge', smoothing=1.0) | changes
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      moreau.moreau_envelope(arguments.pop('loss'), **arguments)


@pytest.mark.once
class SmoothedSgdTest(parameterized.TestCase):

  def test_every_record_is_smoothed_on_its_own(self):
    # Opposite kinks: the mean of the losses is flat, the envelopes are not.
    x = np.float32([[2.0, 0.0], [1.0, 0.0]])
    y = np.float32([0.2, -3.0])
    smoothing = 4.0
    process = silos.build_noisy_mb_sgd(
        silos.build_linear_model(
            'absolute', num_features=2, smoothing=smoothing
        ),
        silos={'only': toy.free(2)},
        num_rounds=1,
        sampling=silo_sampling.FixedSize(2),
        l2_norm_clip=100.0,
        learning_rate=1.0,
        averaging='last',
        noise_stddev=0.0,
    )
    output = process.next(
        process.initialize(), [process.client_data('only', [(x, y)])]
    )
    # Huber of threshold |x|^2 / b: 1 and 1/4; the first is within, at -0.2.
    expected = -np.mean([2.0 * -0.2 / 1.0, 1.0])
    np.testing.assert_allclose(
        process.get_model_weights(output.state).trainable[0],
        [expected, 0.0],
        rtol=1e-5,
    )


if __name__ == '__main__':
  absltest.main()
