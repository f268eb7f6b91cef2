# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp advise`, and of the numbers behind it."""

import ast
import contextlib
import functools
import io
import math
import os
import shlex
import subprocess
import sys
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest

import tff_dp
from tests.cli import command
from tff_dp import advice
from tff_dp import systems
from tff_dp.accounting.curves import gaussian
from tff_dp.advice import offers as offers_lib
from tff_dp.advice import protocol_offers
from tff_dp.cli import advise
from tff_dp.cli import main
from tff_dp.systems.check_ins import offers as check_in_offers

pytestmark = pytest.mark.once

_CLIENTS = ('advise', '--population=4000', '--reports-per-round=50',
            '--rounds=20', '--parameters=1000', '--epsilon=2', '--delta=1e-6')
_SERVER = (*_CLIENTS, '--trust=server')
_SEVERAL_PASSES = ('advise', '--population=300', '--reports-per-round=20',
                   '--rounds=46', '--parameters=5', '--epsilon=3',
                   '--delta=1e-5', '--trust=server')
_SILOS = ('advise', '--population=20', '--reports-per-round=15', '--rounds=8',
          '--parameters=30', '--epsilon=1', '--trust=shuffler',
          '--records=1000')
_SETTINGS = {
    'server': _SERVER,
    'replace_one': (
        *_SEVERAL_PASSES, '--population=100', '--rounds=4',
        '--neighboring-relation=replace_one',
    ),
    'several_passes': _SEVERAL_PASSES,
    'silos': _SILOS,
}


@functools.cache
def _json(*argv):
  return command.run_json(main.main, *argv)


def _run(*argv):
  return command.run(main.main, *argv)


def _offers(*argv):
  return {offer['system']: offer for offer in _json(*argv)['systems']}


def _offer(system, **changes):
  setting = dict(
      population=20_000, reports_per_round=50, rounds=100, parameters=1000,
      epsilon=2.0, delta=1e-6, trust='server',
  )
  return systems.offers()[system].build()(advice.Setting(**setting | changes))


class GuaranteeTest(parameterized.TestCase):

  @parameterized.named_parameters(_SETTINGS.items())
  @pytest.mark.slow(cases=['replace_one'])
  def test_epsilon_is_within_the_budget_and_what_account_says(self, argv):
    result = _json(*argv)
    for offer in result['systems']:
      with self.subTest(offer['system']):
        self.assertLessEqual(offer['epsilon'], result['epsilon'])
        if offer['noise'].get('local_epsilon', 0) < 6:
          # Beyond, the sphere has hardly less noise for more epsilon.
          self.assertGreater(offer['epsilon'], 0.9 * result['epsilon'])
        self.assertLessEqual(
            offer['epsilon'], float(offer['epsilon_no_amplification'])
        )
        if offer['system'] == 'secure-sum':  # No command is about sums.
          self.assertEmpty(offer['command'])
          continue
        self.assertEqual(offer['command'][:2], ['tff-dp', 'account'])
        again = _json(*offer['command'][1:])
        self.assertEqual(again['epsilon'], offer['epsilon'])
        if offer['system'] in (
            'fixed-window', 'random-allocation', 'cyclic-allocation'
        ):
          self.assertEqual(
              again['epsilon_no_amplification'],
              offer['epsilon_no_amplification'],
          )

  @parameterized.named_parameters(_SETTINGS.items())
  def test_python_runs_and_prints_the_epsilon(self, argv):
    result = _json(*argv)
    for offer in result['systems']:
      with self.subTest(offer['system']):
        self.assertLessEqual(len(ast.parse(offer['python']).body), 5)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
          exec(offer['python'], {})  # pylint: disable=exec-used
        self.assertLessEqual(float(printed.getvalue()), result['epsilon'])
        self.assertAlmostEqual(
            float(printed.getvalue()) / offer['epsilon'], 1, places=9
        )

  def test_printed_command_and_python_run_in_a_new_process(self):
    _, out, _ = _run(*_CLIENTS, '--trust=nobody', '--for=draw-and-discard')
    _, _, rest = out.partition('To go on with draw-and-discard:\n\n')
    words, python, last = rest.split('\n\n')
    (offer,) = [
        offer
        for offer in _json(*_CLIENTS, '--trust=nobody')['systems']
        if offer['system'] == 'draw-and-discard'
    ]
    words = shlex.split(words.replace('\\\n', ''))
    self.assertEqual(words, offer['command'])
    code, shown, _ = _run(*words[1:])
    self.assertEqual(code, 0)
    self.assertIn('epsilon 2.0', shown)
    lines = [line[2:] for line in python.splitlines()]
    result = subprocess.run(
        [sys.executable, '-c', '\n'.join(lines)],
        capture_output=True, text=True, env=os.environ, check=True,
    )
    self.assertEqual(float(result.stdout), offer['epsilon'])
    self.assertEqual(last, f'and then {offer["process"]}.\n')

  def test_processes_exist(self):
    for argv in (_SERVER, _SILOS):
      for offer in _json(*argv)['systems']:
        _, folder, name = offer['process'].split('.')
        # The declaration only: the process would load TensorFlow.
        self.assertIn(name, getattr(tff_dp, folder).__all__)

  def test_noise_is_the_least(self):
    # One percent less, and the budget does not hold.
    offers = _offers(*_SEVERAL_PASSES)
    for system in (
        'dp-ftrl', 'random-allocation', 'cyclic-allocation', 'fixed-window'
    ):
      argv = list(offers[system]['command'][1:])
      (flag,) = {'--noise-multiplier', '--local-epsilon'} & set(argv)
      value = argv.index(flag) + 1
      factor = 0.97 if flag == '--noise-multiplier' else 1.03
      argv[value] = str(float(argv[value]) * factor)
      self.assertGreater(_json(*argv)['epsilon'], 3)


