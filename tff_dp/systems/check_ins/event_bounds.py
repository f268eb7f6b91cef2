# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The sound bounds on the loss of a check-in or shuffle event, by name.

Every event has the bound 'none' without amplification, and others. Which of
them is smallest depends on the numbers of the event.

| bound | of | source |
|---|---|---|
| thinning | fixed window | [derived] not everybody takes part |
| subsampling | shuffled check-in | [derived] only the coins are credited |
| rci | check-ins, shuffle | arXiv:2007.06605, theorems 3.2, 4.1, 4.3, 5.1 |
| rci_numeric | fixed, sliding window | [derived] theorem 3.2 step by step |
| clones | shuffle | arXiv:2012.12803, as a profile; delta0 > 0 [derived] |
| clones | shuffled check-in | [derived] the same in a binomial cohort |
| strong_clones | the same two, some randomizers | [derived] likelier clones |
| clones_by_cohort | shuffled check-in | arXiv:2206.03151, thm. 1, on profiles |

[derived] marks bounds whose proofs are this project's own, in
docs/proofs_shuffling.md and docs/proofs_check_ins.md. Users can turn them off.
For delta0 > 0 clones_by_cohort is [derived], too. Published formulas that are
wrong are not here.
"""

from collections.abc import Iterator
import functools
import math

from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds
from tff_dp.systems.check_ins import check_in_events
from tff_dp.systems.check_ins import random_check_ins
from tff_dp.systems.check_ins import shuffled_check_in
from tff_dp.systems.check_ins import shuffling

_SHUFFLING_PROOFS = 'docs/proofs_shuffling.md'
_RCI = 'arXiv:2007.06605, theorem '
_CHECK_IN_PROOFS = 'docs/proofs_check_ins.md'
_SECRET_SLOTS = (
    'The server and the channels to it are trusted: nobody learns who checked'
    ' in, who won and which slots were empty.'
)
# More reports never make epsilon larger: anybody could shuffle some more into
# the others. So more clients than this count as this many. The time and the
# memory of a bound grow with their square root.
_MOST_CLIENTS = 10**9
# The same profile for the same arguments, whatever delta is: then its
# composition is found again, see `privacy_profiles.composed_epsilon`.
_cached = functools.lru_cache(maxsize=64)
_shuffled = _cached(shuffling.round_profile)
_checked_in = _cached(shuffled_check_in.round_profile)
_checked_in_by_cohort = _cached(shuffled_check_in.round_profile_by_cohort)
_subsampled = _cached(shuffled_check_in.subsampled_profile)
_step_by_step_profile = _cached(random_check_ins.theorem_3_2_profile)
# Above this epsilon the curve of an (epsilon, delta) pair is not computed.
_LARGEST_RUN_EPSILON = 100.0


def _of_fixed_window(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal fixed-window events."""
  probability = event.check_in_probability
  yield bounds.without_protocol(report, count)
  if probability == 0:
    yield bounds.nobody('thinning', count)
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
  """Yields the bounds on `count` equal sliding-window events."""
  yield bounds.without_protocol(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_3_2,
      num_slots=event.window,
      check_in_probability=1.0,
  )
  yield _closed_form('4.3', report, theorem, count, delta)
  yield _step_by_step(report, event.window, 1.0, count)


