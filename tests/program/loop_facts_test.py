# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a loop is told, counts, says and refuses, on a process without TFF."""

import asyncio
import contextlib
import json
import math
import os
import pathlib
import tempfile
from typing import NamedTuple
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff

import tff_dp
from tests.program import kills
from tests.program import toy
from tests.statement import occasions
from tff_dp import _checks
from tff_dp import program
from tff_dp.accounting import rounding
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.program import certification
from tff_dp.program import cohorts
from tff_dp.program import loop as loop_lib
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints
from tff_dp.statement import declarations

_DELTA = 3e-6
_ROUNDS = 5
_A, _B, _C = (
    [f'client {i}' for i in group]
    for group in ((0, 1, 2), (3, 4, 5), (6, 7, 8))
)


def _plan(noise_multiplier: float = 5.0) -> tff_dp.DpFtrlPlan:
  return toy.build_plan(_ROUNDS, noise_multiplier)


class _Marked(NamedTuple):
  """A state of the toy with the mark of a key that follows from a seed."""

  weights: np.ndarray
  key: np.ndarray
  round_index: np.int64
  is_key_insecure: np.bool_


class _Certificate:
  """Stands for a certificate, and records its checks."""

  def __init__(self, plan, not_covered=frozenset()):
    self.plan, self.not_covered = plan, not_covered
    self.release = None
    self.noise_at_clients = False
    self.checked = []
    self.refuses = False

  def check(self, state, metrics, *, rounds_done):
    has_metrics = None if metrics is None else float(metrics['aggregator']['snr'])
    self.checked.append((int(state.round_index), has_metrics, rounds_done))
    if self.refuses:
      raise _checks.PrivacyRefusedError('other noise', why='-', way_out='-')


class _Case(parameterized.TestCase):

  writes_documents = False

  def setUp(self):
    super().setUp()
    if not self.writes_documents:
      # Its charts take longer than all rounds here.
      self.enterContext(mock.patch.object(documents, 'write'))
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'

  def loop(self, process=None, *, certificate=None, plan=None, **arguments):
    certificate = certificate or _Certificate(plan or _plan())
    with mock.patch.object(
        certification, 'certify', lambda process, plan: certificate
    ):
      made = program.Loop(
          process or toy.Process(),
          arguments.pop('clients', None) or toy.Clients(),
          **dict(output_dir=self.root, delta=_DELTA) | arguments,
      )
    self.addCleanup(made.close)
    return made

  def again(self, loop, **arguments):
    """Returns the loop of another Python process, which resumes this one."""
    # A process that ends gives up its lock, and no more.
    loop._run.directory.close()
    loop_lib._loops.clear()
    return self.loop(**arguments)

  def stated(self) -> dict:
    path = self.root / 'release' / 'privacy_statement.json'
    return json.loads(path.read_text())


