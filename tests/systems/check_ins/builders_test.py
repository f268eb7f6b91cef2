# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the check-in processes: what moves the model, and what leaks."""

import collections
import functools

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats
import tensorflow as tf
import tensorflow_federated as tff

from tests.aggregators import flows
from tests.learning import small_model
from tests.systems.check_ins import runs
from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import execution
from tff_dp import learning
from tff_dp.mechanisms import randomizers
from tff_dp.systems.check_ins import check_in_events

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6
# Nothing else of a state is this number.
_LONG_WORD = 0x0123456789ABCDEF


def setUpModule():
  execution.set_default_context()


# One process of each protocol with each randomizer, for all tests that do not
# need another one. Momentum and averages are for those that look at them.
def _fixed(randomizer=runs.LOUD):
  return runs.build(
      runs.fixed(100, randomizer=randomizer), server_learning_rate=1.0
  )


def _of_arrivals(plan):
  return runs.build(
      plan(), momentum=0.9, averaging=learning.ExponentialAverage(0.5)
  )


_averaged = functools.partial(_of_arrivals, runs.averaged)
_shuffled = functools.partial(_of_arrivals, runs.shuffled)


def _sliding():
  return runs.build(runs.sliding(), momentum=0.5)


class TypesTest(parameterized.TestCase):

  @parameterized.parameters(_fixed, _averaged, _sliding, _shuffled)
  def test_client_brings_examples_and_a_key(self, build):
    data_type = build().next.type_signature.parameter[1]
    tff.test.assert_types_equivalent(
        data_type,
        tff.FederatedType(
            collections.OrderedDict(
                examples=tff.SequenceType((
                    tff.TensorType(np.float32, [None, 2]),
                    tff.TensorType(np.float32, [None]),
                )),
                key=tff.SequenceType(tff.TensorType(np.int64, [None, 2])),
            ),
            tff.CLIENTS,
        ),
    )

  @parameterized.parameters(
      _fixed, lambda: _fixed(runs.SPHERE), _shuffled
  )
  def test_only_randomized_reports_leave_a_client(self, build):
    process = build()
    is_sphere = process.plan.randomizer is runs.SPHERE
    if is_sphere:
      expected = tff.framework.FEDERATED_AGGREGATE
      report = tff.TensorType(np.int64, [3])
    else:
      expected = tff.framework.FEDERATED_SUM
      report = tff.to_type(
          collections.OrderedDict(
              total=(np.int64, [small_model.NUM_PARAMS]), num_reports=np.int32
          )
      )
    # One way out, and its value is the report, with a one to be counted: no
    # loss, no number of examples, no key.
    ((uri, sent),) = flows.to_server(process.next)
    self.assertEqual(uri, expected.uri)
    tff.test.assert_types_equivalent(sent, report)
    if not is_sphere:
      self.assertEmpty(
          flows.random_operations(
              process.next, tff.framework.FEDERATED_APPLY.uri
          )
      )

  def test_state_holds_no_key(self):
    process = _fixed()
    data = learning.client_data(small_model.client(1), runs.key(_LONG_WORD, 7))
    _, output = runs.run(process, [[data]])
    for leaf in tf.nest.flatten(output.state):
      self.assertNoCommonElements(np.ravel(leaf).tolist(), [_LONG_WORD])

  @parameterized.parameters(
      (_fixed, check_in_events.FixedWindowCheckInDpEvent),
      (_averaged, check_in_events.AveragedCheckInDpEvent),
      (_sliding, check_in_events.SlidingWindowCheckInDpEvent),
  )
  def test_process_knows_its_plan_and_event(self, build, event_type):
    process = build()
    self.assertEqual(process.event, process.plan.event())
    self.assertIsInstance(process.event, event_type)

  def test_process_keeps_the_plan_that_it_was_built_from(self):
    self.assertEqual(_fixed().plan, runs.fixed(100, randomizer=runs.LOUD))
    self.assertEqual(_shuffled().plan, runs.shuffled())


# For the three updates of each pass.
_RATES = np.array([0.5, 0.3, 0.2, 0.3, 0.1, 0.2])


