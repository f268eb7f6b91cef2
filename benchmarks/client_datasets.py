# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures what the form of the clients' datasets costs in a round.

  python -m benchmarks.client_datasets
  python -m benchmarks.client_datasets --forms tutorial --clients 20

All forms train a softmax regression with TFF's builder on the same number of
28 x 28 images. Each form runs in process and on TFF's runtime, round by round
in turn. Their weights are compared where the order of the rows is the same for
both. The datasets are made before, as in a loop of one's own. CPU time counts
child processes.
"""

import argparse
import collections
from collections.abc import Callable
import contextlib
import dataclasses
import json
import pathlib
import statistics
import sys

import tff_dp  # noqa: F401 pylint: disable=unused-import
import numpy as np  # pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_federated as tff

from benchmarks import round_rows
from tff_dp import _checks
from tff_dp import execution

_ROWS = 20
_BATCH = 10
_SEED = 20260101


def _formatted(batch):
  return collections.OrderedDict(
      x=tf.reshape(batch['pixels'], [-1, 784]),
      y=tf.reshape(batch['label'], [-1, 1]),
  )


def _steps(*, epochs: int = 1, seed: int | None = None) -> Callable:
  def apply(dataset):
    dataset = dataset.repeat(epochs).shuffle(100, seed=seed).batch(_BATCH)
    return dataset.map(_formatted).prefetch(10)

  return apply


@dataclasses.dataclass(frozen=True)
class Form:
  """A form of the clients' datasets.

  Attributes:
    label: What it is.
    steps: Applies the steps to slices of rows.
    has_images: Whether the rows are images, which `map` makes vectors, or
      vectors from the start.
    is_ragged: Whether clients have 1 to 39 rows, instead of 20.
    has_fixed_order: Whether both engines read the rows in the same order.
  """

  label: str
  steps: Callable[[tf.data.Dataset], tf.data.Dataset]
  has_images: bool = True
  is_ragged: bool = False
  has_fixed_order: bool = False


FORMS = {
    'rows': Form(
        'slices and a `batch`',
        lambda slices: slices.batch(_BATCH),
        has_images=False,
        has_fixed_order=True,
    ),
    'map': Form(
        '`batch`, `map`',
        lambda slices: slices.batch(_BATCH).map(_formatted),
        has_fixed_order=True,
    ),
    'tutorial': Form(
        '`repeat(1)`, `shuffle(100, seed=1)`, `batch`, `map`, `prefetch`',
        _steps(seed=1),
        has_fixed_order=True,
    ),
    'unseeded': Form('the same without a seed', _steps()),
    'epochs': Form('the same, `repeat(5)`', _steps(epochs=5)),
    'ragged': Form(
        'slices and a `batch`, 1 to 39 rows a client',
        lambda slices: slices.batch(_BATCH),
        has_images=False,
        is_ragged=True,
        has_fixed_order=True,
    ),
    'ragged_unseeded': Form(
        'the steps without a seed, 1 to 39 rows a client',
        _steps(),
        is_ragged=True,
    ),
}


def datasets(name: str, num_clients: int) -> list[tf.data.Dataset]:
  """Returns the clients' datasets of random images.

  Args:
    name: One of `FORMS`.
    num_clients: Number of datasets.
  """
  form = FORMS[name]
  random = np.random.default_rng(_SEED)
  found = []
  for client in range(num_clients):
    # The mean is 20 rows in each case.
    num_rows = 1 + client % (2 * _ROWS - 1) if form.is_ragged else _ROWS
    rows = collections.OrderedDict(
        pixels=random.normal(size=[num_rows, 28, 28]).astype(np.float32),
        label=random.integers(10, size=num_rows).astype(np.int32),
    )
    if not form.has_images:
      rows = collections.OrderedDict(
          x=rows['pixels'].reshape([-1, 784]), y=rows['label'][:, None]
      )
    found.append(form.steps(tf.data.Dataset.from_tensor_slices(rows)))
  return found


def _process(element_spec) -> tff.learning.templates.LearningProcess:
  def model_fn():
    return tff.learning.models.from_keras_model(
        tf.keras.Sequential([
            tf.keras.layers.InputLayer((784,)),
            tf.keras.layers.Dense(10, kernel_initializer='zeros'),
        ]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        input_spec=element_spec,
    )

  return tff.learning.algorithms.build_unweighted_fed_avg(
      model_fn,
      client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.02),
      server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
  )


class _Engine:
  """A process that trains on one context."""

  def __init__(self, context, process, clients):
    self._context, self._process, self._clients = context, process, clients
    with self._installed():
      self._state = process.initialize()
    self.seconds = []

  def _installed(self):
    return tff.framework.get_context_stack().install(self._context)

  def run_round(self) -> None:
    before = round_rows.cpu_seconds()
    with self._installed():
      self._state = self._process.next(self._state, self._clients).state
    self.seconds.append(round_rows.cpu_seconds() - before)

  def weights(self) -> np.ndarray:
    with self._installed():
      weights = self._process.get_model_weights(self._state).trainable
    return np.concatenate([np.ravel(weight) for weight in weights])


def measure(name: str, num_clients: int, num_rounds: int) -> dict[str, object]:
  """Returns the CPU milliseconds of a client, by engine, of one form.

  Args:
    name: One of `FORMS`.
    num_clients: Clients of a round.
    num_rounds: Rounds, after two that trace.

  Raises:
    DifferentResultError: The engines disagree on what they train.
  """
  clients = datasets(name, num_clients)
  process = _process(clients[0].element_spec)
  with contextlib.ExitStack() as stack:
    engines = {}
    for kind, create in (
        ('in_process', execution.create_sync_in_process_context),
        ('native', execution.create_native_context),
    ):
      context = stack.enter_context(contextlib.closing(create()))
      engines[kind] = _Engine(context, process, clients)
    for _ in range(2 + num_rounds):
      for engine in engines.values():
        engine.run_round()
    found = {
        kind: 1000 * statistics.median(engine.seconds[2:]) / num_clients
        for kind, engine in engines.items()
    }
    if FORMS[name].has_fixed_order:
      own, other = (engine.weights() for engine in engines.values())
      if not np.allclose(own, other, rtol=1e-4, atol=1e-5):
        raise round_rows.DifferentResultError(f'{name}: other weights')
  return found


def table(results: dict[str, dict[str, float]]) -> str:
  """Returns the results as Markdown."""
  lines = [
      '| datasets | tff_dp | TFF\'s runtime | tff_dp / TFF\'s runtime |',
      '|---|---|---|---|',
  ]
  for name, found in results.items():
    own, other = found['in_process'], found['native']
    lines.append(
        f'| {FORMS[name].label} | {own:.2f} ms | {other:.2f} ms |'
        f' {own / other:.2f} |'
    )
  return '\n'.join(lines)


def main(argv=None) -> int:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.client_datasets',
      description='Measures what the form of the datasets costs in a round.',
  )
  parser.add_argument(
      '--forms', nargs='+', choices=FORMS, default=[*FORMS], metavar='FORM',
      help=f'of {", ".join(FORMS)} (default: all)',
  )  # pyformat: disable
  parser.add_argument(
      '--clients', type=int, default=200, help='of a round (default: 200)'
  )
  parser.add_argument(
      '--rounds', type=int, default=5, help='after two that trace (default: 5)'
  )
  parser.add_argument('--json', type=pathlib.Path, help='also write this file')
  given = parser.parse_args(argv)
  _checks.integer_at_least(1, clients=given.clients)
  _checks.integer_at_least(1, rounds=given.rounds)
  results = {}
  try:
    for name in given.forms:
      print(f'{name}: {given.clients} clients', file=sys.stderr, flush=True)
      results[name] = measure(name, given.clients, given.rounds)
  except round_rows.DifferentResultError as error:
    print(f'error: {error}', file=sys.stderr)
    return 1
  finally:
    if given.json:
      given.json.write_text(json.dumps(results, indent=2) + '\n')
  print(f'CPU milliseconds of a client, {given.clients} clients a round\n')
  print(table(results))
  return 0


if __name__ == '__main__':
  sys.exit(main())
