# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a stack must end with: the plan that its test runs, as a NumPy loop."""

from collections.abc import Callable, Iterable

import numpy as np

from tff_dp.integrations import noise
from tff_dp.integrations import updates
from tff_dp.mechanisms.matrix import blt
from tff_dp.participation import coins
from tff_dp.participation import sampling
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

NUM_ROUNDS = 3
SEED = 5
PLAN = dp_ftrl_plan.DpFtrlPlan(
    mechanism=blt.Blt(NUM_ROUNDS, (0.25, 0.125), (0.95, 0.5), 2),
    participation=sampling.MinSeparation(NUM_ROUNDS, min_index_gap=1),
    l2_norm_clip=1.0,
    clients_per_round=2,
    noise_multiplier=1.5,
)


def initial_model() -> dict[str, np.ndarray]:
  """Returns the weights before round 1."""
  return {'w': np.zeros([2, 3], np.float32), 'b': np.ones(2)}


def changed(model, change: float) -> dict[str, np.ndarray]:
  """Returns what a client replies that adds a number to every weight."""
  return {k: (v + change).astype(v.dtype) for k, v in model.items()}


def weights(
    changes: Callable[[int], Iterable[float]], plan=PLAN, seed: int = SEED
) -> np.ndarray:
  """Returns the weights of a plain loop over the definition.

  Args:
    changes: From the round, from 1, to what its clients add, those left out
      whose reply counts as zero.
    plan: Plan of the run.
    seed: Seed of its noise.
  """
  like, model = initial_model(), updates.flat(initial_model())
  state = noise.initialize(
      plan.mechanism, model.size, key=coins.insecure_root_key(seed)
  )
  step = updates.grid_step(plan.l2_norm_clip)
  for round_index in range(1, plan.num_rounds + 1):
    total = np.zeros(model.size, np.int64)
    for change in changes(round_index):
      reply = updates.flat(changed(updates.unflat(model, like), change))
      update, _ = updates.clip(reply - model, plan.l2_norm_clip)
      total += np.trunc(update / step).astype(np.int64)
    unit, state = noise.next_noise(plan.mechanism, state, total)
    noised = total * step + plan.noise_multiplier * unit
    model = model + noised / plan.clients_per_round
    model = updates.flat(updates.unflat(model, like))
  return model
