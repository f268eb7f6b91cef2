# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account --events`, of DP-FTRL and in general."""

import dataclasses
import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tests.cli import command
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.cli import main
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.systems.dp_ftrl import plan as plan_lib

_DP_FTRL = ('account', 'dp-ftrl', '--rounds=24', '--noise-multiplier=3',
            '--delta=1e-6')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_flat(main.main, *argv)


class EventsTest(parameterized.TestCase):

  def _plan(self, mechanism=None, schedule=None):
    return plan_lib.DpFtrlPlan(
        mechanism=mechanism or mechanisms.HonakerTree(24),
        participation=schedule
        or participation.MinSeparation(24, min_index_gap=5),
        l2_norm_clip=1.0,
        clients_per_round=10,
        noise_multiplier=3.0,
    )

  def _file(self, content) -> str:
    return self.create_tempfile(content=json.dumps(content)).full_path

  @parameterized.product(
      mechanism=(
          mechanisms.Independent(24),
          mechanisms.Tree(24, num_cached_levels=1),
          mechanisms.HonakerTree(24),
          mechanisms.HonakerTree(24, restart_every=6, complete_trees=True),
          mechanisms.Toeplitz.square_root(24),
          mechanisms.Banded.square_root(24, 4),
          mechanisms.Banded.square_root(24, 1, restart_every=6),
          mechanisms.Blt(24, (0.25, 0.125), (1.0, 0.3), restart_every=6),
          mechanisms.BandedInverse.square_root(24, 3, stores_draws=True),
      ),
      schedule=(
          participation.MinSeparation(24, min_index_gap=5),
          participation.MinSeparation(
              24, min_rounds_between=3, max_participations=2
          ),
          participation.UniformSampling(24, max_participations=3),
          participation.ShuffledEpochs(24, rounds_per_epoch=6),
      ),
  )
  def test_recomputes_the_plans_epsilon(self, mechanism, schedule):
    plan = self._plan(mechanism, schedule)
    gap = schedule.pattern.min_index_gap
    if mechanism.name == 'banded' and mechanism.num_bands > gap:
      return  # Has no sensitivity then.
    result = _json(
        'account',
        '--events',
        self._file(plan.events_json(delta=1e-5)),
        '--delta=1e-5',
    )
    self.assertEqual(result['epsilon'], plan.epsilon(delta=1e-5))
    self.assertEqual(result['mechanism'], mechanism.name)
    # And so does dp_accounting, which knows nothing of us.
    accountant = dp_accounting.pld.PLDAccountant(
        value_discretization_interval=1e-3
    )
    accountant.compose(plan.event())
    self.assertAlmostEqual(
        result['epsilon'], accountant.get_epsilon(1e-5), delta=0.01
    )

  @parameterized.product(
      restart_every=(None, 6), complete_trees=(False, True), rounds=(1, 13, 24)
  )
  def test_run_that_stopped_early(self, restart_every, complete_trees, rounds):
    if complete_trees and restart_every is None:
      return
    plan = self._plan(
        mechanisms.HonakerTree(
            24, restart_every=restart_every, complete_trees=complete_trees
        )
    )
    content = plan.events_json(delta=1e-5)
    content['events'][0]['rounds'] = rounds
    content['events'][0]['squared_sensitivity'] = float(
        plan.squared_sensitivity_by_round[rounds - 1]
    )
    content['delta'] = 1e-5
    result = _json('account', '--events', self._file(content))
    self.assertEqual(
        result['epsilon'], plan.epsilon(delta=1e-5, num_rounds=rounds)
    )
    self.assertEqual(result['rounds'], rounds)

  @parameterized.product(
      mechanism=(
          mechanisms.Banded.square_root(24, 4),
          mechanisms.Blt(24, (0.25, 0.125), (1.0, 0.3), restart_every=6),
      ),
      rounds=(1, 13),
  )
  def test_matrix_run_that_stopped_early(self, mechanism, rounds):
    plan = self._plan(mechanism)
    content = plan.events_json(delta=1e-5, num_rounds=rounds)
    result = _json('account', '--events', self._file(content))
    self.assertAlmostEqual(
        result['epsilon'], plan.epsilon(delta=1e-5, num_rounds=rounds)
    )
    self.assertEqual(result['rounds'], rounds)

  @parameterized.named_parameters(
      ('weights', 'weights', [0.5, 0.125], 5),
      ('fewer', 'decays', [1.0], 2),
      ('domain', 'decays', [1.5, 0.5], 2),
      ('unstable', 'weights', [0.75, 0.5], 2),
      ('precision', 'decays', [0.3, 0.1], 2),
      ('name', 'name', 'oak', 2),
      ('other', 'name', 'banded', 2),
      ('completed', 'complete_trees', True, 2),
      ('unknown', 'colour', 'red', 2),
  )
  def test_tampered_parameters(self, field, value, code):
    plan = self._plan(mechanisms.Blt(24, (0.25, 0.125), (1.0, 0.5)))
    content = plan.events_json(delta=1e-5)
    content['plan']['mechanism'][field] = value
    ended, out, err = _run('account', '--events', self._file(content))
    self.assertEqual(ended, code)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: ')

  def test_adaptive_clipping(self):
    plan = dataclasses.replace(
        self._plan(mechanisms.HonakerTree(24, restart_every=6)),
        adaptive_clipping=adaptive_clipping.AdaptiveClipping(budget_share=0.2),
    )
    content = plan.events_json(delta=1e-5)
    path = self._file(content)
    result = _json('account', '--events', path)
    self.assertEqual(result['epsilon'], plan.epsilon(delta=1e-5))
    self.assertEqual(result['adaptive_clipping']['budget_share'], 0.2)
    self.assertIn('adaptive; 0.2 of', _run('account', '--events', path)[1])
    # The two streams are what the share says, neither more nor less.
    content['events'][0]['streams']['quantile'] *= 2
    self.assertEqual(_run('account', '--events', self._file(content))[0], 5)
    content['plan']['adaptive_clipping'] = None
    self.assertEqual(_run('account', '--events', self._file(content))[0], 5)

  @parameterized.parameters(
      dict(squared_sensitivity=3.0), dict(noise_multiplier=4.0)
  )
  def test_a_cheaper_claim_than_the_plan_is_refused(self, **changed):
    content = self._plan().events_json(delta=1e-5)
    content['events'][0] |= changed
    code, out, err = _run(
        'account', '--events', self._file(content), '--delta=1e-5'
    )
    self.assertEqual(code, 5)
    self.assertEmpty(out)
    self.assertIn(list(changed)[0], err)

  @parameterized.named_parameters(
      ('schema', dict(schema='other')),
      ('version', dict(schema_version=1)),
      ('events', dict(events=[])),
      ('plan', dict(plan=None)),
  )
  def test_unknown_content(self, changed):
    content = self._plan().events_json(delta=1e-5) | changed
    code, out, err = _run(
        'account', '--events', self._file(content), '--delta=1e-5'
    )
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: --events=')

  @parameterized.parameters(
      dict(unit='record'), dict(neighboring_relation='both'), dict(kind='silos')
  )
  def test_facts_of_another_plan_are_refused(self, **changed):
    content = self._plan().events_json(delta=1e-5) | changed
    code, out, err = _run('account', '--events', self._file(content))
    self.assertEqual(code, 5)
    self.assertEmpty(out)
    self.assertIn(list(changed)[0], err)

  def test_unreadable_files(self):
    missing = os.path.join(self.create_tempdir().full_path, 'events.json')
    code, _, err = _run('account', '--events', missing, '--delta=1e-5')
    self.assertEqual(code, 3)
    self.assertEqual(err, f'error: {missing}: No such file or directory\n')
    broken = self.create_tempfile(content='{').full_path
    code, _, err = _run('account', '--events', broken, '--delta=1e-5')
    self.assertEqual(code, 2)
    self.assertIn(f'--events={broken} is not allowed', err)
    deep = self.create_tempfile(content='[' * 100_000 + ']' * 100_000).full_path
    code, _, err = _run('account', '--events', deep, '--delta=1e-5')
    self.assertEqual(code, 2)
    self.assertIn(f'--events={deep} is not allowed', err)

  def test_delta_is_that_of_the_run_unless_another_is_asked_for(self):
    path = self._file(self._plan().events_json(delta=1e-5))
    self.assertEqual(_json('account', '--events', path)['delta'], 1e-5)
    self.assertEqual(
        _json('account', '--events', path, '--delta=1e-7')['delta'], 1e-7
    )

  def test_nothing_to_account_for_is_a_usage_error(self):
    for words in (('account',), (*_DP_FTRL, '--events=x')):
      self.assertEqual(_run(*words)[0], 2)


if __name__ == '__main__':
  absltest.main()
