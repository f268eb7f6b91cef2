# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The DP-FTRL plan: participation, noise, and the accounting of both.

A claim about privacy depends on all three at once. The plan is the one object
that holds them, so the aggregator, the event, the ledgers and the statement
cannot drift apart:

    participation = tff_dp.participation.MinSeparation(2000, min_index_gap=314)
    plan = tff_dp.DpFtrlPlan(
        mechanism=tff_dp.mechanisms.HonakerTree(2000),
        participation=participation,
        l2_norm_clip=1.0,
        clients_per_round=100,
    ).calibrated(epsilon=8.0, delta=1e-6)

Making a plan, calibrating it and reading its epsilon needs no TensorFlow.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any, Optional

import dp_accounting
import numpy as np

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting import calibration
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import guesses
from tff_dp.accounting.events import run_events
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.dp_ftrl import statement

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT
# Few values differ over a run, for one participation one per level of a tree.
_exact_epsilon = functools.lru_cache(maxsize=4096)(gaussian.exact_epsilon)
_PROFILE_EPSILONS = (0.0, *np.geomspace(1e-2, 1e2, 41).tolist())


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class DpFtrlPlan(base.Plan):
  """Mechanism, participation, clipping and cohort of one run.

  The unit of privacy is the client: all contributions of one client over the
  whole run. Every epsilon is for zero-out adjacency unless another relation is
  given by name. An epsilon covers every released model and claims no
  amplification.

  Attributes:
    mechanism: Mechanism that adds the noise of every round.
    participation: Schedule that says who takes part and promises limits.
    l2_norm_clip: Bound on the L2 norm of one client's whole update. With
      adaptive clipping, the bound in the first tree.
    clients_per_round: Expected number of clients, the divisor of the mean.
    noise_multiplier: Standard deviation of one draw of the mechanism on the
      SUM, over the clip norm. `None` until calibrated. 0 gives no privacy. With
      adaptive clipping it is the multiplier of updates and quantile bits
      together, so the updates get slightly more noise.
    adaptive_clipping: Rule by which the clip norm follows the clients' norms.
      Each client then also sends a bit, from which the server estimates a
      quantile of the norms. `None` for a fixed clip norm.
  """

  mechanism: mechanism_lib.Mechanism
  participation: sampling.Schedule
  l2_norm_clip: float
  clients_per_round: int
  noise_multiplier: Optional[float] = None
  adaptive_clipping: Optional[adaptive_clipping_lib.AdaptiveClipping] = None

  kind = 'dp_ftrl'
  neighboring_relation = _ZERO_OUT
  basis = 'no amplification'
  curve_deltas = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10, 1e-12)
  trust = (
      'the server that sees updates, clips, sums and adds noise, and whoever'
      ' reads its memory or the folder secret/'
  )

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.instance_of(
        mechanism_lib.Mechanism,
        'a mechanism, such as tff_dp.mechanisms.Blt.optimized(participation,'
        ' num_buffers=3)',
        mechanism=self.mechanism,
    )
    _checks.instance_of(
        sampling.Schedule,
        'a schedule, such as tff_dp.participation.MinSeparation(num_rounds,'
        ' min_index_gap=...)',
        participation=self.participation,
    )
    _checks.clip_norm(l2_norm_clip=self.l2_norm_clip)
    _checks.integer_at_least(1, clients_per_round=self.clients_per_round)
    if self.noise_multiplier is not None:
      _checks.non_negative(noise_multiplier=self.noise_multiplier)
    if self.mechanism.num_rounds != self.participation.num_rounds:
      raise _checks.ArgumentError(
          'participation.num_rounds',
          self.participation.num_rounds,
          f'mechanism.num_rounds, {self.mechanism.num_rounds}',
      )
    if isinstance(self.participation, sampling.ShuffledEpochs):
      _check_shuffles(self.mechanism, self.participation)
    adaptive_clipping_lib.check(self.adaptive_clipping)
    if self.adaptive_clipping is not None:
      adaptive_clipping_lib.rounds_per_clip_norm(self.mechanism)

  @property
  def num_rounds(self) -> int:
    """Horizon T: the number of rounds."""
    return self.mechanism.num_rounds

  @functools.cached_property
  def squared_sensitivity(self) -> float:
    """Squared sensitivity S2 of a full run, in squared clip norms, zero-out.

    Exact or an upper bound, as `Mechanism.sensitivity_is_exact` tells.
    """
    return self.mechanism.squared_sensitivity(self.participation.pattern)

  @functools.cached_property
  def squared_sensitivity_by_round(self) -> np.ndarray:
    """Squared sensitivity of a run that stops after 1..T rounds, shape [T].

    The array is read-only, because every epsilon of the plan comes from it.
    """
    found = self.mechanism.squared_sensitivity_by_round(
        self.participation.pattern
    )
    found.setflags(write=False)
    return found

  @property
  def noise_multiplier_by_domain(self) -> dict[str, float]:
    """Noise multiplier of every stream of noise, by the name of the stream.

    The stream 'value' is for updates. With adaptive clipping, 'quantile' is for
    the quantile bits. The multiplier is the standard deviation of one draw of
    noise on a sum, over the bound on one client's share of that sum in a round.
    The bound is the clip norm for updates, and 1/2 for the bits.
    """
    return adaptive_clipping_lib.noise_multiplier_by_domain(
        self._noise(), self.adaptive_clipping
    )

  def calibrated(
      self,
      *,
      epsilon: float,
      delta: float,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> 'DpFtrlPlan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`.

    Args:
      epsilon: Epsilon of the whole run, above 0.
      delta: Target delta, above 0 and at most 0.1.
      neighboring_relation: Relation under which epsilon must hold.
    """
    _checks.delta(delta=delta)
    return dataclasses.replace(
        self,
        noise_multiplier=calibration.noise_multiplier(
            epsilon=epsilon,
            delta=delta,
            squared_sensitivity=self.squared_sensitivity,
            neighboring_relation=neighboring_relation,
        ),
    )

  def sigma(
      self,
      *,
      num_rounds: Optional[int] = None,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> float:
    """Returns the noise multiplier of the run as one Gaussian mechanism.

    For zero-out it is `noise_multiplier` / sqrt(S2), where S2 is the squared
    sensitivity of the rounds up to `num_rounds`.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation to account under.
    """
    return run_events.effective_sigma(
        noise_multiplier=self._noise(),
        squared_sensitivity=self._squared_sensitivity_after(num_rounds),
        neighboring_relation=neighboring_relation,
    )

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
      method: str = 'exact',
      also: Sequence[dp_accounting.DpEvent] = (),
  ) -> float:
    """Returns epsilon of the run, composed with the events in `also`.

    Args:
      delta: Target delta, in (0, 1). Choose it below 1 / population.
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation to account under.
      method: 'exact', 'pld' or 'rdp', see `accounting.accountants`. 'exact'
        needs every event of `also` to be a composition of Gaussian events.
      also: Other events of the same clients, such as an evaluation with DP
        metrics. They are stated for zero-out: their noise multiplier is the
        standard deviation over the bound on the norm of one contribution. This
        method converts them to `neighboring_relation`.
    """
    if also or method != 'exact':
      found = accountants.epsilon(
          dp_accounting.ComposedDpEvent(
              [self.event(num_rounds=num_rounds), *also]
          ),
          delta=delta,
          method=method,
          neighboring_relation=neighboring_relation,
      )
    else:
      found = _exact_epsilon(
          sigma=self.sigma(
              num_rounds=num_rounds, neighboring_relation=neighboring_relation
          ),
          delta=delta,
      )
    return self._of_draws(found, delta)

  def profiles(
      self, *, num_rounds: Optional[int] = None, is_amplified: bool = True
  ) -> tuple[guesses.Profile, ...]:
    """See base class. Returns one profile, whose first pair has epsilon 0.

    The delta of a pair is the exact delta of a Gaussian mechanism with
    `sigma()`, plus `missing_delta`, because the draws of a computer are
    bounded.
    """
    del is_amplified
    sigma = self.sigma(num_rounds=num_rounds)
    points = []
    for epsilon in _PROFILE_EPSILONS:
      delta = gaussian.exact_delta(sigma=sigma, epsilon=epsilon)
      delta += self.missing_delta(epsilon)
      points.append((epsilon, min(1.0, math.nextafter(delta, math.inf))))
    return (tuple(points),)

  def event(
      self,
      *,
      num_rounds: Optional[int] = None,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> dp_accounting.DpEvent:
    """Returns the event of the run, for any dp_accounting accountant.

    The event is one Gaussian mechanism. Its noise multiplier is `sigma()`, the
    noise over the sensitivity of the whole run. With adaptive clipping the
    event is a composition of two Gaussian mechanisms, which together cost as
    much as one with the noise multiplier `sigma()`. Without noise, each of
    these mechanisms is a `NonPrivateDpEvent`.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation that the noise multipliers are stated for.
        Keep the default if the accountant itself converts zero-out to another
        relation, as `accounting.accountants` does.
    """
    streams = [
        run_events.run_event(
            noise_multiplier=noise_multiplier,
            squared_sensitivity=self._squared_sensitivity_after(num_rounds),
            neighboring_relation=neighboring_relation,
        )
        for noise_multiplier in self.noise_multiplier_by_domain.values()
    ]
    if len(streams) == 1:
      return streams[0]
    return dp_accounting.ComposedDpEvent(streams)

  def aggregator(self, *, insecure_seed: Optional[int] = None):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the plan.

    Args:
      insecure_seed: Seed for tests only. Anybody who knows it can remove the
        noise.
    """
    # The only part of a plan that needs TensorFlow.
    # pylint: disable=g-import-not-at-top
    if self.adaptive_clipping is not None:
      from tff_dp.aggregators import adaptive_clipping

      return adaptive_clipping.AdaptiveClippingFactory(
          self.mechanism,
          adaptive_clipping=self.adaptive_clipping,
          noise_multiplier=self._noise(),
          initial_l2_norm_clip=self.l2_norm_clip,
          clients_per_round=self.clients_per_round,
          insecure_seed=insecure_seed,
          plan=self,
      )
    from tff_dp.aggregators import correlated_noise

    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism,
        noise_multiplier=self._noise(),
        l2_norm_clip=self.l2_norm_clip,
        clients_per_round=self.clients_per_round,
        insecure_seed=insecure_seed,
        plan=self,
    )

  @property
  def voids(self) -> tuple[str, ...]:
    """See base class."""
    return ('the noise multiplier is 0',) if self._noise() == 0 else ()

  def _facts(self) -> dict[str, Any]:
    return {
        'mechanism': self.mechanism.describe(),
        'participation': {
            'name': type(self.participation).__name__,
            **dataclasses.asdict(self.participation),
        },
        'l2_norm_clip': self.l2_norm_clip,
        'clients_per_round': self.clients_per_round,
        'noise_multiplier': self.noise_multiplier,
        'adaptive_clipping': (
            self.adaptive_clipping
            and dataclasses.asdict(self.adaptive_clipping)
        ),
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'DpFtrlPlan':
    clipping = facts['adaptive_clipping']
    return cls(**facts | {
        'mechanism': catalogue.from_description(facts['mechanism']),
        'participation': sampling.from_description(facts['participation']),
        'adaptive_clipping': (
            clipping and adaptive_clipping_lib.AdaptiveClipping(**clipping)
        ),
    })

  def prefix_errors(self) -> tuple[float, float]:
    """Returns (rmse, largest error) of the noise on the sums so far.

    See `Mechanism.prefix_errors`.
    """
    return self.mechanism.prefix_errors(self._noise())

  def details(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
      population: Optional[int] = None,
  ) -> dict[str, Any]:
    """See base class. The sensitivity is always for zero-out adjacency."""
    del population
    return statement.details(
        self,
        delta=delta,
        num_rounds=num_rounds,
        relation=run_events.NeighboringRelation(
            neighboring_relation or self.neighboring_relation
        ),
    )

  def details_in_words(self, details: dict[str, Any]) -> list[tuple[str, str]]:
    """See base class."""
    return statement.in_words(details)

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    spent = {
        'noise_multiplier': self._noise(),
        'squared_sensitivity': self._squared_sensitivity_after(num_rounds),
    }
    if self.adaptive_clipping is not None:
      # Parts of the one event, whose 1 / noise_multiplier^2 add up.
      spent['streams'] = self.noise_multiplier_by_domain
    return spent

  def participation_ledger(self, run_id: str) -> ledger_lib.ParticipationLedger:
    """Returns an empty ledger that enforces the plan's participation."""
    return ledger_lib.ParticipationLedger(
        self.participation.pattern,
        restart_every=self.mechanism.restart_every,
        run_id=run_id,
    )

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    needed = self.calibrated(epsilon=epsilon, delta=delta).noise_multiplier
    return (
        f'All {self.num_rounds} fit with'
        f' noise_multiplier={rounding.rounded_up(needed)}.'
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return statement.points(self, about)

  def _squared_sensitivity_after(self, num_rounds: Optional[int]) -> float:
    if num_rounds is None:
      return self.squared_sensitivity
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return float(self.squared_sensitivity_by_round[num_rounds - 1])

  def _noise(self) -> float:
    if self.noise_multiplier is None:
      raise _checks.PrivacyRefusedError(
          'the plan has no noise_multiplier',
          why='without one it neither adds noise nor has an epsilon',
          way_out='plan.calibrated(epsilon=..., delta=...), or noise_multiplier='
          '... (0 for a run without privacy)',
      )
    return self.noise_multiplier


def check_is_dp_ftrl(plan: Any) -> None:
  """Raises `ArgumentError` unless a plan is a `DpFtrlPlan`."""
  builder = getattr(plan, 'built_by', None)
  other = f'; for this plan there is {builder}' if builder else ''
  _checks.instance_of(DpFtrlPlan, f'a tff_dp.DpFtrlPlan{other}', plan=plan)


def _check_shuffles(mechanism, participation) -> None:
  """Raises `ArgumentError` if clients could change their order within a tree.

  Each tree must begin with a new epoch, and each new shuffle with a new tree.
  The rule applies to independent noise, too. There S2 does not depend on the
  order, but ledger and statement promise the order and the gap of the pattern.
  """
  restart_every = mechanism.restart_every
  rounds = participation.rounds_per_shuffle
  if restart_every is not None and restart_every % participation.rounds_per_epoch:
    raise _checks.ArgumentError(
        'restart_every',
        restart_every,
        f'a multiple of rounds_per_epoch, {participation.rounds_per_epoch}, so '
        'that every tree begins with a new epoch',
    )
  if rounds is not None and rounds < participation.num_rounds:
    if restart_every is None or rounds % restart_every:
      raise _checks.ArgumentError(
          'restart_every',
          restart_every,
          f'a divisor of {rounds}, the number of rounds after which the '
          'population is shuffled again: the order may change only when a new'
          ' tree begins (UniformSampling with max_participations needs no'
          ' order)',
      )
