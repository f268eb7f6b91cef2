# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the contexts: same bits, loud ends, one default."""

import os
import signal
import threading
import time

from absl.testing import absltest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import execution
from tff_dp.execution import errors
from tff_dp.execution import native


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _sum(values):
  return tff.federated_sum(values)


@tff.tensorflow.computation
def _never_ends():
  return tf.while_loop(lambda i: i >= 0, lambda i: i * 1, [tf.constant(0)])


def _build_round() -> tff.Computation:
  """Returns a round that trains a convolution and a layer after it."""
  weights_type = tff.to_type((
      tff.TensorType(np.float32, [3, 3, 1, 4]),
      tff.TensorType(np.float32, [400, 10]),
  ))
  batches_type = tff.SequenceType((
      tff.TensorType(np.float32, [None, 12, 12, 1]),
      tff.TensorType(np.int32, [None]),
  ))

  def step(weights, batch):
    images, labels = batch
    with tf.GradientTape() as tape:
      tape.watch(weights)
      found = tf.nn.relu(tf.nn.conv2d(images, weights[0], 1, 'VALID'))
      logits = tf.reshape(found, [-1, 400]) @ weights[1]
      losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
      loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, weights)
    return tuple(w - 0.1 * g for w, g in zip(weights, gradients))

  @tff.tensorflow.computation(weights_type, batches_type)
  def train(weights, batches):
    return batches.reduce(tuple(weights), step)

  @tff.federated_computation(
      tff.FederatedType(weights_type, tff.SERVER),
      tff.FederatedType(batches_type, tff.CLIENTS),
  )
  def one_round(weights, batches):
    trained = tff.federated_map(
        train, (tff.federated_broadcast(weights), batches)
    )
    return tff.federated_mean(trained)

  return one_round


def _train(one_round, num_rounds: int) -> bytes:
  generator = np.random.default_rng(20)
  clients = [
      tf.data.Dataset.from_tensor_slices((
          generator.normal(size=(30, 12, 12, 1)).astype(np.float32),
          generator.integers(0, 10, 30).astype(np.int32),
      )).batch(10)
      for _ in range(8)
  ]
  weights = tuple(
      generator.normal(scale=0.1, size=shape).astype(np.float32)
      for shape in ([3, 3, 1, 4], [400, 10])
  )
  for _ in range(num_rounds):
    weights = one_round(weights, clients)
  return b''.join(np.asarray(weight).tobytes() for weight in weights)