class ErrorTest(parameterized.TestCase):

  def test_one_round_of_a_trusted_server(self):
    # Nothing is correlated, nothing is amplified: one Gaussian.
    run = dict(population=50, rounds=1)
    sigma = gaussian.sigma_for(epsilon=2.0, delta=1e-6)
    offer = _offer('dp-ftrl', **run)
    self.assertAlmostEqual(offer.error, sigma / 50, delta=1e-5 * sigma)
    self.assertEqual(offer.variant, 'independent')
    self.assertAlmostEqual(offer.error_l2, math.sqrt(1000) * offer.error)
    for system in ('random-allocation', 'cyclic-allocation'):
      self.assertAlmostEqual(
          _offer(system, **run).error / (sigma / 50), 1, delta=0.02
      )

  @parameterized.parameters(100, 400)
  def test_local_noise_is_worse_by_the_root_of_the_cohort(self, population):
    # Everybody in every round: Gaussian noise either way, of equal size.
    run = dict(
        population=population, reports_per_round=population, rounds=200,
        neighboring_relation='replace_one',
    )
    local = _offer('local-reports', **run)
    self.assertEqual(local.variant, 'local-gaussian')
    self.assertAlmostEqual(
        local.error / _offer('dp-ftrl', **run).error / math.sqrt(population),
        1, delta=0.02,
    )

  @parameterized.parameters('dp-ftrl', 'cyclic-allocation')
  def test_correlated_noise_is_that_of_the_running_sum(self, system):
    offer = _offer(system, rounds=60, population=500)
    self.assertNotEqual(offer.variant, 'independent')
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
      exec(offer.python, names)  # pylint: disable=exec-used
    plan = names['plan']
    # The noise of the running sum, from what the mechanism says of one draw.
    variances = plan.mechanism.run_prefix_variances()
    stddev = plan.noise_multiplier * np.sqrt(np.mean(variances)) / 50
    # Independent noise of the error in every round.
    independent = offer.error * np.sqrt(np.mean(np.arange(1, 61)))
    self.assertAlmostEqual(independent / stddev, 1, places=9)

  def test_cyclic_allocation_is_between_what_it_is_made_of(self):
    offers = _offers(*_SERVER)
    cyclic = offers['cyclic-allocation']
    self.assertLess(cyclic['error'], offers['dp-ftrl']['error'])
    self.assertLess(cyclic['error'], offers['random-allocation']['error'])
    self.assertIn('1 of 20', offers['random-allocation']['participation'])
    stride = cyclic['model_copies']
    self.assertEqual(cyclic['variant'], f'banded, {stride} bands')
    # As many reports as of the others: 20 rounds of 50, of 4000 clients.
    self.assertStartsWith(
        cyclic['participation'],
        'with probability 0.25 a client takes part in one of'
        f' {20 // stride} or more slots',
    )

  @parameterized.parameters((0.5, False), (20.0, True))
  def test_says_where_to_draw_slots_is_hardly_worth_it(self, epsilon, hardly):
    offer = _offer(
        'cyclic-allocation', rounds=40, population=500, epsilon=epsilon
    )
    self.assertEqual('DP-FTRL needs none' in offer.notes[0], hardly)

  def test_independent_noise_has_its_own_error(self):
    offer = _offer('dp-ftrl', population=50, rounds=30)
    self.assertEqual(offer.variant, 'independent')
    self.assertAlmostEqual(
        offer.error * 50 / offer.noise['noise_multiplier'], 1
    )

  def test_trust_is_worth_noise(self):
    systems = [offer['system'] for offer in _json(*_SERVER)['systems']]
    order = [
        'dp-ftrl', 'shuffled-check-in', 'local-reports', 'draw-and-discard'
    ]
    self.assertEqual([name for name in systems if name in order], order)

  def test_shuffled_reports_are_averaged(self):
    offer = _offer('shuffled-check-in', population=2000, rounds=5)
    self.assertEqual(offer.variant, 'sphere')
    sphere = check_in_offers._RANDOMIZERS['sphere'](offer.noise['local_epsilon'])
    self.assertAlmostEqual(
        offer.error * math.sqrt(50), math.sqrt(sphere.variance(1000) / 1000)
    )

  def test_dummies_are_noise(self):
    # A pass of as many slots as clients: a share of 1/e stays empty.
    offer = _offer('fixed-window', population=1000, rounds=20)
    sphere = check_in_offers._RANDOMIZERS['sphere'](offer.noise['local_epsilon'])
    stddev = math.sqrt(sphere.variance(1000) / 1000)
    self.assertAlmostEqual(
        offer.error, stddev / math.sqrt(50) / (1 - (1 - 1 / 1000) ** 1000)
    )
    self.assertIn('36.8 % of the reports', offer.notes[0])
    # As many clients as steps: the same share, whatever the window.
    slides = _offer('sliding-window', population=1040, rounds=20)
    self.assertIn('36.3 % of the reports', slides.notes[0])
    self.assertIn('one of the 41 steps', slides.participation)

  def test_few_rounds_of_silos_are_for_the_secure_sum(self):
    for rounds, best in ((1, 'secure-sum'), (8, 'secure-sum'), (40, 'isrl')):
      offers = _json(*_SILOS, f'--rounds={rounds}')['systems']
      self.assertEqual(offers[0]['system'], best)
    # One round: the noise of all silos together, or of each.
    first, second = _json(*_SILOS, '--rounds=1')['systems']
    sigma = gaussian.sigma_for(epsilon=1.0, delta=1e-6)
    self.assertAlmostEqual(
        second['error'] * 1000 * math.sqrt(15) / (2 * sigma), 1, places=4
    )
    # Of 15 silos with 1000 records: shares of noise, and rounding.
    noise, count = first['noise'], 15 * 1000
    squared = noise['share_variance'] * 15 * (2 / noise['grid'] / count) ** 2
    squared += (1 / noise['grid']) ** 2 / count
    self.assertAlmostEqual(first['error'] ** 2 / squared, 1, places=9)
    # Integer noise is a little more than one Gaussian.
    self.assertBetween(
        second['error'] / first['error'], 0.9 * math.sqrt(15), math.sqrt(15)
    )

  def test_signal_to_noise(self):
    result = _json(*_SERVER, '--update-norm=0.25')
    for offer in result['systems']:
      self.assertAlmostEqual(
          offer['signal_to_noise'] * offer['error'] * math.sqrt(1000), 0.25
      )
    self.assertNotIn('signal_to_noise', _json(*_SERVER)['systems'][0])

  def test_instances_do_not_average_noise(self):
    # Noise and a constant step, and nothing else, on a pool of four instances.
    rng = np.random.default_rng(1)
    instances, updates, runs = 4, 2000, 4000
    pool = np.zeros((runs, instances))
    rows = np.arange(runs)
    for _ in range(updates):
      drawn, written = rng.integers(instances, size=(2, runs))
      pool[rows, written] = pool[rows, drawn] + 1 + rng.normal(size=runs)
    mean = pool.mean(axis=1)
    self.assertAlmostEqual(mean.mean() * instances / updates, 1, delta=0.02)
    # The steps have a variance, too: one or none of k, hence (1 - 1/k) / k.
    per_update = np.var(mean) / updates
    steps = (1 - 1 / instances) / instances
    self.assertAlmostEqual(
        (per_update - steps) * instances, 1, delta=0.15
    )
    # Which is what is used: the error of B reports is sqrt(k / B) draws.
    offer = _offer('draw-and-discard', population=50, rounds=1)
    sigma = gaussian.sigma_for(epsilon=2.0, delta=1e-6)
    self.assertAlmostEqual(
        offer.error / (2 * sigma * math.sqrt(20 / 50)), 1, places=4
    )


