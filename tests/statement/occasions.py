# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Plans of every system, and occasions at which a statement is written.

All numbers of a plan differ from each other, so that a test sees if a statement
says one of them in the place of another.
"""

import dataclasses

import tff_dp
from tff_dp import allocation
from tff_dp import check_ins
from tff_dp import mechanisms
from tff_dp import participation
from tff_dp import plans
from tff_dp.ledger import participation_ledger
from tff_dp.mechanisms import mechanism
from tff_dp.mechanisms import randomizers
from tff_dp.mechanisms.matrix import blt
from tff_dp.mechanisms.matrix import toeplitz
from tff_dp.participation import monitoring
from tff_dp.statement import builder
from tff_dp.statement import declarations
from tff_dp.systems.silos import integer_plans
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms

DELTA = 3e-6
# A sentence of its own for every fact that somebody declares.
DECLARED = declarations.Declarations(
    population=20_000,
    population_origin='from a public census',
    delta_reason='asked for by the board',
    hyperparameters='taken from an older paper',
    architecture='taken from a textbook',
    early_stopping='by a public test set',
    pretraining='on a public corpus',
    public_data='a public test set',
    preprocessing='a public vocabulary',
    not_covered='the time of each round',
    audit='an attack found nothing',
    model_name='a classifier of letters',
    data_name='letters of 2025',
    responsible='the head of research',
)


def _scheduled(mechanism, schedule, **changes) -> plans.DpFtrlPlan:
  return plans.DpFtrlPlan(
      mechanism,
      schedule,
      **dict(l2_norm_clip=0.5, clients_per_round=4, noise_multiplier=2.5)
      | changes,
  )


def _silos(num_rounds: int, **options) -> plans.SiloPlan:
  """Returns a plan of two silos, of which one is away in rounds 2 and 3."""
  silos = {'north': (40, 0.5, 4), 'south': (90, 0.25, 6)}
  return plans.SiloPlan(
      {
          'north': silo_budget.SiloBudget(40, None, 1e-3),
          'south': silo_budget.SiloBudget(90, 30.0, 1e-4),
      },
      {
          name: silo_terms.SiloTerms(
              records,
              0.75,
              (
                  silo_terms.Phase(
                      silo_sampling.PoissonSampling(batch),
                      0,
                      records,
                      num_rounds,
                      sigma,
                  ),
              ),
          )
          for name, (records, sigma, batch) in silos.items()
      },
      absences={'north': (2, 3)},
      **options,
  )


def _drawn(**step) -> plans.DrawAndDiscardPlan:
  return plans.DrawAndDiscardPlan(
      step=tff_dp.draw_and_discard.ClientStep(learning_rate=0.1, **step),
      num_params=7,
      num_instances=5,
      max_participations=3,
      num_rounds=8,
      clients_per_round=2,
  )


_GAP = participation.MinSeparation(8, min_index_gap=3)
_SHUFFLED = dict(check_in_rate=0.1, min_num_clients=1000)
# Name -> function that returns the plan.
PLANS = {
    'honaker': lambda: _scheduled(mechanisms.HonakerTree(8), _GAP),
    'adaptive': lambda: _scheduled(
        mechanisms.Tree(8, restart_every=4),
        participation.MinSeparation(8, min_index_gap=2, max_participations=3),
        adaptive_clipping=mechanisms.AdaptiveClipping(),
    ),
    'completed': lambda: _scheduled(
        mechanisms.Tree(9, restart_every=3, complete_trees=True),
        participation.OncePerTree(9),
        noise_multiplier=1.5,
    ),
    # So little noise that no epsilon holds.
    'faint': lambda: _scheduled(
        mechanisms.HonakerTree(8), _GAP, noise_multiplier=1e-3
    ),
    'non_private': lambda: plans.NonPrivatePlan(_GAP, clients_per_round=4),
    'shuffled': lambda: plans.CheckInPlan(
        check_ins.ShuffledCheckIn(num_rounds=8, **_SHUFFLED),
        randomizers.Sphere(1.5, l2_norm_clip=0.1),
    ),
    # So many rounds that epsilon is computed for some of them only.
    'long': lambda: plans.CheckInPlan(
        check_ins.ShuffledCheckIn(num_rounds=200, **_SHUFFLED),
        randomizers.Sphere(1.5, l2_norm_clip=0.1),
    ),
    'windows': lambda: plans.CheckInPlan(
        check_ins.FixedWindowCheckIn(4, 0.4, slots_per_update=2),
        randomizers.Gaussian(2.0, 0.25),
        num_passes=4,
        published_proofs=True,
    ),
    'cyclic': lambda: plans.AllocationPlan(
        allocation.CyclicAllocation(12, 2, stride=3),
        noise_multiplier=3.0,
        l2_norm_clip=0.5,
        mechanism=mechanisms.Banded.square_root(12, 3),
    ),
    'sampled': lambda: plans.SamplingPlan(
        population=20_000,
        clients_per_round=400,
        num_rounds=8,
        noise_multiplier=0.75,
        l2_norm_clip=0.5,
    ),
    'gaussian_steps': lambda: _drawn(
        clip='l2', mechanism='gaussian', epsilon=2.0, delta=1e-6
    ),
    'laplace_steps': lambda: _drawn(clip='l1', mechanism='laplace', epsilon=2.0),
    'silos': lambda: _silos(8),
    'long_silos': lambda: _silos(200),
    'secure_sums': lambda: plans.SecureSumPlan(
        {'north': 22, 'south': 25, 'west': 31},
        integer_plans.SkellamPlan(
            grid=16, records_per_silo=2, min_silos=2, variance=900.0
        ),
        num_rounds=8,
        l2_norm_clip=0.75,
        dimension=4,
        absences={'west': (1, 5)},
    ),
}


def _of_blocks(**options) -> plans.SiloPlan:
  """Returns a plan of one silo with a private metric in two phases."""
  stddev, blocks = 0.5, silo_sampling.DisjointBlocks(4)
  phase = lambda first, records, rounds: silo_terms.Phase(
      blocks, first, records, rounds, 2**0.5 * stddev, stddev
  )
  return plans.SiloPlan(
      {'north': silo_budget.SiloBudget(40, None, 1e-3)},
      {
          'north': silo_terms.SiloTerms(
              40,
              0.75,
              (phase(0, 24, 6), phase(24, 16, 4)),
              metric_stddevs=((3.0,), (3.0,)),
          )
      },
      metric_bounds=(2.0,),
      releases_per_round=2,
      **options,
  )


def _sum(noise, **options) -> plans.SecureSumPlan:
  return plans.SecureSumPlan(
      {'north': 22, 'south': 25},
      noise(grid=16, records_per_silo=2, min_silos=2, **options),
      num_rounds=4,
      l2_norm_clip=0.75,
      dimension=4,
  )


# Plans of the same systems that say something else. Only what they say before
# round 1 and after some rounds is compared.
VARIANTS = {
    'blt': lambda: _scheduled(
        blt.Blt(8, (0.25, 0.125), (0.95, 0.5), 4),
        participation.ShuffledEpochs(8, 4, epochs_per_shuffle=1),
    ),
    'banded': lambda: _scheduled(
        mechanisms.Banded.square_root(8, 3), _GAP
    ),
    'independent': lambda: _scheduled(
        mechanism.Independent(8),
        participation.UniformSampling(8, max_participations=2),
    ),
    'no_noise': lambda: _scheduled(
        toeplitz.Toeplitz.square_root(8), _GAP, noise_multiplier=0.0
    ),
    'examples': lambda: plans.SamplingPlan(
        population=20_000,
        clients_per_round=400,
        num_rounds=8,
        noise_multiplier=0.75,
        l2_norm_clip=0.5,
        unit='example',
    ),
    'adaptive_sampled': lambda: plans.SamplingPlan(
        population=20_000,
        clients_per_round=400,
        num_rounds=8,
        noise_multiplier=0.75,
        l2_norm_clip=0.5,
        adaptive_clipping=mechanisms.AdaptiveClipping(),
    ),
    'everybody': lambda: plans.SamplingPlan(
        population=400,
        clients_per_round=400,
        num_rounds=8,
        noise_multiplier=7.5,
        l2_norm_clip=0.5,
    ),
    'sliding': lambda: plans.CheckInPlan(
        check_ins.SlidingWindowCheckIn(8, 5),
        randomizers.Laplace(0.25, l1_norm_clip=0.5),
    ),
    'averaged': lambda: plans.CheckInPlan(
        check_ins.AveragedCheckIn(8, 1000), randomizers.RandomizedResponse(0.5)
    ),
    'reports': lambda: plans.CheckInPlan(
        check_ins.ShuffledReports(4, 1000), randomizers.Declared(0.5, 1e-9)
    ),
    'random_allocation': lambda: plans.AllocationPlan(
        allocation.RandomAllocation(3), noise_multiplier=3.0, l2_norm_clip=0.5
    ),
    'box_steps': lambda: dataclasses.replace(
        _drawn(clip='box', epsilon=2.0),
        spam_filter=tff_dp.draw_and_discard.SpamFilter(
            threshold=0.5, min_spread=0.1
        ),
    ),
    'quiet_steps': lambda: _drawn(mechanism=None),
    'blocks': _of_blocks,
    'void_blocks': lambda: _of_blocks(voids=('made for a test',)),
    'binomial_sums': lambda: _sum(integer_plans.BinomialPlan, trials=4000),
    'gaussian_sums': lambda: _sum(
        integer_plans.DiscreteGaussianPlan, stddev=30.0
    ),
}
_LEDGER_KINDS = ('dp_ftrl', 'non_private', 'draw_and_discard')


def observed(plan, num_rounds: int):
  """Returns what a run of a plan knows after some rounds, all of it distinct."""
  if plan.kind in _LEDGER_KINDS:
    return participation_ledger.Observed(
        num_rounds=num_rounds,
        num_clients=31,
        min_index_gap=5,
        max_participations=1,
        smallest_cohort=6,
        largest_cohort=9,
    )
  if plan.kind not in ('allocation', 'check_ins'):
    return builder.RoundsDone(num_rounds)
  if plan.protocol.occupancy_is_secret:
    return monitoring.Observed(num_rounds, rounds_counted=num_rounds)
  return monitoring.Observed(
      num_rounds,
      rounds_counted=num_rounds - 1,
      num_reports=77,
      rate=monitoring.RealisedRate(0.125, 0.0625, 0.25),
      warning='ASSUMPTION IN DOUBT: made for a test',
  )


def occasions(plan) -> dict[str, builder.Occasion]:
  """Returns name -> occasion: planned, stopped, all rounds, a known seed."""
  middle = plan.num_rounds // 2 + 1
  stopped = builder.Occasion(
      delta=DELTA,
      observed=observed(plan, middle),
      declarations=DECLARED,
      process=builder.CERTIFIED,
  )
  return {
      'planned': builder.Occasion(delta=DELTA),
      'first': dataclasses.replace(
          stopped, observed=observed(plan, 1), delta=1e-5
      ),
      'stopped': stopped,
      # One client in 20,000 is as likely as delta.
      'weak': dataclasses.replace(
          stopped, observed=observed(plan, plan.num_rounds), delta=5e-5
      ),
      'known': dataclasses.replace(stopped, insecure_seed=True),
  }
