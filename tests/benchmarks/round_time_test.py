# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that the benchmark of a round measures what it says, on tiny models."""

import contextlib
import dataclasses
import io
import json
import pathlib
import sys

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from benchmarks import round_graphs
from benchmarks import round_one_by_one
from benchmarks import round_report
from benchmarks import round_rows
from benchmarks import round_tasks
from benchmarks import round_tff
from benchmarks import round_time
from tff_dp import _checks
from tff_dp import execution

pytestmark = pytest.mark.once

_TASK = round_tasks.TASKS['tiny_cnn']


class SameResultTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._stack = self.enter_context(contextlib.ExitStack())

  @parameterized.parameters(
      ('tiny_cnn', round_tff.AGGREGATIONS),
      # The other model, which trains alike whatever becomes of its updates.
      ('tiny_lstm', ('tree',)),
      ('tiny_mlp', ('dp_ftrl',), ()),
      ('tiny_small_cnn', ('dp_ftrl',), ()),
  )
  @pytest.mark.slow(cases=['0', '1', '3'])
  def test_all_rows_compute_what_one_by_one_computes(
      self, name, aggregations, floors=('one_by_one_2_threads',)
  ):
    if not hasattr(execution, 'create_sync_in_process_context'):
      self.skipTest('no in-process context here')
    task = round_tasks.TASKS[name]
    names = [f'in_process/{aggregation}' for aggregation in aggregations]
    rows, absent = round_rows.make_rows(
        task, self._stack, wanted=[*floors, *names]
    )
    by_hand = ['one_by_one', *round_graphs.FORMS]
    # Large networks have no graph by hand; JAX is in the reference stack only.
    self.assertContainsSubset(absent, round_graphs.FORMS)
    self.assertEqual(
        [row.name for row in rows],
        [name for name in [*by_hand, *floors, *names] if name not in absent],
    )
    if name == 'tiny_small_cnn':
      self.assertEqual(list(absent), ['graph_jax'])
    round_rows.warm_up(task, rows)
    round_rows.measure(rows, 2)
    for row in rows:
      self.assertLess(row.difference, 1e-4, row.name)
      self.assertLen(row.seconds, 2)
      self.assertLen(row.cpu_seconds, 2)

  def test_a_row_that_does_something_else_is_caught(self):
    rows, _ = round_rows.make_rows(_TASK, self._stack, wanted=[])
    for changes in (
        # A step size 2 % off; without the last batch; without the last client.
        dict(learning_rate=_TASK.learning_rate * 1.02),
        dict(num_examples=_TASK.batch_size),
        dict(num_clients=_TASK.num_clients - 1),
    ):
      wrong = round_one_by_one.OneByOne(
          dataclasses.replace(_TASK, **changes), 1
      )
      self._stack.callback(wrong.close)
      with self.assertRaisesRegex(
          round_rows.DifferentResultError,
          '^wrong/mean does not compute the same',
      ):
        round_rows.warm_up(
            _TASK, rows + [round_rows.Row('wrong/mean', wrong)]
        )

  def test_nan_is_no_result(self):
    one = [np.ones(3)]
    with self.assertRaises(round_rows.DifferentResultError):
      round_rows.relative_difference('row', one, [np.full(3, np.nan)], one)

  def test_small_updates_cannot_hide_a_difference(self):
    # Below any absolute tolerance, and wrong all the same.
    start, update = [np.zeros(4)], [np.full(4, 1e-6)]
    with self.assertRaises(round_rows.DifferentResultError):
      round_rows.relative_difference('row', start, start, update)

  def test_expected_update_clips_every_client(self):
    updates = [[np.array([3.0]), np.array([4.0])], [np.zeros(1), np.ones(1)]]
    mean = round_rows.expected_update(updates, np.inf)
    np.testing.assert_allclose(np.ravel(mean), [1.5, 2.5])
    clipped = round_rows.expected_update(updates, 1.0)
    np.testing.assert_allclose(np.ravel(clipped), [0.3, 0.9])


