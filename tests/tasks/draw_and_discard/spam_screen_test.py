# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the trial of spam screens."""

import argparse
import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tasks.draw_and_discard import spam_screen


class SpamScreenTest(parameterized.TestCase):

  def test_a_fixed_threshold_fails_where_there_are_many_weights(self):
    folder = pathlib.Path(self.create_tempdir())
    settings = spam_screen.Settings(
        output_dir=str(folder), num_params=(10, 1500), instances=8,
        samples=150, target_rate=0.1,
    )
    self.assertEqual(
        spam_screen.main(settings, where=None, progress='quiet'), 0
    )
    rows = json.loads((folder / 'results.json').read_text())['rows']
    refused = {
        (row['num_params'], row['screen']): row['refused'] for row in rows
    }
    self.assertLen(refused, 8)
    for (_, screen), found in refused.items():
      # The sampling deviation is 0.025, that of the cut as much.
      if screen != 'any, fixed':
        self.assertLess(found['honest'], 0.1 + 5 * 0.035)
      # Far in all weights: every rule sees it.
      self.assertGreater(found['random'], 0.9)
    self.assertLess(refused[10, 'any, fixed']['honest'], 0.1 + 5 * 0.035)
    self.assertGreater(refused[1500, 'any, fixed']['honest'], 0.6)
    # One weight out of many is what a share does not see.
    self.assertGreater(refused[1500, 'any']['one weight'], 0.7)
    self.assertLess(refused[1500, 'fraction']['one weight'], 0.4)
    self.assertIn('| 1500 | any, fixed |', (folder / 'results.md').read_text())

  def test_planted_models(self):
    given = np.linspace(-1, 1, 4000)
    planted = spam_screen._planted(given, 0.5, 2.0, np.random.default_rng(1))
    self.assertEqual(('honest', *planted), spam_screen.KINDS)
    change = {kind: model - given for kind, model in planted.items()}
    # Laplace noise of scale 5 has this mean size; 4,000 weights.
    self.assertAlmostEqual(np.abs(change['scaled']).mean(), 5.0, delta=0.5)
    np.testing.assert_allclose(change['shifted'], 10.0)
    self.assertGreater(change['one weight'][0], 60.0 - 0.5 * 20)
    self.assertLess(np.abs(change['one weight'][1:]).max(), 0.5 * 20)
    self.assertAlmostEqual(planted['random'].std(), 20.0, delta=1.5)

  @parameterized.parameters(
      (dict(num_params=(0,)), 'num_params=0'),
      (dict(instances=2), 'instances=2'),
      (dict(target_rate=1.0), 'target_rate=1'),
      (dict(samples=10), 'samples=10'),
      (dict(epsilon_per_coordinate=0.0), 'epsilon_per_coordinate=0'),
  )
  def test_bad_flags_name_themselves(self, changes, message):
    with self.assertRaisesRegex(ValueError, message):
      spam_screen.Settings(**changes)

  def test_flags_have_the_defaults_of_the_settings(self):
    parser = argparse.ArgumentParser()
    spam_screen.add_arguments(parser)
    self.assertEqual(
        spam_screen.Settings(**vars(parser.parse_args([]))),
        spam_screen.Settings(),
    )


if __name__ == '__main__':
  absltest.main()
