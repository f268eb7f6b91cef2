# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Who took part how often in a run of Draw and Discard.

A client that takes part twice pays twice; the server's draws, discards and
filters give nothing back. The ledger belongs outside of the process's state:
going back to an earlier state is no way to forget.
"""

import collections
from collections.abc import Iterable, Mapping
from typing import Any

from tff_dp import _checks


class ParticipationLedger:
  """Counts participations, and refuses the one beyond the cap.

  Attributes:
    max_participations: The cap of every client.
  """

  def __init__(self, max_participations: int):
    _checks.integer_at_least(1, max_participations=max_participations)
    self.max_participations = max_participations
    # By what the client is known by: 'a' and b'a' are the same client.
    self._counts = collections.Counter()

  @property
  def max_observed(self) -> int:
    """Returns the largest count of any client so far."""
    return max(self._counts.values(), default=0)

  @property
  def num_clients(self) -> int:
    """Returns how many different clients have taken part."""
    return len(self._counts)

  def count(self, client_id: str | bytes) -> int:
    """Returns how often one client has taken part."""
    return self._counts[_checks.client_key(client_id)]

  def charge(self, client_ids: Iterable[str | bytes]) -> None:
    """Adds one participation for each mention of a client.

    Args:
      client_ids: The clients of a round.

    Raises:
      PrivacyRefusedError: If one of them would be over the cap. Nobody is
        charged then.
    """
    added = collections.Counter(map(_checks.client_key, client_ids))
    for key, count in added.items():
      total = self._counts[key] + count
      if total > self.max_participations:
        raise _checks.PrivacyRefusedError(
            f'client {_name(key)!r} would take part {total} times',
            why=(
                f'the guarantee is stated for {self.max_participations}'
                ' participations of a client; every further one costs epsilon'
            ),
            way_out='leave the client out, or plan with a higher cap',
        )
    self._counts.update(added)

  def to_json(self) -> dict[str, Any]:
    """Returns the ledger as JSON types."""
    return {
        'max_participations': self.max_participations,
        'counts': {_name(key): count for key, count in self._counts.items()},
    }

  @classmethod
  def from_json(cls, described: Mapping[str, Any]) -> 'ParticipationLedger':
    """Returns the ledger that `to_json` described."""
    ledger = cls(described['max_participations'])
    for client_id, count in described['counts'].items():
      _checks.integer_between(1, ledger.max_participations, count=count)
      key = client_id.encode(errors='surrogateescape')
      ledger._counts[key] = count  # pylint: disable=protected-access
    return ledger


def _name(key: bytes) -> str:
  """Returns a key as text, in which bytes that are no text survive."""
  return key.decode(errors='surrogateescape')
