# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events: whole runs and local randomizers, and the base of all others.

A run of a tree or matrix mechanism is one Gaussian mechanism over everything
that is noised (arXiv:2202.08312). Its noise multiplier in the sense of
dp_accounting is `noise_multiplier / sqrt(squared_sensitivity)`.

An event is stated for zero-out unless another relation is given: its noise is
relative to the bound on one contribution. The factor between relations is
`NeighboringRelation.squared_sensitivity_factor`. It must be applied exactly
once, and `effective_sigma` does so. `accountants` applies it to events that
are stated for zero-out. For other accountants `run_event` can apply it.
Such accountants must then be given REPLACE_SPECIAL: the Renyi accountant of
dp_accounting never converts a Gaussian, and its PLD accountant converts under
REPLACE_ONE only from version 0.6 on.

`leaves` flattens nested events.

Local events and protocol events are two families. A protocol event has the
event of one report as a field, for example a local event.

* A *local* event describes how one client randomizes its own report before the
  report leaves the device. It is stated for replace-one of the client's data.
  If the report goes as it is to a server that nobody trusts, the client pays
  the epsilon of the event. Nothing else is assumed.
* A *protocol* event, which a system defines, describes how reports of many
  clients reach the adversary. Its docstring says what the adversary sees, who
  is trusted, and which relation it is stated for. An event is wrong for a
  system in which the adversary sees more.

Each variant of a randomizer or a protocol has its own class of event. All
fields are numbers, apart from the event of a report, because `to_named_tuple`
takes strings apart. A round trip through the state of a TFF process keeps all
digits, because the named tuple holds 64-bit numbers. As in dp_accounting, the
meaning of an event never changes.
"""

import enum
import math
import numbers
from typing import Any, ClassVar

import attr
import dp_accounting
import numpy as np

from tff_dp import _checks
from tff_dp.systems.system import At

Leaves = list[tuple[dp_accounting.DpEvent, int]]
# Way out for other names of relations. For the first, see `accountants`.
_MEANT = {
    'add_or_remove_one': (
        'zero_out. Where a trusted server adds the noise, epsilon for'
        ' add-or-remove-one is the same number, because the divisor is constant'
    ),
    'replace_special': "'zero_out', the name of this relation here",
    'replace_one': "'replace_one'",
}


class NeighboringRelation(str, enum.Enum):
  """The pairs of data sets that a guarantee makes hard to tell apart.

  In both relations one client differs over the whole run. The other clients,
  the schedule and the number of rounds are the same.
  """

  ZERO_OUT = 'zero_out'
  REPLACE_ONE = 'replace_one'

  def __str__(self) -> str:
    return self.value

  @classmethod
  def _missing_(cls, value):
    name = str(getattr(value, 'name', value)).lower().replace('-', '_')
    raise _checks.ArgumentError(
        'neighboring_relation',
        value,
        f'one of {", ".join(cls)}',
        way_out=_MEANT.get(name, ''),
    )

  @property
  def dp_accounting(self) -> dp_accounting.NeighboringRelation:
    """This relation as a value of dp_accounting's enum."""
    theirs = dp_accounting.NeighboringRelation
    if self is NeighboringRelation.ZERO_OUT:
      return theirs.REPLACE_SPECIAL
    return theirs.REPLACE_ONE

  @property
  def squared_sensitivity_factor(self) -> int:
    """Factor from the squared sensitivity of zero-out to this relation's.

    It is 4 for replace-one, an upper bound: two clipped contributions differ by
    at most two clip norms. Opposite contributions attain it.
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
    noise_multiplier: Standard deviation of one draw of the mechanism, divided
      by the clip norm. The noise is on the sum of the updates, not on their
      mean. For Laplace noise: its scale, divided by the bound on the L1 norm.
    squared_sensitivity: Squared sensitivity S2 in squared clip norms, for
      zero-out.
    neighboring_relation: Relation to convert to. Replace-one halves the result.
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
    noise_multiplier: Standard deviation of one draw of the mechanism, divided
      by the clip norm. The noise is on the sum of the updates, not on their
      mean. 0 gives a `NonPrivateDpEvent`.
    squared_sensitivity: Squared sensitivity S2 in squared clip norms, for
      zero-out. It is converted here, so do not multiply it yourself.
    neighboring_relation: Relation that the event's noise multiplier is stated
      for. Leave it at zero-out if the accountant converts.
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
  """Returns the parts of a composition, with their number of occurrences.

  The parts are in order, without those that release nothing. A part that occurs
  at several places is listed at each.

  Args:
    event: The composition, or a single event.
    count: Number of times that `event` happens.

  Raises:
    TypeError: If `event` is not a `DpEvent`, or if the events of a
      `ComposedDpEvent` are neither a list nor a tuple.
    ArgumentError: If the count of a `SelfComposedDpEvent` is not an integer of
      at least 0.
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
    # An iterator is empty at the second look, and nothing costs nothing.
    if not isinstance(event.events, (list, tuple)):
      raise TypeError(
          f'events={_checks.shown(event.events)} is not allowed: expected a'
          ' list or a tuple of dp_accounting.DpEvent.\ntry:'
          ' dp_accounting.ComposedDpEvent(list(events))'
      )
    return [leaf for part in event.events for leaf in leaves(part, count)]
  inner = getattr(event, 'event', None)
  if isinstance(inner, dp_accounting.DpEvent):
    leaves(inner)  # It checks what a sampled event is made of.
  return [(event, count)]


