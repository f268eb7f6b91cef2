# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The in-process context: its life, its schedules, its programs' traces.

What computations return is compared with other contexts in `conformance_test`;
failures are in `failure_test`.
"""

import asyncio
import collections
import dataclasses
import gc
import logging
import threading
from unittest import mock
import weakref

from absl.testing import absltest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _compat
from tff_dp import execution
from tff_dp.execution import contexts
from tff_dp.execution import errors
from tff_dp.execution import in_process
from tff_dp.execution import native
from tff_dp.execution.compiling import program
from tff_dp.execution.compiling import schedule

_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


@tff.tensorflow.computation(np.float32)
def _parts(x):
  return collections.OrderedDict(large=tf.fill([1000], x), small=2.0 * x)


@tff.tensorflow.computation(_parts.type_signature.result)
def _small(parts):
  return parts['small']


@tff.tensorflow.computation(np.float32, np.float32)
def _difference(x, y):
  return x - y


@tff.federated_computation(_FLOATS)
def _sum(x):
  return tff.federated_sum(x)


@tff.federated_computation(_FLOATS)
def _deviations(x):
  """Two aggregations at once, a third and a fourth that depend on them."""
  parts = tff.federated_map(_parts, x)
  small = tff.federated_map(_small, parts)
  mean = tff.federated_mean(small)
  away = tff.federated_map(_difference, (small, tff.federated_broadcast(mean)))
  largest = tff.federated_max(away)
  away = tff.federated_map(
      _difference, (away, tff.federated_broadcast(largest))
  )
  return tff.federated_sum(away), tff.federated_sum(x)


def _schedule(computation) -> schedule.Schedule:
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
      computation.to_building_block()
  )
  return schedule.build(tff.framework.to_call_dominant(block))


@tff.tensorflow.computation(tff.SequenceType(np.float32))
def _unlisted(dataset):
  """Work that is not known to be safe for many clients at once."""
  return dataset.reduce(0.0, lambda total, x: total + tf.math.lgamma(x))


@tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.float32), tff.CLIENTS)
)
def _sum_of_unlisted(datasets):
  return tff.federated_sum(tff.federated_map(_unlisted, datasets))


class ScheduleTest(absltest.TestCase):

  def test_independent_aggregations_share_a_pass(self):
    found = _schedule(_deviations)
    self.assertEqual(
        [len(one_pass.accumulations) for one_pass in found.passes], [2, 1, 1]
    )
    self.assertLen(found.stages, 4)

  def test_only_what_a_later_pass_needs_is_kept(self):
    first, second, third = _schedule(_deviations).passes
    self.assertLen(first.kept, 1)
    self.assertLen(second.kept, 1)
    self.assertEmpty(third.kept)
    # The picked number, and not the thousand beside it.
    self.assertEqual(first.kept, second.client_inputs)

  def test_a_pick_is_kept_and_not_the_struct_it_is_from(self):
    parts_type = _parts.type_signature.result

    @tff.federated_computation(parts_type)
    def small(parts):
      return parts.small

    @tff.federated_computation(parts_type, np.float32)
    def small_difference(parts, mean):
      return _difference(parts.small, mean)

    @tff.federated_computation(_FLOATS)
    def variance(x):
      parts = tff.federated_map(_parts, x)
      mean = tff.federated_mean(tff.federated_map(small, parts))
      return tff.federated_sum(
          tff.federated_map(
              small_difference, (parts, tff.federated_broadcast(mean))
          )
      )

    (kept,) = _schedule(variance).passes[0].kept
    self.assertIsInstance(kept.operation, schedule.Pick)

  def _check_that_needed_nodes_are_known(self, found: schedule.Schedule):
    known = set(found.arguments)

    def check(nodes):
      for node in nodes:
        is_copy = isinstance(node.operation, schedule.Copy)
        self.assertIn(node.inputs[0] if is_copy else node, known)

    for number, stage in enumerate(found.stages):
      if number:
        one_pass = found.passes[number - 1]
        check([*one_pass.server_inputs, *one_pass.client_inputs])
        known.update(one_pass.accumulations, one_pass.kept)
      check(stage.inputs)
      known.update(stage.outputs)
    check(schedule.nodes_in(found.result))

  def test_every_node_is_known_when_it_is_needed(self):
    self._check_that_needed_nodes_are_known(_schedule(_deviations))

  def test_only_a_random_dataset_with_two_uses_takes_passes_of_its_own(self):
    numbers = tff.SequenceType(np.float32)
    make = tff.tensorflow.computation(lambda x: x.shuffle(9), numbers)
    double = tff.tensorflow.computation(
        lambda x: x.map(lambda y: 2 * y), numbers
    )
    total = tff.tensorflow.computation(
        lambda x: x.reduce(0.0, lambda a, b: a + b), numbers
    )

    def build(make, uses: int):
      @tff.federated_computation(tff.FederatedType(numbers, tff.CLIENTS))
      def computation(datasets):
        made = tff.federated_map(make, datasets)
        return [
            tff.federated_sum(tff.federated_map(total, made))
            for _ in range(uses)
        ]

      return _schedule(computation)

    @tff.federated_computation(
        tff.FederatedType([('train', numbers), ('test', numbers)], tff.CLIENTS)
    )
    def of_a_struct(datasets):
      train = datasets.train
      return [
          tff.federated_sum(tff.federated_map(total, train)) for _ in range(2)
      ]

    for one_pass in build(make, 1), build(double, 2), _schedule(of_a_struct):
      self.assertLen(one_pass.passes, 1)
      self.assertEmpty(one_pass.copies)
    twice = build(make, 2)
    self.assertLen(twice.passes, 2)
    self.assertLen(twice.copies, 2)
    self._check_that_needed_nodes_are_known(twice)

  def test_what_leads_to_no_result_is_not_computed(self):
    @tff.federated_computation(_FLOATS)
    def wasteful(x):
      tff.federated_map(_parts, x)
      return tff.federated_sum(x)

    (one_pass,) = _schedule(wasteful).passes
    self.assertEmpty(one_pass.nodes)

  def test_argument_without_placement_is_one_node(self):
    weights = tff.StructType([('a', np.float32), ('b', np.float32)])

    @tff.federated_computation(weights)
    def swap(w):
      return w.b, w.a

    self.assertLen(_schedule(swap).arguments, 1)


class ContextTest(absltest.TestCase):

  def test_block_installs_and_closes(self):
    before = tff.framework.get_context_stack().current
    with execution.create_sync_in_process_context() as context:
      self.assertIs(tff.framework.get_context_stack().current, context)
      self.assertEqual(_sum([1.0, 2.0]), 3.0)
    self.assertIs(tff.framework.get_context_stack().current, before)

  def test_closed_context_says_what_to_do(self):
    context = execution.create_sync_in_process_context()
    context.close()
    context.close()
    with tff.framework.get_context_stack().install(context):
      with self.assertRaisesRegex(
          errors.ContextClosedError, 'set_default_context'
      ):
        _sum([1.0])

  def test_in_process_is_the_default_kind(self):
    self.addCleanup(execution.set_default_context)
    first = execution.set_default_context(max_concurrent_clients=2)
    self.addCleanup(first.close)
    self.assertIsInstance(first, in_process.InProcessContext)
    self.assertEqual(first.num_workers, 2)
    self.assertEqual(_sum([1.0, 2.0, 4.0]), 7.0)
    second = contexts.set_sync_in_process_context()
    self.addCleanup(second.close)
    self.assertEqual(_sum([1.0]), 1.0)
    with tff.framework.get_context_stack().install(first):
      with self.assertRaises(errors.ContextClosedError):
        _sum([1.0])

  def test_bad_values_leave_the_default_alone(self):
    self.addCleanup(execution.set_default_context)
    context = execution.set_default_context()
    self.addCleanup(context.close)
    for arguments in (
        {'default_num_clients': -1},
        {'max_concurrent_clients': 0},
        {'client_tf_devices': ['GPU:99']},
        {'server_tf_device': 'CPU:99'},
        {'log_path': 'worker.log'},
    ):
      (name,) = arguments
      with self.assertRaisesRegex(_checks.ArgumentError, name):
        execution.set_default_context(**arguments)
    for name in ('client_tf_devices', 'server_tf_device'):
      with self.assertRaisesRegex(_checks.ArgumentError, name):
        execution.set_default_context('native', **{name: 'CPU:0'})
    self.assertEqual(_sum([4.0]), 4.0)

  def test_arrays_that_were_changed_in_place_come_as_they_are(self):
    @tff.federated_computation(
        tff.FederatedType(tff.TensorType(np.float32, [2, 2]), tff.SERVER)
    )
    def same(x):
      return x

    def transpose(array):
      array.strides = array.strides[::-1]

    def swap_bytes(array):
      array.dtype = array.dtype.newbyteorder()

    with execution.create_sync_in_process_context():
      for change in (transpose, swap_bytes):
        array = same(np.float32([[1, 2], [3, 4]]))
        change(array)
        np.testing.assert_array_equal(same(array), array)

  def test_native_says_where_it_exists(self):
    column = dataclasses.replace(_compat.COLUMN, has_worker=False)
    with mock.patch.object(_compat, 'COLUMN', column):
      with self.assertRaisesRegex(
          native.NativeWorkerError, 'in-process context, or Python 3.11'
      ):
        execution.set_default_context('native')

  def test_what_cannot_be_done_at_once_is_tried_once_for_all_workers(self):
    clients = [[1.0, 2.0], [3.0, 4.0]] * 64
    with execution.create_sync_in_process_context(
        max_concurrent_clients=2
    ) as context:
      with self.assertLogs('tff_dp.execution', logging.DEBUG) as logs:
        found = _sum_of_unlisted(clients)
      self.assertEqual(context.num_clients_by_path['at_once'], 0)
    expected = 64 * np.log([1.0, 1.0, 2.0, 6.0]).sum()
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    tries = [line for line in logs.output if 'do not work at once' in line]
    self.assertLen(tries, 1)

  def test_workers_of_a_device_share_a_graph_whichever_asks_first(self):
    for workers in ((0, 1), (1, 0)):
      compiled = program.Program(
          _sum,
          worker_devices=('/device:CPU:0', '/device:CPU:0'),
          server_device='/device:CPU:0',
      )
      compiled.stage(0)
      before = compiled.num_traces
      first, second = (compiled.client_pass(1, worker) for worker in workers)
      self.assertIs(first, second)
      self.assertEqual(compiled.num_traces, before + 1)

  def test_no_thread_is_left(self):
    with execution.create_sync_in_process_context(
        max_concurrent_clients=3
    ) as context:
      _sum([1.0, 2.0, 3.0])
      during = [t for t in threading.enumerate() if 'tff_dp' in t.name]
    self.assertNotEmpty(during)
    self.assertFalse(any(thread.is_alive() for thread in during))
    del context

  def test_dropped_context_ends_its_threads(self):
    context = execution.create_sync_in_process_context()
    with tff.framework.get_context_stack().install(context):
      _sum([1.0])
    threads = [t for t in threading.enumerate() if 'tff_dp' in t.name]
    dropped = weakref.ref(context)
    del context
    gc.collect()
    self.assertIsNone(dropped())
    for thread in threads:
      thread.join(timeout=5.0)
      self.assertFalse(thread.is_alive())

  def test_program_goes_with_its_computation(self):
    with execution.create_sync_in_process_context() as context:

      @tff.federated_computation(_FLOATS)
      def short_lived(x):
        return tff.federated_mean(x)

      short_lived([1.0])
      self.assertGreater(context.num_traces, 0)
      del short_lived
      gc.collect()
      self.assertEqual(context.num_traces, 0)

  def test_result_that_comes_back_is_not_copied(self):
    @tff.tensorflow.computation(tff.TensorType(np.float32, [3]))
    def grow(x):
      return x + 1.0

    with execution.create_sync_in_process_context():
      once = grow(np.zeros(3, np.float32))
      twice = grow(once)
      self.assertFalse(once.flags.writeable)
      np.testing.assert_array_equal(once, np.ones(3))
      np.testing.assert_array_equal(twice, np.full(3, 2.0))
      # A changed copy is another array.
      changed = once.copy()
      changed[0] = 5.0
      np.testing.assert_array_equal(grow(changed), [6.0, 2.0, 2.0])

  def test_array_of_the_caller_is_not_shared(self):
    pair = tff.TensorType(np.float32, [2])

    @tff.federated_computation(tff.FederatedType(pair, tff.SERVER))
    def same(x):
      return x

    with execution.create_sync_in_process_context():
      given = np.zeros(2, np.float32)
      result = same(given)
      given[0] = 9.0
      np.testing.assert_array_equal(result, [0.0, 0.0])


class _TwoPointsIterator(tff.program.FederatedDataSourceIterator):
  """Gives every client two points of a line."""

  @property
  def federated_type(self):
    element = (
        tff.TensorType(np.float32, [None, 2]),
        tff.TensorType(np.float32, [None, 1]),
    )
    return tff.FederatedType(tff.SequenceType(element), tff.CLIENTS)

  def select(self, k=None):
    inputs = np.eye(2, dtype=np.float32)
    return [[(inputs, inputs[:, :1])] for _ in range(k)]

  @classmethod
  def from_bytes(cls, data):
    return cls()

  def to_bytes(self):
    return b''


class _TwoPoints(tff.program.FederatedDataSource):

  @property
  def federated_type(self):
    return self.iterator().federated_type

  def iterator(self):
    return _TwoPointsIterator()


class AsyncTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._context = execution.create_async_in_process_context()
    self.addCleanup(self._context.close)
    self.enterContext(
        tff.framework.get_context_stack().install(self._context)
    )

  def test_calls_run_side_by_side(self):
    async def run():
      return await asyncio.gather(
          _sum([1.0]), _sum([1.0, 2.0]), _deviations([])
      )

    first, second, third = asyncio.run(run())
    self.assertEqual((first, second), (1.0, 3.0))
    self.assertEqual(third, (0.0, 0.0))

  def test_cancelled_call_ends(self):
    started = threading.Event()

    @tff.tensorflow.computation(np.float32)
    def endless(x):
      @tf.function
      def loop():
        total = x
        while total >= 0.0:
          total += 1e-20
        return total

      return loop()

    @tff.federated_computation(_FLOATS)
    def wait(x):
      return tff.federated_sum(tff.federated_map(endless, x))

    async def run():
      task = asyncio.create_task(wait([1.0]))
      await asyncio.sleep(0.5)
      started.set()
      task.cancel()
      with self.assertRaises(asyncio.CancelledError):
        await task
      return await _sum([2.0])

    self.assertEqual(asyncio.run(run()), 2.0)
    self.assertTrue(started.is_set())

  def test_program_context_takes_it(self):
    native = tff.program.NativeFederatedContext(self._context)
    with tff.framework.get_context_stack().install(native):

      async def run():
        return await tff.program.materialize_value(_sum([1.0, 2.0]))

      self.assertEqual(asyncio.run(run()), 3.0)

  def test_two_of_them_merge_into_one(self):
    other = execution.create_async_in_process_context()
    self.addCleanup(other.close)
    merged = tff.framework.MergeableCompExecutionContext(
        async_contexts=[self._context, other],
        compiler_fn=tff.backends.native.compile_to_mergeable_comp_form,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )
    with tff.framework.get_context_stack().install(merged):
      self.assertEqual(_sum([1.0, 2.0, 4.0]), 7.0)

  def test_programs_of_tff_train_on_it(self):
    spec = (
        tf.TensorSpec([None, 2], tf.float32),
        tf.TensorSpec([None, 1], tf.float32),
    )

    def model_fn():
      layers = [
          tf.keras.layers.InputLayer((2,)),
          tf.keras.layers.Dense(1, kernel_initializer='zeros'),
      ]
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential(layers),
          loss=tf.keras.losses.MeanSquaredError(),
          input_spec=spec,
      )

    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
    )
    metrics = tff.program.MemoryReleaseManager()
    native = tff.program.NativeFederatedContext(self._context)
    with tff.framework.get_context_stack().install(native):
      asyncio.run(
          tff.learning.programs.train_model(
              train_process=process,
              train_data_source=_TwoPoints(),
              train_per_round_clients=2,
              train_total_rounds=3,
              program_state_manager=tff.program.FileProgramStateManager(
                  self.create_tempdir().full_path
              ),
              model_output_manager=tff.program.MemoryReleaseManager(),
              train_metrics_manager=metrics,
              evaluation_manager=None,
              evaluation_periodicity=1,
          )
      )
    losses = [
        released['model_metrics']['loss']
        for released in metrics.values().values()
    ]
    self.assertLen(losses, 3)
    self.assertEqual(sorted(losses, reverse=True), losses)
    self.assertLess(losses[-1], losses[0])


if __name__ == '__main__':
  absltest.main()