@functools.cache
def _two_passes(momentum, nesterov):
  """Returns (process, models, last output) of minibatches of two slots."""
  plan = runs.plan(
      check_ins.FixedWindowCheckIn(6, slots_per_update=2), num_passes=2
  )
  process = runs.build(
      plan,
      momentum=momentum,
      nesterov=nesterov,
      averaging=learning.UniformAverage(),
      server_learning_rate=_RATES,
  )
  return process, *runs.run(process, runs.slots(1, 6) * 2)


class FixedWindowTest(parameterized.TestCase):

  @parameterized.parameters((0.0, False), (0.8, False), (0.8, True))
  @pytest.mark.slow(but=['2'])
  def test_minibatch_of_slots_is_one_step_on_their_mean(
      self, momentum, nesterov
  ):
    _, models, output = _two_passes(momentum, nesterov)
    expected, velocity = [models[0].astype(np.float64)], 0.0
    for update, rate in enumerate(_RATES):
      theta = expected[-1]
      first = 2 * (update % 3) + 1
      mean = 0.5 * sum(
          runs.gradient(theta, seed) for seed in (first, first + 1)
      )
      velocity = momentum * velocity + mean
      step = mean + momentum * velocity if nesterov else velocity
      expected += [theta, theta - rate * step]
    np.testing.assert_allclose(models, expected, atol=2e-4)
    self.assertEqual(output.metrics['finalizer']['num_updates'], 6)
    self.assertGreater(np.abs(models[-1] - models[0]).max(), 0.05)

  def test_dummy_is_a_zero_update_with_the_full_noise(self):
    # 100 slots of dummies: the sum of their reports is normal noise.
    models, _ = runs.run(_fixed(), [[runs.dummy(step)] for step in range(100)])
    reports = np.diff(models.astype(np.float64), axis=0)
    statistic = np.sum((reports / runs.LOUD.stddev) ** 2)
    self.assertBetween(
        statistic,
        stats.chi2.isf(1 - _FALSE_ALARM / 2, reports.size),
        stats.chi2.isf(_FALSE_ALARM / 2, reports.size),
    )

  def test_nothing_but_the_report_tells_a_dummy_from_a_client(self):
    process = _fixed(runs.SPHERE)
    outputs = [
        process.next(process.initialize(), [client])
        for client in (runs.client(1), runs.dummy(1))
    ]
    for output in outputs:
      self.assertEqual(output.metrics, outputs[0].metrics)
    states = [
        [
            leaf
            for name in ('distributor', 'client_work', 'aggregator')
            for leaf in tf.nest.flatten(getattr(output.state, name))
        ]
        for output in outputs
    ]
    self.assertEqual(*states)

  @parameterized.parameters(0, 2, 3)
  def test_a_step_needs_exactly_one_report(self, num_clients):
    process, _, _ = _two_passes(0.8, True)
    with self.assertRaisesRegex(Exception, 'exactly one client'):
      process.next(
          process.initialize(),
          [runs.client(seed) for seed in range(num_clients)],
      )

  def test_passes_end_with_the_plan(self):
    process, _, output = _two_passes(0.8, True)
    with self.assertRaisesRegex(Exception, 'num_rounds=12'):
      process.next(output.state, [runs.client(1)])

  @pytest.mark.slow
  def test_constraint_holds(self):
    process = runs.build(
        runs.fixed(randomizer=runs.LOUD), constraint=learning.L2Ball(0.3)
    )
    models, _ = runs.run(process, [[runs.client(1)], [runs.client(2)]])
    norms = np.linalg.norm(models, axis=1)
    self.assertAlmostEqual(norms[0], 0.3, places=5)
    self.assertLessEqual(norms.max(), 0.3 + 1e-6)

  @pytest.mark.slow
  def test_every_update_has_its_learning_rate(self):
    rates = 2.0 / np.sqrt(np.arange(1, 5))
    process = runs.build(
        runs.fixed(4),
        server_learning_rate=rates,
        constraint=learning.L2Ball(100.0),
    )
    models, _ = runs.run(process, runs.slots(1, 4))
    for step, rate in enumerate(rates):
      np.testing.assert_allclose(
          models[step + 1],
          models[step] - rate * runs.gradient(models[step], step + 1),
          atol=5e-4,
      )

  def test_average_counts_each_model_once(self):
    process, models, output = _two_passes(0.8, True)
    average = process.get_averaged_model_weights(output.state)
    np.testing.assert_allclose(
        small_model.flat(average), np.mean(models[:-1:2], axis=0), atol=1e-6
    )


