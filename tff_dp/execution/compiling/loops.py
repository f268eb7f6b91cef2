# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reductions of datasets in serialized graphs, turned into iterator loops.

`Dataset.reduce` is one operation, `ReduceDataset`. In every call its kernel
instantiates the function of a step again, and its iterator copies the library
of functions. For a small client, each of the two takes longer than training. A
`for` loop is a `ScanDataset` with a `ReduceDataset` after it. Before this
module runs, `scans` fuses the two into one `ReduceDataset`. Names and
signatures of nodes stay the same.
"""

from collections.abc import Callable, Iterator

import tensorflow as tf

from tff_dp.execution.data import datasets
from tff_dp.execution.data import graph_defs

# Operations that TensorFlow replaces by the functions that they call.
CALLING = frozenset([
    'PartitionedCall',
    'StatefulPartitionedCall',
    'While',
    'StatelessWhile',
    'If',
    'StatelessIf',
    'Case',
    'StatelessCase',
])


def _on_cpu():
  """Returns the device of all operations on sequences."""
  return tf.device(datasets.DATASET_DEVICE)


def _reduce_iterator(variant, state, step, dtypes):
  """Returns (condition, body, start values) of a loop over an iterator.

  The loop does the work of a `ReduceDataset`.
  """
  element = dict(output_types=dtypes, output_shapes=[None] * len(dtypes))
  with _on_cpu():
    iterator = tf.raw_ops.AnonymousIteratorV3(**element)
    make = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator)

  def get_next(after):
    with _on_cpu(), tf.control_dependencies(after):
      return tf.raw_ops.IteratorGetNextAsOptional(iterator=iterator, **element)

  def has_value(optional, *_):
    with _on_cpu():
      return tf.raw_ops.OptionalHasValue(optional=optional)

  def body(optional, *state):
    with _on_cpu():
      parts = tf.raw_ops.OptionalGetValue(optional=optional, **element)
    state = step(state, parts)
    return get_next(state), *state

  return has_value, body, [get_next([make]), *state]


class _Library:
  """Adds functions to a graph, and replaces operations by calls of them."""

  def __init__(self, graph_def):
    self._graph_def = graph_def
    self._taken = {f.signature.name for f in graph_def.library.function}

  def replace(self, scope, node, fn: Callable, dtypes, step=None) -> None:
    """Replaces a node by a call of `fn` with the same arguments and results.

    Args:
      scope: Function that the node is in, None for the graph itself.
      node: Node, which is changed but keeps its name and its inputs.
      fn: Function to trace with arguments of these dtypes.
      dtypes: Dtypes of the arguments.
      step: Pair (name of the real step, stand-in). `fn` is traced with the
        stand-in. Calls of the stand-in then become calls of the real step.
    """
    specs = [tf.TensorSpec(None, dtype) for dtype in dtypes]
    traced = tf.function(fn, input_signature=specs, autograph=False)
    traced = traced.get_concrete_function()
    found = [traced.function_def, *traced.graph.as_graph_def().library.function]
    library = {f.signature.name: f for f in found}
    if step is not None:
      stand_in = step[1].function_def.signature.name
      library.pop(stand_in, None)
    names = {name: self._unused(name) for name in library}
    for name, function in library.items():
      function.signature.name = names[name]
      for inner in function.node_def:
        for place in graph_defs.function_attributes(inner):
          if step is not None and place.name == stand_in:
            place.CopyFrom(step[0])
          else:
            place.name = names[place.name]
      self._graph_def.library.function.add().CopyFrom(function)
    if scope is not None:
      _rename_outputs(scope, node.name)
    name, inputs = node.name, list(node.input)
    # No device: operations for the CPU have one inside.
    node.Clear()
    node.name, node.op = name, 'StatefulPartitionedCall'
    node.input.extend(inputs)
    signature = traced.function_def.signature
    node.attr['f'].func.name = names[signature.name]
    for name, arguments in (
        ('Tin', signature.input_arg), ('Tout', signature.output_arg)
    ):  # pyformat: disable
      node.attr[name].list.SetInParent()
      node.attr[name].list.type.extend(a.type for a in arguments)

  def _unused(self, name: str) -> str:
    while name in self._taken:
      name += '_'
    self._taken.add(name)
    return name


def _rename_outputs(function, name: str) -> None:
  """Renames the outputs of a node, for all readers, to outputs of a call."""

  def renamed(tensor):
    parts = tensor.split(':')
    if parts[0] == name and len(parts) == 3:
      return f'{name}:output:{parts[2]}'
    return tensor

  for node in function.node_def:
    node.input[:] = map(renamed, node.input)
  for key, tensor in function.ret.items():
    function.ret[key] = renamed(tensor)


def _plain_reduce(library, functions, scope, node) -> None:
  """Replaces a `ReduceDataset` by a call of a loop over an iterator."""
  step = node.attr['f'].func
  state_types = list(node.attr['Tstate'].list.type)
  other_types = list(node.attr['Targuments'].list.type)
  arguments = [a.type for a in functions[step.name].signature.input_arg]
  size = len(state_types)
  element_types = arguments[size : len(arguments) - len(other_types)]
  shapes = [tf.TensorShape(s) for s in node.attr['output_shapes'].list.shape]

  @tf.function(
      input_signature=[tf.TensorSpec(None, dtype) for dtype in arguments],
      autograph=False,
  )
  def stand_in(*tensors):
    del tensors
    # Add a side effect, because the step may have some.
    tf.raw_ops.StackV2(max_size=0, elem_type=tf.int32)
    return [tf.raw_ops.Placeholder(dtype=dtype) for dtype in state_types]

  stand_in = stand_in.get_concrete_function()

  def reduce_fn(variant, *rest):
    others = rest[size:]

    def take_step(state, parts):
      found = stand_in(*state, *parts, *others)
      return [
          tf.ensure_shape(part, shape) for part, shape in zip(found, shapes)
      ]

    cond, body, start = _reduce_iterator(
        variant, rest[:size], take_step, element_types
    )
    _, *result = tf.while_loop(
        cond,
        body,
        start,
        shape_invariants=[tf.TensorShape([]), *shapes],
        parallel_iterations=1,
    )
    return result

  dtypes = [tf.variant, *state_types, *other_types]
  step = type(step).FromString(step.SerializeToString())
  library.replace(scope, node, reduce_fn, dtypes, (step, stand_in))


def _scopes(graph_def) -> Iterator[tuple]:
  """Yields (function, node) for every node. In the graph the function is None.
  """
  for node in graph_def.node:
    yield None, node
  for function in graph_def.library.function:
    for node in function.node_def:
      yield function, node


def _is_plain_step(functions, name: str) -> bool:
  """Returns whether a step may be instantiated once instead of in every call.

  It may not if it has a random operation with a seed. Such an operation starts
  its sequence anew whenever it is instantiated.
  """
  waiting, found = [name], set()
  while waiting:
    function = functions[waiting.pop()]
    if function.signature.name in found:
      continue
    found.add(function.signature.name)
    for node in function.node_def:
      if graph_defs.is_seeded(node):
        return False
      waiting.extend(graph_defs.called([node], functions))
  return True


def _can_be_plain(node, functions) -> bool:
  return (
      node.op == 'ReduceDataset'
      and tf.variant.as_datatype_enum not in node.attr['Tstate'].list.type
      and _is_plain_step(functions, node.attr['f'].func.name)
  )


def _called_by_datasets(graph_def, functions) -> set[str]:
  """Returns the functions that a dataset calls, directly or through others."""
  waiting = [
      name
      for _, node in _scopes(graph_def)
      if node.op not in CALLING and not _can_be_plain(node, functions)
      for name in graph_defs.called([node], functions)
  ]
  found = set()
  while waiting:
    name = waiting.pop()
    if name not in found:
      found.add(name)
      waiting.extend(graph_defs.called(functions[name].node_def, functions))
  return found


def with_plain_loops(graph_def) -> tf.compat.v1.GraphDef:
  """Returns a copy in which loops over iterators replace reductions."""
  copy = tf.compat.v1.GraphDef()
  copy.CopyFrom(graph_def)
  functions = {f.signature.name: f for f in graph_def.library.function}
  library = _Library(copy)
  own = _called_by_datasets(graph_def, functions)
  for scope, node in list(_scopes(copy)):
    # Not within a dataset, whose functions should have no state.
    if scope is None or scope.signature.name not in own:
      if _can_be_plain(node, functions):
        _plain_reduce(library, functions, scope, node)
  return copy
