# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp calibrate`, as far as main_test has none."""

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp.cli import main

_BUDGET = ('--epsilon=3', '--delta=1e-6')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_json(main.main, *argv)


class CalibrateTest(parameterized.TestCase):

  @parameterized.product(
      relation=('zero_out', 'replace_one'),
      flags=(
          (),
          ('--max-participations=4', '--min-index-gap=9'),
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
    self.assertEqual(solved['solved_for'], 'noise_multiplier')
    self.assertEqual(solved['epsilon_budget'], 3.0)
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
        *flags, f'--neighboring-relation={relation}', '--noise-multiplier=12'
    )
    rounds = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags)['rounds']
    below, above = (
        _json(
            'account', 'dp-ftrl', f'--rounds={number}', '--delta=1e-6', *flags
        )['epsilon']
        for number in (rounds, rounds + 1)
    )
    self.assertLessEqual(below, 3.0)
    if rounds < 1 << 16:
      self.assertGreater(above, 3.0)

  @parameterized.product(
      mechanism=('banded', 'blt', 'toeplitz', 'banded-inverse', 'dense'),
      noise=(4, 5),
  )
  def test_rounds_of_optimised_mechanisms(self, mechanism, noise):
    if mechanism == 'dense':  # Has columns of norm 1.
      noise /= 2
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
    honaker = _json('calibrate', 'dp-ftrl', *_BUDGET, *flags[2:])
    self.assertLess(found['noise_multiplier'], honaker['noise_multiplier'])

  def test_search_limit_is_told(self):
    code, out, _ = _run(
        'calibrate', 'dp-ftrl', '--noise-multiplier=100', *_BUDGET,
        '--max-participations=1',
    )
    self.assertEqual(code, 0)
    self.assertStartsWith(
        out, '--noise-multiplier=100 affords 65536 rounds or more (no more'
    )
    code, out, _ = _run(
        'calibrate', 'dp-ftrl', '--noise-multiplier=100', *_BUDGET,
        '--mechanism=dense', '--max-participations=2', '--min-index-gap=2',
    )
    self.assertEqual(code, 0)
    self.assertIn('affords 64 rounds or more (no more', out)

  @parameterized.parameters('zero_out', 'replace_one')
  def test_way_out_of_a_budget_below_one_round_works(self, relation):
    flags = ('calibrate', 'dp-ftrl', *_BUDGET,
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
    code, out, err = _run('calibrate', 'dp-ftrl', *_BUDGET, '--rounds=5', flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, f'error: {flag.split("=")[0]}=')
    self.assertIn('expected', err)
    self.assertLen(err.splitlines(), 1)


if __name__ == '__main__':
  absltest.main()
