# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One round of shuffled check-in: every client flips its own coin.

Each of n clients checks in with probability g, independently and afresh in each
round, and then sends one local report. The adversary sees the multiset of
reports, so it also sees their number (arXiv:2206.03151). Adjacency is
replace-one: one client's data change, its coins do not. One profile bounds both
directions.

Rounds compose. The pair of distributions behind a profile does not depend on
the broadcast model. So the T-fold composition of one round bounds T adaptive
rounds:

    profile = shuffled_check_in.round_profile(
        local_epsilon=2.0, num_clients=60_000, check_in_rate=0.1)
    privacy_profiles.composed_epsilon(profile, 1 / 60_000, count=6_800)

`num_clients` is the number of clients that are sure to flip honest coins and to
deliver. More clients only help.
"""

import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import shuffling

_MOST_COHORT_BLOCKS = 48
_MOST_SUBSAMPLE_BLOCKS = 400
# Shares of the target delta that are tried for the surcharge for delta0.
_SURCHARGE_SHARES = (0.4, 0.15, 0.05, 0.01)


def round_profile(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    local_delta: float = 0.0,
    clone_probability: float | None = None,
    num_categories: int | None = None,
) -> privacy_profiles.Profile:
  """Returns the profile of one round, by a proof of this project.

  Upper bound. `shuffling` defines clones. The adversary is told which other
  clients checked in without being clones. Their number M ~ Bin(n - 1, g (1 -
  pc)) does not depend on the target's coin. Each remaining client is a clone
  with probability r = g pc / (1 - g (1 - pc)). The adversary then compares J ~
  Bin(n - 1 - M, r) clones, with or without the target among them
  (docs/proofs_shuffling.md, section 4). The target's presence stays hidden
  among the clones, so this bound is smaller than `round_profile_by_cohort`. It
  needs one sum per epsilon and block of M.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_clients: Number of clients n.
    check_in_rate: Check-in probability g, in (0, 1].
    local_delta: Delta d0 of the randomizer, charged by `shuffling.surcharged`.
    clone_probability: Probability pc, as in `shuffling.round_profile`.
    num_categories: Number of categories k, if the randomizer is k-ary
      randomized response.

  Raises:
    NotApplicableError: If d0 > 0 and pc is above exp(-e0), or `num_categories`
      is set together with d0 > 0 or with pc.
  """
  _check(num_clients, check_in_rate)
  rule = shuffling.clone_rule(
      local_epsilon, local_delta, clone_probability, num_categories
  )
  rate, others = float(check_in_rate), int(num_clients) - 1
  # A randomized response of neither type is treated as revealed, once the
  # target's own such reports are conditioned on.
  revealed = rule.revealed if num_categories is None else 1 - rule.clone

  base = shuffling.mixed_over_revealed(
      local_epsilon=float(local_epsilon),
      others=others,
      revealed=rate * revealed,
      clone=rate * rule.clone,
      out_probability=1 - rate,
      in_probability=rate * rule.relevant,
  )
  return shuffling.surcharged(
      base,
      local_epsilon=local_epsilon,
      local_delta=local_delta,
      expected_others=others * rate,
      check_in_rate=rate,
  )


def round_profile_by_cohort(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    local_delta: float = 0.0,
    clone_probability: float | None = None,
    num_categories: int | None = None,
) -> privacy_profiles.Profile:
  """Returns the profile of one round, averaged over the number of reports.

  The bound is published for a randomizer with delta d0 = 0.

  Upper bound: sum_k Bin(n, g)(k) (k / n) D_k(ln(1 + (n / k)(E - 1))). Here E =
  exp(epsilon), n is the number of clients and g the check-in rate. D_k is the
  profile of k shuffled reports (arXiv:2012.12803). Everyone sees the number k
  of reports. Given k, the target is among the k with probability k / n
  (arXiv:2206.03151, theorem 1, where the text of the proof has g instead). The
  distribution of k is the same for both neighbours. To save time, the values of
  k are summed in blocks. For all k of a block, k / n is replaced by its value
  at the largest k, and D_k by D_k at the smallest k. In both tails D_k is
  replaced by D_1, and in the upper tail k / n by 1. The result is slightly
  looser than `round_profile`. For arguments and errors see `round_profile`.
  """
  _check(num_clients, check_in_rate)
  shuffling.clone_rule(
      local_epsilon, local_delta, clone_probability, num_categories
  )
  num_clients, rate = int(num_clients), float(check_in_rate)

  def crowd(size):
    return shuffling.round_profile(
        local_epsilon=local_epsilon,
        num_reports=size,
        clone_probability=clone_probability,
        num_categories=num_categories,
    )

  cohorts = _cohorts(num_clients, rate, _MOST_COHORT_BLOCKS)

  def base(epsilons):
    found = np.zeros(np.shape(epsilons))
    for smallest, share, mass in zip(*cohorts, strict=True):
      raised = privacy_profiles.raised(epsilons, share)
      found += mass * (share * crowd(int(smallest))(raised))
    return found

  return shuffling.surcharged(
      base,
      local_epsilon=local_epsilon,
      local_delta=local_delta,
      expected_others=(num_clients - 1) * rate,
      check_in_rate=rate,
  )


def subsampled_profile(
    local_profile: privacy_profiles.Profile,
    *,
    num_clients: int,
    check_in_rate: float,
) -> privacy_profiles.Profile:
  """Returns the profile of one round in which only the cohort is hidden.

  Upper bound for any randomizer, without trust in the others' noise: sum_k
  Bin(n, g)(k) (k / n) delta_loc(ln(1 + (n / k)(E - 1))), with E = exp(epsilon).
  Given its size k, the cohort is a uniform subset. A cohort without the target
  is as likely as one with the target in the place of another client
  (arXiv:1807.01647, theorems 2 and 10, and docs/proofs_shuffling.md, section
  2).

  Args:
    local_profile: Profile delta_loc of one report for any two inputs, for
      example from `local_profiles`. All clients use the same randomizer.
    num_clients: Number of clients n.
    check_in_rate: Check-in probability g, in (0, 1].
  """
  _check(num_clients, check_in_rate)
  _, shares, masses = _cohorts(
      int(num_clients), float(check_in_rate), _MOST_SUBSAMPLE_BLOCKS
  )

  def profile(epsilons):
    raised = privacy_profiles.raised(epsilons, shares[:, np.newaxis])
    deltas = local_profile(raised.ravel()).reshape(raised.shape)
    deltas *= shares[:, np.newaxis]
    deltas *= masses[:, np.newaxis]
    return deltas.sum(axis=0)

  return profile


def gaussian_round_profile(
    *,
    noise_multiplier: float,
    num_clients: int,
    check_in_rate: float,
    num_rounds: int,
    delta: float,
) -> tuple[privacy_profiles.Profile, tuple[float, float]]:
  """Returns (profile, (e0, d0)) of one round with Gaussian local noise.

  Upper bound: the minimum of `subsampled_profile` and of `round_profile` at one
  (e0, d0) of the noise's own curve. Every point of the curve is valid, so
  searching over them costs no privacy. The search tries a few points and takes
  the one whose `round_profile` has the smallest epsilon over the given rounds
  at delta (docs/proofs_shuffling.md, section 5). If no point gives a finite
  epsilon, the result is `subsampled_profile` alone and the pair is (0, total
  variation).

  Args:
    noise_multiplier: Multiplier tau / C, the std of the noise over the clip
      norm (see `local_profiles.gaussian`).
    num_clients: Number of clients n.
    check_in_rate: Check-in probability g, in (0, 1].
    num_rounds: Number of rounds T for which (e0, d0) is chosen. The profile is
      valid for each round of any run.
    delta: Target delta for which (e0, d0) is chosen, in (0, 1).
  """
  _check(num_clients, check_in_rate)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.in_open(0.0, 1.0, delta=delta)
  local = local_profiles.gaussian(noise_multiplier)
  subsampled = subsampled_profile(
      local, num_clients=num_clients, check_in_rate=check_in_rate
  )
  others = (num_clients - 1) * check_in_rate
  best = None
  for share in _SURCHARGE_SHARES:
    e0 = _split(local, check_in_rate, others, share * delta / num_rounds)
    if e0 is None:
      continue
    d0 = float(local(np.array([e0]))[0])
    shuffled = round_profile(
        local_epsilon=e0,
        num_clients=num_clients,
        check_in_rate=check_in_rate,
        local_delta=d0,
    )
    # Rank without the minimum, whose long tail is slow to compose.
    found = privacy_profiles.composed_epsilon(shuffled, delta, count=num_rounds)
    if best is not None and best[0] < found:
      # A smaller delta0 costs clones, so it only gets worse from here on.
      break
    if best is None or found < best[0]:
      best = found, shuffled, (e0, d0)
  if best is None or best[0] == math.inf:
    return subsampled, (0.0, float(local(np.zeros(1))[0]))
  return privacy_profiles.minimum(best[1], subsampled), best[2]


def _split(local, rate, others, surcharge: float) -> float | None:
  """Returns the e0 whose surcharge at epsilon = 0 is about `surcharge`.

  `None` if there is no such e0 above 0.
  """

  def excess(epsilons):
    beta = 1 / (1 + np.exp(epsilons))
    weight = np.exp(-epsilons) * (1 + beta) * others + beta
    return np.minimum(2 * rate * weight * local(epsilons), 1.0)

  found = privacy_profiles.epsilon_of(excess, surcharge, largest_epsilon=100.0)
  return found if 0 < found < math.inf else None


def _check(num_clients, check_in_rate) -> None:
  _checks.integer_at_least(1, num_clients=num_clients)
  _checks.in_closed(0.0, 1.0, check_in_rate=check_in_rate)
  _checks.positive(check_in_rate=check_in_rate)


def _cohorts(num_clients: int, rate: float, most_blocks: int):
  """Returns blocks of the number k >= 1 of clients that check in.

  There are three arrays, with one entry for each block: the smallest k, the
  largest k as a share of n, and the probability. The first two blocks are the
  upper and the lower tail. To keep the bounds safe, both tails have 1 as their
  smallest k, and the upper tail has n as its largest k.
  """
  low, high, below, above = shuffling.window(num_clients, rate)
  edges = shuffling.blocks(max(low, 1), max(high, 1), most_blocks)
  masses = shuffling.block_masses(edges, num_clients, rate)
  if low <= 1:
    # k = 0 reveals nothing.
    below = 0.0
  smallest = np.append([1, 1], edges[:-1])
  largest = np.append([num_clients, max(low - 1, 1)], edges[1:] - 1)
  return smallest, largest / num_clients, np.append([above, below], masses)
