# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Selects the clients of a round among those that are connected."""

from collections.abc import Callable, Iterable
import logging
import time

from tff_dp.integrations import server_rounds

_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_BETWEEN_LINES = 60.0
_log = logging.getLogger(__name__)


def connected(
    rounds: server_rounds.ServerRounds,
    client_ids: Callable[[], Iterable[str]],
    *,
    at_least: int,
    timeout: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[str]:
  """Returns the members of the next round's cohort that are connected.

  The cohort is selected among the connected clients. A round that had begun
  before a restart keeps its cohort, and this function waits for the members.
  No other client replaces a member that does not come back. The missing
  member's participation still counts.

  Args:
    rounds: Rounds of the server, which select and charge the cohort.
    client_ids: Function that returns the ids of the connected clients.
    at_least: Number of connected clients at which the cohort is selected. The
      wait for them has no time limit. If it is stopped, nobody is charged.
    timeout: Seconds to wait for missing members of the cohort. Only a round
      that had begun before a restart can miss members.
    is_stopped: Function that returns whether to stop waiting. The result is
      then empty.

  Raises:
    PrivacyRefusedError: If the round cannot be charged, see
      `ServerRounds.select`.
  """
  next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
  while len(here := set(client_ids())) < at_least:
    if is_stopped():
      return []
    if time.monotonic() >= next_line:
      next_line += _SECONDS_BETWEEN_LINES
      _log.warning(
          'a round waits: %d of %d clients are connected (see min_available_nodes'
          ' on Flower, min_available_clients on NVFlare)',
          len(here),
          at_least,
      )
    time.sleep(_SECONDS_BETWEEN_LOOKS)
  cohort = rounds.select(here)
  end = time.monotonic() + timeout
  while not here.issuperset(cohort) and time.monotonic() < end:
    if is_stopped():
      return []
    time.sleep(_SECONDS_BETWEEN_LOOKS)
    here = set(client_ids())
  return [client for client in cohort if client in here]
