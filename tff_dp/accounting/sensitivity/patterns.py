# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Participation patterns: the rounds in which one client may take part.

A pattern is a promise about every client, made before the run and enforced by
the participation ledger. An accountant needs to know nothing else about
participation. Rounds are 1-based: t = 1..num_rounds.

There are two conventions for the separation of two participations, and texts
give both numbers. `min_index_gap` is the difference of the round indices (1
allows every round). `min_rounds_between` counts the rounds strictly between,
which is one less.

A noise tree may restart every `restart_every` rounds. If a promise is made per
tree, its limits over the whole run depend on the restarts: use
`pattern.limits(restart_every=...)`. The properties `min_index_gap`,
`min_rounds_between` and `max_participations` are for a run without restarts.

`rules_of` turns a pattern into rules that a ledger can check. A rule looks at
the next round and at the ledger's facts about each client: its last round and
its number of rounds. Together the rules of a pattern are equivalent to the
pattern.
"""

import abc
from collections.abc import Callable
import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tff_dp import _checks


class ParticipationLimits(NamedTuple):
  """The limits on each client's participation over a whole run.

  Attributes:
    min_index_gap: Smallest difference between the indices of two rounds in
      which one client takes part (1 allows every round). It has no effect if
      `max_participations` is 1.
    max_participations: Largest number of rounds in which one client takes part.
  """

  min_index_gap: int
  max_participations: int

  @property
  def min_rounds_between(self) -> int:
    """Smallest number of rounds strictly between two participations."""
    return self.min_index_gap - 1


def tree_lengths(
    num_rounds: int, *, restart_every: int | None = None
) -> tuple[int, ...]:
  """Returns the number of rounds of each noise tree, in order.

  Args:
    num_rounds: Number of rounds of the run.
    restart_every: Number of rounds per tree. The last tree may be shorter.
      `None` means one tree for the whole run.
  """
  _checks.integer_at_least(1, num_rounds=num_rounds)
  _checks.optional_integer_at_least(1, restart_every=restart_every)
  if restart_every is None or restart_every >= num_rounds:
    return (num_rounds,)
  full, rest = divmod(num_rounds, restart_every)
  return (restart_every,) * full + ((rest,) if rest else ())


class ParticipationPattern(abc.ABC):
  """A promise about the rounds in which one client takes part.

  Subclasses are frozen dataclasses of public facts. Equal patterns make the
  same promise, and `from_json(to_json())` gives an equal pattern.
  """

  # Subclasses are dataclasses.
  __dataclass_fields__: ClassVar[dict[str, Any]]

  num_rounds: int

  @abc.abstractmethod
  def limits(self, *, restart_every: int | None = None) -> ParticipationLimits:
    """Returns the limits that the promise sets over the whole run.

    Args:
      restart_every: Number of rounds per noise tree, `None` for one tree.
    """

  @abc.abstractmethod
  def describe(self) -> str:
    """Returns the promise as one sentence, starting with `Each client`."""

  @property
  def min_index_gap(self) -> int:
    """Smallest difference of round indices, in a run without restarts."""
    return self.limits().min_index_gap

  @property
  def min_rounds_between(self) -> int:
    """`min_index_gap - 1`, in a run without restarts."""
    return self.limits().min_rounds_between

  @property
  def max_participations(self) -> int:
    """Largest number of rounds of one client, in a run without restarts."""
    return self.limits().max_participations

  def truncated(self, num_rounds: int) -> 'ParticipationPattern':
    """Returns the pattern of the first `num_rounds` rounds of this one."""
    _checks.integer_between(1, self.num_rounds, num_rounds=num_rounds)
    return dataclasses.replace(self, num_rounds=num_rounds)

  def to_json(self) -> dict[str, object]:
    """Returns the fields as plain types, and the class as `kind`."""
    return {'kind': _kind_of(type(self)), **dataclasses.asdict(self)}

  @staticmethod
  def from_json(content: dict[str, Any]) -> 'ParticipationPattern':
    """Returns the pattern from the output of `to_json`."""
    fields = dict(content)
    kind = fields.pop('kind', None)
    _checks.one_of(tuple(_KINDS), kind=kind)
    pattern_class = _KINDS[kind]
    expected = {field.name for field in dataclasses.fields(pattern_class)}
    if set(fields) != expected:
      raise _checks.ArgumentError(
          'content', content, f"the keys {sorted([*expected, 'kind'])}"
      )
    return pattern_class(**fields)


def check(pattern) -> None:
  """Raises `TypeError` unless `pattern` is a participation pattern."""
  if not isinstance(pattern, ParticipationPattern):
    raise TypeError(
        f'pattern={pattern!r} is not allowed: expected a pattern of'
        ' tff_dp.accounting.sensitivity.patterns.'
    )


@dataclasses.dataclass(frozen=True)
class MinSeparationPattern(ParticipationPattern):
  """A least gap between a client's rounds, and a cap on their number.

  Both limits hold over the whole run, across restarts of the noise tree.

  Attributes:
    num_rounds: Number of rounds of the run.
    min_index_gap: Smallest difference between the indices of two rounds in
      which one client takes part. 1 allows every round.
    max_participations: Largest number of rounds in which one client takes part.
      `None`, or a number above `participations_that_fit`, is replaced by
      `participations_that_fit`.
  """

  num_rounds: int
  _: dataclasses.KW_ONLY
  min_index_gap: int = 1
  max_participations: int | None = None

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_at_least(1, min_index_gap=self.min_index_gap)
    _checks.optional_integer_at_least(
        1, max_participations=self.max_participations
    )
    most = self.participations_that_fit
    if self.max_participations is not None:
      most = min(most, self.max_participations)
    object.__setattr__(self, 'max_participations', most)

  @property
  def participations_that_fit(self) -> int:
    """Largest number of rounds of one client that the gap allows.

    Exact: ceil(num_rounds / min_index_gap).
    """
    return -(-self.num_rounds // self.min_index_gap)

  def limits(self, *, restart_every: int | None = None) -> ParticipationLimits:
    """Returns the fields, because they hold across restarts."""
    _checks.optional_integer_at_least(1, restart_every=restart_every)
    return ParticipationLimits(self.min_index_gap, self.max_participations)

  def describe(self) -> str:
    if self.max_participations == 1:
      return (
          f'Each client takes part at most once in {self.num_rounds} rounds.'
      )
    return (
        f'Each client takes part at most {self.max_participations} times in'
        f' {self.num_rounds} rounds, in rounds whose indices differ by at least'
        f' {self.min_index_gap} ({self.min_rounds_between} rounds strictly'
        ' between).'
    )


@dataclasses.dataclass(frozen=True)
class FixedOrderPattern(ParticipationPattern):
  """Every client has one turn per epoch, at a fixed place within a noise tree.

  Clients are split into `rounds_per_epoch` batches. In the round of index r
  (0-based) *inside the current tree*, only batch `r % rounds_per_epoch` may
  take part. Every restart of the tree starts a new epoch and may reshuffle the
  clients into new batches. Reshuffling at any other time is not allowed.

  Attributes:
    num_rounds: Number of rounds of the run. The last epoch may be incomplete.
    rounds_per_epoch: Number of rounds of an epoch, in which every client's turn
      comes once.
  """

  num_rounds: int
  _: dataclasses.KW_ONLY
  rounds_per_epoch: int

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_at_least(1, rounds_per_epoch=self.rounds_per_epoch)

  def limits(self, *, restart_every: int | None = None) -> ParticipationLimits:
    """Returns the limits over the whole run, with gap 1 if the tree restarts.

    A client may take part in the last round before a restart and in the first
    round after it.
    """
    lengths = tree_lengths(self.num_rounds, restart_every=restart_every)
    most = sum(-(-length // self.rounds_per_epoch) for length in lengths)
    if len(lengths) > 1:
      gap = 1
    else:
      gap = min(self.rounds_per_epoch, self.num_rounds)
    return ParticipationLimits(gap, most)

  def describe(self) -> str:
    return (
        f'Each client takes part at most once in every {self.rounds_per_epoch}'
        f' of {self.num_rounds} rounds, at the same position in all epochs of'
        ' one noise tree; only a restart of the tree may reshuffle the order.'
    )


@dataclasses.dataclass(frozen=True)
class OncePerTreePattern(ParticipationPattern):
  """At most one round of a client between two restarts of the noise tree.

  Attributes:
    num_rounds: Number of rounds of the run.
  """

  num_rounds: int

  def __post_init__(self):
    _checks.integer_at_least(1, num_rounds=self.num_rounds)

  def limits(self, *, restart_every: int | None = None) -> ParticipationLimits:
    """Returns one participation per tree.

    The gap is 1 if there is more than one tree.
    """
    num_trees = len(tree_lengths(self.num_rounds, restart_every=restart_every))
    gap = self.num_rounds if num_trees == 1 else 1
    return ParticipationLimits(gap, num_trees)

  def describe(self) -> str:
    return (
        'Each client takes part at most once between two restarts of the noise'
        f' tree, in {self.num_rounds} rounds.'
    )


_KINDS: dict[str, Any] = {
    'min-separation': MinSeparationPattern,
    'fixed-order': FixedOrderPattern,
    'once-per-tree': OncePerTreePattern,
}


@dataclasses.dataclass(frozen=True)
class Rule:
  """One rule of a pattern.

  Attributes:
    breaks: Function of (round, last rounds, counts) that returns whether each
      client would break the rule by taking part in the round. The last round
      of a client is its latest so far, 0 for none. Its count is its number of
      rounds so far. All arrays have shape [num_clients].
    why: The rule in one sentence.
    problem: Phrase that says how a client breaks the rule, such as 'took part
      too recently'.
  """

  breaks: Callable[[int, np.ndarray, np.ndarray], np.ndarray]
  why: str
  problem: str


def rules_of(
    pattern: ParticipationPattern, restart_every: int | None
) -> list[Rule]:
  """Returns the rules that are together equivalent to the pattern.

  Args:
    pattern: A pattern of one of the classes of this module.
    restart_every: Number of rounds per noise tree. `None` means one tree over
      the whole run.

  Raises:
    TypeError: If the pattern is of another class.
  """
  check(pattern)
  rounds_per_tree = restart_every or pattern.num_rounds

  def in_same_tree(round_index, last_round):
    tree = (round_index - 1) // rounds_per_tree
    return (last_round > 0) & ((last_round - 1) // rounds_per_tree == tree)

  if isinstance(pattern, MinSeparationPattern):
    gap, most = pattern.min_index_gap, pattern.max_participations
    return [
        Rule(
            lambda t, last, count: (last > 0) & (t - last < gap),
            f'the indices of two rounds of one client must differ by at least'
            f' {gap} ({gap - 1} rounds strictly between)',
            'took part too recently',
        ),
        Rule(
            lambda t, last, count: count >= most,
            f'a client may take part at most {most} times in the whole run',
            'took part too often already',
        ),
    ]
  if isinstance(pattern, OncePerTreePattern):
    return [
        Rule(
            lambda t, last, count: in_same_tree(t, last),
            'a client may take part once between two restarts of the noise'
            ' tree',
            'took part in this tree already',
        )
    ]
  if isinstance(pattern, FixedOrderPattern):
    rounds_per_epoch = pattern.rounds_per_epoch
    return [
        Rule(
            lambda t, last, count: in_same_tree(t, last)
            & ((t - last) % rounds_per_epoch != 0),
            'within one noise tree a client keeps its position among the'
            f' {rounds_per_epoch} rounds of an epoch',
            'took part at another position of this tree',
        )
    ]
  raise TypeError(
      f'{type(pattern).__name__} is a pattern that no participation ledger'
      ' supports.'
  )


def _kind_of(pattern_class: type[ParticipationPattern]) -> str:
  for kind, known in _KINDS.items():
    if known is pattern_class:
      return kind
  raise TypeError(f'{pattern_class.__name__} has no JSON form.')
