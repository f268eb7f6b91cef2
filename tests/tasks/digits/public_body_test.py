# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the task with a public body: what it trains, shows and refuses."""

import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks import __main__ as tasks_main
from tasks.digits import public_body
from tasks.digits import sweep
from tests.cli import command
from tff_dp import _compat

_needs_keras3 = pytest.mark.skipif(
    not _compat.COLUMN.needs_shim, reason='needs Keras 3: columns B and C'
)


def _main(*argv):
  return command.run(tasks_main.main, 'sweep', 'public_body', *argv)


class TableTest(absltest.TestCase):

  def test_has_sizes_noise_and_accuracies(self):
    cells = [
        sweep.Cell(row, epsilon, 0.1, (accuracy, accuracy))
        for row, accuracy in (('head', 0.9), ('all', 0.5))
        for epsilon in (2.0, 8.0)
    ]
    text = public_body.table(
        cells,
        {'head': 1290, 'all': 53034},
        {2.0: 4.0, 8.0: 1.5},
        clients_per_round=100,
        public_accuracy=0.594,
    )
    head, _, *rows = [
        [word.strip() for word in line.strip('|').split('|')]
        for line in text.splitlines()
    ]
    self.assertEqual(head[-2:], ['epsilon 2', 'epsilon 8'])
    self.assertEqual(
        rows,
        [
            ['nothing', '0', '0', '0', '0.594', '0.594'],
            # 1.5 sqrt(1290) / 100 and 1.5 sqrt(53034) / 100.
            ['head', '1,290', '5.2', '0.54'] + ['0.900 ± 0.000'] * 2,
            ['all', '53,034', '212.1', '3.45'] + ['0.500 ± 0.000'] * 2,
        ],
    )
    drawn = []
    with mock.patch.object(
        public_body, 'plot', lambda points, path: drawn.extend(points)
    ):
      public_body.plot_table([head, *rows], pathlib.Path('x.png'))
    self.assertEqual(drawn, [cell.point for cell in cells])


class RefusalTest(parameterized.TestCase):

  @pytest.mark.skipif(_compat.COLUMN.needs_shim, reason='Keras 3 is here')
  def test_without_keras_3(self):
    folder = pathlib.Path(self.create_tempdir()) / 'sweep'
    code, out, err = _main('--output-dir', folder)
    self.assertEqual((code, out), (3, ''))
    self.assertIn('needs Keras 3', err)
    self.assertIn('make environment-current', err)
    self.assertFalse(folder.exists())

  @parameterized.named_parameters(
      ('epsilon', '--epsilons=-2', '--epsilons=-2.0'),
      ('rate', '--server-learning-rates=0', '--server-learning-rates=0.0'),
      ('gap', '--min-index-gap=30', '--min-index-gap=30'),
  )
  @_needs_keras3
  def test_of_a_bad_value(self, flag, named):
    folder = pathlib.Path(self.create_tempdir()) / 'sweep'
    code, out, err = _main(flag, '--output-dir', folder)
    self.assertEqual((code, out), (2, ''))
    self.assertIn(named, err)
    self.assertFalse(folder.exists())


@_needs_keras3
class RunTest(absltest.TestCase):

  def test_what_rows_train(self):
    found = {}
    for row in public_body.ROWS:
      model = public_body.build_model()
      public_body.freeze(model, row)
      found[row] = [tuple(each.shape) for each in model.trainable_variables]
    head, a, b = [(128, 10), (10,)], (400, 4), (4, 128)
    everything = [(5, 5, 1, 16), (16,), (400, 128), (128,), *head]
    self.assertEqual(
        found,
        {
            'head': head,
            'lora': [a, b, *head],
            'frozen_a': [b, *head],
            'all': everything,
            'scratch': everything,
        },
    )

  def test_digits_for_choices_are_others_than_for_results(self):
    choices, results = public_body.held_out()
    for digits in (choices, results):
      np.testing.assert_array_equal(np.bincount(digits.labels), [50] * 10)
    both = {each.tobytes() for each in choices.images}
    self.assertFalse(both & {each.tobytes() for each in results.images})

  def test_two_runs_and_again(self):
    folder = pathlib.Path(self.create_tempdir()) / 'sweep'
    flags = (
        '--output-dir', folder, '--epsilons', '8', '--rows', 'frozen_a',
        '--seeds', '2', '--server-learning-rates', '0.1', '--body-epochs', '1',
        '--total-rounds=4', '--clients-per-round=20', '--min-index-gap=2',
        '--jobs=1',
    )
    code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    content = json.loads((folder / 'public_body.json').read_text())
    (cell,) = content['cells']
    self.assertLen(cell['accuracies'], 2)
    self.assertEqual(content['num_trained'], {'frozen_a': 1802})
    self.assertIn('| frozen_a | 1,802 | 7.2 |', out)
    statement = next(folder.rglob('seed_0/**/privacy_statement.md')).read_text()
    self.assertIn('UCI, CC BY 4.0', statement)
    self.assertGreater((folder / 'public_body.png').stat().st_size, 5000)
    code, again, err = _main(*flags)
    self.assertEqual((code, again), (0, out))
    self.assertEqual(err.count('(done before)'), 2)


if __name__ == '__main__':
  absltest.main()
