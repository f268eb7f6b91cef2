# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A computation, compiled for the devices of a context.

It holds the schedule and the graphs, each of which is traced when it is first
needed; `call` runs them.
"""

import itertools
import threading
import warnings

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution import graphs
from tff_dp.execution import schedule as schedule_lib
from tff_dp.execution import tracing
from tff_dp.execution import values

Struct = tff.structure.Struct
_program_numbers = itertools.count()


def _lower(computation: tff.Computation) -> schedule_lib.Schedule:
  """Returns the schedule of any TFF computation."""
  # TFF's own plain bodies of the secure operators, as its test context has it.
  computation = tff.backends.test.replace_secure_intrinsics_with_bodies(
      computation
  )
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(
      computation.to_building_block()
  )
  return schedule_lib.build(tff.framework.to_call_dominant(block))


def _warn_of_seeds(operations: list[str]) -> None:
  if operations:
    warnings.warn(
        'client work draws from a fixed seed in'
        f' {", ".join(sorted(set(operations)))}: the draws of different clients'
        ' are not independent, and workers repeat each other\'s. Leave the seed'
        ' out, or use stateless operations with a key for each client.',
        errors.SeededClientOpWarning,
        stacklevel=2,
    )


class Program:
  """A computation that is compiled for the devices of a context.

  Attributes:
    num_traces: How many graphs were traced for it so far.
  """

  def __init__(
      self,
      computation: tff.Computation,
      *,
      worker_devices: tuple[str, ...],
      server_device: str,
  ):
    """Compiles any TFF computation.

    Args:
      computation: The computation.
      worker_devices: The device of each worker.
      server_device: The device of what is not at clients.

    Raises:
      UnsupportedComputationError: It contains something that cannot run here.
    """
    self.worker_devices = worker_devices
    self._server_device = server_device
    self._schedule = _lower(computation)
    self._number = next(_program_numbers)
    self._cache = graphs.GraphCache()
    self._lock = threading.Lock()
    self._skeletons = {
        node: values.skeleton_of_type(node.operation.type_spec)
        for node in self._schedule.arguments
    }
    for one_pass in self._schedule.passes:
      for node in one_pass.accumulations:
        self._skeletons[node] = values.skeleton_of_type(
            node.operation.zero_type
        )
    self._functions = {}
    self.num_traces = 0

  def release(self) -> None:
    """Frees the graphs, and what their variables hold on the devices."""
    for function in set(self._functions.values()):
      function.release()

  def _trace(self, key: str, body, inputs, device) -> tracing.TracedFunction:
    """Traces a function of the values of `inputs`, and remembers it."""
    self.num_traces += 1
    self._functions[key] = tracing.TracedFunction(
        body,
        self._specs(inputs),
        cache=self._cache,
        scope=f'{self._number}_{key}',
        device=device,
    )
    return self._functions[key]

  def _specs(self, nodes) -> list[tf.TensorSpec]:
    return [
        spec
        for node in nodes
        for spec in values.flat_specs(self._skeletons[node])
    ]

  @property
  def schedule(self) -> schedule_lib.Schedule:
    """What to run, in which order."""
    return self._schedule

  def skeleton(self, node: schedule_lib.Node):
    """Returns the skeleton of a node that crosses from graph to graph."""
    return self._skeletons[node]

  def value(self, node: schedule_lib.Node, tensors: list[tf.Tensor]):
    """Returns the value of a node from its flat tensors."""
    return values.pack(self._skeletons[node], tensors)

  def _unpack(self, nodes, tensors: list[tf.Tensor]) -> list:
    skeleton = Struct([(None, self._skeletons[node]) for node in nodes])
    return list(values.pack(skeleton, tensors))

  def stage(self, level: int) -> tracing.TracedFunction | None:
    """Returns the function of a stage, or None if there is nothing to do."""
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

    It maps (server inputs, client inputs, accumulators) to (accumulators, what
    is kept of the client).
    """
    one_pass = self._schedule.passes[number - 1]
    known = [*one_pass.server_inputs, *one_pass.client_inputs]
    inputs = [*known, *one_pass.accumulations]

    def body(interpreting, tensors):
      unpacked = self._unpack(inputs, tensors)
      for node, value in zip(known, unpacked):
        interpreting.set(node, value)
      for node in one_pass.nodes:
        interpreting.compute(node)
      results = []
      for node, accumulator in zip(
          one_pass.accumulations, unpacked[len(known) :]
      ):
        value, _, accumulate, _ = node.inputs
        pair = [(None, accumulator), (None, interpreting.value(value))]
        results.append(
            interpreting.apply(interpreting.value(accumulate), Struct(pair))
        )
      return results + [interpreting.value(node) for node in one_pass.kept]

    device = self.worker_devices[worker]
    with self._lock:
      key = f'p{number}w{worker}'
      if key not in self._functions:
        # Without variables, one graph serves all workers of a device.
        like = f'p{number}w{self.worker_devices.index(device)}'
        function = self._functions.get(like)
        if function is None or function.has_variables:
          function = self._trace(key, body, inputs, device)
          kept = function.results[len(one_pass.accumulations) :]
          self._skeletons.update(zip(one_pass.kept, kept))
          _warn_of_seeds(function.seeded_operations)
        self._functions[key] = function
      return self._functions[key]

  def merge(self, number: int) -> tracing.TracedFunction:
    """Returns the function that joins the accumulators of two workers."""
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
              Struct([(None, left), (None, right)]),
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
