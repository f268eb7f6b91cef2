# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bounds on the privacy loss of an event, and their assumptions.

An event names its `Rules`, so a system brings the bounds of its own events.
Rules are found by the exact type of an event. A foreign subclass may mean
something else, and is refused.

Every event has the bound 'none': the loss without amplification, if an
adversary sees every report, or every noised sum, separately.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
import dataclasses
import functools
import math
from typing import NamedTuple, Protocol

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events

Relation = run_events.NeighboringRelation
COINS = (
    "Each client's coins are its own, honest, fresh, independent of all data"
    ' and known to nobody else.'
)
HONEST_NOISE = (
    'Each client clips and adds its noise itself, as the randomizer says.'
)
OWN_PROOFS = 'arguments of this project that were not peer reviewed'


@dataclasses.dataclass(frozen=True)
class Bound:
  """An upper bound on the privacy loss of some number of equal events.

  At least one of `part` and `epsilon` is present. A call of either one may
  raise `NotApplicableError`.

  Attributes:
    name: Name of the bound.
    source: Paper and theorem, or page of proofs.
    is_derived: Whether the bound rests on a proof of this project's own, in its
      docs.
    part: Function that returns a `composition.Part`, which composes with other
      events.
    epsilon: Function that returns epsilon at delta if nothing else is released.
      If there is a `part`, too, the result is usually not above the part's
      epsilon.
    is_slow: Whether the bound takes long and is almost never the tightest.
      `amplify` leaves it out, unless it is asked for by name, or only published
      proofs are allowed.
  """

  name: str
  source: str
  is_derived: bool = False
  part: Callable[[], composition.Part] | None = None
  epsilon: Callable[[float], float] | None = None
  is_slow: bool = False


class Unit(NamedTuple):
  """A unit of privacy.

  Attributes:
    name: Name of the unit, such as 'client'.
    phrase: The name with its article, such as 'a client'.
    neighbours: Neighbouring data sets in prose. If empty, the description of
      the relation is used.
  """

  name: str
  phrase: str
  neighbours: str = ''


class Whole(Protocol):
  """The privacy loss of several events together, computed at once."""

  def epsilon(self, delta: float) -> float:
    """Returns epsilon at delta. Upper bound."""

  def delta(self, epsilon: float) -> float:
    """Returns delta at epsilon. Upper bound."""


CLIENT = Unit('client', 'a client')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
  """What accountants know about the events of one type.

  Attributes:
    bounds: Function (event, count, delta, relation) -> bounds on `count` equal
      events, 'none' first. Some are tuned for delta, but hold for any delta.
    assumptions: Function (event, name of a bound) -> assumptions of the bound,
      one sentence each.
    unit: Unit of privacy.
    only_replace_one: Reason why the events are stated for replace-one only, as
      a clause, such as 'the number of records of a silo is public, so none can
      be absent'. Empty if they hold under all relations.
    names: Names of all bounds that `bounds` may return, without 'none'.
    together: Function (leaves, method) -> loss of all leaves at once for
      replace-one, or `None` if that loss is unknown. The loss may be smaller
      than a composition of bounds.
  """

  bounds: Callable[
      [dp_accounting.DpEvent, int, float, Relation], Iterable[Bound]
  ]
  assumptions: Callable[[dp_accounting.DpEvent, str], list[str]]
  unit: Unit = CLIENT
  only_replace_one: str = ''
  names: tuple[str, ...] = ()
  together: Callable[[run_events.Leaves, str], Whole | None] | None = None


def rules_of(event: dp_accounting.DpEvent) -> Rules:
  """Returns the rules of an event.

  Raises:
    TypeError: If the event has no rules.
  """
  known: Mapping[type, Rules] = _NOISED_SUMS
  if isinstance(event, run_events.ProtocolDpEvent):
    known = event.rules()
  if type(event) not in known:
    raise TypeError(
        f'event={event!r} is not allowed: expected an event whose bounds are known'
        ' here, such as those of tff_dp.accounting.events.run_events.'
    )
  return known[type(event)]


