# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The clients of draw and discard, as the training program sees them.

Who takes part in a round is drawn by lot among those who did so least often,
and nobody beyond the cap of the plan: the participation ledger refuses it. That
is public. Draws and noise of a client follow from a secret key of its own; here
the keys of all of them follow from one root key, which is kept beside the
ledger in the checkpoint, so that a round that is repeated has the same reports.
"""

import hashlib
from typing import Any

from tff_dp import _checks
from tff_dp import learning
from tff_dp.mechanisms import randomizers
from tff_dp.participation import coins
from tff_dp.program import cohorts as cohorts_lib

_DIGEST_BYTES = 32


class InstanceCohorts(cohorts_lib.ScheduledCohorts):
  """Cohorts of a `DrawAndDiscardPlan`, whose clients bring keys."""

  _root_key: bytes

  def begin(self, run_id: str) -> None:
    super().begin(run_id)
    self._root_key = coins.random_root_key()

  def restore(self, data: bytes) -> None:
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
      raise _checks.PrivacyRefusedError(
          'the saved participations are damaged',
          why='who has taken part, and with which noise, cannot be known',
          way_out='restore the checkpoint from a copy, or start a new run',
      )
    self._root_key = content[: coins.KEY_BYTES]
    super().restore(content[coins.KEY_BYTES :])

  def to_bytes(self) -> bytes:
    content = self._root_key + super().to_bytes()
    return hashlib.sha256(content).digest() + content

  def _data_of(self, client_id) -> Any:
    secret = coins.subkey(
        self._root_key, 'client', _checks.client_key(client_id)
    )
    return learning.client_data(
        super()._data_of(client_id), randomizers.noise_key(secret)
    )
