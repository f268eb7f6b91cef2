# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the samplers against the exact law of what they simulate.

Chi-square tests with fixed keys and a false alarm probability of 1e-6.
"""

import collections
import itertools
import math

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import pytest
from scipy import stats

from tff_dp import _checks
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp.participation import coins
from tff_dp.participation import samplers

pytestmark = pytest.mark.once

_FALSE_ALARM = 1e-6
_LEAST_EXPECTED = 5.0


def _expected_reports(protocol, num_rounds: int) -> float:
  """Returns the mean number of the first steps in which a client reports."""
  if not isinstance(protocol, allocation.CyclicAllocation):
    return protocol.max_reports * num_rounds / protocol.num_rounds
  shares = []
  for residue in range(protocol.stride):
    for window in range(protocol.num_windows):
      steps = protocol.steps(residue, window)
      shares.append(sum(step <= num_rounds for step in steps) / len(steps))
  return sum(shares) / protocol.stride


def _build(protocol, kind, number=0, **options):
  return samplers.build(
      protocol,
      kind=kind,
      root_key=coins.insecure_root_key(1000 + number),
      **options,
  )


def _outcome(sampler, protocol, pass_index):
  """Returns what a pass shows: per step, reports without order, and counts."""
  steps = range(1, protocol.num_rounds + 1)
  cohorts = [sampler.cohort(pass_index, step) for step in steps]
  return tuple(
      (tuple(sorted(c.clients.tolist())), c.num_checked_in, c.num_arrived)
      for c in cohorts
  )


def _choices(protocol, client):
  """Yields (steps of the client, probability), the law of its own coins."""
  if isinstance(protocol, check_ins.ShuffledCheckIn):
    rate = protocol.check_in_rate
    for heads in itertools.product((0, 1), repeat=protocol.num_rounds):
      taken = tuple(t for t, head in enumerate(heads, 1) if head)
      yield taken, math.prod(rate if head else 1 - rate for head in heads)
    return
  probability = getattr(protocol, 'check_in_probability', 1.0)
  if isinstance(protocol, allocation.CyclicAllocation):
    for residue in range(protocol.stride):
      windows = []
      for window in range(protocol.num_windows):
        steps = protocol.steps(residue, window)
        one = [((step,), probability / len(steps)) for step in steps]
        windows.append(one + [((), 1 - probability)])
      for chosen in itertools.product(*windows):
        chance = math.prod(each for _, each in chosen) / protocol.stride
        yield sum((taken for taken, _ in chosen), ()), chance
    return
  if probability < 1:
    yield (), 1 - probability
  if isinstance(protocol, check_ins.SlidingWindowCheckIn):
    first = 1 + client % protocol.num_rounds
    sets = [(first + i,) for i in range(protocol.window)]
  else:
    sets = list(
        itertools.combinations(
            range(1, protocol.num_rounds + 1), protocol.max_reports
        )
    )
  for taken in sets:
    yield taken, probability / len(sets)


def _step_law(protocol, step, members, dropout_rate, lost_winner):
  """Yields (what a step shows, probability) given who checked in."""
  if step < getattr(protocol, 'window', 1):
    yield ((), 0, 0), 1.0
    return
  for arrives in itertools.product((0, 1), repeat=len(members)):
    chance = math.prod(1 - dropout_rate if a else dropout_rate for a in arrives)
    if not chance:
      continue
    arrived = [m for m, a in zip(members, arrives) if a]
    if not protocol.has_one_winner:
      yield (tuple(arrived), len(members), len(arrived)), chance
      continue
    asked = members if lost_winner == 'dummy' else arrived
    for winner in asked:
      shown = winner if winner in arrived else samplers.DUMMY
      yield ((shown,), len(members), len(arrived)), chance / len(asked)
    if not asked:
      yield ((samplers.DUMMY,), len(members), len(arrived)), chance


def _exact_law(protocol, num_clients, dropout_rate, lost_winner):
  law = collections.defaultdict(float)
  per_client = [list(_choices(protocol, i)) for i in range(num_clients)]
  for choice in itertools.product(*per_client):
    chance = math.prod(probability for _, probability in choice)
    laws = []
    for step in range(1, protocol.num_rounds + 1):
      members = [i for i, (taken, _) in enumerate(choice) if step in taken]
      laws.append(
          list(_step_law(protocol, step, members, dropout_rate, lost_winner))
      )
    for shown in itertools.product(*laws):
      law[tuple(s for s, _ in shown)] += chance * math.prod(p for _, p in shown)
  return law


def _chi_square_p_value(counts, expected):
  """Returns the p-value; rare outcomes are counted together."""
  counts, expected = np.asarray(counts, float), np.asarray(expected, float)
  rare = expected < _LEAST_EXPECTED
  counts = np.append(counts[~rare], counts[rare].sum())
  expected = np.append(expected[~rare], expected[rare].sum())
  kept = expected > 0
  statistic = np.sum((counts[kept] - expected[kept]) ** 2 / expected[kept])
  return stats.chi2.sf(statistic, kept.sum() - 1)


class LawTest(parameterized.TestCase):

  def _assert_uniform(self, counts):
    counts = np.asarray(counts)
    expected = np.full(counts.shape, counts.sum() / counts.size)
    self.assertGreater(
        _chi_square_p_value(counts.ravel(), expected.ravel()), _FALSE_ALARM
    )

  @parameterized.product(
      case=(
          (check_ins.FixedWindowCheckIn(2, 0.7), 3),
          (check_ins.FixedWindowCheckIn(3), 2),
          (check_ins.SlidingWindowCheckIn(3, 2), 4),
          (check_ins.AveragedCheckIn(2, 3), 3),
          (allocation.RandomAllocation(3, 1, 0.6), 3),
          (allocation.RandomAllocation(4, 2, 0.6), 2),
          (allocation.CyclicAllocation(5, 2, 1, 0.6), 2),
          (allocation.CyclicAllocation(7, 1, 2), 2),
          (allocation.CyclicAllocation(8, 2, 2), 1),
          (check_ins.ShuffledCheckIn(2, 0.3, 1), 3),
      ),
      kind=samplers.KINDS,
      dropout=((0.0, 'dummy'), (0.3, 'dummy'), (0.3, 'redraw')),
  )
  # Without dropout, and by the rule that does not matter: the last seven cases
  # have no winner. The second case of one slot has no coin of its own, and the
  # last cyclic one is a second case of two windows.
  @pytest.mark.slow(
      cases=[
          str(i)
          for i in range(60)
          if i % 3 == 0
          or (i % 3 == 1 and i >= 18)
          or i in (*range(6, 12), *range(24, 30), *range(48, 54))
      ]
  )
  def test_joint_law_of_a_pass_is_exact(self, case, kind, dropout):
    protocol, num_clients = case
    dropout_rate, lost_winner = dropout
    law = _exact_law(protocol, num_clients, dropout_rate, lost_winner)
    self.assertAlmostEqual(sum(law.values()), 1.0)
    sampler = _build(
        protocol,
        kind,
        num_clients=num_clients,
        dropout_rate=dropout_rate,
        lost_winner=lost_winner,
    )
    num_passes = 2000
    found = collections.Counter(
        _outcome(sampler, protocol, i) for i in range(num_passes)
    )
    self.assertContainsSubset(found, law)
    outcomes = list(law)
    p_value = _chi_square_p_value(
        [found[outcome] for outcome in outcomes],
        [num_passes * law[outcome] for outcome in outcomes],
    )
    self.assertGreater(p_value, _FALSE_ALARM)

  @parameterized.product(
      protocol=(
          check_ins.FixedWindowCheckIn(40, 0.6),
          check_ins.SlidingWindowCheckIn(40, 8),
          check_ins.AveragedCheckIn(40, 10),
          allocation.RandomAllocation(40, 2),
          allocation.CyclicAllocation(40, 2, 4),
      ),
      kind=samplers.KINDS,
  )
  def test_slot_occupancy(self, protocol, kind):
    num_clients, num_passes = 120, 40
    sampler = _build(protocol, kind, num_clients=num_clients)
    first = getattr(protocol, 'window', 1)
    occupancy = np.array([
        [
            sampler.cohort(i, step).num_checked_in
            for step in range(first, protocol.num_rounds + 1)
        ]
        for i in range(num_passes)
    ])
    self._assert_uniform(occupancy.sum(axis=0))
    if not isinstance(protocol, check_ins.SlidingWindowCheckIn):
      rate = getattr(protocol, 'check_in_probability', 1.0)
      came = occupancy.sum() / protocol.max_reports
      self.assertLess(
          abs(came - num_passes * num_clients * rate),
          5 * math.sqrt(num_passes * num_clients * rate * (1 - rate)) + 1e-9,
      )

  @parameterized.product(
      protocol=(
          check_ins.FixedWindowCheckIn(10, 0.5),
          check_ins.SlidingWindowCheckIn(20, 5),
      ),
      kind=samplers.KINDS,
      lost_winner=samplers.RULES_FOR_LOST,
  )
  @pytest.mark.slow(cases=['0', '2', '4', '6'])
  def test_winners_are_uniform(self, protocol, kind, lost_winner):
    num_clients = 20
    sampler = _build(
        protocol,
        kind,
        num_clients=num_clients,
        dropout_rate=0.2,
        lost_winner=lost_winner,
    )
    wins = collections.Counter(
        (step, int(sampler.cohort(i, step).clients[0]))
        for i in range(2000)
        for step in (5, 10)
    )
    for step in (5, 10):
      if isinstance(protocol, check_ins.SlidingWindowCheckIn):
        # Those whose window holds the step; nobody else can win.
        able = range(step - 5, step)
      else:
        able = range(num_clients)
      self._assert_uniform([wins[step, client] for client in able])
      self.assertContainsSubset(
          [client for t, client in wins if t == step], [-1, *able]
      )

  @parameterized.parameters(*samplers.KINDS)
  def test_shuffled_check_in_counts_and_inclusion(self, kind):
    # What the protocol says of dropout is not what happens.
    protocol = check_ins.ShuffledCheckIn(3000, 0.15, 1, dropout_rate=0.9)
    sampler = _build(protocol, kind, num_clients=40, dropout_rate=0.2)
    cohorts = [sampler.cohort(0, step) for step in range(1, 3001)]
    for attribute, rate in (('num_checked_in', 0.15), ('num_arrived', 0.12)):
      sizes = [getattr(cohort, attribute) for cohort in cohorts]
      p_value = _chi_square_p_value(
          np.bincount(sizes, minlength=41),
          3000 * stats.binom.pmf(np.arange(41), 40, rate),
      )
      self.assertGreater(p_value, _FALSE_ALARM, attribute)
    taken = np.concatenate([cohort.clients for cohort in cohorts])
    self._assert_uniform(np.bincount(taken, minlength=40))
    is_in = np.zeros((3000, 40), bool)
    for step, cohort in enumerate(cohorts):
      is_in[step, cohort.clients] = True
    # Pairwise independence: of two clients, and of two rounds of one client.
    for first, second in (
        (is_in[:, :20], is_in[:, 20:]),
        (is_in[:, :1], is_in[:, 1:2]),
        (is_in[:-1], is_in[1:]),
        (is_in[:-7], is_in[7:]),
    ):
      table = np.bincount((2 * first + second).ravel(), minlength=4)
      self.assertGreater(
          stats.chi2_contingency(table.reshape(2, 2))[1], _FALSE_ALARM
      )

  @parameterized.product(
      protocol=(
          check_ins.AveragedCheckIn(4, 1),
          allocation.RandomAllocation(4),
      ),
      kind=samplers.KINDS,
  )
  def test_slots_of_two_clients_and_of_two_passes_are_independent(
      self, protocol, kind
  ):
    sampler = _build(protocol, kind, num_clients=6)
    slots = np.zeros((2500, 6), int)
    for pass_index in range(len(slots)):
      for step in range(1, 5):
        slots[pass_index, sampler.cohort(pass_index, step).clients] = step - 1
    for first, second in (
        (slots[:, 0], slots[:, 1]),
        (slots[:, 2], slots[:, 5]),
        (slots[:-1].ravel(), slots[1:].ravel()),
    ):
      self._assert_uniform(np.bincount(4 * first + second, minlength=16))

  @parameterized.product(
      case=(
          check_ins.AveragedCheckIn(1, 1),
          allocation.RandomAllocation(2, 2),
          check_ins.ShuffledCheckIn(1500, 1.0, 1),
      ),
      kind=samplers.KINDS,
  )
  def test_order_within_a_step_is_random(self, case, kind):
    sampler = _build(case, kind, num_clients=5)
    # Of all passes, or of all steps of one pass: none repeats another's order.
    times = [(i, 1) for i in range(1500)]
    if isinstance(case, check_ins.ShuffledCheckIn):
      times = [(0, step) for step in range(1, 1501)]
    orders = [sampler.cohort(*time).clients for time in times]
    for place in range(5):
      self._assert_uniform(
          np.bincount([order[place] for order in orders], minlength=5)
      )


class DummiesTest(parameterized.TestCase):

  def _assert_mean(self, found, expected):
    error = 5 * np.std(found, ddof=1) / math.sqrt(len(found))
    self.assertLess(abs(np.mean(found) - expected), error)
    self.assertGreater(error, 0)
    self.assertLess(error, 0.1 * expected)  # So that the test has power.

  def _count_dummies(self, sampler, protocol, pass_index=0):
    first = getattr(protocol, 'window', 1)
    cohorts = [
        sampler.cohort(pass_index, step)
        for step in range(first, protocol.num_rounds + 1)
    ]
    for cohort in cohorts:
      self.assertLen(cohort.clients, 1)
      self.assertEqual(cohort.clients[0] == -1, cohort.num_checked_in == 0)
    return sum(cohort.num_checked_in == 0 for cohort in cohorts)

  @parameterized.parameters(
      ('literal', 300, 60, 0.2, 60),
      ('fast', 300, 60, 0.2, 60),
      ('fast', 10**6, 1000, 0.001, 20),
  )
  def test_proposition_3_4(
      self, kind, num_clients, num_slots, probability, num_passes
  ):
    protocol = check_ins.FixedWindowCheckIn(num_slots, probability)
    sampler = _build(protocol, kind, num_clients=num_clients)
    self._assert_mean(
        [self._count_dummies(sampler, protocol, i) for i in range(num_passes)],
        num_slots * (1 - probability / num_slots) ** num_clients,
    )

  @parameterized.parameters('literal', 'fast')
  def test_proposition_4_4(self, kind):
    protocol = check_ins.SlidingWindowCheckIn(200, 10)
    expected = (200 - 10 + 1) * (1 - 1 / 10) ** 10
    self._assert_mean(
        [
            self._count_dummies(
                _build(protocol, kind, i, num_clients=200), protocol
            )
            for i in range(30)
        ],
        expected,
    )


class SamplerTest(parameterized.TestCase):

  @parameterized.product(
      protocol=(
          check_ins.FixedWindowCheckIn(10, 0.5),
          check_ins.SlidingWindowCheckIn(10, 4),
          check_ins.AveragedCheckIn(10, 1),
          allocation.RandomAllocation(10, 2, 0.5),
          check_ins.ShuffledCheckIn(10, 0.3, 1),
      ),
      kind=samplers.KINDS,
  )
  def test_cohort_is_a_function_of_key_pass_and_step(self, protocol, kind):
    options = dict(num_clients=50, dropout_rate=0.2, lost_winner='redraw')
    first = _build(protocol, kind, **options)
    second = _build(protocol, kind, **options)
    times = [(i, t) for i in range(2) for t in range(1, 11)]
    found = {time: first.cohort(*time) for time in times}
    for time in reversed(times):
      again = second.cohort(*time)
      np.testing.assert_array_equal(again.clients, found[time].clients)
      self.assertEqual(again[1:], found[time][1:])
    other = _build(protocol, kind, 1, **options)
    self.assertNotEqual(
        [other.cohort(*time).clients.tolist() for time in times],
        [found[time].clients.tolist() for time in times],
    )
    self.assertNotEqual(
        [found[0, t].clients.tolist() for t in range(1, 11)],
        [found[1, t].clients.tolist() for t in range(1, 11)],
    )

  @parameterized.parameters(
      check_ins.FixedWindowCheckIn(2000, 0.5),
      check_ins.SlidingWindowCheckIn(2000, 50),
      check_ins.AveragedCheckIn(2000, 10),
      allocation.RandomAllocation(2000),
      check_ins.ShuffledCheckIn(2000, 1e-4, 10),
  )
  @pytest.mark.slow(but=['1', '4'])
  def test_ten_million_clients(self, protocol):
    num_clients = 10**7
    sampler = _build(protocol, 'fast', num_clients=num_clients)
    clients = np.concatenate(
        [sampler.cohort(0, step).clients for step in range(1, 401)]
    )
    if protocol.has_one_winner:
      self.assertLen(clients, 400 - getattr(protocol, 'window', 1) + 1)
    else:
      share = getattr(protocol, 'check_in_rate', 1 / 2000)
      expected = 400 * share * num_clients
      self.assertLess(abs(len(clients) - expected), 5 * math.sqrt(expected))
    if not isinstance(protocol, check_ins.ShuffledCheckIn):
      self.assertLen(set(clients.tolist()), len(clients))
    self.assertBetween(clients.min(), 0, num_clients - 1)
    self.assertBetween(clients.max(), 0, num_clients - 1)

  def test_a_client_has_one_slot_in_a_pass(self):
    for kind in samplers.KINDS:
      sampler = _build(
          check_ins.AveragedCheckIn(7, 1), kind, num_clients=60
      )
      clients = np.concatenate(
          [sampler.cohort(0, step).clients for step in range(1, 8)]
      )
      self.assertCountEqual(clients.tolist(), range(60))

  @parameterized.product(
      kind=samplers.KINDS, rounds=(48, 51), probability=(1.0, 0.7)
  )
  def test_cyclic_allocation_keeps_class_window_and_gap(
      self, kind, rounds, probability
  ):
    protocol = allocation.CyclicAllocation(rounds, 3, 4, probability)
    sampler = _build(protocol, kind, num_clients=50)
    taken = collections.defaultdict(list)
    for step in range(1, rounds + 1):
      for client in sampler.cohort(0, step).clients.tolist():
        taken[client].append(step)
    for steps in taken.values():
      self.assertLen({(step - 1) % 4 for step in steps}, 1)
      windows = [
          next(
              w for w in range(3)
              if step in protocol.steps((step - 1) % 4, w)
          )
          for step in steps
      ]
      self.assertEqual(sorted(set(windows)), windows)
      self.assertTrue(all(np.diff(steps) >= 4))
    came = sum(len(steps) for steps in taken.values())
    wanted = 50 * probability * _expected_reports(protocol, rounds)
    self.assertLess(abs(came - wanted), 5 * math.sqrt(150 * 0.25))
    if probability == 1.0:
      self.assertLen(taken, 50)
      self.assertEqual({len(steps) for steps in taken.values()}, {3})

  @parameterized.parameters(
      ({'kind': 'quick'}, "sampler='quick'"),
      ({'num_clients': 0}, 'num_clients=0'),
      ({'dropout_rate': 1.0}, 'dropout_rate=1.0'),
      ({'lost_winner': 'wait'}, "lost_winner='wait'"),
      ({'protocol': 3}, 'protocol=3'),
  )
  def test_bad_argument_is_named(self, bad, message):
    arguments = dict(
        protocol=check_ins.FixedWindowCheckIn(5),
        root_key=bytes(16),
        num_clients=3,
    )
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      samplers.build(**(arguments | bad))

  @parameterized.parameters(
      allocation.RandomAllocation(12, 3),
      allocation.CyclicAllocation(12, 2, 2),
      allocation.CyclicAllocation(17, 2, 3),
  )
  def test_reports_of_the_first_steps(self, protocol):
    num_clients = 4000
    sampler = _build(protocol, samplers.FAST, num_clients=num_clients)
    came = np.cumsum([
        sampler.cohort(0, step).num_checked_in
        for step in range(1, protocol.num_rounds + 1)
    ])
    for step, count in enumerate(came.tolist(), 1):
      wanted = num_clients * _expected_reports(protocol, step)
      self.assertLess(abs(count - wanted), 6 * math.sqrt(num_clients))
    self.assertEqual(came[-1], num_clients * protocol.max_reports)
    self.assertAlmostEqual(
        _expected_reports(protocol, protocol.num_rounds), protocol.max_reports
    )

  def test_reports_of_everybody_are_not_drawn(self):
    # The literal sampler would give each client one of the rounds: too small
    # a crowd for what is accounted.
    for kind in samplers.KINDS:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'check_in_rate=1.0'
      ):
        _build(check_ins.ShuffledReports(3, 20), kind, num_clients=20)

  def test_bad_time_is_named(self):
    sampler = _build(
        check_ins.FixedWindowCheckIn(5), 'fast', num_clients=3
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'step=6'):
      sampler.cohort(0, 6)
    with self.assertRaisesRegex(_checks.ArgumentError, 'pass_index=-1'):
      sampler.cohort(-1, 1)

  def test_probe_is_stable(self):
    for kind in samplers.KINDS:
      self.assertEqual(samplers.probe(kind), samplers.probe(kind))
    self.assertNotEqual(*map(samplers.probe, samplers.KINDS))


class CoinsTest(parameterized.TestCase):

  def test_labels_do_not_run_together(self):
    key = bytes(16)
    labels = [
        (b'ab', b'c'), (b'a', b'bc'), (b'abc',), ('ab', 'c'), (1, 23), (12, 3),
        (123,), ('123',), (b'123',), (), ('',), (b'', b''),
    ]
    self.assertLen({coins.subkey(key, *each) for each in labels}, len(labels))
    self.assertLen({coins.subkey(bytes([i] * 16), 1) for i in range(9)}, 9)

  def test_heads(self):
    self.assertFalse(coins.is_heads(0, 0.0))
    self.assertTrue(coins.is_heads(2**128 - 1, 1.0))
    self.assertTrue(coins.is_heads(2**126 - 1, 0.25))
    self.assertFalse(coins.is_heads(2**126, 0.25))

  def test_draw_covers_all_choices(self):
    self.assertEqual(coins.draw(0, 7), 0)
    self.assertEqual(coins.draw(2**128 - 1, 7), 6)
    values = [coins.draw(coins.coin(bytes(16), i), 7) for i in range(7000)]
    counts = np.bincount(values, minlength=7)
    p_value = _chi_square_p_value(counts, np.full(7, 1000.0))
    self.assertGreater(p_value, _FALSE_ALARM)

  def test_root_keys(self):
    self.assertNotEqual(coins.random_root_key(), coins.random_root_key())
    self.assertEqual(coins.insecure_root_key(3), coins.insecure_root_key(3))
    self.assertNotEqual(coins.insecure_root_key(3), coins.insecure_root_key(4))
    with self.assertRaisesRegex(ValueError, 'insecure_seed=-1'):
      coins.insecure_root_key(-1)


if __name__ == '__main__':
  absltest.main()
