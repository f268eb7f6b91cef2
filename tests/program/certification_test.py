# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of which processes may be trained under a plan, and which may not."""

import collections
import contextlib
import dataclasses
import io
import json
import math
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tff_dp
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.learning.silos import quadratic
from tff_dp import _checks
from tff_dp import aggregators
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import program
from tff_dp.learning import silos
from tff_dp.mechanisms import randomizers
from tff_dp.program import certification
from tff_dp.program.display import plots

_NUM_ROUNDS = 4
_SGD = tff.learning.optimizers.build_sgdm(0.1)
_weighted = tff.aggregators.as_weighted_aggregator
_algorithms = tff.learning.algorithms


def setUpModule():
  execution.set_default_context()


def _plan(**changes) -> tff_dp.PrivacyPlan:
  return small_model.build_plan(
      mechanisms.HonakerTree(_NUM_ROUNDS), **changes
  )


def _adaptive_plan() -> tff_dp.PrivacyPlan:
  return small_model.build_plan(
      mechanisms.Tree(_NUM_ROUNDS, restart_every=2),
      adaptive_clipping=mechanisms.AdaptiveClipping(target_quantile=0.5),
  )


def _fed_avg(aggregator=None):
  return _algorithms.build_unweighted_fed_avg(
      small_model.build(), _SGD, model_aggregator=aggregator
  )


def _variable_model() -> tff.learning.models.VariableModel:
  return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
          [tf.keras.layers.Dense(1, input_shape=(2,), name='only')]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(
          tf.TensorSpec([None, 2], tf.float32),
          tf.TensorSpec([None, 1], tf.float32),
      ),
  )


def _reconstruction_model() -> tff.learning.models.ReconstructionModel:
  inputs = tf.keras.Input([2])
  shared = tf.keras.layers.Dense(3)
  own = tf.keras.layers.Dense(1)
  model = tf.keras.Model(inputs, own(shared(inputs)))
  return (
      tff.learning.models.ReconstructionModel.from_keras_model_and_layers(
          keras_model=model,
          global_layers=[shared],
          local_layers=[own],
          input_spec=(
              tf.TensorSpec([None, 2], tf.float32),
              tf.TensorSpec([None, 1], tf.float32),
          ),
      )
  )


class _Clients:
  client_ids = [f'{i}' for i in range(8)]

  def create_tf_dataset_for_client(self, client_id: str):
    return small_model.client(int(client_id))


# Of TFF's builders; each takes an unweighted aggregator.
_RIGHT = {
    'unweighted_fed_avg': _fed_avg,
    'weighted_fed_avg': lambda aggregator: _algorithms.build_weighted_fed_avg(
        small_model.build(),
        _SGD,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
        model_aggregator=_weighted(aggregator),
    ),
    'weights_are_ignored': lambda aggregator: (
        _algorithms.build_weighted_fed_avg(
            small_model.build(), _SGD, model_aggregator=_weighted(aggregator)
        )
    ),
    'keras_model': lambda aggregator: _algorithms.build_unweighted_fed_avg(
        _variable_model, _SGD, model_aggregator=aggregator
    ),
    'server_adam': lambda aggregator: _algorithms.build_unweighted_fed_avg(
        small_model.build(),
        _SGD,
        tff.learning.optimizers.build_adam(0.1),
        model_aggregator=aggregator,
    ),
    'unweighted_fed_prox': lambda aggregator: (
        _algorithms.build_unweighted_fed_prox(
            small_model.build(), 0.1, _SGD, model_aggregator=aggregator
        )
    ),
    'weighted_fed_prox': lambda aggregator: (
        _algorithms.build_weighted_fed_prox(
            small_model.build(),
            0.1,
            _SGD,
            model_aggregator=_weighted(aggregator),
        )
    ),
    'fed_sgd': lambda aggregator: _algorithms.build_fed_sgd(
        small_model.build(), model_aggregator=_weighted(aggregator)
    ),
    'optimizer_schedule': lambda aggregator: (
        _algorithms.build_weighted_fed_avg_with_optimizer_schedule(
            small_model.build(),
            lambda round_index: 0.1,
            tff.learning.optimizers.build_sgdm,
            model_aggregator=_weighted(aggregator),
        )
    ),
    'reconstruction': lambda aggregator: _algorithms.build_fed_recon(
        _reconstruction_model,
        loss_fn=tf.keras.losses.MeanSquaredError,
        model_aggregator_factory=_weighted(aggregator),
    ),
    # Sums and counts of the clusters are one structure.
    'k_means': lambda aggregator: _algorithms.build_fed_kmeans(
        2, (2,), sum_aggregator=aggregator
    ),
    'constant_zeroing': lambda aggregator: _fed_avg(
        tff.aggregators.zeroing_factory(10.0, aggregator)
    ),
    'constant_clipping': lambda aggregator: _fed_avg(
        tff.aggregators.clipping_factory(10.0, aggregator)
    ),
    'concatenated': lambda aggregator: _fed_avg(
        tff.aggregators.concat_factory(aggregator)
    ),
    'debug_measurements': lambda aggregator: _fed_avg(
        tff.learning.add_debug_measurements(aggregator)
    ),
}


