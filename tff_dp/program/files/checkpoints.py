# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: everything a resumed run needs, in one atomic program state.

A checkpoint holds the state of the process (model, optimizer, noise key and
round), the participation ledger and the history of metrics, so that they can
never be of different rounds. It is saved by `tff.program`, which writes beside
the final place and renames. What it may leave out, `noise_checkpoints` says.

The leaves of the process state are packed into one string. TFF would store each
leaf as a variable of its own, which for a small network took four times as
long.
"""

import collections
import dataclasses
import json
import os
import pathlib
import zlib

import numpy as np
import tensorflow_federated as tff
import tree

from tff_dp import _checks
from tff_dp.program import event_loop
from tff_dp.program.files import noise_checkpoints
from tff_dp.program.files import run_directory

_FORMAT = 2
_KEEP_TOTAL = 2
_PREFIX = 'round_'


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """A run after `round_index` rounds.

  Attributes:
    round_index: Rounds that are done; 0 for the initial state.
    process_state: The state of the learning process, without its noise buffers
      in a seed-only checkpoint.
    noise: What `noise_checkpoints.describe` returned.
    ledger: The participation ledger as bytes.
    history: One entry per round; see `releases.Row`.
  """

  round_index: int
  process_state: object
  noise: dict
  ledger: bytes
  history: list[dict]


class CheckpointStore:
  """Saves and loads the checkpoints of one run.

  A process that is killed at any moment leaves complete checkpoints and
  perhaps a temporary directory. One that is saved outlives a loss of power.
  """

  def __init__(self, root: os.PathLike, loop: event_loop.PrivateEventLoop):
    self._root = pathlib.Path(root)
    self._loop = loop
    self._manager = tff.program.FileProgramStateManager(
        os.fspath(root), prefix=_PREFIX, keep_total=_KEEP_TOTAL,
        keep_first=False,
    )

  def save(self, checkpoint: Checkpoint) -> None:
    """Saves a checkpoint of a round that has none yet.

    Whatever goes wrong is raised: a run must not go on without a checkpoint.
    """
    program_state = collections.OrderedDict(
        format=_FORMAT,
        round_index=checkpoint.round_index,
        process_state=pack(checkpoint.process_state),
        noise=json.dumps(checkpoint.noise).encode(),
        ledger=checkpoint.ledger,
        history=zlib.compress(json.dumps(checkpoint.history).encode(), 1),
    )
    saved = self._path(checkpoint.round_index)
    with run_directory.naming(saved):
      self._loop.run(self._manager.save(program_state, checkpoint.round_index))
    for path in (*saved.rglob('*'), saved, self._root):
      run_directory.flush(path)

  def latest_round(self) -> int | None:
    """Returns the round of the latest checkpoint, `None` if there is none."""
    versions = self._loop.run(self._manager.get_versions())
    return versions[-1] if versions else None

  def load(self, round_index: int, *, like: object) -> Checkpoint:
    """Returns a checkpoint.

    Args:
      round_index: The round after which it was saved.
      like: A process state of the same structure, with all its buffers.

    Raises:
      PrivacyRefusedError: If it cannot be read.
    """
    structure = collections.OrderedDict(
        format=0,
        round_index=0,
        process_state=b'',
        noise=b'',
        ledger=b'',
        history=b'',
    )
    try:
      loaded = self._loop.run(self._manager.load(round_index, structure))
      for name, expected in (('format', _FORMAT), ('round_index', round_index)):
        if int(loaded[name]) != expected:
          raise ValueError(f'{name} {loaded[name]}, expected {expected}')
      noise = json.loads(loaded['noise'])
      if noise['kind'] == noise_checkpoints.SEED_ONLY:
        like = noise_checkpoints.without_buffers(like)
      return Checkpoint(
          round_index=int(loaded['round_index']),
          process_state=unpack(loaded['process_state'], like=like),
          noise=noise,
          ledger=loaded['ledger'],
          history=json.loads(zlib.decompress(loaded['history'])),
      )
    except Exception as error:
      path = self._path(round_index)
      raise _checks.PrivacyRefusedError(
          f'the checkpoint {path} cannot be read'
          f' ({type(error).__name__}: {error})',
          why='without the noise key and the participations so far, the run'
          ' cannot go on under its guarantee',
          way_out=f'restore {path} from a copy, or start a new run in another'
          ' directory; to go back to an earlier checkpoint is refused, where'
          ' later rounds were released',
      ) from error

  def _path(self, round_index: int) -> pathlib.Path:
    return self._root / f'{_PREFIX}{round_index}'


def pack(structure: object) -> bytes:
  """Returns the leaves of a structure as bytes; `unpack` inverts it exactly.

  Args:
    structure: Nested Python containers (attrs classes too) of NumPy arrays and
      scalars, Python numbers, `str` and `bytes`.
  """
  header, bodies = [], []
  for leaf in tree.flatten(structure):
    if isinstance(leaf, bytes):
      kind, body, shape = 'bytes', leaf, []
    elif isinstance(leaf, str):
      kind, body, shape = 'str', leaf.encode(), []
    else:
      array = np.asarray(leaf)
      if array.dtype.kind not in 'biufc':
        raise TypeError(
            'a process state of numbers can be saved, found an array of'
            f' {array.dtype}.'
        )
      kind, body, shape = array.dtype.str, array.tobytes(), list(array.shape)
    header.append([kind, shape, len(body)])
    bodies.append(body)
  head = json.dumps(header).encode()
  return b''.join((len(head).to_bytes(8, 'little'), head, *bodies))


def unpack(data: bytes, *, like: object) -> object:
  """Returns the structure that was packed.

  Args:
    data: What `pack` returned.
    like: A structure of the same shape, whose leaves are replaced.

  Raises:
    ValueError: If the leaves are not those of `like`.
  """
  start = 8 + int.from_bytes(data[:8], 'little')
  header = json.loads(data[8:start])
  expected = tree.flatten(like)
  if len(header) != len(expected):
    raise ValueError(f'{len(header)} leaves, expected {len(expected)}')
  leaves = []
  for (kind, shape, size), old in zip(header, expected):
    body = data[start : start + size]
    start += size
    if kind == 'bytes':
      leaf = body
    elif kind == 'str':
      leaf = body.decode()
    else:
      # A copy, because a view of the bytes would be read-only. The empty index
      # turns an array without dimensions into a scalar, as TFF returns it.
      leaf = np.frombuffer(body, np.dtype(kind)).reshape(shape).copy()[()]
      old = np.asarray(old)
      if leaf.dtype != old.dtype or leaf.shape != old.shape:
        raise ValueError(
            f'a leaf {leaf.dtype}{list(leaf.shape)}, expected'
            f' {old.dtype}{list(old.shape)}'
        )
    leaves.append(leaf)
  return tree.unflatten_as(like, leaves)
