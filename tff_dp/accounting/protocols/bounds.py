# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a bound is, and what is known about one report and one noised sum.

Everything that amplification starts from follows from the type of the event:
the profile, the (epsilon0, delta0) that hold, and which rule for clones is
proven. A subclass of a local event from elsewhere is not known here, whatever
it inherits: its meaning is its own.
"""

from collections.abc import Callable
import dataclasses
import math

import dp_accounting
import numpy as np

from tff_dp.accounting.amplification import shuffling
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import protocol_events
from tff_dp.accounting.events import run_events

# Local epsilons at which the curve of a Gaussian randomizer is tried.
_SPLITS = np.geomspace(0.02, 20.0, 48)
# Covers the rounding of a square root and a division.
_ROUNDED_DOWN = 1 - 1e-15


@dataclasses.dataclass(frozen=True)
class Bound:
  """An upper bound on what `count` equal events cost.

  At least one of `part` and `epsilon` is there. Both may raise
  `NotApplicableError`.

  Attributes:
    name: One of `protocol_bounds.NAMES`.
    source: Paper and theorem, or page of proofs.
    is_derived: Whether it rests on an argument of this project.
    part: Returns what composes with other events.
    epsilon: Returns epsilon at delta if nothing else is released: no larger
      than by `part`, if that is there too.
  """

  name: str
  source: str
  is_derived: bool = False
  part: Callable[[], composition.Part] | None = None
  epsilon: Callable[[float], float] | None = None


@dataclasses.dataclass(frozen=True)
class LocalReport:
  """What is known about one local report, for replace-one.

  Attributes:
    profile: Its own.
    splits: Returns, for the delta of a whole, (epsilon0, delta0) that hold.
    is_pure: Whether there is one pair and its delta0 is 0.
    strong_clones: What tells the shuffle that its type has more clones than
      the exp(-epsilon0) of all; empty if that is not proven.
    together: Returns `count` reports as one part.
  """

  profile: privacy_profiles.Profile
  splits: Callable[[float], tuple[tuple[float, float], ...]]
  is_pure: bool
  strong_clones: tuple[tuple[str, float], ...] = ()
  together: Callable[[int], composition.Part] | None = None

  def part(self, count: int) -> composition.Part:
    """Returns so many reports, each seen on its own."""
    if self.together is not None:
      return self.together(count)
    return composition.Part(self.profile, count)

  @property
  def split(self) -> tuple[float, float]:
    """The one (epsilon0, delta0) of a randomizer that has one."""
    (pair,) = self.splits(0.5)
    return pair


def report(event: protocol_events.LocalRandomizerDpEvent) -> LocalReport:
  """Returns what is known about the report that an event describes."""
  kind = type(event)
  if kind is protocol_events.GaussianLocalDpEvent:
    return _gaussian_report(event.noise_multiplier)
  if kind is protocol_events.LocalDpEvent:
    return LocalReport(
        local_profiles.approximate(event.epsilon, event.delta),
        lambda _: ((event.epsilon, event.delta),),
        is_pure=event.delta == 0,
    )
  strong_clones = ()
  if kind is protocol_events.SphereLocalDpEvent:
    profile = local_profiles.pure(event.epsilon)
    strong_clones = (
        (
            'clone_probability',
            shuffling.strong_clone_probability(event.epsilon),
        ),
    )
  elif kind is protocol_events.LaplaceLocalDpEvent:
    profile = local_profiles.laplace(event.epsilon)
  elif kind is protocol_events.RandomizedResponseLocalDpEvent:
    profile = local_profiles.randomized_response(
        event.epsilon, event.num_categories
    )
    strong_clones = (('num_categories', event.num_categories),)
  else:
    raise TypeError(
        f'event={event!r} is not allowed: expected one of the local events of'
        ' tff_dp.accounting.protocol_events.'
    )
  return LocalReport(
      profile, lambda _: ((event.epsilon, 0.0),), True, strong_clones
  )


def none(report: LocalReport, count: int) -> Bound:
  """Returns what holds without the protocol: reports, each seen alone."""
  return Bound(
      'none', 'the local randomizer alone', part=lambda: report.part(count)
  )


def nobody(name: str, source: str, count: int) -> Bound:
  """Returns the bound on a protocol in which nobody takes part."""
  part = lambda: composition.Part(privacy_profiles.nothing, count)
  return Bound(name, source, part=part)

def is_noised_sum(event: dp_accounting.DpEvent) -> bool:
  """Whether the event is a Gaussian or Laplace mechanism of dp_accounting."""
  return isinstance(
      event, (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)
  )


def noised_sum(
    event: dp_accounting.GaussianDpEvent | dp_accounting.LaplaceDpEvent,
    count: int,
    relation: run_events.NeighboringRelation,
) -> composition.Part:
  """Returns `count` noised sums, whose event is stated for zero-out.

  Under replace-one a contribution moves by up to twice its bound. That is
  applied here: dp_accounting 0.4 does not, 0.6 does for some events.
  """
  multiplier = float(event.noise_multiplier)
  if multiplier == math.inf:
    return composition.Part(privacy_profiles.nothing)
  if multiplier == 0:
    return composition.Part(privacy_profiles.everything)
  sigma = run_events.effective_sigma(
      noise_multiplier=multiplier,
      squared_sensitivity=1.0,
      neighboring_relation=relation,
  )
  if isinstance(event, dp_accounting.LaplaceDpEvent):
    return composition.Part(local_profiles.laplace(1 / sigma), count)
  return one_gaussian(sigma, count)


def one_gaussian(sigma: float, count: int) -> composition.Part:
  """Returns adaptively chosen Gaussian mechanisms as the one that they are.

  Exact: arXiv:1905.02383, corollary 3.3.

  Args:
    sigma: Noise over the distance of neighbours, of one.
    count: How many.
  """
  sigma = sigma / math.sqrt(count) * _ROUNDED_DOWN
  return composition.Part(gaussian.profile(sigma), sigma=sigma)


def _gaussian_report(noise_multiplier: float) -> LocalReport:
  """Returns a report with Gaussian noise, which has a curve of splits."""
  profile = local_profiles.gaussian(noise_multiplier)

  def splits(delta):
    local_deltas = profile(_SPLITS)
    return tuple(
        (float(local_epsilon), float(local_delta))
        for local_epsilon, local_delta in zip(
            _SPLITS, local_deltas, strict=True
        )
        if local_delta < delta
    )

  together = lambda count: one_gaussian(noise_multiplier / 2, count)
  return LocalReport(profile, splits, False, together=together)
