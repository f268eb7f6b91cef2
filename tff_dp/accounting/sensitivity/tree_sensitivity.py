# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Squared sensitivity of tree aggregation under a participation pattern.

A tree over n rounds has the nodes (m, i), i = 0..(n >> m) - 1. Node (m, i) sums
the rounds i 2^m + 1 .. (i + 1) 2^m and exists once they are all done. A client
that takes part in a set of rounds moves a node, in clip norms, by at most the
number of these rounds that lie under the node. The worst case is that all
contributions of the client point the same way, so

  S2 = max over allowed sets of rounds of sum over nodes of count(node)^2.

Trees that are separated by restarts have different nodes, so their values add
up. Honaker's estimator is a function of the same nodes, so it has the same S2.

With `complete_trees`, a tree that is followed by another one is extended with
virtual rounds of zeros to the next power of two. A node over virtual rounds
counts if it is also over at least one real round.

The maximum over allowed sets is computed exactly. There is a closed form for
one participation. A fixed order is solved by counting. A minimum separation is
solved by a max-plus dynamic programme (after Kairouz et al., arXiv:2103.00039,
appendix, theorem D.3).
"""

import functools
from typing import NamedTuple

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns

# Value of "no allowed set", far enough from the limits of the type that two of
# them can be added.
_IMPOSSIBLE = -(1 << 28)
# Cost of one more loop step, and of one gathered entry, in units of adding one
# array entry to another.
_OVERHEAD = 2000
_GATHERED = 2

def squared_sensitivity(
    pattern: patterns.ParticipationPattern,
    *,
    restart_every: int | None = None,
    complete_trees: bool = False,
) -> int:
  """Returns the squared sensitivity S2 of a whole run, in squared clip norms.

  Exact, for zero-out adjacency, over all complete nodes (vanilla and Honaker).

  Args:
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree. `None` means one tree over the
      whole run.
    complete_trees: Whether trees that are followed by another are extended with
      virtual rounds.
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

  Exact. Entry t - 1 equals `squared_sensitivity(pattern.truncated(t))` with the
  same restarts. The tree in which the run stops is never completed. The entries
  never decrease.

  Args:
    pattern: Rounds in which one client may take part.
    restart_every: Number of rounds per tree. `None` means one tree over the
      whole run.
    complete_trees: Whether trees that are followed by another are extended with
      virtual rounds.

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
        ' tff_dp.accounting.sensitivity.patterns.'
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
  """Yields S2 after each round, if a client is in a tree at most once.

  The first round of a tree lies under floor(log2(n)) + 1 complete nodes, and no
  round lies under more. If n is a power of two, this is one more than theorem
  3.1 of arXiv:2103.00039 says.

  Args:
    pattern: Pattern that gives the number of rounds.
    restart_every: Number of rounds per tree, or `None`.
    complete_trees: Whether trees that are followed by another are extended with
      virtual rounds.
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
  """Yields S2 after each round, for a fixed order.

  It counts the rounds of every batch under every node.
  """
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
        # A node that virtual rounds complete starts after the last complete
        # node.
        start = (length >> level) << level
        if start < length:
          worst = max(worst, _add_node(by_batch, start, length))
    finished += worst


def _add_node(by_batch: np.ndarray, start: int, stop: int) -> int:
  """Adds to each batch its squared count in a node. Returns the largest sum.

  The node is over rounds start..stop-1. Batches that have no round under the
  node are left out of the maximum.
  """
  batches = len(by_batch)
  whole, rest = divmod(stop - start, batches)
  if whole:
    by_batch += whole**2
  # The batches whose turn comes once more than `whole` times.
  extra = (start + np.arange(rest)) % batches
  by_batch[extra] += 2 * whole + 1
  return int(by_batch.max() if whole else by_batch[extra].max())


def _min_separation_by_round(
    pattern, restart_every, complete_trees, first_round: int = 1
):
  """Yields S2 after each round from `first_round` on, for a minimum separation.
  """
  # Up to this round the separation alone enforces the cap.
  unlimited = pattern.max_participations * pattern.min_index_gap
  if first_round <= unlimited < pattern.num_rounds:
    yield from _min_separation_by_round(
        pattern.truncated(unlimited), restart_every, complete_trees, first_round
    )
    first_round = unlimited + 1
  tables = Tables(pattern)
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


def _state_after(done: int, states, tables: 'Tables'):
  """Returns the state after `done` rounds of a tree.

  Args:
    done: Number of rounds, never smaller than in the call before.
    states: Stack of pairs (number of rounds, state after these rounds). The
      numbers add up the set bits of the previous `done`, the highest bit first:
      0, 8, 12, 13 for 13. This call changes the stack to the stack of `done`.
      Most entries stay.
    tables: Tables of the run.
  """
  while done & states[-1][0] != states[-1][0]:
    states.pop()
  rest = done - states[-1][0]
  for level in reversed(range(rest.bit_length())):
    if rest >> level & 1:
      reached, state = states[-1]
      states.append((reached + (1 << level), tables.after(state, level)))
  return states[-1][1]


class _Block(NamedTuple):
  """Table of a block of consecutive rounds, see `Tables`.

  Attributes:
    fewest: Smallest q in `table`: slice i is for q = `fewest` + i.
    table: Array of shape [values of q, values of s, values of e].
  """

  fewest: int
  table: np.ndarray


class Tables:
  """Max-plus tables for a minimum separation.

  Let b be the smallest number of rounds strictly between two participations:
  each participation forbids the next b rounds. A block of consecutive rounds
  has a table. Its entry `table[q, s, e]`, with s and e in 0..b, is the largest
  sum of count^2 over the nodes inside the block. The count of a node is the
  number of the client's participations under it. Three conditions hold:

  * The client takes part exactly q times in the block.
  * An earlier participation forbids the first s rounds of the block.
  * The last participation forbids at most e rounds after the block.

  The entry never decreases in e and never increases in s.

  Two neighbouring blocks are joined. The rounds that the left block forbids
  after its end are the forbidden first rounds of the right block:

    joined[q, s, e] = max over i, j of left[q - i, s, j] + right[i, j, e].

  A node over both blocks adds q^2. Blocks without a common node, such as two
  trees, are joined and nothing is added.

  The *state* of a run is the table of all rounds so far. A run starts without
  forbidden rounds, so the state keeps only the row s = 0. Its shape is
  [values of q, values of e].

  The cap is the pattern's largest number of participations. Sometimes the
  separation alone enforces the cap. Then more participations in a block never
  reduce the largest sum, and the tables are smaller:

  * An entry of a block is left out if a larger q has a value at least as large.
  * A state has only the maximum over q. No node is added over a state later, so
    q is not needed.
  """

  def __init__(self, pattern: patterns.MinSeparationPattern):
    self._most = pattern.max_participations
    self._is_limited = self._most < pattern.participations_that_fit
    self._columns = pattern.min_index_gap
    # Every level's counts add up to at most `most`, also over several trees.
    bound = (pattern.num_rounds.bit_length() + 2) * self._most**2
    if 2 * bound < -_IMPOSSIBLE:
      self._dtype, self._impossible = np.int32, _IMPOSSIBLE
    else:
      self._dtype, self._impossible = np.int64, _IMPOSSIBLE << 32
    self._start = np.zeros((1, self._columns), self._dtype)
    self._block = functools.lru_cache(maxsize=None)(self._block_of)
    self._slices = functools.lru_cache(maxsize=None)(self._slices_of)
    self._first = functools.lru_cache(maxsize=None)(self._first_of)

  def start(self) -> np.ndarray:
    """Returns the state before round 1: no blocked rounds, no participations.
    """
    return self._start

  def value(self, state: np.ndarray) -> int:
    """Returns the squared sensitivity of the rounds so far, from their state.

    The gap after the last participation may reach into later rounds.
    """
    return int(state[:, -1].max())

  def after(
      self, state: np.ndarray, level: int, num_real: int | None = None
  ) -> np.ndarray:
    """Returns the state after a node of 2^level rounds.

    Args:
      state: State before the node.
      level: Level of the node, 0 for a leaf.
      num_real: Number of real rounds, which come first. Default: all.
    """
    num_real = 1 << level if num_real is None else num_real
    if num_real <= self._columns:
      return self._after_one(state, level, num_real)
    if state is self._start and self._is_limited and num_real == 1 << level:
      return self._first(level)
    slices = self._slices(level, num_real)
    num = min(len(state) + len(slices) - 1, self._most + 1)
    joined = self._nothing(num, self._columns)
    for i, rows in enumerate(slices[:num]):
      part = state[: num - i]
      target = joined[i : i + len(part)]
      for j, row in rows:
        np.maximum(target, part[:, j, np.newaxis] + row, out=target)
    # Keep impossible values far enough from the limits of the type.
    return np.maximum(joined, self._impossible)

  def _after_one(self, state, level: int, num_real: int) -> np.ndarray:
    """Returns `after` for rounds that can hold at most one participation.

    The participation lies under level + 1 nodes, whatever its round. The
    earlier it is, the fewer rounds it forbids after the block. Without a
    participation, the rounds that are still forbidden pass by.
    """
    num_slices = len(state)
    if self._is_limited:
      num_slices = min(num_slices + 1, self._most + 1)
    joined = self._nothing(num_slices, self._columns)
    ends = self._columns - num_real
    part = joined[: len(state)]
    part[:, :ends] = state[:, num_real:]
    part[:, ends:] = state[:, -1:]
    target = joined[1:, ends:] if self._is_limited else joined[:, ends:]
    once = state[: len(target), :num_real] + self._dtype(level + 1)
    np.maximum(target, once, out=target)
    return joined

  def _nothing(self, *shape: int) -> np.ndarray:
    return np.full(shape, self._impossible, self._dtype)

  def _first_of(self, level: int) -> np.ndarray:
    """Returns the state after the first 2^level rounds of a run.

    Nothing comes before these rounds, so q counts all participations under
    their node. The node's own table, the largest one, is not needed.
    """
    if 1 << level <= self._columns:
      return self._after_one(self._start, level, 1 << level)
    state = self.after(self._first(level - 1), level - 1)
    squares = np.arange(len(state), dtype=self._dtype) ** 2
    return np.where(state >= 0, state + squares[:, np.newaxis], state)

  def _slices_of(self, level: int, num_real: int):
    """Returns, for each slice of a node's table, pairs (index, row).

    A row that equals the next one is left out, see `_last_of_equals`.
    """
    table = self._block(level, num_real).table
    if not self._is_limited:
      table = table.max(axis=0, keepdims=True)
    return [[(j, part[j]) for j in _last_of_equals(part)] for part in table]

  def _block_of(self, level: int, num_real: int) -> _Block:
    """Returns the block of a node whose first `num_real` rounds are real.

    Virtual rounds neither count nor separate. So a half without real rounds
    leaves the other half's table as it is.
    """
    if num_real <= self._columns:
      return self._block_of_one(level, num_real)
    half = 1 << (level - 1)
    block = self._block(level - 1, min(num_real, half))
    if num_real > half:
      block = self._joined(block, self._block(level - 1, num_real - half))
    return self._under_node(block)

  def _block_of_one(self, level: int, num_real: int) -> _Block:
    """Returns the block of rounds that hold at most one participation."""
    columns = self._columns
    table = self._nothing(2, columns, columns)
    blocked, overhang = np.indices((columns, columns))
    table[0][blocked <= num_real + overhang] = 0
    latest = num_real - columns + overhang
    table[1][blocked <= latest] = level + 1
    return self._pruned(_Block(0, table))

  def _joined(self, first: _Block, second: _Block) -> _Block:
    """Returns the block of `first` followed by `second`."""
    fewest = first.fewest + second.fewest
    left, right = first.table, second.table
    num = min(len(left) + len(right) - 1, self._most + 1 - fewest)
    joined = self._nothing(num, *left.shape[1:])
    columns = [_last_of_equals(table) for table in right]
    values = [np.unique(table[table >= 0]) for table in left]
    # Both loops give the same result. Choose the cheaper one.
    size = self._columns**2
    by_columns = _total(columns) * (_OVERHEAD + len(left) * size)
    by_values = _total(values) * len(right) * (
        _OVERHEAD + _GATHERED * size
    )
    if by_columns <= by_values:
      for i, table in enumerate(right[:num]):
        part = left[: num - i]
        target = joined[i : i + len(part)]
        for j in columns[i]:
          candidate = part[:, :, j, np.newaxis] + table[j]
          np.maximum(target, candidate, out=target)
    else:
      for q in range(min(len(left), num)):
        for value, column in self._steps(left[q], values[q]):
          for i, table in enumerate(right[: num - q]):
            candidate = value + table[column]
            np.maximum(joined[q + i], candidate, out=joined[q + i])
    joined[joined < 0] = self._impossible
    while len(joined) > 1 and joined[-1].max() < 0:
      joined = joined[:-1]
    return _Block(fewest, joined)

  def _steps(self, table: np.ndarray, values: np.ndarray):
    """Yields (value of each row, column of each row) for each of `values`.

    The column of a row is the first that reaches the value. Later columns are
    not needed: they forbid more rounds of the next block, whose sum is then no
    larger. (For an entry that `_pruned` dropped, another slice has as much.)

    Args:
      table: One slice of a block.
      values: Values that occur in the slice.
    """
    for value in values:
      reached = table >= value
      reachable = reached.any(axis=1, keepdims=True)
      yield (
          np.where(reachable, value, self._impossible).astype(self._dtype),
          reached.argmax(axis=1),
      )

  def _under_node(self, block: _Block) -> _Block:
    """Returns the block with a node over it, which adds q^2 to the slice of q.
    """
    counts = block.fewest + np.arange(len(block.table), dtype=self._dtype)
    squares = (counts**2)[:, np.newaxis, np.newaxis]
    table = np.where(block.table >= 0, block.table + squares, block.table)
    return self._pruned(_Block(block.fewest, table))

  def _pruned(self, block: _Block) -> _Block:
    """Returns the block without entries that a larger q reaches as well.

    If the cap limits participations more than the separation does, nothing is
    dropped.
    """
    if self._is_limited:
      return block
    table = block.table
    best = np.maximum.accumulate(table[::-1], axis=0)[::-1]
    table[:-1][table[:-1] <= best[1:]] = self._impossible
    first = int(np.argmax(table.max(axis=(1, 2)) >= 0))
    return _Block(block.fewest + first, table[first:])


def _last_of_equals(table: np.ndarray) -> np.ndarray:
  """Returns the indices of the last row of each run of equal rows.

  Row s is for s forbidden rounds at the start. The more of them an earlier
  block may forbid, the larger its own sum can be. So of equal rows only the
  last is needed. (For an entry that `Tables._pruned` dropped, another slice has
  as much.)
  """
  changes = np.any(table[1:] != table[:-1], axis=1)
  return np.append(np.flatnonzero(changes), len(table) - 1)


def _total(lists) -> int:
  return sum(len(one) for one in lists)
