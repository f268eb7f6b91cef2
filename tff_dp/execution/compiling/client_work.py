# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The work of clients in a pass, as a part of a graph.

It is for one client, or for many at once. Work at once may have a rest, which
is done for one client after the other: operations that are not in the lists of
`vectorized`, and aggregations that are not plain sums.
"""

import logging

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp.execution import errors
from tff_dp.execution.compiling import schedule as schedule_lib
from tff_dp.execution.data import graph_defs
from tff_dp.execution.data import values

Struct = tff.structure.Struct
_log = logging.getLogger(__name__)


def run(one_pass, interpreting, known, accumulators) -> list:
  """Returns the accumulators after the work of one client in a pass.

  Args:
    one_pass: Pass over the clients.
    interpreting: Interpreter that adds the work to the graph.
    known: Pairs of node and value: the inputs of the server and of the client.
    accumulators: Values of the accumulators before this client.
  """
  for node, value in known:
    interpreting.set(node, value)
  for node in one_pass.nodes:
    interpreting.compute(node)
  return accumulated(one_pass, interpreting, accumulators)


def accumulated(one_pass, interpreting, accumulators) -> list:
  """Returns the accumulators after a client whose nodes are computed."""
  results = []
  for node, accumulator in zip(one_pass.accumulations, accumulators):
    value, _, accumulate, _ = node.inputs
    pair = Struct.unnamed(accumulator, interpreting.value(value))
    results.append(interpreting.apply(interpreting.value(accumulate), pair))
  return results


def compute_listed(nodes, interpreting) -> list[schedule_lib.Node]:
  """Computes nodes for all clients at once, and returns those that cannot be.

  These are nodes with an operation that is not in the lists of `vectorized`,
  and nodes that need one of them.
  """
  left = []
  for node in nodes:
    if left and not set(left).isdisjoint(schedule_lib.sources(node)):
      left.append(node)
      continue
    try:
      interpreting.compute(node)
    except errors.NotPlainError as error:
      _log.debug('Clients do this one after the other: %s', error)
      left.append(node)
  return left


class Rest:
  """The rest of the clients' work, which is done one after the other.

  Attributes:
    nodes: Nodes that are not computed for all clients at once.
    has_begun: Whether there is a rest: nodes, or results that are not summed.
    reads_sequences: Whether the rest reads a client's sequence.
  """

  def __init__(self, one_pass, interpreting):
    self._pass = one_pass
    self._interpreting = interpreting
    self._skeletons = []
    self._needed = []
    self.nodes = []
    self.has_begun = False
    self.reads_sequences = False

  def begin(self) -> list[tf.Tensor]:
    """Returns what the rest needs from the work at once, as flat tensors.

    Raises:
      NotPlainError: If too little is done at once: nothing reads a sequence.
    """
    at_once = [node for node in self._pass.nodes if node not in self.nodes]
    # A sequence is made from the client's inputs again.
    again = {node for node in at_once if self._has_sequence(node)}
    if not any(
        isinstance(node.operation, schedule_lib.Call)
        and any(map(self._has_sequence, schedule_lib.sources(node)))
        for node in at_once
        if node not in again
    ):
      raise errors.NotPlainError('no sequence is read at once')
    self.nodes = [
        node for node in self._pass.nodes if node in again or node in self.nodes
    ]
    needed = [
        source for node in self.nodes for source in schedule_lib.sources(node)
    ]
    self.reads_sequences = any(
        self._has_sequence(node) for node in needed if node not in self.nodes
    )
    for node in self._pass.accumulations:
      value, _, accumulate, _ = node.inputs
      needed += schedule_lib.nodes_in(value)
      needed += schedule_lib.nodes_in(accumulate)
    known = {
        *self.nodes, *self._pass.server_inputs, *self._pass.client_inputs
    }
    self._needed = [node for node in dict.fromkeys(needed) if node not in known]
    found = list(map(self._interpreting.value, self._needed))
    self._skeletons = list(map(values.skeleton_of, found))
    self.has_begun = True
    return values.flatten(Struct.unnamed(*found))

  def _has_sequence(self, node) -> bool:
    return not all(
        isinstance(part, tf.Tensor)
        for part in values.flatten(self._interpreting.value(node))
    )

  def end(
      self, tensors: list[tf.Tensor], accumulators: list
  ) -> list[tf.Tensor]:
    """Does the rest of one client's work, and returns the accumulators, flat.

    The inputs of the server and of the client must be set.

    Args:
      tensors: What `begin` returned, of this client.
      accumulators: Values of the accumulators before this client.
    """
    skeleton = Struct.unnamed(*self._skeletons)
    for node, value in zip(self._needed, values.pack(skeleton, tensors)):
      self._interpreting.set(node, value)
    for node in self.nodes:
      self._interpreting.compute(node)
    results = accumulated(self._pass, self._interpreting, accumulators)
    return values.flatten(Struct.unnamed(*results))


def loop(work, num_clients, accumulators, specs) -> list[tf.Tensor]:
  """Returns the accumulators after all clients, one after the other.

  Args:
    work: Function of a client's index and of the accumulators before it, which
      returns the accumulators after it.
    num_clients: Number of clients, a symbolic int32.
    accumulators: Accumulators before the first client.
    specs: Their specs.
  """
  _, *results = tf.while_loop(
      lambda index, *_: index < num_clients,
      lambda index, *accumulators: (index + 1, *work(index, *accumulators)),
      [tf.constant(0), *accumulators],
      shape_invariants=[tf.TensorShape([]), *(spec.shape for spec in specs)],
      # The steps of the loop share variables.
      parallel_iterations=1,
  )
  return results


def increments(
    results: list[tf.Tensor], accumulators: list[tf.Tensor]
) -> list[tf.Tensor]:
  """Returns the summands that the results add to the accumulators.

  Args:
    results: Accumulators after the work of a client.
    accumulators: Accumulators before it.

  Raises:
    NotPlainError: A result may be something else than its accumulator plus a
      summand of the same shape, or a summand may depend on an accumulator.
  """
  found = []
  for result, accumulator in zip(results, accumulators, strict=True):
    operation = _origin(result).op
    parts = list(operation.inputs)
    own = [_origin(part) is accumulator for part in parts]
    if (
        operation.type not in ('Add', 'AddV2')
        or not any(own)
        or parts[1 - own.index(True)].shape != accumulator.shape
    ):
      raise errors.NotPlainError(f'{operation.type} is no sum over clients')
    found.append(parts[1 - own.index(True)])
  # No summand may depend on another accumulator either. A running count that
  # enters a sum differs from client to client.
  if _leads_to(found, accumulators):
    raise errors.NotPlainError(
        'what a client adds to a sum depends on the sum so far'
    )
  return found


def _origin(tensor: tf.Tensor) -> tf.Tensor:
  while tensor.op.type == 'Identity':
    tensor = tensor.op.inputs[0]
  return tensor


def _leads_to(tensors: list[tf.Tensor], others: list[tf.Tensor]) -> bool:
  """Returns whether any of the tensors depends on any of the others."""
  found = graph_defs.reached(
      (tensor.op for tensor in tensors),
      lambda operation: [
          *(part.op for part in operation.inputs), *operation.control_inputs
      ],
  )
  return not found.isdisjoint(other.op for other in others)
