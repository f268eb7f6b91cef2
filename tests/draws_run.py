# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Counts draws far out: `python -m tests.draws_run`.

Prints two tables:

* what ends of tails do to delta: of some plans, a bound from below on the true
  delta with the normals of TensorFlow, of NumPy and of this library, where one
  coordinate carries a client's whole update;
* for every source of normals, how many numbers and how many pairs of neighbours
  lie beyond 5.69 standard deviations, where TensorFlow's own end, and how many
  the law expects.
"""

import argparse
import math
import sys
import time

import numpy as np
import scipy.stats
import tensorflow as tf

from tff_dp import draws
from tff_dp import streams
from tff_dp.accounting import calibration
from tff_dp.integrations import noise
from tff_dp.participation import coins

_LIMIT = 5.69
_CHUNK = 10_000_000
_LINE_SECONDS = 60


# Epsilon, delta and participations of the plans.
_PLANS = (
    (8.0, 1e-6, 1),
    (8.0, 1e-8, 1),
    (8.0, 1e-10, 10),
    (4.0, 1e-8, 1),
    (1.0, 1e-12, 50),
)
_TENSORFLOW_END = math.sqrt(-2 * math.log(1e-7))
# Of NumPy's ziggurat: 3.654 and an exponential of 53 bits over it.
_NUMPY_END = 3.6541528853610088 + 53 * math.log(2) / 3.6541528853610088


def _print_deltas() -> None:
  """Prints how likely an output is that a neighbour cannot give."""
  print('| epsilon | stated delta | participations | noise multiplier |', end='')
  print(' TensorFlow | NumPy | tff_dp |')
  print('|---|---|---|---|---|---|---|')
  for epsilon, delta, times in _PLANS:
    noise_multiplier = calibration.noise_multiplier(
        epsilon=epsilon, delta=delta, squared_sensitivity=times
    )
    true = [
        f'{times * scipy.stats.norm.sf(end - 1 / noise_multiplier):.2g}'
        for end in (_TENSORFLOW_END, _NUMPY_END)
    ]
    print(
        f'| {epsilon:g} | {delta:g} | {times} | {noise_multiplier:.4g} |'
        f' {true[0]} | {true[1]} | at most {draws.missing_delta(epsilon):.0e} |'
    )
  print(flush=True)


def _tensorflow(draw, dtype):
  @tf.function(autograph=False)
  def chunk(index):
    key = streams.fold_in(streams.insecure_root_key(11), index)
    return draw([_CHUNK], key, dtype)

  return lambda index: chunk(tf.constant(index, tf.int64)).numpy()


def _numpy(index: int) -> np.ndarray:
  key = coins.subkey(coins.insecure_root_key(11), index)
  return noise._normals(key, _CHUNK)  # pylint: disable=protected-access


_SOURCES = {
    "TensorFlow's own, float32": _tensorflow(streams.raw_normals, tf.float32),
    'streams.normals, float32': _tensorflow(streams.normals, tf.float32),
    'streams.normals, float64': _tensorflow(streams.normals, tf.float64),
    'integrations.noise': _numpy,
}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
      '--draws',
      type=float,
      default=6e8,
      help='numbers from each source, rounded up to ten millions (default: 6e8)',
  )
  options = parser.parse_args()
  _print_deltas()
  num_chunks = math.ceil(options.draws / _CHUNK)
  num = num_chunks * _CHUNK
  print(f'{num:,} draws of each; beyond {_LIMIT} standard deviations:\n')
  print('| source | numbers | expected | pairs | expected | largest radius |')
  print('|---|---|---|---|---|---|')
  expected = num * 2 * scipy.stats.norm.sf(_LIMIT)
  expected_pairs = num / 2 * math.exp(-(_LIMIT**2) / 2)
  last_line = time.monotonic()
  for name, draw in _SOURCES.items():
    beyond, pairs_beyond, largest = 0, 0, 0.0
    for index in range(num_chunks):
      drawn = draw(index)
      beyond += np.count_nonzero(np.abs(drawn) > _LIMIT)
      squared = np.square(drawn[::2]) + np.square(drawn[1::2])
      pairs_beyond += np.count_nonzero(squared > _LIMIT**2)
      largest = max(largest, math.sqrt(squared.max()))
      if time.monotonic() - last_line > _LINE_SECONDS:
        last_line = time.monotonic()
        print(f'{name}: {index + 1} of {num_chunks}', file=sys.stderr)
    print(
        f'| {name} | {beyond} | {expected:.1f} | {pairs_beyond} |'
        f' {expected_pairs:.1f} | {largest:.2f} |',
        flush=True,
    )


if __name__ == '__main__':
  main()
