# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account` of check-ins and shuffling."""

import json
import math
import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import pytest

from tests.cli import command
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.cli import main
from tff_dp.cli import plots
from tff_dp.systems.allocation import allocation_events
from tff_dp.systems.check_ins import check_in_events

_SHUFFLE = ('account', 'shuffle', '--population=5000', '--local-epsilon=1',
            '--delta=1e-6')
_CHECK_IN = ('account', 'shuffled-check-in', '--population=3000',
             '--check-in-rate=0.2', '--rounds=5', '--local-epsilon=1',
             '--delta=1e-6')
_RANDOM = ('account', 'random-check-in', '--slots=200', '--local-epsilon=0.3',
           '--delta=1e-6')
_ALLOCATION = ('account', 'random-allocation', '--slots=100',
               '--noise-multiplier=1', '--delta=1e-6')
_GAUSSIAN = ('account', 'shuffle', '--population=5000',
             '--noise-multiplier=1', '--delta=1e-6')
_KINDS = (_SHUFFLE, _CHECK_IN, _RANDOM, _ALLOCATION)
_named = [(words[1].replace('-', '_'), words) for words in _KINDS]


def _run(*argv):
  return command.run(main.main, *argv)


def _json(*argv):
  return command.run_flat(main.main, *argv)


class NumbersTest(parameterized.TestCase):

  def test_shuffled_check_in_of_the_issue(self):
    result = _json(
        'account', 'shuffled-check-in', '--population=60000',
        '--check-in-rate=0.1', '--local-epsilon=2', '--rounds=6800',
        f'--delta={1 / 60_000}',
    )
    self.assertBetween(result['epsilon'], 1.5, 1.69)
    self.assertGreater(result['epsilon_no_amplification'], 10_000)
    self.assertEqual(result['neighboring_relation'], 'replace_one')
    # The papers' delta. One client in the open would be within it.
    (weak,) = result['warnings']
    self.assertStartsWith(weak, 'WEAK: delta')

  def test_random_allocation_of_the_issue(self):
    result = _json(
        'account', 'random-allocation', '--population=1000000',
        '--slots=2000', '--delta=1e-6', '--noise-multiplier=1',
    )
    self.assertBetween(result['epsilon'], 0.1125, 0.113 * 1.03)
    self.assertAlmostEqual(result['epsilon_no_amplification'], 4.89, places=2)
    self.assertEqual(result['neighboring_relation'], 'zero_out')
    self.assertEqual(result['expected_clients_per_slot'], 500)

  @parameterized.named_parameters(_named)
  def test_keys_and_text(self, words):
    result = _json(*words)
    for key in ('epsilon', 'epsilon_no_amplification'):
      self.assertIsInstance(result[key], float)
    self.assertNotEmpty(result['assumptions'])
    self.assertIn(result['neighboring_relation'], ('zero_out', 'replace_one'))
    self.assertLessEqual(
        result['epsilon'], result['epsilon_no_amplification']
    )
    self.assertNotIn('published_uncertified', result)
    code, out, err = _run(*words)
    self.assertEqual((code, err), (0, ''))
    self.assertTrue(out.isascii())
    self.assertStartsWith(out, 'epsilon ')
    self.assertIn('without amplification', out)
    for sentence in result['assumptions']:
      self.assertIn(sentence, out)
    for candidate in result['candidates']:
      self.assertIn(candidate['bound'], out)
    (chosen,) = [line for line in out.splitlines() if line.startswith('*')]
    self.assertIn(result['bound'], chosen)
    self.assertNotIn('UNCERTIFIED', out)

  def test_is_what_the_library_says(self):
    local = run_events.LocalDpEvent(0.3)
    for words, event in (
        (_SHUFFLE, check_in_events.ShuffledDpEvent(
            run_events.LocalDpEvent(1.0), 5000)),
        ((*_SHUFFLE, '--rounds=3', '--randomizer=sphere'),
         dp_accounting.SelfComposedDpEvent(check_in_events.ShuffledDpEvent(
             run_events.SphereLocalDpEvent(1.0), 5000), 3)),
        ((*_CHECK_IN, '--randomizer=randomized-response', '--categories=7'),
         dp_accounting.SelfComposedDpEvent(
             check_in_events.ShuffledCheckInDpEvent(
                 run_events.RandomizedResponseLocalDpEvent(1.0, 7),
                 3000, 0.2), 5)),
        ((*_RANDOM, '--check-in-probability=0.5'),
         check_in_events.FixedWindowCheckInDpEvent(local, 200, 0.5)),
        ((*_RANDOM, '--rounds=600'), dp_accounting.SelfComposedDpEvent(
            check_in_events.FixedWindowCheckInDpEvent(local, 200), 3)),
        ((*_RANDOM, '--protocol=sliding-window', '--rounds=600'),
         check_in_events.SlidingWindowCheckInDpEvent(local, 200)),
        ((*_RANDOM, '--protocol=averaged', '--population=90000'),
         check_in_events.AveragedCheckInDpEvent(local, 200, 90_000)),
        ((*_RANDOM, '--local-delta=1e-13'),
         check_in_events.FixedWindowCheckInDpEvent(
             run_events.LocalDpEvent(0.3, 1e-13), 200)),
        ((*_ALLOCATION, '--check-in-probability=0.5', '--selected=2'),
         allocation_events.RandomAllocationDpEvent(
             dp_accounting.GaussianDpEvent(1.0), 100, 2, 0.5)),
    ):
      result = _json(*words)
      certificate = best_bound.amplify(event, delta=1e-6)
      self.assertEqual(result['epsilon'], certificate.epsilon, words)
      self.assertEqual(result['bound'], certificate.bound, words)

  def test_gaussian_noise_at_the_client(self):
    words = [word for word in _SHUFFLE if 'local-epsilon' not in word]
    result = _json(*words, '--noise-multiplier=5')
    self.assertEqual(
        result['epsilon'],
        best_bound.amplify(
            check_in_events.ShuffledDpEvent(
                run_events.GaussianLocalDpEvent(5.0), 5000
            ),
            delta=1e-6,
        ).epsilon,
    )

  def test_neighbours_of_random_allocation(self):
    replaced = _json(*_ALLOCATION, '--neighboring-relation=replace_one')
    zeroed = _json(*_ALLOCATION)
    self.assertEqual(replaced['neighboring_relation'], 'replace_one')
    self.assertGreater(replaced['epsilon'], 1.5 * zeroed['epsilon'])

  def test_passes(self):
    once = _json(*_ALLOCATION, '--rounds=100')
    self.assertEqual(once['epsilon'], _json(*_ALLOCATION)['epsilon'])
    twice = _json(*_ALLOCATION, '--rounds=200')
    self.assertGreater(twice['epsilon'], 1.2 * once['epsilon'])

  def test_dummy_updates(self):
    result = _json(*_RANDOM, '--population=400', '--check-in-probability=0.5')
    self.assertAlmostEqual(
        result['expected_dummy_updates'], 200 * (1 - 0.5 / 200) ** 400
    )
    result = _json(
        *_RANDOM, '--population=400', '--protocol=sliding-window'
    )
    self.assertAlmostEqual(
        result['expected_dummy_updates'], 201 * (1 - 1 / 200) ** 200
    )

  def test_published_proofs(self):
    result = _json(*_CHECK_IN, '--published-proofs')
    self.assertEqual(result['bound'], 'clones_by_cohort')
    self.assertGreater(result['epsilon'], _json(*_CHECK_IN)['epsilon'])
    result = _json(*_ALLOCATION, '--published-proofs')
    self.assertEqual(result['epsilon'], result['epsilon_no_amplification'])
    self.assertNotEmpty(result['warnings'])

  def test_one_bound(self):
    result = _json(*_CHECK_IN, '--bound=subsampling')
    self.assertEqual(result['bound'], 'subsampling')
    result = _json(*_RANDOM, '--bound=thinning')
    self.assertEqual(result['bound'], 'none')
    self.assertIn('thinning was asked for', ' '.join(result['warnings']))


