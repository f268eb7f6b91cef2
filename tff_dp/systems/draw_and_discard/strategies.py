# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The strategies of a Draw and Discard server for a model that comes back.

B_1..B_k are the models of the server, i is the instance that the client was
given, and "new" is the model that it returned. Clients and privacy are the same
for all strategies.

| strategy | models | when `new` arrives |
|---|---|---|
| draw_and_discard | k | B_j = new, j uniform and independent of i |
| same | k | B_i = new: k lineages that never meet, with a growing spread |
| average_random | k | B_j = (new + B_j) / 2, j uniform |
| average_same | k | B_i = (new + B_i) / 2: half of the step |
| accept_1_over_k | 1 | B = new with probability 1/k, else nothing |
| server_batch | 1 | after N updates B moves by their mean |

For `same` and `average_same` the client says which instance it had. The other
strategies do not ask, but plain `tff.federated_select` may show it to the
server.

The spread of a weight is its sample variance over the k instances, denominator
k - 1. The noise of every update, of variance `noise_variance`, widens the
spread. Overwriting narrows it. With m clients in flight at once, all clients of
a round draw from the same pool and then overwrite one by one. Under draw and
discard, without gradients, a round takes the expected spread from S to S', with

    S' = S (1 - (1 - q2)/k) + noise_variance (1 - q1),
    q1 = (1 - 1/k)^m,  q2 = (1 - 2/k)^m

For m = 1 that is S' = S (1 - 2/k^2) + noise_variance/k, with fixed point k
noise_variance/2 (theorem 1). Only the spread is stable. The mean of the
instances drifts: at m = 1 its variance grows by noise_variance/k with every
update, like the variance of one model with k times fewer updates.

So do not count updates when many clients are in flight: overwritten updates of
a round are lost, and all clients of the round started from the pool before it.
In a round a model moves by one step with probability 1 - (1 - 1/k)^m, not by
m/k steps (`steps_per_round`). With m = 100 and k = 20 that is a fifth of the
progress of 100 updates one by one.

Source: arXiv:1807.04369, sections 3 and 5. docs/proofs_draw_and_discard.md
derives the spread.
"""

import dataclasses
import math
from typing import Optional

from tff_dp import _checks

DRAW_AND_DISCARD = 'draw_and_discard'
SAME = 'same'
AVERAGE_RANDOM = 'average_random'
AVERAGE_SAME = 'average_same'
ACCEPT = 'accept_1_over_k'
SERVER_BATCH = 'server_batch'
NAMES = (
    DRAW_AND_DISCARD,
    SAME,
    AVERAGE_RANDOM,
    AVERAGE_SAME,
    ACCEPT,
    SERVER_BATCH,
)


@dataclasses.dataclass(frozen=True)
class Strategy:
  """A strategy with its numbers.

  Attributes:
    name: Name of the strategy, one of `NAMES`.
    num_instances: Number of instances k. 'accept_1_over_k' has one model. There
      1 / k is the probability to accept an update.
    updates_per_batch: Batch size N of `server_batch`, else `None`.
  """

  name: str
  num_instances: int
  updates_per_batch: Optional[int] = None

  def __post_init__(self):
    _checks.one_of(NAMES, strategy=self.name)
    _checks.integer_at_least(1, num_instances=self.num_instances)
    if self.name == SERVER_BATCH:
      if self.num_instances != 1:
        raise _checks.ArgumentError(
            'num_instances',
            self.num_instances,
            f"1, as strategy='{SERVER_BATCH}' has one model",
        )
      _checks.integer_at_least(1, server_batch=self.updates_per_batch)
    elif self.updates_per_batch is not None:
      raise _checks.ArgumentError(
          'server_batch',
          self.updates_per_batch,
          f"None unless strategy='{SERVER_BATCH}'",
      )

  @property
  def num_models(self) -> int:
    """Number of models that the server has."""
    has_one = self.name in (ACCEPT, SERVER_BATCH)
    return 1 if has_one else self.num_instances

  @property
  def needs_drawn(self) -> bool:
    """Whether clients say which instance they had."""
    return self.name in (SAME, AVERAGE_SAME)

  @property
  def averages(self) -> bool:
    return self.name in (AVERAGE_RANDOM, AVERAGE_SAME)

  def steps_per_round(self, concurrency: int = 1) -> float:
    """Returns by how many client steps a round moves the mean of the models.

    The result is an expectation. It is exact if no report is refused and a step
    does not depend on the model that it starts from. With k = `num_instances`,

    * without averaging and batches it is about m/k if m is far below k, and
      never above 1. If the result is far below m/k, raise the learning rate or
      the number of rounds.
    * with averaging, one report moves a model by half a step, and n reports on
      the same model move it by 1 - 2^-n steps.
    * with the strategy 'server_batch' it is m/N for batches of N reports.

    Args:
      concurrency: Number of clients m that draw before any report is written.
    """
    _checks.integer_at_least(1, concurrency=concurrency)
    if self.name == SERVER_BATCH:
      return concurrency / self.updates_per_batch
    share = 1.0 / self.num_instances
    if self.averages:
      share /= 2
    if share == 1.0:
      return 1.0
    return -math.expm1(concurrency * math.log1p(-share))


def stationary_variance(
    num_instances: int, *, noise_variance: float, concurrency: int = 1
) -> float:
  """Returns the stationary spread S*(k, m) = k sigma^2 (1 - q1)/(1 - q2).

  Here q1 = (1 - 1/k)^m and q2 = (1 - 2/k)^m. The spread is the expected sample
  variance of a weight over the instances. Exact for draw and discard without
  gradients. It is k sigma^2/2 for m = 1 and tends to k sigma^2 for m far above
  k. One instance has no spread, so the result is 0.

  Args:
    num_instances: Number of instances k, at least 1.
    noise_variance: Noise variance sigma^2 of one weight of one update.
    concurrency: Number of clients m that draw before any report is written.
  """
  _checks.integer_at_least(1, num_instances=num_instances)
  _checks.integer_at_least(1, concurrency=concurrency)
  _checks.non_negative(noise_variance=noise_variance)
  if num_instances == 1:
    return 0.0
  # 1 - q1 and 1 - q2.
  hit = -math.expm1(concurrency * math.log1p(-1.0 / num_instances))
  split = 1.0
  if num_instances > 2:
    split = -math.expm1(concurrency * math.log1p(-2.0 / num_instances))
  return num_instances * float(noise_variance) * hit / split
