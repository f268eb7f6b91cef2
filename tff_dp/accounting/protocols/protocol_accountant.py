# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""A privacy accountant that knows the events of protocols, by their rules.

    accountant = protocol_accountant.ProtocolAccountant()
    accountant.compose(event_of_a_round, 6800)
    accountant.compose(dp_accounting.GaussianDpEvent(50.0))   # an evaluation
    accountant.get_epsilon(1e-6)

Events that are stated for replace-one compose with each other and with
unsampled Gaussian and Laplace mechanisms under that relation. Other events of
protocols hold under all relations. Events with Poisson sampling at the server
are for add-or-remove. No relation covers both these events and events for
replace-one, so the two do not compose.

The accountant differs from its base class where the base class is wrong or
varies by version:

* Under REPLACE_ONE a contribution moves by up to twice its bound. dp_accounting
  0.4 ignores that for Gaussian and Laplace events, 0.6 for Laplace events.
* dp_accounting 0.6 composes its RandomizedResponseDpEvent once, for any count.
  This accountant refuses it. `RandomizedResponseLocalDpEvent` takes its place.
* A failed `compose` changes neither the state nor the ledger.

`accountants` calls `epsilon` and `delta` here for events of protocols. If the
rules of the events know the loss of all events together, that is the result.
Otherwise the accountant composes the events.
"""

import functools
from typing import Any

import dp_accounting
from dp_accounting import pld as pld_lib

from tff_dp import _checks
from tff_dp.accounting.curves import composition as parts_lib
from tff_dp.accounting.curves import loss_sums
from tff_dp.accounting.curves import privacy_profiles
from tff_dp.accounting.events import run_events
from tff_dp.accounting.protocols import bounds

Relation = dp_accounting.NeighboringRelation
_Details = dp_accounting.PrivacyAccountant.CompositionErrorDetails
_RELATIONS = {
    Relation.REPLACE_ONE: run_events.NeighboringRelation.REPLACE_ONE,
    Relation.REPLACE_SPECIAL: run_events.NeighboringRelation.ZERO_OUT,
    # In a noised sum, a contribution of zeros equals no contribution.
    Relation.ADD_OR_REMOVE_ONE: run_events.NeighboringRelation.ZERO_OUT,
}
_STRUCTURE = (
    dp_accounting.NoOpDpEvent,
    dp_accounting.NonPrivateDpEvent,
    dp_accounting.ComposedDpEvent,
    dp_accounting.SelfComposedDpEvent,
)
# Delta that bounds with a free choice are tuned for if none is given.
_TUNED_FOR = 1e-6


def has_protocol_events(event: dp_accounting.DpEvent) -> bool:
  """Whether the event is or contains a `ProtocolDpEvent`."""
  return any(
      isinstance(leaf, run_events.ProtocolDpEvent)
      for leaf, _ in run_events.leaves(event)
  )


@functools.lru_cache(maxsize=64)
def best_part(
    event: dp_accounting.DpEvent,
    *,
    count: int,
    delta: float,
    relation: run_events.NeighboringRelation,
    published_proofs: bool = False,
) -> parts_lib.Part:
  """Returns `count` equal events as one part of a composition.

  Upper bound. Several bounds may apply to the events. The profile of the part
  is the smallest of their profiles at each epsilon. Bounds that do not compose
  are left out. Slow bounds (`Bound.is_slow`) are used only with
  `published_proofs`. Results are cached, so that recent equal arguments return
  the same object.

  Args:
    event: A single event that has rules, not a composition of events.
    count: Number of events.
    delta: Delta for which bounds with free parameters are tuned.
    relation: Relation to account under.
    published_proofs: Whether to use only bounds with a published proof.
  """
  found = []
  for bound in bounds.of(
      event, count=count, delta=delta, relation=relation
  ):
    if bound.part is None or (bound.is_derived and published_proofs):
      continue
    if not published_proofs and bound.is_slow:
      continue
    try:
      found.append(bound.part())
    except privacy_profiles.NotApplicableError:
      continue
  return parts_lib.least(found)


def interval_for(
    event: dp_accounting.DpEvent,
    *,
    delta: float,
    relation: run_events.NeighboringRelation,
    published_proofs: bool = False,
) -> float:
  """Returns the interval of the grid of losses that suits an event.

  Any interval gives an upper bound. This one gives a tight bound.

  Args:
    event: Event to account for.
    delta: Delta for which bounds with free parameters are tuned.
    relation: Relation to account under.
    published_proofs: Whether to use only bounds with a published proof.
  """
  parts = [
      best_part(
          leaf,
          count=count,
          delta=delta,
          relation=relation,
          published_proofs=published_proofs,
      )
      for leaf, count in run_events.merged(run_events.leaves(event))
  ]
  return parts_lib.suitable_interval(parts)


class ProtocolAccountant(pld_lib.PLDAccountant):
  """Privacy accountant for the events of protocols and others.

  Upper bound on epsilon and on delta. The results hold for adaptively chosen
  events.
  """

  # Of the base class.
  _pld: Any
  _contains_non_dp_event: bool

  def __init__(
      self,
      neighboring_relation: dp_accounting.NeighboringRelation = (
          Relation.REPLACE_ONE
      ),
      value_discretization_interval: float = 1e-4,
      *,
      target_delta: float = 1e-6,
      published_proofs: bool = False,
  ):
    """Creates an accountant with nothing composed.

    Args:
      neighboring_relation: Relation to account under. Most protocols need
        REPLACE_ONE.
      value_discretization_interval: Interval of the grid of losses. Any
        interval gives an upper bound. A tenth of the loss of a round, or less,
        gives a good bound. See `interval_for`.
      target_delta: Delta for which bounds with free parameters are tuned. The
        bounds hold for any delta.
      published_proofs: Whether to use only bounds with a published proof.
    """
    super().__init__(neighboring_relation, value_discretization_interval)
    _checks.positive(
        value_discretization_interval=value_discretization_interval
    )
    _checks.in_open(0.0, 1.0, target_delta=target_delta)
    self._target_delta = float(target_delta)
    self._published_proofs = published_proofs
    # Bound on the error of delta by rounding.
    self._rounding_error = 0.0
    # Parts composed so far, with counts. They allow to sum the losses again for
    # small deltas. None if dp_accounting composed some of the events.
    self._terms: dict[Any, int] | None = {}

  def compose(self, event: dp_accounting.DpEvent, count: int = 1):
    """Composes `count` events, or raises and changes nothing.

    Raises:
      UnsupportedEventError: If an event is not known, or does not hold under
        the relation or together with the events so far.
      TypeError: If `event` is not a `DpEvent`.
      ArgumentError: If `count` is not an integer of at least 1.
    """
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
        for term, times in (self._terms or {}).items()
        for laws, count in term.terms(interval)
    ]
    return parts_lib.loss_sums_of(terms, interval)

  # We override this method of the base class (0.4.3 and 0.6.0) and use its
  # fields _pld, _value_discretization_interval, _contains_non_dp_event and
  # _ledger.
  def _maybe_compose(self, event, count, do_compose):
    if isinstance(event, _STRUCTURE):
      return super()._maybe_compose(event, count, do_compose)
    replaces = self.neighboring_relation is Relation.REPLACE_ONE
    is_ours = isinstance(event, run_events.ProtocolDpEvent)
    is_noised_sum = isinstance(event, run_events.NOISED_SUM_TYPES)
    if is_ours or (replaces and is_noised_sum):
      return self._maybe_compose_part(event, count, do_compose)
    name = type(event).__name__
    if run_events.is_composed_once(event):
      return _Details(
          event,
          'dp_accounting composes it once, whatever the count is: use'
          ' RandomizedResponseLocalDpEvent under REPLACE_ONE.',
      )
    if replaces:
      return _Details(
          event,
          f'{name} is not accounted for under REPLACE_ONE: among the events of'
          ' dp_accounting, only unsampled Gaussian and Laplace mechanisms are'
          ' accounted for.',
      )
    details = super()._maybe_compose(event, count, do_compose)
    if do_compose:
      self._rounding_error += parts_lib.PLD_ERROR * count
      self._terms = None
    return details

  def _maybe_compose_part(self, event, count, do_compose):
    """Returns the reason why an event cannot be composed, or `None`.

    Composes the event if there is no such reason and `do_compose` is true. The
    event is a `ProtocolDpEvent` or a noised sum.
    """
    relation = _RELATIONS[self.neighboring_relation]
    needs = bounds.only_replace_one(event)
    if needs and relation is not run_events.NeighboringRelation.REPLACE_ONE:
      return _Details(
          event,
          f'{type(event).__name__} is stated for REPLACE_ONE; this accountant'
          f' has {self.neighboring_relation.name}.',
      )
    try:
      bounds.of(
          event,
          count=max(1, count),
          delta=self._target_delta,
          relation=relation,
      )
    except (TypeError, ValueError) as error:
      return _Details(event, str(error))
    if do_compose and count:
      part = best_part(
          event,
          count=count,
          delta=self._target_delta,
          relation=relation,
          published_proofs=self._published_proofs,
      )
      loss = parts_lib.together(
          [part], interval=self._value_discretization_interval
      )
      self._add(loss.pld, loss.error, part)
    return None

  def _add(self, pld, error: float, term) -> None:
    """Composes a distribution, or notes that almost nothing is hidden now.

    Args:
      pld: Privacy-loss distribution, `None` if it hides almost nothing.
      error: Bound on its error in delta.
      term: The part that it belongs to.
    """
    composed = parts_lib.compose(self._pld, pld)
    if composed is None:
      self._contains_non_dp_event = True
    else:
      self._pld = composed
      self._rounding_error += error
      if self._terms is not None:
        self._terms = self._terms | {term: self._terms.get(term, 0) + 1}

  def _refuse_a_mix(self, event) -> None:
    """Raises if events for replace-one would be composed with sampled ones."""
    leaves = run_events.leaves(event) + run_events.leaves(self.ledger)
    ours = [
        leaf
        for leaf in leaves
        if bounds.only_replace_one(leaf[0])
    ]
    sampled = [
        leaf
        for leaf in leaves
        if isinstance(leaf[0], dp_accounting.PoissonSampledDpEvent)
    ]
    if ours and sampled:
      raise dp_accounting.UnsupportedEventError(
          f'{run_events.kinds(ours)} and {run_events.kinds(sampled)} do not'
          ' compose: the former are stated for REPLACE_ONE, the latter for'
          ' ADD_OR_REMOVE_ONE, and no relation covers both.'
      )


def epsilon(
    event: dp_accounting.DpEvent,
    *,
    delta: float,  # pylint: disable=redefined-outer-name
    method: str,
    asked: run_events.NeighboringRelation,
) -> float:
  """Returns the epsilon of an event at delta. Upper bound.

  Args:
    event: Event that contains an event of a protocol.
    delta: Target delta, in (0, 1).
    method: 'pld', or another method for which the rules of the events know the
      loss of all events together (`Rules.together`).
    asked: Relation to account under.

  Raises:
    PrivacyRefusedError: If the relation or the method does not cover the event.
    TypeError: If a part of the event has no rules.
  """
  leaves = run_events.leaves(event)
  relation = bounds.relation_for(leaves, asked)
  whole = bounds.together(leaves, method)
  if whole is not None:
    return whole.epsilon(delta)
  _check_method(leaves, method)
  ((leaf, count), *others) = run_events.merged(leaves)
  if not others:
    (bound, *more) = bounds.of(
        leaf, count=count, delta=delta, relation=relation
    )
    if bound.epsilon is not None and not more:
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
    event: Event that contains an event of a protocol.
    epsilon: Target epsilon, at least 0.
    method: 'pld', or another method for which the rules of the events know the
      loss of all events together (`Rules.together`).
    asked: Relation to account under.

  Raises:
    PrivacyRefusedError: If the relation or the method does not cover the event.
    TypeError: If a part of the event has no rules.
  """
  leaves = run_events.leaves(event)
  relation = bounds.relation_for(leaves, asked)
  whole = bounds.together(leaves, method)
  if whole is not None:
    return whole.delta(float(epsilon))
  _check_method(leaves, method)
  return _composed(event, relation, _TUNED_FOR).get_delta(epsilon)


def _check_method(leaves, method: str) -> None:
  if method != 'pld':
    ours = [
        (event, count)
        for event, count in leaves
        if isinstance(event, run_events.ProtocolDpEvent)
    ]
    raise _checks.PrivacyRefusedError(
        f'method={method!r} cannot account for {run_events.kinds(ours)}',
        why='the bounds of these events give delta as a function of epsilon,'
        ' which only PLD accounting takes',
        way_out="method='pld', or tff_dp.accounting.amplify, which also names"
        ' the theorem behind epsilon',
    )


def _composed(event, relation, tuned_for: float):
  """Returns an accountant that has composed the event, on a suitable grid."""
  accountant = ProtocolAccountant(
      relation.dp_accounting,
      interval_for(event, delta=tuned_for, relation=relation),
      target_delta=tuned_for,
  )
  accountant.compose(event)
  return accountant
