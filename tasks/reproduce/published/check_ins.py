# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Formulas of papers that do not hold, or are not known to. For reproduction.

Nothing here bounds anything. Every call warns (`PublishedFormulaWarning`) and
returns an `UncertifiedValue`, which is not a number: accountants, ledgers,
calibration and statements cannot take it for one. To draw it beside certified
values, ask for `insecure_float()`.

What fails, and how:

* arXiv:2206.03151 (shuffled check-in), lemma 3: an (epsilon, delta) guarantee
  with delta > 0 implies no finite Renyi divergence. The expression is the
  *lower* boundary of Asoodeh et al. (arXiv:2008.06529): below the divergence of
  randomized response. Approaches 1 and 2 and the baseline are built on it, so
  their results fall with the `round_delta` that the caller happens to choose.
* Theorem 2 of the same paper uses the rate g as the probability that a given
  client is among k reports. That probability is k / n. The theorem is also
  printed with 2 e0 and 8 e0 in place of 2 exp(e0) and 8 exp(e0).
* arXiv:2208.04591 (stronger clones), theorems 3.1 and 3.2, for all randomizers:
  withdrawn by an erratum to lemma 3.5. The module `shuffling` knows for which
  randomizers the lemma holds.
* arXiv:2007.06605 (random check-ins), (epsilon0, delta0) clauses: one printing
  adds m (exp(eps) + 1) delta0, not delta1. The clause of theorem 4.1 counts m
  randomizers, not max(n, m).

