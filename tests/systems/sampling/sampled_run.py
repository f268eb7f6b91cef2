# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run of DP-FedAvg, for tests that kill it."""

import functools

import tff_dp
from tff_dp import program
from tff_dp.program import results
from tff_dp.systems import sampling
import tensorflow_federated as tff  # pylint: disable=g-bad-import-order

from tests.learning import small_model

SAMPLED = 'sampled'
NUM_ROUNDS = 12
# So few that some rounds are empty.
_POPULATION, _PER_ROUND = 6, 2


class Clients:
  client_ids = [f'client {i}' for i in range(_POPULATION)]

  def create_tf_dataset_for_client(self, client_id: str):
    return small_model.client(int(client_id.removeprefix('client ')))


def build_plan(**changes) -> tff_dp.SamplingPlan:
  arguments = dict(
      population=_POPULATION,
      clients_per_round=_PER_ROUND,
      num_rounds=NUM_ROUNDS,
      noise_multiplier=4.0,
      l2_norm_clip=0.5,
  )
  return tff_dp.SamplingPlan(**arguments | changes)


def build_process(plan: tff_dp.SamplingPlan | None = None, **options):
  return sampling.build_dp_fedavg(
      small_model.build(),
      plan or build_plan(),
      client_optimizer=tff.learning.optimizers.build_sgdm(0.1),
      server_learning_rate=0.5,
      **options,
  )


_process = functools.cache(build_process)


def run(output_dir, **options) -> results.TrainResult:
  """Trains in the caller's context."""
  arguments = dict(
      clients=Clients(),
      delta=1e-5,
      checkpoint_every=3,
      progress='quiet',
      output_dir=output_dir,
  )
  return program.train(_process(), **arguments | options)
