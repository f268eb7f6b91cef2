# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the realised check-in rate."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import check_ins
from tff_dp.participation import monitoring


class RealisedRateTest(parameterized.TestCase):

  @parameterized.parameters((3, 10, 1), (0, 10, 1), (10, 10, 1), (55, 20, 4))
  def test_interval_is_clopper_pearson(self, reports, clients, rounds):
    found = monitoring.realised_rate(
        reports, num_rounds=rounds, num_clients=clients
    )
    trials = clients * rounds
    level = 1 - monitoring.ERROR_PROBABILITY / (rounds * (rounds + 1))
    expected = stats.binomtest(reports, trials).proportion_ci(level, 'exact')
    self.assertAlmostEqual(found.rate, reports / trials)
    self.assertAlmostEqual(found.low, expected.low)
    self.assertAlmostEqual(found.high, expected.high)

  def test_interval_holds_in_all_rounds_at_once(self):
    rng = np.random.default_rng(0)
    num_runs, num_rounds, num_clients = 60, 40, 30
    reports = np.cumsum(
        rng.binomial(num_clients, 0.2, size=(num_runs, num_rounds)), axis=1
    )
    for run in reports:
      for t, total in enumerate(run, 1):
        found = monitoring.realised_rate(
            int(total), num_rounds=t, num_clients=num_clients
        )
        self.assertBetween(0.2, found.low, found.high)

  def test_bad_argument_is_named(self):
    with self.assertRaisesRegex(ValueError, 'num_reports=21'):
      monitoring.realised_rate(21, num_rounds=2, num_clients=10)
    with self.assertRaisesRegex(ValueError, 'num_rounds=0'):
      monitoring.realised_rate(0, num_rounds=0, num_clients=10)


class WarningTest(absltest.TestCase):

  def _warning(self, reports, **options):
    protocol = check_ins.ShuffledCheckIn(50, 0.1, 900, **options)
    return monitoring.warning(
        protocol,
        monitoring.realised_rate(reports, num_rounds=20, num_clients=1000),
    )

  def test_rate_as_assumed(self):
    self.assertIsNone(self._warning(2000))
    self.assertIsNone(self._warning(1600, dropout_rate=0.2))

  def test_more_than_assumed(self):
    warning = self._warning(2400)
    self.assertStartsWith(warning, 'ASSUMPTION IN DOUBT')
    self.assertIn('rate 0.12,', warning)
    self.assertIn('0.1 was assumed', warning)
    self.assertIn('check in more often', warning)
    self.assertIn('more often', self._warning(2000, dropout_rate=0.2))

  def test_fewer_than_assumed(self):
    self.assertIn('min_num_clients=900', self._warning(1600))


if __name__ == '__main__':
  absltest.main()
