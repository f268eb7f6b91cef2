# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tests of the output directory: identity, lock, modes, leftovers."""

import os
import pathlib
import tempfile
from unittest import mock

from absl.testing import absltest
from absl.testing import parameterized

from tff_dp import _checks
from tff_dp.files import run_directory

_IDS = ['a', 'b']


def _open(root, identity=None, client_ids=None):
  return run_directory.RunDirectory(
      root,
      identity={'plan': {'num_rounds': 10}} if identity is None else identity,
      client_ids=_IDS if client_ids is None else client_ids,
  )


class RunDirectoryTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'some' / 'run'

  def test_new_directory(self):
    with _open(self.root) as directory:
      self.assertTrue(directory.is_new)
      self.assertTrue(directory.release.is_dir())
      self.assertEqual(os.stat(directory.secret).st_mode & 0o777, 0o700)

  def test_secret_directory_is_closed_to_others_again(self):
    _open(self.root).close()
    (self.root / 'secret').chmod(0o755)
    with _open(self.root) as directory:
      self.assertEqual(os.stat(directory.secret).st_mode & 0o777, 0o700)

  def test_opened_again(self):
    with _open(self.root) as first:
      pass
    with _open(self.root) as second:
      self.assertFalse(second.is_new)
      self.assertEqual(second.run_id, first.run_id)

  def test_runs_have_different_ids(self):
    with _open(self.root) as first, _open(self.parent / 'other') as second:
      self.assertNotEqual(first.run_id, second.run_id)

  @parameterized.parameters(
      ({'plan': {'num_rounds': 11}}, None, 'plan.num_rounds 10 -> 11'),
      ({'plan': {}}, None, 'plan.num_rounds 10 -> absent'),
      (None, ['b', 'a'], 'the ids of the clients, or their order'),
  )
  def test_another_run_is_refused(self, identity, client_ids, change):
    _open(self.root).close()
    before = (self.root / 'secret' / 'run.json').read_bytes()
    with self.assertRaisesRegex(_checks.ArgumentError, change) as raised:
      _open(self.root, identity, client_ids)
    self.assertEqual(raised.exception.argument, 'output_dir')
    self.assertEqual((self.root / 'secret' / 'run.json').read_bytes(), before)

  def test_in_use(self):
    with _open(self.root):
      with self.assertRaisesRegex(_checks.ArgumentError, 'a run is active'):
        _open(self.root)
    _open(self.root).close()

  def test_foreign_files_are_refused_and_kept(self):
    self.root.mkdir(parents=True)
    (self.root / 'thesis.tex').write_text('text')
    with self.assertRaisesRegex(_checks.ArgumentError, 'thesis.tex'):
      _open(self.root)
    self.assertEqual(os.listdir(self.root), ['thesis.tex'])

  def test_killed_before_the_manifest_was_written(self):
    with mock.patch.object(os, 'replace', side_effect=KeyboardInterrupt):
      with self.assertRaises(KeyboardInterrupt):
        _open(self.root)
    with _open(self.root) as directory:
      self.assertTrue(directory.is_new)

  def test_damaged_manifest(self):
    _open(self.root).close()
    (self.root / 'secret' / 'run.json').write_text('{}')
    with self.assertRaisesRegex(_checks.ArgumentError, 'damaged'):
      _open(self.root)

  def test_parent_that_is_a_file(self):
    path = self.parent / 'file'
    path.write_text('')
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'can be created and written'
    ):
      _open(path / 'run')

  def test_path_that_is_a_file(self):
    path = self.parent / 'file'
    path.write_text('')
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'can be created and written'
    ):
      _open(path)
    self.assertEqual(path.read_text(), '')

  def test_file_system_that_cannot_be_written(self):
    with self.assertRaisesRegex(
        _checks.ArgumentError, 'can be created and written'
    ):
      _open('/proc/tff_dp_run')

  def test_leftovers_are_removed_and_nothing_else(self):
    _open(self.root).close()
    checkpoints = self.root / 'secret' / 'checkpoints'
    (checkpoints / 'round_3').mkdir(parents=True)
    (checkpoints / 'round_4_temp1234' / 'variables').mkdir(parents=True)
    (self.root / 'release' / 'metrics.csv').write_text('round\n')
    (self.root / 'release' / 'metrics.csv_temp1234').write_text('ro')
    (self.root / 'release' / 'model.npz.tff_dp_tmp').write_text('')
    _open(self.root).close()
    self.assertEqual(os.listdir(checkpoints), ['round_3'])
    self.assertEqual(os.listdir(self.root / 'release'), ['metrics.csv'])


class WriteAtomicallyTest(absltest.TestCase):

  def test_predecessor_stays_until_the_end(self):
    path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / 'a'
    run_directory.write_atomically(path, 'old')
    with mock.patch.object(os, 'fsync', side_effect=KeyboardInterrupt):
      with self.assertRaises(KeyboardInterrupt):
        run_directory.write_atomically(path, b'new')
    self.assertEqual(path.read_text(), 'old')
    run_directory.write_atomically(path, b'new')
    self.assertEqual(path.read_text(), 'new')


class ListChangesTest(absltest.TestCase):

  def test_equal(self):
    content = {'a': {'b': [1, 2]}, 'c': None, 'd': {}, 'e': float('nan')}
    self.assertEmpty(run_directory.list_changes(content, content))

  def test_numbers_and_bools_differ(self):
    self.assertEqual(
        run_directory.list_changes({'a': 1}, {'a': True}), ['a 1 -> True']
    )


if __name__ == '__main__':
  absltest.main()
