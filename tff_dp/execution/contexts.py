# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF contexts of this package, and the default context of a thread."""

import contextlib
import platform
import threading
import time
import warnings
import weakref

import grpc
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import _compat
from tff_dp.execution import errors
from tff_dp.execution import in_process
from tff_dp.execution import native

# Same as in TFF's own stack: a model may be one message.
_MAX_MESSAGE_BYTES = 2_000_000_000
_CHANNEL_OPTIONS = (
    ('grpc.max_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.max_receive_message_length', _MAX_MESSAGE_BYTES),
    ('grpc.max_send_message_length', _MAX_MESSAGE_BYTES),
    # Otherwise gRPC would look for the worker behind the proxy of a company
    # network.
    ('grpc.enable_http_proxy', 0),
)
_READY_SECONDS = 60.0
_LOOK_SECONDS = 0.2  # Interval of checks for a dead worker.
_KINDS = ('in_process', 'native')

_thread = threading.local()


class _OwnedStub(tff.framework.RemoteExecutorStub):
  """Sends requests to an owned worker, and reports when the worker is gone.

  TFF repeats a computation forever while its worker cannot be reached. Here a
  request to a dead worker raises `NativeWorkerError`, which is not repeated.
  Releasing a value of a dead worker succeeds, because a dead worker holds
  nothing.
  """

  def __init__(self, worker: native.NativeWorker):
    self._worker = worker
    self._lock = threading.Lock()
    self._channel = None
    self._stub = None

  def _connected(self) -> tff.framework.RemoteExecutorGrpcStub:
    with self._lock:
      if self._stub is None:
        port = self._worker.wait_until_ready(timeout_seconds=_READY_SECONDS)
        self._channel = grpc.insecure_channel(
            f'localhost:{port}', _CHANNEL_OPTIONS
        )
        self._wait_for_channel()
        self._stub = tff.framework.RemoteExecutorGrpcStub(self._channel)
      return self._stub

  def _wait_for_channel(self) -> None:
    ready = grpc.channel_ready_future(self._channel)
    deadline = time.monotonic() + _READY_SECONDS
    try:
      while True:
        try:
          return ready.result(_LOOK_SECONDS)
        except grpc.FutureTimeoutError as error:
          # A channel to a port without a listener never becomes ready.
          if not self._worker.is_running or time.monotonic() > deadline:
            raise native.NativeWorkerError(
                self._worker.explain_death()
            ) from error
    finally:
      # Otherwise a thread of gRPC would keep polling the channel.
      ready.cancel()

  def _request(self, method: str, request):
    if not self._worker.is_running:
      raise native.NativeWorkerError(self._worker.explain_death())
    try:
      return getattr(self._connected(), method)(request)
    except (tff.framework.RetryableError, grpc.RpcError, ValueError) as error:
      # A dying worker closes the connection first, so look again a bit later.
      # gRPC raises ValueError for a channel that another thread closed.
      for _ in range(20):
        if not self._worker.is_running:
          raise native.NativeWorkerError(
              self._worker.explain_death()
          ) from error
        if not isinstance(error, tff.framework.RetryableError):
          break
        time.sleep(0.05)
      raise

  def _release(self, method: str, request) -> None:
    with contextlib.suppress(native.NativeWorkerError):
      self._request(method, request)

  def get_executor(self, request):
    return self._request('get_executor', request)

  def create_value(self, request):
    return self._request('create_value', request)

  def create_struct(self, request):
    return self._request('create_struct', request)

  def create_call(self, request):
    return self._request('create_call', request)

  def create_selection(self, request):
    return self._request('create_selection', request)

  def compute(self, request):
    return self._request('compute', request)

  def dispose(self, request):
    self._release('dispose', request)

  def dispose_executor(self, request):
    self._release('dispose_executor', request)

  @property
  def is_ready(self) -> bool:
    return self._stub is not None and self._worker.is_running

  def close(self) -> None:
    # Closing the channel would make gRPC's own polling thread fail loudly.
    # Without a reference it unsubscribes, and that thread ends by itself.
    with self._lock:
      self._channel = self._stub = None


class NativeContext(tff.framework.SyncContext):
  """A synchronous TFF context on a worker process that it owns.

  As a context manager it is the current thread's context inside the block and

  Attributes:
    not_covered: Sentence for the privacy statement about this context.
