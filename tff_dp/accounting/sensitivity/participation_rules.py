# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a participation pattern forbids, as rules that a ledger can check.

One rule looks at the next round and at what the ledger knows of each client:
its last round and its number of rounds. Together the rules of a pattern are
equivalent to the pattern; the tests compare them with all patterns of short
runs.
"""

from collections.abc import Callable
import dataclasses

import numpy as np

from tff_dp.accounting.sensitivity import patterns


@dataclasses.dataclass(frozen=True)
class Rule:
  """One thing a pattern forbids.

  Attributes:
    breaks: From (round, last rounds, counts) to the clients that break it; a
      last round of 0 means never. All arrays have shape [num_clients].
    why: The rule in one sentence.
    problem: What a client that breaks it would do.
  """

  breaks: Callable[[int, np.ndarray, np.ndarray], np.ndarray]
  why: str
  problem: str


def rules_of(
    pattern: patterns.ParticipationPattern, restart_every: int | None
) -> list[Rule]:
  """Returns what the pattern forbids."""
  if not isinstance(pattern, patterns.ParticipationPattern):
    raise TypeError(
        f'expected a participation pattern, found {type(pattern).__name__}.'
    )
  rounds_per_tree = restart_every or pattern.num_rounds

  def in_same_tree(round_index, last_round):
    tree = (round_index - 1) // rounds_per_tree
    return (last_round > 0) & ((last_round - 1) // rounds_per_tree == tree)

  if isinstance(pattern, patterns.MinSeparationPattern):
    gap, most = pattern.min_index_gap, pattern.max_participations
    return [
        Rule(
            lambda t, last, count: (last > 0) & (t - last < gap),
            f'the indices of two rounds of one client must differ by at least'
            f' {gap} ({gap - 1} rounds strictly between)',
            'took part too recently',
        ),
        Rule(
            lambda t, last, count: count >= most,
            f'a client may take part at most {most} times in the whole run',
            'took part too often already',
        ),
    ]
  if isinstance(pattern, patterns.OncePerTreePattern):
    return [
        Rule(
            lambda t, last, count: in_same_tree(t, last),
            'a client may take part once between two restarts of the noise'
            ' tree',
            'took part in this tree already',
        )
    ]
  if isinstance(pattern, patterns.FixedOrderPattern):
    rounds_per_epoch = pattern.rounds_per_epoch
    return [
        Rule(
            lambda t, last, count: in_same_tree(t, last)
            & ((t - last) % rounds_per_epoch != 0),
            'within one noise tree a client keeps its position among the'
            f' {rounds_per_epoch} rounds of an epoch',
            'took part at another position of this tree',
        )
    ]
  raise TypeError(f'{type(pattern).__name__} has no rules.')
