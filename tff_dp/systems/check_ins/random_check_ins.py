# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random check-ins with local randomizers: the theorems in their valid form.

Protocols (Balle, Kairouz, McMahan, Thakkar and Thakurta, arXiv:2007.06605): a
client draws one slot uniformly with its own coins and checks in there. Its
report has gone through an e0-LDP or (e0, d0)-LDP randomizer at the client.
Adjacency: replace one client. The docstrings of `check_in_events` say who is
trusted and what the adversary sees and knows.

Every theorem takes the *total* delta, splits it itself, and returns

    min(theorem, local guarantee),

so the result never exceeds e0. For d0 > 0, an (e0, d0)-LDP randomizer is within
total variation delta1 of an 8 e0-LDP one if

    d0 <= (1 - exp(-e0)) delta1
          / (4 exp(e0) (2 + ln(2/delta1) / ln(1/(1 - exp(-5 e0))))).

Then the theorem for 8 e0 holds with N (exp(eps) + 1) delta1 added to its delta.
Here N counts the randomizers that the theorem is about: each docstring below
names its N. If that sum cannot stay within the total delta,
`NotApplicableError` says why. Notation: a = exp(e0) - 1, L = ln(1/delta).

Theorem 3.2 is also available step by step, for pure e0. In A_fix the report of
step i, given all reports before it, is eps_i-DP for replace-one:

    eps_i = ln(1 + p0 a q_i),   q_i = 1 / (m - (i - 1) p0 (1 - exp(-e0))),

i = 1..m. These bounds do not depend on what was seen. So the whole run is
dominated by m independent binary randomized responses RR(eps_i), which are
composed here as privacy-loss distributions. The result is never larger than the
closed form, which is advanced composition of the same steps. For a sliding
window p0 = 1 and m is the window. docs/proofs_check_ins.md, section 2, has the
proofs.

The loss of RR(eps) is eps with probability exp(eps) / (1 + exp(eps)), else
-eps. Each eps_i is rounded up to a multiple of one unit, so the total is on a
grid. Steps with equal multiples form one binomial distribution. The transforms
of these distributions are multiplied.

