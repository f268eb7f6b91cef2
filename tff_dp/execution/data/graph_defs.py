# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a serialized TensorFlow graph may hold when it runs in this process.

State and Python functions are the two that cross the border of a call: what a
kernel keeps, the next call would find, and a Python function is known to its
process by a number only, until it is collected.
"""

from collections.abc import Iterable, Iterator

import tensorflow as tf

from tff_dp.execution import errors

# They call back into Python.
PYTHON_OPERATIONS = frozenset(
    ['PyFunc', 'PyFuncStateless', 'EagerPyFunc', 'NumpyFunc']
)
# A table with this operation lives until its last user is gone. The others live
# as long as the process, and cannot be filled a second time.
_OF_ONE_CALL = {
    'HashTable': 'AnonymousHashTable',
    'HashTableV2': 'AnonymousHashTable',
    'MutableHashTableV2': 'AnonymousMutableHashTable',
    'MutableHashTableOfTensorsV2': 'AnonymousMutableHashTableOfTensors',
    'MutableDenseHashTableV2': 'AnonymousMutableDenseHashTable',
}
TABLES = frozenset(_OF_ONE_CALL)
CALL_TABLES = frozenset(_OF_ONE_CALL.values())
_NAMING_ATTRIBUTES = ('container', 'shared_name', 'use_node_name_sharing')
# Operation -> what to use instead. Their state belongs to the kernel, which
# outlives a call, so a second client would find what the first one left.
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
  """Yields the names of those of `functions` that nodes call."""
  for node in nodes:
    if node.op in functions:
      yield node.op
    for place in function_attributes(node):
      if place.name in functions:
        yield place.name


def is_seeded(node) -> bool:
  """Returns whether a node is a random operation with state and a seed."""
  seeds = [node.attr[name].i for name in ('seed', 'seed2') if name in node.attr]
  return any(seeds)


def refuse_python(nodes: Iterable, where: str) -> None:
  """Refuses operations that call a Python function.

  Args:
    nodes: The nodes to look at.
    where: What they belong to, for the error.

  Raises:
    UnsupportedComputationError: There is one.
  """
  for node in nodes:
    if node.op in PYTHON_OPERATIONS:
      raise errors.UnsupportedComputationError(
          f'a Python function in {where} (the node {node.name!r} of'
          ' `tf.py_function`, `tf.numpy_function` or `Dataset.from_generator`)',
          instead='TensorFlow operations, or a list of the elements',
      )


def confine(graph_def: tf.compat.v1.GraphDef, where: str) -> None:
  """Lets every lookup table live for the length of a call.

  Args:
    graph_def: Is changed.
    where: What it is, for the error.

  Raises:
    UnsupportedComputationError: It has state that cannot be confined, or calls
      a Python function.
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


def source(tensor: str) -> tuple[str, str]:
  """Returns the node or argument, and the index of its output."""
  name, *rest = tensor.split(':')
  return name, rest[-1] if rest else '0'
