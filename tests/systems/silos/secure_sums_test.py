# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One pass through secure sums: what is opened, blocks, and what is refused."""

import functools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff

from tests.aggregators import flows
from tests.systems.silos import quadratic
from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.systems.silos import integer_noise
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import minibatch_schedules

_SIZE = quadratic.SIZE
_CLIP = 20.0
_NAMES = ('a', 'b', 'c')


def setUpModule():
  execution.set_default_context()


def _build(model=None, **changes):
  return silos.build_secure_sum_sgd(
      model or quadratic.model(),
      **dict(
          num_records={'a': 21, 'b': 21, 'c': 25},
          num_rounds=quadratic.ROUNDS,
          l2_norm_clip=_CLIP,
          epsilon=3.0,
          delta=1e-3,
          min_silos=2,
          gamma=2.0,
      )
      | changes,
  )


_process = functools.cache(_build)


@functools.cache
def _almost_free():
  """Returns the process with a fine grid and next to no noise."""
  # At such an epsilon, what the tables of the draws miss has no bound.
  of_law = lambda epsilon_at, delta, distance: epsilon_at(delta)
  with mock.patch.object(integer_plans, 'counted', of_law):
    return _build(epsilon=1e8, delta=0.1, grid=1 << 14)


def _data(names=('a', 'b')):
  rows = quadratic.records()
  rows['c'] = np.concatenate([rows['a'] + 1.0, np.full([4, _SIZE], 1e6)])
  return {name: toy.examples(rows[name]) for name in names}


class ProcessTest(parameterized.TestCase):

  def test_is_accelerated_sgd_on_the_mean_gradient_of_disjoint_blocks(self):
    process = _almost_free()
    # The noise of one silo on the mean of three records, next to steps of 1.
    plan = process.plan.sums
    stddev = math.sqrt(plan.noise_variance(_CLIP, num_silos=2))
    self.assertLess(stddev, 1e-3)
    ledger, state = process.plan.ledger(delta=1e-3), process.initialize()
    records = quadratic.records()
    rounds = quadratic.ROUNDS
    coefficients = minibatch_schedules.accelerated_coefficients(
        rounds, gamma=2.0, strong_convexity=0.0
    )
    w = w_ag = quadratic.START
    for r in range(rounds):
      row = {
          name: column[r] for name, column in coefficients._asdict().items()
      }
      w_md = row['md_of_ag'] * w_ag + row['md_of_w'] * w
      np.testing.assert_allclose(
          toy.flat(state.global_model_weights), w_md, atol=40 * stddev
      )
      gradient = quadratic.gradient(records, r, w_md)
      w = (
          row['w_of_md'] * w_md
          + row['w_of_w'] * w
          - row['w_of_gradient'] * gradient
      )
      w_ag = row['ag_of_w'] * w + (1 - row['ag_of_w']) * w_ag
      state = process.next_round(state, _data(), ledger=ledger).state
      np.testing.assert_allclose(
          toy.flat(process.get_model_weights(state)), w_ag, atol=40 * stddev
      )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'beyond the plan of 7 rounds'
    ):
      process.next_round(state, _data(), ledger=ledger)

  def test_noise_that_is_opened_is_that_of_the_promise(self):
    size = 1500
    rows = np.zeros([6, size])
    process = _build(
        toy.build_model(size),
        num_records={'a': 6, 'b': 6},
        num_rounds=2,
        l2_norm_clip=1.0,
        epsilon=1.0,
        delta=1e-4,
        grid=8,
    )
    data = {name: toy.examples(rows) for name in ('a', 'b')}
    state = process.next_round(
        process.initialize(), data, ledger=process.plan.ledger(delta=1e-3)
    ).state
    # Round 1 of AC-SA: w_ag = w = -g / (2 gamma), here -g / 4. The middle of a
    # grid of 8 steps is on it, so that nothing is rounded.
    gradient = -4.0 * toy.flat(process.get_model_weights(state)).astype(float)
    variance = process.plan.sums.noise_variance(1.0, num_silos=2)
    self.assertAlmostEqual(
        np.mean(gradient**2) / variance, 1.0, delta=6 * math.sqrt(2 / size)
    )
    # In steps of the grid the sum has the noise that is accounted: enough for
    # a record's distance, by a Gaussian of the same variance.
    steps = np.std(gradient) * 6 / (2 / 8)
    distance = integer_noise.rounded_l2_distance(8, dimension=size)
    self.assertGreater(steps, 3.0 * distance)

  def test_only_sums_of_integers_leave_a_silo(self):
    sent = [
        (uri, str(type_spec))
        for uri, type_spec in flows.to_server(_process().next)
    ]
    self.assertEqual(
        set(sent),
        {
            ('federated_secure_sum_bitwidth', f'int64[{_SIZE}]'),
            (tff.framework.FEDERATED_SUM.uri, 'int32'),
        },
    )
    self.assertEmpty(
        flows.random_operations(
            _process().next, tff.framework.FEDERATED_APPLY.uri
        )
    )

  @parameterized.parameters(
      (integer_plans.SkellamPlan, {}),
      (
          integer_plans.DiscreteGaussianPlan,
          dict(noise='discrete-gaussian', grid=16),
      ),
  )
  def test_guarantee_is_within_the_budget(self, kind, changes):
    plan = toy.plan_of(lambda: _build(**changes))
    self.assertIsInstance(plan.sums, kind)
    self.assertEqual(plan.sums.records_per_silo, 3)
    epsilon = plan.epsilon(delta=1e-3)
    self.assertBetween(epsilon, 2.8, 3.0)
    self.assertGreater(plan.silo_epsilon(delta=1e-3), epsilon)
    self.assertEqual({plan.messages(name).size for name in _NAMES}, {7})


