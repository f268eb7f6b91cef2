# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of generalised linear models with declared bounds."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tff_dp.learning import linear_models

_RNG = np.random.default_rng(4)
_ARGUMENTS = {
    'linear': dict(response_bounds=(-1.0, 3.0)),
    'logistic': {},
    'softmax': dict(num_classes=3),
    'poisson': dict(response_bounds=(0, 4)),
}
_LABELS = {
    'linear': np.float32([-1.0, 3.0, 0.5, 1.0]),
    'logistic': np.float32([0, 1, 1, 0]),
    'softmax': np.int32([2, 0, 1, 2]),
    'poisson': np.float32([0, 4, 1, 2]),
}
_REFUSED = {
    'linear': [-1.01, 3.1, np.nan, np.inf],
    'logistic': [0.5, 2.0, -1.0, np.nan],
    'softmax': [3, -1, 100, 7],
    'poisson': [-1.0, 5.0, 1.5, np.nan],
}


def _build(family, **changes):
  return linear_models.build_generalized_linear_model(
      family, num_features=2, **_ARGUMENTS[family] | changes
  )


def _weights(model, seed=0):
  rng = np.random.default_rng(seed)
  return tuple(
      tf.constant(rng.normal(size=w.shape), tf.float32)
      for w in model.initial_weights[0]
  )


def _gradients(model, weights, x, y):
  with tf.GradientTape() as tape:
    tape.watch(weights)
    loss = model.loss(
        model.predict_on_batch((weights, ()), tf.constant(x, tf.float32)),
        tf.constant(y, model.input_spec[1].dtype),
    )
  return loss, [np.asarray(g) for g in tape.gradient(loss, weights)]


class GeneralizedLinearModelTest(parameterized.TestCase):

  @parameterized.parameters(*linear_models.FAMILIES)
  def test_gradient_is_the_residual_times_the_features(self, family):
    model = _build(family, feature_bounds=([0.0, -2.0], [1.0, 2.0]))
    weights = _weights(model)
    x = _RNG.uniform([0, -2], [1, 2], size=[4, 2]).astype(np.float32)
    y = _LABELS[family]
    _, (kernel, bias) = _gradients(model, weights, x, y)
    scaled = (x - [0, -2]) / [1, 4]
    eta = scaled @ np.asarray(weights[0]) + np.asarray(weights[1])
    if family == 'softmax':
      mean = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
      residual = mean - np.eye(3)[y]
    else:
      mean = {
          'linear': eta, 'logistic': 1 / (1 + np.exp(-eta)),
          'poisson': np.exp(eta),
      }[family]
      low, high = model.response_bounds
      residual = mean - (y - low) / (high - low)
    np.testing.assert_allclose(kernel, scaled.T @ residual / 4, atol=1e-5)
    np.testing.assert_allclose(bias, residual.mean(axis=0), atol=1e-5)

  @parameterized.parameters(*linear_models.FAMILIES)
  def test_refused_labels_have_no_gradient_and_are_counted(self, family):
    model = _build(family)
    weights = _weights(model)
    x = _RNG.uniform(size=[4, 2])
    bad = tf.constant(_REFUSED[family], model.input_spec[1].dtype)
    loss, gradients = _gradients(model, weights, x, bad)
    self.assertEqual(float(loss), 0.0)
    for gradient in gradients:
      np.testing.assert_array_equal(gradient, np.zeros_like(gradient))
    self.assertEqual(int(model.num_refused(bad)), 4)
    good = _LABELS[family]
    self.assertEqual(int(model.num_refused(tf.constant(good))), 0)
    # A refused record counts as one, and does not disturb the others.
    _, alone = _gradients(model, weights, x[:1], good[:1])
    _, both = _gradients(
        model, weights, x[:2], np.array([good[0], _REFUSED[family][0]])
    )
    for one, two in zip(alone, both):
      np.testing.assert_allclose(two, one / 2, atol=1e-6)

  def test_features_stay_within_their_declared_bounds(self):
    model = _build('logistic', feature_bounds=(-1.0, [1.0, 3.0]))
    scaled = model.scale(
        tf.constant([[-9.0, 9.0], [0.0, 1.0], [np.nan, np.inf]])
    )
    np.testing.assert_allclose(scaled, [[0, 1], [0.5, 0.5], [0, 1]])

  def test_box_of_one_never_clips_a_classifier(self):
    for family in ('logistic', 'softmax'):
      model = _build(family)
      weights = tuple(50.0 * w for w in _weights(model))
      _, gradients = _gradients(
          model, weights, _RNG.uniform(-5, 5, size=[4, 2]), _LABELS[family]
      )
      self.assertLessEqual(max(np.max(np.abs(g)) for g in gradients), 1.0)

  def test_rates_beyond_float32_still_have_a_gradient(self):
    model = _build('poisson')
    weights = (tf.constant([500.0, 0.0]), tf.constant(0.0))
    _, (kernel, _) = _gradients(model, weights, [[1.0, 0.0]], [1.0])
    self.assertTrue(np.all(np.isfinite(kernel)))
    self.assertGreater(kernel[0], 1e6)

  def test_responses_are_in_units_of_the_labels(self):
    eta = tf.constant([0.25])
    self.assertAlmostEqual(float(_build('linear').response(eta)[0]), 0.0)
    self.assertAlmostEqual(
        float(_build('poisson').response(eta)[0]), 4 * np.exp(0.25), places=5
    )
    self.assertAlmostEqual(
        float(_build('logistic').response(tf.constant([0.0]))[0]), 0.5
    )
    np.testing.assert_allclose(
        _build('softmax').response(tf.zeros([1, 3])), [[1 / 3] * 3], rtol=1e-6
    )

  @parameterized.parameters(
      ('other', {}, 'family='),
      ('linear', dict(response_bounds=(1.0, 1.0)), 'response_bounds='),
      ('linear', dict(feature_bounds=(0.0, [1.0, 0.0])), 'feature_bounds='),
      ('linear', dict(feature_bounds=(0.0, np.inf)), 'feature_bounds='),
      ('linear', dict(num_features=0), 'num_features=0'),
      ('linear', dict(num_classes=2), 'num_classes=2'),
      ('logistic', dict(response_bounds=(0, 1)), 'response_bounds='),
      ('softmax', {}, 'num_classes=None'),
      ('poisson', {}, 'response_bounds=None'),
      ('poisson', dict(response_bounds=(1, 4)), 'response_bounds='),
  )
  def test_bad_arguments_name_themselves(self, family, arguments, message):
    with self.assertRaisesRegex(ValueError, message):
      linear_models.build_generalized_linear_model(
          family, **dict(num_features=2) | arguments
      )


if __name__ == '__main__':
  absltest.main()
