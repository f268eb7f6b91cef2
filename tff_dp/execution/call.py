# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One run of a program over the clients of a call."""

from collections.abc import Callable
import concurrent.futures
import functools
import itertools
import logging
import re
import threading

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _compat
from tff_dp import _compat_tensorflow
from tff_dp import _native_output
from tff_dp.execution import arguments
from tff_dp.execution import errors
from tff_dp.execution.compiling import chunks
from tff_dp.execution.compiling import program as program_lib
from tff_dp.execution.compiling import schedule as schedule_lib
from tff_dp.execution.data import leaves as leaves_lib
from tff_dp.execution.data import values

_cancellation = _compat_tensorflow.private_tensorflow('cancellation')
_type_conversions = _compat.private_tff('type_conversions')

Struct = tff.structure.Struct
_log = logging.getLogger(__name__)
# The ways in which clients are run.
_AT_ONCE, _IN_CHUNKS, _ONE_BY_ONE = 'at_once', 'in_chunks', 'one_by_one'
PATHS = (_AT_ONCE, _IN_CHUNKS, _ONE_BY_ONE)
# Time that an interrupted call waits for kernels that do not check for
# cancellation.
_CANCELLATION_SECONDS = 0.5
_FAILED_NODE = re.compile(r'{{node (.+?)}}')
# The functions around the node, except the one that we have made.
_FUNCTION_NODE = re.compile(r'{{function_node (?!__inference_wrapped)(.+?)}}')


class Failures:
  """Errors of a pass, shared between its workers."""

  def __init__(self, num_clients: int):
    self._num_clients = num_clients
    self._lock = threading.Lock()
    self._errors = {}

  def add(self, client: int, error: Exception) -> None:
    with self._lock:
      self._errors[client] = error

  def is_beyond(self, client: int) -> bool:
    """Returns whether a client before this one has failed.

    Clients before the failed one still run. So an error names the same client
    for any number of workers.
    """
    if not self._errors:
      return False
    with self._lock:
      return client > min(self._errors)

  def first(self) -> tuple[int, Exception] | None:
    """Returns (first client that failed, error for the user).

    The result is None if no client has failed.
    """
    if not self._errors:
      return None
    client = min(self._errors)
    error = self._errors[client]
    if not isinstance(error, tf.errors.OpError):
      return client, error
    functions = _FUNCTION_NODE.findall(error.message)[-1:]
    nodes = _FAILED_NODE.findall(error.message)[:1]
    return client, errors.ClientComputationError(
        client_index=client,
        num_clients=self._num_clients,
        operation='/'.join(functions + nodes),
        kind=type(error).__name__,
        details=error.message,
    )

  def raise_first(self) -> None:
    failed = self.first()
    if failed is not None:
      # Do not chain: a trace would show TensorFlow's message, and that the
      # data.
      raise failed[1] from None


