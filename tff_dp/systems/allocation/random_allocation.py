# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random allocation: check-ins at a server that adds the Gaussian noise.

Each client takes part with probability p0, and then in k of the t steps of a
pass, drawn uniformly with its own coins. The server adds up *all* contributions
of a step, each clipped to norm C. It adds N(0, (sigma C)^2) at *every* step,
even an empty one. If nobody knows who took part when, this hides a client about
as well as Poisson sampling at rate k / t (arXiv:2502.08202). Nobody needs to
know the number of clients.

Trust: the server and its noise. The adversary sees all noised sums, or all
models, but not who took part when. Native adjacency: zero-out. The `remove`
direction goes from a client's contributions to zeros, and `add` from zeros to
the contributions. A client's message in a step may depend on the model and on
its data, but not on the steps in which it took part before.

    epsilon(noise_multiplier=1.0, num_steps=2000, delta=1e-6)   # 0.113

Not covered: one winner per step under central noise, where replacing one client
also changes who wins, and sums divided by the realised number of reports.

docs/proofs_check_ins.md reduces everything to k = 1, p0 = 1 and C = 1. Let P be
the distribution of the t noised sums with a contribution of norm 1 in one
uniform step, and Q the distribution without that contribution. Under Q the
likelihood ratio dP/dQ is

    Y = S / t,   S = X_1 + ... + X_t,   X_i = exp(g_i / sigma - 1/(2 sigma^2)),

with g_i independent and standard normal, so Ex[X_i] = 1. With E = exp(epsilon),

    delta_remove(E) = Ex_Q[(Y - E)_+] = P(S > t E) - E Q(S > t E)
    delta_add(E)    = Ex_Q[(1 - E Y)_+] = Q(S < t / E) - E P(S < t / E).

Both are expectations of convex functions of Y. The distribution of S on the
grid of `lognormal_sums` therefore gives an *Upper bound* in both directions.

Large X are left out of the grid and counted separately. One X above t E implies
S > t E, so their share of delta_remove is exact: P(A) - E Q(A), where A is the
event that some X_i is left out. The grid must therefore reach t E. Each range
of E, called a rung, has a grid of its own.

Mass that wraps around and rounding errors are bounded and added. The grid does
not resolve a delta below `_LEAST_OVER_ROUNDING` times the rounding error. Such
a delta comes from the tails of `lognormal_sums`. The rounding error of a tail
is a share of the tail itself. docs/proofs_check_ins.md, section 4, has the
proofs.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import special

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import run_events
from tff_dp.systems.allocation import lognormal_sums

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT

# Mass that may be left out of a grid: a share of the target delta, and at most
# the second value.
_TAIL_SHARE = 1e-4
_MOST_TAIL = 1e-10
# The curve of this many steps also bounds longer runs: a mean of more terms
# varies less, and the grids would become coarse.
_MANY_STEPS = 10**7
# Below this noise epsilon is about 100 or more, amplified or not.
_LEAST_NOISE = 0.1
# More noise never makes epsilon larger, so the curve of this noise bounds it.
# The grids of more noise would take too long.
_MOST_NOISE = 1000.0
_LEAST_OVER_ROUNDING = 10.0
# Relative error of blockwise sums of up to 2^24 terms, of E and of thresholds.
_RELATIVE_ERROR = 1e-11
# Rungs of E: the first goes up to 4, each further one is 16 times as high.
_FIRST_RUNG = math.log(4.0)
_RUNG = math.log(16.0)
_NUM_KNOTS = 2048
_NUM_KNOTS_OF_HIGH_RUNGS = 512
# The knots end where the curve of one Gaussian falls below this.
_LEAST_DELTA = 1e-13
_MOST_EPSILON = 600.0
# Deltas below this many times the tail that is left out are not resolved.
_LEAST_OVER_TAIL = 10.0
# Largest rounding error as a share of delta where the distribution is tilted,
# and the largest number of tilts.
_ERROR_SHARE = 1e-2
_MOST_TILTS = 24
# A large X takes S at least this share of the way to the threshold. The
# expected number of large X is at most the second value.
_CUT_SHARE = 0.6
_CUT_MASS = 1e-4


