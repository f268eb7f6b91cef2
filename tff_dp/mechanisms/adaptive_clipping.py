# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Adaptive clipping: the clip norm follows a quantile of the clients' norms.

Beside its update, a client sends the bit +1/2 if its norm is within the clip
norm and -1/2 if not (Andrew et al., arXiv:1905.03871, section 2). Updates and
bits are two streams of sums with the same mechanism, participation and hence
the same S2, but with keys and noise of their own:

    std of a draw on the sum of updates   nm / sqrt(1 - share) * clip norm
    std of a draw on the sum of bits      nm / sqrt(share) * 1/2

A contribution of one client to one round is at most one clip norm in the first
and 1/2 in the second; zero-out adjacency replaces both by zeros, as if the
client had sent nothing (not a bit for an update of zeros). Two Gaussian
mechanisms, of which one may be chosen after the results of the other, are one
whose 1 / sigma^2 is the sum of theirs: (1 - share) / nm^2 + share / nm^2 =
1 / nm^2. So `nm`, the noise multiplier of the plan, is that of both streams
together, and S2, epsilon, budget and calibration are the same with and without
adaptive clipping. *Exact.*

The clip norm stays what it is within a tree and changes when the next begins:

    clip norm *= exp(-learning_rate * (estimate - target_quantile))

where the estimate comes from the noised bits of the finished tree. It needs no
data besides, so it costs nothing more. With independent noise every round is a
tree of its own.
"""

import dataclasses
import math

from tff_dp import _checks
from tff_dp.mechanisms import mechanism as mechanism_lib

# What one client adds to the sum of bits, at most.
BIT = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveClipping:
  """Public description of adaptive clipping; it starts at the plan's clip norm.

  Attributes:
    target_quantile: Share of clients whose norm shall be within the clip norm.
    learning_rate: Step in the logarithm of the clip norm per tree, times how
      far the estimated share is from the target.
    budget_share: Share of the guarantee, in 1 / sigma^2 (that is, in zCDP's
      rho), which the bits are given.
  """

  target_quantile: float = 0.5
  learning_rate: float = 0.2
  budget_share: float = 0.01

  def __post_init__(self):
    _checks.in_open(0.0, 1.0, target_quantile=self.target_quantile)
    _checks.positive(learning_rate=self.learning_rate)
    _checks.in_open(0.0, 1.0, budget_share=self.budget_share)

  def value_noise_multiplier(self, noise_multiplier: float) -> float:
    """Returns the std on the sum of updates, over the current clip norm.

    Args:
      noise_multiplier: That of both streams together.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    return float(noise_multiplier) / math.sqrt(1.0 - self.budget_share)

  def quantile_noise_multiplier(self, noise_multiplier: float) -> float:
    """Returns the std on the sum of bits, over the 1/2 of one client.

    Args:
      noise_multiplier: That of both streams together.
    """
    _checks.non_negative(noise_multiplier=noise_multiplier)
    return float(noise_multiplier) / math.sqrt(self.budget_share)


def rounds_per_clip_norm(mechanism: mechanism_lib.Mechanism) -> int:
  """Returns how many rounds use the same clip norm.

  Raises:
    PrivacyRefusedError: If the mechanism does not allow for another clip norm.
  """
  if isinstance(mechanism, mechanism_lib.Independent):
    return 1
  if mechanism.complete_trees:
    raise _checks.PrivacyRefusedError(
        'adaptive clipping is not possible with complete_trees=True',
        why='the first round of a tree would add noise of the finished tree,'
        ' which has the scale of another clip norm',
        way_out='complete_trees=False, which also needs a smaller S2',
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
