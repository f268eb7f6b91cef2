# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Tree noise: every prefix sum is the sum of a few noised tree nodes.

Node (m, i) covers rounds i * 2^m + 1 .. (i + 1) * 2^m. The nodes whose union is
the prefix 1..t belong to the set bits of t. Round t completes one node on each
of the levels 0..tz(t), where tz(t) counts the trailing zero bits of t.

There are two estimators of the prefix sum, with noise b_t. Both use the same
noised nodes, so they have the same sensitivity (Kairouz et al.,
arXiv:2103.00039, section 3 and appendix B):

* `Tree`: adds up the topmost complete nodes. Var(b_t) = popcount(t).
* `HonakerTree`: also averages over the nodes below each of them (Honaker, TPDP
  2015). Var(b_t) is the sum of w_l = 1 / (2 - 2^-l) over the set bits l of t.

Both release the residual b_t - b_{t-1}. The nodes above level tz(t) are the
same in both prefixes and cancel. So a round touches only the subtree that it
completes: with m = tz(t),

    vanilla   z(m) - sum_{l < m} z(l, previous node)
    Honaker   w_m V_m - sum_{l < m} w_l V_l(previous node)

where z is the draw of a node, and V its averaged noise: V_0 = z, and V_{l+1} =
z + (V_left + V_right) / 2. This needs neither b_{t-1} nor the upper levels, and
no large numbers cancel.
"""

import dataclasses
import functools
from typing import Optional

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.accounting.sensitivity import tree_sensitivity
from tff_dp.mechanisms import mechanism


class _TreeMechanism(mechanism.Mechanism):
  """The common part of both estimators: geometry and sensitivity."""

  @property
  def overwrites_buffers(self) -> bool:
    return True

  @property
  def num_levels(self) -> int:
    """Number of levels of the largest tree, virtual rounds included."""
    return (self.rounds_per_tree + self.virtual_rounds).bit_length()

  def squared_sensitivity(self, pattern: patterns.ParticipationPattern) -> float:
    return float(
        tree_sensitivity.squared_sensitivity(
            pattern.truncated(self.num_rounds),
            restart_every=self.restart_every,
            complete_trees=self.complete_trees,
        )
    )

  def squared_sensitivity_by_round(
      self, pattern: patterns.ParticipationPattern
  ) -> np.ndarray:
    return tree_sensitivity.squared_sensitivity_by_round(
        pattern.truncated(self.num_rounds),
        restart_every=self.restart_every,
        complete_trees=self.complete_trees,
    )

  def _variance_left_behind(self) -> float:
    num_rounds = self.rounds_per_tree + self.virtual_rounds
    complete = dataclasses.replace(
        self, num_rounds=num_rounds, restart_every=None, complete_trees=False
    )
    return float(complete.prefix_variances()[-1])


@dataclasses.dataclass(frozen=True)
class Tree(_TreeMechanism):
  """Public description of vanilla tree noise.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
    complete_trees: Whether a tree that is followed by another is extended with
      virtual rounds, see `Mechanism`.
    num_cached_levels: Number of lowest levels that keep their latest draw in a
      buffer. Other draws are drawn again from their key when they are
      subtracted. This only trades memory (one model copy per level) for time:
      with c levels, a round makes at most 1 + 2^-c draws on average.
  """

  num_rounds: int
  restart_every: Optional[int] = None
  complete_trees: bool = False
  num_cached_levels: int = 2

  name = 'tree'

  def __post_init__(self):
    self._check()
    _checks.integer_at_least(0, num_cached_levels=self.num_cached_levels)

  @property
  def draws_per_round(self) -> float:
    """Mean number of draws: the new node, and subtracted nodes without buffer.

    Round t subtracts one node on each of the levels below tz(t).
    """
    rounds = np.arange(1, self.rounds_per_tree + 1)
    missed = _trailing_zeros(rounds) - self.state_copies
    return 1.0 + float(np.mean(np.maximum(missed, 0)))

  @property
  def rounds_remembered(self) -> int:
    """Number of rounds after which the highest buffered node is subtracted.

    A node of level l is subtracted 2^l rounds after it was added.
    """
    return 2**self.state_copies // 2

  @property
  def redraws(self) -> bool:
    return self.state_copies < self.num_levels - 1

  @property
  def rounds_drawn(self) -> int:
    """Distance to the oldest node that may be drawn again, plus one.

    That node is on the second-highest level.
    """
    return 2 ** (self.num_levels - 1) // 2 + 1

  def initialize(self, zeros):
    return (zeros,) * min(self.num_cached_levels, self.num_levels - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    draw, cond = operations.draw, operations.cond
    top = _top_level(round_in_tree, self.num_levels)
    node = draw(top, round_in_tree // 2**top - 1)

    def take_back(level, sum_below):
      """Returns the sum of the last nodes of the levels up to this one."""
      if level < len(buffers):
        last = buffers[level]
      else:
        last = draw(level, round_in_tree // 2**level - 2)
      return last if level == 0 else sum_below + last

    # One branch after the other: branches inside of branches would make the
    # graph grow with the square of the number of levels.
    taken_back = node  # Any vector: the first level replaces it.
    for level in range(self.num_levels - 1):
      taken_back = cond(
          _completes(round_in_tree, level + 1),
          functools.partial(take_back, level, taken_back),
          functools.partial(_same, taken_back),
      )
    noise = cond(
        _completes(round_in_tree, 1),
        lambda: node - taken_back,
        lambda: node,
    )
    return noise, _kept(buffers, top, node, cond)

  def round_variances(self) -> np.ndarray:
    rounds = np.arange(1, self.rounds_per_tree + 1)
    return 1.0 + _trailing_zeros(rounds)

  def prefix_variances(self) -> np.ndarray:
    return np.array(
        [t.bit_count() for t in range(1, self.rounds_per_tree + 1)], np.float64
    )


@dataclasses.dataclass(frozen=True)
class HonakerTree(_TreeMechanism):
  """Public description of tree noise under Honaker's online estimator.

  Keeps one vector per level below the topmost. A tree reads a buffer only after
  writing it, so a restart need not clear the buffers.

  Attributes:
    num_rounds: Horizon T. The aggregator refuses round T + 1.
    restart_every: Number of rounds per tree, or `None` for one tree over all
      rounds.
    complete_trees: Whether a tree that is followed by another is extended with
      virtual rounds, see `Mechanism`.
  """

  num_rounds: int
  restart_every: Optional[int] = None
  complete_trees: bool = False

  name = 'honaker'

  def __post_init__(self):
    self._check()

  @property
  def draws_per_round(self) -> float:
    """Mean of 1 + tz(t), the number of nodes that round t completes."""
    rounds = np.arange(1, self.rounds_per_tree + 1)
    return 1.0 + float(np.mean(_trailing_zeros(rounds)))

  def initialize(self, zeros):
    return (zeros,) * (self.num_levels - 1)

  def next_noise(self, buffers, round_in_tree, operations):
    draw, cond = operations.draw, operations.cond

    def climb(level, value, taken_back):
      """Returns (value, taken_back, weight) after the climb to `level` + 1.

      Args:
        level: Level whose node has just been completed.
        value: Averaged noise V of that node.
        taken_back: Sum of w_l V_l over the lower levels' previous nodes.
      """
      previous = buffers[level]
      if level == 0:  # Its weight is 1.
        retracted = previous
      else:
        retracted = taken_back + _honaker_weight(level) * previous
      parent = draw(level + 1, round_in_tree // 2 ** (level + 1) - 1)
      # Left is the older node. The order of these operations is part of the
      # contract: a rebuilt state must be equal bit for bit.
      return (
          parent + (previous + value) / 2,
          retracted,
          _honaker_weight(level + 1),
      )

    value = draw(0, round_in_tree - 1)
    # One branch after the other, as in `Tree`. The second entry is any vector:
    # the first climb replaces it, and without a climb it is not read.
    above = value, value, 1.0
    for level in range(self.num_levels - 1):
      above = cond(
          _completes(round_in_tree, level + 1),
          functools.partial(climb, level, *above[:2]),
          functools.partial(_same, *above),
      )
    value, taken_back, weight = above
    noise = cond(
        _completes(round_in_tree, 1),
        lambda: weight * value - taken_back,
        lambda: value,
    )
    top = _top_level(round_in_tree, self.num_levels)
    return noise, _kept(buffers, top, value, cond)

  def round_variances(self) -> np.ndarray:
    """Returns Var(b_t - b_{t-1}), which depends on t only through tz(t).

    The module docstring defines b_t, w_m, V_m and tz(t), the number of trailing
    zero bits. Let m = tz(t). On each level j = 0..m, round t completes a node.
    Its draw z_j has the weight 2^-(m - j) in V_m. On each level l < m, another
    node comes just before the completed one. The value V_l of that earlier node
    has the weight 2^-(m - l) in V_m. All these terms are independent, and
    Var(V_l) is 1 / w_l.
    """
    by_level = []
    for top in range(self.num_levels):
      weight = _honaker_weight(top)
      variance = weight**2 * sum(4.0 ** -(top - j) for j in range(top + 1))
      for level in range(top):
        share = weight * 2.0 ** -(top - level) - _honaker_weight(level)
        variance += share**2 / _honaker_weight(level)
      by_level.append(variance)
    rounds = np.arange(1, self.rounds_per_tree + 1)
    return np.array(by_level)[_trailing_zeros(rounds)]

  def prefix_variances(self) -> np.ndarray:
    rounds = np.arange(1, self.rounds_per_tree + 1)
    return sum(
        (
            ((rounds >> level) & 1) * _honaker_weight(level)
            for level in range(self.num_levels)
        ),
        start=np.zeros(len(rounds)),
    ).astype(np.float64)


def _completes(round_in_tree, level: int):
  """Returns whether the round completes a node of the level."""
  # `== 0` would compare tensors by identity in TensorFlow's graphs.
  return round_in_tree % 2**level < 1


def _top_level(round_in_tree, num_levels: int):
  """Returns the level of the largest node that the round completes.

  It is tz(round_in_tree), the number of trailing zero bits.
  """
  return sum(
      round_in_tree // 2**level - (round_in_tree - 1) // 2**level
      for level in range(1, num_levels)
  )


def _same(*values):
  return values if len(values) > 1 else values[0]


def _kept(buffers, top, value, cond) -> tuple:
  """Returns the buffers after a round: the one of level `top` holds `value`.

  Buffers of other levels stay. If no buffer belongs to `top`, all stay.
  """
  return tuple(
      cond(
          abs(top - level) < 1,
          functools.partial(_same, value),
          functools.partial(_same, buffer),
      )
      for level, buffer in enumerate(buffers)
  )


def _honaker_weight(level: int) -> float:
  """Returns w_l = 1 / Var(V_l) = 1 / (2 - 2^-l)."""
  return 1.0 / (2.0 - 2.0**-level)


def _trailing_zeros(rounds: np.ndarray) -> np.ndarray:
  return np.log2(rounds & -rounds).astype(np.int64)
