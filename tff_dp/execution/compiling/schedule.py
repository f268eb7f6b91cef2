# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A TFF computation as a schedule of server stages and passes over clients.

The computation is interpreted once, without data. Each of its calls becomes a
node of a graph. A node stands for one value on the server, or for one value per
client. An aggregation separates the nodes before it from the nodes after it.
The level of a node counts the aggregations that it has to wait for. The order
of work is

    stage 0, pass 1, stage 1, pass 2, stage 2, ...

Stage s computes the server's nodes of level s. Pass p feeds all aggregations of
level p. So every value is known when it is needed.
"""

import collections
from collections.abc import Iterator
import dataclasses
import itertools

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution.compiling import interpreter
from tff_dp.execution.data import datasets
from tff_dp.execution.data import graph_defs

Struct = tff.structure.Struct


@dataclasses.dataclass(frozen=True)
class Argument:
  """Part of the computation's argument.

  Attributes:
    path: Indices that lead to the part.
    type_spec: Type of the part, or of one client's value.
    per_client: Whether the part is a list with one value per client.
  """

  path: tuple[int, ...]
  type_spec: tff.Type
  per_client: bool


@dataclasses.dataclass(frozen=True)
class Call:
  """A call of a TensorFlow computation. Its input is the argument, if any."""

  block: tff.framework.CompiledComputation


@dataclasses.dataclass(frozen=True)
class Pick:
  """One element of the input, which is a struct.

  Attributes:
    index: Index of the element.
  """

  index: int


@dataclasses.dataclass(frozen=True)
class Copy:
  """A copy of the input, a value with datasets, for one use of it.

  Attributes:
    type_spec: Type of the value.
  """

  type_spec: tff.Type


@dataclasses.dataclass(frozen=True)
class Select:
  """The slices that `federated_select` gives a client.

  Inputs: the client's keys, the largest allowed key, the server's value, and
  the function from this value and a key to a slice.
  """


@dataclasses.dataclass(frozen=True)
class Accumulate:
  """An aggregation of the clients' values.

  Inputs: the clients' value, the sum before any value (zero), the function that
  adds a value to a sum (accumulate), and the function that joins two sums
  (merge).

  Attributes:
    zero_type: Type of the sum.
  """

  zero_type: tff.Type


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
  """A value that is computed once, or once per client.

  Attributes:
    operation: Operation that computes the value.
    inputs: Inputs of the operation: nodes, and structs and functions of nodes.
    on_clients: Whether there is one value per client.
    level: Number of passes that must be over before the value is computed.
  """

  operation: object
  inputs: tuple
  on_clients: bool
  level: int


def nodes_in(value) -> Iterator[Node]:
  """Yields the nodes in a symbolic value."""
  if isinstance(value, Node):
    yield value
  elif isinstance(value, Struct):
    for element in value:
      yield from nodes_in(element)
  elif isinstance(value, interpreter.Function):
    for captured in value.scope.values():
      yield from nodes_in(captured)


def sources(node: Node) -> Iterator[Node]:
  """Yields the nodes that a node needs."""
  for value in node.inputs:
    yield from nodes_in(value)


def _has(type_spec: tff.Type, *kinds) -> bool:
  """Returns whether a type, or a part of it, is of one of the kinds."""
  return tff.types.contains(type_spec, lambda part: isinstance(part, kinds))


def _num_sequences(type_spec: tff.Type | None) -> int:
  """Returns the number of sequences in a type without placement."""
  return 0 if type_spec is None else tff.types.count(
      type_spec, lambda part: isinstance(part, tff.SequenceType)
  )


def _type_of(node: Node) -> tff.Type | None:
  """Returns the type of a node, or None if it has no sequence with a state."""
  operation = node.operation
  if isinstance(operation, Pick):
    outer = _type_of(node.inputs[0])
    return None if outer is None else outer[operation.index]
  if isinstance(operation, Call):
    return operation.block.type_signature.result
  if isinstance(operation, Accumulate):
    return operation.zero_type
  if isinstance(operation, interpreter.Intrinsic):
    return operation.type_spec.result
  # The sequences of `Select` are slices, which have no state.
  return operation.type_spec if isinstance(operation, Argument) else None


def _is_argument(value) -> bool:
  return isinstance(value, Node) and isinstance(value.operation, Argument)


def _maker(node: Node) -> Node:
  """Returns the node that made the whole value, of which `node` is a part."""
  while isinstance(node.operation, Pick):
    (node,) = node.inputs
  return node


def _is_repeatable(maker: Node) -> bool:
  """Returns whether a node certainly makes the same dataset again."""
  if _is_argument(maker):
    return True
  operation = maker.operation
  if not isinstance(operation, Call):
    return False
  graph_def = tf.compat.v1.GraphDef()
  operation.block.proto.tensorflow.graph_def.Unpack(graph_def)
  return datasets.is_repeatable(graph_def)


# Whether its inputs are at the clients: value, zero, accumulate, merge.
_PLACES_OF_ACCUMULATE = (True, False, True, False)


class _Builder(interpreter.Interpreter):
  """Turns a computation into nodes."""

  def __init__(self, known_as_reused: set[int]):
    """Begins without nodes.

    Args:
      known_as_reused: Numbers that were `reused` in an earlier builder.
    """
    # In order of creation. So every node comes after its inputs.
    self.nodes = []
    self._known_as_reused = known_as_reused
    # Nodes that make datasets -> number in order of creation.
    self._makers = {}
    self._number = 0
    self._uses = collections.Counter()
    self._on_clients = False
    # Arguments and nodes that make datasets, which have a use already.
    self._used = set()

  def _node(self, operation, *inputs, on_clients: bool = False) -> Node:
    before = [node for value in inputs for node in nodes_in(value)]
    on_clients |= any(node.on_clients for node in before)
    places = [on_clients] * len(inputs)
    if isinstance(operation, Accumulate):
      on_clients, places = False, _PLACES_OF_ACCUMULATE
    # An element is owned by its uses, unless it is a part of an argument.
    if not isinstance(operation, Pick) or _is_argument(*inputs):
      inputs = tuple(map(self._own, inputs, places))
    before = [node for value in inputs for node in nodes_in(value)]
    level = max((node.level for node in before), default=0)
    level += isinstance(operation, Accumulate)
    node = self._add(Node(operation, inputs, on_clients, level))
    if _maker(node) is node and _num_sequences(_type_of(node)):
      self._makers[node] = self._number
      self._number += 1
    return node

  def _add(self, node: Node) -> Node:
    self.nodes.append(node)
    return node

  def _own(self, value, on_clients: bool):
    """Returns an input whose datasets serve this one use only.

    Iterating over a dataset may change it (see `datasets`). So every use of an
    argument with a dataset has its own node. If a dataset from the computation
    has several uses, each makes it again, or takes a copy if that could give
    another dataset. A dataset of the server that goes to the clients has one
    value per client.
    """
    if isinstance(value, Struct):
      parts = tff.structure.to_elements(value)
      return Struct([(name, self._own(x, on_clients)) for name, x in parts])
    if isinstance(value, interpreter.Function):
      scope = {n: self._own(x, on_clients) for n, x in value.scope.items()}
      return interpreter.Function(value.block, scope)
    if not isinstance(value, Node):
      return value
    if isinstance(value.operation, Copy):
      return self._add(dataclasses.replace(value))
    if not _num_sequences(_type_of(value)):
      return value
    if _is_argument(value):
      if value in self._used or value.on_clients != on_clients:
        value = self._node(value.operation, on_clients=on_clients)
      self._used.add(value)
      return value
    self._use(value)
    maker = _maker(value)
    goes_to_clients = on_clients and not value.on_clients
    is_reused = self._makers[maker] in self._known_as_reused
    if is_reused and not goes_to_clients and _is_repeatable(maker):
      if _num_sequences(_type_of(value)) > 1:
        # Each dataset is made by itself: two of a dataset may share its state.
        elements = tff.structure.iter_elements(_type_of(value))
        return Struct([
            (name, self._own(self.pick(value, index), on_clients))
            for index, (name, _) in enumerate(elements)
        ])
      return self._made_again(value)
    if is_reused or goes_to_clients:
      # A stage comes before the pass of the same level, and so can serve it.
      level = value.level + (not goes_to_clients)
      return self._add(
          Node(Copy(_type_of(value)), (value,), on_clients, level)
      )
    return value

  def _made_again(self, node: Node) -> Node:
    """Returns a node like this one with datasets of its own."""
    if isinstance(node.operation, Pick):
      return self._add(
          dataclasses.replace(node, inputs=(self._made_again(*node.inputs),))
      )
    if node in self._used:
      number, next_number = self._makers[node], self._number
      node = self._node(
          node.operation, *node.inputs, on_clients=node.on_clients
      )
      self._makers[node], self._number = number, next_number
    self._used.add(node)
    return node

  def _use(self, node: Node) -> None:
    """Counts a use of a node for each of its datasets."""
    if _maker(node) in self._makers and not _is_argument(node):
      self._uses[self._makers[_maker(node)]] += _num_sequences(_type_of(node))

  @property
  def reused(self) -> set[int]:
    """Numbers of the nodes whose datasets have more than one use.

    The same computation gives the same numbers to another builder.
    """
    return {number for number, uses in self._uses.items() if uses > 1}

  def result_of(self, block: tff.framework.ComputationBuildingBlock):
    """Returns the symbolic result of a function."""
    argument = None
    if block.type_signature.parameter is not None:
      argument = self.argument(block.type_signature.parameter)
    result = self.apply(self.evaluate(block, {}), argument)
    for node in nodes_in(result):
      self._use(node)
    return result

  def argument(self, type_spec: tff.Type, path: tuple[int, ...] = ()):
    """Returns the symbolic argument of a type."""
    if isinstance(type_spec, tff.FederatedType):
      per_client = (
          type_spec.placement is tff.CLIENTS and not type_spec.all_equal
      )
      operation = Argument(path, type_spec.member, per_client)
      return self._node(operation, on_clients=per_client)
    if isinstance(type_spec, tff.StructType) and _has(
        type_spec, tff.FederatedType, tff.FunctionType
    ):
      return Struct([
          (name, self.argument(element, (*path, index)))
          for index, (name, element) in enumerate(
              tff.structure.iter_elements(type_spec)
          )
      ])
    if isinstance(type_spec, tff.FunctionType):
      raise errors.UnsupportedComputationError(
          'a computation with a function as its argument',
          instead='a computation that is built with that function',
      )
    return self._node(Argument(path, type_spec, per_client=False))

  def call_tensorflow(self, block, argument):
    inputs = () if argument is None else (argument,)
    return self._node(Call(block), *inputs, on_clients=self._on_clients)

  def pick(self, value, index):
    return self._node(Pick(index), value)

  def literal(self, literal):
    return self._node(literal)

  def _apply_at(self, function, argument, *, on_clients: bool):
    previous, self._on_clients = self._on_clients, on_clients
    try:
      return self.apply(function, argument)
    finally:
      self._on_clients = previous

  def call_intrinsic(self, intrinsic, argument):
    uri = intrinsic.uri
    if uri in ('federated_map', 'federated_apply', 'federated_map_all_equal'):
      function, value = argument
      return self._apply_at(
          function, value, on_clients=(uri == 'federated_map')
      )
    if uri in ('federated_eval_at_clients', 'federated_eval_at_server'):
      return self._apply_at(
          argument, None, on_clients=(uri == 'federated_eval_at_clients')
      )
    if uri in (
        'federated_broadcast',
        'federated_value_at_clients',
        'federated_value_at_server',
        'federated_zip_at_clients',
        'federated_zip_at_server',
    ):
      return argument
    if uri == 'federated_aggregate':
      value, zero, accumulate, merge, report = argument
      zero_type = intrinsic.type_spec.parameter[2].parameter[0]
      node = self._node(Accumulate(zero_type), value, zero, accumulate, merge)
      return self._apply_at(report, node, on_clients=False)
    if uri == 'federated_select':
      return self._node(Select(), *argument, on_clients=True)
    if uri in ('sequence_map', 'sequence_reduce', 'sequence_sum'):
      return self._node(intrinsic, argument, on_clients=self._on_clients)
    raise errors.UnsupportedComputationError(
        f'the intrinsic {uri!r}', instead='one of TFF\'s public operators'
    )


@dataclasses.dataclass(eq=False)
class Stage:
  """Work of the server between two passes.

  Attributes:
    inputs: Nodes that the stage reads and does not compute.
    nodes: Nodes that the stage computes, in order.
    outputs: Nodes of `nodes` that other stages, passes or the result need.
  """

  inputs: list[Node]
  nodes: list[Node]
  outputs: list[Node]


@dataclasses.dataclass(eq=False)
class Pass:
  """One walk over the clients.

  Attributes:
    server_inputs: Nodes of the server that clients read.
    client_inputs: Nodes of clients whose values are known before the pass:
      arguments, copies, and values that earlier passes kept.
    nodes: Nodes that are computed for each client, in order.
    accumulations: Aggregations that the pass feeds.
    merge_inputs: Nodes of the server that are needed to join accumulators.
    kept: Nodes of `nodes` that a later pass, a copy or the result needs.
  """

  server_inputs: list[Node]
  client_inputs: list[Node]
  nodes: list[Node]
  accumulations: list[Node]
  merge_inputs: list[Node]
  kept: list[Node]


@dataclasses.dataclass(eq=False)
class Schedule:
  """Stages and passes for one call of a computation.

  Attributes:
    stages: Stages of the server, one more than there are passes.
    passes: Passes over the clients. `passes[s]` follows `stages[s]`.
    result: Symbolic result.
    arguments: Nodes that stand for parts of the argument. Several nodes may
      stand for the same part.
    copies: Nodes of the operation `Copy`.
  """

  stages: list[Stage]
  passes: list[Pass]
  result: object
  arguments: list[Node]
  copies: list[Node]


def _is_known_before(node: Node) -> bool:
  return isinstance(node.operation, (Argument, Accumulate, Copy))


def _is_client_work(node: Node) -> bool:
  return node.on_clients and not _is_known_before(node)


class _PassBuilder:
  """Puts every node of the clients into the first pass that needs it."""

  def __init__(self, ordered: list[Node], roots: list[Node]):
    self._ordered = ordered
    self._position = {node: index for index, node in enumerate(ordered)}
    self._outputs = [node for node in dict.fromkeys(roots) if node.on_clients]
    self._home = {}
    self.passes = []

  def build(self) -> list[Pass]:
    depth = max((node.level for node in self._ordered), default=0)
    for node in filter(_is_client_work, self._outputs):
      depth = max(depth, node.level + 1)
    for number in range(1, depth + 1):
      self.passes.append(self._pass(number))
    for node in filter(_is_client_work, self._outputs):
      self._keep(node)
    return self.passes

  def _keep(self, node: Node) -> None:
    kept = self.passes[self._home[node] - 1].kept
    if node not in kept:
      kept.append(node)

  def _pass(self, number: int) -> Pass:
    accumulations = [
        node
        for node in self._ordered
        if isinstance(node.operation, Accumulate) and node.level == number
    ]
    waiting = [n for n in self._outputs if n.level == number - 1]
    for node in accumulations:
      value, _, accumulate, _ = node.inputs
      waiting += [*nodes_in(value), *nodes_in(accumulate)]
    server_inputs, client_inputs, nodes = set(), set(), set()
    while waiting:
      node = waiting.pop()
      if not node.on_clients:
        server_inputs.add(node)
      elif _is_known_before(node):
        client_inputs.add(node)
      elif self._home.get(node, number) < number:
        client_inputs.add(node)
        self._keep(node)
      elif node not in nodes:
        self._home[node] = number
        nodes.add(node)
        waiting.extend(sources(node))
    # Elements that later passes need are picked here, so that this pass need
    # not keep the whole struct.
    for node in self._ordered:
      if isinstance(node.operation, Pick) and node not in self._home:
        if self._home.get(node.inputs[0]) == number:
          self._home[node] = number
          nodes.add(node)
    return Pass(
        self._sorted(server_inputs),
        self._sorted(client_inputs),
        self._sorted(nodes),
        accumulations,
        self._sorted({
            node for a in accumulations for node in nodes_in(a.inputs[3])
        }),
        [],
    )

  def _sorted(self, nodes: set[Node]) -> list[Node]:
    return sorted(nodes, key=self._position.__getitem__)


def _stages_of(
    ordered: list[Node], passes: list[Pass], roots: list[Node]
) -> list[Stage]:
  wanted = {node for node in roots if not node.on_clients}
  for one_pass in passes:
    wanted.update(one_pass.server_inputs)
    wanted.update(one_pass.merge_inputs)
    for node in one_pass.accumulations:
      wanted.update(nodes_in(node.inputs[1]))
  stages = []
  for level in range(len(passes) + 1):
    nodes = [
        node
        for node in ordered
        if node.level == level
        and not node.on_clients
        and not _is_known_before(node)
    ]
    here = set(nodes)
    before = itertools.chain.from_iterable(map(sources, nodes))
    inputs = [node for node in dict.fromkeys(before) if node not in here]
    wanted.update(inputs)
    stages.append(Stage(inputs, nodes, []))
  for stage in stages:
    stage.outputs.extend(node for node in stage.nodes if node in wanted)
  return stages


def build(block: tff.framework.ComputationBuildingBlock) -> Schedule:
  """Returns the schedule of a computation in call-dominant form.

  Args:
    block: Function with only the operators (intrinsics) that are left after TFF
      has replaced as many as it can by simpler ones.

  Raises:
    UnsupportedComputationError: The function contains something that cannot run
      here.
  """
  if _has(block.type_signature.result, tff.FunctionType):
    raise errors.UnsupportedComputationError(
        'a computation that returns a function (its type is'
        f' {block.type_signature})',
        instead='the inner function as a computation of its own',
    )
  reused = set()
  builder = _Builder(reused)
  result = builder.result_of(block)
  # A dataset that is made again uses others again.
  while not builder.reused <= reused:
    reused |= builder.reused
    builder = _Builder(reused)
    result = builder.result_of(block)
  roots = list(nodes_in(result))
  needed = graph_defs.reached(roots, sources)
  ordered = [node for node in builder.nodes if node in needed]
  copies = [node for node in ordered if isinstance(node.operation, Copy)]
  # A stage or a pass stores what is copied, as it stores a result.
  roots += [source for node in copies for source in node.inputs]
  passes = _PassBuilder(ordered, roots).build()
  stages = _stages_of(ordered, passes, roots)
  arguments = [n for n in builder.nodes if isinstance(n.operation, Argument)]
  return Schedule(stages, passes, result, arguments, copies)
