# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A privacy accountant that knows check-ins, shuffling and messages of silos.

    accountant = protocol_accountant.CheckInPLDAccountant()
    accountant.compose(shuffled_check_in_event, 6800)
    accountant.compose(dp_accounting.GaussianDpEvent(50.0))   # an evaluation
    accountant.get_epsilon(1e-6)

Check-ins, shuffles, messages of silos and opened sums compose with each other
and with unsampled Gaussian and Laplace mechanisms under replace-one, with
random allocation under all relations. Poisson sampling at the server hides
whether a client is in the data at all, under add-or-remove; no relation covers
both, so the two do not mix.

It differs from its base class where that is wrong or varies by version:

* Under REPLACE_ONE a contribution moves by up to twice its bound. dp_accounting
  0.4 ignores that for Gaussian and Laplace events, 0.6 for Laplace events.
* dp_accounting 0.6 composes its RandomizedResponseDpEvent once, whatever the
  count is. Never delegated: `RandomizedResponseLocalDpEvent` says the same.
* A failed `compose` changes neither the state nor the ledger.
"""

from collections.abc import Callable
import dataclasses

import dp_accounting
from dp_accounting import pld as pld_lib
from dp_accounting.pld import privacy_loss_distribution

from tff_dp import _checks
from tff_dp import _compat
from tff_dp.accounting.curves import composition as parts_lib
from tff_dp.accounting.curves import loss_sums
from tff_dp.accounting.events import compositions
from tff_dp.accounting.events import protocol_events
from tff_dp.accounting.events import record_events
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import local_reports
from tff_dp.accounting.protocols import protocol_bounds
from tff_dp.accounting.protocols import protocol_parts

Relation = dp_accounting.NeighboringRelation
# Takes an event and the grid of losses; returns the loss of one event under
# replace-one, on that grid.
Builder = Callable[
    [dp_accounting.DpEvent, float],
    privacy_loss_distribution.PrivacyLossDistribution,
]

_Details = dp_accounting.PrivacyAccountant.CompositionErrorDetails
_RELATIONS = {
    Relation.REPLACE_ONE: run_events.NeighboringRelation.REPLACE_ONE,
    Relation.REPLACE_SPECIAL: run_events.NeighboringRelation.ZERO_OUT,
    # A contribution of zeros is no contribution to a noised sum.
    Relation.ADD_OR_REMOVE_ONE: run_events.NeighboringRelation.ZERO_OUT,
}
_STRUCTURE = (
    dp_accounting.NoOpDpEvent,
    dp_accounting.NonPrivateDpEvent,
    dp_accounting.ComposedDpEvent,
    dp_accounting.SelfComposedDpEvent,
)
_builders: dict[type, Builder] = {}


def register(event_type: type, builder: Builder) -> None:
  """Lets accountants know a further event, stated for replace-one.

  Args:
    event_type: A subclass of `DpEvent` that no accountant here knows. Its own
      subclasses are other events.
    builder: What it costs; must be pessimistic.
  """
  if not (
      isinstance(event_type, type)
      and issubclass(event_type, dp_accounting.DpEvent)
  ):
    raise TypeError(
        f'event_type={event_type!r} is not allowed: expected a subclass of'
        ' dp_accounting.DpEvent.'
    )
  is_ours = event_type.__module__ in (
      protocol_events.__name__,
      record_events.__name__,
      dp_accounting.DpEvent.__module__,
  )
  if is_ours or event_type in _builders:
    raise _checks.PrivacyRefusedError(
        f'{event_type.__name__} is known already',
        why='what an event costs must not depend on who was imported last',
        way_out='a class of your own',
    )
  _builders[event_type] = builder


def has_protocol_events(event: dp_accounting.DpEvent) -> bool:
  """Whether the event contains check-ins, shuffles, messages of silos, ..."""
  return any(
      isinstance(leaf, protocol_events.ProtocolDpEvent)
      for leaf, _ in compositions.leaves(event)
  )


@dataclasses.dataclass(frozen=True, eq=False)
class _Registered:
  """So many events of a registered type, as `parts.Part` is of others."""

  single: privacy_loss_distribution.PrivacyLossDistribution
  count: int

  def terms(self, unused_interval: float) -> list[tuple[parts_lib.Laws, int]]:
    """Returns the laws of the loss of one event, with the count."""
    laws = tuple(
        loss_sums.Law.of_dense(*masses)
        for masses in _compat.loss_masses(self.single)
    )
    return [(laws, self.count)]


class CheckInPLDAccountant(pld_lib.PLDAccountant):
  """Privacy accountant for `protocol_events`, `record_events` and others.

  Upper bound on epsilon and on delta. Its results hold for adaptively chosen
  events.
  """

  def __init__(
      self,
      neighboring_relation: Relation = Relation.REPLACE_ONE,
      value_discretization_interval: float = 1e-4,
      *,
      target_delta: float = 1e-6,
      use_derived: bool = True,
  ):
    """Creates an accountant with nothing composed.

    Args:
      neighboring_relation: Check-ins, shuffles and silos need REPLACE_ONE.
      value_discretization_interval: The grid of losses. Any grid gives an upper
        bound; at most a tenth of the loss of a round gives a good one. See
        `protocol_parts.interval_for`.
      target_delta: That bounds with a choice are tuned for. They hold for any.
      use_derived: Whether to use bounds that rest on this project's arguments.
    """
    super().__init__(neighboring_relation, value_discretization_interval)
    _checks.positive(
        value_discretization_interval=value_discretization_interval
    )
    _checks.in_open(0.0, 1.0, target_delta=target_delta)
    self._target_delta = float(target_delta)
    self._use_derived = use_derived
    # What rounding may have taken off delta.
    self._rounding_error = 0.0
    # What was composed so far, and how often, to sum losses anew for small
    # deltas; None if dp_accounting composed some of it.
    self._terms = {}

  def compose(self, event: dp_accounting.DpEvent, count: int = 1):
    """Composes `count` events, or raises and changes nothing."""
    if not isinstance(event, dp_accounting.DpEvent):
      raise TypeError(
          f'event={event!r} is not allowed: expected a dp_accounting.DpEvent.'
      )
    _checks.integer_at_least(1, count=count)
    self._refuse_a_mix(event)
    names = ('_pld', '_contains_non_dp_event', '_rounding_error', '_terms')
    before = {name: getattr(self, name) for name in names}
    details = self._maybe_compose(event, count, False)
    if details is not None:
      raise dp_accounting.UnsupportedEventError(
          f'Unsupported event: {event}. Error: [{details.error_message}] caused'
          f' by subevent {details.invalid_event}.'
      )
    try:
      self._maybe_compose(event, count, True)
    except BaseException:
      for name, value in before.items():
        setattr(self, name, value)
      raise
    self._ledger.compose(event, int(count))
    return self

  def get_epsilon(self, target_delta: float) -> float:
    """Returns epsilon of everything so far. Upper bound."""
    _checks.in_open(0.0, 1.0, target_delta=target_delta)
    return self._loss().epsilon(target_delta)

  def get_delta(self, target_epsilon: float) -> float:
    """Returns delta of everything so far. Upper bound."""
    _checks.non_negative(target_epsilon=target_epsilon)
    return self._loss().delta(target_epsilon)

  def _loss(self) -> parts_lib.Loss:
    pld = None if self._contains_non_dp_event else self._pld
    if self._terms is None:
      return parts_lib.Loss(pld, self._rounding_error)
    return parts_lib.Loss(pld, self._rounding_error, self._sums)

  def _sums(self) -> tuple[loss_sums.LossSum, ...]:
    interval = self._value_discretization_interval
    terms = [
        (laws, count * times)
        for term, times in self._terms.items()
        for laws, count in term.terms(interval)
    ]
    return parts_lib.loss_sums_of(terms, interval)

  # Of the base class, in 0.4.3 and in 0.6.0, we use this method and the fields
  # _pld, _value_discretization_interval, _contains_non_dp_event and _ledger.
  def _maybe_compose(self, event, count, do_compose):
    if isinstance(event, _STRUCTURE):
      return super()._maybe_compose(event, count, do_compose)
    if type(event) in _builders:
      return self._maybe_compose_registered(event, count, do_compose)
    replaces = self.neighboring_relation is Relation.REPLACE_ONE
    is_ours = isinstance(event, protocol_events.ProtocolDpEvent)
    if is_ours or (replaces and local_reports.is_noised_sum(event)):
      return self._maybe_compose_part(event, count, do_compose)
    name = type(event).__name__
    if name == 'RandomizedResponseDpEvent':
      return _Details(
          event,
          'dp_accounting composes it once, whatever the count is: use'
          ' RandomizedResponseLocalDpEvent under REPLACE_ONE.',
      )
    if replaces:
      return _Details(
          event,
          f'{name} is not accounted for under REPLACE_ONE: of the events of'
          ' dp_accounting only unsampled Gaussian and Laplace mechanisms are.',
      )
    details = super()._maybe_compose(event, count, do_compose)
    if do_compose:
      self._rounding_error += parts_lib.PLD_ERROR * count
      self._terms = None
    return details

  def _maybe_compose_part(self, event, count, do_compose):
    """Composes an event that is bounded by profiles."""
    relation = _RELATIONS[self.neighboring_relation]
    needs = isinstance(event, protocol_events.REPLACE_ONE_TYPES)
    if needs and relation is not run_events.NeighboringRelation.REPLACE_ONE:
      return _Details(
          event,
          f'{type(event).__name__} is stated for REPLACE_ONE; this accountant'
          f' has {self.neighboring_relation.name}.',
      )
    try:
      protocol_bounds.of(
          event,
          count=max(1, count),
          delta=self._target_delta,
          relation=relation,
      )
    except (TypeError, ValueError) as error:
      return _Details(event, str(error))
    if do_compose and count:
      part = protocol_parts.best_part(
          event,
          count=count,
          delta=self._target_delta,
          relation=relation,
          use_derived=self._use_derived,
      )
      loss = parts_lib.together(
          [part], interval=self._value_discretization_interval
      )
      self._add(loss.pld, loss.error, part)
    return None

  def _add(self, pld, error: float, term) -> None:
    """Composes a distribution, or notes that nothing is hidden any more."""
    composed = parts_lib.compose(self._pld, pld)
    if composed is None:
      self._contains_non_dp_event = True
    else:
      self._pld = composed
      self._rounding_error += error
      if self._terms is not None:
        self._terms = self._terms | {term: self._terms.get(term, 0) + 1}

  def _maybe_compose_registered(self, event, count, do_compose):
    if self.neighboring_relation is not Relation.REPLACE_ONE:
      return _Details(
          event,
          f'{type(event).__name__} is registered for REPLACE_ONE; this'
          f' accountant has {self.neighboring_relation.name}.',
      )
    if do_compose and count:
      single = _builders[type(event)](
          event, self._value_discretization_interval
      )
      if single.get_delta_for_epsilon(0.0) >= 1:
        self._add(None, 0.0, None)
      else:
        self._add(
            *parts_lib.self_composed(single, count), _Registered(single, count)
        )
    return None

  def _refuse_a_mix(self, event) -> None:
    """Raises if check-ins or silos would be composed with sampled events."""
    leaves = compositions.leaves(event) + compositions.leaves(self.ledger)
    ours = [
        leaf
        for leaf in leaves
        if isinstance(leaf[0], protocol_events.REPLACE_ONE_TYPES)
    ]
    sampled = [
        leaf
        for leaf in leaves
        if isinstance(leaf[0], dp_accounting.PoissonSampledDpEvent)
    ]
    if ours and sampled:
      raise dp_accounting.UnsupportedEventError(
          f'{compositions.kinds(ours)} and {compositions.kinds(sampled)} do not'
          ' compose: the one is stated for REPLACE_ONE, the other for'
          ' ADD_OR_REMOVE_ONE, and no relation covers both.'
      )
