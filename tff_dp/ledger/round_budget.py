# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The budget of a run, round by round, whatever its epsilon follows from.

Before the clients of round t are selected, `check(t)` compares the epsilon of a
run that stops after round t with the budget. There is no tolerance. The answer
depends on public facts only, so stopping by it reveals nothing about the data.

`record(t)` marks the round as spent. The caller stores the returned record
durably *before* the round's result is released: a crash in between then counts
as spent, which errs on the private side. Doing a recorded round again is free
as long as it uses the same clients and the same noise keys, because the same
value is released; anything else would be a new round.
"""

import abc
import functools
import math

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events


class RoundBudget(abc.ABC):
  """Counts recorded rounds, and refuses the one beyond the budget.

  Every epsilon is an upper bound for one client's whole participation, under
  `neighboring_relation`.
  """

  def __init__(
      self,
      *,
      delta: float,
      epsilon: float | None,
      neighboring_relation: run_events.NeighboringRelation,
  ):
    """Makes the empty budget of a run.

    Args:
      delta: In the open interval (0, 1).
      epsilon: The budget, `None` for no limit.
      neighboring_relation: The relation under which the budget holds.
    """
    _checks.delta(delta=delta)
    if epsilon is not None:
      _checks.positive(epsilon=epsilon)
    self._delta = float(delta)
    self._epsilon = None if epsilon is None else float(epsilon)
    self._relation = run_events.NeighboringRelation(neighboring_relation)
    self._rounds_recorded = 0

  @property
  @abc.abstractmethod
  def num_rounds(self) -> int:
    """Planned rounds T."""

  @property
  @abc.abstractmethod
  def basis(self) -> str:
    """What every epsilon here rests on, as the end of a sentence."""

  @abc.abstractmethod
  def epsilon_after(self, round_index: int) -> float:
    """Returns what a run that stops after a round has spent.

    Upper bound; 0 for round 0, infinity without noise.

    Args:
      round_index: 1-based, or 0 for a run that never began.
    """

  @abc.abstractmethod
  def _way_out(self) -> str:
    """Returns how all rounds would fit the budget, as a sentence."""

  @abc.abstractmethod
  def _noise(self, round_index: int) -> dict[str, object]:
    """Returns what the record of a round says of its noise, plain types."""

  @property
  def epsilon(self) -> float | None:
    """The budget, `None` for no limit."""
    return self._epsilon

  @property
  def delta(self) -> float:
    """The delta of every epsilon here."""
    return self._delta

  @property
  def neighboring_relation(self) -> run_events.NeighboringRelation:
    """The relation of every epsilon here."""
    return self._relation

  @property
  def rounds_recorded(self) -> int:
    """How many rounds count as spent."""
    return self._rounds_recorded

  def rounds_left(self, round_index: int) -> int:
    """Returns how many rounds after `round_index` plan and budget allow."""
    _checks.integer_between(0, self.num_rounds, round_index=round_index)
    return max(0, self._rounds_allowed - round_index)

  @functools.cached_property
  def _rounds_allowed(self) -> int:
    """How many rounds plan and budget allow from the first one on."""
    last, beyond = 0, self.num_rounds + 1
    # Mostly all of the plan fits.
    middle = self.num_rounds
    widths, answers = [], [None]
    # Invariant: `last` is allowed (or is 0), `beyond` is not.
    while beyond - last > 1:
      widths.append(beyond - last)
      answers.append(self._is_allowed(middle))
      if answers[-1]:
        last = middle
      else:
        beyond = middle
      is_slow = len(widths) > 2 and 2 * (beyond - last) > widths[-2]
      middle = (last + beyond) // 2
      if beyond - last > 1 and not is_slow:
        # Guesses come from one side: the second time, go past the guess.
        steps = 3 if answers[-1] == answers[-2] else 1
        middle = self._between(last, beyond, steps if answers[-1] else -steps)
    return last

  def _between(self, last: int, beyond: int, steps: int) -> int:
    """Returns about where the budget ends, if epsilon is a power of rounds.

    Args:
      last: A round, or 0.
      beyond: A later one.
      steps: How often to go as far from `last`, or if negative from `beyond`.
    """
    most = self.epsilon_after(beyond)
    least = self.epsilon_after(last)
    if not (0 <= least < most < math.inf and self._epsilon > least):
      return (last + beyond) // 2
    power = 0.5
    if last > 0 and least > 0:
      power = math.log(most / least) / math.log(beyond / last)
    guess = beyond * (self._epsilon / most) ** (1 / power)
    start = last if steps > 0 else beyond
    guess = round(start + abs(steps) * (guess - start))
    return min(max(guess, last + 1), beyond - 1)

  def check(self, round_index: int) -> None:
    """Raises `PrivacyRefusedError` if the round would break plan or budget."""
    _checks.integer_at_least(1, round_index=round_index)
    if round_index > self.num_rounds:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} is beyond the plan of {self.num_rounds} rounds',
          why='the noise was chosen for the planned number of rounds',
          way_out='plan the run with more rounds from the start',
      )
    if self._is_allowed(round_index):
      return
    spent = self.epsilon_after(round_index)
    raise _checks.PrivacyRefusedError(
        f'round {round_index} would spend epsilon'
        f' {rounding.rounded_up(spent)} > {self._epsilon} (delta'
        f' {self._delta:g}); {round_index - 1} of {self.num_rounds} rounds'
        f' done. {self._way_out()}',
        why='the epsilon of all released models together must stay within the'
        f' budget ({self._relation.value} adjacency, {self.basis})',
        way_out=self._way_out(),
    )

  def record(self, round_index: int) -> dict[str, object]:
    """Counts a round as spent and returns what to store before its release.

    Args:
      round_index: The round after the last recorded one; or that one again,
        with the same clients and noise keys, after a crash.

    Returns:
      The round and what the run has spent if it stops there, as plain types.

    Raises:
      PrivacyRefusedError: If the round breaks the budget or the order.
    """
    self.check(round_index)
    if round_index not in (self._rounds_recorded, self._rounds_recorded + 1):
      raise _checks.PrivacyRefusedError(
          f'round {round_index} cannot follow the {self._rounds_recorded}'
          ' recorded rounds',
          why='rounds are spent in order, and going back behind a release'
          ' would spend again',
          way_out=f'go on with round {self._rounds_recorded + 1}',
      )
    self._rounds_recorded = int(round_index)
    return {
        'round': self._rounds_recorded,
        'epsilon': rounding.to_json_number(self.epsilon_after(round_index)),
        'delta': self._delta,
        'neighboring_relation': self._relation.value,
        'unit': 'client',
        **self._noise(round_index),
    }

  def _is_allowed(self, round_index: int) -> bool:
    if self._epsilon is None:
      return True
    return self.epsilon_after(round_index) <= self._epsilon