def _estimated_norm():
  return tff.aggregators.PrivateQuantileEstimationProcess.no_noise(
      initial_estimate=1.0, target_quantile=0.5, learning_rate=0.2
  )


# What the refusal names, and how to build the process.
_WRONG = {
    'no_aggregator': ('adds no noise of a plan', lambda _: _fed_avg()),
    'tff_noise': (
        'adds no noise of a plan',
        lambda _: _fed_avg(
            tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
                noise_multiplier=1.0, clients_per_round=2, clip=0.5
            )
        ),
    ),
    'robust_aggregator': (
        'adds no noise of a plan',
        lambda _: _algorithms.build_weighted_fed_avg(
            small_model.build(),
            _SGD,
            model_aggregator=tff.learning.robust_aggregator(),
        ),
    ),
    'estimated_zeroing': (
        r'state\.aggregator',
        lambda aggregator: _fed_avg(
            tff.aggregators.zeroing_factory(_estimated_norm(), aggregator)
        ),
    ),
    'estimated_clipping': (
        r'state\.aggregator',
        lambda aggregator: _fed_avg(
            tff.aggregators.clipping_factory(_estimated_norm(), aggregator)
        ),
    ),
    'unweighted_mime_lite': (
        r'state\.client_work',
        lambda aggregator: _algorithms.build_unweighted_mime_lite(
            _variable_model,
            tff.learning.optimizers.build_sgdm(0.1, momentum=0.9),
            model_aggregator=aggregator,
        ),
    ),
    'weighted_mime_lite': (
        r'state\.client_work',
        lambda aggregator: _algorithms.build_weighted_mime_lite(
            small_model.build(),
            tff.learning.optimizers.build_sgdm(0.1, momentum=0.9),
            model_aggregator=_weighted(aggregator),
        ),
    ),
    'mime_lite_with_schedule': (
        r'state\.client_work',
        lambda aggregator: (
            _algorithms.build_mime_lite_with_optimizer_schedule(
                small_model.build(),
                lambda round_index: 0.1,
                tff.learning.optimizers.build_sgdm(0.1, momentum=0.9),
                model_aggregator=_weighted(aggregator),
            )
        ),
    ),
    'two_noised_sums': (
        'releases 2 noised sums',
        lambda aggregator: _algorithms.build_unweighted_mime_lite(
            _variable_model,
            tff.learning.optimizers.build_sgdm(0.1, momentum=0.9),
            model_aggregator=aggregator,
            full_gradient_aggregator=aggregator,
        ),
    ),
    'mean_of_those_who_came': (
        r'state\.global_model_weights',
        lambda aggregator: _fed_avg(
            tff.aggregators.UnweightedMeanFactory(aggregator)
        ),
    ),
}


