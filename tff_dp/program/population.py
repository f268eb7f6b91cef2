# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the cohorts of a run from a plan and clients."""

from tff_dp import _checks
from tff_dp import systems
from tff_dp.plans import base
from tff_dp.program import cohorts


def build(plan: base.Plan, clients, *, schedule_seed: int) -> cohorts.Cohorts:
  """Returns the cohorts of a plan.

  Args:
    plan: A plan of any system.
    clients: A `tff.simulation.datasets.ClientData`. A plan whose clients decide
      also takes its `ProtocolSource`, and a `NonPrivatePlan` takes any such
      source.
    schedule_seed: Public seed of the schedule. Must be 0 if clients decide
      themselves.
  """
  is_source = isinstance(clients, cohorts.Source)
  if not is_source and not all(
      hasattr(clients, name)
      for name in ('client_ids', 'create_tf_dataset_for_client')
  ):
    # The message omits the value, which may be the data.
    raise _checks.ArgumentError(
        'clients',
        type(clients).__name__,
        'a tff.simulation.datasets.ClientData, or anything with client_ids and'
        ' create_tf_dataset_for_client(client_id); of a dict of arrays for each'
        ' client, tff.simulation.datasets.TestClientData(...) makes one',
    )
  training = systems.of(plan.kind).training()
  return training.cohorts(plan, clients, schedule_seed=schedule_seed)
