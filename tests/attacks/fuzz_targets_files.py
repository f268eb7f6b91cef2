# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What reads bytes that somebody else may have written, for fuzzing.

Each target takes any bytes, and returns or ends in an error of ours. Whatever
else it raises is a finding. A target for a file with a checksum makes the
checksum right, since whoever changes a file can do so too. The targets that
need TFF are in `fuzz_targets_runs`, which is loaded when one is used.
"""

from collections.abc import Callable
import functools
import hashlib
import importlib
import io
import json
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np

from tests.integrations import flower_stand_in
from tests.plans import base_test
from tff_dp import _checks
from tff_dp.files import arrays
from tff_dp.files import rollback
from tff_dp.files import write_ahead
from tff_dp.integrations import server_rounds
from tff_dp.integrations import updates
from tff_dp.ledger import participation_ledger
from tff_dp.mechanisms.matrix import blt
from tff_dp.participation import sampling
from tff_dp.plans import events
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

CLIENTS = [f'node {i}' for i in range(8)]
DELTA = 1e-5
MODEL = {'w': np.zeros([2, 2], np.float32), 'b': np.ones(1)}
_OURS = (_checks.ArgumentError, _checks.PrivacyRefusedError)


class Target(NamedTuple):
  """One parser.

  Attributes:
    read: Takes bytes; raises nothing but what is a finding.
    seeds: Returns bytes to change, that are read without an error.
  """

  read: Callable[[bytes], None]
  seeds: Callable[[], list[bytes]]


def plan() -> dp_ftrl_plan.DpFtrlPlan:
  """Returns the plan of the servers here."""
  return dp_ftrl_plan.DpFtrlPlan(
      mechanism=blt.Blt(6, (0.25, 0.125), (0.95, 0.5), 3),
      participation=sampling.MinSeparation(6, min_index_gap=2),
      l2_norm_clip=0.5,
      clients_per_round=3,
      noise_multiplier=1.5,
  )


def server(folder: pathlib.Path, **options) -> server_rounds.ServerRounds:
  """Opens a run of a server in a folder."""
  return server_rounds.ServerRounds(
      plan(), MODEL, output_dir=folder, delta=DELTA, stack='a test', **options
  )


def do_round(rounds: server_rounds.ServerRounds) -> list[str]:
  """Does a round whose clients all reply, and returns them."""
  cohort = rounds.select(CLIENTS)
  rounds.finish(
      (each, {k: v + 0.01 for k, v in rounds.model.items()}) for each in cohort
  )
  return cohort


def npy(value: np.ndarray) -> bytes:
  """Returns what `np.save` writes."""
  content = io.BytesIO()
  np.save(content, value)
  return content.getvalue()


def npz(**values: np.ndarray) -> bytes:
  """Returns what `np.savez` writes."""
  content = io.BytesIO()
  np.savez(content, **values)
  return content.getvalue()


def ledger() -> participation_ledger.ParticipationLedger:
  """Returns an empty ledger, always with the same salt."""
  return participation_ledger.ParticipationLedger(
      plan().participation.pattern, run_id='run', salt=bytes(16)
  )


_flower = functools.cache(flower_stand_in.adapter)


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
  return tempfile.TemporaryDirectory()


def _file(data: bytes, name: str = 'file') -> pathlib.Path:
  path = pathlib.Path(_folder().name) / name
  path.write_bytes(data)
  return path


@functools.cache
def _server_folder() -> pathlib.Path:
  """Returns a run of three rounds, of which the third has begun only."""
  folder = pathlib.Path(_folder().name) / 'server'
  with server(folder) as rounds:
    do_round(rounds)
    do_round(rounds)
    rounds.select(CLIENTS)
  return folder


def _events(data: bytes) -> None:
  try:
    path = _file(data)
    run = events.read(path)
    with events.blaming(path):
      run.plan.epsilon_after(run.num_rounds, delta=run.delta)
  except _OURS:
    pass


def _npz(data: bytes) -> None:
  try:
    arrays.read(_file(data))
  except ValueError as error:
    _one_line(error)


def _npy(data: bytes) -> None:
  try:
    arrays.from_npy(data)
  except ValueError as error:
    _one_line(error)


def _reply(data: bytes) -> None:
  """A client's reply: a name of an array, and what Flower calls its data."""
  array = type('Array', (), {'data': data[1:]})()
  record = {'w' if data[:1] == b'w' else 'b': array}
  content = type('Content', (), {'array_records': {'arrays': record}})()
  reply = type('Reply', (), {'content': content})()
  weights = _flower()._weights(reply)  # pylint: disable=protected-access
  if updates.fits(weights, {'w': MODEL['w']}):
    bounded, _ = updates.clip(updates.flat(weights), 0.5)
    if not np.linalg.norm(bounded) <= 0.5:
      raise AssertionError(f'an update of norm {np.linalg.norm(bounded)}')


