# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures rounds on a cluster of two workers against those in process.

  python -m benchmarks.cluster dask --clients 10

Prints medians of the rounds after the first, what travels in a round, and how
long a round takes in which a worker is killed. Times mean something on a quiet
machine only; bytes do not depend on it.
"""

import argparse
import functools
import os
import pathlib
import shutil
import signal
import statistics
import tempfile
import threading
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks.emnist import emnist_models
from tff_dp import execution
from tff_dp.execution import cluster
from tff_dp.execution.cluster import dask_engine
from tff_dp.execution.cluster import ray_engine

_ENGINES = {
    'dask': dask_engine.DaskEngine,
    'local': cluster.LocalEngine,
    'ray': ray_engine.RayEngine,
}
_NUM_WORKERS = 2
_BATCHES, _BATCH_SIZE = 5, 20


# Environment variable: the folder where workers leave their process ids.
_PIDS = 'TFF_DP_BENCHMARK_PIDS'


def load(client_id: str) -> list[tuple[np.ndarray, np.ndarray]]:
  """Returns the batches of a made-up writer; workers call it."""
  if _PIDS in os.environ:
    (pathlib.Path(os.environ[_PIDS]) / str(os.getpid())).touch()
  return _batches(client_id)


@functools.lru_cache(maxsize=64)
def _batches(client_id: str) -> list[tuple[np.ndarray, np.ndarray]]:
  rng = np.random.default_rng(int(client_id))
  shape = (_BATCH_SIZE, 28, 28, 1)
  return [
      (
          rng.random(shape, np.float32),
          rng.integers(62, size=_BATCH_SIZE, dtype=np.int32),
      )
      for _ in range(_BATCHES)
  ]


def _process():
  spec = (
      tf.TensorSpec([None, 28, 28, 1], tf.float32),
      tf.TensorSpec([None], tf.int32),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
        emnist_models.build(emnist_models.CNN, 62, seed=1),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=spec,
    )

  return tff.learning.algorithms.build_unweighted_fed_avg(
      model_fn,
      tff.learning.optimizers.build_sgdm(0.01),
      loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR,
  )


def _seconds(process, state, clients, num_rounds: int) -> list[float]:
  found = []
  for _ in range(num_rounds):
    start = time.perf_counter()
    process.next(state, clients)
    found.append(time.perf_counter() - start)
  return found


def _timed_runs(shards) -> list[float]:
  """Returns a list that grows by the seconds of every pass over shards."""
  found, run = [], shards.run

  def timed(*args, **kwargs):
    start = time.perf_counter()
    try:
      return run(*args, **kwargs)
    finally:
      found.append(time.perf_counter() - start)

  shards.run = timed
  return found


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('engine', choices=_ENGINES)
  parser.add_argument('--clients', type=int, default=10)
  parser.add_argument('--rounds', type=int, default=5)
  parser.add_argument('--shards', type=int, default=_NUM_WORKERS)
  args = parser.parse_args()
  ids = [str(number) for number in range(args.clients)]
  data = [load(client_id) for client_id in ids]
  with execution.create_sync_in_process_context(
      max_concurrent_clients=_NUM_WORKERS
  ):
    process = _process()
    state = process.initialize()
    first, *rest = _seconds(process, state, data, args.rounds + 1)
  alone = statistics.median(rest)
  print(f'in process: first {first:.2f} s, then {alone:.3f} s', flush=True)
  folder = pathlib.Path(tempfile.mkdtemp(prefix='cluster'))
  os.environ[_PIDS] = os.fspath(folder)
  engine = _ENGINES[args.engine](num_workers=_NUM_WORKERS)
  with cluster.create_cluster_context(
      engine, num_shards=args.shards, load_clients='benchmarks.cluster:load'
  ) as context:
    (first,) = _seconds(process, state, ids, 1)
    waited = _timed_runs(context.shards)
    before = context.shards.num_bytes_sent, context.shards.num_bytes_received
    rest = _seconds(process, state, ids, args.rounds)
    sent = context.shards.num_bytes_sent - before[0]
    received = context.shards.num_bytes_received - before[1]
    median = statistics.median(rest)
    print(f'{args.engine}: first {first:.2f} s, then {median:.3f} s')
    print(f'ratio to in process: {median / alone:.2f}')
    alone = median - statistics.median(waited)
    print(f'of a round, without any shard at work: {alone:.3f} s')
    print(f'bytes a round: {sent / args.rounds:,.0f} to the engine,')
    print(f'  {received / args.rounds:,.0f} from {args.shards} shards')
    if args.engine != 'local':
      pid = min(int(file.name) for file in folder.iterdir())
      killer = threading.Timer(median / 3, os.kill, (pid, signal.SIGKILL))
      killer.start()
      (killed,) = _seconds(process, state, ids, 1)
      killer.join()
      print(f'a round in which a worker is killed: {killed:.2f} s')
      print(f'  shards given away again by us: {context.shards.num_lost}')
  shutil.rmtree(folder)


if __name__ == '__main__':
  main()
