# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Measured participation: the sensitivity of what clients really did.

A participation pattern is a promise about every client, made before the run.
The rounds in which the clients then took part are usually milder than the worst
case that it allows, and the squared sensitivity of that one realised pattern,

    S2 = max over clients of the response to the rounds the client was in,

can be computed exactly for every mechanism. What the number is worth depends on
how the rounds came about:

* If who takes part was independent of the data (a schedule written down before
  the run, or random numbers that nobody's data influenced), the realised
  pattern is a public constant and the number is a guarantee for this run.
* If not (clients chosen by their loss, or dropping out because of what they
  hold), the realised pattern is itself an output that depends on data. Then the
  number describes, and guarantees nothing; the guarantee is that of the pattern
  that was enforced.

Only the operator knows which, so it is declared. And nothing here is a
`ParticipationPattern`: a plan, which is made before the run, cannot be built on
what happened in it.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses

import numpy as np

from tff_dp import _checks
from tff_dp.ledger import participation_ledger as ledger_lib


@dataclasses.dataclass(frozen=True)
class MeasuredParticipation:
  """Which sets of rounds occurred; as sensitive as the ledger.

  Attributes:
    num_rounds: Rounds of the run so far.
    sets_of_rounds: The distinct sets, each in order, counted from 1.
    num_clients: Clients that took part at least once.
    is_data_independent: Declares that who took part in which round was
      independent of all clients' data and of everything computed from it. If in
      doubt, it was not.
  """

  num_rounds: int
  sets_of_rounds: tuple[tuple[int, ...], ...]
  num_clients: int
  is_data_independent: bool

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    # No default and no truthy strings: this decides what may be claimed.
    if not isinstance(self.is_data_independent, bool):
      raise _checks.ArgumentError(
          'is_data_independent', self.is_data_independent, 'True or False'
      )
    sets = tuple(tuple(rounds) for rounds in self.sets_of_rounds)
    for rounds in sets:
      for round_index in rounds:
        _checks.integer_between(1, self.num_rounds, rounds=round_index)
      if list(rounds) != sorted(set(rounds)):
        raise _checks.ArgumentError(
            'sets_of_rounds', rounds, 'each round once, in order'
        )
    object.__setattr__(self, 'sets_of_rounds', sets)
    _checks.integer_at_least(len(set(sets)), num_clients=self.num_clients)

  @classmethod
  def from_matrix(
      cls, matrix, *, is_data_independent: bool
  ) -> 'MeasuredParticipation':
    """Returns the sets of a 0/1 matrix of shape [clients, rounds].

    Args:
      matrix: Entry [i, t - 1] says whether client i took part in round t, as
        booleans or as 0 and 1. A client may count once a round, so nothing else
        is allowed.
      is_data_independent: See above.
    """
    matrix = np.asarray(matrix)
    if matrix.ndim != 2 or not np.all((matrix == 0) | (matrix == 1)):
      raise _checks.ArgumentError(
          'matrix',
          f'an array of shape {matrix.shape}',
          'zeros and ones of shape [clients, rounds]',
      )
    return cls._from_clients(
        (np.flatnonzero(row) + 1 for row in matrix),
        num_rounds=matrix.shape[1],
        is_data_independent=is_data_independent,
    )

  @classmethod
  def from_ledger(
      cls, ledger: ledger_lib.ParticipationLedger, *, is_data_independent: bool
  ) -> 'MeasuredParticipation':
    """Returns the sets that a ledger has committed.

    Args:
      ledger: Of a run with at least one round.
      is_data_independent: See above.
    """
    return cls._from_clients(
        ledger.rounds_by_client(),
        num_rounds=ledger.num_rounds,
        is_data_independent=is_data_independent,
    )

  @classmethod
  def _from_clients(
      cls, clients: Iterable[np.ndarray], *, num_rounds, is_data_independent
  ) -> 'MeasuredParticipation':
    sets = [tuple(rounds.tolist()) for rounds in clients if len(rounds)]
    return cls(
        num_rounds=num_rounds,
        sets_of_rounds=tuple(sorted(set(sets))),
        num_clients=len(sets),
        is_data_independent=is_data_independent,
    )


@dataclasses.dataclass(frozen=True)
class MeasuredSensitivity:
  """S2 of a realised pattern; as sensitive as the ledger.

  Attributes:
    squared_sensitivity: The largest response, in squared clip norms, for
      zero-out adjacency; 0 if nobody took part.
    worst_rounds: Rounds, counted from 1, of a client that has it.
    is_exact: Whether that client attains it; otherwise it is an upper bound.
    participation: What was measured.
  """

  squared_sensitivity: float
  worst_rounds: tuple[int, ...]
  is_exact: bool
  participation: MeasuredParticipation

  @property
  def is_guarantee(self) -> bool:
    """Whether the number may be claimed, and not only looked at."""
    return self.participation.is_data_independent

  def describe(self) -> str:
    """Returns what the number is and what it is worth, in two sentences."""
    measured = self.participation
    first = (
        f'S2 is {"" if self.is_exact else "at most "}'
        f'{self.squared_sensitivity:.6g} for the realised participation of'
        f' {measured.num_clients} clients in {measured.num_rounds} rounds'
        f' ({len(measured.sets_of_rounds)} distinct sets of rounds).'
    )
    if self.is_guarantee:
      return (
          f'{first} It is a guarantee for this run only, because who took part'
          ' was declared to be independent of all data.'
      )
    return (
        f'{first} It is no guarantee, because who took part may have depended'
        ' on data; the guarantee is that of the participation pattern that was'
        ' enforced.'
    )


def measure(
    participation: MeasuredParticipation,
    squared_response: Callable[[Sequence[int]], float],
    *,
    response_is_exact: bool,
) -> MeasuredSensitivity:
  """Returns the squared sensitivity of a realised pattern.

  *Exact* for the realised pattern if the response is, else an *upper bound*.

  Args:
    participation: Who took part when.
    squared_response: From the rounds of one client to its S2: the mechanism's
      `squared_response`, for a horizon of at least the measured rounds. For a
      run that stopped early, take that of `mechanism.truncated(num_rounds)`:
      what the mechanism would have released later is not part of the run.
    response_is_exact: The mechanism's `response_is_exact`.
  """
  if not isinstance(participation, MeasuredParticipation):
    raise TypeError(
        f'participation={participation!r} is not allowed: expected a'
        ' MeasuredParticipation.'
    )
  worst, worst_rounds = 0.0, ()
  for rounds in participation.sets_of_rounds:
    response = float(squared_response(rounds))
    # A NaN compares as if it were small.
    if not np.isfinite(response):
      raise _checks.ArgumentError(
          'squared_response', response, f'a finite response to {rounds}'
      )
    if response > worst:
      worst, worst_rounds = response, rounds
  return MeasuredSensitivity(
      squared_sensitivity=worst,
      worst_rounds=worst_rounds,
      is_exact=bool(response_is_exact),
      participation=participation,
  )
