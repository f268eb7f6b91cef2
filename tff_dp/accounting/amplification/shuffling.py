# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shuffling: n clients send one local report each, and their order is lost.

    profile = shuffling.round_profile(local_epsilon=2.0, num_reports=1000)
    privacy_profiles.epsilon_of(profile, 1e-6)

The shuffler is trusted to strip metadata and to permute; the adversary sees the
multiset of all reports. Adjacency is replace-one: one client's data change. The
n clients must all send, and the n - 1 others run the randomizer honestly. One
profile bounds both directions.

Clones are reports whose law is a fair coin between the two laws that the target
client's report is made of (arXiv:2012.12803). What is left of a shuffled round
is `s`, how many reports are of these two types, and `y`, how many of type 0:

    target out:  s = J,      y ~ Bin(s, 1/2)
    target in:   s = J + 1,  y ~ Bin(s - 1, 1/2) + Bernoulli(alpha or 1 - alpha)

with J the number of clones, alpha = exp(e0) / (1 + exp(e0)) and 'in' or 'out'
the target's own secret coin. Swapping the types swaps the two laws.
docs/proofs_shuffling.md derives all of it. Only E = exp(epsilon) >= 1 is meant:
the threshold and the signs used here are those of E >= 1.
"""

from collections.abc import Callable, Iterator
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles

_MOST_BLOCKS = 128
_MOST_CELLS = 4000
_SURCHARGE_POINTS = 64
# Windows reach this many standard deviations, and a few points more. What is
# outside is charged at its worst value, about 1e-20 per round.
_REACH = 9.25
_MARGIN = 20
# Relative error of scipy's binomial laws. Against 40 digits: 6e-13 with up to
# 10^6 trials, 5e-10 at worst (10^7 trials of probability 10^-8, scipy 1.9).
RELATIVE_ERROR = 4e-9
# Cells of one array, which stay in a processor's cache.
_MOST_CACHED_CELLS = 1 << 15
# Of a table of coins, two numbers each.
_MOST_TABLE_CELLS = 1 << 18
# A binomial law of SciPy takes as long as so many cells of a table, or more.
_CELLS_PER_LAW = 64
# Takes y and s; returns the probabilities that s - 1 fair coins show y - 1, y
# and y - 2 heads, and at least y.
_Coins = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, ...]]


def round_profile(
    *,
    local_epsilon: float,
    num_reports: int,
    local_delta: float = 0.0,
    clone_probability: float | None = None,
    num_categories: int | None = None,
) -> privacy_profiles.Profile:
  """Returns the profile of n shuffled reports.

  Upper bound: sum_c Bin(n - 1, pc)(c) D_c(eps), with D_c that of `c` clones and
  a target (arXiv:2012.12803, theorem 3.2, evaluated numerically; for
  `num_categories` docs/proofs_shuffling.md, section 7). D_c falls in c, so
  blocks of c are charged at their least c; tails are charged, never dropped.

  Args:
    local_epsilon: e0.
    num_reports: n, the reports that are sure to be shuffled together.
    local_delta: d0; charged by `surcharged`.
    clone_probability: pc, how often another client's report is a clone. By
      default exp(-e0), which holds for every e0-LDP randomizer: law R(x_i) is
      at least exp(-e0) (R(x) + R(x')) / 2 (arXiv:2012.12803, section 3.1).
      Larger only for randomizers of which that is proved.
    num_categories: If the randomizer is k-ary randomized response, its k. Then
      most reports are of no type, the target's too, which helps.

  Raises:
    NotApplicableError: If d0 > 0 comes with a stronger clone rule.
  """
  _checks.integer_at_least(1, num_reports=num_reports)
  rule = clone_rule(
      local_epsilon, local_delta, clone_probability, num_categories
  )
  others = int(num_reports) - 1
  if num_categories is not None:
    return mixed_over_revealed(
        local_epsilon=float(local_epsilon),
        others=others,
        revealed=rule.revealed,
        clone=rule.clone,
        out_probability=1 - rule.relevant,
        in_probability=rule.relevant,
    )
  return surcharged(
      functools.partial(
          _binary, local_epsilon=float(local_epsilon), others=others, rule=rule
      ),
      local_epsilon=local_epsilon,
      local_delta=local_delta,
      expected_others=others,
      check_in_rate=1.0,
  )


class CloneRule:
  """How other reports and the target relate to the target's two inputs.

  Attributes:
    clone: Probability that another report is a fair coin between the types.
    revealed: Probability that it is given away, because it may be anything.
    relevant: Probability that the target's report is of either type.
  """

  def __init__(self, clone: float, revealed: float, relevant: float):
    self.clone = clone
    self.revealed = revealed
    self.relevant = relevant


def clone_rule(
    local_epsilon, local_delta, probability, num_categories
) -> CloneRule:
  """Returns the rule for a randomizer, after checking that it may be used."""
  _checks.in_closed(0.0, 500.0, local_epsilon=local_epsilon)
  _checks.in_closed(0.0, 1.0, local_delta=local_delta)
  e0 = float(local_epsilon)
  weak = math.exp(-e0)
  if num_categories is not None:
    _checks.integer_at_least(2, num_categories=num_categories)
    if probability is not None or local_delta:
      raise privacy_profiles.NotApplicableError(
          'num_categories stands for randomized response, which has no'
          ' local_delta and its own clone_probability'
      )
    # Scaled by exp(-e0), which stays a float.
    total = 1 + (num_categories - 1) * weak
    return CloneRule(
        2 * weak / total, -math.expm1(-e0) / total, (1 + weak) / total
    )
  if probability is None:
    probability = weak
  strong = 2 * weak / (1 + weak)
  _checks.in_closed(0.0, strong * (1 + 1e-12), clone_probability=probability)
  if local_delta and probability > weak * (1 + 1e-12):
    raise privacy_profiles.NotApplicableError(
        f'clone_probability={probability:g} is above exp(-e0) = {weak:g}, which'
        f' is proved for local_delta=0 only, not {local_delta:g}'
    )
  return CloneRule(float(probability), 1 - float(probability), 1.0)


def surcharged(
    profile: privacy_profiles.Profile,
    *,
    local_epsilon: float,
    local_delta: float,
    expected_others: float,
    check_in_rate: float,
) -> privacy_profiles.Profile:
  """Returns the profile of (e0, d0) reports, given that of e0 reports.

  Upper bound: adds (2 g + E - 1) tau with
  tau = d0 (exp(-e0) (1 + 1 / (1 + exp(e0))) Ex[others] + 1 / (1 + exp(e0))).
  Replacing every report's law by an e0 one moves the round by tau in total
  variation where the target takes part (docs/proofs_shuffling.md, section 5).
  What is added grows in E and the profile falls, so from where their sum is
  least that sum stands for all larger epsilons.

  Args:
    profile: Of the round with e0 reports and clone probability exp(-e0).
    local_epsilon: e0.
    local_delta: d0; with 0 it is the same profile.
    expected_others: Ex[others], the mean number of other reports.
    check_in_rate: g, with which the target takes part; 1 for plain shuffling.
  """
  if not local_delta:
    return profile
  e0 = float(local_epsilon)
  beta = 1 / (1 + math.exp(e0))
  tau = local_delta * (math.exp(-e0) * (1 + beta) * expected_others + beta)
  tau *= 1 + 1e-12

  def total(epsilons):
    return profile(epsilons) + (2 * check_in_rate + np.expm1(epsilons)) * tau

  @functools.cache
  def best() -> tuple[float, float]:
    # No loss is above this, so no more epsilon is of use.
    largest = math.log1p(check_in_rate * math.expm1(e0))
    points = np.zeros(1)
    if largest > 0:
      spread = np.geomspace(1e-9 * largest, largest, _SURCHARGE_POINTS)
      points = np.concatenate([points, spread])
    sums = total(points)
    least = np.argmin(sums)
    return float(points[least]), float(sums[least])

  def with_surcharge(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    place, least = best()
    found = np.full(epsilons.shape, least)
    found[epsilons < place] = total(epsilons[epsilons < place])
    return np.minimum(found, 1.0)

  return with_surcharge


def _binary(epsilons, *, local_epsilon, others, rule) -> np.ndarray:
  """Returns sum_c Bin(n - 1, pc)(c) D_c, in blocks of c."""
  epsilons = np.asarray(epsilons, np.float64)
  low, high, below, above = window(others, rule.clone)
  edges = blocks(low, high, _MOST_BLOCKS)
  masses = block_masses(edges, others, rule.clone)
  # What is above the window is charged as if it were the last block.
  masses[-1] += above
  parts = shuffled(
      epsilons, local_epsilon=local_epsilon, num_clones=edges[:-1]
  )
  worst = worst_case(epsilons, local_epsilon)
  return np.minimum(parts @ masses + worst * below, worst)


def mixed_over_revealed(
    *,
    local_epsilon: float,
    others: int,
    revealed: float,
    clone: float,
    out_probability: float,
    in_probability: float,
) -> privacy_profiles.Profile:
  """Returns the mean over M ~ Bin(others, revealed) of `checked_in`.

  Upper bound: more clones are post-processing of fewer, so blocks of M are
  charged at their largest M, which leaves the fewest; the upper tail of M is
  charged as if there were no clones.
  """
  low, high, below, above = window(others, revealed)
  rate = min(1.0, clone / (1 - revealed)) if revealed < 1 else 0.0
  widest = window(max(0, others - low), rate)
  most = max(1, _MOST_CELLS // (widest[1] - widest[0] + 2))
  edges = blocks(low, high, most)
  masses = block_masses(edges, others, revealed)
  masses[0] += below
  cells = cells_of(
      others - (edges[1:] - 1),
      masses,
      clone_probability=rate,
      out_probability=out_probability,
      in_probability=in_probability,
  )

  def profile(epsilons):
    worst = in_probability * worst_case(epsilons, local_epsilon)
    found = checked_in(
        epsilons, local_epsilon=local_epsilon, cells=cells
    )
    return np.minimum(found + worst * above, worst)

  return profile


def window(trials: int, probability: float):
  """Returns (low, high, below, above) of a binomial variable.

  `below` and `above` bound the probabilities of less than low and of more than
  high. Not by `isf`: that returns `trials` for probabilities below 1e-16.
  """
  mean = trials * probability
  reach = _REACH * math.sqrt(mean * (1 - probability)) + _MARGIN
  low = max(0, math.floor(mean - reach))
  high = min(trials, math.ceil(mean + reach))
  with np.errstate(divide='ignore'):  # scipy 1.9, for a tail of 0.
    below = stats.binom.cdf(low - 1, trials, probability)
    above = stats.binom.sf(high, trials, probability)
  up = 1 + RELATIVE_ERROR
  return low, high, float(below) * up, float(above) * up


def blocks(low: int, high: int, most: int) -> np.ndarray:
  """Returns edges of at most `most` blocks [edge, next edge) of low..high.

  Narrower in the middle, where most of the probability is.
  """
  if high + 1 - low <= most:
    return np.arange(low, high + 2)
  places = np.linspace(-1.0, 1.0, most + 1)
  places = 0.5 + 0.5 * (0.25 * places + 0.75 * places**3)
  return np.unique(np.rint(low + places * (high + 1 - low)).astype(np.int64))


def block_masses(
    edges: np.ndarray, trials: int, probability: float
) -> np.ndarray:
  """Returns the probability of each block, rounded up."""
  values = np.arange(edges[0], edges[-1])
  masses = stats.binom.pmf(values, trials, probability)
  return np.add.reduceat(masses, edges[:-1] - edges[0]) * (1 + RELATIVE_ERROR)


class Cells(NamedTuple):
  """What an adversary of a crowd of unknown size sees beside y: s, and more.

  Attributes:
    sizes: s >= 1 of each cell, ascending, shape [cells]. Cells with the same s
      are told apart by something that does not depend on the target.
    absent: Probability that the target is out and the cell is seen.
    present: The same with the target in.
    rest: Bounds the probability that the target is in and none is seen.
  """

  sizes: np.ndarray
  absent: np.ndarray
  present: np.ndarray
  rest: float


def shuffled(
    epsilons: np.ndarray, *, local_epsilon: float, num_clones: np.ndarray
) -> np.ndarray:
  """Returns H_E of the pair for a target that is in, [epsilons, num_clones].

  Upper bound, exact up to rounding, for each number of clones.

  Args:
    epsilons: ln(E) >= 0, shape [epsilons].
    local_epsilon: e0.
    num_clones: Ascending, shape [num_clones].
  """
  sizes = np.asarray(num_clones) + 1
  cells = Cells(sizes, np.zeros(len(sizes)), np.ones(len(sizes)), 0.0)
  found = np.zeros((len(epsilons), len(sizes)))
  for rows, columns, excess in _pieces(epsilons, local_epsilon, cells):
    found[rows, columns] = excess
  return found


def cells_of(
    num_others: np.ndarray,
    masses: np.ndarray,
    *,
    clone_probability: float,
    out_probability: float,
    in_probability: float,
) -> Cells:
  """Returns the cells of J ~ Bin(others, clone_probability) for some `others`.

  s = 0 is left out: the laws agree there. If the probabilities of in and out do
  not sum to 1, the rest is an outcome that is seen and that does not tell the
  two inputs apart.

  Args:
    num_others: Seen, whatever the target does; shape [blocks].
    masses: The probability of each, shape [blocks].
    clone_probability: That one of the others is a clone.
    out_probability: That the target is out.
    in_probability: That it is in, and of either type.
  """
  num_others = np.asarray(num_others)
  windows = [window(int(others), clone_probability) for others in num_others]
  low, high, below, above = (np.array(column) for column in zip(*windows))
  # s runs over J (target out) and J + 1 (target in).
  lengths = high - low + 2
  block = np.repeat(np.arange(len(lengths)), lengths)
  ends = np.cumsum(lengths)
  sizes = np.arange(ends[-1]) + (high + 2 - ends)[block]
  law = stats.binom.pmf(sizes, num_others[block], clone_probability)
  law *= masses[block]
  law[ends - 1] = 0.0
  # Past its end, every block begins with that 0.
  shifted = np.roll(law, 1)
  order = np.argsort(sizes, kind='stable')
  order = order[np.searchsorted(sizes[order], 1) :]
  return Cells(
      sizes[order],
      out_probability * law[order],
      in_probability * shifted[order],
      in_probability * float(masses @ (below + above)),
  )


def checked_in(
    epsilons: np.ndarray, *, local_epsilon: float, cells: Cells
) -> np.ndarray:
  """Returns H_E of the pair over all cells, shape [epsilons].

  Upper bound: exact in the cells up to rounding, plus what is outside.
  """
  found = cells.rest * worst_case(epsilons, local_epsilon)
  for rows, _, excess in _pieces(epsilons, local_epsilon, cells):
    found[rows] += excess.sum(axis=1)
  return found


def worst_case(epsilons: np.ndarray, local_epsilon: float) -> np.ndarray:
  """Returns H_E of one report, max(exp(e0) - E, 0) / (1 + exp(e0)), rounded up.

  The first law has type 0 with probability alpha, the second with 1 - alpha.
  """
  epsilons = np.asarray(epsilons, np.float64)
  gap = 0.0 - np.expm1(np.minimum(epsilons - local_epsilon, 0.0))
  return gap / (1 + math.exp(-local_epsilon)) * (1 + 1e-14)


def _pieces(
    epsilons, local_epsilon, cells: Cells
) -> Iterator[tuple[np.ndarray, slice, np.ndarray]]:
  """Yields rows, columns and `_excess` there, where it is not 0."""
  epsilons = np.asarray(epsilons, np.float64)
  # From e0 on, no report tells them apart.
  rows = np.flatnonzero(epsilons < local_epsilon)
  for columns, coins in _tables(cells.sizes, len(rows)):
    part = [values[columns] for values in cells[:3]]
    step = max(1, _MOST_CACHED_CELLS // len(part[0]))
    for start in range(0, len(rows), step):
      chunk = rows[start : start + step]
      yield chunk, columns, _excess(
          epsilons[chunk, np.newaxis], local_epsilon, *part, coins
      )


def _tables(sizes, num_rows: int) -> Iterator[tuple[slice, _Coins]]:
  """Yields which sizes to take together, with what knows their coins.

  Args:
    sizes: Ascending.
    num_rows: How often each is asked for.
  """
  start = 0
  while start < len(sizes):
    first = int(sizes[start])
    last = first + _CoinTable.most_rows(first) - 1
    stop = np.searchsorted(sizes, last, side='right')
    last = int(sizes[stop - 1])
    num_laws = num_rows * int(stop - start)
    if _CoinTable.num_cells(first, last) > _CELLS_PER_LAW * num_laws:
      yield slice(start, stop), _coins
    else:
      yield slice(start, stop), _CoinTable(first, last)
    start = stop


def _coins(y: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
  """See `_Coins`."""
  before = stats.binom.pmf(y - 1, sizes - 1, 0.5)
  with np.errstate(divide='ignore'):  # scipy 1.9, for a tail of 0.
    tail = stats.binom.sf(y - 1, sizes - 1, 0.5)
  # Beyond the ends there is nothing.
  at = before * ((sizes - y) / y)
  return before, at, before * ((y - 1) / (sizes - y + 1)), tail


class _CoinTable:
  """The same for all s in a range, from a table of y around s / 2 and above.

  The first row follows from SciPy's laws at its ends, by ratios and sums; the
  others by Pascal's rule. Every number is positive, so what is lost is not more
  than three roundings for each column and one for each row: next to nothing
  against RELATIVE_ERROR.
  """

  def __init__(self, first: int, last: int):
    """Makes the table for s in first..last."""
    self._first = first
    self._reach = self._reach_of(last)
    trials = first - 1
    # Pascal's rule loses a column in every row; the middle is lost never.
    # There is no less than -1 heads.
    self._least = max(-1, trials // 2 - (last - first) // 2 - 2)
    self._width = (last - 1) // 2 + self._reach + 2 - self._least
    heads = self._least + np.arange(self._width)
    start = stats.binom.pmf(heads[:2], trials, 0.5)
    with np.errstate(divide='ignore'):  # As above.
      end = stats.binom.sf(heads[-1:], trials, 0.5)
    ratios = np.maximum(trials - heads[1:-1], 0) / heads[2:]
    table = np.empty((last - first + 1, 2, self._width))
    table[0, 0, 0] = start[0]
    table[0, 0, 1:] = np.cumprod(np.append(start[1], ratios))
    table[0, 1, ::-1] = np.cumsum(np.append(end, table[0, 0, :0:-1]))
    table[1:, :, 0] = [0.0, 1.0] if self._least < 0 else np.nan
    for row in range(last - first):
      above, below = table[row], table[row + 1, :, 1:]
      np.add(above[:, 1:], above[:, :-1], out=below)
      below *= 0.5
    # Masses, and `width` further on tails.
    self._table = table.ravel()

  @classmethod
  def most_rows(cls, first: int) -> int:
    """Returns how many s from `first` on one table should have."""
    half = 0.5 * cls._reach_of(first)
    return max(1, int(math.sqrt(half**2 + _MOST_TABLE_CELLS) - half))

  @classmethod
  def num_cells(cls, first: int, last: int) -> int:
    """Returns how many cells a table has, about."""
    num_rows = last - first + 1
    return num_rows * (num_rows + cls._reach_of(last))

  @staticmethod
  def _reach_of(size: int) -> int:
    """Returns up to how much above the middle there are columns."""
    return math.ceil(0.5 * _REACH * math.sqrt(size) + _MARGIN)

  def __call__(
      self, y: np.ndarray, sizes: np.ndarray
  ) -> tuple[np.ndarray, ...]:
    last = (sizes - 1) // 2 + (self._reach + 1)
    cells = np.minimum(y, last)
    cells += (sizes - self._first) * (2 * self._width) - (1 + self._least)
    found = (
        self._table.take(cells),
        self._table[1:].take(cells),
        self._table.take(cells - 1),
        self._table[self._width :].take(cells),
    )
    is_far = y > last
    if is_far.any():
      y, sizes = y[is_far], np.broadcast_to(sizes, is_far.shape)[is_far]
      for values, true in zip(found, _coins(y, sizes), strict=True):
        values[is_far] = true
    return found


def _excess(
    epsilon, local_epsilon, sizes, absent, present, coins: _Coins
) -> np.ndarray:
  """Returns sum_y max(P(s, y) - E Q(s, y), 0), rounded up.

  With f the mass function and F the upper tail of Bin(s - 1, 1/2),

    P - E Q over y' >= y sums to
    (w A - u (E - 1) / 2) f(y - 1) - (E - 1) (u + w) F(y),

  where A = alpha - E (1 - alpha), and u, w are the probabilities of s clones
  with the target out, and of s - 1 with it in. P - E Q is a
  positive function times one that rises linearly in y, so the sum is largest at
  its first positive y. A wrong y gives too little: rounding can move it by one,
  so its neighbours are tried too.

  Args:
    epsilon: Shape [epsilons, 1], below local_epsilon.
    local_epsilon: e0.
    sizes: s >= 1, shape [sizes].
    absent: u, shape [sizes].
    present: w, shape [sizes].
    coins: Knows f and F.
  """
  odds_minus_1 = np.expm1(epsilon)
  alpha = 1 / (1 + math.exp(-local_epsilon))
  beta = 1 / (1 + math.exp(local_epsilon))
  to_first = worst_case(epsilon, local_epsilon)  # A
  to_second = beta - (1 + odds_minus_1) * alpha
  # Without a target there is nothing to gain, wherever the sum begins.
  share = np.divide(
      absent, present, out=np.zeros(len(sizes)), where=present > 0
  )
  spread = to_first - to_second
  with np.errstate(over='ignore'):
    threshold = (0.5 * odds_minus_1 / spread) * (share * sizes)
    threshold -= (to_second / spread) * sizes
  # It is at least s / 2. Beyond s there is nothing.
  np.clip(threshold, (sizes - 1) // 2, sizes - 1, out=threshold)
  y = threshold.astype(np.int64)
  y += 1
  before, at, two_before, tail = coins(y, sizes)
  # Everything is rounded up by RELATIVE_ERROR of its absolute parts.
  up, down = 1 + RELATIVE_ERROR, 1 - RELATIVE_ERROR
  gain = (to_first * up) * present - (0.5 * odds_minus_1 * down) * absent
  loss = odds_minus_1 * (absent + present)
  # F(y + 1) = F(y) - f(y), and F(y - 1) = F(y) + f(y - 1).
  best = gain * before
  np.maximum(best, (gain + up * loss) * at, out=best)
  loss *= down
  np.maximum(best, gain * two_before - loss * before, out=best)
  best -= loss * tail
  # Past s, nothing is in the sum.
  return np.maximum(best, 0.0, out=best)
