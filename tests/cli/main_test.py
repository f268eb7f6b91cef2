# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line, in this process and as a new one."""

import errno
import json
import os
import pathlib
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tasks import __main__ as tasks
from tests.cli import command
from tff_dp import _failures
from tff_dp import systems
from tff_dp.cli import main

_ACCOUNT = ('account', 'dp-ftrl', '--rounds=10', '--noise-multiplier=1',
            '--delta=1e-6')

_NOISE_MULTIPLIER = (
    '--noise-multiplier, standard deviation on the sum, over the clip norm'
)


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_flat(main.main, *argv)


class TrainTest(absltest.TestCase):

  def test_a_checkout_runs_the_tasks(self):
    words = ('digits', '--num-clients=20')
    self.assertEqual(
        _run('train', *words), command.run(tasks.main, 'train', *words)
    )

  def test_without_tasks_it_says_in_three_lines_what_to_do(self):
    folder = self.create_tempdir().full_path
    stranger = pathlib.Path(folder, 'tasks')
    stranger.mkdir()
    stranger.joinpath('__main__.py').write_text('raise SystemExit("a stranger")')
    with mock.patch.object(
        main, '__file__', f'{folder}/site/tff_dp/cli/main.py'
    ), mock.patch.object(sys, 'path', [folder, *sys.path]):
      code, out, err = _run('train', 'digits')
    self.assertEqual((code, out), (2, ''))
    what, why, way_out = err.splitlines()
    self.assertStartsWith(what, 'error: tff-dp train finds no tasks')
    self.assertStartsWith(why, 'why: ')
    self.assertIn('tff_dp.program.train(', way_out)


class AccountTest(parameterized.TestCase):

  def test_published_stackoverflow_setting(self):
    result = _json(
        'account', 'dp-ftrl', '--mechanism', 'honaker', '--rounds', 1600,
        '--max-participations', 1, '--noise-multiplier', 1.13, '--delta', 1e-6,
    )
    self.assertEqual(result['squared_sensitivity'], 11)
    self.assertAlmostEqual(result['epsilon'], 17.67, delta=0.005)
    self.assertAlmostEqual(result['epsilon_rdp'], 18.71, delta=0.005)
    self.assertEqual(result['unit'], 'client')
    self.assertEqual(result['neighboring_relation'], 'zero_out')

  @parameterized.parameters(
      ('--min-index-gap', 314), ('--min_rounds_between', 313)
  )
  def test_published_gboard_setting(self, flag, value):
    result = _json(
        'account', 'dp-ftrl', '--mechanism', 'tree', '--rounds', 2000,
        '--max-participations', 6, flag, value, '--noise-multiplier', 7,
        '--delta', 1e-10,
    )
    self.assertAlmostEqual(result['epsilon_rdp'], 8.90, delta=0.005)
    self.assertAlmostEqual(result['zcdp_rho'], 0.81, delta=0.005)
    self.assertEqual(result['min_index_gap'], 314)
    self.assertEqual(result['min_rounds_between'], 313)

  def test_completion_reports_both_sensitivities(self):
    result = _json(
        'account', 'dp-ftrl', '--rounds', 20, '--restart-every', 5,
        '--complete-trees', '--max-participations', 20,
        '--noise-multiplier', 1, '--delta', 1e-6,
    )
    # Four trees of 5 rounds: leaves 5, pairs 2 * 4, one four-round node 16, and
    # after completion the virtual half's nodes over round 5: 1, 1 and root 25.
    self.assertEqual(result['squared_sensitivity_without_completion'], 4 * 29)
    self.assertEqual(result['squared_sensitivity'], 3 * (29 + 1 + 1 + 25) + 29)

  def test_independent_noise_counts_participations(self):
    result = _json(
        'account', 'dp-ftrl', '--mechanism', 'independent', '--rounds', 20,
        '--max-participations', 3, '--noise-multiplier', 1, '--delta', 1e-6,
    )
    self.assertEqual(result['squared_sensitivity'], 3)

  def test_no_noise_is_called_no_privacy(self):
    arguments = (
        'account', 'dp-ftrl', '--rounds', 2, '--noise-multiplier', 0,
        '--delta', 1e-6,
    )
    self.assertIn('NO PRIVACY', _run(*arguments)[1])
    self.assertEqual(_json(*arguments)['epsilon'], 'inf')

  @parameterized.named_parameters(
      ('noise', '--noise-multiplier=-1', '--noise-multiplier=-1.0'),
      ('delta', '--delta=2', '--delta=2.0'),
      ('rounds', '--rounds=0', '--rounds=0'),
      ('gap', '--min-index-gap=0', '--min-index-gap=0'),
      ('mechanism', '--mechanism=forest', "'forest'"),
      ('not_a_number', '--rounds=many', "'many'"),
      ('unknown', '--colour=red', '--colour'),
      ('epoch', '--rounds-per-epoch=5', '--rounds-per-epoch=5'),
  )
  def test_a_bad_flag_names_itself_and_ends_with_2(self, flag, named):
    code, out, err = _run(
        'account', 'dp-ftrl', '--rounds=10', '--noise-multiplier=1',
        '--delta=1e-6', flag,
    )
    self.assertEqual(code, 2)
    self.assertEqual(out, '')
    self.assertStartsWith(err, 'error: ')
    self.assertIn(named, err)


