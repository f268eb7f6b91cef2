# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Work of one worker of a cluster: one pass over the clients of one shard.

A task has three parts: the computation, which is the same for the whole run,
the data that all clients of a pass read, and the clients of the shard. From
task to task a worker keeps compiled computations only. So any worker can do any
task, and can repeat it.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import functools
import hashlib
import importlib
import platform
import threading

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _native_output
from tff_dp import _version
from tff_dp.execution import arguments
from tff_dp.execution import call
from tff_dp.execution import devices
from tff_dp.execution import errors
from tff_dp.execution.cluster import wire
from tff_dp.execution.compiling import program as program_lib
from tff_dp.execution.data import leaves as leaves_lib
from tff_dp.execution.data import values

_MAX_PROGRAMS = 32
# Digest -> computation and program. The lock is held while a shard runs,
# because programs have variables. So a process runs one shard at a time,
# however many threads an engine has.
_programs = {}
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Computation:
  """Data of a task that stay the same from pass to pass.

  Attributes:
    serialized: Serialized TFF computation.
    load_clients: 'module:function' that loads a client's data. None if the data
      themselves travel.
    max_clients_per_call: Limit of clients in one call, as in
      `create_sync_in_process_context`.
    versions: `versions()` at the driver.
  """

  serialized: bytes
  load_clients: str | None
  max_clients_per_call: int
  versions: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Pass:
  """Data that all shards need for one walk over all clients.

  Attributes:
    number: Number of the walk, from 1.
    num_clients: Number of clients in all shards together.
    server_inputs: Values of the server that clients read, as pairs (skeleton,
      arrays), in the order of the schedule.
    zeros: Start values of the accumulators. An array of zeros travels as its
      shape, see `wire.without_zeros`.
    client_skeletons: Skeleton of each client input. None for an argument, whose
      skeleton follows from its type.
  """

  number: int
  num_clients: int
  server_inputs: list[tuple]
  zeros: list
  client_skeletons: list


@dataclasses.dataclass(frozen=True)
class Shard:
  """Data of one shard.

  Attributes:
    share: Indices of its clients.
    inputs: One item for each client input of the pass. For an argument: a pair
      (name of its place in the argument, mapping from client to the value that
      the user handed in), or a list of arrays that all clients share. For a
      value that an earlier pass kept: a mapping from client to arrays.
  """

  share: range
  inputs: list


@dataclasses.dataclass(frozen=True)
class Result:
  """Data that a worker returns for a shard.

  Attributes:
    sums: Accumulators, or None after an error.
    kept: One pair for each kept node: the node's skeleton, and a mapping from
      client to arrays.
    counts: Number of clients that ran in each way, by the name of the way, one
      of `call.PATHS`.
    failed: Pair (client, error) if the work of a client failed, (None, error)
      if something else failed. The error is returned, not raised, because
      engines may repeat a task that raises.
  """

  sums: list | None = None
  kept: list[tuple] = dataclasses.field(default_factory=list)
  counts: dict[str, int] = dataclasses.field(default_factory=dict)
  failed: tuple[int | None, Exception] | None = None


@functools.cache
def versions() -> dict[str, str]:
  """Returns the versions and settings on which driver and workers must agree.
  """
  major, minor, _ = platform.python_version_tuple()
  return {
      'Python': f'{major}.{minor}',
      'tensorflow': tf.__version__,
      'tensorflow-federated': tff.__version__,
      'tff_dp': _version.__version__,
      'threads within an operation': str(
          tf.config.threading.get_intra_op_parallelism_threads()
      ),
  }


def describe() -> dict[str, object]:
  """Returns the facts about this worker that `tff-dp doctor` shows."""
  resolved = devices.resolve(client_tf_devices=None, server_tf_device=None)
  return {'versions': versions(), 'device': resolved.clients[0]}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
  """Returns a phrase on how a worker's `versions` differ from the driver's.

  The phrase is '' if they agree.

  Args:
    ours: Result of `versions` at the driver.
    theirs: Result of `versions` at the worker.
  """
  return ', '.join(
      f'{name} {theirs.get(name)} at the worker, {ours[name]} at the driver'
      for name in ours
      if theirs.get(name) != ours[name]
  )


class _Members(Mapping):
  """The clients of a shard. A client given by id is loaded when needed."""

  def __init__(self, given: dict, load, num_clients: int):
    self._given = given
    self._load = load
    self._num_clients = num_clients

  def __getitem__(self, client: int):
    value = self._given[client]
    if self._load is None or not isinstance(value, str):
      return value
    try:
      return self._load(value)
    except Exception as error:  # pylint: disable=broad-except
      raise errors.ClientComputationError(
          client_index=client,
          num_clients=self._num_clients,
          operation='load_clients',
          kind=type(error).__name__,
          details=str(error),
      ) from error

  def __iter__(self) -> Iterator[int]:
    return iter(self._given)

  def __len__(self) -> int:
    return len(self._given)


