# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How the numbers of a guarantee are printed and stored.

Nothing here rounds downward, so a printed epsilon or delta is never too small.
"""

import decimal
import math


def rounded_up(value: float, *, digits: int = 4) -> str:
  """Returns `value` as text with `digits` significant digits, rounded up.

  Upper bound: reading the text back never gives less than `value`. The text has
  an exponent below 1e-5 and from 1e6 on. 0 gives '0', and infinity gives 'inf'.

  Args:
    value: Number to print, at least 0.
    digits: Number of significant digits.
  """
  if value == math.inf:
    return 'inf'
  # The shortest text that reads back as the value, so that 0.1 prints as
  # 0.1000.
  shortest = decimal.Decimal(repr(float(value)))
  if shortest == 0:
    return '0'
  last_digit = shortest.adjusted() - digits + 1
  rounded = shortest.quantize(
      decimal.Decimal((0, (1,), last_digit)), rounding=decimal.ROUND_CEILING
  )
  if -5 <= rounded.adjusted() < 6:
    return f'{rounded:f}'
  return f'{rounded:.{digits - 1}e}'


def short(value: float) -> str:
  """Returns a chosen epsilon or delta as text of at most six digits.

  As format code 'g', but rounded up: reading the text back never gives less
  than `value`.

  Args:
    value: Number to print, at least 0.
  """
  return f'{float(rounded_up(value, digits=6)):g}'


def to_json_number(value: float) -> float | str:
  """Returns the number, or 'inf' for infinity, which JSON does not have."""
  return 'inf' if value == math.inf else value


def from_json_number(value: float | str) -> float:
  """Returns the number that was passed to `to_json_number`."""
  return math.inf if value == 'inf' else float(value)
