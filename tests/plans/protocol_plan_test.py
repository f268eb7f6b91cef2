# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plans whose clients decide themselves."""

import dataclasses
import json
import math
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest
import scipy.linalg

from tests.plans import curves
import tff_dp
from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.mechanisms import randomizers
from tff_dp.participation import monitoring
from tff_dp.plans import coarse_plan
from tff_dp.statement import builder
from tff_dp.statement import declarations
from tff_dp.statement import statement

pytestmark = pytest.mark.once

_DELTA = 1e-5
_SPHERE = randomizers.Sphere(1.0, 0.5)
_FIXED = check_ins.FixedWindowCheckIn(400, 0.2)
_SHUFFLED = check_ins.ShuffledCheckIn(30, 0.1, 5000)


def _plan(protocol=_SHUFFLED, randomizer=_SPHERE, **options):
  return tff_dp.CheckInPlan(protocol, randomizer, **options)


def _central(protocol, noise_multiplier=1.0, l2_norm_clip=0.5, **options):
  return tff_dp.AllocationPlan(
      protocol,
      noise_multiplier=noise_multiplier,
      l2_norm_clip=l2_norm_clip,
      **options,
  )


_PLANS = (
    _plan(),
    _plan(
        check_ins.ShuffledCheckIn(30, 0.1, 5000, 0.5, True),
        randomizers.RandomizedResponse(1.0, 4),
    ),
    _plan(_FIXED, num_passes=2),
    _plan(_FIXED, randomizers.Laplace(0.5, 2.0)),
    _plan(check_ins.SlidingWindowCheckIn(900, 400)),
    _plan(
        check_ins.AveragedCheckIn(400, 10_000),
        randomizers.Sphere(0.1, 1.0),
        num_passes=2,
    ),
    _central(allocation.RandomAllocation(100), num_passes=2),
    _central(allocation.RandomAllocation(100, 2, 0.5)),
    _plan(_FIXED, randomizers.Gaussian(8.0, 1.0), bound='thinning'),
)