Two misprints of the paper would be unsafe: d0 in place of delta1 in the sum
above, and m in place of the number of clients in theorem 4.1.
"""

import functools
import math

import numpy as np
from scipy import fft

from tff_dp import _checks
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import search
from tff_dp.accounting.curves import transforms

# exp of more than this overflows.
_LARGEST_EXPONENT = 700.0
# Shares of delta that are tried for the theorem.
_SHARES = np.concatenate([
    1 - np.geomspace(1e-6, 0.5, 200),
    np.geomspace(0.5, 1e-12, 200)[1:],
])
_ROUNDING = transforms.ROUNDING
# The largest eps_i is at most this many units, and fewer if m is large.
_MOST_UNITS = 256
_FEWEST_UNITS = 32
_MANY_POINTS = 1 << 17
# The size of the grid is sqrt(m) times the units.
_MOST_SLOTS = 10**7
# Losses farther from 0 than this many times sqrt(sum eps_i^2) are cut off the
# grid. Hoeffding's bound on their probability is added.
_DEVIATIONS = 12.0


def theorem_3_2(
    *,
    local_epsilon: float,
    num_slots: int,
    check_in_probability: float,
    delta: float,
    local_delta: float = 0.0,
) -> float:
  """Returns epsilon of check-ins that use one report per slot.

  Upper bound (arXiv:2007.06605, theorem 3.2), for any e0 and any m >= 1:

      p0 a sqrt(2 exp(e0) L / m) + p0^2 exp(e0) a^2 / (2 m)

  with a = exp(e0) - 1 and L = ln(1/delta). For d0 > 0 see the module's
  docstring, with N = m. The number of clients does not matter. Theorem 4.3, for
  a sliding window over the whole run, is the same with p0 = 1.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_slots: Number of slots m, or the window.
    check_in_probability: Probability p0, 1 for a sliding window.
    delta: Total delta, in the open interval (0, 1).
    local_delta: Delta d0 of the randomizer.

  Raises:
    NotApplicableError: If d0 is too large for delta.
  """
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)
  bound = functools.partial(
      _fixed_window, num_slots, float(check_in_probability)
  )
  return _total(bound, num_slots, local_epsilon, local_delta, delta)


def theorem_4_1(
    *,
    local_epsilon: float,
    num_slots: int,
    min_num_clients: int,
    delta: float,
    local_delta: float = 0.0,
) -> float:
  """Returns epsilon of check-ins whose reports are all averaged, p0 = 1.

  Upper bound (arXiv:2007.06605, theorem 4.1):

      exp(4 e0) a^2 eps1^2 / 2 + exp(2 e0) a eps1 sqrt(2 L)

  with a = exp(e0) - 1, L = ln(1/delta3) and eps1 = sqrt(1/n + 1/m) +
  sqrt(ln(1/delta2) / n). The best of some splits delta = delta2 + delta3 is
  taken. The adversary may know the number of reports in a slot, if participants
  do not collude. For d0 > 0 see the module's docstring, with N = max(n, m): all
  n clients run the randomizer, not m as the paper prints. For d0 > 0, too, a
  lower bound on n is enough. Clients beyond n may count as part of the rule
  that updates the model (docs/proofs_check_ins.md, section 3).

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_slots: Number of slots m.
    min_num_clients: Number of clients n, or a lower bound on it.
    delta: Total delta, in the open interval (0, 1).
    local_delta: Delta d0 of the randomizer.

  Raises:
    NotApplicableError: If d0 is too large for delta.
  """
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.integer_at_least(1, min_num_clients=min_num_clients)
  bound = functools.partial(_averaged, num_slots, min_num_clients)
  count = max(num_slots, min_num_clients)
  return _total(bound, count, local_epsilon, local_delta, delta)


def theorem_5_1(
    *,
    local_epsilon: float,
    num_reports: int,
    delta: float,
    local_delta: float = 0.0,
) -> float:
  """Returns epsilon of n reports, adaptively randomized, in random order.

  Upper bound (arXiv:2007.06605, theorem 5.1):

      exp(3 e0) a^2 / (2 n) + exp(1.5 e0) a sqrt(2 L / n)

  with a = exp(e0) - 1 and L = ln(1/delta). At n = 1000 and delta = 1e-6 this is
  below e0 only for e0 < 0.874. For d0 > 0 see the module's docstring, with N =
  n. The bounds in `shuffling` are tighter.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_reports: Number of reports n.
    delta: Total delta, in the open interval (0, 1).
    local_delta: Delta d0 of the randomizer.

  Raises:
    NotApplicableError: If d0 is too large for delta.
  """
  _checks.integer_at_least(1, num_reports=num_reports)
  bound = functools.partial(_shuffled, num_reports)
  return _total(bound, num_reports, local_epsilon, local_delta, delta)


def expected_dummies_fixed_window(
    num_clients: int, *, num_slots: int, check_in_probability: float = 1.0
) -> float:
  """Returns the expected number of slots in which nobody checks in.

  Exact: m (1 - p0 / m)^n for n clients, m slots and check-in probability p0
  (arXiv:2007.06605, proposition 3.4). This is not a statement about privacy.

  Args:
    num_clients: Number of clients n.
    num_slots: Number of slots m.
    check_in_probability: Probability p0 that a client takes part.
  """
  _checks.integer_at_least(0, num_clients=num_clients)
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)
  return num_slots * _power(1 - check_in_probability / num_slots, num_clients)


def expected_dummies_sliding_window(
    num_clients: int, *, num_steps: int, window: int
) -> float:
  """Returns the expected number of steps with an update and no check-in.

  Exact. There are n steps, and the window is m. Client j wakes at step j.
  Client n + 1 wakes at step 1 again, and so on. Each client draws one of m
  steps: the one at which it wakes, or one of the m - 1 after it. The model is
  updated at the n - m + 1 steps from m on. Nobody checks in at a step with
  probability (1 - 1/m)^k, where k is the number of clients that may draw the
  step. With n clients, k is m (arXiv:2007.06605, proposition 4.4). This is not
  a statement about privacy.

  Args:
    num_clients: Number of clients, at least 0.
    num_steps: Number of steps n, at least m.
    window: Window m.
  """
  _checks.integer_at_least(0, num_clients=num_clients)
  _checks.integer_at_least(1, window=window)
  _checks.integer_at_least(window, num_steps=num_steps)
  whole, rest = divmod(num_clients, num_steps)
  waking = np.full(num_steps, whole)
  waking[:rest] += 1
  so_far = np.concatenate([[0], np.cumsum(waking)])
  able = so_far[window:] - so_far[:-window]
  return math.fsum((1 - 1 / window) ** able)


def _total(
    bound, num_randomizers: int, local_epsilon, local_delta, delta
) -> float:
  """Returns min(bound, local guarantee) at a total delta.

  Args:
    bound: Function of (e0, delta): the theorem for a pure randomizer.
    num_randomizers: Number N of randomizers, see the module's docstring.
    local_epsilon: Epsilon e0 of the randomizer.
    local_delta: Delta d0 of the randomizer.
    delta: Total delta.
  """
  _checks.non_negative(local_epsilon=local_epsilon)
  _checks.in_half_open(0.0, 1.0, local_delta=local_delta)
  _checks.in_open(0.0, 1.0, delta=delta)
  e0, d0, delta = float(local_epsilon), float(local_delta), float(delta)
  if d0 == 0:
    return min(bound(e0, delta), e0)
  delta1 = smallest_delta1(local_epsilon=e0, local_delta=d0)
  # The cost is at least two delta1 per randomizer, for any epsilon.
  if 2 * num_randomizers * delta1 >= delta:
    raise privacy_profiles.NotApplicableError(
        f'local_delta={d0:g} with local_epsilon={e0:g} needs a delta of at'
        f' least {2 * num_randomizers * delta1:.3g} for {num_randomizers}'
        f' randomizers, but delta is {delta:g}'
    )
  # The local guarantee holds, because d0 < delta1 < delta.
  best = e0
  for share in _SHARES:
    found = bound(8 * e0, share * delta)
    spent = share * delta + num_randomizers * (_exp(found) + 1) * delta1
    if spent <= delta:
      best = min(best, found)
  return best


def smallest_delta1(*, local_epsilon: float, local_delta: float) -> float:
  """Returns the smallest delta1 for theorems about (e0, d0)-LDP randomizers.

  An (e0, d0)-LDP randomizer is within total variation distance delta1 of an
  8 e0-LDP one if delta1 meets the condition at the top of this module. The
  result is rounded up. It is infinity if no delta1 up to 1 meets the condition.

  Args:
    local_epsilon: Local epsilon e0.
    local_delta: Local delta d0, in (0, 1).
  """
  _checks.non_negative(local_epsilon=local_epsilon)
  _checks.in_open(0.0, 1.0, local_delta=local_delta)
  e0 = float(local_epsilon)
  if e0 == 0:
    # The factor 1 - exp(-e0) is 0.
    return math.inf
  # ln(1 / (1 - exp(-5 e0))), about exp(-5 e0) for large e0.
  decay = -math.log1p(-math.exp(-5 * e0))
  if not decay > 0:
    return math.inf

  def is_enough(log_delta1):
    terms = 2 + (math.log(2) - log_delta1) / decay
    share = math.log(-math.expm1(-e0) / 4) - e0 - math.log(terms)
    return share + log_delta1 >= log_delta

  log_delta = math.log(local_delta) * (1 - 1e-15) + 1e-15
  if not is_enough(0.0):
    return math.inf
  found = search.nearest(is_enough, log_delta, 0.0)
  return math.exp(found) * (1 + 1e-12)


def _power(base: float, exponent: int) -> float:
  """Returns base ** exponent, for a base from 0 to 1."""
  if base == 0:
    return 1.0 if exponent == 0 else 0.0
  return math.exp(exponent * math.log1p(base - 1))


def _fixed_window(num_slots, p0, e0: float, delta: float) -> float:
  if p0 == 0:
    return 0.0
  variance = _exp(e0) * (p0 * _expm1(e0)) ** 2 / num_slots
  return _advanced(variance, delta)


def _shuffled(num_reports, e0: float, delta: float) -> float:
  return _advanced(_exp(3 * e0) * _expm1(e0) ** 2 / num_reports, delta)


def _averaged(num_slots, num_clients, e0: float, delta: float) -> float:
  """Returns theorem 4.1 for a pure randomizer, at the best of some splits."""
  loss = _exp(2 * e0) * _expm1(e0)
  if loss == 0:
    return 0.0
  best = math.inf
  for share in _SHARES[::10]:
    spread = math.sqrt(1 / num_clients + 1 / num_slots)
    spread += math.sqrt(-math.log((1 - share) * delta) / num_clients)
    best = min(best, _advanced((loss * spread) ** 2, share * delta))
  return best


def _advanced(sum_of_squares: float, delta: float) -> float:
  """Returns epsilon by advanced composition: s / 2 + sqrt(2 s ln(1 / delta)).

  Here s is the sum of the squared epsilons.
  """
  if sum_of_squares == math.inf:
    return math.inf
  return 0.5 * sum_of_squares + math.sqrt(
      2 * math.log(1 / delta) * sum_of_squares
  )


def _exp(value: float) -> float:
  # Squares of the result stay floats, or are infinite.
  return math.exp(value) if value < 0.25 * _LARGEST_EXPONENT else math.inf


def _expm1(value: float) -> float:
  return math.expm1(value) if value < 0.25 * _LARGEST_EXPONENT else math.inf


def step_epsilons(
    *, local_epsilon: float, num_slots: int, check_in_probability: float = 1.0
) -> np.ndarray:
  """Returns the epsilons of steps 1..m, non-decreasing, shape [m].

  Each is an upper bound on the epsilon of the report of its step, given all
  reports before it.

  Args:
    local_epsilon: Epsilon e0 of the randomizer.
    num_slots: Number of slots m.
    check_in_probability: Probability p0.
  """
  _check(local_epsilon, num_slots, check_in_probability)
  p0 = float(check_in_probability)
  before = np.arange(num_slots, dtype=np.float64)
  stay = -math.expm1(-local_epsilon)
  if stay == 0 or p0 == 0:
    return np.zeros(num_slots)
  # m - before p0 stay, as a sum of positive numbers: no digits cancel.
  rest = num_slots - before + before * (1 - p0 + p0 * math.exp(-local_epsilon))
  # This form of p0 a / rest does not overflow. Its logarithm is off by a few
  # roundings of its parts, and so is epsilon, relative to its size.
  logs = local_epsilon, math.log(stay), math.log(p0)
  size = sum(abs(part) for part in logs) + math.log(num_slots)
  found = np.logaddexp(0.0, sum(logs) - np.log(rest))
  return np.minimum(found * (1 + 8 * _ROUNDING * (4 + size)), local_epsilon)


def theorem_3_2_profile(
    *, local_epsilon: float, num_slots: int, check_in_probability: float = 1.0
) -> privacy_profiles.Profile:
  """Returns the profile of check-ins that use one report per slot.

  Upper bound for replace-one, in both directions. It is never above the profile
  of one report whose time is known.

  Args:
    local_epsilon: Epsilon e0 of a pure randomizer.
    num_slots: Number of slots m, or the window of a sliding window.
    check_in_probability: Probability p0, 1 for a sliding window.

  Raises:
    NotApplicableError: If there are more than 10^7 slots.
  """
  _check(local_epsilon, num_slots, check_in_probability)
  return privacy_profiles.minimum(
      local_profiles.pure(local_epsilon),
      _profile(
          float(local_epsilon), int(num_slots), float(check_in_probability)
      ),
  )


def _check(local_epsilon, num_slots, check_in_probability) -> None:
  _checks.non_negative(local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_slots=num_slots)
  _checks.in_closed(0.0, 1.0, check_in_probability=check_in_probability)


@functools.lru_cache(maxsize=64)
def _profile(e0: float, num_slots: int, p0: float) -> privacy_profiles.Profile:
  if e0 == 0 or p0 == 0:
    return privacy_profiles.nothing
  if num_slots > _MOST_SLOTS:
    raise privacy_profiles.NotApplicableError(
        f'num_slots={num_slots} are too many to compose step by step: at most'
        f' {_MOST_SLOTS}'
    )
  losses, probs, error = _composed(
      step_epsilons(
          local_epsilon=e0, num_slots=num_slots, check_in_probability=p0
      )
  )
  # delta(eps) = sum over losses l > eps of probs (1 - exp(eps - l)).
  mass = np.append(np.cumsum(probs[::-1])[::-1], 0.0)
  weighted = probs * np.exp(-losses)
  other = np.append(np.cumsum(weighted[::-1])[::-1], 0.0)

  def found(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    start = np.searchsorted(losses, epsilons, side='right')
    with np.errstate(over='ignore'):
      factors = np.exp(np.minimum(epsilons, privacy_profiles.LARGEST_EPSILON))
    deltas = mass[start] - factors * other[start]
    # Sums of positive terms have as many roundings as terms.
    slack = 2 * _ROUNDING * len(probs) * (mass[start] + factors * other[start])
    return np.clip(deltas + slack + error, 0.0, 1.0)

  return found


def _composed(epsilons: np.ndarray):
  """Returns (losses above 0, their probabilities, error) of the composition.

  For each of `epsilons`, one binary randomized response with this epsilon is
  composed. The error bounds how far delta may be too small because of rounding
  and of mass that is cut off or wraps around.
  """
  total = math.sqrt(float(epsilons @ epsilons))
  units = _num_units(epsilons, total)
  unit = float(epsilons[-1]) / units * (1 + 1e-14)
  multiples = np.maximum(1, np.ceil(epsilons / unit)).astype(np.int64)
  multiples = np.minimum(multiples, units)
  root = math.sqrt(float(np.sum((multiples * unit) ** 2)))
  # The mean is sum eps tanh(eps / 2) <= root^2 / 2. The reach covers all losses
  # if they fit.
  reach = math.ceil((0.5 * root**2 + _DEVIATIONS * root) / unit) + 1
  reach = min(reach, int(multiples.sum()))
  log2_points = math.ceil(math.log2(2 * reach + 2))
  num_points = 1 << log2_points
  values, counts = np.unique(multiples, return_counts=True)
  per_transform = transforms.rounding_of(log2_points)
  transform = np.ones(num_points // 2 + 1, np.complex128)
  # Bound on how far rounding has moved each point of the product.
  moved = np.zeros(num_points // 2 + 1)
  size = np.empty_like(moved)  # Reused: new memory costs as much as the rest.
  for multiple, count in zip(values, counts):
    law = _binomial(int(multiple), int(count), unit, num_points)
    factor = fft.rfft(law)
    rounding = per_transform + _ROUNDING * 16 * (1 + math.sqrt(count))
    np.abs(factor, out=size)
    size += rounding
    moved *= np.minimum(size, 1.0, out=size)
    np.abs(transform, out=size)
    size *= rounding
    moved += size
    transform *= factor
  probs = fft.irfft(transform, num_points)
  # The transform of real input is listed by half: the others count twice.
  error = math.sqrt(2 * float(moved @ moved))
  error += per_transform * 2 * float(np.sum(np.abs(transform)))
  # Mass outside of the window, which wraps around to some point in it.
  if reach < int(multiples.sum()):
    error += 2 * math.exp(-0.5 * _DEVIATIONS**2)
  losses = unit * np.arange(1, reach + 1)
  return losses, np.maximum(probs[1 : reach + 1], 0.0), error


def _num_units(epsilons: np.ndarray, total: float) -> int:
  """Returns the number of units of the largest eps_i."""
  per_unit = 4 * _DEVIATIONS * total / float(epsilons[-1])
  units = max(_FEWEST_UNITS, _MANY_POINTS / per_unit)
  return int(min(units, _MOST_UNITS))


def _binomial(multiple: int, count: int, unit: float, num_points: int):
  """Returns the distribution of the sum of `count` independent losses.

  Each is the loss of a binary randomized response with epsilon multiple * unit.
  The distribution is an array over sums in units, modulo `num_points`.
  """
  eps = multiple * unit
  heads = np.arange(count + 1, dtype=np.int64)
  # Ratios of neighbouring probabilities are close to 1 where it matters, so a
  # probability is off by a few roundings per step from the mode.
  mode = min(count, int((count + 1) / (1 + math.exp(-eps))))
  ratios = np.log((count - heads[:-1]) / (heads[:-1] + 1.0)) + eps
  log_probs = np.zeros(count + 1)
  log_probs[mode + 1 :] = np.cumsum(ratios[mode:])
  log_probs[:mode] = -np.cumsum(ratios[:mode][::-1])[::-1]
  probs = np.exp(log_probs)
  probs /= probs.sum()
  result = np.zeros(num_points)
  index = (multiple * (2 * heads - count)) % num_points
  np.add.at(result, index, probs)
  return result
