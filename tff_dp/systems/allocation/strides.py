# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Choosing the stride: plans of cyclic allocation at equal privacy.

A long stride has more bands, whose noise cancels better, but shorter windows,
which hide a client less. At stride 1 the noise is independent. If a window has
one slot, nothing is amplified. The best stride is in between, and is longer for
larger epsilons.
"""

import bisect
from collections.abc import Callable, Sequence
import dataclasses
import functools
import math
from typing import NamedTuple, Optional

from tff_dp import _checks
from tff_dp.accounting.events import run_events
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import choice
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.systems.allocation import plan as plan_lib
from tff_dp.systems.allocation import protocols

# Strides are first tried at ratios of about the square of this, then at this
# ratio.
_RATIO = 1.26
# Slots of a window times epsilon at the least error, in runs of 250 to 2048
# rounds. The search starts there.
_SLOTS_TIMES_EPSILON = 28


class Candidate(NamedTuple):
  """A plan that meets a budget, with the error of its noise on the sums.

  Attributes:
    plan: Plan with the least noise, up to a part in 10^4.
    rmse: Square root of the mean over rounds of the variance of the noise on
      the prefix sum of one coordinate, in clip norms.
    max_error: Square root of the largest of these variances.
  """

  plan: plan_lib.AllocationPlan
  rmse: float
  max_error: float

  @property
  def stride(self) -> int:
    """The stride p. The server keeps p - 1 model copies of noise."""
    return self.plan.protocol.stride

  def row(self, name: str) -> choice.Row:
    """Returns the candidate as a row of `mechanisms.compare`.

    Args:
      name: Name of the row.
    """
    protocol = self.plan.protocol
    pattern = patterns.MinSeparationPattern(
        protocol.num_rounds,
        min_index_gap=self.stride,
        max_participations=protocol.num_windows,
    )
    at_sigma_1 = choice.measured(name, self.plan.mechanism, pattern)
    return dataclasses.replace(
        at_sigma_1, rmse=self.rmse, max_error=self.max_error
    )

  def error(self, kind: str) -> float:
    """Returns `max_error` for the kind 'max', `rmse` for 'mean'."""
    return self.max_error if kind == 'max' else self.rmse


def candidate(
    num_rounds: int,
    num_windows: int,
    stride: int,
    *,
    epsilon: float,
    delta: float,
    l2_norm_clip: float = 1.0,
    check_in_probability: float = 1.0,
    error: str = 'mean',
    neighboring_relation: Optional[run_events.NeighboringRelation] = None,
) -> Candidate:
  """Returns the candidate with this stride and the least noise in the budget.

  Args:
    num_rounds: Number of rounds T.
    num_windows: Number of windows E, the most participations of a client.
    stride: Stride p, also the number of bands.
    epsilon: Epsilon of the whole run.
    delta: Target delta, in (0, 1).
    l2_norm_clip: Bound on the L2 norm of one update.
    check_in_probability: Probability that a client takes part in a window.
    error: 'mean' or 'max' over rounds, for the noise on the prefix sum.
    neighboring_relation: Relation of epsilon, `None` for zero-out.

  Raises:
    ArgumentError: If a value is out of range, or if even the largest noise that
      is tried costs more than `epsilon`.
  """
  _checks.one_of(('mean', 'max'), error=error)
  protocol = protocols.CyclicAllocation(
      num_rounds, num_windows, stride, check_in_probability
  )
  pattern = patterns.MinSeparationPattern(
      num_rounds, min_index_gap=stride, max_participations=num_windows
  )
  # Use as many bands as fit. Their best coefficients do not depend on B and E.
  mechanism = toeplitz.Banded.optimized(pattern, stride, error=error)
  plan = plan_lib.AllocationPlan(
      protocol,
      noise_multiplier=1.0,
      l2_norm_clip=l2_norm_clip,
      mechanism=mechanism,
  ).calibrated(
      epsilon=epsilon, delta=delta, neighboring_relation=neighboring_relation
  )
  return Candidate(plan, *plan.prefix_errors())


def best(
    num_rounds: int,
    num_windows: int,
    *,
    epsilon: float,
    max_stride: Optional[int] = None,
    **options,
) -> tuple[Candidate, ...]:
  """Returns the candidates that were tried, the least error first.

  The function tries stride 1, the longest stride, and the strides on a descent
  from a guess. This choice is a heuristic. Every plan meets (epsilon, delta).

  Args:
    num_rounds: Number of rounds T.
    num_windows: Number of windows E, the most participations of a client.
    epsilon: Epsilon of the whole run.
    max_stride: Longest stride to try. With stride p the server keeps p - 1
      model copies of noise.
    **options: Options of `candidate`.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.integer_between(1, num_rounds, num_windows=num_windows)
  longest = num_rounds // num_windows
  if max_stride is not None:
    _checks.integer_at_least(1, max_stride=max_stride)
    longest = min(longest, max_stride)
  kind = options.get('error', 'mean')

  @functools.cache
  def of(stride: int) -> Candidate:
    return candidate(
        num_rounds, num_windows, stride, epsilon=epsilon, **options
    )

  error = lambda stride: of(stride).error(kind)
  strides = _ladder(num_rounds, num_windows, longest)
  guess = num_rounds / num_windows * epsilon / _SLOTS_TIMES_EPSILON
  tried = {strides[0], strides[-1], *_downhill(error, strides, guess)}
  return tuple(sorted(map(of, tried), key=lambda each: each.error(kind)))


def rows(
    *,
    num_rounds: int,
    max_participations: int,
    epsilon: float,
    delta: float,
    error: str,
) -> list[choice.Row]:
  """Returns the rows of random and of cyclic allocation in `tff-dp compare`.

  Args:
    num_rounds: Number of rounds T.
    max_participations: Most participations of a client.
    epsilon: Epsilon of the whole run.
    delta: Target delta, in (0, 1).
    error: 'mean' or 'max' over rounds, for the noise on the prefix sum.
  """
  tried = best(
      num_rounds,
      max_participations,
      epsilon=epsilon,
      delta=delta,
      error=error,
  )
  (plain,) = (each for each in tried if each.stride == 1)
  return [plain.row('random-allocation'), tried[0].row('cyclic-allocation')]


def _ladder(num_rounds: int, num_windows: int, longest: int) -> list[int]:
  """Returns strides from 1 to the longest, in ratios of about `_RATIO`.

  Among strides with equally many slots per window, only the longest is kept. It
  hides a client as well as the shorter ones do, and has more bands.
  """
  steps = max(1, round(math.log(longest, _RATIO)))
  strides = {round(longest ** (step / steps)) for step in range(steps + 1)}
  slots = {num_rounds // (num_windows * stride) for stride in strides}
  return sorted({min(longest, num_rounds // (num_windows * b)) for b in slots})


def _downhill(
    error: Callable[[int], float], strides: Sequence[int], guess: float
) -> set[int]:
  """Returns the strides at which errors were compared to find a low one.

  The descent takes two steps of the ladder at a time, then one. It finds the
  least error if the error falls and then rises. In any case it ends at a stride
  whose neighbours on the ladder have no smaller error.
  """
  place = bisect.bisect_left(strides[:-1], guess)
  tried = set()
  for reach in (2, 1):
    best_place = None
    while place != best_place:
      best_place = place
      near = (place, max(place - reach, 0), min(place + reach, len(strides) - 1))
      tried |= {strides[each] for each in near}
      place = min(near, key=lambda each: error(strides[each]))
  return tried
