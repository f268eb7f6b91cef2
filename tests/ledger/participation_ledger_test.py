# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests for the participation ledger."""

import hashlib
import itertools
import json

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.ledger import participation_ledger

_SALT = b'test'


def _accepted(pattern, restart_every) -> list[tuple[int, ...]]:
  """Returns all sets of rounds in which one client may take part.

  A client for each set is in one ledger. It wants to come in the rounds of the
  set, and is gone after the first refusal.
  """
  book = participation_ledger.ParticipationLedger(
      pattern, restart_every=restart_every
  )
  rounds = range(1, pattern.num_rounds + 1)
  clients = {
      str(wanted): wanted
      for size in rounds
      for wanted in itertools.combinations(rounds, size)
  }
  for t in rounds:
    cohort = [name for name, wanted in clients.items() if t in wanted]
    eligible = book.eligible(cohort, t)
    for name in set(cohort) - set(eligible):
      try:
        book.commit([name], t)
      except _checks.PrivacyRefusedError:
        del clients[name]
      else:
        raise AssertionError('eligible and commit disagree')
    book.commit(eligible, t)
  return list(clients.values())


def _tree_cost(num_rounds, restart_every, rounds) -> int:
  """Returns sum over complete nodes of the squared number of `rounds` in it."""
  length = restart_every or num_rounds
  cost = 0
  for start in range(0, num_rounds, length):
    size = min(length, num_rounds - start)
    for level in range(size.bit_length()):
      width = 1 << level
      for node in range(size // width):
        first = start + node * width + 1
        cost += sum(first <= t < first + width for t in rounds) ** 2
  return cost


class GuaranteeTest(parameterized.TestCase):

  @parameterized.product(
      pattern=(
          patterns.MinSeparationPattern(9),
          patterns.MinSeparationPattern(9, max_participations=1),
          patterns.MinSeparationPattern(9, min_index_gap=3),
          patterns.MinSeparationPattern(
              9, min_index_gap=2, max_participations=3
          ),
          patterns.FixedOrderPattern(9, rounds_per_epoch=2),
          patterns.FixedOrderPattern(9, rounds_per_epoch=4),
          patterns.OncePerTreePattern(9),
      ),
      restart_every=(None, 4, 5),
  )
  def test_worst_accepted_client_is_the_accountants(
      self, pattern, restart_every
  ):
    # What the ledger lets through must cost exactly what was accounted: more
    # is a privacy bug, less a needless refusal.
    worst = max(
        _tree_cost(9, restart_every, rounds)
        for rounds in _accepted(pattern, restart_every)
    )
    self.assertEqual(
        worst,
        tree_sensitivity.squared_sensitivity(
            pattern, restart_every=restart_every
        ),
    )

  def test_min_index_gap_is_a_difference_of_indices(self):
    pattern = patterns.MinSeparationPattern(9, min_index_gap=3)
    book = participation_ledger.ParticipationLedger(pattern)
    book.commit(['a'], 1)
    book.commit([], 2)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError,
        r'round 3: 1 of 2 selected clients took part too recently\n.*at least 3'
        r' \(2 rounds strictly between\)',
    ):
      book.commit(['a', 'b'], 3)
    book.commit(['b'], 3)
    book.commit(['a'], 4)
    self.assertEqual(book.observed().min_index_gap, 3)
    self.assertEqual(book.observed().min_rounds_between, 2)

  def test_refusal_names_no_client_and_changes_nothing(self):
    pattern = patterns.MinSeparationPattern(9, max_participations=1)
    book = participation_ledger.ParticipationLedger(pattern, salt=_SALT)
    book.commit(['alice', 'bob'], 1)
    before = book.to_bytes()
    with self.assertRaises(_checks.PrivacyRefusedError) as caught:
      book.commit(['carol', 'alice', 'bob'], 2)
    self.assertIn('2 of 3 selected clients', str(caught.exception))
    self.assertIn('too often', str(caught.exception))
    for name in ('alice', 'bob', 'carol'):
      self.assertNotIn(name, str(caught.exception))
    self.assertEqual(book.to_bytes(), before)
    self.assertEqual(book.eligible(['carol'], 2), ['carol'])

  def test_twice_in_a_tree(self):
    book = participation_ledger.ParticipationLedger(
        patterns.OncePerTreePattern(6), restart_every=2
    )
    book.commit(['a'], 1)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'in this tree'):
      book.commit(['a'], 2)
    book.commit([], 2)
    book.commit(['a'], 3)

  def test_fixed_order_counts_positions_from_the_restart(self):
    book = participation_ledger.ParticipationLedger(
        patterns.FixedOrderPattern(10, rounds_per_epoch=2), restart_every=5
    )
    for t, cohort in enumerate((['a'], ['b'], ['a'], ['b'], ['a']), 1):
      book.commit(cohort, t)
    # A new tree may reshuffle, and its first round is position 0 again.
    book.commit(['b'], 6)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'position'):
      book.commit(['b'], 7)
    book.commit(['a'], 7)
    book.commit(['b'], 8)

  @parameterized.parameters(('ab', 'ab'), (b'ab', 'ab'))
  def test_duplicates_in_a_cohort(self, first, second):
    for seen_before in (False, True):
      book = participation_ledger.ParticipationLedger(
          patterns.MinSeparationPattern(9)
      )
      book.commit([first] if seen_before else [], 1)
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, '3 selected clients are only 2 different'
      ):
        book.commit([first, 'c', second], 2)

  @parameterized.parameters('fg', b'fg')
  def test_one_id_is_no_cohort(self, client_id):
    ledger = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(4)
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'client_ids=.*a list'):
      ledger.commit(client_id, 1)
    self.assertEqual(ledger.num_rounds, 0)

  def test_str_and_bytes_ids_are_the_same_client(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9, max_participations=1)
    )
    self.assertEqual(book.eligible([b'a'], 1), [b'a'])
    book.commit(['a'], 1)
    self.assertEmpty(book.eligible([b'a', 'a', np.str_('a')], 2))

  @parameterized.parameters(
      (1, 'already committed'),
      (2, 'already committed'),
      (4, 'without gaps'),
      (6, 'beyond the plan of 5 rounds'),
  )
  def test_rounds_out_of_order(self, round_index, message):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(5)
    )
    book.commit(['a'], 1)
    book.commit(['a'], 2)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
      book.commit([], round_index)

  def test_wrong_arguments(self):
    pattern = patterns.MinSeparationPattern(5)
    with self.assertRaisesRegex(ValueError, 'restart_every=0'):
      participation_ledger.ParticipationLedger(pattern, restart_every=0)
    with self.assertRaisesRegex(TypeError, 'expected a pattern'):
      participation_ledger.ParticipationLedger('min-separation')
    book = participation_ledger.ParticipationLedger(pattern)
    with self.assertRaisesRegex(ValueError, 'round_index=0'):
      book.eligible(['a'], 0)
    with self.assertRaisesRegex(TypeError, 'str or bytes, found int'):
      book.commit([3], 1)


