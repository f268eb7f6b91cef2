# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans of runs whose clients decide themselves whether to take part.

`ProtocolPlan` is the common part of systems whose clients draw their own coins.
A system says where the noise is added, and gives the event of one report.
"""

import abc
import dataclasses
import functools
from typing import Any, ClassVar, Optional

import dp_accounting

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.protocols import bounds
from tff_dp.participation import protocol as protocol_lib
from tff_dp.plans import coarse_plan
from tff_dp.statement import builder

_SENTENCES = """
setting.adversary: {protocol.adversary}
unit.participation: {protocol.participation}
release.covered: the model after every step, its evaluation on data of others
    than the clients in training, and metrics computed from randomized values{counts}
release.not_covered: {metrics}. {not_covered}
mechanism.name: {protocol.name}
accounting.method: the least of several upper bounds, each sound by itself;
    rounds compose adaptively
accounting.exactness: an upper bound; every tail, grid and search errs upward
accounting.discretisation: privacy loss distributions are pessimistic (connect
    the dots), and what a grid leaves out counts as infinite loss
accounting.rounds_accounted: {rounds}: a run that stops earlier counts as one
    that stops there
implementation.coins: simulated: those of all clients follow from one root key
    (BLAKE2b; counts and permutations of the fast sampler from PCG64, which is
    not cryptographic); devices would flip them independently
implementation.dropouts: a report that is lost or late is discarded, never moved
    to another step; what replaces a lost winner does not depend on data
not_claimed.limits: nothing is claimed for several clients of one person, for
    side channels such as the time of a round, or against those who are trusted
    above; other runs on the same clients are releases of their own and add up
"""
_METRICS = (
    'metrics that clients compute without noise, if any: they are never in'
    ' release/'
)
_DERIVED = """
accounting.derived_bounds: allowed: proofs in docs/proofs_shuffling.md and
    docs/proofs_check_ins.md
