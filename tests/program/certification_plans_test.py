# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of which plan a process is of, and of noise that is not of it."""

import dataclasses
import functools
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
import tff_dp

from tests.learning import small_model
from tests.program import processes
from tests.systems.draw_and_discard import instance_run
from tests.systems.silos import silo_run
from tff_dp import _checks
from tff_dp import aggregators
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import dp_ftrl
from tff_dp import execution
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp.aggregators import release_marks
from tff_dp.mechanisms import randomizers
from tff_dp.program import certification
from tff_dp.systems.dp_ftrl import least_squares

pytestmark = pytest.mark.once


def setUpModule():
  execution.set_default_context()


@functools.cache
def _ours():
  return small_model.build_process(
      processes.build_plan(), momentum=0.9, averaging=learning.UniformAverage()
  )


class OtherNoiseTest(parameterized.TestCase):

  @parameterized.parameters(
      dict(noise_multiplier=0.01),
      dict(noise_multiplier=100.0),
      dict(l2_norm_clip=0.01),
      dict(l2_norm_clip=50.0),
      dict(clients_per_round=1),
      dict(clients_per_round=20),
      dict(
          mechanism=mechanisms.Tree(processes.NUM_ROUNDS),
      ),
  )
  def test_aggregator_of_another_plan_is_refused(self, **changes):
    plan = processes.build_plan()
    other = dataclasses.replace(plan, **changes)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'other noise|clients_per_round=2,'
    ):
      certification.certify(processes.of_plan(plan), other)

  def test_plan_that_was_calibrated_afterwards_is_refused(self):
    plan = processes.build_plan()
    process = processes.of_plan(plan)
    calibrated = plan.calibrated(epsilon=1.0, delta=1e-5)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'calibrate first'
    ):
      certification.certify(process, calibrated)
    certification.certify(process, plan)

  def test_adaptive_clipping(self):
    plan = processes.build_adaptive_plan()
    process = processes.of_plan(plan)
    certificate = certification.certify(process, plan)
    state = process.initialize()
    for round_index in range(1, processes.NUM_ROUNDS + 1):
      output = process.next(state, [small_model.client(round_index)])
      state = output.state
      certificate.check(state, output.metrics, rounds_done=round_index)
    self.assertNotEqual(output.metrics['aggregator']['clip_norm'], 0.5)
    fixed = dataclasses.replace(plan, adaptive_clipping=None)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      certification.certify(process, fixed)

  def test_state_of_another_plan_is_refused(self):
    plan = processes.build_plan()
    other = processes.build_plan(noise_multiplier=0.01)
    process = processes.of_plan(plan)
    state = processes.of_plan(other).initialize()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'release_id'):
      certification.certify(process, plan).check(state, None, rounds_done=0)
    with self.assertRaisesRegex(Exception, 'adds other noise'):
      process.next(state, [small_model.client(1)])

  def test_a_second_noise_state_is_refused(self):
    plan = processes.build_plan()
    process = processes.of_plan(plan)
    certificate = certification.certify(process, plan)
    state = process.initialize()
    later = process.next(state, [small_model.client(1)]).state
    certificate.check([state], None, rounds_done=0)
    for states in ([state, later], [later, state], [state, state], []):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'release_id'):
        certificate.check(states, None, rounds_done=0)

  def test_noise_that_is_not_that_of_the_plan_is_refused(self):
    plan = processes.build_plan()
    process = processes.of_plan(plan)
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
      _ours, lambda: small_model.build_process(processes.build_plan(), l1=0.1)
  )
  def test_dp_ftrl(self, build):
    certification.certify(build(), processes.build_plan())

  def test_least_squares(self):
    plan = processes.build_plan(l2_norm_clip=least_squares.moments_norm_bound(1.5))
    process = dp_ftrl.build_least_squares(
        plan,
        num_features=2,
        feature_norm_bound=1.5,
        server_learning_rate=1.0,
    )
    certification.certify(process, plan)

  def test_plan_that_differs_in_participation_alone(self):
    plan = processes.build_plan()
    once = dataclasses.replace(
        plan,
        participation=participation.UniformSampling(
            processes.NUM_ROUNDS, max_participations=1
        ),
    )
    for process in (_ours(), processes.of_plan(plan)):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, plan.fingerprint
      ):
        certification.certify(process, once)


