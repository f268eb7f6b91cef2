# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Screening of returned models against the spread of the instances.

    z_l = (returned_l - mean_l) / max(s_l, min_spread)       for every weight l

Mean and standard deviation (denominator k - 1) are over the current instances.
The test of arXiv:1807.04369, section 5, refuses a model if some |z_l| is above
a threshold. The paper gives no threshold, and none works for every number of
weights: if one weight of an honest update is outside with probability f, some
of p weights are outside with probability up to 1 - (1 - f)^p. (Exact for
independent weights. The weights of one pool share its coins. Given the coins
they are independent and have a common f. Averaging over coins only lowers the
probability, because (1 - f)^p is convex in f.) Thresholds are therefore
simulated, on a pool in its stationary state, for a given number of weights.

The screen sees only noised reports, so it costs no privacy. It bounds the
effect of one update. It does not stop an attacker who stays inside or comes
often: it is not Byzantine-robust.
"""

import dataclasses
import math
from typing import Any, NamedTuple, Optional

import numpy as np
from scipy import stats

from tff_dp import _checks
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import instance_lineages
from tff_dp.systems.draw_and_discard import strategies

RULES = ('any', 'fraction', 'norm')
# With fewer instances their standard deviation measures almost nothing.
LEAST_INSTANCES = 3
# Number of noise floats held at once, small enough for the caches.
_CHUNK = 1 << 18
# Number of weights of each pool that give the threshold of the rule 'fraction'.
_QUANTILE_WEIGHTS = 20
# Number of pools whose trees are held at once.
_POOLS = 1 << 12


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpamFilter:
  """The rule by which returned models are refused.

  For weight l, s_l is the standard deviation over the instances. The score z_l
  is the distance of the returned weight from their mean, in units of s_l (see
  the module docstring). A model is refused under the rule

  * 'any', if some abs(z_l) >= threshold,
  * 'fraction', if the share of l with abs(z_l) >= threshold is above `bound`,
  * 'norm', if the mean of z_l^2 >= threshold.

  A model that is not finite is always refused.

  Attributes:
    threshold: Threshold of the rule, above 0.
    rule: Name of the rule: 'any', 'fraction' or 'norm'.
    bound: Largest accepted share for 'fraction', in [0, 1), else None.
    min_spread: A smaller s_l counts as this number. It is above 0, in units of
      the weights. It is needed because the instances may agree on a weight.
    false_rejection_rate: Share of honest updates that are refused, as measured
      by `calibrate_spam_filter`. None if it was not measured.
    facts: Settings for which the rate was measured, and how sure it is.
  """

  threshold: float
  rule: str = 'any'
  bound: Optional[float] = None
  min_spread: float
  false_rejection_rate: Optional[float] = None
  facts: dict[str, Any] = dataclasses.field(default_factory=dict)

  def __post_init__(self):
    _checks.positive(threshold=self.threshold)
    _checks.one_of(RULES, rule=self.rule)
    _checks.positive(min_spread=self.min_spread)
    if self.rule == 'fraction':
      _checks.in_half_open(0.0, 1.0, bound=self.bound)
    elif self.bound is not None:
      raise _checks.ArgumentError(
          'bound', self.bound, "None unless rule='fraction'"
      )

  def describe(self) -> dict[str, Any]:
    """Returns all fields as JSON types, for `SpamFilter(**fields)`."""
    return dataclasses.asdict(self)

  def accepts(self, instances: np.ndarray, returned: np.ndarray) -> bool:
    """Returns whether a returned model passes, in NumPy, for tests.

    Args:
      instances: Current models, shape [k, p], k at least 3.
      returned: Returned model, shape [p].
    """
    instances = np.asarray(instances, np.float64)
    returned = np.asarray(returned, np.float64)
    if len(instances) < LEAST_INSTANCES:
      raise _checks.ArgumentError(
          'instances', len(instances), f'at least {LEAST_INSTANCES} instances'
      )
    if not np.all(np.isfinite(returned)):
      return False
    spread = np.maximum(np.std(instances, axis=0, ddof=1), self.min_spread)
    z = np.abs(returned - np.mean(instances, axis=0)) / spread
    if self.rule == 'any':
      return bool(np.all(z < self.threshold))
    if self.rule == 'norm':
      return bool(np.mean(z * z) < self.threshold)
    return bool(np.mean(z >= self.threshold) <= self.bound)


def calibrate_spam_filter(
    step: client_steps.ClientStep,
    num_params: int,
    *,
    num_instances: int,
    concurrency: int = 1,
    rule: str = 'any',
    target_rate: float = 0.01,
    fraction_threshold: Optional[float] = None,
    spread_floor: float = 0.1,
    allows_full_step: bool = True,
    num_samples: Optional[int] = None,
    confidence: float = 0.99,
    seed: int = 0,
) -> SpamFilter:
  """Returns a filter whose rate of refused honest updates meets a target.

  The filter is simulated with independent pools from the stationary
  distribution (exact, no burn-in, see `instance_lineages`) and one honest
  update each. The threshold is an order statistic, so a further honest update
  is refused with probability at most `target_rate`, averaged over the samples
  drawn here. A second set of equally many pools measures
  `false_rejection_rate`. `facts` contain 'rate_at_most', an *upper bound* on
  the true rate. It is computed from the second set, and holds with probability
  `confidence` (Clopper and Pearson, 1934).

  All weights of a pool are simulated. Given the pool's coins they are
  independent, but a refusal depends on the few farthest weights, which a sample
  of weights does not show. Each weight costs one noise draw per edge of its
  pool's tree, about 1.3 k draws. A thousand weights take seconds.

  Pools are simulated without gradients. The step of the update itself is
  counted at its bound, learning_rate * clip_norm away from the mean in every
  weight, unless `allows_full_step` is false.

  Args:
    step: Step of the clients. It has to add noise.
    num_params: Number of weights p.
    num_instances: Number of instances k, at least 3.
    concurrency: Number of clients m of a round.
    rule: 'any', 'fraction' or 'norm'.
    target_rate: Target rate of refused honest updates, in (0, 1).
    fraction_threshold: Threshold on abs(z) for the rule 'fraction'. Default:
      abs(z) reaches it in a share `target_rate` / 2 of the weights of honest
      updates.
    spread_floor: `min_spread` as a share of the stationary standard deviation,
      in (0, 1).
    allows_full_step: Whether the update's own step is counted at its bound.
    num_samples: Number of pools of each set, at least 2 / target_rate. Default:
      20 / target_rate, rounded up. The time grows with num_samples * k * p.
    confidence: Confidence of the upper bound, in (0, 1).
    seed: Seed of the simulation. It is public.

  Raises:
    ArgumentError: If a value is out of range, if the step adds no noise, if
      there are too few samples for `target_rate`, or if all weights reach
      `fraction_threshold` in too many honest updates.
  """
  _checks.integer_at_least(1, num_params=num_params)
  _checks.integer_at_least(LEAST_INSTANCES, num_instances=num_instances)
  _checks.integer_at_least(1, concurrency=concurrency)
  _checks.one_of(RULES, rule=rule)
  _checks.in_open(0.0, 1.0, target_rate=target_rate)
  if fraction_threshold is not None:
    _checks.positive(fraction_threshold=fraction_threshold)
  _checks.in_open(0.0, 1.0, spread_floor=spread_floor)
  _checks.in_open(0.0, 1.0, confidence=confidence)
  if not step.is_private:
    raise _checks.ArgumentError(
        'mechanism',
        step.mechanism,
        "'laplace' or 'gaussian': without noise the instances have no spread",
    )
  if num_samples is None:
    num_samples = math.ceil(20 / target_rate)
  # Fewer samples do not show the rate.
  _checks.integer_at_least(math.ceil(2 / target_rate), num_samples=num_samples)
  variance = step.noise_variance(num_params)
  spread = math.sqrt(
      strategies.stationary_variance(
          num_instances, noise_variance=variance, concurrency=concurrency
      )
  )
  floor = spread_floor * spread
  farthest = step.coordinate_sensitivity() / 2 if allows_full_step else 0.0
  honest = _Honest(
      mechanism=step.mechanism,
      scale=step.noise_scale(num_params),
      num_weights=num_params,
      num_instances=num_instances,
      concurrency=concurrency,
      floor=floor,
      farthest=farthest,
  )
  rng = np.random.default_rng([seed, num_instances, concurrency, num_params])
  if rule == 'fraction' and fraction_threshold is None:
    # The distribution of one weight does not depend on their number.
    few = honest._replace(num_weights=min(num_params, _QUANTILE_WEIGHTS))
    fraction_threshold = float(
        np.quantile(
            few.statistics(lambda z: z, num_samples, rng), 1 - target_rate / 2
        )
    )
  statistic = {
      'any': lambda z: np.max(z, axis=1),
      'fraction': lambda z: np.mean(z >= fraction_threshold, axis=1),
      'norm': lambda z: np.mean(np.square(z), axis=1),
  }[rule]
  values = np.sort(honest.statistics(statistic, num_samples, rng))
  # If N + 1 values are exchangeable, the last one exceeds the r-th smallest of
  # the others with probability at most (N + 1 - r) / (N + 1).
  # With 2 / target_rate samples or more, r is at most N - 1.
  rank = math.ceil((1 - target_rate) * (num_samples + 1))
  cut = float(values[rank - 1])
  fresh = honest.statistics(statistic, num_samples, rng)
  if rule == 'fraction':
    if cut >= 1:
      raise _checks.ArgumentError(
          'fraction_threshold',
          fraction_threshold,
          'a larger threshold: every weight reaches this threshold in too many'
          ' honest updates',
      )
    threshold, bound = float(fraction_threshold), cut
    num_refused = int(np.sum(fresh > cut))
  else:
    threshold, bound = float(np.nextafter(cut, math.inf)), None
    num_refused = int(np.sum(fresh >= threshold))
  return SpamFilter(
      threshold=threshold,
      rule=rule,
      bound=bound,
      min_spread=floor,
      false_rejection_rate=num_refused / num_samples,
      facts={
          'num_params': int(num_params),
          'num_instances': int(num_instances),
          'concurrency': int(concurrency),
          'mechanism': step.mechanism,
          'target_rate': float(target_rate),
          'num_samples': int(num_samples),
          'standard_error': math.sqrt(
              target_rate * (1 - target_rate) / num_samples
          ),
          'rate_at_most': _rate_at_most(num_refused, num_samples, confidence),
          'confidence': float(confidence),
          'spread_floor': float(spread_floor),
          'full_step': farthest,
      },
  )


def _rate_at_most(count: int, num_samples: int, confidence: float) -> float:
  """Returns an upper bound on a probability, which holds with `confidence`.

  Args:
    count: Number of samples in which the event happened.
    num_samples: Number of samples.
    confidence: Confidence of the bound, in (0, 1).
  """
  if count == num_samples:
    return 1.0
  return float(stats.beta.ppf(confidence, count + 1, num_samples - count))


class _Honest(NamedTuple):
  """A simulation of honest updates that return to stationary pools."""

  mechanism: str
  scale: float
  num_weights: int
  num_instances: int
  concurrency: int
  floor: float
  farthest: float

  def statistics(self, statistic, num_samples: int, rng) -> np.ndarray:
    """Returns the values of a statistic for simulated pools, in some order.

    Args:
      statistic: Function of abs(z), shape [pools, weights].
      num_samples: Number of pools.
      rng: Random generator.
    """
    found = []
    for start in range(0, num_samples, _POOLS):
      lineages = instance_lineages.sample(
          self.num_instances,
          min(_POOLS, num_samples - start),
          rng,
          concurrency=self.concurrency,
      )
      for chunk in instance_lineages.in_chunks(
          lineages, max(1, _CHUNK // self.num_weights)
      ):
        values = instance_lineages.weights(
            chunk, self.num_weights, rng, mechanism=self.mechanism
        )
        values *= np.float32(self.scale)
        found.append(statistic(self._distances(values)))
    return np.concatenate(found)

  def _distances(self, values: np.ndarray) -> np.ndarray:
    instances, returned = values[:, :-1], values[:, -1]
    spread = np.std(instances, axis=1, ddof=1)
    spread = np.maximum(spread, np.float32(self.floor))
    distance = np.abs(returned - np.mean(instances, axis=1))
    return (distance + np.float32(self.farthest)) / spread
