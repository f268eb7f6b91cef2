# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks the effects of foreign graphs by reading them, without running them.

Every operation of a graph and of its functions, called or not, must be in
`allowed_operations`. Two exceptions are recognised by their surroundings:

*   `TextLineDataset`, if its inputs and the use of its lines are as in
    `streams.random_root_key`, which reads the kernel's random file.
*   Operations of checkpoints in the functions that save and restore a
    SavedModel, if the caller of these functions gives the name of the file.

TensorFlow folds constants when it imports a graph, which runs operations. So
TensorFlow must not import a graph before it is checked.
"""

from collections.abc import Iterator, Mapping
import functools
import hashlib
import math
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _compat_tensorflow
from tff_dp import streams
from tff_dp.execution.data import graph_defs
from tff_dp.export import allowed_operations
from tff_dp.program.files import process_files

_op_def_registry = _compat_tensorflow.private_tensorflow('op_def_registry')
# The operation that returns the line, and the operation that reads it.
_READ, _READER = 'DatasetToSingleElement', 'TextLineDataset'
_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
# Attributes of a node that do not change its result.
_REMARKS = frozenset([
    'Targuments', 'config', 'config_proto', 'executor_type', 'metadata',
    'output_shapes', 'parallel_copy', 'replicate_on_split',
])
_OPAQUE_TYPES = (tf.variant.as_datatype_enum, tf.resource.as_datatype_enum)
# In constants that are not written out.
_MOST_EQUAL_NUMBERS = 2**27
_GRAPH_DEF_URL = 'type.googleapis.com/tensorflow.GraphDef'
_OPERATORS = frozenset([
    'federated_aggregate', 'federated_apply', 'federated_broadcast',
    'federated_eval_at_clients', 'federated_eval_at_server', 'federated_map',
    'federated_map_all_equal', 'federated_max', 'federated_min',
    'federated_secure_modular_sum', 'federated_secure_select',
    'federated_secure_sum', 'federated_secure_sum_bitwidth',
    'federated_select', 'federated_sum', 'federated_value_at_clients',
    'federated_value_at_server', 'federated_weighted_mean', 'federated_mean',
    'federated_zip_at_clients', 'federated_zip_at_server', 'sequence_map',
    'sequence_reduce', 'sequence_sum', 'generic_plus', 'generic_zero',
])


class NotAllowedError(ValueError):
  """Raised if a graph may do more than compute, such as write a file.

  The message says what it may do.
  """


def check_computation(proto: Any) -> None:
  """Raises unless the proto of a TFF computation does nothing but compute.

  Args:
    proto: A `Computation` proto of TFF, as read from a file.

  Raises:
    NotAllowedError: If a graph, a federated operator or another part of the
      computation is not allowed (see `check_graph`). The message names the
      first fault.
  """
  for part in process_files.parts(proto):
    kind = part.DESCRIPTOR.full_name
    if kind == process_files.ANY:
      if part.type_url != _GRAPH_DEF_URL:
        raise NotAllowedError(f'it holds a {part.type_url}, not a graph')
      check_graph(process_files.unpacked(part))
    elif part.DESCRIPTOR.name in ('Data', 'Xla', 'XLA'):
      raise NotAllowedError(f'it has a part of the kind {part.DESCRIPTOR.name}')
    elif part.DESCRIPTOR.name == 'Intrinsic' and part.uri not in _OPERATORS:
      raise NotAllowedError(f'the operator {part.uri} is not allowed')


def nodes_of(computation: tff.Computation) -> Iterator[Any]:
  """Yields all nodes of all graphs of a computation."""
  for graph_def in process_files.graphs_of(computation):
    yield from graph_defs.all_nodes(graph_def)


def check_graph(
    graph_def: tf.compat.v1.GraphDef,
    exempt: frozenset[tuple[str, str]] = frozenset(),
) -> None:
  """Raises unless a graph and its functions do nothing but compute.

  Args:
    graph_def: The graph.
    exempt: Pairs (function or '', node) that were checked elsewhere.

  Raises:
    NotAllowedError: If an operation, a constant, an attribute, a device or the
      name of a function is not allowed. The message names the first fault.
  """
  functions = [f.signature.name for f in graph_def.library.function]
  if len(set(functions)) < len(functions):
    raise NotAllowedError('two functions have the same name')
  for name in functions:
    if hasattr(tf.raw_ops, name):
      raise NotAllowedError(
          f'a function is named like the TensorFlow operation {name}'
      )
  known = frozenset(functions)
  for gradient in graph_def.library.gradient:
    _check_known(known, gradient.function_name, gradient.gradient_func)
  reading = None
  readers = {_READER} | {
      function.signature.name
      for function in graph_def.library.function
      if any(node.op == _READER for node in function.node_def)
  }
  for scope, nodes in _scopes(graph_def):
    for node in nodes:
      if not readers.isdisjoint(named_functions(node)):
        if reading is None:
          reading = _reading_of_keys(graph_def)
        if (scope, node.name) not in reading:
          raise _not_allowed(_READER, scope, node)
      elif node.op not in allowed_operations.NAMES and node.op not in known:
        if (scope, node.name) not in exempt:
          raise _not_allowed(node.op, scope, node)
      _check_attributes(node.attr, known)
      if 'job:' in node.device and 'job:localhost' not in node.device:
        raise NotAllowedError(
            f'{node.name} runs on another machine, {node.device}'
        )
  for function in graph_def.library.function:
    _check_attributes(function.attr, known)
    if function.signature.name in readers:
      # By such names TensorFlow replaces one function with another.
      for name in function.attr:
        if not name.startswith('_'):
          raise NotAllowedError(
              f'a function that reads a file has the attribute {name}, by which'
              ' TensorFlow might replace the function'
          )


def _not_allowed(operation: str, scope: str, node) -> NotAllowedError:
  where = f'{scope}/{node.name}' if scope else node.name
  return NotAllowedError(f'the operation {operation} ({where}) is not allowed')


def all_nodes(graph_def) -> Iterator[tuple[str, Any]]:
  """Yields (function or '', node) for all nodes of a graph."""
  for scope, nodes in _scopes(graph_def):
    for node in nodes:
      yield scope, node


def named_functions(node) -> list[str]:
  """Returns the names of the functions that a node may call.

  A node may call the functions that its attributes name. Its operation may be a
  function, too. So the name of the operation is always in the list.
  """
  return [
      *(place.name for place in graph_defs.function_attributes(node)), node.op
  ]


def argument(name: str) -> str:
  """Returns the digest of a function's argument."""
  return _digest(['argument', name])


