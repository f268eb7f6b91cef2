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
"""Client i works on its device, the server on its own: on virtual CPUs.

TensorFlow splits a CPU into several devices only before it starts, so a child
process measures, once, and the tests read what it printed.
"""

import json
import os
import pathlib
import subprocess
import sys

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.execution import conformance_processes
from tests.execution.conformance import at_clients
from tff_dp import execution

_ROOT = pathlib.Path(__file__).parents[2]
_CLIENT_DEVICES = ('CPU:1', 'CPU:2', 'CPU:0')
_SERVER_DEVICE = 'CPU:3'
_NUM_CLIENTS = 8
_MARKED = (
    'client',
    'iterator_loop',
    'reduce_loop',
    'accumulate',
    'merge',
    'report',
)

_measured = None


def _leave_mark(where: str, mark: tf.Tensor) -> tf.Operation:
  """Returns an operation that leaves `mark` on the device of its own kernel.

  TensorFlow keeps a store of this kind, under its name, once on each device: a
  kernel reaches that of its own device and no other.
  """
  return tf.raw_ops.OrderedMapStage(
      key=tf.cast(mark, tf.int64),
      indices=[0],
      values=[mark],
      dtypes=[tf.int32],
      shared_name=where,
  )


def _take_marks(where: str) -> dict[str, list[int]]:
  """Returns the marks that were left on each device, in order, and forgets."""
  found = {}
  store = dict(dtypes=[tf.int32], shared_name=where)
  for device in tf.config.list_logical_devices('CPU'):
    with tf.device(device.name):
      size = int(tf.raw_ops.OrderedMapSize(**store))
      marks = [
          int(tf.raw_ops.OrderedMapUnstageNoKey(indices=[0], **store).key)
          for _ in range(size)
      ]
    if marks:
      found[device.name.partition('device:')[2]] = marks
  return found


def _build_marking_computation() -> tff.Computation:
  @tff.tensorflow.computation(tff.SequenceType(np.int32), np.int32)
  def work(numbers, client):
    total = tf.Variable(0)

    @tf.function
    def train():
      # As the training loop that our builders ask TFF for.
      for number in iter(numbers):
        _leave_mark('iterator_loop', 10 * client + number)
        total.assign_add(number)
      # As TFF's default, which AutoGraph turns into `Dataset.reduce`.
      for number in numbers:
        _leave_mark('reduce_loop', 10 * client + number)
        total.assign_add(number)
      return total.read_value()

    with tf.control_dependencies([_leave_mark('client', client)]):
      return train(), tf.identity(client)

  @tff.tensorflow.computation(np.int32, (np.int32, np.int32))
  def accumulate(total, value):
    with tf.control_dependencies([_leave_mark('accumulate', value[1])]):
      return total + value[0]

  @tff.tensorflow.computation(np.int32, np.int32)
  def merge(one, other):
    with tf.control_dependencies([_leave_mark('merge', one + other)]):
      return one + other

  @tff.tensorflow.computation(np.int32)
  def report(total):
    with tf.control_dependencies([_leave_mark('report', total)]):
      return tf.identity(total)

  @tff.federated_computation(
      at_clients(tff.SequenceType(np.int32)), at_clients(np.int32)
  )
  def computation(numbers, clients):
    worked = tff.federated_map(work, (numbers, clients))
    return tff.federated_aggregate(worked, 0, accumulate, merge, report)

  return computation


def _train_twice(**settings) -> list[float]:
  """Returns all of the model after the rounds of a conformance case."""
  with execution.create_sync_in_process_context(**settings):
    (run,) = conformance_processes.weighted_fed_avg()
    state, _ = run()
  weights = state.global_model_weights.trainable
  return np.concatenate([np.ravel(weight) for weight in weights]).tolist()


def print_measurements() -> None:
  """Runs in the child."""
  cpu = tf.config.list_physical_devices('CPU')[0]
  tf.config.set_logical_device_configuration(
      cpu, [tf.config.LogicalDeviceConfiguration()] * 4
  )
  devices = dict(
      client_tf_devices=_CLIENT_DEVICES, server_tf_device=_SERVER_DEVICE
  )
  computation = _build_marking_computation()
  clients = list(range(_NUM_CLIENTS))
  context = execution.create_sync_in_process_context(**devices)
  with context:
    result = computation([[1, 2]] * _NUM_CLIENTS, clients)
  print(
      json.dumps(
          dict(
              client_devices=context.client_devices,
              server_device=context.server_device,
              result=int(result),
              marks={
                  where: _take_marks(where)
                  for where in _MARKED
              },
              model_on_one=_train_twice(client_tf_devices=['CPU:0']),
              model_on_three=_train_twice(**devices),
          )
      )
  )


def setUpModule():
  global _measured
  child = subprocess.run(
      [
          sys.executable,
          '-c',
          'import tff_dp\n'
          'from tests.execution import placement_test\n'
          'placement_test.print_measurements()',
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


class PlacementTest(parameterized.TestCase):

  def _clients_on(self, device: str) -> list[int]:
    # Round-robin, in the order in which the devices were given.
    first = _CLIENT_DEVICES.index(device)
    return list(range(first, _NUM_CLIENTS, len(_CLIENT_DEVICES)))

  def test_context_names_its_devices_in_full(self):
    prefix = '/job:localhost/replica:0/task:0/device:'
    self.assertEqual(
        _measured['client_devices'],
        [prefix + device for device in _CLIENT_DEVICES],
    )
    self.assertEqual(_measured['server_device'], prefix + _SERVER_DEVICE)

  def test_work_of_client_i_is_on_device_i(self):
    self.assertEqual(
        _measured['marks']['client'],
        {device: self._clients_on(device) for device in _CLIENT_DEVICES},
    )

  @parameterized.parameters('iterator_loop', 'reduce_loop')
  def test_loop_over_a_dataset_is_on_the_device_too(self, loop):
    # The dataset itself stays on CPU:0, but not the work with its elements.
    self.assertEqual(
        _measured['marks'][loop],
        {
            device: [
                10 * client + number
                for client in self._clients_on(device)
                for number in (1, 2)
            ]
            for device in _CLIENT_DEVICES
        },
    )

  def test_updates_are_accumulated_where_they_arise(self):
    self.assertEqual(
        _measured['marks']['accumulate'], _measured['marks']['client']
    )

  def test_merge_and_report_are_on_the_server(self):
    # Every client adds 6: first 6 clients of two workers, then all 8.
    self.assertEqual(_measured['marks']['merge'], {_SERVER_DEVICE: [36, 48]})
    self.assertEqual(_measured['marks']['report'], {_SERVER_DEVICE: [48]})
    self.assertEqual(_measured['result'], 48)

  def test_model_is_the_same_on_one_device(self):
    np.testing.assert_allclose(
        _measured['model_on_three'],
        _measured['model_on_one'],
        rtol=1e-6,
        atol=1e-6,
    )
    self.assertGreater(np.ptp(_measured['model_on_one']), 0.1)


if __name__ == '__main__':
  absltest.main()
