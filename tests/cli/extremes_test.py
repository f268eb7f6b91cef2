# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that extreme flags give an epsilon, or an error that names them."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tests.cli import command
from tff_dp.accounting import rounding
from tff_dp.cli import main

_SAMPLED = ('dp-fedavg', '--population=90', '--clients-per-round=9',
            '--rounds=20')
_EXAMPLES = ('dp-sgd', '--records=60000', '--batch-size=250', '--epochs=2')
_SILO = ('isrl', '--records=200', '--rounds=5', '--batch-size=20')
_MATRIX = ('dp-ftrl', '--rounds=24', '--max-participations=2')
_SLOTS = ('random-allocation', '--slots=20')
_STRIDES = ('cyclic-allocation', '--rounds=60', '--windows=2', '--stride=4')
_CHECK_IN = ('random-check-in', '--slots=50', '--rounds=100')
_AVERAGED = ('random-check-in', '--slots=50', '--protocol=averaged',
             '--population=90', '--local-epsilon=0.3')
_ROUND = ('shuffled-check-in', '--rounds=3', '--local-epsilon=1')
_COINS = (*_ROUND, '--population=3000', '--check-in-rate=0.2')
_REPORTS = ('shuffle', '--rounds=2', '--local-epsilon=1')
_MODELS = ('draw-and-discard', '--instances=3', '--max-participations=3')


class ExtremesTest(parameterized.TestCase):

  @parameterized.product(
      kind=(_SAMPLED, _EXAMPLES, _SILO, _MATRIX, _SLOTS, _STRIDES, _CHECK_IN),
      noise=('1e-320', '1e-100', '1e-5', '1e10', '1e20', '1e160', '1e300'),
  )
  def test_noise(self, kind, noise):
    found = command.run_json(
        main.main, 'account', *kind, f'--noise-multiplier={noise}',
        '--delta=1e-6',
    )
    epsilon = rounding.from_json_number(found['epsilon'])
    if float(noise) < 1:
      self.assertEqual(epsilon, math.inf)
    else:
      self.assertBetween(epsilon, 0.0, 1e-9)

  @parameterized.parameters(
      ('compare', '--rounds=20', '--max-participations=1',
       '--mechanisms=independent'),
      ('advise', '--population=100000', '--rounds=20', '--trust=server',
       '--reports-per-round=100', '--parameters=1000'),
  )
  def test_a_long_delta_is_printed_rounded_up(self, *words):
    code, out, _ = command.run(
        main.main, *words, '--epsilon=8', '--delta=1.2345644e-6'
    )
    self.assertEqual(code, 0)
    self.assertIn('1.23457e-06', out)
    self.assertNotIn('1.23456e-06', out)

  @parameterized.parameters(
      (*_SAMPLED[:1], '--clients-per-round=9', '--rounds=20',
       '--noise-multiplier=1', f'--population={10**18}'),
      (*_ROUND, '--check-in-rate=0.2', f'--population={10**18}'),
      (*_ROUND, '--check-in-rate=0.2', f'--population={10**30}'),
      (*_REPORTS, f'--population={10**30}'),
      (*_MODELS, '--epsilon=1', f'--parameters={10**12}'),
      (*_MODELS, '--epsilon=1', f'--parameters={10**30}'),
  )
  @pytest.mark.slow(cases=['1', '2', '3'])
  def test_counts(self, *words):
    found = command.run_json(main.main, 'account', *words, '--delta=1e-5')
    most = 3.0 if words[0] == 'draw-and-discard' else 1e-3
    self.assertBetween(found['epsilon'], 0.0, most)

  @parameterized.parameters(
      ('--delta=1e-320', *_AVERAGED),
      ('--delta=5e-324', *_AVERAGED),
      ('--delta=5e-324', *_SILO, '--noise-multiplier=5'),
      ('--delta=1e-310', *_SLOTS, '--noise-multiplier=1'),
      ('--check-in-rate=1e-320', *_ROUND, '--population=90', '--delta=1e-6'),
      ('--check-in-probability=1e-300', *_CHECK_IN, '--local-epsilon=0.3',
       '--delta=1e-6'),
      ('--epsilon=1e-320', *_MODELS, '--parameters=9', '--delta=1e-6'),
  )
  def test_an_error_names_flag_and_value(self, flag, *words):
    code, _, err = command.run(main.main, 'account', *words, flag)
    self.assertEqual(code, 2)
    self.assertIn(f'{flag} is not allowed', err)


if __name__ == '__main__':
  absltest.main()