Approaches 1 and 2 and the baseline are restated in our words, with the
shuffling step at cohort size (1 - margin) n g and stronger clones.
"""

import math
import warnings

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.systems.check_ins import random_check_ins
from tff_dp.systems.check_ins import shuffling

# Probabilities at which the boundary of lemma 3 is evaluated.
_NUM_PROBABILITIES = 4000
_ORDERS = tuple(range(2, 64)) + tuple(
    int(order) for order in np.unique(np.geomspace(64, 1024, 40).round())
)

_THEOREM_2 = (
    'arXiv:2206.03151, theorem 2',
    'the rate g in place of k / n, and 2 e0 and 8 e0 in place of exponentials',
)


class PublishedFormulaWarning(UserWarning):
  """A formula was evaluated that does not hold; it certifies nothing."""


class UncertifiedValue:
  """The value of a formula that does not hold. Not a number, on purpose.

  Conversion to a number, comparison and arithmetic raise `TypeError`.

  Attributes:
    formula: Paper and place of the formula.
    flaw: Reason why the formula does not hold.
  """

  __slots__ = ('_value', 'formula', 'flaw')

  def __init__(self, value: float, *, formula: str, flaw: str):
    object.__setattr__(self, '_value', float(value))
    object.__setattr__(self, 'formula', formula)
    object.__setattr__(self, 'flaw', flaw)

  def insecure_float(self) -> float:
    """Returns the number, for a plot or a table that says UNCERTIFIED."""
    return self._value

  def __setattr__(self, name, value):
    raise AttributeError(f'{name!r} of an UncertifiedValue cannot be set')

  def __repr__(self) -> str:
    return f'UncertifiedValue({self._value:.6g}, {self.formula!r})'

  def __str__(self) -> str:
    return f'{self._value:.4g} (UNCERTIFIED)'

  def __format__(self, spec: str) -> str:
    if spec:
      _refuse()
    return str(self)

  def __reduce__(self):
    raise TypeError('an UncertifiedValue is not stored')


def _refuse(*unused_args, **unused_kwargs):
  raise TypeError(
      'an UncertifiedValue is not a number: the formula behind it does not'
      ' hold. Use a bound of tff_dp.accounting; for a plot, insecure_float().'
  )


_NUMERIC = (
    'float int index complex bool trunc floor ceil round array'
    ' eq ne lt le gt ge add sub mul truediv floordiv mod divmod pow matmul'
    ' radd rsub rmul rtruediv rfloordiv rmod rdivmod rpow rmatmul neg pos abs'
    ' hash array_ufunc'
).split()
for _name in _NUMERIC:
  setattr(UncertifiedValue, f'__{_name}__', _refuse)


def published_sci_theorem_2_epsilon(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    num_rounds: int,
    delta: float,
    margin: float = 0.5,
) -> UncertifiedValue:
  """Returns SCI's epsilon of T rounds, by theorem 2 and lemma 2.

  Args:
    local_epsilon: Local epsilon e0.
    num_clients: Number of clients n.
    check_in_rate: Check-in rate g.
    num_rounds: Number of rounds T.
    delta: Target delta, in the open interval (0, 1).
    margin: Delta of the Chernoff bound. Let k be (1 - margin) n g, rounded down
      to an integer. By the bound, a round rarely has k reports or fewer. If it
      has more, at least k of them come from other clients.
  """
  _check_round(local_epsilon, num_clients, check_in_rate, margin)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.in_open(0.0, 1.0, delta=delta)
  divergence = lambda order: _theorem_2(
      order, local_epsilon, num_clients, check_in_rate, margin
  )
  return _warned(_converted(divergence, num_rounds, delta), *_THEOREM_2)


def published_sci_theorem_2_divergence(
    *,
    order: int,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    margin: float = 0.5,
) -> UncertifiedValue:
  """Returns SCI's Renyi divergence of one round, by theorem 2 as printed.

  Args:
    order: Order of the divergence, an integer of at least 2.
    local_epsilon: Local epsilon e0.
    num_clients: Number of clients n.
    check_in_rate: Check-in rate g.
    margin: Margin as for `published_sci_theorem_2_epsilon`.
  """
  _check_round(local_epsilon, num_clients, check_in_rate, margin)
  _checks.integer_at_least(2, order=order)
  return _warned(
      _theorem_2(order, local_epsilon, num_clients, check_in_rate, margin),
      *_THEOREM_2,
  )


def published_sci_approach_1(**settings) -> UncertifiedValue:
  """Returns SCI's epsilon with lemma 3 after shuffling, before sampling.

  Lemma 3 gives every order of the shuffled cohort. Sampling at rate g follows
  as sum_j binom(lam, j) (1 - g)^(lam - j) g^j exp((j - 1) eps(j)), then T
  rounds, then the conversion of lemma 2. Settings as for
  `published_sci_baseline`.
  """
  rate, rounds, delta, round_epsilon, round_delta = _settings(**settings)
  divergences = np.array([
      _lemma_3(j, round_epsilon, round_delta) if j > 1 else 0.0
      for j in range(max(_ORDERS) + 1)
  ])

  def divergence(order):
    j = np.arange(order + 1)
    log_binomial = special.gammaln(order + 1) - (
        special.gammaln(j + 1) + special.gammaln(order - j + 1)
    )
    logs = log_binomial + special.xlog1py(order - j, -rate)
    logs += special.xlogy(j, rate) + (j - 1) * divergences[: order + 1]
    return special.logsumexp(logs) / (order - 1)

  return _warned(
      _converted(divergence, rounds, delta),
      'arXiv:2206.03151, approach 1',
      'built on its lemma 3',
  )


def published_sci_approach_2(**settings) -> UncertifiedValue:
  """Returns SCI's epsilon with lemma 3 after shuffling and sampling.

  Lemma 3 is applied to ln(1 + g (exp(eps) - 1)) and g delta. T rounds and the
  conversion of lemma 2 follow. Settings as for `published_sci_baseline`.
  """
  rate, rounds, delta, round_epsilon, round_delta = _settings(**settings)
  sampled = math.log1p(rate * math.expm1(round_epsilon))
  divergence = lambda order: _lemma_3(order, sampled, rate * round_delta)
  return _warned(
      _converted(divergence, rounds, delta),
      'arXiv:2206.03151, approach 2',
      'built on its lemma 3',
  )


def published_sci_without_shuffling(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    num_rounds: int,
    delta: float,
    local_delta: float,
) -> UncertifiedValue:
  """Returns SCI's comparison of its appendix B, as we read it.

  There is no amplification by shuffling. Lemma 3 is applied to
  ln(1 + g (exp(e0) - 1)) and g d0. T rounds and the conversion of lemma 2
  follow. The appendix leaves delta open.

  Args:
    local_epsilon: Local epsilon e0.
    num_clients: Number of clients n.
    check_in_rate: Check-in rate g.
    num_rounds: Number of rounds T.
    delta: Target delta, in the open interval (0, 1).
    local_delta: Local delta d0, in the open interval (0, 1).
  """
  _check_round(local_epsilon, num_clients, check_in_rate, 0.5)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.in_open(0.0, 1.0, local_delta=local_delta)
  sampled = math.log1p(check_in_rate * math.expm1(local_epsilon))
  divergence = lambda order: _lemma_3(
      order, sampled, check_in_rate * local_delta
  )
  return _warned(
      _converted(divergence, num_rounds, delta),
      'arXiv:2206.03151, appendix B',
      'built on its lemma 3',
  )


def published_sci_baseline(**settings) -> UncertifiedValue:
  """Returns SCI's comparison: strong composition of sampled, shuffled rounds.

  T eps (exp(eps) - 1) / (exp(eps) + 1) + eps sqrt(2 T ln(1 / delta')), with
  delta' = delta - T g round_delta. Infinity if delta' is not above 0.

  Args:
    **settings: local_epsilon (e0), num_clients (n), check_in_rate (g),
      num_rounds (T), delta, and optionally round_delta and margin. round_delta
      is the delta of the shuffled cohort's guarantee, by default 1 / n. margin
      is 0.1 by default.
  """
  rate, rounds, delta, round_epsilon, round_delta = _settings(**settings)
  sampled = math.log1p(rate * math.expm1(round_epsilon))
  rest = delta - rounds * rate * round_delta
  value = math.inf
  if rest > 0:
    value = rounds * sampled * math.tanh(sampled / 2)
    value += sampled * math.sqrt(2 * rounds * math.log(1 / rest))
  return _warned(
      value,
      'arXiv:2206.03151, baseline',
      'clones that an erratum withdrew, at the rate g for every cohort',
  )


def published_fmt22_epsilon(
    *, local_epsilon: float, num_reports: int, delta: float
) -> UncertifiedValue:
  """Returns epsilon of shuffling with pc = 2 / (exp(e0) + 1) for everybody."""
  profile = shuffling.round_profile(
      local_epsilon=local_epsilon,
      num_reports=num_reports,
      clone_probability=local_profiles.strong_clone_probability(local_epsilon),
  )
  return _warned(
      privacy_profiles.epsilon_of(profile, delta),
      'arXiv:2208.04591, theorem 3.1',
      'withdrawn by its erratum, but for some randomizers',
  )


def published_rci_theorem_3_2(
    *,
    local_epsilon: float,
    local_delta: float,
    num_slots: int,
    check_in_probability: float,
    delta: float,
) -> UncertifiedValue:
  """Returns RCI's theorem 3.2 with delta0 where delta1 belongs."""
  pure = lambda share: random_check_ins.theorem_3_2(
      local_epsilon=8 * local_epsilon,
      num_slots=num_slots,
      check_in_probability=check_in_probability,
      delta=share,
  )
  return _warned(
      _best_split(pure, num_slots * local_delta, delta),
      'arXiv:2007.06605, theorem 3.2, (epsilon0, delta0), as once printed',
      'delta0 in place of delta1',
  )


def published_rci_theorem_4_1(
    *,
    local_epsilon: float,
    local_delta: float,
    num_slots: int,
    min_num_clients: int,
    delta: float,
) -> UncertifiedValue:
  """Returns RCI's theorem 4.1 with m randomizers where max(n, m) run."""
  delta1 = random_check_ins.smallest_delta1(
      local_epsilon=local_epsilon, local_delta=local_delta
  )
  pure = lambda share: random_check_ins.theorem_4_1(
      local_epsilon=8 * local_epsilon,
      num_slots=num_slots,
      min_num_clients=min_num_clients,
      delta=share,
  )
  return _warned(
      _best_split(pure, num_slots * delta1, delta),
      'arXiv:2007.06605, theorem 4.1, (epsilon0, delta0), as printed',
      'm in place of max(n, m)',
  )


def _warned(value: float, formula: str, flaw: str) -> UncertifiedValue:
  """Returns the value of a formula, after a warning to the caller's caller."""
  warnings.warn(
      f'{formula} does not hold ({flaw}): the value certifies nothing.',
      PublishedFormulaWarning,
      stacklevel=3,
  )
  return UncertifiedValue(value, formula=formula, flaw=flaw)


def _check_round(local_epsilon, num_clients, check_in_rate, margin) -> None:
  _checks.positive(local_epsilon=local_epsilon)
  _checks.integer_at_least(1, num_clients=num_clients)
  _checks.in_closed(0.0, 1.0, check_in_rate=check_in_rate)
  _checks.in_open(0.0, 1.0, margin=margin)


def _settings(
    *,
    local_epsilon: float,
    num_clients: int,
    check_in_rate: float,
    num_rounds: int,
    delta: float,
    round_delta: float | None = None,
    margin: float = 0.1,
):
  """Returns (g, T, delta, epsilon of the shuffled cohort, its delta)."""
  _check_round(local_epsilon, num_clients, check_in_rate, margin)
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.in_open(0.0, 1.0, delta=delta)
  if round_delta is None:
    round_delta = 0.5 / num_clients if num_clients == 1 else 1 / num_clients
  _checks.in_open(0.0, 1.0, round_delta=round_delta)
  profile = shuffling.round_profile(
      local_epsilon=local_epsilon,
      num_reports=max(
          1, math.floor((1 - margin) * num_clients * check_in_rate)
      ),
      clone_probability=local_profiles.strong_clone_probability(local_epsilon),
  )
  round_epsilon = privacy_profiles.epsilon_of(profile, round_delta)
  return float(check_in_rate), num_rounds, delta, round_epsilon, round_delta


def _lemma_3(order: int, epsilon: float, delta: float) -> float:
  """Returns SCI's Renyi divergence of an (epsilon, delta)-DP mechanism.

  epsilon + ln(min over p in (delta, 1) of p^lam (p - delta)^(1 - lam)
  + (1 - p)^lam (exp(epsilon) - p + delta)^(1 - lam)) / (lam - 1); the print
  lacks the first summand and the logarithm.
  """
  # By p - delta next to delta, by 1 - p next to 1.
  near = (1 - delta) * np.geomspace(1e-300, 1.0, _NUM_PROBABILITIES)[:-1]
  excess = np.concatenate([near, 1 - delta - near])
  rest = np.concatenate([1 - delta - near, near])
  keep = (excess > 0) & (rest > 0)
  excess, rest = excess[keep], rest[keep]
  first = order * np.log(delta + excess) + (1 - order) * np.log(excess)
  second = order * np.log(rest)
  second += (1 - order) * np.log(math.exp(epsilon) - excess)
  least = float(np.min(np.logaddexp(first, second)))
  return max(0.0, epsilon + least / (order - 1))


def _theorem_2(order, e0, num_clients, rate, margin) -> float:
  """Returns the Renyi divergence of one round, with 2 e0 and 8 e0."""
  # Without the last digits, which would take one from a whole number.
  most_rare = math.floor(round((1 - margin) * num_clients * rate, 9))
  moment = lambda others: _log_moment(order, float(e0), rate, others)
  # A cohort of at most `most_rare` is charged as if the report were alone.
  rare = moment(0) - 0.5 * margin**2 * num_clients * rate
  return float(np.logaddexp(moment(most_rare), rare)) / (order - 1)


def _log_moment(order, e0, rate, others) -> float:
  """Returns the logarithm of the moment of theorem 2 among other reports."""
  clones = math.floor(others / (2 * e0)) + 1
  x = rate * math.expm1(2 * e0) / math.exp(e0)
  j = np.arange(3, order + 1)
  log_binomial = special.gammaln(order + 1) - (
      special.gammaln(j + 1) + special.gammaln(order - j + 1)
  )
  ratio = 2 * (math.expm1(2 * e0) / math.exp(e0)) ** 2 / clones
  higher = log_binomial + special.xlogy(j, rate) + np.log(j)
  higher += special.gammaln(j / 2) + j / 2 * math.log(ratio)
  square = 2 * order * (order - 1) * rate**2 * math.expm1(e0) ** 2
  square /= clones * math.exp(e0)
  logs = [0.0, math.log(square) if square > 0 else -math.inf]
  rest = order * math.log1p(x)
  rest += math.log1p(-min(1.0, (1 + order * x) * math.exp(-rest)) + 1e-300)
  logs.append(rest - others / (8 * e0))
  return float(special.logsumexp(np.concatenate([logs, higher])))


def _converted(divergence, rounds: int, delta: float) -> float:
  """Returns lemma 2: the best epsilon over the orders."""
  best = math.inf
  for order in _ORDERS:
    extra = math.log(1 / delta) + (order - 1) * math.log1p(-1 / order)
    extra = (extra - math.log(order)) / (order - 1)
    best = min(best, rounds * divergence(order) + extra)
  return best


def _best_split(pure, cost: float, delta: float) -> float:
  """Returns the least epsilon with share + cost (exp(eps) + 1) <= delta."""
  _checks.in_open(0.0, 1.0, delta=delta)
  best = math.inf
  for share in np.geomspace(1e-6, 1 - 1e-6, 400) * delta:
    found = pure(float(share))
    if found < 700 and share + cost * (math.exp(found) + 1) <= delta:
      best = min(best, found)
  return best
