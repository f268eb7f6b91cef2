# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What all plans have in common."""

import dataclasses
import inspect
import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.plans import curves
import tff_dp
from tff_dp import _checks
from tff_dp import draws
from tff_dp import plans
from tff_dp import systems
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

_FIELDS = (
    'kind',
    'schema_version',
    'epsilon',
    'delta',
    'epsilon_no_amplification',
    'unit',
    'neighboring_relation',
    'trust',
    'assumptions',
    'warnings',
    'plan',
)
_SCHEDULE = tff_dp.participation.MinSeparation(6, min_index_gap=3)


def _dp_ftrl():
  return plans.DpFtrlPlan(
      tff_dp.mechanisms.HonakerTree(6),
      _SCHEDULE,
      l2_norm_clip=0.5,
      clients_per_round=4,
      noise_multiplier=2.0,
  )


def _check_ins():
  return tff_dp.CheckInPlan(
      tff_dp.check_ins.ShuffledCheckIn(
          num_rounds=6, check_in_rate=0.1, min_num_clients=1000
      ),
      tff_dp.mechanisms.randomizers.Sphere(1.0, l2_norm_clip=0.1),
  )


def _draw_and_discard():
  return plans.DrawAndDiscardPlan(
      step=tff_dp.draw_and_discard.ClientStep(
          learning_rate=0.1,
          clip='l2',
          mechanism='gaussian',
          epsilon=2.0,
          delta=1e-6,
      ),
      num_params=4,
      num_instances=5,
      max_participations=2,
      num_rounds=6,
  )


def _non_private():
  return plans.NonPrivatePlan(_SCHEDULE, clients_per_round=4)


def _silos():
  sampling = silo_sampling.PoissonSampling(4)
  phase = silo_terms.Phase(sampling, 0, 40, 6, 0.5)
  return plans.SiloPlan(
      {'north': silo_budget.SiloBudget(40, None, 1e-4)},
      {'north': silo_terms.SiloTerms(40, 1.0, (phase,))},
  )


def _secure_sums():
  return plans.SecureSumPlan(
      {'north': 12, 'south': 15},
      integer_plans.SkellamPlan(
          grid=16, records_per_silo=2, min_silos=2, variance=900.0
      ),
      num_rounds=6,
      l2_norm_clip=1.0,
      dimension=4,
  )


_PLANS = (
    _dp_ftrl, _check_ins, _draw_and_discard, _non_private, _silos, _secure_sums
)


def _numbers(value, name=''):
  """Yields (name, number) of every leaf of a point of a statement."""
  if isinstance(value, (dict, list)):
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in pairs:
      yield from _numbers(each, f'{name}.{key}' if name else str(key))
  else:
    yield name, value


