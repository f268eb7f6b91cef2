# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A TFF context whose clients are spread over the workers of a cluster.

The driver is the process with this context. It runs all stages of the server
and so draws all noise of the server. A task gets only the parts of the server's
state that the clients of its pass read.
"""

from collections.abc import Callable, Iterator
import contextlib
import functools
import re

import tensorflow as tf

from tff_dp import _checks
from tff_dp.execution import arguments
from tff_dp.execution import call
from tff_dp.execution import in_process
from tff_dp.execution.cluster import dask_engine
from tff_dp.execution.cluster import engine as engine_lib
from tff_dp.execution.cluster import ray_engine
from tff_dp.execution.cluster import wire
from tff_dp.execution.cluster import worker
from tff_dp.execution.data import values

_ENGINES = {'dask': dask_engine.DaskEngine, 'ray': ray_engine.RayEngine}
_LOADER = re.compile(r'[\w.]+:\w+')
_MAX_CLIENTS_PER_CALL = 64
_MAX_RETRIES = 3


class _ShardedCall(call.Call):
  """A call whose passes run on a cluster, shard by shard."""

  def __init__(
      self,
      program,
      given,
      result_type,
      *,
      cluster: engine_lib.Shards,
      num_shards: int,
      load_clients: str | None,
      check: Callable[[], None],
      **settings,
  ):
    super().__init__(program, given, result_type, **settings)
    self._cluster = cluster
    self._num_shards = num_shards
    self._load_clients = load_clients
    self._check = check

  def _partial_sums(self, number, zeros, failures):
    self._check()
    schedule = self._program.schedule.passes[number - 1]
    num_shards = min(self._num_shards, self._num_clients)
    shares = [
        range(shard, self._num_clients, num_shards)
        for shard in range(num_shards)
    ]
    if not shares:
      return []
    sent = self._cluster.run(
        worker.run_shard,
        # Together, because an engine needs time for each item.
        wire.dumps((self._computation(), self._pass(number, zeros))),
        [
            wire.dumps(self._shard(schedule, share), where='a client\'s value')
            for share in shares
        ],
        is_cancelled=lambda: self._is_cancelled,
    )
    results = [
        _checked(wire.loads(data), schedule, share)
        for data, share in zip(sent, shares)
    ]
    return self._taken(schedule, results, failures)

  def _computation(self) -> bytes:
    return wire.dumps(
        worker.Computation(
            self._program.serialized(),
            self._load_clients,
            self._max_clients_per_call,
            worker.versions(),
        )
    )

  def _pass(self, number: int, zeros) -> worker.Pass:
    schedule = self._program.schedule.passes[number - 1]
    return worker.Pass(
        number,
        self._num_clients,
        [
            (self._program.skeleton(node), wire.from_flat(self._single[node]))
            for node in schedule.server_inputs
        ],
        wire.without_zeros(wire.from_flat(zeros)),
        [
            None
            if node in self._given.clients
            else self._program.skeleton(node)
            for node in schedule.client_inputs
        ],
    )

  def _shard(self, schedule, share: range) -> worker.Shard:
    inputs = []
    for node in schedule.client_inputs:
      given = self._given.clients.get(node)
      if given is None:
        kept = self._kept[node]
        inputs.append({c: wire.from_flat(kept[c]) for c in share})
      elif isinstance(given, arguments.Shared):
        inputs.append(wire.from_flat(given.value))
      else:
        inputs.append((given.where, {c: given.members[c] for c in share}))
    return worker.Shard(share, inputs)

  def _taken(self, schedule, results, failures) -> list[list]:
    """Returns the sums in the results. Stores kept values and failures.

    Raises the error of a result if it is not the failure of one client.
    """
    sums = []
    skeleton = values.Struct.unnamed(
        *map(self._program.skeleton, schedule.accumulations)
    )
    for result in results:
      if result.failed is not None:
        client, error = result.failed
        if client is None:
          raise error
        failures.add(client, error)
        continue
      for path, num_clients in result.counts.items():
        self._count(path, num_clients)
      for node, (kept_skeleton, kept) in zip(schedule.kept, result.kept):
        self._program.set_skeleton(node, kept_skeleton)
        for client, flat in kept.items():
          self._kept[node][client] = wire.to_flat(flat, kept_skeleton)
      sums.append(wire.to_fresh(result.sums, skeleton))
    return sums


def _checked(result, schedule, share: range) -> worker.Result:
  """Returns a worker's result after a check that it fits its shard."""
  try:
    if result.failed is not None:
      client, error = result.failed
      is_result = (client is None or client in share) and isinstance(
          error, Exception
      )
    else:
      clients = [kept.keys() for _, kept in result.kept]
      is_result = (
          len(clients) == len(schedule.kept)
          and all(each == set(share) for each in clients)
          and all(
              isinstance(spec, tf.TensorSpec)
              for skeleton, _ in result.kept
              for spec in values.flat_specs(skeleton)
          )
          and result.counts.keys() <= set(call.PATHS)
          and all(isinstance(each, int) for each in result.counts.values())
      )
  except (AttributeError, TypeError, ValueError):
    is_result = False
  if not is_result:
    raise engine_lib.ClusterError(
        f'a worker sent something that is not the result of its shard of'
        f' {len(share)} clients'
    )
  return result


