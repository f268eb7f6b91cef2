# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Two workers of Ray and of Dask: the same results, also when one is killed.

Needs the engines, which are no part of the other environments: `make
test-cluster`.
"""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tensorflow_federated as tff

from tests.execution import conformance
from tests.execution import conformance_test
from tests.execution.cluster import lists
from tests.oracle import poisoned
from tff_dp import execution
from tff_dp.execution import cluster
from tff_dp.execution.cluster import dask_engine
from tff_dp.execution.cluster import ray_engine

_ENGINES = {
    'dask': (dask_engine.DaskEngine, 'distributed'),
    'ray': (ray_engine.RayEngine, 'ray'),
}
_ROOT = pathlib.Path(__file__).parents[3]
_IDS = [f'client_{i}' for i in range(10)]
_LOAD = 'tests.execution.cluster.lists:load_when_allowed'
# Not a speed but the end of waiting.
_SECONDS = 120
# What a list of a client's elements cannot stand for: datasets that are another
# one whenever they are read.
_DATASETS_ONLY = frozenset((
    'concatenated',
    'dataset_in_a_struct',
    'dataset_of_a_later_pass',
    'dataset_with_two_uses',
    'generator_of_random_numbers',
    'random_anew',
    'rebatched',
    'sampled_anew',
    'shuffle',
    'shuffle_and_repeat',
    'shuffle_below',
    'shuffle_of_cache',
    'table',
    'variable',
    'within_flat_map',
))

pytestmark = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for _, name in _ENGINES.values()),
    reason='Ray and Dask are not here: make test-cluster',
)


def _in_process():
  """Returns a context with four workers, the process, and what it trains."""
  context = execution.create_sync_in_process_context(max_concurrent_clients=4)
  with tff.framework.get_context_stack().install(context):
    process = lists.build_process()
    clients = [lists.load(i) for i in _IDS]
    return context, process, lists.train(process, clients)


@contextlib.contextmanager
def _while_held(folder: pathlib.Path, client: str, do):
  """Does something to the process that loads a client; yields what it did."""
  held, holding = folder / f'held_{client}', folder / f'hold_{client}'
  holding.touch()
  done = []

  def wait():
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
      if held.exists() and (pid := held.read_text()):
        holding.unlink()
        do(int(pid))
        done.append(int(pid))
        return
      time.sleep(0.02)

  waiter = threading.Thread(target=wait)
  waiter.start()
  yield done
  waiter.join()


class _EngineTest:
  """What every engine must do; a class of its own starts each engine once."""

  name = ''

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls._folder = pathlib.Path(tempfile.mkdtemp(prefix=cls.name))
    cls.addClassCleanup(shutil.rmtree, cls._folder)
    os.environ[lists.FOLDER] = os.fspath(cls._folder)
    cls._in_process, cls._process, cls._expected = _in_process()
    cls._engine = _ENGINES[cls.name][0](num_workers=2)
    # More shards than workers.
    cls._context = cluster.create_cluster_context(
        cls._engine, num_shards=4, load_clients=_LOAD
    )

  @classmethod
  def tearDownClass(cls):
    cls._context.close()
    cls._in_process.close()
    super().tearDownClass()

  def _train(self):
    with tff.framework.get_context_stack().install(self._context):
      return lists.train(self._process, _IDS)

  def _assert_same_bits(self, found):
    self.assertEmpty(
        conformance.differences(self._expected, found, tolerance=0)
    )

  def test_conformance(self):
    sharded = lists.ListsContext(self._context)
    stack = tff.framework.get_context_stack()
    for name, case in conformance_test._CASES.items():  # pylint: disable=protected-access
      if name in _DATASETS_ONLY:
        continue
      with self.subTest(name):
        with stack.install(self._in_process):
          function, *arguments = case.build()
        if case.raises is not None:
          with self.assertRaises(Exception) as raised:
            with stack.install(sharded):
              function(*arguments)
          said = getattr(raised.exception, 'details', str(raised.exception))
          self.assertRegex(said, case.raises)
          continue
        with stack.install(self._in_process):
          expected = function(*arguments)
        with stack.install(sharded):
          actual = function(*arguments)
        if case.is_random:
          found = conformance.differences_in_distribution(expected, actual)
        else:
          found = conformance.differences(expected, actual, tolerance=1e-6)
        self.assertEmpty(found)

  def test_poisoned_neighbours(self):
    for case in poisoned.FEW_CASES:
      with self.subTest(case.name):
        with tff.framework.get_context_stack().install(self._context):
          found = case.run()
        self.assertEqual(sum(found.values()), 0)

  def test_same_bits_with_more_shards_than_workers(self):
    # The one that another test killed may not be back.
    deadline = time.monotonic() + _SECONDS
    while self._context.num_workers < 2 and time.monotonic() < deadline:
      time.sleep(0.1)
    self.assertEqual(self._context.num_workers, 2)
    self._assert_same_bits(self._train())

  def test_kill_of_a_worker(self):
    before = dict(self._context.num_clients_by_path)
    with _while_held(
        self._folder, 'client_5', lambda pid: os.kill(pid, signal.SIGKILL)
    ) as killed:
      found = self._train()
    self.assertLen(killed, 1)
    # Weights, state of the noise and metrics, which count the examples.
    self._assert_same_bits(found)
    now = self._context.num_clients_by_path
    self.assertEqual(
        sum(now.values()) - sum(before.values()), 2 * len(_IDS)
    )

  def test_a_client_that_fails_is_an_error_at_once(self):
    lost = self._context.shards.num_lost
    with tff.framework.get_context_stack().install(self._context):
      state = self._process.initialize()
      with self.assertRaises(execution.ClientComputationError) as raised:
        self._process.next(state, [*_IDS[:3], 'no_3', 'no_4'])
    self.assertEqual(raised.exception.client_index, 3)
    self.assertEqual(self._context.shards.num_lost, lost)

  def test_what_doctor_asks(self):
    found = self._context.describe_workers()
    self.assertNotEmpty(found)
    for answer in found.values():
      self.assertIn('CPU:0', answer['device'])
      self.assertEqual(
          cluster.context.worker.differences(
              cluster.context.worker.versions(), answer['versions']
          ),
          '',
      )

  def test_interrupt_ends_soon_and_leaves_no_process(self):
    folder = pathlib.Path(self.create_tempdir().full_path)
    child = subprocess.Popen(
        [
            sys.executable,
            '-m',
            'tests.execution.cluster.interrupt_run',
            self.name,
        ],
        cwd=_ROOT,
        env={**os.environ, lists.FOLDER: os.fspath(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    (folder / 'hold_client_1').touch()
    held = folder / 'held_client_1'
    deadline = time.monotonic() + _SECONDS
    while not held.exists() and time.monotonic() < deadline:
      time.sleep(0.05)
    time.sleep(0.2)
    worker_pid = int(held.read_text())
    child.send_signal(signal.SIGINT)
    start = time.monotonic()
    output, _ = child.communicate(timeout=_SECONDS)
    print(f'{self.name}: ended {time.monotonic() - start:.1f} s after Ctrl-C')
    self.assertIn('interrupted', output)
    while _is_alive(worker_pid) and time.monotonic() < deadline:
      time.sleep(0.05)
    self.assertFalse(_is_alive(worker_pid))


def _is_alive(pid: int) -> bool:
  try:
    state = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]
  except OSError:
    return False
  return state.split()[0] != 'Z'


class DaskTest(_EngineTest, parameterized.TestCase):
  name = 'dask'

  def test_a_worker_that_joins_late_is_used(self):
    engine = dask_engine.DaskEngine(num_workers=1)
    with cluster.create_cluster_context(
        engine, num_shards=4, load_clients=_LOAD
    ) as context:
      self._assert_same_bits(lists.train(self._process, _IDS))
      self.assertEqual(context.num_workers, 1)
      engine._cluster.scale(2)  # pylint: disable=protected-access
      engine._client.wait_for_workers(2)  # pylint: disable=protected-access
      self._assert_same_bits(lists.train(self._process, _IDS))
      self.assertEqual(context.num_workers, 2)
      done = engine.on_every_worker(lists.num_loaded)
    self.assertLen(done, 2)
    self.assertTrue(all(done.values()), done)


class RayTest(_EngineTest, parameterized.TestCase):
  name = 'ray'


class RayNodeTest(absltest.TestCase):

  def test_a_node_is_lost_and_another_joins(self):
    import ray.cluster_utils  # pylint: disable=g-import-not-at-top

    folder = pathlib.Path(self.create_tempdir().full_path)
    os.environ[lists.FOLDER] = os.fspath(folder)
    in_process, process, expected = _in_process()
    self.addCleanup(in_process.close)
    size = {'object_store_memory': 2**27}
    machines = ray.cluster_utils.Cluster(
        initialize_head=True, head_node_args={'num_cpus': 0, **size}
    )
    self.addCleanup(machines.shutdown)
    nodes = [machines.add_node(num_cpus=1, **size) for _ in range(2)]
    machines.wait_for_nodes()
    engine = ray_engine.RayEngine(machines.address)

    def lose(worker_pid):
      status = pathlib.Path(f'/proc/{worker_pid}/stat').read_text()
      parent = int(status.rpartition(')')[2].split()[1])
      for node in nodes:
        (raylet,) = node.all_processes['raylet']
        if raylet.process.pid == parent:
          machines.remove_node(node, allow_graceful=False)
          return
      raise AssertionError(f'{worker_pid} is of no node')

    with cluster.create_cluster_context(
        engine, num_shards=4, load_clients=_LOAD
    ) as context:
      self.assertEqual(context.num_workers, 2)
      with _while_held(folder, 'client_5', lose) as lost:
        found = lists.train(process, _IDS)
      self.assertLen(lost, 1)
      self.assertGreater(context.shards.num_lost, 0)
      again = lists.train(process, _IDS)
      # Another machine joins.
      machines.add_node(num_cpus=1, **size)
      machines.wait_for_nodes()
      late = lists.train(process, _IDS)
      self.assertEqual(context.num_workers, 2)
    for result in (found, again, late):
      self.assertEmpty(conformance.differences(expected, result, tolerance=0))


if __name__ == '__main__':
  absltest.main()
