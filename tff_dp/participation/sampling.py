# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Schedules in which the server chooses who takes part in a round.

Each schedule is a frozen description of public facts. It names the
participation pattern that an accountant may assume (`pattern`), and it chooses
cohorts that keep this pattern (`select`). The ledger refuses any cohort that
breaks it. No schedule claims amplification by sampling, so the choices need not
be secret: they follow from a public seed and the round, and a resumed run
repeats them.
"""

import abc
from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any, Optional

import numpy as np

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.accounting.sensitivity import patterns
from tff_dp.ledger import participation_ledger as ledger_lib


# Number of clients drawn per member of the cohort, before all clients are
# checked.
_DRAWS_PER_CLIENT = 16


class Schedule(abc.ABC):
  """The contract of a schedule.

  Attributes:
    num_rounds: Number of rounds T.
  """

  num_rounds: int

  @property
  @abc.abstractmethod
  def pattern(self) -> patterns.ParticipationPattern:
    """The participation pattern that an accountant may assume for every client.
    """

  @abc.abstractmethod
  def validate_population(
      self, num_clients: int, clients_per_round: int
  ) -> None:
    """Raises if the population is too small for a full cohort in every round.

    A schedule that needs the length of a noise tree for this check leaves it to
    `select`.

    Args:
      num_clients: Size of the population.
      clients_per_round: Size of a cohort.

    Raises:
      ArgumentError: If the population is too small. The error names an argument
        that has to change.
    """

  @abc.abstractmethod
  def select(
      self,
      *,
      round_index: int,
      client_ids: Sequence[str],
      clients_per_round: int,
      ledger: ledger_lib.ParticipationLedger,
      seed: int,
  ) -> list[str]:
    """Returns the cohort of a round. It depends only on the arguments.

    Args:
      round_index: Index of the round, from 1.
      client_ids: Ids of the population, in a stable order.
      clients_per_round: Size of the cohort.
      ledger: Record of past participation, which knows who is eligible.
      seed: Public seed of the schedule.

    Raises:
      PrivacyRefusedError: If too few clients are eligible for the cohort.
    """


class _RandomCohorts(Schedule):
  """Draws cohorts among the eligible clients.

  The draw is uniform. Under a cap on participations, clients with the fewest
  participations come first, so that the last rounds do not run out of clients.
  In most rounds of a large population, clients are drawn until enough of them
  are eligible, so the cost of a round does not grow with the population. In a
  small population, or if few clients are eligible, all clients are checked.

  Attributes:
    max_participations: Largest number of participations of one client, `None`
      for no cap.
  """

  max_participations: Optional[int]

  def validate_population(
      self, num_clients: int, clients_per_round: int
  ) -> None:
    _check_cohort(num_clients, clients_per_round)
    gap = min(self.pattern.min_index_gap, self.num_rounds)
    if clients_per_round * gap > num_clients:
      raise _checks.ArgumentError(
          'min_index_gap',
          gap,
          f'at most {num_clients // clients_per_round} with'
          f' {clients_per_round} clients per round out of {num_clients}',
          way_out=_smaller('min_index_gap', gap, num_clients, clients_per_round),
      )
    participations = clients_per_round * self.num_rounds
    if participations > num_clients * self.pattern.max_participations:
      raise _checks.ArgumentError(
          'max_participations',
          self.pattern.max_participations,
          f'at least {-(-participations // num_clients)}:'
          f' {self.num_rounds} rounds of {clients_per_round} clients out of'
          f' {num_clients} need that many',
      )

  def select(
      self, *, round_index, client_ids, clients_per_round, ledger, seed
  ) -> list[str]:
    rng = np.random.default_rng([seed, round_index])
    cohort = self._by_rejection(
        rng, round_index, client_ids, clients_per_round, ledger
    )
    if cohort is not None:
      return cohort
    is_eligible, count = ledger.standing(client_ids, round_index)
    eligible = np.flatnonzero(is_eligible)
    if len(eligible) < clients_per_round:
      raise _checks.PrivacyRefusedError(
          f'round {round_index} has {len(eligible)} eligible clients of'
          f' {len(client_ids)}, and clients_per_round={clients_per_round}',
          why='the others took part too recently or too often for the plan',
          way_out='use fewer clients per round, or a plan that lets a client'
          ' come again sooner or more often',
      )
    order = rng.permutation(len(eligible))
    if self.max_participations is not None:
      counts = count[eligible[order]]
      # Clients with too many participations to be chosen need no order.
      most = np.partition(counts, clients_per_round - 1)[clients_per_round - 1]
      order, counts = order[counts <= most], counts[counts <= most]
      order = order[np.argsort(counts, kind='stable')]
    return [client_ids[i] for i in eligible[order[:clients_per_round]]]

  def _by_rejection(
      self, rng, round_index, client_ids, clients_per_round, ledger
  ) -> Optional[list[str]]:
    """Returns the cohort, or `None` if all clients have to be checked.

    That is so if the population is small, or if too many of the drawn clients
    are ineligible. Rejection keeps the draw uniform: a cohort is a sample
    without replacement of the eligible clients, or under a cap of those among
    them with the fewest participations. A client that is drawn twice counts
    once.
    """
    most = _DRAWS_PER_CLIENT * clients_per_round
    if len(client_ids) <= most:
      return None
    fewest = None
    if self.max_participations is not None:
      fewest = ledger.fewest_participations(len(client_ids))
    cohort = {}
    for _ in range(_DRAWS_PER_CLIENT):
      positions = rng.integers(len(client_ids), size=clients_per_round)
      drawn = [client_ids[position] for position in positions]
      drawn = ledger.eligible(drawn, round_index)
      if fewest is not None:
        counts = ledger.num_participations(drawn)
        drawn = [one for one, n in zip(drawn, counts) if n <= fewest]
      cohort.update(dict.fromkeys(drawn))
      if len(cohort) >= clients_per_round:
        return list(cohort)[:clients_per_round]
    return None


@_calls.helpful
@dataclasses.dataclass(frozen=True)
class MinSeparation(_RandomCohorts):
  """Random cohorts of clients whose last participation is long enough ago.

  Give exactly one of `min_index_gap` and `min_rounds_between`. They state the
  same limit and differ by one.

  Attributes:
    num_rounds: Number of rounds T.
    min_index_gap: Smallest difference of the round indices of two
      participations of a client. `None` if the other limit is given.
    min_rounds_between: Smallest number of rounds strictly between two
      participations of a client. `None` if the other limit is given.
    max_participations: Largest number of participations of one client, `None`
      for as many as the separation allows.
  """

  num_rounds: int
  min_index_gap: Optional[int] = None
  min_rounds_between: Optional[int] = None
  max_participations: Optional[int] = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    if (self.min_index_gap is None) == (self.min_rounds_between is None):
      raise _checks.ArgumentError(
          'min_index_gap',
          self.min_index_gap,
          'exactly one of min_index_gap and min_rounds_between',
      )
    _checks.optional_integer_at_least(1, min_index_gap=self.min_index_gap)
    _checks.optional_integer_at_least(
        0, min_rounds_between=self.min_rounds_between
    )
    _checks.optional_integer_at_least(
        1, max_participations=self.max_participations
    )

  @property
  def pattern(self) -> patterns.MinSeparationPattern:
    # One of the two is given.
    gap = self.min_index_gap or (self.min_rounds_between or 0) + 1
    return patterns.MinSeparationPattern(
        self.num_rounds,
        min_index_gap=gap,
        max_participations=self.max_participations,
    )


@dataclasses.dataclass(frozen=True)
class UniformSampling(_RandomCohorts):
  """Uniform cohorts without replacement, of a fixed size.

  A client may be drawn in consecutive rounds. Without a cap on participations,
  rounds are independent. With a cap, clients with the fewest participations are
  drawn first.

  Attributes:
    num_rounds: Number of rounds T.
    max_participations: Largest number of participations of one client, `None`
      for no limit.
  """

  num_rounds: int
  max_participations: Optional[int] = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.optional_integer_at_least(
        1, max_participations=self.max_participations
    )

  @property
  def pattern(self) -> patterns.MinSeparationPattern:
    return patterns.MinSeparationPattern(
        self.num_rounds,
        min_index_gap=1,
        max_participations=self.max_participations,
    )


@dataclasses.dataclass(frozen=True)
class OncePerTree(_RandomCohorts):
  """Random cohorts of clients that have not yet been in the current noise tree.

  Attributes:
    num_rounds: Number of rounds T.
  """

  num_rounds: int

  max_participations = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)

  @property
  def pattern(self) -> patterns.OncePerTreePattern:
    return patterns.OncePerTreePattern(self.num_rounds)

  def validate_population(
      self, num_clients: int, clients_per_round: int
  ) -> None:
    # The mechanism knows the length of a tree. `select` refuses a round with
    # too few eligible clients.
    _check_cohort(num_clients, clients_per_round)


@dataclasses.dataclass(frozen=True)
class ShuffledEpochs(Schedule):
  """Passes over a shuffled population, in the same order until a reshuffle.

  The population is shuffled once and cut into `rounds_per_epoch` cohorts of
  `clients_per_round`. The remaining clients sit out. The population is shuffled
  again only when the noise restarts, and a restart coincides with the end of an
  epoch.

  Attributes:
    num_rounds: Number of rounds T.
    rounds_per_epoch: Number of rounds of one pass (an epoch). While the order
      stays the same, a client's turn comes again after this number of rounds.
    epochs_per_shuffle: Number of epochs in the same order, `None` for all. With
      a number, the population is reshuffled every `rounds_per_epoch *
      epochs_per_shuffle` rounds. The mechanism must restart at each reshuffle,
      and may also restart after other epochs. The plan checks this.
  """

  num_rounds: int
  rounds_per_epoch: int
  epochs_per_shuffle: Optional[int] = None

  def __post_init__(self):
    _checks.take_python_numbers(self)
    _checks.integer_at_least(1, num_rounds=self.num_rounds)
    _checks.integer_between(
        1, self.num_rounds, rounds_per_epoch=self.rounds_per_epoch
    )
    _checks.optional_integer_at_least(
        1, epochs_per_shuffle=self.epochs_per_shuffle
    )

  @property
  def rounds_per_shuffle(self) -> Optional[int]:
    """Number of rounds after which the population is reshuffled, or `None`."""
    if self.epochs_per_shuffle is None:
      return None
    return self.rounds_per_epoch * self.epochs_per_shuffle

  @property
  def pattern(self) -> patterns.FixedOrderPattern:
    return patterns.FixedOrderPattern(
        self.num_rounds, rounds_per_epoch=self.rounds_per_epoch
    )

  def validate_population(
      self, num_clients: int, clients_per_round: int
  ) -> None:
    _check_cohort(num_clients, clients_per_round)
    if clients_per_round * self.rounds_per_epoch > num_clients:
      raise _checks.ArgumentError(
          'rounds_per_epoch',
          self.rounds_per_epoch,
          f'at most {num_clients // clients_per_round} with'
          f' {clients_per_round} clients per round out of {num_clients}',
          way_out=_smaller(
              'rounds_per_epoch',
              self.rounds_per_epoch,
              num_clients,
              clients_per_round,
          ),
      )

  def select(
      self, *, round_index, client_ids, clients_per_round, ledger, seed
  ) -> list[str]:
    del ledger  # The order alone decides. The ledger checks it.
    num_shuffles = 0
    if self.rounds_per_shuffle is not None:
      num_shuffles = (round_index - 1) // self.rounds_per_shuffle
    order = np.random.default_rng([seed, num_shuffles]).permutation(
        len(client_ids)
    )
    start = (round_index - 1) % self.rounds_per_epoch * clients_per_round
    cohort = order[start : start + clients_per_round]
    return [client_ids[position] for position in cohort]


def from_description(description: Mapping[str, Any]) -> Schedule:
  """Returns the schedule from its class name and fields, plain JSON types."""
  made = {
      each.__name__: each
      for each in (MinSeparation, OncePerTree, ShuffledEpochs, UniformSampling)
  }
  fields = dict(description)
  name = fields.pop('name', None)
  _checks.one_of(tuple(made), name=name)
  return made[name](**fields)


def _smaller(
    argument: str, gap: int, num_clients: int, clients_per_round: int
) -> str:
  """Returns the ways out for a population that is too small for a gap."""
  ways = [
      f'{argument}={num_clients // clients_per_round}, which takes more noise',
      f'clients_per_round={num_clients // gap}',
      f'a population of {clients_per_round * gap} clients',
  ]
  if gap > num_clients:
    del ways[1]
  return ', or '.join(ways)


def _check_cohort(num_clients: int, clients_per_round: int) -> None:
  _checks.integer_at_least(1, num_clients=num_clients)
  _checks.integer_at_least(1, clients_per_round=clients_per_round)
  if clients_per_round > num_clients:
    raise _checks.ArgumentError(
        'clients_per_round',
        clients_per_round,
        f'an integer from 1 to {num_clients}, the number of clients',
    )
