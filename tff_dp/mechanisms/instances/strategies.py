# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a server of Draw and Discard may do with a model that comes back.

B_1..B_k are the models of the server, i the one that the client was given, and
"new" what it returned. Clients and privacy are the same for all of these.

| strategy | models | when `new` arrives |
|---|---|---|
| draw_and_discard | k | B_j = new, j uniform and independent of i |
| same | k | B_i = new: k lineages that never meet; their spread grows |
| average_random | k | B_j = (new + B_j) / 2, j uniform |
| average_same | k | B_i = (new + B_i) / 2: half of the step |
| accept_1_over_k | 1 | B = new with probability 1/k, else nothing |
| server_batch | 1 | after N updates B moves by their mean |

For `same` and `average_same` the client says which instance it had. The others
do not ask; but plain `tff.federated_select` may show it to the server.

The spread of a weight is the sample variance over the k instances, denominator
k - 1. Noise of variance `noise_variance` that every update adds widens it,
overwriting narrows it; with m clients in flight at once (a round: all of them
draw from the pool as it stands, then overwrite one by one) its expectation S
obeys, under draw and discard and without gradients,

    S' = S (1 - (1 - q2)/k) + noise_variance (1 - q1)          per round,
    q1 = (1 - 1/k)^m,  q2 = (1 - 2/k)^m

For m = 1 that is S' = S (1 - 2/k^2) + noise_variance/k, with fixed point
k noise_variance/2 (theorem 1). Only the spread is stable: the mean of the
instances drifts, its variance growing by noise_variance/k with every update at
m = 1, as that of one model with k times fewer updates does.

So do not count updates where many are in flight: what a round writes over is
lost, and all of its clients began from the pool before it. A model moves by one
step with probability 1 - (1 - 1/k)^m in a round, not by m/k steps
(`steps_per_round`); with m = 100 and k = 20 that is a fifth of the progress of
100 updates one by one.

Source: arXiv:1807.04369, sections 3 and 5; docs/draw_and_discard_privacy.md
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
    name: One of `NAMES`.
    num_instances: k.
    updates_per_batch: N of `server_batch`, else `None`.
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
    """Returns how many models the server has."""
    has_one = self.name in (ACCEPT, SERVER_BATCH)
    return 1 if has_one else self.num_instances

  @property
  def needs_drawn(self) -> bool:
    """Returns whether clients say which instance they had."""
    return self.name in (SAME, AVERAGE_SAME)

  @property
  def averages(self) -> bool:
    return self.name in (AVERAGE_RANDOM, AVERAGE_SAME)

  def steps_per_round(self, concurrency: int = 1) -> float:
    """Returns by how many steps of a client a round moves the mean of models.

    Exact for the expectation, where all reports are taken and a step does not
    depend on the model that it starts from. m/k for few clients in flight, at
    most 1 for many: then the learning rate has to make up for it, or more
    rounds. Averaging takes half of a step, and a model that n reports are
    averaged into takes 1 - 2^-n. A batch of N needs N reports.

    Args:
      concurrency: m, clients that draw before any of them is written.
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
  """Returns the spread that stays, S*(k, m) = k sigma^2 (1 - q1)/(1 - q2).

  Exact without gradients. k sigma^2/2 for m = 1, towards k sigma^2 for m far
  above k. One instance has no spread: 0.

  Args:
    num_instances: k, at least 1.
    noise_variance: sigma^2 of one weight of one update.
    concurrency: m, clients that draw before any of them is written.
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