def merged(parts: Leaves) -> Leaves:
  """Returns the leaves in order, with equal ones counted together."""
  counts: dict[dp_accounting.DpEvent, int] = {}
  for leaf, count in parts:
    counts[leaf] = counts.get(leaf, 0) + count
  return list(counts.items())


def is_composed_once(leaf: dp_accounting.DpEvent) -> bool:
  """Returns whether dp_accounting's PLD accountant ignores the leaf's count."""
  # Version 0.6 has this event, 0.4.3 does not.
  return type(leaf).__name__ == 'RandomizedResponseDpEvent'


def kinds(parts: Leaves) -> str:
  """Returns the class names of the events, for a message."""
  return ', '.join(sorted({type(leaf).__name__ for leaf, _ in parts}))


def real_field(check, *bounds, **options):
  """Returns an attrs field for a real number.

  Args:
    check: Function of `_checks` that validates the number.
    *bounds: Positional arguments of `check`.
    **options: Options of `attr.ib`.
  """
  return _field(_real_number, check, *bounds, **options)


def count_field(least: int, **options):
  """Returns an attrs field for an integer of at least `least`."""
  return _field(_number, _checks.integer_at_least, least, **options)


def _field(converter, check, *bounds, **options):
  """Returns a numeric field that a function of `_checks` validates."""

  def validate(unused_event, attribute, value):
    check(*bounds, **{attribute.name: value})

  return attr.ib(converter=converter, validator=validate, **options)


def _number(value):
  """Returns a NumPy number as a Python number, any other value unchanged."""
  if isinstance(value, np.ndarray) and value.ndim == 0:
    value = value[()]
  if isinstance(value, np.generic) and isinstance(value, numbers.Number):
    return value.item()
  return value


def _real_number(value):
  value = _number(value)
  is_integer = isinstance(value, int) and not isinstance(value, bool)
  return float(value) if is_integer else value


@attr.s(frozen=True)
class ProtocolDpEvent(dp_accounting.DpEvent):
  """Base of the events of local reports and of protocols.

  Attributes:
    rules: Function without arguments, such as a `system.At`. It returns a
      mapping from types of events to their `protocols.bounds.Rules`.
  """

  rules: ClassVar[Any] = dict

  def to_named_tuple(self):
    """Returns the usual named tuple with 64-bit numbers, which TF keeps as is.
    """
    result = super().to_named_tuple()
    wide = {}
    for field in attr.fields(type(self)):
      value = getattr(self, field.name)
      if isinstance(value, int):
        wide[field.name] = np.int64(value)
      elif isinstance(value, float):
        wide[field.name] = np.float64(value)
    return result._replace(**wide)


@attr.s(frozen=True)
class LocalRandomizerDpEvent(ProtocolDpEvent):
  """Base of the events for one report of one client. See the subclasses."""

  rules = At('tff_dp.accounting.protocols.bounds', 'LOCAL')


@attr.s(frozen=True)
class LocalDpEvent(LocalRandomizerDpEvent):
  """One report of any randomizer that is (epsilon, delta)-DP for replace-one.

  The randomizer may be chosen adaptively. Nothing else about it is known, so
  every bound holds for the worst such randomizer.
  """

  epsilon: float = real_field(_checks.positive)
  delta: float = real_field(_checks.in_half_open, 0.0, 1.0, default=0.0)


@attr.s(frozen=True)
class RandomizedResponseLocalDpEvent(LocalRandomizerDpEvent):
  """One category of k, kept w.p. e^epsilon / (e^epsilon + k - 1).

  Otherwise the report is one of the other k - 1 categories, uniformly.
  epsilon-DP for replace-one.
  """

  epsilon: float = real_field(_checks.positive)
  num_categories: int = count_field(2, default=2)


@attr.s(frozen=True)
class SphereLocalDpEvent(LocalRandomizerDpEvent):
  """A random direction, and the noisy sign of a vector along it (LDP-SGD).

  The one-bit randomizer of arXiv:2001.03618, algorithm 3. The clipped vector is
  rounded at random to a vector z on the sphere, and a uniform direction v is
  drawn. The report is v and the sign of the inner product of z and v. The sign
  is kept w.p. e^epsilon / (e^epsilon + 1), else flipped. epsilon-DP for
  replace-one, in any dimension.
  """

  epsilon: float = real_field(_checks.positive)


@attr.s(frozen=True)
class LaplaceLocalDpEvent(LocalRandomizerDpEvent):
  """A vector clipped to L1 norm C, plus Laplace noise of scale 2 C / epsilon.

  The noise is independent in every coordinate. epsilon-DP for replace-one.
  """

  epsilon: float = real_field(_checks.positive)


@attr.s(frozen=True)
class GaussianLocalDpEvent(LocalRandomizerDpEvent):
  """A vector clipped to L2 norm C, plus N(0, (noise_multiplier C)^2 I).

  Two vectors of norm C differ by up to 2 C under replace-one. So this is the
  Gaussian mechanism with sigma = noise_multiplier / 2: (epsilon, delta)-DP for
  a curve of pairs, and never with delta 0. Not to be confused with
  `dp_accounting.GaussianDpEvent`, which is noise on a sum, at the server.
  """

  noise_multiplier: float = real_field(_checks.positive)


# The mechanisms of dp_accounting that add noise to a sum, stated for zero-out.
NOISED_SUM_TYPES = (
    dp_accounting.GaussianDpEvent,
    dp_accounting.LaplaceDpEvent,
)
