# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serialized graphs as plain code: functions inlined, sequences as arrays.

`chunks` does the work of many clients at once by `tf.vectorized_map`, which
knows what most operations become for a batch of clients, but nothing of
datasets, iterators and state. So a graph is walked node by node: calls are
inlined, `If`, `While` and `ReduceDataset` become TensorFlow's own conditionals
and loops, and a sequence, its iterator and what that gives are Python objects
around ordinary tensors.

What is not certain to be equivalent is refused: other operations with a state,
and every random one, since a batch of draws is not a draw for each key.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses

import tensorflow as tf

from tff_dp import _compat
from tff_dp.execution import errors
from tff_dp.execution.compiling.columns import Columns
from tff_dp.execution.data import graph_defs

_op_def_registry = _compat.private_tensorflow('op_def_registry')
_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
_IFS = ('If', 'StatelessIf')
_MANY = 2**16  # Of repetitions, whose product with the rows fits 64 bits.


@dataclasses.dataclass(eq=False)
class _Iterator:
  """An iterator, which has read what is before element `index`."""

  sequence: Columns | None = None
  index: tf.Tensor | None = None

  def at(self, index: tf.Tensor | None) -> '_Iterator':
    return _Iterator(self.sequence, index)


@dataclasses.dataclass(frozen=True, eq=False)
class _Optional:
  """The element `index`, if there is one."""

  sequence: Columns
  index: tf.Tensor


@dataclasses.dataclass(frozen=True)
class _NoState:
  """Where a dataset keeps what it has read, of which nothing depends on it."""


def evaluate(
    graph_def, inputs: Mapping[str, object], results: Sequence[str]
) -> list[tf.Tensor | Columns]:
  """Adds a graph to the current one and returns its results.

  Args:
    graph_def: The graph.
    inputs: Tensors and `Columns` by the names of their placeholders.
    results: Names of the tensors and sequences that it returns.

  Raises:
    NotPlainError: There is something in it that is not understood.
  """
  scope = _Scope(_Library(graph_def), graph_def.node, in_graph=True)
  for name, value in inputs.items():
    scope.set(name.split(':')[0], [value])
  scope.run()
  found = [scope.get(name) for name in results]
  if not all(isinstance(value, (tf.Tensor, Columns)) for value in found):
    raise errors.NotPlainError('what reads a sequence is a result')
  return found


class _Library:
  """The functions of a graph, which can be called."""

  def __init__(self, graph_def):
    self.versions = graph_def.versions
    self.functions = {f.signature.name: f for f in graph_def.library.function}

  def call(self, name: str, arguments: Sequence) -> list:
    """Returns the results of a function, inlined."""
    function = self.functions[name]
    scope = _Scope(self, function.node_def, in_graph=False)
    for argument, value in zip(
        function.signature.input_arg, arguments, strict=True
    ):
      scope.set(argument.name, [value])
    scope.run()
    return [
        scope.get(function.ret[output.name])
        for output in function.signature.output_arg
    ]


class _Scope:
  """The nodes of a graph or of a function, and what they have computed."""

  def __init__(self, library: _Library, nodes, *, in_graph: bool):
    self._library = library
    self._nodes = {node.name: node for node in nodes}
    self._in_graph = in_graph
    self._outputs = {}

  def set(self, name: str, outputs: list) -> None:
    self._outputs[name] = outputs

  def get(self, tensor: str):
    """Returns 'node', 'node:1' or, in a function, 'node:output:1'."""
    name, *rest = tensor.split(':')
    index = int(rest[-1]) if rest else 0
    if len(rest) == 2:
      index += _offset(self._nodes[name], rest[0])
    return self._outputs[name][index]

  def run(self) -> None:
    """Computes all nodes, each after those that it takes or waits for."""
    for name in self._nodes:
      waiting = [name]
      while waiting:
        node = self._nodes.get(waiting[-1])
        if node is None or node.name in self._outputs:
          waiting.pop()
          continue
        before = [tensor.lstrip('^').split(':')[0] for tensor in node.input]
        before = [n for n in before if n not in self._outputs]
        if before:
          waiting += before
          continue
        inputs = [self.get(t) for t in node.input if not t.startswith('^')]
        self.set(node.name, self._compute(node, inputs))

  def _compute(self, node, inputs: list) -> list:
    """Returns the outputs of a node."""
    library = self._library
    if node.op in library.functions:
      return library.call(node.op, inputs)
    if node.op in _CALLS:
      return library.call(node.attr['f'].func.name, inputs)
    if node.op in _IFS:
      return _conditional(library, node, *inputs[:1], inputs[1:])
    if node.op in ('While', 'StatelessWhile'):
      return _while(library, node, inputs)
    if node.op == 'NoOp':
      return []
    if node.op == 'Identity':
      return inputs
    special = _SPECIAL.get(node.op)
    if special is not None:
      return special(library, node, *inputs)
    _check_is_pure(node, inputs)
    return _stamp(library, node, inputs)


