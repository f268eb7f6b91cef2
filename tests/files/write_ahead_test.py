# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the write-ahead record."""

import json
import os
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest

from tff_dp import _checks
from tff_dp.files import write_ahead


class WriteAheadRecordTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder) / 'record.jsonl'

  def _open(self, run_id='run') -> write_ahead.WriteAheadRecord:
    record = write_ahead.WriteAheadRecord(self.path, run_id=run_id)
    self.addCleanup(record.close)
    return record

  def test_rounds_count_once_and_survive(self):
    record = self._open()
    self.assertEqual(record.rounds_begun, 0)
    record.begin(1, ['a', 'b'], spent={'epsilon': 0.5})
    record.begin(2, [], spent={'epsilon': 0.7})
    self.assertEqual(record.rounds_begun, 2)
    # Without closing, as after SIGKILL.
    again = self._open()
    self.assertEqual(again.rounds_begun, 2)
    before = self.path.read_bytes()
    again.begin(1, ['a', 'b'], spent={})
    again.begin(2, [], spent={})
    self.assertEqual(self.path.read_bytes(), before)
    again.begin(3, ['a'], spent={'epsilon': 0.8})
    lines = self.path.read_text().splitlines()
    self.assertEqual(
        [json.loads(line)['epsilon'] for line in lines], [0.5, 0.7, 0.8]
    )

  def test_what_was_released_is_read_without_a_change(self):
    record = self._open()
    self.assertEqual(write_ahead.released_through(self.path), 0)
    for index in (1, 2):
      record.begin(index, ['a'], spent={})
      record.release(index)
    with open(self.path, 'ab') as file:
      file.write(b'{"released": 3}')  # Without an end: still being written.
    before = self.path.read_bytes()
    self.assertEqual(write_ahead.released_through(self.path), 2)
    self.assertEqual(self.path.read_bytes(), before)

  def test_line_is_on_the_disk_before_begin_returns(self):
    record = self._open()
    with mock.patch.object(os, 'fsync') as fsync:
      fsync.side_effect = lambda _: self.assertNotEmpty(self.path.read_bytes())
      record.begin(1, ['a'], spent={})
      fsync.assert_called_once()

  def test_another_cohort_is_refused(self):
    self._open().begin(1, ['a', 'b'], spent={})
    for cohort in (['a'], ['b', 'a'], []):
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 1 had begun with another cohort'
      ):
        self._open().begin(1, cohort, spent={})

  def test_a_forked_process_is_refused(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    before = self.path.read_bytes()
    child = os.fork()
    if not child:
      refused = 0
      try:
        for call in (
            lambda: record.begin(1, ['a'], spent={}),
            lambda: record.begin(2, ['b'], spent={}),
            lambda: record.fail(1, ['a']),
            lambda: record.keep_data({'a': '11'}),
            lambda: record.release(1),
        ):
          with self.assertRaises(_checks.PrivacyRefusedError):
            call()
          refused += 1
      finally:
        os._exit(refused)
    _, status = os.waitpid(child, 0)
    self.assertEqual(os.waitstatus_to_exitcode(status), 5)
    self.assertEqual(self.path.read_bytes(), before)

  def test_a_closed_record_is_refused(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    record.close()
    for call in (
        lambda: record.begin(1, ['a'], spent={}),
        lambda: record.fail(1, ['a']),
        lambda: record.keep_data({'a': '11'}),
        lambda: record.release(1),
    ):
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'was closed'):
        call()

  def test_round_whose_reports_are_sent_keeps_its_cohort(self):
    record = self._open()
    record.begin(1, ['a', b'b'], spent={'epsilon': 1.0}, sends=True)
    for record in (record, self._open()):
      self.assertEqual(record.required_cohort, ['a', 'b'])
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'may have sent their reports'
      ):
        record.begin(1, ['c'], spent={}, replaces=True, sends=True)
      record.begin(1, ['a', b'b'], spent={}, sends=True)
    record.release(1)
    record.begin(2, ['c'], spent={'epsilon': 2.0}, sends=True)
    self.assertEqual(self._open().required_cohort, ['c'])
    # No line may replace such a round, whoever wrote it.
    line = {'replaces': True, 'round': 2, 'cohort': 'another'}
    with open(self.path, 'a') as file:
      file.write(json.dumps(line) + '\n')
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is damaged'):
      self._open()

  def test_last_round_that_was_not_released_can_be_replaced(self):
    record = self._open()
    for round_index, cohort in ((1, ['a']), (2, ['b'])):
      record.begin(round_index, cohort, spent={'epsilon': 1.0})
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'round 1 had'):
      record.begin(1, ['c'], spent={}, replaces=True)
    record.release(1)
    record.begin(2, ['c'], spent={}, replaces=True)
    record.begin(2, ['c'], spent={})
    again = self._open()
    self.assertEqual((again.rounds_begun, again.released_through), (2, 1))
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'another cohort'):
      again.begin(2, ['b'], spent={})
    again.begin(2, ['c'], spent={})
    again.release(2)
    with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'been released'):
      again.begin(2, ['b'], spent={}, replaces=True)

  def test_round_that_failed_is_not_replaced(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    record.fail(1, ['a'])
    before = self.path.read_bytes()
    record.fail(1, ['a'])
    for each in (record, self._open()):
      each.begin(1, ['a'], spent={})
      for replaces in (False, True):
        with self.assertRaisesRegex(
            _checks.PrivacyRefusedError, "client's work failed in round 1"
        ):
          each.begin(1, ['b'], spent={}, replaces=replaces)
    self.assertEqual(self.path.read_bytes(), before)
    self.assertEqual(self._open().required_cohort, ['a'])
    for damaged in (
        {'failed': 2, 'clients': []},
        {'failed': 1},
        {'replaces': 1, 'round': 1, 'cohort': 'c'},
    ):
      self.path.write_bytes(before + json.dumps(damaged).encode() + b'\n')
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
        self._open()
    self.path.write_bytes(before)
    record = self._open()
    record.begin(2, ['b'], spent={})
    record.fail(1, ['a'])
    record.begin(2, ['c'], spent={}, replaces=True)

  def test_replacement_of_no_round_is_damage(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    record.release(1)
    line = self.path.read_bytes().splitlines()[0]
    entry = json.loads(line) | {'replaces': True}
    for round_index in (1, 2):
      content = json.dumps(entry | {'round': round_index}).encode() + b'\n'
      self.path.write_bytes(self.path.read_bytes() + content)
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'damaged'):
        self._open()
      self.path.write_bytes(self.path.read_bytes().removesuffix(content))

  def test_hashes_of_data_are_stored_once_and_survive(self):
    record = self._open()
    self.assertEqual(record.data_digests, {})
    record.begin(1, ['a', 'b'], spent={})
    record.keep_data({})
    before = self.path.read_bytes()
    with mock.patch.object(os, 'fsync') as fsync:
      fsync.side_effect = lambda _: self.assertGreater(
          len(self.path.read_bytes()), len(before)
      )
      record.keep_data({'a': '11'})
      record.keep_data({'a': '11'})
      fsync.assert_called_once()
    record.keep_data({'a': '11', 'b': '22'})
    lines = self.path.read_bytes()[len(before) :].splitlines()
    self.assertEqual(
        [json.loads(line) for line in lines],
        [{'data': {'a': '11'}}, {'data': {'b': '22'}}],
    )
    record.release(1)
    again = self._open()
    self.assertEqual(again.data_digests, {'a': '11', 'b': '22'})
    self.assertEqual(again.rounds_begun, 1)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, "data of 'b' are other than before"
    ):
      again.keep_data({'a': '11', 'b': '33', 'c': '44'})
    self.assertEqual(self._open().data_digests, {'a': '11', 'b': '22'})

  def test_hashes_of_data_that_cannot_be_are_damage(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    record.keep_data({'a': '11'})
    before = self.path.read_bytes()
    for data in ([], {'b': 1}, {'a': '22'}, {'a': '11'}, None):
      line = json.dumps({'data': data}).encode() + b'\n'
      self.path.write_bytes(before + line)
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is damaged'):
        self._open()

  def test_releases_are_stored_once_and_survive(self):
    record = self._open()
    record.release(0)
    record.begin(1, ['a'], spent={})
    record.begin(2, ['b'], spent={})
    record.release(2)
    before = self.path.read_bytes()
    again = self._open()
    self.assertEqual((again.rounds_begun, again.released_through), (2, 2))
    again.release(1)
    again.release(2)
    self.assertEqual(self.path.read_bytes(), before)
    with self.assertRaisesRegex(ValueError, 'round_index=3'):
      again.release(3)

  def test_hashes_of_released_rounds_are_not_kept(self):
    record = self._open()
    for round_index in range(1, 8):
      record.begin(round_index, ['a'], spent={})
    record.release(5)
    for each in (record, self._open()):
      self.assertCountEqual(each._cohorts, [6, 7])
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'round 5 may have been released'
      ):
        each.begin(5, ['a'], spent={})
      each.begin(6, ['a'], spent={})

  def test_full_disk_leaves_what_can_be_opened_again(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    whole = self.path.read_bytes()
    with mock.patch.object(record, '_file', closed=False) as file:
      file.write.side_effect = lambda line: self.path.open('ab').write(line[:9])
      with self.assertRaisesRegex(OSError, 'No space left') as raised:
        record.begin(2, ['a'], spent={})
    self.assertEqual(raised.exception.filename, str(self.path))
    self.assertEqual(self._open().rounds_begun, 1)
    self.assertEqual(self.path.read_bytes(), whole)

  def test_ids_are_not_stored(self):
    self._open().begin(1, ['somebody@example.org'], spent={})
    self.assertNotIn(b'somebody', self.path.read_bytes())

  def test_gap_is_refused(self):
    with self.assertRaisesRegex(ValueError, 'round_index=2'):
      self._open().begin(2, [], spent={})

  def test_torn_last_line_has_not_begun(self):
    self._open().begin(1, ['a'], spent={})
    whole = self.path.read_bytes()
    for length in range(1, len(whole) + 1):
      self.path.write_bytes(whole + whole[:-1][:length])
      record = self._open()
      self.assertEqual(record.rounds_begun, 1)
      self.assertEqual(self.path.read_bytes(), whole)
    record.begin(2, ['b'], spent={})
    self.assertEqual(self._open().rounds_begun, 2)

  def test_damage_elsewhere_is_refused(self):
    record = self._open()
    record.begin(1, ['a'], spent={})
    record.begin(2, ['a'], spent={})
    lines = self.path.read_bytes().splitlines(keepends=True)
    release = b'{"released": 1}\n'
    for damaged in (
        [lines[1]],
        [lines[0], lines[0]],
        [b'x\n', lines[1]],
        [release],
        [lines[0], release, release],
        [lines[0], b'{"released": "all"}\n'],
        [b'3\n'],
    ):
      self.path.write_bytes(b''.join(damaged))
      with self.assertRaisesRegex(_checks.PrivacyRefusedError, 'is damaged'):
        self._open()


if __name__ == '__main__':
  absltest.main()