class ToldTest(_Case):
  """Every argument gets to the place where it counts."""

  def test_delta_plan_and_declarations(self):
    told = occasions.DECLARED
    loop = self.loop(declarations=told)
    self.assertEqual(loop.plan, _plan())
    loop.next(_A)
    statement = loop.statement()
    self.assertEqual(statement.delta, _DELTA)
    self.assertEqual(
        statement.epsilon, _plan().epsilon(delta=_DELTA, num_rounds=1)
    )
    points = statement.points
    self.assertStartsWith(points['release']['not_covered'], told.not_covered)
    self.assertEqual(points['tuning']['architecture'], told.architecture)
    self.assertEqual(
        points['mechanism']['population'], '20000 clients, from a public census'
    )
    (event,) = json.loads(
        (self.root / 'release' / 'events.json').read_text()
    )['events']
    self.assertEqual(event['rounds'], 1)

  def test_without_declarations(self):
    points = self.loop().statement().points
    self.assertEqual(
        points['mechanism']['population'],
        '12 clients, the clients that the run was given',
    )
    said = points['release']['not_covered']
    self.assertIn('which the loop hands to its caller', said)
    # Such as the number of clients, if the coins are secret.
    self.assertIn('all metrics named not_covered', said)
    self.assertIn('evaluations by the caller', said)
    self.assertNotIn('tff_dp.program.train', said)

  def test_population_may_be_declared_alone(self):
    told = declarations.Declarations(population=500)
    statement = self.loop(declarations=told).statement()
    self.assertStartsWith(
        statement.points['mechanism']['population'], '500 clients, not stated'
    )
    # The default for `train` would claim that nobody sees clients' metrics.
    said = statement.points['release']['not_covered']
    self.assertIn('which the loop hands to its caller', said)
    self.assertNotIn('tff_dp.program.train', said)

  def test_the_process_was_checked_for_this_loop(self):
    said = self.loop().statement().points['implementation']['process']
    self.assertStartsWith(said, 'checked before round 1')
    self.assertIn('the rounds of one tff_dp.program.Loop', said)

  @parameterized.parameters(
      (dict(delta=0.0), 'delta=0.0'),
      (dict(delta=1.0), 'delta=1.0'),
      (dict(epsilon_budget=0.0), 'epsilon_budget=0.0'),
      (dict(epsilon_budget=-1.0), 'epsilon_budget=-1.0'),
      (dict(epsilon_budget=math.nan), 'epsilon_budget=nan'),
  )
  def test_wrong_numbers(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self.loop(**arguments)
    self.assertFalse(self.root.exists())

  @parameterized.parameters(
      (dict(delta=1e-6), 'program.delta 3e-06 -> 1e-06'),
      (dict(epsilon_budget=7.0), 'program.epsilon_budget None -> 7.0'),
      (dict(plan=_plan(5.5)), 'plan.noise_multiplier 5.0 -> 5.5'),
  )
  def test_a_directory_belongs_to_one_run(self, arguments, message):
    self.loop().close()
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self.loop(**arguments)

  def test_other_clients_are_another_run(self):
    self.loop().close()
    clients = toy.Clients()
    clients.client_ids = toy.Clients.client_ids[::-1]
    with self.assertRaisesRegex(_checks.ArgumentError, 'ids of the clients'):
      self.loop(clients=clients)


class CountedTest(_Case):

  def _epsilon(self, rounds: int) -> float:
    return _plan().epsilon(delta=_DELTA, num_rounds=rounds)

  def _check_numbers(self, loop, rounds: int, budget=None, allowed=_ROUNDS):
    self.assertEqual(loop.rounds_done, rounds)
    self.assertEqual(loop.rounds_left, allowed - rounds)
    epsilon = self._epsilon(rounds) if rounds else 0
    self.assertEqual(loop.epsilon, epsilon)
    spent = f'epsilon {rounding.rounded_up(epsilon)} at delta 3e-06'
    if budget is not None:
      spent += f', budget {budget:g}'
    spent += f'; {rounds} of {_ROUNDS} rounds, {allowed - rounds} left'
    self.assertEqual(repr(loop), f'<Loop: {spent}>')
    self.assertEqual(str(loop).split('\n', 1)[0], spent)
    stated = self.stated()
    self.assertEqual(stated['points']['mechanism']['rounds_done'], rounds)
    self.assertEqual(stated['epsilon'], self._epsilon(rounds or _ROUNDS))
    self.assertEqual(stated, loop.statement().to_json())

  def test_every_round(self):
    loop = self.loop()
    self._check_numbers(loop, 0)
    for done in range(1, _ROUNDS + 1):
      output = loop.next(loop.eligible()[:3])
      self.assertIs(output.state, loop.state)
      np.testing.assert_array_equal(
          loop.model_weights['weights'], output.state.weights
      )
      self._check_numbers(loop, done)
      if done == 3:
        loop = self.again(loop)
        self._check_numbers(loop, done)
    for call in (loop.next, loop.eligible):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'beyond the plan of 5 rounds'
      ):
        call()

  def test_budget(self):
    # As for one round: no client comes twice in two.
    budget = self._epsilon(2)
    self.assertEqual(budget, self._epsilon(1))
    self.assertLess(budget, self._epsilon(3))
    loop = self.loop(epsilon_budget=budget)
    self._check_numbers(loop, 0, budget, allowed=2)
    loop.next(_A)
    loop = self.again(loop, epsilon_budget=budget)
    loop.next(_B)
    self._check_numbers(loop, 2, budget, allowed=2)
    record = self.root / 'secret' / 'write_ahead.jsonl'
    before = record.read_bytes()
    for loop in (loop, self.again(loop, epsilon_budget=budget)):
      for call in (loop.next, loop.eligible, lambda: loop.next(_A)):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'round 3 would spend'
        ):
          call()
      self._check_numbers(loop, 2, budget, allowed=2)
    self.assertEqual(record.read_bytes(), before)
    # One part in 10^9 less, and none of these rounds fits.
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round 1 would spend'
    ):
      self.loop(
          epsilon_budget=budget * (1 - 1e-9),
          output_dir=self.root.with_name('less'),
      )

  def test_budget_below_one_round(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      self.loop(epsilon_budget=1e-3)
    self.assertFalse(self.root.exists())

  def test_spent_is_recorded_before_each_round(self):
    seen, process = [], toy.Process()

    def look(round_index):
      lines = (self.root / 'secret' / 'write_ahead.jsonl').read_text()
      entry = json.loads(lines.splitlines()[-1])
      self.assertLen(entry.pop('cohort'), 64)
      seen.append(entry)
      self.assertEqual(
          entry,
          {
              'round': round_index,
              'epsilon': self._epsilon(round_index),
              'delta': _DELTA,
              'neighboring_relation': 'zero_out',
              'unit': 'client',
              **_plan().spent(round_index),
          },
      )

    process.next.on_round = look
    loop = self.loop(process)
    for _ in range(_ROUNDS):
      loop.next()
    self.assertLen(seen, _ROUNDS)

  def test_rounds_that_have_begun_are_spent_when_resumed(self):
    process = toy.Process()
    loop = self.loop(process)
    loop.next(_A)
    loop.next(_B)
    process.next.on_round = mock.Mock(side_effect=kills.Killed)
    with self.assertRaises(kills.Killed):
      loop.next(_A)
    for loop in (loop, self.again(loop)):
      self.assertEqual(loop.rounds_done, 2)
      self.assertEqual(loop.epsilon, self._epsilon(3))
      statement = loop.statement()
      self.assertEqual(statement.epsilon, self._epsilon(3))
      self.assertEqual(statement.points['mechanism']['rounds_done'], 3)
      # The clients of the interrupted round may come, those before not.
      self.assertEqual(
          loop.eligible(), [c for c in toy.Clients.client_ids if c not in _B]
      )
      self.assertIn('2 of 5 rounds, 3 left', str(loop))
    loop.next(_C)
    self.assertEqual(loop.epsilon, self._epsilon(3))
    self.assertEqual(loop.eligible(), [*_A, *_B, *toy.Clients.client_ids[9:]])

  def test_participations_are_those_of_complete_rounds(self):
    loop = self.loop()
    loop.next(_A)
    loop.next([*_B, 'client 9'])
    loop.next([])
    found = loop.statement().points['implementation']
    self.assertStartsWith(
        found['realised_participation'], '7 clients in 3 rounds, at most 1 times'
    )
    self.assertStartsWith(found['realised_cohorts'], '0 to 4 clients')

  def test_an_empty_cohort_is_not_the_cohort_of_the_schedule(self):
    seen, process = [], toy.Process()
    call = toy.Next.__call__

    def look(next_, state, datasets):
      seen.append(len(datasets))
      return call(next_, state, datasets)

    with mock.patch.object(toy.Next, '__call__', look):
      loop = self.loop(process)
      loop.next([])
      loop.next(())
      loop.next(np.array([], str))
      loop.next()
    self.assertEqual(seen, [0, 0, 0, 3])


class CheckedTest(_Case):

  def test_state_and_metrics_of_every_round(self):
    certificate = _Certificate(_plan())
    loop = self.loop(certificate=certificate)
    outputs = [loop.next() for _ in range(2)]
    snr = [float(each.metrics['aggregator']['snr']) for each in outputs]
    self.assertEqual(
        certificate.checked, [(0, None, 0), (1, snr[0], 1), (2, snr[1], 2)]
    )
    again = _Certificate(_plan())
    self.again(loop, certificate=again)
    # The state of the checkpoint, not a new one.
    self.assertEqual(again.checked, [(2, None, 2)])

  def test_round_with_other_noise_is_never_released(self):
    certificate = _Certificate(_plan())
    loop = self.loop(certificate=certificate)
    loop.next(_A)
    certificate.refuses = True
    state = loop.state
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      loop.next(_B)
    self.assertEqual(loop.rounds_done, 1)
    self.assertIs(loop.state, state)
    self.assertIn('client 3', loop.eligible())
    rows = (self.root / 'release' / 'metrics.csv').read_text().splitlines()
    self.assertLen(rows, 2)
    saved = checkpoints.CheckpointStore(self.root / 'secret' / 'checkpoints')
    self.assertEqual(saved.latest_round(), 1)
    # Refused before anything was said about them.
    loop.close()
    refusing = _Certificate(_plan())
    refusing.refuses = True
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'other noise'):
      self.loop(certificate=refusing)

  def test_metrics_that_the_certificate_does_not_cover_stay_secret(self):
    loop = self.loop(
        certificate=_Certificate(
            _plan(), frozenset([('aggregator', 'snr')])
        )
    )
    loop.next()
    head, *_ = (self.root / 'release' / 'metrics.csv').read_text().split('\r\n')
    self.assertNotIn('snr', head)
    secret = (self.root / 'secret' / 'metrics.not_covered.csv').read_text()
    self.assertIn('aggregator/snr.not_covered', secret)

  @parameterized.parameters('state', 'cohorts', 'neither')
  def test_known_seed(self, where):
    process = toy.Process()
    if where == 'state':
      initialize = process.initialize
      process.initialize = lambda: _Marked(*initialize(), np.bool_(True))
      process.next = lambda state, data: _output_of(toy.Next(), state, data)
      process.next.type_signature = 'toy'
    with mock.patch.object(
        cohorts.ScheduledCohorts, 'is_key_insecure', where == 'cohorts'
    ):
      loop = self.loop(process)
      self.assertEqual(loop.statement().epsilon == math.inf, where != 'neither')
      loop.next()
      statement = loop.statement()
      is_void = where != 'neither'
      self.assertEqual(statement.epsilon == math.inf, is_void)
      self.assertEqual(str(loop).startswith('NO PRIVACY; 1 of 5'), is_void)
      self.assertEqual('follow from a known seed' in str(loop), is_void)
      self.assertEqual(self.stated(), statement.to_json())

  def test_no_noise(self):
    loop = self.loop(plan=_plan(0.0))
    loop.next()
    self.assertEqual(repr(loop), '<Loop: NO PRIVACY; 1 of 5 rounds>')
    self.assertIn('adds no noise', str(loop))
    self.assertEqual(loop.epsilon, math.inf)
    self.assertEqual(loop.statement().epsilon, math.inf)

  def test_noise_that_is_not_enough_for_any_epsilon(self):
    plan = tff_dp.DpFtrlPlan(
        mechanism=mechanism_lib.Independent(_ROUNDS),
        participation=sampling.MinSeparation(_ROUNDS, min_index_gap=2),
        l2_norm_clip=1.0,
        clients_per_round=3,
        noise_multiplier=1e-3,
    )
    self.assertEqual(plan.epsilon(delta=_DELTA), math.inf)
    self.assertIn('NO PRIVACY: the noise of this run is not enough',
                  str(self.loop(plan=plan)))


