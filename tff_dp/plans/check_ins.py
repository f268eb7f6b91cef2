# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The plan of a run whose clients decide themselves whether to take part.

Like `DpFtrlPlan` for cohorts that the server chooses, it holds participation,
noise and accounting in one object, so that they cannot drift apart:

    plan = tff_dp.CheckInPlan(
        tff_dp.participation.ShuffledCheckIn(
            num_rounds=6800, check_in_rate=0.1, min_num_clients=60_000),
        tff_dp.mechanisms.randomizers.Sphere(2.0, l2_norm_clip=0.1),
    )
    plan.epsilon(delta=1e-5)

Making a plan and reading its epsilon needs no TensorFlow.
"""

import dataclasses
import functools
import math
from typing import Any, Optional, Union

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.amplification import random_check_ins
from tff_dp.accounting.curves import search
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import protocol_bounds
from tff_dp.accounting.sensitivity import patterns
from tff_dp.mechanisms import catalogue
from tff_dp.mechanisms import mechanism as mechanism_lib
from tff_dp.mechanisms import randomizers
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.participation import check_ins
from tff_dp.participation import cyclic_allocation
from tff_dp.participation import protocol as protocol_lib
from tff_dp.participation import shuffled_check_in
from tff_dp.plans import base
from tff_dp.plans import check_ins_statement
from tff_dp.statement import builder

# Re-exported for convenience.
CentralGaussian = protocol_lib.CentralGaussian

# For `calibrated`: the largest noise that is tried (a multiplier, or the
# inverse of a local epsilon), and the relative precision.
_MOST_NOISE = 1e9
_TOLERANCE = 1e-4
# Bound on the relative error of a norm of thousands of squares.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class CheckInPlan(base.Plan):
  """Protocol and randomizer of one run.

  The unit of privacy is the client: all its reports over the whole run. The
  adjacency is replace-one, and zero-out if the server adds the noise.

  Attributes:
    protocol: Check-in protocol of the clients.
    randomizer: Randomizer that a client applies to its report before sending
      it. For `RandomAllocation` and `CyclicAllocation`, whose server is
      trusted, it is `CentralGaussian`.
    num_passes: Number of times that the protocol runs, each time with new
      coins.
    bound: Name of the bound that certifies, see `accounting.amplify`. 'none'
      claims no amplification.
    published_proofs: Whether to use only bounds with a published proof.
    mechanism: Noise of the server over the rounds, `None` if clients add the
      noise. Default: independent noise. `CyclicAllocation` also takes banded
      noise with at most `stride` bands.
  """

  protocol: protocol_lib.CheckInProtocol
  randomizer: Union[randomizers.LocalRandomizer, CentralGaussian]
  num_passes: int = 1
  bound: str = 'best'
  published_proofs: bool = False
  mechanism: Optional[mechanism_lib.Mechanism] = None

  kind = 'check_ins'
  basis = 'amplified by the protocol, as the statement says'
  curve_has_rounds_done = False

  def __post_init__(self):
    if not isinstance(self.protocol, protocol_lib.CheckInProtocol):
      raise _checks.ArgumentError(
          'protocol', self.protocol, 'a protocol of tff_dp.participation'
      )
    protocol_lib.check(self.protocol, self.randomizer)
    _checks.integer_at_least(1, num_passes=self.num_passes)
    if self.num_passes > 1 and not self.protocol.may_repeat:
      raise _checks.ArgumentError(
          'num_passes',
          self.num_passes,
          f'1: {self.protocol.name} has one pass of num_rounds rounds',
      )
    _checks.one_of(best_bound.BOUNDS, bound=self.bound)
    _checks.one_of((False, True), published_proofs=self.published_proofs)
    if self.mechanism is None and not self.is_local:
      noise = mechanism_lib.Independent(self.num_rounds)
      object.__setattr__(self, 'mechanism', noise)
    _check_mechanism(self)

  @property
  def num_rounds(self) -> int:
    """Number of steps of all passes."""
    return self.num_passes * self.protocol.num_rounds

  @property
  def trust(self) -> str:
    """See base class."""
    return self.protocol.trust

  @property
  def is_local(self) -> bool:
    """Whether clients add the noise."""
    return not isinstance(self.randomizer, CentralGaussian)

  @property
  def built_by(self) -> Optional[str]:
    """See base class."""
    if not self.is_local:
      return None
    name = 'build_shuffled_check_in_sgd'
    if not isinstance(self.protocol, shuffled_check_in.ShuffledCheckIn):
      name = 'build_check_in_sgd'
    return f'tff_dp.learning.{name}(model, plan, ...)'

  @property
  def noise_multiplier(self) -> Optional[float]:
    """Std of one draw over the clip norm, for Gaussian noise."""
    return getattr(self.randomizer, 'noise_multiplier', None)

  @property
  def l2_norm_clip(self) -> Optional[float]:
    """Bound on the L2 norm of one report, if there is one."""
    return getattr(self.randomizer, 'l2_norm_clip', None)

  @property
  def _report_event(self) -> dp_accounting.DpEvent:
    """Event of one report: local noise, or noise over its column of C."""
    if self.is_local:
      return self.randomizer.event
    if isinstance(self.mechanism, mechanism_lib.Independent):
      return self.randomizer.event
    once = patterns.MinSeparationPattern(self.num_rounds, max_participations=1)
    norm = math.sqrt(self.mechanism.squared_sensitivity(once))
    multiplier = self.randomizer.noise_multiplier
    if norm != 1.0:  # Rounded to the private side.
      multiplier /= norm * (1 + _ROUNDING)
    return dp_accounting.GaussianDpEvent(multiplier)

  @property
  def neighboring_relation(self) -> run_events.NeighboringRelation:
    """The relation of every epsilon, unless another one is requested."""
    if self.is_local:
      return run_events.NeighboringRelation.REPLACE_ONE
    return run_events.NeighboringRelation.ZERO_OUT

  def calibrated(
      self,
      *,
      epsilon: float,
      delta: float,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> 'CheckInPlan':
    """Returns the plan with the least noise that meets (epsilon, delta).

    Rounded to the private side: the returned plan's epsilon is at most
    `epsilon`. The noise is the least up to a part in 10^4, provided that
    epsilon falls with the noise. In the randomizer only `noise_multiplier`
    changes, or `local_epsilon`, whose inverse is searched.

    Args:
      epsilon: Target epsilon, above 0.
      delta: Target delta, in (0, 1).
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.

    Raises:
      ArgumentError: If no noise meets it.
    """
    _checks.positive(epsilon=epsilon)
    is_gaussian = self.noise_multiplier is not None

    def plan_of(noise):
      change = (
          {'noise_multiplier': noise}
          if is_gaussian
          else {'local_epsilon': 1 / noise}
      )
      randomizer = dataclasses.replace(self.randomizer, **change)
      return dataclasses.replace(self, randomizer=randomizer)

    noise = search.least_within(
        epsilon,
        lambda noise: plan_of(noise).epsilon(
            delta=delta, neighboring_relation=neighboring_relation
        ),
        self.noise_multiplier or 1 / self.randomizer.local_epsilon,
        most=_MOST_NOISE,
        tolerance=_TOLERANCE,
    )
    if noise == math.inf:
      raise _checks.ArgumentError('epsilon', epsilon, 'one that noise can meet')
    return plan_of(noise)

  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the event of the run, for `CheckInPLDAccountant`.

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
      parts.append(self.protocol.dp_event(self._report_event))
    elif whole:
      parts.append(
          dp_accounting.SelfComposedDpEvent(
              self.protocol.dp_event(self._report_event), whole
          )
      )
    if rest:
      parts.append(
          self.protocol.dp_event(self._report_event, num_rounds=rest)
      )
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)

  def certificate(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> best_bound.Certificate:
    """Returns epsilon with its provenance. Upper bound.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    _checks.delta(delta=delta)
    if num_rounds is None:
      num_rounds = self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return _certificate_of(
        self,
        float(delta),
        num_rounds,
        neighboring_relation or self.neighboring_relation,
        self.bound,
    )

  def epsilon(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """Returns epsilon of everything that the run releases.

    Args:
      delta: Target delta, in (0, 1). 0 is allowed if the guarantee of a report
        is pure. Local epsilons then add up, and nothing is amplified.
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    if delta == 0 and self._is_pure:
      return self._pure_epsilon(num_rounds, neighboring_relation)
    found = self.certificate(
        delta=delta,
        num_rounds=num_rounds,
        neighboring_relation=neighboring_relation,
    )
    return self._of_draws(found.epsilon, delta)

  @property
  def _is_pure(self) -> bool:
    is_declared = isinstance(self.randomizer, randomizers.Declared)
    return not self.draws_end and not (
        is_declared and self.randomizer.local_delta
    )

  def _pure_epsilon(self, num_rounds, relation) -> float:
    """Returns the local epsilon times the most reports, for replace-one."""
    replace_one = run_events.NeighboringRelation.REPLACE_ONE
    _checks.one_of((None, replace_one), neighboring_relation=relation)
    if num_rounds is None:
      num_rounds = self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    passes_begun = -(-num_rounds // self.protocol.num_rounds)
    reports = min(num_rounds, passes_begun * self.protocol.max_reports)
    return reports * self.randomizer.local_epsilon

  @property
  def draws_end(self) -> bool:
    """See base class."""
    # Only the bound of a declared randomizer is known, and it may be exact.
    finite = (
        randomizers.Sphere,
        randomizers.RandomizedResponse,
        randomizers.Declared,
    )
    return not isinstance(self.randomizer, finite)

  def rounds_accounted(self, num_rounds: Optional[int]) -> int:
    """Returns `num_rounds` up to the next round at which epsilon is computed.

    Computing epsilon for every one of thousands of rounds would take longer
    than the rounds. The releases of a shorter run are part of the releases of a
    longer one.

    Args:
      num_rounds: Number of rounds that have begun, `None` for all.
    """
    if num_rounds is None:
      return self.num_rounds
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return base.rounds_accounted(num_rounds, planned=self.num_rounds)

  def epsilon_after(
      self, num_rounds: Optional[int], *, delta: float, **options
  ) -> float:
    """Returns epsilon of a stopped run, at most the epsilon of the whole run.

    Args:
      num_rounds: Number of rounds, at least 1, see `rounds_accounted`. `None`
        for all.
      delta: Target delta, in (0, 1).
      **options: Options of `epsilon`.
    """
    accounted = self.rounds_accounted(num_rounds)
    whole = self.epsilon(delta=delta, **options)
    if accounted == self.num_rounds:
      return whole
    return min(
        whole, self.epsilon(delta=delta, num_rounds=accounted, **options)
    )

  def aggregator(
      self, *, clients_per_round: int, insecure_seed: Optional[int] = None
  ):
    """Returns the `tff.aggregators.UnweightedAggregationFactory` of the server.

    It is only for protocols with `noise_is_central`. If clients add the noise,
    `learning.build_check_in_sgd` or `learning.build_shuffled_check_in_sgd`
    build the whole process.

    Args:
      clients_per_round: Public divisor of the sum of a slot.
      insecure_seed: Seed for tests only. Anybody who knows it can remove the
        noise.
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
        plan=self,
    )

  def epsilon_no_amplification(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> float:
    """See base class."""
    found = self._accounted(num_rounds, delta=delta, **options)
    return self._of_draws(found.epsilon_no_amplification, delta)

  def assumptions(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> tuple[str, ...]:
    """See base class."""
    found = self._accounted(num_rounds, delta=delta, **options)
    return (*found.assumptions, *self.protocol.assumptions)

  def _cautions(
      self, *, delta: float, num_rounds: Optional[int] = None, **options
  ) -> list[str]:
    return list(self._accounted(num_rounds, delta=delta, **options).warnings)

  def details(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
      population: Optional[int] = None,
  ) -> dict[str, Any]:
    """See base class."""
    certificate = self._accounted(
        num_rounds, delta=delta, neighboring_relation=neighboring_relation
    )
    return check_ins_statement.details(
        self, certificate, num_rounds=num_rounds, population=population
    )

  def _accounted(
      self, num_rounds: Optional[int], **options
  ) -> best_bound.Certificate:
    """Returns the certificate of the round at which epsilon is computed."""
    return self.certificate(
        num_rounds=self.rounds_accounted(num_rounds), **options
    )

  def epsilon_by_bound(
      self,
      *,
      delta: float,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> dict[str, float]:
    """Returns bound -> epsilon of all rounds, infinity if it does not apply.

    `certificate` leaves out bounds that take long and are almost never the
    tightest. Here they are computed. Upper bounds.

    Args:
      delta: Target delta, in (0, 1).
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    options = dict(delta=delta, neighboring_relation=neighboring_relation)
    found = {
        candidate.bound: candidate.epsilon
        for candidate in self.certificate(**options).candidates
    }
    if self.bound == 'best' and not self.published_proofs:
      for name in protocol_bounds.SLOW_NAMES:
        if name in found:
          alone = dataclasses.replace(self, bound=name)
          found[name] = alone.certificate(**options).candidates[-1].epsilon
    return found

  def expected_dummy_updates(self, population: int) -> Optional[float]:
    """Returns the expected number of updates of the run without any report.

    Exact, for `FixedWindowCheckIn` and `SlidingWindowCheckIn`. Nobody checks in
    for such an update. `None` for the other protocols.

    Args:
      population: Number of clients.
    """
    protocol = self.protocol
    if isinstance(protocol, check_ins.SlidingWindowCheckIn):
      return random_check_ins.expected_dummies_sliding_window(
          population, window=protocol.window
      )
    if isinstance(protocol, check_ins.FixedWindowCheckIn):
      return self.num_passes * random_check_ins.expected_dummies_fixed_window(
          population,
          num_slots=protocol.num_slots,
          check_in_probability=protocol.check_in_probability,
      )
    return None

  def expected_clients_per_slot(self, population: int) -> Optional[float]:
    """Returns the expected number of clients that report in one slot.

    Exact mean over all slots. `None` if clients draw no slots: behind a
    shuffler, and in sliding windows, where they wake one after the other.

    Args:
      population: Number of clients.
    """
    protocol = self.protocol
    is_cyclic = isinstance(protocol, cyclic_allocation.CyclicAllocation)
    slots = self.num_rounds if is_cyclic else getattr(
        protocol, 'num_slots', None
    )
    if slots is None:
      return None
    probability = getattr(protocol, 'check_in_probability', 1.0)
    return population * probability * protocol.max_reports / slots

  def prefix_errors(self) -> tuple[float, float]:
    """Returns (rmse, largest error) of the noise on the sums so far.

    See `Mechanism.prefix_errors`. Only if the server adds the noise.
    """
    return self.mechanism.prefix_errors(self.noise_multiplier)

  def _facts(self) -> dict[str, Any]:
    return {
        'protocol': self.protocol.describe(),
        'randomizer': self.randomizer.describe(),
        'num_passes': self.num_passes,
        'bound': self.bound,
        'published_proofs': self.published_proofs,
        'mechanism': self.mechanism and self.mechanism.describe(),
    }

  @classmethod
  def _from_facts(cls, facts: dict[str, Any]) -> 'CheckInPlan':
    if facts['mechanism'] is not None:
      facts['mechanism'] = catalogue.from_description(facts['mechanism'])
    protocol = dict(facts.pop('protocol'))
    made = {
        each.__name__: each
        for each in (
            shuffled_check_in.ShuffledCheckIn,
            shuffled_check_in.ShuffledReports,
            check_ins.AveragedCheckIn,
            check_ins.FixedWindowCheckIn,
            check_ins.RandomAllocation,
            check_ins.SlidingWindowCheckIn,
            cyclic_allocation.CyclicAllocation,
        )
    }[protocol.pop('name')](**protocol)
    randomizer = dict(facts.pop('randomizer'))
    if randomizer['name'] == 'central-gaussian':
      del randomizer['name']
      return cls(made, CentralGaussian(**randomizer), **facts)
    return cls(made, randomizers.from_description(randomizer), **facts)

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    return {'rounds_accounted': self.rounds_accounted(num_rounds)}

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    del epsilon, delta
    return (
        'More noise, fewer rounds, or more clients to hide among (more slots, a'
        ' lower check-in rate) cost less.'
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    return check_ins_statement.points(self, about)


# Every checkpoint writes a statement, and every round a row of metrics.
@functools.lru_cache(maxsize=1024)
def _certificate_of(
    plan: CheckInPlan,
    delta: float,
    num_rounds: int,
    relation: run_events.NeighboringRelation,
    bound: str,
) -> best_bound.Certificate:
  """Returns the certificate of a run that stops after some rounds."""
  if bound == 'best' and num_rounds < plan.num_rounds:
    # For a stopped run, compute only the bound that is best for the whole run.
    best = _certificate_of(plan, delta, plan.num_rounds, relation, bound).bound
    if best in best_bound.BOUNDS:
      bound = best
  return best_bound.amplify(
      plan.event(num_rounds=num_rounds),
      delta=delta,
      bound=bound,
      neighboring_relation=relation,
      published_proofs=plan.published_proofs,
  )


def _check_mechanism(plan: CheckInPlan) -> None:
  """Raises unless the guarantee of the protocol covers the server's noise."""
  mechanism, protocol = plan.mechanism, plan.protocol
  allowed = 'None: clients add the noise'
  if not plan.is_local:
    allowed = f'None or Independent({plan.num_rounds})'
    if isinstance(mechanism, mechanism_lib.Independent):
      if mechanism.num_rounds == plan.num_rounds:
        return
    if isinstance(protocol, cyclic_allocation.CyclicAllocation):
      allowed += (
          f', or Banded noise for {plan.num_rounds} rounds with at most'
          f' stride={protocol.stride} bands: with more of them, and with trees'
          ' and BLT noise, two reports of a client overlap, which no proof here'
          ' covers'
      )
      if isinstance(mechanism, toeplitz.Banded):
        if (
            mechanism.num_rounds == plan.num_rounds
            and mechanism.num_bands <= protocol.stride
        ):
          return
  elif mechanism is None:
    return
  raise _checks.ArgumentError('mechanism', mechanism, allowed)