def _write_ahead(data: bytes) -> None:
  try:
    record = write_ahead.WriteAheadRecord(_file(data), run_id='run')
  except _checks.PrivacyRefusedError:
    return
  record.close()
  if not 0 <= record.released_through <= record.rounds_begun:
    raise AssertionError(f'{record.released_through} of {record.rounds_begun}')


def _ledger(data: bytes) -> None:
  try:
    found = ledger().restored(with_sha256(data))
    found.observed()
    found.eligible(CLIENTS, found.num_rounds + 1)
  except _OURS:
    pass


# Of the ledger; the checksum lies behind it.
_MAGIC = participation_ledger._MAGIC  # pylint: disable=protected-access


def with_sha256(body: bytes) -> bytes:
  """Returns a ledger with this content, and the checksum of it."""
  return _MAGIC + hashlib.sha256(body).digest() + body


def _documents(data: bytes) -> None:
  """`release/`: the statement up to the first zero byte, events, metrics."""
  parts = (data.split(b'\0', 2) + [b'', b''])[:3]
  folder = pathlib.Path(_folder().name) / 'documents'
  folder.mkdir(exist_ok=True)
  names = ('privacy_statement.json', 'events.json', 'metrics.csv')
  for name, part in zip(names, parts):
    (folder / name).write_bytes(part)
  directory = type('Directory', (), {'release': folder})()
  try:
    rollback.check(directory, type('Record', (), {'rounds_begun': 2})())
  except _OURS:
    pass


def _in_server(name: str, data: bytes) -> None:
  """A file of a server, which is opened, and asked for its round."""
  folder = _server_folder()
  before = {
      path: path.read_bytes() for path in folder.rglob('*') if path.is_file()
  }
  (folder / 'secret' / name).write_bytes(data)
  try:
    with server(folder) as rounds:
      rounds.select(CLIENTS)
  except _OURS:
    pass
  finally:
    for path, content in before.items():
      path.write_bytes(content)


def _seed_of_server(name: str) -> list[bytes]:
  return [(_server_folder() / 'secret' / name).read_bytes()]


def _server_header(data: bytes) -> None:
  """The header inside of a server's checkpoint."""
  path = _server_folder() / 'secret' / 'checkpoint.npz'
  content = arrays.read(path) | {'header': np.frombuffer(data, np.uint8)}
  _in_server('checkpoint.npz', npz(**content))


def _seeds_of_header() -> list[bytes]:
  path = _server_folder() / 'secret' / 'checkpoint.npz'
  return [arrays.read(path)['header'].tobytes()]


def _of_runs(name: str) -> Target:
  def target() -> Target:
    runs = importlib.import_module('tests.attacks.fuzz_targets_runs')
    return runs.TARGETS[name]

  return Target(
      lambda data: target().read(data), lambda: target().seeds()
  )


def _one_line(error: Exception) -> None:
  if '\n' in str(error).replace(str(_folder().name), ''):
    raise AssertionError(f'more than a line: {error}')


def _seeds_of_events() -> list[bytes]:
  return [
      json.dumps(make().events_json(delta=DELTA, num_rounds=2)).encode()
      # pylint: disable-next=protected-access
      for make in base_test._PLANS
  ]


def _seeds_of_ledger() -> list[bytes]:
  made = ledger()
  made.commit(CLIENTS[:3], 1)
  made.commit(CLIENTS[3:6], 2)
  made.commit(CLIENTS[:3], 3)
  return [made.to_bytes()[len(_MAGIC) + 32 :]]


def _seeds_of_documents() -> list[bytes]:
  release = _server_folder() / 'release'
  return [
      b'\0'.join((
          (release / 'privacy_statement.json').read_bytes(),
          (release / 'events.json').read_bytes(),
          b'round,epsilon\r\n1,0.5\r\n2,0.6\r\n',
      ))
  ]


OF_RUNS = ('checkpoint', 'check_ins', 'history', 'model', 'result', 'wire')
_FILES_OF_SERVER = ('checkpoint.npz', 'cohort.json', 'run.json')
TARGETS = {
    'events': Target(_events, _seeds_of_events),
    'npz': Target(_npz, lambda: [npz(**MODEL), npz(a=np.zeros([0, 3]))]),
    'npy': Target(
        _npy,
        lambda: [
            npy(value)
            for value in (MODEL['w'], np.asfortranarray(np.eye(3)), np.pi)
        ],
    ),
    'reply': Target(_reply, lambda: [b'w' + npy(MODEL['w'])]),
    'write_ahead': Target(
        _write_ahead, lambda: _seed_of_server('write_ahead.jsonl')
    ),
    'ledger': Target(_ledger, _seeds_of_ledger),
    'documents': Target(_documents, _seeds_of_documents),
    'server_header': Target(_server_header, _seeds_of_header),
    **{
        f'server_{name}': Target(
            functools.partial(_in_server, name),
            functools.partial(_seed_of_server, name),
        )
        for name in _FILES_OF_SERVER
    },
    **{
        name: _of_runs(name)
        for name in OF_RUNS
    },
}
