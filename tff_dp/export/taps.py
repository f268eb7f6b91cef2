# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Runs a round, and also returns the values that are marked as noised.

These are the marks that `data_flow` trusts, in the graph of a computation or in
a function that it calls. `tapped` makes a graph return the marked values.
`Rounds` runs the computations of a process one by one, without a TFF context,
because a context returns only the results of the process.

This runs graphs. Use it only for graphs that were checked, in a process that
may run them.
"""

import functools
import itertools
import operator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.aggregators import release_marks
from tff_dp.execution.compiling import graphs
from tff_dp.execution.compiling import interpreter
from tff_dp.execution.data import values
from tff_dp.program.files import process_files

_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
_numbers = itertools.count()
Struct = tff.structure.Struct


def tapped(
    graph_def: tf.compat.v1.GraphDef,
) -> tuple[tf.compat.v1.GraphDef, list[str]]:
  """Returns a copy of a graph, and the names of its marked tensors.

  If a marked value is inside a function, the calls of that function also return
  it in the copy. So every name stands for a tensor of the graph itself.
  """
  changed = tf.compat.v1.GraphDef()
  changed.CopyFrom(graph_def)
  functions = {f.signature.name: f for f in graph_def.library.function}
  copies = changed.library

  def taps_of(nodes, form: str) -> list[tuple[str, int]]:
    """Changes calls of marked functions. Returns each mark's (tensor, type)."""
    found = []
    for node in nodes:
      if release_marks.Release.parse(node.name) is not None:
        if node.op == 'Identity':
          found.append((form.format(node.name, 'output', 0), node.attr['T'].type))
      elif node.op in _CALLS:
        called = functions.get(node.attr['f'].func.name)
        if called is None or not _has_mark(functions, called, set()):
          continue
        copy = copies.function.add()
        copy.CopyFrom(called)
        copy.signature.name += f'_{len(copies.function)}'
        first = len(copy.signature.output_arg)
        inner = taps_of(copy.node_def, '{}:{}:{}')
        for number, (tensor, kind) in enumerate(inner):
          name = f'tff_dp_tap_{number}'
          copy.signature.output_arg.add(name=name, type=kind)
          copy.ret[name] = tensor
          node.attr['Tout'].list.type.append(kind)
          place = form.format(node.name, 'output', first + number)
          found.append((place, kind))
        node.attr['f'].func.name = copy.signature.name
        node.attr.pop('_output_shapes', None)
    return found

  names = [tensor for tensor, _ in taps_of(changed.node, '{0}:{2}')]
  return changed, names


def _has_mark(functions, function, seen: set[str]) -> bool:
  """Returns whether a function, or one that it calls, has a mark."""
  if function.signature.name in seen:
    return False
  seen.add(function.signature.name)
  for node in function.node_def:
    if release_marks.Release.parse(node.name) is not None:
      return True
    if node.op in _CALLS:
      called = functions.get(node.attr['f'].func.name)
      if called is not None and _has_mark(functions, called, seen):
        return True
  return False


