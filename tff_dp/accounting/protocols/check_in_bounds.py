# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The bounds on random check-ins (see `protocol_bounds`)."""

from collections.abc import Iterator
import functools
import math

from tff_dp.accounting.amplification import random_check_ins
from tff_dp.accounting.curves import composition
from tff_dp.accounting.curves import local_profiles
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.protocols import bounds

_RCI = 'arXiv:2007.06605, theorem '
_PROOFS = 'docs/proofs_check_ins.md'
# Above it the curve of an (epsilon, delta) pair is not computed.
_LARGEST_RUN_EPSILON = 100.0


def of_fixed_window(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on so many equal events."""
  probability = event.check_in_probability
  yield bounds.none(report, count)
  if probability == 0:
    yield bounds.nobody('thinning', 'nobody takes part', count)
    return

  def thinned():
    if probability == 1:
      raise privacy_profiles.NotApplicableError(
          'check_in_probability is 1: every client takes part'
      )
    return composition.Part(
        random_check_ins.thinned_profile(
            report.profile, check_in_probability=probability
        ),
        count,
    )

  yield bounds.Bound('thinning', _PROOFS, True, part=thinned)
  theorem = functools.partial(
      random_check_ins.theorem_3_2,
      num_slots=event.num_slots,
      check_in_probability=probability,
  )
  yield closed_form('3.2', report, theorem, count, delta)
  yield _step_by_step(report, event.num_slots, probability, count)


def of_sliding_window(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on so many equal events."""
  yield bounds.none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_4_3, window=event.window
  )
  yield closed_form('4.3', report, theorem, count, delta)
  yield _step_by_step(report, event.window, 1.0, count)


def of_averaged(event, report, count, delta) -> Iterator[bounds.Bound]:
  """Yields the bounds on so many equal events."""
  yield bounds.none(report, count)
  theorem = functools.partial(
      random_check_ins.theorem_4_1,
      num_slots=event.num_slots,
      min_num_clients=event.min_num_clients,
  )
  yield closed_form('4.1', report, theorem, count, delta)


def closed_form(number: str, report, theorem, count: int, delta: float):
  """Returns a theorem of arXiv:2007.06605 for the best of the local pairs.

  Alone it is its own formula. Next to others, or repeated, it stands for a
  randomizer that is (epsilon, delta')-DP, delta' a share of delta.
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


def _step_by_step(report, num_slots: int, probability: float, count: int):
  """Returns theorem 3.2's steps, composed as privacy-loss distributions."""

  def part():
    if not report.is_pure:
      raise privacy_profiles.NotApplicableError(
          'the local randomizer has a delta above 0'
      )
    profile = random_check_ins.numeric_fixed_window_profile(
        local_epsilon=report.split[0],
        num_slots=num_slots,
        check_in_probability=probability,
    )
    return composition.Part(
        privacy_profiles.minimum(profile, report.profile), count
    )

  return bounds.Bound('rci_numeric', _PROOFS, True, part=part)
