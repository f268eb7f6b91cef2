# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The silos of a round: those that are there, charged before they send."""

import json
from typing import Any

from tff_dp import _checks
from tff_dp.learning.silos import terms as terms_lib
from tff_dp.mechanisms import randomizers
from tff_dp.participation import coins
from tff_dp.plans import silos as silo_plan
from tff_dp.program import cohorts


class SiloCohorts(cohorts.Cohorts):
  """Cohorts of the silos that the plan says are there.

  A simulation of silos that each keep a secret key: here all keys follow from
  one root key, which is in the checkpoints. So a round that is repeated after a
  crash repeats every message, to the last bit, and is no other release.
  """

  def __init__(self, plan: silo_plan.SiloPlan, clients):
    """Makes them.

    Args:
      plan: Constants, absences and ledger.
      clients: A `tff.simulation.datasets.ClientData` whose ids are the names of
        the silos.
    """
    self.client_ids = list(clients.client_ids)
    _checks.distinct_clients(client_ids=self.client_ids)
    needed = {
        name
        for round_index in range(1, plan.num_rounds + 1)
        for name in plan.present(round_index)
    }
    ids = set(self.client_ids)
    if not needed <= ids <= set(plan.silos):
      raise _checks.ArgumentError(
          'clients.client_ids',
          sorted(ids ^ needed),
          f'the names of the silos of the plan, {sorted(plan.silos)}; those'
          ' that are named here are missing or unknown. Of a silo that is'
          ' never there, plan.with_availability(...) says so',
      )
    self._plan = plan
    self._clients = clients
    self._ledger = self._root_key = None

  def identity(self) -> dict[str, Any]:
    return {'num_silos': len(self.client_ids)}

  def begin(self, run_id: str) -> None:
    del run_id  # The write-ahead record ties the silos to the run.
    self._ledger = self._plan.open_ledger()
    self._root_key = coins.random_root_key()

  def restore(self, data: bytes) -> None:
    content = json.loads(data)
    self._ledger = type(self._ledger).from_json(content['ledger'])
    self._root_key = bytes.fromhex(content['root_key'])

  def to_bytes(self) -> bytes:
    return json.dumps(
        {'ledger': self._ledger.to_json(), 'root_key': self._root_key.hex()}
    ).encode()

  def select(self, round_index: int) -> cohorts.Selection:
    names = list(self._plan.present(round_index))
    if names:
      self._plan.charge(
          self._ledger,
          names,
          trained=self._plan.rounds_trained(round_index - 1),
      )
    return cohorts.Selection(
        ids=names,
        read=lambda: [self._data_of(name) for name in names],
        released={'silos': len(names)},
        not_covered={},
    )

  def observed(self, rounds_begun: int) -> silo_plan.ObservedSilos:
    return silo_plan.ObservedSilos(rounds_begun)

  def _data_of(self, name: str):
    """Returns what a silo brings to every round."""
    secret = coins.subkey(self._root_key, 'silo', name)
    return terms_lib.silo_data(
        self._plan.terms[name],
        self._clients.create_tf_dataset_for_client(name),
        randomizers.noise_key(secret),
    )
