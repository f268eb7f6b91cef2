# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that schedules keep their pattern, and refuse what they cannot keep."""

import itertools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.participation import sampling

_CLIENTS = [f'client_{index}' for index in range(24)]


class _CountingLedger(ledger_lib.ParticipationLedger):
  """Counts the clients that it is asked about."""

  num_asked = 0

  def eligible(self, client_ids, round_index):
    self.num_asked += len(client_ids)
    return super().eligible(client_ids, round_index)

  def standing(self, client_ids, round_index):
    self.num_asked += len(client_ids)
    return super().standing(client_ids, round_index)


def _run(
    schedule,
    clients_per_round,
    *,
    restart_every=None,
    seed=0,
    clients=_CLIENTS,
    ledger=None,
):
  """Returns all cohorts; the ledger raises if one breaks the pattern."""
  ledger = ledger or ledger_lib.ParticipationLedger(
      schedule.pattern, restart_every=restart_every, run_id='test'
  )
  cohorts = []
  for round_index in range(1, schedule.num_rounds + 1):
    cohort = schedule.select(
        round_index=round_index,
        client_ids=clients,
        clients_per_round=clients_per_round,
        ledger=ledger,
        seed=seed,
    )
    ledger.commit(cohort, round_index)
    cohorts.append(cohort)
  return cohorts


class ScheduleTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('loose', sampling.MinSeparation(20, min_index_gap=3), 4),
      ('forced', sampling.MinSeparation(20, min_index_gap=6), 4),
      ('between', sampling.MinSeparation(20, min_rounds_between=5), 4),
      (
          'capped_and_just_enough',
          sampling.MinSeparation(18, min_index_gap=2, max_participations=3),
          4,
      ),
      ('uniform', sampling.UniformSampling(20), 24),
      ('uniform_capped', sampling.UniformSampling(12, max_participations=2), 4),
      ('epochs', sampling.ShuffledEpochs(20, rounds_per_epoch=6), 4),
  )
  def test_cohorts_are_full_and_keep_the_pattern(self, schedule, size):
    schedule.validate_population(len(_CLIENTS), size)
    for cohort in _run(schedule, size):
      self.assertLen(set(cohort), size)
      self.assertContainsSubset(cohort, _CLIENTS)

  def test_both_names_of_the_separation_differ_by_one(self):
    self.assertEqual(
        sampling.MinSeparation(20, min_rounds_between=5).pattern,
        sampling.MinSeparation(20, min_index_gap=6).pattern,
    )

  def test_order_is_fixed_within_a_tree_and_new_after_a_restart(self):
    schedule = sampling.ShuffledEpochs(
        24, rounds_per_epoch=6, epochs_per_shuffle=2
    )
    cohorts = _run(schedule, 4, restart_every=12)
    self.assertEqual(cohorts[:6], cohorts[6:12])
    self.assertEqual(cohorts[12:18], cohorts[18:])
    self.assertNotEqual(cohorts[:6], cohorts[12:18])

  def test_once_per_tree_begins_anew_after_a_restart(self):
    schedule = sampling.OncePerTree(12)
    self.assertEqual(
        sampling.from_description({'name': 'OncePerTree', 'num_rounds': 12}),
        schedule,
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'name=None'):
      sampling.from_description({'num_rounds': 12})
    # 24 clients fill the 6 rounds of a tree, and no round more.
    cohorts = _run(schedule, 4, restart_every=6)
    for tree in (cohorts[:6], cohorts[6:]):
      self.assertCountEqual(sum(tree, []), _CLIENTS)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 7 has 0'):
      _run(schedule, 4, restart_every=7)

  def test_selection_is_a_function_of_the_seed(self):
    schedule = sampling.MinSeparation(10, min_index_gap=2)
    self.assertEqual(_run(schedule, 4, seed=1), _run(schedule, 4, seed=1))
    self.assertNotEqual(_run(schedule, 4, seed=1), _run(schedule, 4, seed=2))

  def test_uniform_sampling_reaches_everybody_alike(self):
    cohorts = _run(sampling.UniformSampling(600), 6)
    counts = np.array(
        [sum(client in cohort for cohort in cohorts) for client in _CLIENTS]
    )
    # Binomial(600, 1/4): mean 150, std 10.6; 24 clients, 5 std each.
    self.assertLess(np.abs(counts - 150).max(), 53)
    # And whoever has just come, too: 6 x 6 / 24 of a cohort, std 0.94.
    again = [len({*a} & {*b}) for a, b in itertools.pairwise(cohorts)]
    self.assertBetween(np.mean(again), 1.3, 1.7)

  def test_a_round_asks_about_a_few_clients_for_each_that_comes(self):
    clients = [f'client_{index}' for index in range(800)]
    schedule = sampling.UniformSampling(600, max_participations=3)
    ledger = _CountingLedger(schedule.pattern, run_id='test')
    cohorts = _run(schedule, 4, clients=clients, ledger=ledger)
    # Three passes, each of all clients.
    for start in (0, 200, 400):
      self.assertCountEqual(sum(cohorts[start : start + 200], []), clients)
    # To look at all of them in every round would be 600 times the population.
    self.assertLess(ledger.num_asked, 90 * len(clients))
    uncapped = sampling.UniformSampling(200)
    ledger = _CountingLedger(uncapped.pattern, run_id='test')
    _run(uncapped, 4, clients=clients, ledger=ledger)
    self.assertLess(ledger.num_asked, 2 * 200 * 4)

  def test_who_never_came_may_come_where_others_have_left(self):
    clients = [f'client_{index}' for index in range(400)]
    schedule = sampling.UniformSampling(9, max_participations=9)
    ledger = ledger_lib.ParticipationLedger(schedule.pattern, run_id='test')
    ledger.commit(clients, 1)
    new = [f'new_{index}' for index in range(200)]
    came = set()
    for round_index in range(2, 10):
      cohort = schedule.select(
          round_index=round_index,
          client_ids=clients[:200] + new,
          clients_per_round=4,
          ledger=ledger,
          seed=0,
      )
      ledger.commit(cohort, round_index)
      came.update(cohort)
    self.assertNotEmpty(came.intersection(new))

  def test_who_comes_next_is_uniform_among_those_who_may(self):
    # Pairs of 50 clients; of those, 5 have come and may not come again.
    clients = _CLIENTS + [f'other_{index}' for index in range(26)]
    schedule = sampling.UniformSampling(2, max_participations=1)
    counts = dict.fromkeys(clients[5:], 0)
    num_runs = 4000
    ledger = ledger_lib.ParticipationLedger(schedule.pattern, run_id='test')
    ledger.commit(clients[:5], 1)
    for seed in range(num_runs):
      for client in schedule.select(
          round_index=2,
          client_ids=clients,
          clients_per_round=2,
          ledger=ledger,
          seed=seed,
      ):
        counts[client] += 1
    # Their sum is fixed and those of a pair differ, so the true statistic is
    # smaller than chi-square with 44 degrees of freedom: false alarm 1e-6.
    expected = 2 * num_runs / 45
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    self.assertLess(statistic, stats.chi2.isf(1e-6, 44))

  @parameterized.named_parameters(
      (
          'more_than_there_are',
          sampling.UniformSampling(5),
          25,
          'clients_per_round=25 .* from 1 to 24',
      ),
      (
          'separation',
          sampling.MinSeparation(20, min_index_gap=7),
          4,
          'min_index_gap=7 .* at most 6',
      ),
      (
          'participations',
          sampling.MinSeparation(20, min_index_gap=2, max_participations=3),
          4,
          'max_participations=3 .* at least 4',
      ),
      (
          'epoch',
          sampling.ShuffledEpochs(20, rounds_per_epoch=7),
          4,
          'rounds_per_epoch=7 .* at most 6',
      ),
  )
  def test_what_cannot_be_kept_is_named(self, schedule, size, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      schedule.validate_population(len(_CLIENTS), size)

  def test_too_few_eligible_clients_are_refused(self):
    schedule = sampling.MinSeparation(20, min_index_gap=7)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'eligible'):
      _run(schedule, 4)

  @parameterized.named_parameters(
      ('neither', dict()),
      ('both', dict(min_index_gap=3, min_rounds_between=2)),
  )
  def test_separation_must_be_given_once(self, arguments):
    with self.assertRaisesRegex(_checks.ArgumentError, 'exactly one of'):
      sampling.MinSeparation(20, **arguments)


if __name__ == '__main__':
  absltest.main()
