# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow computations of TFF, prepared for use inside larger graphs.

A `tff.tensorflow.computation` is a serialized graph with named inputs, named
outputs and an operation that initialises its variables and tables. TFF's own
runtime runs each call in a separate session. Here the computation becomes a
part of a larger graph, in one of two ways. `TensorFlowGraph.inlined` turns it
into a function of values (`pure`). `TensorFlowGraph.stamp` is for all other
graphs: it adds their nodes to a function that is called repeatedly, from
several threads. So

*   nodes that do not lead to an output are dropped, as in a session.
*   every read or write of a variable waits for the initialiser, so that a call
  starts afresh (`_add_initializer`). Calls of functions start and end as a
  whole (`_make_calls_strict`).
*   variables get unique names, and lookup tables live for one call.
*   functions are named by their content, because their names are known in the
  whole process.
*   reductions of datasets become loops over iterators, see `loops`.
"""

from collections.abc import Iterable, Iterator
import dataclasses
import functools
import hashlib
import re

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution.compiling import loops
from tff_dp.execution.compiling import pure
from tff_dp.execution.data import datasets
from tff_dp.execution.data import graph_defs
from tff_dp.execution.data import values

# Datasets whose function is the body of a loop.
_LOOPS = ('ReduceDataset', 'ScanDataset')
# Parts of names of operations on datasets.
_SEQUENCES = ('Dataset', 'Iterator', 'Optional')
# Parts of names of nodes.
_INITIALIZE, _INITIALIZED = 'tff_dp_initialize', 'tff_dp_initialized'


@dataclasses.dataclass(frozen=True)
class KeptVariable:
  """A variable that a device keeps after a call, under its shared name."""

  dtype: tf.DType
  shape: tf.TensorShape
  shared_name: str


def tensor_names(binding) -> Iterator[str]:
  """Yields the names of the tensors that carry an argument or a result."""
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    yield binding.tensor.tensor_name
  elif kind == 'sequence':
    yield binding.sequence.variant_tensor_name
  elif kind == 'struct':
    for element in binding.struct.element:
      yield from tensor_names(element)


def _ancestors(nodes: dict[str, tf.compat.v1.NodeDef], ends: Iterable[str]):
  """Returns the names of all nodes that lead to `ends`, and of the ends."""
  return graph_defs.reached(
      map(graph_defs.node_of, ends),
      lambda name: map(graph_defs.node_of, nodes[name].input),
  )


def _drop_ties(graph_def, parameters: Iterable[str]) -> None:
  """Drops control inputs from parameters, and colocation with other nodes.

  A parameter is replaced by an existing tensor, and the node of a colocation
  may be pruned.
  """
  dropped = {f'^{node}' for node in parameters}
  for node in graph_def.node:
    node.input[:] = [name for name in node.input if name not in dropped]
  for node in graph_defs.all_nodes(graph_def):
    node.attr.pop('_class', None)


def _keep_called_functions(graph_def) -> None:
  """Drops the functions that nothing calls. Keras leaves hundreds behind."""
  functions = {f.signature.name: f for f in graph_def.library.function}
  gradients = {g.function_name: g for g in graph_def.library.gradient}

  def following(name):
    yield from graph_defs.called(functions[name].node_def, functions)
    if name in gradients:
      yield gradients[name].gradient_func
    for attribute in functions[name].attr.values():
      # Keras' recurrent layers name their gradient in an attribute.
      yield from {attribute.s.decode(errors='replace')} & set(functions)

  found = graph_defs.reached(
      graph_defs.called(graph_def.node, functions), following
  )
  library = tf.compat.v1.GraphDef().library
  library.function.extend(functions[name] for name in sorted(found))
  library.gradient.extend(
      gradients[name] for name in sorted(found & set(gradients))
  )
  graph_def.library.CopyFrom(library)


def _place_sequences(graph_def) -> None:
  """Puts datasets and iterators on the CPU, whatever device has the rest.

  TensorFlow has kernels of iterators for GPUs. They start the functions of a
  dataset there, with the dataset's elements, which are in the CPU's memory.
  """
  for node in graph_defs.all_nodes(graph_def):
    if any(word in node.op for word in _SEQUENCES):
      node.device = datasets.DATASET_DEVICE


def _place_loops(graph_def, device: str) -> None:
  """Puts the steps of loops in `_LOOPS` on a device.

  TFF's default training loop is such a loop, and AutoGraph turns `for` loops
  over datasets into such loops. A step runs where its dataset is, on the CPU,
  unless the step's nodes have a device.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}

  def nodes_in(step):
    for node in functions[step].node_def:
      if 'Dataset' not in node.op and 'Iterator' not in node.op:
        yield node

  steps = [
      node.attr['f'].func.name
      for node in graph_defs.all_nodes(graph_def)
      if node.op in _LOOPS
  ]
  for step in graph_defs.reached(
      steps, lambda step: graph_defs.called(nodes_in(step), functions)
  ):
    for node in nodes_in(step):
      node.device = node.device or device


