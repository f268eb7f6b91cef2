# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured participation: the realised worst client, and what it is worth."""

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.accounting import brute_force
from tff_dp import _checks
from tff_dp.accounting.sensitivity import matrix_sensitivity
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import toeplitz_sensitivity
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.ledger import measured
from tff_dp.ledger import participation_ledger

_MATRIX = np.array([
    [1, 0, 0, 1, 0, 0],
    [0, 1, 0, 0, 1, 0],
    [1, 0, 0, 1, 0, 0],
    [0, 0, 0, 0, 0, 0],
    [1, 0, 1, 0, 0, 0],
])


def _responses(num_rounds):
  column = np.cumprod(
      [1.0] + [(2 * j - 1) / (2 * j) for j in range(1, num_rounds)]
  )
  return column, lambda rounds: toeplitz_sensitivity.squared_response(
      column, rounds, num_rounds=num_rounds
  )


class ParticipationTest(parameterized.TestCase):

  @parameterized.parameters(int, bool, float)
  def test_from_matrix(self, dtype):
    found = measured.MeasuredParticipation.from_matrix(
        _MATRIX.astype(dtype), is_data_independent=True
    )
    self.assertEqual(found.num_rounds, 6)
    self.assertEqual(found.num_clients, 4)
    self.assertEqual(found.sets_of_rounds, ((1, 3), (1, 4), (2, 5)))

  def test_from_ledger_is_the_same(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    for t in range(6):
      cohort = [f'client {i}' for i in np.flatnonzero(_MATRIX[:, t])]
      book.commit(cohort, t + 1)
    self.assertEqual(
        measured.MeasuredParticipation.from_ledger(
            book.restored(book.to_bytes()), is_data_independent=False
        ),
        measured.MeasuredParticipation.from_matrix(
            _MATRIX, is_data_independent=False
        ),
    )

  def test_declaration_has_no_default(self):
    with self.assertRaises(TypeError):
      measured.MeasuredParticipation.from_matrix(_MATRIX)
    for value in (None, 1, 'no'):
      with self.assertRaisesRegex(
          _checks.ArgumentError, 'is_data_independent=.* True or False'
      ):
        measured.MeasuredParticipation.from_matrix(
            _MATRIX, is_data_independent=value
        )

  @parameterized.parameters(
      ([[1, 2]],), ([[0.5, 1]],), ([1, 0],), ([[np.nan, 0]],), ([[-1, 0]],)
  )
  def test_bad_matrices_are_refused(self, matrix):
    with self.assertRaisesRegex(_checks.ArgumentError, '^matrix='):
      measured.MeasuredParticipation.from_matrix(
          matrix, is_data_independent=True
      )

  @parameterized.parameters(
      (((2, 1),), 'sets_of_rounds='),
      (((1, 1),), 'sets_of_rounds='),
      (((0,),), 'rounds=0'),
      (((7,),), 'rounds=7'),
  )
  def test_bad_sets_are_refused(self, sets, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      measured.MeasuredParticipation(6, sets, 3, True)

  def test_an_empty_ledger_is_refused(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'num_rounds=0'):
      measured.MeasuredParticipation.from_ledger(
          book, is_data_independent=True
      )


class MeasureTest(parameterized.TestCase):

  def test_is_the_worst_client(self):
    column, respond = _responses(6)
    matrix = brute_force.block_diagonal(column, 6)
    result = measured.measure(
        measured.MeasuredParticipation.from_matrix(
            _MATRIX, is_data_independent=True
        ),
        respond,
        response_is_exact=True,
    )
    self.assertAlmostEqual(
        result.squared_sensitivity,
        np.sum((_MATRIX @ matrix.T) ** 2, axis=1).max(),
    )
    self.assertEqual(result.worst_rounds, (1, 3))

  def test_all_allowed_sets_give_the_promised_sensitivity(self):
    column, respond = _responses(8)
    pattern = patterns.MinSeparationPattern(
        8, min_index_gap=2, max_participations=3
    )
    result = measured.measure(
        measured.MeasuredParticipation.from_matrix(
            brute_force.allowed(pattern), is_data_independent=True
        ),
        respond,
        response_is_exact=True,
    )
    self.assertAlmostEqual(
        result.squared_sensitivity,
        toeplitz_sensitivity.squared_sensitivity(column, pattern),
    )

  def test_nobody_took_part(self):
    result = measured.measure(
        measured.MeasuredParticipation.from_matrix(
            np.zeros((3, 6)), is_data_independent=True
        ),
        lambda rounds: 1.0,
        response_is_exact=True,
    )
    self.assertEqual(result.squared_sensitivity, 0)
    self.assertEqual(result.worst_rounds, ())

  @parameterized.parameters(float('nan'), float('inf'))
  def test_a_response_that_is_no_number_is_refused(self, response):
    found = measured.MeasuredParticipation.from_matrix(
        _MATRIX, is_data_independent=True
    )
    responses = {(1, 3): 1.0, (1, 4): response, (2, 5): 1.0}
    with self.assertRaisesRegex(_checks.ArgumentError, 'squared_response='):
      measured.measure(found, responses.get, response_is_exact=True)

  @parameterized.product(independent=(True, False), exact=(True, False))
  def test_says_what_the_number_is_worth(self, independent, exact):
    result = measured.measure(
        measured.MeasuredParticipation.from_matrix(
            _MATRIX, is_data_independent=independent
        ),
        lambda rounds: 2.5,
        response_is_exact=exact,
    )
    self.assertEqual(result.is_guarantee, independent)
    self.assertEqual(result.is_exact, exact)
    text = result.describe()
    self.assertIn('4 clients in 6 rounds (3 distinct sets of rounds)', text)
    self.assertStartsWith(text, 'S2 is 2.5' if exact else 'S2 is at most 2.5')
    if independent:
      self.assertIn('It is a guarantee for this run only', text)
    else:
      self.assertIn('It is no guarantee', text)
      self.assertNotIn('is a guarantee', text)


class MisuseTest(absltest.TestCase):

  def test_is_no_participation_pattern(self):
    found = measured.MeasuredParticipation.from_matrix(
        _MATRIX, is_data_independent=True
    )
    self.assertNotIsInstance(found, patterns.ParticipationPattern)
    for use in (
        tree_sensitivity.squared_sensitivity,
        lambda pattern: toeplitz_sensitivity.squared_sensitivity(
            [1.0], pattern
        ),
        lambda pattern: matrix_sensitivity.squared_sensitivity(
            np.eye(6), pattern
        ),
        participation_ledger.ParticipationLedger,
    ):
      with self.assertRaises(TypeError):
        use(found)

  def test_a_pattern_is_no_measurement(self):
    with self.assertRaisesRegex(TypeError, 'expected a MeasuredParticipation'):
      measured.measure(
          patterns.MinSeparationPattern(6),
          lambda rounds: 1.0,
          response_is_exact=True,
      )


if __name__ == '__main__':
  absltest.main()
