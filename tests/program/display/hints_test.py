# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the hint that a run can hardly learn."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

import tff_dp
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.program.display import hints


def _plan(mechanism, **changes) -> tff_dp.DpFtrlPlan:
  arguments = dict(
      participation=participation.MinSeparation(
          mechanism.num_rounds, min_index_gap=4
      ),
      l2_norm_clip=0.5,
      clients_per_round=8,
      noise_multiplier=2.0,
  )
  return tff_dp.DpFtrlPlan(mechanism=mechanism, **(arguments | changes))


class SignalToNoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      mechanisms.Independent(12),
      mechanisms.HonakerTree(12),
      mechanisms.Tree(12, restart_every=5),
      mechanisms.Banded.square_root(12, 3),
  )
  def test_is_that_of_the_mechanisms_own_noise(self, mechanism):
    plan, num_params, rounds = _plan(mechanism), 7, 11
    # Every draw of the run by itself: the variance of a sum of rounds is the
    # sum of its squared coefficients.
    draws = {}

    def draw(*index):
      return np.eye(64)[draws.setdefault(index, len(draws))]

    state = mechanism.initialize(np.zeros(64))
    total, in_tree, tree_id = np.zeros(64), 0, 0
    operations = mechanism_lib.numpy_operations(
        lambda *index: draw(tree_id, *index)
    )
    for _ in range(rounds):
      if in_tree == mechanism.rounds_per_tree:
        state, in_tree = mechanism.initialize(np.zeros(64)), 0
        tree_id += 1
      in_tree += 1
      noise, state = mechanism.next_noise(state, in_tree, operations)
      total = total + noise
    stddev = 2.0 * 0.5 * math.sqrt(num_params * total @ total)
    self.assertAlmostEqual(
        hints.signal_to_noise(plan, num_params=num_params, num_rounds=rounds),
        8 * rounds * 0.5 / stddev,
    )

  def test_no_noise_hides_nothing(self):
    plan = _plan(mechanisms.Independent(12), noise_multiplier=0.0)
    self.assertEqual(
        hints.signal_to_noise(plan, num_params=10, num_rounds=3), math.inf
    )
    self.assertIsNone(hints.too_noisy(plan, num_params=10, num_rounds=3))


class TooNoisyTest(absltest.TestCase):

  def test_says_which_cohort_would_do(self):
    plan = _plan(mechanisms.Independent(4))
    said = hints.too_noisy(plan, num_params=10_000, num_rounds=4)
    # 8 clients in 4 rounds over noise of 2 * sqrt(4 * 10,000).
    self.assertIn('their sum would be 0.08 times', said)
    self.assertIn('all 8 clients of all 4 rounds', said)
    self.assertIn('noise multiplier 2, 10,000 weights', said)
    self.assertIn('about 100 clients per round', said)
    enough = _plan(mechanisms.Independent(4), clients_per_round=100)
    self.assertIsNone(
        hints.too_noisy(enough, num_params=10_000, num_rounds=4)
    )

  def test_names_records_where_there_are_too_few_clients(self):
    plan = _plan(mechanisms.Independent(4))
    options = dict(num_params=10_000, num_rounds=4)
    said = hints.too_noisy(plan, num_clients=99, **options)
    self.assertIn('99 clients are too few for that', said)
    self.assertIn('tff-dp advise --records', said)
    self.assertNotIn('clients per round;', said)
    self.assertEqual(
        hints.too_noisy(plan, num_clients=100, **options),
        hints.too_noisy(plan, **options),
    )

  def test_nothing_is_said_without_a_cohort_size(self):
    plan = tff_dp.CheckInPlan(
        check_ins.FixedWindowCheckIn(4),
        mechanisms.randomizers.Gaussian(8.0, 1.0),
    )
    self.assertIsNone(hints.too_noisy(plan, num_params=10**6, num_rounds=4))


if __name__ == '__main__':
  absltest.main()