class SaidTest(_Case):

  def test_who_takes_part_and_how_sums_are_divided(self):
    said = str(self.loop())
    self.assertIn('sums are divided by 3.', said)
    self.assertIn(_plan().participation.pattern.describe(), said)

  def test_warning_of_a_broken_assumption_is_said_once(self):
    warnings = iter((None, 'IN DOUBT', 'IN DOUBT'))
    with mock.patch.object(
        cohorts.ScheduledCohorts, 'warning', lambda _: next(warnings)
    ):
      loop = self.loop()
      loop.next()
      self.assertNotIn('IN DOUBT', str(loop))
      loop.next()
      loop.next()
    self.assertEqual(str(loop).count('IN DOUBT'), 1)
    self.assertIn('- IN DOUBT', loop._repr_markdown_())


class RefusedTest(_Case):

  def test_closed_loop(self):
    loop = self.loop()
    loop.next(_A)
    state = loop.state
    process = loop.process
    loop.close()
    loop.close()
    for call in (
        loop.next,
        loop.eligible,
        loop.statement,
        loop.write_model,
        lambda: loop.next(_B),
        lambda: process.next(state, _B),
    ):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'this loop cannot go on: it was closed'
      ):
        call()
    # The directory is free, and nothing has changed in it.
    self.assertEqual(self.loop().rounds_done, 1)

  def test_directory_by_another_name(self):
    first = self.loop()
    first.next(_A)
    self.enter_context(contextlib.chdir(self.root.parent))
    again = self.loop(output_dir='run')
    self.assertEqual(again.rounds_done, 1)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'opened again'):
      first.next(_B)

  @parameterized.parameters(OSError(28, 'full'), KeyboardInterrupt())
  def test_loop_whose_round_was_not_saved(self, error):
    for place in ('save', 'release'):
      loop = self.loop(output_dir=self.root / place)
      loop.next(_A)
      owner = loop._run.store if place == 'save' else loop._run.record
      with mock.patch.object(owner, place, side_effect=error):
        with self.assertRaises(type(error)):
          loop.next(_B)
      for call in (loop.next, loop.statement, loop.eligible):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'files could not be written'
        ):
          call()
      again = self.loop(output_dir=self.root / place)
      done = 1 if place == 'save' else 2
      self.assertEqual(again.rounds_done, done)
      self.assertEqual(
          again.epsilon, _plan().epsilon(delta=_DELTA, num_rounds=2)
      )

  def test_states_that_are_not_the_last(self):
    loop = self.loop()
    process, manager = loop.process, loop.state_manager
    self.assertIsNone(asyncio.run(manager.get_versions()))
    state = process.initialize()
    self.assertIs(state, loop.state)
    after = process.next(state, _A).state
    self.assertEqual(asyncio.run(manager.get_versions()), [1])
    self.assertIs(asyncio.run(manager.load(1, None)), after)
    for version in (0, 2):
      with self.assertRaises(tff.program.ProgramStateNotFoundError):
        asyncio.run(manager.load(version, None))
    asyncio.run(manager.save(after, 1))
    for wrong, version in ((after, 0), (after, 2), (state, 1), (state, 0)):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'version'):
        asyncio.run(manager.save(wrong, version))
    fresh = process.initialize()
    self.assertEqual(int(fresh.round_index), 0)
    # One that differs in one bit, in each of its leaves.
    others = [state, fresh, 'no state', None]
    for name in after._fields:
      changed = np.array(getattr(after, name))
      changed = (changed + 1).astype(changed.dtype)
      others.append(after._replace(**{name: changed}))
    for wrong in others:
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'not the one after round 1'
      ):
        process.next(wrong, _B)
    self.assertEqual(loop.rounds_done, 1)
    copied = after._replace(weights=after.weights.copy())
    process.next(copied, _B)
    self.assertEqual(loop.rounds_done, 2)
    np.testing.assert_array_equal(
        process.get_model_weights(loop.state)['weights'],
        loop.model_weights['weights'],
    )

  def test_loop_is_not_train(self):
    self.loop().close()
    with self.assertRaisesRegex(_checks.ArgumentError, 'program.loop'):
      toy.train(
          toy.Process(), _plan(), toy.Clients(), output_dir=self.root,
          delta=_DELTA, progress='quiet',
      )

  def test_cohort_that_is_refused_changes_nothing(self):
    loop = self.loop()
    loop.next(_A)
    record = self.root / 'secret' / 'write_ahead.jsonl'
    before = record.read_bytes()
    for cohort in ([*_B, _A[0]], [*_B, _B[0]], ['nobody'], 'client 3'):
      with self.assertRaises((_checks.PrivacyRefusedError, _checks.ArgumentError)):
        loop.next(cohort)
      self.assertEqual(record.read_bytes(), before)
      self.assertEqual(
          loop.eligible(), [c for c in toy.Clients.client_ids if c not in _A]
      )


class DocumentsTest(_Case):

  writes_documents = True

  def test_times_of_files_tell_nothing_after_the_end(self):
    loop = self.loop()
    loop.next()
    release = self.root / 'release'
    for path in [*release.rglob('*'), release]:
      os.utime(path, (1, 1))
    loop.close()
    self.assertTrue((release / 'report.html').exists())
    times = {path.stat().st_mtime for path in [*release.rglob('*'), release]}
    self.assertLen(times, 1)
    self.assertNotIn(1, times)


def _output_of(next_, state, data):
  """Returns the output of the toy, whose state keeps its mark."""
  output = next_(toy.State(*state[:3]), data)
  return toy.Output(_Marked(*output.state, state[3]), output.metrics)


if __name__ == '__main__':
  absltest.main()
