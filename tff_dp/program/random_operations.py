# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Operations of computations and of data that may differ in a repetition.

A client that adds noise must send the same report if a round is repeated. The
noise follows from its key, but dropout, for example, draws anew, and a shuffle
gives other batches. A seed does not help: another process begins with the first
draw of the seed, not where the process before it stopped.
"""

from collections.abc import Iterable, Iterator
import re
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff
import tree

from tff_dp import _compat_tensorflow
from tff_dp.execution.compiling import graphs
from tff_dp.execution.data import graph_defs
from tff_dp.program.files import process_files

# Those of TensorFlow's operations with state that draw, or read the clock.
_DRAWS = re.compile(
    'Random|Multinomial|Normal|Uniform|Sampler|NonDeterministic|Rng|Distorted'
    '|Timestamp'
)
_SHUFFLE = re.compile('Shuffle(AndRepeat)?Dataset')
# Positions of the two seeds among the inputs of a shuffle.
_SEEDS = slice(2, 4)


def names(computation: tff.Computation) -> list[str]:
  """Returns the names of these operations, such as `RandomUniform`, sorted.

  These are random operations with state, whatever their seeds are, shuffles
  without a seed, and the clock. Operations that lead to no result are left out,
  such as the initial values of weights that the server replaces. So are files:
  ours read keys, and only where a client brings none.

  Args:
    computation: Any TFF computation.
  """
  proto = tff.framework.serialize_computation(computation)
  return sorted({
      name
      for part in process_files.parts(proto)
      if part.DESCRIPTOR.name == 'TensorFlow'
      for name in _of_graph(part)
  })


def names_in_data(data: Iterable[Any]) -> set[str]:
  """Returns the names of random steps of the datasets in clients' data.

  These are the steps that may give another order, whatever their seeds are, and
  operations with state in the functions of a step, as of a `map`.

  Args:
    data: Data of clients, with datasets or lists of batches in any structure.
  """
  found = set()
  for part in tree.flatten(list(data)):
    if isinstance(part, tf.data.Dataset):
      found |= set(_compat_tensorflow.unordered_datasets(part))
      found |= set(_compat_tensorflow.stateful_operations(part))
  return found


def _of_graph(source) -> Iterator[str]:
  graph_def = process_files.unpacked(source.graph_def)
  nodes = {node.name: node for node in graph_def.node}
  functions = {f.signature.name: f for f in graph_def.library.function}
  found = graph_defs.reached(
      map(graph_defs.node_of, graphs.tensor_names(source.result)),
      lambda name: map(graph_defs.node_of, nodes[name].input),
  )
  nodes = {name: nodes[name] for name in found}
  yield from _of_nodes(nodes)
  for name in graph_defs.called_by(nodes.values(), functions):
    yield from _of_nodes({node.name: node for node in functions[name].node_def})


def _of_nodes(nodes) -> Iterator[str]:
  for node in nodes.values():
    if _SHUFFLE.match(node.op):
      seeds = [nodes.get(graph_defs.node_of(i)) for i in node.input[_SEEDS]]
      if not any(seed is not None and _is_not_zero(seed) for seed in seeds):
        yield node.op
    elif graph_defs.is_stateful(node.op) and _DRAWS.search(node.op):
      yield node.op


def _is_not_zero(node) -> bool:
  return node.op == 'Const' and node.attr['value'].tensor.int64_val[:1] != [0]