class SearchTest(absltest.TestCase):

  def test_local_epsilon_ends_at_the_most(self):
    found = protocol_offers.least(
        lambda epsilon: epsilon if epsilon <= 10 else math.inf,
        lambda noise: round(1 / noise, 3),
        start=2.0,
        target=1e3,
    )
    self.assertBetween(found, 9.9, 10)

  def test_nothing_is_private(self):
    with self.assertRaisesRegex(ValueError, 'epsilon=1.0 is not allowed'):
      protocol_offers.least(lambda _: 2.0, float, start=1.0, target=1.0)


class FitTest(parameterized.TestCase):

  def test_trust_decides(self):
    for trust, fitting in (
        ('nobody', {'local-reports', 'draw-and-discard'}),
        ('shuffler', {'local-reports', 'draw-and-discard',
                      'shuffled-check-in'}),
        ('server', set(systems.offers()) - {'isrl', 'secure-sum'}),
    ):
      result = _json(*_CLIENTS, f'--trust={trust}')
      self.assertEqual(
          {offer['system'] for offer in result['systems']}, fitting
      )
      self.assertEqual(
          {each['system'] for each in result['not_offered']},
          set(systems.offers()) - fitting,
      )
    reasons = {
        each['system']: each['reason']
        for each in _json(*_CLIENTS, '--trust=nobody')['not_offered']
    }
    self.assertEqual(
        reasons['shuffled-check-in'],
        'needs trust in a shuffler or a secure sum: here nobody is trusted',
    )
    self.assertEqual(
        reasons['dp-ftrl'], 'needs trust in the server: here nobody is trusted'
    )

  def test_silos(self):
    offers = _offers(*_SILOS)
    self.assertEqual(set(offers), {'secure-sum', 'isrl'})
    self.assertEqual(
        set(_offers(*_SILOS, '--trust=nobody')), {'isrl'}
    )
    for offer in offers.values():
      self.assertEqual(offer['unit'], 'record in a silo')
      self.assertEqual(offer['delta'], 1e-6)
    self.assertGreater(offers['secure-sum']['epsilon_no_amplification'], 1)

  def test_noise_that_cannot_be_drawn_is_left_out(self):
    flags = (
        'advise', '--population=5', '--reports-per-round=5', '--rounds=30',
        '--parameters=100', '--epsilon=0.1', '--records=1000',
        '--trust=shuffler',
    )
    self.assertIn('isrl', _offers(*flags))
    (reason,) = [
        each['reason']
        for each in _json(*flags, '--epsilon=0.001')['not_offered']
        if each['system'] == 'secure-sum'
    ]
    self.assertStartsWith(reason, 'finds no integer noise')

  def test_fewer_records_than_rounds(self):
    result = _json(*_SILOS, '--rounds=2000')
    (reason,) = [
        each['reason']
        for each in result['not_offered']
        if each['system'] == 'secure-sum'
    ]
    self.assertIn('2000 rounds need 2000 records', reason)

  def test_more_reports_than_clients(self):
    offers = _offers(*_SEVERAL_PASSES)
    self.assertNotIn('sliding-window', offers)
    # 46 rounds of 20 from 300: four passes of at most 15 rounds.
    self.assertIn('at most 4 times in 46 rounds',
                  offers['dp-ftrl']['participation'])
    self.assertIn('4 passes of 12 steps',
                  offers['random-allocation']['participation'])
    self.assertIn(
        'at most 4 times', offers['draw-and-discard']['participation']
    )

  def test_what_is_promised_of_clients(self):
    often = _offers(*_SERVER, '--min-index-gap=1')['dp-ftrl']
    seldom = _offers(*_SERVER)['dp-ftrl']
    self.assertGreater(often['error'], 3 * seldom['error'])
    self.assertIn('20 times', often['participation'])

  def test_traffic_and_memory(self):
    offers = _offers(*_SERVER)
    self.assertEqual(offers['local-reports']['bytes_up'], 17)
    self.assertEqual(offers['dp-ftrl']['bytes_up'], 4000)
    self.assertEqual(offers['draw-and-discard']['model_copies'], 20)
    self.assertEqual(offers['random-allocation']['model_copies'], 1)
    self.assertGreater(offers['dp-ftrl']['model_copies'], 1)


