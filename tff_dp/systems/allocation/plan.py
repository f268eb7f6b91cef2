# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose clients draw their slots at a trusted server.

The server adds noise to the sum of every slot:

    plan = tff_dp.AllocationPlan(
        tff_dp.allocation.RandomAllocation(num_slots=2000),
        noise_multiplier=1.0,
        l2_norm_clip=0.5,
    )
    plan.epsilon(delta=1e-6)

Making a plan and reading its epsilon needs no TensorFlow.
"""

import dataclasses
import math
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.participation import protocol as protocol_lib
from tff_dp.plans import protocol_plan
from tff_dp.statement import builder
from tff_dp.systems.allocation import protocols
from tff_dp.systems.allocation import statement

# Bound on the relative error of a norm of thousands of squares.
_ROUNDING = 1e-12


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class AllocationPlan(protocol_plan.ProtocolPlan):
  """Protocol of the clients, and noise of the server. Adjacency is zero-out.

  Attributes:
    noise_multiplier: Standard deviation of one draw on the SUM of a slot, over
      the clip norm.
    l2_norm_clip: Bound on the L2 norm of one client's update.
    mechanism: Noise of the server over the rounds. Default: independent noise.
      `CyclicAllocation` also takes banded noise with at most `stride` bands.
  """

  _: dataclasses.KW_ONLY
  noise_multiplier: float
  l2_norm_clip: float
  mechanism: Optional[mechanism_lib.Mechanism] = None

  kind = 'allocation'
  is_local = False
  neighboring_relation = run_events.NeighboringRelation.ZERO_OUT

  def __post_init__(self):
    _checks.instance_of(
        protocol_lib.Protocol,
        'a protocol, such as tff_dp.allocation.RandomAllocation(num_slots)',
        protocol=self.protocol,
    )
    if not self.protocol.noise_is_central:
      raise _checks.PrivacyRefusedError(
          f'{self.protocol.name} is not defined with noise at the server',
          why=(
              'who wins a slot depends on who else came, so replacing one client'
              ' changes more than its own contribution'
              if self.protocol.has_one_winner
              else 'the guarantee of this protocol is about reports that are'
              ' randomized before they are seen'
          ),
          way_out='RandomAllocation or CyclicAllocation, which sum all check-ins'
          ' of a slot, or tff_dp.CheckInPlan with a local randomizer',
      )
    _checks.take_python_numbers(self)
    _checks.positive(noise_multiplier=self.noise_multiplier)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    self._check_protocol()
    if self.mechanism is None:
      noise = mechanism_lib.Independent(self.num_rounds)
      object.__setattr__(self, 'mechanism', noise)
    self._check_mechanism()
    self._check_bound()

  def _check_mechanism(self) -> None:
    """Raises `ArgumentError` unless the guarantee covers the server's noise."""
    mechanism, protocol = self.mechanism, self.protocol
    allowed = f'None or Independent({self.num_rounds})'
    kinds = mechanism_lib.Independent
    is_cyclic = isinstance(protocol, protocols.CyclicAllocation)
    if is_cyclic:
      kinds = mechanism_lib.Independent, toeplitz.Banded
      allowed += (
          f', or Banded noise for {self.num_rounds} rounds with at most'
          f' stride={protocol.stride} bands: with more of them, and with trees'
          ' and BLT noise, two reports of a client overlap, which no proof here'
          ' covers'
      )
    _checks.instance_of(kinds, allowed, mechanism=mechanism)
    is_too_wide = (
        isinstance(mechanism, toeplitz.Banded)
        and mechanism.num_bands > protocol.stride
    )
    if mechanism.num_rounds != self.num_rounds or is_too_wide:
      raise _checks.ArgumentError('mechanism', mechanism, allowed)

  @property
  def report_event(self) -> dp_accounting.GaussianDpEvent:
    """See base class. Stated for zero-out.

    The event has the noise multiplier of the plan, divided by the largest
    norm of a column of the mechanism's matrix C. A column of C is the effect of
    one report on all rounds.
    """
    if isinstance(self.mechanism, mechanism_lib.Independent):
      return dp_accounting.GaussianDpEvent(self.noise_multiplier)
    once = patterns.MinSeparationPattern(self.num_rounds, max_participations=1)
    norm = math.sqrt(self.mechanism.squared_sensitivity(once))
    multiplier = self.noise_multiplier
    if norm != 1.0:  # Rounded to the private side.
      multiplier /= norm * (1 + _ROUNDING)
    return dp_accounting.GaussianDpEvent(multiplier)

  @property
  def _start_noise(self) -> float:
    return self.noise_multiplier

  def _with_noise(self, noise: float) -> 'AllocationPlan':
    return dataclasses.replace(self, noise_multiplier=noise)

  def prefix_errors(self) -> tuple[float, float]:
    """Returns (rmse, largest error) of the noise on the sums so far.

    See `Mechanism.prefix_errors`.
    """
    return self.mechanism.prefix_errors(self.noise_multiplier)

  def aggregator(
      self, *, clients_per_round: int, insecure_seed: Optional[int] = None
  ):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the server.

    Args:
      clients_per_round: Public divisor of the sum of a slot.
      insecure_seed: Seed for tests only. Anybody who knows it can remove the
        noise.
    """
    # pylint: disable=g-import-not-at-top
    from tff_dp.aggregators import correlated_noise

    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism,
        noise_multiplier=self.noise_multiplier,
        l2_norm_clip=self.l2_norm_clip,
        clients_per_round=clients_per_round,
        insecure_seed=insecure_seed,
        plan=self,
    )

  def details(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> dict[str, Any]:
    """See base class."""
    found = super().details(delta=delta, num_rounds=num_rounds, **options)
    return found | statement.details(self)

  def _facts(self) -> dict[str, Any]:
    return super()._facts() | {
        'noise_multiplier': self.noise_multiplier,
        'l2_norm_clip': self.l2_norm_clip,
        'mechanism': self.mechanism.describe(),
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'AllocationPlan':
    facts['mechanism'] = catalogue.from_description(facts['mechanism'])
    protocol = protocol_lib.from_description(
        facts.pop('protocol'),
        (protocols.RandomAllocation, protocols.CyclicAllocation),
    )
    return cls(protocol, **facts)

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return super()._points(about) | statement.points(self)
