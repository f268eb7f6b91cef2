# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The rounds of a server without TensorFlow: noise, clients, refusals, resume."""

import contextlib
import dataclasses
import errno
import itertools
import json
import os
import pathlib
import subprocess
import sys
import threading
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import scipy.stats

from tests import threads
from tests.mechanisms import reference
from tff_dp import _checks
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.integrations import cohorts
from tff_dp.integrations import noise
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import tree
from tff_dp.mechanisms.matrix import banded_inverse
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.participation import coins
from tff_dp.participation import sampling
from tff_dp.statement import declarations
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan
from tff_dp.systems.sampling import plan as sampling_plan

_ROOT = pathlib.Path(__file__).parents[2]
_NUM_ROUNDS = 12
# As in tests/aggregators/covariance_test.py: finds 2 % with near certainty.
_NUM_PARAMS = 20_000
_FALSE_ALARM = 1e-6
_BLT = blt.Blt(_NUM_ROUNDS, (0.25, 0.125, 0.1), (0.95, 0.5, 0.1), 5)
_MECHANISMS = {
    'blt': _BLT,
    'toeplitz': toeplitz.Toeplitz.square_root(_NUM_ROUNDS),
    'banded_inverse': banded_inverse.BandedInverse(
        _NUM_ROUNDS, (1.0, -0.5, -0.125), restart_every=5
    ),
    'honaker_completed': tree.HonakerTree(
        _NUM_ROUNDS, restart_every=5, complete_trees=True
    ),
    'tree_completed': tree.Tree(
        _NUM_ROUNDS, restart_every=5, complete_trees=True
    ),
}
_KEY = coins.insecure_root_key(5)
_CLIENTS = [f'node {i}' for i in range(8)]


@dataclasses.dataclass(frozen=True)
class _ForgetfulBlt(blt.Blt):
  """A mutant: forgets its buffers after every round."""

  def next_noise(self, buffers, round_in_tree, operations):
    noise_, _ = super().next_noise(buffers, round_in_tree, operations)
    return noise_, buffers


@dataclasses.dataclass(frozen=True)
class _QuietHonaker(tree.HonakerTree):
  """A mutant: three percent too little noise on every release."""

  def next_noise(self, buffers, round_in_tree, operations):
    noise_, buffers = super().next_noise(buffers, round_in_tree, operations)
    return 0.97 * noise_, buffers


def _released(mechanism, totals=None, *, num_params=_NUM_PARAMS):
  """Returns the noise of a run, shape [T, p]; sums are 0 unless given."""
  state, rows = noise.initialize(mechanism, num_params, key=_KEY), []
  for t in range(mechanism.num_rounds):
    total = np.zeros(num_params, np.int64)
    if totals is not None:
      total += totals[t]
    row, state = noise.next_noise(mechanism, state, total)
    rows.append(row)
  return np.stack(rows)


def _statistic_and_limit(mechanism):
  statistic = reference.covariance_statistic(
      _released(mechanism), reference.covariance(mechanism)
  )
  degrees = _NUM_ROUNDS * (_NUM_ROUNDS + 1) / 2
  return statistic, scipy.stats.chi2.isf(_FALSE_ALARM, degrees)


class NoiseTest(parameterized.TestCase):

  @parameterized.named_parameters(*_MECHANISMS.items())
  def test_covariance_equals_the_definition(self, mechanism):
    self.assertLess(*_statistic_and_limit(mechanism))

  @parameterized.named_parameters(
      ('blt', _ForgetfulBlt(_NUM_ROUNDS, _BLT.weights, _BLT.decays, 5)),
      ('honaker', _QuietHonaker(_NUM_ROUNDS)),
  )
  def test_wrong_noise_is_found(self, mutant):
    self.assertGreater(*_statistic_and_limit(mutant))

  @parameterized.named_parameters(*_MECHANISMS.items())
  def test_other_sums_have_other_noise_from_their_round_on(self, mechanism):
    sums = np.zeros(_NUM_ROUNDS, np.int64)
    first = _released(mechanism, sums, num_params=3)
    np.testing.assert_array_equal(
        first, _released(mechanism, sums, num_params=3)
    )
    sums[6] = 1
    other = _released(mechanism, sums, num_params=3)
    np.testing.assert_array_equal(first[:6], other[:6])
    self.assertTrue(np.all(first[6:] != other[6:]))

  def test_streams_of_one_key_are_independent(self):
    def released(domain):
      state = noise.initialize(_BLT, _NUM_PARAMS, key=_KEY)
      total = np.zeros(_NUM_PARAMS, np.int64)
      return noise.next_noise(_BLT, state, total, domain=domain)[0]

    correlation = np.corrcoef(released('value'), released('quantile'))[0, 1]
    limit = scipy.stats.norm.isf(_FALSE_ALARM) / np.sqrt(_NUM_PARAMS)
    self.assertLess(abs(correlation), limit)

  def test_key_of_zeros_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'not all zeros'):
      noise.initialize(_BLT, 3, key=bytes(16))


