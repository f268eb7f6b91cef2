# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose clients decide themselves whether to take part.

As `PrivacyPlan` does for cohorts that the server chooses, it holds who takes
part, what noise is added and how both are accounted, so that they cannot drift
apart:

    plan = tff_dp.ProtocolPlan(
        tff_dp.participation.ShuffledCheckIn(
            num_rounds=6800, check_in_rate=0.1, min_num_clients=60_000),
        tff_dp.mechanisms.randomizers.Sphere(2.0, l2_norm_clip=0.1),
    )
    plan.epsilon(delta=1e-5)

Making one and reading its epsilon needs no TensorFlow.
"""

import dataclasses
import functools
import hashlib
import json
from typing import Any, Optional, Union

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.amplification import noised_counts
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.ledger import protocol_budget
from tff_dp.mechanisms import independent
from tff_dp.mechanisms import randomizers
from tff_dp.participation import check_ins
from tff_dp.participation import monitoring
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import report_noise
from tff_dp.participation import shuffled_check_in
from tff_dp.plans import check_ins_guarantee
from tff_dp.plans import check_ins_statement
from tff_dp.plans import dp_ftrl_statement
from tff_dp.statement import statement as statement_lib

# To be had beside the plan that takes it.
CentralGaussian = report_noise.CentralGaussian


@dataclasses.dataclass(frozen=True)
class ProtocolPlan:
  """Protocol and randomizer of one run.

  The unit of privacy is the client: all its reports over the whole run. The
  adjacency is replace-one, of random allocation zero-out.

  Attributes:
    protocol: Who takes part.
    randomizer: What a client does to its report before it leaves; for
      `RandomAllocation`, whose server is trusted, `CentralGaussian`.
    num_passes: How often the protocol runs, each time with new coins.
    occupancy_noise_stddev: Where the occupancy of the steps is secret: standard
      deviation of Gaussian noise on the number of check-ins of every step,
      which is then released and counted in every epsilon. `None` releases
      nothing.
    bound: Which bound certifies, see `accounting.amplify`; 'none' claims
      no amplification.
    use_derived: Whether bounds that no paper has are allowed.
  """

  protocol: protocol_lib.CheckInProtocol
  randomizer: Union[randomizers.LocalRandomizer, CentralGaussian]
  num_passes: int = 1
  occupancy_noise_stddev: Optional[float] = None
  bound: str = 'best'
  use_derived: bool = True

  def __post_init__(self):
    if not isinstance(self.protocol, protocol_lib.CheckInProtocol):
      raise _checks.ArgumentError(
          'protocol', self.protocol, 'a protocol of tff_dp.participation'
      )
    report_noise.check(self.protocol, self.randomizer)
    _checks.integer_at_least(1, num_passes=self.num_passes)
    if self.num_passes > 1 and not self.protocol.may_repeat:
      raise _checks.ArgumentError(
          'num_passes',
          self.num_passes,
          f'1: {self.protocol.name} has one pass of num_rounds rounds',
      )
    if self.occupancy_noise_stddev is not None:
      _checks.positive(occupancy_noise_stddev=self.occupancy_noise_stddev)
      if not self.protocol.occupancy_is_secret:
        raise _checks.ArgumentError(
            'occupancy_noise_stddev',
            self.occupancy_noise_stddev,
            'None: the number of reports is known to the adversary of'
            f' {self.protocol.name} anyway',
        )
    _checks.one_of(best_bound.BOUNDS, bound=self.bound)
    _checks.one_of((False, True), use_derived=self.use_derived)

  @property
  def num_rounds(self) -> int:
    """Steps of all passes."""
    return self.num_passes * self.protocol.num_rounds

  @property
  def is_local(self) -> bool:
    """Whether clients add the noise."""
    return not isinstance(self.randomizer, CentralGaussian)

  @property
  def noise_multiplier(self) -> Optional[float]:
    """Std of one draw over the clip norm, where the noise is Gaussian."""
    return getattr(self.randomizer, 'noise_multiplier', None)

  @property
  def l2_norm_clip(self) -> Optional[float]:
    """Bound on the L2 norm of one report, where there is one."""
    return getattr(self.randomizer, 'l2_norm_clip', None)

  @property
  def mechanism(self) -> Optional[independent.Independent]:
    """The noise of the server, `None` where clients add theirs."""
    return None if self.is_local else independent.Independent(self.num_rounds)

  @property
  def neighboring_relation(self) -> run_events.NeighboringRelation:
    """The relation of every epsilon unless another one is asked for."""
    if self.is_local:
      return run_events.NeighboringRelation.REPLACE_ONE
    return run_events.NeighboringRelation.ZERO_OUT

  def event(self) -> dp_accounting.DpEvent:
    """Returns the event of a full run, for `CheckInPLDAccountant`.

    Raises:
      PrivacyRefusedError: With `occupancy_noise_stddev`, because noised counts
        do not compose with what they tell about.
    """
    if self.occupancy_noise_stddev is not None:
      raise _checks.PrivacyRefusedError(
          'the plan releases noised counts of check-ins, which no event covers',
          why='they share the coins of the clients with the models, so their'
          ' costs are not those of a composition',
          way_out='plan.certificate(delta=...) or plan.epsilon(delta=...),'
          ' which count both; plan.protocol_event() is the protocol without'
          ' counts',
      )
    return self.protocol_event()

  def protocol_event(
      self, *, num_rounds: Optional[int] = None
  ) -> dp_accounting.DpEvent:
    """Returns the event of the models alone.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    if num_rounds is None:
      num_rounds = self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    per_pass = self.protocol.num_rounds
    whole, rest = divmod(num_rounds, per_pass)
    parts = []
    if whole == 1:
      parts.append(self.protocol.dp_event(self.randomizer.event))
    elif whole:
      parts.append(
          dp_accounting.SelfComposedDpEvent(
              self.protocol.dp_event(self.randomizer.event), whole
          )
      )
    if rest:
      parts.append(
          self.protocol.dp_event(self.randomizer.event, num_rounds=rest)
      )
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)

  def certificate(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> best_bound.Certificate:
    """Returns epsilon with its provenance, an upper bound.

    With `occupancy_noise_stddev` it is that of the models at the delta that the
    counts leave them; `epsilon` adds the counts.

    Args:
      delta: In (0, 1).
      num_rounds: Rounds after which the run stops, `None` for all.
      neighboring_relation: `None` for that of the plan.
    """
    return self._guarantee(delta, num_rounds, neighboring_relation).certificate

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """Returns epsilon of everything that the run releases.

    Args: see `certificate`.
    """
    return self._guarantee(delta, num_rounds, neighboring_relation).epsilon

  def rounds_accounted(self, num_rounds: int) -> int:
    """Returns after how many rounds, or a few more, a run counts as stopped.

    Epsilon of every single round of thousands would take longer than the
    rounds; what a shorter run releases is part of what a longer one does.

    Args:
      num_rounds: Rounds that have begun.
    """
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return check_ins_guarantee.rounds_accounted(
        num_rounds, planned=self.num_rounds
    )

  def epsilon_after(self, num_rounds: int, *, delta: float) -> float:
    """Returns epsilon of a run that stops, never above that of the whole run.

    Args:
      num_rounds: At least 1; see `rounds_accounted`.
      delta: In (0, 1).
    """
    accounted = self.rounds_accounted(num_rounds)
    whole = self.epsilon(delta=delta)
    if accounted == self.num_rounds:
      return whole
    return min(whole, self.epsilon(delta=delta, num_rounds=accounted))

  def aggregator(
      self, *, clients_per_round: int, insecure_seed: Optional[int] = None
  ):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the server.

    For `RandomAllocation` only: its server adds the noise. Where clients add
    it, `learning.build_check_in_sgd` or `learning.build_shuffled_check_in_sgd`
    build the whole process.

    Args:
      clients_per_round: Public divisor of the sum of a slot.
      insecure_seed: For tests only; whoever knows it can remove the noise.
    """
    if self.is_local:
      raise _checks.PrivacyRefusedError(
          f'{self.protocol.name} has no noise at the server',
          why='its clients randomize their reports before they send them',
          way_out='learning.build_check_in_sgd or'
          ' learning.build_shuffled_check_in_sgd',
      )
    # pylint: disable=g-import-not-at-top
    from tff_dp.aggregators import correlated_noise

    return correlated_noise.CorrelatedNoiseFactory(
        self.mechanism,
        noise_multiplier=self.randomizer.noise_multiplier,
        l2_norm_clip=self.randomizer.l2_norm_clip,
        clients_per_round=clients_per_round,
        insecure_seed=insecure_seed,
    )

  def describe(self) -> dict[str, Any]:
    """Returns all public facts of the plan as plain JSON types."""
    return {
        'protocol': self.protocol.describe(),
        'randomizer': self.randomizer.describe(),
        'num_passes': self.num_passes,
        'occupancy_noise_stddev': self.occupancy_noise_stddev,
        'bound': self.bound,
        'use_derived': self.use_derived,
    }

  @classmethod
  def from_description(cls, description: dict[str, Any]) -> 'ProtocolPlan':
    """Returns the plan whose `describe()` this is."""
    fields = dict(description)
    protocol = dict(fields.pop('protocol'))
    made = {
        each.__name__: each
        for each in (
            shuffled_check_in.ShuffledCheckIn,
            check_ins.AveragedCheckIn,
            check_ins.FixedWindowCheckIn,
            check_ins.RandomAllocation,
            check_ins.SlidingWindowCheckIn,
        )
    }[protocol.pop('name')](**protocol)
    randomizer = dict(fields.pop('randomizer'))
    if randomizer['name'] == 'central-gaussian':
      del randomizer['name']
      return cls(made, CentralGaussian(**randomizer), **fields)
    return cls(made, randomizers.from_description(randomizer), **fields)

  @property
  def fingerprint(self) -> str:
    """A hash of `describe()`: equal for equal plans, whatever the process."""
    text = json.dumps(self.describe(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]

  def budget_ledger(
      self, *, epsilon: Optional[float], delta: float
  ) -> protocol_budget.ProtocolBudget:
    """Returns an empty ledger that refuses the round beyond the budget."""
    return protocol_budget.ProtocolBudget(
        functools.partial(self.epsilon_after, delta=delta),
        num_rounds=self.num_rounds,
        delta=delta,
        epsilon=epsilon,
        neighboring_relation=self.neighboring_relation,
        noise={'randomizer': self.randomizer.describe()},
    )

  def statement(
      self,
      *,
      delta: float,
      observed: Optional[monitoring.ObservedCheckIns] = None,
      insecure_seed: bool = False,
      declarations: Optional[dp_ftrl_statement.Declarations] = None,
  ) -> statement_lib.PrivacyStatement:
    """Returns the privacy statement of the plan, or of a run so far.

    Args:
      delta: In (0, 1).
      observed: What is publicly known of the run, `None` before round 1.
      insecure_seed: Whether coins or noise follow from a known seed.
      declarations: What the plan cannot know, such as how it was tuned.
    """
    _checks.delta(delta=delta)
    return check_ins_statement.build(
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
    return check_ins_statement.events_json(
        self, delta=delta, num_rounds=rounds
    )

  def counted(
      self, *, delta: float, num_rounds: Optional[int] = None
  ) -> Optional[noised_counts.CountedGuarantee]:
    """Returns how models and noised counts share epsilon and delta.

    `None` where no counts are released, or where nothing is amplified: then
    even the coins might be public. Args: see `certificate`.
    """
    return self._guarantee(delta, num_rounds, None).shares

  def _guarantee(self, delta, num_rounds, neighboring_relation):
    _checks.delta(delta=delta)
    if num_rounds is None:
      num_rounds = self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return check_ins_guarantee.of(
        self,
        float(delta),
        num_rounds,
        neighboring_relation or self.neighboring_relation,
    )
