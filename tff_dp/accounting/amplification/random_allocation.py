# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Random allocation: check-ins at a server that adds Gaussian noise itself.

Each client takes part with probability p0 and then in k of the t steps of a
pass, drawn uniformly by coins of its own. The server adds up *all* clipped
contributions of a step and adds N(0, (sigma C)^2) at *every* step, empty ones
too. Without knowing who took part when, that hides a client about as well as
Poisson sampling at rate k / t does (arXiv:2502.08202), and nobody needs to know
how many clients there are.

Trust: the server and its noise. The adversary sees all noised sums, or all
models, and not who took part when. Native adjacency: zero-out; the `remove`
direction compares a client with its being zeroed, `add` the other way around.
What a client sends in a step may depend on the model and on its data, not on
which steps it took part in before.

    epsilon(noise_multiplier=1.0, num_steps=2000, delta=1e-6)   # 0.113

Not covered: one winner per step under central noise, where other clients'
inputs change who wins, and sums divided by the realised number of reports.

docs/proofs_check_ins.md proves the reductions to one of t steps, and
`allocation_law` computes that case.
"""

import math

import numpy as np

from tff_dp import _checks
from tff_dp.accounting.amplification import allocation_law
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import run_events

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT

# What may be left out of a grid: of the target delta, and at most.
_TAIL_SHARE = 1e-4
_MOST_TAIL = 1e-10
# More steps than these are bounded by the curve of these: the mean of more
# terms varies less, and grids would become coarse.
_MANY_STEPS = 10**7
# Below it epsilon is about 100 or more, with or without amplification.
_LEAST_NOISE = 0.1


def profiles(
    *,
    noise_multiplier: float,
    num_steps: int,
    num_selected: int = 1,
    participation_probability: float = 1.0,
    tail: float = _MOST_TAIL,
) -> tuple[privacy_profiles.Profile, privacy_profiles.Profile]:
  """Returns the (remove, add) profiles of one pass, for zero-out.

  Upper bounds, never above those of `num_selected` Gaussian mechanisms.
  k of t steps are k passes of 1 of floor(t / k) (arXiv:2502.08202, section 3);
  a client that takes part with probability p0 has, with E = exp(epsilon),

      remove:  p0 delta(ln(1 + (E - 1) / p0))
      add:     (1 - E (1 - p0)) delta(ln(E p0 / (1 - E (1 - p0)))), or 0.

  Args:
    noise_multiplier: sigma / C, noise over the bound on one contribution.
    num_steps: t, steps of one pass.
    num_selected: k, steps in which a client that takes part does so.
    participation_probability: p0, of taking part in the pass at all.
    tail: Mass that may be cut off a grid of the computation, and is added.
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

  Upper bound, never above that of the Gaussian mechanisms without
  amplification. What is rounded is a share of delta, however small that is.

  Replace-one goes by zero (`two_hops`), with all passes in each hop.

  Args:
    noise_multiplier: sigma / C; under replace-one too.
    num_steps: t.
    delta: In the open interval (0, 1).
    num_selected: k.
    participation_probability: p0, with a new coin in every pass.
    num_epochs: Passes, with new draws in each.
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
  remove, add = profiles(
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
  """Returns what to cut off, a power of ten, so that calls share results."""
  power = math.floor(math.log10(max(_TAIL_SHARE * delta, 1e-300)))
  return min(_MOST_TAIL, 10.0**power)


def _one_of(sigma: float, num_steps: int, tail: float):
  """Returns the (remove, add) profiles of one of t steps, with p0 = 1."""
  alone = gaussian.profile(sigma)
  if num_steps == 1 or sigma < _LEAST_NOISE:
    return alone, alone
  remove, add = allocation_law.curves(sigma, min(num_steps, _MANY_STEPS), tail)
  return (
      privacy_profiles.minimum(alone, remove),
      privacy_profiles.minimum(alone, add),
  )


def _several(sigma: float, times: int, remove, add):
  """Returns (remove, add) of k passes; both bound both directions."""
  alone = gaussian.profile(sigma / math.sqrt(times))
  interval = privacy_profiles.suitable_interval(remove, reverse=add)
  loss = composition.alike(composition.Part(remove, times, add), interval)
  both = privacy_profiles.minimum(alone, loss.profile())
  return both, both


def _thinned_add(profile, probability: float):
  """Returns the profile of Q against (1 - p0) Q + p0 P. Exact, if `profile`."""
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
    # E p0 / rest = 1 + (E - 1) / rest; the profile does not increase.
    inner = np.log1p(np.where(is_positive, excess, 0.0) / rest)
    inner = np.maximum(epsilons, inner * (1 - 1e-15))
    return np.where(is_positive, np.minimum(rest, 1.0) * profile(inner), 0.0)

  return thinned
