# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Digests are equal for the same code, and differ for what clients compute."""

import os
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import tensorflow as tf
import tensorflow_federated as tff

import tff_dp
from tests.learning import small_model
from tests.program import protocol_run
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import silo_run
from tff_dp.program import computation_digests

_sgdm = tff.learning.optimizers.build_sgdm


def _keras_model(units=3):
  def model_fn():
    model = tf.keras.Sequential([
        tf.keras.layers.InputLayer((2,)),
        tf.keras.layers.Dense(units, activation='relu'),
        tf.keras.layers.Dense(1),
    ])
    return tff.learning.models.from_keras_model(
        model,
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(
            tf.TensorSpec([None, 2], tf.float32),
            tf.TensorSpec([None, 1], tf.float32),
        ),
    )

  return model_fn


def _check_ins(model, **changes):
  return tff_dp.check_ins.build_check_in_sgd(
      model,
      protocol_run.build_plan(protocol_run.FIXED_WINDOW),
      server_learning_rate=0.1,
      **changes,
  )


def _instances(**changes):
  return instance_run.build_process(instance_run.build_plan(), **changes)


# Two that differ only in what clients compute.
_PAIRS = {
    'client_rate': (
        lambda: _check_ins(small_model.build(), client_optimizer=_sgdm(0.2)),
        lambda: _check_ins(small_model.build(), client_optimizer=_sgdm(0.3)),
    ),
    'loss': (
        lambda: _check_ins(small_model.build()),
        lambda: _check_ins(small_model.build(loss_scale=2.0)),
    ),
    'keras': (
        lambda: _check_ins(_keras_model()),
        lambda: _check_ins(_keras_model(units=4)),
    ),
    'instances': (
        _instances,
        lambda: _instances(loss_scale=2.0),
    ),
}


def print_digests() -> None:
  """Prints what other interpreters must find, too, built in another order."""
  for name in sorted(_PAIRS, reverse=True):
    found = computation_digests.digest(_PAIRS[name][0]().next)
    print('DIGEST', name, found, flush=True)
  os._exit(0)  # TFF's runtime has processes of its own.


def _of(computation) -> str:
  return computation_digests.digest(computation)


class ComputationDigestsTest(parameterized.TestCase):

  @parameterized.parameters(*_PAIRS)
  def test_pairs(self, name):
    one, other = _PAIRS[name]
    found = _of(one().next)
    self.assertRegex(found, '^[0-9a-f]{16}$')
    self.assertEqual(_of(one().next), found)
    self.assertNotEqual(_of(other().next), found)

  def test_silos(self):
    build = silo_run.build_process.__wrapped__
    self.assertEqual(_of(build().next), _of(build().next))

  def test_another_interpreter_finds_the_same(self):
    code = (
        'from tests.program import computation_digests_test as test;'
        ' test.print_digests()'
    )
    printed = subprocess.run(
        [sys.executable, '-c', code],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ).stdout
    found = dict(
        line.split()[1:]
        for line in printed.splitlines()
        if line.startswith('DIGEST')
    )
    expected = {name: _of(pair[0]().next) for name, pair in _PAIRS.items()}
    self.assertEqual(found, expected)

  def test_details_of_graphs(self):
    def of(function):
      return _of(tff.tensorflow.computation(function, tf.float32))

    def branches(low, high):
      return lambda x: tf.cond(x > low, lambda: x * high, lambda: x + high)

    def variables(first, second):
      def read(x):
        both = tf.Variable(first), tf.Variable(second)
        with tf.control_dependencies([both[0].assign_add(x)]):
          return both[1].read_value() - both[0].read_value()

      return read

    def table(value):
      def look_up(x):
        initializer = tf.lookup.KeyValueTensorInitializer(
            tf.constant([1, 2]), tf.constant([value, 3.0])
        )
        found = tf.lookup.StaticHashTable(initializer, 0.0)
        return x + found.lookup(tf.constant(1))

      return look_up

    different = [
        lambda x: x,
        lambda x: x - 1.0,
        lambda x: 1.0 - x,
        branches(0.0, 2.0),
        branches(1.0, 2.0),
        branches(0.0, 3.0),
        variables(1.0, 2.0),
        variables(1.0, 1.0),
        variables(2.0, 1.0),
        table(1.0),
        table(2.0),
        lambda x: tf.random.stateless_uniform([], seed=[1, 2]) + x,
        lambda x: tf.random.stateless_uniform([], seed=[1, 3]) + x,
    ]
    found = [of(each) for each in different]
    self.assertLen(set(found), len(different))
    self.assertEqual([of(each) for each in different], found)


if __name__ == '__main__':
  absltest.main()
