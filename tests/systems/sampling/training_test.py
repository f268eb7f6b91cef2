# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of training under Poisson sampling."""

import functools
import json
import pathlib
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tff_dp
import pytest
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import kills
from tff_dp import _checks
from tff_dp import execution
from tff_dp import export
from tff_dp import mechanisms
from tff_dp import program
from tff_dp.aggregators import correlated_noise
from tff_dp.export import verification
from tff_dp.files import write_ahead
from tff_dp.program import results
from tff_dp.systems.sampling import training

_PLAN = tff_dp.SamplingPlan(
    population=6, clients_per_round=2, num_rounds=5, noise_multiplier=4.0
)
_SGD = tff.learning.optimizers.build_sgdm(0.1)


def setUpModule():
  execution.set_default_context()


def _clients(population=6):
  return tff.simulation.datasets.ClientData.from_clients_and_tf_fn(
      [f'client{number}' for number in range(population)],
      lambda name: small_model.client(0),
  )


def _build(aggregator):
  return tff.learning.algorithms.build_unweighted_fed_avg(
      small_model.build(), _SGD, model_aggregator=aggregator
  )


@functools.cache
def _process():
  return _build(_PLAN.aggregator())


class TrainingTest(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    self.folder = pathlib.Path(self.create_tempdir().full_path)

  def _train(self, process=None, clients=None, **changes):
    options = dict(delta=1e-5, progress='quiet', output_dir=self.folder)
    return program.train(
        process or _process(), clients or _clients(), **options | changes
    )

  def test_it_stops_at_the_budget_and_goes_on(self):
    budget = _PLAN.epsilon(delta=1e-5, num_rounds=4)
    found = self._train(epsilon_budget=budget, total_rounds=2)
    self.assertEqual(found.rounds_done, 2)
    found = self._train(epsilon_budget=budget)
    self.assertEqual((found.rounds_done, found.stop_reason), (4, results.BUDGET))
    self.assertAlmostEqual(found.epsilon, budget)
    said = found.statement.to_json()['points']
    self.assertIn('Poisson', said['amplification']['claimed'])
    # What is released says nothing about who or how many came.
    released = (self.folder / 'release' / 'metrics.csv').read_text()
    self.assertNotIn('realised', released)
    # Metrics of clients without noise tell who came. They are kept nowhere.
    for path in self.folder.rglob('*metrics*'):
      self.assertNotIn('num_clients', path.read_text(), path)
    self.assertNotIn('num_clients', str(found.metrics))
    events = json.loads((self.folder / 'release' / 'events.json').read_text())
    self.assertEqual(events['events'][0]['rounds'], 4)
    exported = self.folder / 'bundle'
    export.export_bundle(self.folder, output=exported)
    self.assertEmpty(verification.failed(export.verify_bundle(exported)))

  def test_a_loop_whose_client_failed_draws_the_same_clients_again(self):
    asked, is_torn = [], []

    class Clients:
      client_ids = _clients().client_ids

      def create_tf_dataset_for_client(self, client_id):
        asked.append(client_id)
        if is_torn:
          raise ValueError('an empty cell')
        return small_model.client(0)

    with program.Loop(
        _process(), Clients(), delta=1e-5, output_dir=self.folder
    ) as loop:
      asked.clear()
      is_torn.append(True)
      with self.assertRaisesRegex(ValueError, 'an empty cell'):
        while True:
          loop.next()  # Some rounds are empty.
      is_torn.clear()
      # Who was drawn is secret, and cannot be chosen.
      self.assertIsNone(loop.required_cohort)
      loop.next()
    self.assertEqual(asked[1], asked[0])

  @pytest.mark.slow
  def test_rounds_that_were_cut_off_have_the_same_cohorts_again(self):
    options = dict(checkpoint_every=5)
    begin = kills.at_call(write_ahead.WriteAheadRecord.begin, 3, is_after=True)
    with mock.patch.object(write_ahead.WriteAheadRecord, 'begin', begin):
      with self.assertRaises(kills.Killed):
        self._train(**options)
    # The record refuses another cohort for a round that has begun.
    self.assertEqual(self._train(**options).rounds_done, 5)

  @parameterized.named_parameters(
      (
          'noise_on_the_mean',
          # Noise that is right for a mean of two is half as much on the sum.
          lambda: correlated_noise.CorrelatedNoiseFactory(
              _PLAN.mechanism,
              noise_multiplier=_PLAN.noise_multiplier / 2,
              l2_norm_clip=1.0,
              clients_per_round=2,
          ),
          'other noise',
      ),
      (
          'another_divisor',
          lambda: correlated_noise.CorrelatedNoiseFactory(
              _PLAN.mechanism,
              noise_multiplier=_PLAN.noise_multiplier,
              l2_norm_clip=1.0,
              clients_per_round=3,
          ),
          'divides by clients_per_round=3',
      ),
      (
          'the_realised_cohort',
          lambda: _ByCohort(_PLAN.aggregator()),
          'without',
      ),
      (
          'no_noise',
          lambda: tff.aggregators.UnweightedMeanFactory(),
          'no noise of a plan',
      ),
  )
  @pytest.mark.slow(cases=['another_divisor'])
  def test_other_processes_are_refused(self, aggregator, what):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, what):
      self._train(_build(aggregator()), plan=_PLAN)

  def test_a_cohort_from_elsewhere_is_refused(self):
    with program.Loop(
        _process(), _clients(), delta=1e-5, output_dir=self.folder
    ) as loop:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'cannot be chosen'
      ):
        loop.next(['client0', 'client1'])
      with self.assertRaises(_checks.PrivacyRefusedError):
        loop.eligible()
      loop.next()
      self.assertEqual(loop.rounds_done, 1)

  def test_population_and_seed_are_those_of_the_plan(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'population of the plan'):
      self._train(clients=_clients(7))
    with self.assertRaisesRegex(_checks.ArgumentError, 'follow from no public'):
      self._train(schedule_seed=1)

  def test_cohorts_vary_and_resume(self):
    cohorts = training.SampledCohorts(_PLAN, _clients())
    cohorts.begin('run')
    first = [cohorts.select(number).ids for number in (1, 2, 3)]
    saved = cohorts.to_bytes()
    rest = [cohorts.select(number).ids for number in range(4, 40)]
    self.assertGreater(len({len(ids) for ids in first + rest}), 2)
    other = training.SampledCohorts(_PLAN, _clients())
    other.restore(saved)
    self.assertEqual(
        [other.select(number).ids for number in range(4, 40)], rest
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'round_index'):
      other.select(4)

  def test_nothing_is_kept_of_who_came_or_how_many(self):
    cohorts = training.SampledCohorts(_PLAN, _clients())
    cohorts.begin('run')
    found = [cohorts.select(number) for number in range(1, 40)]
    self.assertGreater(len({len(each.ids) for each in found}), 2)
    for each in found:
      self.assertEqual(each.released, {'cohort_assumed': 2})
      self.assertEqual(each.not_covered, {})
    self.assertFalse(cohorts.keeps_client_metrics)

  def test_every_run_has_secret_coins_of_its_own(self):
    drawn = set()
    for _ in range(2):
      cohorts = training.SampledCohorts(_PLAN, _clients())
      # The name of a run is no secret.
      cohorts.begin('run')
      drawn.add(str([cohorts.select(number).ids for number in range(1, 40)]))
    self.assertLen(drawn, 2)


