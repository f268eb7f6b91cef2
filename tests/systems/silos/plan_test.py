# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the plan of silos that protect every record themselves."""

import collections
import dataclasses
import json
import math

from absl.testing import absltest
from absl.testing import parameterized
import dp_accounting
import numpy as np
import pytest

from tests.plans import curves
import tff_dp
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting import rounding
from tff_dp.statement import builder
from tff_dp.statement import statement
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_events
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

_DELTA = 1e-4
_RECORDS = {'north': 40, 'south': 60}
_POISSON = silo_sampling.PoissonSampling(4)


def _terms(num_records, phases, sigma, **changes):
  """Returns the terms of a silo; phases are (sampling, first, n, rounds)."""
  return silo_terms.SiloTerms(
      num_records,
      1.0,
      tuple(silo_terms.Phase(*phase, sigma) for phase in phases),
      **changes,
  )


def _plan(sampling=_POISSON, num_rounds=6, sigma=0.5, epsilon=None, **options):
  return tff_dp.SiloPlan(
      {
          name: silo_budget.SiloBudget(count, epsilon, _DELTA)
          for name, count in _RECORDS.items()
      },
      {
          name: _terms(count, [(sampling, 0, count, num_rounds)], sigma)
          for name, count in _RECORDS.items()
      },
      **options,
  )


