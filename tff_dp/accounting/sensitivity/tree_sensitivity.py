# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Squared sensitivity of tree aggregation under a participation pattern.

A tree over n rounds has the nodes (m, i), i = 0..(n >> m) - 1; node (m, i) sums
the rounds i 2^m + 1 .. (i + 1) 2^m and exists once they are all done. One
client that takes part in a set of rounds moves a node by at most the number of
its rounds in that set, in clip norms. All contributions pointing the same way
is the worst case, so

  S2 = max over allowed sets of rounds of sum over nodes of count(node)^2.

Trees that are separated by restarts have nodes of their own, and add up.
Honaker's estimator is a function of the same nodes: same S2.

With `complete_trees`, a tree that is followed by another is extended with
virtual rounds of zeros to the next power of two, and the nodes above them that
hold at least one real round count as well.

The maximum over allowed sets is computed exactly: in closed form where there
is one, by counting for a fixed order, and for a minimum separation by a
max-plus dynamic programme (after Kairouz et al., arXiv:2103.00039, appendix,
theorem D.3).
"""

import functools

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import separation_tables


def squared_sensitivity(
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
    complete_trees: bool = False,
) -> int:
  """Returns S2 of a whole run, in squared clip norms.

  Exact, for zero-out adjacency, over all complete nodes (vanilla and Honaker).

  Args:
    pattern: Which rounds one client may take part in.
    restart_every: Rounds per tree; `None` for one tree over the whole run.
    complete_trees: Whether trees that are followed by another are completed.
  """
  _check(pattern, restart_every, complete_trees)
  return _squared_sensitivity(pattern, restart_every, bool(complete_trees))


def squared_sensitivity_by_round(
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
    complete_trees: bool = False,
) -> np.ndarray:
  """Returns S2 of a run that stops after round t, for t = 1..num_rounds.

  Exact; entry t - 1 equals `squared_sensitivity(pattern.truncated(t))` with the
  same restarts: the tree in which the run stops is never completed. The
  entries never decrease.

  Args:
    pattern: Which rounds one client may take part in.
    restart_every: Rounds per tree; `None` for one tree over the whole run.
    complete_trees: Whether trees that are followed by another are completed.

  Returns:
    An int64 array of shape [num_rounds], in squared clip norms.
  """
  _check(pattern, restart_every, complete_trees)
  by_round = _by_round(pattern, restart_every, bool(complete_trees))
  return np.array(by_round, np.int64)


def _check(pattern, restart_every, complete_trees) -> None:
  if not isinstance(
      pattern,
      (
          patterns.MinSeparationPattern,
          patterns.FixedOrderPattern,
          patterns.OncePerTreePattern,
      ),
  ):
    raise TypeError(
        f'pattern={pattern!r} is not allowed: expected a pattern of'
        ' tff_dp.accounting.patterns.'
    )
  _checks.optional_integer_at_least(1, restart_every=restart_every)
  _checks.one_of((False, True), complete_trees=complete_trees)


@functools.lru_cache(maxsize=256)
def _squared_sensitivity(pattern, restart_every, complete_trees) -> int:
  if (
      isinstance(pattern, patterns.MinSeparationPattern)
      and pattern.max_participations > 1
  ):
    # Only the blocks of the last round's prefix are needed, not every round's.
    (total,) = _min_separation_by_round(
        pattern, restart_every, complete_trees, pattern.num_rounds
    )
    return total
  return _by_round(pattern, restart_every, complete_trees)[-1]


@functools.lru_cache(maxsize=32)
def _by_round(pattern, restart_every, complete_trees) -> tuple[int, ...]:
  if isinstance(pattern, patterns.FixedOrderPattern):
    rounds = _fixed_order_by_round(pattern, restart_every, complete_trees)
  elif isinstance(pattern, patterns.OncePerTreePattern):
    rounds = _once_by_round(pattern, restart_every, complete_trees, sum)
  elif pattern.max_participations == 1:
    rounds = _once_by_round(pattern, restart_every, complete_trees, max)
  else:
    rounds = _min_separation_by_round(pattern, restart_every, complete_trees)
  return tuple(rounds)


def _completed_level(num_rounds: int) -> int:
  """Returns the level of the root of a completed tree: ceil(log2(n))."""
  return (num_rounds - 1).bit_length()


def _once_by_round(pattern, restart_every, complete_trees, combine):
  """Yields S2 where a client is in a tree at most once.

  The first round of a tree lies under floor(log2(n)) + 1 complete nodes (one
  more than theorem 3.1 of arXiv:2103.00039 says if n is a power of two), and no
  round lies under more.

  Args:
    pattern: Gives the number of rounds.
    restart_every: Rounds per tree, or `None`.
    complete_trees: Whether trees that are followed by another are completed.
    combine: `sum` if a client may be in every tree, `max` if only in one.
  """
  finished = []
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  for length in lengths:
    for done in range(1, length + 1):
      yield combine(finished + [done.bit_length()])
    levels = _completed_level(length) + 1
    finished = [
        combine(
            finished + [levels if complete_trees else length.bit_length()]
        )
    ]


def _fixed_order_by_round(pattern, restart_every, complete_trees):
  """Yields S2 by counting, for every batch, its rounds under every node."""
  batches = pattern.rounds_per_epoch
  finished = 0
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  for length in lengths:
    by_batch = np.zeros(batches, np.int64)
    worst = 0
    for done in range(1, length + 1):
      # Round `done` completes one node of every level up to its zero bits.
      size = 1
      while done % size == 0:
        worst = max(worst, _add_node(by_batch, done - size, done))
        size *= 2
      yield finished + worst
    if complete_trees:
      for level in range(1, _completed_level(length) + 1):
        # What virtual rounds complete starts after the last complete node.
        start = (length >> level) << level
        if start < length:
          worst = max(worst, _add_node(by_batch, start, length))
    finished += worst


def _add_node(by_batch: np.ndarray, start: int, stop: int) -> int:
  """Adds count^2 of the node over rounds start..stop-1; returns the largest."""
  batches = len(by_batch)
  whole, rest = divmod(stop - start, batches)
  if whole:
    by_batch += whole**2
  # The batches that come up once more than `whole` times.
  extra = (start + np.arange(rest)) % batches
  by_batch[extra] += 2 * whole + 1
  return int(by_batch.max() if whole else by_batch[extra].max())


def _min_separation_by_round(
    pattern, restart_every, complete_trees, first_round: int = 1
):
  """Yields S2 with a minimum separation, from `first_round` to the last."""
  # Until then the separation alone keeps to the most participations.
  unlimited = pattern.max_participations * pattern.min_index_gap
  if first_round <= unlimited < pattern.num_rounds:
    yield from _min_separation_by_round(
        pattern.truncated(unlimited), restart_every, complete_trees, first_round
    )
    first_round = unlimited + 1
  tables = separation_tables.Tables(pattern)
  start, before = tables.start(), 0
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  for length in lengths:
    # After no rounds of this tree.
    states = [(0, start)]
    for done in range(max(1, first_round - before), length + 1):
      yield tables.value(_state_after(done, states, tables))
    before += length
    if before == pattern.num_rounds:
      return
    if complete_trees:
      start = tables.after(start, _completed_level(length), length)
    else:
      start = _state_after(length, states, tables)


def _state_after(done: int, states, tables: separation_tables.Tables):
  """Returns the state after `done` rounds of a tree.

  Args:
    done: At least as many as before.
    states: Pairs of rounds and the state after them, of as many as the highest
      set bits of `done` before say. Made to be those of `done`, which share
      most of them.
    tables: Of the run.
  """
  while done & states[-1][0] != states[-1][0]:
    states.pop()
  rest = done - states[-1][0]
  for level in reversed(range(rest.bit_length())):
    if rest >> level & 1:
      reached, state = states[-1]
      states.append((reached + (1 << level), tables.after(state, level)))
  return states[-1][1]
