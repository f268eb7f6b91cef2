# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bounds on messages of silos and on opened sums (see `bounds`).

| bound | of | source |
|---|---|---|
| none | messages | *Exact*: as if the record were in every batch |
| none | opened sums | the noise that is promised (`integer_plans`) |
| subsampling | Poisson batches | [derived] proposition 1 of the page below |
| subsampling | batches of fixed size | the sources of convexity |
| convexity | sampled batches | arXiv:1807.01647, theorem 2; arXiv:2106.08567 |

docs/proofs_silos.md proves the [derived] bounds and the conclusions from the
papers. 'convexity' is the bound that `silo_sampling` uses with
`published_proofs`.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools

import dp_accounting
import numpy as np

from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds
from tff_dp.systems.silos import integer_sums
from tff_dp.systems.silos import record_events
from tff_dp.systems.silos import silo_events

_PROOFS = 'docs/proofs_silos.md'
_CONVEXITY = 'arXiv:1807.01647, theorem 2; arXiv:2106.08567'
_ALONE = 'a message in whose batch the record is sure to be'
_MOST_COMBINATIONS = 64
_CLIPS = 'Every record is clipped by itself, inside of its silo.'

_Messages = tuple[tuple[record_events.MessageDpEvent, int], ...]


def uses_of(leaves: run_events.Leaves) -> list[silo_events.Uses] | None:
  """Returns the messages that use a record, for each part that may contain it.

  Parts are the parts of a `DisjointRecordsDpEvent`. If several leaves are such
  events, there is one entry for each combination of their parts. Without such
  leaves there is one entry. Messages and Gaussian releases outside of parts are
  in every entry.

  The result is `None` if there are more than 64 combinations, or if there is

  * an event of another kind,
  * a Gaussian release without noise or with infinite noise, or
  * a `DisjointRecordsDpEvent` that occurs more than once.

  Args:
    leaves: Leaves to account for under replace-one.
  """
  options: list[list[silo_events.Uses]] = []
  for leaf, count in leaves:
    if isinstance(leaf, dp_accounting.GaussianDpEvent):
      if not 0 < leaf.noise_multiplier < np.inf:
        return None
      # Stated for zero-out. Under replace-one it moves by 2 C, like a message.
      use = ('gaussian', 1.0, float(leaf.noise_multiplier))
      options.append([((use, count),)])
    elif type(leaf) is record_events.DisjointRecordsDpEvent and count == 1:
      options.append([_uses(part) for part in leaf.parts()])
    elif isinstance(leaf, record_events.MessageDpEvent):
      options.append([_uses(((leaf, count),))])
    else:
      return None
  if np.prod([len(option) for option in options], dtype=float) > (
      _MOST_COMBINATIONS
  ):
    return None
  return [
      _added(itertools.chain.from_iterable(chosen))
      for chosen in itertools.product(*options)
  ]


@dataclasses.dataclass(frozen=True)
class _Whole:
  """The loss of the worst of some uses of a record, see `bounds.Whole`."""

  uses: list[silo_events.Uses]

  def epsilon(self, delta: float) -> float:
    return max(silo_events.epsilon_of(use, delta, False) for use in self.uses)

  def delta(self, epsilon: float) -> float:
    return max(silo_events.delta_of(use, epsilon) for use in self.uses)


def _together(leaves: run_events.Leaves, method: str) -> _Whole | None:
  """Returns the loss of all leaves together, as a silo's ledger computes it.

  `None` if `uses_of` is `None`, or if `method` gives other numbers than the
  ledger: 'rdp' always, and 'exact' if a batch is sampled.
  """
  if method == 'rdp':
    return None
  uses = uses_of(run_events.merged(leaves))
  if uses is None:
    return None
  is_gaussian = all(kind == 'gaussian' for use in uses for (kind, _, _), _ in use)
  return _Whole(uses) if method == 'pld' or is_gaussian else None


def _of_messages(
    alternatives: tuple[_Messages, ...], count: int
) -> Iterator[bounds.Bound]:
  """Yields the bounds on messages, for the record with the largest loss.

  Args:
    alternatives: For each part of the records, the messages over that part. A
      record is in one part.
    count: Number of times that all of this happens.
  """
  sampled = [_uses(messages) for messages in alternatives]
  alone = [
      _added((('gaussian', 1.0, use[2]), n) for use, n in uses)
      for uses in sampled
  ]
  yield _bound('none', _ALONE, alone, count)
  kinds = {kind for uses in sampled for (kind, _, _), _ in uses}
  if kinds == {'gaussian'}:
    return
  if 'poisson' in kinds:
    yield _bound('subsampling', _PROOFS, sampled, count, is_derived=True)
  else:
    yield _bound('subsampling', _CONVEXITY, sampled, count)
  yield _bound('convexity', _CONVEXITY, sampled, count, published_proofs=True)


