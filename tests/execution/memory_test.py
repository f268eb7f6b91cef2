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
"""Memory stays flat, and nothing is traced anew, over 200 unlike rounds."""

import collections
import gc
import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution.conformance import at_clients
from tests.execution.conformance import at_server
from tff_dp import execution

_ROOT = pathlib.Path(__file__).parents[2]
_NUM_ROUNDS = 200
# Until here allocators may grow to what a round needs at most.
_NUM_WARM_UP = 50
# One model of a round. Keeping any update, batch or graph would show at once.
_MODEL_BYTES = 4 * 100_000
# Growth per round that is noise of the allocator: a tenth of one such model.
_MAX_SLOPE_BYTES = _MODEL_BYTES / 10

_measured = None


def _build_round() -> tff.Computation:
  """Returns a computation that has a bit of everything that holds memory."""
  model_type = tff.TensorType(np.float32, [_MODEL_BYTES // 4])
  batch_type = collections.OrderedDict(
      x=tff.TensorType(np.float32, [None, None]),
      word=tff.TensorType(np.str_, [None]),
  )

  @tff.tensorflow.computation(model_type, tff.SequenceType(batch_type))
  def train(model, batches):
    weights = tf.Variable(model)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(['a', 'b'], [1.0, 2.0]), 0.0
    )

    @tf.function
    def loop():
      count = tf.constant(0)
      for batch in batches:
        step = tf.reduce_mean(batch['x']) * tf.reduce_sum(
            table.lookup(batch['word'])
        )
        weights.assign_add(tf.fill(tf.shape(weights), 1e-3 * step))
        count += tf.shape(batch['word'])[0]
      return count

    count = loop()
    with tf.control_dependencies([count]):
      return weights.read_value(), count

  subtract = tff.tensorflow.computation(
      lambda x, y: tf.reduce_max(x - y), (model_type, model_type)
  )

  @tff.federated_computation(
      at_server(model_type), at_clients(tff.SequenceType(batch_type))
  )
  def computation(model, batches):
    models, counts = tff.federated_map(
        train, (tff.federated_broadcast(model), batches)
    )
    mean = tff.federated_mean(models)
    # A second pass over kept client values, some of which are returned.
    distances = tff.federated_map(
        subtract, (models, tff.federated_broadcast(mean))
    )
    return mean, tff.federated_max(distances), counts

  return computation


def _list_of_batches(rng: np.random.Generator) -> list:
  """Returns a client's batches, of shapes that hardly ever come again."""
  width = rng.integers(1, 400)
  return [
      collections.OrderedDict(
          x=rng.normal(size=[size, width]).astype(np.float32),
          word=np.array(['b'] * size, object),
      )
      for size in rng.integers(0, 30, rng.integers(0, 4))
  ]


def _dataset(rng: np.random.Generator) -> tf.data.Dataset:
  x = rng.normal(size=[rng.integers(1, 50), rng.integers(1, 400)])
  examples = collections.OrderedDict(
      x=x.astype(np.float32), word=['a'] * len(x)
  )
  return tf.data.Dataset.from_tensor_slices(examples).batch(
      int(rng.integers(1, 20))
  )


def _resident_bytes() -> int:
  pages = pathlib.Path('/proc/self/statm').read_text().split()[1]
  return int(pages) * os.sysconf('SC_PAGE_SIZE')


def print_measurements() -> None:
  """Runs in the child."""
  computation = _build_round()
  rng = np.random.default_rng(1)
  model = np.zeros(_MODEL_BYTES // 4, np.float32)
  # Made once: TensorFlow itself never forgets the shapes of an eager dataset.
  datasets = [_dataset(rng) for _ in range(10)]
  resident, traces = [], []
  context = execution.create_sync_in_process_context(max_concurrent_clients=2)
  with context:
    for round_num in range(_NUM_ROUNDS):
      clients = [_list_of_batches(rng) for _ in range(rng.integers(0, 4))]
      chosen = rng.permutation(len(datasets))[: rng.integers(1, 4)]
      clients += [datasets[index] for index in chosen]
      model, _, _ = computation(model, clients)
      if not round_num % 10:
        gc.collect()
      resident.append(_resident_bytes())
      traces.append(context.num_traces)
  print(json.dumps(dict(resident=resident, traces=traces)))


def setUpModule():
  global _measured
  child = subprocess.run(
      [
          sys.executable,
          '-c',
          'import tff_dp\n'
          'from tests.execution import memory_test\n'
          'memory_test.print_measurements()',
      ],
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      env=dict(os.environ, PYTHONPATH=str(_ROOT)),
      check=False,
      timeout=300,
  )
  if child.returncode:
    raise RuntimeError(child.stderr)
  _measured = json.loads(child.stdout.splitlines()[-1])


class MemoryTest(absltest.TestCase):

  def test_memory_is_flat(self):
    steady = np.array(_measured['resident'][_NUM_WARM_UP:])
    self.assertLen(steady, _NUM_ROUNDS - _NUM_WARM_UP)
    slope, _ = np.polyfit(np.arange(len(steady)), steady, 1)
    self.assertLess(slope, _MAX_SLOPE_BYTES)

  def test_nothing_is_traced_anew(self):
    # The first rounds see both workers, lists and datasets.
    self.assertLen(set(_measured['traces'][5:]), 1)
    self.assertBetween(_measured['traces'][-1], 1, 20)

  def test_released_computations_are_forgotten(self):
    with execution.create_sync_in_process_context() as context:
      for _ in range(3):
        add_one = tff.tensorflow.computation(lambda x: x + 1, np.int32)
        self.assertEqual(add_one(1), 2)
        held = context.num_traces
        self.assertGreater(held, 0)
        del add_one
        gc.collect()
      self.assertLess(context.num_traces, 3)


if __name__ == '__main__':
  absltest.main()
