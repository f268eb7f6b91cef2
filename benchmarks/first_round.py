# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures the first round of a new process, on tff_dp and on TFF's runtime.

  python -m benchmarks.first_round
  python -m benchmarks.first_round --models softmax --repetitions 1

Every number comes from a process of its own. `start` makes the context and the
initial state, which on TFF's runtime starts its worker. `round` is the first
round, which traces the graphs. To import TFF and to build the learning process
takes the same on both and is not counted.
"""

import argparse
from collections.abc import Callable
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import tff_dp  # noqa: F401 pylint: disable=unused-import
import numpy as np  # pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import client_datasets
from tff_dp import _checks
from tff_dp import execution

_CLIENTS = 10
_VOCABULARY = 500
_LENGTH = 20
_SEED = 20260101
ENGINES = {
    'in_process': execution.create_sync_in_process_context,
    'native': execution.create_native_context,
}


@dataclasses.dataclass(frozen=True)
class Model:
  """A model, its clients and how they train it.

  Attributes:
    label: What it is.
    layers: Makes its Keras layers, without the input.
    form: Clients' datasets, of `client_datasets.FORMS`, or None for sentences.
    optimizer: Makes the optimizer of the clients.
  """

  label: str
  layers: Callable[[], list[tf.keras.layers.Layer]]
  form: str | None = 'tutorial'
  optimizer: Callable[[], tff.learning.optimizers.Optimizer] = (
      lambda: tff.learning.optimizers.build_sgdm(0.02)
  )

  def clients(self) -> list[tf.data.Dataset]:
    if self.form:
      return client_datasets.datasets(self.form, _CLIENTS)
    random = np.random.default_rng(_SEED)
    words = random.integers(_VOCABULARY, size=[_CLIENTS, 40, _LENGTH + 1])
    return [
        tf.data.Dataset.from_tensor_slices((own[:, :-1], own[:, 1:])).batch(10)
        for own in words.astype(np.int32)
    ]

  def process(self, element_spec) -> tff.learning.templates.LearningProcess:
    shape, dtype = ((784,), tf.float32) if self.form else ((_LENGTH,), tf.int32)

    def model_fn():
      inputs = tf.keras.layers.InputLayer(shape, dtype=dtype)
      return tff.learning.models.from_keras_model(
          tf.keras.Sequential([inputs, *self.layers()]),
          loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
          metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
          input_spec=element_spec,
      )

    return tff.learning.algorithms.build_weighted_fed_avg(
        model_fn,
        client_optimizer_fn=self.optimizer(),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
    )


def _dense(*hidden: int) -> Callable[[], list[tf.keras.layers.Layer]]:
  return lambda: [
      *(tf.keras.layers.Dense(size, activation='relu') for size in hidden),
      tf.keras.layers.Dense(10),
  ]


def _convolutions() -> list[tf.keras.layers.Layer]:
  return [
      tf.keras.layers.Reshape((28, 28, 1)),
      tf.keras.layers.Conv2D(32, 5, activation='relu', padding='same'),
      tf.keras.layers.MaxPool2D(),
      tf.keras.layers.Flatten(),
      *_dense(64)(),
  ]


def _lstm() -> list[tf.keras.layers.Layer]:
  return [
      tf.keras.layers.Embedding(_VOCABULARY, 16),
      tf.keras.layers.LSTM(32, return_sequences=True),
      tf.keras.layers.Dense(_VOCABULARY),
  ]


MODELS = {
    'softmax': Model('softmax regression', _dense()),
    'adam': Model(
        'softmax regression, clients with Adam',
        _dense(),
        optimizer=lambda: tff.learning.optimizers.build_adam(0.01),
    ),
    'ragged': Model(
        'softmax regression, clients of other sizes',
        _dense(),
        form='ragged_unseeded',
    ),
    'mlp': Model('dense network', _dense(64, 64)),
    'cnn': Model('convolutional network', _convolutions),
    'lstm': Model('LSTM', _lstm, form=None),
}


def run(engine: str, name: str) -> dict[str, float]:
  """Returns the seconds of `start` and `round`.

  Args:
    engine: One of `ENGINES`.
    name: One of `MODELS`.
  """
  model = MODELS[name]
  clients = model.clients()
  process = model.process(clients[0].element_spec)
  times = [time.perf_counter()]
  with contextlib.closing(ENGINES[engine]()) as context:
    with tff.framework.get_context_stack().install(context):
      state = process.initialize()
      times.append(time.perf_counter())
      process.next(state, clients)
      times.append(time.perf_counter())
  start, first = (after - before for before, after in zip(times, times[1:]))
  return {'start': start, 'round': first}


def _in_a_process(engine: str, name: str) -> dict[str, float]:
  done = subprocess.run(
      [sys.executable, '-m', 'benchmarks.first_round', '--run', engine, name],
      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
  )  # pyformat: disable
  return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, repetitions: int) -> dict[str, dict[str, float]]:
  """Returns by engine the median seconds of `start`, `round` and `sum`.

  Args:
    name: One of `MODELS`.
    repetitions: Processes of each engine. The engines take turns.
  """
  found = {engine: [] for engine in ENGINES}
  for _ in range(repetitions):
    for engine, samples in found.items():
      sample = _in_a_process(engine, name)
      samples.append({**sample, 'sum': sum(sample.values())})
  return {
      engine: {
          stage: statistics.median(sample[stage] for sample in samples)
          for stage in samples[0]
      }
      for engine, samples in found.items()
  }


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
  """Returns the results of `measure` by model as Markdown."""
  lines = [
      "| model | tff_dp: start | round | TFF's runtime: start | round |"
      " both, tff_dp / TFF's runtime |",
      '|---|---|---|---|---|---|',
  ]
  for name, found in results.items():
    own, other = found['in_process'], found['native']
    lines.append(
        f'| {MODELS[name].label} |'
        f' {own["start"]:.2f} s | {own["round"]:.2f} s |'
        f' {other["start"]:.2f} s | {other["round"]:.2f} s |'
        f' {own["sum"] / other["sum"]:.2f} |'
    )
  return '\n'.join(lines)


def main(argv=None) -> None:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.first_round',
      description='Measures the first round of a new process, on both engines.',
  )
  parser.add_argument(
      '--models', nargs='+', choices=MODELS, default=[*MODELS], metavar='MODEL',
      help=f'of {", ".join(MODELS)} (default: all)',
  )  # pyformat: disable
  parser.add_argument(
      '--repetitions', type=int, default=5, help='processes (default: 5)'
  )
  parser.add_argument('--json', type=pathlib.Path, help='also write this file')
  parser.add_argument('--run', nargs=2, help=argparse.SUPPRESS)
  given = parser.parse_args(argv)
  if given.run:
    print(json.dumps(run(*given.run)), flush=True)
    # Else TensorFlow's threads may wait for the worker that has just ended.
    os._exit(0)
  _checks.integer_at_least(1, repetitions=given.repetitions)
  results = {}
  for name in given.models:
    print(f'{name}: {given.repetitions} processes of each engine',
          file=sys.stderr, flush=True)  # pyformat: disable
    results[name] = measure(name, given.repetitions)
  if given.json:
    given.json.write_text(json.dumps(results, indent=2) + '\n')
  print(table(results))


if __name__ == '__main__':
  main()
