# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the task on levels of obesity, with made people."""

import pathlib

from absl.testing import absltest
import numpy as np

from tasks.common import digits_data
from tasks.silos import obesity
from tasks.silos import silo_study
from tests.tasks.silos import silo_tables
from tff_dp import execution


class ObesityTest(absltest.TestCase):

  def test_runs_with_seven_classes_and_three_silos_a_round(self):
    execution.set_default_context()
    folder = pathlib.Path(self.create_tempdir())
    silo_tables.write(silo_tables.obesity_table([12] * 7), folder / 'any.csv')
    problem = obesity.problem(str(folder / 'any.csv'))
    self.assertEqual(set(problem.split(3).num_records.values()), {9})
    settings = silo_tables.settings_of(
        obesity, '--output-dir', folder, '--algorithms', 'noisy_mb_sgd',
        '--seeds', 1, '--epsilons', 4, '--step-scales', 2, '--rounds', 2,
    )  # pyformat: disable
    (cell,) = silo_study.run(problem, settings, is_quiet=True)
    self.assertEqual(
        sum(facts['num_rounds'] for facts in cell.silos.values()), 2 * 3
    )
    self.assertBetween(cell.test_error, 0.0, 1.0)

  def test_clip_norm_is_above_every_gradient_of_cross_entropy(self):
    # (p - e_y) x with |x| <= 1: at most the root of 2.
    self.assertGreater(obesity.Settings().l2_norm_clip, np.sqrt(2))

  def test_without_the_file_it_says_how_to_get_it(self):
    with self.assertRaisesRegex(
        digits_data.DataFileError, 'UCI Machine Learning Repository'
    ):
      obesity.problem('/nowhere/obesity.csv')


if __name__ == '__main__':
  absltest.main()
