# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the training program: order, resume, refusal, interrupts."""

import asyncio
import collections
import concurrent.futures
import contextlib
import csv
import errno
import io
import json
import os
import pathlib
import shutil
import signal
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow_federated as tff

from tests.program import kills
from tests.program import toy
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import execution
from tff_dp.execution import errors
from tff_dp.files import finished
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.program import loop
from tff_dp.program import releases
from tff_dp.program import results
from tff_dp.program import run as run_lib
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints
from tff_dp.program.files import outputs
from tff_dp.statement import declarations

_WRITE_DOCUMENTS = documents.write


def _train(output_dir, process=None, **kwargs) -> results.TrainResult:
  arguments = dict(
      delta=1e-5,
      evaluate_fn=toy.evaluate,
      rounds_per_eval=6,
      checkpoint_every=3,
      progress='quiet',
  )
  return toy.train(
      process or toy.Process(),
      arguments.pop('plan', kwargs.pop('plan', None)) or toy.build_plan(),
      kwargs.pop('clients', None) or toy.Clients(),
      output_dir=output_dir,
      **(arguments | kwargs),
  )


def _read_csv(path: pathlib.Path) -> list[dict[str, str]]:
  with open(path, newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file))


def _recorded(root: pathlib.Path) -> tuple[list[int], list[int]]:
  """Returns the rounds that have begun, and those released up to."""
  lines = (root / 'secret' / 'write_ahead.jsonl').read_text().splitlines()
  entries = [json.loads(line) for line in lines]
  return tuple(
      [entry[key] for entry in entries if key in entry]
      for key in ('round', 'released')
  )


def _contents(root: pathlib.Path) -> dict[str, bytes]:
  return {
      str(path.relative_to(root)): path.read_bytes()
      for path in root.rglob('*')
      if path.is_file()
  }


def _load_checkpoint(root, round_index: int) -> checkpoints.Checkpoint:
  store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints')
  return store.load(round_index, like=toy.Process().initialize())


class TrainTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'
    self.documents = self.enterContext(mock.patch.object(documents, 'write'))

  def test_result_and_files(self):
    self.documents.side_effect = _WRITE_DOCUMENTS
    result = _train(self.root)
    self.assertEqual(result.stop_reason, results.COMPLETED)
    self.assertEqual(result.message, '')
    self.assertEqual(result.rounds_done, 10)
    budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
    self.assertEqual(result.epsilon, budget.epsilon_after(10))
    self.assertEqual(
        [row['round'] for row in result.metrics], list(range(1, 11))
    )
    self.assertEqual(
        [row['round'] for row in result.metrics if 'test_accuracy' in row],
        [6, 10],
    )
    self.assertEqual(
        [row['epsilon'] for row in result.metrics],
        [budget.epsilon_after(t) for t in range(1, 11)],
    )
    self.assertCountEqual(
        os.listdir(self.root / 'release'),
        [
            'config.json',
            'curves.png',
            'environment.json',
            'events.json',
            'metrics.csv',
            'model.npz',
            'privacy_statement.json',
            'privacy_statement.md',
            'report.html',
            'tensorboard',
        ],
    )
    self.assertEqual(os.stat(self.root / 'secret').st_mode & 0o777, 0o700)
    model = outputs.read_model(
        self.root / 'release' / 'model.npz', like=result.model_weights
    )
    np.testing.assert_array_equal(
        model['weights'], result.model_weights['weights']
    )

  def test_thread_without_a_context_gets_one_for_the_run(self):
    double = tff.tensorflow.computation(lambda x: 2 * x, np.float32)
    found = []

    def evaluate(_):
      found.append(tff.framework.get_context_stack().current)
      return {'test_accuracy': float(double(0.25))}

    with concurrent.futures.ThreadPoolExecutor(1) as executor:
      result = executor.submit(
          _train, self.root, evaluate_fn=evaluate
      ).result()
    self.assertEqual(result.metrics[-1]['test_accuracy'], 0.5)
    (context,) = set(found)
    with tff.framework.get_context_stack().install(context):
      with self.assertRaises(errors.ContextClosedError):
        double(1.0)

  def test_asynchronous_context_is_refused_before_anything_is_written(self):
    context = execution.create_async_in_process_context()
    self.addCleanup(context.close)
    with tff.framework.get_context_stack().install(context):
      with self.assertRaisesRegex(RuntimeError, 'asynchronous'):
        _train(self.root)
    self.assertFalse(self.root.exists())

  def test_only_covered_metrics_are_released(self):
    _train(self.root)
    released = _read_csv(self.root / 'release' / 'metrics.csv')
    self.assertLen(released, 10)
    self.assertCountEqual(
        released[0],
        [
            'round',
            'aggregator/snr',
            'finalizer/update_non_finite',
            'epsilon',
            'rounds_left',
            'cohort_assumed',
            'test_accuracy',
        ],
    )
    secret = _read_csv(self.root / 'secret' / 'metrics.not_covered.csv')
    self.assertLen(secret, 10)
    for column in set(secret[0]) - {'round'}:
      self.assertEndsWith(column, '.not_covered')
    self.assertIn('client_work/train/loss.not_covered', secret[0])
    for path in (self.root / 'release').rglob('*'):
      if path.is_file():
        for column in set(secret[0]) - {'round'}:
          self.assertNotIn(column.encode(), path.read_bytes(), path)

  def test_inside_a_running_event_loop(self):
    async def notebook_cell():
      return _train(self.root)

    self.assertEqual(asyncio.run(notebook_cell()).rounds_done, 10)

  def test_same_command_after_the_end_changes_nothing(self):
    first = _train(self.root)
    before = kills.files_that_must_agree(self.root)
    second = _train(self.root)
    self.assertEqual(kills.files_that_must_agree(self.root), before)
    self.assertEqual(second.metrics, first.metrics)
    self.assertEqual(second.epsilon, first.epsilon)

  def test_finished_is_known_from_the_files_for_the_same_run_only(self):
    def rounds(**changes):
      arguments = dict(
          plan=toy.build_plan(), program={'delta': 1e-5}, config={'a': (1, 2)}
      )
      return finished.rounds_of(self.root, **(arguments | changes))

    _train(self.root, config={'a': [1, 2]}, total_rounds=3)
    self.assertIsNone(rounds())
    _train(self.root, config={'a': [1, 2]})
    self.assertEqual(rounds(), 10)
    self.assertIsNone(rounds(plan=toy.build_plan(noise_multiplier=9.0)))
    self.assertIsNone(rounds(program={'delta': 1e-6}))
    self.assertIsNone(rounds(config={'a': [1]}))
    statement = self.root / 'release' / 'privacy_statement.json'
    content = statement.read_bytes()
    statement.unlink()
    self.assertIsNone(rounds())
    statement.write_bytes(content)
    self.assertEqual(rounds(), 10)
    (self.root / 'secret' / 'finished.json').write_text('{')
    self.assertIsNone(rounds())

  def test_says_what_an_earlier_process_has_left(self):
    def said(**changes):
      err = io.StringIO()
      with contextlib.redirect_stderr(err):
        _train(self.root, progress='plain', **changes)
      return err.getvalue()

    with mock.patch.object(
        run_lib.Run, 'select', side_effect=KeyboardInterrupt
    ), self.assertRaises(KeyboardInterrupt):
      _train(self.root)
    self.assertIn('starts over with round 1', said(total_rounds=3))
    part = said(total_rounds=2)
    self.assertIn('has 3 of 10 rounds, and 2 are asked for', part)
    self.assertNotIn('already finished', part)
    self.assertIn('resuming', said())
    last = said()
    self.assertIn('already finished', last)
    self.assertNotIn('starts over', last)

  def test_says_that_an_earlier_process_has_spent_the_budget(self):
    budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
    budget = budget.epsilon_after(5)
    done = _train(self.root, epsilon_budget=budget).rounds_done
    self.assertBetween(done, 1, 9)
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
      _train(self.root, epsilon_budget=budget, progress='plain')
    self.assertIn(f'has spent its budget in {done} rounds', err.getvalue())
    self.assertNotIn('resuming', err.getvalue())

  def test_torn_files_of_a_killed_process_are_mended(self):
    process = toy.Process()

    def kill(round_index):
      if round_index == 8:
        raise kills.Killed

    process.next.on_round = kill
    with self.assertRaises(kills.Killed):
      _train(self.root, process)
    self.assertLen(_read_csv(self.root / 'release' / 'metrics.csv'), 6)
    with open(self.root / 'release' / 'metrics.csv', 'a') as file:
      file.write('7,0.')
    with open(self.root / 'secret' / 'write_ahead.jsonl', 'a') as file:
      file.write('{"round": 9, "coho')
    leftovers = (
        self.root / 'release' / 'metrics.csv_temp1234',
        self.root / 'release' / 'model.npz.tff_dp_tmp',
        self.root / 'secret' / 'checkpoints' / 'round_9_temp4321' / 'variables',
    )
    for path in leftovers:
      path.mkdir(parents=True)
    result = _train(self.root)
    self.assertEqual(result.rounds_done, 10)
    rounds = [
        row['round']
        for row in _read_csv(self.root / 'release' / 'metrics.csv')
    ]
    self.assertEqual(rounds, [str(t) for t in range(1, 11)])
    begun, released = _recorded(self.root)
    self.assertEqual(begun, list(range(1, 11)))
    self.assertEqual(released, [3, 6, 9, 10])
    for path in leftovers[:2] + (leftovers[2].parent,):
      self.assertFalse(path.exists(), path)

  def test_spent_epsilon_counts_begun_rounds_once(self):
    process = toy.Process()

    def kill(round_index):
      if round_index == 5:
        raise kills.Killed

    process.next.on_round = kill
    with self.assertRaises(kills.Killed):
      _train(self.root, process)
    # Round 3 has a checkpoint, rounds 4 and 5 had begun.
    result = _train(self.root, total_rounds=4)
    budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
    self.assertEqual(result.rounds_done, 4)
    self.assertEqual(result.epsilon, budget.epsilon_after(5))

  def test_statement_counts_begun_rounds_while_they_are_repeated(self):
    process = toy.Process()

    def kill(round_index):
      if round_index == self.killed_in:
        raise kills.Killed

    process.next.on_round = kill
    # Round 3 has a checkpoint, rounds 4 and 5 had begun; then 4 again, only.
    for self.killed_in in (5, 4):
      with self.assertRaises(kills.Killed):
        _train(self.root, process)
    release = self.root / 'release'
    stated = json.loads((release / 'privacy_statement.json').read_text())
    budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
    self.assertEqual(stated['epsilon'], budget.epsilon_after(5))
    self.assertEqual(stated['points']['mechanism']['rounds_done'], 5)
    (event,) = json.loads((release / 'events.json').read_text())['events']
    self.assertEqual(event['rounds'], 5)
    # Also where a run ends before it has repeated all of them.
    result = _train(self.root, total_rounds=4)
    self.assertEqual(result.statement.epsilon, result.epsilon)
    self.assertEqual(result.epsilon, budget.epsilon_after(5))

  def test_nothing_is_released_before_its_checkpoint(self):
    process = toy.Process()

    def look(round_index):
      path = self.root / 'release' / 'metrics.csv'
      saved = (round_index - 1) // 3 * 3
      self.assertLen(_read_csv(path), saved)
      self.assertTrue(
          (self.root / 'secret' / 'checkpoints' / f'round_{saved}').exists()
      )
      begun, released = _recorded(self.root)
      self.assertLen(begun, round_index)
      self.assertEqual(released, list(range(3, saved + 1, 3)))

    process.next.on_round = look
    _train(self.root, process)

  @parameterized.parameters(10, 5)
  def test_nothing_is_released_before_the_record_says_so(self, last):
    release, write_model = releases.Releases.release, outputs.write_model
    process, seen = toy.Process(), []

    def interrupt(round_index):
      if round_index == last < 10:
        os.kill(os.getpid(), signal.SIGINT)

    def look(round_index):
      _, released = _recorded(self.root)
      self.assertGreaterEqual(max(released, default=0), round_index)
      seen.append(round_index)

    def release_row(self, row):
      look(row[releases.KEY])
      release(self, row)

    def release_model(path, weights):
      look(last)
      write_model(path, weights)

    process.next.on_round = interrupt
    with mock.patch.object(
        releases.Releases, 'release', release_row
    ), mock.patch.object(outputs, 'write_model', release_model):
      with contextlib.suppress(KeyboardInterrupt):
        _train(self.root, process)
    self.assertEqual(seen, [*range(1, last + 1), last])

  def test_saved_rounds_are_recorded_before_a_resumed_run_releases_them(self):
    # After the checkpoint of round 3, before the record says that it is out.
    # pylint: disable-next=protected-access
    append = write_ahead.WriteAheadRecord._append
    stand_in = kills.at_call(append, 4, is_after=False)
    with mock.patch.object(write_ahead.WriteAheadRecord, '_append', stand_in):
      with self.assertRaises(kills.Killed):
        _train(self.root)
    self.assertEqual(_recorded(self.root), ([1, 2, 3], []))
    self.assertEmpty(_read_csv(self.root / 'release' / 'metrics.csv'))
    process = toy.Process()

    def look(round_index):
      self.assertEqual(round_index, 4)
      self.assertEqual(_recorded(self.root), ([1, 2, 3, 4], [3]))
      raise kills.Killed

    process.next.on_round = look
    with self.assertRaises(kills.Killed):
      _train(self.root, process)

  def test_budget_stops_the_run_with_complete_outputs(self):
    budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
    result = _train(self.root, epsilon_budget=budget.epsilon_after(6))
    self.assertEqual(result.stop_reason, results.BUDGET)
    self.assertEqual(result.rounds_done, 6)  # Equality passes.
    self.assertStartsWith(result.message, 'round 7 would spend epsilon')
    self.assertEqual(result.epsilon, budget.epsilon_after(6))
    self.assertIn('test_accuracy', result.metrics[-1])
    self.assertEqual(result.metrics[-1]['rounds_left'], 0)
    self.assertTrue((self.root / 'release' / 'model.npz').exists())
    self.assertEqual(_recorded(self.root), ([1, 2, 3, 4, 5, 6], [3, 6]))

  def test_rounds_left_are_those_of_plan_and_budget_not_of_the_call(self):
    result = _train(self.root, total_rounds=4)
    left = [row['rounds_left'] for row in result.metrics]
    self.assertEqual(left, [9, 8, 7, 6])

  @parameterized.parameters((None, '12 clients'), (500, '500 clients'))
  def test_declared_population_comes_before_the_given_clients(
      self, population, stated
  ):
    result = _train(
        self.root,
        total_rounds=1,
        declarations=declarations.Declarations(population=population),
    )
    self.assertStartsWith(
        result.statement.points['mechanism']['population'], stated
    )

  def test_budget_below_one_round_is_refused_before_anything_is_written(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      _train(self.root, epsilon_budget=1e-3)
    self.assertFalse(self.root.exists())

  def test_first_interrupt_finishes_the_round_and_saves(self):
    process = toy.Process()

    def interrupt(round_index):
      if round_index == 5:
        os.kill(os.getpid(), signal.SIGINT)

    process.next.on_round = interrupt
    previous = signal.getsignal(signal.SIGINT)
    with self.assertRaisesRegex(KeyboardInterrupt, 'after round 5'):
      _train(self.root, process)
    self.assertEqual(signal.getsignal(signal.SIGINT), previous)
    self.assertTrue(
        (self.root / 'secret' / 'checkpoints' / 'round_5').exists()
    )
    self.assertLen(_read_csv(self.root / 'release' / 'metrics.csv'), 5)
    self.assertEqual(_train(self.root).rounds_done, 10)

  @parameterized.parameters((signal.SIGTERM, 143), (signal.SIGHUP, 129))
  def test_other_signals_save_too(self, number, status):
    process = toy.Process()
    # Under nohup, SIGHUP is ignored, and a run leaves it at that.
    self.addCleanup(signal.signal, number, signal.getsignal(number))
    signal.signal(number, signal.SIG_DFL)

    def terminate(round_index):
      if round_index == 5:
        os.kill(os.getpid(), number)

    process.next.on_round = terminate
    with self.assertRaises(SystemExit) as raised:
      _train(self.root, process)
    self.assertEqual(raised.exception.code, status)
    self.assertLen(_read_csv(self.root / 'release' / 'metrics.csv'), 5)
    self.assertEqual(_train(self.root).rounds_done, 10)

  def test_failed_client_is_named_and_its_data_stay_secret(self):
    process = toy.Process()
    cohorts = []

    def fail(round_index):
      if round_index == 2:
        raise _failures.ClientComputationError(
            client_index=1,
            num_clients=3,
            operation='loss',
            kind='InvalidArgumentError',
            details='a label of 17',
        )

    begin = write_ahead.WriteAheadRecord.begin

    def begin_and_look(record, round_index, cohort, **arguments):
      cohorts.append(cohort)
      begin(record, round_index, cohort, **arguments)

    process.next.on_round = fail
    with mock.patch.object(
        write_ahead.WriteAheadRecord, 'begin', begin_and_look
    ), self.assertRaises(_failures.ClientComputationError) as raised:
      _train(self.root, process)
    self.assertEqual(raised.exception.client_id, cohorts[1][1])
    self.assertEqual(
        str(raised.exception),
        f'client {cohorts[1][1]!r} failed in loss: InvalidArgumentError',
    )
    self.assertIn(
        'a label of 17', (self.root / 'secret' / 'run.log').read_text()
    )
    self.assertEqual(_train(self.root).rounds_done, 10)

  def test_data_that_cannot_be_read_names_its_client(self):
    class Broken(toy.Clients):

      def create_tf_dataset_for_client(self, client_id):
        if client_id == 'client 7':
          raise ValueError('an empty cell')
        return super().create_tf_dataset_for_client(client_id)

    with self.assertRaisesRegex(ValueError, 'an empty cell') as raised:
      _train(self.root, clients=Broken())
    self.assertIn("client 'client 7'", raised.exception.__notes__[0])

  def test_second_interrupt_stops_at_once(self):
    process = toy.Process()

    def interrupt(round_index):
      if round_index == 5:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    process.next.on_round = interrupt
    with self.assertRaises(KeyboardInterrupt):
      _train(self.root, process)
    self.assertLen(_read_csv(self.root / 'release' / 'metrics.csv'), 3)
    self.assertEqual(_train(self.root).rounds_done, 10)


class KilledAnywhereTest(kills.RunsTestCase):
  """Ends a run at a chosen call, as SIGKILL would, and starts it again."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    # All runs begin with the same noise key: copies of one initial state.
    cls.initial = cls.parent / 'initial'
    save = checkpoints.CheckpointStore.save
    stand_in = kills.at_call(save, 1, is_after=True)
    with mock.patch.object(checkpoints.CheckpointStore, 'save', stand_in):
      try:
        _train(cls.initial)
      except kills.Killed:
        pass
    cls.uninterrupted = cls.parent / 'uninterrupted'
    shutil.copytree(cls.initial, cls.uninterrupted)
    cls.expected = _train(cls.uninterrupted)

  @parameterized.product(
      place=(
          (checkpoints.CheckpointStore, 'save', 1),
          (checkpoints.CheckpointStore, 'save', 3),
          (write_ahead.WriteAheadRecord, 'begin', 1),
          (write_ahead.WriteAheadRecord, 'begin', 5),
          (toy.Next, '__call__', 5),
          (write_ahead.WriteAheadRecord, 'release', 2),
          (releases.Releases, 'release', 1),
          (releases.Releases, 'release', 5),
          (run_directory, 'write_statement', 1),
          (run_directory, 'write_statement', 3),
          (outputs, 'write_model', 1),
          (os, 'replace', 1),
          (os, 'replace', 9),
      ),
      is_after=(False, True),
  )
  def test_resumed_equals_uninterrupted(self, place, is_after):
    owner, name, number = place
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    shutil.copytree(self.initial, root)
    stand_in = kills.at_call(getattr(owner, name), number, is_after=is_after)
    with mock.patch.object(owner, name, stand_in):
      with self.assertRaises(kills.Killed):
        _train(root)
    result = _train(root)
    kills.check_same_files(self, root, self.uninterrupted)
    self.assertEqual(result.metrics, self.expected.metrics)
    self.assertEqual(result.epsilon, self.expected.epsilon)
    saved, expected = [
        _load_checkpoint(path, 10) for path in (root, self.uninterrupted)
    ]
    self.assertEqual(saved.ledger, expected.ledger)
    np.testing.assert_equal(saved.process_state, expected.process_state)


class FullDiskTest(kills.RunsTestCase):
  """A disk that is full at a chosen file, and has room again afterwards."""

  @parameterized.parameters(
      ('write_ahead.jsonl', 2),
      ('run.json', 1),
      ('config.json', 1),
      ('metrics.csv', 1),
      ('privacy_statement.md', 3),
      ('model.npz', 1),
      ('round_6', 1),
      ('round_10', 1),
  )
  def test_error_names_the_file_and_the_same_call_goes_on(self, name, number):
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    calls = []
    naming = run_directory.naming

    @contextlib.contextmanager
    def full(path):
      with naming(path):
        calls.extend([1] * (pathlib.Path(path).name == name))
        if len(calls) == number:
          calls.append(1)
          # As TensorFlow says it.
          kind = RuntimeError if name.startswith('round') else OSError
          raise kind(errno.ENOSPC, os.strerror(errno.ENOSPC))
        yield

    with mock.patch.object(run_directory, 'naming', full):
      with self.assertRaisesRegex(OSError, 'No space left') as raised:
        _train(root)
    self.assertEndsWith(raised.exception.filename, name)
    self.assertEqual(raised.exception.errno, errno.ENOSPC)
    result = _train(root)
    self.assertEqual(result.rounds_done, 10)
    self.assertEqual(
        [row['round'] for row in result.metrics], list(range(1, 11))
    )


class LongRunTest(absltest.TestCase):

  def test_a_late_checkpoint_writes_no_more_than_an_early_one(self):
    self.enterContext(mock.patch.object(documents, 'write'))
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    whole, seen = collections.Counter(), {}
    write = run_directory.write_atomically

    def counted(path, content):
      write(path, content)
      whole[pathlib.Path(path).name.partition('_')[0]] += os.path.getsize(path)

    def look(round_index):
      if round_index % 10 == 1:
        grown = {
            name: (root / name).stat().st_size
            for name in (
                'release/metrics.csv',
                'secret/metrics.jsonl',
                'secret/metrics.not_covered.csv',
                'secret/write_ahead.jsonl',
            )
        }
        seen[round_index] = dict(whole) | grown

    process = toy.Process()
    process.next.on_round = look
    with mock.patch.object(run_directory, 'write_atomically', counted):
      _train(
          root, process, plan=toy.build_plan(121), checkpoint_every=10,
          rounds_per_eval=5,
      )

    def written(last):
      return {
          name: size - seen[last - 10][name]
          for name, size in seen[last].items()
      }

    early, late = written(31), written(121)
    self.assertIn('round', early)
    for name, size in early.items():
      # Rounds and epsilons have more digits.
      self.assertLessEqual(late[name], 1.1 * size, name)


class RefusalTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'
    self.enterContext(mock.patch.object(documents, 'write'))

  @parameterized.parameters(
      ({'delta': 2}, 'delta=2'),
      ({'epsilon_budget': 0.0}, 'epsilon_budget=0.0'),
      ({'rounds_per_eval': 0}, 'rounds_per_eval=0'),
      ({'checkpoint_every': 0}, 'checkpoint_every=0'),
      ({'checkpoint_kind': 'none'}, "checkpoint_kind='none'"),
      ({'total_rounds': 11}, 'total_rounds=11'),
      ({'schedule_seed': -1}, 'schedule_seed=-1'),
      ({'progress': 'loud'}, "progress='loud'"),
  )
  def test_bad_argument_is_named_and_nothing_is_written(self, bad, message):
    with self.assertRaisesRegex(ValueError, message):
      _train(self.root, **bad)
    self.assertFalse(self.root.exists())

  def test_another_name_leads_to_the_argument(self):
    wrong = (('epsilon', 'epsilon_budget'), ('target_epsilon', 'epsilon_budget'))
    for name, right in (*wrong, ('num_rounds', 'total_rounds')):
      with self.assertRaisesRegex(TypeError, f'{name}(.*\n)+try: {right}$'):
        _train(self.root, **{name: 3})
    for name, right in wrong:
      with self.assertRaisesRegex(TypeError, f'{name}(.*\n)+try: {right}$'):
        loop.Loop(None, None, output_dir=self.root, delta=1e-5, **{name: 3})
    self.assertFalse(self.root.exists())

  def test_numpy_numbers_are_the_numbers(self):
    result = _train(
        self.root,
        delta=np.float32(1e-5),
        epsilon_budget=np.array(1e3),
        rounds_per_eval=np.int64(6),
        total_rounds=np.int32(1),
        checkpoint_every=np.uint8(3),
    )
    self.assertIs(type(result.delta), float)
    again = _train(
        self.root, delta=float(np.float32(1e-5)), epsilon_budget=1e3,
        total_rounds=1,
    )
    self.assertEqual(again.epsilon, result.epsilon)

  def test_no_output_dir(self):
    with self.assertRaisesRegex(ValueError, 'output_dir=None.*the folder'):
      _train(None)

  def test_population_too_small(self):
    clients = toy.Clients()
    clients.client_ids = clients.client_ids[:5]
    with self.assertRaisesRegex(ValueError, 'min_index_gap'):
      _train(self.root, clients=clients)
    self.assertFalse(self.root.exists())

  def test_a_client_that_is_listed_again(self):
    clients = toy.Clients()
    clients.client_ids = [*clients.client_ids, b'client 3']
    with self.assertRaisesRegex(ValueError, "client_ids='client 3'"):
      _train(self.root, clients=clients)
    self.assertFalse(self.root.exists())

  def test_evaluation_that_shadows_epsilon(self):
    with self.assertRaisesRegex(ValueError, 'evaluate_fn=.*epsilon'):
      _train(self.root, evaluate_fn=lambda weights: {'epsilon': 0.0})

  def test_evaluation_that_is_not_a_number(self):
    with self.assertRaisesRegex(TypeError, 'test_accuracy must be a number'):
      _train(self.root, evaluate_fn=lambda weights: {'test_accuracy': [1]})

  def test_resume_with_another_plan_or_config_lists_the_changes(self):
    _train(self.root, config={'model': {'units': 8}}, total_rounds=3)
    before = kills.files_that_must_agree(self.root)
    with self.assertRaisesRegex(ValueError, 'another plan') as raised:
      _train(
          self.root,
          plan=toy.build_plan(noise_multiplier=1.0),
          config={'model': {'units': 16}, 'lr': 0.1},
      )
    for change in (
        'plan.noise_multiplier 5.0 -> 1.0',
        'config.model.units 8 -> 16',
        'config.lr absent -> 0.1',
    ):
      self.assertIn(change, str(raised.exception))
    self.assertNotIn('\n', str(raised.exception))
    self.assertEqual(kills.files_that_must_agree(self.root), before)

  def test_resume_with_another_schedule(self):
    _train(self.root, total_rounds=3)
    with self.assertRaisesRegex(
        ValueError, 'program.schedule_seed 0 -> 1'
    ):
      _train(self.root, schedule_seed=1)

  def test_resume_with_other_clients(self):
    _train(self.root, total_rounds=3)
    clients = toy.Clients()
    clients.client_ids = clients.client_ids[::-1]
    with self.assertRaisesRegex(ValueError, 'ids of the clients'):
      _train(self.root, clients=clients)

  def test_resume_without_write_ahead_record(self):
    _train(self.root, total_rounds=3)
    (self.root / 'secret' / 'write_ahead.jsonl').unlink()
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'states 3 rounds, .* has 0'
    ):
      _train(self.root)

  @parameterized.parameters(
      (None, 'holds no checkpoint'),
      ('secret/write_ahead.jsonl', 'states 3 rounds, .* has 0'),
      ('release', 'has no privacy statement, but 3 rounds'),
  )
  def test_resume_without_checkpoint(self, also_lost, message):
    _train(self.root, total_rounds=3)
    shutil.rmtree(self.root / 'secret' / 'checkpoints')
    # One of record and release is enough to know that a run has begun.
    if also_lost == 'release':
      shutil.rmtree(self.root / also_lost)
    elif also_lost:
      (self.root / also_lost).unlink()
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, message):
      _train(self.root)

  def test_damaged_checkpoint(self):
    _train(self.root, total_rounds=3)
    for path in (self.root / 'secret' / 'checkpoints').iterdir():
      path.write_bytes(b'damaged')
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'cannot be read'
    ) as raised:
      _train(self.root)
    self.assertNotIn('remove', raised.exception.way_out)

  @parameterized.parameters('finished', 'stopped', 'by_budget', 'killed')
  def test_going_back_is_refused_before_anything_is_read(self, how):
    process, options = toy.Process(), {}
    if how == 'stopped':
      options = {'total_rounds': 9}
    elif how == 'by_budget':
      budget = toy.build_plan().ledger(epsilon=None, delta=1e-5)
      options = {'epsilon_budget': budget.epsilon_after(9)}
    elif how == 'killed':

      def kill(round_index):
        if round_index == 10:
          raise kills.Killed

      process.next.on_round = kill
    with contextlib.suppress(kills.Killed):
      _train(self.root, process, **options)
    saved = self.root / 'secret' / 'checkpoints'
    latest = max(saved.iterdir(), key=lambda path: int(path.name[6:]))
    kept = latest.rename(self.parent / latest.name)
    last = latest.name.removeprefix('round_')
    before = _contents(self.root)
    initialize = mock.patch.object(toy.Process, 'initialize')
    with initialize as begun, self.assertRaisesRegex(
        _checks.PrivacyRefusedError, f'released rounds through {last}, but'
    ):
      _train(self.root, **options)
    begun.assert_not_called()
    self.assertEqual(_contents(self.root), before)
    # The way out that the message tells.
    kept.rename(latest)
    result = _train(self.root, **options)
    self.assertEqual(result.rounds_done, 10 if how == 'killed' else int(last))

  def test_secret_from_an_older_copy_than_the_release_is_refused(self):
    _train(self.root, total_rounds=3)
    shutil.copytree(self.root / 'secret', self.parent / 'copy')
    _train(self.root)
    shutil.rmtree(self.root / 'secret')
    shutil.copytree(self.parent / 'copy', self.root / 'secret')
    before = _contents(self.root)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'released rounds through 10, but'
    ):
      _train(self.root)
    self.assertEqual(_contents(self.root), before)

  def test_release_from_an_older_copy_is_written_anew(self):
    _train(self.root, total_rounds=3)
    shutil.copytree(self.root / 'release', self.parent / 'copy')
    _train(self.root)
    whole = kills.files_that_must_agree(self.root)
    shutil.rmtree(self.root / 'release')
    shutil.copytree(self.parent / 'copy', self.root / 'release')
    _train(self.root)
    self.assertEqual(kills.files_that_must_agree(self.root), whole)

  def test_checkpoint_under_the_name_of_another_round(self):
    _train(self.root)
    saved = self.root / 'secret' / 'checkpoints'
    (saved / 'round_10').unlink()
    (saved / 'round_9').rename(saved / 'round_10')
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, 'round_index is 9, expected 10'
    ):
      _train(self.root)

  def test_repeated_round_with_another_cohort(self):
    process = toy.Process()

    def kill(round_index):
      if round_index == 5:
        raise kills.Killed

    process.next.on_round = kill
    with self.assertRaises(kills.Killed):
      _train(self.root, process)
    plan = toy.build_plan()
    select = type(plan.participation).select

    def select_another(schedule, **arguments):
      return select(schedule, **(arguments | {'seed': 99}))

    with mock.patch.object(
        type(plan.participation), 'select', select_another
    ):
      before = (self.root / 'release' / 'environment.json').read_bytes()
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'another cohort'
      ), mock.patch.object(outputs.tff, '__version__', 'another'):
        _train(self.root, plan=plan)
    self.assertEqual(
        (self.root / 'release' / 'environment.json').read_bytes(), before
    )

  def test_checkpoint_that_cannot_be_saved_stops_the_run(self):
    _train(self.root, total_rounds=3)
    with mock.patch.object(
        checkpoints.CheckpointStore, 'save', side_effect=OSError('disk full')
    ):
      with self.assertRaisesRegex(OSError, 'disk full'):
        _train(self.root)
    self.assertLen(_read_csv(self.root / 'release' / 'metrics.csv'), 3)


if __name__ == '__main__':
  absltest.main()