class FlagsTest(parameterized.TestCase):

  @parameterized.parameters(
      ('--noise=1', _NOISE_MULTIPLIER),
      ('--sigma=1', _NOISE_MULTIPLIER),
      ('--round=5', '--rounds'),
      ('--min-index-gaps=5', '--min-index-gap'),
      ('--min-separation=5', '--min-index-gap'),
      ('--clip-norm=1', '--l2-norm-clip'),
  )
  def test_a_wrong_flag_names_the_one_that_was_meant(self, word, meant):
    # Though others are required.
    code, out, err = _run('account', 'dp-ftrl', word)
    self.assertEqual((code, out), (2, ''))
    self.assertEqual(
        err,
        f'error: tff-dp account dp-ftrl has no flag {word.partition("=")[0]}\n'
        f'try: {meant}\n',
    )

  @parameterized.parameters(
      (
          'dp-fedavg', '--sample-rate',
          '--clients-per-round, a number: a rate times the population',
      ),
      (
          'dp-sgd', '--q',
          '--batch-size, a number: a rate times the number of records',
      ),
      (
          'shuffled-check-in', '--q',
          '--check-in-rate, a probability: clients per round over the population',
      ),
      (
          'dp-fedavg', '--steps',
          '--rounds, of which an epoch has population / clients per round',
      ),
      (
          'dp-sgd', '--steps',
          '--epochs, passes, each of records / batch size steps',
      ),
      ('dp-fedavg', '--target-delta', '--delta'),
      ('dp-fedavg', '--target-epsilon', '--epsilon'),
  )
  def test_a_wrong_flag_names_what_the_command_has(self, kind, word, meant):
    command = 'calibrate' if meant == '--epsilon' else 'account'
    code, _, err = _run(command, kind, f'{word}=1')
    self.assertEqual(code, 2)
    self.assertEndsWith(err, f' has no flag {word}\ntry: {meant}\n')

  def test_no_kind_and_no_events(self):
    code, _, err = _run('account')
    self.assertEqual(code, 2)
    self.assertIn('as in account dp-ftrl --help. There are', err)
    self.assertIn('dp-fedavg', err)

  def test_draws_that_end_too_early_are_named(self):
    code, out, _ = _run(
        'account', 'dp-ftrl', '--rounds=200', '--mechanism=tree',
        '--noise-multiplier=1', '--delta=1e-5',
    )
    self.assertEqual(code, 0)
    self.assertStartsWith(out, 'NO PRIVACY: epsilon is infinite\n')
    self.assertIn('matters where its draws end', out)
    self.assertNotIn('Renyi', out)

  def test_a_flag_that_resembles_none(self):
    code, _, err = _run('account', 'dp-ftrl', '--zebra=1')
    self.assertEqual(code, 2)
    self.assertEqual(
        err,
        'error: tff-dp account dp-ftrl has no flag --zebra\n'
        'try: tff-dp account dp-ftrl --help\n',
    )

  def test_rounds_have_a_bound(self):
    code, _, err = _run('account', 'dp-ftrl', f'--rounds={10**20}')
    self.assertEqual(code, 2)
    self.assertIn(f'--rounds: {10**20} is above 10000000', err)
    code, _, err = _run('account', 'dp-ftrl', '--rounds=many')
    self.assertIn("--rounds: invalid int value: 'many'", err)