class WarningsTest(parameterized.TestCase):

  @parameterized.parameters(
      ((*_CHECK_IN, '--local-delta=1e-4'),),
      ((*_SHUFFLE, '--local-delta=1e-4'),),
      ((*_RANDOM, '--local-delta=1e-4'),),
  )
  def test_vacuous(self, words):
    code, out, _ = _run(*words)
    self.assertEqual(code, 0)
    self.assertStartsWith(out, 'NO PRIVACY: epsilon is infinite')
    self.assertIn('WARNING: The guarantee is vacuous', out)
    result = _json(*words)
    self.assertEqual(result['epsilon'], 'inf')
    self.assertTrue(result['is_vacuous'])
    self.assertIn('vacuous', result['warnings'][0])

  def test_out_of_range(self):
    words = [word for word in _RANDOM if 'epsilon' not in word]
    result = _json(*words, '--local-epsilon=9', '--published-proofs')
    self.assertEqual(result['bound'], 'none')
    self.assertIn('No amplification', result['warnings'][0])
    _, out, _ = _run(*words, '--local-epsilon=9', '--published-proofs')
    self.assertIn('WARNING: No amplification', out)

  def test_delta_above_one_over_population(self):
    for words, is_warned in (
        ((*_SHUFFLE, '--delta=1e-3'), True),
        ((*_SHUFFLE, '--delta=2e-4'), True),
        ((*_SHUFFLE, '--delta=1.9e-4'), False),
    ):
      said = ' '.join(_json(*words)['warnings'])
      self.assertEqual('WEAK: delta' in said, is_warned)