def of(
    event: dp_accounting.DpEvent,
    *,
    count: int,
    delta: float,
    relation: Relation,
) -> tuple[Bound, ...]:
  """Returns the bounds on `count` equal events, 'none' first.

  Args:
    event: An event of a protocol, a local report or a record, or a Gaussian or
      Laplace event.
    count: Number of events.
    delta: Delta of everything together. Some bounds are tuned for it, but they
      hold for any delta.
    relation: Relation to account under. The caller must check that the event
      holds under it.
  """
  return tuple(rules_of(event).bounds(event, count, delta, relation))


def only_replace_one(event: dp_accounting.DpEvent) -> str:
  """Returns the reason why an event is for replace-one only.

  It is '' if the event holds under all relations, or if its rules are unknown.
  """
  try:
    return rules_of(event).only_replace_one
  except TypeError:  # Nothing is known about the event.
    return ''


def names_of(event: dp_accounting.DpEvent) -> tuple[str, ...]:
  """Returns the allowed values of the argument `bound` of `amplify`.

  'best' comes first, then 'none'. For `amplify` see `best_bound`.

  Args:
    event: Event to account for.

  Raises:
    TypeError: If a part of the event has no rules.
  """
  names = ['best', 'none']
  for leaf, _ in run_events.leaves(event):
    names += rules_of(leaf).names
  return tuple(dict.fromkeys(names))


def relation_for(
    leaves: run_events.Leaves, asked: Relation | str | None
) -> Relation:
  """Returns the neighboring relation to account under.

  Args:
    leaves: Leaves of the event of the run, see `run_events.leaves`.
    asked: Requested relation. None chooses replace-one if any event is stated
      for it, else zero-out.

  Raises:
    PrivacyRefusedError: If an event is neither a noised sum nor an event of a
      protocol, or if it does not hold under the requested relation.
  """
  ours = [leaf for leaf in leaves if only_replace_one(leaf[0])]
  strangers = [
      leaf
      for leaf in leaves
      if not isinstance(
          leaf[0], (run_events.ProtocolDpEvent, *run_events.NOISED_SUM_TYPES)
      )
  ]
  if strangers:
    other = f' next to {run_events.kinds(ours)}' if ours else ''
    raise _checks.PrivacyRefusedError(
        f'{run_events.kinds(strangers)} is not accounted for here{other}',
        why='only noised sums and events of protocols have bounds here',
        way_out='for sampling by secret coins, plan.epsilon(...) or accountants.'
        "epsilon(event, method='pld', ...) of tff_dp.accounting; without them,"
        ' pass the event inside of the sampled one, as often as it takes place;'
        ' account for any other event separately',
    )
  if asked is None:
    asked = 'replace_one' if ours else 'zero_out'
  relation = Relation(asked)
  if ours and relation is not Relation.REPLACE_ONE:
    reasons = dict.fromkeys(only_replace_one(leaf) for leaf, _ in ours)
    raise _checks.PrivacyRefusedError(
        f'{run_events.kinds(ours)} is not accounted for under {relation}'
        ' adjacency',
        why='; '.join(reasons),
        way_out='neighboring_relation=replace_one',
    )
  return relation


def together(leaves: run_events.Leaves, method: str) -> Whole | None:
  """Returns the joint loss of all leaves, `None` if no rules compute it.

  The loss is for replace-one. Only events that are stated for replace-one have
  rules that compute it.

  Args:
    leaves: Leaves of the event of the run.
    method: Name of the accountant, see `accountants`.

  Raises:
    TypeError: If a leaf has no rules.
  """
  for leaf, _ in leaves:
    found = rules_of(leaf).together
    if found is not None:
      return found(leaves, method)
  return None


