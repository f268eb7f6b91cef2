# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The epsilon that an event certifies, and the argument behind it.

    certificate = best_bound.amplify(
        dp_accounting.SelfComposedDpEvent(event_of_a_round, 6800),
        delta=1 / 60_000)
    certificate.epsilon, certificate.bound, certificate.assumptions

The epsilon is the smallest of all sound bounds that apply. The bound without
amplification, 'none', is always a candidate.
"""

import dataclasses
import functools
import math
import numbers
from typing import Any

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import composition as parts_lib
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds

# Name of the bound from the pointwise minimum of several profiles.
COMBINED = 'combined'
# Reason of a slow bound that nobody asked for.
SKIPPED = 'not computed: slow, and hardly ever less; ask for it by name'

# Epsilons at which profiles are compared, to see whether they cross.
_COMPARED = np.concatenate([[0.0], np.geomspace(1e-6, 30.0, 60)])
# Rounding residue at the end of a profile, which is ignored.
_NOTHING = 1e-13


@dataclasses.dataclass(frozen=True)
class Candidate:
  """One bound and the epsilon that it gives.

  Attributes:
    bound: Name of the bound.
    epsilon: Epsilon at the certificate's delta, infinity if the bound gives
      none.
    source: Paper and theorem, or page of proofs.
    reason: Reason why the bound gives no epsilon, or why its epsilon is not
      below the one without amplification. Else empty.
  """

  bound: str
  epsilon: float
  source: str
  reason: str = ''

  def __post_init__(self):
    object.__setattr__(self, 'epsilon', _certified(epsilon=self.epsilon))


@dataclasses.dataclass(frozen=True)
class Certificate:
  """An upper bound on epsilon, with the bounds and sources behind it.

  Attributes:
    epsilon: Smallest epsilon of the candidates, infinity if none is finite.
    delta: Delta at which epsilon holds.
    bound: Name of the candidate that gives epsilon.
    candidates: All bounds that were considered. The first is 'none', which
      claims no amplification.
    epsilon_no_amplification: Epsilon without amplification by clients' coins,
      by shuffling, or by a server that keeps messages secret.
    neighboring_relation: Relation under which epsilon holds.
    bound_asked_for: 'best', or the one bound that was requested.
    leaves: Events that make up the certified event, each once.
    derived_sources: Pages of the docs with this project's own proofs that
      epsilon needs.
  """

  epsilon: float
  delta: float
  bound: str
  candidates: tuple[Candidate, ...]
  epsilon_no_amplification: float
  neighboring_relation: run_events.NeighboringRelation
  bound_asked_for: str = 'best'
  leaves: tuple[dp_accounting.DpEvent, ...] = ()
  derived_sources: tuple[str, ...] = ()

  def __post_init__(self):
    for name in ('epsilon', 'epsilon_no_amplification'):
      value = _certified(**{name: getattr(self, name)})
      object.__setattr__(self, name, value)
    _checks.in_open(0.0, 1.0, delta=self.delta)
    for candidate in self.candidates:
      if not isinstance(candidate, Candidate):
        raise TypeError(
            f'candidates={candidate!r} is not allowed: expected Candidate.'
        )
    if self.epsilon > self.epsilon_no_amplification:
      raise _checks.ArgumentError(
          'epsilon',
          self.epsilon,
          f'at most epsilon_no_amplification={self.epsilon_no_amplification}',
      )

  @property
  def assumptions(self) -> tuple[str, ...]:
    """The assumptions that must hold, one sentence each."""
    return bounds.assumptions_of(
        self.leaves,
        bound=self.bound,
        derived_sources=self.derived_sources,
        relation=self.neighboring_relation,
    )

  @property
  def unit(self) -> str:
    """The unit of privacy, such as a client."""
    return bounds.unit_of(self.leaves).name

  @property
  def is_vacuous(self) -> bool:
    """Whether nothing is guaranteed at this delta."""
    return self.epsilon == math.inf

  @property
  def is_amplified(self) -> bool:
    """Whether the protocol lowers epsilon at all."""
    return self.epsilon < self.epsilon_no_amplification

  @property
  def warnings(self) -> tuple[str, ...]:
    """Facts that a reader of epsilon must be told, one sentence each."""
    said = []
    if self.is_vacuous:
      said.append(
          f'The guarantee is vacuous: no epsilon holds at delta {self.delta:g}.'
      )
      said += [
          f'{candidate.bound}: {candidate.reason}'
          for candidate in self.candidates
          if candidate.reason and candidate.bound == 'none'
      ]
    elif not self.is_amplified:
      said.append(
          'No amplification is certified; this is what the noise alone gives.'
      )
    asked = self.bound_asked_for
    if asked not in ('best', self.bound):
      said += [
          f'{asked} was asked for; {self.bound} stands instead: {found.reason}.'
          for found in self.candidates
          if found.bound == asked
      ]
    return tuple(said)

  def to_json(self) -> dict[str, Any]:
    """Returns the certificate as JSON types, with infinity as 'inf'.

    The fields `leaves`, `bound_asked_for` and `derived_sources` are left out.
    The assumptions and the warnings, which are computed from these fields, are
    included.
    """
    number = rounding.to_json_number
    return {
        'epsilon': number(self.epsilon),
        'delta': self.delta,
        'epsilon_no_amplification': number(self.epsilon_no_amplification),
        'unit': self.unit,
        'neighboring_relation': self.neighboring_relation.value,
        'bound': self.bound,
        'is_vacuous': self.is_vacuous,
        'assumptions': list(self.assumptions),
        'warnings': list(self.warnings),
        'candidates': [
            dataclasses.asdict(candidate)
            | {'epsilon': number(candidate.epsilon)}
            for candidate in self.candidates
        ],
    }


def amplify(
    event: dp_accounting.DpEvent,
    *,
    delta: float,
    bound: str = 'best',
    neighboring_relation: run_events.NeighboringRelation | str | None = None,
    published_proofs: bool = False,
) -> Certificate:
  """Returns the certificate of an event at delta. Upper bound.

  Args:
    event: An event of a protocol, a local report or a record, a Gaussian or
      Laplace event, or a composition of such events.
    delta: Delta of everything together, in the open interval (0, 1).
    bound: 'best', or the name of a bound. If that bound does not apply, or
      gives no smaller epsilon than 'none', the result is 'none', the bound
      without amplification.
    neighboring_relation: Relation to account under. Default: replace-one if any
      part is stated for it, else zero-out.
    published_proofs: Whether to use only bounds with a published proof. Then
      slow bounds are computed, too.

  Raises:
    PrivacyRefusedError: If a part does not hold under the relation, or if a
      part is neither a noised sum nor an event of a protocol.
    TypeError: If the bounds on a part are unknown, as for a foreign subclass.
    ArgumentError: If `bound` is a bound on none of the parts, or if delta is
      out of range.
  """
  _checks.in_open(0.0, 1.0, delta=delta)
  leaves = run_events.leaves(event)
  relation = bounds.relation_for(leaves, neighboring_relation)
  _checks.one_of(bounds.names_of(event), bound=bound)
  return _amplified(
      tuple(run_events.merged(leaves)),
      float(delta),
      bound,
      relation,
      bool(published_proofs),
  )


# More than the 64 rounds of a run that have an epsilon (`plans.base`), so that
# another seed of the same run finds them all.
@functools.lru_cache(maxsize=256)
def _amplified(leaves, delta, bound, relation, published_proofs) -> Certificate:
  """Returns the certificate of (leaf, count) pairs without duplicates."""
  table = [
      {
          found.name: found
          for found in bounds.of(
              leaf, count=count, delta=delta, relation=relation
          )
      }
      for leaf, count in leaves
  ]
  search = _Search(table, delta, published_proofs)
  none = search.candidate('none')
  candidates = [none]
  # Nothing is below an epsilon of 0. With very much noise the other bounds
  # would take minutes.
  if bound == 'best' and none.epsilon > 0:
    names = dict.fromkeys(name for named in table for name in named)
    candidates += [
        search.candidate(name, even_slow=published_proofs)
        for name in names
        if name != 'none'
    ]
    is_vacuous = all(found.epsilon == math.inf for found in candidates)
    if not is_vacuous and search.is_worth_combining():
      candidates.append(search.combined())
  elif bound not in ('best', 'none'):
    candidates.append(search.candidate(bound))
  candidates = [none] + [
      dataclasses.replace(found, reason='no less than without amplification')
      if none.epsilon <= found.epsilon < math.inf
      else found
      for found in candidates[1:]
  ]
  chosen = min(candidates, key=lambda candidate: candidate.epsilon)
  return Certificate(
      epsilon=chosen.epsilon,
      delta=delta,
      bound=chosen.bound,
      candidates=tuple(candidates),
      epsilon_no_amplification=none.epsilon,
      neighboring_relation=relation,
      bound_asked_for=bound,
      leaves=tuple(leaf for leaf, _ in leaves),
      derived_sources=search.derived_sources(chosen.bound),
  )


class _Search:
  """The bounds on the leaves of one event, evaluated when they are needed."""

  def __init__(self, table, delta: float, published_proofs: bool):
    self._table = table
    self._delta = delta
    self._published_proofs = published_proofs
    self._made: dict[tuple[int, str], parts_lib.Part] = {}

  def candidate(self, name: str, *, even_slow: bool = True) -> Candidate:
    """Returns the candidate of one bound.

    Leaves that do not have the bound are accounted for by 'none'.

    Args:
      name: Name of the bound.
      even_slow: Whether to compute a slow bound. If not, the candidate of a
        slow bound says that it was skipped.
    """
    named = [found.get(name) for found in self._table]
    source = next((found.source for found in named if found), '')
    if not any(named) and self._table:
      return Candidate(
          name, math.inf, source, 'not a bound on events of this kind'
      )
    if self._published_proofs and any(b and b.is_derived for b in named):
      why = 'turned off: published_proofs=True'
      return Candidate(name, math.inf, source, why)
    if not even_slow and any(found and found.is_slow for found in named):
      return Candidate(name, math.inf, source, SKIPPED)
    try:
      epsilon, reason = self._epsilon(name, named)
    except privacy_profiles.NotApplicableError as error:
      return Candidate(name, math.inf, source, error.reason)
    return Candidate(name, epsilon, source, reason)

  def _epsilon(self, name, named) -> tuple[float, str]:
    if len(named) == 1 and named[0].epsilon is not None:
      return max(0.0, float(named[0].epsilon(self._delta))), ''
    parts = []
    for index, found in enumerate(named):
      if found is not None and found.part is None:
        raise privacy_profiles.NotApplicableError(
            'the formula is for one event, and does not compose with others'
        )
      parts.append(self._part(index, name if found else 'none'))
    epsilon = parts_lib.epsilon(parts, self._delta)
    reason = ''
    if epsilon == math.inf:
      rest = min(1.0, sum(part.least_delta for part in parts))
      reason = (
          f'a delta of {rest:.3g} remains at any epsilon up to'
          f' {privacy_profiles.LARGEST_EPSILON:g}, above delta {self._delta:g}'
          if rest > self._delta
          else f'delta {self._delta:g} is not reached'
      )
    return epsilon, reason

  def _part(self, index: int, name: str) -> parts_lib.Part:
    if (index, name) not in self._made:
      self._made[index, name] = self._table[index][name].part()
    return self._made[index, name]

  def _usable(self, index: int) -> list[parts_lib.Part]:
    """Returns the parts of one leaf that were computed for candidates."""
    return [
        part for (where, _), part in self._made.items() if where == index
    ]

  def is_worth_combining(self) -> bool:
    """Whether a combination of the computed bounds may give a smaller epsilon.

    For a single leaf, this needs several bounds, none of which is the smallest
    at every epsilon. For several leaves, it needs two bounds beside 'none'.
    """
    names = {name for _, name in self._made if name != 'none'}
    if len(self._table) > 1:
      return len(names) > 1
    if not self._table:
      return False
    usable = [part for part in self._usable(0) if part.least_delta < 1]
    if len(usable) < 2 or len({part.count for part in usable}) > 1:
      return False
    return _cross(tuple(usable))

  def combined(self) -> Candidate:
    """Returns the candidate from the pointwise minimum of each leaf's profiles.
    """
    parts = [
        parts_lib.least(self._usable(index))
        for index in range(len(self._table))
    ]
    return Candidate(
        COMBINED,
        parts_lib.epsilon(parts, self._delta),
        'the pointwise least of the others that compose',
    )

  def derived_sources(self, name: str) -> tuple[str, ...]:
    """Returns the pages with our own proofs that a candidate rests on."""
    if name == COMBINED:
      used = [self._table[index][made] for index, made in self._made]
    else:
      used = [found[name] for found in self._table if name in found]
    return tuple(
        dict.fromkeys(bound.source for bound in used if bound.is_derived)
    )


@functools.lru_cache(maxsize=64)
def _cross(parts: tuple[parts_lib.Part, ...]) -> bool:
  """Whether none of the parts has the smallest profile at every epsilon."""
  sides = {'profile'} | {'reverse' for part in parts if part.reverse}
  for side in sides:
    curves = np.stack([
        (getattr(part, side) or part.profile)(_COMPARED) for part in parts
    ])
    least = curves.min(axis=0) + _NOTHING
    if not (curves <= least * (1 + 1e-6)).all(axis=1).any():
      return True
  return False


def _certified(**argument) -> float:
  """Returns an epsilon as a float. Raises unless it is a number, at least 0.

  Args:
    **argument: One keyword argument: the epsilon, under the name that an error
      message gives it.
  """
  ((name, value),) = argument.items()
  if not isinstance(value, numbers.Real) or isinstance(value, bool):
    raise TypeError(
        f'{name}={value!r} is not allowed: expected a number. Values'
        ' of published formulas are refused, because they are not certified.'
    )
  number = float(value)
  if not number >= 0:
    raise _checks.ArgumentError(name, value, 'a number of at least 0')
  return number
