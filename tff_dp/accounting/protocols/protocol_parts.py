# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The parts of an event: under which relation, by which profiles, how fine."""

import functools

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.curves import composition as parts_lib
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import compositions
from tff_dp.accounting.events import protocol_events
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import local_reports
from tff_dp.accounting.protocols import protocol_bounds


def relation_for(
    leaves: compositions.Leaves,
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
      if not isinstance(leaf[0], protocol_events.ProtocolDpEvent)
      and not local_reports.is_noised_sum(leaf[0])
  ]
  ours = [
      leaf
      for leaf in leaves
      if isinstance(leaf[0], protocol_events.REPLACE_ONE_TYPES)
  ]
  if strangers:
    other = f' next to {compositions.kinds(ours)}' if ours else ''
    raise _checks.PrivacyRefusedError(
        f'{compositions.kinds(strangers)} is not accounted for here{other}',
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
        f'{compositions.kinds(ours)} is not accounted for under {relation}'
        ' adjacency',
        why=_reasons(ours),
        way_out='neighboring_relation=replace_one',
    )
  return relation


def _reasons(leaves: compositions.Leaves) -> str:
  """Returns why events are stated for no other relation than replace-one."""
  is_record = [
      isinstance(leaf, protocol_events.RecordDpEvent) for leaf, _ in leaves
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


@functools.lru_cache(maxsize=64)
def best_part(
    event: dp_accounting.DpEvent,
    *,
    count: int,
    delta: float,
    relation: run_events.NeighboringRelation,
    use_derived: bool = True,
) -> parts_lib.Part:
  """Returns `count` events with the pointwise least of their profiles.

  Upper bound. The same part for the same arguments.

  Args:
    event: A leaf that `protocol_bounds.of` knows.
    count: How many.
    delta: That bounds are tuned for.
    relation: To account under.
    use_derived: Whether to use the arguments of this project.
  """
  found = []
  for bound in protocol_bounds.of(
      event, count=count, delta=delta, relation=relation
  ):
    if bound.part is None or (bound.is_derived and not use_derived):
      continue
    if use_derived and bound.name in protocol_bounds.SLOW_NAMES:
      continue
    try:
      found.append(bound.part())
    except privacy_profiles.NotApplicableError:
      continue
  return least(found)


def least(found: list[parts_lib.Part]) -> parts_lib.Part:
  """Returns the pointwise minimum of parts that describe the same events."""
  counts = {part.count for part in found}
  if len(counts) > 1:
    # Some describe all events at once: compose the others, too.
    whole = [part for part in found if part.count == 1]
    for part in found:
      if part.count > 1 and not part.is_vacuous:
        whole.append(parts_lib.Part(parts_lib.together([part]).profile()))
    return least(whole)
  if len(found) == 1:
    return found[0]
  forward = privacy_profiles.minimum(*(part.profile for part in found))
  reverse = None
  if any(part.reverse is not None for part in found):
    reverse = privacy_profiles.minimum(
        *(part.reverse or part.profile for part in found)
    )
  return parts_lib.Part(forward, counts.pop(), reverse)


def interval_for(
    event: dp_accounting.DpEvent,
    *,
    delta: float,
    relation: run_events.NeighboringRelation,
    use_derived: bool = True,
) -> float:
  """Returns a grid of losses on which an event is accounted for tightly."""
  parts = [
      best_part(
          leaf,
          count=count,
          delta=delta,
          relation=relation,
          use_derived=use_derived,
      )
      for leaf, count in compositions.merged(compositions.leaves(event))
  ]
  return parts_lib.suitable_interval(parts)
