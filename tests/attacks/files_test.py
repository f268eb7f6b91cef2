# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Run directories that others have prepared, files that others have written.

Each attack ends in one line of ours; nothing is lost, and nothing is run. Some
need root, to stand for a second user: CI runs as root.
"""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
from unittest import mock
import zipfile

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.attacks import fuzz_targets_files as files
from tff_dp import _checks
from tff_dp import _failures
from tff_dp.cli import main
from tff_dp.files import arrays
from tff_dp.files import regular
from tff_dp.files import rollback
from tff_dp.files import run_directory
from tff_dp.files import write_ahead

_ROOT = pathlib.Path(__file__).parents[2]
_ANOTHER_USER = 12345
_ESCAPE = '\x1b]0;you\x07'
_BIG = 10**9


def _open(root):
  return run_directory.RunDirectory(
      root, identity={'plan': {'num_rounds': 10}}, client_ids=['a']
  )


def _contents(root: pathlib.Path) -> dict[str, bytes]:
  return {
      str(path.relative_to(root)): path.read_bytes()
      for path in root.rglob('*')
      if path.is_file()
  }


class _Test(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'

  @contextlib.contextmanager
  def refused(self, kind, pattern):
    """Asserts that what is inside raises one line, or ours of three."""
    with self.assertRaisesRegex(kind, pattern) as raised:
      yield
    text = str(raised.exception)
    is_three = isinstance(raised.exception, _checks.PrivacyRefusedError)
    self.assertEqual(text.count('\n'), 2 if is_three else 0, text)
    self.assertTrue(text.replace('\n', '').isprintable(), text)
    self.assertNotIn('MemoryError: Unable', text)
    self.assertLess(len(text), 2000)


class DirectoryTest(_Test):

  def _as_another_users(self, path):
    if os.geteuid() != 0:
      self.skipTest('Only root can give a file to another user; CI is root.')
    os.chown(path, _ANOTHER_USER, _ANOTHER_USER, follow_symlinks=False)

  @parameterized.parameters('.', 'release', 'secret', 'secret/lock')
  def test_what_another_user_prepared(self, name):
    path = self.root / name
    if name == 'secret/lock':
      path.parent.mkdir(parents=True)
      path.write_bytes(b'')
    else:
      path.mkdir(parents=True)
    self._as_another_users(path)
    with self.refused(_checks.ArgumentError, f'with the number {_ANOTHER_USER}'):
      _open(self.root)
    self.assertEqual(path.stat().st_uid, _ANOTHER_USER)
    self.assertFalse((self.root / 'secret' / 'run.json').exists())

  @parameterized.parameters(
      'write_ahead.jsonl', 'checkpoints', 'checkpoints/round_3', 'metrics.jsonl'
  )
  def test_file_of_another_user_in_secret(self, name):
    _open(self.root).close()
    path = self.root / 'secret' / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b'')
    self._as_another_users(path)
    with self.refused(_checks.ArgumentError, 'belongs to the user'):
      _open(self.root)

  @parameterized.parameters('.', 'release', 'secret')
  def test_link_in_the_place_of_a_directory(self, name):
    elsewhere = self.parent / 'elsewhere'
    elsewhere.mkdir(mode=0o700)
    path = self.root / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(elsewhere)
    with self.refused(_checks.ArgumentError, 'is a link'):
      _open(self.root)
    self.assertEmpty(list(elsewhere.iterdir()))
    self.assertEqual(elsewhere.stat().st_mode & 0o777, 0o700)

  @parameterized.parameters(
      'lock', 'write_ahead.jsonl', 'metrics.jsonl', 'checkpoints', 'run.json',
      'checkpoint.npz', 'clients.jsonl', 'run.log', 'checkpoints/round_1',
  )
  def test_link_in_secret(self, name):
    _open(self.root).close()
    victim = self.parent / 'victim'
    victim.write_text('precious')
    path = self.root / 'secret' / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(victim)
    with self.refused(
        _checks.ArgumentError, 'is a link|cannot be|can be created'
    ):
      _open(self.root)
    self.assertEqual(victim.read_text(), 'precious')

  @parameterized.parameters('.', 'release', 'secret')
  def test_directory_that_others_may_write_to(self, name):
    for mode in (0o777, 0o770, 0o1777, 0o702):
      path = self.root / name
      path.mkdir(parents=True, exist_ok=True)
      path.chmod(mode)
      with self.refused(_checks.ArgumentError, 'written to by others'):
        _open(self.root)
      self.assertEqual(path.stat().st_mode & 0o777, mode & 0o777)
      path.chmod(0o700)

  def test_directories_that_we_make_are_closed_to_writers(self):
    before = os.umask(0)
    try:
      _open(self.root).close()
    finally:
      os.umask(before)
    for path in (self.root, self.root / 'release', self.root / 'secret'):
      self.assertEqual(path.stat().st_mode & 0o022, 0, path)
    for path in (self.root / 'secret').iterdir():
      self.assertEqual(path.stat().st_mode & 0o077, 0, path)

  def test_lock_that_is_deleted_or_replaced_while_it_is_held(self):
    with _open(self.root):
      (self.root / 'secret' / 'lock').unlink()
      with self.refused(_checks.ArgumentError, 'a run is active'):
        _open(self.root)
      (self.root / 'secret' / 'lock').unlink(missing_ok=True)
      (self.root / 'secret' / 'lock').write_bytes(b'')
      with self.refused(_checks.ArgumentError, 'a run is active'):
        _open(self.root)
    _open(self.root).close()

  @parameterized.parameters('lock', '.')
  def test_lock_that_is_replaced_while_it_is_taken(self, name):
    _open(self.root).close()
    flock, path = fcntl.flock, self.root / 'secret' / name

    def replaced(descriptor, how):
      if not (self.parent / 'old').exists():
        path.rename(self.parent / 'old')
        if name == '.':
          path.mkdir(0o700)
        (self.root / 'secret' / 'lock').write_bytes(b'')
      flock(descriptor, how)

    with mock.patch.object(fcntl, 'flock', replaced):
      with self.refused(_checks.ArgumentError, 'its lock file was'):
        _open(self.root)

  def test_lock_where_directories_cannot_be_locked(self):
    flock = fcntl.flock

    def only_files(descriptor, how):
      if os.path.isdir(f'/proc/self/fd/{descriptor}'):
        raise OSError(9, 'Bad file descriptor')  # As on NFS.
      flock(descriptor, how)

    with mock.patch.object(fcntl, 'flock', only_files):
      with _open(self.root):
        with self.refused(_checks.ArgumentError, 'a run is active'):
          _open(self.root)

  @parameterized.parameters(
      b'', b'{}', b'[]', b'3', b'null', b'"x"', b'\xff', b'[' * 100_000,
      b'{"schema": 1}',
      b'{"schema": 1, "run_id": 3, "identity": {}, "population": ""}',
      b'{"schema": 1, "run_id": "a", "identity": [], "population": ""}',
      b'{"schema": 1, "run_id": "a", "identity": {}, "population": null}',
      b'{"schema": 1, "run_id": "a", "identity": {}}',
      b'{"schema": true}',
      b'{"schema": 1e999}',
      b'{"schema": ' + b'1' * 9999 + b'}',
  )
  def test_manifest(self, content):
    _open(self.root).close()
    (self.root / 'secret' / 'run.json').write_bytes(content)
    before = _contents(self.root)
    with self.refused(_checks.ArgumentError, 'damaged'):
      _open(self.root)
    self.assertEqual(_contents(self.root), before)

  def test_identity_with_escapes(self):
    _open(self.root).close()
    path = self.root / 'secret' / 'run.json'
    content = json.loads(path.read_text())
    content['identity'] = {_ESCAPE: _ESCAPE, 'a\nb': '\ud800'}
    path.write_text(json.dumps(content))
    with self.refused(_checks.ArgumentError, r'\\x1b'):
      _open(self.root)

  @parameterized.parameters('release', 'secret', 'secret/checkpoints')
  def test_temporary_name_that_links_elsewhere(self, folder):
    _open(self.root).close()
    (self.root / 'secret' / 'checkpoints').mkdir(exist_ok=True)
    victim = self.parent / 'victim'
    victim.mkdir()
    (victim / 'file').write_text('precious')
    (self.root / folder / 'model.npz.ab.tff_dp_tmp').symlink_to(victim)
    with contextlib.suppress(_checks.ArgumentError):
      _open(self.root).close()
    self.assertEqual((victim / 'file').read_text(), 'precious')


class WritingTest(_Test):

  def test_no_link_is_followed(self):
    victim = self.parent / 'victim'
    victim.write_text('precious')
    path = self.parent / 'model.npz'
    # The name that was used, the place itself, and what is left of its guesses.
    for name in ('model.npz.tff_dp_tmp', 'model.npz'):
      (self.parent / name).symlink_to(victim)
    run_directory.write_atomically(path, 'new')
    self.assertEqual(victim.read_text(), 'precious')
    self.assertEqual(path.read_text(), 'new')
    self.assertFalse(path.is_symlink())

  def test_a_name_that_is_taken_is_not_written_to(self):
    victim = self.parent / 'victim'
    victim.write_text('precious')
    with mock.patch.object(
        run_directory.secrets, 'token_hex', return_value='0'
    ):
      (self.parent / 'a.0.tff_dp_tmp').symlink_to(victim)
      with self.assertRaises(FileExistsError):
        run_directory.write_atomically(self.parent / 'a', 'new')
    self.assertEqual(victim.read_text(), 'precious')

  def test_modes_are_those_of_the_directory(self):
    before = os.umask(0)
    try:
      for mode, expected in ((0o700, 0o600), (0o755, 0o644)):
        self.parent.chmod(mode)
        run_directory.write_atomically(self.parent / 'a', 'new')
        self.assertEqual((self.parent / 'a').stat().st_mode & 0o777, expected)
    finally:
      os.umask(before)

  def test_nothing_is_left_of_a_failure(self):
    with mock.patch.object(os, 'fsync', side_effect=OSError(28, 'full')):
      for _ in range(3):
        with self.assertRaises(OSError):
          run_directory.write_atomically(self.parent / 'a', 'new')
    self.assertEmpty(list(self.parent.iterdir()))

  @parameterized.parameters('link', 'pipe')
  def test_log_and_record(self, kind):
    victim, path = self.parent / 'victim', self.parent / 'file'
    victim.write_text('precious')
    if kind == 'link':
      path.symlink_to(victim)
    else:
      os.mkfifo(path)
    _failures.log(path, ValueError('secret'))  # The error matters, no log.
    with self.assertRaises(OSError):
      write_ahead.WriteAheadRecord(path, run_id='run')
    self.assertEqual(victim.read_text(), 'precious')


def _line(**changes) -> bytes:
  entry = {'round': 1, 'cohort': '0' * 64} | changes
  return json.dumps(entry).encode() + b'\n'


class RecordTest(_Test):

  @parameterized.parameters(
      b'\n', b'null\n', b'3\n', b'[]\n', b'"round"\n', b'\xff\n', b'{}\n',
      b'[' * 100_000 + b'\n', b'{"round": 1}\n', b'{"released": 1}\n',
      b'\0' * 100 + b'\n',
      _line(round=True), _line(round=1.0), _line(round=2), _line(round=0),
      _line(round=-1), _line(round='1'), _line(round=[1]), _line(round=None),
      _line(round=float('nan')), _line(round=10**30), _line(cohort=None),
      _line(cohort=3), _line(cohort=['0']), _line(cohort={}),
      _line() + _line(), _line() + _line(round=3),
      _line() + b'{"released": true}\n',
      _line() + b'{"released": 1.0}\n', _line() + b'{"released": 2}\n',
      _line() + b'{"released": 0}\n', _line() + b'{"released": -1}\n',
      _line() + b'{"released": "1"}\n', _line() + b'{"released": [1]}\n',
      _line() + b'{"released": ' + b'9' * 5000 + b'}\n',
      _line() + b'{"released": NaN}\n', _line() + b'{"released": 1}\n' * 2,
  )
  def test_damaged(self, content):
    path = self.parent / 'record'
    path.write_bytes(content)
    with self.refused(_checks.PrivacyRefusedError, 'is damaged'):
      write_ahead.WriteAheadRecord(path, run_id='run')
    self.assertEqual(path.read_bytes(), content)

  def test_a_line_beyond_all_bounds_is_not_cut_off(self):
    path = self.parent / 'record'
    path.write_bytes(_line() + b' ' * 200)
    with mock.patch.object(write_ahead, '_LONGEST_LINE', 100):
      with self.refused(_checks.PrivacyRefusedError, 'is damaged'):
        write_ahead.WriteAheadRecord(path, run_id='run')
    self.assertEqual(path.read_bytes(), _line() + b' ' * 200)

  @parameterized.parameters(
      b'', b'null', b'[]', b'{}', b'\xff', b'[' * 100_000, b'{"points": 3}',
      b'{"points": {"mechanism": {"rounds_done": "3", "rounds_planned": 6}}}',
      b'{"points": {"mechanism": {"rounds_done": true, "rounds_planned": 6}}}',
      b'{"points": {"mechanism": {"rounds_done": null, "rounds_planned": 6}}}',
      b'{"points": {"mechanism": {"rounds_done": 1e9, "rounds_planned": 6}}}',
      b'{"points": {"mechanism": {"rounds_done": 3}}}',
      b'{"points": {"mechanism": {"rounds_done": 3, "rounds_planned": 6}}}',
  )
  def test_statement(self, content):
    (self.parent / 'privacy_statement.json').write_bytes(content)
    with self.refused(
        _checks.PrivacyRefusedError, 'is damaged|states 3 rounds'
    ):
      self._check(2)

  @parameterized.parameters(
      b'', b'null', b'{"events": []}', b'{"events": [3]}', b'{"events": [{}]}',
      b'{"events": [{"rounds": 3}]}', b'{"events": [{"rounds": "3"}]}',
      b'{"events": [{"rounds": 2}, {"rounds": 2}]}',
  )
  def test_events_beside(self, content):
    (self.parent / 'events.json').write_bytes(content)
    with self.refused(
        _checks.PrivacyRefusedError, 'is damaged|states 3 rounds'
    ):
      self._check(2)

  @parameterized.parameters(
      (b'', 0), (b'round\r\n', 0), (b'round,a\r\n1,2\r\n7,3', 1),
      (b'round\r\n' + b'9' * 5000 + b'\r\n2\r\n', 2), (b'\xff\r\n2\r\n', 2),
      (b'round\r\n\xd9\xa3\r\n', 0), (b'\0\r\n"2\r\n"3"\r\n', 0),
      (b'round\r\n' + b'x' * 3_000_000 + b'\r\n2\r\n', 2),
  )
  def test_metrics(self, content, expected):
    (self.parent / 'metrics.csv').write_bytes(content)
    self.assertEqual(rollback.rounds_released(self.parent), expected)

  def _check(self, begun):
    directory = mock.Mock(release=self.parent)
    rollback.check(directory, mock.Mock(rounds_begun=begun))


def _zip(*members, **options) -> bytes:
  content = io.BytesIO()
  with zipfile.ZipFile(content, 'w', **options) as file:
    for name, data in members:
      file.writestr(name, data)
  return content.getvalue()


def _npy_of(header: str, body: bytes = b'', version: int = 1) -> bytes:
  text = header.encode('latin-1') + b'\n'
  size = len(text).to_bytes(2 if version == 1 else 4, 'little')
  return b'\x93NUMPY' + bytes([version, 0]) + size + text + body


def _header(shape, descr="'<f8'") -> str:
  return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


NPYS = {
    'nothing': b'',
    'magic_only': b'\x93NUMPY',
    'other_version': b'\x93NUMPY\x09\0\x01\0\n',
    'no_header': b'\x93NUMPY\x01\0\xff\xff',
    'pickle': files.npy(np.zeros(2)).replace(b'<f8', b'|O8'),
    'object': _npy_of(_header('(1,)', "'|O'"), b'cos\nsystem\n(S"true"\ntR.'),
    'billions': _npy_of(_header(f'({_BIG}, {_BIG})'), bytes(16)),
    'one_more': _npy_of(_header('(3,)'), bytes(16)),
    'one_less': _npy_of(_header('(1,)'), bytes(16)),
    'negative': _npy_of(_header('(-2,)'), bytes(16)),
    'two_negatives': _npy_of(_header('(-1, -2)'), bytes(16)),
    'empty_billions': _npy_of(_header(f'(0, {10**30})')),
    'many_axes': _npy_of(_header(str((1,) * 70)), bytes(8)),
    'float_shape': _npy_of(_header('(2.0,)'), bytes(16)),
    'bool_shape': _npy_of(_header('(True, 2)'), bytes(16)),
    'structure': _npy_of(
        _header('(1,)', "[('a', '<f8'), ('b', '<f8')]"), bytes(16)
    ),
    'long_item': _npy_of(_header('()', f"'|V{_BIG}'"), bytes(16)),
    'no_item': _npy_of(_header(f'({_BIG},)', "'|V0'")),
    'text': _npy_of(_header('(2,)', "'<U2'"), bytes(16)),
    'time': _npy_of(_header('(2,)', "'<M8[s]'"), bytes(16)),
    'call': _npy_of("__import__('os').system('true')"),
    'nested': _npy_of('[' * 9000, version=2),
    'minuses': _npy_of('-' * 9000 + '1', version=2),
    'nots': _npy_of('not ' * 2000 + '1', version=2),
    'sums': _npy_of('1+' * 4000 + '1', version=2),
    'long_header': _npy_of(_header('()') + ' ' * 60_000, bytes(8)),
    'no_shape': _npy_of("{'descr': '<f8', 'fortran_order': False}"),
    'no_dict': _npy_of('3'),
}
NPZS = {
    'nothing': b'',
    'no_zip': b'MZ' * 100,
    'npy': files.npy(np.zeros(2)),
    'torn': files.npz(**files.MODEL)[:-30],
    'bomb': _zip(
        ('w.npy', _npy_of(_header(f'({2**22},)'), bytes(2**25))),
        compression=zipfile.ZIP_DEFLATED,
    ),
    'bomb_lzma': _zip(
        ('w.npy', _npy_of(_header(f'({2**20},)'), bytes(2**23))),
        compression=zipfile.ZIP_LZMA,
    ),
    # Its sizes fit; a stream can say so and give more.
    'compressed': _zip(
        (
            'w.npy',
            _npy_of(_header('(1000,)'), np.random.default_rng(1).bytes(8000)),
        ),
        compression=zipfile.ZIP_DEFLATED,
    ),
    'no_array': _zip(('w', b'text')),
    'twice': files.npz(ab=np.zeros(2), ac=np.zeros(2)).replace(
        b'ac.npy', b'ab.npy'
    ),
    'encrypted': files.npz(w=np.zeros(2)).replace(
        b'PK\x01\x02\x2d\x03\x2d\0\0\0', b'PK\x01\x02\x2d\x03\x2d\0\1\0'
    ),
    'other_sum': files.npz(w=np.full(2, 7.0)).replace(
        np.full(1, 7.0).tobytes(), np.full(1, 8.0).tobytes()
    ),
    'parent': _zip(('../../w', b'')),
    'escape': _zip((f'{_ESCAPE}', b'')),
    **{f'with_{name}': _zip(('w.npy', data)) for name, data in NPYS.items()},
}


class ArraysTest(_Test):

  def setUp(self):
    super().setUp()
    # What is announced is never made: 2 GB more than now are out of reach, and
    # a MemoryError would be in the message.
    with open('/proc/self/statm', encoding='ascii') as file:
      now = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, before)
    resource.setrlimit(resource.RLIMIT_AS, (now + 2**31, before[1]))

  @parameterized.named_parameters(*NPZS.items())
  def test_file(self, content):
    path = self.parent / 'model.npz'
    path.write_bytes(content)
    for like in (None, files.MODEL):
      with self.refused(ValueError, 'model.npz is no file of np.savez'):
        arrays.read(path, like=like)
    self.assertEqual(path.read_bytes(), content)

  @parameterized.named_parameters(*NPYS.items())
  def test_bytes(self, content):
    with self.refused(ValueError, 'no array of np.save'):
      arrays.from_npy(content)

  @parameterized.parameters(
      dict(w=np.zeros([2, 2], np.float32)),
      dict(files.MODEL, c=np.ones(1)),
      dict(files.MODEL, b=np.ones(2)),
      dict(files.MODEL, b=np.ones(1, np.float32)),
      dict(files.MODEL, b=np.ones([1, 1])),
  )
  def test_another_model(self, **values):
    path = self.parent / 'model.npz'
    path.write_bytes(files.npz(**values))
    with self.refused(ValueError, 'expected'):
      arrays.read(path, like=files.MODEL)

  @parameterized.parameters(
      (np.zeros([2, 2], np.float32),), (np.asfortranarray(np.eye(3)[:2]),),
      (np.float64(3),), (np.zeros([0, 3]),), (np.arange(3, dtype='>i2'),),
      (np.array(True),), (np.array([1j]),),
  )
  def test_what_numpy_wrote_is_read(self, value):
    found = arrays.from_npy(files.npy(value))
    np.testing.assert_array_equal(found, value)
    self.assertEqual(found.dtype, np.asarray(value).dtype)
    self.assertTrue(found.flags.writeable)

  @parameterized.parameters('pipe', 'directory', '/dev/zero', 'link', 'socket')
  def test_what_is_no_file(self, kind):
    path = self.parent / 'model.npz'
    if kind == 'pipe':
      os.mkfifo(path)
    elif kind == 'directory':
      path.mkdir()
    elif kind == 'socket':
      os.mknod(path, 0o140600)
    else:
      path.symlink_to('/dev/zero')
    for read in (arrays.read, regular.read_json):
      with self.refused(OSError, 'zero|model.npz'):
        read('/dev/zero' if kind == '/dev/zero' else path)

  def test_a_file_that_is_too_large(self):
    path = self.parent / 'events.json'
    with open(path, 'wb') as file:
      file.truncate(2**40)
    with self.refused(OSError, 'larger than'):
      regular.read_json(path)


def _events(**changes) -> dict:
  content = files.plan().events_json(delta=files.DELTA, num_rounds=3)
  return json.loads(json.dumps(content)) | changes


def _changed(*path, to) -> bytes:
  content = _events()
  part = content
  for key in path[:-1]:
    part = part[key]
  part[path[-1]] = to
  return json.dumps(content).encode()


def _rounds(number) -> bytes:
  content = _events()
  content['plan']['mechanism']['num_rounds'] = number
  content['plan']['participation']['num_rounds'] = number
  content['events'][0]['rounds'] = number
  return json.dumps(content).encode()


_MECHANISM, _SCHEDULE = ('plan', 'mechanism'), ('plan', 'participation')
_EVENTS = (
    b'', b'null', b'3', b'[]', b'{}', b'\xff\xfe', b'\0' * 1000, b'{"schema"',
    b'[' * 200_000, b'{"a":' * 200_000, b'[' * 500 + b']' * 500,
    b'"' + b'\\u001b' * 1000 + b'"',
    b'1' * 10_000, b'-' * 10_000, b'{"schema": ' + b'9' * 5000 + b'}',
    _rounds(_BIG), _rounds(10**8), _rounds(10**30), _rounds(-1), _rounds(1e9),
    _rounds(True), _rounds('6'), _rounds([6]), _rounds(None),
    _changed('events', to=[]), _changed('events', to=[{}]),
    _changed('events', to={}), _changed('events', to=None),
    _changed('events', 0, 'rounds', to=7),
    _changed('events', 0, 'rounds', to=0),
    _changed('events', 0, 'rounds', to=2.5),
    _changed('events', 0, 'noise_multiplier', to=1e-3),
    _changed('events', 0, 'noise_multiplier', to=_ESCAPE),
    _changed('events', 0, 'squared_sensitivity', to=float('nan')),
    _changed('events', 0, 'squared_sensitivity', to=0),
    _changed('events', 0, _ESCAPE, to=1),
    _changed('delta', to=0), _changed('delta', to='1e-5'),
    _changed('delta', to=float('inf')), _changed('delta', to=[1e-5]),
    _changed('unit', to=_ESCAPE), _changed('unit', to='\ud800'),
    _changed('unit', to='a\nerror: b'), _changed('unit', to='\u202egnp'),
    _changed('unit', to='x' * 10**6), _changed('unit', to=list(range(10**5))),
    _changed(_ESCAPE, to=1), _changed('kind', to='silos'),
    _changed('warnings', to=[_ESCAPE]),
    _changed('plan', to=None), _changed('plan', to=[]), _changed('plan', to={}),
    _changed('plan', 'kind', to='os'), _changed('plan', 'kind', to=['dp_ftrl']),
    _changed('plan', 'kind', to=_ESCAPE),
    _changed('plan', '__class__', to='x'), _changed('plan', 'self', to=1),
    _changed('plan', 'noise_multiplier', to=-1),
    _changed('plan', 'noise_multiplier', to=1e-320),
    _changed('plan', 'noise_multiplier', to='1'),
    _changed('plan', 'noise_multiplier', to=10**400),
    _changed('plan', 'l2_norm_clip', to=float('nan')),
    _changed('plan', 'clients_per_round', to=10**30),
    _changed('plan', 'adaptive_clipping', to={'learning_rate': 1}),
    _changed('plan', 'adaptive_clipping', to='x'),
    _changed(*_MECHANISM, to='blt'),
    _changed(*_MECHANISM, 'name', to='../../blt'),
    _changed(*_MECHANISM, 'name', to='os.system'),
    _changed(*_MECHANISM, 'name', to={'a': 1}),
    _changed(*_MECHANISM, 'weights', to=[]),
    _changed(*_MECHANISM, 'weights', to=[1e308, 1e308]),
    _changed(*_MECHANISM, 'weights', to=[[0.1], [0.2]]),
    _changed(*_MECHANISM, 'weights', to=['0.25', '0.125']),
    _changed(*_MECHANISM, 'weights', to=[0.1] * 5000),
    _changed(*_MECHANISM, 'decays', to=[float('nan'), 0.5]),
    _changed(*_MECHANISM, 'restart_every', to=0),
    _changed(*_MECHANISM, 'restart_every', to=10**12),
    _changed(*_SCHEDULE, 'name', to='__init__'),
    _changed(*_SCHEDULE, 'min_index_gap', to=0),
    _changed(*_SCHEDULE, 'max_participations', to=10**18),
    _changed(*_SCHEDULE, 'more', to=1),
)


class EventsTest(_Test):

  @parameterized.parameters(*_EVENTS)
  def test_events(self, content):
    path = self.parent / 'events.json'
    path.write_bytes(content)
    for command in ('account', 'statement'):
      output = io.StringIO()
      with contextlib.redirect_stderr(
          output
      ), contextlib.redirect_stdout(output):
        status = main.main([command, '--events', str(path)])
      text = output.getvalue()
      self.assertIn(status, (2, 5), text)
      self.assertRegex(text, r'\Aerror: ')
      self.assertNotIn('bug', text)
      lines = text.splitlines()
      self.assertLen(lines, 1 if status == 2 else 3)
      for line in lines:
        self.assertTrue(line.isprintable(), line)
        self.assertLess(len(line), 2000)
    self.assertEqual(path.read_bytes(), content)

  @parameterized.parameters('pipe', '/dev/zero', 'directory', 'large')
  def test_what_is_no_file(self, kind):
    path = self.parent / 'events.json'
    if kind == 'pipe':
      os.mkfifo(path)
    elif kind == 'directory':
      path.mkdir()
    elif kind == 'large':
      with open(path, 'wb') as file:
        file.truncate(2**40)
    else:
      path.symlink_to(kind)
    output = io.StringIO()
    with contextlib.redirect_stderr(output):
      status = main.main(['account', '--events', str(path)])
    self.assertEqual(status, 3)
    self.assertRegex(output.getvalue(), r'\Aerror: .*(not a regular|larger)')
    self.assertEqual(output.getvalue().count('\n'), 1)

  def test_bytes_of_a_terminal(self):
    # Whole, as a user would do it: what is written, byte for byte.
    path = self.parent / 'events.json'
    path.write_bytes(_changed('unit', to=_ESCAPE))
    done = subprocess.run(
        [sys.executable, '-m', 'tff_dp', 'account', '--events', path],
        capture_output=True, check=False, cwd=_ROOT,
    )
    self.assertEqual(done.returncode, 2)
    self.assertNotIn(b'\x1b', done.stderr + done.stdout)
    self.assertNotIn(b'\x07', done.stderr + done.stdout)


class MessagesTest(_Test):

  @parameterized.parameters(
      _ESCAPE, 'a\nerror: b', '\ud800', '\u202e', '\x9b31m'
  )
  def test_control_characters_are_shown(self, text):
    for error in (
        _checks.ArgumentError(text, text, text),
        _checks.ArgumentError('a', {text: [text]}, 'b'),
        _checks.ArgumentError('a', b'\x1b', 'b'),
    ):
      self.assertTrue(str(error).isprintable(), str(error))
    error = _checks.PrivacyRefusedError(text, why=text, way_out=text)
    self.assertEqual(str(error).count('\n'), 2)
    self.assertTrue(str(error).replace('\n', '').isprintable())

  @parameterized.parameters('\ud800', 'a\udcffb', '\udfff\ud800')
  def test_id_that_has_no_bytes(self, client):
    with self.refused(_checks.ArgumentError, r"client_id='.*\\ud"):
      _checks.client_key(client)
    with self.refused(_checks.ArgumentError, 'UTF-8'):
      _checks.distinct_clients(client_ids=['a', client])
    with self.refused(_checks.ArgumentError, 'UTF-8'):
      files.ledger().commit(['a', client], 1)


class LedgerTest(_Test):

  @parameterized.parameters(
      dict(num_clients=_BIG), dict(num_clients=-1), dict(num_clients=5),
      dict(num_clients='6'), dict(num_clients=None), dict(num_clients=True),
      dict(num_rounds=_BIG), dict(num_rounds=2),
      dict(num_rounds=-1),
      dict(salt='x'), dict(salt=3), dict(salt=None), dict(run_id='another'),
      dict(run_id=[_ESCAPE]), dict(pattern={}), dict(pattern=_ESCAPE),
      dict(restart_every=3), dict(min_index_gap=0), dict(min_index_gap='x'),
      dict(smallest_cohort=-1), dict(largest_cohort='x'),
  )
  def test_header(self, **changes):
    (body,) = files.TARGETS['ledger'].seeds()
    line, _, content = body.partition(b'\n')
    header = json.loads(line) | changes
    forged = json.dumps(header).encode() + b'\n' + content
    with self.refused(_checks.PrivacyRefusedError, 'the participation ledger'):
      files.ledger().restored(files.with_sha256(forged))

  @parameterized.parameters(
      b'', b'\n', b'{}\n', b'[]\n', b'null\n', b'[' * 10**5
  )
  def test_body(self, body):
    with self.refused(_checks.PrivacyRefusedError, 'is damaged'):
      files.ledger().restored(files.with_sha256(body))

  def test_counts_that_do_not_belong_together(self):
    (body,) = files.TARGETS['ledger'].seeds()
    files.ledger().restored(files.with_sha256(body))
    start, found = body.index(b'\n') + 1 + 6 * 16, 0
    for place in range(start, len(body)):
      forged = body[:place] + bytes([body[place] ^ 64]) + body[place + 1 :]
      with contextlib.suppress(_checks.PrivacyRefusedError):
        files.ledger().restored(files.with_sha256(forged))
        found += 1
    self.assertEqual(found, 0)


class TargetsTest(_Test):

  @parameterized.named_parameters(
      (name, target)
      for name, target in files.TARGETS.items()
      if name not in files.OF_RUNS
  )
  def test_every_bit_and_every_cut(self, target):
    for seed in target.seeds():
      target.read(seed)
      step = max(1, len(seed) // 10)
      for place in range(0, len(seed), step):
        target.read(seed[:place])
        flipped = bytes([seed[place] ^ 1 << place % 8])
        target.read(seed[:place] + flipped + seed[place + 1 :])


if __name__ == '__main__':
  absltest.main()
