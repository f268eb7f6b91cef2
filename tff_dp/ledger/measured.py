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

import dataclasses
from typing import Any

import numpy as np

from tff_dp import _checks
from tff_dp.ledger import participation_ledger as ledger_lib


@dataclasses.dataclass(frozen=True)
class MeasuredSensitivity:
  """S2 of a realised pattern; as sensitive as the ledger.

  Attributes:
    squared_sensitivity: The largest response, in squared clip norms, for
      zero-out adjacency; 0 if nobody took part.
    worst_rounds: Rounds, counted from 1, of a client that has it.
    is_exact: Whether that client attains it; otherwise it is an upper bound.
    num_rounds: Rounds of the run so far.
    num_clients: Clients that took part at least once.
    num_sets: How many different sets of rounds they have.
    is_guarantee: Whether the number may be claimed, and not only looked at: who
      took part was declared to be independent of all data.
  """

  squared_sensitivity: float
  worst_rounds: tuple[int, ...]
  is_exact: bool
  num_rounds: int
  num_clients: int
  num_sets: int
  is_guarantee: bool

  def describe(self) -> str:
    """Returns what the number is and what it is worth, in two sentences."""
    first = (
        f'S2 is {"" if self.is_exact else "at most "}'
        f'{self.squared_sensitivity:.6g} for the realised participation of'
        f' {self.num_clients} clients in {self.num_rounds} rounds'
        f' ({self.num_sets} distinct sets of rounds).'
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
    mechanism: Any,
    participation: Any,
    *,
    is_data_independent: bool,
) -> MeasuredSensitivity:
  """Returns the squared sensitivity of a realised pattern.

  *Exact* for the realised pattern if the mechanism's response is, else an
  *upper bound*.

  Args:
    mechanism: A `Mechanism` for at least the measured rounds. What it would
      have released after them is not part of the run.
    participation: The `ParticipationLedger` of a run with at least one round,
      or a matrix of shape [clients, rounds] that says who took part when, as
      booleans or as 0 and 1: a client counts once a round.
    is_data_independent: Declares that who took part in which round was
      independent of all clients' data and of everything computed from it. If in
      doubt, it was not.
  """
  # No default and no truthy strings: this decides what may be claimed.
  if not isinstance(is_data_independent, bool):
    raise _checks.ArgumentError(
        'is_data_independent', is_data_independent, 'True or False'
    )
  if isinstance(participation, ledger_lib.ParticipationLedger):
    num_rounds = participation.num_rounds
    clients = participation.rounds_by_client()
  else:
    matrix = np.asarray(participation)
    if matrix.ndim != 2 or not np.all((matrix == 0) | (matrix == 1)):
      raise _checks.ArgumentError(
          'participation',
          f'an array of shape {matrix.shape}',
          'a ParticipationLedger, or zeros and ones of shape [clients, rounds]',
      )
    num_rounds = matrix.shape[1]
    clients = [np.flatnonzero(row) + 1 for row in matrix]
  _checks.integer_at_least(1, num_rounds=num_rounds)
  mechanism = mechanism.truncated(num_rounds)
  sets = [tuple(rounds.tolist()) for rounds in clients if len(rounds)]
  responses = {
      rounds: float(mechanism.squared_response(rounds)) for rounds in set(sets)
  }
  # A NaN compares as if it were small.
  if not np.all(np.isfinite(list(responses.values()))):
    raise _checks.ArgumentError(
        'mechanism', mechanism, 'one with a finite response to all rounds'
    )
  worst = max(sorted(responses), key=responses.get, default=())
  return MeasuredSensitivity(
      squared_sensitivity=responses.get(worst, 0.0),
      worst_rounds=worst,
      is_exact=bool(mechanism.response_is_exact),
      num_rounds=num_rounds,
      num_clients=len(sets),
      num_sets=len(responses),
      is_guarantee=is_data_independent,
  )
