# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run of a check-in protocol, for tests that kill it."""

import functools

import tff_dp
from tff_dp import program
from tff_dp.mechanisms import randomizers
from tff_dp.participation import samplers
from tff_dp.program import protocol_source
from tff_dp.program import results
import tensorflow_federated as tff  # pylint: disable=g-bad-import-order

from tests.learning import small_model

NUM_CLIENTS = 30
FIXED_WINDOW, SHUFFLED = 'fixed-window', 'shuffled'
CYCLIC = 'cyclic'


class Clients:
  client_ids = [f'client {i}' for i in range(NUM_CLIENTS)]

  def create_tf_dataset_for_client(self, client_id: str):
    return small_model.client(int(client_id.removeprefix('client ')))


def build_plan(kind: str) -> tff_dp.CheckInPlan:
  if kind == SHUFFLED:
    return tff_dp.CheckInPlan(
        tff_dp.check_ins.ShuffledCheckIn(8, 0.15, NUM_CLIENTS),
        randomizers.Sphere(1.0, 0.5),
    )
  if kind == CYCLIC:
    # Noise that is made of earlier rounds' noise.
    return tff_dp.AllocationPlan(
        tff_dp.allocation.CyclicAllocation(12, 2, 3),
        noise_multiplier=4.0,
        l2_norm_clip=0.5,
        mechanism=tff_dp.mechanisms.Banded.square_root(12, 3),
    )
  # Minibatches and two passes: all that has a state.
  return tff_dp.CheckInPlan(
      tff_dp.check_ins.FixedWindowCheckIn(8, 0.4, slots_per_update=4),
      randomizers.Gaussian(4.0, 0.5),
      num_passes=2,
  )


# Tracing takes longer than the run.
@functools.cache
def build_process(
    plan: tff_dp.CheckInPlan,
) -> tff.learning.templates.LearningProcess:
  if not plan.is_local:
    build = functools.partial(
        tff_dp.allocation.build_allocation_sgd, clients_per_slot=5
    )
  elif plan.protocol.has_one_winner:
    build = tff_dp.check_ins.build_check_in_sgd
  else:
    build = tff_dp.check_ins.build_shuffled_check_in_sgd
  return build(
      small_model.build(), plan, server_learning_rate=0.1, momentum=0.9
  )


def evaluate(weights) -> dict[str, float]:
  return {'test_sum': float(small_model.flat(weights).sum())}


def run(output_dir, kind: str, **kwargs) -> results.TrainResult:
  """Trains in the caller's context."""
  plan = build_plan(kind)
  arguments = dict(
      delta=1e-5,
      evaluate_fn=evaluate,
      rounds_per_eval=6,
      checkpoint_every=3,
      progress='quiet',
  )
  source = protocol_source.ProtocolSource.for_plan(
      plan, Clients(), dropout_rate=0.1, lost_winner=samplers.REDRAW
  )
  return program.train(
      build_process(plan),
      source,
      output_dir=output_dir,
      **arguments | kwargs,
  )