def rename_functions(graph_def, suffix: str) -> None:
  """Adds a suffix to the names of all functions, wherever they are called."""
  library = graph_def.library
  names = {
      f.signature.name: f'{f.signature.name}_{suffix}' for f in library.function
  }
  all_nodes = [*graph_def.node]
  for function in library.function:
    all_nodes.extend(function.node_def)
    function.signature.name = names[function.signature.name]
    for attribute in function.attr.values():
      text = attribute.s.decode(errors='replace')
      if text in names:
        attribute.s = names[text].encode()
  for gradient in library.gradient:
    gradient.function_name = names[gradient.function_name]
    gradient.gradient_func = names[gradient.gradient_func]
  for node in all_nodes:
    node.op = names.get(node.op, node.op)
    for place in graph_defs.function_attributes(node):
      place.name = names.get(place.name, place.name)


def _add_initializer(graph_def, initializer: str, results: list[str]) -> None:
  """Makes variables and tables available only after they are initialised.

  TFF runs the initialiser and the results in two runs of a session, so nodes
  that lead to both run twice. Here the initialiser is a copy of its nodes. The
  results get the handle of a variable or a table from a node that waits for the
  initialiser. A read or a write needs the handle as data, in any function. So
  no change that TensorFlow makes to the graph lets a read or a write run too
  early.

  Args:
    graph_def: Graph to change. It has only nodes that lead to the initialiser
      or to a result.
    initializer: Name of the operation that initialises.
    results: Names of the tensors that the graph returns.
  """
  nodes = {node.name: node for node in graph_def.node}
  functions = {f.signature.name: f for f in graph_def.library.function}
  # A table that lives for one call has no name, so both copies share its
  # handle.
  tables = [n.name for n in nodes.values() if n.op in graph_defs.CALL_TABLES]
  parameters = [n.name for n in nodes.values() if n.op == 'Placeholder']
  shared = _ancestors(nodes, [*tables, *parameters])
  first = _ancestors(nodes, [initializer]) - shared
  names = {name: f'{_INITIALIZE}/{name}' for name in first}
  ready = f'^{names[initializer]}'
  handles = {name: f'{name}/{_INITIALIZED}' for name in tables}

  def renamed(tensor: str, names: dict[str, str]) -> str:
    start = '^' if tensor.startswith('^') else ''
    name, *rest = tensor[len(start) :].split(':')
    return ':'.join([start + names.get(name, name), *rest])

  copies = []
  for name in first:
    copy = type(nodes[name]).FromString(nodes[name].SerializeToString())
    copy.name = names[name]
    copy.input[:] = [renamed(tensor, names) for tensor in copy.input]
    copies.append(copy)
  second = _ancestors(nodes, results)
  kept = [n for n in graph_def.node if n.name in second | shared]
  for node in kept:
    if node.name in shared:
      continue
    node.input[:] = [renamed(tensor, handles) for tensor in node.input]
    if node.op == 'VarHandleOp' or _makes_handles(node, functions):
      node.input.append(ready)
  del graph_def.node[:]
  graph_def.node.extend(kept + copies)
  for table, name in handles.items():
    node = graph_def.node.add(name=name, op='Identity', input=[table, ready])
    node.attr['T'].type = tf.resource.as_datatype_enum


def _makes_handles(node, functions) -> bool:
  """Returns whether a function that a node calls has its own variable."""
  return any(
      inner.op == 'VarHandleOp'
      for name in graph_defs.called_by([node], functions)
      for inner in functions[name].node_def
  )


