# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Loops over datasets in serialized graphs, made plain.

`Dataset.reduce` is one operation, `ReduceDataset`, whose kernel instantiates
the function of a step anew in every call, and an iterator copies the library of
functions; for a small client either takes longer than its training. Three
changes are made to a graph, so that names and signatures stay:

*   a `for` loop, which is a `ScanDataset` before a `ReduceDataset`, becomes one
    of the latter (`scans`);
*   a `ReduceDataset` becomes a loop over an iterator (`with_plain_loops`);
*   where data is in memory and comes as rows, a `ReduceDataset` becomes a loop
    over slices of them, and so does an iterator (`with_rows`, `rows`).

Elements come in the same order, and a step sees what it saw before. What is not
certain to be equivalent stays as it is.
"""

from collections.abc import Callable, Collection, Iterator
import functools

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.compiling import rows
from tff_dp.execution.data import graph_defs

_ITERATOR_OP = 'AnonymousIteratorV3'
_WHILES = ('While', 'StatelessWhile')
# Operation -> how many inputs it keeps for itself, before those that it hands
# on, and the attributes with the functions that it calls.
_INNER = {
    'PartitionedCall': (0, ('f',)),
    'StatefulPartitionedCall': (0, ('f',)),
    'While': (0, ('cond', 'body')),
    'StatelessWhile': (0, ('cond', 'body')),
    'If': (1, ('then_branch', 'else_branch')),
    'StatelessIf': (1, ('then_branch', 'else_branch')),
}
# Operations in whose place TensorFlow puts the functions that they call.
CALLING = frozenset([*_INNER, 'Case', 'StatelessCase'])
_ROWS, _ITERATOR = 'rows', 'iterator'
# Operations, the input that they take, and what it may be.
_UNDERSTOOD = frozenset([
    ('ReduceDataset', 0, _ROWS),
    ('MakeIterator', 0, _ROWS),
    ('MakeIterator', 1, _ITERATOR),
    ('IteratorGetNextAsOptional', 0, _ITERATOR),
])


def _reduce_iterator(variant, state, step, dtypes):
  """What `ReduceDataset` does, by an iterator."""
  element = dict(output_types=dtypes, output_shapes=[None] * len(dtypes))
  with rows.on_cpu():
    iterator = tf.raw_ops.AnonymousIteratorV3(**element)
    make = tf.raw_ops.MakeIterator(dataset=variant, iterator=iterator)

  def get_next(after):
    with rows.on_cpu(), tf.control_dependencies(after):
      return tf.raw_ops.IteratorGetNextAsOptional(iterator=iterator, **element)

  def has_value(optional, *_):
    with rows.on_cpu():
      return tf.raw_ops.OptionalHasValue(optional=optional)

  def body(optional, *state):
    with rows.on_cpu():
      parts = tf.raw_ops.OptionalGetValue(optional=optional, **element)
    state = step(state, parts)
    return get_next(state), *state

  return has_value, body, [get_next([make]), *state]


class _Library:
  """Adds functions to a graph, and calls them in the place of operations."""

  def __init__(self, graph_def):
    self._graph_def = graph_def
    self._taken = {f.signature.name for f in graph_def.library.function}

  def replace(self, scope, node, fn: Callable, dtypes, step=None) -> None:
    """Lets a node call `fn`, which has as many arguments and results.

    Args:
      scope: The function that the node is in, or None.
      node: Is changed; keeps its name and its inputs.
      fn: Traced with arguments of these dtypes.
      dtypes: Of the arguments.
      step: A pair: the function that calls of a stand-in are to call instead,
        and the stand-in.
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
    # Without a device: what has to be on the CPU says so inside.
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
  """Lets all who read outputs of a node find them as those of a call."""

  def renamed(tensor):
    parts = tensor.split(':')
    if parts[0] == name and len(parts) == 3:
      return f'{name}:output:{parts[2]}'
    return tensor

  for node in function.node_def:
    node.input[:] = map(renamed, node.input)
  for key, tensor in function.ret.items():
    function.ret[key] = renamed(tensor)


