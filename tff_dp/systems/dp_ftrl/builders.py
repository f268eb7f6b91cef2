# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""DP-FTRL as a TFF learning process."""

from typing import Optional

import tensorflow_federated as tff

from tff_dp import _calls
from tff_dp import _checks
from tff_dp.learning import averaging as averaging_lib
from tff_dp.learning import constraints
from tff_dp.learning import finalizers
from tff_dp.learning import ftrl
from tff_dp.learning import local_training
from tff_dp.learning import optimizers
from tff_dp.learning import process as process_lib
from tff_dp.mechanisms import workloads
from tff_dp.systems.dp_ftrl import plan as plan_lib

_UNIFORM = tff.learning.ClientWeighting.UNIFORM


@_calls.helpful
def build_dp_ftrl(
    model_fn: local_training.ModelFn,
    plan: plan_lib.DpFtrlPlan,
    *,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_learning_rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    cooldown: Optional[workloads.Cooldown] = None,
    l1: float = 0.0,
    constraint: Optional[constraints.Constraint] = None,
    server_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
    averaging: Optional[averaging_lib.Average] = None,
    client_weighting: tff.learning.ClientWeighting = _UNIFORM,
    insecure_seed: Optional[int] = None,
) -> process_lib.PrivateLearningProcess:
  """Returns a learning process that trains with DP-FTRL.

  Clients run local training from the current model. The server clips, sums and
  noises their updates as the plan says, and takes one step. Without `l1` and
  `constraint` it uses an ordinary optimizer on the noised mean update of the
  round. With `l1` or `constraint` it uses `ftrl.Ftrl` on the sum of all noised
  mean updates so far. This sum begins anew with each tree of the plan. Either
  way the step is post-processing and costs no privacy.

  `momentum`, `nesterov` and `cooldown` are the fields of `mechanisms.Workload`:

      server = dict(momentum=0.9, cooldown=mechanisms.Cooldown())
      mechanism = mechanisms.Blt.optimized(
          participation, workload=mechanisms.Workload(**server))
      process = build_dp_ftrl(model_fn, plan, ..., **server)

  `process.workload` is this `Workload`, or `None` with a `server_optimizer`.
  With `l1` or `constraint` the workload describes the sum, from which the
  server computes the model by thresholding and projecting.

  Beside the model and the mechanism's noise (`Mechanism.state_copies` vectors),
  the server's state holds these vectors of the model's size: one if `momentum`
  is above 0, two (anchor and sum) with `l1` or `constraint`, and one with
  `averaging`. A `server_optimizer` holds its own.

  Args:
    model_fn: Model, as for `tff.learning.algorithms.build_unweighted_fed_avg`.
    plan: Plan with mechanism, participation, clipping, noise and cohort size.
    client_optimizer: Local optimizer of the clients.
    server_learning_rate: Learning rate eta, applied to the mean update.
    momentum: Server momentum in [0, 1).
    nesterov: Whether the momentum looks ahead.
    cooldown: Fall of the learning rate in the last rounds of the plan: round t
      takes `server_learning_rate` times the factor of the cooldown. With `l1`
      or `constraint` the factor weighs the whole loss of the round.
    l1: Weight of `|theta|_1` per round, which gives exact zeros.
    constraint: Set in which the model has to stay. The initial model is
      projected into it.
    server_optimizer: Any TFF optimizer. It replaces the arguments from
      `momentum` to `constraint`, and `server_learning_rate`, which must then be
      1.0.
    averaging: Average of the models to keep in addition to the last one, see
      `process.get_averaged_model_weights`.
    client_weighting: Must be `UNIFORM`. Other weightings of TFF's builders
      would change the sensitivity.
    insecure_seed: Seed for tests only, see `CorrelatedNoiseFactory`.

  Raises:
    ArgumentError: If a value is outside its range, or if `server_optimizer`
      comes with an argument that it replaces.
  """
  if client_weighting is not _UNIFORM:
    raise _checks.ArgumentError(
        'client_weighting',
        client_weighting,
        'tff.learning.ClientWeighting.UNIFORM: weights are data, and in a'
        ' weighted mean one client can move the mean by more than l2_norm_clip'
        ' / clients_per_round, which is the most that the noise covers',
    )
  plan_lib.check_is_dp_ftrl(plan)
  uses_ftrl = l1 != 0 or constraint is not None
  workload = None
  if server_optimizer is not None:
    local_training.check_optimizer(server_optimizer=server_optimizer)
    if (
        uses_ftrl
        or momentum
        or nesterov
        or cooldown is not None
        or server_learning_rate != 1.0
    ):
      raise _checks.ArgumentError(
          'server_optimizer',
          server_optimizer,
          'None if you set any of server_learning_rate, momentum, nesterov,'
          ' cooldown, l1 and constraint, because an optimizer replaces all of'
          ' them',
      )
  else:
    _checks.positive(server_learning_rate=server_learning_rate)
    workload = workloads.Workload(momentum, nesterov, cooldown)
  if uses_ftrl:
    constraint = constraint or constraints.Unconstrained()
    spec = ftrl.Ftrl(
        learning_rate=server_learning_rate,
        momentum=momentum,
        nesterov=nesterov,
        l1=l1,
        constraint=constraint,
        restart_every=plan.mechanism.restart_every,
        cooldown=cooldown,
        num_rounds=plan.num_rounds,
    )
  initial_weights = local_training.build_initial_weights(model_fn, constraint)
  weights_type = initial_weights.type_signature.result
  if uses_ftrl:
    finalizer = finalizers.build_ftrl_finalizer(spec, weights_type)
  else:
    finalizer = tff.learning.templates.build_apply_optimizer_finalizer(
        server_optimizer
        or optimizers.build_momentum(
            learning_rate=server_learning_rate,
            momentum=momentum,
            nesterov=nesterov,
            cooldown=cooldown,
            num_rounds=plan.num_rounds,
        ),
        weights_type,
    )
  return process_lib.compose(
      plan,
      initial_weights=initial_weights,
      client_work=local_training.build_client_work(model_fn, client_optimizer),
      finalizer=finalizer,
      workload=workload,
      averaging=averaging,
      insecure_seed=insecure_seed,
  )
