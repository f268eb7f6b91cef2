# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the configuration for On-Device Personalization, without a run."""

from absl.testing import absltest

from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.export import task_config
from tff_dp.systems.dp_ftrl import plan as plan_lib


def _plan(num_rounds, min_index_gap, max_participations):
  return plan_lib.DpFtrlPlan(
      mechanisms.Independent(num_rounds),
      participation.MinSeparation(
          num_rounds,
          min_index_gap=min_index_gap,
          max_participations=max_participations,
      ),
      l2_norm_clip=1.0,
      clients_per_round=10,
      noise_multiplier=2.0,
  )


class SeparationTest(absltest.TestCase):

  def test_devices_that_keep_it_keep_the_plan(self):
    for num_rounds in (1, 2, 7, 10, 12):
      for gap in (1, 2, 3, 5):
        for most in (1, 2, 3, 4, None):
          plan = _plan(num_rounds, gap, most)
          pattern = plan.participation.pattern
          # pylint: disable-next=protected-access
          separation = task_config._separation(plan)
          # As often as the separation allows, from the first round on.
          rounds = range(0, num_rounds, separation)
          with self.subTest(f'{num_rounds} {gap} {most}'):
            self.assertLessEqual(len(rounds), pattern.max_participations)
            self.assertGreaterEqual(separation, pattern.min_index_gap)
            if separation > pattern.min_index_gap:
              more = range(0, num_rounds, separation - 1)
              self.assertGreater(len(more), pattern.max_participations)


if __name__ == '__main__':
  absltest.main()
