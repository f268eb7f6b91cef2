# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for events: dp_accounting gives the same epsilon as we do."""

import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
from dp_accounting import rdp
import numpy as np

from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT
_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE


class NeighboringRelationTest(parameterized.TestCase):

  @parameterized.parameters(*run_events.NeighboringRelation)
  def test_is_its_own_name(self, relation):
    self.assertEqual(run_events.NeighboringRelation(str(relation)), relation)
    self.assertEqual(f'{relation}', relation.value)
    self.assertIn('one client', relation.description)

  def test_names_in_dp_accounting(self):
    self.assertEqual(
        _ZERO_OUT.dp_accounting,
        dp_accounting.NeighboringRelation.REPLACE_SPECIAL,
    )
    self.assertEqual(
        _REPLACE_ONE.dp_accounting,
        dp_accounting.NeighboringRelation.REPLACE_ONE,
    )

  def test_factor_equals_the_largest_move_of_a_clipped_contribution(self):
    angles = np.linspace(0, 2 * np.pi, 181)
    unit = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    moves = np.sum((unit[:, None] - unit[None, :]) ** 2, axis=-1)
    self.assertAlmostEqual(
        moves.max(), _REPLACE_ONE.squared_sensitivity_factor
    )
    self.assertAlmostEqual(
        np.sum(unit**2, axis=1).max(), _ZERO_OUT.squared_sensitivity_factor
    )


class RunEventTest(parameterized.TestCase):

  @parameterized.product(
      relation=tuple(run_events.NeighboringRelation),
      noise_multiplier=(1.13, 7.0),
      squared_sensitivity=(11, 79),
  )
  def test_dp_accounting_gives_the_same_epsilon(
      self, relation, noise_multiplier, squared_sensitivity
  ):
    event = run_events.run_event(
        noise_multiplier=noise_multiplier,
        squared_sensitivity=squared_sensitivity,
        neighboring_relation=relation,
    )
    self.assertIsInstance(event, dp_accounting.GaussianDpEvent)
    orders = 1 + np.geomspace(1e-2, 1e3, 2000)
    accountant = rdp.RdpAccountant(orders, relation.dp_accounting)
    accountant.compose(event)
    sigma = noise_multiplier / math.sqrt(
        squared_sensitivity * {_ZERO_OUT: 1, _REPLACE_ONE: 4}[relation]
    )
    ours = gaussian.rdp_epsilon(sigma=sigma, delta=1e-6)
    # Theirs is the minimum over a grid of orders, ours over all of them.
    self.assertBetween(
        accountant.get_epsilon(1e-6), ours - 1e-9, ours * (1 + 1e-5)
    )

  def test_composed_rounds_equal_the_run(self):
    # One participation, seven nodes of multiplier 3: seven Gaussians.
    composed = rdp.RdpAccountant(
        neighboring_relation=_ZERO_OUT.dp_accounting
    )
    composed.compose(
        dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(3.0), 7)
    )
    run = rdp.RdpAccountant(neighboring_relation=_ZERO_OUT.dp_accounting)
    run.compose(
        run_events.run_event(noise_multiplier=3.0, squared_sensitivity=7)
    )
    self.assertAlmostEqual(composed.get_epsilon(1e-6), run.get_epsilon(1e-6))

  def test_accepts_the_relation_by_name(self):
    self.assertEqual(
        run_events.run_event(
            noise_multiplier=1.0,
            squared_sensitivity=4,
            neighboring_relation='replace_one',
        ),
        dp_accounting.GaussianDpEvent(0.25),
    )

  def test_no_noise_is_not_private(self):
    event = run_events.run_event(noise_multiplier=0, squared_sensitivity=4)
    self.assertEqual(event, dp_accounting.NonPrivateDpEvent())

  @parameterized.parameters(
      ({'noise_multiplier': -1.0}, '^noise_multiplier=-1.0'),
      ({'noise_multiplier': math.nan}, '^noise_multiplier=nan'),
      ({'squared_sensitivity': 0}, '^squared_sensitivity=0'),
      ({'neighboring_relation': 'add'}, 'add'),
  )
  def test_names_the_argument(self, changed, message):
    arguments = {'noise_multiplier': 1.0, 'squared_sensitivity': 1, **changed}
    with self.assertRaisesRegex(ValueError, message):
      run_events.run_event(**arguments)
    with self.assertRaisesRegex(ValueError, message):
      run_events.effective_sigma(**arguments)


if __name__ == '__main__':
  absltest.main()
