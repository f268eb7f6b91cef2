# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What frozen weights cost: time and memory beside training all of them.

    .venv-current/bin/python -m benchmarks.keras3_frozen

trains a multilayer perceptron of Keras 3 on 20 clients, each row in a process
of its own, and prints ratios to the first row, in which all weights are
trained. They are ratios of CPU seconds of all threads, which depend less on
what else the machine does. `--row NAME` is one such process; it prints JSON.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

_NUM_CLIENTS = 20
_NUM_FEATURES = 1024
# Name -> (hidden units, number of hidden layers, what is frozen, and as what).
ROWS = {
    'all trained': (1800, 2, None),
    'broadcast': (1800, 2, 'broadcast'),
    'constants': (1800, 2, 'constants'),
    'broadcast, ten times as many': (4750, 3, 'broadcast'),
}


def _megabytes() -> float:
  """Returns the largest resident memory so far, in MB of 10**6 bytes."""
  return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def run(name: str, num_rounds: int) -> dict[str, float]:
  """Returns sizes, CPU seconds and megabytes of one row.

  Args:
    name: Name of the row.
    num_rounds: Number of rounds after the first.
  """
  # pylint: disable=g-import-not-at-top,g-bad-import-order
  import tff_dp
  from tff_dp import execution
  from tff_dp import learning
  import keras
  import numpy as np
  import tensorflow as tf
  import tensorflow_federated as tff

  # pylint: enable=g-import-not-at-top,g-bad-import-order
  units, depth, frozen_as = ROWS[name]
  keras.utils.set_random_seed(1)
  model = keras.Sequential([
      keras.Input([_NUM_FEATURES]),
      *(keras.layers.Dense(units, activation='relu') for _ in range(depth)),
      keras.layers.Dense(10),
  ])
  for layer in model.layers[:-1]:
    layer.trainable = frozen_as is None
  execution.set_default_context()
  rng = np.random.default_rng(1)
  clients = [
      tf.data.Dataset.from_tensor_slices((
          rng.standard_normal([40, _NUM_FEATURES]).astype(np.float32),
          rng.integers(0, 10, 40).astype(np.int32),
      )).batch(20)
      for _ in range(_NUM_CLIENTS)
  ]
  imported = _megabytes()
  begin = time.process_time()
  federated = learning.functional_model_from_keras3(
      model,
      keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      (
          tf.TensorSpec([None, _NUM_FEATURES]),
          tf.TensorSpec([None], tf.int32),
      ),
      frozen_as=frozen_as or 'broadcast',
  )
  plan = tff_dp.DpFtrlPlan(
      tff_dp.mechanisms.Independent(num_rounds + 1),
      tff_dp.participation.UniformSampling(num_rounds + 1),
      l2_norm_clip=1.0,
      clients_per_round=_NUM_CLIENTS,
      noise_multiplier=1.0,
  )
  process = tff_dp.dp_ftrl.build_dp_ftrl(
      federated,
      plan,
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=1.0,
  )
  state = process.initialize()
  ends = [time.process_time()]
  for _ in range(num_rounds + 1):
    state = process.next(state, clients).state
    ends.append(time.process_time())
  seconds = [after - before for before, after in zip(ends, ends[1:])]
  return {
      'trained': federated.num_trained,
      'frozen': federated.num_frozen,
      'start': ends[0] - begin,
      'first': seconds[0],
      'later': statistics.median(seconds[1:]),
      'imported_mb': imported,
      'peak_mb': _megabytes(),
  }


def _report(rows: dict[str, dict[str, float]]) -> list[list[str]]:
  """Returns the table, header first. Times are ratios to the first row's."""
  base = next(iter(rows.values()))
  table = [[
      'frozen as', 'frozen', 'trained', 'build and initialize', 'first round',
      'later rounds', 'GB above the import', 'MB a client gets', 'MB it sends',
  ]]
  for name, row in rows.items():
    table.append([
        name,
        f'{row["frozen"]:,}',
        f'{row["trained"]:,}',
        *(f'{row[each] / base[each]:.2f}' for each in ('start', 'first', 'later')),
        f'{(row["peak_mb"] - row["imported_mb"]) / 1000:.1f}',
        # Weights that are constants come once, with the graph.
        f'{(row["trained"] + (name != "constants") * row["frozen"]) * 4e-6:.1f}',
        f'{row["trained"] * 4e-6:.2f}',
    ])
  return table


def main(arguments: list[str]) -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--row', choices=ROWS)
  parser.add_argument('--rounds', type=int, default=3, help='after the first')
  flags = parser.parse_args(arguments)
  if flags.row:
    print(json.dumps(run(flags.row, flags.rounds)))
    return
  rows = {}
  for name in ROWS:
    command = [sys.executable, '-m', 'benchmarks.keras3_frozen', '--row', name]
    done = subprocess.run(
        [*command, '--rounds', str(flags.rounds)],
        stdout=subprocess.PIPE,
        check=True,
    )
    rows[name] = json.loads(done.stdout.splitlines()[-1])
  for line in _report(rows):
    print('| ' + ' | '.join(line) + ' |')


if __name__ == '__main__':
  main(sys.argv[1:])
