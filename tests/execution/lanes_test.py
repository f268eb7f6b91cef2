# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops for many clients at once: the same bits, converted once."""

import functools
import importlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf

from tests.execution import vectorized_test
from tff_dp.execution.compiling import lanes
from tff_dp.execution.compiling import pure
from tff_dp.execution.compiling import vectorized

pfor = importlib.import_module('tensorflow.python.ops.parallel_for.pfor')
_DATA = np.random.default_rng(5).normal(size=[6, 4, 3]).astype(np.float32)


def _train(data):
  """A loop in a loop: weights, whole numbers, and what clients share."""

  def step(i, weights, count, constant, shape):
    del constant, shape
    row = data[i % 4]
    weights = weights - 0.1 * row * tf.reduce_sum(row * weights)
    count += tf.cast(tf.reduce_sum(row) > 0, tf.int64)
    return i + 1, weights, count, tf.ones([3]), tf.shape(weights)

  def epoch(i, weights, count, untouched):
    _, weights, count, constant, shape = tf.while_loop(
        lambda j, *_: j < 4,
        step,
        [0, weights, count, tf.zeros([3]), tf.constant([0])],
    )
    weights += constant * tf.cast(shape[0], tf.float32) + untouched
    return i + 1, weights, count, untouched

  return tf.while_loop(
      lambda i, *_: i < 3,
      epoch,
      [0, tf.ones([3]), tf.constant(0, tf.int64), tf.constant(0.5)],
  )[1:]


def _branch(data):
  """Branches by what clients share and do not share, and a loop in a branch."""

  def train(weights):
    return tf.while_loop(
        lambda j, _: j < 3,
        lambda j, own: (j + 1, own - 0.1 * data[j] * tf.reduce_sum(own)),
        [0, weights],
    )[1]

  def step(i, weights, shared, positive):
    shared = tf.cond(i < 2, lambda: shared + 1.0, lambda: shared * 2.0)
    weights = tf.cond(i < 3, lambda: train(weights), lambda: weights + shared)
    positive += tf.cond(tf.reduce_sum(weights) > 0.0, lambda: 1, lambda: 0)
    return i + 1, weights, shared, positive

  return tf.while_loop(
      lambda i, *_: i < 4, step, [0, tf.ones([3]), tf.constant(0.5), 0]
  )[1:]


@functools.cache
def _at_once(function, *, has_zeros: bool):
  """Returns the results of all clients, and how often a body was converted."""
  alone = vectorized_test._Work(function, [_DATA])
  bodies = []
  convert = pfor._convert_function_call

  def counted(function, converter, inputs):
    bodies.append(function.name)
    return convert(function, converter, inputs)

  @tf.function(autograph=False)
  def work(data, zeros):
    return tf.vectorized_map(
        lambda own: pure.evaluate(
            alone.graph_def,
            {'in_0': own[0]},
            alone.values,
            is_vectorized=True,
            own_zero=own[1] if has_zeros else None,
        ),
        (data, zeros),
        fallback_to_while_loop=False,
        warn=False,
    )

  with mock.patch.object(pfor, '_convert_function_call', counted):
    found = work(_DATA, np.zeros([len(_DATA)], np.int32))
  counts = [bodies.count(name) for name in sorted(set(bodies))]
  return [part.numpy() for part in found], counts


class LanesTest(parameterized.TestCase):

  @parameterized.parameters(_train, _branch)
  def test_bits_are_those_of_the_conversion_by_trial(self, function):
    expected, _ = _at_once(function, has_zeros=False)
    actual, _ = _at_once(function, has_zeros=True)
    for want, got in zip(expected, actual, strict=True):
      np.testing.assert_array_equal(got, want)
    alone = [function(tf.constant(own)) for own in _DATA]
    for want, got in zip(zip(*alone), actual, strict=True):
      np.testing.assert_allclose(
          np.broadcast_to(got, np.shape(want)), want, rtol=1e-5
      )

  @parameterized.parameters((_train, 3), (_branch, 2))
  def test_each_body_is_converted_once(self, function, trials):
    _, by_trial = _at_once(function, has_zeros=False)
    self.assertGreaterEqual(max(by_trial), trials)
    _, found = _at_once(function, has_zeros=True)
    self.assertEqual(max(found), 1, found)

  def test_shared_results_are_those_that_tensorflow_shares(self):
    # A case of each operation that may run for many clients at once. If a shared
    # result counted as a client's own, the conversion would never end.
    cases = {name: case for name, *case in reversed(vectorized_test._CASES)}
    inputs = [value for _, given in cases.values() for value in given]

    def everything(*tensors):
      tensors = iter(tensors)
      return [
          function(*(next(tensors) for _ in given))
          for function, given in cases.values()
      ]

    alone = vectorized_test._Work(everything, inputs)
    converted, of_clients = {}, []
    add = pfor.PFor._add_conversion

    def noted(converter, old, new):
      converted[old.ref()] = new.is_stacked
      return add(converter, old, new)

    def of_client(own):
      of_clients.append(own[0])
      given = {f'in_{index}': one for index, one in enumerate(own)}
      return pure.evaluate(
          alone.graph_def, given, alone.values, is_vectorized=True
      )

    with mock.patch.object(pfor.PFor, '_add_conversion', noted):
      tf.function(
          lambda *own: tf.vectorized_map(of_client, own, warn=False),
          autograph=False,
      ).get_concrete_function(*inputs)
    known = {id(lanes._client_index(of_clients[0])): True}
    found = {
        reference: lanes._differs(reference.deref(), known)
        for reference in converted
    }
    types = {reference.deref().op.type for reference in converted}
    # `pure` replaces these.
    replaced = {
        'Identity', 'L2Loss', 'Conv2D', 'Conv2DBackpropFilter',
        'Conv2DBackpropInput',
    }  # fmt: skip
    self.assertContainsSubset(vectorized.OPERATIONS - replaced, types)
    wrong = {
        reference.deref().op.type
        for reference in converted
        if found[reference] != converted[reference]
    }
    self.assertEmpty(wrong)


if __name__ == '__main__':
  absltest.main()
