# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of which processes let data out without the noise of their plan."""

from absl.testing import absltest
from absl.testing import parameterized
import pytest
import tff_dp  # noqa: F401 pylint: disable=unused-import
import tensorflow as tf  # pylint: disable=g-bad-import-order
import tensorflow_federated as tff

from tests.learning import small_model
from tests.program import processes
from tff_dp import _checks
from tff_dp import execution
from tff_dp.program import certification

_weighted = tff.aggregators.as_weighted_aggregator
_algorithms = tff.learning.algorithms


def setUpModule():
  execution.set_default_context()


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


# Of TFF's builders; each takes an unweighted aggregator.
_RIGHT = {
    'unweighted_fed_avg': processes.fed_avg,
    'weighted_fed_avg': lambda aggregator: _algorithms.build_weighted_fed_avg(
        small_model.build(),
        processes.SGD,
        client_weighting=tff.learning.ClientWeighting.UNIFORM,
        model_aggregator=_weighted(aggregator),
    ),
    'weights_are_ignored': lambda aggregator: (
        _algorithms.build_weighted_fed_avg(
            small_model.build(),
            processes.SGD,
            model_aggregator=_weighted(aggregator),
        )
    ),
    'server_adam': lambda aggregator: _algorithms.build_unweighted_fed_avg(
        small_model.build(),
        processes.SGD,
        tff.learning.optimizers.build_adam(0.1),
        model_aggregator=aggregator,
    ),
    'unweighted_fed_prox': lambda aggregator: (
        _algorithms.build_unweighted_fed_prox(
            small_model.build(), 0.1, processes.SGD, model_aggregator=aggregator
        )
    ),
    'weighted_fed_prox': lambda aggregator: (
        _algorithms.build_weighted_fed_prox(
            small_model.build(),
            0.1,
            processes.SGD,
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
    'constant_clipping': lambda aggregator: processes.of_aggregator(
        tff.aggregators.clipping_factory(10.0, aggregator)
    ),
    'concatenated': lambda aggregator: processes.of_aggregator(
        tff.aggregators.concat_factory(aggregator)
    ),
    'debug_measurements': lambda aggregator: processes.of_aggregator(
        tff.learning.add_debug_measurements(aggregator)
    ),
}


# What the refusal names, and how to build the process.
_WRONG = {
    'no_aggregator': (
        'adds no noise of a plan: state.global_model_weights.trainable,'
        ' state.finalizer.learning_rate depend on federated_',
        lambda _: processes.without_noise(),
    ),
    'tff_noise': (
        'adds no noise of a plan',
        lambda _: processes.of_aggregator(
            tff.aggregators.DifferentiallyPrivateFactory.gaussian_fixed(
                noise_multiplier=1.0, clients_per_round=2, clip=0.5
            )
        ),
    ),
    'robust_aggregator': (
        'adds no noise of a plan',
        lambda _: _algorithms.build_weighted_fed_avg(
            small_model.build(),
            processes.SGD,
            model_aggregator=tff.learning.robust_aggregator(),
        ),
    ),
    'estimated_zeroing': (
        r'state\.aggregator',
        lambda aggregator: processes.of_aggregator(
            tff.aggregators.zeroing_factory(
                processes.estimated_norm(), aggregator
            )
        ),
    ),
    'estimated_clipping': (
        r'state\.aggregator',
        lambda aggregator: processes.of_aggregator(
            tff.aggregators.clipping_factory(
                processes.estimated_norm(), aggregator
            )
        ),
    ),
    'unweighted_mime_lite': (
        r'state\.client_work',
        lambda aggregator: _algorithms.build_unweighted_mime_lite(
            small_model.build(),
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
        lambda aggregator: processes.around(
            processes.released_twice, aggregator
        ),
    ),
    'mean_of_those_who_came': (
        r'state\.global_model_weights',
        lambda aggregator: processes.of_aggregator(
            tff.aggregators.UnweightedMeanFactory(aggregator)
        ),
    ),
}


class TffBuildersTest(parameterized.TestCase):

  # Of builders that differ in one argument, and of wrappers, one each; a model
  # of Keras and constant zeroing are below.
  @parameterized.named_parameters(*zip(_RIGHT, _RIGHT))
  @pytest.mark.slow(
      cases=[
          'unweighted_fed_avg',
          'weighted_fed_avg',
          'server_adam',
          'unweighted_fed_prox',
          'optimizer_schedule',
          'constant_clipping',
          'concatenated',
      ]
  )
  def test_plan_is_certified(self, name):
    plan = processes.build_plan()
    certificate = certification.certify(_RIGHT[name](plan.aggregator()), plan)
    self.assertEqual(certificate.release, plan.aggregator().release)

  @parameterized.named_parameters(*zip(_WRONG, _WRONG))
  @pytest.mark.slow(
      cases=[
          'estimated_clipping',
          'robust_aggregator',
          'weighted_mime_lite',
          'mime_lite_with_schedule',
      ]
  )
  def test_is_refused_with_the_reason(self, name):
    plan = processes.build_plan()
    reason, build = _WRONG[name]
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, reason) as raised:
      certification.certify(build(plan.aggregator()), plan)
    self.assertIn('aggregator', raised.exception.way_out)

  def test_metrics_of_a_keras_model_with_data_are_not_covered(self):
    plan = processes.build_plan()
    process = _algorithms.build_unweighted_fed_avg(
        processes.variable_model,
        processes.SGD,
        model_aggregator=tff.aggregators.zeroing_factory(
            10.0, plan.aggregator()
        ),
    )
    certificate = certification.certify(process, plan)
    self.assertEqual(certificate.release, plan.aggregator().release)
    found = {'/'.join(map(str, path)) for path in certificate.not_covered}
    self.assertIn('client_work/train/loss', found)
    self.assertIn('aggregator/zeroed_count', found)
    self.assertIn('aggregator/zeroing/not_covered/num_clients', found)
    self.assertNotIn('aggregator/zeroing/snr', found)
    self.assertNotIn('finalizer/update_non_finite', found)


class WrappersTest(absltest.TestCase):

  def test_updates_that_depend_on_others_are_refused(self):
    plan = processes.build_plan()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'changes what the others add'
    ):
      certification.certify(
          processes.around(processes.scaled_by_the_mean, plan.aggregator()),
          plan,
      )

  def test_counts_in_the_model_are_refused(self):
    plan = processes.build_plan()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'global_model_weights'
    ):
      certification.certify(
          processes.around(processes.with_the_count, plan.aggregator()), plan
      )

  def test_name_of_a_covered_metric_covers_nothing(self):
    plan = processes.build_plan()
    process = processes.around(processes.measured_as_snr, plan.aggregator())
    self.assertIn(
        ('aggregator', 'snr'),
        certification.certify(process, plan).not_covered,
    )

  def test_noise_that_repeats_is_refused(self):
    plan = processes.build_plan()
    process = processes.around(processes.state_stands_still, plan.aggregator())
    certificate = certification.certify(process, plan)
    state = process.initialize()
    certificate.check(state, None, rounds_done=0)
    output = process.next(state, [small_model.client(1)])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 1'):
      certificate.check(output.state, output.metrics, rounds_done=1)


if __name__ == '__main__':
  absltest.main()
