# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How large the runs of the MNIST task are."""

import dataclasses
from typing import Optional

from tff_dp import _checks

# Updates of the random check-ins at scale 1; steps of a pass of the allocation.
CHECK_IN_UPDATES = 2000
SLOTS_PER_PASS = 60


@dataclasses.dataclass(frozen=True)
class Sizes:
  """What the rows are made of.

  Attributes:
    num_clients: With an image each.
    bootstrap_clients: With an image each, drawn with replacement.
    scale: Share of the updates of a whole run.
    local_epsilon: epsilon0 of `ldp_sgd`.
    check_in_rate: Of `ldp_sgd` and `federated_dp_sgd_e0_2`.
    l2_norm_clip: Of all rows but the federated ones, whose clip is the paper's.
    epsilon: Of the rows that are calibrated.
    delta: `None` for 1 / number of clients of the row.
    learning_rate: Of all rows, `None` for the row's own.
    momentum: Of the server.
    decays: Whether the learning rate falls linearly to 0.
  """

  num_clients: int
  bootstrap_clients: int
  scale: float = 1.0
  local_epsilon: float = 2.0
  check_in_rate: float = 0.1
  l2_norm_clip: float = 0.1
  epsilon: float = 0.5
  delta: Optional[float] = None
  learning_rate: Optional[float] = None
  momentum: float = 0.0
  decays: bool = True

  def __post_init__(self):
    _checks.integer_at_least(SLOTS_PER_PASS, num_clients=self.num_clients)
    _checks.integer_at_least(
        CHECK_IN_UPDATES, bootstrap_clients=self.bootstrap_clients
    )
    if not 0 < self.scale <= 1:
      raise _checks.ArgumentError(
          'scale', self.scale, 'a number above 0 and at most 1'
      )
    _checks.positive(local_epsilon=self.local_epsilon)
    _checks.in_closed(0, 1, check_in_rate=self.check_in_rate)
    _checks.positive(l2_norm_clip=self.l2_norm_clip)
    _checks.positive(epsilon=self.epsilon)
    if self.delta is not None:
      _checks.in_open(0, 1, delta=self.delta)
    if self.learning_rate is not None:
      _checks.positive(server_learning_rate=self.learning_rate)
    _checks.in_half_open(0, 1, momentum=self.momentum)

  def scaled(self, number: int) -> int:
    """Returns how many updates are made of a whole run's."""
    return max(1, round(self.scale * number))
