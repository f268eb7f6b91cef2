# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures memory: of large models, and how it grows over many rounds.

  python -m benchmarks.memory large
  python -m benchmarks.memory large --weights 20000000 --noise none
  python -m benchmarks.memory growth --rounds 300

`large` trains an embedding of 100 numbers a word and a dense layer on five
clients with two batches. It prints seconds, and the peak of resident memory
above the import, in copies of the model. It does so with TensorFlow's default
allocator, which gives the memory of large tensors back to the system at once,
and with the one that keeps it for the next tensors. `growth` trains changing cohorts and
prints how much resident memory each round adds. Beside it stands a plain loop
that only makes and reads the same datasets. Each row is a process of its own.
"""

import argparse
import collections
import ctypes
import gc
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

from tff_dp import _checks

NOISES = ('none', 'independent', 'blt')
# Name -> environment of the process. TensorFlow reads it at its first operation.
ALLOCATORS = {
    'default': {'TF_CPU_ALLOCATOR_USE_BFC': 'false'},
    'bfc': {'TF_CPU_ALLOCATOR_USE_BFC': 'true'},
}
# Name -> what it is.
GROWTHS = {
    'kept': 'trained, datasets with `map` kept from round to round',
    'new': 'trained, such datasets made anew in every round',
    'plain': 'the same new datasets, only read',
}
_WIDTH = 100
_LENGTH = 20
_NUM_CLIENTS = 5
_LATER_ROUNDS = 3
_PAGE = os.sysconf('SC_PAGE_SIZE')


def _peak_bytes() -> int:
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident_bytes() -> int:
  """Returns what is held, once all that was freed is given back."""
  gc.collect()
  ctypes.CDLL(None).malloc_trim(0)
  return int(pathlib.Path('/proc/self/statm').read_text().split()[1]) * _PAGE


def run_large(noise: str, num_weights: int) -> dict[str, float]:
  """Returns seconds and memory of one model.

  Args:
    noise: One of `NOISES`.
    num_weights: About as many weights the model has.
  """
  # pylint: disable=g-import-not-at-top,g-bad-import-order
  import tff_dp
  from tff_dp import execution
  import numpy as np
  import tensorflow as tf
  import tensorflow_federated as tff

  # pylint: enable=g-import-not-at-top,g-bad-import-order
  num_words = num_weights // _WIDTH
  spec = (
      tf.TensorSpec([None, _LENGTH], tf.int32),
      tf.TensorSpec([None, 1], tf.int32),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([
            tf.keras.layers.Embedding(num_words, _WIDTH, input_length=_LENGTH),
            tf.keras.layers.GlobalAveragePooling1D(),
            tf.keras.layers.Dense(10),
        ]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=spec,
    )

  aggregator = None
  if noise != 'none':
    participation = tff_dp.participation.MinSeparation(64, min_index_gap=16)
    plan = tff_dp.DpFtrlPlan(
        mechanism=(
            tff_dp.mechanisms.Independent(64)
            if noise == 'independent'
            else tff_dp.mechanisms.Blt.optimized(participation)
        ),
        participation=participation,
        l2_norm_clip=1.0,
        clients_per_round=_NUM_CLIENTS,
        noise_multiplier=1.0,
    )
    aggregator = plan.aggregator()
  execution.set_default_context()
  random = np.random.default_rng(1)
  clients = [
      tf.data.Dataset.from_tensor_slices((
          random.integers(num_words, size=[20, _LENGTH]).astype(np.int32),
          random.integers(10, size=[20, 1]).astype(np.int32),
      )).batch(10)
      for _ in range(_NUM_CLIENTS)
  ]
  imported = _resident_bytes()
  process = tff.learning.algorithms.build_unweighted_fed_avg(
      model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
      model_aggregator=aggregator,
  )
  state = process.initialize()
  seconds = []
  for _ in range(1 + _LATER_ROUNDS):
    begin = time.perf_counter()
    state = process.next(state, clients).state
    seconds.append(time.perf_counter() - begin)
  model_bytes = 4 * num_words * _WIDTH
  return {
      'first_seconds': seconds[0],
      'later_seconds': statistics.median(seconds[1:]),
      'peak_gigabytes': _peak_bytes() / 1e9,
      'copies': (_peak_bytes() - imported) / model_bytes,
  }


def run_growth(kind: str, num_rounds: int) -> dict[str, float]:
  """Returns how many bytes a round adds, over the last two thirds of a run.

  Args:
    kind: One of `GROWTHS`.
    num_rounds: Number of rounds.
  """
  # pylint: disable=g-import-not-at-top,g-bad-import-order
  import tff_dp  # noqa: F401 pylint: disable=unused-import
  from tff_dp import execution
  import numpy as np
  import tensorflow as tf
  import tensorflow_federated as tff

  # pylint: enable=g-import-not-at-top,g-bad-import-order
  random = np.random.default_rng(1)

  def formatted(batch):
    return collections.OrderedDict(
        x=tf.reshape(batch['pixels'], [-1, 784]),
        y=tf.reshape(batch['label'], [-1, 1]),
    )

  rows = []
  for _ in range(40):
    size = random.integers(1, 60)
    rows.append(
        collections.OrderedDict(
            pixels=random.normal(size=[size, 28, 28]).astype(np.float32),
            label=random.integers(10, size=size).astype(np.int32),
        )
    )

  def dataset(client):
    slices = tf.data.Dataset.from_tensor_slices(rows[client])
    return slices.shuffle(100).batch(10).map(formatted).prefetch(1)

  kept = [dataset(client) for client in range(len(rows))]
  process = tff.learning.algorithms.build_weighted_fed_avg(
      lambda: tff.learning.models.from_keras_model(
          tf.keras.Sequential([
              tf.keras.layers.InputLayer((784,)),
              tf.keras.layers.Dense(10),
          ]),
          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          input_spec=kept[0].element_spec,
      ),
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
  )
  execution.set_default_context()
  state = process.initialize()
  rounds, resident = [], []
  for index in range(num_rounds):
    chosen = random.permutation(len(rows))[: random.integers(5, 15)]
    clients = [kept[c] if kind == 'kept' else dataset(c) for c in chosen]
    if kind == 'plain':
      for client in clients:
        collections.deque(client, maxlen=0)
    else:
      state = process.next(state, clients).state
    del clients
    if 3 * index >= num_rounds and not index % 5:
      rounds.append(index)
      resident.append(_resident_bytes())
  slope, _ = np.polyfit(rounds, resident, 1)
  return {'bytes_a_round': float(slope)}


def _in_a_process(
    part: str, row: str, size: int, allocator: str = 'default'
) -> dict[str, float]:
  done = subprocess.run(
      [sys.executable, '-m', 'benchmarks.memory', part, '--row', row,
       _SIZES[part], str(size)],
      env={**os.environ, **ALLOCATORS[allocator]},
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
  )  # pyformat: disable
  return json.loads(done.stdout)


_SIZES = {'large': '--weights', 'growth': '--rounds'}


def _large_table(found: dict[tuple[str, str], dict[str, float]]) -> str:
  lines = [
      '| noise | allocator | first round | later rounds | peak | copies of the'
      ' model |',
      '|---|---|---|---|---|---|',
  ]
  for (noise, allocator), row in found.items():
    lines.append(
        f'| {noise} | {allocator} | {row["first_seconds"]:.1f} s |'
        f' {row["later_seconds"]:.2f} s | {row["peak_gigabytes"]:.1f} GB |'
        f' {row["copies"]:.1f} |'
    )
  return '\n'.join(lines)


def _growth_table(found: dict[str, dict[str, float]]) -> str:
  lines = ['| loop | MB a round |', '|---|---|']
  for name, row in found.items():
    lines.append(f'| {GROWTHS[name]} | {row["bytes_a_round"] / 1e6:.3f} |')
  return '\n'.join(lines)


def main(argv=None) -> None:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.memory',
      description='Measures memory: of large models, and over many rounds.',
  )
  parts = parser.add_subparsers(dest='part', required=True)
  large = parts.add_parser('large', help='copies of a large model')
  large.add_argument('--weights', type=int, default=100_000_000)
  large.add_argument(
      '--noise', nargs='+', choices=NOISES, default=NOISES, dest='rows'
  )
  large.add_argument(
      '--allocators', nargs='+', choices=ALLOCATORS, default=[*ALLOCATORS]
  )
  growth = parts.add_parser('growth', help='what each round adds')
  growth.add_argument('--rounds', type=int, default=300)
  growth.add_argument(
      '--loops', nargs='+', choices=GROWTHS, default=[*GROWTHS], dest='rows'
  )
  for part in (large, growth):
    part.add_argument('--row', help=argparse.SUPPRESS)
  given = parser.parse_args(argv)
  if given.part == 'large':
    size = given.weights
    _checks.integer_at_least(1000, weights=size)
  else:
    size = given.rounds
    _checks.integer_at_least(30, rounds=size)
  if given.row:
    run = run_large if given.part == 'large' else run_growth
    print(json.dumps(run(given.row, size)))
    return
  if given.part == 'large':
    print(_large_table({
        (row, allocator): _in_a_process('large', row, size, allocator)
        for row in given.rows
        for allocator in given.allocators
    }))
  else:
    print(_growth_table({
        row: _in_a_process('growth', row, size) for row in given.rows
    }))


if __name__ == '__main__':
  main()
