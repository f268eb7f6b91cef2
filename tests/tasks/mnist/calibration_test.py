# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is searched for: close to its target, and never above."""

import json
import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tasks.mnist import calibration
from tff_dp import _checks


class CalibrationsTest(absltest.TestCase):

  def test_a_number_is_searched_for_once_and_kept(self):
    path = pathlib.Path(self.create_tempdir()) / 'folder' / 'found.json'
    calibrations = calibration.Calibrations(path)
    self.assertEqual(calibrations.find('one', lambda: 0.1), 0.1)
    self.assertEqual(calibrations.find('one', self.fail), 0.1)
    self.assertEqual(calibrations.find('two', lambda: 2.0), 2.0)
    self.assertEqual(
        calibration.Calibrations(path).find('one', self.fail), 0.1
    )
    self.assertEqual(json.loads(path.read_text()), {'one': 0.1, 'two': 2.0})

  def test_without_a_file_it_is_searched_for_by_each(self):
    self.assertEqual(calibration.Calibrations().find('one', lambda: 1.0), 1.0)
    self.assertEqual(calibration.Calibrations().find('one', lambda: 2.0), 2.0)


class LargestTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('line', lambda x: x),
      ('steep', lambda x: x**6 / 1000),
      ('flat', lambda x: x**0.1),
      ('vacuous', lambda x: x if x < 3 else math.inf),
      ('jump', lambda x: 0.01 * x if x < 2.5 else 5.0),
  )
  def test_is_close_and_never_above(self, epsilon):
    found = calibration.largest(epsilon, 1.2, low=0.01, high=8.0)
    self.assertLessEqual(epsilon(found), 1.2)
    self.assertGreater(epsilon(found * 1.01), 1.19)

  def test_ends_of_the_range(self):
    self.assertEqual(
        calibration.largest(lambda x: 0.1 * x, 1.0, low=0.01, high=8.0), 8.0
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'epsilon=1.0 .*at least 3'
    ):
      calibration.largest(lambda x: 3.0 + x / 100, 1.0, low=0.01, high=8.0)


if __name__ == '__main__':
  absltest.main()