def assumptions_of(
    leaves: Sequence[dp_accounting.DpEvent],
    *,
    bound: str,
    derived_sources: Sequence[str],
    relation: Relation,
) -> tuple[str, ...]:
  """Returns the assumptions of a certificate, one sentence each.

  Args:
    leaves: Leaves of the event of the run, see `run_events.leaves`.
    bound: Name of the bound that gives epsilon.
    derived_sources: Pages with this project's own proofs that the bound rests
      on, empty if there are none.
    relation: Relation under which epsilon holds.
  """
  unit = unit_of(leaves)
  neighbours = unit.neighbours or relation.description
  found = [f'The unit is {unit.phrase}; neighbours: {neighbours}.']
  for leaf in leaves:
    found += rules_of(leaf).assumptions(leaf, bound)
  if derived_sources:
    found.append(
        f'Bound {bound!r} rests on {OWN_PROOFS}:'
        f' {", ".join(derived_sources)}.'
    )
  return tuple(dict.fromkeys(found))


def unit_of(leaves: Sequence[dp_accounting.DpEvent]) -> Unit:
  """Returns the unit of privacy of everything together."""
  distinct = dict.fromkeys(rules_of(leaf).unit for leaf in leaves)
  units = sorted(distinct, key=lambda unit: unit != CLIENT)
  if len(units) < 2:
    return units[0] if units else CLIENT
  return Unit(
      ' with one '.join(unit.name for unit in units),
      ' with '.join(unit.phrase for unit in units)
      + ', which change together',
  )


def without_protocol(
    report: local_profiles.LocalReport, count: int
) -> Bound:
  """Returns the bound named 'none' for local reports, without amplification.

  It is the loss if the adversary sees each report separately.

  Args:
    report: Local guarantee of one report.
    count: Number of reports.
  """
  return Bound(
      'none', 'the local randomizer alone', part=lambda: report.part(count)
  )


def nobody(name: str, count: int) -> Bound:
  """Returns the bound on a protocol in which nobody takes part: epsilon 0.

  Args:
    name: Name of the bound.
    count: Number of events.
  """
  part = lambda: composition.Part(privacy_profiles.nothing, count)
  return Bound(name, 'nobody takes part', part=part)


def noise_at_the_server(
    event: dp_accounting.DpEvent, count: int, relation: Relation
) -> Bound:
  """Returns the bound named 'none' for noised sums, without amplification.

  It is the loss if the adversary knows whose contributions are in each sum.

  Args:
    event: A Gaussian or Laplace event, stated for zero-out.
    count: Number of sums.
    relation: Relation to account under.
  """
  part = functools.partial(_noised_sum, event, count, relation)
  return Bound('none', 'the noise at the server', part=part)


def _noised_sum(event, count: int, relation: Relation) -> composition.Part:
  """Returns the part of `count` noised sums, from an event for zero-out.

  Under replace-one a contribution moves by up to twice its bound. This function
  applies the factor, because dp_accounting 0.4 does not, and 0.6 does for some
  events only.
  """
  multiplier = float(event.noise_multiplier)
  if multiplier == math.inf:
    return composition.Part(privacy_profiles.nothing)
  if multiplier == 0:
    return composition.Part(privacy_profiles.everything)
  sigma = run_events.effective_sigma(
      noise_multiplier=multiplier,
      squared_sensitivity=1.0,
      neighboring_relation=relation,
  )
  if isinstance(event, dp_accounting.LaplaceDpEvent):
    return composition.Part(local_profiles.laplace(1 / sigma), count)
  return composition.one_gaussian(sigma, count)


_NOISED_SUMS = dict.fromkeys(
    run_events.NOISED_SUM_TYPES,
    Rules(
        bounds=lambda event, count, unused_delta, relation: (
            noise_at_the_server(event, count, relation),
        ),
        assumptions=lambda *_: ['The server adds the noise, and is trusted to.'],
    ),
)
ABSENCE_SHOWS = 'a client that is absent would show in the number of reports'
LOCAL = dict.fromkeys(
    (
        run_events.LocalDpEvent,
        run_events.RandomizedResponseLocalDpEvent,
        run_events.SphereLocalDpEvent,
        run_events.LaplaceLocalDpEvent,
        run_events.GaussianLocalDpEvent,
    ),
    Rules(
        bounds=lambda event, count, *_: (
            without_protocol(local_profiles.report(event), count),
        ),
        assumptions=lambda *_: [HONEST_NOISE],
        only_replace_one=ABSENCE_SHOWS,
    ),
)
