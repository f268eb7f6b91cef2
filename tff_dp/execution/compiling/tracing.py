# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs for the stages and passes of a schedule.

A graph without variables is traced once for all workers of a device, any other
once for each worker. The types of a computation leave open any size that may
change from call to call, such as the length of a batch. The graph leaves these
sizes open, too.
"""

from collections.abc import Callable
import contextlib
import enum
import itertools
import threading

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution.compiling import graphs
from tff_dp.execution.compiling import interpreter
from tff_dp.execution.compiling import schedule
from tff_dp.execution.compiling import selections
from tff_dp.execution.data import calls
from tff_dp.execution.data import datasets
from tff_dp.execution.data import values

Struct = tff.structure.Struct
# AutoGraph would rewrite our code, whose conditions contain no tensors.
_as_it_is = tf.autograph.experimental.do_not_convert
_NO_LOCK = contextlib.nullcontext()


class Way(enum.Enum):
  """How computations of clients become part of a graph.

  Attributes:
    AT_ONCE: Pure functions of listed operations only, for many clients at
      once.
    PURE: Pure functions, for one client after the other.
    SESSIONS: Graphs as they are. Variables and tables start anew for each
      client, as in a session of TFF's runtime.
  """

  AT_ONCE = enum.auto()
  PURE = enum.auto()
  SESSIONS = enum.auto()


class GraphInterpreter(interpreter.Interpreter):
  """Computes nodes with tensors of the current graph.

  Attributes:
    variables: Variables of all computations that were stamped so far.
    seeded_operations: Random operations with a state and a fixed seed.
    way: How computations become part of the graph.
    own_zero: Number 0 of each client inside `tf.vectorized_map`, else None.
  """

  def __init__(self, cache: graphs.GraphCache, scope: str, device: str):
    self._cache = cache
    self._scope = scope
    self._device = device
    self._num_stamped = itertools.count()
    self._known = {}
    self.variables = []
    self.seeded_operations = []
    self.way = Way.SESSIONS
    self.own_zero = None

  def set(self, node: schedule.Node, value) -> None:
    self._known[node] = value

  def value(self, symbolic):
    """Returns the value of a node, or of a struct or function of nodes."""
    if isinstance(symbolic, Struct):
      return values.map_leaves(self.value, symbolic)
    if isinstance(symbolic, interpreter.Function):
      scope = {name: self.value(item) for name, item in symbolic.scope.items()}
      return interpreter.Function(symbolic.block, scope)
    return self._known[symbolic]

  def compute(self, node: schedule.Node) -> None:
    """Computes a node from its inputs, which must be known."""
    operation = node.operation
    inputs = [self.value(symbolic) for symbolic in node.inputs]
    if isinstance(operation, schedule.Call):
      result = self.call_tensorflow(
          operation.block, inputs[0] if inputs else None
      )
    elif isinstance(operation, schedule.Pick):
      result = inputs[0][operation.index]
    elif isinstance(operation, interpreter.Literal):
      result = self.literal(operation)
    elif isinstance(operation, interpreter.Intrinsic):
      result = self.call_intrinsic(operation, inputs[0])
    else:
      result = self._select(*inputs)
    self.set(node, result)

  def call_tensorflow(self, block, argument):
    # Each stamp has its own variables, even of the same computation.
    graph = self._cache.get(block)
    if self.way is not Way.SESSIONS:
      return graph.inlined(
          argument,
          is_vectorized=self.way is Way.AT_ONCE,
          own_zero=self.own_zero,
      )
    result, variables = graph.stamp(
        argument,
        scope=f'{self._scope}_{next(self._num_stamped)}',
        device=self._device,
    )
    self.variables.extend(variables)
    self.seeded_operations.extend(graph.seeded_operations)
    return result

  def pick(self, value, index):
    return value[index]

  def literal(self, literal):
    return tf.constant(literal.value, literal.type_spec.dtype)

  def call_intrinsic(self, intrinsic, argument):
    if intrinsic.uri == 'sequence_map':
      return self._sequence_map(intrinsic.type_spec, *argument)
    if intrinsic.uri == 'sequence_reduce':
      return self._sequence_reduce(intrinsic.type_spec, *argument)
    return _sequence_sum(intrinsic.type_spec.result, argument)

  def _sequence_map(self, type_spec, function, dataset):
    function_type, spec = type_spec.parameter[0], dataset.element_spec

    @_as_it_is
    def map_fn(*parts):
      # `Dataset.map` takes apart plain tuples only.
      element = parts if type(spec) is tuple else parts[0]  # pylint: disable=unidiomatic-typecheck
      result = self.apply(
          function, values.from_element(element, function_type.parameter)
      )
      return values.to_element(result, function_type.result)

    with tf.device(datasets.DATASET_DEVICE):
      return dataset.map(map_fn)

  def _sequence_reduce(self, type_spec, dataset, zero, function):
    zero_type = type_spec.parameter[1]
    element_type = type_spec.parameter[0].element

    @_as_it_is
    def reduce_fn(state, element):
      argument = Struct.unnamed(
          values.from_element(state, zero_type),
          values.from_element(element, element_type),
      )
      return values.to_element(self.apply(function, argument), zero_type)

    # A GPU would start the function with elements in the CPU's memory.
    with tf.device(datasets.DATASET_DEVICE):
      total = dataset.reduce(values.to_element(zero, zero_type), reduce_fn)
    return values.from_element(total, zero_type)

  def _select(self, keys, max_key, server_value, function):
    result_type = function.block.type_signature.result

    @_as_it_is
    def slice_of(key):
      argument = Struct.unnamed(server_value, key)
      return values.to_element(self.apply(function, argument), result_type)

    if self.way is Way.SESSIONS:
      return selections.as_dataset(keys, max_key, slice_of)
    return selections.as_columns(keys, max_key, slice_of)


def _sequence_sum(type_spec: tff.Type, dataset: tf.data.Dataset):
  """Returns the sum of the elements, or zeros for an empty sequence."""
  zeros = tf.nest.map_structure(
      lambda spec: tf.zeros(spec.shape, spec.dtype), dataset.element_spec
  )

  @_as_it_is
  def add(total, element):
    return tf.nest.map_structure(tf.add, total, element)

  with tf.device(datasets.DATASET_DEVICE):
    return values.from_element(dataset.reduce(zeros, add), type_spec)


class TracedFunction:
  """A function of flat lists of tensors that can be cancelled while it runs.

  Attributes:
    device: Device of kernels that are not bound to another one.
    results: Skeletons of the returned values: their structures without the
      tensors, see `values.skeleton_of`.
    seeded_operations: Names of the random operations with a fixed seed.
  """

  def __init__(
      self,
      body: Callable[[GraphInterpreter, list[tf.Tensor]], list],
      specs: list[tf.TensorSpec],
      *,
      cache: graphs.GraphCache,
      scope: str,
      device: str,
  ):
    """Traces `body`, which maps flat arguments to a list of values.

    Args:
      body: Function to trace.
      specs: Specs of the flat arguments.
      cache: Graphs of the computations that `body` may call.
      scope: Part of the names of variables.
      device: Device of kernels that are not bound to another one.
    """
    interpreting = GraphInterpreter(cache, scope, device)

    def flat_body(*tensors):
      results = body(interpreting, list(tensors))
      self.results = [values.skeleton_of(result) for result in results]
      return values.flatten(Struct.unnamed(*results))

    with tf.device(None):
      self._function = calls.Function(flat_body, specs)
      self._device_of_call = device
      if any(t.dtype == tf.variant for t in self._function.outputs):
        # A result is where its function is, and an iterator where its dataset
        # is. A GPU would start the functions of the dataset with elements that
        # are in the CPU's memory. So the CPU calls, and the device works.
        self._function = self._function.called_on(device)
        self._device_of_call = datasets.DATASET_DEVICE
    self._variables = interpreting.variables
    self.device = device
    # Only one run at a time may use the variables.
    self._turn = threading.Lock() if self._variables else _NO_LOCK
    self.seeded_operations = interpreting.seeded_operations

  def __call__(self, tensors: list[tf.Tensor], *, cancellation):
    """Returns the flat results.

    Args:
      tensors: Flat arguments.
      cancellation: TensorFlow's cancellation manager of this run. An error
        cancels it, so each run needs its own.
    """
    with self._turn, tf.device(self._device_of_call):
      return self._function(tensors, cancellation=cancellation)

  @property
  def has_variables(self) -> bool:
    """Whether the function has variables, which only one run at a time may use.
    """
    return bool(self._variables)

  def release(self) -> None:
    """Frees the graph and the memory of its variables."""
    with tf.device(self.device):
      for variable in self._variables:
        handle = tf.raw_ops.VarHandleOp(
            dtype=variable.dtype,
            shape=variable.shape,
            shared_name=variable.shared_name,
        )
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
    # Cleared here, since a reference cycle would keep it until TensorFlow's
    # modules are gone.
    self._function = None