def profiles(
    *,
    noise_multiplier: float,
    num_steps: int,
    num_selected: int = 1,
    participation_probability: float = 1.0,
    tail: float = _MOST_TAIL,
) -> tuple[privacy_profiles.Profile, privacy_profiles.Profile]:
  """Returns the (remove, add) profiles of one pass, for zero-out.

  The direction `remove` is from a client's contributions to zeros, and `add` is
  from zeros to the contributions.

  Upper bounds, never above the profile of `num_selected` Gaussian mechanisms.
  Choosing k of t steps is bounded by k passes with 1 of floor(t / k) steps
  (arXiv:2502.08202, section 3). Let delta be the profile of one direction for
  p0 = 1. For a client that takes part with probability p0 it becomes, with E =
  exp(epsilon),

      remove:  p0 delta(ln(1 + (E - 1) / p0))
      add:     (1 - E (1 - p0)) delta(ln(E p0 / (1 - E (1 - p0))))

  and `add` is 0 where 1 - E (1 - p0) is not above 0.

  Args:
    noise_multiplier: Noise std over the bound on the norm of one contribution.
    num_steps: Number of steps t of one pass.
    num_selected: Number of steps k in which a participating client sends.
    participation_probability: Probability p0 of taking part in the pass.
    tail: Mass that the computation may cut off a grid. It is added to delta.
  """
  _check(noise_multiplier, num_steps, num_selected, participation_probability)
  _checks.in_open(0.0, 1e-3, tail=tail)
  sigma = float(noise_multiplier)
  block = int(num_steps) // int(num_selected)
  remove, add = _one_of(sigma, block, float(tail))
  if num_selected > 1:
    remove, add = _several(sigma, int(num_selected), remove, add)
  return (
      privacy_profiles.subsampled(remove, float(participation_probability)),
      _thinned_add(add, float(participation_probability)),
  )


# The same functions for the same arguments, so that their composition is found
# again, see `privacy_profiles.composed_epsilon`.
cached_profiles = functools.lru_cache(maxsize=64)(profiles)


def epsilon(
    *,
    noise_multiplier: float,
    num_steps: int,
    delta: float,
    num_selected: int = 1,
    participation_probability: float = 1.0,
    num_epochs: int = 1,
    neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
) -> float:
  """Returns the epsilon of `num_epochs` passes at delta.

  Upper bound, never above the epsilon of the Gaussian mechanisms without
  amplification. The result is accurate even for a tiny delta, because rounding
  errors are small relative to delta. Under replace-one, a replacement counts as
  a removal from all passes and an addition to all passes
  (`curves.replace_one`).

  Args:
    noise_multiplier: Noise std over the bound on the norm of one contribution,
      whatever the relation.
    num_steps: Number of steps t of one pass.
    delta: Target delta, in the open interval (0, 1).
    num_selected: Number of steps k in which a participating client sends.
    participation_probability: Probability p0 of taking part, with a new coin in
      every pass.
    num_epochs: Number of passes, each with new draws.
    neighboring_relation: Zero-out or replace-one.
  """
  _check(noise_multiplier, num_steps, num_selected, participation_probability)
  _checks.in_open(0.0, 1.0, delta=delta)
  _checks.integer_at_least(1, num_epochs=num_epochs)
  relation = run_events.NeighboringRelation(neighboring_relation)
  if participation_probability == 0:
    return 0.0
  sigma = run_events.effective_sigma(
      noise_multiplier=noise_multiplier,
      squared_sensitivity=num_selected * num_epochs,
      neighboring_relation=relation,
  )
  none = gaussian.exact_epsilon(sigma=sigma, delta=delta)
  remove, add = cached_profiles(
      noise_multiplier=noise_multiplier,
      num_steps=num_steps,
      num_selected=num_selected,
      participation_probability=participation_probability,
      tail=_tail(delta / num_epochs),
  )
  if relation is run_events.NeighboringRelation.REPLACE_ONE:
    all_epochs = composition.Part(remove, num_epochs, add)
    found = replace_one.Hops.of(all_epochs).epsilon(delta)
  elif num_epochs == 1:
    found = max(
        privacy_profiles.epsilon_of(remove, delta),
        privacy_profiles.epsilon_of(add, delta),
    )
  else:
    found = privacy_profiles.composed_epsilon(
        remove, delta, count=num_epochs, reverse=add
    )
  return min(found, none)


def _check(noise_multiplier, num_steps, num_selected, probability) -> None:
  _checks.positive(noise_multiplier=noise_multiplier)
  _checks.integer_at_least(1, num_steps=num_steps)
  _checks.integer_between(1, num_steps, num_selected=num_selected)
  _checks.in_closed(0.0, 1.0, participation_probability=probability)


