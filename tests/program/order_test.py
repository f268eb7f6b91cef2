# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The order in which a run changes its files, and kills at each change."""

import contextlib
import csv
import json
import pathlib
import shutil
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tests.program import disk as disk_lib
from tests.program import kills
from tests.program import toy
from tff_dp import program
from tff_dp.files import run_directory
from tff_dp.files import write_ahead
from tff_dp.program import certification
from tff_dp.program import loop as loop_lib
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history

_DELTA = 3e-6
_ROUNDS = 3


def _whole(name: str) -> list[str]:
  """Returns the events of a file that is written as a whole."""
  return [f'create {name}~', f'sync {name}~', f'name {name}']


_STATED = [
    *_whole('release/privacy_statement.json'),
    *_whole('release/privacy_statement.md'),
    *_whole('release/events.json'),
]
_SAVED = 'secret/checkpoints/round_'
_RECORD = 'sync secret/write_ahead.jsonl'
# Until the first round: nothing is released before its keys are on the disk.
_BEGINNING = [
    *_whole('secret/run.json'),
    'open secret/write_ahead.jsonl+',
    'sync secret',
    'open secret/run.log+',
    'sync secret',
    'sync secret/metrics.jsonl 0',
    *_whole(f'{_SAVED}0'),
    'sync secret/checkpoints',
    *_whole('release/config.json'),
    *_whole('release/environment.json'),
    *_STATED,
    *_whole('release/metrics.csv'),
    *_whole('secret/metrics.not_covered.csv'),
]
# The lines that are there when a CSV file is named or opened differ.
_BEGINNING = [event.replace('.csv 0', '.csv') for event in _BEGINNING]
_READ = ['read'] * 3
_FINISHED = _whole('secret/finished.json')


def _saved(
    round_index: int, num_rows: int, num_lines: int, *, num_new: int = 1
) -> list[str]:
  """Returns how a round gets to the disk: metrics, checkpoint, then record.

  Args:
    round_index: The round.
    num_rows: Lines of the metrics before.
    num_lines: Lines of the record afterwards.
    num_new: Rounds since the checkpoint before.
  """
  return [
      f'write secret/metrics.jsonl {num_rows}',
      f'sync secret/metrics.jsonl {num_rows + num_new}',
      *_whole(f'{_SAVED}{round_index}'),
      'sync secret/checkpoints',
      f'{_RECORD} {num_lines}',
  ]


def _evaluated(num_rows: int) -> list[str]:
  """Returns what an evaluation does. `num_rows` is as in `_saved`."""
  return [
      'evaluate',
      f'write secret/metrics.jsonl {num_rows}',
      f'sync secret/metrics.jsonl {num_rows + 1}',
  ]


def _without_columns(events: list[str]) -> list[str]:
  """Leaves out that a CSV file gets new columns, and its lines."""
  events = [
      event.partition('.csv')[0] + '.csv' if '.csv' in event else event
      for event in events
  ]
  return [
      event
      for event in events
      if not (event.endswith('.csv') and event.startswith(('create', 'sync')))
      and not (event.endswith('.csv') and event.startswith('name'))
  ]


_ROWS = ['open release/metrics.csv', 'open secret/metrics.not_covered.csv']


class _Clients(toy.Clients):

  def __init__(self, disk: disk_lib.Disk):
    self._disk = disk

  def create_tf_dataset_for_client(self, client_id):
    self._disk.say('read')
    return super().create_tf_dataset_for_client(client_id)


def _process(disk: disk_lib.Disk) -> toy.Process:
  process = toy.Process()
  process.next.on_round = lambda each: disk.say(f'train {each}')
  return process


def _train(disk, root, **arguments):
  def evaluate(weights):
    disk.say('evaluate')
    return toy.evaluate(weights)

  with disk.listening():
    return toy.train(
        _process(disk),
        toy.build_plan(_ROUNDS),
        _Clients(disk),
        output_dir=root,
        **dict(
            delta=_DELTA,
            evaluate_fn=evaluate,
            rounds_per_eval=1,
            checkpoint_every=1,
            progress='quiet',
        )
        | arguments,
    )


def _loop(disk, root) -> program.Loop:
  certificate = certification.Certificate(
      toy.build_plan(_ROUNDS), None, frozenset()
  )
  with mock.patch.object(
      certification, 'certify', lambda process, plan: certificate
  ):
    return program.Loop(
        _process(disk), _Clients(disk), output_dir=root, delta=_DELTA
    )


def _run_loop(disk, root, returned: list[int]) -> None:
  """Runs all rounds, each with the first clients that may take part."""
  with disk.listening(), _loop(disk, root) as loop:
    _run_rounds(disk, loop, returned)


