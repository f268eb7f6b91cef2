# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Poisoned neighbours: nothing of a client gets into what another computes.

Two cohorts differ in every third client: in one of them these have huge
numbers, infinities, NaN, and other words. The results of the others must have
the same bits. A client's result is seen through a sum, in which each has a place
of its own, because only what ends in a sum is done for many clients in a graph.

Workers and shards take every second or every fourth client, so each of them has
poisoned clients and others.
"""

from collections.abc import Callable
import functools
import json

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.oracle import models
from tests.oracle import oracle
from tests.oracle import programs
from tff_dp import execution

NUM_CLIENTS = 9
_BAD_FLOATS = np.array([1e30, -1e30, np.inf, -np.inf, np.nan, 1e-40])
_BAD_WORDS = np.array(['', 'poison', 'd'], object)


def _leaves(value) -> list:
  """Returns the leaves of a result in the order of its type."""
  if isinstance(value, tff.learning.templates.ClientResult):
    value = [value.update, value.update_weight]
  if isinstance(value, dict):
    value = list(value.values())
  if isinstance(value, (list, tuple)):
    return [leaf for part in value for leaf in _leaves(part)]
  return [value]


def placed(result_type: tff.Type):
  """Returns the client work that puts a result in the client's own place.

  It maps (result, number of the client) to tensors of shape [clients, ...],
  zeros but for one row.
  """

  @tff.tensorflow.computation(result_type, np.int32)
  def place(result, number):
    mine = tf.equal(tf.range(NUM_CLIENTS), number)
    found = []
    for leaf, spec in zip(_leaves(result), _leaf_types(result_type)):
      if spec is None:
        continue
      if leaf.dtype == tf.bool:
        leaf = tf.cast(leaf, tf.int32)
      mask = tf.reshape(mine, [NUM_CLIENTS] + [1] * len(spec.shape))
      rows = tf.broadcast_to(leaf, [NUM_CLIENTS, *spec.shape])
      found.append(tf.where(mask, rows, tf.zeros_like(rows)))
    return tuple(found)

  return place


def _leaf_types(type_spec: tff.Type) -> list[tff.TensorType | None]:
  """Returns the type of each leaf, None where it is no number of known shape."""
  if isinstance(type_spec, tff.StructType):
    return [leaf for element in type_spec for leaf in _leaf_types(element)]
  if not isinstance(type_spec, tff.TensorType):
    return [None]
  dtype = tf.as_dtype(type_spec.dtype)
  is_number = dtype.is_floating or dtype.is_integer or dtype.is_bool
  is_known = type_spec.shape is not None and None not in type_spec.shape
  return [type_spec if is_number and is_known else None]


def of_work(work) -> tff.Computation:
  """Returns the computation that gives all clients' results of a work.

  Its arguments are lists of what `work` takes, a value for every client, and of
  the clients' numbers.
  """
  place = placed(work.type_signature.result)

  @tff.federated_computation(
      tff.FederatedType(work.type_signature.parameter, tff.CLIENTS),
      tff.FederatedType(np.int32, tff.CLIENTS),
  )
  def collect(values, numbers):
    results = tff.federated_map(work, values)
    return tff.federated_sum(tff.federated_map(place, (results, numbers)))

  return collect


def of_program(program: dict) -> tuple[tff.Computation, list] | None:
  """Returns the first work of a program as `of_work`, and values for it.

  None if there is nothing to see, as it returns no numbers of known shapes.

  Args:
    program: As `programs` has it.
  """
  work = programs.build(program, 'work_0')
  if not any(_leaf_types(work.type_signature.result)):
    return None
  clients = dict(
      program['clients'], form='list', steps=[], sizes=[4] * NUM_CLIENTS
  )
  own = dict(program, clients=clients)
  names = [*program['server'], *program['own']]
  given = programs.arguments(own)
  values = []
  for client in range(NUM_CLIENTS):
    parts = []
    for name in program['works'][0]['inputs']:
      part = given[names.index(name)]
      parts.append(part[client] if name in program['own'] else part)
    if program['works'][0]['elements'] is not None:
      parts.append(given[-1][client])
    values.append(parts[0] if len(parts) == 1 else parts)
  return of_work(work), values


def of_training(model, optimizer) -> tff.Computation:
  """Returns the computation that gives all clients' updates of a model.

  Args:
    model: A `model_fn`, or a functional model.
    optimizer: Of the clients.
  """
  properties = dict(
      optimizer=optimizer,
      client_weighting=tff.learning.ClientWeighting.NUM_EXAMPLES,
  )
  templates = tff.learning.templates
  if callable(model):
    client_work = templates.build_model_delta_client_work(model, **properties)
    make = lambda: tff.learning.models.ModelWeights.from_model(model())
  else:
    client_work = templates.build_functional_model_delta_client_work(
        model=model, **properties
    )
    make = lambda: tff.learning.models.ModelWeights(*model.initial_weights)
  _, _, data_type = client_work.next.type_signature.parameter
  place = placed(client_work.next.type_signature.result.result.member)
  start = tff.tensorflow.computation(
      lambda: tf.nest.map_structure(tf.convert_to_tensor, make())
  )

  @tff.federated_computation(
      data_type, tff.FederatedType(np.int32, tff.CLIENTS)
  )
  def collect(values, numbers):
    weights = tff.federated_broadcast(tff.federated_eval(start, tff.SERVER))
    output = client_work.next(client_work.initialize(), weights, values)
    placed_results = tff.federated_map(place, (output.result, numbers))
    return tff.federated_sum(placed_results)

  return collect


def poison(value, draws: np.random.RandomState):
  """Returns a value of the same form with numbers that spread."""
  if isinstance(value, dict):
    return type(value)(
        (name, poison(part, draws)) for name, part in value.items()
    )
  if isinstance(value, (list, tuple)):
    return type(value)(poison(part, draws) for part in value)
  if isinstance(value, str):
    return 'poison'
  array = np.asarray(value)
  shape = array.shape
  if array.dtype == object:
    return _BAD_WORDS[draws.randint(0, len(_BAD_WORDS), shape)]
  if array.dtype.kind == 'b':
    return np.asarray(~array)
  if array.dtype.kind in 'iu':
    # Labels and keys: still such that the work does not fail.
    return np.asarray((array + draws.randint(0, 3, shape)).astype(array.dtype))
  return np.asarray(
      _BAD_FLOATS[draws.randint(0, len(_BAD_FLOATS), shape)].astype(array.dtype)
  )


def _is_poisoned(client: int) -> bool:
  return client % 3 == 1


def differences(collect, values: list, *, run: Callable) -> list[str]:
  """Returns in words whose results depend on their neighbours.

  Args:
    collect: See `of_work`.
    values: What each of `NUM_CLIENTS` clients has.
    run: Invokes a computation with arguments in the context to judge.
  """
  draws = np.random.RandomState(1)
  bad = [
      poison(value, draws) if _is_poisoned(client) else value
      for client, value in enumerate(values)
  ]
  numbers = list(range(NUM_CLIENTS))
  try:
    clean = run(collect, values, numbers)
  except (RuntimeError, grpc.RpcError):
    # It fails anyway, which is for the generated cases to compare. TFF computes
    # also what nobody sees here.
    return []
  try:
    poisoned = run(collect, bad, numbers)
  except execution.ClientComputationError as error:
    if _is_poisoned(error.client_index):
      return []  # It is named, and nothing is released.
    return [f'client {error.client_index} failed in the place of another']
  except (RuntimeError, grpc.RpcError):
    return []  # TFF's runtime names nobody.
  found = []
  for index, (one, other) in enumerate(zip(clean, poisoned, strict=True)):
    for client in range(NUM_CLIENTS):
      if _is_poisoned(client):
        continue
      if one[client].tobytes() != other[client].tobytes():
        found.append(
            f'result {index} of client {client} is {other[client]}, not'
            f' {one[client]}'
        )
  return found


_optimizers = tff.learning.optimizers


def _variable_model(make, kind: str):
  return models.variable_model(make, kind, models.plain_metrics())


# Name -> (kind of examples, maker of the model, optimizer of clients).
_TRAININGS = {
    'dense': (
        'table',
        lambda: _variable_model(models.mlp, 'table'),
        _optimizers.build_sgdm(0.1),
    ),
    'normalization': (
        'table',
        lambda: _variable_model(models.normalized, 'table'),
        _optimizers.build_adam(0.1),
    ),
    'convolution': (
        'image',
        lambda: _variable_model(models.convolution, 'image'),
        _optimizers.build_sgdm(0.1, 0.9),
    ),
    'embedding': (
        'words',
        lambda: _variable_model(models.embedding, 'words'),
        _optimizers.build_yogi(0.1),
    ),
    'recurrent': (
        'words',
        lambda: _variable_model(models.lstm, 'words'),
        _optimizers.build_adagrad(0.1),
    ),
    'text': (
        'text',
        lambda: models.variable_model(models.text, 'text'),
        _optimizers.build_rmsprop(0.1),
    ),
    'own_variables': (
        'table',
        lambda: models.OwnVariables,
        _optimizers.build_adamw(0.1),
    ),
    'functional': (
        'table',
        lambda: models.functional_model(
            models.mlp, 'table', models.plain_metrics()
        ),
        _optimizers.build_sgdm(0.1, 0.9),
    ),
    'functional_recurrent': (
        'words',
        lambda: models.functional_model(models.lstm, 'words'),
        _optimizers.build_adam(0.1),
    ),
}


def _judged(made) -> dict[str, np.ndarray]:
  """Returns how many results depend on their neighbours, as a case does."""
  if made is None:
    return {}
  run = lambda function, *arguments: function(*arguments)
  return {'num_differences': np.int64(len(differences(*made, run=run)))}


def _batch(kind: str, *seed: int):
  """Returns three examples whose words and labels may grow by 2 and exist."""
  rows = models.examples(kind, 3, *seed)
  if rows['x'].dtype == np.int32:
    rows['x'] %= 6
  rows['y'] %= 6 if kind == 'text' else 1
  return rows


def _run_training(name: str) -> dict[str, np.ndarray]:
  kind, make_model, optimizer = _TRAININGS[name]
  values = [
      [_batch(kind, client, 0), _batch(kind, client, 1)]
      for client in range(NUM_CLIENTS)
  ]
  return _judged((of_training(make_model(), optimizer), values))


def _run_program(program: dict) -> dict[str, np.ndarray]:
  return _judged(of_program(program))


_TRAINING_CASES = [
    oracle.Case(name, 'poisoned', functools.partial(_run_training, name))
    for name in _TRAININGS
]
_PROGRAM_CASES = [
    oracle.Case(
        f'program_{number:03}',
        'poisoned',
        functools.partial(_run_program, program),
    )
    for number, program in enumerate(
        json.loads((oracle.RECORDED / 'generated.json').read_text())
    )
]
CASES = _TRAINING_CASES + _PROGRAM_CASES
# For places where all of them would take too long.
FEW_CASES = _TRAINING_CASES + _PROGRAM_CASES[::20]