class ContextsTest(absltest.TestCase):

  def test_bit_for_bit_the_same_on_fresh_workers(self):
    one_round = _build_round()
    results = set()
    for _ in range(2):
      with execution.create_native_context(max_concurrent_clients=1):
        results.add(_train(one_round, num_rounds=2))
    self.assertLen(results, 1)

  def test_block_installs_and_closes(self):
    with execution.create_native_context() as context:
      self.assertIs(tff.framework.get_context_stack().current, context)
      self.assertEqual(_sum([1.0, 2.0]), 3.0)
    self.assertIsNot(tff.framework.get_context_stack().current, context)
    self.assertFalse(context.worker.is_running)

  def test_block_closes_on_an_error(self):
    with self.assertRaisesRegex(RuntimeError, 'on purpose'):
      with execution.create_native_context() as context:
        raise RuntimeError('on purpose')
    self.assertFalse(context.worker.is_running)
    self.assertIsNot(tff.framework.get_context_stack().current, context)

  def test_second_default_replaces_and_closes_the_first(self):
    first = execution.set_default_context('native')
    self.assertEqual(_sum([1.0, 2.0]), 3.0)
    second = execution.set_default_context('native', max_concurrent_clients=1)
    self.addCleanup(second.close)
    self.assertFalse(first.worker.is_running)
    self.assertTrue(second.worker.is_running)
    self.assertEqual(_sum([1.0, 2.0, 3.0]), 6.0)

  def test_worker_ends_with_the_thread_whose_default_it_is(self):
    found = []

    def work():
      found.append(execution.set_default_context('native'))
      found.append(_sum([1.0, 2.0]))

    with execution.create_native_context() as mine:
      thread = threading.Thread(target=work)
      thread.start()
      thread.join()
      for closing in threading.enumerate():
        if closing.name == 'tff_dp_close':
          closing.join()
      context, result = found
      self.assertEqual(result, 3.0)
      self.assertFalse(context.worker.is_running)
      self.assertTrue(mine.worker.is_running)
      self.assertEqual(_sum([4.0]), 4.0)

  def test_secure_sums_are_refused_by_name(self):
    @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
    def secure_sum(values):
      return tff.federated_secure_sum(values, 10)

    with execution.create_native_context():
      with self.assertRaisesRegex(
          errors.UnsupportedComputationError,
          'the native context cannot run secure.*in-process context',
      ):
        secure_sum([1, 2])
      self.assertEqual(_sum([4.0]), 4.0)

  def test_bad_values_leave_the_default_alone(self):
    context = execution.set_default_context('native')
    self.addCleanup(context.close)
    with self.assertRaisesRegex(_checks.ArgumentError, "kind='gpu'.*in_process"):
      execution.set_default_context('gpu')
    with self.assertRaisesRegex(_checks.ArgumentError, 'default_num_clients'):
      execution.set_default_context(default_num_clients=-1)
    with self.assertRaisesRegex(_checks.ArgumentError, 'max_concurrent'):
      execution.set_default_context(max_concurrent_clients=-1)
    self.assertTrue(context.worker.is_running)
    self.assertEqual(_sum([4.0]), 4.0)

  def test_closed_context_refuses(self):
    context = execution.set_default_context('native')
    context.close()
    context.close()
    with self.assertRaisesRegex(native.NativeWorkerError, 'was closed'):
      _sum([1.0])

  def test_worker_killed_between_calls_is_an_error_not_a_hang(self):
    with execution.create_native_context() as context:
      self.assertEqual(_sum([1.0, 2.0]), 3.0)
      os.kill(context.worker.pid, signal.SIGKILL)
      with self.assertRaisesRegex(native.NativeWorkerError, 'SIGKILL'):
        _sum([1.0])

  def test_worker_killed_before_the_channel_is_ready(self):
    wait = native.NativeWorker.wait_until_ready

    def wait_and_kill(worker, **seconds):
      port = wait(worker, **seconds)
      os.kill(worker.pid, signal.SIGKILL)
      worker._process.wait()
      return port

    with absltest.mock.patch.object(
        native.NativeWorker, 'wait_until_ready', wait_and_kill
    ):
      with execution.create_native_context():
        start = time.monotonic()
        with self.assertRaisesRegex(native.NativeWorkerError, 'SIGKILL'):
          _sum([1.0])
    self.assertLess(time.monotonic() - start, 30)

  def test_worker_killed_within_a_call_is_an_error_not_a_hang(self):
    with execution.create_native_context() as context:
      killer = threading.Timer(
          0.5, os.kill, (context.worker.pid, signal.SIGKILL)
      )
      killer.start()
      start = time.monotonic()
      with self.assertRaisesRegex(native.NativeWorkerError, 'SIGKILL'):
        _never_ends()
      self.assertLess(time.monotonic() - start, 30)

  def test_error_of_a_computation_leaves_the_context_usable(self):
    @tff.tensorflow.computation(np.int32)
    def refuse(value):
      with tf.control_dependencies([tf.debugging.assert_positive(value)]):
        return tf.identity(value)

    with execution.create_native_context():
      with self.assertRaises(execution.ComputationError) as raised:
        refuse(-1)
      self.assertIn('> 0', raised.exception.details)
      self.assertEqual(refuse(2), 2)


if __name__ == '__main__':
  absltest.main()
