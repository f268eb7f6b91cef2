# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the budget ledger."""

import json
import math
import re

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.ledger import budget

_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE
_BY_ROUND = tree_sensitivity.squared_sensitivity_by_round(
    patterns.MinSeparationPattern(40, min_index_gap=7)
)


def _book(**changed) -> budget.BudgetLedger:
  arguments = dict(
      squared_sensitivity_by_round=_BY_ROUND,
      noise_multiplier=8.0,
      delta=1e-5,
      epsilon=2.0,
  )
  return budget.BudgetLedger(**(arguments | changed))


class BudgetTest(parameterized.TestCase):

  @parameterized.product(
      noise_multiplier=(0.5, 3.0, 8.0, 20.0),
      neighboring_relation=tuple(run_events.NeighboringRelation),
  )
  def test_allowed_rounds_are_exactly_those_within_the_budget(
      self, noise_multiplier, neighboring_relation
  ):
    book = _book(
        noise_multiplier=noise_multiplier,
        neighboring_relation=neighboring_relation,
    )
    factor = 4 if neighboring_relation == _REPLACE_ONE else 1
    num_allowed = 0
    for t in range(1, 41):
      sigma = noise_multiplier / math.sqrt(factor * _BY_ROUND[t - 1])
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

  def test_message_and_its_way_out(self):
    book = _book()
    first_refused = book.rounds_left(0) + 1
    self.assertBetween(first_refused, 2, 40)
    with self.assertRaises(_checks.PrivacyRefusedError) as caught:
      book.check(first_refused)
    match = re.match(
        rf'round {first_refused} would spend epsilon (\S+) > 2.0 \(delta'
        rf' 1e-05\); {first_refused - 1} of 40 rounds done. All 40 fit with'
        r' --noise-multiplier=(\d+\.\d+)\.\n',
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
      dict(noise_multiplier=-1.0),
      dict(noise_multiplier=math.nan),
      dict(delta=0.0),
      dict(delta=1.0),
      dict(delta=2),
      dict(epsilon=0.0),
      dict(epsilon=math.inf),
      dict(squared_sensitivity_by_round=[]),
      dict(squared_sensitivity_by_round=[2.0, 1.0]),
      dict(squared_sensitivity_by_round=[0.0, 1.0]),
      dict(squared_sensitivity_by_round=[1.0, math.nan]),
      dict(squared_sensitivity_by_round=[[1.0]]),
  )
  def test_wrong_arguments(self, **changed):
    (name,) = changed
    with self.assertRaisesRegex(ValueError, f'^{name}='):
      _book(**changed)
    with self.assertRaisesRegex(ValueError, 'both'):
      _book(neighboring_relation='both')


class SavedBudgetTest(parameterized.TestCase):

  def test_round_trip(self):
    book = _book(neighboring_relation=_REPLACE_ONE, noise_multiplier=30)
    book.record(1)
    book.record(2)
    content = json.loads(json.dumps(book.to_json(), allow_nan=False))
    for resumed in (book.from_json(content), book.restored(content)):
      self.assertEqual(resumed.to_json(), book.to_json())
      self.assertEqual(resumed.rounds_recorded, 2)
      self.assertEqual(resumed.neighboring_relation, _REPLACE_ONE)
      self.assertEqual(resumed.record(3), _recorded(book, 3))

  @parameterized.parameters(
      dict(noise_multiplier=7.0),
      dict(delta=1e-6),
      dict(epsilon=3.0),
      dict(epsilon=None),
      dict(neighboring_relation=_REPLACE_ONE),
      dict(squared_sensitivity_by_round=np.arange(1, 41)),
  )
  def test_other_facts_are_refused(self, **changed):
    content = _book().to_json()
    (name,) = changed
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, name):
      _book(**changed).restored(content)

  def test_unknown_version_is_refused(self):
    content = _book().to_json() | {'version': 2}
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'version'):
      budget.BudgetLedger.from_json(content)
    with self.assertRaisesRegex(ValueError, 'rounds_recorded=41'):
      budget.BudgetLedger.from_json(_book().to_json() | {'rounds_recorded': 41})


def _recorded(book, round_index):
  return budget.BudgetLedger.from_json(book.to_json()).record(round_index)


if __name__ == '__main__':
  absltest.main()
