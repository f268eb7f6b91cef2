# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the silos' models against NumPy, and of what is declared of them."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tasks.silos import silo_algorithms
from tasks.silos import silo_models
from tasks.silos import silo_preprocessing


def _unit_rows(rng, num_records, num_features):
  rows = rng.standard_normal([num_records, num_features])
  return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _labels(loss, rng, num_records):
  if loss == silo_models.SOFTMAX:
    return rng.integers(0, 3, num_records).astype(np.int32)
  if loss == silo_models.LOGISTIC:
    return rng.choice([-1.0, 1.0], num_records).astype(np.float32)
  return rng.random(num_records).astype(np.float32)


class BuildTest(parameterized.TestCase):

  @parameterized.parameters(
      silo_models.LOGISTIC, silo_models.SQUARED, silo_models.SOFTMAX
  )
  def test_loss_and_gradient_are_the_written_ones(self, loss):
    rng = np.random.default_rng(1)
    x, y = _unit_rows(rng, 6, 4).astype(np.float32), _labels(loss, rng, 6)
    columns = 3 if loss == silo_models.SOFTMAX else 1
    matrix = rng.standard_normal([4, columns]).astype(np.float32)
    model = silo_models.build(loss, 4, 3)
    np.testing.assert_array_equal(
        model.initial_weights[0][0], np.zeros([4, columns])
    )
    weights = tf.constant(matrix)
    with tf.GradientTape() as tape:
      tape.watch(weights)
      value = model.loss(model.predict_on_batch(((weights,), ()), x), y)
    gradient = tape.gradient(value, weights).numpy()
    scores = x @ matrix
    if loss == silo_models.SOFTMAX:
      chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
      expected = -np.log(chances[np.arange(6), y])
      slopes = chances - np.eye(3)[y]
    elif loss == silo_models.LOGISTIC:
      margins = y * scores[:, 0]
      expected = np.log1p(np.exp(-margins))
      slopes = (-y / (1 + np.exp(margins)))[:, np.newaxis]
    else:
      expected = 0.5 * (scores[:, 0] - y) ** 2
      slopes = scores - y[:, np.newaxis]
    self.assertAlmostEqual(float(value), expected.mean(), places=5)
    np.testing.assert_allclose(gradient, x.T @ slopes / 6, atol=1e-6)

  @parameterized.parameters(
      silo_models.LOGISTIC, silo_models.SQUARED, silo_models.SOFTMAX
  )
  def test_declared_smoothness_bounds_every_change_of_the_gradient(self, loss):
    # |g(w) - g(v)| <= beta |w - v| for single records of norm 1.
    rng = np.random.default_rng(2)
    beta = silo_algorithms.Problem(
        name='', title='', loss=loss, split=None, num_features=4
    ).smoothness
    model = silo_models.build(loss, 4, 3)
    columns = 3 if loss == silo_models.SOFTMAX else 1
    most = 0.0
    for _ in range(60):
      x = _unit_rows(rng, 1, 4).astype(np.float32)
      y = _labels(loss, rng, 1)
      # Small steps along x, where the curvature is.
      step = 0.2 * x.T @ rng.standard_normal([1, columns])
      points = [np.zeros([4, columns]), step]
      gradients = []
      for point in points:
        weights = tf.constant(point, tf.float32)
        with tf.GradientTape() as tape:
          tape.watch(weights)
          value = model.loss(model.predict_on_batch(((weights,), ()), x), y)
        gradients.append(tape.gradient(value, weights).numpy())
      change = np.linalg.norm(gradients[1] - gradients[0])
      most = max(most, change / np.linalg.norm(step))
    self.assertLess(most, beta * 1.001)
    # And it is no wild overestimate.
    self.assertGreater(most, beta / 2)


class ErrorTest(absltest.TestCase):

  def _records(self, labels, features=((1.0,), (1.0,), (1.0,), (1.0,))):
    return silo_preprocessing.Records(
        np.array(features, np.float32), np.array(labels)
    )

  def test_share_of_wrong_classes(self):
    records = self._records([1.0, 1.0, 1.0, -1.0])
    error = lambda weights: silo_models.error(
        'logistic', np.array(weights), records, {}
    )
    self.assertEqual(error([[2.0]]), 0.25)
    self.assertEqual(error([[-2.0]]), 0.75)
    # A model that says nothing is wrong, and so is one that diverged.
    self.assertEqual(error([[0.0]]), 1.0)
    self.assertEqual(error([[np.nan]]), 1.0)
    classes = self._records([2, 0, 0, 1])
    self.assertEqual(
        silo_models.error('softmax', np.array([[3.0, 1.0, 2.0]]), classes, {}),
        0.5,
    )

  def test_relative_rmse_is_one_for_the_mean_of_the_training_labels(self):
    train = {
        'a': self._records([1.0, 3.0], ((1.0,), (1.0,))),
        'b': self._records([8.0], ((1.0,),)),
    }
    records = self._records([0.0, 5.0, 2.0, 9.0])
    error = lambda value: silo_models.error(
        'squared', np.array([[value]]), records, train
    )
    self.assertAlmostEqual(error(4.0), 1.0)
    self.assertAlmostEqual(error(6.0), np.sqrt((36 + 1 + 16 + 9) / 46))
    self.assertEqual(error(np.inf), np.inf)


if __name__ == '__main__':
  absltest.main()
