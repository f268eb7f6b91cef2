# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the task on insurance charges, with made people."""

import contextlib
import dataclasses
import io
import json
import pathlib
from unittest import mock

from absl.testing import absltest
import numpy as np
import pytest

from tasks.common import engine
from tasks.silos import insurance
from tasks.silos import silo_algorithms
from tasks.silos import silo_cells
from tasks.silos import silo_data
from tests.tasks.silos import silo_tables


class InsuranceTest(absltest.TestCase):

  def test_layouts(self):
    table = silo_tables.insurance_table(120)
    sizes = {
        layout: insurance.problem(table, layout).split(1).num_records
        for layout in insurance.LAYOUTS
    }
    self.assertEqual([len(of) for of in sizes.values()], [3, 5, 10, 4])
    self.assertEqual(set(sizes['charges_10'].values()), {9})
    self.assertEqual(
        insurance.problem(table, 'charges_10').silos_per_round, 5
    )
    problem = insurance.problem(table, 'region')
    self.assertEqual(problem.error_name, 'relative RMSE')
    for records in problem.split(0).train.values():
      self.assertEqual(records.features.shape[1], problem.num_features)
      self.assertLess(np.linalg.norm(records.features, axis=1).max(), 1 + 1e-6)
      self.assertBetween(records.labels.min(), 0, 1)
      self.assertBetween(records.labels.max(), 0, 1)

  def _run(self, folder, *words):
    """Runs the command on made people, and returns its settings."""
    silo_tables.write(
        silo_tables.insurance_table(200), folder / 'insurance.csv'
    )
    any_content = dataclasses.replace(silo_data.INSURANCE, sha256=None)
    settings = silo_tables.settings_of(
        insurance, '--data', folder, '--output-dir', folder / 'runs',
        '--algorithms', 'mb_sgd', '--seeds', 1, '--step-scales', 2,
        '--rounds', 30, *words,
    )  # pyformat: disable
    with mock.patch.object(
        silo_data, 'INSURANCE', any_content
    ), contextlib.redirect_stdout(io.StringIO()):
      code = insurance.main(
          settings, where=engine.EngineSettings(), progress='quiet'
      )
    self.assertEqual(code, 0)
    return settings

  @pytest.mark.once
  def test_without_privacy_it_beats_the_mean(self):
    folder = pathlib.Path(self.create_tempdir())
    self._run(folder, '--layouts', 'region')
    content = json.loads((folder / 'runs/results.json').read_text())
    (cell,) = content['cells']
    self.assertLess(cell['test_error'], 0.9)

  def test_each_of_several_layouts_has_a_folder(self):
    folder = pathlib.Path(self.create_tempdir())
    weights = np.zeros([10, 1])
    with mock.patch.object(
        silo_algorithms.Algorithm, 'build'
    ), mock.patch.object(
        silo_cells, 'train', return_value=(weights, {})
    ) as train:
      settings = self._run(folder)
    self.assertEqual(train.call_count, 4)
    for layout in settings.layouts:
      path = folder / 'runs' / layout / 'results.json'
      self.assertLen(json.loads(path.read_text())['cells'], 1)

  def test_a_layout_that_does_not_exist_is_named(self):
    with self.assertRaisesRegex(ValueError, "layouts='age'"):
      insurance.Settings(layouts=('region', 'age'))


if __name__ == '__main__':
  absltest.main()
