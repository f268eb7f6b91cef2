# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What the aggregator releases, and what it should have released.

The references are written from the definitions of the mechanisms, without the
code that they are compared with.
"""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.mechanisms import reference
from tff_dp import execution
from tff_dp import streams
from tff_dp.aggregators import correlated_noise
from tff_dp.aggregators import noise_state
from tff_dp.mechanisms import mechanism as mechanism_lib

SEED = 5
ARGUMENTS = dict(noise_multiplier=1.5, l2_norm_clip=0.5, clients_per_round=4)
# Of one unit draw in the result.
SCALE = 1.5 * 0.5 / 4


def build_process(
    mechanism: mechanism_lib.Mechanism, num_params: int, **changes
) -> tff.templates.AggregationProcess:
  """Returns the real process for one vector per client."""
  return correlated_noise.CorrelatedNoiseFactory(
      mechanism, **(ARGUMENTS | changes)
  ).create(tff.TensorType(np.float32, [num_params]))


def release_noise(
    mechanism: mechanism_lib.Mechanism,
    num_params: int,
    process: tff.templates.AggregationProcess | None = None,
    *,
    num_rounds: int | None = None,
    **changes,
) -> np.ndarray:
  """Returns what the process releases for empty rounds, shape [T, p]."""
  process = process or build_process(mechanism, num_params, **changes)
  state, released = process.initialize(), []
  for _ in range(num_rounds or mechanism.num_rounds):
    output = process.next(state, [])
    state = output.state
    released.append(output.result)
  return np.stack(released)


def expected_prefix_noise(
    mechanism: mechanism_lib.Mechanism, num_params: int
) -> np.ndarray:
  """Returns the unit noise b_t on every prefix sum, float64 of shape [T, p].

  From the draws of `SEED`, without completed trees.
  """
  root = streams.domain_key(
      streams.insecure_root_key(SEED), noise_state.VALUE_DOMAIN
  )
  digests = [tf.constant(0, tf.int64)]
  for _ in range(mechanism.num_rounds):
    digests.append(
        noise_state.digest_of(
            streams.insecure_root_key(SEED),
            tf.stack(digests),
            len(digests),
            # No client is there.
            np.zeros(num_params, np.int64),
            np.zeros(4, np.int32),
        )
    )
  total, rows = np.zeros(num_params), []
  for tree, length in enumerate(reference.tree_lengths(mechanism)):
    first_round = len(rows)
    draw = streams.node_normals(
        streams.fold_in(root, tree),
        num_params,
        # pylint: disable=cell-var-from-loop
        lambda round_in_tree: digests[first_round + round_in_tree],
    )
    if mechanism.name in reference.TREES:
      in_tree = [
          sum(
              share * draw(level, index).numpy().astype(np.float64)
              for (_, level, index), share in reference.prefix(
                  mechanism.name, tree, t
              ).items()
          )
          for t in range(1, length + 1)
      ]
    else:
      draws = np.stack([draw(0, t).numpy() for t in range(length)])
      residuals = np.linalg.solve(reference.strategy(mechanism, length), draws)
      in_tree = np.cumsum(residuals, axis=0)
    rows.extend(total + row for row in in_tree)
    total = rows[-1]
  return np.stack(rows)


def crossing_cohort(num_clients: int, size: int) -> list[np.ndarray]:
  """Returns updates whose float32 sum goes wrong if the first is missing.

  All are within the clip norm 1. The first half fills every weight up to one
  update above a power of two. There, what each of the second half takes off is
  below half a step of float32, and lost. Without the first update the sum is at
  the power of two, below which float32 is finer, and each of the second half
  takes off a whole step.

  Args:
    num_clients: One more than a power of two.
    size: Length of an update.
  """
  half = num_clients // 2
  update = 2.0 ** np.floor(np.log2(1 / np.sqrt(size)))
  loss = -np.spacing(np.float32(update * half)) / 4 * (1 + 2**-10)
  first, second = (
      np.full(size, value, np.float32) for value in (update, loss)
  )
  return [first] * (half + 1) + [second] * half


def moved_by_first(
    process: tff.templates.AggregationProcess, cohort: list[np.ndarray]
) -> tuple[float, float]:
  """Returns how far a first client of zeros moves a release without noise.

  And the resolution of the release, which is a float32 number.

  Args:
    process: Without noise, for 1 client per round.
    cohort: Updates of the same number in every weight.
  """
  without = [np.zeros_like(cohort[0]), *cohort[1:]]
  # One worker, so that the order of the sum is the cohort's.
  with execution.create_sync_in_process_context(max_concurrent_clients=1):
    state = process.initialize()
    results = [process.next(state, c).result for c in (cohort, without)]
  moved = np.linalg.norm(np.subtract(*results, dtype=np.float64))
  resolution = np.spacing(results[0][0]) * np.sqrt(cohort[0].size)
  return float(moved), float(resolution)


def moved_by_first_in_float32(cohort: list[np.ndarray]) -> float:
  """Returns the same for a sum in float32, one client after the other."""
  totals = []
  for first in (cohort[0], np.zeros_like(cohort[0])):
    # All weights are equal, so one of them stands for all.
    total = first[0]
    for update in cohort[1:]:
      total += update[0]
    totals.append(float(total))
  return abs(totals[0] - totals[1]) * np.sqrt(cohort[0].size)
