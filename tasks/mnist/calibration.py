# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Numbers of a task that are searched for, so that its epsilon is as asked."""

from collections.abc import Callable
import json
import math
import pathlib
from typing import Optional

from tff_dp import _checks

# A calibrated epsilon is within this share below the one that was asked for.
_TOLERANCE = 2e-3


class Calibrations:
  """Calibrated numbers, kept in a file: some take a minute to find."""

  def __init__(self, path: Optional[pathlib.Path] = None):
    """Initializes the object.

    Args:
      path: Of the file; `None` to keep nothing.
    """
    self._path = path
    self._found = {}
    if path is not None and path.exists():
      self._found = json.loads(path.read_text())

  def find(self, key: str, search: Callable[[], float]) -> float:
    """Returns the number that belongs to a key, searched for once."""
    if key not in self._found:
      self._found[key] = search()
      if self._path is not None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix('.tmp')
        temporary.write_text(json.dumps(self._found, indent=2) + '\n')
        temporary.replace(self._path)
    return self._found[key]


def largest(
    epsilon: Callable[[float], float], target: float, *, low: float, high: float
) -> float:
  """Returns the largest number in a range whose epsilon is at most a target.

  Heuristic in how close it gets (to 0.2 % of the target, where epsilon is
  continuous); never above the target.

  Args:
    epsilon: Increasing.
    target: Above 0.
    low: Least number that is tried.
    high: Largest one.

  Raises:
    ArgumentError: If the least one costs more.
  """
  excess = lambda value: math.log(max(epsilon(value), 1e-300) / target)
  if excess(high) <= 0:
    return high
  below = excess(low)
  if below > 0:
    raise _checks.ArgumentError(
        'epsilon', target, f'at least {epsilon(low):.4g} for these rows'
    )
  left, right = math.log(low), math.log(high)
  above = excess(high)
  # Regula falsi, with bisection where it is stuck or a value is infinite.
  for trial in range(60):
    if below > -_TOLERANCE:
      break
    middle = (left + right) / 2
    if math.isfinite(above) and below > -50 and trial % 3:
      middle = left + (right - left) * below / (below - above)
    # Not at the ends: aims a little below the target.
    middle = min(max(middle, left), right)
    found = excess(math.exp(middle))
    if found <= 0:
      left, below = middle, found
    else:
      right, above = middle, found
    if right - left < 1e-6:
      break
  return math.exp(left)
