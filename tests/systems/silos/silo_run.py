# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run of silos that protect their records, for tests of it."""

import functools

import numpy as np
from tff_dp import program
from tff_dp import silos
from tff_dp.program import results
from tff_dp.systems.silos import plan as silo_plan
from tff_dp.systems.silos import process
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
import tensorflow as tf  # pylint: disable=g-bad-import-order

from tests.systems.silos import toy

NUM_ROUNDS = 8
DELTA = 1e-3
RECORDS = {'north': 21, 'south': 30, 'west': 24}
SIZE = 5
# North misses the round in which the run is killed, and nobody comes to 6.
ABSENT = {'north': (2, 5, 6), 'south': (6,), 'west': (6, 7)}
BUDGETS = {
    name: silo_budget.SiloBudget(count, 2.0, DELTA)
    for name, count in RECORDS.items()
}


class Clients:
  """The silos, whose datasets are made anew."""

  def __init__(self, records=None):
    self._records = records or RECORDS
    self.client_ids = list(self._records)

  def create_tf_dataset_for_client(self, name: str) -> tf.data.Dataset:
    count = self._records[name]
    rows = np.random.default_rng(count).standard_normal([count, SIZE])
    return tf.data.Dataset.from_tensor_slices(
        (rows.astype(np.float32), np.zeros(count, np.float32))
    ).batch(4)


def arguments(**changes):
  return dict(silos=BUDGETS, l2_norm_clip=1.0) | changes


# Tracing takes longer than the run.
@functools.cache
def build_process(noise_stddev=None) -> process.SiloProcess:
  return silos.build_noisy_mb_sgd(
      toy.build_model(SIZE, curvature=np.ones(SIZE)),
      num_rounds=NUM_ROUNDS,
      sampling=silo_sampling.PoissonSampling(5),
      noise_stddev=noise_stddev,
      learning_rate=0.5,
      private_metrics=[silos.PrivateMetric('loss', 4.0, 0.1)],
      **arguments(),
  )


def is_there(round_index: int, name: str) -> bool:
  return round_index not in ABSENT[name]


def absent_plan(process) -> silo_plan.SiloPlan:
  return process.plan.with_availability(is_there)


def evaluate(weights) -> dict[str, float]:
  return {'test_sum': float(toy.flat(weights).sum())}


def run(output_dir, process=None, **kwargs) -> results.TrainResult:
  """Trains in the caller's context."""
  process = process or build_process()
  options = dict(
      delta=DELTA,
      evaluate_fn=evaluate,
      rounds_per_eval=6,
      checkpoint_every=3,
      progress='quiet',
  )
  options |= kwargs
  if 'plan' not in options:
    options['plan'] = absent_plan(process)
  return program.train(
      process,
      options.pop('clients', None) or Clients(),
      output_dir=output_dir,
      **options,
  )