def _offset(node, output: str) -> int:
  """Returns the index of the first tensor of a node's output."""
  offset = 0
  for argument in _op_def(node.op).output_arg:
    if argument.name == output:
      return offset
    if argument.number_attr:
      offset += node.attr[argument.number_attr].i
    elif argument.type_list_attr:
      offset += len(node.attr[argument.type_list_attr].list.type)
    else:
      offset += 1
  # A call by name has outputs of its own; nobody makes them today.
  raise errors.NotPlainError(f'{node.name} has no output {output}')


def _op_def(kind: str):
  found = _op_def_registry.get(kind)
  if found is None:
    raise errors.NotPlainError(f'{kind} is not known')
  return found


def _check_is_pure(node, inputs: list) -> None:
  """Refuses what is more than a function of its inputs, or takes a sequence."""
  if _op_def(node.op).is_stateful:
    raise errors.NotPlainError(f'{node.name} ({node.op}) has a state')
  if 'Random' in node.op or 'Stateless' in node.op or 'seed' in node.attr:
    raise errors.NotPlainError(f'{node.name} ({node.op}) is random')
  if 'Conv' in node.op or 'Pool' in node.op:
    # Nothing is won, and what is in between is larger than the weights.
    raise errors.NotPlainError(f'{node.name} ({node.op}) is large')
  if any(True for _ in graph_defs.function_attributes(node)):
    raise errors.NotPlainError(f'{node.name} ({node.op}) calls a function')
  if not all(isinstance(value, tf.Tensor) for value in inputs):
    raise errors.NotPlainError(f'{node.name} ({node.op}) takes a sequence')


def _stamp(library, node, tensors: list) -> list[tf.Tensor]:
  """Returns the outputs of an ordinary operation."""
  graph_def = tf.compat.v1.GraphDef(versions=library.versions)
  copy = graph_def.node.add()
  copy.CopyFrom(node)
  copy.ClearField('device')
  copy.attr.pop('_class', None)
  copy.name = 'node'
  names = [f'input_{index}' for index in range(len(tensors))]
  copy.input[:] = names
  here = tf.compat.v1.get_default_graph()
  (operation,) = tf.graph_util.import_graph_def(
      graph_def,
      input_map={
          name: tensor if tensor.graph is here else tf.identity(tensor)
          for name, tensor in zip(names, tensors)
      },
      return_elements=['node'],
      name=node.op,
  )
  return list(operation.outputs)


class _Split:
  """Values in a loop or a branch: their tensors, and how to put them together.

  A sequence stays as it is, and of an iterator only the row changes.
  """

  def __init__(self, values: Sequence):
    self._values = list(values)
    for value in values:
      if isinstance(value, _Iterator) and value.sequence is None:
        raise errors.NotPlainError('an iterator is set up later')

  @property
  def tensors(self) -> list[tf.Tensor]:
    return [
        value if isinstance(value, tf.Tensor) else value.index
        for value in self._values
        if not isinstance(value, Columns)
    ]

  def join(self, tensors: Sequence[tf.Tensor]) -> list:
    """Returns the values with other tensors."""
    remaining = iter(tensors)

    def build(value):
      if isinstance(value, Columns):
        return value
      tensor = next(remaining)
      if isinstance(value, _Iterator):
        return value.at(tensor)
      if isinstance(value, _Optional):
        return _Optional(value.sequence, tensor)
      return tensor

    return [build(value) for value in self._values]

  def iterators(self) -> list[_Iterator]:
    return [value for value in self._values if isinstance(value, _Iterator)]


