# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""The offers of silos for a setting, as `advise` compares them."""

import contextlib
import itertools
import math

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.advice import offers
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import silo_calibration
from tff_dp.systems.silos import silo_guarantee
from tff_dp.systems.silos import silo_sampling

# Binomial noise is left out, because it takes minutes to calibrate.
_SUM_NOISES = ('skellam', 'discrete-gaussian')
# Finer grids cost bits, coarser ones cost noise.
_GRIDS = (128, 1024, 8192)


def isrl(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of silos that add all noise for their records.

  The batch of a silo is all its records. Smaller batches would give the mean
  the same noise, or slightly more.
  """
  records = setting.records
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
      process='tff_dp.silos.build_noisy_mb_sgd',
      command=offers.account(
          'isrl', '--records', records, '--rounds', rounds,
          '--batch-size', records, '--sampling', sampling.name,
          '--noise-multiplier', noise, '--delta', setting.delta,
      ),
      python=f"""\
from tff_dp import silos
sampling = silos.PoissonSampling({records})
sigma = {noise!r} / {records}  # On the mean over the batch, over the clip norm.
print(silos.account_noise(sampling, num_records={records},
    num_rounds={rounds}, l2_norm_clip=1.0, sigma=sigma,
    delta={setting.delta!r}))""",
  )


def secure_sum(setting: offers.Setting) -> offers.Offer:
  """Returns the `offers.Offer` of a secure sum with noise of all silos.

  Raises:
    DoesNotFitError: If a silo has fewer records than rounds in which it sends,
      or if no noise that can be drawn is enough for the budget.
  """
  rounds = setting.schedule.max_participations
  silos, records = setting.reports_per_round, setting.records // rounds
  if not records:
    raise offers.DoesNotFitError(
        f'uses every record once: {rounds} rounds need {rounds} records in a'
        f' silo, and it has {setting.records}'
    )

  def error_of(plan):
    # Rounding adds a variance of at most a quarter of a squared step per
    # record.
    rounding = (1.0 / plan.grid) ** 2 / (silos * records)
    return math.sqrt(plan.noise_variance(1.0, num_silos=silos) + rounding)

  plans = []
  for noise, grid in itertools.product(_SUM_NOISES, _GRIDS):
    # Some noise has too many probable values for its tables, or its sum has too
    # many bits.
    with contextlib.suppress(_checks.ArgumentError):
      found = integer_plans.calibrate(
          noise,
          epsilon=setting.epsilon,
          delta=setting.delta,
          dimension=setting.parameters,
          grid=grid,
          records_per_silo=records,
          min_silos=silos,
      )
      found.bits(silos)
      plans.append(found)
  if not plans:
    raise offers.DoesNotFitError(
        'finds no integer noise that it can draw and that is enough for epsilon'
        f' {setting.epsilon:g}'
    )
  plan = min(plans, key=error_of)
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
          'tff_dp.silos.build_secure_sum_sgd'
      ),
      command=(),
      python=f"""\
from tff_dp.systems.silos import integer_plans
plan = integer_plans.{plan!r}
print(plan.epsilon({setting.delta!r}, dimension={setting.parameters}))""",
  )
