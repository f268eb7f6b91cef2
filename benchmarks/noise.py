# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Times one round's noise against one draw, its memory traffic, and others.

    python -m benchmarks.noise

All contestants make the residual noise of the same rounds for the same number
of parameters, interleaved round by round in one process. Beside mean and median
of a round there are two ratios:

* to one `tf.random.stateless_normal` draw, in means: the rounds of a tree cost
  different amounts, and a run pays for all of them;
* to the allowance, for mechanisms whose rounds all cost the same, in medians:
  its draws, plus the memory traffic that no implementation avoids. That is
  measured too: one walk that reads each of its buffers once and writes those
  that the round changes.

The square-root Toeplitz mechanism is left out: it keeps one vector per round.
"""

import argparse
import dataclasses
import json
import sys
import time

import numpy as np

# Before TensorFlow, whose start-up messages it silences.
from tff_dp import mechanisms
from tff_dp import streams
from tff_dp.mechanisms import mechanism as mechanism_lib

# pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_privacy as tfp

_BASELINE = 'one stateless_normal draw'
_TRAFFIC = 'traffic'
# Title and width by key.
_COLUMNS = {
    'mean_ms': ('mean ms', 10),
    'median_ms': ('median', 9),
    'ratio': ('in draws', 10),
    'buffers': ('buffers', 9),
    'traffic_ms': ('traffic', 9),
    'of_allowance': ('of allowance', 14),
}


class _SingleDraw:
  """One fresh normal per parameter and round, from `draw(seed)`."""

  def __init__(self, draw):
    @tf.function(autograph=False)
    def next_draw(index):
      return draw(tf.stack([tf.constant(7, tf.int64), index]))

    self._draw = next_draw

  def reset(self):
    self._round = 0

  def __call__(self):
    self._round += 1
    return self._draw(tf.constant(self._round, tf.int64))


class _Ours:
  """A mechanism of this library, in a graph of its own."""

  def __init__(self, mechanism, num_params):
    key = streams.insecure_root_key(1)
    self._initial = mechanism.initialize(tf.zeros([num_params]))

    @tf.function(autograph=False)
    def step(buffers, round_index):
      return mechanism.next_noise(
          buffers, round_index, streams.operations(key, num_params)
      )

    self._step = step

  def reset(self):
    self._round, self._buffers = 0, self._initial

  def __call__(self):
    self._round += 1
    noise, self._buffers = self._step(
        self._buffers, tf.constant(self._round, tf.int64)
    )
    return noise


class _Traffic:
  """Reads all buffers of a mechanism, writes as many as a round changes."""

  def __init__(self, mechanism, num_params):
    self._buffers = [
        tf.random.stateless_normal([num_params], [1, index])
        for index in range(mechanism.state_copies)
    ]
    num_written = _num_written(mechanism)

    @tf.function(autograph=False)
    def walk(buffers):
      return [
          -buffer if index < num_written else tf.reduce_max(buffer)
          for index, buffer in enumerate(buffers)
      ]

    self._walk = walk

  def reset(self):
    pass

  def __call__(self):
    return self._walk(self._buffers)


def _num_written(mechanism) -> int:
  """Returns how many buffers a round makes anew instead of passing them on."""
  buffers = tuple(
      np.zeros(1) for _ in range(mechanism.state_copies)
  )
  _, after = mechanism.next_noise(
      buffers,
      1,
      mechanism_lib.numpy_operations(lambda level, index: np.ones(1)),
  )
  kept = {id(buffer) for buffer in buffers}
  return sum(id(buffer) not in kept for buffer in after)


class _TensorFlowPrivacy:
  """tensorflow-privacy's residual tree query on a zero record."""

  def __init__(self, use_efficient, num_params):
    query = tfp.TreeResidualSumQuery.build_l2_gaussian_query(
        clip_norm=1.0,
        noise_multiplier=1.0,
        record_specs=tf.TensorSpec([num_params]),
        noise_seed=1,
        use_efficient=use_efficient,
    )
    self._query = query
    zeros = tf.zeros([num_params])

    @tf.function
    def step(state):
      noise, new_state, _ = query.get_noised_result(zeros, state)
      return noise, new_state

    self._step = step

  def reset(self):
    self._state = self._query.initial_global_state()

  def __call__(self):
    noise, self._state = self._step(self._state)
    return noise


def _even_mechanisms(num_rounds):
  """Returns the mechanisms whose rounds all cost the same."""
  return {
      'independent': mechanisms.Independent(num_rounds),
      # What the numbers are does not matter for the time.
      'BLT, 3 buffers': mechanisms.Blt(
          num_rounds, (0.25, 0.125, 0.0625), (0.99, 0.9, 0.5)
      ),
      'banded, 8 bands': mechanisms.Banded.square_root(num_rounds, 8),
      'banded, 32 bands': mechanisms.Banded.square_root(num_rounds, 32),
      'banded inverse, 8': mechanisms.BandedInverse.square_root(num_rounds, 8),
      'banded inverse, 8 kept': dataclasses.replace(
          mechanisms.BandedInverse.square_root(num_rounds, 8),
          stores_draws=True,
      ),
  }