def _plan(**changes):
  return dp_ftrl_plan.DpFtrlPlan(**dict(
      mechanism=blt.Blt(6, (0.25, 0.125), (0.95, 0.5), 3),
      participation=sampling.MinSeparation(6, min_index_gap=2),
      l2_norm_clip=0.5,
      clients_per_round=3,
      noise_multiplier=1.5,
  ) | changes)


def _adaptive(**changes):
  # A clip norm below some clients' norms and above others'.
  return _plan(**dict(
      adaptive_clipping=adaptive_clipping.AdaptiveClipping(
          target_quantile=0.6, learning_rate=0.7, budget_share=0.1
      ),
      l2_norm_clip=0.05,
  ) | changes)


def _model():
  return {'w': np.zeros([2, 2], np.float32), 'b': np.ones(1)}


def _trained(model, client):
  """Returns what an honest client replies, of norm below 0.5."""
  change = 0.01 * (1 + _CLIENTS.index(client))
  return {name: value + change for name, value in model.items()}


class _Killed(BaseException):
  """Stands for the end of the process; no `except Exception` catches it."""


@contextlib.contextmanager
def _killed_at(number):
  """Ends the process at its n-th write; gives what it has begun to write."""
  places = []
  write = run_directory.write_atomically
  # pylint: disable-next=protected-access
  append = write_ahead.WriteAheadRecord._append

  def count(place):
    places.append(place)
    if len(places) == number:
      raise _Killed

  def write_or_die(path, content):
    count(os.path.basename(path))
    write(path, content)

  def append_or_die(record, entry):
    count(next(key for key in ('released', 'cohort') if key in entry))
    append(record, entry)

  with mock.patch.object(
      run_directory, 'write_atomically', write_or_die
  ), mock.patch.object(
      write_ahead.WriteAheadRecord, '_append', append_or_die
  ):
    yield places


class ServerRoundsTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self._folder = pathlib.Path(self.create_tempdir().full_path)

  def _open(self, name='run', plan=None, model=None, **changes):
    rounds = server_rounds.ServerRounds(
        plan or _plan(),
        model or _model(),
        **dict(
            output_dir=self._folder / name,
            delta=1e-5,
            stack='a test',
            insecure_seed=5,
        ) | changes,
    )
    self.addCleanup(rounds.close)
    return rounds

  def _file(self, path, name='run'):
    return self._folder / name / path

  def _round(self, rounds):
    cohort = rounds.select(_CLIENTS)
    rounds.finish((each, _trained(rounds.model, each)) for each in cohort)
    return cohort

  def test_replies_of_a_round_that_was_finished_meanwhile_are_refused(self):
    rounds, released = self._open(), []
    cohort = rounds.select(_CLIENTS)

    def finish_in_time():
      rounds.finish([])
      released.append(rounds.model)
      rounds.select(_CLIENTS)

    def late():
      thread = threading.Thread(target=finish_in_time)
      thread.start()
      thread.join()
      for each in cohort:
        yield each, _trained(_model(), each)

    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'finished by another thread'
    ):
      rounds.finish(late())
    self.assertEqual(rounds.rounds_done, 1)
    for name, value in rounds.model.items():
      np.testing.assert_array_equal(value, released[0][name])
    rounds.finish([])
    self.assertEqual(rounds.rounds_done, 2)

  def _at_call(self, owner, name, rounds, act):
    """Lets a second thread act on the rounds just before one call of a method.

    Returns a function that returns what the second thread returned.
    """
    real, calls = getattr(owner, name), []

    def stand_in(*arguments, **options):
      if not calls:
        calls.append(None)
        calls[0] = threads.Call(rounds, lambda: act(rounds))
      return real(*arguments, **options)

    self.enterContext(mock.patch.object(owner, name, stand_in))
    return lambda: calls[0].result()

  @parameterized.parameters(
      (lambda rounds: updates.flat(rounds.model),),
      (lambda rounds: rounds.l2_norm_clip,),
      (lambda rounds: rounds.select(_CLIENTS),),
  )
  def test_second_thread_waits_until_a_round_has_ended(self, act):
    plan = _adaptive(mechanism=mechanism_lib.Independent(6))
    found, expected = [], []
    for name in ('two threads', 'one'):
      rounds = self._open(name, plan=plan)
      rounds.select(_CLIENTS)
      if name == 'one':
        rounds.finish([])
        expected.append(act(rounds))
      else:
        result = self._at_call(rounds, '_write_complaints', rounds, act)
        rounds.finish([])
        found.append(result())
    np.testing.assert_array_equal(found, expected)

  def test_second_thread_that_closes_waits_until_a_round_has_ended(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    result = self._at_call(
        rounds, '_write_complaints', rounds, lambda rounds: rounds.close()
    )
    rounds.finish([])
    result()
    self.assertEqual(self._open().rounds_done, 1)

  @parameterized.parameters(
      (lambda it: it, '_write_complaints', 'finish', 'by another thread'),
      # The first thread has no cohort any more, and is about to save.
      (lambda it: it, '_save', 'finish', 'has no cohort'),
      (lambda it: it._cohorts, 'select', 'select', 'already has a cohort'),
  )
  def test_round_begins_and_ends_in_one_thread(self, owner, place, name, error):
    rounds = self._open()
    act = lambda rounds: rounds.select(_CLIENTS)
    if name == 'finish':
      rounds.select(_CLIENTS)
      act = lambda rounds: rounds.finish([])
    result = self._at_call(owner(rounds), place, rounds, act)
    act(rounds)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, error):
      result()
    self.assertEqual(rounds.rounds_done, int(name == 'finish'))

  def test_statement_does_not_replace_the_one_of_a_later_round(self):
    rounds = self._open(insecure_seed=None)
    self._round(rounds)
    result = self._at_call(
        run_directory, 'write_statement', rounds, self._round
    )
    rounds.statement()
    result()
    stated, events = (
        json.loads(self._file(f'release/{name}').read_text())
        for name in ('privacy_statement.json', 'events.json')
    )
    self.assertEqual(stated['points']['mechanism']['rounds_done'], 2)
    self.assertEqual(events['events'][0]['rounds'], 2)
    self.assertFalse(self._file('release/report.html').exists())

  def test_a_round_that_could_not_be_saved_is_not_shown(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    full = OSError(errno.ENOSPC, 'No space left on device')
    with mock.patch.object(
        run_directory, 'write_atomically', side_effect=full
    ):
      with self.assertRaisesRegex(OSError, 'No space'):
        rounds.finish([])
    for show in (
        lambda: rounds.model,
        lambda: rounds.l2_norm_clip,
        lambda: rounds.select(_CLIENTS),
        lambda: rounds.finish([]),
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is not saved'):
        show()
    rounds.close()
    again = self._open()
    self.assertEqual(again.rounds_done, 0)
    again.select(_CLIENTS)
    again.finish([])
    self.assertLen(again.model, len(_model()))

  def test_a_round_that_could_not_be_stated_is_not_shown(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    full = OSError(errno.ENOSPC, 'No space left on device')
    with mock.patch.object(
        run_directory, 'write_statement', side_effect=full
    ):
      with self.assertRaisesRegex(OSError, 'No space'):
        rounds.finish([])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'not stated'):
      print(rounds.model)
    rounds.close()
    again = self._open()
    self.assertEqual(again.rounds_done, 1)
    self.assertEqual(again.statement().points['mechanism']['rounds_done'], 1)

  def test_declarations_do_not_hide_the_files_of_the_server(self):
    declared = declarations.Declarations(data_name='mine')
    points = self._open(declarations=declared).statement().points
    self.assertIn('secret/clients.jsonl', points['release']['not_covered'])
    self.assertEqual(points['setting']['data_name'], 'mine')

  def test_another_population_than_the_plans_is_refused(self):
    plan = sampling_plan.SamplingPlan(
        population=12, clients_per_round=3, num_rounds=4, noise_multiplier=2.0
    )
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'declarations.population=1000000[^^]*12, the'
    ):
      self._open(
          plan=plan, declarations=declarations.Declarations(population=10**6)
      )

  def test_a_round_that_stopped_in_the_middle_is_not_finished(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    with mock.patch.object(noise, 'next_noise', side_effect=MemoryError):
      with self.assertRaises(MemoryError):
        rounds.finish([])
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is not saved'):
      rounds.finish([])

  def test_closed_rounds_leave_the_files_to_the_next(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    rounds.close()
    again = self._open()
    self._round(again)
    again.select(_CLIENTS)
    before = self._files()
    for call in (
        lambda: rounds.select(_CLIENTS),
        lambda: rounds.finish([]),
        rounds.statement,
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'was closed'):
        call()
      self.assertEqual(self._files(), before)

  def _files(self) -> dict[str, bytes]:
    root = self._folder / 'run'
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob('*')
        if path.is_file()
    }

  def test_a_forked_process_is_refused(self):
    rounds = self._open()
    with mock.patch.object(os, 'getpid', lambda: -1):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'forked'):
        rounds.select(_CLIENTS)
    rounds.select(_CLIENTS)
    before = self._files()
    with mock.patch.object(os, 'getpid', lambda: -1):
      for call in (lambda: rounds.finish([]), rounds.statement):
        with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'forked'):
          call()
    self.assertEqual(self._files(), before)
    rounds.finish([])

  def test_equals_a_plain_loop(self):
    plan, rounds = _plan(), self._open()
    model = np.array([0.0, 0, 0, 0, 1])
    state = noise.initialize(plan.mechanism, 5, key=_KEY)
    for _ in range(plan.num_rounds):
      cohort = self._round(rounds)
      # On the grid, whose step is 2^-40.
      changes = np.stack([
          updates.flat(_trained(
              updates.unflat(model, _model()), each)) - model
          for each in cohort
      ])
      total = np.trunc(changes * 2.0**40).astype(np.int64).sum(axis=0)
      unit, state = noise.next_noise(plan.mechanism, state, total)
      model += (total * 2.0**-40 + 1.5 * 0.5 * unit) / 3
      model = updates.flat(updates.unflat(model, _model()))
      np.testing.assert_array_equal(updates.flat(rounds.model), model)

  @parameterized.named_parameters(
      ('trees', blt.Blt(6, (0.25, 0.125), (0.95, 0.5), 3), 3),
      ('independent', mechanism_lib.Independent(6), 1),
  )
  def test_clip_norm_follows_the_noised_bits(self, mechanism, num_rounds):
    rounds = self._open(plan=_adaptive(mechanism=mechanism))
    model, clip, bits = np.array([0.0, 0, 0, 0, 1]), 0.05, 0.0
    value = noise.initialize(mechanism, 5, key=_KEY)
    quantile = noise.initialize(mechanism, 1, key=_KEY)
    sides = set()
    for t in range(1, 7):
      cohort, total, surplus = self._round(rounds), 0, 0
      step = 2.0 ** np.floor(np.log2(clip) + 1) * 2.0**-40
      for each in cohort:
        reply = _trained(updates.unflat(model, _model()), each)
        update = updates.flat(reply) - model
        norm = np.linalg.norm(update)
        surplus += 1 if norm <= clip else -1
        sides.add(norm <= clip)
        bound = clip * (1 - 1e-6)
        total += np.trunc(update * min(1, bound / norm) / step).astype(int)
      both = np.append(total, surplus)
      drawn, value = noise.next_noise(mechanism, value, both, num_params=5)
      drawn_bits, quantile = noise.next_noise(
          mechanism, quantile, both, num_params=1, domain='quantile'
      )
      model += (total * step + 1.5 / np.sqrt(0.9) * clip * drawn) / 3
      model = updates.flat(updates.unflat(model, _model()))
      np.testing.assert_allclose(
          updates.flat(rounds.model), model, rtol=1e-6, atol=1e-9
      )
      model = updates.flat(rounds.model)
      # A client moves the sum of bits by 1/2, and its noise is for that.
      bits += 0.5 * (surplus + 1.5 / np.sqrt(0.1) * drawn_bits[0]) / 3
      if t % num_rounds == 0:
        estimate = np.clip(bits / num_rounds + 0.5, 0, 1)
        clip, bits = clip * np.exp(-0.7 * (estimate - 0.6)), 0.0
      self.assertAlmostEqual(rounds.l2_norm_clip / clip, 1.0, places=12)
    self.assertLen(sides, 2)
    self.assertNotEqual(clip, 0.05)

  def test_no_reply_counts_for_more_than_one_bit(self):
    rounds = self._open(plan=_adaptive(
        mechanism=mechanism_lib.Independent(6), noise_multiplier=0.0
    ))
    first, second, third = rounds.select(_CLIENTS)
    far = {name: value + 1e30 for name, value in rounds.model.items()}
    rounds.finish([
        (first, far), (first, far), ('stranger', far),
        (second, {'w': np.full([2, 2], np.nan), 'b': np.ones(1)}),
        (third, None),
    ])
    # One over, one of zeros within, one without a bit: the share is 1/2.
    expected = 0.05 * np.exp(-0.7 * (0.5 - 0.6))
    self.assertAlmostEqual(rounds.l2_norm_clip, expected)

  @parameterized.parameters(_plan, _adaptive)
  def test_killed_anywhere_it_goes_on_bit_for_bit(self, plan):
    plan = plan()
    whole = self._open('whole', plan=plan)
    for _ in range(6):
      self._round(whole)
    for _ in range(6):
      # Nothing is closed but the lock, which the kernel would give up.
      killed = self._open('killed', plan=plan)
      cohort = killed.select(_CLIENTS)
      killed.close()
      again = self._open('killed', plan=plan)
      # Whoever is there by now.
      self.assertEqual(again.select(_CLIENTS[:1]), cohort)
      again.finish((c, _trained(again.model, c)) for c in reversed(cohort))
      again.close()
    for name, value in whole.model.items():
      np.testing.assert_array_equal(again.model[name], value)
    self.assertEqual(again.epsilon, whole.epsilon)
    self.assertEqual(again.l2_norm_clip, whole.l2_norm_clip)

  def test_round_that_had_begun_is_charged_once_and_the_next_follows(self):
    rounds = self._open()
    self._round(rounds)
    rounds.select(_CLIENTS)
    rounds.close()
    # Three rounds in one process, of which the first had begun.
    again = self._open()
    self.assertEqual(again.epsilon, _plan().epsilon(delta=1e-5, num_rounds=2))
    for round_index in (2, 3, 4):
      self._round(again)
      self.assertEqual(again.rounds_done, round_index)
      self.assertEqual(
          again.epsilon, _plan().epsilon(delta=1e-5, num_rounds=round_index)
      )
    lines = self._file('secret/write_ahead.jsonl').read_text().splitlines()
    begun = [entry for entry in map(json.loads, lines) if 'cohort' in entry]
    self.assertEqual([entry['round'] for entry in begun], [1, 2, 3, 4])
    self.assertEqual(
        [entry['epsilon'] for entry in begun],
        [_plan().epsilon(delta=1e-5, num_rounds=t) for t in (1, 2, 3, 4)],
    )

  def test_last_round_of_a_budget_may_have_begun_before_a_restart(self):
    budget = _plan().epsilon(delta=1e-5, num_rounds=2)
    rounds = self._open(epsilon_budget=budget)
    self._round(rounds)
    cohort = rounds.select(_CLIENTS)
    rounds.close()
    again = self._open(epsilon_budget=budget)
    self.assertEqual(again.rounds_left, 1)
    self.assertEqual(self._round(again), cohort)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 3 would'):
      again.select(_CLIENTS)

  def test_statement_counts_a_round_that_a_killed_process_had_begun(self):
    rounds = self._open(insecure_seed=None)
    self._round(rounds)
    rounds.select(_CLIENTS)
    rounds.close()
    # The next one is killed as well, before it has asked for the round.
    self._open(insecure_seed=None).close()
    release = self._folder / 'run' / 'release'
    stated = json.loads((release / 'privacy_statement.json').read_text())
    self.assertEqual(
        stated['epsilon'], _plan().epsilon(delta=1e-5, num_rounds=2)
    )
    self.assertEqual(stated['points']['mechanism']['rounds_done'], 2)
    events = json.loads((release / 'events.json').read_text())
    self.assertEqual(events['events'][0]['rounds'], 2)

  @parameterized.parameters(_plan, _adaptive)
  def test_killed_at_any_write_it_has_released_nothing_twice(self, plan):
    plan = plan()
    whole = self._open('whole', plan=plan)
    for _ in range(2):
      self._round(whole)
    finished = []
    for number in itertools.count(1):
      rounds = self._open(f'at {number}', plan=plan)
      self._round(rounds)
      before = self._file('release/model.npz', f'at {number}').read_bytes()
      with _killed_at(number) as places:
        try:
          self._round(rounds)
        except _Killed:
          pass
      rounds.close()
      if len(places) < number:
        break  # The round has no more writes.
      finished.append(self._check_killed(f'at {number}', before))
      again = self._open(f'at {number}', plan=plan)
      self.assertEqual(again.rounds_done, 2 if finished[-1] else 1)
      # Its model is out, so an older checkpoint must not go on.
      self.assertEqual(again._record.released_through, again.rounds_done)
      if not finished[-1]:
        # Whoever replies: the cohort and the noise are those of before.
        self._round(again)
      for name, value in whole.model.items():
        np.testing.assert_array_equal(again.model[name], value)
      self.assertEqual(again.epsilon, whole.epsilon)
      self.assertEqual(again.l2_norm_clip, whole.l2_norm_clip)
    # Cohort, record, checkpoint, record, three of the statement, model.
    self.assertLen(finished, 8)
    self.assertEqual(finished, sorted(finished))
    self.assertEqual(places[2:4], ['checkpoint.npz', 'released'])
    self.assertEqual(places[-1], 'model.npz')

  def _check_killed(self, name, before):
    """Returns whether the round counts as finished, if no release denies it."""
    with np.load(self._file('secret/checkpoint.npz', name)) as arrays:
      saved = json.loads(arrays['header'].tobytes())['rounds_done']
      model = [arrays[f'model_{i}'] for i in range(2)]
    record = write_ahead.WriteAheadRecord(
        self._file('secret/write_ahead.jsonl', name), run_id='any'
    )
    record.close()
    self.assertLessEqual(saved, record.rounds_begun)
    self.assertLessEqual(record.released_through, saved)
    released = self._file('release/model.npz', name)
    if released.read_bytes() != before:
      # Nobody has seen a model that the next process would make again.
      self.assertEqual((saved, record.released_through), (2, 2))
      # And it is in the epsilon that others read.
      stated = json.loads(
          self._file('release/privacy_statement.json', name).read_text()
      )
      self.assertEqual(stated['points']['mechanism']['rounds_done'], 2)
      with np.load(released) as arrays:
        for value, expected in zip(arrays.values(), model, strict=True):
          np.testing.assert_array_equal(value, expected)
    return saved == 2

  def test_going_back_behind_a_release_is_refused(self):
    rounds = self._open()
    path = self._folder / 'run' / 'secret' / 'checkpoint.npz'
    before = path.read_bytes()
    self._round(rounds)
    rounds.close()
    path.write_bytes(before)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'released 1'):
      self._open()
    path.unlink()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'no checkpoint'):
      self._open()

  def test_secret_folder_that_has_forgotten_all_rounds_is_refused(self):
    rounds = self._open()
    self._round(rounds)
    rounds.close()
    for name in ('checkpoint.npz', 'write_ahead.jsonl', 'cohort.json'):
      self._file(f'secret/{name}').unlink()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'states 1 rounds, .* has 0'
    ):
      self._open()

  @parameterized.parameters('older', 'absent')
  def test_record_that_has_forgotten_a_round_is_refused(self, record):
    rounds = self._open()
    self._round(rounds)
    path = self._file('secret/write_ahead.jsonl')
    before = path.read_bytes()
    self._round(rounds)
    rounds.close()
    path.unlink()
    if record == 'older':
      path.write_bytes(before)
    begun = 1 if record == 'older' else 0
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, f'begun {begun} .*a checkpoint of round 2'
    ):
      try:
        self._open()
      except _checks.PrivacyRefusedError:
        # Whoever keeps the error does not keep the directory.
        self._open()

  @parameterized.parameters(
      (dict(plan=_plan(noise_multiplier=1.6)), 'noise_multiplier 1.5 -> 1.6'),
      (dict(delta=1e-4), 'delta'),
      (dict(epsilon_budget=9.0), 'epsilon_budget'),
      (dict(server_learning_rate=0.5), 'server_learning_rate 1.0 -> 0.5'),
      (dict(schedule_seed=1), 'schedule_seed 0 -> 1'),
      (dict(insecure_seed=6), 'insecure_seed 5 -> 6'),
      (dict(insecure_seed=None), 'insecure_seed 5 -> None'),
      (dict(stack='another'), "stack 'a test' -> 'another'"),
      (dict(model=dict(reversed(_model().items()))), 'model'),
      (dict(model=_model() | {'b': np.ones(1, np.float32)}), 'model'),
      (dict(model=_model() | {'b': np.ones([1, 1])}), 'model'),
  )
  def test_directory_of_another_run_is_refused(self, changes, message):
    rounds = self._open()
    self._round(rounds)
    with self.assertRaisesRegex(_checks.ArgumentError, 'a run is active'):
      self._open()
    rounds.close()
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self._open(**changes)
    # Nobody else is kept out by it.
    self.assertEqual(self._open().rounds_done, 1)

  @parameterized.parameters(
      dict(epsilon_budget=0.1),
      dict(plan=_plan(noise_multiplier=0.0), epsilon_budget=100.0),
      dict(delta=0.0),
  )
  def test_refused_before_anything_is_written(self, **changes):
    refused = (_checks.PrivacyRefusedError, _checks.ArgumentError)
    with self.assertRaises(refused):
      self._open(**changes)
    self.assertFalse((self._folder / 'run').exists())

  def test_who_comes_back_is_asked_and_nobody_in_the_place_of_others(self):
    rounds = self._open()
    first, second, third = rounds.select(_CLIENTS)
    rounds.close()
    others = [each for each in _CLIENTS if each not in (first, second, third)]
    # The second comes back while the server waits, the third never does.
    looks = iter([others[:1], others, [*others, first], [first, second]])
    last = [first, second, *others]
    asked = cohorts.connected(
        self._open(), lambda: next(looks, last), at_least=3, timeout=2.5
    )
    self.assertEqual(asked, [first, second])

  def test_nobody_is_charged_for_a_round_that_is_stopped_before(self):
    rounds = self._open()
    asked = cohorts.connected(
        rounds, list, at_least=3, timeout=1, is_stopped=lambda: True
    )
    self.assertEmpty(asked)
    self.assertEqual(rounds.epsilon, 0)

  def test_rounds_beyond_plan_and_budget_are_refused(self):
    rounds = self._open()
    for _ in range(6):
      self._round(rounds)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'beyond the plan'):
      rounds.select(_CLIENTS)
    budget = _plan().epsilon(delta=1e-5, num_rounds=2)
    rounds = self._open('budget', epsilon_budget=budget)
    self.assertEqual(rounds.rounds_left, 2)
    self._round(rounds)
    self._round(rounds)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 3 would'):
      rounds.select(_CLIENTS)
    self.assertLessEqual(rounds.epsilon, budget)

  def test_participation_is_kept(self):
    rounds = self._open()
    first = self._round(rounds)
    others = [each for each in _CLIENTS if each not in first]
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'eligible'):
      rounds.select(first + others[:2])
    self.assertNoCommonElements(first, self._round(rounds))
    rounds.select(_CLIENTS)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'has a cohort'):
      rounds.select(_CLIENTS)

  def test_cohort_does_not_depend_on_the_order_of_connections(self):
    first = self._open('one').select(_CLIENTS)
    self.assertEqual(self._open('other').select(_CLIENTS[::-1]), first)

  def test_cohort_follows_the_public_seed(self):
    plan, cohorts_ = _plan(), []
    for seed in (0, 3):
      rounds = self._open(f'seed {seed}', schedule_seed=seed)
      cohorts_.append(rounds.select(_CLIENTS[::-1]))
      self.assertEqual(
          cohorts_[-1],
          plan.participation.select(
              round_index=1,
              client_ids=_CLIENTS,
              clients_per_round=plan.clients_per_round,
              ledger=plan.participation_ledger('any run'),
              seed=seed,
          ),
      )
    self.assertNotEqual(*cohorts_)

  def test_name_of_the_checkpoint_is_on_the_disk_before_its_model_is_out(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    with _killed_at(0) as places, mock.patch.object(
        server_rounds.run_directory,
        'flush',
        lambda folder: places.append(f'flush {folder.name}'),
    ):
      rounds.finish([])
    self.assertEqual(
        [each for each in places if each != 'flush release'][:3],
        ['checkpoint.npz', 'flush secret', 'released'],
    )

  def test_round_without_a_cohort_is_refused(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'no cohort'):
      self._open().finish([])

  def test_lying_and_broken_clients_are_named_and_bounded(self):
    plan = _plan(noise_multiplier=0.0)
    rounds = self._open(plan=plan, server_learning_rate=3.0)
    first, second, third = rounds.select(_CLIENTS)
    stranger = next(c for c in _CLIENTS if c not in (first, second, third))
    far = {name: value + 1e30 for name, value in rounds.model.items()}
    rounds.finish([
        (first, far),
        (first, far),
        (stranger, far),
        (second, {'w': np.full([2, 2], np.nan), 'b': np.ones(1)}),
    ])
    moved = updates.flat(rounds.model) - [0, 0, 0, 0, 1]
    self.assertAlmostEqual(np.linalg.norm(moved), 0.5, places=5)
    self.assertEqual(
        [tuple(each) for each in rounds.complaints],
        [
            (first, 'over the clip norm'),
            (first, 'not asked, or replied twice'),
            (stranger, 'not asked, or replied twice'),
            (second, 'not finite'),
            (third, 'no reply'),
        ],
    )
    lines = (self._folder / 'run/secret/clients.jsonl').read_text().splitlines()
    self.assertLen(lines, 5)
    self.assertEqual(json.loads(lines[0])['client_id'], first)
    released = self._folder / 'run' / 'release'
    for path in released.iterdir():
      self.assertNotIn(b'node ', path.read_bytes())

  def test_a_client_that_trains_in_place_is_bounded(self):
    # As simulators do, where server and clients share a process.
    rounds = self._open(
        plan=_plan(noise_multiplier=0.0), server_learning_rate=3.0
    )
    first, *_ = rounds.select(_CLIENTS)
    before, handed_out = updates.flat(rounds.model), rounds.model
    for value in handed_out.values():
      value += 30
    released = rounds.finish([(first, handed_out)])
    moved = updates.flat(rounds.model) - before
    self.assertAlmostEqual(np.linalg.norm(moved), 0.5, places=5)
    for value in released.values():
      value += 30
    np.testing.assert_array_equal(updates.flat(rounds.model) - before, moved)

  def test_a_plan_without_noise_multiplier_is_refused_before_any_file(self):
    plan = _plan(noise_multiplier=None)
    with self.assertRaisesRegex(_checks.ArgumentError, 'noise_multiplier=None'):
      self._open(plan=plan)
    self.assertFalse((self._folder / 'run').exists())

  def test_a_model_of_16_bits_is_refused(self):
    model = {name: value.astype(np.float16) for name, value in _model().items()}
    with self.assertRaisesRegex(_checks.ArgumentError, 'float16.*float32'):
      self._open(model=model)

  @parameterized.parameters((1, '1'), (2,), (b'a',), (None,))
  def test_ids_that_are_no_strings_are_refused(self, *ids):
    rounds = self._open()
    with self.assertRaisesRegex(_checks.ArgumentError, 'client_ids=.*strings'):
      rounds.select([*_CLIENTS, *ids])
    # Nothing was charged.
    rounds.select(_CLIENTS)

  @parameterized.parameters(
      (None,),
      ({'w': np.zeros([2, 2])},),
      ({'w': np.zeros([4]), 'b': np.ones(1)},),
      ({'w': np.zeros([2, 2], np.int64), 'b': np.ones(1)},),
      ({'w': np.zeros([2, 2], object), 'b': np.ones(1)},),
      ({'w': np.zeros([2, 2], complex), 'b': np.ones(1)},),
      ({'w': np.zeros([2, 2]), 'b': np.ones(1), 'c': np.ones(1)},),
      ({'w': [[0.0, 0.0], [0.0, 0.0]], 'b': np.ones(1)},),
      ([np.zeros([2, 2]), np.ones(1)],),
  )
  def test_reply_of_another_shape_counts_as_zero(self, weights):
    rounds = self._open(plan=_plan(noise_multiplier=0.0))
    first, *_ = rounds.select(_CLIENTS)
    rounds.finish([(first, weights)])
    np.testing.assert_array_equal(updates.flat(rounds.model), [0, 0, 0, 0, 1])
    self.assertIn('shape', rounds.complaints[0].problem)

  def test_statement_says_who_is_trusted(self):
    rounds = self._open(insecure_seed=None)
    rounds.select(_CLIENTS)
    stated = rounds.statement()
    self.assertEqual(stated.points['mechanism']['rounds_done'], 1)
    self.assertIn('clips every update again', stated.points['setting']['trusted'])
    self.assertIn('adds them up without noise', stated.points['setting']['adversary'])
    self.assertEqual(stated.epsilon, _plan().epsilon(delta=1e-5, num_rounds=1))
    self.assertEmpty(stated.warnings)
    report = self._folder / 'run/release/report.html'
    self.assertIn('clips every update again', report.read_text())
    key = np.load(self._folder / 'run/secret/checkpoint.npz')['header']
    key = json.loads(key.tobytes())['key']
    for path in (self._folder / 'run' / 'release').iterdir():
      self.assertNotIn(key.encode(), path.read_bytes())
    rounds.finish([])
    self.assertFalse(report.exists(), 'it is about one round less')

  def test_every_run_has_a_key_of_its_own(self):
    keys = set()
    for name in ('run', 'another'):
      self._open(name, insecure_seed=None).close()
      with np.load(self._file('secret/checkpoint.npz', name)) as arrays:
        keys.add(json.loads(arrays['header'].tobytes())['key'])
    self.assertLen(keys, 2)

  def test_statement_says_what_the_caller_declared(self):
    told = declarations.Declarations(
        population=500, not_covered='the time of each round'
    )
    points = self._open(declarations=told).statement().points
    self.assertEndsWith(points['release']['not_covered'], told.not_covered)
    self.assertStartsWith(points['mechanism']['population'], '500 clients')

  def test_statement_of_a_known_seed_is_void(self):
    stated = self._open(insecure_seed=0).statement()
    self.assertEqual(stated.epsilon, np.inf)
    self.assertStartsWith(stated.warnings[0], 'NO PRIVACY')

  def test_charged_and_on_the_disk_before_anybody_is_asked(self):
    rounds = self._open()
    rounds.select(_CLIENTS)
    record = write_ahead.WriteAheadRecord(
        self._folder / 'run/secret/write_ahead.jsonl', run_id='any'
    )
    self.addCleanup(record.close)
    self.assertEqual(record.rounds_begun, 1)
    self.assertEqual(record.released_through, 0)

  @parameterized.parameters(
      (dict(initial={'w': np.zeros(2, int)}), 'finite floats'),
      (dict(initial={'w': np.array([0.0, np.inf])}), 'finite floats'),
      (
          dict(
              initial={'trainable/0': np.zeros(2), 'non_trainable/0': np.ones(2)}
          ),
          'trained weights alone',
      ),
      (dict(initial={}), 'at least one weight'),
      (dict(initial={'w': np.zeros(0)}), 'at least one weight'),
      (dict(plan='blt'), "plan='blt' .*a DpFtrlPlan"),
      (dict(plan=_plan(clients_per_round=2**22 + 1)), 'clients_per_round='),
      (dict(schedule_seed=-1), 'schedule_seed=-1'),
      (dict(server_learning_rate=0.0), 'server_learning_rate'),
  )
  def test_wrong_arguments(self, changes, message):
    initial = changes.pop('initial', _model())
    plan = changes.pop('plan', _plan())
    with self.assertRaisesRegex(ValueError, message):
      server_rounds.ServerRounds(
          plan, initial, output_dir=self._folder / 'run', delta=1e-5,
          stack='a test', **changes,
      )

  def test_loads_without_tensorflow(self):
    code = (
        'import sys, tff_dp.integrations.server_rounds;'
        'print([m for m in sys.modules if m.startswith(("tensorflow", "jax"))])'
    )
    found = subprocess.run(
        [sys.executable, '-c', code],
        capture_output=True, text=True, cwd=_ROOT, check=True,
    )
    self.assertEqual(found.stdout.strip(), '[]')


if __name__ == '__main__':
  absltest.main()
