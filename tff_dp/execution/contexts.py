# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF contexts of this package, and the default context of a thread."""

import contextlib
import functools
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
            raise self._worker.death() from error
    finally:
      # Otherwise a thread of gRPC would keep polling the channel.
      ready.cancel()

  def _request(self, method: str, request):
    if not self._worker.is_running:
      raise self._worker.death()
    try:
      return getattr(self._connected(), method)(request)
    except (tff.framework.RetryableError, grpc.RpcError, ValueError) as error:
      # A dying worker closes the connection first, so look again a bit later.
      # gRPC raises ValueError for a channel that another thread closed.
      for _ in range(20):
        if not self._worker.is_running:
          raise self._worker.death() from None
        if not isinstance(error, tff.framework.RetryableError):
          break
        time.sleep(0.05)
      raise

  def _release(self, method: str, request) -> None:
    with contextlib.suppress(native.NativeWorkerError):
      self._request(method, request)

  get_executor = functools.partialmethod(_request, 'get_executor')
  create_value = functools.partialmethod(_request, 'create_value')
  create_struct = functools.partialmethod(_request, 'create_struct')
  create_call = functools.partialmethod(_request, 'create_call')
  create_selection = functools.partialmethod(_request, 'create_selection')
  compute = functools.partialmethod(_request, 'compute')
  dispose = functools.partialmethod(_release, 'dispose')
  dispose_executor = functools.partialmethod(_release, 'dispose_executor')

  @property
  def is_ready(self) -> bool:
    return self._stub is not None and self._worker.is_running

  def close(self) -> None:
    # Closing the channel would make gRPC's own polling thread fail loudly.
    # Without a reference it unsubscribes, and that thread ends by itself.
    with self._lock:
      self._channel = self._stub = None


class NativeContext(in_process.BlockContext, tff.framework.SyncContext):
  """A synchronous TFF context on a worker process that it owns.

  As a context manager it is the current thread's context inside the block and
  closes at its end. TFF's stack of contexts is thread-local: a computation that
  is invoked from another thread does not see it.

  Attributes:
    not_covered: Part of this context that the guarantee does not cover, as a
      phrase for the privacy statement.
    returns_arrays: Whether a call of a computation returns its result at once,
      as arrays in Python's containers.
  """

  returns_arrays = True

  not_covered = (
      "updates without noise, which TFF's worker holds: it listens on all"
      ' interfaces and asks nobody who they are, so whoever reaches its port is'
      ' part of the trusted server'
  )

  def __init__(self, worker: native.NativeWorker, default_num_clients: int):
    super().__init__()
    self._worker = worker
    self._stub = _OwnedStub(worker)

    def new_executor(cardinalities):
      if cardinalities.get(tff.CLIENTS) is None:
        cardinalities[tff.CLIENTS] = default_num_clients
      executor = tff.framework.RemoteExecutor(self._stub)
      executor.set_cardinalities(cardinalities)
      return executor

    self._context = tff.framework.SyncExecutionContext(
        executor_fn=tff.framework.ResourceManagingExecutorFactory(
            executor_stack_fn=new_executor
        ),
        compiler_fn=tff.backends.native.desugar_and_transform_to_native,
        transform_args=tff.tensorflow.transform_args,
        transform_result=tff.tensorflow.transform_result,
    )

  @property
  def worker(self) -> native.NativeWorker:
    """The process that runs the computations."""
    return self._worker

  def invoke(self, comp, arg):
    """Runs `comp`. TFF calls this.

    Raises:
      NativeWorkerError: The worker died or does not answer, or this context was
        closed.
      ComputationError: The work of a client or of the server failed. TFF does
        not say whose.
      UnsupportedComputationError: `comp` has secure sums, or another of TFF's
        secure operators.
    """
    try:
      return self._context.invoke(comp, arg)
    except grpc.RpcError as error:
      if _is_secure(comp):
        raise errors.UnsupportedComputationError(
            'secure aggregations, for which TFF has no protocol',
            instead='the in-process context, which simulates them in the clear,',
            context='native',
        ) from error
      # Not "from": a trace would show TensorFlow's message, and that the data.
      raise errors.ComputationError(
          "a computation in TFF's worker",
          operation='',
          kind=error.code().name,
          details=str(error.details()),
      ) from None

  def close(self) -> None:
    """Ends the worker. The context cannot be used afterwards.

    It may be called again.
    """
    # Close the worker first, so that a waiting caller reads that it was closed.
    self._worker.close()
    self._stub.close()