class TffBuildersTest(parameterized.TestCase):

  @parameterized.parameters(*_RIGHT)
  def test_plan_is_certified(self, name):
    plan = _plan()
    certificate = certification.certify(_RIGHT[name](plan.aggregator()), plan)
    self.assertEqual(certificate.release, plan.aggregator().release)

  @parameterized.parameters(*_WRONG)
  def test_is_refused_with_the_reason(self, name):
    plan = _plan()
    reason, build = _WRONG[name]
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, reason) as raised:
      certification.certify(build(plan.aggregator()), plan)
    self.assertIn('aggregator', raised.exception.way_out)

  def test_refusal_names_state_and_aggregation(self):
    with self.assertRaises(_checks.PrivacyRefusedError) as raised:
      certification.certify(_fed_avg(), _plan())
    self.assertIn(
        'state.global_model_weights.trainable, state.finalizer.learning_rate'
        ' depend on federated_',
        raised.exception.what,
    )

  def test_metrics_with_data_are_not_covered(self):
    plan = _plan()
    process = _algorithms.build_unweighted_fed_avg(
        _variable_model,
        _SGD,
        model_aggregator=tff.aggregators.zeroing_factory(
            10.0, plan.aggregator()
        ),
    )
    certificate = certification.certify(process, plan)
    found = {'/'.join(map(str, path)) for path in certificate.not_covered}
    self.assertIn('client_work/train/loss', found)
    self.assertIn('aggregator/zeroed_count', found)
    self.assertIn('aggregator/zeroing/not_covered/num_clients', found)
    self.assertNotIn('aggregator/zeroing/snr', found)
    self.assertNotIn('finalizer/update_non_finite', found)


def _around(change, aggregator):
  """Returns the process of `aggregator`, changed by a federated function."""

  class Factory(tff.aggregators.UnweightedAggregationFactory):

    def create(self, value_type):
      inner = aggregator.create(value_type)

      @tff.federated_computation(*inner.next.type_signature.parameter)
      def next_fn(state, value):
        return change(inner, state, value)

      return tff.templates.AggregationProcess(inner.initialize, next_fn)

  return _fed_avg(Factory())


def _scaled_by_the_mean(inner, state, value):
  """Lets every client's update depend on those of all others."""

  @tff.tensorflow.computation(value.type_signature.member)
  def norm(update):
    return tf.linalg.global_norm(tf.nest.flatten(update))

  @tff.tensorflow.computation(value.type_signature.member, np.float32)
  def scale(update, by):
    return tf.nest.map_structure(lambda tensor: tensor * by, update)

  mean = tff.federated_mean(tff.federated_map(norm, value))
  return inner.next(
      state, tff.federated_map(scale, (value, tff.federated_broadcast(mean)))
  )


def _with_the_count(inner, state, value):
  """Adds an exact count to what is released."""

  @tff.tensorflow.computation(
      inner.next.type_signature.result.result.member, np.int32
  )
  def add(mean, count):
    return tf.nest.map_structure(
        lambda tensor: tensor + tf.cast(count, tf.float32), mean
    )

  output = inner.next(state, value)
  count = output.measurements['not_covered']['num_clients']
  return tff.templates.MeasuredProcessOutput(
      output.state,
      tff.federated_map(add, (output.result, count)),
      output.measurements,
  )


def _measured_as_snr(inner, state, value):
  """Gives an exact count the name of a metric that is covered."""
  output = inner.next(state, value)
  count = output.measurements['not_covered']['num_clients']
  return tff.templates.MeasuredProcessOutput(
      output.state,
      output.result,
      tff.federated_zip(collections.OrderedDict(snr=count)),
  )


def _state_stands_still(inner, state, value):
  """Draws the noise of round 1 in every round."""
  output = inner.next(state, value)
  return tff.templates.MeasuredProcessOutput(
      state, output.result, output.measurements
  )


class WrappersTest(absltest.TestCase):

  def test_updates_that_depend_on_others_are_refused(self):
    plan = _plan()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'changes what the others add'
    ):
      certification.certify(
          _around(_scaled_by_the_mean, plan.aggregator()), plan
      )

  def test_counts_in_the_model_are_refused(self):
    plan = _plan()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'global_model_weights'
    ):
      certification.certify(_around(_with_the_count, plan.aggregator()), plan)

  def test_name_of_a_covered_metric_covers_nothing(self):
    plan = _plan()
    process = _around(_measured_as_snr, plan.aggregator())
    self.assertIn(
        ('aggregator', 'snr'),
        certification.certify(process, plan).not_covered,
    )

  def test_noise_that_repeats_is_refused(self):
    plan = _plan()
    process = _around(_state_stands_still, plan.aggregator())
    certificate = certification.certify(process, plan)
    state = process.initialize()
    certificate.check(state, None, rounds_done=0)
    output = process.next(state, [small_model.client(1)])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 1'):
      certificate.check(output.state, output.metrics, rounds_done=1)


class OtherNoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      dict(noise_multiplier=0.01),
      dict(l2_norm_clip=50.0),
      dict(clients_per_round=20),
      dict(
          mechanism=mechanisms.Tree(_NUM_ROUNDS),
      ),
  )
  def test_aggregator_of_another_plan_is_refused(self, **changes):
    plan = _plan()
    other = dataclasses.replace(plan, **changes)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'other noise|clients_per_round=20'
    ):
      certification.certify(_fed_avg(other.aggregator()), plan)

  def test_plan_that_was_calibrated_afterwards_is_refused(self):
    plan = _plan(noise_multiplier=0.5)
    process = _fed_avg(plan.aggregator())
    calibrated = plan.calibrated(epsilon=1.0, delta=1e-5)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'calibrate first'
    ):
      certification.certify(process, calibrated)
    certification.certify(process, plan)

  def test_adaptive_clipping(self):
    plan = _adaptive_plan()
    process = _fed_avg(plan.aggregator())
    certificate = certification.certify(process, plan)
    state = process.initialize()
    for round_index in range(1, _NUM_ROUNDS + 1):
      output = process.next(state, [small_model.client(round_index)])
      state = output.state
      certificate.check(state, output.metrics, rounds_done=round_index)
    self.assertNotEqual(output.metrics['aggregator']['clip_norm'], 0.5)
    fixed = dataclasses.replace(plan, adaptive_clipping=None)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      certification.certify(process, fixed)

  def test_state_of_another_plan_is_refused(self):
    plan, other = _plan(), _plan(noise_multiplier=0.01)
    process = _fed_avg(plan.aggregator())
    state = _fed_avg(other.aggregator()).initialize()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'release_id'):
      certification.certify(process, plan).check(state, None, rounds_done=0)
    with self.assertRaisesRegex(Exception, 'adds other noise'):
      process.next(state, [small_model.client(1)])

  def test_noise_that_is_not_that_of_the_plan_is_refused(self):
    plan = _plan()
    process = _fed_avg(plan.aggregator())
    certificate = certification.certify(process, plan)
    output = process.next(process.initialize(), [small_model.client(1)])
    certificate.check(output.state, output.metrics, rounds_done=1)
    for name, message in (
        ('noise_stddev', 'standard deviation of 0.1, in the plan'),
        ('clip_norm', 'clip norm of round 1 is 0.1, in the plan 0.5'),
    ):
      measured = dict(output.metrics['aggregator'], **{name: np.float32(0.1)})
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
        certificate.check(
            output.state, {'aggregator': measured}, rounds_done=1
        )


class OurBuildersTest(parameterized.TestCase):

  @parameterized.parameters(
      dict(),
      dict(momentum=0.9, averaging=learning.UniformAverage()),
      dict(l1=0.1),
  )
  def test_dp_ftrl(self, **changes):
    plan = _plan()
    certification.certify(small_model.build_process(plan, **changes), plan)

  def test_least_squares(self):
    plan = _plan(l2_norm_clip=learning.moments_norm_bound(1.5))
    process = learning.build_least_squares(
        plan,
        num_features=2,
        feature_norm_bound=1.5,
        server_learning_rate=1.0,
    )
    certification.certify(process, plan)

  def test_plan_that_differs_in_participation_alone(self):
    plan = _plan()
    once = dataclasses.replace(
        plan,
        participation=participation.UniformSampling(
            _NUM_ROUNDS, max_participations=1
        ),
    )
    process = small_model.build_process(plan)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, plan.fingerprint
    ):
      certification.certify(process, once)
    # Of TFF's builders it is the noise alone that is in the process, and who
    # takes part is enforced by the ledger of the plan in hand.
    certification.certify(_fed_avg(plan.aggregator()), once)


_SPHERE = randomizers.Sphere(1.0, 0.5)
_PROTOCOLS = {
    'fixed': participation.FixedWindowCheckIn(_NUM_ROUNDS, 0.3),
    'sliding': participation.SlidingWindowCheckIn(_NUM_ROUNDS, 2),
    'averaged': participation.AveragedCheckIn(_NUM_ROUNDS, 8),
    'shuffled': participation.ShuffledCheckIn(_NUM_ROUNDS, 0.5, 8),
}


