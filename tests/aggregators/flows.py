# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What flows from clients to the server, read from a computation's code."""

from collections.abc import Iterator

import tensorflow as tf
import tensorflow_federated as tff


def _intrinsic_calls(computation: tff.Computation) -> Iterator[tuple]:
  """Yields (intrinsic, argument) of every call, after inlining."""
  block = tff.framework.to_call_dominant(computation.to_building_block())
  found = []

  def visit(part):
    if isinstance(part, tff.framework.Call) and isinstance(
        part.function, tff.framework.Intrinsic
    ):
      found.append((part.function, part.argument))
    return part, False

  tff.framework.transform_postorder(block, visit)
  yield from found


def _placements(type_spec: tff.Type) -> set:
  if isinstance(type_spec, tff.FederatedType):
    return {type_spec.placement}
  if isinstance(type_spec, tff.StructType):
    return set().union(*map(_placements, type_spec.children()))
  return set()


def to_server(computation: tff.Computation) -> list[tuple[str, tff.Type]]:
  """Returns (operator, type of the clients' value) of all that leaves clients.

  An intrinsic that takes a value placed at clients and returns one placed at
  the server is the only way from the ones to the other.
  """
  flows = []
  for intrinsic, _ in _intrinsic_calls(computation):
    type_spec = intrinsic.type_signature
    if tff.CLIENTS not in _placements(type_spec.parameter):
      continue
    if tff.SERVER not in _placements(type_spec.result):
      continue
    value = type_spec.parameter
    if isinstance(value, tff.StructType):
      (value,) = (
          part
          for part in type_spec.parameter.children()
          if tff.CLIENTS in _placements(part)
      )
    flows.append((intrinsic.uri, value.member))
  return flows


def server_inputs(computation: tff.Computation) -> list[tff.Type]:
  """Returns the types of what computations at the server are applied to."""
  return [
      intrinsic.type_signature.parameter[1].member
      for intrinsic, _ in _intrinsic_calls(computation)
      if intrinsic.uri == tff.framework.FEDERATED_APPLY.uri
  ]


def operations(computation: tff.Computation, intrinsic_uri: str) -> set[str]:
  """Returns the TensorFlow operations of the functions of one intrinsic."""
  found = set()
  for intrinsic, argument in _intrinsic_calls(computation):
    if intrinsic.uri != intrinsic_uri:
      continue

    def visit(part):
      if isinstance(part, tff.framework.CompiledComputation):
        graph_def = tf.compat.v1.GraphDef()
        part.proto.tensorflow.graph_def.Unpack(graph_def)
        found.update(node.op for node in graph_def.node)
        for function in graph_def.library.function:
          found.update(node.op for node in function.node_def)
      return part, False

    tff.framework.transform_postorder(argument, visit)
  return found


def random_operations(
    computation: tff.Computation, intrinsic_uri: str
) -> set[str]:
  """Returns those of `operations` that draw random numbers."""
  names = operations(computation, intrinsic_uri)
  return {name for name in names if 'Random' in name}