class Call:
  """A call of a program with an argument, which runs once."""

  def __init__(
      self,
      program: program_lib.Program,
      given: arguments.Arguments,
      result_type: tff.Type,
      *,
      num_clients: int,
      executor: concurrent.futures.Executor,
      max_clients_per_call: int,
      count: Callable[[str, int], None],
  ):
    """Prepares the call.

    Args:
      program: Program to run.
      given: Argument of the call.
      result_type: Type of the result, with Python containers.
      num_clients: Number of clients.
      executor: Executor with a thread for every worker.
      max_clients_per_call: Largest number of clients of a chunk.
      count: Function that receives one of `PATHS` and the number of clients
        that have run in this way. Any thread may call it.
    """
    self._program = program
    self._given = given
    self._result_type = result_type
    self._num_clients = num_clients
    self._executor = executor
    self._max_clients_per_call = max_clients_per_call
    self._count = count
    self._is_cancelled = False
    self._lock = threading.Lock()
    # TensorFlow's handles on what runs at the moment.
    self._running = set()
    # The flat values so far, of single nodes and of every client.
    self._single = dict(given.single)
    self._kept = {}

  def cancel(self) -> None:
    """Ends the run early, from any thread. `run` then raises."""
    with self._lock:
      self._is_cancelled = True
      running = list(self._running)
    for cancellation in running:
      cancellation.start_cancel()

  def run(self):
    """Returns the result as Python values.

    Raises:
      TypeError: If a client's data does not match its type.
      UnsupportedComputationError: If a client's dataset, or a part of the
        computation, cannot run here.
      ClientComputationError: If the work of a client failed.
      tf.errors.OpError: If the work of the server failed.
      concurrent.futures.CancelledError: If `cancel` was called.
    """
    schedule = self._program.schedule
    if self._num_clients:
      _native_output.warn_if_clients_show()
    for number, stage in enumerate(schedule.stages):
      if number:
        self._run_pass(number)
      function = self._program.stage(number)
      if function is not None:
        outputs = self._on_server(function, self._flat(stage.inputs))
        self._unpack(stage.outputs, function.results, outputs, self._single)
    return self._result()

  def _wait(self, futures: list[concurrent.futures.Future]) -> list:
    """Returns the results of the futures. An interrupt cancels the call."""
    try:
      concurrent.futures.wait(futures)
    except BaseException:
      self.cancel()
      concurrent.futures.wait(futures, timeout=_CANCELLATION_SECONDS)
      raise
    if self._is_cancelled:
      raise concurrent.futures.CancelledError()
    return [future.result() for future in futures]

  def _on_server(self, function, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    # TensorFlow optimizes a function again, which takes seconds, if an argument
    # is on another device than before. The first state comes from the CPU, and
    # later ones from the server's device.
    tensors = [_moved(tensor, function.device) for tensor in tensors]
    # Run it in a separate thread, too, so that an interrupt is noticed
    # meanwhile.
    future = self._executor.submit(self._execute, function, tensors)
    return self._wait([future])[0]

  def _execute(self, function, tensors) -> list[tf.Tensor]:
    cancellation = _cancellation.CancellationManager()
    with self._lock:
      if self._is_cancelled:
        raise concurrent.futures.CancelledError()
      self._running.add(cancellation)
    try:
      return function(tensors, cancellation=cancellation)
    finally:
      with self._lock:
        self._running.remove(cancellation)

  def _flat(self, symbolic) -> list[tf.Tensor]:
    """Returns the tensors of a server's node, or of a structure of such nodes.
    """
    if isinstance(symbolic, (list, Struct)):
      return [tensor for part in symbolic for tensor in self._flat(part)]
    if isinstance(symbolic.operation, schedule_lib.Copy):
      (symbolic,) = symbolic.inputs
    return values.fresh(self._single[symbolic])

  def _unpack(self, nodes, skeletons, tensors, target: dict) -> None:
    """Cuts a flat list of tensors, and stores each node's part in `target`."""
    start = 0
    for node, skeleton in zip(nodes, skeletons):
      end = start + len(values.flat_specs(skeleton))
      target[node] = values.stored(tensors[start:end])
      start = end

  def _copy_for_clients(self, nodes: list) -> None:
    """Sets the values of those client inputs that are copies."""
    for node in nodes:
      if isinstance(node.operation, schedule_lib.Copy):
        (source,) = node.inputs
        if source.on_clients:
          self._kept[node] = self._kept[source]
        else:
          self._given.clients[node] = arguments.Shared(
              self._single[source], node.operation.type_spec
          )

  def _run_pass(self, number: int) -> None:
    one_pass = self._program.schedule.passes[number - 1]
    if not (one_pass.nodes or one_pass.accumulations):
      return
    self._copy_for_clients(one_pass.client_inputs)
    zeros = self._flat([node.inputs[1] for node in one_pass.accumulations])
    for node in one_pass.kept:
      self._kept[node] = [None] * self._num_clients
    failures = Failures(self._num_clients)
    partial = self._partial_sums(number, zeros, failures)
    failures.raise_first()
    total = partial[0] if partial else zeros
    for other in partial[1:]:
      merge = self._program.merge(number)
      captured = self._flat(one_pass.merge_inputs)
      total = self._on_server(merge, [*total, *other, *captured])
    self._unpack(
        one_pass.accumulations,
        [self._program.skeleton(node) for node in one_pass.accumulations],
        total,
        self._single,
    )

  def _partial_sums(self, number: int, zeros, failures) -> list[list]:
    """Does a pass, and returns the sums of each share as flat lists of tensors.

    A share is the clients of one worker. Client values that the call needs
    later go to `_kept`. Only this method runs clients, so a subclass that runs
    them elsewhere overrides it alone.

    Args:
      number: Number of the pass, from 1.
      zeros: Sums before the first client, as flat tensors.
      failures: Receives the errors of clients.
    """
    num_workers = min(len(self._program.worker_devices), self._num_clients)
    return self._wait([
        self._executor.submit(
            self._work,
            number,
            worker,
            range(worker, self._num_clients, num_workers),
            zeros,
            failures,
        )
        for worker in range(num_workers)
    ])

  def _work(self, number: int, worker: int, share: range, zeros, failures):
    """Does one worker's share of a pass and returns its sums as flat tensors.
    """
    one_pass = self._program.schedule.passes[number - 1]
    device = self._program.worker_devices[worker]
    server_inputs = [
        _moved(tensor, device) for tensor in self._flat(one_pass.server_inputs)
    ]
    accumulators = [_moved(zero, device) for zero in zeros]

    limits = chunks.limits(device)

    def num_at_once(kind):
      return self._program.num_at_once(
          number, worker, kind=kind, num_clients=len(share)
      )

    good = itertools.takewhile(
        lambda client: not (self._is_cancelled or failures.is_beyond(client)),
        share,
    )
    def reads_once(kind):
      return num_at_once(kind) >= limits.min_at_once or bool(
          self._program.pass_in_loop(number, worker, kind=kind)
      )

    leaves = self._leaves(one_pass, functools.cache(reads_once))
    for chunk in chunks.gather(
        ((client, leaves(client)) for client in good),
        limit=self._max_clients_per_call,
        num_at_once=num_at_once,
        min_at_once=limits.min_at_once,
    ):
      accumulators = self._work_on(
          number, worker, chunk, server_inputs, accumulators, failures
      )
    return accumulators

  def _work_on(
      self, number, worker, chunk, server_inputs, accumulators, failures
  ):
    """Returns the accumulators after a chunk. Failures go to `failures`."""
    # Clients with lower numbers may still come.
    if self._is_cancelled or failures.is_beyond(chunk.clients[0]):
      return accumulators
    done = None
    if chunk.leaves is not None:
      try:
        done = self._work_on_chunk(
            number, worker, chunk, server_inputs, accumulators
        )
      except tf.errors.ResourceExhaustedError:
        self._program.too_many_at_once(number, worker, len(chunk.clients))
        for half in chunk.halves():
          accumulators = self._work_on(
              number, worker, half, server_inputs, accumulators, failures
          )
        return accumulators
    if done is None:
      done = self._work_one_by_one(
          number, worker, chunk.clients, server_inputs, accumulators, failures
      )
    return done

  def _leaves(
      self, one_pass, reads_once: leaves_lib.ReadsOnce
  ) -> Callable[[int], leaves_lib.Leaves | None]:
    """Returns a function from a client to its leaves: its tensors and tables.

    The function returns None for a client that must run by itself.

    Args:
      one_pass: Pass over the clients.
      reads_once: See `leaves.Reader`.
    """
    given = [self._given.clients.get(node) for node in one_pass.client_inputs]
    # What an earlier pass kept has no leaves.
    if self._max_clients_per_call == 1 or None in given:
      return lambda client: None
    # A part of the argument has a node for each of its uses. A copy has its own.
    paths = [
        getattr(node.operation, 'path', node) for node in one_pass.client_inputs
    ]
    if len(paths) == 1:
      return lambda client: given[0].leaves(client, reads_once)
    lists = dict(zip(paths, given))

    def leaves(client, reads_once=reads_once):
      own = {
          path: part.leaves(client, reads_once) for path, part in lists.items()
      }
      if None in own.values():
        return None
      items, seen = [], set()
      for path in paths:
        # Each use of a shuffled dataset may have another order.
        if path in seen and own[path].is_made:
          own[path] = lists[path].leaves(client, reads_once)
        seen.add(path)
        items += own[path].items
      found = leaves_lib.Leaves(items)
      # Beside a dataset, what could be a table stays a dataset, too.
      if found.is_mixed and reads_once is not None:
        return leaves(client, None)
      return found

    return leaves

  def _work_on_chunk(self, number, worker, chunk, server_inputs, accumulators):
    """Returns the accumulators after a chunk, or None.

    None means that the clients must run one by one, from the same accumulators:
    there is no function for such a chunk, or the function failed.

    Raises:
      ResourceExhaustedError: The memory does not hold so many clients at once.
    """
    if chunk.is_at_once:
      compiled, join, path = self._program.pass_at_once, chunks.stack, _AT_ONCE
    else:
      compiled, join, path = self._program.pass_in_loop, chunks.join, _IN_CHUNKS
    function = compiled(number, worker, kind=chunk.kind)
    if function is None:
      return None
    try:
      tensors = join([leaves.items for leaves in chunk.leaves])
      done = self._execute(
          function, [*server_inputs, *tensors, *accumulators]
      )
    except Exception as error:  # pylint: disable=broad-except
      if (
          isinstance(error, tf.errors.ResourceExhaustedError)
          and chunk.is_at_once
          and len(chunk.clients) > 1
      ):
        raise
      # Nothing has changed. Running clients one by one shows which one failed.
      _log.debug('A chunk of clients is done again one by one: %s', type(error))
      return None
    self._count(path, len(chunk.clients))
    return done

  def _work_one_by_one(
      self, number, worker, clients, server_inputs, accumulators, failures
  ):
    """Returns the accumulators after these clients.

    The work stops if a client fails. It also stops if a client with a smaller
    number has failed in another worker, and if the call is cancelled.
    """
    one_pass = self._program.schedule.passes[number - 1]
    function = self._program.client_pass(number, worker)
    skeletons = function.results[len(one_pass.accumulations) :]
    size = len(accumulators)
    for client in clients:
      if self._is_cancelled or failures.is_beyond(client):
        break
      try:
        client_inputs = [
            tensor
            for node in one_pass.client_inputs
            for tensor in self._of_client(node, client)
        ]
        outputs = self._execute(
            function, [*server_inputs, *client_inputs, *accumulators]
        )
        kept = {}
        self._unpack(one_pass.kept, skeletons, outputs[size:], kept)
      except Exception as error:  # pylint: disable=broad-except
        failures.add(client, error)
        break
      self._count(_ONE_BY_ONE, 1)
      accumulators = outputs[:size]
      for node, tensors in kept.items():
        self._kept[node][client] = tensors
    return accumulators

  def _of_client(self, node, client: int) -> list[tf.Tensor]:
    if node in self._given.clients:
      return values.fresh(self._given.clients[node].flat(client))
    return values.fresh(self._kept[node][client])

  def _result(self):
    result = self._arrays(self._program.schedule.result, self._result_type)
    return _type_conversions.type_to_py_container(result, self._result_type)

  def _arrays(self, symbolic, type_spec: tff.Type):
    """Returns the structure with arrays in place of nodes."""
    if isinstance(type_spec, tff.FederatedType):
      if type_spec.placement is tff.CLIENTS and not type_spec.all_equal:
        return [
            self._local_arrays(symbolic, type_spec.member, client)
            for client in range(self._num_clients)
        ]
      return self._local_arrays(symbolic, type_spec.member, None)
    if isinstance(type_spec, tff.StructType) and isinstance(symbolic, Struct):
      return Struct([
          (name, self._arrays(part, element))
          for (name, element), part in zip(
              tff.structure.iter_elements(type_spec), symbolic
          )
      ])
    return self._local_arrays(symbolic, type_spec, None)

  def _local_arrays(self, symbolic, type_spec, client: int | None):
    if isinstance(symbolic, Struct):
      return Struct([
          (name, self._local_arrays(part, element, client))
          for (name, element), part in zip(
              tff.structure.iter_elements(type_spec), symbolic
          )
      ])
    if symbolic.on_clients:
      tensors = self._of_client(symbolic, client)
    else:
      tensors = self._flat(symbolic)
    return values.to_arrays(self._program.value(symbolic, tensors), type_spec)


def _moved(tensor: tf.Tensor, device: str) -> tf.Tensor:
  """Returns the tensor on a device. A variant tensor stays where it is."""
  if tensor.dtype == tf.variant or tensor.device == device:
    return tensor
  with tf.device(device):
    return tf.identity(tensor)
