# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Serialized graphs as pure functions of values.

A graph is walked node by node, in the order of the program. Calls are inlined.
`If`, `While` and `ReduceDataset` become TensorFlow's own conditionals and loops
(`control_flow`). Variables, sequences and iterators are Python objects around
tensors (`variables`, `columns`), which loops and branches pass on as values. No
variable exists when the graph runs. So none can be read too early or by another
client.

In the loop over clients, every operation without a state is allowed. Draws,
assertions, prints and lookups in tables run in the order of the walk. For all
clients at once, only the operations in the lists of `vectorized` are allowed.
This module refuses a graph with any other operation (`NotPlainError`). `graphs`
then runs the graph as it is, with variables that start anew for each client, as
in a session of TFF.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import re

import tensorflow as tf

from tff_dp.execution import errors
from tff_dp.execution.compiling import columns
from tff_dp.execution.compiling import control_flow
from tff_dp.execution.compiling import convolutions
from tff_dp.execution.compiling import variables
from tff_dp.execution.compiling import vectorized
from tff_dp.execution.data import graph_defs

_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
_IFS = ('If', 'StatelessIf')
_WHILES = ('While', 'StatelessWhile')
_STATELESS = {
    'StatefulPartitionedCall': 'PartitionedCall',
    'If': 'StatelessIf',
    'While': 'StatelessWhile',
}
_DRAW = re.compile(
    'RandomStandardNormal|RandomUniform|RandomUniformInt|TruncatedNormal'
    '|RandomShuffle|RandomGamma|RandomPoissonV2|Multinomial'
)
# Operations with a state that need nothing but a fixed order.
_IN_ORDER = re.compile(
    f'Assert|PrintV2|{_DRAW.pattern}|Anonymous(Mutable)?HashTable'
    '|InitializeTableV2|LookupTable(Find|Size|Insert|Import|Export)V2'
)


def evaluate(
    graph_def,
    inputs: Mapping[str, object],
    results: Sequence[str],
    *,
    is_vectorized: bool,
    own_zero: tf.Tensor | None = None,
) -> list[tf.Tensor | columns.Columns]:
  """Adds a graph to the current one and returns its results.

  Args:
    graph_def: Graph whose functions have names that no other graph has.
    inputs: Tensors and `Columns` by the names of their placeholders.
    results: Names of the tensors and sequences to return.
    is_vectorized: Whether the call is inside `tf.vectorized_map`.
    own_zero: Number 0 of each client, for which `tf.vectorized_map` converts
      loops once instead of three times, see `lanes`.

  Raises:
    NotPlainError: The graph contains something that is not supported here.
  """
  library = _Library(graph_def, is_vectorized, own_zero)
  scope = _Scope(library, graph_def.node)
  for name, value in inputs.items():
    scope.set(name.split(':')[0], [value])
  with library.region() as region:
    scope.run(results)
    found = [scope.get(name) for name in results]
    if not all(isinstance(v, (tf.Tensor, columns.Columns)) for v in found):
      raise errors.NotPlainError('a result is neither tensor nor sequence')
    tensors = [value for value in found if isinstance(value, tf.Tensor)]
    gated = iter(region.closed(tensors))
  return [next(gated) if isinstance(v, tf.Tensor) else v for v in found]


