# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offer of DP-FTRL for a setting, as `advise` compares it."""

import dataclasses
import math

from tff_dp import mechanisms
from tff_dp.accounting import rounding
from tff_dp.accounting.protocols import best_bound
from tff_dp.advice import offers
from tff_dp.mechanisms import catalogue
from tff_dp.systems.dp_ftrl import plan as dp_ftrl_plan

# If errors are equal, the first mechanism is chosen.
_MECHANISMS = ('independent', 'tree', 'honaker', 'banded', 'blt')


def dp_ftrl(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of the DP-FTRL mechanism with the least error.

  The error is the root mean square over the rounds (`Row.rmse`). Only
  mechanisms whose state has few copies of the model are considered, see
  `max_state_copies` of `mechanisms.best`.
  """
  schedule = setting.schedule
  participations = schedule.max_participations
  row = mechanisms.best(
      setting.rounds, schedule, error='mean', names=_MECHANISMS
  ).chosen
  plan = dp_ftrl_plan.DpFtrlPlan(
      row.mechanism,
      schedule,
      l2_norm_clip=1.0,
      clients_per_round=setting.reports_per_round,
  ).calibrated(
      epsilon=setting.epsilon,
      delta=setting.delta,
      neighboring_relation=setting.neighboring_relation,
  )
  noise = float(rounding.rounded_up(plan.noise_multiplier, digits=6))
  plan = dataclasses.replace(plan, noise_multiplier=noise)
  epsilon = plan.epsilon(
      delta=setting.delta, neighboring_relation=setting.neighboring_relation
  )
  rmse = plan.prefix_errors()[0] / setting.reports_per_round
  notes = (
      'The noise on the running sum of mean updates has the root mean square'
      f' {rmse:.4g}, over all rounds.',
  )
  if setting.min_index_gap is None:
    notes += (
        'The gap is what the population allows if every client is there when'
        ' its turn comes.',
    )
  options, flags = '', []
  summary = catalogue.summary(row.mechanism)
  for option, flag in (('num_bands', '--bands'), ('num_buffers', '--buffers')):
    if option in summary:
      options += f', {option}={summary[option]}'
      flags += [flag, summary[option]]
  if 'error' in catalogue.USED_OPTIONS[row.name]:
    options += ", error='mean'"
    flags += ['--error', 'mean']
  return offers.offer(
      setting,
      rmse / math.sqrt((setting.rounds + 1) / 2),
      system='dp-ftrl',
      variant=row.label,
      trust='the server, with the updates and the noise',
      neighboring_relation=setting.neighboring_relation,
      noise={'noise_multiplier': noise},
      epsilon=epsilon,
      epsilon_no_amplification=epsilon,
      model_copies=1 + row.state_copies,
      participation=schedule.pattern.describe(),
      notes=notes,
      assumptions=(
          *best_bound.amplify(
              plan.event(),
              delta=setting.delta,
              neighboring_relation=setting.neighboring_relation,
          ).assumptions,
          'The ledger of the run refuses whoever comes too soon or too often.',
      ),
      process='tff_dp.dp_ftrl.build_dp_ftrl',
      command=offers.account(
          'dp-ftrl', '--mechanism', row.name, *flags,
          '--rounds', setting.rounds,
          '--max-participations', participations,
          '--min-index-gap', schedule.min_index_gap,
          '--noise-multiplier', noise,
          '--neighboring-relation', setting.neighboring_relation,
          '--delta', setting.delta,
      ),
      python=f"""\
import tff_dp
participation = tff_dp.participation.MinSeparation({setting.rounds},
    min_index_gap={schedule.min_index_gap}, max_participations={participations})
mechanism = tff_dp.mechanisms.build({row.name!r}, participation{options})
plan = tff_dp.DpFtrlPlan(mechanism, participation, l2_norm_clip=1.0,
    clients_per_round={setting.reports_per_round}, noise_multiplier={noise!r})
print(plan.epsilon({offers.arguments(setting)}))""",
  )
