# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The progress of a sweep, shown in the same way for all sweeps."""

import sys
import time


class Reporter:
  """Prints a line for every run on stderr, with the time that is left."""

  def __init__(
      self, num_runs: int, *, is_quiet: bool, work: float | None = None
  ):
    """Starts the clock.

    Args:
      num_runs: Number of runs, including those that were done before.
      is_quiet: Whether to print nothing.
      work: Work of all runs together, if they differ in length. `None` if each
        run counts as 1.
    """
    self._num_runs, self._is_quiet = num_runs, is_quiet
    self._num_shown = 0
    self._left = num_runs if work is None else work
    self._made = 0.0
    self._start = time.monotonic()

  def show(
      self, what: str, *, was_done: bool, name: str = '', work: float = 1
  ) -> None:
    """Prints that a run has ended.

    Args:
      what: Description of the run and its result.
      was_done: Whether the run was done before. Such runs do not count for the
        pace.
      name: Name of the sweep, if there are several.
      work: Work of this run.
    """
    self._num_shown += 1
    self._left -= work
    self._made += 0 if was_done else work
    if self._is_quiet:
      return
    left = ''
    if self._made:
      pace = (time.monotonic() - self._start) / self._made
      left = f', about {_duration(pace * self._left)} left'
    print(
        f'{name}{", " if name else ""}run {self._num_shown} of'
        f' {self._num_runs}:'
        f' {what}{" (done before)" if was_done else ""}{left}',
        file=sys.stderr,
        flush=True,
    )


def _duration(seconds: float) -> str:
  return f'{seconds:.0f} s' if seconds < 90 else f'{seconds / 60:.0f} min'
