# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for what a silo may allow; its ledger is tested with its plans."""

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.systems.silos import silo_budget


class SiloBudgetTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(num_records=0, epsilon=1.0), 'num_records=0'),
      (dict(num_records=5, epsilon=0.0), 'epsilon=0.0'),
      (dict(num_records=5, epsilon=1.0, delta=1.0), 'delta=1.0'),
      (dict(num_records=1, epsilon=1.0, delta=0.5), 'delta=0.5.*at most 0.1'),
      (dict(num_records=100, epsilon=1.0, delta=0.01), '1 / num_records = 0.01'),
      (dict(num_records=1, epsilon=1.0), 'delta=None'),
      (dict(num_records=5, epsilon=1.0, weight=0.0), 'weight=0.0'),
  )
  def test_budgets(self, fields, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      silo_budget.SiloBudget(**fields)


if __name__ == '__main__':
  absltest.main()
