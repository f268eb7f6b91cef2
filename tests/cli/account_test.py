# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Tests for `tff-dp account`, as far as main_test has none."""

import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting

from tests.cli import command
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plan as plan_lib
from tff_dp.cli import main

_DP_FTRL = ('account', 'dp-ftrl', '--rounds=24', '--noise-multiplier=3',
            '--delta=1e-6')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_json(main.main, *argv)


class FlagsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('once', (), 5),
      # Nodes per level, times their squared length.
      ('every_round', ('--max-participations=24',), 24 + 12 * 4 + 6 * 16
       + 3 * 64 + 256),
      ('two_trees', ('--restart-every=12', '--max-participations=24'),
       2 * (12 + 6 * 4 + 3 * 16 + 64)),
      ('once_per_tree', ('--restart-every=12', '--participation=once-per-tree'),
       8),
      # Rounds 1 and 13: two nodes with one of them on each of four levels, and
      # the node of 16 rounds with both.
      ('fixed_order', ('--participation=fixed-order', '--rounds-per-epoch=12'),
       12),
  )
  def test_squared_sensitivity(self, flags, expected):
    result = _json(*_DP_FTRL, *flags)
    self.assertEqual(result['squared_sensitivity'], expected)
    self.assertIsInstance(result['squared_sensitivity'], int)

  def test_gap_flags_differ_by_one(self):
    flags = (*_DP_FTRL, '--max-participations=24')
    self.assertEqual(
        _json(*flags, '--min-index-gap=5'),
        _json(*flags, '--min-rounds-between=4'),
    )
    self.assertNotEqual(
        _json(*flags, '--min-index-gap=4')['epsilon'],
        _json(*flags, '--min-rounds-between=4')['epsilon'],
    )

  def test_replace_one(self):
    zero_out = _json(*_DP_FTRL)
    replaced = _json(*_DP_FTRL, '--neighboring-relation=replace_one')
    self.assertGreater(replaced['epsilon'], 2 * zero_out['epsilon'])
    self.assertEqual(replaced['sigma_eff'], zero_out['sigma_eff'] / 2)
    for result in (zero_out, replaced):
      self.assertEqual(
          result['epsilon_by_neighboring_relation'],
          {'zero_out': zero_out['epsilon'], 'replace_one': replaced['epsilon']},
      )

  @parameterized.parameters(
      ('once-per-tree', '--max-participations=2'),
      ('once-per-tree', '--rounds-per-epoch=2'),
      ('fixed-order', '--min-index-gap=2'),
      ('fixed-order', '--min-rounds-between=2'),
      ('min-separation', '--rounds-per-epoch=2'),
  )
  def test_a_flag_that_would_be_ignored_is_refused(self, kind, flag):
    needed = ('--rounds-per-epoch=2',) if kind == 'fixed-order' else ()
    code, out, err = _run(*_DP_FTRL, f'--participation={kind}', flag, *needed)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertIn(f'{flag} is not allowed', err)

  def test_text_shows_unit_relation_and_both_separations(self):
    code, out, err = _run(
        *_DP_FTRL, '--max_participations=3', '--min_index_gap=5'
    )
    self.assertEqual((code, err), (0, ''))
    for part in (
        'unit           client',
        'zero-out',
        'under replace_one adjacency',
        'index gap 5, that is 4 rounds strictly between',
        'no amplification',
        'Renyi',
    ):
      self.assertIn(part, out)
    printed = float(out.split()[1])
    self.assertGreaterEqual(
        printed,
        _json(*_DP_FTRL, '--max-participations=3', '--min-index-gap=5')[
            'epsilon'
        ],
    )


class EventsTest(parameterized.TestCase):

  def _plan(self, mechanism=None, schedule=None):
    return plan_lib.PrivacyPlan(
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
    result = _json(
        'account', '--events', self._file(plan.events_json(delta=1e-5)), '--delta=1e-5'
    )
    self.assertEqual(result['epsilon'], plan.epsilon(delta=1e-5))
    self.assertEqual(result['mechanism'], mechanism.name)
    # And so does dp_accounting, which knows nothing of us.
    accountant = dp_accounting.pld.PLDAccountant()
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
      ('version', dict(schema_version=2)),
      ('unit', dict(unit='record')),
      ('events', dict(events=[])),
      ('plan', dict(plan=None)),
      ('relation', dict(neighboring_relation='both')),
  )
  def test_unknown_content(self, changed):
    content = self._plan().events_json(delta=1e-5) | changed
    code, out, err = _run(
        'account', '--events', self._file(content), '--delta=1e-5'
    )
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: --events=')

  def test_unreadable_files(self):
    missing = os.path.join(self.create_tempdir().full_path, 'events.json')
    code, _, err = _run('account', '--events', missing, '--delta=1e-5')
    self.assertEqual(code, 3)
    self.assertEqual(err, f'error: {missing}: No such file or directory\n')
    broken = self.create_tempfile(content='{').full_path
    code, _, err = _run('account', '--events', broken, '--delta=1e-5')
    self.assertEqual(code, 2)
    self.assertIn(f'--events={broken} is not allowed', err)

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