def _plain_reduce(library, functions, scope, node, is_batched=None) -> None:
  """Replaces a `ReduceDataset`, over rows if `is_batched` is not None."""
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
    # A side effect, as the step may have some.
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

    given = variant, rest[:size], take_step, element_types
    if is_batched is None:
      cond, body, start = _reduce_iterator(*given)
    else:
      cond, body, start = rows.reduction(*given, is_batched)
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
  """Yields every node with the function that it is in, None for the graph."""
  for node in graph_def.node:
    yield None, node
  for function in graph_def.library.function:
    for node in function.node_def:
      yield function, node


def _is_plain_step(functions, name: str) -> bool:
  """Returns whether a step may be instantiated once instead of anew.

  Random operations with a seed would begin anew in every call.
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


def _rewritten(graph_def, replace=lambda *_: False):
  """Returns a copy in which nodes are replaced, reductions by plain loops.

  Args:
    graph_def: The graph.
    replace: Called with a library, all functions, the function that a node is
      in and the node; returns whether it has replaced it.
  """
  copy = tf.compat.v1.GraphDef()
  copy.CopyFrom(graph_def)
  functions = {f.signature.name: f for f in graph_def.library.function}
  library = _Library(copy)
  own = _called_by_datasets(graph_def, functions)
  for scope, node in list(_scopes(copy)):
    if replace(library, functions, scope, node):
      continue
    # Not within a dataset, whose functions should have no state.
    if scope is None or scope.signature.name not in own:
      if _can_be_plain(node, functions):
        _plain_reduce(library, functions, scope, node)
  return copy


def _called_by_datasets(graph_def, functions) -> set[str]:
  """Returns the functions that other operations than calls and loops call."""
  waiting = [
      name
      for _, node in _scopes(graph_def)
      if node.op not in _INNER and not _can_be_plain(node, functions)
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
  """Returns the graph with loops over iterators in the place of reductions."""
  return _rewritten(graph_def)


def with_rows(
    graph_def, parameters: Collection[str], results, *, is_batched: bool
) -> tf.compat.v1.GraphDef:
  """Returns the graph for sequences that come in rows; see `rows`.

  Args:
    graph_def: The graph.
    parameters: Names of the placeholders of those sequences.
    results: Names of the tensors that it returns.
    is_batched: Whether a batch of rows is an element, or a row is.

  Raises:
    NotPlainError: It does with one of them what is not understood, or iterates
      over another dataset.
  """
  flow = _Flow(graph_def)
  flow.follow(parameters, results)

  def replace(library, functions, scope, node):
    if node.op == 'ReduceDataset' and flow.kind(scope, node.input[0]):
      _plain_reduce(library, functions, scope, node, is_batched)
    elif node.op == _ITERATOR_OP:
      library.replace(scope, node, rows.new_iterator, [])
    elif node.op == 'MakeIterator':
      dtypes = [tf.variant, tf.resource]
      library.replace(scope, node, rows.make_iterator, dtypes)
    elif node.op == 'IteratorGetNextAsOptional':
      get_next = functools.partial(
          rows.next_element,
          dtypes=list(node.attr['output_types'].list.type),
          is_batched=is_batched,
      )
      library.replace(scope, node, get_next, [tf.resource])
    else:
      return False
    return True

  return _rewritten(graph_def, replace)


class _Flow:
  """Where sequences in rows, and iterators of them, go in a graph."""

  def __init__(self, graph_def):
    self._functions = {f.signature.name: f for f in graph_def.library.function}
    self._nodes = list(_scopes(graph_def))
    # (function or '', producer, output) -> what it is.
    self._kinds = {}

  def kind(self, scope, tensor: str) -> str | None:
    """Returns what a tensor is: `_ROWS`, `_ITERATOR` or None."""
    name = '' if scope is None else scope.signature.name
    return self._kinds.get((name, *graph_defs.source(tensor)))

  def follow(self, parameters: Collection[str], results) -> None:
    """Finds where they go; see `with_rows`."""
    for parameter in parameters:
      self._kinds['', parameter, '0'] = _ROWS
    for scope, node in self._nodes:
      if node.op == _ITERATOR_OP:
        name = '' if scope is None else scope.signature.name
        self._kinds[name, node.name, '0'] = _ITERATOR
    size = None
    while size != len(self._kinds):
      size = len(self._kinds)
      for scope, node in self._nodes:
        self._visit(scope, node)
    self._check(results)

  def _visit(self, scope, node) -> None:
    for index, tensor in enumerate(node.input):
      if tensor.startswith('^'):
        break  # They come last.
      kind = self.kind(scope, tensor)
      if kind is not None:
        self._use(scope, node, index, kind)

  def _use(self, scope, node, index: int, kind: str) -> None:
    """Notes what becomes of an input of a node."""
    use = node.op, index, kind
    if node.op == 'Identity' or node.op in _WHILES:
      name = '' if scope is None else scope.signature.name
      self._kinds[name, node.name, str(index)] = kind
    if node.op in _INNER:
      skipped, attributes = _INNER[node.op]
      for attribute in attributes:
        function = self._functions[node.attr[attribute].func.name]
        argument = function.signature.input_arg[index - skipped]
        key = function.signature.name, argument.name, '0'
        if self._kinds.setdefault(key, kind) != kind:
          raise errors.NotPlainError(f'{node.name} takes different things')
    elif node.op == 'ReduceDataset' and not _can_be_plain(
        node, self._functions
    ):
      raise errors.NotPlainError(
          f'{node.name} has steps with a seed or a variant'
      )
    elif node.op != 'Identity' and use not in _UNDERSTOOD:
      raise errors.NotPlainError(f'{node.name} ({node.op}) takes {kind}')

  def _check(self, results) -> None:
    """Checks that functions find what they expect, wherever they are called."""
    for scope, node in self._nodes:
      if node.op == 'MakeIterator' and not (
          self.kind(scope, node.input[0]) and self.kind(scope, node.input[1])
      ):
        raise errors.NotPlainError(f'{node.name} iterates over a dataset')
      if node.op == 'IteratorGetNextAsOptional' and not self.kind(
          scope, node.input[0]
      ):
        raise errors.NotPlainError(f'{node.name} reads another iterator')
      skipped, attributes = _INNER.get(node.op, (0, ()))
      own = [node.attr[attribute].func.name for attribute in attributes]
      for name in graph_defs.called([node], self._functions):
        for index, argument in enumerate(
            self._functions[name].signature.input_arg
        ):
          expected = self._kinds.get((name, argument.name, '0'))
          given = None
          if name in own:
            given = self.kind(scope, node.input[index + skipped])
          if given != expected:
            raise errors.NotPlainError(
                f'{node.name} calls {name} with other things'
            )
      if node.op in _WHILES:
        self._check_loop(scope, node)
    # Only the bodies of loops return them, to themselves.
    bodies = {
        node.attr['body'].func.name
        for _, node in self._nodes
        if node.op in _WHILES
    }
    for name, function in self._functions.items():
      if name not in bodies and any(
          self.kind(function, tensor) for tensor in function.ret.values()
      ):
        raise errors.NotPlainError(f'{name} returns what is not read')
    if any(self.kind(None, tensor) for tensor in results):
      raise errors.NotPlainError('it is a result')

  def _check_loop(self, scope, node) -> None:
    body = self._functions[node.attr['body'].func.name]
    for index, output in enumerate(body.signature.output_arg):
      before = self.kind(scope, node.input[index])
      if self.kind(body, body.ret[output.name]) != before:
        raise errors.NotPlainError(
            f'{node.name} does not hand on what it is given'
        )