"""
_PUBLISHED = """
accounting.derived_bounds: not used
"""


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class ProtocolPlan(coarse_plan.CoarsePlan):
  """Plan of a run of a protocol. The noise is a field of the subclasses.

  The unit of privacy is the client: all its reports over the whole run.

  Attributes:
    protocol: Protocol of the clients.
    num_passes: Number of times that the protocol runs, each time with new
      coins.
    bound: Name of the bound that certifies, see `accounting.amplify`. 'none'
      claims no amplification.
    published_proofs: Whether to use only bounds with a published proof.
    is_local: Whether clients add the noise.
  """

  protocol: protocol_lib.Protocol
  _: dataclasses.KW_ONLY
  num_passes: int = 1
  bound: str = 'best'
  published_proofs: bool = False

  is_local: ClassVar[bool]
  basis = 'amplified by the protocol, as the statement says'

  def _check_protocol(self) -> None:
    """Raises `ArgumentError` if the passes do not fit the protocol."""
    _checks.integer_at_least(1, num_passes=self.num_passes)
    if self.num_passes > 1 and not self.protocol.may_repeat:
      raise _checks.ArgumentError(
          'num_passes',
          self.num_passes,
          f'1: {self.protocol.name} has one pass of num_rounds rounds',
      )
    _checks.one_of((False, True), published_proofs=self.published_proofs)

  def _check_bound(self) -> None:
    """Raises `ArgumentError` unless the protocol has the bound."""
    names = bounds.names_of(self.protocol.dp_event(self.report_event))
    _checks.one_of(names, bound=self.bound)

  @property
  @abc.abstractmethod
  def report_event(self) -> dp_accounting.DpEvent:
    """Event of one report: its local noise, or the noise on the reports' sum.
    """

  @property
  def num_rounds(self) -> int:
    """Number of steps of all passes."""
    return self.num_passes * self.protocol.num_rounds

  @property
  def trust(self) -> str:
    """See base class."""
    return self.protocol.trust

  def event(self, *, num_rounds: Optional[int] = None) -> dp_accounting.DpEvent:
    """Returns the event of the run, for `ProtocolAccountant`.

    Args:
      num_rounds: Rounds after which the run stops, `None` for all.
    """
    num_rounds = self._stops_at(num_rounds)
    per_pass = self.protocol.num_rounds
    whole, rest = divmod(num_rounds, per_pass)
    parts = []
    if whole == 1:
      parts.append(self.protocol.dp_event(self.report_event))
    elif whole:
      parts.append(
          dp_accounting.SelfComposedDpEvent(
              self.protocol.dp_event(self.report_event), whole
          )
      )
    if rest:
      parts.append(
          self.protocol.dp_event(self.report_event, num_rounds=rest)
      )
    return parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)

  def certificate(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> best_bound.Certificate:
    """Returns epsilon with the bound and the assumptions behind it.

    This epsilon is an upper bound for draws from the assumed distributions.
    Real draws have no far tails, and `epsilon` counts this, too.

    The bound 'best' is chosen for all rounds. A run that stops early keeps this
    choice. If the choice is a combination of bounds, all bounds are tried again
    for the rounds of the run.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    _checks.in_open(0.0, 1.0, delta=delta)
    num_rounds = self._stops_at(num_rounds)
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
    """Returns epsilon of everything that the run releases. Upper bound.

    Args:
      delta: Target delta, in (0, 1).
      num_rounds: Number of rounds after which the run stops, `None` for all.
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    found = self.certificate(
        delta=delta,
        num_rounds=num_rounds,
        neighboring_relation=neighboring_relation,
    )
    return self._of_draws(found.epsilon, delta)

  def epsilon_no_amplification(
      self,
      *,
      delta: float,
      num_rounds: Optional[int] = None,
      neighboring_relation: Optional[run_events.NeighboringRelation] = None,
  ) -> float:
    """See base class."""
    _checks.in_open(0.0, 1.0, delta=delta)
    # The bounds with amplification take long, and are not needed here.
    found = _certificate_of(
        self,
        float(delta),
        self.rounds_accounted(num_rounds),
        neighboring_relation or self.neighboring_relation,
        'none',
    )
    return self._of_draws(found.epsilon, delta)

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
    protocol = self.protocol
    parameters = protocol.describe()
    found = {
        'protocol': parameters.pop('name'),
        'parameters': parameters | {
            'passes': self.num_passes,
            'rounds': self.num_rounds if num_rounds is None else num_rounds,
            'rounds_accounted': self.rounds_accounted(num_rounds),
        },
        'bound': certificate.bound,
        'is_vacuous': certificate.is_vacuous,
        'candidates': _candidates(certificate),
    }
    if population is not None:
      expected = {
          'expected_dummy_updates': self.expected_dummy_updates(population),
          'expected_clients_per_slot': protocol.expected_clients_per_step(
              population
          ),
      }
      known = {name: each for name, each in expected.items() if each is not None}
      if known:
        found |= {'population': population, **known}
    return found

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
    """Returns the epsilon of all rounds by each bound.

    The result maps the name of a bound to its epsilon, infinity if the bound
    does not apply. This also computes the slow bounds that `certificate` leaves
    out because they are almost never the smallest. If the plan names one
    `bound`, only this bound and 'none' are computed.

    Args:
      delta: Target delta, in (0, 1).
      neighboring_relation: Relation of epsilon. Default: the relation of the
        plan.
    """
    options: dict[str, Any] = dict(
        delta=delta, neighboring_relation=neighboring_relation
    )
    found = {}
    for candidate in self.certificate(**options).candidates:
      if candidate.reason == best_bound.SKIPPED:
        alone = dataclasses.replace(self, bound=candidate.bound)
        candidate = alone.certificate(**options).candidates[-1]
      found[candidate.bound] = candidate.epsilon
    return found

  def expected_dummy_updates(self, population: int) -> Optional[float]:
    """Returns the expected number of steps that use a dummy's report.

    At these steps nobody checks in. Exact, if no report is lost (and for a
    sliding window, if the population is `num_rounds`). `None` for protocols
    without dummies.

    Args:
      population: Number of clients.
    """
    per_pass = self.protocol.expected_dummy_updates(population)
    return None if per_pass is None else self.num_passes * per_pass

  def _facts(self) -> dict[str, Any]:
    return {
        'protocol': self.protocol.describe(),
        'num_passes': self.num_passes,
        'bound': self.bound,
        'published_proofs': self.published_proofs,
    }

  def spent(self, num_rounds: int) -> dict[str, Any]:
    """See base class."""
    return {'rounds_accounted': self.rounds_accounted(num_rounds)}

  def way_out(self, *, epsilon: float, delta: float) -> str:
    """See base class."""
    del epsilon, delta
    return (
        'More noise, fewer rounds, or more clients to hide among (more slots, a'
        ' lower participation rate) cost less.'
    )

  def _points(self, about: builder.Occasion) -> dict[str, Any]:
    protocol = self.protocol
    rounds = self.rounds_accounted(about.num_rounds)
    certificate = self.certificate(delta=about.delta, num_rounds=rounds)
    text = _SENTENCES + (_PUBLISHED if self.published_proofs else _DERIVED)
    counts = '; nothing about who or how many checked in when'
    if not protocol.occupancy_is_secret:
      counts = ', and the number of reports of every step'
    said = builder.sentences(
        text,
        plan=self,
        protocol=protocol,
        counts=counts,
        metrics=builder.METRICS_OF_CLIENTS if self.is_local else _METRICS,
        rounds=rounds,
        not_covered=about.declarations.not_covered,
    )
    if about.declarations.population is None and protocol.needs_population:
      said['mechanism.population'] = 'a lower bound is needed: min_num_clients'
    if certificate.bound != 'none':
      said['amplification.claimed'] = (
          f'{protocol.name}, bound {certificate.bound}'
      )
    described = protocol.describe()
    del described['name']
    winner = [c for c in certificate.candidates if c.bound == certificate.bound]
    return said | {
        'unit.max_participations': protocol.max_reports * self.num_passes,
        'mechanism.parameters': described,
        'mechanism.check_in_rate': protocol.coin,
        'mechanism.passes': self.num_passes,
        'accounting.bound': certificate.bound,
        'accounting.theorem': winner[0].source if winner else certificate.bound,
        'accounting.candidates': [
            each | {'reason': each['reason'] or 'applies'}
            for each in _candidates(certificate)
        ],
        'amplification.assumptions': (
            [*certificate.assumptions, *protocol.assumptions] or 'none'
        ),
    }


# Every checkpoint writes a statement, and every round a row of metrics.
@functools.lru_cache(maxsize=1024)
def _certificate_of(
    plan: ProtocolPlan,
    delta: float,
    num_rounds: int,
    relation: run_events.NeighboringRelation,
    bound: str,
) -> best_bound.Certificate:
  """Returns the certificate of a run that stops after `num_rounds`. Cached."""
  if bound == 'best' and num_rounds < plan.num_rounds:
    # For a stopped run, compute only the bound that is best for the whole run.
    best = _certificate_of(plan, delta, plan.num_rounds, relation, bound).bound
    if best != best_bound.COMBINED:
      bound = best
  return best_bound.amplify(
      plan.event(num_rounds=num_rounds),
      delta=delta,
      bound=bound,
      neighboring_relation=relation,
      published_proofs=plan.published_proofs,
  )


def _candidates(certificate: best_bound.Certificate) -> list[dict[str, Any]]:
  """Returns the bounds that were tried as JSON types, 'none' first."""
  return [
      dataclasses.asdict(each)
      | {'epsilon': rounding.to_json_number(each.epsilon)}
      for each in certificate.candidates
  ]
