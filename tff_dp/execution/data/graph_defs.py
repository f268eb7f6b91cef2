# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serialized graphs: ways through them, and what they may contain.

A graph that runs in this process may not keep state from one call to the next,
and may not call a Python function. A graph names a Python function by a number,
which is valid only in the process that made it, and only until the function is
garbage-collected.
"""

from collections.abc import Callable, Iterable, Iterator

import tensorflow as tf

from tff_dp import _compat_tensorflow
from tff_dp.execution import errors

_op_def_registry = _compat_tensorflow.private_tensorflow('op_def_registry')

# They call back into Python.
PYTHON_OPERATIONS = frozenset(
    ['PyFunc', 'PyFuncStateless', 'EagerPyFunc', 'NumpyFunc']
)
# Loops and conditionals of TensorFlow 1.
OLD_CONTROL_FLOW = frozenset(
    ['Enter', 'Exit', 'Merge', 'NextIteration', 'Switch', 'LoopCond']
)
# A table with one of the replacement operations lives until its last user is
# gone. The others live as long as the process, and cannot be filled a second
# time.
_OF_ONE_CALL = {
    'HashTableV2': 'AnonymousHashTable',
    'MutableHashTableV2': 'AnonymousMutableHashTable',
    'MutableHashTableOfTensorsV2': 'AnonymousMutableHashTableOfTensors',
    'MutableDenseHashTableV2': 'AnonymousMutableDenseHashTable',
}
TABLES = frozenset(_OF_ONE_CALL)
CALL_TABLES = frozenset(_OF_ONE_CALL.values())
_NAMING_ATTRIBUTES = ('container', 'shared_name', 'use_node_name_sharing')
# Operation -> replacement for the user. Their state belongs to the kernel,
# which outlives a call, so a second client would find the state of the first
# one.
_STATE_IN_KERNEL = {
    'OneShotIterator': 'a `for` loop over the dataset, or `Dataset.reduce`',
    'OneShotIteratorV2': 'a `for` loop over the dataset, or `Dataset.reduce`',
    'Variable': '`tf.Variable`',
    'VariableV2': '`tf.Variable`',
    'HashTable': '`tf.lookup.StaticHashTable`',
}


def all_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator:
  """Yields the nodes of a graph and of the functions in its library."""
  yield from graph_def.node
  for function in graph_def.library.function:
    yield from function.node_def


def function_attributes(node) -> Iterator:
  """Yields the places in a node's attributes that name a function."""
  for attribute in node.attr.values():
    if attribute.HasField('func'):
      yield attribute.func
    for function in attribute.list.func:
      yield function


def called(nodes: Iterable, functions: dict) -> Iterator[str]:
  """Yields the names of the given functions that nodes call."""
  for node in nodes:
    if node.op in functions:
      yield node.op
    for place in function_attributes(node):
      if place.name in functions:
        yield place.name


def reached(starts: Iterable, following: Callable[..., Iterable]) -> set:
  """Returns the starts, and all that follows them, directly or not.

  Args:
    starts: Where to start, such as names of nodes.
    following: Function from one of them to those that follow it.
  """
  found, waiting = set(), list(starts)
  while waiting:
    one = waiting.pop()
    if one not in found:
      found.add(one)
      waiting.extend(following(one))
  return found


def called_by(nodes: Iterable, functions: dict) -> set[str]:
  """Returns the names of the given functions that nodes call, directly or not.
  """
  return reached(
      called(nodes, functions),
      lambda name: called(functions[name].node_def, functions),
  )


def op_def(operation: str):
  """Returns TensorFlow's definition of an operation, or None."""
  return _op_def_registry.get(operation)


def is_stateful(operation: str) -> bool:
  """Returns whether TensorFlow calls an operation stateful, or lacks it."""
  definition = op_def(operation)
  return definition is None or definition.is_stateful


def is_seeded(node) -> bool:
  """Returns whether a node is a random operation with state and a seed."""
  seeds = [node.attr[name].i for name in ('seed', 'seed2') if name in node.attr]
  return any(seeds)


def refuse_python(nodes: Iterable, where: str) -> None:
  """Refuses operations that call a Python function.

  Args:
    nodes: Nodes to check.
    where: Name of their owner in the error.

  Raises:
    UnsupportedComputationError: If a node calls a Python function.
  """
  for node in nodes:
    if node.op in PYTHON_OPERATIONS:
      raise errors.UnsupportedComputationError(
          f'a Python function in {where} (the node {node.name!r} of'
          ' `tf.py_function`, `tf.numpy_function` or `Dataset.from_generator`)',
          instead='TensorFlow operations, or a list of the elements',
      )


def confine(graph_def: tf.compat.v1.GraphDef, where: str) -> None:
  """Limits the life of every lookup table to the length of a call.

  Args:
    graph_def: Graph, which is changed.
    where: Name of the graph in the error.

  Raises:
    UnsupportedComputationError: If the graph has state that cannot be confined
      to a call, or calls a Python function.
  """
  refuse_python(all_nodes(graph_def), where)
  for node in all_nodes(graph_def):
    if node.op in _STATE_IN_KERNEL:
      raise errors.UnsupportedComputationError(
          f'the operation {node.op} (node {node.name!r})',
          instead=_STATE_IN_KERNEL[node.op],
      )
    if node.op in _OF_ONE_CALL:
      node.op = _OF_ONE_CALL[node.op]
      for name in _NAMING_ATTRIBUTES:
        node.attr.pop(name, None)


def node_of(tensor: str) -> str:
  """Returns the node in a name such as 'node:1', 'node:output:1' or '^node'."""
  return tensor.lstrip('^').split(':')[0]


def source(tensor: str) -> tuple[str, str]:
  """Returns (node or argument of a tensor, index of the output)."""
  name, *rest = tensor.split(':')
  return name, rest[-1] if rest else '0'
