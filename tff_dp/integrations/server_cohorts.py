# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The contract: how a system selects the clients of a server on another stack."""

import abc
from collections.abc import Sequence
from typing import Any


class ServerCohorts(abc.ABC):
  """The cohorts of one run. `System.server_cohorts` makes them.

  Attributes:
    clients_needed: Number of connected clients at which a round begins, unless
      the user says otherwise.
    sentences: Sentences of the statement that hold only on other stacks than
      TFF, as lines 'point.name: sentence'.
  """

  clients_needed: int
  sentences: str = ''

  def begin(self, run_id: str) -> None:
    """Prepares round 1 of a run. Default: nothing to prepare."""

  @abc.abstractmethod
  def select(self, round_index: int, client_ids: Sequence[str]) -> list[str]:
    """Returns the cohort of a round.

    Args:
      round_index: Number of the round, from 1.
      client_ids: Ids of the connected clients, sorted.

    Raises:
      PrivacyRefusedError: If the guarantee allows no cohort.
    """

  def commit(self, cohort: Sequence[str], round_index: int) -> None:
    """Counts participations of a round that begins. Default: counts nothing."""

  @abc.abstractmethod
  def observed(self, rounds_begun: int) -> Any:
    """Returns the facts for `builder.Occasion.observed`.

    Args:
      rounds_begun: Number of rounds that have begun, at least 1.
    """

  @abc.abstractmethod
  def to_bytes(self) -> bytes:
    """Returns the state of the run for its checkpoint. SECRET."""

  @abc.abstractmethod
  def restored(self, data: bytes) -> 'ServerCohorts':
    """Returns the cohorts that `to_bytes` saved.

    Raises:
      PrivacyRefusedError: If the bytes are damaged or of another run.
    """
