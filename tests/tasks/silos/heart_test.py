# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the task on four hospitals, with made patients."""

import contextlib
import dataclasses
import io
import json
import math
import pathlib
from unittest import mock

from absl.testing import absltest
import numpy as np

from tasks.common import engine
from tasks.silos import heart
from tasks.silos import silo_algorithms
from tasks.silos import silo_data
from tests.tasks.silos import silo_tables

_COUNTS = (60, 50, 20, 30)


class HeartTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir())
    self._data = self._folder / 'heart_disease_uci.csv'
    table = silo_tables.heart_table(silo_tables.patients(_COUNTS))
    silo_tables.write(table, self._data)
    any_content = dataclasses.replace(silo_data.HEART, sha256=None)
    self.enter_context(mock.patch.object(silo_data, 'HEART', any_content))

  def test_the_problem_has_a_silo_for_each_hospital(self):
    problem = heart.problem(str(self._data))
    split = problem.split(0)
    self.assertEqual(
        split.num_records, dict(zip(heart.HOSPITALS, (48, 40, 16, 24)))
    )
    for records in split.train.values():
      self.assertEqual(records.features.shape[1], problem.num_features)
      self.assertLess(np.linalg.norm(records.features, axis=1).max(), 1 + 1e-6)
      self.assertContainsSubset(set(records.labels), {-1.0, 1.0})

  def test_one_command_prints_errors_and_what_every_hospital_spent(self):
    settings = silo_tables.settings_of(
        heart, '--data', self._data, '--epsilons', 2, '--seeds', 2,
        '--algorithms', 'noisy_mb_sgd', '--step-scales', 2, '--rounds', 3,
        '--output-dir', self._folder / 'runs',
    )  # pyformat: disable
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
      code = heart.main(
          settings, where=engine.EngineSettings(), progress='quiet'
      )
    self.assertEqual(code, 0)
    text = output.getvalue()
    self.assertIn('| noisy MB-SGD | 0.', text)
    for name, count in zip(heart.HOSPITALS, (48, 40, 16, 24)):
      self.assertIn(f'| {name} | {count} | ', text)
    content = json.loads((self._folder / 'runs/results.json').read_text())
    self.assertLen(content['cells'], 2)
    for cell in content['cells']:
      for name, facts in cell['silos'].items():
        self.assertLessEqual(facts['epsilon'], 2.0)
        # All hospitals are there in every round, so the budget is used up.
        self.assertGreater(facts['epsilon'], 1.95)
        self.assertAlmostEqual(facts['delta'], facts['num_records'] ** -2)
        self.assertIn(name, heart.HOSPITALS)

  def test_defaults_are_the_published_grid_and_all_rows(self):
    settings = silo_tables.settings_of(heart)
    self.assertEqual(settings, heart.Settings())
    self.assertEqual(settings.epsilons, (0.5, 1.0, 2.0, 4.0, 8.0, 16.0))
    self.assertContainsSubset(
        {
            'noisy_mb_sgd',
            'one_pass_accelerated',
            'accelerated_erm',
            'isrl_local_sgd',
            'mb_sgd',
            'local_sgd',
        },
        settings.algorithms,
    )
    self.assertContainsSubset(settings.algorithms, silo_algorithms.BY_NAME)
    self.assertTrue(all(map(math.isfinite, settings.step_scales)))


if __name__ == '__main__':
  absltest.main()
