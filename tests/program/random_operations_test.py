# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Operations that may differ in a repeated round are found, and no others."""

import collections

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_dp
from tests.learning import small_model
from tests.program import protocol_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import secure_sum_run
from tests.systems.silos import silo_run
from tff_dp.program import random_operations

_NUMBERS = tff.SequenceType(tff.TensorType(np.float32))


def _check_ins(model_fn, kind=protocol_run.FIXED_WINDOW):
  build = {
      protocol_run.FIXED_WINDOW: tff_dp.check_ins.build_check_in_sgd,
      protocol_run.SHUFFLED: tff_dp.check_ins.build_shuffled_check_in_sgd,
  }[kind]
  return build(
      model_fn, protocol_run.build_plan(kind), server_learning_rate=0.1
  )


def _keras(*layers):
  def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([
            tf.keras.layers.InputLayer((2,)),
            *(make() for make in layers),
            tf.keras.layers.Dense(1),
        ]),
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([None, 1], tf.float32),
        ),
    )

  return model_fn


class RandomOperationsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('keras', lambda: _check_ins(_keras())),
      ('shuffled', lambda: _check_ins(small_model.build(), 'shuffled')),
      ('instances', lambda: instance_run.build_process(
          instance_run.build_plan())),
      ('silos', silo_run.build_process),
      ('secure_sums', secure_sum_run.build_process),
  )
  def test_noise_follows_from_keys(self, build):
    self.assertEmpty(random_operations.names(build().next))

  @parameterized.parameters({}, {'seed': 3})
  def test_dropout_with_and_without_a_seed(self, **changes):
    dropout = lambda: tf.keras.layers.Dropout(0.5, **changes)
    found = random_operations.names(_check_ins(_keras(dropout)).next)
    self.assertEqual(found, ['RandomUniform'])

  @parameterized.parameters(
      ({}, True),
      ({'seed': 3}, False),
      ({'seed': 3, 'reshuffle_each_iteration': False}, False),
  )
  def test_shuffles(self, changes, is_found):
    for repeats in (1, 2):
      for in_function in (tf.function, lambda work: work):

        @tff.tensorflow.computation(_NUMBERS)
        @in_function
        def total(data):
          data = data.shuffle(10, **changes).repeat(repeats).batch(2)
          return data.reduce(0.0, lambda s, x: s + tf.reduce_sum(x))

        self.assertEqual(bool(random_operations.names(total)), is_found)

  def test_data(self):
    numbers = tf.data.Dataset.range(4)
    for data, expected in (
        (numbers.batch(2), set()),
        ([np.ones(2)], set()),
        (numbers.shuffle(2, seed=1).batch(2), {'_ShuffleDataset'}),
        (
            numbers.map(lambda i: tf.random.uniform([]) + tf.cast(i, tf.float32)),
            {'_MapDataset with RandomUniform'},
        ),
    ):
      client = collections.OrderedDict(examples=data, key=[np.ones([1, 2])])
      found = random_operations.names_in_data([client, client])
      self.assertEqual(found, expected)

  def test_operations(self):
    def names(work):
      return random_operations.names(tff.tensorflow.computation(work))

    key = lambda: tf.constant([1, 2], tf.int64)
    for work, expected in (
        (lambda: tf.random.normal([2]), ['RandomStandardNormal']),
        (lambda: tf.random.shuffle(tf.range(3)), ['RandomShuffle']),
        (
            lambda: tf.map_fn(lambda x: x + tf.random.uniform([]), tf.ones(3)),
            ['RandomUniform'],
        ),
        (lambda: tf.timestamp(), ['Timestamp']),
        (lambda: tf.random.stateless_normal([2], key()), []),
        (lambda: tf.Variable(tf.zeros([2])).assign_add([1.0, 2.0]), []),
        # A value that nobody reads.
        (lambda: (tf.random.normal([2]), tf.zeros([]))[1], []),
    ):
      self.assertEqual(names(work), expected)


if __name__ == '__main__':
  absltest.main()