def _tail(delta: float) -> float:
  """Returns the mass to cut off, a power of ten so that calls share results."""
  power = math.floor(math.log10(max(_TAIL_SHARE * delta, 1e-300)))
  return min(_MOST_TAIL, 10.0**power)


def _one_of(sigma: float, num_steps: int, tail: float):
  """Returns the (remove, add) profiles of 1 of t steps, with p0 = 1."""
  alone = gaussian.profile(sigma)
  if num_steps == 1 or sigma < _LEAST_NOISE:
    return alone, alone
  remove, add = curves(
      min(sigma, _MOST_NOISE), min(num_steps, _MANY_STEPS), tail
  )
  return (
      privacy_profiles.minimum(alone, remove),
      privacy_profiles.minimum(alone, add),
  )


def _several(sigma: float, times: int, remove, add):
  """Returns the (remove, add) profiles of k passes.

  Both entries are the same profile, which bounds both directions.

  Args:
    sigma: Noise std over the bound on one contribution.
    times: Number of passes k.
    remove: Profile of one pass, direction `remove`.
    add: Profile of one pass, direction `add`.
  """
  alone = gaussian.profile(sigma / math.sqrt(times))
  interval = privacy_profiles.suitable_interval(remove, reverse=add)
  loss = composition.alike(composition.Part(remove, times, add), interval)
  both = privacy_profiles.minimum(alone, loss.profile())
  return both, both


def _thinned_add(profile, probability: float):
  """Returns the profile of Q against (1 - p0) Q + p0 P.

  Exact if `profile` is exact.

  Args:
    profile: Profile of Q against P.
    probability: Probability p0.
  """
  if probability == 1:
    return profile
  if probability == 0:
    return privacy_profiles.nothing

  def thinned(epsilons):
    epsilons = np.asarray(epsilons, np.float64)
    with np.errstate(over='ignore'):
      excess = np.expm1(epsilons)
      # 1 - E (1 - p0), rounded up.
      rest = probability - excess * (1 - probability)
      rest = rest + 1e-15 * (1 + excess)
    is_positive = rest > 0
    rest = np.where(is_positive, rest, 1.0)
    # E p0 / rest = 1 + (E - 1) / rest. Profiles do not increase.
    inner = np.log1p(np.where(is_positive, excess, 0.0) / rest)
    inner = np.maximum(epsilons, inner * (1 - 1e-15))
    return np.where(is_positive, np.minimum(rest, 1.0) * profile(inner), 0.0)

  return thinned


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
  """An upper bound on delta, given at knots and linear in E between them.

  Attributes:
    factors: Values of E at the knots, increasing from 1.
    deltas: Non-increasing bounds at the knots.
  """

  factors: np.ndarray
  deltas: np.ndarray

  def __call__(self, epsilons: np.ndarray) -> np.ndarray:
    """Returns the bound at epsilons >= 0, constant above the last knot.

    Upper bound: delta is convex in E, so a chord lies above it.
    """
    factors = np.exp(
        np.minimum(np.asarray(epsilons, np.float64), _MOST_EPSILON)
    )
    return np.interp(factors, self.factors, self.deltas)


@functools.lru_cache(maxsize=64)
def curves(sigma: float, num_steps: int, tail: float) -> tuple[Curve, Curve]:
  """Returns upper bounds on delta, (remove, add), for one step drawn out of t.

  Args:
    sigma: Noise std over the norm of the contribution, above 0.
    num_steps: Number of steps t, at least 2.
    tail: Probability that a grid may leave out at its upper end. It is added to
      delta. Only deltas above ten times the tail are refined.
  """
  # Beyond this epsilon the curve of one Gaussian, which bounds this one, is
  # smaller.
  least = min(_LEAST_DELTA, tail)
  largest = min(
      gaussian.exact_epsilon(sigma=sigma, delta=least), _MOST_EPSILON
  )
  return (
      _remove(sigma, num_steps, tail, largest),
      _add(sigma, num_steps, tail, largest),
  )


def _knots(low: float, high: float) -> np.ndarray:
  """Returns E at the knots between two epsilons, densely spaced near 0."""
  if low > 0:
    return np.exp(np.linspace(low, high, _NUM_KNOTS_OF_HIGH_RUNGS))
  return np.exp(
      np.union1d(
          np.linspace(low, high, _NUM_KNOTS),
          np.append(low, np.geomspace(1e-6 * high, high, _NUM_KNOTS)),
      )
  )


