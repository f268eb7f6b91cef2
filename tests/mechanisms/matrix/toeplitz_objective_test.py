# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for what the optimisers minimise: values and gradients."""

import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.mechanisms import reference
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.mechanisms import workloads
from tff_dp.mechanisms.matrix import toeplitz_algebra

_WORKLOADS = {
    'prefix': None,
    'nesterov': workloads.Workload(0.8, True),
    'cooldown': workloads.Workload(0.5, False, workloads.Cooldown(0.4, 0.1)),
}


def _column(num_rounds, seed=0):
  """Returns a non-increasing first column of C."""
  steps = np.random.default_rng(seed).uniform(size=num_rounds)
  return np.concatenate(([1.0], 0.5 * np.sort(steps)[::-1]))[:num_rounds]


class ObjectiveTest(parameterized.TestCase):

  @parameterized.product(
      workload=tuple(_WORKLOADS),
      error=('max', 'mean'),
      pattern=(
          patterns.MinSeparationPattern(20),
          patterns.MinSeparationPattern(20, max_participations=1),
          patterns.MinSeparationPattern(
              20, min_index_gap=6, max_participations=3
          ),
          patterns.FixedOrderPattern(20, rounds_per_epoch=7),
          patterns.OncePerTreePattern(20),
      ),
  )
  def test_value_is_the_accountants(self, workload, error, pattern):
    column = _column(20)
    inverse = toeplitz_algebra.inverse(column, 20)
    objective = toeplitz_algebra.Objective(
        toeplitz_algebra.tree_setting(pattern),
        error=error,
        workload=_WORKLOADS[workload],
    )
    variances = reference.workload_variances(
        _WORKLOADS[workload] or workloads.Workload(), inverse, 20
    )
    variance = np.max(variances) if error == 'max' else np.mean(variances)
    expected = np.sqrt(
        toeplitz_sensitivity.squared_sensitivity(column, pattern) * variance
    )
    value, _, _ = objective.log_error(column, inverse)
    # A norm of order 64 stands for the maximum where there is a cooldown.
    is_norm = error == 'max' and workload == 'cooldown'
    np.testing.assert_allclose(
        np.exp(value), expected, rtol=0.03 if is_norm else 1e-9
    )
    np.testing.assert_allclose(
        toeplitz_algebra.accounted_error(
            objective, column, inverse, pattern=pattern
        ),
        np.exp(value),
        rtol=1e-9,
    )

  @parameterized.product(
      workload=tuple(_WORKLOADS),
      error=('max', 'mean'),
      gap_and_most=((20, 1), (6, 3), (1, 20)),
  )
  def test_gradients_are_those_of_differences(
      self, workload, error, gap_and_most
  ):
    objective = toeplitz_algebra.Objective(
        toeplitz_algebra.TreeSetting(20, *gap_and_most),
        error=error,
        workload=_WORKLOADS[workload],
    )
    column = _column(20)
    direction = np.random.default_rng(3).normal(size=20)

    def along(step):
      moved = column + step * direction
      return objective.log_error(moved, objective.series_inverse(moved))

    _, by_c, by_d = along(0.0)
    gradient = by_c + objective.through_inverse(
        objective.series_inverse(column), by_d
    )
    step = 1e-6
    difference = (along(step)[0] - along(-step)[0]) / (2 * step)
    np.testing.assert_allclose(gradient @ direction, difference, rtol=1e-5)

  @parameterized.parameters(1, 2, 3, 8, 33, 100)
  def test_series_inverse(self, num_rounds):
    objective = toeplitz_algebra.Objective(
        toeplitz_algebra.TreeSetting(num_rounds, num_rounds, 1), error='max'
    )
    column = 2.0 * _column(num_rounds)
    np.testing.assert_allclose(
        objective.series_inverse(column),
        toeplitz_algebra.inverse(column, num_rounds),
        atol=1e-13,
    )

  @parameterized.parameters('max', 'mean')
  @pytest.mark.slow(cases=['1'])
  def test_sampled_variance_of_a_long_run(self, error):
    num_rounds = 3000
    workload = workloads.Workload(0.9, cooldown=workloads.Cooldown())
    inverse = toeplitz_algebra.inverse_square_root_coefficients(num_rounds)
    objective = toeplitz_algebra.Objective(
        toeplitz_algebra.TreeSetting(num_rounds, num_rounds, 1),
        error=error,
        workload=workload,
    )
    variances = reference.workload_variances(workload, inverse, num_rounds)
    expected = np.max(variances) if error == 'max' else np.mean(variances)
    np.testing.assert_allclose(
        objective.variance(inverse)[0], expected, rtol=0.05
    )

  def test_setting_inside_a_tree(self):
    pattern = patterns.MinSeparationPattern(
        100, min_index_gap=10, max_participations=8
    )
    self.assertEqual(
        toeplitz_algebra.tree_setting(pattern, restart_every=35),
        (35, 10, 4),
    )
    self.assertEqual(
        toeplitz_algebra.tree_setting(pattern, restart_every=10), (10, 10, 1)
    )
    self.assertEqual(
        toeplitz_algebra.tree_setting(patterns.MinSeparationPattern(
            9, min_index_gap=2, max_participations=1)),
        (9, 9, 1),
    )

  def test_unknown_error(self):
    with self.assertRaisesRegex(ValueError, "error='median'"):
      toeplitz_algebra.Objective(
          toeplitz_algebra.TreeSetting(5, 5, 1), error='median'
      )


def _bowl(x, center):
  return float(np.sum((x - center) ** 2)), 2 * (x - center)


class LocalMinimumTest(absltest.TestCase):

  def test_finds_the_bottom(self):
    center = np.array([1.0, -2.0, 3.0])
    found = toeplitz_algebra.local_minimum(_bowl, np.zeros(3), args=(center,))
    np.testing.assert_allclose(found, center, atol=1e-6)

  def test_keeps_to_bounds(self):
    found = toeplitz_algebra.local_minimum(
        _bowl, np.zeros(2), args=(np.array([1.0, -2.0]),), bounds=[(0, 0.5)] * 2
    )
    np.testing.assert_allclose(found, [0.5, 0.0], atol=1e-6)

  def test_goes_back_from_where_there_is_no_value(self):
    def function(x):  # Defined for x > 0 only, with its minimum at 0.1.
      value = x - 0.1 * np.log(x)
      return float(value[0]), 1 - 0.1 / x

    found = toeplitz_algebra.local_minimum(function, np.array([5.0]))
    np.testing.assert_allclose(found, 0.1, atol=1e-5)

  def test_nothing_to_search(self):
    self.assertEmpty(toeplitz_algebra.local_minimum(_bowl, np.zeros(0)))

  def test_does_without_threadpoolctl(self):
    with mock.patch.dict(sys.modules, threadpoolctl=None):
      found = toeplitz_algebra.local_minimum(
          _bowl, np.zeros(1), args=(np.ones(1),)
      )
    np.testing.assert_allclose(found, 1.0, atol=1e-6)


if __name__ == '__main__':
  absltest.main()