class PlansTest(parameterized.TestCase):

  @parameterized.parameters(*_PLANS)
  def test_headline_has_the_same_fields(self, make):
    plan = make()
    found = plan.headline(delta=1e-5)
    self.assertEqual(tuple(found), _FIELDS)
    self.assertEqual(found['kind'], plan.kind)
    self.assertIs(systems.of(plan.kind).plan(), type(plan))
    # Plain JSON, without infinities.
    json.dumps(found, allow_nan=False)
    stopped = plan.headline(delta=1e-5, num_rounds=1)
    if found['epsilon'] != 'inf':
      if make is _secure_sums:
        # No record is in two sums.
        self.assertEqual(stopped['epsilon'], found['epsilon'])
      else:
        self.assertLess(stopped['epsilon'], found['epsilon'])
      self.assertLessEqual(
          found['epsilon'], found['epsilon_no_amplification']
      )
    else:
      self.assertStartsWith(found['warnings'][0], base.NO_PRIVACY)

  @parameterized.product(make=_PLANS, num_rounds=(None, 1))
  def test_details_are_plain_and_agree_with_the_headline(
      self, make, num_rounds
  ):
    plan = make()
    found = plan.details(delta=1e-5, num_rounds=num_rounds, population=1000)
    json.dumps(found, allow_nan=False)
    headline = plan.headline(delta=1e-5, num_rounds=num_rounds)
    if 'epsilon_by_neighboring_relation' in found:
      self.assertEqual(
          found['epsilon_by_neighboring_relation'][
              plan.neighboring_relation.value
          ],
          headline['epsilon'],
      )
    for row in found.get('candidates', ()):
      if row['bound'] == found['bound']:
        self.assertEqual(row['epsilon'], headline['epsilon'])
    for name, text in plan.details_in_words(found) or ():
      self.assertNotIn('None', name + text)

  @parameterized.parameters(2.0, 0.12)
  def test_headline_under_another_relation(self, noise_multiplier):
    allocation = tff_dp.allocation.RandomAllocation(6)
    # Has assumptions of its own.
    cyclic = tff_dp.allocation.CyclicAllocation(6, 1, stride=2)
    central = {'noise_multiplier': noise_multiplier, 'l2_norm_clip': 1.0}
    for plan in (
        dataclasses.replace(_dp_ftrl(), noise_multiplier=noise_multiplier),
        plans.AllocationPlan(allocation, **central),
        plans.AllocationPlan(cyclic, **central),
    ):
      options = {'delta': 1e-5, 'neighboring_relation': 'replace_one'}
      found, own = plan.headline(**options), plan.headline(delta=1e-5)
      # Also where draws end too early for any finite epsilon.
      self.assertEqual(
          float(found['epsilon']), plan.epsilon(**options)
      )
      self.assertEqual(found['neighboring_relation'], 'replace_one')
      self.assertGreater(float(found['epsilon']), float(own['epsilon']))
      self.assertLessEqual(
          float(found['epsilon']), float(found['epsilon_no_amplification'])
      )
      self.assertLen(found['assumptions'], len(own['assumptions']))

  def test_headline_warns_of_a_delta_above_one_over_the_population(self):
    for plan in (_dp_ftrl(), _check_ins()):
      known = plan.headline(delta=1e-5, population=100_000)
      self.assertStartsWith(known['warnings'][0], 'WEAK: delta')
      self.assertEqual(
          plan.headline(delta=1e-5, population=99_999),
          plan.headline(delta=1e-5),
      )

  @parameterized.parameters(
      *(make for make in _PLANS if make is not _non_private)
  )
  def test_a_plan_is_calibrated_for_a_delta_that_can_be_stated(self, make):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'delta=0.5 .* at most 0.1'
    ):
      make().calibrated(epsilon=1.0, delta=0.5)

  @parameterized.parameters(*_PLANS)
  def test_other_names_lead_to_ours(self, make):
    plan = make()
    for call, message in (
        (lambda: type(plan)(eps=2.0), r'plan.calibrated\(epsilon=...'),
        (lambda: type(plan)(foo=2.0), rf'{type(plan).__name__}\('),
        (lambda: plan.epsilon(target_delta=1e-5), 'delta$'),
        (lambda: plan.epsilon(1e-5), r'epsilon\('),
        (lambda: plan.calibrated(target_epsilon=2.0, delta=1e-5), 'epsilon$'),
        (lambda: plan.calibrated(2.0, 1e-5), r'calibrated\(epsilon=..., delta='),
    ):
      with self.assertRaisesRegex(TypeError, f'\ntry: {message}'):
        call()
    with self.assertRaisesRegex(AttributeError, '\ntry: epsilon$'):
      plan.get_epsilon(1e-5)
    with self.assertRaisesRegex(AttributeError, "attribute 'foo'$"):
      plan.foo  # pylint: disable=pointless-statement
    self.assertEqual(
        plan.epsilon(delta=np.array(1e-5)), plan.epsilon(delta=1e-5)
    )
    self.assertCountEqual(
        inspect.signature(type(plan)).parameters,
        [each.name for each in dataclasses.fields(plan) if each.init],
    )

  def test_an_error_inside_of_a_call_stays_as_it_is(self):
    with self.assertRaises(TypeError) as caught:
      _dp_ftrl().epsilon(delta=1e-5, also=3)
    self.assertNotIn('try:', str(caught.exception))

  @parameterized.parameters(*_PLANS)
  def test_statement_begins_with_the_headline(self, make):
    curves.spare(self)
    plan = make()
    content = plan.statement(delta=1e-5).to_json()
    self.assertEqual(tuple(content), ('schema', *_FIELDS, 'points'))
    headline = plan.headline(delta=1e-5)
    unchecked = [] if plan.voids else [builder.UNCHECKED]
    self.assertEqual(
        {name: content[name] for name in _FIELDS},
        headline | {'warnings': headline['warnings'] + unchecked},
    )
    guarantee = content['points']['guarantee']
    self.assertEqual(guarantee['epsilon'], headline['epsilon'])
    self.assertEqual(guarantee['epsilon_planned'], headline['epsilon'])
    known = plan.statement(delta=1e-5, insecure_seed=True).to_json()
    for name in ('epsilon', 'epsilon_no_amplification'):
      self.assertEqual(known[name], 'inf')
    self.assertIn('known seed', known['warnings'][0])
    self.assertEqual(
        known['points']['guarantee']['epsilon_if_key_were_secret'],
        headline['epsilon'],
    )

  @parameterized.product(make=_PLANS, rounds_done=(None, 2))
  def test_known_seed_leaves_no_finite_number(self, make, rounds_done):
    observed = None if rounds_done is None else builder.RoundsDone(rounds_done)
    known = make().statement(
        delta=1e-5, observed=observed, insecure_seed=True
    )
    found = dict(_numbers(known.points['guarantee']))
    found.pop('epsilon_if_key_were_secret')
    of_noise = {
        name: value
        for name, value in found.items()
        if 'epsilon' in name.rpartition('.')[2] or name == 'zcdp_rho'
    }
    self.assertGreaterEqual(len(of_noise), 4)
    for name, value in of_noise.items():
      self.assertEqual(value, 'inf', name)
    self.assertEqual(found.get('sigma_eff', 0), 0)

  @parameterized.parameters(*_PLANS)
  def test_statement_of_a_run_is_of_the_rounds_that_have_begun(self, make):
    plan, where = make(), dict(delta=1e-5)
    points = plan.statement(
        **where, observed=builder.RoundsDone(2)
    ).points
    guarantee = points['guarantee']
    for name, epsilon in (
        ('epsilon', plan.epsilon_after(2, **where)),
        ('epsilon_planned', plan.epsilon(**where)),
    ):
      self.assertEqual(float(guarantee[name]), epsilon, name)
    self.assertEqual(
        float(points['amplification']['epsilon_without']),
        plan.epsilon_no_amplification(num_rounds=2, **where),
    )
    tails = 0.0
    if plan.draws_end:
      tails = draws.missing_delta(float(guarantee['epsilon']))
    elif plan.kind == 'secure_sums':
      factor = 1 + math.exp(float(guarantee['epsilon']))
      tails = factor * plan.sums.distance(dimension=plan.dimension)
    self.assertEqual(guarantee['delta_of_tails'], tails)
    self.assertEqual(points['mechanism']['rounds_done'], 2)
    self.assertEqual(points['mechanism']['rounds_planned'], 6)
    for row in guarantee['curve']:
      at = dict(delta=row['delta'])
      self.assertEqual(float(row['epsilon_planned']), plan.epsilon(**at))
      if plan.curve_has_rounds_done:
        self.assertEqual(float(row['epsilon']), plan.epsilon_after(2, **at))

  @parameterized.parameters(*_PLANS)
  def test_description_is_the_plan(self, make):
    plan = make()
    described = json.loads(json.dumps(plan.describe()))
    again = plans.from_description(described)
    self.assertEqual(again, plan)
    self.assertEqual(again.fingerprint, plan.fingerprint)
    with self.assertRaisesRegex(ValueError, "kind='trust me'"):
      plans.from_description(described | {'kind': 'trust me'})

  @parameterized.parameters(*_PLANS)
  def test_events_are_of_the_rounds(self, make):
    events = make().events_json(delta=1e-5, num_rounds=2)
    self.assertEqual(events['events'][0]['rounds'], 2)
    for rounds in (0, 7):
      with self.assertRaisesRegex(ValueError, 'num_rounds'):
        make().events_json(delta=1e-5, num_rounds=rounds)


if __name__ == '__main__':
  absltest.main()
