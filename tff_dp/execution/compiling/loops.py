# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Reductions of datasets in serialized graphs, turned into iterator loops.

`Dataset.reduce` is one operation, `ReduceDataset`. In every call its kernel
instantiates the function of a step again, and its iterator copies the library
of functions. For a small client, each of the two takes longer than training. A
`for` loop is a `ScanDataset` with a `ReduceDataset` after it. One loop does the
steps of both. Names and signatures of nodes stay the same.
"""

from collections.abc import Iterator

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


def _data_inputs(node) -> list[str]:
  return [tensor for tensor in node.input if not tensor.startswith('^')]


class _Step:
  """The step of a `ReduceDataset` or `ScanDataset`.

  Attributes:
    state: Dtypes of its state.
    others: Dtypes of its other inputs, which stay the same.
    elements: Dtypes of the components of an element.
    shapes: Shapes of the state.
  """

  def __init__(self, node, functions):
    self._function = type(node.attr['f'].func)()
    self._function.CopyFrom(node.attr['f'].func)
    signature = functions[self._function.name].signature
    self._results = [result.type for result in signature.output_arg]
    self.state = list(node.attr['Tstate'].list.type)
    self.others = list(node.attr['Targuments'].list.type)
    arguments = [argument.type for argument in signature.input_arg]
    end = len(arguments) - len(self.others)
    self.elements = arguments[len(self.state) : end]
    self.shapes = [tf.TensorShape(None)] * len(self.state)
    if node.op == 'ReduceDataset':
      given = node.attr['output_shapes'].list.shape
      self.shapes = list(map(tf.TensorShape, given))

  def __call__(self, state, element, others) -> tuple[list, list]:
    """Returns the state after the step, and the element of a scan."""
    found = tf.raw_ops.StatefulPartitionedCall(
        args=[*state, *element, *others], Tout=self._results, f=self._function
    )
    size = len(self.state)
    return list(map(tf.ensure_shape, found[:size], self.shapes)), found[size:]


def _taken(tensors: Iterator, dtypes: list) -> list[tf.Tensor]:
  """Returns the next tensors, one for each dtype."""
  return [next(tensors) for _ in dtypes]


def _loop_of(steps: list[_Step]):
  """Returns a function that does steps for each element of a dataset.

  It takes the dataset, and then the state and the other inputs of each step. It
  returns the state of the last step. What a step returns besides its state is
  the element of the next step.
  """
  dtypes = steps[0].elements
  element = dict(output_types=dtypes, output_shapes=[None] * len(dtypes))
  inputs = [dtype for s in steps for dtype in (*s.state, *s.others)]
  specs = [tf.TensorSpec(None, dtype) for dtype in (tf.variant, *inputs)]

  # No other function in a graph has a name with these words.
  @tf.function(input_signature=specs, autograph=False)
  def tff_dp_loop(variant, *inputs):
    inputs = iter(inputs)
    start, others = [], []
    for step in steps:
      start += _taken(inputs, step.state)
      others.append(_taken(inputs, step.others))
    with _on_cpu():
      iterator = tf.raw_ops.AnonymousIteratorV3(**element)
      make = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator)

    def get_next(after):
      with _on_cpu(), tf.control_dependencies(after):
        return tf.raw_ops.IteratorGetNextAsOptional(
            iterator=iterator, **element
        )

    def has_value(optional, *_):
      with _on_cpu():
        return tf.raw_ops.OptionalHasValue(optional=optional)

    def body(optional, *state):
      with _on_cpu():
        parts = tf.raw_ops.OptionalGetValue(optional=optional, **element)
      before, after = iter(state), []
      for step, own in zip(steps, others):
        found, parts = step(_taken(before, step.state), parts, own)
        after += found
      return get_next(after), *after

    shapes = [shape for step in steps for shape in step.shapes]
    _, *state = tf.while_loop(
        has_value,
        body,
        [get_next([make]), *start],
        shape_invariants=[tf.TensorShape([]), *shapes],
        parallel_iterations=1,
        name='tff_dp_loop',
    )
    return state[-len(steps[-1].state) :]

  return tff_dp_loop.get_concrete_function()


def _replace(graph_def, scope, nodes: list, functions) -> None:
  """Replaces a `ReduceDataset` by a call of a loop over an iterator.

  Args:
    graph_def: Graph to change.
    scope: Function that the node is in, None for the graph itself.
    nodes: The scans before the node, and the node, which keeps its name.
    functions: Functions of the steps by name.
  """
  traced = _loop_of([_Step(each, functions) for each in nodes])
  inner = traced.graph.as_graph_def().library.function
  graph_def.library.function.extend([traced.function_def, *inner])
  node, signature = nodes[-1], traced.function_def.signature
  if scope is not None:
    _rename_outputs(scope, node.name)
  name, inputs, control = node.name, _data_inputs(nodes[0])[:1], []
  for each in nodes:
    inputs += _data_inputs(each)[1:]
    control += [tensor for tensor in each.input if tensor.startswith('^')]
  # No device: operations for the CPU have one inside.
  node.Clear()
  node.name, node.op = name, 'StatefulPartitionedCall'
  node.input.extend([*inputs, *dict.fromkeys(control)])
  node.attr['f'].func.name = signature.name
  node.attr['Tin'].list.type.extend(a.type for a in signature.input_arg)
  node.attr['Tout'].list.type.extend(a.type for a in signature.output_arg)


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


def _can_be_plain(node, operation: str, functions) -> bool:
  """Returns whether an operation, if it is this one, can be a plain loop."""
  return (
      node.op == operation
      and tf.variant.as_datatype_enum not in node.attr['Tstate'].list.type
      and _is_plain_step(functions, node.attr['f'].func.name)
  )


def _with_scans(node, around, functions) -> list:
  """Returns the scans that a reduction reads, in order, and the reduction.

  Args:
    node: The reduction.
    around: All nodes of the graph or function that it is in.
    functions: Functions by name.
  """
  named, found = {other.name: other for other in around}, [node]
  while True:
    scan = named.get(graph_defs.source(found[0].input[0])[0])
    if scan is None or not _can_be_plain(scan, 'ScanDataset', functions):
      return found
    found.insert(0, scan)


def _called_by_datasets(graph_def, functions) -> set[str]:
  """Returns the functions that a dataset calls, directly or through others."""
  waiting = [
      name
      for _, node in _scopes(graph_def)
      if node.op not in CALLING
      and not _can_be_plain(node, 'ReduceDataset', functions)
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
  own = _called_by_datasets(graph_def, functions)
  for scope, node in list(_scopes(copy)):
    # Not within a dataset, whose functions should have no state.
    if scope is None or scope.signature.name not in own:
      if _can_be_plain(node, 'ReduceDataset', functions):
        around = copy.node if scope is None else scope.node_def
        nodes = _with_scans(node, around, functions)
        _replace(copy, scope, nodes, functions)
  return copy
