# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose trusted server draws each cohort by secret coins.

    plan = tff_dp.SamplingPlan(
        population=3400,
        clients_per_round=100,
        num_rounds=200,
        noise_multiplier=1.0,
    )
    plan.epsilon(delta=1e-5)  # 2.75

In each round every client takes part with probability `clients_per_round /
population`, independently of everything else. The sum of the clipped updates
gets Gaussian noise, and is divided by `clients_per_round`, however many came.

With `unit='example'` this is DP-SGD: the clients are the examples of one
holder, and a cohort is a batch.

Making a plan and reading its epsilon needs no TensorFlow.
"""

import dataclasses
import functools
import math
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import run_events
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.plans import coarse_plan
from tff_dp.statement import builder
from tff_dp.systems.sampling import statement

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT
UNITS = ('client', 'example')
# With less noise no amplification is claimed: one round costs about 50, and the
# grid of losses would take minutes.
_LEAST_NOISE = 0.1


@_calls.helpful
@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingPlan(coarse_plan.CoarsePlan):
  """Poisson sampling, clipping and independent Gaussian noise of one run.

  The unit of privacy is the client, with all its contributions to the run, or
  the example. Every epsilon is for zero-out adjacency unless another relation
  is given by name. Epsilon for add-or-remove-one is the same number: rate and
  divisor are constants of the plan, so a contribution of zeros releases the
  same as no contribution.

  Attributes:
    population: Number of clients. For DP-SGD the number of examples.
    clients_per_round: Expected size of a cohort, and the divisor of the noised
      sum. For DP-SGD the batch size.
    num_rounds: Number of rounds T. For DP-SGD the number of steps.
    noise_multiplier: Standard deviation of the noise on the SUM, over the clip
      norm. `None` until calibrated. 0 gives no privacy.
    l2_norm_clip: Bound on the L2 norm of one contribution. With adaptive
      clipping, the bound in the first round.
    unit: 'client' or 'example'.
    adaptive_clipping: Rule by which the clip norm follows the norms of the
      contributions, or `None` for a fixed clip norm.
  """

  population: int
  clients_per_round: int
  num_rounds: int
  noise_multiplier: Optional[float] = None
  l2_norm_clip: float = 1.0
  unit: str = 'client'
  adaptive_clipping: Optional[adaptive_clipping_lib.AdaptiveClipping] = None

  kind = 'sampling'
  neighboring_relation = _ZERO_OUT
  basis = "amplified by the server's secret coins, as the statement says"

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.one_of(UNITS, unit=self.unit)
    _checks.integer_at_least(1, population=self.population)
    _checks.integer_between(
        1, self.population, clients_per_round=self.clients_per_round
    )
    _checks.integer_between(1, _checks.MOST_ROUNDS, num_rounds=self.num_rounds)
    if self.noise_multiplier is not None:
      _checks.non_negative(noise_multiplier=self.noise_multiplier)
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    adaptive_clipping_lib.check(self.adaptive_clipping)

  @property
  def trust(self) -> str:
    """See base class."""
    if self.unit == 'example':
      return 'the holder of the data, with its coins and its noise'
    return (
        'the server that draws the cohorts, sees updates, clips, sums and adds'
        ' noise, and whoever reads its memory or the folder secret/'
    )

  @property
  def sampling_rate(self) -> float:
    """The probability q with which a client takes part in a round."""
    return self.clients_per_round / self.population

  @property
  def mechanism(self) -> mechanism_lib.Independent:
    """Mechanism of the noise: independent noise in every round."""
    return mechanism_lib.Independent(self.num_rounds)

  @property
  def noise_multiplier_by_domain(self) -> dict[str, float]:
    """Noise multiplier of every stream of noise, by the name of the stream.

    The stream 'value' is for updates. With adaptive clipping, 'quantile' is for
    the bits from which the server estimates a quantile of the norms. In a round
    a client is in both streams or in neither, so the two together are one
    sampled Gaussian mechanism.
    """
    return adaptive_clipping_lib.noise_multiplier_by_domain(
        self._noise(), self.adaptive_clipping
    )

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """Returns epsilon of everything that the run releases. Upper bound.

    With a noise multiplier below 0.1, amplification is not counted.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon, `None` for zero-out.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    found = _epsilon(
        self.sampling_rate,
        self._noise(),
        self._stops_at(num_rounds),
        float(delta),
        run_events.NeighboringRelation(neighboring_relation or _ZERO_OUT),
    )
    return self._of_draws(found, delta)

  def epsilon_no_amplification(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """Returns epsilon without amplification: the cohorts are not secret.

    The adversary has chosen the cohorts, or knows them. So a client may be in
    every round. Exact for a run of all planned rounds. If the run stops
    earlier, epsilon is exact for `rounds_accounted(num_rounds)` rounds, which
    may be a few more.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon, `None` for zero-out.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    found = _unsampled_epsilon(
        self._noise(),
        self.rounds_accounted(num_rounds),
        float(delta),
        run_events.NeighboringRelation(neighboring_relation or _ZERO_OUT),
    )
    return self._of_draws(found, delta)

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> tuple[str, ...]:
    """See base class."""
    del delta, num_rounds, options
    if self.clients_per_round == self.population:
      return ()
    return statement.assumptions(self)

  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the event of the run, for any accountant of dp_accounting.

    Give the accountant the relation ADD_OR_REMOVE_ONE.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    return _event(
        self.sampling_rate, self._noise(), self._stops_at(num_rounds)
    )

  def aggregator(self, *, insecure_seed: Optional[int] = None):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the plan.

    Args:
      insecure_seed: Seed for tests only. Anybody who knows it can remove the
        noise.
    """
    # pylint: disable=g-import-not-at-top
    options = dict(
        noise_multiplier=self._noise(),
        clients_per_round=self.clients_per_round,
        insecure_seed=insecure_seed,
        plan=self,
    )
    if self.adaptive_clipping is not None:
      from tff_dp.aggregators import adaptive_clipping

      return adaptive_clipping.AdaptiveClippingFactory(
          self.mechanism,
          adaptive_clipping=self.adaptive_clipping,
          initial_l2_norm_clip=self.l2_norm_clip,
          **options,
      )
    from tff_dp.aggregators import correlated_noise

    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism, l2_norm_clip=self.l2_norm_clip, **options
    )

  @property
  def voids(self) -> tuple[str, ...]:
    """See base class."""
    return ('the noise multiplier is 0',) if self._noise() == 0 else ()

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    return {
        'noise_multiplier': self._noise(),
        'sampling_rate': self.sampling_rate,
        'rounds_accounted': self.rounds_accounted(num_rounds),
    }

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    needed = self.calibrated(epsilon=epsilon, delta=delta).noise_multiplier
    return (
        f'All {self.num_rounds} fit with'
        f' noise_multiplier={rounding.rounded_up(needed)}.'
    )

  def headline(
      self, *, population: Optional[int] = None, **options
  ) -> dict[str, Any]:
    """See base class. The population is the field of the plan."""
    del population
    return super().headline(population=self.population, **options)

  def details(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
      population: Optional[int] = None,
  ) -> dict[str, Any]:
    """See base class."""
    del neighboring_relation, population
    return statement.details(self, delta=delta, num_rounds=num_rounds)

  def details_in_words(self, details: dict[str, Any]) -> list[tuple[str, str]]:
    """See base class."""
    return statement.in_words(self, details)

  def _facts(self) -> dict[str, Any]:
    return dataclasses.asdict(self)

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'SamplingPlan':
    clipping = facts.pop('adaptive_clipping')
    return cls(
        adaptive_clipping=clipping
        and adaptive_clipping_lib.AdaptiveClipping(**clipping),
        **facts,
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return statement.points(self, about)

  @property
  def _start_noise(self) -> float:
    return 1.0

  def _with_noise(self, noise: float) -> 'SamplingPlan':
    return dataclasses.replace(self, noise_multiplier=noise)

  def _noise(self) -> float:
    if self.noise_multiplier is None:
      raise _checks.PrivacyRefusedError(
          'the plan has no noise_multiplier',
          why='without one it neither adds noise nor has an epsilon',
          way_out='plan.calibrated(epsilon=..., delta=...), or noise_multiplier='
          '... (0 for a run without privacy)',
      )
    return self.noise_multiplier


def check_no_public_seed(schedule_seed: int) -> None:
  """Raises `ArgumentError` unless `schedule_seed` is 0."""
  if schedule_seed:
    raise _checks.ArgumentError(
        'schedule_seed',
        schedule_seed,
        '0: the coins of the server are secret, so they follow from no public'
        ' seed',
    )


def _event(
    rate: float, noise_multiplier: float, num_rounds: int
) -> dp_accounting.DpEvent:
  """Returns the event of `num_rounds` rounds, stated for zero-out."""
  if noise_multiplier == 0:
    return dp_accounting.NonPrivateDpEvent()
  event = dp_accounting.GaussianDpEvent(noise_multiplier)
  if rate < 1:
    event = dp_accounting.PoissonSampledDpEvent(rate, event)
  return dp_accounting.SelfComposedDpEvent(event, num_rounds)


# A statement asks for many deltas.
@functools.lru_cache(maxsize=16)
def _loss(
    rate: float, noise_multiplier: float, num_rounds: int
) -> composition.Loss:
  """Returns the privacy loss of `num_rounds` rounds under zero-out."""
  return accountants.loss(_event(rate, noise_multiplier, num_rounds))


# Every checkpoint writes a statement, and every round a row of metrics.
@functools.lru_cache(maxsize=4096)
def _epsilon(
    rate: float,
    noise_multiplier: float,
    num_rounds: int,
    delta: float,
    relation: run_events.NeighboringRelation,
) -> float:
  """Returns epsilon of `num_rounds` rounds, at most epsilon without sampling.
  """
  plain = _unsampled_epsilon(noise_multiplier, num_rounds, delta, relation)
  if rate == 1 or plain == math.inf or noise_multiplier < _LEAST_NOISE:
    return plain
  loss = _loss(rate, noise_multiplier, num_rounds)
  if relation is _ZERO_OUT:
    return min(plain, loss.epsilon(delta))
  return min(plain, replace_one.epsilon_of_loss(loss, delta))


@functools.lru_cache(maxsize=4096)
def _unsampled_epsilon(
    noise_multiplier: float,
    num_rounds: int,
    delta: float,
    relation: run_events.NeighboringRelation,
) -> float:
  """Returns epsilon of `num_rounds` rounds with one client in all of them."""
  sigma = run_events.effective_sigma(
      noise_multiplier=noise_multiplier,
      squared_sensitivity=num_rounds,
      neighboring_relation=relation,
  )
  return gaussian.exact_epsilon(sigma=sigma, delta=delta)