class PlanOfTheProcessTest(parameterized.TestCase):

  def test_aggregator_names_its_plan(self):
    plan = processes.build_plan()
    # The same noise, and so the same release.
    other = dataclasses.replace(
        plan,
        participation=participation.UniformSampling(
            processes.NUM_ROUNDS, max_participations=1
        ),
    )
    plans = (plan, other)
    built = [processes.of_plan(each) for each in plans]
    for process, expected in zip(built, plans, strict=True):
      found = certification.certify(process)
      self.assertEqual(found.plan, expected)
      self.assertEqual(found.release, plan.aggregator().release)

  def test_our_builders_keep_theirs(self):
    with mock.patch.dict(release_marks._PLANS, clear=True):
      self.assertIs(certification.certify(_ours()).plan, _ours().plan)

  def test_plan_of_another_python_process_has_to_be_handed(self):
    plan = processes.build_plan()
    process = processes.of_plan(plan)
    with mock.patch.dict(release_marks._PLANS, clear=True):
      with self.assertRaisesRegex(
          _checks.ArgumentError, f'plan=plan.*{plan.fingerprint}'
      ):
        certification.certify(process)
      self.assertIs(certification.certify(process, plan).plan, plan)

  def test_only_the_latest_plans_are_kept(self):
    plans = [processes.build_plan(noise_multiplier=1.0 + i) for i in range(40)]
    with mock.patch.dict(release_marks._PLANS, clear=True):
      aggregators_ = [plan.aggregator() for plan in plans]
      kept = [
          release_marks.plan_of(each.release) is not None
          for each in aggregators_
      ]
    self.assertEqual(kept, [False] * 8 + [True] * 32)

  def test_aggregator_that_no_plan_made(self):
    plan = processes.build_plan()
    process = processes.of_aggregator(
        aggregators.CorrelatedNoiseFactory(
            plan.mechanism,
            noise_multiplier=plan.noise_multiplier,
            l2_norm_clip=plan.l2_norm_clip,
            clients_per_round=plan.clients_per_round,
        )
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'its aggregator was built without a plan'
    ):
      certification.certify(process)
    self.assertIs(certification.certify(process, plan).plan, plan)

  def test_noise_of_clients_needs_the_builder_of_its_protocol(self):
    process = processes.of_aggregator(
        aggregators.LocalRandomizerFactory(_SPHERE)
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'its aggregator was built without a plan'
    ):
      certification.certify(process)
    plan = tff_dp.CheckInPlan(_PROTOCOLS['averaged'], _SPHERE)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'not built from a plan of'
    ):
      certification.certify(process, plan)


class NoPrivacyByNameTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('dp_ftrl', lambda: small_model.build_process(_SILENT)),
      ('aggregator', lambda: processes.of_plan(_SILENT)),
      ('silos', lambda: silo_run.build_process(noise_stddev=0.0)),
      (
          'draw_and_discard',
          lambda: instance_run.build_process(
              instance_run.build_plan(
                  step=dict(mechanism=None, epsilon=None, delta=None)
              )
          ),
      ),
  )
  def test_is_certified_and_states_it(self, build):
    plan = certification.certify(build()).plan
    self.assertEqual(plan.epsilon_after(1, delta=1e-5), math.inf)
    statement = plan.statement(delta=1e-5)
    self.assertStartsWith(statement.warnings[0], 'NO PRIVACY')
    self.assertEqual(statement.epsilon, math.inf)

  def test_any_process_under_the_plan_without_privacy(self):
    plan = tff_dp.NonPrivatePlan(
        participation.UniformSampling(processes.NUM_ROUNDS), 2
    )
    check_in_plan = tff_dp.CheckInPlan(_PROTOCOLS['averaged'], _SPHERE)
    for process in (
        processes.without_noise(), _check_in_process(check_in_plan)
    ):
      self.assertIs(certification.certify(process, plan).plan, plan)


