# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests of the sweep: what it chooses, what it reports, and that it resumes."""

import json
import math
import pathlib

from absl.testing import absltest
from absl.testing import parameterized

from tasks import __main__ as tasks_main
from tasks import sweep
from tests.cli import command


def _main(*argv):
  return command.run(tasks_main.main, *argv)


def _cell(row, epsilon, *accuracies):
  return sweep.Cell(
      row=row,
      epsilon=epsilon,
      server_learning_rate=0.1,
      accuracies=accuracies,
  )


class FlagsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('epsilon', '--epsilons=-2', '--epsilons=-2.0'),
      ('rate', '--server-learning-rates=0', '--server-learning-rates=0.0'),
      ('seeds', '--seeds=0', '--seeds=0'),
      ('jobs', '--jobs=0', '--jobs=0'),
      ('row', '--rows=wavelet', "'wavelet'"),
      ('gap', '--min-index-gap=200', '--min-index-gap=200'),
      ('task', None, 'TASK=letters'),
  )
  def test_a_bad_value_is_one_line_and_nothing_is_written(self, flag, named):
    folder = pathlib.Path(self.create_tempdir()) / 'sweep'
    words = ('letters',) if flag is None else (
        'digits', flag, '--output-dir', folder
    )
    code, out, err = _main('sweep', *words)
    self.assertEqual((code, out), (2, ''))
    self.assertIn(named, err)
    self.assertFalse(folder.exists())


class TableTest(absltest.TestCase):

  def test_a_line_for_each_row_and_a_column_for_each_epsilon(self):
    text = sweep.table([
        _cell('non_private', math.inf, 0.9, 0.9),
        _cell('blt', 2.0, 0.5, 0.7),
        _cell('blt', 16.0, 0.8, 0.8),
    ])
    self.assertEqual(
        text.splitlines(),
        [
            '| noise | epsilon 2 | epsilon 16 |',
            '|---|---|---|',
            '| none (no privacy) | 0.900 ± 0.000 | |',
            '| blt | 0.600 ± 0.141 | 0.800 ± 0.000 |',
        ],
    )

  def test_one_seed_has_no_deviation(self):
    self.assertTrue(math.isnan(_cell('blt', 2.0, 0.5).deviation))
    self.assertIn('| blt | 0.500 |', sweep.table([_cell('blt', 2.0, 0.5)]))


class RunTest(absltest.TestCase):

  def test_chooses_a_step_size_reports_all_seeds_and_resumes(self):
    folder = pathlib.Path(self.create_tempdir()) / 'sweep'
    flags = (
        'sweep', 'digits', '--output-dir', folder, '--epsilons', '4',
        '--rows', 'blt', '--seeds', '2', '--server-learning-rates', '1e-6',
        '0.05', '--total-rounds=6', '--clients-per-round=16',
        '--min-index-gap=3', '--jobs=1',
    )
    code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    self.assertIn('run 4 of 4: blt epsilon 4', err)
    (cell,) = json.loads((folder / 'sweep.json').read_text())['cells']
    self.assertLen(cell['accuracies'], 2)
    self.assertIn(f'{cell["mean"]:.3f} ± {cell["standard_deviation"]:.3f}', out)
    self.assertGreater((folder / 'sweep.png').stat().st_size, 5000)
    # The step size is the better one on the tuning seed.
    tuned = {
        path.parts[-4]: json.loads(path.read_text())['test_accuracy']
        for path in folder.glob('epsilon_4/*/seed_1000/blt/accuracy.json')
    }
    self.assertLen(tuned, 2)
    self.assertEqual(
        f'rate_{cell["server_learning_rate"]:g}', max(tuned, key=tuned.get)
    )
    # Each run keeps its own statement.
    self.assertLen(list(folder.rglob('privacy_statement.md')), 4)
    code, again, err = _main(*flags)
    self.assertEqual((code, again), (0, out))
    self.assertEqual(err.count('(done before)'), 4)


if __name__ == '__main__':
  absltest.main()
