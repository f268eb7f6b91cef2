# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Times one round's noise against tensorflow-privacy and against one draw.

    python -m benchmarks.noise

All contestants make the residual noise of the same rounds for the same number
of parameters, interleaved round by round in one process; what is reported is
the ratio of the mean time of a round to that of one
`tf.random.stateless_normal` draw. Means, not medians: the rounds of a tree cost
different amounts, and a run pays for all of them.
"""

import argparse
import json
import sys
import time

import numpy as np

# Before TensorFlow, whose start-up messages it silences.
from tff_dp import mechanisms
from tff_dp import streams

# pylint: disable=g-bad-import-order
import tensorflow as tf
import tensorflow_privacy as tfp

_BASELINE = 'one stateless_normal draw'


class _SingleDraw:
  """The floor: one fresh normal per parameter and round."""

  def __init__(self, num_params):
    @tf.function
    def draw(index):
      seed = tf.stack([tf.constant(7, tf.int64), index])
      return tf.random.stateless_normal([num_params], seed, alg='philox')

    self._draw = draw

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
          buffers,
          round_index,
          draw=streams.node_normals(key, num_params),
          cond=tf.cond,
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


def _contestants(num_params, num_rounds):
  return {
      _BASELINE: _SingleDraw(num_params),
      'tff_dp independent': _Ours(
          mechanisms.Independent(num_rounds), num_params
      ),
      'tff_dp vanilla tree': _Ours(mechanisms.Tree(num_rounds), num_params),
      'tff_dp Honaker tree': _Ours(
          mechanisms.HonakerTree(num_rounds), num_params
      ),
      'tensorflow-privacy vanilla': _TensorFlowPrivacy(False, num_params),
      'tensorflow-privacy Honaker': _TensorFlowPrivacy(True, num_params),
  }


def measure(num_params: int, num_rounds: int) -> dict[str, dict[str, float]]:
  """Returns mean milliseconds and the ratio to one draw, by contestant."""
  contestants = _contestants(num_params, num_rounds)
  seconds = {name: [] for name in contestants}
  # The first pass traces every graph (tensorflow-privacy's state grows with the
  # tree, so it traces again at each new level); the second one is timed.
  for is_timed in (False, True):
    for next_noise in contestants.values():
      next_noise.reset()
    for _ in range(num_rounds):
      for name, next_noise in contestants.items():
        start = time.perf_counter()
        next_noise()
        if is_timed:
          seconds[name].append(time.perf_counter() - start)
  floor = np.mean(seconds[_BASELINE])
  return {
      name: {
          'mean_ms': float(np.mean(values) * 1e3),
          'ratio': float(np.mean(values) / floor),
      }
      for name, values in seconds.items()
  }


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
    print(f'  {"noise of one round":<28}{"mean ms":>10}{"ratio":>8}')
    for name, row in rows.items():
      print(f'  {name:<28}{row["mean_ms"]:>10.2f}{row["ratio"]:>8.2f}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
