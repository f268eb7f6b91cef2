# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the file of metrics: rows come back, and what is cut off does not."""

import math
import os
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest

from tff_dp import _checks
from tff_dp.program.files import history as history_lib


def _rows(first, last):
  return [
      {'round': t, 'released': {'epsilon': math.inf, 'a': t / 7}}
      for t in range(first, last + 1)
  ]


class HistoryTest(absltest.TestCase):

  def setUp(self):
    super().setUp()
    folder = self.enterContext(tempfile.TemporaryDirectory())
    self.path = pathlib.Path(folder) / 'metrics.jsonl'

  def _add(self, history, first, last):
    for row in _rows(first, last):
      history.append(row)

  def test_rows_are_a_sequence_on_the_disk_and_before(self):
    history = history_lib.History(self.path)
    self._add(history, 1, 3)
    history.save()
    self._add(history, 4, 5)
    rows = _rows(1, 5)
    self.assertEqual(history.unsaved, rows[3:])
    self.assertEqual(list(history), rows)
    self.assertEqual(list(reversed(history)), rows[::-1])
    self.assertEqual(history[1:4], rows[1:4])
    self.assertEqual(history[-1], rows[-1])
    with self.assertRaises(IndexError):
      history[5]  # pylint: disable=pointless-statement
    released = history_lib.Released(history, key='round')
    expected = [{'round': r['round'], **r['released']} for r in rows]
    self.assertEqual(released, expected)
    self.assertEqual(released[-2:], expected[-2:])
    self.assertNotEqual(released, expected[:-1])
    self._add(history, 6, 6)
    history.save()
    self.path.unlink()
    self.assertEqual(repr(released), repr(expected))

  def test_a_save_writes_new_rows_only(self):
    history = history_lib.History(self.path)
    written = []
    pwrite = os.pwrite

    def counted(file, content, offset):
      written.append(len(content))
      return pwrite(file, content[: len(content) // 2 + 1], offset)

    with mock.patch.object(os, 'pwrite', counted):
      for t in (1, 2):
        self._add(history, 10 * t, 10 * t + 9)
        history.save()
    # Each in parts, as on a disk that takes less at once.
    size = self.path.stat().st_size // 2
    self.assertLess(abs(max(written) - size), 40)
    self.assertEqual(list(history), _rows(10, 29))

  def test_goes_on_after_the_checkpoint(self):
    killed = history_lib.History(self.path)
    self.assertEqual(killed.save(), history_lib.EMPTY)
    self._add(killed, 1, 2)
    saved = killed.save()
    self._add(killed, 3, 9)
    killed.save()
    with self.path.open('ab') as file:
      file.write(b'{"torn')
    for _ in range(2):
      again = history_lib.History(self.path)
      again.restore(saved)
      self.assertEqual(list(again), _rows(1, 2))
    self._add(again, 3, 9)
    again.restore(saved)
    self.assertEqual(list(again), _rows(1, 2))
    self._add(again, 3, 4)
    last = again.save()
    whole = history_lib.History(self.path)
    whole.restore(last)
    self.assertEqual(list(whole), _rows(1, 4))
    whole.restore(history_lib.EMPTY)
    self.assertEmpty(self.path.read_bytes())

  def test_last_row_is_replaced_on_the_disk(self):
    history = history_lib.History(self.path)
    with self.assertRaisesRegex(ValueError, 'not saved'):
      history.replace_last({'round': 1})
    self._add(history, 1, 2)
    with self.assertRaisesRegex(ValueError, 'not saved'):
      history.replace_last({'round': 2})
    saved = history.save()
    history.replace_last({'round': 2, 'new': True})
    expected = [*_rows(1, 1), {'round': 2, 'new': True}]
    self.assertEqual(list(history), expected)
    # Rows that no checkpoint holds come after it.
    self._add(history, 3, 3)
    later = history.save()
    for _ in range(2):
      again = history_lib.History(self.path)
      again.restore(saved)
      self.assertEqual(list(again), expected)
    self._add(again, 3, 3)
    self.assertEqual(again.save(), later)
    again.restore(later)
    self.assertEqual(list(again), [*expected, *_rows(3, 3)])

  def test_replacement_that_is_torn_is_cut_off(self):
    history = history_lib.History(self.path)
    self._add(history, 1, 2)
    saved = history.save()
    content = self.path.read_bytes()
    for torn in (
        b'[{"round": 2}]', b'[\n', b'[]\n', b'[1]\n', b'[{}, {}]\n', b'[{}}\n'
    ):
      self.path.write_bytes(content + torn)
      again = history_lib.History(self.path)
      again.restore(saved)
      self.assertEqual(list(again), _rows(1, 2), torn)
      self.assertEqual(self.path.read_bytes(), content, torn)
    # Before the first row there is nothing to replace.
    self.path.write_bytes(b'[{"round": 2}]\n')
    again.restore(history_lib.EMPTY)
    self.assertEmpty(list(again))

  def test_rows_that_are_not_those_of_the_checkpoint_are_refused(self):
    history = history_lib.History(self.path)
    self._add(history, 1, 3)
    saved = history.save()
    content = self.path.read_bytes()
    for damaged in (
        b'', content[:-1], content[:-20], content.replace(b'2', b'5', 1)
    ):
      self.path.write_bytes(damaged)
      again = history_lib.History(self.path)
      with self.assertRaisesRegex(
          _checks.PrivacyRefusedError, 'are not those of the checkpoint'
      ):
        again.restore(saved)
      # A refusal changes nothing.
      self.assertEqual(self.path.read_bytes(), damaged)


if __name__ == '__main__':
  absltest.main()
