# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the plan of Poisson sampling, beside accountants that are not ours."""

import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
from dp_accounting import pld
import numpy as np
from scipy import optimize

import tff_dp
from tff_dp import _checks
from tff_dp import mechanisms
from tff_dp import plans
from tff_dp.accounting import accountants
from tff_dp.accounting.curves import gaussian
from tff_dp.systems.sampling import plan as plan_lib

_DELTA = 1e-5
_ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
# Rates over 1000, noise multipliers and rounds: the corners, and between them.
_GRID = (
    (1, 10.0, 1), (1, 0.4, 10_000), (1, 10.0, 10_000), (3, 1.0, 1000),
    (30, 0.6, 100), (100, 0.4, 1), (100, 0.4, 10_000), (100, 3.0, 300),
    (500, 10.0, 1), (500, 1.0, 1000), (999, 10.0, 10_000), (1000, 0.4, 1),
    (1000, 10.0, 10_000),
)
# (members, population, noise, rounds, lower end, upper end) of the PRV accountant
# of Opacus 1.6.0 at delta 1e-5, with torch 2.13.0:
#   prv = PRVAccountant(); prv.history = [(noise, q, rounds)]
#   prv._get_dprv(eps_error=0.01, delta_error=1e-8).compute_epsilon(
#       1e-5, 1e-8, 0.01)
_OPACUS = (
    (100, 3400, 1.0, 200, 2.738457, 2.758879),
    (1, 10, 2.0, 100, 2.327249, 2.347555),
    (1, 2, 4.0, 100, 5.858414, 5.879029),
    (1, 100, 1.0, 1000, 1.818108, 1.838372),
    (250, 60000, 1.1, 4800, 1.290908, 1.311083),
    (1, 1000, 0.6, 1000, 1.41498, 1.43555),
    (1, 100, 0.5, 30, 5.115341, 5.136428),
    (1, 10, 10.0, 10000, 4.386122, 4.406592),
    (1, 1, 10.0, 10, 1.189297, 1.209452),
)


def _plan(members=100, noise=1.0, rounds=200, population=3400, **changes):
  return tff_dp.SamplingPlan(
      population=population,
      clients_per_round=members,
      num_rounds=rounds,
      noise_multiplier=noise,
      **changes,
  )


def _theirs(event, interval, delta=_DELTA) -> float:
  accountant = pld.PLDAccountant(_ADD_OR_REMOVE, interval)
  return accountant.compose(event).get_epsilon(delta)


class EpsilonTest(parameterized.TestCase):

  def test_published_setting(self):
    self.assertAlmostEqual(_plan().epsilon(delta=_DELTA), 2.7487, delta=1e-4)

  @parameterized.parameters(*_GRID)
  def test_it_is_that_of_dp_accounting(self, members, noise, rounds):
    plan = _plan(members, noise, rounds, population=1000)
    found = plan.epsilon(delta=_DELTA)
    plain = plan.epsilon_no_amplification(delta=_DELTA)
    if members < 1000:
      # pylint: disable-next=protected-access
      parts = accountants._parts(plan.event(), 'pld', plan.neighboring_relation)
      interval = accountants._interval(parts)  # pylint: disable=protected-access
      least = min(_theirs(plan.event(), interval), plain)
      # Ours also counts the rounding errors of their sums, as a part of delta.
      lost = 3e-14 + 5.1e-16 * rounds
      most = min(_theirs(plan.event(), interval, _DELTA - lost), plain)
      if found == math.inf:  # No draws have tails that far.
        self.assertGreater(least, 300)
      else:
        self.assertBetween(found, least, most * (1 + 1e-9))
        self.assertAlmostEqual(found / least, 1, delta=4e-9 + 2.5e-11 * rounds)
    else:
      exact = gaussian.exact_epsilon(
          sigma=noise / math.sqrt(rounds), delta=_DELTA
      )
      self.assertIn(found, (exact, math.inf))

  @parameterized.parameters(*_OPACUS)
  def test_it_is_in_the_interval_of_opacus(
      self, members, population, noise, rounds, lowest, highest
  ):
    plan = _plan(members, noise, rounds, population)
    self.assertBetween(
        plan.epsilon(delta=_DELTA), lowest, highest
    )

  @parameterized.parameters((0.3, 1.0, 2), (0.5, 2.0, 1))
  def test_it_is_that_of_numerical_integration(self, rate, noise, rounds):
    plan = _plan(round(100 * rate), noise, rounds, population=100)
    exact = _integrated(rate, noise, rounds, delta=1e-3)
    self.assertBetween(
        plan.epsilon(delta=1e-3), exact * (1 - 1e-4), exact * (1 + 2e-3)
    )

  def test_sampling_never_costs(self):
    for members in (3399, 3400):
      plan = _plan(members, rounds=1)
      self.assertLessEqual(
          plan.epsilon(delta=_DELTA),
          plan.epsilon_no_amplification(delta=_DELTA),
      )

  def test_with_hardly_any_noise_nothing_is_claimed(self):
    # A file of a stranger may ask for it. The grid would take minutes.
    plan = _plan(1, 0.05, 10**7, 10**9)
    self.assertEqual(
        plan.epsilon(delta=_DELTA), plan.epsilon_no_amplification(delta=_DELTA)
    )

  def test_without_sampling_a_client_is_in_every_round(self):
    plan = _plan(noise=40.0)
    every_round = gaussian.exact_epsilon(
        sigma=40 / math.sqrt(200), delta=_DELTA
    )
    self.assertEqual(
        plan.epsilon_no_amplification(delta=_DELTA), every_round
    )
    headline = plan.headline(delta=_DELTA)
    self.assertEqual(headline['epsilon_no_amplification'], every_round)
    self.assertLen(headline['assumptions'], 3)
    everybody = _plan(3400, noise=40.0)
    self.assertEqual(everybody.epsilon(delta=_DELTA), every_round)
    self.assertEmpty(everybody.headline(delta=_DELTA)['assumptions'])

  def test_replace_one_is_above_zero_out(self):
    plan, one = _plan(), 'replace_one'
    zeroed = plan.epsilon(delta=_DELTA)
    found = plan.epsilon(delta=_DELTA, neighboring_relation=one)
    self.assertBetween(found, 1.2 * zeroed, 2.2 * zeroed)
    plain = plan.epsilon_no_amplification(
        delta=_DELTA, neighboring_relation=one
    )
    self.assertEqual(
        plain,
        gaussian.exact_epsilon(sigma=0.5 / math.sqrt(200), delta=_DELTA),
    )

  def test_a_stopped_run_costs_less(self):
    plan = _plan()
    found = [
        plan.epsilon_after(rounds, delta=_DELTA) for rounds in (1, 50, 199, 200)
    ]
    self.assertEqual(found, sorted(found))
    self.assertLess(found[0], 0.5 * found[-1])
    self.assertGreaterEqual(found[1], plan.epsilon(delta=_DELTA, num_rounds=50))

  def test_calibrated_noise_is_the_least(self):
    plan = _plan().calibrated(epsilon=2.0, delta=_DELTA)
    self.assertBetween(plan.epsilon(delta=_DELTA), 2.0 * (1 - 1e-3), 2.0)
    one = dict(delta=_DELTA, neighboring_relation='replace_one')
    plan = _plan(3400).calibrated(epsilon=2.0, **one)
    self.assertBetween(plan.epsilon(**one), 2.0 * (1 - 1e-3), 2.0)

  def test_without_noise_there_is_no_privacy(self):
    plan = _plan(noise=0.0)
    self.assertEqual(plan.epsilon(delta=_DELTA), math.inf)
    self.assertNotEmpty(plan.voids)
    self.assertIsInstance(plan.event(), dp_accounting.NonPrivateDpEvent)