def _is_secure(computation) -> bool:
  """Returns whether a computation has one of TFF's secure operators."""
  text = computation.to_building_block().compact_representation()
  return 'federated_secure_' in text


def create_native_context(
    *,
    max_concurrent_clients: int | None = None,
    default_num_clients: int = 0,
    log_path=None,
) -> NativeContext:
  """Returns a context on a new worker process, which ends with this process.

  The worker listens on all interfaces without authentication. Use it only on a
  machine whose ports nobody else reaches. The in-process context opens no
  ports.

  Args:
    max_concurrent_clients: Number of clients that may train at the same time.
      Default: one per core that this process may use. With 1, a training round
      on the same number of cores gives the same bits every time. With more, the
      bits were also the same in all our tests, because the worker adds updates
      up in the clients' order. Another number of cores gave other bits.
    default_num_clients: Number of clients to use if the arguments of a
      computation do not determine it.
    log_path: File for the worker's output, which may show clients' data. None
      keeps the output in an unnamed temporary file.

  Raises:
    ArgumentError: If a value is not allowed.
    NativeWorkerError: If the worker cannot be started, or does not exist for
      this Python.
    BrokenEnvironmentError: If there is no usable worker binary.
    OSError: If `log_path` cannot be written.
  """
  _checks.integer_at_least(0, default_num_clients=default_num_clients)
  if not _compat.COLUMN.has_worker:
    raise native.NativeWorkerError(
        f"TFF's worker does not run on Python {platform.python_version()}: its"
        ' TensorFlow is older than the one here. Use the in-process context, or'
        ' Python 3.11.'
    )
  worker = native.NativeWorker(
      max_concurrent_clients=max_concurrent_clients, log_path=log_path
  )
  return NativeContext(worker, default_num_clients)


def set_sync_in_process_context(**arguments) -> in_process.InProcessContext:
  """Installs a new synchronous in-process context as this thread's default.

  A default from an earlier call in this thread is closed. The new context is
  closed when the thread ends. Other threads keep their contexts.

  Args:
    **arguments: Arguments of `create_sync_in_process_context`.

  Raises:
    ArgumentError: If a value is not allowed, or a device does not exist.
  """
  return install_default(in_process.create_sync_in_process_context(**arguments))


def set_default_context(
    kind: str = 'in_process',
    *,
    client_tf_devices=None,
    server_tf_device=None,
    max_concurrent_clients: int | None = None,
    default_num_clients: int = 0,
    max_clients_per_call: int | None = None,
    log_path=None,
) -> in_process.InProcessContext | NativeContext:
  """Creates a context, installs it as this thread's default, and returns it.

  TFF keeps a stack of contexts per thread. So call this once in each thread,
  before the thread's first computation. A default from an earlier call in this
  thread is closed. The new context is closed when the thread ends. Other
  threads keep their contexts.

  Args:
    kind: 'in_process' for computations inside this process, on any device, or
      'native' for TFF's C++ runtime, a separate process that runs on CPUs and
      has no secure sums.
    client_tf_devices: Devices of clients, see `create_sync_in_process_context`.
    server_tf_device: Device of the server, see
      `create_sync_in_process_context`.
    max_concurrent_clients: Number of workers, see
      `create_sync_in_process_context` and `create_native_context`.
    default_num_clients: Number of clients to use if the arguments of a
      computation do not determine it.
    max_clients_per_call: Clients per call, see
      `create_sync_in_process_context`. None means its default.
    log_path: File for the output of the native worker. None keeps the output in
      an unnamed temporary file.

  Raises:
    ArgumentError: If a value is not allowed, or not used by this kind.
    NativeWorkerError: If the native worker cannot be started, or does not exist
      for this Python.
    BrokenEnvironmentError: If there is no usable binary of the native worker.
    OSError: If `log_path` cannot be written.
  """
  _checks.one_of(_KINDS, kind=kind)
  if kind == 'in_process':
    if log_path is not None:
      raise _checks.ArgumentError(
          'log_path',
          log_path,
          'None, because kind="in_process" has no worker log',
      )
    chunks = {}
    if max_clients_per_call is not None:
      chunks['max_clients_per_call'] = max_clients_per_call
    return set_sync_in_process_context(
        client_tf_devices=client_tf_devices,
        server_tf_device=server_tf_device,
        max_concurrent_clients=max_concurrent_clients,
        default_num_clients=default_num_clients,
        **chunks,
    )
  for name, value, why in (
      ('client_tf_devices', client_tf_devices, 'runs on the CPU only'),
      ('server_tf_device', server_tf_device, 'runs on the CPU only'),
      ('max_clients_per_call', max_clients_per_call, 'makes no chunks'),
  ):
    if value is not None:
      raise _checks.ArgumentError(
          name, value, f'None, for kind="native" {why}'
      )
  return install_default(
      create_native_context(
          max_concurrent_clients=max_concurrent_clients,
          default_num_clients=default_num_clients,
          log_path=log_path,
      )
  )