class SlidingWindowTest(absltest.TestCase):

  def test_warm_up_makes_no_update(self):
    process = _sliding()
    steps = [[], [runs.client(9)]] + runs.slots(1, 4)
    models, output = runs.run(process, steps)
    np.testing.assert_array_equal(models[1], models[0])
    # Whatever comes in the warm-up is not used, then or later.
    np.testing.assert_array_equal(models[2], models[0])
    self.assertEqual(output.metrics['finalizer']['num_updates'], 4)
    without, _ = runs.run(process, [[], []] + steps[2:])
    np.testing.assert_allclose(without, models, atol=1e-5)
    np.testing.assert_allclose(
        models[3], models[0] - 0.5 * runs.gradient(models[0], 1), atol=1e-4
    )

  def test_after_the_warm_up_a_gap_is_refused(self):
    with self.assertRaisesRegex(Exception, 'exactly one client'):
      runs.run(_sliding(), [[], [], []])


class ArrivalsTest(parameterized.TestCase):

  @parameterized.parameters(_averaged, _shuffled)
  @pytest.mark.slow(cases=['0'])
  def test_mean_over_those_that_arrived(self, build):
    models, output = runs.run(
        build(), [[runs.client(1)], [runs.client(seed) for seed in (2, 3, 4)]]
    )
    self.assertEqual(output.metrics['aggregator']['num_reports'], 3)
    velocity = 0.9 * runs.gradient(models[0], 1) + np.mean(
        [runs.gradient(models[1], seed) for seed in (2, 3, 4)], axis=0
    )
    np.testing.assert_allclose(
        models[2], models[1] - 0.5 * velocity, atol=1e-4
    )

  @parameterized.parameters(_averaged, _shuffled)
  @pytest.mark.slow(cases=['0'])
  def test_empty_step_moves_neither_model_nor_momentum_nor_average(self, build):
    process = build()
    state = process.next(process.initialize(), [runs.client(1)]).state
    output = process.next(state, [])
    velocity = state.finalizer['optimizer']['velocity'][0]
    self.assertGreater(np.abs(velocity).max(), 0)
    for name in ('optimizer', 'averaging', 'num_updates', 'collected'):
      for before, after in zip(
          tf.nest.flatten(state.finalizer[name]),
          tf.nest.flatten(output.state.finalizer[name]),
      ):
        np.testing.assert_array_equal(before, after)
    for before, after in zip(
        process.get_model_weights(state).trainable,
        process.get_model_weights(output.state).trainable,
    ):
      np.testing.assert_array_equal(before, after)
    self.assertEqual(output.metrics['aggregator']['num_reports'], 0)
    self.assertEqual(output.state.client_work['round'], 2)

  def test_mean_over_a_constant(self):
    process = runs.build(runs.shuffled(), divisor=8.0)
    models, _ = runs.run(process, [[runs.client(1), runs.client(2)], []])
    expected = models[0] - 0.5 / 8 * sum(
        runs.gradient(models[0], seed) for seed in (1, 2)
    )
    np.testing.assert_allclose(models[1], expected, atol=1e-4)
    np.testing.assert_array_equal(models[2], models[1])

  @parameterized.parameters(runs.LOUD, runs.SPHERE)
  @pytest.mark.slow
  def test_order_of_the_clients_changes_no_bit(self, randomizer):
    process = runs.build(runs.shuffled(6, randomizer))
    clients = [runs.client(seed) for seed in range(1, 5)]
    models, _ = runs.run(process, [clients])
    for order in ([3, 1, 0, 2], [2, 3, 1, 0]):
      permuted, _ = runs.run(process, [[clients[i] for i in order]])
      np.testing.assert_array_equal(permuted, models)


class NoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      _fixed, lambda: _fixed(runs.SPHERE), _shuffled
  )
  def test_retried_step_repeats_the_report_and_another_does_not(self, build):
    process = build()
    state = process.initialize()
    first, second, other = (
        small_model.flat(
            process.get_model_weights(process.next(state, [client]).state)
        )
        for client in (
            runs.client(1),
            runs.client(1),
            learning.client_data(small_model.client(1), runs.key(1, 8)),
        )
    )
    np.testing.assert_array_equal(first, second)
    self.assertTrue(np.any(first != other))

  def test_same_client_has_other_noise_in_the_next_step(self):
    # Dummies with one key, so that only the step differs.
    models, _ = runs.run(_fixed(), [[runs.dummy()]] * 3)
    self.assertLen(np.unique(np.diff(models, axis=0)), 15)

  def test_update_that_is_not_finite_is_randomized_as_zero(self):
    process = _shuffled()
    examples = [(np.full([2, 2], np.nan, np.float32), np.ones(2, np.float32))]
    bad, output = runs.run(
        process, [[learning.client_data(examples, runs.key(3, -1))]]
    )
    dummy, _ = runs.run(process, [[runs.dummy(3)]])
    np.testing.assert_array_equal(bad, dummy)
    self.assertEqual(output.metrics['aggregator']['num_reports'], 1)

  @parameterized.parameters((0, 1), (2, 1), (2, 2))
  def test_exactly_one_key_is_needed(self, num_keys, batch_size):
    process = _shuffled()
    data = runs.client(1)
    keys = tf.data.Dataset.from_tensors(runs.key(1, 1)).repeat(num_keys)
    data['key'] = keys.batch(batch_size)
    with self.assertRaisesRegex(Exception, 'exactly one key'):
      process.next(process.initialize(), [data])

  @parameterized.parameters(
      (np.array([1, 2], np.int32),),
      (np.array([1], np.int64),),
      (np.array([1.0, 2.0]),),
  )
  def test_bad_keys_are_refused_and_not_shown(self, key):
    with self.assertRaisesRegex(_checks.ArgumentError, '128 secret bits'):
      learning.client_data([], key)


class RefusalsTest(parameterized.TestCase):

  def test_protocols_have_their_builders(self):
    model = small_model.build()
    for builder, plan, allowed in (
        (check_ins.build_check_in_sgd, runs.shuffled(), 'FixedWindowCheckIn'),
        (check_ins.build_shuffled_check_in_sgd, runs.fixed(), 'ShuffledCheckIn'),
        (
            functools.partial(
                allocation.build_allocation_sgd, clients_per_slot=2
            ),
            runs.fixed(),
            'RandomAllocation',
        ),
    ):
      with self.assertRaisesRegex(_checks.ArgumentError, allowed):
        builder(model, plan, server_learning_rate=0.1)

  def test_a_plan_with_noise_at_the_server_is_refused(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'a CheckInPlan with'):
      check_ins.build_check_in_sgd(
          small_model.build(), runs.allocation(), server_learning_rate=0.1
      )

  def test_randomizers_of_categories_are_refused(self):
    plan = runs.fixed()
    object.__setattr__(plan, 'randomizer', randomizers.RandomizedResponse(1.0))
    with self.assertRaisesRegex(_checks.ArgumentError, 'HistogramFactory'):
      runs.build(plan)

  @parameterized.parameters(
      (dict(server_learning_rate=0.0), 'server_learning_rate=0.0'),
      (dict(server_learning_rate=[0.1] * 5), '6 finite numbers above 0'),
      (dict(server_learning_rate=[0.1, 0, 1, 1, 1, 1]), '6 finite numbers'),
      (dict(momentum=1.0), 'momentum=1.0'),
      (dict(averaging='mean'), 'averaging='),
  )
  def test_bad_arguments_are_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      runs.build(runs.fixed(), **changes)

  def test_bad_divisor_is_named(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'divisor=0'):
      runs.build(runs.shuffled(), divisor=0)


class NativeTest(absltest.TestCase):

  @pytest.mark.reference_only(reason="needs TFF's worker")
  def test_reports_are_those_of_the_native_context(self):
    # Dummies, because trained updates may differ in their last digit, which
    # changes all of the noise.
    for randomizer in (runs.LOUD, runs.SPHERE):
      process = _fixed(randomizer)
      steps = [[runs.dummy(1)], [runs.dummy(2)]]
      here, _ = runs.run(process, steps)
      with execution.create_native_context():
        native, _ = runs.run(process, steps + [[runs.client(1)]])
      np.testing.assert_allclose(native[:-1], here, atol=1e-6)
      self.assertGreater(np.abs(native[-1] - native[-2]).max(), 0.0)


if __name__ == '__main__':
  absltest.main()
