# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run of draw and discard, for tests that kill it."""

import functools

import tff_dp
from tff_dp import program
from tff_dp.program import results
from tff_dp.systems import draw_and_discard
from tff_dp.systems.draw_and_discard import process

from tests.learning import small_model

INSTANCES = 'instances'
# All participations that there may be: one more, and nobody would be left.
NUM_ROUNDS, NUM_CLIENTS, _PER_ROUND, _CAP = 12, 8, 2, 3


class Clients:
  client_ids = [f'client {i}' for i in range(NUM_CLIENTS)]

  def create_tf_dataset_for_client(self, client_id: str):
    return small_model.client(int(client_id.removeprefix('client ')))


def build_plan(**changes) -> tff_dp.DrawAndDiscardPlan:
  step = dict(
      learning_rate=0.1, clip='l2', mechanism='gaussian', epsilon=2.0,
      delta=1e-5,
  )
  return tff_dp.DrawAndDiscardPlan(
      **dict(
          step=tff_dp.draw_and_discard.ClientStep(
              **step | changes.pop('step', {})
          ),
          num_params=small_model.NUM_PARAMS,
          num_instances=4,
          max_participations=_CAP,
          num_rounds=NUM_ROUNDS,
          clients_per_round=_PER_ROUND,
      )
      | changes
  )


def build_process(
    plan: tff_dp.DrawAndDiscardPlan, *, loss_scale=None, **changes
) -> process.DrawAndDiscardProcess:
  return draw_and_discard.build_draw_and_discard(
      small_model.build(loss_scale=loss_scale),
      plan,
      **dict(client_keys=True) | changes,
  )


@functools.cache
def _process() -> process.DrawAndDiscardProcess:
  return build_process(build_plan())


def evaluate(weights) -> dict[str, float]:
  return {'test_sum': float(small_model.flat(weights).sum())}


def run(output_dir, process=None, **kwargs) -> results.TrainResult:
  """Trains in the caller's context."""
  process = process or _process()
  arguments = dict(
      clients=Clients(),
      delta=1e-5,
      evaluate_fn=evaluate,
      rounds_per_eval=4,
      checkpoint_every=3,
      progress='quiet',
  )
  return program.train(process, output_dir=output_dir, **arguments | kwargs)
