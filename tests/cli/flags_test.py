# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of what every kind of run has on the command line."""

import importlib.util
import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.cli import command
from tff_dp import plans
from tff_dp import systems
from tff_dp.cli import main
from tff_dp.cli import plots
from tff_dp.plans import base
from tff_dp.statement import builder

# What makes the plan, its noise, and the flag of it that calibrate prints.
_PLANS = {
    'dp-ftrl': (
        ('--rounds=24', '--max-participations=2'), '--noise-multiplier=3',
    ),
    'shuffle': (('--population=5000', '--rounds=2'), '--local-epsilon=1'),
    'shuffled-check-in': (
        ('--population=3000', '--check-in-rate=0.2', '--rounds=3'),
        '--local-epsilon=1',
    ),
    'random-check-in': (('--slots=50', '--rounds=100'), '--local-epsilon=0.3'),
    'random-allocation': (('--slots=20',), '--noise-multiplier=1'),
    'cyclic-allocation': (
        ('--rounds=60', '--windows=2', '--stride=4'), '--noise-multiplier=2',
    ),
    'isrl': (
        ('--records=200', '--rounds=5', '--batch-size=20'),
        '--noise-multiplier=5',
    ),
    'dp-fedavg': (
        ('--population=90', '--clients-per-round=9', '--rounds=20'),
        '--noise-multiplier=2',
    ),
    'dp-sgd': (
        ('--records=90', '--batch-size=9', '--epochs=2'),
        '--noise-multiplier=2',
    ),
    'draw-and-discard': (
        ('--parameters=9', '--instances=3', '--max-participations=3'),
        '--epsilon=1',
    ),
}
_DELTA = ('--delta=1e-5',)
# `tools` is no package: it is not imported by anything that is shipped.
_SPEC = importlib.util.spec_from_file_location(
    'trace_epsilon',
    pathlib.Path(__file__).parents[2] / 'tools' / 'trace_epsilon.py',
)
# The most files that one epsilon may go through: they should become fewer.
_MOST_FILES = {
    'dp-ftrl --mechanism independent': 17,
    'dp-ftrl --mechanism honaker': 19,
    'dp-ftrl --mechanism blt': 22,
    'shuffle': 25,
    'shuffled-check-in': 27,
    'random-check-in': 25,
    'random-allocation': 28,
    'cyclic-allocation': 36,
    'isrl': 18,
    'dp-fedavg': 18,
    'draw-and-discard': 19,
}
_BUDGET = 2.0


def _json(*argv):
  return command.run_json(main.main, *argv)


