# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builds the cohorts of a run from a plan and clients."""

from tff_dp import _checks
from tff_dp.plans import base
from tff_dp.program import check_in_source
from tff_dp.program import cohorts


def build(plan: base.Plan, clients, *, schedule_seed: int) -> cohorts.Cohorts:
  """Returns the cohorts of a plan.

  Args:
    plan: A plan of a kind in `_SCHEDULED` or `_DECIDED`.
    clients: A `tff.simulation.datasets.ClientData`. A `CheckInPlan` also takes
      its `CheckInDataSource`, and a `NonPrivatePlan` takes any such source.
    schedule_seed: Public seed of the schedule. Must be 0 if clients or silos
      decide themselves.
  """
  is_source = isinstance(clients, check_in_source.CheckInDataSource)
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
  if is_source and plan.kind not in ('check_ins', 'non_private'):
    raise _checks.ArgumentError(
        'clients', clients, 'client data: the plan says who comes'
    )
  if plan.kind in _SCHEDULED and not is_source:
    return _SCHEDULED[plan.kind](plan, clients, seed=schedule_seed)
  if schedule_seed:
    raise _checks.ArgumentError(
        'schedule_seed', schedule_seed, '0: clients draw their own coins'
    )
  if plan.kind == 'non_private':
    # Nothing is claimed, so any clients may come.
    return cohorts.CheckInCohorts(clients)
  return _DECIDED[plan.kind](plan, clients)


def _of_check_ins(plan, clients) -> cohorts.CheckInCohorts:
  if not isinstance(clients, check_in_source.CheckInDataSource):
    clients = check_in_source.CheckInDataSource.for_plan(plan, clients)
  needed = (
      ('protocol', plan.protocol),
      ('num_passes', plan.num_passes),
      ('with_keys', plan.is_local),
  )
  for name, value in needed:
    if getattr(clients, name) != value:
      raise _checks.ArgumentError(
          f'clients.{name}',
          getattr(clients, name),
          f'that of the plan, {value}',
      )
  return cohorts.CheckInCohorts(clients)


# Cohorts by the kind of the plan. In `_SCHEDULED`, a public seed chooses the
# clients. In `_DECIDED`, clients or silos decide themselves.
_SCHEDULED = {
    'dp_ftrl': cohorts.ScheduledCohorts,
    'draw_and_discard': cohorts.InstanceCohorts,
    'non_private': cohorts.ScheduledCohorts,
}
_DECIDED = {
    'check_ins': _of_check_ins,
    'secure_sums': cohorts.SiloCohorts,
    'silos': cohorts.SiloCohorts,
}