def ensure_installed() -> contextlib.AbstractContextManager:
  """Returns a context manager for a block that needs a synchronous TFF context.

  If nobody has chosen a context for this thread, the block has an in-process
  context, which is closed at the end of the block. TFF's default before
  `tff_dp` was imported does not count as a choice.

  Raises:
    RuntimeError: If the context of this thread is asynchronous.
  """
  if not is_chosen():
    return in_process.create_sync_in_process_context()
  current = tff.framework.get_context_stack().current
  if isinstance(
      current, (tff.framework.AsyncContext, tff.program.FederatedContext)
  ):
    raise RuntimeError(
        f'the context of this thread is asynchronous ({type(current).__name__}).'
        ' Install a synchronous one around the call, such as `with'
        ' tff_dp.execution.create_sync_in_process_context():`'
    )
  return contextlib.nullcontext()


def is_chosen() -> bool:
  """Returns whether somebody has given this thread a context."""
  return _compat.is_context_chosen()


def not_covered() -> str:
  """Returns the caveat of this thread's context for a statement, or ''."""
  current = tff.framework.get_context_stack().current
  return getattr(current, 'not_covered', '')


def _warn_of_another(previous, new) -> None:
  """Warns, once per thread, if another caller replaces our default context."""
  owner = getattr(_thread, 'owner', None)
  if owner is None or new is owner.context or previous is not owner.context:
    return
  if isinstance(new, _compat.private_tff('no_context').RuntimeErrorContext):
    return  # Nobody wants a context, as at interpreter exit.
  if not getattr(_thread, 'is_warned', False):
    _thread.is_warned = True
    warnings.warn(
        f'a {type(new).__name__} has replaced the {type(previous).__name__} of'
        ' tff_dp.execution as the default context of this thread, so'
        ' computations run in it from now on. To keep the context of'
        ' tff_dp.execution, leave out the call that replaced it; to return to'
        ' it, call tff_dp.execution.set_default_context() again.',
        errors.ContextReplacedWarning,
        stacklevel=4,
    )


class _Owner:
  """Closes a context when the thread that has this object ends.

  Attributes:
    context: The context.
  """

  def __init__(self, context):
    self.context = context
    self._finalizer = weakref.finalize(
        self, in_process.close_from_anywhere, context.close
    )

  def close(self) -> None:
    """Closes the context now, and waits for that."""
    self._finalizer.detach()
    self.context.close()


def install_default(context):
  """Installs a context as TFF's default for this thread, and returns it.

  See `set_default_context`, which also makes the context.
  """
  _compat.watch_default_context(_warn_of_another)
  previous = getattr(_thread, 'owner', None)
  # Set the owner first, so that the change is not taken for another caller's.
  _thread.owner = _Owner(context)
  tff.framework.set_default_context(context)
  if previous is not None:
    previous.close()
  return context
