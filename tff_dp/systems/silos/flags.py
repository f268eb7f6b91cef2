# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Silos on the command line: flags make the `SiloPlan` of one silo."""

import argparse
from typing import Any

from tff_dp import _checks
from tff_dp.accounting import rounding
from tff_dp.cli import errors
from tff_dp.cli import results
from tff_dp.systems.silos import plan as plan_lib
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

FLAGS = {
    'num_records': 'records',
    'num_rounds': 'rounds',
    'expected_batch': 'batch_size',
    'batch': 'batch_size',
}
_SILO = 'silo'
_DESCRIPTIONS = {
    'account': (
        'Prints what all messages of one silo cost each of its records.\n'
        'Adjacency: one record is replaced. No trust in the server or other\n'
        'silos; no amplification from silos that were not asked.'
    ),
    'calibrate': (
        'Prints the least noise with which a silo stays within its budget.'
    ),
    'statement': 'Prints the privacy statement of a silo that plans to send.',
}
_EXAMPLES = """examples:
  35 rounds over about 100 of 1238 records:
    tff-dp account isrl --records 1238 --rounds 35 --batch-size 100 \\
        --sampling poisson --noise-multiplier 4.2
  the noise for epsilon 1:
    tff-dp calibrate isrl --records 1238 --rounds 35 --batch-size 100 \\
        --sampling poisson --epsilon 1
"""


def add_arguments(
    parser: errors.Parser, kind: str, command: str
) -> None:
  """Adds the flags of records, sampling and noise."""
  add = parser.add
  del kind
  parser.description = _DESCRIPTIONS[command]
  parser.epilog = _EXAMPLES
  add('--records', int, required=True, help='records of the silo, n')
  add('--rounds', int, required=True, help='rounds in which the silo sends')
  add('--batch-size', float, required=True, help='records of a round, K; with'
      ' poisson the expected number')
  add('--sampling', choices=silo_sampling.NAMES, default='poisson',
      help='how a batch is chosen: each record with probability K/n, K records'
      ' drawn anew in each round, or disjoint blocks')
  if command == 'calibrate':
    add('--epsilon', float, required=True, help='the budget of all messages of'
        ' the silo')
  else:
    add('--noise-multiplier', float, required=True, help='standard deviation of'
        ' the noise on the SUM over the batch, over the clip norm: sigma K / C')
  add('--l2-norm-clip', float, default=1.0, help='C, bound on the gradient of a'
      ' record; epsilon does not depend on it, the statement names it (default:'
      ' 1)')
  add('--delta', float, help='below 1/n; 1/n^2 by default')
  add('--published-proofs', action='store_true', help='the bound for poisson'
      ' that joint convexity alone gives')
  if command == 'statement':
    return
  add('--records-per-person', int, default=1, help='also print epsilon for'
      ' people with so many records in the silo')


def plan_of(
    arguments: argparse.Namespace, noise_multiplier: float
) -> plan_lib.SiloPlan:
  """Returns the plan of the flags, for one silo with the given noise."""
  _checks.positive(noise_multiplier=noise_multiplier)
  sampling, records = _sampling_of(arguments), arguments.records
  clip = arguments.l2_norm_clip
  phase = silo_terms.Phase(
      sampling,
      first_record=0,
      num_records=records,
      num_rounds=arguments.rounds,
      noise_stddev=noise_multiplier * clip / float(sampling.batch_size),
  )
  return plan_lib.SiloPlan(
      {_SILO: silo_budget.SiloBudget(records, None, arguments.delta)},
      {_SILO: silo_terms.SiloTerms(records, clip, (phase,))},
      published_proofs=arguments.published_proofs,
  )


def run_of(arguments: argparse.Namespace) -> results.PlanRun:
  """Returns the run that the flags describe."""
  return _run_with(
      arguments, plan_of(arguments, arguments.noise_multiplier)
  )


def calibrated(
    arguments: argparse.Namespace,
) -> tuple[results.PlanRun, dict[str, Any]]:
  """Returns the run within the budget, and a dict with the noise in words."""
  budget = silo_budget.SiloBudget(
      arguments.records, arguments.epsilon, arguments.delta
  )
  plan = plan_of(arguments, 1.0).calibrated(
      epsilon=budget.epsilon, delta=budget.delta
  )
  number = rounding.rounded_up(plan.noise_multiplier, digits=7)
  solution = {
      'solved_for': 'noise_multiplier',
      'answer': (
          f'--noise-multiplier={number} is within epsilon'
          f' {rounding.short(budget.epsilon)} at delta'
          f' {rounding.short(budget.delta)}'
      ),
  }
  return _run_with(arguments, plan), solution


def _run_with(
    arguments: argparse.Namespace, plan: plan_lib.SiloPlan
) -> results.PlanRun:
  options = {}
  if hasattr(arguments, 'records_per_person'):
    options['records_per_person'] = arguments.records_per_person
  return results.PlanRun(
      plan, None, plan.silos[_SILO].delta, detail_options=options
  )


def _sampling_of(arguments: argparse.Namespace) -> silo_sampling.Sampling:
  batch = arguments.batch_size
  whole = int(batch) if float(batch).is_integer() else batch
  sampling = silo_sampling.build(arguments.sampling, whole)
  sampling.check(num_records=arguments.records, num_rounds=arguments.rounds)
  return sampling