def measure(
    num_params: int, num_rounds: int, *, wanted=None
) -> dict[str, dict[str, float]]:
  """Returns times in milliseconds and ratios, by contestant.

  Args:
    num_params: Length of the noise.
    num_rounds: Rounds that are timed.
    wanted: Names of contestants beside the baseline. Default: all.
  """
  even = {
      name: mechanism
      for name, mechanism in _even_mechanisms(num_rounds).items()
      if wanted is None or f'tff_dp {name}' in wanted
  }
  contestants = {
      _BASELINE: _SingleDraw(
          lambda seed: tf.random.stateless_normal(
              [num_params], seed, alg='philox'
          )
      ),
      # The same with the tails of `draws`, which all noise of ours has.
      'one streams.normals draw': _SingleDraw(
          lambda seed: streams.normals([num_params], seed)
      ),
      'tff_dp vanilla tree': _Ours(mechanisms.Tree(num_rounds), num_params),
      'tff_dp Honaker tree': _Ours(
          mechanisms.HonakerTree(num_rounds), num_params
      ),
      **{f'tff_dp {name}': _Ours(m, num_params) for name, m in even.items()},
      'tensorflow-privacy vanilla': _TensorFlowPrivacy(False, num_params),
      'tensorflow-privacy Honaker': _TensorFlowPrivacy(True, num_params),
  }
  contestants = {
      name: contestant
      for name, contestant in contestants.items()
      if wanted is None or name in (_BASELINE, *wanted)
  }
  timed = contestants | {
      (_TRAFFIC, name): _Traffic(mechanism, num_params)
      for name, mechanism in even.items()
      if mechanism.state_copies
  }
  seconds = {name: [] for name in timed}
  # The first pass traces every graph (tensorflow-privacy's state grows with the
  # tree, so it traces again at each new level); the second one is timed.
  for is_timed in (False, True):
    for contestant in timed.values():
      contestant.reset()
    for _ in range(num_rounds):
      for name, contestant in timed.items():
        start = time.perf_counter()
        contestant()
        # A GPU's kernels may still run when a call returns.
        tf.test.experimental.sync_devices()
        if is_timed:
          seconds[name].append(time.perf_counter() - start)
  means = {name: float(np.mean(values)) for name, values in seconds.items()}
  medians = {name: float(np.median(values)) for name, values in seconds.items()}
  rows = {
      name: {
          'mean_ms': means[name] * 1e3,
          'median_ms': medians[name] * 1e3,
          'ratio': means[name] / means[_BASELINE],
      }
      for name in contestants
  }
  for name, mechanism in even.items():
    row = rows[f'tff_dp {name}']
    traffic = medians.get((_TRAFFIC, name), 0.0)
    allowance = mechanism.draws_per_round * medians[_BASELINE] + traffic
    row['draws'] = mechanism.draws_per_round
    row['buffers'] = mechanism.state_copies
    row['traffic_ms'] = traffic * 1e3
    row['of_allowance'] = medians[f'tff_dp {name}'] / allowance
  return rows


def main(argv=None) -> int:
  parser = argparse.ArgumentParser(
      prog='python -m benchmarks.noise',
      description=__doc__,
      formatter_class=argparse.RawDescriptionHelpFormatter,
  )
  parser.add_argument(
      '--parameters',
      type=int,
      nargs='+',
      default=[1_000_000, 4_000_000],
      help='model sizes (default: %(default)s)',
  )
  parser.add_argument(
      '--rounds', type=int, default=64, help='rounds (default: %(default)s)'
  )
  parser.add_argument('--format', choices=('text', 'json'), default='text')
  arguments = parser.parse_args(argv)
  # Many graphs of one function are no mistake here.
  tf.get_logger().setLevel('ERROR')
  results = {
      num_params: measure(num_params, arguments.rounds)
      for num_params in arguments.parameters
  }
  if arguments.format == 'json':
    json.dump(results, sys.stdout, indent=2)
    print()
    return 0
  for num_params, rows in results.items():
    print(f'{num_params:,} parameters, {arguments.rounds} rounds')
    columns = ''.join(f'{title:>{width}}' for title, width in _COLUMNS.values())
    print(f'  {"noise of one round":<30}{columns}')
    for name, row in rows.items():
      cells = ''.join(
          f'{_cell(row.get(key)):>{width}}'
          for key, (_, width) in _COLUMNS.items()
      )
      print(f'  {name:<30}{cells}')
  return 0


def _cell(value: float | None) -> str:
  if value is None:
    return '-'
  return str(value) if isinstance(value, int) else f'{value:.2f}'


if __name__ == '__main__':
  sys.exit(main())
