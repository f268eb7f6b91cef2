# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of noised counts against the joint law of counts and models."""

import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import optimize
from scipy import stats

from tff_dp.accounting.amplification import noised_counts
from tff_dp.accounting.curves import gaussian


def _randomized_response(local_epsilon, bit, report):
  kept = math.exp(local_epsilon) / (1 + math.exp(local_epsilon))
  return kept if bit == report else 1 - kept


def _models(local_epsilon, bit, slot, reports):
  """Returns the probability of the reports of two slots, one client in one."""
  return math.prod(
      _randomized_response(local_epsilon, bit if i == slot else 0, report)
      for i, report in enumerate(reports)
  )


def _joint(local_epsilon, bit, stddev, grid):
  """Returns weights, shape [4, len(grid)], of reports and noised difference.

  Of the two noised counts only their difference depends on the slot: it is
  normal with mean 1 or -1 and variance 2 stddev^2.
  """
  step = grid[1] - grid[0]
  return np.array([
      sum(
          0.5
          * _models(local_epsilon, bit, slot, reports)
          * stats.norm.pdf(grid, 1 - 2 * slot, math.sqrt(2) * stddev)
          for slot in (0, 1)
      )
      * step
      for reports in itertools.product((0, 1), repeat=2)
  ])


def _hockey_stick(first, second, epsilon):
  return np.maximum(first - math.exp(epsilon) * second, 0).sum()


def _protocol_delta(local_epsilon, epsilon):
  """Returns delta of the models alone, exactly: A_fix, m = 2, one client."""
  laws = [
      np.array([
          np.mean([_models(local_epsilon, bit, slot, r) for slot in (0, 1)])
          for r in itertools.product((0, 1), repeat=2)
      ])
      for bit in (0, 1)
  ]
  return max(
      _hockey_stick(laws[0], laws[1], epsilon),
      _hockey_stick(laws[1], laws[0], epsilon),
  )


def _protocol_epsilon(local_epsilon, delta):
  if _protocol_delta(local_epsilon, 0.0) <= delta:
    return 0.0
  return optimize.brentq(
      lambda e: _protocol_delta(local_epsilon, e) - delta, 0, 2 * local_epsilon
  )


class NoisedCountsTest(parameterized.TestCase):

  @parameterized.product(
      local_epsilon=(0.5, 2.0),
      stddev=(0.4, 1.0, 5.0),
      delta=(1e-2, 1e-4),
  )
  def test_exact_joint_law_is_within_the_bound(
      self, local_epsilon, stddev, delta
  ):
    found = noised_counts.guarantee(
        lambda d: _protocol_epsilon(local_epsilon, d),
        count_stddev=stddev,
        max_reports=1,
        delta=delta,
    )
    grid = np.linspace(-1 - 15 * stddev, 1 + 15 * stddev, 20_001)
    laws = [_joint(local_epsilon, bit, stddev, grid) for bit in (0, 1)]
    for law in laws:
      self.assertAlmostEqual(law.sum(), 1.0)
    for first, second in (laws, laws[::-1]):
      exact = _hockey_stick(first, second, found.epsilon)
      self.assertLessEqual(exact, delta)
    # The counts do cost something: the models alone would be cheaper.
    self.assertGreater(
        found.epsilon, _protocol_epsilon(local_epsilon, delta)
    )

  def test_counts_that_tell_the_slot_undo_the_amplification(self):
    # With next to no noise on the counts the client's report is in the open,
    # and even at m = 2 that is a lot worse than the models alone.
    grid = np.linspace(-2, 2, 20_001)
    laws = [_joint(2.0, bit, 0.05, grid) for bit in (0, 1)]
    exact = _hockey_stick(laws[0], laws[1], 1.0)
    self.assertGreater(exact, 1.1 * _protocol_delta(2.0, 1.0))

  @parameterized.product(max_reports=(1, 4), least=(0.3, 5.0))
  def test_terms(self, max_reports, least):
    found = noised_counts.guarantee(
        lambda d: least + 0.01 * math.log(1 / d),
        count_stddev=20.0,
        max_reports=max_reports,
        delta=1e-6,
    )
    self.assertEqual(
        found.count_epsilon,
        gaussian.exact_epsilon(
            sigma=20 / math.sqrt(max_reports), delta=found.count_delta
        ),
    )
    self.assertEqual(
        found.protocol_epsilon,
        least + 0.01 * math.log(1 / found.protocol_delta),
    )
    self.assertEqual(
        found.epsilon, found.protocol_epsilon + 2 * found.count_epsilon
    )
    total = math.exp(found.count_epsilon) * found.protocol_delta + (
        1 + math.exp(found.count_epsilon + found.protocol_epsilon)
    ) * found.count_delta
    self.assertLessEqual(total, 1e-6)
    self.assertGreater(total, 0.5e-6)

  def test_much_noise_costs_nothing_and_no_guarantee_stays_none(self):
    found = noised_counts.guarantee(
        lambda d: 1.0, count_stddev=1e9, max_reports=1, delta=1e-6
    )
    self.assertAlmostEqual(found.epsilon, 1.0, places=4)
    found = noised_counts.guarantee(
        lambda d: math.inf, count_stddev=1.0, max_reports=1, delta=1e-6
    )
    self.assertEqual(found.epsilon, math.inf)
    found = noised_counts.guarantee(
        lambda d: 1.0, count_stddev=1e-3, max_reports=1, delta=1e-6
    )
    self.assertEqual(found.epsilon, math.inf)

  @parameterized.parameters(
      ({'count_stddev': 0.0}, 'count_stddev=0.0'),
      ({'max_reports': 0}, 'max_reports=0'),
      ({'delta': 1.0}, 'delta=1.0'),
  )
  def test_bad_argument_is_named(self, bad, message):
    arguments = dict(count_stddev=1.0, max_reports=1, delta=1e-6)
    with self.assertRaisesRegex(ValueError, message):
      noised_counts.guarantee(lambda d: 1.0, **(arguments | bad))


if __name__ == '__main__':
  absltest.main()
