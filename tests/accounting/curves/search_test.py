# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of searches: against brute force, and at what holds nowhere."""

import math
import sys

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp.accounting.curves import search

_ANY_FLOAT = (1e-290, 1e-9, 0.3, 1.0, 2.0, 2.5, 1e9, 1e290)


def _from(threshold):
  return lambda number: number >= threshold


class NearestTest(parameterized.TestCase):

  @parameterized.product(
      threshold=tuple(range(1, 12)), ends=((0, 11), (-9, 30))
  )
  def test_ints(self, threshold, ends):
    low, high = ends
    tried = []

    def holds(number):
      tried.append(number)
      return number >= threshold

    found = search.nearest(holds, low, high)
    self.assertEqual(found, min(filter(_from(threshold), range(low, high + 1))))
    self.assertIsInstance(found, int)
    self.assertNoCommonElements(tried, ends)
    # The largest, from the other side.
    found = search.nearest(lambda x: x < threshold, high + 1, low)
    self.assertEqual(found, threshold - 1)

  @parameterized.product(
      threshold=(-2.75, -1e-9, 0.0, 1e-30, 0.1, 2.5), geometric=(False, True)
  )
  def test_floats_end_at_the_neighbour(self, threshold, geometric):
    low, high = (1e-40, 1e20) if geometric else (-3.0, 3.0)
    if geometric:
      threshold = abs(threshold) + 1e-35
    find = lambda *args: search.nearest(*args, geometric=geometric)
    # Roots of products are a few units in the last place off.
    most = 1 + 1e-15 if geometric else 1
    found = find(_from(threshold), low, high)
    self.assertGreaterEqual(found, threshold)
    self.assertLessEqual(found, threshold * most)
    found = find(lambda x: x < threshold, high, low)
    self.assertLess(found, threshold)
    self.assertGreaterEqual(found * most, np.nextafter(threshold, -math.inf))

  @parameterized.product(tolerance=(1e-9, 0.01, 0.5), geometric=(False, True))
  def test_tolerance(self, tolerance, geometric):
    for threshold in (0.01, 0.5, 7.3):
      tried = [1e-3]

      def holds(number):
        if number < threshold:
          tried.append(number)
        return number >= threshold

      found = search.nearest(
          holds, tried[0], 10.0, tolerance=tolerance, geometric=geometric
      )
      self.assertGreaterEqual(found, threshold)
      self.assertLessEqual(found - max(tried), tolerance * found)

  def test_known_end_if_nothing_else_holds(self):
    nowhere, everywhere = lambda _: False, lambda _: True
    self.assertEqual(search.nearest(nowhere, 0, 10), 10)
    self.assertEqual(search.nearest(everywhere, 0, 10), 1)
    self.assertEqual(search.nearest(nowhere, 0.0, 10.0), 10.0)
    self.assertEqual(search.nearest(nowhere, 10.0, 0.0), 0.0)
    self.assertEqual(search.nearest(everywhere, 1.0, 2.0), np.nextafter(1, 2))
    self.assertEqual(search.nearest(self.fail, 4, 5), 5)
    self.assertEqual(search.nearest(self.fail, 1.0, 1 - 2**-53), 1 - 2**-53)
    self.assertEqual(search.nearest(self.fail, 0.0, math.inf), math.inf)

  def test_flickering_condition_holds_at_the_result(self):
    for seed in range(50):
      noise = np.random.default_rng(seed).random(200)
      holds = lambda i: i >= 150 or (i > 50 and noise[i] < 0.5)
      self.assertTrue(holds(search.nearest(holds, 0, 199)))


class LeastTest(parameterized.TestCase):

  @parameterized.product(threshold=tuple(range(1, 40)), start=(1, 2, 5, 64))
  def test_ints(self, threshold, start):
    found = search.least(_from(threshold), start)
    self.assertEqual(found, threshold)
    self.assertIsInstance(found, int)

  @parameterized.product(threshold=_ANY_FLOAT, start=(1e-5, 1.0, 3.7))
  def test_floats(self, threshold, start):
    self.assertEqual(search.least(_from(threshold), start), threshold)
    found = search.least(_from(threshold), start, tolerance=0.01)
    self.assertBetween(found, threshold, threshold / 0.99)
    found = search.least(_from(threshold), start, tolerance=0.5)
    self.assertBetween(found, threshold, 2 * threshold)

  def test_nowhere_and_everywhere(self):
    nowhere, everywhere = lambda _: False, lambda _: True
    self.assertEqual(search.least(nowhere), math.inf)
    self.assertEqual(search.least(nowhere, 1, most=1 << 40), math.inf)
    self.assertEqual(search.least(everywhere, 7), 1)
    self.assertBetween(search.least(everywhere), 0, sys.float_info.min)

  def test_nothing_above_the_most_is_tried(self):
    tried = []
    found = search.least(lambda x: tried.append(x) or x >= 9, 1, most=8)
    self.assertEqual((found, tried), (math.inf, [1, 2, 4, 8]))
    self.assertEqual(search.least(_from(8), 1, most=8), 8)


class LeastWithinTest(parameterized.TestCase):

  @parameterized.product(
      cost=(
          lambda x: 1 / x,
          lambda x: x**-6,
          lambda x: x**-0.1,
          lambda x: math.inf if x < 3 else 5 / x,
          lambda x: 100.0 if x < 3 else 0.0,
          lambda x: math.exp(min(1 / x, 700)) - 1,
      ),
      budget=(0.7, 1.2, 30.0),
      start=(0.01, 1.0, 50.0),
      tolerance=(1e-6, 1e-2),
  )
  def test_is_close_and_never_above(self, cost, budget, start, tolerance):
    tried = []

    def counted(number):
      tried.append(number)
      return cost(number)

    found = search.least_within(budget, counted, start, tolerance=tolerance)
    self.assertLessEqual(cost(found), budget)
    self.assertGreater(cost(found * (1 - 2 * tolerance)), budget)
    self.assertLen(set(tried), len(tried))

  def test_ends(self):
    find = lambda cost, **kwargs: search.least_within(
        1.0, cost, tolerance=1e-3, **kwargs
    )
    self.assertEqual(find(lambda _: math.inf), math.inf)
    self.assertEqual(find(lambda x: 10 / x, most=8), math.inf)
    self.assertLessEqual(find(lambda _: 0.0), sys.float_info.min)

  def test_smooth_costs_take_few_steps(self):
    tried = []
    search.least_within(
        1.3, lambda x: tried.append(x) or 2 / x + x**-2, tolerance=1e-6
    )
    self.assertLess(len(tried), 10)


if __name__ == '__main__':
  absltest.main()
