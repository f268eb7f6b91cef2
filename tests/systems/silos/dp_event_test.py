# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests that every builder yields the event of what its silos send."""

import collections
import functools

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import pytest

from tests.systems.silos import quadratic
from tests.systems.silos import toy
from tff_dp import _checks
from tff_dp import execution
from tff_dp import silos
from tff_dp.accounting import accountants
from tff_dp.accounting.protocols import best_bound
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import record_events
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_sampling

pytestmark = pytest.mark.once

_SIZE = 4
_SILOS = {
    'small': toy.SiloBudget(40, 1.0, 1e-3),
    'large': toy.SiloBudget(300, 4.0, 1e-5),
}
_ALL = dict(silos=_SILOS, l2_norm_clip=1.0)
_REPLACE_ONE = dict(method='pld', neighboring_relation='replace_one')


def setUpModule():
  execution.set_default_context()


def _sgd(sampling, **changes):
  return toy.build_sgd(
      toy.build_model(_SIZE),
      **dict(silos=_SILOS, num_rounds=3, sampling=sampling) | changes,
  )


def _erm():
  return silos.build_accelerated_mb_sgd_erm(
      toy.build_model(_SIZE),
      num_rounds=4,
      sampling=silo_sampling.PoissonSampling(10),
      gamma=2.0,
      **_ALL,
  )


def _one_pass():
  return silos.build_one_pass_accelerated_mb_sgd(
      toy.build_model(_SIZE), num_rounds=4, gamma=2.0, **_ALL
  )


def _localized(batch_share=0.5):
  return silos.build_localized_mb_sgd(
      toy.build_model(_SIZE),
      silos=_SILOS,
      lipschitz=1.0,
      regularization=0.1,
      rounds_per_phase=[3, 2],
      smoothness=1.0,
      batch_share=batch_share,
  )


def _local_sgd():
  return silos.build_isrl_local_sgd(
      toy.build_model(_SIZE),
      num_rounds=3,
      num_local_steps=2,
      learning_rate=0.1,
      **_ALL,
  )


@functools.cache
def _secure_sums(noise):
  """Returns the plan."""
  return toy.plan_of(
      lambda: silos.build_secure_sum_sgd(
          quadratic.model(),
          num_records={'a': 21, 'b': 21, 'c': 25},
          num_rounds=quadratic.ROUNDS,
          l2_norm_clip=20.0,
          epsilon=3.0,
          delta=1e-3,
          min_silos=2,
          gamma=2.0,
          noise=noise,
      )
  )


