# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""Builders of accelerated noisy minibatch SGD over silos.

Sources: Lowy and Razaviyayn, arXiv:2106.09779, and Gao, Lowy, Zhou and Wright,
arXiv:2407.09690.

`planning` explains the arguments that all builders share: `silos`, `sampling`,
`l2_norm_clip` and `**options`.
"""

from collections.abc import Sequence
import math
from typing import Optional

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.learning import constraints
from tff_dp.systems.silos import minibatch_schedules
from tff_dp.systems.silos import planning
from tff_dp.systems.silos import process as process_lib
from tff_dp.systems.silos import server
from tff_dp.systems.silos import silo_budget
from tff_dp.systems.silos import silo_sampling
from tff_dp.systems.silos import silo_terms


@_calls.helpful
def build_accelerated_mb_sgd_erm(
    model: tff.learning.models.FunctionalModel,
    *,
    silos: planning.Silos,
    num_rounds: int,
    sampling: planning.Samplings,
    l2_norm_clip: float,
    gamma: Optional[float] = None,
    stages: Optional[Sequence[minibatch_schedules.Stage]] = None,
    strong_convexity: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    regularization: float = 0.0,
    **options,
) -> process_lib.SiloProcess:
  """Returns a process of multi-pass accelerated noisy minibatch SGD.

  Source: arXiv:2106.09779, section 4. The server runs AC-SA, an accelerated
  method (see `minibatch_schedules`), on the noisy gradients. Silos get the
  point w_md of this method, and `get_model_weights` returns its result w_ag.

  Args:
    model: A `FunctionalModel`, see `planning`.
    silos: Budgets by name, see `planning`.
    num_rounds: Number of rounds R.
    sampling: One scheme for all silos, or name -> scheme, see `planning`.
    l2_norm_clip: Clip norm, see `planning`.
    gamma: Step parameter of a single stage, about twice the smoothness of the
      loss or more.
    stages: Stages whose rounds add up to R, for example the result of
      `minibatch_schedules.multi_stage_schedule`. Give either `stages` or
      `gamma`.
    strong_convexity: Strong convexity mu of the loss, without the regulariser.
    constraint: Set in which the model has to stay, see `planning`.
    regularization: Regularisation lambda, see `planning`.
    **options: Options of `build_noisy_mb_sgd`.
  """
  options = planning.Options(**options)
  _checks.non_negative(strong_convexity=strong_convexity)
  _checks.non_negative(regularization=regularization)
  leg = server.Leg(
      stages_of(num_rounds, gamma, stages),
      strong_convexity=strong_convexity,
      regularization=regularization,
  )
  terms = planning.one_phase_terms(
      silos, sampling, num_rounds, l2_norm_clip, options
  )
  return _accelerated(model, silos, terms, (leg,), options, constraint)


@_calls.helpful
def build_one_pass_accelerated_mb_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    silos: planning.Silos,
    num_rounds: int,
    **arguments,
) -> process_lib.SiloProcess:
  """Returns a process of one-pass accelerated noisy minibatch SGD.

  Source: arXiv:2106.09779, algorithm 1. Every silo cuts its n_i records into R
  blocks of K_i = floor(n_i / R) and uses each block in one round. So all
  messages of the silo together cost a record as much as one Gaussian release.
  `minibatch_schedules.choose_rounds` finds R and gamma.

  Args:
    model: A `FunctionalModel`, see `planning`.
    silos: Budgets by name, see `planning`.
    num_rounds: Number of rounds R, at most the records of the smallest silo.
    **arguments: Arguments of `build_accelerated_mb_sgd_erm` except `sampling`.
  """
  return build_accelerated_mb_sgd_erm(
      model,
      silos=silos,
      num_rounds=num_rounds,
      sampling=planning.equal_blocks(silos, num_rounds),
      **arguments,
  )


@_calls.helpful
def build_localized_mb_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    silos: planning.Silos,
    lipschitz: float,
    regularization: float,
    exponent: float = 1.0,
    rounds_per_phase: Sequence[int],
    smoothness: float,
    batch_share: float = 1.0,
    l2_norm_clip: Optional[float] = None,
    stages_per_phase: Optional[
        Sequence[Sequence[minibatch_schedules.Stage]]
    ] = None,
    **options,
) -> process_lib.SiloProcess:
  """Returns a process of localized accelerated minibatch SGD.

  Source: arXiv:2407.09690. Let F be the objective. Phase j = 1..J minimises

      F + lambda_j / 2 |w - w_{j-1}|^2,   lambda_j = lambda 2^((j-1) exponent)

  over the ball of radius 2 L / lambda_j around w_{j-1}. Here w_{j-1} is the
  result of the phase before, and w_0 is the initial model. A phase is
  accelerated SGD with Poisson sampling, on n_j = floor(n / 2^j) fresh records
  of each silo. Phases use disjoint records, so each phase is calibrated to the
  whole budget.

  Args:
    model: A `FunctionalModel`, see `planning`.
    silos: Budgets by name, see `planning`.
    lipschitz: Lipschitz constant L, for the radii. It is also the clip norm
      unless `l2_norm_clip` is given.
    regularization: Regularisation lambda.
    exponent: Exponent of lambda_j, at least 1.
    rounds_per_phase: Rounds of phases 1..J, where J is at most log2 of the
      records of the smallest silo.
    smoothness: Smoothness beta of F. Without `stages_per_phase`, gamma_j is 2
      (beta + lambda_j).
    batch_share: Share K_j / n_j of a batch, in (0, 1].
    l2_norm_clip: Clip norm, see `planning`.
    stages_per_phase: Stages of every phase, whose rounds add up to the rounds
      of the phase.
    **options: Options of `build_noisy_mb_sgd`.
  """
  options = planning.Options(**options)
  _checks.positive(lipschitz=lipschitz)
  _checks.positive(regularization=regularization)
  _checks.positive(smoothness=smoothness)
  _checks.positive(batch_share=batch_share)
  _checks.in_closed(0.0, 1.0, batch_share=batch_share)
  if not exponent >= 1:
    raise _checks.ArgumentError('exponent', exponent, 'a number of at least 1')
  planning.check_silos(silos)
  num_phases = len(rounds_per_phase)
  fewest = min(silo.num_records for silo in silos.values())
  _checks.integer_between(
      1, max(1, int(math.log2(fewest))), number_of_phases=num_phases
  )
  if stages_per_phase is None:
    stages_per_phase = [None] * num_phases
  legs = []
  for phase, (rounds, stages) in enumerate(
      zip(rounds_per_phase, stages_per_phase, strict=True)
  ):
    pull = regularization * 2.0 ** (phase * exponent)
    gamma = 2.0 * (smoothness + pull) if stages is None else None
    legs.append(
        server.Leg(
            stages_of(rounds, gamma, stages),
            regularization=pull,
            radius=2.0 * lipschitz / pull,
        )
    )
  terms = localized_terms(
      silos,
      rounds_per_phase,
      batch_share=batch_share,
      l2_norm_clip=lipschitz if l2_norm_clip is None else l2_norm_clip,
      options=options,
  )
  return _accelerated(model, silos, terms, tuple(legs), options, None)


def localized_terms(
    silos: planning.Silos,
    rounds_per_phase: Sequence[int],
    *,
    batch_share: float,
    l2_norm_clip: float,
    options: planning.Options,
) -> dict[str, silo_terms.SiloTerms]:
  """Returns the terms of every silo, by name.

  In every silo, phase j has floor(n / 2^j) records of its own.

  Args:
    silos: Budgets by name, see `planning`.
    rounds_per_phase: Rounds of each phase, see `build_localized_mb_sgd`.
    batch_share: Share of a batch, see `build_localized_mb_sgd`.
    l2_norm_clip: Clip norm, see `planning`.
    options: Options from the user.
  """

  def phases_of(silo: silo_budget.SiloBudget):
    first = 0
    for phase, rounds in enumerate(rounds_per_phase):
      num_records = silo.num_records >> (phase + 1)
      sampling = silo_sampling.PoissonSampling(batch_share * num_records)
      yield sampling, first, num_records, rounds
      first += num_records

  return {
      name: planning.silo_terms(
          name, silos, phases_of(silo), l2_norm_clip, options
      )
      for name, silo in silos.items()
  }


def stages_of(
    num_rounds: int,
    gamma: Optional[float],
    stages: Optional[Sequence[minibatch_schedules.Stage]],
) -> tuple[minibatch_schedules.Stage, ...]:
  """Returns `stages` after a check, or a single stage with `gamma`.

  Args:
    num_rounds: Number of rounds of all stages.
    gamma: Step parameter of a single stage, or `None`.
    stages: Stages, or `None`.

  Raises:
    ArgumentError: If not exactly one of `gamma` and `stages` is given, or if
      the rounds of the stages do not add up to `num_rounds`.
  """
  if (gamma is None) == (stages is None):
    raise _checks.ArgumentError(
        'gamma', gamma, 'exactly one of gamma and stages'
    )
  if stages is None:
    return (minibatch_schedules.Stage(num_rounds, gamma),)
  total = sum(stage.num_rounds for stage in stages)
  if total != num_rounds:
    raise _checks.ArgumentError(
        'stages',
        stages,
        f'stages whose rounds add up to num_rounds={num_rounds}, not {total}',
    )
  return tuple(stages)


def _accelerated(model, silos, terms, legs, options, constraint):
  constraint = constraint or constraints.Unconstrained()
  return planning.compose(
      model,
      silos,
      terms,
      options,
      constraint=constraint,
      build_finalizer=lambda weights_type: server.build_accelerated_finalizer(
          weights_type, legs, constraint=constraint
      ),
      result=server.accelerated_result,
  )