class FlagsTest(parameterized.TestCase):

  def _fields(self):
    (plan, noise) = _PLANS['dp-ftrl']
    arguments = main.parse(['account', 'dp-ftrl', *plan, noise, *_DELTA])
    run = main.run_of(arguments)
    return [*run.plan.headline(delta=run.delta), 'details']

  def test_an_epsilon_goes_through_few_files(self):
    trace = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(trace)
    most = dict(_MOST_FILES)
    for kind in trace.KINDS:
      name = next(name for name in most if f'{kind} '.startswith(f'{name} '))
      files = trace.files_of([*kind.split(), trace.DELTA])
      self.assertLessEqual(len(files), most.pop(name), (kind, files))
    self.assertEmpty(most)

  def test_every_kind_is_tested(self):
    self.assertSameElements(_PLANS, systems.commands())

  @parameterized.parameters(*_PLANS)
  def test_headline_is_that_of_the_plan(self, kind):
    plan_flags, noise = _PLANS[kind]
    words = (kind, *plan_flags, noise, *_DELTA)
    found = _json('account', *words)
    self.assertEqual(list(found), self._fields())
    self.assertEqual(found['schema_version'], base.SCHEMA_VERSION)
    run = main.run_of(main.parse(['account', *words]))
    self.assertEqual(found['plan'], json.loads(json.dumps(run.plan.describe())))
    self.assertEqual(found['epsilon'], run.plan.epsilon(delta=1e-5))
    self.assertEqual(
        found['epsilon_no_amplification'],
        run.plan.epsilon_no_amplification(delta=1e-5),
    )
    # The plan in the JSON is enough to make the same plan again.
    again = plans.from_description(found['plan'])
    self.assertEqual(again.fingerprint, run.plan.fingerprint)

  @parameterized.parameters(*_PLANS)
  def test_calibrate_is_within_the_budget_and_hardly_below(self, kind):
    plan_flags, _ = _PLANS[kind]
    words = (*plan_flags, *_DELTA)
    budget = f'--epsilon={_BUDGET}'
    found = _json('calibrate', kind, *words, budget)
    self.assertEqual(list(found), self._fields())
    self.assertBetween(found['epsilon'], 0.999 * _BUDGET, _BUDGET)
    self.assertEqual(found['details']['calibration']['epsilon_budget'], _BUDGET)
    code, out, err = command.run(main.main, 'calibrate', kind, *words, budget)
    self.assertEqual(code, 0, err)
    # The first line has the flags with which `account` comes out the same.
    solved = [
        word for word in out.splitlines()[0].split()
        if word.startswith('--') and '=' in word
    ]
    self.assertNotEmpty(solved)
    spent = _json('account', kind, *words, *solved)
    self.assertBetween(spent['epsilon'], 0.999 * _BUDGET, _BUDGET)

  @parameterized.parameters(*_PLANS)
  def test_statement_from_flags_and_from_events(self, kind):
    plan_flags, noise = _PLANS[kind]
    words = (kind, *plan_flags, noise, *_DELTA)
    plan = main.run_of(main.parse(['statement', *words])).plan
    statement = plan.statement(delta=1e-5)
    self.assertEqual(_json('statement', *words), statement.to_json())
    code, out, err = command.run(main.main, 'statement', *words)
    self.assertEqual((code, err), (0, ''))
    self.assertEqual(out, statement.to_markdown())
    content = json.dumps(plan.events_json(delta=1e-5))
    path = self.create_tempfile(content=content).full_path
    done = plan.statement(
        delta=1e-5, observed=builder.RoundsDone(plan.num_rounds)
    )
    self.assertEqual(_json('statement', '--events', path), done.to_json())
    accounted = _json('account', '--events', path)
    self.assertEqual(list(accounted), self._fields())
    self.assertEqual(accounted['epsilon'], plan.epsilon(delta=1e-5))

  @parameterized.product(
      command_name=('account', 'statement'), kind=tuple(_PLANS)
  )
  def test_events_go_with_no_kind(self, command_name, kind):
    plan_flags, noise = _PLANS[kind]
    code, _, err = command.run(
        main.main, command_name, '--events=x', kind, *plan_flags, noise, *_DELTA
    )
    self.assertEqual(code, 2)
    self.assertIn('--events=x is not allowed', err)
    self.assertIn(f'no value with {kind}', err)

  def test_relation_is_that_of_the_epsilon(self):
    for kind in ('dp-ftrl', 'random-allocation', 'dp-sgd'):
      plan_flags, noise = _PLANS[kind]
      words = (kind, *plan_flags, noise, *_DELTA)
      found = _json('account', *words, '--neighboring-relation=replace_one')
      self.assertEqual(found['neighboring_relation'], 'replace_one')
      plan = main.run_of(main.parse(['account', *words])).plan
      self.assertEqual(
          found['epsilon'],
          plan.epsilon(delta=1e-5, neighboring_relation='replace_one'),
      )
      self.assertGreaterEqual(
          found['epsilon_no_amplification'], found['epsilon']
      )

  def test_plot_by_round_is_of_the_relation_that_was_asked_for(self):
    words = ('account', 'dp-ftrl', *_PLANS['dp-ftrl'][0], '--mechanism=tree',
             '--noise-multiplier=3', *_DELTA,
             '--neighboring-relation=replace_one')
    path = pathlib.Path(self.create_tempdir().full_path) / 'epsilon.png'
    with mock.patch.object(plots, '_write_lines') as drawn:
      self.assertEqual(command.run(main.main, *words, '--plot', path)[0], 0)
    (_, lines), said = drawn.call_args
    plan = main.run_of(main.parse(words)).plan
    options = dict(delta=1e-5, neighboring_relation='replace_one')
    # Without amplification it is the same line.
    (line,) = lines.values()
    self.assertEqual(max(line), plan.num_rounds)
    for rounds, epsilon in line.items():
      self.assertEqual(epsilon, plan.epsilon(num_rounds=rounds, **options))
    self.assertEqual(said['delta'], 1e-5)
    self.assertIn('per client, replace-one adjacency', said['title'])

  @parameterized.parameters('random-allocation', 'dp-fedavg', 'dp-sgd')
  def test_budget_is_kept_under_the_relation_that_was_asked_for(self, kind):
    found = _json(
        'calibrate', kind, *_PLANS[kind][0], *_DELTA, f'--epsilon={_BUDGET}',
        '--neighboring-relation=replace_one',
    )
    self.assertEqual(found['neighboring_relation'], 'replace_one')
    self.assertBetween(found['epsilon'], 0.999 * _BUDGET, _BUDGET)

  @parameterized.parameters(*_PLANS)
  def test_clip_norm_is_that_of_the_flag_and_leaves_epsilon_alone(self, kind):
    plan_flags, noise = _PLANS[kind]
    words = [kind, *plan_flags, noise, *_DELTA]
    if noise.startswith('--local-epsilon'):
      words.append('--randomizer=sphere')
    has_l2 = kind in ('dp-ftrl', 'isrl', 'dp-fedavg', 'dp-sgd')
    flag = '--l2-norm-clip' if has_l2 else '--clip-norm'
    found = _json('account', *words, f'{flag}=0.125')
    self.assertRegex(json.dumps(found['plan']), r'"\w*clip\w*": 0\.125\b')
    self.assertEqual(found['epsilon'], _json('account', *words)['epsilon'])


if __name__ == '__main__':
  absltest.main()
