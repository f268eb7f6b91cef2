# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Epsilon and delta of events with check-ins, shuffles or silos in them.

What `accountants` does with the events of `protocol_events` and
`record_events`. Messages of silos, with Gaussian releases next to them or not,
come to the number that the ledger of the silo has; everything else is composed
by `protocol_accountant`.
"""

import dp_accounting

from tff_dp import _checks
from tff_dp.accounting.events import compositions
from tff_dp.accounting.events import protocol_events
from tff_dp.accounting.events import record_events
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import protocol_accountant
from tff_dp.accounting.protocols import protocol_parts
from tff_dp.accounting.protocols import record_bounds
from tff_dp.accounting.silos import silo_events

# That bounds with a choice are tuned for where no delta is given.
_TUNED_FOR = 1e-6


def epsilon(
    event: dp_accounting.DpEvent,
    *,
    delta: float,  # pylint: disable=redefined-outer-name
    method: str,
    asked: run_events.NeighboringRelation,
) -> float:
  """Returns the epsilon of an event at delta. Upper bound.

  Args:
    event: With a protocol or record event in it.
    delta: In (0, 1).
    method: 'pld', or 'exact' for messages of silos without sampling.
    asked: The relation to account under.

  Raises:
    PrivacyRefusedError: If the relation or the method does not cover the event.
  """
  leaves = compositions.leaves(event)
  relation = protocol_parts.relation_for(leaves, asked)
  uses = _uses(leaves, method)
  if uses is not None:
    return max(silo_events.epsilon_of(use, delta, False) for use in uses)
  _check_method(leaves, method)
  ((leaf, count), *others) = compositions.merged(leaves)
  if isinstance(leaf, record_events.SumDpEvent) and not others:
    # Alone, by the formula that sums are calibrated with.
    (bound,) = record_bounds.of(leaf, count)
    return bound.epsilon(delta)
  return _composed(event, relation, delta).get_epsilon(delta)


def delta(
    event: dp_accounting.DpEvent,
    *,
    epsilon: float,  # pylint: disable=redefined-outer-name
    method: str,
    asked: run_events.NeighboringRelation,
) -> float:
  """Returns the delta of an event at epsilon. Upper bound.

  Args:
    event: With a protocol or record event in it.
    epsilon: At least 0.
    method: As for `epsilon`.
    asked: The relation to account under.
  """
  leaves = compositions.leaves(event)
  relation = protocol_parts.relation_for(leaves, asked)
  uses = _uses(leaves, method)
  if uses is not None:
    return max(silo_events.delta_of(use, float(epsilon)) for use in uses)
  _check_method(leaves, method)
  return _composed(event, relation, _TUNED_FOR).get_delta(epsilon)


def _uses(leaves, method: str) -> list[silo_events.Uses] | None:
  """Returns what records are used for; None if that is not all there is.

  Nor if the method is not for it.
  """
  is_record = lambda leaf: isinstance(leaf, protocol_events.RecordDpEvent)
  if method == 'rdp' or not any(is_record(leaf) for leaf, _ in leaves):
    return None
  uses = record_bounds.uses_of(compositions.merged(leaves))
  if uses is None or method == 'pld':
    return uses
  return uses if all(map(record_bounds.is_gaussian, uses)) else None


def _check_method(leaves, method: str) -> None:
  if method != 'pld':
    raise _checks.PrivacyRefusedError(
        f'method={method!r} does not know {compositions.kinds(leaves)}',
        why='what check-ins, shuffling and sampling inside a silo save is'
        ' known as a curve of delta over epsilon',
        way_out="method='pld', or tff_dp.accounting.amplify, which also says by"
        ' which argument',
    )


def _composed(event, relation, tuned_for: float):
  """Returns an accountant with the event composed, on a grid for it."""
  accountant = protocol_accountant.CheckInPLDAccountant(
      relation.dp_accounting,
      protocol_parts.interval_for(event, delta=tuned_for, relation=relation),
      target_delta=tuned_for,
  )
  accountant.compose(event)
  return accountant
