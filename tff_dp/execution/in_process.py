# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF contexts that run computations inside this process, on any device.

TFF's own runtime is a separate program, built for CPUs. Here a computation is
compiled once (`program`) and run by workers, each with a device and a thread
(`call`).
"""

import asyncio
from collections.abc import Callable
import concurrent.futures
import contextlib
import threading
import weakref

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.execution import arguments
from tff_dp.execution import call
from tff_dp.execution import devices
from tff_dp.execution import errors
from tff_dp.execution import freed_memory
from tff_dp.execution.compiling import program

# Largest default number of clients per call. Small clients need many per call.
_MAX_CLIENTS_PER_CALL = 512


class _Engine:
  """Compiled computations, and the threads that run them."""

  def __init__(
      self,
      *,
      client_tf_devices,
      server_tf_device,
      max_concurrent_clients: int | None,
      default_num_clients: int,
      max_clients_per_call: int,
      make_call: Callable[..., call.Call] = call.Call,
  ):
    _checks.integer_at_least(1, max_clients_per_call=max_clients_per_call)
    _checks.optional_integer_at_least(
        1, max_concurrent_clients=max_concurrent_clients
    )
    _checks.integer_at_least(0, default_num_clients=default_num_clients)
    resolved = devices.resolve(
        client_tf_devices=client_tf_devices, server_tf_device=server_tf_device
    )
    self.client_devices = resolved.clients
    self.server_device = resolved.server
    num_workers = max_concurrent_clients or len(resolved.clients)
    self.worker_devices = tuple(
        resolved.clients[worker % len(resolved.clients)]
        for worker in range(num_workers)
    )
    self._default_num_clients = default_num_clients
    self._max_clients_per_call = max_clients_per_call
    self._make_call = make_call
    self._clients_by_path = dict.fromkeys(call.PATHS, 0)
    self._executor = concurrent.futures.ThreadPoolExecutor(
        max_workers=num_workers, thread_name_prefix='tff_dp_worker'
    )
    self._lock = threading.Lock()
    # Computation -> program, while the computation lives. The key is its
    # identity, because hashing a computation would serialize it.
    self._programs = {}
    self._is_closed = False

  @property
  def num_traces(self) -> int:
    with self._lock:
      # Copied, because a program may be dropped meanwhile.
      return sum(item.num_traces for item in list(self._programs.values()))

  @property
  def num_clients_by_path(self) -> dict[str, int]:
    with self._lock:
      return dict(self._clients_by_path)

  def _count(self, path: str, num_clients: int) -> None:
    with self._lock:
      self._clients_by_path[path] += num_clients

  def _program(self, computation) -> program.Program:
    key = id(computation)
    with self._lock:
      if self._is_closed:
        raise errors.ContextClosedError(
            'this context was closed; make a new one with'
            ' tff_dp.execution.set_default_context()'
        )
      if key not in self._programs:
        self._programs[key] = program.Program(
            computation,
            worker_devices=self.worker_devices,
            server_device=self.server_device,
        )
        weakref.finalize(computation, _forget, weakref.ref(self), key)
      return self._programs[key]

  def forget(self, key: int) -> None:
    """Frees the program of a computation."""
    forgotten = self._programs.pop(key, None)
    if forgotten is not None:
      forgotten.release()

  def call(self, computation, argument) -> call.Call:
    """Returns a call that is ready to run."""
    compiled = self._program(computation)
    type_spec = computation.type_signature
    given = arguments.bind(
        compiled.schedule.arguments, argument, type_spec.parameter
    )
    num_clients = given.num_clients
    if num_clients is None:
      num_clients = self._default_num_clients
    return self._make_call(
        compiled,
        given,
        type_spec.result,
        num_clients=num_clients,
        executor=self._executor,
        max_clients_per_call=self._max_clients_per_call,
        count=self._count,
    )

  def close(self) -> None:
    with self._lock:
      self._is_closed = True
    self._executor.shutdown(wait=True, cancel_futures=True)
    for key in list(self._programs):
      self.forget(key)


def close_from_anywhere(close: Callable[[], None]) -> None:
  """Closes a context, even while the thread that had it is ending.

  Closing waits for threads. Python has already dropped an ending thread from
  its list of threads. If such a thread waited, Python would list it a second
  time, and never drop it again. So a new thread closes the context. The main
  thread, which also handles the end of the interpreter, closes it itself.
  """
  if threading.get_ident() == threading.main_thread().ident:
    close()
  else:
    # The thread would otherwise ask the current thread whether it is a daemon.
    threading.Thread(target=close, name='tff_dp_close', daemon=False).start()


def _forget(engine: weakref.ReferenceType, key: int) -> None:
  # A computation may outlive every context that it ran on.
  living = engine()
  if living is not None:
    living.forget(key)


class BlockContext:
  """A context that a `with` block installs, and closes at its end."""

  def __init__(self):
    self._stack = contextlib.ExitStack()

  def __enter__(self):
    self._stack.enter_context(tff.framework.get_context_stack().install(self))
    return self

  def __exit__(self, *exception_info) -> None:
    self._stack.close()
    self.close()


class _InProcessContext(BlockContext):
  """The common part of the synchronous and the asynchronous context."""

  def __init__(self, **settings):
    super().__init__()
    freed_memory.keep()
    self._engine = _Engine(**settings)
    # Close it also at interpreter exit: TensorFlow's functions complain if they
    # outlive its modules.
    weakref.finalize(self, close_from_anywhere, self._engine.close)

  @property
  def client_devices(self) -> tuple[str, ...]:
    """Full names of the devices that clients' work is spread over."""
    return self._engine.client_devices

  @property
  def server_device(self) -> str:
    """Full name of the device of all work that is not a client's."""
    return self._engine.server_device

  @property
  def num_workers(self) -> int:
    """Number of workers that run clients at the same time."""
    return len(self._engine.worker_devices)

  @property
  def num_traces(self) -> int:
    """Number of graphs traced for the computations that still exist."""
    return self._engine.num_traces

  @property
  def num_clients_by_path(self) -> dict[str, int]:
    """Number of clients that ran `at_once`, `in_chunks` and `one_by_one`.

    A client counts once for each pass over the clients. The debug log of
    `tff_dp.execution` says why the clients of a computation run one by one.
    """
    return self._engine.num_clients_by_path

  def close(self) -> None:
    """Ends the threads. The context cannot be used afterwards.

    It may be called again.
    """
    self._engine.close()


