# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Selects the clients of a round among those that are connected."""

from collections.abc import Callable, Iterable
import time

from tff_dp.integrations import server_rounds

_SECONDS_BETWEEN_LOOKS = 0.5


def connected(
    rounds: server_rounds.ServerRounds,
    client_ids: Callable[[], Iterable[str]],
    *,
    at_least: int,
    timeout: float,
    is_stopped: Callable[[], bool] = lambda: False,
) -> list[str]:
  """Returns the connected clients of the next round's cohort.

  If the round had begun before a restart, this waits for the same cohort. No
  other client replaces one that does not come back, and its participation still
  counts.

  Args:
    rounds: Rounds of the server. They select and charge the cohort as soon as
      `at_least` clients are connected. If that wait is stopped, they charge
      nobody.
    client_ids: Function that returns the ids of the connected clients.
    at_least: Number of connected clients at which the round begins.
    timeout: Seconds to wait for the cohort.
    is_stopped: Function that returns whether to stop waiting.
  """
  while len(here := set(client_ids())) < at_least:
    if is_stopped():
      return []
    time.sleep(_SECONDS_BETWEEN_LOOKS)
  cohort = rounds.select(here)
  end = time.monotonic() + timeout
  while not here.issuperset(cohort) and time.monotonic() < end:
    if is_stopped():
      return []
    time.sleep(_SECONDS_BETWEEN_LOOKS)
    here = set(client_ids())
  return [client for client in cohort if client in here]