def _scopes(graph_def) -> Iterator[tuple[str, Any]]:
  """Yields ('', nodes of the graph), then (function, its nodes) for each one.
  """
  yield '', graph_def.node
  for function in graph_def.library.function:
    yield function.signature.name, function.node_def


def _check_known(known: frozenset[str], *names: str) -> None:
  for name in names:
    # An empty name calls nothing.
    if name and name not in known:
      raise NotAllowedError(f'it calls {name}, but has no such function')


def _check_attributes(attributes: Mapping[str, Any], known) -> None:
  """Raises if an attribute calls or holds anything that was not checked."""
  for attribute in attributes.values():
    for place in [attribute.func, *attribute.list.func]:
      _check_known(known, place.name)
      if place.attr:
        _check_attributes(place.attr, known)
    for tensor in [attribute.tensor, *attribute.list.tensor]:
      if tensor.dtype in _OPAQUE_TYPES:
        raise NotAllowedError(
            'a constant holds something other than numbers and text'
        )
      # One number may stand for all of a shape.
      size = math.prod(dimension.size for dimension in tensor.tensor_shape.dim)
      if size > max(_MOST_EQUAL_NUMBERS, len(tensor.tensor_content)):
        raise NotAllowedError(
            f'a constant repeats a number {size} times, and at most'
            f' {_MOST_EQUAL_NUMBERS} are allowed'
        )


def _reading_of_keys(graph_def) -> set[tuple[str, str]]:
  """Returns the nodes that read the kernel's random file as our keys do."""
  found = set()
  for scope, nodes in _scopes(graph_def):
    expressions = Expressions(graph_def)
    for node in nodes:
      if node.op == _READ:
        cone = expressions.cone(scope, node.name)
        if expressions.of(scope, node.name) == _our_key()[1]:
          found |= cone
  return found


