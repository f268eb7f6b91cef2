# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A TFF computation, compiled for the devices of a context.

A program holds the schedule of the computation and the graphs of its parts.
Each graph is traced when it is first needed. `call` runs the graphs.
"""

import functools
import itertools
import logging
import threading
import warnings

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.proto.v0 import computation_pb2

from tff_dp import _compat
from tff_dp.execution import errors
from tff_dp.execution.compiling import chunks
from tff_dp.execution.compiling import client_work
from tff_dp.execution.compiling import graphs
from tff_dp.execution.compiling import interpreter
from tff_dp.execution.compiling import schedule as schedule_lib
from tff_dp.execution.compiling import tracing
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

_serialization = _compat.private_tff('computation_serialization')

Struct = tff.structure.Struct
_program_numbers = itertools.count()
_log = logging.getLogger(__name__)
# Operations that work in a loop over clients.
_IN_LOOP = (
    schedule_lib.Call,
    schedule_lib.Pick,
    schedule_lib.Select,
    interpreter.Literal,
)
# Begins the names of TFF's secure operators.
_SECURE = b'federated_secure_'


def deserialize(serialized: bytes) -> tff.Computation:
  """Returns the computation of a program from the program's `serialized()`."""
  return _serialization.deserialize_computation(
      computation_pb2.Computation.FromString(serialized)
  )


def _lower(
    computation: tff.Computation, serialized: bytes
) -> schedule_lib.Schedule:
  """Returns the schedule of any TFF computation.

  Args:
    computation: TFF computation.
    serialized: The same computation as bytes.
  """
  if _SECURE in serialized:
    # TFF's plain bodies replace the secure operators, as in its test context.
    # It reads the whole computation and writes it anew.
    computation = tff.backends.test.replace_secure_intrinsics_with_bodies(
        computation
    )
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
      computation.to_building_block()
  )
  return schedule_lib.build(tff.framework.to_call_dominant(block))


def _check_sequences(type_spec: tff.Type) -> None:
  """Raises if a graph expects an element's parts in an order that gets lost.

  TensorFlow sorts the parts of a mapping by name, and leaves those of a named
  tuple as they are. A serialized computation has no classes of containers.

  Args:
    type_spec: Type of the argument of a computation, with its containers.
  """
  if isinstance(type_spec, tff.SequenceType):
    names = values.leaf_names(values.element_spec_of(type_spec.element))
    if names != sorted(names):
      raise errors.UnsupportedComputationError(
          'a sequence of named tuples whose names are not in alphabetical order'
          f' ({type_spec})',
          instead='elements that are mappings, such as OrderedDict',
      )
    return
  for child in type_spec.children():
    _check_sequences(child)


def _warn_of_seeds(operations: list[str]) -> None:
  if operations:
    warnings.warn(
        'client work draws from a fixed seed in'
        f' {", ".join(sorted(set(operations)))}: the draws of different clients'
        " are not independent, and workers repeat each other's draws. Leave the"
        ' seed out, or use stateless operations with a key for each client.',
        errors.SeededClientOpWarning,
        stacklevel=2,
    )


def _cut(items: list, *places: int) -> list[list]:
  starts, ends = [0, *places], [*places, len(items)]
  return [items[start:end] for start, end in zip(starts, ends)]