class CalibrateTest(parameterized.TestCase):

  @parameterized.parameters(
      'independent', 'tree', 'honaker', 'banded', 'blt', 'banded-inverse'
  )
  def test_inverts_account_on_the_private_side(self, mechanism):
    flags = ('--mechanism', mechanism, '--max-participations', 3,
             '--min-index-gap', 10, '--delta', 1e-6)
    noise = _json(
        'calibrate', 'dp-ftrl', '--rounds', 100, '--epsilon', 8, *flags
    )['noise_multiplier']
    spent = _json(
        'account', 'dp-ftrl', '--rounds', 100, '--noise-multiplier',
        repr(noise), *flags,
    )['epsilon']
    self.assertBetween(spent, 7.9999, 8.0)

  def test_most_rounds_that_fit(self):
    flags = ('--noise-multiplier', 2, '--max-participations', 4,
             '--min-index-gap', 100, '--delta', 1e-6, '--mechanism', 'honaker')
    rounds = _json('calibrate', 'dp-ftrl', '--epsilon', 8, *flags)['rounds']
    epsilons = [
        _json('account', 'dp-ftrl', '--rounds', r, *flags)['epsilon']
        for r in (rounds, rounds + 1)
    ]
    self.assertLessEqual(epsilons[0], 8)
    self.assertGreater(epsilons[1], 8)

  def test_a_budget_below_one_round_says_what_would_fit(self):
    code, _, err = _run(
        'calibrate', 'dp-ftrl', '--noise-multiplier=0.1', '--epsilon=1',
        '--delta=1e-6', '--min-index-gap=1',
    )
    self.assertEqual(code, 5)
    self.assertIn('try: --noise-multiplier', err)

  @parameterized.parameters((), ('--rounds=5', '--noise-multiplier=1'))
  def test_exactly_one_is_solved_for(self, *flags):
    code, _, err = _run(
        'calibrate', 'dp-ftrl', '--epsilon=1', '--delta=1e-6', *flags
    )
    self.assertEqual(code, 2)
    self.assertIn('exactly one of', err)


