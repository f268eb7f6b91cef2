# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Independent noise: a fresh draw per round, the Gaussian mechanism composed.

The baseline that correlated noise is measured against: after t rounds the noise
of the running sum has variance t.
"""

from collections.abc import Sequence
import dataclasses
from typing import Optional

import numpy as np

from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import mechanism


@dataclasses.dataclass(frozen=True)
class Independent(mechanism.Mechanism):
  """Public description of independent Gaussian noise.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
  """

  num_rounds: int
  # Independent noise has no trees to restart or complete.
  restart_every: Optional[int] = dataclasses.field(default=None, init=False)
  complete_trees: bool = dataclasses.field(default=False, init=False)

  name = 'independent'

  def __post_init__(self):
    self._check()

  def squared_sensitivity(self, pattern: patterns.ParticipationPattern) -> float:
    """Returns S2: the most rounds one client can take part in. Exact."""
    return float(pattern.truncated(self.num_rounds).max_participations)

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    return np.array([
        pattern.truncated(rounds).max_participations
        for rounds in range(1, self.num_rounds + 1)
    ])

  def squared_response(self, rounds: Sequence[int]) -> float:
    return float(
        len(mechanism.checked_rounds(rounds, num_rounds=self.num_rounds))
    )

  @property
  def rounds_remembered(self) -> int:
    return 0

  @property
  def draws_per_round(self) -> float:
    return 1.0

  def initialize(self, zeros):
    del zeros
    return ()

  def next_noise(self, buffers, round_in_tree, operations):
    return operations.draw(0, round_in_tree - 1), buffers

  def round_variances(self) -> np.ndarray:
    return np.ones(self.num_rounds)

  def prefix_variances(self) -> np.ndarray:
    return np.arange(1, self.num_rounds + 1, dtype=np.float64)
