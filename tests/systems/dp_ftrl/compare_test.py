# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp compare`."""

import math
import os
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp import mechanisms
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import main
from tff_dp.cli import plots
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import compare

_SIX_EPOCHS = ('compare', '--rounds=2048', '--min-index-gap=342',
               '--max-participations=6')
_SMALL = ('compare', '--rounds=40', '--min-index-gap=10',
          '--max-participations=3')
_SMALL_PATTERN = patterns.MinSeparationPattern(
    40, min_index_gap=10, max_participations=3
)


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_json(main.main, *argv)


def _table(out):
  """Returns the rows of the table as lists of cells."""
  lines = out.splitlines()
  (start,) = [
      index for index, line in enumerate(lines)
      if line.split()[:1] == ['mechanism']
  ]
  rows = []
  for line in lines[start + 1 :]:
    if not line:
      break
    rows.append(line)
  return rows


class JsonTest(parameterized.TestCase):

  def test_blt_has_half_of_honakers_error(self):
    result = _json(*_SIX_EPOCHS)
    rows = {row['mechanism']: row for row in result['mechanisms']}
    self.assertCountEqual(rows, catalogue.BY_NAME)
    for row in rows.values():
      self.assertContainsSubset(
          ('rmse', 'max_error', 'squared_sensitivity', 'state_copies'), row
      )
    for error in ('rmse', 'max_error'):
      ratio = rows['blt'][error] / rows['honaker'][error]
      self.assertBetween(ratio, 0.35, 0.55)
      self.assertAlmostEqual(rows['blt'][f'{error}_over_honaker'], ratio)
    self.assertEqual(rows['blt']['state_copies'], 3)
    self.assertEqual(rows['honaker']['squared_sensitivity'], 118)
    self.assertEqual(
        (result['rounds'], result['min_index_gap'],
         result['min_rounds_between'], result['max_participations']),
        (2048, 342, 341, 6),
    )
    self.assertIsNone(result['best'])

  @parameterized.parameters('max', 'mean')
  def test_is_what_the_library_says(self, error):
    result = _json(*_SMALL, f'--error={error}')
    rows = mechanisms.compare(_SMALL_PATTERN, error=error)
    self.assertEqual(
        [row['mechanism'] for row in result['mechanisms']],
        [row.name for row in rows],
    )
    for shown, row in zip(result['mechanisms'], rows, strict=True):
      self.assertEqual(shown['rmse'], row.rmse)
      self.assertEqual(shown['max_error'], row.max_error)
      self.assertEqual(shown['draws_per_round'], row.draws_per_round)
    self.assertEqual(result['optimised_for'], error)

  def test_flags(self):
    result = _json(
        *_SMALL, '--mechanisms', 'blt', 'banded', 'tree', '--bands=4',
        '--buffers=2', '--restart-every=20', '--complete-trees',
    )
    rows = {row['mechanism']: row for row in result['mechanisms']}
    self.assertEqual(rows['banded']['state_copies'], 3)
    self.assertEqual(rows['blt']['state_copies'], 2)
    self.assertCountEqual(rows, ('blt', 'banded', 'tree'))
    self.assertTrue(result['complete_trees'])
    # Compared with Honaker's tree although that has no row.
    self.assertLess(rows['blt']['rmse_over_honaker'], 1)

  def test_best(self):
    result = _json(*_SMALL, '--max-state-copies=4')
    best = result['best']
    self.assertLessEqual(best['state_copies'], 4)
    self.assertIn(best, result['mechanisms'])
    expected = mechanisms.best(40, _SMALL_PATTERN, max_state_copies=4)
    self.assertEqual(best['mechanism'], expected.mechanism.name)
    self.assertEqual(best['max_error'], expected.chosen.max_error)


class TextTest(parameterized.TestCase):

  def test_table(self):
    code, out, _ = _run(*_SMALL)
    self.assertEqual(code, 0)
    self.assertTrue(out.isascii())
    for part in (
        'at equal\nprivacy',
        '(9 rounds strictly between)',
        'Each client takes part at most 3 times in 40 rounds',
    ):
      self.assertIn(part, out)
    rows = _table(out)
    self.assertLen(rows, len(catalogue.BY_NAME))
    # Sorted, and longer bars for larger errors.
    bars = [row.count('#') for row in rows]
    self.assertEqual(bars, sorted(bars))
    (honaker,) = [row for row in rows if row.strip().startswith('honaker')]
    self.assertIn(' 100 %', honaker)
    self.assertEqual(honaker.count('#'), 12)

  def test_a_bar_that_is_too_long_ends_with_an_arrow(self):
    _, out, _ = _run(*_SIX_EPOCHS, '--mechanisms', 'independent', 'honaker')
    self.assertEndsWith(_table(out)[-1], ' ' + '#' * 24 + '>')

  def test_marks_the_best(self):
    code, out, _ = _run(*_SMALL, '--max-state-copies=2')
    self.assertEqual(code, 0)
    (marked,) = [row for row in _table(out) if row.startswith('*')]
    best = mechanisms.best(40, _SMALL_PATTERN, max_state_copies=2).chosen
    self.assertIn(best.label, marked)
    self.assertEndsWith(
        out, f'within 2 copies of the model: {best.label}\n'
    )

  def test_bound_is_marked(self):
    _, out, _ = _run(
        'compare', '--rounds=100', '--max-participations=3', '--bands=4',
        '--mechanisms', 'banded-inverse',
    )
    self.assertIn('  <=', _table(out)[0])
    self.assertIn('upper bound', out)

  @parameterized.parameters(
      (True, 'utf-8', '\N{FULL BLOCK}'),
      (True, 'latin-1', '#'),
      (False, 'utf-8', '#'),
  )
  def test_blocks_only_where_a_terminal_can_show_them(
      self, is_terminal, encoding, expected
  ):
    stream = mock.Mock(encoding=encoding)
    stream.isatty.return_value = is_terminal
    with mock.patch.object(sys, 'stdout', stream):
      self.assertEqual(compare._bar(1 / 24), expected)

  def test_progress_only_after_a_while(self):
    with mock.patch.object(compare, '_QUIET_SECONDS', -1.0):
      code, _, err = _run(*_SMALL, '--mechanisms', 'blt', 'honaker')
    self.assertEqual(code, 0)
    self.assertEqual(
        err, 'optimising blt ...\noptimising honaker ...\n'
    )


