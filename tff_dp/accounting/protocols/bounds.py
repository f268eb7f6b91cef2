# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a bound is, and what is known about one report and one noised sum.

Everything that amplification starts from follows from the type of the event:
the profile, the (epsilon0, delta0) that hold, and which rule for clones is
proven. A subclass of a local event from elsewhere is not known here, whatever
it inherits: its meaning is its own.

Then the relation of a certified epsilon, and what has to be true for it.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.accounting.amplification import shuffling
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import record_events
from tff_dp.accounting.events import run_events

# Local epsilons at which the curve of a Gaussian randomizer is tried.
_SPLITS = np.geomspace(0.02, 20.0, 48)
# Covers the rounding of a square root and a division.
_ROUNDED_DOWN = 1 - 1e-15


@dataclasses.dataclass(frozen=True)
class Bound:
  """An upper bound on what `count` equal events cost.

  At least one of `part` and `epsilon` is there. Both may raise
  `NotApplicableError`.

  Attributes:
    name: One of `protocol_bounds.NAMES`.
    source: Paper and theorem, or page of proofs.
    is_derived: Whether it rests on an argument of this project.
    part: Returns what composes with other events.
    epsilon: Returns epsilon at delta if nothing else is released: no larger
      than by `part`, if that is there too.
  """

  name: str
  source: str
  is_derived: bool = False
  part: Callable[[], composition.Part] | None = None
  epsilon: Callable[[float], float] | None = None


@dataclasses.dataclass(frozen=True)
class LocalReport:
  """What is known about one local report, for replace-one.

  Attributes:
    profile: Its own.
    splits: Returns, for the delta of a whole, (epsilon0, delta0) that hold.
    is_pure: Whether there is one pair and its delta0 is 0.
    strong_clones: What tells the shuffle that its type has more clones than
      the exp(-epsilon0) of all; empty if that is not proven.
    together: Returns `count` reports as one part.
  """

  profile: privacy_profiles.Profile
  splits: Callable[[float], tuple[tuple[float, float], ...]]
  is_pure: bool
  strong_clones: tuple[tuple[str, float], ...] = ()
  together: Callable[[int], composition.Part] | None = None

  def part(self, count: int) -> composition.Part:
    """Returns so many reports, each seen on its own."""
    if self.together is not None:
      return self.together(count)
    return composition.Part(self.profile, count)

  @property
  def split(self) -> tuple[float, float]:
    """The one (epsilon0, delta0) of a randomizer that has one."""
    (pair,) = self.splits(0.5)
    return pair


def report(event: run_events.LocalRandomizerDpEvent) -> LocalReport:
  """Returns what is known about the report that an event describes."""
  kind = type(event)
  if kind is run_events.GaussianLocalDpEvent:
    return _gaussian_report(event.noise_multiplier)
  if kind is run_events.LocalDpEvent:
    return LocalReport(
        local_profiles.approximate(event.epsilon, event.delta),
        lambda _: ((event.epsilon, event.delta),),
        is_pure=event.delta == 0,
    )
  strong_clones = ()
  if kind is run_events.SphereLocalDpEvent:
    profile = local_profiles.pure(event.epsilon)
    strong_clones = (
        (
            'clone_probability',
            shuffling.strong_clone_probability(event.epsilon),
        ),
    )
  elif kind is run_events.LaplaceLocalDpEvent:
    profile = local_profiles.laplace(event.epsilon)
  elif kind is run_events.RandomizedResponseLocalDpEvent:
    profile = local_profiles.randomized_response(
        event.epsilon, event.num_categories
    )
    strong_clones = (('num_categories', event.num_categories),)
  else:
    raise TypeError(
        f'event={event!r} is not allowed: expected one of the local events of'
        ' tff_dp.accounting.events.run_events.'
    )
  return LocalReport(
      profile, lambda _: ((event.epsilon, 0.0),), True, strong_clones
  )


def none(report: LocalReport, count: int) -> Bound:
  """Returns what holds without the protocol: reports, each seen alone."""
  return Bound(
      'none', 'the local randomizer alone', part=lambda: report.part(count)
  )


def nobody(name: str, source: str, count: int) -> Bound:
  """Returns the bound on a protocol in which nobody takes part."""
  part = lambda: composition.Part(privacy_profiles.nothing, count)
  return Bound(name, source, part=part)

def is_noised_sum(event: dp_accounting.DpEvent) -> bool:
  """Whether the event is a Gaussian or Laplace mechanism of dp_accounting."""
  return isinstance(
      event, (dp_accounting.GaussianDpEvent, dp_accounting.LaplaceDpEvent)
  )


