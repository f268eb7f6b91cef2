# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""One-pass accelerated minibatch SGD whose silos hide in a secure sum (SDP).

    silo:    the clipped gradients of the next K records, each rounded to a
             grid; their sum, plus the silo's share of integer noise
    opened:  the sum over all silos, and nothing else
    server:  its decoded mean is the gradient of AC-SA, as in `accelerated`

The noise of all silos together protects a record, so there is far less of it
than where every silo protects its own records alone; the price is trust in the
secure summation and in the other silos. Every record is in one sum.

Sources: arXiv:2106.09779, algorithms 4 to 6, with exact calibration instead of
the printed constants; see `accounting.integers.integer_plans`.
"""

from collections.abc import Mapping, Sequence
from typing import Optional

import tensorflow_federated as tff

from tff_dp import _checks
from tff_dp.accounting.integers import integer_plans
from tff_dp.aggregators import integer_sum
from tff_dp.learning import constraints
from tff_dp.learning import local_training
from tff_dp.learning import process as learning_process
from tff_dp.learning.silos import accelerated
from tff_dp.learning.silos import aggregation
from tff_dp.learning.silos import gradients as gradients_lib
from tff_dp.learning.silos import process as process_lib
from tff_dp.learning.silos import server
from tff_dp.learning.silos import sum_work
from tff_dp.mechanisms import minibatch_schedules
from tff_dp.plans import secure_sums


def build_secure_sum_sgd(
    model: tff.learning.models.FunctionalModel,
    *,
    num_records: Mapping[str, int],
    num_rounds: int,
    l2_norm_clip: float,
    epsilon: float,
    delta: float,
    min_silos: int,
    noise: str = 'skellam',
    grid: int = 128,
    label_range: gradients_lib.LabelRange = None,
    gamma: Optional[float] = None,
    stages: Optional[Sequence[minibatch_schedules.Stage]] = None,
    strong_convexity: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    regularization: float = 0.0,
) -> process_lib.SiloProcess:
  """Returns one-pass accelerated minibatch SGD on secure sums.

  Every silo uses K = floor(min_i n_i / R) fresh records in each round, so that
  the decoded sum is the mean over all records of the round. The noise is
  calibrated for `min_silos`, and rounds of fewer are refused; rounds of more
  have more noise than they need.

  Args:
    model: A `FunctionalModel`, see `planning`.
    num_records: Records of each silo, by its public name.
    num_rounds: R, at most the records of the smallest silo.
    l2_norm_clip: C, on the gradient of every record.
    epsilon: The budget of every record, by the noise of all silos together.
    delta: In (0, 1).
    min_silos: Honest silos that are promised to be in every sum.
    noise: 'skellam', 'binomial' or 'discrete-gaussian'.
    grid: h, steps of the grid from -C to C; at most 256 with binomial noise.
      Rounding costs privacy like sqrt(d) further steps.
    label_range: See `planning`.
    gamma: See `accelerated.build_accelerated_mb_sgd_erm`.
    stages: See `accelerated.build_accelerated_mb_sgd_erm`.
    strong_convexity: mu of the loss, without the regulariser.
    constraint: See `planning`.
    regularization: See `planning`.
  """
  dimension = gradients_lib.num_params(model)
  _check_records(num_records, num_rounds)
  _checks.integer_between(1, len(num_records), min_silos=min_silos)
  _checks.clip_norm(l2_norm_clip=l2_norm_clip)
  _checks.positive(epsilon=epsilon)
  _checks.non_negative(strong_convexity=strong_convexity)
  _checks.non_negative(regularization=regularization)
  gradients_lib.check_label_range(label_range)
  leg = server.Leg(
      accelerated.stages_of(num_rounds, gamma, stages),
      strong_convexity=strong_convexity,
      regularization=regularization,
  )
  plan = secure_sums.SecureSumPlan(
      num_records,
      integer_plans.calibrate(
          noise,
          epsilon=epsilon,
          delta=delta,
          dimension=dimension,
          grid=grid,
          records_per_silo=min(num_records.values()) // num_rounds,
          min_silos=min_silos,
      ),
      num_rounds=num_rounds,
      l2_norm_clip=float(l2_norm_clip),
      dimension=dimension,
  )
  constraint = constraint or constraints.Unconstrained()
  initial_weights = local_training.build_initial_weights(model, constraint)
  weights_type = initial_weights.type_signature.result
  sums = integer_sum.IntegerVectorSumFactory(
      plan.sums, l2_norm_clip=plan.l2_norm_clip, max_silos=len(num_records)
  )
  process = learning_process.of_parts(
      aggregation.ReportedMeanFactory(
          sum_work.MeanOfRowsFactory(sums, weights_type.trainable)
      ),
      initial_weights,
      sum_work.build_rows_work(
          model, weights_type, plan, label_range=label_range
      ),
      server.build_accelerated_finalizer(
          weights_type, (leg,), constraint=constraint
      ),
  )
  return process_lib.SiloProcess(
      process, plan=plan, result=server.accelerated_result
  )


def _check_records(num_records: Mapping[str, int], num_rounds: int) -> None:
  if not num_records:
    raise _checks.ArgumentError(
        'num_records', num_records, 'the records of at least one silo'
    )
  _checks.integer_at_least(1, num_rounds=num_rounds)
  for name, count in num_records.items():
    _checks.integer_at_least(1, num_records=count)
    if count < num_rounds:
      raise _checks.ArgumentError(
          'num_rounds',
          num_rounds,
          f'at most {count}, the records of silo {name!r}: in one pass every'
          ' round uses others',
      )
