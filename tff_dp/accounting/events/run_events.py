# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Events: whole runs, check-ins, shuffling and local randomizers.

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

Check-ins are two families of events, which nest in one way:

    ShuffledCheckInDpEvent(
        SphereLocalDpEvent(epsilon=2.0),
        min_num_clients=60_000, check_in_probability=0.1)

* A *local* event is what one client does to its own report before it leaves the
  device. It is stated for replace-one: whatever the client holds, before and
  after. Released as it is, to a server that nobody trusts, it costs its own
  epsilon; nothing else is assumed.
* A *protocol* event is how reports of many clients reach the adversary. It is
  stated for replace-one of a client over all that the event covers, except
  random allocation, which is stated for zero-out. What the adversary sees, and
  who is trusted, is in each docstring: an event is wrong for a system in which
  more can be seen.

One event per variant and numbers in all fields: `to_named_tuple` takes strings
apart. A round trip through the state of a TFF process keeps all digits, because
the named tuple holds 64-bit numbers. As in dp_accounting, the meaning of an
event never changes; a new variant is a new class.
"""

import enum
import math
import numbers

import attr
import dp_accounting
import numpy as np

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


def real_field(check, *bounds, **options):
  """Returns a field for numbers that a function of `_checks` allows."""
  return _field(_real_number, check, *bounds, **options)


def count_field(least: int, **options):
  """Returns a field for integers from `least` on."""
  return _field(_number, _checks.integer_at_least, least, **options)


def _field(converter, check, *bounds, **options):
  """Returns a numeric field that a function of `_checks` guards."""

  def validate(unused_event, attribute, value):
    check(*bounds, **{attribute.name: value})

  return attr.ib(converter=converter, validator=validate, **options)


def _number(value):
  """Returns a Python number where a value is one; checks come afterwards."""
  if isinstance(value, np.ndarray) and value.ndim == 0:
    value = value[()]
  if isinstance(value, np.generic) and isinstance(value, numbers.Number):
    return value.item()
  return value


def _real_number(value):
  value = _number(value)
  is_integer = isinstance(value, int) and not isinstance(value, bool)
  return float(value) if is_integer else value


def _local(**options):
  """Returns the field of a protocol that holds its local randomizer."""

  def validate(protocol, unused_attribute, value):
    if isinstance(value, LocalRandomizerDpEvent):
      return
    name = type(protocol).__name__
    if not isinstance(value, dp_accounting.DpEvent):
      raise TypeError(
          f'event={value!r} is not allowed: expected a local event, such as'
          ' SphereLocalDpEvent(epsilon=2.0).'
      )
    raise _checks.PrivacyRefusedError(
        f'{name} is not defined for {type(value).__name__}',
        why='its clients add the noise themselves; with noise at the server'
        " other clients' data would choose who is heard, or be seen unnoised",
        way_out='a local event, such as GaussianLocalDpEvent, or, where the'
        ' server is trusted to add noise to every sum, RandomAllocationDpEvent',
    )

  return attr.ib(validator=validate, **options)


@attr.s(frozen=True)
class ProtocolDpEvent(dp_accounting.DpEvent):
  """Base of the events here and in `record_events`; means nothing itself."""

  def to_named_tuple(self):
    """Converts as usual, with 64-bit numbers, which TensorFlow leaves alone."""
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
  """Base of what one client does to one report; see the subclasses."""


@attr.s(frozen=True)
class RecordDpEvent(ProtocolDpEvent):
  """Base of what is done to one record of a silo; see `record_events`."""


@attr.s(frozen=True)
class LocalDpEvent(LocalRandomizerDpEvent):
  """One report of any randomizer that is (epsilon, delta)-DP for replace-one.

  The randomizer may be chosen adaptively. Nothing else about it is known, so
  every bound holds for the worst one.
  """

  epsilon: float = real_field(_checks.positive)
  delta: float = real_field(_checks.in_half_open, 0.0, 1.0, default=0.0)


@attr.s(frozen=True)
class RandomizedResponseLocalDpEvent(LocalRandomizerDpEvent):
  """One of k categories: kept w.p. e^epsilon / (e^epsilon + k - 1).

  Otherwise one of the other k - 1, uniformly. epsilon-DP for replace-one.
  """

  epsilon: float = real_field(_checks.positive)
  num_categories: int = count_field(2, default=2)


@attr.s(frozen=True)
class SphereLocalDpEvent(LocalRandomizerDpEvent):
  """One direction of a clipped vector, with a random sign (LDP-SGD).

  The one-bit randomizer of arXiv:2001.03618, algorithm 3: the vector is rounded
  at random to the sphere, a uniform direction v is drawn, and the sign of their
  product is sent with v, kept w.p. e^epsilon / (e^epsilon + 1). epsilon-DP for
  replace-one, in any dimension.
  """

  epsilon: float = real_field(_checks.positive)


@attr.s(frozen=True)
class LaplaceLocalDpEvent(LocalRandomizerDpEvent):
  """A vector clipped to L1 norm C, plus Laplace noise of parameter 2 C/epsilon.

  Independent noise in every coordinate. epsilon-DP for replace-one.
  """

  epsilon: float = real_field(_checks.positive)


@attr.s(frozen=True)
class GaussianLocalDpEvent(LocalRandomizerDpEvent):
  """A vector clipped to L2 norm C, plus N(0, (noise_multiplier C)^2 I).

  Two vectors of norm C differ by up to 2 C under replace-one, so this is the
  Gaussian mechanism with sigma = noise_multiplier / 2: (epsilon, delta)-DP for
  a curve of pairs, and never with delta 0. To be told apart from
  `dp_accounting.GaussianDpEvent`, which is noise on a sum, at the server.
  """

  noise_multiplier: float = real_field(_checks.positive)


@attr.s(frozen=True)
class FixedWindowCheckInDpEvent(ProtocolDpEvent):
  """Random check-ins with a fixed window, one winner a slot: the whole run.

  A_fix of arXiv:2007.06605 (algorithm 1). Each client takes part with
  probability `check_in_probability` and then draws one of `num_slots` slots
  uniformly, by coins of its own. Of those in a slot the server asks one,
  uniformly chosen, for a report; for an empty slot it makes the report of a
  zero update itself. The adversary sees all models, hence all reports that
  were used, in order, and nothing of who checked in, who won and which slots
  were empty. The number of clients does not matter.
  """

  event: LocalRandomizerDpEvent = _local()
  num_slots: int = count_field(1)
  check_in_probability: float = real_field(
      _checks.in_closed, 0.0, 1.0, default=1.0
  )


@attr.s(frozen=True)
class SlidingWindowCheckInDpEvent(ProtocolDpEvent):
  """Random check-ins with a sliding window, one winner a slot: the whole run.

  A_sldw of arXiv:2007.06605 (section 4.2). Client j draws one of the `window`
  slots j, ..., j + window - 1, uniformly. The rest as in
  `FixedWindowCheckInDpEvent`, with the slots before slot `window` not used.
  """

  event: LocalRandomizerDpEvent = _local()
  window: int = count_field(1)


@attr.s(frozen=True)
class AveragedCheckInDpEvent(ProtocolDpEvent):
  """Random check-ins of which all are averaged: the whole run.

  A_avg of arXiv:2007.06605 (algorithm 2). Each of at least `min_num_clients`
  clients takes part and draws one of `num_slots` slots uniformly. The server
  averages the reports of a slot; an empty slot leaves the model as it is. The
  adversary sees all models and the number of reports in every slot, and does
  not collude with participants.
  """

  event: LocalRandomizerDpEvent = _local()
  num_slots: int = count_field(1)
  min_num_clients: int = count_field(1)


@attr.s(frozen=True)
class ShuffledDpEvent(ProtocolDpEvent):
  """One report of each of at least `num_messages` clients, in random order.

  Everybody takes part. The adversary sees all reports and does not know whose
  they are; randomizers may depend on the reports before, if the order of the
  clients was drawn before the first (arXiv:2012.12803, section 3).
  """

  event: LocalRandomizerDpEvent = _local()
  num_messages: int = count_field(1)


@attr.s(frozen=True)
class ShuffledCheckInDpEvent(ProtocolDpEvent):
  """ONE round of shuffled check-in; T rounds are a `SelfComposedDpEvent`.

  arXiv:2206.03151. Each of at least `min_num_clients` clients, the one whose
  data may change among them, flips a coin of its own and takes part with
  probability `check_in_probability`. The adversary sees the multiset of all
  reports, hence their number, and the coins of nobody. In the next round new
  coins are flipped, and everything may depend on what was seen.
  """

  event: LocalRandomizerDpEvent = _local()
  min_num_clients: int = count_field(1)
  check_in_probability: float = real_field(_checks.in_closed, 0.0, 1.0)


@attr.s(frozen=True)
class RandomAllocationDpEvent(ProtocolDpEvent):
  """Check-ins at a server that is trusted to add Gaussian noise: one pass.

  Each client takes part with probability `participation_probability` and then
  in `num_selected` of `num_steps` steps, drawn uniformly without repetition.
  Every step, empty ones too, releases the sum of the contributions plus noise
  as in `event`, a `dp_accounting.GaussianDpEvent`: std over the bound on one
  contribution's norm. Stated for zero-out, as that event is. The adversary sees
  every noised sum and not who took part when (arXiv:2502.08202). Epochs with
  new draws are a `SelfComposedDpEvent`.
  """

  event: dp_accounting.DpEvent = attr.ib()
  num_steps: int = count_field(1)
  num_selected: int = count_field(1, default=1)
  participation_probability: float = real_field(
      _checks.in_closed, 0.0, 1.0, default=1.0
  )

  @event.validator
  def _check_event(self, unused_attribute, value):
    if not isinstance(value, dp_accounting.GaussianDpEvent):
      raise TypeError(
          f'event={value!r} is not allowed: expected a'
          ' dp_accounting.GaussianDpEvent, noise on the sum of a step.'
      )
    multiplier = value.noise_multiplier
    if multiplier != math.inf:
      _checks.non_negative(noise_multiplier=multiplier)

  def __attrs_post_init__(self):
    _checks.integer_between(1, self.num_steps, num_selected=self.num_selected)


# What the adversary sees of the shuffle and check-in protocols is stated for
# replace-one; a client that is absent would show in the number of reports, a
# record in that of its silo.
REPLACE_ONE_TYPES = (
    LocalRandomizerDpEvent,
    RecordDpEvent,
    FixedWindowCheckInDpEvent,
    SlidingWindowCheckInDpEvent,
    AveragedCheckInDpEvent,
    ShuffledDpEvent,
    ShuffledCheckInDpEvent,
)
# The mechanisms of dp_accounting that noise a sum, stated for zero-out.
NOISED_SUM_TYPES = (
    dp_accounting.GaussianDpEvent,
    dp_accounting.LaplaceDpEvent,
)
