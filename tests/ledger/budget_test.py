# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the budget ledger."""

import math
import re
import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.ledger import budget
from tff_dp.mechanisms import tree
from tff_dp.participation import sampling
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

_BY_ROUND = tree_sensitivity.squared_sensitivity_by_round(
    patterns.MinSeparationPattern(40, min_index_gap=7)
)


def _book(noise_multiplier=8.0, **changed) -> budget.BudgetLedger:
  plan = dp_ftrl_plan.DpFtrlPlan(
      tree.Tree(40),
      sampling.MinSeparation(40, min_index_gap=7),
      l2_norm_clip=1.0,
      clients_per_round=5,
      noise_multiplier=noise_multiplier,
  )
  return plan.ledger(**(dict(delta=1e-5, epsilon=2.0) | changed))


class BudgetTest(parameterized.TestCase):

  @parameterized.parameters(0.5, 3.0, 8.0, 20.0)
  def test_allowed_rounds_are_exactly_those_within_the_budget(
      self, noise_multiplier
  ):
    book = _book(noise_multiplier)
    num_allowed = 0
    for t in range(1, 41):
      sigma = noise_multiplier / math.sqrt(_BY_ROUND[t - 1])
      epsilon = gaussian.exact_epsilon(sigma=sigma, delta=1e-5)
      self.assertAlmostEqual(book.epsilon_after(t), epsilon, places=12)
      if epsilon <= 2.0:
        num_allowed += 1
        book.check(t)
        self.assertEqual(book.record(t)['round'], t)
      else:
        with self.assertRaises(_checks.PrivacyRefusedError):
          book.check(t)
        with self.assertRaises(_checks.PrivacyRefusedError):
          book.record(t)
    self.assertEqual(book.rounds_recorded, num_allowed)
    for t in range(41):
      self.assertEqual(book.rounds_left(t), max(0, num_allowed - t))

  def test_equality_passes_and_no_tolerance_beyond(self):
    exactly = _book().epsilon_after(40)
    _book(epsilon=exactly).check(40)
    with self.assertRaises(_checks.PrivacyRefusedError) as caught:
      _book(epsilon=math.nextafter(exactly, 0)).check(40)
    spent, bound = re.search(
        r'epsilon (\S+) > (\S+) ', str(caught.exception)
    ).groups()
    self.assertGreater(float(spent), float(bound))

  def test_rounds_before_the_first_are_refused(self):
    for epsilon in (None, 2.0):
      book = _book(epsilon=epsilon)
      for call in (book.check, book.record):
        for round_index in (0, -1):
          with self.assertRaisesRegex(
              _checks.ArgumentError, f'round_index={round_index} '
          ):
            call(round_index)
      self.assertEqual(book.rounds_recorded, 0)

  def test_message_and_its_way_out(self):
    book = _book()
    first_refused = book.rounds_left(0) + 1
    self.assertBetween(first_refused, 2, 40)
    with self.assertRaises(_checks.PrivacyRefusedError) as caught:
      book.check(first_refused)
    match = re.match(
        rf'round {first_refused} would spend epsilon (\S+) > 2.0 \(delta'
        rf' 1e-05\); {first_refused - 1} of 40 rounds done\nwhy: the'
        r' epsilon of all released models .*\n'
        r'try: All 40 fit with noise_multiplier=(\d+\.\d+)\.$',
        str(caught.exception),
    )
    self.assertIsNotNone(match, str(caught.exception))
    spent, multiplier = map(float, match.groups())
    self.assertGreaterEqual(spent, book.epsilon_after(first_refused))
    # The advice holds as printed, and is not wasteful.
    _book(noise_multiplier=multiplier).check(40)
    with self.assertRaises(_checks.PrivacyRefusedError):
      _book(noise_multiplier=0.998 * multiplier).check(40)

  def test_no_noise(self):
    book = _book(noise_multiplier=0.0)
    self.assertEqual(book.epsilon_after(1), math.inf)
    self.assertEqual(book.rounds_left(0), 0)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 1 would spend epsilon inf > 2.0'
    ):
      book.check(1)
    unlimited = _book(noise_multiplier=0.0, epsilon=None)
    self.assertEqual(unlimited.record(1)['epsilon'], 'inf')
    self.assertEqual(unlimited.rounds_left(1), 39)

  def test_before_the_first_and_after_the_last_round(self):
    book = _book(epsilon=None)
    self.assertEqual(book.epsilon_after(0), 0.0)
    self.assertEqual(book.rounds_left(0), 40)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 41 is beyond the plan of 40 rounds'
    ):
      book.check(41)
    with self.assertRaisesRegex(ValueError, 'round_index=41'):
      book.epsilon_after(41)

  def test_rounds_are_spent_in_order_and_repeated_after_a_crash(self):
    book = _book(epsilon=None)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'cannot follow'):
      book.record(2)
    first = book.record(1)
    self.assertEqual(book.record(1), first)
    self.assertEqual(book.rounds_recorded, 1)
    book.record(2)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'cannot follow'):
      book.record(1)

  def test_goes_on_after_the_rounds_of_an_earlier_process(self):
    book = _book(epsilon=None)
    book.resume(0)
    book.resume(7)
    self.assertEqual(book.record(7)['round'], 7)
    book.record(8)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      book.resume(41)

  def test_resume_never_goes_back(self):
    book = _book()
    book.resume(7)
    book.resume(7)
    for recorded in (0, 6, None, 7.0):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'rounds_recorded=.* at least 7'
      ):
        book.resume(recorded)
    self.assertEqual(book.rounds_recorded, 7)

  def test_no_more_rounds_are_resumed_than_the_budget_allows(self):
    allowed = _book().rounds_left(0)
    self.assertBetween(allowed, 1, 39)
    book = _book()
    book.resume(allowed)
    self.assertEqual(book.rounds_left(allowed), 0)
    for recorded in (allowed + 1, 40):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'would spend'):
        _book().resume(recorded)

  def test_record_names_everything(self):
    self.assertEqual(
        _book().record(1),
        {
            'round': 1,
            'epsilon': _book().epsilon_after(1),
            'delta': 1e-5,
            'neighboring_relation': 'zero_out',
            'unit': 'client',
            'noise_multiplier': 8.0,
            'squared_sensitivity': 1.0,
        },
    )

  @parameterized.parameters(
      dict(delta=0.0),
      dict(delta=1.0),
      dict(delta=2),
      dict(epsilon=0.0),
      dict(epsilon=math.inf),
  )
  def test_wrong_arguments(self, **changed):
    (name,) = changed
    with self.assertRaisesRegex(ValueError, f'^{name}='):
      _book(**changed)

  @parameterized.parameters(
      lambda t: 0.05 * math.sqrt(t) + 1e-3 * t,
      lambda t: 0.02 * math.sqrt(-(-t // 16) * 16),
      lambda t: 5 + 1e-3 * t,
      lambda t: math.nan,
  )
  def test_rounds_left_asks_for_few_epsilons(self, of):
    for epsilon in np.geomspace(of(1) * 0.99, of(1000) * 1.01, 20):
      epsilon, asked = np.nan_to_num(epsilon, nan=1.0), []

      def epsilon_after(t, *, delta, asked=asked):
        del delta
        asked.append(t)
        return of(t)

      plan = types.SimpleNamespace(num_rounds=1000, epsilon_after=epsilon_after)
      book = budget.BudgetLedger(plan, delta=1e-5, epsilon=epsilon)
      allowed = sum(of(t) <= epsilon for t in range(1, 1001))
      for t in range(1001):
        self.assertEqual(book.rounds_left(t), max(0, allowed - t))
      self.assertLessEqual(len(asked), 1 + math.ceil(math.log2(1000)))

  @parameterized.parameters(math.nan, math.inf, -1.0)
  def test_an_epsilon_that_means_nothing_is_infinite(self, epsilon):
    plan = types.SimpleNamespace(
        num_rounds=3,
        epsilon_after=lambda t, *, delta: epsilon,
        neighboring_relation=run_events.NeighboringRelation.ZERO_OUT,
        unit='client',
        spent=lambda t: {},
        basis='nothing',
        way_out=lambda **options: 'More noise.',
    )
    book = budget.BudgetLedger(plan, delta=1e-5)
    self.assertEqual(book.epsilon_after(2), math.inf)
    self.assertEqual(book.record(1)['epsilon'], 'inf')
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'epsilon inf > 2'):
      budget.BudgetLedger(plan, delta=1e-5, epsilon=2.0).check(1)


if __name__ == '__main__':
  absltest.main()
