# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A small real run of silos that hide in secure sums, for tests of it."""

import functools

import numpy as np
from tff_dp import silos
from tff_dp.program import results
from tff_dp.systems.silos import process
from tff_dp.systems.silos import secure_sum_plan

from tests.systems.silos import silo_run
from tests.systems.silos import toy

SUMS = 'secure_sums'
NUM_ROUNDS = 8
DELTA = 1e-3
RECORDS = {'north': 24, 'south': 30, 'west': 25}
SIZE = 5
# North misses the round in which the run is killed.
ABSENT = {'north': (2, 5), 'south': (6,), 'west': (7,)}


# Tracing takes longer than the run.
@functools.cache
def build_process(**changes) -> process.SiloProcess:
  return silos.build_secure_sum_sgd(
      toy.build_model(SIZE, curvature=np.ones(SIZE)),
      **dict(
          num_records=RECORDS,
          num_rounds=NUM_ROUNDS,
          l2_norm_clip=1.0,
          epsilon=2.0,
          delta=DELTA,
          min_silos=2,
          gamma=4.0,
      )
      | changes,
  )


def is_there(round_index: int, name: str) -> bool:
  return round_index not in ABSENT[name]


def absent_plan(process) -> secure_sum_plan.SecureSumPlan:
  return process.plan.with_availability(is_there)


def run(output_dir, process=None, **kwargs) -> results.TrainResult:
  """Trains in the caller's context."""
  process = process or build_process()
  options = dict(plan=absent_plan(process), clients=silo_run.Clients(RECORDS))
  return silo_run.run(output_dir, process, **options | kwargs)
