# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Parameters of matrix mechanisms: rounding, validation, and their horizon.

The run computes in float32, so parameters are rounded to float32 where a
mechanism is described. Sensitivities and variances are then those of the noise
that is really added, not of numbers close to its parameters.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns


def pattern_of(participation: Any) -> patterns.ParticipationPattern:
  """Returns the pattern of a schedule; a pattern is its own.

  Args:
    participation: A `participation.Schedule` or a `ParticipationPattern`.
  """
  pattern = getattr(participation, 'pattern', participation)
  if not isinstance(pattern, patterns.ParticipationPattern):
    raise TypeError(
        f'participation={participation!r} is not allowed: expected a schedule'
        ' of tff_dp.participation or a pattern of tff_dp.accounting.'
    )
  return pattern


def rounded(**argument: Sequence[float]) -> tuple[float, ...]:
  """Returns the numbers as floats that float32 holds; they must be finite."""
  ((name, values),) = argument.items()
  try:
    numbers = np.asarray(tuple(values), np.float64)
  except (TypeError, ValueError) as error:
    raise _checks.ArgumentError(name, values, 'a list of numbers') from error
  with np.errstate(over='ignore'):
    as_run = numbers.astype(np.float32)
  if numbers.ndim != 1 or not len(numbers) or not np.all(np.isfinite(as_run)):
    raise _checks.ArgumentError(
        name, values, 'one or more numbers that are finite in float32'
    )
  return tuple(as_run.astype(np.float64).tolist())


def rounded_down(**argument: Sequence[float]) -> tuple[float, ...]:
  """Like `rounded`, but never away from 0: sums stay below their bound."""
  ((_, values),) = argument.items()
  result = rounded(**argument)
  return tuple(
      float(np.nextafter(np.float32(after), np.float32(0)))
      if abs(after) > abs(before)
      else after
      for before, after in zip(values, result, strict=True)
  )


def check_leading_one(**argument: Sequence[float]) -> None:
  """Raises unless the first coefficient is 1."""
  ((name, values),) = argument.items()
  if values[0] != 1.0:
    raise _checks.ArgumentError(
        f'{name}[0]',
        values[0],
        '1, so that the noise multiplier is the standard deviation of a'
        " round's own draw",
    )


def checked_rounds(rounds: Iterable[int], *, num_rounds: int) -> list[int]:
  """Returns distinct rounds in 1..num_rounds, in order."""
  rounds = list(rounds)
  for round_index in rounds:
    _checks.integer_between(1, num_rounds, rounds=round_index)
  if len(set(rounds)) != len(rounds):
    raise _checks.ArgumentError('rounds', rounds, 'each round once')
  return sorted(int(round_index) for round_index in rounds)
