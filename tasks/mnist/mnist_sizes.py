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
  """The sizes and parameters of the rows.

  Attributes:
    num_clients: Number of clients with an image each.
    bootstrap_clients: Number of clients in the rows that draw the images with
      replacement.
    scale: Share of the updates of a whole run.
    local_epsilon: Epsilon0 of `ldp_sgd`.
    check_in_rate: Check-in rate of `ldp_sgd`, `non_private` and
      `federated_dp_sgd_e0_2`.
    l2_norm_clip: Clip norm of all rows but the federated ones, which have the
      clip norm of the paper.
    epsilon: Epsilon of the rows that are calibrated.
    delta: Target delta, `None` for 1 / number of clients of the row.
    learning_rate: Learning rate of all rows, `None` for each row's own.
    momentum: Momentum of the server.
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
    """Returns the number of updates at `scale`, from the number at scale 1."""
    return max(1, round(self.scale * number))
