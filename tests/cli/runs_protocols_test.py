# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `account` and `statement --events`, most on check-ins and silos."""

import json
import pathlib

from absl.testing import absltest
from absl.testing import parameterized
import tff_dp

from tests.cli import command
from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import participation
from tff_dp.accounting.events import run_events
from tff_dp.cli import main
from tff_dp.mechanisms import randomizers
from tff_dp.plans import events
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

_DELTA = 1e-5
_SILO_DELTA = 1e-4
_SPHERE = randomizers.Sphere(1.0, 0.5)
_PLANS = (
    tff_dp.CheckInPlan(
        check_ins.FixedWindowCheckIn(5, 0.3),
        _SPHERE,
        num_passes=2,
    ),
    tff_dp.CheckInPlan(
        check_ins.SlidingWindowCheckIn(10, 4), _SPHERE
    ),
    tff_dp.CheckInPlan(
        check_ins.AveragedCheckIn(10, 12), randomizers.Gaussian(3.0, 1.0)
    ),
    tff_dp.CheckInPlan(
        check_ins.ShuffledCheckIn(10, 0.2, 12), _SPHERE
    ),
    tff_dp.AllocationPlan(
        allocation.RandomAllocation(10),
        noise_multiplier=2.0,
        l2_norm_clip=0.5,
    ),
)


def _silo_plan(**options) -> tff_dp.SiloPlan:
  phase = silo_terms.Phase(silo_sampling.PoissonSampling(4.0), 0, 40, 6, 0.5)
  return tff_dp.SiloPlan(
      {
          name: silo_budget.SiloBudget(40, 5.0, _SILO_DELTA)
          for name in ('north', 'south')
      },
      {
          name: silo_terms.SiloTerms(40, 1.0, (phase,))
          for name in ('north', 'south')
      },
      **options,
  ).with_availability(lambda r, name: name == 'south' or r > 2)


def _dp_ftrl_plan() -> tff_dp.DpFtrlPlan:
  return tff_dp.DpFtrlPlan(
      tff_dp.mechanisms.HonakerTree(10),
      participation.MinSeparation(10, min_index_gap=4),
      l2_norm_clip=1.0,
      clients_per_round=3,
      noise_multiplier=3.0,
  )


def _instance_plan() -> tff_dp.DrawAndDiscardPlan:
  return tff_dp.DrawAndDiscardPlan(
      step=tff_dp.draw_and_discard.ClientStep(learning_rate=0.1, epsilon=1.0),
      num_params=3,
      num_instances=5,
      max_participations=8,
      num_rounds=10,
  )


class StatementTest(parameterized.TestCase):

  @parameterized.parameters(
      lambda: _PLANS[4], lambda: _PLANS[3], _silo_plan, _dp_ftrl_plan,
      _instance_plan,
  )
  def test_states_what_the_rounds_done_have_spent(self, build):
    plan, path = build(), pathlib.Path(self.create_tempdir().full_path) / 'e'
    for rounds in (2, plan.num_rounds):
      path.write_text(
          json.dumps(plan.events_json(delta=_SILO_DELTA, num_rounds=rounds))
      )
      code, out, err = command.run(
          main.main, 'statement', '--events', path, '--format', 'json'
      )
      self.assertEqual(code, 0, err)
      stated = json.loads(out)
      self.assertEqual(
          stated['epsilon'], plan.epsilon_after(rounds, delta=_SILO_DELTA)
      )
      points = stated['points']
      self.assertEqual(points['mechanism']['rounds_done'], rounds)
      self.assertEqual(
          points['guarantee']['epsilon_planned'],
          plan.epsilon(delta=_SILO_DELTA),
      )
      self.assertNotIn('no round yet', out)
    self.assertLess(
        plan.epsilon_after(2, delta=_SILO_DELTA), stated['epsilon']
    )


class CheckInsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.root / 'events.json'

  def _write(self, plan, **options):
    content = plan.events_json(delta=_DELTA, **options)
    self.path.write_text(json.dumps(content))
    return content

  def _json(self, *arguments):
    return command.run_flat(
        main.main, 'account', '--events', self.path, *arguments
    )

  def _text(self):
    code, out, err = command.run(main.main, 'account', '--events', self.path)
    self.assertEqual(code, 0, err)
    return out

  @parameterized.product(plan=_PLANS, num_rounds=(None, 4))
  def test_account_recomputes_epsilon(self, plan, num_rounds):
    self._write(plan, num_rounds=num_rounds)
    run = events.read(str(self.path))
    self.assertEqual(run.plan, plan)
    result = self._json()
    self.assertEqual(
        result['epsilon'], plan.epsilon_after(num_rounds or 10, delta=_DELTA)
    )
    self.assertEqual(
        result['neighboring_relation'], plan.neighboring_relation.value
    )
    self.assertEqual(result['protocol'], plan.protocol.name)
    text = self._text()
    self.assertIn('without amplification', text)
    other = self._json('--delta', '1e-7')
    self.assertEqual(other['delta'], 1e-7)
    self.assertGreater(other['epsilon'], result['epsilon'])

  @parameterized.parameters(
      (lambda c: c['events'][0].update(rounds_accounted=3), 'rounds_accounted'),
      (
          lambda c: c.update(
              neighboring_relation=run_events.NeighboringRelation.ZERO_OUT.value
          ),
          'neighboring_relation',
      ),
  )
  def test_file_that_contradicts_its_plan_is_refused(self, change, message):
    content = self._write(_PLANS[3])
    change(content)
    self.path.write_text(json.dumps(content))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
      events.read(str(self.path))

  @parameterized.parameters(
      lambda c: c['plan']['protocol'].update(name='Poisson'),
      lambda c: c['plan']['randomizer'].update(name='published'),
      lambda c: c['plan']['protocol'].update(check_in_rate=2.0),
      lambda c: c['events'][0].update(rounds=11),
      lambda c: c['plan'].pop('num_passes') and c['plan'].update(extra=1),
  )
  def test_file_of_something_else_is_an_error(self, change):
    content = self._write(_PLANS[3])
    change(content)
    self.path.write_text(json.dumps(content))
    with self.assertRaises((_checks.ArgumentError, ValueError)):
      events.read(str(self.path))


class SilosTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'events.json'

  def _write(self, content):
    self.path.write_text(json.dumps(content))

  def _run(self, *arguments):
    return command.run(
        main.main, 'account', '--events', self.path, *arguments
    )

  @parameterized.parameters(None, 3)
  def test_account_recomputes_epsilon_of_every_silo(self, num_rounds):
    plan = _silo_plan()
    self._write(plan.events_json(delta=1e-5, num_rounds=num_rounds))
    self.assertEqual(events.read(str(self.path)).plan, plan)
    argv = ('account', '--events', self.path)
    result = command.run_flat(main.main, *argv)
    self.assertEqual(
        result['epsilon'], plan.epsilon(delta=1e-5, num_rounds=num_rounds)
    )
    self.assertGreater(result['epsilon_no_amplification'], result['epsilon'])
    self.assertEqual(result['unit'], 'record')
    for name in plan.silos:
      self.assertEqual(
          result['silos'][name]['epsilon'],
          plan.epsilon(member=name, num_rounds=num_rounds),
      )
    other = command.run_flat(main.main, *argv, '--delta', '1e-3')
    self.assertLess(other['epsilon'], result['epsilon'])
    code, text, _ = self._run()
    self.assertEqual(code, 0)
    self.assertStartsWith(text, 'epsilon ')
    self.assertRegex(text, r'rounds planned +6\n(.*\n)* +north .* 0.00010')

  @parameterized.parameters(
      ('messages', {'north': 0, 'south': 6}), ('messages', None), ('rounds', 5)
  )
  def test_events_that_are_not_of_their_plan_are_refused(self, name, value):
    content = _silo_plan().events_json(delta=_SILO_DELTA)
    content['events'][0][name] = value
    self._write(content)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'the events state '
    ):
      events.read(str(self.path))

  def test_unit_of_another_plan_is_refused(self):
    content = _silo_plan().events_json(delta=_SILO_DELTA)
    self._write(content | {'unit': 'client'})
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, "unit='client'"):
      events.read(str(self.path))

  def test_run_without_a_guarantee_is_refused(self):
    self._write(_silo_plan(voids=('a reason',)).events_json(delta=_SILO_DELTA))
    code, _, _ = self._run()
    self.assertEqual(code, 5)


if __name__ == '__main__':
  absltest.main()
