# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The clip norm of a run, which follows a quantile of the clients' norms.

`aggregators.adaptive_clipping` without TensorFlow: the server, which sees every
update, forms the bits itself. `mechanisms.adaptive_clipping` says why they cost
nothing beside the plan's noise multiplier.
"""

import math
from typing import NamedTuple

from tff_dp import _checks
from tff_dp.mechanisms import adaptive_clipping
from tff_dp.plans import dp_ftrl


class ClipNorm(NamedTuple):
  """Where the clip norm stands after a round; it depends on noised bits only.

  Attributes:
    l2_norm_clip: Of the next round.
    bits: Noised mean bits of its tree so far, added up.
  """

  l2_norm_clip: float
  bits: float = 0.0


def after_round(
    plan: dp_ftrl.DpFtrlPlan,
    state: ClipNorm,
    surplus: int,
    bits_noise: float,
    *,
    rounds_done: int,
) -> ClipNorm:
  """Returns the state for the next round.

  Args:
    plan: With adaptive clipping.
    state: Of the round that is done.
    surplus: How many more of its clients were within the clip norm than over
      it; a client's bit is 1/2 or -1/2.
    bits_noise: Of the round, at unit draws.
    rounds_done: Including that round.
  """
  num_rounds = adaptive_clipping.rounds_per_clip_norm(plan.mechanism)
  multiplier = plan.noise_multiplier_by_domain['quantile']
  noised = adaptive_clipping.BIT * (surplus + multiplier * bits_noise)
  bits = state.bits + noised / plan.clients_per_round
  if rounds_done % num_rounds:
    return state._replace(bits=bits)
  # A share is within [0, 1]; with noise its estimate need not be.
  estimate = min(max(bits / num_rounds + 0.5, 0.0), 1.0)
  spec = plan.adaptive_clipping
  step = spec.learning_rate * (estimate - spec.target_quantile)
  lowest, highest = map(math.log, _checks.CLIP_NORMS)
  logarithm = math.log(state.l2_norm_clip) - step
  return ClipNorm(math.exp(min(max(logarithm, lowest), highest)))