class OutputTest(parameterized.TestCase):

  def test_json(self):
    result = _json(*_SERVER, '--for=random-allocation')
    self.assertEqual(list(result)[:2], ['kind', 'schema_version'])
    self.assertEqual((result['kind'], result['schema_version']), ('advice', 1))
    self.assertEqual(result['setting']['population'], 4000)
    self.assertEqual(result['next'], 'random-allocation')
    self.assertEmpty(result['warnings'])
    errors = [offer['error'] for offer in result['systems']]
    self.assertEqual(errors, sorted(errors))
    for offer in result['systems']:
      self.assertContainsSubset(
          ('trust', 'unit', 'neighboring_relation', 'noise', 'error',
           'error_l2', 'epsilon', 'epsilon_no_amplification', 'bytes_up',
           'bytes_down', 'model_copies', 'assumptions', 'command', 'python'),
          offer,
      )
      self.assertNotEmpty(offer['assumptions'])

  def test_text(self):
    code, out, err = _run(*_SERVER, '--update-norm=0.5', '--details')
    self.assertEqual((code, err), (0, ''))
    short = _run(*_SERVER, '--update-norm=0.5')[1]
    self.assertLess(short.count('\n'), 45)
    self.assertContainsSubset(short.splitlines(), out.splitlines())
    self.assertIn('cyclic-allocation +', short)
    self.assertNotIn('dp-ftrl +', short)
    offers = _json(*_SERVER)['systems']
    rows = out.split('\n\n')[1].splitlines()
    self.assertEqual(
        [row.split()[:2] for row in rows[1:]],
        [[f'{n}', offer['system']] for n, offer in enumerate(offers, 1)],
    )
    for offer in offers:
      for sentence in offer['assumptions']:
        if not sentence.startswith('The unit is'):
          self.assertIn(sentence, ' '.join(out.split()))
    self.assertIn(f'To go on with {offers[0]["system"]}:', out)
    self.assertIn('- secure-sum, isrl: protects records', out)
    self.assertLess(max(map(len, out.splitlines())), 120)

  def test_default_delta(self):
    result = _json(*_CLIENTS[:-1], '--trust=nobody')
    self.assertEqual(result['delta'], 1.1e-4)

  def test_large_delta_is_said(self):
    flags = (*_CLIENTS, '--delta=1e-3', '--trust=nobody')
    self.assertStartsWith(_json(*flags)['warnings'][0], 'WEAK: delta')
    self.assertIn('WARNING: WEAK: delta 0.001', _run(*flags)[1])

  def test_progress_on_terminals_only(self):
    with mock.patch.object(sys, 'stderr', mock.Mock()) as stream:
      stream.fileno.side_effect = OSError
      stream.isatty.return_value = False
      self.assertIsNone(advise._progress())
      stream.isatty.return_value = True
      advise._progress()('isrl')
      stream.write.assert_called()

  def test_needs_no_tensorflow(self):
    code = (
        'import sys; from tff_dp.cli import main;'
        f'main.main({[*_CLIENTS, "--trust=nobody"]!r});'
        'print([m for m in sys.modules if m.startswith("tensorflow")])'
    )
    result = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True, text=True, env=os.environ, check=True,
    )
    self.assertEndsWith(result.stdout, '\n[]\n')


