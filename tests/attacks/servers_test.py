# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Servers of Flower and NVFlare: older copies, forged files, hostile replies.

Without Flower and NVFlare; a stand-in has what the adapter uses of Flower.
"""

import json
import os
import pathlib
import shutil
import tempfile
import types

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np

from tests.attacks import files_test
from tests.attacks import fuzz_targets_files as files
from tests.integrations import flower_stand_in
from tff_dp import _checks
from tff_dp.files import arrays
from tff_dp.integrations import updates

flower = flower_stand_in.adapter()

_HOSTILE_ID = '\x1b]0;you\x07\n\ud800'


class _ServerTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'
    self.secret = self.root / 'secret'

  def _run(self, num_rounds):
    with files.server(self.root) as rounds:
      while rounds.rounds_done < num_rounds:
        files.do_round(rounds)

  def _refused(self, pattern, *, kept=''):
    """Asserts that the run is refused, and that no byte of a part changes."""
    before = _contents(self.root / kept)
    with self.assertRaisesRegex(
        _checks.PrivacyRefusedError, pattern
    ) as raised:
      with files.server(self.root) as rounds:
        rounds.select(files.CLIENTS)
    text = str(raised.exception)
    self.assertEqual(text.count('\n'), 2, text)
    self.assertTrue(text.replace('\n', '').isprintable(), text)
    self.assertEqual(_contents(self.root / kept), before)


def _contents(root):
  return {
      path: path.read_bytes() if path.stat().st_size < 10**7 else None
      for path in root.rglob('*')
      if path.is_file()
  }


class RollbackTest(_ServerTest):
  """`secret/` alone is an older copy; its files agree with each other."""

  @parameterized.product(then=(0, 1, 2), now=(3, 6))
  def test_secret_alone(self, then, now):
    self._run(then)
    if not then:
      files.server(self.root).close()
    shutil.copytree(self.secret, self.parent / 'copy')
    self._run(now)
    shutil.rmtree(self.secret)
    shutil.copytree(self.parent / 'copy', self.secret)
    self._refused(f'states {now} rounds, .* has {then}')

  @parameterized.parameters('privacy_statement.json', 'events.json')
  def test_one_document_is_enough(self, kept):
    self._run(1)
    shutil.copytree(self.root, self.parent / 'copy')
    self._run(3)
    content = (self.root / 'release' / kept).read_bytes()
    shutil.rmtree(self.root)
    shutil.copytree(self.parent / 'copy', self.root)
    (self.root / 'release' / kept).write_bytes(content)
    self._refused('states 3 rounds, .* has 1')

  def test_all_documents_are_gone(self):
    self._run(2)
    for path in (self.root / 'release').iterdir():
      path.unlink()
    self._refused('has no privacy statement, but 2 rounds')

  def test_a_copy_of_both_goes_on(self):
    self._run(2)
    shutil.copytree(self.root, self.parent / 'copy')
    shutil.rmtree(self.root)
    shutil.copytree(self.parent / 'copy', self.root)
    self._run(3)

  def test_a_round_that_had_begun_goes_on(self):
    for _ in range(3):
      with files.server(self.root) as rounds:
        rounds.select(files.CLIENTS)
    self._run(6)
    with files.server(self.root) as rounds:
      self.assertEqual(rounds.rounds_done, 6)


def _forged(**changes):
  """Returns what forges a checkpoint: some arrays, or its header."""

  def forge(path):
    found = arrays.read(path)
    header = json.loads(found['header'].tobytes())
    for name, value in changes.items():
      if name in header:
        header[name] = value
      elif value is None:
        del found[name]
      else:
        found[name] = value
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    if 'header' not in changes:
      found['header'] = text
    path.write_bytes(files.npz(**found))

  return forge


def _bytes(content):
  return lambda path: path.write_bytes(content)


_CHECKPOINTS = {
    'nothing': _bytes(b''),
    'no_zip': _bytes(b'x' * 100),
    'npy': _bytes(files.npy(np.zeros(2))),
    'torn': lambda path: path.write_bytes(path.read_bytes()[:-30]),
    'empty': _bytes(files.npz()),
    'large': lambda path: os.truncate(path, 2**40),
    'directory': lambda path: (path.unlink(), path.mkdir(0o700)),
    **{
        f'bomb_{name}': _bytes(files_test.NPZS[name])
        for name in ('bomb', 'with_billions', 'with_object', 'with_nested')
    },
    **{
        name: _forged(header=np.frombuffer(content, np.uint8))
        for name, content in {
            'header_empty': b'',
            'header_list': b'[]',
            'header_null': b'null',
            'header_deep': b'[' * 10**5,
            'header_latin': b'\xff',
            'header_escape': b'{"key": "\\u001b"}',
        }.items()
    },
    'header_floats': _forged(header=np.zeros(3)),
    'ledger_empty': _forged(cohorts=np.zeros(0, np.uint8)),
    'ledger_other': _forged(cohorts=np.zeros(100, np.uint8)),
    'ledger_gone': _forged(cohorts=None),
    'model_gone': _forged(model_0=None),
    'model_more': _forged(model_2=np.zeros(2)),
    'model_shape': _forged(model_0=np.zeros([4], np.float32)),
    'model_type': _forged(model_0=np.zeros([2, 2])),
    'buffer_gone': _forged(buffer_0=None),
    'buffer_shape': _forged(buffer_0=np.zeros(3)),
    'buffer_more': _forged(buffer_9=np.zeros(5)),
    'bits_gone': _forged(bits_0=None),
    'key_short': _forged(key='00'),
    'key_no_hex': _forged(key='x' * 32),
    'key_number': _forged(key=3),
    'key_escape': _forged(key=_HOSTILE_ID),
    'digests_none': _forged(digests=[]),
    'digests_more': _forged(digests=['00' * 16] * 50),
    'digests_short': _forged(digests=['00'] * 3),
    'digests_number': _forged(digests=3),
    'rounds_text': _forged(rounds_done='x'),
    'rounds_null': _forged(rounds_done=None),
    'rounds_negative': _forged(rounds_done=-1),
    'rounds_less': _forged(rounds_done=1),
    'rounds_more': _forged(rounds_done=3),
    'rounds_billions': _forged(rounds_done=10**9),
    'rounds_half': _forged(rounds_done=2.5),
    'tree_text': _forged(tree_id='x'),
    'tree_negative': _forged(tree_id=-1),
    'tree_half': _forged(tree_id=0.5),
    'round_in_tree_null': _forged(round_in_tree=None),
    'round_in_tree_beyond': _forged(round_in_tree=10**9),
    'round_in_tree_negative': _forged(round_in_tree=-3),
    'clip_norm_short': _forged(clip_norm=[]),
    'clip_norm_text': _forged(clip_norm=['x', 'y']),
    'clip_norm_nan': _forged(clip_norm=[float('nan'), 0.0]),
    'clip_norm_zero': _forged(clip_norm=[0.0, 0.0]),
    'clip_norm_negative': _forged(clip_norm=[-1.0, 0.0]),
    'clip_norm_infinite': _forged(clip_norm=[float('inf'), 0.0]),
}


class CheckpointTest(_ServerTest):

  @parameterized.named_parameters(*_CHECKPOINTS.items())
  def test_forged(self, forge):
    self._run(2)
    forge(self.secret / 'checkpoint.npz')
    self._refused('checkpoint|the participation ledger')

  @parameterized.parameters(
      b'', b'null', b'3', b'{}', b'"node 1"', b'[1, 2, 3]', b'[]', b'\xff',
      b'[null]', b'["node 1"]', b'[' * 10**5, b'["\\ud800"]',
      b'["\\u001b]0;you\\u0007", "node 1", "node 2"]',
      b'["node 1", "node 1", "node 1"]', b'["node 1", "node 2", "node 77"]',
  )
  def test_cohort_of_a_round_that_has_begun(self, content):
    with files.server(self.root) as rounds:
      rounds.select(files.CLIENTS)
    (self.secret / 'cohort.json').write_bytes(content)
    # The statement of the round that has begun is new.
    self._refused('cohort|different ones|UTF-8', kept='secret')


class _Reply:
  """What a node sends: any content, or an error that reading it raises."""

  def __init__(self, content):
    self.metadata = types.SimpleNamespace(src_node_id=1)
    self._content = content

  @property
  def content(self):
    if isinstance(self._content, BaseException):
      raise self._content
    return self._content


def _record(**data):
  record = {
      name: types.SimpleNamespace(data=each) for name, each in data.items()
  }
  return types.SimpleNamespace(array_records={'arrays': record})


def _two_records():
  content = _record(w=files.npy(files.MODEL['w']))
  content.array_records['more'] = content.array_records['arrays']
  return content


_GOOD = {name: files.npy(value) for name, value in files.MODEL.items()}
_NOT_TEXT = '\ud800\x1b'
_REPLIES = {
    'error': ValueError('no content'),
    'none': None,
    'no_records': types.SimpleNamespace(array_records={}),
    'two_records': _two_records(),
    'records_list': types.SimpleNamespace(array_records=[1]),
    'no_data': types.SimpleNamespace(array_records={'a': {'w': 3}}),
    'nothing': _record(),
    'one_missing': _record(w=_GOOD['w']),
    'one_more': _record(**_GOOD, c=_GOOD['b']),
    'hostile_name': _record(**_GOOD, **{_NOT_TEXT: _GOOD['b']}),
    'data_text': _record(w='x', b=_GOOD['b']),
    'data_none': _record(w=None, b=_GOOD['b']),
    'data_number': _record(w=10**9, b=_GOOD['b']),
    'npz': _record(w=files.npz(**files.MODEL), b=_GOOD['b']),
    'more_than_stated': _record(w=_GOOD['w'] + b'x', b=_GOOD['b']),
    'flat': _record(w=files.npy(np.zeros(4, np.float32)), b=_GOOD['b']),
    'integers': _record(w=files.npy(np.zeros([2, 2], int)), b=_GOOD['b']),
    'complex': _record(w=files.npy(np.zeros([2, 2], complex)), b=_GOOD['b']),
    **{
        f'npy_{name}': _record(w=data, b=_GOOD['b'])
        for name, data in files_test.NPYS.items()
    },
}


class _Named(dict):
  """A mapping that is not of our kind."""


_MODELS = {
    'matrix': dict(files.MODEL, w=np.asmatrix(np.zeros([2, 2]))),
    'masked': dict(files.MODEL, w=np.ma.masked_all([2, 2])),
    'record_array': dict(files.MODEL, w=np.rec.array(np.zeros([2, 2]))),
    'memory_map': dict(files.MODEL, w='/dev/zero'),
    'number': 3,
    'text': 'w',
    'list': [np.zeros(2)],
    'names': dict(files.MODEL, **{_NOT_TEXT: np.zeros(1)}),
    'numbers_as_names': {1: np.zeros([2, 2]), 2: np.ones(1)},
    'no_axes': dict(files.MODEL, b=np.float64(1)),
    'object': dict(files.MODEL, b=np.array([None])),
    'structure': dict(files.MODEL, b=np.zeros(1, [('a', 'f8')])),
    'texts': dict(files.MODEL, b=np.array(['1'])),
    'times': dict(files.MODEL, b=np.zeros(1, 'M8[s]')),
    'empty': _Named(),
}
_LARGE = {
    'longdouble': np.full([2, 2], np.longdouble('1e4000')),
    'half': np.full([2, 2], np.inf, np.float16),
    'nan': np.full([2, 2], np.nan),
    'signs': np.array([[np.inf, -np.inf], [1, 1]]),
    'huge': np.full([2, 2], 1e308),
    'swapped': np.full([2, 2], 1e30, '>f4'),
    'strided': np.lib.stride_tricks.as_strided(
        np.full(1, 1e9), [2, 2], [0, 0]
    ),
}


class RepliesTest(_ServerTest):

  @parameterized.named_parameters(*_REPLIES.items())
  def test_what_flower_hands_over(self, content):
    # pylint: disable-next=protected-access
    weights = flower._weights(_Reply(content))
    self.assertFalse(updates.fits(weights, files.MODEL))

  @parameterized.named_parameters(*_MODELS.items())
  def test_what_counts_as_zero(self, weights):
    with files.server(self.root) as rounds:
      first, *_ = rounds.select(files.CLIENTS)
      rounds.finish([(first, weights)])
      self.assertIn('not of the shape', rounds.complaints[0].problem)
      self.assertEqual(rounds.rounds_done, 1)

  @parameterized.named_parameters(*_LARGE.items())
  def test_no_reply_moves_the_sum_further_than_the_clip_norm(self, value):
    with files.server(self.root) as rounds:
      before = updates.flat(rounds.model)
      cohort = rounds.select(files.CLIENTS)
      reply = dict(files.MODEL, w=value)
      # pylint: disable-next=protected-access
      total, _, _ = rounds._sum(before, [(cohort[0], reply)] * 5, cohort)
      norm = np.linalg.norm(total * updates.grid_step(0.5))
      self.assertLessEqual(norm, 0.5)

  @parameterized.parameters(_HOSTILE_ID, '', 'x' * 10**6, None, 3, b'a')
  def test_who_was_not_asked(self, client):
    with files.server(self.root) as rounds:
      rounds.select(files.CLIENTS)
      rounds.finish([(client, rounds.model)] if client != b'a' else [])
    text = (self.secret / 'clients.jsonl').read_text()
    for line in text.splitlines():
      self.assertTrue(line.isprintable())
      json.loads(line)
    for path, content in _contents(self.root / 'release').items():
      self.assertNotIn(b'you', content, path)

  @parameterized.parameters('\ud800', 'a\udc00')
  def test_id_without_bytes_stops_before_anything_is_charged(self, client):
    with files.server(self.root) as rounds:
      before = _contents(self.root)
      with self.assertRaisesRegex(_checks.ArgumentError, r'UTF-8') as raised:
        rounds.select([*files.CLIENTS, client])
      self.assertTrue(str(raised.exception).isprintable())
      self.assertEqual(_contents(self.root), before)
      files.do_round(rounds)


if __name__ == '__main__':
  absltest.main()
