# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan of a run without privacy."""

import json
import math

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp import participation
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.systems.dp_ftrl import non_private
from tff_dp.systems.dp_ftrl import plan as plan_lib

_SCHEDULE = participation.MinSeparation(20, min_index_gap=4)


class NonPrivatePlanTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.plan = non_private.NonPrivatePlan(_SCHEDULE, clients_per_round=3)

  def test_statement_says_no_privacy_and_no_clipping(self):
    statement = self.plan.statement(delta=1e-5)
    self.assertEqual(statement.epsilon, math.inf)
    self.assertStartsWith(statement.warnings[0], 'NO PRIVACY')
    self.assertEqual(statement.points['mechanism']['name'], 'none')
    self.assertEqual(statement.points['mechanism']['l2_norm_clip'], 'none')
    self.assertEqual(statement.points['release']['covered'], 'nothing')
    self.assertIn('not clipped', statement.points['unit']['contribution_bound'])
    self.assertIn('NO PRIVACY is guaranteed', statement.to_markdown())

  def test_every_round_costs_infinity(self):
    ledger = self.plan.ledger(epsilon=None, delta=1e-5)
    self.assertEqual(ledger.epsilon_after(1), math.inf)
    with self.assertRaises(_checks.PrivacyRefusedError):
      self.plan.ledger(epsilon=1e6, delta=1e-5).check(1)

  def test_participation_is_recorded_as_usual(self):
    ledger = self.plan.participation_ledger('run')
    ledger.commit(['a'], 1)
    with self.assertRaises(_checks.PrivacyRefusedError):
      ledger.commit(['a'], 2)

  def test_events_say_no_privacy(self):
    for rounds in (None, 7):
      events = self.plan.events_json(delta=1e-5, num_rounds=rounds)
      events = json.loads(json.dumps(events))
      self.assertStartsWith(events['warnings'][0], 'NO PRIVACY')
      self.assertEqual(events['events'][0]['noise_multiplier'], 0.0)
      self.assertEqual(events['events'][0]['rounds'], rounds or 20)

  def test_is_no_plan_of_noise_that_is_zero(self):
    noiseless = plan_lib.DpFtrlPlan(
        mechanism_lib.Independent(20),
        _SCHEDULE,
        l2_norm_clip=1.0,
        clients_per_round=3,
        noise_multiplier=0.0,
    )
    self.assertNotEqual(self.plan.fingerprint, noiseless.fingerprint)
    self.assertEqual(
        self.plan.fingerprint,
        non_private.NonPrivatePlan(_SCHEDULE, 3).fingerprint,
    )

  @parameterized.parameters(
      (dict(clients_per_round=0), 'clients_per_round=0'),
      (dict(participation='daily'), "participation='daily'"),
  )
  def test_bad_argument_is_named(self, bad, message):
    arguments = dict(participation=_SCHEDULE, clients_per_round=3) | bad
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      non_private.NonPrivatePlan(**arguments)


if __name__ == '__main__':
  absltest.main()
