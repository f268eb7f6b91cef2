# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Whom a round can ask, where clients lose their connection and come back."""

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
  """Returns those of the next round's cohort who can be asked.

  The cohort of a round that had begun before a restart is waited for. Nobody is
  asked in the place of who does not come back: it has taken part all the same.

  Args:
    rounds: Selects and charges; not, if the wait for `at_least` is stopped.
    client_ids: Returns who is connected now.
    at_least: The round begins once as many are connected.
    timeout: Seconds to wait for the cohort.
    is_stopped: Whether to stop waiting.
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