class BadInputTest(parameterized.TestCase):

  @parameterized.parameters(
      ('--population=0', 'an integer of at least 1'),
      ('--reports-per-round=4001', 'an integer from 1 to 4000'),
      ('--rounds=0', 'an integer of at least 1'),
      ('--parameters=0', 'an integer of at least 1'),
      ('--epsilon=0', 'a finite number above 0'),
      ('--epsilon=nan', 'a finite number above 0'),
      ('--delta=0.5', 'at most 0.1'),
      ('--update-norm=1.5', 'from 0 to 1'),
      ('--update-norm=0', 'above 0'),
      ('--max-participations=0', 'at least 1'),
      ('--min-index-gap=0', 'at least 1'),
      ('--records=0', 'at least 1'),
      ('--for=isrl', 'one of dp-ftrl'),
      ('--trust=me', "'nobody', 'shuffler', 'server'"),
      ('--for=sgd', "'dp-ftrl'"),
  )
  def test_a_bad_flag_names_itself_and_ends_with_2(self, flag, allowed):
    with mock.patch.object(advice, 'advise', wraps=advice.advise) as work:
      if flag == '--for=isrl':
        work.side_effect = lambda *_, **__: offers_lib.Advice(
            None, (mock.Mock(system='dp-ftrl'),), (offers_lib.Refusal('isrl', '-'),)
        )
      code, out, err = _run(*_SERVER, flag)
    self.assertEqual(code, 2)
    self.assertEmpty(out)
    self.assertStartsWith(err, 'error: ')
    self.assertIn(flag.split('=')[0], err.splitlines()[0])
    self.assertIn(allowed, err.splitlines()[0])

  def test_what_cannot_be_kept(self):
    code, _, err = _run(*_SEVERAL_PASSES, '--max-participations=2')
    self.assertEqual(code, 2)
    self.assertIn('--max-participations=2 is not allowed: expected at least 4',
                  err)
    code, _, err = _run(*_SEVERAL_PASSES, '--min-index-gap=16')
    self.assertEqual(code, 2)
    self.assertIn('--min-index-gap=16 is not allowed: expected at most 15', err)

  def test_no_default_delta_for_few_clients(self):
    code, _, err = _run(
        'advise', '--population=20', '--reports-per-round=5', '--rounds=1',
        '--parameters=1', '--epsilon=1', '--trust=nobody',
    )
    self.assertEqual(code, 2)
    self.assertStartsWith(err, 'error: --delta is missing')

  def test_silos_have_one_relation(self):
    code, _, err = _run(*_SILOS, '--neighboring-relation=zero_out')
    self.assertEqual(code, 2)
    self.assertIn('--neighboring-relation=zero_out', err)


if __name__ == '__main__':
  absltest.main()
