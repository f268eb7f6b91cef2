# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Commands that somebody tries first: each works, or names one that does."""

import os
import shlex
import tempfile

from absl.testing import absltest
from absl.testing import parameterized
import pytest

from tests.cli import command as cli
from tests.cli import goldens_test
import tff_dp
from tff_dp.cli import main

pytestmark = pytest.mark.once

_RUN = (
    'dp-ftrl --rounds 8 --max-participations 2 --min-index-gap 3'
    ' --noise-multiplier 4 --delta 1e-6'
)
_WORK = (
    'account --help',
    'account dp-ftrl --help',
    f'account {_RUN}',
    f'statement {_RUN}',
    'account RUN',
    'account --events RUN',
    'account RUN/release/events.json',
    'account RUN --plot',
    'statement RUN',
    'statement isrl --epsilon 1 --records 3000 --rounds 10 --batch-size 100',
    'calibrate dp-ftrl --population 100000 --clients-per-round 100 --rounds 20'
    ' --epsilon 2 --delta 1e-6',
    'compare tree honaker --rounds 8 --max-participations 1',
    'advise --hospitals 12 --records 3000 --rounds 5',
)
_NAME_ANOTHER = (
    'statement isrl --epsilon 1 --records 3000',
    'calibrate dp-ftrl --population 100000 --epsilon 2 --rounds 20',
    'compare tree honaker --max-participations 1',
    'advice --hospitals 12 --records 3000 --rounds 5',
    'account dp-ftrl --plot',
    'account dp-sgd',
    'account draw',
    'calibrate dp-fedavg',
    'version',
)


class FirstGuessesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    before = os.getcwd()
    self.addCleanup(os.chdir, before)
    os.chdir(self.enter_context(tempfile.TemporaryDirectory()))
    os.makedirs('RUN/release')
    with open('RUN/release/events.json', 'w') as file:
      file.write(goldens_test._events(_RUN.split()))

  def _check(self, words):
    code, out, err = cli.run(main.main, *words)
    self.assertEqual(code, 0, err)
    self.assertNotEmpty(out)
    if '--plot' in words:
      with open('epsilon.png', 'rb') as file:
        self.assertStartsWith(file.read(), b'\x89PNG')

  @parameterized.parameters(*_WORK)
  def test_works(self, command):
    self._check(command.split())

  @parameterized.parameters(*_NAME_ANOTHER)
  @pytest.mark.slow(cases=['6'])
  def test_names_a_command_that_works(self, command):
    code, out, err = cli.run(main.main, *command.split())
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    *said, last = err.splitlines()
    self.assertLess(len(said), 3)
    self.assertStartsWith(last, 'try: tff-dp ')
    words = shlex.split(last)[2:]
    if command.startswith('advice'):
      words += command.split()[1:]
    self._check(words)

  @parameterized.parameters('account', 'calibrate', 'statement')
  def test_a_kind_that_does_not_exist_names_the_nearest(self, command):
    code, _, err = cli.run(main.main, command, 'dp-fftrl')
    self.assertEqual(code, 2)
    self.assertStartsWith(err, f'error: tff-dp {command} has no KIND dp-fftrl\n')
    self.assertEndsWith(err, f'try: tff-dp {command} dp-ftrl\n')

  def test_a_budget_gives_the_statement_of_the_calibrated_plan(self):
    flags = ('--records=300', '--rounds=5', '--batch-size=30', '--delta=1e-6')
    found = cli.run_json(main.main, 'statement', 'isrl', '--epsilon=1', *flags)
    self.assertBetween(found['epsilon'], 0.999, 1.0)
    flags = ('--rounds=8', '--min-index-gap=2', '--delta=1e-6')
    asked = cli.run_json(main.main, 'account', 'dp-ftrl', '--epsilon=1', *flags)
    solved = cli.run_json(
        main.main, 'calibrate', 'dp-ftrl', '--epsilon=1', *flags
    )
    self.assertEqual(asked, solved)

  @parameterized.parameters('account', 'statement')
  def test_a_run_that_is_not_there_is_no_kind(self, command):
    code, out, err = cli.run(main.main, command, 'runs/none')
    self.assertEqual((code, out), (3, ''))
    self.assertEqual(err, 'error: runs/none: No such file or directory\n')

  def test_version(self):
    code, out, _ = cli.run(main.main, '--version')
    self.assertEqual((code, out), (0, f'tff-dp {tff_dp.__version__}\n'))

  def test_says_what_it_assumed(self):
    _, _, err = cli.run(main.main, *_WORK[-1].split())
    self.assertIn('assumed: --reports-per-round=12', err)
    code, _, err = cli.run(
        main.main, 'calibrate', 'dp-ftrl', '--rounds=9', '--epsilon=1',
        '--delta=1e-6',
    )
    self.assertEqual(code, 2)
    self.assertStartsWith(err, 'error: --min-index-gap is missing: ')
    _, out, err = cli.run(main.main, *_WORK[-3].split())
    self.assertIn('assumed: --min-index-gap=1000', err)
    self.assertIn('mechanism      blt', out)


if __name__ == '__main__':
  absltest.main()
