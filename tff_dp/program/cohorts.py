# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The cohorts of a run: how the training program gets the clients of a round.

`Cohorts` is the interface. Each system has its own, in the module `training` of
its folder. In `ScheduledCohorts` the server chooses, and the participation
ledger enforces the pattern that the plan promises. A `Source` has cohorts of
its own: clients decide, and the server takes those who came.

Cohorts give bytes for the checkpoint, from which a resumed run restores them. A
round that `train` repeats has the same cohort again.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
from typing import Any

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp import systems
from tff_dp.plans import base


@dataclasses.dataclass(frozen=True)
class Selection:
  """The clients of one round. Secret, except `released`.

  Attributes:
    ids: Ids of the clients that train, in this order, for the write-ahead
      record.
    read: Function that returns the clients' data. It is called after the round
      is recorded.
    released: Columns of the round's metrics that are public, or covered by the
      guarantee.
    not_covered: Columns of the round's metrics that are neither public nor
      covered.
  """

  ids: list
  read: Callable[[], list]
  released: Mapping[str, Any]
  not_covered: Mapping[str, Any]


class Cohorts(abc.ABC):
  """The interface of cohorts, the clients of the rounds of one run.

  Attributes:
    client_ids: Ids of the population.
    keeps_client_metrics: Whether metrics that clients compute without noise may
      be stored, under `secret/`.
    is_key_insecure: Whether the cohorts follow from a known seed.
    why_not_chosen: Reason why the caller's loop cannot choose a cohort. Empty
      if it can.
  """

  why_not_chosen: str = ''
  client_ids: list
  keeps_client_metrics: bool = True
  is_key_insecure: bool = False

  @property
  def num_clients(self) -> int | None:
    """Number of clients or examples of the run. `None` for silos."""
    return len(self.client_ids)

  @abc.abstractmethod
  def identity(self) -> dict[str, Any]:
    """Returns the public facts that cohorts depend on, as plain JSON types."""

  @abc.abstractmethod
  def begin(self, run_id: str) -> None:
    """Starts a run, given its name. Only `identity` may be called before."""

  @abc.abstractmethod
  def restore(self, data: bytes) -> None:
    """Resumes after the round at which `to_bytes` returned `data`."""

  @abc.abstractmethod
  def to_bytes(self) -> bytes:
    """Returns the bytes that `restore` takes. SECRET."""

  def data_digests(self) -> Mapping[str, str]:
    """Returns hashes of records that clients must not change, by id. SECRET.

    The run stores them after `Selection.read`, before it computes anything.
    """
    return {}

  def require_data(self, digests: Mapping[str, str]) -> None:
    """Refuses other data from now on. Call it after `begin`.

    Args:
      digests: Results of `data_digests` in earlier processes of the run.
    """

  @abc.abstractmethod
  def select(
      self, round_index: int, chosen: Sequence | None = None
  ) -> Selection:
    """Returns the clients of the next round. Their participation then counts.

    Args:
      round_index: 1-based index of the round after the last selected one.
      chosen: Ids that the caller's loop chose. `None`: the schedule chooses, or
        the clients decide.

    Raises:
      ArgumentError: If `chosen` has ids that are not in the population.
      PrivacyRefusedError: If the clients may not take part, or if no loop may
        choose them.
    """

  def eligible(self, round_index: int, client_ids: Sequence) -> list:
    """Returns the ids among `client_ids` that `select` would take.

    Args:
      round_index: 1-based index of the round.
      client_ids: Ids to choose from.

    Raises:
      PrivacyRefusedError: If no loop may choose the clients of a round, or if
        the round is not a coming round of the plan.
    """
    del round_index, client_ids
    raise self._cannot_be_chosen()

  def _cannot_be_chosen(self) -> _checks.PrivacyRefusedError:
    return _checks.PrivacyRefusedError(
        'under this plan, the clients of a round cannot be chosen by a caller',
        why=self.why_not_chosen,
        way_out='loop.next() without a cohort',
    )

  @abc.abstractmethod
  def observed(self, rounds_begun: int) -> Any:
    """Returns facts about the rounds so far for the plan's statement."""

  def warning(self) -> str | None:
    """Returns a sentence about a broken assumption, `None` if all hold."""
    return None


class Source(tff.program.FederatedDataSource):
  """Clients that decide themselves when they come."""

  @abc.abstractmethod
  def cohorts(self) -> Cohorts:
    """Returns new cohorts of these clients, for one run."""


