# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans whose epsilon takes long to compute, so few rounds have one."""

import abc
import math
from typing import Any, Optional

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting.curves import search
from tff_dp.accounting.events import run_events
from tff_dp.plans import base

# For `calibrated`: the largest noise that is tried (a multiplier, or the
# inverse of a local epsilon), and the relative precision.
_MOST_NOISE = 1e9
_TOLERANCE = 1e-4


@_calls.helpful
class CoarsePlan(base.Plan):
  """A plan that accounts for a stopped run as if it stopped a little later.

  Computing epsilon for every one of thousands of rounds would take longer than
  the rounds. The releases of a shorter run are part of the releases of a longer
  run, so epsilon of the later stop is an upper bound.
  """

  curve_has_rounds_done = False

  @property
  @abc.abstractmethod
  def _start_noise(self) -> float:
    """Amount of noise at which `calibrated` begins to search."""

  @abc.abstractmethod
  def _with_noise(self, noise: float) -> 'CoarsePlan':
    """Returns the plan with another amount of noise.

    Args:
      noise: A noise multiplier, or the inverse of a local epsilon.
    """

  @abc.abstractmethod
  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """See base class. The default relation is the relation of the plan."""

  def calibrated(
      self,
      *,
      epsilon: float,
      delta: float,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ):
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`. If epsilon decreases as the noise grows, the noise exceeds the
    least noise by at most a part in 10^4.

    Args:
      epsilon: Target epsilon, above 0.
      delta: Target delta, above 0 and at most 0.1.
      neighboring_relation: Relation of epsilon, `None` for the relation of the
        plan.

    Raises:
      ArgumentError: If even the largest noise that is tried costs more than
        `epsilon`.
    """
    _checks.positive(epsilon=epsilon)
    _checks.delta(delta=delta)
    noise = search.least_within(
        epsilon,
        lambda noise: self._with_noise(noise).epsilon(
            delta=delta, neighboring_relation=neighboring_relation
        ),
        self._start_noise,
        most=_MOST_NOISE,
        tolerance=_TOLERANCE,
    )
    if noise == math.inf:
      raise _checks.ArgumentError(
          'epsilon',
          epsilon,
          'a larger epsilon: the largest noise that is tried costs more',
      )
    return self._with_noise(noise)

  def rounds_accounted(self, num_rounds: Optional[int]) -> int:
    """Returns the first round, `num_rounds` or later, that has an epsilon.

    Args:
      num_rounds: Number of rounds that have begun, `None` for all.
    """
    return base.rounds_accounted(
        self._stops_at(num_rounds), planned=self.num_rounds
    )

  def epsilon_after(
      self, num_rounds: Optional[int], *, delta: float, **options: Any
  ) -> float:
    """Returns epsilon of a stopped run, at most the epsilon of the whole run.

    Args:
      num_rounds: Number of rounds, at least 1, see `rounds_accounted`. `None`
        for all.
      delta: Target delta, in (0, 1).
      **options: Options of `epsilon`.
    """
    accounted = self.rounds_accounted(num_rounds)
    whole = self.epsilon(delta=delta, **options)
    if accounted == self.num_rounds:
      return whole
    return min(
        whole, self.epsilon(delta=delta, num_rounds=accounted, **options)
    )

  def _stops_at(self, num_rounds: Optional[int]) -> int:
    """Returns the checked number of rounds of a run that stops."""
    if num_rounds is None:
      return self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return int(num_rounds)