class _Region:
  """The part of the graph that receives the next operation.

  Operations with a state run one after the other in a region. Each body of a
  loop and each branch is its own region.
  """

  def __init__(self):
    self._last = None

  @contextlib.contextmanager
  def next(self):
    """Makes operations added in its block wait for all earlier stateful ones.
    """
    last = [] if self._last is None else [self._last]
    with tf.control_dependencies(last):
      yield

  def follow(self, operation: tf.Operation) -> None:
    """Makes the next operations with a state wait for `operation`."""
    self._last = operation

  @property
  def has_order(self) -> bool:
    """Whether the region has an operation with a state."""
    return self._last is not None

  def closed(self, tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns the tensors, which then wait for all operations with a state."""
    if self._last is None:
      return list(tensors)
    with self.next():
      return [tf.identity(tensor) for tensor in tensors]


class _Library:
  """The functions of a graph, and the regions that are open.

  Attributes:
    versions: Versions of the graph.
    functions: Functions by name.
    names: Variables by container and name. The whole graph shares them.
    own_zero: Number 0 of each client, see `lanes`, or None.
    convolutions: Convolutions for all clients at once.
  """

  def __init__(self, graph_def, is_vectorized: bool, own_zero):
    self.own_zero = own_zero
    self.convolutions = convolutions.Convolutions()
    self.versions = graph_def.versions
    self.functions = {f.signature.name: f for f in graph_def.library.function}
    self.names = {}
    self._list = vectorized.OPERATIONS if is_vectorized else None
    self._regions = []
    self._plain = {}

  @contextlib.contextmanager
  def region(self) -> Iterator[_Region]:
    """Opens a region, which is the current one inside of the context."""
    self._regions.append(_Region())
    try:
      yield self._regions[-1]
    finally:
      self._regions.pop()

  @property
  def current_region(self) -> _Region:
    return self._regions[-1]

  @property
  def is_vectorized(self) -> bool:
    return self._list is not None

  def check_is_listed(self, node) -> None:
    """Refuses an operation that is not on the list, if there is a list."""
    if self._list is not None and not vectorized.is_listed(node, self._list):
      raise errors.NotPlainError(
          f'{node.name} ({node.op}) is not known to be vectorizable'
      )

  def call(self, name: str, arguments: Sequence) -> list:
    """Returns the results of a function, inlined."""
    function = self.functions[name]
    scope = _Scope(self, function.node_def, is_function=True)
    for argument, value in zip(
        function.signature.input_arg, arguments, strict=True
    ):
      scope.set(argument.name, [value])
    # Like TensorFlow, this runs the outputs and the nodes with an effect. Keras
    # leaves layers behind that lead to neither.
    scope.run([
        *function.ret.values(),
        *function.control_ret.values(),
        *(node.name for node in function.node_def if _has_effect(node, self)),
    ])
    return [
        scope.get(function.ret[output.name])
        for output in function.signature.output_arg
    ]

  def call_on_rows(self, name: str, arguments: Sequence) -> list:
    """Returns the results of a function within a vectorized map over rows.

    Only operations of `vectorized.EXACT` are allowed in it.
    """
    before, self._list = self._list, vectorized.EXACT
    try:
      with self.region():
        return self.call(name, arguments)
    finally:
      self._list = before

  def is_plain(self, name: str) -> bool:
    """Returns whether a function is stateless and takes no sequences."""
    if name not in self._plain:
      self._plain[name] = all(
          _is_plain(node, self) for node in self.functions[name].node_def
      )
    return self._plain[name]


def _is_plain(node, library: _Library) -> bool:
  """Returns whether a node is stateless and about no dataset.

  TensorFlow may run such a node at any time.
  """
  called = list(graph_defs.called([node], library.functions))
  if called:
    known = node.op in (*_CALLS, *_IFS, *_WHILES) or node.op in called
    return known and all(map(library.is_plain, called))
  return not (
      graph_defs.is_stateful(node.op)
      or _is_about_data(node.op)
      or any(True for _ in graph_defs.function_attributes(node))
  )


def _is_draw(node) -> bool:
  """Returns whether a node is a random operation without a seed."""
  return bool(_DRAW.fullmatch(node.op)) and not graph_defs.is_seeded(node)


def _has_effect(node, library: _Library) -> bool:
  """Returns whether a node of a function runs even if nothing needs it."""
  return node.op in library.functions or (
      graph_defs.is_stateful(node.op)
      and node.op not in ('ReadVariableOp', 'VarHandleOp')
  )


def _is_about_data(operation: str) -> bool:
  return 'Dataset' in operation or 'Iterator' in operation


class _Scope:
  """The nodes of a graph or of a function, and their outputs so far."""

  def __init__(self, library: _Library, nodes, *, is_function: bool = False):
    self._library = library
    self._nodes = {node.name: node for node in nodes}
    self._is_function = is_function
    self._outputs = {}

  def set(self, name: str, outputs: list) -> None:
    self._outputs[name] = outputs

  def get(self, tensor: str):
    """Returns the output that the name of a tensor stands for.

    Names are 'node', 'node:1' or, in a function, 'node:output:1'.
    """
    name, *rest = tensor.split(':')
    index = int(rest[-1]) if rest else 0
    if len(rest) == 2:
      index += _offset(self._nodes[name], rest[0])
    return self._outputs[name][index]

  def run(self, ends: Sequence[str]) -> None:
    """Computes nodes, each after the nodes that it takes or waits for."""
    wanted = set(map(graph_defs.node_of, ends))
    for name in filter(wanted.__contains__, self._nodes):
      waiting = [name]
      while waiting:
        node = self._nodes.get(waiting[-1])
        if node is None or node.name in self._outputs:
          waiting.pop()
          continue
        # It cannot be walked by nodes.
        if node.op in graph_defs.OLD_CONTROL_FLOW:
          raise errors.NotPlainError(
              f'{node.name} ({node.op}) is control flow of TensorFlow 1'
          )
        needed = list(node.input)
        if self._can_be_later(node):
          del needed[1]
        before = [graph_defs.node_of(tensor) for tensor in needed]
        before = [n for n in before if n not in self._outputs]
        if before:
          waiting += before
          continue
        inputs = [self.get(t) for t in needed if not t.startswith('^')]
        if len(needed) < len(node.input):
          self.set(node.name, self._assign_later(node, *inputs))
        else:
          self.set(node.name, self._compute(node, inputs))

  def _can_be_later(self, node) -> bool:
    """Returns whether an assignment may wait until its variable is first read.

    It may if its value comes only from stateless operations and from random
    operations without a seed. The initial values of a model are usually
    replaced before the first read, so in most cases they are never made.
    """
    if node.op != 'AssignVariableOp' or self._is_function:
      return False
    waiting, found = [graph_defs.node_of(node.input[1])], set()
    while waiting:
      name = waiting.pop()
      if name in found or name in self._outputs:
        continue
      found.add(name)
      own = self._nodes[name]
      if not (_is_plain(own, self._library) or _is_draw(own)):
        return False
      waiting += map(graph_defs.node_of, own.input)
    return True

  def _assign_later(self, node, variable) -> list:
    if not isinstance(variable, variables.Variable):
      raise errors.NotPlainError(f'{node.name} has no variable')

    def value():
      self.run([node.input[1]])
      return self.get(node.input[1])

    variable.value = value
    return []

  def _compute(self, node, inputs: list) -> list:
    """Returns the outputs of a node."""
    library = self._library
    calls = any(True for _ in graph_defs.called([node], library.functions))
    if calls and not library.is_vectorized and control_flow.are_values(inputs):
      # The order of a plain function does not matter, so TensorFlow may run it.
      if _is_plain(node, library):
        return list(_stamp(library, node, inputs).outputs)
    if node.op in library.functions:
      return library.call(node.op, inputs)
    if node.op in _CALLS:
      return library.call(node.attr['f'].func.name, inputs)
    if node.op in _IFS:
      return control_flow.conditional(library, node, *inputs[:1], inputs[1:])
    if node.op in _WHILES:
      return control_flow.while_loop(library, node, inputs)
    if node.op == 'ScanDataset':
      return control_flow.scanned(node, *inputs)
    if node.op == 'ReduceDataset':
      return control_flow.reduce(library, node, *inputs)
    if node.op in ('MapDataset', 'ParallelMapDatasetV2'):
      return control_flow.mapped(library, node, *inputs)
    if node.op == 'NoOp':
      return []
    if node.op in ('Identity', 'IdentityN'):
      return inputs
    if node.op == 'VarHandleOp':
      return [self._variable(node)]
    if node.op in variables.OPERATIONS or node.op in variables.READS:
      return self._variable_operation(node, inputs)
    if node.op in columns.OPERATIONS and not control_flow.are_values(inputs):
      return columns.OPERATIONS[node.op](node, *inputs)
    if node.op in ('AnonymousIteratorV3', 'DummyMemoryCache'):
      return columns.OPERATIONS[node.op](node)
    if node.op == 'L2Loss' and library.is_vectorized:
      # `reduce_sum` adds in runs and pairs, like the kernel of `L2Loss`. See
      # `clipping.NORM_MARGIN`.
      return [tf.reduce_sum(tf.square(*inputs)) / 2]
    if node.op == 'All' and _is_about_finite_values(node, *inputs):
      # TFF asks this of each update. `All` looks at one number after the other,
      # and takes ten times as long as a sum. The factor keeps the sum finite,
      # and no rewrite of TensorFlow removes it, as it would a factor of 0.
      numbers = inputs[0].op.inputs[0]
      return [
          tf.math.is_finite(tf.reduce_sum(numbers * numbers.dtype.max**-0.5))
      ]
    if library.is_vectorized:
      convolution = library.convolutions.operation(node)
      if convolution is not None and control_flow.are_values(inputs):
        library.check_is_listed(node)
        return convolution(*inputs)
    if node.op == 'Slice' and library.is_vectorized:
      # TensorFlow gathers where each client has its own begin. A GPU reads zeros
      # beyond the end, where a slice of one client fails.
      if tf.get_static_value(inputs[1]) is None:
        raise errors.NotPlainError(f'{node.name} (Slice) has no constant begin')
    if node.op == 'MatMul' and library.is_vectorized:
      return [_product(node, *_operation(library, node, inputs), *inputs)]
    return _operation(library, node, inputs)

  def _variable(self, node) -> variables.Variable:
    """Returns the variable that a `VarHandleOp` stands for."""
    if self._is_function:
      # A call in a loop would find the variable of the call before.
      raise errors.NotPlainError(f'variable {node.name} is made in a function')
    name = node.attr['shared_name'].s or node.name.encode()
    key = node.attr['container'].s, name
    if key not in self._library.names:
      self._library.names[key] = variables.Variable(
          tf.as_dtype(node.attr['dtype'].type),
          tf.TensorShape(node.attr['shape'].shape),
      )
    return self._library.names[key]

  def _variable_operation(self, node, inputs: list) -> list:
    variable, *others = inputs
    if not (
        isinstance(variable, variables.Variable)
        and control_flow.are_values(others)
    ):
      raise errors.NotPlainError(f'{node.name} has no variable')
    if node.op in variables.READS:
      read, inputs = variables.READS[node.op](node, variable, *others)
      return _operation(self._library, read, inputs)
    return variables.OPERATIONS[node.op](variable, *others)


def _offset(node, output: str) -> int:
  """Returns the index of the first tensor of a node's output."""
  offset = 0
  definition = graph_defs.op_def(node.op)
  if definition is None:
    raise errors.NotPlainError(f'{node.op} is not known')
  for argument in definition.output_arg:
    if argument.name == output:
      return offset
    if argument.number_attr:
      offset += node.attr[argument.number_attr].i
    elif argument.type_list_attr:
      offset += len(node.attr[argument.type_list_attr].list.type)
    else:
      offset += 1
  # A call by name has other outputs. No known program has such a call.
  raise errors.NotPlainError(f'{node.name} has no output {output}')


def _operation(library, node, inputs: list) -> list[tf.Tensor]:
  """Returns the outputs of an ordinary operation.

  Raises:
    NotPlainError: The operation calls a function, takes a sequence, is about a
      dataset, has a seed, is not on the list, or has a state for which a fixed
      order may not be enough.
  """
  if any(True for _ in graph_defs.function_attributes(node)):
    raise errors.NotPlainError(f'{node.name} ({node.op}) calls a function')
  if not control_flow.are_values(inputs):
    raise errors.NotPlainError(f'{node.name} ({node.op}) takes a sequence')
  if _is_about_data(node.op):
    raise errors.NotPlainError(f'{node.name} ({node.op}) works on a dataset')
  is_stateful = graph_defs.is_stateful(node.op)
  if is_stateful and graph_defs.is_seeded(node):
    raise errors.NotPlainError(f'{node.name} ({node.op}) has a seed')
  if node.op != 'Const':
    library.check_is_listed(node)
  if not is_stateful:
    return list(_stamp(library, node, inputs).outputs)
  if not _IN_ORDER.fullmatch(node.op):
    raise errors.NotPlainError(f'{node.name} ({node.op}) has a state')
  # The inputs wait, so an operation without inputs, such as a new table, waits
  # for nothing.
  region = library.current_region
  found = _stamp(library, node, region.closed(inputs))
  region.follow(found)
  return list(found.outputs)


def _is_about_finite_values(node, condition: tf.Tensor, axes) -> bool:
  """Returns whether an `All` asks if every number of one tensor is finite.

  The caller answers this with a sum. A sum of 16-bit floats could overflow, so
  for tensors of 16-bit floats the result is False.
  """
  places, rank = tf.get_static_value(axes), condition.shape.rank
  return (
      condition.op.type == 'IsFinite'
      and condition.op.inputs[0].dtype.size >= 4
      and not node.attr['keep_dims'].b
      and places is not None
      and rank is not None
      and {place % rank for place in places.flat} == set(range(rank))
  )


def _product(node, product, left, right) -> tf.Tensor:
  """Returns a product of matrices with its shape, even if a side is empty."""
  rows = tf.shape(left)[1 if node.attr['transpose_a'].b else 0]
  width = tf.shape(right)[0 if node.attr['transpose_b'].b else 1]
  return tf.reshape(product, [rows, width])


def _stamp(library, node, tensors: list) -> tf.Operation:
  """Adds a node to the current graph, with the functions that it calls."""
  graph_def = tf.compat.v1.GraphDef(versions=library.versions)
  copy = graph_def.node.add()
  copy.CopyFrom(node)
  copy.op = _STATELESS.get(node.op, node.op)
  copy.ClearField('device')
  copy.attr.pop('_class', None)
  copy.name = 'node'
  names = [f'input_{index}' for index in range(len(tensors))]
  copy.input[:] = names
  for name in sorted(graph_defs.called_by([node], library.functions)):
    graph_def.library.function.add().CopyFrom(library.functions[name])
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
  return operation
