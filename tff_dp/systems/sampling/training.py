# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""How runs under Poisson sampling get their cohorts: a sampler draws them."""

from collections.abc import Sequence
from typing import Any

from tff_dp import _checks
from tff_dp.participation import coins
from tff_dp.program import cohorts
from tff_dp.statement import builder
from tff_dp.systems import system
from tff_dp.systems.sampling import holder
from tff_dp.systems.sampling import plan as plan_lib
from tff_dp.systems.sampling import sampler


class SampledCohorts(cohorts.Cohorts):
  """Cohorts that a `PoissonSampler` draws. Who comes is secret."""

  keeps_client_metrics = False
  why_not_chosen = (
      'epsilon counts on the secret coins of the plan, which a cohort from'
      ' elsewhere does not follow. A DpFtrlPlan with independent noise states'
      ' the epsilon without sampling'
  )

  def __init__(self, plan: plan_lib.SamplingPlan, clients: Any):
    """Makes the cohorts of a run that has not begun, with a new secret key.

    Args:
      plan: Plan with population and sampling rate.
      clients: A `tff.simulation.datasets.ClientData` of the whole population,
        or `Examples`. A plan for examples takes `Examples` alone: a client with
        two examples would change by up to two clip norms if one is removed.
    """
    cohorts.check_client_data(clients)
    if plan.unit == 'example' and not isinstance(clients, holder.Examples):
      raise _checks.ArgumentError(
          'clients',
          type(clients).__name__,
          "tff_dp.sampling.Examples(arrays) of all records: with unit='example'"
          ' each client of the process is one example',
      )
    self.client_ids = list(clients.client_ids)
    _checks.distinct_clients(client_ids=self.client_ids)
    if len(self.client_ids) != plan.population:
      raise _checks.ArgumentError(
          'clients',
          f'{len(self.client_ids)} clients',
          f'the population of the plan, {plan.population}',
      )
    self._plan = plan
    self._clients = clients
    self._sampler = self._new_sampler()

  def _new_sampler(self) -> sampler.PoissonSampler:
    return sampler.PoissonSampler(
        population=self._plan.population,
        clients_per_round=self._plan.clients_per_round,
        root_key=coins.random_root_key(),
    )

  def identity(self) -> dict[str, Any]:
    return {'num_clients': len(self.client_ids)}

  def begin(self, run_id: str) -> None:
    del run_id  # The write-ahead record ties the cohorts to the run.
    self._sampler = self._new_sampler()

  def restore(self, data: bytes) -> None:
    self._sampler = self._sampler.restored(data)

  def to_bytes(self) -> bytes:
    return self._sampler.to_bytes()

  def select(
      self, round_index: int, chosen: Sequence | None = None
  ) -> cohorts.Selection:
    if chosen is not None:
      raise self._cannot_be_chosen()
    expected = self._sampler.position + 1
    _checks.integer_between(expected, expected, round_index=round_index)
    ids = [self.client_ids[each] for each in self._sampler.next().tolist()]
    return cohorts.Selection(
        ids=ids,
        read=lambda: [
            self._clients.create_tf_dataset_for_client(each) for each in ids
        ],
        released={'cohort_assumed': self._plan.clients_per_round},
        not_covered={},
    )

  def observed(self, rounds_begun: int) -> builder.RoundsDone:
    return builder.RoundsDone(rounds_begun)


class _Sampling(system.Training):
  """A trusted server draws the clients, and adds noise to their sum."""

  def cohorts(self, plan, clients, *, schedule_seed):
    plan_lib.check_no_public_seed(schedule_seed)
    return SampledCohorts(plan, clients)


SAMPLING = _Sampling()
