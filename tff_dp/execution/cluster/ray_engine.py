# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Ray as an engine."""

import concurrent.futures
import contextlib
import os
import secrets
import sys

from tff_dp.execution.cluster import engine as engine_lib

_NUM_LOCAL_WORKERS = 2
_STORE_BYTES = 2**28  # A local cluster takes it all at once.


def _ray():
  try:
    import ray  # pylint: disable=g-import-not-at-top
  except ImportError as error:
    raise ImportError(
        f"engine 'ray' needs Ray: {engine_lib.INSTALL}"
    ) from error
  return ray


def _offer_token() -> None:
  """Sets variables that make Ray demand a token of everyone who connects.

  Ray listens on all interfaces, and without a token it runs anybody's code. It
  reads the variables once, when it is imported, so one token serves the whole
  process. Nothing is set if Ray is imported already, or if the user has set
  RAY_AUTH_MODE.
  """
  if 'ray' not in sys.modules and 'RAY_AUTH_MODE' not in os.environ:
    os.environ['RAY_AUTH_MODE'] = 'token'
    os.environ['RAY_AUTH_TOKEN'] = secrets.token_hex(32)


def _require_token() -> None:
  """Raises an error if a local Ray would not demand a token."""
  try:
    # pylint: disable-next=g-import-not-at-top
    from ray._private.authentication import authentication_utils

  except ImportError:
    raise engine_lib.ClusterError(
        'this version of Ray does not say whether it demands a token: call'
        ' ray.init() yourself, and this engine uses that cluster'
    ) from None
  if authentication_utils.is_token_auth_enabled():
    return
  raise engine_lib.ClusterError(
      'a local Ray would run the code of anybody who reaches its ports: Ray was'
      ' imported before a token was set, or RAY_AUTH_MODE turns tokens off.'
      ' Create the engine before anything imports ray, or set'
      ' RAY_AUTH_MODE=token and RAY_AUTH_TOKEN before ray is imported, or call'
      ' ray.init() yourself: this engine then uses that cluster'
  )


class RayEngine(engine_lib.Engine):
  """An engine on a Ray cluster, or on a local one that it starts."""

  # Ray has one connection in a process: the address it was asked for, and what
  # Ray calls that cluster.
  _connected_to: tuple[str | None, str] | None = None

  def __init__(
      self, address: str | None = None, *, num_workers: int = _NUM_LOCAL_WORKERS
  ):
    """Connects to the cluster.

    Args:
      address: Address of the cluster, such as 'host:6379' or 'auto'. `None`
        uses the connection that this process has, or else starts a cluster on
        this machine. The started cluster demands a token that only its own
        processes know.
      num_workers: Number of CPUs of a cluster that is started here.

    Raises:
      ClusterError: A cluster that is started here might not demand a token, or
        this process is connected to another address.
      ImportError: Ray is not installed.
    """
    # No usage statistics are sent unless the user asks for it.
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    if address is None:
      _offer_token()
    self._ray = _ray()
    self._is_owner = not self._ray.is_initialized()
    if self._is_owner:
      options = {'address': address}
      if address is None:
        _require_token()
        options = {
            'address': 'local',
            'num_cpus': num_workers,
            'include_dashboard': False,
            'object_store_memory': _STORE_BYTES,
        }
      self._ray.init(log_to_driver=False, configure_logging=False, **options)
      cluster = self._ray.get_runtime_context().gcs_address
      RayEngine._connected_to = address, cluster
    elif address is not None:
      connected = self._ray.get_runtime_context().gcs_address
      is_same = (address, connected) == RayEngine._connected_to
      if not is_same and address not in (connected, 'auto'):
        raise engine_lib.ClusterError(
            f'address={address!r}, but this process is already connected to'
            f' {connected}: leave out address to use that connection, or call'
            ' ray.shutdown() first'
        )
    self._functions = {}
    # Future of `submit` -> reference of Ray, while a task runs.
    self._running = {}

  def put(self, data):
    return self._ray.put(data)

  def release(self, reference) -> None:
    with contextlib.suppress(Exception):
      self._ray.internal.free([reference])

  def submit(self, function, reference, data):
    if function not in self._functions:
      self._functions[function] = self._ray.remote(
          num_cpus=1, max_retries=0, scheduling_strategy='SPREAD'
      )(function)
    result = self._functions[function].remote(reference, data)
    future = concurrent.futures.Future()
    self._running[future] = result

    def done(task):
      self._running.pop(future, None)
      engine_lib.settle(future, task, self._lost)

    result.future().add_done_callback(done)
    return future

  @property
  def _lost(self):
    errors = self._ray.exceptions
    return (
        errors.LocalRayletDiedError,
        errors.NodeDiedError,
        errors.ObjectLostError,
        errors.OutOfMemoryError,
        errors.WorkerCrashedError,
    )

  def cancel(self, future) -> None:
    reference = self._running.pop(future, None)
    if reference is not None:
      with contextlib.suppress(Exception):
        # This ends the worker's process. Ray starts another one when needed.
        self._ray.cancel(reference, force=True)

  def on_every_worker(self, function):
    strategy = self._ray.util.scheduling_strategies
    there = [node for node in self._ray.nodes() if node['Alive']]
    asked = [
        self._ray.remote(
            num_cpus=0,
            scheduling_strategy=strategy.NodeAffinitySchedulingStrategy(
                node['NodeID'], soft=False
            ),
        )(function).remote()
        for node in there
    ]
    return {
        node['NodeManagerHostname'] + ' ' + node['NodeID'][:8]: answer
        for node, answer in zip(there, self._ray.get(asked))
    }

  @property
  def num_workers(self) -> int:
    return int(self._ray.cluster_resources().get('CPU', 0))

  def close(self) -> None:
    if self._is_owner:
      self._ray.shutdown()
