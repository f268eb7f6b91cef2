# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What `train` is told, counts and writes, on a process without TFF."""

import contextlib
import csv
import io
import json
import math
import os
import pathlib
import signal
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.program import kills
from tests.program import toy
from tests.statement import occasions
from tff_dp import _checks
from tff_dp.program import certification
from tff_dp.program import cohorts
from tff_dp.program import run as run_lib
from tff_dp.program import training
from tff_dp.program.files import checkpoints
from tff_dp.program.files import noise_checkpoints
from tff_dp.program.files import outputs
from tff_dp.statement import declarations

_DELTA = 3e-6
_ROUNDS = 5


def _plan(noise_multiplier: float = 5.0):
  return toy.build_plan(_ROUNDS, noise_multiplier)


class _Certificate(certification.Certificate):
  """Records its checks."""

  checked = []

  def check(self, state, metrics, *, rounds_done):
    self.checked.append(
        (int(state.round_index), metrics is not None, rounds_done)
    )


class TrainFactsTest(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    folder = self.create_tempdir().full_path
    self.root = pathlib.Path(folder) / 'run'

  def _train(
      self, process=None, *, plan=None, root=None, clients=None, **arguments
  ):
    return toy.train(
        process or toy.Process(),
        plan or _plan(),
        clients or toy.Clients(),
        output_dir=root or self.root,
        **dict(delta=_DELTA, checkpoint_every=2, progress='quiet') | arguments,
    )

  def _epsilon(self, rounds: int) -> float:
    return _plan().epsilon(delta=_DELTA, num_rounds=rounds)

  def _rows(self, name='release/metrics.csv', root=None):
    with open((root or self.root) / name, newline='') as file:
      return list(csv.DictReader(file))

  def _json(self, name):
    return json.loads((self.root / 'release' / name).read_text())

  @parameterized.parameters(
      dict(delta=1e-6),
      dict(epsilon_budget=7.0),
      dict(rounds_per_eval=3),
      dict(schedule_seed=1),
      dict(config={'task': 'other'}),
      dict(config=None),
      dict(plan=_plan(5.5)),
  )
  def test_another_run_is_refused(self, **changes):
    told = dict(config={'task': 'this'})
    self._train(total_rounds=2, **told)
    before = (self.root / 'secret' / 'write_ahead.jsonl').read_bytes()
    with self.assertRaisesRegex(_checks.ArgumentError, 'another plan or config'):
      self._train(**told | changes)
    after = (self.root / 'secret' / 'write_ahead.jsonl').read_bytes()
    self.assertEqual(before, after)

  def test_settings_that_a_resume_may_change(self):
    self._train(total_rounds=2)
    result = self._train(
        checkpoint_every=1,
        checkpoint_kind='seed_only',
        declarations=occasions.DECLARED,
        evaluate_fn=toy.evaluate,
    )
    self.assertEqual(result.rounds_done, _ROUNDS)
    points = result.statement.points
    self.assertEqual(
        points['tuning']['architecture'], occasions.DECLARED.architecture
    )
    self.assertEqual(points['mechanism']['population'][:5], '20000')

  def test_identity_is_written_with_the_run(self):
    self._train(total_rounds=1, config={'task': 'this'}, epsilon_budget=50.0)
    config = self._json('config.json')
    self.assertEqual(
        config['plan'],
        json.loads(json.dumps(_plan().describe()))
        | {'fingerprint': _plan().fingerprint},
    )
    self.assertEqual(config['config'], {'task': 'this'})
    self.assertEqual(
        config['program'],
        {
            'delta': _DELTA,
            'epsilon_budget': 50.0,
            'rounds_per_eval': 10,
            'schedule_seed': 0,
            'num_clients': 12,
            'process_type': certification.type_fingerprint(toy.Process()),
        },
    )

  @parameterized.parameters(
      (dict(delta=0.0), 'delta=0'),
      (dict(delta=1.0), 'delta=1'),
      (dict(epsilon_budget=0.0), 'epsilon_budget=0'),
      (dict(epsilon_budget=math.nan), 'epsilon_budget=nan'),
      (dict(total_rounds=0), 'total_rounds=0'),
      (dict(total_rounds=_ROUNDS + 1), 'total_rounds=6'),
      (dict(rounds_per_eval=0), 'rounds_per_eval=0'),
      (dict(checkpoint_every=0), 'checkpoint_every=0'),
      (dict(schedule_seed=-1), 'schedule_seed=-1'),
      (dict(checkpoint_kind='none'), 'checkpoint_kind'),
      (dict(progress='loud'), 'progress'),
  )
  def test_wrong_numbers(self, arguments, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      self._train(**arguments)
    self.assertFalse(self.root.exists())

  def test_seed_of_the_schedule_decides_who_comes(self):
    losses = {}
    for seed in (0, 1):
      root = self.root.with_name(f'{seed}')
      self._train(schedule_seed=seed, root=root)
      losses[seed] = [
          row['client_work/train/loss.not_covered']
          for row in self._rows('secret/metrics.not_covered.csv', root)
      ]
    self.assertNotEqual(losses[0], losses[1])

  def test_how_many_clients_came_is_not_covered(self):
    found = cohorts.build(_plan(), toy.Clients(), schedule_seed=0)
    found.begin('run')
    selection = found.select(1, toy.Clients.client_ids[:2])
    self.assertEqual(selection.released, {'cohort_assumed': 3})
    self.assertEqual(selection.not_covered, {'cohort_realised': 2})

  @parameterized.parameters(1, 3, _ROUNDS)
  def test_stopped_run(self, total):
    result = self._train(total_rounds=total)
    epsilon = self._epsilon(total)
    self.assertEqual(result.rounds_done, total)
    self.assertEqual(result.epsilon, epsilon)
    self.assertEqual(result.delta, _DELTA)
    self.assertEqual(result.stop_reason, 'completed')
    self.assertEqual(result.statement.epsilon, epsilon)
    self.assertEqual(self._json('privacy_statement.json'),
                     result.statement.to_json())
    mechanism = result.statement.points['mechanism']
    self.assertEqual(mechanism['rounds_done'], total)
    self.assertEqual(mechanism['rounds_planned'], _ROUNDS)
    self.assertEqual(
        self._json('events.json'),
        json.loads(json.dumps(
            _plan().events_json(delta=_DELTA, num_rounds=total)
        )),
    )
    rows = self._rows()
    self.assertEqual(
        [float(row['epsilon']) for row in rows],
        [self._epsilon(t) for t in range(1, total + 1)],
    )
    self.assertEqual(
        [int(row['rounds_left']) for row in rows],
        [_ROUNDS - t for t in range(1, total + 1)],
    )
    self.assertEqual({row['cohort_assumed'] for row in rows}, {'3'})
    self.assertEqual([row['epsilon'] for row in result.metrics],
                     [self._epsilon(t) for t in range(1, total + 1)])
    self.assertStartsWith(
        result.statement.points['implementation']['process'],
        'checked before round 1',
    )
    self.assertNotIn(
        'Loop', result.statement.points['implementation']['process']
    )

  def test_result_counts_rounds_that_have_begun(self):
    process = toy.Process()

    def kill(round_index):
      if round_index == 3:
        raise kills.Killed

    process.next.on_round = kill
    with self.assertRaises(kills.Killed):
      self._train(process)
    result = self._train(total_rounds=2)
    for found in (result.epsilon, result.statement.epsilon):
      self.assertEqual(found, self._epsilon(3))
    self.assertGreater(self._epsilon(3), self._epsilon(2))
    self.assertEqual(result.rounds_done, 2)
    self.assertEqual(self._json('events.json')['events'][0]['rounds'], 3)

  def test_budget_goes_on_where_it_was(self):
    budget = self._epsilon(2)
    for total in (1, 2, _ROUNDS):
      result = self._train(total_rounds=total, epsilon_budget=budget)
    self.assertEqual(result.rounds_done, 2)
    self.assertEqual(result.stop_reason, 'budget')
    self.assertIn('round 3 would spend', result.message)
    self.assertEqual(result.metrics[-1]['rounds_left'], 0)

  def test_evaluation_is_of_the_last_round_that_the_budget_allows(self):
    result = self._train(
        epsilon_budget=self._epsilon(2), evaluate_fn=toy.evaluate,
        rounds_per_eval=4,
    )
    self.assertEqual(
        ['test_accuracy' in row for row in result.metrics], [False, True]
    )

  @parameterized.parameters(*range(1, _ROUNDS))
  def test_last_round_of_a_resumed_run_is_evaluated(self, done):
    # Where the run stops, and where the budget ends.
    options = dict(
        epsilon_budget=self._epsilon(_ROUNDS - 1),
        evaluate_fn=toy.evaluate,
        rounds_per_eval=2 * _ROUNDS,
    )
    self._train(total_rounds=done, **options)
    result = self._train(**options)
    self.assertEqual(
        [row['round'] for row in result.metrics if 'test_accuracy' in row],
        sorted({done, _ROUNDS - 1}),
    )

  def _train_until(self, killed_in, **options):
    """Returns the evaluated models of a run that is killed in a round."""

    def kill(round_index):
      if round_index == killed_in:
        raise kills.Killed

    process, shown = toy.Process(), []
    process.next.on_round = kill

    def evaluate(weights):
      shown.append(weights['weights'].tolist())
      return {'test_accuracy': float(len(shown))}

    with self.assertRaises(kills.Killed):
      self._train(process, evaluate_fn=evaluate, **options)
    return shown

  @parameterized.product(every=[1, 2, 3], killed_in=[2, 3, 4, 5])
  def test_no_round_is_shown_to_the_evaluation_twice(self, every, killed_in):
    options = dict(rounds_per_eval=every, checkpoint_every=10)
    shown = self._train_until(killed_in, **options)
    self.assertLen(shown, (killed_in - 1) // every)

    class Others(toy.Clients):

      def create_tf_dataset_for_client(self, client_id):
        return super().create_tf_dataset_for_client(client_id) + 0.25

    def evaluate(weights):
      shown.append(weights['weights'].tolist())
      return {'test_accuracy': 0.0}

    result = self._train(clients=Others(), evaluate_fn=evaluate, **options)
    rounds = [row['round'] for row in result.metrics if 'test_accuracy' in row]
    self.assertEqual(
        rounds, sorted({*range(every, _ROUNDS, every), _ROUNDS})
    )
    self.assertLen(shown, len(rounds))

  def test_evaluation_that_fails_is_made_again_of_the_same_model(self):
    shown = []

    def evaluate(weights):
      shown.append(weights['weights'].tolist())
      if len(shown) == 2:
        raise kills.Killed
      return {'test_accuracy': float(len(shown))}

    options = dict(evaluate_fn=evaluate, rounds_per_eval=2)
    with self.assertRaises(kills.Killed):
      self._train(**options)
    trained = []
    process = toy.Process()
    process.next.on_round = trained.append
    result = self._train(process, **options)
    self.assertEqual(trained, [5])
    self.assertEqual(shown[1], shown[2])
    self.assertEqual(
        [row.get('test_accuracy') for row in result.metrics],
        [None, 1.0, None, 3.0, 4.0],
    )
    self.assertEqual(
        [row['test_accuracy'] for row in self._rows()],
        ['', '1.0', '', '3.0', '4.0'],
    )

  def test_run_without_its_evaluation_goes_on(self):
    with self.assertRaises(TypeError):
      self._train(evaluate_fn=lambda _: None, rounds_per_eval=2)
    result = self._train(rounds_per_eval=2)
    self.assertEqual(result.rounds_done, _ROUNDS)
    self.assertEqual(result.evaluated, ())
    again = self._train(evaluate_fn=toy.evaluate, rounds_per_eval=2)
    self.assertEqual(again.metrics, result.metrics)

  @parameterized.parameters('epsilon', 'rounds_left', 'round', 'cohort_assumed')
  def test_evaluation_cannot_replace_a_number_of_the_run(self, name):
    with self.assertRaisesRegex(_checks.ArgumentError, 'evaluate_fn='):
      self._train(evaluate_fn=lambda _: {name: 0.0}, rounds_per_eval=1)
    self.assertEmpty(self._rows())

  @parameterized.parameters(True, False)
  def test_known_seed(self, is_known):
    with mock.patch.object(
        cohorts.ScheduledCohorts, 'is_key_insecure', is_known
    ):
      result = self._train()
    self.assertEqual(math.isinf(result.statement.epsilon), is_known)
    self.assertEqual('NO PRIVACY' in repr(result), is_known)
    self.assertEqual(self._json('privacy_statement.json')['epsilon'] == 'inf',
                     is_known)

  def test_mark_of_a_seed_anywhere_in_the_state(self):
    for state, expected in (
        ({'a': {'is_key_insecure': np.bool_(True)}}, True),
        ({'a': {'is_key_insecure': np.bool_(False)}}, False),
        (
            [{'is_key_insecure': np.bool_(False)},
             {'is_key_insecure': np.bool_(True)}],
            True,
        ),
        ({'is_key_insecure': {'b': np.bool_(True)}}, False),
        ({}, False),
        (np.float32(1), False),
    ):
      self.assertEqual(run_lib.is_key_insecure(state), expected, state)

  def test_every_state_is_checked(self):
    certificate = _Certificate(_plan(), None, frozenset([('aggregator', 'snr')]))
    for total in (2, 3):
      del _Certificate.checked[:]
      with mock.patch.object(
          certification, 'certify', lambda process, plan: certificate
      ):
        training.train(
            toy.Process(), toy.Clients(), output_dir=self.root, delta=_DELTA,
            total_rounds=total, progress='quiet', checkpoint_every=1,
        )
      expected = [(0, False, 0), (1, True, 1), (2, True, 2)]
      if total == 3:
        expected = [(2, False, 2), (3, True, 3)]
      self.assertEqual(_Certificate.checked, expected)
    # Data without noise, whatever the name of the metric.
    self.assertNotIn('aggregator/snr', self._rows()[0])
    self.assertIn(
        'aggregator/snr.not_covered',
        self._rows('secret/metrics.not_covered.csv')[0],
    )

  @parameterized.product(
      first=noise_checkpoints.KINDS, then=noise_checkpoints.KINDS
  )
  def test_noise_of_a_checkpoint_is_described_and_compared(self, first, then):
    # The toy has no buffers, so it is told which it has.
    def describe(state, plan, *, kind):
      del state
      self.assertEqual(plan, _plan())
      return {'kind': kind, 'draws': None}

    def with_buffers(state, plan, *, like, report):
      del like, report
      self.assertEqual(plan, _plan())
      self.assertEqual(int(state.round_index), 2)
      return state

    patched = {
        name: self.enterContext(
            mock.patch.object(noise_checkpoints, name, side_effect=act)
        )
        for name, act in (
            ('describe', describe),
            ('check', lambda *_: None),
            ('without_buffers', lambda state: state),
            ('with_buffers', with_buffers),
        )
    }
    self._train(total_rounds=2, checkpoint_kind=first)
    patched['check'].assert_not_called()
    saved = self._saved(2)
    self.assertEqual(saved.noise, {'kind': first, 'draws': None})
    patched['without_buffers'].reset_mock()
    self._train(total_rounds=3, checkpoint_kind=then)
    (compared, _, plan), _ = patched['check'].call_args
    self.assertEqual(compared, {'kind': first, 'draws': None})
    self.assertEqual(plan, _plan())
    self.assertEqual(
        patched['with_buffers'].called, first == noise_checkpoints.SEED_ONLY
    )
    self.assertEqual(self._saved(3).noise['kind'], then)

  def _saved(self, round_index: int) -> checkpoints.Checkpoint:
    store = checkpoints.CheckpointStore(self.root / 'secret' / 'checkpoints')
    return store.load(round_index, like=toy.Process().initialize())

  @parameterized.parameters('record', 'metrics', 'both')
  def test_checkpoint_before_the_last_release(self, told_by):
    """Either of two files is enough to see that a released round is gone."""
    self._train(total_rounds=2, checkpoint_every=1)
    (self.root / 'secret' / 'checkpoints' / 'round_2').unlink()
    if told_by == 'record':
      metrics = self.root / 'release' / 'metrics.csv'
      lines = metrics.read_bytes().splitlines(keepends=True)
      metrics.write_bytes(b''.join(lines[:-1]))
    elif told_by == 'metrics':
      record = self.root / 'secret' / 'write_ahead.jsonl'
      lines = record.read_bytes().splitlines(keepends=True)
      record.write_bytes(b''.join(lines[:-1]))
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'has released rounds through 2'
    ):
      self._train()

  def test_ledger_in_a_checkpoint_is_of_this_run(self):
    self._train(total_rounds=1)
    run_id = json.loads((self.root / 'secret' / 'run.json').read_text())[
        'run_id'
    ]
    self.assertIn(f'"run_id": "{run_id}"'.encode(), self._saved(1).ledger)
    found = _plan().participation_ledger(run_id).restored(
        self._saved(1).ledger
    )
    self.assertEqual(found.observed().num_clients, 3)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'run_id='):
      _plan().participation_ledger('run').restored(self._saved(1).ledger)

  def test_average_of_the_models_is_written_as_such(self):
    process = toy.Process()
    process.averaging = 'any'
    process.get_averaged_model_weights = lambda state: {
        'weights': state.weights * 2
    }
    result = self._train(process, evaluate_fn=toy.evaluate)
    for name, weights in (
        ('model', result.model_weights),
        ('model_averaged', result.averaged_model_weights),
    ):
      found = outputs.read_model(
          self.root / 'release' / f'{name}.npz', like=weights
      )
      np.testing.assert_array_equal(found['weights'], weights['weights'])
    np.testing.assert_array_equal(
        result.averaged_model_weights['weights'],
        2 * result.model_weights['weights'],
    )
    self.assertIn('averaged_test_accuracy', result.metrics[-1])

  @parameterized.parameters((3, True), (_ROUNDS, False))
  def test_interrupt_in_a_round(self, last, is_raised):
    process = toy.Process()

    def interrupt(round_index):
      if round_index == last:
        os.kill(os.getpid(), signal.SIGINT)

    process.next.on_round = interrupt
    if is_raised:
      with self.assertRaisesRegex(KeyboardInterrupt, f'after round {last}'):
        self._train(process)
    else:
      self.assertEqual(self._train(process).rounds_done, last)
    stated = self._json('privacy_statement.json')
    self.assertEqual(stated['epsilon'], self._epsilon(last))
    self.assertLen(self._rows(), last)

  def test_times_of_files_tell_nothing(self):
    self._train()
    release = self.root / 'release'
    times = {path.stat().st_mtime for path in [*release.rglob('*'), release]}
    self.assertLen(times, 1)

  @parameterized.parameters((0.09, True), (0.08, False))
  def test_weak_delta_is_shown_before_round_1(self, delta, is_weak):
    with contextlib.redirect_stderr(io.StringIO()) as shown:
      self._train(delta=delta, progress='plain')
    said = shown.getvalue().partition('round=')[0]
    self.assertEqual('WEAK: delta 0.09 is not below' in said, is_weak)

  @parameterized.parameters((0.5,), (None,), ([0.1, 0.5],))
  def test_evaluation_without_names_is_refused(self, found):
    with self.assertRaisesRegex(
        TypeError, 'evaluate_fn must return .*test_accuracy.*found'
    ):
      self._train(evaluate_fn=lambda _: found, rounds_per_eval=1)

  def test_context_adds_to_what_is_not_covered(self):
    told = declarations.Declarations(not_covered='the time of each round')
    for added, expected in (
        ('', 'the time of each round'),
        ('what workers see', 'the time of each round; what workers see'),
    ):
      with mock.patch.object(
          training.contexts, 'not_covered', lambda added=added: added
      ):
        result = self._train(
            declarations=told, root=self.root.with_name(f'run {bool(added)}')
        )
      self.assertEqual(
          result.statement.points['release']['not_covered'], expected
      )


if __name__ == '__main__':
  absltest.main()
