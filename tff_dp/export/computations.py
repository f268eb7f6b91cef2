# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TFF's forms of a process as files, and the comparison of their results.

A production stack runs `next` in one of two forms. A map-reduce form has ten
TensorFlow graphs around one aggregation. A distribute-aggregate form has five
computations. One of these, the aggregation, keeps its federated operators.
"""

import pathlib
from typing import Any, NamedTuple

import attrs
import numpy as np
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import systems
from tff_dp.export import bundle
from tff_dp.plans import base
from tff_dp.program.files import process_files

_mapreduce = tff.backends.mapreduce
# Arguments of the forms' constructors, except the type.
_PARTS = {
    bundle.MAP_REDUCE: (
        'prepare', 'work', 'zero', 'accumulate', 'merge', 'report',
        'secure_sum_bitwidth', 'secure_sum_max_input',
        'secure_modular_sum_modulus', 'update',
    ),
    bundle.DISTRIBUTE_AGGREGATE: (
        'server_prepare', 'server_to_client_broadcast', 'client_work',
        'client_to_server_aggregation', 'server_result',
    ),
}
FORMS = tuple(_PARTS)
_MAKE = {
    bundle.MAP_REDUCE: _mapreduce.MapReduceForm,
    bundle.DISTRIBUTE_AGGREGATE: _mapreduce.DistributeAggregateForm,
}
_COMPILE = {
    bundle.MAP_REDUCE: _mapreduce.get_map_reduce_form_for_computation,
    bundle.DISTRIBUTE_AGGREGATE: (
        _mapreduce.get_distribute_aggregate_form_for_computation
    ),
}
_RECOMPOSE = {
    bundle.MAP_REDUCE: _mapreduce.get_computation_for_map_reduce_form,
    bundle.DISTRIBUTE_AGGREGATE: (
        _mapreduce.get_computation_for_distribute_aggregate_form
    ),
}
_NUM_BATCHES, _BATCH_SIZE = 2, 2
_SELECT = 'federated_select'
_NO_SELECT = f'TFF compiles no {_SELECT}, with which clients ask for a part'
_ONLY_SUMS = 'TFF compiles no federated_aggregate into it, only sums'
_OTHERWISE = 'TFF does not compile it'
# All messages of `NoFormError`.
NO_FORM = (_NO_SELECT, _ONLY_SUMS, _OTHERWISE)


def compile_form(kind: str, next_computation: tff.Computation) -> Any:
  """Returns `next` in one of TFF's forms for production stacks.

  Args:
    kind: One of `FORMS`.
    next_computation: The `next` of a learning process.

  Raises:
    NoFormError: If `next` has no such form. The message gives the reason.
  """
  try:
    return _COMPILE[kind](next_computation)
  except (TypeError, ValueError) as error:
    raise NoFormError(_reason(next_computation, error)) from error


class NoFormError(Exception):
  """Raised if a computation has no form. The message says why."""


def _reason(computation: tff.Computation, error: Exception) -> str:
  used = _operators(computation)
  if _SELECT in used:
    return _NO_SELECT
  if 'federated_aggregate' in used and 'FunctionType' in str(error):
    return _ONLY_SUMS
  return _OTHERWISE


def _operators(computation: tff.Computation) -> set[str]:
  found = set()

  def visit(part):
    if isinstance(part, tff.framework.Intrinsic):
      found.add(part.uri)
    return part, False

  tff.framework.transform_postorder(computation.to_building_block(), visit)
  return found


def write_form(folder: pathlib.Path, kind: str, form: Any) -> None:
  """Writes the parts of a form, one file each."""
  folder.mkdir()
  for name in _PARTS[kind]:
    process_files.write(folder / f'{name}.pb', getattr(form, name))


def read_form(
    folder: pathlib.Path, kind: str, next_computation: tff.Computation
) -> Any:
  """Returns the form whose parts are in a folder.

  Args:
    folder: Folder that `write_form` wrote.
    kind: One of `FORMS`.
    next_computation: Computation with the type of the form.
  """
  parts = {
      name: process_files.read(folder / f'{name}.pb') for name in _PARTS[kind]
  }
  return _MAKE[kind](next_computation.type_signature, **parts)


def files(kind: str) -> list[str]:
  """Returns the names of the files of a form, in its folder."""
  return [f'{name}.pb' for name in _PARTS[kind]]


def parts(kind: str, form: Any) -> list[tff.Computation]:
  """Returns the computations that make up a form."""
  return [getattr(form, name) for name in _PARTS[kind]]


def recompose(kind: str, form: Any) -> tff.Computation:
  """Returns the computation that a form represents."""
  return _RECOMPOSE[kind](form)


def made_data(
    next_computation: tff.Computation, plan: base.Plan, *, keys_seed: int = 0
) -> list[Any]:
  """Returns made-up data of the participants of one round.

  Floats and keys are random, the same for the same arguments. Other integers
  are zeros, because they may be labels. Texts are empty. Most systems get two
  participants.

  Args:
    next_computation: The `next` of a learning process.
    plan: Plan of the process.
    keys_seed: Seed of the clients' keys. Other data do not depend on it.
  """
  member = next_computation.type_signature.parameter[1].member
  keys = np.random.default_rng([1, keys_seed]) if keys_seed else None
  make = Maker(np.random.default_rng(0), keys)
  return systems.of(plan.kind).training().made_data(plan, member, make)


class Maker(NamedTuple):
  """Makes synthetic data.

  Attributes:
    data: Generator of the data.
    keys: Generator of the keys. `None`: the keys come from `data`.
    num_clients: Usual number of participants.
  """

  data: np.random.Generator
  keys: np.random.Generator | None
  num_clients: int = 2

  def __call__(self, type_spec: tff.Type, *, size: int = _BATCH_SIZE) -> Any:
    """Returns a value of a type, with `size` examples in a batch."""
    return _made(type_spec, self, size=size)

  def key(self, shape, dtype=np.int64) -> np.ndarray:
    """Returns random words for a key.

    It draws from `data` in any case, so other data do not depend on `keys`.
    """
    drawn = self.data.integers(1, 2**62, shape, dtype)
    if self.keys is None:
      return drawn
    return self.keys.integers(1, 2**62, shape, dtype)


def _made(type_spec, rng: Maker, name: str = '', size: int = _BATCH_SIZE):
  """Returns a value of a type: NumPy arrays in lists and structures."""
  is_key = name == 'key'
  if isinstance(type_spec, tff.SequenceType):
    # A client brings exactly one key.
    num_batches = 1 if is_key else _NUM_BATCHES
    return [_made(type_spec.element, rng, name) for _ in range(num_batches)]
  if isinstance(type_spec, tff.StructType):
    return tff.structure.Struct([
        (each, _made(element, rng, each or name, size))
        for each, element in tff.structure.iter_elements(type_spec)
    ])
  size = 1 if is_key else size
  shape = [size if length is None else length for length in type_spec.shape]
  dtype = np.dtype(type_spec.dtype)
  if is_key:
    return rng.key(shape, dtype)
  if dtype.kind == 'f':
    return rng.data.standard_normal(shape).astype(dtype)
  return np.full(shape, b'' if dtype.kind in 'OSU' else 0, dtype)


def leaves(value: Any) -> dict[str, np.ndarray]:
  """Returns the numbers in the result of a computation, by their path.

  They come in the order of the type, whatever the Python containers.

  Args:
    value: Structures of TFF or of Python.
  """
  value = as_struct(value)
  if not isinstance(value, tff.structure.Struct):
    return {'': np.asarray(value)}
  return {
      f'{index if name is None else name}/{rest}'.rstrip('/'): leaf
      for index, (name, part) in enumerate(tff.structure.iter_elements(value))
      for rest, leaf in leaves(part).items()
  }


def as_struct(value: Any) -> Any:
  """Returns a Python container as a TFF one. Other values stay as they are."""
  if isinstance(value, (dict, list, tuple)) or attrs.has(type(value)):
    return tff.structure.from_container(value)
  return value


def differences(
    first: dict[str, np.ndarray], second: dict[str, np.ndarray]
) -> list[str]:
  """Returns the paths at which two results differ in any bit.

  The paths are those of `first`. If one result has more arrays than the other,
  or arrays of other shapes, the only entry is 'the structure'.
  """
  if list(map(np.shape, first.values())) != list(
      map(np.shape, second.values())
  ):
    return ['the structure']
  # Compared by position, because forms have no names.
  return [
      name
      for (name, one), other in zip(first.items(), second.values())
      if one.dtype != other.dtype or one.tobytes() != other.tobytes()
  ]


def has_no_nan(result: dict[str, np.ndarray]) -> bool:
  """Returns whether no number is NaN. Infinite numbers are allowed."""
  return not any(
      leaf.dtype.kind == 'f' and np.isnan(leaf).any()
      for leaf in result.values()
  )


def check_start(initialize: tff.Computation) -> Any:
  """Returns an initial state. Its keys are secret, and new every time.

  Raises:
    PrivacyRefusedError: If a key is equal in two new states or marked as
      insecure, or if a constant looks like a key.
  """
  states = [leaves(initialize()) for _ in range(2)]
  fixed = process_files.keys_in(initialize)
  for name, value in states[0].items():
    last = name.rpartition('/')[2]
    if last == 'is_key_insecure' and np.any(value):
      fixed.append(name)
    if last == 'key' and np.array_equal(value, states[1][name]):
      fixed.append(name)
  if fixed:
    raise fixed_key(fixed)
  return initialize()


def fixed_key(names: list[str]) -> _checks.PrivacyRefusedError:
  """Returns the error for computations that contain keys."""
  return _checks.PrivacyRefusedError(
      f'the process has a fixed noise key ({", ".join(sorted(set(names)))})',
      why='whoever reads the file can take the noise away',
      way_out='build the process without insecure_seed',
  )
