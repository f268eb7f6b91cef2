# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What of a run with TFF reads bytes; see `fuzz_targets_files`."""

import collections
import hashlib
import json
import pathlib
import tempfile
import zlib

import numpy as np
import tensorflow as tf

from tests.attacks import fuzz_targets_files as files
from tff_dp import _checks
from tff_dp.execution.cluster import context
from tff_dp.execution.cluster import engine
from tff_dp.execution.cluster import wire
from tff_dp.execution.cluster import worker
from tff_dp.execution.data import values
from tff_dp.program import protocol_source
from tff_dp.program.files import checkpoints
from tff_dp.program.files import history
from tff_dp.program.files import outputs

_OURS = (_checks.ArgumentError, _checks.PrivacyRefusedError)
_FOLDER = tempfile.TemporaryDirectory()
_ROOT = pathlib.Path(_FOLDER.name)
_ROWS = [
    {'round': t, 'released': {'a': t / 3}, 'not_covered': {}} for t in (1, 2)
]
_SCHEDULE = type('Schedule', (), {'kept': []})()
_KEEPS_ONE = type('Schedule', (), {'kept': ['node']})()
_MATRIX = values.Struct.unnamed(values.Tensor(tf.TensorSpec([2, 2])))
# What a worker can send and JSON cannot say.
_SENT = {
    'array': np.asarray,
    'zeros': lambda shape: wire._Zeros(tuple(shape)),  # pylint: disable=protected-access
    'graph': lambda text: wire._Recipe(text.encode()),  # pylint: disable=protected-access
    'error': RuntimeError,
    'skeleton': lambda shape: values.Struct.unnamed(
        values.Tensor(tf.TensorSpec(shape))
    ),
}


def state():
  return collections.OrderedDict(
      weights=[np.arange(6, dtype=np.float32).reshape(2, 3), 3],
      key=np.array([1, 2], np.int64),
      names=('text', b'bytes'),
  )


def _checkpoint(data: bytes) -> None:
  """A checkpoint of round 2, less its checksum."""
  (_ROOT / 'round_2').write_bytes(
      zlib.crc32(data).to_bytes(4, 'little') + data
  )
  try:
    checkpoints.CheckpointStore(_ROOT).load(2, like=state())
  except _checks.PrivacyRefusedError:
    pass


def _seeds_of_checkpoint() -> list[bytes]:
  folder = _ROOT / 'made'
  if not folder.exists():
    checkpoints.CheckpointStore(folder).save(
        checkpoints.Checkpoint(
            round_index=2,
            process_state=state(),
            noise={'kind': 'full', 'draws': None},
            ledger=b'ledger',
            history=dict(history.EMPTY),
        )
    )
  return [(folder / 'round_2').read_bytes()[4:]]


def _history(data: bytes) -> None:
  """The rows of a run, whose number and checksum are right."""
  path = _ROOT / 'metrics.jsonl'
  path.write_bytes(data)
  rows = history.History(path)
  try:
    rows.restore({
        'rows': data.count(b'\n'),
        'bytes': len(data),
        'crc32': zlib.crc32(data),
    })
    list(rows)
  except _checks.PrivacyRefusedError:
    pass


def _seeds_of_history() -> list[bytes]:
  return [b''.join(json.dumps(row).encode() + b'\n' for row in _ROWS)]


def _check_ins(data: bytes) -> None:
  try:
    protocol_source.ProtocolIterator.from_bytes(
        hashlib.sha256(data).digest() + data
    )
  except _checks.PrivacyRefusedError:
    pass


def _seeds_of_check_ins() -> list[bytes]:
  facts = {'protocol': {'name': 'ShuffledCheckIn'}, 'sampler': 'counts'}
  made = protocol_source.ProtocolIterator(bytes(range(16)), facts)
  return [made.to_bytes()[32:]]


def _model(data: bytes) -> None:
  path = _ROOT / 'model.npz'
  path.write_bytes(data)
  try:
    outputs.read_model(path, like=files.MODEL)
  except ValueError:
    pass


def _wire(data: bytes) -> None:
  """A result of a worker. Bytes that spell a program would be run here."""
  try:
    # pylint: disable-next=protected-access
    context._checked(wire.loads(data), _SCHEDULE, range(2))
  except engine.ClusterError:
    pass


def _result(data: bytes) -> None:
  """A result whose fields say anything, behind the right checksum."""
  try:
    sent = wire.dumps(
        worker.Result(**json.loads(data, object_hook=_as_sent))
    )
  except (AttributeError, TypeError, ValueError, RecursionError):
    return  # No worker can send that.
  try:
    # pylint: disable-next=protected-access
    result = context._checked(wire.loads(sent), _KEEPS_ONE, range(2))
    if result.failed is None:
      wire.to_fresh(result.sums, _MATRIX)
      for skeleton, kept in result.kept:
        for flat in kept.values():
          wire.to_fresh(flat, skeleton)
  except engine.ClusterError:
    pass


def _as_sent(found: dict):
  """Returns what a worker sends for an object of JSON."""
  for name, make in _SENT.items():
    if name in found:
      return make(found[name])
  return {int(k) if k.isdecimal() else k: v for k, v in found.items()}


def _seeds_of_result() -> list[bytes]:
  array = {'array': [[1.5, 2.0], [0.0, -1.0]]}
  kept = [[{'skeleton': [2, 2]}, {'0': [array], '1': [{'zeros': [2, 2]}]}]]
  return [
      json.dumps(each).encode()
      for each in (
          {'sums': [array], 'kept': kept, 'counts': {'in_chunks': 2}},
          {'sums': [{'zeros': [2, 2]}], 'kept': kept, 'counts': {}},
          {'failed': [1, {'error': 'a client'}]},
          {'failed': [None, {'error': 'a worker'}]},
          {'sums': [{'graph': 'text'}], 'kept': kept, 'counts': {}},
      )
  ]


def _seeds_of_wire() -> list[bytes]:
  return [
      wire.dumps(worker.Result([np.eye(2)], [], {'in_chunks': 2})),
      wire.dumps(worker.Result(failed=(1, RuntimeError('a client')))),
  ]


TARGETS = {
    'checkpoint': files.Target(_checkpoint, _seeds_of_checkpoint),
    'check_ins': files.Target(_check_ins, _seeds_of_check_ins),
    'history': files.Target(_history, _seeds_of_history),
    'model': files.Target(_model, lambda: [files.npz(**files.MODEL)]),
    'result': files.Target(_result, _seeds_of_result),
    'wire': files.Target(_wire, _seeds_of_wire),
}