def _of_averaged(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on `count` equal events of averaged check-ins."""
  yield bounds.without_protocol(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_4_1,
      num_slots=event.num_slots,
      min_num_clients=event.min_num_clients,
  )
  yield _closed_form('4.1', report, theorem, count, delta)


def _closed_form(number: str, report, theorem, count: int, delta: float):
  """Returns the bound by a theorem of arXiv:2007.06605.

  The theorem takes the best pair (epsilon0, delta0) of a report. For one event
  alone the bound is the theorem's epsilon. For several events the theorem makes
  each event (epsilon', delta')-DP at delta' = delta / (2 count), and these
  guarantees are composed.
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
          f'the theorem gives epsilon={run_epsilon:g} for one run; its curve is'
          f' computed only up to epsilon={_LARGEST_RUN_EPSILON:g}'
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
  yield bounds.without_protocol(report, count)
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
              num_clients=min(num_reports, _MOST_CLIENTS),
              check_in_rate=1.0,
              num_rounds=count,
              delta=delta,
          )
      )
    else:
      local_epsilon, local_delta = report.split
    if not local_epsilon > 0:
      raise privacy_profiles.NotApplicableError(
          'for every pair (epsilon0, delta0) of the noise, delta0 of all'
          ' reports together needs more than delta'
      )
    shuffled = _shuffled(
        local_epsilon=local_epsilon,
        num_reports=min(num_reports, _MOST_CLIENTS),
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
  yield bounds.without_protocol(report, count)
  if event.check_in_probability == 0:
    yield bounds.nobody('subsampling', count)
    return
  cohort = dict(
      num_clients=min(event.min_num_clients, _MOST_CLIENTS),
      check_in_rate=event.check_in_probability,
  )

  def subsampled():
    profile = _subsampled(report.profile, **cohort)
    return composition.Part(profile, count)

  yield bounds.Bound('subsampling', _SHUFFLING_PROOFS, True, part=subsampled)
  is_gaussian = isinstance(event.event, run_events.GaussianLocalDpEvent)

  def pair():
    if is_gaussian:
      raise privacy_profiles.NotApplicableError(
          'it needs one (epsilon0, delta0), but Gaussian noise has many such'
          ' pairs'
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
      profile = _checked_in(**pair(), **cohort, **options)
    return composition.Part(profile, count)

  yield bounds.Bound('clones', _SHUFFLING_PROOFS, True, part=clones)
  yield _strong_clones(report, clones)

  def by_cohort():
    profile = _checked_in_by_cohort(**pair(), **cohort)
    return composition.Part(profile, count)

  if report.is_pure:
    source, is_derived = 'arXiv:2206.03151, theorem 1', False
  else:
    source, is_derived = _SHUFFLING_PROOFS, True
  yield bounds.Bound(
      'clones_by_cohort', source, is_derived, part=by_cohort, is_slow=True
  )


def _strong_clones(report, clones) -> bounds.Bound:
  """Returns the bound by clones with a larger clone probability.

  It applies only to randomizers for which that probability is proven.
  """

  def part():
    if not report.strong_clones:
      raise privacy_profiles.NotApplicableError(
          'proven for randomized response and for the one-bit sphere only'
      )
    return clones(**dict(report.strong_clones))

  return bounds.Bound('strong_clones', _SHUFFLING_PROOFS, True, part=part)


def _step_by_step(report, num_slots: int, probability: float, count: int):
  """Returns the bound that composes the steps of theorem 3.2 numerically."""

  def part():
    if not report.is_pure:
      raise privacy_profiles.NotApplicableError(
          'the local randomizer has a delta above 0'
      )
    profile = _step_by_step_profile(
        local_epsilon=report.split[0],
        num_slots=num_slots,
        check_in_probability=probability,
    )
    return composition.Part(
        privacy_profiles.minimum(profile, report.profile), count
    )

  return bounds.Bound('rci_numeric', _CHECK_IN_PROOFS, True, part=part)


def _of_protocol(leaf, bound: str) -> list[str]:
  """Returns the assumptions of a protocol whose clients add the noise."""
  if bound == 'none':
    reports = (
        'one report per client and round'
        if isinstance(leaf, check_in_events.ShuffledCheckInDpEvent)
        else 'one report per client'
    )
    return [
        bounds.HONEST_NOISE, f'At most {reports}; nobody else is trusted.'
    ]
  return [bounds.HONEST_NOISE, *_of_amplified(leaf, bound)]


def _of_amplified(leaf, bound: str) -> list[str]:
  """Returns the assumptions behind the amplification by a protocol."""
  if isinstance(leaf, check_in_events.FixedWindowCheckInDpEvent):
    return [
        bounds.COINS,
        _SECRET_SLOTS,
        f'Check-in probability {leaf.check_in_probability:g}, in one of'
        f' {leaf.num_slots} slots. The number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, check_in_events.SlidingWindowCheckInDpEvent):
    return [
        bounds.COINS,
        _SECRET_SLOTS,
        f'Each client is in one of the {leaf.window} slots of its window. The'
        ' number of clients is not needed.',
        'A slot without a report gets the noised report of a zero update.',
    ]
  if isinstance(leaf, check_in_events.AveragedCheckInDpEvent):
    return [
        bounds.COINS,
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
  if isinstance(leaf, check_in_events.ShuffledDpEvent):
    return [
        shuffler,
        f'At least {leaf.num_messages} clients send one report each, {others}',
    ]
  if bound == 'subsampling':
    others = 'flip honest coins; nobody learns who took part.'
  return [
      shuffler,
      bounds.COINS,
      f'At least {leaf.min_num_clients} clients are sure to flip their coins,'
      ' and to deliver unless they drop out independently of data and'
      f' identity; they {others}',
      f'Check-in probability {leaf.check_in_probability:g}; no independent'
      ' dropout is credited beyond it.',
  ]


def _rules(find, *names: str) -> bounds.Rules:
  """Returns the rules of protocols whose clients add the noise."""
  return bounds.Rules(
      bounds=lambda event, count, delta, unused_relation: find(
          event, local_profiles.report(event.event), count, delta
      ),
      assumptions=_of_protocol,
      only_replace_one=bounds.ABSENCE_SHOWS,
      names=names,
  )


_CLONES = ('clones', 'strong_clones')
RULES = {
    check_in_events.FixedWindowCheckInDpEvent: _rules(
        _of_fixed_window, 'thinning', 'rci', 'rci_numeric'
    ),
    check_in_events.SlidingWindowCheckInDpEvent: _rules(
        _of_sliding_window, 'rci', 'rci_numeric'
    ),
    check_in_events.AveragedCheckInDpEvent: _rules(_of_averaged, 'rci'),
    check_in_events.ShuffledDpEvent: _rules(_of_shuffle, 'rci', *_CLONES),
    check_in_events.ShuffledCheckInDpEvent: _rules(
        _of_shuffled_check_in, 'subsampling', *_CLONES, 'clones_by_cohort'
    ),
}