def _run_rounds(disk, loop, returned: list[int]) -> None:
  while loop.rounds_left:
    state = loop.next(loop.eligible()[:3]).state
    returned.append(int(state.round_index))
    disk.say('returned')


class _OrderTestCase(kills.RunsTestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'

  def check_now(self) -> None:
    """Fails if files tell more than the files before them have stored."""
    found = _state(self.root)
    self.assertLessEqual(found['rows'], found['released'])
    self.assertLessEqual(found['released'], found['begun'])
    self.assertLessEqual(found['released'], found['saved'])
    self.assertLessEqual(found['saved'], found['begun'])
    # No row is of a round that the statement leaves out.
    self.assertLessEqual(found['rows'], found['stated'])
    self.assertLessEqual(found['stated'], found['begun'])


def _state(root: pathlib.Path) -> dict[str, int]:
  """Returns numbers of rounds, as the files of a run have them."""
  secret, release = root / 'secret', root / 'release'
  begun = released = rows = stated = 0
  with contextlib.suppress(FileNotFoundError):
    for line in (secret / 'write_ahead.jsonl').read_text().splitlines():
      entry = json.loads(line)
      begun = max(begun, entry.get('round', 0))
      released = max(released, entry.get('released', 0))
  with contextlib.suppress(FileNotFoundError):
    with open(release / 'metrics.csv', newline='') as file:
      rows = len(list(csv.DictReader(file)))
  with contextlib.suppress(FileNotFoundError):
    content = json.loads((release / 'privacy_statement.json').read_text())
    stated = content['points']['mechanism']['rounds_done']
  saved = checkpoints.CheckpointStore(secret / 'checkpoints').latest_round()
  return dict(
      begun=begun, released=released, rows=rows, stated=stated, saved=saved or 0
  )


class OrderTest(_OrderTestCase):

  def test_train(self):
    disk = disk_lib.Disk(self.root, look=self.check_now)
    _train(disk, self.root, total_rounds=2)
    beginning = len(_BEGINNING)
    self.assertEqual(disk.events[:beginning], _BEGINNING)
    self.assertEqual(
        _without_columns(disk.events[beginning:]),
        [
            f'{_RECORD} 1', *_READ, 'train 1', *_saved(1, 0, 2),
            *_STATED, *_evaluated(1), *_ROWS,
            f'{_RECORD} 3', *_READ, 'train 2', *_saved(2, 2, 4),
            *_STATED, *_evaluated(3), *_ROWS,
            *_STATED, *_whole('release/model.npz'), *_FINISHED,
        ],
    )

  def test_train_with_few_checkpoints(self):
    disk = disk_lib.Disk(self.root, look=self.check_now)
    _train(
        disk, self.root, total_rounds=3, checkpoint_every=2, rounds_per_eval=5
    )
    self.assertEqual(
        _without_columns(disk.events[len(_BEGINNING):]),
        [
            f'{_RECORD} 1', *_READ, 'train 1',
            f'{_RECORD} 2', *_READ, 'train 2', *_saved(2, 0, 3, num_new=2),
            *_STATED, *_ROWS, *_ROWS,
            f'{_RECORD} 4', *_READ, 'train 3', *_saved(3, 2, 5),
            *_STATED, *_evaluated(3), *_ROWS,
            *_STATED, *_whole('release/model.npz'), *_FINISHED,
        ],
    )

  def test_round_with_an_evaluation_has_a_checkpoint(self):
    disk = disk_lib.Disk(self.root, look=self.check_now)
    _train(
        disk, self.root, total_rounds=3, checkpoint_every=3, rounds_per_eval=2
    )
    self.assertEqual(
        _without_columns(disk.events[len(_BEGINNING):]),
        [
            f'{_RECORD} 1', *_READ, 'train 1',
            f'{_RECORD} 2', *_READ, 'train 2', *_saved(2, 0, 3, num_new=2),
            *_STATED, *_evaluated(2), *_ROWS, *_ROWS,
            f'{_RECORD} 4', *_READ, 'train 3', *_saved(3, 3, 5),
            *_STATED, *_evaluated(4), *_ROWS,
            *_STATED, *_whole('release/model.npz'), *_FINISHED,
        ],
    )

  def test_loop(self):
    disk = disk_lib.Disk(self.root, look=self.check_now)
    _run_loop(disk, self.root, [])
    beginning = len(_BEGINNING)
    self.assertEqual(disk.events[:beginning], _BEGINNING)
    expected = []
    for each in range(1, _ROUNDS + 1):
      expected += [f'{_RECORD} {2 * each - 1}', *_READ, f'train {each}']
      expected += [*_saved(each, each - 1, 2 * each), *_STATED, *_ROWS]
      expected += ['returned']
    self.assertEqual(_without_columns(disk.events[beginning:]), expected)

  def test_resumed_run_stores_the_release_before_it_writes_rows(self):
    # Killed in the place of the line about the release of round 1.
    whole = disk_lib.Disk(self.root.parent / 'other')
    _train(whole, self.root.parent / 'other')
    place = whole.events.index(f'{_RECORD} 2')
    with self.assertRaises(kills.Killed):
      _train(disk_lib.Disk(self.root, killed_at=place), self.root)
    # The line was written, and nothing is known to be on the disk: as if not.
    record = self.root / 'secret' / 'write_ahead.jsonl'
    record.write_text(record.read_text().splitlines(keepends=True)[0])
    disk = disk_lib.Disk(self.root, look=self.check_now)
    _train(disk, self.root, total_rounds=2)
    opened = ['open secret/write_ahead.jsonl+ 1', 'open secret/run.log+']
    beginning = [*opened, *_STATED, f'{_RECORD} 2', *_evaluated(1)]
    self.assertEqual(disk.events[:len(beginning)], beginning)
    rest = _without_columns(disk.events[len(beginning):])
    # The setting is written anew, once the run goes on.
    setting = [*_whole('release/config.json'), *_whole('release/environment.json')]
    self.assertEqual(
        rest,
        [
            f'{_RECORD} 3', *_READ, 'train 2',
            *_saved(2, 2, 4)[:-1], *setting, f'{_RECORD} 4', *_STATED,
            *_evaluated(3), *_ROWS,
            *_STATED, *_whole('release/model.npz'), *_FINISHED,
        ],
    )

  def test_a_round_beyond_the_budget_leaves_no_trace(self):
    plan = toy.build_plan(_ROUNDS)
    disk = disk_lib.Disk(self.root, look=self.check_now)
    # A client may come in rounds 1 and 3.
    self.assertLess(plan.epsilon(delta=_DELTA, num_rounds=2),
                    plan.epsilon(delta=_DELTA, num_rounds=3))
    _train(
        disk, self.root,
        epsilon_budget=plan.epsilon(delta=_DELTA, num_rounds=2),
    )
    self.assertEqual([e for e in disk.events if e.startswith('train')],
                     ['train 1', 'train 2'])
    self.assertEqual(disk.events.count('read'), 6)
    last = max(i for i, e in enumerate(disk.events) if e.startswith(_RECORD))
    self.assertEqual(disk.events[last], f'{_RECORD} 4')


class KilledTest(_OrderTestCase):
  """A process is killed in the place of each change, one after the other."""

  def test_train(self):
    initial, whole = self.root / 'initial', self.root / 'whole'
    options = dict(checkpoint_every=2, rounds_per_eval=2)
    self.root.mkdir()
    with contextlib.suppress(kills.Killed):
      # Until the keys are on the disk.
      _train(
          disk_lib.Disk(initial, killed_at=_place(f'{_SAVED}0')), initial,
          **options,
      )
    self.assertEqual(_state(initial), dict.fromkeys(_state(initial), 0))
    shutil.copytree(initial, whole)
    disk = disk_lib.Disk(whole)
    expected = _train(disk, whole, **options)
    for place in _places(disk.events):
      root = self.root / f'killed {place}'
      shutil.copytree(initial, root)
      with self.assertRaises(kills.Killed):
        _train(
            disk_lib.Disk(root, killed_at=place),
            root,
            **options,
        )
      before = _state(root)
      self.assertLessEqual(before['rows'], before['released'])
      self.assertLessEqual(before['released'], before['saved'])
      result = _train(disk_lib.Disk(root), root, **options)
      kills.check_same_files(self, root, whole)
      self.assertEqual(result.metrics, expected.metrics)
      self.assertEqual(result.epsilon, expected.epsilon)
      self.assertEqual(result.statement, expected.statement)
      shutil.rmtree(root)

  def test_loop(self):
    disk = disk_lib.Disk(self.root / 'whole')
    _run_loop(disk, self.root / 'whole', [])
    plan = toy.build_plan(_ROUNDS)
    for place in _places(disk.events):
      root, returned = self.root / f'killed {place}', []
      self.root.mkdir(exist_ok=True)
      with self.assertRaises(kills.Killed):
        _run_loop(disk_lib.Disk(root, killed_at=place), root, returned)
      before = _state(root)
      # What the caller has got is on the disk, and counted as released.
      self.assertLessEqual(len(returned), before['rows'])
      self.assertLessEqual(before['rows'], before['released'])
      self.assertLessEqual(before['released'], before['saved'])
      # Another process knows of no other loop.
      loop_lib._loops.clear()
      resumed = disk_lib.Disk(root)
      again = _loop(resumed, root)
      self.assertEqual(again.rounds_done, before['saved'])
      self.assertEqual(
          again.epsilon,
          plan.epsilon(delta=_DELTA, num_rounds=before['begun'])
          if before['begun'] else 0,
      )
      after = _state(root)
      self.assertEqual(after['stated'], before['begun'])
      self.assertEqual(after['rows'], before['saved'])
      self.assertEqual(after['released'], before['saved'])
      _run_rounds(resumed, again, returned)
      again.close()
      self.assertEqual(returned, sorted(set(returned)))
      self.assertEqual(
          _state(root),
          dict.fromkeys(('begun', 'released', 'rows', 'saved', 'stated'),
                        _ROUNDS),
      )
      shutil.rmtree(root)


def _place(name: str) -> int:
  """Returns the place of the event after which a file has its name."""
  return _BEGINNING.index(f'name {name}') + 2


def _places(events: list[str]) -> list[int]:
  """Returns the places in which a kill leaves something of its own."""
  return [
      place
      for place, event in enumerate(events)
      if event.startswith(
          ('name', 'write', 'train', 'returned', 'evaluate', 'cut')
      )
      or (event.startswith('sync') and '~' not in event)
      or '.jsonl+' in event
  ]


class OneFileTest(_OrderTestCase):
  """Each file alone: its content is on the disk before anything counts on it."""

  def _listen(self):
    self.root.mkdir()
    disk = disk_lib.Disk(self.root)
    self.enterContext(disk.listening())
    return disk

  @parameterized.parameters('text', b'bytes', (b'in ', b'parts'))
  def test_whole_file(self, *content):
    if isinstance(content[0], tuple):
      content = content[0]
    content = content[0] if len(content) == 1 else content
    disk = self._listen()
    path = self.root / 'file'
    path.write_bytes(b'what was there')
    run_directory.write_atomically(path, content)
    self.assertEqual(disk.events, _whole('file'))
    if isinstance(content, str):
      content = content.encode()
    if not isinstance(content, bytes):
      content = b''.join(content)
    self.assertEqual(path.read_bytes(), content)
    self.assertEqual([each.name for each in self.root.iterdir()], ['file'])

  def test_flush_syncs_what_it_is_given(self):
    disk = self._listen()
    (self.root / 'folder').mkdir()
    run_directory.flush(self.root / 'folder')
    self.assertEqual(disk.events, ['sync folder'])

  def test_record(self):
    disk = self._listen()
    path = self.root / 'record.jsonl'
    record = write_ahead.WriteAheadRecord(path, run_id='run')
    del disk.events[:]
    record.begin(1, ['a'], spent={})
    self.assertEqual(disk.events, ['sync record.jsonl 1'])
    # What is stored already is not written again.
    record.begin(1, ['a'], spent={})
    record.release(0)
    self.assertEqual(disk.events, ['sync record.jsonl 1'])
    record.begin(1, ['b'], spent={}, replaces=True)
    record.release(1)
    record.release(1)
    self.assertEqual(
        disk.events, [f'sync record.jsonl {each}' for each in (1, 2, 3)]
    )
    record.close()

  def test_metrics(self):
    disk = self._listen()
    rows = history.History(self.root / 'rows.jsonl')
    del disk.events[:]
    rows.append({'round': 1})
    rows.append({'round': 2})
    self.assertEmpty(disk.events)
    rows.save()
    self.assertEqual(
        disk.events, ['write rows.jsonl 0', 'sync rows.jsonl 2']
    )

  def test_checkpoint(self):
    disk = self._listen()
    store = checkpoints.CheckpointStore(self.root / 'saved')
    for each in range(4):
      del disk.events[:]
      store.save(
          checkpoints.Checkpoint(
              round_index=each,
              process_state=(each,),
              noise={'kind': 'full', 'draws': None},
              ledger=b'',
              history=history.EMPTY,
          )
      )
      self.assertEqual(
          disk.events, [*_whole(f'saved/round_{each}'), 'sync saved']
      )
      names = sorted(path.name for path in (self.root / 'saved').iterdir())
      self.assertEqual(
          names, [f'round_{one}' for one in range(max(0, each - 1), each + 1)]
      )


if __name__ == '__main__':
  absltest.main()
