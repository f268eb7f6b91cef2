# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Shuffling: n clients send one local report each, and their order is lost.

    profile = shuffling.round_profile(local_epsilon=2.0, num_reports=1000)
    privacy_profiles.epsilon_of(profile, 1e-6)

The shuffler is trusted to strip metadata and to permute; the adversary sees the
multiset of all reports. Adjacency is replace-one: one client's data change. The
n clients must all send, and the n - 1 others run the randomizer honestly. One
profile bounds both directions.
"""

import functools
import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.amplification import clones
from tff_dp.accounting.curves import privacy_profiles

_MOST_BLOCKS = 128
_MOST_CELLS = 4000
_SURCHARGE_POINTS = 64


def strong_clone_probability(local_epsilon: float) -> float:
  """Returns 2 / (exp(e0) + 1), for randomizers with a symmetric blanket only.

  Binary randomized response and the one-bit sphere have one: some law U with
  k <= dR(x)/dU <= exp(e0) k for all x and k = 2 / (exp(e0) + 1)
  (docs/proofs_shuffling.md, section 6). Not for arbitrary randomizers: the
  erratum of arXiv:2208.04591. Laplace noise, for one, is not covered.
  """
  _checks.non_negative(local_epsilon=local_epsilon)
  return 2 / (1 + math.exp(local_epsilon))


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
  low, high, below, above = clones.window(others, rule.clone)
  edges = clones.blocks(low, high, _MOST_BLOCKS)
  masses = clones.block_masses(edges, others, rule.clone)
  # What is above the window is charged as if it were the last block.
  masses[-1] += above
  parts = clones.shuffled(
      epsilons, local_epsilon=local_epsilon, num_clones=edges[:-1]
  )
  worst = clones.worst_case(epsilons, local_epsilon)
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
  """Returns the mean over M ~ Bin(others, revealed) of `clones.checked_in`.

  Upper bound: more clones are post-processing of fewer, so blocks of M are
  charged at their largest M, which leaves the fewest; the upper tail of M is
  charged as if there were no clones.
  """
  low, high, below, above = clones.window(others, revealed)
  rate = min(1.0, clone / (1 - revealed)) if revealed < 1 else 0.0
  widest = clones.window(max(0, others - low), rate)
  most = max(1, _MOST_CELLS // (widest[1] - widest[0] + 2))
  edges = clones.blocks(low, high, most)
  masses = clones.block_masses(edges, others, revealed)
  masses[0] += below
  cells = clones.cells_of(
      others - (edges[1:] - 1),
      masses,
      clone_probability=rate,
      out_probability=out_probability,
      in_probability=in_probability,
  )

  def profile(epsilons):
    worst = in_probability * clones.worst_case(epsilons, local_epsilon)
    found = clones.checked_in(
        epsilons, local_epsilon=local_epsilon, cells=cells
    )
    return np.minimum(found + worst * above, worst)

  return profile
