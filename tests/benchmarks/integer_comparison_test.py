# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The comparison of integer noises with their yardsticks."""

import json
import math

from absl.testing import absltest
from absl.testing import parameterized

from benchmarks import integer_comparison
from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.silos import integer_plans

_SETTINGS = dict(
    epsilon=1.0, delta=1e-5, dimension=8, num_silos=9, records_per_silo=4
)


class ComparisonTest(parameterized.TestCase):

  def test_yardsticks(self):
    central, alone = integer_comparison.compare(grids=[], **_SETTINGS)
    exact = 2 * gaussian.sigma_for(epsilon=1.0, delta=1e-5) / 36
    self.assertAlmostEqual(central.stddev, exact)
    self.assertAlmostEqual(alone.of_central, 3.0)
    # Nine times the variance, against those who see only the mean.
    self.assertLess(alone.epsilon, 0.34)
    self.assertEqual((central.epsilon, alone.silo_epsilon), (1.0, 1.0))

  def test_finer_grids_come_closer_to_central_noise(self):
    rows = integer_comparison.compare(grids=[8, 16], **_SETTINGS)[2:]
    self.assertLen(rows, 6)
    for row in rows:
      self.assertBetween(row.epsilon, 0.97, 1.0)
      self.assertGreater(row.silo_epsilon, 2.5)
      self.assertLess(row.of_central, 1 + math.sqrt(8) / row.grid + 0.15)
    for coarse, fine in zip(rows[:3], rows[3:]):
      self.assertEqual(coarse.noise, fine.noise)
      self.assertGreater(coarse.of_central, fine.of_central)
      self.assertGreater(fine.of_central, 1.0)
      self.assertGreater(fine.bits, coarse.bits)

  def test_what_is_printed(self):
    rows = integer_comparison.compare(
        grids=[8], noises=['skellam'], **_SETTINGS
    )
    lines = integer_comparison.to_text(rows).splitlines()
    self.assertLen(lines, 4)
    self.assertIn('of central', lines[0])
    self.assertTrue(lines[3].startswith('skellam'))
    json.dumps([row.to_json() for row in rows], allow_nan=False)

  @parameterized.parameters(
      ('epsilon', 0.0), ('delta', 0.0), ('num_silos', 0),
      ('records_per_silo', 0), ('dimension', 0),
  )
  def test_errors(self, name, value):
    with self.assertRaisesRegex(_checks.ArgumentError, f'{name}={value}'):
      integer_comparison.compare(
          grids=[8], noises=integer_plans.NOISES[1:],
          **(_SETTINGS | {name: value}),
      )


if __name__ == '__main__':
  absltest.main()
