# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that clients' examples are of the type that a process was built for.

The check runs before the first round. It reads the specs of datasets, and not
their data. Without it, a wrong type would show only inside of the first round.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.program import cohorts

# Where clients also bring a key or terms, the name of their examples.
_EXAMPLES = 'examples'


def check(process: tff.learning.templates.LearningProcess, clients: Any):
  """Raises if the process cannot read the examples of the first client.

  Nothing is checked where the type cannot be seen without reading data: if the
  process takes clients' ids, if the first client has a list of examples, or if
  a source of clients has no attribute `clients`.

  Args:
    process: The process that will be trained.
    clients: A `tff.simulation.datasets.ClientData`, or a source of clients that
      has one.

  Raises:
    ArgumentError: If the examples are not batched or not dense tensors, or if
      they have other names, shapes or types than the `input_spec` of the model.
  """
  expected = _expected(process)
  found = None if expected is None else _found(clients)
  if found is None or expected.is_assignable_from(found):
    return
  why, way_out = _advice(expected, found)
  raise _checks.ArgumentError(
      'clients',
      str(found),
      f'datasets with elements of the type {expected}, the input_spec of the'
      ' model',
      why=why,
      way_out=way_out,
  )


def _expected(process) -> tff.Type | None:
  """Returns the type of a batch, `None` if clients bring something else."""
  parameter = getattr(process.next.type_signature, 'parameter', None)
  if parameter is None:
    return None
  member = parameter[1].member
  if isinstance(member, tff.StructType) and _EXAMPLES in dir(member):
    member = member[_EXAMPLES]
  return member.element if isinstance(member, tff.SequenceType) else None


def _found(clients) -> tff.Type | None:
  """Returns the type of an element of a client's dataset, `None` if unknown."""
  if isinstance(clients, cohorts.Source):
    clients = getattr(clients, 'clients', None)
    if clients is None:
      return None
  dataset = clients.create_tf_dataset_for_client(list(clients.client_ids)[0])
  if not isinstance(dataset, tf.data.Dataset):
    return None
  try:
    return tff.types.tensorflow_to_type(dataset.element_spec)
  except TypeError:
    raise _checks.ArgumentError(
        'clients',
        str(dataset.element_spec),
        'datasets whose elements are dense tensors',
        why='TFF has no type for sparse, ragged or absent parts',
        way_out='clients.preprocess(lambda dataset: dataset.map(...)), with'
        ' tf.sparse.to_dense, with to_tensor() of a ragged part, or without the'
        ' part that is None',
    ) from None


def _advice(expected: tff.Type, found: tff.Type) -> tuple[str, str]:
  """Returns the cause of a mismatch of the two types, and the way out."""
  wanted, given = _tensors(expected), _tensors(found)
  if list(wanted) != list(given):
    return (
        f'the model reads {_listed(wanted)}, the datasets have {_listed(given)}',
        'clients.preprocess(lambda dataset: dataset.map(...)), which returns the'
        " parts of the model's input_spec in their order",
    )
  if all(_rank(each) == _rank(wanted[name]) - 1 for name, each in given.items()):
    return (
        'the model reads batches of examples, and the datasets have no batches',
        'clients.preprocess(lambda dataset: dataset.batch(20))',
    )
  name = next(
      (
          name
          for name, each in given.items()
          if not wanted[name].is_assignable_from(each)
      ),
      None,
  )
  if name is None or not isinstance(given[name], tff.TensorType):
    # Such as a dict with the keys '0' and '1' for a pair, or a dataset inside.
    return (
        f'the model reads {expected}, the datasets have {found}',
        'clients.preprocess(lambda dataset: dataset.map(...)), which returns the'
        " structure of the model's input_spec",
    )
  what = f'of {name}' if name else 'of the examples'
  if given[name].dtype != wanted[name].dtype:
    return (
        f'the dtype {what} is {given[name]}, not {wanted[name]}',
        'clients.preprocess(lambda dataset: dataset.map(...)) with tf.cast, or'
        ' the model with input_spec=clients.element_type_structure',
    )
  return (
      f'the shape {what} is {given[name]}, not {wanted[name]}',
      'clients.preprocess(lambda dataset: dataset.map(...)) with tf.reshape, or'
      ' a model for these examples',
  )


def _tensors(type_spec: tff.Type, path: str = '') -> dict[str, tff.TensorType]:
  """Returns the tensors of a type, by their path such as 'x' or '0'."""
  if not isinstance(type_spec, tff.StructType):
    return {path: type_spec}
  found = {}
  elements = tff.structure.iter_elements(type_spec)
  for position, (name, inner) in enumerate(elements):
    name = str(position) if name is None else name
    found |= _tensors(inner, f'{path}.{name}' if path else name)
  return found


def _rank(type_spec: tff.Type) -> int:
  shape = getattr(type_spec, 'shape', None)
  return -1 if shape is None else len(shape)


def _listed(tensors: dict[str, tff.TensorType]) -> str:
  return ', '.join(filter(None, tensors)) or 'one tensor'
