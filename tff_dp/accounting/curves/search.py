# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches that end on the private side.

The condition of a search holds at every finite result: the search tried that
number, or the caller vouched for it. A condition that rounding makes noisy, or
that is not monotone after all, can therefore cost tightness but never privacy.
"""

from collections.abc import Callable
import functools
import math
import sys
from typing import Any, TypeVar

from scipy import optimize

Number = TypeVar('Number', int, float)

# The solver sees an infinite ratio of cost to budget as this, and 0 as its
# inverse.
_LARGEST_RATIO = 1e20


def nearest(
    holds: Callable[[Number], bool],
    fails: Number,
    known: Number,
    *,
    tolerance: float = 0.0,
    geometric: bool = False,
) -> Number:
  """Returns the number between two ends at which a condition starts to hold.

  Bisection. Neither end is tried. Between two ints only ints are tried.

  Args:
    holds: Condition, true near `known` and false near `fails`.
    fails: End at which the condition fails or is unknown, below or above
      `known`. Never the result.
    known: End at which the condition holds. It is the result if the condition
      holds nowhere else.
    tolerance: Largest distance of the result from the last number that failed,
      as a share of the larger of the two. With 0, the two are neighbouring
      floats or ints.
    geometric: Whether to try the geometric mean of two positive floats instead
      of the arithmetic mean, for ends that are powers of ten apart. The search
      may then stop a few units in the last place early.
  """
  middle: Any
  while abs(known - fails) > tolerance * max(abs(known), abs(fails)):
    if geometric:
      middle = math.sqrt(fails) * math.sqrt(known)
    elif isinstance(known, int):
      middle = (fails + known) // 2
    else:
      middle = 0.5 * (fails + known)
    if not min(fails, known) < middle < max(fails, known):
      break
    if holds(middle):
      known = middle
    else:
      fails = middle
  return known


def least(
    holds: Callable[[Number], bool],
    start: Number = 1.0,  # type: ignore[assignment]
    *,
    most: float = sys.float_info.max,
    tolerance: float = 0.0,
) -> Number | float:
  """Returns the smallest positive number for which a condition holds.

  Doubles `start` until the condition holds, or halves it while it does, then
  bisects.

  Args:
    holds: Condition, false below some number and true from there on.
    start: First number to try. If it is an int, only ints from 1 on are tried.
    most: Largest number to try.
    tolerance: Tolerance as in `nearest`. From 1/2 on, the result is within a
      factor of 2.

  Returns:
    The number. Infinity if the condition holds for no number tried. If it holds
    for all of them, 1 for ints and a tiny float for floats.
  """
  half = lambda number: number // 2 if isinstance(number, int) else number / 2
  smallest = 1 if isinstance(start, int) else sys.float_info.min
  high = start
  while not holds(high):
    high *= 2
    if high > most:
      return math.inf
  while high <= start and high > smallest and holds(half(high)):
    high = half(high)
  return nearest(holds, half(high), high, tolerance=tolerance)


def least_within(
    budget: float,
    cost: Callable[[float], float],
    start: float = 1.0,
    *,
    most: float = sys.float_info.max,
    tolerance: float,
) -> float:
  """Returns the smallest positive float whose cost is within a budget.

  Like `least`, but with SciPy's `brentq` on logarithms instead of bisection.
  The result is the smallest float that was tried and has a cost within the
  budget, or infinity if there is none. This search is meant for smooth costs
  that take long to compute. Other costs, even infinite ones, only take more
  steps.

  Args:
    budget: Largest cost, above 0.
    cost: Non-increasing function, at least 0, may be infinite.
    start: First number to try.
    most: Largest number to try, as in `least`.
    tolerance: Largest distance of the result from a float whose cost is above
      the budget, as a share of the result. Below 1.
  """
  cost = functools.cache(cost)
  is_within = lambda number: cost(number) <= budget
  high = least(is_within, start, most=most, tolerance=0.5)
  if high == math.inf or is_within(high / 2):
    return high
  found = high

  def log_excess(log_number):
    nonlocal found
    number = high * math.exp(log_number)
    if is_within(number):
      found = min(found, number)
    ratio = cost(number) / budget
    return math.log(min(max(ratio, 1 / _LARGEST_RATIO), _LARGEST_RATIO))

  # The solver ends with two numbers, one within the budget and one above, no
  # farther apart than the tolerance.
  optimize.brentq(
      log_excess, -math.log(2), 0.0, xtol=math.log1p(tolerance), disp=False
  )
  return found
