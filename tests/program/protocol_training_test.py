# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of runs whose clients decide themselves whether to take part."""

import csv
import json
import logging
import pathlib
import re
import shutil
import tempfile
import traceback
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.program import kills
from tests.program import toy
from tff_dp import _checks
from tff_dp import _failures
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp import plans
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.mechanisms import randomizers
from tff_dp.program import protocol_source
from tff_dp.program import releases
from tff_dp.program import results
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints
from tff_dp.program.files import outputs

_DELTA = 1e-5
_SPHERE = randomizers.Sphere(1.0, 0.5)
_PLANS = {
    'fixed': plans.CheckInPlan(
        check_ins.FixedWindowCheckIn(5, 0.3),
        _SPHERE,
        num_passes=2,
    ),
    'sliding': plans.CheckInPlan(
        check_ins.SlidingWindowCheckIn(10, 4), _SPHERE
    ),
    'averaged': plans.CheckInPlan(
        check_ins.AveragedCheckIn(10, 12), _SPHERE
    ),
    'shuffled': plans.CheckInPlan(
        check_ins.ShuffledCheckIn(10, 0.2, 12), _SPHERE
    ),
    'allocation': plans.AllocationPlan(
        allocation.RandomAllocation(10),
        noise_multiplier=2.0,
        l2_norm_clip=0.5,
    ),
    'cyclic': plans.AllocationPlan(
        allocation.CyclicAllocation(10, 2, 2),
        noise_multiplier=2.0,
        l2_norm_clip=0.5,
        mechanism=mechanisms.Banded.square_root(10, 2),
    ),
}


class _Dataset(list):
  """Stands for a `tf.data.Dataset`."""

  def take(self, count: int) -> '_Dataset':
    return _Dataset(self[:count])


class _Clients:
  client_ids = toy.Clients.client_ids

  def create_tf_dataset_for_client(self, client_id: str) -> _Dataset:
    return _Dataset([float(client_id.removeprefix('client ')) + 1])


class _Next(toy.Next):
  """Adds a number that follows from each client's key, as local noise does."""

  def __call__(self, state: toy.State, clients: list) -> toy.Output:
    values = []
    for client in clients:
      if isinstance(client, dict):
        (key,) = client['key']
        values.append(sum(client['examples']) + int(key[0, 0]) % 1000 / 1000)
      else:
        values.append(sum(client))
    self.seen.append(values)
    return super().__call__(state, values)

  seen: list = []


class _Process(toy.Process):

  def __init__(self):
    super().__init__()
    self.next = _Next()
    self.next.seen = []


def _train(output_dir, plan, process=None, **kwargs) -> results.TrainResult:
  arguments = dict(
      delta=_DELTA,
      evaluate_fn=toy.evaluate,
      rounds_per_eval=6,
      checkpoint_every=3,
      progress='quiet',
  )
  return toy.train(
      process or _Process(),
      plan,
      kwargs.pop('clients', None) or _Clients(),
      output_dir=output_dir,
      **(arguments | kwargs),
  )


def _ledger(root, process, num_rounds) -> bytes:
  store = checkpoints.CheckpointStore(root / 'secret' / 'checkpoints')
  return store.load(num_rounds, like=process.initialize()).ledger


class TrainTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'
    self.enterContext(mock.patch.object(documents, 'write'))

  @parameterized.parameters(*_PLANS)
  def test_weak_delta_is_said(self, name):
    # The run knows how many clients it was given, although no coin needs that.
    statement = _train(
        self.root, _PLANS[name], delta=0.09, total_rounds=1
    ).statement
    self.assertStartsWith(statement.warnings[0], 'WEAK: delta 0.09 is not below')
    self.assertStartsWith(
        statement.points['mechanism']['population'],
        '12 clients, the clients that the run was given',
    )

  @parameterized.parameters(*_PLANS)
  def test_result_and_released_columns(self, name):
    plan = _PLANS[name]
    process = _Process()
    result = _train(self.root, plan, process)
    self.assertEqual(result.stop_reason, results.COMPLETED)
    self.assertEqual(result.rounds_done, 10)
    self.assertEqual(result.epsilon, plan.epsilon(delta=_DELTA))
    self.assertEqual(result.statement.epsilon, result.epsilon)
    self.assertEqual(
        [row['epsilon'] for row in result.metrics],
        [plan.epsilon_after(t, delta=_DELTA) for t in range(1, 11)],
    )
    # Every step is one `next`, also one without clients.
    self.assertLen(process.next.seen, 10)
    columns = set(result.metrics[0]) - {'round', 'test_accuracy'}
    usual = {
        'aggregator/snr',
        'finalizer/update_non_finite',
        'epsilon',
        'rounds_left',
    }
    rate = {'check_in_rate', 'check_in_rate_low', 'check_in_rate_high'}
    more = {
        'averaged': {'reports'},
        'shuffled': {'reports'} | rate,
    }
    self.assertEqual(columns, usual | more.get(name, set()))

  @parameterized.parameters('fixed', 'sliding', 'allocation', 'cyclic')
  def test_secret_occupancy_is_nowhere_but_in_the_checkpoint(self, name):
    # Of a million names none can occur by chance.
    class Clients(_Clients):
      client_ids = [f'client {910_000 + i}' for i in range(12)]

    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    root_logger = logging.getLogger()
    root_logger.addHandler(handler)
    self.addCleanup(root_logger.removeHandler, handler)
    level = root_logger.level
    root_logger.setLevel(logging.INFO)
    self.addCleanup(root_logger.setLevel, level)
    logging.info('is seen')
    process = _Process()
    _train(self.root, _PLANS[name], process, clients=Clients())
    with open(
        self.root / 'secret' / 'metrics.not_covered.csv', newline=''
    ) as file:
      columns = next(csv.reader(file))
    self.assertEqual(
        columns, ['round', 'round_seconds.not_covered', 'rss_mb.not_covered']
    )
    key = json.loads(_ledger(self.root, process, 10)[32:])['root_key']
    files = [
        path
        for path in self.root.rglob('*')
        if path.is_file() and 'checkpoints' not in path.parts
    ]
    self.assertGreater(len(files), 7)
    texts = {str(path): path.read_bytes() for path in files}
    texts['log'] = '\n'.join(records).encode()
    for place, text in texts.items():
      self.assertIsNone(re.search(rb'client 91\d{4}', text), place)
      self.assertNotIn(key.encode(), text, place)
      self.assertNotIn(b'num_clients.not_covered', text, place)
      self.assertNotIn(b'loss.not_covered', text, place)
    self.assertIn('is seen', records)

  def test_data_are_read_once_the_round_is_recorded(self):
    record = self.root / 'secret' / 'write_ahead.jsonl'
    process, begun = _Process(), []

    class Clients(_Clients):

      def create_tf_dataset_for_client(self, client_id):
        begun.append((
            record.read_text().count('"round"'), len(process.next.seen) + 1
        ))
        return super().create_tf_dataset_for_client(client_id)

    _train(self.root, _PLANS['averaged'], process, clients=Clients())
    self.assertLen(begun, 12)
    for num_recorded, round_index in begun:
      self.assertEqual(num_recorded, round_index)

  def test_budget_stops_the_run_with_complete_outputs(self):
    plan = _PLANS['shuffled']
    allowed = plan.epsilon_after(5, delta=_DELTA)
    result = _train(self.root, plan, epsilon_budget=allowed)
    self.assertEqual(result.stop_reason, results.BUDGET)
    self.assertEqual(result.rounds_done, 5)  # Equality passes.
    self.assertStartsWith(result.message, 'round 6 would spend epsilon')
    self.assertEqual(result.epsilon, allowed)
    self.assertEqual(result.metrics[-1]['rounds_left'], 0)
    self.assertIn('test_accuracy', result.metrics[-1])
    self.assertEqual(result.statement.epsilon, allowed)
    record = (self.root / 'secret' / 'write_ahead.jsonl').read_text()
    self.assertEqual(record.count('"round"'), 5)

  def test_budget_below_one_round_is_refused_before_anything_is_written(self):
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 would'):
      _train(self.root, _PLANS['shuffled'], epsilon_budget=1e-3)
    self.assertFalse(self.root.exists())

  @parameterized.parameters(
      (dict(schedule_seed=1), 'schedule_seed=1'),
      (dict(total_rounds=11), 'total_rounds=11'),
      (dict(delta=0.0), 'delta=0.0'),
  )
  def test_bad_argument_is_named_and_nothing_is_written(self, bad, message):
    with self.assertRaisesRegex(_checks.ArgumentError, message):
      _train(self.root, _PLANS['shuffled'], **bad)
    self.assertFalse(self.root.exists())

  def test_too_few_clients_for_the_crowd(self):
    plan = plans.CheckInPlan(
        check_ins.ShuffledCheckIn(10, 0.2, 13), _SPHERE
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'min_num_clients=13'):
      _train(self.root, plan)
    self.assertFalse(self.root.exists())

  def test_source_for_a_schedule_is_refused(self):
    source = protocol_source.ProtocolSource.for_plan(
        _PLANS['shuffled'], _Clients()
    )
    with self.assertRaisesRegex(_checks.ArgumentError, 'clients='):
      _train(self.root, toy.build_plan(), clients=source)

  @parameterized.parameters(*_PLANS)
  def test_failed_client_is_named_where_it_is_known_who_comes(self, kind):
    plan, process, selected = _PLANS[kind], _Process(), []

    def fail(round_index):
      # Where anybody came.
      if round_index > 1 and process.next.seen[-1]:
        raise _failures.ClientComputationError(
            client_index=0,
            num_clients=1,
            operation='loss',
            kind='InvalidArgumentError',
            details='a label of 17',
        )

    begin = write_ahead.WriteAheadRecord.begin

    def begin_and_look(record, round_index, cohort, **arguments):
      selected.append(cohort)
      begin(record, round_index, cohort, **arguments)

    process.next.on_round = fail
    with mock.patch.object(
        write_ahead.WriteAheadRecord, 'begin', begin_and_look
    ), self.assertRaises(_failures.ClientComputationError) as raised:
      _train(self.root, plan, process)
    name = selected[-1][0]
    shown = ''.join(traceback.format_exception(raised.exception))
    log = (self.root / 'secret' / 'run.log').read_text()
    self.assertIn(repr(name), log)
    self.assertIn('a label of 17', log)
    self.assertNotIn('a label of 17', shown)
    is_secret = plan.protocol.occupancy_is_secret
    self.assertEqual(repr(name) in shown, not is_secret)
    self.assertEqual(raised.exception.client_id, None if is_secret else name)

  def test_known_seed_voids_the_statement(self):
    source = protocol_source.ProtocolSource.for_plan(
        _PLANS['shuffled'], _Clients(), insecure_seed=0
    )
    result = _train(self.root, _PLANS['shuffled'], clients=source)
    self.assertStartsWith(result.statement.warnings[0], 'NO PRIVACY')
    self.assertEqual(result.statement.epsilon, np.inf)

  def test_rate_in_doubt_is_said_in_the_statement(self):
    plan = plans.CheckInPlan(
        check_ins.ShuffledCheckIn(12, 0.9, 12), _SPHERE, bound='none'
    )
    source = protocol_source.ProtocolSource.for_plan(
        plan, _Clients(), dropout_rate=0.8
    )
    result = _train(self.root, plan, clients=source)
    (warning,) = [
        each for each in result.statement.warnings if 'IN DOUBT' in each
    ]
    self.assertIn('0.9 was assumed', warning)

  def test_resume_with_another_source_is_refused_with_the_changes(self):
    _train(self.root, _PLANS['shuffled'], total_rounds=3)
    source = protocol_source.ProtocolSource.for_plan(
        _PLANS['shuffled'], _Clients(), sampler='literal'
    )
    with self.assertRaisesRegex(
        ValueError, "check_ins.sampler 'fast' -> 'literal'"
    ):
      _train(self.root, _PLANS['shuffled'], clients=source)

  @parameterized.parameters('shuffled', 'fixed')
  def test_statement_counts_begun_rounds_while_they_are_repeated(self, name):
    plan, process = _PLANS[name], _Process()

    def kill(round_index):
      if round_index == self.killed_in:
        raise kills.Killed

    process.next.on_round = kill
    # Round 3 has a checkpoint, rounds 4 and 5 had begun; then 4 again, only.
    for self.killed_in in (5, 4):
      with self.assertRaises(kills.Killed):
        _train(self.root, plan, process)
    path = self.root / 'release' / 'privacy_statement.json'
    stated = json.loads(path.read_text())
    self.assertEqual(stated['epsilon'], plan.epsilon_after(5, delta=_DELTA))
    self.assertEqual(stated['points']['mechanism']['rounds_done'], 5)

  def test_repeated_round_with_another_cohort(self):
    process = _Process()

    def kill(round_index):
      if round_index == 5:
        raise kills.Killed

    process.next.on_round = kill
    with self.assertRaises(kills.Killed):
      _train(self.root, _PLANS['averaged'], process)
    ids_of = protocol_source.ProtocolIterator.ids_of
    with mock.patch.object(
        protocol_source.ProtocolIterator,
        'ids_of',
        lambda iterator, step: [*ids_of(iterator, step), 'another'],
    ):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'another cohort'
      ):
        _train(self.root, _PLANS['averaged'])
    self.assertEqual(_train(self.root, _PLANS['averaged']).rounds_done, 10)


