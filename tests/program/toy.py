# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A run without TensorFlow computations, for tests of the program around it.

`train` takes its process on trust; `certification_test` has real ones.

The process keeps a random key in its state and adds noise that is a function of
the key and the round, so a test sees at once whether a resumed run went on with
the key of the first.
"""

import collections
import hashlib
import secrets
from typing import NamedTuple
from unittest import mock

import numpy as np

import tff_dp
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.program import certification
from tff_dp.program import loop as loop_lib
from tff_dp.program import results
from tff_dp.program import training


class State(NamedTuple):
  weights: np.ndarray
  key: np.ndarray
  round_index: np.int64


class Output(NamedTuple):
  state: State
  metrics: object


class Next:
  """Stands for `process.next`; calls `on_round` before it trains."""

  type_signature = 'toy'

  def __init__(self):
    self.on_round = lambda round_index: None

  def __call__(self, state: State, datasets: list) -> Output:
    round_index = int(state.round_index) + 1
    self.on_round(round_index)
    digest = hashlib.sha256(state.key.tobytes() + bytes([round_index])).digest()
    noise = np.frombuffer(digest, np.uint8)[:3].astype(np.float32)
    weights = state.weights + noise + np.float32(sum(datasets))
    metrics = collections.OrderedDict(
        distributor=(),
        client_work={'train': {'loss': np.float32(sum(datasets))}},
        aggregator={
            'snr': np.float32(noise[0]),
            'not_covered': {'num_clients': np.int32(len(datasets))},
        },
        finalizer={'update_non_finite': np.int32(0)},
    )
    return Output(State(weights, state.key, np.int64(round_index)), metrics)


class Process:
  """Stands for a `tff.learning.templates.LearningProcess`."""

  def __init__(self):
    self.next = Next()

  def initialize(self) -> State:
    key = np.frombuffer(secrets.token_bytes(16), np.int64)
    return State(np.zeros(3, np.float32), key, np.int64(0))

  def get_model_weights(self, state: State) -> dict[str, np.ndarray]:
    return {'weights': state.weights}


class Clients:
  """Twelve clients; the dataset of a client is a number."""

  client_ids = [f'client {i}' for i in range(12)]

  def create_tf_dataset_for_client(self, client_id: str) -> float:
    return float(client_id.removeprefix('client '))


def build_plan(
    num_rounds: int = 10, noise_multiplier: float = 5.0
) -> tff_dp.DpFtrlPlan:
  return tff_dp.DpFtrlPlan(
      mechanism=mechanism_lib.Independent(num_rounds),
      participation=sampling.MinSeparation(num_rounds, min_index_gap=2),
      l2_norm_clip=1.0,
      clients_per_round=3,
      noise_multiplier=noise_multiplier,
  )


def train(process, plan, clients, **arguments) -> results.TrainResult:
  """Calls `training.train` as if the process could be looked into."""
  certificate = certification.Certificate(plan, None, frozenset())
  with mock.patch.object(
      certification, 'certify', lambda process, plan: certificate
  ):
    return training.train(process, clients, plan=plan, **arguments)


def loop(root, process) -> loop_lib.Loop:
  """Returns a loop of `build_plan()`, as if the process could be looked into.
  """
  certificate = certification.Certificate(build_plan(), None, frozenset())
  with mock.patch.object(
      certification, 'certify', lambda process, plan: certificate
  ):
    return loop_lib.Loop(process, Clients(), output_dir=root, delta=1e-5)


def evaluate(weights: dict[str, np.ndarray]) -> dict[str, float]:
  return {'test_accuracy': float(weights['weights'][0] % 1.0)}
