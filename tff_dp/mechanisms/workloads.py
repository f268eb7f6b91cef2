# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the server turns the noisy sums into a model, as a matrix.

The server turns the noisy sums x_1..x_n of the rounds into models theta_t. With
a learning rate schedule eta_t = eta f_t, and momentum gamma, round t does

    m_t = gamma m_{t-1} + x_t
    theta_{t+1} = theta_t - eta_t m_t                     (momentum)
    theta_{t+1} = theta_t - eta_t (gamma m_t + x_t)       (Nesterov)

so (theta_1 - theta_{t+1}) / eta = [A x]_t, with A = L diag(f) M: M applies the
momentum, L is the prefix sum. The learning rate is applied after the momentum,
as in `tff.learning.optimizers.build_sgdm`. Keras' SGD with a schedule
multiplies x_t by the learning rate before the momentum, which gives another
matrix.

A mechanism adds C^-1 z to the sums, and so A C^-1 z to the model. Parameters
are chosen for the A that will be used. Privacy depends on C alone, so a
different server costs utility only.
"""

import dataclasses
import math
from typing import Optional

import numpy as np

from tff_dp import _checks


@dataclasses.dataclass(frozen=True)
class Cooldown:
  """A learning rate that falls linearly over the last rounds.

  Attributes:
    share: Share of the rounds in which the learning rate falls, in [0, 1].
    final: Factor of the last round, in [0, 1].
  """

  share: float = 0.25
  final: float = 0.05

  def __post_init__(self):
    _checks.in_closed(0, 1, share=self.share)
    _checks.in_closed(0, 1, final=self.final)

  def factors(self, num_rounds: int) -> np.ndarray:
    """Returns the factors of the learning rate, float64, shape [num_rounds].

    Let m be `share` times the number of rounds, rounded up. Before the last m
    rounds the factor is 1. Then it falls in m equal steps, to `final` in the
    last round.
    """
    _checks.integer_at_least(1, num_rounds=num_rounds)
    # 0.1 * 30 is slightly above 3 in floats and must count as 3.
    falling = math.ceil(round(self.share * num_rounds, 9))
    factors = np.ones(num_rounds)
    if falling:
      steps = np.arange(1, falling + 1) / falling
      factors[-falling:] = 1.0 - (1.0 - self.final) * steps
    return factors


@dataclasses.dataclass(frozen=True)
class Workload:
  """The linear map A from the sums to the model, by default the prefix sum.

  Let x_t be the sum of round t, and m_t = gamma m_{t-1} + x_t its momentum.

  Attributes:
    momentum: Momentum gamma, in [0, 1).
    nesterov: Whether the step is gamma m_t + x_t instead of m_t.
    cooldown: Schedule of the learning rate, `None` for a constant one.
  """

  momentum: float = 0.0
  nesterov: bool = False
  cooldown: Optional[Cooldown] = None

  def __post_init__(self):
    _checks.in_half_open(0, 1, momentum=self.momentum)
    _checks.one_of((False, True), nesterov=self.nesterov)
    if self.cooldown is not None and not isinstance(self.cooldown, Cooldown):
      raise _checks.ArgumentError('cooldown', self.cooldown, 'a Cooldown')

  def factors(self, num_rounds: int) -> np.ndarray:
    """Returns f_1..f_n: the learning rates of the rounds, divided by eta."""
    if self.cooldown is None:
      return np.ones(num_rounds)
    return self.cooldown.factors(num_rounds)

  def step_coefficients(self, num_rounds: int) -> np.ndarray:
    """Returns the coefficients of one sum x_t in the later steps.

    Entry j is the coefficient of x_t in the step of round t + j, before the
    learning rate. It is gamma^j. With Nesterov, entry 0 is 1 + gamma, and every
    other entry j is gamma^(j+1). The array is the first column of the matrix
    from sums to steps. Shape [num_rounds].
    """
    _checks.integer_at_least(1, num_rounds=num_rounds)
    powers = float(self.momentum) ** np.arange(num_rounds + 1)
    if not self.nesterov:
      return powers[:-1]
    return powers[1:] + (np.arange(num_rounds) == 0)

  def coefficients(self, num_rounds: int) -> Optional[np.ndarray]:
    """Returns the first column of A, or `None` if A is not Toeplitz.

    A is Toeplitz unless there is a cooldown. Shape [num_rounds].
    """
    if self.cooldown is not None:
      return None
    return np.cumsum(self.step_coefficients(num_rounds))

  def matrix(self, num_rounds: int) -> np.ndarray:
    """Returns A, lower triangular, shape [num_rounds, num_rounds]."""
    lags = np.subtract.outer(np.arange(num_rounds), np.arange(num_rounds))
    steps = np.where(
        lags < 0, 0.0, self.step_coefficients(num_rounds)[np.maximum(lags, 0)]
    )
    return np.cumsum(self.factors(num_rounds)[:, np.newaxis] * steps, axis=0)