def _check_in_process(plan):
  build = learning.build_check_in_sgd
  if isinstance(plan.protocol, participation.ShuffledCheckIn):
    build = learning.build_shuffled_check_in_sgd
  return build(
      small_model.build(),
      plan,
      server_learning_rate=0.1,
      averaging=learning.UniformAverage(),
  )


class ProtocolPlansTest(parameterized.TestCase):

  @parameterized.product(
      name=tuple(_PROTOCOLS),
      randomizer=(
          _SPHERE, randomizers.Gaussian(4.0, 0.5), randomizers.Laplace(1.0, 0.5)
      ),
  )
  def test_is_certified(self, name, randomizer):
    plan = tff_dp.ProtocolPlan(_PROTOCOLS[name], randomizer)
    certificate = certification.certify(_check_in_process(plan), plan)
    self.assertIsNone(certificate.release)
    self.assertEmpty(certificate.not_covered)

  def test_noise_at_the_clients_is_the_one_of_the_plan(self):
    plan = tff_dp.ProtocolPlan(_PROTOCOLS['averaged'], _SPHERE)
    process = _check_in_process(plan)
    other = tff_dp.ProtocolPlan(
        _PROTOCOLS['averaged'], randomizers.Sphere(2.0, 0.5)
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, plan.fingerprint
    ):
      certification.certify(process, other)
    # What counts is the noise, not what the process says of itself.
    process.plan = other
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      certification.certify(process, other)

  def test_process_without_the_protocol_is_refused(self):
    plan = tff_dp.ProtocolPlan(_PROTOCOLS['averaged'], _SPHERE)
    process = _fed_avg(aggregators.LocalRandomizerFactory(_SPHERE))
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not built from a plan of'
    ):
      certification.certify(process, plan)

  def test_unprotected_metrics_are_refused(self):
    plan = tff_dp.ProtocolPlan(_PROTOCOLS['averaged'], _SPHERE)
    process = learning.build_check_in_sgd(
        _variable_model,
        plan,
        server_learning_rate=0.1,
        allow_unprotected_metrics=True,
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'client_work/not_covered/train/loss'
    ):
      certification.certify(process, plan)

  def test_random_allocation(self):
    plan = tff_dp.ProtocolPlan(
        participation.RandomAllocation(_NUM_ROUNDS),
        tff_dp.plans.check_ins.CentralGaussian(2.0, 0.5),
    )
    ours = learning.build_allocation_sgd(
        small_model.build(), plan, clients_per_slot=2, server_learning_rate=0.1
    )
    self.assertEmpty(certification.certify(ours, plan).not_covered)
    for process in (ours, _fed_avg(plan.aggregator(clients_per_round=2))):
      certificate = certification.certify(process, plan)
      output = process.next(process.initialize(), [])
      certificate.check(output.state, output.metrics, rounds_done=1)
    self.assertEqual(
        float(output.metrics['aggregator']['noise_stddev']), 2.0 * 0.5 / 2
    )

  @parameterized.parameters(
      tff_dp.plans.check_ins.CentralGaussian(0.01, 0.5),
      tff_dp.plans.check_ins.CentralGaussian(2.0, 50.0),
  )
  def test_random_allocation_with_other_noise(self, other):
    protocol = participation.RandomAllocation(_NUM_ROUNDS)
    plan = tff_dp.ProtocolPlan(
        protocol, tff_dp.plans.check_ins.CentralGaussian(2.0, 0.5)
    )
    aggregator = tff_dp.ProtocolPlan(protocol, other).aggregator(
        clients_per_round=2
    )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      certification.certify(_fed_avg(aggregator), plan)


def _secure_sums():
  return silos.build_shuffled_one_pass_accelerated_mb_sgd(
      quadratic.model(),
      num_records={'a': 21, 'b': 21},
      num_rounds=quadratic.ROUNDS,
      l2_norm_clip=20.0,
      epsilon=3.0,
      delta=1e-3,
      min_silos=2,
      gamma=2.0,
  )


class TrainTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'
    self.enterContext(mock.patch.object(plots, 'write_curves'))

  def _train(self, process, plan, clients=None, **arguments):
    return program.train(
        process,
        plan,
        _Clients() if clients is None else clients,
        output_dir=self.root,
        delta=1e-5,
        **(dict(progress='quiet') | arguments),
    )

  def test_tff_builder_trains_to_the_end_and_releases_what_is_covered(self):
    plan = _plan()
    process = _fed_avg(
        tff.aggregators.zeroing_factory(10.0, plan.aggregator())
    )
    result = self._train(process, plan)
    self.assertEqual(result.rounds_done, _NUM_ROUNDS)
    self.assertEqual(result.epsilon, plan.epsilon(delta=1e-5))
    released = set(result.metrics[-1])
    self.assertContainsSubset(
        {'aggregator/zeroing/noise_stddev', 'finalizer/update_non_finite'},
        released,
    )
    self.assertNoCommonElements(
        {'aggregator/zeroed_count', 'client_work/train/loss'}, released
    )
    # The same command once more loads the checkpoint.
    self.assertEqual(self._train(process, plan).metrics, result.metrics)

  def test_uncovered_metric_is_kept_secret_whatever_its_name(self):
    plan = _plan()
    self._train(_around(_measured_as_snr, plan.aggregator()), plan)
    self.assertNotIn(
        'snr', (self.root / 'release' / 'metrics.csv').read_text()
    )
    self.assertIn(
        'aggregator/snr.not_covered',
        (self.root / 'secret' / 'metrics.not_covered.csv').read_text(),
    )

  @parameterized.parameters('no_aggregator', 'estimated_zeroing')
  def test_refuses_before_anything_is_written(self, name):
    reason, build = _WRONG[name]
    plan = _plan()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, reason):
      self._train(build(plan.aggregator()), plan)
    self.assertFalse(self.root.exists())

  def test_refuses_noise_that_repeats_before_its_round_is_released(self):
    plan = _plan()
    process = _around(_state_stands_still, plan.aggregator())
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 1'):
      self._train(process, plan)
    metrics = (self.root / 'release' / 'metrics.csv').read_text()
    self.assertLen(metrics.splitlines(), 1)

  def test_without_privacy_by_name(self):
    plan = tff_dp.NonPrivatePlan(
        participation.UniformSampling(_NUM_ROUNDS), clients_per_round=2
    )
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
      result = self._train(_fed_avg(), plan, progress='plain')
    self.assertStartsWith(stderr.getvalue(), 'NO PRIVACY')
    self.assertEqual(result.epsilon, math.inf)
    self.assertEqual(result.metrics[-1]['epsilon'], math.inf)
    self.assertStartsWith(result.statement.warnings[0], 'NO PRIVACY')
    release = self.root / 'release'
    events = json.loads((release / 'events.json').read_text())
    self.assertStartsWith(events['warnings'][0], 'NO PRIVACY')
    self.assertIn('NO PRIVACY', (release / 'privacy_statement.md').read_text())

  def test_budget_of_a_run_without_privacy_is_refused(self):
    plan = tff_dp.NonPrivatePlan(
        participation.UniformSampling(_NUM_ROUNDS), clients_per_round=2
    )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      self._train(_fed_avg(), plan, epsilon_budget=100.0)

  def test_process_with_a_ledger_of_its_own_is_refused(self):
    process = _secure_sums()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, f'cannot run.*{type(process).__name__}'
    ) as raised:
      self._train(process, _plan())
    self.assertIn('process.open_ledger()', raised.exception.way_out)
    self.assertIn('process.next_round(', raised.exception.way_out)

  @parameterized.parameters(
      (None, None, "plan=None is not allowed.*NonPrivatePlan"),
      ('process', {'a': [1]}, "clients='dict' is not allowed.*ClientData"),
      ('process', [[1], [2]], "clients='list' is not allowed.*ClientData"),
  )
  def test_bad_argument_is_named(self, plan, clients, message):
    plan = plan and _plan()
    process = _fed_avg(_plan().aggregator())
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self._train(process, plan, clients)
    self.assertFalse(self.root.exists())

  def test_something_else_than_a_process(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'process=None'):
      self._train(None, _plan())


if __name__ == '__main__':
  absltest.main()