class PlotTest(parameterized.TestCase):

  @parameterized.parameters(
      ((*_CHECK_IN, '--rounds=2', '--population=300'),),
      (_RANDOM,),
      (_ALLOCATION,),
      (_SHUFFLE,),
  )
  def test_writes_a_picture(self, words):
    path = os.path.join(self.create_tempdir().full_path, 'epsilon.png')
    with mock.patch.object(plots, '_NUM_POINTS', 2):
      code, out, _ = _run(*words, '--plot', path)
    self.assertEqual(code, 0)
    self.assertIn('epsilon', out)
    with open(path, 'rb') as file:
      self.assertEqual(file.read(8), b'\x89PNG\r\n\x1a\n')

  @parameterized.parameters(
      ((*_CHECK_IN, '--rounds=2', '--population=300'), 2),
      (_RANDOM, 200),
      ((*_RANDOM, '--rounds=400'), 200),
      ((*_RANDOM, '--rounds=450', '--protocol=sliding-window'), 200),
      (
          (
              *_ALLOCATION, '--slots=12', '--rounds=24',
              '--neighboring-relation=replace_one',
          ),
          12,
      ),
  )
  @pytest.mark.slow(but=['0', '3'])
  def test_ends_at_the_epsilon_of_the_run(self, words, last):
    path = os.path.join(self.create_tempdir().full_path, 'epsilon.png')
    with mock.patch.object(plots, '_NUM_POINTS', 2), mock.patch.object(
        plots, '_write_lines'
    ) as drawn:
      self.assertEqual(_run(*words, '--plot', path)[0], 0)
    (_, lines), said = drawn.call_args
    run = _json(*words)
    self.assertEqual(min(line[last] for line in lines.values()), run['epsilon'])
    self.assertEqual(said['delta'], run['delta'])

  def test_unwritable_before_any_work(self):
    folder = self.create_tempdir().full_path
    code, out, err = _run(*_CHECK_IN, '--plot', folder)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, f'error: --plot={folder} is not allowed')


