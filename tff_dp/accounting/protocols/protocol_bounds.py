# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The sound bounds on what a check-in or shuffle event costs, by name.

Every event has several; which is least depends on its numbers.

| bound | of | source |
|---|---|---|
| none | everything | one report, or the noise of the server, alone |
| thinning | fixed window | [derived] not everybody takes part |
| subsampling | shuffled check-in | [derived] only the coins are credited |
| subsampling | messages of silos | Poisson [derived], else as convexity |
| convexity | messages of silos | arXiv:1807.01647, arXiv:2106.08567 |
| rci | check-ins, shuffle | arXiv:2007.06605, theorems 3.2, 4.1, 4.3, 5.1 |
| rci_numeric | fixed, sliding window | [derived] theorem 3.2 step by step |
| clones | shuffle | arXiv:2012.12803, as a profile; delta0 > 0 [derived] |
| clones | shuffled check-in | [derived] the same in a binomial cohort |
| strong_clones | both, some randomizers | [derived] more clones, by type |
| clones_by_cohort | shuffled check-in | arXiv:2206.03151, thm. 1, on profiles |
| renyi | shuffled check-in | arXiv:2206.03151, thm. 1, with its lemma 4 |
| allocation | random allocation | arXiv:2502.08202; numerics [derived] |

[derived] marks arguments of this project, proven in docs/proofs_shuffling.md,
docs/proofs_check_ins.md and docs/isrl_accounting.md; they can be turned off.
The formulas of papers that do not hold are in `published`, and are no bounds.
"""

from collections.abc import Iterator
import functools
import math

import dp_accounting

from tff_dp.accounting.amplification import random_allocation
from tff_dp.accounting.amplification import random_check_ins
from tff_dp.accounting.amplification import shuffled_check_in
from tff_dp.accounting.amplification import shuffled_renyi
from tff_dp.accounting.amplification import shuffling
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import protocol_events
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds
from tff_dp.accounting.protocols import check_in_bounds
from tff_dp.accounting.protocols import local_reports
from tff_dp.accounting.protocols import record_bounds

NAMES = (
    'none',
    'thinning',
    'subsampling',
    'convexity',
    'rci',
    'rci_numeric',
    'clones',
    'strong_clones',
    'clones_by_cohort',
    'renyi',
    'allocation',
)
# Sound whatever else is turned off, but slow, and next to never the least.
SLOW_NAMES = ('clones_by_cohort', 'renyi')

_CHECK_IN_PROOFS = 'docs/proofs_check_ins.md'
_SHUFFLING_PROOFS = 'docs/proofs_shuffling.md'
_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE
# Of delta, and at most, what the grid of a random allocation may cut off.
_TAIL_SHARE = 1e-4
_MOST_TAIL = 1e-10


def of(
    event: dp_accounting.DpEvent,
    *,
    count: int,
    delta: float,
    relation: run_events.NeighboringRelation,
) -> tuple[bounds.Bound, ...]:
  """Returns the bounds on `count` equal events, 'none' first.

  Args:
    event: A protocol, local or record event, a Gaussian or a Laplace event.
    count: How many.
    delta: Of everything together. Some bounds are tuned for it; they hold for
      any.
    relation: To account under; `protocol_events.REPLACE_ONE_TYPES` have no
      other than replace-one, which is for the caller to check.
  """
  if local_reports.is_noised_sum(event):
    part = functools.partial(local_reports.noised_sum, event, count, relation)
    return (bounds.Bound('none', 'the noise at the server', part=part),)
  if isinstance(event, protocol_events.RandomAllocationDpEvent):
    return tuple(_of_allocation(event, count, delta, relation))
  if isinstance(event, protocol_events.LocalRandomizerDpEvent):
    return (bounds.none(local_reports.report(event), count),)
  if isinstance(event, protocol_events.RecordDpEvent):
    return tuple(record_bounds.of(event, count))
  # Exact types, as for local events.
  find = {
      protocol_events.FixedWindowCheckInDpEvent: (
          check_in_bounds.of_fixed_window
      ),
      protocol_events.SlidingWindowCheckInDpEvent: (
          check_in_bounds.of_sliding_window
      ),
      protocol_events.AveragedCheckInDpEvent: check_in_bounds.of_averaged,
      protocol_events.ShuffledDpEvent: _of_shuffle,
      protocol_events.ShuffledCheckInDpEvent: _of_shuffled_check_in,
  }.get(type(event))
  if find is None:
    raise TypeError(
        f'event={event!r} is not allowed: expected an event of'
        ' tff_dp.accounting.events.run_events.protocol_events or record_events.'
    )
  return tuple(find(event, local_reports.report(event.event), count, delta))


def _of_shuffle(event, report, count, delta) -> Iterator[bounds.Bound]:
  num_reports = event.num_messages
  yield bounds.none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_5_1, num_reports=num_reports
  )
  yield check_in_bounds.closed_form('5.1', report, theorem, count, delta)

  def clones(**options):
    if isinstance(event.event, protocol_events.GaussianLocalDpEvent):
      # The best pair of a cohort that is as large, chosen by the same costs.
      _, (local_epsilon, local_delta) = (
          shuffled_check_in.gaussian_round_profile(
              noise_multiplier=event.event.noise_multiplier,
              num_clients=num_reports,
              check_in_rate=1.0,
              num_rounds=count,
              delta=delta,
          )
      )
    else:
      local_epsilon, local_delta = report.split
    if not local_epsilon > 0:
      raise privacy_profiles.NotApplicableError(
          'every (epsilon0, delta0) of the noise has a delta0 that costs more'
          ' than delta over all reports'
      )
    shuffled = shuffling.round_profile(
        local_epsilon=local_epsilon,
        num_reports=num_reports,
        local_delta=local_delta,
        **options,
    )
    return composition.Part(
        privacy_profiles.minimum(shuffled, report.profile), count
    )

  # What delta0 > 0 costs is derived here.
  if report.is_pure:
    yield bounds.Bound('clones', 'arXiv:2012.12803, theorem 3.1', part=clones)
  else:
    yield bounds.Bound('clones', _SHUFFLING_PROOFS, True, part=clones)
  yield _strong_clones(report, clones)


def _of_shuffled_check_in(
    event, report, count, delta
) -> Iterator[bounds.Bound]:
  yield bounds.none(report, count)
  if event.check_in_probability == 0:
    yield bounds.nobody('subsampling', 'nobody takes part', count)
    return
  cohort = dict(
      num_clients=event.min_num_clients,
      check_in_rate=event.check_in_probability,
  )

  def subsampled():
    profile = shuffled_check_in.subsampled_profile(report.profile, **cohort)
    return composition.Part(profile, count)

  yield bounds.Bound('subsampling', _SHUFFLING_PROOFS, True, part=subsampled)
  is_gaussian = isinstance(event.event, protocol_events.GaussianLocalDpEvent)

  def pair():
    if is_gaussian:
      raise privacy_profiles.NotApplicableError(
          'Gaussian noise has no single (epsilon0, delta0)'
      )
    return dict(zip(('local_epsilon', 'local_delta'), report.split))

  def clones(**options):
    if is_gaussian:
      profile, _ = shuffled_check_in.gaussian_round_profile(
          noise_multiplier=event.event.noise_multiplier,
          num_rounds=count,
          delta=delta,
          **cohort,
      )
    else:
      profile = shuffled_check_in.round_profile(**pair(), **cohort, **options)
    return composition.Part(profile, count)

  yield bounds.Bound('clones', _SHUFFLING_PROOFS, True, part=clones)
  yield _strong_clones(report, clones)

  def by_cohort():
    profile = shuffled_check_in.round_profile_by_cohort(**pair(), **cohort)
    return composition.Part(profile, count)

  if report.is_pure:
    source, is_derived = 'arXiv:2206.03151, theorem 1', False
  else:
    source, is_derived = _SHUFFLING_PROOFS, True
  yield bounds.Bound('clones_by_cohort', source, is_derived, part=by_cohort)

  def renyi(total_delta):
    if not isinstance(
        event.event, protocol_events.RandomizedResponseLocalDpEvent
    ):
      raise privacy_profiles.NotApplicableError(
          'lemma 4 is about randomizers with finitely many reports, that is'
          ' randomized response'
      )
    return shuffled_renyi.shuffled_check_in_epsilon(
        local_epsilon=report.split[0],
        num_rounds=count,
        delta=total_delta,
        **cohort,
    )

  source = 'arXiv:2206.03151, theorem 1, lemma 4'
  yield bounds.Bound('renyi', source, epsilon=renyi)


def _strong_clones(report, clones) -> bounds.Bound:
  """Returns clones with the larger probability, if the type allows it."""

  def part():
    if not report.strong_clones:
      raise privacy_profiles.NotApplicableError(
          'proven for randomized response and for the one-bit sphere only'
      )
    return clones(**dict(report.strong_clones))

  return bounds.Bound('strong_clones', _SHUFFLING_PROOFS, True, part=part)


def _of_allocation(event, count, delta, relation) -> Iterator[bounds.Bound]:
  """Yields the bounds of central noise at some of several steps."""
  times, multiplier = event.num_selected, float(event.event.noise_multiplier)
  alone = functools.partial(
      local_reports.noised_sum, event.event, count * times, relation
  )
  yield bounds.Bound('none', 'the noise at the server', part=alone)
  if event.participation_probability == 0:
    yield bounds.nobody('allocation', 'nobody takes part', count)
    return
  numbers = dict(
      noise_multiplier=multiplier,
      num_steps=event.num_steps,
      num_selected=times,
      participation_probability=event.participation_probability,
  )

  def check():
    if not 0 < multiplier < math.inf:
      raise privacy_profiles.NotApplicableError(
          f'noise_multiplier={multiplier} needs no computation'
      )

  def part():
    check()
    tail = min(_MOST_TAIL, _TAIL_SHARE * delta / count)
    remove, add = random_allocation.profiles(tail=tail, **numbers)
    result = composition.Part(remove, count, add)
    if relation is _REPLACE_ONE:
      return replace_one.replace_one(result)
    return result

  def epsilon(total_delta):
    check()
    return random_allocation.epsilon(
        delta=total_delta,
        num_epochs=count,
        neighboring_relation=relation,
        **numbers,
    )

  source = f'arXiv:2502.08202; {_CHECK_IN_PROOFS}'
  yield bounds.Bound('allocation', source, True, part=part, epsilon=epsilon)