class MainTest(absltest.TestCase):

  def test_help_teaches(self):
    for words in (
        (),
        ('account',),
        ('calibrate',),
        ('statement',),
        *((name, kind)
          for name in ('account', 'calibrate', 'statement')
          for kind in systems.commands()),
        ('compare',),
        ('doctor',),
    ):
      code, out, _ = _run(*words, '--help')
      self.assertEqual(code, 0)
      self.assertIn('tff-dp', out.split('example')[-1])

  def test_accounting_never_loads_tensorflow(self):
    program = (
        'import sys\n'
        'from tff_dp.cli import main\n'
        "main.main([*sys.argv[1:], '--rounds=5', '--format=json'])\n"
        "print([m for m in sys.modules if m.startswith(('tensorflow',"
        " 'matplotlib'))], file=sys.stderr)\n"
    )
    for words, key in (
        (
            ('account', 'dp-ftrl', '--noise-multiplier=1', '--delta=1e-6'),
            'epsilon',
        ),
        (('compare', '--min-index-gap=1'), 'mechanisms'),
    ):
      done = subprocess.run(
          [sys.executable, '-c', program, *words],
          capture_output=True, text=True, check=True,
      )
      # A slow machine may have been told of progress before.
      self.assertEqual(done.stderr.splitlines()[-1], '[]')
      self.assertIn(key, json.loads(done.stdout))

  def test_broken_install_still_gets_an_answer(self):
    program = (
        'import sys\n'
        "sys.modules['numpy'] = None\n"
        'from tff_dp.cli import main\n'
        'sys.exit(main.main(sys.argv[1:]))\n'
    )
    for words, code, answer in (
        (['account', 'dp-ftrl'], 3, 'try: tff-dp doctor'),
        (['doctor', '--help'], 0, 'example'),
        (['--help'], 0, 'calibrate'),
    ):
      done = subprocess.run(
          [sys.executable, '-c', program, *words],
          capture_output=True, text=True, check=False,
      )
      self.assertEqual(done.returncode, code, done.stderr)
      self.assertIn(answer, done.stdout + done.stderr)

  def test_interruption_and_bugs(self):
    with mock.patch.object(main, '_account', side_effect=KeyboardInterrupt):
      self.assertEqual(_run(*_ACCOUNT)[0], 130)
    with mock.patch.object(main, '_account', side_effect=KeyError('a bug')):
      code, out, err = _run(*_ACCOUNT)
      self.assertEqual((code, out), (1, ''))
      self.assertStartsWith(err, "error: KeyError: 'a bug'\nwhy: ")
      self.assertNotIn('Traceback', err)
      code, _, err = _run('--debug', *_ACCOUNT)
      self.assertEqual(code, 1)
      self.assertStartsWith(err, 'Traceback')
      self.assertIn("\nerror: KeyError: 'a bug'\nwhy: ", err)

  def test_full_disk(self):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), 'runs/model.npz')
    with mock.patch.object(main, '_account', side_effect=error):
      code, _, err = _run(*_ACCOUNT)
    self.assertEqual(code, 3)
    self.assertEqual(
        [line.partition(':')[0] for line in err.splitlines()],
        ['error', 'why', 'try'],
    )
    self.assertIn('runs/model.npz: No space left on device', err)

  def test_failure_of_a_client_keeps_its_data_off_the_screen(self):
    error = _failures.ClientComputationError(
        client_index=2,
        num_clients=4,
        operation='loss',
        kind='InvalidArgumentError',
        details='Received a label value of 17',
    ).named('writer 9')
    with mock.patch.object(main, '_account', side_effect=error):
      code, _, err = _run(*_ACCOUNT)
      self.assertEqual(code, 3)
      self.assertIn("client 'writer 9' failed in loss: Invalid", err)
      self.assertNotIn('17', err)
      debug = _run('--debug', *_ACCOUNT)[2]
      self.assertIn('Traceback', debug)
      self.assertNotIn('label value of 17', debug)

  def test_interrupt_while_the_command_starts(self):
    # As an import does that swallows what is raised in it.
    program = (
        'import os, signal\n'
        'from tff_dp import _start\n'
        '_start.exit_on_interrupt("stopped")\n'
        'try:\n'
        '  os.kill(os.getpid(), signal.SIGINT)\n'
        'except BaseException: pass\n'
        "print('goes on')\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', program],
        capture_output=True, text=True, check=False,
    )
    self.assertEqual(
        (done.returncode, done.stdout, done.stderr),
        (130, '', 'stopped\n'),
    )

  def test_module_is_the_command(self):
    done = subprocess.run(
        [sys.executable, '-m', 'tff_dp', 'account'],
        capture_output=True, text=True, check=False,
    )
    self.assertEqual(done.returncode, 2)
    self.assertStartsWith(done.stderr, 'error: ')


if __name__ == '__main__':
  absltest.main()