class BadInputTest(parameterized.TestCase):

  def test_fewer_silos_than_promised_are_refused_and_pay_nothing(self):
    process = _process()
    ledger, state = process.plan.ledger(delta=1e-3), process.initialize()
    for names in ((), ('a',)):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'below the promised 2'
      ):
        process.next_round(state, _data(names), ledger=ledger)
    self.assertEqual(ledger.rounds_recorded, 0)
    # Without books the computation itself refuses to decode.
    with self.assertRaisesRegex(Exception, 'fewer than 2 silos'):
      process.next(
          state, [process.client_data('a', _data(('a',))['a'])]
      )

  def test_rewinding_is_refused_and_a_failed_round_can_be_skipped(self):
    process = _process()
    ledger, start = process.plan.ledger(delta=1e-3), process.initialize()
    short = _data() | {'b': toy.examples(np.zeros([20, _SIZE]))}
    with self.assertRaisesRegex(Exception, 'another number of records'):
      process.next_round(start, short, ledger=ledger)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'done 0 rounds, and the ledger has 1'
    ):
      process.next_round(start, _data(), ledger=ledger)
    state = process.skip_round(start)
    # Silo b has disappeared; c takes its place.
    state = process.next_round(state, _data(('a', 'c')), ledger=ledger).state
    self.assertEqual(state.client_work['round'], 2)
    # Its block is used up, and c was not in the round that failed.
    self.assertEqual(
        [ledger.plan.messages(n, num_rounds=2).size for n in _NAMES], [2, 1, 1]
    )
    self.assertLessEqual(ledger.epsilon_after(2), 3.0)

  def test_a_silo_that_has_agreed_to_more_noise_refuses(self):
    weak, strong = _almost_free(), _process()
    data = [
        strong.client_data(name, part) for name, part in _data().items()
    ]
    with self.assertRaisesRegex(Exception, 'less noise than this silo'):
      weak.next(weak.initialize(), data)

  @parameterized.parameters(
      (dict(num_rounds=22), "at most 21, the records of silo 'a'"),
      (dict(num_rounds=0), 'num_rounds=0'),
      (dict(num_records={}), 'num_records='),
      (dict(min_silos=4), 'min_silos=4'),
      (dict(min_silos=0), 'min_silos=0'),
      (dict(epsilon=0.0), 'epsilon=0.0'),
      (dict(delta=0.0), 'delta=0.0'),
      (dict(noise='laplace'), "noise='laplace'"),
      (dict(grid=0), 'grid=0'),
      (dict(l2_norm_clip=0.0), 'l2_norm_clip=0.0'),
      (dict(gamma=None), 'exactly one of gamma and stages'),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _build(**changes)


if __name__ == '__main__':
  absltest.main()
