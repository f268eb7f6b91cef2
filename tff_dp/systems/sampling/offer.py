# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offer of DP-FedAvg for a setting, and its row in `tff-dp compare`."""

import dataclasses

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.accounting.sensitivity import patterns
from tff_dp.advice import offers
from tff_dp.mechanisms import choice
from tff_dp.systems.sampling import plan as plan_lib


def dp_fedavg(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of a server that draws clients by coins."""
  plan = plan_lib.SamplingPlan(
      population=setting.population,
      clients_per_round=setting.reports_per_round,
      num_rounds=setting.rounds,
  )
  relation = setting.neighboring_relation
  where = dict(delta=setting.delta, neighboring_relation=relation)
  plan = plan.calibrated(epsilon=setting.epsilon, **where)
  noise = float(rounding.rounded_up(plan.noise_multiplier, digits=6))
  plan = dataclasses.replace(plan, noise_multiplier=noise)
  return offers.offer(
      setting,
      noise / setting.reports_per_round,
      system='dp-fedavg',
      variant='Poisson sampling',
      trust='the server, with the cohorts, the updates and the noise',
      neighboring_relation=relation,
      noise={'noise_multiplier': noise},
      epsilon=plan.epsilon(**where),
      epsilon_no_amplification=plan.epsilon_no_amplification(**where),
      participation=(
          'each client in each round with probability'
          f' {setting.reports_per_round} / {setting.population}'
      ),
      notes=(
          'The server must be able to call whom it likes. Where only some'
          ' devices are available, take dp-ftrl.',
      ),
      assumptions=plan.assumptions(delta=setting.delta),
      process='tff_dp.sampling.build_dp_fedavg',
      command=offers.account(
          'dp-fedavg', '--population', setting.population,
          '--clients-per-round', setting.reports_per_round,
          '--rounds', setting.rounds, '--noise-multiplier', noise,
          '--neighboring-relation', relation, '--delta', setting.delta,
      ),
      python=f"""\
import tff_dp
plan = tff_dp.SamplingPlan(population={setting.population},
    clients_per_round={setting.reports_per_round}, num_rounds={setting.rounds},
    noise_multiplier={noise!r})
print(plan.epsilon({offers.arguments(setting)}))""",
  )


def rows(
    *,
    num_rounds: int,
    max_participations: int,
    epsilon: float,
    delta: float,
    error: str,
) -> list[choice.Row]:
  """Returns the row of Poisson sampling in `tff-dp compare`.

  A client takes part `max_participations` times on average, and sometimes more
  often.

  Args:
    num_rounds: Number of rounds T.
    max_participations: Mean number of participations of a client.
    epsilon: Epsilon of the whole run.
    delta: Target delta, in (0, 1).
    error: Not used: the noise is independent.
  """
  del error
  _checks.integer_between(
      1, num_rounds, max_participations=max_participations
  )
  plan = plan_lib.SamplingPlan(
      population=num_rounds,
      clients_per_round=max_participations,
      num_rounds=num_rounds,
  ).calibrated(epsilon=epsilon, delta=delta)
  pattern = patterns.MinSeparationPattern(
      num_rounds, max_participations=max_participations
  )
  row = choice.measured('dp-fedavg', plan.mechanism, pattern)
  rmse, largest = plan.mechanism.prefix_errors(plan.noise_multiplier)
  return [dataclasses.replace(row, rmse=rmse, max_error=largest)]
