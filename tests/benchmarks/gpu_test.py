# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a GPU at tiny sizes, where a CPU stands for the card."""

import dataclasses
import itertools
import subprocess
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest
import tensorflow_federated as tff

from benchmarks import gpu
from tests.execution import conformance
from tests.execution import conformance_processes
from tff_dp import _checks

pytestmark = pytest.mark.once


class PartsTest(absltest.TestCase):

  def test_a_device_agrees_with_itself(self):
    cases = list(gpu.conformance(gpu.DRY))
    self.assertLen(cases, 2)
    self.assertEqual([case['differs'] for case in cases], ['', ''])

  def test_a_device_that_computes_something_else_is_named(self):
    numbers = itertools.count()

    def changes():
      number = np.float32(1 + 1e-4 * next(numbers))
      return (tff.tensorflow.computation(lambda: number),)

    with mock.patch.object(
        conformance_processes, 'CASES', {'changes': conformance.Case(changes)}
    ):
      (found,) = gpu.conformance(dataclasses.replace(gpu.DRY, cases=1))
    self.assertEqual(found['case'], 'changes')
    self.assertIn('tensor 0 is', found['differs'])

  def test_one_key_has_one_stream(self):
    found = list(gpu.stream(gpu.DRY))
    self.assertLen(found, 5)
    for record in found:
      self.assertEqual(record['number'], 5000)
      self.assertEqual(record['differ'], 0, record['draws'])

  def test_noise_is_in_draws(self):
    draw, independent = gpu.noise_of_a_round(gpu.DRY)
    self.assertEqual(draw['ratio'], 1)
    self.assertEqual(independent['weights'], 5000)
    self.assertGreater(independent['ratio'], 0)

  @pytest.mark.slow
  def test_rows_by_hand_and_in_process_make_the_same_round(self):
    found = gpu.with_floors(list(gpu.rounds(gpu.DRY)))
    measured = [record for record in found if 'absent' not in record]
    self.assertGreater(len(measured), 2)
    self.assertEqual(
        [record['row'] for record in measured[-2:]],
        ['in_process/mean', 'in_process/dp_ftrl'],
    )
    self.assertEqual(min(r['over_floor'] for r in measured[:-2]), 1)
    for record in measured:
      self.assertGreaterEqual(record['repetitions'], 1)
      self.assertAlmostEqual(
          record['norm_of_first_update'] / measured[0]['norm_of_first_update'],
          1,
          places=4,
      )


  def test_the_server_is_where_it_should_be(self):
    sizes = dataclasses.replace(gpu.DRY, server_device='GPU:7')
    with self.assertRaisesRegex(_checks.ArgumentError, 'server_tf_device='):
      list(gpu.rounds(sizes))


class CommandTest(absltest.TestCase):

  def test_a_case_that_ends_its_process_is_left_out(self):
    ends = [
        # Two cases, then the third one kills the process.
        (['a', 'b'], subprocess.CalledProcessError(-6, 'conformance')),
        # An error of the card: the process stops after it.
        (['d'], None),
        ([], None),
    ]
    asked = []

    def process(part, arguments):
      asked.append(arguments[-1])
      names, error = ends[len(asked) - 1]
      for name in names:
        yield {'case': name, 'differs': ''}
      if error:
        raise error

    with mock.patch.object(gpu, '_process', process):
      found = list(gpu._records('conformance', []))
    self.assertEqual(asked, ['0', '3', '4'])
    self.assertEqual(
        [record['case'] for record in found],
        ['a', 'b', 'conformance, record 2', 'd'],
    )
    self.assertIn('SIGABRT', found[2]['differs'])

  def test_without_a_gpu_there_is_a_way_out(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'GPU.*none.*--dry-run'):
      gpu.main([])

  def test_flags_change_sizes(self):
    parsed = gpu._parser().parse_args(['--clients', '7', '--seconds', '2'])
    expected = gpu.Sizes(clients=(7,), seconds=2.0)
    self.assertEqual(gpu.sizes_of(parsed), expected)


if __name__ == '__main__':
  absltest.main()
