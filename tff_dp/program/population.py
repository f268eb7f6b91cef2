# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""From a plan and clients to the cohorts of a run."""

from tff_dp import _checks
from tff_dp.plans import check_ins as protocol_plan
from tff_dp.plans import dp_ftrl as plan_lib
from tff_dp.plans import draw_and_discard as draw_and_discard_plan
from tff_dp.plans import non_private
from tff_dp.plans import silos as silo_plan
from tff_dp.program import check_in_source
from tff_dp.program import cohorts
from tff_dp.program import silo_cohorts


def build(
    plan: (
        plan_lib.PrivacyPlan
        | protocol_plan.ProtocolPlan
        | draw_and_discard_plan.DrawAndDiscardPlan
        | non_private.NonPrivatePlan
        | silo_plan.SiloPlan
    ),
    clients,
    *,
    schedule_seed: int,
) -> cohorts.Cohorts:
  """Returns the cohorts of a plan.

  Args:
    plan: Of any kind.
    clients: A `tff.simulation.datasets.ClientData`; with a `ProtocolPlan` also
      its `CheckInDataSource`.
    schedule_seed: Public seed of a schedule.
  """
  is_source = isinstance(clients, check_in_source.CheckInDataSource)
  if not is_source and not all(
      hasattr(clients, name)
      for name in ('client_ids', 'create_tf_dataset_for_client')
  ):
    # Not the value: it may be the data.
    raise _checks.ArgumentError(
        'clients',
        type(clients).__name__,
        'a tff.simulation.datasets.ClientData, or anything with client_ids and'
        ' create_tf_dataset_for_client(client_id); of a dict of arrays for each'
        ' client, tff.simulation.datasets.TestClientData(...) makes one',
    )
  if not isinstance(plan, protocol_plan.ProtocolPlan):
    if is_source:
      raise _checks.ArgumentError(
          'clients', clients, 'client data: the schedule of the plan chooses'
      )
    if isinstance(plan, draw_and_discard_plan.DrawAndDiscardPlan):
      return cohorts.InstanceCohorts(plan, clients, seed=schedule_seed)
    if not isinstance(plan, silo_plan.SiloPlan):
      return cohorts.ScheduledCohorts(plan, clients, seed=schedule_seed)
  if schedule_seed:
    raise _checks.ArgumentError(
        'schedule_seed', schedule_seed, '0: clients draw their own coins'
    )
  if isinstance(plan, silo_plan.SiloPlan):
    return silo_cohorts.SiloCohorts(plan, clients)
  if not is_source:
    clients = check_in_source.CheckInDataSource.for_plan(plan, clients)
  needed = (
      ('protocol', plan.protocol),
      ('num_passes', plan.num_passes),
      ('with_keys', plan.is_local),
      ('occupancy_noise_stddev', plan.occupancy_noise_stddev),
  )
  for name, value in needed:
    if getattr(clients, name) != value:
      raise _checks.ArgumentError(
          f'clients.{name}',
          getattr(clients, name),
          f'that of the plan, {value}',
      )
  return cohorts.CheckInCohorts(clients)
