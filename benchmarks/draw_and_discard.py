# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Updates per second of the simulator, against a plain loop in NumPy.

    python -m benchmarks.draw_and_discard

Both make the same sequence of updates of logistic models with 33 weights, one
client with one example at a time: draw an instance, take the clipped step, add
Laplace noise, overwrite another instance. Examples are given, all coins and
noise are drawn anew by each contestant: the NumPy loop draws its own in blocks
too, so it is not a slow one. They take turns in one process.
"""

import argparse
import json
import sys
import time

import numpy as np

# Before TensorFlow, whose start-up messages it silences.
from tasks.draw_and_discard import simulator as simulator_lib
from tff_dp import _checks
from tff_dp import streams
from tff_dp.mechanisms import client_steps

# pylint: disable=g-bad-import-order
import tensorflow as tf

_SIMULATOR, _NUMPY = 'tff_dp simulator', 'NumPy loop'


class _Simulator:
  """The simulator of the library, examples included."""

  def __init__(self, step, num_instances, features, labels):
    self._simulator = simulator_lib.Simulator(
        'logistic',
        step,
        num_features=features.shape[1],
        num_instances=num_instances,
    )
    self._features = tf.constant(features[:, np.newaxis, np.newaxis])
    self._labels = tf.constant(labels[:, np.newaxis, np.newaxis])
    self._key = streams.insecure_root_key(0)
    self._pool = self._simulator.initial_instances(self._key)
    self._advance = tf.function(self._simulator.advance, autograph=False)
    self._block = 0

  def __call__(self) -> np.ndarray:
    key = streams.fold_in(self._key, self._block)
    self._block += 1
    self._pool = self._advance(self._pool, key, self._features, self._labels)
    return self._pool.numpy()


class _Numpy:
  """What one writes down first, with random numbers in blocks."""

  def __init__(self, step, num_instances, features, labels):
    self._step, self._features, self._labels = step, features, labels
    self._scale = np.float32(step.noise_scale(features.shape[1]))
    self._pool = np.zeros((num_instances, features.shape[1]), np.float32)
    self._rng = np.random.default_rng(0)

  def __call__(self) -> np.ndarray:
    features, labels, pool = self._features, self._labels, self._pool
    size, k = len(features), len(pool)
    drawn, written = self._rng.integers(k, size=(2, size))
    noise = self._rng.laplace(size=features.shape).astype(np.float32)
    noise *= self._scale
    rate = np.float32(self._step.learning_rate)
    bound = np.float32(self._step.clip_norm)
    for t in range(size):
      given, x = pool[drawn[t]], features[t]
      share = 1 / (1 + np.exp(-np.dot(given, x)))
      gradient = (share - labels[t]) * x
      gradient = np.minimum(np.maximum(gradient, -bound), bound)
      pool[written[t]] = given - rate * gradient + noise[t]
    return pool


def measure(
    *, num_params: int, num_instances: int, block: int, repetitions: int
) -> dict[str, object]:
  """Returns updates per second of both, and their ratio, as JSON types.

  Args:
    num_params: Of the model.
    num_instances: k.
    block: Updates of one repetition.
    repetitions: Timed, after one that is not: medians of these.
  """
  step = client_steps.ClientStep(
      learning_rate=0.005, epsilon=3.47, privacy_unit='coordinate'
  )
  rng = np.random.default_rng(0)
  features = rng.random((block, num_params), np.float32)
  labels = rng.integers(2, size=block).astype(np.float32)
  contestants = {
      _SIMULATOR: _Simulator(step, num_instances, features, labels),
      _NUMPY: _Numpy(step, num_instances, features, labels),
  }
  seconds = {name: [] for name in contestants}
  for repetition in range(repetitions + 1):
    for name, contestant in contestants.items():
      start = time.perf_counter()
      pool = contestant()
      taken = time.perf_counter() - start
      if not np.all(np.isfinite(pool)):
        raise FloatingPointError(f'{name}: the models are not finite')
      if repetition:
        seconds[name].append(taken)
  rates = {
      name: block / float(np.median(values)) for name, values in seconds.items()
  }
  return {
      'parameters': num_params,
      'instances': num_instances,
      'block': block,
      'repetitions': repetitions,
      'updates_per_second': rates,
      'ratio': rates[_SIMULATOR] / rates[_NUMPY],
  }


def table(result: dict[str, object]) -> str:
  """Returns the report."""
  lines = [
      f'{result["parameters"]} weights, {result["instances"]} instances, blocks'
      f' of {result["block"]:,} updates, medians of {result["repetitions"]}',
      '',
      '| contestant | updates per second | over the NumPy loop |',
      '|---|---:|---:|',
  ]
  rates = result['updates_per_second']
  for name, rate in rates.items():
    lines.append(f'| {name} | {rate:,.0f} | {rate / rates[_NUMPY]:.2f} |')
  return '\n'.join(lines)


def main(argv=None) -> int:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.draw_and_discard',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  for flag, value, what in (
      ('--parameters', 33, 'weights of the model'),
      ('--instances', 30, 'of the server'),
      ('--block', 50_000, 'updates of one repetition'),
      ('--repetitions', 5, 'timed'),
  ):
    parser.add_argument(
        flag, type=int, default=value, help=f'{what} (default: {value})'
    )
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  arguments = parser.parse_args(argv)
  for name in ('parameters', 'instances', 'block', 'repetitions'):
    _checks.integer_at_least(1, **{name: getattr(arguments, name)})
  result = measure(
      num_params=arguments.parameters,
      num_instances=arguments.instances,
      block=arguments.block,
      repetitions=arguments.repetitions,
  )
  if arguments.format == 'json':
    json.dump(result, sys.stdout, indent=2)
    print()
  else:
    print(table(result))
  return 0


if __name__ == '__main__':
  sys.exit(main())