_SILENT = processes.build_plan(noise_multiplier=0.0)
_SPHERE = randomizers.Sphere(1.0, 0.5)
_PROTOCOLS = {
    'fixed': check_ins.FixedWindowCheckIn(processes.NUM_ROUNDS, 0.3),
    'sliding': check_ins.SlidingWindowCheckIn(processes.NUM_ROUNDS, 2),
    'averaged': check_ins.AveragedCheckIn(processes.NUM_ROUNDS, 8),
    'shuffled': check_ins.ShuffledCheckIn(processes.NUM_ROUNDS, 0.5, 8),
}


@functools.cache
def _check_in_process(plan):
  build = check_ins.build_check_in_sgd
  if isinstance(plan.protocol, check_ins.ShuffledCheckIn):
    build = check_ins.build_shuffled_check_in_sgd
  return build(
      small_model.build(),
      plan,
      server_learning_rate=0.1,
      averaging=learning.UniformAverage(),
  )


class CheckInPlansTest(parameterized.TestCase):

  @parameterized.product(
      name=tuple(_PROTOCOLS),
      randomizer=(
          _SPHERE, randomizers.Gaussian(4.0, 0.5), randomizers.Laplace(1.0, 0.5)
      ),
  )
  # Every protocol, and every randomizer.
  @pytest.mark.slow(but=['2', '4', '6', '9'])
  def test_is_certified(self, name, randomizer):
    plan = tff_dp.CheckInPlan(_PROTOCOLS[name], randomizer)
    certificate = certification.certify(_check_in_process(plan), plan)
    self.assertIsNone(certificate.release)
    self.assertEmpty(certificate.not_covered)

  def test_noise_at_the_clients_is_the_one_of_the_plan(self):
    plan = tff_dp.CheckInPlan(_PROTOCOLS['averaged'], _SPHERE)
    process = _check_in_process(plan)
    other = tff_dp.CheckInPlan(
        _PROTOCOLS['averaged'], randomizers.Sphere(2.0, 0.5)
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, plan.fingerprint
    ):
      certification.certify(process, other)
    # What counts is the noise, not what the process says of itself.
    with mock.patch.object(process, 'plan', other), self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'other noise'
    ):
      certification.certify(process, other)

  def test_unprotected_metrics_are_refused(self):
    plan = tff_dp.CheckInPlan(_PROTOCOLS['averaged'], _SPHERE)
    process = check_ins.build_check_in_sgd(
        processes.model_with_loss(),
        plan,
        server_learning_rate=0.1,
        allow_unprotected_metrics=True,
    )
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'client_work/not_covered/train/loss'
    ):
      certification.certify(process, plan)
    # Nothing checks the process where its plan alone states the guarantee.
    stated = process.plan.statement(delta=1e-6)
    self.assertIn('to all that the adversary sees', stated.warnings[-1])
    self.assertIn(
        'metrics without noise does not follow this plan',
        stated.points['release']['not_covered'],
    )

  def test_random_allocation(self):
    protocol = allocation.RandomAllocation(processes.NUM_ROUNDS)
    plan = tff_dp.AllocationPlan(
        protocol, noise_multiplier=2.0, l2_norm_clip=0.5
    )
    ours = allocation.build_allocation_sgd(
        small_model.build(), plan, clients_per_slot=2, server_learning_rate=0.1
    )
    certificate = certification.certify(ours, plan)
    self.assertEmpty(certificate.not_covered)
    output = ours.next(ours.initialize(), [])
    certificate.check(output.state, output.metrics, rounds_done=1)
    self.assertEqual(
        float(output.metrics['aggregator']['noise_stddev']), 2.0 * 0.5 / 2
    )
    theirs = processes.of_aggregator(plan.aggregator(clients_per_round=2))
    found = certification.certify(theirs)
    self.assertEqual(found.plan, plan)
    self.assertEqual(found.release, certificate.release)
    for changes in (dict(noise_multiplier=100.0), dict(l2_norm_clip=0.01)):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
        certification.certify(theirs, dataclasses.replace(plan, **changes))


if __name__ == '__main__':
  absltest.main()
