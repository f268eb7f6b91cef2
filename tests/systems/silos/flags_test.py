# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account isrl` and `tff-dp calibrate isrl`."""

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp.cli import errors
from tff_dp.cli import main
from tff_dp.systems.silos import silo_sampling

_SILO = ('--records=1238', '--rounds=35')
_POISSON = (*_SILO, '--batch-size=100', '--sampling=poisson')
_BLOCKS = (*_SILO, '--batch-size=35', '--sampling=one-pass')


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_flat(main.main, *argv)


class AccountTest(parameterized.TestCase):

  @parameterized.parameters(
      ('poisson', 100, silo_sampling.PoissonSampling(100)),
      ('poisson', 2.5, silo_sampling.PoissonSampling(2.5)),
      ('fixed', 100, silo_sampling.FixedSize(100)),
      ('one-pass', 35, silo_sampling.DisjointBlocks(35)),
  )
  def test_json(self, name, batch, sampling):
    found = _json(
        'account', 'isrl', *_SILO, f'--batch-size={batch}',
        f'--sampling={name}', '--noise-multiplier=5', '--delta=1e-6',
    )
    expected = silo_sampling.epsilon(
        sampling, num_records=1238, num_rounds=35, noise_multiplier=5,
        delta=1e-6,
    )
    self.assertEqual(found['epsilon'], expected)
    self.assertEqual(found['neighboring_relation'], 'replace_one')
    self.assertEqual(found['unit'], 'record')
    self.assertEqual(found['sampling'], name)
    self.assertEqual(found['delta'], 1e-6)
    self.assertGreaterEqual(found['epsilon_published_proofs'], expected)
    self.assertGreaterEqual(found['epsilon_no_amplification'], expected)
    self.assertLen(found['assumptions'], 7)

  def test_default_delta_is_one_over_records_squared(self):
    found = _json('account', 'isrl', *_POISSON, '--noise-multiplier=5')
    self.assertEqual(found['delta'], 1 / 1238**2)

  def test_published_proofs(self):
    flags = ('account', 'isrl', *_POISSON, '--noise-multiplier=5')
    careful = _json(*flags, '--published-proofs')
    self.assertEqual(
        careful['epsilon'], _json(*flags)['epsilon_published_proofs']
    )

  def test_people(self):
    found = _json(
        'account', 'isrl', *_BLOCKS, '--noise-multiplier=9',
        '--records-per-person=3',
    )
    self.assertGreater(found['epsilon_per_person'], 3 * found['epsilon'])

  def test_text(self):
    code, out, _ = _run(
        'account', 'isrl', *_POISSON, '--noise-multiplier=4.2',
        '--records-per-person=2',
    )
    self.assertEqual(code, 0)
    for words in (
        'epsilon 0.98', 'one record is replaced', 'records per person  2',
        '4.200000', 'records             1238',
        'Mironov',
    ):
      self.assertIn(words, out)


class CalibrateTest(parameterized.TestCase):

  @parameterized.product(flags=(_POISSON, _BLOCKS), epsilon=(0.5, 8))
  def test_printed_noise_is_enough_and_hardly_more(self, flags, epsilon):
    code, out, _ = _run('calibrate', 'isrl', *flags, f'--epsilon={epsilon}')
    self.assertEqual(code, 0)
    printed = out.split('--noise-multiplier=')[1].split()[0]
    spent = _json(
        'account', 'isrl', *flags, f'--noise-multiplier={printed}'
    )['epsilon']
    self.assertBetween(spent, 0.999 * epsilon, epsilon)

  def test_one_pass_figure(self):
    found = _json(
        'calibrate', 'isrl', *_BLOCKS, '--epsilon=1', '--delta=6.5e-7'
    )
    self.assertEqual(round(found['noise_multiplier'], 1), 8.6)
    self.assertEqual(found['calibration']['epsilon_budget'], 1.0)


class ErrorsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('account', '--records=10', '--records=10 is not allowed: expected at'
       ' least the batch of 100'),
      ('account', '--rounds=0', '--rounds=0 is not allowed'),
      ('account', '--batch-size=0', '--batch-size=0 is not allowed'),
      ('account', '--delta=0', '--delta=0.0 is not allowed'),
      ('account', '--noise-multiplier=0', '--noise-multiplier=0.0 is not'),
      ('account', '--records-per-person=0', '--records-per-person=0 is not'),
      ('calibrate', '--epsilon=0', '--epsilon=0.0 is not allowed'),
  )
  def test_bad_flags(self, what, flag, message):
    need = '--noise-multiplier=5' if what == 'account' else '--epsilon=1'
    code, out, err = _run(what, 'isrl', *_POISSON, need, flag)
    self.assertEqual((code, out), (errors.USAGE, ''))
    self.assertIn(message, err)

  def test_more_rounds_than_blocks(self):
    code, _, err = _run(
        'account', 'isrl', *_BLOCKS, '--rounds=36', '--noise-multiplier=5'
    )
    self.assertEqual(code, errors.USAGE)
    self.assertIn('--rounds=36 is not allowed: expected at most 35', err)

  def test_half_a_record(self):
    code, _, err = _run(
        'account', 'isrl', *_BLOCKS, '--batch-size=3.5', '--noise-multiplier=5'
    )
    self.assertEqual(code, errors.USAGE)
    self.assertIn('--batch-size=3.5', err)


if __name__ == '__main__':
  absltest.main()
