# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Every context gives the same results: native, TFF's test context and ours.

TFF's test context is the reference. It is the native one with plain bodies in
place of secure sums, so it runs every case. Where TFF's worker does not run, two
workers are compared with one, and one with the results that were found by hand.
The clients of two workers work at once wherever they can, those of one never.
"""

import functools
import gc
import subprocess
import threading

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution import conformance_datasets
from tests.execution import conformance_intrinsics
from tests.execution import conformance_processes
from tests.execution import conformance_tensorflow
from tests.execution import conformance_values
from tff_dp import _compat
from tff_dp import execution
from tff_dp.execution import errors

_CASES = {
    **conformance_intrinsics.CASES,
    **conformance_values.CASES,
    **conformance_tensorflow.CASES,
    **conformance_processes.CASES,
    **conformance_datasets.CASES,
}
# More workers add floats up in another order.
_WORKERS_TOLERANCE = 1e-6
# A race that one context in four loses stays unseen in all, on both stacks, with
# a probability of one in a million.
_NUM_FRESH_CONTEXTS = 24

_COUNT = tff.federated_computation(
    tff.federated_sum, tff.FederatedType(np.int32, tff.CLIENTS)
)

_contexts = {}
_reference_worker = None


def _start_reference():
  """Returns TFF's test context and its worker, kept away from our output."""
  started = []
  popen = subprocess.Popen

  def start_quietly(command, **_):
    started.append(
        popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    )
    return started[0]

  context = tff.backends.test.create_sync_test_cpp_execution_context()
  with absltest.mock.patch.object(subprocess, 'Popen', start_quietly):
    with tff.framework.get_context_stack().install(context):
      tff.tensorflow.computation(lambda: 1)()
  return context, started[0]


def setUpModule():
  global _reference_worker
  if _compat.COLUMN.has_worker:
    _contexts['test'], _reference_worker = _start_reference()
    _contexts['native'] = execution.create_native_context()
  _contexts['in_process'] = execution.create_sync_in_process_context(
      max_concurrent_clients=1
  )
  _contexts['two_workers'] = execution.create_sync_in_process_context(
      max_concurrent_clients=2
  )
  _contexts.setdefault('test', _contexts['in_process'])


def tearDownModule():
  for name in ('native', 'in_process', 'two_workers'):
    if name in _contexts:
      _contexts[name].close()
  _contexts.clear()
  # TensorFlow's functions complain if they outlive its modules.
  _built.cache_clear()
  _reference.cache_clear()
  if _reference_worker is not None:
    # TFF ends its worker when the context is collected, and only then.
    gc.collect()
    if _reference_worker.poll() is None:
      _reference_worker.kill()
      _reference_worker.wait()


@functools.cache
def _built(name: str):
  return _CASES[name].build()


def _run(context_name: str, case_name: str):
  stack = tff.framework.get_context_stack()
  with stack.install(_contexts[context_name]):
    # TFF computes some constants while it builds a process, so in here.
    function, *arguments = _built(case_name)
    return function(*arguments)


@functools.cache
def _reference(case_name: str):
  expected = _CASES[case_name].expected
  if expected is not None:
    return expected()
  return _run('test', case_name)


def _named(select):
  return [(name, name) for name, case in _CASES.items() if select(case)]


class ConformanceTest(parameterized.TestCase):

  def _check(self, context_name: str, case_name: str):
    case = _CASES[case_name]
    if case.raises is not None:
      for name in ('test', context_name):
        with self.assertRaises(Exception) as raised:
          _run(name, case_name)
        # The message does not quote TensorFlow, which may quote data.
        said = str(raised.exception)
        if isinstance(raised.exception, errors.ComputationError):
          said = raised.exception.details
        self.assertRegex(said, case.raises)
      return
    expected = _reference(case_name)
    actual = _run(context_name, case_name)
    if case.is_random:
      found = conformance.differences_in_distribution(expected, actual)
    else:
      tolerance = case.tolerance
      if context_name == 'two_workers':
        tolerance = max(tolerance, _WORKERS_TOLERANCE)
      found = conformance.differences(expected, actual, tolerance=tolerance)
    self.assertEmpty(found)

  @parameterized.named_parameters(
      _named(lambda case: case.native and case.expected is None)
  )
  # Of the reference, this is the same worker in another context of TFF's.
  @pytest.mark.slow(
      but=[
          'aggregate_datasets',
          'aggregate_two_sums',
          'assertion_inside',
          'dataset_with_two_uses',
          'mean_of_structures',
          'min_and_max',
          'nested_containers',
          'sampled',
          'select_rows',
          'table',
          'variables',
          'weighted_mean',
          'zero_clients',
      ]
  )
  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_native(self, name):
    self._check('native', name)

  # Workers differ only in how they aggregate. Of two workers, one has several
  # clients, too.
  @parameterized.named_parameters(_named(lambda case: True))
  @pytest.mark.slow(
      cases=[
          'dp_ftrl',
          'secure_aggregator',
          'weighted_fed_avg',
          *conformance_datasets.CASES,
          *conformance_tensorflow.CASES,
          *conformance_values.CASES,
      ]
  )
  def test_one_worker(self, name):
    self._check('in_process', name)

  @parameterized.named_parameters(_named(lambda case: True))
  @pytest.mark.slow(cases=['fed_eval', 'secure_aggregator', 'weighted_fed_avg'])
  def test_two_workers(self, name):
    context = _contexts['two_workers']
    before = context.num_clients_by_path['at_once']
    with conformance.at_once():
      self._check('two_workers', name)
    after = context.num_clients_by_path['at_once']
    self.assertEqual(after - before, _CASES[name].at_once)

  def test_tables_do_not_shadow_each_other(self):
    tables = (
        conformance_intrinsics.CASES,
        conformance_values.CASES,
        conformance_tensorflow.CASES,
        conformance_processes.CASES,
        conformance_datasets.CASES,
    )
    self.assertLen(_CASES, sum(map(len, tables)))
    self.assertGreater(len(_CASES), 60)

  def test_contexts_have_the_workers_they_should(self):
    self.assertEqual(_contexts['in_process'].num_workers, 1)
    self.assertEqual(_contexts['two_workers'].num_workers, 2)

  def test_threads_share_a_context_that_each_installs(self):
    # TFF's stack of contexts belongs to a thread; a context does not.
    found = {}

    def work(num_clients):
      stack = tff.framework.get_context_stack()
      for _ in range(5):
        with stack.install(_contexts['two_workers']):
          result = _COUNT(list(range(num_clients)))
        found.setdefault(num_clients, set()).add(int(result))

    threads = [
        threading.Thread(target=work, args=(num_clients,))
        for num_clients in (1, 2, 5, 9)
    ]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    self.assertEqual(found, {1: {0}, 2: {1}, 5: {10}, 9: {36}})