def _two_phases():
  phases = lambda n: [(_POISSON, 0, n // 2, 2), (_POISSON, n // 2, n // 4, 4)]
  return dataclasses.replace(
      _plan(),
      terms={n: _terms(c, phases(c), 0.5) for n, c in _RECORDS.items()},
  )


_PLANS = {
    'poisson': _plan(),
    'fixed': _plan(silo_sampling.FixedSize(4)),
    'blocks': _plan(silo_sampling.DisjointBlocks(4)),
    'phases': _two_phases(),
    'local': _plan(
        silo_sampling.FixedSize(1), num_rounds=12, releases_per_round=2
    ),
    'published_proofs': _plan(published_proofs=True),
}


def _is_there(round_index, name):
  """North misses rounds 1 and 4; nobody comes to round 3."""
  return round_index != 3 and (name != 'north' or round_index not in (1, 4))


def _sent(plan, silo, num_rounds):
  """Returns what a silo sends in a run, message by message."""
  counts = collections.Counter()
  for r in range(1, num_rounds + 1):
    if _is_there(r, silo):
      # Nobody trains in round 3.
      first = (r - 1 - (r > 3)) * plan.releases_per_round
      for message in range(first, first + plan.releases_per_round):
        counts[plan.terms[silo].event(message)] += 1
  return counts


class PlanTest(parameterized.TestCase):

  @parameterized.parameters(*_PLANS)
  def test_description_makes_the_plan_again(self, name):
    plan = _PLANS[name].with_availability(_is_there)
    text = json.dumps(plan.describe())
    made = tff_dp.SiloPlan.from_description(json.loads(text))
    self.assertEqual(made, plan)
    self.assertEqual(made.fingerprint, plan.fingerprint)

  def test_fingerprint_is_of_all_but_the_absences(self):
    plan = _plan()
    absent = plan.with_availability(_is_there)
    self.assertEqual(absent.absences, {'north': (1, 3, 4), 'south': (3,)})
    self.assertNotEqual(absent.describe(), plan.describe())
    self.assertEqual(absent.fingerprint, plan.fingerprint)
    for other in (
        _plan(sigma=0.6),
        _plan(epsilon=2.0),
        _plan(num_rounds=7),
        _plan(published_proofs=True),
        _plan(voids=('said so',)),
    ):
      self.assertNotEqual(other.fingerprint, plan.fingerprint)

  def test_numbers_of_numpy_have_a_place_in_json(self):
    plan = _plan(
        silo_sampling.PoissonSampling(np.int64(4)),
        num_rounds=np.int64(6),
        sigma=np.float32(0.5),
    )
    self.assertEqual(
        tff_dp.SiloPlan.from_description(
            json.loads(json.dumps(plan.describe()))
        ).fingerprint,
        _plan().fingerprint,
    )

  def test_is_frozen_all_the_way_down(self):
    with self.assertRaises(TypeError):
      _plan().terms['north'] = None

  @parameterized.named_parameters(
      ('no_silo', dict(silos={}, terms={}), 'terms='),
      ('other_names', dict(terms={'north': _plan().terms['north']}), 'terms='),
      ('absence_of_nobody', dict(absences={'west': (1,)}), "silo='west'"),
      ('absence_too_late', dict(absences={'north': (7,)}), 'absences=7'),
      (
          'other_rounds',
          dict(terms={
              'north': _plan().terms['north'],
              'south': _plan(num_rounds=7).terms['south'],
          }),
          'rounds of each phase',
      ),
      (
          'other_records',
          dict(terms={
              'north': _plan().terms['north'],
              'south': _terms(61, [(_POISSON, 0, 60, 6)], 0.5),
          }),
          'num_records=61',
      ),
  )
  def test_bad_argument_is_named(self, changes, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      dataclasses.replace(_plan(), **changes)

  def test_more_noise_than_is_added_cannot_be_accounted(self):
    phase = silo_terms.Phase(_POISSON, 0, 40, 6, 0.5, 0.51)
    terms = silo_terms.SiloTerms(40, 1.0, (phase,))
    budgets = {'north': silo_budget.SiloBudget(40, None, _DELTA)}
    with self.assertRaisesRegex(_checks.ArgumentError, 'at most 0.5'):
      tff_dp.SiloPlan(budgets, {'north': terms})
    # A metric in [0, 3] takes half: (1/s)^2 + (3/(2 s'))^2 = (1/0.5)^2.
    stddev = 0.5 * 2**0.5
    phase = dataclasses.replace(
        phase, noise_stddev=stddev, accounted_stddev=0.5
    )
    shared = dict(metric_stddevs=((1.5 * stddev,),))
    terms = silo_terms.SiloTerms(40, 1.0, (phase,), **shared)
    plan = tff_dp.SiloPlan(budgets, {'north': terms}, metric_bounds=(3.0,))
    self.assertEqual(plan.epsilon(), _plan().epsilon(member='north'))
    with self.assertRaisesRegex(_checks.ArgumentError, 'accounted_stddev=0.5'):
      tff_dp.SiloPlan(budgets, {'north': terms}, metric_bounds=(3.01,))
    with self.assertRaisesRegex(_checks.ArgumentError, 'metric_stddevs='):
      tff_dp.SiloPlan(budgets, {'north': terms})

  @parameterized.parameters(*_PLANS)
  def test_epsilon_is_that_of_all_messages_and_of_the_event(self, name):
    plan = _PLANS[name].with_availability(_is_there)
    for rounds in (1, 2, 3, 6):
      for silo in plan.silos:
        with self.subTest(f'{silo} after {rounds}'):
          epsilon = plan.epsilon(num_rounds=rounds, member=silo)
          sent = _sent(plan, silo, rounds)
          self.assertEqual(
              plan.messages(silo, num_rounds=rounds).size, sum(sent.values())
          )
          self.assertAlmostEqual(
              epsilon,
              silo_events.worst_epsilon(sent, _DELTA, plan.published_proofs),
              places=12,
          )
          event = plan.event(num_rounds=rounds, member=silo)
          self.assertEqual(event, silo_events.dp_event_of(sent))
          if not plan.published_proofs:
            self.assertAlmostEqual(
                epsilon,
                accountants.epsilon(
                    event,
                    delta=_DELTA,
                    neighboring_relation=plan.neighboring_relation,
                    method='pld',
                ),
                places=12,
            )
    self.assertEqual(plan.epsilon(member='north', num_rounds=1), 0.0)

  def test_absent_silos_pay_nothing_and_use_no_block(self):
    plan = _PLANS['blocks'].with_availability(_is_there)
    self.assertEqual(plan.present(3), ())
    trained = [plan.rounds_trained(r) for r in range(5)]
    self.assertEqual(trained, [0, 1, 2, 2, 3])
    # Round 3 did not happen, so that round 5 is the fourth of the process.
    self.assertEqual(plan.messages('north').tolist(), [1, 3, 4])
    self.assertEqual(plan.messages('south').tolist(), [0, 1, 2, 3, 4])
    nobody = plan.with_availability(lambda r, name: name == 'south')
    self.assertEqual(nobody.epsilon(member='north'), 0.0)
    self.assertIsInstance(
        nobody.event(member='north'), dp_accounting.NoOpDpEvent
    )

  def test_epsilon_of_a_long_run_is_never_below_that_of_its_rounds(self):
    plan = _plan(num_rounds=300)
    terms = plan.terms['north']
    before = 0.0
    for rounds in (1, 4, 5, 6, 64, 299, 300):
      exact = terms.epsilon(_DELTA, num_messages=(rounds,))
      found = plan.epsilon(member='north', num_rounds=rounds)
      self.assertBetween(
          found, max(exact, before), plan.epsilon(member='north')
      )
      before = found
    self.assertEqual(found, exact)

  def test_worst_silo_and_other_deltas(self):
    plan = _plan()
    by_silo = {name: plan.epsilon(member=name) for name in plan.silos}
    self.assertGreater(by_silo['north'], by_silo['south'])
    self.assertEqual(plan.epsilon(), by_silo['north'])
    self.assertGreater(plan.epsilon(delta=1e-6), plan.epsilon())
    self.assertGreater(
        plan.epsilon_no_amplification(delta=_DELTA), plan.epsilon()
    )
    blocks = _PLANS['blocks']
    self.assertAlmostEqual(
        blocks.epsilon_no_amplification(delta=_DELTA), blocks.epsilon()
    )


class BudgetTest(absltest.TestCase):

  def test_round_beyond_a_silos_own_budget_is_refused_by_name(self):
    plan = _plan(num_rounds=20)
    allowed = plan.epsilon(member='south', num_rounds=11)
    plan = dataclasses.replace(
        plan,
        silos=dict(plan.silos) | {
            'south': silo_budget.SiloBudget(60, allowed, _DELTA)
        },
    )
    budget = plan.ledger(epsilon=None, delta=_DELTA)
    self.assertEqual(budget.rounds_left(0), 11)
    self.assertEqual(budget.rounds_left(7), 4)
    self.assertEqual(
        budget.epsilon_after(11), plan.epsilon(member='north', num_rounds=11)
    )
    budget.check(11)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError,
        'round 12 would take silo south to epsilon .* above its budget',
    ):
      budget.check(12)
    for r in range(1, 12):
      budget.record(r)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'take silo south'):
      budget.record(12)
    # Without it the others go on, and it has paid for 11 rounds.
    budget.record(12, members=['north'])
    self.assertEqual(
        budget.plan.epsilon(num_rounds=12, member='south'), allowed
    )
    # Where it is absent it pays nothing, and the others go on.
    late = plan.with_availability(lambda r, name: name == 'north' or r <= 11)
    budget = late.ledger(epsilon=None, delta=_DELTA)
    self.assertEqual(budget.rounds_left(0), 20)
    entry = budget.record(1)
    self.assertEqual(entry['unit'], 'record')
    self.assertEqual(entry['neighboring_relation'], 'replace_one')

  def test_budget_of_the_run_is_for_every_silo(self):
    plan = _plan(num_rounds=20)
    allowed = plan.epsilon(delta=1e-5, num_rounds=7)
    budget = plan.ledger(epsilon=allowed, delta=1e-5)
    self.assertEqual(budget.rounds_left(0), 7)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 8 would'):
      budget.check(8)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      budget.check(21)

  def test_silos_pay_for_the_rounds_in_which_they_were(self):
    plan = _plan().with_availability(lambda r, name: (r, name) != (2, 'north'))
    ledger = plan.ledger(delta=_DELTA)
    entries = [
        ledger.record(1, members=['south']),
        ledger.record(2, members=['north', 'south']),
        ledger.record(3),
        ledger.record(4, members=[]),
    ]
    self.assertEqual(ledger.plan.absences, {'north': (1, 4), 'south': (4,)})
    self.assertEqual(
        entries[2]['epsilon'],
        plan.terms['north'].epsilon(_DELTA, num_messages=(2,)),
    )
    self.assertEqual(plan.absences, {'north': (2,)})
    # From what was stored, the same again.
    again = plan.ledger(delta=_DELTA)
    for entry in json.loads(json.dumps(entries)):
      again.record(entry['round'], members=entry.get('silos'))
    self.assertEqual(again.plan, ledger.plan)
    with self.assertRaisesRegex(_checks.ArgumentError, "silo='east'"):
      ledger.record(5, members=['east'])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'cannot follow'):
      ledger.record(2)
    self.assertEqual(ledger.rounds_recorded, 4)

  def test_refused_round_leaves_everybody_uncharged(self):
    plan = _plan(num_rounds=20).with_availability(
        lambda r, name: name == 'north'
    )
    allowed = plan.epsilon(member='north', num_rounds=3)
    plan = dataclasses.replace(
        plan,
        silos=dict(plan.silos) | {
            'north': silo_budget.SiloBudget(40, allowed, _DELTA)
        },
    )
    ledger = plan.ledger(delta=_DELTA)
    for r in (1, 2, 3):
      ledger.record(r)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'silo north'):
      ledger.record(4, members=['north', 'south'])
    self.assertEqual(ledger.rounds_recorded, 3)
    self.assertEqual(ledger.plan, plan)
    ledger.record(4, members=['south'])
    self.assertEqual(ledger.plan.epsilon(member='north', num_rounds=4), allowed)