class PlanTest(parameterized.TestCase):

  def test_event(self):
    self.assertEqual(
        _plan().event(num_rounds=7),
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(
                100 / 3400, dp_accounting.GaussianDpEvent(1.0)
            ),
            7,
        ),
    )

  def test_adaptive_clipping_costs_no_privacy(self):
    plan = _plan(adaptive_clipping=mechanisms.AdaptiveClipping())
    self.assertEqual(plan.event(), _plan().event())
    both = plan.noise_multiplier_by_domain.values()
    self.assertAlmostEqual(sum(noise**-2 for noise in both), 1.0)
    again = plans.from_description(
        json.loads(json.dumps(plan.describe()))
    )
    self.assertEqual(again, plan)

  @parameterized.named_parameters(
      ('cohort', dict(members=3401), 'clients_per_round'),
      ('population', dict(population=0), 'population'),
      ('rounds', dict(rounds=0), 'num_rounds'),
      ('noise', dict(noise=-1.0), 'noise_multiplier'),
      ('unit', dict(unit='record'), 'unit'),
      ('clip', dict(l2_norm_clip=0.0), 'l2_norm_clip'),
      ('adaptive', dict(adaptive_clipping=True), 'adaptive_clipping=True'),
  )
  def test_bad_arguments(self, changes, name):
    with self.assertRaisesRegex(_checks.ArgumentError, name):
      _plan(**changes)

  def test_noise_must_be_known(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'noise_multiplier'):
      _plan(noise=None).epsilon(delta=_DELTA)

  def test_delta_is_compared_with_the_population(self):
    for unit in plan_lib.UNITS:
      warnings = _plan(unit=unit).headline(delta=1e-3)['warnings']
      self.assertLen([w for w in warnings if f'one random {unit}' in w], 1)


def _integrated(rate, noise, rounds, *, delta) -> float:
  """Returns epsilon of the two-point mixture by numerical integration.

  Of one round on a fine line, of two rounds on a square.

  Args:
    rate: Sampling rate q.
    noise: Standard deviation of the noise.
    rounds: 1 or 2.
    delta: Target delta.
  """
  x = np.linspace(-9 * noise, 1 + 9 * noise, 1001)
  normal = lambda centre: np.exp(-((x - centre) ** 2) / 2 / noise**2)
  without = normal(0) / normal(0).sum()
  present = (1 - rate) * normal(0) / normal(0).sum()
  present = present + rate * normal(1) / normal(1).sum()
  if rounds == 2:
    without = np.outer(without, without).ravel()
    present = np.outer(present, present).ravel()

  def delta_at(epsilon):
    return max(
        np.maximum(first - math.exp(epsilon) * other, 0).sum()
        for first, other in ((present, without), (without, present))
    )

  return optimize.brentq(lambda e: delta_at(e) - delta, 1e-3, 50)


if __name__ == '__main__':
  absltest.main()
