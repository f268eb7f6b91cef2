# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Client i works on its device, the server on its own: on virtual CPUs.

TensorFlow splits a CPU into several devices only before it starts, so a child
process measures, once, and the tests read what it printed.
"""

import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.execution import child_process

_CLIENT_DEVICES = ('CPU:1', 'CPU:2', 'CPU:0')
_SERVER_DEVICE = 'CPU:3'
_NUM_CLIENTS = 8

_measured = None


def setUpModule():
  global _measured
  printed = child_process.lines_of('tests.execution.placement_run')
  _measured = json.loads(printed[-1])


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

  def test_functions_of_datasets_stay_on_the_first_cpu(self):
    # A GPU would start them with elements that are in the CPU's memory.
    numbers = [
        10 * client + number
        for client in range(_NUM_CLIENTS)
        for number in (1, 2)
    ]
    self.assertEqual(_measured['marks']['mapped'], {'CPU:0': numbers})

  def test_reductions_of_sequences_stay_on_the_first_cpu(self):
    found = _measured['devices_of_reductions']
    self.assertGreaterEqual(len(found), 2)
    self.assertEqual(set(found), {'/device:CPU:0'})

  def test_returned_datasets_are_on_the_first_cpu_and_their_work_is_not(self):
    # An iterator is where its dataset is, and starts its functions there.
    self.assertEqual(
        _measured['devices_of_returned_datasets'], ['CPU:0'] * _NUM_CLIENTS
    )
    self.assertEqual(
        _measured['marks']['before_a_dataset'],
        {device: self._clients_on(device) for device in _CLIENT_DEVICES},
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

  def test_arguments_are_on_the_same_devices_in_each_round(self):
    # Else TensorFlow optimizes the function again, in seconds.
    self.assertGreater(_measured['num_functions'], 3)
    self.assertEqual(_measured['most_devices_of_arguments'], 1)

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
