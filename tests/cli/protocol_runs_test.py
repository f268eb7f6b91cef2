# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `tff-dp account --events` on runs of check-in protocols."""

import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp import participation
from tff_dp.accounting.events import run_events
from tff_dp.cli import event_files
from tff_dp.cli import main
from tff_dp.mechanisms import randomizers
from tff_dp.plans import check_ins as protocol_plan

_DELTA = 1e-5
_SPHERE = randomizers.Sphere(1.0, 0.5)
_PLANS = (
    protocol_plan.ProtocolPlan(
        participation.FixedWindowCheckIn(5, 0.3),
        _SPHERE,
        num_passes=2,
        occupancy_noise_stddev=50.0,
    ),
    protocol_plan.ProtocolPlan(
        participation.SlidingWindowCheckIn(10, 4), _SPHERE
    ),
    protocol_plan.ProtocolPlan(
        participation.AveragedCheckIn(10, 12), randomizers.Gaussian(3.0, 1.0)
    ),
    protocol_plan.ProtocolPlan(
        participation.ShuffledCheckIn(10, 0.2, 12), _SPHERE
    ),
    protocol_plan.ProtocolPlan(
        participation.RandomAllocation(10),
        protocol_plan.CentralGaussian(2.0, 0.5),
    ),
)


class EventsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.root = pathlib.Path(self.create_tempdir().full_path)
    self.path = self.root / 'events.json'

  def _write(self, plan, **options):
    content = plan.events_json(delta=_DELTA, **options)
    self.path.write_text(json.dumps(content))
    return content

  def _account(self, *arguments):
    with mock.patch('builtins.print') as printed:
      code = main.main(['account', '--events', str(self.path), *arguments])
    self.assertEqual(code, 0)
    return printed.call_args.args[0]

  @parameterized.product(plan=_PLANS, num_rounds=(None, 4))
  def test_account_recomputes_epsilon(self, plan, num_rounds):
    self._write(plan, num_rounds=num_rounds)
    run = event_files.read(str(self.path))
    self.assertEqual(run.plan, plan)
    result = json.loads(self._account('--format', 'json'))
    self.assertEqual(
        result['epsilon'], plan.epsilon_after(num_rounds or 10, delta=_DELTA)
    )
    self.assertEqual(
        result['neighboring_relation'], plan.neighboring_relation.value
    )
    self.assertEqual(result['protocol'], plan.protocol.name)
    text = self._account()
    self.assertIn('without amplification', text)
    other = json.loads(self._account('--format', 'json', '--delta', '1e-7'))
    self.assertEqual(other['delta'], 1e-7)
    self.assertGreater(other['epsilon'], result['epsilon'])

  def test_share_of_noised_counts_is_said(self):
    self._write(_PLANS[0])
    result = json.loads(self._account('--format', 'json'))
    self.assertTrue(
        any('noised counts' in warning for warning in result['warnings'])
    )

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
      event_files.read(str(self.path))

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
      event_files.read(str(self.path))


if __name__ == '__main__':
  absltest.main()