class CalibrationTest(parameterized.TestCase):

  @parameterized.parameters(*_PLANS)
  @pytest.mark.slow(but=['0', '3'])
  def test_every_silo_is_within_the_budget_and_close_to_it(self, name):
    plan = _PLANS[name].with_availability(_is_there)
    for epsilon, delta in ((0.7, 1e-5), (6.0, 1e-3)):
      found = plan.calibrated(epsilon=epsilon, delta=delta)
      for silo in plan.silos:
        self.assertBetween(
            found.epsilon(delta=delta, member=silo), 0.999 * epsilon, epsilon
        )
      # Each by its own numbers, and nothing else has changed.
      if name != 'blocks':  # Of as many records in both.
        self.assertNotEqual(
            found.terms['north'].phases[0].sigma,
            found.terms['south'].phases[0].sigma,
        )
      self.assertEqual(found.release_facts, plan.release_facts)
      self.assertEqual(found.absences, plan.absences)

  def test_every_phase_has_the_whole_budget(self):
    plan = _PLANS['phases'].calibrated(epsilon=2.0, delta=_DELTA)
    for terms in plan.terms.values():
      for counts in ((2, 0), (0, 4)):
        self.assertBetween(
            terms.epsilon(_DELTA, num_messages=counts), 1.999, 2.0
        )

  def test_metrics_keep_their_share(self):
    # A metric in [0, 3] has half of it.
    stddev = 0.5 * 2**0.5
    phase = silo_terms.Phase(_POISSON, 0, 40, 6, stddev, 0.5)
    terms = silo_terms.SiloTerms(
        40, 1.0, (phase,), metric_stddevs=((1.5 * stddev,),)
    )
    plan = tff_dp.SiloPlan(
        {'north': silo_budget.SiloBudget(40, None, _DELTA)},
        {'north': terms},
        metric_bounds=(3.0,),
    ).calibrated(epsilon=2.0, delta=_DELTA)
    self.assertBetween(plan.epsilon(delta=_DELTA), 1.999, 2.0)
    (found,) = plan.terms['north'].phases
    self.assertAlmostEqual(found.noise_stddev, found.sigma * 2**0.5)
    self.assertAlmostEqual(
        plan.terms['north'].metric_stddevs[0][0], 1.5 * found.noise_stddev
    )

  def test_budget_of_a_silo_is_kept(self):
    # At its own delta, which is not that of the run.
    plan = _plan()
    silos = {
        name: silo_budget.SiloBudget(count, 1.0, delta)
        for (name, count), delta in zip(_RECORDS.items(), (1e-9, 1e-3))
    }
    plan = dataclasses.replace(plan, silos=silos)
    plan = plan.calibrated(epsilon=50.0, delta=_DELTA)
    for name, silo in silos.items():
      self.assertBetween(
          plan.epsilon(member=name, delta=silo.delta), 0.999, 1.0
      )

  def test_without_noise_there_is_nothing_to_scale(self):
    for plan in (_plan(sigma=0.0), _plan(voids=('a reason',))):
      with self.assertRaises(_checks.PrivacyRefusedError):
        plan.calibrated(epsilon=1.0, delta=_DELTA)


class StatementTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    curves.spare(self)

  def test_lines_of_silos_are_at_their_own_delta(self):
    plan = _plan(epsilon=9.0).with_availability(_is_there)
    observed = builder.RoundsDone(1)
    made = plan.statement(delta=1e-6, observed=observed)
    guarantee = made.points['guarantee']
    self.assertEqual(made.epsilon, plan.epsilon(delta=1e-6, num_rounds=1))
    self.assertEqual(
        guarantee['epsilon_planned'], plan.epsilon(delta=1e-6)
    )
    # North was not there.
    self.assertEqual(guarantee['worst_silo'], 'south')
    self.assertEqual(
        [(row['name'], row['epsilon'], row['delta'], row['messages'])
         for row in guarantee['groups']],
        [('north', 0.0, _DELTA, 0),
         ('south', plan.epsilon(member='south', num_rounds=1), _DELTA, 1)],
    )
    self.assertEqual(made.warnings, (builder.UNCHECKED,))
    self.assertEqual(
        made.points['implementation']['realised_participation'],
        'of 1 rounds: north in 0, south in 1',
    )
    content = json.loads(json.dumps(made.to_json()))
    self.assertEqual(content['kind'], 'silos')
    self.assertEqual(statement.PrivacyStatement.from_json(content), made)
    page = made.to_markdown()
    self.assertIn('each record, replace_one adjacency, amplified', page)
    self.assertIn('in secret, inside of each silo', page)

  @parameterized.parameters(
      ('poisson', 6), ('fixed', 6), ('blocks', 1), ('phases', 4), ('local', 12)
  )
  def test_a_record_may_be_in_so_many_messages(self, name, most):
    plan = _PLANS[name]
    points = plan.statement(delta=_DELTA).points
    self.assertEqual(points['unit']['max_participations'], most)
    self.assertEqual(points['mechanism']['rounds_planned'], plan.num_rounds)
    self.assertEqual(points['mechanism']['l2_norm_clip'], 1.0)
    self.assertEqual(
        points['mechanism']['population'],
        'north: 40 records, south: 60 records',
    )
    self.assertEqual(
        points['mechanism']['parameters'],
        {
            'releases_per_round': 2 if name == 'local' else 1,
            'private_metrics': 0,
        },
    )

  def test_noised_metrics_are_counted(self):
    phase = silo_terms.Phase(_POISSON, 0, 40, 6, 0.5, 0.4)
    terms = silo_terms.SiloTerms(
        40, 1.0, (phase,), metric_stddevs=((2.0, 2.0),)
    )
    plan = tff_dp.SiloPlan(
        {'north': silo_budget.SiloBudget(40, None, _DELTA)},
        {'north': terms},
        metric_bounds=(1.0, 1.0),
    )
    mechanism = plan.statement(delta=_DELTA).points['mechanism']
    self.assertEqual(mechanism['parameters']['private_metrics'], 2)
    # The gradient alone has 0.5: part of it pays for the metrics.
    self.assertAlmostEqual(plan.noise_multiplier, 0.4 * 4)
    self.assertStartsWith(mechanism['noise_multiplier'], '1.6, the least of all')

  def test_noise_multiplier_is_that_of_the_least_protected_sum(self):
    for name, index in (('north', 0), ('north', 1), ('south', 0), ('south', 1)):
      plan = _PLANS['phases']
      terms = dict(plan.terms)
      phases = list(terms[name].phases)
      phases[index] = dataclasses.replace(phases[index], noise_stddev=0.3)
      terms[name] = dataclasses.replace(terms[name], phases=tuple(phases))
      plan = dataclasses.replace(plan, terms=terms)
      # Over the batch of 4 records.
      self.assertAlmostEqual(plan.noise_multiplier, 0.3 * 4)
      self.assertStartsWith(
          plan.statement(delta=_DELTA).points['mechanism']['noise_multiplier'],
          '1.2, the least of all',
      )

  def test_worst_silo_is_that_at_the_delta_of_the_statement(self):
    # At its own delta, which is large, the north pays less than the south.
    plan = _plan()
    budgets = dict(plan.silos)
    budgets['north'] = dataclasses.replace(budgets['north'], delta=0.02)
    plan = dataclasses.replace(plan, silos=budgets)
    self.assertLess(plan.epsilon(member='north'), plan.epsilon(member='south'))
    guarantee = plan.statement(delta=_DELTA).points['guarantee']
    self.assertEqual(guarantee['worst_silo'], 'north')
    self.assertEqual(
        guarantee['epsilon'], plan.epsilon(member='north', delta=_DELTA)
    )
    self.assertEqual(
        [(row['epsilon'], row['delta'], row['budget'], row['records'])
         for row in guarantee['groups']],
        [(plan.epsilon(member='north'), 0.02, 'none', 40),
         (plan.epsilon(member='south'), _DELTA, 'none', 60)],
    )

  def test_a_stop_inside_a_later_phase_is_stated(self):
    plan = _PLANS['phases']
    for rounds, sent in ((2, (2, 0)), (3, (2, 1)), (5, (2, 3))):
      made = plan.statement(delta=_DELTA, observed=builder.RoundsDone(rounds))
      worst = max(
          terms.epsilon(_DELTA, num_messages=sent)
          for terms in plan.terms.values()
      )
      self.assertEqual(made.epsilon, worst)
      self.assertLess(made.epsilon, plan.epsilon(delta=_DELTA))
      self.assertEqual(
          [row['messages'] for row in made.points['guarantee']['groups']],
          [rounds, rounds],
      )

  def test_one_pass_claims_no_amplification(self):
    made = _PLANS['blocks'].statement(delta=_DELTA)
    self.assertEqual(made.points['amplification']['claimed'], 'none')

  def test_person_with_records_in_all_silos_pays_their_sum(self):
    plan = _plan()
    total = sum(plan.epsilon(member=name) for name in plan.silos)
    said = plan.statement(delta=_DELTA).points['guarantee']['per_person']
    self.assertIn(f'epsilon {total:.3f}'[:-1], said)
    self.assertIn('at delta 0.0002', said)
    # So far, where it is the person of a run.
    made = plan.with_availability(_is_there).statement(
        delta=_DELTA, observed=builder.RoundsDone(1)
    )
    spent = rounding.rounded_up(plan.epsilon(member='south', num_rounds=1))
    self.assertIn(
        f'epsilon {spent} at', made.points['guarantee']['per_person']
    )
    epsilon, delta = plan.per_person({'north': 3, 'south': 0})
    one = plan.epsilon(member='north')
    self.assertAlmostEqual(epsilon, 3 * one)
    self.assertAlmostEqual(
        delta, min(1.0, 3 * math.exp(2 * one) * _DELTA)
    )
    with self.assertRaises(_checks.ArgumentError):
      plan.per_person({'other': 1})
    with self.assertRaises(_checks.ArgumentError):
      plan.per_person({'north': 41})

  @parameterized.parameters('north', 'south')
  def test_person_with_several_records_of_a_silo(self, member):
    plan = _plan()
    options = {'delta': 1e-6, 'member': member}
    one = plan.epsilon(**options)
    self.assertEqual(plan.person_epsilon(1, **options), one)
    three = plan.person_epsilon(3, **options)
    self.assertGreater(three, 3 * one)
    self.assertLess(
        plan.person_epsilon(3, num_rounds=2, **options), three
    )
    void = _plan(voids=('a reason',))
    self.assertEqual(void.person_epsilon(3, **options), math.inf)
    with self.assertRaisesRegex(_checks.ArgumentError, 'records_per_person=0'):
      plan.person_epsilon(0, **options)
    with self.assertRaisesRegex(_checks.ArgumentError, 'member'):
      plan.person_epsilon(1)

  def test_what_is_void_says_so(self):
    for plan in (_plan(voids=('a reason',)), _plan(sigma=0.0)):
      made = plan.statement(delta=_DELTA)
      self.assertEqual(made.epsilon, math.inf)
      self.assertRegex(made.warnings[0], '^NO PRIVACY')
      self.assertIsInstance(
          plan.event(member='north'), dp_accounting.NonPrivateDpEvent
      )
    made = _plan().statement(delta=_DELTA, insecure_seed=True)
    self.assertEqual(made.epsilon, math.inf)
    self.assertIn('known seed', made.warnings[0])
    self.assertRegex(
        _plan(voids=('a reason',)).events_json(delta=_DELTA)['warnings'][0],
        'NO PRIVACY: a reason',
    )

  def test_weak_delta_is_warned_of(self):
    warning, _ = _plan().statement(delta=0.02).warnings
    self.assertIn('WEAK: delta 0.02 is not below one over', warning)
    self.assertIn('south', warning)


if __name__ == '__main__':
  absltest.main()