def _bound(
    name: str,
    source: str,
    alternatives: list[silo_events.Uses],
    count: int,
    *,
    published_proofs: bool = False,
    is_derived: bool = False,
) -> bounds.Bound:

  def epsilon(delta):
    # The same arithmetic as in ledgers, so that both give the same number.
    return max(
        silo_events.epsilon_of(
            _added((use, n * count) for use, n in uses), delta, published_proofs
        )
        for uses in alternatives
    )

  return bounds.Bound(
      name,
      source,
      is_derived,
      part=functools.partial(
          _worst_part, alternatives, count, published_proofs
      ),
      # If the worst part repeats, it may be about other records each time.
      epsilon=epsilon if count == 1 or len(alternatives) == 1 else None,
  )


def _worst_part(
    alternatives, count: int, published_proofs: bool
) -> composition.Part:
  """Returns `count` times the pointwise maximum of alternative profiles.

  Upper bound: the messages of the replaced record are one of the alternatives.
  """
  if len(alternatives) == 1:
    ((use, n), *more) = alternatives[0]
    if not more and use[0] == 'gaussian':
      return composition.one_gaussian(use[2] / 2, n * count)
    if not more:
      (part,) = silo_events.parts_of(((use, n * count),), published_proofs)
      return part
  profiles = [_profile(uses, published_proofs) for uses in alternatives]

  def worst(epsilons):
    return np.maximum.reduce([profile(epsilons) for profile in profiles])

  return composition.Part(worst, count)


def _profile(uses, published_proofs: bool) -> privacy_profiles.Profile:
  """Returns the profile of the messages together. Upper bound."""
  found = silo_events.parts_of(uses, published_proofs)
  if len(found) == 1 and found[0].count == 1:
    return found[0].profile
  return composition.together(found).profile()


def _uses(messages: _Messages) -> silo_events.Uses:
  return _added((_use(event), count) for event, count in messages)


def _added(uses) -> silo_events.Uses:
  """Returns uses, with equal ones counted together."""
  counts: dict[silo_events.Use, int] = {}
  for use, count in uses:
    counts[use] = counts.get(use, 0) + count
  return tuple(sorted(counts.items()))


def _use(event: record_events.MessageDpEvent) -> silo_events.Use:
  # Exact types only: a foreign subclass may mean something else.
  kind = type(event)
  if kind is record_events.GaussianRecordDpEvent:
    return 'gaussian', 1.0, event.noise_multiplier
  if kind is record_events.PoissonRecordDpEvent:
    name, rate = 'poisson', event.sampling_probability
  elif kind is record_events.FixedSizeRecordDpEvent:
    name, rate = 'fixed', float(event.batch_size) / event.num_records
  else:
    raise TypeError(
        f'event={event!r} is not allowed: expected a message of'
        ' tff_dp.systems.silos.record_events.'
    )
  return 'gaussian' if rate == 1 else name, rate, event.noise_multiplier


def _of_sum(event, count: int) -> bounds.Bound:
  """Returns the bound on `count` opened sums that all contain the record."""
  return bounds.Bound(
      'none',
      integer_sums.SOURCES[type(event)],
      part=functools.partial(integer_sums.part, event, count),
      epsilon=functools.partial(
          integer_sums.epsilon, event, num_rounds=count
      ),
  )


def _of_message(event, bound: str) -> list[str]:
  """Returns the assumptions behind a bound on messages of a silo."""
  del event
  found = [
      _CLIPS,
      'The silo adds the noise itself, from randomness that nobody outside can'
      ' seed, replay or learn; nobody else is trusted.',
      'A person with several records in the silo pays more.',
  ]
  if bound != 'none':
    found.append('Which records were in a batch stays secret.')
  return found


_rules = functools.partial(
    bounds.Rules,
    unit=bounds.Unit(
        'record in a silo',
        'a record of a silo',
        'replace-one, another record is in its place, and the number of records'
        ' stays',
    ),
    only_replace_one=(
        'the number of records of a silo is public, so none can be absent'
    ),
    together=_together,
)
_OF_MESSAGES = functools.partial(
    _rules, assumptions=_of_message, names=('subsampling', 'convexity')
)
_OF_SUMS = _rules(
    bounds=lambda event, count, *_: (_of_sum(event, count),),
    assumptions=lambda *_: [
        _CLIPS,
        'Nothing but the sum over all silos is ever opened, and never without'
        ' the noise that is promised to be in it.',
        'Silos add their noise, keep it secret and draw it from randomness that'
        ' nobody outside can seed, replay or learn.',
    ],
)
RULES = {
    record_events.DisjointRecordsDpEvent: _OF_MESSAGES(
        bounds=lambda event, count, *_: _of_messages(event.parts(), count)
    ),
    **dict.fromkeys(
        (
            record_events.GaussianRecordDpEvent,
            record_events.PoissonRecordDpEvent,
            record_events.FixedSizeRecordDpEvent,
        ),
        _OF_MESSAGES(
            bounds=lambda event, count, *_: _of_messages(
                (((event, 1),),), count
            )
        ),
    ),
    **dict.fromkeys(integer_sums.SOURCES, _OF_SUMS),
}