class PlotTest(absltest.TestCase):

  def test_writes_a_picture(self):
    path = os.path.join(self.create_tempdir().full_path, 'errors.png')
    code, out, _ = _run(*_SMALL, '--plot', path)
    self.assertEqual(code, 0)
    self.assertIn('honaker', out)
    with open(path, 'rb') as file:
      self.assertEqual(file.read(8), b'\x89PNG\r\n\x1a\n')

  def test_lines_are_those_of_the_table(self):
    path = os.path.join(self.create_tempdir().full_path, 'errors.png')
    words = (*_SMALL, '--mechanisms', 'honaker', 'independent')
    for budget in ((), ('--epsilon=2', '--delta=1e-6')):
      rows = _json(*words, *budget)['mechanisms']
      with mock.patch.object(plots, '_write') as write:
        self.assertEqual(_run(*words, *budget, '--plot', path)[0], 0)
      figure, _ = write.call_args.args
      drawn = [line.get_ydata() for line in figure.axes[0].lines]
      self.assertLen(drawn, len(rows))
      for errors, row in zip(drawn, rows):
        self.assertAlmostEqual(max(errors), row['max_error'])
        self.assertAlmostEqual(
            math.sqrt(sum(errors**2) / len(errors)), row['rmse']
        )

  def test_one_round(self):
    path = os.path.join(self.create_tempdir().full_path, 'errors.png')
    flags = ('--rounds=1', '--min-index-gap=1')
    self.assertEqual(_run('compare', *flags, '--plot', path)[0], 0)

  def test_unwritable_before_any_work(self):
    folder = self.create_tempdir().full_path
    missing = os.path.join(folder, 'missing', 'errors.png')
    with mock.patch.object(mechanisms.choice, 'compare') as work:
      for path in (missing, folder):
        code, out, err = _run(*_SMALL, '--plot', path)
        self.assertEqual(code, 2)
        self.assertEmpty(out)
        self.assertStartsWith(err, f'error: --plot={path} is not allowed')
      work.assert_not_called()


class BadInputTest(parameterized.TestCase):

  @parameterized.parameters(
      ('--rounds=0', 'at least 1'),
      ('--rounds=-5', 'at least 1'),
      ('--bands=11', 'at most min_index_gap, 10'),
      ('--bands=0', 'at least 1'),
      ('--bands=-1', 'at least 1'),
      ('--buffers=1', 'from 2 to 8'),
      ('--buffers=9', 'from 2 to 8'),
      ('--error=median', "'max', 'mean'"),
      ('--mechanisms=oak', "'blt'"),
      ('--max-state-copies=-1', 'at least 0'),
      ('--restart-every=0', 'at least 1'),
      ('--min-rounds-between=-1', 'not allowed with argument --min-index-gap'),
      ('--rounds-per-epoch=5', 'no value with --participation=min-separation'),
      ('--complete-trees', 'False without restart_every'),
      ('--noise-multiplier=1', 'has no flag'),
  )
  def test_a_bad_flag_names_itself_and_ends_with_2(self, flag, allowed):
    code, out, err = _run(*_SMALL, flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: ')
    self.assertIn(flag.split('=')[0], err)
    self.assertIn(allowed, err)

  def test_a_flag_that_no_mechanism_uses(self):
    code, _, err = _run(*_SMALL, '--mechanisms', 'tree', '--buffers=2')
    self.assertEqual(code, 2)
    self.assertIn('--buffers=2', err)

  def test_a_limit_that_nothing_meets(self):
    code, _, err = _run(
        *_SMALL, '--mechanisms', 'honaker', '--max-state-copies=1'
    )
    self.assertEqual(code, 2)
    self.assertIn('--max-state-copies=1', err)
    self.assertIn('honaker', err)


if __name__ == '__main__':
  absltest.main()