class AggregatorTest(parameterized.TestCase):

  def test_the_divisor_is_the_expected_cohort(self):
    quiet = tff_dp.SamplingPlan(
        population=6, clients_per_round=2, num_rounds=5, noise_multiplier=1e-6
    )
    process = quiet.aggregator().create(tff.TensorType(np.float32, [2]))
    value = np.array([0.5, 0.25], np.float32)
    for num_clients in (0, 1, 3):
      output = process.next(process.initialize(), [value] * num_clients)
      np.testing.assert_allclose(
          output.result, num_clients * value / 2, atol=1e-4
      )

  def test_noise_is_on_the_sum(self):
    plan = tff_dp.SamplingPlan(
        population=40, clients_per_round=4, num_rounds=1, noise_multiplier=3.0,
        l2_norm_clip=0.5,
    )
    process = plan.aggregator().create(tff.TensorType(np.float32, [20_000]))
    # An empty round has the noise too.
    released = process.next(process.initialize(), []).result
    self.assertAlmostEqual(released.std() / (3.0 * 0.5 / 4), 1.0, delta=0.03)

  def test_clip_norm_may_adapt(self):
    plan = tff_dp.SamplingPlan(
        population=6, clients_per_round=2, num_rounds=5, noise_multiplier=1e-6,
        adaptive_clipping=mechanisms.AdaptiveClipping(learning_rate=1.0),
    )
    process = plan.aggregator().create(tff.TensorType(np.float32, [2]))
    state, norms = process.initialize(), []
    for _ in range(3):
      output = process.next(state, [np.zeros(2, np.float32)] * 2)
      state = output.state
      norms.append(float(output.measurements['clip_norm']))
    self.assertEqual(norms, sorted(norms, reverse=True))
    self.assertLess(norms[-1], norms[0])


class _ByCohort(tff.aggregators.UnweightedAggregationFactory):
  """Divides the noised mean by the number of clients that came."""

  def __init__(self, inner):
    self._inner = inner

  def create(self, value_type):
    inner = self._inner.create(value_type)

    @tff.tensorflow.computation(value_type, np.float32)
    def divide(result, count):
      return tf.nest.map_structure(
          lambda part: tf.math.divide_no_nan(part, count), result
      )

    @tff.federated_computation(*inner.next.type_signature.parameter)
    def next_fn(state, value):
      output = inner.next(state, value)
      count = tff.federated_sum(tff.federated_value(np.float32(1), tff.CLIENTS))
      return tff.templates.MeasuredProcessOutput(
          output.state,
          tff.federated_map(divide, (output.result, count)),
          output.measurements,
      )

    return tff.templates.AggregationProcess(inner.initialize, next_fn)


if __name__ == '__main__':
  absltest.main()
