# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Each rule of the write-ahead record alone, live and when it is read again."""

import errno
import json
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.files import run_directory
from tff_dp.files import write_ahead


def _begun(round_index, **more):
  return {'round': round_index, 'cohort': 'x' * 64} | more


def _released(round_index):
  return {'released': round_index}


_REPLACED = {'replaces': True}


class RecordTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder) / 'record.jsonl'

  def _open(self, run_id='run'):
    record = write_ahead.WriteAheadRecord(self.path, run_id=run_id)
    self.addCleanup(record.close)
    return record

  def _lines(self):
    return [json.loads(each) for each in self.path.read_text().splitlines()]

  def _numbers(self, record):
    return record.rounds_begun, record.released_through

  @parameterized.parameters(
      (0, 0),
      (2, 0, _begun(1), _begun(2)),
      (2, 1, _begun(1), _released(1), _begun(2)),
      (2, 2, _begun(1), _begun(2), _released(2)),
      (2, 1, _begun(1), _begun(2), _released(1)),
      (1, 0, _begun(1), _begun(1, **_REPLACED)),
      (2, 1, _begun(1), _released(1), _begun(2), _begun(2, **_REPLACED)),
      (1, 0, _begun(1, epsilon=0.5)),
  )
  def test_right_histories(self, begun, released, *entries):
    self.path.write_text(''.join(json.dumps(e) + '\n' for e in entries))
    self.assertEqual(self._numbers(self._open()), (begun, released))

  @parameterized.parameters(
      (_begun(2),),
      (_begun(0),),
      (_begun(True),),
      (_begun(1.0),),
      (_begun('1'),),
      (_begun(1, cohort=None),),
      (_begun(1, cohort=3),),
      (_begun(1, **_REPLACED),),
      (_begun(1), _begun(1)),
      (_begun(1), _begun(3)),
      (_begun(1), _begun(2, **_REPLACED)),
      (_begun(1), _begun(2), _begun(1, **_REPLACED)),
      (_begun(1), _released(1), _begun(1, **_REPLACED)),
      (_begun(1), _released(1), _begun(1)),
      (_released(0),),
      (_released(1),),
      (_begun(1), _released(2)),
      (_begun(1), _released(True)),
      (_begun(1), _released(1.0)),
      (_begun(1), _released(1), _released(1)),
      (_begun(1), _begun(2), _released(2), _released(1)),
      ({},),
      ([],),
      (None,),
  )
  def test_wrong_histories(self, *entries):
    text = ''.join(json.dumps(each) + '\n' for each in entries)
    self.path.write_text(text)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, f'line {len(entries)} of .* damaged'
    ):
      self._open()
    # Nothing was cut off.
    self.assertEqual(self.path.read_text(), text)

  def test_line_without_an_end_had_not_begun(self):
    whole = json.dumps(_begun(1)) + '\n'
    for rest in ('{', json.dumps(_begun(2)), json.dumps(_released(1))):
      self.path.write_text(whole + rest)
      record = self._open()
      self.assertEqual(self._numbers(record), (1, 0))
      self.assertEqual(self.path.read_text(), whole)
      record.begin(2, ['a'], spent={})
      self.assertEqual(self._numbers(self._open()), (2, 0))

  def test_rounds_in_order(self):
    record = self._open()
    for wrong in (0, 2, 3, -1):
      with self.assertRaises(_checks.ArgumentError):
        record.begin(wrong, ['a'], spent={})
    with self.assertRaises(_checks.ArgumentError):
      record.release(1)
    record.begin(1, ['a'], spent={'epsilon': 0.5, 'unit': 'client'})
    (line,) = self._lines()
    self.assertLen(line.pop('cohort'), 64)
    self.assertEqual(line, {'epsilon': 0.5, 'unit': 'client', 'round': 1})
    for wrong in (2, -1):
      with self.assertRaises(_checks.ArgumentError):
        record.release(wrong)
    record.begin(2, ['b'], spent={})
    record.release(1)
    self.assertEqual(self._numbers(record), (2, 1))
    self.assertEqual(self._lines()[-1], {'released': 1})
    # What was released never begins again, with any cohort.
    for options in ({}, {'replaces': True}):
      for cohort in (['a'], ['c']):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, 'round 1 may have been released'
        ):
          record.begin(1, cohort, spent={}, **options)
    record.release(0)
    record.release(1)
    self.assertLen(self._lines(), 3)
    self.assertEqual(self._numbers(self._open()), (2, 1))

  @parameterized.parameters(True, False)
  def test_another_cohort(self, is_read_again):
    record = self._open()
    for each in (1, 2):
      record.begin(each, ['a', 'b'], spent={})
    if is_read_again:
      record = self._open()
      lines = self._lines()
    else:
      lines = self._lines()
    others = (['b', 'a'], ['a'], ['a', 'b', 'c'], [], ['ab'])
    for other in others:
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another cohort'):
        record.begin(2, other, spent={})
    # Only the last may be replaced.
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another cohort'):
      record.begin(1, ['c'], spent={}, replaces=True)
    record.begin(1, ['a', 'b'], spent={})
    record.begin(2, [b'a', 'b'], spent={}, replaces=True)
    self.assertEqual(self._lines(), lines)
    record.begin(2, ['c'], spent={'epsilon': 9.0}, replaces=True)
    *before, last = self._lines()
    self.assertEqual(before, lines)
    self.assertEqual(
        {k: v for k, v in last.items() if k != 'cohort'},
        {'replaces': True, 'round': 2},
    )
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another cohort'):
      record.begin(2, ['a', 'b'], spent={})
    record.begin(2, ['c'], spent={})
    self.assertEqual(self._numbers(self._open()), (2, 0))

  def test_hash_is_of_run_round_and_cohort(self):
    hashes = set()
    for run_id in ('run', 'other'):
      self.path.unlink(missing_ok=True)
      record = self._open(run_id)
      for each in (1, 2):
        record.begin(each, ['a'], spent={})
      hashes |= {line['cohort'] for line in self._lines()}
    self.assertLen(hashes, 4)

  @parameterized.parameters('write', 'sync')
  def test_what_could_not_be_stored_has_not_happened(self, place):
    record = self._open()
    record.begin(1, ['a'], spent={})
    full = OSError(errno.ENOSPC, 'full')
    if place == 'sync':
      broken = mock.patch.object(write_ahead.os, 'fsync', side_effect=full)
    else:
      file = mock.Mock(closed=False, **{'write.return_value': 3})
      broken = mock.patch.object(record, '_file', file)
    for act in (
        lambda: record.begin(2, ['b'], spent={}),
        lambda: record.begin(1, ['b'], spent={}, replaces=True),
        lambda: record.release(1),
        lambda: record.keep_data({'a': '11'}),
    ):
      with broken:
        with self.assertRaisesRegex(OSError, 'record.jsonl'):
          act()
      self.assertEqual(self._numbers(record), (1, 0))
      self.assertEqual(record.data_digests, {})
    with broken:
      record.begin(1, ['a'], spent={})


class DirectoryTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.root = pathlib.Path(folder) / 'run'

  def _open(self, identity=None, client_ids=('a', 'b'), root=None):
    if identity is None:
      identity = {'plan': {'rounds': 1, 'name': ('x', 'y')}, 'config': {}}
    return run_directory.RunDirectory(
        root or self.root, identity=identity, client_ids=list(client_ids)
    )

  def test_same_run(self):
    with self._open() as first:
      self.assertTrue(first.is_new)
      with self.assertRaisesRegex(_checks.ArgumentError, 'no other process'):
        self._open()
    with self._open() as again:
      self.assertFalse(again.is_new)
      self.assertEqual(again.run_id, first.run_id)
    self.assertLen(first.run_id, 32)

  @parameterized.parameters(
      ({'plan': {'rounds': 2, 'name': ('x', 'y')}, 'config': {}},),
      ({'plan': {'rounds': 1.0, 'name': ('x', 'y')}, 'config': {}},),
      ({'plan': {'rounds': True, 'name': ('x', 'y')}, 'config': {}},),
      ({'plan': {'rounds': '1', 'name': ('x', 'y')}, 'config': {}},),
      ({'plan': {'rounds': 1, 'name': ('y', 'x')}, 'config': {}},),
      ({'plan': {'rounds': 1}, 'config': {}},),
      ({'plan': {'rounds': 1, 'name': ('x', 'y'), 'more': None}, 'config': {}},),
      ({'plan': {'rounds': 1, 'name': ('x', 'y')}, 'config': {'a': 1}},),
      ({'plan': {'rounds': 1, 'name': ('x', 'y')}},),
  )
  def test_another_identity(self, identity):
    self._open().close()
    with self.assertRaisesRegex(_checks.ArgumentError, 'another plan or'):
      self._open(identity)

  @parameterized.parameters(
      (['b', 'a'],), (['a'],), (['a', 'b', 'c'],), ([],), (['ab'],)
  )
  def test_another_population(self, client_ids):
    self._open().close()
    with self.assertRaisesRegex(_checks.ArgumentError, 'ids of the clients'):
      self._open(client_ids=client_ids)

  def test_hash_of_the_population_is_salted_by_the_run(self):
    stored = []
    for name in ('one', 'two'):
      root = self.root.with_name(name)
      self._open(root=root).close()
      stored.append(json.loads((root / 'secret' / 'run.json').read_text()))
    one, two = stored
    self.assertEqual(one['identity'], two['identity'])
    for key in ('run_id', 'population'):
      self.assertNotEqual(one[key], two[key])

  def test_error_while_writing_is_raised_and_leaves_the_old_file(self):
    self.root.mkdir()
    path = self.root / 'file'
    path.write_text('old')
    for name in ('fsync', 'replace'):
      with mock.patch.object(
          run_directory.os, name, side_effect=OSError(errno.ENOSPC, 'full')
      ):
        with self.assertRaisesRegex(OSError, 'full'):
          run_directory.write_atomically(path, 'new')
      self.assertEqual(path.read_text(), 'old')
      self.assertLen(list(self.root.iterdir()), 1)
    with mock.patch.object(
        run_directory.os, 'fsync', side_effect=OSError(errno.EIO, 'broken')
    ):
      with self.assertRaisesRegex(OSError, 'broken'):
        run_directory.flush(self.root)


if __name__ == '__main__':
  absltest.main()
