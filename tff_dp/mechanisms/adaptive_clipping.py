# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Adaptive clipping: the clip norm follows a quantile of the clients' norms.

With its update, a client sends the bit +1/2 if the update's norm is within the
clip norm and -1/2 if not (Andrew et al., arXiv:1905.03871, section 2). Updates
and bits are two streams of sums. They have the same mechanism and
participation, and so the same squared sensitivity S2, but separate keys and
noise. Let nm be the noise multiplier of the plan, and share the `budget_share`:

    std of a draw on the sum of updates   nm / sqrt(1 - share) * clip norm
    std of a draw on the sum of bits      nm / sqrt(share) * 1/2

In one round, one client contributes at most one clip norm to the first sum and
1/2 to the second. Zero-out adjacency replaces both by zeros, as if the client
had sent nothing (not even the bit of a zero update). Two Gaussian mechanisms,
of which one may be chosen after seeing the results of the other, are equivalent
to one. Their 1 / sigma^2 add up: (1 - share) / nm^2 + share / nm^2 = 1 / nm^2.
So nm covers both streams together. S2, epsilon, budget and calibration are the
same with and without adaptive clipping. *Exact.*

The clip norm stays constant within a tree and changes when the next tree
begins:

    clip norm *= exp(-learning_rate * (estimate - target_quantile))

The estimate comes from the noised bits of the finished tree. No other data is
used, so the update costs no further privacy. With independent noise every round
is its own tree.
"""

import dataclasses
import math
from typing import Optional

from tff_dp import _checks
from tff_dp.mechanisms import mechanism as mechanism_lib

# Largest contribution of one client to the sum of bits.
BIT = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveClipping:
  """Public description of adaptive clipping, starting at the plan's clip norm.

  Attributes:
    target_quantile: Target share of clients whose norm is within the clip norm.
    learning_rate: Step in the logarithm of the clip norm per tree, per unit of
      distance between the estimated share and the target.
    budget_share: Share of the guarantee, in 1 / sigma^2 (that is, in zCDP's
      rho), that is spent on the bits.
  """

  target_quantile: float = 0.5
  learning_rate: float = 0.2
  budget_share: float = 0.01

  def __post_init__(self):
    _checks.in_open(0.0, 1.0, target_quantile=self.target_quantile)
    _checks.positive(learning_rate=self.learning_rate)
    _checks.in_open(0.0, 1.0, budget_share=self.budget_share)

  def value_noise_multiplier(self, noise_multiplier: float) -> float:
    """Returns the std of a draw on the sum of updates, in clip norms.

    Args:
      noise_multiplier: Noise multiplier of both streams together.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    return float(noise_multiplier) / math.sqrt(1.0 - self.budget_share)

  def quantile_noise_multiplier(self, noise_multiplier: float) -> float:
    """Returns the std of a draw on the sum of bits, divided by 1/2.

    A client's bit is 1/2 or -1/2.

    Args:
      noise_multiplier: Noise multiplier of both streams together.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    return float(noise_multiplier) / math.sqrt(self.budget_share)


def check(adaptive_clipping) -> None:
  """Raises unless the value, an argument of that name, is a rule or `None`."""
  _checks.instance_of(
      (AdaptiveClipping, type(None)),
      'a rule, such as tff_dp.mechanisms.AdaptiveClipping(), or None for a'
      ' constant clip norm',
      adaptive_clipping=adaptive_clipping,
  )


def noise_multiplier_by_domain(
    noise_multiplier: float, clipping: Optional[AdaptiveClipping]
) -> dict[str, float]:
  """Returns the noise multiplier of every stream of noise, by its name.

  The stream 'value' is for updates. If the clip norm adapts, 'quantile' is for
  the clients' bits.

  Args:
    noise_multiplier: Noise multiplier of all streams together.
    clipping: Rule of the clip norm, `None` for a fixed one.
  """
  if clipping is None:
    return {'value': noise_multiplier}
  return {
      'value': clipping.value_noise_multiplier(noise_multiplier),
      'quantile': clipping.quantile_noise_multiplier(noise_multiplier),
  }


def rounds_per_clip_norm(mechanism: mechanism_lib.Mechanism) -> int:
  """Returns the number of rounds that use the same clip norm.

  Raises:
    PrivacyRefusedError: If the mechanism does not allow the clip norm to
      change.
  """
  if isinstance(mechanism, mechanism_lib.Independent):
    return 1
  if mechanism.complete_trees:
    raise _checks.PrivacyRefusedError(
        'adaptive clipping is not possible with complete_trees=True',
        why='the first round of a new tree would also add noise of the tree'
        ' before it, at the scale of the old clip norm',
        way_out='complete_trees=False, which also has a smaller sensitivity',
    )
  if mechanism.rounds_per_tree == mechanism.num_rounds:
    raise _checks.PrivacyRefusedError(
        f'adaptive clipping is not possible with the mechanism'
        f' {mechanism.name!r} in one tree over all'
        f' {mechanism.num_rounds} rounds',
        why='noise that is taken back later must have the same scale then, so'
        ' the clip norm may change only where a new tree begins',
        way_out=f'restart_every=... below {mechanism.num_rounds}, independent'
        ' noise, or a fixed l2_norm_clip',
    )
  return mechanism.rounds_per_tree
