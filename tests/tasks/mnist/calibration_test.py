# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what is searched for once, and kept."""

import json
import pathlib

from absl.testing import absltest

from tasks.mnist import calibration


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


if __name__ == '__main__':
  absltest.main()