def _conditional(library, node, predicate, inputs: list) -> list:
  """Returns the outputs of an `If`, and moves iterators in its inputs."""
  if not isinstance(predicate, tf.Tensor):
    raise errors.NotPlainError(f'{node.name} asks for a sequence')
  if predicate.dtype != tf.bool or predicate.shape.rank != 0:
    raise errors.NotPlainError(f'{node.name} asks for what is no boolean')
  split, returned = _Split(inputs), []

  def branch(attribute):
    def run():
      own = split.join(split.tensors)
      results = library.call(node.attr[attribute].func.name, own)
      returned.append(results)
      if not all(isinstance(result, tf.Tensor) for result in results):
        raise errors.NotPlainError(f'{node.name} returns a sequence')
      moved = [v.index for v in own if isinstance(v, _Iterator)]
      return list(map(tf.identity, results + moved))

    return run

  found = tf.cond(predicate, branch('then_branch'), branch('else_branch'))
  found = list(found) if isinstance(found, (list, tuple)) else [found]
  size = len(found) - len(split.iterators())
  for iterator, start in zip(split.iterators(), found[size:]):
    iterator.index = start
  # What both hand on stays what it is, such as whether a loop goes on, which is
  # the same for all clients.
  return [
      one if one is other else result
      for one, other, result in zip(*returned, found[:size], strict=True)
  ]


def _while(library, node, inputs: list) -> list:
  """Returns the outputs of a `While`, and moves iterators in its inputs."""
  split = _Split(inputs)
  if any(isinstance(value, _Optional) for value in inputs):
    raise errors.NotPlainError(f'{node.name} hands on an element')

  def cond(*tensors):
    (result,) = library.call(node.attr['cond'].func.name, split.join(tensors))
    return result

  def body(*tensors):
    own = split.join(tensors)
    results = library.call(node.attr['body'].func.name, own)
    for value, result in zip(own, results, strict=True):
      if not isinstance(value, tf.Tensor) and result is not value:
        raise errors.NotPlainError(
            f'{node.name} does not hand on what it is given'
        )
    return _Split(results).tensors

  given = list(node.attr['output_shapes'].list.shape)
  shapes = [
      tf.TensorShape(given[index])
      if given and isinstance(value, tf.Tensor)
      else (value if isinstance(value, tf.Tensor) else value.index).shape
      for index, value in enumerate(inputs)
      if not isinstance(value, Columns)
  ]
  found = split.join(_loop(cond, body, split.tensors, shapes))
  for old, new in zip(inputs, found):
    if isinstance(old, _Iterator):
      old.index = new.index
  return [
      new if isinstance(old, tf.Tensor) else old
      for old, new in zip(inputs, found)
  ]


def _loop(cond: Callable, body: Callable, state: list, shapes: list) -> list:
  def shaped_body(*state):
    # Shapes get lost in a graph that is walked node by node.
    return [
        tf.ensure_shape(part, shape) if shape.rank is not None else part
        for part, shape in zip(body(*state), shapes, strict=True)
    ]

  found = tf.while_loop(
      cond, shaped_body, state, shape_invariants=shapes, parallel_iterations=1
  )
  return list(found) if isinstance(found, (list, tuple)) else [found]


def _reduce(library, node, sequence, *rest) -> list:
  """Returns what `ReduceDataset` returns."""
  _check_is_columns(node, sequence)
  size = len(node.attr['Tstate'].list.type)
  state, others = rest[:size], rest[size:]
  shapes = [tf.TensorShape(s) for s in node.attr['output_shapes'].list.shape]
  step = node.attr['f'].func.name
  num_elements = sequence.num_elements

  def cond(index, *_):
    return index < num_elements

  def body(index, *state):
    element = sequence.element(index)
    return index + 1, *library.call(step, [*state, *element, *others])

  start = tf.constant(0, tf.int64)
  _, *state = _loop(cond, body, [start, *state], [start.shape, *shapes])
  return state


