# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shuffling: n clients send one local report each, and their order is lost.

    profile = shuffling.round_profile(local_epsilon=2.0, num_reports=1000)
    privacy_profiles.epsilon_of(profile, 1e-6)

The shuffler is trusted to strip metadata and to permute. The adversary sees the
multiset of all reports. Adjacency is replace-one: one client's data change. All
n clients must send, and the n - 1 others must run the randomizer honestly. One
profile bounds both directions.

The target client's report is a mixture of two distributions, called types. A
clone is another client's report that has one of these two types by a fair coin
(arXiv:2012.12803). A shuffled round then reduces to `s`, the number of reports
of either type, and `y`, the number of reports of type 0:

    target out:  s = J,      y ~ Bin(s, 1/2)
    target in:   s = J + 1,  y ~ Bin(s - 1, 1/2) + Bernoulli(alpha or 1 - alpha)

where J is the number of clones and alpha = exp(e0) / (1 + exp(e0)). The
target's own secret coin decides whether it is 'in' or 'out'. Swapping the types
swaps the two distributions. docs/proofs_shuffling.md derives all of this. The
code is for E = exp(epsilon) >= 1 only.
"""

from collections.abc import Callable, Iterator
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.accounting.curves import privacy_profiles

RELATIVE_ERROR = privacy_profiles.BINOMIAL_ERROR
_MOST_BLOCKS = 128
_MOST_CELLS = 4000
_SURCHARGE_POINTS = 64
# Windows reach this many standard deviations, plus a few points. Mass outside,
# about 1e-20 per round, is charged at its worst value.
_REACH = 9.25
_MARGIN = 20
# Number of cells of one array that fits a processor's cache.
_MOST_CACHED_CELLS = 1 << 15
# Number of cells of a table of coins, with two numbers each.
_MOST_TABLE_CELLS = 1 << 18
# One binomial distribution of SciPy costs at least as much time as this many
# cells of a table.
_CELLS_PER_LAW = 64
# Function of y and s that returns the probabilities that s - 1 fair coins show
# y - 1, y and y - 2 heads, and at least y heads.
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

  Upper bound: sum_c Bin(n - 1, pc)(c) D_c(eps), where D_c is the profile of `c`
  clones and a target (arXiv:2012.12803, theorem 3.2, evaluated numerically, and
  docs/proofs_shuffling.md, section 7, for `num_categories`). To save time, the
  values of c are summed in blocks. All c of a block count as the smallest one,
  because D_c decreases in c. The tails of the sum are bounded and included.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_reports: Number n of reports that are sure to be shuffled together.
    local_delta: Delta d0 of the randomizer, charged by `surcharged`.
    clone_probability: Probability pc that another client's report is a clone.
      Default: exp(-e0), which holds for every e0-LDP randomizer, because R(x_i)
      is at least exp(-e0) (R(x) + R(x')) / 2 (arXiv:2012.12803, section 3.1).
      Give a larger probability only for a randomizer for which it is proven.
    num_categories: Number of categories k, if the randomizer is k-ary
      randomized response. Then many reports, perhaps the target's too, tell
      nothing about the target, so the bound is smaller.

  Raises:
    NotApplicableError: If d0 > 0 and pc is above exp(-e0), or `num_categories`
      is set together with d0 > 0 or with pc.
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
  """Probabilities of the kinds of reports in a shuffled round.

  The module docstring defines types and clones.

  Attributes:
    clone: Probability that another client's report is a clone.
    revealed: Probability that another client's report counts as known to the
      adversary, because the bound assumes nothing about it.
    relevant: Probability that the target's report has one of the two types.
  """

  def __init__(self, clone: float, revealed: float, relevant: float):
    self.clone = clone
    self.revealed = revealed
    self.relevant = relevant


def clone_rule(
    local_epsilon, local_delta, probability, num_categories
) -> CloneRule:
  """Returns the probabilities of clones for a randomizer, after checks.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    local_delta: Delta d0 of the randomizer.
    probability: Clone probability pc, `None` for exp(-e0).
    num_categories: Number of categories of randomized response, else `None`.

  Raises:
    NotApplicableError: As for `round_profile`.
  """
  _checks.in_closed(0.0, 500.0, local_epsilon=local_epsilon)
  _checks.in_closed(0.0, 1.0, local_delta=local_delta)
  e0 = float(local_epsilon)
  weak = math.exp(-e0)
  if num_categories is not None:
    _checks.integer_at_least(2, num_categories=num_categories)
    if probability is not None or local_delta:
      raise privacy_profiles.NotApplicableError(
          'num_categories is for randomized response only, so clone_probability'
          ' and local_delta must be left out'
      )
    # Scaled by exp(-e0), which does not overflow.
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
        f'clone_probability={probability:g} is above exp(-e0) = {weak:g}; this'
        f' is proved for local_delta=0 only, and local_delta is {local_delta:g}'
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
  """Returns the profile of (e0, d0)-LDP reports, given one of e0-LDP reports.

  Upper bound: at epsilon = ln E the profile grows by (2 g + E - 1) tau, where g
  is the check-in rate and

      tau = d0 (exp(-e0) (1 + beta) Ex[others] + beta),  beta = 1/(1 + exp(e0)).

  If the target takes part, replacing every report by an e0-LDP report moves the
  distribution of the round by at most tau in total variation
  (docs/proofs_shuffling.md, section 5). The surcharge grows in E, and the
  profile falls. So the smallest sum is used for all larger epsilons, too.

  Args:
    profile: Profile of the round with e0-LDP reports and clone probability
      exp(-e0).
    local_epsilon: Epsilon e0 of the randomizer.
    local_delta: Delta d0 of the randomizer. With 0 the profile is unchanged.
    expected_others: Mean number of other reports, Ex[others].
    check_in_rate: Probability g that the target takes part, 1 for plain
      shuffling.
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
    # No loss is above this, so larger epsilons are not needed.
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
  """Returns sum_c Bin(n - 1, pc)(c) D_c in blocks of c, as in `round_profile`.
  """
  epsilons = np.asarray(epsilons, np.float64)
  low, high, below, above = window(others, rule.clone)
  edges = blocks(low, high, _MOST_BLOCKS)
  masses = block_masses(edges, others, rule.clone)
  # Mass above the window is charged like the last block.
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
  """Returns the profile of a round in which some other clients are known.

  It is the mean of `checked_in` over M ~ Bin(others, revealed), the number of
  other clients that are treated as known to the adversary. Each of the
  remaining clients may be a clone. Upper bound: a round with more clones is
  post-processing of a round with fewer. So a block of values of M is charged at
  its largest M, which leaves the fewest clones. The upper tail of M is charged
  as if there were no clones.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    others: Number of other clients.
    revealed: Probability that another client is known to the adversary.
    clone: Probability that another client is a clone.
    out_probability: Probability that the target is out.
    in_probability: Probability that the target is in and of either type.
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

  The range low..high holds almost all of the probability. `below` bounds the
  probability of values under `low`, and `above` of values over `high`.
  """
  # Not from scipy's `isf`: for a probability below 1e-16 it returns `trials`.
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

  The blocks are narrower in the middle, where most of the probability is.

  Args:
    low: First value.
    high: Last value.
    most: Largest number of blocks.
  """
  if high + 1 - low <= most:
    return np.arange(low, high + 2)
  places = np.linspace(-1.0, 1.0, most + 1)
  places = 0.5 + 0.5 * (0.25 * places + 0.75 * places**3)
  return np.unique(np.rint(low + places * (high + 1 - low)).astype(np.int64))


def block_masses(
    edges: np.ndarray, trials: int, probability: float
) -> np.ndarray:
  """Returns the probability of each block, rounded up.

  Args:
    edges: Edges of the blocks, see `blocks`.
    trials: Number of trials of the binomial distribution.
    probability: Success probability of the binomial distribution.
  """
  values = np.arange(edges[0], edges[-1])
  masses = stats.binom.pmf(values, trials, probability)
  return np.add.reduceat(masses, edges[:-1] - edges[0]) * (1 + RELATIVE_ERROR)


class Cells(NamedTuple):
  """Views of an adversary who does not know the crowd, apart from `y`.

  A cell is one pair that the adversary may see: the number s of reports of
  either type, and the number of other clients that may be clones. In addition
  the adversary sees y, the number of reports of type 0, which the cells leave
  out. The module's docstring explains types, clones, and a target that is in or
  out.

  Attributes:
    sizes: The value s >= 1 of each cell, ascending, shape [cells]. Cells with
      equal s differ in the number of other clients.
    absent: Probability that the target is out and the cell is seen, shape
      [cells].
    present: Probability that the target is in and the cell is seen, shape
      [cells].
    rest: Bound on the probability that the target is in and no cell is seen.
  """

  sizes: np.ndarray
  absent: np.ndarray
  present: np.ndarray
  rest: float


def shuffled(
    epsilons: np.ndarray, *, local_epsilon: float, num_clones: np.ndarray
) -> np.ndarray:
  """Returns H_E of a shuffled round in which the target is 'in'.

  The module docstring defines 'in', and `privacy_profiles` defines the
  hockey-stick divergence H_E. The result has the shape [epsilons, num_clones].
  It is exact for each number of clones, and rounded up.

  Args:
    epsilons: Values ln(E) >= 0, shape [epsilons].
    local_epsilon: Epsilon e0 of the randomizer.
    num_clones: Numbers of clones, ascending, shape [num_clones].
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
  """Returns the cells of a crowd, see `Cells`.

  A cell is what the adversary sees: the number of other clients, and the number
  s of reports of either type. Each other client is a clone with the given
  probability, so there are J ~ Bin(others, clone_probability) clones. Then s is
  J if the target is out, and J + 1 if it is in. Cells with s = 0 are left out:
  the target's data change nothing there. The probabilities of in and out may
  sum to less than 1. The third outcome has no cell, because it is as likely
  under one input as under the other.

  Args:
    num_others: Possible numbers of other clients, which the target does not
      influence, shape [blocks].
    masses: Probability of each of these numbers, shape [blocks].
    clone_probability: Probability that one of the others is a clone.
    out_probability: Probability that the target is out.
    in_probability: Probability that the target is in, with type 0 or type 1.
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
  # The roll moves the 0 at the end of each block to the start of the next.
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
  """Returns H_E of the adversary's view, shape [epsilons].

  Upper bound: the hockey-stick divergence H_E over all cells, rounded up, plus
  `cells.rest` times `worst_case`, the H_E of a report that is not shuffled.

  Args:
    epsilons: Values ln(E) >= 0, shape [epsilons].
    local_epsilon: Epsilon e0 of the randomizer.
    cells: Cells that the adversary may see, see `cells_of`.
  """
  found = cells.rest * worst_case(epsilons, local_epsilon)
  for rows, _, excess in _pieces(epsilons, local_epsilon, cells):
    found[rows] += excess.sum(axis=1)
  return found


def worst_case(epsilons: np.ndarray, local_epsilon: float) -> np.ndarray:
  """Returns H_E of one report, max(exp(e0) - E, 0) / (1 + exp(e0)).

  Rounded up. The report has type 0 with probability alpha = exp(e0) / (1 +
  exp(e0)) in the first distribution, and 1 - alpha in the second.
  """
  epsilons = np.asarray(epsilons, np.float64)
  gap = 0.0 - np.expm1(np.minimum(epsilons - local_epsilon, 0.0))
  return gap / (1 + math.exp(-local_epsilon)) * (1 + 1e-14)


def _pieces(
    epsilons, local_epsilon, cells: Cells
) -> Iterator[tuple[np.ndarray, slice, np.ndarray]]:
  """Yields (rows, columns, `_excess` there), for all rows with epsilon < e0.

  In all other rows `_excess` is 0. Rows are epsilons, and columns are cells.
  """
  epsilons = np.asarray(epsilons, np.float64)
  # For epsilon >= e0 no report tells the inputs apart.
  rows = np.flatnonzero(epsilons < local_epsilon)
  for columns, coins in _tables(cells.sizes, len(rows)):
    sizes, absent, present = (values[columns] for values in cells[:3])
    step = max(1, _MOST_CACHED_CELLS // len(sizes))
    for start in range(0, len(rows), step):
      chunk = rows[start : start + step]
      yield chunk, columns, _excess(
          epsilons[chunk, np.newaxis],
          local_epsilon,
          sizes,
          absent,
          present,
          coins,
      )


def _tables(sizes, num_rows: int) -> Iterator[tuple[slice, _Coins]]:
  """Yields slices of `sizes`, each with a `_Coins` function for it.

  Args:
    sizes: Numbers s, ascending.
    num_rows: Number of epsilons for which each size is evaluated.
  """
  start = 0
  while start < len(sizes):
    first = int(sizes[start])
    last = first + _CoinTable.most_rows(first) - 1
    stop = int(np.searchsorted(sizes, last, side='right'))
    last = int(sizes[stop - 1])
    num_laws = num_rows * (stop - start)
    if _CoinTable.num_cells(first, last) > _CELLS_PER_LAW * num_laws:
      yield slice(start, stop), _coins
    else:
      yield slice(start, stop), _CoinTable(first, last)
    start = stop


def _coins(y: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
  """Returns the probabilities described at `_Coins`."""
  before = stats.binom.pmf(y - 1, sizes - 1, 0.5)
  with np.errstate(divide='ignore'):  # scipy 1.9, for a tail of 0.
    tail = stats.binom.sf(y - 1, sizes - 1, 0.5)
  # Beyond the ends the probabilities are 0.
  at = before * ((sizes - y) / y)
  return before, at, before * ((y - 1) / (sizes - y + 1)), tail


class _CoinTable:
  """A coin function for all s in a range, from a table of y >= about s / 2.

  The first row starts from SciPy's values at its two ends and is filled in by
  ratios and sums. The other rows follow from Pascal's rule. Every number is
  positive, so the error is at most three roundings per column and one per row.
  That is negligible compared with RELATIVE_ERROR.
  """

  def __init__(self, first: int, last: int):
    """Computes the table for s in first..last."""
    self._first = first
    self._reach = self._reach_of(last)
    trials = first - 1
    # Pascal's rule loses a column in every row, but never the middle. The least
    # number of heads in the table is -1.
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
    # Masses, followed by tails at an offset of `width`.
    self._table = table.ravel()

  @classmethod
  def most_rows(cls, first: int) -> int:
    """Returns the largest number of s, from `first` on, for one table."""
    half = 0.5 * cls._reach_of(first)
    return max(1, int(math.sqrt(half**2 + _MOST_TABLE_CELLS) - half))

  @classmethod
  def num_cells(cls, first: int, last: int) -> int:
    """Returns the approximate number of cells of a table."""
    num_rows = last - first + 1
    return num_rows * (num_rows + cls._reach_of(last))

  @staticmethod
  def _reach_of(size: int) -> int:
    """Returns the number of columns above the middle."""
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

  Let f be the mass function and F the upper tail of Bin(s - 1, 1/2). The sum of
  P - E Q over y' >= y is

    (w A - u (E - 1) / 2) f(y - 1) - (E - 1) (u + w) F(y),

  where A = alpha - E (1 - alpha) and alpha = exp(e0) / (1 + exp(e0)).

  P - E Q is a positive function times one that rises linearly in y. So the sum
  is largest if it begins at the first y with a positive P - E Q. From any other
  y it would be too small. Rounding can move this y by one, so y - 1 and y + 1
  are tried too.

  Args:
    epsilon: Epsilons below local_epsilon, shape [epsilons, 1].
    local_epsilon: Epsilon e0 of the randomizer.
    sizes: Values s >= 1, shape [sizes].
    absent: Probabilities u of s clones with the target out, shape [sizes].
    present: Probabilities w of s - 1 clones with the target in, shape [sizes].
    coins: Function that returns f and F.
  """
  odds_minus_1 = np.expm1(epsilon)
  alpha = 1 / (1 + math.exp(-local_epsilon))
  beta = 1 / (1 + math.exp(local_epsilon))
  to_first = worst_case(epsilon, local_epsilon)  # A
  to_second = beta - (1 + odds_minus_1) * alpha
  # Without a target the excess is 0, wherever the sum begins.
  share = np.divide(
      absent, present, out=np.zeros(len(sizes)), where=present > 0
  )
  spread = to_first - to_second
  with np.errstate(over='ignore'):
    threshold = (0.5 * odds_minus_1 / spread) * (share * sizes)
    threshold -= (to_second / spread) * sizes
  # The threshold is at least s / 2. Beyond s there is no mass.
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
  # Past s, the sum is empty.
  return np.maximum(best, 0.0, out=best)
