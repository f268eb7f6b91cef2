# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for tree_sensitivity, against brute force over all allowed sets."""

import functools
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity

_SMALL = tuple(range(1, 13))
_TREES = (
    (None, False),
    (1, False),
    (3, False),
    (3, True),
    (4, True),
    (5, False),
    (5, True),
    (6, True),
    (7, True),
)


def _nodes(num_rounds, restart_every, complete_trees):
  """Returns the 0/1 matrix (node, round), straight from the definition."""
  rows = []
  offset = 0
  while offset < num_rounds:
    length = min(restart_every or num_rounds, num_rounds - offset)
    size = length
    if complete_trees and offset + length < num_rounds:
      size = 1
      while size < length:
        size *= 2
    width = 1
    while width <= size:
      for start in range(0, size - width + 1, width):
        row = np.zeros(num_rounds, np.int64)
        row[offset + start : offset + min(start + width, length)] = 1
        rows.append(row)
      width *= 2
    offset += length
  return np.array(rows)


@functools.cache
def _all_sets(num_rounds):
  """Returns (sets as 0/1 rows, smallest gap of each, size of each)."""
  sets = (np.arange(1 << num_rounds)[:, None] >> np.arange(num_rounds)) & 1
  gaps = np.full(len(sets), num_rounds)
  for index, row in enumerate(sets):
    rounds = np.flatnonzero(row)
    if len(rounds) > 1:
      gaps[index] = np.diff(rounds).min()
  return sets, gaps, sets.sum(axis=1)


@functools.cache
def _sums(num_rounds, restart_every, complete_trees):
  """Returns the sum of count^2 of every set of rounds."""
  sets, _, _ = _all_sets(num_rounds)
  nodes = _nodes(num_rounds, restart_every, complete_trees)
  return np.sum((sets @ nodes.T) ** 2, axis=1)


def _tree_of_round(num_rounds, restart_every):
  return np.arange(num_rounds) // (restart_every or num_rounds)


class MinSeparationTest(parameterized.TestCase):

  def _loop_over(self, what):
    """Makes every join loop over columns, or over values, in this test."""
    # pylint: disable=protected-access
    for cached in (
        tree_sensitivity._squared_sensitivity,
        tree_sensitivity._by_round,
    ):
      cached.cache_clear()
      self.addCleanup(cached.cache_clear)
    cost = {'columns': 1 << 30, 'values': -(1 << 30)}[what]
    self.enter_context(mock.patch.object(tree_sensitivity, '_GATHERED', cost))

  @parameterized.product(
      num_rounds=_SMALL, trees=_TREES, loop_over=('columns', 'values')
  )
  def test_equals_worst_allowed_set(self, num_rounds, trees, loop_over):
    self._loop_over(loop_over)
    restart_every, complete_trees = trees
    _, gaps, sizes = _all_sets(num_rounds)
    sums = _sums(num_rounds, restart_every, complete_trees)
    for gap in range(1, num_rounds + 2):
      for most in range(1, num_rounds + 1):
        allowed = (sizes <= most) & ((gaps >= gap) | (sizes <= 1))
        self.assertEqual(
            tree_sensitivity.squared_sensitivity(
                patterns.MinSeparationPattern(
                    num_rounds, min_index_gap=gap, max_participations=most
                ),
                restart_every=restart_every,
                complete_trees=complete_trees,
            ),
            sums[allowed].max(),
            msg=f'gap {gap}, at most {most}',
        )

  @parameterized.parameters(
      (16, None, False), (15, 6, True), (16, 9, True), (14, 13, True)
  )
  def test_equals_worst_allowed_set_of_more_rounds(
      self, num_rounds, restart_every, complete_trees
  ):
    _, gaps, sizes = _all_sets(num_rounds)
    sums = _sums(num_rounds, restart_every, complete_trees)
    for gap in (1, 2, 3, 4, 5, 7, 8, 9):
      for most in (2, 3, 4, None):
        allowed = (sizes <= (most or num_rounds)) & (gaps >= gap)
        self.assertEqual(
            tree_sensitivity.squared_sensitivity(
                patterns.MinSeparationPattern(
                    num_rounds, min_index_gap=gap, max_participations=most
                ),
                restart_every=restart_every,
                complete_trees=complete_trees,
            ),
            sums[allowed].max(),
            msg=f'gap {gap}, at most {most}',
        )

  @parameterized.product(
      gap=(5, 40), trees=((None, False), (100, False), (100, True))
  )
  def test_both_loops_of_the_join_agree(self, gap, trees):
    restart_every, complete_trees = trees
    pattern = patterns.MinSeparationPattern(230, min_index_gap=gap)
    results = []
    for loop_over in ('columns', 'values'):
      self._loop_over(loop_over)
      results.append(
          tree_sensitivity.squared_sensitivity_by_round(
              pattern,
              restart_every=restart_every,
              complete_trees=complete_trees,
          ).tolist()
      )
    self.assertEqual(*results)

  def test_rounds_between_is_one_less_than_the_index_gap(self):
    # Two rounds: a gap of 1 allows both of them, a gap of 2 only one.
    both = patterns.MinSeparationPattern(2, min_index_gap=1)
    one = patterns.MinSeparationPattern(2, min_index_gap=2)
    self.assertEqual((both.min_rounds_between, one.min_rounds_between), (0, 1))
    self.assertEqual(tree_sensitivity.squared_sensitivity(both), 1 + 1 + 2**2)
    self.assertEqual(tree_sensitivity.squared_sensitivity(one), 1 + 1)

  def test_published_gboard_setting(self):
    # arXiv:2305.18465, es-ES: 313 rounds strictly between two participations.
    pattern = patterns.MinSeparationPattern(
        2000, min_index_gap=314, max_participations=6
    )
    # rho = S2 / (2 * 7^2) = 0.81.
    self.assertEqual(tree_sensitivity.squared_sensitivity(pattern), 79)

  @parameterized.product(gap=(1, 2, 3, 5), trees=_TREES)
  def test_monotone_in_participations_and_gap(self, gap, trees):
    restart_every, complete_trees = trees

    def value(gap, most):
      return tree_sensitivity.squared_sensitivity(
          patterns.MinSeparationPattern(
              40, min_index_gap=gap, max_participations=most
          ),
          restart_every=restart_every,
          complete_trees=complete_trees,
      )

    for most in range(1, 10):
      self.assertLessEqual(value(gap, most), value(gap, most + 1))
      self.assertLessEqual(value(gap + 1, most), value(gap, most))

  @parameterized.product(gap=(1, 3, 10), restart_every=(7, 16, 20))
  def test_chain_is_at_most_the_sum_over_trees(self, gap, restart_every):
    chained = tree_sensitivity.squared_sensitivity(
        patterns.MinSeparationPattern(50, min_index_gap=gap),
        restart_every=restart_every,
    )
    separate = sum(
        tree_sensitivity.squared_sensitivity(
            patterns.MinSeparationPattern(length, min_index_gap=gap)
        )
        for length in patterns.tree_lengths(50, restart_every=restart_every)
    )
    self.assertLessEqual(chained, separate)


