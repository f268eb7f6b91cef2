# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Defaults and threads: every thread has a context of its own, or none."""

import concurrent.futures
import gc
import threading
import warnings

from absl.testing import absltest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _compat
from tff_dp import execution
from tff_dp.execution import contexts
from tff_dp.execution import errors
from tff_dp.execution import in_process


@tff.tensorflow.computation(np.float32)
def _slow_square(x):
  # Long enough for calls of several threads to meet.
  return tf.while_loop(
      lambda i, _: i < 2000, lambda i, y: (i + 1, y), (0, x * x)
  )[1]


@tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
def _squares(values):
  return tff.federated_sum(tff.federated_map(_slow_square, values))


class _OtherContext(tff.framework.SyncContext):
  """A context that is not ours."""

  def invoke(self, comp, arg):
    raise NotImplementedError


def _in_thread(function, *args):
  """Returns what a function returns, or raises, in a thread that then ends."""
  try:
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
      return executor.submit(function, *args).result()
  finally:
    for thread in _threads_of('tff_dp_close'):
      thread.join()


def _threads_of(name: str) -> list[threading.Thread]:
  return [t for t in threading.enumerate() if t.name.startswith(name)]


def _current():
  return tff.framework.get_context_stack().current


class DefaultContextTest(absltest.TestCase):

  def test_says_once_that_somebody_else_has_replaced_it(self):
    def work():
      found = []
      with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        # Nobody's: who has no context of ours hears nothing.
        tff.framework.set_default_context(_OtherContext())
        execution.set_default_context(max_concurrent_clients=1)
        execution.set_default_context(max_concurrent_clients=1)
        found.append(len(caught))
        for _ in range(2):
          tff.framework.set_default_context(_OtherContext())
          found.append([str(item.message) for item in caught])
          execution.set_default_context(max_concurrent_clients=1)
        # Not that there is to be none, as at the end of the interpreter.
        none = _compat.private_tff('no_context').RuntimeErrorContext()
        tff.framework.set_default_context(none)
        found.append(len(caught))
      return found

    none, first, second, at_the_end = _in_thread(work)
    self.assertEqual(none, 0)
    self.assertEqual(at_the_end, 1)
    self.assertLen(first, 1)
    self.assertRegex(
        first[0], r'a _OtherContext has replaced .*\.set_default_context'
    )
    self.assertEqual(second, first)

  def test_threads_compute_side_by_side(self):
    num_threads, num_calls = 4, 5
    barrier = threading.Barrier(num_threads)

    def work(number):
      context = execution.set_default_context(max_concurrent_clients=2)
      results = []
      for call in range(num_calls):
        barrier.wait(timeout=60)
        results.append(float(_squares([float(number)] * (call + 1))))
      return context, results

    with concurrent.futures.ThreadPoolExecutor(num_threads) as executor:
      found = list(executor.map(work, range(num_threads)))
    self.assertLen({id(context) for context, _ in found}, num_threads)
    for number, (_, results) in enumerate(found):
      self.assertEqual(
          results, [number**2 * (call + 1) for call in range(num_calls)]
      )

  def test_default_of_another_thread_stays_open(self):
    mine = execution.set_default_context(max_concurrent_clients=1)
    self.addCleanup(mine.close)
    for kind in (
        execution.set_default_context,
        contexts.set_sync_in_process_context,
        lambda: contexts.install_default(
            execution.create_async_in_process_context()
        ),
    ):
      other = _in_thread(kind)
      self.assertIsNot(other, mine)
      self.assertIs(_current(), mine)
      self.assertEqual(_squares([2.0]), 4.0)

  def test_default_ends_with_its_thread(self):
    _in_thread(execution.set_default_context)
    gc.collect()
    before = threading.active_count()
    # Of this thread's own context, if another test has made one.
    others = _threads_of('tff_dp_worker')

    def work():
      first = execution.set_default_context(max_concurrent_clients=2)
      _squares([1.0, 2.0])
      second = execution.set_default_context(max_concurrent_clients=2)
      _squares([1.0, 2.0])
      workers = _threads_of('tff_dp_worker')
      return first, second, [each for each in workers if each not in others]

    for _ in range(5):
      *closed, workers = _in_thread(work)
      for context in closed:
        with tff.framework.get_context_stack().install(context):
          with self.assertRaises(errors.ContextClosedError):
            _squares([1.0])
      self.assertNotEmpty(workers)
      self.assertFalse(any(worker.is_alive() for worker in workers))
    self.assertEqual(threading.active_count(), before)

  def test_clients_per_call_are_those_of_the_context(self):
    def work(**arguments):
      context = execution.set_default_context(**arguments)
      result = float(_squares([1.0, 2.0, 3.0]))
      return result, dict(context.num_clients_by_path)

    default = _in_thread(work)
    self.assertEqual(default[0], 14.0)
    result, paths = _in_thread(lambda: work(max_clients_per_call=1))
    self.assertEqual(result, 14.0)
    self.assertNotEqual(paths, default[1])
    for bad in (
        dict(max_clients_per_call=0),
        dict(kind='native', max_clients_per_call=2),
    ):
      with self.assertRaisesRegex(ValueError, 'max_clients_per_call'):
        execution.set_default_context(**bad)

  def test_thread_without_context_is_told_what_to_do(self):
    def work():
      threading.current_thread().name = 'lonely'
      return _squares([1.0])

    with self.assertRaisesRegex(
        RuntimeError, "(?s)per thread.*'lonely' has none.*set_default_context"
    ):
      _in_thread(work)


class EnsureInstalledTest(absltest.TestCase):

  def test_installs_where_there_is_none_and_for_the_block_only(self):
    def work():
      before = _current()
      with contexts.ensure_installed():
        self.assertIsInstance(_current(), in_process.InProcessContext)
        inside, result = _current(), _squares([3.0])
      self.assertIs(_current(), before)
      return inside, result

    context, result = _in_thread(work)
    self.assertEqual(result, 9.0)
    with tff.framework.get_context_stack().install(context):
      with self.assertRaises(errors.ContextClosedError):
        _squares([1.0])

  def test_leaves_a_chosen_one_alone(self):
    with execution.create_sync_in_process_context() as context:
      with contexts.ensure_installed():
        self.assertIs(_current(), context)
      self.assertEqual(_squares([2.0]), 4.0)

  def test_asynchronous_one_is_refused(self):
    context = execution.create_async_in_process_context()
    self.addCleanup(context.close)
    for asynchronous in (
        context, tff.program.NativeFederatedContext(context)
    ):
      with tff.framework.get_context_stack().install(asynchronous):
        with self.assertRaisesRegex(
            RuntimeError, 'asynchronous.*create_sync_in_process_context'
        ):
          contexts.ensure_installed()


if __name__ == '__main__':
  absltest.main()
