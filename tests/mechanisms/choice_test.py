# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for comparing mechanisms and choosing the best."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue

_SIX_EPOCHS = patterns.MinSeparationPattern(
    2048, min_index_gap=342, max_participations=6
)
_SMALL = patterns.MinSeparationPattern(
    40, min_index_gap=10, max_participations=3
)


def _by_name(rows):
  return {row.name: row for row in rows}


class CompareTest(parameterized.TestCase):

  def test_published_table(self):
    # dp_ftrl.md, section 2.5; ours are optimised and hence no worse.
    rows = _by_name(mechanisms.compare(_SIX_EPOCHS, error='mean'))
    self.assertAlmostEqual(rows['independent'].rmse, 78, delta=0.5)
    self.assertAlmostEqual(rows['tree'].rmse, 25, delta=0.5)
    self.assertAlmostEqual(rows['honaker'].rmse, 19, delta=0.5)
    self.assertLessEqual(rows['toeplitz'].rmse, 10.9)
    self.assertLessEqual(rows['blt'].rmse, 9.65)
    self.assertLessEqual(rows['banded'].rmse, 9.0)
    self.assertBetween(rows['blt'].rmse / rows['honaker'].rmse, 0.4, 0.55)
    self.assertEqual(rows['blt'].state_copies, 3)
    self.assertEqual(rows['banded'].state_copies, 341)

  @parameterized.product(error=('max', 'mean'), restart_every=(None, 16))
  def test_rows_are_what_the_mechanisms_say(self, error, restart_every):
    rows = mechanisms.compare(
        _SMALL, error=error, restart_every=restart_every
    )
    self.assertCountEqual([row.name for row in rows], catalogue.BY_NAME)
    errors = [row.error(error) for row in rows]
    self.assertEqual(errors, sorted(errors))
    for row in rows:
      mechanism = row.mechanism
      variances = mechanism.run_prefix_variances()
      self.assertLen(variances, 40)
      squared = mechanism.squared_sensitivity(_SMALL)
      self.assertAlmostEqual(
          row.max_error, math.sqrt(squared * max(variances))
      )
      self.assertAlmostEqual(
          row.rmse, math.sqrt(squared * np.mean(variances))
      )
      self.assertEqual(row.squared_sensitivity, squared)
      self.assertEqual(row.state_copies, mechanism.state_copies)
      self.assertEqual(row.draws_per_round, mechanism.draws_per_round)

  def test_errors_of_restarts_by_hand(self):
    # Two trees of two rounds: variances 1, 1, then 1 more for the root left
    # behind (Tree) and the new tree's.
    pattern = patterns.MinSeparationPattern(4, max_participations=1)
    (row,) = mechanisms.compare(pattern, names=('tree',), restart_every=2)
    self.assertEqual(row.squared_sensitivity, 2)
    self.assertAlmostEqual(row.max_error, math.sqrt(2 * 2))
    self.assertAlmostEqual(row.rmse, math.sqrt(2 * 1.5))

  def test_options_and_progress(self):
    told = []
    rows = _by_name(
        mechanisms.compare(
            _SMALL,
            names=('honaker', 'blt', 'banded'),
            num_bands=4,
            num_buffers=2,
            progress=told.append,
        )
    )
    self.assertEqual(told, ['honaker', 'blt', 'banded'])
    self.assertEqual(rows['banded'].label, 'banded, 4 bands')
    self.assertEqual(rows['blt'].label, 'blt, 2 buffers')
    self.assertEqual(rows['honaker'].label, 'honaker')

  @parameterized.parameters(
      dict(names=('oak',)), dict(error='median'), dict(num_bands=11),
      dict(num_buffers=9), dict(restart_every=0),
  )
  def test_refuses(self, **options):
    (name,) = options
    with self.assertRaisesRegex(ValueError, f'{name}='):
      mechanisms.compare(_SMALL, **options)


class BestTest(parameterized.TestCase):

  @parameterized.product(error=('max', 'mean'), limit=(0, 1, 3, 100))
  def test_least_error_within_the_limit(self, error, limit):
    choice = mechanisms.best(
        40, _SMALL, error=error, max_state_copies=limit
    )
    self.assertLessEqual(choice.mechanism.state_copies, limit)
    self.assertEqual(choice.chosen.reason, '')
    within = [row for row in choice.rows if row.state_copies <= limit]
    least = min(row.error(error) for row in within)
    self.assertLessEqual(choice.chosen.error(error), 1.001 * least)
    for row in choice.rows:
      if row.state_copies > limit:
        self.assertIn(f'more than {limit}', row.reason)
      elif row is not choice.chosen:
        self.assertNotEmpty(row.reason)

  def test_more_memory_is_never_worse(self):
    errors = [
        mechanisms.best(40, _SMALL, max_state_copies=limit).chosen.max_error
        for limit in (0, 3, 9, 39)
    ]
    for fewer, more in zip(errors, errors[1:]):
      self.assertLessEqual(more, 1.001 * fewer)
    # Room for all of it.
    self.assertLess(errors[-1], 0.97 * errors[0])

  def test_recommends_blt_for_long_runs(self):
    choice = mechanisms.best(
        2048,
        participation.MinSeparation(
            2048, min_index_gap=342, max_participations=6
        ),
        error='max',
    )
    self.assertIsInstance(choice.mechanism, mechanisms.Blt)
    self.assertLessEqual(choice.mechanism.num_buffers, 4)
    self.assertEqual(choice.max_state_copies, 8)
    self.assertEqual(choice.error, 'max')
    table = choice.table().splitlines()
    self.assertLen(table, len(choice.rows) + 2)
    cells = [line.count('|') for line in table]
    self.assertLen(set(cells), 1)
    self.assertIn('**chosen**', choice.table())
    self.assertIn('keeps 341 model copies, more than 8', choice.table())

  def test_without_memory_the_tree_draws_again(self):
    choice = mechanisms.best(
        40, _SMALL, max_state_copies=0, names=('tree', 'blt')
    )
    self.assertEqual(choice.mechanism, mechanisms.Tree(40, num_cached_levels=0))

  def test_bounds_are_named(self):
    rows = [
        row
        for row in mechanisms.best(40, _SMALL).rows
        if row.mechanism is not None and not row.sensitivity_is_exact
    ]
    table = mechanisms.best(40, _SMALL).table()
    self.assertEqual(table.count('(bound)'), len(rows))

  def test_refuses(self):
    with self.assertRaisesRegex(ValueError, 'rounds=41 .* 40'):
      mechanisms.best(41, _SMALL)
    with self.assertRaisesRegex(ValueError, 'max_state_copies=-1'):
      mechanisms.best(40, _SMALL, max_state_copies=-1)
    with self.assertRaisesRegex(ValueError, 'max_state_copies=1 .*honaker'):
      mechanisms.best(40, _SMALL, max_state_copies=1, names=('honaker',))


if __name__ == '__main__':
  absltest.main()
