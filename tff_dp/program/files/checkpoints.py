# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: everything a resumed run needs, in one atomic file.

A checkpoint holds the state of the process (model, optimizer, noise key and
round), the participation ledger and the length of the `history` of metrics. So
these can never belong to different rounds. The file is written beside its final
place and then renamed. A seed-only checkpoint leaves out the noise buffers, see
`noise_checkpoints`.

The checksum of a checkpoint finds damage, not malice. It has no key, because
whoever can write to `secret/` could read such a key there, like the noise key.

`tff.program` would save a SavedModel, which takes longer than about ten rounds
of a small model.
"""

import dataclasses
import json
import os
import pathlib
import re
import zlib

import numpy as np
import tree

from tff_dp import _checks
from tff_dp.files import regular
from tff_dp.files import run_directory
from tff_dp.program.files import history as history_lib
from tff_dp.program.files import noise_checkpoints

_FORMAT = 4
_KEEP_TOTAL = 2
_CHECKSUM_BYTES = 4
_PREFIX = 'round_'
_NAME = re.compile(rf'{_PREFIX}(0|[1-9][0-9]{{0,9}})')
# Largest size beside the state. A ledger has 24 bytes for each client that has
# taken part.
_MOST_OTHER_BYTES = 1 << 33
_TEXTS = (bytes, str)
_DRAWS = ('mechanism', 'parameters', 'tensorflow', 'algorithm', 'probe')


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A run after `round_index` rounds.

  Attributes:
    round_index: Number of rounds done, 0 for the initial state.
    process_state: The state of the learning process. In a seed-only checkpoint
      it has no noise buffers.
    noise: Result of `noise_checkpoints.describe`.
    ledger: The participation ledger as bytes.
    history: Result of `History.save`.
  """

  round_index: int
  process_state: object
  noise: dict
  ledger: bytes
  history: dict[str, int]


class CheckpointStore:
  """Saves and loads the checkpoints of one run.

  A process that is killed at any moment leaves complete checkpoints and
  perhaps a temporary file. A saved checkpoint survives a loss of power.
  """

  def __init__(self, root: os.PathLike):
    self._root = pathlib.Path(root)

  def save(self, checkpoint: Checkpoint) -> None:
    """Saves a checkpoint of a round that has none yet.

    It then deletes all checkpoints but the latest two. Every failure is raised:
    a run must not continue without a checkpoint.

    Args:
      checkpoint: The checkpoint. A seed-only one has an empty array for each
        noise buffer.

    Raises:
      FileExistsError: If the round has a checkpoint.
      OSError: If the file cannot be written.
      TypeError: If the state has anything but numbers and texts, see `pack`.
    """
    saved = self._path(checkpoint.round_index)
    if saved.exists():
      raise FileExistsError(f'There is a checkpoint {saved} already.')
    content = pack([
        _FORMAT,
        checkpoint.round_index,
        pack(checkpoint.process_state),
        json.dumps(checkpoint.noise).encode(),
        checkpoint.ledger,
        json.dumps(checkpoint.history).encode(),
    ])
    self._root.mkdir(exist_ok=True)
    run_directory.write_atomically(saved, _checksum(content) + content)
    run_directory.flush(self._root)
    for old in self._rounds()[:-_KEEP_TOTAL]:
      self._path(old).unlink()

  def latest_round(self) -> int | None:
    """Returns the round of the latest checkpoint, `None` if there is none."""
    rounds = self._rounds()
    return rounds[-1] if rounds else None

  def _rounds(self) -> list[int]:
    names = [path.name for path in self._root.glob(f'{_PREFIX}*')]
    found = filter(None, map(_NAME.fullmatch, names))
    return sorted(int(each[1]) for each in found)

  def load(self, round_index: int, *, like: object) -> Checkpoint:
    """Returns a checkpoint.

    Args:
      round_index: The round after which it was saved.
      like: A process state of the same structure, with all its buffers.

    Raises:
      PrivacyRefusedError: If the checkpoint cannot be read.
    """
    path = self._path(round_index)
    try:
      size = sum(np.asarray(leaf).nbytes for leaf in tree.flatten(like))
      stored = regular.read(path, most_bytes=size + _MOST_OTHER_BYTES)
      content = stored[_CHECKSUM_BYTES:]
      if _checksum(content) != stored[:_CHECKSUM_BYTES]:
        raise ValueError('the file has changed')
      version, saved_round, state, noise, ledger, history = unpack(
          content, like=[0, 0, b'', b'', b'', b'']
      )
      for name, value, expected in (
          ('format', version, _FORMAT),
          ('round_index', saved_round, round_index),
      ):
        if value != expected:
          raise ValueError(f'its {name} is {value}, expected {expected}')
      noise, history = map(regular.parse_json, (noise, history))
      _check_noise(noise)
      history_lib.check(history)
      if noise['kind'] == noise_checkpoints.SEED_ONLY:
        like = noise_checkpoints.without_buffers(like)
      return Checkpoint(
          round_index=round_index,
          process_state=unpack(state, like=like),
          noise=noise,
          ledger=ledger,
          history=history,
      )
    except Exception as error:
      raise _checks.PrivacyRefusedError(
          f'the checkpoint {path} cannot be read'
          f' ({type(error).__name__}: {error})',
          why='without the noise key and the participations so far, the run'
          ' cannot go on under its guarantee',
          way_out=f'restore {path} from a copy, or start a new run in another'
          ' directory; an earlier checkpoint is refused if later rounds were'
          ' released',
      ) from error

  def _path(self, round_index: int) -> pathlib.Path:
    return self._root / f'{_PREFIX}{round_index}'


