# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of per-client gradients against Keras, one client at a time."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tasks.mnist import mnist_gradients
from tasks.mnist import mnist_model
from tff_dp import _checks

_Convolution = mnist_model.Convolution
_SMALL = mnist_model.Architecture(
    (
        _Convolution(3, 3, stride=2, padding='same'),
        _Convolution(2, 5, stride=3, padding='same', pool=1),
    ),
    (),
    image_size=12,
)
_ARCHITECTURES = {
    'published': mnist_model.Architecture(),
    'pooling': mnist_model.Architecture.of_table_2(pool_stride=2),
    'same': mnist_model.Architecture.of_table_2(paddings=('same', 'same')),
    'kernel_no_multiple_of_stride': _SMALL,
    'rows_unused': mnist_model.Architecture(
        (_Convolution(3, 4, stride=3, padding='valid'),), (5, 4), 11
    ),
    'kernel_below_stride': mnist_model.Architecture(
        (_Convolution(3, 2, stride=3, padding='valid', pool=1),), (4,), 11
    ),
    'dense': mnist_model.Architecture((), (3,), 6),
}


def _batch(architecture, num_clients, seed=0):
  rng = np.random.default_rng(seed)
  weights = [
      rng.normal(scale=0.3, size=shape).astype(np.float32)
      for shape in architecture.shapes
  ]
  size = architecture.image_size
  images = rng.random((num_clients, size, size, 1), np.float32)
  labels = rng.integers(0, 10, num_clients).astype(np.int32)
  return weights, images, labels


def _gradients(num_clients=6):
  weights, images, labels = _batch(_SMALL, num_clients)
  return mnist_gradients.PerExampleGradients(_SMALL)(weights, images, labels)


class ModelTest(parameterized.TestCase):

  def test_published_number_of_weights(self):
    architecture = mnist_model.Architecture()
    self.assertEqual(architecture.num_params, 26_010)
    self.assertEqual(architecture, mnist_model.Architecture.of_table_2())

  @parameterized.named_parameters(*_ARCHITECTURES.items())
  def test_shapes_are_those_of_keras(self, architecture):
    weights = mnist_model.initial_weights(architecture, seed=3)
    self.assertEqual(
        tuple(weight.shape for weight in weights), architecture.shapes
    )
    self.assertEqual(
        sum(weight.size for weight in weights), architecture.num_params
    )
    again = mnist_model.initial_weights(architecture, seed=3)
    other = mnist_model.initial_weights(architecture, seed=4)
    np.testing.assert_array_equal(weights[0], again[0])
    self.assertFalse(np.array_equal(weights[0], other[0]))

  def test_layers_start_differently(self):
    square = mnist_model.Architecture((), (9, 9), image_size=3)
    weights = mnist_model.initial_weights(square, seed=0)
    self.assertFalse(np.array_equal(weights[0], weights[2]))

  @parameterized.named_parameters(
      ('padding', dict(filters=1, kernel=1, padding='full'), "padding='full'"),
      ('stride', dict(filters=1, kernel=1, stride=0), 'stride=0'),
      ('pool', dict(filters=1, kernel=1, pool=0), 'pool=0'),
  )
  def test_bad_values_are_named(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _Convolution(**arguments)

  def test_nothing_left_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'less than the 5 pixels'):
      mnist_model.Architecture.of_table_2(
          paddings=('valid', 'valid'), pool_stride=2
      )


class GradientsTest(parameterized.TestCase):

  @parameterized.named_parameters(*_ARCHITECTURES.items())
  def test_each_is_the_gradient_of_one_client(self, architecture):
    weights, images, labels = _batch(architecture, 5)
    compute = mnist_gradients.PerExampleGradients(architecture)
    found = compute(weights, images, labels)
    model = mnist_model.build_keras_model(architecture, seed=0)
    model.set_weights(weights)
    self.assertEqual(found.num_params, architecture.num_params)
    for row, gradient in enumerate(found.formed()):
      with tf.GradientTape() as tape:
        loss = tf.keras.losses.sparse_categorical_crossentropy(
            labels[row : row + 1], model(images[row : row + 1]), from_logits=True
        )
      expected = np.concatenate([
          part.numpy().ravel()
          for part in tape.gradient(loss, model.trainable_variables)
      ])
      scale = np.abs(expected).max()
      np.testing.assert_allclose(gradient, expected, atol=2e-5 * scale)
    np.testing.assert_allclose(
        compute.logits(weights, images), model(images).numpy(), rtol=1e-5
    )

  def test_sums_and_products_are_those_of_the_vectors(self):
    found = _gradients()
    vectors = found.formed().astype(np.float64)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=6)
    draws = rng.normal(size=(3, found.num_params)).astype(np.float32)
    np.testing.assert_allclose(
        found.norms(), np.linalg.norm(vectors, axis=1), rtol=1e-5
    )
    np.testing.assert_allclose(
        found.weighted_sum(weights), weights @ vectors, atol=1e-5
    )
    groups = vectors.reshape(2, 3, -1)
    np.testing.assert_allclose(
        found.grams(3), groups @ groups.transpose(0, 2, 1), rtol=1e-5, atol=1e-6
    )
    pairs = vectors.reshape(3, 2, -1)
    np.testing.assert_allclose(
        found.projections(draws),
        np.einsum('gid,gd->gi', pairs, draws).ravel(),
        rtol=1e-4,
        atol=1e-5,
    )
    chosen = found.rows(np.array([4, 0, 4]))
    np.testing.assert_array_equal(
        chosen.formed(), found.formed()[[4, 0, 4]]
    )
    np.testing.assert_allclose(chosen.norms(), found.norms()[[4, 0, 4]])

  def test_cleared_clients_are_zero_in_everything(self):
    found = _gradients().rows(np.arange(6))
    found.norms()  # Kept, so it has to be forgotten.
    found.clear([1, 5])
    self.assertFalse(found.formed()[[1, 5]].any())
    self.assertEqual(list(np.flatnonzero(found.norms() == 0)), [1, 5])

  @parameterized.parameters(np.nan, np.inf)
  def test_gradient_that_is_not_finite_counts_as_zero(self, value):
    weights, images, labels = _batch(_SMALL, 4)
    compute = mnist_gradients.PerExampleGradients(_SMALL)
    healthy = compute(weights, images, labels).formed()
    images[2, 3, 3, 0] = value
    found = compute(weights, images, labels)
    expected = healthy.copy()
    expected[2] = 0
    np.testing.assert_allclose(found.formed(), expected, atol=1e-6)
    self.assertTrue(np.isfinite(found.weighted_sum(np.ones(4))).all())
    self.assertTrue(np.isfinite(found.grams(2)).all())


if __name__ == '__main__':
  absltest.main()
