# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the descent that all optimisers use."""

import sys
from unittest import mock

from absl.testing import absltest
import numpy as np

from tff_dp.mechanisms.matrix import minimization


def _bowl(x, center):
  return float(np.sum((x - center) ** 2)), 2 * (x - center)


class LocalMinimumTest(absltest.TestCase):

  def test_finds_the_bottom(self):
    center = np.array([1.0, -2.0, 3.0])
    found = minimization.local_minimum(_bowl, np.zeros(3), args=(center,))
    np.testing.assert_allclose(found, center, atol=1e-6)

  def test_keeps_to_bounds(self):
    found = minimization.local_minimum(
        _bowl, np.zeros(2), args=(np.array([1.0, -2.0]),), bounds=[(0, 0.5)] * 2
    )
    np.testing.assert_allclose(found, [0.5, 0.0], atol=1e-6)

  def test_goes_back_from_where_there_is_no_value(self):
    def function(x):  # Defined for x > 0 only, with its minimum at 0.1.
      value = x - 0.1 * np.log(x)
      return float(value[0]), 1 - 0.1 / x

    found = minimization.local_minimum(function, np.array([5.0]))
    np.testing.assert_allclose(found, 0.1, atol=1e-5)

  def test_nothing_to_search(self):
    self.assertEmpty(minimization.local_minimum(_bowl, np.zeros(0)))

  def test_does_without_threadpoolctl(self):
    with mock.patch.dict(sys.modules, threadpoolctl=None):
      found = minimization.local_minimum(
          _bowl, np.zeros(1), args=(np.ones(1),)
      )
    np.testing.assert_allclose(found, 1.0, atol=1e-6)


if __name__ == '__main__':
  absltest.main()
