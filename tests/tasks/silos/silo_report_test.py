# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the tables and plots of the silos' tasks, on made cells."""

import json
import math
import pathlib

from absl.testing import absltest

from tasks.silos import silo_algorithms
from tasks.silos import silo_cells
from tasks.silos import silo_models
from tasks.silos import silo_report
from tasks.silos import silo_settings


def cell(algorithm, epsilon, error, *, seed=0, spent=None):
  """Returns a cell whose silos a and b spent two epsilons."""
  facts = {}
  if spent is not None:
    facts = {
        name: {'epsilon': value, 'delta': 1e-4, 'num_records': 100}
        for name, value in zip('ab', spent)
    }
  return silo_cells.Cell(
      algorithm=algorithm,
      epsilon=epsilon,
      scale=0.5,
      seed=seed,
      test_error=error,
      train_error=error,
      silos=facts,
  )


_CELLS = [
    cell('mb_sgd', math.inf, 0.1),
    cell('mb_sgd', math.inf, 0.1, seed=1),
    cell('noisy_mb_sgd', 1.0, 0.3, spent=(0.5, 0.75)),
    cell('noisy_mb_sgd', 1.0, 0.5, seed=1, spent=(0.625, 0.5)),
    cell('noisy_mb_sgd', 4.0, 0.2, spent=(4.0, 3.0)),
    cell('noisy_mb_sgd', 4.0, 0.2, seed=1, spent=(4.0, 3.0)),
    cell('isrl_local_sgd', 1.0, 0.6, spent=(1.0, 1.0)),
    cell('isrl_local_sgd', 1.0, 0.4, seed=1, spent=(1.0, 1.0)),
    cell('isrl_local_sgd', 4.0, 0.2, spent=(4.0, 4.0)),
    cell('isrl_local_sgd', 4.0, 0.2, seed=1, spent=(4.0, 4.0)),
]
_PROBLEM = silo_algorithms.Problem(
    name='made',
    title='Made',
    loss=silo_models.LOGISTIC,
    split=lambda seed: None,
    num_features=2,
    notes=('All of it is made.',),
)


class TableTest(absltest.TestCase):

  def test_a_line_for_each_algorithm_and_a_column_for_each_epsilon(self):
    self.assertEqual(
        silo_report.table(_CELLS).splitlines(),
        [
            '| algorithm | epsilon 1 | epsilon 4 | no privacy |',
            '|---|---|---|---|',
            '| MB-SGD without noise |  |  | 0.100 ± 0.000 |',
            '| noisy MB-SGD | 0.400 ± 0.141 | 0.200 ± 0.000 |  |',
            '| ISRL local SGD | 0.500 ± 0.141 | 0.200 ± 0.000 |  |',
        ],
    )

  def test_one_seed_has_no_deviation_and_a_diverged_run_is_infinite(self):
    self.assertIn('| 0.300 |', silo_report.table([_CELLS[2]]))
    diverged = [_CELLS[2], cell('noisy_mb_sgd', 1.0, math.inf, seed=1)]
    self.assertIn('| inf |', silo_report.table(diverged))

  def test_every_silo_and_the_most_that_it_spent_rounded_up(self):
    lines = silo_report.spending(_CELLS).splitlines()
    self.assertEqual(
        lines[0], '| silo | records | delta | algorithm | budget 1 | budget 4 |'
    )
    self.assertEqual(
        lines[2], '| a | 100 | 0.0001000 | noisy MB-SGD | 0.6250 | 4.000 |'
    )
    self.assertEqual(
        lines[4], '| b | 100 | 0.0001000 | noisy MB-SGD | 0.7500 | 3.000 |'
    )
    self.assertLen(lines, 6)
    self.assertEqual(silo_report.spending(_CELLS[:2]), '')

  def test_the_verdict_names_where_local_sgd_is_not_behind(self):
    # At 4 they are equal, which is not ahead.
    self.assertEqual(silo_report.exceptions(_CELLS), [4.0])
    self.assertIn('NOT a lower error', silo_report.verdict(_CELLS))
    at_one = [one for one in _CELLS if one.epsilon == 1.0]
    self.assertIn('throughout', silo_report.verdict(at_one))
    self.assertEqual(silo_report.verdict(_CELLS[:6]), '')


class WriteTest(absltest.TestCase):

  def test_json_markdown_and_plot(self):
    folder = pathlib.Path(self.create_tempdir()) / 'new'
    settings = silo_settings.Settings(output_dir=str(folder), seeds=2)
    text = silo_report.write(_PROBLEM, settings, _CELLS)
    self.assertEqual((folder / 'results.md').read_text(), text + '\n')
    self.assertIn('- All of it is made.', text)
    self.assertIn('not private and not charged', text)
    content = json.loads((folder / 'results.json').read_text())
    cells = [silo_cells.Cell.from_json(one) for one in content['cells']]
    self.assertEqual(cells, _CELLS)
    self.assertGreater((folder / 'errors.png').stat().st_size, 5000)


if __name__ == '__main__':
  absltest.main()
