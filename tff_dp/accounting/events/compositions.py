# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What a nested event consists of."""

import dp_accounting

from tff_dp import _checks

Leaves = list[tuple[dp_accounting.DpEvent, int]]


def leaves(event: dp_accounting.DpEvent, count: int = 1) -> Leaves:
  """Returns what an event is composed of, with how often each part occurs.

  In order, and without what releases nothing. Parts that occur at several
  places are listed at each.
  """
  if not isinstance(event, dp_accounting.DpEvent):
    raise TypeError(
        f'event={event!r} is not allowed: expected a dp_accounting.DpEvent.'
    )
  if count == 0 or isinstance(event, dp_accounting.NoOpDpEvent):
    return []
  if isinstance(event, dp_accounting.SelfComposedDpEvent):
    _checks.integer_at_least(0, count=event.count)
    return leaves(event.event, count * int(event.count))
  if isinstance(event, dp_accounting.ComposedDpEvent):
    return [leaf for part in event.events for leaf in leaves(part, count)]
  return [(event, count)]


def merged(parts: Leaves) -> Leaves:
  """Returns the leaves with equal ones counted together, in order."""
  counts = {}
  for leaf, count in parts:
    counts[leaf] = counts.get(leaf, 0) + count
  return list(counts.items())


def kinds(parts: Leaves) -> str:
  """Returns the names of the classes of events, for a message."""
  return ', '.join(sorted({type(leaf).__name__ for leaf, _ in parts}))