class Program:
  """A computation that is compiled for the devices of a context.

  Attributes:
    worker_devices: Device of each worker.
    num_traces: Number of graphs that were traced for it so far.
  """

  def __init__(
      self,
      computation: tff.Computation,
      *,
      worker_devices: tuple[str, ...],
      server_device: str,
  ):
    """Builds the schedule of any TFF computation.

    Args:
      computation: TFF computation to compile.
      worker_devices: Device of each worker.
      server_device: Device of the server's work.

    Raises:
      UnsupportedComputationError: The computation contains something that
        cannot run here.
    """
    if computation.type_signature.parameter is not None:
      _check_sequences(computation.type_signature.parameter)
    self.worker_devices = worker_devices
    # Stored in serialized form: the computation itself would live as long as
    # this.
    self._proto = _serialization.serialize_computation(computation)
    self._server_device = server_device
    self._schedule = _lower(computation, self._proto.SerializeToString())
    self._number = next(_program_numbers)
    self._cache = graphs.GraphCache()
    self._lock = threading.Lock()
    self._skeletons = {
        node: values.skeleton_of_type(node.operation.type_spec)
        for node in [*self._schedule.arguments, *self._schedule.copies]
    }
    for one_pass in self._schedule.passes:
      for node in one_pass.accumulations:
        self._skeletons[node] = values.skeleton_of_type(
            node.operation.zero_type
        )
    self._functions = {}
    # (pass, device) -> most clients at once, where its memory once ran out.
    self._fitting = {}
    self.num_traces = 0

  def release(self) -> None:
    """Frees the graphs and the memory of their variables on the devices."""
    for function in set(self._functions.values()) - {None}:
      function.release()

  def _trace(self, key: str, body, inputs, device) -> tracing.TracedFunction:
    """Traces and stores a function whose arguments are the values of `inputs`.
    """
    return self._trace_specs(key, body, self._specs(inputs), device)

  def _trace_specs(self, key, body, specs, device) -> tracing.TracedFunction:
    function = tracing.TracedFunction(
        body,
        specs,
        cache=self._cache,
        scope=f'{self._number}_{key}',
        device=device,
    )
    self.num_traces += 1
    self._functions[key] = function
    return function

  def _specs(self, nodes) -> list[tf.TensorSpec]:
    return [
        spec
        for node in nodes
        for spec in values.flat_specs(self._skeletons[node])
    ]

  @property
  def schedule(self) -> schedule_lib.Schedule:
    """Stages and passes of the computation, in the order in which they run."""
    return self._schedule

  def skeleton(self, node: schedule_lib.Node):
    """Returns the skeleton of a node whose value crosses from graph to graph.

    A skeleton says how to rebuild a value from flat tensors, see `values`.
    """
    return self._skeletons[node]

  def set_skeleton(self, node: schedule_lib.Node, skeleton) -> None:
    """Sets the skeleton of a node that was computed elsewhere."""
    self._skeletons[node] = skeleton

  def serialized(self) -> bytes:
    """Returns the computation as bytes, from which `deserialize` restores it.
    """
    return self._proto.SerializeToString(deterministic=True)

  def value(self, node: schedule_lib.Node, tensors: list[tf.Tensor]):
    """Returns the value of a node from its flat tensors."""
    return values.pack(self._skeletons[node], tensors)

  def _unpack(self, nodes, tensors: list[tf.Tensor]) -> list:
    skeleton = Struct.unnamed(*map(self.skeleton, nodes))
    return list(values.pack(skeleton, tensors))

  def stage(self, level: int) -> tracing.TracedFunction | None:
    """Returns the function of a server stage, or None if it has no outputs.

    Args:
      level: Number of the stage, from 0.
    """
    stage = self._schedule.stages[level]
    if not stage.outputs:
      return None

    def body(interpreting, tensors):
      for node, value in zip(stage.inputs, self._unpack(stage.inputs, tensors)):
        interpreting.set(node, value)
      for node in stage.nodes:
        interpreting.compute(node)
      return [interpreting.value(node) for node in stage.outputs]

    with self._lock:
      key = f's{level}'
      if key not in self._functions:
        function = self._trace(key, body, stage.inputs, self._server_device)
        self._skeletons.update(zip(stage.outputs, function.results))
      return self._functions[key]

  def client_pass(self, number: int, worker: int) -> tracing.TracedFunction:
    """Returns the function that does one client's part of a pass.

    It maps server inputs, client inputs and accumulators to the new
    accumulators and those values of the client that are kept.

    Args:
      number: Number of the pass, from 1.
      worker: Index of the worker that runs the function.
    """
    one_pass = self._schedule.passes[number - 1]
    known = [*one_pass.server_inputs, *one_pass.client_inputs]
    inputs = [*known, *one_pass.accumulations]

    def body(interpreting, tensors):
      unpacked = self._unpack(inputs, tensors)
      results = client_work.run(
          one_pass, interpreting, zip(known, unpacked), unpacked[len(known) :]
      )
      return results + [interpreting.value(node) for node in one_pass.kept]

    def trace(key, device):
      function = self._trace(key, body, inputs, device)
      kept = function.results[len(one_pass.accumulations) :]
      self._skeletons.update(zip(one_pass.kept, kept))
      return function

    return self._of_worker(f'p{number}', worker, trace)

  def _of_worker(self, name: str, worker: int, trace):
    """Returns a worker's function for client work, and traces it if needed."""
    device = self.worker_devices[worker]
    own = f'{name}w{worker}'
    # One graph without variables serves all workers of a device, whichever asks
    # first. What could not be traced for one of them (None) cannot be for
    # another.
    shared = f'{name}w{self.worker_devices.index(device)}'
    with self._lock:
      for key in (shared, own):
        if key in self._functions:
          continue
        function = self._functions.get(shared)
        if key == shared or (function is not None and function.has_variables):
          function = trace(key, device)
          if function is not None:
            _warn_of_seeds(function.seeded_operations)
        self._functions[key] = function
      return self._functions[own]

  def pass_in_loop(
      self, number: int, worker: int, *, kind: datasets.Kind
  ) -> tracing.TracedFunction | None:
    """Returns the function that does a pass for a chunk of clients.

    It maps server inputs, a chunk and accumulators to the new accumulators.

    Args:
      number: Number of the pass, from 1.
      worker: Index of the worker that runs the function.
      kind: Form of the clients' sequences, as in `chunks.specs`.

    Returns:
      The function, or None if clients must run one by one. This is so if the
      pass keeps a value of each client, or if a result is a dataset. It is also
      so if the clients' work has one of TFF's sequence operators, or if
      TensorFlow cannot run it in a loop. For a kind that is read once, it is
      also so if the work is not pure, or reads a sequence twice.
    """
    one_pass = self._schedule.passes[number - 1]
    server_specs = self._specs(one_pass.server_inputs)
    accumulator_specs = self._specs(one_pass.accumulations)
    if not self._can_be_chunked(one_pass):
      return None
    skeletons = [self._skeletons[node] for node in one_pass.client_inputs]

    def body(interpreting, tensors, way):
      interpreting.way = way
      server, (num_clients, *chunk), accumulators = _cut(
          tensors, len(server_specs), len(tensors) - len(accumulator_specs)
      )

      def work(index, *accumulators):
        known = self._unpack(one_pass.server_inputs, server) + chunks.client(
            skeletons,
            chunk,
            index,
            kind=kind,
            as_datasets=way is tracing.Way.SESSIONS,
        )
        results = client_work.run(
            one_pass,
            interpreting,
            zip([*one_pass.server_inputs, *one_pass.client_inputs], known),
            self._unpack(one_pass.accumulations, list(accumulators)),
        )
        return values.flatten(Struct.unnamed(*results))

      results = client_work.loop(
          work, num_clients, accumulators, accumulator_specs
      )
      return self._unpack(one_pass.accumulations, results)

    def trace(key, device):
      ways = [tracing.Way.PURE, tracing.Way.SESSIONS]
      for way in ways[:1] if kind.is_read_once else ways:
        try:
          specs = chunks.specs(skeletons, kind=kind)
          return self._trace_specs(
              key,
              functools.partial(body, way=way),
              [*server_specs, *specs, *accumulator_specs],
              device,
          )
        except errors.NotPlainError as error:
          _log.debug('Clients in a chunk have sessions of their own: %s', error)
        # TensorFlow raises these where a loop cannot have a shape.
        except (TypeError, ValueError) as error:
          _log.debug('Clients come one by one: %s', error)
          return None
      _log.debug('Clients come one by one.')
      return None

    return self._of_worker(f'p{number}c{kind.name}', worker, trace)

  def num_at_once(
      self, number: int, worker: int, *, kind: datasets.Kind, num_clients: int
  ) -> int:
    """Returns the largest number of clients in one call of `pass_at_once`.

    It is 0 if there is no such function, if the worker has too few clients, or
    if the model and the results of a client are so large that too few clients
    fit (`chunks.Limits`).

    Args:
      number: Number of the pass, from 1.
      worker: Index of the worker that runs the function.
      kind: Form of the clients' sequences, as for `pass_at_once`.
      num_clients: Number of clients of the worker.
    """
    one_pass = self._schedule.passes[number - 1]
    specs = self._specs([*one_pass.server_inputs, *one_pass.accumulations])
    sizes = [s.dtype.size * (s.shape.num_elements() or 0) for s in specs]
    device = self.worker_devices[worker]
    limits = chunks.limits(device)
    if num_clients < limits.min_of_worker:
      return 0
    if num_clients < limits.min_with_convolutions and any(
        self._cache.get(node.operation.block).has_convolutions
        for node in one_pass.nodes
        if isinstance(node.operation, schedule_lib.Call)
    ):
      return 0
    found = limits.max_bytes // max(1, sum(sizes))
    found = min(found, self._fitting.get((number, device), found))
    if found < limits.min_fitting:
      return 0
    is_there = self.pass_at_once(number, worker, kind=kind)
    return found if is_there is not None else 0

  def too_many_at_once(self, number: int, worker: int, clients: int) -> None:
    """Notes that the memory of a worker's device did not hold so many clients.

    From now on `num_at_once` is at most half of `clients`, for this pass and
    this device.

    Args:
      number: Number of the pass, from 1.
      worker: Index of the worker.
      clients: Number of clients that were to run at once.
    """
    device = self.worker_devices[worker]
    with self._lock:
      fitting = self._fitting.get((number, device), clients)
      self._fitting[number, device] = min(fitting, clients // 2)
    _log.warning(
        'The memory of %s does not hold %d clients at once: from now on at most'
        ' %d, which takes longer.', device, clients, clients // 2
    )

  def pass_at_once(
      self, number: int, worker: int, *, kind: datasets.Kind
  ) -> tracing.TracedFunction | None:
    """Returns the function that does a pass for many clients at once.

    It maps server inputs, a chunk from `chunks.stack` and accumulators to the
    new accumulators.

    Args:
      number: Number of the pass, from 1.
      worker: Index of the worker that runs the function.
      kind: Form of the clients' sequences, as in `chunks.stack_specs`.

    Returns:
      The function, or None if there is none. There is one only if the clients
      have rows in memory (`Kind.has_rows`), if the pass has no
      `federated_select`, and if operations that `vectorized` lists read at
      least one sequence. The rest of the work follows in a loop.
    """
    one_pass = self._schedule.passes[number - 1]
    server_specs = self._specs(one_pass.server_inputs)
    accumulator_specs = self._specs(one_pass.accumulations)
    # Without sequences, clients only hand in values, whose sums keep their
    # order and so every bit.
    if not kind.has_rows or not self._can_be_chunked(one_pass):
      return None
    operations = [node.operation for node in one_pass.nodes]
    if any(isinstance(found, schedule_lib.Select) for found in operations):
      return None
    skeletons = [self._skeletons[node] for node in one_pass.client_inputs]
    inputs = [*one_pass.server_inputs, *one_pass.client_inputs]

    def body(interpreting, tensors):
      interpreting.way = tracing.Way.AT_ONCE
      server, chunk, accumulators = _cut(
          tensors, len(server_specs), len(tensors) - len(accumulator_specs)
      )
      server = self._unpack(one_pass.server_inputs, server)
      rest = client_work.Rest(one_pass, interpreting)

      def work(own, own_zero):
        interpreting.own_zero = own_zero
        for node, value in zip(inputs, [*server, *own], strict=True):
          interpreting.set(node, value)
        rest.nodes = client_work.compute_listed(one_pass.nodes, interpreting)
        if rest.nodes:
          return rest.begin()
        try:
          results = client_work.accumulated(
              one_pass,
              interpreting,
              self._unpack(one_pass.accumulations, accumulators),
          )
          results = values.flatten(Struct.unnamed(*results))
          return client_work.increments(results, accumulators)
        except errors.NotPlainError as error:
          _log.debug('Clients are added one after the other: %s', error)
          return rest.begin()

      stacked = chunks.at_once(work, skeletons, chunk, kind=kind)
      if not rest.has_begun:
        return self._unpack(
            one_pass.accumulations,
            [
                accumulator + tf.reduce_sum(increment, axis=0)
                for accumulator, increment in zip(accumulators, stacked)
            ],
        )
      if kind.is_read_once and rest.reads_sequences:
        raise errors.NotPlainError('a shuffled sequence is read again')
      interpreting.way, interpreting.own_zero = tracing.Way.PURE, None

      def work_on_rest(index, *accumulators):
        own = chunks.one_of_stack(skeletons, chunk, index, kind=kind)
        for node, value in zip(inputs, [*server, *own], strict=True):
          interpreting.set(node, value)
        return rest.end(
            [tensor[index] for tensor in stacked],
            self._unpack(one_pass.accumulations, list(accumulators)),
        )

      results = client_work.loop(
          work_on_rest, tf.shape(stacked[0])[0], accumulators, accumulator_specs
      )
      return self._unpack(one_pass.accumulations, results)

    def trace(key, device):
      try:
        specs = chunks.stack_specs(skeletons, kind=kind)
        return self._trace_specs(
            key, body, [*server_specs, *specs, *accumulator_specs], device
        )
      # TensorFlow raises these for work that it cannot do for many clients at
      # once.
      except (errors.NotPlainError, TypeError, ValueError) as error:
        _log.debug('Clients do not work at once: %s', error)
        return None

    return self._of_worker(f'p{number}a{kind.name}', worker, trace)

  def _can_be_chunked(self, one_pass: schedule_lib.Pass) -> bool:
    specs = self._specs(one_pass.accumulations)
    return (
        not one_pass.kept
        and not any(spec.dtype == tf.variant for spec in specs)
        and all(isinstance(n.operation, _IN_LOOP) for n in one_pass.nodes)
    )

  def merge(self, number: int) -> tracing.TracedFunction:
    """Returns the function that joins the accumulators of two workers.

    Args:
      number: Number of the pass, from 1.
    """
    one_pass = self._schedule.passes[number - 1]
    accumulations = one_pass.accumulations
    inputs = [*accumulations, *accumulations, *one_pass.merge_inputs]

    def body(interpreting, tensors):
      unpacked = self._unpack(inputs, tensors)
      size = len(accumulations)
      for node, value in zip(one_pass.merge_inputs, unpacked[2 * size :]):
        interpreting.set(node, value)
      return [
          interpreting.apply(
              interpreting.value(node.inputs[3]),
              Struct.unnamed(left, right),
          )
          for node, left, right in zip(
              accumulations, unpacked, unpacked[size : 2 * size]
          )
      ]

    with self._lock:
      key = f'm{number}'
      if key not in self._functions:
        self._trace(key, body, inputs, self._server_device)
      return self._functions[key]
