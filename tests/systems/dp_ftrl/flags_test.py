# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of DP-FTRL on the command line, as far as main_test has none."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

from tests.cli import command
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.accounting.sensitivity import patterns
from tff_dp.cli import main
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import plan as plan_lib

_DP_FTRL = ('account', 'dp-ftrl', '--rounds=24', '--noise-multiplier=3',
            '--delta=1e-6')
_BUDGET = ('--epsilon=3', '--delta=1e-6')
# Every client in every round.
_OFTEN = ('--min-index-gap=1', '--mechanism=honaker')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_flat(main.main, *argv)


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
    result = _json(*_DP_FTRL, '--mechanism=honaker', *flags)
    self.assertEqual(result['squared_sensitivity'], expected)

  @parameterized.product(
      mechanism=(
          {'mechanism': 'honaker'},
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
    plan = plan_lib.DpFtrlPlan(
        mechanism=mechanisms.build(name, schedule, **options),
        participation=schedule,
        l2_norm_clip=1.0,
        clients_per_round=1,
        noise_multiplier=3.0,
    )
    self.assertEqual(result['epsilon'], plan.epsilon(delta=1e-6))
    if most is None and gap is None:
      flags.append('--min-index-gap=1')
    calibrated = _json(
        'calibrate', 'dp-ftrl', '--rounds=24', '--epsilon=2', '--delta=1e-6',
        f'--mechanism={name}', *flags,
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

  def test_a_gap_follows_from_the_population_or_is_said_to_be_assumed(self):
    run = ('account', 'dp-ftrl', '--rounds=24', '--noise-multiplier=9',
           '--delta=1e-6')
    clients = ('--population=80', '--clients-per-round=10')
    for flags, said, same in (
        (clients, '--min-index-gap=8, population', '--min-index-gap=8'),
        ((), '--min-index-gap=1, every client', '--min-index-gap=1'),
        # The most favourable gap, of cohorts of one, would be no guarantee.
        (
            ('--population=80',),
            '--min-index-gap=1, every client',
            '--min-index-gap=1',
        ),
    ):
      code, out, err = command.run(main.main, *run, *flags)
      self.assertEqual(code, 0)
      self.assertStartsWith(err, f'assumed: {said}')
      again = command.run(main.main, *run, *flags, same)
      self.assertEqual(again, (0, out, ''))
    code, out, err = command.run(
        main.main, *run, *clients, '--min-index-gap=9'
    )
    self.assertEqual((code, out), (2, ''))
    self.assertIn('--min-index-gap=9', err)

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
      ('--min-index-gap', 11, 10), ('--min-rounds-between', 10, 9)
  )
  def test_a_gap_that_the_population_does_not_allow(self, flag, gap, most):
    flags = (
        'account', 'dp-ftrl', '--rounds=100', '--noise-multiplier=1',
        '--delta=1e-5', '--population=100', '--clients-per-round=10',
    )
    code, _, err = _run(*flags, f'{flag}={gap}')
    self.assertEqual(code, 2)
    self.assertStartsWith(err, f'error: {flag}={gap} is not allowed')
    self.assertIn(f'at most {most}:', err)
    self.assertEqual(_run(*flags, f'{flag}={most}')[0], 0)

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
  )
  def test_a_flag_of_another_mechanism_is_refused(self, mechanism, flag):
    code, out, err = _run(*_DP_FTRL, f'--mechanism={mechanism}', flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, f'error: {flag.split("=")[0]}=')
    self.assertIn(f'no value with {mechanism}: it is for', err)

  @parameterized.parameters(
      ('banded', '--bands=6', 'at most min_index_gap, 5'),
      ('banded', '--bands=0', 'at least 1'),
      ('banded-inverse', '--bands=-3', 'at least 1'),
      ('blt', '--buffers=1', 'from 2 to 8'),
      ('blt', '--buffers=9', 'from 2 to 8'),
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

  @parameterized.parameters(*catalogue.BY_NAME)
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

  def test_account_and_calibrate_take_the_same_noise_by_default(self):
    gap = ('--rounds=24', '--min-index-gap=5', '--delta=1e-6')
    for flags, name in (
        ((), 'blt'),
        (('--restart-every=12',), 'honaker'),
    ):
      found = _json('account', 'dp-ftrl', '--noise-multiplier=3', *gap, *flags)
      solved = _json('calibrate', 'dp-ftrl', '--epsilon=3', *gap, *flags)
      for each in (found, solved):
        self.assertEqual(each['mechanism'], name)

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


class CalibrateTest(parameterized.TestCase):

  @parameterized.product(
      relation=('zero_out', 'replace_one'),
      flags=(
          _OFTEN,
          (
              '--max-participations=4',
              '--min-index-gap=9',
              '--mechanism=honaker',
          ),
          ('--participation=fixed-order', '--rounds-per-epoch=10'),
          (
              '--participation=once-per-tree',
              '--restart-every=7',
              '--complete-trees',
          ),
      ),
  )
  def test_printed_noise_is_enough_and_hardly_more(self, relation, flags):
    flags = (*flags, f'--neighboring-relation={relation}', '--rounds=40')
    code, out, _ = _run('calibrate', 'dp-ftrl', *_BUDGET, *flags)
    self.assertEqual(code, 0)
    printed = out.split('--noise-multiplier=')[1].split()[0]
    spent = _json(
        'account', 'dp-ftrl', f'--noise-multiplier={printed}', '--delta=1e-6',
        *flags,
    )['epsilon']
    self.assertBetween(spent, 2.99999, 3.0)
    solved = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags)
    self.assertEqual(solved['calibration']['solved_for'], 'noise_multiplier')
    self.assertEqual(solved['calibration']['epsilon_budget'], 3.0)
    self.assertLessEqual(solved['epsilon'], 3.0)
    self.assertLessEqual(solved['noise_multiplier'], float(printed))

  @parameterized.product(
      relation=('zero_out', 'replace_one'),
      flags=(
          ('--max-participations=4', '--min-index-gap=9', '--restart-every=20'),
          ('--participation=fixed-order', '--rounds-per-epoch=10'),
          ('--mechanism=independent', '--max-participations=1000'),
      ),
  )
  def test_one_round_more_would_be_too_much(self, relation, flags):
    flags = (
        *flags, f'--neighboring-relation={relation}', '--noise-multiplier=6'
    )
    rounds = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags)['rounds']
    below, above = (
        _json(
            'account', 'dp-ftrl', f'--rounds={number}', '--delta=1e-6', *flags
        )['epsilon']
        for number in (rounds, rounds + 1)
    )
    self.assertLessEqual(below, 3.0)
    self.assertGreater(above, 3.0)

  @parameterized.product(
      mechanism=('banded', 'blt', 'toeplitz', 'banded-inverse'),
      noise=(4, 5),
  )
  @pytest.mark.slow(cases=['0', '2', '4', '6'])  # The same with less noise.
  def test_rounds_of_optimised_mechanisms(self, mechanism, noise):
    flags = (f'--mechanism={mechanism}', f'--noise-multiplier={noise}',
             '--max-participations=10', '--min-index-gap=8')
    found = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags)
    self.assertLessEqual(found['epsilon'], 3.0)
    rounds = found['rounds']
    # Parameters are those of this number of rounds, and one more is too much.
    below, above = (
        _json(
            'account', 'dp-ftrl', f'--rounds={number}', '--delta=1e-6', *flags
        )
        for number in (rounds, rounds + 1)
    )
    self.assertEqual(below['epsilon'], found['epsilon'])
    self.assertEqual(
        below['mechanism_parameters'], found['mechanism_parameters']
    )
    self.assertGreater(above['epsilon'], 3.0)

  def test_noise_of_an_optimised_mechanism(self):
    flags = ('--mechanism=blt', '--buffers=2', '--rounds=40',
             '--max-participations=4', '--min-index-gap=9')
    found = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags)
    self.assertBetween(found['epsilon'], 2.99999, 3.0)
    self.assertEqual(found['mechanism_parameters']['num_buffers'], 2)
    honaker = _json(
        'calibrate', 'dp-ftrl', *_BUDGET, '--mechanism=honaker', *flags[2:]
    )
    self.assertLess(found['noise_multiplier'], honaker['noise_multiplier'])

  def test_search_limit_is_told(self):
    code, out, _ = _run(
        'calibrate', 'dp-ftrl', '--noise-multiplier=100', *_BUDGET,
        '--max-participations=1', '--mechanism=honaker',
    )
    self.assertEqual(code, 0)
    self.assertStartsWith(
        out, '--noise-multiplier=100 affords 65536 rounds or more (no more'
    )

  @parameterized.parameters('zero_out', 'replace_one')
  def test_way_out_of_a_budget_below_one_round_works(self, relation):
    flags = ('calibrate', 'dp-ftrl', *_BUDGET, *_OFTEN,
             f'--neighboring-relation={relation}')
    code, out, err = _run(*flags, '--noise-multiplier=0.5')
    self.assertEqual(code, 5)
    self.assertEmpty(out)
    enough = err.split('try: ')[1].split()[0]
    self.assertEqual(_run(*flags, enough)[0], 0)

  @parameterized.parameters(
      '--epsilon=0', '--epsilon=-1', '--epsilon=nan', '--delta=0', '--delta=2',
      '--rounds=0', '--max-participations=0', '--min-index-gap=0',
      '--restart-every=0', '--bands=2', '--buffers=2', '--error=max',
  )
  def test_a_bad_flag_names_itself(self, flag):
    code, out, err = _run('calibrate', 'dp-ftrl', *_BUDGET, *_OFTEN, '--rounds=5', flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, f'error: {flag.split("=")[0]}=')
    self.assertIn('expected', err)
    self.assertLen(err.splitlines(), 1)


if __name__ == '__main__':
  absltest.main()
