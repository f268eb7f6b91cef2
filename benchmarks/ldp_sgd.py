# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures a round of LDP-SGD, and its parts written by hand.

  python -m benchmarks.ldp_sgd
  python -m benchmarks.ldp_sgd --clients 500 --rounds 1

Every client has one image and the 26,010-parameter network of `tasks.mnist`.
It sends a random direction and a sign. The client draws the direction from a
seed, and the server draws it again. So a round needs one gradient and two
directions a client. Both are timed by hand, without datasets and clipping, and
with one key for each direction. Rows take turns.
"""

import argparse
import collections
import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys
import time

import tff_dp  # noqa: F401 pylint: disable=unused-import
import numpy as np  # pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import round_graphs
from benchmarks import round_rows
from benchmarks import round_tasks
from tasks.mnist import mnist_model
from tasks.mnist import mnist_rows
from tasks.mnist import mnist_run
from tasks.mnist import mnist_sizes
from tff_dp import _checks
from tff_dp import execution
from tff_dp import streams

_SEED = 20260101
_POPULATION = 60_000
_GRADIENTS, _DIRECTIONS = 'gradients', 'directions'
_WITHOUT_NOISE, _LDP_SGD = 'non_private', 'ldp_sgd'
LABELS = {
    _GRADIENTS: 'by hand: gradients',
    _DIRECTIONS: 'by hand: two directions a client, added up',
    _WITHOUT_NOISE: 'tff_dp, clipping without noise',
    _LDP_SGD: 'tff_dp, LDP-SGD',
}


@dataclasses.dataclass(frozen=True)
class Cost:
  """Cost of a row.

  Attributes:
    cpu: CPU time of a client in milliseconds.
    seconds: Wall time of a round.
  """

  cpu: float
  seconds: float


class _Directions:
  """Draws two directions for each client in one graph, and adds them up."""

  def __init__(self, num_clients: int, num_params: int):
    key = streams.insecure_root_key(_SEED)

    @tf.function(autograph=False)
    def total():
      return tf.while_loop(
          lambda index, _: index < 2 * num_clients,
          lambda index, total: (
              index + 1,
              total
              + streams.directions(num_params, streams.fold_in(key, index)),
          ),
          (tf.constant(0), tf.zeros([num_params])),
          parallel_iterations=1,
      )[1]

    self.run_round = total


class _Process:
  """Rounds of a row of `tasks.mnist`."""

  def __init__(self, context, name: str, task: round_tasks.Task):
    row = mnist_rows.build(
        name,
        mnist_sizes.Sizes(
            num_clients=_POPULATION, bootstrap_clients=_POPULATION, scale=0.1
        ),
    )
    self._context = context
    self._process = mnist_run.build_process(
        row, mnist_model.Architecture.of_table_2(), seed=0
    )
    examples = [
        [collections.OrderedDict(x=x, y=y)] for x, y in task.clients()
    ]
    if name == _LDP_SGD:
      keys = np.random.default_rng(_SEED).integers(
          2**62, size=(len(examples), 1, 1, 2)
      )
      examples = [
          collections.OrderedDict(examples=own, key=list(key))
          for own, key in zip(examples, keys)
      ]
    self._clients = examples
    with self._installed():
      self._state = self._process.initialize()

  def _installed(self):
    return tff.framework.get_context_stack().install(self._context)

  def run_round(self) -> None:
    with self._installed():
      self._state = self._process.next(self._state, self._clients).state


def measure(num_clients: int, num_rounds: int) -> dict[str, Cost]:
  """Returns the cost of each row of `LABELS`.

  Args:
    num_clients: Clients of a round.
    num_rounds: Rounds, after two that trace.
  """
  task = round_tasks.Task(round_tasks.SmallCnn(), num_clients, 1, 1, 0.01)
  with contextlib.closing(execution.create_sync_in_process_context()) as context:
    rows = {
        _GRADIENTS: round_graphs.OneGraph(task, 'graph_vectorized'),
        _DIRECTIONS: _Directions(
            num_clients, mnist_model.Architecture.of_table_2().num_params
        ),
        _WITHOUT_NOISE: _Process(context, _WITHOUT_NOISE, task),
        _LDP_SGD: _Process(context, _LDP_SGD, task),
    }
    found = {name: [] for name in rows}
    for _ in range(2 + num_rounds):
      for name, row in rows.items():
        cpu, start = round_rows.cpu_seconds(), time.monotonic()
        row.run_round()
        found[name].append((
            1000 * (round_rows.cpu_seconds() - cpu) / num_clients,
            time.monotonic() - start,
        ))
  return {
      name: Cost(*map(statistics.median, zip(*costs[2:])))
      for name, costs in found.items()
  }


def table(results: dict[str, Cost]) -> str:
  """Returns the results as Markdown."""
  parts = results[_GRADIENTS].cpu + results[_DIRECTIONS].cpu
  lines = [
      '| row | CPU time of a client | over both parts by hand | a round |',
      '|---|---|---|---|',
  ]
  lines += [
      f'| {LABELS[name]} | {cost.cpu:.2f} ms | {cost.cpu / parts:.2f} |'
      f' {cost.seconds:.2f} s |'
      for name, cost in results.items()
  ]
  return '\n'.join(lines)


def main(argv=None) -> int:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.ldp_sgd',
      description='Measures a round of LDP-SGD, and its parts by hand.',
  )
  parser.add_argument(
      '--clients', type=int, default=6000, help='of a round (default: 6000)'
  )
  parser.add_argument(
      '--rounds', type=int, default=5, help='after two that trace (default: 5)'
  )
  parser.add_argument('--json', type=pathlib.Path, help='also write this file')
  given = parser.parse_args(argv)
  _checks.integer_at_least(1, clients=given.clients)
  _checks.integer_at_least(1, rounds=given.rounds)
  # As in the task: clients are too small for the threads of an operation.
  tf.config.threading.set_intra_op_parallelism_threads(1)
  results = measure(given.clients, given.rounds)
  if given.json:
    content = {
        name: dataclasses.asdict(cost) for name, cost in results.items()
    }
    given.json.write_text(json.dumps(content, indent=2) + '\n')
  print(f'{given.clients} clients a round, median of {given.rounds} rounds\n')
  print(table(results))
  return 0


if __name__ == '__main__':
  sys.exit(main())
