# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account`, as far as main_test has none."""

import dataclasses
import json
import os

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np

from tests.cli import command
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import main
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.plans import dp_ftrl as plan_lib

_DP_FTRL = ('account', 'dp-ftrl', '--rounds=24', '--noise-multiplier=3',
            '--delta=1e-6')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_json(main.main, *argv)


class FlagsTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('once', ('--max-participations=1',), 5),
      # Nodes per level, times their squared length.
      ('every_round', (), 24 + 12 * 4 + 6 * 16 + 3 * 64 + 256),
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

  @parameterized.product(
      mechanism=(
          {},
          {'restart_every': 9},
          {'mechanism': 'independent'},
          {'mechanism': 'banded', 'bands': 1},
      ),
      most=(None, 1, 3, 100),
      gap=(None, 1, 7, 100),
  )
  def test_participation_is_what_the_library_takes_it_for(
      self, mechanism, most, gap
  ):
    promised = {'max_participations': most, 'min_index_gap': gap}
    flags = [
        f'--{name}={value}'
        for name, value in (mechanism | promised).items()
        if value is not None
    ]
    result = _json(*_DP_FTRL, *flags)
    schedule = participation.MinSeparation(
        24, min_index_gap=gap or 1, max_participations=most
    )
    options = dict(mechanism)
    name = options.pop('mechanism', 'honaker')
    if 'bands' in options:
      options['num_bands'] = options.pop('bands')
    plan = plan_lib.PrivacyPlan(
        mechanism=mechanisms.build(name, schedule, **options),
        participation=schedule,
        l2_norm_clip=1.0,
        clients_per_round=1,
        noise_multiplier=3.0,
    )
    self.assertEqual(result['epsilon'], plan.epsilon(delta=1e-6))
    calibrated = _json(
        'calibrate', 'dp-ftrl', '--rounds=24', '--epsilon=2', '--delta=1e-6',
        *flags,
    )
    self.assertEqual(
        calibrated['squared_sensitivity'], plan.squared_sensitivity
    )
    compared = _json(
        'compare', '--rounds=24', f'--mechanisms={name}',
        *(flag for flag in flags if not flag.startswith('--mechanism=')),
    )
    for found in (result, calibrated, compared):
      self.assertEqual(
          found['max_participations'], schedule.pattern.max_participations
      )

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

  @parameterized.parameters(
      ('independent', '--error=max'),
      ('independent', '--restart-every=6'),
      ('tree', '--bands=3'),
      ('honaker', '--buffers=3'),
      ('blt', '--bands=3'),
      ('blt', '--complete-trees'),
      ('banded', '--buffers=3'),
      ('toeplitz', '--bands=3'),
      ('dense', '--restart-every=6'),
  )
  def test_a_flag_of_another_mechanism_is_refused(self, mechanism, flag):
    code, out, err = _run(*_DP_FTRL, f'--mechanism={mechanism}', flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, f'error: {flag.split("=")[0]}=')
    self.assertIn(f'nothing with {mechanism}: it is for', err)

  @parameterized.parameters(
      ('banded', '--bands=6', 'at most min_index_gap, 5'),
      ('banded', '--bands=0', 'at least 1'),
      ('banded-inverse', '--bands=-3', 'at least 1'),
      ('blt', '--buffers=1', 'from 2 to 8'),
      ('blt', '--buffers=9', 'from 2 to 8'),
      ('dense', '--rounds=257', 'from 1 to 256'),
      ('blt', '--error=median', "'max', 'mean'"),
  )
  def test_options_out_of_range(self, mechanism, flag, allowed):
    code, out, err = _run(
        *_DP_FTRL, '--max-participations=3', '--min-index-gap=5',
        f'--mechanism={mechanism}', flag,
    )
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: ')
    self.assertIn(flag.split('=')[0], err)
    self.assertIn(allowed, err)

  @parameterized.parameters(*mechanisms.BY_NAME)
  def test_every_mechanism(self, name):
    flags = (*_DP_FTRL, '--max-participations=3', '--min-index-gap=5',
             f'--mechanism={name}')
    result = _json(*flags)
    pattern = patterns.MinSeparationPattern(
        24, min_index_gap=5, max_participations=3
    )
    mechanism = mechanisms.build(name, pattern)
    self.assertEqual(result['mechanism'], name)
    self.assertAlmostEqual(
        result['squared_sensitivity'], mechanism.squared_sensitivity(pattern)
    )
    self.assertEqual(
        result['squared_sensitivity_is_exact'],
        mechanism.sensitivity_is_exact(pattern),
    )
    code, out, _ = _run(*flags)
    self.assertEqual(code, 0)
    self.assertIn('(zero-out), exact', out)

  def test_parameters_are_told(self):
    flags = (*_DP_FTRL, '--max-participations=3', '--min-index-gap=5')
    banded = (*flags, '--mechanism=banded', '--bands=4')
    self.assertEqual(_json(*banded)['mechanism_parameters'], {'num_bands': 4})
    self.assertIn('bands 4', _run(*banded)[1])
    blt = (*flags, '--mechanism=blt', '--buffers=2', '--error=mean')
    parameters = _json(*blt)['mechanism_parameters']
    self.assertEqual(parameters['num_buffers'], 2)
    _, out, _ = _run(*blt)
    for name in ('weights', 'decays'):
      (line,) = [line for line in out.splitlines() if name in line]
      # Enough digits for the numbers of the run.
      self.assertEqual(
          [float(np.float32(number)) for number in line.split()[1:]],
          parameters[name],
      )
    self.assertNotEqual(
        parameters, _json(*blt[:-1])['mechanism_parameters']
    )

  def test_an_upper_bound_is_called_one(self):
    # Few participations, no separation: C increases, its envelope does not.
    flags = ('account', 'dp-ftrl', '--rounds=100', '--noise-multiplier=3',
             '--delta=1e-6', '--mechanism=banded-inverse', '--bands=4',
             '--max-participations=3')
    self.assertFalse(_json(*flags)['squared_sensitivity_is_exact'])
    self.assertIn('(zero-out), an upper bound', _run(*flags)[1])

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
          mechanisms.Toeplitz.square_root(24),
          mechanisms.Banded.square_root(24, 4),
          mechanisms.Banded.square_root(24, 1, restart_every=6),
          mechanisms.Blt(24, (0.25, 0.125), (1.0, 0.3), restart_every=6),
          mechanisms.BandedInverse.square_root(24, 3, stores_draws=True),
          mechanisms.Dense(24, tuple(map(tuple, np.tril(np.ones((24, 24)))))),
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

  @parameterized.product(
      mechanism=(
          mechanisms.Banded.square_root(24, 4),
          mechanisms.Blt(24, (0.25, 0.125), (1.0, 0.3), restart_every=6),
          mechanisms.Dense(24, tuple(map(tuple, np.tril(np.ones((24, 24)))))),
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
    del content['plan']['adaptive_clipping']
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
