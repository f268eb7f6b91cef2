# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Sampling on another stack: the law of its coins, its rounds, its statement."""

import importlib.util
import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
from scipy import stats

from tests.integrations import flower_stand_in
from tests.integrations import plain_loop
from tff_dp import _checks
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.systems.sampling import plan as plan_lib
from tff_dp.systems.sampling import server_cohorts

flower = flower_stand_in.adapter()
_FALSE_ALARM = 1e-6
_SEED = 12
_DELTA = 1e-5
_PLAN = plan_lib.SamplingPlan(
    population=12, clients_per_round=3, num_rounds=8, noise_multiplier=1.5
)
_CLIENTS = [f'node {i}' for i in range(12)]
# What each client adds to every weight. The last ones are over the clip norm.
_CHANGES = {each: 0.1 * i for i, each in enumerate(_CLIENTS)}


def _cohorts(plan=_PLAN, seed=_SEED):
  return server_cohorts.CoinCohorts(plan, schedule_seed=0, insecure_seed=seed)


class CoinsTest(absltest.TestCase):

  def test_coins_are_independent_at_the_rate_of_the_plan(self):
    cohorts, rate = _cohorts(), _PLAN.sampling_rate
    drawn = np.array([
        [each in chosen for each in _CLIENTS]
        for chosen in (
            set(cohorts.select(r, _CLIENTS)) for r in range(1, 3001)
        )
    ])
    for by_client in drawn.sum(axis=0):
      found = stats.binomtest(int(by_client), len(drawn), rate)
      self.assertGreater(found.pvalue, _FALSE_ALARM)
    # Variance of the sizes: a fixed size has 0, one coin for all 12 times more.
    sizes = drawn.sum(axis=1)
    law = stats.binom(len(_CLIENTS), rate)
    cells = np.array([0, 1, 2, 3, 4, 5, 13])
    seen, _ = np.histogram(sizes, cells)
    expected = np.diff(law.cdf(cells - 1)) * len(drawn)
    self.assertGreater(stats.chisquare(seen, expected).pvalue, _FALSE_ALARM)
    again = int((drawn[1:] & drawn[:-1]).sum())
    found = stats.binomtest(again, drawn[1:].size, rate**2)
    self.assertGreater(found.pvalue, _FALSE_ALARM)

  def test_a_coin_does_not_depend_on_who_else_is_connected(self):
    cohorts = _cohorts()
    for round_index in range(1, 30):
      everybody = set(cohorts.select(round_index, _CLIENTS))
      some = _CLIENTS[::2]
      self.assertEqual(
          cohorts.select(round_index, some),
          [each for each in some if each in everybody],
      )

  def test_every_run_has_coins_of_its_own(self):
    def drawn(cohorts):
      return [cohorts.select(r, _CLIENTS) for r in range(1, 20)]

    self.assertNotEqual(drawn(_cohorts(seed=None)), drawn(_cohorts(seed=None)))
    saved = _cohorts(seed=None)
    self.assertEqual(
        drawn(_cohorts(seed=None).restored(saved.to_bytes())), drawn(saved)
    )

  def test_more_ids_than_clients_are_refused(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'two coins'):
      _cohorts().select(1, [*_CLIENTS, 'node 12'])

  def test_damaged_key_is_refused(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another cohort'):
      _cohorts().restored(b'short')

  def test_full_rate_takes_everybody(self):
    plan = plan_lib.SamplingPlan(
        population=12, clients_per_round=12, num_rounds=2, noise_multiplier=1.0
    )
    self.assertEqual(_cohorts(plan).select(1, _CLIENTS), _CLIENTS)


class _Killed(Exception):
  """Stands for the end of the process."""


class ServerTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path) / 'run'

  def _rounds(self, plan=_PLAN, **options):
    return server_rounds.ServerRounds(
        plan,
        plain_loop.initial_model(),
        **dict(
            output_dir=self._folder,
            delta=_DELTA,
            stack='a test',
            insecure_seed=_SEED,
        ) | options,
    )

  def _finish(self, rounds, cohort):
    return rounds.finish(
        (each, plain_loop.changed(rounds.model, _CHANGES[each]))
        for each in cohort
    )

  def test_ends_with_the_weights_of_a_plain_loop_also_after_a_kill(self):
    expected = [
        _cohorts().select(r, sorted(_CLIENTS))
        for r in range(1, _PLAN.num_rounds + 1)
    ]
    self.assertIn([], expected, 'the seed has no empty round')
    seen = []
    with self._rounds() as rounds:
      for _ in range(3):
        seen.append(rounds.select(_CLIENTS))
        self._finish(rounds, seen[-1])
      with self.assertRaises(_Killed):
        rounds.select(_CLIENTS)
        raise _Killed()
    with self._rounds() as rounds:
      for _ in range(3, _PLAN.num_rounds):
        # The round that had begun keeps its cohort, whoever is connected now.
        here = _CLIENTS if rounds.rounds_done != 3 else _CLIENTS[:1]
        seen.append(rounds.select(here))
        model = self._finish(rounds, seen[-1])
      self.assertEqual(rounds.rounds_left, 0)
    self.assertEqual(seen, expected)
    plain = plain_loop.weights(
        lambda r: [_CHANGES[each] for each in expected[r - 1]], _PLAN, _SEED
    )
    np.testing.assert_array_equal(updates.flat(model), plain)

  def test_statement_has_the_amplified_epsilon_and_the_coins_of_this_stack(self):
    with self._rounds(insecure_seed=None) as rounds:
      cohort = rounds.select(_CLIENTS)
      self._finish(rounds, cohort)
      stated = rounds.statement()
      self.assertEqual(
          rounds.epsilon, _PLAN.epsilon_after(1, delta=_DELTA)
      )
    self.assertLess(rounds.epsilon, _PLAN.epsilon_no_amplification(
        delta=_DELTA, num_rounds=1
    ))
    self.assertEqual(stated.points['guarantee']['epsilon'], rounds.epsilon)
    self.assertIn("client's id", stated.points['implementation']['coins'])
    self.assertIn('neither the coins', stated.points['setting']['adversary'])
    self.assertIn('nothing about who', stated.points['release']['covered'])
    # Neither names nor number of those who came.
    for path in (self._folder / 'release').iterdir():
      self.assertNotIn(b'node ', path.read_bytes(), path.name)

  def test_known_coins_guarantee_nothing(self):
    with self._rounds() as rounds:
      self._finish(rounds, rounds.select(_CLIENTS))
      self.assertEqual(
          rounds.statement().points['guarantee']['epsilon'], 'inf'
      )

  def test_budget_ends_the_run(self):
    budget = _PLAN.epsilon_after(2, delta=_DELTA)
    with self._rounds(epsilon_budget=budget) as rounds:
      for _ in range(2):
        self._finish(rounds, rounds.select(_CLIENTS))
      with self.assertRaises(_checks.PrivacyRefusedError):
        rounds.select(_CLIENTS)

  @parameterized.parameters(
      (dict(schedule_seed=3), 'schedule_seed'),
      (
          dict(
              plan=plan_lib.SamplingPlan(
                  population=12,
                  clients_per_round=3,
                  num_rounds=8,
                  noise_multiplier=1.5,
                  unit='example',
              )
          ),
          'plan.unit',
      ),
  )
  def test_refused_before_anything_is_written(self, options, problem):
    with self.assertRaisesRegex(ValueError, problem):
      self._rounds(**options)
    self.assertFalse(self._folder.exists())

  def test_flower_asks_whom_the_coins_drew_and_nobody_in_an_empty_round(self):
    if importlib.util.find_spec('flwr') is not None:
      self.skipTest('Flower is here: make test-flower')
    nodes, asked = list(range(12)), []

    class Grid:

      def get_node_ids(self):
        return nodes

      def send_and_receive(self, messages, *, timeout):
        del timeout
        asked.append([str(each.metadata.dst_node_id) for each in messages])
        return []

    strategy = flower.SamplingStrategy(
        _PLAN, output_dir=self._folder, delta=_DELTA, insecure_seed=_SEED
    )
    result = strategy.start(
        Grid(), flower.record_of(plain_loop.initial_model()), timeout=0
    )
    here = sorted(map(str, nodes))
    expected = [
        _cohorts().select(r, here) for r in range(1, _PLAN.num_rounds + 1)
    ]
    self.assertIn([], expected, 'the seed has no empty round')
    # Every second message goes to evaluation, which asks nobody.
    self.assertEqual(asked[::2], expected)
    self.assertEqual(asked[1::2], [[]] * _PLAN.num_rounds)
    complaints = (self._folder / 'secret' / 'clients.jsonl').read_text()
    self.assertEqual(
        [json.loads(line)['client_id'] for line in complaints.splitlines()],
        sum(map(sorted, expected), []),
    )
    self.assertLen(flower.arrays_of(result.arrays), 2)


if __name__ == '__main__':
  absltest.main()
