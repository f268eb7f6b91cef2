# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offers of DP-FTRL, draw and discard, and silos."""

import dataclasses
import math

from tff_dp import mechanisms
from tff_dp.accounting import rounding
from tff_dp.accounting.curves import gaussian
from tff_dp.accounting.events import run_events
from tff_dp.accounting.integers import integer_plans
from tff_dp.accounting.protocols import best_bound
from tff_dp.accounting.silos import silo_calibration
from tff_dp.accounting.silos import silo_guarantee
from tff_dp.accounting.silos import silo_sampling
from tff_dp.advice import offers
from tff_dp.mechanisms import catalogue
from tff_dp.plans import dp_ftrl as dp_ftrl_plan
from tff_dp.plans import draw_and_discard as draw_and_discard_plan

# If errors are equal, the first mechanism is chosen.
_MECHANISMS = ('independent', 'tree', 'honaker', 'banded', 'blt')
# Number of instances in arXiv:1807.04369. It is not part of the guarantee.
_INSTANCES = 20
# Learning rate of draw and discard. The guarantee does not depend on it.
_LEARNING_RATE = 0.001
# Binomial noise is left out, because it takes minutes to calibrate.
_SUM_NOISES = ('skellam', 'discrete-gaussian')
# Finer grids cost bits, coarser ones cost noise.
_GRIDS = (128, 1024, 8192)


