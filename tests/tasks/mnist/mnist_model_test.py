# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the network of the MNIST task."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.mnist import mnist_model
from tff_dp import _checks

_Convolution = mnist_model.Convolution
_ARCHITECTURES = {
    'published': mnist_model.Architecture(),
    'pooling': mnist_model.Architecture.of_table_2(pool_stride=2),
    'same': mnist_model.Architecture.of_table_2(paddings=('same', 'same')),
    'rows_unused': mnist_model.Architecture(
        (_Convolution(3, 4, stride=3, padding='valid'),), (5, 4), 11
    ),
    'kernel_below_stride': mnist_model.Architecture(
        (_Convolution(3, 2, stride=3, padding='valid', pool=1),), (4,), 11
    ),
    'dense': mnist_model.Architecture((), (3,), 6),
}


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
    with self.assertRaisesRegex(_checks.ArgumentError, 'fits into 5 x 5 pixels'):
      mnist_model.Architecture.of_table_2(
          paddings=('valid', 'valid'), pool_stride=2
      )


if __name__ == '__main__':
  absltest.main()
