# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Cyclic allocation on the command line."""

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command as cli
from tff_dp.cli import main

_ACCOUNT = (
    'account', 'cyclic-allocation', '--rounds=240', '--windows=3',
    '--delta=1e-6',
)
_CALIBRATE = (
    'calibrate', 'cyclic-allocation', '--rounds=60', '--windows=2',
    '--epsilon=2', '--delta=1e-6',
)


def _json(*words):
  return cli.run_json(main.main, *words)


def _run(*words):
  return cli.run(main.main, *words)


class CyclicAllocationTest(parameterized.TestCase):

  def test_account(self):
    words = ('--stride=8', '--noise-multiplier=2.5')
    found = _json(*_ACCOUNT, *words)
    self.assertEqual(found['kind'], 'allocation')
    self.assertEqual(found['plan']['mechanism']['name'], 'banded')
    self.assertLess(found['epsilon'], found['epsilon_no_amplification'])
    self.assertEqual(found['details']['slots_per_window'], 10)
    self.assertEqual(found['details']['num_bands'], 8)
    fewer = _json(*_ACCOUNT, *words, '--bands=1')
    self.assertLess(fewer['epsilon'], found['epsilon'])
    self.assertGreater(fewer['details']['rmse'], found['details']['rmse'])

  def test_calibrate_prints_what_account_takes(self):
    found = _json(*_CALIBRATE)
    solved = found['details']
    again = _json(
        'account', 'cyclic-allocation', '--rounds=60', '--windows=2',
        '--delta=1e-6', f'--stride={solved["stride"]}',
        f'--noise-multiplier={solved["noise_multiplier"]}',
    )
    self.assertEqual(again['epsilon'], found['epsilon'])
    self.assertLessEqual(found['epsilon'], 2.0)
    tried = solved['calibration']['strides']
    self.assertAlmostEqual(min(row['rmse'] for row in tried), solved['rmse'])
    _, out, _ = _run(*_CALIBRATE, '--stride=4')
    self.assertStartsWith(out, '--stride=4 --noise-multiplier=')

  @parameterized.parameters(
      (('--stride=81', '--noise-multiplier=1'), '--windows'),
      (('--stride=0', '--noise-multiplier=1'), '--stride=0'),
      (('--stride=8', '--bands=9', '--noise-multiplier=1'), '--bands=9'),
      (('--stride=8', '--noise-multiplier=0'), '--noise-multiplier=0'),
  )
  def test_bad_flags_are_named(self, words, message):
    code, out, err = _run(*_ACCOUNT, *words)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertIn(message, err)


class CompareTest(absltest.TestCase):

  def test_at_a_budget(self):
    words = (
        'compare', '--rounds=60', '--max-participations=2',
        '--min-index-gap=6', '--mechanisms', 'honaker', 'independent',
    )
    plain = _json(*words)
    found = _json(*words, '--epsilon=2', '--delta=1e-6')
    rows = {row['mechanism']: row for row in found['mechanisms']}
    self.assertEqual(
        set(rows),
        {
            'honaker', 'independent', 'dp-fedavg', 'random-allocation',
            'cyclic-allocation',
        },
    )
    sigmas = [
        rows[row['mechanism']]['rmse'] / row['rmse']
        for row in plain['mechanisms']
    ]
    self.assertAlmostEqual(sigmas[0], sigmas[1])
    self.assertLess(
        rows['random-allocation']['rmse'], rows['independent']['rmse']
    )
    self.assertLess(
        rows['cyclic-allocation']['rmse'], rows['random-allocation']['rmse']
    )

  def test_budget_is_two_numbers(self):
    code, _, err = _run('compare', '--rounds=60', '--epsilon=2')
    self.assertEqual(code, 2)
    self.assertIn('--delta', err)


if __name__ == '__main__':
  absltest.main()