def _new_iterator(library, node) -> list:
  del library, node
  return [_Iterator()]


def _set_up(library, node, sequence, iterator) -> list:
  del library
  _check_is_columns(node, sequence)
  iterator.sequence, iterator.index = sequence, tf.constant(0, tf.int64)
  return []


def _get_next(library, node, iterator) -> list:
  del library, node
  found = _Optional(iterator.sequence, iterator.index)
  iterator.index += 1
  return [found]


def _has_value(library, node, optional) -> list:
  del library, node
  return [optional.index < optional.sequence.num_elements]


def _get_value(library, node, optional) -> list:
  del library, node
  return optional.sequence.element(optional.index)


def _check_is_columns(node, sequence) -> None:
  if not isinstance(sequence, Columns):
    raise errors.NotPlainError(f'{node.name} ({node.op}) is over a dataset')


def _constant(node, tensor):
  found = tf.get_static_value(tensor)
  if found is None:
    raise errors.NotPlainError(f'{node.name} ({node.op}) depends on a value')
  return found.item() if hasattr(found, 'item') else found


def _map(library, node, sequence, *others) -> list:
  """Returns what a `MapDataset` returns: elements are mapped when read."""
  _check_is_columns(node, sequence)
  if node.op.startswith('Parallel'):
    others = others[:-1]  # How many at a time.
  function = node.attr['f'].func.name
  return [
      sequence.mapped(lambda parts: library.call(function, [*parts, *others]))
  ]


def _repeat(library, node, sequence, count) -> list:
  del library
  _check_is_columns(node, sequence)
  count = _constant(node, count)
  if not 0 <= count < _MANY:
    raise errors.NotPlainError(f'{node.name} repeats for ever, or nearly')
  return [sequence.repeated(count)]


def _take(library, node, sequence, count) -> list:
  del library
  _check_is_columns(node, sequence)
  return [sequence.taken(count)]


def _batch(library, node, sequence, size, *rest) -> list:
  """Returns what a `BatchDatasetV2` or `ParallelBatchDataset` returns."""
  del library
  _check_is_columns(node, sequence)
  if not _constant(node, size) > 0:
    raise errors.NotPlainError(f'{node.name} has batches of nothing')
  return [sequence.batched(size, rest[-1])]


def _same_elements(library, node, sequence) -> list:
  del library
  _check_is_columns(node, sequence)
  return [sequence]


def _prefetch(library, node, sequence, size) -> list:
  del size
  return _same_elements(library, node, sequence)


def _cache(library, node, sequence, path, state=None) -> list:
  del state
  if _constant(node, path) != b'':
    raise errors.NotPlainError(f'{node.name} writes files')
  return _same_elements(library, node, sequence)


def _no_state(library, node) -> list:
  del library, node
  return [_NoState()]


def _cardinality(library, node, sequence) -> list:
  del library
  _check_is_columns(node, sequence)
  return [sequence.num_elements]


def _l2_loss(library, node, tensor) -> list:
  del library, node
  # In runs and pairs as the kernel adds, see `clipping.NORM_MARGIN`.
  return [tf.reduce_sum(tf.square(tensor)) / 2]


_SPECIAL = {
    'ReduceDataset': _reduce,
    'AnonymousIteratorV3': _new_iterator,
    'MakeIterator': _set_up,
    'IteratorGetNextAsOptional': _get_next,
    'OptionalHasValue': _has_value,
    'OptionalGetValue': _get_value,
    'MapDataset': _map,
    'ParallelMapDatasetV2': _map,
    'RepeatDataset': _repeat,
    'TakeDataset': _take,
    'BatchDatasetV2': _batch,
    'ParallelBatchDataset': _batch,
    'CacheDataset': _cache,
    'CacheDatasetV2': _cache,
    'DummyMemoryCache': _no_state,
    'PrefetchDataset': _prefetch,
    'OptionsDataset': _same_elements,
    'DatasetCardinality': _cardinality,
    'L2Loss': _l2_loss,
}