class RowsTest(absltest.TestCase):

  def test_unknown_row(self):
    with contextlib.ExitStack() as stack:
      with self.assertRaisesRegex(_checks.ArgumentError, 'rows.*in_proces'):
        round_rows.make_rows(_TASK, stack, wanted=['in_proces'])

  def test_missing_pfl_is_reported(self):
    with contextlib.ExitStack() as stack:
      rows, absent = round_rows.make_rows(
          _TASK, stack, wanted=['pfl'], pfl_python='/no/such/python'
      )
    self.assertEqual([row.name for row in rows], ['one_by_one'])
    self.assertIn('cannot run /no/such/python', absent['pfl'])

  def test_every_row_gets_every_repetition_in_turn(self):
    calls = []

    class Runner:

      def __init__(self, name):
        self.run_round = lambda: calls.append(name)

    rows = [round_rows.Row(name, Runner(name)) for name in 'abc']
    round_rows.measure(rows, 3)
    self.assertEqual(''.join(calls), 'abcbcacab')

  def test_ratios_are_taken_within_repetitions(self):
    rows = [
        # The machine was busy in repetition 2.
        round_rows.Row('one_by_one', None, seconds=[2.0, 9.1, 2.0]),
        round_rows.Row('graph_loop', None, seconds=[1.0, 9.0, 1.0]),
        round_rows.Row('in_process/mean', None, seconds=[1.1, 9.9, 1.2]),
        round_rows.Row('in_process/tree', None, seconds=[1.1, 9.9, 1.8]),
    ]
    for row in rows:
      row.cpu_seconds = row.seconds
    one_by_one, floor, mean, tree = round_rows.summary(rows)
    self.assertEqual(
        [row['is_floor'] for row in (one_by_one, floor, mean, tree)],
        [False, True, False, False],
    )
    self.assertEqual(one_by_one['over_floor'], 2.0)
    self.assertEqual(floor['over_one_by_one'], 0.5)
    self.assertEqual(floor['over_floor'], 1.0)
    self.assertAlmostEqual(mean['over_floor'], 1.1)
    self.assertAlmostEqual(tree['over_own_mean'], 1.0)
    self.assertIsNone(floor['over_own_mean'])


class ReportTest(absltest.TestCase):

  def test_targets(self):
    def row(name, cpu_over_floor, over_own_mean, over_in_process):
      return {
          'row': name,
          'cpu_over_floor': cpu_over_floor,
          'over_own_mean': over_own_mean,
          'over_in_process': over_in_process,
      }

    targets = round_report.targets([
        row('one_by_one', 1.0, None, 0.9),
        row('in_process/mean', 1.1, 1.0, 1.0),
        row('in_process/tree', 1.2, 1.06, 1.06),
        row('in_process/dp_ftrl', 1.6, None, 1.0),
        row('in_process_default/mean', 2.9, 1.0, 1.2),
        row('native_default/mean', 1.8, 1.0, 1.6),
        row('pfl/mean', 1.0, 1.0, 0.9),
    ])
    self.assertEqual(
        [(target['target'], target['met']) for target in targets],
        [
            ('build_dp_ftrl / floor, CPU at most 1.5', False),
            ('default loop / floor, CPU at most 3.0', True),
            ('native default loop / in-process at least 1.5', True),
            ('pfl-research / in-process at least 1.0', False),
            ('in-process tree / mean at most 1.05', False),
        ],
    )

  def test_command_prints_a_table_and_writes_json(self):
    path = pathlib.Path(self.create_tempdir().full_path) / 'out.json'
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      with contextlib.redirect_stderr(io.StringIO()) as progress:
        code = round_time.main(
            '--models tiny_cnn --rows one_by_one_2_threads --rounds 2 --json'.split()
            + [str(path)]
        )
    self.assertEqual(code, 0)
    self.assertIn('| one_by_one_2_threads |', printed.getvalue())
    self.assertIn('repetition 2 of 2', progress.getvalue())
    results = json.loads(path.read_text())
    self.assertEqual(
        results['environment']['python'], sys.version.split()[0]
    )
    model = results['models']['tiny_cnn']
    self.assertEqual(model['parameters'], 514)
    self.assertEqual(
        [row['row'] for row in model['rows']],
        ['one_by_one', 'one_by_one_2_threads'],
    )

  def test_profile_names_functions(self):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
      with contextlib.redirect_stderr(io.StringIO()):
        round_time.main(
            '--models tiny_cnn --profile one_by_one --rounds 20'.split()
        )
    self.assertIn('round_one_by_one.py:sum_of_updates', printed.getvalue())


if __name__ == '__main__':
  absltest.main()
