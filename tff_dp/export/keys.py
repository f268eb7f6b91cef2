# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks where the noise keys in a new state come from, without running graphs.

Each leaf of the state that is named `key` must be computed by the operations of
`streams.random_root_key`, with the same constants.
"""

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.execution.compiling import graphs
from tff_dp.execution.compiling import interpreter
from tff_dp.export import operations
from tff_dp.program.files import process_files

_KEY, _IS_INSECURE = 'key', 'is_key_insecure'
_APPLIED = ('federated_apply', 'federated_map', 'federated_map_all_equal')
_EVALUATED = ('federated_eval_at_server',)
_KEPT = ('federated_value_at_server', 'federated_zip_at_server')
Struct = tff.structure.Struct


def check(initialize: tff.Computation) -> int:
  """Checks how the noise keys of a new state are made, and counts them.

  Args:
    initialize: Computation of a new state. Its operations were checked before.

  Returns:
    The number of noise keys in the state.

  Raises:
    PrivacyRefusedError: If a key is not made as `streams.random_root_key` makes
      it, or if an `is_key_insecure` of the state may be true.
  """
  block = initialize.to_building_block()
  follower = _Follower()
  state = follower.apply(follower.evaluate(block, {}), None)
  num_keys = 0
  for name, digest in _leaves(state, block.type_signature.result):
    last = name.rpartition('/')[2]
    if last == _KEY and not operations.is_our_key(digest()):
      raise _other_key(f'the noise key {name} is not made as tff_dp makes it')
    if last == _IS_INSECURE and digest() != operations.constant(False):
      raise _other_key(f'{name} in the initial state is not the constant False')
    num_keys += last == _KEY
  return num_keys


def _other_key(what: str) -> _checks.PrivacyRefusedError:
  return _checks.PrivacyRefusedError(
      what,
      why='whoever can guess the key can take the noise away',
      way_out='build the process with this version, without insecure_seed',
  )


def _leaves(value, type_spec, path: str = '') -> Iterator[tuple[str, Callable]]:
  """Yields (path, function that returns the digest) of each leaf."""
  if isinstance(type_spec, tff.FederatedType):
    type_spec = type_spec.member
  if not isinstance(type_spec, tff.StructType):
    yield path, _part(value)
    return
  for index, (name, element) in enumerate(
      tff.structure.iter_elements(type_spec)
  ):
    part = value[index] if isinstance(value, Struct) else value
    yield from _leaves(part, element, f'{path}/{name or index}'.lstrip('/'))


def _part(value) -> Callable[[], str]:
  return value if callable(value) else _unknown


def _unknown() -> str:
  return 'not known'


class _Follower(interpreter.Interpreter):
  """Evaluates building blocks with digests in place of tensors.

  A tensor is a function that returns its digest, see `operations.Expressions`.
  """

  def pick(self, value, index):
    return value

  def literal(self, literal):
    return _unknown

  def apply(self, function, argument):
    if not isinstance(function, interpreter.Function):
      return _unknown
    return super().apply(function, argument)

  def call_intrinsic(self, intrinsic, argument):
    if intrinsic.uri in _APPLIED:
      return self.apply(*argument)
    if intrinsic.uri in _EVALUATED:
      return self.apply(argument, None)
    return argument if intrinsic.uri in _KEPT else _unknown

  def call_tensorflow(self, block, argument):
    source = block.proto.tensorflow
    expressions = operations.Expressions(
        process_files.unpacked(source.graph_def)
    )
    given = {}
    if argument is not None and block.type_signature.parameter is not None:
      names = [
          tensor.partition(':')[0]
          for tensor in graphs.tensor_names(source.parameter)
      ]
      digests = _leaves(argument, block.type_signature.parameter)
      given = dict(zip(names, (digest for _, digest in digests), strict=True))

    def digest_of(tensor):
      return lambda: expressions.of(
          '', tensor, {name: known() for name, known in given.items()}
      )

    names = graphs.tensor_names(source.result)
    return _packed(block.type_signature.result, map(digest_of, names))


def _packed(type_spec, remaining: Iterator[Any]):
  """Returns a value of a type, made of the next of these tensors."""
  if not isinstance(type_spec, tff.StructType):
    return next(remaining)
  return Struct([
      (name, _packed(element, remaining))
      for name, element in tff.structure.iter_elements(type_spec)
  ])