def _remove(sigma: float, t: int, tail: float, largest: float) -> Curve:
  """Returns the curve of bounds on P(S > t E) - E Q(S > t E).

  Its knots are computed in ranges of E, called rungs.
  """
  # Half of the tail is for the one X under P, half for the others under Q.
  enough = max(
      _quantile(sigma, 0.5 * tail, 0.5),
      _quantile(sigma, 0.5 * tail / t, -0.5),
  )
  rungs, low, high = [], 0.0, min(_FIRST_RUNG, largest)
  while True:
    factors = _knots(low, high)
    deltas, is_tight = _remove_rung(sigma, t, factors, enough)
    found = _with_tails(
        _tail_remove, sigma, t, enough, factors, deltas, is_tight, tail
    )
    rungs.append((factors, found))
    if high >= largest or found[-1] <= _LEAST_OVER_TAIL * tail:
      break
    low, high = high, min(high + _RUNG, largest)
  return _curve(*(np.concatenate(arrays) for arrays in zip(*rungs)))


def _remove_rung(sigma: float, t: int, factors, enough: float):
  """Returns (bounds, whether they are tight) at the knots of E in one rung."""
  top = min(t * factors[-1], enough)
  law = lognormal_sums.LognormalSum.of_sum(sigma, t, top, t * factors[0])
  q_mass, p_mass = law.tails(t * factors, above=True)
  # Probabilities that some X_i is above `top`, under Q and under P, where one
  # X_i has another distribution.
  q_some = _any(law.q_above, t)
  p_some = law.p_above + (1 - law.p_above) * _any(law.q_above, t - 1)
  p_most = p_mass + law.p_rounding + p_some
  error = law.input_rounding + law.p_wrapped + factors * law.q_wrapped
  rounding = law.p_rounding + law.input_rounding
  if top < t * factors[-1]:
    # Not all sums with such an X_i are above t E.
    q_some = 0.0
  return _best(
      p_most + error,
      factors * (np.maximum(q_mass - law.q_rounding, 0.0) + q_some),
      rounding + factors * law.q_rounding,
      factors * q_some,
      rounding,
  )


def _add(sigma: float, t: int, tail: float, largest: float) -> Curve:
  """Returns the curve of bounds on Q(S < t / E) - E P(S < t / E)."""
  factors = _knots(0.0, largest)
  # An X above t settles that S > t / E, so nothing above t need be kept.
  top = min(_quantile(sigma, tail / t, -0.5), float(t))
  law = lognormal_sums.LognormalSum.of_sum(sigma, t, top, 0.0)
  q_mass, p_mass = law.tails(t / factors, above=False)
  q_most = q_mass + law.q_rounding
  if top < t:
    q_most = q_most + t * law.q_above
  error = factors * (law.input_rounding + law.p_wrapped) + law.q_wrapped
  rounding = law.q_rounding + factors * law.input_rounding
  deltas, is_tight = _best(
      q_most + error,
      factors * np.maximum(p_mass - law.p_rounding, 0.0),
      rounding + factors * law.p_rounding,
      0.0,
      rounding,
  )
  return _curve(
      factors,
      _with_tails(_tail_add, sigma, t, top, factors, deltas, is_tight, tail),
  )


def _with_tails(
    bound_of, sigma, t, enough, factors, deltas, is_tight, tail
) -> np.ndarray:
  """Returns bounds at knots of E, lowered by tail distributions where needed.

  Args:
    bound_of: `_tail_remove` or `_tail_add`.
    sigma: Noise std.
    t: Number of steps.
    enough: Largest X that must be kept on a grid.
    factors: Values of E at the knots.
    deltas: Bounds at the knots by the plain distribution.
    is_tight: Whether each of these bounds is tight.
    tail: Mass that may be left out, as in `curves`.
  """
  found = np.minimum.accumulate(deltas)
  # Rounding matters more and more beyond the first knot where it matters.
  is_open = np.logical_or.accumulate(~is_tight)
  is_open &= found > _LEAST_OVER_TAIL * tail
  high = factors[-1]
  for _ in range(_MOST_TILTS):
    (where,) = np.nonzero(is_open & (factors <= high))
    if not len(where):
      break
    band = factors[where]
    try:
      bounds, errors = bound_of(sigma, t, enough, band)
    except lognormal_sums.TiltError:
      break  # The bounds so far are valid, too.
    found[where] = np.minimum(found[where], bounds)
    is_resolved = errors <= _ERROR_SHARE * bounds
    is_open[where[is_resolved]] = False
    if is_resolved[0] or len(where) == 1:
      is_open[where[0]] = False
      high = factors[-1]
    else:
      # Tilt towards fewer knots, with a grid that ends earlier.
      high = math.sqrt(band[0] * band[-1])
    found = np.minimum.accumulate(found)
    is_open &= found > _LEAST_OVER_TAIL * tail
  return found


