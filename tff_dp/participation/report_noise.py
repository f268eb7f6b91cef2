# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Where the noise of a check-in protocol is: in each report, or in their sum.

What a protocol guarantees holds for one of the two: randomized before a report
leaves its client, see `mechanisms.randomizers`, or added by a trusted server.
"""

import dataclasses
from typing import Any, Union

import dp_accounting

from tff_dp import _checks
from tff_dp.mechanisms import randomizers
from tff_dp.participation import protocol as protocol_lib


@dataclasses.dataclass(frozen=True)
class CentralGaussian:
  """Gaussian noise that a trusted server adds to the sum of every step.

  Attributes:
    noise_multiplier: Standard deviation on the SUM, over the clip norm.
    l2_norm_clip: Bound on the L2 norm of one client's update.
  """

  noise_multiplier: float
  l2_norm_clip: float

  name = 'central-gaussian'

  def __post_init__(self):
    _checks.positive(noise_multiplier=self.noise_multiplier)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)

  @property
  def event(self) -> dp_accounting.GaussianDpEvent:
    """The event of the sum of one step, for zero-out."""
    return dp_accounting.GaussianDpEvent(self.noise_multiplier)

  def describe(self) -> dict[str, Any]:
    """Returns name and fields as plain JSON types."""
    return {'name': self.name, **dataclasses.asdict(self)}


def check(
    protocol: protocol_lib.CheckInProtocol,
    randomizer: Union[randomizers.LocalRandomizer, CentralGaussian],
) -> None:
  """Raises unless the noise is where the protocol's guarantee needs it.

  Args:
    protocol: Who takes part.
    randomizer: What is to be done to reports, or to their sum.

  Raises:
    ArgumentError: If `randomizer` is neither of the two.
    PrivacyRefusedError: If it is not the one that `protocol` takes.
  """
  is_central = isinstance(randomizer, CentralGaussian)
  if not is_central and not isinstance(randomizer, randomizers.LocalRandomizer):
    raise _checks.ArgumentError(
        'randomizer',
        randomizer,
        'a local randomizer of tff_dp.mechanisms.randomizers, or'
        ' CentralGaussian(noise_multiplier, l2_norm_clip)',
    )
  if is_central == protocol.noise_is_central:
    return
  if is_central:
    raise _checks.PrivacyRefusedError(
        f'{protocol.name} is not defined with noise at the server',
        why=(
            'who wins a slot depends on who else came, so replacing one client'
            ' changes more than its own contribution'
            if protocol.has_one_winner
            else 'its guarantee is about reports that are randomized before'
            ' they are seen'
        ),
        way_out='RandomAllocation or CyclicAllocation, which sum all check-ins'
        ' of a slot, or a local randomizer',
    )
  raise _checks.PrivacyRefusedError(
      f'{protocol.name} is not defined with a local randomizer',
      why='its guarantee is about one Gaussian draw on the sum of every slot',
      way_out='CentralGaussian(noise_multiplier, l2_norm_clip), or'
      ' FixedWindowCheckIn or AveragedCheckIn with the local randomizer',
  )