class OnceTest(parameterized.TestCase):

  @parameterized.product(num_rounds=_SMALL, trees=_TREES)
  def test_once_per_tree_equals_worst_allowed_set(self, num_rounds, trees):
    restart_every, complete_trees = trees
    sets, _, _ = _all_sets(num_rounds)
    tree = _tree_of_round(num_rounds, restart_every)
    in_tree = sets @ (tree[:, None] == np.arange(tree[-1] + 1))
    allowed = (in_tree <= 1).all(axis=1)
    self.assertEqual(
        tree_sensitivity.squared_sensitivity(
            patterns.OncePerTreePattern(num_rounds),
            restart_every=restart_every,
            complete_trees=complete_trees,
        ),
        _sums(num_rounds, restart_every, complete_trees)[allowed].max(),
    )

  @parameterized.parameters(*range(1, 12))
  def test_power_of_two_boundary(self, exponent):
    for num_rounds, expected in (
        (2**exponent - 1, exponent),
        (2**exponent, exponent + 1),
        (2**exponent + 1, exponent + 1),
    ):
      for pattern in (
          patterns.OncePerTreePattern(num_rounds),
          patterns.MinSeparationPattern(num_rounds, max_participations=1),
          patterns.FixedOrderPattern(num_rounds, rounds_per_epoch=num_rounds),
      ):
        self.assertEqual(
            tree_sensitivity.squared_sensitivity(pattern), expected, pattern
        )

  def test_published_stackoverflow_setting(self):
    # arXiv:2103.00039: 1600 rounds, one pass over the clients.
    self.assertEqual(
        tree_sensitivity.squared_sensitivity(
            patterns.MinSeparationPattern(1600, max_participations=1)
        ),
        11,
    )


class FixedOrderTest(parameterized.TestCase):

  @parameterized.product(num_rounds=_SMALL, trees=_TREES)
  def test_equals_worst_allowed_set(self, num_rounds, trees):
    restart_every, complete_trees = trees
    sets, _, _ = _all_sets(num_rounds)
    tree = _tree_of_round(num_rounds, restart_every)
    index_in_tree = np.arange(num_rounds) - np.searchsorted(tree, tree)
    for rounds_per_epoch in range(1, num_rounds + 2):
      # Within a tree a client is in one batch only; batches of different trees
      # are unrelated, because a restart may reshuffle.
      batch = index_in_tree % rounds_per_epoch
      allowed = np.full(len(sets), True)
      for one in range(num_rounds):
        for other in range(one):
          if tree[one] == tree[other] and batch[one] != batch[other]:
            allowed &= ~((sets[:, one] == 1) & (sets[:, other] == 1))
      self.assertEqual(
          tree_sensitivity.squared_sensitivity(
              patterns.FixedOrderPattern(
                  num_rounds, rounds_per_epoch=rounds_per_epoch
              ),
              restart_every=restart_every,
              complete_trees=complete_trees,
          ),
          _sums(num_rounds, restart_every, complete_trees)[allowed].max(),
          msg=f'{rounds_per_epoch} rounds per epoch',
      )

  @parameterized.product(num_rounds=(64, 100, 600), rounds_per_epoch=(7, 50))
  def test_at_most_min_separation(self, num_rounds, rounds_per_epoch):
    fixed = tree_sensitivity.squared_sensitivity(
        patterns.FixedOrderPattern(
            num_rounds, rounds_per_epoch=rounds_per_epoch
        )
    )
    separated = tree_sensitivity.squared_sensitivity(
        patterns.MinSeparationPattern(
            num_rounds, min_index_gap=rounds_per_epoch
        )
    )
    self.assertLessEqual(fixed, separated)


