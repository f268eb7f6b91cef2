# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of `tff-dp account --events` on runs of silos."""

import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

import tff_dp
from tff_dp import _checks
from tff_dp.accounting.silos import silo_sampling
from tff_dp.accounting.silos import silo_terms
from tff_dp.cli import event_files
from tff_dp.cli import main
from tff_dp.ledger import silo_accountant

_DELTA = 1e-4


def _plan(**options) -> tff_dp.SiloPlan:
  phase = silo_terms.Phase(silo_sampling.PoissonSampling(4.0), 0, 40, 6, 0.5)
  return tff_dp.SiloPlan(
      {
          name: silo_accountant.SiloBudget(40, 5.0, _DELTA)
          for name in ('north', 'south')
      },
      {
          name: silo_terms.SiloTerms(40, 1.0, (phase,))
          for name in ('north', 'south')
      },
      **options,
  ).with_availability(lambda r, name: name == 'south' or r > 2)


class EventsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir().full_path) / 'events.json'

  def _write(self, content):
    self.path.write_text(json.dumps(content))

  def _account(self, *arguments):
    with mock.patch('builtins.print') as printed:
      code = main.main(['account', '--events', str(self.path), *arguments])
    text = '\n'.join(call.args[0] for call in printed.call_args_list)
    return code, text

  @parameterized.parameters(None, 3)
  def test_account_recomputes_epsilon_of_every_silo(self, num_rounds):
    plan = _plan()
    self._write(plan.events_json(delta=1e-5, num_rounds=num_rounds))
    self.assertEqual(event_files.read(str(self.path)).plan, plan)
    code, text = self._account('--format', 'json')
    self.assertEqual(code, 0)
    result = json.loads(text)
    self.assertEqual(
        result['epsilon'], plan.epsilon(delta=1e-5, num_rounds=num_rounds)
    )
    self.assertGreater(result['epsilon_no_amplification'], result['epsilon'])
    self.assertEqual(result['unit'], 'record')
    for name in plan.silos:
      self.assertEqual(
          result['silos'][name]['epsilon'],
          plan.epsilon(silo=name, num_rounds=num_rounds),
      )
    _, other = self._account('--format', 'json', '--delta', '1e-3')
    self.assertLess(json.loads(other)['epsilon'], result['epsilon'])
    _, text = self._account()
    self.assertRegex(text, f'of 6 rounds\n\nISRL-DP(.*\n)*north .*{_DELTA:f}')

  @parameterized.parameters(
      ('messages', {'north': 0, 'south': 6}), ('messages', None), ('rounds', 5)
  )
  def test_events_that_are_not_of_their_plan_are_refused(self, name, value):
    content = _plan().events_json(delta=_DELTA)
    content['events'][0][name] = value
    self._write(content)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'the events state messages'
    ):
      event_files.read(str(self.path))

  def test_unit_of_another_plan_is_refused(self):
    self._write(_plan().events_json(delta=_DELTA) | {'unit': 'client'})
    with self.assertRaisesRegex(_checks.ArgumentError, 'schema'):
      event_files.read(str(self.path))

  def test_run_without_a_guarantee_is_refused(self):
    self._write(_plan(voids=('a reason',)).events_json(delta=_DELTA))
    code, _ = self._account()
    self.assertEqual(code, 5)


if __name__ == '__main__':
  absltest.main()
