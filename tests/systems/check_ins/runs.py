# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans, clients and runs of the small model under check-ins, for tests."""

import functools

import numpy as np

from tests.learning import small_model
from tff_dp import allocation as allocation_lib
from tff_dp import check_ins
from tff_dp import learning
from tff_dp import mechanisms
from tff_dp.mechanisms import randomizers

CLIP = 0.5
# Where arithmetic is looked at: noise far below the tolerance of a comparison.
QUIET = randomizers.Gaussian(1e-6, CLIP)
LOUD = randomizers.Gaussian(2.0, CLIP)
SPHERE = randomizers.Sphere(2.0, CLIP)


def plan(protocol, randomizer=QUIET, **arguments):
  return check_ins.CheckInPlan(protocol, randomizer, **arguments)


def fixed(num_slots=6, *, slots_per_update=1, randomizer=QUIET):
  return plan(
      check_ins.FixedWindowCheckIn(
          num_slots, slots_per_update=slots_per_update
      ),
      randomizer,
  )


def averaged(num_slots=6, randomizer=QUIET):
  return plan(
      check_ins.AveragedCheckIn(num_slots, min_num_clients=5), randomizer
  )


def sliding(num_rounds=6, window=3, randomizer=QUIET):
  return plan(
      check_ins.SlidingWindowCheckIn(num_rounds, window=window), randomizer
  )


def shuffled(num_rounds=6, randomizer=QUIET):
  return plan(
      check_ins.ShuffledCheckIn(
          num_rounds, check_in_rate=0.5, min_num_clients=4
      ),
      randomizer,
  )


def allocation(num_slots=6, noise_multiplier=2.0):
  return allocation_lib.AllocationPlan(
      allocation_lib.RandomAllocation(num_slots),
      noise_multiplier=noise_multiplier,
      l2_norm_clip=CLIP,
  )


def cyclic(num_rounds=6, noise_multiplier=2.0, stride=2, bands=2):
  return allocation_lib.AllocationPlan(
      allocation_lib.CyclicAllocation(num_rounds, 1, stride),
      noise_multiplier=noise_multiplier,
      l2_norm_clip=CLIP,
      mechanism=mechanisms.Banded.square_root(num_rounds, bands),
  )


def build(made, **changes):
  """Returns the process of a plan: only one of those that are built alike.

  Building one takes a second or two, and its first round as long again.
  """
  try:
    hash(tuple(changes.values()))
  except TypeError:  # Lists of rates, for example.
    return _build.__wrapped__(made, **changes)
  return _build(made, **changes)


@functools.cache
def _build(made, *, model_fn=None, **changes):
  builder = check_ins.build_check_in_sgd
  if made.protocol.noise_is_central:
    builder = functools.partial(
        allocation_lib.build_allocation_sgd, clients_per_slot=4, insecure_seed=3
    )
  elif made.protocol.name == 'ShuffledCheckIn':
    builder = check_ins.build_shuffled_check_in_sgd
  arguments = dict(server_learning_rate=0.5)
  return builder(model_fn or small_model.build(), made, **(arguments | changes))


def key(*words):
  return np.array(words, np.int64)


def client(seed, num_examples=4):
  return learning.client_data(
      small_model.client(seed, num_examples), key(seed, 7)
  )


def dummy(step=0):
  return learning.client_data(small_model.client(0).take(0), key(step, -1))


def slots(first, last):
  """Returns the steps of one client each, by their seeds."""
  return [[client(seed)] for seed in range(first, last + 1)]


def run(process, steps):
  """Returns the flat model before and after each step, and the last output."""
  state = process.initialize()
  models = [small_model.flat(process.get_model_weights(state))]
  output = None
  for clients in steps:
    output = process.next(state, clients)
    state = output.state
    models.append(small_model.flat(process.get_model_weights(state)))
  return np.stack(models), output


def gradient(model, seed, num_examples=4):
  """Returns the clipped local update, by NumPy, from the model given flat."""
  kernel, bias = model[:4].reshape(2, 2).astype(np.float64), model[4]
  start = np.concatenate([kernel.ravel(), [bias]])
  for x, y in small_model.client(seed, num_examples).as_numpy_iterator():
    residual = (x @ kernel).sum(1) + bias - y
    kernel = kernel - 2 * np.outer((residual @ x), np.ones(2)) / len(y)
    bias = bias - 2 * residual.mean()
  update = start - np.concatenate([kernel.ravel(), [bias]])
  return update * min(1.0, CLIP / np.linalg.norm(update))
