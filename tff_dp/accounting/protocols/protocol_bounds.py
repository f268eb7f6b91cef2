# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The sound bounds on the loss of a check-in or shuffle event, by name.

Every event has several bounds. The smallest one depends on the event's numbers.

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
| allocation | random allocation | arXiv:2502.08202; numerics [derived] |

[derived] marks arguments of this project, proven in docs/proofs_shuffling.md,
docs/proofs_check_ins.md and docs/proofs_silos.md; they can be turned off.
Formulas of papers that do not hold are not here.
"""

from collections.abc import Iterator
import functools
import math

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.amplification import random_allocation
from tff_dp.accounting.amplification import random_check_ins
from tff_dp.accounting.amplification import shuffled_check_in
from tff_dp.accounting.amplification import shuffling
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.curves import replace_one
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds
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
    'allocation',
)
# Sound, but slow, and almost never the tightest.
SLOW_NAMES = ('clones_by_cohort',)
_SHUFFLING_PROOFS = 'docs/proofs_shuffling.md'
_REPLACE_ONE = run_events.NeighboringRelation.REPLACE_ONE
# Mass that the grid of a random allocation may cut off: a share of delta, and
# at most the second value.
_TAIL_SHARE = 1e-4
_MOST_TAIL = 1e-10
_RCI = 'arXiv:2007.06605, theorem '
_CHECK_IN_PROOFS = 'docs/proofs_check_ins.md'
# Above this epsilon the curve of an (epsilon, delta) pair is not computed.
_LARGEST_RUN_EPSILON = 100.0


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
    count: Number of events.
    delta: Delta of everything together. Some bounds are tuned for it, but they
      hold for any delta.
    relation: Relation to account under. `run_events.REPLACE_ONE_TYPES` allow
      only replace-one, which the caller must check.
  """
  if isinstance(event, run_events.NOISED_SUM_TYPES):
    part = functools.partial(_noised_sum, event, count, relation)
    return (bounds.Bound('none', 'the noise at the server', part=part),)
  if isinstance(event, run_events.RandomAllocationDpEvent):
    return tuple(_of_allocation(event, count, delta, relation))
  if isinstance(event, run_events.LocalRandomizerDpEvent):
    return (_none(local_profiles.report(event), count),)
  if isinstance(event, run_events.RecordDpEvent):
    return tuple(record_bounds.of(event, count))
  # Exact types, as for local events.
  find = {
      run_events.FixedWindowCheckInDpEvent: _of_fixed_window,
      run_events.SlidingWindowCheckInDpEvent: _of_sliding_window,
      run_events.AveragedCheckInDpEvent: _of_averaged,
      run_events.ShuffledDpEvent: _of_shuffle,
      run_events.ShuffledCheckInDpEvent: _of_shuffled_check_in,
  }.get(type(event))
  if find is None:
    raise TypeError(
        f'event={event!r} is not allowed: expected an event of'
        ' tff_dp.accounting.events.run_events or record_events.'
    )
  return tuple(find(event, local_profiles.report(event.event), count, delta))