class IsrlTest(parameterized.TestCase):

  @parameterized.named_parameters(
      ('poisson', lambda: _sgd(silo_sampling.PoissonSampling(10)),
       dp_accounting.SelfComposedDpEvent),
      ('fixed', lambda: _sgd(silo_sampling.FixedSize(10)),
       dp_accounting.SelfComposedDpEvent),
      ('everything', lambda: _sgd(silo_sampling.FixedSize(40), silos={
          'small': _SILOS['small']}), dp_accounting.SelfComposedDpEvent),
      ('blocks', lambda: _sgd(silo_sampling.DisjointBlocks(10)),
       record_events.GaussianRecordDpEvent),
      ('erm', _erm, dp_accounting.SelfComposedDpEvent),
      ('one_pass', _one_pass, record_events.GaussianRecordDpEvent),
      ('localized', _localized, record_events.DisjointRecordsDpEvent),
      ('localized_all', lambda: _localized(1.0),
       dp_accounting.SelfComposedDpEvent),
      ('local_sgd', _local_sgd, dp_accounting.SelfComposedDpEvent),
  )
  def test_event_costs_what_the_plan_says(self, build, kind):
    plan = toy.plan_of(build)
    for name, budget in plan.silos.items():
      event = plan.event(member=name)
      self.assertIsInstance(event, kind)
      epsilon = plan.epsilon(member=name)
      found = accountants.epsilon(event, delta=budget.delta, **_REPLACE_ONE)
      self.assertEqual(found, epsilon)
      self.assertLessEqual(found, budget.epsilon)
      # What was sent, message by message.
      sent = collections.Counter()
      for index in range(plan.terms[name].num_rounds):
        sent[plan.terms[name].event(index)] += 1
        if not index:
          first = accountants.epsilon(
              silo_events.dp_event_of(sent), delta=budget.delta, **_REPLACE_ONE
          )
          self.assertLessEqual(first, epsilon * (1 + 1e-4))
      self.assertEqual(silo_events.dp_event_of(sent), event)

  def test_published_proofs(self):
    plan = toy.plan_of(
        lambda: _sgd(
            silo_sampling.PoissonSampling(10),
            silos={'small': _SILOS['small']},
            num_rounds=2,
            published_proofs=True,
        )
    )
    certificate = best_bound.amplify(
        plan.event(), delta=plan.silos['small'].delta, bound='convexity'
    )
    self.assertEqual(certificate.epsilon, plan.epsilon())

  def test_metrics_are_part_of_the_message(self):
    metric = silos.PrivateMetric('loss', upper_bound=4.0, share=0.25)
    plain, metrics = (
        toy.plan_of(
            lambda options=options: _sgd(
                silo_sampling.PoissonSampling(10), **options
            )
        )
        for options in ({}, {'private_metrics': [metric]})
    )
    self.assertEqual(
        metrics.event(member='small'), plain.event(member='small')
    )

  @parameterized.parameters(
      dict(allow_unprotected_metrics=True),
      dict(insecure_seed=3),
      dict(noise_stddev=0.0),
  )
  def test_what_voids_the_guarantee_has_no_privacy(self, **changes):
    plan = toy.plan_of(
        lambda: _sgd(silo_sampling.PoissonSampling(10), **changes)
    )
    self.assertEqual(
        plan.event(member='small'), dp_accounting.NonPrivateDpEvent()
    )

  def test_unknown_silo(self):
    plan = toy.plan_of(_one_pass)
    with self.assertRaisesRegex(_checks.ArgumentError, "member='other'"):
      plan.event(member='other')
    with self.assertRaisesRegex(_checks.ArgumentError, "member='other'"):
      plan.epsilon(member='other')
    # Each pays for itself.
    with self.assertRaisesRegex(_checks.ArgumentError, 'member=None'):
      plan.event()


class SumsTest(parameterized.TestCase):

  # Binomial noise takes long to calibrate; `test_factories` has it.
  @parameterized.parameters('skellam', 'discrete-gaussian')
  def test_secure_sums(self, noise):
    plan = _secure_sums(noise)
    event = plan.event(member='a')
    self.assertIsInstance(event, record_events.SumDpEvent)
    # The plan also counts what the tables of its draws miss.
    of_law = accountants.epsilon(event, delta=1e-3, **_REPLACE_ONE)
    self.assertBetween(plan.epsilon(delta=1e-3), of_law, of_law * (1 + 1e-6))
    with self.assertRaisesRegex(_checks.ArgumentError, "member='other'"):
      plan.event(member='other')

  def test_sums(self):
    plan = _secure_sums('skellam').sums
    event = plan.dp_event(dimension=6)
    # The promise counts, not the most silos there may be.
    self.assertAlmostEqual(event.variance, 2 * plan.variance)
    with self.assertRaisesRegex(_checks.ArgumentError, 'dimension=0'):
      plan.dp_event(dimension=0)
    binomial = integer_plans.BinomialPlan(
        grid=16, trials=500, records_per_silo=10, min_silos=3
    )
    event = binomial.dp_event(dimension=4)
    self.assertEqual(event, record_events.BinomialSumDpEvent(16, 500, 30, 4))
    of_law = accountants.epsilon(event, delta=1e-5, **_REPLACE_ONE)
    self.assertBetween(
        binomial.epsilon(1e-5, dimension=4), of_law, of_law * (1 + 1e-6)
    )


if __name__ == '__main__':
  absltest.main()
