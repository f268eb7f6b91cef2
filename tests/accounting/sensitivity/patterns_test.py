# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for patterns: the limits against brute force, JSON, errors."""

import itertools
import json

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp.accounting.sensitivity import patterns

_PATTERNS = (
    patterns.MinSeparationPattern(9, min_index_gap=4, max_participations=2),
    patterns.MinSeparationPattern(9, min_index_gap=4),
    patterns.MinSeparationPattern(9),
    patterns.FixedOrderPattern(9, rounds_per_epoch=4),
    patterns.FixedOrderPattern(9, rounds_per_epoch=1),
    patterns.FixedOrderPattern(9, rounds_per_epoch=20),
    patterns.OncePerTreePattern(9),
)


def _allowed(pattern, tree, rounds):
  """Says whether one client may take part in these 0-based rounds."""
  pairs = list(itertools.combinations(rounds, 2))
  if isinstance(pattern, patterns.MinSeparationPattern):
    return len(rounds) <= pattern.max_participations and all(
        b - a >= pattern.min_index_gap for a, b in pairs
    )
  if isinstance(pattern, patterns.OncePerTreePattern):
    return all(tree[a] != tree[b] for a, b in pairs)
  return all(
      tree[a] != tree[b] or (b - a) % pattern.rounds_per_epoch == 0
      for a, b in pairs
  )


class LimitsTest(parameterized.TestCase):

  @parameterized.product(
      pattern=_PATTERNS, restart_every=(None, 1, 2, 3, 4, 5, 8, 9, 12)
  )
  def test_hold_for_all_allowed_sets_and_are_attained(
      self, pattern, restart_every
  ):
    limits = pattern.limits(restart_every=restart_every)
    tree = []
    for index, length in enumerate(
        patterns.tree_lengths(9, restart_every=restart_every)
    ):
      tree += [index] * length
    most, gap = 0, 9
    for bits in itertools.product((0, 1), repeat=9):
      rounds = [index for index, bit in enumerate(bits) if bit]
      if _allowed(pattern, tree, rounds):
        most = max(most, len(rounds))
        gap = min([gap] + [b - a for a, b in zip(rounds, rounds[1:])])
    self.assertEqual(limits.max_participations, most)
    self.assertEqual(limits.min_index_gap, gap)
    self.assertEqual(limits.min_rounds_between, gap - 1)

  @parameterized.parameters(*_PATTERNS)
  def test_properties_are_those_of_one_tree(self, pattern):
    limits = pattern.limits()
    self.assertEqual(pattern.min_index_gap, limits.min_index_gap)
    self.assertEqual(pattern.min_rounds_between, limits.min_rounds_between)
    self.assertEqual(pattern.max_participations, limits.max_participations)


class MinSeparationPatternTest(parameterized.TestCase):

  @parameterized.parameters((9, 4, 3), (8, 4, 2), (9, 1, 9), (9, 9, 1))
  def test_participations_that_fit(self, num_rounds, gap, expected):
    pattern = patterns.MinSeparationPattern(num_rounds, min_index_gap=gap)
    self.assertEqual(pattern.participations_that_fit, expected)
    self.assertEqual(pattern.max_participations, expected)

  def test_more_than_fit_becomes_what_fits(self):
    self.assertEqual(
        patterns.MinSeparationPattern(
            9, min_index_gap=4, max_participations=100
        ),
        patterns.MinSeparationPattern(9, min_index_gap=4),
    )

  def test_separation_is_in_the_sentence_both_ways(self):
    sentence = patterns.MinSeparationPattern(
        2000, min_index_gap=314, max_participations=6
    ).describe()
    for part in ('2000 rounds', '6 times', '314', '313 rounds strictly'):
      self.assertIn(part, sentence)


class CommonTest(parameterized.TestCase):

  @parameterized.parameters(*_PATTERNS)
  def test_json_round_trip(self, pattern):
    content = json.loads(json.dumps(pattern.to_json()))
    self.assertEqual(patterns.ParticipationPattern.from_json(content), pattern)

  @parameterized.parameters(*_PATTERNS)
  def test_truncated_keeps_the_promise_of_the_first_rounds(self, pattern):
    for stop in range(1, 10):
      first = pattern.truncated(stop)
      self.assertEqual(first.num_rounds, stop)
      for size in range(stop + 1):
        for rounds in itertools.combinations(range(stop), size):
          self.assertEqual(
              _allowed(first, [0] * 9, rounds),
              _allowed(pattern, [0] * 9, rounds),
          )

  @parameterized.parameters(*_PATTERNS)
  def test_describe_is_one_sentence_about_each_client(self, pattern):
    sentence = pattern.describe()
    self.assertStartsWith(sentence, 'Each client ')
    self.assertEndsWith(sentence, '.')
    self.assertEqual(sentence.count('.'), 1)

  @parameterized.parameters(
      (10, None, (10,)),
      (10, 10, (10,)),
      (10, 20, (10,)),
      (10, 5, (5, 5)),
      (10, 4, (4, 4, 2)),
      (3, 1, (1, 1, 1)),
  )
  def test_tree_lengths(self, num_rounds, restart_every, expected):
    self.assertEqual(
        patterns.tree_lengths(num_rounds, restart_every=restart_every),
        expected,
    )


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(0, -1, 2.0, True, None, '3')
  def test_num_rounds(self, value):
    with self.assertRaisesRegex(ValueError, '^num_rounds='):
      patterns.MinSeparationPattern(value)
    with self.assertRaisesRegex(ValueError, '^num_rounds='):
      patterns.FixedOrderPattern(value, rounds_per_epoch=2)
    with self.assertRaisesRegex(ValueError, '^num_rounds='):
      patterns.OncePerTreePattern(value)
    with self.assertRaisesRegex(ValueError, '^num_rounds='):
      patterns.tree_lengths(value)

  def test_other_arguments(self):
    with self.assertRaisesRegex(ValueError, '^min_index_gap=0'):
      patterns.MinSeparationPattern(5, min_index_gap=0)
    with self.assertRaisesRegex(ValueError, '^max_participations=0'):
      patterns.MinSeparationPattern(5, max_participations=0)
    with self.assertRaisesRegex(ValueError, '^rounds_per_epoch=0'):
      patterns.FixedOrderPattern(5, rounds_per_epoch=0)
    for pattern in _PATTERNS:
      with self.assertRaisesRegex(ValueError, '^restart_every=0'):
        pattern.limits(restart_every=0)
      with self.assertRaisesRegex(ValueError, '^num_rounds=10'):
        pattern.truncated(10)

  def test_a_bare_separation_is_refused(self):
    for arguments, options in (((5, 3), {}), ((5,), {'min_separation': 3})):
      with self.assertRaises(TypeError):
        patterns.MinSeparationPattern(*arguments, **options)

  def test_json_of_something_else(self):
    with self.assertRaisesRegex(ValueError, "^kind='poisson'"):
      patterns.ParticipationPattern.from_json({'kind': 'poisson'})
    with self.assertRaisesRegex(ValueError, 'num_rounds'):
      patterns.ParticipationPattern.from_json(
          {'kind': 'once-per-tree', 'num_rounds': 3, 'extra': 1}
      )


if __name__ == '__main__':
  absltest.main()