def noised_sum(
    event: dp_accounting.GaussianDpEvent | dp_accounting.LaplaceDpEvent,
    count: int,
    relation: run_events.NeighboringRelation,
) -> composition.Part:
  """Returns `count` noised sums, whose event is stated for zero-out.

  Under replace-one a contribution moves by up to twice its bound. That is
  applied here: dp_accounting 0.4 does not, 0.6 does for some events.
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
  return one_gaussian(sigma, count)


def one_gaussian(sigma: float, count: int) -> composition.Part:
  """Returns adaptively chosen Gaussian mechanisms as the one that they are.

  Exact: arXiv:1905.02383, corollary 3.3.

  Args:
    sigma: Noise over the distance of neighbours, of one.
    count: How many.
  """
  sigma = sigma / math.sqrt(count) * _ROUNDED_DOWN
  return composition.Part(gaussian.profile(sigma), sigma=sigma)


def _gaussian_report(noise_multiplier: float) -> LocalReport:
  """Returns a report with Gaussian noise, which has a curve of splits."""
  profile = local_profiles.gaussian(noise_multiplier)

  def splits(delta):
    local_deltas = profile(_SPLITS)
    return tuple(
        (float(local_epsilon), float(local_delta))
        for local_epsilon, local_delta in zip(
            _SPLITS, local_deltas, strict=True
        )
        if local_delta < delta
    )

  together = lambda count: one_gaussian(noise_multiplier / 2, count)
  return LocalReport(profile, splits, False, together=together)


_COINS = (
    "Each client's coins are its own, honest, fresh, independent of all data"
    ' and known to nobody else.'
)
_HONEST_NOISE = (
    'Each client clips and adds its noise itself, as the randomizer says.'
)
_CLIENT = 'client'
_RECORD = 'record in a silo'
_CLIPS = 'Every record is clipped by itself, inside of its silo.'
_SECRET_SLOTS = (
    'The server and the channels to it are trusted: nobody learns who checked'
    ' in, who won and which slots were empty.'
)


def assumptions_of(
    leaves: Sequence[dp_accounting.DpEvent],
    *,
    bound: str,
    derived_sources: Sequence[str],
    relation: run_events.NeighboringRelation,
) -> tuple[str, ...]:
  """Returns what a certificate by a bound assumes, one sentence each.

  Args:
    leaves: What is released.
    bound: The bound that the epsilon is from.
    derived_sources: Where arguments of this project that it rests on are
      written; empty if it rests on none.
    relation: That the epsilon holds for.
  """
  found = [f'The unit is {unit_of(leaves)[1]}.']
  if unit_of(leaves)[0] != _RECORD:
    found = [f'{found[0][:-1]}; neighbours: {relation.description}.']
  for leaf in leaves:
    found += _of_leaf(leaf, bound)
  if derived_sources:
    found.append(
        f'Bound {bound!r} rests on arguments of this project that were not peer'
        f' reviewed: {", ".join(derived_sources)}.'
    )
  return tuple(dict.fromkeys(found))


def relation_for(
    leaves: run_events.Leaves,
    asked: run_events.NeighboringRelation | str | None,
) -> run_events.NeighboringRelation:
  """Returns the relation to account under, after checking that it exists.

  Args:
    leaves: What is released.
    asked: None for replace-one if anything is stated for it, else zero-out.

  Raises:
    PrivacyRefusedError: If no relation, or not this one, covers everything.
  """
  strangers = [
      leaf
      for leaf in leaves
      if not isinstance(leaf[0], run_events.ProtocolDpEvent)
      and not is_noised_sum(leaf[0])
  ]
  ours = [
      leaf
      for leaf in leaves
      if isinstance(leaf[0], run_events.REPLACE_ONE_TYPES)
  ]
  if strangers:
    other = f' next to {run_events.kinds(ours)}' if ours else ''
    raise _checks.PrivacyRefusedError(
        f'{run_events.kinds(strangers)} is not accounted for here{other}',
        why='amplification by check-ins and shuffling and messages of silos are'
        ' stated for replace-one or zero-out, other sampling for add-or-remove',
        way_out='an epsilon of its own for each, or an event that bounds it,'
        ' such as the GaussianDpEvent of the same noise without sampling',
    )
  if asked is None:
    asked = 'replace_one' if ours else 'zero_out'
  relation = run_events.NeighboringRelation(asked)
  if ours and relation is not run_events.NeighboringRelation.REPLACE_ONE:
    raise _checks.PrivacyRefusedError(
        f'{run_events.kinds(ours)} is not accounted for under {relation}'
        ' adjacency',
        why=_reasons(ours),
        way_out='neighboring_relation=replace_one',
    )
  return relation


def unit_of(leaves: Sequence[dp_accounting.DpEvent]) -> tuple[str, str]:
  """Returns (whose data is protected, the same in a sentence)."""
  is_record = [
      isinstance(leaf, run_events.RecordDpEvent) for leaf in leaves
  ]
  if not any(is_record):
    return _CLIENT, 'a client'
  if all(is_record):
    return _RECORD, (
        'a record of a silo; neighbours: replace-one, another record is in its'
        ' place, and the number of records stays'
    )
  return f'{_CLIENT} with one {_RECORD}', (
      'a client with one record in one silo; the record and what the client'
      ' does change together'
  )


def _reasons(leaves: run_events.Leaves) -> str:
  """Returns why events are stated for no other relation than replace-one."""
  is_record = [
      isinstance(leaf, run_events.RecordDpEvent) for leaf, _ in leaves
  ]
  reasons = []
  if not all(is_record):
    reasons.append(
        'a client that is absent would show in the number of reports'
    )
  if any(is_record):
    reasons.append(
        'the number of records of a silo is public, so none can be absent'
    )
  return '; '.join(reasons)


def _of_leaf(leaf, bound: str) -> list[str]:
  if isinstance(leaf, run_events.RecordDpEvent):
    return _of_record(leaf, bound)
  if is_noised_sum(leaf):
    return ['The server adds the noise, and is trusted to.']
  if isinstance(leaf, run_events.RandomAllocationDpEvent):
    found = [
        'The server is trusted: it adds Gaussian noise to the sum of every'
        ' step, empty steps too, and never divides by the number of reports.'
    ]
    if bound != 'none':
      found += [
          _COINS,
          'Nobody else learns in which step a client took part.',
      ]
      if leaf.num_selected > 1:
        found.append(
            'What a client sends in a step does not depend on which of its'
            ' other steps were selected.'
        )
    return found
  if isinstance(leaf, run_events.LocalRandomizerDpEvent):
    return [_HONEST_NOISE]
  if bound == 'none':
    reports = (
        'one report per client and round'
        if isinstance(leaf, run_events.ShuffledCheckInDpEvent)
        else 'one report per client'
    )
    return [_HONEST_NOISE, f'At most {reports}; nobody else is trusted.']
  return [_HONEST_NOISE, *_of_protocol(leaf, bound)]


def _of_record(leaf, bound: str) -> list[str]:
  """Returns what messages of a silo, or an opened sum, assume."""
  if isinstance(leaf, record_events.SumDpEvent):
    return [
        _CLIPS,
        'Nothing but the sum over all silos is ever opened, and never without'
        ' the noise that is promised to be in it.',
        'Silos add their noise, keep it secret and draw it from randomness that'
        ' nobody outside can seed, replay or learn.',
    ]
  found = [
      _CLIPS,
      'The silo adds the noise itself, from randomness that nobody outside can'
      ' seed, replay or learn; nobody else is trusted.',
      'A person with several records in the silo pays more.',
  ]
  if bound != 'none':
    found.append('Which records were in a batch stays secret.')
  return found


def _of_protocol(leaf, bound: str) -> list[str]:
  """Returns what the protocol of a leaf adds."""
  if isinstance(leaf, run_events.FixedWindowCheckInDpEvent):
    return [
        _COINS,
        _SECRET_SLOTS,
        f'Check-in probability {leaf.check_in_probability:g}, in one of'
        f' {leaf.num_slots} slots. The number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, run_events.SlidingWindowCheckInDpEvent):
    return [
        _COINS,
        _SECRET_SLOTS,
        f'Each client is in one of the {leaf.window} slots of its window. The'
        ' number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, run_events.AveragedCheckInDpEvent):
    return [
        _COINS,
        'The server and the channels to it are trusted; the number of reports'
        ' in a slot may leak.',
        'Participants do not collude with whoever sees the models.',
        f'At least {leaf.min_num_clients} clients check in, each in one of'
        f' {leaf.num_slots} slots.',
    ]
  shuffler = (
      'The shuffler and the channels to it are trusted: it strips identities'
      ' and permutes. The aggregator is not trusted.'
  )
  others = 'run the randomizer honestly and do not reveal their reports.'
  if isinstance(leaf, run_events.ShuffledDpEvent):
    return [
        shuffler,
        f'At least {leaf.num_messages} clients send one report each, {others}',
    ]
  if bound == 'subsampling':
    others = 'flip honest coins; nobody learns who took part.'
  return [
      shuffler,
      _COINS,
      f'At least {leaf.min_num_clients} clients are sure to flip their coins,'
      ' and to deliver unless they drop out independently of data and'
      f' identity; they {others}',
      f'Check-in probability {leaf.check_in_probability:g}; no independent'
      ' dropout is credited beyond it.',
  ]
