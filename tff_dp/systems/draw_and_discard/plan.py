# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a draw and discard run: noise of clients, pool of the server.

Like a `DpFtrlPlan` or a `CheckInPlan`, the plan holds participation, noise and
accounting in one object, so that they cannot drift apart:

    plan = tff_dp.DrawAndDiscardPlan(
        step=tff_dp.draw_and_discard.ClientStep(
            learning_rate=0.01, clip='l2', mechanism='gaussian', epsilon=2.0,
            delta=1e-6),
        num_params=4, num_instances=20, max_participations=3, num_rounds=1000,
    ).calibrated(epsilon=4.0, delta=1e-6)

Making a plan, calibrating it and reading its epsilon needs no TensorFlow.
"""

import dataclasses
import functools
from typing import Any, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp import draws
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.participation import sampling
from tff_dp.plans import base
from tff_dp.statement import builder
from tff_dp.systems.draw_and_discard import accounting
from tff_dp.systems.draw_and_discard import client_steps
from tff_dp.systems.draw_and_discard import spam_filters
from tff_dp.systems.draw_and_discard import statement
from tff_dp.systems.draw_and_discard import strategies as instance_strategies

# Relative precision of the epsilon of one report that `calibrated` finds.
_TOLERANCE = 1e-6
# Placeholder for a missing delta. The result does not depend on it.
_SOME_DELTA = 1e-9


@_calls.helpful
@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawAndDiscardPlan(base.Plan):
  """Step of a client, its participations, and the pool of one run.

  The unit of privacy is the client: all its reports over the whole run. Each
  report is computed from the client's whole data set, which any other data set
  may replace. Nobody is trusted. No epsilon depends on the server's handling of
  the reports.

  Attributes:
    step: Step of a client, with its clip and its noise.
    num_params: Number of weights p of the model, bias included.
    num_instances: Number of instances k. 'accept_1_over_k' has one model. There
      1 / k is the probability to accept an update.
    max_participations: Largest number of rounds of one client.
    num_rounds: Number of rounds T.
    clients_per_round: Number of clients m in flight at once. The initial spread
      of the instances, the spam filter and `steps_per_round` depend on it. m
      far above k costs participations but does not move the model further.
    strategy: Strategy of the server for a report, one of
      `draw_and_discard.strategies.NAMES`.
    server_batch: Number of reports in a batch of the strategy 'server_batch'.
    spam_filter: Filter that refuses reports far from the instances, `None` for
      none. It must be calibrated for k, m, p and the distribution of the noise.
  """

  step: client_steps.ClientStep
  num_params: int
  num_instances: int
  max_participations: int
  num_rounds: int
  clients_per_round: int = 1
  strategy: str = instance_strategies.DRAW_AND_DISCARD
  server_batch: Optional[int] = None
  spam_filter: Optional[spam_filters.SpamFilter] = None

  # Fields that all plans have. Clients add the noise, so there is no mechanism
  # of the server and no separate clip norm.
  kind = 'draw_and_discard'
  basis = 'local, without amplification'
  neighboring_relation = run_events.NeighboringRelation.REPLACE_ONE
  trust = 'nobody but the own device, which clips and adds the noise'
  mechanism = None
  # Call that builds a process of such a plan.
  built_by = (
      'tff_dp.draw_and_discard.build_draw_and_discard(model, plan,'
      ' client_keys=True)'
  )

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.instance_of(
        client_steps.ClientStep,
        'a step, such as tff_dp.draw_and_discard.ClientStep(learning_rate=0.01,'
        " clip='l1', epsilon=1.0)",
        step=self.step,
    )
    for name in (
        'num_params', 'max_participations', 'num_rounds', 'clients_per_round'
    ):
      _checks.integer_at_least(1, **{name: getattr(self, name)})
    self.server  # pylint: disable=pointless-statement
    _check_spam_filter(self)

  @functools.cached_property
  def server(self) -> instance_strategies.Strategy:
    """Strategy of the server, with its numbers."""
    return instance_strategies.Strategy(
        self.strategy, self.num_instances, self.server_batch
    )

  @property
  def steps_per_round(self) -> float:
    """Expected number of steps that a round moves the mean model."""
    return self.server.steps_per_round(self.clients_per_round)

  @property
  def participation(self) -> sampling.UniformSampling:
    """Schedule of `program.train`: lots among those who came least often."""
    return sampling.UniformSampling(self.num_rounds, self.max_participations)

  @property
  def noise_multiplier(self) -> Optional[float]:
    """Std of Gaussian noise over the L2 radius of the step, 0 without noise.

    The radius is half of the step's L2 sensitivity. `None` for Laplace noise.
    """
    if not self.step.is_private:
      return 0.0
    if self.step.mechanism != 'gaussian':
      return None
    radius = self.step.l2_sensitivity(self.num_params) / 2
    return self.step.noise_scale(self.num_params) / radius

  def participations_after(self, num_rounds: Optional[int] = None) -> int:
    """Returns the largest possible number of participations of a client.

    Args:
      num_rounds: Number of rounds that have begun, `None` for all. A client
        takes part at most once in a round.
    """
    if num_rounds is None:
      num_rounds = self.num_rounds
    _checks.integer_between(0, self.num_rounds, num_rounds=num_rounds)
    return min(num_rounds, self.max_participations)

  def headline(
      self,
      *,
      delta: Optional[float],
      num_rounds: Optional[int] = None,
      **options,
  ) -> dict[str, Any]:
    """Returns epsilon and its meaning, see base class.

    Args:
      delta: Target delta, above 0 and at most 0.1. With `None` epsilon is the
        sum of the pure epsilons of the reports, which is infinite for Gaussian
        noise. The delta of the result is then `missing_delta`, because the real
        draws are bounded.
      num_rounds: Rounds after which the run stops, `None` for all.
      **options: See base class.
    """
    if delta is not None:
      return super().headline(delta=delta, num_rounds=num_rounds, **options)
    found = super().headline(
        delta=_SOME_DELTA, num_rounds=num_rounds, **options
    )
    added = self._guarantee(None, num_rounds).pure_total_epsilon
    epsilon = rounding.to_json_number(draws.counted(added, 1.0))
    return found | {
        'epsilon': epsilon,
        'delta': draws.missing_delta(added),
        'epsilon_no_amplification': epsilon,
    }

  def details(
      self,
      *,
      delta: Optional[float],
      num_rounds: Optional[int] = None,
      **options,
  ) -> dict[str, Any]:
    """Returns the cost of one report and of one weight, see base class.

    Args:
      delta: Target delta, as for `headline`.
      num_rounds: Rounds after which the run stops, `None` for all.
      **options: See base class.
    """
    del options
    found, number = self._guarantee(delta, num_rounds), rounding.to_json_number
    return {
        'epsilon_of_one_report': number(found.model_epsilon),
        'epsilon_of_added_reports': number(found.pure_total_epsilon),
        'epsilon_of_one_weight': number(
            self.step.coordinate_epsilon(self.num_params)
        ),
        'one_weight_is': accounting.FEATURE_LEVEL,
        'delta_of_one_report': found.delta,
        'delta_spent': found.total_delta,
        'participations': self.participations_after(num_rounds),
        'max_participations': self.max_participations,
        'num_params': self.num_params,
        'num_instances': self.num_instances,
        'concurrency': self.clients_per_round,
        'strategy': self.strategy,
        'noise_scale': self.step.noise_scale(self.num_params),
        'step': self.step.describe(),
    }

  def _guarantee(
      self, delta: Optional[float], num_rounds: Optional[int]
  ) -> accounting.Guarantee:
    return accounting.guarantee(
        self, participations=self.participations_after(num_rounds), delta=delta
    )

  def calibrated(self, *, epsilon: float, delta: float) -> 'DrawAndDiscardPlan':
    """Returns the plan with a step calibrated to (epsilon, delta).

    Only the step of the plan is replaced. The new step has the largest epsilon,
    to within a part in 10^6, at which the epsilon of the whole plan at `delta`
    is at most `epsilon`. Epsilons of a step above `epsilon` are not tried. (For
    Laplace noise on many weights they might be possible.) A step with Gaussian
    noise also gets `delta`.

    Args:
      epsilon: Epsilon of all participations of a client.
      delta: Delta of all participations of a client, above 0 and at most 0.1.

    Raises:
      ArgumentError: If a value is out of range, or if there is a spam filter. A
        filter fits one noise scale, so calibrate first.
      PrivacyRefusedError: If clients add no noise.
    """
    _checks.positive(epsilon=epsilon)
    _checks.delta(delta=delta)
    if self.spam_filter is not None:
      raise _checks.ArgumentError(
          'spam_filter',
          self.spam_filter,
          'None before the noise is known. Calibrate the plan first. Then make'
          ' a filter for its step with'
          ' tff_dp.draw_and_discard.calibrate_spam_filter, and add it with'
          ' dataclasses.replace(plan, spam_filter=...)',
      )
    if not self.step.is_private:
      raise _checks.PrivacyRefusedError(
          'the clients of the plan add no noise',
          why='without noise there is nothing to calibrate',
          way_out="a ClientStep with mechanism='laplace' or 'gaussian'",
      )

    def with_step(one: float) -> 'DrawAndDiscardPlan':
      changes = {'epsilon': one}
      if self.step.mechanism == 'gaussian':
        changes['delta'] = float(delta)
      step = dataclasses.replace(self.step, **changes)
      return dataclasses.replace(self, step=step)

    def is_private(one: float) -> bool:
      return with_step(one).epsilon(delta=delta) <= epsilon

    # A weight, or a report, never costs more than all of them.
    low = high = float(epsilon)
    while not is_private(low):
      low, high = low / 2, low
    while high - low > _TOLERANCE * low:
      middle = 0.5 * (low + high)
      if is_private(middle):
        low = middle
      else:
        high = middle
    return with_step(low)

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      participations: Optional[int] = None,
  ) -> float:
    """Returns epsilon of all reports of one client. Upper bound.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
      participations: Number of participations of the client, `None` for the
        largest possible number.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    found = accounting.epsilon(
        self.step,
        num_params=self.num_params,
        participations=self._participations(num_rounds, participations),
        delta=float(delta),
    )
    return self._of_draws(found, delta)

  def event(
      self,
      *,
      num_rounds: Optional[int] = None,
      participations: Optional[int] = None,
  ) -> dp_accounting.DpEvent:
    """Returns the event of all reports of one client, for replace-one.

    `epsilon_of` in the module `accounting` of this folder gives the epsilon of
    this event, and of compositions of such events.

    Args:
      num_rounds: Number of rounds after which the run stops, `None` for all.
      participations: Number of participations of the client, as in `epsilon`.
    """
    return accounting.event(
        self.step,
        num_params=self.num_params,
        participations=self._participations(num_rounds, participations),
    )

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> tuple[str, ...]:
    """See base class."""
    del delta, num_rounds
    return accounting.ASSUMPTIONS

  @property
  def voids(self) -> tuple[str, ...]:
    """See base class."""
    return () if self.step.is_private else ('the clients add no noise',)

  def _facts(self) -> dict[str, Any]:
    described = {
        field.name: getattr(self, field.name)
        for field in dataclasses.fields(self)
    }
    described['step'] = self.step.describe()
    if self.spam_filter is not None:
      described['spam_filter'] = self.spam_filter.describe()
    return described

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'DrawAndDiscardPlan':
    spam_filter = facts['spam_filter']
    return cls(**facts | {
        'step': client_steps.ClientStep(**facts['step']),
        'spam_filter': spam_filter and spam_filters.SpamFilter(**spam_filter),
    })

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    return {'participations': self.participations_after(num_rounds)}

  def participation_ledger(self, run_id: str) -> ledger_lib.ParticipationLedger:
    """Returns an empty ledger that refuses clients that came too often."""
    return ledger_lib.ParticipationLedger(
        self.participation.pattern, run_id=run_id
    )

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    del epsilon, delta
    return (
        'More noise, or a smaller max_participations, costs less; rounds beyond'
        ' max_participations cost nothing.'
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return statement.points(self, about)

  def _participations(
      self, num_rounds: Optional[int], participations: Optional[int]
  ) -> int:
    most = self.participations_after(num_rounds)
    if participations is None:
      return most
    _checks.integer_between(0, most, participations=participations)
    return int(participations)


def _check_spam_filter(plan: DrawAndDiscardPlan) -> None:
  """Raises `ArgumentError` if the spam filter does not fit the plan."""
  spam_filter = plan.spam_filter
  if spam_filter is None:
    return
  here = {
      'num_params': plan.num_params,
      'num_instances': plan.num_instances,
      'concurrency': plan.clients_per_round,
      'mechanism': plan.step.mechanism,
  }
  # A hand-written filter has no facts.
  others = {
      name: spam_filter.facts[name]
      for name, value in here.items()
      if spam_filter.facts.get(name, value) != value
  }
  if not plan.step.is_private:
    why = 'None without client noise: the spread then goes to zero'
  elif plan.strategy != instance_strategies.DRAW_AND_DISCARD:
    why = (
        f"None unless strategy='{instance_strategies.DRAW_AND_DISCARD}': with"
        ' other strategies the spread is not stationary'
    )
  elif plan.num_instances < spam_filters.LEAST_INSTANCES:
    why = f'None for num_instances below {spam_filters.LEAST_INSTANCES}'
  elif others:
    why = f'one that was calibrated for {here}, while this one has {others}'
  else:
    return
  raise _checks.ArgumentError('spam_filter', spam_filter, why)
