# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The privacy plan: who takes part, what noise is added, how both are accounted.

A claim about privacy is about these three at once. The plan is the one object
that holds them, so the aggregator, the event, the ledgers and the statement
cannot drift apart:

    participation = tff_dp.participation.MinSeparation(2000, min_index_gap=314)
    plan = tff_dp.PrivacyPlan(
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
import hashlib
import json
from typing import Any, Optional

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting import accountants
from tff_dp.accounting import calibration
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.ledger import budget
from tff_dp.ledger import measured
from tff_dp.ledger import participation_ledger as ledger_lib
from tff_dp.mechanisms import adaptive_clipping as adaptive_clipping_lib
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.participation import sampling
from tff_dp.plans import dp_ftrl_statement
from tff_dp.statement import statement as statement_lib

_ZERO_OUT = run_events.NeighboringRelation.ZERO_OUT


@dataclasses.dataclass(frozen=True)
class PrivacyPlan:
  """Mechanism, participation, clipping and cohort of one run.

  The unit of privacy is the client: all contributions of one client over the
  whole run. Every epsilon is for zero-out adjacency unless another relation is
  asked for by name, counts every released model, and claims no amplification.

  Attributes:
    mechanism: What noise is added in which round.
    participation: Who takes part, and how that is promised.
    l2_norm_clip: Bound on the L2 norm of one client's whole update; with
      adaptive clipping, that of the first tree.
    clients_per_round: Expected number of clients, the divisor of the mean.
    noise_multiplier: Standard deviation of one draw of the mechanism on the
      SUM, over the clip norm. `None` until calibrated; 0 gives no privacy. With
      adaptive clipping, that of updates and bits together: the updates alone
      get a little more noise.
    adaptive_clipping: How the clip norm follows the clients' norms, or `None`
      for a fixed one.
  """

  mechanism: mechanism_lib.Mechanism
  participation: sampling.Schedule
  l2_norm_clip: float
  clients_per_round: int
  noise_multiplier: Optional[float] = None
  adaptive_clipping: Optional[adaptive_clipping_lib.AdaptiveClipping] = None

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
    if self.adaptive_clipping is not None:
      adaptive_clipping_lib.rounds_per_clip_norm(self.mechanism)

  @property
  def num_rounds(self) -> int:
    """The horizon T."""
    return self.mechanism.num_rounds

  @functools.cached_property
  def squared_sensitivity(self) -> float:
    """S2 of a full run, in squared clip norms, zero-out adjacency. Exact."""
    return self.mechanism.squared_sensitivity(self.participation.pattern)

  @functools.cached_property
  def squared_sensitivity_by_round(self) -> np.ndarray:
    """S2 of a run that stops after 1..T rounds, shape [num_rounds]."""
    return self.mechanism.squared_sensitivity_by_round(
        self.participation.pattern
    )

  @property
  def noise_multiplier_by_domain(self) -> dict[str, float]:
    """Returns the noise multiplier of every stream, by the domain of its key.

    Each is the std of a draw on that stream's sum, over the bound on what one
    client adds to it in a round: the clip norm, and 1/2 for the bits.
    """
    total, clipping = self._noise(), self.adaptive_clipping
    if clipping is None:
      return {'value': total}
    return {
        'value': clipping.value_noise_multiplier(total),
        'quantile': clipping.quantile_noise_multiplier(total),
    }

  def calibrated(
      self,
      *,
      epsilon: float,
      delta: float,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> 'PrivacyPlan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`.
    """
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

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: The relation to account under.
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
    """Returns epsilon of the run, and of what else is released about clients.

    Args:
      delta: In (0, 1); choose it below 1 / population.
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: The relation to account under.
      method: 'exact', 'pld' or 'rdp': see `accounting.accountants`. 'exact'
        needs every event of `also` to be a composition of Gaussian ones.
      also: Other events of the same clients, such as an evaluation with DP
        metrics, stated for zero-out: their noise over the bound on one
        contribution's norm. They are converted to the relation here.
    """
    if also or method != 'exact':
      return accountants.epsilon(
          dp_accounting.ComposedDpEvent(
              [self._event(num_rounds=num_rounds), *also]
          ),
          delta=delta,
          method=method,
          neighboring_relation=neighboring_relation,
      )
    return gaussian.exact_epsilon(
        sigma=self.sigma(
            num_rounds=num_rounds, neighboring_relation=neighboring_relation
        ),
        delta=delta,
    )

  def event(
      self,
      *,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> dp_accounting.DpEvent:
    """Returns the event of a full run, for any dp_accounting accountant.

    One Gaussian mechanism; with adaptive clipping two, whose composition is a
    Gaussian mechanism with the noise multiplier of the plan.

    Args:
      neighboring_relation: The relation that the noise multipliers are stated
        for. Leave it alone where the accountant converts itself, as
        `accounting.accountants` does.
    """
    return self._event(neighboring_relation=neighboring_relation)

  def aggregator(self, *, insecure_seed: Optional[int] = None):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the plan.

    Args:
      insecure_seed: For tests only; whoever knows it can remove the noise.
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
      )
    from tff_dp.aggregators import correlated_noise

    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism,
        noise_multiplier=self._noise(),
        l2_norm_clip=self.l2_norm_clip,
        clients_per_round=self.clients_per_round,
        insecure_seed=insecure_seed,
    )

  def measured(
      self, participation: measured.MeasuredParticipation
  ) -> measured.MeasuredSensitivity:
    """Returns S2 of the rounds that clients did take part in.

    Exact for these rounds; whether it may be claimed is for `participation` to
    say. Nothing else of the plan uses it.

    Args:
      participation: Of a run of this plan, finished or not.
    """
    mechanism = self.mechanism.truncated(participation.num_rounds)
    return measured.measure(
        participation,
        mechanism.squared_response,
        response_is_exact=mechanism.response_is_exact,
    )

  def describe(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""
    described = {
        'mechanism': self.mechanism.describe(),
        'participation': {
            'name': type(self.participation).__name__,
            **dataclasses.asdict(self.participation),
        },
        'l2_norm_clip': self.l2_norm_clip,
        'clients_per_round': self.clients_per_round,
        'noise_multiplier': self.noise_multiplier,
    }
    # Only then, so that other plans keep their fingerprint.
    if self.adaptive_clipping is not None:
      described['adaptive_clipping'] = dataclasses.asdict(
          self.adaptive_clipping
      )
    return described

  @property
  def fingerprint(self) -> str:
    """A hash of `describe()`: equal for equal plans, whatever the process."""
    return fingerprint(self.describe())

  def participation_ledger(self, run_id: str) -> ledger_lib.ParticipationLedger:
    """Returns an empty ledger that enforces the plan's participation."""
    return ledger_lib.ParticipationLedger(
        self.participation.pattern,
        restart_every=self.mechanism.restart_every,
        run_id=run_id,
    )

  def budget_ledger(
      self, *, epsilon: Optional[float], delta: float
  ) -> budget.BudgetLedger:
    """Returns an empty ledger that refuses the round beyond the budget."""
    return budget.BudgetLedger(
        squared_sensitivity_by_round=self.squared_sensitivity_by_round,
        noise_multiplier=self._noise(),
        delta=delta,
        epsilon=epsilon,
    )

  def statement(
      self,
      *,
      delta: float,
      observed: Optional[ledger_lib.Observed] = None,
      insecure_seed: bool = False,
      declarations: Optional[dp_ftrl_statement.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns the privacy statement of the plan, or of a run so far.

    Args:
      delta: In (0, 1).
      observed: What the participation ledger saw; `None` before round 1.
      insecure_seed: Whether the noise key was made from a known seed.
      declarations: What the plan cannot know, such as how it was tuned.
    """
    _checks.delta(delta=delta)
    self._noise()
    return dp_ftrl_statement.build(
        self,
        delta=delta,
        observed=observed,
        insecure_seed=insecure_seed,
        declarations=declarations or dp_ftrl_statement.Declarations(),
    )

  def events_json(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> dict[str, Any]:
    """Returns what `tff-dp account --events` recomputes epsilon from.

    Args:
      delta: The delta that the run states its epsilon at.
      num_rounds: Rounds after which the run stopped, `None` for all.
    """
    _checks.delta(delta=delta)
    rounds = self.num_rounds if num_rounds is None else num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=rounds)
    self._noise()
    return dp_ftrl_statement.events_json(self, delta=delta, num_rounds=rounds)

  def _event(
      self,
      *,
      num_rounds: Optional[int] = None,
      neighboring_relation: run_events.NeighboringRelation = _ZERO_OUT,
  ) -> dp_accounting.DpEvent:
    """Returns the event of a run that stops after some rounds."""
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


def fingerprint(description: dict[str, Any]) -> str:
  """Returns 16 hexadecimal digits, equal for equal descriptions of plans."""
  text = json.dumps(description, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_shuffles(mechanism, participation) -> None:
  """Raises where the order of clients could change without a restart.

  That holds for independent noise too: its S2 would not change, but ledger and
  statement promise the order and the gap of the pattern.
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
          f'a divisor of {rounds}, the rounds after which the population is '
          'shuffled again: without a restart the order must stay '
          '(UniformSampling with max_participations needs no order)',
      )