def _check_noise(noise: object) -> None:
  """Raises unless `noise` has the form of `noise_checkpoints.describe`."""
  draws = noise['draws']
  if noise['kind'] not in noise_checkpoints.KINDS or not (
      draws is None or all(isinstance(draws[name], str) for name in _DRAWS)
  ):
    raise ValueError(f'its entry noise is {_checks.shown(noise)}')


def _checksum(content: bytes) -> bytes:
  return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, 'little')


def pack(structure: object) -> bytes:
  """Returns the leaves of a structure as bytes, for `unpack`.

  `unpack` restores every value bit for bit. Python numbers and arrays without
  dimensions come back as NumPy scalars.

  Args:
    structure: Nested Python containers (attrs classes too) of NumPy arrays and
      scalars, Python numbers, `str` and `bytes`.

  Raises:
    TypeError: If a leaf is an array of anything but numbers or bools.
  """
  header, bodies = [], []
  for leaf in tree.flatten(structure):
    kind, shape = _kind(leaf), []
    if kind == 'bytes':
      body = leaf
    elif kind == 'str':
      body = leaf.encode()
    else:
      array = np.asarray(leaf)
      if array.dtype.kind not in 'biufc':
        raise TypeError(
            'only a process state of numbers can be saved, found an array of'
            f' {array.dtype}.'
        )
      body, shape = array.tobytes(), list(array.shape)
    header.append([kind, shape, len(body)])
    bodies.append(body)
  head = json.dumps(header).encode()
  return b''.join((len(head).to_bytes(8, 'little'), head, *bodies))


def unpack(data: bytes, *, like: object) -> object:
  """Returns the structure that was packed.

  Args:
    data: Result of `pack`.
    like: A structure of the same shape, whose leaves are replaced.

  Raises:
    ValueError: If the leaves differ from `like` in number, kind or shape, or if
      bytes are missing or left over.
  """
  start = 8 + int.from_bytes(data[:8], 'little')
  if start > len(data):
    raise ValueError('it ends before its header does')
  header = regular.parse_json(data[8:start])
  expected = tree.flatten(like)
  if len(header) != len(expected):
    raise ValueError(
        f'it has {len(header)} leaves, expected {len(expected)}'
    )
  leaves = []
  for (kind, shape, size), old in zip(header, expected):
    if kind != _kind(old):
      raise ValueError(
          f'a leaf is {_checks.shown(kind)}, expected {_kind(old)}'
      )
    if not isinstance(old, _TEXTS):
      old = np.asarray(old)
      if shape != list(old.shape) or size != old.nbytes:
        raise ValueError(
            f'a leaf has the shape {_checks.shown(shape)} and'
            f' {_checks.shown(size)} bytes, expected {list(old.shape)} and'
            f' {old.nbytes}'
        )
    body = data[start : start + size]
    if size < 0 or len(body) != size:
      raise ValueError('it ends before its leaves do')
    start += size
    if kind == 'bytes':
      leaf = body
    elif kind == 'str':
      leaf = body.decode()
    else:
      # A copy, because a view of the bytes would be read-only. The empty index
      # turns an array without dimensions into a scalar, as TFF returns it.
      leaf = np.frombuffer(body, old.dtype).reshape(shape).copy()[()]
    leaves.append(leaf)
  if start != len(data):
    raise ValueError(f'it has {len(data) - start} bytes after its leaves')
  return tree.unflatten_as(like, leaves)


def _kind(leaf: object) -> str:
  """Returns 'bytes', 'str', or the type of a leaf as an array."""
  for kind in _TEXTS:
    if isinstance(leaf, kind):
      return kind.__name__
  return np.asarray(leaf).dtype.str
