# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""What one whole run releases, as a `DpEvent`, and between which neighbours.

A run of a tree or matrix mechanism is one Gaussian mechanism over everything
that is noised (arXiv:2202.08312): its noise multiplier in the sense of
dp_accounting is `noise_multiplier / sqrt(squared_sensitivity)`.

An event is stated for zero-out unless another relation is asked for: its noise
over the bound on one contribution. The factor between relations is
`NeighboringRelation.squared_sensitivity_factor`, which must be applied once and
is read by `effective_sigma` alone.
`accountants` applies it to events that are stated for zero-out. For other
accountants `run_event` can, but then give these REPLACE_SPECIAL: the Renyi
accountant of dp_accounting never converts a Gaussian, while its PLD accountant
does under REPLACE_ONE from version 0.6 on, not before.

`leaves` takes nested events apart.
"""

import enum
import math

import dp_accounting

from tff_dp import _checks

Leaves = list[tuple[dp_accounting.DpEvent, int]]


class NeighboringRelation(str, enum.Enum):
  """Which two data sets the guarantee cannot tell apart.

  In both, one client differs over the whole run; the other clients, the
  schedule and the number of rounds are the same.
  """

  ZERO_OUT = 'zero_out'
  REPLACE_ONE = 'replace_one'

  def __str__(self) -> str:
    return self.value

  @property
  def dp_accounting(self) -> dp_accounting.NeighboringRelation:
    """The name of this relation in dp_accounting."""
    theirs = dp_accounting.NeighboringRelation
    if self is NeighboringRelation.ZERO_OUT:
      return theirs.REPLACE_SPECIAL
    return theirs.REPLACE_ONE

  @property
  def squared_sensitivity_factor(self) -> int:
    """What the zero-out S2 is multiplied by.

    Upper bound for replace-one: two clipped contributions differ by at most
    two clip norms, attained by opposite contributions.
    """
    return 1 if self is NeighboringRelation.ZERO_OUT else 4

  @property
  def description(self) -> str:
    """The relation in prose."""
    if self is NeighboringRelation.ZERO_OUT:
      return (
          'zero-out (also called replace-special): all contributions of one'
          ' client over the whole run are replaced by zeros'
      )
    return (
        'replace-one: all contributions of one client over the whole run are'
        ' replaced by arbitrary other contributions within the clip norm'
    )


def effective_sigma(
    *,
    noise_multiplier: float,
    squared_sensitivity: float,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ZERO_OUT,
) -> float:
  """Returns sigma_eff, the noise std over the sensitivity of the whole run.

  Exact up to float rounding.

  Args:
    noise_multiplier: Std of one node's noise on the SUM, over the clip norm; of
      Laplace noise its scale over the bound on the L1 norm.
    squared_sensitivity: S2 in squared clip norms, for zero-out.
    neighboring_relation: Replace-one halves the result.
  """
  _checks.non_negative(noise_multiplier=noise_multiplier)
  _checks.positive(squared_sensitivity=squared_sensitivity)
  relation = NeighboringRelation(neighboring_relation)
  return float(noise_multiplier) / math.sqrt(
      squared_sensitivity * relation.squared_sensitivity_factor
  )


def run_event(
    *,
    noise_multiplier: float,
    squared_sensitivity: float,
    neighboring_relation: NeighboringRelation = NeighboringRelation.ZERO_OUT,
) -> dp_accounting.DpEvent:
  """Returns the event of one whole run, for the given neighbouring relation.

  Args:
    noise_multiplier: Std of one node's noise on the SUM, over the clip norm. 0
      gives a `NonPrivateDpEvent`.
    squared_sensitivity: S2 in squared clip norms, for zero-out. It is converted
      here: do not multiply it yourself.
    neighboring_relation: The relation that the noise multiplier is stated for.
      Leave it at zero-out where the accountant converts.
  """
  sigma = effective_sigma(
      noise_multiplier=noise_multiplier,
      squared_sensitivity=squared_sensitivity,
      neighboring_relation=neighboring_relation,
  )
  if sigma == 0:
    return dp_accounting.NonPrivateDpEvent()
  return dp_accounting.GaussianDpEvent(sigma)


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
