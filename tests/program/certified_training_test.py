# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that train runs what is certified, and nothing else."""

import contextlib
import io
import json
import math
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import tff_dp
import tensorflow_federated as tff

from tests.program import processes
from tff_dp import _checks
from tff_dp import execution
from tff_dp import participation
from tff_dp import program
from tff_dp.program import certification
from tff_dp.program.display import documents


def setUpModule():
  execution.set_default_context()


class TrainTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'
    self.enterContext(mock.patch.object(documents, 'write'))

  def _train(self, process, clients=None, **arguments):
    return program.train(
        process,
        processes.Clients() if clients is None else clients,
        output_dir=self.root,
        delta=1e-5,
        **(dict(progress='quiet') | arguments),
    )

  def test_tff_builder_trains_to_the_end_and_releases_what_is_covered(self):
    plan = processes.build_plan()
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        processes.model_with_loss(),
        processes.SGD,
        model_aggregator=tff.aggregators.zeroing_factory(
            10.0, plan.aggregator()
        ),
    )
    result = self._train(process)
    self.assertEqual(result.rounds_done, processes.NUM_ROUNDS)
    self.assertEqual(result.epsilon, plan.epsilon(delta=1e-5))
    released = set(result.metrics[-1])
    self.assertContainsSubset(
        {'aggregator/zeroing/noise_stddev', 'finalizer/update_non_finite'},
        released,
    )
    self.assertNoCommonElements(
        {'aggregator/zeroed_count', 'client_work/train/loss'}, released
    )
    self.assertIn(
        'client_work/train/loss.not_covered',
        (self.root / 'secret' / 'metrics.not_covered.csv').read_text(),
    )
    # The same command once more loads the checkpoint.
    self.assertEqual(self._train(process).metrics, result.metrics)

  def test_uncovered_metric_is_kept_secret_whatever_its_name(self):
    plan = processes.build_plan()
    self._train(processes.around(processes.measured_as_snr, plan.aggregator()))
    self.assertNotIn(
        'snr', (self.root / 'release' / 'metrics.csv').read_text()
    )
    self.assertIn(
        'aggregator/snr.not_covered',
        (self.root / 'secret' / 'metrics.not_covered.csv').read_text(),
    )

  def test_refuses_before_anything_is_written(self):
    for plan in (processes.build_plan(), None):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'adds no noise of a plan'
      ):
        self._train(processes.without_noise(), plan=plan)
    self.assertFalse(self.root.exists())

  def test_refuses_noise_that_repeats_before_its_round_is_released(self):
    plan = processes.build_plan()
    process = processes.around(processes.state_stands_still, plan.aggregator())
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'after round 1'):
      self._train(process)
    metrics = (self.root / 'release' / 'metrics.csv').read_text()
    self.assertLen(metrics.splitlines(), 1)

  def test_refuses_other_noise_before_its_round_is_released(self):
    process = processes.of_plan(processes.build_plan())
    stated = certification.Certificate._noise_stddev

    def of_round_2_twice(certificate, round_index, clip_norm):
      return stated(certificate, round_index, clip_norm) * (
          2 if round_index == 2 else 1
      )

    with mock.patch.object(
        certification.Certificate, '_noise_stddev', of_round_2_twice
    ), self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'noise of round 2 has a standard deviation'
    ):
      self._train(process, checkpoint_every=1)
    metrics = (self.root / 'release' / 'metrics.csv').read_text()
    self.assertLen(metrics.splitlines(), 2)

  def test_without_privacy_by_name(self):
    plan = tff_dp.NonPrivatePlan(
        participation.UniformSampling(processes.NUM_ROUNDS), clients_per_round=2
    )
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
      result = self._train(
          processes.without_noise(), plan=plan, progress='plain'
      )
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
        participation.UniformSampling(processes.NUM_ROUNDS), clients_per_round=2
    )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      self._train(processes.without_noise(), plan=plan, epsilon_budget=100.0)

  @parameterized.parameters(
      ({'plan': 5.0}, 'plan=5.0 is not allowed.*NonPrivatePlan'),
      ({'clients': {'a': [1]}}, "clients='dict' is not allowed.*ClientData"),
      ({'clients': [[1], [2]]}, "clients='list' is not allowed.*ClientData"),
      (
          {'clients': processes.build_plan()},
          "clients='DpFtrlPlan' is not allowed.*ClientData",
      ),
  )
  def test_bad_argument_is_named(self, arguments, message):
    process = processes.of_plan(processes.build_plan())
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self._train(process, **arguments)
    self.assertFalse(self.root.exists())

  def test_plan_between_process_and_clients(self):
    plan = processes.build_plan()
    with self.assertRaisesRegex(TypeError, r'train\(process, clients, output'):
      program.train(
          processes.of_plan(plan),
          plan,
          processes.Clients(),
          output_dir=self.root,
          delta=1e-5,
      )

  def test_something_else_than_a_process(self):
    with self.assertRaisesRegex(_checks.ArgumentError, 'process=None'):
      self._train(None)


if __name__ == '__main__':
  absltest.main()
