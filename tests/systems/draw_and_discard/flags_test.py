# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for `tff-dp account draw-and-discard`."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import tff_dp

from tests.cli import command
from tff_dp.cli import errors
from tff_dp.cli import main
from tff_dp.systems.draw_and_discard import accounting as accounting
from tff_dp.systems.draw_and_discard import client_steps

_MODEL = ('--parameters=33', '--instances=20')


def _run(*argv):
  return command.run(main.main, 'account', 'draw-and-discard', *argv)


def _json(*argv):
  return command.run_flat(main.main, 'account', 'draw-and-discard', *argv)


class AccountTest(parameterized.TestCase):

  def test_the_noise_of_the_paper(self):
    found = _json(
        '--parameters', 33, '--epsilon-per-coordinate', 3.47,
        '--participations', 1, '--instances', 20,
    )
    self.assertAlmostEqual(found['epsilon'], 33 * 3.47)
    # Laplace draws end, so it is not 0.
    self.assertBetween(found['delta'], 1e-300, 1e-200)
    self.assertEqual(found['epsilon_of_one_weight'], 3.47)
    self.assertEqual(found['num_instances'], 20)
    self.assertIn('not a guarantee', found['one_weight_is'])

  def test_is_the_library(self):
    found = _json(
        *_MODEL, '--epsilon=2', '--delta=1e-6', '--mechanism=gaussian',
        '--clip=l2', '--clip-norm=0.5', '--learning-rate=0.01',
        '--participations=5', '--max-participations=6', '--concurrency=3',
    )
    step = client_steps.ClientStep(
        learning_rate=0.01, clip='l2', clip_norm=0.5, mechanism='gaussian',
        epsilon=2.0, delta=1e-6,
    )
    plan = tff_dp.DrawAndDiscardPlan(
        step=step, num_params=33, num_instances=20, max_participations=6,
        num_rounds=6, clients_per_round=3,
    )
    expected = accounting.guarantee(plan, participations=5, delta=1e-6)
    self.assertEqual(found['epsilon'], expected.total_epsilon)
    self.assertEqual(found['noise_scale'], step.noise_scale(33))

  def test_cap_counts_where_no_number_is_given(self):
    flags = (*_MODEL, '--epsilon=1', '--max-participations=6')
    found = _json(*flags)
    self.assertEqual(found['participations'], 6)
    self.assertEqual(found['epsilon'], 6.0)
    self.assertEqual(_json(*flags, '--participations=6'), found)

  def test_no_number_of_participations_is_assumed(self):
    code, _, err = _run(*_MODEL, '--epsilon=1')
    self.assertEqual(code, errors.USAGE)
    self.assertStartsWith(
        err, 'error: --participations is missing: expected a number, as'
        ' --participations or --max-participations'
    )

  def test_text(self):
    code, out, _ = _run(*_MODEL, '--epsilon-per-coordinate=0.1',
                        '--participations=4', '--delta=1e-6')
    self.assertEqual(code, 0)
    lines = out.splitlines()
    self.assertStartsWith(lines[0], 'epsilon ')
    self.assertRegex(out, r'\nparticipations +4\n')

  @parameterized.parameters(
      (('--epsilon=0',), '--epsilon'),
      (('--epsilon-per-coordinate=-1',), '--epsilon-per-coordinate'),
      (('--epsilon=1', '--mechanism=gaussian'), '--delta'),
      (('--epsilon=1', '--delta=2'), '--delta'),
      (('--epsilon=1', '--parameters=0'), '--parameters'),
      (('--epsilon=1', '--instances=0'), '--instances'),
      (('--epsilon=1', '--participations=-1'), '--participations'),
      (('--epsilon=1', '--epsilon-per-coordinate=1'), 'not allowed with'),
      ((), 'required'),
  )
  def test_bad_flags_are_named(self, flags, name):
    code, _, err = _run(*_MODEL, '--max-participations=9', *flags)
    self.assertEqual(code, errors.USAGE)
    self.assertIn(name, err)


class EventsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'events.json'

  def _write(self, mechanism='gaussian', **options):
    noise = {}
    if mechanism is not None:
      noise = dict(clip='l2', epsilon=2.0, delta=1e-6)
    plan = tff_dp.DrawAndDiscardPlan(
        step=client_steps.ClientStep(
            learning_rate=0.01, mechanism=mechanism, **noise
        ),
        num_params=33,
        num_instances=20,
        max_participations=3,
        num_rounds=50,
        clients_per_round=2,
    )
    content = plan.events_json(delta=1e-6, **options)
    self.path.write_text(json.dumps(content))
    return plan, content

  @parameterized.parameters((None, 3), (2, 2))
  def test_recomputes_epsilon_of_a_run(self, num_rounds, participations):
    plan, _ = self._write(num_rounds=num_rounds)
    for words, delta in (((), 1e-6), (('--delta', 1e-8), 1e-8)):
      argv = ('account', '--events', self.path, *words)
      found = command.run_flat(main.main, *argv)
      self.assertEqual(
          found['epsilon'], plan.epsilon(delta=delta, num_rounds=num_rounds)
      )
      self.assertEqual(found['participations'], participations)
      self.assertEqual(found['plan'], plan.describe())
      self.assertEmpty(found['warnings'])
      code, out, _ = command.run(main.main, *argv)
      self.assertEqual(code, errors.DONE)
      self.assertRegex(out, rf'\nparticipations +{participations}\n')

  def test_without_noise(self):
    self._write(mechanism=None)
    argv = ('account', '--events', self.path)
    found = command.run_flat(main.main, *argv)
    self.assertEqual(found['epsilon'], 'inf')
    self.assertStartsWith(found['warnings'][0], 'NO PRIVACY')
    self.assertStartsWith(command.run(main.main, *argv)[1], 'NO PRIVACY')

  @parameterized.parameters(
      ('participations', 1), ('neighboring_relation', 'zero_out')
  )
  def test_file_that_states_less_than_its_plan_is_refused(self, name, value):
    _, content = self._write()
    where = content if name in content else content['events'][0]
    where[name] = value
    self.path.write_text(json.dumps(content))
    code, _, err = command.run(main.main, 'account', '--events', self.path)
    self.assertEqual(code, errors.REFUSED)
    self.assertIn(f'{name}={value!r}', err)


if __name__ == '__main__':
  absltest.main()