class FreshContextsTest(absltest.TestCase):

  def test_the_first_call_finds_its_variables(self):
    # It did not in one context of four while a variable raced with its
    # initializer: "Could not find variable", or another client's value.
    floats = tff.SequenceType(np.float32)

    @tff.tensorflow.computation(floats)
    def work(data):
      total = tf.Variable(2.0)
      numbers = data.batch(10).get_single_element()

      @tf.function
      def add(numbers):
        total.assign(total + tf.reduce_sum(numbers))
        return total.read_value()

      return add(numbers)

    @tff.federated_computation(tff.FederatedType(floats, tff.CLIENTS))
    def summed(clients):
      return tff.federated_sum(tff.federated_map(work, clients))

    stack = tff.framework.get_context_stack()
    # One client has a session of its own, more are in a loop.
    for num_clients in (1, 10) * (_NUM_FRESH_CONTEXTS // 2):
      with execution.create_sync_in_process_context() as context:
        with stack.install(context):
          self.assertEqual(
              summed([[1.0, 2.0]] * num_clients), 5 * num_clients
          )


class DifferencesTest(parameterized.TestCase):
  """The comparison itself: what it must not let pass."""

  @parameterized.named_parameters(
      ('last_bit', np.float32(1), np.nextafter(np.float32(1), np.float32(2))),
      ('negative_zero', np.float32(0), np.float32(-0.0)),
      ('dtype', np.float32(1), np.float64(1)),
      ('array_for_scalar', np.int32(1), np.array(1, np.int32)),
      ('shape', np.zeros([0, 2]), np.zeros([0, 3])),
      ('tuple_for_list', [1], (1,)),
      ('number_of_clients', [1, 1], [1]),
      ('key', {'a': 1}, {'b': 1}),
      ('order_of_keys', {'a': 1, 'b': 1}, {'b': 1, 'a': 1}),
      ('string_for_bytes', b'a', 'a'),
      ('string', b'a', b'b'),
      ('words', np.array([b'a'], object), np.array([b'b'], object)),
      (
          'element_of_dataset',
          conformance.dataset([1, 2]),
          conformance.dataset([1, 3]),
      ),
      (
          'length_of_dataset',
          conformance.dataset([1, 2]),
          conformance.dataset([1]),
      ),
      ('list_for_dataset', conformance.dataset([1]), [np.int32(1)]),
  )
  def test_finds(self, expected, actual):
    self.assertEmpty(conformance.differences(expected, expected, tolerance=0))
    self.assertNotEmpty(conformance.differences(expected, actual, tolerance=0))

  def test_tolerance_is_for_floats_only(self):
    def differs(expected, actual):
      return conformance.differences(expected, actual, tolerance=1e-6) != []

    self.assertFalse(differs(np.float32(1), np.float32(1 + 1e-7)))
    self.assertTrue(differs(np.float32(1), np.float32(1 + 1e-5)))
    self.assertTrue(differs(np.int64(10**9), np.int64(10**9 + 1)))
    self.assertTrue(differs(np.float32(np.nan), np.float32(0)))

  def test_distribution(self):
    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(2, 2000))
    differs = conformance.differences_in_distribution
    self.assertEmpty(differs([one], [other]))
    self.assertNotEmpty(differs([one], [one]))
    self.assertNotEmpty(differs([one], [other + 0.3]))


if __name__ == '__main__':
  absltest.main()
