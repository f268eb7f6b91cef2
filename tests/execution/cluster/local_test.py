# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Passes in shards, on threads that stand in for a cluster.

Ray and Dask themselves are in `engines_test`.
"""

import concurrent.futures
import functools
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution import conformance_intrinsics
from tests.execution import conformance_processes
from tests.execution import conformance_tensorflow
from tests.execution.cluster import lists
from tests.oracle import poisoned
from tff_dp import _checks
from tff_dp import execution
from tff_dp.execution import cluster
from tff_dp.execution.cluster import context as context_lib
from tff_dp.execution.cluster import engine as engine_lib
from tff_dp.program import training
from tff_dp.statement import declarations

# The rest of the conformance suite runs with the real engines.
_CASES = {
    **conformance_intrinsics.CASES,
    # The process below has correlated noise.
    'reservoir_sample_of_everybody': (
        conformance_processes.CASES['reservoir_sample_of_everybody']
    ),
    **{
        name: case
        for name, case in conformance_tensorflow.CASES.items()
        if name.startswith('variable')
    },
}
_CLIENTS = [lists.load(f'client_{i}') for i in range(7)]
_IDS = [f'client_{i}' for i in range(7)]
_LOAD = 'tests.execution.cluster.lists:load'


class _Recording(engine_lib.LocalEngine):
  """Keeps the arguments of every task."""

  def __init__(self, num_workers: int = 2):
    super().__init__(num_workers)
    self.sent = []

  def submit(self, function, reference, data):
    self.sent += [reference, data]
    return super().submit(function, reference, data)


class _Lossy(engine_lib.LocalEngine):
  """Says of the first tasks that their workers are lost; they go on anyway.

  Attributes:
    late: The results that come when nobody waits for them any more.
  """

  def __init__(self, num_lost: int):
    super().__init__(2)
    self._num_lost = num_lost
    self.late = []

  def submit(self, function, reference, data):
    future = super().submit(function, reference, data)
    if not self._num_lost:
      return future
    self._num_lost -= 1
    self.late.append(future)
    lost = concurrent.futures.Future()
    lost.set_exception(engine_lib.WorkerLostError('on purpose'))
    return lost


def _with(context, function, *arguments):
  with tff.framework.get_context_stack().install(context):
    return function(*arguments)


def _cluster(engine=None, **settings):
  settings = {'num_shards': 2, **settings}
  return cluster.create_cluster_context(
      engine or engine_lib.LocalEngine(), **settings
  )


class ShardsTest(absltest.TestCase):
  """Which results count, without TFF."""

  def _run(self, engine, function, shards, **settings):
    runner = engine_lib.Shards(engine, **{'max_retries': 3, **settings})
    try:
      found = runner.run(
          function, b'shared', shards, is_cancelled=lambda: False
      )
    finally:
      engine.close()
    return runner, found

  def test_results_are_in_the_order_of_shards(self):
    first_may_end = threading.Event()

    def function(shared, shard):
      if shard == b'0':
        first_may_end.wait(60)
      if shard == b'4':
        first_may_end.set()
      return shared + shard

    shards = [b'%d' % i for i in range(5)]
    runner, found = self._run(engine_lib.LocalEngine(2), function, shards)
    self.assertEqual(found, [b'shared' + shard for shard in shards])
    self.assertEqual(runner.num_bytes_sent, 6 + 5)
    self.assertEqual(runner.num_bytes_received, 5 * 7)

  def test_a_late_twin_is_dropped(self):
    number = iter(range(100))
    engine = _Lossy(2)
    runner, found = self._run(
        engine,
        lambda shared, shard: shard + b' of task %d' % next(number),
        [b'a', b'b', b'c'],
    )
    self.assertEqual(runner.num_lost, 2)
    late = [future.result() for future in engine.late]
    self.assertLen(late, 2)
    self.assertEmpty(set(late) & set(found))
    self.assertEqual([result[:1] for result in found], [b'a', b'b', b'c'])

  def test_says_what_it_waits_for(self):
    may_end = threading.Event()

    heard = []

    def hear(message):
      heard.append(message)
      may_end.set()

    def function(shared, shard):
      if shard == b'1':
        may_end.wait(60)
      return shared

    engine = engine_lib.LocalEngine(2)
    self.addCleanup(engine.close)
    shards = engine_lib.Shards(engine, max_retries=0)
    shards.say = hear
    with absltest.mock.patch.object(engine_lib, '_REPORT_SECONDS', 0):
      shards.run(
          function, b'', [b'0', b'1', b'2'], is_cancelled=lambda: False
      )
    self.assertRegex(heard[0], r'waiting for shard .* of 3 on 2 workers')

  def test_a_future_has_what_its_task_ended_with(self):
    lost = LookupError('first line\nsecond line')
    failed = ValueError('not lost')
    for end, expected in (
        ({'return_value': b'found'}, b'found'),
        ({'side_effect': failed}, failed),
        ({'side_effect': lost}, 'LookupError: first line'),
    ):
      future, task = concurrent.futures.Future(), mock.Mock()
      task.result.configure_mock(**end)
      engine_lib.settle(future, task, (LookupError,))
      # Settled already: its shard was cancelled.
      engine_lib.settle(future, task, (LookupError,))
      error = future.exception()
      if isinstance(expected, str):
        self.assertIsInstance(error, engine_lib.WorkerLostError)
        self.assertEqual(str(error), expected)
      else:
        self.assertIs(error or future.result(), expected)

  def test_lost_too_often(self):
    with self.assertRaisesRegex(engine_lib.ClusterError, 'tried 3 times'):
      self._run(_Lossy(99), lambda shared, shard: shard, [b'a'], max_retries=2)

  def test_what_raises_is_not_tried_again(self):
    calls = []

    def function(shared, shard):
      del shared
      calls.append(shard)
      raise KeyError(shard)

    with self.assertRaises(KeyError):
      self._run(engine_lib.LocalEngine(), function, [b'a'])
    self.assertEqual(calls, [b'a'])


class ConformanceTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._in_process = execution.create_sync_in_process_context(
        max_concurrent_clients=2
    )
    cls._sharded = _cluster()

  @classmethod
  def tearDownClass(cls):
    cls._in_process.close()
    cls._sharded.close()
    super().tearDownClass()

  @parameterized.named_parameters((name, name) for name in _CASES)
  # One variable is enough: what a worker runs is what the context compiled.
  @pytest.mark.slow(
      cases=[
          name
          for name in _CASES
          if name.startswith('variable_')
          and name != 'variable_after_a_call_that_writes_it_late'
      ]
  )
  def test_case(self, name):
    case = _CASES[name]
    function, *arguments = _with(self._in_process, case.build)
    sharded = lists.ListsContext(self._sharded)
    if case.raises is not None:
      with self.assertRaises(Exception) as raised:
        _with(sharded, function, *arguments)
      said = getattr(raised.exception, 'details', str(raised.exception))
      self.assertRegex(said, case.raises)
      return
    expected = _with(self._in_process, function, *arguments)
    actual = _with(sharded, function, *arguments)
    if case.is_random:
      found = conformance.differences_in_distribution(expected, actual)
    else:
      # As many shards as workers: the same bits.
      found = conformance.differences(expected, actual, tolerance=0)
    self.assertEmpty(found)

  @parameterized.named_parameters(
      (case.name, case) for case in poisoned.FEW_CASES
  )
  @pytest.mark.slow(
      cases=[
          'convolution',
          'embedding',
          'functional',
          'functional_recurrent',
          'normalization',
          'recurrent',
          'text',
      ]
  )
  def test_poisoned_neighbours(self, case):
    before = sum(self._sharded.num_clients_by_path.values())
    found = _with(self._sharded, case.run)
    self.assertEqual(sum(found.values()), 0)
    # All have worked, those of both cohorts.
    num_clients = sum(self._sharded.num_clients_by_path.values()) - before
    self.assertGreaterEqual(num_clients, 2 * poisoned.NUM_CLIENTS)


class ClusterContextTest(parameterized.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    context = execution.create_sync_in_process_context(
        max_concurrent_clients=3
    )
    with context:
      cls._process = lists.build_process()
      cls._expected = lists.train(cls._process, _CLIENTS)

  def _assert_same_bits(self, found):
    self.assertEmpty(
        conformance.differences(self._expected, found, tolerance=0)
    )

  @parameterized.parameters(1, 5)
  def test_same_bits_on_any_number_of_workers(self, num_workers):
    engine = engine_lib.LocalEngine(num_workers)
    with _cluster(engine, num_shards=3) as context:
      self._assert_same_bits(lists.train(self._process, _CLIENTS))
      self.assertEqual(context.num_workers, num_workers)
      self.assertEqual(context.num_clients_by_path['in_chunks'], 2 * 7)

  @parameterized.parameters('load', 'load_dataset')
  def test_ids_are_loaded_at_the_worker(self, name):
    engine = _Recording()
    load = f'tests.execution.cluster.lists:{name}'
    with _cluster(engine, num_shards=3, load_clients=load):
      self._assert_same_bits(lists.train(self._process, _IDS))
    row = _CLIENTS[0][0]['x'].tobytes()
    self.assertFalse(any(row in data for data in engine.sent))
    self.assertTrue(any(b'client_0' in data for data in engine.sent))

  def test_lost_workers_leave_the_same_bits_and_counts(self):
    with _cluster(_Lossy(3), num_shards=3) as context:
      self._assert_same_bits(lists.train(self._process, _CLIENTS))
      self.assertEqual(context.shards.num_lost, 3)
      self.assertEqual(context.num_clients_by_path['in_chunks'], 2 * 7)

  def test_no_task_has_the_key_or_the_noise(self):
    engine = _Recording()
    secrets = set()
    with _cluster(engine, num_shards=3):
      state = self._process.initialize()
      for _ in range(3):
        secrets |= _secrets(state.aggregator)
        weights = state.global_model_weights.trainable[0].tobytes()
        state = self._process.next(state, _CLIENTS).state
    self.assertGreater(len(secrets), 4)
    for data in engine.sent:
      for secret in secrets:
        self.assertNotIn(secret, data)
    # The weights of the last round are there, so the search can find things.
    self.assertTrue(any(weights in data for data in engine.sent))

  def test_a_dataset_is_refused_with_advice(self):
    dataset = lists.load_dataset('client_0')
    with _cluster():
      state = self._process.initialize()
      with self.assertRaisesRegex(TypeError, 'load_clients='):
        self._process.next(state, [dataset])

  def test_a_client_that_fails_is_named_and_not_tried_again(self):
    engine = _Recording()
    with _cluster(engine, num_shards=2, load_clients=_LOAD):
      state = self._process.initialize()
      with self.assertRaises(execution.ClientComputationError) as raised:
        self._process.next(state, ['client_0', 'client_1', 'no_2', 'no_3'])
    self.assertEqual(raised.exception.client_index, 2)
    self.assertEqual(raised.exception.num_clients, 4)
    self.assertEqual(raised.exception.kind, 'FileNotFoundError')
    self.assertEqual(len(engine.sent), 2 * 2)

  def test_other_versions_take_no_part(self):
    with absltest.mock.patch.object(
        cluster.context.worker,
        'versions',
        side_effect=[{'Python': '3.11'}, {'Python': '2.7'}] * 9,
    ):
      with _cluster(num_shards=1, max_clients_per_call=3):
        state = self._process.initialize()
        with self.assertRaisesRegex(RuntimeError, 'Python 2.7 at the worker'):
          self._process.next(state, _CLIENTS)

  def test_the_statement_names_what_lies_in_the_cluster(self):
    declared = declarations.Declarations(not_covered='the weather')
    cohorts = absltest.mock.Mock(num_clients=None)
    complete = functools.partial(training._completed, declared, cohorts)  # pylint: disable=protected-access
    with execution.create_sync_in_process_context():
      self.assertIs(complete(), declared)
    with _cluster():
      found = complete()
    self.assertRegex(
        found.not_covered, 'the weather; .*object store.*spilled.*TLS'
    )

  def test_no_clients_at_all(self):
    count = tff.federated_computation(
        tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS)
    )
    with _cluster():
      self.assertEqual(count([]), 0)
      self.assertEqual(count([1]), 1)

  @parameterized.parameters(
      (dict(num_shards=0), 'num_shards=0'),
      (dict(load_clients='module'), 'load_clients='),
      (dict(max_retries=-1), 'max_retries=-1'),
      (dict(address='tcp://host:1'), 'address='),
      (dict(engine='spark'), 'engine='),
  )
  def test_bad_values(self, settings, message):
    settings = {'engine': engine_lib.LocalEngine(), 'num_shards': 1, **settings}
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      cluster.create_cluster_context(**settings)

  @parameterized.parameters(
      dict(num_shards=0),
      dict(max_retries=-1),
      dict(default_num_clients=-1),
      dict(max_clients_per_call=0),
      dict(load_clients='module'),
  )
  def test_bad_values_start_no_cluster(self, **settings):
    engine = mock.Mock()
    with mock.patch.dict(context_lib._ENGINES, dask=engine):
      with self.assertRaises(_checks.ArgumentError):
        cluster.create_cluster_context('dask', **{'num_shards': 1, **settings})
    engine.assert_not_called()


def _secrets(aggregator) -> set[bytes]:
  """Returns what of a state must not travel, as bytes: the key and the noise.

  The key comes in halves. Counters, which could be anywhere, are left out.
  """
  arrays = [np.asarray(part) for part in tf.nest.flatten(aggregator)]
  found = [array.tobytes() for array in arrays if array.nbytes >= 12]
  for half in [array for array in arrays if array.shape == (2,)]:
    found += [half[:1].tobytes(), half[1:].tobytes()]
  return {data for data in found if any(data)}


if __name__ == '__main__':
  absltest.main()