class LedgerTest(parameterized.TestCase):

  def test_eligible_keeps_the_order(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9, min_index_gap=2)
    )
    book.commit(['c', 'a'], 1)
    self.assertEqual(book.eligible(list('dcba'), 2), ['d', 'b'])
    book.commit(['b'], 2)
    self.assertEqual(book.eligible(list('dcba'), 3), ['d', 'c', 'a'])
    self.assertEqual(book.num_participations(list('dcba')), [0, 1, 1, 1])

  def test_standing_of_a_population_whatever_was_asked_before(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9, min_index_gap=2, max_participations=2)
    )
    population = list('abcd')

    def check(book, clients, round_index):
      is_eligible, count = book.standing(clients, round_index)
      self.assertEqual(
          [one for one, may in zip(clients, is_eligible) if may],
          book.eligible(clients, round_index),
      )
      self.assertEqual(count.tolist(), book.num_participations(clients))

    for t, cohort in enumerate(('ab', 'c', 'ax', 'b', 'd'), 1):
      check(book, population, t)
      book.commit(list(cohort), t)
      check(book, population, t + 1)
    check(book, list('xyda'), 6)
    check(book, list('dcba'), 6)
    check(book, [b'a', 'y'], 6)
    check(book.restored(book.to_bytes()), population, 6)
    # The list is the caller's, who may change it.
    check(book, population, 6)
    population[0] = 'y'
    check(book, population, 6)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 5 is'):
      book.standing(population, 5)

  def test_fewest_participations(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    fewest = []
    for t, cohort in enumerate(('', 'ab', 'a', 'c', 'bc', 'ac'), 1):
      book.commit(list(cohort), t)
      fewest.append(book.fewest_participations(3))
    self.assertEqual(fewest, [0, 0, 0, 1, 2, 2])
    self.assertEqual(book.fewest_participations(4), 0)

  def test_observed(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    self.assertEqual(
        book.observed(), participation_ledger.Observed(0, 0, None, 0, 0, 0)
    )
    cohorts = ('abc', 'd', 'a', '', 'dab')
    # Nothing but an empty round makes the smallest cohort empty.
    sizes = ((3, 3), (1, 3), (1, 3), (0, 3), (0, 3))
    for t, (cohort, (smallest, largest)) in enumerate(zip(cohorts, sizes), 1):
      book.commit(list(cohort), t)
      seen = book.observed()
      self.assertEqual(
          (seen.smallest_cohort, seen.largest_cohort), (smallest, largest)
      )
    # d: rounds 2, 5; a: 1, 3, 5; b: 1, 5.
    self.assertEqual(
        book.observed(), participation_ledger.Observed(5, 4, 2, 3, 0, 3)
    )

  def test_grows_beyond_the_first_allocation(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(4, max_participations=1), salt=_SALT
    )
    clients = [f'{i}' for i in range(5000)]
    for t in range(4):
      book.commit(clients[t * 1000 : (t + 1) * 1000], t + 1)
    restored = book.restored(book.to_bytes())
    self.assertEqual(
        restored.num_participations(clients), [1] * 4000 + [0] * 1000
    )
    self.assertEqual(restored.observed(), book.observed())

  def test_ids_and_salt(self):
    pattern = patterns.MinSeparationPattern(9)
    saved = []
    for salt in (_SALT, _SALT, None, None):
      book = participation_ledger.ParticipationLedger(
          pattern, salt=salt, run_id='r'
      )
      book.commit(['alice@example.org'], 1)
      saved.append(book.to_bytes())
    self.assertEqual(saved[0], saved[1])
    self.assertLen(set(saved), 3)
    unsalted = hashlib.sha256(b'alice@example.org').digest()
    for guessable in (b'alice', unsalted[:8]):
      self.assertNotIn(guessable, b''.join(saved))


class SavedLedgerTest(parameterized.TestCase):

  def _book(self):
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9, min_index_gap=3), run_id='run 7'
    )
    book.commit(['a', 'b'], 1)
    book.commit(['c'], 2)
    return book

  def test_resumed_ledger_goes_on_as_the_original(self):
    book = self._book()
    resumed = book.restored(book.to_bytes())
    self.assertEqual(resumed.to_bytes(), book.to_bytes())
    self.assertEqual(resumed.observed(), book.observed())
    for other in (book, resumed):
      with self.assertRaises(_checks.PrivacyRefusedError):
        other.commit(['b'], 3)
      other.commit(['d'], 3)
      other.commit(['b'], 4)
    self.assertEqual(resumed.to_bytes(), book.to_bytes())

  @parameterized.parameters(*range(7))
  def test_what_was_observed_before_a_resume_counts(self, stop):
    # The smallest gap and the largest cohort come early.
    book = participation_ledger.ParticipationLedger(
        patterns.MinSeparationPattern(9)
    )
    for t, cohort in enumerate(('abc', 'a', 'd', '', 'da', 'c'), 1):
      if t == stop + 1:
        book = book.restored(book.to_bytes())
      book.commit(list(cohort), t)
    self.assertEqual(
        book.observed(), participation_ledger.Observed(6, 4, 1, 3, 0, 3)
    )

  @parameterized.parameters(
      dict(run_id='run 8'),
      dict(restart_every=5),
      dict(pattern=patterns.MinSeparationPattern(9, min_index_gap=2)),
      dict(pattern=patterns.OncePerTreePattern(9)),
  )
  def test_another_run_or_plan_is_refused(self, **changed):
    arguments = dict(
        pattern=patterns.MinSeparationPattern(9, min_index_gap=3),
        restart_every=None,
        run_id='run 7',
    )
    data = self._book().to_bytes()
    participation_ledger.ParticipationLedger(**arguments).restored(data)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, list(changed)[0] + '='
    ):
      participation_ledger.ParticipationLedger(
          **(arguments | changed)
      ).restored(data)

  def test_damage_is_refused(self):
    book = self._book()
    data = book.to_bytes()
    for damaged in (
        b'',
        data[:-1],
        data[:-4] + b'\0\0\0\0',
        data.replace(b'version 3', b'version 2'),
        data[:60],
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
        book.restored(damaged)

  @parameterized.parameters(
      dict(counts=[1, 3, 1]),  # More participations than rounds.
      dict(counts=[1, 0, 1]),
      dict(counts=[1, -1, 1]),
      dict(rounds=[1, 3, 2]),  # A round that was not committed.
      dict(rounds=[1, 0, 2]),
      dict(keys=b'k' * 48),  # One client three times.
      dict(num_rounds=1),
      dict(num_rounds=10),  # Beyond the plan.
      dict(num_rounds=2.0),
      dict(num_rounds=-1),
      dict(num_rounds=None),
      dict(num_clients=2),
      dict(num_clients=4),
      dict(min_index_gap=0),
      dict(smallest_cohort=-1),
      dict(largest_cohort='2'),
      dict(salt='no digits'),
  )
  def test_what_no_ledger_has_saved_is_refused(
      self, keys=None, rounds=(1, 2, 2), counts=(1, 2, 1), **changed
  ):
    # With a checksum of its own.
    book = self._book()

    def made(keys, rounds, counts, changed):
      data = book.to_bytes()
      start = data.index(b'\n') + 1
      header, _, content = data[start + 32 :].partition(b'\n')
      body = b'\n'.join([
          json.dumps(json.loads(header) | changed).encode(),
          (keys or content[:48])
          + np.array([*rounds, *counts], '<i4').tobytes(),
      ])
      return data[:start] + hashlib.sha256(body).digest() + body

    book.restored(made(None, (1, 2, 2), (1, 2, 1), {}))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
      book.restored(made(keys, rounds, counts, changed))


if __name__ == '__main__':
  absltest.main()