def relation_for(
    leaves: run_events.Leaves,
    asked: run_events.NeighboringRelation | str | None,
) -> run_events.NeighboringRelation:
  """Returns the neighboring relation to account under.

  Args:
    leaves: Events that are released.
    asked: Requested relation. None chooses replace-one if any event is stated
      for it, else zero-out.

  Raises:
    PrivacyRefusedError: If an event has no accounting here, or if one does not
      hold under the relation.
  """
  strangers = [
      leaf
      for leaf in leaves
      if not isinstance(
          leaf[0], (run_events.ProtocolDpEvent, *run_events.NOISED_SUM_TYPES)
      )
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


def _of_fixed_window(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal events."""
  probability = event.check_in_probability
  yield _none(report, count)
  if probability == 0:
    yield _nobody('thinning', 'nobody takes part', count)
    return

  def thinned():
    # This holds for any randomizer. It needs dummy updates: if a client stays
    # away, its slot holds another report of the same randomizer and is never
    # empty.
    if probability == 1:
      raise privacy_profiles.NotApplicableError(
          'check_in_probability is 1: every client takes part'
      )
    return composition.Part(
        privacy_profiles.subsampled(report.profile, probability),
        count,
    )

  yield bounds.Bound('thinning', _CHECK_IN_PROOFS, True, part=thinned)
  theorem = functools.partial(
      random_check_ins.theorem_3_2,
      num_slots=event.num_slots,
      check_in_probability=probability,
  )
  yield _closed_form('3.2', report, theorem, count, delta)
  yield _step_by_step(report, event.num_slots, probability, count)


def _of_sliding_window(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal events."""
  yield _none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_3_2,
      num_slots=event.window,
      check_in_probability=1.0,
  )
  yield _closed_form('4.3', report, theorem, count, delta)
  yield _step_by_step(report, event.window, 1.0, count)


def _of_averaged(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal events."""
  yield _none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_4_1,
      num_slots=event.num_slots,
      min_num_clients=event.min_num_clients,
  )
  yield _closed_form('4.1', report, theorem, count, delta)


def _closed_form(number: str, report, theorem, count: int, delta: float):
  """Returns a theorem of arXiv:2007.06605 for the best of the local pairs.

  One event alone uses the theorem's own formula. If it is repeated, or next to
  other events, the theorem gives an (epsilon, delta')-DP randomizer, where
  delta' is a share of delta.
  """

  def epsilon(total_delta):
    best, reason = math.inf, 'no (epsilon0, delta0) has a delta0 below delta'
    for local_epsilon, local_delta in report.splits(total_delta):
      try:
        found = theorem(
            local_epsilon=local_epsilon,
            local_delta=local_delta,
            delta=total_delta,
        )
      except privacy_profiles.NotApplicableError as error:
        reason = error.reason
      else:
        best = min(best, float(found))
    if best == math.inf:
      raise privacy_profiles.NotApplicableError(reason)
    return best

  def part():
    share = delta / (2 * count)
    run_epsilon = epsilon(share)
    if run_epsilon > _LARGEST_RUN_EPSILON:
      raise privacy_profiles.NotApplicableError(
          f'the theorem gives epsilon={run_epsilon:g} for one run'
      )
    profile = local_profiles.approximate(run_epsilon, share)
    return composition.Part(
        privacy_profiles.minimum(profile, report.profile), count
    )

  return bounds.Bound(
      'rci',
      _RCI + number,
      part=part,
      epsilon=epsilon if count == 1 else None,
  )


def _of_shuffle(event, report, count, delta) -> Iterator[bounds.Bound]:
  num_reports = event.num_messages
  yield _none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_5_1, num_reports=num_reports
  )
  yield _closed_form('5.1', report, theorem, count, delta)

  def clones(**options):
    if isinstance(event.event, run_events.GaussianLocalDpEvent):
      # The best pair for a cohort of the same size, chosen by the same costs.
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

  # The cost of delta0 > 0 is derived in this project.
  if report.is_pure:
    yield bounds.Bound('clones', 'arXiv:2012.12803, theorem 3.1', part=clones)
  else:
    yield bounds.Bound('clones', _SHUFFLING_PROOFS, True, part=clones)
  yield _strong_clones(report, clones)


def _of_shuffled_check_in(
    event, report, count, delta
) -> Iterator[bounds.Bound]:
  yield _none(report, count)
  if event.check_in_probability == 0:
    yield _nobody('subsampling', 'nobody takes part', count)
    return
  cohort = dict(
      num_clients=event.min_num_clients,
      check_in_rate=event.check_in_probability,
  )

  def subsampled():
    profile = shuffled_check_in.subsampled_profile(report.profile, **cohort)
    return composition.Part(profile, count)

  yield bounds.Bound('subsampling', _SHUFFLING_PROOFS, True, part=subsampled)
  is_gaussian = isinstance(event.event, run_events.GaussianLocalDpEvent)

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
  """Yields the bounds for central noise at some of several steps."""
  times, multiplier = event.num_selected, float(event.event.noise_multiplier)
  alone = functools.partial(
      _noised_sum, event.event, count * times, relation
  )
  yield bounds.Bound('none', 'the noise at the server', part=alone)
  if event.participation_probability == 0:
    yield _nobody('allocation', 'nobody takes part', count)
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


def _step_by_step(report, num_slots: int, probability: float, count: int):
  """Returns the steps of theorem 3.2, composed as privacy-loss distributions.
  """

  def part():
    if not report.is_pure:
      raise privacy_profiles.NotApplicableError(
          'the local randomizer has a delta above 0'
      )
    profile = random_check_ins.theorem_3_2_profile(
        local_epsilon=report.split[0],
        num_slots=num_slots,
        check_in_probability=probability,
    )
    return composition.Part(
        privacy_profiles.minimum(profile, report.profile), count
    )

  return bounds.Bound('rci_numeric', _CHECK_IN_PROOFS, True, part=part)


def _none(report: local_profiles.LocalReport, count: int) -> bounds.Bound:
  """Returns the bound without the protocol, with each report seen alone."""
  return bounds.Bound(
      'none', 'the local randomizer alone', part=lambda: report.part(count)
  )


def _nobody(name: str, source: str, count: int) -> bounds.Bound:
  """Returns the bound on a protocol in which nobody takes part."""
  part = lambda: composition.Part(privacy_profiles.nothing, count)
  return bounds.Bound(name, source, part=part)


def _noised_sum(
    event: dp_accounting.GaussianDpEvent | dp_accounting.LaplaceDpEvent,
    count: int,
    relation: run_events.NeighboringRelation,
) -> composition.Part:
  """Returns `count` noised sums, whose event is stated for zero-out.

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


def _reasons(leaves: run_events.Leaves) -> str:
  """Returns the reason why the events are stated for replace-one only."""
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