class PlanTest(parameterized.TestCase):

  @parameterized.parameters(
      (dict(protocol='shuffle'), 'protocol='),
      (dict(randomizer=1.0), 'randomizer=1.0'),
      (dict(num_passes=0), 'num_passes=0'),
      (dict(num_passes=2), 'num_passes=2 .* one pass'),
      (dict(bound='published'), "bound='published'"),
      (dict(published_proofs='no'), "published_proofs='no'"),
  )
  def test_bad_argument_is_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _plan(**changes)

  def test_noise_in_the_wrong_place_is_refused(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'who else came'):
      _central(_FIXED)
    for protocol in (_SHUFFLED, check_ins.AveragedCheckIn(5, 10)):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'not defined with noise at the server'
      ):
        _central(protocol)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'RandomAlloc'):
      _plan(allocation.RandomAllocation(5), _SPHERE)

  @parameterized.parameters(*_PLANS)
  def test_description_makes_the_plan_again(self, plan):
    text = json.dumps(plan.describe())
    made = type(plan).from_description(json.loads(text))
    self.assertEqual(made, plan)
    self.assertEqual(made.fingerprint, plan.fingerprint)
    for field, value in (('published_proofs', True), ('bound', 'none')):
      other = dataclasses.replace(plan, **{field: value})
      self.assertNotEqual(other.fingerprint, plan.fingerprint)

  def test_event_is_that_of_the_protocol(self):
    event = _SHUFFLED.dp_event(_SPHERE.event)
    self.assertEqual(_plan().event(), event)
    self.assertEqual(
        _plan(_FIXED, num_passes=3).event(),
        dp_accounting.SelfComposedDpEvent(_FIXED.dp_event(_SPHERE.event), 3),
    )
    self.assertEqual(
        _plan(_FIXED, num_passes=3).event(num_rounds=900),
        dp_accounting.ComposedDpEvent([
            dp_accounting.SelfComposedDpEvent(
                _FIXED.dp_event(_SPHERE.event), 2
            ),
            _FIXED.dp_event(_SPHERE.event, num_rounds=100),
        ]),
    )
    self.assertEqual(
        _plan(_FIXED, num_passes=3).event(num_rounds=400),
        _FIXED.dp_event(_SPHERE.event),
    )
    protocol = allocation.RandomAllocation(100)
    self.assertEqual(
        _central(protocol).event(),
        protocol.dp_event(dp_accounting.GaussianDpEvent(1.0)),
    )

  def test_facts(self):
    plan = _plan(_FIXED, num_passes=3)
    self.assertEqual(plan.num_rounds, 1200)
    self.assertTrue(plan.is_local)
    self.assertEqual(
        plan.neighboring_relation, run_events.NeighboringRelation.REPLACE_ONE
    )
    plan = _central(allocation.RandomAllocation(100))
    self.assertFalse(plan.is_local)
    self.assertEqual(plan.mechanism.num_rounds, 100)
    self.assertEqual(
        plan.neighboring_relation, run_events.NeighboringRelation.ZERO_OUT
    )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'no noise at'):
      _plan().aggregator(clients_per_round=3)

  @parameterized.parameters(*_PLANS)
  # Another plan of the same protocol is calibrated.
  @pytest.mark.slow(cases=['1', '7'])
  def test_calibrated_to_the_least_noise(self, plan):
    made = plan.calibrated(epsilon=0.7, delta=_DELTA)
    self.assertLessEqual(made.epsilon(delta=_DELTA), 0.7)
    noise_of = lambda one: one.randomizer if one.is_local else one
    (field,) = {'noise_multiplier', 'local_epsilon'} & {
        field.name for field in dataclasses.fields(noise_of(plan))
    }

    def replaced(value):
      changed = dataclasses.replace(noise_of(made), **{field: value})
      if not plan.is_local:
        return changed
      return dataclasses.replace(made, randomizer=changed)

    # Nothing else changed, and a little less noise is not enough.
    found = getattr(noise_of(made), field)
    self.assertEqual(replaced(getattr(noise_of(plan), field)), plan)
    less = found * (0.999 if field == 'noise_multiplier' else 1.001)
    self.assertGreater(replaced(less).epsilon(delta=_DELTA), 0.7)

  def test_calibrated_for_the_other_relation(self):
    plan = _central(allocation.RandomAllocation(100))
    budget = dict(epsilon=0.7, delta=_DELTA)
    relation = run_events.NeighboringRelation.REPLACE_ONE
    other = dict(neighboring_relation=relation)
    made = plan.calibrated(**budget, **other)
    self.assertBetween(made.epsilon(delta=_DELTA, **other), 0.69, 0.7)
    self.assertGreater(
        made.noise_multiplier, plan.calibrated(**budget).noise_multiplier
    )

  def test_budgets_that_no_noise_meets_are_refused(self):
    plan = _plan(_FIXED, randomizers.Gaussian(8.0, 1.0), bound='none')
    with mock.patch.object(coarse_plan, '_MOST_NOISE', 10.0):
      for epsilon in (0.0, math.inf, 0.1):
        message = f'epsilon={epsilon} is not allowed'
        with self.assertRaisesRegex(_checks.ArgumentError, message):
          plan.calibrated(epsilon=epsilon, delta=_DELTA)

  @parameterized.parameters(*_PLANS)
  def test_epsilon_is_amplified_and_never_above_none(self, plan):
    certificate = plan.certificate(delta=_DELTA)
    without = best_bound.amplify(
        plan.event(),
        delta=_DELTA,
        bound='none',
        neighboring_relation=plan.neighboring_relation,
    ).epsilon
    self.assertLess(plan.epsilon(delta=_DELTA), without)
    self.assertNotEqual(certificate.bound, 'none')
    self.assertEqual(
        dataclasses.replace(plan, bound='none').epsilon(delta=_DELTA), without
    )
    if plan.bound == 'best':
      self.assertEqual(
          certificate,
          best_bound.amplify(
              plan.event(),
              delta=_DELTA,
              neighboring_relation=plan.neighboring_relation,
          ),
      )
      # Never larger with more allowed.
      self.assertLessEqual(
          certificate.epsilon,
          dataclasses.replace(plan, published_proofs=True).epsilon(
              delta=_DELTA
          ),
      )

  @parameterized.parameters(*_PLANS)
  def test_epsilon_of_a_stopped_run(self, plan):
    whole = plan.epsilon(delta=_DELTA)
    previous = 0.0
    rounds = sorted({1, 2, plan.num_rounds // 3, plan.num_rounds - 1})
    for num_rounds in rounds + [plan.num_rounds]:
      found = plan.epsilon_after(num_rounds, delta=_DELTA)
      accounted = plan.rounds_accounted(num_rounds)
      self.assertBetween(accounted, num_rounds, plan.num_rounds)
      exact = plan.epsilon(delta=_DELTA, num_rounds=num_rounds)
      self.assertGreaterEqual(found, min(exact, whole) * (1 - 1e-3))
      self.assertGreaterEqual(found, previous)
      self.assertLessEqual(found, whole)
      previous = found
    self.assertEqual(previous, whole)

  @parameterized.parameters((None, 30), (7, 7))
  def test_without_a_delta_pure_reports_add_up(self, num_rounds, reports):
    plan = _plan(randomizer=randomizers.Sphere(2.0, 0.5))
    pure = plan.epsilon(delta=0, num_rounds=num_rounds)
    self.assertEqual(pure, 2.0 * reports)
    # A delta only helps.
    self.assertLess(plan.epsilon(delta=1e-12, num_rounds=num_rounds), pure)

  def test_one_report_a_client_and_pass(self):
    plan = _plan(_FIXED, num_passes=2)
    self.assertEqual(plan.epsilon(delta=0), 2.0)
    self.assertEqual(plan.epsilon(delta=0, num_rounds=400), 1.0)
    self.assertEqual(plan.epsilon(delta=0, num_rounds=401), 2.0)

  @parameterized.parameters(
      randomizers.Gaussian(2.0, 0.5),
      randomizers.Laplace(2.0, 0.5),
      randomizers.Declared(2.0, 1e-9),
  )
  def test_without_a_delta_others_are_refused(self, randomizer):
    with self.assertRaisesRegex(_checks.ArgumentError, 'delta=0'):
      _plan(randomizer=randomizer).epsilon(delta=0)

  def test_stops_are_few_and_the_last_is_the_whole_run(self):
    plan = _plan(check_ins.ShuffledCheckIn(6800, 0.1, 60_000))
    stops = {plan.rounds_accounted(t) for t in range(1, 6801)}
    self.assertLessEqual(len(stops), 64)
    self.assertIn(6800, stops)
    self.assertEqual(plan.rounds_accounted(6800), 6800)
    short = _plan()
    self.assertEqual(
        [short.rounds_accounted(t) for t in range(1, 31)], list(range(1, 31))
    )
    for bad in (0, 31):
      with self.assertRaisesRegex(ValueError, f'num_rounds={bad}'):
        short.rounds_accounted(bad)


class NumbersTest(parameterized.TestCase):

  def test_expected_reports(self):
    fixed = _plan(
        check_ins.FixedWindowCheckIn(20, 0.5), num_passes=3
    )
    # Nobody is in a slot with probability (1 - 0.5 / 20)^40.
    self.assertAlmostEqual(
        fixed.expected_dummy_updates(40), 3 * 20 * (1 - 0.5 / 20) ** 40
    )
    self.assertEqual(fixed.protocol.expected_clients_per_step(40), 1.0)
    sliding = _plan(check_ins.SlidingWindowCheckIn(50, 10))
    self.assertAlmostEqual(
        sliding.expected_dummy_updates(50), 41 * 0.9**10
    )
    # More or fewer clients than steps, one by one.
    for population in (3, 17, 120):
      windows = [
          sliding.protocol.windows(position, None)[0][1]
          for position in range(population)
      ]
      self.assertAlmostEqual(
          sliding.expected_dummy_updates(population),
          sum(
              0.9 ** sum(step in window for window in windows)
              for step in range(10, 51)
          ),
      )
    self.assertIsNone(sliding.protocol.expected_clients_per_step(50))
    self.assertIsNone(_plan().expected_dummy_updates(50))
    self.assertIsNone(_plan().protocol.expected_clients_per_step(50))
    twice = _central(allocation.RandomAllocation(20, 2))
    self.assertEqual(twice.protocol.expected_clients_per_step(40), 4.0)
    # Two windows of 30 rounds, and 12 clients come in both.
    cyclic = _central(allocation.CyclicAllocation(60, 2, stride=3))
    self.assertAlmostEqual(cyclic.protocol.expected_clients_per_step(12), 2 * 12 / 60)
    self.assertIsNone(cyclic.expected_dummy_updates(12))

  @parameterized.parameters(1, 3)
  def test_noise_on_the_sums_so_far(self, num_bands):
    bands = mechanisms.Banded.square_root(12, num_bands)
    plan = _central(
        allocation.CyclicAllocation(12, 2, stride=3),
        noise_multiplier=2.5,
        mechanism=bands,
    )
    # Row t of A C^-1 has the coefficients of the noise in the sum of 1..t.
    c = scipy.linalg.toeplitz(bands.column(12), np.zeros(12))
    rows = np.tril(np.ones((12, 12))) @ np.linalg.inv(c)
    stddevs = 2.5 * np.linalg.norm(rows, axis=1)
    rmse, largest = plan.prefix_errors()
    self.assertAlmostEqual(rmse, np.sqrt(np.mean(stddevs**2)))
    self.assertAlmostEqual(largest, np.max(stddevs))

  @parameterized.parameters(*_PLANS)
  def test_published_proofs_are_all_that_is_used(self, plan):
    curves.spare(self)
    plan = dataclasses.replace(plan, published_proofs=True, bound='best')
    expected = best_bound.amplify(
        plan.event(),
        delta=_DELTA,
        neighboring_relation=plan.neighboring_relation,
        published_proofs=True,
    )
    self.assertEqual(plan.certificate(delta=_DELTA), expected)
    points = plan.statement(delta=_DELTA).points['accounting']
    self.assertEqual(points['derived_bounds'], 'not used')

  def test_derived_bounds_help(self):
    # Otherwise the test above would see nothing.
    plan = _plan(_FIXED, randomizers.Gaussian(8.0, 1.0))
    published = dataclasses.replace(plan, published_proofs=True)
    self.assertLess(
        plan.epsilon(delta=_DELTA), 0.9 * published.epsilon(delta=_DELTA)
    )

  def test_epsilon_by_bound_computes_slow_ones_too(self):
    plan = _plan(check_ins.ShuffledCheckIn(2, 0.1, 300))
    certificate = plan.certificate(delta=_DELTA)
    found = plan.epsilon_by_bound(delta=_DELTA)
    skipped = [
        each.bound
        for each in certificate.candidates
        if each.reason.startswith('not computed')
    ]
    self.assertNotEmpty(skipped)
    for name in skipped:
      self.assertLess(found[name], math.inf)
    for each in certificate.candidates:
      if each.bound not in skipped:
        self.assertEqual(found[each.bound], each.epsilon)


class BudgetTest(parameterized.TestCase):

  def test_refuses_the_round_beyond(self):
    plan = _plan()
    allowed = plan.epsilon_after(10, delta=_DELTA)
    budget = plan.ledger(epsilon=allowed, delta=_DELTA)
    self.assertEqual(budget.num_rounds, 30)
    self.assertEqual(budget.epsilon_after(0), 0.0)
    self.assertEqual(budget.rounds_left(0), 10)
    for round_index in range(1, 11):
      record = budget.record(round_index)
    self.assertEqual(record['epsilon'], allowed)
    self.assertEqual(record['neighboring_relation'], 'replace_one')
    self.assertEqual(record['rounds_accounted'], 10)
    json.dumps(record, allow_nan=False)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 11 would spend epsilon'
    ) as raised:
      budget.check(11)
    self.assertIn('amplified by the protocol', raised.exception.why)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      budget.check(31)


class StatementTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    curves.spare(self)

  @parameterized.parameters(*_PLANS)
  def test_is_complete_and_reads_back(self, plan):
    found = plan.statement(
        delta=_DELTA,
        declarations=declarations.Declarations(population=5000),
    )
    self.assertEqual(found.kind, plan.kind)
    self.assertEqual(found.epsilon, plan.epsilon(delta=_DELTA))
    self.assertEqual(found.delta, _DELTA)
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    self.assertEqual(statement.PrivacyStatement.from_json(content), found)
    page = found.to_markdown()
    self.assertIn(f'amplified: {plan.protocol.name}', page)
    self.assertIn(plan.protocol.trust, page)
    self.assertNotIn('without amplification.', page)
    points = found.points
    self.assertGreater(
        points['amplification']['epsilon_without'], found.epsilon
    )
    self.assertNotEmpty(points['amplification']['assumptions'])
    self.assertEqual(
        points['adjacency']['relation'], plan.neighboring_relation.value
    )
    for name in statement.required_names(plan.kind)['accounting']:
      removed = json.loads(json.dumps(found.points))
      del removed['accounting'][name]
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, name):
        statement.PrivacyStatement(found.headline, removed)

  @parameterized.parameters(
      (_plan, _SHUFFLED, 1, 30),
      (_plan, _FIXED, 1, 1),
      (_plan, _FIXED, 2, 2),
      (_central, allocation.RandomAllocation(10, 2, 0.5), 2, 4),
  )
  def test_a_client_takes_part_in_every_pass(
      self, build, protocol, num_passes, most
  ):
    # Without amplification, which has nothing to do with it.
    plan = build(protocol, num_passes=num_passes, bound='none')
    points = plan.statement(delta=_DELTA).points
    self.assertEqual(points['unit']['max_participations'], most)
    self.assertEqual(points['mechanism']['passes'], num_passes)
    self.assertEqual(
        points['mechanism']['rounds_planned'],
        num_passes * protocol.num_rounds,
    )

  @parameterized.parameters(
      (_SHUFFLED, 'g = 0.1, the probability of the coin that clients flip'),
      (
          # Half of the reports are lost, and the guarantee counts on it.
          check_ins.ShuffledCheckIn(30, 0.1, 5000, 0.5, True),
          'g = 0.05, the probability of the coin that clients flip (0.1) less a'
          ' share of 0.5 that is lost independently of everything: assumed',
      ),
      (
          # They are lost, but nothing rests on it.
          check_ins.ShuffledCheckIn(30, 0.1, 5000, 0.5),
          'g = 0.1, the probability of the coin that clients flip',
      ),
      (_FIXED, 'p0 = 0.2, the probability of the coin that clients flip'),
      (
          check_ins.SlidingWindowCheckIn(900, 400),
          'p0 = 1, the probability of the coin that clients flip',
      ),
  )
  def test_rate_is_the_one_that_is_accounted_for(self, protocol, said):
    mechanism = _plan(protocol).statement(delta=_DELTA).points['mechanism']
    self.assertEqual(mechanism['check_in_rate'], said)

  @parameterized.parameters(
      (
          randomizers.Sphere(1.5, 0.5),
          'epsilon0 = 1.500, delta0 = 0, of',
          'L2 norm at most 0.5,',
      ),
      (
          randomizers.Laplace(0.5, 2.0),
          'epsilon0 = 0.5000, delta0 = 0, of',
          'L1 norm at most 2,',
      ),
      (
          randomizers.Gaussian(8.0, 3.0),
          'Gaussian noise of 8 clip norms on a difference of two',
          'L2 norm at most 3,',
      ),
      (
          randomizers.RandomizedResponse(1.0, 4),
          'epsilon0 = 1.000, delta0 = 0, of',
          'one of the categories',
      ),
      (
          # Neither is said below its value.
          randomizers.Declared(0.75001, 1.00001e-9),
          'epsilon0 = 0.7501, delta0 = 1.001e-9, of',
          'whatever the declared randomizer makes',
      ),
  )
  def test_report_is_that_of_the_randomizer(self, randomizer, guarantee, bound):
    points = _plan(randomizer=randomizer).statement(delta=_DELTA).points
    self.assertIn(guarantee, points['mechanism']['local_guarantee'])
    self.assertIn(bound, points['unit']['contribution_bound'])

  def test_replace_one_beside_zero_out(self):
    plan = _central(allocation.RandomAllocation(100))
    guarantee = plan.statement(delta=_DELTA).points['guarantee']
    self.assertGreater(guarantee['epsilon_replace_one'], guarantee['epsilon'])
    guarantee = _plan().statement(delta=_DELTA).points['guarantee']
    self.assertEqual(guarantee['epsilon_replace_one'], guarantee['epsilon'])

  def test_of_a_run_so_far(self):
    rate = monitoring.RealisedRate(0.11, 0.09, 0.13)
    found = _plan().statement(
        delta=_DELTA,
        observed=monitoring.Observed(
            10, rounds_counted=9, num_reports=4950, rate=rate, warning='LATE.'
        ),
    )
    self.assertEqual(found.epsilon, _plan().epsilon_after(10, delta=_DELTA))
    self.assertEqual(found.points['mechanism']['rounds_done'], 10)
    # A report in every round: ten times the epsilon of one, at most.
    self.assertBetween(
        found.points['amplification']['epsilon_without'], 9.999, 10.0
    )
    self.assertEqual(
        found.points['guarantee']['epsilon_planned'],
        _plan().epsilon(delta=_DELTA),
    )
    realised = found.points['implementation']['realised_participation']
    self.assertIn('4950 reports in 9 rounds, a rate of 0.11', realised)
    self.assertIn('LATE.', found.warnings)
    page = found.to_markdown()
    self.assertIn('10 of 30 planned rounds are done', page)
    self.assertIn('**LATE.**', page)

  @parameterized.parameters(
      (_SHUFFLED, 10, 10),
      # 7 rounds at a time, of which epsilon is that of the last.
      (_FIXED, 10, 14),
      (_FIXED, None, 400),
  )
  def test_names_the_rounds_that_epsilon_counts(self, protocol, done, counted):
    plan = _plan(protocol)
    observed = None if done is None else builder.RoundsDone(done)
    found = plan.statement(delta=_DELTA, observed=observed)
    self.assertStartsWith(
        found.points['accounting']['rounds_accounted'], f'{counted}: '
    )
    self.assertEqual(
        found.points['amplification']['epsilon_without'],
        plan.epsilon_no_amplification(delta=_DELTA, num_rounds=counted),
    )

  @parameterized.parameters(*_PLANS)
  def test_assumptions_of_bound_and_protocol_are_both_there(self, plan):
    points = plan.statement(delta=_DELTA).points
    self.assertEqual(
        points['amplification']['assumptions'],
        list(plan.assumptions(delta=_DELTA)),
    )
    self.assertContainsSubset(
        plan.protocol.assumptions, points['amplification']['assumptions']
    )

  @parameterized.parameters(
      (_SHUFFLED, 'and the number of reports of every step'),
      (_FIXED, 'nothing about who or how many checked in when'),
  )
  def test_number_of_reports_is_covered_unless_it_is_secret(
      self, protocol, said
  ):
    points = _plan(protocol).statement(delta=_DELTA).points
    self.assertEndsWith(points['release']['covered'], said)

  def test_noise_of_the_server_is_described(self):
    central = _central(allocation.RandomAllocation(100))
    section = central.statement(delta=_DELTA).points['mechanism']
    self.assertEqual(section['server_noise']['name'], 'independent')
    section = _plan().statement(delta=_DELTA).points['mechanism']
    self.assertNotIn('server_noise', section)

  def test_secret_occupancy_is_not_described(self):
    found = _plan(_FIXED).statement(
        delta=_DELTA, observed=monitoring.Observed(10, 10)
    )
    self.assertIn(
        'is secret', found.points['implementation']['realised_participation']
    )

  def test_warnings(self):
    known = _plan().statement(delta=_DELTA, insecure_seed=True)
    self.assertStartsWith(known.warnings[0], 'NO PRIVACY')
    self.assertEqual(known.epsilon, math.inf)
    # Who reports what without noise has no guarantee of a single report.
    self.assertEqual(known.points['amplification']['epsilon_without'], 'inf')
    self.assertEqual(
        known.points['guarantee']['epsilon_if_key_were_secret'],
        _plan().epsilon(delta=_DELTA),
    )
    # Beyond what the theorems can help with.
    weak = _plan(
        check_ins.SlidingWindowCheckIn(5, 2), randomizers.Sphere(4.0, 1.0)
    ).statement(delta=_DELTA)
    self.assertStartsWith(weak.warnings[0], 'No amplification')
    self.assertEqual(weak.points['amplification']['claimed'], 'none')
    weak = _plan().statement(
        delta=0.1, declarations=declarations.Declarations(population=5000)
    )
    self.assertStartsWith(weak.warnings[0], 'WEAK: delta')

  def test_kind_must_be_known(self):
    headline = _plan().statement(delta=_DELTA).headline
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'setti'):
      statement.PrivacyStatement(headline, {})
    with self.assertRaisesRegex(_checks.ArgumentError, "kind='other'"):
      statement.PrivacyStatement(headline | {'kind': 'other'}, {})


if __name__ == '__main__':
  absltest.main()
