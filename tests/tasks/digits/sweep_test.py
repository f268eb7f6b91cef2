# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the sweep: what it chooses, what it reports, and that it resumes."""

from concurrent import futures
import json
import math
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import types
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tasks import __main__ as tasks_main
from tasks.digits import digits
from tasks.digits import sweep
from tests.cli import command
from tff_dp import _checks


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
      ('rounds', '--total-rounds=0', '--total-rounds=0'),
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


  def test_points_come_back_from_the_table(self):
    cells = [
        _cell('non_private', math.inf, 0.9, 0.92),
        _cell('tree', 2.0, 0.5, 0.7, 0.9),
        _cell('tree', 16.0, 0.8, 0.8, 0.83),
        _cell('blt', 2.0, 0.1, 0.2),
        _cell('blt', 16.0, 0.3, 0.9),
    ]
    head, _, *lines = [
        [word.strip() for word in line.strip('|').split('|')]
        for line in sweep.table(cells).splitlines()
    ]
    read = sweep.points_of([head, *lines])
    self.assertEqual([p[:2] for p in read], [c.point[:2] for c in cells])
    for name in ('mean', 'deviation'):
      np.testing.assert_allclose(
          [getattr(point, name) for point in read],
          [getattr(cell, name) for cell in cells],
          atol=5e-4,
      )


# A sweep's process whose worker has a run of ten minutes.
_PARENT = """
from concurrent import futures
import multiprocessing
import os
import time

from tasks.digits import sweep

if __name__ == '__main__':
  with futures.ProcessPoolExecutor(
      1,
      mp_context=multiprocessing.get_context('spawn'),
      initializer=sweep.end_with_parent,
  ) as process:
    print(process.submit(os.getpid).result(), flush=True)
    process.submit(time.sleep, 600).result()
"""


def _has_ended(process: int) -> bool:
  """Waits up to a minute for a process to end."""
  for _ in range(600):
    try:
      os.kill(process, 0)
    except ProcessLookupError:
      return True
    time.sleep(0.1)
  return False


def _no_process(*unused_args, **unused_kwargs):
  raise AssertionError('No process is needed for what is done.')


class _Threads(futures.ThreadPoolExecutor):
  """Threads in the place of processes, which take what can be sent there."""

  def __init__(self, jobs, **unused_options):
    super().__init__(jobs)

  def submit(self, function, *arguments):
    return super().submit(*pickle.loads(pickle.dumps((function, *arguments))))


class ErrorTest(absltest.TestCase):

  def test_an_error_of_a_worker_keeps_its_words_on_the_way_to_its_parent(self):
    # The value, here a function, cannot be sent.
    error = _checks.ArgumentError(
        'output_dir', lambda: None, 'a new one', why='it is old', way_out='x'
    )
    error.add_note('the run of seed 3')
    found = pickle.loads(pickle.dumps(error))
    self.assertIsInstance(found, _checks.ArgumentError)
    self.assertEqual(str(found), str(error))
    self.assertEqual(found.__notes__, ['the run of seed 3'])
    self.assertEqual(
        (found.argument, found.value, found.allowed, found.why, found.way_out),
        ('output_dir', None, 'a new one', 'it is old', 'x'),
    )


class RunTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir()) / 'sweep'

  def _cells(self):
    return json.loads((self._folder / 'sweep.json').read_text())['cells']

  def test_chooses_a_step_size_for_each_row_and_resumes(self):
    """With made-up accuracies, in this process."""
    made = []
    good = {'blt': 0.05, 'honaker': 1e-6, 'non_private': 0.05}

    def run(settings, *, where, progress):
      del where
      self.assertEqual(progress, 'quiet')
      (row,) = settings.rows
      made.append((row, settings.server_learning_rate, settings.seed))
      pathlib.Path(settings.output_dir, row).mkdir(parents=True, exist_ok=True)
      # On every other seed the step size that is not chosen is the better one.
      is_good = settings.server_learning_rate == good[row]
      accuracy = 0.5 + 0.25 * (is_good == (settings.seed == 1000))
      accuracy += settings.seed / 64
      return [types.SimpleNamespace(test_accuracy=accuracy)]

    self.enterContext(mock.patch.object(digits, 'run', run))
    self.enterContext(
        mock.patch.object(sweep.futures, 'ProcessPoolExecutor', _Threads)
    )
    flags = [
        'sweep', 'digits', '--output-dir', self._folder, '--epsilons', '4',
        '--rows', *good, '--seeds', '2', '--server-learning-rates', '1e-6',
        '0.05', '--total-rounds=6', '--clients-per-round=16',
        '--min-index-gap=3', '--jobs=1',
    ]
    code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    self.assertIn('run 12 of 12: non_private seed 1', err)
    self.assertCountEqual(
        made,
        [(row, rate, 1000) for row in good for rate in (1e-6, 0.05)]
        + [(row, rate, seed) for row, rate in good.items() for seed in (0, 1)],
    )
    for cell, (row, rate) in zip(self._cells(), good.items(), strict=True):
      self.assertEqual(cell['row'], row)
      self.assertEqual(cell['server_learning_rate'], rate)
      self.assertEqual(cell['accuracies'], [0.5, 0.515625])
    self.assertIn('| blt | 0.508 ± 0.011 |', out)
    code, again, err = _main(*flags)
    self.assertEqual((code, again), (0, out))
    self.assertEqual(err.count('(done before)'), 12)
    self.assertLen(made, 12)
    # With other settings it is another run.
    (path,) = self._folder.glob('epsilon_4/*/seed_0/blt/accuracy.json')
    content = json.loads(path.read_text())
    content['settings']['clients_per_round'] = 17
    path.write_text(json.dumps(content))
    del made[:]
    _main(*flags)
    self.assertEqual(made, [('blt', 0.05, 0)])

  # It trains as the task does, and its work is sent as in the test above.
  @pytest.mark.slow
  def test_a_run_in_a_process_of_its_own(self):
    flags = (
        'sweep', 'digits', '--output-dir', self._folder, '--epsilons', '4',
        '--rows', 'blt', '--seeds', '1', '--server-learning-rates', '0.05',
        '--total-rounds=6', '--clients-per-round=16', '--min-index-gap=3',
        '--jobs=1',
    )
    code, out, err = _main(*flags)
    self.assertEqual(code, 0, err)
    self.assertIn('run 1 of 1: blt epsilon 4', err)
    (cell,) = self._cells()
    (path,) = self._folder.rglob('accuracy.json')
    self.assertEqual(
        path.relative_to(self._folder).parts,
        ('epsilon_4', 'rate_0.05', 'seed_0', 'blt', 'accuracy.json'),
    )
    accuracy = json.loads(path.read_text())['test_accuracy']
    self.assertEqual(cell['accuracies'], [accuracy])
    self.assertIn(f'| blt | {accuracy:.3f} |', out)
    self.assertGreater((self._folder / 'sweep.png').stat().st_size, 5000)
    # The run keeps its own statement.
    self.assertLen(list(self._folder.rglob('privacy_statement.md')), 1)
    with mock.patch.object(
        futures.ProcessPoolExecutor, 'submit', _no_process
    ):
      code, again, err = _main(*flags)
    self.assertEqual((code, again), (0, out))
    self.assertEqual(err.count('(done before)'), 1)

  @parameterized.parameters(signal.SIGTERM, signal.SIGKILL)
  @pytest.mark.slow(cases=['0'])
  def test_a_worker_ends_with_its_parent(self, signal_number):
    script = pathlib.Path(self.create_tempdir()) / 'parent.py'
    script.write_text(_PARENT)
    root = pathlib.Path(sweep.__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        env=os.environ | {'PYTHONPATH': str(root)},
    ) as parent:
      worker = int(parent.stdout.readline())
      parent.send_signal(signal_number)
      parent.wait()
    self.assertTrue(_has_ended(worker))


if __name__ == '__main__':
  absltest.main()
