# Copyright 2026, The tff_dp Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
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
