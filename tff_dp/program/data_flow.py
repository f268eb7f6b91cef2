# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tracks clients' data through a round: abstract interpretation of a process.

The building blocks of `process.next` are evaluated once, without data. Instead
of data, a value holds its `Traces`: the set of ways in which it depends on
clients' data without noise. A value at clients depends on their own data. An
aggregation brings data of all clients to the server, and everything that the
server computes from the sum depends on them too. A value loses its traces only
where the graph of an aggregator marks it as noised (`release_marks`).

If clients are sent an aggregate, one client changes the reports of all others,
and clipping does not bound this change. Then `Flow.sent` is not empty, and the
other fields must not be trusted.

The result errs to the safe side: it may claim that a value depends on data
where it does not. Only TensorFlow graphs with a mark are searched. The result
of any other graph counts as dependent on the whole argument.
"""

from collections.abc import Iterable, Iterator, Mapping
import dataclasses
import graphlib
import re

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.aggregators import release_marks
from tff_dp.execution.compiling import graphs
from tff_dp.execution.compiling import interpreter

Struct = tff.structure.Struct
# Path of a leaf in the computation's result, as `tree` gives it.
Path = tuple[str | int, ...]

_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
# Operations that pass values to each other without an edge between them.
_KEEPS_STATE = re.compile('Variable|VarHandle|HashTable|Iterator|Queue|PyFunc')
_LONGEST_TYPE = 60


@dataclasses.dataclass(frozen=True)
class Trace:
  """One way in which a value depends on data of clients.

  Attributes:
    aggregation: The aggregation that brought the data to the server, in words.
      `None` for a client's own data at the client.
    number: Number that tells aggregations apart.
  """

  aggregation: str | None = None
  number: int = 0


Traces = frozenset[Trace]
_NONE, _OWN = frozenset(), frozenset([Trace()])
# A client's own data, with noise that is enough only in a secure sum.
_MASKED = frozenset([Trace(number=-1)])


@dataclasses.dataclass(frozen=True)
class Flow:
  """The paths of clients' data through a round.

  Attributes:
    leaves: The traces (see `Trace`) in each leaf of the result.
    sent: The traces of aggregates in values that the server sends to clients.
    asked: The traces in the keys that clients ask the server for. Plain
      `federated_select` may show these keys to the server.
    releases: The releases with which graphs mark noised values. In one call of
      a graph, a release counts once, however many values it marks.
  """

  leaves: Mapping[Path, Traces]
  sent: Traces
  asked: Traces
  releases: tuple[release_marks.Release, ...]


def follow(
    computation: tff.Computation, *, presence_is_public: bool = False
) -> Flow:
  """Returns the flow of the clients' data in the argument of a computation.

  Args:
    computation: A function of values at server and clients.
    presence_is_public: Whether it is public who takes part, for example because
      only records are protected. Then a value that the server sends to all
      participants, such as a 1 that is summed to count them, does not count as
      their data.
  """
  block = computation.to_building_block()
  tracer = _Tracer(_NONE if presence_is_public else _OWN)
  argument = tracer.argument(block.type_signature.parameter)
  result = tracer.apply(tracer.evaluate(block, {}), argument)
  return Flow(
      dict(_leaves(result, block.type_signature.result)),
      tracer.sent,
      tracer.asked,
      tuple(tracer.releases),
  )


def _all_in(value) -> Traces:
  """Returns the traces (see `Trace`) in any part of a value."""
  if isinstance(value, Struct):
    return _NONE.union(*map(_all_in, value))
  if isinstance(value, interpreter.Function):
    return _NONE.union(*map(_all_in, value.scope.values()))
  return value


def _each(change, value):
  """Returns the value with `change` applied to the traces of each leaf."""
  if isinstance(value, Struct):
    return Struct([
        (name, _each(change, part))
        for name, part in tff.structure.iter_elements(value)
    ])
  return change(_all_in(value))


def _released(release: release_marks.Release, traces: Traces) -> Traces:
  """Returns the traces (see `Trace`) that are left after noise was added.

  Noise at a client hides the client's own data. Noise at the server hides sums
  of client values. A client's share of noise hides its data only after a secure
  sum.

  Args:
    release: The noise that was added.
    traces: Traces of the value before the noise.
  """
  if release.in_sum and traces & _OWN:
    return traces - _OWN | _MASKED
  return traces - _OWN if release.at_clients else traces & (_OWN | _MASKED)


def _leaves(value, type_spec, path: Path = ()) -> Iterator[tuple[Path, Traces]]:
  """Yields (path, traces) for each leaf of a value of a type."""
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  if not isinstance(type_spec, tff.StructType):
    yield path, _all_in(value)
    return
  for index, (name, element) in enumerate(
      tff.structure.iter_elements(type_spec)
  ):
    part = value[index] if isinstance(value, Struct) else value
    yield from _leaves(part, element, (*path, index if name is None else name))


def _placements(type_spec) -> set:
  if isinstance(type_spec, tff.FederatedType):
    return {type_spec.placement}
  if isinstance(type_spec, tff.StructType):
    return set().union(*map(_placements, type_spec))
  return set()


class _Tracer(interpreter.Interpreter):
  """Evaluates building blocks. A value without structure is its traces."""

  def __init__(self, presence: Traces):
    self.releases, self.sent, self.asked = [], _NONE, _NONE
    # Traces of the fact that a client holds a value at all.
    self._presence = presence
    self._num_aggregations = 0
    self._on_clients = False

  def argument(self, type_spec):
    """Returns the argument of a type. Values at clients count as their data."""
    if isinstance(type_spec, tff.StructType):
      return Struct([
          (name, self.argument(element))
          for name, element in tff.structure.iter_elements(type_spec)
      ])
    return _OWN if tff.CLIENTS in _placements(type_spec) else _NONE

  def apply(self, function, argument):
    if not isinstance(function, interpreter.Function):
      return _all_in(function) | _all_in(argument)
    return super().apply(function, _NONE if argument is None else argument)

  def pick(self, value, index):
    return value

  def literal(self, literal):
    return _NONE

  def call_tensorflow(self, block, argument):
    proto = block.proto
    if proto.WhichOneof('computation') == 'tensorflow':
      # Searching the bytes of a large model takes less time than parsing its
      # graphs, and client work has none of the marks.
      if release_marks.PREFIX.encode() in proto.tensorflow.graph_def.value:
        return self._call_marked(block, argument)
    if block.type_signature.parameter is None and self._on_clients:
      return _OWN
    return _all_in(argument)

  def _call_marked(self, block, argument):
    """Returns the result of a graph that marks its noised values."""
    source = block.proto.tensorflow
    graph_def = tf.compat.v1.GraphDef()
    source.graph_def.Unpack(graph_def)
    graph = _Graph(graph_def)
    given = {}
    if block.type_signature.parameter is not None:
      given = dict(
          zip(
              graphs.tensor_names(source.parameter),
              _parts(argument, block.type_signature.parameter),
              strict=True,
          )
      )
    results = graph.run(given, list(graphs.tensor_names(source.result)))
    self.releases += sorted(graph.releases, key=repr)
    return _packed(block.type_signature.result, iter(results))

  def _apply_at(self, function, argument, *, on_clients: bool):
    previous, self._on_clients = self._on_clients, on_clients
    try:
      return self.apply(function, argument)
    finally:
      self._on_clients = previous

  def call_intrinsic(self, intrinsic, argument):
    uri, signature = intrinsic.uri, intrinsic.type_spec
    if uri in ('federated_map', 'federated_apply', 'federated_map_all_equal'):
      function, value = argument
      return self._apply_at(
          function, value, on_clients=(uri != 'federated_apply')
      )
    if uri in ('federated_eval_at_clients', 'federated_eval_at_server'):
      return self._apply_at(
          argument, None, on_clients=(uri == 'federated_eval_at_clients')
      )
    if uri in ('federated_zip_at_clients', 'federated_zip_at_server'):
      return argument
    if uri in ('federated_broadcast', 'federated_value_at_clients'):
      return _each(self._sent, argument)
    if uri == 'federated_value_at_server':
      return argument
    if uri == 'federated_aggregate':
      *from_clients, report = argument
      traces = _all_in(Struct.unnamed(*from_clients))
      total = self._aggregated(intrinsic)(traces)
      return self._apply_at(report, total, on_clients=False)
    if uri == 'federated_sum':
      return _each(self._aggregated(intrinsic), argument)
    if uri in ('federated_select', 'federated_secure_select'):
      self.asked |= _all_in(argument[0])
    # All other intrinsics are judged by the placements of argument and result.
    into, out_of = _placements(signature.result), _placements(
        signature.parameter
    )
    traces = _all_in(argument)
    if tff.CLIENTS in into:
      return self._sent(traces)
    if tff.SERVER in into and tff.CLIENTS in out_of:
      return self._aggregated(intrinsic)(traces)
    return traces

  def _sent(self, traces: Traces) -> Traces:
    """Returns the traces of a value after the server sent it to clients.

    Traces of aggregates are added to `Flow.sent`. If it is secret who takes
    part, the result also has the client's own trace, because a client that
    holds the value takes part.
    """
    self.sent |= traces - _OWN
    return traces | self._presence

  def _aggregated(self, intrinsic):
    """Returns a function from traces at clients to traces of the aggregate.

    A client's own data in a value become a new trace, which names this
    aggregation.
    """
    self._num_aggregations += 1
    of_type = str(intrinsic.type_spec.parameter)
    if len(of_type) > _LONGEST_TYPE:
      of_type = of_type[:_LONGEST_TYPE] + '...'
    summed = Trace(f'{intrinsic.uri} of {of_type}', self._num_aggregations)

    is_secure_sum = intrinsic.uri.startswith('federated_secure_sum')

    def aggregated(traces: Traces) -> Traces:
      if is_secure_sum:
        traces -= _MASKED
      return frozenset(
          summed if trace in _OWN | _MASKED else trace for trace in traces
      )

    return aggregated


def _parts(value, type_spec) -> Iterator[Traces]:
  """Yields the traces of each tensor of a value of a type."""
  for _, traces in _leaves(value, type_spec):
    yield traces


def _packed(type_spec, remaining: Iterator[Traces]):
  """Returns a value of the type. Its tensors have the given traces."""
  if not isinstance(type_spec, tff.StructType):
    return next(remaining)
  return Struct([
      (name, _packed(element, remaining))
      for name, element in tff.structure.iter_elements(type_spec)
  ])


class _Graph:
  """Follows traces along the edges of a graph and its functions.

  Attributes:
    releases: The releases whose marks were met.
  """

  def __init__(self, graph_def: tf.compat.v1.GraphDef):
    self.releases = set()
    self._nodes = graph_def.node
    self._functions = {f.signature.name: f for f in graph_def.library.function}
    self._is_pure = not any(
        _KEEPS_STATE.search(node.op)
        for nodes in (
            graph_def.node,
            *(f.node_def for f in graph_def.library.function),
        )
        for node in nodes
    )

  def run(
      self, given: Mapping[str, Traces], results: list[str]
  ) -> list[Traces]:
    """Returns the traces of the tensors named `results`."""
    if not self._is_pure:
      return [_NONE.union(*given.values())] * len(results)
    arguments = {_split(name)[0]: traces for name, traces in given.items()}
    return self._follow(self._nodes, arguments, results)

  def _follow(self, nodes, arguments, results: Iterable[str]) -> list[Traces]:
    """Returns the traces of tensors in one graph, or one function's body."""
    nodes = {node.name: node for node in nodes}
    known = {name: [traces] for name, traces in arguments.items()}

    def look_up(tensor: str) -> Traces:
      name, index = _split(tensor)
      outputs = known[name]
      return outputs[index if len(outputs) > 1 else 0]

    edges = {
        name: [_split(tensor)[0] for tensor in _data_inputs(node)]
        for name, node in nodes.items()
    }
    try:
      ordered = list(graphlib.TopologicalSorter(edges).static_order())
    except graphlib.CycleError:
      return [_NONE.union(*arguments.values())] * len(list(results))
    for name in ordered:
      if name not in known:
        inputs = [look_up(tensor) for tensor in _data_inputs(nodes[name])]
        known[name] = self._outputs(nodes[name], inputs)
    return [look_up(tensor) for tensor in results]

  def _outputs(self, node, inputs: list[Traces]) -> list[Traces]:
    """Returns the traces of each output. A list of one set is for all outputs.
    """
    if node.op in _CALLS:
      function = self._functions[node.attr['f'].func.name]
      names = [argument.name for argument in function.signature.input_arg]
      return self._follow(
          function.node_def,
          dict(zip(names, inputs, strict=True)),
          [function.ret[out.name] for out in function.signature.output_arg],
      )
    traces = _NONE.union(*inputs)
    release = release_marks.Release.parse(node.name)
    if release is not None:
      self.releases.add(release)
      traces = _released(release, traces)
    elif release_marks.is_coin(node.name):
      traces -= _OWN
    return [traces]


def _data_inputs(node) -> list[str]:
  return [tensor for tensor in node.input if not tensor.startswith('^')]


def _split(tensor: str) -> tuple[str, int]:
  """Returns (node, index) of a tensor named 'node:1' or 'node:output:1'."""
  name, *rest = tensor.split(':')
  return name, int(rest[-1]) if rest else 0
