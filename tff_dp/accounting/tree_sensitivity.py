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
from tff_dp.accounting import patterns

# No allowed set. Far enough from the limits of the type to add two of them.
_IMPOSSIBLE = -(1 << 28)
# Up to here it is quicker to loop over columns than over distinct values.
_FEW_COLUMNS = 32


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
    return _min_separation_total(pattern, restart_every, complete_trees)
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


def _min_separation_total(pattern, restart_every, complete_trees) -> int:
  """Returns S2 of a whole run with a minimum separation."""
  tables = _Tables(pattern)
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  state = tables.start()
  for index, length in enumerate(lengths):
    if complete_trees and index < len(lengths) - 1:
      state = tables.join(
          state, tables.partial(_completed_level(length), length)
      )
    else:
      for level in reversed(range(length.bit_length())):
        if length >> level & 1:
          state = tables.join(state, tables.complete(level))
  return tables.value(state)


def _min_separation_by_round(pattern, restart_every, complete_trees):
  """Yields S2 with a minimum separation, one join per round."""
  tables = _Tables(pattern)
  state = tables.start()
  lengths = patterns.tree_lengths(
      pattern.num_rounds, restart_every=restart_every
  )
  for length in lengths:
    start = state
    # Entry j is the state after the blocks of the j highest set bits of the
    # rounds done; the next round shares all but its lowest set bit with it.
    prefixes = [start]
    for done in range(1, length + 1):
      level = (done & -done).bit_length() - 1
      del prefixes[done.bit_count() :]
      prefixes.append(tables.join(prefixes[-1], tables.complete(level)))
      yield tables.value(prefixes[-1])
    if complete_trees:
      state = tables.join(
          start, tables.partial(_completed_level(length), length)
      )
    else:
      state = prefixes[-1]


class _Tables:
  """Max-plus tables for a minimum separation.

  Let b be the rounds strictly between two participations. `table[q, s, e]`,
  with s and e in 0..b, belongs to a block of consecutive rounds and is the
  largest sum of count^2 over the nodes inside the block, for exactly q
  participations, if the first s rounds are blocked by an earlier participation
  and at most e rounds of the last one's mandatory gap reach beyond the block.
  It never decreases in e and never increases in s.

  Two neighbouring blocks join by handing the overhang of the left one over as
  the blocked rounds of the right one:

    joined[q, s, e] = max over i, j of left[q - i, s, j] + right[i, j, e].

  The node over both adds q^2. Blocks that no node covers, such as two trees,
  are joined and nothing is added. A run starts with nothing blocked, so its own
  state is the single row s = 0.
  """

  def __init__(self, pattern: patterns.MinSeparationPattern):
    self._most = pattern.max_participations
    self._columns = min(pattern.min_index_gap, pattern.num_rounds)
    # Every level's counts add up to at most `most`, also over several trees.
    bound = (pattern.num_rounds.bit_length() + 2) * self._most**2
    if 2 * bound < -_IMPOSSIBLE:
      self._dtype, self._impossible = np.int32, _IMPOSSIBLE
    else:
      self._dtype, self._impossible = np.int64, _IMPOSSIBLE << 32
    self.complete = functools.lru_cache(maxsize=None)(self._complete)
    self.partial = functools.lru_cache(maxsize=None)(self._partial)

  def start(self) -> np.ndarray:
    """Returns the state before round 1: nothing blocked, nothing counted."""
    return np.zeros((1, 1, self._columns), self._dtype)

  def value(self, state: np.ndarray) -> int:
    """Returns the largest value, whatever gap reaches beyond the end."""
    return int(state[:, 0, -1].max())

  def join(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the table, or state, of `left` followed by `right`."""
    num = min(len(left) + len(right) - 1, self._most + 1)
    joined = np.full(
        (num,) + left.shape[1:], self._impossible, self._dtype
    )
    if self._columns <= _FEW_COLUMNS:
      for i in range(min(len(right), num)):
        part = left[: num - i]
        target = joined[i : i + len(part)]
        for j in range(self._columns):
          candidate = part[:, :, j, np.newaxis] + right[i, j]
          np.maximum(target, candidate, out=target)
    else:
      for q in range(min(len(left), num)):
        for value, column in self._steps(left[q]):
          for i in range(min(len(right), num - q)):
            candidate = value + right[i, column]
            np.maximum(joined[q + i], candidate, out=joined[q + i])
    joined[joined < 0] = self._impossible
    while len(joined) > 1 and joined[-1].max() < 0:
      joined = joined[:-1]
    return joined

  def _steps(self, table: np.ndarray):
    """Yields the steps of one slice, as (value, column) of every row.

    Rows never decrease along the columns, and the right table never increases
    in what is blocked: for each value, the first column that reaches it is
    enough. If there are more values than columns, the columns are the steps.
    """
    values = np.unique(table[table >= 0])
    rows = len(table)
    if len(values) > self._columns:
      for j in range(self._columns):
        yield table[:, j, np.newaxis], np.full(rows, j)
      return
    for value in values:
      reached = table >= value
      reachable = reached[:, -1, np.newaxis]
      yield (
          np.where(reachable, value, self._impossible).astype(self._dtype),
          reached.argmax(axis=1),
      )

  def _complete(self, level: int) -> np.ndarray:
    """Returns the table of a node of 2^level real rounds."""
    if level == 0:
      return self._single_round()
    half = self.complete(level - 1)
    return self._under_node(self.join(half, half))

  def _partial(self, level: int, num_real: int) -> np.ndarray:
    """Returns the table of a node whose first `num_real` rounds are real.

    Virtual rounds neither count nor separate, so a half without real rounds
    leaves the other half's table as it is.
    """
    if num_real == 1 << level:
      return self.complete(level)
    half = 1 << (level - 1)
    table = self.partial(level - 1, min(num_real, half))
    if num_real > half:
      table = self.join(table, self.partial(level - 1, num_real - half))
    return self._under_node(table)

  def _single_round(self) -> np.ndarray:
    columns = self._columns
    table = np.full((2, columns, columns), self._impossible, self._dtype)
    blocked, overhang = np.indices((columns, columns))
    table[0][blocked <= 1 + overhang] = 0
    table[1, 0, -1] = 1
    return table

  def _under_node(self, table: np.ndarray) -> np.ndarray:
    """Adds q^2 to slice q."""
    squares = np.arange(len(table), dtype=self._dtype) ** 2
    return np.where(
        table >= 0, table + squares[:, np.newaxis, np.newaxis], table
    )