class ByRoundTest(parameterized.TestCase):

  @parameterized.product(
      pattern=(
          patterns.MinSeparationPattern(45, min_index_gap=4),
          patterns.MinSeparationPattern(
              45, min_index_gap=1, max_participations=3
          ),
          # Every sixth round at most, until round 30; then five times in all.
          patterns.MinSeparationPattern(
              45, min_index_gap=6, max_participations=5
          ),
          patterns.MinSeparationPattern(45, min_index_gap=34),
          patterns.MinSeparationPattern(45, max_participations=1),
          patterns.OncePerTreePattern(45),
          patterns.FixedOrderPattern(45, rounds_per_epoch=6),
          patterns.FixedOrderPattern(45, rounds_per_epoch=1),
          patterns.FixedOrderPattern(45, rounds_per_epoch=100),
      ),
      trees=((None, False), (1, True), (8, True), (11, False), (11, True)),
  )
  def test_equals_a_run_that_stops(self, pattern, trees):
    restart_every, complete_trees = trees
    options = {
        'restart_every': restart_every,
        'complete_trees': complete_trees,
    }
    by_round = tree_sensitivity.squared_sensitivity_by_round(pattern, **options)
    self.assertEqual(by_round.dtype, np.int64)
    self.assertEqual(
        by_round.tolist(),
        [
            tree_sensitivity.squared_sensitivity(
                pattern.truncated(stop), **options
            )
            for stop in range(1, 46)
        ],
    )
    self.assertGreaterEqual(np.diff(by_round).min(), 0)

  @parameterized.parameters(
      (1, 1000, 6_002_008),
      (20, None, 1_375_827),
      (100, None, 56_132),
      (100, 100, 25_396),
      (400, None, 3845),
  )
  # The others have a gap, without and with a limit.
  @pytest.mark.slow(cases=['0', '4'])
  def test_twenty_thousand_rounds(self, gap, most, expected):
    # From the programme as it was when it kept all of every table.
    by_round = tree_sensitivity.squared_sensitivity_by_round(
        patterns.MinSeparationPattern(
            20_000, min_index_gap=gap, max_participations=most
        )
    )
    self.assertEqual(by_round[-1], expected)
    self.assertGreaterEqual(np.diff(by_round).min(), 0)

  def test_result_is_the_callers_own(self):
    pattern = patterns.MinSeparationPattern(5)
    first = tree_sensitivity.squared_sensitivity_by_round(pattern)
    first[:] = 0
    second = tree_sensitivity.squared_sensitivity_by_round(pattern)
    self.assertEqual(second[0], 1)


class CompletionTest(parameterized.TestCase):

  @parameterized.parameters(
      patterns.MinSeparationPattern(48, min_index_gap=5),
      patterns.OncePerTreePattern(48),
      patterns.FixedOrderPattern(48, rounds_per_epoch=4),
  )
  def test_changes_only_trees_that_are_followed_and_incomplete(self, pattern):
    def value(restart_every, complete_trees):
      return tree_sensitivity.squared_sensitivity(
          pattern, restart_every=restart_every, complete_trees=complete_trees
      )

    for restart_every in (None, 1, 16, 48, 100):
      self.assertEqual(value(restart_every, True), value(restart_every, False))
    for restart_every in (12, 24):
      self.assertGreater(
          value(restart_every, True), value(restart_every, False)
      )


class ErrorsTest(parameterized.TestCase):

  def test_names_the_argument(self):
    pattern = patterns.MinSeparationPattern(5)
    for call in (
        tree_sensitivity.squared_sensitivity,
        tree_sensitivity.squared_sensitivity_by_round,
    ):
      with self.assertRaisesRegex(ValueError, 'restart_every=0 is not allowed'):
        call(pattern, restart_every=0)
      with self.assertRaisesRegex(ValueError, 'complete_trees=3'):
        call(pattern, complete_trees=3)
      with self.assertRaisesRegex(TypeError, 'pattern=5 is not allowed'):
        call(5)


if __name__ == '__main__':
  absltest.main()
