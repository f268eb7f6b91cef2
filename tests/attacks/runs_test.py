# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs of `train`: older copies, forged checkpoints, workers of a cluster."""

import functools
import hashlib
import json
import pathlib
import shutil
import tempfile
from unittest import mock
import zlib

from absl.testing import absltest
from absl.testing import parameterized
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.attacks import files_test
from tests.attacks import fuzz_targets_runs as runs
from tests.execution.cluster import lists
from tests.program import toy
from tff_dp import _checks
from tff_dp.execution import cluster
from tff_dp.execution.cluster import engine as engine_lib
from tff_dp.execution.cluster import wire
from tff_dp.execution.cluster import worker
from tff_dp.execution.data import values
from tff_dp.program import protocol_source
from tff_dp.program.display import documents
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history
from tff_dp.program.files import outputs

_CLIENTS = [lists.load(f'client_{i}') for i in range(4)]


@functools.cache
def _process():
  return lists.build_process()


class _Test(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.parent = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    self.root = self.parent / 'run'

  def refused(
      self, pattern, function, *arguments, kind=_checks.PrivacyRefusedError
  ):
    """Asserts that a call ends in one error of ours, in our lines."""
    with self.assertRaisesRegex(kind, pattern) as raised:
      function(*arguments)
    text = str(raised.exception)
    lines = 3 if kind is _checks.PrivacyRefusedError else 1
    self.assertLen(text.split('\n'), lines, text)
    self.assertTrue(text.replace('\n', '').isprintable(), text)


def _contents(root):
  return {p: p.read_bytes() for p in root.rglob('*') if p.is_file()}


class RollbackTest(_Test):

  def setUp(self):
    super().setUp()
    self.enterContext(mock.patch.object(documents, 'write'))

  def _train(self, num_rounds=None):
    return toy.train(
        toy.Process(), toy.build_plan(), toy.Clients(), output_dir=self.root,
        delta=1e-5, checkpoint_every=3, total_rounds=num_rounds,
        progress='quiet',
    )

  @parameterized.product(
      then=(3, 6),
      gone=((), ('metrics.csv',), ('metrics.csv', 'events.json'),
            ('metrics.csv', 'privacy_statement.json')),
  )
  def test_secret_alone(self, then, gone):
    self._train(then)
    shutil.copytree(self.root / 'secret', self.parent / 'copy')
    self._train()
    shutil.rmtree(self.root / 'secret')
    shutil.copytree(self.parent / 'copy', self.root / 'secret')
    for name in gone:
      (self.root / 'release' / name).unlink()
    before = _contents(self.root)
    self.refused(
        f'states 10 rounds, .* has {then}|rounds through 10', self._train
    )
    self.assertEqual(_contents(self.root), before)

  def test_release_is_gone(self):
    self._train(3)
    shutil.rmtree(self.root / 'release')
    before = _contents(self.root)
    self.refused('no privacy statement, but 3 rounds|rounds', self._train)
    self.assertEqual(_contents(self.root), before)

  @parameterized.parameters(
      b'', b'null', b'{"points": []}', b'[' * 10**5, b'\xff', b'"\\u001b"'
  )
  def test_statement(self, content):
    self._train(3)
    (self.root / 'release' / 'privacy_statement.json').write_bytes(content)
    self.refused('privacy_statement.json is damaged', self._train)


def _packed(*leaves) -> bytes:
  """Returns leaves (kind, shape, size, body) as a checkpoint has them."""
  head = json.dumps([leaf[:3] for leaf in leaves]).encode()
  return b''.join((
      len(head).to_bytes(8, 'little'), head, *(leaf[3] for leaf in leaves)
  ))


def _outer(**changes) -> bytes:
  """Returns a checkpoint of round 2 in which some parts are others."""
  parts = dict(
      format=4, round_index=2,
      state=checkpoints.pack(runs.state()),
      noise=b'{"kind": "full", "draws": null}', ledger=b'ledger',
      history=json.dumps(history.EMPTY).encode(),
  ) | changes
  return checkpoints.pack(list(parts.values()))


def _state_of(*leaves) -> bytes:
  # In the order of their names.
  good = [
      ['<i8', [2], 16, bytes(16)], ['str', [], 4, b'text'],
      ['bytes', [], 5, b'bytes'], ['<f4', [2, 3], 24, bytes(24)],
      ['<i8', [], 8, bytes(8)],
  ]
  for index, leaf in leaves:
    good[index] = leaf
  return _outer(state=_packed(*good))


_BIG = 10**12
_CHECKPOINTS = {
    'nothing': b'',
    'short': b'\0' * 7,
    'header_beyond': b'\xff' * 8 + b'[]',
    'header_empty': bytes(8),
    'header_list': _packed(),
    'header_deep': (10**5).to_bytes(8, 'little') + b'[' * 10**5,
    'header_number': (1).to_bytes(8, 'little') + b'3',
    'header_object': (2).to_bytes(8, 'little') + b'{}',
    'header_leaves': (14).to_bytes(8, 'little') + b'[1,2,3,4,5,6]',
    'more_behind': _outer() + b'more',
    'torn': _outer()[:-3],
    'other_format': _outer(format=3),
    'other_round': _outer(round_index=3),
    'round_text': _outer(round_index='2'),
    'noise_empty': _outer(noise=b''),
    'noise_null': _outer(noise=b'null'),
    'noise_list': _outer(noise=b'[]'),
    'noise_deep': _outer(noise=b'[' * 10**5),
    'noise_kind': _outer(noise=b'{"kind": "\\u001b", "draws": null}'),
    'noise_no_draws': _outer(noise=b'{"kind": "full"}'),
    'noise_draws': _outer(noise=b'{"kind": "full", "draws": {}}'),
    'noise_draws_text': _outer(noise=b'{"kind": "full", "draws": "x"}'),
    'noise_kind_list': _outer(noise=b'{"kind": ["full"], "draws": null}'),
    'history_empty': _outer(history=b''),
    'history_list': _outer(history=b'[]'),
    'history_text': _outer(history=b'{"rows": "1", "bytes": 0, "crc32": 0}'),
    'history_negative': _outer(history=b'{"rows": -1, "bytes": 0, "crc32": 0}'),
    'history_less': _outer(history=b'{"rows": 0}'),
    'history_float': _outer(history=b'{"rows": 1e99, "bytes": 0, "crc32": 0}'),
    'ledger_text': _outer(ledger='ledger'),
    'state_text': _outer(state='state'),
    'state_empty': _outer(state=b''),
    'state_billions': _state_of((3, ['<f4', [_BIG], 4 * _BIG, b''])),
    'state_size': _state_of((3, ['<f4', [2, 3], 4 * _BIG, b''])),
    'state_negative': _state_of((3, ['<f4', [2, 3], -24, b''])),
    'state_shape': _state_of((3, ['<f4', [3, 2], 24, bytes(24)])),
    'state_shape_text': _state_of((3, ['<f4', '23', 24, bytes(24)])),
    'state_type': _state_of((3, ['<i4', [2, 3], 24, bytes(24)])),
    'state_object': _state_of((3, ['|O', [2, 3], 24, bytes(24)])),
    'state_wide': _state_of((3, [f'({_BIG},)f8', [2, 3], 24, bytes(24)])),
    'state_kind': _state_of((3, [['<f4'], [2, 3], 24, bytes(24)])),
    'state_bytes': _state_of((3, ['bytes', [], 24, bytes(24)])),
    'state_no_text': _state_of((1, ['str', [], 4, b'\xff\xff\xff\xff'])),
    'state_text_size': _state_of((1, ['str', [], -1, b''])),
    'state_text_size_text': _state_of((1, ['str', [], '4', b'text'])),
    'state_number': _state_of((1, ['<i8', [], 8, bytes(8)])),
}


class CheckpointTest(_Test):

  def _load(self):
    return checkpoints.CheckpointStore(self.parent).load(2, like=runs.state())

  def _write(self, content):
    (self.parent / 'round_2').write_bytes(
        zlib.crc32(content).to_bytes(4, 'little') + content
    )

  def test_what_is_forged_would_else_be_read(self):
    for content in (_outer(), _state_of()):
      self._write(content)
      self.assertEqual(self._load().round_index, 2)

  @parameterized.named_parameters(*_CHECKPOINTS.items())
  def test_forged(self, content):
    self._write(content)
    self.refused('cannot be read', self._load)

  def test_no_regular_file(self):
    (self.parent / 'round_2').symlink_to('/dev/zero')
    self.refused('not a regular file', self._load)

  @parameterized.parameters(
      'round_', 'round_x', 'round_007', 'round_-3', 'round_1e9', 'round_٣',
      'round_99999999999999999999', 'round_3.tff_dp_tmp',
  )
  def test_names_of_no_round(self, name):
    (self.parent / name).write_bytes(b'')
    self.assertIsNone(checkpoints.CheckpointStore(self.parent).latest_round())

  @parameterized.parameters(
      b'\n', b'{\n', b'[' * 10**5 + b'\n', b'\xff\n', b'\0\n',
      b'1' * 5000 + b'\n',
  )
  def test_rows_that_are_no_rows(self, content):
    path = self.parent / 'metrics.jsonl'
    path.write_bytes(content)
    rows = history.History(path)
    rows.restore({
        'rows': 1, 'bytes': len(content), 'crc32': zlib.crc32(content)
    })
    self.refused('are not those of the checkpoint', list, rows)

  @parameterized.parameters(
      b'', b'null', b'[]', b'{}', b'[' * 10**5, b'\xff', b'{"facts": null}',
      b'{"facts": {"protocol": 3}}', b'{"facts": {"protocol": {"name": []}}}',
      (dict(root_key='x'),), (dict(root_key='00'),), (dict(root_key=3),),
      (dict(position='x'),), (dict(position=-1),), (dict(position=1.5),),
      (dict(position=None),), (dict(num_reports=[]),), (dict(format='x'),),
      (dict(version=10**9),), (dict(facts=[]),),
  )
  def test_check_ins(self, changes):
    (body,) = runs.TARGETS['check_ins'].seeds()
    if isinstance(changes, dict):
      body = json.dumps(json.loads(body) | changes).encode()
    else:
      body = changes
    self.refused(
        'the saved check-ins',
        protocol_source.ProtocolIterator.from_bytes,
        hashlib.sha256(body).digest() + body,
    )

  @parameterized.named_parameters(
      (name, files_test.NPZS[name])
      for name in ('bomb', 'with_billions', 'with_object', 'torn', 'npy')
  )
  def test_model(self, content):
    path = self.parent / 'model.npz'
    path.write_bytes(content)
    self.refused(
        'no file of np.savez',
        lambda: outputs.read_model(path, like={'w': np.zeros(2)}),
        kind=ValueError,
    )

  @parameterized.parameters(*runs.TARGETS)
  def test_every_cut(self, name):
    target = runs.TARGETS[name]
    for seed in target.seeds():
      for place in range(0, len(seed) + 1, max(1, len(seed) // 20)):
        target.read(seed[:place])


class _Hostile(engine_lib.LocalEngine):
  """Workers whose results somebody has changed."""

  change = staticmethod(lambda result: result)

  def submit(self, function, references, data):
    return super().submit(
        lambda *args: self.change(function(*args)), references, data
    )


def _changed(**fields):
  def change(data):
    result = wire.loads(data)
    for name, value in fields.items():
      made = value(getattr(result, name)) if callable(value) else value
      object.__setattr__(result, name, made)
    return wire.dumps(result)

  return change


def _sealed(content: bytes) -> bytes:
  """Returns a message of any content, with the right checksum."""
  # pylint: disable-next=protected-access
  return wire._checksum(content) + content


def _resized(sums):
  return [np.ones([1] * np.ndim(each), np.float32) for each in sums]


_RESULTS = {
    'nothing': lambda data: b'',
    'text': lambda data: 'text',
    'number': lambda data: 3,
    'none': lambda data: None,
    'zeros': lambda data: bytes(100),
    'torn': lambda data: data[:-10],
    'cut_short': lambda data: data[:10],
    'first_bit': lambda data: bytes([data[0] ^ 1]) + data[1:],
    'unknown_class': lambda data: _sealed(b'cno_such_module\nThing\n.'),
    'last_bit': lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    'no_checksum': lambda data: data[16:],
    'other_value': lambda data: wire.dumps({'sums': []}),
    'a_list': lambda data: wire.dumps([1, 2]),
    'a_class': lambda data: wire.dumps(worker.Result),
    'a_shard': lambda data: wire.dumps(worker.Shard(range(2), [])),
    'sums_none': _changed(sums=None),
    'sums_empty': _changed(sums=[]),
    'sums_more': _changed(sums=lambda sums: sums + sums),
    'sums_of_one': _changed(sums=lambda sums: [np.ones(1)] * len(sums)),
    'sums_wider': _changed(
        sums=lambda sums: [np.ones([2, *np.shape(each)]) for each in sums]
    ),
    'sums_text': _changed(sums=lambda sums: ['x'] * len(sums)),
    'sums_zeros': _changed(
        # pylint: disable-next=protected-access
        sums=lambda sums: [wire._Zeros((10**6, 10**6))] * len(sums)
    ),
    'sums_of_no_shape': _changed(
        # pylint: disable-next=protected-access
        sums=lambda sums: [wire._Zeros((2, -12))] * len(sums)
    ),
    'sums_of_a_part_of_a_shape': _changed(
        # pylint: disable-next=protected-access
        sums=lambda sums: [
            wire._Zeros((*np.shape(each)[1:], None)) for each in sums
        ]
    ),
    'sums_graph': _changed(
        # pylint: disable-next=protected-access
        sums=lambda sums: [wire._Recipe(b'')] * len(sums)
    ),
    'counts_text': _changed(counts={'in_chunks': 'x'}),
    'counts_path': _changed(counts={'\x1b': 1}),
    'counts_list': _changed(counts=[1]),
    'kept_none': _changed(kept=None),
    'kept_more': _changed(kept=[(values.Tensor(tf.TensorSpec([])), {})]),
    'kept_number': _changed(kept=[3]),
    'failed_number': _changed(failed=3),
    'failed_client': _changed(failed=(99, ValueError('x'))),
    'failed_text': _changed(failed=(0, 'x')),
    'failed_exit': _changed(failed=(None, SystemExit(0))),
    'failed_three': _changed(failed=(0, ValueError('x'), 1)),
}


class ClusterTest(_Test):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    cls.engine = _Hostile()
    context = cluster.create_cluster_context(cls.engine, num_shards=2)
    cls.enterClassContext(context)

  def check_refused(self, change, function, *arguments):
    """Asserts that a result is refused, and harms no call after it."""
    expected = function(*arguments)
    self.engine.change = change
    try:
      self.refused(
          'no message of |not the result of its shard|a message',
          function, *arguments,
          kind=engine_lib.ClusterError,
      )
    finally:
      del self.engine.change
    self.assertEqual(str(function(*arguments)), str(expected))

  @parameterized.named_parameters(*_RESULTS.items())
  def test_result(self, change):
    process = _process()
    self.check_refused(change, process.next, process.initialize(), _CLIENTS)

  @parameterized.parameters(None, 'text', values.Tensor('shape'))
  def test_the_form_of_what_is_kept(self, form):
    @tff.tensorflow.computation(np.float32)
    def doubled(x):
      return 2 * x

    @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
    def each(clients):
      return tff.federated_map(doubled, clients)

    self.check_refused(
        _changed(kept=lambda kept: [(form, flat) for _, flat in kept]),
        each, [1.0, 2.0, 3.0],
    )


if __name__ == '__main__':
  absltest.main()
