# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the realised check-in rate."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import participation
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
    protocol = participation.ShuffledCheckIn(50, 0.1, 900, **options)
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

  def test_protocols_without_a_rate(self):
    found = monitoring.realised_rate(5, num_rounds=1, num_clients=10)
    self.assertIsNone(
        monitoring.warning(participation.AveragedCheckIn(5, 10), found)
    )


class NoisedRateTest(parameterized.TestCase):

  def _found(self, check_ins, protocol, **options):
    arguments = dict(num_rounds=20, num_clients=1000, stddev=10.0)
    return monitoring.noised_rate(
        check_ins, protocol=protocol, **(arguments | options)
    )

  def test_rate_and_width(self):
    protocol = participation.FixedWindowCheckIn(40, 0.5)
    found = self._found(240, protocol)
    # In half of the pass everybody would have been 500 check-ins.
    self.assertAlmostEqual(found.rate, 240 / 500)
    width = stats.norm.isf(monitoring.ERROR_PROBABILITY / (20 * 21) / 2)
    width *= np.sqrt(0.5 * 500 + 20 * 100) / 500
    self.assertAlmostEqual(found.high - found.rate, width)
    self.assertAlmostEqual(found.rate - found.low, width)

  @parameterized.parameters(1, 3)
  def test_everybody_is_expected_in_every_pass(self, selected):
    protocol = participation.RandomAllocation(40, selected, 0.5)
    # Two passes and half of a third one.
    found = self._found(600, protocol, num_rounds=100)
    self.assertAlmostEqual(found.rate, 600 / (2500 * selected))

  @parameterized.parameters(1, 3)
  def test_noised_counts_of_honest_clients_raise_no_warning(self, selected):
    protocol = participation.RandomAllocation(10, selected, 0.3)
    rng = np.random.default_rng(1)
    for _ in range(300):
      # All steps of one pass: everybody who takes part checks in k times.
      total = selected * rng.binomial(200, 0.3) + rng.normal(
          scale=5 * np.sqrt(10)
      )
      found = self._found(
          round(total), protocol, num_rounds=10, num_clients=200, stddev=5.0
      )
      self.assertIsNone(monitoring.warning(protocol, found))

  def test_warnings(self):
    protocol = participation.FixedWindowCheckIn(40, 0.5)
    found = self._found(490, protocol, stddev=1.0)
    self.assertIn('epsilon is larger', monitoring.warning(protocol, found))
    found = self._found(10, protocol, stddev=1.0)
    self.assertIn(
        'Epsilon is not larger', monitoring.warning(protocol, found)
    )

  def test_sliding_window_has_no_rate(self):
    self.assertIsNone(
        self._found(5, participation.SlidingWindowCheckIn(40, 5))
    )


if __name__ == '__main__':
  absltest.main()