class Expressions:
  """Digests of the expressions that compute the tensors of a graph.

  Two tensors with the same digest are computed by the same operations with the
  same constants. These do not count: names of nodes and functions, control
  edges, `Identity`, a `Reshape` of a constant that changes nothing, and
  attributes that do not change the result.
  """

  def __init__(self, graph_def: tf.compat.v1.GraphDef):
    self._scopes = {
        scope: {node.name: node for node in nodes}
        for scope, nodes in _scopes(graph_def)
    }
    self._functions = {f.signature.name: f for f in graph_def.library.function}
    self._arguments = {
        name: {argument.name for argument in function.signature.input_arg}
        for name, function in self._functions.items()
    }
    self._known = {}

  def of(self, scope: str, tensor: str, given=None) -> str:
    """Returns the digest of a tensor.

    Args:
      scope: Name of a function, '' for the graph.
      tensor: Name of the tensor in the scope.
      given: Digests of arguments of the function, or of placeholders, by name.

    Raises:
      NotAllowedError: If the tensor is computed from itself, or from a node
        that does not exist.
    """
    given = given or {}
    return self._of(scope, tensor, given, _digest(sorted(given.items())))

  def cone(self, scope: str, name: str) -> set[tuple[str, str]]:
    """Returns a node and all nodes that it is computed from in its scope.

    If an attribute of a node names a function, the nodes in that function are
    included. If the operation of a node is a function, its nodes are not.
    """
    found, waiting = set(), [(scope, name)]
    while waiting:
      place = waiting.pop()
      node = self._scopes[place[0]].get(place[1])
      if place in found or node is None:
        continue
      found.add(place)
      waiting += [
          (place[0], graph_defs.source(tensor)[0])
          for tensor in _data_inputs(node)
      ]
      for function in graph_defs.function_attributes(node):
        waiting += [
            (function.name, inner)
            for inner in self._scopes.get(function.name, ())
        ]
    return found

  def _of(self, scope: str, tensor: str, given, context: str) -> str:
    name, index = graph_defs.source(tensor)
    if name in given:
      return given[name]
    place = (scope, context, name, index)
    if place not in self._known:
      self._known[place] = None  # Detects a tensor that needs itself.
      self._known[place] = self._find(scope, name, index, given, context)
    if self._known[place] is None:
      raise NotAllowedError(f'{name} is computed from itself')
    return self._known[place]

  def _find(self, scope, name, index, given, context) -> str:
    node = self._scopes[scope].get(name)
    if node is None:
      if name in self._arguments.get(scope, ()):
        return argument(name)
      raise NotAllowedError(f'{name} is no node')
    inputs = [
        self._of(scope, tensor, given, context) for tensor in _data_inputs(node)
    ]
    if node.op == 'Identity':
      return inputs[0]
    if node.op == 'Reshape':
      # TFF's compiler leaves out a Reshape that changes nothing.
      value, shape = [
          self._scopes[scope].get(graph_defs.source(tensor)[0])
          for tensor in _data_inputs(node)
      ]
      if value is not None and _is_of_shape(value, shape):
        return inputs[0]
    if node.op in _CALLS:
      return self._called(node.attr['f'].func.name, inputs, int(index))
    if node.op in self._functions:
      return self._called(node.op, inputs, int(index))
    if node.op == 'Const':
      return constant(_value_of(node))
    return _digest([node.op, index, inputs, self._described(node)])

  def _called(self, name: str, inputs: list[str], index: int) -> str:
    function = self._functions[name]
    arguments = [argument.name for argument in function.signature.input_arg]
    output = function.signature.output_arg[index].name
    return self.of(
        name, function.ret[output], dict(zip(arguments, inputs, strict=True))
    )

  def _described(self, node) -> list[Any]:
    described = []
    definition = _op_def_registry.get(node.op)
    defaults = {
        each.name: each.default_value
        for each in (definition.attr if definition else ())
        if each.HasField('default_value')
    }
    for name, attribute in sorted(node.attr.items()):
      if name in _REMARKS or name.startswith('_'):
        continue
      if attribute == defaults.get(name):
        continue  # A SavedModel leaves out defaults.
      if attribute.HasField('func'):
        function = self._functions[attribute.func.name]
        arguments = {
            argument.name: f'argument {number}'
            for number, argument in enumerate(function.signature.input_arg)
        }
        content = [
            self.of(attribute.func.name, function.ret[output.name], arguments)
            for output in function.signature.output_arg
        ]
      else:
        content = attribute.SerializeToString(deterministic=True).hex()
      described.append([name, content])
    return described


def _data_inputs(node) -> list[str]:
  return [tensor for tensor in node.input if not tensor.startswith('^')]


def _value_of(node) -> np.ndarray:
  """Returns the value of a constant."""
  try:
    return tf.make_ndarray(node.attr['value'].tensor)
  except (TypeError, ValueError) as error:
    raise NotAllowedError(
        f'the constant {node.name} has no value of a known type'
    ) from error


def _is_of_shape(node, shape) -> bool:
  """Returns whether a constant already has the shape in another constant."""
  if node.op != 'Const' or shape is None or shape.op != 'Const':
    return False
  value = _value_of(node)
  to_shape = _value_of(shape).ravel().tolist()
  return value.ndim == 1 and to_shape in ([-1], [value.size])


def constant(value: Any) -> str:
  """Returns the digest of a constant."""
  return _digest(['Const', _described_array(np.asarray(value))])


def _described_array(value: np.ndarray) -> list[Any]:
  return [str(value.dtype), list(value.shape), repr(value.ravel().tolist())]


def _digest(content: Any) -> str:
  return hashlib.sha256(repr(content).encode()).hexdigest()


@functools.cache
def _our_key() -> tuple[str, str]:
  """Returns the digests of our key, and of the node that reads its bytes."""

  @tff.tensorflow.computation
  @tf.function(autograph=False)
  def key():
    return streams.random_root_key()

  source = tff.framework.serialize_computation(key).tensorflow
  graph_def = process_files.unpacked(source.graph_def)
  expressions = Expressions(graph_def)
  read = [
      expressions.of(scope, node.name)
      for scope, nodes in _scopes(graph_def)
      for node in nodes
      if node.op == _READ
  ]
  return expressions.of('', source.result.tensor.tensor_name), *read


def is_our_key(digest: str) -> bool:
  """Returns whether a digest belongs to a key that `streams` makes."""
  return digest == _our_key()[0]
