# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of SQLite files of client data: wrong, partial and cut-off ones."""

import pathlib
import sqlite3

from absl.testing import absltest
from absl.testing import parameterized

from tasks.common import client_files
from tasks.common import digits_data

_KNOWN = client_files.Known(
    'tests', {'train': 3, 'test': None}, 'make another one'
)
_ROWS = [
    (split, f'client {number}', bytes(500))
    for split in ('train', 'test')
    for number in range(3)
    for _ in range(4)
]


class ClientFilesTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.path = pathlib.Path(self.create_tempdir()) / 'data' / 'tests.sqlite'

  def _refused(self, known=_KNOWN, is_stand_in=True):
    """Returns the three lines of a refusal."""
    with self.assertRaises(digits_data.DataFileError) as caught:
      client_files.look(self.path, known, is_stand_in=is_stand_in)
    self.assertEqual(caught.exception.way_out, 'make another one')
    self.assertStartsWith(str(caught.exception), str(self.path))
    return f'{str(caught.exception).removeprefix(f"{self.path} ")}: ' + (
        caught.exception.why
    )

  def test_what_was_written_is_found_and_says_that_it_stands_in(self):
    client_files.write(self.path, _ROWS, description='made up')
    found = client_files.look(self.path, _KNOWN, is_stand_in=True)
    self.assertEqual(found.description, 'made up')
    clients = {f'client {number}': 4 for number in range(3)}
    self.assertEqual(found.num_examples, {'train': clients, 'test': clients})
    self.assertEqual(
        self._refused(is_stand_in=False),
        'is a stand-in: the results say so only with --stand-in',
    )

  def test_nothing_is_left_of_a_file_that_was_not_finished(self):
    def rows():
      yield _ROWS[0]
      raise KeyboardInterrupt

    with self.assertRaises(KeyboardInterrupt):
      client_files.write(self.path, rows(), description='made up')
    self.assertEqual(
        self._refused(),
        'is missing: found in its folder: tests.sqlite.part',
    )
    client_files.write(self.path, _ROWS, description='made up')
    client_files.look(self.path, _KNOWN, is_stand_in=True)

  def test_a_real_file_is_no_stand_in(self):
    client_files.write(self.path, _ROWS, description='made up')
    with sqlite3.connect(self.path) as file:
      file.execute('DROP TABLE stand_in')
    self.assertStartsWith(self._refused(), 'is no stand-in: leave out')
    found = client_files.look(self.path, _KNOWN, is_stand_in=False)
    self.assertEqual(found.description, 'tests, 3 clients')

  @parameterized.named_parameters(
      ('another_format', lambda content: b'PK\3\4 and so on', (
          "is not an SQLite file: it begins with b'PK\\x03\\x04 and so on'"
      )),
      ('cut_off', lambda content: content[:-4096], (
          'is cut off: it has 32,768 of its 36,864 bytes'
      )),
      ('damaged', lambda content: content[:100] + bytes(36764), (
          'is not a file of tests: SQLite: database disk image is malformed'
      )),
  )
  def test_damage_is_told(self, change, told):
    client_files.write(self.path, _ROWS, description='made up')
    self.path.write_bytes(change(self.path.read_bytes()))
    self.assertEqual(self._refused(), told)

  @parameterized.named_parameters(
      ('table', 'DROP TABLE client_metadata', (
          'has no table client_metadata: found tables: by_client, examples,'
          ' stand_in'
      )),
      ('column', 'ALTER TABLE client_metadata DROP COLUMN num_examples', (
          'is not a file of tests: SQLite: no such column: num_examples'
      )),
      ('split', "DELETE FROM client_metadata WHERE split_name = 'test'", (
          'does not have all of tests: found 0 clients in the split test'
      )),
      ('client', "DELETE FROM client_metadata WHERE client_id = 'client 1'", (
          'does not have all of tests: found 2 clients in the split train, of 3'
      )),
  )
  def test_a_partial_file_is_told(self, statement, told):
    client_files.write(self.path, _ROWS, description='made up')
    with sqlite3.connect(self.path) as file:
      file.execute(statement)
    self.assertEqual(self._refused(), told)


if __name__ == '__main__':
  absltest.main()
