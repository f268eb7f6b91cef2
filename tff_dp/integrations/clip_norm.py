# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The clip norm of a run, which follows a quantile of the clients' norms.

This is `aggregators.adaptive_clipping` without TensorFlow. The server sees
every update, and computes each client's bit itself: whether the update's norm
is within the clip norm. `mechanisms.adaptive_clipping` explains why updates and
bits together cost as much as the plan's noise multiplier says.
"""

import math
from typing import NamedTuple

from tff_dp import _checks
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.plans import base


class ClipNorm(NamedTuple):
  """State of the clip norm after a round, which depends only on noised bits.

  Attributes:
    l2_norm_clip: Clip norm of the next round.
    bits: Sum of the noised bits of all clients in the rounds of the tree so
      far, divided by the expected number of clients.
  """

  l2_norm_clip: float
  bits: float = 0.0


def after_round(
    plan: base.Plan,
    state: ClipNorm,
    surplus: int,
    bits_noise: float,
    *,
    rounds_done: int,
) -> ClipNorm:
  """Returns the state for the next round.

  Args:
    plan: Plan with adaptive clipping.
    state: State before the round, with the round's clip norm.
    surplus: Number of clients within the clip norm, less the number over it.
      The sum of the clients' bits is half of that, because a bit is 1/2 or
      -1/2.
    bits_noise: Noise on the bits of the round, before it is scaled by the noise
      multiplier.
    rounds_done: Number of rounds done, including this round.
  """
  num_rounds = adaptive_clipping.rounds_per_clip_norm(plan.mechanism)
  multiplier = plan.noise_multiplier_by_domain['quantile']
  noised = adaptive_clipping.BIT * (surplus + multiplier * bits_noise)
  bits = state.bits + noised / plan.clients_per_round
  if rounds_done % num_rounds:
    return state._replace(bits=bits)
  # A share is within [0, 1], but its noised estimate need not be.
  estimate = min(max(bits / num_rounds + 0.5, 0.0), 1.0)
  spec = plan.adaptive_clipping
  step = spec.learning_rate * (estimate - spec.target_quantile)
  lowest, highest = map(math.log, _checks.CLIP_NORMS)
  logarithm = math.log(state.l2_norm_clip) - step
  return ClipNorm(math.exp(min(max(logarithm, lowest), highest)))
