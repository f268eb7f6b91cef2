# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured participation: the realised worst client, and what it is worth."""

import dataclasses
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.ledger import measured
from tff_dp.ledger import participation_ledger
from tff_dp.mechanisms.matrix import toeplitz

_MATRIX = np.array([
    [1, 0, 0, 1, 0, 0],
    [0, 1, 0, 0, 1, 0],
    [1, 0, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0],
    [1, 0, 1, 0, 0, 0],
])


def _mechanism(num_rounds):
  return toeplitz.Toeplitz(
      num_rounds,
      np.cumprod([1.0] + [(2 * j - 1) / (2 * j) for j in range(1, num_rounds)]),
  )


def _measure(mechanism, participation, is_data_independent=True):
  return measured.measure(
      mechanism, participation, is_data_independent=is_data_independent
  )


class MeasureTest(parameterized.TestCase):

  @parameterized.parameters(int, bool, float)
  def test_is_the_worst_client(self, dtype):
    mechanism = _mechanism(9)
    matrix = brute_force.block_diagonal(mechanism.column(6), 6)
    result = _measure(mechanism, _MATRIX.astype(dtype))
    self.assertAlmostEqual(
        result.squared_sensitivity,
        np.sum((_MATRIX @ matrix.T) ** 2, axis=1).max(),
    )
    self.assertEqual(result.worst_rounds, (1, 3))
    self.assertEqual(
        (result.num_rounds, result.num_clients, result.num_sets), (6, 4, 3)
    )

  def test_of_a_ledger_is_the_same(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_rounds=0'):
      _measure(_mechanism(9), book)
    for t in range(6):
      cohort = [f'client {i}' for i in np.flatnonzero(_MATRIX[:, t])]
      book.commit(cohort, t + 1)
    self.assertEqual(
        _measure(_mechanism(9), book.restored(book.to_bytes())),
        _measure(_mechanism(9), _MATRIX),
    )

  def test_all_allowed_sets_give_the_promised_sensitivity(self):
    pattern = patterns.MinSeparationPattern(
        8, min_index_gap=2, max_participations=3
    )
    result = _measure(_mechanism(8), brute_force.allowed(pattern))
    self.assertAlmostEqual(
        result.squared_sensitivity, _mechanism(8).squared_sensitivity(pattern)
    )

  def test_nobody_took_part(self):
    result = _measure(_mechanism(6), np.zeros((3, 6)))
    self.assertEqual(result.squared_sensitivity, 0)
    self.assertEqual(result.worst_rounds, ())

  @parameterized.product(independent=(True, False), exact=(True, False))
  def test_says_what_the_number_is_worth(self, independent, exact):
    result = dataclasses.replace(
        _measure(_mechanism(6), _MATRIX, independent),
        squared_sensitivity=2.5,
        is_exact=exact,
    )
    self.assertEqual(result.is_guarantee, independent)
    text = result.describe()
    self.assertIn('4 clients in 6 rounds (3 distinct sets of rounds)', text)
    self.assertStartsWith(text, 'S2 is 2.5' if exact else 'S2 is at most 2.5')
    if independent:
      self.assertIn('It is a guarantee for this run only', text)
    else:
      self.assertIn('It is no guarantee', text)
      self.assertNotIn('is a guarantee', text)


class MisuseTest(parameterized.TestCase):

  def test_declaration_has_no_default(self):
    with self.assertRaises(TypeError):
      measured.measure(_mechanism(6), _MATRIX)
    for value in (None, 1, 'no'):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'is_data_independent=.* True or False'
      ):
        _measure(_mechanism(6), _MATRIX, value)

  @parameterized.parameters(
      ([[1, 2]],), ([[0.5, 1]],), ([1, 0],), ([[np.nan, 0]],), ([[-1, 0]],)
  )
  def test_bad_matrices_are_refused(self, matrix):
    with self.assertRaisesRegex(_checks.ArgumentError, '^participation='):
      _measure(_mechanism(6), matrix)

  @parameterized.parameters(float('nan'), float('inf'))
  def test_a_response_that_is_no_number_is_refused(self, response):
    responses = {(1, 3): 1.0, (1, 4): response, (2, 5): 1.0}
    mechanism = mock.Mock()
    mechanism.truncated.return_value.squared_response = responses.get
    with self.assertRaisesRegex(_checks.ArgumentError, 'a finite response'):
      _measure(mechanism, _MATRIX)

  def test_a_pattern_and_a_measurement_are_not_each_other(self):
    found = _measure(_mechanism(6), _MATRIX)
    self.assertNotIsInstance(found, patterns.ParticipationPattern)
    for use in (
        tree_sensitivity.squared_sensitivity,
        _mechanism(6).squared_sensitivity,
        participation_ledger.ParticipationLedger,
    ):
      with self.assertRaises((TypeError, AttributeError)):
        use(found)
    with self.assertRaisesRegex(_checks.ArgumentError, '^participation='):
      _measure(_mechanism(6), patterns.MinSeparationPattern(6))


if __name__ == '__main__':
  absltest.main()