def _tail_remove(sigma: float, t: int, enough: float, factors):
  """Returns (bounds on delta, their errors) at knots of E.

  A sum S with several large terms X is counted once for each of these terms, so
  the bound is slightly too large (docs/proofs_check_ins.md, section 4.8).
  """
  thresholds = t * factors
  top = min(thresholds[-1], enough)
  # The cut is well below the distance of S from its mean to the first
  # threshold, and X above it is rare.
  cut = _CUT_SHARE * (thresholds[0] - t)
  cut = min(max(cut, _quantile(sigma, _CUT_MASS / t, -0.5)), top)
  rate = lognormal_sums.best_rate(sigma, t, cut, thresholds[0], above=True)
  law = lognormal_sums.TiltedSum(sigma, t, cut, thresholds[0], rate)
  excess, error = law.excess(thresholds)
  # The excess counts 1 / t times. For the large term, t terms may be the large
  # one, so the factor t cancels.
  bounds, errors = excess / t, error / t
  if cut < top:
    large = lognormal_sums.LargeTerm(sigma, t, cut, top, thresholds[0])
    excess, error = large.excess(thresholds)
    bounds, errors = bounds + excess, errors + error
  q_above, p_above = lognormal_sums.above(sigma, top)
  q_some = _any(q_above, t) if top >= thresholds[-1] else 0.0
  p_some = p_above + (1 - p_above) * _any(q_above, t - 1)
  some = p_some - factors * q_some
  some = some + _RELATIVE_ERROR * (p_some + factors * q_some)
  return (1 + _RELATIVE_ERROR) * bounds + some, errors


def _tail_add(sigma: float, t: int, enough: float, factors):
  """Returns (bounds on delta, their errors) at knots of E, by one tilt."""
  # Nothing above the largest threshold need be kept.
  thresholds = t / factors
  top = min(enough, thresholds[0])
  rate = lognormal_sums.best_rate(sigma, t, top, thresholds[0], above=False)
  law = lognormal_sums.TiltedSum(sigma, t, top, 0.0, rate)
  excess, error = law.excess(thresholds)
  q_above, _ = lognormal_sums.above(sigma, top)
  some = t * q_above if top < thresholds[0] else 0.0
  scale = factors / t
  return (1 + _RELATIVE_ERROR) * scale * excess + some, scale * error


def _any(probability: float, times: int) -> float:
  """Returns 1 - (1 - p)^times."""
  if probability >= 1:
    return 1.0
  return -math.expm1(times * math.log1p(-probability))


def _best(most, least, rounding, other_least, other_rounding):
  """Returns the smaller of two bounds, and whether the first bound is tight.

  The bounds are `most - least`, accurate to within `rounding`, and `most -
  other_least`, accurate to within `other_rounding`. Both are upper bounds on
  the same difference, but only the first can be tight. It is tight if it is
  above `_LEAST_OVER_ROUNDING` times its rounding. Otherwise a bound is raised
  to that multiple of its rounding.
  """
  deltas = most - least + _RELATIVE_ERROR * (np.abs(most) + least)
  others = most - other_least + _RELATIVE_ERROR * (np.abs(most) + other_least)
  floors = _LEAST_OVER_ROUNDING * rounding
  other_floors = _LEAST_OVER_ROUNDING * other_rounding
  bounds = np.maximum(deltas, floors)
  other_bounds = np.maximum(others, other_floors)
  return np.minimum(bounds, other_bounds), deltas > floors


def _quantile(sigma: float, tail: float, shift: float) -> float:
  """Returns the x that X exceeds with probability `tail`.

  With `shift` -1/2 X is a term under Q. With 1/2 it is the term that P draws
  with weight X.
  """
  return math.exp(
      min(-special.ndtri(tail) / sigma + shift / sigma**2, 700.0)
  )


def _curve(factors, deltas) -> Curve:
  # A bound at a smaller E holds at a larger one.
  deltas = np.minimum(1.0, np.minimum.accumulate(deltas))
  # Rungs share their ends.
  kept = np.append(np.diff(factors) > 0, True)
  factors, deltas = factors[kept], deltas[kept]
  factors.setflags(write=False)
  deltas.setflags(write=False)
  return Curve(factors, deltas)
