# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A digest of what a computation does, whatever its parts are called.

TensorFlow and Keras count functions, nodes and variables through a whole Python
process, so the same code gives other names when it runs again. Here each graph
is walked from its results, and names become numbers in the order of the walk.
Nodes that lead to no result are left out.

The seeds of random initial values are left out, too. Keras draws them anew for
each model, and the weights from the server replace these values.
"""

from collections.abc import Iterable, Iterator
import hashlib
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution.compiling import graphs
from tff_dp.program.files import process_files

_RANDOM = 'Random'
_KEY_OF_SEED = 'StatelessRandomGetKeyCounter'
_SEEDS = ('seed', 'seed2')


def digest(computation: tff.Computation) -> str:
  """Returns 16 hexadecimal digits, equal if the same code is traced again."""
  original = tff.framework.serialize_computation(computation)
  proto = type(original)()
  proto.CopyFrom(original)
  for part in process_files.parts(proto):
    if part.DESCRIPTOR.name == 'TensorFlow':
      _make_canonical(part)
  content = proto.SerializeToString(deterministic=True)
  return hashlib.sha256(content).hexdigest()[:16]


def _make_canonical(source: Any) -> None:
  """Replaces the graph of a `TensorFlow` proto by its digest.

  Bindings keep their structure, without the names of tensors.
  """
  graph = _Graph(process_files.unpacked(source.graph_def))
  arguments = list(graphs.tensor_names(source.parameter))
  lines = graph.lines(
      arguments,
      list(graphs.tensor_names(source.result)),
      [source.initialize_op] if source.initialize_op else [],
  )
  source.graph_def.value = _hashed(lines).encode()
  for name in ('initialize_op', 'session_token_tensor_name', 'cache_key'):
    source.ClearField(name)
  for binding in (source.parameter, source.result):
    _forget_names(binding)


def _forget_names(binding: Any) -> None:
  kind = binding.WhichOneof('binding')
  if kind == 'tensor':
    binding.tensor.tensor_name = ''
  elif kind == 'sequence':
    binding.sequence.variant_tensor_name = ''
  elif kind == 'struct':
    for element in binding.struct.element:
      _forget_names(element)


def _hashed(lines: Iterable[str]) -> str:
  content = hashlib.sha256()
  for line in lines:
    content.update(line.encode() + b'\n')
  return content.hexdigest()


class _Graph:
  """A graph and its functions, as lines without names."""

  def __init__(self, graph_def: tf.compat.v1.GraphDef):
    self._nodes = graph_def.node
    self._functions = {f.signature.name: f for f in graph_def.library.function}
    # Functions that are named already, and those that are being walked.
    self._digests: dict[str, str] = {}
    # Names that variables and tables share in all of the graph.
    self._shared: dict[bytes, int] = {}

  def lines(
      self, arguments: list[str], results: list[str], initializers: list[str]
  ) -> Iterator[str]:
    """Yields a line for each node that leads to a result or an initializer."""
    return self._walk(self._nodes, arguments, results, initializers)

  def _walk(self, nodes, arguments, results, initializers=()) -> Iterator[str]:
    nodes = {node.name: node for node in nodes}
    numbers = {
        _split(name)[0]: number for number, name in enumerate(arguments)
    }
    waiting: list[str] = []

    def numbered(tensor: str) -> str:
      name, output = _split(tensor)
      if name not in numbers:
        numbers[name] = len(numbers)
        waiting.append(name)
      return f'{"^" * tensor.startswith("^")}{numbers[name]}:{output}'

    done = 0
    for ends, is_initial in ((results, False), (initializers, True)):
      yield ' '.join(map(numbered, ends))
      while done < len(waiting):
        node = nodes[waiting[done]]
        done += 1
        yield self._line(node, numbered, is_initial=is_initial)

  def _line(self, node, numbered, *, is_initial: bool) -> str:
    inputs, without = list(node.input), ()
    if is_initial and _RANDOM in node.op:
      inputs = [] if node.op == _KEY_OF_SEED else inputs[:1]
      without = _SEEDS
    attributes = (
        f'{name}={self._value(name, node.attr[name])}'
        for name in sorted(node.attr)
        # The others are hints, some of them with names.
        if not name.startswith('_') and name not in without
    )
    operation = self._function(node.op) or node.op
    return ' '.join([operation, *map(numbered, inputs), *attributes])

  def _value(self, name: str, value) -> str:
    if name == 'container':
      return ''
    if name == 'shared_name' and value.s:
      return str(self._shared.setdefault(value.s, len(self._shared)))
    places = [value.func] if value.HasField('func') else value.list.func
    if places:
      return ','.join(map(self._place, places))
    return value.SerializeToString(deterministic=True).hex()

  def _place(self, place) -> str:
    inner = (f'{n}={self._value(n, place.attr[n])}' for n in sorted(place.attr))
    return ' '.join([self._function(place.name) or place.name, *inner])

  def _function(self, name: str) -> str:
    """Returns a digest of the graph's function, or '' if there is none."""
    if name not in self._functions:
      return ''
    if name not in self._digests:
      self._digests[name] = 'itself'
      function = self._functions[name]
      signature = function.signature
      self._digests[name] = _hashed(
          self._walk(
              function.node_def,
              [each.name for each in signature.input_arg],
              [
                  *(function.ret[o.name] for o in signature.output_arg),
                  *(
                      '^' + function.control_ret[o]
                      for o in signature.control_output
                  ),
              ],
          )
      )
    return self._digests[name]


def _split(tensor: str) -> tuple[str, str]:
  """Returns (node, output) of a tensor."""
  name, _, output = tensor.removeprefix('^').partition(':')
  return name, output or '0'
