# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Memory stays flat, and nothing is traced anew, over 200 unlike rounds."""

import json

from absl.testing import absltest
import numpy as np

from tests.execution import child_process

_NUM_ROUNDS = 200
_NUM_WARM_UP = 50
# Models a round. The heap goes on to settle for some 700 rounds, by up to 0.15
# models a round over the first 200; what leaks a client's model has 1 or more.
_MAX_SLOPE = 0.4

_measured = None


def setUpModule():
  global _measured
  # A process of its own, so that no other test is measured.
  printed = child_process.lines_of('tests.execution.memory_run')
  _measured = json.loads(printed[-1])


class MemoryTest(absltest.TestCase):

  def test_memory_is_flat(self):
    resident = np.array(_measured['resident'])
    rounds = np.arange(len(resident)) * _measured['rounds_per_reading']
    self.assertEqual(rounds[-1] + _measured['rounds_per_reading'], _NUM_ROUNDS)
    steady = rounds >= _NUM_WARM_UP
    slope, _ = np.polyfit(rounds[steady], resident[steady], 1)
    self.assertLess(slope, _MAX_SLOPE * _measured['model_bytes'])

  def test_data_of_clients_in_chunks_is_given_back(self):
    resident = np.array(_measured['resident_in_chunks'])
    rounds = np.arange(len(resident)) * _measured['rounds_per_reading']
    paths = {'at_once': 0, 'in_chunks': 240, 'one_by_one': 0}
    self.assertEqual(_measured['paths'], paths)
    steady = rounds >= 15
    slope, _ = np.polyfit(rounds[steady], resident[steady], 1)
    # Four clients come in a round: what keeps their data has 4 or more.
    self.assertLess(slope, 0.4 * _measured['client_bytes'])

  def test_nothing_is_traced_anew(self):
    # The first rounds see both workers, lists and datasets.
    self.assertLen(set(_measured['traces'][5:]), 1)
    self.assertBetween(_measured['traces'][-1], 1, 20)

  def test_released_computations_are_forgotten(self):
    self.assertLen(_measured['held'], 3)
    for with_it, _ in _measured['held']:
      self.assertGreater(with_it, 0)
    self.assertLess(_measured['held'][-1][1], 3)


if __name__ == '__main__':
  absltest.main()