class ClusterContext(in_process.InProcessContext):
  """A synchronous TFF context whose clients run on the workers of a cluster.

  Attributes:
    not_covered: Part of this context that the guarantee does not cover, as a
      phrase for the privacy statement.
  """

  not_covered = (
      'sums of updates without noise, which lie in the memory and the object'
      " store of a cluster's workers, may be spilled to their disks, and travel"
      ' unencrypted unless TLS is set up there: the cluster is part of the'
      ' trusted server'
  )

  def __init__(
      self,
      engine: engine_lib.Engine,
      *,
      load_clients: str | None,
      num_shards: int,
      max_retries: int,
      default_num_clients: int,
      max_clients_per_call: int,
  ):
    self._shards = engine_lib.Shards(engine, max_retries=max_retries)
    self._num_shards = num_shards
    self._cluster = engine
    super().__init__(
        client_tf_devices=None,
        server_tf_device=None,
        max_concurrent_clients=1,
        default_num_clients=default_num_clients,
        max_clients_per_call=max_clients_per_call,
        make_call=functools.partial(
            _ShardedCall,
            cluster=self._shards,
            num_shards=num_shards,
            load_clients=load_clients,
            check=functools.partial(_check_workers, engine),
        ),
    )

  @property
  def num_workers(self) -> int:
    """Number of shards that can run at the same time now."""
    return self._cluster.num_workers

  @property
  def num_shards(self) -> int:
    """Number of parts into which a pass is cut. Results depend on it."""
    return self._num_shards

  @property
  def shards(self) -> engine_lib.Shards:
    """Runner of the shards, which counts bytes and lost shards."""
    return self._shards

  @contextlib.contextmanager
  def reporting_to(self, say: Callable[[str], None]) -> Iterator[None]:
    """Sends reports on waiting and lost shards to `say`, for a `with` block."""
    before, self._shards.say = self._shards.say, say
    try:
      yield
    finally:
      self._shards.say = before

  def describe_workers(self) -> dict[str, object]:
    """Returns a dict from worker to the facts that `tff-dp doctor` shows."""
    return self._cluster.on_every_worker(worker.describe)

  def close(self) -> None:
    super().close()
    self._cluster.close()


def _check_workers(engine: engine_lib.Engine) -> None:
  if engine.num_workers < 1:
    raise engine_lib.ClusterError(
        'the cluster has no worker; start one, and see docs/execution.md'
    )


def create_cluster_context(
    engine: str | engine_lib.Engine,
    *,
    num_shards: int,
    address: str | None = None,
    security=None,
    load_clients: str | None = None,
    max_retries: int = _MAX_RETRIES,
    default_num_clients: int = 0,
    max_clients_per_call: int = _MAX_CLIENTS_PER_CALL,
) -> ClusterContext:
  """Returns a context whose clients work on many machines.

  The server's part, and so its noise, is computed in this process. A worker
  gets the data that its clients read, and returns sums without noise, and
  values of single clients if a later pass needs them. So the engine, the
  workers and everyone who reads their memory, network or spilled files must be
  trusted like the server.

  Args:
    engine: 'dask', 'ray' or an `Engine`. Closing the context also closes the
      engine.
    num_shards: Number of parts into which the clients of a round are cut.
      Results depend on it, as they depend on `max_concurrent_clients` in an
      in-process context. They do not depend on the number of workers.
    address: Address of the cluster. `None` starts a cluster of two workers on
      this machine, to which nobody else can connect. With 'ray', `None` uses a
      connection that this process already has.
    security: A `distributed.Security` with the certificates of the cluster, for
      'dask' only. With `None`, a connection to `address` uses the certificates
      of Dask's configuration, if any, and a local cluster gets a new
      certificate. Environment variables set Ray's TLS and token.
    load_clients: Loader 'module:function' that workers import. The function
      takes the id of a client and returns the client's data. A client's value
      is taken as an id if it is a string and the computation takes another
      type. `None` if the values themselves travel.
    max_retries: Number of times that a shard may be tried again after its
      worker was lost. Default: 3. If the work of a client fails, nothing is
      tried again.
    default_num_clients: Number of clients to use if the arguments of a
      computation do not determine it.
    max_clients_per_call: Largest number of clients that a worker trains in one
      call of TensorFlow, see `create_sync_in_process_context`. Default: 64.

  Raises:
    ArgumentError: An argument has a bad value, or `address` or `security` is
      given for an engine that does not take it.
    ImportError: The engine is not installed.
    ClusterError: A local Ray would be open to others, or this process is
      connected to a Ray cluster at another address.
  """
  # Before a cluster starts.
  _checks.integer_at_least(1, num_shards=num_shards)
  _checks.integer_at_least(0, max_retries=max_retries)
  _checks.integer_at_least(0, default_num_clients=default_num_clients)
  _checks.integer_at_least(1, max_clients_per_call=max_clients_per_call)
  if load_clients is not None and not _LOADER.fullmatch(load_clients):
    raise _checks.ArgumentError(
        'load_clients', load_clients, "'module:function', or None"
    )
  if not isinstance(engine, engine_lib.Engine):
    _checks.one_of(tuple(_ENGINES), engine=engine)
    settings = {}
    if security is not None:
      if engine != 'dask':
        raise _checks.ArgumentError('security', security, f'None with {engine}')
      settings['security'] = security
    engine = _ENGINES[engine](address, **settings)
  elif address is not None:
    raise _checks.ArgumentError(
        'address', address, 'None if engine is an Engine'
    )
  elif security is not None:
    raise _checks.ArgumentError(
        'security', security, 'None if engine is an Engine'
    )
  return ClusterContext(
      engine,
      load_clients=load_clients,
      num_shards=num_shards,
      max_retries=max_retries,
      default_num_clients=default_num_clients,
      max_clients_per_call=max_clients_per_call,
  )
