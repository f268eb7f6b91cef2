# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures rounds on a cluster of two workers against those in process.

  python -m benchmarks.cluster dask --clients 10

Prints medians of the rounds after the first, what travels in a round, and how
long a round takes in which a worker is killed. Times mean something on a quiet
machine only; bytes do not depend on it.
"""

import argparse
import contextlib
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
from tff_dp.execution.cluster import engine
from tff_dp.execution.cluster import ray_engine

_ENGINES = {
    'dask': dask_engine.DaskEngine,
    'local': engine.LocalEngine,
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


def _seconds(context, process, state, clients) -> float:
  start = time.perf_counter()
  with tff.framework.get_context_stack().install(context):
    process.next(state, clients)
  return time.perf_counter() - start


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
  parser.add_argument('--rounds', type=int, default=11)
  parser.add_argument('--shards', type=int, default=_NUM_WORKERS)
  args = parser.parse_args()
  ids = [str(number) for number in range(args.clients)]
  data = [load(client_id) for client_id in ids]
  folder = pathlib.Path(tempfile.mkdtemp(prefix='cluster'))
  os.environ[_PIDS] = os.fspath(folder)
  engine = _ENGINES[args.engine](num_workers=_NUM_WORKERS)
  with contextlib.closing(
      execution.create_sync_in_process_context(
          max_concurrent_clients=_NUM_WORKERS
      )
  ) as alone, contextlib.closing(
      cluster.create_cluster_context(
          engine, num_shards=args.shards, load_clients='benchmarks.cluster:load'
      )
  ) as context:
    with tff.framework.get_context_stack().install(alone):
      process = _process()
      state = process.initialize()
    for name, where, clients in (
        ('in process', alone, data),
        (args.engine, context, ids),
    ):
      first = _seconds(where, process, state, clients)
      print(f'{name}: first round {first:.2f} s', flush=True)
    waited = _timed_runs(context.shards)
    before = context.shards.num_bytes_sent, context.shards.num_bytes_received
    # In turns, as the machine may have other work now and then.
    rounds = [
        (
            _seconds(alone, process, state, data),
            _seconds(context, process, state, ids),
        )
        for _ in range(args.rounds)
    ]
    sent = context.shards.num_bytes_sent - before[0]
    received = context.shards.num_bytes_received - before[1]
    medians = [statistics.median(column) for column in zip(*rounds)]
    ratio = statistics.median(there / here for here, there in rounds)
    outside = medians[1] - statistics.median(waited)
    print(f'in process {medians[0]:.3f} s, {args.engine} {medians[1]:.3f} s')
    print(f'ratio, median of {args.rounds} pairs of rounds: {ratio:.2f}')
    print(f'of a round, without any shard at work: {outside:.3f} s')
    print(f'bytes a round: {sent / args.rounds:,.0f} to the engine,')
    print(f'  {received / args.rounds:,.0f} from {args.shards} shards')
    if args.engine != 'local':
      pid = min(int(file.name) for file in folder.iterdir())
      killer = threading.Timer(medians[1] / 3, os.kill, (pid, signal.SIGKILL))
      killer.start()
      killed = _seconds(context, process, state, ids)
      killer.join()
      print(f'a round in which a worker is killed: {killed:.2f} s')
      print(f'  shards given away again by us: {context.shards.num_lost}')
  shutil.rmtree(folder)


if __name__ == '__main__':
  main()
