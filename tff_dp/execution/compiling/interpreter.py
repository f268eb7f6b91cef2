# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The meaning of TFF's building blocks, for any kind of value.

All that walks through a computation uses the same rules. `schedule` finds out
its operations, without data. `tracing` builds the graphs that run it, with
tensors. `program.data_flow` follows clients' data through it, and modules of
`export` follow keys and look at values.
"""

import dataclasses

import tensorflow_federated as tff

from tff_dp.execution import errors

_blocks = tff.framework
Struct = tff.structure.Struct


@dataclasses.dataclass(frozen=True)
class Literal:
  """A constant."""

  value: object
  type_spec: tff.TensorType


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
  """A TFF function, with the values that it captured.

  Attributes:
    block: A lambda, a compiled computation or an intrinsic.
    scope: Values of its free names.
  """

  block: _blocks.ComputationBuildingBlock
  scope: dict[str, object]


@dataclasses.dataclass(frozen=True)
class Intrinsic:
  """One of TFF's operators, whose input is its argument.

  Attributes:
    uri: Name of the operator, such as 'federated_map'.
    type_spec: Type of the operator.
  """

  uri: str
  type_spec: tff.FunctionType


def _free_names(block, bound: frozenset[str] = frozenset()) -> set[str]:
  """Returns the free names of a building block."""
  if isinstance(block, _blocks.Reference):
    return {block.name} - bound
  if isinstance(block, _blocks.Lambda):
    return _free_names(block.result, bound | {block.parameter_name})
  if isinstance(block, _blocks.Block):
    found = set()
    for name, value in block.locals:
      found |= _free_names(value, bound)
      bound |= {name}
    return found | _free_names(block.result, bound)
  return set().union(*(_free_names(part, bound) for part in block.children()))


class Interpreter:
  """Evaluates building blocks. Subclasses define values and calls.

  A function is a `Function`, and a struct is a `tff.structure.Struct`.
  """

  def call_tensorflow(self, block, argument):
    raise NotImplementedError

  def call_intrinsic(self, intrinsic: Intrinsic, argument):
    raise NotImplementedError

  def pick(self, value, index: int):
    raise NotImplementedError

  def literal(self, literal: Literal):
    raise NotImplementedError

  def evaluate(self, block, scope: dict[str, object]):
    """Returns the value of `block`, whose free names are in `scope`.

    Raises:
      UnsupportedComputationError: If a part of `block` cannot be evaluated
        here.
    """
    if isinstance(block, _blocks.Reference):
      return scope[block.name]
    if isinstance(block, _blocks.Selection):
      value = self.evaluate(block.source, scope)
      index = block.as_index()
      if isinstance(value, Struct):
        return value[index]
      return self.pick(value, index)
    if isinstance(block, _blocks.Struct):
      return Struct([
          (name, self.evaluate(element, scope))
          for name, element in tff.structure.iter_elements(block)
      ])
    if isinstance(block, _blocks.Call):
      function = self.evaluate(block.function, scope)
      argument = None
      if block.argument is not None:
        argument = self.evaluate(block.argument, scope)
      return self.apply(function, argument)
    if isinstance(block, _blocks.Block):
      scope = dict(scope)
      for name, value in block.locals:
        scope[name] = self.evaluate(value, scope)
      return self.evaluate(block.result, scope)
    if isinstance(
        block,
        (_blocks.Lambda, _blocks.CompiledComputation, _blocks.Intrinsic),
    ):
      captured = {name: scope[name] for name in sorted(_free_names(block))}
      return Function(block, captured)
    if isinstance(block, _blocks.Literal):
      return self.literal(Literal(block.value, block.type_signature))
    if isinstance(block, _blocks.Placement):
      return block
    if isinstance(block, _blocks.Data):
      raise errors.UnsupportedComputationError(
          'a data block (`tff.framework.Data`)',
          instead='an argument that holds the data',
      )
    raise errors.UnsupportedComputationError(
        f'a building block of the kind {type(block).__name__}',
        instead='the native context (kind="native")',
    )

  def apply(self, function: Function, argument):
    """Returns the result of a function. `argument` is None if it takes none."""
    block = function.block
    if isinstance(block, _blocks.Lambda):
      scope = dict(function.scope)
      if block.parameter_name is not None:
        scope[block.parameter_name] = argument
      return self.evaluate(block.result, scope)
    if isinstance(block, _blocks.CompiledComputation):
      return self.call_tensorflow(block, argument)
    return self.call_intrinsic(
        Intrinsic(block.uri, block.type_signature), argument
    )