def dp_ftrl(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of the best mechanism with few copies of the model."""
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
  # The row's error is for sigma 1 and for the sum.
  rmse = row.rmse * plan.sigma() / setting.reports_per_round
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
      process='tff_dp.learning.build_dp_ftrl',
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


def draw_and_discard(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of models that clients noise, draw and overwrite.

  The mean of k instances moves by 1/k of a step with every update. Each
  instance is a chain of updates back to the first model, with one of k updates
  in each. After R updates with noise s the variance of its noise is therefore R
  s^2 / k. Averaging instances only removes the noise by which they differ.
  Relative to the move of the mean by B reports, this is sqrt(k / B) s. The mean
  of B reports has s / sqrt(B) instead. Heuristic: it holds for clients one
  after the other and steps that do not depend on the model, up to terms that do
  not grow with R.
  """
  reports = setting.num_passes
  # Gaussian noise composes to a Gaussian, of this sigma for each report.
  sigma = gaussian.sigma_for(epsilon=setting.epsilon, delta=setting.delta)
  one = gaussian.exact_epsilon(
      sigma=sigma * math.sqrt(reports), delta=setting.delta
  )
  if offers.shortened(one) > one:
    one *= 1 - 1e-5
  one = offers.shortened(one)
  plan = draw_and_discard_plan.DrawAndDiscardPlan(
      step=mechanisms.ClientStep(
          learning_rate=_LEARNING_RATE,
          clip='l2',
          mechanism='gaussian',
          epsilon=one,
          delta=setting.delta,
      ),
      num_params=setting.parameters,
      num_instances=_INSTANCES,
      max_participations=reports,
      num_rounds=reports,
  )
  per_report = plan.step.noise_scale(plan.num_params) / _LEARNING_RATE
  epsilon = plan.epsilon(delta=setting.delta)
  return offers.offer(
      setting,
      per_report * math.sqrt(_INSTANCES / setting.reports_per_round),
      system='draw-and-discard',
      variant='gaussian',
      trust='nobody: every model that is sent is private by itself',
      neighboring_relation=run_events.NeighboringRelation.REPLACE_ONE.value,
      noise={'epsilon_of_one_participation': one},
      epsilon=epsilon,
      epsilon_no_amplification=epsilon,
      model_copies=_INSTANCES,
      participation=(
          f'each client takes part at most {reports} times, one client at a'
          ' time'
      ),
      notes=(
          f'{_INSTANCES} instances at the server learn like batches of so many'
          ' clients, but do not average their noise: fewer instances have less'
          ' error. The error is a heuristic, as if steps did not depend on the'
          ' model.',
      ),
      assumptions=plan.assumptions(delta=setting.delta),
      process='tff_dp.learning.draw_and_discard.build_draw_and_discard',
      command=offers.account(
          'draw-and-discard', '--parameters', setting.parameters,
          '--mechanism', 'gaussian', '--clip', 'l2', '--epsilon', one,
          '--max-participations', reports, '--instances', _INSTANCES,
          '--delta', setting.delta,
      ),
      python=f"""\
import tff_dp
step = tff_dp.mechanisms.ClientStep(learning_rate={_LEARNING_RATE}, clip='l2',
    mechanism='gaussian', epsilon={one!r}, delta={setting.delta!r})
plan = tff_dp.DrawAndDiscardPlan(step=step, num_params={setting.parameters},
    num_instances={_INSTANCES}, max_participations={reports},
    num_rounds={reports})
print(plan.epsilon(delta={setting.delta!r}))""",
  )


def isrl(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of silos that add all the noise their records need.

  All records are in every batch. Smaller batches have the same noise, or
  slightly more.
  """
  records = setting.silo_records
  rounds = setting.schedule.max_participations
  sampling = silo_sampling.PoissonSampling(records)
  run = dict(num_records=records, num_rounds=rounds, delta=setting.delta)
  multiplier = silo_calibration.least_noise_multiplier(
      sampling, epsilon=setting.epsilon, **run
  )
  noise = float(rounding.rounded_up(multiplier, digits=6))
  epsilon = silo_sampling.epsilon(sampling, noise_multiplier=noise, **run)
  return offers.offer(
      setting,
      noise / records / math.sqrt(setting.reports_per_round),
      system='isrl',
      variant='noisy minibatch SGD',
      trust='nobody: every message of a silo is private by itself',
      unit='record in a silo',
      neighboring_relation=silo_guarantee.ADJACENCY,
      noise={'noise_multiplier': noise},
      epsilon=epsilon,
      epsilon_no_amplification=epsilon,
      participation=(
          f'each silo sends in at most {rounds} rounds, the mean over all of'
          f' its {records} records'
      ),
      notes=(
          'Smaller batches cost less time; tff-dp calibrate isrl --batch-size'
          ' says what noise they need.',
      ),
      assumptions=silo_guarantee.ASSUMPTIONS,
      process='tff_dp.learning.silos.build_noisy_mb_sgd',
      command=offers.account(
          'isrl', '--records', records, '--rounds', rounds,
          '--batch-size', records, '--sampling', sampling.name,
          '--noise-multiplier', noise, '--delta', setting.delta,
      ),
      python=f"""\
from tff_dp import accounting
sampling = accounting.PoissonSampling({records})
sigma = {noise!r} / {records}  # On the mean over the batch, over the clip norm.
print(accounting.account_noise(sampling, num_records={records},
    num_rounds={rounds}, l2_norm_clip=1.0, sigma=sigma,
    delta={setting.delta!r}))""",
  )


def secure_sum(setting: offers.Setting) -> offers.Offer:
  """Returns the offer of integer noise of all silos in one opened sum."""
  rounds = setting.schedule.max_participations
  silos, records = setting.reports_per_round, setting.silo_records // rounds
  if not records:
    raise offers.DoesNotFitError(
        f'uses every record once: {rounds} rounds of a silo need as many'
        f' records, of {setting.silo_records}'
    )

  def error_of(plan):
    # Rounding adds a variance of at most a quarter of a squared step per
    # record.
    rounding = (1.0 / plan.grid) ** 2 / (silos * records)
    return math.sqrt(plan.noise_variance(1.0, num_silos=silos) + rounding)

  plan = min(
      (
          integer_plans.calibrate(
              noise,
              epsilon=setting.epsilon,
              delta=setting.delta,
              dimension=setting.parameters,
              grid=grid,
              records_per_silo=records,
              min_silos=silos,
          )
          for noise in _SUM_NOISES
          for grid in _GRIDS
      ),
      key=error_of,
  )
  run = dict(dimension=setting.parameters)
  noise = {'grid': plan.grid, 'share_variance': plan.share_variance}
  return offers.offer(
      setting,
      error_of(plan),
      system='secure-sum',
      variant=plan.name,
      trust=(
          'the secure sum, which opens nothing but the whole, and'
          f' {silos} silos in every sum, which keep their noise secret'
      ),
      unit='record in a silo',
      neighboring_relation=silo_guarantee.ADJACENCY,
      noise=noise,
      epsilon=plan.epsilon(setting.delta, **run),
      epsilon_no_amplification=plan.silo_epsilon(setting.delta, **run),
      bytes_up=-(-plan.bits(silos) * setting.parameters // 8),
      participation=(
          f'each silo is in at most {rounds} sums, with {records} records that'
          ' it uses once'
      ),
      notes=(
          f'{plan.bits(silos)} bits a weight, before what the secure sum adds.',
      ),
      assumptions=silo_guarantee.SUM_ASSUMPTIONS,
      process=(
          'tff_dp.learning.silos.build_secure_sum_sgd'
      ),
      command=(),
      python=f"""\
from tff_dp.accounting.integers import integer_plans
plan = integer_plans.{plan!r}
print(plan.epsilon({setting.delta!r}, dimension={setting.parameters}))""",
  )
