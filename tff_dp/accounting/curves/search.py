# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches that end on the private side.

Every result but infinity has been tried and was found to hold, or is the end
that the caller knows to. So a condition that flickers, as rounding makes it, or
that is not monotone after all, costs tightness and never privacy.
"""

from collections.abc import Callable
import functools
import math
import sys
from typing import TypeVar

from scipy import optimize

Number = TypeVar('Number', int, float)

# What an infinite cost over the budget is to the solver, and 0 its inverse.
_LARGEST_RATIO = 1e20


def nearest(
    holds: Callable[[Number], bool],
    fails: Number,
    known: Number,
    *,
    tolerance: float = 0.0,
    geometric: bool = False,
) -> Number:
  """Returns where a condition begins to hold, between two numbers.

  Bisection. Neither end is tried. Between two ints only ints are.

  Args:
    holds: True on the side of `known`, false on that of `fails`.
    fails: Where it does not hold, or where nobody asks; below or above `known`.
      Never the result.
    known: Where it is known to hold: the result, if it does nowhere else.
    tolerance: How far from the last number that fails the result may be, in
      shares of the larger of the two; 0 for neighbouring floats or ints.
    geometric: Whether to halve the ratio of two positive floats, not their
      difference: for ends that are powers of ten apart. It may stop a few units
      in the last place early.
  """
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
    start: Number = 1.0,
    *,
    most: float = sys.float_info.max,
    tolerance: float = 0.0,
) -> Number | float:
  """Returns the least positive number for which a condition holds.

  Doubles `start` until it holds, or halves it while it does, then bisects.

  Args:
    holds: False below some number, and true from there on.
    start: What is tried first. Of an int follow ints, from 1 on.
    most: No float or int above is tried.
    tolerance: As in `nearest`; from 1/2 on it ends within a factor of 2.

  Returns:
    The number. Infinity if nothing that was tried holds; 1, or a float next to
    nothing, if everything does.
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
  """Returns the least positive float whose cost is within a budget.

  As `least`, with SciPy's `brentq` in logarithms for bisection, and in the end
  the least of all that were tried and are within the budget. For smooth costs
  that take long; others, infinite ones among them, only take more steps.

  Args:
    budget: Above 0.
    cost: Never increasing, at least 0, may be infinite.
    start: What is tried first.
    most: As in `least`.
    tolerance: How far from a float above the budget the result may be, in
      shares of it; below 1.
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

  # It ends with two numbers, within and above, that are no farther apart.
  optimize.brentq(
      log_excess, -math.log(2), 0.0, xtol=math.log1p(tolerance), disp=False
  )
  return found
