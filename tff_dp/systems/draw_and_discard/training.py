# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How runs of draw and discard get their cohorts: clients that bring keys."""

from typing import Any

from tff_dp import _checks
from tff_dp.learning import keyed_data
from tff_dp.mechanisms import randomizers
from tff_dp.participation import coins
from tff_dp.program import cohorts
from tff_dp.systems import system
from tff_dp.systems.draw_and_discard import client


class InstanceCohorts(cohorts.ScheduledCohorts):
  """Cohorts of draw and discard, whose clients bring keys.

  Unless the caller chooses the clients of a round, they are drawn by lot among
  those who took part least often. The participation ledger refuses clients
  beyond the cap of the plan. Who takes part is public. Draws and noise of a
  client follow from the client's secret key. Here the keys of all clients
  follow from one root key. The root key is saved beside the ledger, so that a
  repeated round has the same reports.
  """

  _root_key: bytes

  def begin(self, run_id: str) -> None:
    super().begin(run_id)
    self._root_key = coins.random_root_key()

  def restore(self, data: bytes) -> None:
    # The checksum of the checkpoint shows any damage of the key.
    self._root_key = data[: coins.KEY_BYTES]
    super().restore(data[coins.KEY_BYTES :])

  def to_bytes(self) -> bytes:
    return self._root_key + super().to_bytes()

  def _data_of(self, client_id) -> Any:
    secret = coins.subkey(
        self._root_key, 'client', _checks.client_key(client_id)
    )
    return keyed_data.client_data(
        super()._data_of(client_id), randomizers.noise_key(secret)
    )


class _Training(system.Training):
  """Clients add the noise, and the server sees all that they send."""

  draws_are_coins = True

  def cohorts(self, plan, clients, *, schedule_seed):
    cohorts.check_client_data(clients)
    return InstanceCohorts(plan, clients, seed=schedule_seed)

  def release(self, plan):
    return client.release_of(plan)

  def check(self, next_computation, plan):
    """Raises `PrivacyRefusedError` if clients bring no keys.

    A repeated round would then have other reports than before.
    """
    data = next_computation.type_signature.parameter[1].member
    if client.KEY not in dir(data):
      raise _checks.PrivacyRefusedError(
          'clients of the process bring no key of their own',
          why='a round that is repeated after a kill would then have new'
          ' reports, and the plan counts only one report of a client in a'
          ' round',
          way_out=plan.built_by,
      )

  def noise(self, plan):
    return system.Noise(
        not_measured='a client draws noise and its model from the same key'
    )

  def way_to_noise(self, plan):
    return (
        "plan with a ClientStep(mechanism='laplace', ...) or 'gaussian', then"
        f' {plan.built_by}'
    )


TRAINING = _Training()