class Rounds(interpreter.Interpreter):
  """Runs `next` of a process with eager tensors."""

  def __init__(self, next_computation: tff.Computation):
    """Initializes the rounds.

    Args:
      next_computation: The `next` of a learning process.
    """
    self._block = next_computation.to_building_block()
    self._functions = {}
    self._marked, self._num_clients = [], 0

  def run(self, state: Any, data: list[Any]) -> tuple[Any, list[np.ndarray]]:
    """Returns the next state, and the marked values as they were computed.

    Args:
      state: A state that `state` or `run` returned.
      data: Data of each client, as Python values of their type.
    """
    _, data_type = self._block.type_signature.parameter
    self._num_clients, self._marked = len(data), []
    clients = [
        values.from_python(each, data_type.member, where='data') for each in data
    ]
    result = self.apply(
        self.evaluate(self._block, {}),
        Struct([(None, state), (None, clients)]),
    )
    return result[0], [tensor.numpy() for tensor in self._marked]

  def state(self, value: Any) -> Any:
    """Returns a Python value as a state that `run` takes."""
    state_type, _ = self._block.type_signature.parameter
    return values.from_python(value, state_type.member, where='state')

  def pick(self, value, index):
    return value[index]

  def literal(self, literal):
    return tf.constant(literal.value, literal.type_spec.dtype)

  def call_tensorflow(self, block, argument):
    key = id(block)
    if key not in self._functions:
      self._functions[key] = (block, _Function(block))
    result, marked = self._functions[key][1](argument)
    self._marked += marked
    return result

  def call_intrinsic(self, intrinsic, argument):
    uri, result_type = intrinsic.uri, intrinsic.type_spec.result
    if uri in ('federated_map', 'federated_map_all_equal'):
      return [self.apply(argument[0], each) for each in argument[1]]
    if uri == 'federated_apply':
      return self.apply(*argument)
    if uri == 'federated_eval_at_clients':
      return [self.apply(argument, None) for _ in range(self._num_clients)]
    if uri == 'federated_eval_at_server':
      return self.apply(argument, None)
    if uri in ('federated_broadcast', 'federated_value_at_clients'):
      return [argument] * self._num_clients
    if uri in ('federated_value_at_server', 'federated_zip_at_server'):
      return argument
    if uri == 'federated_zip_at_clients':
      return [_of_client(argument, n) for n in range(self._num_clients)]
    if uri == 'federated_sum':
      return _sum(argument, result_type.member)
    if uri.startswith('federated_secure_sum'):
      return _sum(argument[0], result_type.member)
    if uri == 'federated_secure_modular_sum':
      total = _sum(argument[0], result_type.member)
      return _each(operator.mod, total, argument[1])
    if uri == 'federated_aggregate':
      each, total, accumulate, _, report = argument
      for value in each:
        total = self.apply(accumulate, Struct([(None, total), (None, value)]))
      return self.apply(report, total)
    if uri == 'federated_select':
      return self._select(*argument)
    raise NotImplementedError(f'{uri} cannot be run here')

  def _select(self, all_keys, unused_max_key, server_value, function):
    slice_type = function.block.type_signature.result

    def slice_of(key):
      argument = Struct([(None, server_value), (None, key)])
      return values.to_element(self.apply(function, argument), slice_type)

    return [
        tf.data.Dataset.from_tensor_slices(
            tf.nest.map_structure(
                lambda *parts: tf.stack(parts), *map(slice_of, tf.unstack(keys))
            )
        )
        for keys in all_keys
    ]


class _Function:
  """A TensorFlow computation that also returns its marked values."""

  def __init__(self, block: tff.framework.CompiledComputation):
    source = block.proto.tensorflow
    graph_def, taps = tapped(process_files.unpacked(source.graph_def))
    # TensorFlow knows only one function of a name in all graphs together.
    graphs.rename_functions(graph_def, f'tapped_{next(_numbers)}')
    self._skeleton = values.skeleton_of_type(block.type_signature.result)
    parameters = list(graphs.tensor_names(source.parameter))
    results = list(graphs.tensor_names(source.result))
    self._num_results = len(results)
    token = source.session_token_tensor_name
    self._tokens = [tf.constant('')] if token else []
    wrapped = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(graph_def, name=''), []
    )

    def pruned(fetched: list[str]):
      feeds = [*parameters, *([token] if token else [])]
      graph = wrapped.graph
      return wrapped.prune(
          [graph.as_graph_element(name) for name in feeds],
          [graph.as_graph_element(name) for name in fetched],
      )

    self._call = pruned([*results, *taps])
    self._initialize = None
    if source.initialize_op:
      self._initialize = wrapped.prune([], [
          wrapped.graph.as_graph_element(source.initialize_op)
      ])

  def __call__(self, argument) -> tuple[Any, list[tf.Tensor]]:
    if self._initialize is not None:
      self._initialize()
    flat = [] if argument is None else values.flatten(argument)
    found = self._call(*flat, *self._tokens)
    results, marked = found[: self._num_results], found[self._num_results :]
    return values.pack(self._skeleton, list(results)), list(marked)


def _of_client(value, client: int):
  return values.map_leaves(lambda part: part[client], value)


def _zeros(type_spec):
  if isinstance(type_spec, tff.StructType):
    return Struct([
        (name, _zeros(element))
        for name, element in tff.structure.iter_elements(type_spec)
    ])
  return tf.zeros(type_spec.shape, type_spec.dtype)


def _sum(each: list[Any], type_spec):
  return functools.reduce(
      lambda total, value: _each(operator.add, total, value),
      each,
      _zeros(type_spec),
  )


def _each(function, first, second):
  """Applies the function to the tensors at the same places of two values."""
  if not isinstance(first, Struct):
    return function(first, second)
  return Struct([
      (name, _each(function, part, second[index]))
      for index, (name, part) in enumerate(tff.structure.iter_elements(first))
  ])