def _make_calls_strict(graph_def) -> None:
  """Makes calls, branches and loops wait for all inputs and end as a whole.

  An operation waits by itself. But TensorFlow replaces a call by the nodes of
  its function, and each node starts as soon as its own inputs are there. Only
  the control inputs of the call hold for all these nodes, and only its control
  output waits for all of them. So every input of a call also becomes a control
  input, and a reader of an output waits for the call.
  """
  functions = {f.signature.name: f for f in graph_def.library.function}
  for scope in [graph_def, *functions.values()]:
    nodes = scope.node if scope is graph_def else scope.node_def
    calls = {
        node.name
        for node in nodes
        if node.op in loops.CALLING or node.op in functions
    }
    if not calls:
      continue
    # Parameters are available before everything else.
    own = {node.name for node in nodes if node.op != 'Placeholder'}
    for node in nodes:
      before = {graph_defs.node_of(tensor) for tensor in node.input} & own
      if node.name not in calls:
        before &= calls
        if node.op in graph_defs.OLD_CONTROL_FLOW:
          # A call in an old-style loop is a part of its step.
          continue
      held = {t[1:] for t in node.input if t.startswith('^')}
      node.input.extend(f'^{name}' for name in sorted(before - held))


def _digest(graph_def) -> str:
  """Returns a hash of the graph, for names that are unique to the computation.
  """
  text = graph_def.SerializeToString(deterministic=True)
  return hashlib.sha256(text).hexdigest()[:20]


