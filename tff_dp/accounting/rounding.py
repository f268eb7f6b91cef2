# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How numbers of a guarantee are printed and stored.

Printing may round, and rounding may not understate what was spent: everything
here rounds to the private side.
"""

import decimal
import math


def rounded_up(value: float, *, digits: int = 4) -> str:
  """Returns at least `value` >= 0, in plain notation of `digits` digits.

  Upper bound: reading the text back never gives less than `value`.
  """
  if value == math.inf:
    return 'inf'
  # The shortest text that reads back as the value: 0.1 stays 0.1000.
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


def to_json_number(value: float) -> float | str:
  """Returns the number, or 'inf': JSON knows no infinity."""
  return 'inf' if value == math.inf else value


def from_json_number(value: float | str) -> float:
  """Returns the number that `to_json_number` was given."""
  return math.inf if value == 'inf' else float(value)