@dataclasses.dataclass(frozen=True)
class _Loading(arguments.ClientList):
  """Clients whose data are loaded one by one."""

  def leaves(
      self, client: int, reads_once: leaves_lib.ReadsOnce
  ) -> leaves_lib.Leaves | None:
    try:
      return super().leaves(client, reads_once)
    except errors.ClientComputationError:
      return None  # The client's own call will fail again, in turn.


class _ShardCall(call.Call):
  """A call that runs one shard of one pass, in the calling thread."""

  def work(self, one_pass: Pass, share: range) -> Result:
    schedule = self._program.schedule.passes[one_pass.number - 1]
    specs = [self._program.skeleton(node) for node in schedule.accumulations]
    zeros = wire.to_fresh(one_pass.zeros, values.Struct.unnamed(*specs))
    for node in schedule.kept:
      self._kept[node] = [None] * self._num_clients
    failures = call.Failures(self._num_clients)
    sums = self._work(one_pass.number, 0, share, zeros, failures)
    if failures.first() is not None:
      client, error = failures.first()
      return Result(failed=(client, _portable(error)))
    return Result(
        wire.from_flat(sums),
        [
            (
                self._program.skeleton(node),
                {c: wire.from_flat(self._kept[node][c]) for c in share},
            )
            for node in schedule.kept
        ],
    )

  def keep(self, node, flat: Mapping[int, list]) -> None:
    """Sets the clients' values of a node, which an earlier pass kept."""
    self._kept[node] = flat


def _portable(error: Exception) -> Exception:
  """Returns the error, or a `RuntimeError` with its text if it cannot travel.
  """
  try:
    wire.loads(wire.dumps(error))
    return error
  except Exception:  # pylint: disable=broad-except
    return RuntimeError(f'{type(error).__name__}: {error}')


def run_shard(shared: bytes, shard: bytes) -> bytes:
  """Returns the pickled `Result` of a shard.

  Args:
    shared: Pickled pair of a pickled `Computation` and a `Pass`.
    shard: Pickled `Shard`.
  """
  with _lock:
    try:
      computation, one_pass = wire.loads(shared)
      result = _run(computation, one_pass, wire.loads(shard))
    except Exception as error:  # pylint: disable=broad-except
      result = Result(failed=(None, _portable(error)))
    return wire.dumps(result)


def _program(sent: bytes) -> tuple[Computation, program_lib.Program]:
  """Returns the computation that was sent, and its program.

  The program is compiled at the first call.
  """
  digest = hashlib.sha256(sent).digest()
  if digest not in _programs:
    computation = wire.loads(sent)
    found = differences(computation.versions, versions())
    if found:
      raise RuntimeError(f'this worker cannot take part: {found}')
    while len(_programs) >= _MAX_PROGRAMS:
      _programs.pop(next(iter(_programs)))[1].release()
    device = devices.resolve(client_tf_devices=None, server_tf_device=None)
    _programs[digest] = computation, program_lib.Program(
        program_lib.deserialize(computation.serialized),
        worker_devices=(device.clients[0],),
        server_device=device.server,
    )
  return _programs[digest]


@functools.cache
def _loader(name: str | None):
  if name is None:
    return None
  module, function = name.split(':')
  return getattr(importlib.import_module(module), function)


def _run(sent: bytes, one_pass: Pass, shard: Shard) -> Result:
  computation, program = _program(sent)
  schedule = program.schedule.passes[one_pass.number - 1]
  load = _loader(computation.load_clients)
  single, clients, kept = {}, {}, {}
  for node, (skeleton, flat) in zip(
      schedule.server_inputs, one_pass.server_inputs, strict=True
  ):
    program.set_skeleton(node, skeleton)
    single[node] = wire.to_flat(flat, skeleton)
  for node, skeleton, given in zip(
      schedule.client_inputs,
      one_pass.client_skeletons,
      shard.inputs,
      strict=True,
  ):
    if skeleton is not None:
      program.set_skeleton(node, skeleton)
      kept[node] = {
          client: wire.to_flat(flat, skeleton)
          for client, flat in given.items()
      }
    elif isinstance(given, list):
      clients[node] = arguments.Shared(
          wire.to_flat(given, program.skeleton(node)), node.operation.type_spec
      )
    else:
      where, members = given
      type_spec = node.operation.type_spec
      # If the computation takes a string, the string is the value and not an
      # id.
      is_string = (
          isinstance(type_spec, tff.TensorType) and type_spec.dtype == np.str_
      )
      own_load = None if is_string else load
      clients[node] = _Loading(
          _Members(members, own_load, one_pass.num_clients), type_spec, where
      )
  counts = dict.fromkeys(call.PATHS, 0)

  def count(path, num_clients):
    counts[path] += num_clients

  running = _ShardCall(
      program,
      arguments.Arguments(single, clients, one_pass.num_clients),
      None,
      num_clients=one_pass.num_clients,
      executor=None,
      max_clients_per_call=computation.max_clients_per_call,
      count=count,
  )
  for node, flat in kept.items():
    running.keep(node, flat)
  with _native_output.silence():
    result = running.work(one_pass, shard.share)
  return dataclasses.replace(result, counts=counts)