class KilledAnywhereTest(kills.RunsTestCase):
  """Ends a run before or after a given call, as SIGKILL would."""

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.expected = {}
    save = checkpoints.CheckpointStore.save
    for name in ('fixed', 'shuffled'):
      # All runs begin with the same keys: copies of one initial state.
      initial = cls.parent / name / 'initial'
      with mock.patch.object(
          checkpoints.CheckpointStore,
          'save',
          kills.at_call(save, 1, is_after=True),
      ):
        try:
          _train(initial, _PLANS[name])
        except kills.Killed:
          pass
      whole = cls.parent / name / 'uninterrupted'
      shutil.copytree(initial, whole)
      cls.expected[name] = _train(whole, _PLANS[name])

  @parameterized.product(
      name=('fixed', 'shuffled'),
      place=(
          (checkpoints.CheckpointStore, 'save', 1),
          (checkpoints.CheckpointStore, 'save', 3),
          (write_ahead.WriteAheadRecord, 'begin', 1),
          (write_ahead.WriteAheadRecord, 'begin', 5),
          (protocol_source.ProtocolIterator, 'advance', 5),
          (_Next, '__call__', 5),
          (releases.Releases, 'release', 5),
          (run_directory, 'write_statement', 3),
          (outputs, 'write_model', 1),
      ),
      is_after=(False, True),
  )
  def test_resumed_equals_uninterrupted(self, name, place, is_after):
    owner, method, number = place
    root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'r'
    shutil.copytree(self.parent / name / 'initial', root)
    stand_in = kills.at_call(
        getattr(owner, method), number, is_after=is_after
    )
    with mock.patch.object(owner, method, stand_in):
      with self.assertRaises(kills.Killed):
        _train(root, _PLANS[name])
    result = _train(root, _PLANS[name])
    whole = self.parent / name / 'uninterrupted'
    kills.check_same_files(self, root, whole)
    self.assertEqual(result.metrics, self.expected[name].metrics)
    self.assertEqual(result.epsilon, self.expected[name].epsilon)
    self.assertEqual(
        *(_ledger(path, _Process(), 10) for path in (root, whole))
    )


if __name__ == '__main__':
  absltest.main()