class TensorFlowGraph:
  """A serialized TensorFlow computation that can be added to other graphs.

  Attributes:
    seeded_operations: Names of its random operations with state and a fixed
      seed.
    has_variables: Whether the computation, or a function in it, has variables.
    has_convolutions: Whether the computation, or a function in it, has
      convolutions.
  """

  def __init__(self, block: tff.framework.CompiledComputation):
    """Reads the graph of a compiled computation.

    Raises:
      UnsupportedComputationError: If the computation is not TensorFlow, calls a
        Python function, or keeps state that cannot be confined to a call.
    """
    proto = block.proto
    kind = proto.WhichOneof('computation')
    if kind != 'tensorflow':
      raise errors.UnsupportedComputationError(
          f'a compiled computation of the kind {kind!r}',
          instead='`tff.tensorflow.computation`',
      )
    self._result_skeleton = values.skeleton_of_type(block.type_signature.result)
    source = proto.tensorflow
    self._parameters = list(tensor_names(source.parameter))
    self._results = list(tensor_names(source.result))
    self._session_token = source.session_token_tensor_name
    self._graph_def = tf.compat.v1.GraphDef()
    source.graph_def.Unpack(self._graph_def)
    self._prune([*self._results, *filter(None, [source.initialize_op])])
    _drop_ties(self._graph_def, map(graph_defs.node_of, self._parameters))
    _keep_called_functions(self._graph_def)
    graph_defs.confine(
        self._graph_def,
        f'a TensorFlow computation of type {block.type_signature}',
    )
    if source.initialize_op:
      _add_initializer(
          self._graph_def,
          graph_defs.node_of(source.initialize_op),
          self._results,
      )
    self.seeded_operations = [
        node.name
        for node in graph_defs.all_nodes(self._graph_def)
        if graph_defs.is_seeded(node)
    ]
    operations = {n.op for n in graph_defs.all_nodes(self._graph_def)}
    self.has_variables = 'VarHandleOp' in operations
    self.has_convolutions = 'Conv2D' in operations

  def _prune(self, ends: list[str]) -> None:
    nodes = {node.name: node for node in self._graph_def.node}
    kept = _ancestors(nodes, ends)
    del self._graph_def.node[:]
    self._graph_def.node.extend(
        node for name, node in nodes.items() if name in kept
    )

  @functools.cached_property
  def _strict(self) -> tf.compat.v1.GraphDef:
    """The graph with plain loops and strict calls, for `stamp`."""
    graph_def = loops.with_plain_loops(self._graph_def)
    _make_calls_strict(graph_def)
    _keep_called_functions(graph_def)
    return graph_def

  @functools.cached_property
  def _strict_digest(self) -> str:
    return _digest(self._strict)

  @functools.cached_property
  def _pure(self) -> tf.compat.v1.GraphDef:
    """The graph with uniquely named functions, for `inlined`."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(self._graph_def)
    rename_functions(graph_def, f'{_digest(graph_def)}_pure')
    return graph_def

  def _named(
      self, scope: str, device: str
  ) -> tuple[tf.compat.v1.GraphDef, list[KeptVariable]]:
    """Returns a copy of the graph with unique names, and its variables."""
    graph_def = tf.compat.v1.GraphDef()
    graph_def.CopyFrom(self._strict)
    _place_sequences(graph_def)
    suffix = self._strict_digest
    if self.has_variables:
      suffix += f'_{scope}'
    has_loops = any(n.op in _LOOPS for n in graph_defs.all_nodes(graph_def))
    if has_loops and not device.endswith(datasets.DATASET_DEVICE):
      _place_loops(graph_def, device)
      suffix += '_' + re.sub(r'\W', '_', device)
    rename_functions(graph_def, suffix)
    variables = []
    for node in graph_defs.all_nodes(graph_def):
      if node.op == 'VarHandleOp':
        name = node.attr['shared_name'].s.decode() or node.name
        name = f'tff_dp_{suffix}_{name}'
        node.attr['shared_name'].s = name.encode()
        variables.append(
            KeptVariable(
                tf.as_dtype(node.attr['dtype'].type),
                tf.TensorShape(node.attr['shape'].shape),
                name,
            )
        )
    return graph_def, variables

  def stamp(self, argument, *, scope: str, device: str):
    """Adds the computation to the current graph.

    Clients that run the graph share its variables, one after the other. Each
    run initialises the variables first, and tables live for one run. So no
    client can read what another one left, as if each had its own session.

    Args:
      argument: Symbolic value of the computation's parameter, None if it has
        no parameter.
      scope: Part of the names of the variables. Functions that may run at the
        same time need different scopes.
      device: Device of loops over datasets.

    Returns:
      (symbolic result, variables of the computation).
    """
    graph_def, variables = self._named(scope, device)
    inputs = {}
    if argument is not None:
      tensors = [_of_this_graph(item) for item in values.flatten(argument)]
      inputs = dict(zip(self._parameters, tensors, strict=True))
    present = {node.name for node in graph_def.node}
    if graph_defs.node_of(self._session_token) in present:
      inputs[self._session_token] = _fresh_token()
    results = tf.graph_util.import_graph_def(
        graph_def,
        input_map={
            name: tensor
            for name, tensor in inputs.items()
            if graph_defs.node_of(name) in present
        },
        return_elements=self._results,
        name='tff',
    )
    return values.pack(self._result_skeleton, results), variables

  def inlined(self, argument, *, is_vectorized: bool, own_zero=None):
    """Adds the computation to the current graph, as a function of values.

    Args:
      argument: Symbolic value of its parameter, None if it has no parameter.
        All sequences in the value are `columns.Columns`.
      is_vectorized: Whether this runs inside `tf.vectorized_map`.
      own_zero: Number 0 of each client, see `lanes`.

    Returns:
      The symbolic result, in which sequences are `Columns`, too.

    Raises:
      NotPlainError: If the computation is, or may be, more than a function of
        its argument.
    """
    tensors = [] if argument is None else values.flatten(argument)
    inputs = dict(zip(self._parameters, tensors, strict=True))
    token = self._session_token
    if any(n.name == graph_defs.node_of(token) for n in self._pure.node):
      if is_vectorized:
        raise errors.NotPlainError('it asks which session it is in')
      inputs[token] = _fresh_token()
    results = pure.evaluate(
        self._pure,
        inputs,
        self._results,
        is_vectorized=is_vectorized,
        own_zero=own_zero,
    )
    remaining = iter(results)
    return values.map_leaves(lambda _: next(remaining), self._result_skeleton)


def _of_this_graph(tensor: tf.Tensor) -> tf.Tensor:
  """Returns the tensor, captured if it belongs to an outer graph."""
  if tensor.graph is tf.compat.v1.get_default_graph():
    return tensor
  return tf.identity(tensor)


def _fresh_token() -> tf.Tensor:
  """Returns a string that is unique to this call."""
  # Use the raw operation, because a global seed must not reach it.
  words = tf.raw_ops.RandomUniformInt(
      shape=[4], minval=tf.int64.min, maxval=tf.int64.max
  )
  return tf.strings.reduce_join(tf.strings.as_string(words), separator='-')


class GraphCache:
  """The `TensorFlowGraph` of each compiled computation, read once."""

  def __init__(self):
    self._graphs = {}

  def get(self, block: tff.framework.CompiledComputation) -> TensorFlowGraph:
    # Keyed by identity: comparing two computations would compare their graphs.
    if id(block) not in self._graphs:
      self._graphs[id(block)] = (block, TensorFlowGraph(block))
    return self._graphs[id(block)][1]