class InProcessContext(_InProcessContext, tff.framework.SyncContext):
  """A synchronous TFF context that runs inside this process.

  As a context manager it is the current thread's context inside the block and
  closes at its end. TFF's stack of contexts is thread-local: a computation that
  is invoked from another thread does not see it.

  Attributes:
    returns_arrays: Whether a call of a computation returns its result at once,
      as arrays in Python's containers.
  """

  returns_arrays = True

  def invoke(self, comp, arg):
    """Runs `comp`. TFF calls this.

    Raises:
      TypeError: If data does not match its type.
      ValueError: If lists of clients differ in length.
      ClientComputationError: If the work of a client failed.
      tf.errors.OpError: If the work of the server failed.
      UnsupportedComputationError: If `comp` contains something that cannot run
        here.
      ContextClosedError: If the context was closed.
    """
    return self._engine.call(comp, arg).run()


class AsyncInProcessContext(_InProcessContext, tff.framework.AsyncContext):
  """An asynchronous TFF context inside this process, for programs with `await`.
  """

  def __init__(self, **settings):
    super().__init__(**settings)
    # Calls wait here for the workers' threads, so these must be other threads.
    self._callers = concurrent.futures.ThreadPoolExecutor(
        thread_name_prefix='tff_dp_call'
    )

  async def invoke(self, comp, arg):
    """Runs `comp` and returns its result. See `InProcessContext.invoke`."""
    if asyncio.iscoroutine(arg):
      arg = await arg
    prepared = self._engine.call(comp, arg)
    future = self._callers.submit(prepared.run)
    try:
      return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
      prepared.cancel()
      raise

  def close(self) -> None:
    super().close()
    self._callers.shutdown(wait=True, cancel_futures=True)


def create_sync_in_process_context(
    *,
    client_tf_devices=None,
    server_tf_device=None,
    max_concurrent_clients: int | None = None,
    default_num_clients: int = 0,
    max_clients_per_call: int = _MAX_CLIENTS_PER_CALL,
) -> InProcessContext:
  """Returns a synchronous context that runs inside this process.

  Args:
    client_tf_devices: Devices for clients' work, as names ('GPU:0', '/gpu:1')
      or `tf.config.LogicalDevice` objects. Clients are assigned to them
      round-robin. A device that is listed twice gets two workers. Default: all
      GPUs. If there are none, the CPU, listed once for each core that this
      process may use, but at most 8 times.
    server_tf_device: Device of all other work. Default: the first GPU, or the
      CPU if there is none.
    max_concurrent_clients: Number of workers, which are spread over the
      devices. Default: one for each entry of `client_tf_devices`. With one,
      aggregation gives the same bits as TFF's own runtime. More workers add up
      in another order, which depends only on their number. The bits of a
      training depend on the number of workers and on the number of threads
      within an operation. They do not otherwise depend on the number of cores.
    default_num_clients: Number of clients to use if the arguments of a
      computation do not determine it.
    max_clients_per_call: Largest number of clients that a worker trains in one
      call of TensorFlow, if their data is in memory. Default: 512. A call that
      loops over its clients has at most 64. With 1, each client has a separate
      call, like clients whose data is a pipeline.

  Raises:
    ArgumentError: If a value is not allowed, or a device does not exist.
  """
  return InProcessContext(
      client_tf_devices=client_tf_devices,
      server_tf_device=server_tf_device,
      max_concurrent_clients=max_concurrent_clients,
      default_num_clients=default_num_clients,
      max_clients_per_call=max_clients_per_call,
  )


def create_async_in_process_context(
    *,
    client_tf_devices=None,
    server_tf_device=None,
    max_concurrent_clients: int | None = None,
    default_num_clients: int = 0,
    max_clients_per_call: int = _MAX_CLIENTS_PER_CALL,
) -> AsyncInProcessContext:
  """Returns an asynchronous context, for programs that `await` computations.

  `tff.program.NativeFederatedContext` and `tff.learning.programs` need one. The
  arguments are the same as for `create_sync_in_process_context`.
  """
  return AsyncInProcessContext(
      client_tf_devices=client_tf_devices,
      server_tf_device=server_tf_device,
      max_concurrent_clients=max_concurrent_clients,
      default_num_clients=default_num_clients,
      max_clients_per_call=max_clients_per_call,
  )