class BadInputTest(parameterized.TestCase):

  @parameterized.parameters(
      (_CHECK_IN, '--check-in-rate=1.1', 'from 0 to 1'),
      (_CHECK_IN, '--check-in-rate=-0.1', 'from 0 to 1'),
      (_CHECK_IN, '--check-in-rate=nan', 'from 0 to 1'),
      (_RANDOM, '--check-in-probability=2', 'from 0 to 1'),
      (_ALLOCATION, '--check-in-probability=-1', 'from 0 to 1'),
      (_CHECK_IN, '--population=0', 'at least 1'),
      (_CHECK_IN, '--rounds=0', 'at least 1'),
      (_RANDOM, '--slots=0', 'at least 1'),
      (_ALLOCATION, '--selected=101', 'from 1 to 100'),
      (_ALLOCATION, '--noise-multiplier=-1', 'above 0'),
      (_ALLOCATION, '--noise-multiplier=0', 'above 0'),
      (_SHUFFLE, '--local-epsilon=0', 'above 0'),
      (_SHUFFLE, '--local-epsilon=nan', 'above 0'),
      (_SHUFFLE, '--local-epsilon=1000', '500'),
      (_SHUFFLE, '--local-delta=1', 'below 1'),
      (_SHUFFLE, '--delta=1', 'at most 0.1'),
      (_SHUFFLE, '--delta=1/n', 'invalid float'),
      (_SHUFFLE, '--noise-multiplier=1', 'not allowed with'),
      (_SHUFFLE, '--categories=3', 'no value with --randomizer=any'),
      (_SHUFFLE, '--bound=published_sci_approach_1', "one of 'best', 'none', 'rci'"),
      (_SHUFFLE, '--protocol=averaged', 'has no flag'),
      (_SHUFFLE, '--check-in-rate=0.1', 'has no flag'),
      (_RANDOM, '--protocol=averaged', '--population'),
      (_RANDOM, '--rounds=300', 'multiple of --slots=200'),
  )
  def test_a_bad_flag_names_itself_and_ends_with_2(self, words, flag, allowed):
    code, out, err = _run(*words, flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: ')
    self.assertIn(flag.split('=')[0], err + '--protocol')
    self.assertIn(allowed, err)

  @parameterized.parameters(
      ((*_RANDOM, '--rounds=100'), 'at most --rounds=100'),
      ((*_RANDOM, '--protocol=sliding-window', '--rounds=100'),
       'at most --rounds=100'),
      ((*_RANDOM, '--protocol=sliding-window', '--population=100'),
       'at most --population=100'),
      ((*_ALLOCATION, '--rounds=99'), 'at most --rounds=99'),
  )
  def test_windows_longer_than_the_horizon(self, words, allowed):
    code, out, err = _run(*words)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: --slots=')
    self.assertIn(allowed, err)
    self.assertIn('window', err)

  @parameterized.parameters(
      ((*_RANDOM, '--protocol=averaged', '--population=9',
        '--check-in-probability=0.5'), '--check-in-probability=0.5'),
      ((*_SHUFFLE, '--randomizer=sphere', '--local-delta=1e-9'),
       '--local-delta=1e-09'),
      ((*_GAUSSIAN, '--local-delta=1e-9'), 'it follows from the noise'),
      ((*_GAUSSIAN, '--categories=3'), 'they are of randomized response'),
      ((*_GAUSSIAN, '--randomizer=sphere'), 'which means Gaussian noise'),
  )
  def test_flags_that_do_not_fit(self, words, named):
    code, _, err = _run(*words)
    self.assertEqual(code, 2)
    self.assertIn(named, err)

  def test_what_is_missing(self):
    for words in (
        ('account', 'shuffle', '--local-epsilon=1', '--delta=1e-6'),
        ('account', 'shuffle', '--population=9', '--delta=1e-6'),
        ('account', 'shuffle', '--population=9', '--local-epsilon=1'),
        ('account', 'random-allocation', '--slots=9', '--delta=1e-6'),
        ('account', '--events=x', *_SHUFFLE[1:]),
    ):
      code, out, err = _run(*words)
      self.assertEqual(code, 2)
      self.assertEmpty(out)
      self.assertStartsWith(err, 'error: ')

  def test_examples_of_the_help_run(self):
    for name in ('shuffle', 'random-check-in', 'random-allocation'):
      code, out, _ = _run('account', name, '--help')
      self.assertEqual(code, 0)
      examples = out.partition('examples:')[2].replace('\\\n', ' ')
      found = [
          line.split() for line in examples.splitlines() if 'tff-dp' in line
      ]
      self.assertNotEmpty(found)
      for words in found:
        self.assertEqual(_run(*words[1:])[0], 0, words)


class ProcessTest(absltest.TestCase):

  def test_no_tensorflow(self):
    code = (
        'import sys; from tff_dp.cli import main;'
        f'main.main({list(_SHUFFLE) + ["--format=json"]!r});'
        'print([m for m in sys.modules if m.startswith(("tensorflow",'
        ' "matplotlib"))], file=sys.stderr)'
    )
    result = subprocess.run(
        [sys.executable, '-W', 'error::UserWarning', '-c', code],
        capture_output=True,
        text=True,
        check=True,
    )
    self.assertEqual(result.stderr, '[]\n')
    self.assertLess(json.loads(result.stdout)['epsilon'], math.inf)


if __name__ == '__main__':
  absltest.main()