class ScheduledCohorts(Cohorts):
  """Cohorts that the plan's schedule or the caller's loop chooses."""

  def __init__(
      self,
      plan: base.Plan,
      clients,
      *,
      seed: int,
  ):
    """Makes the cohorts of a run.

    Args:
      plan: Plan with schedule, cohort size and ledger.
      clients: A `tff.simulation.datasets.ClientData`.
      seed: Public seed of the schedule.
    """
    self.client_ids = list(clients.client_ids)
    _checks.distinct_clients(client_ids=self.client_ids)
    plan.participation.validate_population(
        len(self.client_ids), plan.clients_per_round
    )
    self._plan = plan
    self._clients = clients
    self._seed = seed
    self._ledger = None

  def identity(self) -> dict[str, Any]:
    return {'schedule_seed': self._seed, 'num_clients': len(self.client_ids)}

  def begin(self, run_id: str) -> None:
    self._ledger = self._plan.participation_ledger(run_id)

  def restore(self, data: bytes) -> None:
    self._ledger = self._ledger.restored(data)

  def to_bytes(self) -> bytes:
    return self._ledger.to_bytes()

  def select(
      self, round_index: int, chosen: Sequence | None = None
  ) -> Selection:
    if chosen is None:
      cohort = self._plan.participation.select(
          round_index=round_index,
          client_ids=self.client_ids,
          clients_per_round=self._plan.clients_per_round,
          ledger=self._ledger,
          seed=self._seed,
      )
    else:
      cohort = self._checked(chosen)
    self._ledger.commit(cohort, round_index)
    return Selection(
        ids=cohort,
        read=lambda: [self._data_of(client) for client in cohort],
        released={'cohort_assumed': self._plan.clients_per_round},
        not_covered={'cohort_realised': len(cohort)},
    )

  def eligible(self, round_index: int, client_ids: Sequence) -> list:
    return self._ledger.eligible(client_ids, round_index)

  def _checked(self, chosen: Sequence) -> list:
    """Returns the chosen ids. Raises if one is not in the population."""
    if isinstance(chosen, (str, bytes)):
      raise _checks.ArgumentError('cohort', chosen, 'a list of client ids')
    cohort = list(chosen)
    known = self._known
    unknown = [
        each for each in cohort if _checks.client_key(each) not in known
    ]
    if unknown:
      raise _checks.ArgumentError(
          'cohort',
          unknown[:3],
          'ids of the population that the run was given, such as'
          f' {self.client_ids[0]!r}',
      )
    return cohort

  @functools.cached_property
  def _known(self) -> frozenset[bytes]:
    return frozenset(map(_checks.client_key, self.client_ids))

  def _data_of(self, client_id) -> Any:
    """Returns the data of a client."""
    try:
      return self._clients.create_tf_dataset_for_client(client_id)
    except Exception as error:
      error.add_note(f'The data of client {client_id!r} cannot be read.')
      raise

  def observed(self, rounds_begun: int) -> Any:
    return dataclasses.replace(
        self._ledger.observed(), num_rounds=rounds_begun
    )


def check_client_data(clients: Any) -> None:
  """Raises if clients decide themselves, but the plan says who comes."""
  if isinstance(clients, Source):
    raise _checks.ArgumentError(
        'clients',
        clients,
        'client data: the plan chooses who comes, but these clients decide'
        ' themselves',
    )


def build(plan: base.Plan, clients, *, schedule_seed: int) -> Cohorts:
  """Returns the cohorts of a plan.

  Args:
    plan: A plan of any system.
    clients: A `tff.simulation.datasets.ClientData`. A plan whose clients decide
      themselves whether to take part also takes its `ProtocolSource`. A
      `NonPrivatePlan` takes any such source.
    schedule_seed: Public seed of the schedule. Must be 0 if clients decide
      themselves.

  Raises:
    ArgumentError: If the plan cannot have these clients or this seed.
  """
  is_source = isinstance(clients, Source)
  if not is_source and not all(
      hasattr(clients, name)
      for name in ('client_ids', 'create_tf_dataset_for_client')
  ):
    # The message omits the value, which may be the data.
    raise _checks.ArgumentError(
        'clients',
        type(clients).__name__,
        'a tff.simulation.datasets.ClientData, or anything with client_ids and'
        ' create_tf_dataset_for_client(client_id); tff.simulation.datasets.'
        'TestClientData(...) makes one from a dict of arrays for each client',
    )
  training = systems.of(plan.kind).training()
  return training.cohorts(plan, clients, schedule_seed=schedule_seed)
